"""`colonnade run` in a job between sites: from two files to the whole model on disk, at every site."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from colonnade import __version__
from colonnade.errors import PartyLost, PartySilent
from colonnade.events.run_events import RunEvents
from colonnade.events.watchers import Watcher
from colonnade.families import family
from colonnade.families.store import SUFFIX
from colonnade.jobs.allowed import check_allowed, job_digest
from colonnade.jobs.consent import words_of
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.words import lines, what_others_learn
from colonnade.ledger.witness import Witness
from colonnade.objective.metrics import METRICS
from colonnade.progress import History
from colonnade.remote import certificates
from colonnade.remote.terms import RunTerms
from colonnade.runtimes.net import Net, Outcome
from colonnade.service.attend import attend, place_of
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
    watchers: Iterable[Watcher] = (),
) -> SiteDone:
    """Take part in a job as who asks or as a site, and save the model.

    A site that loses the line to who asks joins anew, for as long as `patience` lets it wait.

    watchers: each is called with the events of the run (`events.event`) from when it is sure that it begins. A site
    hears losses at the end, as its terminal does.
    """
    check_sites_allowed(job, party)
    if party.name in job.sites:
        check_there(party.data)
    events = RunEvents(watchers, METRICS["classes"])
    with events.run(_facts(job, party)):
        done = _run(job, party, events, verbose=verbose, tell=events.telling(tell))
        events.done(
            training=done.version.training, in_use=done.in_use, rows=done.ended.rows, held_out=done.ended.held_out,
            seconds=done.outcome.seconds,
        )  # fmt: skip
    return done


def _facts(job: SiteJob, party: PartyFile) -> dict[str, Any]:
    """Return what the first event of a run says: what is trained, how, and with whom."""
    return {
        "run": secrets.token_hex(8), "job": job.name, "digest": job_digest(job), "version": __version__,
        "party": party.name, "partners": list(place_of(job, party, serving=False).peers),
        "holders": list(job.holders), "asks": job.server, "protection": job.protection,
        "model": family(job.family).estimator(job.loss), "algorithm": job.algorithm.name, "epochs": job.most_rounds,
    }  # fmt: skip


def _run(job: SiteJob, party: PartyFile, events: RunEvents, *, verbose: int, tell: Callable[[str], None]) -> SiteDone:
    """Do what `run_sites` promises, as its watchers look on."""
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
        events.traffic = net.traffic
        own, network = seats[0] if seats else None, network_of(party)
        if party.name == job.server:
            more: dict[str, Any] = {"keeper": keeper_of(job, party), "tell": tell, "witness": witnesses[-1]}
            return await ask(net, job, own, digest, network=network, **more)
        return await answer(net, job, seats[0], digest, network, tell)

    def observe(name: str, seconds: float, value: Any) -> None:
        if value[0] == "resumed":
            tell(f"going on from round {value[1]}")
        events.observe(seconds, value)
        history.observe(name, seconds, value)

    common: dict[str, Any] = {
        "agreed": job.agreed, "observer": observe, "tell": tell, "meet": witnesses.append,
        "rows": lambda: seats[0].counts[0] if seats else 0, "onlooker": events.observe if events else None,
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
