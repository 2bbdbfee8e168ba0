"""An alignment of few ids with many that are served again and again, beside the other form for two parties."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np

import colonnade as cn
from alignment import Rows
from colonnade.alignment.role import SERVED, TRANSFER
from programs import aligner


def alignment_served(quick: bool) -> Rows:
    """A thousand ids against many that are served, two parties in processes, half of the thousand in common.

    `python benchmarks/served.py 1000 10000000 FOLDER` does it for ten million, and goes on where it was broken off.
    """
    few, many = (10, [600]) if quick else (1000, [20_000, 50_000, 100_000, 1_000_000])
    rows: Rows = [("load of the machine", f"{os.getloadavg()[0]:.1f}", f"{os.cpu_count()} cores")]
    for count in many:
        with tempfile.TemporaryDirectory() as folder:
            rows += compared(few, count, folder)
    return rows


def compared(few: int, many: int, folder: str) -> Rows:
    """Both forms, and the served one twice."""
    what, first = f"{few:,} against {many:,}", between(few, many, SERVED, folder)
    later, other = between(few, many, SERVED, folder), between(few, many, TRANSFER)
    size = sum(path.stat().st_size for path in Path(folder).rglob("*"))
    each = f"{first[:, 2].sum() / many * 1e6:.0f} µs per id, {ratio(first, other)} of what transfers take"
    return [
        (f"{what}: the first run", words(first), each),
        (f"{what}: a later run", words(later), f"transfers take {ratio(other, later)} of its CPU time"),
        (f"{what}: by transfers", words(other), ""),
        ("on the disk, of both", f"{size / 1e6:,.1f} MB", f"{size / many:.0f} bytes per id"),
    ]


def between(few: int, many: int, method: str, folder: str = "") -> np.ndarray:
    """For both parties: common ids, seconds, CPU, memory, bytes sent."""
    outcomes = cn.Processes().run(
        {
            "p0": (aligner, (0, few, method, folder and f"{folder}/p0")),
            "p1": (aligner, (few // 2, many, method, folder and f"{folder}/p1")),
        }
    )
    found = np.array([outcome.value for outcome in outcomes.values()])
    if (found[:, 0] != few - few // 2).any():
        raise SystemExit("the alignment found a wrong intersection")
    return found


def words(found: np.ndarray) -> str:
    """Say what a run took."""
    cpu, memory, sent = found[:, 2], found[:, 3].max() / 1e6, found[:, 4] / 1e3
    spent = f"{found[:, 1].max():.2f} s; CPU {cpu[0]:.2f} + {cpu[1]:.2f} s"
    return f"{spent}; sent {sent[0]:,.0f} + {sent[1]:,.0f} kB; peak {memory:,.0f} MB"


def ratio(one: np.ndarray, other: np.ndarray) -> str:
    """How many times the CPU time of another run."""
    return f"{one[:, 2].sum() / other[:, 2].sum():.1f} x"


if __name__ == "__main__":
    for row in compared(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]):
        print(*row, sep=" | ")
