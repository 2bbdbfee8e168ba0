"""A run in small, with made-up numbers: the same options and types, a few rows, one epoch, and no secret.

A runtime that forks the parties' processes plays this beforehand, so that everything that a party will need is loaded
once and not by each of them: imports, compiled kernels, the interpreter's own caches.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from colonnade.algorithms import ALGORITHMS, from_value
from colonnade.crypto.masks import MaskStream
from colonnade.runtimes.simulation import Simulation
from colonnade.sums import SUMS

_ENCRYPTED = "paillier"
_SIZE = 16  # of every length that is longer; equal lengths stay equal, and that is all that the programs ask


def outline(programs: Mapping[str, tuple[Any, tuple[Any, ...]]]) -> Any:
    """The same programs with arguments of the same kind; no number of any party's arrays is in them."""
    return tuple(
        (name, program.__module__, program.__qualname__, _small(args)) for name, (program, args) in programs.items()
    )


def rehearse(outlined: Any) -> None:
    """Play it."""
    # What masks are made with, with a key that everybody knows: no secret, and no random number, before the fork.
    known = X25519PrivateKey.from_private_bytes(bytes(range(32)))
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"").derive(known.exchange(known.public_key()))
    MaskStream(key).mask(0, 0, (1,))
    parties = {}
    for name, module, qualname, args in outlined:
        parties[name] = (getattr(importlib.import_module(module), qualname), _unencrypted(args))
    if parties and any(_encrypted(args) for *_, args in outlined):
        # Kernels only, and on numbers that everybody knows: a key is for who will use it to make.
        from colonnade.crypto.modular import Modulus

        modulus = Modulus(2**127 - 1)
        three = modulus.encode([3])
        modulus.decode(modulus.plus(modulus.power(three, 5), modulus.shift(three, 2)))
    Simulation().run(parties)


def _small(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        shape = tuple(min(_SIZE, size) for size in value.shape)
        # Zeros and ones: labels of two classes, rows of which each party has the label, columns that vary.
        numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2
        return np.ones(shape, bool) if value.dtype == bool else numbers.astype(value.dtype)
    if isinstance(value, bytes):
        return bytes(len(value))  # a site's secret is for the site
    if not isinstance(value, tuple):
        return "plain" if isinstance(value, str) and value in SUMS and value != _ENCRYPTED else value
    if _is_algorithm(value):
        return replace(from_value(value), epochs=1, batch=None).as_value()
    if _is_csr(value):
        data, columns, starts, (rows, width) = value
        rows, width = min(_SIZE, rows), min(_SIZE, width)
        one_each = np.arange(rows) % max(1, width)
        return (
            np.ones(rows, data.dtype),
            one_each.astype(columns.dtype),
            np.arange(rows + 1, dtype=starts.dtype),
            (rows, width),
        )
    return tuple(map(_small, value))


def _encrypted(value: Any) -> bool:
    return any(map(_encrypted, value)) if isinstance(value, tuple) else isinstance(value, str) and value == _ENCRYPTED


def _unencrypted(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_unencrypted, value))
    return "plain" if isinstance(value, str) and value == _ENCRYPTED else value


def _is_algorithm(value: tuple[Any, ...]) -> bool:
    return len(value) == 2 and isinstance(value[0], str) and value[0] in ALGORITHMS


def _is_csr(value: tuple[Any, ...]) -> bool:
    """See `blocks.columns.columns_to_value`: data, columns, starts, (rows, columns)."""
    kinds = [type(part) for part in value]
    return kinds == [np.ndarray] * 3 + [tuple] and [type(size) for size in value[3]] == [int, int]
