"""Bins in a job: columns of a party's table become cells, then bins; what was found is written beside the model.

bins.csv         at every party: its own columns, bin by bin, with good and bad people, rate, weight and value
iv.csv           at the label holder: the information value of every party's columns; others' are numbers, not names
scorecard.csv    at every party, where the job has [scorecard]: the points of its own bins
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.binning.bin_table import BinTable, WeighedBin
from colonnade.binning.cells import FineColumn
from colonnade.binning.options import BinningOptions
from colonnade.binning.points import PartyCard, PointsOfBin
from colonnade.binning.program import bin_columns
from colonnade.data import labels
from colonnade.data.party import Party
from colonnade.errors import DataError, LabelError
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import Prepared
from colonnade.objective import losses
from colonnade.runtimes.net import Net
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.woe import Woe

Rows = npt.NDArray[np.int64]
BINS, VALUES, CARD = "bins.csv", "iv.csv", "scorecard.csv"


class BinnedSource(Protocol):
    """A party's table, as far as bins need it."""

    labels: Any

    def cells(self, rows: Rows, options: BinningOptions) -> list[FineColumn]:
        """Cut columns into fine cells on these rows."""
        ...

    def binned(self, found: Any) -> Prepared:
        """Learn the rest of the preparation from the bins that were found of these cells."""
        ...


async def prepare_bins(net: Net, job: Job, options: BinningOptions, source: BinnedSource, rows: Rows) -> Prepared:
    """Find the bins of all parties' columns on the training rows, and return this party's own, prepared."""
    holder = job.holders[0]
    known = (None, None) if net.me != holder else _bad_ones(net.me, job, source.labels, rows)
    columns = await net.in_thread(source.cells, rows, options)
    mine = (len(rows), tuple((column.codes, column.shape()) for column in columns), *known)
    found = await bin_columns(net, (options.as_value(), holder), mine)
    return await net.in_thread(source.binned, found)


def _bad_ones(me: str, job: Job, given: Any, rows: Rows) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return which rows are of the second class, and which have a label at all."""
    if given is None:
        raise LabelError(f"the job says that party {me!r} holds labels, and it names no label column; set label")
    party = Party(me, np.zeros((len(rows), 1)), np.asarray(given)[rows])
    y, labelled = np.asarray(party.y), np.asarray(party.labelled)
    classes = labels.class_labels(y[labelled], losses.loss(job.loss))
    return labelled & (y == classes[1]), labelled


# -- files -------------------------------------------------------------------------------------------------------------


def save_bins(folder: Path, job: Job, me: str, source: Any, state: Any) -> list[str]:
    """Write what was found into the folder of a version, and return a few words for people."""
    if job.binning is None or source.found is None:
        return []
    plans, kept, values = source.found
    own = {one.name: one.joined(*plan) for one, plan in zip(source.cut, plans, strict=True) if plan is not None}
    rows = [(name, *one) for name, step in own.items() for one in BinTable(name, step, name in source.learned.days)]
    _write(folder / BINS, ("column", *WeighedBin._fields), rows)
    said = [f"{sum(kept)} of {len(kept)} columns have bins that stay; they are in {BINS}"]
    if values is not None:
        table = [
            (party, column, value)
            for party, each in values
            for column, value in zip(_names(party, me, source, len(each)), each.tolist(), strict=True)
        ]
        table.sort(key=lambda one: -1.0 if math.isnan(one[2]) else one[2], reverse=True)
        _write(folder / VALUES, ("party", "column", "iv"), table)
        said.append(f"the information values of all parties' columns are in {VALUES}")
    if job.scorecard is not None:
        card = card_of(job, me, source.learned, state)
        _write(folder / CARD, PointsOfBin._fields, card.rows())
        error = f", rounding moves their sum by {card.rounding_error:.2f} at most" if job.scorecard.rounded else ""
        said.append(f"the points of this party's bins are in {CARD}{error}")
    return said


def check_card(job: Job, me: str, learned: LearnedPreparation) -> None:
    """Refuse, before anything is sent, a scorecard of columns that have no bins."""
    other = [column.name for column in learned.columns if not isinstance(column.last, Woe)]
    if job.scorecard is not None and other:
        raise DataError(
            f"column {other[0]!r} of {me!r} has steps of its own under [prepare] and no bins, and a scorecard needs "
            f'them of all columns; give it "woe", list it under exclude, or remove [scorecard] from the job'
        )


def card_of(job: Job, me: str, learned: LearnedPreparation, state: Any) -> PartyCard:
    """Return a party's own part of the scorecard, from its preparation and its coefficients."""
    names, steps = learned.names or (), learned.weighed
    if job.scorecard is None or set(names) != set(steps):
        raise DataError("a scorecard needs a model of bins, and a job with [scorecard]; add it and train anew")
    theta, intercept = np.asarray(state[0])[:, 0], state[1]
    coefficients = dict(zip(names, map(float, theta), strict=True))
    start = None if me != job.holders[0] else 0.0 if intercept is None else float(np.asarray(intercept)[0])
    return PartyCard(job.scorecard, coefficients, steps, start, learned.days)


def _names(party: str, me: str, source: Any, count: int) -> list[str]:
    """Return what this party may call the columns of a party: its own by their names, others' by numbers."""
    return [one.name for one in source.cut] if party == me else [f"column {number + 1}" for number in range(count)]


def csv_text(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table as the text of a CSV file."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    private_files.write(path, csv_text(header, rows))
