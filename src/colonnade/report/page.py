"""The page as a whole: one HTML file that needs nothing else, with the sections that its reader may see."""

from __future__ import annotations

from html import escape

from colonnade.errors import LabelError
from colonnade.report.contents import JudgedPeople, ReportContents, rows_that_count
from colonnade.report.folds import folds
from colonnade.report.markup import HELD_OUT, Page, words
from colonnade.report.measured import HEADING, measured
from colonnade.report.other_labels import numbers, several_classes
from colonnade.report.own_part import coefficients, disclosures, ledger, profiles
from colonnade.report.style import style_sheet
from colonnade.report.training_course import course, together
from colonnade.report.two_classes import two_classes

_FIGURES = {"binary": two_classes, "classes": several_classes}


def page_of(of: ReportContents) -> str:
    """Return the report of one party as a whole HTML page."""
    page = Page()
    if of.holds_labels:
        for people in map(rows_that_count, of.people):
            key = people.kind.replace(" ", "-")
            said = words(_IN_FOLDS, "quiet") if of.folds is not None and people.kind == HELD_OUT else ""
            page.section(f"quality-{key}", f"How good is it: people {people.kind}", said + _quality(page, of, people))
        if not of.people:
            page.section("quality", "How good is it", words(_NOBODY if of.folds is None else _FOLDED))
        page.section("folds", "Cross-validation", folds(page, of))
        compared = "".join(together(of, people) for people in map(rows_that_count, of.people))
        page.section("together", "We alone, together", compared or words(of.alone_words))
    else:
        page.section("folds", "Cross-validation", folds(page, of))
    page.section("course", "How training went", course(page, of))
    page.section("part", f"{of.party}'s part of the model", coefficients(page, of))
    page.section("columns", f"{of.party}'s columns", profiles(of))
    page.section("disclosed", f"What the others could work out about {of.party}", disclosures(of))
    page.section("measured", HEADING, measured(of))
    if of.shown or of.ledger is not None:  # between organisations
        page.section("ledger", "The ledger", ledger(of))
    return _whole(of, page)


_NOBODY = (
    "No people were held out, so nobody knows how good the model is for people whom it has not seen. Hold some out: "
    "part = 0.2 under [validation] of job.toml, or give people of a later period with --later."
)
_IN_FOLDS = (
    "Each of these people was scored by the model of the fold that held them out: models with the same options, each "
    "trained on the other folds. The figures are about all of them together, so that an AUC differs a little from the "
    "mean over folds; the model of this version was trained on everybody."
)
_FOLDED = (
    "Curves, calibration and a confusion matrix are drawn for people on whom this very model was not trained: give "
    "some of a later period with --later, or hold people out once instead, with part = 0.2 under [validation] of "
    "job.toml."
)


def _quality(page: Page, of: ReportContents, people: JudgedPeople) -> str:
    try:
        return _FIGURES.get(of.kind, numbers)(page, of, people)
    except LabelError as error:  # people of one class alone
        return words(f"There are no figures about the {people.rows:,} people {people.kind}: {error}.")


def _whole(of: ReportContents, page: Page) -> str:
    title = escape(f"{of.job}: the report of {of.party}")
    facts = " · ".join(f"{name} {value}" for name, value in of.facts)
    links = "".join(f'<a href="#{key}">{escape(heading)}</a>' for key, heading, _ in page.sections)
    body = "".join(
        f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{escape(heading)}</h2>{content}</section>'
        for key, heading, content in page.sections
    )
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<style>{style_sheet()}</style></head><body>"
        f'<header class="top"><h1>{title}</h1><p class="lead">{escape(of.model)} · {escape(facts)}</p>'
        f'<nav aria-label="sections">{links}</nav></header><main>{body}</main>'
        f"<footer><p>This page is for {escape(of.party)} alone: it shows what this party has seen and nothing that is "
        f"anybody else's. Figures marked in-sample are about the people on whom the model was trained and look better "
        f"than it is; judge it by those held out or out of time.</p></footer></body></html>\n"
    )
