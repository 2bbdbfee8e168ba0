"""A party's part of a trained model in use: what it adds to the scores of new rows, and how these come together.

First comes `ready`, which works out what this party will send and refuses what can't be sent; then `scores`, which is
the exchange. A party adds noise to the scores of people whom it does not know, so that their totals show nothing of
what others added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, NotFinite, Rows
from colonnade.blocks.columns import Columns
from colonnade.defences.scores import Blur
from colonnade.errors import DataError, RingOverflow
from colonnade.sums import SecureSum

Known = npt.NDArray[np.bool_]


class Scorer(Protocol):
    """One party's side of a prediction."""

    most: int  # rows at a time
    outputs: int  # scores of a row
    spreads: bool  # whether a row's score costs so much more than the row that an engine's workers are worth asking

    def ready(self, secure: SecureSum, columns: Columns | None, rows: Rows, known: Known) -> Any:
        """Return what this party adds for some people; `rows` are the places, in its columns, of those it knows."""
        ...

    async def scores(self, secure: SecureSum, ready: Any, to: str) -> FloatArray | None:
        """Return the scores at one label holder, and None elsewhere."""
        ...


class SummedScorer(ABC):
    """A party's side where contributions, one row per person and one column per score, are simply added up."""

    most = 1 << 14
    outputs: int
    spreads = False
    blur = Blur()  # what this party does to its contributions before they leave
    secret: bytes | None = None  # what noise on contributions is drawn from, from the first question on

    @abstractmethod
    def of(self, columns: Columns, rows: Rows) -> FloatArray:
        """Return what this party adds to the scores, one row per person."""

    def ready(self, secure: SecureSum, columns: Columns | None, rows: Rows, known: Known) -> tuple[FloatArray, Known]:
        """Return the contributions, and whose are missing; refuse what is beyond the ring, or is not a number."""
        own = np.zeros((len(known), self.outputs))
        try:
            if columns is not None:
                self.secret = self.secret or secure.net.secret("noise of scores")
                own[known] = self.blur(self.of(columns, rows), self.secret)
            secure.ring.encode(own, secure.net.me)
        except (RingOverflow, NotFinite) as error:
            why = str(error) or "the network has no score for them"
            raise DataError(
                f"scores that can't be summed: {why}; the values are far outside of what the model was trained on, or "
                f"its targets were too large: then train it on smaller ones, in thousands for example"
            ) from None
        return own[:, 0] if self.outputs == 1 else own, ~known

    async def scores(self, secure: SecureSum, ready: tuple[FloatArray, Known], to: str) -> FloatArray | None:
        """Sum the contributions as in training, with noise for people whom this party does not know."""
        own, unknown = ready
        return await secure.total("prediction", own, to, hidden=unknown)


def blurred(scorer: Scorer, blur: Blur) -> Scorer:
    """Return a party's scorer, whose contributions are blurred before they leave."""
    if blur:
        cast("SummedScorer", scorer).blur = blur
    return scorer


async def score_rows(secure: SecureSum, scorer: Scorer, columns: Columns, to: str) -> FloatArray | None:
    """Return the scores of all rows, where every party knows all of them, computed some at a time."""
    pieces = []
    for at in range(0, columns.shape[0], scorer.most):
        rows = np.arange(at, min(at + scorer.most, columns.shape[0]))
        ready = scorer.ready(secure, columns, rows, np.ones(len(rows), dtype=bool))
        found = await scorer.scores(secure, ready, to)
        if found is not None:
            pieces.append(found)
    return np.concatenate(pieces) if pieces else None
