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
from reproductions.dsg import DSG
from reproductions.fd_svrg import fd_svrg, scores
from reproductions.fdskl_errors import cuts_of
from reproductions.fdskl_scaling import growth
from reproductions.fdskl_topologies import BANDS, GATEWAY, LATENCY, ONE, SCORES, Job, Size
from reproductions.imitations import imitate
from reproductions.kernel_methods import METHODS, Setting, Task, kernel_sets, measure, part_of, possible
from reproductions.pp_svmv import distances, pp_svmv
from reproductions.stop_watch import Watch, processors

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


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_distances_are_those_of_single_pairs(kind):
    found = distances(kind(X[:7]), kind(X[5:9]))
    slow = [[sum((a - b) ** 2 for a, b in zip(x, z, strict=True)) for z in X[5:9]] for x in X[:7]]
    np.testing.assert_allclose(found, slow, atol=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_dsg_is_the_papers_algorithm_in_slow_loops(kind):
    """Dai et al., Algorithms 1 and 2: one number after the other, each feature drawn again when it is needed."""
    y, step, weight, block, batch = np.where(Y == "in", 1.0, -1.0)[:60], 0.8, 0.05, 3, 25
    model = DSG(gamma=0.3, weight=weight, features=14, block=block, batch=batch, step=step, seed=5).fit(kind(X[:60]), y)

    def phi(i, x):
        rng, width = np.random.default_rng([5, i - i % block]), min(block, 14 - (i - i % block))
        omega = np.sqrt(2 * 0.3) * rng.standard_normal((8, width))
        b = rng.uniform(0, 2 * np.pi, width)
        return np.float32(np.sqrt(2) * np.cos(sum(x[j] * omega[j, i % block] for j in range(8)) + b[i % block]))

    rng = np.random.default_rng(5)
    order = np.concatenate([rng.permutation(60) for _ in range(3)])
    alpha = []
    for t in range(5):
        rows, new = order[t * batch : (t + 1) * batch], range(len(alpha), min(len(alpha) + block, 14))
        f = [sum(a * phi(i, X[row]) for i, a in enumerate(alpha)) for row in rows]
        slope = [-y[row] / (1 + np.exp(y[row] * z)) for row, z in zip(rows, f, strict=True)]
        more = [-step * sum(s * phi(i, X[row]) for s, row in zip(slope, rows, strict=True)) for i in new]
        alpha = [(1 - step * weight) * a for a in alpha] + [a / (batch * len(new)) for a in more]
    np.testing.assert_allclose(model.alpha, alpha, atol=1e-7)  # features are in single precision
    f = [sum(a * phi(i, x) for i, a in enumerate(alpha)) for x in X[60:70]]
    np.testing.assert_allclose(model.decision_function(kind(X[60:70])), f, atol=1e-6)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_fd_svrg_is_svrg_in_one_place(kind):
    """Zhang et al., Algorithm 1, with all columns together."""
    y, l2, step, batch = np.where(X[:, 1] + 0.2 * X[:, 5] > 0, 1.0, -1.0), 0.01, 0.5, 40
    parties = cn.split(kind(X), Y, into=3)
    found = fd_svrg(parties, y, l2=l2, step=step, epochs=3, batch=batch, seed=7)
    w = np.zeros(8)
    for epoch in range(3):
        old = w.copy()
        full = np.mean([-y[i] / (1 + np.exp(y[i] * (X[i] @ old))) * X[i] for i in range(320)], axis=0)
        order = np.random.default_rng([7, epoch]).permutation(320)
        for rows in np.array_split(order, 8):
            new = np.mean([-y[i] / (1 + np.exp(y[i] * (X[i] @ w))) * X[i] for i in rows], axis=0)
            before = np.mean([-y[i] / (1 + np.exp(y[i] * (X[i] @ old))) * X[i] for i in rows], axis=0)
            w = w - step * (new - before + full + l2 * w)
    np.testing.assert_allclose(np.concatenate(list(found.values())), w, atol=1e-8)  # sums are rounded to 2^-36
    np.testing.assert_allclose(scores(parties, found), X @ w, atol=1e-7)


def test_the_methods_learn_what_no_line_separates():
    trial = DataSet("checks", X, Y, 240, "logistic", "made here").trial(0)
    setting = Setting(Task(0.3, 2.0, 1024), epochs=60)
    found = {method: measure(method, trial, setting) for method in METHODS}
    errors = {method: one.error for method, one in found.items()}
    assert errors["FD-SVRG"] > 35  # a line
    assert errors["PP-SVMV"] == errors["SVC"]
    for method in ("FDSKL", "DSG", "as printed", "SVC"):
        assert errors[method] < 20, method
    assert 0 <= errors["SecureBoost"] <= 100  # of so few rows the noise of its sums leaves nothing
    assert all(one.seconds > 0 for one in found.values())


def test_a_watch_counts_processors_of_others_too():
    watch = Watch()
    on = cn.Processes()
    cn.LogisticRegression(verbose=0).fit(*cn.split(X, Y, into=2), on=on)
    watch.stop()
    assert watch.seconds > 0
    assert watch.cpu >= 0
    assert processors() > 0


def test_a_part_of_a_cut_keeps_three_to_one():
    whole = DataSet("checks", X, Y, 240, "logistic", "made here").trial(0)
    assert part_of(whole, None) is whole
    part = part_of(whole, 100)
    assert (len(part.y), len(part.y_test)) == (75, 25)
    assert part.X.tolist() == whole.X[:75].tolist()


@pytest.mark.parametrize(
    ("name", "scale", "columns", "positive"),
    [("cod-rna", 0.1, 8, 1 / 3), ("w8a", 1.0, 300, 0.03), ("real-sim", 0.1, 2096, 0.31), ("epsilon", 0.005, 2000, 0.5)],
)
def test_what_is_not_at_hand_is_imitated_in_the_papers_shape(name, scale, columns, positive):
    found = imitate(name, scale)
    assert found.X.shape[1] == columns
    assert np.mean(found.y > 0) == pytest.approx(positive, abs=0.03)
    assert found.origin.startswith("imitation")


def test_machines_with_all_pairs_of_rows_end_somewhere():
    assert possible("PP-SVMV", 16_000)
    assert not possible("PP-SVMV", 16_001)
    assert not possible("SVC", 16_001)
    assert possible("FDSKL", 10**9)
    assert not possible("SecureBoost", 54_000, 20_958)
    assert [cuts_of(method, 5_000, 10) for method in ("FDSKL", "PP-SVMV", "SecureBoost")] == [10, 1, 1]


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
@pytest.mark.usefixtures("unpainted")
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
