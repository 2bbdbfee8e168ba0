"""The kernels of first-order steps. Each has a numpy twin in tests/test_kernels.py that it must equal.

No `fastmath`: the order of additions is fixed, so a run gives the same bits in every process. All kernels release the
GIL, take the rows of a batch by index (no copy of the batch is made), and cost time in proportion to the non-zeros of
those rows. Column indices of CSR blocks are unsigned: numba then needs no test for negative indices in the inner loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled

Array = npt.NDArray[Any]


@Compiled
def dense_forward(X: Array, rows: Array, W: Array, out: Array) -> None:
    """out[i] = X[rows[i]] @ W, for W of shape (d, c)."""
    d, c = W.shape
    if c == 1:
        for i in range(rows.shape[0]):
            x = X[rows[i]]
            # Four sums that do not wait for each other: strict order, and still several times faster than one.
            s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
            j = 0
            while j + 4 <= d:
                s0 += x[j] * W[j, 0]
                s1 += x[j + 1] * W[j + 1, 0]
                s2 += x[j + 2] * W[j + 2, 0]
                s3 += x[j + 3] * W[j + 3, 0]
                j += 4
            while j < d:
                s0 += x[j] * W[j, 0]
                j += 1
            out[i, 0] = (s0 + s1) + (s2 + s3)
        return
    for i in range(rows.shape[0]):
        x = X[rows[i]]
        for k in range(c):
            out[i, k] = 0.0
        for j in range(d):
            v = x[j]
            if v != 0.0:
                for k in range(c):
                    out[i, k] += v * W[j, k]


@Compiled
def dense_backward(X: Array, rows: Array, signal: Array, factor: float, G: Array) -> None:
    """G += factor * X[rows].T @ signal."""
    d, c = G.shape
    if c == 1:
        for i in range(rows.shape[0]):
            s = factor * signal[i, 0]
            if s != 0.0:
                x = X[rows[i]]
                for j in range(d):
                    G[j, 0] += s * x[j]
        return
    for i in range(rows.shape[0]):
        x = X[rows[i]]
        for j in range(d):
            v = factor * x[j]
            if v != 0.0:
                for k in range(c):
                    G[j, k] += v * signal[i, k]


@Compiled
def csr_forward(data: Array, columns: Array, starts: Array, rows: Array, W: Array, out: Array) -> None:
    """out[i] = X[rows[i]] @ W, for X in CSR form."""
    c = W.shape[1]
    if c == 1:
        for i in range(rows.shape[0]):
            s = 0.0
            for p in range(starts[rows[i]], starts[rows[i] + 1]):
                s += data[p] * W[columns[p], 0]
            out[i, 0] = s
        return
    for i in range(rows.shape[0]):
        for k in range(c):
            out[i, k] = 0.0
        for p in range(starts[rows[i]], starts[rows[i] + 1]):
            v, j = data[p], columns[p]
            for k in range(c):
                out[i, k] += v * W[j, k]


@Compiled
def csr_backward(
    data: Array, columns: Array, starts: Array, rows: Array, signal: Array, factor: float, G: Array
) -> None:
    """G += factor * X[rows].T @ signal, touching only the columns that occur in these rows."""
    c = G.shape[1]
    if c == 1:
        for i in range(rows.shape[0]):
            s = factor * signal[i, 0]
            if s != 0.0:
                for p in range(starts[rows[i]], starts[rows[i] + 1]):
                    G[columns[p], 0] += s * data[p]
        return
    for i in range(rows.shape[0]):
        for p in range(starts[rows[i]], starts[rows[i] + 1]):
            v, j = factor * data[p], columns[p]
            for k in range(c):
                G[j, k] += v * signal[i, k]


@Compiled
def dense_move(X: Array, rows: Array, source: Array, factor: float, target: Array) -> None:
    """target += factor * source; source = 0."""
    for j in range(source.shape[0]):
        for k in range(source.shape[1]):
            target[j, k] += factor * source[j, k]
            source[j, k] = 0.0


@Compiled
def csr_move(
    data: Array, columns: Array, starts: Array, rows: Array, source: Array, factor: float, target: Array
) -> None:
    """The same as `dense_move` for a source that is zero outside the columns of these rows."""
    for i in range(rows.shape[0]):
        for p in range(starts[rows[i]], starts[rows[i] + 1]):
            j = columns[p]
            for k in range(source.shape[1]):
                target[j, k] += factor * source[j, k]
                source[j, k] = 0.0


@Compiled
def csr_row_nonzeros(starts: Array, rows: Array) -> int:
    """How many numbers a pass over these rows touches."""
    total = 0
    for i in range(rows.shape[0]):
        total += starts[rows[i] + 1] - starts[rows[i]]
    return total


@Compiled
def overdue(w: float, a: float, r: int, t: int, steps: Array) -> Any:
    """A weight after the dense terms of steps r + 1 to t: w -= eta (a + l2 w), where a did not change meanwhile.

    `steps` has a row per step: what is left of a weight after all steps so far (decay), what a force of 1 made of it
    (force), the sum of their lengths, and the length of this one. (For the penalty that is not L2, see `missed`.)
    """
    ratio = steps[t, 0] / steps[r, 0]
    return w * ratio - a * (steps[t, 1] - steps[r, 1] * ratio)


@Compiled
def csr_catch_up(
    columns: Array,
    starts: Array,
    rows: Array,
    average: Array,
    last: Array,
    now: int,
    steps: Array,
    W: Array,
) -> None:
    """Bring the columns of these rows up to step `now`: what they are owed since they were last touched."""
    for i in range(rows.shape[0]):
        for p in range(starts[rows[i]], starts[rows[i] + 1]):
            j = columns[p]
            # Written out here and below: a function for it would count references to every array at every number, which
            # takes five times as long as the work. And `last` is read once: a step in another thread may raise it.
            r = last[j]
            if r < now:
                for k in range(W.shape[1]):
                    W[j, k] = overdue(W[j, k], average[j, k], r, now, steps)
                last[j] = now


@Compiled
def catch_up_all(average: Array, last: Array, now: int, steps: Array, W: Array) -> None:
    """Bring every column up to step `now`, and count steps from 0 again."""
    for j in range(W.shape[0]):
        if last[j] < now:
            for k in range(W.shape[1]):
                W[j, k] = overdue(W[j, k], average[j, k], last[j], now, steps)
        last[j] = 0


@Compiled
def csr_rule_step(
    data: Array,
    columns: Array,
    starts: Array,
    rows: Array,
    change: Array,
    eta: float,
    average: Array,
    weight: float,
    last: Array,
    now: int,
    steps: Array,
    W: Array,
) -> None:
    """Step `now` on the columns of a batch: W -= eta (X_B^T change / b + average + l2 W).

    Then average += weight X_B^T change. The dense terms of the other columns wait until those are touched. Of columns
    that have had theirs, this one's too, only the batch's part is left to do.
    """
    b, c = change.shape
    for i in range(b):
        for p in range(starts[rows[i]], starts[rows[i] + 1]):
            j = columns[p]
            r = last[j]
            if r < now:
                for k in range(c):
                    W[j, k] = overdue(W[j, k], average[j, k], r, now, steps)
                last[j] = now
            for k in range(c):
                g = data[p] * change[i, k]
                W[j, k] -= eta / b * g
                average[j, k] += weight * g


@Compiled
def round_to_circle(angles: Array, per_radian: float, limit: float, out: Array) -> int:
    """out = angles in steps of the circle, rounded, modulo 2^32; how many are beyond `limit` steps, or no number."""
    beyond = 0
    for i in range(angles.shape[0]):
        steps = angles[i] * per_radian
        beyond += not (abs(steps) < limit)
        out[i] = np.uint32(np.int64(np.rint(steps)))
    return beyond


# sqrt(2) sin(2 pi y) / y as a polynomial in y^2, fitted at 400 Chebyshev points of |y| <= 1/4: exact to 4e-11.
_S0, _S1, _S2 = np.float32(8.885765876165403), np.float32(-58.46599582544392), np.float32(115.4072176613985)
_S3, _S4, _S5 = np.float32(-108.47623493323837), np.float32(59.41083694342936), np.float32(-20.356381015398085)


@Compiled
def circle_cosines(phases: Array, out: Array) -> None:
    """out = sqrt(2) cos(2 pi phases / 2^32), in single precision: cos(2 pi t) = sin(2 pi (1/4 - |t|))."""
    for i in range(phases.shape[0]):
        # As signed numbers, angles are between -pi and pi, where a float32 is finest.
        y = np.float32(0.25) - abs(np.float32(np.int32(phases[i])) * np.float32(2.0**-32))
        s = y * y
        out[i] = y * (_S0 + s * (_S1 + s * (_S2 + s * (_S3 + s * (_S4 + s * _S5)))))
