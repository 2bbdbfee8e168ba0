"""What every defence says of itself: whose it is, which models it fits, and what it changes.

A defence is an option of estimators (`defences=[...]`) and of jobs (`[defence.NAME]`). All parties agree on it before
they start, as its noise shows in everybody's model. Its numbers travel with the job; what it draws is secret.
"""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import Keystream
from colonnade.defences.accountant import RESPONSE, Release
from colonnade.defences.responses import randomised
from colonnade.errors import OptionError
from colonnade.leaks import MEAN, SCORES, SIGNALS, Leak, Setting
from colonnade.objective import losses

FloatArray = npt.NDArray[np.float64]
# What goes to others in place of the signal of a batch: takes the signal and the labels of its rows.
Guard = Callable[[FloatArray, npt.NDArray[Any]], FloatArray]

# Who applies it.
LABEL_HOLDER, EVERYBODY = "the label holder", "every party"


@dataclass(frozen=True, kw_only=True)
class Defence(ABC):
    """One defence with its options; each of them is a frozen dataclass in a file of its own, and refuses bad options.

    Attributes
    ----------
    name
        What it is called in jobs and tables: one word with hyphens.
    paper
        Where it is from: authors, year.
    protects
        What it hides, in the words of `leaks`: OF_LABELS, OF_COLUMNS or OF_PEOPLE.
    by
        Who applies it: LABEL_HOLDER or EVERYBODY.
    families
        The families of models that know it.
    algorithms
        The algorithms that know it; empty: all of these families.
    changes
        The names of the leaks that say less with it; they stay declared, as less is not nothing.
    in_training
        Whether it changes anything in training, and not only in use.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    protects: ClassVar[str]
    by: ClassVar[str]
    families: ClassVar[tuple[str, ...]]
    algorithms: ClassVar[tuple[str, ...]] = ()
    changes: ClassVar[tuple[str, ...]] = ()
    in_training: ClassVar[bool] = True
    private: ClassVar[bool] = False  # whether all that is told of labels is bounded, so that none starts a model
    instead: ClassVar[str] = "leave it out"  # what to do where the family does not know it

    @property
    def hides_labels(self) -> bool:
        """Return whether what is told of labels is bounded, so that nothing else may tell of true ones."""
        return self.private

    @property
    def words(self) -> str:
        """Say in a few words what it does with these options, for `check`, `run` and sentences on what is shown."""
        return self.name + "".join(f", {key} {value}" for key, value in asdict(self).items() if value is not None)

    def as_value(self) -> Any:
        """Return name and options in a form that the wire can carry; `registry.from_value` is the inverse."""
        return (self.name, tuple(asdict(self).items()))

    def check(self, model: str, family: str, algorithm: Any, setting: Setting) -> None:
        """Refuse a run that it does not fit; `model` is what the user calls the model."""
        if family not in self.families:
            raise OptionError(
                f"the defence {self.name!r} is for models of the family {_or(self.families)}, and {model} trained so "
                f"is of the family {family!r}; {self.instead}"
            )
        if self.algorithms and algorithm.name not in self.algorithms:
            raise OptionError(
                f"the defence {self.name!r} goes with {_or(self.algorithms)}, and {model} is trained by "
                f"{algorithm.name}; change one of the two"
            )

    def leaks(self, leaks: Iterable[Leak], setting: Setting) -> tuple[Leak, ...]:
        """Return what a run declares to show, as it is with this defence."""
        return tuple(
            replace(leak, words=f"{leak.words}, as far as the defence leaves it ({self.words})")
            if leak.name in self.changes
            else leak
            for leak in leaks
        )

    def refits(self, family: str) -> bool:
        """Return whether label holders of this family's models take a last step after all others, with true labels."""
        return False


class LabelDefence(Defence):
    """A defence that trains by other labels than the true ones, drawn from a secret."""

    by: ClassVar[str] = LABEL_HOLDER
    changes: ClassVar[tuple[str, ...]] = (SIGNALS, SCORES, MEAN)
    epsilon: float

    @property
    def hides_labels(self) -> bool:
        """Say that it does."""
        return True

    def check(self, model: str, family: str, algorithm: Any, setting: Setting) -> None:
        """Refuse labels that are no classes, weights, which tell classes where they balance them, and two holders."""
        super().check(model, family, algorithm, setting)
        if losses.loss(setting.loss).kind not in ("binary", "classes"):
            raise OptionError(f"the defence {self.name!r} is for classes, and {model} has the loss {setting.loss!r}")
        if setting.weighted:
            raise OptionError(f"the defence {self.name!r} hides labels, and weights may tell them; leave one out")
        if len(setting.holders) > 1:
            raise OptionError(
                f"the defence {self.name!r} needs exactly one label holder, got {', '.join(map(repr, setting.holders))}"
            )

    def kept(self, classes: int) -> float:
        """Return the chance that a label is kept less that of drawing a given other one."""
        return math.expm1(self.epsilon) / (math.expm1(self.epsilon) + max(2, classes))

    def drawn(self, y: npt.NDArray[Any], kind: str, classes: int, secret: bytes) -> npt.NDArray[Any]:
        """Return the labels to train by."""
        return randomised(y, kind, classes, self.epsilon, Keystream(secret))

    def release(self, classes: int) -> Release:
        """Return what one training tells of each label."""
        return Release(RESPONSE, float(self.epsilon), max(2, classes))


class SignalDefence(Defence):
    """A defence that changes signals before they leave the label holder, which itself goes on with the true ones."""

    by: ClassVar[str] = LABEL_HOLDER
    families: ClassVar[tuple[str, ...]] = ("linear", "torch", "split")
    algorithms: ClassVar[tuple[str, ...]] = ("FedSGD", "FedBCD", "VFB2")
    changes: ClassVar[tuple[str, ...]] = (SIGNALS, SCORES)

    def check(self, model: str, family: str, algorithm: Any, setting: Setting) -> None:
        """Refuse signals that are encrypted anyway, and steps that read more from a signal than it still says."""
        super().check(model, family, algorithm, setting)
        if setting.sum == "encrypted":
            raise OptionError(
                f"the defence {self.name!r} changes signals, which sum='encrypted' shows nobody; leave out one of them"
            )
        form = getattr(algorithm, "signal", "auto")
        if form not in ("auto", "frozen"):
            raise OptionError(
                f"the defence {self.name!r} leaves of a signal less than signal={form!r} needs; leave signal out"
            )

    def guard(self, secret: bytes, outputs: int) -> Guard:
        """Return what changes the signals of one run, drawing from this secret; `outputs` is how many a row has."""
        raise TypeError(f"{type(self).__name__} must say what it does to a signal")


def check_defences(defences: tuple[Defence, ...], model: str, family: str, algorithm: Any, setting: Setting) -> None:
    """Refuse defences that do not fit a run, and one of a name twice."""
    for at, one in enumerate(defences):
        if any(other.name == one.name for other in defences[:at]):
            raise OptionError(f"the defence {one.name!r} is given twice; leave out one of them")
        one.check(model, family, algorithm, setting)


def as_defended(leaks: Iterable[Leak], setting: Setting) -> tuple[Leak, ...]:
    """Return what a run declares to show, as it is with the defences of the setting."""
    found = tuple(leaks)
    for one in setting.defences:
        found = one.leaks(found, setting)
    return found


def _or(names: tuple[str, ...]) -> str:
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}" if first else last
