"""All that a party's program sees of the world: a `Net`.

A program is one coroutine, `async def program(net, *args)`. The same coroutine runs under a virtual clock
(`Simulation`) and in processes of its own (`Processes`). It knows no clock but `elapsed`, no socket and no other
party's data.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

from colonnade.errors import OptionError, PartyFailed, RunFailed, at_least
from colonnade.runtimes.times import RealTimesheet, Times
from colonnade.runtimes.wire import Value

T = TypeVar("T")

Program = Callable[..., Coroutine[Any, Any, Value]]
Observer = Callable[[str, float, Value], None]  # (party, seconds since the start, what it reported)


@dataclass
class Traffic:
    """What left one party: counted at its one door, by the step it was sent for."""

    messages: int = 0
    bytes: int = 0
    rounds: int = 0
    by_step: dict[str, tuple[int, int]] = field(default_factory=dict)

    def out(self, step: str, size: int) -> None:
        """Count one message of `size` bytes."""
        self.messages += 1
        self.bytes += size
        count, total = self.by_step.get(step, (0, 0))
        self.by_step[step] = (count + 1, total + size)

    def round(self) -> None:
        """Count one exchange between the parties."""
        self.rounds += 1

    def as_value(self) -> Value:
        """A form that the wire can carry."""
        steps = tuple((step, count, size) for step, (count, size) in self.by_step.items())
        return (self.messages, self.bytes, self.rounds, steps)

    @classmethod
    def from_value(cls, value: Any) -> Traffic:
        """The inverse of `as_value`."""
        messages, size, rounds, steps = value
        return cls(messages, size, rounds, {step: (count, total) for step, count, total in steps})


class Doorkeeper(Protocol):
    """Asked before anything leaves a party."""

    def open_for(self, to: str, step: str, value: Value, size: int, rounds: int, *, control: bool) -> None:
        """Let a message of `size` bytes out, or raise; `control` frames hold names of parties and steps only."""
        ...


# What a party that is audited gets to see: at the root of a sum the total less its own part, messages, messages that a
# mask should have hidden, its own part of a sum, what it tells others, and what it decides by itself.
TOTAL, CLEAR, PASSING = "total less own part", "message", "not masked"
OWN, TOLD, DID = "own part", "told", "did"


class Watcher(Protocol):
    """Writes down what a party of an audited run gets to see, as far as no message says it; see `audit.view`."""

    def saw(self, kind: str, tag: str, party: str, value: Any, rows: Any = None, grain: float = 0.0) -> None:
        """Take down something of a kind in `audit.view`, at a step, from or for a party, and which rows it is about."""
        ...

    def shares_out(self, owned: Mapping[str, Any], rows: int, options: Any) -> None:
        """Take down which rows each label holder owns, how many there are, and the algorithm."""
        ...

    def expects(self, batches: Collection[tuple[str, Any]], epoch: int) -> None:
        """Take down the public order of an epoch: whose batches, of which rows, come next."""
        ...

    def expects_whole(self, batches: Collection[tuple[str, Any]], epoch: int) -> None:
        """Take down that a pass over all rows comes next: whose, and which rows, message by message."""
        ...

    def looks_at(self, rows: Any) -> None:
        """Take down which training rows evaluations look at, where it is not all of them."""
        ...

    def about(self, tag: str, holder: str, rows: Any) -> None:
        """Take down which rows the next numbers of a step are about, where the order of batches does not say it."""
        ...

    def turns_to(self, phases: Collection[tuple[Any, tuple[int, int], int]]) -> None:
        """Take down which phases of which rows are summed next."""
        ...

    def rows_of(self, tag: str, holder: str, count: int) -> Any:
        """Return the rows that `count` numbers of a step are about, or None where they are about none."""
        ...


class Promise(Protocol):
    """An asyncio future, or its twin under the virtual clock."""

    def set_result(self, value: Any, /) -> None: ...  # noqa: D102
    def set_exception(self, error: BaseException, /) -> None: ...  # noqa: D102
    def done(self) -> bool: ...  # noqa: D102
    def __await__(self) -> Any: ...


@runtime_checkable
class Net(Protocol):
    """A party's view of the federation."""

    me: str
    names: tuple[str, ...]
    traffic: Traffic
    deadline: float
    watcher: Watcher | None  # None unless the run is audited

    async def send(self, to: str, tag: str, value: Value) -> None:
        """Send `value` to a party under the name of a step; never waits for the receiver's program.

        A long message leaves a piece at a time, as its line takes them: its arrays must not change before this returns.
        """
        ...

    async def recv(self, frm: str, tag: str, *, patient: bool = False) -> Any:
        """Wait for the next value of that step from that party, at most for the deadline of the run.

        A `patient` wait has no deadline of its own: for listeners, who may rightly hear nothing for long.
        """
        ...

    async def recv_within(self, frm: str, tag: str, seconds: float) -> tuple[Any, ...]:
        """(value,) if it comes within so many seconds, else (): the run goes on without it. 0 only looks."""
        ...

    async def fetch(self, frm: str, tag: str) -> Any:
        """`recv` of something that goes on to others as it came: whoever looks on learns of it by `heard`."""
        ...

    def heard(self, frm: str, tag: str, value: Any) -> Any:
        """Say what a party told this one by way of others; returns what this party takes it for."""
        ...

    def spare(self, names: Collection[str]) -> None:
        """These parties may die, and messages of theirs be lost, without ending the run: they are silent then."""
        ...

    def ended(self, name: str) -> bool:
        """Whether a party has ended its program, or died where it may: nothing more will come from it."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Run a coroutine beside this one, within the same party."""
        ...

    async def work(self, nonzeros: float, lane: str = "forward", servers: int = 1) -> None:
        """Say that `nonzeros` numbers were touched: costs virtual time in a simulation, nothing in real life.

        (There, `Processes(slowed=...)` can make a party sleep for it.) Work of one lane ("forward": contributions,
        "backward": updates) queues for the lane's `servers`, the threads that share its work; lanes do not wait for
        each other.
        """
        ...

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function of this party's own and return its result; what it raises is raised here.

        In a process of its own it runs in a thread beside the event loop, so that the party goes on answering and
        several kernels without the GIL run at once. In a simulation it is simply called: a party is atomic there.
        """
        ...

    def elapsed(self) -> float:
        """Seconds since the start of the run: virtual in a simulation, real otherwise."""
        ...

    def promise(self) -> Promise:
        """Something to await that another coroutine of this party resolves."""
        ...

    def secret(self, purpose: str) -> bytes:
        """32 bytes for one purpose that no other party knows or can work out from anything public.

        They come from the operating system, unless the runtime was given a `secret` so that a run can be repeated.
        """
        ...

    def report(self, value: Value) -> None:
        """Tell the one who started the run how it goes (progress, history); goes to no other party."""
        ...


@dataclass
class Outcome:
    """How one party's program ended."""

    value: Any = None
    error: BaseException | None = None
    traffic: Traffic = field(default_factory=Traffic)
    seconds: float = 0.0
    times: Times = field(default_factory=Times)


class Runtime(Protocol):
    """Where parties run: each name gets a program and its arguments."""

    def run(
        self,
        programs: Mapping[str, tuple[Program, tuple[Value, ...]]],
        observer: Observer | None = None,
        spare: Collection[str] = (),
    ) -> dict[str, Outcome]:
        """Run all programs to their end; raise the first cause if one of them fails.

        spare: parties that may die meanwhile, if their partners' programs say so too (`Net.spare`).
        """
        ...


def check_runtime(on: Any) -> None:
    """Refuse what can't run programs, as an option `on=` of a user's; None stands for the default runtime."""
    if on is not None and (isinstance(on, type) or not hasattr(on, "run")):
        what = f"the class {on.__name__}; add ()" if isinstance(on, type) else f"a {type(on).__name__}"
        raise OptionError(f"on must be a runtime such as Simulation() or Processes(), got {what}")


# -- what the one who started a run is told when parties failed --------------------------------------------------------


def failed(party: str, step: str, kind: str, text: str, trace: str) -> PartyFailed:
    """An error in a party's program that is not one of ours, as the starter sees it: with `.trace`."""
    error = PartyFailed(f"party {party!r} failed at step {step!r}: {kind}: {text}", party, step)
    error.trace = trace  # type: ignore[attr-defined]
    return error


def foreign(party: str, step: str, cause: BaseException) -> PartyFailed:
    """The same for an error that was raised in this process."""
    error = failed(party, step, type(cause).__name__, str(cause), "".join(traceback.format_exception(cause)))
    error.__cause__ = cause
    return error


def died(party: str, error: BaseException) -> bool:
    """Whether this is a party's own death, and no error that it raised or heard of."""
    return isinstance(error, PartyFailed) and error.party == party and not hasattr(error, "trace")


def settle(outcomes: dict[str, Outcome], spare: Collection[str] = ()) -> dict[str, Outcome]:
    """Return the outcomes if all is well; else raise the first cause, with `.outcomes` to look further.

    spare: parties that may have died; an error that one of them raised itself is an error all the same.
    """
    errors = {
        name: outcome.error
        for name, outcome in outcomes.items()
        if outcome.error is not None and not (name in spare and died(name, outcome.error))
    }
    if not errors:
        return outcomes
    # A party's own error says more than what the others found, and that more than what it heard about itself.
    own = [name for name, error in errors.items() if not isinstance(error, RunFailed) or hasattr(error, "trace")]
    found = [name for name, error in errors.items() if isinstance(error, RunFailed) and error.party != name]
    first = errors[min(own or found or errors, key=lambda name: outcomes[name].seconds)]
    first.outcomes = outcomes  # type: ignore[attr-defined]
    raise first


# -- lanes: a party's contributions ("forward") and updates ("backward") queue each for themselves -------------------


LANES = ("forward", "backward")
PerLane = float | Mapping[str, float]

# Less than this is not slept but owed: a timer of the event loop is late by about as much.
_WORTH_A_TIMER = 2e-4
# A timer that wakes late shortens the next sleep by this at most; beyond it, it was the party that was busy.
_TIMER_ERROR = 2e-3


def check_lanes(what: str, given: Mapping[str, PerLane], *, strict: bool) -> None:
    """Refuse, in {party: number or {lane: number}}, an unknown lane and a number below 0 (or 0 too, with `strict`)."""
    for party, value in given.items():
        lanes = per_lane(value)
        if set(lanes) != set(LANES):
            raise OptionError(f"{what}[{party!r}] must be a number or name each of {LANES}, got {value!r}")
        for number in lanes.values():
            at_least(f"{what}[{party!r}]", number, 0, strict=strict)


def check_parties(what: str, given: Iterable[str], names: tuple[str, ...]) -> None:
    """Refuse an option for somebody who takes no part."""
    for name in given:
        if name not in names:
            raise OptionError(f"{what} names {name!r}, which is no party of this run; parties: {names}")


def per_lane(value: PerLane) -> Mapping[str, float]:
    """{lane: number} of one number for both, or of what already is one."""
    return value if isinstance(value, Mapping) else dict.fromkeys(LANES, value)


class Servers:
    """When each of the threads that work for one lane is free again; as many as a piece of work asks for."""

    def __init__(self) -> None:
        self._free_at: list[float] = []

    def take(self, now: float, seconds: float, servers: int) -> float:
        """The second at which work of so many seconds ends, at the one of the servers that is free first."""
        self._free_at += [0.0] * (servers - len(self._free_at))
        first = min(range(servers), key=self._free_at.__getitem__)
        until = self._free_at[first] = max(self._free_at[first], now) + seconds
        return until

    def idle(self, now: float, servers: int) -> bool:
        """Whether one of so many servers has nothing to do."""
        return len(self._free_at) < servers or min(self._free_at[:servers]) <= now


class SlowLanes:
    """A straggler's work in real time: asleep for so many seconds per non-zero, with the loop free for its listeners.

    What a timer sleeps too long is taken off the lane's next work, and what is too short for a timer is put on it, so
    that over many batches a party is as slow as it was told to be.
    """

    def __init__(self, seconds_per_nonzero: PerLane, sheet: RealTimesheet) -> None:
        self._sheet = sheet
        self._rates = per_lane(seconds_per_nonzero)
        self._servers = {lane: Servers() for lane in LANES}
        self._owed = dict.fromkeys(LANES, 0.0)
        self._last = dict.fromkeys(LANES, 0.0)

    async def work(self, nonzeros: float, lane: str, servers: int = 1) -> None:
        """Queue behind the work of this lane that is already under way, then sleep."""
        if not self._rates[lane]:
            return
        loop = asyncio.get_running_loop()
        now, taken = loop.time(), self._servers[lane]
        seconds = nonzeros * self._rates[lane] + self._owed[lane]
        if seconds < _WORTH_A_TIMER and taken.idle(now, servers):
            self._owed[lane] = seconds
            return
        until = self._last[lane] = taken.take(now, seconds, servers)
        self._owed[lane] = 0.0
        self._sheet.begin_sleep()
        await asyncio.sleep(until - now)
        self._sheet.end_sleep()
        if self._last[lane] == until:  # else others queued behind this one, and the last of them settles
            self._owed[lane] = max(until - loop.time(), -_TIMER_ERROR)
