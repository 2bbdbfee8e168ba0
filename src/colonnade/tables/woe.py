"""Weight of evidence as a step of a column's preparation: every bin of a column becomes one number.

With g good and b bad people of G and B in a bin, its weight of evidence is log((g / G) / (b / B)): above 0 where there
are more good ones than elsewhere. Bad is the second of the two classes, the one that a model predicts. The information
value of a column is the sum of (g / G - b / B) times the weight over its bins. `colonnade.binning` learns all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.tables.dates import written_day

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
MISSING_WORD, OTHER_WORD = "missing", "all others"


def weights_of_evidence(goods: npt.ArrayLike, bads: npt.ArrayLike) -> Floats:
    """Return the weight of evidence of each bin, from its good and bad people; no bin may lack either of them."""
    g, b = np.asarray(goods, np.float64), np.asarray(bads, np.float64)
    found: Floats = np.log((g / g.sum()) / (b / b.sum()))
    return found


def information_values(goods: npt.ArrayLike, bads: npt.ArrayLike) -> Floats:
    """Return what each bin adds to the information value of its column."""
    g, b = np.asarray(goods, np.float64), np.asarray(bads, np.float64)
    found: Floats = (g / g.sum() - b / b.sum()) * weights_of_evidence(g, b)
    return found


@dataclass(frozen=True)
class Woe:
    """The bins of one column, as learned, and how many good and bad people of the training rows are in each of them.

    Numbers have bins from one edge to just below the next one; of categories each one has the number of its bin.

    Attributes
    ----------
    edges
        Of numbers: where each bin but the first begins.
    categories, codes
        Of categories: those that have a bin of their own or share one, and the number of that bin.
    goods, bads
        People in each bin.
    missing_bin
        The bin of missing values, or -1 where the training rows had none.
    other_bin
        The bin of all categories that are not listed, or -1 where the training rows had none.
    rare
        The categories of the training rows that are not listed.
    nominal
        Whether a column of numbers holds categories, which have no order.
    """

    name: ClassVar[str] = "woe"
    edges: tuple[float, ...] = ()
    categories: tuple[str, ...] | tuple[float, ...] = ()
    codes: tuple[int, ...] = ()
    goods: tuple[int, ...] = ()
    bads: tuple[int, ...] = ()
    missing_bin: int = -1
    other_bin: int = -1
    rare: tuple[str, ...] | tuple[float, ...] = ()
    nominal: bool = False

    def __post_init__(self) -> None:
        """Refuse bins that do not fit together, as a file that was changed may hold them."""
        count = len(self.goods)
        cells = (*self.codes, self.missing_bin, self.other_bin)
        fits = len(self.bads) == count and len(self.codes) == len(self.categories) and not (self.codes and self.edges)
        if not fits or not all(-1 <= cell < max(count, 1) for cell in cells) or len(self.edges) > max(count - 1, 0):
            raise ValueError("the bins of a column do not fit together")
        if min((*self.goods, *self.bads), default=1) < 1 or any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError("the bins of a column are empty or have no order")

    @property
    def counted(self) -> bool:
        """Whether all categories of the training rows are known, so that one that never occurred can be told."""
        return bool(self.categories or self.rare)

    @property
    def bins(self) -> int:
        """How many bins there are."""
        return len(self.goods)

    @property
    def weights(self) -> Floats:
        """The weight of evidence of each bin."""
        return weights_of_evidence(self.goods, self.bads)

    @property
    def iv(self) -> float:
        """The information value of the column."""
        return float(information_values(self.goods, self.bads).sum())

    def bins_of_numbers(self, x: Floats) -> Whole:
        """Return each row's bin; -1 where the training rows had nothing of the kind."""
        known = np.array(self.categories if self.codes else self.edges, dtype=np.float64)
        if not self.codes:
            found = np.searchsorted(known, x, side="right")
        else:
            at = np.minimum(np.searchsorted(known, x), len(known) - 1)
            found = np.where(known[at] == x, np.array(self.codes)[at], self.other_bin)
        return np.where(np.isnan(x), self.missing_bin, found).astype(np.int64)

    def bins_of_texts(self, categories: Any) -> Whole:
        """Return the bin of each category and, last, where the code -1 of a text finds it, that of missing ones."""
        known = dict(zip(self.categories, self.codes, strict=True))
        return np.array([*(known.get(category, self.other_bin) for category in categories), self.missing_bin], np.int64)

    def weigh(self, bins: Whole) -> Floats:
        """Return the weight of evidence of rows by their bins; 0, which is no evidence, where there is no bin."""
        found: Floats = np.append(self.weights, 0.0)[bins]
        return found

    def bin_names(self, *, days: bool = False) -> list[str]:
        """Return what people call each bin; `days` says that numbers are dates, as days since 1970."""
        words: list[list[str]] = [[] for _ in range(self.bins)]
        if self.codes:
            for category, code in zip(self.categories, self.codes, strict=True):
                words[code].append(category if isinstance(category, str) else f"{category:g}")
        else:
            # A date is below an edge between two days where it is below the second one.
            ends = ["", *(written_day(math.ceil(edge)) if days else f"{edge:g}" for edge in self.edges), ""]
            for at, (low, high) in enumerate(pairwise(ends)):
                words[at].append(_range(low, high))
        if self.other_bin >= 0:
            words[self.other_bin].append(OTHER_WORD)
        if self.missing_bin >= 0:
            words[self.missing_bin].append(MISSING_WORD)
        return [", ".join(one) for one in words]


def _range(low: str, high: str) -> str:
    if low and high:
        return f"{low} to below {high}"
    return f"below {high}" if high else f"{low} and more" if low else "all values"
