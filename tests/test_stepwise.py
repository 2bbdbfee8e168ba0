"""Stepwise selection drops the columns that a slow backward elimination on the joined table drops."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import colonnade as cn
from colonnade.errors import DataError, OptionError
from test_binning import people

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")


def p_values(X, y, l2):
    """Of a logistic regression, by Newton's method on the joined table with its intercept first."""
    A, w = np.column_stack([np.ones(len(X)), X]), np.zeros(X.shape[1] + 1)
    ridge = len(X) * l2 * np.diag([0.0, *np.ones(X.shape[1])])
    for _ in range(30):
        p = 1 / (1 + np.exp(-A @ w))
        H = A.T @ (A * (p * (1 - p))[:, None]) + ridge
        w -= np.linalg.solve(H, A.T @ (p - y) + ridge @ w)
    return 2 * stats.norm.sf(np.abs(w / np.sqrt(np.diag(np.linalg.inv(H)))))[1:]


def slow_backward(X, y, l2, owners, leave):
    kept, dropped = list(range(X.shape[1])), []
    while True:
        p = p_values(X[:, kept], y, l2)
        able = [k for k, at in enumerate(kept) if [owners[one] for one in kept].count(owners[at]) > 1 and p[k] > leave]
        if not able:
            return dropped
        worst = max(able, key=lambda k: p[k])
        dropped.append(kept.pop(worst))


def test_columns_leave_as_on_the_joined_table():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((600, 6))
    y = (X[:, 0] - 0.7 * X[:, 3] + rng.logistic(size=600) > 0).astype(int)
    bank, shop = cn.Party("bank", X[:, :3], y), cn.Party("shop", X[:, 3:])
    found = cn.stepwise(cn.LogisticRegression(l2=1e-6, verbose=0), bank, shop, leave=0.05)
    names = {("bank", f"x{j}"): j for j in range(3)} | {("shop", f"x{j}"): 3 + j for j in range(3)}
    dropped = [names[one.party, one.column] for one in found.left]
    assert dropped == slow_backward(X, y, 1e-6, ["bank"] * 3 + ["shop"] * 3, 0.05)
    assert len(dropped) >= 3
    assert all(one.p > 0.05 for one in found.left)
    assert found.model.columns_["bank"][0] == "x0"
    assert len(cn.stepwise(cn.LogisticRegression(l2=1e-6, verbose=0), bank, shop, most=1).left) == 1


def test_bins_leave_too_and_the_model_keeps_the_others():
    X, y = people(900)
    noise = np.random.default_rng(1).standard_normal((900, 1))
    bank, shop = cn.Party("bank", X[:, :2], y), cn.Party("shop", np.hstack([X[:, 2:4], noise]))
    bins = cn.Binning(method="quantile", bins=4).fit(bank, shop)
    found = cn.stepwise(cn.LogisticRegression(verbose=0), *bins.prepare(bank, shop), leave=1e-4)
    assert found.left
    assert {one.party for one in found.left} <= {"bank", "shop"}
    stay = set(found.model.columns_["shop"])
    assert stay == set(bins.selected_["shop"]) - {one.column for one in found.left if one.party == "shop"}
    assert len(found.model.decision_function(bank, shop)) == 900
    assert found.model.scorecard().points(bank, shop).shape == (900,)


def test_what_is_refused():
    X, y = people(200)
    bank, shop = cn.Party("bank", X[:, [0]], y), cn.Party("shop", X[:, 3:])
    with pytest.raises(OptionError, match="leave must be a p value"):
        cn.stepwise(cn.LogisticRegression(), bank, shop, leave=1.0)
    with pytest.raises(DataError, match="still to be prepared"):
        cn.stepwise(cn.LogisticRegression(), bank, cn.Party("shop", X[:, 3:], prepare={}))
