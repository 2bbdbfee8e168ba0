"""What the first label holder makes of the trials: rounds, seconds, and how near to the optimum an algorithm ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from colonnade.algorithms import Algorithm
from colonnade.families.protection import MASKED
from colonnade.notebooks.cells import TableCell
from colonnade.planning.candidates import Candidate
from colonnade.planning.forecast import Costs, Span, bytes_of, epochs_of_curve, epochs_of_sample, save_of, seconds_of
from colonnade.planning.plan_table import as_table
from colonnade.planning.trials import LineSpeed, Taken

NEAR = 1e-4  # how near to the lowest objective, relative to it, an algorithm has to end to be recommended
FIGURES = 8  # numbers that the first label holder tells of one algorithm


@dataclass(frozen=True)
class Forecast:
    """What a run with one algorithm will take, from the end of the handshake to the model."""

    name: str
    own: bool  # whether it is the job's algorithm
    rounds: Span
    seconds: Span
    gap: float  # to the lowest objective, as a part of it, on the rows that were tried; nan where nothing is known
    tried: int  # rows that it was tried on; 0 where it was not
    sent: Mapping[str, float]  # bytes, by party
    protection: str = MASKED


@dataclass(frozen=True)
class Plan(TableCell):
    """The forecasts of all algorithms, and the lines that they were measured over."""

    rows: int
    lines: Mapping[str, LineSpeed]
    before: float  # seconds for alignment and preparation, with which every run begins
    forecasts: tuple[Forecast, ...]

    def __rich__(self) -> Any:
        return as_table(self)

    @property
    def best(self) -> Forecast:
        """The fastest of those that end near the optimum or, where none is known to do so, the nearest.

        What was not tried is not recommended, unless it is the job's own and nothing was.
        """
        known = [one for one in self.forecasts if one.tried] or [one for one in self.forecasts if one.own]
        near = [one for one in known if one.gap <= NEAR]
        if near:
            return min(near, key=lambda one: one.seconds.likely)
        return min(known, key=lambda one: (math.inf if math.isnan(one.gap) else one.gap, one.seconds.likely))


@dataclass(frozen=True)
class Trial:
    """One thing to try: an algorithm on some of the rows."""

    algorithm: Algorithm
    rows: int
    draw: int = 0  # which sample of so many rows
    whole: bool = True  # whether it ends as a run does, if there is time enough


@dataclass
class Findings:
    """What the trials of one algorithm found, at this party."""

    alone: Taken
    cut: bool = False  # whether a second-order one was ended by the clock
    together: list[tuple[Trial, Taken]] = field(default_factory=list)


class Figures:
    """What the trials of all algorithms add up to, at one party."""

    def __init__(self, rows: int, holders: int, limit: float, saves_every: int | None) -> None:
        self.rows, self._holders = rows, holders
        self._limit = limit  # seconds after which trials are ended that are tried together
        self._saves_every = saves_every  # epochs, where a run keeps its states
        self.known: dict[Candidate, Findings] = {}
        self._cold = 0.0  # seconds to the first evaluation of the first trial, which loads and compiles
        self._lowest: dict[tuple[int, int], float] = {}  # objective on a sample, at the first label holder

    def note_alone(self, one: Candidate, trial: Trial, taken: Taken, *, cut: bool) -> None:
        """Note what one algorithm took on all rows, with nothing else under way."""
        self.known[one] = Findings(taken, cut)
        self._cold = self._cold or taken.evaluations[0].seconds
        self._note(trial, taken)

    def note(self, one: Candidate | None, trial: Trial, taken: Taken) -> None:
        """Note what a trial beside others found; it is that of no algorithm if only the optimum was looked for."""
        self._note(trial, taken)
        if one is not None:
            self.known[one].together.append((trial, taken))

    def _note(self, trial: Trial, taken: Taken) -> None:
        on = (trial.rows, trial.draw)
        for record in taken.records:
            self._lowest[on] = min(self._lowest.get(on, math.inf), record.objective)

    def batches(self, one: Candidate, rows: int) -> int:
        """Return the batches of an epoch, where label holders share the rows equally."""
        return self._holders * -(-rows // (self._holders * one.algorithm.batch_for(rows)))

    def pace(self, one: Candidate) -> float:
        """Return the seconds for a round, with its share of an evaluation."""
        costs = seconds_of(self.known[one].alone)
        return costs.round + costs.evaluation / self.batches(one, self.rows)

    def of(self, one: Candidate, before: float) -> list[float]:
        """Return rounds and seconds (low, likely, high each), gap and rows tried.

        Only the first label holder can, as it hears the objectives.
        """
        known, rounds = self.known[one], self._rounds(one)
        if one.second_order and not known.cut:
            whole = before + known.alone.end.seconds
            seconds, begun = Span(whole, whole, whole), before + known.alone.evaluations[0].seconds
        else:
            costs, save = seconds_of(known.alone), save_of(known.alone)
            start = max(costs.start, self._cold)
            costs = Costs(start, costs.round, costs.evaluation)
            ends = [
                before + costs.of_run(count, self._evaluations(one, count)) + save * self._saves(one, count)
                for count in (rounds.low, rounds.likely, rounds.high)
            ]
            seconds, begun = Span(*ends), before + start
        looks = 1 if one.second_order else one.algorithm.evaluate_every or self.batches(one, self.rows)
        rounds, seconds, cut = _by_the_clock(rounds, seconds, begun, one.algorithm.seconds, looks)
        trial, taken = (known.together or [(Trial(one.algorithm, self.rows), known.alone)])[0]
        lowest = self._lowest[trial.rows, trial.draw]
        gap = (min(record.objective for record in taken.records) - lowest) / max(abs(lowest), 1e-300)
        if cut or (known.together and not self._ended(trial, taken)):
            gap = math.nan  # the trial would have gone on, or a run will not come so far
        spans = (rounds.low, rounds.likely, rounds.high, seconds.low, seconds.likely, seconds.high)
        return [*spans, gap, float(trial.rows)]

    def _rounds(self, one: Candidate) -> Span:
        """Return the rounds of a run on all rows."""
        known, every = self.known[one], self.rows
        if not known.together:
            count = float(known.alone.end.rounds)
            return Span(count, count, count)
        scale = 1.0 if one.second_order else float(self.batches(one, every))
        found = Span.over([self._epochs(one, trial, taken) for trial, taken in known.together]).times(scale)
        return found if one.algorithm.rounds is None else found.up_to(float(one.algorithm.rounds))

    def _epochs(self, one: Candidate, trial: Trial, taken: Taken) -> Span:
        """Return the passes over the rows until a run ends, each of as many rounds as there are batches."""
        method, every = one.algorithm, self.rows
        here, there = (1 if one.second_order else self.batches(one, rows) for rows in (trial.rows, every))
        ended = self._ended(trial, taken)
        if ended and (one.second_order or trial.rows == every):
            done = taken.end.rounds / here
            return Span(done, done, done)
        if one.second_order or one.remembers:
            rounds, objectives = zip(*((each.rounds, each.objective) for each in taken.records), strict=True)
            known = any(each.second_order for each in self.known)  # one of these finds the optimum
            optimum = self._lowest[trial.rows, trial.draw] if known else None
            return epochs_of_curve(method, rounds, objectives, optimum, there)
        watched, looked = [each.watched for each in taken.records], len(taken.records) - 1
        stopped = ended and taken.end.rounds < method.epochs * here
        if method.evaluate_every is not None:  # a run then evaluates after as many rounds, however many rows there are
            return epochs_of_sample(method, watched, 1.0, ended=stopped).times(method.evaluate_every / there)
        # Where parties take turns, a batch is more than one round.
        turns = max(1.0, taken.end.rounds / here / max(1, looked))
        stopped = ended and looked < method.epochs
        return epochs_of_sample(method, watched, here / there, ended=stopped).times(turns)

    def _ended(self, trial: Trial, taken: Taken) -> bool:
        """Whether a trial ended as a run would, by the clock of the first label holder."""
        return trial.whole and taken.trained < self._limit

    def bytes(self, one: Candidate, rounds: float) -> float:
        """Return the bytes that leave this party in training."""
        known = self.known[one]
        if one.second_order and not known.cut:
            return float(known.alone.end.bytes)
        return bytes_of(known.alone).of_run(rounds, self._evaluations(one, rounds))

    def _evaluations(self, one: Candidate, rounds: float) -> float:
        if one.second_order:
            return 0.0  # evaluations are part of the rounds
        return rounds / (one.algorithm.evaluate_every or self.batches(one, self.rows))

    def _saves(self, one: Candidate, rounds: float) -> float:
        epochs = rounds if one.second_order else rounds / self.batches(one, self.rows)
        return 0.0 if self._saves_every is None else 1.0 + epochs / self._saves_every


def _by_the_clock(rounds: Span, seconds: Span, begun: float, most: float | None, looks: int) -> tuple[Span, Span, bool]:
    """Return rounds and seconds of a run that may take at most so long, and whether it is likely to be cut short.

    `begun` is when its first round begins, `looks` the rounds from one look at the clock to the next.
    """
    if most is None:
        return rounds, seconds, False
    counts, ends, cut = [], [], []
    for of in ("low", "likely", "high"):
        count, end = getattr(rounds, of), getattr(seconds, of)
        part = min(1.0, max(0.0, most - begun) / max(end - begun, 1e-9))
        done = min(count, float(looks * math.ceil(count * part / looks)))
        counts.append(done)
        ends.append(begun + (end - begun) * done / max(count, 1e-9))
        cut.append(part < 1.0)
    return Span(*counts), Span(*ends), cut[1]
