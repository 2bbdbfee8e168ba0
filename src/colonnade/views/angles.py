"""Kernels: what an owner of features makes of the others' angles w.x + b, of which it sees the fraction of a turn.

Angles wrap around, but those of two rows that are close differ by less than half a turn in every feature. How close two
rows are the angles say themselves: the mean of cos(difference) is the kernel. Along a tree of short steps from row to
row, differences add up to angles without a turn missing, and these are linear in the others' columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from colonnade.blocks.phases import Directions, Kernel, shared_secret
from colonnade.runtimes.net import CLEAR, OWN, TOTAL
from colonnade.views.numbers import FloatArray, Rows
from colonnade.views.view import View

# The longest step of a row's way that is trusted, in radians (one standard deviation over features): an angle of more
# than half a turn is then five of them away.
_LONGEST = 0.6


# Distances between all of so many rows are what a tree of short steps is looked for in.
MOST_ROWS = 2_000


@dataclass(frozen=True)
class Angles:
    """What an owner of features makes of the others' angles.

    Attributes
    ----------
    rows
        The rows whose angles could be put together.
    coordinates
        Their inner products are those of the others' rows, but for the chance in the directions.
    columns
        The others' columns themselves, if their directions are those that anybody can work out from the seed.
    misfit
        Which part of the angles these columns and directions do not explain: 0 if they are the right ones, and about 1
        by chance.
    """

    rows: Rows
    coordinates: FloatArray
    columns: FloatArray
    misfit: float


def summed_rows(view: View) -> Rows:
    """Return the training rows whose phases were summed at this owner: of several owners also those of the others."""
    some = [rows for one in view.of(TOTAL, "phases") for rows, _, _ in one.rows]
    found: Rows = np.unique(np.concatenate(some)) if some else np.arange(0)
    return found


def from_phases(view: View, rows: Rows) -> Angles | None:
    """Return what an owner can make of all phases that were summed at it in training; None where there were none."""
    from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

    blocks = _blocks(view, rows)
    if not blocks:
        return None
    some = np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).round().astype(np.int64)
    turns = np.hstack([blocks[place][some] for place in sorted(blocks)])
    points = np.exp(1j * turns).astype(np.complex64)
    alike = np.clip((points @ points.conj().T).real / turns.shape[1], 1e-3, 1 - 1e-9)
    spread = np.sqrt(-2 * np.log(alike.astype(np.float64)))  # of the difference of two rows' angles
    root = int(np.argmin(np.median(spread, axis=1)))
    order, parent = breadth_first_order(minimum_spanning_tree(spread), root, directed=False)
    angles, longest = np.zeros_like(turns), np.zeros(len(turns))
    for at in order[1:]:
        before = parent[at]
        angles[at] = angles[before] + (turns[at] - turns[before] + np.pi) % (2 * np.pi) - np.pi
        longest[at] = max(longest[before], spread[before, at])
    trusted = longest <= _LONGEST
    angles = angles[trusted] - angles[trusted].mean(axis=0)
    w, U = np.linalg.eigh(angles @ angles.T)
    s = np.sqrt(np.maximum(w[::-1], 0.0))[:61]
    rank = int(np.argmax(s[:-1] / np.maximum(s[1:], 1e-4 * s[0]))) + 1
    gamma = _gamma(view)
    # Coordinates of directions are normal with variance 2 gamma.
    coordinates = U[:, ::-1][:, :rank] * s[:rank] / np.sqrt(2 * gamma * angles.shape[1])
    return Angles(rows[some[trusted]], coordinates, *_with_shared_directions(view, blocks, angles, gamma))


def _blocks(view: View, rows: Rows) -> dict[tuple[int, int], FloatArray]:
    """Return the others' part of each block of features, in radians, all rows of it."""
    place = {int(row): at for at, row in enumerate(rows)}
    found: dict[tuple[int, int], FloatArray] = {}
    for one in view.of(TOTAL, "phases"):
        at = 0
        for some, block, width in one.rows:
            values = one.value[at : at + len(some) * width].reshape(len(some), width)
            at += values.size
            table = found.setdefault(block, np.full((len(rows), width), np.nan))
            table[[place[int(row)] for row in some]] = values.astype(np.float64) * (2 * np.pi / 2.0**32)
    return {block: table for block, table in found.items() if not np.isnan(table).any()}


def _gamma(view: View) -> float:
    """Return it as told, or as this party told the others."""
    for one in view.of(CLEAR, "gamma"):
        return float(one.value)
    width, first, second = view.of(TOTAL, "kernel scale")[0].value + view.of(OWN, "kernel scale")[0].value
    return float(1 / (second - first * first / width))


def _with_shared_directions(
    view: View, blocks: dict[tuple[int, int], FloatArray], angles: FloatArray, gamma: float
) -> tuple[FloatArray, float]:
    drawn = []
    for name in (name for name in view.names if name != view.me):
        made = Directions(shared_secret(view.options.seed, name), b"", Kernel("rbf", gamma), view.widths[name])
        drawn.append(np.hstack([made.block(block, blocks[block].shape[1]) for block in sorted(blocks)]))
    every = np.vstack(drawn)
    found = np.asarray(np.linalg.lstsq(every.T, angles.T, rcond=None)[0].T, dtype=np.float64)
    return found, float(np.linalg.norm(angles - found @ every) / max(float(np.linalg.norm(angles)), 1e-300))
