"""Transfer learning: networks at two parties that share some rows, with labels at one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.algorithms.transfer import FRESH, FROZEN, Aim, SourceBlock, TargetBlock, TransferSession, transfer_leaks
from colonnade.blocks.torch_network import NetworkBlock
from colonnade.engine.allowance import Limit
from colonnade.engine.exchange import Agreement
from colonnade.engine.kept import Keeper
from colonnade.engine.options import Training
from colonnade.engine.session import CHUNK
from colonnade.engine.torch_session import make_block, parts_of, watch_over
from colonnade.errors import OptionError
from colonnade.families.scoring import Scorer
from colonnade.families.torch_networks import TorchFamily, check_no_budget
from colonnade.families.training import ScoringJob, ScoringPart, TrainingJob, TrainingPart
from colonnade.leaks import Leak, Setting
from colonnade.objective import losses
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array
from colonnade.settings.settings import Key
from colonnade.sums import open_sum


@dataclass(frozen=True)
class TransferOptions:
    """What `TorchOptions` says, what is minimised, how many labelled rows are behind a step, and what is exchanged."""

    l2: float = 0.0
    evaluate_rows: int | None = None
    gamma: float = 0.05
    alignment: str = "distance"
    anchors: int | None = None
    loss: str = "logistic"
    exchange: str = FRESH


class TransferFamily(TorchFamily):
    """Transfer learning between two parties that share some rows, with labels at one of them.

    `own` of a `TrainingPart` is (network, anchors), where the anchors are all labelled rows of the source.
    """

    name: ClassVar[str] = "transfer"
    called: ClassVar[str] = "transfer"
    kinds: ClassVar[Mapping[str, str]] = {}
    keys: ClassVar[tuple[Key, ...]] = ()
    options: ClassVar[type[Any]] = TransferOptions
    lacks: ClassVar[Mapping[str, str]] = {
        "sealed": "is for linear models; transfer learning has 'plain' alone, as the source gets the "
        "target's representations as they are",
        "masked": "needs sums, and in transfer learning the source gets the target's representations as they are; "
        "give 'plain'",
    }

    def leaks(self, setting: Setting, algorithm: Training) -> tuple[Leak, ...]:
        """Return what transfer learning shows: representations, in the clear."""
        return transfer_leaks(setting, cast("FedSGD | FedBCD", algorithm))

    async def train(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Train by FedSGD or FedBCD on the rows in common; the source's state has Phi too.

        `part` has the columns of the rows in common, at the source their labels and which of them have one, and rows to
        evaluate on.
        """
        check_no_budget(budget, self.called)
        method, options, source = job.algorithm, job.options, net.me == job.holders[0]
        network, anchors = part.own
        aim = Aim(options.gamma, options.alignment, options.loss)
        goes_on = NetworkBlock if options.exchange == FROZEN else TargetBlock
        block = make_block(net, network, part.X, options.l2, method.seed, SourceBlock if source else goes_on)
        if source:
            origin = cast("SourceBlock", block)
            origin.anchors, origin.anchor_y, origin.per_step = block.inputs(anchors[0]), anchors[1], options.anchors
        elif options.exchange == FRESH:
            cast("TargetBlock", block).aim = aim
        # Every row has a place in the alignment, whether its label is known or not.
        everything = np.ones(block.rows, dtype=bool) if source else None
        train, held_out = parts_of(block, part.y, everything, part.validation)
        agreed = Agreement(losses.loss(job.loss), job.holders, job.sum, job.topology)
        secure = await open_sum(job.sum, net, job.topology)
        session = TransferSession(
            net, agreed, block, method, train, held_out, secure, keeper, evaluate_rows=options.evaluate_rows,
            aim=aim, exchange=options.exchange, known=part.labelled,
        )  # fmt: skip
        await session.agree()
        return await watch_over(net, session, method)

    def scorer(self, me: str, job: ScoringJob, state: Any, own: Any) -> Scorer:
        """Refuse to take part in a sum, as representations do not add up to scores."""
        raise OptionError("a transferred model has no parts that add up to scores")

    async def score(self, net: Net, job: ScoringJob, part: ScoringPart) -> Any:
        """Score new rows of the target, which sends representations and gets phi of each row from the source.

        `part` has the rows and the network at the target, and Phi as the state at the source.
        """
        source, target, width, rows = job.holders[0], *(job.facts[key] for key in ("target", "width", "rows"))
        pieces = []
        if net.me == target:
            block = make_block(net, part.own, part.X, 0.0, 0)
            for at in range(0, rows, CHUNK):
                u = block.scores(np.arange(at, min(at + CHUNK, rows))).reshape(-1, width)
                await net.send(source, "representations to predict", np.ascontiguousarray(u))
                answer = await net.recv(source, "prediction")
                pieces.append(expect_array(answer, (len(u),), np.float64, source, "prediction"))
            return np.concatenate(pieces)
        for at in range(0, rows, CHUNK):
            shape = (min(CHUNK, rows - at), width)
            u = await net.recv(target, "representations to predict")
            u = expect_array(u, shape, np.float64, target, "representations to predict")
            await net.send(target, "prediction", u @ part.state)
        return None
