"""What a job between sites leaves in a party's folder: a version of the whole model, and how its training went."""

from __future__ import annotations

import math
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.families import family, store
from colonnade.jobs import model_file
from colonnade.jobs.checkpoints import Checkpoints
from colonnade.jobs.party_file import PartyFile
from colonnade.remote.terms import RunTerms
from colonnade.site_jobs.programs import Ended
from colonnade.site_jobs.site_job import SiteJob
from colonnade.tables.table import Table
from colonnade.versions.profile import profiles_of, write_profiles
from colonnade.versions.shelf import Shelf
from colonnade.versions.version import Version

_STATE = "state"


def keeper_of(job: SiteJob, party: PartyFile) -> Checkpoints:
    """Return where who asks keeps how far the run is."""
    mine = RunTerms.of(job.parties, job.agreed).digest
    return Checkpoints(party.checkpoints / _STATE, mine, job.checkpoint_every)


def keep(
    job: SiteJob, party: PartyFile, ended: Ended, history: list[dict[str, Any]], table: Table | None
) -> tuple[Version, bool]:
    """Put the model on the shelf as a version of its own; return it, and whether it is in use now."""
    shelf = Shelf(party.folder, party.name)
    folder = shelf.place(ended.agreed.training)
    about = _about(job, ended, history)
    _save(folder, job, party.name, ended)
    model_file.save_history(folder, history)
    if table is not None and (profiles := profiles_of(table, ended.learned)) is not None:
        write_profiles(folder, profiles)
    version = Version(ended.agreed.training, folder, about)
    version.write()
    keeper_of(job, party).clear()
    return version, shelf.ended(version)


def _save(folder: Path, job: SiteJob, name: str, ended: Ended) -> None:
    kind = family(job.family)
    public = {
        "model": kind.estimator(job.loss), "family": kind.name,
        "options": {**kind.estimator_options(job.model, job.loss), "protection": job.protection},
        "shape": ended.plan.model, "sites": job.sites, "parties": job.parties, "holders": job.holders,
        "sum": job.sum, "job": job.name, "rows": ended.rows, "training": ended.agreed.training,
    }  # fmt: skip
    arrays = {
        "columns": np.array(ended.learned.names),
        "classes": np.array(ended.agreed.classes),
        **kind.to_arrays((ended.result.parameters,)),
        **ended.learned.to_arrays(),
    }
    store.write_party(folder, name, public, arrays)


def _about(job: SiteJob, ended: Ended, history: list[dict[str, Any]]) -> dict[str, Any]:
    known = [record for record in history if "loss" in record]
    last = known[-1] if known else {}
    names = {
        "loss": "cost",
        "metric": "accuracy",
        "validation_loss": "held-out cost",
        "validation_metric": "held-out accuracy",
    }
    figures = {name: float(last[key]) for key, name in names.items() if key in last}
    return {
        "date": datetime.now(UTC).isoformat(timespec="microseconds"),
        "job": job.name, "parent": "", "rows": ended.rows, "held_out": ended.held_out, "protection": job.protection,
        "options": {"kind": "SSCAClassifier", **asdict(job.model)},
        "algorithm": {"kind": job.algorithm.name, **asdict(job.algorithm)},
        "columns": list(ended.learned.names or ()),
        "metrics": {name: value for name, value in figures.items() if math.isfinite(value)},
    }  # fmt: skip
