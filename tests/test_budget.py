"""Numbers about people: how many leave a party, over all of its runs, and what a leader can't make of its word."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import colonnade as cn
from colonnade.alignment.protocol import align
from colonnade.engine.session import Session
from colonnade.errors import PolicyRefused, ProtocolError, RunFailed
from colonnade.families.kernel import KernelOptions
from colonnade.jobs.budget import Budget, Used, allowance
from colonnade.jobs.policy import Policy, PolicyDoor
from colonnade.newton.leader import Leader
from colonnade.service.training import take_part
from test_job import GOOD
from test_job_training import Source, job_for

PEOPLE, WIDTH = 300, 12
RNG = np.random.default_rng(3)
# Near copies of columns at different parties: block Newton cuts its directions into pieces here.
BASE = RNG.standard_normal((PEOPLE, WIDTH))
X = np.hstack([BASE, BASE + 0.05 * RNG.standard_normal((PEOPLE, WIDTH))])
Y = np.where(BASE @ RNG.standard_normal(WIDTH) + RNG.logistic(size=PEOPLE) > 0, "yes", "no")
ALONE = GOOD.replace('"who is in common", ', "") + '\n[alignment]\nkind = "none"\n'


class Notes:
    """A ledger's memory."""

    def __init__(self):
        self.records = []

    def remember(self, kind, record):
        self.records.append((kind, dict(record)))

    def remembered(self, kind):
        return [record for known, record in self.records if known == kind]

    def turn(self):
        return nullcontext()


def job(algorithm, **changes):
    return job_for(ALONE, **{"algorithm": algorithm, "validation": 0.0, "aligned": True, **changes})


def run(job_, share, notes=None, on=None, reports=None):
    """Bank and shop with a budget each, their doors open for what is charged only."""
    results, budgets = {}, {}
    labels = np.array(Y, dtype=object)
    given = {"bank": Source(X[:, :WIDTH], None, labels), "shop": Source(X[:, WIDTH:])}

    def program_of(name):
        async def program(net):
            budget = budgets[name] = Budget(name, share)
            budget.keep_in((notes or {}).get(name, Notes()))
            net.door = PolicyDoor(name, Policy(plain=True, min_batch=1), None, budget)
            check = partial(Policy().check_part, name)
            results[name] = await take_part(net, job_, given[name], align, check, budget=budget)

        return program

    def observe(name, _, value):
        if reports is not None:
            reports.setdefault(name, []).append(value)

    outcomes = (on or cn.Simulation()).run({name: (program_of(name), ()) for name in job_.parties}, observe)
    return results, budgets, outcomes


def directions(outcomes):
    return outcomes["shop"].traffic.by_step.get("directions", (0, 0))


# -- a budget by itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "columns", "allowed"), [(0.5, 20, 10), (0.5, 3, 1), (0.1, 4, 1), (2.0, 3, 6)])
def test_an_allowance_is_a_share_of_the_columns_and_one_at_least(share, columns, allowed):
    assert allowance(share, columns) == allowed


def test_a_budget_outlives_runs_and_is_noted_before_anything_leaves():
    notes = Notes()
    first = Budget("shop", 0.5)
    first.keep_in(notes)
    with pytest.raises(PolicyRefused, match="1 numbers about each person would have left"):
        first.charge(0.5)  # not opened: nothing is known of the columns
    first.open(10, 100)
    first.charge(0.5)
    assert [record["numbers"] for _, record in notes.records] == [1]  # in whole numbers, ahead
    first.charge(2.5)
    assert sum(record["numbers"] for _, record in notes.records) == 3
    second = Budget("shop", 0.5)
    second.keep_in(notes)
    second.open(10, 100)
    assert second.left == 2.0
    with pytest.raises(PolicyRefused, match=r"allows 5 \(max_directions = 0.5 of its 10 columns\) and 3 have left"):
        second.charge(2.5)
    second.charge(2.0)
    assert second.left == 0.0


def test_the_door_lets_nothing_out_that_was_not_charged():
    budget = Budget("shop", 1.0)
    door = PolicyDoor("shop", Policy(min_batch=1), None, budget)
    send = partial(door.open_for, "bank", size=1, rounds=0, control=False)
    send("public key", b"")
    with pytest.raises(PolicyRefused, match="not charged for"):
        send("directions", np.zeros((10, 3)))
    budget = Budget("shop", 1.0)
    door = PolicyDoor("shop", Policy(min_batch=1), None, budget)
    budget.open(5, 10)
    budget.charge(3.0)
    send = partial(door.open_for, "bank", size=1, rounds=0, control=False)
    send("directions in trial 4", np.zeros((10, 2)))
    send("evaluation", np.zeros(10))
    with pytest.raises(PolicyRefused, match="not charged for"):
        send("scores for 2", np.zeros(10))


def test_a_model_pays_when_it_is_used_unless_its_training_did():
    notes = Notes()
    own, strange = (Used(digest, 2, 10) for digest in ("own", "strange"))
    trained = Budget("shop", 0.5)
    trained.keep_in(notes)
    trained.open(10, 100)
    trained.charge(3.0)
    trained.paid("own")
    for model, left in ((own, 2.0), (strange, 0.0), (strange, 0.0), (own, 0.0)):
        used = Budget("shop", 0.5)
        used.keep_in(notes)
        used.use(model)
        used.open(10, 100)
        assert used.left == left, model
    with pytest.raises(PolicyRefused, match="7 numbers about each person would have left"):
        used.use(Used("another", 2, 10))


def test_a_part_of_a_budget_keeps_the_rest_for_others():
    budget = Budget("shop", 1.0)
    budget.open(10, 100)
    part = budget.all_but(1.0)
    assert part.left == 9.0
    part.check(9.0, "training")
    with pytest.raises(PolicyRefused, match="lets out 11 numbers"):
        part.check(10.0, "training")
    part.charge(8.5)
    assert (part.left, budget.left) == (0.5, 1.5)


# -- in training -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "sent"),
    [
        (cn.BlockNewton(tol=1e-9), ("directions",)),
        (cn.BlockNewton(tol=1e-9, grow_from=100), ("directions", "evaluation")),
        (cn.FedSGD(batch=50, tol=None), ("scores", "evaluation")),
        (cn.FedBCD(batch=50, tol=None, evaluate_every=2), ("scores", "evaluation")),
        (cn.FedSGD(batch=50, tol=None, sampling="uniform"), ("scores", "evaluation")),
        (cn.VFB2("svrg", batch=50, tol=None), ("scores for 1", "snapshot for 1", "evaluation")),
        (cn.VFB2("saga", asynchronous=False, batch=50, tol=None), ("scores", "evaluation")),
    ],
)
def test_a_run_ends_in_good_order_when_the_budget_is_spent(algorithm, sent):
    unlimited, _, _ = run(job(algorithm), 1000.0)
    reports = {}
    results, budgets, outcomes = run(job(algorithm), 0.5, reports=reports)  # 6 numbers about each person
    assert 3 <= budgets["shop"].charged <= 6 + 1e-9
    assert 0.9 <= budgets["bank"].charged <= budgets["shop"].charged  # its part of a score can be read from its signals
    left = outcomes["shop"].traffic.by_step
    numbers = sum(left.get(step, (0, 0))[1] for step in sent)
    narrow = 4 if isinstance(algorithm, cn.BlockNewton) else 8
    assert numbers <= 6 * PEOPLE * 8 + 100 * sum(left.get(step, (0, 0))[0] for step in sent)
    assert numbers > 2 * PEOPLE * narrow * (0.3 if isinstance(algorithm, cn.BlockNewton) else 1)
    for name in ("bank", "shop"):
        assert ("budget", 6.0) in reports[name]
        assert [value for value in reports[name] if value[0] == "budget spent"], name
    losses = [value[4] for value in reports["bank"] if value[0] == "record"]
    assert losses[-1] < losses[0]
    assert results["shop"].state[0].shape == unlimited["shop"].state[0].shape


@pytest.mark.parametrize("sampling", ["passes", "uniform"])
def test_free_launches_can_not_be_called_back_so_all_of_them_must_be_affordable(sampling):
    """Nobody knows how far the others are: the whole run is checked before it begins, and keeps to what it said."""
    options = {"batch": 50, "tol": None, "flow": "paper", "schedule": "constant", "step": 0.1, "sampling": sampling}
    algorithm = cn.VFB2("svrg", epochs=2, snapshot_every=1, **options)
    most = algorithm.numbers_per_row(job(algorithm).setting(PEOPLE))
    with pytest.raises(PolicyRefused, match="training with VFB2 lets out"):
        run(job(algorithm), (most - 2) / WIDTH)
    _, budgets, _ = run(job(algorithm), 1000.0)
    assert 0 < budgets["shop"].charged <= most


def test_a_budget_that_is_large_enough_changes_nothing():
    algorithm = cn.BlockNewton()
    reports = {}
    limited, budgets, _ = run(job(algorithm), 1000.0, reports=reports)
    assert ("budget", 12000.0) in reports["shop"]
    assert not [value for value in reports["bank"] if value[0] == "budget spent"]
    parties = [cn.Party("bank", X[:, :WIDTH], Y), cn.Party("shop", X[:, WIDTH:])]
    model = cn.LogisticRegression(l2=0.01, algorithm=algorithm, verbose=0).fit(*parties)
    for name, result in limited.items():
        assert result.state[0].tobytes() == model._states[name][0].tobytes()
    assert budgets["shop"].charged >= 5


def test_what_left_in_earlier_runs_is_missing_in_the_next():
    notes = {"bank": Notes(), "shop": Notes()}
    _, first, _ = run(job(cn.BlockNewton(tol=1e-9, epochs=4)), 0.5, notes)
    spent = first["shop"].charged
    assert 4 <= spent <= 6
    _, second, _ = run(job(cn.BlockNewton(tol=1e-9)), 0.5, notes) if spent < 6 else (None, None, None)
    with pytest.raises((PolicyRefused, RunFailed)) as refused:
        run(job(cn.BlockNewton(tol=1e-9)), 0.5, notes)
    assert "6 have left in earlier runs; raise max_directions" in str(refused.value.__cause__ or refused.value)
    assert second is None or second["shop"].charged <= 6 - spent


def test_a_party_that_is_killed_has_spent_what_it_noted():
    notes = {"bank": Notes(), "shop": Notes()}
    _, _, outcomes = run(job(cn.BlockNewton(tol=1e-9)), 1000.0)
    crashes = cn.Faults(crashes={"bank": 0.6 * outcomes["shop"].seconds})
    with pytest.raises(RunFailed):
        run(job(cn.BlockNewton(tol=1e-9)), 1000.0, notes, cn.Simulation(faults=crashes))
    noted = sum(record["numbers"] for record in notes["shop"].remembered("numbers about each person"))
    assert 1 <= noted < 12


def test_kernels_say_before_anything_leaves_that_they_need_more():
    made = {"family": "kernel", "model": KernelOptions("rbf", 0.2, 64, 1e-3)}
    kernel = replace(job(cn.FDSKL(epochs=2, block=16, batch=50)), **made)
    with pytest.raises((PolicyRefused, RunFailed)) as refused:
        run(kernel, 0.5)
    text = str(refused.value.__cause__ or refused.value)
    assert "training with FDSKL lets out 80 numbers about each person at least" in text
    _, budgets, _ = run(kernel, 10.0)
    assert 64 <= budgets["shop"].charged <= 80


# -- a leader that changes one number ----------------------------------------------------------------------------------


def broken_by(error):
    return str(error.value.__cause__ or error.value)


def test_a_leader_asks_for_more_pieces_than_the_job_has(monkeypatch):
    """One integer in a verdict opened every column of identified people: nobody does as it says any more."""
    pieces = Leader.pieces
    monkeypatch.setattr(Leader, "pieces", lambda self, value, now: (pieces(self, value, now), 24)[1])
    with pytest.raises((ProtocolError, RunFailed)) as refused:
        run(job(cn.BlockNewton()), 1000.0)
    assert "party 'bank' asks for directions in 24 pieces at step 'verdict', the job allows 8 at most" in broken_by(
        refused
    )


@pytest.mark.parametrize("part", [0.01, 0.5, -1.0, float("nan")])
def test_a_leader_asks_about_a_few_rows_only(monkeypatch, part):
    """Many numbers about a few people would be within what is let out on average."""
    monkeypatch.setattr(Leader, "larger", lambda *_: part)
    with pytest.raises((ProtocolError, RunFailed)) as refused:
        run(job(cn.BlockNewton()), 1000.0)
    assert "the job lets samples only grow" in broken_by(refused)


def test_a_leader_makes_room_for_more_than_a_party_offered(monkeypatch):
    tell = Session.tell

    async def lie(self, tag, value):
        await tell(self, tag, (1 << 40, value[1]) if tag == "room" else value)

    monkeypatch.setattr(Session, "tell", lie)
    with pytest.raises((ProtocolError, RunFailed)) as refused:
        run(job(cn.BlockNewton()), 1000.0)
    assert "at step 'room'" in broken_by(refused)


def test_a_leader_moves_by_what_is_no_number(monkeypatch):
    tell = Session.tell

    async def lie(self, tag, value):
        await tell(self, tag, np.full_like(value, np.nan) if tag == "move" else value)

    monkeypatch.setattr(Session, "tell", lie)
    with pytest.raises((ProtocolError, RunFailed)) as refused:
        run(job(cn.BlockNewton()), 1000.0)
    assert "finite numbers at step 'move'" in broken_by(refused)


# -- secret signs ------------------------------------------------------------------------------------------------------


def test_signs_come_from_a_secret_and_not_from_the_seed():
    columns, y = load_breast_cancer(return_X_y=True)
    parties = cn.split((columns - columns.mean(0)) / columns.std(0), y, into=3)

    def fitted(secret):
        model = cn.LogisticRegression(l2=1e-4, verbose=0)
        return model.fit(*parties, on=cn.Simulation(secret=secret))

    one, same, other, fresh = (fitted(secret) for secret in ("a", "a", "b", None))
    bits = [model.coef_["party2"].tobytes() for model in (one, same, other, fresh)]
    assert bits[0] == bits[1]
    assert len(set(bits)) == 3
    for model in (other, fresh):
        assert model.history_[-1]["loss"] == pytest.approx(one.history_[-1]["loss"], rel=1e-4)
