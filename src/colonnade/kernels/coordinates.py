"""Coordinate descent on a quadratic function plus absolute values: the inner loop of an elastic net.

As in `gram`: no `fastmath` and a fixed order of additions, so that a run gives the same bits everywhere. The numpy twin
is in tests/test_elastic_net.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled

Array = npt.NDArray[Any]


@Compiled
def descend(M: Array, r: Array, u: Array, l1: float, penalised: int, sweeps: int, close: float) -> bool:
    """Sweep over all coordinates of u, each of which goes to its best value; says whether they came to rest.

    The function is u' M u / 2 + b' u + l1 times the absolute values of the first `penalised` coordinates; r is its
    gradient without the last term, M u + b, and is kept up to date. M is symmetric. Coordinates rest when no sweep
    lowers the function by more than `close` of what the first sweep did.
    """
    d = M.shape[0]
    first = 0.0
    for sweep in range(sweeps):
        most = 0.0
        for j in range(d):
            row = M[j]
            m = row[j]
            if m <= 0.0:
                continue
            new = u[j] - r[j] / m
            if j < penalised:
                cut = l1 / m
                new = new - cut if new > cut else (new + cut if new < -cut else 0.0)
            step = new - u[j]
            if step != 0.0:
                u[j] = new
                for k in range(d):
                    r[k] += step * row[k]
                most = max(most, m * step * step)
        if sweep == 0:
            first = most
        if most <= close * first:
            return True
    return False


def soft(w: Array, cut: float) -> Array:
    """Return w with every number closer to 0 by `cut`, and no further than that."""
    out: Array = np.sign(w) * np.maximum(np.abs(w) - cut, 0.0)
    return out
