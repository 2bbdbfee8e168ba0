"""How the signal of a batch reaches the parties that step with it: in the clear, or encrypted."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.blocks import FloatArray, OpenBatch, Rows
from colonnade.engine.session import Session
from colonnade.leaks import Leak, Setting, signals


class Signals:
    """In the clear: every party gets dL/dz of the batch's rows, and whoever has it can tell the labels."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def open(self, holder: str, rows: Rows) -> OpenBatch:
        """Start on a batch of this label holder's."""
        return self.session.block.open(rows)

    async def give(self, signal: FloatArray, rows: Rows, to: Sequence[str]) -> None:
        """At the holder: let these parties have what they step with."""
        self.session.allowance.backward(signal.size)
        for name in to:
            await self.session.send_signal(name, signal)

    async def serve(self, to: Sequence[str]) -> None:
        """At the holder: help those who were given something to make use of it."""

    async def take(self, holder: str, rows: Rows) -> FloatArray:
        """Elsewhere: what this party's local steps on the batch take."""
        return await self.session.hear_signal(holder, rows)

    async def close(self) -> None:
        """The run is over."""


def signal_leaks(setting: Setting, numbers: int | None, kinds: tuple[str, ...] = ("signal",)) -> tuple[Leak, ...]:
    """What goes back to a party, in the clear or encrypted; numbers: about a row, over a run."""
    if setting.sum != "paillier":
        return signals(setting, numbers, kinds)
    from colonnade.engine.encrypted import gradient_leaks

    return gradient_leaks(setting)


async def open_signals(session: Session) -> Signals:
    """The way that the job asks for."""
    if session.job.sum != "paillier":
        return Signals(session)
    from colonnade.engine.encrypted import EncryptedSignals

    return await EncryptedSignals.begin(session)
