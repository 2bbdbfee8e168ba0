"""Tables on the screen and in files, plots, and a bar for long jobs. rich and matplotlib wait until they are needed."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

Job = TypeVar("Job")
Answer = TypeVar("Answer")

# Columns of a table in a text file, whatever the screen has.
_WIDTH = 110


@dataclass(frozen=True)
class Curve:
    """What a run showed: exchanges so far, test AUC, and the objective over the training rows."""

    rounds: list[int]
    auc: list[float]
    loss: list[float]


def rounds_to(curve: Curve, target: float) -> float:
    """Exchanges until the test AUC was first at the target; infinite if it never was."""
    return next((float(r) for r, value in zip(curve.rounds, curve.auc, strict=True) if value >= target), math.inf)


def rounds_text(rounds: float, limit: int) -> str:
    """A number of rounds, or that the limit was not enough."""
    return f"{rounds:.0f}" if math.isfinite(rounds) else f"> {limit}"


def share_text(rounds: float, base: float) -> str:
    """Per cent of another number of rounds, where both are known."""
    return f"{100 * rounds / base:.0f} %" if math.isfinite(rounds) and math.isfinite(base) else "-"


@dataclass
class Table:
    """A table with a title above it and sentences below it."""

    name: str  # of its CSV file
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: list[str] = field(default_factory=list)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def show(head: Sequence[str], tables: Sequence[Table], foot: Sequence[str], out: Path, name: str) -> None:
    """Print sentences and tables; the same in `<out>/<name>.txt`, and each table as CSV beside it."""
    from rich.console import Console

    with (out / f"{name}.txt").open("w", encoding="utf-8") as file:
        for console in (Console(highlight=False), Console(file=file, width=_WIDTH, highlight=False)):
            for sentence in head:
                console.print(sentence, markup=False, soft_wrap=True)
            for table in tables:
                console.print()
                console.print(_drawn(table))
                for sentence in table.words:
                    console.print(sentence, markup=False, soft_wrap=True)
            console.print()
            for sentence in foot:
                console.print(sentence, markup=False, soft_wrap=True)
    for table in tables:
        write_csv(out / f"{name}-{table.name}.csv", table.header, table.rows)


def _drawn(table: Table) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD)
    for index, name in enumerate(table.header):
        drawn.add_column(Text(name), justify="right" if index else "left", no_wrap=not index)
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn


def work_off(jobs: Sequence[Job], work: Callable[[Job], Answer], title: str, threads: int = 2) -> dict[Job, Answer]:
    """`work` on every job, a few at a time, under a bar on stderr. The kernels release the GIL: threads do."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    answers: dict[Job, Answer] = {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=len(jobs))
        pool = ThreadPoolExecutor(threads)
        try:
            futures = {pool.submit(work, job): job for job in jobs}
            for future in as_completed(futures):
                answers[futures[future]] = future.result()
                bar.advance(task)
        finally:
            pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C the rest is not begun
    return {job: answers[job] for job in jobs}


@dataclass
class Panel:
    """One plot: lines over rounds, and maybe a dashed level."""

    title: str
    label: str
    lines: list[tuple[str, Sequence[float], Sequence[float]]]
    level: tuple[str, float] | None = None
    limits: tuple[float, float] | None = None
    logarithmic: bool = False


def plot(panels: Sequence[Panel], path: Path) -> str:
    """Panels side by side in a PNG; returns the sentence that says where it is, or why there is none."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "matplotlib is not installed, so there is no plot; pip install 'colonnade[demo]' brings it."
    figure = Figure(figsize=(5.4 * len(panels), 4.4), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for index, (name, x, y) in enumerate(panel.lines):
            # dashes for every other line: curves that lie upon each other stay visible
            axes.plot(x, y, "--" if index % 2 else "-", label=name, linewidth=1.4, alpha=0.9)
        if panel.level is not None:
            axes.axhline(panel.level[1], color="black", linestyle=":", linewidth=1, label=panel.level[0])
        if panel.logarithmic:
            axes.set_yscale("log")
        if panel.limits is not None:
            axes.set_ylim(*panel.limits)
        axes.set(title=panel.title, xlabel="rounds (exchanges)", ylabel=panel.label)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8)
    figure.savefig(path)
    return f"The plot is in {path}."
