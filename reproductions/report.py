"""Tables on the screen and in files, plots, and a bar for long jobs. rich and matplotlib wait until they are needed."""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from colonnade.errors import ColonnadeWarning, OptionError

Job = TypeVar("Job")
Answer = TypeVar("Answer")

# Columns of a table in a text file, whatever the screen has.
_WIDTH = 110


@dataclass(frozen=True)
class Curve:
    """What a run showed at its evaluations: a metric (of the test rows, if there were any) and the objective."""

    rounds: list[int] = field(default_factory=list)
    metric: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    epochs: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, history: Sequence[Mapping[str, Any]]) -> Curve:
        """Build it from a model's `history_`."""
        metric = [record.get("validation_metric", record["metric"]) for record in history]
        rounds, loss, times, epochs = (
            [record[key] for record in history] for key in ("rounds", "loss", "time", "epoch")
        )
        return cls(rounds, metric, loss, times, epochs)

    def after(self, epochs: float) -> float:
        """The objective after so many epochs; NaN if the run did not come so far."""
        return next((loss for epoch, loss in zip(self.epochs, self.loss, strict=True) if epoch >= epochs), math.nan)


def rounds_to(curve: Curve, target: float) -> float:
    """Exchanges until the metric was first at the target; infinite if it never was."""
    return next((float(r) for r, value in zip(curve.rounds, curve.metric, strict=True) if value >= target), math.inf)


def make_folder(out: Path) -> None:
    """The folder that tables and plots go to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"the folder {out} cannot be made ({error}); pass --out with a folder to write to") from error


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
        # folded where the screen is narrow: a number that is cut would be another one
        drawn.add_column(Text(name), justify="right" if index else "left", no_wrap=not index, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    return drawn


def _one_blas_thread() -> AbstractContextManager[Any]:
    """Jobs run side by side: BLAS threads of each would only wait for a core. scikit-learn brings what can say so."""
    try:
        import_module("scipy.linalg")  # brings a BLAS of its own, and only what is loaded can be limited
        limits = import_module("threadpoolctl").threadpool_limits
    except ImportError:
        return nullcontext()
    limited: AbstractContextManager[Any] = limits(1)
    return limited


def work_off(jobs: Sequence[Job], work: Callable[[Job], Answer], title: str, threads: int = 2) -> dict[Job, Answer]:
    """`work` on every job, a few at a time, under a bar on stderr. The kernels release the GIL: threads do.

    Our own warnings are silent meanwhile: runs that diverge, or blocks that stay frozen, are what the tables show.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    answers: dict[Job, Answer] = {}
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    with warnings.catch_warnings(), _one_blas_thread(), progress as bar:
        warnings.simplefilter("ignore", ColonnadeWarning)
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


Line: TypeAlias = tuple[str, Sequence[float], Sequence[float]]  # name, x, y


@dataclass
class Panel:
    """One plot: lines, and maybe a dashed level."""

    title: str
    label: str
    lines: list[Line]
    level: tuple[str, float] | None = None
    limits: tuple[float, float] | None = None
    logarithmic: bool = False
    across: str = "rounds (exchanges)"
    pairs: bool = False  # two lines after another belong together: one colour
    spreads: Sequence[Sequence[float]] = ()  # of each line, how far its band reaches above and below it

    def draw(self, axes: Any) -> None:
        """Draw it where matplotlib says."""
        for index, (name, x, y) in enumerate(self.lines):
            # dashes for every other line: curves that lie upon each other stay visible
            style = "--" if index % 2 else "-"
            axes.plot(
                x, y, style, color=f"C{index // 2 if self.pairs else index}", label=name, linewidth=1.4, alpha=0.9
            )
            if self.spreads:
                bottom, top = np.array(y) - self.spreads[index], np.array(y) + self.spreads[index]
                axes.fill_between(x, bottom, top, color=f"C{index // 2 if self.pairs else index}", alpha=0.15)
        if self.level is not None:
            axes.axhline(self.level[1], color="black", linestyle=":", linewidth=1, label=self.level[0])
        if self.logarithmic:
            axes.set_yscale("log")
        if self.limits is not None:
            axes.set_ylim(*self.limits)
        axes.set(title=self.title, xlabel=self.across, ylabel=self.label)
        axes.grid(alpha=0.25)
        axes.legend(fontsize=8)


@dataclass
class Bars:
    """One plot of bars that are each made of the same parts."""

    title: str
    label: str
    names: Sequence[str]
    parts: Mapping[str, Sequence[float]]

    def draw(self, axes: Any) -> None:
        """Draw it where matplotlib says."""
        places = range(len(self.names))
        below = [0.0] * len(self.names)
        for name, heights in self.parts.items():
            axes.bar(places, heights, bottom=below, label=name, width=0.7)
            below = [low + height for low, height in zip(below, heights, strict=True)]
        axes.set_xticks(list(places), self.names, fontsize=7, rotation=30, ha="right")
        axes.set(title=self.title, ylabel=self.label)
        axes.grid(alpha=0.25, axis="y")
        axes.legend(fontsize=8)


def plot(panels: Sequence[Panel | Bars], path: Path, wide: int | None = None) -> str:
    """Panels in a PNG, `wide` of them side by side; returns the sentence that says where it is, or why it is not."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "matplotlib is not installed, so there is no plot; pip install 'colonnade[demo]' brings it."
    wide = min(wide or len(panels), len(panels))
    high = -(-len(panels) // wide)
    figure = Figure(figsize=(5.4 * wide, 4.4 * high), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, panel in zip(figure.subplots(high, wide, squeeze=False).flat, panels, strict=False):
        panel.draw(axes)
    for axes in figure.axes[len(panels) :]:
        axes.set_axis_off()
    figure.savefig(path)
    return f"The plot is in {path}."
