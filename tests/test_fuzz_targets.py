"""A short form of `make fuzz`, without its guide: seeds, their pieces, and what differs from them in a few bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz_targets import SEEDS, TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_read_or_refused(name):
    for seed in SEEDS[name]:
        TARGETS[name](seed)
        for at in range(0, len(seed), max(1, len(seed) // 60)):
            TARGETS[name](seed[:at])
            TARGETS[name](seed[at:])


@st.composite
def near(draw, seeds):
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=4))
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_else_happens(name):
    @settings(max_examples=150, deadline=None)
    @given(st.one_of(near(SEEDS[name]), st.binary(max_size=200)))
    def run(data):
        TARGETS[name](data)

    run()
