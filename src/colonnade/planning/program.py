"""One party's program for a plan. All parties do the same trials, in the same order.

1. ready     everything that a run does before training
2. lines     latency and bandwidth between every two parties
3. alone     second-order algorithms to their end, others for some rounds: what a round costs, on all rows
4. together  how many rounds there will be (`planning.forecast`): on some of the rows where all of them take too long,
             and side by side, so that round trips overlap
5. figures   the first label holder works them out and tells them; each party adds the bytes that will leave it
6. untried   sealed training, and for a sealed job open training too, worked out from the number of columns and the
             lines; of a sealed job, and of trees, there is nothing else but the lines
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from colonnade.algorithms import Algorithm
from colonnade.engine.exposure import ENCRYPTED, agree_on_batch, in_shares
from colonnade.engine.kept import Keeper
from colonnade.errors import ProtocolError
from colonnade.jobs.budget import Budget
from colonnade.jobs.job import Job
from colonnade.planning.candidates import Candidate, agree_on_candidates, candidates, timed, tries_nothing
from colonnade.planning.figures import FIGURES, Figures, Forecast, Plan, Trial
from colonnade.planning.forecast import Span
from colonnade.planning.trials import Aside, LineSpeed, Taken, attempt, measure_lines, sample
from colonnade.planning.untried import untried
from colonnade.runtimes.net import Net
from colonnade.service.training import Align, Ready, Source, get_ready
from colonnade.sums.trees import topology

# Parts of the seconds that a plan may take: for each second-order algorithm, for the timed rounds of each other one,
# and for all that is tried together.
_NEWTON, _TIMED, _TOGETHER = 0.25, 0.03, 0.65
# Epochs that an algorithm usually takes to stop, from which follows how many rows it can be tried on; and the fewest
# and most batches of these rows.
_USUAL, _FEWEST, _MOST = 40, 8, 64
# An answer that comes sooner than this comes from the same machine, and what it takes is computing and not the line.
_NEAR_BY = 0.002
# Points on the curve of an algorithm that remembers all rows, and the epochs that it has on a sample; where there is
# time for _MANY epochs on all rows, it runs by its own rule there.
_POINTS, _EPOCHS, _MANY = 12, 4, 3
# Samples of rows, as one may be unlike the others: at least so many, and at most, where computing them all takes no
# longer than the line does.
_DRAWS, _MOST_DRAWS = 3, 5
# Numbers about each person that a policy must let out for each algorithm that is tried, since trials that the policy
# cuts short would say nothing about a run.
_NUMBERS = 100
# Rows on which a second-order algorithm is tried to its end, where all of them take too long.
_SECOND_ORDER_ROWS = 1 << 13


async def make_plan(
    net: Net,
    job: Job,
    source: Source,
    align: Align,
    check: Callable[[int, int], None],
    keeper_of: Callable[[int], Keeper] | None = None,
    seconds: float = 25.0,
    say: Callable[[str, int, int], None] = lambda *_: None,
    budget: Budget | None = None,
) -> Plan:
    """Try what could train this job, and say what a run with each algorithm will take.

    Parameters
    ----------
    net
        The party's view of the federation.
    job
        The job that is planned.
    source
        The party's table.
    align
        Finds the common rows.
    check
        Gets a number of columns and the rows of a batch, and raises where the party's policy does not allow them.
    keeper_of
        Where the states of a trial are kept, by its number, if a run keeps any.
    seconds
        How long all trials together may take.
    say
        Hears what is tried, how many trials are done, and of how many.
    budget
        Numbers about people that may leave the party; every trial is a training and pays like one.
    """
    known = candidates(job)
    ready = await get_ready(net, job, source, align, check, budget=budget)
    if job.sum == ENCRYPTED and job.algorithm.batch is None:
        batch = await _usual_batch(net, job, ready)  # that of all rows, as trials on some rows would choose another
        known = [replace(one, algorithm=replace(one.algorithm, batch=batch)) for one in known]
    before, sent = net.elapsed(), net.traffic.bytes
    columns = len(ready.prepared.columns)
    if tries_nothing(job):
        say("the lines", 0, 2)
        lines = await measure_lines(net)
        return Plan(ready.train, lines, before, await _untried(net, job, ready, lines, (before, sent)))
    chosen = await agree_on_candidates(net, known, ready.train, len(job.holders), lambda batch: check(columns, batch))
    if budget is not None:
        budget.check(_NUMBERS * len(chosen) * ready.outputs, f"a plan that tries {len(chosen)} algorithms")
    say("the lines", 0, len(chosen) + 2)
    planner = Planner(net, job, ready, chosen, keeper_of, seconds, say, await measure_lines(net), budget)
    await planner.try_alone()
    await planner.try_together()
    plan = await planner.figures(before, sent)
    return replace(plan, forecasts=(*plan.forecasts, *await _untried(net, job, ready, planner.lines, (before, sent))))


async def _untried(
    net: Net, job: Job, ready: Ready, lines: Mapping[str, LineSpeed], spent: tuple[float, int]
) -> tuple[Forecast, ...]:
    """Return what is worked out and not tried, in the seconds of the first label holder, whose lines it is about.

    spent: the seconds and bytes of what comes before training, which are part of every run.
    """
    before, sent = spent
    others = [name for name in net.names if name != net.me]
    mine = (float(len(ready.prepared.columns)), float(sent))
    for name in others:
        await net.send(name, "plan", mine)
    told = {net.me: mine, **{name: _numbers(await net.recv(name, "plan"), 2, name) for name in others}}
    columns = {name: int(told[name][0]) for name in net.names}
    line = LineSpeed(
        max((one.latency for one in lines.values()), default=0.0),
        min((one.bandwidth for one in lines.values()), default=math.inf),
    )
    found, leader = untried(job, ready.train, columns, ready.outputs, line), job.holders[0]
    seconds = tuple(before + one.seconds.likely for one in found)
    if net.me != leader:
        seconds = tuple(_numbers(await net.recv(leader, "plan"), len(found), leader))
    else:
        for name in others:
            await net.send(name, "plan", seconds)
    return tuple(
        replace(
            one,
            seconds=Span(whole, whole, whole),
            sent={name: told[name][1] + count for name, count in one.sent.items()},
        )
        for one, whole in zip(found, seconds, strict=True)
    )


async def _usual_batch(net: Net, job: Job, ready: Ready) -> int:
    """What a run of this job, which names no batch, would agree on."""
    columns = job.width(net.me, len(ready.prepared.columns))
    shares = dict.fromkeys(job.holders, ready.train // len(job.holders))
    return (await agree_on_batch(net, columns, shares, ready.outputs, None))[0]


class Planner:
    """One party's side of the trials."""

    def __init__(
        self,
        net: Net,
        job: Job,
        ready: Ready,
        chosen: list[Candidate],
        keeper_of: Callable[[int], Keeper] | None,
        seconds: float,
        say: Callable[[str, int, int], None],
        lines: Mapping[str, LineSpeed],
        budget: Budget | None = None,
    ) -> None:
        self._budget = budget
        self.net, self.job, self.ready, self.chosen, self.lines = net, job, ready, chosen, lines
        self._keeper_of, self._seconds, self._say = keeper_of, seconds, say
        self._limit, self._numbers, self._doing = seconds * _TOGETHER, 0, ("", 0)
        saves_every = None if keeper_of is None else job.checkpoint_every
        self._found = Figures(ready.train, len(job.holders), self._limit, saves_every)

    # -- trials -------------------------------------------------------------------------------------------------

    def _start(self, trial: Trial, share: float, *, keeps: bool = False) -> Coroutine[Any, Any, Taken]:
        """Start a trial that may let out this share of the numbers that the budget has left."""
        self._numbers += 1
        # Where gradients are opened the first round is on all rows, so what rounds take is seen after it.
        opens = self.job.sum == ENCRYPTED and not in_shares(self.job.sum, self.job.holders)
        aside = Aside(self.net, self._numbers, self._sign_of_life, int(opens))
        mine = self.ready.mine
        if trial.rows < self.ready.train:
            mine = sample(mine, trial.rows, self.ready.train, (self.job.algorithm.seed, trial.draw))
        keeper = self._keeper_of(self._numbers) if keeps and self._keeper_of is not None else None
        job = replace(self.job, algorithm=trial.algorithm).training(self.ready.outputs)
        return attempt(aside, job, mine, keeper, None if self._budget is None else self._budget.part(share))

    def _do(self, what: str, turn: int) -> None:
        self._doing = (what, turn)
        self._sign_of_life()

    def _sign_of_life(self) -> None:
        what, turn = self._doing
        self._say(f"{what}, {self.net.traffic.rounds:,} rounds so far", turn, len(self.chosen) + 2)

    async def try_alone(self) -> None:
        """Try the algorithms one after another on all rows, with nothing else under way that would take time."""
        for turn, one in enumerate(sorted(self.chosen, key=lambda one: not one.second_order), 1):
            self._do(one.name, turn)
            if one.second_order:
                limit = min(self._seconds * _NEWTON, one.algorithm.seconds or math.inf)
                method: Algorithm = replace(one.algorithm, seconds=limit)
            else:
                limit = self._seconds * _TIMED
                method = timed(one, self._found.batches(one, self.ready.train), limit)
            trial = Trial(method, self.ready.train)
            await self._meet()
            taken = await self._start(trial, 0.5 / (len(self.chosen) - turn + 1), keeps=True)
            cut = one.second_order and taken.trained >= limit and limit != one.algorithm.seconds
            self._found.note_alone(one, trial, taken, cut=cut)

    async def try_together(self) -> None:
        """Try the algorithms side by side, for as many rounds as the first label holder finds time for."""
        found = self._found
        mine = [number for one in self.chosen for number in (found.pace(one), float(found.known[one].cut))]
        on_the_line, *told = await self._from_leader([self._on_the_line(), *mine])
        paces = dict(zip(self.chosen, told[::2], strict=True))
        for one, cut in zip(self.chosen, told[1::2], strict=True):
            found.known[one].cut = cut > 0.0
        self._do("all together", len(self.chosen) + 1)
        wanted: list[tuple[Candidate | None, Trial]] = []
        for one in self.chosen:
            wanted += [(one, trial) for trial in self._together(one, paces[one], on_the_line)]
        # The optimum on fewer rows takes a second-order algorithm some rounds.
        if newton := next((one for one in self.chosen if one.second_order), None):
            fewer = {(trial.rows, trial.draw) for _, trial in wanted if trial.rows < self.ready.train}
            wanted += [(None, Trial(self._limited(newton.algorithm), *each)) for each in sorted(fewer)]
        tasks = [self.net.spawn(self._start(trial, 1.0 / len(wanted))) for _, trial in wanted]
        for (whose, trial), task in zip(wanted, tasks, strict=True):
            found.note(whose, trial, await task)

    def _on_the_line(self) -> float:
        """Return the seconds of a round in which nobody computes: contributions travel to the root, an answer back."""
        tree = topology(self.job.topology, self.net.names, self.job.holders[0])
        slowest = max(line.latency for line in self.lines.values())
        return 0.0 if slowest < _NEAR_BY else 0.5 * slowest * (tree.depth + 1)

    def _together(self, one: Candidate, pace: float, on_the_line: float) -> list[Trial]:
        """Return what to try of an algorithm whose rounds take `pace` seconds, `on_the_line` of which trials share."""
        method, every = one.algorithm, self.ready.train
        limited = self._limited(method)
        if one.second_order:
            return [Trial(limited, min(every, _SECOND_ORDER_ROWS))] if self._found.known[one].cut else []
        # While one party computes for one trial, the others compute for another: it takes half as long as alone.
        computing = max(0.0, pace - on_the_line) * len(self.chosen) / 2
        draws = max(_DRAWS, min(_MOST_DRAWS, int(pace / max(computing, 1e-6))))
        affordable = self._limit / max(pace, draws * computing, 1e-6)  # rounds
        batches = self._found.batches(one, every)
        if affordable >= min(method.epochs, 2 * _USUAL) * batches or (one.remembers and affordable >= _MANY * batches):
            return [Trial(limited, every)]
        share = affordable / (_EPOCHS if one.remembers else min(_USUAL, method.epochs))  # batches
        share = share if one.remembers else min(share, _MOST)
        holders = len(self.job.holders)
        rows = min(every, max(_FEWEST, int(share / holders)) * method.batch_for(every) * holders)
        if one.remembers:
            epoch = self._found.batches(one, rows)
            stride = max(1, min(epoch, int(affordable / _POINTS)))
            tol = None if method.tol is None else method.tol * stride / epoch
            limited = replace(
                limited, evaluate_every=stride, tol=tol, patience=1 << 30, epochs=max(1, int(affordable / epoch))
            )
        trials = [Trial(limited, rows, draw, whole=not one.remembers) for draw in range(draws)]
        return trials if rows < every else trials[:1]

    def _limited(self, method: Algorithm) -> Algorithm:
        """Return the algorithm with a limit on its time, which is all that the plan has for what is tried together."""
        return replace(method, seconds=self._limit)

    # -- figures ------------------------------------------------------------------------------------------------

    @property
    def _leads(self) -> bool:
        return self.net.me == self.job.holders[0]

    async def figures(self, before: float, sent: int) -> Plan:
        """Make the plan, which is the same at all parties but for the lines, which are those of this one."""
        self._do("the figures", len(self.chosen) + 2)
        none = [0.0] * FIGURES
        mine = [figure for one in self.chosen for figure in (self._found.of(one, before) if self._leads else none)]
        told = await self._from_leader(mine)
        each = [told[at : at + FIGURES] for at in range(0, len(told), FIGURES)]
        mine = [sent + self._found.bytes(one, rounds) for one, (_, rounds, *_) in zip(self.chosen, each, strict=True)]
        by_party = {self.net.me: mine, **await self._from_others(mine)}
        forecasts = [
            Forecast(
                one.name, one.own, Span(*figures[:3]), Span(*figures[3:6]), figures[6], int(figures[7]),
                {name: by_party[name][turn] for name in self.net.names}, self.job.protection,
            )
            for turn, (one, figures) in enumerate(zip(self.chosen, each, strict=True))
        ]  # fmt: skip
        return Plan(self.ready.train, self.lines, before, tuple(forecasts))

    # -- what is told -------------------------------------------------------------------------------------------

    async def _meet(self) -> None:
        """Begin together, as otherwise a trial would wait for a party that is still busy with the one before."""
        leader = self.job.holders[0]
        if not self._leads:
            await self.net.send(leader, "plan", None)
            await self.net.recv(leader, "plan")
            return
        others = [name for name in self.net.names if name != self.net.me]
        for name in others:
            await self.net.recv(name, "plan")
        for name in others:
            await self.net.send(name, "plan", None)

    async def _from_leader(self, mine: list[float]) -> list[float]:
        """Return the first label holder's numbers, of which there are as many as here."""
        leader = self.job.holders[0]
        if not self._leads:
            return _numbers(await self.net.recv(leader, "plan"), len(mine), leader)
        for name in self.net.names:
            if name != self.net.me:
                await self.net.send(name, "plan", tuple(mine))
        return mine

    async def _from_others(self, mine: list[float]) -> dict[str, list[float]]:
        others = [name for name in self.net.names if name != self.net.me]
        for name in others:
            await self.net.send(name, "plan", tuple(mine))
        return {name: _numbers(await self.net.recv(name, "plan"), len(mine), name) for name in others}


def _numbers(told: Any, count: int, party: str) -> list[float]:
    if type(told) is not tuple or [type(one) for one in told] != [float] * count:
        raise ProtocolError(f"party {party!r} must tell {count} numbers at step 'plan'")
    return list(told)
