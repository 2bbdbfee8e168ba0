"""What a party keeps of a job's statistics: its own coefficients, and at the first label holder how well all fits."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from pathlib import Path

from colonnade import private_files
from colonnade.families import family
from colonnade.inference.statistics import Coefficient, Fit, own_table, warn_far
from colonnade.jobs.job import Job
from colonnade.service.training import Trained

LEVEL = 0.95
TABLE, SUMMARY = "statistics.csv", "statistics.json"


def save(folder: Path, job: Job, trained: Trained) -> None:
    """Write them; those of an earlier model are removed in any case."""
    for name in (TABLE, SUMMARY):
        (folder / name).unlink(missing_ok=True)
    if trained.statistics is None:
        return
    model = family(job.family).estimator(job.loss)
    table, intercept = own_table(trained.prepared.columns, trained.state, trained.statistics, model, LEVEL)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(Coefficient._fields)
    writer.writerows([*table, *([] if intercept is None else [intercept])])
    private_files.write(folder / TABLE, text.getvalue())
    if (told := trained.statistics[2]) is not None:
        fit = Fit(*told)
        warn_far(fit, job.holders[0])
        numbers = {"df": fit.df, **asdict(fit)}
        plain = {key: value if math.isfinite(value) else None for key, value in numbers.items()}  # JSON has no NaN
        private_files.write(folder / SUMMARY, json.dumps(plain, indent=1) + "\n")
