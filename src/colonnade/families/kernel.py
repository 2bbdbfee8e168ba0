"""A party's program of kernel learning, as a runtime starts it: from wire values to a session, and back."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from colonnade.algorithms.fdskl import FDSKL, Exchange, KernelSession
from colonnade.blocks import Block, FloatArray
from colonnade.blocks.coefficients import KernelBlock
from colonnade.blocks.columns import Columns, columns_from_value
from colonnade.blocks.phases import Directions, Kernel, Layout, shared_secret
from colonnade.engine.allowance import Limit
from colonnade.engine.kept import Keeper
from colonnade.engine.parts import Agreement, Part
from colonnade.errors import ProtocolError
from colonnade.families.scorers import KernelScorer, score_rows
from colonnade.objective import losses
from colonnade.runtimes.net import Net
from colonnade.sums import SecureSum, open_sum

_MOMENTS = 1 << 14  # rows whose moments are added up at a time


async def train_kernel(net: Net, job: Any, mine: Any, keeper: Keeper | None = None, budget: Limit | None = None) -> Any:
    """Train; returns (coefficients or None, secret of the directions, secret of the phases, gamma).

    mine: columns, labels, which rows have one, and validation data. keeper, budget: as in `program.train_linear`.
    """
    loss, (kernel, gamma), features, alpha, holders, sum_name, topology, options = job
    X, y, labelled, validation = mine
    method = FDSKL(**dict(options[1]))
    columns = columns_from_value(X)
    parts = [columns] if validation is None else [columns, columns_from_value(validation[0])]
    secure = await open_sum(sum_name, net, topology)
    width = await agree_on_gamma(net, secure, holders[0], columns) if gamma == "scale" else float(gamma)
    layout = Layout(holders, features, min(method.block, features))
    own = net.secret(f"directions {method.seed}")
    secret = own if method.directions == "private" else shared_secret(method.seed, net.me)
    directions = Directions(secret, own, Kernel(kernel, width), columns.shape[1])
    exchange = Exchange(net, secure, layout, directions, parts, method.cache_mb * 1_000_000)
    block = KernelBlock(columns.shape[0], layout, net.me, alpha)
    train = Part(None, columns.shape[0], y, labelled)
    held_out = None if validation is None else Part(None, parts[1].shape[0], *validation[1:])
    agreed = Agreement(losses.loss(loss), holders, sum_name, topology)
    # A kernel session never asks its block for contributions: those need an exchange.
    asked = cast("Block", block)
    session = KernelSession(
        net, agreed, asked, method, train, held_out, secure, keeper, budget=budget, exchange=exchange
    )
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


async def score_kernel(net: Net, job: Any, mine: Any) -> Any:
    """f of new rows at the first label holder; the others return None."""
    kernel, features, holders, sum_name, topology, block = job
    X, state = mine
    columns = columns_from_value(X)
    secure = await open_sum(sum_name, net, topology)
    scorer = KernelScorer(net.me, kernel, Layout(holders, features, min(block, features)), state)
    return await score_rows(secure, scorer, columns, holders[0])
