"""How good a sealed model is on held-out rows: their scores are opened to the label holder, and the metric is its own.

Sealed training shows nobody a score. A user who holds rows out asks for one exception, by name: once every party has
its own coefficients, it works out its own part of the held-out rows' scores, and the parts are added up for the label
holder, under masks where there are three parties or more. Between two, what the label holder subtracts its own part
from is the partner's part. It is what a prediction about these people shows. Loss and metric stay with the label
holder; the others do not hear how good the model is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.engine.allowance import Limit
from colonnade.errors import LabelError
from colonnade.families.linear import LinearScorer
from colonnade.families.training import TrainingJob, TrainingPart
from colonnade.leaks import HELD_OUT, OF_COLUMNS, Leak, Setting
from colonnade.objective import losses, metrics
from colonnade.runtimes.net import Net
from colonnade.streams.streamed_columns import opened
from colonnade.sums import open_sum


def held_out_leaks(setting: Setting) -> tuple[Leak, ...]:
    """Declare the scores of held-out rows, which only the first label holder sees; nothing, where none are held out."""
    if not setting.held_out:
        return ()
    words = "{who} will see your part of the score of every held-out person, for a metric that nobody else is told"
    if setting.folds:
        words = "{who} will see your part of the score of everybody, held out once for each candidate{numbers}"
    words += "" if setting.pair else "; it is added to {theirs}"
    to, kinds = (setting.leader,), ("held-out scores",)
    numbers = None if setting.outputs is None else setting.outputs * setting.candidates
    return (Leak(HELD_OUT, OF_COLUMNS, setting.parties, to, kinds, words, numbers, left=True),)


def check_held_out(me: str, job: TrainingJob, part: TrainingPart, budget: Limit | None) -> None:
    """Refuse, before training, held-out rows without a label, and scores that this party's policy does not let out."""
    if part.validation is None:
        return
    if me != job.holders[0]:
        if budget is not None:
            budget.check(float(job.outputs), "a metric on held-out rows after sealed training")
        return
    labelled = part.validation[2]
    missing = len(labelled) - int(labelled.sum()) if labelled is not None else 0
    if missing:
        raise LabelError(
            f"a metric on held-out rows needs a label for every one of them, and party {me!r} lacks {missing}; leave "
            f"these rows out at every party"
        )


async def judge(net: Net, job: TrainingJob, part: TrainingPart, state: Any, budget: Limit | None) -> None:
    """Take part in the sum of held-out scores; the label holder reports loss and metric to its own user."""
    if part.validation is None:
        return
    first, columns = job.holders[0], opened(part.validation[0])
    scorer, secure, pieces = LinearScorer(state), await open_sum(job.sum, net, job.topology), []
    if budget is not None and net.me != first:
        budget.charge(float(job.outputs))  # about every row, as a prediction about everybody would be
    for at in range(0, columns.shape[0], scorer.most):
        rows = np.arange(at, min(at + scorer.most, columns.shape[0]))
        own, _ = scorer.ready(secure, columns, rows, np.ones(len(rows), dtype=bool))
        pieces.append(await secure.total("held-out scores", own, first))
    if net.me != first:
        return
    z = np.concatenate([piece for piece in pieces if piece is not None])
    loss, y, weights = losses.loss(job.loss), part.validation[1], part.held_out_weights
    value = float(np.average(loss.values(z, y), weights=weights))
    net.report(("held out", value, metrics.evaluate(loss, z, y, weights)[1]))
    net.report(("held-out rows", np.arange(len(z)), z))
