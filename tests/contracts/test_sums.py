"""What every sum in `SUMS` promises. A new one is tested here without a change."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from colonnade.crypto.ring import Ring
from colonnade.errors import OptionError, ProtocolError, RingOverflow, WrongShape
from colonnade.runtimes.processes import Processes
from colonnade.runtimes.simulation import Simulation
from colonnade.sums import SUMS, choose_sum, open_sum
from colonnade.sums.masked import PairwiseSum
from colonnade.sums.trees import TOPOLOGIES
from contracts.sum_programs import (
    TAG,
    Lying,
    assert_hides,
    assert_uniform,
    give_masks,
    honest_mask,
    overlapping,
    parties,
    reference_sum,
    root_removes_its_own_masks,
    run_sums,
    transcripts,
)
from tables import pairwise

MASKED = [name for name, kind in SUMS.items() if kind.masked]
SHAPES = [(0,), (1,), (7,), (1, 3), (4, 3), (0, 2)]


# -- the result --------------------------------------------------------------------------------------------------------


@st.composite
def contributions(draw):
    """One array for each of some parties, with numbers up to the largest that the ring takes."""
    n = draw(st.integers(1, 6))
    largest = float(np.nextafter(Ring(n).largest, 0))
    # Most numbers are of everyday size; both kinds of extremes come too.
    size = draw(st.sampled_from([1.0, 1e-9, largest]))
    shape = draw(st.sampled_from(SHAPES))
    return [draw(arrays(np.float64, shape, elements=st.floats(-size, size))) for _ in range(n)]


LINES = {"clock": Simulation(), "far": Simulation(latency=0.01), "processes": Processes()}
# In a ring nobody has two children.
OVERLAPS = [cell for cell in product(SUMS, TOPOLOGIES, LINES) if cell[1:] != ("ring", "processes")]


@pytest.mark.parametrize(("kind", "topology", "on"), pairwise(OVERLAPS))
def test_sums_under_way_at_once_do_not_mix(kind, topology, on):
    """Messages of the next sum lie ready while this one waits for its second child, and must not be taken for it."""
    outcomes = LINES[on].run(dict.fromkeys(parties(4), (overlapping, (kind, topology, 200, 4))))
    assert outcomes["p0"].value == 0


@pytest.mark.parametrize("kind", SUMS)
@given(values=contributions(), topology=st.sampled_from(list(TOPOLOGIES)), data=st.data())
@example(values=[np.full(3, x) for x in (np.nextafter(Ring(3).largest, 0),) * 3], topology="tree", data=None)
@example(values=[np.full(3, x) for x in (-np.nextafter(Ring(3).largest, 0),) * 3], topology="tree", data=None)
@settings(deadline=None, max_examples=60)
def test_the_sum_is_exact(kind, values, topology, data):
    names = parties(len(values))
    root = data.draw(st.sampled_from(names)) if data else "p0"
    results = run_sums(kind, topology, [root], [values])
    (total,) = results.pop(root)
    assert all(result == (None,) for result in results.values())
    assert total.dtype == np.float64
    assert total.shape == values[0].shape
    assert total.tobytes() == reference_sum(values).tobytes()
    for got, *terms in zip(total.flat, *(value.flat for value in values), strict=True):
        # Each term is rounded to a multiple of 2^-36, and the sum to a float.
        allowed = Fraction(len(values), 2**37) + Fraction(float(np.spacing(abs(got)))) / 2
        assert abs(Fraction(float(got)) - sum(map(Fraction, terms))) <= allowed


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("n", [*range(1, 10), *(pytest.param(n, marks=pytest.mark.long) for n in range(10, 17)), 17])
def test_any_number_of_parties_and_interleaved_roots(topology, n):
    """Every party is the root twice, in no order; all sums give the same bits."""
    rng = np.random.default_rng(n)
    names = parties(n)
    roots = [str(name) for name in rng.permutation(names * 2)]
    shapes = [SHAPES[k % len(SHAPES)] for k in range(len(roots))]
    values = [[rng.normal(0, 100, shape) for _ in names] for shape in shapes]
    expected = [reference_sum(value) for value in values]
    for kind in SUMS:
        results = run_sums(kind, topology, roots, values)
        for k, root in enumerate(roots):
            assert results[root][k].tobytes() == expected[k].tobytes()
            assert all(results[name][k] is None for name in names if name != root)


@pytest.mark.parametrize("kind", SUMS)
def test_many_sums_in_a_row(kind):
    values = [[np.array([float(k), -0.5 * i]) for i in range(3)] for k in range(500)]
    results = run_sums(kind, "tree", ["p1"] * 500, values)
    assert [tuple(total) for total in results["p1"]] == [(3.0 * k, -1.5) for k in range(500)]


@pytest.mark.parametrize("kind", SUMS)
def test_a_number_that_does_not_fit_names_its_party(kind):
    values = [[np.zeros(2), np.array([0.0, 1e9]), np.zeros(2)]]
    with pytest.raises(RingOverflow, match=r"party 'p1' reaches 1e\+09"):
        run_sums(kind, "tree", ["p0"], values)


# -- what a party sees -------------------------------------------------------------------------------------------------

SIZE, ROUNDS = 256, 48


VALUES = {
    "zeros": lambda fixed, k: 0.0 * fixed,
    "a fixed vector": lambda fixed, k: fixed,
    "slow changes": lambda fixed, k: fixed + 0.01 * k,  # no message comes twice, even if masks do
}


def seen_with_dull_values(kind, topology, what):
    """What each of four parties receives while all add much the same again and again, towards two roots by turns."""
    fixed = np.random.default_rng(1).normal(size=(4, SIZE // 2, 2))
    values = [list(VALUES[what](fixed, k)) for k in range(ROUNDS)]
    seen = transcripts(kind, topology, ["p1", "p2"] * (ROUNDS // 2), values)
    return [log for log in seen.values() if log]


def masks_of(place):
    """Masks that are made elsewhere; which were used is forgotten."""

    def mask(self, root, serial, shape, dtype=np.uint64):
        self._last.clear()
        return honest_mask(self, *place(root, serial), shape, dtype)

    return mask


def small_mask(self, root, serial, shape, dtype=np.uint64):
    return honest_mask(self, root, serial, shape, dtype) >> np.dtype(dtype).type(4 * np.dtype(dtype).itemsize)


SABOTAGE = {
    "no mask": lambda self, root, serial, shape, dtype=np.uint64: np.zeros(shape, dtype),
    "the same mask for all sums": masks_of(lambda root, serial: (root, 0)),
    "the same mask for all roots": masks_of(lambda root, serial: (0, serial)),
    "every mask twice": masks_of(lambda root, serial: (root, serial // 2)),
    "a mask of 32 bits": small_mask,
}


@pytest.mark.parametrize(("kind", "topology", "what"), pairwise(product(MASKED, TOPOLOGIES, VALUES)))
def test_what_a_party_receives_is_uniform(kind, topology, what):
    logs = seen_with_dull_values(kind, topology, what)
    assert logs
    for log in logs:
        assert_hides(log)


@pytest.mark.parametrize(("kind", "sabotage", "what"), pairwise(product(MASKED, SABOTAGE, VALUES)))
def test_the_test_of_uniformity_can_fail(kind, sabotage, what, monkeypatch):
    give_masks(monkeypatch, SABOTAGE[sabotage])
    caught = 0
    for log in seen_with_dull_values(kind, "tree", what):
        try:
            assert_hides(log)
        except AssertionError:
            caught += 1
    assert caught


@pytest.mark.parametrize("what", VALUES)
@pytest.mark.parametrize("kind", [name for name in SUMS if name not in MASKED])
def test_a_sum_without_masks_does_not_pass(kind, what):
    for log in seen_with_dull_values(kind, "tree", what):
        with pytest.raises(AssertionError):
            assert_hides(log)


@pytest.mark.parametrize("kind", MASKED)
def test_two_runs_have_no_mask_in_common(kind):
    def numbers():
        seen = transcripts(kind, "star", ["p0"] * 8, [[np.ones(64)] * 3] * 8)
        return {int(number) for log in seen.values() for *_, value in log for number in value}

    assert numbers().isdisjoint(numbers())


def test_between_two_parties_no_mask_hides_anything(monkeypatch):
    """The documented limit: the root knows its own value, so the sum tells it the other's. No mask can change that."""
    bare, logs = root_removes_its_own_masks(2, SIZE, 3, monkeypatch)
    for (mine, total), (theirs, _), message in zip(logs["p0"], logs["p1"], bare["p1"], strict=True):
        np.testing.assert_array_equal(total - mine, theirs)
        # The message itself says no more and no less.
        np.testing.assert_array_equal(Ring(2).decode(message), theirs)


def test_from_three_parties_on_the_masks_between_the_others_hide(monkeypatch):
    bare, _ = root_removes_its_own_masks(3, SIZE, 24, monkeypatch)
    for name, messages in bare.items():
        assert_uniform(np.concatenate(messages), name)
        assert_uniform(np.diff(np.stack(messages), axis=0).ravel(), name)


# -- what is refused ---------------------------------------------------------------------------------------------------

WRONG = [
    np.zeros(3, np.uint64),
    np.zeros((2, 1), np.uint64),
    np.zeros((), np.uint64),
    np.zeros(2, np.float64),
    np.zeros(2, np.int64),
    np.zeros(2, np.uint32),
    None,
    "two numbers",
    (np.zeros(2, np.uint64),),
]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize(("kind", "step"), [(kind, TAG) for kind in SUMS] + [("two-trees", f"{TAG} masks")])
def test_a_message_that_does_not_fit_names_the_child_and_the_step(kind, step, wrong):
    def p2_lies(net):
        return Lying(net, step, wrong) if net.me == "p2" else net

    with pytest.raises(WrongShape, match=f"p2 sent .* at step '{step}', expected is an array of uint64 with shape"):
        run_sums(kind, "tree", ["p0"], [[np.zeros(2)] * 3], p2_lies)


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (b"", "the public key of party 'p2' must be 32 bytes, got 0"),
        (bytes(31), "the public key of party 'p2' must be 32 bytes, got 31"),
        (bytes(33), "the public key of party 'p2' must be 32 bytes, got 33"),
        ("k" * 32, "the public key of party 'p2' must be 32 bytes, got a value of type str"),
        (None, "the public key of party 'p2' must be 32 bytes, got a value of type NoneType"),
        (bytes(32), "the public key of party 'p2' is not a usable point of the curve"),
    ],
)
def test_a_public_key_that_is_none_names_its_party(key, sentence):
    def p2_lies(net):
        return Lying(net, "public key", key) if net.me == "p2" else net

    with pytest.raises(ProtocolError, match=sentence):
        run_sums("pairwise", "tree", ["p0"], [[np.zeros(2)] * 3], p2_lies)


@pytest.mark.parametrize("kind", MASKED)
def test_a_sum_that_counts_wrong_stops_before_it_reuses_a_mask(kind):
    async def program(net):
        opened = await open_sum(kind, net, "tree")
        for _ in range(2):
            opened._serial["p0"] = 0
            if issubclass(SUMS[kind], PairwiseSum):  # which counts blocks of masks
                opened._made.clear()
                opened._blocks.clear()
            await opened.total(TAG, np.zeros(2), "p0")

    with pytest.raises(ProtocolError, match="the mask of sum 0 towards party 0 was used before"):
        Simulation().run(dict.fromkeys(parties(3), (program, ())))


def test_choose_sum():
    assert [choose_sum("auto", n) for n in (1, 2, 3, 17)] == ["plain", "plain", "pairwise", "pairwise"]
    for kind in SUMS:
        assert choose_sum(kind, 2) == choose_sum(kind, 5) == kind
        assert SUMS[kind].name == kind
    allowed = ", ".join(map(repr, ("auto", *SUMS)))
    with pytest.raises(OptionError, match=f"^sum must be one of {allowed}, got 'shamir'$"):
        choose_sum("shamir", 3)


@pytest.mark.parametrize("kind", SUMS)
def test_unknown_topology(kind):
    with pytest.raises(OptionError, match=r"^topology must be one of 'tree', 'star', 'ring', got 'mesh'$"):
        run_sums(kind, "mesh", ["p0"], [[np.zeros(2)] * 3])


@pytest.mark.parametrize("name", list(SUMS))
@pytest.mark.parametrize("n", [1, 2, 3, 8])
def test_a_few_numbers_of_any_size(name, n):
    """Losses and curvatures: far beyond the ring of the scores, and no digit of a small one is lost."""
    values = {p: np.array([1e15 + k, -3e9 * k, 1e-9 * (k + 1), 0.25]) for k, p in enumerate(parties(n))}

    async def wide(net, value):
        opened = await open_sum(name, net, "tree")
        return await opened.total_wide("objective", value, "p0")

    outcomes = Simulation().run({p: (wide, (value,)) for p, value in values.items()})
    expected = sum(values.values())
    np.testing.assert_allclose(outcomes["p0"].value, expected, rtol=1e-15, atol=n * 2.0**-52)
    assert all(outcomes[p].value is None for p in parties(n)[1:])


# -- the narrow ring ---------------------------------------------------------------------------------------------------


async def narrow(net, kind, value):
    opened = await open_sum(kind, net, "tree")
    return await opened.total_narrow(TAG, value, "p0")


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("kind", SUMS)
def test_narrow_sums_are_exact_in_their_ring(kind, n):
    grid = np.random.default_rng(n).integers(-(2**20), 2**20, size=(n, 6)) / 2**20
    outcomes = Simulation().run({name: (narrow, (kind, grid[k])) for k, name in enumerate(parties(n))})
    assert (outcomes["p0"].value == grid.sum(axis=0)).all()
    assert all(outcomes[name].value is None for name in parties(n)[1:])
