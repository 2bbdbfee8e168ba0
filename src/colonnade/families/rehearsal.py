"""A rehearsal of a run: the same options and types with a few made-up rows, one epoch, and no secret.

A runtime that forks the parties' processes plays this beforehand, so that everything that a party will need is loaded
once and not by each of them: imports, compiled kernels, the interpreter's own caches.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from colonnade.crypto.masks import MaskStream
from colonnade.engine.exposure import ENCRYPTED
from colonnade.families import training
from colonnade.families.training import ScoringJob, TrainingJob
from colonnade.runtimes.simulation import Simulation

_SIZE = 16  # what longer lengths are cut to; equal lengths stay equal, which is all that the programs need
# The type of each program's first argument.
_JOBS: dict[Callable[..., Any], type[TrainingJob] | type[ScoringJob]] = {
    training.train: TrainingJob,
    training.score: ScoringJob,
}
# Programs of other rooms that do the same as one of these, many times over: {program: what stands for it}.
STAND_INS: dict[Callable[..., Any], Callable[[tuple[Any, ...]], tuple[Any, tuple[Any, ...]]]] = {}


def outline(programs: Mapping[str, tuple[Any, tuple[Any, ...]]]) -> Any:
    """Return (whether signals are encrypted, the programs in small); no number of any party's arrays is in them."""
    encrypted, small = False, []
    for name, given in programs.items():
        program, args = STAND_INS[given[0]](given[1]) if given[0] in STAND_INS else given
        kind = _JOBS.get(program)
        if kind is None:
            continue  # a program of another room, whose module is loaded all the same
        job = kind.from_value(args[0])
        encrypted = encrypted or job.sum == ENCRYPTED
        small.append((name, program.__module__, program.__qualname__, (job.rehearsed().as_value(), _small(args[1]))))
    return (encrypted, tuple(small))


def rehearse(outlined: Any) -> None:
    """Run the programs of an outline in this process, under a virtual clock, and forget what they learn."""
    # What masks are made with, under a key that everybody knows: before the fork there is no secret or random number.
    known = X25519PrivateKey.from_private_bytes(bytes(range(32)))
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"").derive(known.exchange(known.public_key()))
    MaskStream(key).mask(0, 0, (1,))
    encrypted, small = outlined
    if encrypted:
        # Kernels and tables only, with a key that everybody knows: a party makes its own.
        from colonnade.crypto.lattice_products import rehearse_products

        rehearse_products()
    Simulation().run(
        {name: (getattr(importlib.import_module(module), called), args) for name, module, called, args in small}
    )


def _small(value: Any) -> Any:
    """Return a party's part with its lengths cut, and made-up numbers of the same types."""
    if isinstance(value, np.ndarray):
        shape = tuple(min(_SIZE, size) for size in value.shape)
        # Zeros and ones: labels of two classes, rows of which each party has the label, columns that vary.
        numbers = sum(np.indices(shape, sparse=True), np.zeros(shape, int)) % 2
        return np.ones(shape, bool) if value.dtype == bool else numbers.astype(value.dtype)
    if isinstance(value, bytes):
        return bytes(len(value))  # zeros, as the secret of a party's directions belongs to the party alone
    if not isinstance(value, tuple):
        return value
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


def _is_csr(value: tuple[Any, ...]) -> bool:
    """Return whether this is a sparse matrix as `columns_to_value` makes it: data, columns, starts, (rows, columns)."""
    kinds = [type(part) for part in value]
    return kinds == [np.ndarray] * 3 + [tuple] and [type(size) for size in value[3]] == [int, int]
