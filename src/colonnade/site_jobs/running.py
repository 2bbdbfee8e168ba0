"""`colonnade run` in a job between sites: from two files to the whole model on disk, at every site."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from colonnade.errors import PartyLost, PartySilent
from colonnade.families.store import SUFFIX
from colonnade.jobs.allowed import check_allowed
from colonnade.jobs.consent import words_of
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.words import lines, what_others_learn
from colonnade.ledger.witness import Witness
from colonnade.objective.metrics import METRICS
from colonnade.progress import History
from colonnade.remote import certificates
from colonnade.remote.terms import RunTerms
from colonnade.runtimes.net import Net, Outcome
from colonnade.service.attend import attend
from colonnade.site_jobs.keeping_models import keep, keeper_of
from colonnade.site_jobs.programs import Ended, answer, ask
from colonnade.site_jobs.seat import Seat
from colonnade.site_jobs.site_job import SiteJob
from colonnade.site_jobs.site_rows import network_of, seat_of
from colonnade.streams.files import check_there
from colonnade.versions.version import Version

_BEFORE_AGAIN = 1.0  # seconds


@dataclass(frozen=True)
class SiteDone:
    """What a run left behind."""

    path: Any  # of the model
    version: Version
    in_use: bool
    ended: Ended
    outcome: Outcome
    history: list[dict[str, Any]]


def run_sites(
    job: SiteJob,
    party: PartyFile,
    *,
    verbose: int = 1,
    tell: Callable[[str], None] = lambda _: None,
) -> SiteDone:
    """Take part in a job as who asks or as a site, and save the model.

    A site that loses the line to who asks joins anew, for as long as `patience` lets it wait.
    """
    check_sites_allowed(job, party)
    if party.name in job.sites:
        check_there(party.data)
    history = History(METRICS["classes"], job.algorithm.rounds or 0, verbose)
    credentials = certificates.load(party.certificates, party.name)
    digest = RunTerms.of(job.parties, job.agreed).digest
    seats: list[Seat] = []
    witnesses: list[Witness] = []

    def read() -> tuple[Any, ...]:
        tell(f"protection {words_of(job)}")
        if party.name in job.sites and not seats:
            seats.append(seat_of(job, party, credentials, tell))
        learnt = what_others_learn(job, party.name, rows=seats[0].counts[0] if seats else None)
        for line in lines(learnt) if party.name in job.sites else []:
            tell(line)
        return ()

    async def program(net: Net) -> Ended:
        own, network = seats[0] if seats else None, network_of(party)
        if party.name == job.server:
            more: dict[str, Any] = {"keeper": keeper_of(job, party), "tell": tell, "witness": witnesses[-1]}
            return await ask(net, job, own, digest, network=network, **more)
        return await answer(net, job, seats[0], digest, network, tell)

    def observe(name: str, seconds: float, value: Any) -> None:
        if value[0] == "resumed":
            tell(f"going on from round {value[1]}")
        history.observe(name, seconds, value)

    common: dict[str, Any] = {
        "agreed": job.agreed, "observer": observe, "tell": tell, "meet": witnesses.append,
        "rows": lambda: seats[0].counts[0] if seats else 0,
    }  # fmt: skip
    try:
        while True:
            try:
                outcome = attend(job, party, program, read, **common)
                break
            except (PartyLost, PartySilent) as error:
                joined = not (isinstance(error, PartySilent) and error.step == "joining")
                if party.name == job.server or error.party != job.server or not joined:
                    raise
                tell(f"{error}; joining anew, for {job.patience:g} s at most")
                time.sleep(_BEFORE_AGAIN)
    finally:
        history.close()
    ended: Ended = outcome.value
    version, in_use = keep(job, party, ended, history.records, seats[0].training_rows if seats else None)
    path = version.folder / f"{party.name}{SUFFIX}"
    return SiteDone(path, version, in_use, ended, outcome, history.records)


def check_sites_allowed(job: SiteJob, party: PartyFile) -> None:
    """Refuse a job that shows more of a site's rows than its policy allows; who asks without rows has none to show."""
    if party.name in job.sites:
        check_allowed(job, party)
