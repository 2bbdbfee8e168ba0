"""The estimator of learning over rows, where sites hold the same columns about different people."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy.typing as npt

from colonnade.algorithms.fedavg import LocalSteps
from colonnade.algorithms.ssca import SSCA
from colonnade.data.site import Site, check_sites, common_classes, naming
from colonnade.errors import (
    ColonnadeWarning,
    DataError,
    LimitNotMet,
    OptionError,
    ProtocolError,
    at_least,
    one_of,
    whole_number,
)
from colonnade.estimators.base import Estimator
from colonnade.estimators.initial import whole_start
from colonnade.families import family
from colonnade.families.checks import warn_scales
from colonnade.families.protection import MASKED, PLAIN, check_word, masked_sum
from colonnade.families.rows import RowsFamily
from colonnade.horizontal.bringing import (
    check_held_out,
    is_masked,
    part_of,
    say_missing,
    warn_diverged,
    who_is_who,
)
from colonnade.horizontal.conduct import Result, ServerJob
from colonnade.horizontal.messages import METHODS, check_description, describe_model, model_from_value
from colonnade.horizontal.own_functions import function_names
from colonnade.horizontal.program import attend, serve
from colonnade.horizontal.row_keys import check_groups
from colonnade.horizontal.stated_problem import StatedProblem, check_problem, state_problem
from colonnade.horizontal.torch_whole import maker_name
from colonnade.horizontal.whole_classifier import SHARED, WholeClassifier
from colonnade.notebooks.records import ByParty, Course
from colonnade.objective import losses
from colonnade.objective.expressions import Constraint, Expression
from colonnade.objective.metrics import METRICS
from colonnade.progress import History
from colonnade.runtimes.net import Outcome, Runtime, check_runtime
from colonnade.runtimes.simulation import Simulation
from colonnade.sums.dropout import default_threshold

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="SSCAClassifier")

SERVER = "server"
SUMS = ("auto", "pairwise", "plain")
L2 = 1e-5  # the weight of |w|^2, where none is given


class SSCAClassifier(WholeClassifier, Estimator):  # type: ignore[misc]
    """A network with one hidden layer (swish, softmax), or another model, trained over sites that hold rows.

    Without a limit, the objective is cost + l2 |w|², where the cost is the mean of -log(probability of the right
    class). With a limit, the model is the one with the smallest |w|² whose cost is at most the limit. Any other problem
    is an `objective` and `constraints` of `colonnade.cost`, `squared_norm`, `mean_of` and `of_parameters`. Every site
    ends with the whole model, so that predictions need nobody else.

    Parameters
    ----------
    hidden : int
        How many cells the hidden layer has; 0 is softmax regression.
    l2 : float, optional
        The weight of |w|² in the objective; None is 1e-5. It is refused beside `cost_limit` and `objective`, which say
        themselves what is minimised.
    cost_limit : float or dict, optional
        The most that the cost may be: a number for all rows, or a dict with a limit for the rows of each class, or of
        each named group where the sites have `groups`. It needs the algorithm `SSCA`.
    objective : Expression, optional
        What is minimised, such as `cost() + 0.1 * cost("dark")`; None is cost() + l2 |w|². It needs the algorithm
        `SSCA`.
    constraints : Constraint or sequence of Constraint, optional
        What must hold, such as `[squared_norm() <= 50, cost("dark") - cost("light") <= 0.05]`. They need not be convex,
        and need the algorithm `SSCA`.
    fit_intercept : bool
        Whether an input cell and a hidden cell are always 1; the paper's network has no such cells.
    network : callable, optional
        A function make(features, classes) that returns a `torch.nn.Module`, at the top level of a module, in place of
        the network that `hidden` and `fit_intercept` describe. Such a model can't be saved.
    algorithm : SSCA, FedAvg, MiniBatchSGD or ParallelRestartedSGD, optional
        How the model is trained; None is `SSCA()`.
    classes : array-like, optional
        All classes, where not every site has rows of each.
    protection : {"auto", "masked", "plain"}
        How training is protected. "masked" is under the masks of `sum`, so that the server sees the answers of all
        sites as one sum; "plain" is with answers in the clear, and "auto" is what `sum` says. "sealed" is for linear
        models over columns, and refused here.
    sum : {"auto", "pairwise", "plain"}
        How the sites' answers are added up: "pairwise" masks every site's part, "plain" does not, and "auto" masks from
        two sites on.
    verbose : int
        1 shows a live line if a run takes longer than half a second; 0 is silent.

    Attributes
    ----------
    parameters_ : numpy array
        All parameters, one flat array, the same at every site.
    sites_ : tuple of str
        The names of the sites.
    classes_ : numpy array
        The classes, sorted.
    costs_, slack_, multipliers_ : dict
        {class or group: number} for each limit, {words of a constraint: number} for each of `constraints`, or {None:
        number} for all rows: the cost, or what the constraint limits, at the last evaluation (empty where too few sites
        answered), how far the limit was relaxed, and its Lagrange multiplier. Words of a constraint are those of what
        it limits, "cost()", with the limit where two are on the same: "cost() <= 0.5".
    penalty_ : float
        The price of slack at the end of the run.
    met_ : bool
        Whether all limits are kept.
    skipped_ : tuple of int
        The rounds that were skipped, because too few sites stayed to the end of them.
    history_ : list of dict
        A record for each evaluation over all rows, as in `Estimator`, with `norm`, which is |w|², `answered` and
        `skipped`, and under limits `slack` and `costs`.
    traffic_, times_, rounds_
        What the server and each site sent and did with their time, and the rounds of the server.
    parties_, holders_, columns_, sum_, protection_
        As in other estimators; the model is whole, and the one name in the first three is "model". `sum_` is the option
        `sum`, or what `protection` makes of "auto".
    """

    _unsaved: ClassVar = ("algorithm", "verbose", "network", "classes", "cost_limit", "objective", "constraints")

    def __init__(
        self,
        *,
        hidden: int = 128,
        l2: float | None = None,
        cost_limit: float | Mapping[Any, float] | None = None,
        objective: Expression | None = None,
        constraints: Constraint | Sequence[Constraint] | None = None,
        fit_intercept: bool = True,
        network: Any = None,
        algorithm: SSCA | LocalSteps | None = None,
        classes: Any = None,
        protection: str = "auto",
        sum: str = "auto",  # noqa: A002
        verbose: int = 1,
    ) -> None:
        self.hidden = hidden
        self.l2 = l2
        self.cost_limit = cost_limit
        self.objective = objective
        self.constraints = constraints
        self.fit_intercept = fit_intercept
        self.network = network
        self.algorithm = algorithm
        self.classes = classes
        self.protection = protection
        self.sum = sum
        self.verbose = verbose

    def _minimised(self) -> losses.Loss:
        return losses.loss("softmax")

    # -- training -----------------------------------------------------------------------------------------------

    def fit(
        self: Model,
        *sites: Site,
        on: Runtime | None = None,
        validation: list[Site] | None = None,
        initial: Any = None,
    ) -> Model:
        """Train on these sites, with a server that holds nothing.

        If the limits are not met, a `LimitNotMet` error says which; the model can be used all the same.

        Parameters
        ----------
        *sites : Site
            The same columns at each of them, about different people. No site may be named "server".
        on : Runtime, optional
            Where the server and the sites run: `Simulation(...)`, `Processes(...)`, or a runtime of `colonnade.remote`.
            None is `Simulation()`: all of them in this process, under a virtual clock.
        validation : list of Site, optional
            The same sites with other rows, for the history.
        initial : SSCAClassifier or array, optional
            Where training starts: a fitted model of the same network and classes, or all parameters as `parameters_`
            has them. None draws them from the algorithm's seed.

        Returns
        -------
        SSCAClassifier
            The model itself.
        """
        check_runtime(on)
        check_sites(sites)
        if any(site.name == SERVER for site in sites):
            raise DataError(f"a site is named {SERVER!r}, which is the server's own name; give it another")
        method = self.check_options(len(sites))
        classes = common_classes(sites, self.classes)
        held_out = check_held_out(sites, validation, classes)
        warn_scales(sites)
        stated = self.statement(any(site.groups is not None for site in sites))
        check_groups(stated.rows, sites, classes)
        order = tuple(site.name for site in sites)
        maker = None if self.network is None else maker_name(self.network)  # an argument of every program
        of_rows, of_parameters = function_names(stated.row_functions), function_names(stated.parameter_functions)
        plan = self.plan(method, order, sites[0].features, len(classes), stated)
        first = whole_start(initial, plan.model, model_from_value(plan.model, self.network, "this model"), classes)
        parts = [part_of(site, classes, stated.rows) for site in sites]
        others = [None if held_out is None else part_of(site, classes, stated.rows) for site in held_out or sites]
        programs: dict[str, Any] = {SERVER: (serve, (plan.as_value(), maker, of_parameters, first))}
        for site, train, other in zip(sites, parts, others, strict=True):
            mine = (train, other, maker, *who_is_who(site), of_rows, site.min_rows)
            programs[site.name] = (attend, (SERVER, plan.as_value(), mine))
        outcomes = self._carry_out(programs, on, method, order)
        say_missing([name for name in order if outcomes[name].error is not None])
        if stated.usual:  # otherwise the cost of some rows may well rise
            warn_diverged(self.history_)
        ended = Result(*outcomes[SERVER].value)
        self.take_result(plan, classes, stated, naming(sites).columns, ended)
        if stated.limits and not ended.met:
            raise LimitNotMet(stated.sentence(ended.costs, ended.slack, self.rounds_, method.wait))
        return self

    def plan(
        self, method: SSCA | LocalSteps, sites: tuple[str, ...], features: int, classes: int, stated: StatedProblem
    ) -> ServerJob:
        """Return what the server is told: who takes part, the model, the algorithm and the problem."""
        described = describe_model(features, classes, int(self.hidden), bool(self.fit_intercept), self.network)
        threshold = (method.threshold or default_threshold(len(sites))) if is_masked(self._sum(), len(sites)) else 0
        numbers = tuple((each.weights, each.square) for each in stated.problem.functions)
        about = (stated.measures, stated.names, numbers, stated.limits)
        return ServerJob(sites, described, method.as_value(), self._l2(), *about, threshold)

    def _l2(self) -> float:
        return L2 if self.l2 is None else float(self.l2)

    def statement(self, grouped: bool) -> StatedProblem:
        """Return the problem in numbers; `grouped` is whether keys of costs are groups rather than classes."""
        return state_problem(self._l2(), self.cost_limit, self.objective, self.constraints, grouped)

    def _carry_out(self, programs: Any, on: Runtime | None, method: Any, sites: tuple[str, ...]) -> dict[str, Outcome]:
        history = History(METRICS["classes"], method.rounds, self.verbose)
        try:
            outcomes = (on or Simulation()).run(programs, history.observe, sites)
        finally:
            history.close()
        self.history_ = Course(record for record in history.records if "loss" in record)
        self.traffic_ = ByParty({name: outcome.traffic for name, outcome in outcomes.items()})
        self.times_ = {name: outcome.times for name, outcome in outcomes.items()}
        self.rounds_ = self.traffic_[SERVER].rounds
        return dict(outcomes)

    def take_result(
        self, plan: ServerJob, classes: Array, stated: StatedProblem, columns: tuple[str, ...], ended: Result
    ) -> None:
        """Take over what a run ended with, and warn of rounds that were skipped."""
        self.parties_, self.holders_, self.sum_, self._family = (SHARED,), (SHARED,), self._sum(), RowsFamily.name
        self.sites_, self.classes_, self.columns_ = plan.sites, classes, {SHARED: columns}
        self._states, self._model = {SHARED: (ended.parameters,)}, plan.model
        self.costs_, self.slack_ = stated.by_key(ended.costs), stated.by_key(ended.slack)
        self.multipliers_, self.penalty_ = stated.by_key(ended.multipliers), ended.penalty
        self.met_, self.skipped_ = ended.met, tuple(ended.skipped)
        if self.skipped_:
            some = ", ".join(map(str, self.skipped_[:5])) + (", ..." if len(self.skipped_) > 5 else "")
            warnings.warn(
                f"{len(self.skipped_)} rounds were skipped ({some}): too few sites stayed to the end of them",
                ColonnadeWarning,
                stacklevel=3,
            )

    def check_options(self, sites: int) -> SSCA | LocalSteps:
        """Return the algorithm, once all options are found to be allowed for so many sites."""
        whole_number("hidden", self.hidden, 0)
        if self.l2 is not None:
            at_least("l2", self.l2, 0, finite=True)
        one_of("sum", self.sum, SUMS)
        check_word(self.protection, family(RowsFamily.name))
        added = self._sum()
        method = SSCA() if self.algorithm is None else self.algorithm
        if not isinstance(method, tuple(METHODS.values())):
            raise OptionError(f"algorithm must be one of {', '.join(METHODS)}, got {method!r}")
        check_problem(self.l2, self.cost_limit, self.objective, self.constraints, method.keeps_limits, method)
        least = max(2, sites // 2 + 1)
        if method.threshold is not None and not least <= method.threshold <= sites:
            raise OptionError(
                f"threshold must be between {least} and the {sites} sites, got {method.threshold}: sites answer to no "
                f"server that could tell two halves of them different things"
            )
        if method.threshold is not None and added == "plain":
            word = "sum" if self.sum == "plain" else "protection"
            raise OptionError(f"threshold is of masked sums, got {word}='plain'; leave one of them out")
        chosen = len(method.chosen(sites, 1)) or sites
        if sites > 1 and chosen < 2 and added != "plain":
            raise OptionError(
                f"fraction chooses {chosen} of {sites} sites in a round, and the sum of one site is its own part; "
                f"raise it, or give sum='plain'"
            )
        if added == "pairwise" and sites < 2:
            word = "sum='pairwise'" if self.sum == "pairwise" else "protection='masked'"
            raise OptionError(f"{word} needs at least two sites: the sum of one site is its own part")
        for sentence in method.warnings():
            warnings.warn(sentence, ColonnadeWarning, stacklevel=3)
        return method

    def _sum(self) -> str:
        """Return the option `sum`, or what `protection` makes of "auto"."""
        return self.sum if self.protection == "auto" else masked_sum(self.protection, self.sum, 0)

    @property
    def protection_(self) -> str:
        """Return how training was protected: "masked" or "plain"."""
        self._check_fitted()
        return MASKED if is_masked(self.sum_, len(self.sites_)) else PLAIN

    # -- keep ---------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write one file, the same for all sites.

        It keeps the model and the names of the sites, but not how training went (`costs_`, `met_` and the like). A
        model with `network=` can't be saved, as its file would name code; keep its `parameters_`.

        Parameters
        ----------
        folder : str or Path
            Where the file goes; it is made if need be.
        """
        if self.network is not None:
            raise OptionError("a model with network= can't be saved: its file would name code; keep parameters_")
        super().save(folder)

    def _public(self) -> dict[str, Any]:
        return {"shape": self._model, "sites": self.sites_}

    def _take_public(self, public: dict[str, Any]) -> None:
        self._model, self.sites_ = tuple(public["shape"]), tuple(public["sites"])
        try:
            check_description(self._model)
        except ProtocolError as error:
            raise DataError(f"the model's file is damaged: {error}") from None
