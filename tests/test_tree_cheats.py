"""Parties of sealed trees that do not follow the program: what each is refused, and what it gets all the same."""

from __future__ import annotations

import os
from collections import deque

import numpy as np
import pytest

import colonnade as cn
from colonnade.blocks.column_values import columns_from_value
from colonnade.boosting.options import TreePart
from colonnade.boosting.partner import (
    ANSWER,
    ASK,
    CUTS,
    END,
    HINT,
    KEEP,
    MODEL,
    ORDER,
    PER_HINT,
    QUESTION,
    RENEW,
    SEED,
    SIDES,
    SIZES,
    TreePartner,
)
from colonnade.boosting.partnership import Partnership
from colonnade.boosting.questions import Questions, questions_of
from colonnade.boosting.ranges import ColumnSizes
from colonnade.crypto.hinted_ring import cut as shortened
from colonnade.crypto.hinted_sums import SumAsker
from colonnade.crypto.keystream import Keystream
from colonnade.errors import PolicyRefused, ProtocolError
from colonnade.families.trees import TreeScorer
from colonnade.runtimes.net import Traffic

ROWS, CELLS, NOISE = 3000, (32, 32, 7, 2), 10.0
SIZES_OF_SHOP = ColumnSizes(CELLS, (False, True, False, False), (False, False, True, False), (0, 0, 0, 0))


class NothingLeft(Exception):
    """The other party has said all that it has to say."""


class ScriptedNet:
    """One party's net, at whose other end a script speaks; a message that is a function is made when it is due."""

    watcher = None

    def __init__(self, me, other, *script):
        self.me, self.other, self.names = me, other, (me, other)
        self.script, self.sent, self.traffic = deque(script), [], Traffic()

    async def send(self, to, tag, value):
        assert to == self.other
        self.sent.append((tag, value))

    async def recv(self, frm, tag, *, patient=False):
        if not self.script:
            raise NothingLeft
        expected, value = self.script.popleft()
        assert (frm, tag) == (self.other, expected)
        return value(self) if callable(value) else value

    async def in_thread(self, function, *args):
        return function(*args)

    async def work(self, nonzeros, lane="forward", servers=1):
        pass

    def secret(self, purpose):
        return os.urandom(32)

    def report(self, value):
        pass

    def of(self, tag):
        return [value for step, value in self.sent if step == tag]


def driven(coroutine):
    """Run a coroutine that never has to wait."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


class Kept:
    """A party's versions, in memory."""

    every = 1

    def __init__(self):
        self.all = {}

    def versions(self):
        return tuple(self.all)

    def load(self, version):
        return self.all[version]

    def save(self, version, state):
        self.all[version] = state

    def forget(self, after):
        self.all = {version: state for version, state in self.all.items() if version <= after}


def shop_cells(seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, count, ROWS) for count in CELLS]).astype(np.uint8)


def partner(*script, part=None, ranges=8, keeper=None):
    net = ScriptedNet("shop", "bank", *script)
    sealing = (7, (NOISE, NOISE))
    return TreePartner(net, "bank", SIZES_OF_SHOP, shop_cells(), ROWS, part or TreePart(), ranges, sealing, keeper)


async def follow(one):
    await one.prepare()
    await one.tell_opened()
    await one.resume()
    await one.serve()
    await one.learn_model(sealed=True)


SEEDED = (SEED, bytes(32))


def question(count=1):
    size = (ROWS + 2048) * 6
    return [(ORDER, (ASK, count)), (QUESTION, bytes(count * size))]


def cuts(*wanted):
    return (CUTS, tuple((column, np.packbits(np.array(mask, bool)).tobytes()) for column, mask in wanted))


def up_to(cell, count=32):
    return np.arange(count) < cell


# -- a label holder that asks with numbers of its own choice -----------------------------------------------------------


class Reader:
    """It gives some rows words that are powers of two, so that every cell's sum shows which of them it holds."""

    def __init__(self, bits):
        self.bits, self.rows, self.asker, self.pads = bits, deque(), None, deque()

    def ask(self, net):
        if self.asker is None:
            layout = net.partner._sums.layout
            self.asker = SumAsker(layout, bytes(32), sum(CELLS), net.of(HINT)[-1], Keystream(os.urandom(32)))
        pad, rows = self.asker._new_pad(), self.rows.popleft()
        pad.words[rows] += np.uint64(1) << np.arange(64 - self.bits, 64).astype(np.uint64)
        self.pads.append((rows, pad.offsets))
        return shortened(pad.words)

    def read(self, answers, found):
        for answer in answers:
            rows, offsets = self.pads.popleft()
            sums = np.frombuffer(answer, "<u8") - offsets
            level = ((sums + np.uint64(1 << (63 - self.bits))) >> np.uint64(64 - self.bits)).astype(np.int64)
            for place, row in enumerate(rows):
                for column, start in enumerate(SIZES_OF_SHOP.starts[:-1]):
                    has = level[start : start + CELLS[column]] >> place & 1
                    found[column, row] = has.argmax() if has.sum() == 1 else -1


def test_a_label_holder_that_cheats_reads_a_few_rows_with_each_question():
    """The partner can't see it. What bounds it is how many questions it answers."""
    bits, many = 6, 20
    reader = Reader(bits)
    reader.rows.extend(np.arange(k * bits, (k + 1) * bits) for k in range(many))
    script = [step for _ in range(many) for step in ((ORDER, (ASK, 1)), (QUESTION, reader.ask), (CUTS, ()))]
    one = partner(SEEDED, *script)
    one.net.partner = one
    with pytest.raises(NothingLeft):
        driven(follow(one))
    found = np.full((len(CELLS), ROWS), -1)
    reader.read(one.net.of(ANSWER), found)
    right = found[:, : many * bits] == shop_cells()[:, : many * bits]
    assert right.mean() > 0.9
    assert (found[:, many * bits :] == -1).all()


def test_no_more_sums_are_answered_than_a_party_allows():
    script = [SEEDED, *question(4), (CUTS, ()), *question(4), (CUTS, ())]
    with pytest.raises(ProtocolError, match="party 'bank' asked for more than 7 sums, at step 'tree question'"):
        driven(follow(partner(*script, part=TreePart(most_questions=7))))
    with pytest.raises(NothingLeft):
        driven(follow(partner(*script, part=TreePart(most_questions=8))))


def test_no_more_sums_are_answered_under_one_hint_than_it_is_good_for():
    script = [SEEDED, *question(PER_HINT), (CUTS, ()), *question(1)]
    with pytest.raises(
        ProtocolError, match="'bank' asked for 1 sums at step 'tree question', and the hint is good for 0 more"
    ):
        driven(follow(partner(*script)))
    with pytest.raises(NothingLeft):
        driven(follow(partner(*script[:4], (ORDER, (RENEW, 0)), *question(1), (CUTS, ()))))
    with pytest.raises(ProtocolError, match="gave an order that there is none of"):
        driven(follow(partner(SEEDED, (ORDER, (RENEW, 0)))))


# -- a label holder that wants to know more than was agreed ------------------------------------------------------------

ALL_BUT = np.arange(32) != 5
REFUSED = {
    "a second question of the same": ([cuts((0, up_to(4))), *question(), cuts((0, up_to(4)))], "says nothing new"),
    "the rest of the same": ([cuts((0, up_to(4))), *question(), cuts((0, ~up_to(4)))], "says nothing new"),
    "nothing": ([cuts((0, up_to(0)))], "says nothing new"),
    "two places": ([cuts((0, (np.arange(32) > 4) & (np.arange(32) < 9)))], "must cut column 0 at one place"),
    "one cell of many": ([cuts((0, ALL_BUT))], "must cut column 0 at one place"),
    "too many ranges at once": ([cuts(*((0, up_to(k)) for k in range(1, 9)))], "more than 8 ranges"),
    "too many one by one": (
        [step for k in range(1, 9) for step in (cuts((0, up_to(k))), *question())], "more than 8 ranges",
    ),
    "missing values are a range": ([cuts(*((1, up_to(k)) for k in range(1, 8)))], "more than 8 ranges"),
    "no column": ([cuts((4, up_to(3)))], "must name a column from 0 to 3"),
    "a negative column": ([cuts((-1, up_to(3)))], "must name a column from 0 to 3"),
    "a column that is a truth": ([(CUTS, ((True, bytes(4)),))], "must name a column from 0 to 3"),
    "a cut that is too long": ([(CUTS, ((0, bytes(5)),))], "one bit for each of its cells"),
    "a cut that is an array": ([(CUTS, ((0, np.ones(32, bool)),))], "one bit for each of its cells"),
    "cuts that are none": ([(CUTS, 5)], "must name cuts as pairs"),
    "a list": ([(CUTS, [(0, bytes(4))])], "must name cuts as pairs"),
    "a triple": ([(CUTS, ((0, bytes(4), 1),))], "must name cuts as pairs"),
}  # fmt: skip


@pytest.mark.parametrize("name", list(REFUSED))
def test_cuts_beyond_what_was_agreed_are_refused(name):
    steps, words = REFUSED[name]
    one = partner(SEEDED, *question(), *steps)
    with pytest.raises(ProtocolError, match=words) as refused:
        driven(follow(one))
    assert "'bank'" in str(refused.value)
    assert repr(CUTS) in str(refused.value)
    assert all(len(sides) <= 7 for sides in one.net.of(SIDES))  # nothing of a message that is refused was told
    assert sum(len(sides) for sides in one.net.of(SIDES)) <= 7


ORDERS = [
    5, ("ask",), ["ask", 1], ("ask", 1.0), ("ask", True), ("ask", 0), ("ask", -1), ("ask", 65), ("ask", 1 << 62),
    ("tell", 1), (None, 1), ("keep", 0), ("keep", -3), (b"end", 0), ("renew", 1),
]  # fmt: skip


@pytest.mark.parametrize("order", ORDERS, ids=repr)
def test_orders_that_there_are_none_of_are_refused(order):
    with pytest.raises(ProtocolError, match=r"party 'bank'.*'tree order'"):
        driven(follow(partner(SEEDED, (ORDER, order))))


@pytest.mark.parametrize("raw", [b"", bytes(100), bytes(2 * (ROWS + 2048) * 6), "text", None, np.zeros(9, np.uint8)])
def test_questions_of_another_size_are_refused(raw):
    with pytest.raises(ProtocolError, match=r"party 'bank' must ask in 1 times 30288 bytes at step 'tree question'"):
        driven(follow(partner(SEEDED, (ORDER, (ASK, 1)), (QUESTION, raw))))


@pytest.mark.parametrize("seed", [b"", bytes(31), "x" * 32, None, 7])
def test_a_seed_is_32_bytes(seed):
    with pytest.raises(ProtocolError, match="party 'bank' must tell 32 bytes at step 'tree seed'"):
        driven(follow(partner((SEED, seed))))


def model(*of_first):
    return (MODEL, (*of_first, None, None, None)[: len(CELLS)])


def ended(*steps):
    return partner(SEEDED, *question(), cuts((0, up_to(10)), (2, [1, 0, 1, 0, 0, 0, 0])), (ORDER, (END, 0)), *steps)


def test_predictions_tell_no_finer_ranges_than_training_opened():
    opened = np.where(up_to(10), 0, 10).astype(np.uint8)
    one = ended(model(opened))
    driven(follow(one))
    assert np.array_equal(one.final[0], opened)
    assert one.final[1:] == (None, None, None)
    for first in (np.arange(32), np.where(up_to(9), 0, 9), np.where(up_to(11), 0, 11)):
        with pytest.raises(ProtocolError, match="finer ranges of column 0 for predictions than training opened"):
            driven(follow(ended(model(first.astype(np.uint8)))))
    with pytest.raises(ProtocolError, match="finer ranges of column 1"):
        driven(follow(ended((MODEL, (None, np.where(up_to(4), 0, 4).astype(np.uint8), None, None)))))


@pytest.mark.parametrize(
    "told",
    [None, (), (None,) * 5, (7, None, None, None), (np.zeros(32), None, None, None), (b"", None, None, None),
     (np.zeros(31, np.uint8), None, None, None), (np.zeros((32, 1), np.uint8), None, None, None)],
)  # fmt: skip
def test_a_model_has_a_range_for_every_cell(told):
    with pytest.raises(ProtocolError, match=r"party 'bank' must name .* at step 'tree model'"):
        driven(follow(ended((MODEL, told))))


def test_a_range_of_a_model_is_called_by_its_first_cell():
    """Else the party's own file of the model could not be read again, or training not go on from it."""
    for first in (np.where(up_to(10), 0, 200), np.where(up_to(10), 3, 10), np.where(up_to(10), 10, 0)):
        with pytest.raises(ProtocolError, match=r"party 'bank' must .* at step 'tree model'"):
            driven(follow(ended(model(first.astype(np.uint8)))))


# -- breaks, and training that goes on ---------------------------------------------------------------------------------


def resumed(keeper, *steps, version=1):
    return partner(SEEDED, ("kept versions", (version,) if version else ()), *steps, keeper=keeper)


def broken_off(keeper, *steps):
    """A label holder that has progress kept before it asks for anything, and then breaks off."""
    one = partner(SEEDED, ("kept versions", ()), (ORDER, (KEEP, 1)), *steps, keeper=keeper)
    with pytest.raises(NothingLeft):
        driven(follow(one))
    return one


def test_two_questions_after_a_break_do_not_share_noise():
    """The difference of two answers would else be without noise: all zeros were asked about in both."""
    keeper, found = Kept(), []
    one = broken_off(keeper, *question(), (CUTS, ()))
    other = resumed(keeper, *question(), (CUTS, ()))
    with pytest.raises(NothingLeft):
        driven(follow(other))
    for each in (one, other):
        layout, words = each._sums.layout, np.frombuffer(each.net.of(ANSWER)[0], "<u8").view(np.int64)
        found.append(words / layout.quantum / layout.levels)
    assert np.std(found[0]) == pytest.approx(NOISE, rel=0.3)
    assert np.std(found[0] - found[1]) == pytest.approx(NOISE * np.sqrt(2), rel=0.3)


def test_a_break_gives_no_cuts_back():
    """Seven cuts, a break, and seven others: the label holder would know fifteen ranges of a column."""
    keeper = Kept()
    broken_off(keeper, *question(), cuts(*((0, up_to(k)) for k in range(1, 8))))
    other = resumed(keeper, *question(), cuts(*((0, up_to(k)) for k in range(11, 18))))
    with pytest.raises(ProtocolError, match="more than 8 ranges"):
        driven(follow(other))


def test_a_break_gives_no_questions_back():
    keeper, part = Kept(), TreePart(most_questions=8)
    for version in ((), (1,), (1,), (1,)):
        one = partner(
            SEEDED, ("kept versions", version), *([] if version else [(ORDER, (KEEP, 1))]), *question(8), (CUTS, ()),
            part=part, keeper=keeper,
        )  # fmt: skip
        with pytest.raises(NothingLeft if not version else ProtocolError):
            driven(follow(one))


def test_training_that_goes_on_tells_the_ranges_of_the_model_and_counts_them():
    first = np.zeros(32, np.uint8)
    first[3:], first[9:], first[20:] = 3, 9, 20
    earlier = (first, None, None, None)
    one = partner(SEEDED, *question(), cuts(*((0, up_to(k)) for k in (1, 2, 5, 7))), part=TreePart(earlier=earlier))
    with pytest.raises(NothingLeft):
        driven(follow(one))
    assert np.array_equal(one.net.of(SIDES)[0], first[shop_cells()[:1]])
    one = partner(SEEDED, *question(), cuts(*((0, up_to(k)) for k in (1, 2, 5, 7, 8))), part=TreePart(earlier=earlier))
    with pytest.raises(ProtocolError, match="more than 8 ranges"):
        driven(follow(one))


def test_training_does_not_go_on_from_more_ranges_than_are_agreed_now():
    first = np.repeat(np.arange(0, 32, 2), 2).astype(np.uint8)
    one = partner(SEEDED, part=TreePart(earlier=(first, None, None, None)), ranges=8)
    with pytest.raises(PolicyRefused, match=r"uses 16 ranges of a column of 'shop', and the job lets .* learn 8"):
        driven(follow(one))


def test_a_label_holder_that_asks_more_often_than_the_job_says_is_refused(monkeypatch):
    async def twice(self, groups, g, h, ahead=0):
        if self.asked < 3 * questions_of(3, 1):
            await ask(self, groups, g, h)
            for one in self.partners:
                await one.open([])
        return await ask(self, groups, g, h)

    ask = Questions.ask
    monkeypatch.setattr(Questions, "ask", twice)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 4))
    with pytest.raises(ProtocolError, match="sums"):
        cn.BoostedTreesClassifier(trees=3, verbose=0).fit(
            cn.Party("bank", X[:, :2], X[:, 0] > 0), cn.Party("shop", X[:, 2:])
        )


# -- partners that do not follow the program ---------------------------------------------------------------------------

BAD_SIZES = [
    None, 5, (), ((), (), ()), ([2], [False], [False], [0]), ((0,), (False,), (False,), (0,)),
    ((33,), (False,), (False,), (0,)), ((2, 2), (False,), (False,), (0,)), ((2,), (0,), (False,), (0,)),
    ((2,), (False,), (False,), (2,)), ((2.0,), (False,), (False,), (0,)), ((True,), (False,), (False,), (0,)),
    ((float("nan"),), (False,), (False,), (0,)),
]  # fmt: skip


@pytest.mark.parametrize("sizes", BAD_SIZES, ids=repr)
def test_sizes_that_can_t_be_are_refused(sizes):
    with pytest.raises(ProtocolError, match=r"party 'shop' must tell, .* at step 'tree sizes'"):
        driven(Partnership.hear(ScriptedNet("bank", "shop", (SIZES, sizes)), "shop", 32, 8, ROWS, 0))


def partnership(*script):
    return Partnership(ScriptedNet("bank", "shop", *script), "shop", SIZES_OF_SHOP, 8, ROWS, 100)


PEOPLE = (ROWS + 100 + 7) // 8


@pytest.mark.parametrize(
    "sides",
    [None, b"", np.zeros((2, PEOPLE), np.uint8), np.zeros((1, PEOPLE - 1), np.uint8), np.zeros((1, PEOPLE)),
     np.full((1, PEOPLE), np.nan), np.zeros(PEOPLE, np.uint8), np.zeros((0, PEOPLE), np.uint8)],
)  # fmt: skip
def test_sides_of_another_shape_are_refused(sides):
    with pytest.raises(ProtocolError, match=r"shop.*'tree sides'"):
        driven(partnership((SIDES, sides)).open([(0, up_to(4))]))


def test_sides_that_contradict_each_other_are_refused():
    left, right = np.full((1, PEOPLE), 255, np.uint8), np.zeros((1, PEOPLE), np.uint8)
    one = partnership((SIDES, left), (SIDES, right))
    driven(one.open([(0, up_to(4))]))
    with pytest.raises(ProtocolError, match="party 'shop' sent sides that contradict those before, at step"):
        driven(one.open([(0, up_to(9))]))  # up to 4, and beyond 9
    both = np.concatenate([left, left])
    with pytest.raises(ProtocolError, match="contradict"):
        driven(partnership((SIDES, both)).open([(1, up_to(4))]))  # missing, on the side of values


def test_other_sides_change_the_model_and_nothing_else():
    """A partner that lies is believed, where it could have been true."""
    lie = np.random.default_rng(0).integers(0, 256, (1, PEOPLE)).astype(np.uint8)
    one = partnership((SIDES, lie))
    driven(one.open([(0, up_to(4))]))
    assert set(np.unique(one.codes[0])) == {0, 4}
    assert not one.codes[1:].any()


def questions(*script):
    one = Partnership(ScriptedNet("bank", "shop"), "shop", SIZES_OF_SHOP, 8, ROWS, 0)
    net = ScriptedNet("bank", "shop", *script)
    return Questions(net, [one], ROWS, 7, (NOISE, NOISE))


@pytest.mark.parametrize("hint", [None, b"", bytes(100), "x", np.zeros(5)])
def test_hints_of_another_size_are_refused(hint):
    with pytest.raises(ProtocolError, match=r"party 'shop' must send 897024 bytes for 73 cells at step 'tree hint'"):
        driven(questions((HINT, hint)).prepare())


@pytest.mark.parametrize("answer", [None, b"", bytes(73 * 8 - 1), bytes(2 * 73 * 8), np.zeros(73)])
def test_answers_of_another_size_are_refused(answer):
    one = questions((HINT, bytes(73 * 2048 * 6)), (ANSWER, answer))
    driven(one.prepare())
    with pytest.raises(ProtocolError, match=r"party 'shop' must answer in 584 bytes at step 'tree answer'"):
        driven(one.ask([np.arange(500)], np.ones(ROWS), np.ones(ROWS)))


def test_a_hint_and_answers_that_are_noise_are_finite_sums_and_at_worst_useless_cuts():
    rng = np.random.default_rng(0)
    one = questions((HINT, rng.bytes(73 * 2048 * 6)), (ANSWER, rng.bytes(73 * 8)))
    driven(one.prepare())
    sums = driven(one.ask([np.arange(500)], np.ones(ROWS), np.ones(ROWS)))[0]
    assert np.isfinite(sums["shop"].G).all()
    assert np.isfinite(sums["shop"].H).all()
    found = one.worthwhile(sums, 1.0, 1.0, None)
    assert found is None or found[1].cut.shape == (CELLS[found[1].column],)


# -- predictions -------------------------------------------------------------------------------------------------------


def scored(known, seed=1):
    """What a partner tells of people, of whom it knows some, and the ranges of its columns."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((4000, 4))
    y = (X.sum(axis=1) + rng.logistic(size=4000) > 0).astype(int)
    model = cn.BoostedTreesClassifier(trees=5, verbose=0)
    model.fit(cn.Party("bank", X[:, :2], y), cn.Party("shop", X[:, 2:]))
    state = model._states["shop"]
    scorer = TreeScorer("shop", state)

    class Secure:
        net = ScriptedNet("shop", "bank")

    rows = np.flatnonzero(known)
    return scorer.ready(Secure, columns_from_value(np.ascontiguousarray(X[:, 2:])), rows, known), state[3]


def test_of_people_whom_a_partner_does_not_know_it_tells_random_ranges():
    """Uniform, and others every time: who asks twice sees it. That a party does not know somebody, it says anyway."""
    known = np.arange(4000) % 2 == 0
    first, ranges = scored(known)
    again, _ = scored(known)
    used = [one for one in ranges if one is not None]
    assert len(first) == len(used) > 0
    for told, more, one in zip(first, again, used, strict=True):
        choices = np.unique(one)
        assert np.array_equal(told[known], more[known])
        counts = np.array([(told[~known] == choice).sum() for choice in choices])
        even = (~known).sum() / len(choices)
        assert ((counts - even) ** 2 / even).sum() < len(choices) - 1 + 6 * np.sqrt(2 * len(choices))
        assert (told[~known] == more[~known]).mean() < 1 / len(choices) + 0.05
