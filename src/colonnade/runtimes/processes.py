"""One operating-system process per party, talking over Unix sockets: the same programs as under the virtual clock.

The starter makes every pair of parties a connected socket pair and hands each process its ends (`launch`). There is no
address to listen on, so no stranger can connect; nothing is pickled; and each process watches its line to the starter,
so none survives a failure, Ctrl-C or the starter's death.
"""

from __future__ import annotations

import errno
import math
import selectors
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from colonnade import errors
from colonnade.errors import ColonnadeError, OptionError, PartyFailed, PartySilent, RunFailed, at_least
from colonnade.runtimes import pieces
from colonnade.runtimes.frames import FrameReader
from colonnade.runtimes.launch import START_LIMIT, Berth, Launched, Programs, launch
from colonnade.runtimes.net import (
    Observer,
    Outcome,
    PerLane,
    Program,
    Traffic,
    check_lanes,
    check_parties,
    died,
    failed,
    per_lane,
    settle,
)
from colonnade.runtimes.times import Times
from colonnade.runtimes.wire import Value, decode, encoded_size

_ANY_SIZE = 1 << 40  # the line between starter and party carries whole data sets


@dataclass(frozen=True)
class Processes:
    """Run every party in a process of its own on this machine.

    Parameters
    ----------
    deadline : float
        Seconds after which a silent party ends the run at all others.
    slowed : mapping, optional
        Stragglers, for experiments: {party: seconds per non-zero} that it sleeps besides its real work, or {party:
        {"forward": 0.0, "backward": 1e-6}} to slow only its updates, while it answers as fast as ever.
    secret : str, optional
        None lets every party's own random choices come from the operating system. A text makes them repeatable, for
        tests and comparisons: runs with the same one give the same bits, on `Simulation` too.
    """

    deadline: float = 30.0
    slowed: Mapping[str, PerLane] = field(default_factory=dict)
    secret: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        at_least("deadline", self.deadline, 0, strict=True, finite=True)
        check_lanes("slowed", self.slowed, strict=False)

    def run(
        self, programs: Programs, observer: Observer | None = None, spare: Collection[str] = ()
    ) -> dict[str, Outcome]:
        """Run every party's program to its end; see `Runtime.run`."""
        check_parties("slowed", self.slowed, tuple(programs))
        for program, args in programs.values():
            _check_importable(program)
            encoded_size(args)  # refuses what can't travel before anything is started
        try:
            with self._lines(tuple(programs)) as lines, self._started(programs, lines, spare) as family:
                return settle(family.watch(observer, self.deadline, spare), spare)
        except OSError as error:
            if error.errno == errno.EMFILE:
                raise OptionError(
                    f"{len(programs)} parties need more open files than this process may have; raise the limit "
                    f"(ulimit -n) or use Simulation"
                ) from None
            raise

    @contextmanager
    def _lines(self, names: tuple[str, ...]) -> Iterator[Lines]:
        """A socket pair for every two parties, closed here as soon as each process has its ends."""
        links: dict[str, dict[str, int]] = {name: {} for name in names}
        with ExitStack() as theirs:
            for one, other in combinations(names, 2):
                left, right = map(theirs.enter_context, socket.socketpair())
                links[one][other], links[other][one] = left.fileno(), right.fileno()
            fds = {name: tuple(links[name].values()) for name in names}
            yield Lines(fds, {name: ("sockets", tuple(links[name])) for name in names}, theirs.close)

    @contextmanager
    def _started(self, programs: Programs, lines: Lines, spare: Collection[str] = ()) -> Iterator[_Family]:
        """A process for every party, each with its job."""
        names = tuple(programs)
        family = _Family()
        with ExitStack() as ours:
            ours.callback(family.end)
            with ExitStack() as theirs:  # closed here as soon as each process has its ends
                theirs.callback(lines.handed_over)
                try:
                    family.processes, controls = self._launched(programs, lines, theirs)
                except RunFailed as error:
                    settle({name: Outcome(None, error) for name in names})
            family.children += (_Child(name, ours.enter_context(mine)) for name, mine in controls.items())
            for child in family.children:
                program, args = programs[child.name]
                entry = (program.__module__, program.__qualname__)
                slowed = tuple(per_lane(self.slowed.get(child.name, 0.0)).items())
                how = (self.deadline, slowed, tuple(spare), self.secret)
                job = (child.name, names, lines.told[child.name], *entry, args, *how)
                family.hand_over(child, job)
            yield family

    def _launched(
        self, programs: Programs, lines: Lines, theirs: ExitStack
    ) -> tuple[Launched, dict[str, socket.socket]]:
        """The processes, and the starter's line to each of them."""
        controls, berths = {}, []
        with ExitStack() as unless_started:
            for name in programs:
                mine, control = socket.socketpair()
                controls[name] = unless_started.enter_context(mine)
                theirs.enter_context(control)
                berths.append(Berth(name, control.fileno(), lines.fds[name]))
            launched = launch(berths, programs, lines.modules)
            unless_started.pop_all()
        return launched, controls


@dataclass(frozen=True)
class Lines:
    """What the parties' lines are made of.

    fds: file descriptors to hand over to each party, in the order of the names that it is told. told: about them, and
    how else to reach the others. handed_over: called as soon as every process has its own. modules: that a party's
    process needs for its lines, so that they can be loaded once for all.
    """

    fds: Mapping[str, tuple[int, ...]]
    told: Mapping[str, Value]
    handed_over: Callable[[], None] = lambda: None
    modules: tuple[str, ...] = ()


def _check_importable(program: Program) -> None:
    module, qualname = program.__module__, getattr(program, "__qualname__", repr(program))
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if module == "__main__" or found != program:
        raise OptionError(
            f"Processes can only start a program that a new process can import, got {qualname!r} of {module!r}; "
            f"move it to the top level of a module"
        )


class _Child:
    """The starter's view of one party's process."""

    def __init__(self, name: str, control: socket.socket) -> None:
        self.name, self.control = name, control
        self.frames = FrameReader(_ANY_SIZE)
        self.ready = False
        self.outcome: Outcome | None = None

    def failed(self, spare: Collection[str]) -> bool:
        """Whether it ended in a way that ends the run for all."""
        error = self.outcome.error if self.outcome else None
        return error is not None and not (self.name in spare and died(self.name, error))

    def hear(self, message: Any, observer: Observer | None, seconds: float) -> None:
        kind, *rest = message
        if kind == "ready":
            self.ready = True
        elif kind == "report":
            if observer is not None:
                observer(self.name, rest[0], rest[1])
        elif kind == "done":
            value, traffic, times = rest
            self.outcome = Outcome(value, None, Traffic.from_value(traffic), seconds, Times.from_value(times))
        else:
            class_name, ours, text, party, step, trace, traffic = rest
            error = _rebuild(self.name, class_name, ours, text, party, step, trace)
            self.outcome = Outcome(None, error, Traffic.from_value(traffic), seconds)


def _rebuild(name: str, class_name: str, ours: bool, text: str, party: str, step: str, trace: str) -> ColonnadeError:
    """The error that a party raised, as it was if it is one of ours."""
    found = getattr(errors, class_name, None) if ours else None
    if isinstance(found, type) and issubclass(found, RunFailed):
        return found(text, party, step)
    if isinstance(found, type) and issubclass(found, ColonnadeError):
        return found(text)
    return failed(name, step, class_name, text, trace)


class _Family:
    def __init__(self) -> None:
        self.children: list[_Child] = []
        self.processes: Launched | None = None
        self.began = time.monotonic()

    def hand_over(self, child: _Child, job: Value) -> None:
        """Tell a party what it is to do."""
        child.control.settimeout(START_LIMIT)
        try:
            pieces.send_whole(child.control, job)
        except (BrokenPipeError, ConnectionResetError):
            self.died(child, 0.0)
        except TimeoutError:
            text = f"party {child.name!r} was silent for {START_LIMIT:g} s at step 'start': it does not take its data"
            error = PartySilent(text, child.name, "start")
            settle({each.name: Outcome(None, error) for each in self.children})
        child.control.settimeout(None)

    def watch(self, observer: Observer | None, deadline: float, spare: Collection[str] = ()) -> dict[str, Outcome]:
        """Listen to all parties until each has ended; after the first failure the rest get one deadline more."""
        until: float | None = time.monotonic() + START_LIMIT
        going = False
        with selectors.DefaultSelector() as selector:
            for child in self.children:
                selector.register(child.control, selectors.EVENT_READ, child)
            while any(child.outcome is None for child in self.children):
                left = None if until is None else max(0.0, until - time.monotonic())
                ready = selector.select(left)
                if not ready and left == 0.0 and going:
                    self._cut_off()
                    break
                for key, _ in ready:
                    child = key.data
                    self._listen(child, observer)
                    if child.outcome is not None:
                        selector.unregister(child.control)
                if not going and (left == 0.0 or all(child.ready or child.outcome for child in self.children)):
                    going, until = True, None
                    self._go()
                if going and until is None and any(child.failed(spare) for child in self.children):
                    until = time.monotonic() + deadline
        return {child.name: child.outcome or Outcome() for child in self.children}

    def _go(self) -> None:
        self.began = time.monotonic()
        for child in self.children:
            if child.outcome is None:
                with suppress(OSError):  # it just died: its line will say so
                    child.control.sendall(b"!")

    def _listen(self, child: _Child, observer: Observer | None) -> None:
        seconds = time.monotonic() - self.began
        try:
            data = child.control.recv(1 << 18)
        except ConnectionResetError:
            data = b""
        if not data:
            self.died(child, seconds)
            return
        for payload in child.frames.feed(data):
            child.hear(decode(payload, room=math.inf), observer, seconds)

    def died(self, child: _Child, seconds: float) -> None:
        """Its line has ended, and its program has not."""
        code = self.processes.code(child.name) if self.processes else None
        how = "" if code is None else f" with code {code}"
        text = f"party {child.name!r} died: its process ended{how} before its program did"
        child.outcome = Outcome(None, PartyFailed(text, child.name), Traffic(), seconds)

    def _cut_off(self) -> None:
        for child in self.children:
            if child.outcome is None and self.processes:
                self.processes.kill(child.name)
                text = f"party {child.name!r} did not end after another party failed, and was killed"
                child.outcome = Outcome(None, PartyFailed(text, child.name), seconds=time.monotonic() - self.began)

    def end(self) -> None:
        """No process survives: an orderly one is given a moment, any other is killed."""
        orderly = all(child.outcome is not None for child in self.children)
        for child in self.children:
            child.control.close()
        if self.processes:
            self.processes.end(2.0 if orderly else 0.0)
