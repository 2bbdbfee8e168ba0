"""Kernels of oblivious transfer in bulk: bits that are turned from columns to rows, and a fingerprint of columns.

A column is a row of words here, one bit for each transfer, the lowest first; a row is the bits of all columns for one
transfer. Each function has a slow twin in tests/test_transfers.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled

Array = npt.NDArray[Any]

LANES = 8  # blocks of 64 x 64 bits that are turned together, as a processor's vectors hold so many words


@Compiled
def _turn(room: Array) -> None:
    """Bit i of word k becomes bit k of word i, in each of the lanes: (64, 8) words."""
    width, mask = 32, np.uint64(0xFFFFFFFF)
    while width:
        shift, k = np.uint64(width), 0
        while k < 64:
            for lane in range(8):
                change = ((room[k, lane] >> shift) ^ room[k + width, lane]) & mask
                room[k + width, lane] ^= change
                room[k, lane] ^= change << shift
            k = (k + width + 1) & ~width
        width >>= 1
        mask ^= mask << np.uint64(width)


@Compiled
def rows_of(columns: Array, start: int, stop: int, rows: Array, room: Array) -> None:
    """Turn columns to rows: those of the words from `start` to `stop` of every column. room: (64, 8) words."""
    for block in range(start, stop, 8):
        lanes = min(8, stop - block)
        for group in range(rows.shape[1]):
            for k in range(64):
                for lane in range(lanes):
                    room[k, lane] = columns[64 * group + k, block + lane]
            _turn(room)
            for lane in range(lanes):
                for i in range(64):
                    rows[64 * (block + lane) + i, group] = room[i, lane]


@Compiled
def columns_of(rows: Array, start: int, stop: int, columns: Array, room: Array) -> None:
    """Turn rows to columns, and add these to what is there: the words from `start` to `stop` of every column."""
    for block in range(start, stop, 8):
        lanes = min(8, stop - block)
        for group in range(rows.shape[1]):
            for lane in range(lanes):
                for i in range(64):
                    room[i, lane] = rows[64 * (block + lane) + i, group]
            _turn(room)
            for k in range(min(64, columns.shape[0] - 64 * group)):
                for lane in range(lanes):
                    columns[64 * group + k, block + lane] ^= room[k, lane]


@Compiled
def fold(columns: Array, times: Array, out: Array) -> None:
    """out[j] = the polynomial over GF(2^64) whose coefficients are a column's words, the last one that of x^0.

    times: x times each byte at each of eight places.
    """
    for j in range(columns.shape[0]):
        value = np.uint64(0)
        for b in range(columns.shape[1]):
            last, value = value, columns[j, b]
            for k in range(8):
                value ^= times[k, np.int64((last >> np.uint64(8 * k)) & np.uint64(255)), 0]
        out[j] = value
