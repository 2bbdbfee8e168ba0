"""Batches: passes over all rows, or independent draws, how often these take a row, and what a budget makes of it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import binom

import colonnade as cn
from colonnade.engine.sampling import Draws, most_draws
from colonnade.errors import OptionError
from test_budget import PEOPLE, job, run

OWNED = {"bank": np.arange(0, 50), "shop": np.arange(50, 90)}


def draws(sampling="uniform", epochs=20, seed=0):
    return Draws(sampling, seed, epochs, OWNED, 8)


def test_a_pass_has_every_row_once_in_batches_of_nearly_one_size():
    found = draws("passes").batches(3)
    assert sorted(np.concatenate([rows for _, rows in found]).tolist()) == list(range(90))
    assert {len(rows) for _, rows in found} == {7, 8}
    assert all(np.isin(rows, OWNED[holder]).all() for holder, rows in found)


def test_independent_batches_are_those_of_a_pass_with_rows_of_their_own():
    found, passes = draws().batches(3), draws("passes").batches(3)
    assert [(holder, len(rows)) for holder, rows in found] == [(holder, len(rows)) for holder, rows in passes]
    assert all(np.isin(rows, OWNED[holder]).all() and len(set(rows.tolist())) == len(rows) for holder, rows in found)
    assert len(set(np.concatenate([rows for _, rows in found]).tolist())) < 75  # of 90: some come again, others not


def test_draws_are_uniform_and_independent_of_what_was_drawn_before():
    """Of 4,000 batches of 8 of 50 rows: each row in 640 of them, each pair of consecutive batches shares 8 * 8 / 50."""
    made, batches = Draws("uniform", 1, 800, {"bank": np.arange(50)}, 10), []
    for epoch in range(1, 801):
        batches += [set(rows.tolist()) for _, rows in made.batches(epoch)]
    times = np.bincount([row for batch in batches for row in batch])
    assert abs(times - 800).max() < 5 * np.sqrt(800)
    shared = [len(one & two) for one, two in pairwise(batches)]
    assert np.mean(shared) == pytest.approx(10 * 10 / 50, abs=0.1)


def test_an_epoch_is_the_same_whatever_was_asked_for_before():
    """A run that goes on after a break draws what it would have drawn."""
    straight, late = draws(), draws()
    for epoch in (1, 2, 3):
        straight.batches(epoch)
    for (_, one), (_, two) in zip(straight.batches(4), late.batches(4), strict=True):
        assert one.tolist() == two.tolist()
    assert straight._times.tolist() == late._times.tolist()
    again = straight.batches(4)
    assert [rows.tolist() for _, rows in again] == [rows.tolist() for _, rows in late.batches(4)]


@pytest.mark.parametrize(("passes", "rows"), [(1, 1), (1, 10_000), (50, 500), (200, 90), (30, 1_000_000)])
def test_the_bound_holds_with_a_chance_of_one_in_a_billion(passes, rows):
    most = most_draws(passes, rows)
    for batch in (1, min(64, rows)):
        batches = passes * -(-rows // batch)
        assert rows * binom.sf(most, batches, passes / batches) < 1e-9
    assert most < passes + 12 * np.sqrt(passes) + 20  # and it is of use


def test_no_row_is_drawn_more_often_than_the_bound():
    made = Draws("uniform", 0, 40, {"bank": np.arange(200)}, 10)
    made._most = 44  # far fewer than draws would reach
    for epoch in range(1, 41):
        made.batches(epoch)
    assert made._times.max() == 44
    assert made._times.sum() == 40 * 200


def test_draws_beyond_one_an_epoch_are_told_once():
    made, told = draws(), 0
    for epoch in range(1, 15):
        ahead = made.next_excess()
        made.batches(epoch)
        new = made.excess()
        assert new == ahead  # what was announced
        told += new
        assert epoch + told >= made._times.max()  # the budget of every row is charged enough
        assert made.excess() == 0
    assert told <= made._times.max()  # and of the row that is drawn most often not too much
    late = draws()
    late.batches(15)
    made.batches(15)
    assert late.excess() == made.excess()  # a run that goes on charges what is new, and nothing twice
    assert draws("passes").next_excess() == 0


@pytest.mark.parametrize("share", [0.5, 0.7])
def test_a_budget_is_one_of_the_row_that_is_drawn_most_often(share):
    algorithm = cn.FedSGD(batch=50, tol=None, sampling="uniform")
    _, budgets, outcomes = run(job(algorithm), share)
    allowed = int(share * 12)
    epochs = -(-outcomes["shop"].traffic.rounds // 6)
    made = Draws("uniform", 0, 50, {"bank": np.arange(PEOPLE)}, 50)
    for epoch in range(1, epochs + 1):
        made.batches(epoch)
    told = int(made._times.max()) + 1 + epochs  # its batches, the start and an evaluation after every epoch
    assert told - 1e-9 <= budgets["shop"].charged <= allowed + 1e-9


@pytest.mark.parametrize(
    "algorithm",
    [
        cn.FedSGD, cn.FedBCD, cn.VFB2, cn.AFSGD, cn.FDML,
    ],
)  # fmt: skip
def test_every_algorithm_with_batches_takes_both(algorithm):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 6))
    parties = cn.split(X, (X[:, 0] + X[:, 4] > 0).astype(int), into=2, active=2 if algorithm is cn.AFSGD else 1)
    models = {}
    for sampling in ("passes", "uniform"):
        options = {"batch": 16, "epochs": 4, "tol": None, "sampling": sampling}
        models[sampling] = cn.LogisticRegression(algorithm=algorithm(**options), verbose=0).fit(*parties)
        assert models[sampling].history_[-1]["loss"] < 0.9 * models[sampling].history_[0]["loss"]
    assert models["passes"].coef_["party1"].tolist() != models["uniform"].coef_["party1"].tolist()


def test_a_kernel_takes_both_and_a_limit_of_rounds():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4))
    parties = cn.split(X, np.sign(X[:, 0] * X[:, 2]).astype(int), into=2)
    found = set()
    for sampling in ("passes", "uniform"):
        algorithm = cn.FDSKL(batch=16, block=16, epochs=4, rounds=13, tol=None, sampling=sampling)
        model = cn.KernelClassifier(features=64, algorithm=algorithm, verbose=0).fit(*parties)
        assert model.rounds_ == 13
        found.add(model.history_[-1]["loss"])
    assert len(found) == 2


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: cn.FedSGD(sampling="iid"), "sampling must be one of 'passes', 'uniform', got 'iid'"),
        (lambda: cn.VFB2(rounds=0), "rounds must be >= 1, got 0"),
        (lambda: cn.FedBCD(rounds=1.5), "rounds must be a whole number >= 1, got 1.5"),
        (lambda: cn.BlockNewton(sampling="uniform"), "BlockNewton takes no sampling, got 'uniform'"),
        (lambda: cn.BlockNewton(rounds=3), "BlockNewton takes no rounds, got 3"),
        (lambda: cn.SealedNewton(sampling="uniform"), "SealedNewton takes no sampling, got 'uniform'"),
    ],
)
def test_options_are_refused_in_one_sentence(make, sentence):
    with pytest.raises(OptionError, match=sentence):
        make()
