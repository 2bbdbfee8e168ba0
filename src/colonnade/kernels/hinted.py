"""Kernels of sums over cells under ring-LWE: errors, exact products modulo 2^64, histograms of words.

Polynomials have coefficients modulo 2^64, which are numpy's words. Products are worked out as whole numbers, by their
residues modulo two primes (`residues`, `ntt`), and put together again. Each kernel has a slow twin in
tests/test_hinted_sums.py. The secrets of who asks decide over no branch and no address; the cells of who answers are
addresses in `add_histogram` and `add_rotations`, in that party's own memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled
from colonnade.kernels.lattice import _ones
from colonnade.kernels.residues import centred, product, times

Array = npt.NDArray[Any]
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_DITHER = np.uint64(20)  # random bits that decide whether a number is rounded up or down
_DITHER_MASK, _DITHER_STEP = np.uint64(2**20 - 1), 2.0**-20
_LAZY = 16  # so many products of at most 9/16 p are added to a centred number before it is centred: 9.5 p < 2^53


# -- polynomials -------------------------------------------------------------------------------------------------------


@Compiled
def add_errors(raw: Array, out: Array) -> None:
    """Add to each word the sum over j of 4^j (ones in raw[j] - 32), modulo 2^64; raw is (levels, n).

    A sum of independent bits, so sub-Gaussian with its own variance, 16 (1 + 16 + ... + 16^(levels - 1)).
    """
    for j in range(raw.shape[0]):
        row, shift = raw[j], np.uint64(2 * j)
        for i in range(out.shape[0]):
            out[i] += (_ones(row[i]) - _HALF) << shift


@Compiled
def word_planes(words: Array, planes: Array) -> None:
    """Words as signed numbers, in two planes (2, n) of doubles: the lower 32 bits, and the upper ones with the sign."""
    low, high = planes[0], planes[1]
    for j in range(words.shape[0]):
        low[j] = np.float64(np.int64(words[j] & _LOW))
        high[j] = np.float64(np.int64(words[j]) >> 32)


@Compiled
def joined(x: Array, p: Array, inverses: Array, weight: float, out: Array) -> None:
    """Whole numbers of which two residues (2, n) are known, modulo 2^64; weight is 1 / p[0] modulo p[1].

    A number below p[0] p[1] / 4 in size is x[0] + p[0] t with t = (x[1] - x[0]) / p[0] modulo p[1], centred.
    """
    low, high, ratio, factor = x[0], x[1], weight * inverses[1], np.uint64(np.int64(p[0]))
    for j in range(out.shape[0]):
        t = centred(product(high[j] - low[j], weight, ratio, p[1]), p[1], inverses[1])
        out[j] = np.uint64(np.int64(low[j])) + factor * np.uint64(np.int64(t))


@Compiled
def each_product(x: Array, y: Array, p: Array, inverses: Array, out: Array) -> None:
    """out[k] = x y[k] for transformed polynomials x (primes, N) and y (count, primes, N), centred before and after."""
    for k in range(y.shape[0]):
        for i in range(p.shape[0]):
            a, b, to = x[i], y[k, i], out[k, i]
            for j in range(to.shape[0]):
                to[j] = centred(times(a[j], b[j], p[i], inverses[i]), p[i], inverses[i])


@Compiled
def add_products(x: Array, y: Array, p: Array, inverses: Array, total: Array) -> None:
    """total += the sum over k of x[k] y[k], polynomials (primes, N) each, centred before and after."""
    for i in range(p.shape[0]):
        to = total[i]
        for k in range(y.shape[0]):
            a, b = x[k, i], y[k, i]
            for j in range(to.shape[0]):
                to[j] += times(a[j], b[j], p[i], inverses[i])
            if k % _LAZY == _LAZY - 1 or k == y.shape[0] - 1:
                for j in range(to.shape[0]):
                    to[j] = centred(to[j], p[i], inverses[i])


@Compiled
def take_off(x: Array, p: Array, inverses: Array, total: Array) -> None:
    """total -= x, (primes, N) each, centred before and after."""
    for i in range(p.shape[0]):
        a, to = x[i], total[i]
        for j in range(to.shape[0]):
            to[j] = centred(to[j] - a[j], p[i], inverses[i])


@Compiled
def indicators(cells: Array, number: int, out: Array) -> None:
    """Polynomials (count, primes, N) whose coefficients are 1 where the row's cell has this number, and 0 elsewhere."""
    n = out.shape[2]
    for k in range(out.shape[0]):
        here = cells[k * n : (k + 1) * n]
        for i in range(out.shape[1]):
            to = out[k, i]
            for j in range(here.shape[0]):
                to[j] = 1.0 if here[j] == number else 0.0
            to[here.shape[0] :] = 0.0


@Compiled
def add_rotations(cells: Array, doubled: Array, out: Array) -> None:
    """Add to out[cell of row i] the polynomial X^i a modulo X^N + 1; doubled (2 N) has the words of -a, then of a."""
    n = out.shape[1]
    for i in range(cells.shape[0]):
        to, given = out[cells[i]], doubled[n - i : 2 * n - i]
        for j in range(n):
            to[j] += given[j]


@Compiled
def inner_products(small: Array, words: Array, out: Array) -> None:
    """out[a, b] = the sum of small[a] words[b] modulo 2^64; small are -1, 0, 1 of 8 bits."""
    for b in range(words.shape[0]):
        row = words[b]
        for a in range(small.shape[0]):
            signs, total = small[a], np.uint64(0)
            for j in range(row.shape[0]):
                total += row[j] * np.uint64(np.int64(signs[j]))
            out[a, b] = total


# -- rows --------------------------------------------------------------------------------------------------------------


@Compiled
def seal(g: Array, h: Array, raw: Array, levels: float, quantum: int, unit: float, words: Array) -> int:
    """Add quantum G + H to each word: G = g levels and H = h unit, rounded up or down at random, right in the mean.

    Returns how many rows have a g outside [-1, 1] or an h outside [0, 1]; in that case the words are of no use.
    """
    wrong, step = 0, np.uint64(quantum)
    for i in range(words.shape[0]):
        wrong += 0 if abs(g[i]) <= 1.0 and h[i] >= 0.0 and h[i] <= 1.0 else 1
        up_g = np.float64(np.int64(raw[i] & _DITHER_MASK)) * _DITHER_STEP
        up_h = np.float64(np.int64((raw[i] >> _DITHER) & _DITHER_MASK)) * _DITHER_STEP
        high, low = np.int64(np.floor(g[i] * levels + up_g)), np.int64(np.floor(h[i] * unit + up_h))
        words[i] += step * np.uint64(high) + np.uint64(low)
    return wrong


@Compiled
def add_histogram(cells: Array, starts: Array, words: Array, out: Array) -> None:
    """out[starts[f] + cells[f, i]] += words[i] modulo 2^64, for all columns f and rows i."""
    for f in range(cells.shape[0]):
        column, to = cells[f], out[starts[f] : starts[f + 1]]
        for i in range(words.shape[0]):
            to[column[i]] += words[i]
