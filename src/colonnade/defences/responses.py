"""Labels that say little about the true ones: randomised response, by which splits are chosen in a private run.

Each label is kept with probability e^epsilon / (e^epsilon + K - 1) among K classes and is one of the others otherwise
(Warner 1965; Kairouz, Oh and Viswanath 2016). Whatever is made of such labels tells two values of a true label apart by
a factor of at most e^epsilon: label differential privacy (Chaudhuri and Hsu 2011; Ghazi et al. 2021).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import Keystream


def randomised(y: npt.NDArray[Any], kind: str, classes: int, epsilon: float, stream: Keystream) -> npt.NDArray[Any]:
    """Return randomised labels: of two classes -1 and 1, of several their numbers; `stream` is secret."""
    count = 2 if kind == "binary" else classes
    kept = 1.0 / (1.0 + (count - 1) * math.exp(-epsilon))
    draws = stream.words(2 * len(y)).reshape(2, -1)
    change = draws[0].astype(np.float64) * 2.0**-64 >= kept
    if kind == "binary":
        return np.where(change, -y, y)
    by = 1 + (draws[1] % np.uint64(count - 1)).astype(np.int64)
    return np.where(change, (y + by) % count, y)
