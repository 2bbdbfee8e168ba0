"""What a label holder does with directions: it finds the best point in the space that they span, without a message.

Scores are linear in the parameters. Who knows the scores of the parties' directions knows the loss anywhere in the
space that they span, and minimises it there by Newton's method. (For a quadratic loss, with the directions that block
Newton steps give, these are conjugate gradients with the blocks as preconditioner, Hestenes and Stiefel 1952; for
another loss the search makes good what a change of curvature would spoil.) A label holder without company may let all
its own columns take part in the search, not a direction of them only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.newton import CHUNK, SMALLEST, NewtonBlock
from colonnade.kernels import columns as kernels
from colonnade.kernels import gram
from colonnade.objective.losses import Loss
from colonnade.objective.weighted import weights_of

# Newton steps of a search, at most, and halvings of one of them.
_MOST_STEPS, _HALVINGS = 12, 80
WORTHWHILE = 0.01
# A promise below this part of the objective is rounding.
_ROUNDING = 1e-14


class Held:
    """The rows whose labels a holder has: their scores, and the scores of the directions."""

    def __init__(self, loss: Loss, y: Any, z: FloatArray) -> None:
        self.loss, self.y, self.z = loss, y, np.ascontiguousarray(z)
        self.outputs = 1 if z.ndim == 1 else z.shape[1]
        self.count = 0
        self._V = np.zeros((z.size, 0))  # a row for each score, a column for each direction

    def add(self, new: FloatArray, room: int) -> None:
        """Remember the scores of new directions; the oldest go where there is no room."""
        gone = max(0, self.count + new.shape[1] - room)
        kept = self.count - gone
        needed = kept + new.shape[1]
        if needed > self._V.shape[1]:
            larger = np.zeros((len(self._V), min(room, max(8, 2 * needed))))
            larger[:, :kept] = self._V[:, gone : self.count]
            self._V = larger
        elif gone:
            self._V[:, :kept] = self._V[:, gone : self.count].copy()
        self._V[:, kept:needed] = new
        self.count = needed

    def along(self, weights: FloatArray) -> FloatArray:
        """The change of the scores along the directions."""
        out = np.empty((self.z.size, 1))
        kernels.dense_forward(self._V, np.arange(self.z.size), weights.reshape(-1, 1), out)
        return out.reshape(self.z.shape)

    def value(self, z: FloatArray) -> float:
        """The sum of the rows' losses."""
        return float(self.loss.values(z, self.y).sum())

    def slope(self, z: FloatArray) -> FloatArray:
        """The gradient of `value` along the directions."""
        out = np.zeros((self.count, 1))
        signal = self.loss.signal(z, self.y).reshape(-1, 1)
        kernels.dense_backward(self._V, np.arange(self.z.size), signal, 1.0, out)
        return out[:, 0]

    def curve(self, z: FloatArray) -> FloatArray:
        """The lower triangle of the second derivatives of `value` along the directions, whole also for softmax."""
        out = np.zeros((self.count, self.count))
        if self.outputs == 1:
            gram.dense_gram(self._V, np.arange(len(z)), self.loss.curvature(z, self.y), out)
            return out
        weights = weights_of(self.y)
        for at in range(0, len(z), CHUNK):
            p = self.loss.probability(z[at : at + CHUNK])
            V = self._V[at * self.outputs : (at + len(p)) * self.outputs, : self.count]
            V = V.reshape(*p.shape, self.count)
            # diag(p) - p pᵀ is the spread of the scores under p.
            centred = V - (p[:, :, None] * V).sum(axis=1, keepdims=True)
            flat = centred.reshape(-1, self.count)
            counts = p if weights is None else p * weights[at : at + CHUNK, None]
            gram.dense_gram(flat, np.arange(len(flat)), counts.reshape(-1), out)
        return out

    def share(self, x: FloatArray, rows: int, *, whole: bool) -> FloatArray:
        """Its part of the mean loss over so many rows at a point of the search; gradient, second derivatives."""
        m, z = len(x), self.z + self.along(x)
        out = np.zeros(1 + m + m * m)
        out[0] = self.value(z)
        if whole:
            out[1 : 1 + m], out[1 + m :] = self.slope(z), self.curve(z).reshape(-1)
        return out / rows

    def rows_of(self, at: int, end: int) -> FloatArray:
        """The scores of the directions at some rows, where a row has one score."""
        return self._V[at:end, : self.count]

    def freeze(self) -> Any:
        """Scores of rows and directions; see `engine.kept.Frozen`."""
        return (self.z, np.ascontiguousarray(self._V[:, : self.count]))

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        z, V = state
        self.z, self._V, self.count = z.copy(), V.copy(), V.shape[1]


class PastDirections:
    """Directions that a party remembers, in single precision: any vector may be a direction, so nothing is lost."""

    def __init__(self, width: int) -> None:
        self._rows = np.zeros((0, width), dtype=np.float32)
        self.count = 0

    @property
    def rows(self) -> npt.NDArray[np.float32]:
        """The directions that are remembered, the oldest first."""
        return self._rows[: self.count]

    def add(self, new: npt.NDArray[np.float32], room: int) -> None:
        """Remember more directions; the oldest go where there is no room."""
        gone = max(0, self.count + len(new) - room)
        needed = self.count - gone + len(new)
        if needed > len(self._rows):
            larger = np.zeros((min(room, max(8, 2 * needed)), self._rows.shape[1]), dtype=np.float32)
            larger[: self.count - gone] = self.rows[gone:]
            self._rows = larger
        elif gone:
            for at in range(self.count - gone):  # one at a time: no second copy of all of them
                self._rows[at] = self._rows[at + gone]
        self._rows[self.count - gone : needed] = new
        self.count = needed

    def times(self, v: FloatArray) -> FloatArray:
        """The product of each direction with v."""
        out = np.empty((self.count, 1))
        kernels.dense_forward(self._rows, np.arange(self.count), v.reshape(-1, 1), out)
        return out[:, 0]

    def combine(self, weights: FloatArray) -> FloatArray:
        """The sum of all directions with these weights."""
        out = np.zeros((self._rows.shape[1], 1))
        kernels.dense_backward(self._rows, np.arange(self.count), weights.reshape(-1, 1), 1.0, out)
        return out[:, 0]


@dataclass
class Sight:
    """The objective, its gradient and its second derivatives (lower triangle) at a point of the search."""

    value: float
    gradient: FloatArray
    matrix: FloatArray


Look: TypeAlias = Callable[[FloatArray, bool], Awaitable[Sight]]


async def minimise(look: Look, size: int, worthwhile: float = WORTHWHILE) -> FloatArray:
    """Newton's method from 0; never ends above where it began.

    `look(x, whole)`: with `whole=False` the value is enough. worthwhile: the part of what the search has brought so far
    that another step must promise.
    """
    x = np.zeros(size)
    if not size:
        return x
    here = await look(x, True)
    start = here.value
    for _ in range(_MOST_STEPS):
        factor, step = here.matrix.copy(), -here.gradient[:, None]
        gram.cholesky(factor, SMALLEST)
        gram.cholesky_solve(factor, step)
        promised = -float((here.gradient * step[:, 0]).sum())
        if not promised > max(worthwhile * (start - here.value), _ROUNDING * abs(here.value)):
            break
        for halving in range(_HALVINGS):
            trial = x + 0.5**halving * step[:, 0]
            seen = await look(trial, False)
            if seen.value <= here.value - 1e-4 * 0.5**halving * promised:
                break
        else:
            break
        x = trial
        here = seen if len(seen.gradient) else await look(x, True)
    return x


class OwnColumns:
    """A search over the directions and all own columns at once, of a holder of all labels."""

    def __init__(self, held: Held, own: NewtonBlock, rows: Rows, pull: FloatArray, bend: FloatArray) -> None:
        self.held, self.own, self.rows, self.pull, self.bend = held, own, rows, pull, bend
        self.own_pull, self.own_bend = own.pull()[:, 0], np.full(own.width, own.block.penalty.curvature_bound)
        self.own_bend[own.columns_width :] = 0.0
        self.size = own.width + held.count

    def scores(self, x: FloatArray) -> FloatArray:
        """The scores of all rows at a point of the search."""
        q = self.own.width
        z = self.held.z + self.own.forward(self.rows, x[:q, None])[:, 0]
        return z + self.held.along(x[q:]) if self.held.count else z

    async def look(self, x: FloatArray, whole: bool) -> Sight:
        """The objective at a point of the search, but for what does not change."""
        held, own, q, n = self.held, self.own, self.own.width, len(self.rows)
        z, mine, theirs = self.scores(x), x[:q], x[q:]
        bent = (self.bend * theirs).sum(axis=1)  # not BLAS: see `_newton_kernels`
        value = held.value(z) / n + float((self.own_pull * mine).sum() + 0.5 * (self.own_bend * mine * mine).sum())
        value += float((self.pull * theirs).sum() + 0.5 * (theirs * bent).sum())
        if not whole:
            return Sight(value, np.zeros(0), np.zeros((0, 0)))
        gradient = np.zeros((self.size, 1))
        signal, curvature = held.loss.signal(z, held.y), held.loss.curvature(z, held.y)
        own.backward(self.rows, signal[:, None], 1.0 / n, gradient[:q])
        gradient[:q, 0] += self.own_pull + self.own_bend * mine
        matrix = np.zeros((self.size, self.size))
        matrix[:q, :q] = own.matrix([(self.rows, curvature)], n, 0, self.own_bend)
        if held.count:
            gradient[q:, 0] = held.slope(z) / n + self.pull + bent
            matrix[q:, q:] = held.curve(z) / n + self.bend
            mixed = np.zeros((q, held.count))
            for at in range(0, n, CHUNK):
                V = held.rows_of(at, at + CHUNK) * curvature[at : at + CHUNK, None]
                own.backward(self.rows[at : at + CHUNK], V, 1.0 / n, mixed)
            matrix[q:, :q] = mixed.T
        return Sight(value, gradient[:, 0], matrix)
