"""One organisation at one run: its certificate, its ledger, its door, and the line to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from colonnade import __version__, private_files
from colonnade.errors import ColonnadeError, OptionError
from colonnade.jobs.budget import Budget, Used
from colonnade.jobs.job import Job
from colonnade.jobs.label_counts import LabelCounts
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.policy import PolicyDoor
from colonnade.ledger.ledger import Ledger
from colonnade.ledger.witness import Witness
from colonnade.remote import certificates
from colonnade.remote.place import NetworkPlace
from colonnade.remote.signatures import checker, signer
from colonnade.remote.terms import RunTerms
from colonnade.runtimes.net import Net, Observer, Outcome


def place_of(job: Job, party: PartyFile, *, serving: bool) -> NetworkPlace:
    """Return where this party stands among the others; one that serves elsewhere than it trains can do both at once."""
    if serving and job.serving:
        listen = party.listen_serving if party.name in job.serving else party.listen
        return NetworkPlace(party.name, {**job.addresses, **job.serving}, listen, job.hub)
    return NetworkPlace(party.name, job.addresses, party.listen, job.hub)


def attend(
    job: Job,
    party: PartyFile,
    program: Callable[..., Coroutine[Any, Any, Any]],
    read: Callable[[], tuple[Any, ...]],
    *,
    agreed: Mapping[str, Any],
    observer: Observer | None = None,
    mpi: bool = False,
    tell: Callable[[str], None] = lambda _: None,
    budget: Budget | None = None,
    model: Used | None = None,
    rows: Callable[..., int] = lambda *_: 0,
    meet: Callable[[Witness], None] = lambda _: None,
) -> Outcome:
    """Carry out a program with the others. Nothing private is read, by `read`, before every handshake has succeeded.

    agreed: what the others must have agreed on too; the ledger names its digest. mpi: the others are the other ranks of
    this process's MPI job, wherever job.toml says that they are. tell: where words about the run go. budget: of numbers
    about people that may leave. model: the finished one that is put to use, which the budget pays for but once.
    rows: of the party's own table, from what was read: messages about more of them may be longer. meet: gets the
    witness of this run, where partners may leave it and come again.
    """
    credentials = certificates.load(party.certificates, party.name)
    party.policy.check_company(party.name, job.parties, job.summed)
    try:
        private_files.make_folder(party.folder)
    except OSError as error:
        raise OptionError(f"{party.name!r}'s folder {str(party.folder)!r} can't be made: {error.strerror}") from None
    private_files.check(party.folder, f"{party.name!r}'s folder", OptionError)
    digest = RunTerms.of(job.parties, agreed).digest.hex()
    purpose = {key: agreed[key] for key in ("purpose", "asker", "training", "start") if key in agreed}
    partners = place_of(job, party, serving=agreed.get("purpose") == "scoring").peers
    company = [name for name in job.parties if name == party.name or name in partners]
    about = {"job": digest, "name": job.name, "me": party.name, "version": __version__, "parties": company}
    found: list[Any] = []

    async def keep(net: Net, *given: Any) -> None:
        """Keep what the program returns: over a `Net` it would have to travel, and here it may be anything."""
        await witness.begin(net)
        found.append(await program(net, *given))
        await witness.end(net)

    sign, check = signer(credentials.key), checker(party.certificates.certificate)
    # A party may train while it serves, and serves once; each has its own lane of the ledger.
    lane = "scoring" if agreed.get("purpose") == "scoring" else ""
    ledger, how = Ledger(party.ledger, sign, check, run={**about, **purpose}, lane=lane), "stopped"
    if budget is not None:
        budget.keep_in(ledger)
    counts = LabelCounts(party.name, party.policy.max_label_counts, party.policy.max_binnings)
    counts.keep_in(ledger)
    witness = Witness(ledger, party.name, job.name, (sign, check, credentials), tell, partners)
    meet(witness)
    common: dict[str, Any] = {
        "longest": lambda *given: party.policy.message_bytes(rows(*given)),
        "job": agreed, "deadline": job.deadline, "patience": job.patience, "observer": observer,
        "door": PolicyDoor(party.name, party.policy, ledger, budget if model is None else None, counts),
    }  # fmt: skip
    tell(f"waiting for {', '.join(partners)}")
    try:
        if budget is not None and model is not None:
            budget.use(model)
        if mpi:
            from colonnade.remote.mpi import run_party_mpi

            outcome = asyncio.run(run_party_mpi(keep, read, job.parties, **common))
        else:
            from colonnade.remote.network import run_party

            place = place_of(job, party, serving=bool(lane))
            outcome = asyncio.run(run_party(place, keep, read, credentials=credentials, grace=job.grace, **common))
        how = "end"
        return replace(outcome, value=found[0])
    except ColonnadeError:
        how = "failed"
        raise
    finally:
        ledger.close(how)
