"""Two parties whose tables are large beside their memory: time, CPU and peak memory of `colonnade run` at each.

    python benchmarks/beyond_memory.py --rows 1000000                  # once in memory, once in a part of it
    python benchmarks/run.py --only beyond_memory                      # 20 million rows, kept in RESULTS.md

Peak memory is above that of the same two commands on few rows: what the interpreter and its libraries take anyway. The
block is the prepared columns in float32.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

Rows = list[tuple[str, str, str]]
NAMES, COLUMNS, PARTS = ("bank", "shop"), 20, 4
FEW = 20_000
_MAKE = """
import sys, duckdb
folder, rows, columns, parts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
con = duckdb.connect()
con.execute("SET enable_progress_bar = false")
def number(j):  # the same at every run: a hash of the row and the column
    return f"((hash(range * 64 + {j}) % 1048576) / 524288.0 - 1.0)"
weights = [(-1) ** j * (1 + j % 7) / 8 for j in range(2 * columns)]
score = " + ".join(f"{w} * {number(j)}" for j, w in enumerate(weights))
label = f"((hash(range * 64 + 63) % 1048576) / 1048576.0 < 1 / (1 + exp(-({score}))))::TINYINT AS y"
for party, first in (("bank", 0), ("shop", columns)):
    chosen = ", ".join(f"{number(j)}::FLOAT AS c{j}" for j in range(first, first + columns))
    for part in range(parts):
        span = f"range({rows * part // parts}, {rows * (part + 1) // parts})"
        made = f"SELECT {chosen}{', ' + label if party == 'bank' else ''} FROM {span}"
        con.execute(f"COPY ({made}) TO '{folder}/{party}-{part}.parquet' (FORMAT PARQUET, COMPRESSION UNCOMPRESSED)")
"""
_JOB = """
import sys; from pathlib import Path; from colonnade.jobs.init import init
init(Path(sys.argv[1]), sys.argv[2:], protection="masked")
"""


@dataclass(frozen=True)
class Used:
    """What one party's process has used."""

    seconds: float
    cpu: float
    peak: int  # bytes

    def above(self, base: Used) -> float:
        """Bytes of memory beside those that it takes anyway."""
        return float(self.peak - base.peak)


def make(folder: Path, rows: int) -> Path:
    """Write both parties' tables in parts, and the job; returns the path of the job."""
    job = folder / "beyond" / "job.toml"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", _JOB, str(job.parent), *NAMES], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-c", _MAKE, str(job.parent), str(rows), str(COLUMNS), str(PARTS)], check=True)
    return job


def describe(job: Path, memory: str | None) -> None:
    """Write the files of the job anew: on free ports, and with so much memory for each party's columns."""
    text = job.read_text()
    for before, after in (
        (text[text.index("[validation]") : text.index("[alignment]")], ""),
        (next(line for line in text.splitlines(keepends=True) if '"who is in common"' in line), ""),
        ('kind = "private"', 'kind = "none"'),
        ("deadline = 60 ", "deadline = 3600 "),
    ):
        text = text.replace(before, after)
    for number, port in enumerate(free_ports()):
        text = text.replace(f":{7443 + number}", f":{port}")
    (job.parent / "run.toml").write_text(text)
    for name in NAMES:
        path = job.parent / f"{name}.toml"
        head, rest = path.read_text().split("[data]\n", 1)
        data = f'source = "{name}-*.parquet"\ndtype = "float32"\n' + ('label = "y"\n' if name == NAMES[0] else "")
        data += f'memory = "{memory}"\n' if memory else ""
        tail = rest[rest.index("\n[certificates]") :].replace("max_directions = 0.5", "max_directions = 1e6")
        path.write_text(f"{head}[data]\n{data}{tail}")


def free_ports() -> list[int]:
    """Return ports that nobody listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in NAMES]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def run(job: Path, memory: str | None = None) -> dict[str, Used]:
    """Both parties at once, each in a process of its own, from its start to the model."""
    describe(job, memory)
    shutil.rmtree(job.parent / "bank-files", ignore_errors=True)
    shutil.rmtree(job.parent / "shop-files", ignore_errors=True)
    began, started = time.perf_counter(), {}
    for name in NAMES:
        command = [sys.executable, "-m", "colonnade.cli.main", "run", str(job.parent / "run.toml"), "--as", name]
        started[name] = subprocess.Popen([*command, "--quiet"], stdout=subprocess.DEVNULL)
    found = {}
    for name, process in started.items():
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{name} ended with code {process.returncode}")
        found[name] = Used(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
    return found


def losses(job: Path) -> list[float]:
    """Return the objective after every round, as the label holder kept it."""
    (path,) = (job.parent / "bank-files").rglob("history.json")
    return [record["loss"] for record in json.loads(path.read_text()) if "loss" in record]


def measured(rows: int, memory: str) -> Rows:
    """Run the job in memory and in a part of it, and compare."""
    block, found = 4 * COLUMNS * rows, []
    with tempfile.TemporaryDirectory() as folder:
        base = run(make(Path(folder) / "few", FEW))
        job, whole, ended = make(Path(folder) / "many", rows), {}, []
        for limit in (None, memory):
            used = run(job, limit)
            whole = whole or used
            ended.append(losses(job))
            for name, one in used.items():
                what = f"{rows:,} x {COLUMNS}, {name}, " + ("in memory" if limit is None else f'memory = "{limit}"')
                peak = one.above(base[name])
                words = f"{one.seconds:.1f} s, {one.cpu:.1f} s of CPU, "
                words += f"{peak / 1e6:,.0f} MB above {base[name].peak / 1e6:,.0f}"
                beside = f"block {block / 1e6:,.0f} MB, ratio {peak / block:.2f}"
                slower = f"; {one.seconds / whole[name].seconds:.1f} times as long" if limit else ""
                found.append((what, words, beside + slower))
        same = "the same" if ended[0] == ended[1] else "OTHER"
        found.append(
            ("rounds, and objective at the end", f"{len(ended[0])}, {ended[0][-1]:.9f}", f"{same} bits on the disk")
        )
    return found


def beyond_memory(quick: bool) -> Rows:
    """Tables of 20 million rows at two parties, with all columns in memory and with 500 MB for them."""
    return measured(30_000, "4MB") if quick else measured(20_000_000, "500MB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--memory", help="of the columns, in the second run; by default 5/16 of the block")
    options = parser.parse_args()
    for row in measured(options.rows, options.memory or f"{options.rows * 25 // 10**6}MB"):
        print(" | ".join(row))
