"""Fixed point in the ring Z_2^64: sums are exact there, and a uniform mask hides a value perfectly.

A real number x travels as round(x * 2^f) modulo 2^64. Sums wrap around, so a mask that is uniform on the ring makes a
message uniform whatever the value is (a one-time pad), and masks that add up to zero vanish without any rounding.
Masks on real numbers, as the papers write them, hide imperfectly and cost precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError, RingOverflow

RingArray = npt.NDArray[np.uint64]
PhaseArray = npt.NDArray[np.uint32]  # 2^32 steps are a whole turn
AnyRing = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ring:
    """Z_2^64 with `fraction_bits` bits after the point, for a sum of `parties` values.

    With 36 bits a contribution is exact to 7e-12 and may reach 1.3e8 / parties.
    """

    parties: int
    fraction_bits: int = 36

    def __post_init__(self) -> None:
        if self.fraction_bits not in range(63):
            raise OptionError(f"fraction_bits must be a whole number between 0 and 62, got {self.fraction_bits!r}")
        if self.parties < 1:
            raise OptionError(f"parties must be >= 1, got {self.parties!r}")

    @property
    def scale(self) -> float:
        """2^f: steps of the ring per unit."""
        return float(2**self.fraction_bits)

    @property
    def largest(self) -> float:
        """The largest contribution such that a sum over all parties can't wrap around."""
        return float(2 ** (63 - self.fraction_bits)) / self.parties

    def encode(self, values: FloatArray, party: str) -> RingArray:
        """Real numbers into the ring; refuses what does not fit, and NaN."""
        worst = float(np.abs(values).max(initial=0.0))
        # `not <` instead of `>=`: a NaN must not pass.
        if not worst < self.largest:
            raise RingOverflow(
                f"a contribution of party {party!r} reaches {worst:.3g}, the ring holds less than {self.largest:.3g} "
                f"for {self.parties} parties; scale the columns, use a smaller step, or stronger l2"
            )
        return np.rint(values * self.scale).astype(np.int64).view(np.uint64)

    def decode(self, ring: RingArray) -> FloatArray:
        """Back to real numbers; the upper half of the ring is negative."""
        return ring.view(np.int64) / self.scale


@dataclass(frozen=True)
class NarrowRing:
    """Z_2^32 with 20 bits after the point: half the bytes, for values that their sender can make fit.

    A contribution is exact to 5e-7 and may reach 2048 / parties.
    """

    parties: int
    scale: ClassVar[float] = float(2**20)

    @property
    def largest(self) -> float:
        """As in `Ring`."""
        return 2.0**31 / self.scale / self.parties

    @property
    def grain(self) -> float:
        """The rounding of a sum: as that of one number on a grid this wide."""
        return math.sqrt(self.parties) / self.scale

    def encode(self, values: FloatArray, party: str) -> PhaseArray:
        """Real numbers into the ring; refuses what does not fit, and NaN."""
        worst = float(np.abs(values).max(initial=0.0))
        if not worst < self.largest:
            raise RingOverflow(
                f"a contribution of party {party!r} reaches {worst:.3g}, the narrow ring holds less than "
                f"{self.largest:.3g} for {self.parties} parties; scale the columns, or use stronger l2"
            )
        return np.rint(values * self.scale).astype(np.int32).view(np.uint32)

    def decode(self, ring: PhaseArray) -> FloatArray:
        """Back to real numbers; the upper half of the ring is negative."""
        return ring.view(np.int32) / self.scale
