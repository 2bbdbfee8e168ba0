"""Which features, and whose, a forest leans on: by its own splits, and by what its score loses without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.boosting.forest import Forest
from colonnade.errors import OptionError

Floats = npt.NDArray[np.float64]
Cells = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class SplitImportance:
    """What the splits by each feature, or by each party's features, add up to.

    Attributes
    ----------
    names : tuple of str
        Of the features, or of the parties; the arrays follow them.
    gain : ndarray of float
        By how much the splits lowered the loss on the rows of training.
    cover : ndarray of float
        The second derivatives of the loss, summed over the rows that came to the splits: how many rows they concern,
        where rows that are settled already count less.
    splits : ndarray of float
        How many splits there are; a fraction of all where normalised.
    """

    names: tuple[str, ...]
    gain: Floats
    cover: Floats
    splits: Floats

    def of_parties(self, owners: Sequence[str]) -> SplitImportance:
        """Sum the features of each party; owners names the party of each."""
        found = features_of_parties(owners, len(self.names))
        sums = (
            np.array([column[at].sum() for at in found.values()]) for column in (self.gain, self.cover, self.splits)
        )
        return SplitImportance(tuple(found), *sums)

    def normalised(self) -> SplitImportance:
        """As parts of 1; a forest without a single split leaves zeros."""
        columns = (self.gain, self.cover, self.splits)
        return SplitImportance(self.names, *(column / (column.sum() or 1.0) for column in columns))


def split_importance(forest: Forest, names: Sequence[str]) -> SplitImportance:
    """Add up gain, cover and number of a forest's splits for each of its features.

    Parameters
    ----------
    forest : Forest
        As it was trained.
    names : sequence of str
        One for each feature that the forest could ask about, whether it does or not.
    """
    check_features(forest, len(names), "name")
    inner = forest.feature >= 0
    asked = forest.feature[inner]
    gain, cover, splits = np.zeros((3, len(names)))
    np.add.at(gain, asked, forest.gain[inner])
    np.add.at(cover, asked, forest.cover[inner])
    np.add.at(splits, asked, 1.0)
    return SplitImportance(tuple(names), gain, cover, splits)


@dataclass(frozen=True)
class ScoreDrops:
    """By how much a score falls when features tell nothing any more.

    Attributes
    ----------
    names : tuple of str
        Of the features, or of the parties; the rows of `drops` follow them.
    score : float
        With all features as they are.
    drops : ndarray of shape (names, repeats)
        The score less that of the shuffled cells, for each shuffle. Below 0 where a shuffle happened to help.
    """

    names: tuple[str, ...]
    score: float
    drops: Floats

    @property
    def mean(self) -> Floats:
        """The mean drop of each name."""
        mean: Floats = self.drops.mean(axis=1)
        return mean

    @property
    def deviation(self) -> Floats:
        """How far the drops of single shuffles are from their mean: the standard deviation of a sample."""
        repeats = self.drops.shape[1]
        return self.drops.std(axis=1, ddof=1) if repeats > 1 else np.zeros(len(self.drops))


def permutation_importance(
    forest: Forest,
    cells: Cells,
    score: Callable[[Floats], float],
    names: Sequence[str],
    rng: np.random.Generator,
    *,
    owners: Sequence[str] | None = None,
    repeats: int = 5,
) -> ScoreDrops:
    """Shuffle the cells of one feature, or of one party, among the rows, and look at what the score loses.

    The idea is Breiman's ("Random forests", 2001, Machine Learning 45). A party's features are shuffled together, so
    that what they say of each other stays true, and only what they say of the labels and of the other parties' features
    is lost. Every feature and party meets the same shuffles, which makes their drops comparable, and those that the
    forest never asks about lose exactly nothing.

    Parameters
    ----------
    forest : Forest
        As it was trained.
    cells : ndarray of uint8, shape (features, n)
        Of rows that are best not those of training, on which a forest also leans on what it learned by heart.
    score : callable
        Takes forest scores of shape (n, outputs) and says how good they are; more is better.
    names : sequence of str
        One for each feature.
    rng : numpy.random.Generator
        Draws the shuffles.
    owners : sequence of str, optional
        The party of each feature. If given, whole parties are shuffled instead of single features.
    repeats : int
        How many shuffles each feature or party goes through.
    """
    if repeats < 1:
        raise OptionError(f"repeats must be at least 1, got {repeats!r}; 5 is usual")
    best = float(score(forest.scores(cells)))
    if len(names) != len(cells):
        raise OptionError(f"there are {len(names)} names for {len(cells)} features; give one for each")
    groups = features_of_parties(owners, len(cells)) if owners is not None else None
    members = list(groups.values()) if groups else [np.array([at]) for at in range(len(cells))]
    orders = [rng.permutation(cells.shape[1]) for _ in range(repeats)]
    asked = np.isin(np.arange(len(cells)), forest.feature)
    drops, shuffled = np.zeros((len(members), repeats)), cells.copy()
    for at, features in enumerate(members):
        used = features[asked[features]]
        for repeat, order in enumerate(orders if len(used) else ()):
            shuffled[used] = cells[used][:, order]
            drops[at, repeat] = best - float(score(forest.scores(shuffled)))
        shuffled[used] = cells[used]
    return ScoreDrops(tuple(groups or names), best, drops)


# -- features and parties ----------------------------------------------------------------------------------------------


def features_of_parties(owners: Sequence[str], features: int) -> dict[str, npt.NDArray[np.int64]]:
    """The numbers of each party's features, in the order in which the parties first appear."""
    if len(owners) != features:
        raise OptionError(f"there are {len(owners)} owners for {features} features; name the party of each feature")
    found: dict[str, list[int]] = {}
    for at, party in enumerate(owners):
        found.setdefault(party, []).append(at)
    return {party: np.array(members) for party, members in found.items()}


def check_features(forest: Forest, features: int, what: str) -> None:
    """Refuse fewer features than the forest asks about."""
    needed = int(forest.feature.max(initial=-1)) + 1
    if features < needed:
        raise OptionError(f"the forest asks about {needed} features, and there is a {what} for {features}; give all")
