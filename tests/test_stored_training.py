"""Every kind of model with prepared columns on the disk: the bits that it has in memory, or a sentence that refuses."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import colonnade as cn
from colonnade.alignment.protocol import align
from colonnade.blocks.bins import Bins
from colonnade.blocks.cuts import DenseValues
from colonnade.cli.main import main
from colonnade.errors import DataError, OptionError
from colonnade.families import family
from colonnade.families.checks import stored_words
from colonnade.jobs import model_file
from colonnade.jobs.party_file import read_party
from colonnade.jobs.tree_part import grows_trees, own_part
from colonnade.service.table_source import TableSource
from colonnade.service.training import take_part
from colonnade.streams.loading import load
from colonnade.streams.preparing import Storage
from colonnade.streams.scratch import Scratch
from colonnade.streams.stored_rows import StoredRows
from colonnade.streams.streamed_columns import StreamedColumns, opened
from report_jobs import trained
from test_report_jobs import short


@pytest.fixture
def small(monkeypatch):
    """Tables of tests are smaller than the two blocks of rows that streaming takes at the least."""
    for place in ("preparing", "streamed_columns"):
        monkeypatch.setattr(f"colonnade.streams.{place}.needed_memory", lambda *_: 1)


def with_little_memory(folder, job, parties):
    """The same parties, whose files allow less memory than their prepared columns need."""
    for name in parties:
        path = folder / f"{name}.toml"
        path.write_text(path.read_text().replace(f'source = "{name}.csv"', f'source = "{name}.csv"\nmemory = "1kB"'))
    return {name: replace(party, data=read_party(folder / f"{name}.toml", job).data) for name, party in parties.items()}


def models(job, parties):
    """Train in a simulation, and return a digest of every party's part."""
    done = {}

    def program_of(name):
        party, how = parties[name], {"trees": grows_trees(job)}
        room = Storage.of(party.data, party.folder)
        source = TableSource(load(party.data, home=party.folder), party.prepare, room=room, **how)

        async def program(net):
            own = lambda prepared: own_part(job, party, prepared.columns, prepared.categories)  # noqa: E731
            check = partial(party.policy.check_part, name)
            done[name] = await take_part(net, job, source, align, check, own=own)

        return program

    cn.Simulation().run({name: (program_of(name), ()) for name in parties})
    return {name: model_file.digest(job.family, one.state) for name, one in done.items()}


@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
@pytest.mark.parametrize(
    ("kind", "protection"),
    [("logistic", "masked"), ("softmax", "masked"), ("kernel", "masked"), ("trees", "sealed"), ("trees", "plain")],
)
def test_a_model_has_the_bits_that_it_has_in_memory(tmp_path, small, monkeypatch, kind, protection):
    folder, job, parties = trained(tmp_path, kind, protection, more=short)
    known, stored, plain = models(job, parties), [], StreamedColumns.__init__
    monkeypatch.setattr(StreamedColumns, "__init__", lambda self, *given: (stored.append(self), plain(self, *given))[1])
    assert models(job, with_little_memory(folder, job, parties)) == known
    assert stored  # or nothing was on the disk


@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_sealed_linear_models_are_refused_in_a_sentence(tmp_path, small):
    folder, job, parties = trained(tmp_path, "logistic", "sealed", more=short)
    with pytest.raises(OptionError, match="sealed training has all of them in memory; raise memory, or train what"):
        models(job, with_little_memory(folder, job, parties))


def test_check_says_before_a_run_what_is_refused_in_it(tmp_path, capsys):
    folder, *_ = trained(tmp_path, "logistic", "sealed", more=short)
    path = folder / "bank.toml"
    text = path.read_text()
    for memory, said in (("1kB", True), ("1MB", False)):
        path.write_text(text.replace('source = "bank.csv"', f'source = "bank.csv"\nmemory = "{memory}"'))
        assert main(["check", str(folder / "job.toml"), "--as", "bank"]) == 3
        assert ("if all rows are common" in " ".join(capsys.readouterr().out.split())) == said
    assert "training a network model" in stored_words(family("torch"), "bank")


@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_check_says_where_memory_is_too_small_to_read_from_the_disk(tmp_path, capsys):
    folder, *_ = trained(tmp_path, "logistic", "masked", more=short)
    path = folder / "bank.toml"
    text = path.read_text()
    for memory, said in (("1kB", True), ("100MB", False)):
        path.write_text(text.replace('source = "bank.csv"', f'source = "bank.csv"\nmemory = "{memory}"'))
        main(["check", str(folder / "job.toml"), "--as", "bank"])
        shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
        assert ("if all rows are common: memory is" in shown) == said
        assert ("allow that under [data]" in shown) == said


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("memory", [3_000, 60_000])
def test_cells_are_those_of_the_table_in_memory(tmp_path, small, kind, memory):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((1500, 6)).astype(kind)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, 2] = rng.integers(0, 12, 1500)
    X[:, 4] = np.round(X[:, 4])
    stored = StoredRows.made(Scratch(tmp_path), X.shape, X.dtype, memory)
    stored.write(0, X)
    columns = opened(stored)
    for some in ({}, {"categorical": [2], "least": 20}, {"bins": 9}):
        found, known = Bins.of(columns, **some), Bins.of(X, **some)
        assert all(np.array_equal(one, known.to_arrays()[name]) for name, one in found.to_arrays().items())
        assert np.array_equal(found.cells(columns), known.cells(X))
        assert np.array_equal(found.counted(columns), known.counted(X))
    sample = np.sort(rng.choice(1500, 300, replace=False))

    for one, other in zip(
        columns.values_apart().distinct(sample, np.arange(6)),
        DenseValues(X).distinct(sample, np.arange(6)),
        strict=True,
    ):
        assert one[0] == other[0]
        assert np.array_equal(one[1], other[1])
        assert np.array_equal(one[2], other[2])
    X[7, 3] = np.inf
    stored.write(7, X[7:8])
    with pytest.raises(DataError, match="column 3 has infinite values"):
        Bins.of(columns)
