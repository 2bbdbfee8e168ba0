"""Tables and prepared columns beyond memory: the same numbers and the same bits as in memory, and clear refusals."""

from __future__ import annotations

import os
import subprocess
import sys

import duckdb
import numpy as np
import pytest

from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.row_blocks import BLOCK
from colonnade.blocks.second_order import Judgement
from colonnade.errors import DataError, TomlError
from colonnade.jobs.model_file import digest_of
from colonnade.settings.settings import Origin, check
from colonnade.settings.sizes import byte_size
from colonnade.streams.loading import load
from colonnade.streams.preparing import Storage, prepared
from colonnade.streams.scratch import NAME, Scratch
from colonnade.streams.stored_rows import StoredRows
from colonnade.streams.streamed_columns import StreamedColumns, opened
from colonnade.tables import data, preparation

try:
    import pyarrow
except ImportError:
    pyarrow = None

ROWS = 3000


def settings_of(folder, **given):
    return check(given, data.SECTION, Origin(folder=folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One table as one Parquet file, as three, and as CSV in one and in three files."""
    home = tmp_path_factory.mktemp("tables")
    con = duckdb.connect()
    con.execute("SELECT setseed(0.25)")
    con.execute(
        f"""CREATE TABLE t AS SELECT range AS id, round(random()::FLOAT, 4) AS a,
        CASE WHEN random() < 0.9 THEN round(random() * 100, 3) END AS b,
        ['red', 'green', 'blue', NULL][1 + (random() * 3.99)::INTEGER % 4] AS colour, (random() < 0.3)::INTEGER AS y,
        (DATE '2020-01-01' + (random() * 900)::INTEGER)::VARCHAR AS day FROM range({ROWS})"""
    )
    (home / "parts").mkdir()
    for form, ending in (("PARQUET", "parquet"), ("CSV", "csv")):
        con.execute(f"COPY t TO '{home}/whole.{ending}' (FORMAT {form})")
        for part in range(3):
            where = f"id >= {part * ROWS // 3} AND id < {(part + 1) * ROWS // 3}"
            con.execute(f"COPY (FROM t WHERE {where}) TO '{home}/parts/{part}.{ending}' (FORMAT {form})")
    if pyarrow is not None:
        for name in ("whole", *(f"parts/{part}" for part in range(3))):
            table = con.sql(f"FROM '{home}/{name}.parquet'").to_arrow_table()
            with pyarrow.ipc.new_file(home / f"{name}.arrow", table.schema) as file:
                file.write_table(table, max_chunksize=400)
    return home


def whole(folder, source="whole.parquet", **more):
    return data.load(settings_of(folder, source=source, id="id", label="y", **more))


def same_column(one, other):
    if hasattr(one, "codes"):
        return [*one.categories] == [*other.categories] and (one.codes == other.codes).all()
    return one.values.dtype == other.values.dtype and np.array_equal(one.values, other.values, equal_nan=True)


SOURCES = {
    "one Parquet file": {"source": "whole.parquet", "dtype": "float64"},
    "a pattern": {"source": "parts/*.parquet"},
    "a list": {"source": [f"parts/{part}.parquet" for part in range(3)], "dtype": "float64"},
    "one CSV file": {"source": "whole.csv", "dtype": "float64"},
    "CSV files": {"source": "parts/*.csv"},
    "CSV in a scratch": {"source": "parts/*.csv", "memory": "50MB"},
    "one Arrow file": {"source": "whole.arrow", "dtype": "float64"},
    "Arrow files": {"source": "parts/*.arrow"},
    "Arrow in a scratch": {"source": "parts/*.arrow", "memory": "50MB"},
    "a query in a scratch": {"sql": "SELECT * FROM 'parts/*.parquet' ORDER BY id", "memory": "50MB"},
}


@pytest.mark.parametrize("given", SOURCES.values(), ids=SOURCES)
def test_a_streamed_table_is_the_table(folder, tmp_path, given):
    if "arrow" in str(given):
        pytest.importorskip("pyarrow")
    plain = whole(folder, "whole.csv" if "csv" in str(given) else "whole.parquet")
    table = load(settings_of(folder, **given, id="id", label="y"), home=tmp_path)
    assert table.lazy
    assert table.rows == plain.rows
    assert (table.ids == plain.ids).all()
    assert (table.label == plain.label).all()
    assert list(table.columns) == list(plain.columns)
    assert all(same_column(table.columns[name], plain.columns[name]) for name in plain.columns)
    learned = preparation.fit(plain)
    assert preparation.fit(table) == learned
    assert np.array_equal(prepared(learned, table, Storage()), learned.apply(plain))
    # Rows in the order that an alignment gives, which is not that of the file.
    some = np.random.default_rng(1).permutation(ROWS)[: ROWS // 2]
    assert preparation.fit(table, None, some) == preparation.fit(plain, None, some)
    for rows in (some, np.sort(some), np.arange(ROWS) % 3 == 0, np.array([5, 7, 5])):
        expected = learned.apply(plain.take(rows))
        assert np.array_equal(prepared(learned, table.take(rows), Storage()), expected)
        assert np.array_equal(
            prepared(learned, table.take(rows), Storage(np.dtype("float32"))), expected.astype("float32")
        )


@pytest.mark.parametrize("more", [{}, {"memory": "50MB"}], ids=["files", "scratch"])
def test_ids_that_repeat_across_files_are_refused_or_left_out(folder, tmp_path, more):
    given = {"source": [f"parts/{part}.csv" for part in (0, 1, 2)], "id": "id", "label": "y", **more}
    (folder / "again.csv").write_bytes((folder / "parts/1.csv").read_bytes())
    given["source"].append("again.csv")
    with pytest.raises(DataError, match=r"1000 rows of 4 files \(0.csv, ...\) have an id that a row before them has"):
        load(settings_of(folder, **given), home=tmp_path)
    first = load(settings_of(folder, **given, duplicates="first"), home=tmp_path)
    plain = whole(folder, "whole.csv")
    assert (first.ids == plain.ids).all()
    assert (first.label == plain.label).all()
    assert all(same_column(first.columns[name], plain.columns[name]) for name in plain.columns)
    assert load(settings_of(folder, **given, duplicates="expand"), home=tmp_path).rows == ROWS + 1000


@pytest.mark.parametrize("given", [{"dtype": "float32"}, {"memory": "50MB"}])
@pytest.mark.parametrize("new", ["new.csv", "new.parquet", "new-*.csv"])
def test_new_rows_are_where_the_command_is_and_not_beside_the_party_s_file(folder, tmp_path, monkeypatch, given, new):
    for name in ("new.csv", "new-1.csv", "new.parquet"):
        (tmp_path / name).write_bytes((folder / f"parts/0.{name.split('.')[1]}").read_bytes())
    monkeypatch.chdir(tmp_path)
    settings = settings_of(folder, source="whole.csv" if "csv" in new else "whole.parquet", id="id", label="y", **given)
    assert load(settings, source=new, labels=False, home=tmp_path).rows == ROWS // 3


def test_prepared_columns_on_the_disk_are_those_in_memory(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("colonnade.streams.preparing.needed_memory", lambda *_: 0)
    table = load(settings_of(folder, source="parts/*.parquet", id="id", label="y", memory="100kB"), home=tmp_path)
    learned = preparation.fit(table)
    for rows in (np.arange(ROWS), np.random.default_rng(2).permutation(ROWS), np.arange(0, ROWS, 2)):
        room = Storage(np.dtype("float32"), 30_000, tmp_path)
        stored = prepared(learned, table.take(rows), room)
        memory = prepared(learned, table.take(rows), Storage(np.dtype("float32")))
        assert isinstance(stored, StoredRows)
        assert np.array_equal(stored[:], memory)
        assert np.array_equal(stored[np.array([7, 8, 9, 3])], memory[[7, 8, 9, 3]])
        assert digest_of(stored) == digest_of(memory)


@pytest.fixture(scope="module")
def block(tmp_path_factory):
    """More rows than four blocks have, in memory and in a file."""
    X = np.random.default_rng(3).standard_normal((4 * BLOCK + 777, 5)).astype(np.float32)
    stored = StoredRows.made(Scratch(tmp_path_factory.mktemp("party")), X.shape, X.dtype, 4 * BLOCK * 20)
    stored.write(0, X[:1000])
    stored.write(1000, X[1000:])
    return DenseColumns(X), StreamedColumns(stored)


def chosen_rows(count):
    rng = np.random.default_rng(4)
    return {
        "all": np.arange(count),
        "from the middle": np.arange(BLOCK + 4, count),
        "few": np.sort(rng.choice(count, 50, replace=False)),
        "every third": np.arange(1, count, 3),
        "every seventh": np.arange(5, count, 7),
        "in any order": rng.permutation(count)[:1000],
        "none": np.empty(0, np.int64),
    }


def assert_looks_alike(block, rows, rng):
    signal, weight, beside = rng.standard_normal(len(rows)), rng.random(len(rows)), rng.standard_normal((len(rows), 2))
    found = []
    for columns in block:
        scores, gradient, matrix = np.zeros(len(rows)), np.ones(7), np.ones((7, 7))

        def judge(at, end, z, scores=scores):
            scores[at:end] = z[:, 0]
            return Judgement(signal[at:end], weight[at:end], beside[at:end]) if at % 3 else None

        columns.look(rows, np.ones((5, 1)), judge, gradient, matrix, 2)
        found.append((scores, gradient, matrix))
    assert all((a == b).all() for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize(
    "which", ["all", "from the middle", "few", "every third", "every seventh", "in any order", "none"]
)
def test_streamed_columns_have_the_same_bits(block, which, threads, monkeypatch):
    monkeypatch.setenv("COLONNADE_THREADS", threads)
    memory, disk = block
    rows, rng = chosen_rows(memory.shape[0])[which], np.random.default_rng(5)
    assert disk.shape == memory.shape
    for outputs in (1, 3):
        W, signal = rng.standard_normal((5, outputs)), rng.standard_normal((len(rows), outputs))
        assert (disk.forward(rows, W) == memory.forward(rows, W)).all()
        found = [np.ones((5, outputs)) for _ in range(2)]
        for columns, G in zip(block, found, strict=True):
            columns.backward(rows, signal, 0.5, G)
        assert (found[0] == found[1]).all()
    weight = rng.random(len(rows))
    for name, shape in (("gram", (5, 5)), ("squares", (5,))):
        found = [np.ones(shape) for _ in range(2)]
        for columns, out in zip(block, found, strict=True):
            getattr(columns, name)(rows, weight, out)
        assert (found[0] == found[1]).all()
    if len(rows):
        assert_looks_alike(block, rows, rng)
    assert all((a == b).all() for a, b in zip(disk.entries(rows), memory.entries(rows), strict=True))
    assert (disk.part(rows, 1, 3) == memory.part(rows, 1, 3)).all()
    assert np.allclose(disk.project(rows, W), memory.project(rows, W))
    assert disk.nonzeros(rows) == memory.nonzeros(rows)


@pytest.mark.parametrize("which", ["all", "every third", "every seventh"])
def test_no_more_than_a_block_is_read_at_a_time(block, which, monkeypatch):
    _, disk = block
    rows, read, sizes = chosen_rows(disk.shape[0])[which], disk._stored.read, []

    def reading(first, last, into=None):
        sizes.append(last - first)
        return read(first, last, into)

    monkeypatch.setattr(disk._stored, "read", reading)
    disk.forward(rows, np.ones((5, 1)))
    disk.project(rows, np.ones((5, 3)))
    disk.backward(rows, np.ones((len(rows), 1)), 1.0, np.zeros((5, 1)))
    assert 0 < max(sizes) <= BLOCK


def test_what_streamed_columns_are_like(block):
    memory, disk = block
    assert disk.mean_square() == memory.mean_square()
    assert (disk.largest() == memory.largest()).all()
    kept, rows, W = np.array([3, 1]), np.arange(memory.shape[0]), np.ones((2, 1))
    assert (disk.only(kept).forward(rows, W) == memory.only(kept).forward(rows, W)).all()
    assert not disk.only(kept[:0]).forward(rows, W[:1]).any()
    assert isinstance(opened(np.zeros((2, 2))), DenseColumns)


def test_an_array_file_stays_mapped(tmp_path):
    X = np.random.default_rng(6).standard_normal((500, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    table = load(settings_of(tmp_path, source="x.npy", dtype="float32", exclude=["x1"]))
    assert (table.columns["x2"].values == X[:, 2]).all()
    learned = preparation.fit(table)
    plain = data.load(settings_of(tmp_path, source="x.npy", exclude=["x1"]))
    assert np.array_equal(prepared(learned, table, Storage(np.dtype("float32"))), learned.apply(plain))


def test_a_value_that_cannot_be_prepared_is_found_in_its_row(folder, tmp_path):
    learned = preparation.fit(whole(folder, columns=["a"]))
    con = duckdb.connect()
    infinite = f"SELECT id, CASE WHEN id = 2345 THEN 'inf' ELSE a END::FLOAT AS a FROM '{folder}/whole.parquet'"
    con.execute(f"COPY ({infinite}) TO '{tmp_path}/new.parquet'")
    table = load(settings_of(tmp_path, source="new.parquet", dtype="float32", id="id"), labels=False)
    with pytest.raises(DataError, match="infinite value in row 2346"):
        prepared(learned, table, Storage())
    with pytest.raises(DataError, match="infinite value in row 2346"):
        prepared(learned, table.take(np.arange(ROWS)[::-1].copy()), Storage())


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"source": "whole.parquet", "memory": "2 elephants"}, 'memory: must be a number and a unit, like "500MB"'),
        ({"source": "whole.parquet", "memory": "0GB"}, "must be above 0"),
        ({"source": "whole.parquet", "dtype": "float16"}, "must be one of"),
        ({"source": "parts/*.orc"}, "no file is like 'parts/\\*.orc'"),
        ({"source": ["whole.parquet", "whole.csv"]}, "'whole.parquet' is parquet and 'whole.csv' is csv"),
        ({"source": ["whole.parquet", "whole.parquet"]}, "is named twice"),
        ({"source": ["whole.parquet", "gone.parquet"]}, "'.*gone.parquet' is not there"),
        ({"source": "parts/*.csv", "sql": "SELECT * FROM source"}, "a query reads one file"),
        ({"source": ["whole.parquet", "s3://bank/x.parquet"]}, "give files of one place"),
        ({"source": "nothing://bank/x.parquet"}, "no store that fsspec knows"),
    ],
)
def test_wrong_sources_are_one_sentence(folder, given, says):
    with pytest.raises((DataError, TomlError), match=says) as error:
        load(settings_of(folder, **given))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("ending", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("id, 1.5 AS a", "2.{ending} has no column 'b', which 1.{ending} has"),
        ("id, 1.5 AS a, 2.5 AS b, 3 AS c", "2.{ending} has a column 'c', which 1.{ending} has not"),
        ("id, 'x' AS a, 2.5 AS b", "column 'a'"),
    ],
)
def test_files_that_differ_are_refused_by_file_and_column(tmp_path, ending, columns, says):
    con = duckdb.connect()
    for name, chosen in (("1", "id, 0.5 AS a, 0.25 AS b"), ("2", columns)):
        con.execute(f"COPY (SELECT {chosen} FROM (SELECT range AS id FROM range(9))) TO '{tmp_path}/{name}.{ending}'")
    with pytest.raises(DataError, match=says.format(ending=ending)):
        load(settings_of(tmp_path, source=f"*.{ending}", id="id"))


def test_ids_that_lose_digits_beside_another_files_floats_are_refused(tmp_path):
    """DuckDB reads whole numbers and floats of 32 bits together as floats of 32 bits."""
    con = duckdb.connect()
    con.execute(f"COPY (SELECT 16777217 AS id, 1.5 AS a) TO '{tmp_path}/1.parquet'")
    con.execute(f"COPY (SELECT 7::FLOAT AS id, 2.5 AS a) TO '{tmp_path}/2.parquet'")
    with pytest.raises(DataError, match="ids must be whole numbers or text"):
        load(settings_of(tmp_path, source="*.parquet", id="id"))
    con.execute(f"COPY (SELECT 5 AS id, 1.5 AS a) TO '{tmp_path}/1.parquet'")
    assert load(settings_of(tmp_path, source="*.parquet", id="id")).ids.tolist() == [5, 7]


def test_files_may_have_more_columns_than_are_named(tmp_path):
    con = duckdb.connect()
    con.execute(f"COPY (SELECT 1.5 AS a, 2 AS z FROM range(3)) TO '{tmp_path}/1.parquet'")
    con.execute(f"COPY (SELECT 'q' AS q, 2.5 AS a FROM range(2)) TO '{tmp_path}/2.parquet'")
    table = load(settings_of(tmp_path, source="*.parquet", columns=["a"]))
    assert table.columns["a"].values.tolist() == [1.5, 1.5, 1.5, 2.5, 2.5]


def test_too_little_memory_is_refused(folder, tmp_path):
    table = load(settings_of(folder, source="whole.parquet", id="id", memory="1kB"), home=tmp_path)
    learned = preparation.fit(table)
    with pytest.raises(DataError, match=r"memory is 1\.0 kB and 8 prepared columns need 2\.1 MB at least"):
        prepared(learned, table, Storage(None, 1000, tmp_path))
    stored = StoredRows.made(Scratch(tmp_path), (10, 2), np.float32, 1000)
    with pytest.raises(DataError, match=r"can't be streamed in 1\.0 kB"):
        StreamedColumns(stored)


@pytest.mark.parametrize(("text", "size"), [("2GB", 2 * 10**9), ("500 MB", 5 * 10**8), ("1.5GiB", 3 << 29), ("7b", 7)])
def test_sizes(text, size):
    assert byte_size(text) == size


# -- stores and scratches ----------------------------------------------------------------------------------------------


def test_a_store_is_read_as_files_are(folder):
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for part in range(3):
        store.pipe(f"/bank/{part}.parquet", (folder / "parts" / f"{part}.parquet").read_bytes())
    table = load(settings_of(folder, source="memory://bank/*.parquet", id="id", label="y"))
    plain = whole(folder)
    assert (table.ids == plain.ids).all()
    assert all(same_column(table.columns[name], plain.columns[name]) for name in plain.columns)
    with pytest.raises(DataError, match=r"there is no file 'memory://bank/gone\.parquet'"):
        load(settings_of(folder, source="memory://bank/gone.parquet", id="id"))
    store.pipe("/bank/x.csv", b"id,a\n1,2\n")
    with pytest.raises(DataError, match=r"read as Parquet, got 'x\.csv'"):
        load(settings_of(folder, source="memory://bank/x.csv", id="id"))


needs_posix = pytest.mark.skipif(os.name != "posix", reason="modes and names of open files are as on POSIX")


@needs_posix
def test_a_crash_leaves_nothing_to_read(tmp_path):
    crash = (
        "import os, sys; from pathlib import Path; import numpy as np\n"
        "from colonnade.streams.scratch import Scratch; from colonnade.streams.stored_rows import StoredRows\n"
        "scratch = Scratch(Path(sys.argv[1]))\n"
        "stored = StoredRows.made(scratch, (1000, 4), np.float32, 10**6); stored.write(0, np.ones((1000, 4)))\n"
        "scratch.file().write_bytes(b'private')\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", crash, str(tmp_path)], check=False)
    assert done.returncode == -9
    (left,) = [path for path in (tmp_path / NAME).iterdir() if path.is_dir()]
    assert left.stat().st_mode & 0o777 == 0o700
    files = list(left.iterdir())
    assert sum(path.stat().st_size for path in files) == len(b"private")  # the rows have no name, and are gone
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    living = Scratch(tmp_path)
    assert not left.exists()
    another = Scratch(tmp_path)  # which takes nothing from one that is at work
    assert living.path.exists()
    assert another.path != living.path
    living.close()
    assert not living.path.exists()
    assert another.path.exists()


@needs_posix
def test_rows_on_the_disk_take_no_memory(tmp_path):
    """Memory is counted, not time: 160 MB of prepared columns stream through 20 MB."""
    program = (
        "import resource, sys; from pathlib import Path; import numpy as np\n"
        "from colonnade.streams.scratch import Scratch; from colonnade.streams.stored_rows import StoredRows\n"
        "from colonnade.streams.streamed_columns import StreamedColumns\n"
        "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "def passes(rows):\n"
        "    stored = StoredRows.made(Scratch(Path(sys.argv[1])), (rows, 20), np.float32, 20_000_000)\n"
        "    for at in range(0, rows, 10_000): stored.write(at, np.ones((10_000, 20), np.float32))\n"
        "    columns, chosen = StreamedColumns(stored), np.arange(rows)\n"
        "    columns.gram(chosen, np.ones(rows), np.zeros((20, 20)))\n"
        "    columns.backward(chosen, np.ones((rows, 1)), 1.0, np.zeros((20, 1)))\n"
        "passes(20_000); before = peak(); passes(2_000_000); print(peak() - before)"
    )
    run = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, capture_output=True, text=True)
    assert int(run.stdout) < 100_000_000  # 32 MB of rows' numbers and weights, 20 MB of buffers, and room to spare


@pytest.mark.parametrize("more", [{"dtype": "float64"}, {}])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_folders_name_is_no_column(tmp_path, more, ending):
    """DuckDB would take a folder like a=5 for a column, even in the place of one of the file's own."""
    con = duckdb.connect()
    for number in (5, 6):
        (tmp_path / f"a={number}" / "b=7").mkdir(parents=True)
        rows = f"SELECT range + {number}0 AS id, range * 1.5 AS a FROM range(3)"
        con.execute(f"COPY ({rows}) TO '{tmp_path}/a={number}/b=7/1.{ending}'")
    for source, count in ((f"a=5/b=7/1.{ending}", 1), (f"*/*/1.{ending}", 2)):
        table = load(settings_of(tmp_path, source=source, id="id", **more))
        assert {name: column.values.tolist() for name, column in table.columns.items()} == {"a": [0, 1.5, 3] * count}
    if ending == "parquet":
        table = load(settings_of(tmp_path, sql="SELECT * FROM source", source="a=5/b=7/1.parquet", id="id", **more))
        assert [*table.columns] == ["a"]


@pytest.mark.parametrize("more", [{"dtype": "float64"}, {"memory": "50MB"}, {}])
def test_a_damaged_file_is_one_sentence(tmp_path, more):
    """DuckDB sees it as it reads the pages, long after it has seen that this is a Parquet file."""
    con = duckdb.connect()
    con.execute(f"COPY (SELECT range AS id, random() AS a FROM range(50000)) TO '{tmp_path}/1.parquet'")
    content = bytearray((tmp_path / "1.parquet").read_bytes())
    for at in range(len(content) // 3, 2 * len(content) // 3, 97):
        content[at] ^= 0xFF
    (tmp_path / "1.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"1\.parquet can't be read: ") as error:
        prepared(preparation.fit(table := load(settings_of(tmp_path, source="1.parquet", **more))), table, Storage())
    assert "\n" not in str(error.value)


# -- files that change between two passes ------------------------------------------------------------------------------


def another(folder, path, rows=ROWS):
    """Put another file in the place of one, as a nightly export does: as many rows, and other people in them."""
    new = path.with_name("new.tmp")
    con = duckdb.connect()
    con.execute(f"COPY (FROM '{folder}/whole.parquet' ORDER BY id DESC LIMIT {rows}) TO '{new}' (FORMAT PARQUET)")
    new.replace(path)


@pytest.mark.parametrize("source", ["whole.parquet", "*.parquet"])
@pytest.mark.parametrize("rows", [ROWS, 10])
def test_a_file_that_takes_anothers_place_between_two_passes_is_refused(folder, tmp_path, source, rows):
    path = tmp_path / "whole.parquet"
    path.write_bytes((folder / "whole.parquet").read_bytes())
    table = load(settings_of(tmp_path, source=source, id="id", label="y", dtype="float64"))
    learned = preparation.fit(table)
    another(folder, path, rows)
    for chosen in (table, table.take(np.arange(0, ROWS, 3)), table.take(np.arange(ROWS)[::-1].copy())):
        with pytest.raises(DataError, match=r"whole\.parquet was changed while it was being read; start again"):
            prepared(learned, chosen, Storage())
    with pytest.raises(DataError, match="was changed while it was being read"):
        _ = table.columns["a"]
    path.unlink()
    with pytest.raises(DataError, match="was changed while it was being read"):
        prepared(learned, table, Storage())


def test_an_array_file_that_is_written_to_is_refused_and_one_in_its_place_is_not_read(tmp_path):
    X = np.random.default_rng(6).standard_normal((500, 4))
    np.save(tmp_path / "x.npy", X)
    table = load(settings_of(tmp_path, source="x.npy", dtype="float64"))
    np.save(tmp_path / "new.npy", X + 1)
    (tmp_path / "new.npy").replace(tmp_path / "x.npy")
    assert (table.columns["x2"].values == X[:, 2]).all()  # of the file that was opened
    table = load(settings_of(tmp_path, source="x.npy", dtype="float64"))
    (tmp_path / "x.npy").touch()
    with pytest.raises(DataError, match=r"x\.npy was changed while it was being read"):
        _ = table.columns["x2"]


def test_a_store_whose_file_changes_is_refused(folder):
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    store.pipe("/shop/0.parquet", (folder / "parts" / "0.parquet").read_bytes())
    table = load(settings_of(folder, source="memory://shop/*.parquet", id="id", label="y"))
    assert len(table.columns["a"].values) == ROWS // 3
    store.pipe("/shop/0.parquet", (folder / "parts" / "1.parquet").read_bytes())
    with pytest.raises(DataError, match=r"0\.parquet was changed while it was being read"):
        _ = table.columns["a"]
