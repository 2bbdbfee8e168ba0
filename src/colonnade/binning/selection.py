"""Which columns stay: those that do not go together too much with better ones of any party.

Every party weighs its binned columns (`tables.woe`), and correlations between every two parties come together at the
label holder without any of the columns, as for statistics (`inference.correlations`); those among its own columns each
party tells itself. The label holder goes from the column with the largest information value to the one with the
smallest and leaves out what goes together with a column that stays more than `max_correlation`. Then, while a variance
inflation factor is above `max_vif`, it leaves out the column that has the largest. Each owner hears which of its own
columns stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from colonnade.binning.joining import JoinedCells
from colonnade.binning.options import BinningOptions
from colonnade.errors import ProtocolError
from colonnade.inference.correlations import Correlations
from colonnade.inference.program import MOST_ROWS, check_sizes, sampled
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import Value, expect_array
from colonnade.tables.woe import weights_of_evidence

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
OWN, STAY = "own correlations", "columns that stay"
_TINY = 1e-9


class Company:
    """What `inference.correlations` has to know of a run: the net, the others, and how to tell all of them."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.others = [name for name in net.names if name != net.me]

    async def tell_each(self, tag: str, value: Value) -> None:
        """Send the same to everybody else."""
        for name in self.others:
            await self.net.send(name, tag, value)


async def select_columns(
    net: Net,
    options: BinningOptions,
    holder: str,
    rows: int,
    codes: Sequence[Whole],
    plans: Sequence[JoinedCells | None],
    values: Mapping[str, Floats] | None,
) -> list[bool]:
    """Return which of this party's columns stay; `values` are all information values, at the label holder."""
    company = Company(net)
    own = [number for number, plan in enumerate(plans) if plan is not None]
    columns = _white(sampled(rows, MOST_ROWS), codes, plans, own)
    sizes = {net.me: len(own)}
    await company.tell_each("block size", len(own))
    for name in company.others:
        told = await net.recv(name, "block size")
        if type(told) is not int or told < 0:
            raise ProtocolError(f"party {name!r} must tell a number of columns at step 'block size'")
        sizes[name] = told
    check_sizes(sum(sizes.values()), len(columns))
    order = (holder, *(name for name in net.names if name != holder))
    filled = {name: max(1, size) for name, size in sizes.items()}  # a party without any sends a column of zeros
    matrix = await Correlations(company, order, filled, len(columns)).matrix(columns)
    kept = [plan is not None for plan in plans]
    if matrix is None or values is None:
        await net.send(holder, OWN, columns.T @ columns)
        told = expect_array(await net.recv(holder, STAY), (len(own),), np.bool_, holder, STAY)
    else:
        blocks = {net.me: columns.T @ columns}
        for name in company.others:
            shape = (filled[name], filled[name])
            blocks[name] = expect_array(await net.recv(name, OWN), shape, np.float64, name, OWN)
            if not np.isfinite(blocks[name]).all():
                raise ProtocolError(f"party {name!r} must tell finite numbers at step {OWN!r}")
        stay = _those_that_stay(matrix, order, sizes, filled, blocks, values, options)
        for name in company.others:
            await net.send(name, STAY, stay[name])
        told = stay[net.me]
    net.traffic.round()
    for number, stays in zip(own, told.tolist(), strict=True):
        kept[number] = bool(stays)
    return kept


def _white(rows: Whole, codes: Sequence[Whole], plans: Sequence[JoinedCells | None], own: Sequence[int]) -> Floats:
    """Return the weighed columns with mean 0 and length 1, of the rows that correlations are made of."""
    columns = np.zeros((len(rows), max(1, len(own))))
    for at, number in enumerate(own):
        plan = plans[number]
        if plan is None:
            continue
        x = weights_of_evidence(plan.goods, plan.bads)[plan.bins[codes[number][rows]]]
        x = x - x.mean()
        columns[:, at] = x / (np.linalg.norm(x) or 1.0)
    return columns


def _those_that_stay(
    matrix: Floats,
    order: Sequence[str],
    sizes: Mapping[str, int],
    filled: Mapping[str, int],
    blocks: Mapping[str, Floats],
    values: Mapping[str, Floats],
    options: BinningOptions,
) -> dict[str, npt.NDArray[np.bool_]]:
    starts = dict(zip(order, np.cumsum([0, *(filled[name] for name in order)]), strict=False))
    for name in order:
        part = slice(starts[name], starts[name] + filled[name])
        matrix[part, part] = blocks[name]
    places = np.concatenate([starts[name] + np.arange(sizes[name]) for name in order]).astype(np.int64)
    told = [values[name][values[name] >= options.min_iv] for name in order]  # NaN is not, like all that was left out
    iv = np.concatenate(told)
    chosen = places[selected(matrix[np.ix_(places, places)], iv, options)]
    return {name: np.isin(starts[name] + np.arange(sizes[name]), chosen) for name in order}


def selected(matrix: Floats, iv: Floats, options: BinningOptions) -> Whole:
    """Return the numbers of the columns that stay, given all correlations and information values."""
    kept = list[int]()
    for one in np.argsort(-iv, kind="stable").tolist():
        limit = options.max_correlation
        if limit is None or not kept or np.abs(matrix[one, kept]).max() <= limit:
            kept.append(one)
    kept.sort()
    while options.max_vif is not None and len(kept) > 1:
        factors = inflation(matrix[np.ix_(kept, kept)])
        worst = int(factors.argmax())
        if factors[worst] <= options.max_vif:
            break
        del kept[worst]
    return np.array(kept, np.int64)


def inflation(matrix: Floats) -> Floats:
    """Return the variance inflation factor of each column; infinite where others determine it."""
    found = np.full(len(matrix), np.inf)
    for at in range(len(matrix)):
        rest = np.delete(np.arange(len(matrix)), at)
        coefficients = np.linalg.lstsq(matrix[np.ix_(rest, rest)], matrix[rest, at], rcond=1e-10)[0]
        left = 1.0 - float(matrix[rest, at] @ coefficients)
        if left > _TINY:
            found[at] = 1.0 / left
    return found
