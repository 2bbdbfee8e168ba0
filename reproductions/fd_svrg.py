"""FD-SVRG: a linear classifier over split columns by SVRG. FDSKL is measured against it.

Zhang, Zhao, Gao, Li: "Feature-Distributed SVRG for High-Dimensional Linear Classification", arXiv:1802.03604,
Algorithm 1, logistic loss, labels -1 and +1. Every worker has a block of columns; w . x is summed over a tree. There
every worker has the labels, here one of them has: it gets the sums, and sends the others the slopes. An inner step
takes a batch, as the paper's section on communication does. Nothing here is shared with `colonnade.algorithms`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.party import Party
from colonnade.runtimes.net import Net, Runtime
from colonnade.runtimes.simulation import Simulation
from colonnade.runtimes.wire import expect_array
from colonnade.sums import open_sum

Array = npt.NDArray[Any]


def fd_svrg(
    parties: list[Party], y: Array, *, l2: float, step: float, epochs: int, batch: int, seed: int = 0,
    on: Runtime | None = None,
) -> dict[str, Array]:  # fmt: skip
    """{party: its weights}; y are the labels, -1 and +1, which the first party has; epochs: outer loops."""
    holder = parties[0].name
    options = (holder, float(l2), float(step), epochs, batch, seed)
    programs = {
        party.name: (_worker, (*options, *_parts(party.X), np.asarray(y, float) if party.name == holder else None))
        for party in parties
    }
    outcomes = (on or Simulation()).run(programs)
    return {name: outcome.value for name, outcome in outcomes.items()}


def scores(parties: list[Party], weights: dict[str, Array]) -> Array:
    """w . x of the rows of these parties."""
    found: Array = np.sum([np.asarray(party.X @ weights[party.name]) for party in parties], axis=0)
    return found


def _parts(X: Any) -> tuple[Any, ...]:
    """Columns as the wire can carry them."""
    if not hasattr(X, "indptr"):
        return (np.asarray(X, dtype=np.float64), None, None, None)
    return (X.data.astype(np.float64), X.indices.astype(np.int64), X.indptr.astype(np.int64), tuple(X.shape))


def _joined(data: Array, indices: Any, indptr: Any, shape: Any) -> Any:
    if indices is None:
        return data
    import scipy.sparse as sp

    return sp.csr_matrix((data, indices, indptr), shape=shape)


async def _worker(
    net: Net, holder: str, l2: float, step: float, epochs: int, batch: int, seed: int,
    data: Array, indices: Any, indptr: Any, shape: Any, y: Any,
) -> Any:  # fmt: skip
    """One worker l, Algorithm 1."""
    secure, X = await open_sum("plain", net, "tree"), _joined(data, indices, indptr, shape)
    n, w = X.shape[0], np.zeros(X.shape[1])

    async def slopes(rows: Any) -> Array:
        """phi'(w . x_i) of these rows: w . x over the tree, and back from the worker with the labels."""
        summed = await secure.total("scores", np.asarray(X[rows] @ w), holder)
        if summed is None:
            return expect_array(await net.recv(holder, "signal"), (len(rows),), np.float64, holder, "signal")
        found: Array = -y[rows] / (1.0 + np.exp(y[rows] * summed))
        for name in net.names:
            if name != holder:
                await net.send(name, "signal", found)
        return found

    for epoch in range(epochs):
        # Lines 3 to 5: w_t . x_i of all rows, and the full gradient of this worker's block.
        anchor = await slopes(np.arange(n))
        full = np.asarray(X.T @ anchor) / n
        # Lines 7 to 12: inner steps on rows that all workers draw alike.
        order = np.random.default_rng([seed, epoch]).permutation(n)
        for rows in np.array_split(order, -(-n // batch)):
            change = await slopes(rows) - anchor[rows]
            w -= step * (np.asarray(X[rows].T @ change) / len(rows) + full + l2 * w)
    return w
