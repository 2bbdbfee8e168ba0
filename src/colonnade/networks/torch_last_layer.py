"""A network whose last layer alone learns: u = W' h(x) with h(x), the layers before it, as they were given.

A step is then linear in what the other party brings: the gradient by W is h(x)' (dL/du) summed over all rows. So it
takes no more than sums over rows of this party's h(x) times numbers of the other's, and these can be made of encrypted
numbers; nobody needs dL/du of a single row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.blocks import FloatArray, NotFinite, Rows
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.blocks.whole_columns import WholeColumns
from colonnade.errors import OptionError
from colonnade.networks.torch_modules import alone, need_torch
from colonnade.networks.torch_network import NetworkBlock, NetworkInputs
from colonnade.networks.torch_optimisers import OPTIMISERS

_CHUNK = 512  # rows that pass the layers before the last one at a time


def parted_layers(module: Any, party: str) -> tuple[Any, Any]:
    """Return (the layers before the last one, the last one), which must be a linear one."""
    nn = need_torch().nn
    if isinstance(module, nn.Linear):
        return nn.Identity(), module
    if isinstance(module, nn.Sequential) and len(module) and isinstance(module[-1], nn.Linear):
        return module[:-1], module[-1]
    last = type(module[-1] if isinstance(module, nn.Sequential) and len(module) else module).__name__
    raise OptionError(
        f"protection='masked' trains the last layer of a network on encrypted sums, so that of party {party!r} must be "
        f"nn.Linear, alone or at the end of nn.Sequential, got {last}; end the network with nn.Linear, or give "
        f"protection='plain'"
    )


class LastLayerBlock(NetworkBlock):
    """theta of one party: the weights W (width, outputs) of its last layer, the intercept's in the last row.

    Attributes
    ----------
    H
        h(x) of all training rows, with a column of ones where the layer has an intercept.
    square
        H'H.
    """

    def __init__(self, module: Any, value: Any, *, party: str, optimiser: str = "sgd", **options: Any) -> None:
        super().__init__(module, value, party=party, optimiser=optimiser, **options)
        self.body, self.layer = parted_layers(module, party)
        self.parameters = list(self.layer.parameters())
        self.optimiser = OPTIMISERS[optimiser](self.parameters)
        self.H = self.hidden(self.columns)
        self.square: FloatArray = self.H.T @ self.H
        self.width = self.H.shape[1]

    def hidden(self, of: NetworkInputs) -> FloatArray:
        """Return h(x) of any rows, with a column of ones where the last layer has an intercept."""
        torch = need_torch()
        self.module.eval()
        pieces, rows = [np.zeros((0, self.layer.in_features))], np.arange(of.shape[0])
        with alone(), torch.no_grad():
            for piece in np.array_split(rows, max(1, len(rows) // _CHUNK)):
                pieces += [self.body(of.take(piece)).double().numpy()]
        found = np.concatenate(pieces)
        if not np.isfinite(found).all():
            raise NotFinite
        return found if self.layer.bias is None else np.concatenate([found, np.ones((len(found), 1))], axis=1)

    def whole(self, *more: FloatArray) -> WholeColumns:
        """Return H, and more columns beside it, as whole numbers for products with encrypted ones."""
        table = np.concatenate([self.H, *(column[:, None] for column in more)], axis=1)
        return WholeColumns(DenseColumns(table), ones=False)

    @property
    def weights(self) -> FloatArray:
        """W as it is now."""
        parts = [self.layer.weight.detach().double().numpy().T]
        if self.layer.bias is not None:
            parts.append(self.layer.bias.detach().double().numpy()[None])
        found: FloatArray = np.concatenate(parts)
        if not np.isfinite(found).all():
            raise NotFinite
        return found

    def open(self, rows: Rows) -> Any:
        """Start on all rows, which are the one batch there is."""
        return LastLayerSteps(self)


class LastLayerSteps:
    """Local steps of a last layer, each along a gradient (width, outputs) of the mean loss."""

    def __init__(self, block: LastLayerBlock) -> None:
        self.block, self.touched = block, block.H.size
        self._before: FloatArray | None = None

    def contribution(self) -> FloatArray:
        """Return nothing: no number about a single row leaves."""
        return np.zeros((0, 0))

    def step(self, signal: FloatArray, eta: float, proximal: float) -> None:
        """Take one step along this gradient, the penalty's and the proximal term's."""
        torch, block, W = need_torch(), self.block, self.block.weights
        self._before = W if self._before is None else self._before
        move = signal + block.l2 * W + proximal * (W - self._before)
        if not (np.isfinite(move).all() and eta * block.pace < torch.finfo(torch.float32).max):
            raise NotFinite
        size = block.layer.in_features
        parts = [torch.from_numpy(np.ascontiguousarray(part)) for part in (move[:size].T, *move[size:])]
        with torch.no_grad(), alone():
            kinds = [part.to(p.dtype) for part, p in zip(parts, block.parameters, strict=True)]
            block.optimiser.step(kinds, eta * block.pace)

    def close(self) -> None:
        """End the batch."""
        self._before = None
