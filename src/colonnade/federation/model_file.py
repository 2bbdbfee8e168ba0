"""One party's part of a model on disk: what `LinearModel.save` writes for it, and what its preparation learned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import store
from colonnade.algorithms import FDML
from colonnade.errors import DataError
from colonnade.estimators import MODELS
from colonnade.federation.job import Job
from colonnade.federation.prepared import Prepared
from colonnade.federation.training import Trained

_STATE = ("theta", "intercept", "share")


@dataclass(frozen=True)
class ModelPart:
    """What one party knows of a model."""

    party: str
    public: dict[str, Any]  # what all parties know
    state: tuple[Any, ...]
    classes: npt.NDArray[Any]
    columns: tuple[str, ...]
    prepared: Prepared


def save(folder: Path, job: Job, party: str, trained: Trained, learned: Prepared) -> Path:
    """Write a party's part, whole or not at all."""
    kind = next(name for name, model in MODELS.items() if model.loss == job.loss)
    public = {
        "model": kind,
        "options": {
            "l2": job.penalty[1], "penalty": job.penalty[0], "fit_intercept": job.intercept, "sum": job.sum,
            "topology": job.topology,
        },
        "parties": job.parties,
        "holders": job.holders,
        "sum": job.sum,
        "combines": "predictions" if isinstance(job.algorithm, FDML) else "scores",
        "job": job.name,
        "rows": trained.rows,
    }  # fmt: skip
    arrays = {"columns": np.array(trained.prepared.columns)}
    arrays |= {key: part for key, part in zip(_STATE, trained.state, strict=False) if part is not None}
    if party in job.holders:
        arrays["classes"] = trained.classes
    arrays |= learned.to_arrays()
    store.write_party(folder, party, public, arrays)
    return folder / f"{party}{store.SUFFIX}"


def load(folder: Path, party: str) -> ModelPart:
    """Read a party's part."""
    path = folder / f"{party}{store.SUFFIX}"
    if not path.exists():
        raise DataError(f"{party!r} has no part of a model in {folder.name!r} yet; train one with `colonnade run`")
    public, arrays = store.read_party(path)
    learned = Prepared.from_arrays(arrays)
    state = (arrays["theta"], arrays.get("intercept"), *((float(arrays["share"]),) if "share" in arrays else ()))
    classes = arrays.get("classes", np.empty(0))
    return ModelPart(party, public, state, classes, tuple(arrays["columns"].tolist()), learned)
