"""The kernels of passes over many rows: products of panels, which a processor's vector registers work off; and pairs.

A panel is a few rows as float64, so few that they stay in the first caches, each with zeros behind its numbers up to a
multiple of `WIDE`. Sums go over the rows in their order, by fused multiplications and additions, which round the same
everywhere. So they have the same bits on every machine, whatever its vectors hold. Twins: tests/test_panels.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.compiling.compiled import Compiled, Inside

Array = npt.NDArray[Any]
WIDE = 8  # columns in one tile of a product, and rows
PANEL = 64  # rows of a panel
_STEP = 4  # numbers that are widened together


def _vector(count: int, of: Any = None) -> Any:
    """LLVM's type of vectors of so many doubles, or of another type that numba knows."""
    from llvmlite import ir
    from numba import types

    known = {types.float32: ir.FloatType(), types.int32: ir.IntType(32)}
    return ir.VectorType(known.get(of, ir.DoubleType()), count)


def _widened(builder: Any, found: Any, of: Any, to: Any) -> Any:
    """A number or a vector of them as doubles."""
    from numba import types

    if of == types.float64:
        return found
    return builder.sitofp(found, to) if of == types.int32 else builder.fpext(found, to)


def _spread(builder: Any, number: Any, count: int) -> Any:
    """A vector with one number in all places."""
    from llvmlite import ir

    empty = ir.Constant(_vector(count), ir.Undefined)
    index = ir.IntType(32)
    first = builder.insert_element(empty, number, index(0))
    return builder.shuffle_vector(first, empty, ir.Constant(ir.VectorType(index, count), [0] * count))


def _fused(builder: Any, count: int) -> Any:
    """LLVM's a * b + c of vectors, rounded once."""
    from llvmlite import ir

    name, kind = f"llvm.fma.v{count}f64", _vector(count)
    found = builder.module.globals.get(name)
    return ir.Function(builder.module, ir.FunctionType(kind, [kind] * 3), name) if found is None else found


@Inside
def add_tile() -> Any:
    """`add_tile(left, right, rows, j, k, out)`: out[j:j+8, k:k+8] += left[:rows, j:j+8].T @ right[:rows, k:k+8].

    All three are float64 in rows without gaps; the sums stay in registers from the first row to the last.
    """
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    def make(context: Any, left: Any, right: Any, rows: Any, j: Any, k: Any, out: Any) -> Any:
        if not left.layout == right.layout == out.layout == "C":
            return None

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds, wide, fused = signature.args, _vector(WIDE).as_pointer(), _fused(builder, WIDE)
            arrays = {at: context.make_array(kinds[at])(context, builder, values[at]) for at in (0, 1, 5)}
            widths = {at: cgutils.unpack_tuple(builder, one.shape)[1] for at, one in arrays.items()}  # type: ignore[no-untyped-call]
            _, _, rows, j, k, _ = values
            places, sums = [], []
            for row in range(WIDE):
                at = builder.add(builder.mul(builder.add(j, j.type(row)), widths[5]), k)
                places.append(builder.bitcast(builder.gep(arrays[5].data, [at]), wide))
                sums.append(cgutils.alloca_once(builder, _vector(WIDE)))  # type: ignore[no-untyped-call]
                builder.store(builder.load(places[row], align=8), sums[row])
            with cgutils.for_range(builder, rows) as loop:
                begin = builder.add(builder.mul(loop.index, widths[1]), k)
                others = builder.load(builder.bitcast(builder.gep(arrays[1].data, [begin]), wide), align=8)
                begin = builder.add(builder.mul(loop.index, widths[0]), j)
                for row in range(WIDE):
                    one = builder.load(builder.gep(arrays[0].data, [builder.add(begin, begin.type(row))]))
                    terms = [_spread(builder, one, WIDE), others, builder.load(sums[row])]
                    builder.store(builder.call(fused, terms), sums[row])
            for place, found in zip(places, sums, strict=True):
                builder.store(builder.load(found), place, align=8)
            return context.get_dummy_value()

        return types.void(left, right, rows, j, k, out), codegen

    return intrinsic(make)


@Inside
def widen() -> Any:
    """`widen(X, row, out, i, at)`: out[i, at : at + width of X] = X[row], float32, float64 or int32 as float64."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    def make(context: Any, X: Any, row: Any, out: Any, i: Any, at: Any) -> Any:
        if not X.layout == out.layout == "C" or X.dtype not in (types.float32, types.float64, types.int32):
            return None

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds, step = signature.args, ir.IntType(64)(_STEP)
            source, target = (context.make_array(kinds[n])(context, builder, values[n]) for n in (0, 2))
            given = kinds[0].dtype
            width, room = (cgutils.unpack_tuple(builder, one.shape)[1] for one in (source, target))  # type: ignore[no-untyped-call]
            begin = builder.gep(source.data, [builder.mul(values[1], width)])
            to = builder.gep(target.data, [builder.add(builder.mul(values[3], room), values[4])])
            whole = builder.udiv(width, step)
            with cgutils.for_range(builder, whole) as loop:
                place = builder.mul(loop.index, step)
                some = builder.bitcast(builder.gep(begin, [place]), _vector(_STEP, given).as_pointer())
                found = _widened(builder, builder.load(some, align=given.bitwidth // 8), given, _vector(_STEP))
                there = builder.bitcast(builder.gep(to, [place]), _vector(_STEP).as_pointer())
                builder.store(found, there, align=8)
            done = builder.mul(whole, step)
            with cgutils.for_range(builder, builder.sub(width, done)) as loop:
                place = builder.add(done, loop.index)
                found = _widened(builder, builder.load(builder.gep(begin, [place])), given, ir.DoubleType())
                builder.store(found, builder.gep(to, [place]))
            return context.get_dummy_value()

        return types.void(X, row, out, i, at), codegen

    return intrinsic(make)


@Inside
def scale() -> Any:
    """`scale(right, i, at, factor, left)`: left[i] = factor * right[i, at : at + width of left], eight at a time."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    def make(context: Any, right: Any, i: Any, at: Any, factor: Any, left: Any) -> Any:
        if not right.layout == left.layout == "C":
            return None

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds, step, wide = signature.args, ir.IntType(64)(WIDE), _vector(WIDE).as_pointer()
            source, target = (context.make_array(kinds[n])(context, builder, values[n]) for n in (0, 4))
            room, width = (cgutils.unpack_tuple(builder, one.shape)[1] for one in (source, target))  # type: ignore[no-untyped-call]
            begin = builder.gep(source.data, [builder.add(builder.mul(values[1], room), values[2])])
            to = builder.gep(target.data, [builder.mul(values[1], width)])
            factor = _spread(builder, values[3], WIDE)
            with cgutils.for_range(builder, builder.udiv(width, step)) as loop:
                place = builder.mul(loop.index, step)
                found = builder.load(builder.bitcast(builder.gep(begin, [place]), wide), align=8)
                there = builder.bitcast(builder.gep(to, [place]), wide)
                builder.store(builder.fmul(factor, found), there, align=8)
            return context.get_dummy_value()

        return types.void(right, i, at, factor, left), codegen

    return intrinsic(make)


@Inside
def dot() -> Any:
    """`dot(X, row, W)`: X[row] @ W[:, 0], in four sums that take turns, as `columns.dense_forward` adds them."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    def make(context: Any, X: Any, row: Any, W: Any) -> Any:
        if not X.layout == W.layout == "C" or X.dtype not in (types.float32, types.float64, types.int32):
            return None

        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            kinds, step, given = signature.args, ir.IntType(64)(_STEP), signature.args[0].dtype
            source, weights = (context.make_array(kinds[n])(context, builder, values[n]) for n in (0, 2))
            width = cgutils.unpack_tuple(builder, source.shape)[1]  # type: ignore[no-untyped-call]
            begin, wide = builder.gep(source.data, [builder.mul(values[1], width)]), _vector(_STEP)
            whole, sums = builder.udiv(width, step), cgutils.alloca_once(builder, wide)  # type: ignore[no-untyped-call]
            builder.store(ir.Constant(wide, [0.0] * _STEP), sums)
            with cgutils.for_range(builder, whole) as loop:
                place = builder.mul(loop.index, step)
                some = builder.bitcast(builder.gep(begin, [place]), _vector(_STEP, given).as_pointer())
                found = _widened(builder, builder.load(some, align=given.bitwidth // 8), given, wide)
                there = builder.bitcast(builder.gep(weights.data, [place]), wide.as_pointer())
                product = builder.fmul(found, builder.load(there, align=8))
                builder.store(builder.fadd(builder.load(sums), product), sums)
            four = builder.load(sums)
            first, *others = (builder.extract_element(four, ir.IntType(32)(n)) for n in range(_STEP))
            total = cgutils.alloca_once_value(builder, first)  # type: ignore[no-untyped-call]
            done = builder.mul(whole, step)
            with cgutils.for_range(builder, builder.sub(width, done)) as loop:
                place = builder.add(done, loop.index)
                found = _widened(builder, builder.load(builder.gep(begin, [place])), given, ir.DoubleType())
                product = builder.fmul(found, builder.load(builder.gep(weights.data, [place])))
                builder.store(builder.fadd(builder.load(total), product), total)
            return builder.fadd(builder.fadd(builder.load(total), others[0]), builder.fadd(others[1], others[2]))

        return types.float64(X, row, W), codegen

    return intrinsic(make)


@Compiled
def forward(X: Array, rows: Array, W: Array, out: Array) -> None:
    """out[:, 0] = X[rows] @ W[:, 0], with the bits of `columns.dense_forward`."""
    for i in range(rows.shape[0]):
        out[i, 0] = dot(X, rows[i], W)


@Compiled
def along(X: Array, W: Array, z: Array) -> None:
    """z += X @ W[:, 0]."""
    for i in range(z.shape[0]):
        z[i] += dot(X, i, W)


@Compiled
def project(X: Array, rows: Array, W: Array, left: Array, tile: Array, out: Array) -> None:
    """out = X[rows] @ W, for a W of many columns, which `side_by_side` has cut.

    left: room for the rows of a panel, zeros at first. tile: room for one tile.
    """
    n, d = rows.shape[0], X.shape[1]
    for at in range(0, n, PANEL):
        count = min(PANEL, n - at)
        for i in range(count):
            row, mine = X[rows[at + i]], left[i // WIDE]
            for f in range(d):
                mine[f, i % WIDE] = row[f]
        for k in range(W.shape[0]):
            width = min(WIDE, out.shape[1] - k * WIDE)
            for j in range(0, count, WIDE):
                tile[:] = 0.0
                add_tile(left[j // WIDE], W[k], d, 0, 0, tile)
                for i in range(min(WIDE, count - j)):
                    for c in range(width):
                        out[at + j + i, k * WIDE + c] = tile[i, c]


def side_by_side(W: Array) -> Array:
    """Columns as `project` wants them: (pieces, rows, WIDE), the last piece with zeros behind them."""
    d, width = W.shape
    pieces = -(-width // WIDE)
    padded = np.zeros((d, pieces * WIDE))
    padded[:, :width] = W
    return np.ascontiguousarray(padded.reshape(d, pieces, WIDE).transpose(1, 0, 2))


def room_to_project(columns: int) -> tuple[Array, Array]:
    """Rooms left and tile for `project`."""
    return np.zeros((PANEL // WIDE, columns, WIDE)), np.zeros((WIDE, WIDE))


@Compiled
def add_products(
    X: Array,
    rows: Array,
    beside: Array,
    weight: Array,
    signal: Array,
    fresh: int,
    left: Array,
    right: Array,
    out: Array,
) -> None:
    """Sums over rows of Z = [X[rows], beside].

    out[i, k] += the sum of weight * Z[:, fresh + i] * Z[:, k] for k <= fresh + i, and out[last, k] += that of
    signal * Z[:, k]; other places of `out` get numbers without meaning. left, right: room for panels, zeros at first.
    """
    m = beside.shape[1]
    d, n = X.shape[1], rows.shape[0]
    wanted = d + m - fresh
    for at in range(0, n, PANEL):
        count = min(PANEL, n - at)
        for i in range(count):
            widen(X, rows[at + i], right, i, 0)
            if m:
                widen(beside, at + i, right, i, d)
            if wanted:
                scale(right, i, fresh, np.float64(weight[at + i]), left)
            left[i, wanted] = signal[at + i]
        for j in range(0, wanted + 1, WIDE):
            most = d + m if j + WIDE > wanted else fresh + j + WIDE
            for k in range(0, most, WIDE):
                add_tile(left, right, count, j, k, out)


def room(size: int, fresh: int) -> tuple[Array, Array, Array]:
    """Panels left and right for `add_products`, and zeros for its sums: of `size` columns, rows from `fresh` on."""
    tall, wide = (-(-one // WIDE) * WIDE for one in (size - fresh + 1, size))
    return _aligned(PANEL, tall), _aligned(PANEL, wide + WIDE), _aligned(tall, wide + WIDE)


def _aligned(rows: int, width: int) -> Array:
    """Zeros of which no tile's row lies across two lines of a cache."""
    memory = np.zeros(rows * width + WIDE)
    first = -memory.ctypes.data // memory.itemsize % WIDE
    return memory[first : first + rows * width].reshape(rows, width)


@Compiled
def pairs(lower: Array, upper: Array) -> int:
    """Twice the pairs in which a number of `lower` is below one of `upper`, and once those that tie; both ascend."""
    below, up_to, total = 0, 0, 0
    for i in range(upper.shape[0]):
        while below < lower.shape[0] and lower[below] < upper[i]:
            below += 1
        while up_to < lower.shape[0] and lower[up_to] <= upper[i]:
            up_to += 1
        total += below + up_to
    return total


@Compiled
def by_class(score: Array, y: Array, one: float, lower: Array, upper: Array) -> None:
    """Scores of rows with the label `one` go to `upper`, those of all others to `lower`; each has a place to spare."""
    below, above = 0, 0
    for i in range(score.shape[0]):
        lower[below] = score[i]
        upper[above] = score[i]
        hit = y[i] == one
        above += hit
        below += not hit
