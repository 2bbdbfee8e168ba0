"""The event loop of a simulation: a heap of events, the parties' coroutines, and the lines between them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from colonnade.errors import ColonnadeError, PartyFailed, ProtocolError
from colonnade.runtimes.endpoint import CHECKS_PER_DEADLINE, Endpoint
from colonnade.runtimes.frames import ABORT, BYE, FRAME_OVERHEAD, check_size
from colonnade.runtimes.net import LANES, Observer, Outcome, Program, Servers, foreign, per_lane
from colonnade.runtimes.times import VirtualTimesheet
from colonnade.runtimes.wire import Value, encoded_size, freeze

if TYPE_CHECKING:
    from colonnade.runtimes.simulation import Simulation

T = TypeVar("T")


class _Promise:
    """The virtual clock's future: resolved once, wakes the tasks that await it."""

    __slots__ = ("_done", "_error", "_value", "tasks", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self.tasks: list[_Task] = []
        self._done, self._value, self._error = False, None, None

    def done(self) -> bool:
        return self._done

    def set_result(self, value: Any) -> None:
        self._done, self._value = True, value
        self.world.ready.extend(self.tasks)

    def set_exception(self, error: BaseException) -> None:
        self._error = error  # type: ignore[assignment]
        self.set_result(None)

    def __await__(self) -> Generator[_Promise, None, Any]:
        if not self._done:
            yield self
        if self._error is not None:
            raise self._error
        return self._value


class _Task:
    """A coroutine of one party; may itself be awaited."""

    __slots__ = ("coroutine", "finished", "net")

    def __init__(self, net: _SimNet, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.net, self.coroutine = net, coroutine
        self.finished = _Promise(net.world)

    def __await__(self) -> Generator[_Promise, None, Any]:
        return self.finished.__await__()

    def step(self) -> None:
        try:
            self.coroutine.send(None).tasks.append(self)
        except StopIteration as stop:
            self.finished.set_result(stop.value)
            self.net.task_ended(self, stop.value, None)
        except Exception as error:
            self.finished.set_exception(error)
            self.net.task_ended(self, None, error)


class _SimNet(Endpoint):
    """A party's `Net` under the virtual clock."""

    in_order: ClassVar[bool] = False  # messages may overtake each other, see `Faults`
    bounded: ClassVar[bool] = False

    def __init__(self, world: World, me: str, observer: Observer | None) -> None:
        super().__init__(me, world.names, world.options.deadline, observer, 0.0)
        self.rehearsed = world.options.secret
        self.world = world
        self.outcome = Outcome()
        self.running = True
        self._tasks: set[_Task] = set()
        self._main: _Task | None = None
        self._speed = per_lane(world.options.speeds.get(me, 1.0))
        self._servers = {lane: Servers() for lane in LANES}
        self.sheet = VirtualTimesheet()

    def start(self, coroutine: Coroutine[Any, Any, Value]) -> None:
        self._main = self._launch(coroutine)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> _Task:
        return self._launch(coroutine)

    def _launch(self, coroutine: Coroutine[Any, Any, Any]) -> _Task:
        task = _Task(self, coroutine)
        self._tasks.add(task)
        self.world.ready.append(task)
        return task

    async def work(self, nonzeros: float, lane: str = "forward", servers: int = 1) -> None:
        # A lane has threads of its own: work queues behind the work of its lane that is already under way.
        world = self.world
        seconds = nonzeros * world.options.seconds_per_nonzero / self._speed[lane]
        until = self._servers[lane].take(world.now, seconds, servers)
        self.sheet.work(world.now, until)
        if world.onlooker is not None and seconds:
            world.onlooker.worked(self.me, lane, until - seconds, until)
        done = _Promise(world)
        world.at(until, done.set_result, (None,))
        await done

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return function(*args)

    def report(self, value: Value) -> None:
        value = freeze(value)  # what would arrive from a process
        super().report(value)
        if self.world.onlooker is not None:
            self.world.onlooker.reported(self.me, self.world.now, value)

    async def recv(self, frm: str, tag: str, *, patient: bool = False) -> Any:
        if (onlooker := self.world.onlooker) is None:
            return await super().recv(frm, tag, patient=patient)
        since = self.world.now
        try:
            return await super().recv(frm, tag, patient=patient)
        finally:
            if self.world.now > since:
                onlooker.waited(self.me, frm, tag, since, self.world.now)

    async def recv_within(self, frm: str, tag: str, seconds: float) -> tuple[Any, ...]:
        if (onlooker := self.world.onlooker) is None:
            return await super().recv_within(frm, tag, seconds)
        since = self.world.now
        try:
            return await super().recv_within(frm, tag, seconds)
        finally:
            if self.world.now > since:
                onlooker.waited(self.me, frm, tag, since, self.world.now)

    def promise(self) -> _Promise:
        return _Promise(self.world)

    def _now(self) -> float:
        return self.world.now

    def _transmit(self, to: str, kind: int, seq: int, tag: str, value: Value) -> int:
        value = freeze(value)
        size = FRAME_OVERHEAD + len(tag.encode()) + encoded_size(value)
        check_size(size, tag, value, self.longest)
        self.world.carry(self.me, to, size, (kind, seq, tag, value))
        return size

    def task_ended(self, task: _Task, value: Any, error: Exception | None) -> None:
        self._tasks.discard(task)
        if not self.running:
            return
        if task is self._main and error is None:
            try:
                value = freeze(value)
            except ProtocolError as refused:
                error = refused
        if error is not None:
            self.fail(error)
            self.stop(None, error if isinstance(error, ColonnadeError) else foreign(self.me, self.step, error))
        elif task is self._main:
            self.goodbye()
            self.stop(value, None)

    def stop(self, value: Any, error: BaseException | None) -> None:
        """The party is over, well or badly: whatever it still had under way ends with it."""
        self.running = False
        self.outcome = Outcome(value, error, self.traffic, self.world.now, self.sheet.times(self.world.now))
        if self.world.onlooker is not None:
            self.world.onlooker.ended(self.me, self.world.now, self.outcome.times, error)
        for task in list(self._tasks):
            with suppress(Exception):  # how it takes its end changes nothing
                task.coroutine.close()
        self._tasks.clear()
        self.world.running -= 1

    def crash(self) -> None:
        if self.running:
            self.stop(None, PartyFailed(f"party {self.me!r} crashed at step {self.step!r}", self.me, self.step))


class World:
    """The clock, the lines and the order of events."""

    def __init__(
        self,
        options: Simulation,
        programs: Mapping[str, tuple[Program, tuple[Value, ...]]],
        observer: Observer | None,
    ) -> None:
        self.options, self.now, self.names = options, 0.0, tuple(programs)
        self.onlooker = options.onlooker
        self.ready: deque[_Task] = deque()
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._line_free: dict[tuple[str, str], float] = {}
        self._out_free: dict[str, float] = dict.fromkeys(self.names, 0.0)
        self._in_free: dict[str, float] = dict.fromkeys(self.names, 0.0)
        self._lines: dict[tuple[str, str], tuple[float, float]] = {}
        self._rng = np.random.default_rng([options.seed, 0xFA17])
        self.nets = {name: _SimNet(self, name, observer) for name in programs}
        self.running = len(self.nets)
        for _, args in programs.values():
            encoded_size(args)  # refuses here what could not travel to a process either
        if self.onlooker is not None:
            self.onlooker.begun(self.names)
        for name, (program, args) in programs.items():
            self.nets[name].start(program(self.nets[name], *args))
        for name, second in (options.faults.crashes if options.faults else {}).items():
            self.at(second, self.nets[name].crash, ())
        self._tick()

    def at(self, second: float, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Let something happen at a second; what is due at the same one happens in the order in which it was caused."""
        self._count += 1
        heapq.heappush(self._events, (second, self._count, action, args))

    def _line(self, link: tuple[str, str]) -> tuple[float, float]:
        line = self._lines.get(link)
        if line is None:
            latency, bandwidth = self.options.latency, self.options.bandwidth
            line = self._lines[link] = (
                latency.get(link, 5e-4) if isinstance(latency, Mapping) else latency,
                bandwidth.get(link, 1.25e8) if isinstance(bandwidth, Mapping) else bandwidth,
            )
        return line

    def carry(self, frm: str, to: str, size: int, frame: tuple[int, int, str, Any]) -> None:
        """Put a frame on a line: it arrives once, later than it should, twice or never."""
        link = (frm, to)
        latency, bandwidth = self._line(link)
        # A line carries one message after another: the next starts when the last byte of this one has left.
        left = max(self.now, self._line_free.get(link, 0.0)) + size / bandwidth
        gateway = self.options.gateway
        if gateway is not None:
            left = self._out_free[frm] = max(left, max(self.now, self._out_free[frm]) + size / gateway)
        self._line_free[link] = left
        extras: tuple[float, ...] = (0.0,)
        if self.options.faults is not None and frame[0] not in (ABORT, BYE):
            # ABORT and BYE stand for the end of a connection, which the operating system reports reliably.
            extras = tuple(self.options.faults.arrivals(self._rng))
        if self.onlooker is not None and (gateway is None or not extras):
            self.onlooker.sent(frm, to, frame[2], size, self.now, [left + latency + extra for extra in extras])
        for extra in extras:
            self.nets[to].sheet.message(self.now, left + latency + extra)
            if gateway is None:
                self.at(left + latency + extra, self._arrive, (frm, to, *frame))
            else:
                seconds = size / gateway
                self.at(left + latency + extra - seconds, self._enter, (seconds, self.now, size, frm, to, *frame))

    def _enter(self, seconds: float, sent: float, size: int, frm: str, to: str, *frame: Any) -> None:
        """The first byte is at the receiver's gateway, which takes one message after another."""
        self._in_free[to] = max(self.now, self._in_free[to]) + seconds
        self.nets[to].sheet.message(self.now, self._in_free[to])
        if self.onlooker is not None:
            self.onlooker.sent(frm, to, frame[2], size, sent, [self._in_free[to]])
        self.at(self._in_free[to], self._arrive, (frm, to, *frame))

    def _arrive(self, frm: str, to: str, kind: int, seq: int, tag: str, value: Any) -> None:
        net = self.nets[to]
        if net.running:
            net.deliver(frm, kind, seq, tag, value)

    def _tick(self) -> None:
        for net in self.nets.values():
            if net.running:
                net.check_deadlines()
        self.at(self.now + self.options.deadline / CHECKS_PER_DEADLINE, self._tick, ())

    def run(self) -> dict[str, Outcome]:
        """Let time pass until every party has ended."""
        ready, events = self.ready, self._events
        while True:
            while ready:
                task = ready.popleft()
                if task.net.running:
                    task.step()
            if not self.running:
                break
            self.now, _, action, args = heapq.heappop(events)
            action(*args)
        return {name: net.outcome for name, net in self.nets.items()}
