"""How two parties find out that they may run together, before anything private is read. Messages in, messages out.

    dialler                                         listener
    hello: version, names, job's digest,
    nonces, certificates                         ->
                                                 <- welcome: its own hello, and a proof
    proof                                        ->
                                                 <- accepted

A proof is a signature of both hellos, with the key of the certificate that its sender's hello holds. Each hello holds a
number that was drawn for this stream alone, so that nothing recorded from another stream fits; no clock is asked. Both
sides also see which certificate the other has shown to TLS, which must be the same. So whoever only sits between two
parties has nothing to say to either: it can sign for neither, and each signs for the one that it is connected to.
Where the digests of the jobs differ, both say what they hold, the dialler only to a listener that has proved who it is,
and each names the first difference. (Without TLS, in tests, a proof is a digest of both hellos.)
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from colonnade import __version__
from colonnade.errors import HandshakeFailed, JobMismatch, ProtocolError
from colonnade.remote.signatures import OwnIdentity
from colonnade.remote.terms import RunTerms, difference
from colonnade.remote.trust import LONGEST_CHAIN
from colonnade.runtimes.wire import decode, encode

PROTOCOL = 5  # raised whenever parties of before and after could not run together
NONCE = 32  # bytes
_SHOWN = 60  # characters of a value that is named in a difference
_KINDS = (str, int, str, str, str, bytes, bytes, bytes, int, bytes, tuple)


class NotNow(ConnectionError):
    """A connection that is of no use, but a later one may be."""


class Looked(NotNow):
    """A caller that only wanted to know whether this party is there."""


# -- one stream --------------------------------------------------------------------------------------------------------


def printable(text: str, limit: int = 400) -> str:
    """A peer's words, fit for one line of a log."""
    line = "".join(letter if letter.isprintable() else "?" for letter in text[: limit + 1])
    return line if len(line) <= limit else line[: limit - 1] + "…"


@dataclass(frozen=True)
class Hello:
    """What a party says of itself first."""

    package: str
    protocol: int
    me: str
    to: str
    session: bytes  # drawn when this party started: another one means that it was started anew
    fresh: bytes  # drawn for this stream
    known: bytes  # the other's session, if they have met before
    received: int  # bytes of the other that arrived in that session
    digest: bytes
    chain: tuple[bytes, ...]  # its certificate in DER, and those between it and the authority

    def pack(self) -> bytes:
        """As a message."""
        return encode(
            (
                *("colonnade", self.protocol, self.package, self.me, self.to, self.session, self.fresh, self.known),
                *(self.received, self.digest, self.chain),
            )
        )

    @classmethod
    def unpack(cls, message: bytes) -> Hello:
        """The inverse; another version is named, and anything else is no hello."""
        value = _tuple(message)
        if [type(one) for one in value[:3]] != [str, int, str] or value[0] != "colonnade":
            raise HandshakeFailed("its first message is no hello; it is not a colonnade party")
        _, protocol, package, *rest = value
        if protocol != PROTOCOL:
            raise HandshakeFailed(
                f"it speaks protocol {protocol} (colonnade {printable(package, 20)}), this party speaks {PROTOCOL} "
                f"(colonnade {__version__}); install the same version at both"
            )
        if tuple(map(type, value)) != _KINDS:
            raise HandshakeFailed("its hello is malformed")
        hello = cls(package, protocol, *rest)
        if len(hello.session) != NONCE or len(hello.fresh) != NONCE or len(hello.known) not in (0, NONCE):
            raise HandshakeFailed("its hello is malformed")
        if hello.received < 0 or len(hello.chain) > LONGEST_CHAIN or not set(map(type, hello.chain)) <= {bytes}:
            raise HandshakeFailed("its hello is malformed")
        return hello


def _tuple(message: bytes) -> tuple[Any, ...]:
    try:
        value = decode(message)
    except ProtocolError as error:
        raise HandshakeFailed(f"its message is malformed: {error}") from None
    if type(value) is not tuple:
        raise HandshakeFailed("its message is malformed")
    return value


def _not_refused(message: bytes) -> tuple[Any, ...]:
    match value := _tuple(message):
        case ("refused", str(why)):
            raise HandshakeFailed(f"it refused: {printable(why)}")
        case ("later", str(why)):
            raise NotNow(f"it said: {printable(why)}")
    return value


@dataclass(frozen=True)
class Standing:
    """What a party knows of an earlier stream to the same peer, if there was one."""

    session: bytes
    known: bytes = b""  # the session of the peer in it
    received: int = 0
    bound: bool = True  # a run has begun in it; before that, the peer may as well have been started anew


NEW, RESUMED, RESTARTED, BEHIND = "new", "resumed", "restarted", "behind"


class Handshake:
    """One side of one handshake.

    The dialler calls `open`, `answered`, `accepted`, `conclude`; the listener `answer`, `settle`, `conclude`, and then
    sends `ACCEPTED`. Whatever does not fit raises `HandshakeFailed`, in words about the peer ("its ..."), or `NotNow`;
    only `conclude` says that all is well. identity: None only where there is no TLS either.
    """

    def __init__(
        self, me: str, peer: str, terms: RunTerms, standing: Standing, identity: OwnIdentity | None = None
    ) -> None:
        self.peer, self._terms, self._standing, self._identity = peer, terms, standing, identity
        fresh = secrets.token_bytes(NONCE)
        known = standing.known if standing.bound else b""
        self.own = Hello(
            *(__version__, PROTOCOL, me, peer, standing.session, fresh, known, standing.received),
            digest=terms.digest,
            chain=identity.chain if identity else (),
        )
        self.hello: Hello  # the peer's
        self._signed: Callable[[str, bytes, bytes], bool]  # by the peer: checks (role, what was said, signature)
        self._transcript = b""
        self.differs: JobMismatch | None = None  # known after both have said what they hold
        self._proved = False

    def open(self) -> bytes:
        """The dialler's hello."""
        return self.own.pack()

    def answer(self, message: bytes, shown: bytes | None = None) -> bytes:
        """The listener's answer to a hello of a caller that has shown this certificate to TLS, in DER."""
        self._hear(Hello.unpack(message))
        self._same_certificate(shown)
        mine = self.own.pack()
        self._transcript = hashlib.sha256(message + mine).digest()
        if self._same_job():
            return encode(("welcome", mine, self._proof("listener")))
        return encode(("differs", mine, self._proof("listener"), self._terms.entries))

    def answered(self, message: bytes, shown: bytes | None = None) -> bytes:
        """The dialler's last message, after the answer of a listener that has shown this certificate to TLS, in DER."""
        match _not_refused(message):
            case ("welcome", bytes(theirs), bytes(proof)):
                self._hear(Hello.unpack(theirs))
                if not self._same_job():
                    raise HandshakeFailed("it takes two jobs with different digests for the same")
                self._transcript = hashlib.sha256(self.own.pack() + theirs).digest()
                self._check(proof, "listener")
                self._same_certificate(shown)
                return encode(("proof", self._proof("dialler")))
            case ("differs", bytes(theirs), bytes(proof), tuple(entries)):
                self._hear(Hello.unpack(theirs))
                self._transcript = hashlib.sha256(self.own.pack() + theirs).digest()
                self._check(proof, "listener")
                self._same_certificate(shown)
                self._compare(entries)
                return encode(("differs", self._terms.entries))
        raise HandshakeFailed("its answer is malformed")

    def accepted(self, message: bytes) -> None:
        """The dialler hears the listener's last word. (Where the jobs differ there is none: both know enough.)"""
        if _not_refused(message) != ("accepted",):
            raise HandshakeFailed("its last message of the handshake is malformed")

    def settle(self, message: bytes) -> None:
        """The listener hears the dialler's last message."""
        match _tuple(message):
            case ("proof", bytes(proof)) if self._same_job():
                self._check(proof, "dialler")
            case ("differs", tuple(entries)) if not self._same_job():
                self._compare(entries)
            case ("looked",):
                raise Looked(f"party {self.peer!r} looked whether this party is there")
            case _:
                raise HandshakeFailed("its last message of the handshake is malformed")

    def conclude(self) -> str:
        """How the peer stands to this party: new, resumed, restarted since, or still in a run with an earlier start."""
        if self.differs is not None:
            raise self.differs
        if not self._proved:
            raise HandshakeFailed("its proof is missing")
        mine, theirs = self._standing, self.hello
        if theirs.known and theirs.known != mine.session:
            return BEHIND
        if not mine.known:
            return NEW
        return RESUMED if theirs.session == mine.known else RESTARTED

    # -- in both roles ------------------------------------------------------------------------------------------

    def _hear(self, hello: Hello) -> None:
        if hello.me != self.peer:
            raise HandshakeFailed(f"it says that it is {printable(hello.me, 40)!r} and not {self.peer!r}")
        if hello.to != self.own.me:
            raise HandshakeFailed(f"it looks for {printable(hello.to, 40)!r}, this party is {self.own.me!r}")
        if self._identity is not None:
            self._signed = self._identity.believe(hello.chain, self.peer)
        self.hello = hello

    def _same_certificate(self, shown: bytes | None) -> None:
        if self._identity is not None and shown != self.hello.chain[0]:
            raise HandshakeFailed("its hello holds another certificate than the one that it has shown to TLS")

    def _same_job(self) -> bool:
        return hmac.compare_digest(self.hello.digest, self._terms.digest)

    def _proof(self, role: str) -> bytes:
        if self._identity is not None:
            return self._identity.sign(role, self._transcript)
        return hashlib.sha256(role.encode() + self._transcript).digest()

    def _check(self, proof: bytes, role: str) -> None:
        if self._identity is not None:
            fits = self._signed(role, self._transcript, proof)
        else:
            fits = hmac.compare_digest(proof, self._proof(role))
        if not fits:
            raise HandshakeFailed("its proof belongs to another stream, or another key: a replay, or an impostor")
        self._proved = True

    def _compare(self, entries: tuple[Any, ...]) -> None:
        if not all(type(entry) is tuple and len(entry) == 2 and set(map(type, entry)) == {str} for entry in entries):
            raise HandshakeFailed("its job is malformed")
        key, here, there = difference(dict(self._terms.entries), dict(entries))
        self.differs = JobMismatch(
            f"the job of party {self.peer!r} differs in {printable(key, _SHOWN)!r}: {printable(here, _SHOWN)} here, "
            f"{printable(there, _SHOWN)} there; agree on one job and start again",
            self.peer, key, here, there,
        )  # fmt: skip


ACCEPTED = encode(("accepted",))
LOOKED = encode(("looked",))  # instead of a proof: the caller has seen what it wanted to see


def refusal(why: str, *, for_good: bool = True) -> bytes:
    """What a listener says before it hangs up on a dialler, who may try again or not."""
    return encode(("refused" if for_good else "later", printable(why)))
