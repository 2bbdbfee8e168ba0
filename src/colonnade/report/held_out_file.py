"""`held-out.csv`: who was held out, what the model says of them and what they are, where their labels are known.

    id,fold,score,label          one line for each person whose label this party has; then `weight`, where rows have one
    00017,held out,0.0831,paid   the probability or margin of the second class, or the predicted number
    00017,fold 3,0.0831,paid     the same by the model of the fold that held this person out, where a job has folds
    id,fold,score a,score b,label   of several classes, the probability of each

Nothing is sent for it: these are the scores by which the party judged the model, and it had them anyway.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import private_files
from colonnade.data import labels
from colonnade.errors import DataError, OptionError
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import Trained
from colonnade.objective import losses
from colonnade.objective.losses import Floats, Loss
from colonnade.report.contents import JudgedPeople
from colonnade.report.markup import HELD_OUT

FILE = "held-out.csv"
_SCORE = "score"


@dataclass(frozen=True)
class HeldOutPeople:
    """People who were not trained on, as the file names them; scores have one column, or one for each class."""

    ids: tuple[str, ...]
    folds: tuple[str, ...]
    scores: Floats
    labels: tuple[str, ...]
    weights: Floats | None = None


def shown_scores(loss: Loss, z: Floats) -> Floats:
    """Return scores as people read them: probabilities where the loss has any, margins, or predicted numbers."""
    if loss.name == "logistic":
        return np.asarray(loss.probability(z)[:, 1], dtype=np.float64)
    if loss.kind == "classes":
        return np.asarray(loss.probability(z), dtype=np.float64)
    return np.asarray(z if loss.kind == "binary" else loss.predict(z), dtype=np.float64)


BEFORE = "scores are shown as they are before calibration"


def lowest_taken(shown: Floats, decided: Floats) -> float:
    """Return the lowest of these scores that is taken for the second class: the threshold, as these people see it."""
    taken = shown[decided > 0]
    return float(taken.min()) if len(taken) else float(np.nextafter(shown.max(), np.inf))


def save(folder: Path, job: Job, party: str, table: tuple[Any, Any, Any], trained: Trained) -> None:
    """Write the file into a version's folder, at a party that holds labels and judged the model by held-out rows.

    `table` is the party's ids, labels and weights of rows, of which each may be None.
    """
    path, found, (ids, given, weights) = folder / FILE, _judged(trained), table
    if found is None or given is None or party not in job.holders:
        return
    rows, folds, z = found
    names = [str(row + 1) for row in rows] if ids is None else [str(one) for one in np.asarray(ids)[rows].tolist()]
    scores = shown_scores(losses.loss(job.loss), np.asarray(z, dtype=np.float64))
    told = [str(one) for one in np.asarray(given)[rows].tolist()]
    weighed = None if weights is None else np.asarray(weights, dtype=np.float64)[rows]
    people = HeldOutPeople(tuple(names), folds, scores, tuple(told), weighed)
    write(path, people, [str(one) for one in trained.classes.tolist()])


def _judged(trained: Trained) -> tuple[Any, tuple[str, ...], Any] | None:
    """Return (rows of people who were held out, in which fold, their scores), where this party was told any."""
    if trained.judged is not None and trained.apart is not None:
        rows = trained.apart[np.asarray(trained.judged[0], dtype=np.int64)]
        return rows, (HELD_OUT,) * len(rows), trained.judged[1]
    folded = trained.validated
    if folded is None or folded.z is None or trained.people is None:
        return None
    return trained.people, tuple(f"fold {number + 1}" for number in folded.fold.tolist()), folded.z


def write(path: Path, people: HeldOutPeople, classes: list[str]) -> None:
    """Write people, readable by their owner only; the file takes its place whole or not at all."""
    several = people.scores.ndim == 2
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    names = [f"{_SCORE} {one}" for one in classes] if several else [_SCORE]
    writer.writerow(["id", "fold", *names, "label", *([] if people.weights is None else ["weight"])])
    columns: list[Any] = [people.ids, people.folds]
    columns += [column.tolist() for column in (people.scores.T if several else people.scores[None])]
    columns += [people.labels] + ([] if people.weights is None else [people.weights.tolist()])
    writer.writerows(zip(*columns, strict=True))
    private_files.write(path, text.getvalue())


def read(path: Path, *, private: bool = True) -> HeldOutPeople:
    """Read people; `private` says that the file is the party's own, which nobody else may be able to change."""
    try:
        content = private_files.read(path, "the held-out people", DataError) if private else path.read_bytes()
        rows = list(csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path.name!r} can't be read ({error}); give a CSV file with id, score and label") from None
    header = rows[0] if rows else []
    places = {name: number for number, name in enumerate(header)}
    scores = [number for number, name in enumerate(header) if name == _SCORE or name.startswith(f"{_SCORE} ")]
    if not scores or "id" not in places or "label" not in places or len(places) != len(header):
        raise DataError(
            f"{path.name!r} has the columns {', '.join(map(repr, header[:12])) or 'of an empty file'}; it needs id, "
            f"score and label, each once"
        )
    body = [row for row in rows[1:] if row]
    for number, row in enumerate(body, 2):
        if len(row) != len(header):
            raise DataError(f"line {number} of {path.name!r} has {len(row)} cells, its header has {len(header)}")

    def column(name: str) -> tuple[str, ...]:
        return tuple(row[places[name]] for row in body)

    values = _numbers(path, [[row[place] for place in scores] for row in body]).reshape(len(body), len(scores))
    weights = _numbers(path, [[cell] for cell in column("weight")])[:, 0] if "weight" in places else None
    folds = column("fold") if "fold" in places else ("",) * len(body)
    whole = values[:, 0] if header[scores[0]] == _SCORE else values
    return HeldOutPeople(column("id"), folds, whole, column("label"), weights)


def _numbers(path: Path, cells: list[list[str]]) -> Floats:
    try:
        found = np.array(cells, dtype=np.float64).reshape(len(cells), -1)
    except ValueError as error:
        raise DataError(f"{path.name!r} has a score or weight that is no number ({error}); correct it") from None
    if not np.isfinite(found).all():
        raise DataError(f"{path.name!r} has a score or weight that is missing or infinite; leave these people out")
    return found


def judged(people: HeldOutPeople, kind: str, classes: list[str], loss: Loss, where: str) -> JudgedPeople:
    """Return people as a report takes them, with labels as numbers."""
    if loss.kind in ("binary", "classes"):
        known = {name: number for number, name in enumerate(classes)}
        unknown = sorted(set(people.labels) - set(known))
        if unknown:
            raise DataError(
                f"{where!r} has the labels {labels.show(np.array(unknown))}, and the model knows "
                f"{labels.show(np.array(classes))}; use these, and leave people without a label out"
            )
        y = np.array([known[one] for one in people.labels], dtype=np.int64)
    else:
        try:
            y = np.array(people.labels, dtype=np.float64)
        except ValueError as error:
            raise DataError(f"{where!r} has a label that is no number ({error}); correct it") from None
    width = people.scores.shape[1] if people.scores.ndim == 2 else 1
    if (loss.kind == "classes") != (people.scores.ndim == 2) or (width > 1 and width != len(classes)):
        raise OptionError(f"{where!r} has {width} scores of each person, and the model gives {len(classes) or 1}")
    return JudgedPeople(kind, y, people.scores, None, people.weights)
