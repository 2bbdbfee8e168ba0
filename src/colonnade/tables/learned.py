"""What a preparation learned, applied to rows and saved beside the party's part of the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.party import Party
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError
from colonnade.tables.category_steps import MISSING, Categories, Floats, LastStep, OneHot, unseen
from colonnade.tables.dates import PARTS, Date
from colonnade.tables.filling import Filling
from colonnade.tables.sparse_preparation import SparsePreparation
from colonnade.tables.steps import Impute, NumberStep, UnfitRow, step_from_value, step_to_value
from colonnade.tables.table import Table
from colonnade.tables.woe import Woe

Array = npt.NDArray[Any]
PREPARATION, _SCALES = "preparation", "preparation_scales"  # in a party's part of a model
_SPARSE = 4  # a matrix is CSR if fewer than one of so many cells are filled


@dataclass(frozen=True)
class Column:
    """The steps of one column, as learned."""

    name: str
    text: bool
    steps: tuple[NumberStep, ...]
    last: LastStep | None  # what categories become, if the column is made of them
    named: bool  # in the file, rather than by default; told to whoever reads a model's file
    gaps: bool = False  # whether missing numbers stay missing
    date: Date | None = None  # how its dates become numbers, before all other steps

    @property
    def called(self) -> str:
        """What it is called from now on: by its own name, or by a part of its dates, like joined.month."""
        return self.name if self.date is None or self.date.part == "days" else f"{self.name}.{self.date.part}"

    def outputs(self) -> list[str]:
        """Return the names of the columns that it becomes."""
        marks = [f"{self.called}={MISSING}" for step in self.steps if isinstance(step, Impute) and step.indicator]
        if isinstance(self.last, OneHot):
            return [f"{self.called}={category}" for category in self.last.outputs()]
        return [self.called, *(marks if self.last is None else [])]

    def numbers(self, values: Array) -> tuple[Floats, list[Floats]]:
        """Return the numbers after all steps but the one for categories, and where they were imputed."""
        x = values.astype(np.float64)
        infinite = np.isinf(x)
        if infinite.any():
            raise UnfitRow(int(infinite.argmax()), "has an infinite value in {row}; correct it, or make it missing")
        marks = []
        for step in self.steps:
            if isinstance(step, Impute) and step.indicator:
                marks.append(np.isnan(x).astype(np.float64))
            with np.errstate(over="ignore"):
                step.apply(x)
        unfit = np.isinf(x) if self.gaps else ~np.isfinite(x)
        if self.last is None and unfit.any():
            row = int(unfit.argmax())
            if np.isnan(values[row]):
                raise UnfitRow(row, "has no value in {row}, and no step that fills it; add impute, and train anew")
            raise UnfitRow(row, f"has {values[row]:.4g} in {{row}}, which its steps make too large; clip it")
        return x, marks

    def fitting(self, column: Numbers | Texts | None) -> Numbers | Texts:
        """Return the column of a table as this one needs it; an empty one is of either kind."""
        if column is None:
            raise ValueError("is missing; give the same columns as in training")
        if self.text and isinstance(column, Numbers):
            if not np.isnan(column.values).all():
                raise ValueError("holds numbers here and held text in training; list it under text")
            column = Texts(np.full(len(column.values), -1, dtype=np.int32), np.empty(0, dtype=object))
        if self.date is not None and (self.text or isinstance(column, Numbers)):
            return self.date.numbers(column)
        if not self.text and isinstance(column, Texts):
            if (column.codes >= 0).any():
                raise ValueError("holds text here and held numbers in training; correct the values that are no numbers")
            return Numbers(np.full(len(column.codes), np.nan))
        return column

    def to_value(self) -> dict[str, Any]:
        """Return the column as JSON can hold it."""
        last = None if self.last is None else step_to_value(self.last)
        steps = [step_to_value(step) for step in self.steps]
        found = {"name": self.name, "text": self.text, "steps": steps, "hot": last, "named": self.named}
        found |= {"gaps": True} if self.gaps else {}
        return found if self.date is None else {**found, "date": [self.date.format, self.date.part]}

    @classmethod
    def from_value(cls, value: Any) -> Column:
        """Make a column from what `to_value` returned."""
        steps = []
        for one in value["steps"]:
            step = step_from_value(one)
            if isinstance(step, (OneHot, Categories, Woe)):
                raise ValueError(f"{step.name} is not the last step")
            steps.append(step)
        last = None if value["hot"] is None else step_from_value(value["hot"])
        date = None
        if "date" in value:
            form, part = value["date"]
            if not isinstance(form, str) or part not in PARTS:
                raise ValueError("the date is none that is known")
            date = Date(form, part)
        bare = value["text"] and date is None
        if not (last is None or isinstance(last, (OneHot, Categories, Woe))) or (bare and (last is None or steps)):
            raise ValueError("the steps do not fit the column")
        how = (bool(value["named"]), bool(value.get("gaps", False)))
        return cls(str(value["name"]), bool(value["text"]), tuple(steps), last, *how, date)


@dataclass(frozen=True)
class LearnedPreparation:
    """The steps of every column, as learned from the training rows."""

    columns: tuple[Column, ...] = ()
    sparse: SparsePreparation | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of text: new rows must be read with `load(..., texts=prepared.texts)`."""
        return tuple(column.name for column in self.columns if column.text)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the output columns; None for sparse columns without names."""
        if self.sparse is not None:
            return self.sparse.names
        seen: dict[str, int] = {}
        names = []
        for name in (name for column in self.columns for name in column.outputs()):
            seen[name] = seen.get(name, 0) + 1
            names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
        return tuple(names)

    @property
    def categories(self) -> tuple[int, ...]:
        """The numbers of the prepared columns that hold codes of categories."""
        widths = [len(column.outputs()) for column in self.columns]
        starts = [sum(widths[:number]) for number in range(len(widths))]
        coded = (isinstance(column.last, Categories) for column in self.columns)
        return tuple(at for at, is_coded in zip(starts, coded, strict=True) if is_coded)

    @property
    def weighed(self) -> dict[str, Woe]:
        """The bins of each prepared column that holds weights of evidence, by its name."""
        return {column.called: column.last for column in self.columns if isinstance(column.last, Woe)}

    @property
    def levels(self) -> dict[str, tuple[tuple[int, ...], str | None]]:
        """The columns of each category: {name: (the numbers of its prepared columns, its reference or None)}."""
        found, at = {}, 0
        for column in self.columns:
            width = len(column.outputs())
            if isinstance(column.last, OneHot):
                left = column.last.left_out
                found[column.called] = (
                    tuple(range(at, at + width)),
                    None if left is None else column.last.levels()[left],
                )
            at += width
        return found

    @property
    def days(self) -> tuple[str, ...]:
        """The columns of dates that are counted in days, as `dated` calls them."""
        return tuple(one.called for one in self.columns if one.date is not None and one.date.part == "days")

    def dated(self, table: Table) -> Table:
        """Return a table with the numbers that dates become in place of their texts, before all other steps.

        A part of a date is a column of its own. What is no date is missing here; `apply` refuses it.
        """
        dates: dict[str, dict[str, Date]] = {}
        for column in self.columns:
            if column.date is not None:
                dates.setdefault(column.name, {})[column.called] = column.date
        if table.sparse or not dates:
            return table
        found: dict[str, Numbers | Texts] = {}
        for name, source in table.columns.items():
            parts = {called: date.numbers(source, strict=False) for called, date in dates.get(name, {}).items()}
            found |= parts or {name: source}
        return replace(table, columns=found)

    def unseen(self, table: Table) -> dict[str, tuple[int, list[str]]]:
        """Return {column: (rows, values)} of values that the training rows did not have, the most frequent one first.

        Rows of such values are prepared as others, or as the reference where nobody was an other in training.
        """
        found = {}
        for column in self.columns:
            source = table.columns.get(column.name) if self.sparse is None else None
            if column.last is None or source is None or column.date is not None:
                continue
            if isinstance(source, Texts):
                values, counts = source.categories, np.bincount(source.codes[source.codes >= 0])
                values = values[: len(counts)]
            else:
                x, _ = column.numbers(source.values)
                values, counts = np.unique(x[~np.isnan(x)], return_counts=True)
            often = {value: int(count) for value, count in zip(values.tolist(), counts.tolist(), strict=True) if count}
            new = sorted(unseen(column.last, list(often)), key=lambda value: -often[value])
            if new:
                found[column.name] = (sum(often[value] for value in new), [str(value) for value in new])
        return found

    def apply(self, table: Table, dtype: Any = None, numbers: Array | None = None) -> Any:
        """Prepare the columns of a table: a C-ordered array, or CSR where most of it would be zeros.

        dtype: of the prepared numbers; by default float32 where all columns are. numbers: those of the table's rows,
        where it is a part of a larger one, for errors.
        """
        if table.sparse != (self.sparse is not None):
            kinds = ("sparse", "named columns") if table.sparse else ("named columns", "sparse")
            raise DataError(f"{table.where} is {kinds[0]} and the training rows were {kinds[1]}; give the same kind")
        if self.sparse is not None:
            matrix = self.sparse.apply(table)
            return matrix if dtype is None else matrix.astype(dtype, copy=False)
        columns = []
        for column in self.columns:
            try:
                columns.append((column, column.fitting(table.columns.get(column.name))))
            except ValueError as error:
                raise DataError(f"column {column.name!r} of {table.where} {error}") from None
        if dtype is None:
            given = [source.values.dtype for _, source in columns if isinstance(source, Numbers)]
            small = given and all(kind == np.float32 for kind in given) and not self.weighed
            dtype = np.float32 if small else np.float64
        filling = Filling(table.where, columns, table.rows, numbers)
        return filling.csr(dtype) if _SPARSE * filling.filled < filling.width else filling.dense(dtype)

    def party(self, name: str, table: Table) -> Party:
        """Return the prepared table as a party."""
        X = self.apply(table)
        beside: dict[str, Any] = {"sample_weight": table.weight, "offset": table.offset, "exposure": table.exposure}
        return Party(name, X, table.label, table.ids, columns=self.names, categories=self.categories, **beside)

    # -- keep ---------------------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, Array]:
        """Return arrays, to be stored among those of the party's part of the model."""
        value: dict[str, Any] = {"columns": [column.to_value() for column in self.columns], "sparse": None}
        arrays = {}
        if self.sparse is not None:
            value["sparse"] = self.sparse.to_value()
            arrays[_SCALES] = self.sparse.scales
        return {PREPARATION: np.array(json.dumps(value)), **arrays}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array]) -> LearnedPreparation:
        """Make a preparation from what `to_arrays` returned."""
        try:
            value = json.loads(str(arrays[PREPARATION]))
            columns = tuple(Column.from_value(column) for column in value["columns"])
            if value["sparse"] is None:
                return cls(columns)
            return cls(sparse=SparsePreparation.from_value(value["sparse"], arrays[_SCALES]))
        except (KeyError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"this is no preparation that Colonnade saved ({error}); train and save the model anew"
            ) from None
