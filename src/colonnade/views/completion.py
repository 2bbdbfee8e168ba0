"""Inner products of rows of which each was only seen now and then."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colonnade.views.numbers import FloatArray, Rows

_AT_LAST = 40  # turns with all dimensions


def completed(
    rows: int, sums: Sequence[tuple[Rows, FloatArray, float]], pieces: Sequence[tuple[Rows, FloatArray]], width: int
) -> FloatArray | None:
    """Return Y with Y Y^T = K from z = (K a) of the rows of each batch; None where they were seen too seldom.

    K has rank `width`. Given its space, the numbers seen of a row are linear in that row of K; and the rows of K, made
    symmetric, give its space anew, in turns and with more and more dimensions.

    sums: (rows, a, intercept) of each batch. pieces: (rows, z) of the same batches.
    """
    seen: list[list[tuple[int, float]]] = [[] for _ in range(rows)]
    for number, ((some, z), (same, _, intercept)) in enumerate(zip(pieces, sums, strict=True)):
        if not np.array_equal(some, same):
            return None
        for row, value in zip(some, z - intercept, strict=True):
            seen[row].append((number, value))
    often = min(map(len, seen))
    if often < width:
        return None
    when = np.array([[number for number, _ in one[:often]] for one in seen])
    values = np.array([[value for _, value in one[:often]] for one in seen])
    A = np.column_stack([a for _, a, _ in sums])
    U, s, _ = np.linalg.svd(values, full_matrices=False)
    Y: FloatArray = U[:, :4] * s[:4]
    for rank in [*np.repeat(np.arange(4, width), 4), *[width] * _AT_LAST]:
        steps = (Y.T @ A).T[when]  # rows x times x dimensions
        square = steps.transpose(0, 2, 1) @ steps
        square += 1e-9 * np.trace(square, axis1=1, axis2=2)[:, None, None] * np.eye(square.shape[1])
        left = np.linalg.solve(square, steps.transpose(0, 2, 1) @ values[..., None])[..., 0]
        Q, R = np.linalg.qr(np.column_stack([left, Y]))
        half = Y.shape[1]
        middle = R[:, :half] @ R[:, half:].T
        w, V = np.linalg.eigh(middle + middle.T)
        Y = Q @ (V[:, ::-1][:, :rank] * np.sqrt(np.maximum(w[::-1][:rank] / 2, 1e-12)))
    return Y
