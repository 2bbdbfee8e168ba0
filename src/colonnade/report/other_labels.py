"""The figures of a model of several classes, and of one of numbers: a confusion matrix, or residuals and tenths."""

from __future__ import annotations

import numpy as np

from colonnade.objective import metrics
from colonnade.objective.losses import Floats
from colonnade.objective.ranking import ranking, wilson, worth
from colonnade.objective.score_bins import Bin, class_table, score_bins
from colonnade.report.contents import JudgedPeople, ReportContents
from colonnade.report.markup import Page, badge, card, figure_of, fixed, grid, matrix, table, tiles
from colonnade.report.svg import Plot, part_of, percent

_DOTS = 1500  # of people in a chart of residuals
_BARS = 40


def several_classes(page: Page, of: ReportContents, people: JudgedPeople) -> str:
    """Return the figures of a model of several classes as HTML: who is taken for whom, class by class."""
    count, names, about = people.score.shape[1], list(of.classes), badge(people.kind, people.rows)
    told, w = people.score.argmax(axis=1), np.ones(people.rows) if people.weights is None else people.weights
    cells = class_table(people.y, told, count, people.weights)
    right = wilson(metrics.accuracy(people.y, told, people.weights), worth(w))
    pairs = [(part_of(right.value), f"accuracy ({part_of(right.low)} to {part_of(right.high)}), {people.kind}")]
    if people.alone is not None:
        alone = metrics.accuracy(people.y, people.alone.argmax(axis=1), people.weights)
        pairs.append((part_of(alone), f"accuracy of the label holder alone, {people.kind}"))
    rows = []
    for k, name in enumerate(names):
        own = people.y == k
        area = (
            fixed(ranking(own.astype(int), people.score[:, k], people.weights).auc, 3)
            if 0 < own.sum() < len(own)
            else "–"
        )
        recall, precision = wilson(cells[k, k] / max(cells[k].sum(), 1e-300), worth(w[own])), cells[:, k].sum()
        rows.append(
            (name, f"{int(own.sum()):,}", f"{part_of(recall.value)} ({part_of(recall.low)} to {part_of(recall.high)})",
             part_of(cells[k, k] / precision) if precision else "–", area)
        )  # fmt: skip
    header = ("class", "people", "recall, 95 % interval", "precision", "AUC against the rest")
    each = card(
        "Class by class", about, "How well each class is found.", table(header, rows, caption="classes"), wide=True
    )
    whom = card(
        "Who is taken for whom",
        about,
        "Rows are what people are, columns what they are taken for.",
        matrix(cells.tolist(), names),
        wide=True,
    )
    return tiles(pairs) + grid(whom, each, _surest(page, about, people, told))


def _surest(page: Page, about: str, people: JudgedPeople, told: np.ndarray) -> str:
    """Draw whether the model is right as often as it says."""
    bins = score_bins((told == people.y).astype(int), people.score.max(axis=1), people.weights)
    plot = _against(
        "Calibration", "How sure the model was of the class it names, against how often it was right, in tenths of the "
        "people with Wilson's 95 % intervals.", bins, "sure", "right", percent,
    )  # fmt: skip
    return page.figure(plot, about)


def numbers(page: Page, of: ReportContents, people: JudgedPeople) -> str:
    """Return the figures of a model of numbers as HTML: how far off it is, for whom, and on which side."""
    off, about = people.y - people.score, badge(people.kind, people.rows)
    bins = score_bins(people.y, people.score, people.weights, shares=False)
    mean_off = float(np.average(off, weights=people.weights))
    squared = float(np.average(off * off, weights=people.weights))
    pairs = [
        (fixed(metrics.r2(people.y, people.score, people.weights), 3), f"R², {people.kind}"),
        (figure_of(squared**0.5), f"root of the mean squared error, {people.kind}"),
        (figure_of(float(np.average(np.abs(off), weights=people.weights))), f"mean absolute error, {people.kind}"),
        (figure_of(mean_off), f"mean residual, {people.kind}"),
    ]
    if of.kind == "count":
        pairs.insert(0, (fixed(metrics.d2_poisson(people.y, people.score, people.weights), 3), f"D², {people.kind}"))
    plot = _against(
        "Predicted and observed", "Means of tenths of the people by their prediction, with 95 % intervals.", bins,
        "predicted", "observed", figure_of,
    )  # fmt: skip
    if people.alone is not None:
        alone = score_bins(people.y, people.alone, people.weights, shares=False)
        plot.line([one.predicted for one in alone], [one.observed.value for one in alone], "s2", "alone")
    return tiles(pairs) + grid(
        page.figure(plot, about), _residuals(page, about, people, off), _spread(page, about, off), _tenths(about, bins)
    )


def _residuals(page: Page, about: str, people: JudgedPeople, off: Floats) -> str:
    at = np.linspace(0, len(off) - 1, min(_DOTS, len(off))).astype(int)
    some = "" if len(at) == len(off) else f" {len(at):,} of the people are drawn."
    low, high = (float(one) for one in np.quantile(off, [0.002, 0.998]))
    ends = (min(low, 0.0), max(high, 0.0))
    plot = Plot(
        "Residuals", f"What came less what was predicted; a pattern here is something the model has not learnt.{some}",
        (float(people.score.min()), float(people.score.max())), ends, x_label="predicted", y_label="residual",
    )  # fmt: skip
    inside = at[(off[at] >= ends[0]) & (off[at] <= ends[1])]
    plot.cloud(people.score[inside], off[inside], "s1")
    plot.guide(float(people.score.min()), 0, float(people.score.max()), 0)
    return page.figure(plot, about)


def _spread(page: Page, about: str, off: Floats) -> str:
    low, high = (float(one) for one in np.quantile(off, [0.002, 0.998]))
    counts, edges = np.histogram(off, np.linspace(low, high if high > low else low + 1.0, _BARS + 1))
    shares = counts / max(len(off), 1)
    plot = Plot(
        "Distribution of residuals", "How often the model is how far off; 0 is in the dashed line.",
        (float(edges[0]), float(edges[-1])), (0, 1.08 * float(shares.max())), x_label="residual",
        y_label="share of people", y_text=percent,
    )  # fmt: skip
    for k in np.flatnonzero(counts):
        plot.bar(float(edges[k]), float(edges[k + 1]), 0, float(shares[k]), "s1 see")
    if edges[0] <= 0 <= edges[-1]:
        plot.guide(0, 0, 0, 1.08 * float(shares.max()))
    return page.figure(plot, about)


def _tenths(about: str, bins: list[Bin]) -> str:
    rows = [
        (f"{figure_of(one.low)} to {figure_of(one.high)}", f"{one.rows:,}", figure_of(one.predicted, 4),
         figure_of(one.observed.value, 4), f"{figure_of(one.observed.low, 4)} to {figure_of(one.observed.high, 4)}")
        for one in reversed(bins)
    ]  # fmt: skip
    header = ("predicted", "people", "mean predicted", "mean observed", "95 % interval")
    words = "Tenths of the people by what was predicted of them, the highest first."
    return card("Tenths of the prediction", about, words, table(header, rows, caption="tenths"), wide=True)


def _against(title: str, words: str, bins: list[Bin], x: str, y: str, text: object) -> Plot:
    """Draw what was predicted against what came, bin by bin."""
    values = [v for one in bins for v in (one.predicted, one.observed.value, one.observed.low, one.observed.high)]
    fine = [value for value in values if np.isfinite(value)] or [0.0]
    ends = (min(fine), max(fine))
    plot = Plot(title, words, ends, ends, x_label=x, y_label=y, x_text=text, y_text=text)
    plot.guide(ends[0], ends[0], ends[1], ends[1], "as predicted")
    for one in bins:
        if np.isfinite(one.observed.low):
            plot.whisker(one.predicted, one.observed.low, one.observed.high, "s1")
        plot.point(one.predicted, one.observed.value, "s1", f"{one.rows:,} people")
    plot.line([one.predicted for one in bins], [one.observed.value for one in bins], "s1", "together")
    return plot
