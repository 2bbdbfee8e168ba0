"""Verifies a ledger from its first line to its last: that it is as it was written, and all that partners have seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.errors import CertificateError, LedgerError
from colonnade.ledger.lines import (
    BROKEN,
    OF_RUN,
    START,
    Check,
    Memory,
    chained,
    entry_of,
    is_event,
    lines,
    remembered,
    sealed,
    signature,
    told,
)
from colonnade.ledger.receipts import Receipt, Statement

# (party, certificate in PEM) -> how to check its signatures; CertificateError if it is not that party's
Vouch = Callable[[str, bytes], Check]


@dataclass
class Run:
    """One run, as far as countersignatures go."""

    number: int
    time: str
    name: str
    partners: tuple[str, ...]  # who should have countersigned; nobody before format 2
    id: str = ""
    purpose: str = ""  # "scoring", or nothing for training
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)  # messages by receiver and kind
    sent_bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    mark: int = 0  # its last line, or the one that partners were shown at its end
    done: bool = False


@dataclass
class Report:
    """What a check of a ledger found."""

    lines: int = 0
    runs: int = 0
    sealed: int = 0  # lines up to the last good seal
    by_kind: Counter[tuple[str, str]] = field(default_factory=Counter)  # messages
    bytes_by_kind: Counter[tuple[str, str]] = field(default_factory=Counter)
    memory: Memory = field(default_factory=Memory)
    keys: Counter[str] = field(default_factory=Counter)  # runs by the fingerprint of the key of their digests
    each: list[Run] = field(default_factory=list)
    current: Run | None = None  # the run that the last line is of
    countersigned: dict[str, int] = field(default_factory=dict)  # up to which line, by partner
    doubts: list[str] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)  # this party's statements about others, signed

    @property
    def uncountersigned(self) -> list[tuple[Run, tuple[str, ...]]]:
        """The runs with a partner that has seen neither their end nor anything later."""
        found = []
        for run in self.each:
            lacking = tuple(name for name in run.partners if self.countersigned.get(name, 0) < run.mark)
            if lacking:
                found.append((run, lacking))
        return found


def verify(
    path: Path,
    check: Check,
    *,
    vouch: Vouch | None = None,
    receipts: Sequence[Receipt] = (),
    me: str = "",
    job: str = "",
) -> Report:
    """Read a ledger from its first line to its last; the first thing that is wrong is a `LedgerError`.

    vouch: says whose certificate a countersignature's is; without it none is looked at. receipts: what partners say
    that they have seen of `me`'s ledger in `job`; whatever it is must still be there.
    """
    chain, report = START, Report()
    next(lines(path), None)  # a missing ledger says more than its missing seal
    count_sealed, last = sealed(path, check)
    for number, line in lines(path):
        entry = entry_of(path, number, line)
        if entry.get("n") != number or told(line) != chained(chain, line):
            raise LedgerError(f"line {number} of {path.name!r} {BROKEN}")
        if "seal" in entry and not check(chain, signature(entry["seal"])):
            raise LedgerError(f"line {number} of {path.name!r} has a seal that this party's key did not make")
        chain = told(line)
        if number == 1:
            report.memory.book = chain.decode()
        if number == count_sealed and chain != last:
            raise LedgerError(f"line {number} of {path.name!r} is another one than its seal says")
        if is_event(line):
            remembered(path, number, line, report.memory)
            _event(path, number, entry, report, vouch)
        _count(report, number, entry)
    if report.lines < count_sealed:
        raise LedgerError(
            f"{path.name!r} has {report.lines} lines, its seal says {count_sealed}: lines at the end were removed"
        )
    for receipt in receipts:
        _compare(path, receipt, report, vouch, me, job)
    return report


def _count(report: Report, number: int, entry: dict[str, Any]) -> None:
    report.lines = number
    report.runs += entry.get("event") == "run"
    if "seal" in entry:
        report.sealed = number
    if OF_RUN in entry:
        report.current = next((run for run in report.each if run.id == entry[OF_RUN]), None)
    if report.current is not None and not report.current.done:
        report.current.mark = number
        report.current.done = entry.get("event") == "done"
    if "kind" in entry:
        key = str(entry.get("to")), str(entry["kind"])
        report.by_kind[key] += 1
        size = entry.get("bytes")
        report.bytes_by_kind[key] += size if isinstance(size, int) else 0
        if report.current is not None:
            report.current.sent[key] += 1
            report.current.sent_bytes[key] += size if isinstance(size, int) else 0


def _event(path: Path, number: int, entry: dict[str, Any], report: Report, vouch: Vouch | None) -> None:
    match entry["event"]:
        case "run":
            parties = entry.get("parties")
            partners = [str(one) for one in parties if one != entry.get("me")] if isinstance(parties, list) else []
            said = (str(entry.get("time")), str(entry.get("name", "")), tuple(partners), str(entry.get("id", "")))
            report.current = Run(len(report.each) + 1, *said, str(entry.get("purpose", "")))
            report.each.append(report.current)
            if "key" in entry:
                report.keys[str(entry["key"])] += 1
        case "seen":
            report.seen.append((str(entry["statement"]), str(entry.get("signature"))))
        case "accepted":
            of = entry["of"]
            report.seen = [one for one in report.seen if Statement.parse(one[0]).head.owner != of]
        case "countersigned" if vouch is not None:
            _countersigned(path, number, entry, report, vouch)


def _countersigned(path: Path, number: int, entry: dict[str, Any], report: Report, vouch: Vouch) -> None:
    where, certificate = f"line {number} of {path.name!r}", str(entry.get("certificate")).encode()
    try:
        statement = Statement.parse(entry.get("statement"))
        fits = vouch(statement.by, certificate)
    except ValueError as error:
        if not isinstance(error, CertificateError):
            raise LedgerError(f"{where} holds no countersignature that this version knows: {error}") from None
        # The authority may be another by now; when the line was written, this party had checked it.
        report.doubts.append(f"the countersignature in {where} can't be checked any more: {error}")
        return
    if not fits(statement.to_sign, signature(entry.get("signature"))):
        raise LedgerError(f"{where} has a countersignature that the key of {statement.by!r} did not make")
    if not _holds(report, statement):
        raise LedgerError(f"{where} has a countersignature of {statement.by!r} about another ledger or another line")
    report.countersigned[statement.by] = max(report.countersigned.get(statement.by, 0), statement.head.lines)


def _holds(report: Report, statement: Statement) -> bool:
    head = statement.head
    return head.book == report.memory.book and report.memory.heads.get(head.lines) == head.chain


def _compare(path: Path, receipt: Receipt, report: Report, vouch: Vouch | None, me: str, job: str) -> None:
    """Refuse a ledger that lacks what a partner has seen of it."""
    statement = receipt.statement
    head, by = statement.head, statement.by
    if head.owner != me or (head.book != report.memory.book and statement.job != job):
        return  # about somebody else, or about the ledger of another federation
    if vouch is not None and not vouch(by, receipt.certificate)(statement.to_sign, receipt.signature):
        raise LedgerError(f"the receipt of {by!r} about line {head.lines} is not one that its key made")
    if not _holds(report, statement):
        raise LedgerError(missing(path.name, statement, head.book == report.memory.book))
    report.countersigned[by] = max(report.countersigned.get(by, 0), head.lines)


def missing(name: str, statement: Statement, same_book: bool) -> str:
    """Return the sentence about a ledger that lacks what a partner has seen of it, or holds something else there."""
    lines, by, me = statement.head.lines, statement.by, statement.head.owner
    what = "was rolled back or rewritten" if same_book else "was replaced by another"
    return (
        f"the ledger {name!r} {what}: {by!r} saw {lines} lines of it on {statement.date}, and it does not hold them as "
        f"they were; put the newest ledger, seal and key of {me!r} back, or, if they are lost or the key was renewed, "
        f"ask {by!r} to go on with this one: colonnade ledger accept job.toml --as {by} --peer {me}"
    )
