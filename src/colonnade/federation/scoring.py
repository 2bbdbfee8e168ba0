"""A trained model in use: one label holder asks about people by their ids, the others serve, the scores are summed.

    asker -> all     the ids it asks about, in the clear: whom it scores, its partners get to know
    all -> asker     for each of them a bit, whether this party knows the person
    all              contributions, summed at the asker as in training; 0 for people that are unknown here

A score counts only where every party knows the person; the asker says which ones are not known everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.algorithms.scorers import Scorer
from colonnade.blocks.columns import Columns, columns_from_value, columns_to_value
from colonnade.errors import ProtocolError
from colonnade.ids import pack, unpack
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array
from colonnade.sums import SecureSum, open_sum

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
_DONE, _ASK = "done", "ask"


def columns_of(X: Any) -> Columns:
    """An array or a CSR matrix as the blocks take it."""
    return columns_from_value(columns_to_value(X))


class Directory:
    """Where each person is in a table."""

    def __init__(self, ids: Array) -> None:
        self._rows = {str(one): row for row, one in enumerate(ids.tolist())}

    def find(self, ids: list[str]) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """(rows, known): the rows of those who are known."""
        found = np.array([self._rows.get(one, -1) for one in ids], dtype=np.int64)
        return found[found >= 0], found >= 0


@dataclass(frozen=True)
class Terms:
    """How scores are summed."""

    asker: str
    sum: str
    topology: str


Lookup = Callable[[list[str]], tuple[Any, npt.NDArray[np.bool_]]]  # ids -> (rows of those known or None, known)


async def serve(net: Net, terms: Terms, scorer: Scorer, lookup: Lookup) -> int:
    """Answer until the asker is done; returns how many people were asked about."""
    secure, count = await open_sum(terms.sum, net, terms.topology), 0
    while True:
        asked = await net.recv(terms.asker, "scoring", patient=True)
        if asked == (_DONE,):
            return count
        ids = _ids(asked, terms.asker, scorer.most)
        X, known = await net.in_thread(lookup, ids)
        ready = _ready(secure, scorer, X, known)
        await net.send(terms.asker, "scoring", np.packbits(known))
        await scorer.scores(secure, ready, terms.asker)
        count += len(ids)
        net.report(("served", count))


def _ids(asked: Any, asker: str, most: int) -> list[str]:
    shape = type(asked) is tuple and len(asked) == 3 and asked[0] == _ASK
    if not shape or not all(isinstance(part, np.ndarray) for part in asked[1:]):
        raise ProtocolError(f"party {asker!r} must ask about ids at step 'scoring'")
    if asked[2].size > most:
        raise ProtocolError(f"party {asker!r} asked about {asked[2].size} people at once, at most {most} are allowed")
    return unpack(asked[1], asked[2], asker, "scoring", most)


def _ready(secure: SecureSum, scorer: Scorer, X: Any, known: npt.NDArray[np.bool_]) -> Any:
    rows = np.arange(int(known.sum()))
    return scorer.ready(secure, None if X is None else columns_of(X), rows, known)


class Asker:
    """The label holder's side."""

    def __init__(self, net: Net, terms: Terms, secure: SecureSum, scorer: Scorer) -> None:
        self._net, self._terms, self._secure, self._scorer = net, terms, secure, scorer

    @classmethod
    async def open(cls, net: Net, terms: Terms, scorer: Scorer) -> Asker:
        """Agree on keys."""
        return cls(net, terms, await open_sum(terms.sum, net, terms.topology), scorer)

    async def scores(self, ids: list[str], X: Any, here: npt.NDArray[np.bool_]) -> tuple[Array, npt.NDArray[np.bool_]]:
        """(scores, known): of people by id, known by all parties or not. X: the rows of those who are known here."""
        totals, everywhere = [], []
        places, most = np.cumsum(here), self._scorer.most
        for at in range(0, len(ids), most):
            part = slice(at, at + most)
            first, last = places[at] - here[at], places[min(at + most, len(ids)) - 1]
            # What can't be scored is refused here, before anybody is asked: the line stays up.
            ready = _ready(self._secure, self._scorer, X[first:last] if last > first else None, here[part])
            total, known = await self._some(ids[part], ready, here[part])
            totals.append(total)
            everywhere.append(known)
        return np.concatenate(totals), np.concatenate(everywhere)

    async def _some(
        self, ids: list[str], ready: Any, here: npt.NDArray[np.bool_]
    ) -> tuple[Array, npt.NDArray[np.bool_]]:
        net, others = self._net, [name for name in self._net.names if name != self._net.me]
        texts = np.empty(len(ids), dtype=object)
        texts[:] = ids
        for name in others:
            await net.send(name, "scoring", (_ASK, *pack(texts)))
        known = here.copy()
        for name in others:
            bits = await net.recv(name, "scoring")
            bits = expect_array(bits, ((len(ids) + 7) // 8,), np.uint8, name, "scoring")
            known &= np.unpackbits(bits, count=len(ids)).astype(bool)
        return np.asarray(await self._scorer.scores(self._secure, ready, net.me)), known

    async def close(self) -> None:
        """Let the others go."""
        for name in self._net.names:
            if name != self._net.me:
                await self._net.send(name, "scoring", (_DONE,))
