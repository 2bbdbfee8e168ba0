"""Values of categories that a model never saw: who brings some is told how many, and what becomes of them."""

from __future__ import annotations

from colonnade.tables.category_steps import OneHot
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.table import Table

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
        shown = ", ".join(map(repr, values[:_SHOWN])) + (", ..." if len(values) > _SHOWN else "")
        count = f"{len(values):,} {'value' if len(values) == 1 else 'values'}"
        found.append(
            f"{name}: {rows:,} of {table.rows:,} people have {count} that training never saw ({shown}) and are taken "
            f"for {become}"
        )
    return found
