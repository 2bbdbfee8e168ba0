"""What a trained model of trees says of itself, as the label holder sees it: importance, contributions, drawings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from colonnade.blocks.bins import Bins
from colonnade.blocks.column_values import columns_to_value
from colonnade.boosting.conditions import cells_of, model_ranges, others_condition, own_condition
from colonnade.boosting.drawing import trees_as_svg, trees_as_text
from colonnade.boosting.forest import Forest
from colonnade.boosting.importance import ScoreDrops, SplitImportance, permutation_importance, split_importance
from colonnade.boosting.shapley import ShapleyValues, shapley_values
from colonnade.data import labels
from colonnade.errors import LabelError
from colonnade.families.checks import all_labels
from colonnade.families.training import ScoringPart
from colonnade.objective import metrics

if TYPE_CHECKING:
    from colonnade.data.party import Party
    from colonnade.runtimes.net import Runtime

Array = npt.NDArray[Any]


class TreeExplanations:
    """What a model of trees says of itself; the base of `BoostedTrees`.

    The label holder has the trees, so this is its view: its own columns by name, those of partners by number, as
    "shop column 3". Partners have no part in it but the ranges of rows that it is about.
    """

    holders_: tuple[str, ...]
    columns_: dict[str, tuple[str, ...]]
    _states: dict[str, Any]

    @property
    def forest_(self: Any) -> Forest:
        """Return the trees, as the label holder has them."""
        self._check_fitted()
        return Forest.from_arrays(dict(self._states[self.holders_[0]][1]))

    @property
    def trees_(self) -> int:
        """Return how many trees there are."""
        return self.forest_.trees

    @property
    def ranges_(self: Any) -> dict[str, dict[str, int]]:
        """Return, for each partner, how many ranges of which columns the model uses and predictions tell."""
        self._check_fitted()
        found = {}
        for name, state in self._states.items():
            if state[3] is not None:
                told = zip(self.columns_[name], state[3], strict=True)
                found[name] = {column: len(np.unique(first)) for column, first in told if first is not None}
        return found

    def feature_names(self: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the party of every feature, and its name in the label holder's eyes.

        Returns
        -------
        tuple of two tuples of str
            Parties, and names: columns of the label holder's own, and "shop column 3" for those of partners.
        """
        self._check_fitted()
        leader = self.holders_[0]
        owners, names = [leader] * len(self.columns_[leader]), list(self.columns_[leader])
        for name, counts in self._states[leader][2]:
            owners += [name] * len(counts)
            names += [f"{name} column {k + 1}" for k in range(len(counts))]
        return tuple(owners), tuple(names)

    def importance(self, *, by_party: bool = False) -> SplitImportance:
        """Return what every feature gained in training, how many rows its splits saw, and how many splits it has.

        Parameters
        ----------
        by_party : bool
            Whether to add up the features of each party.

        Returns
        -------
        SplitImportance
            Names, and for each of them gain, cover and number of splits; `normalised()` makes parts of 1 of them.
        """
        owners, names = self.feature_names()
        found = split_importance(self.forest_, names)
        return found.of_parties(owners) if by_party else found

    def permutation_importance(
        self: Any, *parties: Party, by_party: bool = False, repeats: int = 5, seed: int = 0, on: Runtime | None = None
    ) -> ScoreDrops:
        """Return what the metric loses when a feature's values are shuffled among these rows.

        Parameters
        ----------
        *parties : Party
            All parties of the model with rows that are best not those of training, and labels at one of them.
        by_party : bool
            Whether all features of a party are shuffled together.
        repeats, seed : int
            How many shuffles there are, and their seed.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        ScoreDrops
            Names, the metric before, and by how much each shuffle lowered it.
        """
        known = [party for party in parties if party.active]
        if not known:
            raise LabelError("no party holds labels; permutation importance needs the true labels at one of them")
        loss = self._minimised()
        truth = labels.encode(all_labels(tuple(known)), self.classes_, loss)
        owners, names = self.feature_names()

        def score(z: Array) -> float:
            return metrics.evaluate(loss, z[:, 0] if z.shape[1] == 1 else z, truth)[1]

        rng, cells = np.random.default_rng(seed), self._cells(parties, on)
        of = owners if by_party else None
        return permutation_importance(self.forest_, cells, score, names, rng, owners=of, repeats=repeats)

    def shap(self: Any, *parties: Party, on: Runtime | None = None) -> ShapleyValues:
        """Return what every feature adds to the score of each of these rows: path-dependent Shapley values.

        Parameters
        ----------
        *parties : Party
            All parties of the model with the rows in question.
        on : Runtime, optional
            Where the parties run, as in `fit`.

        Returns
        -------
        ShapleyValues
            `values` of shape (rows, features, scores), `expected` for each score; together they are the scores.
            `of_parties(owners)` adds up the features of each party, with owners from `feature_names`.
        """
        return shapley_values(self.forest_, self._cells(parties, on))

    def draw(self: Any, trees: Any = None, *, svg: bool = False) -> str:
        """Return drawings of some trees, as text or as one SVG picture.

        Parameters
        ----------
        trees : int or list of int, optional
            Which trees, counted from 0; None draws the first three.
        svg : bool
            Whether to return an SVG picture, which has no script and needs nothing else.

        Returns
        -------
        str
            The text or the picture. A split of a partner's column names ranges, as the label holder knows no more.
        """
        owners, names = self.feature_names()
        forest = self.forest_
        some = range(min(3, forest.trees)) if trees is None else [trees] if isinstance(trees, int) else list(trees)
        bins = Bins.from_arrays(dict(self._states[self.holders_[0]][0]))
        own, partners = len(bins.counts), self._states[self.holders_[0]][2]
        counts = [*bins.counts.tolist(), *(count for _, told in partners for count in told)]

        def condition(feature: int, words: Any) -> str:
            if feature < own:
                return own_condition(bins, feature, cells_of(words, int(bins.counts[feature])), names[feature])
            ranges, cells = model_ranges(forest, feature, counts[feature]), cells_of(words, counts[feature])
            return others_condition(np.zeros(len(cells), np.uint8) if ranges is None else ranges, cells)

        draw = trees_as_svg if svg else trees_as_text
        return draw(forest, owners, names, condition, some)

    def _cells(self: Any, parties: tuple[Party, ...], on: Runtime | None) -> npt.NDArray[np.uint8]:
        """Return the cells of these rows as the label holder gets them in a prediction, features by rows."""
        ordered = self._check_rows(parties, on)
        parts = {party.name: ScoringPart(columns_to_value(party.X), self._states[party.name]) for party in ordered}
        found: npt.NDArray[np.uint8] = self._score(self._scoring_job(wants="cells"), parts, on)
        return np.ascontiguousarray(found.T)
