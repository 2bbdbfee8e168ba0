"""The dense terms of a step under VFB²'s non-convex penalty, made up for at the columns that have missed them.

Such terms have no closed form over several steps, as the L2 penalty's have (`columns.overdue`). So the missed steps are
taken one after another, exactly as they would have been, but sixteen weights at a time: a processor divides for
eight of them at once, and a look at a step costs one or two nanoseconds. All steps of an epoch together cost what they
do where no column ever waits, or less, since a column that stands still at 0 is left alone.
"""

from __future__ import annotations

from colonnade.compiling.compiled import Compiled
from colonnade.kernels.columns import Array

LANES = 16


@Compiled
def take_missed(w: Array, a: Array, r: Array, now: int, strength: float, steps: Array) -> None:
    """w -= eta (a + strength w / (1 + w²)²) for the steps r + 1 to `now` of each of sixteen weights.

    eta is the last column of `steps`. In a step that a weight has had, it moves by 0.
    """
    first = now
    for i in range(LANES):
        first = min(first, r[i])
    for k in range(first + 1, now + 1):
        eta = steps[k, 3]
        for i in range(LANES):
            h = 1.0 + w[i] * w[i]
            w[i] -= (eta if k > r[i] else 0.0) * (a[i] + strength * w[i] / (h * h))


@Compiled
def csr_take_missed(
    columns: Array,
    starts: Array,
    rows: Array,
    average: Array,
    last: Array,
    now: int,
    strength: float,
    steps: Array,
    W: Array,
    w: Array,
    a: Array,
    r: Array,
    whose: Array,
) -> None:
    """Bring the columns of these rows up to step `now`. The last four arguments are room for sixteen weights.

    A column that is met twice before its weight is written back gets the same weight twice; one of several weights is
    written back before the next is looked at.
    """
    c = W.shape[1]
    count = 0
    r[:] = now
    for i in range(rows.shape[0]):
        for p in range(starts[rows[i]], starts[rows[i] + 1]):
            j = columns[p]
            if last[j] < now:
                for k in range(c):
                    w[count], a[count], r[count], whose[count] = W[j, k], average[j, k], last[j], j * c + k
                    count += 1
                    if count == LANES or (c > 1 and k == c - 1):
                        take_missed(w, a, r, now, strength, steps)
                        _write_back(W, last, now, w, whose, count)
                        r[:] = now
                        count = 0
    if count:
        take_missed(w, a, r, now, strength, steps)
        _write_back(W, last, now, w, whose, count)


@Compiled
def _write_back(W: Array, last: Array, now: int, w: Array, whose: Array, count: int) -> None:
    c = W.shape[1]
    for i in range(count):
        j, k = whose[i] // c, whose[i] % c
        W[j, k] = w[i]
        if k == c - 1:  # its other weights were in the lanes before this one
            last[j] = now


@Compiled
def take_all_missed(
    average: Array, last: Array, now: int, strength: float, steps: Array, W: Array, w: Array, a: Array, r: Array
) -> None:
    """Bring every column up to step `now`, and count steps from 0 again; the last three are room for sixteen."""
    c = W.shape[1]
    for at in range(0, W.shape[0] * c, LANES):
        count = min(LANES, W.shape[0] * c - at)
        r[:] = now
        for i in range(count):
            j, k = (at + i) // c, (at + i) % c
            w[i], a[i] = W[j, k], average[j, k]
            if w[i] != 0.0 or a[i] != 0.0:
                r[i] = last[j]
        take_missed(w, a, r, now, strength, steps)
        for i in range(count):
            W[(at + i) // c, (at + i) % c] = w[i]
    last[:] = 0
