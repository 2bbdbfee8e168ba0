"""Normal noise that the same numbers get again, as long as its key is the same.

Who asks for the same number often and takes the mean gets rid of noise that is drawn afresh each time. Noise that a
secret key and the number itself decide is the same each time, and looks independent to whoever has no key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import Keystream

FloatArray = npt.NDArray[np.float64]

FINE = 2.0**-10  # steps in which numbers are told apart, in units of the noise's standard deviation


def drawn_normals(secret: bytes) -> Callable[[FloatArray], FloatArray]:
    """Return what draws normal numbers in the shape of a table, others each time, from 32 secret bytes."""
    rng = np.random.default_rng(int.from_bytes(secret))

    def normals(table: FloatArray) -> FloatArray:
        return rng.standard_normal(table.shape)

    return normals


def keyed_normals(key: bytes, table: FloatArray, step: float) -> FloatArray:
    """Return standard normal numbers in the shape of a table, of which each row has its own by its numbers and the key.

    Parameters
    ----------
    key
        Up to 64 secret bytes.
    table
        One row for each person, or one number.
    step
        Numbers that are the same in steps of this size are the same: their last bits depend on how many rows were
        computed together. It should be far below the noise (`FINE`), or people who differ little would share theirs.
    """
    rows = np.ascontiguousarray(np.rint(table.reshape(len(table), -1) / step)) + 0.0  # and no -0.0
    pairs = -(-rows.shape[1] // 2)
    words = np.empty((len(rows), 2 * pairs), dtype=np.uint64)
    for at, row in enumerate(rows):
        words[at] = Keystream(hashlib.blake2b(row.tobytes(), digest_size=32, key=key).digest()).words(2 * pairs)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53  # between 0 and 1, neither included
    radius = np.sqrt(-2.0 * np.log(uniform[:, :pairs]))
    angle = 2.0 * np.pi * uniform[:, pairs:]
    both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)  # Box and Muller 1958
    return both[:, : rows.shape[1]].reshape(table.shape)
