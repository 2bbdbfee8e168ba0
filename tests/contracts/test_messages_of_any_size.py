"""Messages in pieces, on every runtime: the same values and the same traffic, however they travel."""

from __future__ import annotations

import numpy as np
import pytest

import long_programs
from colonnade.runtimes import pieces
from colonnade.runtimes.simulation import Simulation
from contracts.everywhere import RUNTIMES


@pytest.fixture(params=RUNTIMES)
def runtime(request):
    return RUNTIMES[request.param]


@pytest.fixture(autouse=True)
def _set_back(monkeypatch):
    for name in ("SHORT", "PIECE", "_STEP"):
        monkeypatch.setattr(pieces, name, getattr(pieces, name))


def equal(got, want):
    if isinstance(want, np.ndarray):
        native = want.dtype.newbyteorder("=")
        assert (got.dtype, got.shape) == (native, want.shape)
        assert got.flags.writeable
        assert got.flags.aligned
        np.testing.assert_array_equal(got, want)
    elif isinstance(want, tuple):
        assert type(got) is tuple
        for one, other in zip(got, want, strict=True):
            equal(one, other)
    else:
        assert (type(got), got) == (type(want), want)


def test_a_long_message_arrives_as_it_was_sent(runtime):
    programs = {"a": (long_programs.send_all, ("b",)), "b": (long_programs.take_all, ("a",))}
    outcomes = runtime().run(programs)
    equal(tuple(value for value, _ in outcomes["b"].value), long_programs.values())
    assert all(right for _, right in outcomes["b"].value)
    expected = Simulation().run(programs)["a"]
    assert outcomes["a"].traffic.by_step == expected.traffic.by_step
    assert outcomes["a"].value == expected.value  # one message each, of the same bytes


def test_both_may_send_at_once_and_keep_their_order(runtime):
    programs = {"a": (long_programs.at_once, ("b", 5)), "b": (long_programs.at_once, ("a", 5))}
    outcomes = runtime().run(programs)
    assert {name: outcome.value for name, outcome in outcomes.items()} == dict.fromkeys(
        "ab", ("short", 0.0, 1.0, 2.0, 3.0, 4.0)
    )
