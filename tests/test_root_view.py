"""No party can make more of what it sees than docs/security.md says; and what would let it do so is noticed here.

All runs with three parties, and the most telling ones with two and four. COLONNADE_VIEWS=1 takes all of them.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import colonnade as cn
from colonnade.algorithms import ALGORITHMS
from colonnade.newton.party import NewtonParty
from colonnade.runtimes.net import PASSING, TOTAL
from colonnade.sums.masked import PairwiseSum
from colonnade.views.directions import public_signs
from colonnade.views.recording import Recording
from colonnade.views.replay import nystrom
from views import measures
from views.cells import BY_KEY, CELLS, PARTIES
from views.figures import figures_of
from views.table import in_page, kept, name_of, risen, table

ALWAYS = ("newton", "fedsgd", "fdskl", "predictions")
RUNS = [
    (cell.key, into)
    for cell in CELLS
    for into in PARTIES
    if into == 3 or cell.key in ALWAYS or os.environ.get("COLONNADE_VIEWS") == "1"
]


@pytest.mark.parametrize(("key", "into"), RUNS)
def test_nobody_can_make_more_of_a_run_than_is_written_down(key, into):
    if key.startswith("network"):
        pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")
    written = kept()
    for party, found in figures_of(BY_KEY[key], into).items():
        assert risen(found, written[name_of(key, into, party)]) == [], party


def test_the_page_shows_the_figures_that_are_kept():
    assert in_page() == table(kept())


def test_every_algorithm_is_looked_at():
    looked_at = {cell.words.split(",")[0] for cell in CELLS}
    # tests/test_sealed_view.py looks at what comes of sealed training, where there is no sum and no root of one.
    assert {*ALGORITHMS, "FDSKL"} - {"SealedNewton"} <= looked_at


# -- what must not go unnoticed ---------------------------------------------------------------------------------


def with_signs(monkeypatch, drawn):
    """Block Newton with signs of its pieces from elsewhere, however it draws them."""
    direction = NewtonParty.direction

    def signed(self, epoch, *told):
        found = direction(self, epoch, *told)
        if found.shape[1] > 1 and found.any():
            found[:, 1:] = found[:, :1] * drawn(self, epoch, *found.shape)[:, 1:]
        return found

    monkeypatch.setattr(NewtonParty, "direction", signed)


@pytest.mark.parametrize("into", PARTIES)
def test_signs_that_everybody_can_work_out_give_all_columns_away(monkeypatch, into):
    def nobody_knows(party, epoch, columns, pieces):
        return public_signs(0x5EC2E7, epoch, party.net.names.index(party.net.me), columns, pieces)

    def all_know(party, epoch, columns, pieces):
        seed = party.session.options.seed
        return public_signs(seed, epoch, party.net.names.index(party.net.me), columns, pieces)

    with monkeypatch.context() as patch:
        with_signs(patch, nobody_knows)
        private = figures_of(BY_KEY["newton"], into)["party1"]
    with_signs(monkeypatch, all_know)
    public = figures_of(BY_KEY["newton"], into)["party1"]
    assert private["found"] <= private["found floor"] + 1
    assert public["found"] == public["columns"]
    assert any(line.startswith("found") for line in risen(public, private))


@pytest.mark.parametrize("key", ["fedsgd", "newton"])
def test_a_missing_mask_is_noticed(monkeypatch, key):
    monkeypatch.setattr(PairwiseSum, "_masks", lambda self, root, count, ring: np.zeros(count, dtype=ring))
    found = figures_of(BY_KEY[key], 3)["party1"]
    worse = risen(found, kept()[name_of(key, 3, "party1")])
    assert any(line.startswith("unmasked") for line in worse)
    if key == "fedsgd":  # and each partner's rows can be told from the other's
        assert any(line.startswith("inner alone") for line in worse)
        assert found["inner alone"] > 0.999


def test_shared_directions_are_noticed():
    private, shared = (kept()[name_of(key, 3, "party1")] for key in ("fdskl", "fdskl-shared"))
    assert shared["found"] == shared["columns"]
    assert any(line.startswith("found") for line in risen(shared, private))


def test_signals_where_there_should_be_none_are_noticed():
    """Labels under encryption and in the clear."""
    sealed, clear = (kept()[name_of(key, 3, "party3")] for key in ("fdskl", "fedsgd"))
    assert any(line.startswith("labels") for line in risen(clear, sealed))


# -- the tools ----------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(5)
N = 300
OWN, THEIRS = RNG.standard_normal((N, 4)), RNG.standard_t(4, (N, 6))


def test_totals_less_the_own_part_are_the_others_and_rows_are_told():
    parties = cn.split(np.column_stack([OWN, THEIRS]), np.where(THEIRS[:, 0] > 0, 1, -1), into=[range(4), range(4, 10)])
    on = Recording()
    algorithm = cn.FedSGD(step=0.1, schedule="constant", epochs=2, tol=None, batch=50)
    model = cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*parties, on=on)
    view = on.views["party1"]
    last = view.of(TOTAL, "evaluation")[-1]
    np.testing.assert_allclose(last.value, THEIRS @ model.coef_["party2"], atol=1e-9)
    batches = view.of(TOTAL, "scores")
    assert len(batches) == 12
    assert all(len(one.rows) == len(one.value) == 50 for one in batches)
    assert sorted(np.concatenate([one.rows for one in batches[:6]])) == list(range(N))
    assert on.views["party2"].of(TOTAL) == []


@pytest.mark.parametrize("kind", ["pairwise", "two-trees", "plain"])
def test_what_is_not_masked_can_be_read_on_its_way(kind):
    parties = cn.split(np.column_stack([OWN, THEIRS]), np.where(THEIRS[:, 0] > 0, 1, -1), into=3)
    on = Recording()
    cn.LogisticRegression(algorithm=cn.FedSGD(epochs=2), sum=kind, verbose=0).fit(*parties, on=on)
    assert bool(sum(len(view.of(PASSING)) for view in on.views.values())) == (kind == "plain")


def test_dimensions_are_those_that_are_there():
    mixed = THEIRS[:, :3] @ RNG.standard_normal((3, 5))
    assert measures.dimensions(np.zeros((N, 0)), OWN, THEIRS) == 0
    assert measures.dimensions(RNG.standard_normal((N, 20)), OWN, THEIRS) == 0
    assert measures.dimensions(mixed, OWN, THEIRS) == 3
    assert measures.dimensions(mixed + OWN @ RNG.standard_normal((4, 5)), OWN, THEIRS) == 3
    assert measures.dimensions(np.column_stack([mixed, THEIRS @ RNG.standard_normal((6, 3))]), OWN, THEIRS) == 6


def test_inner_products_follow_from_as_many_known_combinations_of_rows_as_there_are_columns():
    K, A = THEIRS @ THEIRS.T, RNG.standard_normal((N, 8))
    assert measures.products(nystrom(A, K @ A), THEIRS) == pytest.approx(1.0, abs=1e-9)
    assert measures.products(nystrom(A[:, :4], K @ A[:, :4]), THEIRS) < 0.9


def test_known_rows_help_as_far_as_what_is_seen_does():
    turned = THEIRS @ np.linalg.qr(RNG.standard_normal((6, 6)))[0]
    best, mean = measures.with_known_rows([turned], THEIRS, 15)
    assert best > 0.999
    assert mean > 0.999
    assert measures.with_known_rows([OWN], THEIRS, 15)[1] < 0.1


def test_columns_are_found_where_an_estimate_is_one():
    assert measures.blind(np.column_stack([OWN, -3 * THEIRS[:, 2]]), THEIRS) == (pytest.approx(1.0), 1)
    best, found = measures.blind(OWN, THEIRS)
    assert best < 0.1
    assert found == 0


def test_labels_by_chance_are_a_half_and_ties_count_half():
    y = np.where(np.arange(10) < 5, -1.0, 1.0)
    assert measures.auc(y, y) == 1.0
    assert measures.auc(-y, y) == 1.0
    assert measures.auc(np.zeros(10), y) == 0.5
