from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from colonnade.crypto.ring import Ring, narrow_ring
from colonnade.errors import ColonnadeError, OptionError, RingOverflow

STEP = 2.0**-36


def largest_accepted(ring: Ring) -> float:
    return float(np.nextafter(ring.largest, 0))


def round_trip(ring: Ring, values) -> np.ndarray:
    return ring.decode(ring.encode(np.asarray(values, dtype=np.float64), "a"))


@given(arrays(np.float64, array_shapes(min_side=0, max_dims=2), elements=st.floats(-4e7, 4e7)))
def test_round_trip(values):
    ring = Ring(3)
    encoded = ring.encode(values, "a")
    assert encoded.dtype == np.uint64
    assert encoded.shape == values.shape
    back = ring.decode(encoded)
    assert back.dtype == np.float64
    assert np.all(np.abs(back - values) <= STEP / 2)
    # What is a multiple of the step comes back as it is.
    assert round_trip(ring, back).tobytes() == back.tobytes()


def test_negative_values_are_in_the_upper_half():
    ring = Ring(2)
    assert ring.encode(np.array([-1.0, -STEP, 1.0, 0.0, -0.0]), "a").tolist() == [
        2**64 - 2**36,
        2**64 - 1,
        2**36,
        0,
        0,
    ]
    assert round_trip(ring, [-1.5, -STEP, 1.5]).tolist() == [-1.5, -STEP, 1.5]


def test_halves_of_a_step_go_to_the_even_side():
    """As float arithmetic rounds: no drift upwards or downwards over many numbers."""
    assert (round_trip(Ring(2), np.array([0.5, 1.5, 2.5, -0.5, -1.5]) * STEP) / STEP).tolist() == [0, 2, 2, 0, -2]


@pytest.mark.parametrize("bits", [0, 1, 36, 52, 62])
@pytest.mark.parametrize("parties", [1, 2, 3, 5, 7, 10, 16, 17, 1000])
def test_the_largest_values_of_all_parties_do_not_wrap(parties, bits):
    ring = Ring(parties, bits)
    for sign in (1, -1):
        value = sign * largest_accepted(ring)
        encoded = ring.encode(np.array([value]), "a")
        with np.errstate(over="ignore"):
            total = ring.decode(encoded * np.uint64(parties))
        exact = round(Fraction(value) * 2**bits) * parties
        assert -(2**63) < exact < 2**63
        assert total[0] == exact / 2**bits


@pytest.mark.parametrize("parties", [1, 2, 3, 17])
def test_what_does_not_fit_is_refused(parties):
    ring = Ring(parties)
    assert ring.largest == pytest.approx(1.34e8 / parties, rel=2e-3)
    assert round_trip(ring, [largest_accepted(ring)])[0] == largest_accepted(ring)
    for value in (ring.largest, -ring.largest, np.nextafter(ring.largest, np.inf), 2**63, 1e300, -1.7e308):
        with pytest.raises(RingOverflow) as refused:
            ring.encode(np.array([0.0, value, 1.0]), "bank")
        assert str(refused.value) == (
            f"a contribution of party 'bank' reaches {abs(value):.3g}, the ring of 64 bits holds less than "
            f"{ring.largest:.3g} for {parties} parties; scale the columns, use a smaller step, or stronger l2"
        )
        assert isinstance(refused.value, ColonnadeError)
        assert isinstance(refused.value, OverflowError)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused(value):
    for values in ([value], [0.0, value], [[value, 1.0], [np.nan, -1.0]]):
        with pytest.raises(
            RingOverflow, match=r"a contribution of party 'bank' reaches (nan|inf), the ring of 64 bits holds"
        ):
            Ring(3).encode(np.array(values), "bank")


def test_nothing_to_encode():
    for shape in ((0,), (0, 3), (3, 0)):
        assert round_trip(Ring(3), np.zeros(shape)).shape == shape


def test_the_input_is_not_changed():
    values = np.array([1.25, -3.0])
    values.flags.writeable = False
    encoded = Ring(2).encode(values, "a")
    encoded += np.uint64(1)
    assert values.tolist() == [1.25, -3.0]


@pytest.mark.parametrize("bits", range(63))
def test_fraction_bits(bits):
    ring = Ring(2, bits)
    assert ring.scale == 2**bits
    assert ring.largest == 2.0 ** (62 - bits)
    value = largest_accepted(ring)
    assert abs(round_trip(ring, [value])[0] - value) <= 0.5 / ring.scale


@pytest.mark.parametrize("bits", [-1, 63, 64, 36.5, float("nan")])
def test_fraction_bits_that_are_refused(bits):
    with pytest.raises(OptionError, match=f"fraction_bits must be a whole number between 0 and 62, got {bits}"):
        Ring(2, bits)


@pytest.mark.parametrize("parties", [0, -1])
def test_a_ring_needs_a_party(parties):
    with pytest.raises(OptionError, match=f"parties must be >= 1, got {parties}"):
        Ring(parties)


@given(st.integers(1, 9), arrays(np.float64, array_shapes(max_dims=2), elements=st.floats(-200, 200)))
def test_the_narrow_ring_adds_up(parties, values):
    ring = narrow_ring(parties)
    parts = [ring.encode(values, "a") for _ in range(parties)]
    assert {part.dtype for part in parts} == {np.dtype(np.uint32)}
    total = ring.decode(np.sum(parts, axis=0, dtype=np.uint32))
    assert np.all(np.abs(total - parties * values) <= parties * 0.5 / ring.scale)
    with pytest.raises(RingOverflow, match="the ring of 32 bits holds less than"):
        ring.encode(np.array([ring.largest]), "a")
    with pytest.raises(RingOverflow):
        ring.encode(np.array([np.nan]), "a")
