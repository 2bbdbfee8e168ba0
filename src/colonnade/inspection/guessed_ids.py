"""What partners could find out about a party by guessing ids, in alignments and in questions about scores.

That is no matter of one run: it follows from the policy, which says how many ids a partner may bring, about whom this
party answers and about how many. So it is looked at where somebody asks for it (`colonnade audit --services`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator

import numpy as np

from colonnade import private_files
from colonnade.attacks.case import Case
from colonnade.audit.measures import Truth
from colonnade.audit.oracles import Limits, oracle_cases
from colonnade.data.ids import canonical
from colonnade.errors import DataError
from colonnade.jobs import people
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.tables.table import Table
from colonnade.versions.version import Version

_COMMON = 0.5  # the part of a party's people that are taken for common where no version says who is


def service_cases(job: Job, party: PartyFile, table: Table, version: Version | None) -> Iterator[tuple[Case, Truth]]:
    """Return what each partner could find out by guessing; nothing where rows have no ids."""
    if table.ids is None or job.aligned:
        return
    own = [str(one) for one in canonical(np.asarray(table.ids), f"party {party.name!r}").tolist()]
    common = _common(own, version, job.algorithm.seed)
    rules, seed = party.policy, job.algorithm.seed
    if rules.serve_people == "trained":
        served: frozenset[str] | None = frozenset(common)
    else:
        served = people.served(party, party.folder)
    most = rules.people_per_day(None if served is None else len(served))
    limits = Limits(served, rules.min_prediction, most, rules.partner_ids(len(own)))
    others = [name for name in job.parties if name != party.name]
    yield from oracle_cases(limits, party.name, own, common, others, seed)


def _common(own: list[str], version: Version | None, seed: int) -> Collection[str]:
    """Return who is common to all parties, as a version knows; of a rehearsal, some that are drawn."""
    path = None if version is None else version.folder / "people.json"
    if path is None or not path.exists():
        rows = np.random.default_rng([seed, len(own)]).permutation(len(own))[: int(_COMMON * len(own))]
        return {own[row] for row in rows.tolist()}
    try:
        kept = json.loads(private_files.read(path, "the people of the training", DataError))["people"]
        return {str(one) for one in kept}
    except (OSError, KeyError, TypeError, RecursionError, json.JSONDecodeError) as error:
        raise DataError(f"{path.name!r}, which names the people of the training, can't be read ({error})") from None
