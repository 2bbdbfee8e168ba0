"""One party's part of a model on disk: what `LinearModel.save` writes for it, and what its preparation learned."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.algorithms import FDML, FDSKL
from colonnade.errors import DataError
from colonnade.estimators.linear import MODELS
from colonnade.families import store
from colonnade.jobs.job import Job
from colonnade.service.training import Trained, digest_of
from colonnade.tables.learned import LearnedPreparation


@dataclass(frozen=True)
class ModelPart:
    """What one party knows of a model."""

    party: str
    public: dict[str, Any]  # what all parties know
    state: tuple[Any, ...]
    classes: npt.NDArray[Any]
    columns: tuple[str, ...]
    prepared: LearnedPreparation


def digest(combines: str, state: Any) -> str:
    """What tells one party's part of a model from another."""
    arrays = store.state_to_arrays(combines, state)
    return digest_of(tuple((key, np.asarray(arrays[key])) for key in sorted(arrays))).hex()


def combines(job: Job) -> str:
    """What a prediction with the model of this job adds up, see `Estimator`."""
    of_its_kind = _network(job) if job.network else _line(job) if job.kernel is None else _kernel(job)
    return str(of_its_kind["combines"])


def save(folder: Path, job: Job, party: str, trained: Trained, learned: LearnedPreparation) -> Path:
    """Write a party's part, whole or not at all."""
    of_its_kind = _network(job) if job.network else _line(job) if job.kernel is None else _kernel(job)
    public = {
        **of_its_kind, "parties": job.parties, "holders": job.holders,
        "sum": job.sum, "job": job.name, "rows": trained.rows,
    }  # fmt: skip
    arrays = {"columns": np.array(trained.prepared.columns)}
    arrays |= store.state_to_arrays(str(public["combines"]), trained.state)
    if job.network:
        public["outputs"] = trained.outputs
    if party in job.holders:
        arrays["classes"] = trained.classes
    arrays |= learned.to_arrays()
    store.write_party(folder, party, public, arrays)
    return folder / f"{party}{store.SUFFIX}"


def _line(job: Job) -> dict[str, Any]:
    options = {"l2": job.penalty[1], "penalty": job.penalty[0], "fit_intercept": job.intercept}
    return {
        "model": next(name for name, model in MODELS.items() if model.loss == job.loss),
        "options": {**options, "sum": job.sum, "topology": job.topology},
        "combines": "predictions" if isinstance(job.algorithm, FDML) else "scores",
    }


def _network(job: Job) -> dict[str, Any]:
    kind = "NetworkRegressor" if job.loss == "square" else "NetworkClassifier"
    options = {"l2": job.penalty[1], "sum": job.sum, "topology": job.topology}
    return {"model": kind, "options": options, "combines": "networks"}


def _kernel(job: Job) -> dict[str, Any]:
    if job.kernel is None or not isinstance(job.algorithm, FDSKL):
        raise TypeError("a job of another kind")
    name, gamma, features, alpha = job.kernel
    kind = "KernelRegressor" if job.loss == "square" else "KernelClassifier"
    options = {"kernel": name, "gamma": gamma, "loss": job.loss, "features": features, "alpha": alpha}
    return {
        "model": kind,
        "options": {**options, "sum": job.sum, "topology": job.topology},
        "combines": "features",
        "block": min(job.algorithm.block, features),
    }


def save_history(folder: Path, records: list[dict[str, Any]]) -> Path:
    """How training went, as far as this party knows: the losses and metrics at the first label holder."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        return None if isinstance(value, float) and not math.isfinite(value) else value  # JSON has no NaN

    path = folder / "history.json"
    private_files.write(path, json.dumps([plain(record) for record in records], indent=1) + "\n")
    return path


def load(folder: Path, party: str) -> ModelPart:
    """Read a party's part."""
    path = folder / f"{party}{store.SUFFIX}"
    if not path.exists():
        raise DataError(f"{party!r} has no part of a model in {folder.name!r} yet; train one with `colonnade run`")
    public, arrays = store.read_party(path)
    learned = LearnedPreparation.from_arrays(arrays)
    state = store.arrays_to_state(public["combines"], arrays)
    classes = arrays.get("classes", np.empty(0))
    return ModelPart(party, public, state, classes, tuple(arrays["columns"].tolist()), learned)
