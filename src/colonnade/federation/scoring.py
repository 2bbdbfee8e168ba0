"""A trained model in use: one label holder asks about people by their ids, the others serve, the scores are summed.

    asker -> all     the ids it asks about, in the clear: whom it scores, its partners get to know
    all -> asker     for each of them a bit, whether this party knows the person
    all              contributions, summed at the asker as in training; 0 for people that are unknown here

A score counts only where every party knows the person; the asker says which ones are not known everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from colonnade import penalties
from colonnade.algorithms.kernel_program import KernelScorer
from colonnade.blocks.columns import Columns, columns_from_value, columns_to_value, value_of
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.modules import module_of
from colonnade.blocks.network import NetworkBlock, NotFinite
from colonnade.blocks.prediction import PredictionBlock
from colonnade.errors import DataError, ProtocolError, RingOverflow
from colonnade.ids import pack, unpack
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array
from colonnade.sums import SecureSum, open_sum

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
# People that are asked about in one message.
CHUNK = 1 << 14
_DONE, _ASK = "done", "ask"


class Scorer(Protocol):
    """One party's part of a model in use."""

    def check(self, secure: SecureSum, X: Any) -> None:
        """Refuse rows that can't be scored, before anybody is asked."""
        ...

    async def scores(
        self, secure: SecureSum, columns: Columns | None, known: npt.NDArray[np.bool_], to: str
    ) -> Array | None:
        """The scores at one party; `columns` holds those rows that are known here, None if there are none."""
        ...


class LinearScorer:
    """What one party adds to the score of a person: its part of the model on its own columns."""

    def __init__(self, state: tuple[Any, ...], combines: str) -> None:
        self._state, self._combines = state, combines
        self.outputs = int(state[0].shape[1])

    def of(self, columns: Columns) -> Array:
        """One row per person, one column per score."""
        kind = PredictionBlock if self._combines == "predictions" else LinearBlock
        block = kind(columns, self.outputs, penalties.L2(0.0), intercept=False)
        block.restore(self._state)
        return block.scores(np.arange(columns.shape[0]), columns).reshape(-1, self.outputs)

    def check(self, secure: SecureSum, X: Any) -> None:
        """One value beyond the ring would end the line."""
        try:
            secure.ring.encode(self.of(columns_of(X)), secure.net.me)
        except RingOverflow as error:
            raise DataError(f"values far outside of what the model was trained on: {error}") from None

    async def scores(
        self, secure: SecureSum, columns: Columns | None, known: npt.NDArray[np.bool_], to: str
    ) -> Array | None:
        """Contributions, summed as in training; 0 for people that are unknown here."""
        own = np.zeros((len(known), self.outputs))
        if columns is not None:
            own[known] = self.of(columns)
        return await secure.total("prediction", own[:, 0] if self.outputs == 1 else own, to)


class NetworkScorer:
    """The same for a network."""

    def __init__(self, party: str, network: Any, state: tuple[Any, ...], outputs: int) -> None:
        how, _, self._shape, _ = network
        self._party, self._module, self.outputs = party, module_of(how, state, party, 0), outputs

    def of(self, columns: Columns) -> Array:
        """One row per person, one column per score."""
        block = NetworkBlock(self._module, value_of(columns), party=self._party, shape=self._shape)
        return block.scores(np.arange(columns.shape[0])).reshape(-1, block.outputs)

    def check(self, secure: SecureSum, X: Any) -> None:
        """One value beyond the ring, or NaN, would end the line."""
        try:
            secure.ring.encode(self.of(columns_of(X)), secure.net.me)
        except (RingOverflow, NotFinite):
            raise DataError("values far outside of what the model was trained on: the network has no score") from None

    async def scores(
        self, secure: SecureSum, columns: Columns | None, known: npt.NDArray[np.bool_], to: str
    ) -> Array | None:
        """Contributions, summed as in training; 0 for people that are unknown here."""
        own = np.zeros((len(known), self.outputs))
        if columns is not None:
            own[known] = self.of(columns)
        return await secure.total("prediction", own[:, 0] if self.outputs == 1 else own, to)


class FeatureScorer(KernelScorer):
    """The same for a kernel model."""

    def check(self, secure: SecureSum, X: Any) -> None:
        """A projection that has no phase is refused when it is made; these are finite, and that is enough."""
        data = X.data if hasattr(X, "indptr") else X
        if not np.isfinite(data).all():
            raise DataError("values far outside of what the model was trained on: they are not finite")


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
        ids = _ids(asked, terms.asker)
        X, known = await net.in_thread(lookup, ids)
        await net.send(terms.asker, "scoring", np.packbits(known))
        await scorer.scores(secure, None if X is None else columns_of(X), known, terms.asker)
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


class Asker:
    """The label holder's side."""

    def __init__(self, net: Net, terms: Terms, secure: SecureSum, scorer: Scorer) -> None:
        self._net, self._terms, self._secure, self._scorer = net, terms, secure, scorer

    @classmethod
    async def open(cls, net: Net, terms: Terms, scorer: Scorer) -> Asker:
        """Agree on keys."""
        return cls(net, terms, await open_sum(terms.sum, net, terms.topology), scorer)

    def check(self, X: Any) -> None:
        """Refuse rows that can't be scored, before anybody is asked."""
        self._scorer.check(self._secure, X)

    async def scores(self, ids: list[str], X: Any, here: npt.NDArray[np.bool_]) -> tuple[Array, npt.NDArray[np.bool_]]:
        """(scores, known): of people by id, known by all parties or not. X: the rows of those who are known here."""
        if X is not None:
            self.check(X)
        totals, everywhere = [], []
        places = np.cumsum(here)
        for at in range(0, len(ids), CHUNK):
            part = slice(at, at + CHUNK)
            first, last = places[at] - here[at], places[min(at + CHUNK, len(ids)) - 1]
            total, known = await self._some(ids[part], X[first:last] if last > first else None, here[part])
            totals.append(total)
            everywhere.append(known)
        return np.concatenate(totals), np.concatenate(everywhere)

    async def _some(self, ids: list[str], X: Any, here: npt.NDArray[np.bool_]) -> tuple[Array, npt.NDArray[np.bool_]]:
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
        columns = None if X is None else columns_of(X)
        return np.asarray(await self._scorer.scores(self._secure, columns, here, net.me)), known

    async def close(self) -> None:
        """Let the others go."""
        for name in self._net.names:
            if name != self._net.me:
                await self._net.send(name, "scoring", (_DONE,))
