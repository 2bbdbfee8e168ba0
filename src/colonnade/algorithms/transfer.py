"""Federated transfer learning: two parties that share some of their rows, labels at one, predictions for the other.

Liu, Kang, Xing, Chen, Yang, "A Secure Federated Transfer Learning Framework", IEEE Intelligent Systems 35(4), 2020; the
task behind NUS-FTL and Credit-FTL in FedBCD's Section VII. The source A has labels y in {-1, +1}, the target B none.
Each has a network that turns its rows into representations u of the same width d. A row of B is scored by

    phi(u_B) = Phi . u_B,   Phi = mean of y_i u_i over A's labelled rows,

and what is minimised over the rows that both have (means here, where the paper has sums) is

    L = mean log(1 + exp(-y phi(u_B))) + gamma mean |u_A - u_B|^2 + l2 / 2 (|theta_A|^2 + |theta_B|^2);

alignment="product" is the paper's other choice, -u_A . u_B, and loss="taylor" its approximation of the logistic loss,
log 2 - y phi / 2 + phi^2 / 8. Rounds, local steps and orders are FedBCD's (Algorithm 1), whose exchange has two forms:

    exchange="representations"   the loss is not of form (2): each party sends what the other's gradient depends on. B
                                 sends u_B; A sends u_A, Phi and y of the batch. Each takes a new gradient in every
                                 local step, from its own new representations and what came of the other, equation (9)
    exchange="signals"           as for losses of form (2): B sends u_B, A sends back dL/du_B, which B's local steps
                                 share until the next exchange

Nothing is encrypted here; docs/security.md says what that shows, and `algorithms.encrypted_transfer` is what is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.algorithms.split import side_by_side
from colonnade.blocks import FloatArray, NotFinite, Rows
from colonnade.engine.exchange import Part
from colonnade.engine.session import CHUNK, session_leaks
from colonnade.engine.torch_session import NetworkSession
from colonnade.errors import ProtocolError
from colonnade.leaks import OF_COLUMNS, OF_LABELS, PREDICTED, REPRESENTATIONS, SIGNALS, Leak, Setting
from colonnade.networks.torch_modules import alone, need_torch
from colonnade.networks.torch_network import NetworkBlock, NetworkInputs, NetworkSteps, check_trainable
from colonnade.objective import losses, metrics
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array

ALIGNMENTS = ("distance", "product")
TRANSFER_LOSSES = ("logistic", "taylor")
FRESH, FROZEN = "representations", "signals"
EXCHANGES = (FRESH, FROZEN)
# What the source is told of Phi, at the end of a sentence.
MEAN_OF_ALL = "; and the mean of label times these numbers over everybody whom you have labelled, in common or not"
PHI = "/phi"  # what it is called among the source's parameters: no module's name begins with a slash


def transfer_leaks(setting: Setting, options: FedSGD | FedBCD) -> tuple[Leak, ...]:
    """Return what is shown: both parties' representations, and A's labels, whether they are sent or can be worked out.

    In both forms of the exchange the target knows the same in the end: dL/du_B of a row is a number that says its label
    times Phi, and the distance of two representations, one of which is its own.
    """
    source, target = (setting.leader,), setting.hearers
    sent = ("representations", "representations to evaluate")
    words = "{who} could work out every number that your network gives for {people}"
    back = ("representations", "mean representation", "signal")
    asked = "{who} can see the score of everybody whom they ask about, when they ask for predictions"
    labels = "{who} can see, or could work out, your label of each of {people}"
    return (
        *session_leaks(setting, options),
        Leak(REPRESENTATIONS, OF_COLUMNS, target, source, sent, words, options.numbers_per_row(setting), left=True),
        Leak(REPRESENTATIONS, OF_COLUMNS, source, target, back, words + MEAN_OF_ALL),
        Leak(SIGNALS, OF_LABELS, source, target, ("labels", "signal"), labels),
        Leak(PREDICTED, OF_COLUMNS, target, source, ("prediction",), asked),
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


class TargetBlock(NetworkBlock):
    """B's network, whose local steps compute their signal afresh from what A has told."""

    aim: Aim

    def open(self, rows: Rows) -> TargetSteps:
        """Start on a batch."""
        return TargetSteps(self, rows)


class TargetSteps(NetworkSteps):
    """B's local steps on one batch, by equation (9): its own representations are new in each, A's stay as they came."""

    block: TargetBlock

    def step(self, signal: FloatArray, eta: float, proximal: float) -> None:
        """Take one step; `signal` is what A told of the batch: [u_A, y, Phi in each row], see `told_by_source`."""
        u_b = self.contribution().reshape(len(signal), -1)
        width = u_b.shape[1]
        u_a, y, phi = signal[:, :width], signal[:, width], signal[0, width + 1 :]
        super().step(self.block.aim.signal_of_target(u_a, u_b, phi, y), eta, proximal)


@dataclass(frozen=True)
class Aim:
    """What is minimised, without the penalty: l(y phi(u_B)) + gamma times the alignment."""

    gamma: float = 0.0
    alignment: str = "distance"
    loss: str = "logistic"

    def value(self, u_a: Any, u_b: Any, phi: Any, y: Any) -> Any:
        """Return the loss of some common rows as a tensor of the tensors given; y is 0 where no label is known."""
        torch, known = need_torch(), y != 0
        z = u_b @ phi
        if self.loss == "taylor":
            told = (math.log(2.0) - y * z / 2 + z.square() / 8)[known]
        else:
            told = torch.nn.functional.softplus(-y * z)[known]
        apart = (u_a - u_b).square().sum(dim=1) if self.alignment == "distance" else -(u_a * u_b).sum(dim=1)
        return (told.mean() if len(told) else 0.0) + self.gamma * apart.mean()

    def signal_of_target(self, u_a: FloatArray, u_b: FloatArray, phi: FloatArray, y: FloatArray) -> FloatArray:
        """Return dL/du_B of each row, not divided by the number of rows."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = u_b @ phi
            slope = z / 4 - y / 2 if self.loss == "taylor" else -y / (1.0 + np.exp(y * z))
            slope = np.where(y == 0, 0.0, slope) * (len(y) / max(1, int((y != 0).sum())))
            apart = 2 * (u_b - u_a) if self.alignment == "distance" else -u_a
            out: FloatArray = slope[:, None] * phi + self.gamma * apart
        if not np.isfinite(out).all():
            raise NotFinite
        return out


@dataclass
class TransferSession(NetworkSession):
    """A session of two parties, in which B's representations meet A's in place of a sum."""

    aim: Aim = Aim()
    exchange: str = FRESH
    known: Any = None  # at the source: which of the common rows have a label
    _behind: Any = None  # at the source: what the last signal was made of

    signals_alike: ClassVar[bool] = False
    follows: ClassVar[str] = "frozen"  # `TargetSteps` computes signals afresh itself

    @property
    def source(self) -> SourceBlock:
        """Return A's block, at A."""
        return cast("SourceBlock", self.block)

    async def collect(self, tag: str, mine: FloatArray, holder: str) -> FloatArray | None:
        """Return [u_A, u_B] of the same rows at A, and None at B."""
        mine, widths = mine.reshape(len(mine), -1), dict.fromkeys((holder, *self.net.names), self.block.outputs)
        self.sum.count(mine.size)
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
        y = torch.from_numpy(self.labels_of(rows))
        width = scores.shape[1] // 2
        both = torch.from_numpy(scores).requires_grad_()
        anchors = block.drawn(self.options.seed)
        u = block.forward(block.anchors.take(anchors), training=True).double()
        with alone():
            phi = (torch.from_numpy(block.anchor_y[anchors])[:, None] * u).mean(dim=0)
            value = self.aim.value(both[:, :width], both[:, width:], phi, y)
            found = torch.autograd.grad(value, [both, *block.parameters], allow_unused=True)
        block._through_phi = [
            torch.zeros_like(p) if g is None else g for p, g in zip(block.parameters, found[1:], strict=True)
        ]
        out: FloatArray = found[0].numpy() * len(rows)
        if not np.isfinite(out).all():
            raise NotFinite
        self._behind = (scores[:, :width], phi.detach().numpy(), y.numpy())
        return out

    def labels_of(self, rows: Rows) -> FloatArray:
        """Return the labels of some common rows at the source, -1 and +1, with 0 where none is known."""
        found: FloatArray = np.where(self.known[rows], cast("FloatArray", self.train.y)[rows], 0.0)
        return found

    async def send_signal(self, name: str, signal: FloatArray) -> None:
        """Send B what its gradient depends on, or the derivative by its own representations."""
        if self.exchange == FRESH:
            u_a, phi, y = self._behind
            await self.net.send(name, "representations", np.ascontiguousarray(u_a))
            await self.net.send(name, "mean representation", phi)
            await self.net.send(name, "labels", y.astype(np.int8))
            return
        mine = np.ascontiguousarray(signal[:, signal.shape[1] // 2 :])
        await self.net.send(name, "signal", mine[:, 0] if mine.shape[1] == 1 else mine)

    async def hear_signal(self, holder: str, rows: Rows, tag: str = "signal") -> FloatArray:
        """Return what A has sent of a batch at B: dL/du_B, or what `TargetSteps` takes."""
        if self.exchange == FROZEN:
            return await super().hear_signal(holder, rows, tag)
        return await told_by_source(self.net, holder, len(rows), self.block.outputs)

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
        phi, width = self.source.phi(), found.shape[1] // 2
        own = part.columns is None  # the training rows
        y = self.labels_of(rows) if own else part.y[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            z = found[:, width:] @ phi
        if not np.isfinite(z).all():
            raise NotFinite
        loss = losses.loss("logistic")
        _, metric = metrics.evaluate(loss, z[y != 0], y[y != 0])
        seen = (0.0, 0.0) if math.isnan(metric) else (metric, 1.0)
        if not own:
            self.stopping.seen = z
            return loss.value(z, y), *seen
        parts = (torch.from_numpy(piece) for piece in (found[:, :width], found[:, width:], phi, y))
        return float(self.aim.value(*parts)), *seen


async def with_phi(net: Net, source: str, state: Any, width: int) -> Any:
    """Return the state with Phi at both parties: A tells B, whose predictions then need nobody else."""
    if net.me == source:
        for name in net.names:
            if name != source:
                await net.send(name, "mean representation", without_phi(state)[1])
        return state
    phi = await hear_numbers(net, source, "mean representation", (width,))
    names, arrays, still = state
    return (*names, PHI), (*arrays, phi), still


def without_phi(state: Any) -> tuple[Any, Any]:
    """Return (the network's parameters, Phi or None where there is none) out of a state."""
    names, arrays, still = state
    if PHI not in names:
        return state, None
    at = names.index(PHI)
    return ((*names[:at], *names[at + 1 :]), (*arrays[:at], *arrays[at + 1 :]), still), arrays[at]


async def told_by_source(net: Net, source: str, rows: int, width: int) -> FloatArray:
    """Return [u_A, y, Phi in each row] of a batch, as A has told them, at B."""
    u = await hear_numbers(net, source, FRESH, (rows, width))
    phi = await hear_numbers(net, source, "mean representation", (width,))
    y = expect_array(await net.recv(source, "labels"), (rows,), np.int8, source, "labels")
    if (np.abs(y) > 1).any():
        raise ProtocolError(
            f"party {source!r} must send -1, 0 or 1 for each row at step 'labels', got {int(y[np.abs(y) > 1][0])}; "
            f"check that every party runs the same job and the same version of colonnade"
        )
    return np.concatenate([u, y[:, None].astype(np.float64), np.tile(phi, (rows, 1))], axis=1)


async def hear_numbers(net: Net, party: str, tag: str, shape: tuple[int, ...]) -> FloatArray:
    """Return real numbers that a party has sent; refuse NaN and infinity, which no network lets out."""
    found = expect_array(await net.recv(party, tag), shape, np.float64, party, tag)
    if not np.isfinite(found).all():
        raise ProtocolError(
            f"party {party!r} sent NaN or infinity at step {tag!r}; check that every party runs the same job and the "
            f"same version of colonnade"
        )
    return found
