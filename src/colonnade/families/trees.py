"""Boosted trees: the label holder has the trees, every other party the ranges of its columns that they ask about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.boosted import OpenBoosting, SealedBoosting
from colonnade.blocks.bins import Bins
from colonnade.blocks.columns import Columns
from colonnade.blocks.cuts import SpreadColumns
from colonnade.boosting.derivatives import balanced
from colonnade.boosting.forest import Forest
from colonnade.boosting.leader import TreeLeader
from colonnade.boosting.options import TreeOptions, TreePart, check_rows
from colonnade.boosting.partner import TreePartner
from colonnade.boosting.questions import questions_of
from colonnade.boosting.ranges import Codes, ColumnSizes
from colonnade.boosting.rounds import TreeLabels
from colonnade.crypto.keystream import Keystream
from colonnade.defences.responses import randomised
from colonnade.engine.allowance import Limit
from colonnade.engine.kept import Keeper
from colonnade.engine.options import Training
from colonnade.errors import DataError, LabelError, OptionError, PolicyRefused
from colonnade.families.base import Arrays, Description, Family
from colonnade.families.training import ScoringJob, TrainingJob, TrainingPart
from colonnade.families.tree_scoring import TreeScorer
from colonnade.families.tree_states import arrays_of, state_of
from colonnade.leaks import Leak, Setting
from colonnade.objective import losses
from colonnade.runtimes.net import Net
from colonnade.settings.settings import Key, Settings
from colonnade.streams.streamed_columns import opened

Floats = npt.NDArray[np.float64]
_CELL_PER_NOISE = 5  # rows of training that a partner's cell has at least, times the noise: fewer would be drowned
_MODELS = {
    "trees": "logistic",
    "trees-softmax": "softmax",
    "trees-regression": "square",
    "trees-poisson": "poisson",
    "trees-gamma": "gamma",
    "trees-tweedie": "tweedie 1.5",
    "trees-quantile": "quantile 0.5",
}
# Kinds whose loss has a parameter, and the key that gives it.
_PARAMETERS = {"trees-tweedie": "power", "trees-quantile": "level"}


def _between(low: int, high: int) -> Callable[[float], str | None]:
    """Return a check of a job's key for a number between these two, which are not allowed themselves."""
    return lambda value: None if low < value < high else f"must be above {low} and below {high}, got {value:g}"


# Why weights of classes do not go with labels that are shown at random.
TELL_LABELS = "label_epsilon hides labels, and weights that balance classes tell them; leave one of them out"


class TreesFamily(Family):
    """Boosted trees on cells that all parties gave to the label holder.

    A state is (bins, forest, partners, ranges). The label holder has its forest, and (name, cells of each column) of
    every partner; a partner has, for each of its columns, the first cell of every cell's range in the model, or None
    where the model does not use it.
    """

    name: ClassVar[str] = "trees"
    called: ClassVar[str] = "tree"
    reads_stored: ClassVar[bool] = True
    reads_once: ClassVar[bool] = True
    kinds: ClassVar[Mapping[str, str]] = _MODELS
    keys: ClassVar[tuple[Key, ...]] = (
        Key("trees", int, default=TreeOptions.trees, least=1, most=100_000),
        Key("learning_rate", float, default=TreeOptions.learning_rate, above=0),
        Key("depth", int, default=TreeOptions.depth, least=1, most=16),
        Key("leaves", int, least=2),
        Key("l2", float, default=TreeOptions.l2, least=0),
        Key("min_gain", float, default=TreeOptions.min_gain, least=0),
        Key("min_child_weight", float, default=TreeOptions.min_child_weight, least=0),
        Key("rows", float, default=TreeOptions.rows, above=0, most=1),
        Key("columns", float, default=TreeOptions.columns, above=0, most=1),
        Key("bins", int, default=TreeOptions.bins, least=2, most=256),
        Key("balanced", bool, default=TreeOptions.balanced),
        Key("patience", int, least=1),
        Key("power", float, default=1.5, check=_between(1, 2)),
        Key("level", float, default=0.5, check=_between(0, 1)),
    )
    options: ClassVar[type[Any]] = TreeOptions
    algorithms: ClassVar[tuple[type[Training], ...]] = (SealedBoosting, OpenBoosting)
    weighs: ClassVar[bool] = True
    validates: ClassVar[bool] = True
    minds_single: ClassVar[bool] = False
    adds_up: ClassVar[bool] = False
    one_holder: ClassVar[bool] = True
    takes_missing: ClassVar[bool] = True
    takes_categories: ClassVar[bool] = True
    lacks: ClassVar[Mapping[str, str]] = {
        "masked": "is for sums of scores; trees have 'sealed', in which partners see neither labels nor nodes and open "
        "few ranges of their columns, or 'plain'"
    }

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def trained_by(self, algorithm: Training) -> str:
        """Return the algorithm's own family: sealed training makes the same model, and says so."""
        return algorithm.family

    def loss_of(self, model: Settings) -> str:
        """Return the loss of a kind, with the power or the level that the job gives."""
        kind = model["kind"]
        for of, key in _PARAMETERS.items():
            if key in model.given and of != kind:
                raise model.error(key, f"has no meaning for kind {kind!r}, only for {of!r}; remove it")
        usual = self.kinds[kind]
        if kind not in _PARAMETERS:
            return usual
        return losses.loss(f"{usual.split(' ')[0]} {model[_PARAMETERS[kind]]!r}").name

    def read_options(self, model: Settings) -> TreeOptions:
        """Return what a job says of its trees."""
        return TreeOptions(**{name: model[name] for name in TreeOptions.__dataclass_fields__})

    def check_holders(self, model: str, loss: str, holders: tuple[str, ...], options: Any) -> None:
        """Refuse several label holders, and options that can't be."""
        if len(holders) != 1:
            raise LabelError(
                f"boosted trees need exactly one label holder, got {', '.join(map(repr, holders))}, as one party works "
                f"out derivatives and grows the trees; give y to one Party only"
            )
        options.check()
        if options.balanced and losses.loss(loss).kind not in ("binary", "classes"):
            raise OptionError(f"balanced is for classes, which the loss {loss!r} has none of; leave it out")

    def setting(self, options: Any) -> dict[str, Any]:
        """Say what kind of model it is."""
        return {"model": TreesFamily.name}

    def protection_words(self, protection: str, algorithm: Training, leader: str) -> str:
        """Say what partners do not see, and what the label holder learns of their columns."""
        if isinstance(algorithm, SealedBoosting):
            return (
                f"partners see neither labels nor which people are in which node of a tree; {leader} learns, of their "
                f"columns that help, in which of at most {algorithm.ranges} ranges each person is"
            )
        return f"{leader} gets every column of its partners, cut into as many cells as the model has bins"

    def rounds(self, job: TrainingJob) -> int:
        """Return how many rounds there are, at most."""
        return min(job.algorithm.epochs, int(job.options.trees))

    def rehearsed(self, options: Any) -> Any:
        """Return the options of a rehearsal, which has few rows, and of no model that is trained further."""
        return replace(options, bins=min(options.bins, 8), trees=1, patience=None)

    def keeps_best(self, job: TrainingJob, held_out: int) -> bool:
        """Return whether trees after the best round were left out, which patience asks for."""
        return job.options.patience is not None and held_out > 0

    def of_people(self, me: str, own: Any, algorithm: Training, times: int) -> Any:
        """Ask for so many times the rows in a cell and the noise on sums: a person counts with each of its rows."""
        if own is None or times == 1:
            return own
        part, noise = TreePart(*own), cast(OpenBoosting, algorithm).noise_on_sums
        least = times * part.least_noise
        if isinstance(algorithm, SealedBoosting) and noise < least:
            raise PolicyRefused(
                f"the job puts noise of {noise:g} on sums over cells, a person has up to {times} rows, and the policy "
                f"of {me!r} asks for {part.least_noise:g} times what a person counts, so for {least:g}; raise noise in "
                f"[algorithm], have people in fewer rows, or lower min_noise in its [policy]"
            )
        return replace(part, least_rows=times * part.least_rows, least_noise=least).as_value()

    # -- training and use ----------------------------------------------------------------------------------------------

    async def train(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Cut this party's columns into cells, then lead or follow."""
        algorithm, options, own = cast(OpenBoosting, job.algorithm), job.options, _own(part)
        leads, sealing = net.me == job.holders[0], self._sealing(algorithm)
        columns = opened(part.X)
        rows = columns.shape[0]
        check_rows(net.me, rows, options.bins)
        questions = 0 if sealing is None else questions_of(self.rounds(job), job.outputs)
        if not leads:
            most = min(algorithm.ranges_at_most, options.bins)
            own.check_limits(net.me, most, questions, algorithm.noise_on_sums)
        earlier = own.earlier
        if earlier is None:
            bins = await net.in_thread(lambda: bins_of(net.me, columns, options, algorithm, own, leads=leads))
        else:
            bins = Bins.from_arrays(dict(earlier[0]))
        cells = await net.in_thread(_cells, bins, columns, part)
        elsewhere = None
        if isinstance(columns, SpreadColumns):
            elsewhere = columns.spread_cells()
            for one in (columns, *(() if part.validation is None else part.validation[:1])):
                one.forget()  # from here on there are only cells
        sizes = ColumnSizes(
            tuple(bins.counts.tolist()), tuple(bins.missing.tolist()), tuple(bins.categorical.tolist()),
            own.signs(net.me, columns.shape[1]),
        )  # fmt: skip
        mine = tuple(bins.to_arrays().items())
        if leads:
            labels = self._labels(net, job, part, algorithm)
            forest = None if earlier is None else Forest.from_arrays(dict(earlier[1]))
            leader = TreeLeader(net, options, algorithm.seed, labels, sizes, cells, forest, keeper, elsewhere)
            await algorithm.train(leader)
            others = tuple((one.name, one.sizes.counts) for one in leader.partners)
            return (mine, tuple(leader.forest.to_arrays().items()), others, None)
        if earlier is not None:
            own = replace(own, earlier=earlier[3])
        ranges = algorithm.ranges_at_most
        partner = TreePartner(net, job.holders[0], sizes, cells, rows, own, ranges, sealing, keeper, questions)
        await algorithm.train(partner)
        return (mine, None, None, partner.final)

    def _sealing(self, algorithm: Training) -> tuple[int, tuple[float, float]] | None:
        if not isinstance(algorithm, SealedBoosting):
            return None
        return algorithm.seed, (algorithm.noise, algorithm.noise)

    def _labels(self, net: Net, job: TrainingJob, part: TrainingPart, algorithm: OpenBoosting) -> TreeLabels:
        """Return the labels, with weights; every row needs one."""
        held_out = part.validation
        for mask in (part.labelled, None if held_out is None else held_out[2]):
            if mask is not None and not mask.all():
                raise LabelError(
                    f"boosted trees need a label for every row, and party {net.me!r} lacks {int((~mask).sum())}; leave "
                    f"these rows out at every party"
                )
        loss, y = losses.loss(job.loss), np.asarray(part.y)
        weights = part.weights
        if job.options.balanced:
            weights = balanced(y, np.unique(y)) * (1.0 if weights is None else weights)
        shown = None
        if algorithm.label_epsilon is not None:
            if job.options.balanced:
                raise OptionError(TELL_LABELS)
            if job.options.patience is not None:
                raise OptionError(
                    "label_epsilon hides labels, and patience ends training where the true ones of held-out rows say "
                    "so; leave one of them out"
                )
            stream = Keystream(net.secret("shown labels"))
            shown = randomised(y, loss.kind, job.outputs, algorithm.label_epsilon, stream)
        if held_out is None and job.options.patience is not None:
            raise DataError(
                f"patience={job.options.patience} stops training by held-out rows, and there are none; hold some out, "
                f"or leave patience out"
            )
        apart = None if held_out is None else held_out[1]
        return TreeLabels(loss, job.outputs, y, weights, shown, apart, part.held_out_weights)

    def scorer(self, me: str, job: ScoringJob, state: Any, own: Any) -> TreeScorer:
        """Return a party's side of a prediction."""
        return TreeScorer(me, state, cells=job.facts.get("wants") == "cells")

    # -- what is kept --------------------------------------------------------------------------------------------------

    def to_arrays(self, state: Any) -> Arrays:
        """Return bins and forest field by field, who the partners are, and which ranges are told."""
        return arrays_of(state)

    def from_arrays(self, arrays: Arrays) -> Any:
        """Return the state of these arrays; a file is not believed."""
        return state_of(arrays)

    def facts(self, job: TrainingJob) -> dict[str, Any]:
        """Return the loss, which a classifier's options do not tell."""
        return {"loss": job.loss}

    def estimator(self, loss: str) -> str:
        """Return the classifier for classes, and the regressor for everything else."""
        return "BoostedTreesClassifier" if loss in ("logistic", "softmax") else "BoostedTreesRegressor"

    def estimator_options(self, options: Any, loss: str) -> dict[str, Any]:
        """Return the options of the estimator that these stand for."""
        found = {name: getattr(options, name) for name in TreeOptions.__dataclass_fields__ if name != "balanced"}
        found["class_weight"] = "balanced" if options.balanced else None
        if self.estimator(loss) == "BoostedTreesRegressor":
            del found["class_weight"]
            found["loss"] = loss
        return found

    def numbers(self, public: Mapping[str, Any], state: Any) -> int:
        """Return how many columns the model uses of this party: one range of each is told about a person."""
        ranges = state[3]
        return 0 if ranges is None else sum(one is not None for one in ranges)

    # -- words ---------------------------------------------------------------------------------------------------------

    def describe(
        self,
        party: str,
        public: Mapping[str, Any],
        state: Any,
        columns: tuple[str, ...],
        classes: npt.NDArray[Any],
    ) -> Description:
        """Describe the trees and what each column gains, or the ranges of a partner's columns that are told."""
        _, forest, partners, ranges = state
        if forest is None:
            told = [(columns[k], str(len(np.unique(one)))) for k, one in enumerate(ranges) if one is not None]
            title = f"{len(told)} of {len(columns)} columns are asked about"
            return Description(title, ("column", "ranges"), told, numbers=True)
        whole = Forest.from_arrays(dict(forest))
        names = [*columns, *(f"{name} column {k + 1}" for name, counts in partners for k in range(len(counts)))]
        inner = whole.feature >= 0
        gain = np.bincount(whole.feature[inner], whole.gain[inner], minlength=len(names))
        splits = np.bincount(whole.feature[inner], minlength=len(names))
        total = float(gain.sum()) or 1.0
        rows = [
            (names[k], f"{gain[k] / total:.1%}", f"{splits[k]:,}")
            for k in np.argsort(-gain, kind="stable")
            if splits[k]
        ]
        return Description(f"{whole.trees:,} trees", ("column", "gain", "splits"), rows, numbers=True)


class SealedTreesFamily(TreesFamily):
    """The same trees, grown without partners seeing anything but where their columns are cut."""

    name: ClassVar[str] = "sealed-trees"
    kinds: ClassVar[Mapping[str, str]] = {}
    sealed: ClassVar[bool] = True
    algorithms: ClassVar[tuple[type[Training], ...]] = (SealedBoosting,)

    def leaks(self, setting: Setting, algorithm: Training) -> tuple[Leak, ...]:
        """Return what the algorithm shows; held-out rows are shown as training rows are."""
        return algorithm.leaks(setting)


def least_rows(algorithm: OpenBoosting, own: TreePart, *, leads: bool) -> int:
    """Return how many training rows a cell of a party has: as many as it asks for, and more than noise would drown."""
    noise = algorithm.noise if isinstance(algorithm, SealedBoosting) and not leads else 0.0
    return max(own.least_rows, round(_CELL_PER_NOISE * noise), 1)


def bins_of(
    me: str, columns: Columns, options: TreeOptions, algorithm: OpenBoosting, own: TreePart, *, leads: bool
) -> Bins:
    """Cut a party's columns into cells; refuse those of a partner of which none has two cells."""
    least = least_rows(algorithm, own, leads=leads)
    bins = Bins.of(columns, options.bins, categorical=own.categories, least=least, seed=algorithm.seed)
    if not leads and (bins.counts < 2).all():
        rows, width = columns.shape
        raise DataError(
            f"none of the {width} columns of party {me!r} can be cut into two cells of at least {least} of its {rows} "
            f"training rows; bring columns that vary, or more rows, or lower what asks for so many: min_cell in its "
            f"policy, or the noise, of which {_CELL_PER_NOISE} times as many rows make a cell"
        )
    return bins


def _own(part: TrainingPart) -> TreePart:
    return TreePart() if part.own is None else TreePart(*part.own)


def _cells(bins: Bins, columns: Columns, part: TrainingPart) -> Codes:
    """Return the cells of training rows, and behind them those of held-out rows."""
    found: Codes = bins.cells(columns)
    if part.validation is None:
        return found
    return np.concatenate([found, bins.cells(opened(part.validation[0]))], axis=1)
