"""`[engine]` of a party's file: read, and refused where the job's training can't run on one."""

from __future__ import annotations

from typing import Any

from colonnade.engine.exposure import ENCRYPTED
from colonnade.families.protection import SEALED
from colonnade.settings.settings import Settings
from colonnade.workers.engine import Engine
from colonnade.workers.sharded_columns import NO_BATCHES


def read_engine(given: Settings | None, job: Any) -> Engine | None:
    """Return this party's engine, None where its passes are made in memory."""
    if given is None:
        return None
    found, refused = Engine.of(given), _refused(job)
    if refused is not None:
        raise given.error("kind", refused)
    return found


def _refused(job: Any) -> str | None:
    """Return why this job's training can't run on an engine, None where it can."""
    trees = job.family in ("trees", "sealed-trees")  # whose derivatives are in the clear where they are grown
    if (job.protection == SEALED and not trees) or job.sum == ENCRYPTED:
        return (
            "the job trains on ciphertexts or shares, with which every number of the table is multiplied where the "
            "keys are, and workers get no keys; remove [engine]"
        )
    if job.family not in ("linear", "kernel") and not trees:
        return (
            "an engine is for linear models by BlockNewton, for kernels and for boosted trees, and the job's model is "
            "trained on batches that lie where the program runs; remove [engine]"
        )
    if job.family == "linear" and not job.algorithm.second_order:
        return NO_BATCHES
    if job.folds:
        return "an engine does not prepare columns anew for every fold; leave folds out of the job, or remove [engine]"
    return None
