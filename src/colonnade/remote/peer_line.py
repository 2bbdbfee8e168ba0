"""A party's line to one other party, over as many connections as it takes.

One of the two dials, the other listens. A connection begins with a handshake and then carries the two streams of
numbered bytes of `reliable.py`. When it breaks, the one who dialled dials again; both go on where they were, and the
programs notice nothing. A line that stays down for longer than the grace is lost, and its party is named.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from colonnade.errors import HandshakeFailed, JobMismatch, ProtocolError
from colonnade.remote.handshake import ACCEPTED, BEHIND, NONCE, RESTARTED, Handshake, NotNow, Standing, printable
from colonnade.remote.listener import LOG
from colonnade.remote.reliable import Reliable
from colonnade.remote.staged_net import LINE
from colonnade.remote.streams import FIRST_WORD_WITHIN, Stream, Unreached, dial
from colonnade.remote.tls import why
from colonnade.runtimes.frames import ABORT, BYE, MAX_MESSAGE, FrameReader

if TYPE_CHECKING:
    from colonnade.remote.network_net import NetworkNet

# Seconds between attempts to dial: short at first, for a short break, and then no burden on anybody.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_LASTS = 5.0  # seconds without a first line after which it is worth a word
_LONGER = 1.25  # each than the one before: a partner that has just come up waits a quarter of that time at most
# TLS 1.3 checks a caller's certificate when the caller is through already, and asyncio then hangs up without a word.
NOT_ACCEPTED = "; if it does not accept this party's certificate, its log says why"
_NOBODY = "nobody was there"
_AT_ONCE = (
    4  # messages that are sent in one turn of the loop: in between, it learns whether the connection still stands
)
_ACKNOWLEDGE_WITHIN = 0.2  # seconds, if no message of ours takes the acknowledgement along


class PeerLine:
    """The line to one peer."""

    def __init__(self, net: NetworkNet, peer: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._net, self.peer = net, peer
        # Drawn once per start of this party: a peer that meets another one knows that this party was started anew.
        self._session, self._known = secrets.token_bytes(NONCE), b""
        self.flow, self._frames = Reliable(), FrameReader(MAX_MESSAGE)
        self._received_there = 0  # as the peer said when it came
        self.stage = 0  # how far the peer is on its way to the start of the run
        self.ending = False  # the peer has said its last word: the end of its connection is no break
        self.over = False  # hung up, or lost
        self.away = False  # the peer has left, and may come again as a new start of itself
        self.trouble = _NOBODY  # the last one
        self._stream: Stream | None = None
        self._sending = False  # there is more to be sent in the next turn of the loop
        self.held = False  # much waits here, and the peer shall wait before it sends more
        self._speak = False  # ... even if it is only how much was received
        self._acknowledging: asyncio.TimerHandle | None = None
        self._giving_up: asyncio.TimerHandle | None = None
        self._down_since: float | None = None
        self._first_trouble, self._told = 0.0, ""  # since when there is no first line, and why, as it was told
        self._dialling: asyncio.Task[None] | None = None

    @property
    def up(self) -> bool:
        """Whether a connection stands."""
        return self._stream is not None

    @property
    def unheard(self) -> bool:
        """Whether nothing was ever heard of the peer."""
        return self.trouble == _NOBODY

    @property
    def deaf(self) -> bool:
        """Whether nothing that is said now will ever be heard."""
        return self.over or self.away or (self.ending and not self.up)

    @property
    def settled(self) -> bool:
        """Whether nothing that this party said can still be missed by the peer."""
        if not self.up and (self.ending or not self._net.started):
            return True
        return self.over or self.away or self.flow.settled

    def push(self, frame: bytes) -> None:
        """Send a frame, now or when the line is up again."""
        if not self.deaf:
            self.flow.push(frame)
            self._send()  # at once: the program may compute for long before the loop gets its next turn

    def speak(self) -> None:
        """Tell the peer how far this party is and what it has received, with or without anything else to send."""
        self._speak = True
        self._send()

    def hang_up(self) -> list[asyncio.Task[None]]:
        """End the line for good; returns what still has to come to its end."""
        self.over = True
        for timer in (self._acknowledging, self._giving_up):
            if timer is not None:
                timer.cancel()
        ending = []
        if self._stream is not None:
            ending.append(self._loop.create_task(self._stream.end()))
        if self._dialling is not None:
            self._dialling.cancel()
            ending.append(self._dialling)
        return ending

    # -- the one who dials --------------------------------------------------------------------------------------

    def dial(self, address: str) -> None:
        """Bring the line up, and up again, from this side."""
        self._dialling = self._loop.create_task(self._keep_dialling(address))

    async def _keep_dialling(self, address: str) -> None:
        pause, before = 0.0, (0, 0)
        while True:
            while self._stream is not None and not self._stream.quiet:
                await self._stream.trouble()
            await asyncio.sleep(pause)
            if self.over or self.ending:
                return
            try:
                self._attach(await self._dialled(address))
            except HandshakeFailed as error:
                self._note(f"{address}: {error}")
                if not self._net.started:
                    self._net.unfit(self._named(error, address))
                    return
            except Exception as error:  # whatever the library raises: there is no connection
                self._note(f"{address}: {why(error)}")
                if isinstance(error, Unreached) and self._stream is not None:
                    self._stream.give_up(error)  # nobody was heard there for long, and now nobody can be reached
            got_on = before != (self.flow.received, self.flow.acknowledged)
            before = self.flow.received, self.flow.acknowledged
            pause = _FIRST_PAUSE if got_on else min(_LONGER * pause or _FIRST_PAUSE, _LONGEST_PAUSE)

    async def _dialled(self, address: str) -> Stream:
        """A new connection on which both sides have said who they are."""
        stream = await dial(address, self.peer, self._net.credentials, self._net.silence)
        try:
            await asyncio.wait_for(self._greet(stream), FIRST_WORD_WITHIN)
        except BaseException:
            await stream.end()
            raise
        return stream

    def _named(self, error: HandshakeFailed, address: str) -> HandshakeFailed:
        return (
            error if isinstance(error, JobMismatch) else HandshakeFailed(f"party {self.peer!r} at {address}: {error}")
        )

    def _note(self, trouble: str) -> None:
        """Keep why there is no line; it is worth a word only once it lasts, as nobody starts at the same moment."""
        first = self._first_trouble = self._first_trouble or self._loop.time()
        lasts = self._loop.time() - first >= _LASTS
        if self._down_since is None and not self.over and lasts and trouble != self._told:
            LOG.info("no line to %r yet: %s", self.peer, trouble)
            self._told = trouble
        self.trouble = trouble

    async def _greet(self, stream: Stream) -> None:
        handshake = self._handshake()
        await stream.write(handshake.open())
        await stream.write(handshake.answered(await heard(stream, NOT_ACCEPTED), stream.shown))
        if handshake.differs is not None:
            await stream.read()  # it hangs up when it has heard what is held here, and not before
            raise handshake.differs
        last_word = await heard(stream)
        self._agree(handshake)  # first: that it was restarted is news, that it has no use for this line then is not
        handshake.accepted(last_word)

    # -- the one who listens ------------------------------------------------------------------------------------

    async def accept(self, stream: Stream, hello: bytes) -> None:
        """Take up a stream that begins with this hello."""
        handshake = self._handshake()
        await stream.write(handshake.answer(hello, stream.shown))
        handshake.settle(await heard(stream))
        self._agree(handshake)
        await stream.write(ACCEPTED)

    async def carry(self, stream: Stream) -> None:
        """Use an accepted stream until it ends."""
        self._attach(stream)
        await asyncio.wait([stream.closed])

    # -- both ---------------------------------------------------------------------------------------------------

    def _handshake(self) -> Handshake:
        standing = Standing(self._session, self._known, self.flow.received, bound=self._net.started)
        return Handshake(self._net.me, self.peer, self._net.terms, standing, self._net.identity)

    def _agree(self, handshake: Handshake) -> None:
        """Nothing of this line changes before the peer has proved that it speaks now, and to this party."""
        relation, hello = handshake.conclude(), handshake.hello
        if self.over or (self.away and relation != RESTARTED):
            raise NotNow("its line was given up")
        if relation == BEHIND and not self._net.comes_again:
            raise NotNow("it is still in a run with an earlier start of this party")
        if relation == RESTARTED:
            if self._net.started and self.up:
                raise NotNow("it is in this run already; was it started twice?")
            if self._net.takes_again(self.peer):
                self._net.take_again(self.peer)
            elif self._net.started:
                self._net.restarted(self.peer)
                raise NotNow("it was restarted and lost its state")
            self.flow, self._frames, self.stage = Reliable(), FrameReader(MAX_MESSAGE), 0
            self.away = self.ending = False
        # While this connection was being made, the one before it may have brought a later word of what has arrived.
        # What a peer that is behind has received, it had from an earlier start of this party.
        received = 0 if relation == BEHIND else max(hello.received, self.flow.acknowledged)
        if not self.flow.fits(received):
            raise HandshakeFailed(f"its hello does not fit: it has received {hello.received} bytes")
        if hello.package != handshake.own.package:
            there = printable(hello.package, 20)
            line = f"party {self.peer!r} runs colonnade {there}, this one {handshake.own.package}"
            self._net.refuse.write(line, logging.INFO)
        self._known, self._received_there = hello.session, received

    def _attach(self, stream: Stream) -> None:
        former, self._stream = self._stream, stream
        if former is not None:  # the peer has already given it up, or nothing was heard on it for long
            former.give_up(NotNow("a new connection has taken its place"))
        self.flow.resume(max(self._received_there, self.flow.acknowledged))
        if self._giving_up is not None:
            self._giving_up.cancel()
        if self._down_since is not None:
            down, self._down_since = self._loop.time() - self._down_since, None
            self._net.refuse.write(
                f"the line to {self.peer!r} was down for {down:.1f} s ({self.trouble}) and is up again"
            )
        stream.carry(self._take, self._send, lambda: self._down(stream))
        self._say(up=True)
        self.speak()
        self._net.stirred()

    def _down(self, stream: Stream) -> None:
        if self._stream is not stream:
            return  # another one has taken its place
        self._stream, self.trouble = None, why(stream.error) if stream.error else "the other side hung up"
        if not self.over and not self.ending:
            self._down_since = self._loop.time()
            self._giving_up = self._loop.call_later(self._net.grace, self._lost)
            self._say(up=False)
        self._net.stirred()

    def _say(self, *, up: bool) -> None:
        if self._net.onlooker is not None:
            self._net.onlooker(self._net.elapsed(), (LINE, self.peer, up, "" if up else self.trouble))

    def leave(self) -> None:
        """The peer has left, and nothing is kept for it: if it comes again, it begins anew."""
        if not self.away:
            self.speak()  # that its last word has come: it waits to hear so, and ends then
            self.away, self.flow, self._frames = True, Reliable(), FrameReader(MAX_MESSAGE)
            self._net.left(self.peer)

    def _lost(self) -> None:
        if self._net.takes_again(self.peer):
            self.leave()
        elif self._net.started:
            self.over = True
            self._net.unreachable(self.peer, self.trouble)
        else:  # before the start, the patience decides
            self._giving_up = self._loop.call_later(self._net.grace, self._lost)

    def _go_on_sending(self) -> None:
        self._sending = False
        self._send()

    def _send(self) -> None:
        """Send what there is to be sent, as far as the connection takes it."""
        stream = self._stream
        for _ in range(_AT_ONCE):
            if stream is None or stream.paused:
                return
            self.held = self._net.holds_back(self.peer)
            message = self.flow.message(self._net.stage, even_empty=self._speak, hold=self.held)
            if message is None:
                return
            self._speak = False
            stream.put(message)
        if not self._sending:
            self._sending = True
            self._loop.call_soon(self._go_on_sending)

    def _take(self, message: bytes) -> None:
        """Take a message of the peer's; one that does not fit ends the connection."""
        if self.away:
            return
        try:
            stage, data = self.flow.take(message)
        except ProtocolError as error:
            where = "" if self._stream is None else f"{self._stream.address} "
            self._net.refuse(f"{where}(party {self.peer!r})", str(error))
            raise
        if stage != self.stage:
            self.stage = stage
            self._net.heard_stage(stage)
        if data:
            self._deliver(data)
            self._acknowledge_soon()
        if self._net.waiting:
            self._net.stirred()

    def _deliver(self, data: bytes) -> None:
        net = self._net
        try:
            for payload in self._frames.feed(data):
                if net.arrived(self.peer, payload) in (ABORT, BYE) and not self.away:
                    self.ending = True
        except ProtocolError as error:
            self.over = True
            net.refuse(f"party {self.peer!r}", str(error))
            net.distrust(self.peer, error)
            raise

    def ease(self) -> None:
        """If the peer was held back, it may send more."""
        if self.held:
            self.held = False
            self.speak()

    def _acknowledge_soon(self) -> None:
        self.held = self._net.holds_back(self.peer)
        if self.held:
            return  # it hears when there is room again
        if self.ending or self.flow.acknowledge_now:
            self.speak()
        elif self._acknowledging is None:
            self._acknowledging = self._loop.call_later(_ACKNOWLEDGE_WITHIN, self._acknowledge)

    def _acknowledge(self) -> None:
        self._acknowledging = None
        if self.flow.unacknowledged:
            self.speak()


async def heard(stream: Stream, perhaps: str = "") -> bytes:
    """The next message of a handshake."""
    message = await stream.read()
    if message is None:
        raise NotNow(f"the other side hung up during the handshake{perhaps}")
    return message
