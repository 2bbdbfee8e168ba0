"""How good each candidate was on the folds: a chart with every fold, and a table; who won, and by how much."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from colonnade.report.contents import Folds, ReportContents, TriedOptions
from colonnade.report.markup import HELD_OUT, Page, badge, card, fixed, grid, table, tiles, words
from colonnade.report.svg import Plot

_MOST = 24  # candidates in the chart; the table has all of them
_ROW = 22  # height of a candidate in the chart


def folds(page: Page, of: ReportContents) -> str:
    """Return what cross-validation found as HTML; a party without the scores knows who won, and nothing else."""
    found = of.folds
    if found is None:
        return ""
    best = found.candidates[found.best]
    if not best.scores:
        if len(found.candidates) == 1:
            done = f"{found.leader} has scored the model on {found.count} folds"
            return words(f"{done}, and tells nobody how good it is.")
        won = f"{best.name} is the best of {len(found.candidates)} candidates on {found.count} folds"
        return words(f"{won}, as {found.leader} has found, who tells nobody how good each of them is.")
    about = badge(HELD_OUT, found.rows)
    digits = _digits(found)
    cards = grid(_chart(page, about, found, digits), _table(about, found, digits))
    return _tiles(found, best, digits) + cards + words(_HOW, "quiet")


_HOW = (
    "Everybody is held out in one fold and trained on in the others, with a preparation that each fold has learned for "
    "itself. Larger is better, so errors and losses are negative. The best of several candidates looks a little better "
    "than it is, as it was chosen by these very figures; the spread over folds says how sure they are. The model of "
    "this version was then trained on all of these people."
)


def _digits(found: Folds) -> int:
    """Return how many digits behind the point all figures have, so that they can be compared: four that count."""
    sizes = [abs(score) for one in found.candidates for score in one.scores if score and math.isfinite(score)]
    return max(0, 3 - math.floor(math.log10(max(sizes)))) if sizes else 4


def _tiles(found: Folds, best: TriedOptions, digits: int) -> str:
    about = f"{found.scoring} over {found.count} folds, {HELD_OUT}"
    pairs = [(f"{fixed(best.mean, digits)} ± {fixed(best.spread, digits)}", about)]
    if len(found.candidates) > 1:
        pairs.append((best.name, f"the best of {len(found.candidates)} candidates"))
    return tiles(pairs)


def _ranked(found: Folds) -> list[int]:
    """Return the numbers of the candidates, the chosen one first and then by their means."""
    mean = [one.mean if math.isfinite(one.mean) else -math.inf for one in found.candidates]
    return sorted(range(len(mean)), key=lambda number: (number != found.best, -mean[number], number))


def _chart(page: Page, about: str, found: Folds, digits: int) -> str:
    order = _ranked(found)[:_MOST]
    scores = [score for number in order for score in found.candidates[number].scores if math.isfinite(score)]
    if not scores:
        return ""
    room = 0.06 * (max(scores) - min(scores))
    names = [found.candidates[number].name for number in order]
    plot = Plot(
        f"{found.scoring} of each fold",
        f"A dot for every fold, a bar for the mean and one spread around it; {names[0]} is the one that was taken.",
        (min(scores) - room, max(scores) + room),
        (len(order) - 0.5, -0.5),
        x_label=found.scoring,
        height=60 + _ROW * max(3, len(order)),
        left=min(150, 20 + 6 * max(map(len, names))),
    )  # fmt: skip
    plot.rows(names)
    for place, number in enumerate(order):
        one = found.candidates[number]
        kind = "s1" if number == found.best else "s2"
        if math.isfinite(one.mean):
            plot.whisker(place, one.mean - one.spread, one.mean + one.spread, kind, across=True)
            ends = (one.mean - 0.1 * room, one.mean + 0.1 * room)
            plot.bar(*ends, place - 0.3, place + 0.3, kind, fixed(one.mean, digits))
        for fold, score in enumerate(one.scores, 1):
            if math.isfinite(score):
                plot.point(score, place, kind, f"fold {fold}: {fixed(score, digits)}", radius=2.4)
    return page.figure(plot, about)


def _table(about: str, found: Folds, digits: int) -> str:
    header = ("candidate", "mean", "spread", *(f"fold {number + 1}" for number in range(found.count)))
    rows = []
    for number in _ranked(found):
        one = found.candidates[number]
        name = f"{one.name} (taken)" if number == found.best and len(found.candidates) > 1 else one.name
        rows.append((name, *(fixed(figure, digits) for figure in (one.mean, one.spread, *one.scores))))
    text = "The mean over folds and its spread, a standard deviation, beside every fold."
    return card("Every candidate on every fold", about, text, table(header, rows, caption="folds"), wide=True)


def candidate(options: Sequence[tuple[str, str]], scores: Sequence[float]) -> TriedOptions:
    """Return a candidate as a report has it; without scores, where this party does not know them."""
    name = ", ".join(f"{key} = {value}" for key, value in options) or "the model"
    known = np.array(scores, dtype=np.float64)
    if not len(known):
        return TriedOptions(name)
    return TriedOptions(name, tuple(known.tolist()), float(known.mean()), float(known.std()))
