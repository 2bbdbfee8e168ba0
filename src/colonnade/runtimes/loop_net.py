"""A party's `Net` in real time: one asyncio event loop, whatever its lines are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from colonnade.runtimes.endpoint import CHECKS_PER_DEADLINE, STOPPED
from colonnade.runtimes.net import Observer, PerLane, Program, Promise, SlowLanes, per_lane
from colonnade.runtimes.piecewise import Piecewise
from colonnade.runtimes.times import RealTimesheet, Times
from colonnade.runtimes.wire import Value, encoded_size

T = TypeVar("T")
_MOST_THREADS = 256  # as many as a program asks for at once are made, and no more


class LoopNet(Piecewise):
    """The part of a `Net` that every runtime with a real clock shares; what moves the frames is left to it."""

    def __init__(
        self, me: str, names: tuple[str, ...], deadline: float, observer: Observer | None, slowed: PerLane = 0.0
    ) -> None:
        self._loop = asyncio.get_running_loop()
        super().__init__(me, names, deadline, observer, self._loop.time())
        self._tasks: set[asyncio.Task[Any]] = set()
        self.sheet = RealTimesheet()
        self._lanes = SlowLanes(slowed, self.sheet) if any(per_lane(slowed).values()) else None
        self._threads: ThreadPoolExecutor | None = None
        self.spawn_failed: asyncio.Future[None] = self._loop.create_future()
        self._ticking = self._tick_later()

    def _tick_later(self) -> asyncio.TimerHandle:
        return self._loop.call_later(self.deadline / CHECKS_PER_DEADLINE, self._tick)

    def _tick(self) -> None:
        self.check_deadlines()
        self._ticking = self._tick_later()

    def promise(self) -> Promise:
        """See `Net.promise`."""
        return cast("Promise", self._loop.create_future())

    def _now(self) -> float:
        return self._loop.time()

    def times(self) -> Times:
        """What this party has done with its time since the start of the run."""
        return self.sheet.times(self.elapsed())

    def _emit(self, to: str, kind: int, seq: int, tag: str, value: Value) -> None:
        began = self.sheet.begin_message()
        super()._emit(to, kind, seq, tag, value)
        self.sheet.end_message(began)

    def _next_piece(self, to: str, frames: Iterator[bytes]) -> bool:
        began = self.sheet.begin_message()
        found = super()._next_piece(to, frames)
        self.sheet.end_message(began)
        return found

    async def work(self, nonzeros: float, lane: str = "forward", servers: int = 1) -> None:
        """Real work takes its own time; a party that is slowed sleeps besides."""
        if self._lanes is not None:
            await self._lanes.work(nonzeros, lane, servers)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """See `Net.in_thread`."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix=self.me)
        return await self._loop.run_in_executor(self._threads, function, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """See `Net.spawn`; a failure of the spawned coroutine is a failure of the party."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._spawned_ended)
        return task

    def _spawned_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.spawn_failed.done():
            self.spawn_failed.set_exception(error)

    async def carry_out(self, program: Program, args: tuple[Value, ...]) -> Any:
        """Run this party's program to its end and tell the others how it ended; what it raises is raised here."""
        try:
            main = self.spawn(program(self, *args))
            both: list[asyncio.Future[Any]] = [main, self.spawn_failed]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if self.spawn_failed.done():
                self.spawn_failed.result()
            value = main.result()
            encoded_size(value)  # refuses what can't travel before anybody hears a goodbye
        except asyncio.CancelledError as error:
            self.fail(error, STOPPED)
            raise
        except BaseException as error:
            self.fail(error)
            raise
        self.goodbye()
        return value

    async def close(self) -> None:
        """Give up the lines."""
        raise TypeError("a runtime's net must give up its lines")

    async def end_tasks(self, also: Iterable[asyncio.Future[Any]] = ()) -> None:
        """End all that was spawned; wait for that, and for what else is named, at most for the deadline."""
        self._ticking.cancel()
        for task in self._tasks:
            task.cancel()
        if ending := [*self._tasks, *also]:
            await asyncio.wait(ending, timeout=self.deadline)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self.spawn_failed.done():
            self.spawn_failed.exception()  # seen
