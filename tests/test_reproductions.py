"""The reproductions: how they measure, and a short form of each where the data are at hand."""

from __future__ import annotations

import csv
import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import reproductions.__main__
import test_reproductions_kernels as kernels
from colonnade.algorithms import AFSGD, VFB2
from colonnade.data.party import Party
from colonnade.data.site import split_rows
from colonnade.errors import DataError
from data_sets import DATA, needs
from reproductions import (
    MINUTES,
    REPRODUCTIONS,
    afsgd_fdml,
    afsgd_speedup,
    fedbcd_encrypted,
    fedbcd_rounds,
    report,
    ssca_curves,
    ssca_kept,
    ssca_stage,
    twins,
)
from reproductions.__main__ import main as reproduce
from reproductions.arrivals import Arrival, marks_said, ratio, reached, speedup, spread
from reproductions.fedbcd_rounds import ROWS, measure
from reproductions.fedbcd_setting import Setting
from reproductions.imitations import imitate
from reproductions.physionet import Task
from reproductions.report import Curve, rounds_text, rounds_to, share_text
from reproductions.ssca_sparsity import GRID, at_equal_cost, shortest, without
from reproductions.ssca_stage import Digits
from reproductions.stage import SLOWER, THIRD, Run, Stage, clock

needs_data = needs("physionet2012.npz")


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_missing_data_set_is_one_sentence(tmp_path, capsys):
    assert reproduce(["fedbcd-rounds", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert str(tmp_path / "physionet2012.npz") in said.err
    assert "--data" in said.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "fedbcd-rounds reads data sets; give their folder with --data, or in COLONNADE_DATA"),
        (["--data", ""], "argument --data: names no folder; give the folder of the data sets"),
        (["--data", ".", "--seed", "-1"], "--seed must be a whole number >= 0, got -1"),
        (["--data", "nowhere"], "the folder of data sets 'nowhere' does not exist; give one that does with --data"),
    ],
)
def test_data_sets_that_are_nowhere_are_one_sentence(arguments, said, capsys, monkeypatch):
    monkeypatch.delenv("COLONNADE_DATA", raising=False)
    with pytest.raises(SystemExit):
        reproduce(["fedbcd-rounds", *arguments])
    assert capsys.readouterr().err.endswith(f"error: {said}\n")


def test_an_output_folder_that_cannot_be_made_is_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fedbcd_rounds, "physionet2012", lambda *sizes: None)
    (tmp_path / "file").write_text("")
    assert reproduce(["fedbcd-rounds", "--data", str(tmp_path), "--out", str(tmp_path / "file" / "out")]) == 1
    assert "pass --out" in capsys.readouterr().err


def test_all_are_run_one_after_another_and_each_says_how_long_it_takes(tmp_path, capsys, monkeypatch):
    ran = []
    stand_in = SimpleNamespace(run=lambda data, **options: ran.append(options["seed"]))
    monkeypatch.setattr(reproductions.__main__, "import_module", lambda name: stand_in)
    assert reproduce(["all", "--data", str(tmp_path), "--seed", "3"]) == 0
    assert ran == [3] * len(REPRODUCTIONS)
    said = capsys.readouterr().out.split("\n\n")
    assert len(said) == len(REPRODUCTIONS)
    for place, (name, text) in enumerate(zip(REPRODUCTIONS, said, strict=True), 1):
        takes = f"about {MINUTES[name]} min"
        assert text.strip().startswith(f"== {name}, {place} of {len(REPRODUCTIONS)}: {takes}, about ")
    assert text.strip().endswith(f"{takes}, {takes} to the end")


# -- measuring --------------------------------------------------------------------------------------------------------


def test_rounds_to_is_the_first_round_at_the_target():
    curve = Curve([0, 2, 4, 6], [0.5, math.nan, 0.84, 0.83], [0.7] * 4)
    assert rounds_to(curve, 0.84) == 4
    assert rounds_to(curve, 0.5) == 0
    assert rounds_to(curve, 0.85) == math.inf


def test_rounds_and_shares_as_text():
    assert rounds_text(62.0, 500) == "62"
    assert rounds_text(math.inf, 500) == "> 500"
    assert share_text(81, 232) == "35 %"
    assert share_text(math.inf, 232) == "-"
    assert share_text(81, math.inf) == "-"


@pytest.fixture
def task():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 6))
    y = (X @ rng.normal(size=6) + rng.normal(size=300) > 0).astype(int)
    parties = [Party("holder", X[:, :3], y), Party("partner", X[:, 3:])]
    return Task([p.take(np.arange(200)) for p in parties], [p.take(np.arange(200, 300)) for p in parties])


def test_a_curve_counts_one_round_per_batch_for_every_algorithm(task):
    for algorithm, Q, _ in ROWS:
        curve = measure(task, Setting(algorithm, Q, 0.03, 0, 2), 2)
        assert curve.rounds == [0, 2, 4, 6, 8]  # 200 rows in batches of 64: 4 rounds per epoch
        assert curve.metric[0] == 0.5
        assert curve.loss[0] == pytest.approx(math.log(2))


def test_fedbcd_p_with_one_local_step_is_fedsgd(task):
    assert measure(task, Setting("FedSGD", 1, 0.1, 5, 2), 1) == measure(task, Setting("FedBCD-p", 1, 0.1, 5, 2), 1)


def test_work_off_keeps_the_order_and_passes_errors_on():
    assert list(report.work_off([3, 1, 2], lambda job: job * 10, "jobs").items()) == [(3, 30), (1, 10), (2, 20)]

    def fails(job):
        raise DataError(f"job {job} fails")

    with pytest.raises(DataError, match="fails"):
        report.work_off([1, 2, 3], fails, "jobs")


def test_without_matplotlib_a_sentence_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "matplotlib is not installed" in report.plot([], tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()


# -- twins ------------------------------------------------------------------------------------------------------------


def test_reached_is_log_linear_between_two_evaluations():
    assert reached([0.0, 10.0, 20.0], [1.0, 1e-2, 1e-4], 1e-3) == pytest.approx(15.0)
    assert reached([0.0, 10.0], [1.0, 1e-2], 1e-2) == pytest.approx(10.0)
    assert reached([0.0, 10.0], [1.0, 1e-2], 1e-3) == math.inf
    assert reached([3.0, 10.0], [1e-3, 1e-4], 1e-2) == 3.0
    assert reached([0.0, 1.0, 2.0, 3.0], [1.0, 1e-3, 1.0, 1e-9], 1e-2) < 1.0  # the first time, noise or not
    assert reached([0.0, 1.0, 2.0], [1.0, math.nan, 1e-9], 1e-2) == 2.0
    assert reached([], [], 1e-2) == math.inf


@pytest.mark.parametrize("gap", [-1e-12, 0.0, -0.0, 1e-300, 1e-12])
def test_a_gap_at_or_below_the_optimum_is_its_rounding(gap):
    assert reached([0.0, 1.0], [1.0, gap], 1e-3) == pytest.approx(0.25)  # 1e-12 is four times as far, in logarithms
    assert reached([0.0, 1.0], [1.0, gap], 1e-12) == pytest.approx(1.0)
    if gap < 1e-12:
        assert reached([0.0, 1.0], [1.0, gap], 1e-13) == pytest.approx(1.0)  # finer than what can be seen


def test_a_target_without_a_logarithm_is_reached_on_a_straight_line_in_the_gap():
    assert reached([0.0, 10.0], [1.0, -1.0], 0.0) == pytest.approx(5.0)
    assert reached([0.0, 10.0, 20.0], [1.0, -0.1, -0.3], -0.2) == pytest.approx(15.0)
    assert reached([0.0, 10.0], [0.0, -0.5], -0.5) == pytest.approx(10.0)
    assert reached([4.0, 10.0], [-1.0, -2.0], -0.5) == 4.0
    assert reached([0.0, 10.0], [1.0, -0.1], -0.2) == math.inf


def test_a_target_that_is_not_known_is_never_reached():
    assert reached([0.0, 1.0], [1.0, 1e-3], math.nan) == math.inf


THERE = Arrival(5.0, 2.5)


def test_arrivals_say_when_or_how_they_failed():
    falls = Curve([0, 1, 2], [0.5] * 3, [1.0, 1e-2, 1e-4], [0.0, 10.0, 20.0], [0, 1, 2])
    assert Arrival.of(falls, 1e-3) == Arrival(pytest.approx(15.0), pytest.approx(1.5))
    assert (Arrival.of(falls, 1e-3).text, Arrival.of(falls, 1e-3).epochs_text) == ("15", "1.5")
    assert (Arrival.of(falls, 0.1).text, Arrival.of(falls, 0.1).epochs_text) == ("~5", "~0.5")
    assert Arrival.of(falls, 1.0).text == "0"  # there at the start: nothing is guessed
    for curve, failure in (
        (falls, "not there"),
        (replace(falls, loss=[1.0, 1e-2, 2.0]), "diverges"),
        (replace(falls, loss=[1.0, 1e-2, math.nan]), "diverges"),
        (Curve(), "diverges"),
    ):
        assert Arrival.of(curve, 1e-5) == Arrival(math.inf, math.inf, failure)
        assert Arrival.of(curve, 1e-5).text == "-"


def test_speed_ups_say_who_failed():
    late, lost = Arrival(math.inf, math.inf, "not there"), Arrival(math.inf, math.inf, "diverges")
    assert speedup(THERE, Arrival(2.0, 1.0)) == "2.50"
    assert speedup(THERE, Arrival(2.0, 0.9)) == "~2.50"
    assert speedup(late, THERE) == "sync not there"
    assert speedup(THERE, lost) == "async diverges"
    assert speedup(THERE, lost, ("one party", "")) == "diverges"
    assert speedup(late, lost) == "neither"
    assert speedup(THERE, Arrival(0.0, 0.0)) == "-"
    pairs = [(THERE, Arrival(seconds, 1.0)) for seconds in (1.0, 5.0, 2.0)]
    assert spread(pairs) == "2.50 (1.00 to 5.00)"
    assert spread([*pairs, (THERE, late)]) == "2.50 (1.00 to 5.00, 1 without)"
    assert spread([(late, THERE)]) == "neither"
    assert ratio(THERE, Arrival(2.0, 1.0)) == 2.5
    assert math.isnan(ratio(THERE, lost))


def test_every_mark_is_explained_below_its_table_and_no_other():
    assert marks_said([("E2006-tfidf", "saga", "-", "2.50")]) == []
    assert [said[:5] for said in marks_said([("url", "~2.50"), ("news20", "1.60*")])] == ['"~": ', '"*": ']
    (said,) = marks_said([("url", "async diverges")])
    assert said.startswith('"diverges"')


def _curve(seconds):
    return Curve([0, 1], [0.5, 0.5], [1.0, 1e-4], [0.0, seconds], [0, 1]) if math.isfinite(seconds) else Curve()


class FakeStage:
    """Time to 1e-4 by step; whatever is not named diverges."""

    def __init__(self, synchronous, asynchronous):
        self.times = {False: synchronous, True: asynchronous}

    def measure(self, run, longer=1, seconds=None):
        return _curve(self.times[run.asynchronous].get(run.step, math.inf))


def test_twins_climb_to_their_best_step_and_share_one():
    stage = FakeStage({0.5: 12.0, 1.0: 8.0, 2.0: 4.0, 4.0: 6.0}, {0.25: 7.0, 0.5: 3.0, 1.0: 5.0})
    run = Run("x", "saga", True, 8, 3, (1e-4,))
    climbed = twins.climb(stage, run)
    assert [at.step for at in climbed] == [1.0, 0.5, 2.0, 0.25]
    assert twins.best(climbed, run, 1e-4).step == 0.5
    curves = twins.tuned({"x": stage}, [run], "test")
    pair = twins.compare(curves, run)
    # both arrive with 1 and with 1/2; the synchronous twin's best, 2, makes the other diverge
    assert (pair.step, [at.seconds for at in pair.twins], pair.speedup) == (1.0, [8.0, 5.0], "1.60*")
    assert (pair.best_steps, [at.seconds for at in pair.best_twins], pair.best_speedup) == (
        (2.0, 0.5),
        [4.0, 3.0],
        "1.33",
    )
    assert pair.lost == "diverges"
    assert "saga 1 (with 2 the asynchronous twin fails: diverges)" in twins.common_steps_said({"saga": pair})
    assert twins.lost_said({run: pair}) == [
        "Synchronous bests with which the asynchronous twin fails: x saga 2 (diverges)."
    ]


def test_twins_that_agree_on_a_step_are_not_marked():
    stage = FakeStage({0.5: 12.0, 1.0: 8.0, 2.0: 9.0}, {0.5: 3.0, 1.0: 5.0})
    run = Run("x", "saga", True, 8, 3, (1e-4,))
    pair = twins.compare(twins.tuned({"x": stage}, [run], "test"), run)
    assert (pair.step, pair.speedup, pair.lost, twins.lost_said({run: pair})) == (1.0, "1.60", "", [])


def test_without_a_step_for_both_the_cell_says_who_fails():
    stage = FakeStage({1.0: 8.0, 2.0: 4.0}, {0.25: 7.0, 0.5: 3.0})
    run = Run("x", "saga", True, 8, 3, (1e-4,))
    pair = twins.compare(twins.tuned({"x": stage}, [run], "test"), run)
    assert (pair.step, pair.speedup, pair.lost, pair.best_speedup) == (2.0, "async diverges", "diverges", "1.33")


def test_the_speed_ups_with_one_step_say_how_it_is_chosen():
    stage = FakeStage({1.0: 8.0, 2.0: 4.0}, {0.5: 3.0, 1.0: 5.0})
    run = Run("url", "saga", True, 8, 8, (1e-4,))
    pairs = {run: twins.compare(twins.tuned({"url": stage}, [run], "test"), run)}
    table = afsgd_speedup.beside(pairs, best=False)
    assert table.rows == [["url", "8", "2.05", "1.60*"]]
    assert table.words[0] == twins.COMMON_STEP_SAID
    assert "url saga 2 (diverges)" in table.words[1]
    assert table.words[2].startswith('"*"')
    assert twins.COMMON_STEP_SAID not in afsgd_speedup.beside(pairs, best=True).words


def test_where_long_steps_diverge_shorter_ones_are_tried():
    run = Run("x", "saga", True, 8, 3, (1e-4,))
    climbed = twins.climb(FakeStage({}, {0.125: 4.0, 0.0625: 9.0}), run)
    assert [at.step for at in climbed] == [1.0, 0.5, 2.0, 0.25, 0.125, 0.0625]
    assert twins.best(climbed, run, 1e-4).step == 0.125


def test_the_ladder_goes_on_behind_a_step_that_is_nearly_the_best():
    """A second valley behind a low ridge is found, one behind a high ridge is not looked for."""
    run = Run("x", "saga", True, 8, 3, (1e-4,))
    for ridge, best in ((4.8, 4.0), (5.2, 1.0)):
        climbed = twins.climb(FakeStage({}, {0.5: 9.0, 1.0: 4.0, 2.0: ridge, 4.0: 3.0, 8.0: 6.0}), run)
        assert twins.best(climbed, run, 1e-4).step == best


def test_a_run_that_is_still_on_its_way_gets_more_epochs():
    class Slow:
        def measure(self, run, longer=1, seconds=None):
            epochs = [float(e) for e in range(6 * longer + 1)]
            return Curve([0] * len(epochs), [0.5] * len(epochs), [0.3**e for e in epochs], epochs, epochs)

    run = Run("x", "saga", True, 8, 3, (1e-6,))
    assert len(twins.climb(Slow(), run)[run].epochs) == 6 * twins.LONGER + 1
    near = replace(run, goals=(1e-2,))
    assert len(twins.climb(Slow(), near)[near].epochs) == 7


def test_a_goal_that_nobody_reaches_gives_no_ratio():
    stage = FakeStage({}, {1.0: 1.0})
    run = Run("x", "sgd", True, 8, 3, (1e-5, 1e-6))
    pair = twins.compare(twins.tuned({"x": stage}, [run], "test"), run)
    assert (pair.precision, pair.speedup, pair.best_speedup, pair.lost) == (1e-6, "neither", "neither", "")


def test_what_is_run_for_one_goal_may_reach_a_finer_one():
    """The other's best step may be the first with which a twin is at the finest goal: then its twin is run too."""

    class Two(FakeStage):
        def measure(self, run, longer=1, seconds=None):
            seconds, gap = self.times[run.asynchronous].get(run.step, (1.0, 1.0))
            return Curve([0, 1], [0.5, 0.5], [1.0, gap], [0.0, seconds], [0, 1])

    still = {1.0: (8.0, 1e-3), 2.0: (9.0, 1e-3), 0.5: (9.0, 1e-3), 0.125: (30.0, 1e-4)}
    moving = {1.0: (9.0, 1e-3), 2.0: (9.5, 1e-3), 0.5: (8.0, 1e-3), 0.25: (7.0, 1e-3), 0.125: (6.0, 1e-4)}
    run = Run("x", "sgd", True, 8, 3, (1e-4, 1e-3))
    curves = twins.tuned({"x": Two(still, moving)}, [run], "test")
    assert twins.missing(curves, [run]) == []
    pair = twins.compare(curves, run)
    assert (pair.precision, pair.step, pair.speedup) == (1e-4, 0.125, "5.00")


@pytest.fixture(scope="module")
def stage():
    return Stage(imitate("rcv1.binary", 0.001), AFSGD, seed=0, epochs=6)


@pytest.mark.filterwarnings("ignore:training stopped")
def test_a_stage_measures_sub_optimality_under_its_clock(stage):
    run = Run("rcv1.binary", "saga", False, 4, 4, (1e-4,))
    curve = stage.measure(run)
    assert curve.epochs == list(range(7))
    assert min(curve.loss) >= -1e-9
    assert curve.loss[-1] < 0.2 * curve.loss[0]
    slow = stage.measure(replace(run, straggler=THIRD))
    assert slow.loss == curve.loss  # in step, a straggler costs time and nothing else
    assert slow.times[-1] > 2 * curve.times[-1]
    both = replace(run, straggler=SLOWER, asynchronous=True)
    assert stage.measure(both).times[-1] < stage.measure(both.twin).times[-1]


def test_a_run_that_leaves_the_ring_has_no_curve(stage):
    assert stage.measure(Run("rcv1.binary", "sgd", False, 2, 2, (), step=1e9)) == Curve()


def test_the_clock_gives_a_batch_the_time_of_twenty_messages(stage):
    on = clock(stage.data, 8, THIRD)
    assert on.seconds_per_nonzero * stage.data.nonzeros * stage.data.batch / 8 == pytest.approx(20 * on.latency)
    assert on.speeds == {"party8": 1 / 3}


def test_with_one_worker_fdml_is_afsgd():
    """The same model, rows and schedule: whatever differs with more workers is the algorithm."""
    data = imitate("rcv1.multiclass", 0.003)
    one, other = (afsgd_fdml.measure(data, afsgd_fdml.Job(data.name, name, 1, 0), 3) for name in afsgd_fdml.ALGORITHMS)
    assert one == other


def test_ridge_is_the_papers_objective():
    data = imitate("YearPredictionMSD", 0.001)
    stage = Stage(data, VFB2, seed=0, epochs=1)
    X, y = stage.trial.X.astype(float), stage.trial.y
    found = stage.optima["l2"]
    error = np.square(X @ found.weights[:, 0] - y).mean()
    paper = error + 1e-4 / 2 * np.square(found.weights).sum()
    assert stage.factor * found.value == pytest.approx(paper)


# -- the short form ---------------------------------------------------------------------------------------------------


@needs_data
def test_fedbcd_rounds_in_short_form(tmp_path, capsys):
    out = tmp_path / "out"
    assert reproduce(["fedbcd-rounds", "--data", str(DATA), "--out", str(out), "--quick", "--seed", "4"]) == 0
    said = capsys.readouterr().out
    assert "Seeds 4." in said
    for text in (said, (out / "fedbcd-rounds.txt").read_text()):
        assert "FedBCD-s" in text
        assert "FedPBCD-p" in text

    tables = {}
    for name in ("one-eta0", "tuned", "large-q", "figure-2"):
        with (out / f"fedbcd-rounds-{name}.csv").open(newline="") as file:
            tables[name] = list(csv.DictReader(file))
    for name in ("one-eta0", "tuned"):
        assert [(row["algorithm"], int(row["Q"])) for row in tables[name]] == [(a, Q) for a, Q, _ in ROWS]
    rounds = {(row["algorithm"], row["Q"]): row["here"] for row in tables["one-eta0"]}
    assert rounds["FedSGD", "1"] == rounds["FedBCD-p", "1"]
    for order in ("p", "s"):
        assert int(rounds[f"FedBCD-{order}", "5"]) < int(rounds["FedSGD", "1"])

    shown = {(row["algorithm"], row["Q"]): row["round 60"].split(" / ") for row in tables["figure-2"]}
    assert shown["FedSGD", "1"] == shown["FedBCD-p", "1"]
    (auc, loss), (auc_5, loss_5) = (map(float, shown[row]) for row in (("FedSGD", "1"), ("FedBCD-p", "5")))
    assert auc < auc_5
    assert loss > loss_5

    plain, proximal, small = tables["large-q"]
    assert float(plain["last loss"]) > math.log(2) > float(proximal["last loss"])
    assert float(proximal["last AUC"]) > float(plain["last AUC"])
    assert float(small["last loss"]) < math.log(2)
    if (out / "fedbcd-rounds.png").exists():  # matplotlib is optional
        assert (out / "fedbcd-rounds.png").read_bytes().startswith(b"\x89PNG")


@needs("ucicreditcard.npz")
@pytest.mark.usefixtures("unpainted")
def test_fedbcd_encrypted_in_short_form(tmp_path, capsys):
    out = tmp_path / "out"
    command = ["fedbcd-encrypted", "--data", str(DATA), "--out", str(out), "--quick", "--seed", "3"]
    assert reproduce(command) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Seed 3." in said
    assert "14 at bank + 76 at payments" in said
    for name in ("one-eta0", "tuned"):
        with (out / f"fedbcd-encrypted-{name}.csv").open(newline="") as file:
            table = list(csv.DictReader(file))
        assert [row["Q"] for row in table] == ["1", "5", "10"] * 3
        assert [row["paper R"] for row in table] == ["17", "4", "2", "30", "8", "4", "-", "-", "-"]
        for row in table:
            if row["R"].isdigit():
                parts = float(row["comp., s"]) + float(row["comm., s"])
                assert float(row["total, s"]) == pytest.approx(parts, abs=0.02)
    with (out / "fedbcd-encrypted-curves.csv").open(newline="") as file:
        assert all(0.4 < float(row["test AUC"]) < 0.9 for row in csv.DictReader(file))


@needs("ucicreditcard.npz")
@pytest.mark.usefixtures("unpainted")
def test_fedbcd_ftl_in_short_form(tmp_path, capsys):
    pytest.importorskip("torch")
    out = tmp_path / "out"
    assert reproduce(["fedbcd-ftl", "--data", str(DATA), "--out", str(out), "--quick", "--seed", "3"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "short form. Seed 3." in said
    assert "4800 common and 1200 test rows" in said
    for name in ("one-eta0", "tuned"):
        with (out / f"fedbcd-ftl-{name}.csv").open(newline="") as file:
            table = list(csv.DictReader(file))
        assert [row["Q"] for row in table] == ["1", "5", "10"] * 3
        assert [row["paper R"] for row in table] == ["17", "4", "2", "30", "8", "4", "-", "-", "-"]
    with (out / "fedbcd-ftl-nus.csv").open(newline="") as file:
        rows = [(row["exchange"], row["Q"], row["mu"]) for row in csv.DictReader(file)]
    assert rows == [
        ("representations", "1", "0"), ("representations", "25", "0"), ("representations", "25", "0.1"),
        ("signals", "5", "0"),
    ]  # fmt: skip
    with (out / "fedbcd-ftl-curves.csv").open(newline="") as file:
        assert {row["task"] for row in csv.DictReader(file)} == {"credit", "nus"}


def test_time_on_the_line_follows_rounds_and_bytes():
    curve = Curve([0, 1, 2, 3], [0.5, 0.6, 0.7, 0.7], [0.7] * 4, [2.0, 2.5, 3.1, 3.5])
    encrypted = fedbcd_encrypted.Encrypted(curve, 1.25e6)
    computation, line = encrypted.until(rounds_to(curve, 0.7))
    assert computation == pytest.approx(1.1)
    assert line == pytest.approx(2 * (4 * 0.01 + 0.1))


# What a short form writes beside its text, and what its tables speak of.
WRITES = {
    "afsgd-fdml": ("accuracy", "runs"),
    "afsgd-real-time": ("beside", "workload", "runs"),
    "afsgd-scaling": ("scaling", "curves"),
    "afsgd-speedup": ("best-steps", "one-step", "details", "steps", "times", "curves"),
    "afsgd-workload": ("workload",),
    "fedbcd-digits": ("adam", "signals", "curves"),
    "fedbcd-mnist": ("one-eta0", "tuned", "figure-2", "final", "curves"),
    "fedbcd-nus": ("rounds", "figure-2", "large-q", "parties", "transfer", "curves"),
    "fedbcd-parties": ("one-eta0", "tuned", "local-steps", "decay", "curves"),
    "fedbcd-rate": ("runs", "slopes", "looks"),
    "vfb2-accuracy": ("accuracy", "differences", "trials"),
    "vfb2-convergence": ("l2", "steps", "nonconvex", "curves"),
    "vfb2-scaling": ("l2", "nonconvex", "curves"),
}


def _short_form(name, data, out, capsys):
    assert reproduce([name, "--data", str(data), "--out", str(out), "--quick", "--seed", "2"]) == 0
    said = capsys.readouterr().out
    assert "short form" in said
    tables = {}
    for table in (*(() if name.startswith("fedbcd") else ("data",)), *WRITES[name]):
        with (out / f"{name}-{table}.csv").open(newline="") as file:
            tables[table] = list(csv.DictReader(file))
            assert tables[table], table
    for picture in out.glob("*.png"):  # matplotlib is optional
        assert picture.read_bytes().startswith(b"\x89PNG")
    return said, (out / f"{name}.txt").read_text(), tables


def test_every_reproduction_has_a_short_form():
    alone = {"fedbcd-rounds", "fedbcd-encrypted", "fedbcd-ftl", "trees", "defences", "defences-networks"}
    alone |= {"audit", "audit-attacks"}
    assert set(WRITES) | set(kernels.WRITES) | set(OVER_ROWS) | alone == set(REPRODUCTIONS)


# The same for those over rows, whose data are MNIST alone.
OVER_ROWS = {
    "ssca-accuracy": ("accuracy", "trials", "limited", "curves"),
    "ssca-cost": ("cost", "trials", "limited", "curves"),
    "ssca-sparsity": ("limits", "trials", "lambdas", "printed", "runs"),
}


@pytest.mark.usefixtures("unpainted")
@needs("mnist.npz")
@pytest.mark.parametrize("name", OVER_ROWS)
def test_a_short_form_over_rows(name, tmp_path, capsys):
    out = tmp_path / "out"
    assert reproduce([name, "--data", str(DATA), "--out", str(out), "--quick", "--seed", "2"]) == 0
    said = capsys.readouterr().out
    assert "short form" in said
    assert "Seeds 2" in said
    tables = {}
    for table in OVER_ROWS[name]:
        with (out / f"{name}-{table}.csv").open(newline="") as file:
            tables[table] = list(csv.DictReader(file))
            assert tables[table], table
    if name == "ssca-sparsity":
        for row in tables["runs"]:
            if row["limit"]:
                assert float(row["training cost"]) <= float(row["limit"]) + 0.01
        assert "limits are kept" in said
    else:
        assert {row["algorithm"] for row in tables["trials"]} == {
            "SSCA, tuned",
            "SGD, E = 1, tuned",
            "SGD, E = 2, tuned",
            "FedAvg, passes, 2 rounds",
        }
        # as all sites hold as many rows, references [3] to [5] of the paper are one algorithm
        ends = {row["algorithm"]: row["training cost"] for row in tables[OVER_ROWS[name][0]]}
        assert ends["PR-SGD, E = 2, tuned"] == ends["SGD, E = 2, tuned"] != ends["SGD, E = 1, tuned"]
        assert {row["Algorithm 2"] for row in tables["limited"]} == {"as printed", "limits lowered"}
        assert "2 trials for SSCA, 2 for SGD" in said
        # a line of the table is the best of its trials
        best = min((row for row in tables["trials"] if row["algorithm"] == "SSCA, tuned"), key=lambda row: row["cost"])
        table = next(row for row in tables[OVER_ROWS[name][0]] if row["algorithm"] == "SSCA, tuned")
        assert table["options"] == best["options"]


def test_lengths_at_equal_cost_lie_between_neighbours():
    costs, norms = [0.5, 0.2, 0.3], [10.0, 100.0, 50.0]
    assert at_equal_cost(costs, norms, 0.25) == pytest.approx(75.0)
    assert at_equal_cost(costs, norms, 0.5) == 10.0
    assert math.isnan(at_equal_cost(costs, norms, 0.1))
    assert math.isnan(at_equal_cost(costs, norms, 0.6))


def test_each_side_shows_its_shortest_model():
    def ended(cost, norm, slack=0.0):
        return ssca_stage.Outcome((10,), (cost,), (0.9,), (norm,), slack)

    one, other = GRID[:2]
    bound = {
        ssca_stage.Run("SSCA", 10, one, 0, 0.0, 0.5): ended(0.505, 20.0),
        ssca_stage.Run("SSCA", 10, other, 0, 0.0, 0.5): ended(0.49, 25.0),
        ssca_stage.Run("SSCA", 10, other, 1, 0.0, 0.5): ended(0.52, 10.0),  # does not keep it
        ssca_stage.Run("SSCA", 10, one, 1, 0.0, 0.5): ended(0.51, 15.0, slack=0.1),
    }
    assert shortest(bound, 0.5, 0)[1].norm == (20.0,)
    assert shortest(bound, 0.5, 1)[1].cost == (0.51,)
    free = {
        ssca_stage.Run("SSCA", 10, options, 0, l2): ended(cost, norm)
        for options, l2, cost, norm in ((one, 0.1, 0.4, 40.0), (one, 0.2, 0.6, 20.0), (other, 0.1, 0.5, 25.0))
    }
    assert without(free, (one, other), 0.5, 0) == (25.0, "b")
    assert without(free, (one,), 0.5, 0)[0] == pytest.approx(30.0)
    assert math.isnan(without(free, (one, other), 0.3, 0)[0])


def test_a_run_that_is_kept_is_not_done_again(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    sites = split_rows(rng.normal(size=(40, 3)), rng.integers(0, 2, 40), into=2)
    digits, done = Digits(sites, sites, 40, 40), []
    monkeypatch.setattr(ssca_kept, "measure", lambda *given: done.append(given) or ssca_stage.measure(*given))
    run = ssca_stage.Run("SSCA", 10, ssca_stage.papers(10), 0, rounds=2)
    first = ssca_kept.KeptRuns(tmp_path, digits, 4).measure(run)
    assert ssca_kept.KeptRuns(tmp_path, digits, 4).measure(run) == first
    assert len(done) == 1
    ssca_kept.KeptRuns(tmp_path, digits, 5).measure(run)
    monkeypatch.setattr(ssca_kept, "_code", lambda: "other code")
    assert ssca_kept.KeptRuns(tmp_path, digits, 4).measure(run) == first
    assert len(done) == 3


def test_both_sides_are_tuned_with_as_many_trials():
    assert len(ssca_curves.SSCA_GRID) == len(ssca_curves.SGD_GRID) == 12


def test_a_run_that_leaves_the_ring_is_an_outcome():
    rng = np.random.default_rng(0)
    sites = split_rows(rng.normal(size=(40, 3)) * 1e4, rng.integers(0, 2, 40), into=2)
    digits = Digits(sites, sites, 40, 40)
    found = ssca_stage.measure(digits, ssca_stage.Run("SGD", 10, (("step", (1e9, 0.0)),), 0, rounds=5), 4)
    assert found.cost[-1] == math.inf


def test_options_as_a_table_shows_them():
    options = (("rho", (0.5, 0.1)), ("gamma", (0.5, 0.0)), ("tau", 0.05), ("correct", True))
    assert ssca_stage.options_text(options) == "rho 0.5/t^0.1, gamma 0.5, tau 0.05, correct"


@needs_data
@pytest.mark.usefixtures("unpainted")
@pytest.mark.parametrize("name", WRITES)
def test_a_short_form_runs_and_says_its_seed(name, tmp_path, capsys):
    said, text, tables = _short_form(name, DATA, tmp_path / "out", capsys)
    assert "Seed 2." in text or "Seeds 2" in text
    assert "skipped" not in said
    if name in ("afsgd-scaling", "afsgd-speedup", "vfb2-convergence", "vfb2-scaling"):
        assert "the one with which the synchronous twin is there first" in " ".join(text.split())
    if name == "fedbcd-mnist":
        rounds = {(row["algorithm"], row["Q"]): row["here"] for row in tables["one-eta0"]}
        assert int(rounds["FedBCD-p", "5"]) < int(rounds["FedSGD", "1"])
        assert int(rounds["FedBCD-s", "5"]) < int(rounds["FedSGD", "1"])
        assert [row["paper"] for row in tables["tuned"]] == ["46", "16", "8", "48", "15", "9"]
    if name == "fedbcd-digits":
        last = {(row["Q"], row["signal"]): float(row["last AUC"]) for row in tables["signals"]}
        assert last["15", "exact"] > last["1", "exact"]
        assert math.isnan(last["15", "frozen"])
    if name == "fedbcd-nus":
        large = {(row["eta0"], row["mu"], row["signal"]): float(row["last AUC"]) for row in tables["large-q"]}
        assert large["0.5", "-", "exact"] > large["0.5", "1", "frozen"] > large["0.5", "-", "frozen"]
        assert [row["algorithm"] for row in tables["figure-2"]] == ["FedBCD-p"] * 3 + ["FedBCD-s"] * 3
        assert {row["parties"] for row in tables["parties"]} == {"2", "5", "17"}
        began = {
            (row["algorithm"] == "FTL", row["parties"], row["test AUC"])
            for row in tables["curves"]
            if row["rounds"] == "0"
        }
        assert len(began) == 4  # whatever ran beside it, a run begins with the networks of its seed
    if name == "fedbcd-parties":
        for row in tables["one-eta0"]:
            each = int(row["K"]) - 1 if row["algorithm"] == "FedBCD-s" else 1
            assert row["exchanges"].startswith(">") or int(row["exchanges"]) == each * int(row["batches"])
        ended = {(row["algorithm"], row["K"], row["Q"]): row["last AUC"] for row in tables["one-eta0"]}
        assert all(float(ended[name, "5", "5"]) > float(ended[name, "5", "1"]) for name in ("FedBCD-p", "FedBCD-s"))
        assert [row["r counts"] for row in tables["decay"]] == ["exchange", "step"] * 2
    if name == "fedbcd-rate":
        assert all(float(row["here"]) < float(row["of (11)"]) for row in tables["runs"])  # a bound is one
        assert all(float(row["by rounds"]) < 0 for row in tables["slopes"])
        starts = {row["|grad L|²"] for row in tables["looks"] if row["look"] == "0"}
        assert len(starts) == 1
    if name == "afsgd-speedup":
        assert [row["SAGA, paper"] for row in tables["one-step"]] == ["1.79", "1.95", "2.38"]
    if name == "vfb2-accuracy":
        assert tables["accuracy"][0]["UCICreditCard, paper"] == "81.96 ± 0.25"
        for trial in tables["trials"]:
            assert 40 <= float(trial["VFB²-SVRG"]) <= 100


@pytest.mark.parametrize("name", ["afsgd-speedup", "vfb2-accuracy"])
def test_without_data_imitations_are_used_and_the_rest_is_skipped(name, tmp_path, capsys):
    said, _, tables = _short_form(name, tmp_path, tmp_path / "out", capsys)
    assert "UCICreditCard is skipped" in said
    assert "is imitated" in said
    assert all(row["origin"].startswith("imitation") for row in tables["data"])
