"""PP-SVMV: the kernel matrix summed from the parties' own, then an SVM at the label holder.

Yu, Vaidya, Jiang: "Privacy-Preserving SVM Classification on Vertically Partitioned Data", PAKDD 2006, which FDSKL is
compared with. A Gaussian kernel needs |x - x'|^2, a sum over the parties' columns: every party works out its part for
all pairs of rows and the parts are summed, masked, around the ring, a band of rows at a time. The holder gets exactly
scikit-learn's kernel, and all distances between all rows. Cost and memory grow with the square of the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.party import Party
from colonnade.runtimes.net import Net, Runtime
from colonnade.runtimes.simulation import Simulation
from colonnade.sums import open_sum

Array = npt.NDArray[Any]
# Numbers of a band: 32 MB.
_BAND = 1 << 22


def pp_svmv(
    train: list[Party], test: list[Party], *, gamma: float, strength: float, on: Runtime | None = None
) -> tuple[Array, float]:
    """(what the label holder, the first party, predicts for the test rows, seconds); strength: C of the SVM."""
    holder, programs = train[0].name, {}
    classes, places = np.unique(np.asarray(train[0].y), return_inverse=True)
    for party, other in zip(train, test, strict=True):
        rows = np.vstack([_dense(party.X), _dense(other.X)])
        y = places.astype(np.int64) if party.name == holder else None
        programs[party.name] = (_program, (holder, rows, party.rows, y, gamma, strength))
    outcomes = (on or Simulation()).run(programs)
    return classes[outcomes[holder].value], max(outcome.seconds for outcome in outcomes.values())


def distances(X: Any, Z: Any) -> Array:
    """|x - z|² of all rows of X and Z, dense or sparse; below 0 by rounding at worst."""
    products = X @ Z.T
    products = products.toarray() if hasattr(products, "toarray") else np.asarray(products)
    found: Array = _lengths(X)[:, None] + _lengths(Z) - 2.0 * products
    return found


def _lengths(X: Any) -> Array:
    squares = X.multiply(X) if hasattr(X, "multiply") else np.square(X)
    return np.asarray(squares.sum(axis=1), dtype=np.float64).ravel()


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


async def _program(net: Net, holder: str, X: Array, many: int, y: Any, gamma: float, strength: float) -> Any:
    """One party; the first `many` rows train."""
    secure = await open_sum("pairwise", net, "ring")
    kernel = np.empty((len(X), many)) if net.me == holder else None
    step = max(1, _BAND // many)
    for at in range(0, len(X), step):
        band = slice(at, min(at + step, len(X)))
        apart = distances(X[band], X[:many])
        await net.work(apart.size * X.shape[1], "forward")
        total = await secure.total("distances", apart.ravel(), holder)
        if kernel is not None and total is not None:
            np.exp(-gamma * total.reshape(apart.shape), out=kernel[band])
    if kernel is None:
        return None
    from sklearn.svm import SVC

    machine = SVC(kernel="precomputed", C=strength).fit(kernel[:many], y)
    return np.asarray(machine.predict(kernel[many:]))
