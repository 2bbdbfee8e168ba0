"""A party's table as training takes it: rows, labels and weights, and columns that are prepared as its file says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from colonnade.binning.cells import FineColumn
from colonnade.binning.options import BinningOptions
from colonnade.binning.prepared import cells_of, with_bins
from colonnade.blocks.row_blocks import ascending
from colonnade.errors import ColonnadeError, DataError
from colonnade.inspection.recorded import ids_digest
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.tree_part import grows_trees
from colonnade.service.training import Rows
from colonnade.settings.settings import Settings
from colonnade.streams.loading import load
from colonnade.streams.preparing import Storage, prepared
from colonnade.tables import preparation
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.table import Table


def column_names(learned: LearnedPreparation) -> tuple[str, ...]:
    """Return the names of the prepared columns; of sparse ones without names, their numbers."""
    width = learned.sparse.width if learned.sparse is not None else 0
    return learned.names or tuple(f"x{column}" for column in range(width))


def sources(learned: LearnedPreparation) -> int:
    """Count the columns that the prepared ones were made of: whoever works out one level of a category has it."""
    return len({column.name for column in learned.columns}) or len(column_names(learned))


def how_prepared(job: Job) -> dict[str, Any]:
    """Return how the columns of a job's tables are prepared, where a party's file does not say it."""
    return {"trees": grows_trees(job), "reference": job.statistics, "binned": job.binning is not None}


def _all_in_order(rows: Rows, count: int) -> bool:
    return len(rows) == count and ascending(rows)


@dataclass(frozen=True)
class PreparedTable:
    """A table, with what was learned from its training rows."""

    table: Table
    learned: LearnedPreparation
    columns: tuple[str, ...]
    sources: int  # columns that these were made of
    room: Storage

    @property
    def categories(self) -> tuple[int, ...]:
        """The numbers of the columns that hold codes of categories."""
        return self.learned.categories

    def matrix(self, rows: Rows) -> Any:
        """Return these rows, prepared; on the disk, where the party's file allows less memory than they need."""
        return prepared(self.learned, self.table.take(rows), self.room)


class TableSource:
    """A party's table in the form that `training` takes.

    `trees` are prepared otherwise than other models, categories whose coefficients are read have a `reference`, and
    `binned` columns become weights of evidence.
    """

    def __init__(
        self,
        table: Table,
        prepare: Settings | None,
        *,
        trees: bool = False,
        reference: bool = False,
        binned: bool = False,
        class_weight: Any = None,
        room: Storage | None = None,
    ) -> None:
        self.table, self._prepare, self._room = table, prepare, room or Storage()
        self._whole: LearnedPreparation | None = None  # of all rows, where it was asked for
        self._how = {"trees": trees, "reference": reference, "binned": binned}
        self.class_weight = class_weight
        self.rows, self.ids, self.labels, self.weights = table.rows, table.ids, table.label, table.weight
        self.added = table.added
        self.learned: LearnedPreparation | None = None  # as soon as `prepare` or `binned` was called
        self.trained_on: Rows | None = None  # the rows of the training, by then
        self.cut: list[FineColumn] = []  # where columns have bins
        self.found: Any = None

    @classmethod
    def of(cls, job: Job, party: PartyFile) -> TableSource:
        """Read the table that a party's file describes."""
        weights, room = party.data["class_weight"], Storage.of(party.data, party.folder)
        table = load(party.data, home=party.folder)
        return cls(table, party.prepare, **how_prepared(job), class_weight=weights, room=room)

    def prepare(self, rows: Rows) -> PreparedTable:
        """Learn the preparation from these rows."""
        self.trained_on = rows
        if self.table.lazy and self._whole is not None and _all_in_order(rows, self.table.rows):
            self.learned = self._whole  # the columns are not read once more
        else:
            self.learned = preparation.fit(self.table, self._prepare, rows, **self._how)
        return self._prepared(self.learned)

    def cells(self, rows: Rows, options: BinningOptions) -> list[FineColumn]:
        """Learn the preparation from these rows, as far as a party can alone, and cut columns into fine cells."""
        self.learned = preparation.fit(self.table, self._prepare, rows, **self._how)
        self.trained_on, self.cut = rows, cells_of(self.learned, self.table.take(rows), options)
        return self.cut

    def binned(self, found: Any) -> PreparedTable:
        """Learn the rest of the preparation from the bins that were found of these cells."""
        if self.learned is None:
            raise DataError("bins belong to cells; cut the columns into cells first")
        self.found = found
        self.learned = with_bins(self.learned, self.cut, found)
        if not self.learned.columns:
            where = self.table.where
            raise DataError(f"no column of {where} has bins that stay; lower min_iv under [binning], or leave the job")
        return self._prepared(self.learned)

    def _prepared(self, learned: LearnedPreparation) -> PreparedTable:
        return PreparedTable(self.table, learned, column_names(learned), sources(learned), self._room)

    def whole(self) -> LearnedPreparation | None:
        """Learn the preparation from all rows; None where some of these can't be prepared."""
        try:
            self._whole = preparation.fit(self.table, self._prepare, **self._how)
            return self._whole
        except ColonnadeError:
            return None  # the common ones may do; if they don't, the run ends with the reason

    def digest(self) -> bytes:
        """Return a digest of the ids in their order, to which what was kept belongs."""
        return ids_digest(self.table)
