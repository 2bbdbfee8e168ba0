"""`colonnade check`: everything that can be known before training, each with its finding."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from colonnade.errors import ColonnadeError
from colonnade.federation import certificates, data, preparation
from colonnade.federation.job import Job
from colonnade.federation.party_file import PartyFile
from colonnade.federation.run import column_names
from colonnade.runtimes.place import Place

_REACH = 3.0  # seconds


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    text: str


def check(job: Job, party: PartyFile) -> list[Finding]:
    """All findings; nothing is sent but a greeting to the peers' doors."""
    found = [Finding("job", True, f"{len(job.parties)} parties, {job.algorithm.name}, sum {job.sum}")]
    found.append(_try("certificates", lambda: _certificates(party)))
    found += _data(job, party)
    place = Place(party.name, job.addresses, party.listen)
    for name in job.parties:
        if name != party.name:
            found.append(_peer(place, name))
    return found


def _try(what: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, look())
    except ColonnadeError as error:
        return Finding(what, False, str(error))


def _certificates(party: PartyFile) -> str:
    certificates.load(party.certificates, party.name)
    return f"{party.certificates.certificate.name}, made out to {certificates.dns_name(party.name)}"


def _data(job: Job, party: PartyFile) -> list[Finding]:
    try:
        table = data.load(party.data)
        columns = column_names(preparation.fit(table, party.prepare))
        batch = job.algorithm.batch_for(table.rows)
        found = [Finding("data", True, f"{table.rows:,} rows, {len(columns)} columns after preparation")]
    except ColonnadeError as error:
        return [Finding("data", False, str(error))]

    def policy() -> str:
        party.policy.check_job(party.name, job.parties, job.sum, len(columns), batch)
        return "allows this job"

    return [*found, _try("policy", policy)]


def _peer(place: Place, name: str) -> Finding:
    address = place.addresses[name]
    if not place.dials(name):
        return Finding(f"peer {name}", True, "dials this party; it is seen when it runs")
    host, _, port = str(address).rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _REACH):
            return Finding(f"peer {name}", True, f"{address} answers")
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding(f"peer {name}", False, f"{address} does not answer ({reason}); it may not be running yet")
