"""The sum of runs whose signals are encrypted."""

from __future__ import annotations

from typing import ClassVar

from colonnade.sums.pairwise import PairwiseSum


class PaillierSum(PairwiseSum):
    """Contributions are added up as by `pairwise`: with three or more parties a label holder sees totals only.

    What is encrypted are the signals, on their way back: see `engine.encrypted`. (To add contributions as
    ciphertexts would show the label holder the same totals, at a thousand times the cost.)
    """

    name: ClassVar[str] = "paillier"
