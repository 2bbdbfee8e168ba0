"""A straggler in real time, under timers that are as coarse as asyncio's: no real second passes here."""

from __future__ import annotations

import asyncio
import math
import selectors

import pytest

from colonnade.runtimes.net import SlowLanes
from colonnade.runtimes.times import RealTimesheet


class CoarseTimers(selectors.SelectSelector):
    """Every wait ends at once, and the clock stands where a timer of whole milliseconds and a busy machine leave it."""

    now, late = 0.0, 0.0

    def select(self, timeout=None):
        if timeout:
            self.now += math.ceil(timeout * 1e3) * 1e-3 + self.late
        return super().select(0)


def run(scenario, late=0.0):
    """The clock after a scenario that gets the lanes' clock to look at."""
    selector = CoarseTimers()
    selector.late = late
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now
    try:
        loop.run_until_complete(scenario(selector))
    finally:
        loop.close()
    return selector.now


@pytest.mark.parametrize("late", [0.0, 3e-4])
@pytest.mark.parametrize("each", [3e-6, 1.3e-4, 1.1e-3, 7.7e-3])
def test_errors_of_timers_do_not_add_up(each, late):
    async def scenario(_):
        lanes = SlowLanes(1e-6, RealTimesheet())
        for _ in range(1000):
            await lanes.work(each * 1e6, "forward")

    assert run(scenario, late) == pytest.approx(1000 * each, abs=2e-3)


def test_what_is_owed_outlasts_the_work_between():
    """Each batch is too short for a timer, and the kernels between take longer than it: it is slept all the same."""

    async def scenario(clock):
        lanes = SlowLanes({"forward": 1e-6, "backward": 0.0}, RealTimesheet())
        for _ in range(1000):
            await lanes.work(100, "forward")
            clock.now += 1e-3

    assert run(scenario) == pytest.approx(1.0 + 0.1, abs=3e-3)


def test_a_busy_party_is_not_credited_for_it():
    """Only a timer's own error is: kernels that hold up the loop don't make the next batch free."""

    async def scenario(clock):
        lanes = SlowLanes(1e-6, RealTimesheet())
        for _ in range(10):
            clock.late = 0.5
            await lanes.work(1e4, "forward")
            clock.late = 0.0
            await lanes.work(1e4, "forward")

    assert run(scenario) == pytest.approx(10 * (0.02 + 0.5 - 2e-3), abs=2e-2)


def test_queued_work_of_a_lane_ends_in_order_and_in_time():
    ended = []

    async def scenario(clock):
        lanes = SlowLanes({"forward": 1e-6, "backward": 1.5e-6}, RealTimesheet())

        async def work(lane):
            await lanes.work(1e4, lane)
            ended.append((lane, clock.now))

        await asyncio.gather(*(work(lane) for lane in ("forward", "forward", "backward", "forward")))

    run(scenario)
    assert [lane for lane, _ in ended] == ["forward", "backward", "forward", "forward"]
    assert [second for _, second in ended] == pytest.approx([0.01, 0.015, 0.02, 0.03], abs=1.5e-3)


def test_servers_of_a_lane_work_at_once():
    ended = []

    async def scenario(clock):
        lanes = SlowLanes({"forward": 1e-6, "backward": 1e-6}, RealTimesheet())

        async def work(servers):
            await lanes.work(1e4, "backward", servers)
            ended.append(clock.now)

        await asyncio.gather(*(work(2) for _ in range(5)))

    run(scenario)
    assert ended == pytest.approx([0.01, 0.01, 0.02, 0.02, 0.03], abs=1.5e-3)
