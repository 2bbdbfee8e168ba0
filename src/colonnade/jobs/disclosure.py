"""All that a job shows to whom: what its algorithm, its sum and its steps declare of themselves, put together."""

from __future__ import annotations

from colonnade.engine.allowance import budget_leaks
from colonnade.inference import statistics_leaks
from colonnade.jobs.job import Job
from colonnade.leaks import Leak, Setting
from colonnade.planning import plan_leaks
from colonnade.service.scoring import scoring_leaks
from colonnade.service.training import start_leaks
from colonnade.sums import SUMS


def leaks_of(job: Job, setting: Setting | None = None) -> tuple[Leak, ...]:
    """From the first message to the use of the model; setting: the job's own, with what else is known of it."""
    setting = setting or job.setting()
    return (
        *start_leaks(setting),
        *budget_leaks(setting),
        *job.algorithm.leaks(setting),
        *SUMS[job.sum].leaks(setting),
        *(statistics_leaks(setting) if job.statistics else ()),
        *scoring_leaks(setting),
        *plan_leaks(setting),
    )
