"""The alignment in two processes, beside openmined-psi on the same two cores."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
_SPU = HERE.parent / ".venv" / "spu" / "bin" / "python"
SPU = os.environ.get("COLONNADE_SPU", str(_SPU if _SPU.exists() else sys.executable))


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


def alignment_of_a_million(quick: bool) -> Rows:
    """Two parties in a process each, as many ids at each, half common; ten million with COLONNADE_LARGE=1."""
    decade = [300, 1000, 3000] if quick else [200_000, 632_000, 2_000_000]
    sizes = [*decade, *([] if quick else [1_000_000]), *([10_000_000] if "COLONNADE_LARGE" in os.environ else [])]
    cases = [(200 if quick else 10_000, POWERS), *((size, TRANSFER) for size in sizes)]
    runs: dict[int, list[list[float]]] = {}
    rows: Rows = [("load of the machine", f"{os.getloadavg()[0]:.1f}", f"{os.cpu_count()} cores")]
    for count, method in cases:
        found = measured(aligner, (0, count, method), (count // 2, count, method))
        if any(common != count - count // 2 for common, *_ in found):
            raise SystemExit("the alignment found a wrong intersection")
        runs[count] = found
        seconds, cpu = max(one[1] for one in found), sum(one[2] for one in found)
        bars = {1_000_000: "bar: 60,000 ids/s", 10_000_000: "bar: 360 s and 4,295 MB"}
        free = f"{cpu:.1f} CPU s of both; two free cores: {2 * count / cpu:,.0f} ids/s"
        what = f"{count:,} ids each, {method}"
        rows.append((what, f"{seconds:.1f} s, {count / seconds:,.0f} ids/s", bars.get(count, "")))
        rows.append(("its CPU time per id, of both sides", f"{cpu / count * 1e6:.1f} µs", free))
        sent = "leader {:.0f}, follower {:.0f}".format(*(one[4] / count for one in found))
        rows.append(("bytes sent per id", f"{sum(one[4] for one in found) / count:.0f}", sent))
        rows.append(("peak memory of a party's process", f"{max(one[3] for one in found) / 1e6:,.0f} MB", ""))
    rows += growth({size: runs[size] for size in decade})
    if len(sizes) > 4:
        rows += growth({size: runs[size] for size in (1_000_000, 2_000_000, 10_000_000)})
    return [*rows, *beside_spu(300 if quick else 1_000_000)]


def alignment_of_100_million(quick: bool) -> Rows:
    """The same with a hundred million ids at each: seven minutes, and 16 GB for both parties and their ids."""
    count = 3000 if quick else 100_000_000
    found = measured(aligner, (0, count, TRANSFER), (count // 2, count, TRANSFER))
    if any(common != count - count // 2 for common, *_ in found):
        raise SystemExit("the alignment found a wrong intersection")
    rows: Rows = [("load of the machine at its end", f"{os.getloadavg()[0]:.1f}", f"{os.cpu_count()} cores")]
    for name, (_, seconds, cpu, memory, sent) in zip(("leader", "follower"), found, strict=True):
        rows.append((f"{name}: by the clock, CPU", f"{seconds:.0f} s, {cpu:.0f} s", f"{count / seconds:,.0f} ids/s"))
        rows.append((f"{name}: peak memory", f"{memory / 1e6:,.0f} MB", f"{memory / count:.0f} per id; bar: 8 GB"))
        rows.append((f"{name}: sent", f"{sent / 1e6:,.0f} MB", f"{sent / count:.0f} bytes per id"))
    return rows


def measured(program: Any, first: Any, second: Any) -> list[list[float]]:
    """What a program with these arguments measures at both parties: common ids, seconds, CPU, memory, bytes sent."""
    outcomes = cn.Processes().run({"p0": (program, first), "p1": (program, second)})
    return [outcome.value.tolist() for outcome in outcomes.values()]


def growth(runs: dict[int, list[list[float]]]) -> Rows:
    """How time and memory grow with ids: the exponents of fitted powers, and bytes for each further id."""
    sizes, span = np.array([*runs], np.float64), f"from {min(runs):,} to {max(runs):,} ids"
    cpu = [sum(one[2] for one in found) for found in runs.values()]
    memory = np.array([max(one[3] for one in found) for found in runs.values()])
    exponents = [np.polyfit(np.log(sizes), np.log(values), 1)[0] for values in (cpu, memory)]
    more, fixed = np.polyfit(sizes, memory, 1)
    beyond = np.polyfit(np.log(sizes), np.log(memory - fixed), 1)[0] if (memory > fixed).all() else np.nan
    line = f"{more:.0f} bytes per id and {fixed / 1e6:.0f} MB"
    return [
        (f"exponent of CPU time, {span}", f"{exponents[0]:.2f}", "bar: 0.9 to 1.1"),
        (f"exponent of peak memory, {span}", f"{exponents[1]:.2f}", f"{beyond:.2f} beyond the fixed part"),
        (f"a line through peak memory, {span}", line, "beyond 33 million no names are kept"),
    ]


def beside_spu(count: int) -> Rows:
    """SPU's PSI between as many people on the same machine; it reads and writes CSV files, and has no TLS either."""
    known = [SPU, "-c", "import spu.psi; spu.psi.PsiProtocolConfig"]  # older ones name it otherwise
    if subprocess.run(known, check=False, capture_output=True).returncode:
        return [("SecretFlow's SPU", "not measured", "name a Python that has spu 0.9.5 in COLONNADE_SPU")]
    rows: Rows = []
    for how in ("ecdh", "kkrt", "rr22"):
        command = [SPU, str(HERE / "spu_psi.py"), str(count), how]
        said = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
        seconds, cpu = map(float, said.stdout.split()[-2:])
        free = f"{cpu:.1f} CPU s of both; two free cores: {2 * count / cpu:,.0f} ids/s"
        rows.append(
            (f"SPU's {how.upper()}, {count:,} ids each", f"{seconds:.1f} s, {count / seconds:,.0f} ids/s", free)
        )
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
