"""One party's program for the statistics of a trained linear model.

Every party ends with the standard errors of its own coefficients, the first label holder also with how well the model
fits. The steps are:

1. evaluation      scores of all rows go to their label holders, summed as in training
2. curvatures      of every row's loss at these scores go to everybody
3. correlations    of white, rotated columns come together at the first label holder (`inference.correlations`)
4. inverse block   of their matrix goes back to its owner, who turns it into the covariance of its own coefficients
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np

from colonnade.algorithms.fedbcd import FedSGD
from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.information import Joint, OwnInformation
from colonnade.blocks.linear import LinearBlock
from colonnade.blocks.newton import NewtonBlock
from colonnade.engine.allowance import Limit
from colonnade.engine.exchange import Agreement, Part
from colonnade.engine.session import CHUNK, Session
from colonnade.engine.weighing import weigh
from colonnade.errors import DataError, OptionError, ProtocolError
from colonnade.inference import EVEN
from colonnade.inference.correlations import Correlations
from colonnade.inference.statistics import Fit
from colonnade.objective import losses, metrics, penalties
from colonnade.objective.metrics import (
    aic,
    deviance,
    estimates_dispersion,
    null_score,
    pearson,
    target,
    unnormalised,
)
from colonnade.objective.offset import best_constant
from colonnade.objective.ranking import ranking
from colonnade.objective.weighted import Weighted, amount_of, labels_of, plain, weighed, weights_of
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array
from colonnade.streams.streamed_columns import opened
from colonnade.sums import open_sum

# All parties' columns together: the first label holder inverts a matrix of that size, and time grows with its square.
MOST_COLUMNS = 512
MOST_ROWS = 20_000  # rows that correlations come from, unless told otherwise
SEALED = "encrypted"
# Where no row's curvature is above this, all scores are as good as infinite.
_FLAT = 1e-10


async def infer_linear(net: Net, job: Any, mine: Any, budget: Limit | None = None) -> Any:
    """Compute the statistics of a trained linear model, as one party.

    The columns must be those that the model was trained on, and all parties' together fewer than the rows.

    Parameters
    ----------
    net
        The party's view of the federation.
    job
        What all parties agree on: loss, penalty, label holders, sum, topology, how products are sealed, how many
        rows correlations come from, and whether rows have weights.
    mine
        This party's columns, parameters, labels, which rows have one, and how much they count, or None.
    budget
        Numbers about rows that may still leave this party; the scores are one number about each row.

    Returns
    -------
    tuple
        The covariance of this party's own coefficients (the intercept's last), the degrees of freedom, and at the
        first label holder how well the model fits.
    """
    name, penalty, holders, sum_name, topology, sealing, most, weighted = job
    X, state, y, labelled, weights = mine
    loss = Weighted(losses.loss(name)) if weighted else losses.loss(name)
    columns = opened(X)
    block = LinearBlock(columns, 1, penalties.penalty(*penalty), intercept=False)
    block.restore(tuple(state[:2]))
    agreed = Agreement(loss, holders, sum_name, topology)
    train = Part(None, columns.shape[0], y, labelled, weights)
    secure = await open_sum(sum_name, net, topology)
    session = Session(net, agreed, block, FedSGD(), train, None, secure, budget=budget)
    await session.share_out(train)
    if weighted:
        await weigh(net, secure, holders, sum_name, train)
    await session.allowance.agree(net, session.leader, session.others, 1.0, "a computation of statistics")
    party = _Party(session, block)
    await party.score()
    if sealing != SEALED:  # a rehearsal makes no keys, and ends here
        raise OptionError(f"correlations leave a party under {SEALED!r} only, got {sealing!r}")
    return await party.infer(min(most, train.rows))


class _Party:
    """One party's side of the computation."""

    def __init__(self, session: Session, block: LinearBlock) -> None:
        self.session, self.net, self.block = session, session.net, block
        self.loss, self.part = session.job.loss, session.train
        self.weighted = isinstance(self.loss, Weighted)
        self.leads = session.net.me == session.leader
        self.z = self.y = np.zeros(0)  # of the rows that this label holder owns
        self.offset: FloatArray | float = 0.0  # of the same rows, and a part of z
        self.curvature = np.ones(session.train.rows)

    # -- scores -------------------------------------------------------------------------------------------------

    async def score(self) -> None:
        """Bring scores to the label holders, and the curvature of all rows to everybody."""
        session, part = self.session, self.part
        await self.net.work(self.block.touched(np.arange(part.rows)), "forward")
        for holder, rows in part.owned.items():
            z = await session.scores_of(part, rows, holder)
            if z is not None and part.y is not None:
                self.z, self.y = z, part.y[rows]
                known, weights = labels_of(self.y), weights_of(self.y)
                if known.ndim == 2:
                    self.offset, self.z = known[:, 1], z + known[:, 1]
                    self.y = known[:, 0] if weights is None else weighed(known[:, 0], weights)
        self.net.traffic.round()
        if self.loss.name in EVEN and not self.weighted:  # the curvature is 1 everywhere, as all know
            return
        for holder, rows in part.owned.items():
            for portion in np.array_split(np.arange(len(rows)), -(-len(rows) // CHUNK) or 1):
                if holder == self.net.me:
                    c = self.loss.information(self.z[portion], self.y[portion])
                    await session.tell("curvatures", c)
                else:
                    told = await session.hear(holder, "curvatures")
                    c = expect_array(told, (len(portion),), np.float64, holder, "curvatures")
                    if not (np.isfinite(c).all() and (c >= 0.0).all()):
                        raise ProtocolError(f"party {holder!r} must tell finite numbers >= 0 at step 'curvatures'")
                self.curvature[rows[portion]] = c

    # -- the information ----------------------------------------------------------------------------------------

    async def infer(self, most: int) -> Any:
        """Return what the program returns, from the scores that `score` brought."""
        session, net = self.session, self.net
        if not self.curvature.max() > _FLAT:
            why = (
                "all counts are 0, so that the intercept falls without end and nothing says how sure coefficients are; "
                "give rows with other counts"
                if self.loss.log_link
                else "the model fits every row to the letter, as coefficients grow without end where classes are "
                "separated, so that nothing says how sure they are; train it with l2 > 0"
            )
            raise DataError(why)
        own = NewtonBlock(self.block)
        sizes = await self._sizes(own.width, most)
        order = (session.leader, *(name for name in net.names if name != session.leader))
        sample = sampled(self.part.rows, most)
        information = await net.in_thread(OwnInformation, own, self.curvature, sample)
        # Where a party's own columns depend on each other it has fewer directions, so sizes are told anew.
        sizes = await self._sizes(information.size, most)
        # A direction that does not show in a sample of rows is a coefficient all the same.
        ranks = sizes if len(sample) == self.part.rows else await self._sizes(information.rank, most)
        parameters = sum(ranks.values())
        sizes = {name: max(1, size) for name, size in sizes.items()}  # a party without any sends a column of zeros
        found = await Correlations(session, order, sizes, len(sample)).matrix(information.columns())
        joint = None
        if found is not None:
            joint = Joint.of(found)
            if joint is None:
                raise ProtocolError("the products of some party's columns are none; check that all run the same job")
        distance = information.distance(self._gradient(own)) if self._knows_all else math.nan
        found_fit = await self._fit(parameters - (0 if joint is None else joint.free.shape[1]), distance)
        fit, counted = (None, 1.0) if found_fit is None else found_fit
        inverse, free, dispersion, df = await self._own_part(joint, order, sizes, fit, counted)
        net.traffic.round()
        covariance = dispersion * information.covariance(inverse, free)
        return covariance, df, None if fit is None else fit.as_value()

    @property
    def _knows_all(self) -> bool:
        """Whether this party has the score and label of every row."""
        return len(self.y) == self.part.rows

    def _gradient(self, own: NewtonBlock) -> FloatArray:
        """Return the gradient of the objective (a sum over all rows) by this party's own coefficients."""
        signal = self.loss.signal(self.z, self.y)
        return self.part.rows * own.gradient([(np.arange(self.part.rows), signal)], self.part.rows)[:, 0]

    async def _sizes(self, mine: int, rows: int) -> dict[str, int]:
        """Tell and hear how many columns everybody has; all refuse where these are too many."""
        found = {self.net.me: mine}
        await self.session.tell_each("block size", mine)
        for name in self.session.others:
            told = await self.net.recv(name, "block size")
            if type(told) is not int or told < 0:
                raise ProtocolError(f"party {name!r} must tell a number of columns at step 'block size'")
            found[name] = told
        check_sizes(sum(found.values()), rows)
        return found

    async def _own_part(
        self, joint: Joint | None, order: tuple[str, ...], sizes: dict[str, int], fit: Fit | None, counted: float
    ) -> tuple[FloatArray, FloatArray, float, int]:
        """Return this party's block of the inverse and of the free directions, dispersion and degrees of freedom.

        counted: the part of the rows that count at all. Products are over all rows, whose weights have a mean of 1.
        """
        if joint is None or fit is None:
            size, leader = sizes[self.net.me], self.session.leader
            told = await self.net.recv(leader, "inverse block")
            if type(told) is not tuple or [type(one) for one in told[2:]] != [float, int]:
                raise ProtocolError(f"party {leader!r} must tell two blocks and two numbers at step 'inverse block'")
            inverse = expect_array(told[0], (size, size), np.float64, leader, "inverse block")
            return inverse, expect_array(told[1], (size, None), np.float64, leader, "inverse block"), *told[2:]
        at, mine = 0, None
        for name in order:
            part = slice(at, at + sizes[name])
            blocks = joint.inverse[part, part].copy(), joint.free[part].copy(), fit.dispersion / counted, fit.df
            at = part.stop
            if name == self.net.me:
                mine = blocks
            else:
                await self.net.send(name, "inverse block", blocks)
        return cast("tuple[FloatArray, FloatArray, float, int]", mine)

    # -- the fit ------------------------------------------------------------------------------------------------

    async def _fit(self, parameters: int, distance: float) -> tuple[Fit, float] | None:
        """Return how well the model fits all rows, and the part of them that count; None but at the first holder."""
        loss, rows, null = self.loss, self.part.rows, 0.0
        weights, aims = weights_of(self.y), target(loss, labels_of(self.y))
        means = await self._totals([float((aims if weights is None else aims * weights).sum()) / rows])
        if means is not None:
            # Without an intercept the null model is the one whose scores are all 0, as in R.
            null = self._null_score(means[0]) if self.block.intercept is not None else 0.0
            for name in self.session.job.holders[1:]:
                await self.net.send(name, "null score", float(null))
        elif self.net.me in self.session.job.holders:
            null = await self.net.recv(self.session.leader, "null score")
            if type(null) is not float or not math.isfinite(null):
                raise ProtocolError(f"party {self.session.leader!r} must tell a finite number at step 'null score'")
        mine = [
            deviance(loss, self.z, self.y),
            deviance(loss, null + self.offset + np.zeros(len(self.z)), self.y),
            unnormalised(loss, self.z, self.y),
            pearson(loss, self.z, self.y),
            *self._apart(),
            *_logarithms(weights, len(self.y)),
        ]
        totals = await self._totals(mine)
        if totals is None:
            return None
        *told, auc, ks, weight, count, logs = totals
        # As if rows without weight were not there, and the weights of the others had a mean of 1.
        counted, rows = count / rows, round(count)
        far, null_far, total, squares = (counted * one for one in told)
        logs += count * math.log(counted)
        auc, ks = (auc / weight, ks / weight) if weight else (math.nan, math.nan)
        left = far if loss.kind == "real" else squares
        dispersion = left / (rows - parameters) if estimates_dispersion(loss) else 1.0
        criterion, distance = aic(loss, total, rows, parameters, far), distance / math.sqrt(dispersion or 1.0)
        criterion -= logs if loss.kind == "real" else 0.0
        return Fit(far, null_far, criterion, auc, ks, rows, parameters, dispersion, distance), counted

    def _null_score(self, mean: float) -> float:
        """Return the intercept of a model of nothing else but it, and of offsets, which one label holder has."""
        if isinstance(self.offset, float):
            return null_score(self.loss, mean)
        return best_constant(plain(self.loss), labels_of(self.y), self.offset, weights_of(self.y))

    def _apart(self) -> tuple[float, float, float]:
        """Return AUC and KS of this holder's own rows times their weight, and the weight.

        Metrics over the rows of two holders would take scores from one of them to the other.
        """
        weights, y = weights_of(self.y), labels_of(self.y)
        if self.loss.kind != "binary" or len(np.unique(y if weights is None else y[weights > 0.0])) < 2:
            return 0.0, 0.0, 0.0
        weight = amount_of(self.y) / self.part.rows
        if weights is None:
            return weight * metrics.auc(y, self.z), weight * metrics.ks(y, self.z), weight
        found = ranking((y > 0).astype(np.int64), self.z, weights)
        return weight * found.auc, weight * found.ks[0], weight

    async def _totals(self, mine: list[float]) -> list[float] | None:
        """Return sums over all label holders at the first of them, None elsewhere; a single one needs nobody else."""
        if len(self.session.job.holders) == 1:
            return mine if self.leads else None
        found = await self.session.sum.total_wide("objective", np.array(mine), self.session.leader)
        return None if found is None else found.tolist()


def _logarithms(weights: FloatArray | None, rows: int) -> tuple[float, float]:
    """Return how many of the rows count, and the sum of their weights' logarithms."""
    if weights is None:
        return float(rows), 0.0
    known = weights[weights > 0.0]
    return float(len(known)), float(np.log(known).sum())


def sampled(rows: int, most: int) -> Rows:
    """Return the rows that correlations are made of: all of them, or a sample that every party draws alike."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng([rows, most]).choice(rows, most, replace=False))


def check_sizes(columns: int, rows: int) -> None:
    """Refuse so many columns that statistics would take too long, or that the rows would not determine them."""
    if columns > MOST_COLUMNS:
        raise DataError(
            f"the parties have {columns} columns together (with the intercept), statistics take {MOST_COLUMNS} at "
            f"most; train a model of fewer columns"
        )
    if columns >= rows:
        raise DataError(
            f"the parties have {columns} columns together (with the intercept) and statistics would use {rows} rows; "
            f"give more rows than columns"
        )
