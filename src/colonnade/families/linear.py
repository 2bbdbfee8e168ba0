"""A party's program, as a runtime starts it: from wire values to a session, and back."""

from __future__ import annotations

from typing import Any

from colonnade.algorithms import FDML, check_sum, from_value
from colonnade.blocks.columns import Needed, columns_from_value
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.prediction import MIXTURES, PredictionBlock
from colonnade.engine.allowance import Limit
from colonnade.engine.kept import Keeper
from colonnade.engine.parts import Agreement, Part
from colonnade.engine.session import Session
from colonnade.families.scorers import LinearScorer, score_rows
from colonnade.objective import losses, penalties
from colonnade.runtimes.net import Net
from colonnade.sums import open_sum


async def train_linear(net: Net, job: Any, mine: Any, keeper: Keeper | None = None, budget: Limit | None = None) -> Any:
    """Train a linear model, or with FDML one per party; returns this party's parameters and nothing else.

    keeper: where this party keeps its state, if the run shall be able to go on after a break; then all have one.
    budget: how many numbers about each row may leave this party, between organisations; then all have one.
    """
    loss, outputs, penalty, holders, sum_name, topology, algorithm, intercept_owner, *key_bits = job
    X, y, labelled, validation = mine
    whole = columns_from_value(X)
    needed = Needed(whole, every=algorithm[0] == FDML.name)  # whose weights go by the number of columns
    columns = needed.of(whole)
    method, minimised = from_value(algorithm), losses.loss(loss)
    check_sum(sum_name, method)  # again: here is where a signal would leave in the clear
    linear = (columns, outputs, penalties.penalty(*penalty))
    if isinstance(method, FDML):
        # Every party's model is whole: with an intercept of its own, if there is any.
        block: LinearBlock = PredictionBlock(*linear, intercept_owner != "")
        minimised = MIXTURES[loss]
    else:
        block = LinearBlock(*linear, intercept_owner == net.me)
    if block.intercept is not None and y is not None:
        block.intercept[:] = minimised.start(y[labelled])
    train = Part(None, columns.shape[0], y, labelled)
    held_out = None
    if validation is not None:
        other = needed.of(columns_from_value(validation[0]))
        held_out = Part(other, other.shape[0], *validation[1:])
    agreed = Agreement(minimised, holders, sum_name, topology, *key_bits)
    session = await Session.open(net, agreed, block, method, train, held_out, keeper, budget)
    await method.train(session)
    theta, *rest = session.finish()
    return (needed.spread(theta), *rest)


async def score_linear(net: Net, job: Any, mine: Any) -> Any:
    """What the parties' contributions for new rows add up to, at the first label holder; the others return None."""
    leader, sum_name, topology, combines = job
    X, state = mine
    columns = columns_from_value(X)
    secure = await open_sum(sum_name, net, topology)
    return await score_rows(secure, LinearScorer(state, combines), columns, leader)
