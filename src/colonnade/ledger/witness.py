"""Partners as witnesses of each other's ledgers: at the start of a run they compare, at its end they countersign.

    all -> all    ledger head: how far my ledger is, signed; and what I have seen of yours before
    all -> all    ledger receipt: "I have seen this head of yours", signed

A party whose ledger lacks what a partner has seen of it ends the run before it begins: it was rolled back, or replaced.
A receipt goes out only after that comparison, and only who has got one takes the partner's head for seen; so a head of
a ledger that was rolled back never takes the place of the one that shows it. At the end nothing of this is worth a
model: who is gone, or does not answer within the deadline, is noted as missing, and its word is made up for at the
start of the next run.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from colonnade.errors import CertificateError, ColonnadeError, LedgerError, ProtocolError
from colonnade.ledger.ledger import Ledger, Sign
from colonnade.ledger.lines import Check, signature
from colonnade.ledger.receipts import MOST_CERTIFICATE, MOST_TEXT, Head, Statement
from colonnade.ledger.verify import missing
from colonnade.remote.certificates import Credentials
from colonnade.remote.signatures import vouched
from colonnade.runtimes.net import Net

_MOST_SIGNATURE = 1 << 12  # bytes; that of an RSA key of 16,384 bits has 2,048
_MOST_SEEN = 16  # statements that are told: the last of this job, and the newest of those of other jobs and ledgers
_LONGEST_REASON = 300  # characters
SILENT, LATE = "it did not show its own ledger", "it did not answer"


@dataclass(frozen=True)
class Shown:
    """What a partner has shown of its ledger."""

    head: Head
    proof: bytes  # its signature
    check: Check  # of its signatures
    certificate: bytes
    seen: tuple[Statement, ...]  # of this party's ledger


class Witness:
    """One party's side of the exchange, for one run."""

    def __init__(
        self,
        ledger: Ledger,
        me: str,
        job: str,
        keys: tuple[Sign, Check, Credentials],
        tell: Callable[[str], None],
        partners: Collection[str] = (),
    ) -> None:
        self._ledger, self._me, self._job, self._tell = ledger, me, job, tell
        self._partners = partners  # those that this party has a line to; none named is all of the run
        self._ended: set[str] = set()  # those for whom the run is over
        self.absent: Collection[str] = ()  # those of them that are not there at the end
        self._sign, self._check, self._credentials = keys
        self._vouch = vouched(self._credentials.authority)
        # What was seen before this run: another process of this party may meanwhile see later lines of a partner than
        # those that are shown here.
        self._before = {peer: ledger.seen_of(peer) for peer in ledger.partners}

    # -- the start of a run -------------------------------------------------------------------------------------

    async def begin(self, net: Net) -> None:
        """Compare ledgers with all partners and countersign theirs; raises if a ledger is not what it was."""
        head, others = self._ledger.head(self._me), self._others(net)
        for peer in others:
            seen = sorted(self._ledger.seen_of(peer), key=lambda statement: statement.job != self._job)
            await net.send(peer, "ledger head", self._show(head, seen[:_MOST_SEEN]))
        shown: dict[str, Shown] = {}
        for peer in others:
            shown[peer] = self._take_head(peer, await net.recv(peer, "ledger head"))
            self._compare(peer, shown[peer])
        mine = {peer: self._statement(peer, shown[peer]) for peer in others}
        for peer, (statement, signed) in mine.items():
            await net.send(peer, "ledger receipt", (statement.text, signed))
        for peer in others:
            self._take_receipt(peer, await net.recv(peer, "ledger receipt"), head, shown[peer])
            self._keep_seen(peer, *mine[peer])
            self._before.setdefault(peer, []).append(mine[peer][0])

    async def meet_again(self, net: Net, peer: str, came: Any, seconds: float) -> bool:
        """Do the same with one partner that comes again in the middle of a run, and whose first word this is.

        Whether it answered in time.
        """
        shown = self._take_head(peer, came)
        self._compare(peer, shown)
        head = self._ledger.head(self._me)
        seen = sorted(self._ledger.seen_of(peer), key=lambda statement: statement.job != self._job)
        await net.send(peer, "ledger head", self._show(head, seen[:_MOST_SEEN]))
        statement, signed = self._statement(peer, shown)
        await net.send(peer, "ledger receipt", (statement.text, signed))
        if not (receipt := await net.recv_within(peer, "ledger receipt", seconds)):
            return False
        self._take_receipt(peer, receipt[0], head, shown)
        self._keep_seen(peer, statement, signed)
        self._before.setdefault(peer, []).append(statement)
        return True

    def _compare(self, peer: str, shown: Shown) -> None:
        """Check that this party's ledger holds what the peer has seen of it, and that the peer's has not shrunk."""
        for statement in shown.seen:
            same_book = self._ledger.head(self._me).book == statement.head.book
            if self._ledger.holds(statement.head) or not (same_book or statement.job == self._job):
                continue
            if not self._check(statement.head.to_sign, signature(statement.proof)):
                raise LedgerError(
                    f"party {peer!r} says that it has seen {statement.head.lines} lines of the ledger of {self._me!r} "
                    f"on {statement.date}, under another key than the one here; if the key was renewed, ask {peer!r} "
                    f"to go on with the new one: colonnade ledger accept job.toml --as {peer} --peer {self._me}"
                )
            raise LedgerError(missing(self._ledger.name, statement, same_book))
        for statement in self._before.get(peer, ()):
            before, now = statement.head, shown.head
            if before.book == now.book and before.lines > now.lines:
                what = f"has only {now.lines} by now: it was rolled back"
            elif before.book != now.book and statement.job == self._job:
                what = "is another one by now: it was replaced"
            else:
                continue
            raise LedgerError(
                f"the ledger of party {peer!r}, of which {self._me!r} saw {before.lines} lines on {statement.date}, "
                f"{what}; ask {peer!r} why, and if its answer is good, go on with it as it is: colonnade ledger accept "
                f"job.toml --as {self._me} --peer {peer}"
            )

    # -- its end ------------------------------------------------------------------------------------------------

    async def end(self, net: Net, peers: Collection[str] | None = None) -> None:
        """Show the ledger once more and keep what the partners say; a failure is noted, and costs nothing else.

        peers: some of them only, for whom the run ends before it ends for others; it has ended for them then.
        """
        others = [peer for peer in (self._others(net) if peers is None else peers) if peer not in self._ended]
        if self._ended and not others:
            return
        self._ledger.seal("done")
        head = self._ledger.head(self._me)
        self._ended.update(others)
        until, why = net.elapsed() + net.deadline, dict.fromkeys(others, SILENT)
        others = [peer for peer in others if peer not in self.absent]
        shown: dict[str, Shown] = {}
        try:
            for peer in others:
                await net.send(peer, "ledger head", self._show(head, []))
            for peer in others:
                if came := await net.recv_within(peer, "ledger head", until - net.elapsed()):
                    why[peer] = LATE
                    try:
                        shown[peer] = self._take_head(peer, came[0])
                        self._compare(peer, shown[peer])
                        statement, signed = self._statement(peer, shown[peer])
                        self._keep_seen(peer, statement, signed)
                        await net.send(peer, "ledger receipt", (statement.text, signed))
                    except (ProtocolError, LedgerError) as error:
                        why[peer] = str(error)
            for peer, theirs in shown.items():
                if came := await net.recv_within(peer, "ledger receipt", until - net.elapsed()):
                    try:
                        self._take_receipt(peer, came[0], head, theirs)
                        del why[peer]
                    except ProtocolError as error:
                        why[peer] = str(error)
        except ColonnadeError as error:  # somebody has ended the run for all: the model is there nevertheless
            why = {peer: reason if reason not in (SILENT, LATE) else str(error) for peer, reason in why.items()}
        for peer, reason in why.items():
            self._ledger.event("missing", {"by": peer, "why": reason[:_LONGEST_REASON]})
            self._tell(f"{peer} has not countersigned the ledger of this run: {reason}")

    # -- messages -----------------------------------------------------------------------------------------------

    def _others(self, net: Net) -> list[str]:
        return [name for name in net.names if name != self._me and (not self._partners or name in self._partners)]

    def _show(self, head: Head, seen: list[Statement]) -> tuple[Any, ...]:
        told = tuple(statement.text for statement in seen)
        own = (head.book, head.lines, head.chain, head.run)
        return (*own, self._sign(head.to_sign), self._credentials.certificate, told)

    def _take_head(self, peer: str, value: Any) -> Shown:
        match value:
            case (str(), int(), str(), str(), bytes(proof), bytes(certificate), tuple(told)) if (
                len(proof) <= _MOST_SIGNATURE and len(certificate) <= MOST_CERTIFICATE and len(told) <= _MOST_SEEN
            ):
                pass
            case _:
                raise ProtocolError(f"party {peer!r} must show the head of its ledger at step 'ledger head'")
        try:
            head = Head(peer, *value[:4])
            check = self._vouch(peer, certificate)
            seen = tuple(Statement.parse(text) for text in told)
        except CertificateError as error:
            raise ProtocolError(f"party {peer!r} showed a certificate at step 'ledger head', and {error}") from None
        except ValueError as error:
            text = f"party {peer!r} must show the head of its ledger at step 'ledger head': {error}"
            raise ProtocolError(text) from None
        if not check(head.to_sign, proof):
            raise ProtocolError(f"party {peer!r} showed a head of a ledger that its key did not sign")
        if any((one.by, one.head.owner) != (peer, self._me) for one in seen):
            raise ProtocolError(f"party {peer!r} told what it has not seen itself, or of another's ledger")
        return Shown(head, proof, check, certificate, seen)

    def _statement(self, peer: str, shown: Shown) -> tuple[Statement, bytes]:
        time, proof = datetime.now(UTC).isoformat(timespec="microseconds"), base64.b64encode(shown.proof).decode()
        statement = Statement(self._me, shown.head, self._job, time, proof)
        return statement, self._sign(statement.to_sign)

    def _keep_seen(self, peer: str, statement: Statement, signed: bytes) -> None:
        entry = {"of": peer, "statement": statement.text, "signature": base64.b64encode(signed).decode()}
        self._ledger.event("seen", entry)

    def _take_receipt(self, peer: str, value: Any, head: Head, shown: Shown) -> None:
        """Keep a countersignature, if it is one: of that partner, and of this very head."""
        match value:
            case (str(text), bytes(signed)) if len(text) <= MOST_TEXT and len(signed) <= _MOST_SIGNATURE:
                pass
            case _:
                raise ProtocolError(f"party {peer!r} must countersign a ledger at step 'ledger receipt'")
        try:
            statement = Statement.parse(text)
        except ValueError as error:
            raise ProtocolError(f"party {peer!r} must countersign a ledger at step 'ledger receipt': {error}") from None
        if (statement.by, statement.head, statement.job) != (peer, head, self._job):
            raise ProtocolError(f"party {peer!r} countersigned another head than line {head.lines} of {self._me!r}")
        if not shown.check(statement.to_sign, signed):
            raise ProtocolError(f"party {peer!r} countersigned line {head.lines} of {self._me!r} with another's key")
        countersignature = {"signature": base64.b64encode(signed).decode()}
        countersignature["certificate"] = shown.certificate.decode("ascii", "replace")
        self._ledger.event("countersigned", {"by": peer, "statement": text, **countersignature})
