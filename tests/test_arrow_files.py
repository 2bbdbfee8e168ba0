"""Tables in Arrow files and tables of pyarrow: the same columns as in Parquet and as frames, and clear refusals."""

from __future__ import annotations

import datetime
import sys

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import DataError, OptionError
from colonnade.settings.settings import Origin, check
from colonnade.streams.loading import load
from colonnade.tables import data

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'colonnade[arrow]'")
from pyarrow import parquet  # noqa: E402

FEW = 500


def table():
    rng = np.random.default_rng(1)
    numbers = rng.standard_normal(FEW)
    day = datetime.date(2024, 1, 1)
    return pa.table(
        {
            "id": [f"c{number}" for number in range(FEW)],
            "single": pa.array(numbers.astype(np.float32)),
            "gaps": pa.array([None if n % 7 == 0 else n for n in range(FEW)], pa.int64()),
            "flag": pa.array([None if n % 50 == 3 else n % 3 == 0 for n in range(FEW)]),
            "price": pa.array([f"{n}.25" for n in range(FEW)]).cast(pa.decimal128(9, 2)),
            "city": pa.array([("Bonn", "Oslo", None, "")[n % 4] for n in range(FEW)]).dictionary_encode(),
            "note": pa.array([("a", "b", "-")[n % 3] for n in range(FEW)], pa.large_string()),
            "day": pa.array([None if n == 5 else day + datetime.timedelta(n) for n in range(FEW)]),
            "when": pa.array([datetime.datetime(2024, 1, 1, n % 24) for n in range(FEW)], pa.timestamp("us")),
            "label": pa.array([None if n % 90 == 1 else ("good", "bad")[n % 2] for n in range(FEW)]),
        }
    )


def written(path, table, **options):
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        file.write_table(table, max_chunksize=64)
    return path


def read(folder, source, **more):
    given = {"source": source, "id": "id", "label": "label", "missing": ["-", 7], **more}
    return load(check(given, data.SECTION, Origin(folder=folder)), home=folder)


def same(one, other):
    assert [*one.columns] == [*other.columns]
    for name in one.columns:
        a, b = one.columns[name], other.columns[name]
        if hasattr(a, "codes"):
            assert [*a.categories] == [*b.categories], name
            assert (a.codes == b.codes).all(), name
        else:
            assert a.values.dtype == b.values.dtype, name
            assert np.array_equal(a.values, b.values, equal_nan=True), name
    assert (one.ids == other.ids).all()
    assert [*one.label] == [*other.label]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("more", [{}, {"dtype": "float32"}, {"memory": "50MB"}], ids=["whole", "float32", "memory"])
def test_an_arrow_file_has_the_columns_of_a_parquet_file(tmp_path, compression, more):
    written(tmp_path / "t.arrow", table(), compression=compression)
    parquet.write_table(table(), tmp_path / "t.parquet")
    same(read(tmp_path, "t.arrow", **more), read(tmp_path, "t.parquet", **more))
    some = {"columns": ["day", "gaps"], **more}
    same(read(tmp_path, "t.arrow", **some), read(tmp_path, "t.parquet", **some))


def test_several_files_with_dictionaries_of_their_own(tmp_path):
    whole = table()
    other = whole.set_column(5, "city", pa.array(["Rome"] * FEW).dictionary_encode())
    for name, one in (("1", whole), ("2", other)):
        written(tmp_path / f"{name}.feather", one)
        parquet.write_table(one, tmp_path / f"{name}.parquet")
    given = {"columns": ["city", "single"]}
    found, known = (
        load(check({"source": f"*.{ending}", **given}, data.SECTION, Origin(folder=tmp_path)))
        for ending in ("feather", "parquet")
    )
    assert found.rows == known.rows == 2 * FEW
    assert [*found.columns["city"].categories] == ["Bonn", "Oslo", "Rome"]
    assert (found.columns["city"].codes == known.columns["city"].codes).all()
    assert (found.columns["single"].values == known.columns["single"].values).all()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: path.write_bytes(b""), "t.arrow can't be read (cannot mmap an empty file)"),
        (lambda path: path.write_bytes(b"PAR1" * 40), "t.arrow can't be read ("),
        (lambda path: path.write_bytes(b"FEA1" * 40), "Feather's first version); write it as an Arrow IPC file"),
        (lambda path: path.write_bytes(written(path, table()).read_bytes()[:-900]), "t.arrow can't be read ("),
        (lambda path: written(path, pa.table({"id": [1], "label": [1]})), "no column of t.arrow is left to learn from"),
        (lambda path: written(path, pa.table({"id": [1], "label": [1], "a": [[1, 2]]})), "column 'a' of t.arrow is of"),
        (lambda path: written(path, pa.table({"id": [1]})), "'label'"),
        (lambda path: written(path, pa.table([[1], [2]], ["id", "id"])), "t.arrow has two columns 'id'; rename one"),
        (
            lambda path: written(path, pa.table(dict.fromkeys(("id", "label", "a"), pa.array([], pa.int64())))),
            "t.arrow has no rows",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("more", [{}, {"dtype": "float32"}], ids=["whole", "streamed"])
def test_what_is_refused(tmp_path, make, sentence, more):
    make(tmp_path / "t.arrow")
    with pytest.raises(DataError) as error:
        read(tmp_path, "t.arrow", **more)
    assert sentence in str(error.value)


def test_damage_in_the_middle_is_one_sentence(tmp_path):
    path = written(tmp_path / "t.arrow", table(), compression="zstd")
    content = bytearray(path.read_bytes())
    content[2000:30000] = bytes(len(content[2000:30000]))
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"t\.arrow"):
        read(tmp_path, "t.arrow")


def test_without_pyarrow_it_says_what_to_install(tmp_path, monkeypatch):
    written(tmp_path / "t.arrow", table())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(OptionError, match=r"t\.arrow' is read with pyarrow; pip install 'colonnade\[arrow\]'"):
        read(tmp_path, "t.arrow")


def test_a_table_of_pyarrow_is_a_frame():
    numbers = table().select(["single", "gaps"])
    party = cn.Party("bank", numbers, columns=None)
    assert party.columns == ("single", "gaps")
    assert party.missing
    frame = cn.Party("bank", numbers.to_pandas())
    assert np.array_equal(party.X, frame.X, equal_nan=True)
    mixed = table().select(["gaps", "city", "day", "label"])
    kinds = {name: type(column).__name__ for name, column in cn.Party("bank", mixed).raw.columns.items()}
    assert kinds == {"gaps": "Numbers", "city": "Texts", "day": "Texts", "label": "Texts"}


def test_models_of_arrow_tables_are_those_of_frames():
    whole = pa.table({name: np.random.default_rng(n).standard_normal(FEW) for n, name in enumerate("abcd")})
    y = np.array(whole["a"]) + np.array(whole["c"]) > 0
    columns = {"bank": [0, 1], "shop": [2, 3]}
    found = [
        cn.LogisticRegression(protection="plain", verbose=0).fit(*cn.split(X, y, columns))
        for X in (whole, whole.to_pandas())
    ]
    assert cn.split(whole, y, columns)[1].columns == ("c", "d")
    assert np.array_equal(found[0].coef_["shop"], np.asarray(found[1].coef_["shop"]))


def test_duckdb_keeps_the_order_of_many_batches(tmp_path):
    many = pa.table({"id": np.arange(200_000), "label": np.arange(200_000) % 2, "a": np.arange(200_000) / 8})
    written(tmp_path / "t.arrow", many)
    for more in ({}, {"memory": "50MB"}):
        found = read(tmp_path, "t.arrow", missing=[], **more)
        assert (found.ids == np.arange(200_000)).all()
        assert (found.columns["a"].values == np.arange(200_000) / 8).all()
