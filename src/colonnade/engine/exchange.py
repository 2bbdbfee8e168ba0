"""What the parties of a run exchange, whatever the algorithm: who owns which row, contributions, signals.

Who holds a label for which row is public (a bit per row, told at the start); the labels are not. Contributions go to
the label holder of a batch through a secure sum, and signals come back from it in the clear or, in `engine.encrypted`,
encrypted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.blocks import Block, FloatArray, OpenBatch, Rows
from colonnade.defences.base import Defence, Guard, SignalDefence
from colonnade.defences.gaussian_signals import GaussianSignals, SignalNoise
from colonnade.engine.allowance import Allowance
from colonnade.engine.exposure import ENCRYPTED, in_shares
from colonnade.engine.options import Training
from colonnade.engine.sampling import Batch, Draws
from colonnade.errors import LabelError
from colonnade.leaks import Leak, Setting, signals
from colonnade.objective.losses import Loss
from colonnade.objective.weighted import labels_of
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array
from colonnade.sums import SecureSum
from colonnade.sums.telling import Telling

if TYPE_CHECKING:
    from colonnade.engine.session import Session


@dataclass(frozen=True)
class Agreement:
    """What all parties agree on before they start.

    Parameters
    ----------
    loss : Loss
        What is minimised.
    holders : tuple of str
        The parties with labels; the first of them, the leader, decides when to stop.
    sum, topology : str
        The secure sum, and the way that its messages take.
    started : bool
        Whether parameters were given to start with, so that nobody knows the first scores beforehand.
    defences : tuple of Defence
        What parties do to what leaves them.
    """

    loss: Loss
    holders: tuple[str, ...]
    sum: str
    topology: str
    started: bool = False
    defences: tuple[Defence, ...] = ()


@dataclass
class Part:
    """A party's rows of the training or of the validation data.

    Parameters
    ----------
    columns : Any
        What the block takes; None is the training data, which the block holds itself.
    rows : int
        How many there are.
    y : array, optional
        The labels, at a label holder.
    labelled : array of bool, optional
        Which rows have one there.
    weights : array, optional
        How much each row counts, as the user has it, at a label holder; None is that all count alike.
    owned : dict
        The rows for which each label holder computes the signal; known when the parties have told each other.
    held : dict
        The rows for which each label holder has a label.
    """

    columns: Any
    rows: int
    y: npt.NDArray[Any] | None
    labelled: npt.NDArray[np.bool_] | None
    weights: FloatArray | None = None
    owned: dict[str, Rows] = field(default_factory=dict)
    held: dict[str, Rows] = field(default_factory=dict)


def shared_out(held: npt.NDArray[np.bool_]) -> list[Rows]:
    """Which rows belong to each holder, from who has a label for which: they take turns, to share the work."""
    turn = np.arange(held.shape[1]) % np.maximum(1, held.sum(axis=0)) + 1
    return [np.nonzero(mask & (held[: at + 1].sum(axis=0) == turn))[0] for at, mask in enumerate(held)]


@dataclass
class Flow:
    """What asynchrony did to one party since the last evaluation."""

    staleness: list[int] = field(default_factory=list)  # own updates between reading and applying, for each signal
    dropped: int = 0
    rows: int = 0  # of all batches whose signals came
    used: int = 0  # those of them that were not left out

    def take(self) -> tuple[float, float, int, int, float]:
        """(mean, 95 %, largest staleness; signals dropped; part of the others' rows that was used), and start anew."""
        seen, dropped, used = np.array(self.staleness), self.dropped, self.used / max(1, self.rows)
        self.staleness, self.dropped, self.rows, self.used = [], 0, 0, 0
        return float(seen.mean()), float(np.quantile(seen, 0.95)), int(seen.max()), dropped, used


# Rounds between two signs of life to the progress bar.
_PROGRESS_EVERY = 25
_ENDLESS = 1 << 60  # exchanges of a run that only its epochs limit


@dataclass
class Exchanges:
    """One party's end of all exchanges of a run: its block, its labels if it has any, and its end of the sum."""

    net: Net
    job: Agreement
    block: Block
    options: Training
    train: Part
    validation: Part | None
    sum: SecureSum
    allowance: Allowance = field(init=False)
    sizes: dict[str, int] = field(default_factory=dict, kw_only=True)  # everybody's columns, if signals are encrypted
    _batch: int | None = field(default=None, kw_only=True)  # rows per batch, at most, where the parties agreed on it
    _whole_first: bool = field(default=False, kw_only=True)  # whether the first epoch is one batch

    follows: ClassVar[str] = "frozen"  # what FedBCD's signal="auto" is here, see `engine.following`
    bounded: ClassVar[bool] = True  # whether a block's curvature stays below what it says of itself at the start
    signals_alike: ClassVar[bool] = True  # whether all parties are sent the same signal
    signals_kind: ClassVar[type[Signals] | None] = None  # how signals go back, where `open_signals` is not to choose

    @property
    def batch(self) -> int:
        """Rows per batch, at most."""
        return self._batch or self.options.batch_for(self.train.rows)

    @property
    def leader(self) -> str:
        """The label holder that sums up evaluations and says when to stop."""
        return self.job.holders[0]

    @property
    def others(self) -> list[str]:
        """All parties but this one."""
        return [name for name in self.net.names if name != self.net.me]

    @cached_property
    def telling(self) -> Telling:
        """This party's end of what is told to everybody: among many parties, down the tree of the sums."""
        return Telling(self.net, self.job.topology)

    async def tell(self, tag: str, value: Any) -> None:
        """Tell every other party, each of which has to `hear` it before it goes on."""
        await self.telling.tell(tag, value)

    async def hear(self, teller: str, tag: str) -> Any:
        """Return what a party tells all others."""
        return await self.telling.hear(teller, tag)

    async def tell_each(self, tag: str, value: Any) -> None:
        """Send every other party the same by itself: where all tell all, or nobody shall wait for who is slow."""
        for name in self.others:
            await self.net.send(name, tag, value)

    async def share_out(self, part: Part) -> None:
        """Give every row to one of the holders that have its label, in turn so that they share the work."""
        me, masks = self.net.me, []
        if part.labelled is not None and me in self.job.holders:
            await self.tell("labelled rows", np.packbits(part.labelled))
        for holder in self.job.holders:
            if holder == me:
                masks.append(part.labelled)
            else:
                bits = await self.hear(holder, "labelled rows")
                bits = expect_array(bits, ((part.rows + 7) // 8,), np.uint8, holder, "labelled rows")
                masks.append(np.unpackbits(bits, count=part.rows).astype(bool))
        held = np.stack([np.asarray(mask) for mask in masks])
        count = held.sum(axis=0)
        if not count.all():
            raise LabelError(
                f"{int((count == 0).sum())} of {part.rows} rows have no label at any party; drop these rows, or give "
                f"their labels to one party"
            )
        for holder, mask, mine in zip(self.job.holders, held, shared_out(held), strict=True):
            part.owned[holder] = mine
            part.held[holder] = np.nonzero(mask)[0]

    # -- rounds -------------------------------------------------------------------------------------------------

    def batches(self, epoch: int) -> Iterator[Batch]:
        """(who computes the signal, which rows) for every batch of an epoch, drawn from the public seed.

        There are no more of them than `rounds` leaves. Where gradients are opened, the first epoch is one batch of all
        rows for each holder; see `engine.exposure`.
        """
        found = self.draws.batches(epoch, whole=epoch == 1 and self._whole_first)
        # What leaves about the row that is drawn most often, beyond what leaves about all rows on average.
        self.allowance.focus(float(self.draws.excess() * self._told))
        found = found[: self.rounds_left // self.options.exchanges(len(self.net.names))]
        if self.net.watcher is not None:
            self.net.watcher.expects(found, epoch)
        yield from found

    def whole_pass(self, epoch: int) -> list[Batch]:
        """Every row once, whatever the batches of this epoch are drawn like."""
        return self.draws.passes(epoch)

    @cached_property
    def draws(self) -> Draws:
        """Which rows the batches have; known when the parties have agreed on who owns which row, and on a batch."""
        options = self.options
        return Draws(options.sampling, options.seed, options.most_epochs, self.train.owned, self.batch)

    @property
    def _told(self) -> int:
        return self.options.numbers_of_a_batch(self.told_outputs, len(self.net.names))

    @property
    def told_outputs(self) -> int:
        """How many numbers about a row leave a party in one exchange."""
        return self.block.outputs

    def numbers_told(self, signal: FloatArray) -> int:
        """Return how many numbers about rows a signal is."""
        return int(signal.size)

    @property
    def rounds_left(self) -> int:
        """Exchanges that there may still be."""
        most = self.options.rounds
        return _ENDLESS if most is None else max(0, most - self.net.traffic.rounds)

    def count_round(self, epoch: int) -> None:
        """Count an exchange that is done."""
        rounds = self.net.traffic.rounds
        if rounds % _PROGRESS_EVERY == 0 and self.net.me == self.leader:
            self.net.report(("progress", epoch, rounds))
        self.net.traffic.round()

    # -- contributions there ------------------------------------------------------------------------------------

    async def collect(self, tag: str, mine: FloatArray, holder: str) -> FloatArray | None:
        """Everybody's contributions at the holder, as one score per row and output; None elsewhere."""
        return await self.sum.total(tag, mine, holder)

    def without(self, scores: FloatArray, mine: FloatArray) -> FloatArray:
        """What the other parties have contributed to the scores."""
        return scores - mine

    def together(self, others: FloatArray, mine: FloatArray) -> FloatArray:
        """The scores with this party's contribution as it is now."""
        return others + mine

    # -- signals back -------------------------------------------------------------------------------------------

    def signal(self, scores: FloatArray, rows: Rows) -> FloatArray:
        """dL/dz of these rows; only at a party that has their labels."""
        y = self.train.y
        found = self.job.loss.signal(scores, y[rows] if y is not None else np.zeros(0))
        if self.noise is None or y is None:
            return found
        if (times := self.noise.needs(rows)) and self.allowance.budget is not None:
            self.allowance.budget.release(replace(self.noise.defence.release, count=times))
        return self.noise(found, rows)

    @cached_property
    def noise(self) -> SignalNoise | None:
        """Noise on all signals at the party that has the labels, where a defence says so."""
        private = next((one for one in self.job.defences if isinstance(one, GaussianSignals)), None)
        if private is None or self.net.me not in self.job.holders:
            return None
        return SignalNoise(private, self.net.secret(f"defence {private.name}"), self.job.loss.name, self.train.rows)

    @cached_property
    def _guards(self) -> list[Guard]:
        kinds = [one for one in self.job.defences if isinstance(one, SignalDefence)]
        return [one.guard(self.net.secret(f"defence {one.name}"), self.block.outputs) for one in kinds]

    def guarded(self, signal: FloatArray, rows: Rows) -> FloatArray:
        """What leaves in place of the signal of these rows, at the party that has their labels."""
        if not self._guards or self.train.y is None:
            return signal
        y = labels_of(self.train.y[rows])
        for guard in self._guards:
            signal = guard(signal, y if y.ndim == 1 else y[:, 0])  # an offset stands beside its label
        return signal

    async def send_signal(self, name: str, signal: FloatArray) -> None:
        """Send the signal of a batch from its holder to one party."""
        await self.net.send(name, "signal", signal)

    async def hear_signal(self, holder: str, rows: Rows, tag: str = "signal") -> FloatArray:
        """The signal of a batch, from the holder that owns it; or something else of the same shape."""
        return self._of_rows(await self.net.recv(holder, tag), holder, rows, tag)

    async def hear_told_signal(self, holder: str, rows: Rows, tag: str = "signal") -> FloatArray:
        """The same, where the holder tells all others."""
        return self._of_rows(await self.hear(holder, tag), holder, rows, tag)

    def _of_rows(self, told: Any, holder: str, rows: Rows, tag: str) -> FloatArray:
        shape = (len(rows),) if self.block.outputs == 1 else (len(rows), self.block.outputs)
        return expect_array(told, shape, np.float64, holder, tag)


class Signals:
    """How the signal of a batch reaches the parties that step with it. Here it goes in the clear.

    Every party gets dL/dz of the batch's rows, and whoever has it can tell the labels.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.told = session.signals_alike  # to all others; else each that steps is sent its own

    @classmethod
    async def begin(cls, session: Session) -> Signals:
        """Return this party's side, once keys are exchanged where there are any."""
        return cls(session)

    def open(self, holder: str, rows: Rows) -> OpenBatch:
        """Start on a batch of this label holder's."""
        return self.session.block.open(rows)

    async def scores(self, work: OpenBatch, rows: Rows, holder: str) -> tuple[FloatArray, FloatArray] | None:
        """At the holder: (the scores of the batch's rows, its own contribution to them); None elsewhere."""
        contribution = work.contribution()
        scores = await self.session.collect("scores", contribution, holder)
        return None if scores is None else (scores, contribution)

    async def give(self, signal: FloatArray, rows: Rows, to: Sequence[str]) -> None:
        """At the holder: let these parties have what they step with."""
        self.session.allowance.backward(self.session.numbers_told(signal))
        if self.told:
            await self.session.tell("signal", signal)
            return
        for name in to:
            await self.session.send_signal(name, signal)

    async def serve(self, to: Sequence[str], etas: Sequence[float], proximal: float) -> None:
        """At the holder: help those who were given something to make use of it, in steps of these lengths."""

    async def take(self, holder: str, rows: Rows) -> FloatArray:
        """Elsewhere: what this party's local steps on the batch need."""
        session = self.session
        return await (session.hear_told_signal if self.told else session.hear_signal)(holder, rows)

    async def close(self) -> None:
        """After the last epoch: let every party have its own coefficients, where it has not."""


async def open_signals(session: Session) -> Signals:
    """Signals in the clear or encrypted, as the parties have agreed; with one label holder coefficients in shares."""
    if session.signals_kind is not None:
        return await session.signals_kind.begin(session)
    if session.job.sum != ENCRYPTED:
        return Signals(session)
    if in_shares(session.job.sum, session.job.holders):
        from colonnade.engine.encrypted_shares import EncryptedShares

        return await EncryptedShares.begin(session)
    from colonnade.engine.encrypted import EncryptedSignals

    return await EncryptedSignals.begin(session)


def signal_leaks(setting: Setting, numbers: int | None, kinds: tuple[str, ...] = ("signal",)) -> tuple[Leak, ...]:
    """What goes back to a party, in the clear or encrypted; numbers: about a row, over a run."""
    if setting.sum != ENCRYPTED:
        return signals(setting, numbers, kinds)
    if in_shares(setting.sum, setting.holders):
        from colonnade.engine.encrypted_shares import share_leaks

        return share_leaks(setting)
    from colonnade.engine.encrypted import gradient_leaks

    return gradient_leaks(setting)
