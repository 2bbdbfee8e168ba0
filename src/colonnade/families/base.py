"""What every family of models says of itself: the keys of its jobs, how it is trained, scored, kept and described."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy.typing as npt

from colonnade.data import labels
from colonnade.defences.base import as_defended
from colonnade.engine.options import Training
from colonnade.errors import DataError, OptionError
from colonnade.families.scoring import Scorer, blurred, score_rows
from colonnade.leaks import Leak, Setting
from colonnade.objective import losses
from colonnade.objective.losses import Loss
from colonnade.runtimes.net import Net
from colonnade.settings.settings import Key, Settings
from colonnade.streams.streamed_columns import opened
from colonnade.sums import open_sum

if TYPE_CHECKING:
    from colonnade.engine.allowance import Limit
    from colonnade.engine.kept import Keeper
    from colonnade.families.training import ScoringJob, ScoringPart, TrainingJob, TrainingPart

Arrays = dict[str, Any]
# Whether rows count unequally: everybody has to know that before a label holder brings weights.
WEIGHTED = Key("weighted", bool, default=False)
# The end of a sentence about weights that a family does not take.
NO_WEIGHTS = (
    "transfer learning and learning over rows take no weights of rows, all other models do; leave them out, or train "
    "another model"
)
# The end of a sentence about offsets that a family does not take.
NO_OFFSETS = (
    "only linear models with protection 'masked' or 'plain' take them; leave them out, or for counts under protection "
    "'sealed' give counts per exposure as labels and the exposure as weight, which is the same model but for the size "
    "of l2"
)
# What each protection is for most models, for people to read.
_WORDS = {
    "sealed": "nobody learns anything from training but its own coefficients",
    "masked": "training is in the open, and sums are masked",
    "plain": "training is in the open, and sums are in the clear",
}


class Description(NamedTuple):
    """A party's part of a model for people to read: a line of text, and a table that may have no rows."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    numbers: bool = False  # whether all columns of the table but the first hold numbers


class Family(ABC):
    """One kind of model, with all that other rooms have to know about it.

    Attributes
    ----------
    name
        What it is called in files and in `TrainingJob`.
    called
        What it is called in sentences: "a kernel model".
    kinds
        {`kind` of `[model]` in a job: the loss that it stands for}; empty where no job trains such a model.
    keys
        Further keys of `[model]` that have a meaning for it.
    options
        A frozen dataclass that says what the model is, as all parties agree on it.
    algorithms
        The algorithms that train it; the first is the default.
    encryptable
        Whether its signals may be encrypted, by an algorithm that allows it as well.
    plannable
        Whether `colonnade plan` has algorithms to choose from.
    takes_own
        Whether every party brings something of its own beside columns, which is a network.
    weighs
        Whether rows may have weights, at the party with the labels.
    takes_offsets
        Whether scores may have an offset, or rows an exposure, at the party with the labels.
    minds_single
        Whether a party with a single column shows it by what it contributes, up to a factor.
    minds_scales
        Whether columns of very different sizes make its training slow.
    sealed
        Whether it is made of models that were trained sealed.
    adds_up
        Whether scores are added up over the parties, in training or in predictions; if not, a job has no sum, and no
        budget of numbers that leave in one.
    one_holder
        Whether all its algorithms need exactly one label holder.
    takes_missing
        Whether values of columns may be missing (NaN).
    blurs
        Whether a party may round its contributions to predictions, or add noise to them, see `defences.scores`.
    predicts_alone
        Whether a party without labels has all that its own predictions need, and is told what the classes are called.
    takes_categories
        Whether columns may hold codes of categories, as `Party(..., categories=...)` names them.
    over_rows
        Whether it is trained over sites with rows, by a server that asks, and is whole at every site.
    masks
        The sum that the protection "masked" stands for where nobody names one.
    validates
        Whether folds of the same rows may be trained and scored side by side (`validation.program`).
    reads_stored
        Whether a party's prepared columns may be on the disk while it is trained.
    reads_once
        Whether training reads prepared columns once, in their order, whatever its algorithm.
    lacks
        {protection that it does not have: why, and what it has instead}, as the end of a sentence that begins with the
        word; see `families.protection`.
    """

    name: ClassVar[str]
    called: ClassVar[str]
    kinds: ClassVar[Mapping[str, str]] = {}
    keys: ClassVar[tuple[Key, ...]] = ()
    options: ClassVar[type[Any]]
    algorithms: ClassVar[tuple[type[Training], ...]] = ()
    encryptable: ClassVar[bool] = False
    plannable: ClassVar[bool] = False
    takes_own: ClassVar[bool] = False
    weighs: ClassVar[bool] = False
    takes_offsets: ClassVar[bool] = False
    minds_single: ClassVar[bool] = True
    minds_scales: ClassVar[bool] = False
    sealed: ClassVar[bool] = False
    adds_up: ClassVar[bool] = True
    one_holder: ClassVar[bool] = False
    takes_missing: ClassVar[bool] = False
    takes_categories: ClassVar[bool] = False
    blurs: ClassVar[bool] = False
    predicts_alone: ClassVar[bool] = False
    over_rows: ClassVar[bool] = False
    masks: ClassVar[str] = "pairwise"
    validates: ClassVar[bool] = False
    reads_stored: ClassVar[bool] = False
    reads_once: ClassVar[bool] = False
    lacks: ClassVar[Mapping[str, str]] = {"sealed": "is for linear models; this model is trained in the open"}

    # -- jobs ---------------------------------------------------------------------------------------------------

    def default_algorithm(self, *, encrypted: bool) -> type[Training]:
        """Return what "auto" is in a job, where nobody is told beforehand how many columns another party has."""
        return self.algorithms[0]

    def trained_by(self, algorithm: Training) -> str:
        """Return the name of the family that training yields: an algorithm may make another model of these options."""
        return self.name

    def loss_of(self, model: Settings) -> str:
        """Return the name of the loss that a job's `[model]` stands for."""
        return self.kinds[model["kind"]]

    def with_options(self, options: Any) -> str:
        """Return the name of the family that these options of a job's `[model]` ask for."""
        return self.name

    def read_options(self, model: Settings) -> Any:
        """Return the options that a job has in `[model]`."""
        raise DataError(f"a {self.called} model is not for jobs")

    def check_holders(self, model: str, loss: str, holders: tuple[str, ...], options: Any) -> None:
        """Refuse what this family can't train with these label holders; `model` is what the user calls the model."""
        return

    def check_job(self, model: str, job: TrainingJob, parties: tuple[str, ...]) -> None:
        """Refuse jobs that this family can't train between these parties; `model` is what the user calls the model."""
        return

    def check_weighs(self, party: str) -> None:
        """Refuse weights of a party's rows where this family's training does not take any."""
        if not self.weighs:
            raise DataError(f"party {party!r} gives rows weights: {NO_WEIGHTS}")

    def check_offsets(self, party: str, loss: str, holders: tuple[str, ...], *, exposure: bool = False) -> None:
        """Refuse offsets of a party's scores, or its exposure, where this family's training does not take any."""
        if not self.takes_offsets:
            raise DataError(f"party {party!r} gives rows an offset or an exposure: {NO_OFFSETS}")
        if len(holders) > 1:
            raise DataError(
                f"party {party!r} gives rows an offset or an exposure, which needs exactly one label holder, got "
                f"{', '.join(map(repr, holders))}; give y to one Party only"
            )
        if exposure and not losses.loss(loss).log_link:
            raise DataError(
                f"party {party!r} gives rows an exposure, which models with a log link take (Poisson, gamma, Tweedie, "
                f"negative binomial), not one with the loss {loss!r}; leave it out"
            )
        if losses.loss(loss).kind == "classes":
            raise DataError(
                f"party {party!r} gives rows an offset, and {loss!r} has a score for every class; leave it out"
            )

    def setting(self, options: Any) -> dict[str, Any]:
        """Return those fields of `leaks.Setting` that follow from the options: they decide what is shown to whom."""
        return {"model": self.name}

    def leaks(self, setting: Setting, algorithm: Training) -> tuple[Leak, ...]:
        """Return everything that training shows, and to whom."""
        return algorithm.leaks(setting)

    def warnings(self, setting: Setting, algorithm: Training) -> tuple[str, ...]:
        """Return what a user should be told before training starts, because not everybody expects it."""
        leaks = as_defended(self.leaks(setting, algorithm), setting)
        return (*algorithm.warnings(setting), *dict.fromkeys(leak.warning for leak in leaks if leak.warning))

    def protection_words(self, protection: str, algorithm: Training, leader: str) -> str:
        """Say what a protection is for models of this family; `leader` is the first label holder."""
        return _WORDS[protection]

    def rounds(self, job: TrainingJob) -> int:
        """Return after how many epochs training ends at the latest."""
        return job.algorithm.epochs

    def rehearsed(self, options: Any) -> Any:
        """Return the options of a rehearsal, which has few rows."""
        return options

    def keeps_best(self, job: TrainingJob, held_out: int) -> bool:
        """Return whether the model is that of the best evaluation rather than of the last one."""
        return job.algorithm.schedule == "adaptive" or held_out > 0

    def leaders_columns(self, options: Any) -> int:
        """Return how many columns the first label holder has beside its own, such as an intercept."""
        return 0

    def least_numbers(self, algorithm: Training, options: Any, sizes: tuple[int, int, int, int]) -> float:
        """Return how many numbers about each row leave a party in the shortest run.

        `sizes` are what `Training.least_numbers` takes: outputs, parties, holders, batches.
        """
        return algorithm.least_numbers(*sizes)

    def start_of(self, state: Any) -> Any:
        """Return `own` of a `TrainingPart` whose training goes on from this state, where there is such a thing."""
        raise OptionError(
            f"a {self.called} model is trained from its beginning; linear models with protection 'masked' or 'plain' "
            f"can start from an earlier version; leave out --from"
        )

    def counted(self, sum_name: str) -> str:
        """Say what a run counts for in a party's budget, where that is not by what leaves of each row; else ""."""
        return ""

    def class_labels(self, y: Any, loss: Loss) -> npt.NDArray[Any]:
        """Return the classes of labels, once they are found to be what this family's models can tell apart."""
        return labels.class_labels(y, loss)

    def brings(self, own: Any, everything: Callable[[], tuple[Any, Any, Any]]) -> Any:
        """Return `own` of a `TrainingPart` in a job.

        `everything` returns columns, labels and which rows have one of all of the party's rows that are not held out,
        whether the others have them too or not.
        """
        return own

    def of_people(self, me: str, own: Any, algorithm: Training, times: int) -> Any:
        """Return what a party brings where as many as `times` rows are about one person, as another party says.

        What it allows is about people; by default it says nothing of rows.
        """
        return own

    def try_own(self, party: str, own: Any, columns: int, seed: int, job: Any) -> str:
        """Try out what a party brings beside columns to a job, and return a few words about it."""
        raise DataError(f"a {self.called} model takes nothing but columns")

    # -- training and use ---------------------------------------------------------------------------------------

    @abstractmethod
    async def train(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Train, and return this party's state and nothing else.

        Parameters
        ----------
        net
            This party's side of the network.
        job
            What all parties agree on.
        part
            What this party brings.
        keeper
            Where this party keeps its progress, so that the run can go on after a break; if one party has a keeper, all
            have.
        budget
            How many numbers about each row may leave this party, in a run between organisations, where all have a
            budget.
        """

    def on_path(self, job: TrainingJob) -> float | None:
        """Return how strong a job's penalty is, if a fit may start where one with a stronger penalty ended; else None.

        It may where the optimum is the same wherever training starts, and where parameters to start with are taken.
        """
        return None

    @abstractmethod
    def scorer(self, me: str, job: ScoringJob, state: Any, own: Any) -> Scorer:
        """Return a party's part of a trained model in the form that scoring takes."""

    async def score(self, net: Net, job: ScoringJob, part: ScoringPart) -> Any:
        """Score new rows: the first label holder returns their scores, the other parties return None."""
        secure = await open_sum(job.sum, net, job.topology)
        scorer = blurred(self.scorer(net.me, job, part.state, part.own), job.blur)
        return await score_rows(secure, scorer, opened(part.X), job.holders[0])

    def decode(self, loss: str, totals: Any) -> Any:
        """Turn the sums of all parties' parts into scores."""
        return totals

    # -- what is kept -------------------------------------------------------------------------------------------

    @abstractmethod
    def to_arrays(self, state: Any) -> Arrays:
        """Return a party's state as named arrays, as its file has them."""

    @abstractmethod
    def from_arrays(self, arrays: Arrays) -> Any:
        """Return the state that `to_arrays` turned into these arrays."""

    def facts(self, job: TrainingJob) -> dict[str, Any]:
        """Return what every party's file says about the model beside its options."""
        return {}

    def scoring_facts(self, public: Mapping[str, Any]) -> dict[str, Any]:
        """Return what scoring has to know, out of what a party's file says."""
        return {}

    def estimator(self, loss: str) -> str:
        """Return the name of the class of `colonnade` that models with this loss belong to."""
        raise DataError(f"a {self.called} model is not for jobs")

    def estimator_options(self, options: Any, loss: str) -> dict[str, Any]:
        """Return the options of that class which these options stand for."""
        raise DataError(f"a {self.called} model is not for jobs")

    def numbers(self, public: Mapping[str, Any], state: Any) -> int:
        """Return how many numbers about a person leave a party in a prediction."""
        raise DataError(f"a {self.called} model is not for jobs")

    # -- words --------------------------------------------------------------------------------------------------

    def describe(
        self,
        party: str,
        public: Mapping[str, Any],
        state: Any,
        columns: tuple[str, ...],
        classes: npt.NDArray[Any],
    ) -> Description:
        """Return a party's part of a model as its owner may read it."""
        raise DataError(f"a {self.called} model is not for jobs")
