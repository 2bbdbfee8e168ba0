"""A look at a peer before a run: whether it is there, what it runs, and whether it holds the same job.

It is a handshake that ends before its proof. The peer writes a line in its log; nothing else changes there.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from colonnade.errors import HandshakeFailed, JobMismatch, PartySilent
from colonnade.remote.certificates import Credentials
from colonnade.remote.handshake import LOOKED, NONCE, Handshake, Standing, Terms, printable
from colonnade.remote.identity import Identity
from colonnade.remote.peer_line import NOT_ACCEPTED, heard
from colonnade.remote.streams import FIRST_WORD_WITHIN, QUIET, dial
from colonnade.remote.tls import why


@dataclass(frozen=True)
class Seen:
    """What a peer says of itself."""

    package: str  # its version
    differs: JobMismatch | None


async def look(address: str, me: str, peer: str, terms: Terms, credentials: Credentials | None) -> Seen:
    """Dial a peer as for a run, and hang up when it has said who it is."""
    identity = Identity(credentials) if credentials else None
    handshake = Handshake(me, peer, terms, Standing(secrets.token_bytes(NONCE)), identity)

    async def exchange() -> None:
        stream = await dial(address, peer, credentials, QUIET)
        try:
            await stream.write(handshake.open())
            handshake.answered(await heard(stream, NOT_ACCEPTED), stream.shown)
            await stream.write(LOOKED)
            await stream.read()  # it hangs up when it has heard
        finally:
            await stream.end()

    try:
        await asyncio.wait_for(exchange(), FIRST_WORD_WITHIN)
    except HandshakeFailed as error:
        raise HandshakeFailed(f"{address}: {error}") from None
    except Exception as error:  # whatever the library raises: there is no connection
        raise PartySilent(f"{address} does not answer ({why(error)})", peer, "look") from None
    return Seen(printable(handshake.hello.package, 20), handshake.differs)
