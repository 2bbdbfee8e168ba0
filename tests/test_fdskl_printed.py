"""FDSKL as printed, against Algorithms 1 and 2 in slow loops: label holders in turn, together, at their own pace."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import zip_longest

import numpy as np
import pytest

import colonnade as cn
from colonnade.algorithms.active_workers import AtOwnPace
from colonnade.algorithms.fdskl import DoublyStochasticSteps
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.phases import Directions, Kernel, Layout, to_features
from colonnade.engine.kernel_session import KernelSession
from colonnade.errors import ColonnadeError, OptionError, ProtocolError, RunFailed
from colonnade.families.training import train
from colonnade.leaks import SIGNALS, Setting
from test_kept import Shelf
from training_programs import kernel_job, part_of

RNG = np.random.default_rng(3)
N, D, GAMMA, LAMBDA, ETA = 120, 8, 0.2, 1e-2, 0.7
X = RNG.standard_normal((N, D))
Y = np.where(X[:, 0] * X[:, 3] + 0.3 * RNG.standard_normal(N) > 0, 1, 0)
SIGNS = np.where(Y == 1, 1.0, -1.0)
FEATURES, BLOCK, BATCH = 40, 4, 15
SLOW = cn.Simulation(latency=0.01, speeds={"party2": 0.3}, seconds_per_nonzero=1e-6)
PROCESSES = cn.Processes(secret="rehearsal")  # the simulation's own, so that directions are the same


def fit(active, *, on=None, sum_="auto", **options):
    given = {"step": ETA, "schedule": "constant", "refit": False, "epochs": 9, **options}
    algorithm = cn.FDSKL(block=BLOCK, batch=BATCH, tol=None, **given)
    model = cn.KernelClassifier(features=FEATURES, gamma=GAMMA, alpha=LAMBDA, algorithm=algorithm, sum=sum_, verbose=0)
    return model.fit(*cn.split(X, Y, into=4, active=active), on=on)


def coefficients(model):
    return {name: model._states[name][0][:, 0] for name in model.holders_}


# -- the slow twin -----------------------------------------------------------------------------------------------------


def saved_features(model):
    """phi_i(x) of every feature and row, by owner: what Algorithm 3 gets to it, in single precision."""
    layout = Layout(model.holders_, FEATURES, BLOCK)
    found = {}
    for index, owner in enumerate(layout.owners):
        found[owner] = np.zeros((N, layout.of(owner)))
        for number in range(layout.blocks(owner)):
            span, total = layout.span(owner, number), np.zeros(0, np.uint32)
            for party in cn.split(X, Y, into=4):
                _, omega, share, gamma = model._states[party.name]
                mine = Directions(omega, share, Kernel("rbf", gamma), party.features)
                phases = mine.project(
                    DenseColumns(np.asarray(party.X)), np.arange(N), (index, number), span.stop - span.start
                )
                total = phases if not total.size else total + phases
            found[owner][:, span] = to_features(total)
    return found


def batches_of(epoch, holders, seed=0):
    """Every row once: holders take rows in turn, each shuffles its own, and their batches come in a drawn order."""
    rng = np.random.default_rng([seed, epoch])
    pieces = []
    for k, holder in enumerate(holders):
        mine = rng.permutation(np.arange(N)[k :: len(holders)])
        pieces += [(holder, rows) for rows in np.array_split(mine, -(-len(mine) // BATCH))]
    return [pieces[i] for i in rng.permutation(len(pieces))] if len(holders) > 1 else pieces


class Printed:
    """Algorithm 1: alpha_i of every worker, one number after the other."""

    def __init__(self, phi):
        self.phi, self.alpha = phi, {worker: [] for worker in phi}

    def part_of_f(self, worker, row):
        """Algorithm 2."""
        value = 0.0
        for i, alpha in enumerate(self.alpha[worker]):
            value += alpha * self.phi[worker][row, i]
        return value

    def f(self, row):
        """Line 7."""
        return sum(self.part_of_f(worker, row) for worker in self.phi)

    def may(self, worker):
        return len(self.alpha[worker]) < self.phi[worker].shape[1]

    def write(self, worker, rows, scores):
        """Lines 8 to 10, for a batch: the mean over its rows, a block's features share the step."""
        first = len(self.alpha[worker])
        block = range(first, min(first + BLOCK, self.phi[worker].shape[1]))
        new = []
        for i in block:
            total = 0.0
            for row, score in zip(rows, scores, strict=True):
                slope = -SIGNS[row] / (1.0 + np.exp(SIGNS[row] * score))
                total += slope * self.phi[worker][row, i]
            new.append(-ETA * total / (len(rows) * len(block)))
        for mine in self.alpha.values():
            mine[:] = [(1.0 - ETA * LAMBDA) * alpha for alpha in mine]
        self.alpha[worker] += new

    def compare(self, model):
        found = coefficients(model)
        for worker, alpha in self.alpha.items():
            assert len(alpha) == len(found[worker])
            np.testing.assert_allclose(found[worker], alpha, rtol=0, atol=1e-9)
        assert max(np.abs(alpha).max() for alpha in found.values()) > 1e-2


@pytest.mark.parametrize("active", [1, 2, 3])
def test_in_turn_it_is_algorithm_1(active):
    model = fit(active)
    twin = Printed(saved_features(model))
    for epoch in range(1, 10):
        for worker, rows in batches_of(epoch, model.holders_):
            if twin.may(worker):
                twin.write(worker, rows, [twin.f(row) for row in rows])
    twin.compare(model)
    assert model.rounds_ == sum(-(-len(alpha) // BLOCK) for alpha in twin.alpha.values())


@pytest.mark.parametrize("active", [2, 3])
def test_together_all_read_before_any_of_them_writes(active):
    model = fit(active, workers="together")
    twin = Printed(saved_features(model))
    for epoch in range(1, 10):
        order = batches_of(epoch, model.holders_)
        for turn in zip_longest(*([rows for who, rows in order if who == worker] for worker in model.holders_)):
            working = [(worker, rows) for worker, rows in zip(model.holders_, turn, strict=True) if rows is not None]
            working = [(worker, rows) for worker, rows in working if twin.may(worker)]
            read = [[twin.f(row) for row in rows] for _, rows in working]
            for (worker, rows), scores in zip(working, read, strict=True):
                twin.write(worker, rows, scores)
    twin.compare(model)


def replayed(model, events, told):
    """Asynchronous steps again, in the order in which every worker read and wrote; told: the blocks that count."""
    phi, parts, drawn = saved_features(model), {}, dict.fromkeys(model.holders_, 0)
    twin = {worker: np.zeros(features.shape[1]) for worker, features in phi.items()}
    rows_of, steps = {}, Counter()
    for epoch in range(1, 10):
        for worker, rows in batches_of(epoch, model.holders_):
            rows_of[worker, steps[worker]] = rows
            steps[worker] += 1
    for kind, party, worker, number in events:
        rows = rows_of[worker, number]
        if kind == "read":
            known = BLOCK * told[worker, number][party]
            parts[worker, number, party] = phi[party][rows][:, :known] @ twin[party][:known]
            continue
        twin[party] *= 1.0 - ETA * LAMBDA
        if party == worker:
            score = sum(parts[worker, number, other] for other in model.holders_)
            slope = -SIGNS[rows] / (1.0 + np.exp(SIGNS[rows] * score))
            new = slice(drawn[worker], min(drawn[worker] + BLOCK, len(twin[worker])))
            drawn[worker] = new.stop
            twin[worker][new] = -ETA * phi[worker][rows][:, new].T @ slope / (len(rows) * (new.stop - new.start))
    return twin


@pytest.mark.parametrize("active", [2, 3])
def test_at_their_own_pace_the_steps_replay(active, monkeypatch):
    events, told, begun, reads, writes = [], {}, Counter(), Counter(), Counter()
    started, summed, written = DoublyStochasticSteps.read, KernelSession.sum_parts, DoublyStochasticSteps.write

    async def read(self, holder, rows, new, drawn=None, lane=None):
        me = self.session.net.me
        assert told.setdefault((holder, begun[me, holder]), dict(drawn)) == drawn  # at all parties
        begun[me, holder] += 1
        return await started(self, holder, rows, new, drawn, lane)

    async def sum_parts(self, step, mine, holder, lane=None):
        if step == "scores" and self.net.me in self.job.holders:
            events.append(("read", self.net.me, holder, reads[self.net.me, holder]))
            reads[self.net.me, holder] += 1
        return await summed(self, step, mine, holder, lane)

    async def write(self, reading):
        me, session = self.session.net.me, self.session
        if me in session.job.holders:
            holder = session.job.holders[int(reading.rows[0]) % len(session.job.holders)]
            events.append(("write", me, holder, writes[me, holder]))
            writes[me, holder] += 1
        return await written(self, reading)

    monkeypatch.setattr(KernelSession, "sum_parts", sum_parts)
    monkeypatch.setattr(DoublyStochasticSteps, "read", read)
    monkeypatch.setattr(DoublyStochasticSteps, "write", write)
    model = fit(active, workers="asynchronous", on=SLOW)
    twin, found = replayed(model, events, told), coefficients(model)
    for worker, alpha in twin.items():
        np.testing.assert_allclose(found[worker], alpha, rtol=0, atol=1e-9)
    stale = [record["staleness"] for record in model.history_ if "staleness" in record]
    assert max(one["max"] for of in stale for one in of.values()) >= 1  # else this would be in turn
    assert set(stale[0]) == set(model.holders_)


# -- where the refit begins, and where training ends -------------------------------------------------------------------


def test_training_ends_with_the_last_feature():
    model = fit(1)
    assert [record["features"] for record in model.history_] == [0, 32, 40]
    assert model.rounds_ == FEATURES // BLOCK
    assert [record["refit"] for record in model.history_] == [None] * 3


def test_the_history_says_when_the_refit_begins():
    model = fit(1, refit=True, epochs=4)
    assert [record["features"] for record in model.history_] == [0, 32, 40, 40, 40]
    assert [record["refit"] for record in model.history_] == [None, None, 11, 11, 11]


def test_a_batch_of_an_owner_without_features_left_is_passed_over():
    """41 features, 14 of them at the first and 13 at the two others: 4, 4 and 4 blocks, and no round more."""
    algorithm = cn.FDSKL(block=BLOCK, batch=BATCH, refit=False, epochs=9, step=ETA)
    model = cn.KernelClassifier(features=41, gamma=GAMMA, alpha=LAMBDA, algorithm=algorithm, verbose=0)
    model.fit(*cn.split(X, Y, into=4, active=3))
    assert model.rounds_ == 12
    assert model.history_[-1]["features"] == 41


def test_as_printed_the_step_is_constant_and_no_signal_is_told():
    assert cn.FDSKL(refit=False).schedule == "constant"
    assert cn.FDSKL(refit=False, schedule="sqrt").schedule == "sqrt"
    assert cn.FDSKL().schedule == "adaptive"
    setting = Setting(("a", "b", "c"), ("a", "b"), model="kernel", features=8)
    names = [{leak.name for leak in cn.FDSKL(refit=refit).leaks(setting)} for refit in (True, False)]
    assert names[0] - names[1] == {SIGNALS} | (names[0] - names[1])
    assert SIGNALS in names[0]
    assert SIGNALS not in names[1]
    assert "signal" not in fit(2).traffic_["party1"].by_step
    assert "signal" in fit(2, refit=True).traffic_["party1"].by_step


@pytest.mark.parametrize(("options", "sentence"), [
    ({"refit": 1}, "refit must be True or False, got 1"),
    ({"workers": "alone"}, "workers must be one of 'in turn', 'together', 'asynchronous', got 'alone'"),
])  # fmt: skip
def test_options_that_make_no_sense(options, sentence):
    with pytest.raises(OptionError) as caught:
        cn.FDSKL(**options)
    assert sentence in str(caught.value)


# -- where it runs -----------------------------------------------------------------------------------------------------


def bits(model):
    return tuple(alpha.tobytes() for alpha in coefficients(model).values())


@pytest.mark.parametrize("refit", [True, False])
def test_together_it_has_the_same_bits_everywhere(refit):
    runs = [(None, "pairwise"), (SLOW, "two-trees"), (PROCESSES, "plain")]
    found = [fit(3, workers="together", refit=refit, epochs=4, on=on, sum_=sum_) for on, sum_ in runs]
    assert len({bits(model) for model in found}) == 1
    assert len({tuple(record["loss"] for record in model.history_) for model in found}) == 1


def test_at_its_own_pace_a_run_repeats_and_speeds_change_it():
    one, again, other = (fit(3, workers="asynchronous", on=on) for on in (SLOW, SLOW, None))
    assert bits(one) == bits(again)
    assert bits(one) != bits(other)


def test_one_label_holder_is_always_in_turn():
    assert len({bits(fit(1, workers=how)) for how in ("in turn", "together", "asynchronous")}) == 1


@pytest.mark.parametrize("workers", ["together", "asynchronous"])
def test_with_a_refit_it_ends_at_the_optimum_of_its_features(workers):
    from test_fdskl import optimum

    options = {"step": "auto", "schedule": "adaptive", "refit": True, "epochs": 60}
    model = fit(2, workers=workers, on=SLOW, **options)
    both = np.hstack(list(saved_features(model).values()))
    best, _ = optimum(both, SIGNS, LAMBDA)
    assert -1e-9 < min(record["loss"] for record in model.history_) - best < 1e-3 * best


def test_in_real_processes_at_their_own_pace():
    model = fit(3, workers="asynchronous", refit=True, epochs=3, on=PROCESSES)
    assert np.isfinite(model.history_[-1]["loss"])
    assert model.history_[-1]["loss"] < model.history_[0]["loss"]


@pytest.mark.parametrize("workers", ["together", "asynchronous"])
def test_lanes_send_and_count_the_same_phases(workers):
    """What leaves a party is counted once, whichever sum it goes through."""
    one, other = fit(2), fit(2, workers=workers)
    for party in ("party3", "party4"):
        sent = [
            sum(size - 35 * count for step, (count, size) in model.traffic_[party].by_step.items() if "phases" in step)
            for model in (one, other)
        ]
        assert sent[1] == pytest.approx(sent[0], rel=0.01)  # names of steps are longer in lanes


@pytest.mark.parametrize("workers", ["together", "asynchronous"])
def test_a_run_goes_on(workers):
    """To the same bits, where the order of events is no part of them."""
    algorithm = cn.FDSKL(epochs=6, tol=None, batch=BATCH, block=BLOCK, workers=workers)
    parties, classes = cn.split(X, Y, into=3, active=2), np.unique(Y)
    job = kernel_job(algorithm, ("party1", "party2"), features=32)

    def run(shelves, on):
        programs = {}
        for party, shelf in zip(parties, shelves, strict=True):
            programs[party.name] = (partial(train, keeper=shelf), (job, part_of(party, classes)))
        return on.run(programs)

    whole = run([Shelf() for _ in parties], cn.Simulation(latency=0.01))
    took = max(outcome.seconds for outcome in whole.values())
    shelves = [Shelf() for _ in parties]
    with pytest.raises(RunFailed):
        run(shelves, cn.Simulation(latency=0.01, faults=cn.Faults(crashes={"party3": 0.7 * took})))
    assert shelves[0].versions()
    again = run(shelves, cn.Simulation(latency=0.01))
    for name in ("party1", "party2"):
        one, two = whole[name].value[0], again[name].value[0]
        np.testing.assert_allclose(one, two, atol=0.0 if workers == "together" else 0.2 * np.abs(one).max())


@pytest.mark.parametrize("told", [(1,), (1, 99), (1, -1), (1, 1.0), (3, 0), None, "x"])
def test_what_a_label_holder_tells_of_blocks_is_checked(told, monkeypatch):
    tell = KernelSession.tell_each

    async def lie(self, tag, value):
        await tell(self, tag, told if tag == "pace" else value)

    monkeypatch.setattr(KernelSession, "tell_each", lie)
    with pytest.raises((ProtocolError, RunFailed), match="blocks"):
        fit(2, workers="asynchronous")


def test_a_label_holder_that_falls_silent_is_named(monkeypatch):
    """It is alive, and waits for what nobody will send: the others' waits end at their deadline."""
    honest = AtOwnPace._begin

    async def silent(self, holder):
        net = self.session.net
        while net.me == holder == "party2":
            if net.elapsed() > 100 * net.deadline:
                raise AssertionError("nobody has given it up")
            await net.recv_within("party1", "nothing", net.deadline)
        return await honest(self, holder)

    monkeypatch.setattr(AtOwnPace, "_begin", silent)
    X = np.random.default_rng(0).standard_normal((60, 6))
    model = cn.KernelClassifier(features=32, algorithm=cn.FDSKL(workers="asynchronous", epochs=2), verbose=0)
    with pytest.raises(ColonnadeError, match=r"party 'party2'.*'pace'"):
        model.fit(*cn.split(X, X[:, 0] > 0, into=3, active=2))
