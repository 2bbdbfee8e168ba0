"""Two runtimes that run nothing: one takes down what `fit` would run, the other gives it what was run elsewhere.

So a search asks an estimator itself what its training is and whether its options will do, runs many of these at once,
and gives the estimator what came of it, as if it had been run by `fit`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from colonnade.data.party import Party
from colonnade.errors import OptionError
from colonnade.estimators.base import Estimator
from colonnade.families import family
from colonnade.families.training import TrainingJob, TrainingPart, train
from colonnade.runtimes.net import Observer, Outcome, Program

Programs = Mapping[str, tuple[Program, tuple[Any, ...]]]


class _TakenDown(Exception):
    """What ends `fit` once it has said what it would run."""


@dataclass
class TakeDown:
    """A runtime that only takes down what it is asked to run."""

    programs: Programs = field(default_factory=dict)

    def run(self, programs: Programs, observer: Observer | None = None, spare: Collection[str] = ()) -> Any:
        """Take the programs down, and end whatever asked for them."""
        self.programs = dict(programs)
        raise _TakenDown


@dataclass(frozen=True)
class Replay:
    """A runtime that gives what was run elsewhere: the parties' reports, and how their programs ended."""

    outcomes: Mapping[str, Outcome]
    reports: tuple[tuple[str, float, Any], ...] = ()

    def run(
        self, programs: Programs, observer: Observer | None = None, spare: Collection[str] = ()
    ) -> dict[str, Outcome]:
        """Return the outcomes, once the reports are told."""
        for report in self.reports if observer is not None else ():
            observer(*report)  # type: ignore[misc]
        return dict(self.outcomes)


def taken_down(model: Estimator, parties: tuple[Party, ...]) -> tuple[TrainingJob, dict[str, TrainingPart]]:
    """Return what `fit` of a model on these parties would train, once the model has checked its options and the data.

    A model over rows, or one whose parties do not have the same rows, is refused.
    """
    runtime, name = TakeDown(), type(model).__name__
    fit: Any = getattr(model, "fit", None)
    if fit is None or not isinstance(model, Estimator) or not all(isinstance(party, Party) for party in parties):
        raise OptionError(f"cross-validation is for estimators of colonnade and their parties, got a {name}")
    with suppress(_TakenDown):
        fit(*parties, on=runtime)
    if any(program is not train for program, _ in runtime.programs.values()) or not runtime.programs:
        raise OptionError(f"cross-validation is for models of parties with the same rows, got a {name}")
    job = TrainingJob.from_value(next(iter(runtime.programs.values()))[1][0])
    if not family(job.family).validates:
        raise OptionError(
            f"cross-validation is for linear models, kernels and boosted trees, got a {name}; hold rows out yourself "
            f"with Party.take and score it there"
        )
    return job, {party: TrainingPart(*args[1]) for party, (_, args) in runtime.programs.items()}
