"""What a party's own file says about boosted trees: what may be learnt of its columns, and how scores follow them.

[policy]
max_ranges = 8            # of a column that the label holder may learn
max_questions = 256       # sums over cells that are answered in a run
min_noise = 5.0           # on them, in units of what one person counts at most
min_cell = 10             # training rows in a cell
[trees]
monotone = { income = -1, debts = 1 }     # scores may only fall with income, and only rise with debts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from colonnade.algorithms.boosted import OpenBoosting
from colonnade.boosting.options import TreePart
from colonnade.boosting.questions import questions_of
from colonnade.families import family
from colonnade.families.protection import SEALED
from colonnade.families.trees import TreesFamily
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.settings.settings import Settings, nearest


def grows_trees(job: Job) -> bool:
    """Return whether a job trains boosted trees."""
    return isinstance(family(job.family), TreesFamily)


def limits(job: Job, party: PartyFile) -> TreePart:
    """Return what a party's policy allows; of the label holder's own columns nobody is told anything."""
    if party.name in job.holders:
        return TreePart()
    rules = party.policy
    return TreePart(
        most_ranges=rules.ranges_at_most(job.protection),
        least_rows=rules.min_cell,
        most_questions=rules.max_questions,
        least_noise=rules.min_noise,
    )


def check_limits(job: Job, party: PartyFile) -> None:
    """Refuse a job that would show more of a party's columns than it allows, before anybody is dialled.

    How many classes there are is not known yet; once it is, training asks again.
    """
    if grows_trees(job) and party.name not in job.holders:
        noise = cast(OpenBoosting, job.algorithm).noise_on_sums
        limits(job, party).check_limits(party.name, ranges(job), questions(job), noise)


def ranges(job: Job) -> int:
    """Return how many ranges of a partner's column the label holder learns, at most."""
    return min(cast(OpenBoosting, job.algorithm).ranges_at_most, int(job.model.bins))


def questions(job: Job, outputs: int = 1) -> int:
    """Return how many sums over its cells a partner is asked for, at most."""
    rounds = family(job.family).rounds(job.training(outputs))
    return questions_of(rounds, outputs) if job.protection == SEALED else 0


def own_part(job: Job, party: PartyFile, columns: Sequence[str], categories: Sequence[int]) -> Any:
    """Return what a party brings beside its prepared columns, as a wire value: for trees, or its network."""
    if not grows_trees(job):
        return party.network
    found = limits(job, party)
    signs = _signs(party.trees, columns, categories)
    return replace(found, categories=tuple(categories), monotone=signs).as_value()


def _signs(given: Settings | None, columns: Sequence[str], categories: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return (column, 1 or -1) for each column that the file names; refuse unknown ones, and categories."""
    if given is None:
        return ()
    asked, places = given["monotone"], {name: number for number, name in enumerate(columns)}
    for name in asked:
        if name not in places:
            known = f"{', '.join(columns[:8])}{', ...' if len(columns) > 8 else ''}"
            guess = nearest(name, list(columns))
            raise asked.error(name, f"after preparation there is no column {name!r}, there are {known}{guess}")
        if places[name] in categories:
            raise asked.error(name, f"column {name!r} holds categories, and these have no order; remove it")
    return tuple((places[name], sign) for name, sign in asked.items())
