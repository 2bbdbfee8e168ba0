"""How a party keeps up: what makes it slow, which rows it then takes, how long its steps are, and when others wait."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import scipy.sparse as sp

import colonnade as cn
from colonnade.errors import ProtocolError
from colonnade.flows.asynchrony import Given
from colonnade.flows.pace import Pace

ROWS = 96


class Wire:
    """A net of three parties on which others have said something, if anything."""

    me, names = "a", ("a", "b", "c")

    def __init__(self, **told):
        self.told, self.sent = {name: [value] for name, value in told.items()}, []

    async def send(self, to, tag, value):
        self.sent.append((to, tag, value))

    async def recv_within(self, frm, tag, seconds):
        return (self.told[frm].pop(),) if self.told.get(frm) else ()


def seen(pace, contribution, update, round_=None, times=20):
    """A party whose contributions, updates and rounds took so long."""
    for _ in range(times):
        pace.contribution.add(contribution)
        pace.update.add(update)
        pace.round.add(contribution if round_ is None else round_)
    asyncio.run(pace.tell())
    return pace


def batch(rng, size=32):
    rows = rng.choice(ROWS, size=size, replace=False)
    return Given(rows, rows * 0.5, 0.8)


def slow(part=1 / 3, **options):
    """A party whose updates take three times as long as the others', or as many times as that."""
    return seen(Pace(Wire(b=(1.0, 1.0), c=(1.0, 1.0)), **options), 1.0, 1.0 / part)


# -- who is slow -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mine", "theirs", "part"),
    [
        ((1.0, 1.0), (1.0, 1.0), 1.0),
        ((1.0, 1.2), (1.0, 1.0), 1.0),  # a little longer is no reason
        ((1.0, 3.0), (1.0, 1.0), 1 / 3),
        ((1.0, 3.0), (3.0, 1.0), 1.0),  # everybody's updates take so long
        ((1.0, 6.0), (2.0, 1.0), 1 / 3),
        ((10.0, 30.0), (1.0, 1.0), 1.0),  # ten times as many columns as others have
        ((1.5, 6.0), (1.0, 1.0), 1 / 4),
        ((1.0, 12.0), (1.0, 1.0), 1 / 4),  # no fewer rows than these
        ((1.0, 0.2), (1.0, 1.0), 1.0),
    ],
)
def test_a_party_is_slow_only_if_its_updates_lag_behind_those_of_the_others(mine, theirs, part):
    pace = seen(Pace(Wire(b=theirs, c=theirs)), *mine)
    assert pace.part == pytest.approx(part)
    assert pace.slow == (part < 1.0)
    assert pace.overwhelmed == (mine == (1.0, 12.0))


def test_the_time_of_a_round_is_the_least_that_a_party_has():
    assert seen(Pace(Wire(b=(1.0, 1.0))), 1.0, 4.0, round_=2.0).part == pytest.approx(0.5)
    assert seen(Pace(Wire(b=(1.0, 1.0))), 1.0, 4.0, round_=4.0).part == 1.0


def test_threads_share_the_updates():
    assert seen(Pace(Wire(b=(1.0, 1.0)), 3), 1.0, 3.0).part == 1.0
    assert seen(Pace(Wire(b=(1.0, 1.0)), 2), 1.0, 6.0).part == pytest.approx(1 / 3)


def test_without_the_others_numbers_nobody_is_slow():
    assert seen(Pace(Wire()), 1.0, 9.0).part == 1.0
    assert seen(Pace(Wire(b=(1.0, 1.0))), 1.0, 9.0, times=2).part == 1.0  # and of two updates nothing can be said


def test_a_party_that_was_slow_is_not_for_ever():
    pace = slow()
    assert seen(pace, 1.0, 1.15, times=200).slow  # nearly
    assert not seen(pace, 1.0, 1.0, times=200).slow
    assert pace.part == 1.0


def test_a_lag_is_told_when_it_is_news():
    pace = seen(Pace(wire := Wire()), 1.0, 3.0)
    assert wire.sent == [("b", "lag", (3.0, 1.0)), ("c", "lag", (3.0, 1.0))]
    seen(pace, 1.0, 3.2, times=100)
    assert len(wire.sent) == 2
    seen(pace, 1.0, 6.0, times=100)
    assert len(wire.sent) > 2


@pytest.mark.parametrize("told", [None, 1.0, (1.0,), (1.0, -1.0), (float("nan"), 1.0), (1.0, float("inf")), (1, 1.0)])
def test_what_others_tell_is_checked(told):
    with pytest.raises(ProtocolError, match="party 'b' must send two numbers > 0 at step 'lag'"):
        seen(Pace(Wire(b=told)), 1.0, 1.0)


# -- what a slow party takes -------------------------------------------------------------------------------------------


def test_in_time_a_batch_stays_whole():
    given = batch(np.random.default_rng(0))
    assert Pace(Wire()).thin(given, ROWS) is given
    assert given.part == 1.0


@pytest.mark.parametrize("full", [True, False])
def test_a_part_of_a_batch_has_its_rows_and_signals_and_for_sgd_a_shorter_step(full):
    pace, given = slow(full_steps=full), batch(np.random.default_rng(0))
    part = pace.thin(given, ROWS)
    assert len(part.rows) == 11
    assert set(part.rows) < set(given.rows)
    np.testing.assert_array_equal(part.signal, part.rows * 0.5)
    assert part.weight == pytest.approx(0.8 if full else 0.8 * np.sqrt(11 / 32))
    assert part.part == 11 / 32


def test_one_row_is_always_taken():
    assert len(slow(0.1).thin(batch(np.random.default_rng(0), 2), ROWS).rows) == 1


def test_all_rows_have_their_turn():
    """Of every batch the rows that were longest left out: none is taken thrice before another is taken at all."""
    pace, rng, taken = slow(0.1), np.random.default_rng(0), np.zeros(ROWS, int)
    for _ in range(8):  # passes over all rows in batches, a quarter of each
        order = rng.permutation(ROWS)
        for at in range(0, ROWS, 32):
            given = Given(order[at : at + 32], np.zeros(32))
            taken[pace.thin(given, ROWS).rows] += 1
    assert taken.sum() == 8 * ROWS / 4
    assert taken.min() >= 1
    assert taken.max() <= 3


# -- under the virtual clock -------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
N, D = 480, 60
# Rows of very different lengths: the work on a batch, and so the time between signals, varies a lot.
X = sp.csr_matrix(RNG.standard_normal((N, D)) * (RNG.random((N, D)) < RNG.beta(0.5, 2.0, size=(N, 1))))
Y = np.where(X @ RNG.standard_normal(D) + RNG.logistic(size=N) > 0, 1, 0)


def fit(estimator="saga", make=cn.VFB2, speeds=None, active=4, **options):
    """Work takes as long as a few messages, as where parties are on one network."""
    on = cn.Simulation(seconds_per_nonzero=2e-6, latency=2e-5, bandwidth=3e9, speeds=speeds or {})
    algorithm = make(estimator, **{"batch": 8, "epochs": 4, "tol": None, **options})
    return cn.LogisticRegression(l2=0.02, algorithm=algorithm, verbose=0).fit(
        *cn.split(X, Y, into=4, active=active), on=on
    )


def flow(model):
    return [at for record in model.history_[1:] for at in record["staleness"].values()]


@pytest.mark.parametrize("estimator", ["sgd", "svrg", "saga"])
@pytest.mark.parametrize("make", [cn.VFB2, cn.AFSGD])
@pytest.mark.parametrize("options", [{}, {"max_staleness": 1}, {"max_staleness": 8, "threads": 2}])
def test_no_signal_is_dropped_and_no_row_left_out_without_a_straggler(make, estimator, options):
    """Batches take more or less time, the window fills, and contributions wait for the updates then."""
    for at in flow(fit(estimator, make, **options)):
        assert (at["dropped"], at["used"]) == (0, 1.0)


@pytest.mark.parametrize(("window", "threads"), [(1, 1), (2, 1), (4, 2)])
def test_signals_of_one_label_holder_are_never_staler_than_the_window_allows(window, threads):
    model = fit(active=1, max_staleness=window, threads=threads)
    assert max(at["max"] for at in flow(model)) <= window + threads - 1


@pytest.mark.parametrize("threads", [1, 2])
def test_contributions_wait_while_the_updates_fill_the_window(threads):
    """Everybody's updates take five times as long as contributions: nobody is slow, and the updates set the pace."""
    speeds = {f"party{k + 1}": {"forward": 1.0, "backward": 0.2} for k in range(4)}
    model = fit(speeds=speeds, threads=threads)
    assert all((at["dropped"], at["used"]) == (0, 1.0) for at in flow(model))


def test_threads_are_servers_of_a_lane():
    """Where updates set the pace, k threads of a party do k of them at once, and a party alone has none to spare."""
    speeds = {f"party{k + 1}": {"forward": 1.0, "backward": 0.1} for k in range(4)}
    seconds = [fit(speeds=speeds, threads=k).history_[-1]["time"] for k in (1, 2, 4)]
    assert seconds[0] / seconds[1] == pytest.approx(2.0, rel=0.15)
    assert seconds[0] / seconds[2] == pytest.approx(4.0, rel=0.3)


@pytest.mark.parametrize("estimator", ["sgd", "svrg", "saga"])
def test_nobody_waits_long_for_a_straggler_and_it_drops_nothing_while_a_part_of_the_rows_is_enough(estimator):
    third = {"party4": {"forward": 1.0, "backward": 1 / 3}}
    even, late = fit(estimator, batch=16, epochs=8), fit(estimator, speeds=third, batch=16, epochs=8)
    last = late.history_[-1]["staleness"]
    assert 0.25 < last["party4"]["used"] < 0.6
    assert all(last[f"party{k}"]["used"] == 1.0 for k in (1, 2, 3))
    assert not any(at["dropped"] for at in flow(late))
    assert late.history_[-1]["time"] < 1.3 * even.history_[-1]["time"]


def test_threads_repeat_to_the_bit():
    one, two = (fit(threads=3, speeds={"party2": {"forward": 1.0, "backward": 0.3}}) for _ in range(2))
    assert [c.tobytes() for c in one.coef_.values()] == [c.tobytes() for c in two.coef_.values()]
    assert one.history_ == two.history_


def test_an_update_is_worth_a_thread_if_it_is_large(monkeypatch):
    """Then it runs beside the event loop, with one thread too, so that a listener answers meanwhile."""
    from colonnade.flows import updates
    from colonnade.runtimes.virtual_clock import _SimNet

    calls, whole = [], _SimNet.in_thread

    async def counted(net, function, *args):
        calls.append(net.me)
        return await whole(net, function, *args)

    monkeypatch.setattr(_SimNet, "in_thread", counted)
    small = fit(epochs=2)
    assert calls == []
    monkeypatch.setattr(updates, "_WORTH_A_THREAD", 1)
    large = fit(epochs=2)
    assert len(calls) == 2 * 4 * N / 8
    assert [c.tobytes() for c in small.coef_.values()] == [c.tobytes() for c in large.coef_.values()]


def test_a_snapshot_piece_is_not_left_out_without_a_straggler(monkeypatch):
    from colonnade.flows.updates import Snapshot

    left_out, take = [], Snapshot.take

    def watched(snapshot, given, most):
        before = len(snapshot.waiting)
        take(snapshot, given, most)
        left_out.append(before + -(-len(given.rows) // snapshot.session.batch) - len(snapshot.waiting))

    monkeypatch.setattr(Snapshot, "take", watched)
    fit("svrg", max_staleness=1, speeds={f"party{k}": {"forward": 1.0, "backward": 0.2} for k in (1, 2, 3, 4)})
    assert left_out
    assert not any(left_out)
