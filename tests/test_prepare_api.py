"""`prepare=` of a party: texts, categories, dates and gaps as jobs prepare them, and names in what comes back."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import colonnade as cn
from colonnade.errors import DataError, OptionError, TomlError

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
ROWS = 400
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(45, 12, ROWS),
        "city": RNG.choice(["Berlin", "Bonn", "Köln"], ROWS, p=[0.6, 0.3, 0.1]),
        "debts": np.where(RNG.random(ROWS) < 0.1, np.nan, RNG.lognormal(8, 1, ROWS)),
        "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 2000, ROWS), "D"),
    }
)
SHOP = pd.DataFrame({"spend": RNG.gamma(2, 50, ROWS), "kind": pd.Categorical(RNG.choice(["new", "old"], ROWS))})
Y = ((FRAME.age - 45) / 12 + (FRAME.city == "Bonn") + RNG.normal(0, 1, ROWS) > 0).map({True: "good", False: "bad"})


def parties(frame=FRAME, shop=SHOP, y=Y, **how):
    return cn.Party("bank", frame, y, **{"prepare": {}, **how}), cn.Party("shop", shop, prepare={})


def logistic(**options):
    return cn.LogisticRegression(l2=1e-3, verbose=0, **options)


def test_a_pipeline_of_scikit_learn_makes_the_same_model():
    train, new = np.arange(300), np.arange(300, ROWS)
    bank, shop = parties()
    model = logistic().fit(bank.take(train), shop.take(train))
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    hot = OneHotEncoder(drop=[FRAME.iloc[train].city.mode()[0], SHOP.iloc[train].kind.mode()[0]])
    joined = pd.concat([FRAME.drop(columns="joined"), SHOP], axis=1)
    joined["days"] = (FRAME.joined - pd.Timestamp("1970-01-01")).dt.days
    reference = make_pipeline(
        ColumnTransformer([("n", numbers, ["age", "debts", "spend", "days"]), ("c", hot, ["city", "kind"])]),
        LogisticRegression(C=1 / (300 * 1e-3), tol=1e-10, max_iter=1000),
    ).fit(joined.iloc[train], Y.iloc[train])
    chances = model.predict_proba(bank.take(new), shop.take(new))
    np.testing.assert_allclose(chances, reference.predict_proba(joined.iloc[new]), atol=1e-6)


def test_coefficients_have_names_where_columns_came_as_a_frame():
    model = logistic().fit(*parties())
    coefficients = model.coef_["bank"]
    assert isinstance(coefficients, pd.Series)
    assert list(coefficients.index) == ["age", "city=Bonn", "city=Köln", "debts", "joined"]
    assert model.columns_["bank"] == tuple(coefficients.index)
    plain = logistic().fit(cn.Party("a", FRAME[["age"]].to_numpy(), Y), cn.Party("b", SHOP[["spend"]].to_numpy()))
    assert type(plain.coef_["a"]) is np.ndarray
    three = np.array(["x", "y", "z"])[np.arange(ROWS) % 3]
    soft = cn.SoftmaxRegression(verbose=0).fit(*parties(y=three))
    assert soft.coef_["bank"].loc["y"].index[0] == "age"


def test_a_model_is_kept_with_its_preparation(tmp_path):
    bank, shop = parties()
    model = logistic().fit(bank, shop)
    model.save(tmp_path)
    again = cn.load(tmp_path)
    assert list(again.coef_["bank"].index) == list(model.coef_["bank"].index)
    np.testing.assert_array_equal(again.decision_function(bank, shop), model.decision_function(bank, shop))
    assert b"Bonn" not in (tmp_path / "shop.colonnade.npz").read_bytes()


def test_in_use_a_party_need_not_say_again_how_it_is_prepared():
    model = logistic().fit(*parties())
    bare = cn.Party("bank", FRAME), cn.Party("shop", SHOP)
    np.testing.assert_array_equal(model.decision_function(*bare), model.decision_function(*parties()))


@pytest.mark.parametrize("kind", [pd, pl])
def test_without_prepare_numbers_stay_and_texts_become_columns(kind):
    frame = kind.DataFrame(
        {"age": [1.0, 2.0, 3.0, 4.0], "city": ["a", "b", None, "b"], "ok": [True, False, True, True]}
    )
    bank = cn.Party("bank", frame, [0, 1, 1, 0])
    assert bank.columns == ("age", "city", "ok")
    assert bank.features == 3
    assert "to be prepared" in repr(bank)
    model = cn.LogisticRegression(l2=0.1, verbose=0).fit(bank)
    assert model.columns_["bank"] == ("age", "city=a", "city=(missing)", "ok")
    by_hand = cn.Party("bank", np.array([[1.0, 1, 0, 1], [2, 0, 0, 0], [3, 0, 1, 1], [4, 0, 0, 1]]), [0, 1, 1, 0])
    same = cn.LogisticRegression(l2=0.1, verbose=0).fit(by_hand)
    np.testing.assert_allclose(model.decision_function(bank), same.decision_function(by_hand), atol=1e-6)


def test_trees_take_texts_and_gaps():
    model = cn.BoostedTreesClassifier(trees=3, protection="plain", verbose=0)
    bank, shop = cn.Party("bank", FRAME, Y), cn.Party("shop", SHOP)
    model.fit(bank, shop)
    assert model.columns_["bank"] == ("age", "city", "debts", "joined")
    frame = FRAME.assign(city=FRAME.city.astype("category").cat.codes, joined=FRAME.joined.astype("int64") / 864e8)
    coded = cn.Party("bank", frame, Y, categories=["city"]), cn.Party("shop", SHOP, categories=["kind"])
    same = cn.BoostedTreesClassifier(trees=3, protection="plain", verbose=0).fit(*coded)
    np.testing.assert_allclose(model.decision_function(bank, shop), same.decision_function(*coded), atol=1e-9)


def test_validation_rows_are_prepared_as_the_training_rows_are():
    bank, shop = parties()
    train, held = np.arange(300), np.arange(300, ROWS)
    model = logistic().fit(bank.take(train), shop.take(train), validation=[bank.take(held), shop.take(held)])
    assert "validation_metric" in model.history_[-1]


def test_kernels_networks_and_sparse_columns_are_prepared_too(tmp_path):
    bank, shop = parties()
    kernel = cn.KernelClassifier(features=20, verbose=0, algorithm=cn.FDSKL(epochs=1)).fit(bank, shop)
    assert len(kernel.columns_["bank"]) == 6
    torch = pytest.importorskip("torch")
    networks = {"bank": torch.nn.Linear(6, 1), "shop": torch.nn.Linear(3, 1)}
    model = cn.NetworkClassifier(networks, algorithm=cn.FedSGD(epochs=1, step=0.01), verbose=0).fit(bank, shop)
    model.save(tmp_path)
    np.testing.assert_array_equal(cn.load(tmp_path).decision_function(bank, shop), model.decision_function(bank, shop))
    matrix = sp.csr_matrix(np.array([[0.0, 4.0], [2.0, 0.0], [1.0, 2.0], [0.0, 1.0]]))
    scaled = cn.RidgeRegression(verbose=0).fit(
        cn.Party("a", matrix, [1.0, 2.0, 3.0, 1.0], prepare={"default": ["scale"]})
    )
    by_hand = cn.RidgeRegression(verbose=0).fit(cn.Party("a", matrix.toarray() / [2.0, 4.0], [1.0, 2.0, 3.0, 1.0]))
    np.testing.assert_allclose(scaled.coef_["a"], by_hand.coef_["a"], atol=1e-8)


def test_steps_are_those_of_jobs():
    steps = {
        "age": [{"clip": {"quantiles": (0.05, 0.95)}}],
        "city": [{"one-hot": {"reference": "Köln"}}],
        "debts": [{"impute": {"with": "mean", "indicator": True}}, "log1p"],
        "joined": [{"date": {"parts": ["year"]}}],
    }
    bank, shop = parties(prepare=steps)
    model = logistic().fit(bank, shop)
    assert list(model.coef_["bank"].index) == [
        "age", "city=Berlin", "city=Bonn", "debts", "debts=(missing)", "joined.year",
    ]  # fmt: skip
    first = model.preparations_["bank"].columns[0].steps[0]
    np.testing.assert_allclose([first.low, first.high], np.quantile(FRAME.age, [0.05, 0.95]))


@pytest.mark.parametrize(
    ("work", "error", "sentence"),
    [
        (lambda: cn.Party("bank", FRAME, Y, prepare=["impute"]), OptionError, "prepare must be {column: list of"),
        (lambda: logistic().fit(*parties(prepare={"cty": ["one-hot"]})), DataError, "^party 'bank': .*no column 'cty'"),
        (lambda: logistic().fit(*parties(prepare={"city": ["onehot"]})), TomlError, "^party 'bank': .*did you mean"),
        (lambda: logistic().fit(*parties(prepare={"city": [{"one-hot": {"reference": "Bon"}}]})), DataError,
         "^party 'bank': .*column 'city' of X has the reference 'Bon', which is none of its 3 .*did you mean 'Bonn'"),
        (lambda: logistic().fit(*parties(prepare={"city": ["categories"]})), DataError, "only boosted trees take"),
        (lambda: parties()[0].X, DataError, "the columns of party 'bank' are prepared when a model is fitted"),
        (lambda: logistic().fit(*parties()).predict(*parties(FRAME.drop(columns="city"))), DataError,
         "^party 'bank': column 'city' of X is missing; give the same columns as in training"),
        (lambda: logistic().fit(cn.Party("bank", FRAME[["age"]], Y)).predict(cn.Party("bank", FRAME)), DataError,
         "party 'bank' brings columns that are to be prepared, and the model was trained on numbers"),
        (lambda: cn.Party("bank", FRAME.assign(x=[1, "a"] * 200)), DataError, "'x' holds 200 texts and 200 other"),
        (lambda: cn.Party("bank", FRAME.assign(x=[(1,)] * ROWS)), DataError, "'x' holds values of type tuple; give"),
        (lambda: cn.Party("bank", FRAME.rename(columns={"city": "age"})), DataError, "two columns are called 'age'"),
        (lambda: logistic().fit(cn.Party("bank", FRAME, Y)), DataError, "X has .* values that are NaN"),
    ],
)  # fmt: skip
def test_what_can_not_be_prepared(work, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        work()
    assert "\n" not in str(caught.value)


def test_rows_are_aligned_and_cut_before_they_are_prepared():
    ids = [f"p{number}" for number in range(ROWS)]
    bank = cn.Party("bank", FRAME, Y, ids=ids, prepare={})
    shop = cn.Party("shop", SHOP[::-1], ids=ids[::-1], prepare={}).take(np.arange(350))
    model = logistic().fit(*cn.align_parties(bank, shop, verbose=0))
    assert model.rows_ == 350
    frame = pd.concat([FRAME, SHOP], axis=1)
    one, other = cn.split(frame, Y, into={"a": [0, 1], "b": [5, 2]})
    assert one.columns == ("age", "city")
    assert other.columns == ("kind", "debts")
