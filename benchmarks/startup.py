"""How long a newcomer waits before anything happens, and a party of a small job from its start to the model."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import two_parties
from two_parties import Cost

Rows = list[tuple[str, str, str]]
COMMAND = [sys.executable, "-m", "colonnade.cli.main"]
WITH_NUMBA = {"COLONNADE_KERNELS": "numba"}  # its front end in place of the code that is kept


def start_up(quick: bool) -> Rows:
    """How long a process takes before anything happens, and a party from its start to the model."""
    times = 1 if quick else 5
    rows: Rows = []
    for name, command, bar in (
        ("colonnade --help", [*COMMAND, "--help"], "bar: 0.3 s"),
        ("import colonnade", [sys.executable, "-c", "import colonnade"], "bar: 0.5 s"),
        (
            "import colonnade, first model made",
            [sys.executable, "-c", "import colonnade as c; c.LogisticRegression()"],
            "",
        ),
        ("python alone", [sys.executable, "-c", "pass"], "the floor"),
    ):
        rows.append((name, str(least([process(command) for _ in range(times)])), bar))
    first = 0 if quick else 1  # the first run finds cold files
    ways = ({},) if quick else ({}, WITH_NUMBA)
    party, *by_numba = (least([one_run(how) for _ in range(first + times)][first:]) for how in ways)
    beside = "".join(f"; with numba's front end {one}" for one in by_numba)
    rows.append(("colonnade run, two parties, each", str(party), f"bar: 1.2 s{beside}"))
    if not quick:
        demo, by_numba = (least([one_demo(how) for _ in range(2)]) for how in ({}, WITH_NUMBA))
        rows.append(("colonnade demo, all its processes", str(demo), f"bar: 8 s; with numba's front end {by_numba}"))
    return rows


def least(costs: list[Cost]) -> Cost:
    """Of several runs, on a busy machine the least disturbed one."""
    return Cost(min(one.wall for one in costs), min(one.cpu for one in costs))


def process(command: list[str], environment: dict[str, str] | None = None) -> Cost:
    """What a command costs, with all processes that it starts."""
    began = time.perf_counter()
    started = subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL)
    return two_parties.ended(started, began)


def one_run(environment: dict[str, str]) -> Cost:
    """A party of a job, the dearer one of the two."""
    with tempfile.TemporaryDirectory() as folder:
        costs = two_parties.run(two_parties.make(Path(folder) / "job"), **environment).values()
    return Cost(max(one.wall for one in costs), max(one.cpu for one in costs))


def one_demo(environment: dict[str, str]) -> Cost:
    """The demo of three organisations."""
    with tempfile.TemporaryDirectory() as folder:
        return process([*COMMAND, "demo", "--out", f"{folder}/demo"], environment)
