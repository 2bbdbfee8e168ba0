"""What `colonnade ledger` does: show what left a party, verify it, and handle receipts of what partners have seen."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.errors import LedgerError, OptionError

if TYPE_CHECKING:
    from colonnade.jobs.job import Job
    from colonnade.jobs.party_file import PartyFile
    from colonnade.ledger.verify import Report


_RUNS = 10  # runs that are shown, the newest


def add_actions(ledger: argparse.ArgumentParser) -> None:
    """Declare the actions on a ledger, and their options."""
    ledger.add_argument(
        "action",
        choices=("show", "verify", "receipts", "accept"),
        help="show what left; verify that nothing was changed; receipts: write what this party has seen of its "
        "partners' ledgers to --out; accept the ledger of --peer as it is now, though it was seen otherwise",
    )
    ledger.add_argument(
        "--receipts", type=Path, action="append", default=[], metavar="FILE",
        help="with verify: what a partner has seen of this ledger, from its own `colonnade ledger receipts`",
    )  # fmt: skip
    ledger.add_argument("--out", type=Path, metavar="FILE", help="with receipts: where they go")
    ledger.add_argument("--peer", metavar="PARTY", help="with accept: whose ledger")


def act(options: argparse.Namespace, job: Job, party: PartyFile) -> int:
    """Do one of these actions, and return the exit code."""
    for option, action in (("receipts", "verify"), ("out", "receipts"), ("peer", "accept")):
        if getattr(options, option) and options.action != action:
            raise OptionError(f"--{option} goes with `colonnade ledger {action}`, not with {options.action!r}")
    found = {"show": _verify, "verify": _verify, "receipts": _receipts, "accept": _accept}
    return found[options.action](options, job, party)


def _verify(options: argparse.Namespace, job: Job, party: PartyFile) -> int:
    from colonnade.ledger.lines import seal_file
    from colonnade.ledger.receipts import read_receipts
    from colonnade.ledger.verify import verify
    from colonnade.remote.signatures import checker, vouched_by

    if not party.ledger.exists() and not seal_file(party.ledger).exists():
        if options.receipts:
            raise LedgerError(f"there is no ledger {party.ledger.name!r} that receipts could be compared with")
        print(f"{party.ledger.name}: there is no ledger yet, as nothing has left {party.name}")
        return 0
    receipts = [receipt for path in options.receipts for receipt in read_receipts(path)]
    report = verify(
        party.ledger, checker(party.certificates.certificate), vouch=vouched_by(party.certificates.authority),
        receipts=receipts, me=party.name, job=job.name,
    )  # fmt: skip
    if options.action == "show":
        _show(job, party, report)
    unsealed = report.lines - report.sealed
    note = f"; the last {unsealed} lines are of a run that was broken off and are not sealed" if unsealed else ""
    runs = "1 run" if report.runs == 1 else f"{report.runs:,} runs"
    print(f"{party.ledger.name}: {report.lines:,} lines of {runs}, all as they were written{note}")
    if options.action == "verify":
        _witnesses(party, report)
    for name in dict.fromkeys(one.statement.by for one in receipts):
        about = [one for one in receipts if one.statement.by == name and one.statement.head.owner == party.name]
        print(f"{party.ledger.name}: holds all that {name} has seen of it, {len(about)} receipts")
    return 0


def _show(job: Job, party: PartyFile, report: Report) -> None:
    """Print what left in each run, by kind of message, and what each kind shows in this job."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from colonnade.jobs.policy import kind_of
    from colonnade.jobs.words import what_kinds_show

    shows, console = what_kinds_show(job), Console()
    runs = [run for run in report.each if run.sent]
    if len(runs) > _RUNS:
        console.print(f"the last {_RUNS} of {len(runs)} runs in which something left {party.name}")
    for run in runs[-_RUNS:]:
        title = f"what left {party.name} in run {run.number} ({run.purpose or 'training'}, {run.time[:16]})"
        table = Table(title=Text(title), title_justify="left")
        for name in ("to", "kind", "messages", "bytes", "what it shows"):
            table.add_column(name, justify="right" if name in ("messages", "bytes") else "left")
        found: dict[tuple[str, str], list[int]] = {}
        for (to, step), count in run.sent.items():
            of = found.setdefault((to, kind_of(step)), [0, 0])
            of[0], of[1] = of[0] + count, of[1] + run.sent_bytes[to, step]
        for (to, kind), (count, size) in sorted(found.items()):
            table.add_row(Text(to), Text(kind), f"{count:,}", f"{size:,}", Text(shows.get(kind, "")))
        console.print(table)


def _witnesses(party: PartyFile, report: Report) -> None:
    """Who has countersigned what, and what can't be proved."""
    from colonnade.ledger.lines import fingerprint, key_file, read_key

    name, lacking = party.ledger.name, report.uncountersigned
    for partner, line in sorted(report.countersigned.items()):
        print(f"{name}: countersigned by {partner} up to line {line:,}")
    for run, partners in lacking:
        print(f"{name}: run {run.number} ({run.name}, {run.time[:16]}) is not countersigned by {', '.join(partners)}")
    for doubt in report.doubts:
        print(f"{name}: note: {doubt}")
    if missing := sum(report.keys.values()):
        own = fingerprint(read_key(party.ledger)) if key_file(party.ledger).exists() else ""
        if missing := missing - report.keys[own]:
            print(f"{name}: note: the key of {missing} runs is not here: what their digests are of can't be proved")


def _receipts(options: argparse.Namespace, job: Job, party: PartyFile) -> int:
    from colonnade.ledger.receipts import write_receipts
    from colonnade.ledger.verify import verify
    from colonnade.remote.signatures import checker

    if options.out is None:
        raise OptionError("where do the receipts go? give --out FILE")
    certificate = party.certificates.certificate
    seen = verify(party.ledger, checker(certificate)).seen
    count = write_receipts(options.out, party.name, certificate.read_bytes(), seen)
    print(f"{party.name}: {count:,} receipts of what it has seen of its partners' ledgers, in {options.out}")
    return 0


def _accept(options: argparse.Namespace, job: Job, party: PartyFile) -> int:
    from colonnade.ledger.ledger import Ledger
    from colonnade.remote import certificates
    from colonnade.remote.signatures import checker, signer

    if options.peer not in job.parties or options.peer == party.name:
        others = ", ".join(name for name in job.parties if name != party.name)
        raise OptionError(f"whose ledger? give --peer, one of {others}, got {options.peer!r}")
    key = certificates.load(party.certificates, party.name).key
    about = {"name": job.name, "me": party.name, "purpose": "accept"}
    ledger = Ledger(party.ledger, signer(key), checker(party.certificates.certificate), run=about)
    try:
        known = bool(ledger.seen_of(options.peer))
        ledger.event("accepted", {"of": options.peer})
    finally:
        ledger.close()
    before = "what was seen of it before does not count any more" if known else "nothing was seen of it before"
    print(f"{party.name}: goes on with the ledger of {options.peer} as it will be shown next; {before}")
    return 0
