"""Label differential privacy by randomised response: training sees labels that say little about the true ones.

Ghazi, Golowich, Kumar, Manurangsi, Zhang: "Deep learning with label differential privacy", NeurIPS 2021, section 2:
each label is kept with probability e^epsilon / (e^epsilon + K - 1) and is one of the others otherwise. It is drawn
once, in secret, and everything that leaves the label holder in training, signals, verdicts and steps, follows from what
was drawn: whatever the others make of it tells two labels of a person apart by a factor of at most e^epsilon. The
people whose labels are looked at to stop training are protected alike.

In the end, when nothing leaves any more, the label holder of a linear model fits its own coefficients and the intercept
again by the true labels, with the others' parts of the scores as they are; nobody sees these (`families.refit`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from colonnade.defences.base import LabelDefence
from colonnade.errors import at_least
from colonnade.leaks import OF_COLUMNS, OF_LABELS, Leak, Setting


@dataclass(frozen=True, kw_only=True)
class RandomisedLabels(LabelDefence):
    """Labels of classes that are randomised before training, and true ones in the last step of linear models.

    Parameters
    ----------
    epsilon : float
        By which factor, as an exponent of e, what the others see may tell two labels of a person apart.
    refit : bool
        Whether the label holder of a linear model fits its own coefficients and the intercept by true labels in the
        end. It takes one more score of every row.
    """

    epsilon: float
    refit: bool = True

    name: ClassVar[str] = "randomised-labels"
    paper: ClassVar[str] = "Ghazi et al. 2021"
    protects: ClassVar[str] = OF_LABELS
    families: ClassVar[tuple[str, ...]] = ("linear", "averaged", "kernel", "torch", "split")
    instead: ClassVar[str] = "boosted trees have label_epsilon, an option of their algorithm; else leave it out"

    def __post_init__(self) -> None:
        at_least("epsilon", self.epsilon, 0, strict=True, finite=True)

    def refits(self, family: str) -> bool:
        """Return whether the last step of this family's models is one with true labels."""
        return self.refit and family == "linear"

    def leaks(self, leaks: Iterable[Leak], setting: Setting) -> tuple[Leak, ...]:
        """Return them with the scores that the last step takes."""
        more = (setting.outputs or 1) if self.refits(setting.model) else 0
        return tuple(
            replace(one, numbers=one.numbers + more)
            if one.about == OF_COLUMNS and one.left and one.numbers is not None
            else one
            for one in super().leaks(leaks, setting)
        )
