"""Dates of every spelling become days, and files of other encodings are read; what is unclear is said in a sentence."""

from __future__ import annotations

import gzip
from datetime import date

import numpy as np
import pytest

from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError, TomlError
from colonnade.settings import toml
from colonnade.settings.settings import check
from colonnade.tables import data
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.preparation import SECTION, fit
from colonnade.tables.table import Table


def texts(*values):
    known = sorted({value for value in values if value is not None})
    codes = [-1 if value is None else known.index(value) for value in values]
    return Texts(np.array(codes, dtype=np.int32), np.array(known, dtype=object))


def prepared(column, steps=None, **how):
    settings = check({} if steps is None else {"joined": steps}, SECTION)
    table = Table("a.csv", {"joined": column})
    learned = fit(table, settings, **how)
    again = LearnedPreparation.from_arrays(learned.to_arrays())
    assert again == learned
    return again.names, again.apply(table)


def days(year, month, day):
    return (date(year, month, day) - date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("written", "steps"),
    [
        (("31.12.2026", "1.2.2025"), None),
        (("31.12.26", "01.02.25"), None),
        (("2026-12-31", "2025-02-01"), None),
        (("2026-12-31T00:00:00Z", "2025-02-01 01:00:00+01:00"), None),
        (("2026/12/31", "2025/2/1"), None),
        (("31/12/2026", "01/02/2025"), None),
        (("12/31/2026", "02/01/2025"), None),
        (("31-12-2026", "01-02-2025"), "date"),
        (("12/31/2026", "02/01/2025"), {"date": "%m/%d/%Y"}),
        (("31 Dec 2026", "1 Feb 2025"), {"date": {"format": "%d %b %Y"}}),
    ],
)
def test_dates_of_every_spelling_become_days(written, steps):
    given = None if steps is None else [steps]
    _, X = prepared(texts(*written), given, trees=True)  # trees take numbers as they are
    assert X[:, 0].tolist() == [days(2026, 12, 31), days(2025, 2, 1)]
    _, X = prepared(texts(*written), given)
    np.testing.assert_allclose(X[:, 0], [1.0, -1.0])  # standardised, like other numbers


def test_parts_of_dates_are_columns_of_their_own():
    column = texts("31.12.2026", "01.02.2025", None)
    parts = {"format": "%d.%m.%Y", "parts": ["days", "year", "month", "day", "weekday", "hour"]}
    names, X = prepared(column, [{"date": parts}], trees=True)
    assert names == ("joined", "joined.year", "joined.month", "joined.day", "joined.weekday", "joined.hour")
    assert X[0].tolist() == [days(2026, 12, 31), 2026, 12, 31, date(2026, 12, 31).isoweekday(), 0]
    assert np.isnan(X[2]).all()
    names, X = prepared(column, [{"date": {"format": "%d.%m.%Y", "parts": ["month"]}}, "one-hot"])
    assert names == ("joined.month=2", "joined.month=12", "joined.month=(missing)")
    assert X.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_dates_may_be_numbers_and_texts_may_look_like_dates():
    _, X = prepared(Numbers(np.array([20261231.0, np.nan])), [{"date": "%Y%m%d"}], trees=True)
    assert X[0, 0] == days(2026, 12, 31)
    assert np.isnan(X[1, 0])
    names, _ = prepared(texts("1.1.2026", "2.1.2026"), ["one-hot"])
    assert names == ("joined=1.1.2026", "joined=2.1.2026")
    assert prepared(texts("1.2.3", "x"))[0] == ("joined=1.2.3", "joined=x")


@pytest.mark.parametrize(
    ("column", "steps", "sentence"),
    [
        (texts("01/02/2025", "03/04/2025"), None, "nobody can tell whether the day or the month comes first; write"),
        (
            texts("31.12.2026", "1.1.2026", "n/a"),
            None,
            "has dates like '1.1.2026' and 1 other values, the first is",
        ),
        (texts("31.02.2026", "1.1.2026"), None, "'31.02.2026' is no day of any calendar; correct it"),
        (texts("31.02.2026"), [{"date": "%d.%m.%Y"}], "has '31.02.2026' in 1 row, which is no date of the form '%d"),
        (texts("a", "b"), ["date"], "has the step date and holds 'a'; write how its dates are written"),
        (Numbers(np.array([1.0])), ["date"], "has the step date and holds numbers; write their format"),
    ],
)
def test_what_is_no_date(column, steps, sentence):
    with pytest.raises(DataError, match=sentence) as caught:
        prepared(column, steps)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ([{"date": {"parts": ["century"]}}], "with some of the parts days, year, month, day, weekday, hour, each once"),
        ([{"date": {"parts": ["day", "day"]}}], "each once"),
        ([{"date": 3}], "must be like { date = '%d.%m.%Y' }"),
        ([{"date": "d.m.Y"}], "must be a format like '%d.%m.%Y', or 'iso', got 'd.m.Y'"),
        (["impute", "date"], "a date comes before all other steps; write it first"),
    ],
)
def test_steps_of_dates_that_are_refused(steps, sentence):
    with pytest.raises(TomlError, match=sentence):
        prepared(texts("1.1.2026"), steps)


def test_a_date_that_comes_later_is_refused_by_its_name():
    learned = fit(Table("a.csv", {"joined": texts("31.12.2026", "1.1.2026")}))
    with pytest.raises(DataError, match=r"column 'joined' of new.csv has 'soon' in 1 row, which is no date"):
        learned.apply(Table("new.csv", {"joined": texts("soon")}))


def test_dates_of_sql_and_parquet_are_dates(tmp_path):
    (tmp_path / "bank.toml").write_text(
        "sql = \"SELECT DATE '2026-12-31' AS joined UNION ALL SELECT DATE '2026-12-30'\""
    )
    settings = toml.read(tmp_path / "bank.toml", data.SECTION)
    with pytest.warns(UserWarning, match="without an id"):
        table = data.load(settings)
    assert fit(table, trees=True).apply(table)[:, 0].tolist() == [days(2026, 12, 31), days(2026, 12, 30)]


# -- encodings -----------------------------------------------------------------------------------------------------

TEXT = "id;größe;stadt\n1;1,5;Köln\n2;2,5;5 €\n"


def read(tmp_path, content, key, name="a.csv"):
    (tmp_path / name).write_bytes(content)
    (tmp_path / "a.toml").write_text(f'source = "{name}"\ndecimal = ","\n{key}')
    return data.load(toml.read(tmp_path / "a.toml", data.SECTION))


@pytest.mark.parametrize(("encoding", "name"), [("windows-1252", "a.csv"), ("cp1252", "a.csv.gz"), ("utf-16", "a.csv")])
def test_files_of_other_encodings_are_read(tmp_path, encoding, name):
    content = TEXT.encode(encoding)
    table = read(tmp_path, gzip.compress(content) if name.endswith("gz") else content, f'encoding = "{encoding}"', name)
    assert list(table.columns) == ["id", "größe", "stadt"]
    assert table.columns["größe"].values.tolist() == [1.5, 2.5]
    assert table.columns["stadt"].categories.tolist() == ["5 €", "Köln"]


@pytest.mark.parametrize(
    ("content", "key", "sentence"),
    [
        (TEXT.encode("windows-1252"), "", 'a.csv is not UTF-8 text; write encoding = "windows-1252" under'),
        (TEXT.replace("€", "").encode("latin-1"), "", 'write encoding = "latin-1" under'),
        (TEXT.encode("utf-16"), "", 'write encoding = "utf-16" under'),
        (TEXT.encode("windows-1252"), 'encoding = "ascii"', 'is not ascii text, .*; write encoding = "windows-1252"'),
        (
            TEXT.encode(),
            'encoding = "klingon"',
            "must be the name of an encoding, such as \"latin-1\", .* got 'klingon'",
        ),
        (TEXT.encode(), 'encoding = "rot13"', "must be the name of an encoding"),
    ],
)
def test_a_wrong_encoding_is_named_with_the_right_one(tmp_path, content, key, sentence):
    with pytest.raises((DataError, TomlError), match=sentence):
        read(tmp_path, content, key)
