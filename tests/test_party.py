"""Parties from everything people have, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.data.together import check_together
from colonnade.errors import DataError, LabelError, OptionError

X = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    "given",
    [
        X,
        X.tolist(),
        X.astype(int),
        np.asfortranarray(X),
        pd.DataFrame(X, columns=["a", "b", "c"]),
        pl.DataFrame(X, schema=["a", "b", "c"]),
        sp.csr_matrix(X),
        sp.csc_matrix(X),
        sp.csr_array(X),
    ],
)
def test_any_table_becomes_the_same_columns(given):
    party = cn.Party("bank", given)
    dense = party.X.toarray() if sp.issparse(party.X) else party.X
    np.testing.assert_array_equal(dense, X)
    assert dense.dtype == np.float64
    assert (party.rows, party.features, party.active) == (4, 3, False)
    if hasattr(given, "columns"):
        assert party.columns == ("a", "b", "c")


def test_precision_and_sparsity_stay_what_they_are():
    assert cn.Party("a", X.astype(np.float32)).X.dtype == np.float32
    places = np.random.default_rng(0).integers(0, 100_000, (1000, 10))  # scipy's own would shuffle a hundred million
    sparse = sp.csr_matrix(
        (np.ones(10_000, np.float32), np.sort(places).ravel(), np.arange(0, 10_001, 10)), (1000, 100_000)
    )
    party = cn.Party("a", sparse)
    assert sp.issparse(party.X)
    assert party.X.dtype == np.float32
    assert np.shares_memory(party.X.data, sparse.data)
    dense = X.copy()
    assert np.shares_memory(cn.Party("a", dense).X, dense)


def test_pandas_frames_of_mixed_kinds():
    frame = pd.DataFrame({"age": [1.5, 2.0], "flag": [True, False], "n": pd.array([3, 4], dtype="Int64")})
    assert cn.Party("a", frame).X.tolist() == [[1.5, 1.0, 3.0], [2.0, 0.0, 4.0]]
    frame["n"] = pd.array([3, None], dtype="Int64")
    assert not cn.Party("a", frame[["age", "flag"]]).missing
    np.testing.assert_array_equal(cn.Party("a", frame).X, [[1.5, 1.0, 3.0], [2.0, 0.0, np.nan]])
    assert cn.Party("a", frame[["age"]].astype("float32")).X.dtype == np.float32
    sparse = pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(np.eye(3)))
    assert sp.issparse(cn.Party("a", sparse).X)
    with pytest.raises(DataError, match="columns 'when' are not numbers"):
        cn.Party("a", pd.DataFrame({"when": pd.interval_range(0, 2)}))
    with pytest.raises(DataError, match="is a LazyFrame, a table is needed; call collect"):
        cn.Party("a", pl.LazyFrame({"a": [1]}))


def test_duplicate_entries_of_a_sparse_matrix_are_added_up():
    twice = sp.csr_matrix((np.array([1.0, 2.0]), np.array([0, 0]), np.array([0, 2])), shape=(1, 2))
    assert cn.Party("a", twice).X.toarray().tolist() == [[3.0, 0.0]]
    assert twice.nnz == 2  # the user's own matrix is not touched


@pytest.mark.parametrize(
    ("labels", "known"),
    [
        ([0, 1, 1, 0], 4),
        ([0.0, np.nan, 1.0, 0.0], 3),
        (["no", None, "yes", "no"], 3),
        (np.array([True, False, True, True]), 4),
        (pd.Series(["a", None, "b", "a"]), 3),
        (pl.Series(["a", None, "b", "a"]), 3),
        (pd.Series(["a", pd.NA, "b", "a"], dtype="string"), 3),
        (pd.Series([True, pd.NA, False, True], dtype="boolean"), 3),
        (pl.Series([1, None, 0, 1]), 3),
        (np.array([[0], [1], [1], [0]]), 4),
    ],
)
def test_labels_for_a_part_of_the_rows(labels, known):
    party = cn.Party("bank", X, labels)
    assert party.active
    assert int(party.labelled.sum()) == known


def test_take_keeps_everything_of_the_rows():
    party = cn.Party("bank", X, [0, 1, 1, 0], ids=["a", "b", "c", "d"]).take([2, 0])
    assert party.X.tolist() == X[[2, 0]].tolist()
    assert party.y.tolist() == [1, 0]
    assert party.ids.tolist() == ["c", "a"]


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: cn.Party("", X), OptionError, "a party's name must be 1 to 63 letters"),
        (lambda: cn.Party("../x", X), OptionError, "a party's name must be"),
        (lambda: cn.Party(3, X), OptionError, "a party's name must be .* got 3"),
        (lambda: cn.Party("a", X[0]), DataError, r"X must have rows and columns \(2 dimensions\), got 1"),
        (lambda: cn.Party("a", X[:0]), DataError, r"X is empty \(0 rows x 3 columns\)"),
        (lambda: cn.Party("a", np.array([["x", "y"]])), DataError, "only numbers are allowed"),
        (lambda: cn.Party("a", X * 1j), DataError, "complex numbers"),
        (
            lambda: cn.Party("a", np.array([[1.0, np.nan], [np.inf, 2.0]])),
            DataError,
            "party 'a': X has 1 values that are infinite, the first in row 1, column number 0; impute or drop",
        ),
        (
            lambda: cn.Party("a", sp.csr_matrix(np.array([[0.0, np.inf]]))),
            DataError,
            "X has 1 values that are infinite, the first in row 0, column number 1",
        ),
        (
            lambda: cn.Party("a", pd.DataFrame({"age": [1.0, -np.inf]})),
            DataError,
            "the first in row 1, column age",
        ),
        (lambda: cn.Party("a", X, [1, 0]), LabelError, "y has 2 labels for 4 rows; give one per row"),
        (lambda: cn.Party("a", X, [np.nan] * 4), LabelError, "y holds no label at all; leave y out"),
        (lambda: cn.Party("a", X, np.zeros((4, 2))), LabelError, "y must be one label per row"),
        (lambda: cn.Party("a", X, [1j] * 4), LabelError, "labels must be numbers, bools or strings, got complex"),
        (lambda: cn.Party("a", X).take([9]), DataError, "party 'a' has 4 rows; take asks for others"),
        (lambda: cn.Party("a", X).take([]), DataError, "take leaves no row"),
        (lambda: cn.Party("a", X, columns=["p", "q"]), DataError, "2 column names for 3 columns"),
        (lambda: cn.Party("a", X, ids=[1, 2]), DataError, "4 rows need exactly one id each"),
        (lambda: cn.Party("a", X, ids=[1, 2, None, 1]), DataError, "1 ids are missing"),
    ],
)
def test_one_sentence_for_each_thing_that_can_not_be_used(make, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        make()
    assert "\n" not in str(caught.value)


HOLES = np.array([[1.0, np.nan], [0.0, 2.0], [3.0, np.nan]])


@pytest.mark.parametrize(
    "given",
    [
        HOLES,
        HOLES.tolist(),
        pd.DataFrame(HOLES),
        pd.DataFrame({"a": pd.array([1, 0, 3], dtype="Int64"), "b": pd.array([None, 2, pd.NA], dtype="Int64")}),
        pd.DataFrame({"a": [1, 0, 3], "b": pd.arrays.SparseArray([np.nan, 2.0, np.nan])}),
        pd.DataFrame({"a": pd.arrays.SparseArray([1.0, 0.0, 3.0]), "b": pd.arrays.SparseArray(HOLES[:, 1])}),
        pd.DataFrame.sparse.from_spmatrix(sp.csr_matrix(HOLES)),
        pl.DataFrame({"a": [1, 0, 3], "b": [None, 2, None]}),
        sp.csr_matrix(HOLES),
        sp.csc_matrix(HOLES),
    ],
)
def test_missing_values_are_nan(given):
    party = cn.Party("bank", given)
    assert party.missing
    np.testing.assert_array_equal(party.X.toarray() if sp.issparse(party.X) else party.X, HOLES)
    assert party.take([0, 1]).missing
    assert not party.take([1]).missing


def test_what_is_unknown_in_polars_may_be_a_boolean():
    party = cn.Party("bank", pl.DataFrame({"a": [True, None, False], "b": [1, 2, 3]}))
    np.testing.assert_array_equal(party.X, [[1.0, 1.0], [np.nan, 2.0], [0.0, 3.0]])


CODES = np.array([[2.5, 0.0, 3.0], [0.0, 2.0, np.nan], [1.0, 0.0, 1.0]])


@pytest.mark.parametrize("table", [CODES, sp.csr_matrix(CODES), pd.DataFrame(CODES, columns=["x0", "x1", "x2"])])
def test_columns_of_categories_are_named_or_numbered(table):
    for given in ([1, 2], (2, np.int64(1)), ["x2", 1], ["x2", "x1", "x1"]):
        party = cn.Party("bank", table, ids=["p", "q", "r"], categories=given)
        assert party.categories == (1, 2)
        assert party.take([2, 0]).categories == (1, 2)
    assert cn.Party("bank", table).categories == ()
    assert cn.Party("bank", table, columns=["k", "l", "m"], categories=["m"]).categories == (2,)


def test_codes_of_a_pandas_categorical():
    cities = pd.Categorical(["Rome", None, "Bern"], categories=["Bern", "Oslo", "Rome"])
    frame = pd.DataFrame({"age": np.float32([1, 2, 3]), "city": cities, "n": pd.array([1, None, 2], dtype="Int64")})
    party = cn.Party("bank", frame, categories=["city"])
    np.testing.assert_array_equal(party.X, [[1.0, 2.0, 1.0], [2.0, np.nan, np.nan], [3.0, 0.0, 2.0]])
    assert (party.categories, party.columns, party.missing) == ((1,), ("age", "city", "n"), True)
    assert cn.Party("bank", frame).raw is not None  # without codes it is prepared when a model is fitted


def test_categories_go_where_their_columns_go():
    one, other = cn.split(CODES, [0, 1, 1], into=[[2, 0], [1]], categories=[2, 1])
    assert (one.categories, other.categories) == ((0,), (0,))
    frame = pd.DataFrame({"a": [1.5, 2.5], "city": pd.Categorical(["x", "y"]), "b": [0, 1]})
    one, other = cn.split(frame, [0, 1], into=[[0], [-1, -2]], categories=["city"])
    assert (one.categories, other.categories) == ((), (1,))
    assert other.X.tolist() == [[0.0, 0.0], [1.0, 1.0]]
    aligned = cn.align_parties(
        cn.Party("a", CODES, [0, 1, 1], ids=["p", "q", "r"], categories=[2]),
        cn.Party("b", CODES, ids=["r", "q", "s"], categories=[1, 2]),
        verbose=0,
    )
    assert [(party.rows, party.missing, party.categories) for party in aligned] == [(2, True, (2,)), (2, True, (1, 2))]


@pytest.mark.parametrize(
    ("table", "categories", "sentence"),
    [
        (CODES, [3], "^party 'a': categories has 3, which stands for 0 of the 3 columns; give the name of one"),
        (CODES, [-1], "categories has -1, which stands for 0 of the 3"),
        (CODES, ["city"], "categories has 'city', which stands for 0 of the 3"),
        (CODES, [True], "categories has True, which stands for 0"),
        (CODES, "x1", "categories must be a list of columns' names or numbers, got 'x1'"),
        (CODES, 1, "categories must be a list of columns' names or numbers, got 1"),
        (pd.DataFrame(CODES, columns=["b", "b", "c"]), ["b"], "categories has 'b', which stands for 2 of the 3"),
        (
            CODES,
            [0],
            "^party 'a': column 'x0' is named in categories and has 1 values that are no codes, the first is 2.5 in "
            "row 0; give whole numbers from 0 to 2147483647, or NaN",
        ),
        (sp.csr_matrix(-CODES.T), [1], "column 'x1' is named in .* has 1 values .*, the first is -2 in row 1; give"),
        (np.array([[2.0**31]]), [0], "column 'x0' .* the first is 2.14748e[+]09 in row 0; give"),
        (pd.DataFrame({"city": ["x", "y"]}), ["city"], "columns 'city' are named in categories and are not numbers"),
        (pl.DataFrame({"city": ["x", "y"]}), [0], "columns 'city' are named in categories and are not numbers; give"),
    ],
)
def test_what_is_no_category(table, categories, sentence):
    with pytest.raises(DataError, match=sentence) as caught:
        cn.Party("a", table, categories=categories)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parties", "sentence"),
    [
        ([], "no party was given"),
        ([X], "expected a Party, got ndarray; wrap the columns in Party"),
        ([cn.Party("a", X), cn.Party("a", X)], "the name 'a' is used by 2 parties"),
        ([cn.Party("a", X), cn.Party("b", X[:3])], "party 'b' has 3 rows, party 'a' has 4"),
        (
            [cn.Party("a", X, ids=[1, 2, 3, 4]), cn.Party("b", X, ids=[1, 3, 2, 4])],
            "ids of 'a' and 'b' are not aligned: 2 rows differ, the first is row 1",
        ),
    ],
)
def test_parties_that_do_not_fit_together(parties, sentence):
    with pytest.raises(DataError, match=sentence):
        check_together(parties)


def test_ids_are_compared_as_people_write_them():
    check_together([cn.Party("a", X, ids=[1, 2, 3, 4]), cn.Party("b", X, ids=["1", "2", "3", "4"]), cn.Party("c", X)])


def test_split_deals_every_column_once():
    y = [0, 1, 1, 0]
    for table in (X, pd.DataFrame(X), pl.DataFrame(X), sp.csr_matrix(X)):
        parties = cn.split(table, y, into=2, active=2)
        assert [p.name for p in parties] == ["party1", "party2"]
        parts = [p.X.toarray() if sp.issparse(p.X) else p.X for p in parties]
        np.testing.assert_array_equal(np.hstack(parts), X)
        assert all(p.active for p in parties)
    named = cn.split(X, y, into={"bank": [2], "shop": [0, 1]}, active=["shop"])
    assert [(p.name, p.features, p.active) for p in named] == [("bank", 1, False), ("shop", 2, True)]
    wide = np.arange(40.0).reshape(2, 20)
    one, other = cn.split(wide, [0, 1], into=4, seed=1), cn.split(wide, [0, 1], into=4, seed=2)
    assert sorted(np.hstack([p.X for p in one])[0]) == sorted(wide[0])
    assert [p.X.tolist() for p in one] != [p.X.tolist() for p in other]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"into": 0}, "into must be between 1 and the 3 columns, got 0"),
        ({"into": 4}, "into must be between 1 and the 3 columns, got 4"),
        ({"into": 2, "active": 3}, "active must be 1 to 2 parties"),
        ({"into": 2, "active": 0}, "active must be 1 to 2 parties"),
        ({"into": 2, "active": ["bank"]}, "active must be 1 to 2 parties or some of"),
    ],
)
def test_split_refuses_what_it_can_not_cut(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        cn.split(X, [0, 1, 1, 0], **options)
