"""One party's program for cross-validation and search: many fits side by side over the same lines.

1. keys      one agreement for all sums of all fits (`sums.open_sum`); every fit has masks of its own
2. fits      the fits of one fold that differ in the strength of the penalty go one after another, the strongest first,
             and each starts where the last one ended; folds, and all else, go side by side, so that round trips overlap
3. scores    after each fit every party works out its part of the scores of the held-out rows; they are added up at the
             first label holder, as in a prediction, and only it knows how good each fit is
4. choice    it tells the others which of the candidates does best
5. refit     the one that does best is trained on all rows, with the same bits as if nothing had come before
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from colonnade.engine.allowance import Limit
from colonnade.engine.kept import Keeper
from colonnade.errors import ProtocolError
from colonnade.families import family
from colonnade.families.rehearsal import STAND_INS
from colonnade.families.training import ScoringJob, ScoringPart, TrainingJob, TrainingPart, score, train
from colonnade.objective import losses, scorers
from colonnade.runtimes.net import Net, Traffic
from colonnade.sums import SecureSum, open_sum
from colonnade.validation.folds import Folds, Rows, check_folds
from colonnade.validation.payments import Payments
from colonnade.validation.strands import MainStrand, Strand

HELD_OUT_SCORES, CHOICE = "held-out scores", "choice"
# Fits that are under way at a time; more of them would not be faster, as somebody computes all the time.
_AT_ONCE = 8
_PAYMENTS = 0  # beside the fits, which are numbered from 1 on
_MOST_KEPT = 1 << 16  # fits that a party may tell to have kept


@dataclass(frozen=True)
class ValidationTerms:
    """What all parties agree on: the candidates, the folds, how they are scored, and what follows.

    Attributes
    ----------
    jobs
        What each candidate is, as training knows it.
    folds
        Rows to train on and held-out rows, of each fold.
    scoring
        Names of scorers, of which the first chooses; None is how good predictions are.
    refit
        Whether the best candidate is trained on all rows in the end.
    warm
        Whether fits start where those with a stronger penalty ended.
    states
        Whether every party returns its part of each fit's model.
    """

    jobs: tuple[TrainingJob, ...]
    folds: Folds
    scoring: tuple[str | None, ...]
    refit: bool = True
    warm: bool = True
    states: bool = False

    def as_value(self) -> Any:
        """Return a form that the wire can carry; `from_value` undoes this."""
        jobs = tuple(job.as_value() for job in self.jobs)
        return (jobs, self.folds, self.scoring, self.refit, self.warm, self.states)

    @classmethod
    def from_value(cls, value: Any) -> ValidationTerms:
        """Return the terms that `as_value` described."""
        jobs, *rest = value
        return cls(tuple(TrainingJob.from_value(job) for job in jobs), *rest)

    @property
    def leader(self) -> str:
        """The first label holder, who scores held-out rows."""
        return self.jobs[0].holders[0]

    @property
    def fits(self) -> int:
        """How many fits there are on folds."""
        return len(self.jobs) * len(self.folds)

    def paths(self) -> list[list[int]]:
        """Return candidates that are trained one after another, the strongest penalty first; others are alone."""
        found: dict[Any, list[int]] = {}
        for number, job in enumerate(self.jobs):
            strength = family(job.family).on_path(job) if self.warm else None
            same = (number,) if strength is None else replace(job, options=replace(job.options, l2=0.0)).as_value()
            found.setdefault(same, []).append(number)
        return [sorted(path, key=lambda one: -getattr(self.jobs[one].options, "l2", 0.0)) for path in found.values()]


class FoldFit(NamedTuple):
    """One fit of one fold, as one party knows it."""

    state: Any  # this party's part of the model
    z: Any  # the scores of held-out rows, at the first label holder; None elsewhere
    seconds: float  # of training
    scoring: float  # seconds until held-out rows were scored


class Refit(NamedTuple):
    """The chosen candidate on all rows: this party's part of the model, and what that took."""

    state: Any
    traffic: Traffic
    begun: float  # seconds into the run
    seconds: float


class Validated(NamedTuple):
    """All that one party knows in the end; `scores` are by candidate, fold and scorer, and NaN at other parties."""

    scores: Any
    fits: dict[tuple[int, int], FoldFit]  # by candidate and fold
    best: int  # the chosen candidate, or -1 where nobody chooses
    refit: Refit | None


class HeldOutStrand(Strand):
    """A strand for the scores of held-out rows, which are none of a prediction that somebody asked for."""

    def named(self, tag: str) -> str:
        """Return the name of a step, where a prediction is called by what it is for."""
        return super().named(HELD_OUT_SCORES if tag == "prediction" else tag)


@dataclass
class Validator:
    """One party in a cross-validation or a search.

    Attributes
    ----------
    net, terms
        This party's side of the network, and what all agree on.
    part
        Returns this party's rows of a fold: to train on, and held-out ones. None is all rows, for the last fit.
    own
        What this party brings to each candidate beside its columns.
    y, weights
        The labels of all rows as the loss takes them, and how much each row counts in scores, at the first label
        holder; without weights all rows count alike.
    limit
        Returns a limit of numbers that may leave in one fit on a fold; None where all parties are in one hand.
    charge, cover
        Counts numbers about each person that leave with held-out scores, or lets some out that an earlier run has paid
        for (`validation.payments`).
    asks
        Told, before the first fit, how many fits on folds are still to be done, and how many numbers about each person
        their scores cost; it may refuse them.
    keeper
        Returns where a fit, by its number, is kept so that a run can go on after a break; None keeps nothing.
    """

    net: Net
    terms: ValidationTerms
    part: Callable[[tuple[Rows, Rows]], Awaitable[tuple[TrainingPart, TrainingPart]]]
    own: tuple[Any, ...]
    y: Any = None
    weights: Any = None
    limit: Callable[[], Limit | None] = lambda: None
    charge: Callable[[float], None] = lambda _: None
    cover: Callable[[float], None] = lambda _: None
    asks: Callable[[int, float], None] = lambda *_: None
    keeper: Callable[[int], Keeper] | None = None

    async def run(self) -> tuple[dict[tuple[int, int], FoldFit], Any, int]:
        """Do all fits on folds, and return them with their scores and the number of the best candidate."""
        terms, self._fits, self._agreed = self.terms, dict[tuple[int, int], FoldFit](), await self.agree()
        self._done = await self._resume()
        places = ((candidate, fold) for candidate in range(len(terms.jobs)) for fold in range(len(terms.folds)))
        numbers = [0.0 if self.net.me == terms.leader else float(job.outputs) for job in terms.jobs]
        kept = None if self.keeper is None else self.keeper(_PAYMENTS)
        self._payments = Payments(numbers, kept, self.charge, self.cover)
        self.asks(terms.fits - self._done, self._payments.due(place for place in places if place not in self._fits))
        tracks = [(path, fold) for path in terms.paths() for fold in range(len(terms.folds))]
        workers = [self.net.spawn(self._work(tracks[first::_AT_ONCE])) for first in range(min(_AT_ONCE, len(tracks)))]
        for worker in workers:
            await worker
        return self._fits, *await self._choose()

    async def agree(self) -> SecureSum | None:
        """Open the one sum whose keys all fits use; None where nothing is added up."""
        job = self.terms.jobs[0]
        return await open_sum(job.sum, self.net, job.topology) if family(job.family).adds_up else None

    async def _work(self, tracks: list[tuple[list[int], int]]) -> None:
        for path, fold in tracks:
            await self._follow(path, fold)

    async def _follow(self, path: list[int], fold: int) -> None:
        """Do the fits of one path on one fold, one after another."""
        terms, start = self.terms, None
        if all((candidate, fold) in self._fits for candidate in path):
            return
        mine, apart = await self.part(terms.folds[fold])
        for candidate in path:
            if (candidate, fold) not in self._fits:
                brought = replace(mine, own=self.own[candidate] if start is None else start)
                fit = await self._fit((candidate, fold), brought, apart)
                self._fits[candidate, fold] = fit
                self._keep(candidate, fold, fit)
                self._done += 1
                self.net.report(("validation", self._done, terms.fits))
            if len(path) > 1:
                start = family(terms.jobs[candidate].family).start_of(self._fits[candidate, fold].state)

    def _number(self, candidate: int, fold: int) -> int:
        return 1 + fold * len(self.terms.jobs) + candidate

    async def _fit(self, place: tuple[int, int], mine: TrainingPart, apart: TrainingPart) -> FoldFit:
        """Train on one fold, and score what it holds out."""
        net, number, job = self.net, self._number(*place), self.terms.jobs[place[0]]
        name = f"fit {number}"
        strand = Strand(net, name, self._agreed)
        state = await train(strand, job.as_value(), mine.as_value(), None, self.limit())
        trained = strand.elapsed()
        if net.me != self.terms.leader:
            self._payments.send(place)
        # Another strand of the same fit, whose masks are named after it.
        scoring = HeldOutStrand(net, f"fit {number + self.terms.fits}", self._agreed)
        told, asked = ScoringJob.after(job).as_value(), ScoringPart(apart.X, state)
        z = await score(scoring, told, asked.as_value())
        z = None if z is None else family(job.family).decode(job.loss, z)
        return FoldFit(state, z, trained, scoring.elapsed())

    # -- the choice ---------------------------------------------------------------------------------------------

    async def _choose(self) -> tuple[Any, int]:
        """Return the scores, NaN but at the first label holder, and the best candidate, which that one tells."""
        terms, net = self.terms, self.net
        found = np.full((len(terms.jobs), len(terms.folds), len(terms.scoring)), math.nan)
        if net.me == terms.leader:
            for (candidate, fold), fit in self._fits.items():
                loss, apart = losses.loss(terms.jobs[candidate].loss), terms.folds[fold][1]
                y, weights = self.y[apart], None if self.weights is None else self.weights[apart]
                scores = [scorers.scored(name, loss, fit.z, y, weights=weights) for name in terms.scoring]
                found[candidate, fold] = scores
        if not terms.refit or len(terms.jobs) == 1:
            return found, 0 if terms.refit else -1
        if net.me == terms.leader:
            best = best_of(found[:, :, 0])
            for name in net.names:
                if name != net.me:
                    await net.send(name, CHOICE, best)
            return found, best
        told = await net.recv(terms.leader, CHOICE)
        if type(told) is not int or not 0 <= told < len(terms.jobs):
            raise ProtocolError(
                f"party {terms.leader!r} must tell the number of a candidate below {len(terms.jobs)} at step {CHOICE!r}"
            )
        return found, told

    # -- a run that was broken off ------------------------------------------------------------------------------

    def _keep(self, candidate: int, fold: int, fit: FoldFit) -> None:
        if self.keeper is not None:
            self.keeper(self._number(candidate, fold)).save(1, tuple(fit))

    async def _resume(self) -> int:
        """Take back the fits that all parties have kept, and return how many these are."""
        if self.keeper is None:
            return 0
        terms, net = self.terms, self.net
        places = {self._number(c, f): (c, f) for c in range(len(terms.jobs)) for f in range(len(terms.folds))}
        kept = {number for number in places if self.keeper(number).versions()}
        others = [name for name in net.names if name != net.me]
        for name in others:
            await net.send(name, "kept versions", tuple(sorted(kept)))
        for name in others:
            told = await net.recv(name, "kept versions")
            if type(told) is not tuple or len(told) > _MOST_KEPT or any(type(one) is not int for one in told):
                raise ProtocolError(f"party {name!r} must tell its kept fits as whole numbers at 'kept versions'")
            kept &= set(told)
        for number in kept:
            self._fits[places[number]] = FoldFit(*self.keeper(number).load(1))
        return len(kept)

    # -- the end ------------------------------------------------------------------------------------------------

    def strand(self) -> MainStrand:
        """Return the strand of the last fit, on all rows."""
        return MainStrand(self.net, "refit", self._agreed)


def best_of(scores: Any) -> int:
    """Return the candidate with the highest mean over folds, the first of several; one without a score is never it."""
    means = scores.mean(axis=1)
    return int(np.argmax(np.where(np.isnan(means), -math.inf, means)))


async def validate(net: Net, told: Any, part: Any, own: Any) -> Any:
    """Take part in a cross-validation or a search, and return what this party knows in the end, as a wire value.

    Parameters
    ----------
    net
        This party's side of the network.
    told, part
        A `ValidationTerms`, and a `TrainingPart` of all rows, as wire values.
    own
        What this party brings to each candidate beside its columns.
    """
    terms, mine = ValidationTerms.from_value(told), TrainingPart(*part)
    if net.me == terms.leader:
        check_folds(terms.folds, losses.loss(terms.jobs[0].loss), mine.y, mine.labelled, net.me)

    async def rows_of_fold(fold: tuple[Rows, Rows]) -> tuple[TrainingPart, TrainingPart]:
        return mine.take(fold[0]), mine.take(fold[1])

    validator = Validator(net, terms, rows_of_fold, own, mine.y, mine.weights)
    fits, scores, best = await validator.run()
    refit: Any = None
    if terms.refit:
        strand = validator.strand()
        begun = net.elapsed()
        state = await train(strand, terms.jobs[best].as_value(), replace(mine, own=own[best]).as_value())
        refit = (state, strand.traffic.as_value(), begun, strand.elapsed())
    each = tuple((key, fit if terms.states else fit._replace(state=None)) for key, fit in sorted(fits.items()))
    return (scores, tuple((key, tuple(fit)) for key, fit in each), best, refit)


def validated(value: Any) -> Validated:
    """Return what `validate` returned, typed again."""
    scores, fits, best, refit = value
    again = None if refit is None else Refit(refit[0], Traffic.from_value(refit[1]), *refit[2:])
    return Validated(scores, {tuple(key): FoldFit(*fit) for key, fit in fits}, best, again)


def _alike(args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Return one fit that stands for all of them where a run is rehearsed."""
    told, part, own = args
    return train, (told[0][0], replace(TrainingPart(*part), own=own[0]).as_value())


STAND_INS[validate] = _alike
