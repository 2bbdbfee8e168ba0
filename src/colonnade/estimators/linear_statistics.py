"""The statistics of a linear model: the checks before any work starts, the run, and its results put together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colonnade.algorithms import FedSGD
from colonnade.data.party import Party
from colonnade.errors import DataError, LabelError, OptionError, whole_number
from colonnade.families import protection
from colonnade.families.checks import all_labels, warn_shown, weighted
from colonnade.families.training import rows_of
from colonnade.inference import statistics_leaks
from colonnade.inference.program import SEALED, check_sizes, infer_linear
from colonnade.inference.statistics import Fit, Statistics, check_level, put_together, warn_far
from colonnade.leaks import CURVATURES, Setting, listed
from colonnade.objective import penalties
from colonnade.objective.metrics import LIKELIHOODS
from colonnade.progress import Line
from colonnade.runtimes.net import Runtime
from colonnade.runtimes.simulation import Simulation

if TYPE_CHECKING:
    from colonnade.estimators.linear_model import LinearModel

_WHY_NOT = {
    "softmax": "its scores are only determined up to a common number, and its curvature is a matrix for every row",
    "smooth_quantile": "its loss is no likelihood, and standard errors of quantiles need the density of the labels",
    "smooth_hinge": "its loss is no likelihood, so that its curvature says nothing of how sure a coefficient is",
}


def statistics_of(
    model: LinearModel, parties: tuple[Party, ...], on: Runtime | None, rows: int, level: float
) -> Statistics:
    """Check what `LinearModel.statistics` was given, run its program at all parties, and put the results together."""
    _check_model(model)
    ordered = model._check_rows(parties, on, "statistics")
    check_level(level)
    whole_number("rows", rows, 1)
    if model.rows_ is not None and model.rows_ != ordered[0].rows:
        raise DataError(
            f"the model was trained on {model.rows_} rows, the parties have {ordered[0].rows} here; give those that it "
            f"was trained on"
        )
    holders = tuple(party for party in ordered if party.name in model.holders_)
    for party in holders:
        if not party.active:
            raise LabelError(f"party {party.name!r} holds labels in training and none here; give its y")
    all_labels(holders)
    most = min(int(rows), ordered[0].rows)
    check_sizes(sum(party.features for party in ordered) + model.fit_intercept, most)
    _warn_of_curvatures(model)
    loss = model._minimised()
    penalty = (model.penalty, float(model.l2))
    counts = weighted(holders)
    job = (model.loss, penalty, model.holders_, model.sum_, model.topology, SEALED, most, counts)
    programs = {}
    for party in ordered:
        X, y, labelled = rows_of(party, model.classes_, loss)
        known = (y, labelled, party.sample_weight) if party in holders else (None, None, None)
        programs[party.name] = (infer_linear, (job, (X, model._states[party.name], *known)))
    line = Line("statistics", None, model.verbose)

    def observe(party: str, seconds: float, value: Any) -> None:
        if party == model.holders_[0] and value[0] == "statistics":
            line.show(value[1], f"portion {value[1]} of {value[2]}", ("statistics", value[2]))

    try:
        outcomes = (on or Simulation()).run(programs, observe)
    finally:
        line.close()
    warn_far(Fit(*outcomes[model.holders_[0]].value[2]), model.holders_[0])
    return put_together(
        type(model).__name__,
        {party.name: model.columns_[party.name] for party in ordered},
        model._states,
        {name: outcome.value for name, outcome in outcomes.items()},
        model.holders_[0],
        most,
        level,
        {name: outcome.traffic for name, outcome in outcomes.items()},
        {name: learnt.levels for name, learnt in model.preparations_.items()},
    )


def _check_model(model: LinearModel) -> None:
    """Refuse models that have no statistics, and say why."""
    word = model.loss.split(" ")[0]
    if word not in LIKELIHOODS:
        raise OptionError(
            f"{type(model).__name__} has no statistics: {_WHY_NOT[word]}; LogisticRegression, RidgeRegression and "
            f"regressions of counts and amounts have them"
        )
    model._check_fitted()
    if model.protection_ == protection.SEALED:
        raise OptionError(
            "a sealed model has no statistics: they would show what sealed training hides; train it with "
            "protection='masked' where that may be seen"
        )
    if model._family != "linear":
        raise OptionError("a model that FDML trained has no statistics: it is a mean of models; train it with VFB2")
    if model.penalise_intercept:
        raise OptionError("statistics need an intercept without a penalty; train the model without penalise_intercept")
    if hiding := [one.name for one in model.defences if one.hides_labels]:
        raise OptionError(
            f"a model that was trained with the defence {hiding[0]!r} has no statistics: they are made of true labels, "
            f"which it hides; train it without"
        )
    if model.class_weight is not None:
        raise OptionError(
            "a model with class_weight has no statistics: its classes count otherwise than they are there, so nothing "
            "says how sure its coefficients are; train it without"
        )
    if model.penalty == "nonconvex":
        raise OptionError(f"statistics need penalty='l2', the model has {model.penalty!r}, which is no convex one")
    if penalties.penalty(model.penalty, model.l2, model.l1).name != "l2":
        raise OptionError(
            "statistics need penalty='l2' without l1, which chooses coefficients by the same labels that their "
            "standard errors would be judged by; train a model of the chosen columns with l1=0"
        )


def _warn_of_curvatures(model: LinearModel) -> None:
    """Warn a user who trained without signals in the clear of what statistics show all the same."""
    setting = Setting(model.parties_, model.holders_, model.loss, model.sum_)
    method = FedSGD() if isinstance(model.algorithm, str) else model.algorithm  # "auto" sends signals, or encrypts them
    after = statistics_leaks(setting)
    if CURVATURES in listed((*method.leaks(setting), *after)):
        warn_shown(after)
