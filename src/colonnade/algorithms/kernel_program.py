"""A party's program of kernel learning, as a runtime starts it: from wire values to a session, and back."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from colonnade import losses
from colonnade.algorithms.fdskl import FDSKL, Exchange, KernelSession
from colonnade.algorithms.kept import Keeper
from colonnade.algorithms.parts import Job, Part
from colonnade.blocks import Block, FloatArray, Rows
from colonnade.blocks.coefficients import Coefficients
from colonnade.blocks.columns import Columns, DenseColumns, columns_from_value
from colonnade.blocks.phases import Directions, Kernel, Layout, new_secret, shared_secret, to_features
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import Net
from colonnade.sums import SecureSum, open_sum

_CHUNK = 2048  # rows that are scored at a time
_MOMENTS = 1 << 14  # rows whose moments are added up at a time


async def train_kernel(net: Net, job: Any, mine: Any, keeper: Keeper | None = None) -> Any:
    """Train; returns (coefficients or None, secret of the directions, secret of the phases, gamma).

    mine: columns, labels, which rows have one, validation data, and a secret for directions; without one the party
    draws its own. keeper: where this party keeps its state, if the run shall be able to go on after a break.
    """
    loss, (kernel, gamma), features, alpha, holders, sum_name, topology, options = job
    X, y, labelled, validation, given = mine
    method = FDSKL(**dict(options[1]))
    columns = columns_from_value(X)
    parts = [columns] if validation is None else [columns, columns_from_value(validation[0])]
    secure = await open_sum(sum_name, net, topology)
    width = await agree_on_gamma(net, secure, holders[0], columns) if gamma == "scale" else float(gamma)
    layout = Layout(holders, features, min(method.block, features))
    own = given or new_secret()
    secret = own if method.directions == "private" else shared_secret(method.seed, net.me)
    directions = Directions(secret, own, Kernel(kernel, width), columns.shape[1])
    budget = method.cache_mb * 1_000_000
    exchange = Exchange(net, secure, layout, directions, parts, budget)
    block = Coefficients(columns.shape[0], layout, net.me, alpha)
    train = Part(None, columns.shape[0], y, labelled)
    held_out = None if validation is None else Part(None, parts[1].shape[0], *validation[1:])
    agreed = Job(losses.loss(loss), holders, sum_name, topology)
    # A kernel session never asks its block for contributions: those need an exchange.
    asked = cast("Block", block)
    session = KernelSession(net, agreed, asked, method, train, held_out, secure, keeper, exchange=exchange)
    await session.agree()
    await method.train(session)
    (values,) = session.finish()
    # not those from above, where the run goes on from what was kept
    return (values if block.width else None, directions.secret, directions.phase_secret, width)


async def agree_on_gamma(net: Net, secure: SecureSum, leader: str, columns: Columns) -> float:
    """gamma="scale": 1 / (columns * variance of all numbers), as scikit-learn has it; only the sums are told."""
    total = await secure.total_wide("kernel scale", moments(columns), leader)
    if total is None:
        told = await net.recv(leader, "gamma")
        if type(told) is not float or not told > 0:
            raise ProtocolError(f"party {leader!r} must tell gamma as a number > 0 at step 'gamma'")
        return told
    width, first, second = (float(value) for value in total)
    variance = second - first * first / width
    gamma = 1.0 / max(variance, 1e-12)  # the sums are means over rows: width * variance of a number
    for name in net.names:
        if name != net.me:
            await net.send(name, "gamma", gamma)
    return gamma


def moments(columns: Columns) -> FloatArray:
    """(columns, sum of a row's numbers, sum of their squares), the latter two as means over the rows."""
    n, d = columns.shape
    ones, sums = np.ones((d, 1)), 0.0
    for at in range(0, n, _MOMENTS):
        sums += float(columns.forward(np.arange(at, min(at + _MOMENTS, n)), ones).sum())
    return np.array([float(d), sums / n, columns.mean_square()])


class KernelScorer:
    """One party's side of f for new rows: phases to every owner of features, its own part of f if it is one."""

    def __init__(self, me: str, kernel: str, layout: Layout, state: Any) -> None:
        self._me, self._layout = me, layout
        self._values, secret, phase_secret, gamma = state
        self._secrets, self._kernel = (secret, phase_secret), Kernel(kernel, gamma)
        self._directions: Directions | None = None  # when it is known how many columns there are

    async def scores(
        self, secure: SecureSum, columns: Columns | None, known: npt.NDArray[np.bool_], to: str
    ) -> FloatArray | None:
        """f of some rows at one label holder. Rows that this party does not know are not among its columns."""
        places, pieces = np.cumsum(known) - 1, []
        for at in range(0, len(known), _CHUNK):
            here = known[at : at + _CHUNK]
            own = await self._own(secure, columns, places[at : at + _CHUNK][here], here)
            alone = len(self._layout.owners) == 1  # nobody else has a part of f
            total = own if alone else await secure.total("prediction", own, to)
            if self._me == to and total is not None:
                pieces.append(total)
        return np.concatenate(pieces) if pieces else None

    async def _own(
        self, secure: SecureSum, columns: Columns | None, rows: Rows, here: npt.NDArray[np.bool_]
    ) -> FloatArray:
        found = np.zeros(len(here))
        for index, owner in enumerate(self._layout.owners):
            mine = np.zeros((len(here), self._layout.of(owner)), dtype=np.uint32)
            if columns is not None and len(rows):
                if self._directions is None:
                    self._directions = Directions(*self._secrets, self._kernel, columns.shape[1])
                for number in range(self._layout.blocks(owner)):
                    span = self._layout.span(owner, number)
                    width = span.stop - span.start
                    mine[here, span] = self._directions.project(columns, rows, (index, number), width)
            total = await secure.total_phases("phases", mine, owner)
            if total is not None:
                found = DenseColumns(to_features(total)).forward(np.arange(len(here)), self._values)[:, 0]
        return found


async def score_kernel(net: Net, job: Any, mine: Any) -> Any:
    """f of new rows at the first label holder; the others return None."""
    kernel, features, holders, sum_name, topology, block = job
    X, state = mine
    columns = columns_from_value(X)
    secure = await open_sum(sum_name, net, topology)
    scorer = KernelScorer(net.me, kernel, Layout(holders, features, min(block, features)), state)
    return await scorer.scores(secure, columns, np.ones(columns.shape[0], dtype=bool), holders[0])
