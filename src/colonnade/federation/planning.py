"""A plan at one party: a coroutine over a `Net`, like every program. All do the same trials, in the same order.

1. everything that a run does before training
2. lines     latency and bandwidth between every two parties
3. alone     second-order algorithms to their end, others for some rounds: what a round costs, on all rows
4. together  how many rounds there will be: side by side, so that round trips overlap. Algorithms that remember a signal
             of every row go as far as time allows on all rows; the others stop by their own rule on some of the rows,
             as that rule counts epochs.
5. figures   the first label holder works them out and tells them; each party adds the bytes that will leave it
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from colonnade.algorithms import Algorithm
from colonnade.algorithms.forecast import Span, epochs_to_stop
from colonnade.algorithms.kept import Keeper
from colonnade.errors import ProtocolError
from colonnade.federation.candidates import Candidate, agree_on_candidates, candidates, timed
from colonnade.federation.costs import Costs, bytes_of, save_of, seconds_of
from colonnade.federation.job import Job
from colonnade.federation.lines import Line, measure_lines
from colonnade.federation.training import Align, Ready, Source, get_ready, linear_job
from colonnade.federation.trials import Aside, Taken, attempt, sample
from colonnade.runtimes.net import Net

# Of the seconds that a plan may take: for each second-order algorithm, for the timed rounds of each other one, and for
# all that is tried together.
_NEWTON, _TIMED, _TOGETHER = 0.25, 0.04, 0.5
# Epochs that an algorithm usually takes to stop, to choose how many rows it can be tried on; batches of these rows.
_USUAL, _FEWEST, _MOST = 40, 8, 64
# A round that takes less is computing, which does not overlap with that of other trials.
_COMPUTING = 0.005
# Points on the curve of an algorithm that does not get through some epochs in the time there is.
_POINTS, _EPOCHS = 12, 6
# Rows on which a second-order algorithm is tried to its end, where all of them take too long.
_SECOND_ORDER_ROWS = 1 << 13
# As near to the lowest objective an algorithm shall end, as a part of it, to be recommended.
NEAR = 1e-4


@dataclass(frozen=True)
class Forecast:
    """What a run with one algorithm will take, from the handshake's end to the model."""

    name: str
    own: bool  # the job's algorithm
    rounds: Span
    seconds: Span
    gap: float  # to the lowest objective, as a part of it, on the rows that were tried; nan where nothing is known
    tried: int  # rows
    sent: Mapping[str, float]  # bytes, by party


@dataclass(frozen=True)
class Plan:
    """All of them, the lines they were measured over, and what every run begins with."""

    rows: int
    lines: Mapping[str, Line]
    before: float  # seconds for alignment and preparation
    forecasts: tuple[Forecast, ...]

    @property
    def best(self) -> Forecast:
        """The fastest of those that end near the optimum; where none is known to, the nearest."""
        near = [one for one in self.forecasts if one.gap <= NEAR]
        if near:
            return min(near, key=lambda one: one.seconds.likely)
        return min(self.forecasts, key=lambda one: (math.inf if math.isnan(one.gap) else one.gap, one.seconds.likely))


@dataclass
class _Known:
    """What the trials of one algorithm found, at this party."""

    alone: Taken
    cut: bool = False  # whether a second-order one was ended by the clock
    together: list[tuple[int, Taken]] = field(default_factory=list)  # (rows, what it took), the most rows last


async def make_plan(
    net: Net,
    job: Job,
    source: Source,
    align: Align,
    check: Callable[[int, int], None],
    keeper_of: Callable[[int], Keeper] | None = None,
    seconds: float = 30.0,
    say: Callable[[str, int, int], None] = lambda *_: None,
) -> Plan:
    """Try what could train this job, and say what a run with each of them will take. `check` as in `take_part`.

    keeper_of: where the states of a trial are kept, by its number, if a run keeps any. seconds: for all trials.
    say: hears (what is tried, how many trials are done, of how many).
    """
    known = candidates(job)
    ready = await get_ready(net, job, source, align, check)
    before, sent = net.elapsed(), net.traffic.bytes
    columns = len(ready.prepared.columns)
    chosen = await agree_on_candidates(net, known, ready.train, len(job.holders), lambda batch: check(columns, batch))
    say("the lines", 0, len(chosen) + 2)
    planner = Planner(net, job, ready, chosen, keeper_of, seconds, say, await measure_lines(net))
    await planner.try_alone()
    await planner.try_together()
    return await planner.figures(before, sent)


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
        lines: Mapping[str, Line],
    ) -> None:
        self.net, self.job, self.ready, self.chosen, self.lines = net, job, ready, chosen, lines
        self._keeper_of, self._seconds, self._say = keeper_of, seconds, say
        self._numbers, self._known, self._cold = 0, dict[Candidate, _Known](), 0.0
        self._lowest: dict[int, float] = {}  # objective by the number of rows, at the first label holder

    # -- trials -------------------------------------------------------------------------------------------------

    def _start(self, algorithm: Algorithm, rows: int, *, keeps: bool = False) -> Coroutine[Any, Any, Taken]:
        self._numbers += 1
        aside = Aside(self.net, self._numbers)
        mine = self.ready.mine
        if rows < self.ready.train:
            mine = sample(mine, rows, self.ready.train, self.job.algorithm.seed)
        keeper = self._keeper_of(self._numbers) if keeps and self._keeper_of is not None else None
        told = linear_job(replace(self.job, algorithm=algorithm), self.ready.outputs)
        return attempt(aside, told, mine, keeper)

    async def try_alone(self) -> None:
        """One after another, on all rows: nothing else is under way that would take time."""
        for turn, one in enumerate(sorted(self.chosen, key=lambda one: not one.second_order), 1):
            self._say(one.name, turn, len(self.chosen) + 2)
            if one.second_order:
                limit = min(self._seconds * _NEWTON, one.algorithm.seconds or math.inf)
                method: Algorithm = replace(one.algorithm, seconds=limit)
            else:
                limit = self._seconds * _TIMED
                method = timed(one, self._batches(one, self.ready.train), limit)
            taken = await self._start(method, self.ready.train, keeps=True)
            cut = one.second_order and taken.end.seconds >= limit and limit != one.algorithm.seconds
            self._known[one] = _Known(taken, cut)
            # What the first one had to load and compile, the first of a run will have to.
            self._cold = self._cold or taken.evaluations[0].seconds
            self._note(self.ready.train, taken)

    async def try_together(self) -> None:
        """As many rounds as there is time for. How long they take is known at the first label holder."""
        mine = [number for one in self.chosen for number in (self._round_of(one), float(self._known[one].cut))]
        told = await self._from_leader(mine)
        paces = dict(zip(self.chosen, told[::2], strict=True))
        for one, cut in zip(self.chosen, told[1::2], strict=True):
            self._known[one].cut = cut > 0.0
        self._say(f"{len(self.chosen)} algorithms together", len(self.chosen) + 1, len(self.chosen) + 2)
        wanted: list[tuple[Candidate | None, Algorithm, int]] = []
        for one in self.chosen:
            wanted += [(one, *each) for each in self._together(one, paces[one])]
        # The optimum on fewer rows takes a second-order algorithm some rounds.
        if newton := next((one for one in self.chosen if one.second_order), None):
            seen = {rows for one, _, rows in wanted if one is newton}
            fewer = sorted({rows for _, _, rows in wanted if rows < self.ready.train} - seen)
            wanted += [(None, self._limited(newton.algorithm), rows) for rows in fewer]
        tasks = [self.net.spawn(self._start(method, rows)) for _, method, rows in wanted]
        for (whose, _, rows), task in zip(wanted, tasks, strict=True):
            taken = await task
            self._note(rows, taken)
            if whose is not None:
                self._known[whose].together.append((rows, taken))

    def _together(self, one: Candidate, pace: float) -> list[tuple[Algorithm, int]]:
        """(algorithm, rows) to try."""
        method, every = one.algorithm, self.ready.train
        if one.second_order:
            few = min(every, _SECOND_ORDER_ROWS)
            return [(self._limited(method), few)] if self._known[one].cut and few < every else []
        batch, batches, most = method.batch_for(every), self._batches(one, every), method.epochs
        limited = self._limited(method)
        at_once = len(self.chosen) + 1 if pace < _COMPUTING else 1
        affordable = self._seconds * _TOGETHER / max(pace * at_once, 1e-6)  # rounds
        if affordable >= min(most, 2 * _USUAL) * batches:
            return [(limited, every)]
        if one.remembers and affordable < _EPOCHS * batches:
            stride = max(1, int(affordable / _POINTS))
            tol = None if method.tol is None else method.tol * stride / batches
            return [(replace(limited, evaluate_every=stride, tol=tol, patience=1 << 30), every)]
        if one.remembers:
            return [(limited, every)]
        holders = len(self.job.holders)
        count = max(_FEWEST, min(_MOST, int(affordable / min(_USUAL, most) / holders)))
        rows = min(every, count * batch * holders)
        return [(limited, rows)] if rows == every else [(limited, rows // 2), (limited, rows)]

    def _limited(self, method: Algorithm) -> Algorithm:
        """Ended by the clock only where it would take the plan too long."""
        return replace(method, seconds=self._seconds * _TOGETHER)

    def _batches(self, one: Candidate, rows: int) -> int:
        """Of an epoch, where label holders share the rows equally."""
        holders = len(self.job.holders)
        return holders * -(-rows // (holders * one.algorithm.batch_for(rows)))

    def _note(self, rows: int, taken: Taken) -> None:
        for record in taken.records:
            self._lowest[rows] = min(self._lowest.get(rows, math.inf), record.objective)

    # -- figures ------------------------------------------------------------------------------------------------

    @property
    def _leads(self) -> bool:
        return self.net.me == self.job.holders[0]

    def _round_of(self, one: Candidate) -> float:
        costs, batches = seconds_of(self._known[one].alone), self._batches(one, self.ready.train)
        return costs.round + costs.evaluation / batches

    async def figures(self, before: float, sent: int) -> Plan:
        """The plan, the same at all parties but for the lines, which are those to this one."""
        self._say("the figures", len(self.chosen) + 2, len(self.chosen) + 2)
        told = await self._from_leader([figure for one in self.chosen for figure in self._figures(one, before)])
        each = [told[at : at + _FIGURES] for at in range(0, len(told), _FIGURES)]
        mine = [sent + self._bytes(one, rounds) for one, (_, rounds, *_) in zip(self.chosen, each, strict=True)]
        by_party = {self.net.me: mine, **await self._from_others(mine)}
        forecasts = [
            Forecast(
                one.name, one.own, Span(*figures[:3]), Span(*figures[3:6]), figures[6], int(figures[7]),
                {name: by_party[name][turn] for name in self.net.names},
            )
            for turn, (one, figures) in enumerate(zip(self.chosen, each, strict=True))
        ]  # fmt: skip
        return Plan(self.ready.train, self.lines, before, tuple(forecasts))

    def _figures(self, one: Candidate, before: float) -> list[float]:
        """Rounds, seconds (low, likely, high), gap, rows tried; at the first label holder."""
        if not self._leads:
            return [0.0] * _FIGURES
        known, rounds = self._known[one], self._rounds(one)
        if one.second_order and not known.cut:
            whole = before + known.alone.end.seconds
            seconds = Span(whole, whole, whole)
        else:
            costs, save = seconds_of(known.alone), save_of(known.alone)
            start = max(costs.start, self._cold)
            costs = Costs(start, costs.round, costs.evaluation)
            ends = [
                before + costs.total(count, self._evaluations(one, count)) + save * self._saves(one, count)
                for count in (rounds.low, rounds.likely, rounds.high)
            ]
            most = one.algorithm.seconds
            seconds = Span(*(end if most is None else min(end, before + most) for end in ends))
        rows, taken = known.together[-1] if known.together else (self.ready.train, known.alone)
        reached, lowest = min(record.objective for record in taken.records), self._lowest[rows]
        gap = (reached - lowest) / max(abs(lowest), 1e-300)
        if known.together and self._is_cut(taken):
            gap = math.nan  # it would have gone on
        spans = (rounds.low, rounds.likely, rounds.high, seconds.low, seconds.likely, seconds.high)
        return [*spans, gap, float(rows)]

    def _rounds(self, one: Candidate) -> Span:
        """Of a run on all rows."""
        known, every = self._known[one], self.ready.train
        if not known.together:
            count = float(known.alone.end.rounds)
            return Span(count, count, count)
        found = [self._epochs(one, rows, taken) for rows, taken in known.together]
        scale = 1.0 if one.second_order else float(self._batches(one, every))
        likely = found[-1]
        spread = Span(min(span.low for span in found), likely.likely, max(span.high for span in found))
        return spread.times(scale)

    def _epochs(self, one: Candidate, rows: int, taken: Taken) -> Span:
        """Passes over the rows until it ends, each as many rounds as there are batches."""
        per_epoch = 1 if one.second_order else self._batches(one, rows)
        if not self._is_cut(taken):
            done = taken.end.rounds / per_epoch
            return Span(done, done, done)
        rounds, objectives = zip(*((each.rounds, each.objective) for each in taken.records), strict=True)
        return epochs_to_stop(one.algorithm, rounds, objectives, self._lowest[rows], per_epoch)

    def _is_cut(self, taken: Taken) -> bool:
        """Whether the clock ended a trial; only the first label holder's counts."""
        return taken.end.seconds >= self._seconds * _TOGETHER

    def _bytes(self, one: Candidate, rounds: float) -> float:
        known = self._known[one]
        if one.second_order and not known.cut:
            return float(known.alone.end.bytes)
        return bytes_of(known.alone).total(rounds, self._evaluations(one, rounds))

    def _evaluations(self, one: Candidate, rounds: float) -> float:
        return (
            0.0 if one.second_order else rounds / (one.algorithm.evaluate_every or self._batches(one, self.ready.train))
        )

    def _saves(self, one: Candidate, rounds: float) -> float:
        epochs = rounds if one.second_order else rounds / self._batches(one, self.ready.train)
        return 1.0 + epochs / self.job.checkpoint_every if self._keeper_of is not None else 0.0

    # -- what is told -------------------------------------------------------------------------------------------

    async def _from_leader(self, mine: list[float]) -> list[float]:
        """The first label holder's numbers, of which there are as many as here."""
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


_FIGURES = 8


def _numbers(told: Any, count: int, party: str) -> list[float]:
    if type(told) is not tuple or [type(one) for one in told] != [float] * count:
        raise ProtocolError(f"party {party!r} must tell {count} numbers at step 'plan'")
    return list(told)
