"""A party's columns as whole numbers, which encrypted ones are multiplied with (`crypto.lattice_products`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.columns import Columns
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.errors import RingOverflow

# Bits of a value's magnitude: each column is scaled so that its largest value is the largest that they hold.
VALUE_BITS = 23
_SMALLEST = float(np.finfo(np.float64).tiny)
_Taking = Callable[[FloatArray, int, int], None]  # fills its first columns with columns first to end


class WholeColumns:
    """A party's columns as whole numbers of 23 bits and a sign, each column times a factor that only the party knows.

    A value is off by at most 2^-24 of the largest in its column. So the mean of x s over a batch is off by at most
    2^-24 max|x| mean|s|. Nothing can overflow, whatever the columns' units, and no factor leaves the party. (Columns
    that stay below 1e-301 lose their last bits. With other `bits` likewise. Where a common bound on all values is
    known, `within` takes it for every column's largest. `powers` are bounds that others know too, as powers of two:
    then factors are 2^(powers - bits), and there is no column of ones.)
    """

    def __init__(
        self,
        columns: Columns,
        ones: bool,
        bits: int = VALUE_BITS,
        within: float | None = None,
        powers: npt.NDArray[np.int64] | None = None,
    ) -> None:
        self._columns, self._ones = columns, ones
        if powers is not None:
            self.scale: FloatArray = np.ldexp(1.0, powers - bits)
            self.width = len(self.scale)
            return
        largest = columns.largest() if within is None else np.full(columns.shape[1], within)
        if ones:
            largest = np.append(largest, 1.0)  # the column behind the intercept
        # No factor below what a float64 holds in full: rounded, it would make more bits than there are of a value.
        self.scale = np.maximum(np.where(largest > 0.0, largest, 1.0) / (2**bits - 1), _SMALLEST)
        self.width = len(self.scale)

    def part(self, rows: Rows) -> Callable[[int, int], FloatArray]:
        """Return what gives the whole numbers of these rows in columns first to last, shape (rows, last - first).

        Few columns at a time are enough for every product, so that a sparse matrix is never made dense.
        """
        own, taken = self.width - self._ones, self._dense(rows) or self._sparse(rows)

        def cut(first: int, last: int) -> FloatArray:
            found, end = np.zeros((len(rows), last - first)), min(last, own)
            taken(found, first, end)
            if last > own:
                found[:, own - first] = 1.0
            found /= self.scale[first:last]
            return np.rint(found, out=found)

        return cut

    def _dense(self, rows: Rows) -> _Taking | None:
        columns = self._columns
        if not isinstance(columns, DenseColumns):
            return None

        def taken(found: FloatArray, first: int, end: int) -> None:
            found[:, : end - first] = columns.part(rows, first, end)

        return taken

    def _sparse(self, rows: Rows) -> _Taking:
        """Everything that is stored of these rows is sorted by column, once."""
        place, column, value = self._columns.entries(rows)
        order = np.argsort(column, kind="stable")
        place, column, value = place[order], column[order], value[order]

        def taken(found: FloatArray, first: int, end: int) -> None:
            here = slice(*np.searchsorted(column, (first, end)))
            # Added and not set: a number that was left out with its column is a zero at another one.
            np.add.at(found, (place[here], column[here] - first), value[here])

        return taken


def whole_numbers_of(values: FloatArray, fraction_bits: int, bits: int, what: str, remedy: str) -> FloatArray:
    """Values as whole numbers of 2^-fraction_bits, which a float64 holds exactly; refuses more than `bits`, and NaN."""
    largest = 2.0 ** (bits - fraction_bits)
    worst = float(np.abs(values).max(initial=0.0))
    if not worst < largest:
        raise RingOverflow(f"{what} reaches {worst:.3g}, encrypted ones must be below {largest:.3g}; {remedy}")
    return np.rint(values * 2.0**fraction_bits)
