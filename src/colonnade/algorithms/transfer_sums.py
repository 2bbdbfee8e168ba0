"""Gradients of transfer learning's last layers, from sums over rows that two parties make of each other's numbers.

The objective is that of `algorithms.transfer` with the paper's quadratic loss, log 2 - y phi / 2 + phi^2 / 8, over all
n common rows, n_k of which have a label. Both networks end with a linear layer, u = W' h(x); H_A and H_B are h(x) of
the common rows, H_k those of H_B with a label, and m_A is the mean of y h_A(x) over A's labelled rows:

    dL/dW_A = m_A (dL/dPhi)' + 2 gamma / n (H_A'H_A W_A - H_A'U_B),   Phi = W_A' m_A,
              dL/dPhi = (U_B'U_B Phi / 4 - U_B'y / 2) / n_k
    dL/dW_B = H_k'H_k W_B Phi Phi' / (4 n_k) + (2 gamma H_B'H_B W_B - H_B'C) / n,
              c_i = y_i Phi n / (2 n_k) + 2 gamma u_A,i

(alignment="product": gamma in place of 2 gamma, and no square of a party's own.) They hold for any W_A at A and any W_B
at B, as long as the other's sums are those of the last exchange: equation (9) of FedBCD.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from colonnade.algorithms.transfer import PHI, Aim
from colonnade.blocks import FloatArray, NotFinite, Rows
from colonnade.networks.torch_last_layer import LastLayerBlock, LastLayerSteps


class SourceLastLayer(LastLayerBlock):
    """A's last layer, and Phi, which is linear in it."""

    y: FloatArray  # of the common rows, 0 where none is known
    mean: FloatArray  # m_A
    aim: Aim

    def brings(self, anchors: Any, anchor_y: FloatArray, y: FloatArray, aim: Aim) -> None:
        """Take A's labelled rows and their labels, and those of the common rows."""
        self.mean = anchor_y @ self.hidden(self.inputs(anchors)) / len(anchor_y)
        self.y, self.aim = y, aim

    @property
    def phi(self) -> FloatArray:
        """Phi with the weights as they are."""
        found: FloatArray = self.weights.T @ self.mean
        return found

    def state(self, into: Any = None) -> Any:
        """Return the network's parameters, and Phi under a name that no parameter has."""
        names, arrays, still = super().state(into)
        return (*names, PHI), (*arrays, self.phi), still

    def numbers(self) -> FloatArray:
        """Return C, what B's gradient takes of each row, times n."""
        n, known, pull = len(self.y), int((self.y != 0).sum()), _pull(self.aim)
        found: FloatArray = np.outer(self.y * (n / (2 * max(1, known))), self.phi) + pull * (self.H @ self.weights)
        return found

    def gradient(self, sums: FloatArray) -> FloatArray:
        """Return dL/dW_A of the mean loss, from what came of B: see `_cut`."""
        crossed, told, moments, _ = self._cut(sums)
        n, known, W, phi = len(self.y), max(1, int((self.y != 0).sum())), self.weights, self.phi
        own = self.square @ W if self.aim.alignment == "distance" else 0.0
        by_phi = (moments @ phi / 4 - told / 2) / known
        return np.outer(self.mean, by_phi) + _pull(self.aim) / n * (own - crossed)

    def value(self, sums: FloatArray) -> float:
        """Return the loss of all common rows, without the penalty."""
        crossed, told, moments, squares = self._cut(sums)
        n, known, W, phi = len(self.y), int((self.y != 0).sum()), self.weights, self.phi
        found = math.log(2.0) + float(phi @ moments @ phi / 8 - told @ phi / 2) / known if known else 0.0
        inner = float((W * crossed).sum())
        apart = float((W * (self.square @ W)).sum()) - 2 * inner + squares
        found += self.aim.gamma / n * (apart if self.aim.alignment == "distance" else -inner)
        if not math.isfinite(found):
            raise NotFinite
        return found

    def _cut(self, sums: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, float]:
        """Return H_A'U_B, U_B'y, U_B'U_B over labelled rows, and the sum of |u_B|^2."""
        width = self.width
        return sums[:width], sums[width], sums[width + 1 : -1], float(sums[-1, 0])


class TargetLastLayer(LastLayerBlock):
    """B's last layer."""

    aim: Aim
    labelled: FloatArray  # H_k'H_k
    known: Any  # which of the common rows have a label

    def brings(self, known: Any, aim: Aim) -> None:
        """Hear which rows have a label at A."""
        self.known, self.aim, self.labelled = known, aim, self.H[known].T @ self.H[known]

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Return (U_B, and U_B'U_B over labelled rows with the sum of |u_B|^2 in a row of its own below)."""
        u = self.H @ self.weights
        of = u[self.known]
        return u, np.concatenate([of.T @ of, np.full((1, u.shape[1]), float((u * u).sum()))])

    def open(self, rows: Rows) -> Any:
        """Start on all rows."""
        return TargetLastSteps(self)

    def gradient(self, told: FloatArray) -> FloatArray:
        """Return dL/dW_B of the mean loss, from [Phi, H_B'C] as they came of A."""
        phi, sums, W, n = told[0], told[1:], self.weights, len(self.H)
        own = _pull(self.aim) * (self.square @ W) if self.aim.alignment == "distance" else 0.0
        bent = np.outer(self.labelled @ W @ phi, phi) / (4 * max(1, int(self.known.sum())))
        found: FloatArray = bent + (own - sums) / n
        return found


class TargetLastSteps(LastLayerSteps):
    """B's local steps: its own weights are new in each, what came of A is that of the exchange."""

    block: TargetLastLayer

    def step(self, signal: FloatArray, eta: float, proximal: float) -> None:
        """Take one step; `signal` is what A told."""
        super().step(self.block.gradient(signal), eta, proximal)


def _pull(aim: Aim) -> float:
    """Return what the alignment's derivative is a multiple of."""
    return 2 * aim.gamma if aim.alignment == "distance" else aim.gamma
