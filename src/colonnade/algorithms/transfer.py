"""Federated transfer learning: two parties that share some of their rows, labels at one, predictions for the other.

Liu, Kang, Xing, Chen, Yang, "A Secure Federated Transfer Learning Framework", IEEE Intelligent Systems 35(4), 2020; the
task behind NUS-FTL and Credit-FTL in FedBCD's Section VII. The source A has labels y in {-1, +1}, the target B none.
Each has a network that turns its rows into representations u of the same width d. A row of B is scored by

    phi(u_B) = Phi . u_B,   Phi = mean of y_i u_i over A's labelled rows,

and what is minimised over the rows that both have (means here, where the paper has sums) is

    L = mean log(1 + exp(-y phi(u_B))) + gamma mean |u_A - u_B|^2 + l2 / 2 (|theta_A|^2 + |theta_B|^2);

alignment="product" is the paper's other choice, -u_A . u_B. B sends its representations, A sends back dL/du_B: rounds,
local steps and orders are FedBCD's. Nothing is encrypted; docs/security.md says what that shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.algorithms.split import side_by_side
from colonnade.blocks import FloatArray, NotFinite, Rows
from colonnade.blocks.torch_modules import alone, need_torch
from colonnade.blocks.torch_network import NetworkBlock, NetworkInputs, NetworkSteps, check_trainable
from colonnade.engine.exchange import Part
from colonnade.engine.session import CHUNK, session_leaks
from colonnade.engine.torch_session import NetworkSession
from colonnade.leaks import OF_COLUMNS, OF_LABELS, REPRESENTATIONS, SIGNALS, Leak, Setting
from colonnade.objective import losses, metrics

ALIGNMENTS = ("distance", "product")
PHI = "/phi"  # what it is called among the source's parameters: no module's name begins with a slash


def transfer_leaks(setting: Setting, options: FedSGD | FedBCD) -> tuple[Leak, ...]:
    """Return what is shown: B's representations, and derivatives by them, from which A's can be worked out."""
    source, target = (setting.leader,), setting.hearers
    sent = ("representations", "representations to evaluate", "representations to predict")
    words = "{who} could work out every number that your network gives for {people}"
    return (
        *session_leaks(setting, options),
        Leak(REPRESENTATIONS, OF_COLUMNS, target, source, sent, words, options.numbers_per_row(setting), left=True),
        Leak(REPRESENTATIONS, OF_COLUMNS, source, target, ("signal", "prediction"), words),
        Leak(SIGNALS, OF_LABELS, source, target, ("signal",), "{who} could work out your label of each of {people}"),
    )


class SourceBlock(NetworkBlock):
    """A's network, and Phi: a mean over all of A's labelled rows, of which the target has only some."""

    anchors: NetworkInputs
    anchor_y: FloatArray
    per_step: int | None  # how many labelled rows are behind Phi in a step; None is all
    _through_phi: list[Any]
    _turn = 0

    def check_trainable(self, count: int) -> None:
        """Refuse batches that A's network can't learn from; a step also passes over the labelled rows behind Phi."""
        super().check_trainable(count)
        anchors = len(self.anchor_y) if self.per_step is None else min(self.per_step, len(self.anchor_y))
        check_trainable(self.module, self.anchors.take(np.arange(anchors)), self.party)

    def open(self, rows: Rows) -> SourceSteps:
        """Start on a batch, which has labelled rows of its own behind Phi."""
        self._turn += 1
        return SourceSteps(self, rows)

    def drawn(self, seed: int) -> Rows:
        """Return which labelled rows are behind this batch's Phi."""
        count = len(self.anchor_y)
        if self.per_step is None or self.per_step >= count:
            return np.arange(count)
        return np.random.default_rng([seed, 0xA2C5, self._turn]).permutation(count)[: self.per_step]

    def phi(self) -> FloatArray:
        """Return Phi of all labelled rows with the parameters as they are and dropout off."""
        u = self.scores(np.arange(len(self.anchor_y)), self.anchors).reshape(len(self.anchor_y), -1)
        with np.errstate(over="ignore", invalid="ignore"):
            out: FloatArray = (self.anchor_y[:, None] * u).mean(axis=0)
        return out

    def state(self, into: Any = None) -> Any:
        """Return the network's parameters, and Phi under a name that no parameter has."""
        names, arrays, still = super().state(into)
        return (*names, PHI), (*arrays, self.phi()), still

    def freeze(self) -> Any:
        """Return all that the next step depends on, with the number of batches so far, by which anchors are drawn."""
        return (super().freeze(), self._turn)

    def thaw(self, state: Any) -> None:
        """Put back what `freeze` returned."""
        own, self._turn = state
        super().thaw(own)


class SourceSteps(NetworkSteps):
    """A's local steps on one batch, which follow its representations of the common rows, and Phi."""

    block: SourceBlock

    def step(self, signal: FloatArray, eta: float, proximal: float) -> None:
        """Take one step; the gradient through Phi is the one that this signal came with."""
        width = signal.shape[1] // 2
        self.also = self.block._through_phi
        super().step(np.ascontiguousarray(signal[:, :width]), eta, proximal)


@dataclass
class TransferSession(NetworkSession):
    """A session of two parties, in which B's representations meet A's in place of a sum."""

    gamma: float = 0.0
    alignment: str = "distance"
    known: Any = None  # at the source: which of the common rows have a label

    follows: ClassVar[str] = "frozen"  # dL/du_B depends on Phi, which the target does not have

    @property
    def source(self) -> SourceBlock:
        """Return A's block, at A."""
        return cast("SourceBlock", self.block)

    async def collect(self, tag: str, mine: FloatArray, holder: str) -> FloatArray | None:
        """Return [u_A, u_B] of the same rows at A, and None at B."""
        mine, widths = mine.reshape(len(mine), -1), dict.fromkeys((holder, *self.net.names), self.block.outputs)
        if tag == "scores":
            return await side_by_side(self.net, "representations", mine, holder, widths)
        return await side_by_side(self.net, "representations to evaluate", mine, holder, widths)

    def without(self, scores: FloatArray, mine: FloatArray) -> FloatArray:
        """Return the representations as they are: side by side, nothing has to be taken out."""
        return scores

    def together(self, others: FloatArray, mine: FloatArray) -> FloatArray:
        """Return B's representations as they came beside A's as they are now."""
        mine = mine.reshape(len(mine), -1)
        return np.concatenate([mine, others[:, mine.shape[1] :]], axis=1)

    def signal(self, scores: FloatArray, rows: Rows) -> FloatArray:
        """Return dL/d[u_A, u_B] of each row, not divided by their number; the block keeps dL/dtheta_A through Phi."""
        torch, block = need_torch(), self.source
        y, known = torch.from_numpy(cast("FloatArray", self.train.y)[rows]), torch.from_numpy(self.known[rows])
        width = scores.shape[1] // 2
        both = torch.from_numpy(scores).requires_grad_()
        anchors = block.drawn(self.options.seed)
        u = block.forward(block.anchors.take(anchors), training=True).double()
        with alone():
            phi = (torch.from_numpy(block.anchor_y[anchors])[:, None] * u).mean(dim=0)
            value = self.objective(both[:, :width], both[:, width:], phi, y, known)
            found = torch.autograd.grad(value, [both, *block.parameters], allow_unused=True)
        block._through_phi = [
            torch.zeros_like(p) if g is None else g for p, g in zip(block.parameters, found[1:], strict=True)
        ]
        out: FloatArray = found[0].numpy() * len(rows)
        if not np.isfinite(out).all():
            raise NotFinite
        return out

    def objective(self, u_a: Any, u_b: Any, phi: Any, y: Any, known: Any) -> Any:
        """Return the loss of some common rows without the penalty, as a tensor of the tensors given."""
        torch = need_torch()
        told = torch.nn.functional.softplus(-y * (u_b @ phi))[known]
        apart = (u_a - u_b).square().sum(dim=1) if self.alignment == "distance" else -(u_a * u_b).sum(dim=1)
        return (told.mean() if len(told) else 0.0) + self.gamma * apart.mean()

    async def send_signal(self, name: str, signal: FloatArray) -> None:
        """Send B the derivative by its own representations."""
        mine = np.ascontiguousarray(signal[:, signal.shape[1] // 2 :])
        await self.net.send(name, "signal", mine[:, 0] if mine.shape[1] == 1 else mine)

    async def _measure(self, part: Part) -> tuple[float, float, float]:
        """Return (loss, metric x weight, weight) of all common rows, or of held-out rows without the alignment."""
        torch, pieces, holder = need_torch(), [], self.leader
        rows = part.owned[holder]
        for at in range(0, len(rows), CHUNK):
            mine = self.block.scores(rows[at : at + CHUNK], part.columns)
            pieces.append(await self.collect("evaluation", mine, holder))
        if self.net.me != holder or part.y is None:
            return 0.0, 0.0, 0.0
        found = np.concatenate([piece for piece in pieces if piece is not None])
        y, phi, width = part.y[rows], self.source.phi(), found.shape[1] // 2
        own = part.columns is None  # the training rows
        known = self.known[rows] if own else np.ones(len(rows), dtype=bool)
        with np.errstate(over="ignore", invalid="ignore"):
            z = found[:, width:] @ phi
        if not np.isfinite(z).all():
            raise NotFinite
        loss = losses.loss("logistic")
        _, metric = metrics.evaluate(loss, z[known], y[known])
        seen = (0.0, 0.0) if math.isnan(metric) else (metric, 1.0)
        if not own:
            return loss.value(z, y), *seen
        parts = (torch.from_numpy(piece) for piece in (found[:, :width], found[:, width:], phi, y, known))
        return float(self.objective(*parts)), *seen
