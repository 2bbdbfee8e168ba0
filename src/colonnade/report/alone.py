"""We alone: a model that the label holder trains by itself on its own columns, with the same rows, options and folds.

It says what the partners' columns add. Nobody else takes part or hears of it. Its scores of the held-out people are
kept in the version's folder (`alone.csv`), so that a later report shows the same, whatever has become of the data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.ids import canonical
from colonnade.data.party import Party
from colonnade.errors import ColonnadeError, ColonnadeWarning, DataError
from colonnade.families import family
from colonnade.jobs.model_file import ModelPart
from colonnade.objective.losses import Floats, Loss
from colonnade.report import held_out_file
from colonnade.report.held_out_file import HeldOutPeople
from colonnade.report.training_people import common_rows, place_of
from colonnade.tables.table import Table

FILE = "alone.csv"
_SHARED = ("protection", "sum", "topology")  # options that are about several parties

Rows = npt.NDArray[np.int64]


def alone(part: ModelPart, people: HeldOutPeople, loss: Loss, load: Callable[[], Table]) -> tuple[Floats | None, str]:
    """Return the scores of these people by the party alone, and how they came about or why there are none.

    `load` reads the party's data, which is done only where nothing is kept.
    """
    made = part.public["model"]
    if family(part.public["family"]).takes_own:
        return None, f"A {made} of {part.party} alone would be another network, so nothing is compared."
    each = " in each fold" if len(set(people.folds)) > 1 else ""
    how = (
        f"{part.party} alone is a {made} of its own {len(part.columns):,} columns, with the same people in training "
        f"and held out{each} and the same options. Nobody else has heard of it."
    )
    path = part.folder / FILE
    if path.exists():
        kept = held_out_file.read(path)
        if kept.ids == people.ids and kept.scores.shape == people.scores.shape:
            return kept.scores, how
    try:
        scores = _scored_alone(part, load(), people, loss)
    except ColonnadeError as error:
        return None, f"{part.party} alone could not be trained for comparison: {error}."
    kept = HeldOutPeople(people.ids, people.folds, scores, people.labels, people.weights)
    held_out_file.write(path, kept, [str(one) for one in part.classes.tolist()])
    return scores, how


def _rows(part: ModelPart, table: Table, people: HeldOutPeople) -> tuple[Rows, Rows]:
    """Return the rows of the table that are about people of the training, and those of the held-out ones."""
    common, where = common_rows(part, table), place_of(part, table)
    names = canonical(np.array(people.ids), f"party {part.party!r}").tolist() if people.ids else []
    missing = sum(str(one) not in where for one in names)
    if missing:
        raise DataError(f"{missing:,} held-out people are not in {table.where} any more; give the file of the training")
    apart = np.array([where[str(one)] for one in names], dtype=np.int64)
    return common, apart


def _scored_alone(part: ModelPart, table: Table, people: HeldOutPeople, loss: Loss) -> Floats:
    """Train once for each fold on everybody whom it does not hold out, and return the scores of all held-out people."""
    (everybody, apart), folds = _rows(part, table, people), np.array(people.folds)
    scores = np.zeros(people.scores.shape)
    for fold in sorted(set(people.folds)):
        held = apart[folds == fold]
        scores[folds == fold] = _trained_alone(part, table, np.setdiff1d(everybody, held), held, loss)
    return scores


def _trained_alone(part: ModelPart, table: Table, train: Rows, apart: Rows, loss: Loss) -> Floats:
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
        known: dict[str, Any] = {"sample_weight": some.weight, "offset": some.added}
        return Party(part.party, X, some.label, columns=names, categories=coded, **known)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColonnadeWarning)
        trained, others = own(train), own(apart)
        model.fit(trained.take(np.flatnonzero(np.asarray(trained.labelled))))
        return held_out_file.shown_scores(loss, np.asarray(model.decision_function(others), dtype=np.float64))
