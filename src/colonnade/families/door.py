"""The one door into training, and the one into scoring: programs that a runtime starts at every party.

An estimator's `fit` and a job's `colonnade run` both come through here, whatever the family of the model. The module
`rehearsal` beside this one plays them in small before parties are forked.
"""

from __future__ import annotations

from typing import Any

from colonnade.engine.allowance import Limit
from colonnade.engine.kept import Keeper
from colonnade.families import family
from colonnade.families.training_job import ScoringJob, ScoringPart, TrainingJob, TrainingPart
from colonnade.runtimes.net import Net


async def train(net: Net, job: Any, part: Any, keeper: Keeper | None = None, budget: Limit | None = None) -> Any:
    """Take part in training; returns this party's state and nothing else.

    job, part: a `TrainingJob` and a `TrainingPart` as wire values. keeper, budget: see `Family.train`.
    """
    agreed, mine = TrainingJob.from_value(job), TrainingPart(*part)
    return await family(agreed.family).train(net, agreed, mine, keeper, budget)


async def score(net: Net, job: Any, part: Any) -> Any:
    """Take part in a prediction; returns the scores where they are summed, and None elsewhere.

    job, part: a `ScoringJob` and a `ScoringPart` as wire values.
    """
    agreed, mine = ScoringJob.from_value(job), ScoringPart(*part)
    return await family(agreed.family).score(net, agreed, mine)
