"""FDSKL, Figure 4: tree, star and ring, by the time it takes to sum the parties' kernel matrices.

Gu, Dang, Li, Huang: "Federated Doubly Stochastic Kernel Learning for Vertically Partitioned Data", KDD 2020: every node
works out a linear kernel over its own columns, and the matrices are summed along one of three topologies; the paper
says that the tree is fastest, the more so the more nodes there are, and prints no numbers. What is sent depends on the
number of rows only. Here a matrix is summed as one message, and in bands of rows that follow each other through the
topology; and a batch of scores, which is what training sums. Under the virtual clock a party takes in and gives out so
many bytes a second, whoever they are from or for; then the same in processes on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from colonnade.runtimes.net import Net, Runtime
from colonnade.runtimes.simulation import Simulation
from colonnade.sums import open_sum
from colonnade.sums.trees import TOPOLOGIES
from reproductions.kernel_methods import timed_processes
from reproductions.report import Line, Panel, Table, make_folder, plot, show, work_off, write_csv

NAME = "fdskl-topologies"
LATENCY, GATEWAY = 5e-4, 1.25e8  # seconds per message, bytes per second: a local network of 1 Gbit/s
BATCH = 256  # scores
ONE, BANDS, SCORES = "one message", "bands", "scores"
WHAT = {
    ONE: "a matrix as one message",
    BANDS: "a matrix in bands of rows",
    SCORES: f"{BATCH} scores, in microseconds",
}


@dataclass(frozen=True)
class Size:
    """How much of the experiment is run: all of it by default, less for a short form."""

    parties: tuple[int, ...] = (2, 4, 8, 16)
    processes: tuple[int, ...] = (2, 4, 8)
    rows: int = 2_000
    bands: int = 50
    batches: int = 200


QUICK = Size((2, 4, 8), (3,), 100, 10, 5)


@dataclass(frozen=True)
class Job:
    """One sum."""

    where: str
    what: str
    topology: str
    parties: int


Seconds = Mapping[Job, float]


async def summed(net: Net, topology: str, numbers: int, times: int, answered: bool) -> float:
    """So many sums of so many numbers at the first party: seconds there, without the start.

    answered: a party hears from the first before it sends the next, as in training; else sums follow each other.
    """
    secure = await open_sum("plain", net, topology)
    value, root = np.ones(numbers), net.names[0]
    await secure.total("begin", np.zeros(1), root)
    await _answer(net, root)
    began = net.elapsed()
    for _ in range(times):
        await secure.total("sum", value, root)
        if answered:
            await _answer(net, root)
    return net.elapsed() - began


async def _answer(net: Net, root: str) -> None:
    if net.me != root:
        await net.recv(root, "answer")
        return
    for name in net.names[1:]:
        await net.send(name, "answer", None)


def measure(job: Job, size: Size) -> float:
    """Seconds of one sum; of a batch of scores with its answer."""
    pairs = size.rows * size.rows
    numbers, times = {ONE: (pairs, 1), BANDS: (pairs // size.bands, size.bands), SCORES: (BATCH, size.batches)}[
        job.what
    ]
    names = [f"party{number + 1}" for number in range(job.parties)]
    on: Runtime = Simulation(latency=LATENCY, bandwidth=GATEWAY, gateway=GATEWAY, deadline=1e9)
    if job.where == "processes":
        on = timed_processes()
    answered = job.what == SCORES
    outcomes = on.run(dict.fromkeys(names, (summed, (job.topology, numbers, times, answered))))
    seconds = float(outcomes[names[0]].value)
    return seconds / times if answered else seconds


def run(data: Path, *, out: Path, seed: int, quick: bool) -> None:
    """Measure, print, and write tables and the plot to `out`."""
    began, size = time.monotonic(), QUICK if quick else Size()
    make_folder(out)
    jobs = [
        Job(where, what, topology, parties)
        for where, numbers in (("clock", size.parties), ("processes", size.processes))
        for what in WHAT
        for parties in numbers
        for topology in TOPOLOGIES
    ]
    found = work_off(jobs, lambda job: measure(job, size), NAME, threads=1)  # one after another: they are timed
    megabytes = 8 * size.rows**2 / 1e6
    head = [
        f"Tree, star and ring (Figure 4){', short form' if quick else ''}. Seed {seed}: nothing here depends on it.",
        f"The kernel's matrix of {size.rows:,} rows, {megabytes:.0f} MB; in bands: {size.bands} messages that follow "
        f"each other. Scores: {BATCH} of them, and the next batch only when the root has answered, as in training. "
        f"No masks: pairwise ones add nothing to what is sent.",
        f"Virtual clock: {1e3 * LATENCY:g} ms a message, and {GATEWAY / 1e6:.0f} MB/s into and out of every party, "
        f"over all its lines. Processes: this machine.",
    ]
    tables = [_table(where, what, found) for where in ("clock", "processes") for what in WHAT]
    panels = [_panel(where, what, found) for where in ("clock", "processes") for what in WHAT]
    picture = plot(panels, out / f"{NAME}.png", 3)
    write_csv(
        out / f"{NAME}-runs.csv",
        ("where", "what", "topology", "parties", "seconds"),
        ((job.where, job.what, job.topology, job.parties, seconds) for job, seconds in found.items()),
    )
    foot = [picture, f"Tables and runs are in {out}. {time.monotonic() - began:.0f} s."]
    show(head, tables, foot, out, NAME)


_TITLES = {"clock": "Virtual clock", "processes": "Processes"}


def _unit(what: str) -> tuple[float, str]:
    return (1e6, "{:.0f}") if what == SCORES else (1.0, "{:.3f}")


def _of(where: str, what: str, topology: str, found: Seconds) -> dict[int, float]:
    scale, _ = _unit(what)
    return {
        job.parties: scale * seconds
        for job, seconds in found.items()
        if (job.where, job.what, job.topology) == (where, what, topology)
    }


def _table(where: str, what: str, found: Seconds) -> Table:
    _, form = _unit(what)
    times = {topology: _of(where, what, topology, found) for topology in TOPOLOGIES}
    numbers = list(next(iter(times.values())))
    rows = [(topology, *(form.format(value) for value in mine.values())) for topology, mine in times.items()]
    unit = WHAT[what] if what == SCORES else f"{WHAT[what]}, in seconds"
    header = ("topology", *(f"{number} parties" for number in numbers))
    return Table(f"{where}-{what.replace(' ', '-')}", f"{_TITLES[where]}: {unit}", header, rows)


def _panel(where: str, what: str, found: Seconds) -> Panel:
    lines: list[Line] = []
    for topology in TOPOLOGIES:
        mine = _of(where, what, topology, found)
        lines.append((topology, list(mine), list(mine.values())))
    label = "microseconds" if what == SCORES else "seconds"
    return Panel(f"{_TITLES[where]}: {WHAT[what].split(',')[0]}", label, lines, across="parties")
