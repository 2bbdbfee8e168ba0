"""A plan at one party: a coroutine over a `Net`, like every program. All do the same trials, in the same order.

1. everything that a run does before training
2. lines     latency and bandwidth between every two parties
3. alone     second-order algorithms to their end, others for some rounds: what a round costs, on all rows
4. together  how many rounds there will be, see `algorithms.forecast`: on some of the rows where all take too long, and
             side by side, so that round trips overlap
5. figures   the first label holder works them out and tells them; each party adds the bytes that will leave it
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from colonnade.algorithms import Algorithm
from colonnade.algorithms.forecast import Span, epochs_of_curve, epochs_of_sample
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
_NEWTON, _TIMED, _TOGETHER = 0.25, 0.03, 0.65
# Epochs that an algorithm usually takes to stop, to choose how many rows it can be tried on; batches of these rows.
_USUAL, _FEWEST, _MOST = 40, 8, 64
# A round that takes less is computing, which does not overlap with that of other trials.
_COMPUTING = 0.005
# Points on the curve of an algorithm that remembers all rows, and epochs that it shall have; from so many on it gets
# near enough to its end on all rows.
_POINTS, _EPOCHS, _MANY = 12, 4, 6
# Samples of rows, as one may be unlike the others: where trials overlap, and where they take each other's time.
_DRAWS, _DRAWS_COMPUTING = 3, 2
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


@dataclass(frozen=True)
class _Trial:
    """Something to try together with others."""

    algorithm: Algorithm
    rows: int
    draw: int = 0  # which sample of so many rows
    whole: bool = True  # whether it ends as a run does, if the clock lets it


@dataclass
class _Known:
    """What the trials of one algorithm found, at this party."""

    alone: Taken
    cut: bool = False  # whether a second-order one was ended by the clock
    together: list[tuple[_Trial, Taken]] = field(default_factory=list)


async def make_plan(
    net: Net,
    job: Job,
    source: Source,
    align: Align,
    check: Callable[[int, int], None],
    keeper_of: Callable[[int], Keeper] | None = None,
    seconds: float = 25.0,
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
        self._lowest: dict[tuple[int, int], float] = {}  # objective on a sample, at the first label holder

    # -- trials -------------------------------------------------------------------------------------------------

    def _start(self, trial: _Trial, *, keeps: bool = False) -> Coroutine[Any, Any, Taken]:
        self._numbers += 1
        aside = Aside(self.net, self._numbers)
        mine = self.ready.mine
        if trial.rows < self.ready.train:
            mine = sample(mine, trial.rows, self.ready.train, (self.job.algorithm.seed, trial.draw))
        keeper = self._keeper_of(self._numbers) if keeps and self._keeper_of is not None else None
        told = linear_job(replace(self.job, algorithm=trial.algorithm), self.ready.outputs)
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
            trial = _Trial(method, self.ready.train)
            taken = await self._start(trial, keeps=True)
            cut = one.second_order and taken.end.seconds >= limit and limit != one.algorithm.seconds
            self._known[one] = _Known(taken, cut)
            # What the first one had to load and compile, the first of a run will have to.
            self._cold = self._cold or taken.evaluations[0].seconds
            self._note(trial, taken)

    async def try_together(self) -> None:
        """As many rounds as there is time for. How long they take is known at the first label holder."""
        mine = [number for one in self.chosen for number in (self._round_of(one), float(self._known[one].cut))]
        told = await self._from_leader(mine)
        paces = dict(zip(self.chosen, told[::2], strict=True))
        for one, cut in zip(self.chosen, told[1::2], strict=True):
            self._known[one].cut = cut > 0.0
        self._say(f"{len(self.chosen)} algorithms together", len(self.chosen) + 1, len(self.chosen) + 2)
        wanted: list[tuple[Candidate | None, _Trial]] = []
        for one in self.chosen:
            wanted += [(one, trial) for trial in self._together(one, paces[one])]
        # The optimum on fewer rows takes a second-order algorithm some rounds.
        if newton := next((one for one in self.chosen if one.second_order), None):
            fewer = {(trial.rows, trial.draw) for _, trial in wanted if trial.rows < self.ready.train}
            wanted += [(None, _Trial(self._limited(newton.algorithm), *each)) for each in sorted(fewer)]
        tasks = [self.net.spawn(self._start(trial)) for _, trial in wanted]
        for (whose, trial), task in zip(wanted, tasks, strict=True):
            taken = await task
            self._note(trial, taken)
            if whose is not None:
                self._known[whose].together.append((trial, taken))

    def _together(self, one: Candidate, pace: float) -> list[_Trial]:
        """What to try of one algorithm, whose rounds take so many seconds."""
        method, every = one.algorithm, self.ready.train
        limited = self._limited(method)
        if one.second_order:
            few = min(every, _SECOND_ORDER_ROWS)
            return [_Trial(limited, few)] if self._known[one].cut and few < every else []
        draws, at_once = _DRAWS, 1
        if pace < _COMPUTING:
            draws, at_once = _DRAWS_COMPUTING, _DRAWS_COMPUTING * len(self.chosen)
        affordable = self._seconds * _TOGETHER / max(pace * at_once, 1e-6)  # rounds
        batches = self._batches(one, every)
        if affordable >= min(method.epochs, 2 * _USUAL) * batches or (one.remembers and affordable >= _MANY * batches):
            return [_Trial(limited, every)]
        share = affordable / (_EPOCHS if one.remembers else min(_USUAL, method.epochs))  # batches
        share = share if one.remembers else min(share, _MOST)
        holders = len(self.job.holders)
        rows = min(every, max(_FEWEST, int(share / holders)) * method.batch_for(every) * holders)
        if one.remembers:
            epoch = self._batches(one, rows)
            stride = max(1, min(epoch, int(affordable / _POINTS)))
            tol = None if method.tol is None else method.tol * stride / epoch
            limited = replace(
                limited, evaluate_every=stride, tol=tol, patience=1 << 30, epochs=max(1, int(affordable / epoch))
            )
        trials = [_Trial(limited, rows, draw, whole=not one.remembers) for draw in range(draws)]
        return trials if rows < every else trials[:1]

    def _limited(self, method: Algorithm) -> Algorithm:
        """Ended by the clock only where it would take the plan too long."""
        return replace(method, seconds=self._seconds * _TOGETHER)

    def _batches(self, one: Candidate, rows: int) -> int:
        """Of an epoch, where label holders share the rows equally."""
        holders = len(self.job.holders)
        return holders * -(-rows // (holders * one.algorithm.batch_for(rows)))

    def _note(self, trial: _Trial, taken: Taken) -> None:
        on = (trial.rows, trial.draw)
        for record in taken.records:
            self._lowest[on] = min(self._lowest.get(on, math.inf), record.objective)

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
        trial, taken = (known.together or [(_Trial(one.algorithm, self.ready.train), known.alone)])[0]
        lowest = self._lowest[trial.rows, trial.draw]
        gap = (min(record.objective for record in taken.records) - lowest) / max(abs(lowest), 1e-300)
        if known.together and not self._ended(trial, taken):
            gap = math.nan  # it would have gone on
        spans = (rounds.low, rounds.likely, rounds.high, seconds.low, seconds.likely, seconds.high)
        return [*spans, gap, float(trial.rows)]

    def _rounds(self, one: Candidate) -> Span:
        """Of a run on all rows."""
        known, every = self._known[one], self.ready.train
        if not known.together:
            count = float(known.alone.end.rounds)
            return Span(count, count, count)
        scale = 1.0 if one.second_order else float(self._batches(one, every))
        return Span.mean([self._epochs(one, trial, taken) for trial, taken in known.together]).times(scale)

    def _epochs(self, one: Candidate, trial: _Trial, taken: Taken) -> Span:
        """Passes over the rows until it ends, each as many rounds as there are batches."""
        method, every = one.algorithm, self.ready.train
        here, there = (1 if one.second_order else self._batches(one, rows) for rows in (trial.rows, every))
        ended = self._ended(trial, taken)
        if ended and (one.second_order or trial.rows == every):
            done = taken.end.rounds / here
            return Span(done, done, done)
        if one.second_order or one.remembers:
            rounds, objectives = zip(*((each.rounds, each.objective) for each in taken.records), strict=True)
            return epochs_of_curve(method, rounds, objectives, self._lowest[trial.rows, trial.draw], there)
        watched, looked = [each.watched for each in taken.records], len(taken.records) - 1
        stopped = ended and taken.end.rounds < method.epochs * here
        if method.evaluate_every is not None:  # then it looks after as many rounds, however many rows there are
            return epochs_of_sample(method, watched, 1.0, ended=stopped).times(method.evaluate_every / there)
        # Where parties take turns, a batch is more than one round.
        turns = max(1.0, taken.end.rounds / here / max(1, looked))
        stopped = ended and looked < method.epochs
        return epochs_of_sample(method, watched, here / there, ended=stopped).times(turns)

    def _ended(self, trial: _Trial, taken: Taken) -> bool:
        """Whether a trial ended as a run would, by the clock of the first label holder."""
        return trial.whole and taken.end.seconds < self._seconds * _TOGETHER

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
