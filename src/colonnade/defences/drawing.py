"""Secret normal numbers, from a key stream."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from colonnade.crypto.keystream import Keystream


class SecretNormals:
    """Independent normal numbers of mean 0 and deviation 1 that follow from a secret, in the order of calls.

    A word of 64 bits is taken as the middle of one of 2^52 equal parts of (0, 1) and turned into the quantile of the
    normal distribution there; what is beyond 8.2 deviations is missing, which is less than once in 1e15 numbers.
    """

    def __init__(self, secret: bytes) -> None:
        self._stream = Keystream(secret)

    def draw(self, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """Return the next ones, in this shape."""
        words = self._stream.words(int(np.prod(shape)))
        found: npt.NDArray[np.float64] = ndtri(((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52)
        return found.reshape(shape)
