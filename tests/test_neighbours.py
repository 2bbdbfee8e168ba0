"""Masks with sixteen neighbours: the same sums, as much work however many parties there are, and what fifteen learn."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

import colonnade as cn
from colonnade.crypto.masks import MaskStream
from colonnade.sums import masked, open_sum
from colonnade.sums.masked import NEIGHBOURS, neighbours
from contracts.sum_programs import Recording, honest_mask, parties, reference_sum, run_sums


def connected(names, graph):
    """Whether all of these reach each other by edges between them."""
    seen, ahead = set(), list(names)[:1]
    while ahead:
        name = ahead.pop()
        seen.add(name)
        ahead += [other for other in graph[name] if other in names and other not in seen]
    return seen == set(names)


@pytest.mark.parametrize(("n", "count"), [(9, 2), (9, 4), (10, 4), (11, 6), (12, 6)])
def test_fewer_than_all_neighbours_part_nobody(n, count):
    names = parties(n)
    graph = {name: neighbours(names, name, count) for name in names}
    assert all(one in graph[other] for one in names for other in graph[one])
    for gone in combinations(names, count - 1):
        assert connected(set(names) - set(gone), graph)
    assert not all(connected(set(names) - set(gone), graph) for gone in combinations(names, count))


@pytest.mark.parametrize("n", [1, 2, 3, 17, 18, 19, 64])
def test_everybody_has_sixteen_neighbours_or_all(n):
    names = parties(n)
    for name in names:
        found = neighbours(names, name)
        assert len(found) == min(NEIGHBOURS, n - 1)
        assert name not in found
        assert found == [other for other in names if other in found]


@pytest.mark.parametrize("topology", ["tree", "ring"])
def test_sums_are_the_same(topology):
    rng = np.random.default_rng(0)
    values = [[rng.normal(size=(5, 2)) for _ in range(40)] for _ in range(3)]
    found = run_sums("neighbours", topology, ["p0", "p39", "p0"], values)
    for k, root in enumerate(["p0", "p39", "p0"]):
        assert found[root][k].tobytes() == reference_sum(values[k]).tobytes()


def sums_of(n, rounds, made):
    """What p0 received in a star from each of n parties, whose parts are a fixed small vector; and the open sums."""
    opened, received = {}, []

    def mask(self, values, root, serial, *, negative=False):
        found = honest_mask(self, root, serial, values.shape, values.dtype)
        made.setdefault(self, []).append(-found if negative else found)
        values += made[self][-1]

    async def program(net):
        opened[net.me] = await open_sum("neighbours", net, "star")
        for _ in range(rounds):
            await opened[net.me].total("scores", np.ones(300), "p0")

    async def root(net):
        await program(Recording(net, received))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaskStream, "add_to", mask)
        patch.setattr(masked, "_BLOCK", 0)
        cn.Simulation().run({name: (root if name == "p0" else program, ()) for name in parties(n)})
    messages = {name: [value for frm, tag, value in received if (frm, tag) == (name, "scores")] for name in opened}
    return messages, opened


def test_fifteen_of_its_neighbours_do_not_read_a_party_and_all_sixteen_do():
    made, n, victim = {}, 30, "p5"
    messages, opened = sums_of(n, 2, made)
    streams = [stream for _, stream in opened[victim]._shared]  # in the order of its neighbours
    assert len(streams) == NEIGHBOURS
    assert "p0" in neighbours(parties(n), victim)  # the root, which gets its message
    for k, message in enumerate(messages[victim]):
        known = sum(made[stream][k] for stream in streams[:-1])
        left = (message - known).view(np.int64) / 2.0**36
        assert np.median(np.abs(left)) > 2.0**20  # as far away as uniform numbers are
        bare = message - known - made[streams[-1]][k]
        assert np.array_equal(bare.view(np.int64) / 2.0**36, np.ones(300))


def test_a_party_makes_as_many_masks_and_sends_as_many_keys_however_many_there_are():
    for n in (18, 40):
        made = {}
        _, opened = sums_of(n, 1, made)
        assert len(made) == n * NEIGHBOURS
        assert all(sum_.net.traffic.by_step["public key"][0] == NEIGHBOURS for sum_ in opened.values())


def test_models_have_the_same_bits():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((120, 40))
    y = (X.sum(axis=1) + rng.logistic(size=120) > 0).astype(int)
    two = [
        cn.LogisticRegression(sum=name, algorithm=cn.FedSGD(epochs=2, batch=60, tol=None), verbose=0).fit(
            *cn.split(X, y, into=20)
        )
        for name in ("pairwise", "neighbours")
    ]
    assert two[0].protection_ == two[1].protection_ == "masked"
    for name, own in two[0].coef_.items():
        assert own.tobytes() == two[1].coef_[name].tobytes()
