"""Local preparation: learned on the training rows, the same as scikit-learn's and as a slow reference, kept exactly."""

from __future__ import annotations

import json
import math
import statistics
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

import colonnade as cn
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import ColonnadeWarning, DataError, InputError, TomlError
from colonnade.families import store
from colonnade.settings import toml
from colonnade.settings.settings import Key, Section
from colonnade.tables import data
from colonnade.tables.declared import declared_steps
from colonnade.tables.filling import _CHUNK, Filling
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.preparation import SECTION, fit
from colonnade.tables.table import Table

PARTY = Section(Key("data", data.SECTION), Key("prepare", SECTION, default={}))
NAN = math.nan


def text_column(words):
    categories = sorted({word for word in words if word is not None})
    codes = [-1 if word is None else categories.index(word) for word in words]
    return Texts(np.array(codes, dtype=np.int32), np.array(categories, dtype=object))


def table(**columns):
    """A table of lists of numbers or words."""
    made = {
        name: text_column(values)
        if any(isinstance(value, str) for value in values)
        else Numbers(np.array(values, float))
        for name, values in columns.items()
    }
    return Table("a.csv", made)


def prepare(text):
    return toml.parse(text.encode(), PARTY, "bank.toml")["prepare"]


def dense(X):
    return X.toarray() if sp.issparse(X) else X


# -- steps ------------------------------------------------------------------------------------------------------------


def test_without_a_section_numbers_are_standardised_and_text_is_one_hot():
    made = table(age=[1, 2, NAN, 9], city=["Rome", "Paris", None, "Paris"])
    prepared = fit(made)
    X = prepared.apply(made)
    filled = np.array([1, 2, 2, 9.0])
    np.testing.assert_allclose(X[:, 0], (filled - filled.mean()) / filled.std())
    assert prepared.names == ("age", "city=Paris", "city=Rome", "city=(missing)")
    assert X[:, 1:].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [1, 0, 0]]
    assert prepared.texts == ("city",)
    assert X.flags.c_contiguous


def test_steps_are_done_in_their_order():
    made = table(income=[-5, 0, 1e9, NAN, 100], debts=[0, 1, 2, NAN, NAN], age=[1, 2, 3, 4, 5], kept=[1, 2, 3, 4, 5])
    prepared = fit(
        made,
        prepare(
            """
            [prepare]
            default = ["scale"]
            income = [{ clip = [0, 1000] }, { impute = "mean" }, "standardise"]
            debts = [{ impute = { with = 7, indicator = true } }, "log1p"]
            kept = "as-is"
            """
        ),
    )
    X = prepared.apply(made)
    income = np.array([0, 0, 1000, 275, 100.0])
    np.testing.assert_allclose(X[:, 0], (income - income.mean()) / income.std())
    np.testing.assert_allclose(X[:, 1], np.log1p([0, 1, 2, 7, 7]))
    assert X[:, 2].tolist() == [0, 0, 0, 1, 1]
    np.testing.assert_allclose(X[:, 3], np.arange(1, 6) / 5)
    assert X[:, 4].tolist() == [1, 2, 3, 4, 5]
    assert prepared.names == ("income", "debts", "debts=(missing)", "age", "kept")


def test_only_training_rows_teach():
    made = table(x=[0, 2, 1000, NAN], city=["a", "b", "c", "d"])
    for rows in ([0, 1], np.array([True, True, False, False]), slice(0, 2)):
        prepared = fit(made, rows=rows)
        X = prepared.apply(made)
        assert prepared.names == ("x", "city=a", "city=b")
        assert X.tolist() == [[-1, 1, 0], [1, 0, 1], [999, 0, 0], [0, 0, 0]]
    with pytest.raises(DataError, match=r"no row of a.csv is a training row"):
        fit(made, rows=[])


def test_rare_unknown_and_missing_categories():
    words = ["a"] * 4 + ["b"] * 3 + ["c"] * 2 + ["d"]
    made = table(city=words)
    prepared = fit(made, prepare("[prepare]\ncity = [{ one-hot = { most = 2 } }]"))
    assert prepared.names == ("city=a", "city=b", "city=(other)")
    new = table(city=["b", "d", "never seen", None])
    assert dense(prepared.apply(new)).tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]
    rare = fit(made, prepare("[prepare]\ncity = [{ one-hot = { least = 3 } }]"))
    assert rare.names == ("city=a", "city=b", "city=(other)")
    # equally frequent ones are kept in their order, so that the same rows always give the same columns
    assert fit(made, prepare("[prepare]\ncity = [{ one-hot = { most = 3 } }]")).names[2] == "city=c"
    # without others in the training rows, what is unknown is in no column; what is missing has one if training had
    known = fit(table(city=["a", "b", None]))
    assert known.names == ("city=a", "city=b", "city=(missing)")
    assert dense(known.apply(new)).tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_numbers_can_be_categories():
    made = table(code=[3, 1, NAN, 1, 2.5, 90])
    prepared = fit(made, prepare('[prepare]\ncode = [{ clip = [0, 10] }, "one-hot"]'))
    assert prepared.names == ("code=1", "code=2.5", "code=3", "code=10", "code=(missing)")
    X = dense(prepared.apply(table(code=[10, 1, 7, NAN])))
    assert X.tolist() == [[0, 0, 0, 1, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    filled = fit(made, prepare('[prepare]\ncode = ["impute", "one-hot"]'))
    assert filled.names == ("code=1", "code=2.5", "code=3", "code=90")


def test_a_constant_becomes_zero_and_is_warned_about():
    made = table(x=[0.1] * 7, y=[1, 2, 3, 4, 5, 6, 7])
    with pytest.warns(ColonnadeWarning, match="column 'x' has the same value in all training rows: it becomes 0"):
        prepared = fit(made)
    assert prepared.apply(made)[:, 0].tolist() == [0] * 7
    assert prepared.apply(table(x=[5, NAN], y=[1, 1]))[:, 0].tolist() == [0, 0]
    with pytest.warns(ColonnadeWarning, match="column 'city' has the same value in all training rows"):
        fit(table(city=["a", "a"]))


def test_a_column_of_names_is_warned_about():
    with pytest.warns(
        ColonnadeWarning, match="column 'name': 75 % of the training rows are in none of the 50 categories"
    ):
        fit(table(name=[f"person {n:03}" for n in range(200)]))


def test_output_names_are_unique():
    made = {"a": text_column(["b", "c"]), "a=b": Numbers(np.array([1.0, 2.0]))}
    assert fit(Table("a.csv", made)).names == ("a=b", "a=c", "a=b (2)")


def test_single_precision_stays_single():
    made = Table(
        "a.npy", {"x0": Numbers(np.array([1, 2, 4], np.float32)), "x1": Numbers(np.array([0, 1, 5], np.float32))}
    )
    X = fit(made).apply(made)
    assert X.dtype == np.float32
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-7)


# -- against others ---------------------------------------------------------------------------------------------------

VALUES = st.floats(-1e9, 1e9).filter(lambda x: x == 0 or abs(x) > 1e-9)
COLUMNS = st.lists(st.one_of(st.just(NAN), VALUES), min_size=1, max_size=40)
QUIET = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")


@QUIET
@given(COLUMNS, COLUMNS, st.sampled_from(["median", "mean"]))
def test_numbers_as_scikit_learn_has_them(train, new, how):
    assume(not all(map(math.isnan, train)))
    prepared = fit(table(x=train), prepare(f'[prepare]\nx = [{{ impute = "{how}" }}, "standardise"]'))
    imputer, scaler = SimpleImputer(strategy=how), StandardScaler()
    as_column = np.array(train)[:, None]
    filled = imputer.fit_transform(as_column)
    # scikit-learn takes a spread within its rounding for none
    assume(filled.std() == 0 or filled.std() > 1e-6 * np.abs(filled).max())
    scaler.fit(filled)
    for values in (train, new):
        ours = prepared.apply(table(x=values))
        theirs = scaler.transform(imputer.transform(np.array(values)[:, None]))
        if len(set(imputer.transform(as_column)[:, 0].tolist())) == 1:
            assert not ours.any()
        else:
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


@QUIET
@given(COLUMNS, COLUMNS)
def test_numbers_as_a_slow_reference_has_them(train, new):
    """Clip, indicator and log1p, one row at a time."""
    assume(not all(map(math.isnan, train)))
    steps = "[{ clip = [-0.5, 1e6] }, { impute = { indicator = true } }, 'log1p', 'scale']"
    prepared = fit(table(x=train), prepare(f"[prepare]\nx = {steps}"))
    clipped = [min(max(value, -0.5), 1e6) for value in train if not math.isnan(value)]
    median = statistics.median(clipped)
    largest = max(abs(math.log1p(value)) for value in [*clipped, median]) or 1.0
    ours = prepared.apply(table(x=new))
    for value, row in zip(new, ours, strict=True):
        filled = median if math.isnan(value) else min(max(value, -0.5), 1e6)
        np.testing.assert_allclose(row[0], math.log1p(filled) / largest, rtol=1e-9, atol=1e-12)
        assert row[1] == math.isnan(value)


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "é", "", " "]), min_size=1, max_size=40)


@QUIET
@given(WORDS, WORDS, st.integers(1, 8))
def test_text_as_scikit_learn_has_it(train, new, most):
    encoder = OneHotEncoder(max_categories=None, handle_unknown="ignore", sparse_output=False)
    encoder.fit(np.array(train, dtype=object)[:, None])
    prepared = fit(table(c=train))
    assert list(prepared.names) == [f"c={category}" for category in encoder.categories_[0]]
    theirs = encoder.transform(np.array(new, dtype=object)[:, None])
    np.testing.assert_array_equal(dense(prepared.apply(table(c=new))), theirs)
    # fewer columns: every row is in one of them, or in "(other)"
    fewer = fit(table(c=train), prepare(f"[prepare]\nc = [{{ one-hot = {{ most = {most} }} }}]"))
    kept = sorted(sorted(set(train), key=lambda word: (-train.count(word), word))[:most])
    assert fewer.names == tuple(f"c={word}" for word in kept) + (("c=(other)",) if len(set(train)) > most else ())
    found = dense(fewer.apply(table(c=new)))
    for word, row in zip(new, found, strict=True):
        expected = kept.index(word) if word in kept else len(kept)
        assert row.tolist() == [float(slot == expected) for slot in range(len(fewer.names))]


@QUIET
@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 3), st.integers(1, 40))
def test_sparse_and_dense_outputs_are_the_same_numbers(seed, texts, numbers, categories):
    rng = np.random.default_rng(seed)
    rows = 30
    columns = {f"t{k}": [f"c{n:02}" for n in rng.integers(0, categories, rows)] for k in range(texts)}
    columns |= {f"n{k}": rng.choice([0.0, 1.0, 2.5, NAN], rows).tolist() for k in range(numbers)}
    columns |= {"end": rng.integers(0, categories, rows).astype(float).tolist()}
    made = table(**columns)
    spec = "[prepare]\nend = 'one-hot'\n" + "".join(
        f"n{k} = {{ impute = {{ with = 0, indicator = true }} }}\n" for k in range(numbers)
    )
    prepared = fit(made, prepare(spec))
    filling = Filling("a.csv", [(column, made.columns[column.name]) for column in prepared.columns], rows)
    sparse = filling.csr(np.float64)
    assert sparse.has_canonical_format
    assert (sparse.data != 0).all()
    np.testing.assert_array_equal(sparse.toarray(), filling.dense(np.float64))
    assert sp.issparse(prepared.apply(made)) == (4 * filling.filled < filling.width)


@QUIET
def test_many_rows_are_prepared_in_chunks():
    rng = np.random.default_rng(0)
    rows = 2 * _CHUNK + 5
    x = rng.standard_normal(rows)
    x[::7] = NAN
    codes = rng.integers(-1, 100, rows).astype(np.int32)
    made = Table("a.csv", {"x": Numbers(x), "c": Texts(codes, np.array([f"{n:03}" for n in range(100)], dtype=object))})
    prepared = fit(made, prepare("[prepare]\nc = { one-hot = { most = 200 } }"))
    X = prepared.apply(made)
    assert sp.issparse(X)
    filled = np.where(np.isnan(x), np.nanmedian(x), x)
    np.testing.assert_allclose(X[:, [0]].toarray()[:, 0], (filled - filled.mean()) / filled.std())
    np.testing.assert_array_equal(np.asarray(X[:, 1:].argmax(axis=1)).ravel(), np.where(codes < 0, 100, codes))
    x[rows - 2] = math.inf
    with pytest.raises(DataError, match=f"column 'x' of a.csv has an infinite value in row {rows - 1}"):
        prepared.apply(made)


# -- what is refused --------------------------------------------------------------------------------------------------

MIXED = table(age=[1, 2, NAN], city=["a", "b", None], low=[-3, 1, 2], empty=[NAN] * 3, big=[1e308, 1e308, -1.7e308])


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("agee = ['impute']", "line 2, key prepare.agee: a.csv has no column 'agee', its columns are 'age',"),
        ("age = ['inpute']", "line 2, key prepare.age[0]: must be one of the steps impute, clip, standardise"),
        ("age = ['inpute']", "got 'inpute'; did you mean 'impute'?"),
        ("age = [{ imput = 5 }]", "got 'imput'; did you mean 'impute'?"),
        ("age = [\n'impute',\n5]", "line 4, key prepare.age[1]: must be one of the steps"),
        ("age = [{ impute = 5, clip = 6 }]", "key prepare.age[0]: must be one of the steps"),
        ("age = []", "line 2, key prepare.age: must be a list of steps, got []"),
        ("age = ['clip']", "clip needs its bounds; write { clip = [0, 100] }"),
        ("age = [{ clip = [0] }]", "line 2, key prepare.age[0].clip: must be two numbers, like { clip = [0, 100] }"),
        ("age = [{ clip = [0, 'x'] }]", "must be two numbers"),
        ("age = [{ clip = [0, nan] }]", "must be two numbers"),
        ("age = [{ clip = [5, 0] }]", "must have the lower bound first, got 5 and 0"),
        ("age = [{ impute = 'mode' }]", 'key prepare.age[0].impute: must be "median", "mean" or a number'),
        ("age = [{ impute = true }]", 'must be "median", "mean" or a number'),
        ("age = [{ impute = { wth = 5 } }]", 'must be like { impute = { with = "median", indicator = true } }'),
        ("age = [{ impute = { indicator = 1 } }]", "must be like { impute = "),
        ("city = [{ one-hot = { most = 0 } }]", "must have whole numbers from 1 to 1000000 as most and least"),
        ("city = [{ one-hot = { many = 5 } }]", "must be like { one-hot = { most = 50, least = 10, reference ="),
        ("age = [{ standardise = true }]", 'prepare.age[0].standardise: standardise takes no options; write "standard'),
        ("age = ['one-hot', 'standardise']", "line 2, key prepare.age[1]: nothing can follow one-hot"),
        ("age = ['as-is', 'impute']", "as-is stands alone"),
        ("age = ['impute', 'as-is']", "as-is stands alone"),
        ("city = ['standardise']", "key prepare.city: column 'city' of a.csv holds text, for which one-hot is"),
        ("city = 'as-is'", "holds text, for which one-hot is the only step; give it one-hot"),
        ("city = ['impute', 'one-hot']", "a missing text is a category of its own"),
        ("age = ['standardise']", "column 'age' of a.csv has 1 missing values in its training rows and no step"),
        ("low = ['log1p']", "column 'low' of a.csv has -3 in row 1, and log1p needs values above -1; clip it first"),
        ("empty = ['impute']", "column 'empty' of a.csv has no value in any training row; list it under exclude"),
        ("big = ['standardise']\nempty = { impute = 0 }", "'big' of a.csv has values that are too large to be"),
        ("empty = { impute = 0 }\nbig = [{ clip = [1e308, inf] }, { impute = 'mean' }]", "too large for a mean; clip"),
    ],
)  # fmt: skip
@QUIET
def test_steps_that_are_refused(section, sentence):
    with pytest.raises(InputError) as caught:
        fit(MIXED, prepare(f"[prepare]\n{section}"))
    message = str(caught.value)
    assert sentence in message
    assert message.startswith("bank.toml, line ")
    assert "\n" not in message


def test_steps_are_checked_before_rows_are_read():
    assert [step.name for step in declared_steps(prepare("[prepare]\nage = ['impute', 'scale']"))["age"]] == [
        "impute",
        "scale",
    ]
    with pytest.raises(
        TomlError, match=r"bank.toml, line 2, key prepare.nobody\[0\]: must be one of the steps .*, got 5"
    ):
        declared_steps(prepare("[prepare]\nnobody = [5]"))


@QUIET
def test_what_is_wrong_with_the_data_is_said_without_a_section_too():
    with pytest.raises(DataError, match=r"^column 'x' of a.csv has 1 infinite values in its training rows"):
        fit(table(x=[1, math.inf]))
    with pytest.raises(DataError, match=r"^column 'x' of a.csv has no value in any training row"):
        fit(table(x=[1, NAN]), rows=[1])
    # the row is that of the table, not of the training rows
    with pytest.raises(DataError, match=r"bank.toml, line 2, key prepare.default: column 'x' of a.csv has -2 in row 3"):
        fit(table(x=[1, 1, -2]), prepare("[prepare]\ndefault = ['log1p']"), rows=[1, 2])


@QUIET
def test_rows_that_do_not_fit_the_training_rows():
    prepared = fit(table(x=[1, 2], city=["a", "b"]), prepare("[prepare]\nx = ['standardise']"))
    cases = [
        (table(x=[1]), "column 'city' of a.csv is missing; give the same columns as in training"),
        (table(x=["a"], city=["a"]), "column 'x' of a.csv holds text here and held numbers in training"),
        (
            table(x=[1], city=[1]),
            "column 'city' of a.csv holds numbers here and held text in training; list it under text",
        ),
        (table(x=[5, NAN], city=["a", "a"]), "column 'x' of a.csv has no value in row 2, and no step that fills it"),
        (table(x=[5, -math.inf], city=["a", "a"]), "column 'x' of a.csv has an infinite value in row 2"),
        (Table("a.svm", sp.csr_matrix(np.eye(2))), "a.svm is sparse and the training rows were named columns"),
    ]
    for new, sentence in cases:
        with pytest.raises(DataError) as caught:
            prepared.apply(new)
        assert str(caught.value).startswith(sentence)
    # a column without any value is of either kind
    assert prepared.apply(table(x=[1], city=[NAN])).tolist() == [[-1, 0, 0]]
    tiny = fit(table(x=[0, 1e-300]), prepare("[prepare]\nx = ['scale']"))
    with pytest.raises(DataError, match="has 1e\\+10 in row 1, which its steps make too large"):
        tiny.apply(table(x=[1e10]))


# -- sparse tables ----------------------------------------------------------------------------------------------------

MATRIX = sp.csr_matrix(np.array([[0, 2.0, 0], [-4, 0, 0], [1, 8, 0]]))


def test_sparse_columns_stay_sparse():
    made = Table("a.svm", MATRIX)
    assert (fit(made).apply(made) != MATRIX).nnz == 0
    prepared = fit(made, prepare("[prepare]\ndefault = [{ clip = [-inf, 4] }, 'scale']"))
    theirs = MaxAbsScaler().fit_transform(MATRIX.minimum(4))
    np.testing.assert_allclose(prepared.apply(made).toarray(), theirs.toarray())
    assert MATRIX.max() == 8  # the party's own matrix is as it was
    fewer = fit(made, prepare("[prepare]\ndefault = ['scale']"), rows=[0, 1])
    np.testing.assert_allclose(fewer.apply(made).toarray(), [[0, 1, 0], [-1, 0, 0], [0.25, 4, 0]])
    # a file of new rows need not come as far as the last column
    np.testing.assert_allclose(fewer.apply(Table("b.svm", MATRIX[:, :2])).toarray(), fewer.apply(made).toarray())
    party = fewer.party("shop", made)
    assert party.features == 3


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("x1 = ['scale']", "key prepare.x1: the columns of a.svm are sparse and prepared all alike; use default"),
        ("default = ['standardise']", "key prepare.default[0]: standardise would fill the zeros of sparse columns"),
        ("default = [{ clip = [1, 2] }]", "key prepare.default[0]: clip would fill the zeros"),
        ("default = ['scale', 'impute']", "key prepare.default[1]: impute would fill the zeros"),
        ("default = ['log1p']", "key prepare.default[0]: column number 0 of a.svm has -4 in row 2, and log1p needs"),
    ],
)
def test_steps_that_sparse_columns_can_not_take(section, sentence):
    with pytest.raises(InputError) as caught:
        fit(Table("a.svm", MATRIX), prepare(f"[prepare]\n{section}"))
    assert f"bank.toml, line 2, {sentence}" in str(caught.value)


def test_sparse_rows_that_do_not_fit():
    prepared = fit(Table("a.npz", MATRIX, names=("p", "q", "r")))
    with pytest.raises(DataError, match=r"b.npz has no column 'r', unlike the training rows"):
        prepared.apply(Table("b.npz", MATRIX[:, :2], names=("p", "q")))
    with pytest.raises(DataError, match=r"b.npz has 4 columns and the training rows 3"):
        fit(Table("a.svm", MATRIX)).apply(Table("b.npz", sp.csr_matrix(np.eye(4))))
    with pytest.raises(DataError, match=r"a.csv is named columns and the training rows were sparse"):
        prepared.apply(table(x=[1]))
    bad = MATRIX.copy()
    bad.data[-1] = NAN
    with pytest.raises(DataError, match=r"column number 1 of a.svm has NaN or an infinite value in row 3"):
        fit(Table("a.svm", bad))


# -- kept and shown ---------------------------------------------------------------------------------------------------


@QUIET
@given(COLUMNS, st.lists(st.none() | st.text(max_size=5), min_size=1, max_size=40), st.booleans())
def test_a_saved_preparation_does_exactly_the_same(numbers, words, hot):
    assume(not all(map(math.isnan, numbers)))
    rows = min(len(numbers), len(words))
    made = Table("a.csv", {"x": Numbers(np.array(numbers[:rows])), "w": text_column(words[:rows])})
    assume(not np.isnan(made.columns["x"].values).all())
    spec = prepare(
        "[prepare]\nx = 'one-hot'" if hot else "[prepare]\nx = [{ clip = [-inf, 5] }, 'impute', 'standardise']"
    )
    prepared = fit(made, spec)
    arrays = prepared.to_arrays()
    assert all(array.dtype != object for array in arrays.values())
    again = LearnedPreparation.from_arrays(arrays)
    assert again == prepared
    assert again.names == prepared.names
    np.testing.assert_array_equal(dense(again.apply(made)), dense(prepared.apply(made)))


def test_it_is_stored_with_the_party_s_part_of_the_model(tmp_path):
    made = Table("a.svm", MATRIX)
    prepared = fit(made, prepare("[prepare]\ndefault = ['scale']"))
    store.write_party(tmp_path, "bank", {"family": "linear"}, {"theta": np.zeros(3), **prepared.to_arrays()})
    _, arrays = store.read_party(tmp_path / "bank.colonnade.npz")
    np.testing.assert_array_equal(
        LearnedPreparation.from_arrays(arrays).apply(made).toarray(), prepared.apply(made).toarray()
    )


def changed(**changes):
    steps = [{"step": "impute", "how": "median", "indicator": False, "fill": 1.0}]
    column = {"name": "x", "text": False, "steps": steps, "hot": None, "named": True}
    return {"preparation": np.array(json.dumps({"columns": [{**column, **changes}], "sparse": None}))}


SCALED = {"width": 3, "names": None, "named": True, "steps": [{"step": "scale"}]}


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"preparation": np.array("nonsense")},
        {"preparation": np.array("[]")},
        {"preparation": np.array("[" * 100_000)},
        {"preparation": np.array(3)},
        changed(steps=[{"step": "explode"}]),
        changed(steps=[{"step": "impute", "fill": "1.0"}]),
        changed(steps=[{"step": "impute", "fill": True}]),
        changed(steps=[{"step": "impute", "wrong": 1.0}]),
        changed(steps=[{"step": "clip"}]),
        changed(steps=[{"step": "one-hot"}]),
        changed(steps=5),
        changed(text=True),
        changed(hot={"step": "scale", "by": 1.0}),
        changed(hot={"step": "one-hot", "categories": ["a", 1.0]}),
        changed(hot={"step": "one-hot", "categories": [None]}),
        {
            "preparation": np.array(json.dumps({"columns": [], "sparse": SCALED})),
            "preparation_scales": np.zeros((1, 3)),
        },
        {"preparation": np.array(json.dumps({"columns": [], "sparse": SCALED})), "preparation_scales": np.ones((1, 2))},
    ],
)
def test_what_was_not_saved_by_us_is_refused(arrays):
    with pytest.raises(DataError, match="this is no preparation that Colonnade saved"):
        LearnedPreparation.from_arrays(arrays)
    assert LearnedPreparation.from_arrays(changed()).names == ("x",)


# -- from files to a model --------------------------------------------------------------------------------------------


def test_from_two_organisations_files_to_one_model(tmp_path):
    rng = np.random.default_rng(0)
    rows = 300
    age, city = rng.normal(40, 10, rows), rng.choice(["Paris", "Rome", "Oslo"], rows)
    spent = rng.exponential(100, rows)
    y = (age + 20 * (city == "Rome") + spent / 10 > 57).astype(int)
    bank = ["id,age,city,default"]
    bank += [f"{n:05},{'' if n % 9 == 0 else age[n]},{city[n]},{'' if n == 5 else y[n]}" for n in range(rows)]
    (tmp_path / "bank.csv").write_text("\n".join(bank))
    shop = ["id;spent", *(f"{n:05};{spent[n]}" for n in range(rows))]
    (tmp_path / "shop.csv").write_text("\n".join(shop))
    (tmp_path / "bank.toml").write_text('[data]\nsource = "bank.csv"\nid = "id"\nlabel = "default"\n')
    (tmp_path / "shop.toml").write_text(
        '[data]\nsource = "shop.csv"\nid = "id"\n[prepare]\nspent = ["log1p", "standardise"]'
    )
    parties, tests = [], []
    for name in ("bank", "shop"):
        party = toml.read(tmp_path / f"{name}.toml", PARTY)
        read = data.load(party["data"])
        labelled = np.arange(rows) != 5
        train, test = np.nonzero(labelled)[0][:200], np.nonzero(labelled)[0][200:]
        prepared = fit(read, party["prepare"], train)
        parties.append(prepared.party(name, read.take(train)))
        tests.append(prepared.party(name, read.take(test)))
    assert parties[0].columns == ("age", "city=Oslo", "city=Paris", "city=Rome")
    assert parties[0].ids[0] == "00000"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)
        model = cn.LogisticRegression(verbose=0).fit(*parties)
        assert model.score(*tests) > 0.85


def test_a_wrong_section_is_a_toml_error():
    with pytest.raises(TomlError, match=r"bank.toml, line 1, key prepare: must be a table of keys, got 5"):
        toml.parse(b"prepare = 5", PARTY, "bank.toml")
