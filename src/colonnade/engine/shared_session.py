"""A session with one label holder under encryption: scores, penalties and checkpoints of coefficients in shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.engine.exchange import Part
from colonnade.engine.kept import Frozen
from colonnade.engine.sampling import Batch
from colonnade.engine.session import CHUNK, Session
from colonnade.engine.shared_coefficients import SharedParameters

if TYPE_CHECKING:
    from colonnade.blocks.linear import LinearBlock
    from colonnade.engine.encrypted_shares import EncryptedShares

# Numbers of the widest party's columns that are multiplied in one message of an evaluation, and the fewest rows.
_AT_ONCE, _FEWEST = 1 << 22, 1 << 10


@dataclass
class SharedSession(Session):
    """One party in a run whose parties without labels share their coefficients with the label holder.

    Attributes
    ----------
    parameters : SharedParameters
        What this party has of all coefficients.
    shares : EncryptedShares
        Its side of all products; `engine.exchange.open_signals` makes it.
    """

    parameters: SharedParameters = field(init=False)
    shares: EncryptedShares = field(init=False)
    _done: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parameters = SharedParameters(cast("LinearBlock", self.block))
        self.stopping.block = self._versions.block = self.parameters

    def batches(self, epoch: int) -> Iterator[Batch]:
        """See `Exchanges.batches`; every epoch begins with random numbers of its own."""
        self.shares.begin_phase(f"epoch {epoch}")
        found = list(super().batches(epoch))
        self.shares.look_ahead([rows for _, rows in found])
        return iter(found)

    # -- evaluation ---------------------------------------------------------------------------------------------

    async def scores_of(self, part: Part, rows: Rows, holder: str) -> FloatArray | None:
        """See `Session.scores_of`."""
        widest = max(1, *(size for name, size in self.sizes.items() if name != holder), 1)
        pieces, step = [], min(CHUNK, max(_FEWEST, _AT_ONCE // widest))
        for at in range(0, len(rows), step):
            some = rows[at : at + step]
            if self.net.me == holder:
                pieces.append(await self.shares.total("evaluation", self.block.scores(some, part.columns)))
            else:
                await self.shares.contribute("evaluation", some, part.columns)
        return np.concatenate(pieces) if pieces else None

    async def _totals(self, shares: list[float]) -> FloatArray | None:
        """See `Session._totals`; the penalty of shared coefficients is added."""
        strength = cast("LinearBlock", self.block).penalty.strength
        squares = await self.shares.squares() if strength else 0.0
        totals = await super()._totals(shares)
        if totals is not None:
            totals[0] += 0.5 * strength * squares
        return totals

    # -- from beginning to end ----------------------------------------------------------------------------------

    async def resume(self, *more: Frozen) -> tuple[int, bool] | None:
        """See `Session.resume`."""
        found = await super().resume(*more)
        self._done = 0 if found is None else found[0]
        return found

    def keep(self, epoch: int, go_on: bool, *more: Frozen) -> None:
        """See `Session.keep`: of coefficients in shares a party keeps its own share."""
        super().keep(epoch, go_on, *more)
        self._done = epoch

    async def seal(self) -> None:
        """Keep the end at all parties, before anybody is told its coefficients; see `KeptVersions.seal`."""
        await self._versions.seal(self._done)

    def finish(self) -> Any:
        """This party's own coefficients, which it has by now."""
        self.report_held_out()
        return self.block.state()
