"""Partners that do not follow the program of an alignment: what they could find out, bring or hold up, and can't."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

import colonnade as cn
from colonnade.alignment import powers, served, transfer
from colonnade.alignment.kept_tags import ServedIds
from colonnade.alignment.ordering import positions
from colonnade.alignment.protocol import align
from colonnade.crypto import oblivious_store
from colonnade.crypto.group import Secret
from colonnade.data.ids import canonical, pack
from colonnade.errors import ProtocolError, WrongShape

DH, OT, SERVED = "diffie-hellman", "oblivious-transfer", "served"


def numbers(*pieces):
    return tuple(f"person {k}" for piece in pieces for k in piece)


class Around:
    """A `Net` of which a party uses only a part as it is."""

    def __init__(self, net):
        self._net = net

    def __getattr__(self, name):
        return getattr(self._net, name)


class Liar(Around):
    """A `Net` whose party sends something else at some steps."""

    def __init__(self, net, lies):
        super().__init__(net)
        self._lies = lies

    async def send(self, to, tag, value):
        await self._net.send(to, tag, self._lies.get(tag, lambda value: value)(value))


def run(lists, folder, method, lies=None, who="b", around=Liar, secret="run"):
    """{party: its rows}; one of them is a cheat."""

    async def party(net, ids):
        cheats = around(net, lies or {}) if net.me == who else net
        return await align(cheats, ids, method=method, keep=str(folder / net.me) if method == SERVED else None)

    programs = {name: (party, (ids,)) for name, ids in lists.items()}
    return {name: outcome.value for name, outcome in cn.Simulation(secret=secret).run(programs).items()}


# -- in which part of the rows somebody stands -------------------------------------------------------------------------


@pytest.mark.parametrize("method", [DH, SERVED])
def test_who_raises_some_points_to_another_power_learns_nothing_of_the_order_of_rows(tmp_path, monkeypatch, method):
    """Of the points that were not raised as they should be none is found common: it is where they stood that shows."""
    monkeypatch.setattr(powers, "CHUNK", 20)
    monkeypatch.setattr(served, "CHUNK", 20)
    answers = count()

    def only_some(points):
        return points if next(answers) < 3 else Secret(2).mask_points(points, "b", "test")

    lists = {"a": numbers(range(100)), "b": numbers(range(300))}
    rows = run(lists, tmp_path, method, {"align answer": only_some})["a"]
    assert len(rows) == 60
    assert not set(range(60)) <= set(rows.tolist())


def test_the_order_of_blinded_ids_is_another_one_in_each_run(monkeypatch):
    drawn = []
    draw = powers.hidden_order

    def noted(*given):
        drawn.append(draw(*given))
        return drawn[-1]

    monkeypatch.setattr(powers, "hidden_order", noted)
    for secret in ("one", "other"):
        run({"a": numbers(range(50)), "b": numbers(range(50))}, None, DH, secret=secret)
    one, other = drawn  # of the leader alone
    assert sorted(one) == sorted(other) == list(range(50))
    assert one.tolist() != other.tolist()


@pytest.mark.parametrize("size", [16, 1 << 16])
def test_common_ids_are_not_named_in_the_order_of_the_leaders_rows(monkeypatch, size):
    """Who looks up each as it comes would have the order of rows: by income, say, or by the day of the contract."""
    monkeypatch.setattr(transfer, "BIN", size)
    heard, find = [], transfer.TransferFollower.find

    def noted(self, keys, told):
        heard.append(find(self, keys, told))
        assert told.tolist() == sorted(told.tolist())
        return heard[-1]

    monkeypatch.setattr(transfer.TransferFollower, "find", noted)
    lists = {"a": numbers(range(300)), "b": numbers(range(400))}  # both in the same order, so that places are, too
    rows = run(lists, None, OT)
    assert sum(map(len, heard)) == len(rows["a"]) == 300
    assert not all((np.diff(some) > 0).all() for some in heard)


# -- more ids than a party says that it has ----------------------------------------------------------------------------


@pytest.mark.parametrize("others", [(), ("c",)])
def test_a_follower_brings_no_more_ids_than_it_says(monkeypatch, others):
    """An oblivious store has room for more ids than it is for: for 256 of them where it is for one."""
    encode, guesses = oblivious_store.encode, 150

    def for_one(keys, values, *given):
        return encode(keys, values, 1) if len(keys) == guesses else encode(keys, values, *given)

    monkeypatch.setattr(oblivious_store, "encode", for_one)
    lists = {"a": numbers(range(50)), "b": numbers(range(guesses)), **{name: numbers(range(60)) for name in others}}
    lie = {"align size": lambda value: (1, *value[1:])}
    says = "'b' said at step 'align size' that it has 1 ids, and by its table .* it has 50 in common" if others else "b"
    with pytest.raises(ProtocolError if others else WrongShape, match=says):
        run(lists, None, DH, lie)


# -- into which bins somebody's ids fall -------------------------------------------------------------------------------


def test_bins_show_nothing_of_a_followers_ids(monkeypatch):
    """A list of guesses could be thinned out by the bins that are empty: what is sent does not tell which these are."""
    monkeypatch.setattr(transfer, "BIN", 4)
    bins, sent = transfer.bins_of(200)[0], []

    class Spy(Around):
        def __init__(self, net, _):
            super().__init__(net)

        async def send(self, to, tag, value):
            sent[-1].append((tag, getattr(value, "shape", type(value))))
            await self._net.send(to, tag, value)

    for secret in "xyz":
        sent.append([])
        run({"a": numbers(range(200)), "b": numbers(range(195, 205))}, None, OT, around=Spy, secret=secret)
    assert sent[0] == sent[1] == sent[2]
    assert sent[0].count(("align challenge", bytes)) == bins == 50
    assert sum(tag == "align challenge" for tag, _ in sent[0]) == bins + 1  # a sign of life, while it hashes its ids


# -- what never ends ---------------------------------------------------------------------------------------------------


class Lively(Around):
    """A `Net` whose party sends signs of life for ever in place of what it should say at a step."""

    def __init__(self, net, step):
        super().__init__(net)
        self._step = step

    async def send(self, to, tag, value):
        if tag == self._step and value is not None:
            for _ in range(10_000):
                await self._net.send(to, tag, None)
        await self._net.send(to, tag, value)


@pytest.mark.parametrize(
    ("method", "who", "step"),
    [
        (DH, "a", "align common"),
        (OT, "b", "align challenge"),
        (OT, "a", "align columns"),
        (OT, "b", "align values"),
        (OT, "a", "align common"),
        (SERVED, "b", "align set"),
        (SERVED, "a", "align common"),
    ],
)
def test_signs_of_life_do_not_go_on_for_ever(tmp_path, method, who, step):
    with pytest.raises(ProtocolError, match=f"'{who}' sent more than .* signs of life at step '{step}'"):
        run({"a": numbers(range(30)), "b": numbers(range(20, 60))}, tmp_path, method, step, who, Lively)


def test_keys_that_all_begin_alike_cost_no_more_than_others():
    looks = count()

    class Counted(np.ndarray):
        def __getitem__(self, at):
            next(looks)
            return np.asarray(super().__getitem__(at))

    keys = np.zeros((5000, 2), np.uint64)
    keys[:, 1] = np.arange(5000)
    wanted = np.array([[0, 4999], [0, 17], [0, 9999], [1, 0]], np.uint64)
    places, there = positions(keys, np.arange(5000).view(Counted), wanted)
    assert there.tolist() == [True, True, False, False]
    assert places[:2].tolist() == [4999, 17]
    assert next(looks) < 50


# -- two runs in one folder --------------------------------------------------------------------------------------------


def test_a_run_with_other_ids_takes_nothing_away_from_one_that_is_on_its_way(tmp_path):
    """It makes a key of its own in the folder as soon as it may; whoever has tags by then has their rows, too."""
    lists = [pack(canonical(numbers(ids), "b")) for ids in (range(50), range(50, 100))]
    orders = []
    for ids in lists:
        kept = ServedIds(tmp_path, ids)
        kept.done()
        rng = np.random.default_rng(len(orders))
        kept.add(rng.integers(0, 2**64, 50, np.uint64), np.zeros(50, np.uint16))
        kept.finish()
        orders.append((kept, kept.rows_of(np.arange(50)).tolist()))
        kept.release()
    assert orders[0][1] != orders[1][1]
    for kept, order in orders:
        assert kept.rows_of(np.arange(50)).tolist() == order


def test_rows_of_tags_that_were_kept_stay_those_of_the_run_that_opened_them(tmp_path):
    first = pack(canonical(numbers(range(50)), "b"))
    kept = ServedIds(tmp_path, first)
    kept.done()
    kept.add(np.random.default_rng(0).integers(0, 2**64, 50, np.uint64), np.zeros(50, np.uint16))
    kept.finish()
    kept.release()
    again = ServedIds(tmp_path, first)
    assert again.tags() is not None
    again.release()
    ServedIds(tmp_path, pack(canonical(numbers(range(40)), "b"))).release()  # which removes what was there
    assert not (tmp_path / "rows").exists()
    assert sorted(again.rows_of(np.arange(50)).tolist()) == list(range(50))
