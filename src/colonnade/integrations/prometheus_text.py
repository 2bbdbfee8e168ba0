"""Prometheus' text format, as `/metrics` answers with it and as node_exporter's textfile collector reads it.

The format is a page long: a line of help, one of the type, and a line for each sample. The client library would bring a
registry for the whole process, in which the runs of several parties would meet; these lines need none.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


@dataclass(frozen=True)
class Sample:
    """One number of a metric: what its name ends with, its labels, and its value."""

    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
    ending: str = ""


@dataclass(frozen=True)
class Metric:
    """A metric and its samples; `kind` is counter, gauge or histogram."""

    name: str
    kind: str
    words: str
    samples: tuple[Sample, ...]

    def lines(self) -> list[str]:
        """Return the lines of the metric."""
        head = [f"# HELP {self.name} {self.words.translate(_HELP_ESCAPES)}", f"# TYPE {self.name} {self.kind}"]
        return [*head, *(f"{self.name}{one.ending}{_labels(one.labels)} {_number(one.value)}" for one in self.samples)]


class Histogram:
    """How many values there were up to each of some bounds, and their sum; whoever uses it sees to turns."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts, self._sum = [0] * (len(self.bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect.bisect_left(self.bounds, value)] += 1
        self._sum += value

    def samples(self) -> tuple[Sample, ...]:
        """Return the counts up to each bound, the sum, and how many values there were."""
        ends = [*map(_number, self.bounds), "+Inf"]
        counts = list(accumulate(self._counts))
        buckets = (Sample(count, {"le": end}, "_bucket") for end, count in zip(ends, counts, strict=True))
        return (*buckets, Sample(self._sum, ending="_sum"), Sample(counts[-1], ending="_count"))


def metrics_text(metrics: Iterable[Metric]) -> str:
    """Return metrics in the text format; one without samples is left out."""
    return "".join(f"{line}\n" for metric in metrics if metric.samples for line in metric.lines())


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    """Return a number as Prometheus reads it: a whole one without a fraction."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
