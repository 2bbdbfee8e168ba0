"""All attacks, in the order of a table: on labels, on columns, on people."""

from __future__ import annotations

from colonnade.attacks.case import Attack
from colonnade.attacks.column_span import ColumnSpan, UnmaskedParts
from colonnade.attacks.phases import Phases, SharedDirections
from colonnade.attacks.rotations import InnerProducts, KnownMarginals, PieceSigns
from colonnade.attacks.score_equations import EqualitySolving, GenerativeRegression, ScoreRegression
from colonnade.attacks.signal_signs import SignalSigns
from colonnade.attacks.tree_bins import TreeRanges, TreeSums

ATTACKS: tuple[Attack, ...] = (
    # on labels
    SignalSigns(),
    # on columns
    ColumnSpan(),
    InnerProducts(),
    KnownMarginals(),
    PieceSigns(),
    UnmaskedParts(),
    Phases(),
    SharedDirections(),
    ScoreRegression(),
    EqualitySolving(),
    GenerativeRegression(),
    TreeRanges(),
    TreeSums(),
    # on people
)
