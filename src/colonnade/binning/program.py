"""One party's program for the bins of all parties' columns.

1. cells       every party cuts its columns by itself (`binning.cells`)
2. counts      the label holder learns good and bad people in each cell, counted under encryption (`binning.counting`)
3. bins        it joins cells to bins, and tells each owner those of its own columns (`binning.joining`)
4. selection   where the job asks for it, columns that go together with better ones are left out (`binning.selection`)

What an owner is told of a column are the bins of its cells and the good and bad people in each bin, of both kinds at
least as many as the options say. Of a column without such bins, or with too small an information value, it is told
nothing but that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.binning.counting import (
    OFFERED,
    Shape,
    answer_counts,
    ask_counts,
    class_columns,
    hear_shapes,
    own_counts,
)
from colonnade.binning.joining import JoinedCells, joined_cells
from colonnade.binning.options import BinningOptions
from colonnade.binning.selection import select_columns
from colonnade.crypto.lattice_products import new_secret_key
from colonnade.engine.encrypted import hear_key
from colonnade.errors import DataError, ProtocolError
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Plans = list[JoinedCells | None]
TOLD = "bins of columns"


async def bin_columns(net: Net, job: Any, mine: Any) -> Any:
    """Find the bins of all parties' columns, as one party.

    Parameters
    ----------
    net
        The party's view of the federation.
    job
        What all parties agree on: the options as a value, and the name of the label holder.
    mine
        How many rows there are, this party's columns as a tuple of (codes of cells, shape), and at the label holder
        which rows are bad and which have a label.

    Returns
    -------
    tuple
        For each of this party's columns its bins or None; whether each column is selected; and at the label holder
        (party, the information values of its columns) of all parties, with NaN for a column without bins.
    """
    given, holder = job
    options, (rows, columns, bad, labelled) = BinningOptions(*given), mine
    party = _Party(net, options, holder, [codes for codes, _ in columns], [tuple(shape) for _, shape in columns])
    if net.me == holder:
        plans, values = await party.lead(class_columns(bad, labelled))
    else:
        plans, values = await party.follow(), None
    kept = [plan is not None for plan in plans]
    if options.correlates:
        kept = await select_columns(net, options, holder, rows, party.codes, plans, values)
    return (
        tuple(None if plan is None else tuple(plan) for plan in plans),
        tuple(kept),
        None if values is None else tuple(values.items()),
    )


def check_classes(party: str, good: int, bad: int, least: int) -> None:
    """Refuse labels of which no two bins can have enough of each class."""
    if min(good, bad) < 2 * least:
        raise DataError(
            f"party {party!r} has {good} people of the first class and {bad} of the second, and two bins need "
            f"{2 * least} of each; lower least, or bring more people"
        )


class _Party:
    """One party's side."""

    def __init__(self, net: Net, options: BinningOptions, holder: str, codes: list[Whole], shapes: list[Shape]) -> None:
        self.net, self.options, self.holder, self.codes, self.shapes = net, options, holder, codes, shapes

    # -- at the label holder ------------------------------------------------------------------------------------

    async def lead(self, classes: Floats) -> tuple[Plans, dict[str, Floats]]:
        """Count, join cells to bins, and tell everybody its own; returns this party's own bins and all values."""
        net, others = self.net, [name for name in self.net.names if name != self.net.me]
        good, bad = (int(count) for count in classes.sum(axis=0))
        check_classes(net.me, good, bad, self.options.least)
        key = await net.in_thread(new_secret_key)
        for name in others:
            await net.send(name, "encryption key", key.public)
        shapes = {name: await hear_shapes(net, name) for name in others}
        # All partners at once, so that nobody waits for another's columns.
        tasks = {name: net.spawn(ask_counts(net, name, key, classes, shapes[name])) for name in others}
        counts = {name: await task for name, task in tasks.items()}
        counts[net.me] = [
            own_counts(codes, shape[0], classes) for codes, shape in zip(self.codes, self.shapes, strict=True)
        ]
        shapes[net.me] = tuple(self.shapes)
        plans, values = dict[str, Plans](), dict[str, Floats]()
        for name in (net.me, *others):
            found = [
                joined_cells(*each, self.options, ordered=ordered, missing=missing)
                for each, (_, ordered, missing) in zip(counts[name], shapes[name], strict=True)
            ]
            values[name] = np.array([np.nan if plan is None else plan.iv for plan in found])
            plans[name] = [None if plan is None or plan.iv < self.options.min_iv else plan for plan in found]
        for name in others:
            await net.send(name, TOLD, tuple(None if plan is None else tuple(plan) for plan in plans[name]))
        return plans[net.me], values

    # -- elsewhere ----------------------------------------------------------------------------------------------

    async def follow(self) -> Plans:
        """Have the cells of one's own columns counted, and hear which of them are a bin together."""
        net, holder = self.net, self.holder
        await net.send(holder, OFFERED, tuple(self.shapes))
        public = await hear_key(net, holder)
        await answer_counts(net, holder, public, self.shapes, self.codes)
        told = await net.recv(holder, TOLD)
        if type(told) is not tuple or len(told) != len(self.shapes):
            raise ProtocolError(f"party {holder!r} must tell the bins of {len(self.shapes)} columns at step {TOLD!r}")
        return [None if one is None else self._plan(one, *shape) for one, shape in zip(told, self.shapes, strict=True)]

    def _plan(self, told: Any, cells: int, ordered: bool, missing: bool) -> JoinedCells:
        """Return the bins of one column, as they were told, or refuse what can't be."""
        holder, rows = self.holder, len(self.codes[0])
        if type(told) is not tuple or len(told) != 3:
            raise ProtocolError(f"party {holder!r} must tell bins and two counts of each at step {TOLD!r}")
        bins = expect_array(told[0], (cells,), np.int64, holder, TOLD)
        goods, bads = (expect_array(each, (None,), np.int64, holder, TOLD) for each in told[1:])
        number = len(goods)
        known = len(bads) == number and np.array_equal(np.unique(bins), np.arange(number))
        steps = np.diff(bins[: cells - missing])
        if not known or (ordered and not ((steps == 0) | (steps == 1)).all()):
            raise ProtocolError(f"party {holder!r} must join the cells of a column to bins in order at step {TOLD!r}")
        if min(goods.min(), bads.min()) < self.options.least or int(goods.sum()) + int(bads.sum()) > rows:
            raise ProtocolError(
                f"party {holder!r} must tell at least {self.options.least} people of each class and no more than all "
                f"{rows} at step {TOLD!r}"
            )
        return JoinedCells(bins, goods, bads)
