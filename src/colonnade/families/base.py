"""What every family of models says of itself: the keys of its jobs, how it is trained, scored, kept and described."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy.typing as npt

from colonnade.blocks.columns import columns_from_value
from colonnade.engine.options import Training
from colonnade.errors import DataError
from colonnade.families.scoring import Scorer, score_rows
from colonnade.leaks import Leak, Setting
from colonnade.runtimes.net import Net
from colonnade.settings.settings import Key, Settings
from colonnade.sums import open_sum

if TYPE_CHECKING:
    from colonnade.engine.allowance import Limit
    from colonnade.engine.kept import Keeper
    from colonnade.families.training import ScoringJob, ScoringPart, TrainingJob, TrainingPart

Arrays = dict[str, Any]


class Description(NamedTuple):
    """A party's part of a model as a person reads it: a line of text, and a table that may have no rows."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    numbers: bool = False  # whether columns but the first are of numbers


class Family(ABC):
    """One kind of model.

    Attributes
    ----------
    name
        What it is called in files and in `TrainingJob`.
    called
        What it is called in sentences: "a kernel model".
    kinds
        The `kind` of `[model]` in a job, and the loss that each stands for; empty where no job trains it.
    keys
        Further keys of `[model]` that have a meaning for it.
    options
        A frozen dataclass: what the model is, as all parties agree on it.
    algorithms
        Algorithms that train it; the first is the default.
    encryptable
        Whether its signals may be encrypted, by an algorithm that allows it as well.
    plannable
        Whether `colonnade plan` has algorithms to choose from.
    takes_own
        Whether every party brings something of its own beside columns: a network.
    minds_scales
        Whether columns of very different size make its training crawl.
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
    minds_scales: ClassVar[bool] = False

    # -- jobs ---------------------------------------------------------------------------------------------------

    def default_algorithm(self, *, encrypted: bool) -> type[Training]:
        """What `algorithm = "auto"` is in a job, where nobody is told beforehand how many columns another party has."""
        return self.algorithms[0]

    def trained_by(self, algorithm: Training) -> str:
        """The name of the family that comes of it: an algorithm may make another model of the same options."""
        return self.name

    def read_options(self, model: Settings) -> Any:
        """The options that stand in `[model]`."""
        raise DataError(f"a {self.called} model is not for jobs")

    def check_holders(self, model: str, loss: str, holders: tuple[str, ...], options: Any) -> None:
        """Refuse what this family can't train with these label holders; model: what the user calls it."""
        return

    def setting(self, options: Any) -> dict[str, Any]:
        """What of the options decides what is shown to whom: fields of `leaks.Setting`."""
        return {"model": self.name}

    def leaks(self, setting: Setting, algorithm: Training) -> tuple[Leak, ...]:
        """All that training shows to whom."""
        return algorithm.leaks(setting)

    def warnings(self, setting: Setting, algorithm: Training) -> tuple[str, ...]:
        """What a user should be told before training starts, because not everybody expects it."""
        leaks = self.leaks(setting, algorithm)
        return (*algorithm.warnings(setting), *dict.fromkeys(leak.warning for leak in leaks if leak.warning))

    def leaders_columns(self, options: Any) -> int:
        """Columns that the first label holder has beside its own: an intercept."""
        return 0

    def least_numbers(self, algorithm: Training, options: Any, sizes: tuple[int, int, int, int]) -> float:
        """Numbers about each row that leave a party in the shortest run; sizes: those of `Training.least_numbers`."""
        return algorithm.least_numbers(*sizes)

    def try_own(self, party: str, own: Any, columns: int, seed: int) -> str:
        """What a party brings beside columns, tried out, in a few words."""
        raise DataError(f"a {self.called} model takes nothing but columns")

    # -- training and use ---------------------------------------------------------------------------------------

    @abstractmethod
    async def train(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Train; returns this party's state and nothing else.

        keeper: where this party keeps its progress, if the run shall be able to go on after a break; then all have one.
        budget: how many numbers about each row may leave this party, between organisations; then all have one.
        """

    @abstractmethod
    def scorer(self, me: str, job: ScoringJob, state: Any, own: Any) -> Scorer:
        """A party's part of a trained model, as scoring takes it."""

    async def score(self, net: Net, job: ScoringJob, part: ScoringPart) -> Any:
        """Scores of new rows at the first label holder; the others return None."""
        secure = await open_sum(job.sum, net, job.topology)
        scorer = self.scorer(net.me, job, part.state, part.own)
        return await score_rows(secure, scorer, columns_from_value(part.X), job.holders[0])

    def decode(self, loss: str, totals: Any) -> Any:
        """Scores, out of what the parties' parts add up to."""
        return totals

    # -- what is kept -------------------------------------------------------------------------------------------

    @abstractmethod
    def to_arrays(self, state: Any) -> Arrays:
        """A party's state as arrays with names, as its file has them."""

    @abstractmethod
    def from_arrays(self, arrays: Arrays) -> Any:
        """The state of these arrays: undoes `to_arrays`."""

    def facts(self, job: TrainingJob) -> dict[str, Any]:
        """What a party's file says beside the model's options, for everybody to know."""
        return {}

    def scoring_facts(self, public: Mapping[str, Any]) -> dict[str, Any]:
        """What scoring needs of all that stands in a party's file."""
        return {}

    def estimator(self, loss: str) -> str:
        """The class of `colonnade` whose model this is."""
        raise DataError(f"a {self.called} model is not for jobs")

    def estimator_options(self, options: Any, loss: str) -> dict[str, Any]:
        """The options of that class which these stand for."""
        raise DataError(f"a {self.called} model is not for jobs")

    def numbers(self, public: Mapping[str, Any], state: Any) -> int:
        """Numbers about a person that leave a party in a prediction."""
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
        """A party's part of a model, for its owner's eyes."""
        raise DataError(f"a {self.called} model is not for jobs")
