"""What a run leaves behind, as a notebook shows it: its course, and what each party sent."""

from __future__ import annotations

from typing import Any

from colonnade.notebooks.cells import curve, table

_MOST = 14  # rows of a table: the first and the last evaluations of more


class Course(list[dict[str, Any]]):
    """The evaluations of a training, in their order: a list of records."""

    def _repr_html_(self) -> str:
        names = ("epoch", "rounds", "time", "loss", "metric", "validation_loss", "validation_metric", "bytes")
        named = {str(record["metric_name"]) for record in self if record.get("metric_name")}
        known = [name for name in names if any(name in record for record in self)]
        shown = list(self) if len(self) <= _MOST else [*self[: _MOST // 2], {}, *self[-_MOST // 2 :]]
        metric = named.pop() if len(named) == 1 else "metric"
        heads = [name.replace("_", " ").replace("metric", metric) for name in known]
        rows = [[_written(record.get(name), record) for name in known] for record in shown]
        losses = [record["loss"] for record in self if "loss" in record]
        return table(heads, rows, words=0, foot="" if rows else "no evaluation") + curve(losses, "loss")


class ByParty(dict[str, Any]):
    """What each party sent in a run: {party: Traffic}."""

    def _repr_html_(self) -> str:
        rows = [(name, f"{one.messages:,}", f"{one.bytes:,}", f"{one.rounds:,}") for name, one in self.items()]
        return table(("party", "messages", "bytes", "rounds"), rows)


def traffic_html(traffic: Any) -> str:
    """Return what one party sent, by the step that it was sent for, the most bytes first."""
    steps = sorted(traffic.by_step.items(), key=lambda one: -one[1][1])
    rows = [(step, f"{count:,}", f"{size:,}") for step, (count, size) in steps]
    return table(("step", "messages", "bytes"), rows, foot=f"{traffic.bytes:,} bytes in {traffic.rounds:,} rounds")


def _written(value: Any, record: dict[str, Any]) -> str:
    if not record:
        return "…"
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}"
