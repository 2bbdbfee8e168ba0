"""Which classes the rows of a site have, how many rows of each are in a batch, and which classes all sites agree on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.labels import show
from colonnade.errors import DataError, LabelError
from colonnade.horizontal.site_work import share_of
from colonnade.site_jobs.site_job import SiteJob
from colonnade.tables.table import Table

Array = npt.NDArray[Any]


def check_held_out_rows(name: str, rows: int, min_rows: int) -> None:
    """Refuse to hold out a few rows only: how well the model fits one row tells its label."""
    if 0 < rows < min_rows:
        raise DataError(
            f"site {name!r} holds {rows} rows out, and its policy answers about {min_rows} or more, as a cost of few "
            f"rows shows their labels; bring more rows, have part under [validation] raised or left out, or lower "
            f"min_rows under [policy]"
        )


def numbers_of(job: SiteJob, classes: Sequence[Any], labels: Any) -> tuple[Array, Array]:
    """Return the number of each row's class, and of the class with a cost of its own that it is in (-1: of none)."""
    known = np.array(classes)
    y = np.searchsorted(known, np.asarray(labels).astype(known.dtype)).astype(np.int64)
    groups = np.full(len(y), -1, dtype=np.int64)
    for number, key in enumerate(job.stated(classes).rows.keys):
        groups[known[y] == key] = number
    return y, groups


def smallest_batch(job: SiteJob, classes: Sequence[Any], labels: Any) -> int:
    """Return how many rows the smallest batch has: a class with a cost of its own has its share, and a gradient."""
    _, groups = numbers_of(job, classes, labels)
    batch = job.algorithm.batch_for(len(groups))
    counts = np.bincount(groups[groups >= 0]).tolist()
    return min([batch, *(share_of(batch, count, len(groups)) for count in counts if count)])


def own_classes(job: SiteJob, name: str, table: Table) -> Array:
    """Return the classes of a site's own labels; refuse those that are none, or not among the job's."""
    if table.label is None or not table.rows:
        raise LabelError(f"site {name!r} has no row with a label; name the column with label under [data]")
    found = np.unique(np.asarray(table.label.tolist()))
    if found.dtype.kind == "f":
        if (found != np.trunc(found)).any():
            raise LabelError(f"the labels of site {name!r} are numbers with fractions, classes are needed")
        found = found.astype(np.int64)
    if found.dtype.kind not in "iuUb":
        raise LabelError(f"the labels of site {name!r} are neither all text nor all whole numbers")
    if job.classes:
        wanted = np.array(job.classes)
        alike = (wanted.dtype.kind == "U") == (found.dtype.kind == "U")
        strange = found[~np.isin(found, wanted)] if alike else found
        if len(strange):
            raise LabelError(
                f"site {name!r} has labels {show(strange)} that are not among classes of the job, {show(wanted)}; "
                f"correct them, or add them to classes under [model] at all sites"
            )
    return found


def agreed_classes(job: SiteJob, told: Mapping[str, tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the classes of all sites; refuse different ones, unless the job names all of them."""
    if job.classes:
        return tuple(np.unique(np.array(job.classes)).tolist())
    first, *others = told
    for site in others:
        if told[site] != told[first]:
            here, there = (json.dumps(list(told[name])[:8], ensure_ascii=False) for name in (site, first))
            raise LabelError(
                f"site {site!r} has the classes {here}, {first!r} has {there}; if both are right, give all of them as "
                f"classes = [...] under [model] in job.toml"
            )
    if len(told[first]) < 2:
        raise LabelError(f"all rows of all sites are of one class, {told[first][0]!r}; at least two are needed")
    return told[first]
