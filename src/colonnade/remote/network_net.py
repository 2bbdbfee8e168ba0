"""A party's `Net` between organisations: a line to every other party, and one start for all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from colonnade.errors import (
    ColonnadeError,
    HandshakeFailed,
    JobMismatch,
    OptionError,
    PartyFailed,
    PartyLost,
    at_least,
)
from colonnade.remote import streams
from colonnade.remote.certificates import Credentials
from colonnade.remote.handshake import Hello, Looked, NotNow, printable, refusal
from colonnade.remote.listener import MOST_UNKNOWN, Carry, Listener, Refusals
from colonnade.remote.peer_line import PeerLine
from colonnade.remote.place import NetworkPlace
from colonnade.remote.signatures import OwnIdentity
from colonnade.remote.staged_net import JOINED, StagedNet
from colonnade.remote.streams import Stream
from colonnade.remote.terms import RunTerms
from colonnade.remote.tls import check_security, why
from colonnade.runtimes.endpoint import STOPPED
from colonnade.runtimes.frames import ABORT
from colonnade.runtimes.net import Observer, PerLane
from colonnade.runtimes.wire import Value

UNREACHABLE, RESTARTED = "was out of reach at", "was restarted and lost its state at"
_HUNG_UP = "it hung up, or sent too long a message, before it had said who it is"


class NetworkNet(StagedNet):
    """A party's `Net` over TLS."""

    def __init__(
        self,
        place: NetworkPlace,
        deadline: float,
        observer: Observer | None,
        *,
        job: Mapping[str, Any],
        credentials: Credentials | None,
        grace: float,
        patience: float,
        slowed: PerLane = 0.0,
        shared_port: bool = False,
    ) -> None:
        at_least("grace", grace, 0, strict=True, finite=True)
        check_security(credentials)
        super().__init__(place.me, place.names, deadline, observer, slowed, patience=patience)
        self._place, self.grace, self._shared_port = place, grace, shared_port
        # Seconds that the system waits for an answer of another machine. No shorter than the deadline: a party that
        # computes for long takes nothing off its line meanwhile, and is none the less there.
        self.silence = max(streams.QUIET, deadline)
        self.terms, self.credentials = RunTerms.of(place.names, job), credentials
        self.identity = OwnIdentity(credentials) if credentials else None
        self.lines = {name: PeerLine(self, name) for name in place.peers}
        self.refuse = Refusals()
        self._closing = False
        self._listener: Listener | None = None
        self._unfit: HandshakeFailed | None = None

    # -- the start of a run -------------------------------------------------------------------------------------

    async def _join(self) -> None:
        listeners = [name for name in self.lines if not self._place.dials(name)]
        if listeners:
            address = self._place.listen or self._place.addresses[self.me]
            if address is None:  # can't be: `NetworkPlace` has seen to it
                raise OptionError(f"party {self.me!r} has no address to listen on")
            self._listener = Listener(
                address, self.credentials, self._welcome, self.refuse,
                shared=self._shared_port, silence=self.silence, most=MOST_UNKNOWN + len(self.names),
            )  # fmt: skip
            await self._listener.start()
        for name, line in self.lines.items():
            if self._place.dials(name):
                line.dial(str(self._place.addresses[name]))
        lines = self.lines.values()
        if not await self._until(lambda: all(line.up for line in lines), self._patience):
            raise self._late(next(line.peer for line in lines if not line.up), JOINED)
        await self._reach(JOINED)

    def _say_stage(self) -> None:
        for line in self.lines.values():
            line.speak()

    def _behind(self, stage: int) -> str | None:
        return next((name for name, line in self.lines.items() if not (line.up and line.stage >= stage)), None)

    def _trouble(self, peer: str) -> str:
        line = self.lines[peer]
        if line.up:
            return "it is there, and not as far"
        refused = "; callers were refused, see the log" if self.refuse.any and line.unheard else ""
        return line.trouble + refused

    def _obstacle(self) -> ColonnadeError | None:
        return self.broken or self._unfit

    # -- who calls ----------------------------------------------------------------------------------------------

    async def _welcome(self, stream: Stream) -> Carry | None:
        """Hear a caller out; whoever is not what it should be is told why, written down, and nothing else happens."""
        try:
            line = await asyncio.wait_for(self._let_in(stream), streams.FIRST_WORD_WITHIN)
            return line.carry
        except JobMismatch as error:  # both sides know by now
            self.refuse(stream.address, str(error))
            if not self.started:
                self.unfit(error)
        except Looked as error:
            self.refuse.write(str(error), logging.INFO)
        except (HandshakeFailed, NotNow) as error:
            self.refuse(stream.address, str(error))
            last_word = refusal(str(error), for_good=isinstance(error, HandshakeFailed))
            with suppress(Exception):  # it need not listen
                await asyncio.wait_for(stream.write(last_word), streams.FIRST_WORD_WITHIN)
        except TimeoutError:
            self.refuse(stream.address, "it did not say who it is")
        except Exception as error:
            self.refuse(stream.address, f"{_HUNG_UP} ({why(error)})")
        return None

    async def _let_in(self, stream: Stream) -> PeerLine:
        message = await stream.read()
        if message is None:
            raise NotNow(_HUNG_UP)
        line = self._caller(Hello.unpack(message))
        await line.accept(stream, message)
        return line

    def _caller(self, hello: Hello) -> PeerLine:
        if hello.me not in self.lines:
            raise HandshakeFailed(f"{printable(hello.me, 40)!r} is no party of this run")
        if self._place.dials(hello.me):
            raise HandshakeFailed(
                f"party {hello.me!r} is to be dialled, and not to dial {self.me!r}; compare addresses"
            )
        return self.lines[hello.me]

    # -- what the lines tell ------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether somebody waits for a line to get on."""
        return bool(self._held_up) or self._stir is not None

    def stirred(self) -> None:
        """See `StagedNet.stirred`; a send that was held up may go on."""
        super().stirred()
        self.go_on_sending()

    def unfit(self, error: HandshakeFailed) -> None:
        """This party and another can't run together."""
        self._unfit = self._unfit or error
        self.stirred()

    def unreachable(self, peer: str, reason: str) -> None:
        """A line was down for longer than the grace."""
        if peer not in self._gone and not self._closing:
            step = self._step_awaited(peer)
            text = f"party {peer!r} was out of reach for {self.grace:g} s at step {step!r}{self._round()}: {reason}"
            self.break_off(PartyLost(text, peer, step), UNREACHABLE)
        self.stirred()

    def restarted(self, peer: str) -> None:
        """A party that took part in this run was started anew."""
        self.lines[peer].over = True
        if peer not in self._gone and not self._closing:
            step = self._step_awaited(peer)
            text = f"party {peer!r} {RESTARTED} step {step!r}{self._round()}"
            self.break_off(PartyLost(text, peer, step), RESTARTED)
        self.stirred()

    # -- who leaves and comes again -----------------------------------------------------------------------------

    def takes_again(self, peer: str) -> bool:
        """Whether this party does without that one for a while: it leads a run that the other may leave."""
        return self.started and self._place.hub == self.me and peer in self._spared and peer not in self._gone

    @property
    def comes_again(self) -> bool:
        """Whether this party may join a run that others have begun: an earlier start of it took part in it."""
        return not self.started and self._place.hub not in ("", self.me)

    def left(self, peer: str) -> None:
        """A party that may leave has left: whoever waits for it, within a time, waits no longer."""
        self._arriving.pop(peer, None)
        self._waiting.end(lambda sender, wait: sender == peer and wait.until is not None)
        self.refuse.write(f"{peer!r} is away; the run goes on without it until it comes again", logging.INFO)
        self.stirred()

    def take_again(self, peer: str) -> None:
        """A party that had left was started anew, and is a stranger whose first message is its first."""
        if peer in self._cutting:
            raise NotNow("a message to its earlier start is still on its way")
        self._arriving.pop(peer, None)
        self._next_out[peer] = self._next_in[peer] = 0
        self._held[peer].clear()
        self._inbox.forget(peer)
        self._waiting.end(lambda sender, wait: sender == peer and wait.until is not None)
        self.refuse.write(f"{peer!r} was started anew and takes part again", logging.INFO)

    def _control(self, frm: str, kind: int, texts: tuple[str, ...]) -> None:
        if kind == ABORT and self.takes_again(frm) and (*texts[:1], *texts[2:]) == (frm, STOPPED, frm):
            self.lines[frm].leave()
        else:
            super()._control(frm, kind, texts)

    def fail(self, error: BaseException, what: str = "") -> None:
        """See `Endpoint.fail`; a party that is stopped before the start may come again, and the others wait for it."""
        if what == STOPPED and not self.started:
            self.broken = PartyFailed(f"party {self.me!r} {STOPPED} step {self.step!r}", self.me, self.step)
        else:
            super().fail(error, what)

    # -- frames -------------------------------------------------------------------------------------------------

    def _emit(self, to: str, kind: int, seq: int, tag: str, value: Value) -> None:
        """See `Endpoint._emit`; what is for a party without a line, or away, does not leave and is not counted."""
        if to in self.lines and not self.lines[to].away:
            super()._emit(to, kind, seq, tag, value)

    def _put_frame(self, to: str, frame: bytes) -> None:
        self.lines[to].push(frame)

    def _full(self, to: str) -> bool:
        line = self.lines[to]
        return line.flow.full and not line.deaf

    async def send(self, to: str, tag: str, value: Value) -> None:
        """See `Net.send`; waits while more is under way to that party than its line may keep."""
        if to in self.lines:
            if self.lines[to].away and self.broken is None:
                return
            await self.room_for(to, tag)
        await super().send(to, tag, value)

    def holds_back(self, peer: str) -> bool:
        """Whether a party shall wait with more, since much of what it sent was not asked for yet.

        Never while this party waits for it: what is asked for may come behind what is not. Nor while this party can't
        send to it: two that send to each other before they read would wait for each other.
        """
        if not self._inbox.crowded(peer) or self._closing or self.broken is not None or peer in self._gone:
            return False
        if any(held[1] == peer for held in self._held_up):
            return False
        return self._waiting.step_of(peer) is None

    def _eased(self, frm: str) -> None:
        if self.lines[frm].held and not self._inbox.crowded(frm):
            self.lines[frm].ease()

    def _awaits(self, frm: str) -> None:
        self.lines[frm].ease()

    # -- the end of a run ---------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End what was spawned, see that the others have heard this party's last words, and hang up."""
        self._closing = True
        for line in self.lines.values():
            line.ease()
        await self.end_tasks()
        until = self._now() + self.deadline
        while not all(line.settled for line in self.lines.values()) and (left := until - self._now()) > 0:
            await self._stirring(left)
        ending = [task for line in self.lines.values() for task in line.hang_up()]
        if self._listener is not None:
            await self._listener.stop()
        if ending:
            await asyncio.wait(ending, timeout=self.deadline)
        self.refuse.sum_up()
