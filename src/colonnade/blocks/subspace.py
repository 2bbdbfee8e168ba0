"""What a label holder does with directions: it finds the best point in the space that they span, without a message.

Scores are linear in the parameters. Who knows the scores of the parties' directions knows the loss anywhere in the
space that they span, and minimises it there by Newton's method. (For a quadratic loss, with the directions that block
Newton steps give, these are conjugate gradients with the blocks as preconditioner, Hestenes and Stiefel 1952; for
another loss the search makes good what a change of curvature would spoil.) A label holder without company may let all
its own columns take part in the search, not a direction of them only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.newton import SMALLEST, VERSIONS, NewtonBlock, Place, Stored
from colonnade.blocks.row_blocks import BLOCK, each_block, in_order
from colonnade.blocks.second_order import Judgement, products
from colonnade.errors import CheckpointError
from colonnade.kernels import columns as kernels
from colonnade.kernels import gram, panels
from colonnade.objective.losses import Loss
from colonnade.objective.weighted import weights_of

Steps: TypeAlias = npt.NDArray[np.int32]
T = TypeVar("T")

# Newton steps of a search, at most, and halvings of one of them.
_MOST_STEPS, _HALVINGS = 12, 80
WORTHWHILE = 0.01
# A promise below this part of the objective is rounding.
_ROUNDING = 1e-14
# What is left to be gained is only guessed from one step: a search ends there if it is far from worthwhile.
_SURELY = 0.01
# A step that promises more than this part of the objective is hardly ever the last one.
_LARGE = 0.01


class Held:
    """The rows whose labels a holder has: their scores, and the scores of the directions.

    These come out of a ring of 32 bits, and stay what they are there: whole numbers of steps, four bytes each. Where
    there are many rows, both are on the disk, and a block of rows of them is read where it is needed.
    """

    def __init__(self, loss: Loss, y: Any, z: Any, unit: float, place: Place | None = None) -> None:
        self.loss, self.y, self.unit, self._place = loss, y, unit, place
        self.outputs = 1 if not isinstance(z, np.ndarray) or z.ndim == 1 else z.shape[1]
        self.z = z  # changed in place, a block of rows at a time
        if isinstance(z, np.ndarray):
            self.z = np.ascontiguousarray(z)
            stored = None if place is None or z.ndim > 1 else place.numbers(len(z), np.float64)
            if stored is not None:
                stored[:], self.z = z, stored
        self._columns: list[Any] = []  # one for each direction, with a place for each score
        self._lost: float | None = None  # the sum of the losses at these scores
        self._kept: deque[Stored] = deque()  # copies of the scores, of the last versions
        self._versions: deque[list[Stored]] = deque()  # the directions on the disk that these know

    @property
    def count(self) -> int:
        """How many directions are remembered."""
        return len(self._columns)

    def add(self, new: int, room: int) -> list[Any]:
        """Places for the scores of so many directions more, to be filled; the oldest go where there is no room."""
        size = self.outputs * len(self.z)
        found: list[Any] = []
        for _ in range(new):
            stored = None if self._place is None else self._place.numbers(size, np.int32)
            found.append(np.zeros(size, np.int32) if stored is None else stored)
        columns = [*self._columns, *found]
        self._columns = columns[-room:]
        self._drop([one for one in columns[:-room] if not isinstance(one, np.ndarray)])
        return found

    def _drop(self, gone: list[Stored]) -> None:
        """Remove directions from the disk, unless a run that is broken off may go back to them."""
        needed = [one for version in self._versions for one in version]
        for one in gone:
            if one not in needed:
                one.remove()

    def move(self, weights: FloatArray) -> None:
        """Go along the directions."""
        w = (self.unit * weights)[:, None]

        def make(at: int, end: int) -> None:
            z = np.array(self.z[at:end])
            panels.along(self.some(at, end), w, z.reshape(-1))
            self.z[at:end] = z

        each_block(make, len(self.z))
        self._lost = None

    def value(self) -> float:
        """The sum of the rows' losses."""
        if self._lost is None:
            self._lost = sum(
                self._by_blocks(lambda at, end: float(self.loss.values(self.z[at:end], self.y[at:end]).sum()))
            )
        return self._lost

    def went(self, lost: float) -> None:
        """Know the sum of the losses where somebody else has moved the scores."""
        self._lost = lost

    def signal(self, at: int, end: int) -> FloatArray:
        """The signals of some rows."""
        return self.loss.signal(self.z[at:end], self.y[at:end])

    def curvature(self, at: int, end: int) -> FloatArray:
        """The curvatures of some rows."""
        return self.loss.curvature(self.z[at:end], self.y[at:end])

    def share(self, x: FloatArray, rows: int, *, whole: bool) -> FloatArray:
        """Its part of the mean loss over so many rows at a point of the search; gradient, second derivatives."""
        m, w = len(x), (self.unit * x)[:, None]

        def make(at: int, end: int) -> FloatArray:
            z, y, V = np.array(self.z[at:end]), self.y[at:end], self.some(at, end)
            out, places = np.zeros(1 + m + m * m), np.arange(len(V))
            panels.along(V, w, z.reshape(-1))
            if not whole:
                out[0] = self.loss.values(z, y).sum()
                return out
            values, signal, curvature = self.loss.sight(z, y)
            out[0], none = values.sum(), np.zeros((len(V), 0), np.float32)
            if self.outputs == 1:
                sums = products(V, places, Judgement(signal, curvature, none), 0)
                out[1 + m :] = np.tril(sums[:m, :m]).reshape(-1)
            else:
                sums = products(V, places, Judgement(signal.reshape(-1), curvature.reshape(-1), none), m)
                out[1 + m :] = self._whole_curve(z, y, V).reshape(-1)
            out[1 : 1 + m] = sums[m if self.outputs == 1 else 0, :m]
            return out

        total = sum(self._by_blocks(make), np.zeros(1 + m + m * m))
        total[1 : 1 + m] *= self.unit
        total[1 + m :] *= self.unit * self.unit
        return total / rows

    def _whole_curve(self, z: FloatArray, y: Any, V: Steps) -> FloatArray:
        """The lower triangle of the second derivatives along the directions, with the products between classes."""
        p, weights = self.loss.probability(z), weights_of(y)
        cubes = V.reshape(*p.shape, -1).astype(np.float64)
        # diag(p) - p pᵀ is the spread of the scores under p.
        centred = (cubes - (p[:, :, None] * cubes).sum(axis=1, keepdims=True)).reshape(len(V), -1)
        counts = (p if weights is None else p * weights[:, None]).reshape(-1)
        m, none = V.shape[1], np.zeros((len(V), 0), np.float32)
        return np.tril(products(centred, np.arange(len(V)), Judgement(counts, counts, none), 0)[:m, :m])

    def some(self, at: int, end: int, ones: int = 0) -> Steps:
        """The scores of the directions at some rows, behind so many columns of ones: a row for each score."""
        at, end = self.outputs * at, self.outputs * end
        out = np.ones((end - at, ones + self.count), np.int32)
        for k, column in enumerate(self._columns):
            out[:, ones + k] = column[at:end]
        return out

    def _by_blocks(self, make: Callable[[int, int], T]) -> list[T]:
        size = BLOCK if self.outputs == 1 else max(256, BLOCK // (4 * self.outputs))
        return list(in_order(make, [*range(0, len(self.z), size), len(self.z)] if len(self.z) else [0]))

    def freeze(self) -> Any:
        """Scores of rows and directions; see `engine.kept.Frozen`. Of what is on the disk, how it is found there."""
        if isinstance(self.z, np.ndarray):
            z: Any = self.z.copy()
        else:
            self._kept.append(self.z.copied())
            z = self._kept[-1].sealed()
            if len(self._kept) > VERSIONS:
                self._kept.popleft().remove()
        apart = bool(self._columns) and not isinstance(self._columns[0], np.ndarray)
        if apart:
            self._versions.append(list(self._columns))
            if len(self._versions) > VERSIONS:
                self._drop([one for one in self._versions.popleft() if one not in self._columns])
            return z, tuple([column.sealed() for column in self._columns])
        none = np.zeros((0, self.outputs * len(self.z)), np.int32)
        return z, np.stack(self._columns) if self._columns else none

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        z, columns = state
        count = len(self.z)
        self.z, self._lost = self._found(z, count, np.float64, own=True), None
        self._columns = [self._found(column, self.outputs * count, np.int32) for column in columns]
        self._versions = deque([[one for one in self._columns if not isinstance(one, np.ndarray)]])

    def _found(self, kept: Any, count: int, dtype: Any, *, own: bool = False) -> Any:
        """Numbers that were kept; `own`: a copy of those, to be changed."""
        if isinstance(kept, np.ndarray):
            return kept.copy()
        if self._place is None:
            raise CheckpointError("what was kept of rows is on a disk that this run does not use; start the job anew")
        found = self._place.known_numbers(kept, count, dtype)
        return found.copied() if own else found


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
            # A large step bends the loss, and there will be another one: better to see all that this one needs at once.
            seen = await look(trial, promised > _LARGE * abs(here.value))
            if seen.value <= here.value - 1e-4 * 0.5**halving * promised:
                break
        else:
            break
        x = trial
        if not len(seen.gradient):
            if not halving and _left(promised, here.value - seen.value) <= _SURELY * worthwhile * (start - seen.value):
                break
            seen = await look(x, True)
        here = seen
    return x


def _left(promised: float, fell: float) -> float:
    """About what a Newton step leaves to be gained, from how far it fell where half of its promise was expected.

    What is off by a part r of the expected is a sixth of the third derivative along the step. That moves the slope
    along it by three times as much, and so leaves 9/4 r² of the expected fall to be gained there.
    """
    expected = 0.5 * promised
    off = (expected - fell) / expected
    return 2.25 * off * off * expected


class OwnColumns:
    """A search over the directions and all own columns at once, of a holder of all labels."""

    def __init__(self, held: Held, own: NewtonBlock, rows: Rows, pull: FloatArray, bend: FloatArray) -> None:
        self.held, self.own, self.rows, self.pull, self.bend = held, own, rows, pull, bend
        self.own_pull, self.own_bend = own.pull()[:, 0], np.full(own.width, own.block.penalty.curvature_bound)
        self.own_bend[own.columns_width :] = 0.0
        self.size = own.width + held.count
        self._units = np.ones(self.size)  # of columns as they are looked at: a direction's scores are counted in steps
        self._units[own.width :] = held.unit
        self._at, self._lost = np.zeros(self.size), 0.0  # the last look: where, and the sum of losses

    async def go(self, x: FloatArray) -> None:
        """Let the rows have the scores of a point of the search: once more over all columns, and no second copy."""
        if not x.any():
            return
        held, known = self.held, np.array_equal(x, self._at)
        lost: dict[int, float] = {}

        def judge(at: int, end: int, scores: FloatArray) -> None:
            z, _ = self._there(x, at, end, scores)
            if not known:
                lost[at] = float(held.loss.values(z, held.y[at:end]).sum())
            held.z[at:end] = z

        none = np.zeros(self.size), np.zeros((0, 0))
        self.own.columns.look(self.rows, self._mine(x), judge, *none)
        held.went(self._lost if known else sum(lost[at] for at in sorted(lost)))

    def _mine(self, x: FloatArray) -> FloatArray:
        return np.ascontiguousarray(x[: self.own.columns_width, None])

    def _there(self, x: FloatArray, at: int, end: int, scores: FloatArray) -> tuple[FloatArray, Steps]:
        """Some rows' scores at a point of the search, from those of own columns; and what stands beside these."""
        held, own = self.held, self.own
        d, q = own.columns_width, own.width
        beside = held.some(at, end, q - d)
        if not x.any():
            return held.z[at:end], beside
        z = scores[:, 0]
        panels.along(beside, np.concatenate([x[d:q], held.unit * x[q:]])[:, None], z)
        z += held.z[at:end]
        return z, beside

    async def look(self, x: FloatArray, whole: bool) -> Sight:
        """The objective at a point of the search, but for what does not change."""
        held, own, q, n = self.held, self.own, self.own.width, len(self.rows)
        mine, theirs = x[:q], x[q:]
        lost: dict[int, float] = {}

        def judge(at: int, end: int, scores: FloatArray) -> Judgement | None:
            (z, beside), y = self._there(x, at, end, scores), held.y[at:end]
            if not whole:
                lost[at] = float(held.loss.values(z, y).sum())
                return None
            values, signal, curvature = held.loss.sight(z, y)
            lost[at] = float(values.sum())
            return Judgement(signal, curvature, beside)

        gradient, matrix = np.zeros(self.size), np.zeros((self.size, self.size) if whole else (0, 0))
        own.columns.look(self.rows, self._mine(x), judge, gradient, matrix)
        bent = (self.bend * theirs).sum(axis=1)  # not BLAS: see `kernels.gram`
        total = sum(lost[at] for at in sorted(lost))
        self._at, self._lost = x, total
        value = total / n
        value += float((self.own_pull * mine).sum() + 0.5 * (self.own_bend * mine * mine).sum())
        value += float((self.pull * theirs).sum() + 0.5 * (theirs * bent).sum())
        if not whole:
            return Sight(value, np.zeros(0), np.zeros((0, 0)))
        gradient *= self._units / n
        gradient[:q] += self.own_pull + self.own_bend * mine
        gradient[q:] += self.pull + bent
        matrix *= self._units / n
        matrix *= self._units[:, None]
        matrix[np.arange(q), np.arange(q)] += self.own_bend
        matrix[q:, q:] += self.bend
        return Sight(value, gradient, matrix)
