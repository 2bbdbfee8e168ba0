"""What every estimator has: scikit-learn's conventions, the record of a run, predictions and their score, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy.typing as npt

from colonnade.audit.findings import MAX_ADVANTAGE
from colonnade.conventions import preparing
from colonnade.conventions.files import FileMixin
from colonnade.conventions.matching import check_columns, in_order
from colonnade.conventions.parameters import ParameterMixin
from colonnade.conventions.predictions import PredictionMixin
from colonnade.conventions.shown import NotebookMixin
from colonnade.conventions.tags import TagsMixin
from colonnade.conventions.thresholds import ThresholdMixin
from colonnade.data.party import Party
from colonnade.data.together import check_together
from colonnade.engine.exposure import ENCRYPTED
from colonnade.errors import DataError, LabelError, MissingUntilFitted, NotFittedError, OptionError, needed
from colonnade.families import family
from colonnade.families.checks import (
    all_labels,
    check_offsets,
    check_values,
    check_weights,
    tell,
    warn_after,
    warn_before,
)
from colonnade.families.protection import AUTO, HIDES_NOTHING, MASKED, check_word, masked_sum, protection_of
from colonnade.families.training import TrainingJob, TrainingPart, train
from colonnade.notebooks.records import ByParty, Course
from colonnade.objective import losses, metrics
from colonnade.objective.calibration import Calibration
from colonnade.progress import History
from colonnade.runtimes.net import Outcome, Program, Runtime, Traffic
from colonnade.runtimes.simulation import Simulation
from colonnade.runtimes.times import Times
from colonnade.sums import choose_sum
from colonnade.sums.trees import check_kind
from colonnade.tables.learned import LearnedPreparation
from colonnade.timelines.again import TimelineMixin
from colonnade.versions.identity import own_id

if TYPE_CHECKING:
    from colonnade.audit.auditing import Audit

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="Estimator")
Programs = Mapping[str, tuple[Program, tuple[Any, ...]]]


class Estimator(ParameterMixin, PredictionMixin, ThresholdMixin, FileMixin, TimelineMixin, NotebookMixin, TagsMixin):
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
        self.history_ = Course(history.records)
        self.traffic_ = ByParty({name: outcome.traffic for name, outcome in outcomes.items()})
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
                f"'pairwise', 'neighbours', 'two-trees' or 'plain'"
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
        pd = needed("pandas", "history_frame()")

        return pd.DataFrame(self.history_)

    # -- audit --------------------------------------------------------------------------------------------------

    def audit(
        self,
        *parties: Party,
        attacks: Sequence[str] | None = None,
        attackers: Sequence[str] | None = None,
        threshold: float = MAX_ADVANTAGE,
        slow: bool = False,
        seed: int = 0,
        others: Sequence[Party] | None = None,
        hidden: Mapping[str, Any] | None = None,
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
        others : list of Party, optional
            The same parties with rows of people who were not trained on, such as those of `validation` in `fit`.
            Attacks on membership need them, with labels, and attackers who know people from elsewhere.
        hidden : dict, optional
            {party: a bool for each of its rows}, a property of people that nobody trained on, of which it is asked
            whether others could infer it; by default, of each party, the column of two values that is most balanced.

        Returns
        -------
        Audit
            The findings, worst first; `print` shows them as a table, and `to_frame` returns a pandas frame.
        """
        from colonnade.audit.of_model import audit_model

        self._check_fitted()
        # As training had them: columns that are still to be prepared are no numbers that a guess could be held against.
        ordered = tuple(preparing.applied(in_order(parties, self.parties_, "audit"), self.preparations_))
        rows = getattr(self, "rows_", None)  # which not every model notes
        if rows is not None and ordered[0].rows != rows:
            raise DataError(
                f"the model was trained on {rows} rows, the parties have {ordered[0].rows} here; give those that it "
                f"was trained on"
            )
        apart = None if others is None else in_order(others, self.parties_, "others")
        return audit_model(
            self,
            ordered,
            attacks=attacks,
            attackers=attackers,
            threshold=threshold,
            slow=slow,
            seed=seed,
            others=None if apart is None else tuple(preparing.applied(apart, self.preparations_)),
            hidden=hidden,
        )
