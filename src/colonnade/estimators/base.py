"""What every estimator has: scikit-learn's conventions, how a run is recorded, predictions and their score."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

import colonnade
from colonnade import private_files
from colonnade.data import labels
from colonnade.data.party import Party, check_together
from colonnade.engine.exposure import ENCRYPTED
from colonnade.errors import DataError, LabelError, NotFittedError, OptionError, one_of
from colonnade.families import family, store
from colonnade.families.checks import all_labels, warn_after
from colonnade.families.training import ScoringJob, ScoringPart, TrainingJob, TrainingPart, score, train
from colonnade.objective import losses, metrics
from colonnade.progress import History, Line
from colonnade.runtimes.net import Outcome, Program, Runtime, Traffic, check_runtime
from colonnade.runtimes.simulation import Simulation
from colonnade.sums import choose_sum
from colonnade.sums.trees import TOPOLOGIES

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="Estimator")
Programs = Mapping[str, tuple[Program, tuple[Any, ...]]]


class Estimator:
    """A model over several parties."""

    sum: str
    topology: str
    verbose: int
    parties_: tuple[str, ...]
    holders_: tuple[str, ...]
    classes_: Array
    columns_: dict[str, tuple[str, ...]]
    history_: list[dict[str, Any]]
    traffic_: dict[str, Traffic]
    rounds_: int
    sum_: str
    _states: dict[str, Any]
    _unsaved: ClassVar[tuple[str, ...]] = ("algorithm", "verbose")  # options that a file does not keep
    _family: str  # of what was trained; see `families`

    def _minimised(self) -> losses.Loss:
        """The loss that is minimised."""
        raise TypeError("a model must know its loss")

    # -- scikit-learn's conventions -----------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's options."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self: Model, **params: Any) -> Model:
        """Change options."""
        allowed = tuple(inspect.signature(type(self)).parameters)
        for name, value in params.items():
            one_of("the option's name", name, allowed)
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = [f"{k}={v!r}" for k, v in self.get_params().items() if v != defaults[k].default]
        return f"{type(self).__name__}({', '.join(given)})"

    # -- training -----------------------------------------------------------------------------------------------

    def _train(
        self,
        job: TrainingJob,
        parties: tuple[Party, ...],
        classes: Array,
        parts: Mapping[str, TrainingPart],
        on: Runtime | None,
    ) -> None:
        """Train through the one door, and keep what was learnt and what the run says of itself."""
        told = job.as_value()
        programs = {name: (train, (told, part.as_value())) for name, part in parts.items()}
        outcomes = self._run(programs, on, job.algorithm.epochs)
        self._describe(job, parties, classes)
        self._states = {name: outcomes[name].value for name in programs}
        warn_after(self.history_, job.algorithm)

    def _run(self, programs: Programs, on: Runtime | None, epochs: int) -> dict[str, Outcome]:
        """Run programs, and keep their history and their traffic."""
        history = History(metrics.METRICS[self._minimised().kind], epochs, self.verbose)
        try:
            outcomes = (on or Simulation()).run(programs, history.observe)
        finally:
            history.close()
        self.history_ = history.records
        self.traffic_ = {name: outcomes[name].traffic for name in programs}
        self.rounds_ = max(traffic.rounds for traffic in self.traffic_.values())
        return dict(outcomes)

    def _describe(self, job: TrainingJob, parties: tuple[Party, ...], classes: Array) -> None:
        """Keep what the model is about."""
        self.parties_, self.holders_ = tuple(party.name for party in parties), job.holders
        self.classes_, self.sum_, self._family = classes, job.sum, job.family
        self.columns_ = {party.name: party.columns for party in parties}

    def _check_sums(self, *, linear: bool = False) -> None:
        choose_sum(self.sum, 2)
        if self.sum == ENCRYPTED and not linear:
            raise OptionError(
                f"sum='paillier' encrypts the signals of linear models, {type(self).__name__} takes 'auto', "
                f"'pairwise', 'two-trees' or 'plain'"
            )
        one_of("topology", self.topology, tuple(TOPOLOGIES))

    def _check_validation(self, parties: tuple[Party, ...], validation: list[Party] | None) -> list[Party] | None:
        if validation is None:
            return None
        ordered = in_order(validation, tuple(party.name for party in parties), "validation")
        check_together(ordered)
        for party, other in zip(parties, ordered, strict=True):
            check_columns(party.columns, other)
            if party.active and not other.active:
                raise LabelError(f"validation: party {other.name!r} holds labels in training and none here; give its y")
        all_labels(tuple(ordered))
        return ordered

    # -- use ----------------------------------------------------------------------------------------------------

    def _check_fitted(self) -> None:
        if not hasattr(self, "_states"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit(*parties) or load(folder) first")

    def history_frame(self) -> Any:
        """`history_` as a pandas data frame."""
        self._check_fitted()
        import pandas as pd

        return pd.DataFrame(self.history_)

    def _check_rows(self, parties: tuple[Party, ...], on: Runtime | None, what: str = "prediction") -> list[Party]:
        """The parties of a prediction, in the order of the model."""
        self._check_fitted()
        check_runtime(on)
        ordered = in_order(parties, self.parties_, what)
        check_together(ordered)
        for party in ordered:
            check_columns(self.columns_[party.name], party)
        return ordered

    def _score(
        self, job: ScoringJob, parts: Mapping[str, ScoringPart], on: Runtime | None, at: str | None = None
    ) -> Array:
        """Score through the one door: what a party gets, by default the first label holder."""
        told = job.as_value()
        programs = {name: (score, (told, part.as_value())) for name, part in parts.items()}
        line = Line("predicting", None, self.verbose)
        try:
            scores: Array = (on or Simulation()).run(programs)[at or self.holders_[0]].value
        finally:
            line.close()
        return scores

    def _scoring_job(self, **facts: Any) -> ScoringJob:
        return ScoringJob(self._family, self.holders_, self.sum_, self.topology, facts)

    def decision_function(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Scores of these rows, at the first label holder."""
        raise TypeError("a model must know its scores")

    def predict(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Predicted labels, or values for a regression."""
        loss = self._minimised()
        return labels.decode(loss.predict(self.decision_function(*parties, on=on)), self.classes_, loss)

    def score(self, *parties: Party, on: Runtime | None = None) -> float:
        """Accuracy for classes, R² for real numbers, D² (deviance explained) for counts."""
        known = [party for party in parties if isinstance(party, Party) and party.active]
        if not known:
            raise LabelError("no party holds labels; score needs the true labels at one of them")
        truth, predicted = all_labels(tuple(known)), self.predict(*parties, on=on)
        kind = self._minimised().kind
        if kind == "real":
            return metrics.r2(truth, predicted)
        if kind == "count":
            return metrics.d2_poisson(truth, predicted)
        return metrics.accuracy(truth, predicted)

    # -- keep ---------------------------------------------------------------------------------------------------

    def _public(self) -> dict[str, Any]:
        """What this kind of model says in every party's file, beside what all do."""
        return {}

    def _take_public(self, public: dict[str, Any]) -> None:
        """The inverse."""

    def save(self, folder: str | Path) -> None:
        """One file per party in `folder`; give each organisation its own and delete the rest."""
        self._check_fitted()
        path = Path(folder)
        private_files.make_folder(path)
        public = {
            "model": type(self).__name__,
            "options": {k: v for k, v in self.get_params().items() if k not in self._unsaved},
            "parties": self.parties_,
            "holders": self.holders_,
            "sum": self.sum_,
            "family": self._family,
            **self._public(),
        }
        for name in self.parties_:
            arrays = family(self._family).to_arrays(self._states[name])
            arrays["columns"] = np.array(self.columns_[name])
            if name in self.holders_:
                arrays["classes"] = self.classes_
            store.write_party(path, name, public, arrays)

    @classmethod
    def load(cls: type[Model], folder: str | Path) -> Model:
        """A model from the files of all its parties."""
        public, arrays = store.read_parties(folder)
        kind = getattr(colonnade, public["model"], None) if public["model"] in colonnade.__all__ else None
        if not isinstance(kind, type) or not issubclass(kind, cls):
            raise DataError(f"the folder holds a {public['model']}, load it as that")
        made = family(public["family"])
        if made.takes_own:
            raise DataError(
                "the folder holds the networks of a job, and only the parties' own files say how they are made; use "
                "`colonnade predict`"
            )
        model = kind(**public["options"])
        model.parties_, model.holders_ = tuple(public["parties"]), tuple(public["holders"])
        model.sum_, model.history_, model.traffic_, model.rounds_ = public["sum"], [], {}, 0
        model._family = made.name
        model._states = {name: made.from_arrays(part) for name, part in arrays.items()}
        model.columns_ = {name: tuple(part["columns"].tolist()) for name, part in arrays.items()}
        model.classes_ = arrays[model.holders_[0]]["classes"]
        model._take_public(public)
        return model


class ProbabilityMixin:
    """Of classifiers whose loss has probabilities."""

    def predict_proba(self: Any, *parties: Party, on: Runtime | None = None) -> Array:
        """Probability of each class, one column per class in the order of `classes_`."""
        chances: Array = self._minimised().probability(self.decision_function(*parties, on=on))
        return chances


def in_order(parties: Any, names: tuple[str, ...], what: str) -> list[Party]:
    """The parties in the order of the model; each exactly once."""
    if not isinstance(parties, (list, tuple)):
        raise DataError(f"{what} needs a list of parties, got {type(parties).__name__}")
    given = {party.name: party for party in parties if isinstance(party, Party)}
    if len(given) != len(parties) or set(given) != set(names):
        got = [party.name if isinstance(party, Party) else type(party).__name__ for party in parties]
        raise DataError(f"{what} needs each of the parties {list(names)} once, got {got}")
    return [given[name] for name in names]


def check_columns(names: tuple[str, ...], party: Party) -> None:
    """The same columns as in training, in the same order; names are compared where both sides brought them."""
    if party.features != len(names):
        raise DataError(
            f"party {party.name!r} has {party.features} columns here and {len(names)} in training; give the same ones"
        )
    made_up = all(name == f"x{j}" for j, name in enumerate(names))
    if party.named and not made_up and party.columns != names:
        j = next(j for j, name in enumerate(names) if party.columns[j] != name)
        raise DataError(
            f"party {party.name!r}: column {j} is {party.columns[j]!r} here and {names[j]!r} in training; give the "
            f"same columns in the same order"
        )
