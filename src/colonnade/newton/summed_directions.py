"""Scores of directions: how they fit into the narrow ring, and their sums at the holders of the rows' labels."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.newton import NewtonBlock
from colonnade.blocks.subspace import Steps
from colonnade.engine.exchange import Part
from colonnade.engine.session import CHUNK, Session
from colonnade.newton.rows_in_use import RowsInUse

DirectionScores: TypeAlias = list[tuple[str, Part, Steps]]  # for each holder, and of which part its rows are

# Rows whose scores under new directions are in full at a time.
_SPAN = 1 << 20


def fitting(used: RowsInUse, own: NewtonBlock, new: FloatArray) -> tuple[FloatArray, DirectionScores, float]:
    """Directions that fit into the narrow ring, their scores for each holder, and the largest of these.

    A direction may be of any length, since the search finds out how far to go.
    """
    session = used.session
    most = 0.99 * session.sum.narrow.largest
    asked: list[tuple[str, Part, Rows]] = [(holder, session.train, rows) for holder, rows in used.chosen]
    if (part := session.validation) is not None:
        asked += [(holder, part, rows) for holder, rows in part.owned.items()]
    while True:
        new[...] = new.astype(np.float32)
        found = [_scores(session, own, rows, new, most, part.columns) for _, part, rows in asked]
        largest = max((one for _, one in found), default=0.0)
        if not largest > most:
            return new, [(*each[:2], steps) for each, (steps, _) in zip(asked, found, strict=True)], largest
        new *= 0.5 * most / largest


def _scores(
    session: Session, own: NewtonBlock, rows: Rows, new: FloatArray, most: float, of: Any
) -> tuple[Steps, float]:
    """Scores of directions in steps of the narrow ring, as far as they fit there, and the largest of them.

    Who has no direction to send, as a leader that searches with its own columns, has zeros.
    """
    steps = np.zeros((len(rows) * own.outputs, new.shape[1]), np.int32)
    largest = 0.0
    for at in range(0, len(rows) if new.any() else 0, _SPAN):
        some = own.scores(rows[at : at + _SPAN], new, of)
        largest = max(largest, float(some.max(initial=0.0)), -float(some.min(initial=0.0)))
        if not largest > most:
            some *= session.sum.narrow.scale
            first = at * own.outputs
            np.rint(some, out=some)
            steps[first : first + len(some)] = some
    return steps, largest


async def sum_up(used: RowsInUse, scores: DirectionScores, room: int) -> None:
    """Everybody's directions, at the holder of each row's label, which remembers as many as there is room for."""
    session = used.session
    scale = session.sum.narrow.scale
    for holder, part, mine in scores:
        held = used.held if part is session.train else used.watched
        places = held.add(mine.shape[1], room) if holder == session.net.me and held is not None else []
        for at in range(0, len(mine), CHUNK):
            some = mine[at : at + CHUNK] / scale
            found = await session.sum.total_narrow("directions", some, holder)
            if found is not None:
                for column, one in zip(places, found.T, strict=False):
                    column[at : at + CHUNK] = np.rint(one * scale)
