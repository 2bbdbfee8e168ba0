"""Fixed point in the ring Z_2^64: sums are exact there, and a uniform mask hides a value perfectly.

A real number x travels as round(x * 2^f) modulo 2^64. Sums wrap around, so a mask that is uniform on the ring makes a
message uniform whatever the value is (a one-time pad), and masks that add up to zero vanish without any rounding.
Masks on real numbers, as the papers write them, hide imperfectly and cost precision.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError, RingOverflow

RingArray = npt.NDArray[np.uint64]
PhaseArray = npt.NDArray[np.uint32]  # 2^32 steps are a whole turn
AnyRing = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ring:
    """The integers modulo 2^bits as fixed-point numbers, for a sum over parties.

    With 36 of 64 bits after the point a contribution is exact to 7e-12 and may reach 1.3e8 / parties.
    """

    parties: int
    fraction_bits: int = 36
    bits: int = 64

    def __post_init__(self) -> None:
        if self.fraction_bits not in range(self.bits - 1):
            raise OptionError(
                f"fraction_bits must be a whole number between 0 and {self.bits - 2}, got {self.fraction_bits!r}"
            )
        if self.parties < 1:
            raise OptionError(f"parties must be >= 1, got {self.parties!r}")

    @property
    def scale(self) -> float:
        """How many steps of the ring make a unit: 2^f."""
        return float(2**self.fraction_bits)

    @property
    def largest(self) -> float:
        """The bound on a contribution below which a sum over all parties can't wrap around."""
        return float(2 ** (self.bits - 1 - self.fraction_bits)) / self.parties

    @property
    def grain(self) -> float:
        """The width of a grid on which one number is rounded as much as a sum over all parties is."""
        return math.sqrt(self.parties) / self.scale

    def encode(self, values: FloatArray, party: str) -> AnyRing:
        """Turn real numbers into elements of the ring; what does not fit is refused, and so is NaN."""
        worst = float(np.abs(values).max(initial=0.0))
        # `not <` instead of `>=`: a NaN must not pass.
        if not worst < self.largest:
            raise RingOverflow(
                f"a contribution of party {party!r} reaches {worst:.3g}, the ring of {self.bits} bits holds less than "
                f"{self.largest:.3g} for {self.parties} parties; scale the columns, use a smaller step, or stronger l2"
            )
        return np.rint(values * self.scale).astype(f"i{self.bits // 8}").view(f"u{self.bits // 8}")

    def decode(self, ring: AnyRing) -> FloatArray:
        """Turn elements of the ring back into real numbers; the upper half of the ring is negative."""
        return ring.view(f"i{self.bits // 8}") / self.scale


def noise(shape: tuple[int, ...], ring: Any) -> AnyRing:
    """Draw uniform elements of a ring from the operating system; in a sum they hide what everybody else adds."""
    found = np.empty(shape, dtype=ring)
    found.reshape(-1)[:] = np.frombuffer(secrets.token_bytes(found.nbytes), dtype=ring)
    return found


def narrow_ring(parties: int) -> Ring:
    """Return a ring of half the bytes, for values that are made to fit it: exact to 5e-7, up to 2048 / parties."""
    return Ring(parties, 20, 32)
