"""What defences of networks have in common: each party applies them to what its own network gives, before it leaves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from colonnade.defences.base import EVERYBODY, Defence
from colonnade.errors import OptionError
from colonnade.leaks import (
    CHANGES,
    CONTRIBUTION,
    CONTRIBUTIONS,
    EMBEDDINGS,
    OF_COLUMNS,
    SINGLE,
    Setting,
)


class OutputDefence(Defence):
    """A defence of the outputs of a party's network, at whoever's outputs go to others.

    Attributes
    ----------
    veils
        Whether it puts something around the network, see `networks.torch_veils`.
    penalises
        Whether it adds something to what the party minimises.
    """

    protects: ClassVar[str] = OF_COLUMNS
    by: ClassVar[str] = EVERYBODY
    families: ClassVar[tuple[str, ...]] = ("torch", "split")
    changes: ClassVar[tuple[str, ...]] = (EMBEDDINGS, CONTRIBUTION, CONTRIBUTIONS, SINGLE, CHANGES)
    veils: ClassVar[bool] = False
    penalises: ClassVar[bool] = False

    def check(self, model: str, family: str, algorithm: Any, setting: Setting) -> None:
        """Refuse models that are no networks, and two veils around one network."""
        super().check(model, family, algorithm, setting)
        others = [one for one in setting.defences if isinstance(one, OutputDefence) and one.veils and one != self]
        if self.veils and others:
            raise OptionError(
                f"the defences {self.name!r} and {others[0].name!r} both put noise on what a network gives; leave out "
                f"one of them"
            )

    def around(self, module: Any, width: int) -> Any:
        """Return the party's module, which gives so many numbers for a row, with what this defence puts around it."""
        return module

    def penalty(self, x: Any, outputs: Any, z: Any) -> Any:
        """Return what a batch adds to the loss: of its inputs, what the module gives for them, and what leaves."""
        raise TypeError(f"{type(self).__name__} must say what it adds to the loss")


def on_outputs(defences: Iterable[Defence], me: str, holders: tuple[str, ...]) -> tuple[OutputDefence, ...]:
    """Return the defences that a party applies to its own outputs: none where it is the only one to see them."""
    return () if holders == (me,) else tuple(one for one in defences if isinstance(one, OutputDefence))
