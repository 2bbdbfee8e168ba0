"""Cross-validation and search in a job: every fold prepared for itself, every number counted, every fit kept."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from colonnade.families import family
from colonnade.jobs.budget import Budget, BudgetShare
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import JobValidation, digest_of
from colonnade.objective import losses
from colonnade.runtimes.net import Net
from colonnade.service.training import Keepers, Ready
from colonnade.validation.folds import check_folds, drawn_folds
from colonnade.validation.program import ValidationTerms, Validator
from colonnade.validation.strands import MainStrand


async def cross_validated(
    net: Net, job: Job, ready: Ready, keepers: Keepers | None, budget: Budget | None
) -> tuple[MainStrand, JobValidation]:
    """Train and score every candidate on every fold; return where the last training goes on, and what was found."""
    folds = drawn_folds(ready.train, job.folds, job.algorithm.seed)
    jobs = tuple(job.candidate(number).training(ready.outputs) for number in range(job.tries))
    terms = ValidationTerms(jobs, folds, (job.scoring,))
    if net.me == terms.leader:
        check_folds(folds, losses.loss(job.loss), ready.mine.y, ready.mine.labelled, net.me)
    share: float | None = None

    def asks(fits: int, scores: float) -> None:
        nonlocal share
        share = _share(net, job, ready, terms, budget, fits, scores)

    def charge(numbers: float) -> None:
        if budget is not None:
            budget.charge(numbers)

    def cover(numbers: float) -> None:
        if budget is not None:
            budget.cover(numbers)

    keeper = None
    if keepers is not None and keepers.fit is not None:
        mine = ready.mine
        known_by = await net.in_thread(digest_of, (mine.X, mine.y, mine.labelled, mine.weights))
        keeper = partial(keepers.fit, known_by)
    validator = Validator(
        net, terms, ready.fold, (None,) * len(jobs), ready.mine.y, ready.counts,
        limit=lambda: None if share is None or budget is None else BudgetShare(budget, share),
        charge=charge, cover=cover, asks=asks, keeper=keeper,
    )  # fmt: skip
    fits, scores, best = await validator.run()
    fold = np.zeros(ready.train, dtype=np.int64)
    z: Any = None
    for number, (_, apart) in enumerate(folds):
        fold[apart] = number
        if (found := fits[best, number].z) is not None:
            z = np.zeros((ready.train, *found.shape[1:])) if z is None else z
            z[apart] = found
    known = scores[:, :, 0] if net.me == terms.leader else None
    return validator.strand(), JobValidation(best, known, fold, z)


def _share(
    net: Net, job: Job, ready: Ready, terms: ValidationTerms, budget: Budget | None, pending: int, scores: float
) -> float | None:
    """Return the numbers about each person that may leave in one fit on a fold; None where no fit lets any out.

    What is left is shared by all fits alike that are still to be done, on folds (`pending`) and on all rows, once what
    the `scores` of held-out people cost, and what statistics need, is put aside. Fits that were kept have been paid
    for. A fit is counted as if it were about everybody, though each person is missing in one fold.
    """
    if budget is None:
        return None
    kind, fits = family(job.family), pending + 1
    aside = float(job.statistics) + scores
    batches = -(-ready.train // job.algorithm.batch_for(ready.train))
    sizes = (ready.outputs, len(job.parties), len(job.holders), batches)
    silent = job.holders == (net.me,) and not job.algorithm.tells_signals
    least = 0.0 if silent else kind.least_numbers(job.algorithm, job.model, sizes)
    left = f", of which {pending} fits are left," if pending < terms.fits else ""
    budget.check(aside + least * fits, f"a cross-validation of {len(terms.jobs)} candidates in {job.folds} folds{left}")
    if not least:
        return None
    share = (budget.left - aside) / fits
    words = f"the policy of {net.me!r} lets {share:.1f} numbers about each person out in each of the {fits} fits"
    net.report(("warning", f"{words}; a fit ends there at the latest"))
    return share
