"""What a tracker is told of a job: what all its parties agreed on, as names and short texts.

Left out are the addresses of parties, and the seed, from which an outsider could tell which rows were in which batch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from colonnade.families import family
from colonnade.jobs.job import Job

_SECRET = frozenset({"seed"})
_WORDS = re.compile(r"\.|__")  # between the words of a name: algorithm.epochs, and algorithm__epochs in Python
_LONGEST = 500  # characters


def facts_of(job: Job) -> dict[str, str]:
    """Return the parameters of a job."""
    found = {
        "model": family(job.family).estimator(job.loss), "loss": job.loss, "protection": job.protection,
        "parties": ", ".join(job.parties), "holders": ", ".join(job.holders), "held_out_part": job.validation,
        "algorithm": job.algorithm.name,
    }  # fmt: skip
    found |= {f"model.{name}": value for name, value in asdict(job.model).items()}
    found |= {f"algorithm.{name}": value for name, value in asdict(job.algorithm).items()}
    found |= {"folds": job.folds, "candidates": job.tries} if job.folds else {}
    return texts(found)


def texts(found: Mapping[str, Any]) -> dict[str, str]:
    """Return facts as short texts, without those that are None or nobody else's business."""
    return {
        name: str(value)[:_LONGEST]
        for name, value in found.items()
        if value is not None and _WORDS.split(name)[-1] not in _SECRET
    }
