"""Scorecards: points equal those of optbinning's scorecard, add up across parties, and say what rounding does."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import colonnade as cn
from colonnade.binning.points import PartyCard, PointScale
from colonnade.errors import OptionError
from colonnade.tables.woe import Woe
from test_binning import known_elsewhere, parties, people

CARD = {"base": 600.0, "odds": 50.0, "pdo": 20.0}
# optbinning 1.0.0 with scikit-learn's logistic regression (C = 1e6) on the same two columns and edges.
COEFFICIENTS, INTERCEPT = (-1.0053078141271625, -1.016428684433367), -0.6780924036506119
POINTS = {
    "x": [280.357165, 264.480851, 244.976650, 237.774051, 220.481561, 264.647025],  # the last one is missing
    "c": [253.502421, 254.529372, 242.289872, 264.870972],
}
FIRST = [
    499.50602196812605, 487.2665221405842, 506.7707227682408, 517.9832722912445, 519.0102225957826, 519.0102225957826,
    498.4790716635879, 475.0109325804628,
]  # fmt: skip
SUM = 610214.906609845


def steps():
    x, c, y = known_elsewhere()
    bin_of = np.where(np.isnan(x), 5, np.searchsorted([35.0, 48.5, 60.0, 70.0], x, side="right"))
    counts = [tuple(np.bincount(bin_of, each).astype(int).tolist()) for each in (1 - y, y)]
    level = [tuple(np.bincount(c.astype(int), each).astype(int).tolist()) for each in (1 - y, y)]
    return Woe((35.0, 48.5, 60.0, 70.0), (), (), *counts, 5), Woe((), (0.0, 1.0, 2.0, 3.0), (0, 1, 2, 3), *level)


def test_points_are_those_of_optbinning():
    """It gives each of the two columns half of what everybody has; sums are the same."""
    x, c, _ = known_elsewhere()
    of_x, of_c = steps()
    scaling = PointScale(**CARD)
    bank = PartyCard(scaling, {"x": COEFFICIENTS[0]}, {"x": of_x}, INTERCEPT)
    shop = PartyCard(scaling, {"c": COEFFICIENTS[1]}, {"c": of_c})
    for card, name in ((bank, "x"), (shop, "c")):
        own = [one.points for one in card.rows() if one.column == name]
        assert [one + bank.start / 2 for one in own] == pytest.approx(POINTS[name], abs=1e-6)
    total = bank.start + bank.points({"x": of_x.bins_of_numbers(x)})[:, 0]
    total += shop.points({"c": of_c.bins_of_numbers(c)})[:, 0]
    assert total[:8] == pytest.approx(FIRST, rel=1e-12)
    assert total.sum() == pytest.approx(SUM, rel=1e-12)


@pytest.mark.parametrize("protection", ["auto", "sealed"])
def test_points_add_up_at_the_label_holder(protection):
    X, y = people(1200)
    given = parties(X, y)[:2]
    bins = cn.Binning().fit(*given)
    how = {"protection": protection, "verbose": 0}
    model = cn.LogisticRegression(l2=1e-3, **how).fit(*bins.prepare(*given))
    card = model.scorecard(**CARD)
    exact = PointScale(**CARD).of_score(model.decision_function(*given))
    assert card.points(*given) == pytest.approx(exact, rel=1e-9)
    assert card.rounding_error == 0.0
    assert card.tables["bank"].rows()[0].column == "(everybody)"
    assert {one.column for one in card.tables["shop"].rows()} == {"x0", "x1"}
    # 20 points more double the odds of being good, and 600 points are odds of 50 to 1.
    chance = model.predict_proba(*given)[:, 1]
    odds = (1 - chance) / chance
    assert odds == pytest.approx(50.0 * 2.0 ** ((exact - 600.0) / 20.0), rel=1e-9)
    whole = model.scorecard(**CARD, rounded=True)
    found = whole.points(*given)
    assert found == pytest.approx(np.rint(found), abs=1e-6)
    assert np.abs(found - exact).max() <= whole.rounding_error + 1e-6
    assert 0 < whole.rounding_error <= 0.5 * 5  # four columns, and what everybody has
    shown = [line.split()[-1] for line in str(whole.tables["shop"]).splitlines()[1:]]
    assert all(re.fullmatch(r"-?\d+", points) for points in shown)  # whole points are written as such


def test_rounding_is_stated_by_its_worst_case():
    step = Woe((1.0,), (), (), (30, 20), (10, 40))
    card = PartyCard(PointScale(**CARD, rounded=True), {"a": -1.0}, {"a": step}, 0.3)
    factor = 20.0 / math.log(2.0)
    exact = [factor * weight for weight in step.weights]
    start = 600.0 - factor * math.log(50.0) - factor * 0.3
    expected = max(abs(one - round(one)) for one in exact) + abs(start - round(start))
    assert card.rounding_error == pytest.approx(expected, rel=1e-12)


def test_a_model_that_is_loaded_has_its_bins(tmp_path):
    X, y = people(600)
    given = parties(X, y)[:2]
    bins = cn.Binning().fit(*given)
    model = cn.LogisticRegression(verbose=0).fit(*bins.prepare(*given))
    weighed = cn.LogisticRegression(verbose=0).fit(*bins.transform(*given))
    assert model.decision_function(*given).tolist() == weighed.decision_function(*bins.transform(*given)).tolist()
    model.save(tmp_path)
    again = cn.load(tmp_path)
    assert again.decision_function(*given).tolist() == model.decision_function(*given).tolist()
    assert again.scorecard().points(*given).tolist() == model.scorecard().points(*given).tolist()


def test_cards_that_cannot_be_are_refused():
    X, y = people(600)
    given = parties(X, y)[:2]
    bins = cn.Binning().fit(*given)
    model = cn.LogisticRegression(verbose=0).fit(*bins.prepare(*given))
    wrong = (({"pdo": 0.0}, "pdo must be > 0"), ({"odds": -1.0}, "odds must be > 0"), ({"base": math.inf}, "base"))
    for options, words in wrong:
        with pytest.raises(OptionError, match=words):
            model.scorecard(**options)
    with pytest.raises(OptionError, match="a scorecard needs bins of all columns"):
        cn.LogisticRegression(verbose=0).fit(*bins.transform(*given)).scorecard()
