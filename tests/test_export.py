"""A party's own part in other systems: DuckDB's SQL and ONNX's graphs give what the party adds to a score itself."""

from __future__ import annotations

import csv
import os
import re
import stat
from types import SimpleNamespace

import duckdb
import numpy as np
import pytest

from colonnade.cli import export
from colonnade.cli.main import main
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import OptionError
from colonnade.families import family
from colonnade.families.training import ScoringJob
from colonnade.integrations.linear_part import linear_part, names_of_scores
from colonnade.integrations.part_sql import part_sql
from colonnade.jobs import model_file
from colonnade.jobs.model_file import ModelPart
from colonnade.service.scoring import columns_of
from colonnade.tables.category_steps import Categories, OneHot
from colonnade.tables.dates import Date
from colonnade.tables.learned import Column, LearnedPreparation
from colonnade.tables.sparse_preparation import SparsePreparation
from colonnade.tables.steps import Clip, Impute, Log1p, Scale, Standardise
from colonnade.tables.table import Table
from colonnade.tables.woe import Woe
from test_federation import federation, run_all

PEOPLE = 60
CITIES = ["Oslo", "Rome", 'it\'s; -- "odd"\\', "Zürich", "new"]
RNG = np.random.default_rng(3)


def numbers(low=-3.0, high=3.0, gaps=True):
    x = RNG.uniform(low, high, PEOPLE)
    if gaps:
        x[::7] = np.nan
    return Numbers(x)


def texts(categories, gaps=True):
    codes = RNG.integers(-1 if gaps else 0, len(categories), PEOPLE).astype(np.int32)
    return Texts(codes, np.array(sorted(categories), dtype=object))


AT_LEAST = (3, 4, 5)  # goods and bads of bins
# {case: (the column as it was learned, its values)}
CASES = {
    "standardise": (Column("a", False, (Impute("mean", False, 0.3), Standardise(0.1, 1.7)), None, True), numbers()),
    "constant": (Column("a", False, (Impute("mean", False, 2.0), Standardise(2.0, 0.0)), None, True), numbers()),
    "indicator": (Column("a", False, (Clip(-1.5, 1.25), Impute("median", True, -0.7), Scale(3.1)), None, True),
                  numbers()),
    "amounts": (Column("a b", False, (Impute(1.0, False, 1.0), Clip(0.0, 1e9), Log1p(), Standardise(3.3, 0.2)), None,
                       True), numbers(-0.5, 1e6)),
    "as it is": (Column('x"; DROP TABLE t', False, (), None, True), numbers(gaps=False)),
    "one-hot": (Column("city", True, (), OneHot(categories=("Oslo", CITIES[2]), other=True, missing=True), True),
                texts(CITIES)),
    "reference": (Column("city", True, (), OneHot(categories=("Oslo", "Rome"), left_out=1), True), texts(CITIES)),
    "missing alone": (Column("city", True, (), OneHot(categories=("Rome",), missing=True), True), texts(CITIES)),
    "one-hot numbers": (Column("n", False, (), OneHot(categories=(1.0, 2.0, 7.5), other=True, missing=True), True),
                        Numbers(RNG.choice([1.0, 2.0, 7.5, 9.0, np.nan], PEOPLE))),
    "woe": (Column("a", False, (), Woe(edges=(-1.0, 0.25), goods=AT_LEAST, bads=(7, 3, 5), missing_bin=2), True),
            numbers()),
    "woe without gaps": (Column("a", False, (), Woe(edges=(0.0,), goods=(3, 9), bads=(7, 3)), True), numbers()),
    "woe of one bin": (Column("a", False, (), Woe(goods=(3,), bads=(7,)), True), numbers()),
    "woe texts": (Column("city", True, (), Woe(categories=("Oslo", "Rome", CITIES[2]), codes=(0, 1, 0), goods=AT_LEAST,
                  bads=(1, 8, 2), other_bin=2, missing_bin=1), True), texts(CITIES)),
    "woe numbers": (Column("n", False, (), Woe(categories=(1.0, 7.5), codes=(1, 0), goods=(4, 2), bads=(1, 8),
                    nominal=True), True), Numbers(RNG.choice([1.0, 2.0, 7.5, np.nan], PEOPLE))),
}  # fmt: skip
DATES = np.array(["2024-02-29", "2026-12-31", "1969-07-20"], dtype=object)
DATE_CASES = {
    "days": (Column("joined", True, (Impute("mean", False, 3.0), Standardise(1e4, 3e3)), None, True, date=Date("iso")),
             Texts(RNG.integers(-1, 3, PEOPLE).astype(np.int32), DATES)),
    **{part: (Column("joined", True, (), OneHot(categories=(4.0, 7.0, 12.0, 29.0, 2026.0), other=True, missing=True),
                     True, date=Date("iso", part)), Texts(RNG.integers(-1, 3, PEOPLE).astype(np.int32), DATES))
       for part in ("year", "month", "day", "weekday")},
    "with times": (Column("joined", True, (Standardise(0.0, 7.0),), None, True, date=Date("iso")),
                   Texts(RNG.integers(0, 5, PEOPLE).astype(np.int32), np.array(["2024-02-29 10:30",
                         "2024-02-29T10:30:15Z", "2026-12-31 23:59:59.5", "2024-05-05T12:00:00+02:00",
                         "2024-12-31 23:00:00-03"], dtype=object))),
    "hours": (Column("joined", True, (Standardise(0.0, 7.0),), None, True, date=Date("iso", "hour")),
              Texts(RNG.integers(0, 3, PEOPLE).astype(np.int32), np.array(["2024-02-29 10:30",
                    "2024-05-05T12:00:00+02:00", "2024-05-05"], dtype=object))),
    "another form": (Column("joined", True, (), None, True, date=Date("%d.%m.%Y")),
                     Texts(RNG.integers(0, 2, PEOPLE).astype(np.int32), np.array(["29.02.2024", "1.3.2025"], object))),
    "as a number": (Column("joined", False, (), None, True, date=Date("%Y%m%d")),
                    Numbers(RNG.choice([20240229.0, 20261231.0], PEOPLE))),
}  # fmt: skip


def part_of(columns, outputs=1, intercept=0.75, made="linear", classes=()):
    prepared = LearnedPreparation(columns)
    width = len(prepared.names)
    theta = RNG.normal(size=(width, outputs))
    start = None if intercept is None else np.full(outputs, intercept)
    public = {"family": made, "training": "ab12", "sum": "plain", "options": {}}
    return ModelPart("bank", public, (theta, start), np.array(classes, dtype=object), prepared.names, prepared)


def adds(part, table):
    """What the party itself adds to the scores of a table's rows."""
    kind = family(part.public["family"])
    scorer = kind.scorer("bank", ScoringJob(kind.name, ("bank",), "plain", "star"), part.state, None)
    X = part.prepared.apply(table, np.float64)
    return scorer.of(columns_of(X), np.arange(table.rows))


def into(con, table, name="bank"):
    """Put a table into DuckDB."""
    plain = {"id": [f"{row:03}" for row in range(table.rows)]}
    kinds = ["id VARCHAR"]
    for column, values in table.columns.items():
        text = isinstance(values, Texts)
        cells = (
            [None if code < 0 else values.categories[code] for code in values.codes] if text else values.values.tolist()
        )
        plain[column] = [None if cell is None or cell != cell else cell for cell in cells]
        quoted = column.replace('"', '""')
        kinds.append(f'"{quoted}" {"VARCHAR" if text else "DOUBLE"}')
    con.execute(f"CREATE TABLE {name} ({', '.join(kinds)})")
    con.executemany(
        f"INSERT INTO {name} VALUES ({', '.join('?' * len(plain))})", list(zip(*plain.values(), strict=True))
    )


def table_of(cases):
    return Table("test", {column.name: values for column, values in cases})


def in_duckdb(part, table, names=("contribution",), **how):
    con = duckdb.connect()
    con.execute("SET TimeZone = 'Asia/Tokyo'")  # which must not count
    into(con, table)
    sql = part_sql(linear_part(part), "bank", list(names), id_column="id", **how)
    found = con.execute(sql).fetchall()
    assert [one[0] for one in found] == [f"{row:03}" for row in range(table.rows)]
    return np.array([one[1:] for one in found], dtype=np.float64)


@pytest.mark.parametrize("case", [*CASES, *DATE_CASES])
def test_sql_gives_what_the_party_adds(case):
    both = {**CASES, **DATE_CASES}[case]
    part, table = part_of((both[0],)), table_of([both])
    expected = adds(part, table)
    assert len(np.unique(expected)) > 1 or case in ("constant", "woe of one bin")
    np.testing.assert_allclose(in_duckdb(part, table), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("outputs", [1, 3])
def test_columns_together(outputs):
    some = ["standardise", "amounts", "reference", "woe texts", "one-hot numbers"]
    cases = [CASES[name] for name in some if name not in ("woe texts",)]
    part, table = part_of(tuple(column for column, _ in cases), outputs), table_of(cases)
    names = names_of_scores(part, outputs)
    np.testing.assert_allclose(in_duckdb(part, table, names), adds(part, table), rtol=0, atol=1e-9)
    part = part_of(tuple(column for column, _ in cases), outputs, intercept=None)
    np.testing.assert_allclose(in_duckdb(part, table, names), adds(part, table), rtol=0, atol=1e-9)


def test_marks_of_missing_values_count_as_in_the_party_s_own_file():
    city, age = CASES["one-hot"][0], CASES["standardise"][0]
    marked = Table("test", {"city": Texts(np.array([0, 1, 2, 3], np.int32), np.array(["", "-1", "?", "Oslo"], object)),
                            "a": Numbers(np.array([-1.0, 2.0, -1.0, 3.0]))})  # fmt: skip
    bare = Table("test", {"city": Texts(np.array([-1, -1, -1, 0], np.int32), np.array(["Oslo"], object)),
                          "a": Numbers(np.array([np.nan, 2.0, np.nan, 3.0]))})  # fmt: skip
    part = part_of((city, age))
    np.testing.assert_allclose(in_duckdb(part, marked, missing=["?", -1]), adds(part, bare), rtol=0, atol=1e-9)


def test_what_colonnade_refuses_has_no_contribution_in_sql():
    part = part_of((CASES["as it is"][0],))
    table = Table("test", {part.columns[0]: Numbers(np.array([1.0, np.nan, 2.0]))})
    assert np.isnan(in_duckdb(part, table)[:, 0]).tolist() == [False, True, False]


def test_a_row_that_no_step_takes_does_not_end_the_statement():
    """`log1p` refuses -1 and below; DuckDB and PostgreSQL end a whole statement at the logarithm of such a number."""
    part = part_of((Column("a", False, (Log1p(), Standardise(0.3, 2.0)), None, True),))
    table = Table("test", {"a": Numbers(np.array([1.0, -1.0, 7.0, -3.0]))})
    found = in_duckdb(part, table)[:, 0]
    assert np.isnan(found).tolist() == [False, True, False, True]
    known = Table("test", {"a": Numbers(np.array([1.0, 7.0]))})
    np.testing.assert_allclose(found[[0, 2]], adds(part, known)[:, 0], rtol=0, atol=1e-9)


BESIDE = {"exposure": 'insured "years"', "offset": "base"}


def beside_of_rows():
    """A part of a count model, rows with what its party adds to their scores, and what the party brings in all."""
    columns = [CASES[name] for name in ("standardise", "one-hot")]
    part, table = part_of(tuple(column for column, _ in columns)), table_of(columns)
    years, base = RNG.uniform(0.1, 3.0, PEOPLE), RNG.normal(size=PEOPLE)
    expected = adds(part, table)[:, 0] + base + np.log(years)
    whole = {**table.columns, BESIDE["exposure"]: Numbers(years), BESIDE["offset"]: Numbers(base)}
    return part, Table("test", whole), expected


def test_exposures_and_offsets_are_added_as_in_a_prediction():
    part, table, expected = beside_of_rows()
    np.testing.assert_allclose(in_duckdb(part, table, beside=BESIDE)[:, 0], expected, rtol=0, atol=1e-9)
    table.columns[BESIDE["exposure"]].values[:3] = (0.0, -1.0, np.nan)  # as a file with these is refused
    found = in_duckdb(part, table, beside=BESIDE)[:, 0]
    assert np.isnan(found).tolist() == [True] * 3 + [False] * (PEOPLE - 3)


def test_names_can_not_leave_their_quotes():
    column = Column('"; DROP TABLE bank; --', False, (), None, True)
    part = part_of((column,))
    part.public["training"] = "x\nDROP TABLE bank;"
    table = Table("test", {column.name: numbers(gaps=False)})
    sql = part_sql(linear_part(part), 'my "own".bank', ["a\nb"])
    assert 'FROM "my ""own"""."bank"' in sql
    assert "\nDROP" not in sql
    np.testing.assert_allclose(in_duckdb(part, table), adds(part, table), rtol=0, atol=1e-9)
    con = duckdb.connect()
    into(con, table)
    con.execute(part_sql(linear_part(part), "bank", ["contribution"]))
    assert con.execute("SELECT count(*) FROM bank").fetchone() == (PEOPLE,)


@pytest.mark.parametrize(
    ("names", "more"), [(["a\0b"], {}), (["x"], {"id_column": "\0"}), (["x"], {"missing": ("n\0a",)})]
)
def test_no_statement_ends_before_its_end(names, more):
    part = part_of((Column("ward", True, (), OneHot(categories=("a", "b"), missing=True), True),))
    with pytest.raises(OptionError, match="with a character that SQL has no way to write, at "):
        part_sql(linear_part(part), "bank", names, **more)
    part = part_of((Column("ward", True, (), OneHot(categories=("a", "b\0'; --"), missing=True), True),))
    with pytest.raises(OptionError, match="with a character that SQL has no way to write, at "):
        part_sql(linear_part(part), "bank", ["x"])


@pytest.mark.parametrize(("part", "sentence"), [
    (part_of((CASES["standardise"][0],), made="averaged"), "only parts of linear models can be exported, and this is"),
    (part_of((CASES["standardise"][0],), made="sealed-trees"), "is of a tree model trained as 'sealed-trees'"),
    (part_of((CASES["standardise"][0],), made="kernel"), "score with `colonnade predict`"),
    (part_of((Column("c", True, (), Categories(categories=("a",)), True),)), "codes of categories, which only trees"),
])  # fmt: skip
def test_other_models_are_refused_in_a_sentence(part, sentence):
    with pytest.raises(OptionError) as caught:
        linear_part(part)
    assert sentence in str(caught.value)


def test_sparse_columns_and_odd_numbers_are_refused():
    part = part_of((CASES["standardise"][0],))
    sparse = ModelPart(
        "bank", part.public, part.state, part.classes, (), LearnedPreparation(sparse=SparsePreparation(3, None))
    )
    with pytest.raises(OptionError, match="the columns of 'bank' are a sparse matrix"):
        linear_part(sparse)
    part.state[0][:] = np.inf
    with pytest.raises(OptionError, match="the part holds the number inf"):
        part_sql(linear_part(part), "bank", ["contribution"])


# -- ONNX --------------------------------------------------------------------------------------------------------------


def in_onnx(part, table, *more):
    """Run the graph in onnxruntime, on a table as it would be given there."""
    pytest.importorskip("onnx", reason="onnx is not installed; `make integrations` has it")
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed; `make integrations` has it")
    from colonnade.integrations.part_onnx import part_onnx

    found = linear_part(part)
    session = runtime.InferenceSession(part_onnx(found, names_of_scores(part, found.outputs), *more))
    given = {}
    for name, values in table.columns.items():
        if isinstance(values, Texts):
            cells = ["" if code < 0 else values.categories[code] for code in values.codes]
            given[name] = np.array(cells, dtype=object)[:, None]
        else:
            given[name] = values.values[:, None]
    (contribution,) = session.run(["contribution"], given)
    assert session.get_modelmeta().custom_metadata_map["training"] == "ab12"
    return contribution


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_a_graph_gives_what_the_party_adds(case, outputs):
    if outputs > 1 and case.startswith("woe"):
        pytest.skip("models of bins have one score")
    column, values = CASES[case]
    part, table = part_of((column,), outputs), Table("test", {column.name: values})
    np.testing.assert_allclose(in_onnx(part, table), adds(part, table), rtol=0, atol=1e-9)


def test_a_graph_of_many_columns_with_names_like_its_own():
    cases = [CASES[name] for name in ("standardise", "indicator", "one-hot", "woe", "one-hot numbers")]
    named = zip(cases, (".isnan_0", ".constant_0", ".where_1", "..", ".sum"), strict=True)
    columns = [Column(name, one.text, one.steps, one.last, True) for (one, _), name in named]
    table = Table("test", {column.name: values for column, (_, values) in zip(columns, cases, strict=True)})
    part = part_of(tuple(columns))
    np.testing.assert_allclose(in_onnx(part, table), adds(part, table), rtol=0, atol=1e-9)


def test_a_graph_adds_exposures_and_offsets_too():
    part, table, expected = beside_of_rows()
    np.testing.assert_allclose(in_onnx(part, table, BESIDE)[:, 0], expected, rtol=0, atol=1e-9)


def test_what_a_graph_can_not_read_is_refused():
    pytest.importorskip("onnx", reason="onnx is not installed; `make integrations` has it")
    from colonnade.integrations.part_onnx import part_onnx

    with pytest.raises(
        OptionError, match="column 'joined' holds dates, which ONNX can't read; export the part with --to sql"
    ):
        part_onnx(linear_part(part_of((DATE_CASES["days"][0],))), ["contribution"])
    with pytest.raises(OptionError, match="a column is called 'contribution'"):
        part_onnx(linear_part(part_of((Column("contribution", False, (), None, True),))), ["contribution"])


# -- the command -------------------------------------------------------------------------------------------------------

NAMES = ("bank", "shop")


def scored(folder, name):
    """What each person has in the file of a party, by its exported SQL over its own CSV file, in DuckDB."""
    sql = (folder / f"{name}.sql").read_text()
    con = duckdb.connect()
    con.execute(f"CREATE TABLE \"{name}\" AS FROM read_csv('{folder / name}.csv', header = true)")
    return dict(con.execute(sql).fetchall())


def test_parts_of_a_job_add_up_to_its_scores(tmp_path, capsys, monkeypatch):
    folder = federation(tmp_path, NAMES, 'kind = "FedBCD"\nlocal_steps = 2\nepochs = 4\ntol = 0.0\npatience = 99')
    run_all(folder, NAMES)
    monkeypatch.chdir(folder)
    for name in NAMES:
        assert main(["export", "job.toml", "--as", name, "--to", "sql"]) == 0
        if os.name == "posix":
            assert stat.S_IMODE((folder / f"{name}.sql").stat().st_mode) == 0o600
    assert re.search(
        r"bank: the SELECT of what bank adds to a score of version \w+ is bank.sql", capsys.readouterr()[0]
    )
    both = {name: scored(folder, name) for name in NAMES}
    from colonnade.jobs.job_file import read_job
    from colonnade.jobs.party_file import read_party
    from colonnade.streams.loading import load

    job = read_job(folder / "job.toml")
    for name in NAMES:
        party = read_party(folder / f"{name}.toml", job)
        part = model_file.load(party.folder, name)
        table = load(party.data, labels=False, texts=part.prepared.texts)
        kind = family(part.public["family"])
        scorer = kind.scorer(name, ScoringJob(kind.name, job.holders, "plain", "star"), part.state, None)
        own = scorer.of(columns_of(part.prepared.apply(table)), np.arange(table.rows))[:, 0]
        expected = dict(zip(map(str, table.ids.tolist()), own.tolist(), strict=True))
        assert set(both[name]) == set(expected)
        for one, value in both[name].items():
            assert value == pytest.approx(expected[one], abs=1e-9)
    # And both together are the scores that predict gives.
    from test_federation import start

    server = start(folder, "shop", "serve", "--once")
    asker = start(folder, "bank", "predict", "--out", str(folder / "scores.csv"))
    assert asker.communicate(timeout=600)[0]
    assert (asker.wait(timeout=600), server.wait(timeout=600)) == (0, 0)
    with (folder / "scores.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row.get("p(good)")]
    assert len(rows) > 100
    for row in rows:
        z = both["bank"][row["id"]] + both["shop"][row["id"]]
        assert 1 / (1 + np.exp(-z)) == pytest.approx(float(row["p(good)"]), abs=1e-6)


def test_the_command_adds_what_the_party_s_own_file_names():
    part, table, expected = beside_of_rows()
    data = {"id": "id", "missing": None, **BESIDE}
    party, to = SimpleNamespace(name="bank", data=data), SimpleNamespace(to="sql", table=None)
    text, _ = export._content(to, None, party, part)
    con = duckdb.connect()
    into(con, table)
    found = np.array([one[1] for one in con.execute(text.decode()).fetchall()])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("arguments", "sentence"), [
    (["--to", "sql", "--out", "bank.csv"], "--to sql writes a file that ends in .sql, got 'bank.csv'"),
    (["--to", "onnx", "--table", "t"], "--table names a table of SQL, and --to onnx has none"),
    (["--to", "sql", "--out", "nowhere/bank.sql"], "--out 'nowhere/bank.sql' is in a folder that is not there"),
    (["--to", "points"], "has no part of a model"),
])  # fmt: skip
def test_wrong_exports_are_refused(tmp_path, capsys, arguments, sentence):
    folder = federation(tmp_path, NAMES, 'kind = "FedBCD"\nepochs = 4')
    capsys.readouterr()
    assert main(["export", str(folder / "job.toml"), "--as", "bank", *arguments]) == 1
    assert sentence in capsys.readouterr()[1]
