"""A linear block's quadratic model of the objective: its own columns move, and all other parties' stand still.

The model's matrix is X^T diag(c) X / n plus the penalty's curvature, one for each output. (Of softmax this is the
diagonal of a row's matrix, p (1 - p) for each class; the products between classes are left out.) Up to `LIMIT` columns
it is made and factored; beyond that its equations are solved by conjugate gradients on the columns as they are.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.columns import Columns
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.row_blocks import sum_ends
from colonnade.kernels import gram

OfRows: TypeAlias = tuple[Rows, Any]  # rows, and a number or several for each: an array, `ToldNumbers`, or on the disk

# Columns up to which a matrix is made and factored.
LIMIT = 2048
# A pivot that has lost all but this part of its digits: the column depends on those before it.
SMALLEST = 1e-12
# Conjugate gradients stop when the residual has fallen to this part: what is left, the next round does.
_CLOSE, _MOST_PRODUCTS = 0.01, 60
# Rows that are worked on at a time where a number per row and direction is made.
CHUNK = 1 << 13
# The part of the curvature that may have changed before the matrix is made anew: it only shapes directions.
_STALE = 0.02
# Blocks of rows whose curvatures are divided at a time.
_BLOCKS = 64
# Rows whose curvatures are kept at a time.
_AT_ONCE = 1 << 18
# Versions of what is on the disk that a run which is broken off may go back to, and one more.
VERSIONS = 4


class Stored(Protocol):
    """Numbers about rows on the disk: an array, as far as slices of it are concerned."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: slice) -> npt.NDArray[Any]: ...
    def __setitem__(self, rows: slice, values: Any) -> None: ...

    def sealed(self) -> tuple[str, bytes]: ...  # noqa: D102
    def copied(self) -> Any: ...  # noqa: D102
    def remove(self) -> None: ...  # noqa: D102


class Place(Protocol):
    """Where numbers about rows are kept that do not stay in memory, as `engine.kept.Keeper` has it."""

    def numbers(self, count: int, dtype: Any) -> Stored | None: ...  # noqa: D102
    def known_numbers(self, told: Any, count: int, dtype: Any) -> Stored: ...  # noqa: D102


class ToldNumbers:
    """A number about each row, or several, in the short form in which they were told; some rows at a time in full.

    of: what is made of the numbers, where it is not they that are wanted.
    """

    def __init__(self, short: npt.NDArray[Any], unit: float, of: Callable[[Any], Any] | None = None) -> None:
        self.short, self.unit, self._of = short, unit, of
        self.shape, self.ndim, self.dtype = short.shape, short.ndim, self[:0].dtype

    def __len__(self) -> int:
        return len(self.short)

    def __getitem__(self, rows: slice) -> Any:
        # Single precision: any direction will do, and it need not be known better than that.
        found = (self.short[rows] * self.unit).astype(np.float32)
        return found if self._of is None else self._of(found)

    def made(self, of: Callable[[Any], Any]) -> ToldNumbers | None:
        """What a function makes of each number; None where it makes nothing."""
        return None if of(self[:1]) is None else ToldNumbers(self.short, self.unit, of)


class NewtonBlock:
    """One party's parameters as a matrix of `width` rows, the intercept's last where the party owns it."""

    def __init__(self, block: LinearBlock, limit: int = LIMIT) -> None:
        self.place: Place | None = None  # of what is remembered of many rows; None is that all is in memory
        self._versions: deque[list[Any]] = deque()  # what is on the disk, and known to the last versions
        self.block, self.columns, self.outputs = block, block.columns, block.outputs
        self.columns_width, self.width = block.columns.shape[1], block.width
        self.wide = self.width > limit
        self.curved: list[OfRows] = []  # what the matrix was made of, and the penalty's curvature then
        self.bent = np.zeros((0, self.outputs))
        self._rows = 1
        self._factors: list[FloatArray] = []
        self._inverse = np.zeros((0, 0))  # of the diagonal

    # -- the parameters -----------------------------------------------------------------------------------------

    def add(self, change: FloatArray) -> None:
        """Move the parameters by a change of shape (width, outputs), or flattened."""
        self.block.weights.add(change.reshape(self.width, self.outputs))

    def pull(self) -> FloatArray:
        """The penalty's gradient; the intercept carries none."""
        out = np.zeros((self.width, self.outputs))
        out[: self.columns_width] = self.block.penalty.gradient(self.block.weights.plain())
        return out

    def bend(self) -> FloatArray:
        """The penalty's curvature, where it is one: the other penalty bends the other way at large weights."""
        # Where there are very many columns a vector of them is not small beside their numbers, and this one only shapes
        # directions.
        out = np.zeros((self.width, self.outputs), dtype=np.float32 if self.wide else np.float64)
        out[: self.columns_width] = np.maximum(self.block.penalty.curvature(self.block.weights.plain()), 0.0)
        return out

    # -- products with the columns ------------------------------------------------------------------------------

    def forward(self, rows: Rows, W: FloatArray, of: Columns | None = None) -> FloatArray:
        """Scores of some rows under parameters W, of shape (width, any number)."""
        z = (of or self.columns).forward(rows, np.ascontiguousarray(W[: self.columns_width]))
        if self.block.intercept is not None:
            z += W[-1]
        return z

    def scores(self, rows: Rows, directions: FloatArray, of: Columns | None = None) -> FloatArray:
        """The scores of directions, which are columns: a row for each score, a column for each direction."""
        count = directions.shape[1]
        z = self.forward(rows, directions.reshape(self.width, self.outputs * count), of)
        return z.reshape(len(rows) * self.outputs, count)

    def backward(self, rows: Rows, signal: Any, factor: float, G: FloatArray) -> None:
        """G += factor * X[rows].T @ signal, of shape (width, any number)."""
        self.columns.backward(rows, signal, factor, G[: self.columns_width])
        if self.block.intercept is not None:
            G[-1] += factor * signal.sum(axis=0, dtype=np.float64)

    def gradient(self, pieces: Sequence[OfRows], rows: int) -> FloatArray:
        """The gradient of the mean loss over so many rows, and of the penalty."""
        out = self.pull()
        for chosen, signal in pieces:
            for at, end in self._groups(chosen):
                self.backward(chosen[at:end], signal[at:end].reshape(end - at, self.outputs), 1.0 / rows, out)
        return out

    def matrix(self, pieces: Sequence[OfRows], rows: int, output: int, bend: FloatArray) -> FloatArray:
        """The lower triangle of X^T diag(c) X / n, and the penalty's curvature on its diagonal."""
        d, out = self.columns_width, np.zeros((self.width, self.width))
        for chosen, c in self._parts(pieces, rows, output):
            self.columns.gram(chosen, c, out[:d, :d])
            if self.block.intercept is not None:
                sums = np.zeros((d, 1))
                self.columns.backward(chosen, c[:, None], 1.0, sums)
                out[-1, :d] += sums[:, 0]
                out[-1, -1] += c.sum(dtype=np.float64)
        out[np.diag_indices(self.width)] += bend
        return out

    def _parts(self, pieces: Sequence[OfRows], rows: int, output: int) -> Iterator[tuple[Rows, Any]]:
        """Rows and what is summed over them, some whole blocks at a time: never a number in full for each row."""
        for chosen, curvature in pieces:
            for at, end in self._groups(chosen):
                some = curvature[at:end].reshape(end - at, self.outputs)
                yield chosen[at:end], np.ascontiguousarray(some[:, output]) / rows

    def _groups(self, rows: Rows) -> Iterator[tuple[int, int]]:
        ends = sum_ends(rows, self.columns.block)
        for first in range(0, len(ends) - 1, _BLOCKS):
            yield ends[first], ends[min(first + _BLOCKS, len(ends) - 1)]

    # -- the model's minimum ------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Drop the model: the next curvature makes a new one, whatever it is."""
        self.curved = []

    def refresh(self, pieces: Sequence[OfRows], rows: int) -> None:
        """Take another curvature, if it differs enough from the one the model was made of."""
        if not self.keeps(pieces, rows):
            self.make(pieces, rows, self.bend())

    def keeps(self, pieces: Sequence[OfRows], rows: int) -> bool:
        """Whether a model of this curvature would be nearly the one that is there."""
        if not self.curved or rows != self._rows or len(pieces) != len(self.curved):
            return False
        change = sum(_apart(new, old) for (_, new), (_, old) in zip(pieces, self.curved, strict=True))
        return change <= _STALE * sum(_sum(old) for _, old in self.curved)

    def take(self, pieces: Sequence[OfRows], rows: int) -> None:
        """Note a curvature of which the model is made elsewhere."""
        self.curved, self._rows = self._kept(pieces), rows

    def _kept(self, pieces: Sequence[OfRows]) -> list[OfRows]:
        """What is compared with the next curvatures; of many rows it is on the disk."""
        last = [one for _, one in self.curved if not isinstance(one, np.ndarray)]
        found: list[OfRows] = []
        for chosen, curvature in pieces:
            kept: Any = curvature
            if isinstance(curvature, (np.ndarray, ToldNumbers)):
                flat = self.place is not None and curvature.ndim == 1 and curvature.dtype == np.float32
                stored = self.place.numbers(len(curvature), np.float32) if flat and self.place is not None else None
                kept = np.empty(curvature.shape, curvature.dtype) if stored is None else stored
                for at in range(0, len(curvature), _AT_ONCE):
                    kept[at : at + _AT_ONCE] = curvature[at : at + _AT_ONCE]
            found.append((chosen, kept))
        self._drop(last)
        return found

    def freeze(self) -> Any:
        """What the model was made of; of what is on the disk, how it is found there."""
        stored = [one for _, one in self.curved if not isinstance(one, np.ndarray)]
        self._versions.append(stored)
        if len(self._versions) > VERSIONS:
            self._drop([one for one in self._versions.popleft() if one not in stored])
        return tuple([one if isinstance(one, np.ndarray) else one.sealed() for _, one in self.curved])

    def _drop(self, stored: Sequence[Any]) -> None:
        """Remove what is on the disk, unless a run that is broken off may go back to it."""
        needed = [one for version in self._versions for one in version]
        for one in stored:
            if one not in needed:
                one.remove()

    def make(self, pieces: Sequence[OfRows], rows: int, bent: FloatArray) -> None:
        """Make the model of this curvature: factors, or the diagonal where there are too many columns."""
        self.curved, self._rows, self.bent = self._kept(pieces), rows, bent
        self._factors = []
        if self.wide:
            self._inverse = np.zeros((0, 0))  # the last one goes before the next is made
            self._inverse = np.zeros_like(bent)
            for output in range(self.outputs):
                sums = bent[:, output].astype(np.float64)
                for chosen, c in self._parts(pieces, rows, output):
                    self.columns.squares(chosen, c, sums[: self.columns_width])
                    if self.block.intercept is not None:
                        sums[-1] += c.sum(dtype=np.float64)
                np.maximum(sums, 1e-30, out=sums)
                np.reciprocal(sums, out=sums)
                self._inverse[:, output] = sums
            return
        for output in range(self.outputs):
            factor = self.matrix(pieces, rows, output, bent[:, output])
            gram.cholesky(factor, SMALLEST)
            self._factors.append(factor)

    def step(self, gradient: FloatArray) -> FloatArray:
        """From here to the minimum of the model; the gradient's array is used up."""
        if self.wide:
            return self._by_products(gradient)
        out = -gradient
        for output, factor in enumerate(self._factors):
            one = np.ascontiguousarray(out[:, output : output + 1])
            gram.cholesky_solve(factor, one)
            out[:, output] = one[:, 0]
        return out

    def _times(self, v: FloatArray, out: FloatArray) -> None:
        """The model's matrix times v into `out`, all outputs at once; never made."""
        np.multiply(self.bent, v, out=out)
        for chosen, curvature in self.curved:
            for at in range(0, len(chosen), CHUNK):
                part = chosen[at : at + CHUNK]
                c = curvature[at : at + CHUNK].reshape(len(part), self.outputs) / self._rows
                self.backward(part, self.forward(part, v) * c, 1.0, out)

    def _by_products(self, gradient: FloatArray) -> FloatArray:
        """Conjugate gradients, scaled by the diagonal, in four vectors of which the gradient's is one."""
        inverse, x, r = self._inverse, np.zeros_like(gradient), np.negative(gradient, out=gradient)
        p, product = inverse * r, np.empty_like(r)
        size = first = _dot(r, p)
        for _ in range(_MOST_PRODUCTS):
            if not size > _CLOSE**2 * first:
                break
            self._times(p, product)
            length = size / _dot(p, product)
            product *= length
            r -= product
            np.multiply(length, p, out=product)
            x += product
            np.multiply(inverse, r, out=product)
            before, size = size, _dot(r, product)
            p *= size / before
            p += product
        return x


def _apart(new: Any, old: Any) -> float:
    """The sum of the differences' sizes, without a third array."""
    return sum(
        float(np.abs(new[at : at + CHUNK] - old[at : at + CHUNK]).sum(dtype=np.float64))
        for at in range(0, len(new), CHUNK)
    )


def _sum(values: Any) -> float:
    return sum(float(values[at : at + CHUNK].sum(dtype=np.float64)) for at in range(0, len(values), CHUNK))


def _dot(a: FloatArray, b: FloatArray) -> float:
    """Without a third array, and with the same bits whatever the number of threads is."""
    return float(np.einsum("ij,ij->", a, b))


def signed_pieces(whole: FloatArray, count: int, secret: bytes, epoch: int) -> FloatArray:
    """A direction of shape (size, 1) as columns of `count` pieces: itself, and the same with random signs.

    The signs, +1 or -1 for each coordinate and each piece but the first, come from a party's own secret: whoever knew
    them could solve the pieces' sums for single columns, masks or none.
    """
    if count == 1:
        return whole
    size, drawn = len(whole), len(whole) * (count - 1)
    stream = hashlib.shake_256(secret + epoch.to_bytes(8, "little")).digest(-(-drawn // 8))
    bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), count=drawn).reshape(size, count - 1)
    found = np.empty((size, count))
    found[:, :1] = whole
    np.multiply(whole, (2 * bits.astype(np.int8)) - 1, out=found[:, 1:])
    return found
