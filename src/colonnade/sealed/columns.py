"""A party's own columns as sealed training needs them: whitened, in whole numbers, within public bounds.

Every party chooses coordinates of its own block in which the bound on the curvature is the identity: Q = X W with
kappa Q'Q / N + S = I, where kappa bounds the loss's second derivative and S = W' diag(l2 n / N) W is the penalty. So
Newton's steps start well, and, what matters more, all norms have bounds that everybody knows: |Q_j|^2 <= N / kappa,
whatever X is. W stays at home, and in the end takes the coefficients back.

N is n rounded up to a power of two. That makes the objective n / N of what it was, and changes no step, as a step is
the gradient divided by the curvature. But sums over rows in shares are then divided by cutting bits off, which all but
never fails. Products with a fraction, which would come before it, need room in the shares that is not there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import scipy.linalg

from colonnade.sealed.schedule import FEW
from colonnade.sealed.slots import SLOTS, SlotLayout, embedded, paired

Floats = npt.NDArray[np.float64]

SUM_BITS = 34  # that a sum over rows may have, so that lifting it from 64 bits fails once in 2^30
PENALTY_BITS = 28  # of S behind its point
FORWARD_BITS = 14  # of Q behind its point, where scores are made
# Added to the curvature in every direction: rounding errors must not make it negative in a flat one.
_FLAT = 2.0**-13
# Rows are cut to so many times their usual length where squares of them are summed up: less where a row of a sample
# stands for many.
_CLIP, _SAMPLE_CLIP = 64.0, 8.0
_MOST_KEPT = 2**25  # numbers of one kind that are kept from round to round


class WhiteColumns:
    """Columns (n, d), the penalty of each, the bound kappa on the loss's curvature, and how large its waves are."""

    def __init__(self, X: Floats, penalty: Floats, kappa: float, waves: float = 1.0) -> None:
        n, d = X.shape
        self.n, self.d, self.kappa, self._waves = n, d, kappa, waves
        self._kept: dict[int, Floats] = {}
        self._tamed: dict[int, Floats] = {}
        self._again: dict[tuple[str, int], Floats] = {}
        self.part: float = n / divisor(n)
        penalty = penalty * self.part
        gram = X.T @ X * (kappa / divisor(n)) + np.diag(penalty)
        sizes = np.sqrt(np.maximum(np.diag(gram), 1e-300))  # columns may be of any size
        # A column that others make up for, without a penalty, would have no coordinates; this is below all rounding.
        upper = scipy.linalg.cholesky(gram / np.outer(sizes, sizes) + 1e-10 * np.eye(d))
        self.back: Floats = scipy.linalg.solve_triangular(upper, np.eye(d)) / sizes[:, None]
        self.Q: Floats = X @ self.back
        self.S: Floats = self.back.T @ (penalty[:, None] * self.back)

    @property
    def bound(self) -> float:
        """A bound on the norm of every column of Q, which everybody knows."""
        return math.sqrt(divisor(self.n) / self.kappa)

    def _weight(self, rows: int) -> float:
        """What a row counts in a mean over the first rows, whose sum is divided by a power of two: 1 if it is all."""
        return self.part * divisor(rows) / rows

    @cached_property
    def forward(self) -> Floats:
        """Q' in whole numbers, for scores."""
        found: Floats = np.rint(self.Q.T * 2.0**FORWARD_BITS)
        return found

    def forward_bound(self) -> float:
        """A bound on the norm of `forward`."""
        return math.sqrt(self.d) * (self.bound * 2.0**FORWARD_BITS + 0.5 * math.sqrt(self.n))

    # -- sums over rows ------------------------------------------------------------------------------------------------

    def signal_bits(self, rows: int) -> int:
        """Bits of signals of this loss behind their point."""
        return signal_bits(rows, self._waves)

    def backward_bits(self, rows: int) -> int:
        """Bits of a column behind its point in sums over so many rows of signals."""
        return backward_bits(rows, self.kappa, self._waves)

    def square_bits(self, rows: int) -> int:
        """Bits of a column, or of two columns' product, behind its point in sums for the curvature."""
        return square_bits(rows, self.kappa, self._waves)

    def cross(self, bits: int, rows: int | None = None) -> Floats:
        """Q' in whole numbers, for products with others' columns; or of the first rows, as they are `tamed`."""
        found: Floats = np.rint((self.Q if rows is None else self.tamed(rows)).T * 2.0**bits)
        return found

    def cross_bound(self, bits: int) -> float:
        """A bound on the norm of every row of `cross`."""
        return self.bound * 2.0**bits + 0.5 * math.sqrt(self.n)

    def backward(self, rows: int) -> Floats:
        """Q' of the first rows, for means over them of folded words, in whole numbers of `backward_bits`."""
        if rows not in self._kept:
            weighted = self.Q[:rows].T * self._weight(rows)
            self._kept[rows] = SlotLayout(rows).columns(weighted, 2.0 ** self.backward_bits(rows))
        return self._kept[rows]

    def backward_bound(self, rows: int) -> float:
        """A bound on the norm of every column of `backward`."""
        return embedded_bound(self.bound * max(1.0, self._weight(rows)), rows, 2.0 ** self.backward_bits(rows))

    @cached_property
    def penalty(self) -> Floats:
        """S in whole numbers."""
        found: Floats = np.rint(self.S * 2.0**PENALTY_BITS)
        return found

    # -- curvature -----------------------------------------------------------------------------------------------------

    def _longest(self, rows: int) -> float:
        usual = math.sqrt(self.d / self.kappa * divisor(rows) / rows)
        return (_CLIP if rows == self.n else _SAMPLE_CLIP) * usual

    def tamed(self, rows: int) -> Floats:
        """The first rows of Q, as the curvature and its bound are taken of them.

        No row is much longer than usual, so that products of columns have a bound too. And kappa times their mean
        product is at most the identity, as it is for all rows: of a sample in which long rows happen to be many,
        columns are made shorter along these directions. Rows of a sample are longer or shorter than in Q, so that their
        products, divided by a power of two, are a mean.
        """
        if rows not in self._tamed:
            some = self.Q[:rows] * math.sqrt(self._weight(rows))
            lengths = np.linalg.norm(some, axis=1)
            some = some * np.minimum(1.0, self._longest(rows) / np.maximum(lengths, 1e-300))[:, None]
            values, vectors = np.linalg.eigh(some.T @ some * (self.kappa / divisor(rows)))
            self._tamed[rows] = some @ ((vectors / np.sqrt(np.maximum(values, 1.0))) @ vectors.T)
        return self._tamed[rows]

    def fixed(self, rows: int) -> Floats:
        """The penalty, and what these rows lack of the bound of all rows, where they lack anything.

        It is added to their curvature and to their bound: what is not in the sample could matter more than what is, and
        a step that is too short does no harm.
        """
        some = self.tamed(rows)
        values, vectors = np.linalg.eigh(np.eye(self.d) - self.S - some.T @ some * (self.kappa / divisor(rows)))
        flat = _FLAT * np.eye(self.d)
        found: Floats = self.S + (vectors * np.maximum(values, 0.0)) @ vectors.T + flat
        return found

    def own_bound(self, rows: int) -> Floats:
        """The bound on the curvature of these rows, within this party's own block."""
        some = self.tamed(rows)
        found: Floats = some.T @ some * (self.kappa / divisor(rows)) + self.fixed(rows)
        return found

    def tamed_columns(self, rows: int) -> Floats:
        """`tamed` for sums over rows of folded words."""
        made = partial(SlotLayout(rows).columns, self.tamed(rows).T, 2.0 ** self.square_bits(rows))
        return self._once("columns", rows, made)

    def squares(self, rows: int) -> Floats:
        """Products of every two columns, row by row, for sums of folded words: (d (d + 1) / 2, length)."""

        def made() -> Floats:
            some = self.tamed(rows).T
            first, second = np.triu_indices(self.d)
            layout = SlotLayout(rows)
            found = np.empty((len(first), layout.length))
            for start in range(0, len(first), self.d):
                here = slice(start, start + self.d)
                found[here] = layout.columns(some[first[here]] * some[second[here]], 2.0 ** self.square_bits(rows))
            return found

        return self._once("squares", rows, made)

    def squares_bound(self, rows: int) -> float:
        """A bound on the norm of each of them: a row's part of two columns is at most its squared length."""
        most = self._longest(rows)
        return embedded_bound(most * self.bound, rows, 2.0 ** self.square_bits(rows))

    def factors(self, rows: int) -> Floats:
        """The first rows of Q' for products row by row: two columns to a polynomial, (pairs, blocks, N)."""

        def made() -> Floats:
            slots = paired(SlotLayout(rows).spread(self.tamed(rows).T))
            found: Floats = np.rint(embedded(slots) * 2.0 ** factor_bits(rows))
            return found

        return self._once("factors", rows, made)

    def _once(self, what: str, rows: int, made: Callable[[], Floats]) -> Floats:
        """Keep what several rounds need again, unless it is too much to be kept."""
        if (what, rows) not in self._again:
            found = made()
            if found.size > _MOST_KEPT:
                return found
            self._again[what, rows] = found
        return self._again[what, rows]

    def factors_bound(self, rows: int) -> float:
        """A bound on the norm of each: N / 2 times its square is the sum of squares of the slots of two columns."""
        norm = self.bound * math.sqrt(2 * SlotLayout(rows).copies / SLOTS)
        return norm * 2.0 ** factor_bits(rows) + 0.5 * math.sqrt(2 * SLOTS)


def divisor(rows: int) -> int:
    """What sums over so many rows are divided by: the next power of two."""
    return 1 << (rows - 1).bit_length()


def _moved(waves: float) -> int:
    """Return how many bits go from signals to columns, where waves are so large."""
    return round(math.log2(waves) / 2.0)


def signal_bits(rows: int, waves: float = 1.0) -> int:
    """Bits of a signal behind its point, in sums over so many rows: more where fewer rows average errors out."""
    return min(20, max(16, round(SUM_BITS - 2 - math.log2(rows)))) - _moved(waves)


def backward_bits(rows: int, kappa: float, waves: float = 1.0) -> int:
    """Bits of a column behind its point in sums over so many rows of signals: so that they fit.

    More where signals have fewer, and where a large kappa makes columns small: rounding errors of columns count as
    often as waves are larger than what they add up to.
    """
    base = max(0, int(SUM_BITS - signal_bits(rows) - math.log2(rows)))
    return base + _moved(waves) + max(0, int(math.log2(4.0 * kappa) / 2.0))


def square_bits(rows: int, kappa: float, waves: float = 1.0) -> int:
    """Bits of a column, or of two columns' product, behind its point in sums over so many rows for the curvature.

    Two less where rows are few: every round then takes the curvature anew, and its sums are as many as its entries.
    """
    return max(0, backward_bits(rows, kappa, waves) - (2 if rows <= FEW else 0))


def factor_bits(rows: int) -> int:
    """Bits of a column behind its point where it is multiplied row by row."""
    return 14 if rows <= FEW else 10


def cross_bits(rows: int) -> int:
    """Bits of a column behind its point in sums over rows of products of two columns."""
    return max(2, int((SUM_BITS - 2 - math.log2(rows)) / 2))


def embedded_bound(norm: float, rows: int, scale: float) -> float:
    """A bound on the norm of a column of `SlotLayout.columns`, for one of this norm over rows; rounding included."""
    layout = SlotLayout(rows)
    # Half the coefficients, N / 2 times each: (N / 2)^2 sum c_k^2 <= (N / 2)^2 |x|^2 / (N / 2), for every copy.
    return math.sqrt(SLOTS * layout.copies) * norm * scale + 0.5 * math.sqrt(layout.length)
