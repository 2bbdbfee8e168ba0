"""How a job's model becomes calibrated: at a label holder, after training, from the held-out rows that judged it."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from colonnade.data import labels
from colonnade.errors import ColonnadeWarning, DataError, LabelError
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import Trained
from colonnade.jobs.party_file import PartyFile
from colonnade.objective import losses
from colonnade.objective.calibration import Calibration, calibrate


def calibrated(job: Job, party: PartyFile, given: Any, weights: Any, trained: Trained) -> Calibration | None:
    """Return how scores become probabilities, where its own file asks for it and this party judged the model.

    given, weights: labels of all rows of this party's table, and how much each counts. Where held-out rows do not do,
    the model is trained all the same; a warning says why it is not calibrated.
    """
    if party.calibration is None:
        return None
    try:
        if trained.judged is None or trained.apart is None or given is None:
            raise DataError(f"party {party.name!r} has seen no score of held-out rows")
        loss, (numbers, scores) = losses.loss(job.loss), trained.judged
        rows = trained.apart[np.asarray(numbers, dtype=np.int64)]
        y = labels.encode(np.asarray(given)[rows], trained.classes, loss)
        weighed = None if weights is None else np.asarray(weights, dtype=np.float64)[rows]
        return calibrate(party.calibration, np.asarray(scores, dtype=np.float64), y, weighed)
    except (DataError, LabelError) as error:
        warnings.warn(f"the model is trained and not calibrated: {error}", ColonnadeWarning, stacklevel=2)
        return None
