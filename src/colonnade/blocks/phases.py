"""Random features of a kernel over split columns: what a party adds to omega . x + b, and what is made of the sum.

Gu, Dang, Li, Huang: "Federated Doubly Stochastic Kernel Learning for Vertically Partitioned Data", KDD 2020, Section
2.2. phi(x) = sqrt(2) cos(omega . x + b), and omega . x is a sum over the parties' columns. An angle lives on a circle,
so it travels as a whole number modulo 2^32 = 2 pi: sums wrap around by themselves, and a uniform mask hides perfectly.

The coordinates of omega are independent for both kernels, so every party can draw its own from a secret of its own,
and the kernel is the same in distribution. Who knows a party's directions can solve its contributions for its columns:
that is the paper's form, `directions="shared"`.

Algorithm 3 needs a correction. Its line 6 picks a worker l' at random in each call, of the q - 1 that are not the
caller, and the output is omega . x + b^l'. So two rows meet under the same feature with the phases of two independent
picks. With probability 1 / (q - 1) the picks agree, and the mean of phi(x) phi(x') over omega and b is K(x, x'); else
the phases are independent and uniform, and it is 0. In all it is K / (q - 1): K / 3 with four workers, and a row's
product with itself has the same factor between two calls. Lemma 3 says that b is uniform, which it is, and overlooks
that it must be the same b whenever a feature is computed. Here b is the sum of all parties' shares, b^1 + ... + b^q on
the circle: uniform as well, the same in every call, and nobody has to pick. Then the mean is K.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.columns import Columns
from colonnade.crypto.ring import PhaseArray
from colonnade.errors import DataError
from colonnade.kernels import columns as kernels

Features = npt.NDArray[np.float32]
_PER_RADIAN = 2.0**32 / (2.0 * math.pi)
# A projection beyond this has no phase left: neighbouring floats are further apart than the circle is round.
_LARGEST = 2.0**62 / _PER_RADIAN
# Values of a message. Arrays that outgrow the processor's caches cost more for each value: uncut, a step with 8,192
# features took 2.4 times as long as one with 4,096, and cut 2.0 times.
MESSAGE = 1 << 18


@dataclass(frozen=True)
class Kernel:
    """rbf: exp(-gamma |x - x'|^2), directions from a normal law. laplace: exp(-gamma |x - x'|_1), from Cauchy's."""

    name: str
    gamma: float

    NAMES: ClassVar[tuple[str, ...]] = ("rbf", "laplace")

    def draw(self, rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
        """Draw coordinates of directions."""
        if self.name == "rbf":
            return rng.standard_normal(shape) * math.sqrt(2.0 * self.gamma)
        return rng.standard_cauchy(shape) * self.gamma


def shared_secret(seed: int, party: str) -> bytes:
    """What directions are drawn from where every party can work out everybody's: the paper's form."""
    return hashlib.sha256(f"colonnade shared directions {seed} {party}".encode()).digest()


@dataclass
class Directions:
    """One party's coordinates of all omega, and its share of the phases b, drawn block by block when asked for.

    kept: bytes of coordinates that may be kept; beyond them a block is drawn again each time.
    """

    secret: bytes
    phase_secret: bytes  # of b: a party's own also where the directions are shared
    kernel: Kernel
    columns: int
    kept: int = 1 << 28
    _known: dict[tuple[int, int], FloatArray] = field(default_factory=dict)
    _shares: dict[tuple[int, int], PhaseArray] = field(default_factory=dict)

    def become(self, secret: bytes, phase_secret: bytes) -> None:
        """Draw from other secrets from now on, as a run that goes on does."""
        self.secret, self.phase_secret = secret, phase_secret
        self._known.clear()
        self._shares.clear()

    def block(self, place: tuple[int, int], width: int) -> FloatArray:
        """Coordinates of one block of features, shape (columns, width); place: the owner, and its block's number."""
        found = self._known.get(place)
        if found is None:
            found = self.kernel.draw(_generator(self.secret, "omega", place), (self.columns, width))
            if found.nbytes <= self.kept:
                self.kept -= found.nbytes
                self._known[place] = found
        return found

    def phases(self, place: tuple[int, int], width: int) -> PhaseArray:
        """This party's share of b for that block."""
        if place not in self._shares:
            generator = _generator(self.phase_secret, "b", place)
            self._shares[place] = generator.integers(0, 2**32, width, dtype=np.uint32)
        return self._shares[place]

    def project(self, columns: Columns, rows: Rows, place: tuple[int, int], width: int) -> PhaseArray:
        """omega . x + b of one block as far as this party's columns go, in steps of the circle: (rows, width)."""
        return to_steps(columns.project(rows, self.block(place, width))) + self.phases(place, width)


def _generator(secret: bytes, purpose: str, place: tuple[int, int]) -> np.random.Generator:
    key = hashlib.sha256(secret + f"{purpose} {place[0]} {place[1]}".encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "little")))


def to_steps(angles: FloatArray) -> PhaseArray:
    """Angles as steps of the circle, rounded; a negative one wraps to the upper half, which is where it belongs."""
    out = np.empty(angles.shape, dtype=np.uint32)
    if kernels.round_to_circle(angles.reshape(-1), _PER_RADIAN, _LARGEST * _PER_RADIAN, out.reshape(-1)):
        raise DataError(
            f"a projection of this party's columns reaches {np.abs(angles).max():.3g}, beyond {_LARGEST:.3g} it has "
            f"no phase; standardise the columns, or use a smaller gamma"
        )
    return out


def to_features(phases: PhaseArray) -> Features:
    """phi = sqrt(2) cos of phases."""
    out = np.empty(phases.shape, dtype=np.float32)
    kernels.circle_cosines(phases.reshape(-1), out.reshape(-1))
    return out


@dataclass(frozen=True)
class Layout:
    """Which features there are: so many at every owner, in blocks. All parties know it."""

    owners: tuple[str, ...]
    features: int  # of all owners together
    width: int  # of a block

    def of(self, owner: str) -> int:
        """Features of one owner: equal shares, the first ones take what is left over."""
        share, more = divmod(self.features, len(self.owners))
        return share + (self.owners.index(owner) < more)

    def blocks(self, owner: str) -> int:
        """How many blocks an owner's features make."""
        return -(-self.of(owner) // self.width)

    def span(self, owner: str, number: int) -> slice:
        """The features of one block."""
        return slice(number * self.width, min((number + 1) * self.width, self.of(owner)))


@dataclass(frozen=True)
class FeaturePiece:
    """Some rows and one block: a piece of an exchange."""

    rows: Rows  # positions within the batch
    number: int


class Ahead:
    """Which features of which rows an owner has, as every party can work out: nobody has to ask for anything.

    Rows are kept in their order as long as they fit into the budget; of those, the features that were once computed.
    """

    def __init__(self, rows: int, features: int, budget: int) -> None:
        self.kept = min(rows, budget // max(1, 4 * features))
        self._blocks = np.zeros(self.kept, dtype=np.int32)  # so many blocks of each row are there

    def missing(self, rows: Rows, blocks: int) -> list[FeaturePiece]:
        """What must be computed for these rows, so that so many blocks are known."""
        have = np.zeros(len(rows), dtype=np.int32)
        have[rows < self.kept] = self._blocks[rows[rows < self.kept]]
        first = int(have.min(initial=blocks))
        return [FeaturePiece(np.nonzero(have <= number)[0], number) for number in range(first, blocks)]

    def learn(self, rows: Rows, blocks: int) -> None:
        """Note that so many blocks of these rows are known now."""
        kept = rows[rows < self.kept]
        self._blocks[kept] = np.maximum(self._blocks[kept], blocks)


def messages(pieces: list[FeaturePiece], width: int) -> Iterator[list[FeaturePiece]]:
    """Pieces in the groups that travel together: small ones in one message, but none that outgrows the caches."""
    group: list[FeaturePiece] = []
    size = 0
    for piece in pieces:
        if group and size + len(piece.rows) * width > MESSAGE:
            yield group
            group, size = [], 0
        group.append(piece)
        size += len(piece.rows) * width
    if group:
        yield group


def merged(pieces: Iterable[PhaseArray]) -> PhaseArray:
    """Join pieces to one message."""
    flat = [piece.reshape(-1) for piece in pieces]
    return np.concatenate(flat) if flat else np.empty(0, dtype=np.uint32)
