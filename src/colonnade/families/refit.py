"""The last step of a linear model that was trained by labels which are not the true ones.

Noisy labels make coefficients too short. How much they do is public near a score of 0: the slope of the chance of a
noisy label is that of a true one times the chance of keeping it less that of drawing another one. So every party makes
its coefficients longer by as much. Then, when nothing more leaves the label holder, it fits its own coefficients and
the intercept again by the true labels, after one more sum of scores; nobody hears what it makes of it. The fit has a
weight of the others' part besides, by which its own part is divided in the end, as the others can't be told of it:
scores are in the best order then. The intercept is fitted once more, so that their mean is right.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from colonnade.blocks import FloatArray
from colonnade.blocks.linear import LinearBlock
from colonnade.engine.session import Session
from colonnade.objective.losses import Loss

_ENDS = {"maxiter": 500, "ftol": 1e-13, "gtol": 1e-9}
_LEAST = 0.01  # the weight of the others below which it is taken for 0


async def refitted(session: Session, state: Any, y: npt.NDArray[Any] | None, shrunk: float) -> Any:
    """Return a party's state once the label holder has taken its last step.

    y are the holder's true labels, None elsewhere; shrunk is what noisy labels leave of a coefficient.
    """
    block, holder = cast("LinearBlock", session.block), session.leader
    theta, intercept = state
    state = (theta / shrunk, intercept)
    block.restore(state)
    rows = session.train.owned[holder]
    total = await session.scores_of(session.train, rows, holder)
    if total is None or y is None:
        return state
    return fitted_alone(block, session.job.loss, total - block.scores(rows), rows, y[rows])


def fitted_alone(
    block: LinearBlock, loss: Loss, others: FloatArray, rows: npt.NDArray[np.int64], y: npt.NDArray[Any]
) -> Any:
    """Return the coefficients and the intercept that are best with the others' scores, starting at the block's."""
    theta, intercept = block.theta.copy(), block.intercept
    size, outputs, penalty = theta.size, block.outputs, block.penalty
    ones = 0 if intercept is None else outputs

    def value(x: FloatArray) -> tuple[float, FloatArray]:
        V, b, weight = x[:size].reshape(theta.shape), x[size : size + ones], x[-1]
        z = weight * others + block.flat(block.columns.forward(rows, V) + (b if ones else 0.0))
        signal = loss.signal(z, y)
        into, matrix = np.zeros_like(V), signal.reshape(len(rows), outputs)
        block.columns.backward(rows, matrix, 1.0 / len(rows), into)
        parts = [
            (into + penalty.gradient(V)).ravel(),
            matrix.mean(axis=0)[:ones],
            [(signal * others).sum() / len(rows)],
        ]
        return float(loss.values(z, y).mean()) + penalty.value(V), np.concatenate(parts)

    start = np.concatenate([theta.ravel(), np.zeros(0) if intercept is None else intercept, [1.0]])
    x = minimize(value, start, jac=True, method="L-BFGS-B", options=_ENDS).x
    weight = x[-1] if x[-1] > _LEAST else 1.0  # others' parts that are noise, or none
    best = np.ascontiguousarray(x[:size].reshape(theta.shape) / weight)
    if intercept is None:
        return (best, None)
    offset = others + block.flat(block.columns.forward(rows, best))

    def of_intercept(b: FloatArray) -> tuple[float, FloatArray]:
        z = offset + block.flat(np.broadcast_to(b, (len(rows), outputs)))
        return float(loss.values(z, y).mean()), loss.signal(z, y).reshape(len(rows), outputs).mean(axis=0)

    found = minimize(of_intercept, x[size:-1] / weight, jac=True, method="L-BFGS-B", options=_ENDS).x
    return (best, np.ascontiguousarray(found))
