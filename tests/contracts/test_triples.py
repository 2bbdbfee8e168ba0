"""What products of shared matrices by triples promise: exact, uniform on the way, used once, refused if malformed."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

import colonnade as cn
from colonnade.errors import ProtocolError
from colonnade.sealed import wide
from colonnade.sealed.channel import Channel
from colonnade.sealed.inverse import RESIDUAL_BITS, identity, refined, stretched, triples_for
from colonnade.sealed.triples import Wanted, asked, finished

ALMOST_NEVER = 1e-9
NAMES = ("bank", "shop")


def whole(values):
    """Words of 96 bits as Python's whole numbers, the upper half negative."""
    found = sum(values[..., i].astype(object) << 32 * i for i in range(3))
    return np.where(found >= 1 << 95, found - (1 << 96), found)


def shared(values, number=0):
    """Two shares of whole numbers."""
    half = np.random.default_rng(number).integers(0, 2**32, (*values.shape, 3), dtype=np.uint32)
    return {"bank": half, "shop": wide.subtract(wide.from_integers(values), half)}


def both(program, secret="rehearsal"):
    """Run a program at both holders; return what each has found."""

    async def run(net):
        channel = Channel(net, *NAMES)
        await channel.exchange_keys()
        return await program(channel)

    found = cn.Simulation(secret=secret).run(dict.fromkeys(NAMES, (run, ())))
    return {name: one.value for name, one in found.items()}


def added(found):
    return whole(wide.add(found["bank"], found["shop"]))


def integers(number, bits, *shape):
    return np.random.default_rng(number).integers(-(2**bits), 2**bits, shape)


def watched(monkeypatch, values, columns, square=False):
    """What is opened on the way to the product of a matrix with columns of others."""
    seen = []
    opened = Channel.opened

    async def opening(self, *args):
        seen.append(await opened(self, *args))
        return seen[-1]

    monkeypatch.setattr(Channel, "opened", opening)
    X, Y = shared(values, 1), shared(columns, 2)

    async def program(channel):
        (triple,) = await asked(channel, [Wanted(len(values), columns.shape[1], square)])
        await finished([triple])
        return (await triple.times("step", X[channel.me], 0, (Y[channel.me], 0)))[0]

    return both(program), seen


# -- the product -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "columns"), [(1, 1), (5, 3), (20, 41), (33, 1)])
def test_shares_add_up_to_the_product_and_to_the_square(size, columns):
    values, others = integers(1, 20, size, size), integers(2, 20, size, columns)
    X, Y = shared(values, 1), shared(others, 2)

    async def program(channel):
        (triple,) = await asked(channel, [Wanted(size, columns, square=True)])
        await finished([triple])
        (product,) = await triple.times("step", X[channel.me], 0, (Y[channel.me], 0))
        return product, triple.squared(0)

    found = both(program)
    for i, exact in enumerate((values @ others, values @ values)):
        off = added({name: one[i] for name, one in found.items()}) - exact
        assert np.abs(off.astype(float)).max() <= 4  # units of 2^-96 of the range


def test_one_matrix_times_several_parts_at_several_times():
    values = integers(1, 20, 6, 6)
    parts = [integers(2 + i, 20, 6, width) for i, width in enumerate((2, 1, 3))]
    X, shares = shared(values), [shared(part, 5 + i) for i, part in enumerate(parts)]
    spoken = []

    async def program(channel):
        (triple,) = await asked(channel, [Wanted(6, 6)])
        await finished([triple])
        one, two, three = (share[channel.me] for share in shares)
        found = await triple.times("step", X[channel.me], 3, (one, 4), (two, 0))
        before = channel.net.traffic.bytes
        found += await triple.times("step", X[channel.me], 0, (three, 8))
        spoken.append(channel.net.traffic.bytes - before)
        return tuple(found)

    found = both(program)
    for i, (part, shift) in enumerate(zip(parts, (4, 0, 8), strict=True)):
        exact = (values @ part) / 2**shift
        off = added({name: one[i] for name, one in found.items()}).astype(float) - exact
        assert np.abs(off).max() <= 4
    # The matrix is opened once: later only columns are told.
    assert all(6 * 3 * 12 <= size < 6 * 3 * 12 + 100 for size in spoken)


@pytest.mark.parametrize("doublings", [1, 2, 4, 5, 8, 12])
def test_terms_of_the_inverse(doublings):
    """Directions that are not flat are inverted, flat ones about as far as so many terms go, and none too far."""
    rng, bits = np.random.default_rng(doublings), RESIDUAL_BITS
    values = np.array([1.0, 0.9, 0.5, 3.0 / 2**doublings, 0.1 / 2**doublings, 0.0])
    turn = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    product = (turn * values) @ turn.T
    E, start = shared(np.rint((np.eye(6) - product) * 2.0**bits), 1), shared(np.rint(np.eye(6) * 2.0**36), 2)

    async def program(channel):
        triples = await asked(channel, triples_for(6, doublings, 6))
        await finished(triples)
        return await refined(E[channel.me], start[channel.me], doublings, triples)

    found = turn.T @ (added(both(program)).astype(float) / 2.0**36) @ turn
    stretch = found.diagonal() * values  # of M H along each direction
    assert stretch.max() < 1 + 1e-3
    assert stretch.min() > -1e-3
    exact = 1 - (1 - values) ** (2.0**doublings)
    np.testing.assert_allclose(stretch, exact, atol=0.12)
    if doublings >= 5:
        assert abs(stretch[:3] - 1).max() < 5e-3
        assert found[5, 5] > 0.65 * 2**doublings  # nothing is known of it but how many terms there are
    assert np.abs(found - np.diag(found.diagonal())).max() < 1e-3 * 2**doublings


def test_fewer_products_than_doublings():
    counts = [len(stretched(doublings)) for doublings in range(13)]
    assert counts[:4] == [0, 1, 2, 3]
    assert counts == sorted(counts)
    assert counts[12] == 8
    for doublings in range(13):
        steps = stretched(doublings)
        assert 0.7 * 2**doublings <= 3 ** sum(steps) * 2 ** (len(steps) - sum(steps))
        assert not any(steps[-2:])


# -- what each side sees -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 2**40])
def test_what_is_opened_is_uniform_whatever_is_multiplied(monkeypatch, size):
    found, seen = watched(monkeypatch, np.full((40, 40), size), np.full((40, 30), size))
    for values in (*seen, *found.values()):
        counts = np.bincount(np.frombuffer(values.tobytes(), np.uint8), minlength=256)
        assert values.nbytes > 10_000
        assert scipy.stats.chisquare(counts).pvalue > ALMOST_NEVER


def test_another_run_has_other_random_numbers(monkeypatch):
    async def program(channel):
        one, other = await asked(channel, [Wanted(9, 4), Wanted(9, 4)])
        await finished([one, other])
        return one.matrix, one.columns, other.matrix, other.columns

    runs = [both(program, secret) for secret in ("one", "two")]
    drawn = [values for run in runs for arrays in run.values() for values in arrays]
    for i, one in enumerate(drawn):
        for other in drawn[i + 1 :]:
            if one.shape == other.shape:
                assert (one != other).mean() > 0.99


# -- what is not in order ----------------------------------------------------------------------------------------------


def test_columns_are_used_once_and_a_matrix_for_itself_alone():
    X, Y, wrong = shared(integers(1, 9, 3, 3)), shared(integers(2, 9, 3, 2)), []

    async def program(channel):
        (triple,) = await asked(channel, [Wanted(3, 3)])
        await finished([triple])
        mine, part = X[channel.me], (Y[channel.me], 0)
        await triple.times("step", mine, 0, part)
        for matrix, start in ((mine, 0), (mine, 1), (mine, 2), (wide.negative(mine), 2)):
            with pytest.raises(ValueError, match=r"used once|one matrix"):
                await triple.times("step", matrix, start, part)
        with pytest.raises(ValueError, match="square"):
            triple.squared(0)
        wrong.append(channel.me)

    both(program)
    assert sorted(wrong) == ["bank", "shop"]


@pytest.mark.parametrize("kind", ["question", "answer", "difference"])
@pytest.mark.parametrize("forge", [lambda raw: raw[:-1], lambda raw: raw + b"\0", lambda raw: b"", lambda raw: 5])
def test_messages_of_other_lengths_are_refused(monkeypatch, kind, forge):
    send = Channel.send

    async def lying(self, to, sort, what, value):
        forged = self.is_first and sort == kind and what in ("triples", "step")
        await send(self, to, sort, what, forge(value) if forged else value)

    monkeypatch.setattr(Channel, "send", lying)
    with pytest.raises(ProtocolError, match=r"party 'bank' must send .* bytes at step 'sealed"):
        watched(monkeypatch, integers(1, 9, 3, 3), integers(2, 9, 3, 2))


def test_the_identity_is_the_first_holder_s():
    assert whole(identity(2, 5, first=True)).tolist() == [[32, 0], [0, 32]]
    assert not identity(2, 5, first=False).any()
