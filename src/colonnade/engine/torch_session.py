"""What a run of torch modules needs beside a session: rows to look at, good parameters, and words for divergence."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from colonnade.blocks import NotFinite
from colonnade.defences.keyed_noise import drawn_normals
from colonnade.defences.outputs import OutputDefence
from colonnade.engine.exchange import Part
from colonnade.engine.session import Session
from colonnade.errors import OptionError, RingOverflow, TrainingDiverged
from colonnade.networks.torch_modules import drawn, fresh_stream, module_of
from colonnade.networks.torch_network import NetworkBlock
from colonnade.networks.torch_optimisers import AUTO_ADAM
from colonnade.runtimes.net import Net

KEPT = "kept parameters"  # what a party reports, to its own starter alone, when a run breaks off


@dataclass
class NetworkSession(Session):
    """A session whose evaluations may look at a part of the rows, and remember the parameters that they found good."""

    evaluate_rows: int | None = None
    _good: deque[tuple[int, Any]] = field(default_factory=lambda: deque(maxlen=2))
    _sampled: Part | None = None

    follows: ClassVar[str] = "exact"  # all losses of networks allow it
    bounded: ClassVar[bool] = False

    @property
    def network(self) -> NetworkBlock:
        """Return this party's block, which is one of networks."""
        return cast("NetworkBlock", self.block)

    @property
    def watched(self) -> Part:
        """Return all training rows, or `evaluate_rows` of them, the same ones each time and at every party."""
        count, train = self.evaluate_rows, self.train
        if count is None or count >= train.rows:
            return train
        if self._sampled is None:
            chosen = np.random.default_rng([self.options.seed, 0xE7A1]).permutation(train.rows)[:count]
            part = Part(None, count, train.y, train.labelled)
            part.owned = {holder: rows[np.isin(rows, chosen)] for holder, rows in train.owned.items()}
            self._sampled = part
            if self.net.watcher is not None:
                self.net.watcher.looks_at(chosen)
        return self._sampled

    @property
    def boldness(self) -> float:
        """Return at most 2 for each local step: a network's curvature grows on the way, and longer steps run away."""
        local = getattr(self.options, "steps_between", None)
        steps = 1 if local is None else local(self.batch, len(self.net.names))
        return min(super().boldness, 2.0 * steps)

    async def agree(self) -> None:
        """Agree as every session does; then give step="auto" the meaning that it has for Adam."""
        await super().agree()
        if self.options.step == "auto" and self.network.optimiser.name == "adam":
            self.network.pace = AUTO_ADAM / self.eta0

    async def _agree_on_step(self) -> float:
        """Agree as every session does, once this party's network has been tried on as few rows as a batch will have."""
        held = [len(rows) for rows in self.train.owned.values() if len(rows)]
        self.network.check_trainable(min(count // -(-count // self.batch) for count in held))
        return await super()._agree_on_step()

    async def evaluate(self, epoch: int) -> bool:
        """Evaluate, and remember the last two states, as another party may be one evaluation behind if a run ends."""
        go_on = await super().evaluate(epoch)
        self._good.append((self.net.traffic.rounds, self.block.state()))
        return go_on

    def good(self) -> Any:
        """Return ((round, parameters), ...) of the last evaluations.

        They are good, because a loss that was not finite would have ended the run.
        """
        return tuple(self._good)


async def watch_over(net: Net, session: NetworkSession, method: Any) -> Any:
    """Train; if the run breaks off, report the last good parameters to this party's own starter."""
    try:
        await method.train(session)
    except (NotFinite, RingOverflow):
        net.report((KEPT, session.good()))
        raise diverged(net, session.good()) from None
    except Exception:
        net.report((KEPT, session.good()))
        raise
    return session.finish()


def diverged(net: Net, good: Sequence[Any]) -> TrainingDiverged:
    """Return the error of the party whose network gave NaN or infinity."""
    kept = f"; the parameters of round {good[-1][0]} are kept" if good else ""
    return TrainingDiverged(
        f"training diverged: the network of party {net.me!r} gave NaN, infinite or huge numbers in round "
        f"{net.traffic.rounds}{kept}; use a shorter step, fewer local steps, or a proximal term"
    )


def make_block(
    net: Net,
    network: Any,
    X: Any,
    l2: float,
    seed: int,
    kind: type[NetworkBlock] = NetworkBlock,
    defences: Sequence[OutputDefence] = (),
) -> NetworkBlock:
    """Return this party's block, made of what its own part of the program says about the network.

    defences: of this party's own outputs.
    """
    how, state, shape, optimiser = network
    module = module_of(how, state, net.me, seed)
    options = {"party": net.me, "shape": shape}
    for one in defences:
        module = one.around(module, NetworkBlock(module, X, **options).outputs)
    stream = fresh_stream(drawn(seed, net.me, "training"))
    block = kind(module, X, **options, optimiser=optimiser, l2=l2, stream=stream)
    block.normals = drawn_normals(net.secret("noise of outputs"))
    block.penalties = tuple(one.penalty for one in defences if one.penalises)
    return block


def check_width(party: str, width: int, outputs: int, loss: str) -> None:
    """Refuse a network whose contributions do not have the width of the scores."""
    if width != outputs:
        need = "1 score" if outputs == 1 else f"{outputs} scores, one per class"
        raise OptionError(
            f"the network of party {party!r} gives {width} numbers per row, {loss} needs {need}; change its last layer"
        )


def parts_of(
    block: NetworkBlock, y: Any, labelled: Any, validation: Any, weights: tuple[Any, Any] = (None, None)
) -> tuple[Part, Part | None]:
    """Return the training rows, and the rows to validate on if there are any; `weights` are those of both."""
    train = Part(None, block.rows, y, labelled, weights[0])
    if validation is None:
        return train, None
    other = block.inputs(validation[0])
    _, y, labelled = validation
    return train, Part(other, other.shape[0], y, labelled, weights[1])
