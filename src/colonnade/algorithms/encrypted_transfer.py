"""Transfer learning on encrypted sums: no party is sent a representation, a label or a derivative of a single row.

Both networks end with a linear layer, and that layer learns; the layers before it stay as they were given. Then each
party's gradient takes sums over rows of its own hidden features times the other's numbers (`algorithms.transfer_sums`),
which `engine.private_sums` makes of encrypted ones. An exchange:

    B -> A    U_B'U_B over labelled rows (d x d), the sum of |u_B|^2, and [[U_B]]      A has  [H_A, y]' U_B
    A -> B    Phi, and [[C]], c_i = y_i Phi n / (2 n_k) + 2 gamma u_A,i                B has  H_B' C

All Q local steps between two exchanges follow equation (9) and need no message, so an exchange costs the same for
every Q. An evaluation is the first line, which the next exchange then need not repeat.

What can a party solve for? h(x) never changes, so whatever the number of rounds, all that A sees are functions of
[H_A, y]'H_B and H_B'H_B, and of B's weights; all that B sees are functions of H_B'[H_A, y] and of A's weights. That are
as many numbers as a few rows have, and `check_rows` asks for so many rows that single ones can't be found in them. The
sums themselves are shown: B could fit a linear model of the labels on its own h(x), and so could A of B's columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np

from colonnade.algorithms.fedbcd import FedBCD, FedSGD
from colonnade.algorithms.transfer import MEAN_OF_ALL, Aim, hear_numbers
from colonnade.algorithms.transfer_sums import SourceLastLayer, TargetLastLayer
from colonnade.blocks import FloatArray, OpenBatch, Rows
from colonnade.blocks.whole_columns import WholeColumns
from colonnade.crypto.lattice_keys import LatticePublicKey
from colonnade.crypto.lattice_products import new_secret_key, private_keystream
from colonnade.engine.encrypted import hear_key
from colonnade.engine.exchange import Part, Signals
from colonnade.engine.exposure import EXACT_BITS, agree_on_batch, label_bits, least_batch, shown_bits
from colonnade.engine.private_sums import BLINDED, ENCRYPTED_NUMBERS, OPENED, give_numbers, open_sums, take_sums
from colonnade.engine.session import Session, session_leaks
from colonnade.engine.torch_session import NetworkSession
from colonnade.errors import OptionError, ProtocolError
from colonnade.leaks import (
    COLUMNS,
    COVARIANCES,
    GRADIENTS,
    HELD_OUT,
    OF_COLUMNS,
    OF_LABELS,
    PREDICTED,
    Leak,
    Setting,
    nothing,
)
from colonnade.networks.torch_last_layer import LastLayerBlock
from colonnade.objective import losses, metrics
from colonnade.runtimes.wire import expect_array

QUADRATIC = Aim(loss="taylor")
# Of one row in a party's own hidden features. Below it all other rows hide its number with noise of half its own size
# or more: sqrt((1 - l) / l) for leverage l.
MOST_LEVERAGE = 0.8
MOMENTS, MEAN, JUDGED = "second moments", "mean representation", "held-out scores"


def encrypted_transfer_leaks(setting: Setting, options: FedSGD | FedBCD) -> tuple[Leak, ...]:
    """Return what is shown: sums over all common rows; features in which one row stands out are refused."""
    everybody, source, target = setting.parties, (setting.leader,), setting.hearers
    sums = (
        "{who} will learn sums over {people} of their own hidden features times your network's outputs, and how these "
        "vary together: as many numbers as a few rows have, however many rounds there are"
    )
    labels = (
        "{who} could fit a linear model of your labels on their own hidden features, from sums over {people}; batches "
        "in which they could solve for single labels are refused"
    )
    many = "{who} will learn how wide your last layer is"
    asked = "{who} can see the score of everybody whom they ask about, when they ask for predictions"
    judged = "{who} will see the score of every held-out person after every round, for a metric"
    return (
        *session_leaks(setting, options),
        nothing(setting, ENCRYPTED_NUMBERS, BLINDED),
        Leak(COVARIANCES, OF_COLUMNS, target, source, (OPENED, MOMENTS), sums),
        Leak(COVARIANCES, OF_COLUMNS, source, target, (OPENED, MEAN), sums + MEAN_OF_ALL),
        Leak(GRADIENTS, OF_LABELS, source, target, (OPENED, MEAN), labels),
        Leak(COLUMNS, OF_COLUMNS, everybody, everybody, ("block size",), many),
        Leak(PREDICTED, OF_COLUMNS, target, source, ("prediction",), asked),
        *((Leak(HELD_OUT, OF_COLUMNS, target, source, (JUDGED, MEAN), judged),) if setting.held_out else ()),
    )


def check_rows(rows: int, sizes: dict[str, int]) -> None:
    """Refuse so few rows that one of the parties could find single ones in its sums; see `engine.exposure`."""
    name, width = max(sizes.items(), key=lambda one: one[1])
    if rows < least_batch(width):
        raise OptionError(
            f"{rows} rows in common are too few for protection='masked': party {name!r} sees a sum over them for each "
            f"of {width} numbers of its own, exact to {EXACT_BITS} bits, and could work out single rows; give at least "
            f"{least_batch(width)} rows, or networks whose last layer takes fewer numbers"
        )


def check_spread(features: FloatArray, party: str) -> None:
    """Refuse own features of which a combination is nearly that of one row: a sum over all rows would be its number.

    How near is the row's leverage, the diagonal of H (H'H)^-1 H': 1 where one row has a feature to itself.
    """
    u, sizes, _ = np.linalg.svd(features, full_matrices=False)
    kept = u[:, sizes > 1e-9 * max(float(sizes[0]), 1e-300)]
    most = float(np.square(kept).sum(axis=1).max())
    if most > MOST_LEVERAGE:
        raise OptionError(
            f"hidden features of party {party!r} are nearly those of a single row (leverage {most:.2f}, at most "
            f"{MOST_LEVERAGE} is allowed), so that a sum over all rows would show that row's numbers; leave out "
            f"columns that few rows have, or end with fewer hidden features"
        )


class EncryptedTransfer(Signals):
    """One party's side of all exchanges."""

    session: EncryptedTransferSession
    theirs: LatticePublicKey
    columns: WholeColumns  # this party's h(x), and A's labels

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.block = cast("LastLayerBlock", session.block)
        self.own, self.stream = new_secret_key(), private_keystream()
        (self.other,) = session.others
        self.shape = (self.block.rows, self.block.outputs)
        self._sums: FloatArray | None = None  # at A, of weights that have not changed since
        self._made = False  # whether A has them

    @classmethod
    async def begin(cls, session: Session) -> EncryptedTransfer:
        """Make keys and tell the public ones; A tells which rows have a label."""
        opened, net = cls(session), session.net
        opened.session.encrypted = opened
        block, rows = opened.block, opened.block.rows
        beside = [block.y[:, None]] if isinstance(block, SourceLastLayer) else []
        check_spread(np.hstack([block.H, *beside]), net.me)
        await net.send(opened.other, "encryption key", opened.own.public)
        opened.theirs = await hear_key(net, opened.other)
        if isinstance(block, SourceLastLayer):
            await net.send(opened.other, "labelled rows", np.packbits(block.y != 0))
            opened.columns = block.whole(block.y)
        else:
            bits = await net.recv(opened.other, "labelled rows")
            bits = expect_array(bits, ((rows + 7) // 8,), np.uint8, opened.other, "labelled rows")
            known = np.unpackbits(bits, count=rows).astype(bool)
            if known.sum() < least_batch(block.outputs):  # U_B'U_B over them would show single ones
                raise ProtocolError(
                    f"party {opened.other!r} says that {int(known.sum())} of {rows} rows have a label; sums over fewer "
                    f"than {least_batch(block.outputs)} could show single rows"
                )
            cast("TargetLastLayer", block).brings(known, opened.session.aim)
            opened.columns = block.whole()
        return opened

    async def moments(self) -> FloatArray | None:
        """Return what A's gradient takes of B at A, and None at B; it is made once for the same weights."""
        if not self._made:
            self._made, self._sums = True, await self._moments()
        return self._sums

    async def _moments(self) -> FloatArray | None:
        net, other, (rows, width) = self.session.net, self.other, self.shape
        if isinstance(self.block, TargetLastLayer):
            u, squares = self.block.moments()
            await net.send(other, MOMENTS, squares)
            columns = self.session.sizes[other]
            await give_numbers(net, other, self.own, u, columns)
            await open_sums(net, other, self.own, self.shape, columns)
            return None
        squares = await hear_numbers(net, other, MOMENTS, (width + 1, width))
        crossed = await take_sums(net, other, self.theirs, self.columns, (rows, width), self.stream)
        return np.concatenate([crossed, squares])

    def forget(self) -> None:
        """Note that weights have changed, or may have."""
        self._made, self._sums = False, None

    async def scores(self, work: OpenBatch, rows: Rows, holder: str) -> tuple[FloatArray, FloatArray] | None:
        """At A: (the sums with B's representations, nothing of its own); None at B."""
        found = await self.moments()
        self.forget()
        return None if found is None else (found, work.contribution())

    async def give(self, signal: FloatArray, rows: Rows, to: Any) -> None:
        """At A: send Phi, and [[C]]."""
        block, net = cast("SourceLastLayer", self.block), self.session.net
        await net.send(self.other, MEAN, block.phi)
        await give_numbers(net, self.other, self.own, block.numbers(), self.session.sizes[self.other])

    async def serve(self, to: Any, etas: Any, proximal: float) -> None:
        """At A: open B's sums under their masks."""
        await open_sums(self.session.net, self.other, self.own, self.shape, self.session.sizes[self.other])

    async def take(self, holder: str, rows: Rows) -> FloatArray:
        """At B: return [Phi, H_B'C]."""
        phi = await hear_numbers(self.session.net, holder, MEAN, self.shape[1:])
        sums = await take_sums(self.session.net, holder, self.theirs, self.columns, self.shape, self.stream)
        return np.concatenate([phi[None], sums])


@dataclass
class EncryptedTransferSession(NetworkSession):
    """A session of two parties, whose rows are one batch, and of which each sees sums of the other's."""

    aim: Aim = QUADRATIC
    encrypted: EncryptedTransfer = field(init=False)

    follows: ClassVar[str] = "frozen"  # `TargetLastSteps` computes gradients afresh itself
    signals_kind: ClassVar[type[Signals] | None] = EncryptedTransfer

    async def _agree_on_batch(self) -> None:
        """Agree on one batch of all rows, of which there must be enough for everybody's last layer."""
        rows, block = self.train.rows, cast("LastLayerBlock", self.block)
        if self.options.batch is not None and self.options.batch < rows:
            raise OptionError(
                f"protection='masked' takes all {rows} rows in common at once, so that nobody sees sums over fewer, "
                f"got batch={self.options.batch}; leave batch out"
            )
        source = isinstance(block, SourceLastLayer)
        shares = {self.leader: rows}
        self._batch, self.sizes = await agree_on_batch(self.net, block.width + source, shares, 1, rows)
        check_rows(rows, self.sizes)
        if isinstance(block, SourceLastLayer):
            self._check_labels(block.y[block.y != 0])
        self._charge(rows)

    def _charge(self, rows: int) -> None:
        """Count what a run shows of this party, in numbers about each row; runs with other features would add up.

        The other party can solve for sums over all rows of each of its own numbers times each of this party's, and the
        source also for how the target's vary together. A budget counts whole numbers: one for every run at least.
        """
        if self.budget is None:
            return
        mine, theirs = (self.sizes[name] for name in (self.net.me, *self.others))
        together = 0 if isinstance(self.block, SourceLastLayer) else mine * (mine + 1) // 2
        numbers = (theirs * mine + together) / rows
        self.budget.check(numbers, "masked transfer learning")
        self.budget.charge(numbers)

    def _check_labels(self, y: FloatArray) -> None:
        """Refuse labels that hold less than the sums with B's features can show, as where one class is rare."""
        (width,) = (size for name, size in self.sizes.items() if name != self.net.me)
        held, shown = label_bits(y), shown_bits(y, width, 1, classes=True)
        if held < shown:
            raise OptionError(
                f"the {len(y)} labels of party {self.net.me!r} of rows in common hold {held:.0f} bits, and sums of "
                f"them with {width} numbers of party {self.others[0]!r} can show {shown:.0f}; label more rows, or let "
                f"that party's last layer take fewer numbers"
            )

    def least_numbers(self) -> float:
        """Numbers about each row that leave at least: the scores of held-out rows."""
        return 2.0 * (self.validation is not None)

    def numbers_ahead(self) -> float:
        """Numbers about each row until the next evaluation is done."""
        return 1.0 * (self.validation is not None)

    def without(self, scores: FloatArray, mine: FloatArray) -> FloatArray:
        """Return the sums as they came."""
        return scores

    def together(self, others: FloatArray, mine: FloatArray) -> FloatArray:
        """Return the sums as they came: A's gradient takes its own weights as they are."""
        return others

    def signal(self, scores: FloatArray, rows: Rows) -> FloatArray:
        """Return dL/dW_A at A."""
        return cast("SourceLastLayer", self.block).gradient(scores)

    async def evaluate(self, epoch: int) -> bool:
        """Evaluate as every session does; "adaptive" may have taken steps back."""
        go_on = await super().evaluate(epoch)
        if self.options.schedule == "adaptive":
            self.encrypted.forget()
        return go_on

    async def _measure(self, part: Part) -> tuple[float, float, float]:
        """Return (loss, metric x weight, weight): of training rows the loss, which A has from sums, and no metric."""
        block = self.block
        if part.columns is None:
            sums = await self.encrypted.moments()
            return (0.0, 0.0, 0.0) if sums is None else (cast("SourceLastLayer", block).value(sums), 0.0, 0.0)
        self.allowance.focus(1.0)
        if not isinstance(block, SourceLastLayer):
            phi = await hear_numbers(self.net, self.leader, MEAN, (block.outputs,))
            layer = cast("TargetLastLayer", block)
            await self.net.send(self.leader, JUDGED, layer.hidden(part.columns) @ layer.weights @ phi)
            return 0.0, 0.0, 0.0
        await self.net.send(self.others[0], MEAN, block.phi)
        z, loss = await hear_numbers(self.net, self.others[0], JUDGED, (part.rows,)), losses.loss("logistic")
        of = part.owned[self.leader]
        z, y = z[of], cast("FloatArray", part.y)[of]
        self.stopping.seen = z
        _, metric = metrics.evaluate(loss, z, y)
        return loss.value(z, y), *((0.0, 0.0) if math.isnan(metric) else (metric, 1.0))
