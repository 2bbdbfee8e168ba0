"""A party's part of a trained model in use: what it adds to the scores of new rows, and how they come together.

First `ready`, which works out what this party will send and refuses what can't be sent; then `scores`, the exchange.
A party adds noise to the scores of people whom it does not know: their totals show nothing of what others added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.columns import Columns, DenseColumns, value_of
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.phases import Directions, Kernel, Layout, to_features
from colonnade.blocks.prediction import PredictionBlock
from colonnade.blocks.torch_modules import module_of
from colonnade.blocks.torch_network import NetworkBlock, NotFinite
from colonnade.crypto.ring import noise
from colonnade.errors import DataError, RingOverflow
from colonnade.objective import penalties
from colonnade.sums import SecureSum

Known = npt.NDArray[np.bool_]


class Scorer(Protocol):
    """One party's side."""

    most: int  # rows at a time
    outputs: int  # scores of a row

    def ready(self, secure: SecureSum, columns: Columns | None, rows: Rows, known: Known) -> Any:
        """What this party adds for some people; rows: where those that it knows are among its columns."""
        ...

    async def scores(self, secure: SecureSum, ready: Any, to: str) -> FloatArray | None:
        """The scores at one label holder, None elsewhere."""
        ...


class _SummedScorer(ABC):
    """Contributions, one row per person and one column per score, that are simply added up."""

    most = 1 << 14
    outputs: int

    @abstractmethod
    def of(self, columns: Columns, rows: Rows) -> FloatArray:
        """What this party adds, one row per person."""

    def ready(self, secure: SecureSum, columns: Columns | None, rows: Rows, known: Known) -> tuple[FloatArray, Known]:
        """Contributions, and which of them are none; what is beyond the ring, or no number, is refused."""
        own = np.zeros((len(known), self.outputs))
        try:
            if columns is not None:
                own[known] = self.of(columns, rows)
            secure.ring.encode(own, secure.net.me)
        except (RingOverflow, NotFinite) as error:
            why = str(error) or "the network has no score for them"
            raise DataError(
                f"scores that can't be summed: {why}; the values are far outside of what the model was trained on, or "
                f"its targets were too large: then train it on smaller ones, in thousands for example"
            ) from None
        return own[:, 0] if self.outputs == 1 else own, ~known

    async def scores(self, secure: SecureSum, ready: tuple[FloatArray, Known], to: str) -> FloatArray | None:
        """Summed as in training."""
        own, unknown = ready
        return await secure.total("prediction", own, to, hidden=unknown)


class LinearScorer(_SummedScorer):
    """x theta, or with FDML the prediction of the party's own model."""

    def __init__(self, state: tuple[Any, ...], combines: str) -> None:
        self._state, self._combines = state, combines
        self.outputs = int(state[0].shape[1])

    def of(self, columns: Columns, rows: Rows) -> FloatArray:
        """x theta."""
        kind = PredictionBlock if self._combines == "predictions" else LinearBlock
        block = kind(columns, self.outputs, penalties.L2(0.0), intercept=False)
        block.restore(self._state)
        return block.scores(rows, columns).reshape(-1, self.outputs)


class NetworkScorer(_SummedScorer):
    """h(x) of a party's network."""

    def __init__(self, party: str, network: Any, state: tuple[Any, ...], outputs: int) -> None:
        how, _, self._shape, _ = network
        self._party, self._module, self.outputs = party, module_of(how, state, party, 0), outputs

    def of(self, columns: Columns, rows: Rows) -> FloatArray:
        """h(x)."""
        block = NetworkBlock(self._module, value_of(columns), party=self._party, shape=self._shape)
        return block.scores(rows).reshape(-1, block.outputs)


class KernelScorer:
    """Phases to every owner of features, and a part of f where this party is one."""

    most = 1 << 11  # each of them is as many numbers as there are features
    outputs = 1

    def __init__(self, me: str, kernel: str, layout: Layout, state: tuple[Any, ...]) -> None:
        self._me, self._layout = me, layout
        self._values, secret, phase_secret, gamma = state
        self._secrets, self._kernel = (secret, phase_secret), Kernel(kernel, gamma)
        self._directions: Directions | None = None  # when it is known how many columns there are

    def ready(self, secure: SecureSum, columns: Columns | None, rows: Rows, known: Known) -> tuple[Any, ...]:
        """Phases for each owner; a projection that has none is refused."""
        found = []
        for index, owner in enumerate(self._layout.owners):
            mine = np.zeros((len(known), self._layout.of(owner)), dtype=np.uint32)
            mine[~known] = noise((int((~known).sum()), mine.shape[1]), np.uint32)
            if columns is not None:
                if self._directions is None:
                    self._directions = Directions(*self._secrets, self._kernel, columns.shape[1])
                for number in range(self._layout.blocks(owner)):
                    span = self._layout.span(owner, number)
                    width = span.stop - span.start
                    mine[known, span] = self._directions.project(columns, rows, (index, number), width)
            found.append(mine)
        return tuple(found)

    async def scores(self, secure: SecureSum, ready: tuple[Any, ...], to: str) -> FloatArray | None:
        """Algorithms 3 and 2 of FDSKL, and the sum of all owners' parts."""
        own = np.zeros(len(ready[0]))
        for owner, mine in zip(self._layout.owners, ready, strict=True):
            total = await secure.total_phases("phases", mine, owner)
            if total is not None:
                own = DenseColumns(to_features(total)).forward(np.arange(len(own)), self._values)[:, 0]
        if len(self._layout.owners) == 1:  # nobody else has a part of f
            return own if self._me == to else None
        return await secure.total("prediction", own, to)


async def score_rows(secure: SecureSum, scorer: Scorer, columns: Columns, to: str) -> FloatArray | None:
    """Scores of all rows, which every party knows, some at a time."""
    pieces = []
    for at in range(0, columns.shape[0], scorer.most):
        rows = np.arange(at, min(at + scorer.most, columns.shape[0]))
        ready = scorer.ready(secure, columns, rows, np.ones(len(rows), dtype=bool))
        found = await scorer.scores(secure, ready, to)
        if found is not None:
            pieces.append(found)
    return np.concatenate(pieces) if pieces else None
