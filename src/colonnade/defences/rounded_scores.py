"""Parts of scores that all parties round, or add noise to, in predictions: `scores.Blur` as an option that is agreed.

Luo, Wu, Xiao, Ooi: "Feature inference attack on model predictions in vertical federated learning", ICDE 2021, section
VII. A party that wants it for itself alone says so in its own file: `round_scores` and `noise_scores` in [policy].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from colonnade.defences.base import EVERYBODY, Defence
from colonnade.defences.scores import Blur
from colonnade.leaks import OF_COLUMNS, PREDICTED


@dataclass(frozen=True, kw_only=True)
class RoundedScores(Defence):
    """Each party's part of a prediction is rounded, or has noise, before the parts are added up; training is as it was.

    Parameters
    ----------
    digits : int, optional
        To how many decimals; None does not round.
    noise : float
        The standard deviation of normal noise that is added before.
    """

    digits: int | None = 2
    noise: float = 0.0

    name: ClassVar[str] = "rounded-scores"
    paper: ClassVar[str] = "Luo et al. 2021"
    protects: ClassVar[str] = OF_COLUMNS
    by: ClassVar[str] = EVERYBODY
    families: ClassVar[tuple[str, ...]] = ("linear", "torch", "sealed")
    changes: ClassVar[tuple[str, ...]] = (PREDICTED,)
    in_training: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = self.blur  # which refuses what makes no sense

    @property
    def blur(self) -> Blur:
        """What each party does."""
        return Blur(self.digits, self.noise)


def blur_of(defences: Iterable[Defence]) -> Blur:
    """Return what all parties have agreed to do to their parts of scores."""
    found = Blur()
    for one in defences:
        found = found.and_also(one.blur) if isinstance(one, RoundedScores) else found
    return found
