"""Attacks on columns: each opens a run that shows it something, and has nothing to go by, or to gain, elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import colonnade as cn
from colonnade.attacks.case import Case, Known
from colonnade.audit.auditing import audited
from colonnade.audit.findings import judged
from colonnade.audit.of_model import cases_of, trained_again
from colonnade.inversions.column_span import ColumnSpan, UnmaskedParts
from colonnade.inversions.rotations import InnerProducts, KnownMarginals, PieceSigns
from colonnade.inversions.score_equations import EqualitySolving, GenerativeRegression, ScoreRegression
from colonnade.inversions.tree_bins import TreeRanges, TreeSums
from colonnade.newton.party import NewtonParty
from colonnade.sums.masked import PairwiseSum
from colonnade.views.directions import public_signs

RNG = np.random.default_rng(11)
N = 400
SPAN, INNER, MARGINALS = "span of totals", "inner products of rows", "known marginals"
UNMASKED, SIGNS = "parts without a mask", "signs of pieces"
SGD = cn.FedSGD(epochs=20)


def table(columns=8):
    """Columns as they are: skewed ones, counts, and some that stick together."""
    X = np.column_stack(
        [
            RNG.exponential(size=N),
            RNG.integers(0, 2, N),
            RNG.uniform(-2, 2, N),
            RNG.standard_t(5, N),
            RNG.gamma(2, size=N),
            RNG.integers(0, 5, N),
            RNG.standard_normal(N) ** 2,
            RNG.lognormal(0, 0.6, N),
            *RNG.exponential(size=(4, N)),
        ]
    )
    return (X - X.mean(axis=0)) / X.std(axis=0)


X = table()
Y = np.where(X @ np.linspace(-1, 1, 12) + RNG.logistic(size=N) > 0, 1, 0)


def parties(into=2):
    return cn.split(X, Y, into=into, active=1, seed=0)


def patients(into=2):
    """Thirty columns that have much in common."""
    data = load_breast_cancer()
    scaled = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    return cn.split(scaled, data.target, into=into, active=1, seed=0)


def audit(model, into=2, of=parties, **more):
    return model.fit(*of(into)).audit(*of(into), **more)


def logistic(**options):
    return cn.LogisticRegression(verbose=0, **options)


def advantage(found, attack, attacker="party1", had=""):
    some = [one.advantage for one in found.findings if one.attack == attack and one.attacker == attacker]
    if had:
        some = [one.advantage for one in found.findings if one.attack == attack and had in one.had]
    return max(some)


def has(found, attack):
    return any(one.attack == attack for one in found.findings)


# -- what totals show --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["auto", SGD], ids=["newton", "sgd"])
def test_totals_and_inner_products_of_rows_give_columns_away(algorithm):
    found = audit(logistic(algorithm=algorithm), attacks=[SPAN, INNER, MARGINALS], attackers=["party1"])
    assert advantage(found, INNER, had="15 known rows") > 0.95  # of six columns, by a rotation of six dimensions
    assert advantage(found, MARGINALS) > 0.9
    assert advantage(found, SPAN, had="15 known rows") > 0.3
    known = {one.had for one in found.findings if one.attack == INNER}
    assert known == {"", "5 known rows", "15 known rows"}


@pytest.fixture(scope="module")
def sealed():
    """What both parties have after sealed training."""
    again, on = trained_again(logistic(protection="sealed", algorithm=cn.SealedNewton(rounds=3)), parties())
    return list(cases_of(again, parties(), on.views))


def test_sealed_training_leaves_these_attacks_nothing_to_go_by(sealed):
    found = audited(sealed, attacks=[ColumnSpan(), InnerProducts(), KnownMarginals(), UnmaskedParts(), PieceSigns()])
    assert found.findings == ()
    assert len(found.untried) == 10


def test_signals_tell_a_party_without_labels_inner_products_too():
    found = audit(logistic(algorithm=SGD), attacks=[INNER], attackers=["party2"])
    assert advantage(found, INNER, "party2") > 0.6


def test_inner_products_of_rows_follow_from_several_scores_of_a_row_too():
    classes = np.digitize(X[:, 7] + X[:, 8], [-0.5, 0.5])
    both = cn.split(X, classes, into=2, active=1, seed=0)
    model = cn.SoftmaxRegression(algorithm=SGD, verbose=0).fit(*both)
    found = model.audit(*both, attacks=[INNER], attackers=["party1"])
    assert advantage(found, INNER, had="15 known rows") > 0.95


def test_an_attack_on_columns_repeats():
    model = logistic(algorithm=SGD)
    assert audit(model, attacks=[MARGINALS]).findings == audit(model, attacks=[MARGINALS]).findings


def test_only_a_sample_of_many_rows_is_guessed_and_known_rows_are_in_it(monkeypatch):
    monkeypatch.setattr("colonnade.inversions.column_span.MOST_ROWS", 50)
    case, truth = one_case(logistic(algorithm=SGD))
    rows = np.array([3, 77, 200, 201, 305, 399])
    guess = InnerProducts().guess(replace(case, known=Known(rows, columns=truth.columns[rows])))
    assert 50 <= len(guess.rows) <= 56
    assert np.isin(rows, guess.rows).all()


def one_case(model, attacker="party1", target="party2", into=2):
    again, on = trained_again(model.fit(*parties(into)), parties(into))
    return next(
        (case, truth)
        for case, truth in cases_of(again, parties(into), on.views, attackers=[attacker])
        if case.target == target
    )


def test_marginals_tell_how_values_are_distributed_and_not_whose_they_are():
    case, truth = one_case(logistic())
    assert (np.diff(case.marginals, axis=0) >= 0).all()
    np.testing.assert_array_equal(case.marginals, np.sort(truth.columns, axis=0))
    assert KnownMarginals().guess(replace(case, marginals=None)) is None


# -- planted leaks -----------------------------------------------------------------------------------------------------


def masks_that_repeat(self, root, count, ring, _fresh=PairwiseSum._masks):
    """The same masks for every sum of one size."""
    kept = self.__dict__.setdefault("kept", {})
    key = (root, count, str(ring))
    if key not in kept:
        kept[key] = _fresh(self, root, count, ring).copy()
    return kept[key]


def no_masks(self, root, count, ring):
    return np.zeros(count, dtype=ring)


def test_masks_leave_nothing_to_be_read_on_the_way():
    found = audit(logistic(algorithm=SGD), 3, attacks=[UNMASKED])
    assert found.passed
    assert found.findings == ()


@pytest.mark.parametrize("masks", [masks_that_repeat, no_masks])
def test_a_mask_that_is_missing_or_used_twice_makes_an_audit_fail(monkeypatch, masks):
    monkeypatch.setattr(PairwiseSum, "_masks", masks)
    found = audit(logistic(algorithm=SGD), 3, attacks=[UNMASKED])
    assert not found.passed
    assert {one.target for one in found.findings if one.is_open()} >= {"party2", "party3"}
    assert advantage(found, UNMASKED, had="15 known rows") > 0.5


def with_signs(monkeypatch, drawn):
    direction = NewtonParty.direction

    def signed(self, epoch, *told):
        found = direction(self, epoch, *told)
        if found.shape[1] > 1 and found.any():
            found[:, 1:] = found[:, :1] * drawn(self, epoch, *found.shape)[:, 1:]
        return found

    monkeypatch.setattr(NewtonParty, "direction", signed)


@pytest.mark.parametrize("into", [2, 3])
def test_signs_of_pieces_from_the_public_seed_make_an_audit_fail(monkeypatch, into):
    honest = audit(logistic(), into, patients, attacks=[SIGNS])
    assert honest.passed
    assert not has(honest, SIGNS)
    with_signs(
        monkeypatch,
        lambda party, epoch, *shape: public_signs(
            party.session.options.seed, epoch, party.net.names.index(party.net.me), *shape
        ),
    )
    found = audit(logistic(), into, patients, attacks=[SIGNS])
    assert not found.passed
    one = found.findings[0]
    assert one.found[0] == one.found[1]  # every column
    assert one.score > 0.999
    # Only one piece has no sign.
    assert audit(logistic(algorithm=cn.BlockNewton(pieces=1)), into, patients, attacks=[SIGNS]).findings == ()


# -- phases ------------------------------------------------------------------------------------------------------------


def kernel(**options):
    return cn.KernelClassifier(verbose=0, algorithm=cn.FDSKL(epochs=2, **options))


@pytest.mark.filterwarnings("ignore:directions='shared'")
def test_phases_give_coordinates_away_and_shared_directions_the_columns():
    shared = audit(kernel(directions="shared"), of=patients, attacks=["unwrapped phases", "shared directions"])
    assert advantage(shared, "shared directions") > 0.95
    private = audit(kernel(), of=patients, attacks=["unwrapped phases", "shared directions"])
    assert not has(private, "shared directions")
    assert advantage(private, "unwrapped phases", had="15 known rows") > 0.5


def test_phases_of_several_owners_are_about_the_rows_of_all():
    three = cn.split(X, Y, into=3, active=2, seed=0)
    found = kernel().fit(*three).audit(*three, attacks=["unwrapped phases"])
    assert {one.attacker for one in found.findings} == {"party1", "party2"}
    assert found.worst > 0.3


# -- scores ------------------------------------------------------------------------------------------------------------


def luo(classes, seed=0, target=3):
    """Scores of people, and whose columns are not known, under the model of Luo et al.: everything else is."""
    rng = np.random.default_rng(seed)
    own, theirs = rng.uniform(size=(N, 4)), rng.uniform(size=(N, target))
    theirs += 0.5 * own[:, :1]
    theta = rng.standard_normal((classes - 1 if classes == 2 else classes, target))
    part = rng.standard_normal((N, len(theta)))
    scores = part + theirs @ theta.T
    flat = (lambda one: one[:, 0]) if classes == 2 else (lambda one: one)
    view = one_case(logistic())[0].view
    case = Case(
        view, "party2", "logistic" if classes == 2 else "softmax", len(theta), own=own, score=flat(part), width=target,
        asked=(own, flat(scores)), marginals=np.sort(theirs, axis=0), coefficients=theta,
    )  # fmt: skip
    return case, theirs


def test_as_many_equations_as_columns_are_solved_to_the_last_digit():
    case, theirs = luo(classes=4)
    np.testing.assert_allclose(EqualitySolving().guess(case).columns, theirs, atol=1e-9)
    np.testing.assert_allclose(
        EqualitySolving().guess(replace(case, asked=(case.own, case.asked[1] + 7.0))).columns, theirs, atol=1e-9
    )
    few, theirs = luo(classes=2)
    estimate = EqualitySolving().guess(few).columns
    # The smallest columns that give these scores.
    np.testing.assert_allclose(estimate @ few.coefficients[0], theirs @ few.coefficients[0])
    assert np.linalg.norm(estimate) < np.linalg.norm(theirs)


def test_scores_are_found_in_a_run_and_sealed_training_does_not_close_that(sealed):
    for (case, truth), (other, _) in (sealed, (one_case(logistic()), one_case(logistic(), "party2", "party1"))):
        assert judged(EqualitySolving(), case, truth, "").advantage > 0.2
        assert judged(ScoreRegression(), case, truth, "").advantage > 0.2
        assert ScoreRegression().guess(other) is None  # only the label holder may ask


def test_noise_on_scores_closes_what_they_tell_of_columns():
    case, truth = one_case(logistic())
    noise = 30 * np.std(case.asked[1]) * np.random.default_rng(0).standard_normal(N)
    blurred = replace(case, asked=(case.asked[0], case.asked[1] + noise))
    for attack in (EqualitySolving(), ScoreRegression()):
        assert judged(attack, blurred, truth, "").advantage < 0.05


def test_a_generator_finds_more_than_the_smallest_solution():
    pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")
    case, theirs = luo(classes=2)
    solved, made = (attack.guess(case).columns for attack in (EqualitySolving(), GenerativeRegression()))
    mean, spread = theirs.mean(axis=0), theirs.std(axis=0)
    assert (((made * spread + mean) - theirs) ** 2).mean() < ((solved - theirs) ** 2).mean()
    again = GenerativeRegression().guess(case).columns
    np.testing.assert_array_equal(made, again)


# -- trees -------------------------------------------------------------------------------------------------------------

TREES = cn.SealedBoosting(ranges=4, noise=1.0)


def grown(algorithm):
    """Columns of the partner decide, so that they are split on."""
    bank, shop = cn.split(X, (X[:, 7] + X[:, 8] > 0).astype(int), into=[range(6), range(6, 12)], active=1)
    model = cn.BoostedTreesClassifier(algorithm=algorithm, trees=5, verbose=0).fit(bank, shop)
    again, on = trained_again(model, (bank, shop))
    names = [bank.name, shop.name]
    cases = cases_of(again, (bank, shop), on.views)
    return names, {(case.attacker, case.target): (case, truth) for case, truth in cases}


@pytest.mark.filterwarnings("ignore:protection='plain'")
def test_trees_in_the_open_tell_the_cell_of_every_row():
    (bank, shop), cases = grown(cn.OpenBoosting())
    found = judged(TreeRanges(), *cases[bank, shop], "")
    assert found.advantage > 0.8
    assert found.found[0] == found.found[1]
    assert TreeRanges().guess(cases[shop, bank][0]) is None  # a partner is told no cells


def test_sealed_trees_tell_ranges_of_the_columns_that_are_cut_and_sums_a_little_more():
    (bank, shop), cases = grown(TREES)
    case, truth = cases[bank, shop]
    ranges = judged(TreeRanges(), case, truth, "")
    assert ranges.advantage > 0.3
    assert ranges.found[0] < ranges.found[1]  # columns that nobody cuts stay closed
    sums = judged(TreeSums(), case, truth, "")
    assert sums.found[0] >= ranges.found[0]
    _, noisy = grown(cn.SealedBoosting(ranges=2, noise=10.0))
    assert judged(TreeSums(), *noisy[bank, shop], "").advantage < judged(TreeRanges(), *cases[bank, shop], "").advantage
