"""Kernels of histograms: which gradients fall into which cell of which column, for all rows of a node.

A row's first and second derivative are whole numbers in one int64, g in the upper half and h in the lower: one addition
adds both, and differences of sums are exact, so that a node's histogram is its parent's less its sibling's, to the bit.
Every cell of every feature has a number of its own; a row of `codes` has the numbers of its cells. Numpy twins:
tests/test_tree_kernels.py. Rows are unsigned: numba then needs no test for negative indices in the inner loop.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled, Inside

Array = npt.NDArray[Any]
_AHEAD = 16  # rows between what is asked of memory and what is worked on
_LINE = 64  # bytes that memory hands over at a time


@Inside
def prefetch() -> Any:
    """`prefetch(address)`: ask for the memory there, and go on without it."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    def make(context: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
            function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
            # To read, to be kept in all caches, data and not code.
            how = [ir.Constant(number, value) for value in (0, 3, 1)]
            builder.call(function, [builder.inttoptr(values[0], pointer), *how])
            return context.get_dummy_value()

        return types.void(types.intp), codegen

    return intrinsic(make)


@Compiled
def magnitudes(g: Array, h: Array, rows: Array, every: bool, found: Array) -> None:
    """found = sum of |g|, sum of h, and how many of these rows have a g or h that can't be used; `every`: all rows."""
    # Four sums that do not wait for each other.
    g0, g1, h0, h1, bad = 0.0, 0.0, 0.0, 0.0, 0
    count = g.shape[0] if every else rows.shape[0]
    for r in range(count):
        i = np.uint32(r) if every else rows[r]
        a, b = abs(g[i]), h[i]
        if not (a < math.inf and 0.0 <= b < math.inf):
            bad += 1
        if r & 1:
            g1 += a
            h1 += b
        else:
            g0 += a
            h0 += b
    found[0], found[1], found[2] = g0 + g1, h0 + h1, float(bad)


@Compiled
def quantise(g: Array, h: Array, rows: Array, every: bool, g_scale: float, h_scale: float, out: Array) -> int:
    """out = g and h of these rows as whole numbers of their scales, in one; returns their sum."""
    total = 0
    count = g.shape[0] if every else rows.shape[0]
    for r in range(count):
        i = np.uint32(r) if every else rows[r]
        value = (math.floor(g[i] * g_scale + 0.5) << 32) + math.floor(h[i] * h_scale + 0.5)
        out[i] = value
        total += value
    return total


@Compiled
def add_all_rows(codes: Array, sums: Array, out: Array) -> None:
    """out[cell] += sums[i] for every cell of every row."""
    width = codes.shape[1]
    for i in range(codes.shape[0]):
        value, row = sums[i], codes[i]
        for j in range(width):
            out[row[j]] += value


@Compiled
def add_rows(codes: Array, sums: Array, rows: Array, begin: int, end: int, out: Array) -> None:
    """out[cell] += sums[i] for every cell of rows[begin:end], which are asked of memory before they are needed."""
    width = codes.shape[1]
    bytes_ = width * codes.itemsize
    at_codes, at_sums = codes.ctypes.data, sums.ctypes.data
    for r in range(begin, end):
        if r + _AHEAD < end:
            later = int(rows[r + _AHEAD])
            first = at_codes + later * bytes_
            prefetch(at_sums + later * 8)
            for offset in range(0, bytes_, _LINE):
                prefetch(first + offset)
            prefetch(first + bytes_ - 1)
        i = rows[r]
        value, row = sums[i], codes[i]
        for j in range(width):
            out[row[j]] += value


@Compiled
def settle_bundles(bundled: Array, defaults: Array, offsets: Array, total: int, out: Array) -> None:
    """Give the default cell of every bundled feature, to which no row was added, what the other cells leave over."""
    for k in range(bundled.shape[0]):
        f = bundled[k]
        rest = total
        for c in range(offsets[f], offsets[f + 1]):
            if c != defaults[f]:
                rest -= out[c]
        out[defaults[f]] = rest


@Compiled
def child_histograms(
    parents: Array, first: int, spare: Array, slots: Array, spans: Array, totals: Array, rows: Array,
    codes: Array, sums: Array, bundled: Array, defaults: Array, offsets: Array, histograms: Array,
) -> None:  # fmt: skip
    """Histograms of both children of each parent, who are numbered in pairs from `first` on.

    The smaller child's is added up in a spare slot; the other child takes its parent's slot, less its sibling's.
    """
    for t in range(parents.shape[0]):
        left = first + 2 * t
        sizes = spans[left, 1] - spans[left, 0], spans[left + 1, 1] - spans[left + 1, 0]
        small = left if sizes[0] <= sizes[1] else left + 1
        large = 2 * left + 1 - small
        slots[small], slots[large] = spare[t], slots[parents[t]]
        mine, other = histograms[slots[small]], histograms[slots[large]]
        mine[:] = 0
        add_rows(codes, sums, rows, spans[small, 0], spans[small, 1], mine)
        settle_bundles(bundled, defaults, offsets, totals[small], mine)
        for c in range(mine.shape[0]):
            other[c] -= mine[c]


@Compiled
def feature_histograms(
    nodes: Array, features: Array, slots: Array, spans: Array, rows: Array, cells: Array, sums: Array,
    offsets: Array, histograms: Array,
) -> None:  # fmt: skip
    """Histograms of some features anew, from their columns, for each of these nodes."""
    for t in range(nodes.shape[0]):
        out = histograms[slots[nodes[t]]]
        for k in range(features.shape[0]):
            f = features[k]
            column, mine = cells[f], out[offsets[f] : offsets[f + 1]]
            mine[:] = 0
            for r in range(spans[nodes[t], 0], spans[nodes[t], 1]):
                mine[column[rows[r]]] += sums[rows[r]]
