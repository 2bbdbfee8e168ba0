"""The cells of a partner's columns, as a label holder of boosted trees can work them out from sides and noisy sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from colonnade.runtimes.net import CLEAR, TOTAL
from colonnade.views.numbers import FloatArray
from colonnade.views.view import View

_ROUNDS = 3


@dataclass(frozen=True)
class KnownCells:
    """What is known of one column.

    Attributes
    ----------
    prior
        The chance of each cell for each row, from ranges that were opened or cells that were told: a row per row.
    start
        The number of its first cell among all cells of the partner.
    """

    prior: FloatArray
    start: int

    @property
    def told(self) -> bool:
        """Whether anything is known beyond how many cells there are."""
        return bool(np.ptp(self.prior, axis=0).any())


def cells_of(view: View, name: str) -> list[KnownCells]:
    """Return what sides and cells that were told say of each column of a partner; nothing where there are no trees."""
    sizes = [one.value for one in view.of(CLEAR, "tree sizes") if one.party == name]
    if not sizes:
        return []
    counts, found, start = sizes[-1][0], [], 0
    told = {column: (codes, first) for one in view.of(CLEAR, "tree ranges") if one.party == name
            for column, codes, first in (one.value,)}  # fmt: skip
    for one in view.of(CLEAR, "tree bins"):
        if one.party == name:
            told |= {column: (codes, np.arange(counts[column])) for column, codes in enumerate(one.value)}
    for column, count in enumerate(counts):
        codes, first = told.get(column, (np.zeros(view.rows), np.zeros(count)))
        prior = (np.asarray(codes)[: view.rows, None] == np.asarray(first)).astype(np.float64)
        found.append(KnownCells(prior / prior.sum(axis=1, keepdims=True), start))
        start += count
    return found


def with_sums(view: View, name: str, column: KnownCells) -> FloatArray | None:
    """Return the chance of each cell for each row from noisy sums, too; None where no sums are about this column."""
    here = slice(column.start, column.start + column.prior.shape[1])
    told = [one for one in view.of(TOTAL, "tree sums") if one.party == name and len(one.rows) == view.rows]
    pairs = [(vector, sums[here]) for one in told for vector, sums in one.value if not np.isnan(sums[here]).any()]
    if not pairs:
        return None
    vectors, sums = (np.array(some) for some in zip(*pairs, strict=True))
    return posterior(column.prior, vectors, sums, told[0].grain)


def posterior(prior: FloatArray, vectors: FloatArray, sums: FloatArray, noise: float) -> FloatArray:
    """Return the chance of each cell for each row, from what is known before and noisy sums of known numbers per cell.

    Of one cell, "row i is in it" is taken for a normal number with the mean and variance of what is known, all rows at
    once: sums then tell every row's mean in closed form, with other rows' uncertainty beside the noise. What they add
    to a row's own odds is put on top of what was known before, and the same again with sharper means.
    """
    u, s, vt = np.linalg.svd(vectors, full_matrices=False)
    keep = s > 1e-9 * s[0]
    measured, A = u[:, keep].T @ sums, s[keep, None] * vt[keep]
    chance, start = prior.copy(), np.log(np.maximum(prior, 1e-300))
    for _ in range(_ROUNDS):
        gained = np.zeros_like(prior)
        for c in range(prior.shape[1]):
            m = chance[:, c]
            d = np.maximum(m * (1 - m), 1e-9)
            ad = A * d
            inverse = np.linalg.inv(ad @ A.T + max(noise, 1e-3) ** 2 * np.eye(len(A)))
            mean = m + ad.T @ (inverse @ (measured[:, c] - A @ m))
            left = np.maximum(d - np.einsum("ki,ki->i", ad, inverse @ ad), 1e-3 * d)
            gained[:, c] = mean / left - m / d - (1 / left - 1 / d) / 2
        new = np.exp(np.clip(start + gained - (start + gained).max(axis=1, keepdims=True), -700, 0)) * (prior > 0)
        chance = (chance + new / new.sum(axis=1, keepdims=True)) / 2
    return chance
