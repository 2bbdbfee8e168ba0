"""The virtual clock, with notes of what its faults have done: what was lost, and who waited for whom at the end."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from colonnade.crypto.ring import Ring
from colonnade.horizontal import gathering
from colonnade.horizontal import program as horizontal
from colonnade.horizontal.answering import Own
from colonnade.horizontal.conduct import ServerJob, conduct
from colonnade.horizontal.gathering import Heard
from colonnade.horizontal.site_work import SiteRows, SiteWork
from colonnade.runtimes import virtual_clock
from colonnade.runtimes.frames import ALIVE, DATA
from colonnade.runtimes.net import settle
from colonnade.runtimes.virtual_clock import _Promise

Wait = tuple[str, str, str]  # who, for whom, for what
LONGEST = 1e6  # virtual seconds: a run of these sizes that takes longer does not end


class Hang(BaseException):
    """A run that does not end. No Exception: what a party's program raises is that party's failure, and no more."""


class World(virtual_clock.World):
    """Runs as ever, and takes notes."""

    def __init__(self, *args: Any) -> None:
        self.lost: list[tuple[str, str, int]] = []  # from, to, and of what kind
        self.waits: set[Wait] = set()  # before deadlines were last looked at
        self.told: list[tuple[float, Wait]] = []  # when a party said what it waits for
        self.crashed: set[str] = set()
        self.last = 0.0  # when a message last came through, or a piece of work was done
        self.given_up: set[tuple[str, str]] = set()  # for whom and for what somebody did not wait any longer
        self.own: list[tuple[str, str, Any]] = []  # whose program raised an error of its own, at which step
        self.broken: list[tuple[str, Any, set[Wait]]] = []  # finder, its error, and all waits
        super().__init__(*args)
        for name, net in self.nets.items():
            net.break_off = partial(self._broke_off, name, net.break_off)  # type: ignore[method-assign]
            net.fail = partial(self._failed, net, net.fail)  # type: ignore[method-assign]
            net.crash = partial(self._crashed, name, net.crash)  # type: ignore[method-assign]

    def at(self, second: float, action: Any, args: Any) -> None:
        if getattr(action, "__name__", "") == "crash":
            name = action.__self__.me
            action, args = lambda: self.nets[name].crash(), ()
        if isinstance(getattr(action, "__self__", None), _Promise):
            super().at(second, self._worked, (action, *args))
        else:
            super().at(second, action, args)

    def _worked(self, action: Any, *args: Any) -> None:
        self.last = self.now
        action(*args)

    def _crashed(self, name: str, crash: Any) -> None:
        if self.nets[name].running:
            self.crashed.add(name)
        crash()

    def carry(self, frm: str, to: str, size: int, frame: Any) -> None:
        before = self._count
        super().carry(frm, to, size, frame)
        if frame[0] == ALIVE:
            _, *waits = frame[3]
            self.told += [(self.now, (frm, *wait)) for wait in zip(waits[::2], waits[1::2], strict=True)]
        if self._count == before:
            self.lost.append((frm, to, frame[0]))

    def _arrive(self, frm: str, to: str, *frame: Any) -> None:
        expected = self.nets[to]._next_in[frm]
        super()._arrive(frm, to, *frame)
        if frame[0] == DATA and self.nets[to]._next_in[frm] > expected:
            self.last = self.now

    def _broke_off(self, finder: str, break_off: Any, error: Any, what: str) -> None:
        if self.nets[finder].broken is None:
            # Questions are asked in the last part of a wait: older answers are of another one.
            told = {wait for when, wait in self.told if when >= self.now - 0.5 * self.options.deadline}
            self.broken.append((finder, error, self.waits | self._waits() | told))
        break_off(error, what)

    def _failed(self, net: Any, fail: Any, error: Any) -> None:
        if error is not net.broken:
            self.own.append((net.me, net.step, error))
        fail(error)

    def _tick(self) -> None:
        if self.now > LONGEST:
            raise Hang(f"{self.now:g} virtual seconds are over, and these parties still run: {self._running()}")
        self.waits = self._waits()
        for net in self.nets.values():
            for key, some in net._waiting.open.items():
                if any(wait.until is not None and self.now >= wait.until for wait in some):
                    self.given_up.add(key)
        super()._tick()

    def _waits(self) -> set[Wait]:
        nets = (net for net in self.nets.values() if net.running)
        return {(net.me, *key) for net in nets for key, some in net._waiting.open.items() if some}

    def _running(self) -> str:
        return ", ".join(f"{name} at {net.step!r}" for name, net in self.nets.items() if net.running)


class Disturbed:
    """A runtime with the faults of a clock; keepers: where each party keeps its states, if it does."""

    def __init__(self, clock: Any, keepers: Any = None) -> None:
        self.clock, self.keepers = clock, keepers
        self.world: Any = None
        self.sums: list[tuple[tuple[int, ...], Heard]] = []  # of a run over rows: who was in each sum, and the sum

    def run(self, programs: Any, observer: Any = None, spare: Any = ()) -> Any:
        self.programs = programs
        if self.keepers:
            programs = {
                name: (partial(program, keeper=self.keepers[name]), args) for name, (program, args) in programs.items()
            }
        real = horizontal.gather
        horizontal.gather = self._gather
        try:
            self.world = World(self.clock, programs, observer)
            return settle(self.world.run(), spare)
        finally:
            horizontal.gather = real

    def _gather(self, sites: Any, threshold: int, task: Any, fewest: int = 1) -> Any:
        """As ever; who answered the stage that brings the values is written down."""
        stages, there = gathering.gather(sites, threshold, task, fewest), ()
        asked = next(stages)
        while True:
            answers = yield asked
            if asked[0] == ("letters" if threshold else "task"):
                there = tuple(sorted(answers))
            try:
                asked = stages.send(answers)
            except StopIteration as end:
                self.sums.append((there, end.value))
                return end.value

    def answered(self) -> Any:
        """The parameters of a run over rows without lines, clock and masks: with those who were in each of its sums."""
        plan = ServerJob.from_value(self.programs["server"][1][0])
        works = []
        for number, site in enumerate(plan.sites):
            train, *_ = self.programs[site][1][2]
            works.append(SiteWork.of(plan.as_site_job(number), site, SiteRows.from_value(train), None, Own()))
        run = conduct(plan, works[0].model, lambda _: None)
        task, sums = next(run), iter(self.sums)
        while True:
            there, heard = next(sums)
            total = None
            if heard.total is not None:
                parts = [works[number]._encoded(task.kind, *task.content) for number in there]
                ring = Ring(len(works), task.fraction_bits)
                total = ring.decode(np.sum(parts, axis=0, dtype=np.uint64))
            try:
                task = run.send(Heard(total, heard.answered))
            except StopIteration as end:
                return end.value.parameters
