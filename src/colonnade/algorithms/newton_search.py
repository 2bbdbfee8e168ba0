"""A search among directions: by the one label holder alone, or by several together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from colonnade.blocks import FloatArray
from colonnade.blocks.subspace import WORTHWHILE, OwnColumns, Sight, minimise
from colonnade.runtimes.wire import expect_array

if TYPE_CHECKING:
    from colonnade.algorithms.newton_party import NewtonParty
    from colonnade.blocks.subspace import Held

# Where every look in a search is an exchange of its own, fewer of them are worth it.
_WORTH_ASKING = 0.1


class Search:
    """One party's side of a search."""

    def __init__(self, party: NewtonParty) -> None:
        self.party, self.session, self.net = party, party.session, party.net

    async def run(self) -> FloatArray:
        """The weights of the best point among all directions, at the leader; elsewhere a share in finding it."""
        party = self.party
        if party.leader is None:
            return await self._help()
        pull, bend = party.leader.pull, party.leader.bend(self.session.sum.narrow.grain, party.rows)
        if party.joins and party.held is not None:
            return await self._with_own_columns(party.held, pull, bend)

        async def look(x: FloatArray, whole: bool) -> Sight:
            total = self._share(x, whole=whole) if party.alone else await self._ask(x)
            m, bent = len(x), (bend * x).sum(axis=1)
            value = float(total[0] + (pull * x).sum() + 0.5 * (x * bent).sum())
            if party.alone and not whole:
                return Sight(value, np.zeros(0), np.zeros((0, 0)))
            return Sight(value, total[1 : 1 + m] + pull + bent, total[1 + m :].reshape(m, m) + bend)

        weights = await minimise(look, len(pull), WORTHWHILE if party.alone else _WORTH_ASKING)
        if not party.alone:
            await self.session.tell("trial", None)
        return weights

    async def _with_own_columns(self, held: Held, pull: FloatArray, bend: FloatArray) -> FloatArray:
        """All labels are here: own columns go where it is best for them at once."""
        party, own = self.party, self.party.own
        rows = party.chosen[0][1]
        search = OwnColumns(held, own, rows, pull, bend)
        x = await minimise(search.look, search.size)
        mine = x[: own.width]
        held.z = held.z + own.forward(rows, mine[:, None])[:, 0]
        if (part := self.session.validation) is not None and party.watched is not None:
            other = own.forward(part.owned[self.net.me], mine[:, None], part.columns)
            party.watched.z = party.watched.z + other[:, 0]
        own.add(mine)
        return x[own.width :]

    async def _ask(self, x: FloatArray) -> FloatArray:
        """All holders' shares at a point of the search: one more exchange, of a few numbers."""
        await self.session.tell("trial", x)
        total = await self.session.sum.total_wide("search", self._share(x, whole=True), self.net.me)
        self.net.traffic.round()
        return np.asarray(total)

    async def _help(self) -> FloatArray:
        """Take part in another's search, until it has ended."""
        leader, shape = self.session.leader, (self.party.directions.count,)
        while not self.party.alone and (told := await self.net.recv(leader, "trial")) is not None:
            x = expect_array(told, shape, np.float64, leader, "trial")
            await self.session.sum.total_wide("search", self._share(x, whole=True), leader)
            self.net.traffic.round()
        return np.zeros(0)

    def _share(self, x: FloatArray, *, whole: bool) -> FloatArray:
        held, m = self.party.held, len(x)
        return np.zeros(1 + m + m * m) if held is None else held.share(x, self.party.rows, whole=whole)
