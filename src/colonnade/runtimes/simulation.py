"""All parties in one event loop under a virtual clock: deterministic to the bit.

Time passes only on the lines (latency, bandwidth) and where a program says that it works (`net.work`). Between two
awaits a party is atomic. Events at the same instant happen in the order in which they were caused, so a run, with
stragglers, lost messages and crashes too, repeats exactly from its seed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from colonnade.errors import OptionError, at_least
from colonnade.runtimes.net import Observer, Outcome, PerLane, Program, check_lanes, check_parties, settle
from colonnade.runtimes.times import Onlooker
from colonnade.runtimes.wire import Value

Links = float | Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Faults:
    """Lost, delayed and duplicated messages, and crashed parties.

    Parameters
    ----------
    lost : float
        The probability that a message never arrives.
    delayed : float
        The probability that a message takes longer than others, so that it may be overtaken.
    duplicated : float
        The probability that a message arrives twice.
    delay : float
        The most seconds that a delayed message, or the second copy of one, takes longer.
    crashes : mapping of str to float
        For each party that crashes, the virtual second at which it falls silent for good.
    """

    lost: float = 0.0
    delayed: float = 0.0
    duplicated: float = 0.0
    delay: float = 0.1
    crashes: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("lost", "delayed", "duplicated"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise OptionError(f"{name} must be a probability between 0 and 1, got {value!r}")
        at_least("delay", self.delay, 0)
        for party, second in self.crashes.items():
            at_least(f"crashes[{party!r}]", second, 0)

    def arrivals(self, rng: np.random.Generator) -> list[float]:
        """Extra seconds for every copy of one message that arrives; empty if it is lost."""
        # Always the same number of draws, so that one fault's probability does not shift another's.
        lost, late, twice, first, second = rng.random(5)
        if lost < self.lost:
            return []
        extra = [first * self.delay if late < self.delayed else 0.0]
        if twice < self.duplicated:
            extra.append(second * self.delay)
        return extra


@dataclass(frozen=True)
class Simulation:
    """Run parties under a virtual clock.

    Parameters
    ----------
    latency : float or mapping of (str, str) to float
        Seconds that a message travels: one number for all lines, or one for each (from, to).
    bandwidth : float or mapping of (str, str) to float
        Bytes per second that a line carries, likewise.
    gateway : float, optional
        Bytes per second, out of and into a party, that all of its lines share; None is no limit beyond theirs.
    speeds : mapping of str to float or to mapping
        The relative speed of each party that is not at speed 1: 0.25 is four times slower, and
        ``{"forward": 1.0, "backward": 0.25}`` slows only its updates, while it answers as fast as ever.
    faults : Faults, optional
        What goes wrong on the lines.
    seed : int
        What the faults are drawn from.
    deadline : float
        Virtual seconds after which a silent party ends the run.
    seconds_per_nonzero : float
        Virtual seconds of ``net.work(1)`` at speed 1 (``make bench`` measures the kernels).
    secret : str, optional
        What the parties' own random choices are drawn from, so that a run can be repeated to the bit; None is the
        operating system's randomness. Nothing is hidden in a simulation, where one process sees all parties.
    onlooker : Onlooker, optional
        Who is told of all that happens, such as the `Timeline` that a model's `timeline` makes.
    """

    latency: Links = 5e-4
    bandwidth: Links = 1.25e8
    gateway: float | None = None
    speeds: Mapping[str, PerLane] = field(default_factory=dict)
    faults: Faults | None = None
    seed: int = 0
    deadline: float = 60.0
    seconds_per_nonzero: float = 2e-9
    secret: str | None = "rehearsal"
    onlooker: Onlooker | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for value in self.latency.values() if isinstance(self.latency, Mapping) else (self.latency,):
            at_least("latency", value, 0)
        for value in self.bandwidth.values() if isinstance(self.bandwidth, Mapping) else (self.bandwidth,):
            at_least("bandwidth", value, 0, strict=True)
        if self.gateway is not None:
            at_least("gateway", self.gateway, 0, strict=True)
        check_lanes("speeds", self.speeds, strict=True)
        at_least("seed", self.seed, 0)
        at_least("deadline", self.deadline, 0, strict=True, finite=True)
        at_least("seconds_per_nonzero", self.seconds_per_nonzero, 0)

    def run(
        self,
        programs: Mapping[str, tuple[Program, tuple[Value, ...]]],
        observer: Observer | None = None,
        spare: Collection[str] = (),
    ) -> dict[str, Outcome]:
        """Run every party's program to its end; see `Runtime.run`."""
        self._check_names(tuple(programs))
        from colonnade.runtimes.virtual_clock import World

        return settle(World(self, programs, observer).run(), spare)

    def _check_names(self, names: tuple[str, ...]) -> None:
        crashes = self.faults.crashes if self.faults else {}
        latency, bandwidth = (
            [name for link in links for name in link] if isinstance(links, Mapping) else []
            for links in (self.latency, self.bandwidth)
        )
        for what, given in (
            ("speeds", self.speeds),
            ("crashes", crashes),
            ("latency", latency),
            ("bandwidth", bandwidth),
        ):
            check_parties(what, given, names)
