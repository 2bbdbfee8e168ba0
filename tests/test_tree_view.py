"""What each party of sealed trees can make of all that it sees: a partner of labels, the label holder of cells.

Every attack here is also carried out on a run in which something was left out on purpose, and succeeds there: else it
would prove nothing.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

import colonnade as cn
from colonnade.boosting import leader
from colonnade.boosting.options import TreeOptions
from colonnade.boosting.partner import CUTS, MODEL, ORDER, QUESTION, SEED, TreePartner
from colonnade.boosting.rounds import BoostingRounds, TreeLabels
from colonnade.crypto import hinted_sums
from colonnade.families import trees
from colonnade.objective import losses
from data_sets import DATA, needs
from tree_attacks import (
    features_of_words,
    guessed,
    label_auc,
    sides_of_cuts,
    spent,
    watched,
    words_received,
)

ROWS, NOISE = 2000, 10.0


def parties(rows=ROWS, seed=1):
    """Labels that follow from columns of both, one of them in a way that depends on the other's."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 7))
    score = X @ [1.0, 0.5, 0.3, 1.0, -0.7, 0.4, 0.0] + 0.8 * X[:, 0] * X[:, 3]
    y = (score + rng.logistic(size=rows) > 0).astype(int)
    return [cn.Party("bank", X[:, :3], y), cn.Party("shop", X[:, 3:])]


@pytest.fixture(scope="module")
def honest():
    return watched(parties())


@pytest.fixture(scope="module")
def guesses(honest):
    return guessed(honest, "shop", NOISE)


# -- a partner, after the labels ---------------------------------------------------------------------------------------


def clear_pad(self):
    """No secret and no error: a question's words are the numbers of the rows."""
    layout = self.layout
    words = np.zeros(layout.rows + layout.ring.degree, np.uint64)
    return hinted_sums._Pad(words, np.zeros(self.cells_in_all, np.uint64))


def used_twice(self):
    """One secret for all questions."""
    if not hasattr(self, "kept"):
        self.kept = fresh_pad(self)
    return hinted_sums._Pad(self.kept.words.copy(), self.kept.offsets)


fresh_pad = hinted_sums.SumAsker._new_pad


def test_a_partner_learns_nothing_of_labels_from_the_words_of_questions(honest):
    (bank, shop), words = parties(), features_of_words(words_received(honest, "shop"))
    assert words.shape[1] > 30
    for known in (100, ROWS // 2):
        own = label_auc(shop.X, bank.y, known)
        assert own > 0.65  # there is something to be told by
        assert label_auc(np.column_stack([shop.X, words]), bank.y, known) < own + 0.01
        assert abs(label_auc(words, bank.y, known) - 0.5) < 0.025


@pytest.mark.parametrize("pad", [clear_pad, used_twice])
def test_it_would_learn_all_of_them_from_words_without_a_fresh_secret(monkeypatch, pad):
    monkeypatch.setattr(hinted_sums.SumAsker, "_new_pad", pad)
    run, (bank, shop) = watched(parties(), trees=5), parties()
    words = features_of_words(words_received(run, "shop"))
    assert label_auc(np.column_stack([shop.X, words]), bank.y, 100) > 0.99


def test_words_of_questions_are_uniform(honest):
    words = words_received(honest, "shop")
    counts = np.histogram(words, bins=256, range=(-1, 1))[0]
    assert ((counts - words.size / 256) ** 2 / (words.size / 256)).sum() < 255 + 6 * np.sqrt(2 * 255)
    within = np.corrcoef(words)
    assert np.abs(within[np.triu_indices(len(words), 1)]).max() < 5.5 / np.sqrt(ROWS)


def test_where_its_columns_are_cut_tells_a_partner_hardly_more_than_the_columns(honest):
    """That much is declared; it helps no more than cutting columns at even places does."""
    (bank, shop), opened = parties(), sides_of_cuts(honest, "shop")
    cells = honest.cells("shop")
    assert opened.shape[1] > 10
    even = np.column_stack([(cells >= 4 * k).T for k in range(1, 8)]).astype(float)
    own = max(label_auc(each, bank.y, 100) for each in (shop.X, cells.T, even))
    for each in (opened, np.column_stack([shop.X, opened]), np.column_stack([cells.T, opened])):
        assert label_auc(each, bank.y, 100) < own + 0.01


def shape_of(run, name="shop"):
    """How many messages of which kind and size a partner gets, in their order; not what cuts say."""
    return [
        (tag, len(value) if tag in (SEED, QUESTION) else value if tag == ORDER else None)
        for _, tag, value in run.received[name]
    ]


def test_how_many_messages_there_are_does_not_depend_on_labels(honest):
    """Labels that no column tells, and labels that one column tells completely."""
    bank, shop = parties()
    nothing = np.random.default_rng(5).integers(0, 2, ROWS)
    everything = (bank.X[:, 0] > 1).astype(int)
    for y in (nothing, everything):
        other = watched([cn.Party("bank", bank.X, y), shop])
        assert shape_of(other) == shape_of(honest)
    assert {tag for tag, _ in shape_of(honest)} == {SEED, ORDER, QUESTION, CUTS, MODEL}


def test_a_cut_of_categories_does_not_say_which_side_has_the_larger_labels():
    """A partner that knows no label would else know the direction: of a set and its rest, that with cell 0 is sent."""
    rng = np.random.default_rng(3)
    kinds = rng.integers(0, 8, ROWS)
    y = (np.array([3, 0, 2, 0, 0, 2, 3, 0])[kinds] - 1.3 + rng.logistic(size=ROWS) > 0).astype(int)
    for labels in (y, 1 - y):
        bank = cn.Party("bank", rng.standard_normal((ROWS, 2)), labels)
        run = watched(
            [bank, cn.Party("shop", np.column_stack([kinds, rng.standard_normal(ROWS)]), categories=[0])], trees=5
        )
        cuts = [cut for wanted in run.told("shop", CUTS) for column, cut in wanted if column == 0]
        assert cuts
        assert all(cut[0] & 0x80 for cut in cuts)


# -- the label holder, after cells -------------------------------------------------------------------------------------


def above(found):
    return float(np.mean([one.above for one in found]))


def by_sums(found):
    return float(np.mean([one.by_all - one.by_ranges for one in found]))


def test_the_label_holder_solves_less_than_a_third_of_the_cells(guesses):
    """After 100 trees of depth 4, above the best guess; by exact ranges, and by all noisy sums on top of them."""
    found = guesses
    assert [one.cells for one in found] == [32] * 4
    assert all(one.ranges <= 8 for one in found)
    assert above(found) < 0.30
    assert by_sums(found) < 0.07


@pytest.fixture
def hardly_any_noise(monkeypatch):
    normals = hinted_sums.normals
    monkeypatch.setattr(hinted_sums, "normals", lambda stream, count: normals(stream, count) * 1e-3)


def test_sums_with_less_noise_tell_more(hardly_any_noise, guesses):
    found = guessed(watched(parties()), "shop", NOISE * 1e-3)
    assert by_sums(found) > 0.12
    assert by_sums(found) > 2 * by_sums(guesses)


def test_exact_sums_of_every_node_would_tell_nearly_all(hardly_any_noise, monkeypatch):
    monkeypatch.setattr(leader, "steps_of", lambda *args: (1, 2, 4, 8))
    monkeypatch.setattr(leader, "LEAST_GROUP", 1)
    monkeypatch.setattr(leader, "LEAST_SHARE", 0)
    monkeypatch.setattr(trees, "questions_of", lambda *args: None)  # a partner that does not count
    monkeypatch.setattr(TreePartner, "_only_useful", lambda self, answer, stream: answer)
    bank, shop = parties(400)
    run = watched([bank, cn.Party("shop", shop.X[:, :2])], trees=40)
    assert len(run.asked) > 300
    assert above(guessed(run, "shop", NOISE * 1e-3)) > 0.7


def test_more_ranges_would_tell_more(guesses):
    found = guessed(watched(parties(), cn.SealedBoosting(ranges=32, noise=2)), "shop", 2.0)
    assert above(found) > above(guesses) + 0.1


def test_sums_spend_a_bounded_part_of_what_one_row_has(honest):
    """rho of a row's cell in one column; each of three sums in each of ten trees at most 2 / 100."""
    rho = spent(honest, NOISE)
    assert rho.shape == (ROWS,)
    assert rho.max() < 0.6
    assert np.median(rho) < 0.45


@needs("ucicreditcard.npz")
@pytest.mark.parametrize("rows", [4000, pytest.param(20_000, marks=pytest.mark.long)])
def test_on_credit_cards_it_solves_less_than_a_third_too(monkeypatch, rows):
    """Of the partner's twelve columns, four have so few values that their ranges are the values; the mean counts."""
    monkeypatch.syspath_prepend(str(DATA))
    recipes = pytest.importorskip("recipes")
    table = recipes.load("ucicreditcard")
    X, y = table["X"], table["y"]
    order = np.argsort([-abs(np.corrcoef(column, y)[0, 1]) for column in X.T])
    some = np.random.default_rng(0).permutation(len(y))[:rows]
    bank = cn.Party("bank", X[some][:, np.sort(order[1::2])], y[some])
    run = watched([bank, cn.Party("shop", X[some][:, np.sort(order[::2])])])
    found = guessed(run, "shop", NOISE)
    assert len(found) == 12
    assert above(found) < 0.30
    assert by_sums(found) < 0.07


# -- labels that are randomised ----------------------------------------------------------------------------------------


def heard(monkeypatch, y, **options):
    """All that a partner hears but what it can't read, where splits are chosen by labels that have not changed."""
    bank, shop = parties()
    shown = np.where(bank.y == 1, 1.0, -1.0)
    monkeypatch.setattr(trees, "randomised", lambda *args: shown)
    run = watched([cn.Party("bank", bank.X, y), shop], cn.SealedBoosting(label_epsilon=1.0), trees=8, **options)
    return [(tag, value) for _, tag, value in run.received["shop"] if tag in (ORDER, CUTS)]


def test_with_label_privacy_a_partner_hears_nothing_that_depends_on_true_labels(monkeypatch):
    """Not even on how many there are of each class, where scores start."""
    bank, _ = parties()
    rare = np.where(np.random.default_rng(2).random(ROWS) < 0.9, 0, bank.y)
    assert rare.mean() < 0.1
    assert any(value for tag, value in heard(monkeypatch, bank.y) if tag == CUTS)
    assert heard(monkeypatch, bank.y) == heard(monkeypatch, rare)


def test_labels_are_randomised_once_though_a_run_is_broken_off():
    """Two draws of one label would tell it by a factor of e^2 epsilon, and many tell it."""
    rng, options = np.random.default_rng(0), TreeOptions()
    y, rounds = rng.choice([-1.0, 1.0], 50), []
    for _ in range(2):
        labels = TreeLabels(losses.loss("logistic"), 1, y, None, shown=rng.choice([-1.0, 1.0], 50))
        rounds.append(BoostingRounds(mock.Mock(), labels, options))
        rounds[-1].begin(np.zeros(1), np.zeros((1, 50), np.uint8), np.zeros((1, 0), np.uint8), None)
    before, after = (one.slopes()[0].copy() for one in rounds)
    assert not np.array_equal(before, after)
    scores, _, went = rounds[0].freeze(())
    rounds[1].thaw(scores, went)
    assert np.array_equal(rounds[1].slopes()[0], before)
