"""`colonnade check` in a job between sites: everything that one of them can know before anything is sent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from colonnade.errors import ColonnadeError, DataError, PolicyRefused
from colonnade.horizontal.messages import describe_model
from colonnade.horizontal.program import wait_of
from colonnade.integrations.watching import check_watch
from colonnade.jobs.consent import words_of
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.words import what_others_learn
from colonnade.service.agreeing import share_out
from colonnade.service.check import own_certificates, own_folder, seen_peer
from colonnade.service.findings import Finding, tried
from colonnade.site_jobs.class_rows import check_held_out_rows, own_classes, smallest_batch
from colonnade.site_jobs.common_steps import NOTHING, chains_of, kinds_of
from colonnade.site_jobs.running import check_sites_allowed
from colonnade.site_jobs.site_job import SiteJob
from colonnade.site_jobs.site_rows import labelled, network_of
from colonnade.site_jobs.survey import own_levels
from colonnade.tables.near_levels import near_levels
from colonnade.tables.table import Table


def check_site(job: SiteJob, party: PartyFile) -> list[Finding]:
    """Return all findings; nothing is sent but a greeting to the peers' doors."""
    how = f"{len(job.sites)} sites, {job.server} asks, {job.algorithm.name}, {job.minimum_sites} or more answer"
    found = [Finding("job", True, how), Finding("protection", None, words_of(job))]
    found.append(tried("certificates", lambda: own_certificates(party)))
    found.append(tried("folder", lambda: own_folder(party)))
    found.append(tried("deadline", lambda: _times(job)))
    found += [tried("watch", lambda: check_watch(party.watch))] if party.watch.names else []
    notes: list[Finding] = []
    if party.name in job.sites:
        try:
            table = labelled(job, party, lambda text: notes.append(Finding("rows", None, text)))
        except ColonnadeError as error:
            found.append(Finding("data", False, str(error)))
        else:
            found += [*notes, *_rows(job, party, table)]
    partners = [name for name in job.parties if name != party.name and job.server in (name, party.name)]
    return [*found, *(seen_peer(job, party, name) for name in partners)]


def _times(job: SiteJob) -> str:
    wait = wait_of(job.algorithm.as_value(), job.deadline)
    return f"a site that is silent for {wait:.3g} s is left out of a round"


def _rows(job: SiteJob, party: PartyFile, table: Table) -> list[Finding]:
    train, apart = share_out(np.arange(table.rows), job.validation, job.algorithm.seed)
    least = party.policy.min_rows

    def data() -> str:
        if len(train) < least:
            raise DataError(
                f"{len(train)} rows to train on, and the policy of {party.name!r} answers about {least} or more; bring "
                f"more rows, or lower min_rows under [policy]"
            )
        check_held_out_rows(party.name, len(apart), least)
        more = f", {len(apart):,} held out" if len(apart) else ""
        return f"{table.rows:,} rows with a label, {len(table.columns)} columns{more}"

    def steps() -> str:
        kinds = kinds_of(table.take(train), job.prepare)
        told = own_levels(table.take(train), chains_of(kinds, job.prepare), least)
        rare = [name for name, kind in kinds.items() if kind == NOTHING]
        words = f"categories that other parties hear of: {', '.join(f'{n} {len(v)}' for n, v in told.items())}"
        empty = f"; without a value here: {', '.join(rare)}" if rare else ""
        return ("every column can be prepared by sums" + (f"; {words}" if told else "")) + empty

    def labels() -> str:
        classes = own_classes(job, party.name, table)
        return f"{len(classes)} classes: {', '.join(map(repr, classes.tolist()))}"

    def policy() -> str:
        check_sites_allowed(job, party)
        party.policy.check_company(party.name, [name for name in job.parties if name == job.server], None)
        classes = job.classes or own_classes(job, party.name, table).tolist()
        batch = smallest_batch(job, classes, table.take(train).label)
        if batch < party.policy.min_batch:
            raise PolicyRefused(
                f"batches have {batch} rows, the policy of {party.name!r} asks for {party.policy.min_batch} at least; "
                f"raise batch under [algorithm], or lower min_batch"
            )
        party.policy.check_rounds(party.name, job.algorithm.rounds or 0)
        return "allows this job"

    def network() -> str:
        made = describe_model(len(table.columns), max(2, len(job.classes)), 0, False, network_of(party))
        size = sum(int(np.prod(shape)) for shape in made[2])
        return f"about {size:,} parameters, by the columns as they are and {max(2, len(job.classes))} classes"

    checks: list[tuple[str, Callable[[], str]]] = [
        ("data", data), ("preparation", steps), ("labels", labels), ("policy", policy),
    ]  # fmt: skip
    checks += [("network", network)] if job.model.network else []
    found = [tried(name, one) for name, one in checks]
    found += [Finding("spelling", None, sentence) for sentence in near_levels(table)]
    shown = what_others_learn(job, party.name, rows=len(train))
    return [*found, *(Finding(about, None, "\n".join(told) or "nothing") for about, told in shown.items())]
