"""What every form of the primitive promises: a private matrix times a private vector, in shares that say nothing.

A new form is a new case in `CASES`, and is tested here without a change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.stats

from colonnade.crypto.keystream import Keystream
from colonnade.crypto.lattice import Lattice
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_parameters import SMALL, WIDE, Parameters, noise_bound
from colonnade.errors import OptionError, ProtocolError
from colonnade.kernels import lattice as kernels
from colonnade.sealed import products, waves, wide
from colonnade.sealed.columns import signal_bits
from colonnade.sealed.curvature import own_products
from colonnade.sealed.products import Matrix, Packed, Rowwise, Silent, Spread, check_noise
from colonnade.sealed.series import logistic
from colonnade.sealed.slots import DEGREE, SLOTS, SlotLayout, folded
from views.sealed import below_words as seen_below
from views.sealed import in_slots

# Each test below takes a decision on numbers that are drawn from these seeds, the same every time.
ALMOST_NEVER = 1e-9


def stream(number=1):
    return Keystream(bytes([number]) * 32)


KEYS = {parameters: SecretKey(Lattice.of(parameters), stream(200)) for parameters in (SMALL, WIDE)}
PUBLIC = {parameters: LatticePublicKey.from_bytes(key.lattice, key.public) for parameters, key in KEYS.items()}


def words_of(number, *shape):
    """Uniform words of 64 bits."""
    return stream(number).words(int(np.prod(shape))).reshape(shape)


def wide_of(number, *shape):
    """Uniform words of 96 bits."""
    return stream(number).words(3 * int(np.prod(shape))).astype(np.uint32).reshape(*shape, 3)


def whole(values):
    """Words of either kind as Python's whole numbers."""
    if values.dtype == np.uint64:
        return values.astype(object)
    return sum(values[..., i].astype(object) << 32 * i for i in range(3))


def integers(X):
    """Doubles as Python's whole numbers."""
    return np.asarray(X).astype(np.int64).astype(object)


def signed(values, bits):
    """Numbers modulo 2^bits as the ones next to zero."""
    values = values % (1 << bits)
    return np.where(values >= 1 << (bits - 1), values - (1 << bits), values)


@dataclass(frozen=True)
class Case:
    """One form at one size.

    ask: (question, the vector that it is about). answer: (answer, share). read: share. product: what they share.
    """

    name: str
    parameters: Parameters
    matrix: tuple[int, ...]  # the shape of it
    bound: float  # on the norm of what goes into one answer
    ask: Callable[[SecretKey], tuple[bytes, Any]]
    answer: Callable[..., tuple[bytes, Any]]
    read: Callable[[SecretKey, bytes], Any]
    product: Callable[[Any, Any], Any]
    silent: bool = False

    def off(self, X):
        """How far shares may be from the product, in units of a word: a unit, and the noise of the answer.

        What random vectors hold below a word is not in them: that is another 1 / sqrt(12) for each number.
        """
        norm = float(np.linalg.norm(X))
        unit = Lattice.of(self.parameters).modulus / 2.0**self.parameters.word_bits
        return 2.0 + noise_bound(self.parameters, norm, DEGREE) / unit + self.silent * 10 * norm / np.sqrt(12)

    def drawn(self, number, size=1.0):
        """A matrix of whole numbers whose norm is a part of the bound."""
        X = np.random.default_rng(number).standard_normal(self.matrix)
        return np.trunc(X * (size * self.bound / max(np.linalg.norm(X), 1e-300)))


def silent(vectors, length, columns, parameters=SMALL):
    form, bound = Silent(vectors, length, parameters), 2.0**20
    return Case(
        f"silent {vectors} x {length} times {columns}, {parameters.word_bits} bits", parameters, (columns, length),
        bound,
        lambda key: form.ask(key, stream(3)),
        lambda public, raw, X, random: form.answer(public, raw, X, bound, random),
        lambda key, answer: form.read(key, answer, columns),
        lambda X, v: integers(X) @ whole(v).T,
        silent=True,
    )  # fmt: skip


def spread(columns, vectors, rows):
    form, bound = Spread(columns, vectors, rows), 2.0**24
    return Case(
        f"spread {columns} x {vectors} over {rows}", SMALL, (columns, rows), bound,
        lambda key: (form.ask(key, b := words_of(4, columns, vectors)), b),
        lambda public, raw, X, random: form.answer(public, raw, X, bound, random),
        form.read,
        lambda X, b: whole(b).T @ integers(X),
    )  # fmt: skip


def packed(columns, length):
    form, bound = Packed(columns, length), 2.0**24
    return Case(
        f"packed {columns} x {length}", SMALL, (columns, length), bound,
        lambda key: (form.ask(key, v := words_of(5, length)), v),
        lambda public, raw, X, random: form.answer(public, raw, X, bound, random),
        form.read,
        lambda X, v: integers(X) @ whole(v),
    )  # fmt: skip


def negacyclic(a, b):
    """The product of polynomials modulo x^N + 1 by its definition, of which b has few coefficients."""
    found = np.zeros(DEGREE, dtype=object)
    for k in np.flatnonzero(b):
        found += (np.concatenate([-a[DEGREE - k :], a[: DEGREE - k]]) if k else a) * int(b[k])
    return found


def rowwise(pairs, blocks):
    form, bound = Rowwise(pairs, blocks), 2.0**20
    few = [0, 1, 17, SLOTS - 1, SLOTS, SLOTS + 1, DEGREE - 1]

    def answer(public, raw, X, random):
        factors = np.zeros((pairs, blocks, DEGREE))
        factors[..., few] = X
        return form.answer(public, raw, factors, bound, random)

    def product(X, v):
        found = np.empty((pairs, blocks, DEGREE), dtype=object)
        for at in np.ndindex(pairs, blocks):
            factor = np.zeros(DEGREE)
            factor[few] = X[at]
            found[at] = negacyclic(whole(v)[at[1]], factor)
        return found

    return Case(
        f"rowwise {pairs} x {blocks}", SMALL, (pairs, blocks, len(few)), bound,
        lambda key: (form.ask(key, v := words_of(6, blocks, DEGREE)), v), answer, form.read, product,
    )  # fmt: skip


def matrix(a, b, c, bits=96):
    """bits: how many the matrix may have."""
    form = Matrix(a, b, c)

    def given(X):
        """The numbers, moved up to the highest bits."""
        found = wide.from_integers(X)
        for _ in range(bits - 48):
            found = wide.add(found, found)
        return found

    return Case(
        f"matrix {a} x {b} x {c} of {bits} bits", WIDE, (a, b), 2.0**46 * np.sqrt(a * b),
        lambda key: (form.ask(key, Q := wide_of(7, b, c)), Q),
        lambda public, raw, X, random: form.answer(public, raw, given(X), random),
        form.read,
        lambda X, Q: (integers(X) << max(0, bits - 48)) @ whole(Q),
    )  # fmt: skip


CASES = [
    silent(1, 1, 1), silent(3, 100, 2), silent(10, 4096, 5), silent(7, 9000, 1), silent(400, 50, 3),
    silent(1, 1, 1, WIDE), silent(5, 300, 4, WIDE), silent(1, 8193, 2, WIDE),
    spread(1, 1, 1), spread(3, 10, 569), spread(2, 3, 9001), spread(5, 1, 8192), spread(1, 400, 21),
    packed(1, 1), packed(1, 9000), packed(55, 4096), packed(120, 12_288), packed(7, 1),
    rowwise(1, 1), rowwise(3, 2),
    matrix(1, 1, 1, 48), matrix(1, 1, 1), matrix(5, 5, 9), matrix(31, 31, 62), matrix(13, 13, 10, 48),
    matrix(1, 1, 40), matrix(40, 40, 1), matrix(3, 2, 5),
]  # fmt: skip
# One of each form, with answers long enough for a statistic.
LONG = [silent(64, 2000, 80), spread(2, 10, 8000), packed(3000, 64), rowwise(1, 2), matrix(50, 50, 50)]
EACH = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
EACH_LONG = pytest.mark.parametrize("case", LONG, ids=[case.name.split()[0] for case in LONG])


def run(case, X, number=9):
    """(question, answer, the answerer's share, the asker's, the vector)."""
    question, vector = case.ask(KEYS[case.parameters])
    answer, share = case.answer(PUBLIC[case.parameters], question, X, stream(number))
    return question, answer, share, case.read(KEYS[case.parameters], answer), vector


# -- the product -------------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0])
def test_shares_add_up_to_the_product(case, size):
    X = case.drawn(11, size)
    _, _, mine, theirs, vector = run(case, X)
    expected = case.product(X, vector)
    assert mine.shape[: expected.ndim] == theirs.shape[: expected.ndim] == expected.shape
    bits = case.parameters.word_bits
    wrong = np.abs(signed(whole(mine) + whole(theirs) - expected, bits)).max()
    assert wrong <= case.off(X)


def test_the_largest_words_are_multiplied_right():
    """All ones, and the numbers around which a word changes its sign."""
    for number in (2**96 - 1, 2**95, 2**95 - 1, 2**48 - 1, 2**47, 2**48):
        P = np.zeros((3, 3, 3), np.uint32)
        P[...] = [number >> 32 * i & 0xFFFFFFFF for i in range(3)]
        form, Q = Matrix(3, 3, 4), wide_of(1, 3, 4)
        answer, mine = form.answer(PUBLIC[WIDE], form.ask(KEYS[WIDE], Q), P, stream())
        found = whole(mine) + whole(form.read(KEYS[WIDE], answer))
        assert np.abs(signed(found - whole(P) @ whole(Q), 96)).max() <= 2


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_nothing_is_changed_that_was_given(case):
    X = case.drawn(12)
    before = X.copy()
    run(case, X)
    np.testing.assert_array_equal(X, before)


def test_own_products_row_by_row_are_those_of_polynomials():
    few = [0, 5, SLOTS, DEGREE - 1]
    polynomials, factors = words_of(8, 2, DEGREE), np.zeros((3, 2, DEGREE))
    factors[..., few] = np.rint(np.random.default_rng(0).standard_normal((3, 2, len(few))) * 2.0**12)
    found = own_products(polynomials, factors)
    for at in np.ndindex(3, 2):
        expected = negacyclic(whole(polynomials)[at[1]], factors[at]) % 2**64
        np.testing.assert_array_equal(whole(found[at]), expected)


# -- what each side sees -----------------------------------------------------------------------------------------------


def p_of_bytes(raw):
    """How likely bytes that are at least as uneven are by chance: a chi-square test."""
    counts = np.bincount(np.frombuffer(raw, np.uint8), minlength=256)
    return scipy.stats.chisquare(counts).pvalue


@EACH_LONG
@pytest.mark.parametrize("size", [0.0, 1.0])
def test_shares_and_messages_are_uniform_whatever_the_matrix(case, size):
    question, answer, mine, theirs, _ = run(case, case.drawn(13, size))
    for seen in (mine.tobytes(), theirs.tobytes(), answer, *([question] if len(question) > 32 else [])):
        assert len(seen) > 2000
        assert p_of_bytes(seen) > ALMOST_NEVER


@EACH_LONG
def test_another_run_has_other_masks(case):
    X = case.drawn(13)
    one, other = run(case, X, 9), run(case, X, 10)
    assert (one[2] != other[2]).mean() > 0.99
    assert one[1] != other[1]


def below_words(case, X, number):
    """What the asker of a long case sees below its words."""
    _, answer, _, _, _ = run(case, X, number)
    name = case.name.split()[0]
    form: Any = {
        "silent": Silent(64, 2000), "spread": Spread(2, 10, 8000), "packed": Packed(3000, 64),
        "rowwise": Rowwise(1, 2), "matrix": Matrix(50, 50, 50),
    }[name]  # fmt: skip
    at = getattr(form, "at", form._at() if name == "matrix" else None)
    size = case.parameters.answer_bytes(1, None if at is None else len(at))
    return seen_below(KEYS[case.parameters], answer, len(answer) // size, at)


@EACH_LONG
def test_what_is_below_the_words_is_the_same_for_every_matrix(case):
    """As it is sent: an asker can't tell whether the matrix is zero or as large as may be. It is uniform for both."""
    none, most = below_words(case, case.drawn(1, 0.0), 20), below_words(case, case.drawn(1, 1.0), 21)
    assert scipy.stats.ks_2samp(none, most).pvalue > ALMOST_NEVER
    for seen in (none, most):
        assert scipy.stats.kstest(seen + 0.5, "uniform").pvalue > ALMOST_NEVER


def test_masks_that_end_with_the_words_would_show_what_is_below(monkeypatch):
    """The test above sees what it is there for."""

    def short(stream, parameters, *shape):
        masks = products_masks(stream, parameters, *shape).copy()
        masks[..., : masks.shape[-1] - parameters.word_limbs] = 0
        return masks

    products_masks = products._masks
    monkeypatch.setattr(products, "_masks", short)
    for case in (LONG[0], LONG[1], LONG[4]):
        none = below_words(case, case.drawn(1, 0.0), 20)
        assert scipy.stats.kstest(none + 0.5, "uniform").pvalue < ALMOST_NEVER
        if case.silent:  # below a word, products with random vectors are as large as the matrix
            assert scipy.stats.ks_2samp(none, below_words(case, case.drawn(1, 1.0), 21)).pvalue < ALMOST_NEVER


def test_masks_are_finer_than_what_they_hide():
    """A mask is one of 2^bits multiples of q / 2^bits: the finer, the closer to uniform is what it is added to."""
    for parameters in (SMALL, WIDE):
        masks = products._masks(stream(), parameters, 3, 5)
        assert masks.shape[:2] == (3, 5)
        assert 32 * masks.shape[-1] - np.log2(float(Lattice.of(parameters).modulus)) > 25


def test_a_matrix_that_makes_too_much_noise_is_refused():
    for parameters, norm in ((SMALL, 2.0**40), (WIDE, 2.0**125)):
        check_noise(parameters, 2.0**-3 * norm, 1)
        with pytest.raises(OptionError, match="noise"):
            check_noise(parameters, 2.0**3 * norm, 1)


def test_what_is_multiplied_is_not_in_the_second_half_of_an_answer():
    """Without an encryption of zero, the second half would be the sum of products itself: zeros for zeros."""
    case = LONG[1]
    X = np.zeros(case.matrix)
    question, _ = case.ask(KEYS[SMALL])
    one, _ = case.answer(PUBLIC[SMALL], question, X, stream(30))
    other, _ = case.answer(PUBLIC[SMALL], question, X, stream(31))
    half = SMALL.answer_words(DEGREE) * 4
    assert p_of_bytes(one[half : 2 * half]) > ALMOST_NEVER
    assert one[half : 2 * half] != other[half : 2 * half]


def crafted(value):
    """A question of one ciphertext that is none: c0 is this number, and the key that it is asked with has no b."""
    lattice = Lattice.of(SMALL)
    c0 = np.zeros((1, SMALL.primes, DEGREE))
    c0[0, :, 0] = [(value % p) - p * (value % p > p // 2) for p in lattice.primes]
    lattice.forward(c0)
    packed_bits = lattice.packed(1)
    lattice.pack(c0[0], packed_bits[0])
    public = LatticePublicKey(lattice, np.zeros((SMALL.primes, DEGREE)), PUBLIC[SMALL]._a)
    return public, bytes(32) + packed_bits.astype("<u8").tobytes()


@pytest.mark.parametrize("bit", [0, 10, 14])
def test_no_question_whatever_shows_a_matrix(bit):
    """Whoever asks with numbers instead of ciphertexts sees products with them below its words, if nothing is there."""
    case = spread(1, 1, DEGREE)
    X = np.trunc(np.random.default_rng(3).standard_normal((1, DEGREE)) * 2.0**15)
    value = 1 << (32 - bit)
    public, question = crafted(value)
    answer, _ = case.answer(public, question, X, stream(70))
    limbs = np.empty((DEGREE, SMALL.answer_limbs), np.uint32)
    raw = np.frombuffer(answer, "<u4")[: SMALL.answer_words(DEGREE)].astype(np.uint32)
    kernels.unpack_limbs(raw, SMALL.answer_bits, limbs)
    unit = 1 << (SMALL.answer_bits - SMALL.word_bits)
    below = (limbs[:, 0] % unit) / unit
    expected = X[0] * (value * 2.0**64 / Lattice.of(SMALL).modulus)
    left = (below - expected) % 1.0
    assert scipy.stats.kstest(left, "uniform").pvalue > ALMOST_NEVER


# -- waves -------------------------------------------------------------------------------------------------------------

ROWS = [1, 16, 569, SLOTS, 2 * SLOTS, 5000, 4 * SLOTS + 1]


def turned(rows, number):
    """Shares (a, b) of scores on the circle, and the scores within a period of 64."""
    z = np.random.default_rng(number).uniform(-22, 22, rows)
    whole_turns = np.rint(z / 64.0 * 2.0**64 * (1 - 2.0**-53)).astype(np.int64).view(np.uint64)
    a = words_of(number % 250, rows)
    return a, whole_turns - a, z


def through_waves(rows, number=40, masks=None, angles=None):
    layout, series = SlotLayout(rows), logistic(64.0, 1e-4)
    a, b, z = turned(rows, number)
    if angles is not None:
        b = angles
    question = waves.ask(KEYS[SMALL], layout, a, series, signal_bits(rows))
    assert len(question) == waves.question_size(layout, series.harmonics)
    drawn = masks or {
        name: waves.masks_for(None, layout, stream(50 + i)) for i, name in enumerate(("signal", "curvature"))
    }
    given = {name: mask for name, (mask, _) in drawn.items()}
    answers = waves.answer(PUBLIC[SMALL], question, layout, b, series, given, stream(60))
    read = {name: waves.read(KEYS[SMALL], one, layout) for name, one in answers.items()}
    return layout, series, z, answers, read, {name: share for name, (_, share) in drawn.items()}


@pytest.mark.parametrize("rows", ROWS)
def test_waves_are_shares_of_the_signal_and_of_the_curvature(rows):
    layout, series, z, answers, read, shares = through_waves(rows)
    grain = 2.0 ** -signal_bits(rows)
    for name, exact in (("signal", series.signals(z) - series.constant), ("curvature", series.curvatures(z))):
        assert len(answers[name]) == waves.answer_size(layout)
        assert read[name].shape == shares[name].shape == (layout.length,)
        found = in_slots((read[name] + shares[name]).view(np.int64) * grain, layout)[0] * SLOTS / 2
        # Roundings of 1/2 in N coefficients make 18 in a slot, twice that after folding, in each copy of a row.
        allowed = 6 * 2 * 19 * grain * np.sqrt(layout.copies) + 1e-4
        assert np.abs(found - exact).max() < allowed


def test_folded_masks_are_what_was_asked_for():
    for rows in ROWS:
        layout = SlotLayout(rows)
        wanted = words_of(44, layout.length)
        masks, share = waves.masks_for(wanted, layout, stream(45))
        assert masks.shape == (layout.blocks, DEGREE, 4)
        np.testing.assert_array_equal(share, -wanted)
        upper = np.ascontiguousarray(masks[..., 2:]).view(np.uint64)[..., 0]
        np.testing.assert_array_equal(folded(upper).reshape(-1), wanted)
        assert p_of_bytes(masks.tobytes()) > ALMOST_NEVER
        assert waves.masks_for(None, layout, stream(45))[1].tobytes() != share.tobytes()


@pytest.mark.parametrize("score", [0.0, 31.0])
def test_shares_of_waves_are_uniform_whatever_the_scores(score):
    """All scores alike."""
    rows = 5000
    a, _, _ = turned(rows, 40)
    angles = np.full(rows, int(score / 64.0 * 2.0**64) % 2**64, np.uint64) - a
    _, _, _, answers, read, shares = through_waves(rows, angles=angles)
    for name in ("signal", "curvature"):
        for seen in (answers[name], read[name].tobytes(), shares[name].tobytes()):
            assert p_of_bytes(seen) > ALMOST_NEVER


# -- what is not in order ----------------------------------------------------------------------------------------------


@EACH
def test_questions_and_answers_of_other_lengths_are_refused(case):
    question, answer, _, _, _ = run(case, case.drawn(1))
    for wrong in (question[:-1], question + b"\0", b"", None, 5):
        with pytest.raises(ProtocolError, match="bytes"):
            case.answer(PUBLIC[case.parameters], wrong, case.drawn(1), stream())
    for wrong in (answer[:-4], answer + bytes(4), b"", None):
        with pytest.raises(ProtocolError, match="bytes"):
            case.read(KEYS[case.parameters], wrong)


@pytest.mark.parametrize("case", [case for case in CASES if not case.silent], ids=lambda case: case.name)
def test_residues_that_are_not_below_their_prime_are_refused(case):
    question, _ = case.ask(KEYS[case.parameters])
    with pytest.raises(ProtocolError, match="below their prime"):
        case.answer(PUBLIC[case.parameters], question[:32] + b"\xff" * (len(question) - 32), case.drawn(1), stream())


def test_keys_of_other_parameters_are_refused():
    for parameters, other in ((SMALL, WIDE), (WIDE, SMALL)):
        with pytest.raises(ProtocolError):
            LatticePublicKey.from_bytes(Lattice.of(parameters), KEYS[other].public)
        raw = KEYS[other].public[:16] + KEYS[parameters].public[16:]
        with pytest.raises(ProtocolError, match="other parameters"):
            LatticePublicKey.from_bytes(Lattice.of(parameters), raw)


def test_waves_of_other_lengths_are_refused():
    layout, series, _, answers, _, _ = through_waves(16)
    masks = {"signal": waves.masks_for(None, layout, stream())[0]}
    with pytest.raises(ProtocolError, match="bytes"):
        waves.answer(PUBLIC[SMALL], bytes(100), layout, words_of(1, 16), series, masks, stream())
    with pytest.raises(ProtocolError, match="bytes"):
        waves.read(KEYS[SMALL], answers["signal"] + b"\0", layout)
