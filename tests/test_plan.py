"""Plans: what is foretold beside what then happens, under the virtual clock; and `colonnade plan`, one command each.

Timings here are virtual, so they are the same every time; real ones are in benchmarks/planned.py.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer

import colonnade as cn
from colonnade.alignment.protocol import align
from colonnade.blocks.column_values import columns_from_value, columns_to_value, rows_of_value
from colonnade.cli.main import main
from colonnade.errors import OptionError, PolicyRefused, ProtocolError, RunFailed
from colonnade.families.training import TrainingPart
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.jobs.policy import Policy, kind_of
from colonnade.ledger.ledger import entries
from colonnade.planning.candidates import agree_on_candidates, candidates
from colonnade.planning.command import reason, show
from colonnade.planning.figures import Plan
from colonnade.planning.forecast import Span, bytes_of, epochs_of_curve, epochs_of_sample, save_of, seconds_of
from colonnade.planning.plan_table import human_seconds
from colonnade.planning.program import make_plan
from colonnade.planning.trials import LineSpeed, Mark, Taken, measure_lines, sample
from colonnade.service.training import take_part
from test_federation import LIMIT, federation, start
from test_job import GOOD, complete, job
from test_job_training import Source
from test_kept import Shelf

ALIGNED = complete(GOOD + '\n[alignment]\nkind = "none"\n')
NEWTON = re.sub(r'kind = "FedBCD"\nlocal_steps = 3\nepochs = 7', 'kind = "BlockNewton"', ALIGNED)
THREE = complete(NEWTON.replace("[parties.shop]", "[parties.clinic]\n[parties.shop]\naddress = '127.0.0.1:7444'"))
KERNEL = NEWTON.replace('kind = "logistic"\nl2 = 0.01', 'kind = "kernel"\nfeatures = 64')
KERNEL = complete(KERNEL.replace("BlockNewton", "FDSKL"))


def breast_cancer(names, *, labels=("bank",)):
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    cuts = np.array_split(np.arange(X.shape[1]), len(names))
    return {
        name: Source(X[:, cut], None, np.array(y, dtype=object) if name in labels else None)
        for name, cut in zip(names, cuts, strict=True)
    }


def together(job_, sources, program, on=None):
    """Each party's result and its outcome."""
    found = {}

    def program_of(name):
        async def one(net):
            found[name] = await program(net, job_, sources[name], align)

        return one

    outcomes = (on or cn.Simulation()).run({name: (program_of(name), ()) for name in job_.parties})
    return found, outcomes


def plan_of(job_, sources, on=None, policies=None, seconds=25.0, keeps=False):
    async def program(net, *rest):
        check = partial((policies or {}).get(net.me, Policy()).check_part, net.me)
        return await make_plan(net, *rest, check, (lambda _: Shelf()) if keeps else None, seconds)

    return together(job_, sources, program, on)


def real(job_, sources, on=None):
    """Outcomes of a run, as a plan foretells it."""

    async def program(net, *rest):
        return await take_part(net, *rest, lambda *_: None)

    return together(job_, sources, program, on)[1]


# -- foretold and real --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "latency"), [(NEWTON, 5e-4), (NEWTON, 0.02), (THREE, 0.02)])
def test_what_is_foretold_happens(text, latency):
    """Rounds within 30 % and time within 50 % are asked for; on so few rows nearly all is simply tried."""
    job_, on = job(text), cn.Simulation(latency=latency)
    sources = breast_cancer(job_.parties)
    plans, _ = plan_of(job_, sources, on)
    plan = plans["bank"]
    tried = plan.forecasts[:-1]
    assert [one.name for one in tried] == [
        "BlockNewton", "VFB2 saga in step", "FedBCD, 5 local steps", "FedSGD",
    ]  # fmt: skip
    assert (plan.forecasts[-1].name, plan.forecasts[-1].tried) == ("SealedNewton", 0)  # test_protection_jobs.py
    known = [cn.BlockNewton(), cn.VFB2("saga", asynchronous=False), cn.FedBCD(), cn.FedSGD()]
    for one, algorithm in zip(tried, known, strict=True):
        outcomes = real(replace(job_, algorithm=algorithm), sources, on)
        rounds, seconds = outcomes["bank"].traffic.rounds, outcomes["bank"].seconds
        assert one.rounds.likely == pytest.approx(rounds, rel=0.3), one.name
        assert one.rounds.low <= one.rounds.likely <= one.rounds.high
        assert one.seconds.likely == pytest.approx(seconds, rel=0.5), one.name
        for name, outcome in outcomes.items():
            said = outcome.traffic.bytes * one.rounds.likely / rounds
            assert one.sent[name] == pytest.approx(said, rel=0.03), (one.name, name)
    newton = plan.forecasts[0]
    assert newton is plan.best
    assert newton.rounds.likely == newton.rounds.low == real(job_, sources)["bank"].traffic.rounds  # exactly
    assert newton.gap < 1e-6 < min(one.gap for one in tried[1:])
    assert all(replace(other, lines={}, before=0.0) == replace(plan, lines={}, before=0.0) for other in plans.values())


def many(rows, columns=8):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((rows, columns)) @ (np.eye(columns) + 0.3 * rng.standard_normal((columns, columns)))
    y = np.where(X @ rng.standard_normal(columns) + rng.logistic(size=rows) > 0, 1, 0)
    half = columns // 2
    return {"bank": Source(X[:, :half], None, np.array(y, dtype=object)), "shop": Source(X[:, half:])}


def test_rounds_are_foretold_from_some_of_the_rows():
    """20 ms each way leave no time for an epoch on 6,000 rows: the others are tried on fewer, Newton on all."""
    job_, sources, on = job(NEWTON), many(6000), cn.Simulation(latency=0.02)
    plan = plan_of(job_, sources, on, seconds=10.0)[0]["bank"]
    assert [one.tried == 6000 for one in plan.forecasts if one.tried] == [True, False, False, False]
    for one, algorithm in zip(plan.forecasts[1:], (cn.VFB2("saga", asynchronous=False), cn.FedBCD()), strict=False):
        rounds = real(replace(job_, algorithm=algorithm), sources)["bank"].traffic.rounds
        assert one.rounds.likely == pytest.approx(rounds, rel=0.3), one.name


def test_a_plan_keeps_to_its_time():
    for seconds in (4.0, 12.0):
        outcomes = plan_of(job(NEWTON), many(6000), cn.Simulation(latency=0.02), seconds=seconds)[1]
        assert outcomes["bank"].seconds < 1.3 * seconds + 2.0  # and the lines, and what is under way at the end


def test_second_order_rounds_where_all_rows_take_too_long():
    """The clock ends the run on all rows; what it would have taken is known from fewer."""
    job_, sources, on = job(NEWTON), many(20_000), cn.Simulation(latency=0.2)
    plan = plan_of(job_, sources, on, seconds=5.0)[0]["bank"]
    outcome = real(job_, sources, on)["bank"]
    newton = plan.forecasts[0]
    assert newton.tried == 8192
    assert newton.rounds.likely == pytest.approx(outcome.traffic.rounds, rel=0.3)
    assert newton.seconds.likely == pytest.approx(outcome.seconds, rel=0.5)
    assert newton.sent["bank"] == pytest.approx(outcome.traffic.bytes, rel=0.3)


@pytest.mark.parametrize(
    "algorithm",
    [
        'kind = "VFB2"\nestimator = "svrg"', 'kind = "FedBCD"\norder = "sequential"', 'kind = "AFSGD"',
        'kind = "FDML"\nepochs = 3', 'kind = "FedSGD"\nevaluate_every = 5', 'kind = "FedSGD"\nbatch = 100\ntol = 1.0',
        'kind = "BlockNewton"\ngrow_from = 100', 'kind = "VFB2"\nestimator = "sgd"\nepochs = 4',
        'kind = "FedSGD"\nepochs = 400\ngoal = 0.2',
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_the_jobs_own_algorithm_comes_first(algorithm):
    text = NEWTON.replace('kind = "BlockNewton"', algorithm)
    job_ = job(complete(text + "\n[validation]\npart = 0.2\n"))
    sources = breast_cancer(job_.parties)
    plan = plan_of(job_, sources, keeps=True)[0]["bank"]
    assert [one.own for one in plan.forecasts] == [True] + [False] * (len(plan.forecasts) - 1)
    rounds = real(job_, sources)["bank"].traffic.rounds
    assert plan.forecasts[0].rounds.likely == pytest.approx(rounds, rel=0.3)
    assert plan.rows == 455


def test_several_label_holders_and_sparse_columns():
    job_ = job(complete(NEWTON.replace("[parties.shop]", "[parties.shop]\nlabels = true")))
    sources = breast_cancer(job_.parties, labels=job_.parties)
    sources["shop"].X = sp.csr_matrix(np.where(np.abs(sources["shop"].X) > 1, sources["shop"].X, 0.0))
    sources["shop"].rows = 569
    plan = plan_of(job_, sources)[0]["bank"]
    for one, algorithm in zip(plan.forecasts, (cn.BlockNewton(), cn.VFB2("saga", asynchronous=False)), strict=False):
        rounds = real(replace(job_, algorithm=algorithm), sources)["bank"].traffic.rounds
        assert one.rounds.likely == pytest.approx(rounds, rel=0.3), one.name


def test_encrypted_signals_are_planned_with_the_batch_that_a_run_agrees_on():
    """Samples of the rows are still large enough, and a first round about all rows is not taken for a usual one."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1200, 4))
    y = np.where(X.sum(axis=1) + rng.logistic(size=1200) > 0, "yes", "no")
    sources = {"bank": Source(X[:, :2], None, np.array(y, dtype=object)), "shop": Source(X[:, 2:])}
    algorithm = cn.FedSGD(epochs=5, tol=None)
    job_ = replace(job(NEWTON), algorithm=algorithm, sum="encrypted")
    plan = plan_of(job_, sources, seconds=0.2)[0]["bank"]
    assert [one.name for one in plan.forecasts if one.tried] == ["FedSGD", "FedBCD, 5 local steps"]
    outcomes = real(job_, sources)
    rounds = outcomes["bank"].traffic.rounds
    assert rounds == 1 + 4 * 6  # batches of 200 rows: 219 at most, twice 110 less one
    assert plan.forecasts[0].rounds.likely == pytest.approx(rounds, rel=0.3)
    for name, outcome in outcomes.items():
        said = outcome.traffic.bytes * plan.forecasts[0].rounds.likely / rounds
        assert plan.forecasts[0].sent[name] == pytest.approx(said, rel=0.2)


# -- who is tried -------------------------------------------------------------------------------------------------


def names_of(text, **changes):
    return [one.name for one in candidates(replace(job(text), **changes))]


def test_nobody_is_tried_who_discloses_more_than_the_job():
    others = ["VFB2 saga in step", "FedBCD, 5 local steps", "FedSGD"]
    assert names_of(NEWTON) == ["BlockNewton", *others]
    assert names_of(ALIGNED) == ["FedBCD, 3 local steps", "BlockNewton", "VFB2 saga in step", "FedSGD"]
    assert names_of(NEWTON, algorithm=cn.VFB2("sgd")) == ["VFB2 sgd", "BlockNewton", *others]
    assert names_of(NEWTON, algorithm=cn.AFSGD()) == ["AFSGD saga"]  # sends no signals, and all others do
    assert names_of(NEWTON, algorithm=cn.FDML()) == ["FDML"]  # another model
    assert names_of(NEWTON, algorithm=cn.FedSGD(), sum="encrypted") == ["FedSGD", "FedBCD, 5 local steps"]
    seeds = {one.algorithm.seed for one in candidates(replace(job(NEWTON), algorithm=cn.FedSGD(seed=7, batch=32)))}
    assert seeds == {7}


def test_only_linear_models_are_planned(tmp_path, capsys):
    with pytest.raises(OptionError, match="compares algorithms of linear models, and this job trains a kernel model"):
        candidates(job(KERNEL))
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FDSKL"')
    text = (folder / "job.toml").read_text()
    a, b = text.index("[model]"), text.index("[algorithm]")
    text = text[:a] + '[model]\nkind = "kernel"\nfeatures = 100\n\n' + text[b:]
    (folder / "job.toml").write_text(complete(text))
    capsys.readouterr()
    assert main(["plan", str(folder / "job.toml"), "--as", "bank"]) == 1  # before anybody is waited for
    assert "trains a kernel model with FDSKL" in capsys.readouterr().err
    assert not (folder / "bank-files").exists()


def test_what_one_policy_refuses_nobody_tries():
    """A batch of 64 rows is too small for the shop; block Newton's is all of them."""
    job_ = job(NEWTON)
    plan = plan_of(job_, breast_cancer(job_.parties), policies={"shop": Policy(min_batch=100)})[0]["bank"]
    assert [one.name for one in plan.forecasts if one.tried] == ["BlockNewton"]
    assert "no other algorithm" in reason(plan)
    with pytest.raises(
        (PolicyRefused, RunFailed), match=r"the policy of 'shop' asks for 1000|failed with PolicyRefused"
    ):
        plan_of(job_, breast_cancer(job_.parties), policies={"shop": Policy(min_batch=1000)})


# -- what is measured ---------------------------------------------------------------------------------------------


def test_lines_are_measured():
    found = {}

    def program_of(name):
        async def program(net):
            found[name] = await measure_lines(net)

        return program

    links = {(a, b): 0.01 if "c" in (a, b) else 0.03 for a in "abc" for b in "abc" if a != b}
    cn.Simulation(latency=links, bandwidth=2e6).run({name: (program_of(name), ()) for name in "abc"})
    assert found["a"]["b"] == found["b"]["a"]
    assert found["a"]["b"].latency == pytest.approx(0.06, rel=0.01)
    assert found["c"]["b"].latency == pytest.approx(0.02, rel=0.01)
    assert found["a"]["c"].bandwidth == pytest.approx(2e6, rel=0.05)


@pytest.mark.parametrize("told", [None, (0.1,), (0.1, "fast"), (-1.0, 1.0), (0.1, math.nan)])
def test_a_line_that_makes_no_sense_is_refused(told):
    async def first(net):
        for _ in range(9):
            await net.send("b", "ping", None)
            await net.recv("b", "ping")
        await net.send("b", "load", None)
        await net.send("b", "ping", told)

    async def second(net):
        await measure_lines(net)

    with pytest.raises((ProtocolError, RunFailed), match=r"latency and the bandwidth|ProtocolError"):
        cn.Simulation().run({"a": (first, ()), "b": (second, ())})


@pytest.mark.parametrize("told", [None, (1, 0, 1, 1), (True,), (True, True, True, "yes")])
def test_an_answer_that_makes_no_sense_is_refused(told):
    known = candidates(job(NEWTON))

    async def first(net):
        await net.send("b", "plan", told)
        await net.recv("b", "plan")

    async def second(net):
        await agree_on_candidates(net, known, 569, 1, lambda _: None)

    with pytest.raises((ProtocolError, RunFailed), match=r"must tell a bool for each of 4 algorithms|ProtocolError"):
        cn.Simulation().run({"a": (first, ()), "b": (second, ())})


def test_rounds_and_evaluations_are_told_apart():
    """Rounds of 2 s and 10 bytes, evaluations of 3 s and 7 bytes after every second one, and a save of 4 s."""
    taken, now, sent = Taken(), 1.0, 100
    taken.evaluations.append(Mark(now, sent, 0))
    for count in range(1, 9):
        now, sent = now + 2 + 5 * (count == 1), sent + 10  # the first one loads for 5 s
        taken.rounds.append(Mark(now, sent, count))
        if count % 2 == 0:
            now, sent = now + 3, sent + 7
            taken.evaluations.append(Mark(now, sent, count))
        if count == 4:
            now += 4
            taken.saves.append((count, 4.0))
    taken.end = Mark(now, sent, 8)
    seconds, size = seconds_of(taken), bytes_of(taken)
    assert (seconds.round, seconds.evaluation) == (2.0, 3.0)
    assert (size.start, size.round, size.evaluation) == (100, 10, 7)
    assert size.of_run(8, 4) == sent
    assert save_of(taken) == 4.0
    assert taken.trained == now - 1.0


def test_one_round_costs_what_came_after_the_start():
    """Where there is time for one round with its evaluation, and a save of 4 s behind it."""
    taken = Taken(evaluations=[Mark(30.0, 500, 0), Mark(35.0, 517, 1)], rounds=[Mark(32.0, 510, 1)], saves=[(1, 4.0)])
    taken.end = Mark(39.0, 517, 1)
    seconds, size = seconds_of(taken), bytes_of(taken)
    assert (seconds.start, seconds.round, seconds.evaluation) == (30.0, 5.0, 0.0)
    assert (size.start, size.round, size.evaluation) == (500, 17, 0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 6))
def test_some_rows_of_sparse_columns(seed, rows, width):
    rng = np.random.default_rng(seed)
    X = sp.random(rows, width, density=0.4, format="csr", random_state=rng)
    chosen = np.sort(rng.permutation(rows)[: rng.integers(1, rows + 1)])
    sparse = columns_from_value(rows_of_value(columns_to_value(X), chosen))
    weights = rng.standard_normal((width, 1))
    every = np.arange(len(chosen))
    np.testing.assert_allclose(sparse.forward(every, weights), X[chosen] @ weights, rtol=1e-6, atol=1e-12)
    assert (rows_of_value(X.toarray(), chosen) == X.toarray()[chosen]).all()


def test_a_sample_is_the_same_at_every_party():
    X, y = np.arange(200.0).reshape(100, 2), np.arange(100)
    validation = (X[:40], None, None)
    found = sample(TrainingPart(X, y, y > 3, validation), 30, 100, (0, 1))
    assert (found.X[:, 0] == 2 * found.y).all()
    assert (found.labelled == (found.y > 3)).all()
    assert (sample(TrainingPart(X, None, None), 30, 100, (0, 1)).X == found.X).all()
    assert (sample(TrainingPart(X, None, None), 30, 100, (0, 2)).X != found.X).any()
    assert len(found.validation[0]) == 12


def test_numbered_steps_are_of_their_kind():
    steps = ("scores in trial 3", "scores for 2 in trial 12", "scores for 1 masks in trial 4", "public key in trial 1")
    assert [kind_of(step) for step in steps] == ["scores", "scores", "masks", "public key"]


# -- when it will stop --------------------------------------------------------------------------------------------


@given(st.floats(0.5, 3.0), st.integers(4, 400))
def test_an_exponential_curve_is_followed_to_its_end(rate, per_epoch):
    """The gap falls by exp(-rate) per epoch; two epochs are seen."""
    options = cn.VFB2("saga", asynchronous=False, epochs=100)
    rounds = np.linspace(0, 2 * per_epoch, 13).astype(int)
    curve = 0.5 + 0.3 * np.exp(-rate * rounds / per_epoch)
    span = epochs_of_curve(options, rounds.tolist(), curve.tolist(), 0.5, per_epoch)
    falls = 0.3 * (np.exp(-rate * np.arange(100)) - np.exp(-rate * np.arange(1, 101)))
    expected = 1 + int(np.argmax(falls <= options.tol * 0.5)) + options.patience - 1
    assert abs(min(span.low, 100.0) - min(expected, 100)) <= 1 + 0.02 * expected
    assert span.low <= span.likely <= span.high <= 100


def test_what_can_be_said_without_an_optimum_or_a_tolerance():
    options = cn.VFB2("saga", asynchronous=False, epochs=40)
    assert epochs_of_curve(options, [0, 50, 100], [1.0, 0.5, 0.4], None, 50) == Span.between(2.0, 40.0)
    never = replace(options, tol=None)
    assert epochs_of_curve(never, [0, 50, 100], [1.0, 0.5, 0.4], 0.1, 50) == Span(40.0, 40.0, 40.0)
    assert epochs_of_sample(never, [1.0, 0.5], 0.1, ended=True) == Span(40.0, 40.0, 40.0)
    near = epochs_of_curve(replace(never, goal=0.15), [0, 50, 100, 150], [1.1, 0.6, 0.35, 0.225], 0.1, 50)
    assert near.low == 5  # 0.1 + 1 / 2^5 is the first below 0.15
    assert Span.over([Span(1.0, 2.0, 3.0), Span(2.0, 4.0, 5.0)]) == Span(1.0, 3.0, 5.0)
    assert not Span(1.0, 2.0, 3.0).sure
    assert Span(9.0, 10.0, 11.0).sure


def test_stretches_of_progress_are_shorter_on_more_rows():
    """Three epochs of progress, one without, five of progress, two without."""
    options = cn.FedSGD(tol=1e-3, patience=2)
    falls = [1.0, 0.9, 0.8, 0.7, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.2, 0.2]
    assert epochs_of_sample(options, falls, 0.01, ended=True) == Span.between(5.0, 11.0)
    assert epochs_of_sample(options, falls, 1.0, ended=True) == Span.between(11.0, 11.0)
    assert epochs_of_sample(options, falls, 0.4, ended=True).low == pytest.approx(3 + 1.2 + 2.0)
    assert epochs_of_sample(options, falls, 0.01, ended=False).high == options.epochs  # the clock ended it


# -- one command each ---------------------------------------------------------------------------------------------


def plan_all(folder, names, *more):
    started = {name: start(folder, name, "plan", "--quiet", "--seconds", "4", *more) for name in names}
    said = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    return said, {name: process.returncode for name, process in started.items()}


@pytest.mark.parametrize("names", [("bank", "shop"), ("bank", "clinic", "shop")])
def test_one_command_each(tmp_path, names, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # of the terminal: no cell is broken into lines
    folder = federation(tmp_path, names, 'kind = "BlockNewton"\nepochs = 30')
    said, codes = plan_all(folder, names)
    assert codes == dict.fromkeys(names, 0), said
    rounds = {}
    for name in names:
        text = re.sub(r"[\s│┃]+", " ", said[name])
        assert "BlockNewton (the job's)" in text
        assert "VFB2 saga in step" in text
        assert re.search(r"\* (BlockNewton|VFB2|FedBCD|FedSGD).*: (the|none)", text), text
        assert "ms there and back" in text
        rounds[name] = int(re.search(r"BlockNewton \(the job's\) (\d+) ", text)[1])
        files = {path.name for path in (folder / f"{name}-files").rglob("*")}
        assert files == {
            "ledger.jsonl",
            "ledger.jsonl.seal",
            "ledger.jsonl.key",
            "ledger.jsonl.lock",
        }  # no model, no history, no checkpoint
        capsys.readouterr()
        assert main(["ledger", "verify", str(folder / "job.toml"), "--as", name]) == 0
        party = read_party(folder / f"{name}.toml", read_job(folder / "job.toml"))
        lines = list(entries(party.ledger))
        assert lines[0]["purpose"] == "plan"
        kinds = {kind_of(line["kind"]) for line in lines if "kind" in line}
        assert {"ping", "plan", *(["signal"] if name == "bank" else ["directions", "scores"])} <= kinds
        assert ("load" in kinds) == (name != names[-1])  # of every two the first one measures
    assert len(set(rounds.values())) == 1
    # and then it happens, with a ledger that goes on
    started = {name: start(folder, name) for name in names}
    ended = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    happened = int(re.search(r"bytes in ([\d,]+) rounds", ended["bank"])[1].replace(",", ""))
    assert rounds["bank"] == pytest.approx(happened, rel=0.3)


def test_both_plan_and_for_as_long(tmp_path):
    names = ("bank", "shop")
    folder = federation(tmp_path, names, 'kind = "BlockNewton"\nepochs = 30')
    shop = start(folder, "shop", "run", "--quiet")
    bank = start(folder, "bank", "plan", "--quiet")
    said = [process.communicate(timeout=LIMIT)[0] for process in (bank, shop)]
    assert (bank.returncode, shop.returncode) == (1, 1)
    assert "differs in 'purpose'" in said[0]
    shop = start(folder, "shop", "plan", "--quiet", "--seconds", "5")
    bank = start(folder, "bank", "plan", "--quiet", "--seconds", "6")
    said = [process.communicate(timeout=LIMIT)[0] for process in (bank, shop)]
    assert (bank.returncode, shop.returncode) == (1, 1)
    assert "differs in 'seconds': 6.0 here, 5.0 there" in said[0]


def test_no_time_is_no_plan(tmp_path, capsys):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "BlockNewton"')
    capsys.readouterr()
    assert main(["plan", str(folder / "job.toml"), "--as", "bank", "--seconds", "0"]) == 1
    assert "seconds must be > 0, got 0.0" in capsys.readouterr().err


def test_the_table_says_what_is_uncertain(capsys):
    job_ = job(NEWTON)
    plan = plan_of(job_, breast_cancer(job_.parties))[0]["bank"]
    newton, saga, *_ = plan.forecasts
    unsure = replace(saga, rounds=Span(100.0, 400.0, 1600.0), seconds=Span(50.0, 200.0, 9000.0), gap=math.nan, tried=64)
    show(Plan(569, {"shop": LineSpeed(0.04, 1e6)}, 0.2, (newton, unsure)), "bank", "first")
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "not seen" in text
    assert "shop 40.0 ms there and back, 1.0 MB/s" in text
    assert reason(Plan(569, {}, 0.2, (unsure,))).startswith("VFB2 saga in step: no other algorithm")
    near = replace(saga, gap=1e-5, seconds=Span(9.0, 9.0, 9.0))
    assert "the fastest of those that end within 0.0001" in reason(Plan(569, {}, 0.2, (newton, near)))
    assert "none is known to end" in reason(Plan(569, {}, 0.2, (unsure, replace(unsure, gap=0.5))))
    assert [human_seconds(s) for s in (0.04, 99.0, 75 * 60, 3 * 3600)] == ["0.0 s", "99.0 s", "75 min", "3.0 h"]


def test_a_run_that_its_own_clock_ends():
    """Rounds up to the first look after the time is over; and whether that is likely."""
    from colonnade.planning.figures import _by_the_clock
    from colonnade.planning.forecast import Span

    rounds, seconds = Span(100, 200, 400), Span(11.0, 21.0, 41.0)
    assert _by_the_clock(rounds, seconds, 1.0, None, 30) == (rounds, seconds, False)
    assert _by_the_clock(rounds, seconds, 1.0, 100.0, 30) == (rounds, seconds, False)
    assert _by_the_clock(rounds, seconds, 1.0, 10.0, 30) == (Span(90, 90, 90), Span(10.0, 10.0, 10.0), True)
    assert _by_the_clock(rounds, seconds, 1.0, 10.5, 30) == (Span(100, 120, 120), Span(11.0, 13.0, 13.0), True)
    assert _by_the_clock(rounds, seconds, 1.0, 0.5, 30) == (Span(0, 0, 0), Span(1.0, 1.0, 1.0), True)


@pytest.mark.parametrize("algorithm", [cn.BlockNewton(seconds=0.3), cn.FedSGD(seconds=0.9), cn.FedSGD(seconds=1e6)])
def test_a_job_with_a_clock_of_its_own_is_planned(algorithm):
    """All parties hear of the rounds that the clock leaves, and a run then has as many."""
    job_, on = replace(job(NEWTON), algorithm=algorithm), cn.Simulation(latency=0.02)
    sources = breast_cancer(job_.parties)
    plans, _ = plan_of(job_, sources, on)
    outcome = real(job_, sources, on)["bank"]
    for plan in plans.values():
        assert plan.forecasts[0].rounds.likely == pytest.approx(outcome.traffic.rounds, rel=0.3, abs=2)
        assert plan.forecasts[0].seconds.likely == pytest.approx(outcome.seconds, rel=0.5)


def test_a_sample_takes_its_rows_weights_along():
    X, weights = np.arange(50.0)[:, None], np.arange(50.0)
    apart = (X[:20], np.ones(20), np.ones(20, bool))
    part = TrainingPart(X, np.ones(50), np.ones(50, bool), apart, None, weights, weights[:20])
    found = sample(part, 10, 50, (0, 1))
    np.testing.assert_array_equal(found.weights, found.X[:, 0])
    np.testing.assert_array_equal(found.held_out_weights, found.validation[0][:, 0])
    assert len(found.held_out_weights) == 4
