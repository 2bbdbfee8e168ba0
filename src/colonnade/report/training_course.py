"""How training went, and what it gained: losses by rounds, and the label holder alone against all parties together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from colonnade.objective import metrics
from colonnade.objective.losses import Floats
from colonnade.objective.ranking import Difference, auc_difference, auc_interval, difference_of, variance_of_mean
from colonnade.report.contents import JudgedPeople, ReportContents
from colonnade.report.markup import (
    HELD_OUT,
    IN_SAMPLE,
    Page,
    badge,
    behind,
    between,
    card,
    fixed,
    grid,
    p_value,
    table,
    words,
)
from colonnade.report.svg import Plot

_SHOWN = 60  # evaluations in a table


def course(page: Page, of: ReportContents) -> str:
    """Return the section on rounds and losses as HTML."""
    known = [record for record in of.history if _number(record, "loss") is not None]
    apart = [record for record in of.history if _number(record, "validation_loss") is not None]
    if len(known) < 2:
        return _no_course(of, apart)
    both = len(apart) > 1
    return grid(
        _chart(
            page, known, ("loss", "validation_loss"), "Loss", "What training minimises, with the penalty.", both=both
        ),
        _chart(
            page, known, ("metric", "validation_metric"), of.metric, f"The {of.metric} at every evaluation.", both=both
        ),
        _evaluations(of, known),
    )


def _no_course(of: ReportContents, apart: Sequence[Mapping[str, Any]]) -> str:
    said = (
        "Training showed nobody a loss, so there is no course of it to draw."
        if of.holds_labels
        else "Losses and metrics are told to the first label holder alone; this party hears when to stop."
    )
    found = [words(said)]
    if apart:
        last, about = apart[-1], badge(HELD_OUT)
        told = [("loss", fixed(float(last["validation_loss"]), 5))]
        if _number(last, "validation_metric") is not None:
            told.append((of.metric, fixed(float(last["validation_metric"]))))
        found.append(
            grid(card("After training", about, "", table(("figure", "value"), told, caption="after training")))
        )
    rounds = [record for record in of.history if "bytes" in record]
    if rounds:
        sent = (
            f"{len(rounds):,} evaluations; {rounds[-1]['messages']:,} messages and {rounds[-1]['bytes']:,} bytes sent."
        )
        found.append(words(sent, "quiet"))
    return "".join(found)


def _number(record: Mapping[str, Any], key: str) -> float | None:
    value = record.get(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _chart(
    page: Page, known: list[Mapping[str, Any]], keys: tuple[str, str], title: str, text: str, *, both: bool
) -> str:
    lines = [([r["rounds"] for r in known], [_number(r, key) for r in known]) for key in (keys if both else keys[:1])]
    values = [value for _, line in lines for value in line if value is not None]
    if not values:
        return ""
    ends = (min(values), max(values))
    room = 0.05 * (ends[1] - ends[0])
    rounds = lines[0][0]
    plot = Plot(title, text, (0, max(*rounds, 1)), (ends[0] - room, ends[1] + room), x_label="rounds", y_label=title)
    for (x, y), kind, name in zip(lines, ("s1", "s2"), (IN_SAMPLE, HELD_OUT), strict=False):
        plot.line(x, np.array([math.nan if one is None else one for one in y]), kind, name)
    about = badge(IN_SAMPLE) + (" " + badge(HELD_OUT) if both else "")
    return page.figure(plot, about)


def _evaluations(of: ReportContents, known: list[Mapping[str, Any]]) -> str:
    step = max(1, -(-len(known) // _SHOWN))
    shown = [*known[:-1:step], known[-1]]
    keys = ("loss", "metric", "validation_loss", "validation_metric")
    there = [key for key in keys if any(_number(record, key) is not None for record in known)]
    names = {"loss": f"loss, {IN_SAMPLE}", "metric": f"{of.metric}, {IN_SAMPLE}"}
    names |= {"validation_loss": f"loss, {HELD_OUT}", "validation_metric": f"{of.metric}, {HELD_OUT}"}
    rows = [
        (f"{record['rounds']:,}", str(record["epoch"]), *(fixed(_number(record, key) or math.nan, 5) for key in there))
        for record in shown
    ]
    header = ("round", "epoch", *(names[key] for key in there))
    about = badge(IN_SAMPLE) + (" " + badge(HELD_OUT) if len(there) > 2 else "")
    text = f"{len(known):,} evaluations" + ("" if step == 1 else f", every {step}th of them")
    return card("Evaluations", about, text, behind("as a table", table(header, rows, caption="evaluations")))


# -- we alone, together ------------------------------------------------------------------------------------------------


def together(of: ReportContents, people: JudgedPeople) -> str:
    """Return what the partners' columns add for these people, as HTML."""
    if people.alone is None:
        return ""
    about = badge(people.kind, people.rows)
    name, alone, both, gained = _compared(of, people)
    sure = "more than chance explains" if gained.p < 0.05 else "no more than chance could explain"
    better = "better" if gained.by.value > 0 else "worse"
    text = f"Together the model is {better} by {fixed(abs(gained.by.value))} of {name}, {sure} (p {p_value(gained.p)})."
    rows = [
        ("alone", fixed(alone[0]), alone[1]),
        ("together", fixed(both[0]), both[1]),
        ("difference", fixed(gained.by.value), between(gained.by, 4)),
    ]
    return card(
        "We alone, together",
        about,
        text,
        table(("", name, "95 % interval"), rows, caption="alone and together"),
        words(of.alone_words, "quiet"),
        wide=True,
    )


def _compared(of: ReportContents, people: JudgedPeople) -> tuple[str, tuple[float, str], tuple[float, str], Difference]:
    """Return what is compared, the figure of both models with its interval, and the difference on the same people."""
    y, w = people.y, people.weights
    alone = np.asarray(people.alone)
    if of.kind == "binary":
        one, other = auc_interval(y, alone, w), auc_interval(y, people.score, w)
        return (
            "AUC",
            (one.value, between(one, 4)),
            (other.value, between(other, 4)),
            auc_difference(y, people.score, alone, w),
        )
    if of.kind == "classes":
        right = [(scores.argmax(axis=1) == y).astype(float) for scores in (alone, people.score)]
        values = [float(np.average(one, weights=w)) for one in right]
        return "accuracy", (values[0], "–"), (values[1], "–"), _paired(right[1] - right[0], w)
    total = float(np.average((y - np.average(y, weights=w)) ** 2, weights=w)) or 1.0
    gained = _paired(((y - alone) ** 2 - (y - people.score) ** 2) / total, w)
    explained = [metrics.r2(y, scores, w) for scores in (alone, people.score)]
    return "R²", (explained[0], "–"), (explained[1], "–"), gained


def _paired(each: Floats, weights: Floats | None) -> Difference:
    """Return the mean of a difference that everybody has, with its interval."""
    w = np.ones(len(each)) if weights is None else weights
    return difference_of(float(np.average(each, weights=w)), math.sqrt(variance_of_mean(each, w)))
