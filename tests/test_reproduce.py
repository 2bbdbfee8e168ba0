"""The reproductions: how they measure, and a short form of each where the data are at hand."""

from __future__ import annotations

import csv
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from colonnade.cli.main import main
from colonnade.errors import DataError
from colonnade.party import Party
from colonnade.reproduce import datasets, fedbcd_rounds, report
from colonnade.reproduce.fedbcd_rounds import ROWS, Setting, measure
from colonnade.reproduce.report import Curve, rounds_text, rounds_to, share_text

DATA = Path(os.environ.get("COLONNADE_DATA", Path(__file__).parents[2] / "shared" / "data"))
needs_data = pytest.mark.skipif(not (DATA / "physionet2012.npz").is_file(), reason="physionet2012.npz is not here")


# -- summaries --------------------------------------------------------------------------------------------------------


def _slow(series, start, end):
    """The six statistics of one stay's one variable, the long way."""
    known = [float(v) for v in series[start:end] if not math.isnan(v)]
    if not known:
        return [math.nan] * 5 + [0.0]
    n = len(known)
    mean = sum(known) / n
    sd = math.sqrt(sum((v - mean) ** 2 for v in known) / n)
    skewness = 0.0 if max(known) == min(known) else sum((v - mean) ** 3 for v in known) / n / sd**3
    return [min(known), max(known), mean, sd, skewness, float(n)]


def test_summaries_equal_the_slow_reference():
    rng = np.random.default_rng(7)
    series = rng.normal(50, 10, size=(6, 8, 3))
    series[rng.random(series.shape) < 0.5] = np.nan
    series[0, :, 0] = np.nan  # never measured
    series[1, :4, 1] = np.nan  # not measured in the first half
    series[2, :, 2] = 7.3  # always the same
    series[3, :, 0], series[3, 5, 0] = np.nan, -4.0  # measured once
    windows = ((0, 8), (0, 4), (4, 8))
    found = datasets.summaries(series, windows)
    assert found.shape == (6, 3, 3, 6)
    for stay in range(6):
        for variable in range(3):
            for w, (start, end) in enumerate(windows):
                expected = _slow(series[stay, :, variable], start, end)
                np.testing.assert_allclose(found[stay, variable, w], expected, atol=1e-9)


def test_equal_values_in_single_precision_have_no_skewness():
    series = np.full((1, 48, 1), 0.1, dtype=np.float32)
    assert datasets.summaries(series, ((0, 48),))[0, 0, 0, 4] == 0.0


def test_standardise_learns_from_the_training_rows_only():
    columns = np.array([[1.0, 5.0, 2.0], [3.0, 5.0, np.nan], [np.nan, 5.0, 4.0], [1000.0, 6.0, np.nan]])
    scaled, kept = datasets.standardise(columns, 3)
    assert kept == [0, 2]  # the second column is constant over the training rows
    np.testing.assert_allclose(scaled[:, 0], [-1.0, 1.0, 0.0, 5.0])  # NaN is the mean, the outlier is cut
    np.testing.assert_allclose(scaled[:, 1], [-1.0, 0.0, 1.0, 0.0])
    assert scaled.dtype == np.float32


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_missing_data_set_is_one_sentence(tmp_path, capsys):
    assert main(["reproduce", "fedbcd-rounds", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert str(tmp_path / "physionet2012.npz") in said.err
    assert "--data" in said.err
    assert not (tmp_path / "out").exists()


def test_a_broken_file_and_a_missing_array_are_told(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"broken\.npz cannot be read"):
        datasets.read_npz(tmp_path, "broken", ("X",))
    np.savez(tmp_path / "other.npz", X=np.zeros(2))
    with pytest.raises(DataError, match=r"other\.npz lacks the array 'y'"):
        datasets.read_npz(tmp_path, "other", ("X", "y"))


def test_an_output_folder_that_cannot_be_made_is_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fedbcd_rounds, "physionet2012", lambda *sizes: None)
    (tmp_path / "file").write_text("")
    assert main(["reproduce", "fedbcd-rounds", "--data", str(tmp_path), "--out", str(tmp_path / "file" / "out")]) == 1
    assert "pass --out" in capsys.readouterr().err


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
    return datasets.Task([p.take(np.arange(200)) for p in parties], [p.take(np.arange(200, 300)) for p in parties])


def test_a_curve_counts_one_round_per_batch_for_every_algorithm(task):
    for algorithm, Q, _ in ROWS:
        curve = measure(task, Setting(algorithm, Q, 0.03, 0, 2), 2)
        assert curve.rounds == [0, 2, 4, 6, 8]  # 200 rows in batches of 64: 4 rounds per epoch
        assert curve.auc[0] == 0.5
        assert curve.loss[0] == pytest.approx(math.log(2))


def test_fedbcd_p_with_one_local_step_is_fedsgd(task):
    assert measure(task, Setting("FedSGD", 1, 0.1, 5, 2), 1) == measure(task, Setting("FedBCD-p", 1, 0.1, 5, 2), 1)


def test_the_central_fit_equals_scikit_learn(task):
    linear_model = pytest.importorskip("sklearn.linear_model")
    X, Z = (np.hstack([party.X for party in part]) for part in (task.train, task.test))
    y = task.train[0].y
    model = linear_model.LogisticRegression(C=1 / (len(y) * 0.05), tol=1e-10, max_iter=5000).fit(X, y)
    margin = np.where(y == 1, 1, -1) * model.decision_function(X)
    objective, auc = datasets.central(task, 0.05)
    assert objective == pytest.approx(np.logaddexp(0, -margin).mean() + 0.025 * np.sum(model.coef_**2), abs=1e-7)
    assert auc == pytest.approx(datasets.auc(task.test[0].y, model.decision_function(Z)), abs=1e-3)


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


# -- the short form ---------------------------------------------------------------------------------------------------


@needs_data
def test_fedbcd_rounds_in_short_form(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["reproduce", "fedbcd-rounds", "--data", str(DATA), "--out", str(out), "--quick", "--seed", "4"]) == 0
    said = capsys.readouterr().out
    assert "Seeds 4." in said
    for text in (said, (out / "fedbcd-rounds.txt").read_text()):
        assert "FedBCD-s" in text
        assert "FedPBCD-p" in text

    tables = {}
    for name in ("one-eta0", "tuned", "large-q"):
        with (out / f"fedbcd-rounds-{name}.csv").open(newline="") as file:
            tables[name] = list(csv.DictReader(file))
    for name in ("one-eta0", "tuned"):
        assert [(row["algorithm"], int(row["Q"])) for row in tables[name]] == [(a, Q) for a, Q, _ in ROWS]
    rounds = {(row["algorithm"], row["Q"]): row["here"] for row in tables["one-eta0"]}
    assert rounds["FedSGD", "1"] == rounds["FedBCD-p", "1"]
    for order in ("p", "s"):
        assert int(rounds[f"FedBCD-{order}", "5"]) < int(rounds["FedSGD", "1"])

    plain, proximal, small = tables["large-q"]
    assert float(plain["last loss"]) > math.log(2) > float(proximal["last loss"])
    assert float(proximal["last AUC"]) > float(plain["last AUC"])
    assert float(small["last loss"]) < math.log(2)
    if (out / "fedbcd-rounds.png").exists():  # matplotlib is optional
        assert (out / "fedbcd-rounds.png").read_bytes().startswith(b"\x89PNG")


@needs_data
def test_physionet2012_is_cut_by_variable():
    task = datasets.physionet2012(DATA, 400, 100)
    holder, partner = task.train
    assert (holder.rows, partner.rows, task.test[0].rows) == (400, 400, 100)
    assert holder.active
    assert not partner.active
    variables = [{name.split()[0] for name in party.columns if name.endswith(" h")} for party in task.train]
    assert not variables[0] & variables[1]
    assert len(variables[0] | variables[1]) == datasets.VARIABLES
    assert {"Age", "ICUType 1"} <= set(holder.columns)
    assert len(holder.columns) == holder.features
