"""Boosted trees between parties: against trees grown in one place, under every protection, broken off, and refused."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import colonnade as cn
from colonnade.algorithms.boosted import OpenBoosting, SealedBoosting
from colonnade.boosting import questions
from colonnade.boosting.candidates import CellSums, agreeing, best_cuts
from colonnade.boosting.options import TreeOptions, TreePart
from colonnade.boosting.questions import questions_of, steps_of, turn
from colonnade.boosting.ranges import ColumnSizes, Ranges, packed, sides_of, taken
from colonnade.errors import (
    ColonnadeWarning,
    DataError,
    LabelError,
    OptionError,
    PartyFailed,
    PolicyRefused,
    ProtocolError,
)
from colonnade.families.training import TrainingJob, TrainingPart, train
from colonnade.objective import losses
from test_kept import Shelf
from tree_attacks import watched

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
RNG = np.random.default_rng(11)
ROWS = 2_000
X = RNG.standard_normal((ROWS, 6))
X[RNG.random(X.shape) < 0.03] = np.nan
KINDS = RNG.integers(0, 5, ROWS)
Z = np.nan_to_num(X) @ [1.0, 0.0, 0.5, 1.5, -1.0, 0.0] + np.array([0.0, 2.0, -2.0, 1.0, -1.0])[KINDS]
Y = (Z + 0.5 * RNG.standard_normal(ROWS) > 0).astype(int)
TABLE = np.c_[X, KINDS]


def parties(y=Y, rows=slice(None), **options):
    into = {"bank": [0, 1], "shop": [2, 3], "tax": [4, 5, 6]}
    return cn.split(TABLE[rows], y[rows], into=into, active=["bank"], categories=[6], **options)


def model(kind=cn.BoostedTreesClassifier, **options):
    return kind(**{"trees": 12, "depth": 3, "verbose": 0, **options})


# -- against trees in one place ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"leaves": 6}, {"rows": 0.6, "columns": 0.7}, {"bins": 8, "l2": 0.0}], ids=str)
def test_plain_trees_are_those_of_one_party_with_all_columns(options):
    """Whoever has which column: the same splits, leaves and scores to the bit."""
    whole = cn.Party("bank", TABLE, Y, categories=[6])
    alone = model(protection="plain", **options).fit(whole)
    together = model(protection="plain", **options).fit(*parties())
    np.testing.assert_array_equal(together.decision_function(*parties()), alone.decision_function(whole))
    assert together.forest_.gain.tobytes() == alone.forest_.gain.tobytes()


def test_one_tree_is_that_of_a_slow_reference():
    """A split of depth 1 over all parties' columns, by trying every threshold with plain sums."""
    some = ~np.isnan(TABLE[:, :4]).any(axis=1)
    data = np.round(TABLE[some, :4], 1)  # few values: a cell each
    y = Y[some]
    given = cn.split(data, y, into={"bank": [0, 1], "shop": [2, 3]}, active=["bank"])
    found = model(trees=1, depth=1, bins=256, learning_rate=1.0, protection="plain").fit(*given)
    p = y.mean()
    g, h = p - y, np.full(len(y), p * (1 - p))
    best = max(
        (
            (g[left].sum() ** 2 / (h[left].sum() + 1) + g[~left].sum() ** 2 / (h[~left].sum() + 1)
             - g.sum() ** 2 / (h.sum() + 1), j, at)
            for j in range(4)
            for at in np.unique(data[:, j])[:-1]
            for left in [data[:, j] <= at]
            if min(h[left].sum(), h[~left].sum()) >= 1
        ),
    )  # fmt: skip
    gain, j, at = best
    left = data[:, j] <= at
    leaves = np.where(left, -g[left].sum() / (h[left].sum() + 1), -g[~left].sum() / (h[~left].sum() + 1))
    np.testing.assert_allclose(found.decision_function(*given), np.log(p / (1 - p)) + leaves, rtol=1e-12)
    assert found.forest_.feature[0] == j
    np.testing.assert_allclose(found.forest_.gain[0], gain, rtol=1e-6)


def test_sealed_trees_come_close_to_plain_ones_and_beat_the_label_holder_alone():
    held_out = np.arange(1_500, ROWS)
    fit, use = parties(rows=slice(0, 1_500)), parties(rows=held_out)
    auc = {}
    for name in ("plain", "sealed"):
        made = model(trees=60, protection=name).fit(*fit)
        auc[name] = area(made, use)
    alone = model(trees=60, protection="plain").fit(fit[0])
    auc["alone"] = area(alone, use[:1])
    assert auc["plain"] > 0.95
    assert auc["sealed"] > auc["plain"] - 0.03
    assert auc["sealed"] > auc["alone"] + 0.1


def area(made, use):
    from colonnade.objective.metrics import auc

    return auc(use[0].y, made.decision_function(*use))


@pytest.mark.parametrize("protection", ["plain", "sealed"])
@pytest.mark.parametrize(
    ("loss", "target"),
    [
        ("square", Z),
        ("poisson", np.random.default_rng(1).poisson(np.exp(Z / 4))),
        ("gamma", np.exp(Z / 4)),
        ("tweedie 1.3", np.maximum(Z, 0)),
        ("quantile 0.8", Z),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_loss_of_a_regressor(loss, target, protection):
    given = parties(target)
    made = model(cn.BoostedTreesRegressor, loss=loss, trees=25, protection=protection).fit(*given)
    assert made.history_[-1]["loss"] < made.history_[0]["loss"]
    assert made.score(*given) > 0.2
    if loss.startswith("quantile"):
        assert abs((target <= made.predict(*given)).mean() - 0.8) < 0.06  # short of it, after few trees


@pytest.mark.parametrize("protection", ["plain", "sealed"])
def test_several_classes(protection):
    y = np.digitize(Z, [-1.5, 1.5])
    made = model(trees=15, protection=protection).fit(*parties(y))
    chances = made.predict_proba(*parties(y))
    assert chances.shape == (ROWS, 3)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert made.score(*parties(y)) > 0.75
    assert made.trees_ == 45


def test_weights_are_repeated_rows_and_balanced_ones_are_scikit_learns():
    weights = np.random.default_rng(2).integers(1, 4, ROWS)
    given = cn.split(TABLE, Y, into={"bank": [0, 1], "shop": [2, 3]}, active=["bank"], sample_weight=weights)
    often = np.repeat(np.arange(ROWS), weights)
    repeated = cn.split(TABLE[often], Y[often], into={"bank": [0, 1], "shop": [2, 3]}, active=["bank"])
    # Few bins that do not depend on how often a row is there: those of rounded values.
    for each in (*given, *repeated):
        each.X[:] = np.round(each.X)
    one, other = (model(bins=64, protection="plain").fit(*each) for each in (given, repeated))
    np.testing.assert_allclose(one.decision_function(*given), other.decision_function(*given), atol=1e-6)
    rare = (Z > 2.5).astype(int)
    by_hand = np.where(rare == 1, ROWS / 2 / rare.sum(), ROWS / 2 / (ROWS - rare.sum()))
    weighed = cn.split(TABLE, rare, into={"bank": [0, 1], "shop": [2, 3]}, active=["bank"], sample_weight=by_hand)
    plain = cn.split(TABLE, rare, into={"bank": [0, 1], "shop": [2, 3]}, active=["bank"])
    one = model(protection="plain", class_weight="balanced").fit(*plain).decision_function(*plain)
    np.testing.assert_array_equal(one, model(protection="plain").fit(*weighed).decision_function(*plain))


@pytest.mark.parametrize("protection", ["plain", "sealed"])
def test_scores_follow_monotone_columns(protection):
    made = model(trees=40, protection=protection, monotone={"shop": {1: 1}, "tax": {"x0": -1}}).fit(*parties())
    for party, column, sign in ((1, 1, 1), (2, 0, -1)):
        given = [each.take(np.arange(50)) for each in parties()]
        scores = []
        for value in np.linspace(-3, 3, 25):
            moved = [each.take(np.arange(50)) for each in given]
            moved[party]._X = moved[party].X.copy()
            moved[party].X[:, column] = value
            scores.append(made.decision_function(*moved))
        assert (sign * np.diff(np.array(scores), axis=0) >= -1e-12).all()
        assert np.ptp(np.array(scores), axis=0).max() > 0


@pytest.mark.parametrize("protection", ["plain", "sealed"])
def test_training_stops_where_held_out_rows_say_so_and_goes_back_to_the_best(protection):
    fit, held = parties(rows=slice(0, 700)), parties(rows=slice(700, ROWS))
    made = model(trees=400, depth=4, learning_rate=0.3, patience=4, protection=protection).fit(*fit, validation=held)
    seen = [record["validation_loss"] for record in made.history_]
    assert len(seen) < 400
    assert made.trees_ == int(np.argmin(seen)) + 1 == len(seen) - 4
    z = made.decision_function(*held)
    loss = losses.loss("logistic").value(z, np.where(held[0].y == 1, 1.0, -1.0))
    np.testing.assert_allclose(loss, min(seen), rtol=1e-9)


def test_training_goes_on_from_the_trees_that_there_are():
    made = model(trees=5, protection="plain", warm_start=True).fit(*parties())
    first = made.forest_
    made.set_params(trees=12).fit(*parties())
    whole = model(trees=12, protection="plain").fit(*parties())
    assert made.trees_ == 12
    assert made.forest_.feature[: len(first.feature)].tobytes() == first.feature.tobytes()
    np.testing.assert_allclose(made.decision_function(*parties()), whole.decision_function(*parties()), atol=1e-9)
    sealed = model(trees=5, warm_start=True).fit(*parties())
    before = sealed.score(*parties())
    assert sealed.set_params(trees=30).fit(*parties()).score(*parties()) > before
    with pytest.raises(OptionError, match="warm_start goes on with the parties"):
        sealed.fit(*parties()[:2])


def test_label_privacy_chooses_splits_by_other_labels_and_leaves_by_the_true_ones():
    given = parties()
    for epsilon, least in ((1.0, 0.75), (8.0, 0.85)):
        made = model(trees=40, algorithm=SealedBoosting(label_epsilon=epsilon)).fit(*given)
        assert made.score(*given) > least
    with pytest.raises(OptionError, match="label_epsilon randomises classes"):
        model(cn.BoostedTreesRegressor, algorithm=OpenBoosting(label_epsilon=1.0)).fit(*parties(Z))
    private = SealedBoosting(label_epsilon=1.0)
    with pytest.raises((OptionError, PartyFailed), match="weights that balance classes tell them"):
        model(algorithm=private, class_weight="balanced").fit(*given)
    with pytest.raises((OptionError, PartyFailed), match="patience ends training where the true ones"):
        model(algorithm=private, patience=2).fit(*given, validation=given)
    with pytest.raises((OptionError, PartyFailed), match="monotone columns need leaves as splits leave them"):
        model(algorithm=private, monotone={"shop": {0: 1}}).fit(*given)


def test_label_privacy_follows_all_rows_also_where_a_tree_is_grown_on_some():
    """Labels that are as good as never changed make both scores of a row the same."""
    run = watched(parties(), SealedBoosting(label_epsilon=60.0), trees=6, rows=0.5)
    np.testing.assert_allclose(run.leader.rounds.shown, run.leader.rounds.z, atol=1e-9)


# -- the same everywhere -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protection", ["plain", "sealed"])
def test_processes_give_the_bits_of_the_simulation(protection):
    """Under the same secrets; others are other noise."""
    given = parties()
    one = model(protection=protection).fit(*given)
    other = model(protection=protection).fit(*given, on=cn.Processes(secret="rehearsal"))
    assert one.decision_function(*given).tobytes() == other.decision_function(*given, on=cn.Processes()).tobytes()
    for name, state in one._states.items():
        assert str(other._states[name]) == str(state)


def job_of(algorithm, options=None, names=("bank",)):
    return TrainingJob(
        algorithm.family, options or TreeOptions(trees=6, depth=3), "logistic", 1, names, "plain", "star", algorithm
    )


def broken(job, parts, at=None, leaves=None):
    """The states after a run, which may be broken off where a party has kept its version `at`, and then goes on."""

    class Breaks(Shelf):
        def save(self, version, state):
            super().save(version, state)
            if version == at:
                raise RuntimeError("the power fails")

    shelves = {name: Breaks() if name == leaves else Shelf() for name in parts}

    def run():
        programs = {
            name: (partial(train, keeper=shelves[name]), (job.as_value(), part.as_value()))
            for name, part in parts.items()
        }
        return {name: str(one.value) for name, one in cn.Simulation().run(programs).items()}

    if at is None:
        return run()
    with pytest.raises(PartyFailed, match=f"party '{leaves}' failed .*the power fails"):
        run()
    whole = Shelf()
    whole.__dict__.update(shelves[leaves].__dict__)
    shelves[leaves] = whole
    return run()


@pytest.mark.parametrize("algorithm", [OpenBoosting(), SealedBoosting()], ids=lambda one: one.name)
@pytest.mark.parametrize(("leaves", "at"), [("bank", 1), ("bank", 4), ("tax", 2), ("shop", 5)])
def test_a_run_that_is_broken_off_goes_on_to_the_same_bits(algorithm, leaves, at):
    loss = losses.loss("logistic")
    held = parties(rows=slice(1_500, ROWS))
    parts = {
        one.name: TrainingPart.of(one, np.array([0, 1]), loss, other, TreePart(one.categories).as_value())
        for one, other in zip(parties(rows=slice(0, 1_500)), held, strict=True)
    }
    job = job_of(algorithm)
    assert broken(job, parts, at, leaves) == broken(job, parts)


def test_a_partner_that_dies_is_named():
    with pytest.raises(cn.errors.RunFailed, match="shop"):
        model(trees=30).fit(*parties(), on=cn.Simulation(latency=0.01, faults=cn.Faults(crashes={"shop": 0.05})))


# -- what is open, and what is not -------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranges", [2, 3, 8])
def test_a_partner_opens_no_more_ranges_than_agreed(ranges):
    made = model(trees=40, depth=4, algorithm=SealedBoosting(ranges=ranges)).fit(*parties())
    told = [count for columns in made.ranges_.values() for count in columns.values()]
    assert told
    assert max(told) <= ranges


def test_most_trees_need_no_message():
    few, many = (model(trees=trees).fit(*parties()).traffic_["bank"].messages for trees in (90, 143))
    assert [tree + 1 for tree in range(60) if turn(tree) is not None] == [1, 2, 3, 5, 8, 13, 21, 34, 55]
    assert few == many  # the next tree that asks is the 144th
    assert questions_of(100, 1) == 10 * sum(steps_of(0, 0, 1)) == 70
    assert questions_of(100, 10) == 10 * (7 + 9)  # one class after the other asks about more than its root


def test_what_a_partner_is_sent_does_not_depend_on_labels_or_shape():
    """Sizes and order of all messages but cuts are the same, whatever the labels: a tree that ends early asks on."""
    noise = np.random.default_rng(3).integers(0, 2, ROWS)

    def sizes(y):
        seen = model(trees=5, depth=4).fit(*parties(y)).traffic_["bank"].by_step
        return {step: value for step, value in seen.items() if step not in ("tree cuts", "tree model")}

    assert sizes(Y) == sizes(noise) == sizes((np.arange(ROWS) < 30).astype(int))


def test_ranges_are_cells_in_their_order_and_later_cuts_change_nothing_before():
    sizes = ColumnSizes((6, 4), (True, False), (False, True), (0, 0))
    ranges, cells = Ranges(sizes, 4), np.array([0, 1, 2, 3, 4, 5, 5, 0], np.uint8)
    codes = np.zeros(len(cells), np.uint8)
    for at in (3, 1):
        cut = np.arange(6) < at
        bits = [np.unpackbits(one, count=len(cells)).astype(bool) for one in sides_of(ranges, 0, cut, cells)]
        codes = taken(ranges, 0, cut, codes, bits, "shop", "sides")
        before = ranges.whole(0, np.arange(6) < 3)
        ranges.open(0, cut)
        np.testing.assert_array_equal(codes, ranges.codes(0, cells))
        np.testing.assert_array_equal(ranges.whole(0, before), before)
    assert sorted(set(codes.tolist())) == [0, 1, 3, 5]  # missing values have one of their own
    assert not ranges.fits(0, np.arange(6) < 2)  # a fifth
    for column, cut, words in (
        (2, packed(np.arange(6) < 2), "must name a column"),
        (0, b"", "one bit for each"),
        (0, packed(np.arange(6) < 2), "more than 4 ranges"),
        (0, packed(np.array([1, 0, 1, 0, 0, 0], bool)), "at one place"),
        (True, packed(np.arange(6) < 2), "must name a column"),
    ):
        with pytest.raises(ProtocolError, match=words):
            ranges.check(column, cut, "bank", "cuts")
    assert ranges.check(1, packed(np.array([1, 0, 1, 0], bool)), "bank", "cuts")[0] == 1  # categories have no order
    with pytest.raises(ProtocolError, match="contradict"):
        taken(ranges, 0, np.arange(6) < 1, codes, [np.ones(8, bool)], "shop", "sides")


def test_sums_of_two_children_are_less_noisy_with_those_of_their_parent():
    """Right on average, closer than each sum by itself, and with the noise that they say they have."""
    rng, true = np.random.default_rng(6), np.arange(32.0)
    first, errors = [], []
    for _ in range(2_000):
        whole, one, other = (
            CellSums(each + sd * rng.standard_normal(32), each + sd / 2 * rng.standard_normal(32), (0, 0), (sd, sd / 2))
            for each, sd in ((3 * true, 4.0), (true, 3.0), (2 * true, 6.0))
        )
        better, _ = agreeing(whole, one, other)
        first.append((one.G - true, one.H - true))
        errors.append((better.G - true, better.H - true))
    before, after = np.array(first).std(axis=(0, 2)), np.array(errors).std(axis=(0, 2))
    np.testing.assert_allclose(np.array(errors).mean(), 0.0, atol=0.05)
    np.testing.assert_allclose(after, better.noise, rtol=0.02)
    assert (after < 0.95 * before).all()


def test_noise_alone_is_no_reason_to_open_a_cut():
    """Of a thousand groups of rows that have nothing to do with a column, few look as if they had."""
    rng, sizes = np.random.default_rng(5), ColumnSizes((32,), (False,), (False,), (0,))
    ranges, opened = Ranges(sizes, 8), 0
    for _ in range(1000):
        noise = 10.0
        G, H = noise * rng.standard_normal(32), np.full(32, 50.0) + noise / 4 * rng.standard_normal(32)
        found = best_cuts(CellSums(G, H, (0.0, 1600.0), (noise, noise / 4)), ranges, 1.0, 1.0)
        opened += bool(found)
    assert opened < 300
    G[:10] -= 200.0
    G[10:] += 100.0
    (best,) = best_cuts(CellSums(G, H, (200.0, 1600.0), (noise, noise / 4)), ranges, 1.0, 1.0)
    assert best.cut.sum() == 10


# -- refused -----------------------------------------------------------------------------------------------------------


def test_what_can_t_be_is_refused_before_anything_runs():
    given = parties()
    unlabelled = [cn.Party(each.name, each.X) for each in given]
    with pytest.raises(LabelError, match="no party holds labels"):
        model().fit(*unlabelled)
    with pytest.raises(LabelError, match="exactly one label holder, got 'bank', 'shop'"):
        model().fit(*cn.split(X, Y, into={"bank": [0], "shop": [1, 2]}, active=["bank", "shop"]))
    with pytest.raises(OptionError, match=r"monotone names column 2 of party 'tax', which holds categories"):
        model(monotone={"tax": {2: 1}}).fit(*given)
    with pytest.raises(OptionError, match="the column of 'shop' that monotone names must be one of"):
        model(monotone={"shop": {"income": 1}}).fit(*given)
    with pytest.raises(OptionError, match="the party that monotone names must be one of"):
        model(monotone={"mill": {0: 1}}).fit(*given)
    with pytest.raises(OptionError, match=r"protection='masked' is for sums of scores; trees have 'sealed'"):
        model(protection="masked").fit(*given)
    with pytest.raises(OptionError, match="algorithm must be SealedBoosting"):
        model(algorithm=cn.FedSGD()).fit(*given)
    with pytest.raises(OptionError, match="is sealed training, got protection='plain'"):
        model(algorithm=SealedBoosting(), protection="plain").fit(*given)
    with pytest.raises(OptionError, match="SealedBoosting takes no batch"):
        SealedBoosting(batch=3)
    with pytest.raises(LabelError, match="use BoostedTreesRegressor"):
        model().fit(*parties(Z))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"trees": 0}, "trees must be"),
        ({"depth": 17}, "depth must be at most 16"),
        ({"leaves": 1}, "leaves must be"),
        ({"bins": 257}, "bins must be at most 256"),
        ({"learning_rate": 0}, "learning_rate must be"),
        ({"l2": -1.0}, "l2 must be"),
        ({"rows": 1.5}, "rows must be a part of 1"),
        ({"class_weight": "fair"}, "class_weight must be 'balanced' or {class: weight}, got 'fair'"),
        ({"patience": 0}, "patience must be"),
    ],
    ids=str,
)
def test_options_outside_of_their_range_are_one_sentence(options, words):
    with pytest.raises(OptionError, match=words):
        model(**options).fit(*parties())


def test_what_only_shows_in_a_run_names_the_party():
    small = parties(rows=slice(0, 40))
    with pytest.raises((DataError, PartyFailed), match=r"bins must be at most the 40 rows of party 'bank', got 64"):
        model(bins=64).fit(*small)
    with pytest.raises(
        (DataError, PartyFailed), match="patience=3 stops training by held-out rows, and there are none"
    ):
        model(patience=3).fit(*parties())
    missing = np.where(np.arange(ROWS) < 5, np.nan, Y)
    with pytest.raises((LabelError, PartyFailed), match="label"):
        model().fit(*parties(missing))


def test_a_party_refuses_more_than_its_policy_allows():
    loss, given = losses.loss("logistic"), parties()
    for limit, words in ((TreePart(most_ranges=4), "up to 8 ranges"), (TreePart(most_questions=10), "sums over")):
        parts = {one.name: TrainingPart.of(one, np.array([0, 1]), loss, None, limit.as_value()) for one in given}
        programs = {
            name: (train, (job_of(SealedBoosting()).as_value(), part.as_value())) for name, part in parts.items()
        }
        with pytest.raises((PolicyRefused, PartyFailed), match=words):
            cn.Simulation().run(programs)


def test_a_constant_column_is_never_cut_and_constant_columns_alone_are_refused():
    one = np.ones(ROWS)
    made = model(trees=20).fit(cn.Party("bank", X[:, :2], Y), cn.Party("shop", np.c_[one, X[:, 3], one * np.nan]))
    assert set(made.ranges_["shop"]) == {"x1"}
    with pytest.raises((DataError, PartyFailed), match="none of the 2 columns of party 'shop' can be cut"):
        model().fit(cn.Party("bank", X[:, :2], Y), cn.Party("shop", np.c_[one, one * np.nan]))


def test_a_hint_is_good_for_few_sums_and_partners_make_new_ones(monkeypatch):
    """A label holder that asks for more of one hint, which would let it solve for masks, is refused."""
    made = model(trees=8).fit(*parties())
    assert made.traffic_["shop"].by_step["tree hint"][0] == 2  # 35 sums
    monkeypatch.setattr(questions, "PER_HINT", 1_000)
    with pytest.raises((ProtocolError, PartyFailed), match=r"the hint is good for . more"):
        model(trees=8).fit(*parties())


@pytest.mark.filterwarnings("default::colonnade.errors.ColonnadeWarning")
def test_plain_trees_warn_of_what_they_show():
    with pytest.warns(ColonnadeWarning, match="every partner's columns go to the label holder"):
        model(trees=1, protection="plain").fit(*parties())


# -- predictions -------------------------------------------------------------------------------------------------------


def test_predictions_take_missing_values_and_categories_that_training_had_not():
    fit = parties(rows=slice(0, 1_500))
    made = model(trees=20, protection="plain").fit(*fit)
    new = [each.take(np.arange(20)) for each in fit]
    new[2]._X = new[2].X.copy()
    new[2].X[:, 2] = 77
    new[0]._X = np.full_like(new[0].X, np.nan)
    assert np.isfinite(made.decision_function(*new)).all()
    with pytest.raises(DataError, match=r"names columns \[\] as categories here and \[2\] in training"):
        made.predict(*new[:2], cn.Party("tax", np.nan_to_num(new[2].X)))


def test_a_kept_model_that_was_tampered_with_is_refused(tmp_path):
    made = model(trees=5).fit(*parties())
    made.save(tmp_path)
    path = tmp_path / "bank.colonnade.npz"
    with np.load(path) as archive:
        arrays = {key: archive[key] for key in archive.files}
    for key, value in (("forest_left", np.zeros_like(arrays["forest_left"])), ("partner_cells", np.array([999]))):
        np.savez(path, **{**arrays, key: value})
        with pytest.raises(DataError, match=r"forest|trees"):
            cn.load(tmp_path)


def test_a_round_may_ask_for_more_sums_than_a_hint_is_good_for():
    """With many classes it takes several hints, also where a fresh one has not been asked anything yet."""
    y = np.argsort(np.argsort(Z)) * 25 // ROWS
    given = parties(y)
    made = model(trees=3, depth=2, warm_start=True).fit(*given)
    assert made.set_params(trees=6).fit(*given).trees_ == 6 * 25
