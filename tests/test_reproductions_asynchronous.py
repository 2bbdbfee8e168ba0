"""What the asynchronous papers' reproductions make of their runs: grids of steps, causes, workloads, real time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from colonnade.algorithms import AFSGD, VFB2
from colonnade.estimators.linear import LogisticRegression
from colonnade.runtimes.times import Times
from reproductions import afsgd_real_time, afsgd_speedup, afsgd_workload, twins
from reproductions.afsgd_setting import PARTIES, runs_on
from reproductions.imitations import WORDS, imitate
from reproductions.report import Curve
from reproductions.sources import SCALES
from reproductions.stage import REGULAR, UPDATES_AT_A_THIRD, UPDATES_AT_ONCE, Run, Stage, clock

RUN = Run("url", "sgd", True, 16, 16, (1e-3, 1e-2), UPDATES_AT_A_THIRD)


def curve(seconds, epochs=4, gap=1e-3):
    """From 1 to the gap in so many epochs of a run."""
    gaps, times = list(np.geomspace(1.0, gap, epochs + 1)), list(np.linspace(0, seconds, epochs + 1))
    return Curve([0] * len(gaps), [0.5] * len(gaps), gaps, times, list(range(len(gaps))))


@pytest.mark.parametrize(
    ("name", "rows", "columns", "per_column"),
    [
        ("rcv1.binary", 677_399, 47_236, 14.34),
        ("rcv1.multiclass", 518_571, 47_236, 10.98),
        ("E2006-tfidf", 16_087, 150_360, 0.107),
    ],
)
def test_imitations_have_the_papers_training_rows_per_column(name, rows, columns, per_column):
    words = WORDS[name]
    assert round(words.train * words.rows) == rows
    assert words.columns == columns
    scaled = round(words.rows * SCALES[name]) * words.train / round(words.columns * SCALES[name])
    assert scaled == pytest.approx(per_column, rel=0.01)


def test_as_many_parties_as_in_the_paper_and_one_clock_for_all():
    assert {name: run.parties for name, run in zip(PARTIES, runs_on(PARTIES, ("sgd",), quick=False), strict=True)} == {
        **dict.fromkeys(("UCICreditCard", "GiveMeSomeCredit", "E2006-tfidf", "YearPredictionMSD", "casp"), 4),
        **dict.fromkeys(("rcv1.binary", "news20", "rcv1.multiclass"), 8),
        "url": 16,
    }
    data = imitate("rcv1.binary", 0.001)
    for parties in (4, 16):
        on = clock(data, parties, UPDATES_AT_A_THIRD, parties)
        assert on.seconds_per_nonzero * data.nonzeros * data.batch / parties == pytest.approx(20 * on.latency)


def test_the_grid_of_steps_shows_every_run_of_both_twins():
    curves = {
        replace(RUN, step=1.0): curve(2.0),
        replace(RUN, step=0.5): curve(3.0),
        replace(RUN.twin, step=1.0): curve(8.0),
        replace(RUN.twin, step=2.0): curve(6.0),
        replace(RUN.twin, step=4.0): Curve(),
    }
    missing = twins.whole_grid(curves, [RUN])
    assert sorted((at.asynchronous, at.step) for at in missing) == [(False, 0.5), (True, 2.0), (True, 4.0)]
    table = twins.grid_table(curves, {RUN: 1e-3})
    assert table.header == ("data", "estimator", "twin", "gap", "0.5", "1", "2", "4", "best")
    assert table.rows == [
        ("url", "sgd", "synchronous", "0.001", "", "8", "6", "diverges", "2"),
        ("url", "sgd", "asynchronous", "0.001", "3", "2", "", "", "1"),
    ]


def test_a_step_that_takes_three_times_as_long_as_another_is_given_up():
    class Noted:
        def __init__(self):
            self.limits = []

        def measure(self, run, longer=1, seconds=None):
            self.limits.append(seconds)
            return curve({1.0: 8.0, 0.5: 20.0, 2.0: 4.0, 4.0: 13.0}.get(run.step, 99.0), gap=1e-4)

    stage = Noted()
    twins.climb(stage, replace(RUN, goals=(1e-3,)))
    first, *limits = stage.limits
    assert first is None
    assert limits == pytest.approx([18.0, 18.0, 9.0])  # three quarters of the way from 1 to 1e-4 are to 1e-3


@pytest.mark.filterwarnings("ignore:training")
def test_a_run_in_its_noise_ends():
    stage = Stage(imitate("rcv1.binary", 0.001), AFSGD, seed=0, epochs=30)
    run = Run("rcv1.binary", "sgd", False, 2, 2, (1e-9,), step=2.0)
    noisy = stage.measure(run)
    assert noisy.epochs[-1] < 30
    assert min(noisy.loss[-4:]) >= min(noisy.loss)
    assert stage.measure(run, seconds=noisy.times[2]).epochs[-1] == 2


def test_each_twin_takes_steps_half_way_to_the_neighbours_of_its_best():
    curves = {replace(RUN, step=step): curve(seconds) for step, seconds in ((0.5, 3.0), (1.0, 2.0), (2.0, 4.0))}
    curves |= {replace(RUN.twin, step=step): curve(seconds) for step, seconds in ((0.5, 3.0), (0.75, 4.0), (1.0, 6.0))}
    wanted = twins.between(curves, [RUN])
    assert [(at.asynchronous, at.step) for at in wanted] == [(True, 0.75), (True, 1.5), (False, 0.375)]


def test_a_slow_cell_is_run_without_its_straggler():
    curves = {replace(RUN, step=1.0): curve(3.0, 6), replace(RUN.twin, step=1.0): curve(4.5, 3)}
    pairs = {RUN: twins.compare(curves, RUN)}
    assert afsgd_speedup.slow(pairs) == pairs
    off = {replace(RUN, straggler=REGULAR): curve(1.5, 3), replace(RUN, straggler=UPDATES_AT_ONCE): curve(1.0, 2)}
    table = afsgd_speedup.causes(pairs, curves, off)
    # 1.5 s an epoch against 0.5 s; six epochs where three would do
    assert table.rows == [("url", "sgd", "1.50", "3.00", "3 / 6 / 3 / 2", "3.00", "4.50")]
    fast = replace(RUN, data="news20")
    both = curves | {fast: curve(1.0), fast.twin: curve(4.5)}
    assert list(afsgd_speedup.slow({at: twins.compare(both, at) for at in (RUN, fast)})) == [RUN]


def test_curves_are_drawn_on_to_the_finest_gap():
    curves = {replace(RUN, step=1.0): curve(3.0), RUN.twin: curve(4.5, gap=1e-5)}
    pairs = {RUN: twins.compare(curves, RUN)}
    drawn = afsgd_speedup.to_be_drawn([RUN], curves, pairs)
    assert [(at.asynchronous, min(at.goals)) for at in drawn] == [(True, 1e-4)]
    table = afsgd_speedup.times(curves, pairs)
    assert [row[1] for row in table.rows] == ["AFSGD-VP", "FSGD-VP"]
    assert table.rows[0][-2:] == ("-", "1.0e-03")


def test_a_workload_in_parts_of_the_synchronous_twins():
    still = afsgd_workload.Workload(Times(3.0, 0.5, 0.5), Times(1.0, 0.5, 2.5), 10.0, 1.0)
    moving = afsgd_workload.Workload(Times(2.0, 0.0, 0.0), Times(1.0, 0.5, 0.5), 40.0, 0.3)
    found = {RUN.twin: still, RUN: moving}
    rows = afsgd_workload.workload_table(found).rows
    assert rows[1][3:] == ("others", "25 %", "12 %", "62 %", "1.00", "1.00")
    assert rows[2][3:] == ("straggler", "100 %", "0 %", "0 %", "4.00", "1.20")
    (bars,) = afsgd_workload.workload_bars(found, "here")
    heights = np.sum(list(bars.parts.values()), axis=0)
    assert heights == pytest.approx([1.0, 1.0, 0.25, 0.25])


def test_under_the_virtual_clock_the_others_wait_for_a_straggler_in_step_only():
    stage = Stage(imitate("rcv1.binary", 0.001), AFSGD, seed=0, epochs=2)
    run = Run("rcv1.binary", "saga", False, 4, 4, (), UPDATES_AT_A_THIRD)
    still, moving = (afsgd_workload.Workload.of(stage.train(at)) for at in (run, run.twin))
    for load in (still, moving):
        assert load.others.total == pytest.approx(load.straggler.total, rel=0.01)
    waited = [load.others.waiting / load.others.total for load in (still, moving)]
    assert waited[0] > 0.5  # asynchronously only for parties with more of the numbers
    assert waited[1] < 0.7 * waited[0]
    assert moving.straggler.computing > 0.9 * moving.straggler.total
    assert moving.batches > 1.5 * still.batches
    assert moving.used < 0.9 < still.used


def test_in_real_time_every_party_sleeps_for_its_work():
    data = imitate("rcv1.binary", 0.001)
    on = afsgd_real_time.asleep(data, replace(RUN, parties=4))
    each = on.slowed["party1"] * data.nonzeros * data.batch / 4
    assert each == pytest.approx(afsgd_real_time.WORK)
    assert set(on.slowed) == {"party1", "party2", "party3", "party4"}
    lanes = on.slowed["party4"]
    assert lanes["backward"] == pytest.approx(3 * lanes["forward"])
    assert lanes["forward"] == on.slowed["party1"]


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("penalty", ["l2", "nonconvex"])
def test_all_columns_in_one_place_see_the_same_batches(sparse, penalty):
    """In step, over the same batches in the same order, eight parties and one place give one model."""
    trial = imitate("rcv1.binary", 0.001).trial(0)
    if not sparse:
        trial = replace(trial, X=trial.X.toarray(), X_test=trial.X_test.toarray())
    options = {"step": 5.0, "schedule": "constant", "batch": 32, "epochs": 3, "tol": None, "seed": 4}
    histories = []
    for parties in (trial.in_one_place(3), trial.parties(8, 3, 4)):
        model = LogisticRegression(
            l2=1e-4,
            penalty=penalty,
            fit_intercept=False,
            algorithm=VFB2("svrg", asynchronous=False, **options),
            sum="plain",
            verbose=0,
        )
        histories.append([record["loss"] for record in model.fit(*parties).history_])
    assert histories[0] == pytest.approx(histories[1], abs=1e-9)
    assert sp.issparse(trial.X) == sparse
