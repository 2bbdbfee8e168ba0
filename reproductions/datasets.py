"""A data set as the reproductions take it: all rows, how many of them train, and a cut into training and test part."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from colonnade.data.party import Party
from colonnade.data.split_table import split
from colonnade.errors import DataError

Array: TypeAlias = npt.NDArray[Any]


def read_npz(data: Path, name: str, arrays: Sequence[str]) -> dict[str, Array]:
    """The named arrays of `<data>/<name>.npz`."""
    path = data / f"{name}.npz"
    hint = f"name the folder that holds {name}.npz with --data, or in the variable COLONNADE_DATA"
    if not path.is_file():
        raise MissingData(f"the data set {name!r} is not at {path}; {hint}")
    try:
        with np.load(path, allow_pickle=False) as stored:
            missing = [key for key in arrays if key not in stored.files]
            if missing:
                raise DataError(f"{path} lacks the array {missing[0]!r}; docs/reproductions says what it holds")
            return {key: stored[key] for key in arrays}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read ({error}); copy the file again") from error


class MissingData(DataError):
    """The file of a data set does not exist; one that exists and is broken is another error."""


def csr(stored: dict[str, Array], values: Array) -> Any:
    """A CSR matrix of 32-bit numbers from the stored pattern and these values."""
    parts = (values.astype(np.float32), stored["indices"].astype(np.int32), stored["indptr"].astype(np.int32))
    return sp.csr_matrix(parts, shape=tuple(int(v) for v in stored["shape"]))


def unit_rows(X: Any) -> Any:
    """Every row of a sparse matrix scaled to length 1; empty rows stay empty."""
    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
    scaled = X.copy()
    scaled.data = (X.data / np.repeat(np.where(lengths > 0, lengths, 1.0), np.diff(X.indptr))).astype(X.dtype)
    return scaled


@dataclass(frozen=True, eq=False)
class Trial:
    """A training and a test part."""

    X: Any
    y: Array
    X_test: Any
    y_test: Array

    def parties(self, number: int, active: int, seed: int, *, test: bool = False) -> list[Party]:
        """A part with its columns dealt at random to so many parties; the first `active` of them hold the labels."""
        X, y = (self.X_test, self.y_test) if test else (self.X, self.y)
        return split(X, y, into=number, active=active, seed=seed)

    def in_one_place(self, active: int, *, test: bool = False) -> list[Party]:
        """A part with all its columns at the first of `active` parties; the others bring labels and zeros.

        Batches are drawn by label holder, so rows come in the same order as with `parties` of as many label holders.
        """
        X, y = (self.X_test, self.y_test) if test else (self.X, self.y)
        zeros = sp.csr_matrix((len(y), 2), dtype=X.dtype) if sp.issparse(X) else np.zeros((len(y), 2))
        return [Party(f"party{k}", X if k == 1 else zeros, y) for k in range(1, active + 1)]


@dataclass(frozen=True, eq=False)
class DataSet:
    """All rows of a data set, real or imitated."""

    name: str
    X: Any  # a dense array or a CSR matrix
    y: Array
    train_rows: int
    loss: str
    origin: str  # where it comes from, for the reader of a table
    numbers: int = 0  # of the first columns: those to be standardised
    ordered: bool = False  # rows lie in a random order already, and the first part of it is the documented one

    @property
    def rows(self) -> int:
        """How many training and test rows a run has."""
        return int(self.X.shape[0])

    @property
    def nonzeros(self) -> float:
        """How many numbers a row holds on average."""
        return float(self.X.nnz if sp.issparse(self.X) else self.X.size) / self.rows

    @property
    def batch(self) -> int:
        """Rows per batch: an epoch then has some two to four hundred batches, small sets as many as they can."""
        return 16 if self.train_rows < 10_000 else 64 if self.train_rows < 32_000 else 256

    def trial(self, seed: int) -> Trial:
        """A random cut. Numbers are standardised with the training rows, and so are real targets."""
        order = np.arange(self.rows)
        if seed or not self.ordered:
            order = np.random.default_rng([seed, 0x5117]).permutation(order)
        train, test = order[: self.train_rows], order[self.train_rows :]
        X, y = self.X, self.y
        if self.numbers:
            X = X.copy()
            X[:, : self.numbers] = _standardised(X[:, : self.numbers], train)
        if self.loss == "square":
            y = _standardised(y[:, None], train)[:, 0]
        return Trial(X[train], y[train], X[test], y[test])

    def shorter(self, rows: int) -> DataSet:
        """A random part of the rows, and of the columns those that still occur: for short forms."""
        if rows >= self.rows:
            return self
        chosen = np.random.default_rng(0x5407).permutation(self.rows)[:rows]
        X = self.X[chosen]
        if sp.issparse(X):
            X = X[:, np.unique(X.indices)]
        train_rows = rows * self.train_rows // self.rows
        return replace(self, X=X, y=self.y[chosen], train_rows=train_rows, origin=f"{self.origin}, cut")


def _standardised(columns: Array, train: Array) -> Array:
    known = columns[train]
    mean, sd = known.mean(axis=0), known.std(axis=0)
    out: Array = (columns - mean) / np.where(sd > 0, sd, 1.0)
    return out
