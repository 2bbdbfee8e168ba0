"""The network runtime on the loopback: what a round costs, a slow line, a death; and what a round costs over MPI."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import colonnade as cn
from colonnade.errors import RunFailed
from colonnade.remote.mpi import Mpi
from colonnade.remote.network import Network
from colonnade.runtimes.net import Runtime
from colonnade.runtimes.processes import Processes

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))
from lossy_line import LossyLine
from programs import all_to_all, echo, hammer, idleness, send_long, take_long

Rows = list[tuple[str, str, str]]
LATENCY = 0.02  # seconds, one way
STEP, GOAL = 0.1, 0.35


def _rate(history: list[dict[str, Any]]) -> float:
    """Rounds per second from the end of the first epoch on: connected, compiled and warm."""
    first, last = history[1], history[-1]
    return float((last["rounds"] - first["rounds"]) / (last["time"] - first["time"]))


def _two_parties(quick: bool) -> tuple[str, list[cn.Party]]:
    from measures import a9a  # which imports this file

    name, X, y = a9a()
    return name, cn.split(*((X[:2000], y[:2000]) if quick else (X, y)), into=2)


def network_rounds(quick: bool) -> Rows:
    """Rounds per second between two processes over mutual TLS, against the same over Unix sockets."""
    name, parties = _two_parties(quick)
    rows: Rows = []
    shared = {"batch": 256, "epochs": 3 if quick else 30, "tol": None}
    algorithms = (cn.FedSGD(**shared), cn.FedBCD(**shared, local_steps=5))
    for algorithm in algorithms[: 1 if quick else 2]:
        found = {}
        for on in (Network(), cn.Processes()):
            model = cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*parties, on=on)
            found[type(on)] = _rate(model.history_)
        here, there = found[Network], found[cn.Processes]
        beside = f"bar: 800; over Unix sockets {there:,.0f}"
        rows.append((f"{name}, two parties, batch 256, {algorithm.name}", f"{here:,.0f} rounds/s", beside))
    return rows + _empty_exchanges(Network(), quick)


def mpi_rounds(quick: bool) -> Rows:
    """Rounds per second between two ranks of an MPI job on this machine, against the same over Unix sockets."""
    if find_spec("mpi4py") is None:
        return [("MPI is not installed", "", "pip install 'colonnade[mpi]'")]
    name, parties = _two_parties(quick)
    algorithm = cn.FedSGD(batch=256, epochs=3 if quick else 30, tol=None)
    here, there = (
        _rate(cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*parties, on=on).history_)
        for on in (Mpi(), cn.Processes())
    )
    what = f"{name}, two parties, batch 256, {algorithm.name}"
    rows = [(what, f"{here:,.0f} rounds/s", f"over Unix sockets {there:,.0f}"), *_empty_exchanges(Mpi(), quick)]
    seconds = 0.2 if quick else 5.0
    idle = max(outcome.value for outcome in Mpi().run(dict.fromkeys("ab", (idleness, (seconds,)))).values())
    return [*rows, ("a party that waits", f"{100 * idle:.1f} % of a core", "it asks MPI once per millisecond")]


def _empty_exchanges(on: Runtime, quick: bool) -> Rows:
    rows: Rows = []
    for size, what in ((256, "256 floats"), (1 << 20, "8 MB")):
        count, marks = (20 if quick else 5000 if size == 256 else 50), []
        programs = {"a": (hammer, ("b", count, size)), "b": (echo, ("a", count))}
        on.run(programs, lambda _party, seconds, _value, marks=marks: marks.append(seconds))
        seconds = (marks[-1] - marks[0]) / count
        beside = "the floor" if size == 256 else f"{2 * 8 * size / seconds / 1e6:,.0f} MB/s"
        rows.append((f"the empty exchange of {what}", f"{1 / seconds:,.0f} rounds/s", beside))
    return rows


def long_messages(quick: bool) -> Rows:
    """One message of 1 GB between two processes, and its memory at both, beside 8 MB there and back."""
    if not Path("/proc/self/clear_refs").exists():
        return [("peaks of memory are read from /proc, which is not here", "", "")]
    numbers = 1 << 22 if quick else 1 << 27
    rows: Rows = []
    for on, what in ((Processes(), "a Unix socket"), (Network(), "mutual TLS")):
        ends = {"a": (send_long, ("b", numbers)), "b": (take_long, ("a",))}
        found = {name: outcome.value for name, outcome in on.run(ends).items()}
        rate = 8 * numbers / found["a"][0] / 1e6
        peaks = f"peak {found['a'][1]:.3f} arrays at the sender, {found['b'][1]:.3f} at the receiver; bar: 1.1"
        rows.append((f"{8 * numbers / 1e9:.2f} GB over {what}", f"{rate:,.0f} MB/s", peaks))
        rows.append(_empty_exchanges(on, quick)[1])
    return rows


def network_latency(quick: bool) -> Rows:
    """A line that takes 20 ms each way: FedBCD with ten local steps against FedSGD, the same step, to one objective."""
    name, parties = _two_parties(quick)
    shared = {"step": STEP, "schedule": "constant", "batch": 256, "tol": None, "evaluate_every": 10}
    goal = {"epochs": 1} if quick else {"epochs": 20, "goal": GOAL}
    rows: Rows = []
    seconds = {}
    for algorithm in (cn.FedSGD(**shared, **goal), cn.FedBCD(**shared, **goal, local_steps=10)):
        with ExitStack() as lines:
            relay = lambda address, lines=lines: lines.enter_context(LossyLine(address, LATENCY)).address  # noqa: E731
            model = cn.LogisticRegression(algorithm=algorithm, verbose=0).fit(*parties, on=Network(relay=relay))
        last = model.history_[-1]
        seconds[algorithm.name] = last["time"]
        ratio = "" if algorithm.name == "FedSGD" else f"bar: 0.2 x FedSGD, ratio {last['time'] / seconds['FedSGD']:.2f}"
        rows.append(
            (f"{name}: {algorithm.name}, {last['rounds']} rounds to {last['loss']:.3f}", f"{last['time']:.1f} s", ratio)
        )
    return rows


def network_deaths(quick: bool) -> Rows:
    """Three parties, all to all, one of them killed at a random point: who is named, and when."""
    points, count, grace = (1, 50, 0.5) if quick else (10, 3000, 10.0)

    def killed(victim: str, seed: int) -> tuple[bool, float]:
        """Whether all others named it, and the seconds from its death to the end of the last of them."""
        at = random.Random(f"{victim} {seed}").randrange(count)
        try:
            Network(grace=grace).run({n: (all_to_all, (at if n == victim else -1, count)) for n in "abc"})
        except RunFailed as error:
            others = {name: outcome for name, outcome in error.outcomes.items() if name != victim}  # type: ignore[attr-defined]
            named = all(getattr(outcome.error, "party", "") == victim for outcome in others.values())
            died = error.outcomes[victim].seconds  # type: ignore[attr-defined]
            return named, max(outcome.seconds for outcome in others.values()) - died
        return False, 0.0

    with ThreadPoolExecutor(5) as pool:  # they wait for most of the time
        found = list(pool.map(lambda each: killed(*each), [(name, seed) for name in "abc" for seed in range(points)]))
    named = sum(found for found, _ in found)
    slowest = max(seconds for _, seconds in found)
    return [
        (f"kill -9 of each of three parties at {points} points", f"{named} of {len(found)} named by all others", ""),
        ("from a death to the end of the last of the others", f"{slowest:.1f} s", "bar: 15 s"),
    ]
