"""The report of a model that was trained from Python, where all parties are in one hand."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import private_files
from colonnade.data import labels
from colonnade.data.party import Party
from colonnade.errors import ColonnadeWarning, OptionError
from colonnade.estimators.base import Estimator
from colonnade.families import family
from colonnade.inference.statistics import Statistics
from colonnade.objective import metrics
from colonnade.objective.calibration import decided_by
from colonnade.objective.losses import Floats, Loss
from colonnade.report.contents import JudgedPeople, OwnCoefficient, ReportContents
from colonnade.report.gather import metric_words
from colonnade.report.held_out_file import BEFORE, lowest_taken, shown_scores
from colonnade.report.markup import HELD_OUT, OUT_OF_TIME
from colonnade.report.page import page_of

_PEOPLE = (HELD_OUT, OUT_OF_TIME)


def write_report(
    model: Estimator,
    *parties: Party,
    out: str | Path,
    train: Sequence[Party] = (),
    people: str = HELD_OUT,
    statistics: Statistics | None = None,
) -> Path:
    """Write a report on a trained model as one HTML page, in the view of the party that holds the labels.

    Parameters
    ----------
    model : Estimator
        A fitted model of one label holder.
    *parties : Party
        People on whom the model was not trained, at all parties, with labels at the label holder.
    out : str or Path
        Where the page goes; only its owner may read it.
    train : sequence of Party
        The people on whom it was trained; the label holder's own columns of them make the model "alone", by which the
        report says what the others' columns add. Without them it has no such comparison.
    people : {"held out", "out of time"}
        What the page calls these people.
    statistics : Statistics, optional
        What `model.statistics` returned: standard errors and p values of the label holder's coefficients.

    Returns
    -------
    Path
        Where the page is.
    """
    if people not in _PEOPLE:
        raise OptionError(f"people must be one of {', '.join(map(repr, _PEOPLE))}, got {people!r}")
    if not hasattr(model, "holders_") or len(model.holders_) != 1:
        raise OptionError("a report needs a fitted model of one label holder; call fit first, and give y to one party")
    me = model.holders_[0]
    own = next((party for party in parties if party.name == me), None)
    if own is None or own.y is None or own.labelled is None or not own.labelled.all():
        raise OptionError(f"a report needs people with their labels; give party {me!r} of other rows, with y")
    loss = model._minimised()
    z = np.asarray(model.decision_function(*parties), dtype=np.float64)
    score = shown_scores(loss, z)
    alone = _alone(model, me, loss, own, train)
    y = labels.encode(own.y, model.classes_, loss)
    y = (y > 0).astype(np.int64) if loss.kind == "binary" else y
    names = [record["metric_name"] for record in model.history_ if "metric_name" in record]
    words = f"{me} alone is a {type(model).__name__} of its own columns, with the same people and the same options."
    rows = f"{train[0].rows:,} people" if train else ""
    facts = [("of", " and ".join(model.parties_)), ("on", rows), ("protection", model.protection_)]
    limit, why = model.threshold_ if loss.kind == "binary" else 0.0, model._threshold.why if model._threshold else ""
    if model.calibration_ is not None:
        limit = lowest_taken(score, decided_by(z, loss, model._threshold, model.calibration_))
        why = f"{why}; {BEFORE}" if why else BEFORE
    contents = ReportContents(
        party=me, job="a model from Python", model=type(model).__name__, kind=loss.kind,
        probability=loss.name == "logistic", classes=tuple(str(one) for one in np.asarray(model.classes_).tolist()),
        facts=[(name, value) for name, value in facts if value], history=model.history_,
        metric=metric_words(names[-1] if names else metrics.metric_name(loss)),
        people=[JudgedPeople(people, y, score, alone, own.sample_weight)],
        threshold=limit, threshold_words=why,
        alone_words=words if train else "Give the people of the training (train=) to see what the others' columns add.",
        coefficients=_coefficients(model, me, statistics),
    )  # fmt: skip
    path = Path(out)
    private_files.write(path, page_of(contents))
    return path


def _alone(model: Any, me: str, loss: Loss, own: Party, train: Sequence[Party]) -> Floats | None:
    mine = next((party for party in train if party.name == me), None)
    if mine is None or family(model._family).takes_own:  # another network would be another model
        return None
    usual = type(model)().get_params(deep=False)  # how a model of several parties is trained means nothing to one
    shared = {name: usual[name] for name in ("sum", "topology", "algorithm") if name in usual}
    options = {**model.get_params(deep=False), **shared, "protection": "plain", "verbose": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)
        alone = type(model)(**options).fit(mine)
        return shown_scores(loss, np.asarray(alone.decision_function(own), dtype=np.float64))


def _coefficients(model: Any, me: str, statistics: Statistics | None) -> list[OwnCoefficient]:
    """Return the label holder's coefficients of a linear model of one score, with statistics where they are given."""
    values = getattr(model, "coef_", None)
    if values is None or np.ndim(values[me]) != 1:
        return []
    if statistics is not None:
        return [OwnCoefficient(row.name, row.coefficient, "1", *row[2:]) for row in statistics.coefficients[me]]
    names = model.columns_[me]
    return [OwnCoefficient(str(name), float(one), "1") for name, one in zip(names, np.asarray(values[me]), strict=True)]
