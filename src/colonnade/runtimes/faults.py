"""What can go wrong on the lines of a simulation, drawn from a seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from colonnade.errors import OptionError, at_least


@dataclass(frozen=True)
class Faults:
    """Lost, delayed and duplicated messages, and crashed parties.

    `lost`, `delayed` and `duplicated` are probabilities per message; a delayed message takes up to `delay` seconds
    longer, so it may be overtaken. `crashes` maps a party to the virtual second at which it falls silent for good.
    """

    lost: float = 0.0
    delayed: float = 0.0
    duplicated: float = 0.0
    delay: float = 0.1
    crashes: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("lost", "delayed", "duplicated"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise OptionError(f"{name} must be a probability between 0 and 1, got {value!r}")
        at_least("delay", self.delay, 0)
        for party, second in self.crashes.items():
            at_least(f"crashes[{party!r}]", second, 0)

    def arrivals(self, rng: np.random.Generator) -> list[float]:
        """Extra seconds for every copy of one message that arrives; empty if it is lost."""
        # Always the same number of draws, so that one fault's probability does not shift another's.
        lost, late, twice, first, second = rng.random(5)
        if lost < self.lost:
            return []
        extra = [first * self.delay if late < self.delayed else 0.0]
        if twice < self.duplicated:
            extra.append(second * self.delay)
        return extra
