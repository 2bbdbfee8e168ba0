"""Schedules of faults, each drawn from its seed: who takes part in what, on which lines, and what goes wrong there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import colonnade as cn
from schedule_cases import CASES, Case, Cast, still

DEADLINE = 20.0  # virtual seconds
# Virtual seconds that a stalled party takes for each number it touches; an alignment counts its work in thousands.
STALL, STALL_ALIGNING = 1.0, 1e-3
# The longest delay: a question along a chain of four parties and its answer still arrive within the deadline's last
# fifth, so that who is named is never only a party whose answer was late.
DELAY = 0.9


@dataclass(frozen=True)
class Plan:
    """All that a seed stands for. Each clock is one start of the run; the last of several has no faults."""

    seed: int
    case: Case
    cast: Cast
    sum: str
    topology: str
    clocks: tuple[cn.Simulation, ...]
    stalled: frozenset[str]
    kept: str  # "", "memory" or "disk"


def draw(seed: int) -> Plan:
    """The schedule of a seed; all cases take turns."""
    rng = np.random.default_rng([seed, 0x5C4E])
    case = CASES[seed % len(CASES)]
    parties = int(rng.integers(3 if case.right == "answered" else 2, 5))
    holders = int(rng.integers(1, min(case.holders, parties) + 1)) if case.right != "answered" else 1
    cast = Cast(parties, holders)
    sums = ["pairwise", "plain"] if case.right == "answered" else ["pairwise", "two-trees", "plain"]
    kept = str(rng.choice(["", "memory", "memory", "memory", "disk"])) if case.keeps else ""
    clock, stalled = _clock(rng, case, cast)
    clocks = [clock]
    if kept:
        if rng.random() < 0.5:
            clocks.append(replace(_clock(rng, case, cast)[0], speeds={}))
        clocks.append(cn.Simulation(deadline=DEADLINE))
    sum_, topology = str(rng.choice(sums)), str(rng.choice(["tree", "star", "ring"]))
    return Plan(seed, case, cast, sum_, topology, tuple(clocks), stalled, kept)


def _clock(rng: np.random.Generator, case: Case, cast: Cast) -> tuple[cn.Simulation, frozenset[str]]:
    names = ("server", *(f"site{k + 1}" for k in range(cast.parties))) if case.right == "answered" else cast.names
    right = still(case, cast)
    links = [(one, other) for one in names for other in names if one != other]
    slowest = float(10.0 ** rng.uniform(-4, -1.3))
    latency = {link: float(rng.uniform(0, slowest)) for link in links} if rng.random() < 0.5 else slowest
    bandwidth = {link: float(10.0 ** rng.uniform(5, 9)) for link in links} if rng.random() < 0.5 else 1e7
    per_number = float(rng.choice([1e-9, 1e-6, 1e-5] if case.right != "common" else [1e-10, 1e-9]))
    speeds = {name: float(rng.uniform(0.05, 1.0)) for name in names if rng.random() < 0.4}
    stalled = frozenset()
    if rng.random() < 0.06:
        name, speed = str(rng.choice(names)), per_number / (STALL if case.right != "common" else STALL_ALIGNING)
        speeds[name] = speed if rng.random() < 0.5 else {"forward": 1.0, "backward": speed}
        stalled = frozenset([name])
    delayed, delay = float(rng.choice([0.0, 0.2, 1.0])), float(rng.choice([0.05, 1.0])) * DELAY
    about = right.seconds * (slowest + delayed * delay / 2)  # how long the run would take
    crashes = {}
    if rng.random() < 0.3:
        for name in rng.permutation(names)[: 1 + int(rng.random() < 0.2)]:
            crashes[str(name)] = float(rng.uniform(0, 1.15) * about)
    faults = cn.Faults(
        lost=float(rng.choice([0.0, 0.0, 0.0, 0.5, 3.0])) / right.messages,
        delayed=delayed,
        duplicated=float(rng.choice([0.0, 0.2])),
        delay=delay,
        crashes=crashes,
    )
    gateway = 1e6 if rng.random() < 0.15 else None
    clock = cn.Simulation(latency, bandwidth, gateway, speeds, faults, int(rng.integers(1 << 30)), DEADLINE, per_number)
    return clock, stalled
