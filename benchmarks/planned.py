"""What `colonnade plan` foretells, beside what `colonnade run` then takes: two organisations, a command each."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from lossy_line import LossyLine

Rows = list[tuple[str, str, str]]
DATA = Path(os.environ.get("COLONNADE_DATA", "data"))
NAMES = ("bank", "shop")
LATENCY = 0.02  # seconds, one way, as in `network_latency`
SECONDS = 25.0  # for the plan's trials
LIMIT = 600.0  # seconds: a hang, not a measure
# The options of a job for each name in the plan's table.
OPTIONS = {
    "BlockNewton": 'kind = "BlockNewton"',
    "VFB2 saga in step": 'kind = "VFB2"\nestimator = "saga"\nasynchronous = false',
    "FedBCD, 5 local steps": 'kind = "FedBCD"',
    "FedSGD": 'kind = "FedSGD"',
}


def breast_cancer() -> tuple[str, Any, Any]:
    from sklearn.datasets import load_breast_cancer

    return "breast cancer", *load_breast_cancer(return_X_y=True)


def credit_cards(rows: int) -> tuple[str, Any, Any]:
    """UCICreditCard as it comes, 23 columns; where the file is not there, numbers of its shape."""
    from reproductions.datasets import MissingData, read_npz

    try:
        stored = read_npz(DATA, "ucicreditcard", ("X", "y"))
    except MissingData:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((rows, 23))
        y = X @ rng.standard_normal(23) + rng.logistic(size=rows) > 1.0
        return f"numbers of UCICreditCard's shape, {rows:,} rows", X, y
    return f"UCICreditCard, {rows:,} rows", stored["X"][:rows].astype(np.float64), stored["y"][:rows]


class Organisations:
    """A folder with two parties and their tables; the bank dials the shop, over a line that takes its time."""

    def __init__(self, folder: Path, X: Any, y: Any, delay: float, lines: ExitStack) -> None:
        from colonnade.jobs.init import init

        self.folder, self._delay = folder, delay
        init(folder, NAMES, protection="masked")
        for name in NAMES:  # trials are trainings, and what leaves in them is counted
            path = folder / f"{name}.toml"
            path.write_text(path.read_text().replace("max_directions = 0.5", "max_directions = 10000"))
        self._job = (folder / "job.toml").read_text()
        ports = _free_ports(2)
        for number, port in enumerate(ports):
            at = f"127.0.0.1:{port}"
            if number and delay:  # the name that comes first dials
                (folder / "shop.toml").write_text(f'listen = "{at}"\n' + (folder / "shop.toml").read_text())
                at = lines.enter_context(LossyLine(at, delay)).address
            self._job = self._job.replace(f"127.0.0.1:{7443 + number}", at)
        self._job = self._job.replace("part = 0.2", "part = 0.0")
        middle = X.shape[1] // 2
        for name, columns, label in ((NAMES[0], X[:, :middle], y), (NAMES[1], X[:, middle:], None)):
            with (folder / f"{name}.csv").open("w", newline="") as file:
                table = csv.writer(file)
                last = ["label"] if label is not None else []
                table.writerow(["id", *(f"{name}{j}" for j in range(columns.shape[1])), *last])
                for row, numbers in enumerate(columns.tolist()):
                    table.writerow([row, *numbers, *([int(label[row])] if label is not None else [])])

    def _train_by(self, options: str) -> None:
        a, b = self._job.index("[algorithm]"), self._job.index("[sum]")
        (self.folder / "job.toml").write_text(f"{self._job[:a]}[algorithm]\n{options}\n\n{self._job[b:]}")

    def _all(self, line: list[str]) -> dict[str, str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        start = {name: [sys.executable, *line, str(self.folder / "job.toml"), "--as", name] for name in NAMES}
        started = {
            name: subprocess.Popen(c, env=environment, stdout=-1, stderr=-1, text=True) for name, c in start.items()
        }
        try:
            said = {name: process.communicate(timeout=LIMIT) for name, process in started.items()}
        finally:
            for process in started.values():
                process.kill()  # nobody, unless something hangs
        for name, process in started.items():
            if process.returncode:
                raise RuntimeError(f"{name}: {said[name]}")
        return {name: out for name, (out, _) in said.items()}

    def plan(self, seconds: float) -> dict[str, Any]:
        """As the label holder hears it, from a process that has done nothing else."""
        self._train_by(OPTIONS["BlockNewton"])
        found: dict[str, Any] = json.loads(self._all([__file__, "--seconds", str(seconds)])["bank"].splitlines()[-1])
        return found

    def run(self, options: str) -> tuple[int, float, int]:
        """(rounds, seconds, bytes of all parties), as the parties say at the end."""
        self._train_by(options)
        said = self._all(["-m", "colonnade.cli.main", "run", "--quiet"])
        for name in NAMES:
            shutil.rmtree(self.folder / f"{name}-files")
        found = {name: re.search(r"([\d,]+) bytes in ([\d,]+) rounds, ([\d.]+) s", text) for name, text in said.items()}
        bytes_, rounds, seconds = ([float(m[k].replace(",", "")) for m in found.values() if m] for k in (1, 2, 3))
        return int(rounds[0]), max(seconds), int(sum(bytes_))


def planned_and_real(quick: bool) -> Rows:
    """`colonnade plan`, and then `colonnade run`, on the loopback and over a line that takes 20 ms each way."""
    newton, saga, *stochastic = OPTIONS
    if quick:
        return _compare(breast_cancer(), 0.0, [newton], 0.5)
    few, many = breast_cancer(), credit_cards(24_000)
    return [
        *_compare(few, 0.0, list(OPTIONS), SECONDS),
        *_compare(few, LATENCY, [newton, saga], SECONDS),
        *_compare(many, 0.0, list(OPTIONS), SECONDS),
        *_compare(many, LATENCY, [newton, saga], SECONDS),
        # On all rows these would take ten minutes each.
        *_compare(credit_cards(4_000), LATENCY, stochastic, SECONDS),
    ]


def _compare(data: tuple[str, Any, Any], delay: float, wanted: list[str], seconds: float) -> Rows:
    name, X, y = data
    rows, what = Rows(), f"{name}, {'20 ms' if delay else 'loopback'}"
    with tempfile.TemporaryDirectory() as folder, ExitStack() as lines:
        both = Organisations(Path(folder) / "planned", X, y, delay, lines)
        plan = both.plan(seconds)
        rows.append((f"{what}: the plan itself", f"{plan['seconds']:.1f} s", ""))
        for method in wanted:
            foretold = plan["forecasts"][method]
            rounds, spent, sent = both.run(OPTIONS[method])
            said = (
                f"planned {foretold['rounds']:,.0f} rounds, {foretold['seconds']:.1f} s, {foretold['bytes']:,.0f} bytes"
            )
            wrong = f"{_wrong(foretold['rounds'], rounds)} rounds, {_wrong(foretold['seconds'], spent)} time"
            real = f"real {rounds:,} rounds, {spent:.1f} s, {sent:,} bytes"
            rows.append((f"{what}: {method}", said, f"{real}; {wrong}; bar: 30 %, 50 %"))
    return rows


def _wrong(planned: float, real: float) -> str:
    return f"{100 * (planned / real - 1):+.0f} %"


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _plan_as_json(arguments: list[str]) -> None:
    """What this file does as a command: a plan whose figures a program can read."""
    import argparse
    import time

    from colonnade.jobs.job_file import read_job
    from colonnade.jobs.party_file import read_party
    from colonnade.planning.command import plan_job

    parser = argparse.ArgumentParser()
    parser.add_argument("job", type=Path)
    parser.add_argument("--as", dest="party")
    parser.add_argument("--seconds", type=float)
    options = parser.parse_args(arguments)
    job = read_job(options.job)
    began = time.perf_counter()
    plan = plan_job(
        job, read_party(options.job.parent / f"{options.party}.toml", job), seconds=options.seconds, verbose=0
    )
    forecasts = {
        one.name: {
            "rounds": one.rounds.likely, "low": one.rounds.low, "high": one.rounds.high,
            "seconds": one.seconds.likely, "bytes": sum(one.sent.values()),
        }
        for one in plan.forecasts
    }  # fmt: skip
    print(json.dumps({"seconds": time.perf_counter() - began, "forecasts": forecasts}))


if __name__ == "__main__":
    _plan_as_json(sys.argv[1:])
