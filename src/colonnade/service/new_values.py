"""Values of categories that a model never saw: who brings some is told how many, and what becomes of them."""

from __future__ import annotations

from colonnade.binning.prepared import bins_in
from colonnade.tables.category_steps import OneHot
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.table import Table
from colonnade.tables.woe import Woe

_SHOWN = 3


def new_values(prepared: LearnedPreparation, table: Table) -> list[str]:
    """Return a sentence for each column that has values in these rows which no training row had."""
    steps = {column.name: column.last for column in prepared.columns}
    found = []
    for name, (rows, values) in prepared.unseen(table).items():
        step = steps[name]
        become = "others"
        if isinstance(step, OneHot) and not step.other:
            left = step.left_out
            become = "none of its categories" if left is None else f"{step.levels()[left]!r}, the reference"
        if isinstance(step, Woe) and step.other_bin < 0:
            become = "no evidence"
        shown = ", ".join(map(repr, values[:_SHOWN])) + (", ..." if len(values) > _SHOWN else "")
        count = f"{len(values):,} {'value' if len(values) == 1 else 'values'}"
        found.append(
            f"{name}: {rows:,} of {table.rows:,} people have {count} that training never saw ({shown}) and are taken "
            f"for {become}"
        )
    for name, bins in bins_in(prepared, table).items():
        new = prepared.unseen(table).get(name, (0, []))[0] if prepared.weighed[name].other_bin < 0 else 0
        if rows := int((bins < 0).sum()) - new:
            found.append(
                f"{name}: {rows:,} of {table.rows:,} people have no value, as nobody in training, and are taken for no "
                f"evidence"
            )
    return found
