"""The algorithms that a plan tries: those that train the job's model and disclose no more than the job does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from colonnade.algorithms import VFB2, Algorithm, BlockNewton, FedBCD, FedSGD
from colonnade.errors import OptionError, PolicyRefused, ProtocolError
from colonnade.families import family
from colonnade.families.linear import LinearFamily
from colonnade.families.protection import SEALED
from colonnade.jobs.job import Job
from colonnade.runtimes.net import Net


@dataclass(frozen=True)
class Candidate:
    """An algorithm with its options."""

    algorithm: Algorithm
    own: bool  # whether it is the job's own

    @property
    def name(self) -> str:
        """What it is called in a table."""
        return self.algorithm.label

    @property
    def second_order(self) -> bool:
        """Whether an epoch is one round, about all rows."""
        return self.algorithm.second_order

    @property
    def remembers(self) -> bool:
        """Whether it remembers a signal of every row: how it goes on then depends on how many rows there are."""
        return self.algorithm.remembers


def tries_nothing(job: Job) -> bool:
    """Return whether a plan only works out what a job takes: a trial would show more, or there is no short one."""
    return job.protection == SEALED or not family(job.family).adds_up


def check_plannable(job: Job) -> None:
    """Refuse what there is no choice for."""
    kind = family(job.family)
    if not kind.plannable and not tries_nothing(job):
        raise OptionError(
            f"a plan compares algorithms of linear models, and this job trains a {kind.called} model with "
            f"{job.algorithm.name}; try it with few epochs instead"
        )


def candidates(job: Job) -> list[Candidate]:
    """Return the job's own algorithm, then others with their own defaults and the job's seed and batch.

    Of a sealed job, and of trees, there are none: see `untried`.
    """
    check_plannable(job)
    if tries_nothing(job):
        return []
    own: Any = job.algorithm
    found = [Candidate(own, own=True)]
    if own.family != LinearFamily.name:  # another model: no other algorithm trains it
        return found
    others: list[Algorithm] = [BlockNewton(seed=own.seed)]
    shared = {"seed": own.seed, "batch": own.batch}
    others += [VFB2("saga", asynchronous=False, **shared), FedBCD(**shared), FedSGD(**shared)]
    agreed = set(job.disclosed())
    for other in others:
        if not _fits(job.sum, other) or other.alike(own):
            continue
        if set(replace(job, algorithm=other, statistics=False).disclosed()) <= agreed:
            found.append(Candidate(other, own=False))
    return found


def _fits(sum_name: str, algorithm: Algorithm) -> bool:
    try:
        algorithm.check_sum(sum_name)
    except OptionError:
        return False
    return True


async def agree_on_candidates(
    net: Net, known: list[Candidate], rows: int, holders: int, check: Callable[[int], None]
) -> list[Candidate]:
    """Return the job's own algorithm and those that no party's policy refuses.

    `check` gets the rows of an algorithm's smallest batch, and raises if the party's policy does not allow it.
    """
    mine = tuple(one.own or _allowed(one, rows, holders, check) for one in known)
    others = [name for name in net.names if name != net.me]
    for name in others:
        await net.send(name, "plan", mine)
    said = [mine]
    for name in others:
        told = await net.recv(name, "plan")
        if type(told) is not tuple or [type(one) for one in told] != [bool] * len(known):
            raise ProtocolError(f"party {name!r} must tell a bool for each of {len(known)} algorithms at step 'plan'")
        said.append(told)
    return [one for one, *allowed in zip(known, *said, strict=True) if one.own or all(allowed)]


def _allowed(one: Candidate, rows: int, holders: int, check: Callable[[int], None]) -> bool:
    try:
        check(one.algorithm.smallest_batch(rows, holders))
    except PolicyRefused:
        return False
    return True


# An epoch of at most _SHORT rounds is timed as it is, a longer one with an evaluation after every _STRIDE rounds.
_SHORT, _STRIDE = 25, 8


def timed(one: Candidate, rounds: int, seconds: float) -> Algorithm:
    """Return the algorithm for a timed trial of some rounds, of which only the cost counts, and not where they lead.

    An epoch has `rounds` of them, and the trial ends after so many `seconds`.
    """
    every = one.algorithm.evaluate_every if rounds <= _SHORT else _STRIDE
    return replace(one.algorithm, evaluate_every=every, tol=None, goal=None, metric_goal=None, seconds=seconds)
