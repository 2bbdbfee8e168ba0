"""A job with an engine at some parties: the same messages, the same model, whoever makes the passes over the rows."""

from __future__ import annotations

import re

import numpy as np
import pytest

import colonnade as cn
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.phases import Layout
from colonnade.errors import OptionError, TomlError
from colonnade.families.kernel import KernelScorer
from colonnade.families.linear import LinearScorer
from colonnade.jobs.party_file import PARTY
from colonnade.service.scoring import columns_of, held_by
from colonnade.service.training import take_part
from colonnade.settings import toml
from colonnade.workers.engine import Engine
from colonnade.workers.refusals import read_engine
from test_job import GOOD
from test_job_training import Source, job_for
from workers_here import Here

ROWS = 700
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, 6)).astype(np.float32)
Y = np.where(X[:, 0] + X[:, 4] + RNG.standard_normal(ROWS) > 0, "yes", "no").astype(object)
NEWTON = GOOD.replace('kind = "FedBCD"\nlocal_steps = 3\nepochs = 7', 'kind = "BlockNewton"\nepochs = 12')
assert NEWTON != GOOD
TREES = GOOD.replace('kind = "logistic"\nl2 = 0.01', 'kind = "trees"\ntrees = 3\ndepth = 3').replace(
    '[algorithm]\nkind = "FedBCD"\nlocal_steps = 3\nepochs = 7\n', ""
)
JOBS = {
    "newton": (NEWTON, {}),
    "held out": (NEWTON, {"validation": 0.2}),
    "some rows": (NEWTON + "grow_from = 100\n", {}),
    "two holders": (NEWTON, {"holders": ("bank", "shop")}),
    "statistics": (NEWTON, {"statistics": True}),
    "l1": (NEWTON.replace("l2 = 0.01", "l2 = 0.01\nl1 = 0.01"), {}),
    "penalised": (NEWTON.replace("l2 = 0.01", "l2 = 0.01\npenalise_intercept = true"), {}),
    "kernel": (
        GOOD.replace('kind = "logistic"\nl2 = 0.01', 'kind = "kernel"\nfeatures = 64\ngamma = 0.1').replace(
            'kind = "FedBCD"\nlocal_steps = 3\nepochs = 7', 'kind = "FDSKL"\nepochs = 2\nbatch = 128'
        ),
        {},
    ),
    "trees": (TREES, {}),
    "trees in the open": (TREES, {"family": "trees", "algorithm": cn.OpenBoosting()}),
    "trees of some rows": (TREES.replace("trees = 3", "trees = 3\nrows = 0.5\nleaves = 5"), {"validation": 0.3}),
}


def sources(holders=("bank",)):
    """Rows need no alignment."""
    labels = dict.fromkeys(("bank", "shop"))
    for at, name in enumerate(holders):
        labels[name] = np.where(np.arange(ROWS) % len(holders) == at, Y, None)
    return {"bank": Source(X[:, :3], labels=labels["bank"]), "shop": Source(X[:, 3:], labels=labels["shop"])}


def trained(name, engines):
    """The states of both parties, and what was sent."""
    text, changes = JOBS[name]
    job = job_for(text, aligned=True, **changes)
    results = {}

    def program_of(party):
        async def program(net):
            given = sources(job.holders)[party]
            results[party] = await take_part(net, job, given, None, lambda *_: None, engine=engines.get(party))

        return program

    outcomes = cn.Simulation(secret="the same").run({party: (program_of(party), ()) for party in job.parties})
    sent = {party: outcome.traffic.bytes for party, outcome in outcomes.items()}
    return {party: results[party].state for party in results}, {p: results[p].statistics for p in results}, sent


def with_workers(count):
    found = Engine("processes", count)
    found._executor = Here(count)
    return found


def numbers(states):
    """All arrays of all parties' states, one after another."""
    if isinstance(states, dict | tuple):
        return [one for part in (states.values() if isinstance(states, dict) else states) for one in numbers(part)]
    return [states] if isinstance(states, np.ndarray) else []


def same_bits(one, other):
    return [part.tobytes() for part in numbers(one)] == [part.tobytes() for part in numbers(other)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of few rows, so that workers have several of them."""
    for module in ("blocks.row_blocks", "blocks.dense_columns", "workers.sharded_cells"):
        monkeypatch.setattr(f"colonnade.{module}.BLOCK", 64)


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_a_model_has_the_bits_of_a_run_without_an_engine_with_any_number_of_workers(name, monkeypatch):
    # Statistics turn columns by rotations of the system's randomness, which no two runs share.
    monkeypatch.setattr("colonnade.blocks.information.random_rotation", lambda width: np.eye(width)[::-1])
    states, statistics, sent = trained(name, {})
    assert any(part.any() for part in numbers(states))
    for count in (1, 2, 3):
        others, found, told = trained(name, {"bank": with_workers(count), "shop": with_workers(4 - count)})
        assert same_bits(others, states)
        assert same_bits(found, statistics)
        assert told == sent


def test_processes_end_with_the_run():
    engine = Engine("processes", 2)
    with engine:
        states, _, _ = trained("newton", {"bank": engine})
        processes = [engine.executor.process(worker) for worker in (0, 1)]
    assert all(process.returncode is not None for process in processes)
    assert same_bits(states, trained("newton", {"bank": with_workers(3)})[0])


@pytest.mark.parametrize("name", ["newton", "kernel", "trees"])
@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_a_worker_that_is_killed_in_the_middle_of_a_run_changes_no_bit(name, monkeypatch):
    states, _, sent = trained(name, {})
    asked = []
    with Engine("processes", 2) as engine:
        executor = engine.executor
        ask = executor.ask

        def killing(question, given):
            asked.append(question)
            if len(asked) in (3, 7):
                executor.process(len(asked) % 2).kill()
            return ask(question, given)

        monkeypatch.setattr(executor, "ask", killing)
        others, _, told = trained(name, {"bank": engine})
        assert executor.deaths == 2
    assert len(asked) >= 7
    assert same_bits(others, states)
    assert told == sent


def test_kernel_models_are_asked_for_predictions_at_the_workers():
    """Phases of a kernel cost much more than the row; scores of linear models and trees cost less, and stay here."""
    owner, rows = Layout(("bank",), 64, 64), np.arange(70)
    scorer = KernelScorer("shop", "rbf", owner, (None, b"directions", b"phases", 0.2))
    known = np.ones(70, dtype=bool)
    (expected,) = scorer.ready(None, columns_of(X[:70]), rows, known)
    for count in (1, 2, 3):
        engine = with_workers(count)
        with held_by(engine, scorer)(X[:70]) as columns:
            (found,) = scorer.ready(None, columns, rows, known)
            assert all(len(holder._kept) == 1 for holder in engine.executor.holders)
        assert found.tobytes() == expected.tobytes()
        assert not any(holder._kept for holder in engine.executor.holders)
    linear = LinearScorer((np.ones((6, 1)), None))
    with held_by(with_workers(2), linear)(X) as columns:
        assert isinstance(columns, DenseColumns)


ENGINE = 'kind = "processes"\nworkers = 2'


def read(text, name="newton", **changes):
    file = (
        "[engine]\n" + text + '\n[certificates]\nauthority = "a"\ncertificate = "b"\nkey = "c"\n[data]\nsource = "x"\n'
    )
    settings = toml.parse(f'name = "shop"\n{file}'.encode(), PARTY, "shop.toml")
    return read_engine(settings["engine"], job_for(JOBS[name][0], **{**JOBS[name][1], **changes}))


def test_what_a_party_says_of_its_engine():
    found = read('kind = "ray"\nworkers = 3\naddress = "10.1.2.3:6379"\nmemory = "2GB"')
    assert (found.kind, found.workers, found.address, found.memory) == ("ray", 3, "10.1.2.3:6379", 2 * 10**9)
    assert read(ENGINE).memory is None
    assert read(ENGINE, "kernel").workers == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('kind = "spark"\nworkers = 2', r"line 3, key engine.kind: must be one of .*processes.*ray"),
        ('kind = "ray"\nworkers = 0', r"line 4, key engine.workers: must be >= 1"),
        ('kind = "ray"', r"key engine.workers"),
        (ENGINE + '\naddress = "10.1.2.3:6379"', r"key engine.address: is for kind = \"ray\" alone; remove it"),
        ('kind = "ray"\nworkers = 2\naddress = "head"', r"key engine.address: must be host:port of a Ray cluster"),
        (ENGINE + '\nmemory = "lots"', r"key engine.memory: must be a size such as \"500MB\" or \"16GB\", got 'lots'"),
        (ENGINE + "\ndeadline = 0", r"key engine.deadline: must be > 0"),
    ],
)
def test_an_engine_that_makes_no_sense(text, sentence):
    with pytest.raises(TomlError, match=sentence):
        read(text)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"algorithm": cn.FedBCD()},
            "key engine.kind: an engine's workers answer about whole passes, and steps on small",
        ),
        ({"family": "sealed"}, "key engine.kind: the job trains on ciphertexts or shares"),
        ({"sum": "encrypted"}, "key engine.kind: the job trains on ciphertexts or shares"),
        ({"family": "torch"}, "key engine.kind: an engine is for linear models by BlockNewton, for kernels and for"),
        ({"validation": 0.0, "folds": 3}, "key engine.kind: an engine does not prepare columns anew for every fold"),
    ],
)
def test_a_job_that_can_not_run_on_an_engine(changes, sentence):
    with pytest.raises(TomlError, match=re.escape(sentence)):
        read(ENGINE, **changes)


def test_a_table_that_does_not_fit_at_the_workers():
    engine = Engine("processes", 1, memory=400 * 10**6)
    table = np.broadcast_to(np.float32(0.0), (10_000_000, 20))
    with pytest.raises(OptionError, match=r"10,000,000 rows take 1,440 MB .* say workers = 15 in \[engine\] at least"):
        engine.place(table)
    with pytest.raises(OptionError, match=r"say memory = \"1GB\" in \[engine\] at least"):
        Engine("processes", 1, memory=200 * 10**6).place(table)
