"""Transfer learning: networks at two parties that share some rows, with labels at one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.encrypted_transfer import EncryptedTransferSession, encrypted_transfer_leaks
from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.algorithms.transfer import (
    ALIGNMENTS,
    EXCHANGES,
    FRESH,
    FROZEN,
    Aim,
    SourceBlock,
    TargetBlock,
    TransferSession,
    transfer_leaks,
    with_phi,
    without_phi,
)
from colonnade.algorithms.transfer_sums import SourceLastLayer, TargetLastLayer
from colonnade.blocks import FloatArray, NotFinite, Rows
from colonnade.blocks.column_values import columns_from_value, rows_of_value
from colonnade.blocks.columns import Columns
from colonnade.data.labels import show
from colonnade.engine.allowance import Limit
from colonnade.engine.exchange import Agreement
from colonnade.engine.exposure import ENCRYPTED
from colonnade.engine.kept import Keeper
from colonnade.engine.options import Training
from colonnade.engine.torch_session import make_block, parts_of, watch_over
from colonnade.errors import LabelError, OptionError
from colonnade.families.scoring import Scorer, SummedScorer
from colonnade.families.torch_networks import NetworkScorer, TorchFamily
from colonnade.families.training import ScoringJob, ScoringPart, TrainingJob, TrainingPart
from colonnade.leaks import Leak, Setting
from colonnade.networks.torch_network import NetworkBlock
from colonnade.objective import losses
from colonnade.runtimes.net import Net
from colonnade.settings.settings import Key, Settings
from colonnade.sums import open_sum

# Labelled rows behind a batch's Phi in a job, at least.
LEAST_ANCHORS = 64
_WORDS = {
    "masked": "each party sees sums over all common rows with the other's numbers, and none about a single one; the "
    "target also a mean over all people whom the source has labelled",
    "plain": "the source sees the target's representations of common rows, and the target the source's, the labels, "
    "and a mean over all people whom the source has labelled, also those who are not in common",
}


@dataclass(frozen=True)
class TransferOptions:
    """What `TorchOptions` says, what is minimised, how many labelled rows are behind a step, and what is exchanged."""

    l2: float = 0.0
    evaluate_rows: int | None = None
    gamma: float = 0.05
    alignment: str = "distance"
    anchors: int | None = None
    loss: str = "auto"
    exchange: str = FRESH


class TransferFamily(TorchFamily):
    """Transfer learning between two parties that share some rows, with labels at one of them.

    `own` of a `TrainingPart` is (network, anchors), where the anchors are all labelled rows of the source.
    """

    name: ClassVar[str] = "transfer"
    called: ClassVar[str] = "transfer"
    kinds: ClassVar[Mapping[str, str]] = {"transfer": "logistic"}
    keys: ClassVar[tuple[Key, ...]] = (
        Key("l2", float, default=1e-4, least=0),
        Key("gamma", float, default=0.05, least=0),
        Key("alignment", str, default=ALIGNMENTS[0], allowed=ALIGNMENTS),
        Key("anchors", int, default=0, least=0),
        Key("exchange", str, default=FRESH, allowed=EXCHANGES),
    )
    options: ClassVar[type[Any]] = TransferOptions
    weighs: ClassVar[bool] = False
    one_holder: ClassVar[bool] = True
    predicts_alone: ClassVar[bool] = True
    masks: ClassVar[str] = ENCRYPTED
    lacks: ClassVar[Mapping[str, str]] = {
        "sealed": "is for linear models; transfer learning has 'masked', in which each party sees sums over all common "
        "rows with the other's numbers and nothing about a single one, or 'plain'"
    }

    # -- jobs ---------------------------------------------------------------------------------------------------

    def read_options(self, model: Settings) -> Any:
        """Return what a job says about the model; no anchors are all of them."""
        if 0 < model["anchors"] < LEAST_ANCHORS:
            raise OptionError(
                f"anchors must be 0, for all labelled rows, or at least {LEAST_ANCHORS}, got {model['anchors']}: a "
                f"mean of few rows would show their numbers and labels"
            )
        given = (model["gamma"], model["alignment"], model["anchors"] or None)
        return TransferOptions(model["l2"], None, *given, exchange=model["exchange"])

    def setting(self, options: Any) -> dict[str, Any]:
        """Say that this is transfer learning, whose leaks are its own."""
        return {"model": self.name}

    def check_job(self, model: str, job: TrainingJob, parties: tuple[str, ...]) -> None:
        """Refuse other than two parties, and options that do not go with encrypted sums."""
        if len(parties) != 2:
            raise OptionError(
                f"{model} is between two parties, a source with labels and a target without, got {len(parties)}"
            )
        usual = {"loss": ("auto", "taylor"), "exchange": (FRESH,), "anchors": (None,)}
        for name, allowed in usual.items() if job.sum == ENCRYPTED else ():
            if (given := getattr(job.options, name)) not in allowed:
                raise OptionError(
                    f"{name} can't be {given!r} with protection='masked', which trains the last layers with the "
                    f"quadratic loss on sums over all rows; leave it out, or give protection='plain'"
                )
        if job.sum == ENCRYPTED and job.algorithm.sampling != "passes":
            raise OptionError(
                f"sampling can't be {job.algorithm.sampling!r} with protection='masked', which takes all rows in "
                f"common at once; leave it out"
            )

    def check_holders(self, model: str, loss: str, holders: tuple[str, ...], options: Any) -> None:
        """Refuse labels at both parties."""
        if len(holders) != 1:
            raise LabelError(f"{model} has one label holder, the source, got {len(holders)}")

    def counted(self, sum_name: str) -> str:
        """Say that a masked run counts as a whole: with other features, the same rows would be in other sums."""
        if sum_name != ENCRYPTED:
            return ""
        return "sums over all common rows leave, and every run counts as one number about each person at least"

    def class_labels(self, y: Any, loss: losses.Loss) -> npt.NDArray[Any]:
        """Return the two classes; refuse more."""
        found = np.unique(np.asarray(y))
        if len(found) > 2:
            raise LabelError(
                f"transfer learning tells two classes apart, and the labels hold {len(found)} ({show(found)}); label "
                f"one of them against the rest, and train a model for each"
            )
        return super().class_labels(y, loss)

    def brings(self, own: Any, everything: Callable[[], tuple[Any, Any, Any]]) -> Any:
        """Return (the party's network, at the source the columns and labels of all its labelled rows)."""
        X, y, labelled = everything()
        return own, None if y is None else (rows_of_value(X, np.flatnonzero(labelled)), y[labelled])

    def check_outputs(self, party: str, outputs: int, job: Any) -> None:
        """Take any number of features; both parties' have to be as many, which shows when they meet."""

    def estimator(self, loss: str) -> str:
        """Return the one class of transferred models."""
        return "TransferClassifier"

    def estimator_options(self, options: Any, loss: str) -> dict[str, Any]:
        """Return what the model is; the networks themselves stay with their owners."""
        kept = ("l2", "gamma", "alignment", "anchors", "loss", "exchange")
        return {name: getattr(options, name) for name in kept}

    # -- training and use ---------------------------------------------------------------------------------------

    def leaks(self, setting: Setting, algorithm: Training) -> tuple[Leak, ...]:
        """Return what transfer learning shows: representations in the clear, or sums over all rows."""
        shown = encrypted_transfer_leaks if setting.sum == ENCRYPTED else transfer_leaks
        return shown(setting, cast("FedSGD | FedBCD", algorithm))

    def protection_words(self, protection: str, algorithm: Training, leader: str) -> str:
        """Say what a protection is for transfer learning."""
        return _WORDS[protection]

    async def train(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Train by FedSGD or FedBCD on the rows in common; both parties' states have Phi beside their parameters.

        `part` has the columns of the rows in common, at the source their labels and which of them have one, and rows to
        evaluate on.
        """
        method, options, source = job.algorithm, job.options, net.me == job.holders[0]
        network, anchors = part.own
        if isinstance(method.step, str) and network[3] != "adam":
            raise OptionError(
                f"step must be a number for transfer learning, party {net.me!r} has optimizer {network[3]!r}; give a "
                f"number, or let both parties have 'adam'"
            )
        if job.sum == ENCRYPTED:
            return await self._train_encrypted(net, job, part, keeper, budget)
        aim = Aim(options.gamma, options.alignment, "logistic" if options.loss == "auto" else options.loss)
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
            net, agreed, block, method, train, held_out, secure, keeper, budget, evaluate_rows=options.evaluate_rows,
            aim=aim, exchange=options.exchange, known=part.labelled,
        )  # fmt: skip
        await session.agree()
        return await with_phi(net, job.holders[0], await watch_over(net, session, method), block.outputs)

    async def _train_encrypted(
        self, net: Net, job: TrainingJob, part: TrainingPart, keeper: Keeper | None, budget: Limit | None
    ) -> Any:
        """Train the last layers on encrypted sums."""
        method, options, source = job.algorithm, job.options, net.me == job.holders[0]
        network, anchors = part.own
        aim, kind = Aim(options.gamma, options.alignment, "taylor"), SourceLastLayer if source else TargetLastLayer
        block = make_block(net, network, part.X, options.l2, method.seed, kind)
        if source:
            y = np.where(cast("Any", part.labelled), cast("Any", part.y), 0.0)
            cast("SourceLastLayer", block).brings(anchors[0], anchors[1], y, aim)
        everything = np.ones(block.rows, dtype=bool) if source else None
        train, held_out = parts_of(block, part.y, everything, part.validation)
        agreed = Agreement(losses.loss(job.loss), job.holders, job.sum, job.topology)
        secure = await open_sum(job.sum, net, job.topology)
        session = EncryptedTransferSession(net, agreed, block, method, train, held_out, secure, keeper, budget, aim=aim)
        await session.agree()
        return await with_phi(net, job.holders[0], await watch_over(net, session, method), block.outputs)

    def scorer(self, me: str, job: ScoringJob, state: Any, own: Any) -> Scorer:
        """Return a part that adds phi(u_B) = Phi . u_B to the scores at the target, and nothing at the source."""
        return TransferScorer(me, own, state, source=me in job.holders)

    async def score(self, net: Net, job: ScoringJob, part: ScoringPart) -> Any:
        """Score new rows at the target, which has its network and Phi, and needs nobody; the source returns None."""
        if net.me in job.holders:
            return None
        columns = columns_from_value(part.X)
        return TransferScorer(net.me, part.own, part.state, source=False).of(columns, np.arange(columns.shape[0]))[:, 0]


class TransferScorer(SummedScorer):
    """A party's side of a prediction: Phi . u_B at the target, and zeros at the source, which only asks."""

    outputs = 1

    def __init__(self, party: str, own: Any, state: tuple[Any, ...], *, source: bool) -> None:
        network, self._phi = without_phi(state)
        self._network = None if source else NetworkScorer(party, own, network, len(self._phi))

    def of(self, columns: Columns, rows: Rows) -> FloatArray:
        """Return what this party adds to the scores, one row per person."""
        if self._network is None:
            return np.zeros((len(rows), 1))
        with np.errstate(over="ignore", invalid="ignore"):
            found: FloatArray = self._network.of(columns, rows) @ self._phi[:, None]
        if not np.isfinite(found).all():
            raise NotFinite
        return found
