"""Split learning: the embeddings of all parties meet in a top network at the label holder.

Vepakomma et al., "Split learning for health", 2018, vertically partitioned; with FedBCD's local steps. Instead of a
sum of scores the holder gets every party's embedding, **in the clear**, puts them side by side, and lets its top
network make the scores of them. What goes back to a party is the derivative of the loss by its own embedding.

The rounds are FedBCD's own; contributions are collected side by side in them instead of being added up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.blocks import FloatArray, NotFinite, Rows
from colonnade.defences.label_correlation import LabelCorrelation
from colonnade.engine.exchange import Part
from colonnade.engine.session import session_leaks
from colonnade.engine.torch_session import NetworkSession
from colonnade.leaks import EMBEDDINGS, OF_COLUMNS, OF_LABELS, SIGNALS, Leak, Setting, weights
from colonnade.networks.torch_modules import alone, need_torch, to_value
from colonnade.networks.torch_network import NetworkBlock, NetworkSteps, check_trainable, kind_of, squares
from colonnade.networks.torch_optimisers import OPTIMISERS
from colonnade.objective.losses import Labels, Loss
from colonnade.objective.weighted import labels_of
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array

_TOP = "top/"  # comes before the names of the top network's parameters in the holder's state
_CHUNK = 2048  # rows whose embeddings are collected at a time


def split_leaks(setting: Setting, options: FedSGD | FedBCD) -> tuple[Leak, ...]:
    """Return what is shown: embeddings on the way there, derivatives by them on the way back, and no sum of scores."""
    leader = (setting.leader,)
    return (
        *session_leaks(setting, options),
        Leak(
            EMBEDDINGS, OF_COLUMNS, setting.parties, leader,
            ("embeddings", "embeddings to evaluate", "embeddings to predict"),
            "{who} can see every number that your network gives for {people}, and could work out your columns where it "
            "gives as many as there are columns", options.numbers_per_row(setting), left=True,
            warning="with a top network the label holder gets every party's embeddings in the clear, and no mask hides "
            "them; leave top out where that matters",
        ),
        Leak(
            SIGNALS, OF_LABELS, leader, setting.hearers, ("signal",),
            "{who} could work out your label of each of {people}",
        ),
        *weights(setting, ("signal",), setting.hearers),
    )  # fmt: skip


class Top:
    """The label holder's top network, with its optimiser and its own random stream."""

    def __init__(self, module: Any, widths: dict[str, int], optimiser: str, l2: float, stream: Any) -> None:
        self.module, self.l2, self._stream = module, l2, stream
        self.parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.optimiser = OPTIMISERS[optimiser](self.parameters)
        ends = np.cumsum(list(widths.values())).tolist()
        starts = [0, *ends[:-1]]
        self.spans = {name: slice(a, b) for name, a, b in zip(widths, starts, ends, strict=True)}
        self.kind = kind_of(module)
        self._gradients: list[Any] = []
        self._before: list[Any] | None = None

    def forward(self, embeddings: FloatArray) -> FloatArray:
        """Return the scores of these embeddings, with dropout off."""
        torch = need_torch()
        self.module.eval()
        with alone(), torch.no_grad():
            z = self.module(torch.from_numpy(embeddings).to(self.kind)).reshape(len(embeddings), -1)
        return _flat(z.double().numpy())

    def signal(self, embeddings: FloatArray, loss: Loss, y: Labels) -> FloatArray:
        """Return dL/d(embedding) of each row; the top network's own gradient of the batch's mean waits for `step`."""
        torch = need_torch()
        self.module.train()
        x = torch.from_numpy(embeddings).to(self.kind).requires_grad_()
        with alone(self._stream):
            z = self.module(x).reshape(len(x), -1)
            self._stream = torch.get_rng_state()
            s = loss.signal(_flat(z.detach().double().numpy()), y).reshape(len(x), -1)
            found = torch.autograd.grad(
                z, [x, *self.parameters], torch.from_numpy(s / len(x)).to(z.dtype), allow_unused=True
            )
        self._gradients = [
            torch.zeros_like(p) if g is None else g for p, g in zip(self.parameters, found[1:], strict=True)
        ]
        back = np.zeros(embeddings.shape) if found[0] is None else found[0].double().numpy() * len(x)
        if not np.isfinite(back).all():
            raise NotFinite
        return cast("FloatArray", back)

    def open(self) -> None:
        """Begin a batch: the proximal term pulls towards the parameters as they are now."""
        self._before = None

    def step(self, eta: float, proximal: float) -> None:
        """Take one step along the gradient that the last signal left."""
        torch = need_torch()
        if proximal and self._before is None:
            self._before = [parameter.detach().clone() for parameter in self.parameters]
        with torch.no_grad(), alone():
            moves = []
            for index, (parameter, gradient) in enumerate(zip(self.parameters, self._gradients, strict=True)):
                move = gradient + self.l2 * parameter if self.l2 else gradient
                if proximal and self._before is not None:
                    move = move + proximal * (parameter - self._before[index])
                moves.append(move)
            self.optimiser.step(moves, eta)


class HolderBlock(NetworkBlock):
    """The label holder's own network, and the top network that learns with it."""

    top: Top

    def open(self, rows: Rows) -> HolderSteps:
        """Start both networks on a batch of these rows."""
        self.top.open()
        return HolderSteps(self, rows)

    def check_trainable(self, count: int) -> None:
        """Refuse batches of so many rows where either network can't learn from them."""
        super().check_trainable(count)
        width = max(span.stop for span in self.top.spans.values())
        check_trainable(self.top.module, need_torch().zeros(count, width, dtype=self.top.kind), f"{self.party} (top)")

    def penalty_value(self) -> float:
        """Return l2 / 2 times the squared length of both networks' parameters."""
        return super().penalty_value() + (0.5 * self.l2 * squares(self.top.parameters) if self.l2 else 0.0)

    def state(self, into: Any = None) -> Any:
        """Return both networks' parameters, the top network's under names that begin with "top/"."""
        names, arrays, still = super().state(into)
        top_names, top_arrays, top_still = to_value(self.top.module)
        return (
            (*names, *(_TOP + name for name in top_names)),
            (*arrays, *top_arrays),
            (*still, *(_TOP + name for name in top_still)),
        )

    def restore(self, state: Any) -> None:
        """Put back both networks' parameters, as `state` returned them."""
        torch = need_torch()
        bottom, top = parted(state)
        super().restore(bottom)
        kept = dict(zip(top[0], top[1], strict=True))
        with torch.no_grad():
            for name, tensor in self.top.module.state_dict().items():
                tensor.copy_(torch.from_numpy(np.array(kept[name])))

    def freeze(self) -> Any:
        """Return all that the next step depends on, of both networks."""
        stream = self.top._stream.numpy().copy()
        return (super().freeze(), self.top.optimiser.freeze(), stream)

    def thaw(self, state: Any) -> None:
        """Put back what `freeze` returned."""
        own, optimiser, stream = state
        super().thaw(own)
        self.top.optimiser.thaw(optimiser)
        self.top._stream = need_torch().from_numpy(np.array(stream))


class HolderSteps(NetworkSteps):
    """The holder's local steps on one batch, each of which moves its own network and the top network."""

    block: HolderBlock

    def step(self, signal: FloatArray, eta: float, proximal: float) -> None:
        """Take one step of both networks; the top network's gradient is the one that this signal came with."""
        top = self.block.top
        super().step(np.ascontiguousarray(signal[:, top.spans[self.block.party]]), eta, proximal)
        top.step(eta * self.block.pace, proximal)


@dataclass
class SplitSession(NetworkSession):
    """A session in which contributions are put side by side, and the top network makes scores of them."""

    widths: dict[str, int] = field(default_factory=dict)

    signals_alike: ClassVar[bool] = False
    follows: ClassVar[str] = "frozen"  # how scores follow from an embedding, only the top network says

    @property
    def top(self) -> Top:
        """Return the top network, which only the label holder has."""
        return cast("HolderBlock", self.block).top

    async def collect(self, tag: str, mine: FloatArray, holder: str) -> FloatArray | None:
        """Return all embeddings side by side, at the holder; their messages have other names than scores."""
        mine = mine.reshape(len(mine), -1)
        self.sum.count(len(mine) * self.told_outputs)  # no sum takes them, and the budget counts them all the same
        if tag == "scores":
            return await side_by_side(self.net, "embeddings", mine, holder, self.widths)
        return await side_by_side(self.net, "embeddings to evaluate", mine, holder, self.widths)

    @property
    def told_outputs(self) -> int:
        """How many numbers about a row count for every party, so that all know what has left: the widest embedding."""
        return max(self.widths.values())

    def numbers_told(self, signal: FloatArray) -> int:
        """Return how many numbers a signal is, of which each party gets its own part."""
        return len(signal) * self.told_outputs

    def without(self, scores: FloatArray, mine: FloatArray) -> FloatArray:
        """Return the embeddings as they are: side by side, nothing has to be taken out."""
        return scores

    def together(self, others: FloatArray, mine: FloatArray) -> FloatArray:
        """Return the embeddings with this party's own place filled anew."""
        out = others.copy()
        out[:, self.top.spans[self.net.me]] = mine.reshape(len(mine), -1)
        return out

    def signal(self, scores: FloatArray, rows: Rows) -> FloatArray:
        """Return dL/d(embedding) of each row, through the top network."""
        y = self.train.y[rows] if self.train.y is not None else np.zeros(0)
        back = self.top.signal(scores, self.job.loss, y)
        for one in self.job.defences:
            if isinstance(one, LabelCorrelation):
                with alone():
                    back = back + one.added(scores, labels_of(y), self.top.spans, self.net.me)
        return back

    async def send_signal(self, name: str, signal: FloatArray) -> None:
        """Send a party the derivative by its own embedding, and by nobody else's."""
        mine = np.ascontiguousarray(signal[:, self.top.spans[name]])
        await self.net.send(name, "signal", mine[:, 0] if mine.shape[1] == 1 else mine)

    async def scores_of(self, part: Part, rows: Rows, holder: str) -> FloatArray | None:
        """Return the scores of any rows at the holder, and None elsewhere."""
        pieces = []
        for at in range(0, len(rows), _CHUNK):
            mine = self.block.scores(rows[at : at + _CHUNK], part.columns)
            found = await self.collect("evaluation", mine, holder)
            if found is not None:
                pieces.append(self.top.forward(found))
        return np.concatenate(pieces) if pieces else None


async def side_by_side(net: Net, tag: str, mine: FloatArray, holder: str, widths: dict[str, int]) -> FloatArray | None:
    """Return everybody's embeddings of the same rows at the holder, in the order of the parties, and None elsewhere."""
    if net.me != holder:
        await net.send(holder, tag, np.ascontiguousarray(mine))
        return None
    pieces = []
    for name, width in widths.items():
        if name == holder:
            pieces.append(mine)
        else:
            pieces.append(expect_array(await net.recv(name, tag), (len(mine), width), np.float64, name, tag))
    return np.concatenate(pieces, axis=1)


def parted(state: Any) -> tuple[Any, Any]:
    """Return (the parameters of the holder's own network, those of the top network) out of the holder's state."""
    names, arrays, still = state
    parts = []
    for top in (False, True):
        chosen = [i for i, name in enumerate(names) if name.startswith(_TOP) == top]
        cut = len(_TOP) if top else 0
        parts.append(
            (
                tuple(names[i][cut:] for i in chosen),
                tuple(arrays[i] for i in chosen),
                tuple(name[cut:] for name in still if name.startswith(_TOP) == top),
            )
        )
    return parts[0], parts[1]


def _flat(z: FloatArray) -> FloatArray:
    if not np.isfinite(z).all():
        raise NotFinite
    return z[:, 0] if z.shape[1] == 1 else z
