"""All attacks, in the order of a table: on labels, on columns, on people."""

from __future__ import annotations

from colonnade.attacks.case import Attack
from colonnade.attacks.signal_signs import SignalSigns

ATTACKS: tuple[Attack, ...] = (
    # on labels
    SignalSigns(),
    # on columns
    # on people
)
