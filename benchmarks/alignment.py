"""The alignment in two processes, beside openmined-psi on the same two cores."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import colonnade as cn
from colonnade.alignment.protocol import align_packed
from colonnade.alignment.role import MOST, POWERS, TRANSFER
from colonnade.data.ids import canonical, pack
from colonnade.runtimes import warm
from programs import aligner

Rows = list[tuple[str, str, str]]
HERE = Path(__file__).parent
# It pins another library to one version, so `make bench` puts it into an environment of its own.
_OWN = HERE.parent / ".venv" / "opponents" / "bin" / "python"
OPPONENT = os.environ.get("COLONNADE_OPENMINED", str(_OWN if _OWN.exists() else sys.executable))


def ours(count: int, parties: int = 2, method: str = POWERS) -> float:
    """Seconds from the start of all programs to the end of the last, for so many ids each, half of them common."""
    programs = {}
    for k in range(parties):
        start = 0 if k == 0 else count // 2
        ids = canonical([f"person {j}" for j in range(start, start + count)], "a")
        programs[f"p{k}"] = (align_packed, (*pack(ids), 1, "p0", MOST, method))
    outcomes = cn.Processes().run(programs)
    if any(len(outcome.value) != count - count // 2 for outcome in outcomes.values()):
        raise SystemExit("the alignment found a wrong intersection")
    return max(outcome.seconds for outcome in outcomes.values())


def theirs(count: int, how: str) -> float | None:
    """The same for openmined-psi; None where it is not installed."""
    if subprocess.run([OPPONENT, "-c", "import private_set_intersection"], check=False, capture_output=True).returncode:
        return None
    command = [OPPONENT, str(HERE / "openmined.py"), str(count), how]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def spent(action: Callable[[int], object], count: int, start: int) -> float:
    """CPU seconds per id of all processes that `action(count)` starts, without what it takes to start them."""

    def children() -> float:
        warm.cool()  # only of a process that has ended is it known what it took
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    marks = [children()]
    for size in (start, count):
        action(size)
        marks.append(children())
    return (marks[2] - 2 * marks[1] + marks[0]) / (count - start)


def alignment(quick: bool) -> Rows:
    """Private set intersection by powers of points, as many ids at each party, both learn what is common."""
    start, count, times = (100, 300, 1) if quick else (300, 10_000, 5)
    ours(start)  # compiled
    # In turns, so that whatever else the machine does hits all alike; the least disturbed of each counts.
    found: dict[str, list[float]] = {"ours": [], "one": [], "two": [], "three": []}
    for _ in range(times):
        found["ours"].append(ours(count))
        found["three"].append(ours(count, 3))
        for how in ("one", "two"):
            seconds = theirs(count, how)
            found[how] += [] if seconds is None else [seconds]
    rate = {name: count / min(seconds) for name, seconds in found.items() if seconds}
    work = spent(ours, count, start)
    rows = [
        ("two parties, a process each", f"{rate['ours']:,.0f} ids/s", ""),
        ("its CPU time per id, of both sides", f"{work * 1e6:.0f} µs", f"two free cores: {2 / work:,.0f} ids/s"),
        ("three parties, a process each", f"{rate['three']:,.0f} ids/s", ""),
    ]
    if "one" not in rate:
        return [*rows, ("openmined-psi", "not installed", "name a Python that has it in COLONNADE_OPENMINED")]
    names = {"one": "openmined-psi, as it comes", "two": "openmined-psi, its two sides in a process each"}
    for how, name in names.items():
        rows.append((name, f"{rate[how]:,.0f} ids/s", f"bar: 3 x, ratio {rate['ours'] / rate[how]:.1f}"))
    work = spent(lambda size: theirs(size, "one"), count, start)
    return [*rows, ("its CPU time per id, of both sides", f"{work * 1e6:.0f} µs", "")]


def alignment_by_transfer(quick: bool) -> Rows:
    """Two parties in a process each, as many ids at each, half of them common: one party's ids by all seconds.

    Ten million against ten million with COLONNADE_LARGE=1.
    """
    sizes = [300, 1000] if quick else [100_000, 1_000_000, *([10_000_000] if "COLONNADE_LARGE" in os.environ else [])]
    cases = [(200 if quick else 10_000, POWERS), *((size, TRANSFER) for size in sizes)]
    runs: list[tuple[int, str, list[list[float]]]] = []
    for count, method in cases:
        parties = {"p0": (aligner, (0, count, method)), "p1": (aligner, (count // 2, count, method))}
        found = [outcome.value.tolist() for outcome in cn.Processes().run(parties).values()]
        if any(common != count - count // 2 for common, *_ in found):
            raise SystemExit("the alignment found a wrong intersection")
        runs.append((count, method, found))
    rows: Rows = []
    for count, method, found in runs:
        seconds, cpu = max(one[1] for one in found), sum(one[2] for one in found)
        bars = {1_000_000: "bar: 60,000 ids/s", 10_000_000: "bar: 360 s and 4,295 MB"}
        free = f"{cpu:.1f} CPU s of both; two free cores: {2 * count / cpu:,.0f} ids/s"
        what = f"{count:,} ids each, {method}"
        rows.append((what, f"{seconds:.1f} s, {count / seconds:,.0f} ids/s", bars.get(count, "")))
        rows.append(("its CPU time per id, of both sides", f"{cpu / count * 1e6:.1f} µs", free))
        sent = "leader {:.0f}, follower {:.0f}".format(*(one[4] / count for one in found))
        rows.append(("bytes sent per id", f"{sum(one[4] for one in found) / count:.0f}", sent))
        rows.append(("peak memory of a party's process", f"{max(one[3] for one in found) / 1e6:,.0f} MB", ""))
    return rows


def group_operations(quick: bool) -> Rows:
    """Points per second and core: what an alignment is made of."""
    from time import process_time

    from colonnade.crypto.group import Secret, fingerprints

    count = 200 if quick else 20_000
    digests = np.random.default_rng(0).integers(0, 256, (count, 64), dtype=np.uint8)
    secret = Secret()
    points = secret.mask_digests(digests)
    again = secret.mask_points(points, "a", "step")
    fingerprints(again)  # compiled, like the others
    rows: Rows = []
    for name, action in (
        ("a digest to a point, under a secret", lambda: secret.mask_digests(digests)),
        ("a point of another party's, under a secret", lambda: secret.mask_points(points, "a", "step")),
        ("a point to a fingerprint", lambda: fingerprints(again)),
    ):
        began = process_time()
        action()
        rows.append((name, f"{count / max(process_time() - began, 1e-9):,.0f} /s", ""))
    return rows
