"""Estimators of boosted trees over several parties, of which one holds the labels and grows the trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.boosted import OpenBoosting, SealedBoosting
from colonnade.blocks.column_values import columns_to_value
from colonnade.boosting.options import TreeOptions, TreePart
from colonnade.conventions.probabilities import ProbabilityMixin
from colonnade.data import labels
from colonnade.data.party import Party
from colonnade.data.together import check_together
from colonnade.defences.base import Defence
from colonnade.defences.registry import checked
from colonnade.errors import DataError, LabelError, OptionError, one_of
from colonnade.estimators.base import Estimator
from colonnade.estimators.initial import check_goes_on
from colonnade.estimators.tree_explanations import TreeExplanations
from colonnade.families import family
from colonnade.families.checks import all_labels, label_holders, with_class_weights
from colonnade.families.protection import AUTO, PLAIN, check_sealed, check_word
from colonnade.families.training import ScoringPart, TrainingJob
from colonnade.families.trees import TELL_LABELS, TreesFamily
from colonnade.objective import losses
from colonnade.runtimes.net import Runtime, check_runtime

Array = npt.NDArray[Any]
Model = TypeVar("Model", bound="BoostedTrees")
_OPTIONS = tuple(name for name in TreeOptions.__dataclass_fields__ if name != "balanced")


class BoostedTrees(TreeExplanations, Estimator):
    """Boosted trees over all parties' columns; the base of the classifier and the regressor.

    One party holds the labels. It grows the trees, on its own columns and on what partners open of theirs; missing
    values (NaN) go to whichever side of a split is better, and columns that `Party(categories=...)` names are split by
    sets of categories.

    Parameters
    ----------
    loss : str
        The loss; "auto" is the usual one of the class, which also names the others.
    trees : int
        Rounds of boosting, at most; each adds one tree, or one for each of more than two classes.
    learning_rate : float
        What a tree's leaves are multiplied with.
    depth : int
        How many questions deep a tree is, at most 16.
    leaves : int, optional
        How many leaves a tree has, at most, grown where it gains most. None grows level by level.
    l2 : float
        The penalty of leaves: lambda of XGBoost.
    min_gain : float
        What a split has to gain: gamma of XGBoost.
    min_child_weight : float
        The least sum of second derivatives on each side of a split.
    rows, columns : float
        The part of the rows, and of all parties' columns, that is drawn for each tree.
    bins : int
        How many cells each column is cut into, at most 256.
    class_weight : {None, "balanced"} or dict
        How much rows of each class count in the training of a classifier, beside the `sample_weight` of a `Party`:
        "balanced" lets all classes weigh the same, and {class: weight} names what they weigh, as in scikit-learn.
    monotone : dict, optional
        {party: {name or number of a column: 1 or -1}}: scores may only rise, or only fall, with such a column.
    patience : int, optional
        Training stops after so many rounds without a lower loss on the validation rows, and goes back to the best.
    warm_start : bool
        Whether `fit` goes on from the trees that there are, up to `trees` in all, on the same parties and columns.
    algorithm : SealedBoosting, OpenBoosting or "auto"
        How the trees are grown; "auto" is what `protection` says.
    protection : {"auto", "sealed", "plain"}
        How training is protected. "sealed", which is "auto" too, is `SealedBoosting`: partners see neither labels nor
        nodes, and the label holder learns few ranges of those of their columns that help. "plain" is `OpenBoosting`:
        the label holder gets all cells of all columns.
    defences : list of Defence
        What parties do to what leaves them, so that less follows: see docs/defences.md. Empty is nothing.
    verbose : int
        1 shows a live line if a run takes longer than half a second; 0 is silent.

    Attributes
    ----------
    forest_ : Forest
        The trees, as the label holder has them.
    trees_ : int
        How many trees there are.
    ranges_ : dict
        {partner: {column: how many ranges of it the model uses, and predictions tell}}.
    parties_, holders_, classes_, columns_, history_, traffic_, times_, rounds_, sum_, protection_
        Who took part and how training went; `Estimator` describes each of them. In `history_`, an epoch is a round.
    """

    sum = "plain"  # no scores are added up
    topology = "star"
    _codes = True
    _unsaved: ClassVar[tuple[str, ...]] = ("algorithm", "verbose", "warm_start", "monotone", "defences")

    def __init__(
        self,
        *,
        loss: str = "auto",
        trees: int = 100,
        learning_rate: float = 0.1,
        depth: int = 4,
        leaves: int | None = None,
        l2: float = 1.0,
        min_gain: float = 0.0,
        min_child_weight: float = 1.0,
        rows: float = 1.0,
        columns: float = 1.0,
        bins: int = 32,
        class_weight: str | Mapping[Any, float] | None = None,
        monotone: Mapping[str, Mapping[Any, int]] | None = None,
        patience: int | None = None,
        warm_start: bool = False,
        algorithm: OpenBoosting | str = "auto",
        protection: str = "auto",
        verbose: int = 1,
        defences: Sequence[Defence] = (),
    ) -> None:
        self.loss = loss
        self.trees = trees
        self.learning_rate = learning_rate
        self.depth = depth
        self.leaves = leaves
        self.l2 = l2
        self.min_gain = min_gain
        self.min_child_weight = min_child_weight
        self.rows = rows
        self.columns = columns
        self.bins = bins
        self.class_weight = class_weight
        self.monotone = monotone
        self.patience = patience
        self.warm_start = warm_start
        self.algorithm = algorithm
        self.protection = protection
        self.verbose = verbose
        self.defences = defences

    # -- training ------------------------------------------------------------------------------------------------------

    def fit(
        self: Model,
        *parties: Party,
        on: Runtime | None = None,
        validation: list[Party] | None = None,
        initial: BoostedTrees | None = None,
    ) -> Model:
        """Train on these parties.

        Parameters
        ----------
        *parties : Party
            The same rows in the same order at each of them, and labels at one; `align_parties` finds such rows.
        on : Runtime, optional
            Where the parties run: `Simulation(...)`, `Processes(...)`, or a runtime of `colonnade.remote`. None is
            `Simulation()`: all of them in this process, under a virtual clock.
        validation : list of Party, optional
            The same parties with other rows, for the history and for `patience`.
        initial : BoostedTrees, optional
            A fitted model of the same class to go on from, up to `trees` in all, as with `warm_start`; it stays as it
            is. None begins without trees.

        Returns
        -------
        BoostedTrees
            The model itself.
        """
        check_runtime(on)
        check_together(parties)
        parties, validation = self._prepare(parties, validation)
        options, algorithm = self._tree_options(), self._chosen(len(parties))
        holders, found = label_holders(parties), all_labels(parties)
        loss = losses.loss(self._loss_name(found))
        classes = labels.class_labels(found, loss)
        held_out = self._check_validation(parties, validation)
        if self.class_weight is not None and algorithm.label_epsilon is not None:
            raise OptionError(f"class_weight can't be {self.class_weight!r}: {TELL_LABELS}")
        parties, held_out = with_class_weights(self.class_weight, parties, held_out, classes)
        outputs = loss.outputs(len(classes))
        how = (self.sum, self.topology, algorithm, checked(self.defences))
        job = TrainingJob(algorithm.family, options, loss.name, outputs, holders, *how)
        self._check(job, parties)
        own = self._own(parties, job, self._earlier(initial, parties, classes, job))
        self._loss_ = loss.name
        self._train(job, parties, classes, held_out, on, own)
        return self

    def _loss_name(self, found: Array) -> str:
        """Return the name of the loss for these labels."""
        raise TypeError("a model must know its loss")

    def _minimised(self) -> losses.Loss:
        if not hasattr(self, "_loss_"):
            self._check_fitted()
        return losses.loss(self._loss_)

    def _tree_options(self) -> TreeOptions:
        given = {name: getattr(self, name) for name in _OPTIONS}
        options = TreeOptions(**given)
        options.check()
        return options

    def _chosen(self, parties: int) -> OpenBoosting:
        """Return the algorithm that the options stand for."""
        check_word(self.protection, family(TreesFamily.name))
        algorithm = self.algorithm
        if algorithm != AUTO and not isinstance(algorithm, OpenBoosting):
            raise OptionError(f"algorithm must be SealedBoosting(...), OpenBoosting(...) or 'auto', got {algorithm!r}")
        check_sealed(self.protection, algorithm, SealedBoosting)
        if isinstance(algorithm, OpenBoosting):
            return algorithm
        alone = self.protection == AUTO and parties == 1
        return OpenBoosting() if self.protection == PLAIN or alone else SealedBoosting()

    def _own(self, parties: tuple[Party, ...], job: TrainingJob, earlier: dict[str, Any]) -> dict[str, Any]:
        """Return what each party brings beside its columns: categories, signs, and its state of an earlier model."""
        asked = self.monotone or {}
        names = {party.name for party in parties}
        if not isinstance(asked, Mapping) or not all(isinstance(one, Mapping) for one in asked.values()):
            raise OptionError(f"monotone must be {{party: {{column: 1 or -1}}}}, got {asked!r}")
        for name in asked:
            one_of("the party that monotone names", name, tuple(sorted(names)))
        found = {}
        for party in parties:
            signs = tuple((self._column(party, column), sign) for column, sign in asked.get(party.name, {}).items())
            part = TreePart(party.categories, signs, earlier=earlier.get(party.name))
            part.signs(party.name, party.features)  # refuses what can't be
            found[party.name] = part.as_value()
        return found

    def _column(self, party: Party, column: Any) -> int:
        if isinstance(column, (int, np.integer)) and not isinstance(column, bool):
            return int(column)
        one_of(f"the column of {party.name!r} that monotone names", column, party.columns)
        return party.columns.index(column)

    def _earlier(self, initial: Any, parties: tuple[Party, ...], classes: Array, job: TrainingJob) -> dict[str, Any]:
        """Return every party's state of the model that training goes on from; nothing where it goes on from none."""
        again = self.warm_start and hasattr(self, "_states")
        if initial is None and not again:
            return {}
        if initial is not None and not isinstance(initial, Estimator):
            raise OptionError(f"initial must be a fitted {type(self).__name__}, got {type(initial).__name__}")
        if initial is not None and again:
            raise OptionError("initial and warm_start both say what to go on from; leave out one of them")
        word, made = ("warm_start", self) if initial is None else ("initial", cast("BoostedTrees", initial))
        if initial is not None:
            check_goes_on(initial, self, job, parties, classes)
        if made.parties_ != tuple(party.name for party in parties) or made.holders_ != job.holders:
            raise OptionError(
                f"{word} goes on with the parties {list(made.parties_)}, labels at {list(made.holders_)}; give the "
                f"same ones in the same order"
            )
        for party in parties:
            if made.columns_[party.name] != party.columns:
                raise OptionError(f"{word} goes on with the columns of {party.name!r} as they were; give the same")
        if job.outputs != len(made.forest_.base) or made._loss_ != job.loss:
            raise LabelError(f"{word} goes on with the same labels, of as many classes; give the same")
        return dict(made._states)

    def _run(self, programs: Any, on: Runtime | None, epochs: int) -> Any:
        return super()._run(programs, on, min(epochs, int(self.trees)))

    # -- use -----------------------------------------------------------------------------------------------------------

    def decision_function(self, *parties: Party, on: Runtime | None = None) -> Array:
        """Return the scores of these rows at the label holder, to whom partners tell the ranges that the model uses.

        Parameters
        ----------
        *parties : Party
            All parties of the model with the same columns as in training, in any order; labels are not looked at.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        numpy array
            One score per row, or one column per class where there are more than two.
        """
        ordered = self._check_rows(parties, on)
        parts = {party.name: ScoringPart(columns_to_value(party.X), self._states[party.name]) for party in ordered}
        return self._score(self._scoring_job(), parts, on)

    def _check_rows(self, parties: tuple[Party, ...], on: Runtime | None, what: str = "prediction") -> list[Party]:
        ordered = super()._check_rows(parties, on, what)
        for party in ordered:
            trained = tuple(np.flatnonzero(dict(self._states[party.name][0])["categorical"]).tolist())
            if party.categories != trained:
                raise DataError(
                    f"party {party.name!r} names columns {list(party.categories)} as categories here and "
                    f"{list(trained)} in training; name the same"
                )
        return ordered

    def _public(self) -> dict[str, Any]:
        return {"loss": self._loss_}

    def _take_public(self, public: dict[str, Any]) -> None:
        self._loss_ = public["loss"]


class BoostedTreesClassifier(ProbabilityMixin, BoostedTrees):
    """Boosted trees for two classes or more.

    The losses are "logistic" for two classes and "softmax" for more; "auto" counts them. `predict_proba` gives the
    probability of each class, and `score` is the accuracy.

    The parameters are those of `BoostedTrees`: loss, trees, learning_rate, depth, leaves, l2, min_gain,
    min_child_weight, rows, columns, bins, class_weight, monotone, patience, warm_start, algorithm, protection,
    defences, verbose.
    """

    def _loss_name(self, found: Array) -> str:
        one_of("loss", self.loss, (AUTO, "logistic", "softmax"))
        if found.dtype.kind == "f" and (found != np.rint(found)).any():
            raise LabelError("labels are real numbers, and a classifier needs classes; use BoostedTreesRegressor")
        count = len(np.unique(found))
        if self.loss == "logistic" and count > 2:
            raise LabelError(f"the loss 'logistic' is for two classes, got {count}; use 'softmax', or 'auto'")
        return ("logistic" if count <= 2 else "softmax") if self.loss == AUTO else self.loss


class BoostedTreesRegressor(BoostedTrees):
    """Boosted trees for real numbers, counts and amounts.

    The losses are "square" (the mean), which is "auto", "poisson" (counts), "gamma" (amounts above 0), "tweedie"
    (amounts of which many are 0; all three with a log link) and "quantile"; "tweedie 1.7" and "quantile 0.9" have
    another power than 1.5 and another level than 0.5. `score` is R² for "square", and the part of the deviance, or of
    the quantile's loss, that the model explains for the others.

    The parameters are those of `BoostedTrees`: loss, trees, learning_rate, depth, leaves, l2, min_gain,
    min_child_weight, rows, columns, bins, class_weight, monotone, patience, warm_start, algorithm, protection,
    defences, verbose.
    """

    _USUAL: ClassVar = {AUTO: "square", "tweedie": "tweedie 1.5", "quantile": "quantile 0.5"}

    def _loss_name(self, found: Array) -> str:
        name = self._USUAL.get(self.loss, self.loss)
        first = name.split(" ")[0] if isinstance(name, str) else name
        one_of("loss", first, ("square", "poisson", "gamma", "tweedie", "quantile"))
        return losses.loss(name).name
