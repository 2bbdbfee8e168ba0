"""A breast-cancer job of two organisations over the loopback, for whoever measures what `colonnade run` costs."""

from __future__ import annotations

import csv
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NAMES = ("bank", "shop")
_LIMIT = 120.0  # seconds: never decides unless something hangs


@dataclass(frozen=True)
class Cost:
    """What a process cost: seconds on the clock and seconds of processors, its own and the system's."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s, {self.cpu:.2f} s of CPU"


def make(folder: Path) -> Path:
    """Write the job, both parties' files and tables; returns the path of the job."""
    from sklearn.datasets import load_breast_cancer

    from colonnade.jobs.init import init

    init(folder, NAMES, protection="masked")
    job, text = folder / "job.toml", (folder / "job.toml").read_text()
    for number in range(len(NAMES)):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            text = text.replace(f":{7443 + number}", f":{one.getsockname()[1]}")
    job.write_text(text.replace("patience = 600", "patience = 60"))
    data = load_breast_cancer()
    for number, name in enumerate(NAMES):
        columns = range(15 * number, 15 * (number + 1))
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(data.feature_names[k] for k in columns), *(["label"] if number == 0 else [])])
            for row, outcome in enumerate(data.target):
                writer.writerow([f"P{row:04}", *data.data[row, columns], *([outcome] if number == 0 else [])])
    return job


def run(job: Path, command: dict[str, list[str]] | None = None, **environment: str) -> dict[str, Cost]:
    """Both parties at once, each in a process of its own from its start to the model; what each of them cost.

    command: of a party, in place of `python -m colonnade.cli.main`; environment: variables for both.
    """
    started, began = {}, time.perf_counter()
    for name in NAMES:
        head = (command or {}).get(name) or [sys.executable, "-m", "colonnade.cli.main"]
        started[name] = subprocess.Popen(
            [*head, "run", str(job), "--as", name, "--quiet"],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
        )
    return {name: ended(process, began) for name, process in started.items()}


def ended(process: subprocess.Popen[Any], began: float) -> Cost:
    """Wait for a process, and see what it cost since it began."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{process.args} ended with code {process.returncode}")
    return Cost(time.perf_counter() - began, used.ru_utime + used.ru_stime)
