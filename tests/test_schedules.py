"""Random schedules of faults under the virtual clock: each ends with the right model, or with an error that names whom.

A few of each algorithm here, thousands with `make schedules`. And that wrong ends and hangs are found.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import colonnade as cn
import schedules
from colonnade.errors import PartySilent, RunFailed
from schedule_cases import CASES, Cast, fit, still
from schedule_draws import DEADLINE, Plan, draw
from schedule_world import Disturbed, Hang, World
from schedules import Wrong, attempt, carry_out, check_error, guarded, held_up, table

PARTS, EACH = 4, 3


@pytest.mark.parametrize("part", range(PARTS))
def test_any_schedule_ends_right(part):
    found, wrong = Counter(), []
    for seed in range(part, EACH * len(CASES), PARTS):
        name, end, _, text = attempt(seed)
        found[name, end] += 1
        wrong += [text] if text else []
    assert wrong == []
    ends = {end for _, end in found}
    assert "model" in ends
    assert ends & {"resumed", "error"}
    assert f"all{sum(found.values()):33}" in table(found, {})


def test_who_dies_while_its_stream_rests_is_found_within_the_deadline():
    # With flow="paper": it crashes while it has nothing to launch, and after that the others expect it to go on.
    assert attempt(217) == ("AFSGD svrg, printed", "resumed", pytest.approx(0, abs=0.1), "")


def test_schedules_have_all_kinds_of_faults():
    plans = [draw(seed) for seed in range(0, 40 * len(CASES), len(CASES))]
    faults = [clock.faults for plan in plans for clock in plan.clocks if clock.faults]
    for kind in ("lost", "delayed", "duplicated", "crashes"):
        assert {bool(getattr(each, kind)) for each in faults} == {True, False}
    assert {plan.cast.parties for plan in plans} == {2, 3, 4}
    assert {plan.cast.holders for plan in plans} == {1, 2, 3}
    assert {plan.kept for plan in plans} == {"", "memory", "disk"}
    assert {len(plan.clocks) for plan in plans} == {1, 2, 3}
    assert any(plan.stalled for plan in plans)


# -- what is wrong is found --------------------------------------------------------------------------------------------


def case(name):
    return next(one for one in CASES if one.name == name)


def plan(name, seed=0, parties=3, clock=None, stalled=()):
    cast = Cast(parties, 1)
    return Plan(seed, case(name), cast, "plain", "tree", (clock or cn.Simulation(),), frozenset(stalled), "")


def altered(change):
    """Like `fit`, and then the model is changed."""

    def train(*args, **options):
        model = fit(*args, **options)
        change(model)
        return model

    return train


def last_bit(model):
    theta = model._states["party1"][0]
    theta[0, 0] = np.nextafter(theta[0, 0], 1.0)


def all_nothing(model):
    for theta, *_ in model._states.values():
        theta[:] = 0.0


def one_site_less(model):
    model._states = {"model": (model.parameters_ * 0.9,)}


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("FedSGD", last_bit, "another one than on a perfect line"),
        ("BlockNewton", last_bit, "another one than on a perfect line"),
        ("VFB2 saga, asynchronous", all_nothing, "above the optimum"),
        ("BlockNewton, pieces", all_nothing, "above the optimum"),
        ("SSCA, rows", one_site_less, "not that of the sites that answered"),
        ("alignment", lambda rows: rows.update(party1=rows["party1"][:-1]), "not those that all parties have"),
    ],
)
def test_a_wrong_model_is_found(monkeypatch, name, change, words):
    monkeypatch.setattr(schedules, "draw", lambda seed: plan(name, seed))
    assert carry_out(0)[0] == "model"
    monkeypatch.setattr(schedules, "fit", altered(change))
    with pytest.raises(Wrong, match=words):
        carry_out(0)


def test_a_run_that_goes_on_to_another_model_is_found(monkeypatch):
    """The last start does not know what was kept, and ends with fewer epochs."""
    short = replace(case("FedSGD"), make=lambda _cast, **options: cn.LogisticRegression(
        l2=0.02, verbose=0, algorithm=cn.FedSGD(batch=16, epochs=2, tol=None), **options
    ))  # fmt: skip
    crash = cn.Simulation(latency=1.0, faults=cn.Faults(crashes={"party2": 30.0}))
    broken = replace(plan("FedSGD", clock=crash), clocks=(crash, cn.Simulation()), kept="memory")
    monkeypatch.setattr(schedules, "draw", lambda _: broken)
    assert carry_out(0)[0] == "resumed"
    monkeypatch.setattr(schedules, "draw", lambda _: replace(broken, case=short))
    monkeypatch.setattr(schedules, "still", lambda _case, cast: still(case("FedSGD"), cast))
    with pytest.raises(Wrong, match="another one"):
        carry_out(0)


def ended(clock, name="FedSGD"):
    """(the world, the error) of a run that breaks."""
    on = Disturbed(clock)
    with pytest.raises(RunFailed) as caught:
        fit(case(name), Cast(3, 1), on, sum="plain")
    return on.world, caught.value


def test_an_error_that_names_another_party_or_step_is_found():
    clock = cn.Simulation(faults=cn.Faults(crashes={"party2": 0.002}), deadline=DEADLINE)
    world, error = ended(clock)
    check_error(plan("FedSGD"), clock, world, error)
    (finder, found, waits), *_ = broken = world.broken
    assert found.party == "party2"
    world.broken = [(finder, PartySilent("party 'party3' was silent", "party3", found.step), waits), *broken[1:]]
    with pytest.raises(Wrong, match="only \\['party2'\\] were disturbed"):
        check_error(plan("FedSGD"), clock, world, error)
    world.broken = [(finder, PartySilent("party 'party2' was silent", "party2", "a step of its own"), waits)]
    with pytest.raises(Wrong, match="nobody was waiting for that"):
        check_error(plan("FedSGD"), clock, world, error)
    world.broken = []
    with pytest.raises(Wrong, match="which nobody found"):
        check_error(plan("FedSGD"), clock, world, error)


def test_an_error_without_a_fault_is_found():
    slow = cn.Simulation(speeds={"party2": 1e-9}, seconds_per_nonzero=1e-6, deadline=DEADLINE)
    world, error = ended(slow)
    check_error(plan("FedSGD", stalled=["party2"]), slow, world, error)
    with pytest.raises(Wrong, match="nothing was lost and nobody crashed, and yet: party 'party2' was silent"):
        check_error(plan("FedSGD"), slow, world, error)


def test_a_party_that_ends_late_is_found():
    clock = cn.Simulation(faults=cn.Faults(crashes={"party2": 0.002}), deadline=DEADLINE)
    world, error = ended(clock)
    error.outcomes["party3"].seconds += 0.1 * DEADLINE
    with pytest.raises(Wrong, match="party3 ended"):
        check_error(plan("FedSGD"), clock, world, error)


def test_who_waits_in_a_circle_for_a_lost_message_or_a_stalled_party_is_held_up():
    waits = {("a", "b", "scores"), ("b", "c", "scores"), ("c", "a", "signal"), ("d", "e", "scores")}
    said, nobody = "though it is alive (it may be busy, or a message was lost)", frozenset()
    assert held_up(waits, [("c", "b", 0)], nobody, said) == {"a", "b", "c"}
    assert held_up(waits, [("c", "b", 0)], nobody, "it was silent") == set()
    assert held_up(waits, [("b", "c", 0)], nobody, said) == set()  # nobody waits for that one
    assert held_up(waits, [("c", "b", 2)], nobody, said) == set()  # a question, and no message of the program's
    assert held_up(waits, [], frozenset("e"), said) == {"d"}


# -- hangs are found ---------------------------------------------------------------------------------------------------


async def listen(net, peer):
    return await net.recv(peer, "nothing", patient=True)


def test_a_run_that_hangs_in_virtual_time_is_found(monkeypatch):
    monkeypatch.setattr("schedule_world.LONGEST", 1000.0)
    with pytest.raises(Hang, match="these parties still run: a at 'nothing', b at 'nothing'"):
        World(cn.Simulation(), {"a": (listen, ("b",)), "b": (listen, ("a",))}, None).run()


def test_a_run_that_hangs_on_the_walls_clock_is_found(monkeypatch):
    async def spin(net):
        while True:
            await net.work(0)  # no time passes, and it never ends

    monkeypatch.setattr(schedules, "GUARD", 0.5)
    with pytest.raises(Hang, match="real seconds are over"), guarded():
        World(cn.Simulation(), {"a": (spin, ())}, None).run()
    with suppress(ValueError), guarded():
        raise ValueError  # the alarm is off after this


def test_an_end_that_is_wrong_is_told_with_its_seed(monkeypatch):
    monkeypatch.setattr(schedules, "draw", lambda seed: plan("FedSGD", seed))
    monkeypatch.setattr(schedules, "fit", altered(last_bit))
    assert attempt(7)[1:] == ("wrong", 0.0, "seed 7: Wrong: the model is another one than on a perfect line")

    def hang(*_, **__):
        raise Hang("no end")

    monkeypatch.setattr(schedules, "fit", hang)
    assert attempt(7)[1:] == ("hang", 0.0, "seed 7: no end")
