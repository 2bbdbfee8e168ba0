"""All figures of one run for two of its parties: the first label holder, and the last party."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from colonnade.runtimes.net import CLEAR, TOTAL
from colonnade.views.angles import from_phases
from colonnade.views.directions import with_products
from colonnade.views.estimates import components, varimax
from colonnade.views.numbers import LinearNumbers, numbers_of
from colonnade.views.replay import replayed
from colonnade.views.view import View
from views import measures
from views.cells import L2, Cell, Seeing, look
from views.measures import KNOWN

Figures = dict[str, float]


def figures_of(cell: Cell, into: int) -> dict[str, Figures]:
    """{who looks: its figures}."""
    seeing = look(cell, into)
    names = list(seeing.parties)
    return {name: seen_by(seeing, name) for name in (names[0], names[-1])}


def seen_by(seeing: Seeing, me: str) -> Figures:
    """What one party can make of its view, beside what its own columns alone would give."""
    view, party = seeing.views[me], seeing.parties[me]
    y = seeing.y if party.active else None
    numbers = numbers_of(view)
    whole = list(numbers.whole)
    # A network's parameters are no combination of its rows.
    turned = replayed(view, y, L2, numbers) if hasattr(seeing.model, "coef_") else {}
    guesses = np.zeros((len(numbers.rows), 0))
    if (found_by_products := with_products(view, numbers.rows)) is not None:
        turned[""] = found_by_products.coordinates
        guesses = guesses if found_by_products.columns is None else found_by_products.columns
    angles = from_phases(view, numbers.rows)
    if angles is not None:
        numbers, guesses, turned[""] = LinearNumbers(angles.rows), angles.columns, angles.coordinates
        whole = list(angles.coordinates.T)
    elif "" in turned and not view.of(TOTAL, "evaluation"):
        whole += list(turned[""].T)
    numbers = replace(numbers, whole=whole)
    coordinates = turned.get("")
    own = np.asarray(party.X)[numbers.rows]
    theirs = {name: np.asarray(other.X)[numbers.rows] for name, other in seeing.parties.items() if name != me}
    joint = np.column_stack(list(theirs.values()))
    found: Figures = {"columns": joint.shape[1], "rows": len(numbers.rows)}
    nothing = np.zeros((len(own), 0))
    for suffix, seen in (("", numbers.matrix), (" floor", nothing)):
        alone = {name: measures.dimensions(seen, own, columns) for name, columns in theirs.items()}
        most = max(theirs, key=lambda name: alone[name] / theirs[name].shape[1])
        found["alone" + suffix], found["alone of"] = alone[most], theirs[most].shape[1]
        found["joint" + suffix] = measures.dimensions(seen, own, joint)
    found["inner"] = 0.0 if coordinates is None else measures.products(coordinates, joint)
    found["inner floor"] = measures.scaled_products(own, joint)
    # The same of one partner: the inner products of all others together say something of each, too.
    found["inner alone"] = max(
        (measures.scaled_products(one, columns) for one in turned.values() for columns in theirs.values()), default=0.0
    )
    found["inner alone floor"] = max(measures.scaled_products(own, columns) for columns in theirs.values())
    found["unmasked"] = numbers.unmasked
    found["blind"], found["found"] = measures.blind(estimates(numbers, coordinates, guesses, own), joint)
    found["blind floor"], found["found floor"] = measures.blind(own, joint)
    features = features_of(numbers, coordinates, own)
    for known in KNOWN:
        floor = measures.with_known_rows([own], joint, known)
        seen = measures.with_known_rows(features, joint, known)
        for what, value, least in zip(("best", "mean"), seen, floor, strict=True):
            # Whom what it saw misleads can leave it aside.
            found[f"{what} {known}"], found[f"{what} {known} floor"] = max(value, least), least
    if y is None:
        found["labels"], found["labels floor"] = labels_of(view, seeing, me)
    return {key: round(float(value), 4) for key, value in found.items()}


def estimates(numbers: LinearNumbers, coordinates: Any, guesses: Any, own: Any) -> Any:
    """All columns that a party would take for a partner's, without knowing a row: own ones, too, as they are alike."""
    seen = numbers.matrix
    parts = [own, seen, guesses]
    if len(numbers.whole) > 1:
        parts.append(np.diff(np.column_stack(numbers.whole), axis=1))
    if seen.shape[1] > 1:
        parts.append(components(seen))
    if coordinates is not None:
        parts.append(varimax(coordinates))
    return np.column_stack(parts)


def features_of(numbers: LinearNumbers, coordinates: Any, own: Any) -> list[Any]:
    """What a party can regress on: coordinates where it has them, else what it sees, with and without its own."""
    seen = coordinates if coordinates is not None else measures.basis(numbers.matrix) * len(own) ** 0.5
    own = measures.centred(own)
    return [own] if not seen.shape[1] else [measures.centred(seen), np.column_stack([measures.centred(seen), own]), own]


def labels_of(view: View, seeing: Seeing, me: str) -> tuple[float, float]:
    """(best AUC of a simple attack on the labels, AUC of this party's own part of the finished model)."""
    own = np.asarray(seeing.parties[me].X)
    floor = 0.5
    if hasattr(seeing.model, "coef_"):
        floor = measures.auc(own @ seeing.model.coef_[me], seeing.y)
    guesses: dict[str, Any] = defaultdict(lambda: np.zeros(len(own)))
    for one in view.of(CLEAR, "signal"):
        for k, column in enumerate(np.asarray(one.value).reshape(len(one.rows), -1).T):
            guesses[f"sign of the signal {k}"][one.rows] -= np.sign(column)
    for one in view.of(CLEAR, "own gradient"):
        guesses["own gradient"][one.rows] -= own[one.rows] @ one.value[: own.shape[1], 0]
    for one in view.of(CLEAR, "curvatures"):
        guesses["curvature"] = np.sign(own @ seeing.model.coef_[me]) * np.sqrt(np.maximum(0.0, 1 - 4 * one.value))
    return max([floor, *(measures.auc(guess, seeing.y) for guess in guesses.values())]), floor
