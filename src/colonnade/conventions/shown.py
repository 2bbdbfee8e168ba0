"""A model as a notebook shows it: its options, and once it is fitted, each party's part of the training."""

from __future__ import annotations

from html import escape
from typing import Any

from colonnade.notebooks.cells import curve, table
from colonnade.notebooks.records import Course


class NotebookMixin:
    """What a notebook shows for a model that ends a cell."""

    def _repr_html_(self) -> str:
        model: Any = self
        head = f"<div><code>{escape(repr(model))}</code></div>"
        if not hasattr(model, "_states"):
            return f"{head}<div>not fitted</div>"
        losses = [record["loss"] for record in model.history_ if "loss" in record]
        return head + table(("party", "columns", "messages", "bytes", "computing", "waiting"), _rows(model)) + (
            f"<div>{escape(_course(model))}</div>{curve(losses, 'loss')}"
        )  # fmt: skip


def _rows(model: Any) -> list[tuple[str, ...]]:
    """Return a line for each party; what a model that was loaded does not know stays empty."""
    found: list[tuple[str, ...]] = []
    for name in model.parties_:
        sent, times = model.traffic_.get(name), model.times_.get(name)
        columns = getattr(model, "columns_", {}).get(name)
        mark = " (labels)" if name in getattr(model, "holders_", ()) else ""
        found.append(
            (
                f"{name}{mark}",
                "" if columns is None else f"{len(columns):,}",
                *(("", "") if sent is None else (f"{sent.messages:,}", f"{sent.bytes:,}")),
                *(("", "") if times is None else (f"{times.computing:.3g} s", f"{times.waiting:.3g} s")),
            )
        )
    return found


def _course(model: Any) -> str:
    """Say how training was protected and how it went."""
    history: Course = model.history_
    words = [f"{model.rounds_:,} rounds"] if model.rounds_ else []
    if (protection := getattr(model, "protection_", "")) in ("sealed", "masked", "plain"):
        words.insert(0, f"protection {protection}")
    known = [record for record in history if "loss" in record]
    if known:
        words.append(f"loss {known[-1]['loss']:.6g}, {known[-1]['metric_name']} {known[-1]['metric']:.4g}")
    judged = [record for record in history if "validation_loss" in record]
    if judged:
        words.append(f"on held-out rows loss {judged[-1]['validation_loss']:.6g}")
    return ", ".join(words)
