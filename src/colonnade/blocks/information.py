"""A linear block's part of the information matrix, and its columns in a form that tells others only correlations.

The matrix of all parties is H = X^T C X + n l2 (the intercept is free), with C the curvature of each row's loss at its
score. A party makes its own diagonal block H_kk, a root T of its inverse (T^T H_kk T = 1), and U_k = C^1/2 X_k T R_k:
columns that are white (U^T U is 1, or less where there is a penalty) and turned by a rotation R_k that only the party
knows. Products of two parties' U are correlations of linear combinations that nobody but their owners can name.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.newton import NewtonBlock

# Eigenvalues below this part of a column's own square are none: the party's columns depend on each other.
_SMALLEST_OWN = 1e-9
# The same of correlations between parties, which are known to about 1e-10; and no honest rounding goes so far below 0.
_SMALLEST_JOINT, _NEGATIVE = 1e-7, -1e-4
# A coefficient is not determined where a direction that is not holds more than this part of it.
_TRACE = 1e-5
_CHUNK = 1 << 13


def random_rotation(width: int) -> FloatArray:
    """Uniform among all rotations and reflections, out of the operating system's randomness alone."""
    raw = np.frombuffer(os.urandom(16 * width * width), np.uint64).reshape(2, width, width)
    a, b = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
    q, r = np.linalg.qr(np.sqrt(-2.0 * np.log1p(-a)) * np.cos(2.0 * np.pi * b))  # Box and Muller's normal numbers
    # The signs make it uniform (Mezzadri, "How to generate random matrices from the classical compact groups", 2007).
    turned: FloatArray = q * np.where(np.diag(r) < 0.0, -1.0, 1.0)
    return turned


class OwnInformation:
    """One party's block.

    Its size comes from all rows. Correlations may come from a sample of them: then columns are white in the sample, so
    that no correlation exceeds 1, and what they say is put together with the size of the whole.
    """

    def __init__(self, own: NewtonBlock, curvature: FloatArray, sample: Rows) -> None:
        self._own, self._sample, self._weight = own, sample, np.sqrt(curvature[sample])
        every = np.arange(len(curvature))
        self._root, kept, self._missing = _inverse_root(self._matrix(every, curvature))
        part, self.rank = self._root, kept.shape[1]  # independent columns
        if len(sample) < len(every):
            part, kept, _ = _inverse_root(self._matrix(sample, curvature[sample]))
        self._turn = kept @ random_rotation(kept.shape[1])
        self._weights = part @ self._turn
        self.size = kept.shape[1]  # those of them that the sample shows

    def _matrix(self, rows: Rows, curvature: FloatArray) -> FloatArray:
        own = self._own
        bend = np.zeros(own.width)
        bend[: own.columns_width] = own.block.penalty.curvature(own.block.weights.plain())[:, 0]
        lower = own.matrix([(rows, curvature)], 1, 0, len(rows) * bend)
        return np.tril(lower) + np.tril(lower, -1).T

    def columns(self) -> FloatArray:
        """U: white and turned columns of the sample's rows. No number is larger than 1."""
        own, out = self._own, np.empty((len(self._sample), self.size))
        if not self.size:
            return np.zeros((len(self._sample), 1))  # something to multiply with
        for at in range(0, len(self._sample), _CHUNK):
            rows, part = self._sample[at : at + _CHUNK], slice(at, at + _CHUNK)
            out[part] = own.columns.project(rows, np.ascontiguousarray(self._weights[: own.columns_width]))
            if own.block.intercept is not None:
                out[part] += self._weights[-1]
            out[part] *= self._weight[part, None]
        return np.clip(out, -1.0, 1.0)  # rounding of very small curvatures

    def distance(self, gradient: FloatArray) -> float:
        """How far this party's coefficients are from their best, all others' standing still, in standard errors."""
        return float(np.sqrt(np.square(self._root.T @ gradient).sum()))

    def covariance(self, inverse: FloatArray, free: FloatArray) -> FloatArray:
        """This party's block of H^-1 from that of the white columns' matrix; NaN for what is not determined.

        free: the directions that all parties' columns together leave free, one column each, as far as they are here.
        """
        if not self.size:
            return np.full((len(self._turn),) * 2, np.nan)
        # A direction that the sample does not show is taken for uncorrelated with everybody else's.
        middle = self._turn @ (inverse - np.eye(self.size)) @ self._turn.T + np.eye(len(self._turn))
        found: FloatArray = self._root @ middle @ self._root.T
        found = (found + found.T) / 2.0
        lengths = np.sqrt(np.square(self._root).sum(axis=1))
        traces = np.abs(self._root @ self._turn @ free).max(axis=1, initial=0.0)
        loose = (traces > _TRACE * lengths) | (np.abs(self._missing).max(axis=1, initial=0.0) > _TRACE)
        found[loose], found[:, loose] = np.nan, np.nan
        return found


def _inverse_root(matrix: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(T with T^T H T = 1 where H is not singular; directions where it is not, and where it is, for unit columns)."""
    diagonal = np.diag(matrix)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(scale[:, None] * matrix * scale)
    there = values > _SMALLEST_OWN
    kept = vectors[:, there]
    # Symmetric but for the scale: two nearly equal matrices then have nearly equal roots, whatever their eigenvectors.
    return scale[:, None] * ((kept / np.sqrt(values[there])) @ kept.T), kept, vectors[:, ~there]


@dataclass(frozen=True)
class Joint:
    """The inverse of the matrix of all parties' white columns, and the directions that it leaves free."""

    inverse: FloatArray
    free: FloatArray

    @classmethod
    def of(cls, matrix: FloatArray) -> Joint | None:
        """The inverse of such a matrix; None for a matrix that no columns can have."""
        values, vectors = np.linalg.eigh(matrix)
        if not values.min() > _NEGATIVE:
            return None
        there = values > _SMALLEST_JOINT
        return cls((vectors[:, there] / values[there]) @ vectors[:, there].T, vectors[:, ~there])
