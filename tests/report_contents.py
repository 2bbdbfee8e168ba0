"""Contents of reports for tests: a party's view of a model of two classes, of several, or of numbers."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from colonnade.report import folds
from colonnade.report.contents import (
    ColumnLine,
    Folds,
    JudgedPeople,
    LedgerLines,
    OwnCoefficient,
    ReportContents,
)

SCRIPT = "<script>alert('x')</script>"
VOID = {"meta", "br", "link", "img", "input"}  # elements of HTML that have no end


def people_of(kind, rows=2000, seed=0, who="held out"):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(rows)
    if kind == "binary":
        y = (rng.random(rows) < 1 / (1 + np.exp(1.5 - z))).astype(int)
        return JudgedPeople(who, y, 1 / (1 + np.exp(1.5 - z)), 1 / (1 + np.exp(1.5 - z - rng.standard_normal(rows))))
    if kind == "classes":
        y, score = rng.integers(0, 3, rows), rng.dirichlet(np.ones(3), rows)
        score[np.arange(rows), y] += 0.5
        return JudgedPeople(who, y, score / score.sum(axis=1, keepdims=True), rng.dirichlet(np.ones(3), rows))
    if kind == "count":
        return JudgedPeople(who, rng.poisson(np.exp(z / 2)).astype(float), np.exp(z / 2), np.ones(rows))
    return JudgedPeople(who, z + rng.standard_normal(rows), z, 0.5 * z)


def folds_of(values=(1.0, 0.1, 0.01), best=1, count=5):
    """A search over l2, whose scores are those of a leader; the last candidate has one that could not be worked out."""
    scores = 0.7 + 0.05 * np.random.default_rng(3).standard_normal((len(values), count))
    scores[best] += 0.1
    scores[-1, 0] = np.nan if len(values) > 1 else scores[-1, 0]
    tried = [
        folds.candidate([("l2", str(one)), ("penalty", SCRIPT)], row) for one, row in zip(values, scores, strict=True)
    ]
    return Folds(count, "roc_auc", best, tried, "bank", 2000)


def contents_of(kind="binary", rows=2000, **changes):
    """A whole report, with names that would be markup if they were not escaped."""
    history = [
        {
            "epoch": k, "rounds": 3 * k, "loss": 0.4 + 0.3 / (k + 1), "metric": 0.8 - 0.2 / (k + 1),
            "validation_loss": 0.42 + 0.3 / (k + 1), "validation_metric": 0.79 - 0.2 / (k + 1), "messages": k,
            "bytes": k,
        }
        for k in range(12)
    ]  # fmt: skip
    own = [OwnCoefficient(SCRIPT, 0.7, "12.1", 0.1, 7.0, 2.6e-12, 0.5, 0.9), OwnCoefficient("age", -0.2, "8.3")]
    columns = [
        ColumnLine(SCRIPT, 0.02, (0.0, 1.0, 2.0, 3.0, 4.0)),
        ColumnLine("job", 0.1, (), (("<b>", 0.6),)),
    ]
    classes = {"binary": ("paid", SCRIPT), "classes": ("north", SCRIPT, "east & west")}.get(kind, ())
    whole = ReportContents(
        party="bank & <i>sons</i>", job=SCRIPT, model="LogisticRegression", kind=kind, probability=kind == "binary",
        classes=classes, facts=[("version", "3fa9"), ("trained", "<u>today</u>")], history=history, metric="AUC",
        people=[people_of(kind, rows)], folds=folds_of(), alone_words="bank alone has 2 columns.", coefficients=own,
        columns=columns,
        shown={"your columns": ["shop <could> work it out"], "your labels": []}, disclosed=["who is in common"],
        ledger=LedgerLines(46, 1, "All of them are as they were written.", [("shop", "signal", 4, 12345)]),
    )  # fmt: skip
    return replace(whole, **changes)


class Strict(HTMLParser):
    """Reads a page and refuses what a browser would have to guess: tags left open, ids or attributes twice."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.texts, self.attributes = [], [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, attrs)
        self.attributes += [(tag, name, value) for name, value in attrs]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag not in VOID
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.texts.append(data)

    @property
    def text(self):
        return " ".join(self.texts)

    def count(self, tag):
        return self.tags.count(tag)
