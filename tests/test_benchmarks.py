"""The benchmarks: how they measure, and that every measure works. What is measured decides nothing here."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

ROOT = Path(__file__).parent.parent


def script(name):
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", ROOT / "benchmarks" / f"{name}.py")
    # By its name in sys.modules, where dataclasses look for the words of their annotations.
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def training():
    return script("training")


def test_one_measure_takes_the_place_of_its_earlier_self():
    module = script("run")
    kept = "# Benchmarks\n\nwords\n\n## one\nfirst\n\n| a |\n\n## two\nsecond\n"
    assert module.with_section(kept, "## one\nanew\n") == "# Benchmarks\n\nwords\n\n## one\nanew\n\n## two\nsecond\n"
    assert module.with_section(kept, "## three\nthird\n").endswith("## two\nsecond\n\n## three\nthird\n")


def test_every_measure_works_and_quick_results_are_not_kept():
    kept = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    command = [sys.executable, "benchmarks/run.py", "--quick"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False
    )  # a hang, not a measure
    assert done.returncode == 0, done.stderr
    for part in ("hops/s", "rounds/s", "ns", "ratio"):
        assert part in done.stdout
    assert (ROOT / "benchmarks" / "RESULTS.md").read_text() == kept


def test_curves_of_scale_have_exponents_and_a_cost_model():
    module = script("scale_curves")
    rows = module.scale_curves(quick=True)
    assert [line[0] for line in rows if "exponents" in line[0]] == [
        "newton: exponents in rows",
        "alignment: exponents in rows",
    ]
    points = [
        module.Point(n, d, 2, 1e-9 * n * (3.0 + 2.0 * d), 8 * n, 8.0 * n, 80 * n) for n in (10, 100) for d in (1, 9)
    ]
    assert module.exponent([10, 100], [30, 300]) == pytest.approx(1.0)
    assert module.model(points, 1) == "3 + 1.00 d + 0.000 d² ns per row and round, of all 2 parties"
    assert module.fixed_and_each([10.0, 100.0], points[::2]).endswith(
        "CPU 0.00 s + 0.005 µs, bytes 0.0 MB + 8, memory 0.0 MB + 80 a row"
    )
    assert "bytes 1.00" in module.curves("newton", points[::2], "rows", 1)[-1][1]
    nothing = [module.Point(n, 1, 2, 0.0, 8 * n, 8.0 * n, 0) for n in (10, 100)]
    assert "memory 0.0 MB + 0 a row" in module.fixed_and_each([10.0, 100.0], nothing)


def test_a_walk_takes_each_function_once_and_no_import():
    walk = script("walk").of_fit()
    assert walk.files[0].startswith("estimators/")
    assert {"data/party.py", "runtimes/simulation.py"} <= set(walk.files)
    assert not walk.elsewhere  # one thread
    assert len(set(walk.files)) - 1 <= walk.changes < len(walk.files)
    walk.files = ["a", "a", "b", "a"]
    assert walk.changes == 2


def test_the_house_is_measured_whole():
    figures, homes, rooms = script("house").measure()
    assert figures["files"] == len(list((ROOT / "src").rglob("*.py")))
    assert figures["largest room"] == max(rooms.values())
    assert homes["Party"] == ["data/party.py"]


@pytest.mark.parametrize(("needed", "most"), [(1, 100), (10, 100), (11, 100), (20, 20), (602, 2000), (39, 39), (3, 5)])
def test_the_fewest_epochs_are_found(training, needed, most):
    assert training.fewest_epochs(lambda epochs: (epochs / 10, 1.0 / epochs), 1.0 / needed, most) == (
        needed / 10,
        needed,
    )


@pytest.mark.parametrize("gap", [1.0, math.nan])
def test_epochs_that_are_too_few_are_infinite_seconds(training, gap):
    tried = []
    assert training.fewest_epochs(lambda epochs: (tried.append(epochs), gap), 0.5, 35) == (math.inf, 35)
    assert tried == [10, 20, 35]


def test_scikit_learn_is_given_no_epoch_too_many(training):
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = (X @ rng.normal(size=4) + rng.normal(size=300) > 0).astype(int)
    lowest = training.minimise(X, y, "logistic", l2=training.STRENGTH, intercept=True).value
    _, epochs = training.sklearn_saga(X, y, lowest, 1e-5, 500)
    assert training.sklearn_saga(X, y, lowest, 1e-5, 500)[1] == epochs  # to the epoch, every time
    assert training.sklearn_saga(X, y, lowest, 1e-5, epochs)[0] < math.inf
    assert training.sklearn_saga(X, y, lowest, 1e-5, epochs - 1)[0] == math.inf


def test_scattered_columns_are_more_with_the_same_numbers(training):
    X = sp.random(400, 30, density=0.5, format="csr", random_state=0)
    wider = training.scattered(X, 10)
    assert wider.shape == (400, 300)
    assert wider.has_sorted_indices
    assert np.array_equal(wider.data, X.data)
    assert np.array_equal(wider.indices // 10, X.indices)
    assert len(np.unique(wider.indices)) == 300  # 6,000 numbers: every one of them occurs


def test_seconds_to_the_optimum_are_those_of_the_reproductions(training):
    history = [
        {"rounds": 0, "metric": 0.5, "loss": 2.0 + gap, "time": at, "epoch": at} for at, gap in ((3, 1), (5, 1e-2))
    ]
    assert training.seconds_to(history, 2.0, 0.1) == pytest.approx(4.0)
    assert training.seconds_to(history, 2.0, 1e-3) == math.inf
