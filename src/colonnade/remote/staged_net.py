"""A party's `Net` where nobody starts the parties at once: they join, get their data ready, and start together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from colonnade.errors import ColonnadeError, PartySilent, at_least
from colonnade.runtimes.endpoint import CHECKS_PER_DEADLINE
from colonnade.runtimes.loop_net import LoopNet
from colonnade.runtimes.net import Doorkeeper, Observer, Outcome, PerLane, Program
from colonnade.runtimes.wire import Value

Arguments = tuple[Value, ...] | Callable[[], tuple[Value, ...]]

PATIENCE = 600.0  # seconds to wait for the others before a run: people start them, and their data may be large
# How far a party is: it has a line to everybody; it has read its own data too; it has heard that all have.
JOINED, READY, STARTED = 1, 2, 3
_BEHIND = {JOINED: "did not join", READY: "did not get its data ready"}
_STEPS = {JOINED: "joining", READY: "reading data"}
WAITING, LINE = "waiting", "line"  # for whom, at which step; to whom there is a line, whether it is up, and why not
# Hears, as (seconds, value), how this party stands with the others, of which no program reports anything.
Onlooker = Callable[[float, Value], None]


class StagedNet(LoopNet):
    """The part of a `Net` that waits for the others; how a stage is said, and who is behind, is left to its lines."""

    def __init__(
        self,
        me: str,
        names: tuple[str, ...],
        deadline: float,
        observer: Observer | None,
        slowed: PerLane = 0.0,
        *,
        patience: float,
    ) -> None:
        for name, seconds in (("deadline", deadline), ("patience", patience)):
            at_least(name, seconds, 0, strict=True, finite=True)
        super().__init__(me, names, deadline, observer, slowed)
        self._patience = patience
        # The longest message that is sent and taken, by what this party's program is given; None leaves it as it is.
        self.longest_for: Callable[..., int] | None = None
        self.stage, self.started = 0, False
        self._stir: asyncio.Future[None] | None = None
        self.onlooker: Onlooker | None = None
        self._said: tuple[tuple[str, ...], str] = ((), "")  # whom this party waits for and where, as last reported

    # -- what the lines add -------------------------------------------------------------------------------------

    async def _join(self) -> None:
        """Take up the lines and reach `JOINED`."""
        raise TypeError("a runtime's net must join the others")

    def _say_stage(self) -> None:
        """Tell all others how far this party is."""
        raise TypeError("a runtime's net must say how far it is")

    def _behind(self, stage: int) -> str | None:
        """A party that is not yet so far, or None."""
        raise TypeError("a runtime's net must know how far the others are")

    def _trouble(self, peer: str) -> str:
        """Why that party may be behind."""
        raise TypeError("a runtime's net must know what is the matter")

    def _obstacle(self) -> ColonnadeError | None:
        """Why there is no more use in waiting, or None."""
        return self.broken

    # -- a run from its start to its end ------------------------------------------------------------------------

    async def take_part(self, program: Program, arguments: Arguments, door: Doorkeeper | None) -> Outcome:
        """One run of this party; raises what ends it early."""
        self.door = door
        try:
            value = await self.carry_out(program, arguments)
            return Outcome(value, None, self.traffic, self.elapsed(), self.times())
        finally:
            await self.close()

    async def carry_out(self, program: Program, args: Arguments) -> Any:
        """Join the others, get the arguments, and run the program when all are ready.

        Arguments that are a function are asked for after every handshake has succeeded, in a thread: that is where
        private data may be read.
        """

        async def joined(_: object) -> Any:
            self.step = "joining"
            await self._join()
            ready = args if isinstance(args, tuple) else await self.in_thread(args)
            if self.longest_for is not None:
                self.make_room(self.longest_for(*ready))
            await self._reach(READY)
            self.stage, self.started, self._started = STARTED, True, self._now()
            self.sheet.begin()
            return await program(self, *ready)

        return await super().carry_out(joined, ())

    async def _reach(self, stage: int) -> None:
        """Wait until all others are as far as this party."""
        self.stage = stage
        self._say_stage()
        # Whoever has started knows that all were ready. Then this party starts too, even if the run is already over:
        # what its own program says about that comes before what others say.
        if not await self._until(lambda: self.stage == STARTED or self._behind(stage) is None, self._patience):
            raise self._late(str(self._behind(stage)), stage)

    def _late(self, peer: str, stage: int) -> PartySilent:
        text = f"party {peer!r} {_BEHIND[stage]} within {self._patience:g} s: {self._trouble(peer)}"
        return PartySilent(text, peer, self.step)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        until = self._now() + seconds
        while not condition():
            if (obstacle := self._obstacle()) is not None:
                raise obstacle
            if (left := until - self._now()) <= 0:
                return False
            await self._stirring(left)
        return True

    async def _stirring(self, seconds: float) -> None:
        """Wait until something has changed, at most for so long."""
        self._stir = self._loop.create_future()
        await asyncio.wait([self._stir], timeout=seconds)

    def stirred(self) -> None:
        """Something about a line has changed: let those look who wait for it."""
        stir, self._stir = self._stir, None
        if stir is not None and not stir.done():
            stir.set_result(None)

    def heard_stage(self, stage: int) -> None:
        """A party is a step further on its way to the start; if it has started, all others were ready."""
        if stage == STARTED and self.stage == READY:
            self.stage = STARTED  # before this party passes on anything that it hears from there
        self.stirred()

    def check_deadlines(self) -> None:
        """See `Endpoint.check_deadlines`; an onlooker hears whom this party waits for, where that has changed."""
        super().check_deadlines()
        if self.onlooker is not None and (waits := self._awaited()) != self._said:
            self._said = waits
            self.onlooker(self.elapsed(), (WAITING, *waits))

    def _awaited(self) -> tuple[tuple[str, ...], str]:
        """Return who has been waited for since the last check at least, and at which step; ((), "") is nobody."""
        if not self.started:
            behind = self._behind(max(self.stage, JOINED))
            return ((), "") if behind is None else ((behind,), _STEPS[max(self.stage, JOINED)])
        before = self._now() - self.deadline / CHECKS_PER_DEADLINE
        waits = [(name, step) for since, name, step in self._waiting.oldest() if since <= before]
        return (tuple(dict.fromkeys(name for name, _ in waits)), waits[0][1]) if waits else ((), "")

    def _fail_waits(self) -> None:
        super()._fail_waits()
        self.stirred()
