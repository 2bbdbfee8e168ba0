"""The best point among all directions: one label holder finds it alone, several together."""

from __future__ import annotations

import numpy as np

from colonnade.blocks import FloatArray
from colonnade.blocks.newton import NewtonBlock
from colonnade.blocks.subspace import WORTHWHILE, Held, OwnColumns, Sight, minimise
from colonnade.newton.leader import Leader
from colonnade.newton.rows_in_use import RowsInUse
from colonnade.runtimes.wire import expect_array

# Where every look in a search is an exchange of its own, fewer of them are worth it.
_WORTH_ASKING = 0.1


class Search:
    """One party's side of all searches of a run.

    Parameters
    ----------
    used
        The rows that are used.
    own
        This party's parameters.
    leader
        What decides, at the leader; None elsewhere.
    """

    def __init__(self, used: RowsInUse, own: NewtonBlock, leader: Leader | None) -> None:
        self.used, self.own, self.leader = used, own, leader
        self.session, self.net = used.session, used.session.net

    async def run(self, directions: int, *, joins: bool) -> FloatArray:
        """The weights of the best point among so many directions, at the leader; elsewhere a share in finding it.

        joins: whether all columns of the leader take part. They then go to their best point themselves.
        """
        used = self.used
        if self.leader is None:
            return await self._help(directions)
        pull, bend = self.leader.pull, self.leader.bend(self.session.sum.narrow.grain, used.count)
        if joins and used.held is not None:
            return await self._with_own_columns(used.held, pull, bend)

        async def look(x: FloatArray, whole: bool) -> Sight:
            total = self._share(x, whole=whole) if used.alone else await self._ask(x)
            m, bent = len(x), (bend * x).sum(axis=1)
            value = float(total[0] + (pull * x).sum() + 0.5 * (x * bent).sum())
            if used.alone and not whole:
                return Sight(value, np.zeros(0), np.zeros((0, 0)))
            return Sight(value, total[1 : 1 + m] + pull + bent, total[1 + m :].reshape(m, m) + bend)

        weights = await minimise(look, len(pull), WORTHWHILE if used.alone else _WORTH_ASKING)
        if not used.alone:
            await self.session.tell("trial", None)
        return weights

    async def _with_own_columns(self, held: Held, pull: FloatArray, bend: FloatArray) -> FloatArray:
        """All labels are here: own columns go where it is best for them at once, and training rows with everything."""
        own, used = self.own, self.used
        search = OwnColumns(held, own, used.chosen[0][1], pull, bend)
        x = await minimise(search.look, search.size)
        await search.go(x)
        mine = x[: own.width]
        if (part := self.session.validation) is not None and used.watched is not None:
            other = own.forward(part.owned[self.net.me], mine[:, None], part.columns)
            used.watched.z = used.watched.z + other[:, 0]
        own.add(mine)
        return x[own.width :]

    async def _ask(self, x: FloatArray) -> FloatArray:
        """All holders' shares at a point of the search: one more exchange, of a few numbers."""
        await self.session.tell("trial", x)
        total = await self.session.sum.total_wide("search", self._share(x, whole=True), self.net.me)
        self.net.traffic.round()
        return np.asarray(total)

    async def _help(self, directions: int) -> FloatArray:
        """Take part in another's search, until it has ended."""
        leader, shape = self.session.leader, (directions,)
        while not self.used.alone and (told := await self.session.hear(leader, "trial")) is not None:
            x = expect_array(told, shape, np.float64, leader, "trial")
            await self.session.sum.total_wide("search", self._share(x, whole=True), leader)
            self.net.traffic.round()
        return np.zeros(0)

    def _share(self, x: FloatArray, *, whole: bool) -> FloatArray:
        held, m = self.used.held, len(x)
        return np.zeros(1 + m + m * m) if held is None else held.share(x, self.used.count, whole=whole)
