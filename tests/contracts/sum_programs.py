"""Programs, nets and checkers for the sums' contract suite."""

from __future__ import annotations

import itertools
from collections import defaultdict
from fractions import Fraction

import numpy as np
from scipy.stats import chi2

from colonnade.crypto.masks import MaskStream
from colonnade.runtimes.simulation import Simulation
from colonnade.sums import masked, open_sum

TAG = "scores"

# One test of one byte raises a false alarm once in 1e15; the whole suite makes a few thousand such tests.
UNLIKELY = 1e-15


def parties(n: int) -> list[str]:
    return [f"p{i}" for i in range(n)]


# -- nets --------------------------------------------------------------------------------------------------------------


class Forward:
    """A net that passes everything on to the real one."""

    def __init__(self, net) -> None:
        self._net = net

    def __getattr__(self, name):
        return getattr(self._net, name)


class Recording(Forward):
    """Writes down what its party receives: (from, tag, value)."""

    def __init__(self, net, log) -> None:
        super().__init__(net)
        self._log = log

    async def recv(self, frm, tag, *, patient=False):
        value = await self._net.recv(frm, tag, patient=patient)
        self._log.append((frm, tag, value))
        return value


class Lying(Forward):
    """Sends something else in the place of one step."""

    def __init__(self, net, step, instead) -> None:
        super().__init__(net)
        self._step, self._instead = step, instead

    async def send(self, to, tag, value) -> None:
        await self._net.send(to, tag, self._instead if tag == self._step else value)


# -- programs ----------------------------------------------------------------------------------------------------------


async def add_up(net, kind, topology, schedule):
    """One party's side of a row of sums; `schedule` holds pairs of a root and this party's value."""
    opened = await open_sum(kind, net, topology)
    return tuple([await opened.total(TAG, value, root) for root, value in schedule])


def run_sums(kind, topology, roots, values, wrap=lambda net: net):
    """What every party got from a row of sums: `values[k][i]` is what party number i adds to the sum at `roots[k]`."""
    names = parties(len(values[0]))
    programs = {}
    for i, name in enumerate(names):
        schedule = tuple((root, value[i]) for root, value in zip(roots, values, strict=True))
        programs[name] = (lambda net, *args: add_up(wrap(net), *args), (kind, topology, schedule))
    return {name: outcome.value for name, outcome in Simulation().run(programs).items()}


def transcripts(kind, topology, roots, values):
    """The messages that each party received in a row of sums, keys left out."""
    logs = defaultdict(list)
    run_sums(kind, topology, roots, values, lambda net: Recording(net, logs[net.me]))
    return {name: [entry for entry in log if entry[1] != "public key"] for name, log in logs.items()}


def honest_mask(self, root, serial, shape, dtype=np.uint64, add_to=MaskStream.add_to):
    """What `MaskStream.mask` returns, whatever a test does to streams."""
    found = np.zeros(shape, dtype)
    add_to(self, found.reshape(-1), root, serial)
    return found


def give_masks(monkeypatch, make):
    """All streams take their masks from `make` of now on."""

    def add_to(self, values, root, serial, *, negative=False):
        mask = make(self, root, serial, values.shape, values.dtype)
        values += -mask if negative else mask

    monkeypatch.setattr(MaskStream, "add_to", add_to)


def root_removes_its_own_masks(n, size, rounds, monkeypatch):
    """Pairwise in a star: the other parties' messages after the root took off the masks that it shares with each.

    Returns ({party: messages}, {party: its values and what it got}).
    """
    made, opened, received, log = defaultdict(list), {}, [], defaultdict(list)

    def mask(self, root, serial, shape, dtype=np.uint64):
        made[self].append(honest_mask(self, root, serial, shape, dtype))
        return made[self][-1]

    async def program(net):
        opened[net.me] = await open_sum("pairwise", net, "star")
        for k in range(rounds):
            value = np.full(size, float(net.me[1:]) + k)
            log[net.me].append((value, await opened[net.me].total(TAG, value, "p0")))

    give_masks(monkeypatch, mask)
    monkeypatch.setattr(masked, "_BLOCK", 0)  # masks of one sum at a time, to take them off one by one
    programs = dict.fromkeys(parties(n), (program, ()))
    programs["p0"] = (lambda net: program(Recording(net, received)), ())
    Simulation().run(programs)
    bare = {}
    for name, (root_adds, stream) in zip(parties(n)[1:], opened["p0"]._shared, strict=True):
        assert root_adds  # so the other one subtracted
        messages = [value for frm, tag, value in received if (frm, tag) == (name, TAG)]
        bare[name] = [message + mask for message, mask in zip(messages, made[stream], strict=True)]
    return bare, log


# -- slow, readable reference ------------------------------------------------------------------------------------------


def reference_sum(values, fraction_bits=36):
    """The sum of arrays of one shape in Z_2^64, number by number, with Python's integers."""
    columns = zip(*(value.ravel().tolist() for value in values), strict=True)
    sums = []
    for column in columns:
        total = sum(round(Fraction(x) * 2**fraction_bits) for x in column) % 2**64
        signed = total - 2**64 if total >= 2**63 else total
        sums.append(signed / 2**fraction_bits)
    return np.array(sums, dtype=np.float64).reshape(values[0].shape)


# -- what uniform means ------------------------------------------------------------------------------------------------


def assert_uniform(numbers, what: str) -> None:
    """Every one of the eight bytes takes its 256 values equally often (chi-square)."""
    octets = np.ascontiguousarray(numbers).reshape(-1, 1).view(np.uint8)
    expected = len(octets) / 256
    assert expected >= 20, f"{what}: too few numbers to tell"
    for place in range(8):
        counts = np.bincount(octets[:, place], minlength=256)
        statistic = float(np.square(counts - expected).sum() / expected)
        assert statistic < chi2.isf(UNLIKELY, 255), f"{what}: byte {place} isn't uniform"


def assert_hides(log) -> None:
    """What one party received says nothing: all numbers are uniform, none comes twice, and on a link the differences
    between one message and the next are uniform too. No two messages are near each other, however far apart they came:
    a mask that is used again leaves the small difference of what it hid.
    """
    links = defaultdict(list)
    for frm, _, value in log:
        links[frm].append(value.ravel())
    for frm, messages in links.items():
        assert_uniform(np.concatenate(messages), f"messages from {frm}")
        changes = [later - earlier for earlier, later in itertools.pairwise(messages)]
        assert_uniform(np.concatenate(changes), f"differences of messages from {frm}")
    numbers = np.concatenate([value.ravel() for _, _, value in log])
    assert len(np.unique(numbers)) == len(numbers), "a number was seen twice"
    for (one, _, earlier), (other, _, later) in itertools.combinations(log, 2):
        # Uniform numbers of 64 bits lie 2^62 from each other in the middle, values that people send less than 2^50.
        between = np.abs((later - earlier).view(np.int64).astype(float))
        assert np.median(between) > 2**58, f"messages from {one} and {other} are near each other"


# -- many at once ------------------------------------------------------------------------------------------------------


async def overlapping(net, kind, topology, count, window):
    """`count` sums for the first party, up to `window` of them under way; there: how many of them came out wrong."""
    secure, root = await open_sum(kind, net, topology), net.names[0]
    done, wrong, bell = 0, 0, net.promise()

    def ring():
        nonlocal done
        done += 1
        if not bell.done():
            bell.set_result(None)

    async def one(turn):
        nonlocal wrong
        total = await secure.total(TAG, np.full(3, float(turn)), root)
        if total is not None:
            wrong += int((total != turn * len(net.names)).any())
            for name in net.names[1:]:
                await net.send(name, "next", None)
            ring()

    async def listen():
        for _ in range(count):
            await net.recv(root, "next")
            ring()

    if net.me != root:
        net.spawn(listen())
    for turn in range(count + window):
        while turn >= done + window:
            await bell
            bell = net.promise()
        if turn < count:
            net.spawn(one(turn))
    return wrong
