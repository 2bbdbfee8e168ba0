"""How rarely a sealed run fails: bounds by public sizes hold in a run, and ADR 28 has these very figures."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import colonnade as cn
from colonnade.algorithms.sealed_newton import SealedNewton
from colonnade.sealed import wide
from colonnade.sealed.members import Members
from sealed_failures import ROWS, bits, bounds, in_a_run, ridge_bounds

ADR = Path(__file__).parents[1] / "docs" / "adr" / "0028-sealed-training.md"
# Columns of each party, the intercept among them.
TABLES = {"breast cancer": (569, (16, 15)), "credit": (24_000, (12, 12))}
RIDGES = {"casp": (36_584, (5, 5)), "a million": (1_000_000, (26, 25))}


def total(found):
    return bits(sum(found.values()))


def trained(kind, X, y, cut, l2=1e-3):
    bank, shop = cn.Party("bank", X[:, :cut], y), cn.Party("shop", X[:, cut:])
    return lambda: kind(l2=l2, algorithm=SealedNewton(), verbose=0).fit(bank, shop)


def drawn(rows, columns):
    rng = np.random.default_rng(rows)
    X = rng.standard_normal((rows, columns)) + rng.standard_normal((rows, 1))
    z = X @ rng.standard_normal(columns)
    return X, z + rng.logistic(size=rows)


@pytest.mark.parametrize(("rows", "columns"), [(569, 12), (6000, 4), pytest.param(20_000, 6, marks=pytest.mark.long)])
def test_bounds_by_sizes_alone_hold_in_a_run(rows, columns):
    X, z = drawn(rows, columns)
    half = columns // 2
    found = in_a_run(trained(cn.LogisticRegression, X, (z > 0).astype(int), half))
    limit = bounds(rows, (half + 1, columns - half))
    for row in ROWS:
        assert found[row] <= limit[row], row
    # And they are no empty words: the largest are within a few bits of what there is.
    assert found["cutting row products"] > 2.0**-5 * limit["cutting row products"]
    assert found["lifting curvatures"] > 2.0**-7 * limit["lifting curvatures"]


def test_bounds_of_a_ridge_hold_in_a_run():
    X, z = drawn(3000, 8)
    found = in_a_run(trained(cn.RidgeRegression, X, z, 4))
    limit = ridge_bounds(3000, (5, 4))
    for row in ROWS:
        assert found[row] <= limit[row], row
    assert found["dividing sums by N"] > 2.0**-6 * limit["dividing sums by N"]


def test_breast_cancer_fails_less_than_once_in_a_million_runs():
    datasets = pytest.importorskip("sklearn.datasets")
    X, y = datasets.load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    assert total(in_a_run(trained(cn.LogisticRegression, X, y, 15, 1e-4))) < -20


WEIGHTED = {
    "smooth_hinge": False,
    "poisson": True,
    "softmax": False,
    "square": True,
}  # with and without, of four losses


@pytest.mark.parametrize(
    ("loss", "weighted"),
    [
        pytest.param(loss, weighted, marks=[] if WEIGHTED[loss] is weighted else pytest.mark.long)
        for loss in WEIGHTED
        for weighted in (False, True)
    ],
)
def test_other_losses_fail_as_rarely(loss, weighted):
    X, z = drawn(600, 6)
    y = {
        "smooth_hinge": lambda: (z > 0).astype(int),
        "poisson": lambda: np.random.default_rng(0).poisson(np.exp(0.2 * z + 1.0)),
        "softmax": lambda: np.digitize(z, [-1.0, 1.0]),
        "square": lambda: z,
    }[loss]()
    kinds = (cn.LinearSVC, cn.PoissonRegression, cn.SoftmaxRegression, cn.RidgeRegression)
    kind = next(one for one in kinds if one().loss == loss)
    weights = np.linspace(0.1, 3.0, 600) if weighted else None
    bank, shop = cn.Party("bank", X[:, :3], y, sample_weight=weights), cn.Party("shop", X[:, 3:])
    found = in_a_run(lambda: kind(l2=1e-3, algorithm=SealedNewton(), verbose=0).fit(bank, shop))
    assert total(found) < -18, {row: bits(value) for row, value in found.items()}


@pytest.mark.parametrize("rows", [100, 5000, 36_584, 1_000_000])
@pytest.mark.parametrize("sizes", [(5, 5), (30, 30, 30), (401, 400)])
def test_a_ridge_never_fails_to_speak_of(rows, sizes):
    assert total(ridge_bounds(rows, sizes)) < -20


def test_dividing_by_a_power_of_two_only_cuts():
    """It is a shift: products with a fraction would need room above the number."""
    holder = SimpleNamespace(channel=SimpleNamespace(is_first=True))
    share = wide.from_integers(np.array([5 << 40, -(3 << 40)]))
    one = Members.rescaled(holder, share, 2.0**-10, 40, 36)
    np.testing.assert_array_equal(one, wide.truncated(share, 14, first=True))
    longer = Members.rescaled(holder, share, 2.0**-1, 10, 20)
    np.testing.assert_array_equal(longer, wide.times(share, 2**9))
    third = wide.to_floats(Members.rescaled(holder, share[:1], 1 / 3, 40, 20), 20)
    np.testing.assert_allclose(third, [5 / 3], atol=1e-5)


# -- the page ----------------------------------------------------------------------------------------------------------


def rows_of_the_page():
    """The table of failures: what it is called, and its figures."""
    text = ADR.read_text(encoding="utf-8").split("## Failures")[1].split("\n## ")[0]
    for line in text.splitlines():
        cells = [cell.strip(" *") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 6 and re.search(r"2\^-", cells[-1] + cells[2]):
            yield cells[0], [re.findall(r"2\^-([\d.]+)", cell) for cell in cells[2:]]


def test_the_page_has_these_figures():
    found = [bounds(*TABLES["breast cancer"]), bounds(*TABLES["credit"])]
    found += [ridge_bounds(*RIDGES["casp"]), ridge_bounds(*RIDGES["a million"])]
    page = dict(rows_of_the_page())
    assert set(page) == {*ROWS, "total"}
    for row, cells in page.items():
        for values, cell in zip(found, cells, strict=True):
            exact = total(values) if row == "total" else bits(values[row])
            assert cell == ([f"{-exact:.1f}"] if exact > -100 else []), (row, exact)
