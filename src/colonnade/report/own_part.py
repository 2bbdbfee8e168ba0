"""What a party sees of its own: its coefficients with their units and p values, and how its columns are distributed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from colonnade.report.contents import ColumnLine, OwnCoefficient, ReportContents
from colonnade.report.markup import (
    IN_SAMPLE,
    Page,
    badge,
    bullets,
    card,
    figure_of,
    fixed,
    grid,
    p_value,
    table,
    words,
)
from colonnade.report.svg import WIDTH, Plot, part_of
from colonnade.tables.dates import written_day

_DRAWN = 20  # coefficients in a chart
_QUANTILES = ("1 %", "10 %", "median", "90 %", "99 %")
_INTERCEPT = "(intercept)"


def coefficients(page: Page, of: ReportContents) -> str:
    """Return the party's own part of the model as HTML."""
    found = of.coefficients
    if not found:
        if of.table is None:
            return ""
        body = table(of.table.header, of.table.rows, caption=of.table.title) if of.table.rows else ""
        return grid(card(of.table.title, badge(IN_SAMPLE), "", body, wide=True))
    known = any(math.isfinite(one.p) for one in found)
    return grid(_chart(page, found, known=known), _coefficients(of, found, known=known))


def _chart(page: Page, found: Sequence[OwnCoefficient], *, known: bool) -> str:
    own = [one for one in found if one.name != _INTERCEPT and math.isfinite(one.coefficient)]
    own.sort(key=lambda one: -abs(one.z if known and math.isfinite(one.z) else one.coefficient))
    shown = own[:_DRAWN][::-1]
    if not shown:
        return ""
    ends = [0.0, *(one.coefficient for one in shown)]
    ends += [end for one in shown for end in (one.low, one.high) if math.isfinite(end)]
    rest = f" The {len(shown)} largest of {len(own):,}." if len(own) > len(shown) else ""
    text = (
        "Effect of one step of each column on the score, with 95 % intervals."
        if known
        else "Effect of one step of each column on the score."
    ) + rest
    plot = Plot(
        "Own coefficients", text, (min(ends), max(ends)), (-0.6, len(shown) - 0.4), x_label="coefficient",
        height=58 + 19 * len(shown), left=WIDTH // 3,
    )  # fmt: skip
    plot.rows([one.name for one in shown])
    plot.guide(0, -0.6, 0, len(shown) - 0.4)
    for place, one in enumerate(shown):
        if math.isfinite(one.low):
            plot.whisker(place, one.low, one.high, "s1", across=True)
        else:
            plot.bar(0, one.coefficient, place - 0.28, place + 0.28, "s1 see")
        plot.point(one.coefficient, place, "s1", f"{one.name}: {figure_of(one.coefficient, 4)}")
    return page.figure(plot, badge(IN_SAMPLE))


def _coefficients(of: ReportContents, found: Sequence[OwnCoefficient], *, known: bool) -> str:
    odds = of.kind == "binary" and of.probability
    header = ["column", "coefficient", *(["odds ratio"] if odds else []), "one step is"]
    header += ["standard error", "z", "p", "95 % interval"] if known else []
    rows = []
    for one in found:
        row = [one.name, fixed(one.coefficient), *([figure_of(_exp(one.coefficient))] if odds else []), one.unit or "1"]
        if known:
            ends = f"{fixed(one.low)} to {fixed(one.high)}" if math.isfinite(one.low) else "–"
            row += [fixed(one.standard_error), fixed(one.z, 2), p_value(one.p), ends]
        rows.append(row)
    text = "Each party sees the coefficients of its own columns and nobody else's."
    if not known:
        text += " The job asks for no statistics, so there are no p values (statistics = true under [run] of job.toml)."
    return card(
        "Own coefficients, one by one",
        badge(IN_SAMPLE),
        text,
        table(header, rows, caption="own coefficients"),
        rest=True,
    )


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


# -- columns -----------------------------------------------------------------------------------------------------------


def profiles(of: ReportContents) -> str:
    """Return how the party's own columns were distributed in training, as HTML."""
    if not of.columns:
        return ""
    numbers = [one for one in of.columns if one.quantiles]
    texts = [one for one in of.columns if not one.quantiles]
    cards = []
    if numbers:
        rows = [(one.name, part_of(one.missing), *_quantiles(one)) for one in numbers]
        header = ("column", "missing", *_QUANTILES)
        cards.append(
            card(
                "Columns of numbers",
                badge(IN_SAMPLE),
                "Missing values, and below which number how many people are, before columns are prepared.",
                table(header, rows, caption="columns of numbers"),
                wide=True,
            )
        )
    if texts:
        rows = [(one.name, part_of(one.missing), _levels(one)) for one in texts]
        cards.append(
            card(
                "Columns of text",
                badge(IN_SAMPLE),
                "Missing values and the most frequent categories.",
                table(("column", "missing", "categories"), rows, caption="columns of text", long=2),
                wide=True,
            )
        )
    return grid(*cards)


def _quantiles(one: ColumnLine) -> list[str]:
    return [written_day(q) if one.days and math.isfinite(q) else figure_of(q, 4) for q in one.quantiles]


def _levels(one: ColumnLine) -> str:
    return ", ".join(f"{name} {part_of(share)}" for name, share in one.levels) or "–"


# -- what left ---------------------------------------------------------------------------------------------------------


def disclosures(of: ReportContents) -> str:
    """Return what the others could work out about this party, as HTML."""
    found = []
    for about, sentences in of.shown.items():
        found.append(
            card(about[:1].upper() + about[1:], "", "", bullets(sentences) if sentences else words("Nothing."))
        )
    if of.disclosed:
        found.append(card("What the job says that it discloses", "", "", bullets(of.disclosed)))
    return grid(*found)


def ledger(of: ReportContents) -> str:
    """Return what has left the party, as its ledger has it, as HTML."""
    if of.ledger is None:
        return words("There is no ledger, as nothing has left this party.")
    rows = [(kind, to, f"{count:,}", f"{size:,}") for to, kind, count, size in of.ledger.kinds]
    total = (sum(count for *_, count, _ in of.ledger.kinds), sum(size for *_, size in of.ledger.kinds))
    rows.append(("all", "", f"{total[0]:,}", f"{total[1]:,}"))
    if not of.ledger.lines:
        return words(of.ledger.verified, "bad")
    text = f"{of.ledger.lines:,} lines of {of.ledger.runs:,} runs. {of.ledger.verified}"
    header = ("kind of message", "to", "messages", "bytes")
    return grid(
        card("Everything that has left this party", "", text, table(header, rows, caption="the ledger"), wide=True)
    )
