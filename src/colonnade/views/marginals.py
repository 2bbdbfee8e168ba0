"""Columns out of combinations of them, by how the values of each column are distributed.

A direction is turned until the values along it, in their order, are those that the column has: each value is replaced
by the one of its rank, the direction that comes closest to these is taken, and so on. Where coordinates are known up to
a rotation, the directions of all columns are turned together and stay at right angles.
"""

from __future__ import annotations

import numpy as np

from colonnade.views.estimates import basis, centred, components, varimax
from colonnade.views.numbers import FloatArray

_STARTS, _STEPS, _LAST_STEPS, _BEST, _TOGETHER = 24, 12, 30, 6, 40
_FEW = 600


def in_quantiles(marginals: FloatArray, count: int) -> FloatArray:
    """Return so many values of each column, sorted, out of however many are known."""
    at = np.linspace(0, len(marginals) - 1, count)
    low = np.floor(at).astype(np.int64)
    part = (at - low)[:, None]
    found: FloatArray = (1 - part) * marginals[low] + part * marginals[np.minimum(low + 1, len(marginals) - 1)]
    return found


def matched_columns(table: FloatArray, wanted: FloatArray, rng: np.random.Generator, *, rotation: bool) -> FloatArray:
    """Return estimates of columns, in order.

    Parameters
    ----------
    table
        Numbers about rows in whose span the columns are.
    wanted
        The sorted values of each column, as many as there are rows.
    rng
        Where directions are started.
    rotation
        Whether the table is the columns, and maybe others, up to a rotation.
    """
    wanted = centred(wanted)
    spread = wanted.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    U = basis(table) * len(table) ** 0.5
    if not U.shape[1]:
        return np.zeros((len(table), wanted.shape[1]))
    extreme = varimax(table) if rotation else components(U)
    likely = np.column_stack([components(U), extreme])
    starts = np.column_stack([likely, -likely, U @ rng.standard_normal((U.shape[1], _STARTS))])
    starts = np.linalg.lstsq(U, starts, rcond=None)[0]
    single = [_matched(U, column / size, starts) for column, size in zip(wanted.T, spread, strict=True)]
    found: FloatArray = np.column_stack(single) * spread
    if not rotation or table.shape[1] < wanted.shape[1]:
        return found
    turned, far = _together(centred(table), wanted, found)
    apart = float((_to_ranks(found, wanted) - found).std(axis=0).sum())
    return turned if far <= apart * 1.5 else found


def _matched(U: FloatArray, wanted: FloatArray, starts: FloatArray) -> FloatArray:
    """Return the values along the direction in which they are distributed most like a column.

    A few steps on a part of the rows tell which starts are worth to be followed on all of them.
    """
    directions = starts
    few = np.linspace(0, len(U) - 1, min(len(U), _FEW)).astype(np.int64)
    for part, steps, kept in ((few, _STEPS, _BEST), (np.arange(len(U)), _LAST_STEPS, 1)):
        some, here = U[part], in_quantiles(wanted[:, None], len(part))
        for _ in range(steps):
            values = some @ directions
            values /= np.maximum(values.std(axis=0), 1e-300)
            directions = some.T @ _to_ranks(values, np.broadcast_to(here, values.shape)) / len(some)
        values = some @ directions
        values /= np.maximum(values.std(axis=0), 1e-300)
        far = (np.sort(values, axis=0) - here).std(axis=0)
        directions = directions[:, np.argsort(far)[:kept]]
    found: FloatArray = (U @ directions)[:, 0]
    return found / max(float(found.std()), 1e-300)


def _together(table: FloatArray, wanted: FloatArray, first: FloatArray) -> tuple[FloatArray, float]:
    """Return all columns at once, from where each of them was found by itself."""
    values = first
    for _ in range(_TOGETHER):
        U, _, V = np.linalg.svd(table.T @ _to_ranks(values, wanted), full_matrices=False)
        values = table @ (U @ V)
    return values, float((_to_ranks(values, wanted) - values).std(axis=0).sum())


def _to_ranks(values: FloatArray, wanted: FloatArray) -> FloatArray:
    """Return the wanted values in the order of the given ones, column by column."""
    found = np.empty_like(values)
    np.put_along_axis(found, np.argsort(values, axis=0), wanted, axis=0)
    return found
