"""What `colonnade check` says of boosted trees: the cells of a party's columns, and how much of them is told."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from colonnade.algorithms.boosted import OpenBoosting
from colonnade.boosting.options import TreePart, check_rows
from colonnade.data.party import Party
from colonnade.families.trees import bins_of, least_rows
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.tree_part import own_part, ranges
from colonnade.service.findings import Finding, tried
from colonnade.service.scoring import columns_of
from colonnade.service.table_source import column_names
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.table import Table


def labelled_rows(party: PartyFile, table: Table) -> Any:
    """Return which rows of a label holder's table have a label."""
    return Party(party.name, np.zeros((table.rows, 1)), table.label).labelled


def cells_and_ranges(job: Job, party: PartyFile, table: Table, prepared: LearnedPreparation) -> list[Finding]:
    """Return what becomes of a party's columns, by all its rows, of which those in common are a part."""
    constant: list[str] = []
    columns = column_names(prepared)
    algorithm, leads = cast(OpenBoosting, job.algorithm), party.name in job.holders

    def cells() -> str:
        own = TreePart(*own_part(job, party, columns, prepared.categories))
        check_rows(party.name, table.rows, job.model.bins)
        found = bins_of(party.name, columns_of(prepared.apply(table)), job.model, algorithm, own, leads=leads)
        constant.extend(name for name, count in zip(columns, found.counts.tolist(), strict=True) if count < 2)
        most, rows = int(found.counts.max()), least_rows(algorithm, own, leads=leads)
        text = f"up to {most} {'cell' if most == 1 else 'cells'} in each of {len(columns)} columns"
        return text if rows == 1 else f"{text}, of {rows} rows at least"

    def guarantee() -> str:
        all_of_them = f"your {len(columns)} columns" if len(columns) > 1 else "your column"
        if leads:
            return f"nobody learns a value of {all_of_them}, or a range of one"
        each = "each of " if len(columns) > 1 else ""
        return f"of {each}{all_of_them} {job.holders[0]} will learn at most {ranges(job)} ranges"

    found = [tried("cells", cells)]
    lacking = 0 if table.label is None else int((~np.asarray(labelled_rows(party, table))).sum())
    if lacking:
        words = f"{lacking:,} rows have no label, and trees need one for every row; leave these rows out of the table"
        found.append(Finding("unlabelled", False, words))
    if constant:
        names = ", ".join(map(repr, constant[:5])) + (f" and {len(constant) - 5} more" if len(constant) > 5 else "")
        cant = "has no two cells of so many rows, or is constant, and is never asked about; exclude it"
        if len(constant) > 1:
            cant = "have no two cells of so many rows, or are constant, and are never asked about; exclude them"
        found.append(Finding("unused", None, f"{names} {cant}"))
    return [*found, Finding("ranges", None, guarantee())]
