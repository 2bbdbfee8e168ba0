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

from colonnade import penalties
from colonnade.blocks.columns import columns_from_value, columns_to_value
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.prediction import PredictionBlock
from colonnade.errors import ProtocolError
from colonnade.ids import pack, unpack
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array
from colonnade.sums import SecureSum, open_sum

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
# People that are asked about in one message.
CHUNK = 1 << 14
_DONE, _ASK = "done", "ask"


class Contributions:
    """What one party adds to the score of a person: its part of the model on its own columns."""

    def __init__(self, state: tuple[Any, ...], combines: str) -> None:
        self._state, self._combines = state, combines
        self.outputs = int(state[0].shape[1])

    def of(self, X: Any) -> Array:
        """One row per person, one column per score."""
        columns = columns_from_value(columns_to_value(X))
        kind = PredictionBlock if self._combines == "predictions" else LinearBlock
        block = kind(columns, self.outputs, penalties.L2(0.0), intercept=False)
        block.restore(self._state)
        return block.scores(np.arange(columns.shape[0]), columns).reshape(-1, self.outputs)


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
    outputs: int
    sum: str
    topology: str


Lookup = Callable[[list[str]], tuple[Array, npt.NDArray[np.bool_]]]  # ids -> (contributions of those known, known)


async def serve(net: Net, terms: Terms, lookup: Lookup) -> int:
    """Answer until the asker is done; returns how many people were asked about."""
    secure, count = await open_sum(terms.sum, net, terms.topology), 0
    while True:
        asked = await net.recv(terms.asker, "scoring", patient=True)
        if asked == (_DONE,):
            return count
        ids = _ids(asked, terms.asker)
        known_scores, known = await net.in_thread(lookup, ids)
        await net.send(terms.asker, "scoring", np.packbits(known))
        await secure.total("prediction", _spread(known_scores, known, terms.outputs), terms.asker)
        count += len(ids)
        net.report(("served", count))


def _ids(asked: Any, asker: str) -> list[str]:
    shape = type(asked) is tuple and len(asked) == 3 and asked[0] == _ASK
    if not shape or not all(isinstance(part, np.ndarray) for part in asked[1:]):
        raise ProtocolError(f"party {asker!r} must ask about ids at step 'scoring'")
    ids = unpack(asked[1], asked[2], asker, "scoring")
    if len(ids) > CHUNK:
        raise ProtocolError(f"party {asker!r} asked about {len(ids)} people at once, at most {CHUNK} are allowed")
    return ids


def _spread(scores: Array, known: npt.NDArray[np.bool_], outputs: int) -> Array:
    out = np.zeros((len(known), outputs))
    out[known] = scores
    return out[:, 0] if outputs == 1 else out


class Asker:
    """The label holder's side."""

    def __init__(self, net: Net, terms: Terms, secure: SecureSum) -> None:
        self._net, self._terms, self._secure = net, terms, secure

    @classmethod
    async def open(cls, net: Net, terms: Terms) -> Asker:
        """Agree on keys."""
        return cls(net, terms, await open_sum(terms.sum, net, terms.topology))

    async def scores(self, ids: list[str], mine: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        """(scores, known): of people by id, given this party's own contributions; known by all other parties or not."""
        totals, everywhere = [], []
        for at in range(0, len(ids), CHUNK):
            part = slice(at, at + CHUNK)
            total, known = await self._some(ids[part], mine[part])
            totals.append(total)
            everywhere.append(known)
        return np.concatenate(totals), np.concatenate(everywhere)

    async def _some(self, ids: list[str], mine: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
        net, others = self._net, [name for name in self._net.names if name != self._net.me]
        texts = np.empty(len(ids), dtype=object)
        texts[:] = ids
        for name in others:
            await net.send(name, "scoring", (_ASK, *pack(texts)))
        known = np.ones(len(ids), dtype=bool)
        for name in others:
            bits = await net.recv(name, "scoring")
            bits = expect_array(bits, ((len(ids) + 7) // 8,), np.uint8, name, "scoring")
            known &= np.unpackbits(bits, count=len(ids)).astype(bool)
        own = mine[:, 0] if self._terms.outputs == 1 else mine
        total = await self._secure.total("prediction", own, net.me)
        return np.asarray(total), known

    async def close(self) -> None:
        """Let the others go."""
        for name in self._net.names:
            if name != self._net.me:
                await self._net.send(name, "scoring", (_DONE,))
