"""The scikit-learn face of learning over rows: sites hold the same columns about different people."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from colonnade import losses
from colonnade.algorithms.conduct import Plan
from colonnade.algorithms.fedavg import LocalSteps
from colonnade.algorithms.horizontal import attend, serve
from colonnade.algorithms.options import whole_number
from colonnade.algorithms.site_work import METHODS, model_from_value, rows_to_value
from colonnade.algorithms.ssca import SSCA
from colonnade.blocks.torch_module import maker_name
from colonnade.blocks.whole import WholeModel, probabilities
from colonnade.checks import check_runtime
from colonnade.errors import ColonnadeWarning, DataError, LabelError, LimitNotMet, OptionError, at_least, one_of
from colonnade.estimator import Estimator
from colonnade.metrics import METRICS
from colonnade.party import Party
from colonnade.progress import History
from colonnade.runtimes.net import Outcome, Runtime
from colonnade.runtimes.simulation import Simulation
from colonnade.site import Site, check_same_columns, check_sites, common_classes
from colonnade.sums.dropout import default_threshold

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="SSCAClassifier")

SERVER, SHARED = "server", "model"
SUMS = ("auto", "pairwise", "plain")


class SSCAClassifier(Estimator):
    """A network with one hidden layer (swish, softmax), or another model, trained over sites that hold rows.

    Without a limit: minimise cost + l2 |w|^2, where the cost is the mean of -log(probability of the right class). With
    cost_limit=U: the smallest |w|^2 whose cost is at most U. With a dict: the same with a limit for the rows of each
    class, or of each named group where the sites have `groups`.

    hidden: cells of the hidden layer; 0 is softmax regression. fit_intercept: whether an input cell and a hidden cell
    are always 1 (the paper's network has none). network: a function make(features, classes) -> torch.nn.Module, at the
    top level of a module, instead of all that. algorithm: `SSCA(...)`, or one of those that it is compared with.
    classes: all classes, where not every site has rows of each. sum: "pairwise" masks every site's part, "plain" does
    not; "auto" masks from two sites on.
    """

    _unsaved: ClassVar = ("algorithm", "verbose", "network", "classes", "cost_limit")

    def __init__(
        self,
        *,
        hidden: int = 128,
        l2: float = 1e-5,
        cost_limit: float | Mapping[Any, float] | None = None,
        fit_intercept: bool = True,
        network: Any = None,
        algorithm: SSCA | LocalSteps | None = None,
        classes: Any = None,
        sum: str = "auto",  # noqa: A002
        verbose: int = 1,
    ) -> None:
        self.hidden = hidden
        self.l2 = l2
        self.cost_limit = cost_limit
        self.fit_intercept = fit_intercept
        self.network = network
        self.algorithm = algorithm
        self.classes = classes
        self.sum = sum
        self.verbose = verbose

    def _minimised(self) -> losses.Loss:
        return losses.loss("softmax")

    # -- training -----------------------------------------------------------------------------------------------

    def fit(self: Model, *sites: Site, on: Runtime | None = None, validation: list[Site] | None = None) -> Model:
        """Train on these sites, with a server that holds nothing; `on` says where all of them run.

        validation: the same sites with other rows, for the history.
        """
        check_runtime(on)
        check_sites(sites)
        method = self._check_options(len(sites))
        classes = common_classes(sites, self.classes)
        held_out = self._check_held_out(sites, validation)
        names, keys, limits = self._limits(sites, classes)
        described = self._described(sites[0].features, len(classes))
        model_from_value(described)  # a network that can't be made fails here
        masked = self.sum == "pairwise" or (self.sum == "auto" and len(sites) > 1)
        threshold = (method.threshold or default_threshold(len(sites))) if masked else 0
        order = tuple(site.name for site in sites)
        plan = Plan(order, described, method.as_value(), float(self.l2), names, limits, threshold).as_value()
        parts = [_part(site, classes, keys) for site in sites]
        others = [None if held_out is None else _part(site, classes, keys) for site in held_out or sites]
        programs: dict[str, Any] = {SERVER: (serve, (plan,))}
        for site, train, other in zip(sites, parts, others, strict=True):
            programs[site.name] = (attend, (SERVER, plan, (train, other)))
        outcomes = self._carry_out(programs, on, method, order)
        self._keep(sites, classes, keys, described, outcomes)
        return self

    def _carry_out(self, programs: Any, on: Runtime | None, method: Any, sites: tuple[str, ...]) -> dict[str, Outcome]:
        history = History(METRICS["classes"], method.rounds, self.verbose)
        try:
            outcomes = (on or Simulation()).run(programs, history.observe, sites)
        finally:
            history.close()
        self.history_ = [record for record in history.records if "loss" in record]
        self.traffic_ = {name: outcome.traffic for name, outcome in outcomes.items()}
        self.rounds_ = self.traffic_[SERVER].rounds
        return dict(outcomes)

    def _keep(self, sites: Any, classes: Array, keys: list[Any], described: Any, outcomes: dict[str, Outcome]) -> None:
        parameters, costs, slack, multipliers, penalty, met, skipped = outcomes[SERVER].value
        self.parties_, self.holders_, self.sum_, self._combines = (SHARED,), (SHARED,), self.sum, "rows"
        self.sites_ = tuple(site.name for site in sites)
        self.classes_, self.columns_ = classes, {SHARED: sites[0].columns}
        self._states, self._model = {SHARED: (parameters,)}, described
        named = keys or [None] * len(costs)
        self.costs_, self.slack_ = dict(zip(named, costs, strict=True)), dict(zip(named, slack, strict=False))
        self.multipliers_, self.penalty_ = dict(zip(named, multipliers, strict=False)), penalty
        self.skipped_ = tuple(skipped)
        lost = [name for name in self.sites_ if outcomes[name].error is not None]
        _say_missing(lost, self.skipped_, self.rounds_)
        if not met and self.cost_limit is not None:
            raise LimitNotMet(_not_met(self.cost_limit, self.costs_, self.slack_, self.rounds_))

    def _check_options(self, sites: int) -> SSCA | LocalSteps:
        whole_number("hidden", self.hidden, 0)
        at_least("l2", self.l2, 0)
        one_of("sum", self.sum, SUMS)
        method = SSCA() if self.algorithm is None else self.algorithm
        if not isinstance(method, tuple(METHODS.values())):
            raise OptionError(f"algorithm must be one of {', '.join(METHODS)}, got {method!r}")
        if self.cost_limit is not None and not isinstance(method, SSCA):
            raise OptionError(f"cost_limit needs algorithm=SSCA(...), got {method!r}; no other keeps a limit")
        if method.threshold is not None and not 2 <= method.threshold <= sites:
            raise OptionError(
                f"threshold must be between 2 and the {sites} sites, got {method.threshold}: the sum of one site is "
                f"its own part"
            )
        if self.sum == "pairwise" and sites < 2:
            raise OptionError("sum='pairwise' needs at least two sites: the sum of one site is its own part")
        return method

    def _check_held_out(self, sites: Any, validation: Any) -> list[Site] | None:
        if validation is None:
            return None
        if not isinstance(validation, (list, tuple)):
            raise DataError(f"validation needs a list of sites, got {type(validation).__name__}")
        check_sites(validation)
        given, names = {site.name: site for site in validation}, [site.name for site in sites]
        if set(given) != set(names):
            raise DataError(f"validation needs each of the sites {names} once, got {list(given)}")
        check_same_columns(sites[0].name, sites[0].columns, sites[0].named, validation[0])
        return [given[name] for name in names]

    def _limits(self, sites: Any, classes: Array) -> tuple[tuple[str, ...], list[Any], tuple[float, ...]]:
        """(their names in sentences, the keys as given, the limits); one nameless function where there are none."""
        given = self.cost_limit
        if given is None:
            return ("",), [], ()
        if not isinstance(given, Mapping):
            _check_limit("cost_limit", given)
            return ("",), [], (float(given),)
        if not given:
            raise OptionError("cost_limit is an empty dict; give a limit for at least one class or group")
        grouped = [site for site in sites if site.groups is not None]
        if grouped and len(grouped) < len(sites):
            without = next(site.name for site in sites if site.groups is None)
            raise DataError(f"site {without!r} has no groups, others have; give groups to every site, or to none")
        known = np.unique(np.concatenate([site.groups for site in sites])) if grouped else classes
        what = "group" if grouped else "class"
        for key, limit in given.items():
            if key not in known.tolist():
                few = ", ".join(map(repr, known[:8].tolist()))
                raise OptionError(f"cost_limit names the {what} {key!r}, which no site has; {what} names are {few}")
            _check_limit(f"cost_limit[{key!r}]", limit)
        return tuple(f"{what} {key!r}" for key in given), list(given), tuple(float(v) for v in given.values())

    def _described(self, features: int, classes: int) -> Any:
        if self.network is not None:
            return ("torch", features, maker_name(self.network), classes, False)
        return ("layers", features, int(self.hidden), classes, bool(self.fit_intercept))

    # -- what was learnt ----------------------------------------------------------------------------------------

    @property
    def parameters_(self) -> Array:
        """All parameters, one flat array; every site has them."""
        self._check_fitted()
        found: Array = self._states[SHARED][0]
        return found

    # -- use ----------------------------------------------------------------------------------------------------

    def decision_function(self, X: Any, on: Runtime | None = None) -> Array:  # type: ignore[override]
        """Scores of these rows, one column per class: of a table or of a Site. The model is whole, nobody is asked."""
        self._check_fitted()
        rows = X if isinstance(X, Site) else _Table(X)
        columns = self.columns_[SHARED]
        made_up = all(name == f"x{j}" for j, name in enumerate(columns))
        check_same_columns("training", columns, not made_up, rows)
        return np.asarray(self._whole().scores(self.parameters_, rows.X), dtype=np.float64)

    def predict(self, X: Any, on: Runtime | None = None) -> Array:  # type: ignore[override]
        """Predicted labels."""
        best = self.decision_function(X).argmax(axis=1)
        return np.asarray(np.take(self.classes_, best))

    def predict_proba(self, X: Any, on: Runtime | None = None) -> Array:
        """Probability of each class, one column per class in the order of `classes_`."""
        return probabilities(self.decision_function(X))

    def score(self, X: Any, y: Any = None, on: Runtime | None = None) -> float:  # type: ignore[override]
        """Accuracy: of a table and its labels, or of a Site."""
        truth = X.y if isinstance(X, Site) else y
        if truth is None:
            raise LabelError("score needs the true labels: give a Site, or X and y")
        return float(np.mean(self.predict(X) == np.asarray(truth)))

    def _whole(self) -> WholeModel:
        return model_from_value(tuple(self._model))

    # -- keep ---------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """One file, the same for all sites."""
        if self.network is not None:
            raise OptionError("a model with network= can't be saved: its file would name code; keep parameters_")
        super().save(folder)

    def _public(self) -> dict[str, Any]:
        return {"shape": self._model, "sites": self.sites_}

    def _take_public(self, public: dict[str, Any]) -> None:
        self._model, self.sites_ = tuple(public["shape"]), tuple(public["sites"])


class _Table:
    """Rows to predict, checked as a site's are."""

    name = "the table"

    def __init__(self, X: Any) -> None:
        party = Party("table", X)
        self.X, self.columns, self.named, self.features = party.X, party.columns, party.named, party.features


def _check_limit(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OptionError(f"{name} must be a number > 0, got {value!r}")
    at_least(name, float(value), 0, strict=True)


def _part(site: Site, classes: Array, keys: list[Any]) -> Any:
    """A site's rows as its program takes them: classes and groups by number."""
    y = np.searchsorted(classes, site.y).astype(np.int64)
    known = site.groups if site.groups is not None else site.y
    groups = np.full(site.rows, -1, dtype=np.int64)
    for number, key in enumerate(keys):
        groups[known == key] = number
    return (rows_to_value(site.X), y, groups)


def _say_missing(lost: list[str], skipped: tuple[int, ...], rounds: int) -> None:
    if lost:
        warnings.warn(
            f"sites {', '.join(map(repr, lost))} died on the way; later rounds went on without them",
            ColonnadeWarning,
            stacklevel=4,
        )
    if skipped:
        some = ", ".join(map(str, skipped[:5])) + (", ..." if len(skipped) > 5 else "")
        warnings.warn(
            f"{len(skipped)} of {rounds} rounds were skipped ({some}): too few sites stayed to the end",
            ColonnadeWarning,
            stacklevel=4,
        )


def _not_met(limit: Any, costs: dict[Any, float], slack: dict[Any, float], rounds: int) -> str:
    asked = limit if isinstance(limit, Mapping) else {None: limit}
    missed = [
        f"{'the cost' if key is None else f'the cost of {key!r}'} is {cost:.4g}, the limit {asked[key]:g}"
        for key, cost in costs.items()
        if cost > asked[key] or slack.get(key, 0.0) > 0
    ]
    return (
        f"the limits could not all be met in {rounds} rounds: {'; '.join(missed)}; raise them, or give more rounds, a "
        f"larger batch or more hidden cells (the model as it is can be used)"
    )
