"""The figures of a model of two classes: ROC, KS, gain, lift, calibration, bins of the score, confusion matrix."""

from __future__ import annotations

import numpy as np

from colonnade.objective.ranking import Ranking, auc_difference, auc_interval, ranking, wilson, worth
from colonnade.objective.score_bins import Bin, Confusion, brier, calibration_error, confusion, score_bins
from colonnade.report.contents import JudgedPeople, ReportContents
from colonnade.report.markup import Page, badge, behind, between, card, figure_of, fixed, grid, matrix, table, tiles
from colonnade.report.svg import Plot, part_of, percent, thinned

_DECILES = np.linspace(0.1, 1.0, 10)
_BARS = 30  # of the distribution of scores
_UNIT = (0.0, 1.0)


def two_classes(page: Page, of: ReportContents, people: JudgedPeople) -> str:
    """Return all figures of these people as HTML."""
    found = ranking(people.y, people.score, people.weights)
    other = None if people.alone is None else ranking(people.y, people.alone, people.weights)
    bins = score_bins(people.y, people.score, people.weights)
    about = badge(people.kind, people.rows)
    cards = [
        _roc(page, about, people, found, other),
        _ks(page, about, of, found),
        _gain(page, about, of, found, other),
        _lift(page, about, of, found),
        _calibration(page, about, of, people, bins) if of.probability else "",
        _distribution(page, about, of, people),
        _bins(about, of, bins),
        _confusion(about, of, people, found),
    ]
    return _tiles(of, people, found, bins) + grid(*cards)


def _tiles(of: ReportContents, people: JudgedPeople, found: Ranking, bins: list[Bin]) -> str:
    area = auc_interval(people.y, people.score, people.weights)
    pairs = [
        (fixed(area.value, 3), f"AUC ({between(area)}), {people.kind}"),
        (fixed(found.ks[0], 3), f"KS, {people.kind}"),
        (fixed(2 * area.value - 1, 3), f"Gini, {people.kind}"),
        (fixed(float(found.lift([0.1])[0]), 2), f"lift of the first tenth, {people.kind}"),
    ]
    if people.alone is not None:
        more = auc_difference(people.y, people.score, people.alone, people.weights).by
        pairs.insert(1, (f"{more.value:+.3f}", f"AUC gained over {of.party} alone ({between(more)}), {people.kind}"))
    if of.probability:
        score = brier(people.y, people.score, people.weights)
        pairs.append((fixed(score, 4), f"Brier score, {people.kind}"))
        pairs.append((part_of(calibration_error(bins)), f"mean calibration error, {people.kind}"))
    pairs.append(
        (part_of(float(np.average(people.y, weights=people.weights))), f"share of {of.positive}, {people.kind}")
    )
    return tiles(pairs)


def _roc(page: Page, about: str, people: JudgedPeople, found: Ranking, other: Ranking | None) -> str:
    area = auc_interval(people.y, people.score, people.weights)
    words = f"AUC {fixed(area.value)}, 95 % interval {between(area, 4)} (DeLong)."
    plot = Plot(
        "ROC curve", words, _UNIT, _UNIT, x_label="false positives", y_label="true positives", x_text=percent,
        y_text=percent,
    )  # fmt: skip
    plot.guide(0, 0, 1, 1, "by chance")
    if other is not None:
        plot.line(np.r_[0, other.false], np.r_[0, other.found], "s2", f"alone, AUC {fixed(other.auc, 3)}")
    plot.line(np.r_[0, found.false], np.r_[0, found.found], "s1", f"together, AUC {fixed(area.value, 3)}")
    at = np.linspace(0.0, 1.0, 11)
    shares = np.interp(at, np.r_[0, found.false], np.r_[0, found.found])
    rows = [(part_of(x), part_of(y)) for x, y in zip(at, shares, strict=True)]
    return page.figure(
        plot, about, behind("as a table", table(("false positives", "true positives"), rows, caption="ROC curve"))
    )


def _ks(page: Page, about: str, of: ReportContents, found: Ranking) -> str:
    distance, at = found.ks
    words = f"The two classes are {fixed(distance)} apart at most, from the score {figure_of(at)} on."
    ends = (float(found.levels[-1]), float(found.levels[0]))
    plot = Plot(
        "Kolmogorov–Smirnov", words, ends, _UNIT, x_label="score", y_label="people with at least this score",
        y_text=percent,
    )  # fmt: skip
    place = int(np.flatnonzero(found.levels == at)[0])
    plot.guide(at, float(found.false[place]), at, float(found.found[place]), f"KS {fixed(distance, 3)}")
    plot.line(*thinned(found.levels, found.found), "s1", of.positive)
    plot.line(*thinned(found.levels, found.false), "s2", of.negative)
    picked = np.unique(np.searchsorted(found.people, np.linspace(0.1, 1.0, 10) - 1e-12).clip(0, len(found.levels) - 1))
    rows = [
        (figure_of(found.levels[k]), part_of(found.found[k]), part_of(found.false[k]),
         fixed(float(found.found[k] - found.false[k]), 3))
        for k in picked
    ]  # fmt: skip
    header = ("score at least", of.positive, of.negative, "apart")
    return page.figure(plot, about, behind("as a table", table(header, rows, caption="shares by score")))


def _gain(page: Page, about: str, of: ReportContents, found: Ranking, other: Ranking | None) -> str:
    words = f"Which share of all {of.positive} is among the people with the highest scores."
    plot = Plot(
        "Cumulative gain", words, _UNIT, _UNIT, x_label="people, highest scores first", y_label="found so far",
        x_text=percent, y_text=percent,
    )  # fmt: skip
    plot.guide(0, 0, 1, 1, "by chance")
    if other is not None:
        plot.line(np.r_[0, other.people], np.r_[0, other.found], "s2", "alone")
    plot.line(np.r_[0, found.people], np.r_[0, found.found], "s1", "together")
    rows = [(part_of(part), part_of(float(found.gain(part)))) for part in _DECILES]
    return page.figure(plot, about, behind("as a table", table(("first", "found"), rows, caption="cumulative gain")))


def _lift(page: Page, about: str, of: ReportContents, found: Ranking) -> str:
    gains = np.r_[0.0, found.gain(_DECILES)]
    each, total = np.diff(gains) * 10, found.lift(_DECILES)
    words = f"How many times as many {of.positive} each tenth of the people holds as all do on average."
    plot = Plot(
        "Lift by tenths", words, (0.4, 10.6), (0, 1.08 * max(1.0, float(each.max()))), x_label="tenth, highest first",
        y_label="lift",
    )  # fmt: skip
    for number, value in enumerate(each, 1):
        plot.bar(number - 0.38, number + 0.38, 0, float(value), "s1 see", f"tenth {number}: {value:.2f}")
    plot.line(np.arange(1, 11), total, "s2", "up to here")
    plot.guide(0.4, 1, 10.6, 1, "by chance")
    plot.legend("this tenth", "s1")
    rows = [(str(k + 1), fixed(float(each[k]), 2), fixed(float(total[k]), 2)) for k in range(10)]
    return page.figure(plot, about, behind("as a table", table(("tenth", "lift", "up to here"), rows, caption="lift")))


def _calibration(page: Page, about: str, of: ReportContents, people: JudgedPeople, bins: list[Bin]) -> str:
    most = min(1.0, 1.08 * max(max(one.predicted, one.observed.high) for one in bins))
    least = max(0.0, min(min(one.predicted, one.observed.low) for one in bins) - 0.03 * most)
    words = (
        f"What was predicted against what came, in tenths of the people with Wilson's 95 % intervals; on the line, "
        f"{of.positive} came as often as predicted."
    )
    plot = Plot(
        "Calibration", words, (least, most), (least, most), x_label="predicted", y_label="observed", x_text=percent,
        y_text=percent,
    )  # fmt: skip
    plot.guide(least, least, most, most, "calibrated")
    for one in bins:
        plot.whisker(one.predicted, one.observed.low, one.observed.high, "s1")
    plot.line([one.predicted for one in bins], [one.observed.value for one in bins], "s1", "together")
    for one in bins:
        hint = f"predicted {part_of(one.predicted)}, observed {part_of(one.observed.value)}, {one.rows:,} people"
        plot.point(one.predicted, one.observed.value, "s1", hint)
    if people.alone is not None:
        alone = score_bins(people.y, people.alone, people.weights)
        shown = [one for one in alone if least <= one.predicted <= most and one.observed.value <= most]
        plot.line([one.predicted for one in shown], [one.observed.value for one in shown], "s2", "alone")
    return page.figure(plot, about)


def _distribution(page: Page, about: str, of: ReportContents, people: JudgedPeople) -> str:
    ends = (float(people.score.min()), float(people.score.max()))
    edges = np.linspace(*(ends if ends[1] > ends[0] else (ends[0] - 0.5, ends[0] + 0.5)), _BARS + 1)
    shares = []
    for one in (1, 0):
        own = people.y == one
        counted = np.histogram(
            people.score[own], edges, weights=None if people.weights is None else people.weights[own]
        )
        shares.append(counted[0] / max(float(counted[0].sum()), 1e-300))
    words = "Which share of each class has which score; the less the two overlap, the better."
    plot = Plot(
        "Distribution of the score", words, (float(edges[0]), float(edges[-1])),
        (0, 1.08 * float(max(share.max() for share in shares))), x_label="score", y_label="share of the class",
        y_text=percent,
    )  # fmt: skip
    for share, kind in zip(shares, ("s1 see", "s2 see"), strict=True):
        for k in np.flatnonzero(share):
            plot.bar(float(edges[k]), float(edges[k + 1]), 0, float(share[k]), kind)
    plot.legend(of.positive, "s1")
    plot.legend(of.negative, "s2")
    return page.figure(plot, about)


def _bins(about: str, of: ReportContents, bins: list[Bin]) -> str:
    header = ["score from", "people", "predicted", "observed", "95 % interval"]
    rows = []
    for one in reversed(bins):
        told = part_of(one.predicted) if of.probability else figure_of(one.predicted)
        observed = one.observed
        ends = f"{part_of(observed.low)} to {part_of(observed.high)}"
        rows.append((figure_of(one.low), f"{one.rows:,}", told, part_of(observed.value), ends))
    words = (
        f"Tenths of the people by their score, the highest first, and how many of them are {of.positive}, with "
        f"Wilson's intervals."
    )
    return card("Bins of the score", about, words, table(header, rows, caption="bins of the score"), wide=True)


def _confusion(about: str, of: ReportContents, people: JudgedPeople, found: Ranking) -> str:
    one = confusion(people.y, people.score, of.threshold, people.weights)
    cells_of = [[one.true_positive, one.false_negative], [one.false_positive, one.true_negative]]
    body = matrix(cells_of, [of.positive, of.negative])
    other = confusion(people.y, people.score, found.ks[1], people.weights)
    columns = [_at_threshold(people, each) for each in (one, other)]
    names = ("score", "precision", "recall", "specificity", "accuracy", "F1")
    rows = list(zip(names, *columns, strict=True))
    header = ("figure, 95 % interval", "at this threshold", "where KS is largest")
    why = of.threshold_words or "the usual threshold"
    words = f"From the score {figure_of(of.threshold)} on, people are taken for {of.positive}; {why}."
    return card(
        "Who is taken for whom", about, words, body, table(header, rows, caption="figures at two thresholds"), wide=True
    )


def _at_threshold(people: JudgedPeople, cells: Confusion) -> list[str]:
    """Return the threshold, the shares that follow from it with Wilson's intervals, and F1."""
    w = np.ones(people.rows) if people.weights is None else people.weights
    taken, ones = people.score >= cells.threshold, people.y == 1
    shares = ((cells.precision, w[taken]), (cells.recall, w[ones]), (cells.specificity, w[~ones]), (cells.accuracy, w))
    texts = []
    for value, of in shares:
        each = wilson(value, worth(of))
        texts.append(f"{part_of(value)} ({part_of(each.low)} to {part_of(each.high)})" if np.isfinite(value) else "–")
    return [figure_of(cells.threshold), *texts, fixed(cells.f1, 3)]
