"""A party's `Net` between the ranks of one MPI job: every frame is one message, and one event loop polls for all.

MPI has no file descriptor to wait for, so somebody has to ask it. While messages flow the event loop asks in each of
its turns; a moment after the last one it dozes in between, and soon it asks only once per millisecond.
"""

from __future__ import annotations

import atexit
import math
import sys
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from colonnade.errors import ColonnadeError, JobMismatch, OptionError, OversizedMessage, PartyFailed, ProtocolError
from colonnade.remote.staged_net import JOINED, StagedNet
from colonnade.remote.terms import RunTerms
from colonnade.runtimes.frames import HEADER, MAX_MESSAGE, pack_message, unpack_message
from colonnade.runtimes.net import Observer, PerLane

if TYPE_CHECKING:
    from mpi4py import MPI

# Beside the kinds of frames of `endpoint`: how far a party is, and a digest of what it believes to take part in.
_STAGE = 255
# The stages after the last: its program has ended, and it waits for the others; it says nothing more, and leaves.
_CLOSED, _PARTED = 4, 5

# Seconds since the last message until which a party asks for the next without a pause, and then with dozes. It never
# yields the core instead: on a machine with other work that costs a whole slice of time, a doze only what it says.
_SPIN, _DOZING = 1e-4, 3e-3
_TRANSFER = 50e-3  # the latter while a message is on its way that MPI moves only when asked
_DOZE, _NAP = 1e-5, 1e-3  # seconds; the system adds 50 µs to a doze, and a loop's own timers are no finer than a nap
_IDLE_TURN = 3e-5  # seconds: a turn of the loop that takes longer has done something besides
_AT_ONCE = 64  # messages that are taken before the party's own coroutines get their turn
_PINGS_PER_DEADLINE = 4  # of a party that has ended to those that have not
# Seconds between a rank's last words and the end of all: what mpiexec has not passed on by then, nobody reads.
_LAST_WORDS = 0.5
_UNDER_WAY = 32  # pieces of a long message that MPI has not passed on; its sender waits while there are more
_TAGS = 1 << 15  # as many as every MPI has: each run of a process has its own, so that none hears another's frames


class _Job:
    """This process's part in the MPI job: it has to leave together with all other ranks."""

    def __init__(self) -> None:
        self.runs = 0
        self.why = ""  # not
        self.together = False  # whether this rank and all others know of each other that they have ended their run

    def leave(self) -> None:
        """End MPI in this process, and in all others if one of them would wait for it in vain."""
        from mpi4py import MPI

        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        if MPI.Is_finalized():
            return
        if MPI.COMM_WORLD.size > 1 and not self.together:
            # `MPI_Finalize` waits for all ranks without a deadline: for one that is silent, for ever.
            if self.why:
                sys.stderr.write(f"The MPI job is ended for all parties: {self.why}.\n")
                sys.stderr.flush()
            time.sleep(_LAST_WORDS)
            MPI.COMM_WORLD.Abort(1)
        MPI.Finalize()


_JOB = _Job()
leave = _JOB.leave


def world() -> MPI.Intracomm:
    """All ranks of the MPI job that this process was started in; joins it when first called.

    From here on a process that ends before its run has ended, or without one, ends the whole job.
    """
    first = "mpi4py.MPI" not in sys.modules
    try:
        import mpi4py

        if first:
            mpi4py.rc.thread_level = "serialized"  # only the event loop's thread calls MPI
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise OptionError(
            f"MPI needs mpi4py and an MPI library ({error}); install colonnade[mpi], or load your cluster's own"
        ) from None
    atexit.unregister(leave)
    atexit.register(leave)
    return MPI.COMM_WORLD


class MpiNet(StagedNet):
    """A party's `Net` over MPI: rank r is the party names[r]."""

    bounded: ClassVar[bool] = False

    def __init__(
        self,
        names: tuple[str, ...],
        deadline: float,
        observer: Observer | None,
        *,
        job: Mapping[str, Any] | None = None,
        patience: float,
        slowed: PerLane = 0.0,
    ) -> None:
        comm = world()
        from mpi4py import MPI

        self._byte, self._failure = MPI.BYTE, MPI.Exception
        self._comm, self._status = comm, MPI.Status()
        self._ranks = {name: rank for rank, name in enumerate(names)}
        super().__init__(names[comm.rank], names, deadline, observer, slowed, patience=patience)
        _JOB.runs += 1
        _JOB.together, _JOB.why = False, ""
        self._tag = _JOB.runs % _TAGS
        self._digest = RunTerms.of(names, job or {}).digest
        self._unfit: JobMismatch | None = None
        self._told = dict.fromkeys(self.others(), 0)  # the stage that each was told last
        self._stages = dict.fromkeys(self.others(), 0)
        self._ends = dict.fromkeys(self.others(), 0)
        self._heard = dict.fromkeys(self.others(), self._now())  # when
        self._distrusted: set[str] = set()
        # MPI does not copy what it sends: a frame has to stay until its request is complete.
        self._leaving: list[tuple[str, MPI.Request, memoryview]] = []
        # Whole messages come in order; a long one holds up those behind it from the same party.
        self._coming: dict[str, deque[tuple[MPI.Request, bytearray]]] = {name: deque() for name in self.others()}
        self._active = self._turned = self._now()  # the last message, and the last turn of the loop
        self._polling = self._loop.call_soon(self._poll)
        self._napping = self._unusable = False
        self._untaken = ""

    # -- the start of a run -------------------------------------------------------------------------------------

    async def _join(self) -> None:
        await self._reach(JOINED)

    def _say_stage(self) -> None:
        for name in self.others():
            self._say_stage_to(name)

    def _say_stage_to(self, name: str) -> None:
        self._told[name] = self.stage
        self._put(name, pack_message(_STAGE, self.stage, "stage", self._digest))

    def _behind(self, stage: int) -> str | None:
        return next((name for name, reached in self._stages.items() if reached < stage), None)

    def _trouble(self, peer: str) -> str:
        return "it is there, and not as far" if self._stages[peer] else f"nothing came from rank {self._ranks[peer]}"

    def _obstacle(self) -> ColonnadeError | None:
        return self._unfit or self.broken

    def _hear_stage(self, frm: str, stage: int, digest: Any) -> None:
        if digest != self._digest:
            self._unfit = JobMismatch(
                f"party {frm!r} (rank {self._ranks[frm]}) has another job or other parties than {self.me!r} "
                f"(rank {self._ranks[self.me]}); give every rank the same files"
            )
        if stage < _CLOSED:
            self._stages[frm] = max(self._stages[frm], stage)
        else:
            self._ends[frm] = stage
            if self.stage < _CLOSED:
                self._say_stage_to(frm)  # it wants to know whether this party is alive
        self.heard_stage(stage)

    # -- frames -------------------------------------------------------------------------------------------------

    def _put_frame(self, to: str, frame: bytes) -> None:
        if self.stage == _PARTED:  # nobody is left who wants to know
            return
        if self._told[to] != self.stage:  # so that whatever it hears of a run comes after the start of it
            self._say_stage_to(to)
        self._put(to, frame)

    def _full(self, to: str) -> bool:
        return sum(name == to for name, _, _ in self._leaving) >= _UNDER_WAY

    def _put(self, to: str, frame: bytes) -> None:
        body = memoryview(frame)[HEADER.size :]  # MPI keeps the length of a message by itself
        request = self._comm.Isend([body, self._byte], self._ranks[to], self._tag)
        if not request.Test():
            self._leaving.append((to, request, body))
        self._stay_awake()

    def _stay_awake(self) -> None:
        self._active = self._now()
        if self._napping:
            self._napping = False
            self._polling.cancel()
            self._polling = self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        try:
            moved = self._take_all()
            if self._leaving:
                still = [each for each in self._leaving if not each[1].Test()]
                moved = moved or len(still) < len(self._leaving)
                self._leaving = still
                if self._held_up:
                    self.go_on_sending()
        except self._failure as error:
            self._lost(error)
            return
        now = self._now()
        idle = now - self._turned < _IDLE_TURN
        if moved:
            self._active = now
            if self.stage >= _CLOSED:
                self.stirred()
        under_way = self._leaving or any(self._coming.values())
        quiet = now - self._active
        self._napping = quiet > (_TRANSFER if under_way else _DOZING)
        if self._napping:
            self._polling = self._loop.call_later(_NAP, self._poll)
        else:
            if quiet > _SPIN and idle:  # else coroutines of this party have work to do
                time.sleep(_DOZE)
            self._polling = self._loop.call_soon(self._poll)
        self._turned = self._now()

    def _take_all(self) -> bool:
        """Take what has come, and say whether anything has."""
        moved = False
        for _ in range(_AT_ONCE):
            message = self._comm.Improbe(tag=self._tag, status=self._status)
            if message is None:
                break
            moved = True
            frm = self.names[self._status.source]
            size = self._status.Get_count(self._byte)
            if size > MAX_MESSAGE:
                # No room is made for it, so it is never taken, and MPI can't be left in order any more.
                self._untaken = f"party {frm!r} sent a message of {size} bytes"
                self._distrust(frm, OversizedMessage(f"{size} bytes, at most {MAX_MESSAGE} are allowed"))
                continue
            body = bytearray(size)
            request = message.Irecv([body, self._byte])
            if self._coming[frm] or not request.Test():
                self._coming[frm].append((request, body))
            else:
                self._arrived(frm, body)
        for frm, queue in self._coming.items():
            while queue and queue[0][0].Test():
                moved = True
                self._arrived(frm, queue.popleft()[1])
        return moved

    def _arrived(self, frm: str, body: bytearray) -> None:
        self._heard[frm] = self._now()
        try:
            if body and body[0] == _STAGE:
                _, stage, _, digest = unpack_message(body)
                self._hear_stage(frm, stage, digest)
            elif frm not in self._distrusted:
                self.arrived(frm, body)
        except ProtocolError as error:
            self._distrust(frm, error)

    def _distrust(self, frm: str, error: ProtocolError) -> None:
        """Not an honest party's message: name the sender, believe nothing more from it but that it ends."""
        self._distrusted.add(frm)
        self.distrust(frm, error)

    def _lost(self, error: Exception) -> None:
        """MPI itself failed, and says no more than that: nothing comes and nothing goes from here on."""
        self._unusable = True
        if self.broken is None:
            text = f"party {self.me!r} can't use MPI any more at step {self.step!r}{self._round()}: {error}"
            self.broken = PartyFailed(text, self.me, self.step)
        self._fail_waits()

    # -- the end of a run ---------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End what was spawned, and wait until all others have ended too: ranks can only leave together.

        After a failure they get one deadline. A run that went well is waited for as long as the others answer: they
        may have work to do that does not need this party any more.
        """
        await self.end_tasks()
        with suppress(self._failure):
            # Twice, because MPI is not to end with a message that nobody took: while some party still runs there are
            # questions and answers; once all have ended, each says its last word, and leaves when it has heard all.
            together = await self._end_with_all(_CLOSED) and await self._end_with_all(_PARTED)
            _JOB.together, _JOB.why = together and not self._untaken, _JOB.why or self._untaken
        self._polling.cancel()

    async def _end_with_all(self, stage: int) -> bool:
        """Wait until all others are at this stage of the end; whether they are."""
        self.stage = stage
        self._say_stage()
        since = asked = self._now()
        until = math.inf
        while slow := self._not_yet(stage):
            now = self._now()
            if self.broken is not None or stage == _PARTED:
                until = min(until, now + self.deadline)
            silent = [name for name in slow if now - max(since, self._heard[name]) > self.deadline]
            if silent or now > until or self._unusable:
                _JOB.why = f"party {(silent or slow)[0]!r} did not end within {self.deadline:g} s after {self.me!r} had"
                return False
            await self._stirring(self.deadline / _PINGS_PER_DEADLINE)
            if stage == _CLOSED and self._now() - asked > self.deadline / _PINGS_PER_DEADLINE:
                asked = self._now()
                for name in self._not_yet(stage):
                    self._say_stage_to(name)
        return True

    def _not_yet(self, stage: int) -> list[str]:
        """Who has not said that it is at this stage of the end, or has not yet taken all that it was told."""
        taking = {name for name, _, _ in self._leaving}
        return [name for name, reached in self._ends.items() if reached < stage or name in taking]
