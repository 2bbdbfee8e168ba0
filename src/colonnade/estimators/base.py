"""What every estimator has: scikit-learn's conventions, the record of a run, predictions and their score, files."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import repeat
from pathlib import Path
from types import MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

import colonnade
from colonnade import private_files
from colonnade.audit.findings import MAX_ADVANTAGE
from colonnade.data import labels
from colonnade.data.party import Party, check_together
from colonnade.defences.rounded_scores import blur_of
from colonnade.engine.exposure import ENCRYPTED
from colonnade.errors import DataError, LabelError, MissingUntilFitted, NotFittedError, OptionError, one_of
from colonnade.estimators import preparing
from colonnade.estimators.thresholds import ThresholdMixin
from colonnade.families import family, store
from colonnade.families.checks import (
    all_labels,
    all_weights,
    check_offsets,
    check_values,
    check_weights,
    tell,
    warn_after,
    warn_before,
)
from colonnade.families.protection import AUTO, HIDES_NOTHING, MASKED, check_word, masked_sum, protection_of
from colonnade.families.training import ScoringJob, ScoringPart, TrainingJob, TrainingPart, score, train
from colonnade.objective import losses, metrics, scorers
from colonnade.objective.calibration import METHODS, Calibration, calibrate, decided_by
from colonnade.objective.decisions import Threshold
from colonnade.progress import History, Line
from colonnade.runtimes.net import Outcome, Program, Runtime, Traffic, check_runtime
from colonnade.runtimes.simulation import Simulation
from colonnade.runtimes.times import Times
from colonnade.sums import choose_sum
from colonnade.sums.trees import check_kind
from colonnade.tables.learned import PREPARATION, LearnedPreparation
from colonnade.versions.identity import own_id

if TYPE_CHECKING:
    from colonnade.audit.auditing import Audit

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="Estimator")
Programs = Mapping[str, tuple[Program, tuple[Any, ...]]]


class Estimator(ThresholdMixin):
    """A model over several parties; every estimator of `colonnade` is one.

    Attributes
    ----------
    parties_ : tuple of str
        The names of the parties, in the order in which `fit` got them.
    holders_ : tuple of str
        The parties that hold labels. Scores are summed at the first of them.
    classes_ : numpy array
        The classes, sorted, as the labels name them; empty for real numbers and counts.
    columns_ : dict
        {party: the names of its columns}.
    history_ : list of dict
        A record for each evaluation: `epoch`, `time` in seconds, `rounds`, `loss` (the objective), `metric`,
        `metric_name`, and the `messages` and `bytes` sent so far; with validation data also `validation_loss` and
        `validation_metric`, and in asynchronous runs `staleness`. After sealed training it is empty, or has the two of
        validation data alone. It is empty in a model that was loaded.
    traffic_ : dict
        {party: what it sent}, as messages, bytes and rounds, and by step; empty in a model that was loaded.
    times_ : dict
        {party: what it did with its time}, as seconds of `computing`, `communicating` and `waiting`; empty in a model
        that was loaded.
    rounds_ : int
        The exchanges between the parties in training; 0 in a model that was loaded.
    sum_ : str
        How contributions were added up: the option `sum`, where "auto" has become one of the others. After sealed
        training it is how predictions are added up.
    protection_ : str
        How training was protected: "sealed", "masked" or "plain".
    calibration_ : Calibration or None
        How scores become probabilities, where `calibrate` has learnt it; only the first label holder's file keeps it.
    threshold_ : float
        From which probability of the second of two classes on, or from which score, `predict` decides for it; only the
        first label holder's file keeps what `choose_threshold` found.
    preparations_ : dict
        {party: how its columns become numbers}, for parties whose columns were to be prepared.
    training_ : str
        The id of the training, which the files of all parties carry: parts of different trainings are not loaded
        together. Empty in a model of the time before trainings had one.
    """

    protection: str
    sum: str
    topology: str
    verbose: int
    parties_: tuple[str, ...]
    holders_: tuple[str, ...]
    training_: str = ""
    _date: str = ""  # when it was trained
    classes_: Array
    columns_: dict[str, tuple[str, ...]]
    history_: list[dict[str, Any]]
    traffic_: dict[str, Traffic]
    times_: dict[str, Times]
    rounds_: int
    sum_: str
    calibration_: Calibration | None = None
    preparations_: Mapping[str, LearnedPreparation] = MappingProxyType({})
    _states: dict[str, Any]
    _learnt: Mapping[str, LearnedPreparation] = MappingProxyType({})  # in a fit that is under way
    _framed: frozenset[str] = frozenset()  # the parties whose columns came as a pandas frame
    _codes: ClassVar[bool] = False  # whether categories are taken as codes
    _levels: ClassVar[bool] = False  # whether each category has a coefficient, to be read beside a reference
    # Options that files do not keep.
    _unsaved: ClassVar[tuple[str, ...]] = ("algorithm", "class_weight", "defences", "verbose")
    _family: str  # the name of the family that the trained model is of

    def _minimised(self) -> losses.Loss:
        """Return the loss that is minimised."""
        raise TypeError("a model must know its loss")

    # -- scikit-learn's conventions -----------------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's options, as scikit-learn's `clone` and grid searches ask for them.

        Parameters
        ----------
        deep : bool
            Whether the options of the algorithm are returned as well, as `algorithm__tol` and so on.

        Returns
        -------
        dict
            {name of the option: its value}.
        """
        found = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        inner = {name: option for name, option in found.items() if deep and _has_options(option)}
        return found | {
            f"{name}__{one.name}": getattr(of, one.name) for name, of in inner.items() for one in fields(of)
        }

    def set_params(self: Model, **params: Any) -> Model:
        """Change options; they count from the next `fit` on.

        Parameters
        ----------
        **params
            New values, by the names of the constructor's options, or of an algorithm's, as `algorithm__tol`. Any other
            name raises an `OptionError`.

        Returns
        -------
        Estimator
            The model itself.
        """
        allowed = tuple(inspect.signature(type(self)).parameters)
        inner: dict[str, dict[str, Any]] = {}
        for name, value in params.items():
            outer, _, rest = name.partition("__")
            one_of("the option's name", outer, allowed)
            if rest:
                inner.setdefault(outer, {})[rest] = value
            else:
                setattr(self, name, value)
        for name, options in inner.items():
            of = getattr(self, name)
            if not _has_options(of):
                raise OptionError(
                    f"{name} is {of!r}, which has no option {next(iter(options))!r} to set; give {name} itself first"
                )
            for option in options:
                one_of(f"the option of {name}", option, tuple(one.name for one in fields(of)))
            setattr(self, name, replace(of, **options))
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = [f"{k}={v!r}" for k, v in self.get_params(deep=False).items() if v != defaults[k].default]
        return f"{type(self).__name__}({', '.join(given)})"

    # -- protection ---------------------------------------------------------------------------------------------

    @property
    def protection_(self) -> str:
        """Return how training was protected: "sealed", "masked" or "plain"."""
        self._check_fitted()
        return protection_of(self._family, self.sum_)

    def _summed(self, kind: str, parties: int) -> str:
        """Return the sum that `protection` and `sum` stand for between so many parties; `kind` names the family."""
        check_word(self.protection, family(kind))
        found = masked_sum(self.protection, self.sum, parties)
        if self.protection == MASKED and self.sum == AUTO and parties == 2:
            tell(f"protection='masked': {HIDES_NOTHING}; linear models have protection='sealed', which hides it")
        return found

    # -- training -----------------------------------------------------------------------------------------------

    def _prepare(
        self, parties: tuple[Party, ...], validation: list[Party] | None
    ) -> tuple[tuple[Party, ...], list[Party] | None]:
        """Learn from these rows how columns are prepared, and return the parties, and those of validation, prepared."""
        self._learnt = preparing.learn(parties, trees=self._codes, reference=self._levels)
        held_out = preparing.applied(validation, self._learnt) if isinstance(validation, (list, tuple)) else validation
        return tuple(preparing.applied(parties, self._learnt)), held_out

    def _check(self, job: TrainingJob, parties: tuple[Party, ...]) -> None:
        """Refuse a job that can't be trained, and warn of what its run would show."""
        names = tuple(party.name for party in parties)
        check_values(family(job.family), parties)
        job.check(type(self).__name__, names)
        warn_before(job, parties, names)

    def _train(
        self,
        job: TrainingJob,
        parties: tuple[Party, ...],
        classes: Array,
        held_out: list[Party] | None,
        on: Runtime | None,
        own: Mapping[str, Any] | None = None,
    ) -> None:
        """Train through the one door into training, and keep what was learnt and the record of the run.

        own: what each party brings beside its columns, where the family takes anything.
        """
        check_weights(family(job.family), (*parties, *(held_out or ())))
        check_offsets(job, parties, held_out)
        check_values(family(job.family), (*parties, *(held_out or ())))
        told, loss, programs = job.as_value(), self._minimised(), {}
        for party, other in zip(parties, held_out or repeat(None), strict=False):
            part = TrainingPart.of(party, classes, loss, other, (own or {}).get(party.name))
            programs[party.name] = (train, (told, part.as_value()))
        outcomes = self._run(programs, on, job.algorithm.epochs)
        self._describe(job, parties, classes)
        self._states = {name: outcomes[name].value for name in programs}
        warn_after(self.history_, job.algorithm)

    def _run(self, programs: Programs, on: Runtime | None, epochs: int) -> dict[str, Outcome]:
        """Run the parties' programs, and keep the history and the traffic."""
        history = History(metrics.metric_name(self._minimised()), epochs, self.verbose)
        try:
            outcomes = (on or Simulation()).run(programs, history.observe)
        finally:
            history.close()
        return self._keep_record(history, outcomes)

    def _keep_record(self, history: History, outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
        """Keep the history and the traffic of a run that has ended, and return how it ended at every party."""
        for words in history.warnings:
            tell(words)
        self.history_ = history.records
        self.traffic_ = {name: outcome.traffic for name, outcome in outcomes.items()}
        self.times_ = {name: outcome.times for name, outcome in outcomes.items()}
        self.rounds_ = max(traffic.rounds for traffic in self.traffic_.values())
        return dict(outcomes)

    def _describe(self, job: TrainingJob, parties: tuple[Party, ...], classes: Array) -> None:
        """Note who takes part, what the classes and columns are, and which family the model is of."""
        self.parties_, self.holders_ = tuple(party.name for party in parties), job.holders
        self.classes_, self.sum_, self._family = classes, job.sum, job.family
        self.calibration_ = None  # it was of another model
        self._threshold = None  # it was of another model
        self.columns_ = {party.name: party.columns for party in parties}
        self.preparations_, self._framed = self._learnt, frozenset(party.name for party in parties if party.framed)
        facts = (repr(job.as_value()).encode(), str(parties[0].rows).encode())
        self.training_, self._date = own_id(self.parties_, facts), datetime.now(UTC).isoformat(timespec="seconds")

    def _check_sums(self, *, linear: bool = False) -> None:
        choose_sum(self.sum, 2)
        if self.sum == ENCRYPTED and not linear:
            raise OptionError(
                f"sum='encrypted' encrypts the signals of linear models, {type(self).__name__} takes 'auto', "
                f"'pairwise', 'two-trees' or 'plain'"
            )
        check_kind(self.topology)

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

    def _check_fitted(self, error: type[NotFittedError] = NotFittedError) -> None:
        if not hasattr(self, "_states"):
            raise error(f"this {type(self).__name__} is not fitted; call fit(*parties) or load(folder) first")

    if not TYPE_CHECKING:  # a type checker would believe that there is every attribute

        def __getattr__(self, name: str) -> Any:
            """Say of what training leaves, such as `times_`, that there was no training yet."""
            if name.endswith("_") and not name.startswith("_"):
                self._check_fitted(MissingUntilFitted)
            if name in dir(type(self)):  # a property or the like, which says itself what is missing
                return object.__getattribute__(self, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def history_frame(self) -> Any:
        """Return `history_` as a pandas data frame, one row per evaluation.

        Returns
        -------
        pandas.DataFrame
            The keys of the records are its columns.
        """
        self._check_fitted()
        import pandas as pd

        return pd.DataFrame(self.history_)

    def _check_rows(self, parties: tuple[Party, ...], on: Runtime | None, what: str = "prediction") -> list[Party]:
        """Return the parties in the order of the model, once their columns are found to be those of the training."""
        self._check_fitted()
        check_runtime(on)
        ordered = in_order(parties, self.parties_, what)
        check_together(ordered)
        ordered = preparing.applied(ordered, self.preparations_)
        check_values(family(self._family), ordered)
        for party in ordered:
            check_columns(self.columns_[party.name], party)
        return ordered

    def _score(
        self, job: ScoringJob, parts: Mapping[str, ScoringPart], on: Runtime | None, at: str | None = None
    ) -> Array:
        """Score through the one door into scoring; return what party `at` gets, by default the first label holder."""
        told = job.as_value()
        programs = {name: (score, (told, part.as_value())) for name, part in parts.items()}
        line = Line("predicting", None, self.verbose)
        try:
            scores: Array = (on or Simulation()).run(programs)[at or self.holders_[0]].value
        finally:
            line.close()
        return scores

    def _scoring_job(self, **facts: Any) -> ScoringJob:
        blur = blur_of(getattr(self, "defences", ()))
        return ScoringJob(self._family, self.holders_, self.sum_, self.topology, facts, blur)

    def decision_function(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Return the scores of these rows, as the first label holder gets them.

        Parameters
        ----------
        *parties : Party
            All parties of the model with the same columns as in training, in any order; labels are not looked at.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        numpy array
            One score per row, or one column per class where the model has several scores.
        """
        raise TypeError("a model must know its scores")

    def predict(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Return the predicted labels, or the predicted values of a regression.

        Parameters
        ----------
        *parties : Party
            The rows to predict, at all parties of the model, as for `decision_function`.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        numpy array
            A class for each row, written as in training; or a number, which for counts is their mean.
        """
        loss = self._minimised()
        decide = partial(decided_by, loss=loss, threshold=self._threshold, calibration=self.calibration_)
        return labels.decode(decide(self.decision_function(*parties, on=on)), self.classes_, loss)

    def score(self, *parties: Party, on: Runtime | None = None, scoring: str | None = None) -> float:
        """Return how good the predictions are: accuracy for classes, R² for real numbers, D² for counts and quantiles.

        Parameters
        ----------
        *parties : Party
            The rows to predict, as for `predict`; at least one of the parties has the true labels. Its rows count by
            `sample_weight`, where it has one.
        on : Runtime, optional
            Where the parties run, as in `fit`.
        scoring : str, optional
            The name of one of scikit-learn's scorers instead, such as "roc_auc", "neg_log_loss" or
            "neg_mean_squared_error"; docs/guide.md lists them.

        Returns
        -------
        float
            1 is perfect, or with a scorer of an error 0. D² is the part of the deviance, or of the loss of a quantile,
            that the model explains.
        """
        known = [party for party in parties if isinstance(party, Party) and party.active]
        if not known:
            raise LabelError("no party holds labels; score needs the true labels at one of them")
        truth, loss = all_labels(tuple(known)), self._minimised()
        weights = all_weights(tuple(known))
        if scoring is None:
            return metrics.goodness(loss, truth, self.predict(*parties, on=on), weights)
        self._check_fitted()
        scorers.check_scoring(scoring, loss)
        if weights is not None:
            raise OptionError(
                f"score with scoring={scoring!r} counts every row once, and a party has sample_weight; leave out one "
                f"of the two"
            )
        y = labels.encode(truth, self.classes_, loss)
        if scorers.SCORERS[scoring].takes in ("label", "value"):
            predicted = self.predict(*parties, on=on)
            predicted = labels.encode(predicted, self.classes_, loss) if len(self.classes_) else predicted
            return scorers.scored(scoring, loss, y, y, predicted)
        return scorers.scored(scoring, loss, self.decision_function(*parties, on=on), y)

    # -- audit --------------------------------------------------------------------------------------------------

    def audit(
        self,
        *parties: Party,
        attacks: Sequence[str] | None = None,
        attackers: Sequence[str] | None = None,
        threshold: float = MAX_ADVANTAGE,
        slow: bool = False,
        seed: int = 0,
    ) -> Audit:
        """Return what each party could find out about the others from the training of this model, measured.

        The model is trained again with these parties, which has the same bits, and everybody's view of the run is
        attacked. Each attack stands beside its floor: what shuffled rows give, or what the attacker's own columns and
        its own part of the finished model give, whichever is more.

        Parameters
        ----------
        *parties : Party
            The parties and rows of the training.
        attacks : list of str, optional
            The names of some attacks, as the table has them; None is all.
        attackers : list of str, optional
            The parties whose views are attacked; None is all of them.
        threshold : float
            From which advantage on a finding is open. The advantage is the part of what the floor leaves to be found
            that was found: 0 is nothing, and 1 is all of it.
        slow : bool
            Whether attacks that take minutes are carried out, too.
        seed : int
            Of the attackers' random choices, such as which rows they know.

        Returns
        -------
        Audit
            The findings, worst first; `print` shows them as a table, and `to_frame` returns a pandas frame.
        """
        from colonnade.audit.of_model import audit_model

        self._check_fitted()
        ordered = tuple(in_order(parties, self.parties_, "audit"))
        return audit_model(
            self, ordered, attacks=attacks, attackers=attackers, threshold=threshold, slow=slow, seed=seed
        )

    # -- keep ---------------------------------------------------------------------------------------------------

    def _public(self) -> dict[str, Any]:
        """Return what this kind of model adds to that part of the files which is the same at all parties."""
        return {}

    def _take_public(self, public: dict[str, Any]) -> None:
        """Take back, from a file that was read, what `_public` put into it."""

    def _identity(self) -> dict[str, str]:
        """Return the id of the training, as every party's file has it; models that were loaded may have none."""
        return {"training": self.training_} if self.training_ else {}

    def _about(self, party: str) -> dict[str, Any]:
        """Return when the model was trained and, in the file of the first label holder, how well it did in the end."""
        last = self.history_[-1] if self.history_ and party == self.holders_[0] else {}
        kept = ("loss", "metric", "metric_name", "validation_loss", "validation_metric")
        return {"date": self._date, "metrics": {key: last[key] for key in kept if key in last}}

    def save(self, folder: str | Path) -> None:
        """Write one file per party, which holds nothing of any other party.

        The options `algorithm`, `class_weight`, `defences` and `verbose` are not kept, nor are `history_`, `traffic_`
        and `times_`.

        Parameters
        ----------
        folder : str or Path
            Where the files go; it is made if need be. Give each organisation its own file, and delete the rest.
        """
        self._check_fitted()
        path = Path(folder)
        private_files.make_folder(path)
        public = {
            "model": type(self).__name__,
            "options": {k: v for k, v in self.get_params(deep=False).items() if k not in self._unsaved},
            "parties": self.parties_,
            "holders": self.holders_,
            "sum": self.sum_,
            "family": self._family,
            **self._identity(),
            **self._public(),
        }
        for name in self.parties_:
            arrays = family(self._family).to_arrays(self._states[name])
            arrays["columns"] = np.array(self.columns_[name])
            if name in self.holders_:
                arrays["classes"] = self.classes_
            if name == self.holders_[0] and self.calibration_ is not None:
                arrays |= self.calibration_.to_arrays()
            if name == self.holders_[0] and self._threshold is not None:
                arrays |= self._threshold.to_arrays()
            if self._date:
                arrays["about"] = np.array(store.as_text(self._about(name)))
            if name in self.preparations_:
                arrays |= self.preparations_[name].to_arrays()
            if name in self._framed:
                arrays["framed"] = np.array(True)
            store.write_party(path, name, public, arrays)

    @classmethod
    def load(cls: type[Model], folder: str | Path) -> Model:
        """Return the model that `save` wrote.

        Parameters
        ----------
        folder : str or Path
            A folder with the files of all parties of one model.

        Returns
        -------
        Estimator
            A model of this class; called as `Estimator.load`, of whichever class was saved.
        """
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
        model.times_, model.training_ = {}, public.get("training", "")
        model._family = made.name
        model._states = {name: made.from_arrays(part) for name, part in arrays.items()}
        model.columns_ = {name: tuple(part["columns"].tolist()) for name, part in arrays.items()}
        model.classes_ = arrays[model.holders_[0]]["classes"]
        model.calibration_ = Calibration.from_arrays(arrays[model.holders_[0]])
        model._threshold = Threshold.from_arrays(arrays[model.holders_[0]])
        model._framed = frozenset(name for name, part in arrays.items() if "framed" in part)
        if "job" not in public:  # whose parties prepare their own files, and bring numbers here
            kept = {name: part for name, part in arrays.items() if PREPARATION in part}
            model.preparations_ = {name: LearnedPreparation.from_arrays(part) for name, part in kept.items()}
        model._take_public(public)
        return model


def _has_options(value: Any) -> bool:
    """Return whether an option has options of its own, as algorithms do."""
    return is_dataclass(value) and not isinstance(value, type)


class CalibrationMixin:
    """Adds `calibrate` to classifiers of two classes."""

    calibration_: Calibration | None

    def calibrate(self: Any, *parties: Party, method: str = "sigmoid", on: Runtime | None = None) -> Any:
        """Learn from held-out rows how scores become probabilities; `predict_proba` and `predict` go by it then.

        Only the first label holder learns it, from scores that it gets as in a prediction, and its own labels. It is
        forgotten by the next `fit`.

        Parameters
        ----------
        *parties : Party
            All parties of the model with rows that it was not trained on; the first label holder has their labels, and
            perhaps `sample_weight`.
        method : {"sigmoid", "isotonic"}
            "sigmoid" is Platt's method, which fits 1 / (1 + exp(a z + b)) and does with few rows. "isotonic" is any
            function that never falls, and wants a thousand rows or more.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        Estimator
            The model itself.
        """
        loss = self._minimised()
        self._check_fitted()
        one_of("method", method, METHODS)
        if loss.kind != "binary":
            raise OptionError(
                f"{type(self).__name__} with the loss {loss.name!r} has no score of two classes to calibrate; only a "
                f"classifier of two classes has"
            )
        known = [one for one in parties if isinstance(one, Party) and one.name == self.holders_[0] and one.active]
        if not known:
            raise LabelError(f"calibrate needs the true labels of held-out rows at {self.holders_[0]!r}; give its y")
        scores, party = self.decision_function(*parties, on=on), known[0]
        of = np.asarray(party.labelled)
        y = labels.encode(np.asarray(party.y)[of], self.classes_, loss)
        weights = None if party.sample_weight is None else party.sample_weight[of]
        self.calibration_ = calibrate(method, scores[of], y, weights)
        return self


class ProbabilityMixin(CalibrationMixin):
    """Adds `predict_proba` to classifiers whose loss has probabilities."""

    def predict_proba(self: Any, *parties: Party, on: Runtime | None = None) -> Array:
        """Return the probability of each class.

        Parameters
        ----------
        *parties : Party
            The rows to predict, at all parties of the model, as for `decision_function`.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        numpy array
            One row per row of the parties, one column per class in the order of `classes_`.
        """
        how = self._minimised() if self.calibration_ is None else self.calibration_
        chances: Array = how.probability(self.decision_function(*parties, on=on))
        return chances


class OnceCalibrated:
    """A method that a model has once it is calibrated: before, it is as if there were none."""

    def __init__(self, method: Any) -> None:
        self._method = method

    def __get__(self, model: Any, kind: type[Any]) -> Any:
        if model is None:
            return self._method
        if model.calibration_ is None:
            raise AttributeError(f"{kind.__name__} has probabilities once it is calibrated; call calibrate first")
        return MethodType(self._method, model)


def in_order(parties: Any, names: tuple[str, ...], what: str) -> list[Party]:
    """Return the parties in the order of the model; each of them has to be given exactly once."""
    if not isinstance(parties, (list, tuple)):
        raise DataError(f"{what} needs a list of parties, got {type(parties).__name__}")
    given = {party.name: party for party in parties if isinstance(party, Party)}
    if len(given) != len(parties) or set(given) != set(names):
        got = [party.name if isinstance(party, Party) else type(party).__name__ for party in parties]
        raise DataError(f"{what} needs each of the parties {list(names)} once, got {got}")
    return [given[name] for name in names]


def check_columns(names: tuple[str, ...], party: Party) -> None:
    """Refuse columns other than those of the training; names are compared where both sides brought them."""
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
