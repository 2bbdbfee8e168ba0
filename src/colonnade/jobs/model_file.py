"""One party's part of a model on disk: what an estimator's `save` writes for it, and what its preparation learned."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.data.matrix import is_stored
from colonnade.errors import DataError
from colonnade.families import family, store
from colonnade.families.protection import SEALED
from colonnade.jobs.job import Job
from colonnade.objective.calibration import Calibration
from colonnade.objective.decisions import Threshold
from colonnade.tables.learned import LearnedPreparation
from colonnade.versions.identity import short
from colonnade.versions.shelf import Shelf

Rows = npt.NDArray[np.int64]


class Prepared(Protocol):
    """What a party's preparation learned, and the rows that it prepares."""

    columns: tuple[str, ...]
    sources: int  # how many columns they were made of, before categories became several
    categories: tuple[int, ...]  # the numbers of those that hold codes of categories

    def matrix(self, rows: Rows) -> Any:
        """Return these rows, prepared, as an array or a CSR matrix."""
        ...


@dataclass(frozen=True)
class JobValidation:
    """What a party knows of a job's cross-validation; only the first label holder has scores."""

    best: int  # the chosen candidate
    scores: npt.NDArray[np.float64] | None  # by candidate and fold
    fold: npt.NDArray[np.int64]  # in which each of the common rows is held out
    z: npt.NDArray[np.float64] | None  # the score of each of them there, by the chosen candidate

    def record(self, job: Job) -> dict[str, Any]:
        """Return what `validation.json` says."""
        found = []
        for number in range(job.tries):
            entry: dict[str, Any] = {"options": dict(job.grid[number]) if job.grid else {}}
            if self.scores is not None:
                each = self.scores[number]
                entry |= {"scores": each.tolist(), "mean": float(each.mean()), "std": float(each.std())}
            found.append(entry)
        return {"folds": job.folds, "scoring": job.scoring or "score", "best": self.best, "candidates": found}


@dataclass(frozen=True)
class Trained:
    """A party's part of the model, as training leaves it."""

    state: Any  # its parameters, in the form that the model's family gives them
    classes: npt.NDArray[Any]  # empty at parties without labels
    prepared: Prepared
    rows: int
    held_out: int
    best: bool  # whether the state is that of the best evaluation, rather than of the last one
    outputs: int = 1  # how many scores a row has
    statistics: Any = None  # what `inference.program.infer_linear` returned
    people: Rows | None = None  # the common rows, held-out ones too
    training: str = ""  # the id of the training, on which all parties have agreed
    apart: Rows | None = None  # the held-out rows, in the order in which the model was judged by them
    calibration: Calibration | None = None  # how scores become probabilities, at a label holder
    threshold: Threshold | None = None  # from which score on it decides for the second class, at the label holder
    judged: Any = None  # (numbers of held-out rows, scores) by which this party judged the model; None if it did not
    validated: JobValidation | None = None  # how candidates did on held-out rows, where the job has folds


@dataclass(frozen=True)
class ModelPart:
    """What one party knows of a model."""

    party: str
    public: dict[str, Any]  # what all parties know
    state: tuple[Any, ...]
    classes: npt.NDArray[Any]
    columns: tuple[str, ...]
    prepared: LearnedPreparation
    folder: Path = Path()  # where it lies, with all that belongs to it
    calibration: Calibration | None = None  # how scores become probabilities, at a label holder
    threshold: Threshold | None = None  # from which score on it decides for the second class, at the label holder

    @property
    def training(self) -> str:
        """The id of the training that it is of; empty where it has none, as models of earlier versions."""
        return str(self.public.get("training", ""))


def digest(made: str, state: Any) -> str:
    """Return what tells one party's part of a model from another; `made` is the name of the model's family."""
    arrays = family(made).to_arrays(state)
    return digest_of(tuple((key, np.asarray(arrays[key])) for key in sorted(arrays))).hex()


def digest_of(value: Any) -> bytes:
    """Return a digest of a wire value.

    A state that was kept belongs to the same columns, prepared alike, and the same labels; their digest tells.
    """
    stored = is_stored(value)
    found = hashlib.sha256((np.ndarray if stored else type(value)).__name__.encode())
    if stored:  # it has the digest of the same numbers in memory
        found.update(f"{value.dtype} {value.shape}".encode())
        for piece in value.pieces():
            found.update(piece.data)
    elif isinstance(value, tuple):
        for part in value:
            found.update(digest_of(part))
    elif isinstance(value, np.ndarray):
        found.update(f"{value.dtype} {value.shape}".encode())
        found.update(np.ascontiguousarray(value).data)
    else:
        found.update(repr(value).encode())
    return found.digest()


def save(
    folder: Path,
    job: Job,
    party: str,
    trained: Trained,
    learned: LearnedPreparation,
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Write a party's part, whole or not at all, and return its path.

    about: what this party knows of the training beside what all know, such as its date and how well the model does.
    """
    kind = family(job.family)
    # Sealed training takes no sum; what the job has one for is its predictions.
    added = "auto" if job.protection == SEALED else job.sum
    options = {"protection": job.protection}
    if kind.adds_up:
        options |= {"sum": added, "topology": job.topology}
    public = {
        "model": kind.estimator(job.loss), "options": {**kind.estimator_options(job.model, job.loss), **options},
        "family": kind.name, **kind.facts(job.training(trained.outputs)),
        "parties": job.parties, "holders": job.holders, "sum": job.sum, "job": job.name, "rows": trained.rows,
    }  # fmt: skip
    if trained.training:
        public["training"] = trained.training
    arrays = {"columns": np.array(trained.prepared.columns), **kind.to_arrays(trained.state)}
    if party in job.holders or kind.predicts_alone:
        arrays["classes"] = trained.classes
    arrays |= learned.to_arrays()
    if trained.calibration is not None:
        arrays |= trained.calibration.to_arrays()
    if trained.threshold is not None:
        arrays |= trained.threshold.to_arrays()
    if about:
        arrays["about"] = np.array(json.dumps(dict(about)))
    store.write_party(folder, party, public, arrays)
    return folder / f"{party}{store.SUFFIX}"


def save_history(folder: Path, records: list[dict[str, Any]]) -> Path:
    """Write how training went, as far as this party knows; only the first label holder hears losses and metrics."""
    path = folder / "history.json"
    private_files.write(path, json.dumps(_plain(records), indent=1) + "\n")
    return path


def save_validation(folder: Path, job: Job, found: JobValidation | None) -> None:
    """Write how the candidates did on held-out rows, or remove what an earlier run of a job with folds wrote."""
    path = folder / "validation.json"
    if found is None:
        path.unlink(missing_ok=True)
    else:
        private_files.write(path, json.dumps(_plain(found.record(job)), indent=1) + "\n")


def _plain(value: Any) -> Any:
    """Return a value for JSON, which has no NaN."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def load(folder: Path, party: str, version: str | None = None) -> ModelPart:
    """Read a party's part of a model out of its folder: that of the promoted version, or of another one by its id."""
    shelf = Shelf(folder, party)
    found = shelf.promoted() if version is None else shelf.find(version)
    path = found.folder / f"{party}{store.SUFFIX}"
    if not path.exists():
        raise DataError(f"{path.name!r} is missing in the version {found.name} of {party!r}; restore it from a backup")
    public, arrays = store.read_party(path)
    if public.get("training", "") != found.training:
        raise DataError(
            f"the part of the model in 'versions/{found.folder.name}' of {party!r} is of the training "
            f"{short(public.get('training', ''))}, the folder of {found.name}; put back the part that belongs there"
        )
    learned = LearnedPreparation.from_arrays(arrays)
    state = family(public["family"]).from_arrays(arrays)
    classes = arrays.get("classes", np.empty(0))
    known = (classes, tuple(arrays["columns"].tolist()), learned, found.folder)
    own = (Calibration.from_arrays(arrays), Threshold.from_arrays(arrays))
    return ModelPart(party, public, state, *known, *own)
