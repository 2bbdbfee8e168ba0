"""Categories: a reference level, joint tests, spellings that are nearly alike, and values that training never saw."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import colonnade as cn
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError
from colonnade.inference.category_tests import category_tests
from colonnade.service.new_values import new_values
from colonnade.settings.settings import check
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.near_levels import distance, near_levels, near_pairs
from colonnade.tables.preparation import SECTION, fit
from colonnade.tables.table import Table

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
ROWS = 3000


def texts(values):
    categories, codes = np.unique(np.array(values, dtype=object), return_inverse=True)
    return Texts(codes.astype(np.int32), categories)


def learned(values, steps=None, **how):
    table = Table("a.csv", {"city": texts(values) if isinstance(values[0], str) else Numbers(np.array(values, float))})
    found = fit(table, check({} if steps is None else {"city": steps}, SECTION), **how)
    again = LearnedPreparation.from_arrays(found.to_arrays())
    assert again == found
    X = again.apply(table)
    return again, X.toarray() if hasattr(X, "toarray") else X


CITIES = ["Bonn", "Berlin", "Berlin", "Köln", "Bonn", "Berlin"]


@pytest.mark.parametrize(
    ("options", "left_out"),
    [({}, None), ({"reference": False}, None), ({"reference": True}, "Berlin"), ({"reference": "Köln"}, "Köln")],
)
def test_the_reference_has_no_column(options, left_out):
    found, X = learned(CITIES, [{"one-hot": options}])
    names = [city for city in ("Berlin", "Bonn", "Köln") if city != left_out]
    assert found.names == tuple(f"city={name}" for name in names)
    assert X.tolist() == [[float(city == name) for name in names] for city in CITIES]
    assert found.levels == {"city": (tuple(range(len(names))), left_out)}


def test_where_coefficients_are_read_the_most_frequent_level_is_the_reference_unless_somebody_says_otherwise():
    assert learned(CITIES, reference=True)[0].names == ("city=Bonn", "city=Köln")
    assert learned(CITIES, [{"one-hot": {"reference": "Bonn"}}], reference=True)[0].names == (
        "city=Berlin",
        "city=Köln",
    )
    assert len(learned(CITIES, [{"one-hot": {"reference": False}}], reference=True)[0].names) == 3
    assert learned([3.0, 5.0, 5.0], [{"one-hot": {"reference": 3}}])[0].names == ("city=5",)
    with_rare = [{"one-hot": {"least": 2, "reference": True}}]
    assert learned(CITIES, with_rare)[0].names == ("city=Bonn", "city=(other)")
    with pytest.raises(DataError, match="has the reference 'Koeln', which is none of its 3 categories"):
        learned(CITIES, [{"one-hot": {"reference": "Koeln"}}])


# -- what coefficients say ---------------------------------------------------------------------------------------------


def textbook(X, y):
    """Logistic regression by Newton's method: coefficients and their covariance, as every textbook has them."""
    beta = np.zeros(X.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-X @ beta))
        information = X.T @ (X * (p * (1 - p))[:, None])
        beta = beta + np.linalg.solve(information, X.T @ (y - p))
    return beta, np.linalg.inv(information)


@pytest.fixture(scope="module")
def contracts():
    rng = np.random.default_rng(3)
    kind = rng.choice(["permanent", "temporary", "self-employed"], ROWS, p=[0.7, 0.2, 0.1])
    age, spend = rng.normal(0, 1, ROWS), rng.normal(0, 1, ROWS)
    z = 0.4 * age - 0.9 * (kind == "temporary") + 0.3 * spend
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-z))).astype(int)
    return pd.DataFrame({"age": age, "kind": kind}), pd.DataFrame({"spend": spend}), y


def model_of(contracts, **one_hot):
    bank, shop, y = contracts
    steps = {"age": ["as-is"], "kind": [{"one-hot": one_hot}]}
    parties = cn.Party("bank", bank, y, prepare=steps), cn.Party("shop", shop)
    model = cn.LogisticRegression(l2=1e-4, verbose=0).fit(*parties)
    return model.statistics(*parties)


def test_p_values_beside_a_reference_are_the_textbooks(contracts):
    bank, shop, y = contracts
    levels = [(bank.kind == kind).to_numpy(float) for kind in ("self-employed", "temporary")]
    X = np.column_stack([bank.age, *levels, shop.spend, np.ones(ROWS)])
    beta, covariance = textbook(X, y)
    found = model_of(contracts)
    frame = found.frame()
    assert list(frame.loc["bank"].index) == ["age", "kind=self-employed", "kind=temporary"]
    errors = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(frame.loc["bank", "standard_error"], errors[:3], rtol=5e-3)
    np.testing.assert_allclose(frame.loc["bank", "coefficient"], beta[:3], atol=4e-3)
    expected = 2 * stats.norm.sf(abs(beta[2] / errors[2]))
    assert expected < 1e-15
    assert found.coefficients["bank"]["kind=temporary"].p == pytest.approx(expected, rel=0.5)
    # A column for each level: only the penalty tells them apart from the intercept, and nothing is sure any more.
    assert model_of(contracts, reference=False).coefficients["bank"]["kind=temporary"].p > 1e-3


def test_a_joint_test_is_the_textbooks_and_the_same_with_and_without_a_reference(contracts):
    bank, shop, y = contracts
    levels = [(bank.kind == kind).to_numpy(float) for kind in ("self-employed", "temporary")]
    beta, covariance = textbook(np.column_stack([bank.age, *levels, shop.spend, np.ones(ROWS)]), y)
    wald = beta[1:3] @ np.linalg.inv(covariance[1:3, 1:3]) @ beta[1:3]
    with_one, named, without = (
        model_of(contracts, **how).categories["bank"][0]
        for how in ({"reference": True}, {"reference": "temporary"}, {"reference": False})
    )
    assert (with_one.name, with_one.reference, with_one.df) == ("kind", "permanent", 2)
    assert (without.reference, without.df) == (None, 2)
    for test in (with_one, named, without):
        assert test.wald == pytest.approx(wald, rel=5e-3)
        assert np.log(test.p) == pytest.approx(np.log(stats.chi2.sf(wald, 2)), rel=5e-3)
    assert "kind: all levels" in str(model_of(contracts))


def test_a_joint_test_leaves_out_what_the_data_do_not_determine():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, 4))
    V, b = A @ A.T, rng.normal(size=4)
    (found,) = category_tests({"c": ((1, 2), "r")}, b, V, None)
    by_hand = b[1:3] @ np.linalg.inv(V[1:3, 1:3]) @ b[1:3]
    assert found.wald == pytest.approx(by_hand)
    assert found.p == pytest.approx(stats.chi2.sf(by_hand, 2))
    (student,) = category_tests({"c": ((1, 2), "r")}, b, V, 50)
    assert student.p == pytest.approx(stats.f.sf(by_hand / 2, 2, 50))
    V[2, :] = V[:, 2] = np.nan
    (found,) = category_tests({"c": ((1, 2), "r")}, b, V, None)
    assert found.df == 1
    assert found.wald == pytest.approx(b[1] ** 2 / V[1, 1])
    (nothing,) = category_tests({"c": ((2,), None)}, b, V, None)
    assert nothing.df == 0
    assert np.isnan(nothing.p)


# -- spellings, and values that are new --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("often", "pairs"),
    [
        ({"permanent": 900, "permanant": 9, "temporary": 200}, [("permanant", "permanent")]),
        ({"permanent": 900, "PERMANENT": 700}, [("PERMANENT", "permanent")]),
        ({"permanent": 900, "permanent ": 3}, [("permanent ", "permanent")]),
        ({"Berlin": 90, "Belrin": 2}, []),  # two letters of a short word
        ({"Hamburg": 90, "Hambrug": 2, "Hamburgg": 1}, [("Hamburgg", "Hamburg")]),
        ({"north": 50, "south": 3}, []),
        ({"employed": 900, "unemployed": 50}, []),
        ({"Berlin": 90, "Merlin": 80}, []),  # both frequent
        ({"A12345": 90, "A12346": 2}, []),  # codes
        ({"no": 90, "na": 2, "No": 1}, [("No", "no")]),
    ],
)
def test_spellings_that_are_nearly_alike(often, pairs):
    assert near_pairs(often) == pairs


def test_a_sentence_about_spellings():
    column = texts(["permanent"] * 50 + ["permanant"] * 3 + ["temporary"] * 9)
    table = Table("a.csv", {"kind": column, "age": Numbers(np.zeros(62))})
    assert near_levels(table) == ["column 'kind' may spell the same in two ways: 'permanant' (3) and 'permanent' (50)"]


def slow_distance(one, other):
    if not one or not other:
        return len(one) + len(other)
    rest = slow_distance(one[1:], other[1:]) + (one[0] != other[0])
    return min(rest, slow_distance(one[1:], other) + 1, slow_distance(one, other[1:]) + 1)


def test_the_distance_of_words():
    rng = np.random.default_rng(1)
    for _ in range(60):
        one, other = ("".join(rng.choice(list("abc"), rng.integers(0, 6))) for _ in range(2))
        assert distance(one, other, 2) == min(slow_distance(one, other), 3)


def test_values_that_training_never_saw_are_counted():
    found, _ = learned(["a", "a", "a", "b", "c"], [{"one-hot": {"least": 2}}])
    new = Table("new.csv", {"city": texts(["a", "c", "x", "y", "x"])})
    assert found.unseen(new) == {"city": (3, ["x", "y"])}  # c was an other in training
    numbers, _ = learned([1.0, 2.0, 2.0], ["one-hot"])
    assert numbers.unseen(Table("new.csv", {"city": Numbers(np.array([3.0, 2.0, np.nan]))})) == {"city": (1, ["3.0"])}
    codes, _ = learned(["a", "b"], trees=True)
    assert codes.unseen(new) == {"city": (4, ["x", "c", "y"])}
    assert found.unseen(Table("new.csv", {"other": texts(["a"])})) == {}


@pytest.mark.parametrize(
    ("options", "become"),
    [
        ({"reference": "a"}, "'a', the reference"),
        ({"reference": False}, "none of its categories"),
        ({"least": 2}, "others"),
    ],
)
def test_a_sentence_about_new_values_says_what_becomes_of_them(options, become):
    found, _ = learned(["a", "a", "b", "b", "c"], [{"one-hot": options}])
    new = Table("new.csv", {"city": texts(["a", "x", "y", "z", "v", "x"])})
    (sentence,) = new_values(found, new)
    assert sentence == (
        f"city: 5 of 6 people have 4 values that training never saw ('x', 'v', 'y', ...) and are taken for {become}"
    )
    assert new_values(found, Table("a.csv", {"city": texts(["a", "c"])})) == []
