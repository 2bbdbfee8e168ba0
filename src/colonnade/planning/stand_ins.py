"""A rehearsal: this party's own table, partners that are made up, and the job as it would be run.

What others could find out about a party depends on its own columns and rules, on the job, and a little on the partners.
Partners of a rehearsal have correlated normal columns. Where the labels are somebody else's, they follow a random model
of the job's kind from everybody's columns. All of it happens in one process under a virtual clock.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.raw_columns import Numbers
from colonnade.errors import DataError, OptionError
from colonnade.families import family
from colonnade.jobs.budget import Budget
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import Trained
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.policy import Policy
from colonnade.jobs.tree_part import own_part
from colonnade.objective import losses
from colonnade.runtimes.net import Net, Observer
from colonnade.runtimes.simulation import Simulation
from colonnade.service.table_source import TableSource, column_names, how_prepared
from colonnade.service.training import take_part
from colonnade.tables.table import Table
from colonnade.views.kept import KeptView
from colonnade.views.recording import RecordedNet

Floats = npt.NDArray[np.float64]

MOST_ROWS = 50_000  # of its table; a sample of more
_MOST_COLUMNS = 10_000  # of a partner that is made up; their numbers have to fit into memory
_FACTORS, _CLASSES = 3, 3
_ENDLESS = 1e9  # what a stand-in lets out: this party's own rules are what is rehearsed


@dataclass(frozen=True)
class Rehearsed:
    """What a rehearsal came to: each party's source, what it trained, and what it saw."""

    sources: Mapping[str, TableSource]
    trained: Mapping[str, Trained]
    views: Mapping[str, KeptView]
    charged: float  # numbers about each person that this party's budget counted


def rehearse_job(
    job: Job,
    party: PartyFile,
    table: Table,
    columns: Mapping[str, int],
    seed: int,
    observer: Observer | None = None,
    on: Simulation | None = None,
) -> Rehearsed:
    """Run a job with this party's own table and stand-ins for the others; `columns` says how many each of these has.

    on: the lines and speeds of the rehearsal, by default those of every simulation.
    """
    check_rehearsable(job, party.name, columns)
    rng = np.random.default_rng([seed, len(job.parties)])
    rows = np.sort(rng.permutation(table.rows)[:MOST_ROWS])
    table = replace(table.take(rows), ids=None) if table.ids is not None or len(rows) < table.rows else table
    job = replace(job, aligned=True, agreed={**job.agreed, "purpose": "rehearsal"})
    mine = TableSource(table, party.prepare, **how_prepared(job), class_weight=party.data["class_weight"])
    sources = {party.name: mine, **stand_ins(job, party.name, mine, columns, rng)}
    budget = Budget(party.name, party.policy.max_directions)
    views = {name: KeptView(name, job.parties, most=1 << 40) for name in job.parties}
    trained: dict[str, Trained] = {}

    def program_of(name: str) -> Any:
        rules = party if name == party.name else replace(party, name=name, trees=None, network=None, policy=_OPEN)

        async def program(net: Net) -> None:
            source: Any = sources[name]
            seen: Any = RecordedNet(net, views[name])
            check = partial(rules.policy.check_part, name)
            own = lambda prepared: own_part(job, rules, prepared.columns, prepared.categories)  # noqa: E731
            limit = budget if name == party.name else Budget(name, _ENDLESS)
            trained[name] = await take_part(seen, job, source, _nobody, check, None, own, limit)

        return program

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are about people who are made up
        (on or Simulation()).run({name: (program_of(name), ()) for name in job.parties}, observer)
    for name, view in views.items():
        view.rows = trained[name].rows
    return Rehearsed(sources, trained, views, budget.charged)


_OPEN = Policy(min_features=1, min_batch=1)


async def _nobody(*_: Any, **__: Any) -> Any:
    raise DataError("a rehearsal has the same rows at all parties, and aligns none")


def check_rehearsable(job: Job, me: str, columns: Mapping[str, int]) -> None:
    """Refuse a rehearsal of what takes more of the partners than columns, and columns of nobody."""
    for name, count in columns.items():
        if name not in job.parties or name == me:
            others = ", ".join(repr(one) for one in job.parties if one != me)
            raise OptionError(f"--columns names {name!r}, and the others of this job are {others}; correct it")
        if not 1 <= count <= _MOST_COLUMNS:
            raise OptionError(f"--columns says that {name!r} has {count:,} columns; give 1 to {_MOST_COLUMNS:,}")
    if family(job.family).takes_own:
        raise OptionError(
            "a rehearsal makes partners up, and can't make up their networks; record a run instead: record = true "
            "under [audit]"
        )


def stand_ins(
    job: Job, me: str, mine: TableSource, columns: Mapping[str, int], rng: np.random.Generator
) -> dict[str, TableSource]:
    """Return tables of all others, about the same rows."""
    own = _standard(mine)
    made = {name: _made_up(len(own), columns.get(name) or own.shape[1], rng) for name in job.parties if name != me}
    everything = np.column_stack([own, *made.values()])
    found = {}
    for name, X in made.items():
        label = _labels(job, everything, rng) if name in job.holders else None
        if label is not None and mine.labels is not None and losses.loss(job.loss).kind in ("binary", "classes"):
            label = _named(label, np.asarray(mine.labels))
        weights = rng.uniform(0.5, 1.5, len(own)) if name in job.holders and _weighted(job) else None
        named = {f"{name} {number + 1}": Numbers(column) for number, column in enumerate(X.T)}
        table = Table(f"the stand-in of {name!r}", named, None, label, weight=weights)
        found[name] = TableSource(table, None, **how_prepared(job))
    return found


def _weighted(job: Job) -> bool:
    return bool(getattr(job.model, "weighted", False))


def _standard(mine: TableSource) -> Floats:
    """Return this party's own columns as numbers of about the same size, for a random model of them."""
    learned = mine.whole()
    if learned is None or not column_names(learned):
        found = [column.values for column in mine.table.columns.values() if isinstance(column, Numbers)]
        X: Any = np.column_stack(found) if found else np.zeros((mine.rows, 1))
    else:
        X = learned.apply(mine.table)
    X = np.nan_to_num(np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64))
    spread = X.std(axis=0)
    standard: Floats = (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    return standard


def _made_up(rows: int, width: int, rng: np.random.Generator) -> Floats:
    """Return normal columns of which each is half what some factors say, so that they are correlated."""
    factors, loads = rng.standard_normal((rows, _FACTORS)), rng.standard_normal((_FACTORS, width))
    loads /= np.linalg.norm(loads, axis=0)
    found: Floats = np.sqrt(0.5) * (factors @ loads) + np.sqrt(0.5) * rng.standard_normal((rows, width))
    return found


def _named(codes: npt.NDArray[Any], own: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return labels by the texts of this party's own, where it has any: all label holders name classes alike."""
    classes = sorted({one for one in own.tolist() if isinstance(one, str)})
    return np.array([classes[int(code) % len(classes)] for code in codes], dtype=own.dtype) if classes else codes


def _labels(job: Job, X: Floats, rng: np.random.Generator) -> npt.NDArray[Any]:
    """Return labels that follow a random model of the job's kind."""
    loss, rows = losses.loss(job.loss), len(X)
    z = X @ rng.standard_normal((X.shape[1], _CLASSES)) / np.sqrt(X.shape[1])
    if loss.kind == "classes":
        return np.asarray((2.0 * z + rng.gumbel(size=z.shape)).argmax(axis=1), dtype=np.float64)
    if loss.kind == "binary":
        return np.asarray(2.0 * z[:, 0] + rng.logistic(size=rows) > 0.0, dtype=np.float64)
    if loss.kind == "count":
        return np.asarray(rng.poisson(np.exp(np.clip(0.5 * z[:, 0], -3.0, 3.0))), dtype=np.float64)
    noisy = z[:, 0] + 0.5 * rng.standard_normal(rows)
    return np.asarray(np.exp(np.clip(0.5 * noisy, -5.0, 5.0)) if loss.kind == "positive" else noisy)
