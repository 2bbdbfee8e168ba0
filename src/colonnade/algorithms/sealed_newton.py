"""Sealed Newton: a linear model trained on shares, of which each party learns its own coefficients and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from colonnade.engine.options import Training
from colonnade.errors import OptionError, whole_number
from colonnade.leaks import Leak, Setting

# What an algorithm with a fixed number of rounds about all rows has in place of these; other values are refused.
_FIXED: dict[str, Any] = {
    "step": 1.0, "schedule": "constant", "batch": None, "tol": None, "goal": None, "metric_goal": None,
    "seconds": None, "evaluate_every": None, "epochs": 1, "patience": 1,
}  # fmt: skip


@dataclass(frozen=True)
class SealedNewton(Training):
    """Newton steps on shares: nobody sees a score, a signal, a gradient or another party's coefficients.

    Parameters
    ----------
    rounds : int, optional
        Rounds about all rows with fresh curvature; None chooses by the number of rows.
    polish : int, optional
        Rounds after them with the last curvature; None chooses by the number of rows.
    period : float, optional
        Scores are told apart modulo this number, a power of two: those beyond half of it are taken for others. None
        chooses by the number of rows, as a wider range costs more.
    seed : int
        The seed of the order of rows, which everybody knows.
    """

    rounds: int | None = None
    polish: int | None = None
    period: float | None = None
    step: float | str = field(default=1.0, kw_only=True)
    schedule: str = field(default="constant", kw_only=True)
    epochs: int = field(default=1, kw_only=True)
    tol: float | None = field(default=None, kw_only=True)
    patience: int = field(default=1, kw_only=True)

    name: ClassVar[str] = "SealedNewton"
    family: ClassVar[str] = "sealed"
    second_order: ClassVar[bool] = True
    tells_signals: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds is not None:
            whole_number("rounds", self.rounds, 1)
        if self.polish is not None:
            whole_number("polish", self.polish, 0)
        if self.period is not None and self.period not in (2.0**k for k in range(4, 13)):
            raise OptionError(f"period must be a power of two from 16 to 4096, got {self.period!r}")
        for option, only in _FIXED.items():
            if getattr(self, option) != only:
                raise OptionError(
                    f"SealedNewton takes no {option}, got {getattr(self, option)!r}, as its rounds are fixed before it "
                    f"starts and nobody sees how far it has come; leave it out, or use rounds and polish"
                )

    def batch_for(self, rows: int) -> int:
        """All rows: every round is about all of them."""
        return rows

    def numbers_between(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """None: nothing about a row leaves a party."""
        return 0.0

    def least_numbers(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """None: nothing about a row leaves a party."""
        return 0.0

    def numbers_per_row(self, setting: Setting) -> int | None:
        """None: nothing about a row leaves a party."""
        return 0

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Nothing but how many columns each party has."""
        return ()
