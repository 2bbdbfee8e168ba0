"""Random words out of a seed: the key stream of AES-256 in counter mode."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from colonnade.errors import OptionError

SEED_BYTES = 32
_ZEROS = memoryview(bytes(1 << 16))  # what is encrypted, a piece at a time


class Keystream:
    """The blocks AES(seed, 0), AES(seed, 1), ... one after the other, none of them twice.

    Who needs secrets passes a seed of the operating system's (`os.urandom(32)`) and keeps it to itself; a seed that is
    told makes numbers that everybody can make again, the same on every machine. A stream must not be shared by threads.
    """

    def __init__(self, seed: bytes) -> None:
        if not isinstance(seed, bytes) or len(seed) != SEED_BYTES:
            got = f"{len(seed)} bytes" if isinstance(seed, bytes) else f"a value of type {type(seed).__name__}"
            raise OptionError(f"the seed of a key stream must be {SEED_BYTES} bytes, got {got}")
        self._blocks = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the next words of 64 bits, read with the lowest byte first."""
        found = np.empty(count, "<u8")
        into = found.view(np.uint8).data
        for at in range(0, len(into), len(_ZEROS)):
            piece = into[at : at + len(_ZEROS)]
            self._blocks.update_into(_ZEROS[: len(piece)], piece)
        return found.astype(np.uint64, copy=False)

    def bytes(self, count: int) -> bytes:
        """Return the next bytes."""
        return self._blocks.update(bytes(count))
