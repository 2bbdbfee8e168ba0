"""A party's data: every format comes in as it was written, and what can't is refused in one sentence with its place."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import ColonnadeWarning, DataError, InputError, LabelError, TomlError
from colonnade.settings import toml
from colonnade.settings.settings import Key, Section
from colonnade.tables import libsvm, preparation
from colonnade.tables.data import SECTION, load
from colonnade.tables.table import Table

PARTY = Section(Key("data", SECTION, required=True))
TABLE = "id,age,city,default\n007,31,Paris,1\n010,,Rome,\n011,45.5,,0\n"


@pytest.fixture
def read(tmp_path):
    """Reads [data] of a TOML file next to the files of the test."""

    def read(section, files=(), **options):
        for name, content in dict(files).items():
            (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        (tmp_path / "bank.toml").write_text("[data]\n" + section)
        return load(toml.read(tmp_path / "bank.toml", PARTY)["data"], **options)

    return read


def refused(read, sentence, section, files=(), error=InputError, **options):
    with pytest.raises(error) as caught:
        read(section, files, **options)
    message = str(caught.value)
    assert sentence in message
    assert message.startswith("bank.toml, line ")
    assert "\n" not in message


def texts(column):
    return [None if code < 0 else column.categories[code] for code in column.codes]


# -- CSV --------------------------------------------------------------------------------------------------------------


def test_a_csv_file(read):
    table = read('source = "a.csv"\nid = "id"\nlabel = "default"', {"a.csv": TABLE})
    assert table.ids.tolist() == ["007", "010", "011"]
    assert table.label.tolist() == [1, None, 0]
    assert list(table.columns) == ["age", "city"]
    np.testing.assert_array_equal(table.columns["age"].values, [31, np.nan, 45.5])
    assert texts(table.columns["city"]) == ["Paris", "Rome", None]
    assert table.rows == 3
    part = table.take([2, 0])
    assert part.ids.tolist() == ["011", "007"]
    assert texts(part.columns["city"]) == [None, "Paris"]
    assert part.label.tolist() == [0, 1]


def test_columns_and_exclude(read):
    files = {"a.csv": TABLE}
    assert list(read('source = "a.csv"\ncolumns = ["city", "age"]', files).columns) == ["city", "age"]
    assert list(read('source = "a.csv"\nexclude = ["city", "id"]', files).columns) == ["age", "default"]
    assert read('source = "a.csv"\ncolumns = ["age"]', files).ids is None


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "2", "30"], [1, 2, 30]),
        (["007", "8", "9"], ["007", "8", "9"]),
        (["a", "1", "2"], ["a", "1", "2"]),
        (["-1", "0", "123456789012345678"], [-1, 0, 123456789012345678]),
        (["+1", "2", "3"], ["+1", "2", "3"]),
        (["1.0", "2.0", "3.0"], ["1.0", "2.0", "3.0"]),
        (["2024-01-01", "2024-01-02", "2024-01-03"], ["2024-01-01", "2024-01-02", "2024-01-03"]),
        (["true", "false", "yes"], ["true", "false", "yes"]),
        (["12345678901234567890", "1", "2"], ["12345678901234567890", "1", "2"]),
    ],
)
def test_ids_stay_as_they_were_written(read, cells, expected):
    content = "id,x\n" + "".join(f"{cell},1\n" for cell in cells)
    ids = read('source = "a.csv"\nid = "id"', {"a.csv": content}).ids.tolist()
    assert ids == expected
    assert [type(value) for value in ids] == [type(value) for value in expected]


def test_an_id_with_a_zero_in_front_far_below_the_first_rows_is_no_number(read):
    content = "id,x\n" + "".join(f"{n},1\n" for n in range(30_000)) + "00030000,1\n"
    ids = read('source = "a.csv"\nid = "id"', {"a.csv": content}).ids
    assert (ids[0], ids[-1]) == ("0", "00030000")


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["0", "1", "1"], [0, 1, 1]),
        (["0", "", "1"], [0, None, 1]),
        (["0.5", "", "1"], [0.5, np.nan, 1.0]),
        (["yes", "no", ""], ["yes", "no", None]),
        (["true", "false", "true"], ["true", "false", "true"]),
        (["01", "02", "01"], ["01", "02", "01"]),
    ],
)
def test_labels_stay_what_they_are(read, cells, expected):
    content = "y,x\n" + "".join(f"{cell},1\n" for cell in cells)
    label = read('source = "a.csv"\nlabel = "y"', {"a.csv": content}).label.tolist()
    np.testing.assert_equal(label, expected)
    assert [type(value) for value in label] == [type(value) for value in expected]


@pytest.mark.parametrize(
    ("name", "content", "section"),
    [
        ("a.csv", b"\xef\xbb\xbfid,x\r\n1,2.5\r\n2,3\r\n", ""),
        ("a.csv", b"id;x\n1;2.5\n2;3\n", ""),
        ("a.csv", b"id|x\n1|2.5\n2|3\n", ""),
        ("a.csv", b'"id";"x"\n"1";"2,5"\n"2";"3"\n', 'decimal = ","'),
        ("a.csv", b"id~x\n1~2.5\n2~3\n", 'delimiter = "~"'),
        ("a.tsv", b"id\tx\n1\t2.5\n2\t3\n", ""),
        ("A.CSV", b"id,x\n1,2.5\n2,3\n", ""),
        ("A.TSV.GZ", gzip.compress(b"id\tx\n1\t2.5\n2\t3\n", mtime=0), ""),
        ("a.csv.gz", gzip.compress(b"id,x\n1,2.5\n2,3\n", mtime=0), ""),
        ("a.tsv.gz", gzip.compress(b"id\tx\n1\t2.5\n2\t3\n", mtime=0), ""),
        ("a*[b]?.csv", b"id,x\n1,2.5\n2,3\n", ""),
        ("it's a.csv", b"id,x\n1,2.5\n2,3\n", ""),
        ("a.csv", b" id , x\n1, 2.5\n2, 3\n", ""),
        ("a.csv", b"id,x\n1,2.5\n\n2,3", ""),
    ],
)
def test_ways_to_write_csv(read, name, content, section):
    table = read(f'source = "{name}"\nid = "id"\n{section}', {name: content})
    assert table.ids.tolist() == [1, 2]
    assert list(table.columns) == ["x"]
    assert table.columns["x"].values.tolist() == [2.5, 3.0]


def test_a_file_that_is_a_link(read, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "real.csv").write_text(TABLE)
    (tmp_path / "a.csv").symlink_to(tmp_path / "elsewhere" / "real.csv")
    (tmp_path / "folder").symlink_to(tmp_path / "elsewhere")
    for source in ("a.csv", "folder/real.csv", "elsewhere/../a.csv", "./a.csv"):
        assert read(f'source = "{source}"').rows == 3


def test_what_stands_for_a_missing_value(read):
    content = "a,b,c\n1,x,-999\nNA,NA,5\n3,?,-999.0\n"
    table = read('source = "a.csv"\nmissing = ["NA", "?", -999]', {"a.csv": content})
    np.testing.assert_array_equal(table.columns["a"].values, [1, np.nan, 3])
    assert texts(table.columns["b"]) == ["x", None, None]
    np.testing.assert_array_equal(table.columns["c"].values, [np.nan, 5, np.nan])


@pytest.mark.parametrize(
    ("mark", "section", "labels", "expected"),
    [
        ("-1", "", ["0", "-1", "1"], [0, None, 1]),
        ("-1", "", ["0", "-1.0", "1"], [0, None, 1]),
        ("9999999", "", ["0", "9999999", "1"], [0, None, 1]),
        ("1e7", "", ["0", "10000000", "1"], [0, None, 1]),
        ("-1", "", ["no", "-1", "yes"], ["no", None, "yes"]),
        ("-1", "", ["no", "-1.0", "yes"], ["no", None, "yes"]),
        ("9999999", "", ["no", "9999999", "yes"], ["no", None, "yes"]),
        ("0.125", "", ["no", "0.125", "yes"], ["no", None, "yes"]),
        ("0.125", 'decimal = ","', ["no", "0,125", "yes"], ["no", None, "yes"]),
        ("-1", 'decimal = ","', ["no", "-1,0", "yes"], ["no", None, "yes"]),
        ("-1", 'decimal = ","\ndelimiter = ","', ["0", "-1", "1"], [0, None, 1]),
    ],
)
def test_a_number_that_stands_for_a_missing_label(read, mark, section, labels, expected):
    delimiter = "," if "delimiter" in section else ";"
    content = f"y{delimiter}x\n" + "".join(f"{label}{delimiter}1\n" for label in labels)
    label = read(f'source = "a.csv"\nlabel = "y"\nmissing = [{mark}]\n{section}', {"a.csv": content}).label
    assert label.tolist() == expected


def test_kinds_of_columns(read):
    content = (
        "Age,age,flag,code,empty,late,word\n"
        + "1,2,true,007,,,nan\n1,2,true,7,,,x\n" * 12_000
        + "1.5,2,false,8,,7.5,x\n"
    )
    table = read('source = "a.csv"\ntext = ["age"]', {"a.csv": content})
    kinds = {name: type(column) for name, column in table.columns.items()}
    assert kinds == {
        "Age": Numbers, "age": Texts, "flag": Numbers, "code": Texts, "empty": Numbers, "late": Numbers, "word": Texts,
    }  # fmt: skip
    assert table.columns["Age"].values[-1] == 1.5  # although the first rows are whole numbers
    assert table.columns["flag"].values[[0, -1]].tolist() == [1.0, 0.0]
    assert np.isnan(table.columns["empty"].values).all()
    assert table.columns["late"].values[-1] == 7.5


ROWS = {"a.csv": "id,age,when,day\n1,30,2024-01-01,12:30\n2,31,2024-01-02,12:31\n"}
LATE = "id,age\n" + "".join(f"{n},{n % 90}\n" for n in range(30_000)) + "30000,abc\n30001,5\n30002,def\n"


@pytest.mark.parametrize(
    ("sentence", "section", "files"),
    [
        ("line 2, key data.source: the file", 'source = "b.csv"', {}),
        ("is not there; did you mean 'customers.csv'?", 'source = "custmers.csv"', {"customers.csv": "a\n1\n"}),
        ("is a folder", 'source = "../{folder}/x.csv"', {}),
        ("'a.xls' must end in one of .csv, .tsv", 'source = "a.xls"', {"a.xls": "x"}),
        ("'a.csv.bz2' must end in one of", 'source = "a.csv.bz2"', {"a.csv.bz2": "x"}),
        ("must be a file of this machine; fetch it first", 'source = "https://example.org/a.csv"', {}),
        ("give source (a file) or sql (a query)", 'id = "x"', {}),
        ("sql does not read from 'a.csv'; write FROM source in it", 'source = "a.csv"\nsql = "SELECT 1"', ROWS),
        ("line 3, key data.first_index: has no meaning for a.csv, only", 'source = "a.csv"\nfirst_index = 0', ROWS),
        ("line 3, key data.delimiter: must be one character", 'source = "a.csv"\ndelimiter = "::"', ROWS),
        ("key data.id: a.csv has no column 'ids', its columns are 'id', 'age', 'when', 'day'; did you mean 'id'?",
         'source = "a.csv"\nid = "ids"', ROWS),
        ("line 3, key data.label: a.csv has no column 'Age'", 'source = "a.csv"\nlabel = "Age"', ROWS),
        ("line 4, key data.columns[1]: a.csv has no column 'aeg'", 'source = "a.csv"\ncolumns = ["age",\n"aeg"]', ROWS),
        ("line 3, key data.exclude[0]: a.csv has no column 'ag'", 'source = "a.csv"\nexclude = ["ag"]', ROWS),
        ("key data.text[0]: a.csv has no column 'ag'", 'source = "a.csv"\ntext = ["ag"]', ROWS),
        ("column 'age' is listed twice", 'source = "a.csv"\ncolumns = ["age", "age"]', ROWS),
        ("column 'id' is the id already; leave it out", 'source = "a.csv"\nid = "id"\ncolumns = ["id"]', ROWS),
        ("column 'age' is the label already; leave it out", 'source = "a.csv"\nlabel = "age"\ncolumns = ["age"]', ROWS),
        ("column 'id' is the id already; give another one", 'source = "a.csv"\nid = "id"\nlabel = "id"', ROWS),
        ("give columns or exclude, not both", 'source = "a.csv"\ncolumns = ["age"]\nexclude = ["id"]', ROWS),
        ("no column of a.csv is left", 'source = "a.csv"\nexclude = ["id", "age", "when", "day"]', ROWS),
        ("column 'day' of a.csv holds times", 'source = "a.csv"\nexclude = ["when"]', ROWS),
        ("a.csv has no first line", 'source = "a.csv"', {"a.csv": ""}),
        ("the first line of a.csv holds numbers, it must name the", 'source = "a.csv"', {"a.csv": "1,2\n3,4\n"}),
        ("a.csv has no rows", 'source = "a.csv"', {"a.csv": "a,b\n"}),
        ("a.csv has two columns 'a'", 'source = "a.csv"', {"a.csv": "a,b,a\n1,2,3\n"}),
        ('a.csv is not UTF-8 text; write encoding = "latin-1"', 'source = "a.csv"',
         {"a.csv": "é,b\n1,2\n".encode("latin-1")}),
        ('a.csv, line 30002 is not UTF-8 text; write encoding = "latin-1" under [data]', 'source = "a.csv"',
         {"a.csv": b"a,b\n" + b"1,x\n" * 30_000 + "1,é\n2,x\n".encode("latin-1")}),
        ("a.csv, line 3 has 1 cells and the first line names 2", 'source = "a.csv"', {"a.csv": "a,b\n1,2\n3\n4,5\n"}),
        ("line 4 has 3 cells and the first line names 2", 'source = "a.csv"', {"a.csv": "a,b\n1,2\n3,4\n4,5,6\n"}),
        ("a.csv can't be read: some of its lines end as on", 'source = "a.csv"', {"a.csv": "a,b\n1,2\r\n3,4\n"}),
        ("a.csv, line 3: a quoted cell does not end", 'source = "a.csv"', {"a.csv": 'a,b\n1,2\n3,"x\n5,6\n'}),
        ("line 30002: column 'age' has 'abc', but other rows have numbers", 'source = "a.csv"', {"a.csv": LATE}),
        ("column 'age' of a.csv has 3 numbers and 1 other values, the first in row 3 ('x')",
         'source = "a.csv"', {"a.csv": "age,b\n1,1\n2,1\nx,1\n3,1\n"}),
        ("holds numbers with a comma; write decimal = \",\"", 'source = "a.csv"', {"a.csv": "a;b\n1,5;1\n2,5;1\n"}),
        ("holds numbers with a comma; write decimal = \",\"", 'source = "a.csv"', {"a.csv": "a;b\n1,5;1\n2;1\n3;1\n"}),
        ('column \'a\' of a.csv holds numbers with a point, and decimal = "," says', 'source = "a.csv"\ndecimal = ","',
         {"a.csv": "a;b\n1.234;1\n999;1\n"}),
        ("holds numbers with a point", 'source = "a.csv"\ndecimal = ","', {"a.csv": "a;b\n1.234,5;1\n9.999.999,5;1\n"}),
        ("holds numbers with a point", 'source = "a.csv"\ndecimal = ","', {"a.csv": "a;b\n1,5;1\n1.234,5;1\n2;1\n"}),
        ("column 'y' of a.csv holds numbers with a point", 'source = "a.csv"\nlabel = "y"\ndecimal = ","',
         {"a.csv": "y;b\n1.5;1\n2,5;1\n"}),
        ("line 30002: column 'a' has '1.234', but other rows have numbers", 'source = "a.csv"\ndecimal = ","',
         {"a.csv": "a;b\n" + "1,5;1\n" * 30_000 + "1.234;1\n"}),
        ("2 rows of a.csv have no id in column 'id', the first is row 2",
         'source = "a.csv"\nid = "id"', {"a.csv": "id,x\n1,1\n,1\n ,1\n"}),
        ("2 rows of a.csv have an id that a row before them has, the first is row",
         'source = "a.csv"\nid = "id"', {"a.csv": "id,x\n1,1\n1,1\n1,1\n2,1\n"}),
        ("no row of a.csv has a label", 'source = "a.csv"\nlabel = "y"', {"a.csv": "y,x\n,1\n,2\n"}),
        ("column 'y' of a.csv has 2 numbers and", 'source = "a.csv"\nlabel = "y"', {"a.csv": "y,x\n1,1\n0,2\nno,3\n"}),
    ],
)  # fmt: skip
def test_csv_that_is_refused(read, tmp_path, sentence, section, files):
    (tmp_path / "x.csv").mkdir()
    refused(read, sentence, section.replace("{folder}", tmp_path.name), files)


def test_points_in_text_are_no_numbers_where_fractions_begin_at_a_comma(read):
    content = "id;version;host\n1.5;1.2.3.4;a.b\n2.5;1.2.3.5;c.d\n"
    table = read('source = "a.csv"\nid = "id"\ndecimal = ","', {"a.csv": content})
    assert table.ids.tolist() == ["1.5", "2.5"]
    assert texts(table.columns["version"]) == ["1.2.3.4", "1.2.3.5"]
    assert texts(table.columns["host"]) == ["a.b", "c.d"]


GZIP = gzip.compress(b"id,x\n" + b"".join(b"%d,%d\n" % (n, n * 7919 % 977) for n in range(3000)), mtime=0)


@pytest.mark.parametrize("name", ["a.csv.gz", "a.svm.gz"])
@pytest.mark.parametrize("damage", ["cut", "body", "checksum", "start"])
def test_a_packed_file_that_is_damaged(read, name, damage):
    whole = GZIP if name == "a.csv.gz" else gzip.compress(b"1 1:5 2:7\n" * 3000, mtime=0)
    content = {
        "cut": whole[: len(whole) // 2],
        "body": whole[:12] + b"\xff" * 8 + whole[20:],  # zlib itself gives up
        "checksum": whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:],
        "start": b"nothing packed",
    }[damage]
    refused(read, f"{name} can't be ", f'source = "{name}"', {name: content}, DataError)


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), min_size=1, max_size=8).filter(
    lambda word: word.strip() == word
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(st.tuples(st.none() | FLOATS, st.none() | WORDS.map(lambda word: f"w{word}")), min_size=1, max_size=12),
    st.lists(WORDS.map(lambda word: f"n {word}"), min_size=2, max_size=2, unique=True),
    st.sampled_from(",;\t|"),
)
@example([(1.0, "w\n"), (None, 'w"'), (5e-324, "w''")], ["n \n", 'n "'], ";")
def test_csv_comes_back_as_it_was_written(read, rows, names, delimiter):
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
    table = read(
        f'source = "a.csv"\ndelimiter = {ascii(delimiter).replace(chr(39), chr(34))}', {"a.csv": file.getvalue()}
    )
    assert list(table.columns) == [name.strip() for name in names]
    numbers, words = table.columns.values()
    np.testing.assert_array_equal(numbers.values, [np.nan if number is None else number for number, _ in rows])
    if any(word for _, word in rows):
        assert texts(words) == [word for _, word in rows]
        assert words.categories.tolist() == sorted({word for _, word in rows if word})


def test_new_rows_are_read_as_the_training_rows_were(read, tmp_path):
    section = 'source = "a.csv"\nid = "id"\nlabel = "y"'
    files = {"a.csv": "id,code,y\n1,A1,0\n2,12,1\n3,A3,1\n", "b.csv": "id,code\n1,12\n2,13\n"}
    assert isinstance(read(section, files).columns["code"], Texts)
    new = read(section, files, source=tmp_path / "b.csv", labels=False, texts=["code"])
    assert texts(new.columns["code"]) == ["12", "13"]
    assert new.label is None
    # the label is no column to learn from, asked for or not
    assert list(read(section, files, labels=False).columns) == ["code"]
    refused(read, "b.csv has no column 'y'", section, files, source=tmp_path / "b.csv")


# -- Parquet ----------------------------------------------------------------------------------------------------------


def parquet(path, select):
    duckdb.sql(select).write_parquet(str(path))


def test_a_parquet_file(read, tmp_path):
    parquet(
        tmp_path / "a.parquet",
        """SELECT * FROM (VALUES
            (17, 1.5::FLOAT, 3::UTINYINT, 1.25::DECIMAL(9,2), true, 'Paris', 'low'::ENUM('low', 'high'), 9::HUGEINT, 0),
            (18, NULL, NULL, NULL, NULL, '', NULL, NULL, NULL),
            (19, 'nan'::FLOAT, 4, 2.5, false, 'Rome', 'high', 10, 1)
        ) t(id, float, small, decimal, flag, "the city", level, huge, y)""",
    )
    table = read('source = "a.parquet"\nid = "id"\nlabel = "y"\nmissing = [4]')
    assert table.ids.tolist() == [17, 18, 19]
    assert table.label.tolist() == [0, None, 1]
    found = {name: column.values for name, column in table.columns.items() if isinstance(column, Numbers)}
    assert found["float"].dtype == np.float32
    assert found["small"].dtype == np.float64
    np.testing.assert_array_equal(found["float"], [1.5, np.nan, np.nan])
    np.testing.assert_array_equal(found["small"], [3, np.nan, np.nan])
    np.testing.assert_array_equal(found["decimal"], [1.25, np.nan, 2.5])
    np.testing.assert_array_equal(found["flag"], [1, np.nan, 0])
    np.testing.assert_array_equal(found["huge"], [9, np.nan, 10])
    assert texts(table.columns["the city"]) == ["Paris", None, "Rome"]
    assert texts(table.columns["level"]) == ["low", None, "high"]


@pytest.mark.parametrize("kind", ["TINYINT", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL(9,1)", "VARCHAR"])
@pytest.mark.parametrize("source", ["parquet", "sql"])
def test_a_number_that_stands_for_a_missing_label_is_none_whatever_its_type(read, tmp_path, kind, source):
    parquet(tmp_path / "a.parquet", f"SELECT y::{kind} AS y, x FROM (VALUES (0, 1), (-1, 2), (1, 3)) t(y, x)")
    where = "sql = \"SELECT * FROM 'a.parquet' ORDER BY x\"" if source == "sql" else 'source = "a.parquet"'
    label = read(f'{where}\nlabel = "y"\nmissing = [-1]').label.tolist()
    absent = np.nan if isinstance(label[0], float) else None
    np.testing.assert_equal(label, ["0", None, "1"] if kind == "VARCHAR" else [0, absent, 1])


def test_a_fraction_that_stands_for_a_missing_label(read, tmp_path):
    parquet(tmp_path / "a.parquet", "SELECT y::FLOAT AS y, 1 AS x FROM (VALUES (0.5), (0.1), (1)) t(y)")
    table = read('source = "a.parquet"\nlabel = "y"\nmissing = [0.1]')
    np.testing.assert_array_equal(table.label, [0.5, np.nan, 1])


def test_true_and_false_are_no_numbers_that_could_be_missing(read, tmp_path):
    parquet(tmp_path / "a.parquet", "SELECT y, 1 AS x FROM (VALUES (true), (false)) t(y)")
    assert read('source = "a.parquet"\nlabel = "y"\nmissing = [0]').label.tolist() == [True, False]


@pytest.mark.parametrize(
    ("select", "section", "sentence"),
    [
        (
            "SELECT 1 AS x, [1, 2] AS y",
            "",
            "column 'y' of a.parquet is of type INTEGER[], numbers and text are allowed",
        ),
        ("SELECT 1 AS x, {'a': 1} AS y", "", "column 'y' of a.parquet is of type STRUCT"),
        ("SELECT 1 AS x, TIME '10:00:00' AS y", "", "column 'y' of a.parquet holds times"),
        ("SELECT 1 AS x, 1.5 AS y", 'id = "y"', "key data.id: column 'y' of a.parquet is of type DECIMAL, ids must be"),
        ("SELECT 1 AS x, DATE '2024-01-01' AS y", 'id = "y"', 'CAST("y" AS VARCHAR)'),
        ("SELECT 1 AS x, DATE '2024-01-01' AS y", 'label = "y"', "labels must be numbers, true and false, or text"),
        (
            "SELECT 1 AS x, NULL::BIGINT AS y",
            'id = "y"',
            "1 rows of a.parquet have no id in column 'y', the first is row 1",
        ),
        ("SELECT 1 AS x WHERE false", "", "a.parquet has no rows"),
        ("SELECT 1 AS x", 'decimal = ","', "has no meaning for a.parquet, only for csv"),
    ],
)
def test_parquet_that_is_refused(read, tmp_path, select, section, sentence):
    parquet(tmp_path / "a.parquet", select)
    refused(read, sentence, f'source = "a.parquet"\n{section}')


def test_ids_of_other_kinds(read, tmp_path):
    parquet(tmp_path / "a.parquet", "SELECT 17.0::DOUBLE AS id, uuid() AS long, 18446744073709551615::UBIGINT AS big")
    ids = read('source = "a.parquet"\nid = "id"\nexclude = ["long"]').ids
    assert (ids.tolist(), ids.dtype) == ([17], np.int64)
    assert len(read('source = "a.parquet"\nid = "long"').ids[0]) == 36
    assert read('source = "a.parquet"\nid = "big"\nexclude = ["long"]').ids.tolist() == [2**64 - 1]


def test_what_is_no_parquet(read):
    refused(read, "a.parquet can't be read: ", 'source = "a.parquet"', {"a.parquet": b"PAR1" * 100}, DataError)


# -- SQL --------------------------------------------------------------------------------------------------------------

FILES = {"people.csv": "id,age\n1,30\n2,40\n", "orders.csv": "id,paid\n2,5.5\n2,4.5\n1,7\n"}
JOIN = """sql = '''
SELECT p.id, age, sum(paid) AS paid
FROM 'people.csv' p JOIN 'orders.csv' o ON p.id = o.id  -- files beside the TOML file
GROUP BY ALL ORDER BY p.id;
'''
"""


def test_sql_over_files_beside_the_toml_file(read, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "people.csv").write_text("id,age\n1,99\n2,99\n")  # another file of the same name
    monkeypatch.chdir(elsewhere)
    table = read(JOIN + 'id = "id"', FILES)
    assert table.ids.tolist() == [1, 2]
    assert table.columns["age"].values.tolist() == [30, 40]
    assert table.columns["paid"].values.tolist() == [7, 10]
    assert os.getcwd() == str(elsewhere)


def test_sql_over_a_database(read, tmp_path):
    with duckdb.connect(str(tmp_path / "bank.duckdb")) as con:
        con.execute(
            "CREATE TABLE t AS SELECT 1 AS id, 2.5 AS x, 'b' AS y; CREATE SCHEMA s; CREATE TABLE s.u AS SELECT 3 AS z"
        )
    table = read('sql = "SELECT * FROM t, s.u"\ndatabase = "bank.duckdb"\nid = "id"\nlabel = "y"')
    assert table.columns["z"].values.tolist() == [3]
    assert table.label.tolist() == ["b"]


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ('sql = "SELEC 1"', 'line 2, key data.sql: DuckDB can\'t run this: syntax error at or near "SELEC"'),
        ("sql = \"SELECT nope FROM 'people.csv'\"", 'Referenced column "nope" not found'),
        ("sql = \"SELECT * FROM 'nowhere.csv'\"", "No files found"),
        ('sql = "SELECT 1; SELECT 2"', "must be one SELECT statement"),
        ("sql = \"COPY (SELECT 1) TO 'out.csv'\"", "must be one SELECT statement"),
        ('sql = "CREATE TABLE x AS SELECT 1"', "must be one SELECT statement"),
        ("sql = \"ATTACH 'x.duckdb'\"", "must be one SELECT statement"),
        ('sql = "INSTALL httpfs"', "must be one SELECT statement"),
        ('sql = ""', "must be one SELECT statement"),
        ("sql = \"SELECT * FROM 'https://example.org/a.csv'\"", "Cannot access file"),
        ("sql = \"SELECT * FROM read_parquet('s3://bucket/a.parquet')\"", "Cannot access file"),
        ('sql = "SELECT * FROM secret_variable"', "secret_variable does not exist"),
        ("sql = \"SELECT 1 AS a, TIME '10:00:00' AS b\"", "column 'b' of the result of sql holds times"),
        ('sql = "SELECT id FROM \'people.csv\'"\nid = "id"', "no column of the result of sql is left"),
        ('sql = "SELECT * FROM \'people.csv\' WHERE false"\nid = "id"', "the result of sql has no rows"),
        ('sql = "SELECT 1"\ndatabase = "nowhere.duckdb"', "line 3, key data.database: 'nowhere.duckdb' can't be read"),
        ('sql = "SELECT 1"\ndatabase = "a\\u0000b"', "key data.database: 'a\\x00b' can't be read (embedded null byte)"),
        ('sql = "SELECT 1"\ndatabase = "people.csv"', "line 3, key data.database: can't be opened"),
        (
            'source = "people.csv"\ndatabase = "x"',
            "line 3, key data.database: has no meaning for people.csv, only for sql",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:.*without an id and without ORDER BY")
def test_sql_that_is_refused(read, tmp_path, section, sentence):
    secret_variable = np.ones(3)  # noqa: F841
    before = {path.name for path in tmp_path.iterdir()} | {"bank.toml", *FILES}
    refused(read, sentence, section, FILES)
    assert {path.name for path in tmp_path.iterdir()} == before


OF_SOURCE = 'source = "people.csv"\nsql = "SELECT *, 2 * age AS twice FROM source"\nid = "id"\nlabel = "default"'
OF_A_FILE = "sql = \"SELECT *, 2 * age AS twice FROM {file}\"\nid = 'id'\nlabel = 'default'"


@pytest.mark.parametrize(
    "section",
    [OF_SOURCE, OF_A_FILE.format(file="'people.csv'"), OF_A_FILE.format(file="read_csv('people.csv', header = true)")],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_new_rows_go_through_the_same_query(read, tmp_path, section, kind):
    files = {"people.csv": "id,age,default\n1,30,0\n2,40,1\n", "new.csv": "id,age\n7,50\n8,60\n"}
    assert read(section, files).columns["twice"].values.tolist() == [60, 80]
    new = tmp_path / f"new.{kind}"
    if kind == "parquet":
        if "read_csv(" in section:
            return  # such a query reads CSV files alone
        duckdb.sql(f"COPY (SELECT * FROM '{tmp_path}/new.csv') TO '{new}'")
    if "read_csv(" in section:
        section = section.replace("label = 'default'", "")
    table = read(section, source=new, labels=False)
    assert table.columns["twice"].values.tolist() == [100, 120]
    assert table.ids.tolist() == [7, 8]


def test_a_query_over_a_source_of_another_encoding(read):
    section = (
        'source = "a.csv"\nencoding = "latin-1"\ndecimal = ","\nsql = "SELECT größe, stadt FROM source"\nid = "stadt"'
    )
    table = read(section, {"a.csv": "größe;stadt\n1,5;Köln\n2,5;Bonn\n".encode("latin-1")})
    assert table.columns["größe"].values.tolist() == [1.5, 2.5]
    assert table.ids.tolist() == ["Köln", "Bonn"]


def test_a_query_of_several_files_must_say_which_is_of_people(read, tmp_path):
    files = {**FILES, "new.csv": FILES["people.csv"]}
    section = "sql = \"SELECT * FROM 'people.csv' JOIN 'orders.csv' USING (id)\"\nid = 'id'"
    refused(read, "sql reads 2 files, and nobody can tell what new.csv stands for; write source", section, files,
            source=tmp_path / "new.csv")  # fmt: skip
    refused(read, "sql names no file, and nobody", 'sql = "SELECT 1 AS id"\nid = "id"', source=tmp_path / "new.csv")
    refused(read, "a query reads CSV and Parquet files, got 'a.svm'", 'source = "a.svm"\nsql = "SELECT * FROM source"',
            {"a.svm": "1 1:1\n"})  # fmt: skip


def test_sql_without_order_is_warned_about(read):
    with pytest.warns(ColonnadeWarning, match=r"bank.toml, line 2, key data.sql: without an id and without ORDER BY"):
        read("sql = \"SELECT * FROM 'people.csv'\"", FILES)


def test_a_database_is_never_changed_and_sqlite_is_read_where_duckdb_can(read, tmp_path):
    with sqlite3.connect(tmp_path / "bank.sqlite") as con:
        con.execute("CREATE TABLE t (id INTEGER, x REAL)")
        con.execute("INSERT INTO t VALUES (1, 2.5)")
    con.close()
    section = 'sql = "SELECT * FROM t"\ndatabase = "bank.sqlite"\nid = "id"'
    try:
        duckdb.connect(config={"autoinstall_known_extensions": False}).execute("LOAD sqlite")
    except duckdb.Error:
        refused(read, "DuckDB needs its extension sqlite for this: run INSTALL sqlite in DuckDB once", section)
    else:
        assert read(section).columns["x"].values.tolist() == [2.5]


# -- numpy ------------------------------------------------------------------------------------------------------------

X = np.arange(12.0).reshape(4, 3)


def packed(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def deflated(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


DEFLATED = deflated(X=np.random.default_rng(0).standard_normal((40, 3)))


def sparse(matrix, **others):
    matrix = sp.csr_matrix(matrix)
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": np.array(matrix.shape)}
    return packed(**{**parts, **others})


def test_an_array(read, tmp_path):
    np.save(tmp_path / "a.npy", X.astype(np.float32))
    (tmp_path / "ids.txt").write_text("007\n8\n9\n10\n")
    table = read('source = "a.npy"\nids = "ids.txt"\nexclude = ["x1"]')
    assert list(table.columns) == ["x0", "x2"]
    assert table.columns["x2"].values.dtype == np.float32
    assert table.columns["x2"].values.tolist() == [2, 5, 8, 11]
    assert table.ids.tolist() == ["007", "8", "9", "10"]
    (tmp_path / "ids.txt").write_text("7\n8\n9\n10")
    assert read('source = "a.npy"\nids = "ids.txt"').ids.tolist() == [7, 8, 9, 10]


def test_an_array_whose_header_is_damaged(read):
    file = io.BytesIO()
    np.save(file, X)
    content = file.getvalue().replace(b"(4, 3)", b"(4, 3 ")
    refused(read, "a.npy can't be read", 'source = "a.npy"', {"a.npy": content}, DataError)


def test_new_rows_need_not_have_what_the_model_leaves_out(read, tmp_path):
    files = {"a.csv": "id,x,y,label\n1,2,3,0\n2,3,4,1\n", "new.csv": "id,x\n7,8\n"}
    section = 'source = "a.csv"\nid = "id"\nlabel = "label"\nexclude = ["y"]\ntext = ["y"]'
    assert list(read(section, files).columns) == ["x"]
    table = read(section, files, source=tmp_path / "new.csv", labels=False)
    assert (list(table.columns), table.ids.tolist()) == (["x"], [7])


def test_new_rows_bring_their_own_ids(read, tmp_path):
    np.save(tmp_path / "b.npy", X[:2])
    files = {"a.svm": "1 1:1\n0 1:2\n", "b.svm": "1 1:3\n0 1:4\n", "ids.txt": "anna\nben\n"}
    np.save(tmp_path / "a.npy", X[:2])
    for name in ("svm", "npy"):
        section, new = f'source = "a.{name}"\nids = "ids.txt"', tmp_path / f"b.{name}"
        assert read(section, files).ids.tolist() == ["anna", "ben"]
        refused(read, "'ids.txt' has the ids of the training rows and b.", section, source=new, labels=False)
        (tmp_path / f"b.{name}.ids").write_text("carl\ndora\n")
        assert read(section, source=new, labels=False).ids.tolist() == ["carl", "dora"]
        (tmp_path / f"b.{name}.ids").write_text("carl\n")
        refused(read, f"b.{name} has 2 rows and 1 ids", section, source=new, labels=False)
    content = packed(X=X[:2], who=np.array(["emil", "fay"]))  # a file that brings them itself
    section = 'source = "c.npz"\nid = "who"\nids = "ids.txt"'
    assert read(section, {"c.npz": content}, source=tmp_path / "c.npz").ids.tolist() == ["emil", "fay"]


def test_arrays_together(read):
    content = packed(
        X=X, y=np.array([0, 1, np.nan, 1]), ids=np.array(["a", "b", "c", "d"]), columns=np.array(["p", "q", "r"])
    )
    table = read('source = "a.npz"\nid = "ids"\nlabel = "y"\ncolumns = ["r", "p"]', {"a.npz": content})
    assert {name: column.values.tolist() for name, column in table.columns.items()} == {
        "r": [2, 5, 8, 11],
        "p": [0, 3, 6, 9],
    }
    assert table.ids.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(table.label, [0, 1, np.nan, 1])
    # arrays that nobody asks for are not used
    assert read('source = "a.npz"', {"a.npz": content}).label is None


def test_a_csr_matrix(read, tmp_path):
    matrix = sp.csr_matrix(X * (X % 2))
    sp.save_npz(tmp_path / "a.npz", matrix)
    table = read('source = "a.npz"')
    assert table.sparse
    assert table.rows == 4
    assert (table.columns != matrix).nnz == 0
    assert table.names is None
    named = read('source = "b.npz"\nexclude = ["q"]', {"b.npz": sparse(matrix, columns=np.array(["p", "q", "r"]))})
    assert named.names == ("p", "r")
    assert (named.columns != matrix[:, [0, 2]]).nnz == 0
    assert (named.take([3, 1]).columns != matrix[[3, 1]][:, [0, 2]]).nnz == 0


def test_labels_of_text_may_be_empty(read):
    content = packed(X=X, y=np.array(["a", "", "b", "a"]))
    assert read('source = "a.npz"\nlabel = "y"', {"a.npz": content}).label.tolist() == ["a", None, "b", "a"]


CSR = sp.csr_matrix(X)


@pytest.mark.parametrize(
    ("content", "section", "sentence"),
    [
        (b"nonsense", "", "a.npz can't be read"),
        (packed(X=np.array([[1, "a"]], dtype=object)), "", "a.npz can't be read (Object arrays cannot be loaded"),
        (packed(Z=X), "", "a.npz must hold an array X, or data, indices, indptr and shape of a CSR matrix; it holds Z"),
        (packed(X=X[0]), "", "X of a.npz must be numbers in rows and columns, got float64 of shape (3,)"),
        (packed(X=X[:0]), "", "got float64 of shape (0, 3)"),
        (packed(X=X.astype(str)), "", "X of a.npz must be numbers"),
        (packed(X=X * 1j), "", "X of a.npz must be numbers"),
        (packed(X=X, columns=np.array(["p", "q"])), "", "columns of a.npz must be 3 different texts"),
        (packed(X=X, columns=np.array(["p", "q", "q"])), "", "columns of a.npz must be 3 different texts"),
        (packed(X=X), 'id = "ids"', "key data.id: a.npz has no array 'ids', its arrays are 'X'"),
        (packed(X=X, ids=X[:, 0]), 'id = "ids"', "ids must be whole numbers or text, got float64"),
        (packed(X=X, ids=np.arange(3)), 'id = "ids"', "a.npz has 4 rows and 3 ids"),
        (
            packed(X=X, ids=np.zeros(4, int)),
            'id = "ids"',
            "3 rows of a.npz have an id that a row before them",
        ),
        (
            packed(X=X, y=np.arange(3)),
            'label = "y"',
            "must be 4 numbers or texts, one per row, got int64 of shape (3,)",
        ),
        (packed(X=X, y=np.full(4, np.nan)), 'label = "y"', "no row of a.npz has a label"),
        (packed(X=X), 'columns = ["p"]', "a.npz has no column 'p', its columns are 'x0', 'x1', 'x2'"),
        (sparse(X, format=np.array(b"csc")), "", "a.npz holds a b'csc' matrix; save it as CSR"),
        (sparse(X, indices=CSR.indices + 9), "", "of a.npz are no CSR matrix"),
        (sparse(X, indptr=CSR.indptr[::-1].copy()), "", "of a.npz are no CSR matrix"),
        (sparse(X, shape=np.array([4])), "", "of a.npz are no CSR matrix"),
        (packed(X=X), 'ids = "nowhere.txt"', "nowhere.txt' can't be read"),
        (packed(X=X), 'ids = "a\\u0000b"', "a\\x00b' can't be read (embedded null byte)"),
        (packed(X=X)[:200], "", "a.npz can't be read (File is not a zip file)"),
        (packed(X=X).replace(X.tobytes()[8:16], bytes(8)), "", "a.npz can't be read (Bad CRC-32"),
        (DEFLATED[:150] + b"\xff" * 8 + DEFLATED[158:], "", "a.npz can't be read (Error -3"),
        (packed(X=X), 'ids = "gap.txt"', "line 2 of gap.txt is empty"),
        (packed(X=X), 'ids = "two.txt"', "a.npz has 4 rows and 2 ids"),
    ],
)
def test_arrays_that_are_refused(read, content, section, sentence):
    files = {"a.npz": content, "gap.txt": "1\n\n3\n4\n", "two.txt": "1\n2\n"}
    refused(read, sentence, f'source = "a.npz"\n{section}', files)


# -- LIBSVM -----------------------------------------------------------------------------------------------------------

SVM = "# made by hand\n+1 1:0.5 3:-2e3 # a comment : 5\n\n-1\t2:7\r\n1 \n"


def test_a_libsvm_file(read, tmp_path):
    files = {"a.svm": SVM, "b.svm.bz2": bz2.compress(SVM.encode()), "ids.txt": "x\ny\nz\n"}
    for name in ("a.svm", "b.svm.bz2"):
        table = read(f'source = "{name}"\nlabel = "label"\nids = "ids.txt"\nfeatures = 4', files)
        assert table.columns.toarray().tolist() == [[0.5, 0, -2000, 0], [0, 7, 0, 0], [0, 0, 0, 0]]
        assert table.label.tolist() == [1, -1, 1]
        assert table.ids.tolist() == ["x", "y", "z"]
    assert read('source = "a.svm"\nfirst_index = 0', files).columns.shape == (3, 4)
    assert read('source = "a.svm"', files).label is None  # a number that the format needs is no label


def test_rows_without_a_label(read):
    table = read('source = "a.svm"\nlabel = "label"', {"a.svm": "1:5\n0 2:3\n1.5 1:1\n"})
    np.testing.assert_array_equal(table.label, [np.nan, 0, 1.5])
    assert table.columns.toarray().tolist() == [[5, 0], [0, 3], [1, 0]]
    assert read('source = "a.svm"\nlabel = "label"', {"a.svm": "1:5\n0 2:3\n"}).label.tolist() == [None, 0]


@pytest.mark.parametrize(
    ("content", "section", "sentence"),
    [
        ("", "", "key data.source: a.svm has no rows"),
        ("# nothing\n\n", "", "a.svm has no rows"),
        ("1\n0\n", "", "a.svm has no number in any line"),
        ("1 1:1\n0 qid:3 1:1\n", "", "a.svm, line 2: groups of rows (qid) are for ranking"),
        ("1,3 1:1\n", "", "a.svm, line 1: several labels per row are not supported"),
        ("1 1:1\n\n0 1:nan\n", "", "a.svm, line 3: values must be finite numbers"),
        ("1 1:1\n0 1:1e999\n", "", "a.svm, line 2: a number is too large"),
        ("1 1:1\n0 abc:1\n", "", "a.svm, line 2: the character 'a' does not belong here"),
        ("1 1:1\n0 1\n", "", "a.svm, line 2: every word but the label must be index:value"),
        ("1 1:2:3\n", "", "a.svm, line 1: every word but the label must be index:value"),
        ("1 :2\n", "", "a.svm, line 1: every word but the label must be index:value"),
        ("1 1:\n", "", "a.svm, line 1: every word but the label must be index:value"),
        ("1 1: 2\n", "", "a.svm, line 1: every word but the label must be index:value"),
        ("1 1:1\n1 1.5:2\n", "", "a.svm, line 2: every word but the label must be index:value, with a whole number"),
        ("1 -1:2\n", "", "a.svm, line 1: every word but the label must be index:value, with a whole number"),
        ("1 1:1\n1 2:1.2.3\n1 1:1\n", "", "a.svm, line 2: a word is not a number"),
        ("1 1:1\n1 2:1.2.3 3:e\n1 1:1\n", "", "a.svm, line 2: a word is not a number"),
        ("1 1:1\n1 2:1\n1-1 1:1\n", "", "a.svm, line 3: a word is not a number"),
        ("1 0:1\n", "", "a.svm, line 1: index 0 is not between 1 and 2147483646; set first_index = 0 if indices begin"),
        (
            "1 1:1\n1 4:1\n",
            "features = 3",
            "a.svm, line 2: index 4 is not between 1 and 3; correct it, or set features",
        ),
        ("1 99999999999:1\n", "", "a.svm, line 1: index 99999999999 is not between"),
        ("1 1:1\n1 3:1 2:1 3:5\n", "", "a.svm, line 2: index 3 occurs twice"),
        ("1 1:1\n", 'label = "y"', 'key data.label: must be "label"'),
        ("1:1\n", 'label = "label"', "no row of a.svm has a label"),
        ("1 1:1\n", 'id = "x"', "key data.id: has no meaning for a.svm, only for sql, csv, parquet, arrow, npz"),
    ],
)
def test_libsvm_that_is_refused(read, content, section, sentence):
    refused(read, sentence, f'source = "a.svm"\n{section}', {"a.svm": content})


def test_what_is_not_packed(read):
    refused(read, "a.svm.gz can't be read", 'source = "a.svm.gz"', {"a.svm.gz": "1 1:1\n"})


MATRICES = st.integers(1, 6).flatmap(
    lambda width: st.lists(
        st.tuples(
            st.sampled_from([-1.0, 0.0, 1.0, 2.5, 1e-300]),
            st.dictionaries(st.integers(1, width), st.floats(-1e300, 1e300).filter(bool), max_size=width),
        ),
        min_size=1,
        max_size=20,
    )
)


@settings(deadline=None)
@given(MATRICES, st.integers(16, 200), st.randoms())
def test_libsvm_as_scikit_learn_reads_it(rows, block, random):
    lines = []
    for label, entries in rows:
        words = [f"{index}:{value!r}" for index, value in sorted(entries.items())]
        lines.append(
            random.choice(["", " "]) + " ".join([repr(label), *words]) + random.choice(["", " ", " # c:1", "\r"])
        )
        lines.extend(random.choice([[], [""], ["# comment 1:2"]]))
    text = "\n".join(lines).encode() + random.choice([b"", b"\n"])
    expected, labels = load_svmlight_file(io.BytesIO(text), n_features=6, zero_based=False)
    whole = libsvm._BLOCK
    try:
        libsvm._BLOCK = block  # many small blocks, which end anywhere
        found, ours = libsvm.read(io.BytesIO(text), "a.svm", width=6)
    finally:
        libsvm._BLOCK = whole
    np.testing.assert_array_equal(found.toarray(), expected.toarray())
    np.testing.assert_array_equal(ours, labels)
    assert found.has_canonical_format


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["1", "0", ":", " ", "\n", "#", ".", "e", "-", "+", "\t", "\r", "q", "\xff"]), max_size=30)
)
def test_any_text_is_a_matrix_or_one_sentence(pieces):
    text = "".join(pieces).encode("latin-1")
    try:
        found, labels = libsvm.read(io.BytesIO(text), "a.svm", first=0)
    except DataError as error:
        sentence = str(error)
    else:
        sentence = f"a.svm: {found.shape[0]} rows"
        assert found.shape[0] == len(labels)
        reread = io.BytesIO()
        dump_svmlight_file(found, np.nan_to_num(labels), reread, zero_based=True)
        assert (libsvm.read(io.BytesIO(reread.getvalue()), "b", 0, found.shape[1])[0] != found).nnz == 0
    assert sentence.startswith("a.svm")
    assert "\n" not in sentence


# -- all --------------------------------------------------------------------------------------------------------------


def test_duckdb_waits_until_it_is_needed():
    check = "import sys, colonnade.tables.data; print('duckdb' in sys.modules, 'scipy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True).stdout
    assert found.split() == ["False", "False"]


def test_neither_pandas_nor_pyarrow_is_needed(tmp_path):
    (tmp_path / "a.csv").write_text(TABLE)
    check = (
        "import sys; sys.modules['pandas'] = sys.modules['pyarrow'] = sys.modules['polars'] = None\n"
        "from colonnade.tables.data import SECTION, load\n"
        "from colonnade.settings.settings import check\n"
        f"print(load(check({{'source': {str(tmp_path / 'a.csv')!r}, 'id': 'id', 'label': 'default'}}, SECTION)))"
    )
    found = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True).stdout
    assert found == "Table(a.csv: 3 rows x 2 columns, ids, labels)\n"


def test_errors_have_the_class_of_what_they_are_about(read):
    refused(read, "", 'source = "a.csv"\nlabel = "id"\nid = "id"', ROWS, LabelError)
    refused(read, "", 'source = "a.csv"\nid = "nope"', ROWS, DataError)
    refused(read, "", 'source = "a.csv"\nidd = "nope"', ROWS, TomlError)


def test_every_example_of_the_page_is_allowed():
    page = (Path(__file__).parent.parent / "docs" / "data.md").read_text()
    examples = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    whole = Section(Key("data", SECTION), Key("prepare", preparation.SECTION))
    tables = [toml.parse(example.encode(), whole, "data.md") for example in examples]
    assert len(tables) == 4
    prepare = next(table["prepare"] for table in tables if table["prepare"] is not None)
    names = [name for name in prepare if name != "default"]
    words = {"city": ["Berlin", "Bonn"], "joined": ["01.02.2025", "31.12.2026"]}
    made = {name: Texts(np.arange(40, dtype=np.int32) % 2, np.array(words[name], dtype=object)) if name in words
            else Numbers(np.arange(40.0)) for name in names}  # fmt: skip
    prepared = preparation.fit(Table("customers.csv", made), prepare)
    assert prepared.names == ("income", "debts", "debts=(missing)", "city=Bonn", "joined")
