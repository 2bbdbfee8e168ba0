"""Asynchrony as the papers print it: every label holder launches updates on rows of its own choice, as often as it can.

VFB², Algorithm 2, and AFSGD-VP, Algorithms 3 to 5: a label holder picks rows, asks for their scores, updates, and goes
on with others, in as many threads as it has. It waits for nobody's updates, no party leaves rows out or drops a signal,
and no epoch ends, so a slow party's signals wait without bound. Our own flow of batches is `flows.asynchrony`; what it
gains is in docs/adr/0037-asynchrony-as-printed.md.

Rows come from the public seed and a label holder's own number, so that it sends a counter and never an index. What it
asks for forms one stream, which every party serves in its order: sums of one root must be in one order everywhere.
Evaluations are asked for in the same streams, and training goes on beside them. The first label holder, who knows of
all launches, asks for them.

Nobody is left waiting at the end. When all launches are made, or a verdict says so, the first label holder lets its own
end and closes its stream; then every other label holder does; and a party is done when all streams are closed and its
updates are made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.engine.sampling import Draws
from colonnade.errors import ProtocolError
from colonnade.flows.asynchrony import BatchSteps, Bell, Given
from colonnade.flows.updates import Updater
from colonnade.runtimes.net import Promise

# What a stream has beside the numbers of launches.
_LOOK, _CLOSE = -1, -2
# Part of the deadline after which it is seen whether another's stream has a reason to be silent still; what is left of
# the deadline is enough to find out who fell silent.
_IDLE = 1 / 40


class OwnDraws:
    """The rows of every label holder's launches, one after another, which all parties know."""

    def __init__(self, sampling: str, seed: int, passes: int, rows: Mapping[str, Rows], batch: int) -> None:
        self._draws: dict[str, Draws] = {}
        for number, (holder, mine) in enumerate(rows.items()):
            own = int(np.random.SeedSequence([seed, number, 0xF10]).generate_state(1)[0])
            self._draws[holder] = Draws(sampling, own, passes, {holder: mine}, batch)
        self.a_pass = {holder: -(-len(mine) // batch) for holder, mine in rows.items()}  # launches for all rows once
        self._now: dict[str, tuple[int, list[Rows]]] = {holder: (0, []) for holder in rows}

    def rows(self, holder: str, launch: int) -> Rows:
        """The rows of a launch; asked for in the order of launches."""
        at, place = divmod(launch, self.a_pass[holder])
        if self._now[holder][0] != at + 1:
            self._now[holder] = at + 1, [rows for _, rows in self._draws[holder].batches(at + 1)]
        return self._now[holder][1][place]


class FreeLaunches:
    """One party's side of a stage of free launches: of the whole run, or from one snapshot of SVRG to the next.

    Parameters
    ----------
    steps : BatchSteps
        What is done about a batch.
    draws : OwnDraws
        The rows of launches.
    first, last : mapping of str to int
        The launches of each label holder: from the first one to before the last.
    threads : int
        Launches and updates of a party at once.
    every, an_epoch : int
        Launches of all label holders together from one evaluation to the next, and those of an epoch.
    """

    def __init__(
        self,
        steps: BatchSteps,
        draws: OwnDraws,
        first: Mapping[str, int],
        last: Mapping[str, int],
        threads: int,
        every: int,
        an_epoch: int,
    ) -> None:
        self.steps, self.draws, self.threads, self.every, self.an_epoch = steps, draws, threads, every, an_epoch
        self.session, self.net = steps.session, steps.session.net
        self.me, self.leader = self.net.me, self.session.leader
        self.next, self.last = dict(first), last
        self.begun = sum(first.values())  # launches of all, as far as this party has served them
        self.total, self.looked = sum(last.values()), self.begun // every
        self.looks = dict.fromkeys(last, self.total // every - self.looked)  # that each may still ask for
        self.updater = Updater(steps, threads)
        self.waiting: deque[tuple[Given, float, int]] = deque()
        self.open = 0  # launches whose outcome is still to come
        self.asked: deque[tuple[int, Promise]] = deque()  # what goes into this party's own stream
        self.go_on = True  # what the last verdict said
        self.closing = False  # whether the first label holder's stream is closed
        self.ending = False  # whether this party closes its own
        self.streams = len(self.session.job.holders)  # that are open
        self.tags = {holder: f"scores for {k}" for k, holder in enumerate(self.session.job.holders, 1)}
        self.work, self.ask, self.served = Bell(self.net), Bell(self.net), Bell(self.net)

    async def run(self) -> bool:
        """Serve all streams and launch, if this party has labels, until all is done; says what the verdict was."""
        holders = self.session.job.holders
        for holder in holders:
            self.net.spawn(self.serve(holder))
        if self.me in holders:
            self.net.spawn(self.launch_all())
        more = [self.net.spawn(self.work_off()) for _ in range(self.threads - 1)]
        await self.work_off()
        for other in more:
            await other
        self.updater.settle()
        return self.go_on

    # -- Algorithm 2, or AFSGD-VP's Algorithm 3: a label holder -------------------------------------------------------

    async def launch_all(self) -> None:
        """Launch with every thread; then close the stream, the first label holder first."""
        launching = [self.net.spawn(self.keep_launching()) for _ in range(self.threads)]
        if self.me == self.leader:
            await self.watch()
        for one in launching:
            await one
        while self.me != self.leader and not self.closing:
            await self.served.wait()
        self.ending = True
        await self.request(_CLOSE)

    async def watch(self) -> None:
        """At the first label holder: have all rows evaluated from time to time, until all launches are made."""
        while self.go_on and self.begun < self.total:
            if self.begun // self.every > self.looked:
                self.looked = self.begun // self.every
                await self.request(_LOOK)
            else:
                await self.served.wait()

    async def keep_launching(self) -> None:
        """What one thread does: pick rows, get their scores, tell the signal, update."""
        while self.go_on and self.next[self.me] < self.last[self.me]:
            launch = self.next[self.me]
            self.next[self.me] += 1
            given, read_at = await self.request(launch)
            if given is not None:
                await self.updater.update(given, self.session.eta(), read_at)
                self.work.ring()

    def request(self, what: int) -> Promise:
        """Put something into this party's own stream; the promise is kept when it is done here."""
        kept = self.net.promise()
        self.asked.append((what, kept))
        self.ask.ring()
        return kept

    # -- every party serves every stream in its order ----------------------------------------------------------------

    async def serve(self, holder: str) -> None:
        """Contribute to all that one label holder asks for, with the parameters as they are now."""
        block, what = self.session.block, _LOOK
        while what != _CLOSE:
            what, kept = await self.hear(holder)
            if what >= 0:
                rows = self.draws.rows(holder, what)
                if self.net.watcher is not None:
                    self.net.watcher.expects([(holder, rows)], 1 + self.begun // self.an_epoch)
                await self.net.work(block.touched(rows), "forward")
                read_at, mine = self.updater.version, block.scores(rows)
                self.begun += 1
                self.open += 1
                self.net.spawn(self.answer(holder, rows, mine, read_at, kept))
            elif what == _LOOK:
                await self.net.spawn(self.look(holder, kept))  # its sums begin behind those of earlier launches
            self.served.ring()
        self.closing |= holder == self.leader
        self.streams -= 1
        self.served.ring()
        self.work.ring()
        if kept is not None:
            kept.set_result(None)

    async def hear(self, holder: str) -> tuple[int, Promise | None]:
        """The next of a stream: of one's own it is told to the others first."""
        if holder == self.me:
            while not self.asked:
                await self.ask.wait()
            what, kept = self.asked.popleft()
            await self.session.tell_each("launch", what)
            return what, kept
        what = await self.next_of(holder)
        # No more evaluations than launches allow: each shows its asker a number about every row of its own.
        # And nobody closes before the first label holder, who would wait for the rest of that stream.
        closes = self.me != self.leader or self.ending
        expected = (self.next[holder], *((_LOOK,) if self.looks[holder] else ()), *((_CLOSE,) if closes else ()))
        if type(what) is not int or what not in expected or what >= self.last[holder]:
            raise ProtocolError(
                f"party {holder!r} must send the number of its next launch at step 'launch', which is "
                f"{self.next[holder]}, got {what!s:.40}; check that every party runs the same job"
            )
        if what >= 0:
            self.next[holder] += 1
        self.looks[holder] -= what == _LOOK
        return what, None

    async def next_of(self, holder: str) -> Any:
        """What another's stream has next; whoever has nothing to launch for now is not silent without a reason."""
        while self.idle(holder):
            if found := await self.net.recv_within(holder, "launch", _IDLE * self.net.deadline):
                return found[0]
        return await self.net.recv(holder, "launch")

    def idle(self, holder: str) -> bool:
        """Whether a label holder waits for others before its stream goes on."""
        launching = self.go_on and self.next[holder] < self.last[holder]
        others = self.go_on and self.begun < self.total if holder == self.leader else not self.closing
        return not launching and others

    async def answer(self, holder: str, rows: Rows, mine: FloatArray, read_at: int, kept: Promise | None) -> None:
        """Algorithm 1, and what the label holder makes of its outcome; elsewhere it waits for its update."""
        scores = await self.steps.add_up(self.tags[holder], holder, mine)
        flow, given = self.session.flow, None
        if scores is not None:
            given = await self.steps.dominate(rows, scores)
        elif holder != self.me:
            given = await self.steps.collaborate(holder, rows)
        self.session.count_round(1 + self.begun // self.an_epoch)
        if given is not None:
            flow.rows, flow.used = flow.rows + len(given.rows), flow.used + len(given.rows)
        self.open -= 1
        if kept is not None:
            kept.set_result((given, read_at))
        elif given is not None:
            self.waiting.append((given, self.session.eta(), read_at))
        self.work.ring()

    # -- Algorithm 3: every party updates with the signals that reach it -----------------------------------------------

    async def work_off(self) -> None:
        """What one thread does: update after update, however old the signals are."""
        while self.streams or self.open or self.waiting or self.updater.running:
            if self.waiting:
                await self.updater.update(*self.waiting.popleft())
                self.work.ring()
            else:
                await self.work.wait()
        self.work.ring()

    # -- evaluations beside all that -----------------------------------------------------------------------------------

    async def look(self, holder: str, kept: Promise | None) -> None:
        """Evaluate the rows of one label holder; in the first one's stream, all of them, and hear its verdict."""
        own = None
        if holder == self.leader and self.me != holder and self.me in self.session.job.holders:
            own = self.request(_LOOK)
        self.updater.alone += 1  # to evaluate touches every column, which no running update may see
        while self.updater.busy:
            await self.updater.done.wait()
        # Sums for different holders go on at once, so each has messages of its own.
        session, tag = self.session, self.tags[holder].replace("scores", "evaluation")
        shares: list[float] = []
        for part in session.parts:
            shares += session.share_in(part, await session.scores_by(tag, part, part.owned[holder], holder))
        if holder == self.leader:
            self.go_on = await self.session.judge(max(1, self.begun // self.an_epoch), await own if own else shares)
        self.updater.alone -= 1
        if kept is not None:
            kept.set_result(shares)
