"""How many good and bad people are in each cell of a partner's columns, counted under encryption.

    label holder                                     owner of columns
                          <-- cells of columns --    how many cells each of its columns has
    [[good]], [[bad]]     -- encrypted labels -->
                                                     [[counts]] = indicators of cells^T [[good, bad]]
                          <-- blinded counts ---     [[counts + rho]], rho uniform
    opens: counts + rho
                          <-- mask of counts ---     the lowest bits of rho, as many as a count of all rows has
    counts, exact

The owner sees ciphertexts under a key that it does not have (`crypto.lattice_products`). The label holder sees counts,
and no more bits of any sum than a count has: whatever it encrypts in place of labels, each question tells it at most so
many bits for each cell. Counts of a column's cells have to add up to all good and all bad people, which is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.binning.options import MOST_CELLS
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_products import (
    Part,
    ProductLayout,
    ProductSums,
    low_masks,
    private_keystream,
    sums_modulo,
)
from colonnade.engine.encrypted import hear_bytes, multiply_portions, send_portions
from colonnade.errors import DataError, ProtocolError
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Shape = tuple[int, bool, bool]  # of a column: its cells, whether they have an order, whether the last is for missing

OFFERED, SEALED_LABELS, BLINDED, MASKS = "cells of columns", "encrypted labels", "blinded counts", "mask of counts"
_CELLS_AT_ONCE = 1024  # bounds what an owner holds in memory: about 100 megabytes
_MOST_COLUMNS = 100_000
_MOST_BITS = 30


def bits_of(rows: int) -> int:
    """Return how many bits a count of so many rows has, at most."""
    if rows.bit_length() > _MOST_BITS:
        raise DataError(f"bins are counted over fewer than {1 << _MOST_BITS:,} rows, got {rows:,}; take a sample")
    return rows.bit_length()


def some_columns(shapes: Sequence[Shape]) -> list[slice]:
    """Cut columns into pieces that are counted one after the other; both sides do it alike."""
    found, start, held = list[slice](), 0, 0
    for at, (cells, _, _) in enumerate(shapes):
        if held and held + cells > _CELLS_AT_ONCE:
            found.append(slice(start, at))
            start, held = at, 0
        held += cells
    return [*found, slice(start, len(shapes))] if shapes else []


# -- at the label holder -----------------------------------------------------------------------------------------------


async def hear_shapes(net: Net, owner: str) -> tuple[Shape, ...]:
    """Hear how many cells each column of a partner has."""
    told = await net.recv(owner, OFFERED)
    fits = type(told) is tuple and len(told) <= _MOST_COLUMNS
    if not fits or not all(type(one) is tuple and [*map(type, one)] == [int, bool, bool] for one in told):
        raise ProtocolError(f"party {owner!r} must tell the cells of its columns at step {OFFERED!r}")
    if not all(1 + missing <= cells <= MOST_CELLS for cells, _, missing in told):
        raise ProtocolError(f"party {owner!r} must tell columns of 1 to {MOST_CELLS} cells at step {OFFERED!r}")
    return tuple(told)


async def ask_counts(
    net: Net, owner: str, key: SecretKey, classes: Floats, shapes: Sequence[Shape]
) -> list[tuple[Whole, Whole]]:
    """Return (good, bad people) in each cell of each column; `classes` has a 1 where a row is good, and where bad."""
    rows, bits, found = len(classes), bits_of(len(classes)), list[tuple[Whole, Whole]]()
    for some in some_columns(shapes):
        sizes = [cells for cells, _, _ in shapes[some]]
        layout = ProductLayout.of(rows, 2, (sum(sizes),))
        await send_portions(
            net, [owner], SEALED_LABELS, layout,
            lambda first, last, layout=layout: layout.encrypt(key, classes[first:last]),  # type: ignore[misc]
        )  # fmt: skip
        blinded = await hear_bytes(net, owner, BLINDED, layout.answer_bytes(sum(sizes)))
        opened = await net.in_thread(layout.open, key, blinded, sum(sizes))
        told = await net.recv(owner, MASKS)
        masks = expect_array(told, (sum(sizes), 2), np.uint32, owner, MASKS)
        counts = np.split(sums_modulo(opened, masks, bits), np.cumsum(sizes)[:-1])
        net.traffic.round()
        for one in counts:
            if not np.array_equal(one.sum(axis=0), classes.sum(axis=0)):
                raise ProtocolError(
                    f"the counts over the cells of party {owner!r} do not add up to all people at step {BLINDED!r}; "
                    f"check that every party runs the same job on the same rows"
                )
            found.append((one[:, 0].copy(), one[:, 1].copy()))
    return found


# -- at the owner of columns -------------------------------------------------------------------------------------------


async def answer_counts(
    net: Net, holder: str, public: LatticePublicKey, shapes: Sequence[Shape], codes: Sequence[Whole]
) -> None:
    """Count under encryption, without being able to read what is counted."""
    randomness, bits = private_keystream(), bits_of(len(codes[0]) if codes else 0)
    for some in some_columns(shapes):
        sizes = [cells for cells, _, _ in shapes[some]]
        layout = ProductLayout.of(len(codes[0]), 2, (sum(sizes),))
        sums = ProductSums(layout, public, sum(sizes), 1)
        indicators = Indicators(codes[some], sizes)
        await multiply_portions(net, holder, SEALED_LABELS, layout, sums, indicators.part)
        blinded, masks = await net.in_thread(sums.answer, randomness)
        await net.send(holder, BLINDED, blinded)
        await net.send(holder, MASKS, low_masks(masks, bits))
        net.traffic.round()


class Indicators:
    """Columns of ones and zeros, one for each cell, that say which rows are in it; made as they are needed."""

    def __init__(self, codes: Sequence[Whole], sizes: Sequence[int]) -> None:
        self._codes = codes
        self._homes: list[tuple[int, int]] = [
            (number, cell) for number, size in enumerate(sizes) for cell in range(size)
        ]

    def part(self, start: int, stop: int) -> Part:
        """Return what gives some of these columns, of rows from `start` to below `stop`."""

        def columns(first: int, last: int) -> Floats:
            found = np.empty((stop - start, last - first))
            for at, (number, cell) in enumerate(self._homes[first:last]):
                found[:, at] = self._codes[number][start:stop] == cell
            return found

        return columns


def own_counts(codes: Whole, cells: int, classes: Floats) -> tuple[Whole, Whole]:
    """Return (good, bad people) in each cell of one of the label holder's own columns."""
    good, bad = (np.bincount(codes, classes[:, at], cells).astype(np.int64) for at in (0, 1))
    return good, bad


def class_columns(bad: Any, labelled: Any) -> Floats:
    """Return two columns with a 1 where a row is good, and where it is bad; both are 0 where it has no label."""
    is_bad, known = np.asarray(bad, bool), np.asarray(labelled, bool)
    return np.stack([known & ~is_bad, known & is_bad], axis=1).astype(np.float64)
