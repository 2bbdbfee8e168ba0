"""Runs that were broken off and go on from what all parties kept: the same bits as if nothing had happened."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.blocks.newton import VERSIONS
from colonnade.blocks.subspace import Held
from colonnade.engine.kept import common_version
from colonnade.errors import CheckpointError, RunFailed
from colonnade.families.training import train
from colonnade.jobs.checkpoints import Checkpoints
from colonnade.objective.losses import loss
from colonnade.runtimes.wire import decode, encode
from tables import by_turns
from training_programs import linear_job, part_of

RNG = np.random.default_rng(0)
N, D = 120, 9
X = RNG.standard_normal((N, D))
X[RNG.random((N, D)) < 0.4] = 0.0
Y = np.where(X @ RNG.standard_normal(D) + RNG.logistic(size=N) > 0, 1, 0)
LOGISTIC = loss("logistic")


class Shelf:
    """A keeper in memory; what lies there is bytes, as in a file."""

    def __init__(self, every=1):
        self.every, self.kept = every, {}

    def versions(self):
        return tuple(self.kept)

    def load(self, version):
        return decode(self.kept[version])

    def save(self, version, state):
        self.kept[version] = bytes(encode(state))

    def forget(self, after):
        self.kept = {version: state for version, state in self.kept.items() if version <= after}

    def numbers(self, count, dtype):
        return None


def run(algorithm, shelves, *, sparse=False, sum_="pairwise", on=None, active=2):
    parties = cn.split(sp.csr_matrix(X) if sparse else X, Y, into=3, active=active)
    holders = ("party1", "party2")[:active] if algorithm.name != "FDML" else ("party1",)
    if algorithm.name == "FDML":
        parties = cn.split(X, Y, into=3)
    job = linear_job(algorithm, holders, sum_=sum_)
    reports = []
    programs = {
        party.name: (partial(train, keeper=shelf), (job, part_of(party)))
        for party, shelf in zip(parties, shelves, strict=True)
    }
    outcomes = (on or cn.Simulation()).run(programs, lambda _party, _seconds, value: reports.append(value))
    states = [
        b"".join(np.asarray(a).tobytes() for a in outcome.value if a is not None) for outcome in outcomes.values()
    ]
    run.messages = sum(outcome.traffic.messages for outcome in outcomes.values())
    return states, [value[1:] for value in reports if value[0] == "record"]


ALGORITHMS = [
    cn.FedSGD(batch=8, epochs=9, tol=None),
    cn.FedBCD(local_steps=3, batch=8, epochs=9, tol=None, evaluate_every=7),
    cn.FedBCD(local_steps=2, order="sequential", proximal=0.1, batch=8, epochs=9, schedule="sqrt", step=0.3),
    cn.VFB2("saga", asynchronous=False, batch=8, epochs=9, tol=None),
    cn.VFB2("svrg", asynchronous=False, batch=8, epochs=9, tol=None, evaluate_every=4),
    cn.VFB2("sgd", asynchronous=False, batch=8, epochs=60, tol=0.01, patience=2),
    cn.AFSGD("saga", asynchronous=False, batch=8, epochs=9, tol=None),
    cn.FDML(asynchronous=False, batch=8, epochs=9, tol=None),
    cn.BlockNewton(epochs=9, tol=None),
    cn.BlockNewton(epochs=9, tol=None, grow_from=16, memory=6, pieces=3),
    cn.FedBCD(local_steps=3, signal="curvature", batch=8, epochs=9, tol=None),
    cn.FedSGD(batch=8, sampling="uniform", epochs=9, rounds=50, tol=None),
]


@pytest.mark.parametrize(("algorithm", "sparse"), by_turns(ALGORITHMS, (False, True)), ids=str)
def test_a_run_goes_on_to_the_same_bits(algorithm, sparse):
    whole, records = run(algorithm, [Shelf() for _ in range(3)], sparse=sparse)
    plain, again = run(algorithm, [None] * 3, sparse=sparse)
    assert (plain, again) == (whole, records)  # keeping changes nothing
    sent, length = run.messages, length_of(algorithm, sparse)
    for crash in (0.3, 0.6, 0.95):
        shelves = [Shelf() for _ in range(3)]
        clock = cn.Simulation(latency=0.01, faults=cn.Faults(crashes={"party2": crash * length}))
        with pytest.raises(RunFailed):
            run(algorithm, shelves, sparse=sparse, on=clock)
        resumed, rest = run(algorithm, shelves, sparse=sparse, sum_="two-trees")
        assert resumed == whole
        assert rest == records  # the history is that of the whole run
    assert run.messages < sent  # the last crash was late: most was done, even with twice the messages of a sum


@pytest.mark.parametrize("active", [1, 2])
@pytest.mark.parametrize("algorithm", ALGORITHMS[8:10], ids=str)
def test_numbers_about_rows_are_on_the_disk_with_the_same_bits(algorithm, active, tmp_path):
    """As with a million rows: scores, those of directions, and curvatures are in files, which versions share."""

    def folders(name):
        return [Checkpoints(tmp_path / name / str(number), b"a job", apart=0) for number in range(3)]

    whole, records = run(algorithm, [None] * 3, active=active)
    assert run(algorithm, folders("whole"), active=active) == (whole, records)
    files = [*(tmp_path / "whole" / "0").glob("*.numbers")]
    assert files
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    length = length_of(algorithm, False, active)
    for crash in (0.4, 0.7):
        shelves, name = folders(str(crash)), tmp_path / str(crash)
        for after in (crash, 0.25):  # and once more on the way of the run that goes on
            clock = cn.Simulation(latency=0.01, faults=cn.Faults(crashes={"party2": after * length}))
            with pytest.raises(RunFailed):
                run(algorithm, folders(str(crash)), on=clock, active=active)
        assert run(algorithm, folders(str(crash)), active=active) == (whole, records)
        shelves[0].clear()
        assert not [*(name / "0").iterdir()]


def test_directions_that_are_remembered_no_more_leave_the_disk(tmp_path):
    """But for those that the last versions know, to which a run that is broken off may go back."""
    shelf = Checkpoints(tmp_path, b"a job", apart=0)
    held = Held(LOGISTIC, np.ones(5), np.zeros(5), 1.0, shelf)
    sizes = []
    for _ in range(20):
        for column in held.add(2, 4):
            column[:] = np.arange(5)
        told = held.freeze()[1]
        sizes.append(len([path for path in tmp_path.glob("*.numbers") if path.stat().st_size == 5 * 4]))
    assert sizes[-1] == max(sizes) == 4 + 2 * (VERSIONS - 1)
    again = Held(LOGISTIC, np.ones(5), np.zeros(5), 1.0, shelf)
    again.thaw((np.zeros(5), told))
    for _ in range(4):
        again.add(2, 4)
    assert [shelf.known_numbers(one, 5, np.int32)[:].tolist() for one in told] == [[0, 1, 2, 3, 4]] * 4


def test_numbers_that_were_changed_are_no_progress(tmp_path):
    shelf = Checkpoints(tmp_path, b"a job", apart=3)
    assert shelf.numbers(2, np.float64) is None
    stored = shelf.numbers(4, np.float64)
    stored[1:3] = [1.5, -2.0]
    told = stored.sealed()
    assert shelf.known_numbers(told, 4, np.float64)[:].tolist() == [0.0, 1.5, -2.0, 0.0]
    stored[0:1] = 7.0
    for count, dtype in ((4, np.float64), (5, np.float64), (4, np.float32)):
        with pytest.raises(CheckpointError, match="is not there any more; start the job anew"):
            shelf.known_numbers(told, count, dtype)
    stored.remove()
    with pytest.raises(CheckpointError, match="is not there any more"):
        shelf.known_numbers(told, 4, np.float64)
    with pytest.raises(IndexError):
        stored[::2]


def length_of(algorithm, sparse, active=2):
    """Virtual seconds of the whole run with these messages."""
    ends = []
    on = cn.Simulation(latency=0.01)
    original = on.run

    class Timed:
        def run(self, programs, observer):
            outcomes = original(programs, observer)
            ends.append(max(outcome.seconds for outcome in outcomes.values()))
            return outcomes

    run(algorithm, [Shelf() for _ in range(3)], sparse=sparse, on=Timed(), active=active)
    return ends[0]


def test_a_run_that_was_done_is_done():
    shelves = [Shelf() for _ in range(3)]
    algorithm = ALGORITHMS[3]
    whole, records = run(algorithm, shelves)
    assert run(algorithm, shelves) == (whole, records)
    assert run.messages < 40  # keys and versions, and no round


def test_only_every_so_many_epochs_and_the_last():
    shelves = [Shelf(every=4) for _ in range(3)]
    run(ALGORITHMS[5], shelves)
    versions = [shelf.versions() for shelf in shelves]
    assert len(set(versions)) == 1
    assert [version % 4 for version in versions[0][:-1]] == [0] * (len(versions[0]) - 1)
    assert versions[0][-1] < 60  # it stopped early, and that was kept


def test_an_asynchronous_run_goes_on_too():
    algorithm = cn.VFB2("saga", batch=8, epochs=12, tol=None)
    shelves = [Shelf() for _ in range(3)]
    crash = cn.Faults(crashes={"party3": 0.5 * length_of(algorithm, False)})
    with pytest.raises(RunFailed):
        run(algorithm, shelves, on=cn.Simulation(latency=0.01, faults=crash))
    assert 0 < max(shelves[0].versions()) < 12
    _, rest = run(algorithm, shelves)
    sent = run.messages
    _, whole = run(algorithm, [Shelf() for _ in range(3)])
    assert len(rest) == len(whole)
    assert sent < run.messages
    assert rest[-1][3] == pytest.approx(whole[-1][3], abs=1e-4)  # the objective


def test_the_last_version_that_all_have():
    async def program(net, versions):
        shelf = Shelf()
        shelf.kept = dict.fromkeys(versions, b"")
        return await common_version(net, shelf)

    for having, common in ((((1, 2, 3), (2, 3), (2,)), 2), (((4, 5), (5, 6), (5,)), 5), (((1,), (2,), (1, 2)), 0)):
        programs = {name: (program, (mine,)) for name, mine in zip("abc", having, strict=True)}
        assert {outcome.value for outcome in cn.Simulation().run(programs).values()} == {common}
