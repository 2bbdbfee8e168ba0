"""What a user asks of a cross-validation or a search: checked before anything runs, then run as one program."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from colonnade.data.party import Party
from colonnade.data.together import check_together
from colonnade.errors import ColonnadeWarning, OptionError
from colonnade.estimators.base import Estimator
from colonnade.objective import losses, scorers
from colonnade.progress import Line
from colonnade.runtimes.net import Outcome, Runtime, check_runtime
from colonnade.runtimes.simulation import Simulation
from colonnade.validation.folds import Folds, check_folds, folds_of
from colonnade.validation.program import Validated, ValidationTerms, validate, validated
from colonnade.validation.recorded import Replay, taken_down

Named = str | Sequence[str] | None  # scorers


def candidates_of(grid: Any) -> list[dict[str, Any]]:
    """Return every combination of a grid's values, in scikit-learn's order."""
    found = []
    for one in [grid] if isinstance(grid, Mapping) else grid if isinstance(grid, (list, tuple)) else [None]:
        if not isinstance(one, Mapping) or not one:
            raise OptionError(
                f"grid must be a dict {{option: values}} or a list of them, with one option or more, got {grid!r}"
            )
        for name, values in one.items():
            if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable) or not list(values):
                raise OptionError(f"grid[{name!r}] must be a list with one value or more, got {values!r}")
        names = sorted(one)
        found += [dict(zip(names, values, strict=True)) for values in itertools.product(*(one[name] for name in names))]
    if not found:
        raise OptionError("grid is empty; give one option to try at least")
    return found


class ValidationRequest:
    """What a user asked for, checked: candidates, folds and scorers, before anything runs."""

    def __init__(
        self,
        model: Estimator,
        candidates: list[dict[str, Any]],
        parties: tuple[Party, ...],
        cv: Any,
        scoring: Named,
        seed: int,
        on: Runtime | None,
    ) -> None:
        if not isinstance(model, Estimator):
            raise OptionError(f"the model must be an estimator of colonnade, got {type(model).__name__}")
        check_runtime(on)
        check_together(parties)
        _check_taken(model, candidates, parties)
        self.candidates, self.parties, self._on, self._model = candidates, parties, on, model
        self.folds: Folds = folds_of(cv, parties[0].rows, seed)
        jobs, self._own = [], []
        for number, params in enumerate(candidates):
            with warnings.catch_warnings():
                if number:  # what is to be said of all of them is said once
                    warnings.simplefilter("ignore", ColonnadeWarning)
                job, parts = taken_down(self._made(params, verbose=model.verbose if not number else 0), parties)
            for train, _ in self.folds:
                job.algorithm.batch_for(len(train))
            jobs.append(job)
            self._own.append({name: part.own for name, part in parts.items()})
        self._jobs, self._parts = tuple(jobs), parts
        self.leader, loss = jobs[0].holders[0], losses.loss(jobs[0].loss)
        if any(job.loss != loss.name or job.holders != jobs[0].holders for job in jobs):
            raise OptionError("all candidates must have the same loss; search for each of them by itself")
        mine = parts[self.leader]
        check_folds(self.folds, loss, mine.y, mine.labelled, self.leader)
        self.scoring = _scorers(scoring)
        for one in self.scoring:
            scorers.check_scoring(one, loss)
        self.names = ["score" if one is None or len(self.scoring) == 1 else one for one in self.scoring]

    def _made(self, params: Mapping[str, Any], **more: Any) -> Estimator:
        model = type(self._model)(**self._model.get_params(deep=False))
        return model.set_params(**params).set_params(**more)

    def run(self, *, refit: bool, warm: bool, states: bool) -> dict[str, Validated]:
        """Run all fits, and return what every party knows in the end."""
        terms = ValidationTerms(self._jobs, self.folds, tuple(self.scoring), refit, warm, states).as_value()
        line = Line("cross-validation", len(self._jobs) * len(self.folds), self._model.verbose)
        self._reports: list[tuple[str, float, Any]] = []

        def observe(party: str, seconds: float, value: Any) -> None:
            if value[0] == "validation" and party == self.leader:
                line.show(value[1], f"{value[1]} of {value[2]} fits")
            elif value[0] != "validation":
                self._reports.append((party, seconds, value))

        programs = {
            party.name: (
                validate,
                (terms, self._parts[party.name].as_value(), tuple(own[party.name] for own in self._own)),
            )
            for party in self.parties
        }
        try:
            self.outcomes: dict[str, Outcome] = (self._on or Simulation()).run(programs, observe)
        finally:
            line.close()
        return {name: validated(outcome.value) for name, outcome in self.outcomes.items()}

    def fitted(self, found: Mapping[str, Validated], candidate: int, fold: int) -> Estimator:
        """Return the model of one fit."""
        outcomes = {name: Outcome(one.fits[candidate, fold].state) for name, one in found.items()}
        return self._replayed(self.candidates[candidate], outcomes, self.folds[fold][0], ())

    def refitted(self, found: Mapping[str, Validated]) -> Estimator:
        """Return the best candidate's model of all rows, with the history and the traffic of its own training."""
        outcomes, began = {}, math.inf
        for name, one in found.items():
            if one.refit is not None:
                state, traffic, begun, seconds = one.refit
                outcomes[name] = Outcome(state, None, traffic, seconds, self.outcomes[name].times)
                began = min(began, begun)
        reports = tuple((party, max(0.0, seconds - began), value) for party, seconds, value in self._reports)
        return self._replayed(self.candidates[found[self.leader].best], outcomes, None, reports)

    def _replayed(self, params: Mapping[str, Any], outcomes: Any, rows: Any, reports: Any) -> Estimator:
        parties = self.parties if rows is None else tuple(party.take(rows) for party in self.parties)
        model: Any = self._made(params, verbose=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColonnadeWarning)  # they were given before the run
            model.fit(*parties, on=Replay(outcomes, reports))
        fitted: Estimator = model.set_params(verbose=self._model.verbose)
        return fitted


def _check_taken(model: Estimator, candidates: list[dict[str, Any]], parties: tuple[Party, ...]) -> None:
    """Refuse what folds would take from all rows where it belongs to each fold's own, or would leave out of scores."""
    if getattr(model, "class_weight", None) is not None or any("class_weight" in params for params in candidates):
        raise OptionError("folds do not take class_weight yet; give a Party sample_weight, or fit each fold itself")
    defences = [getattr(model, "defences", ()), *(params.get("defences", ()) for params in candidates)]
    if hiding := [one.name for some in defences for one in some if one.hides_labels]:
        raise OptionError(
            f"folds do not take the defence {hiding[0]!r}: every fold would tell of the labels anew, and nothing adds "
            f"that up; leave it out, or fit once with rows that are held out"
        )
    for party in parties:
        if party.added is not None:
            raise OptionError(f"folds do not take an offset or exposure yet, and party {party.name!r} has one")
        if party.raw is not None or party.prepare is not None:
            raise OptionError(
                f"what prepares the columns of party {party.name!r} would be learned from held-out rows too; give "
                f"numbers, or let a job with folds learn it in each fold"
            )


def _scorers(scoring: Named) -> list[str | None]:
    if scoring is None or isinstance(scoring, str):
        return [scoring]
    if isinstance(scoring, Iterable) and not isinstance(scoring, Mapping) and (found := list[str | None](scoring)):
        return found
    raise OptionError(f"scoring must be the name of a scorer or a list of names, got {scoring!r}")
