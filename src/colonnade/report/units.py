"""What one step of a prepared column is in the party's own data, so that a coefficient can be read."""

from __future__ import annotations

from colonnade.report.markup import figure_of
from colonnade.tables.category_steps import OneHot
from colonnade.tables.learned import Column, LearnedPreparation
from colonnade.tables.steps import Clip, Impute, Log1p, Scale, Standardise
from colonnade.tables.woe import Woe


def units(learned: LearnedPreparation, width: int) -> list[str]:
    """Return words for each prepared column, as many as there are columns."""
    found = [unit for column in learned.columns for unit in _units(column)]
    if learned.sparse is not None:
        scales = learned.sparse.scales
        found = [figure_of(float(one), 4) for one in scales.prod(axis=0)] if scales.size else []
    return found if len(found) == width else ["1"] * width


def _units(column: Column) -> list[str]:
    outputs = column.outputs()
    if isinstance(column.last, OneHot):
        return ["this or not"] * len(outputs)
    if isinstance(column.last, Woe):
        return ["1 of weight of evidence"]
    return [_step(column), *(["missing or not"] * (len(outputs) - 1))]


def _step(column: Column) -> str:
    """Return how far apart two people are in a column whose prepared numbers differ by 1."""
    size, logarithm = 1.0, False
    for step in column.steps:
        if isinstance(step, Log1p):
            if size != 1.0:
                return "1, after its preparation"
            logarithm = True
        elif isinstance(step, Standardise):
            size *= step.deviation or 1.0
        elif isinstance(step, Scale):
            size *= step.by or 1.0
        elif not isinstance(step, Impute | Clip):
            return "1, after its preparation"
    return f"{figure_of(size, 4)} of log(1 + x)" if logarithm else figure_of(size, 4)
