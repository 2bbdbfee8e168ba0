"""Asynchrony as printed: a slow reference, free launches that nobody bounds, ends at which nobody is left waiting."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import ColonnadeError, OptionError, RunFailed
from colonnade.flows import free_launches
from colonnade.flows.free_launches import FreeLaunches, OwnDraws
from colonnade.leaks import Setting
from test_vfb2 import STRENGTH, N, X, Y, bits, objective, optimum, sigma

FREE = {"flow": "paper", "schedule": "constant", "step": 0.1, "tol": None}
D = X.shape[1]
SPEED = {"seconds_per_nonzero": 1e-6}
pytestmark = pytest.mark.filterwarnings("ignore:.*hold no labels")


def fit(estimator, active=2, on=None, make=cn.VFB2, into=4, parties=None, **options):
    algorithm = make(estimator, **{"batch": 8, "epochs": 3, **FREE, **options})
    parties = parties or cn.split(X, Y, into=into, active=active)
    return cn.LogisticRegression(l2=STRENGTH, algorithm=algorithm, verbose=0).fit(*parties, on=on or cn.Simulation())


def staleness(model):
    return [at for record in model.history_[1:] for at in record.get("staleness", {}).values()]


# -- the steps ---------------------------------------------------------------------------------------------------------


def reference(estimator, epochs, eta, sampling, every=2, table_at_start=False):
    """Algorithm 2 of one label holder, which no other disturbs: rows of its own choice, one launch after another."""
    A, y = np.column_stack([X, np.ones(N)]), 2.0 * Y - 1
    w, table = np.zeros(D + 1), np.zeros((N, D + 1))
    draws = OwnDraws(sampling, 0, epochs, {"party1": np.arange(N)}, 8)
    for launch in range(30 * epochs):
        stage = launch % (30 * every) == 0 if estimator == "svrg" else launch == 0 and table_at_start
        if stage:
            table = sigma(A @ w, y)[:, None] * A
        rows = draws.rows("party1", launch)
        g = sigma(A[rows] @ w, y[rows])[:, None] * A[rows]
        average = 0.0 if estimator == "sgd" else table.mean(axis=0)
        change = g.mean(axis=0) - (0.0 if estimator == "sgd" else table[rows].mean(axis=0))
        w = w - eta * (change + average + STRENGTH * np.append(w[:-1], 0.0))
        if estimator == "saga":
            table[rows] = g
    return w


@pytest.mark.parametrize("sampling", ["passes", "uniform"])
@pytest.mark.parametrize(
    ("estimator", "options"),
    [("sgd", {}), ("svrg", {}), ("svrg", {"snapshot_every": 1}), ("saga", {}), ("saga", {"table": "start"})],
)
def test_one_label_holder_alone_gives_the_reference(estimator, options, sampling):
    """Where work takes no time, every update is made before the next contribution."""
    model = fit(estimator, active=1, sampling=sampling, on=cn.Simulation(seconds_per_nonzero=0.0), **options)
    w = reference(estimator, 3, 0.1, sampling, options.get("snapshot_every", 2), "table" in options)
    np.testing.assert_allclose(np.concatenate(list(model.coef_.values())), w[:-1], rtol=0, atol=1e-9)
    assert model.intercept_ == pytest.approx(w[-1], rel=0, abs=1e-9)


def test_label_holders_choose_rows_of_their_own():
    rows = {"a": np.arange(40), "b": np.arange(40)}
    for sampling in ("passes", "uniform"):
        draws, again = (OwnDraws(sampling, 0, 3, rows, 8) for _ in range(2))
        mine, theirs = ([draws.rows(name, launch).tolist() for launch in range(15)] for name in ("a", "b"))
        assert mine != theirs
        assert mine == [again.rows("a", launch).tolist() for launch in range(15)]  # whatever the other's are
    assert sorted(np.concatenate(mine[:5]).tolist()) != list(range(40))
    first = OwnDraws("passes", 0, 3, rows, 8)
    assert sorted(row for launch in range(5) for row in first.rows("a", launch)) == list(range(40))


@pytest.mark.parametrize("estimator", ["svrg", "saga"])
@pytest.mark.parametrize("make", [cn.VFB2, cn.AFSGD])
def test_free_launches_reach_the_optimum(make, estimator):
    active = 2 if make is cn.VFB2 else 4
    parties = cn.split(X, Y, into=4, active=active)
    model = fit(estimator, make=make, parties=parties, batch=12, epochs=40, step=0.4, on=cn.Simulation(**SPEED))
    assert objective(model, parties) - optimum() < 1e-6


def test_label_holders_with_a_part_of_the_rows_each():
    y = Y.astype(object)
    first, second = y.copy(), y.copy()
    first[:100], second[150:] = None, None
    parties = [cn.Party("a", X[:, :6], first), cn.Party("b", X[:, 6:], second)]
    model = fit("saga", parties=parties, epochs=60, step=0.25)
    assert objective(model, parties) - optimum() < 1e-6


# -- what is free about it ---------------------------------------------------------------------------------------------


def test_a_run_repeats_to_the_bit():
    on = cn.Simulation(latency={("party1", "party2"): 0.003}, speeds={"party3": 0.3}, **SPEED)
    for make, threads in ((cn.VFB2, 1), (cn.VFB2, 3), (cn.AFSGD, 2)):
        one, two = (fit("saga", on=on, make=make, threads=threads) for _ in range(2))
        assert bits(one) == bits(two)
        assert one.history_ == two.history_
        assert bits(fit("saga", on=on, make=make, threads=threads, seed=1)) != bits(one)


def test_signals_wait_for_a_slow_party_without_bound_and_none_is_left_out():
    slow = cn.Simulation(speeds={"party4": {"forward": 1.0, "backward": 0.02}}, seconds_per_nonzero=1e-5, latency=1e-4)
    free, bounded = (
        fit("sgd", on=slow, step=0.01, flow=flow, epochs=4, evaluate_every=30) for flow in ("paper", "bounded")
    )
    at = [record["staleness"]["party4"] for record in free.history_[1:] if "party4" in record["staleness"]]
    assert max(one["max"] for one in at) > 50
    assert max(one["max"] for one in staleness(bounded)) <= 4
    assert all((one["dropped"], one["used"]) == (0, 1.0) for one in staleness(free))


def test_a_fast_label_holder_launches_more_often():
    """Up to its share: whoever is slow makes up for it when others are done."""
    on = cn.Simulation(speeds={"party2": {"forward": 1.0, "backward": 0.05}}, seconds_per_nonzero=1e-5, latency=1e-4)
    whole = fit("sgd", on=on)
    asked = {name: whole.traffic_[name].by_step["launch"][0] / 3 for name in ("party1", "party2")}
    assert abs(asked["party1"] - asked["party2"]) <= 8  # and the looks of the first
    short = fit("sgd", on=on, seconds=whole.history_[-1]["time"] / 3, evaluate_every=5)
    asked = {name: short.traffic_[name].by_step["launch"][0] / 3 for name in ("party1", "party2")}
    assert asked["party1"] > 1.5 * asked["party2"]


@pytest.mark.parametrize("threads", [1, 2])
def test_every_label_holder_of_afsgd_asks_for_all_scores_itself(threads):
    """Each of q label holders has q contributions for each of its own updates, and nothing goes back."""
    model = fit("sgd", active=3, make=cn.AFSGD, threads=threads)
    assert {traffic.rounds for traffic in model.traffic_.values()} == {3 * 3 * N / 8}
    for traffic in model.traffic_.values():
        assert not {"signal", "total"} & set(traffic.by_step)
    assert not model.coef_["party4"].any()


def test_evaluations_go_on_beside_training():
    model = fit("sgd", epochs=4, evaluate_every=15, on=cn.Simulation(**SPEED))
    assert model.history_[0]["epoch"] == 0
    assert len(model.history_) == 1 + 7 + 1  # the start, every fifteen of 120 launches, and at rest
    rounds = [record["rounds"] for record in model.history_]
    assert rounds == sorted(rounds)
    assert rounds[-1] == 120
    assert model.history_[-1]["loss"] < 0.95 * model.history_[0]["loss"]


# -- ends --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [cn.VFB2, cn.AFSGD])
@pytest.mark.parametrize("active", [1, 3])
@pytest.mark.parametrize("slow", ["party1", "party2", "party4"])
@pytest.mark.parametrize("options", [{"threads": 3}, {"goal": 0.6, "evaluate_every": 4}, {"seconds": 0.01}])
def test_nobody_is_left_waiting_at_the_end(make, active, slow, options):
    """Whoever is slow, and whether launches, a goal or the time are what ends it; and all rows were served."""
    on = cn.Simulation(speeds={slow: 0.1}, seconds_per_nonzero=1e-5, deadline=1.0)
    model = fit("svrg" if "threads" in options else "saga", active=active, on=on, make=make, **options)
    assert len({traffic.rounds for traffic in model.traffic_.values()}) == 1
    if "goal" in options:
        assert model.history_[-1]["rounds"] < 90 * active or make is cn.VFB2


@pytest.mark.parametrize("estimator", ["sgd", "svrg"])
@pytest.mark.parametrize("active", [1, 3])
def test_a_crash_names_the_party(estimator, active):
    """Whoever it is and whenever it is, at the end too, when label holders have nothing to launch any more."""
    length = fit(estimator, active=active).history_[-1]["time"]
    for k in range(4):
        for part in (0.1, 0.5, 0.9, 0.97):
            name = f"party{k + 1}"
            on = cn.Simulation(faults=cn.Faults(crashes={name: part * length}), deadline=5)
            with pytest.raises(RunFailed) as caught:
                fit(estimator, active=active, on=on)
            assert caught.value.party == name


@pytest.mark.parametrize("make", [cn.VFB2, cn.AFSGD])
def test_in_processes(make):
    parties = cn.split(X, Y, into=3, active=3)
    model = fit("saga", make=make, parties=parties, on=cn.Processes(), epochs=30, step=0.2, threads=2)
    assert objective(model, parties) - optimum() < 5e-3


def test_large_updates_run_in_threads_beside_evaluations(monkeypatch):
    """Evaluations touch every column, so no update runs in a thread meanwhile."""
    from colonnade.flows import updates

    monkeypatch.setattr(updates, "_WORTH_A_THREAD", 1)
    model = fit("saga", threads=2, epochs=4, evaluate_every=3, on=cn.Simulation(**SPEED))
    assert model.history_[-1]["loss"] < 0.95 * model.history_[0]["loss"]


# -- switches of the bounded flow --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behind", "used", "dropped"),
    [("thin", (0.2, 0.6), False), ("drop", (1.0, 1.0), True), ("wait", (1.0, 1.0), False)],
)
def test_what_happens_to_a_slow_party_is_a_choice(behind, used, dropped):
    speeds = {"party4": {"forward": 1.0, "backward": 1 / 3}}
    third = cn.Simulation(speeds=speeds, seconds_per_nonzero=1e-5, latency=2e-5)
    model = fit("saga", on=third, flow="bounded", behind=behind, max_staleness=1, epochs=6)
    late = [record["staleness"]["party4"] for record in model.history_[2:]]
    assert all(used[0] <= at["used"] <= used[1] for at in late)
    assert any(at["dropped"] for at in late) == dropped


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"flow": "free"}, "flow must be one of 'bounded', 'paper', got 'free'"),
        ({"schedule": "adaptive"}, "flow='paper' can't go back to better parameters while others go on"),
        ({"asynchronous": False}, "flow='paper' needs asynchronous=True"),
        ({"rounds": 5}, "flow='paper' counts no rounds, got rounds=5"),
        ({"behind": "skip"}, "behind must be one of 'thin', 'drop', 'wait', got 'skip'"),
        ({"behind": "wait"}, "flow='paper' lets signals wait without bound, got behind='wait'; leave it out, or use"),
        ({"max_staleness": 4}, "flow='paper' lets signals wait without bound, got max_staleness=4; leave it out, or"),
        ({"table": "ones"}, "table must be one of 'zeros', 'start', got 'ones'"),
        ({"estimator": "svrg", "table": "start"}, "table must be 'zeros' with estimator='svrg'; only SAGA"),
        ({"snapshot_every": 0}, "snapshot_every must be >= 1, got 0"),
    ],
)
def test_options_are_refused_in_one_sentence(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        cn.VFB2(**{"flow": "paper", "schedule": "constant", **options})


def test_fdml_has_one_flow():
    with pytest.raises(OptionError, match="FDML's flow must be 'bounded', got 'paper'"):
        cn.FDML(flow="paper")


def test_evaluations_of_several_label_holders_are_under_way_at_once():
    """Parts of different sizes: a message that was taken for another's would not fit."""
    y = Y.astype(object)
    labels = [y.copy() for _ in range(3)]
    labels[0][:20], labels[1][20:200], labels[2][5:] = None, None, None
    parties = [cn.Party(f"party{k + 1}", X[:, 2 * k : 2 * k + 2], labels[k] if k < 3 else None) for k in range(6)]
    for seed in range(3):
        model = fit("saga", parties=parties, on=cn.Simulation(**SPEED), evaluate_every=1, epochs=2, seed=seed)
        assert model.history_[-1]["loss"] < model.history_[0]["loss"]


# -- label holders that do not follow the program ----------------------------------------------------------------------


@pytest.mark.parametrize("cheat", ["party1", "party2"])
def test_nobody_asks_for_more_evaluations_than_launches_allow(cheat, monkeypatch):
    """Each would show the asker one number more about every row of its own."""
    honest = FreeLaunches.launch_all

    async def curious(self):
        if self.me == cheat:
            for _ in range(20):
                self.request(free_launches._LOOK)
        await honest(self)

    monkeypatch.setattr(FreeLaunches, "launch_all", curious)
    with pytest.raises(ColonnadeError, match=f"party '{cheat}' must send the number of its next launch"):
        fit("sgd")


def test_a_label_holder_that_closes_early_is_named(monkeypatch):
    honest = FreeLaunches.launch_all

    async def hasty(self):
        if self.me == "party2":
            await self.request(free_launches._CLOSE)
        else:
            await honest(self)

    monkeypatch.setattr(FreeLaunches, "launch_all", hasty)
    with pytest.raises(ColonnadeError, match="party 'party2' must send the number of its next launch"):
        fit("sgd")


@pytest.mark.parametrize("make", [cn.AFSGD, cn.VFB2])
def test_no_more_numbers_leave_than_are_declared_however_often_is_looked(make, monkeypatch):
    sessions, begin = {}, FreeLaunches.__init__

    def noted(self, *rest):
        begin(self, *rest)
        sessions[self.me] = self.session

    monkeypatch.setattr(FreeLaunches, "__init__", noted)
    slow = {f"party{k}": {"forward": 1.0, "backward": 0.02} for k in range(1, 5)}
    fit("sgd", active=4, make=make, evaluate_every=1, on=cn.Simulation(speeds=slow, **SPEED))
    setting = Setting(tuple("abcd"), tuple("abcd"), rows=N)
    declared = make("sgd", batch=8, epochs=3, evaluate_every=1, **FREE).numbers_per_row(setting)
    assert 0.2 * declared < sessions["party1"].allowance.used <= declared
