"""With what probability a sealed run fails: bounds that follow from public sizes alone, and what a run has at most.

Shares are cut, and lifted to a wider modulus, by each holder alone. That goes wrong with probability |x| / 2^96 or
|x| / 2^64 for a shared number x, in units of its last place (`wide.truncated`, `wide.from_words`, `curvature.cut`). So
the probability of a failure in a run is at most the sum of all these. `bounds` has it for any columns and labels of
these sizes; `in_a_run` adds up the numbers themselves, from both holders' shares.
"""

from __future__ import annotations

import math
from collections import Counter
from unittest import mock

import numpy as np

from colonnade.sealed import curvature, wide
from colonnade.sealed.bound import EXACT_BITS
from colonnade.sealed.columns import (
    PENALTY_BITS,
    backward_bits,
    cross_bits,
    divisor,
    factor_bits,
    signal_bits,
    square_bits,
)
from colonnade.sealed.inverse import CURVATURE_BITS, INVERSE_BITS, RESIDUAL_BITS, Steps, stretched
from colonnade.sealed.losses import SEALED_LOSSES
from colonnade.sealed.party import _BOUND_DOUBLINGS, _EXACT_DOUBLINGS, _FEW_DOUBLINGS, _REFINEMENTS
from colonnade.sealed.random_products import STATE_BITS
from colonnade.sealed.schedule import FEW, curvature_rows, schedule
from colonnade.sealed.slots import SlotLayout

ROWS = {
    "lifting cross products": ("from_words", "bound.read"),
    "lifting gradients": ("from_words", "gradients._scaled"),
    "lifting curvatures": ("from_words", "curvature.shared_curvature"),
    "cutting row products": ("cut", "curvature._told"),
    "dividing sums by N": ("truncated", "bound.read", "gradients._scaled", "gradients.exact_gradient", "curvature."),
    "penalty S u": ("truncated", "gradients.shared_scores"),
    "products of matrices": ("truncated", "triples.", "inverse.", "bound.inverse_of_bound"),
    "stretch and momentum": ("truncated", "party."),
}


def between(sizes: tuple[int, ...]) -> float:
    """A bound on the sum of entries, in size, of all blocks between two parties: each block's norm is at most one."""
    pairs = [(a, b) for i, a in enumerate(sizes) for b in sizes[i + 1 :]]
    return sum(math.sqrt(a * b * min(a, b)) for a, b in pairs)


def _matrices(width: int, rounds: tuple, doublings: int, step: float, inverse: float) -> float:
    """Products of the inverse with the curvature and with gradients, and of E with itself and beside it.

    step: a bound on the norm of a step, inverse: on that of M. A matrix of norm r has entries that add up to at most
    d sqrt(d) r.
    """
    whole, vector = width**1.5, math.sqrt(width) * 1.5 * step
    square, state = 2.0 ** (2 * RESIDUAL_BITS - 96), 2.0 ** (RESIDUAL_BITS + STATE_BITS - 96)
    beside = 2.0 ** (RESIDUAL_BITS + INVERSE_BITS - 96) * 1.5 * inverse * whole
    first = 1 + len(stretched(doublings - 1))
    found = 2.0 ** (16 + CURVATURE_BITS - 96) * 2 * whole + first * (square * whole + beside)
    found += (1 + len(rounds)) * 2.0 ** (INVERSE_BITS + STATE_BITS - 96) * vector
    steps = Steps(None, width, rounds, 0)  # type: ignore[arg-type]
    for number, one in enumerate(rounds):
        if one.curvature:
            count = len(stretched(one.doublings))
            found += 2.0 ** (INVERSE_BITS + CURVATURE_BITS - 96) * whole
            found += count * (square * whole + state * vector + beside * steps.keeps(number))
    return found


def bounds(rows: int, sizes: tuple[int, ...], kappa: float = 0.25) -> dict[str, float]:
    """Bounds for a logistic model of so many rows, with so many columns at each party, by step.

    The penalty and products of matrices are bounded for runs in which scores stay within half a period.
    """
    width, N = sum(sizes), divisor(rows)
    rounds = schedule(rows, width, None, None, None)
    of = curvature_rows(rows, width)
    found = dict.fromkeys(ROWS, 0.0)
    word = 2.0**-64
    found["lifting cross products"] = divisor(of) / kappa * between(sizes) * 2.0 ** (2 * cross_bits(of)) * word
    lengths = sum(math.sqrt(size) for size in sizes)
    for some in (rows, *(one.rows for one in rounds), *({of} - {rows})):
        # |Q_k' s| <= sqrt(N / kappa) sqrt(rows): signals are at most one.
        weight = max(1.0, rows / N * divisor(some) / some)
        sums = weight * math.sqrt(N / kappa * some) * lengths * 2.0 ** (signal_bits(some) + backward_bits(some, kappa))
        found["lifting gradients"] += sums * word
        found["dividing sums by N"] += sums * 2.0**-96
    for one in rounds:
        if not one.curvature:
            continue
        bits, M = signal_bits(one.rows) + square_bits(of, kappa), divisor(of)
        within = sum(math.sqrt(size * (size + 1) / 2) * math.sqrt(size) for size in sizes)
        sums = M * (within + 2 * between(sizes)) * 2.0**bits
        found["lifting curvatures"] += sums * word
        found["dividing sums by N"] += sums * 2.0**-96
        # Half of a polynomial's coefficients c, of which sum |c|^2 is that of its slots 2 D Q over N / 2.
        weighted = math.sqrt(8 * kappa * M * SlotLayout(of).blocks) * (width - max(sizes))
        found["cutting row products"] += weighted * 2.0 ** (signal_bits(one.rows) + factor_bits(of)) * word
    # As the objective does not exceed its start, u'S u <= 2 log 2.
    found["penalty S u"] = len(rounds) * math.sqrt(width * 2 * math.log(2)) * 2.0 ** (PENALTY_BITS + STATE_BITS - 96)
    step, doublings = (
        math.sqrt(kappa) * SEALED_LOSSES["logistic"].period(rows),
        _FEW_DOUBLINGS if rows <= FEW else _BOUND_DOUBLINGS,
    )
    inverse = len(sizes) * 2.0**doublings * max(2.0**one.doublings for one in rounds)
    found["products of matrices"] = _matrices(width, rounds, doublings, step, inverse)
    found["stretch and momentum"] = len(rounds) * 2 * math.sqrt(width) * 5 * step * 2.0 ** (STATE_BITS - 96)
    return found


def ridge_bounds(rows: int, sizes: tuple[int, ...]) -> dict[str, float]:
    """The same of a ridge, whose target is divided by a power of two so that its mean square is at most one."""
    width, N, found = sum(sizes), divisor(rows), dict.fromkeys(ROWS, 0.0)
    exact = 2.0 ** (2 * EXACT_BITS - 96)
    found["dividing sums by N"] = N * exact * (between(sizes) + sum(math.sqrt(size) for size in sizes))
    # B u is the gradient, up to what is still to be refined, and its blocks' norms are at most one.
    state = math.sqrt(width * len(sizes))
    found["products of matrices"] = _matrices(width, (), _EXACT_DOUBLINGS, 0.0, len(sizes) * 2.0**_EXACT_DOUBLINGS)
    found["products of matrices"] += 2 * _REFINEMENTS * state * 2.0 ** (CURVATURE_BITS + STATE_BITS - 96)
    steps = state * len(sizes) * 2.0 ** (_EXACT_DOUBLINGS + INVERSE_BITS + STATE_BITS - 96)
    found["products of matrices"] += (1 + _REFINEMENTS) * steps
    return found


# -- a run -------------------------------------------------------------------------------------------------------------


def _caller() -> str:
    """Who cuts or lifts, as file.function; helpers that only pass it on are skipped."""
    import sys

    frame = sys._getframe(2)
    while frame.f_code.co_name in ("scaled", "rescaled", "<dictcomp>", "_by_three_halves"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename.rsplit('/', 1)[-1][:-3]}.{frame.f_code.co_name}"


def in_a_run(fit) -> dict[str, float]:
    """All numbers that are cut or lifted while `fit` trains, added up by row, as probabilities."""
    calls: dict[bool, list] = {True: [], False: []}

    def watched(kind, function):
        def call(share, *args, first):
            if kind == "from_words" or args[0]:
                calls[first].append((kind, _caller(), share.copy()))
            return function(share, *args, first=first)

        return call

    with (
        mock.patch.object(wide, "truncated", watched("truncated", wide.truncated)),
        mock.patch.object(wide, "from_words", watched("from_words", wide.from_words)),
        mock.patch.object(curvature, "cut", watched("cut", curvature.cut)),
    ):
        fit()
    both = [sorted(some, key=lambda call: call[:2]) for some in calls.values()]
    found, total = Counter(), 0
    for (kind, who, one), (_, again, other) in zip(*both, strict=True):
        assert who == again
        narrow = one.dtype == np.uint64
        size = (one + other).view(np.int64) / 2.0**64 if narrow else wide.to_floats(wide.add(one, other), 96)
        (row,) = [row for row, (sort, *names) in ROWS.items() if sort == kind and who.startswith(tuple(names))]
        found[row] += float(np.abs(size).sum())
        total += 1
    assert total > 20
    return {row: found[row] for row in ROWS}


def bits(probability: float) -> float:
    """log2 of a probability."""
    return math.log2(probability) if probability else -math.inf
