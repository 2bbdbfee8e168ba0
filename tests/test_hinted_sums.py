"""Sums over cells under a masked hint: as exact and as noisy as promised, and refused where they would tell more."""

from __future__ import annotations

import copy
import hashlib
import math
import threading

import numpy as np
import pytest

from colonnade.crypto import hinted_ring, hinted_sums
from colonnade.crypto.hinted_parameters import (
    ERROR_LEVELS,
    ERROR_VARIANCE,
    MOST_QUERIES,
    MOST_RATIO_BITS,
    NOISE_REACH,
    ROUNDING_VARIANCE,
    HintRing,
    PackedSums,
    error_bound,
    least_flood,
    least_sigma,
)
from colonnade.crypto.hinted_ring import WordRing, cut, normals, uncut
from colonnade.crypto.hinted_sums import SumAsker, SumMaker
from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice_parameters import MOST_BITS, _Insecure
from colonnade.errors import DataError, OptionError, ProtocolError
from colonnade.kernels import hinted as kernels
from test_ntt import negacyclic

SMALL = _Insecure(degree=64, prime_bits=49, primes=2, word_bits=64, answer_bits=76)
SEED, WORD = bytes(range(32)), 1 << 64


def stream(number=0):
    return Keystream(bytes([number] * 32))


def draw_cells(rows, counts, number=0):
    rng = np.random.default_rng(number)
    return np.stack([rng.integers(0, count, rows) for count in counts]).astype(np.uint8)


def pair(layout, counts, number=0, cells=None):
    """Both sides, with fixed secrets."""
    cells = draw_cells(layout.rows, counts) if cells is None else cells
    maker = SumMaker(layout, SEED, cells, counts, stream(number + 1))
    return maker, SumAsker(layout, SEED, sum(counts), maker.hint(), stream(number + 2))


def numbers_of_rows(rows, number=0):
    rng = np.random.default_rng(number)
    return rng.uniform(-1, 1, rows), rng.uniform(0, 1, rows)


def sums_of(cells, counts, values):
    return np.concatenate([np.bincount(column, values, count) for column, count in zip(cells, counts, strict=True)])


def whole(words):
    return [int(x) for x in words]


def signed(number):
    return (number + WORD // 2) % WORD - WORD // 2


# -- a slow twin, of Python's whole numbers ----------------------------------------------------------------------------


def slow_error(words):
    return sum(4**j * (int(word).bit_count() - 32) for j, word in enumerate(words))


def slow_ternary(given, n):
    return [3 * int(word) // WORD - 1 for word in given.words(n)]


def slow_errors(given, n):
    return [slow_error(words) for words in given.words(ERROR_LEVELS * n).reshape(ERROR_LEVELS, n).T]


def slow_cut(numbers):
    """Rounded to 48 bits: all upper halves of 32 bits, then the 16 bits below."""
    rounded = [(x + (1 << 15) >> 16) % (1 << 48) for x in numbers]
    return b"".join((x >> 16).to_bytes(4, "little") for x in rounded) + b"".join(
        (x & 0xFFFF).to_bytes(2, "little") for x in rounded
    )


def slow_uncut(raw):
    n = len(raw) // 6
    upper = [int.from_bytes(raw[4 * i : 4 * i + 4], "little") for i in range(n)]
    lower = [int.from_bytes(raw[4 * n + 2 * i : 4 * n + 2 * i + 2], "little") for i in range(n)]
    return [(x << 32) + (y << 16) for x, y in zip(upper, lower, strict=True)]


def public_polynomials(layout):
    n = layout.ring.degree
    words = whole(Keystream(SEED).words(n * (layout.blocks + 1)))
    return [words[i : i + n] for i in range(0, len(words), n)]


def slow_hint(layout, cells, counts, secret):
    n = layout.ring.degree
    turned = [[a[0], *(-x for x in a[:0:-1])] for a in public_polynomials(layout)]
    errors, _ = Keystream(secret.bytes(32)), secret.bytes(32)
    masks = [slow_ternary(secret, n) for _ in range(sum(counts))]
    found, c = b"", 0
    for column, count in zip(cells, counts, strict=True):
        for cell in range(count):
            total = negacyclic(masks[c], turned[0])
            for k in range(layout.blocks):
                here = [int(x == cell) for x in column[k * n : (k + 1) * n]]
                product = negacyclic(here + [0] * (n - len(here)), turned[k + 1])
                total = [x + y for x, y in zip(total, product, strict=True)]
            found += slow_cut([x + e for x, e in zip(total, slow_errors(errors, n), strict=True)])
            c += 1
    return found, masks


def slow_query(layout, g, h, secrets, dither):
    """The bytes, and s."""
    n = layout.ring.degree
    s = slow_ternary(secrets, n)
    first, *others = [negacyclic(s, a) for a in public_polynomials(layout)]
    pad = [x for one in others for x in one][: layout.rows] + first
    pad = [x + e for x, e in zip(pad, slow_errors(secrets, layout.rows + n), strict=True)]
    for i, (x, y, word) in enumerate(zip(g, h, whole(dither.words(layout.rows)), strict=True)):
        high = math.floor(x * layout.levels + (word & 0xFFFFF) / 2**20)
        low = math.floor(y * layout.unit + (word >> 20 & 0xFFFFF) / 2**20)
        pad[i] += layout.quantum * high + low
    return slow_cut(pad), s


def slow_answer(layout, cells, counts, masks, query, noise):
    words = slow_uncut(query)
    found, c = [], 0
    for column, count in zip(cells, counts, strict=True):
        for cell in range(count):
            total = sum(x for x, y in zip(words, column, strict=False) if y == cell)
            total += sum(u * x for u, x in zip(masks[c], words[layout.rows :], strict=True))
            high, low = (round(float(z)) for z in noise[:, c] * [layout.sigma_g * layout.levels, layout.flood])
            found.append((total + layout.quantum * high + low) % WORD)
            c += 1
    return found


def test_everything_is_the_slow_twins_to_the_bit():
    counts = [3, 1, 70]  # of the last one, rows are added one by one
    layout = PackedSums(150, 1.0, 1.0, SMALL)
    cells = draw_cells(150, counts)
    maker, asker = pair(layout, counts)
    hint, masks = slow_hint(layout, cells, counts, stream(1))
    assert SumMaker(layout, SEED, cells, counts, stream(1)).hint() == hint
    secret = stream(2)
    secrets, dither = Keystream(secret.bytes(32)), Keystream(secret.bytes(32))
    noise = stream(1)
    noise.bytes(32)
    noise = Keystream(noise.bytes(32))
    for number in range(3):
        g, h = numbers_of_rows(150, number)
        query, pending = asker.query(g, h)
        expected, s = slow_query(layout, g, h, secrets, dither)
        assert query == expected
        answer = maker.answer(query)
        words = slow_answer(layout, cells, counts, masks, query, normals(noise, sum(counts)))
        assert answer == b"".join(x.to_bytes(8, "little") for x in words)
        given = [slow_uncut(hint[c * 384 : (c + 1) * 384]) for c in range(sum(counts))]
        opened = [signed(v - sum(x * y for x, y in zip(w, s, strict=True))) for v, w in zip(words, given, strict=True)]
        highs = [(x + layout.below) // layout.quantum for x in opened]
        found_g, found_h = pending.read(answer)
        assert found_g.tolist() == [high / layout.levels for high in highs]
        lows = [x - high * layout.quantum for x, high in zip(opened, highs, strict=True)]
        assert found_h.tolist() == [low / layout.unit for low in lows]
        assert np.abs(found_g - sums_of(cells, counts, g)).max() < 6
        assert np.abs(found_h - sums_of(cells, counts, h)).max() < 6


# -- kernels -----------------------------------------------------------------------------------------------------------


def test_errors_are_sums_of_weighted_bits():
    raw, out = stream().words(ERROR_LEVELS * 50).reshape(ERROR_LEVELS, 50), stream(1).words(50)
    raw[:, 0], raw[:, 1], raw[:, 2] = 0, WORD - 1, 0xFFFFFFFF
    expected = [(x + slow_error(words)) % WORD for x, words in zip(whole(out), raw.T, strict=True)]
    kernels.add_errors(raw, out)
    assert whole(out) == expected


def test_words_go_to_residues_and_back():
    layout = PackedSums(64, 1.0, 1.0, SMALL)
    ring = WordRing(layout, SEED)
    polynomials = stream().words(3 * 64).reshape(3, 64)
    polynomials[0, :5] = 0, 1, WORD - 1, WORD // 2, WORD // 2 - 1
    values, found = ring.transformed(polynomials), np.empty_like(polynomials)
    ring.words(values.copy(), found)
    assert np.array_equal(found, polynomials)
    products, ones = np.empty_like(values), np.zeros((2, 64))
    kernels.each_product(values[2], values, ring.p, ring.inverses, products)  # coefficients of up to 132 bits, too many
    ring.lattice.backward(products)
    for i, p in enumerate(ring.lattice.primes):
        slow = negacyclic([signed(x) for x in whole(polynomials[2])], [signed(x) for x in whole(polynomials[1])])
        assert [int(x) % p for x in products[1, i]] == [x % p for x in slow]
    kernels.take_off(values[0], ring.p, ring.inverses, ones)
    ring.words(ones[None], found[:1])
    assert np.array_equal(found[0], np.uint64(0) - polynomials[0])


@pytest.mark.parametrize("size", [1, -1], ids=["largest", "smallest"])
def test_the_largest_numbers_are_joined_exactly(size):
    """Sums of 2^16 words: numbers of 80 bits of either sign."""
    layout = PackedSums(64, 1.0, 1.0, SMALL)
    ring = WordRing(layout, SEED)
    numbers = [size * (2**80 - i**3) for i in range(64)]
    values = np.array([[[(x + p // 2) % p - p // 2 for x in numbers] for p in ring.lattice.primes]], float)
    ring.lattice.forward(values)
    found = np.empty((1, 64), np.uint64)
    ring.words(values, found)
    assert whole(found[0]) == [x % WORD for x in numbers]


def test_sums_of_products_stay_exact_over_many_blocks():
    ring, blocks = WordRing(PackedSums(64, 1.0, 1.0, SMALL), SEED), 40
    rng = np.random.default_rng(0)
    largest = (ring.p // 2)[None, :, None]
    x, y = (np.where(rng.random((blocks, 2, 64)) < 0.5, -largest, largest) for _ in range(2))
    x[:, :, :32], y[:, :, :32] = 1, largest - 1  # odd, and they do not cancel: up to 20 p
    total = np.broadcast_to(largest[0], (2, 64)).copy()
    expected = [[(whole(total[i])[j] + sum(int(a) * int(b) for a, b in zip(x[:, i, j], y[:, i, j], strict=True))) % p
                 for j in range(64)] for i, p in enumerate(ring.lattice.primes)]  # fmt: skip
    kernels.add_products(x, y, ring.p, ring.inverses, total)
    assert [[int(v) % p for v in row] for row, p in zip(total, ring.lattice.primes, strict=True)] == expected
    assert (np.abs(total) <= ring.p[:, None] / 2 + 2).all()


def test_indicators_and_rotations_are_the_same_polynomials():
    cells = draw_cells(100, [5])[0]
    out = np.full((2, 2, 64), 7.0)
    kernels.indicators(cells, 3, out)
    expected = np.concatenate([cells == 3, np.zeros(28, bool)]).reshape(2, 1, 64)
    assert np.array_equal(out, np.broadcast_to(expected, out.shape))
    a, sums = stream().words(64), np.zeros((5, 64), np.uint64)
    kernels.add_rotations(cells[:64], np.concatenate([np.uint64(0) - a, a]), sums)
    for cell in range(5):
        slow = negacyclic([int(x == cell) for x in cells[:64]], whole(a))
        assert whole(sums[cell]) == [x % WORD for x in slow]


def test_inner_products_and_histograms_wrap():
    words, small = stream().words(3 * 64).reshape(3, 64), np.random.default_rng(0).integers(-1, 2, (4, 64), np.int8)
    out = np.empty((4, 3), np.uint64)
    kernels.inner_products(small, words, out)
    assert out.tolist() == [
        [sum(int(s) * int(w) for s, w in zip(a, b, strict=True)) % WORD for b in words] for a in small
    ]
    cells, starts = draw_cells(64, [3, 200]), np.array([0, 3, 203])
    found = stream(1).words(203)
    expected = whole(found)
    for f, column in enumerate(cells):
        for word, cell in zip(whole(words[0]), column, strict=True):
            expected[starts[f] + int(cell)] += word
    kernels.add_histogram(cells, starts, words[0], found)
    assert whole(found) == [x % WORD for x in expected]


def test_words_are_cut_to_the_nearest():
    words = stream().words(101)
    words[:4] = 0, WORD - 1, (1 << 15) - 1, 1 << 15
    assert cut(words) == slow_cut(whole(words))
    found = np.empty_like(words)
    uncut(memoryview(cut(words)), found)
    assert np.abs((found - words).view(np.int64)).max() <= 1 << 15


def test_rounding_is_right_in_the_mean():
    rows = 20_000
    g, h = np.full(rows, -0.123456), np.full(rows, 0.7)
    words = np.zeros(rows, np.uint64)
    assert kernels.seal(g, h, stream().words(rows), 70.0, 1 << 40, 3.0, words) == 0
    low = words & np.uint64((1 << 40) - 1)
    high = (words - low).view(np.int64) >> 40
    assert set(low) == {2, 3}
    assert set(high) == {-9, -8}
    assert abs(high.mean() - 70 * -0.123456) < 5 * 0.5 / math.sqrt(rows)
    assert abs(low.mean() - 2.1) < 5 * 0.5 / math.sqrt(rows)


@pytest.mark.parametrize(("g", "h"), [(1.01, 0), (-1.01, 0), (0, -0.01), (0, 1.01), (math.nan, 0), (0, math.nan)])
def test_numbers_out_of_range_are_refused(g, h):
    layout = PackedSums(10, 1.0, 1.0, SMALL)
    asker = pair(layout, [2])[1]
    given = np.zeros((2, 10))
    given[:, 3] = g, h
    with pytest.raises(DataError, match="got 1 rows"):
        asker.query(*given)
    with pytest.raises(DataError, match="10 numbers each"):
        asker.query(given[0, 1:], given[1, 1:])


# -- errors and noise --------------------------------------------------------------------------------------------------


def test_the_error_is_within_its_bound_and_as_large_as_calculated(monkeypatch):
    """At the full degree, with no noise: what is read is off by the error alone."""
    counts = [2, 16]
    layout = PackedSums(3000, 1.0, 1.0)
    cells = draw_cells(3000, counts)
    cells[0] = 0  # a cell of all rows, and an empty one
    monkeypatch.setattr(SumMaker, "_noise_words", lambda self, _: np.zeros(self.cells_in_all, np.uint64))
    maker, asker = pair(layout, counts, cells=cells)
    g, h = numbers_of_rows(3000)
    g, h = np.rint(g * layout.levels) / layout.levels, np.rint(h * layout.unit) / layout.unit  # nothing to be rounded
    errors = []
    for _ in range(40):
        query, pending = asker.query(g, h)
        found_g, found_h = pending.read(maker.answer(query))
        assert np.abs(found_g - sums_of(cells, counts, g)).max() < 1e-9
        errors.append((found_h - sums_of(cells, counts, h)) * layout.unit)
    errors = np.array(errors)
    assert np.abs(errors).max() < layout.error_bound
    ternary = 2 / 3 * layout.ring.degree
    sd = np.sqrt((sums_of(cells, counts, np.ones(3000)) + 2 * ternary) * (ERROR_VARIANCE + ROUNDING_VARIANCE))
    # errors of one cell share E and u; over s and e' they are independent, and there are 720 of them
    assert 0.9 < np.sqrt(np.mean((errors / sd) ** 2)) < 1.1
    assert abs((errors / sd).mean()) < 0.15


def test_normal_numbers():
    found = normals(stream(), 200_000).reshape(-1)
    n = len(found)
    assert abs(found.mean()) < 5 / math.sqrt(n)
    assert abs(found.var() - 1) < 5 * math.sqrt(2 / n)
    assert abs((found**4).mean() - 3) < 5 * math.sqrt(96 / n)
    for z, part in ((1, 0.317311), (2, 0.0455003), (3, 0.0026998), (4, 6.334e-5)):
        assert abs((np.abs(found) > z).sum() - part * n) < 5 * math.sqrt(part * n)
    both = normals(stream(), 200_000)
    assert abs(np.corrcoef(both)[0, 1]) < 5 / math.sqrt(200_000)
    assert np.abs(np.corrcoef(both**2)[0, 1]) < 5 / math.sqrt(200_000)


def test_normal_numbers_have_an_end(monkeypatch):
    class Ends:
        def words(self, count):
            return np.array([0, WORD - 1, 0, WORD // 4], np.uint64)

    found = normals(Ends(), 2)
    assert np.isfinite(found).all()
    assert 9.4 < np.abs(found).max() < NOISE_REACH
    assert found[0, 1] == 0.0


@pytest.mark.parametrize("sigma", [(1.0, 2.0), (0.0, 1.0), (12.0, 1.5)])
def test_sums_have_the_noise_that_was_asked_for(sigma):
    layout = PackedSums(500, *sigma, SMALL)
    counts = [5, 20]
    cells = draw_cells(500, counts)
    maker, asker = pair(layout, counts, cells=cells)
    g, h = numbers_of_rows(500)
    g = np.rint(g * layout.levels) / layout.levels
    found = []
    for _ in range(200):
        query, pending = asker.query(g, h)
        found.append(np.stack(pending.read(maker.answer(query))) - [sums_of(cells, counts, x) for x in (g, h)])
    found = np.array(found)
    n = found[:, 0].size
    for i, sd in enumerate(sigma):
        assert abs(found[:, i].mean()) <= 5 * sd / math.sqrt(n) + 1e-9
        assert abs(found[:, i].std() - sd) <= 5 * sd / math.sqrt(2 * n) + 1e-9


@pytest.mark.parametrize("rows", [1, 7, 1000, 65536])
@pytest.mark.parametrize("end", [1, -1])
def test_nothing_overflows_at_the_ends(rows, end, monkeypatch):
    """All rows at the largest numbers in one cell, and noise as far out as it goes."""
    layout = PackedSums(rows, 3.0, 1.0, SMALL)
    most = np.full((2, 1), end * 9.49)
    monkeypatch.setattr(hinted_sums, "normals", lambda stream, count: most)
    maker, asker = pair(layout, [1], cells=np.zeros((1, rows), np.uint8))
    query, pending = asker.query(np.full(rows, float(end)), np.full(rows, max(0.0, end)))
    found_g, found_h = pending.read(maker.answer(query))
    assert found_g[0] == pytest.approx(end * (rows + 9.49 * 3), abs=1 / layout.levels)
    assert found_h[0] == pytest.approx(max(0, end) * rows + end * 9.49, abs=layout.error_bound / layout.unit)


# -- parameters --------------------------------------------------------------------------------------------------------


def test_the_ring_is_within_published_bounds():
    bits = 64 - math.log2(ERROR_VARIANCE) / 2
    assert bits == pytest.approx(49.95, abs=0.01)
    assert bits < MOST_RATIO_BITS < MOST_BITS[2048] - math.log2(3.2)
    assert bits < 0.025696778711484593 * 2048 - 2.675931372549016 + 0.01  # Concrete's curve for *binary* secrets
    with pytest.raises(OptionError, match="128 bits of security"):
        HintRing(degree=1024, prime_bits=49, primes=2, word_bits=64, answer_bits=76)


def test_noise_that_would_not_hide_masks_is_refused():
    flood = least_flood()
    assert math.log2(flood) == pytest.approx(26.66, abs=0.01)
    # by hand: (2^8 + 2^6) sqrt(2/3 (2^28.09 + 2^28.42)) 16
    assert flood == pytest.approx(320 * 16 * math.sqrt(2 / 3 * (2**28.0931 + 2**28.4150)), rel=1e-3)
    for rows, least in ((1000, 0.0247), (10_000, 0.0247), (30_000, 0.166), (65_536, 0.791)):
        assert least_sigma(rows, 1.0) == pytest.approx(least, rel=0.01)
        with pytest.raises(OptionError, match="would not hide"):
            PackedSums(rows, 1.0, 0.999 * least_sigma(rows, 1.0))
        for sigma in (least_sigma(rows, 1.0), 1.0, 10.0, 1000.0):
            layout = PackedSums(rows, 1.0, sigma)
            assert layout.flood >= flood
            assert layout.levels >= 16
            assert layout.unit <= 1 << 32
            assert layout.error_bound == error_bound(rows) < layout.flood
            low = rows * layout.unit + 2 * NOISE_REACH * layout.flood + 2 * layout.error_bound
            assert low < layout.quantum
            assert layout.quantum * (layout.levels * (rows + NOISE_REACH) + 1.5) < 2**63


@pytest.mark.parametrize(
    ("rows", "sigma_g", "sigma_h", "words"),
    [(0, 1, 1, "rows must be"), (65_537, 1, 1, "at most 65536 rows"), (10, -1, 1, "sigma_g"), (10, 1, 0, "sigma_h"),
     (10, math.inf, 1, "sigma_g"), (10, 1, math.nan, "sigma_h"), (10, 1e18, 1, "does not fit")],
)  # fmt: skip
def test_layouts_that_cannot_be(rows, sigma_g, sigma_h, words):
    with pytest.raises(OptionError, match=words):
        PackedSums(rows, sigma_g, sigma_h)


@pytest.mark.parametrize(
    ("cells", "counts", "words"),
    [(np.zeros((1, 9), np.uint8), [2], "uint8 without gaps"), (np.zeros((1, 10)), [2], "uint8 without gaps"),
     (np.zeros((10, 1), np.uint8).T[:, ::-1], [2], "uint8 without gaps"), ([[0] * 10], [2], "uint8 without gaps"),
     (np.zeros((0, 10), np.uint8), [], "at least one column"), (np.full((1, 10), 2, np.uint8), [2], "beyond"),
     (np.zeros((1, 10), np.uint8), [257], "1 to 256"), (np.zeros((1, 10), np.uint8), [0], "1 to 256")],
)  # fmt: skip
def test_cells_that_cannot_be(cells, counts, words):
    with pytest.raises(DataError, match=words):
        SumMaker(PackedSums(10, 1.0, 1.0, SMALL), SEED, cells, counts, stream())


# -- what is seen ------------------------------------------------------------------------------------------------------


def looks_uniform(raw):
    """Each byte of the words, by chi squared with 255 degrees of freedom, within five standard deviations."""
    n = len(raw) // 6
    upper, lower = np.frombuffer(raw[: 4 * n], np.uint8).reshape(n, 4), np.frombuffer(raw[4 * n :], np.uint8)
    return all(
        abs(((np.bincount(one, minlength=256) - n / 256) ** 2).sum() / (n / 256) - 255) < 5 * math.sqrt(2 * 255)
        for one in (*upper.T, *lower.reshape(n, 2).T)
    )


def test_queries_and_hints_look_uniform():
    layout = PackedSums(10_000, 1.0, 1.0)
    cells = np.zeros((1, 10_000), np.uint8)
    maker = SumMaker(layout, SEED, cells, [5], stream(1))  # four cells are empty
    hint = maker.hint()
    assert all(looks_uniform(hint[c * 12288 : (c + 1) * 12288]) for c in range(5))
    asker = SumAsker(layout, SEED, 5, hint, stream(2))
    first, second = asker.query(np.ones(10_000), np.ones(10_000))[0], asker.query(np.zeros(10_000), np.zeros(10_000))[0]
    assert looks_uniform(first)
    assert looks_uniform(second)
    assert not looks_uniform(cut(np.full(12_048, layout.quantum, np.uint64)))  # the test can fail
    words = np.empty((2, 12_048), np.uint64)
    for raw, to in zip((first, second), words, strict=True):
        uncut(memoryview(raw), to)
    assert looks_uniform(cut(words[0] - words[1]))


def test_no_two_queries_share_a_secret(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        hinted_sums, "ternary", lambda given, n: drawn.append(found := hinted_ring.ternary(given, n)) or found
    )
    layout = PackedSums(64, 1.0, 1.0, SMALL)
    asker, zeros = pair(layout, [2])[1], np.zeros(64)
    drawn.clear()
    asker.prepare(5)
    queries = [asker.query(zeros, zeros)[0] for _ in range(8)]
    queries += [copy.copy(asker).query(zeros, zeros)[0] for _ in range(4)]
    asker.prepare(2)
    twins = [copy.copy(asker), copy.copy(asker)]
    queries += [one.query(zeros, zeros)[0] for one in twins]
    with pytest.raises(TypeError):
        copy.deepcopy(asker)
    assert len(drawn) == len(queries) == 14
    assert len({one.tobytes() for one in drawn}) == len(set(queries)) == 14
    assert not asker._pads  # nothing is left to be taken again


# Each attack succeeds on a mutation, and gets nowhere with what is there.


def guesses_hold(hint, ring, cells):
    """Whether who knows the rows of cell 0 finds them confirmed: the hint less their polynomials is short."""
    words = np.empty(64, np.uint64)
    uncut(memoryview(hint)[:384], words)
    rows = [int(x == 0) for x in cells[0]]
    rest = [signed(int(w) - x) for w, x in zip(words, negacyclic(rows, whole(ring.turned()[1])), strict=True)]
    return max(map(abs, rest)) < 2**22


def test_attack_on_a_hint_without_masks(monkeypatch):
    layout = PackedSums(64, 1.0, 1.0, SMALL)
    cells, ring = draw_cells(64, [4]), WordRing(layout, SEED)
    wrong = cells.copy()
    wrong[0, 5] = 3 if cells[0, 5] == 0 else 0
    assert not guesses_hold(SumMaker(layout, SEED, cells, [4], stream(1)).hint(), ring, cells)
    monkeypatch.setattr(hinted_sums, "ternary", lambda given, n: np.zeros(n, np.int8))
    bare = SumMaker(layout, SEED, cells, [4], stream(1)).hint()
    assert guesses_hold(bare, ring, cells)
    assert not guesses_hold(bare, ring, wrong)


def read_differences(layout, first, second):
    """What B makes of two queries under one secret: the difference of g, row by row."""
    words = np.empty((2, layout.rows + layout.ring.degree), np.uint64)
    for raw, to in zip((first, second), words, strict=True):
        uncut(memoryview(raw), to)
    return np.rint((words[0] - words[1])[: layout.rows].view(np.int64) / layout.quantum) / layout.levels


def test_attack_on_a_secret_used_twice(monkeypatch):
    layout = PackedSums(64, 1.0, 1.0, SMALL)
    g, h = numbers_of_rows(64)
    asker = pair(layout, [2])[1]
    found = read_differences(layout, asker.query(g, h)[0], asker.query(-g, h)[0])
    assert np.abs(found - 2 * g).max() > 10
    drawn = {}  # the mutation: every pad is made with the first secret
    monkeypatch.setattr(hinted_sums, "ternary", lambda given, n: drawn.setdefault("s", hinted_ring.ternary(given, n)))
    asker = SumAsker(layout, SEED, 2, bytes(layout.hint_bytes(2)), stream(2))
    found = read_differences(layout, asker.query(g, h)[0], asker.query(-g, h)[0])
    assert np.abs(found - 2 * g).max() < 3 / layout.levels


def test_attack_on_noise_used_twice():
    """Streams may be given for one answer; where one comes again, the difference of two sums has no noise."""
    layout, counts = PackedSums(64, 5.0, 5.0, SMALL), [2, 3]
    cells = draw_cells(64, counts)
    g, h = numbers_of_rows(64)
    g = np.rint(g * layout.levels) / layout.levels
    for number, holds in ((8, False), (7, True)):
        maker, asker = pair(layout, counts, cells=cells)
        found = []
        for sign, noise in ((1, 7), (-1, number)):
            query, pending = asker.query(sign * g, h, stream(9))
            found.append(pending.read(maker.answer(query, stream(noise)))[0])
        assert np.allclose(found[0] - found[1], sums_of(cells, counts, 2 * g), atol=1e-6) == holds


def multiplication(a):
    """The matrix of the product with a polynomial, of words."""
    n = len(a)
    return np.stack([np.concatenate([np.uint64(0) - a[n - j :], a[: n - j]]) for j in range(n)], axis=1)


def rows_recovered(layout, cells, modulus, monkeypatch, queries=400):
    """The part of all rows whose cell A reads off what is below the noise, by least squares over many answers.

    It knows its own s, and what was sent less a s: the errors with their rounding. modulus: noise is a multiple of it.
    """
    known, n = [], layout.ring.degree

    def ternary(given, n):
        known.append([hinted_ring.ternary(given, n)])
        return known[-1][0]

    maker, asker = pair(layout, [2], cells=cells)
    monkeypatch.setattr(hinted_sums, "ternary", ternary)
    zeros, unknowns, seen = np.zeros(64), [], []
    times = [multiplication(a) for a in asker._ring.public]
    for _ in range(queries):
        query, pending = asker.query(zeros, zeros)
        s = known.pop()[0]
        words = np.empty(2 * n, np.uint64)
        uncut(memoryview(query), words)
        product = [one @ s.astype(np.int64).view(np.uint64) for one in times]
        errors = (words - np.concatenate([product[1], product[0]])).view(np.int64)
        low = pending.read(maker.answer(query))[1][0] * layout.unit
        seen.append((low + modulus / 2) % modulus - modulus / 2 if modulus else low)
        unknowns.append(np.concatenate([errors, s]))
    found = np.linalg.lstsq(np.array(unknowns, float), np.array(seen), rcond=None)[0]
    return np.mean((found[:64] > 0.5) == (cells[0] == 0))


def test_attacks_on_noise_that_does_not_reach_the_last_bits(monkeypatch):
    layout = PackedSums(64, 0.0, least_sigma(64, 0.0, SMALL), SMALL)
    cells, modulus = draw_cells(64, [2]), 1 << 26
    assert rows_recovered(layout, cells, 0, monkeypatch) < 0.75
    real = SumMaker._noise_words
    with monkeypatch.context() as patch:  # only the upper bits are noisy
        patch.setattr(
            SumMaker, "_noise_words", lambda self, stream: real(self, stream) >> np.uint64(26) << np.uint64(26)
        )
        assert rows_recovered(layout, cells, modulus, patch) == 1
    with monkeypatch.context() as patch:  # noise in all bits, of a flood that would be refused
        patch.setattr(PackedSums, "flood", 2.0**14)
        assert rows_recovered(layout, cells, 0, patch) == 1


# -- the interface -----------------------------------------------------------------------------------------------------


def test_lengths_are_checked_before_anything_is_done():
    layout = PackedSums(100, 1.0, 1.0, SMALL)
    maker, asker = pair(layout, [2, 3])
    assert layout.hint_bytes(5) == 5 * 64 * 6
    assert layout.query_bytes() == 164 * 6
    assert layout.answer_bytes(5) == 40
    query, pending = asker.query(np.zeros(100), np.zeros(100))
    answer = maker.answer(query)
    assert (len(query), len(answer)) == (layout.query_bytes(), layout.answer_bytes(5))
    for wrong in (b"", query[:-1], query + b"\0", "text", None):
        with pytest.raises(ProtocolError, match=r"a query for sums must be 984 bytes"):
            maker.answer(wrong)
    for wrong in (b"", answer[:-1], answer + b"\0", 7):
        with pytest.raises(ProtocolError, match=r"an answer with sums must be 40 bytes"):
            pending.read(wrong)
    with pytest.raises(ProtocolError, match=r"a hint for sums must be 1920 bytes"):
        SumAsker(layout, SEED, 5, bytes(1919), stream())
    assert maker.answered == 1


def test_a_hint_is_made_once_and_answers_end():
    layout = PackedSums(10, 1.0, 1.0, SMALL)
    maker, asker = pair(layout, [2])
    with pytest.raises(OptionError, match="made once"):
        maker.hint()
    query, _ = asker.query(np.zeros(10), np.zeros(10))
    maker.answered = MOST_QUERIES - 1
    maker.answer(query)
    with pytest.raises(ProtocolError, match="65536 queries"):
        maker.answer(query)


def test_pads_from_a_thread_change_no_bit():
    layout = PackedSums(100, 1.0, 1.0, SMALL)
    given = [numbers_of_rows(100, number) for number in range(12)]
    plain = pair(layout, [4])[1]
    expected = [plain.query(g, h)[0] for g, h in given]
    asker = pair(layout, [4])[1]
    thread = threading.Thread(target=asker.prepare, args=(6,))
    thread.start()
    found = [asker.query(g, h)[0] for g, h in given]
    thread.join()
    assert found == expected


def test_the_same_secrets_give_the_same_bytes_on_every_machine():
    layout = PackedSums(3000, 1.0, 1.0)
    maker = SumMaker(layout, SEED, draw_cells(3000, [4, 60]), [4, 60], stream(1))
    hint = maker.hint()
    asker = SumAsker(layout, SEED, 64, hint, stream(2))
    asker.prepare(1)
    query, _ = asker.query(np.arange(3000) / 3000, np.arange(3000) / 4096)
    assert hashlib.sha256(hint + query).hexdigest()[:16] == "1fadc8a8f2c3082a"
