"""Boosted trees between organisations: the label holder grows them, on its own columns and on ranges of the others'.

Trees are those of XGBoost (Chen and Guestrin, KDD 2016): equation (6) is a leaf's value, (7) what a split gains, and
Algorithm 1 the search over histograms, with missing values on either side (Algorithm 3). Between organisations
SecureBoost (Cheng et al., IEEE Intelligent Systems 2021) has the label holder send encrypted derivatives to partners,
who send back sums over their bins, node by node; partners see which rows are in which node, and the label holder can
solve the sums for the bins. Here neither is so, and most trees need no message at all:

1.  `agree`: each party cuts its columns into cells by itself, and tells the label holder how many there are.
2.  `prepare` (sealed): a partner sends, once, a masked hint (`crypto.hinted_sums`), by which sums over its cells can be
    read later. `tell_bins` (plain): it sends the cells.
3.  `round`: the label holder works out derivatives, and grows a tree on what it knows. In trees 1, 2, 3, 5, 8, 13, ...
    it asks about the largest nodes first: partners add up, over each of their cells, numbers that they can't read, and
    add noise (`boosting.questions`). A cut of a partner's column that would gain more than everything the label holder
    knows is *opened*: the partner tells of every row on which side it is. From then on it is a column like any other.
    A partner opens no more cuts than make `ranges` ranges of a column, whatever it is asked.
4.  `finish`: partners hear which ranges the model uses. Predictions tell these, of the people who are asked about.

docs/trees.md explains it, docs/adr/0032-sealed-trees.md argues that it is right.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from colonnade.boosting.leader import TreeLeader
from colonnade.boosting.options import MOST_BINS
from colonnade.boosting.partner import (
    ANSWER,
    BINS,
    CUTS,
    HINT,
    MODEL,
    ORDER,
    QUESTION,
    RECORD,
    SEED,
    SIDES,
    SIZES,
    TreePartner,
)  # fmt: skip
from colonnade.engine.options import Training, WholeRounds
from colonnade.errors import OptionError, at_least, whole_number
from colonnade.leaks import (
    CELL_SUMS,
    CELLS,
    COLUMNS,
    CUT_POINTS,
    OF_COLUMNS,
    OF_LABELS,
    RANGES,
    Leak,
    Setting,
    nothing,
)  # fmt: skip
from colonnade.objective import losses

RANGES_TOLD = "tree ranges"  # the step of predictions
KINDS = (SIZES, SEED, HINT, BINS, ORDER, QUESTION, ANSWER, CUTS, SIDES, RECORD, MODEL, RANGES_TOLD)
_LEAST_NOISE = 1.0


@dataclass(frozen=True)
class OpenBoosting(WholeRounds):
    """Boosted trees on all parties' cells, which the label holder gets: nothing of its labels leaves it.

    Parameters
    ----------
    label_epsilon : float, optional
        Label differential privacy: splits are chosen by labels that are randomised so that whatever partners hear
        tells each label by a factor of e^epsilon at most; leaves come from the true ones. None uses the labels.
    epochs : int
        Rounds, at most, whatever the model's `trees` says.
    seed : int
        The seed of the rows and columns that are drawn for each tree.
    """

    label_epsilon: float | None = None
    epochs: int = field(default=1_000_000, kw_only=True)

    name: ClassVar[str] = "OpenBoosting"
    family: ClassVar[str] = "trees"
    instead: ClassVar[str] = "; leave it out, and use trees, learning_rate and patience of the model"
    tells_signals: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_epsilon is not None:
            at_least("label_epsilon", self.label_epsilon, 0, strict=True, finite=True)

    def check(self, setting: Setting) -> None:
        """Refuse randomised labels where there are no classes."""
        super().check(setting)
        if self.label_epsilon is not None and losses.loss(setting.loss).kind not in ("binary", "classes"):
            raise OptionError(
                f"label_epsilon randomises classes, got {self.label_epsilon!r} for the loss {setting.loss!r}; leave "
                f"it out"
            )

    def rehearsed(self) -> Training:
        """The same in small: one round."""
        return replace(self, epochs=1)

    @property
    def ranges_at_most(self) -> int:
        """How many ranges of a partner's column the label holder learns, at most."""
        return MOST_BINS

    @property
    def noise_on_sums(self) -> float:
        """How much noise is on sums over a partner's cells; where no sums are asked for, there is none to put it on."""
        return 0.0

    def _common(self, setting: Setting) -> tuple[Leak, ...]:
        """What both ways of training show."""
        partners, leader = setting.unlabelled, (setting.leader,)
        counted = Leak(
            COLUMNS, OF_COLUMNS, partners, leader, (SIZES,),
            "{who} will learn how many columns you have, and how many cells each is cut into",
        )  # fmt: skip
        used = Leak(
            CUT_POINTS, OF_LABELS, leader, partners, (CUTS, MODEL),
            "{who} will learn which of their columns help to tell your labels, and where the model cuts them",
        )  # fmt: skip
        return (counted, used, nothing(setting, ORDER, SEED))

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Every partner's cells, row by row, at the label holder; which cuts the model uses, at partners."""
        cells = Leak(
            CELLS, OF_COLUMNS, setting.unlabelled, (setting.leader,), (BINS, SIDES, RANGES_TOLD),
            "{who} will learn in which cell of every one of your columns each of {people} is; in predictions, of "
            "everybody whom they name",
            warning="protection='plain': every partner's columns go to the label holder, each cut into as many cells "
            "as the model has bins; leave protection out, and it learns few ranges of those that help",
        )  # fmt: skip
        return (*self._common(setting), cells)

    async def train(self, session: Any) -> None:
        """All rounds, at the label holder or at a partner."""
        if isinstance(session, TreePartner):
            await self._follow(session)
        else:
            await self._lead(session)

    async def _follow(self, partner: TreePartner) -> None:
        """A partner's steps."""
        await partner.tell_sizes()
        await partner.tell_bins()
        partner.net.traffic.round()
        await partner.resume()
        await partner.serve()
        await partner.learn_model(sealed=False)

    async def _lead(self, leader: TreeLeader) -> None:
        """The label holder's steps."""
        await leader.agree(self.ranges_at_most)
        for one in leader.partners:
            await one.hear_bins()
        leader.net.traffic.round()
        leader.begin()
        await self._rounds(leader)

    async def _rounds(self, leader: TreeLeader) -> None:
        await leader.resume()
        while leader.goes_on and leader.done < self.epochs:
            await leader.round()
        await leader.finish()


@dataclass(frozen=True)
class SealedBoosting(OpenBoosting):
    """Boosted trees of which partners see neither labels, derivatives nor nodes, and open few ranges of their columns.

    Parameters
    ----------
    label_epsilon : float, optional
        Label differential privacy of what partners hear, which is where their columns are cut; see `OpenBoosting`.
    ranges : int
        How many ranges of a partner's column the label holder may learn, of the columns that it has cuts opened of.
        One of them is that of missing values, where there are any. A partner's policy may allow fewer.
    noise : float
        The standard deviation of the noise on sums over a partner's cells, in units of the largest derivative of one
        row: at least 1.
    epochs : int
        Rounds, at most, whatever the model's `trees` says.
    seed : int
        The seed of the rows and columns that are drawn for each tree; noise and masks never come from it.
    """

    ranges: int = 8
    noise: float = 10.0

    name: ClassVar[str] = "SealedBoosting"
    family: ClassVar[str] = "sealed-trees"
    seals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("ranges", self.ranges, 2)
        if self.ranges > MOST_BINS:
            raise OptionError(f"ranges must be at most {MOST_BINS}, got {self.ranges}")
        at_least("noise", self.noise, _LEAST_NOISE, finite=True)

    def rehearsed(self) -> Training:
        """The same in small: one round, and little noise, so that few rows make a cell."""
        return replace(self, epochs=1, noise=_LEAST_NOISE)

    @property
    def ranges_at_most(self) -> int:
        """How many ranges of a partner's column the label holder learns, at most."""
        return self.ranges

    @property
    def noise_on_sums(self) -> float:
        """How much noise is on sums over a partner's cells."""
        return self.noise

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Ranges of columns that splits use, and noisy sums over finer cells, at the label holder."""
        partners, leader = setting.unlabelled, (setting.leader,)
        ranges = Leak(
            RANGES, OF_COLUMNS, partners, leader, (SIDES, RANGES_TOLD),
            f"{{who}} will learn, of those of your columns that help, in which of at most {self.ranges} ranges each of "
            f"{{people}} is; in predictions, of everybody whom they name",
        )  # fmt: skip
        sums = Leak(
            CELL_SUMS, OF_COLUMNS, partners, leader, (ANSWER,),
            f"{{who}} will see sums of numbers of their own over the cells of your columns, with noise {self.noise:g} "
            f"times as large as one person counts at most",
        )  # fmt: skip
        return (*self._common(setting), ranges, sums, nothing(setting, HINT, QUESTION, RECORD))

    async def _follow(self, partner: TreePartner) -> None:
        """A partner's steps."""
        await partner.tell_sizes()
        await partner.prepare()
        await partner.tell_opened()
        await partner.resume()
        await partner.serve()
        await partner.learn_model(sealed=True)

    async def _lead(self, leader: TreeLeader) -> None:
        """The label holder's steps."""
        await leader.agree(self.ranges_at_most)
        await leader.prepare((self.noise, self.noise))
        await leader.hear_opened()
        leader.begin()
        await self._rounds(leader)
