"""The kernel reproductions: what they compare with, how they measure, and a short form of each."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import SVC

import colonnade as cn
from colonnade.errors import DataError
from data_sets import DATA, needs
from reproductions import fdskl_topologies, sources
from reproductions.__main__ import main as reproduce
from reproductions.datasets import DataSet
from reproductions.fdskl_scaling import growth
from reproductions.fdskl_topologies import BANDS, GATEWAY, LATENCY, ONE, SCORES, Job, Size
from reproductions.kernel_methods import METHODS, Setting, Task, kernel_sets, measure, possible
from reproductions.pp_svmv import pp_svmv

needs_data = needs("phishing.npz")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((320, 8)) * [1, 0.3, 0.3, 1, 0.3, 0.3, 0.3, 0.3]
Y = np.where(X[:, 0] * X[:, 3] > 0, "in", "out")


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("band", [50, 1 << 22])
def test_pp_svmv_is_the_machine_with_all_columns(kind, band, monkeypatch):
    """The matrix that the holder gets is scikit-learn's kernel, whatever the bands."""
    monkeypatch.setattr("reproductions.pp_svmv._BAND", band)
    train, test = cn.split(kind(X[:250]), Y[:250], into=3), cn.split(kind(X[250:]), Y[250:], into=3)
    predicted, seconds = pp_svmv(train, test, gamma=0.3, strength=2.0)
    central = SVC(gamma=0.3, C=2.0).fit(X[:250], Y[:250])
    assert predicted.tolist() == central.predict(X[250:]).tolist()
    assert seconds > 0


def test_the_methods_learn_what_no_line_separates():
    trial = DataSet("checks", X, Y, 240, "logistic", "made here").trial(0)
    setting = Setting(Task(0.3, 2.0, 512), epochs=60)
    found = {method: measure(method, trial, setting) for method in METHODS}
    errors = {method: one.error for method, one in found.items()}
    assert errors["FD-SVRG"] > 35  # a line
    assert errors["PP-SVMV"] == errors["SVC"]
    for method in ("FDSKL", "DSG", "SVC", "trees"):
        assert errors[method] < 20, method
    assert all(one.seconds > 0 for one in found.values())


def test_machines_with_all_pairs_of_rows_end_somewhere():
    assert possible("PP-SVMV", 16_000)
    assert not possible("PP-SVMV", 16_001)
    assert not possible("SVC", 40_001)
    assert possible("FDSKL", 10**9)


def test_growth_is_the_power_of_the_last_step():
    assert growth({1000: 5.0, 2000: 1.0, 4000: 4.0}) == pytest.approx(2.0)


@pytest.mark.parametrize("topology", ["tree", "star", "ring"])
def test_what_a_sum_takes_by_hand(topology):
    """Four parties, one message of s seconds: two levels of two and one; three into the root; three hops."""
    size = Size(rows=1000)
    seconds = 8 * size.rows**2 / GATEWAY
    hops, messages = {"tree": (2, 3), "star": (1, 3), "ring": (3, 3)}[topology]
    found = fdskl_topologies.measure(Job("clock", ONE, topology, 4), size)
    # in the tree the root takes in its leaf while the other child waits for its own
    expected = 2 * seconds if topology == "tree" else messages * seconds
    assert found == pytest.approx(expected + hops * LATENCY, rel=0.02, abs=2 * LATENCY)
    bands = fdskl_topologies.measure(Job("clock", BANDS, topology, 4), size)
    assert bands < 1.05 * found
    scores = fdskl_topologies.measure(Job("clock", SCORES, topology, 4), size)
    assert scores == pytest.approx((hops + 1) * LATENCY, rel=0.15)


def test_without_scikit_learn_a_sentence_says_so(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    with pytest.raises(DataError, match="scikit-learn is not installed; pip install"):
        kernel_sets(("phishing",), tmp_path, quick=True)


@needs_data
@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("a9a", (48_842, 123), [-1, 1]),
        ("phishing", (11_055, 68), [0, 1]),
        ("ijcnn1", (49_990, 22), [-1, 1]),
        ("gisette", (7_000, 5_000), [-1, 1]),
    ],
)
def test_the_papers_sets(name, shape, classes):
    found = sources.load(name, DATA)
    assert found.X.shape == shape
    assert np.unique(found.y).tolist() == classes
    assert np.isfinite(found.X.data if sp.issparse(found.X) else found.X).all()


WRITES = {
    "fdskl-errors": ("data", "kernels", "errors", "differences", "trials"),
    "fdskl-time": ("data", "curve-phishing", "total", "runs"),
    "fdskl-scaling": ("data", "times-phishing", "runs"),
    "fdskl-topologies": ("clock-one-message", "clock-bands", "clock-scores", "processes-scores", "runs"),
}


@needs_data
@pytest.mark.parametrize("name", WRITES)
def test_a_short_form_runs_and_says_its_seed(name, tmp_path, capsys):
    out = tmp_path / "out"
    assert reproduce([name, "--data", str(DATA), "--out", str(out), "--quick", "--seed", "3"]) == 0
    said = capsys.readouterr().out
    assert "short form" in said
    assert "Seed 3" in said or "Seeds 3" in said
    tables = {}
    for table in WRITES[name]:
        with (out / f"{name}-{table}.csv").open(newline="") as file:
            tables[table] = list(csv.DictReader(file))
            assert tables[table], table
    if name == "fdskl-time":
        assert tables["total"][0]["SecureBoost, paper"] == "10"
    if name in ("fdskl-errors", "fdskl-time", "fdskl-scaling"):
        runs = tables["trials" if name == "fdskl-errors" else "runs"]
        assert all(0 <= float(row["test error, %"]) < 60 for row in runs)
