"""From all that one party of sealed training gets to see, nothing follows about another's columns or the labels.

And what would let it follow is noticed: numbers that are drawn twice, masks that end too early, masks that are missing.
"""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.crypto.lattice_words import Scaling
from colonnade.sealed import products, schedule, waves
from colonnade.sealed.channel import Channel
from colonnade.sealed.triples import Triple
from views import sealed
from views.sealed import Truth, findings, looked_at, solved

# Where something is left out on purpose, training goes astray, and says so.
pytestmark = pytest.mark.filterwarnings("ignore:the part of the scores")
ROWS = 9000
NAMES = ("bank", "shop", "clinic", "school")


def parties(into, rows=ROWS, width=2):
    """Columns that have nothing to do with one another, and labels that only their holder's columns say anything of.

    So whatever another party can tell of labels or columns it must have from what it saw.
    """
    rng = np.random.default_rng(into)
    columns = [rng.standard_normal((rows, width)) for _ in range(into)]
    y = (columns[0].sum(axis=1) + rng.logistic(size=rows) > 0).astype(int)
    return [cn.Party(name, X, y if i == 0 else None) for i, (name, X) in enumerate(zip(NAMES, columns, strict=False))]


@pytest.mark.parametrize("into", [2, 3, pytest.param(4, marks=pytest.mark.long)])
def test_nothing_follows_from_what_a_party_sees(into):
    views, truth = looked_at(parties(into), rounds=2, polish=1)
    assert set(views) == set(NAMES[:into])
    for view in views.values():
        assert sealed.features(view, ROWS).shape[1] > 10  # it saw something
        assert findings(view, truth) == [], view.me


@pytest.mark.parametrize("into", [2, 4])
def test_nor_from_a_ridge_regression(into):
    views, truth = looked_at(parties(into), kind=cn.RidgeRegression)
    for view in views.values():
        assert view.seen
        assert findings(view, truth) == [], view.me


KINDS = {
    "poisson": (cn.PoissonRegression, lambda y, rng: rng.poisson(0.3 + y)),
    "hinge": (cn.LinearSVC, lambda y, rng: y),
    "softmax": (cn.SoftmaxRegression, lambda y, rng: y * (1 + rng.integers(0, 2, len(y)))),
    "weighted": (cn.LogisticRegression, lambda y, rng: y),
    "weighted ridge": (cn.RidgeRegression, lambda y, rng: y - 0.5 + 0.1 * rng.standard_normal(len(y))),
}


@pytest.mark.parametrize("into", [2, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", list(KINDS))
def test_nor_from_other_losses_and_from_rows_with_weights(name, into):
    """The weights of rows are twice as large where a label is 1, so whatever shows them shows labels."""
    kind, labels = KINDS[name]
    given, rng = parties(into), np.random.default_rng(into)
    y = labels(given[0].y, rng)
    weights = 1.0 + given[0].y if "weighted" in name else None
    given[0] = cn.Party(given[0].name, given[0].X, y, sample_weight=weights)
    views, truth = looked_at(given, kind=kind, rounds=1, polish=1)
    for view in views.values():
        assert sealed.features(view, ROWS).shape[1] > 5
        assert findings(view, truth) == [], view.me


@pytest.mark.parametrize("into", [2, pytest.param(3, marks=pytest.mark.long)])
def test_nor_where_rows_are_so_few_that_they_stand_several_times(into):
    rows = 900
    views, truth = looked_at(parties(into, rows, 4), rounds=4, polish=1)
    for view in views.values():
        wrong = [one for one in findings(view, truth) if "AUC" not in one]  # too few rows to say by 0.02
        assert wrong == [], view.me


@pytest.mark.long
def test_nor_where_samples_of_the_rows_come_first(monkeypatch):
    monkeypatch.setattr(schedule, "_MOST_SQUARES", 1e4)
    views, truth = looked_at(parties(3, 20_000), polish=1)
    for view in views.values():
        sample = truth.of_first(schedule.curvature_rows(20_000, 7))
        assert sample.rows < 20_000
        for rows in (truth, sample):
            assert findings(view, rows) == [], view.me


def of_unlike_widths():
    """Four parties with 3 (and an intercept), 5, 6 and 7 columns: a shape says whose product it is."""
    rng = np.random.default_rng(9)
    columns = [rng.standard_normal((200, width)) for width in (3, 5, 6, 7)]
    y = (columns[0].sum(axis=1) + rng.logistic(size=200) > 0).astype(int)
    return [cn.Party(name, X, y if i == 0 else None) for i, (name, X) in enumerate(zip(NAMES, columns, strict=True))]


WIDTHS = {"bank": 4, "shop": 5, "clinic": 6, "school": 7}
COALITIONS = [
    ("bank",), ("shop",), ("clinic",), ("bank", "clinic"), ("bank", "school"), ("shop", "clinic"), ("shop", "school"),
    ("clinic", "school"), ("bank", "clinic", "school"), ("shop", "clinic", "school"),
]  # fmt: skip


def known_to(coalition, views):
    """Shapes that add up where they should not: those about somebody who is not in the coalition."""
    others = {width for name, width in WIDTHS.items() if name not in coalition}
    return [shape for shape in sealed.joined([views[name] for name in coalition]) if others & set(shape)]


def test_nothing_adds_up_for_a_coalition_without_one_of_the_holders():
    views, _ = looked_at(of_unlike_widths(), rounds=1, polish=1)
    for coalition in COALITIONS:
        assert known_to(coalition, views) == [], coalition
    # The two holders together have both halves of everything.
    assert (7, 6) in sealed.joined([views["bank"], views["shop"]])


def test_shares_that_are_handed_over_whole_are_noticed(monkeypatch):
    """A lender that gives all of its share to one holder: that holder has both halves of what two lenders share."""
    monkeypatch.setattr(Channel, "random_words", lambda self, *shape: np.zeros(shape, np.uint64))
    views, _ = looked_at(of_unlike_widths(), rounds=1, polish=1)
    assert (7, 6) in known_to(("shop",), views)


# -- what must not go unnoticed ----------------------------------------------------------------------------------------


def test_numbers_that_are_drawn_twice_are_noticed(monkeypatch):
    """Every phase of a run begins with the same stream."""
    drawn = Channel._drawn
    monkeypatch.setattr(Channel, "_drawn", lambda self, phase: drawn(self, "always"))
    views, truth = looked_at(parties(2, 900), rounds=4, polish=1)
    # The second holder's masks are those of the round before: the first sees how the curvature has changed.
    assert any(one.startswith("not uniform: change of") for one in findings(views["bank"], truth))


def test_masks_that_are_drawn_twice_are_noticed(monkeypatch):
    kept = {}

    def repeated(stream, parameters, *shape):
        if (parameters, shape) not in kept:
            kept[parameters, shape] = masks(stream, parameters, *shape)
        return kept[parameters, shape].copy()

    masks = products._masks
    monkeypatch.setattr(products, "_masks", repeated)
    views, truth = looked_at(parties(3, 900), rounds=3, polish=1)
    for name in NAMES[:3]:
        assert any(one.startswith("not uniform: change of own share") for one in findings(views[name], truth))


def test_random_matrices_that_are_used_twice_are_noticed(monkeypatch):
    """One holder takes the same random numbers for every matrix of a size: the other sees how the matrices change."""
    drawn, kept = Triple.__init__, {}

    def once(self, channel, wanted):
        drawn(self, channel, wanted)
        if channel.is_first:
            self.matrix, self.columns = kept.setdefault(wanted, (self.matrix, self.columns))

    monkeypatch.setattr(Triple, "__init__", once)
    views, truth = looked_at(parties(2, 900), rounds=2, polish=1)
    assert any(one.startswith("not uniform: change of inverse under") for one in findings(views["shop"], truth))
    assert not any("inverse under" in one for one in findings(views["bank"], truth))


def test_masks_that_end_with_the_words_are_noticed(monkeypatch):
    """And no flood below them."""

    def short(stream, parameters, *shape):
        found = masks(stream, parameters, *shape).copy()
        found[..., : found.shape[-1] - parameters.word_limbs] = 0
        return found

    def short_waves(*args):
        found, share = masks_for(*args)
        found[..., :2] = 0
        return found, share

    masks, masks_for = products._masks, waves.masks_for
    monkeypatch.setattr(products, "_masks", short)
    monkeypatch.setattr(waves, "masks_for", short_waves)
    monkeypatch.setattr(Scaling, "flood", lambda self, stream, bits, out: None)
    views, truth = looked_at(parties(2, 900), rounds=2, polish=1)
    for view in views.values():
        found = findings(view, truth)
        assert "not uniform: below words of 64 bits" in found
        assert "not uniform: below words of 96 bits" in found


def test_missing_masks_are_noticed_and_show_all_columns(monkeypatch):
    masks = products._masks
    monkeypatch.setattr(products, "_masks", lambda *args: np.zeros_like(masks(*args)))
    views, truth = looked_at(parties(3, 2000), rounds=6, polish=1)
    for name, others in (("bank", 4), ("shop", 4)):
        found = findings(views[name], truth)
        assert any(one.startswith("not uniform") for one in found)
        assert f"columns: {others} dimensions are determined" in found


def test_a_missing_mask_of_waves_is_noticed(monkeypatch):
    def none(shares, layout, stream):
        masks, share = masks_for(shares, layout, stream)
        return np.zeros_like(masks), np.zeros_like(share)

    masks_for = waves.masks_for
    monkeypatch.setattr(waves, "masks_for", none)
    views, truth = looked_at(parties(2, 900), rounds=2, polish=1)
    assert any(one.startswith("not uniform: opened") for one in findings(views["bank"], truth))


def test_signals_that_are_told_as_they_are_show_the_labels(monkeypatch):
    """The label holder's random vectors are all zeros to it."""
    ask = Channel.ask_silent

    async def zeros(self, what, *args):
        drawn, answers = await ask(self, what, *args)
        return (np.zeros_like(drawn) if what == "signals" and self.is_first else drawn), answers

    monkeypatch.setattr(Channel, "ask_silent", zeros)
    views, truth = looked_at(parties(3), rounds=1, polish=0)
    for name in ("shop", "clinic"):
        found = findings(views[name], truth)
        assert any(one.startswith("labels: AUC of 0.9") or one.startswith("labels: AUC of 1.0") for one in found)


# -- the tools ---------------------------------------------------------------------------------------------------------


def test_equations_without_masks_are_solved():
    rng = np.random.default_rng(1)
    X = np.rint(rng.standard_normal((3, 50)) * 2**20).astype(np.int64).view(np.uint64)
    b = rng.integers(0, 2**58, (3, 8), dtype=np.uint64) << np.uint64(6)
    found = solved(b, b.T @ X).view(np.int64)
    np.testing.assert_array_equal(found.view(np.uint64) >> np.uint64(6), (X << np.uint64(6)) >> np.uint64(6))
    assert solved(b[:, :2], b[:, :2].T @ X).shape == (0, 50)


def test_labels_are_found_where_they_are_and_not_where_they_are_not():
    rng = np.random.default_rng(2)
    y = np.where(rng.random(8000) > 0.5, 1.0, -1.0)
    noise = rng.random((8000, 30))
    assert abs(sealed.label_auc(noise, y) - 0.5) < 0.02
    assert sealed.label_auc(np.column_stack([noise, y + rng.standard_normal(8000)]), y) > 0.8


def test_columns_are_found_where_they_are():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((500, 2))
    view = sealed.SealedView("shop")
    words = np.rint(X.T * 2.0**50).astype(np.int64).view(np.uint64)
    view.saw("something", words)
    truth = Truth({"bank": X, "shop": rng.standard_normal((500, 2))}, np.sign(X[:, 0]), 500, "bank")
    found = findings(view, truth)
    assert "columns: 2 dimensions are determined" in found
    assert "not uniform: something" in found
    assert any(one.startswith("labels") for one in found)
