"""We alone: a model that the label holder trains by itself on its own columns, with the same rows, options and folds.

It says what the partners' columns add. Nobody else takes part or hears of it. Its scores of the held-out people are
kept in the version's folder (`alone.csv`), so that a later report shows the same, whatever has become of the data.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.data.ids import canonical
from colonnade.data.party import Party
from colonnade.errors import ColonnadeError, ColonnadeWarning, DataError
from colonnade.families import family
from colonnade.jobs.model_file import ModelPart
from colonnade.jobs.party_file import PartyFile
from colonnade.objective.losses import Floats, Loss
from colonnade.report import held_out_file
from colonnade.report.held_out_file import HeldOutPeople
from colonnade.tables import data
from colonnade.tables.table import Table

FILE = "alone.csv"
_SHARED = ("protection", "sum", "topology")  # options that are about several parties

Rows = npt.NDArray[np.int64]


def alone(party: PartyFile, part: ModelPart, people: HeldOutPeople, loss: Loss) -> tuple[Floats | None, str]:
    """Return the scores of these people by the party alone, and how they came about or why there are none."""
    made = part.public["model"]
    if family(part.public["family"]).takes_own:
        return None, f"A {made} of {party.name} alone would be another network, so nothing is compared."
    how = (
        f"{party.name} alone is a {made} of its own {len(part.columns):,} columns, with the same people in training "
        f"and held out and the same options. Nobody else has heard of it."
    )
    path = part.folder / FILE
    if path.exists():
        kept = held_out_file.read(path)
        if kept.ids == people.ids and kept.scores.shape == people.scores.shape:
            return kept.scores, how
    try:
        table = data.load(party.data, texts=part.prepared.texts)
        train, apart = _rows(party, part, table, people)
        scores = _trained_alone(party.name, part, table, train, apart, loss)
    except ColonnadeError as error:
        return None, f"{party.name} alone could not be trained for comparison: {error}."
    kept = HeldOutPeople(people.ids, people.folds, scores, people.labels, people.weights)
    held_out_file.write(path, kept, [str(one) for one in part.classes.tolist()])
    return scores, how


def _rows(party: PartyFile, part: ModelPart, table: Table, people: HeldOutPeople) -> tuple[Rows, Rows]:
    """Return the rows of the table that were trained on, and those of the held-out people."""
    if table.ids is None:
        apart = np.array([int(one) - 1 for one in people.ids], dtype=np.int64)
        if len(apart) and apart.max() >= table.rows:
            raise DataError(f"{table.where} has fewer rows than in training; give the file of the training")
        return np.setdiff1d(np.arange(table.rows), apart), apart
    path = part.folder / "people.json"
    try:
        common = json.loads(private_files.read(path, "the people of the training", DataError))["people"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path.name!r}, which names the people of the training, can't be read ({error})") from None
    where = {str(one): row for row, one in enumerate(canonical(table.ids, f"party {party.name!r}").tolist())}
    held = [str(one) for one in canonical(np.array(people.ids), f"party {party.name!r}").tolist()]
    missing = sum(one not in where for one in common)
    if missing:
        raise DataError(
            f"{missing:,} of the {len(common):,} people of the training are not in {table.where} any more; give the "
            f"file of the training"
        )
    away = set(held)
    train = [where[one] for one in common if one not in away]
    return np.array(train, dtype=np.int64), np.array([where[one] for one in held], dtype=np.int64)


def _trained_alone(me: str, part: ModelPart, table: Table, train: Rows, apart: Rows, loss: Loss) -> Floats:
    """Train by the same kind of model, and return the scores of the other rows."""
    import colonnade

    options = {name: value for name, value in part.public["options"].items() if name not in _SHARED}
    model: Any = getattr(colonnade, part.public["model"])(**options, protection="plain", verbose=0)
    if table.label is None:
        raise DataError(f"{table.where} has no labels")
    names, coded = part.columns, part.prepared.categories

    def own(rows: Rows) -> Party:
        some = table.take(rows)
        X = part.prepared.apply(some)
        return Party(me, X, some.label, columns=names, sample_weight=some.weight, categories=coded)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)
        trained, others = own(train), own(apart)
        model.fit(trained.take(np.flatnonzero(np.asarray(trained.labelled))))
        return held_out_file.shown_scores(loss, np.asarray(model.decision_function(others), dtype=np.float64))
