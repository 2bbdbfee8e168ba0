"""The alignment by oblivious transfer: the same result as by powers, what it shows, and parties that misbehave."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colonnade as cn
from colonnade.alignment import protocol, transfer
from colonnade.alignment.ordering import Ordered, by_number, in_order, positions
from colonnade.alignment.protocol import align, align_packed
from colonnade.alignment.transfer import TransferLeader, bins_of, room_of
from colonnade.crypto import oblivious_store
from colonnade.crypto.group import hashed
from colonnade.crypto.transfers import Chooser, coded, rows_of
from colonnade.data.ids import canonical, digests, pack
from colonnade.errors import OptionError, PolicyRefused, ProtocolError, TooFewInCommon, WrongShape

OT, DH = "oblivious-transfer", "diffie-hellman"


def run(lists, on=None, minimum=1, leader="a", method=OT):
    """{party: its rows} of parties a and b with these ids."""
    packed = {name: pack(canonical(list(ids), name)) for name, ids in zip("ab", lists, strict=True)}
    programs = {name: (align_packed, (*ids, minimum, leader, 2**31, method)) for name, ids in packed.items()}
    return {name: outcome.value for name, outcome in (on or cn.Simulation()).run(programs).items()}


def common(lists, **options):
    """The ids that both found, which must be the same in the same order."""
    rows = run(lists, **options)
    found = [[ids[row] for row in rows[name].tolist()] for name, ids in zip("ab", lists, strict=True)]
    assert found[0] == found[1]
    return found[0]


def numbers(*pieces, prefix="person "):
    return tuple(f"{prefix}{k}" for piece in pieces for k in piece)


def test_the_module_lists_every_message_of_this_form():
    outcomes = cn.Simulation().run({name: (told_to_align, (tuple("xyz"),)) for name in "ab"})
    sent = {tag for outcome in outcomes.values() for tag in outcome.traffic.by_step} - {"goodbye"}
    listed = protocol.__doc__.partition("\n**oblivious-transfer**")[2].partition("\n**served**")[0]
    assert sent == set(re.findall(r"^ {4}(align \w+)", listed, re.MULTILINE))


async def told_to_align(net, ids, method=OT):
    return await align(net, ids, method=method)


# -- exactness ---------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(
    lists=st.tuples(*[st.lists(st.integers(0, 30), min_size=1, max_size=25, unique=True)] * 2),
    leader=st.sampled_from("ab"),
)
def test_like_pythons_own_sets(lists, leader):
    texts = [numbers(ids) for ids in lists]
    truth = set(texts[0]) & set(texts[1])
    if not truth:
        with pytest.raises(TooFewInCommon, match="no id in common"):
            run(texts, leader=leader)
        return
    found = common(texts, leader=leader)
    assert set(found) == truth
    assert len(found) == len(truth)


CASES = {
    "one id, the same": (numbers(range(1)), numbers(range(1))),
    "one of many": (numbers(range(7, 8)), numbers(range(600))),
    "many, and one": (numbers(range(600)), numbers(range(7, 8))),
    "all": (numbers(range(500)), numbers(range(499, -1, -1))),
    "some": (numbers(range(1000)), numbers(range(500, 1800))),
    "the last one": (numbers(range(400)), numbers(range(399, 799))),
}


@pytest.mark.parametrize("lists", CASES.values(), ids=CASES.keys())
def test_the_same_rows_in_the_same_order_by_both_forms(lists):
    found = common(lists)
    assert set(found) == set(lists[0]) & set(lists[1])
    by_powers = run(lists, method=DH)
    by_transfer = run(lists)
    for name in "ab":
        assert by_transfer[name].tolist() == by_powers[name].tolist()


def test_the_same_in_processes():
    lists = numbers(range(6000)), numbers(range(3000, 10_000))
    assert set(common(lists, on=cn.Processes(), leader="b")) == set(numbers(range(3000, 6000)))


@pytest.mark.parametrize("leader", ["a", "b"])
@pytest.mark.parametrize("many", [400, 1 << 25], ids=["names made twice", "names kept"])
def test_ids_in_many_bins(monkeypatch, leader, many):
    for name, small in (("MANY", many), ("BIN", 64), ("CHUNK", 100), ("_VALUES", 15)):
        monkeypatch.setattr(transfer, name, small)
    lists = numbers(range(700)), numbers(range(500, 800))
    assert bins_of(700)[0] == 11
    assert set(common(lists, leader=leader)) == set(numbers(range(500, 700)))
    few = numbers(range(650, 900, 50)), lists[0]  # some bins have none of the leader's ids, or none of the follower's
    assert set(common(few, leader=leader)) == {"person 650"}


def test_disjoint_sets_and_too_few_end_it_at_both_and_only_the_number_is_told():
    with pytest.raises(TooFewInCommon, match="no id in common"):
        run((numbers(range(900)), numbers(range(900, 1800))))
    sent = []

    async def spied(net, ids):
        return await align(Spy(net, sent), ids, minimum=30, method=OT)

    with pytest.raises(TooFewInCommon, match="only 20 ids in common, and 30 are asked for"):
        cn.Simulation().run({"a": (spied, (numbers(range(100)),)), "b": (spied, (numbers(range(80, 200)),))})
    assert [value for _, tag, value in sent if tag == "align common" and value is not None] == [(20, 30)]


def test_a_bin_has_room_for_whatever_falls_into_it():
    """Bernstein's bound against the binomial tail itself, summed exactly."""
    from math import exp, lgamma, log, log1p

    for rows in (70_000, 1_000_000, 10_000_000):
        bins, most = bins_of(rows)
        assert rows / bins <= transfer.BIN
        assert most < 1.05 * rows / bins

        def logarithm(k, rows=rows, bins=bins):
            choose = lgamma(rows + 1) - lgamma(k + 1) - lgamma(rows - k + 1)
            return choose - k * log(bins) + (rows - k) * log1p(-1 / bins)

        tail = sum(exp(logarithm(k)) for k in range(most + 1, most + 2000))
        assert bins * tail < 2**-40
    assert bins_of(5) == (1, 5)
    assert bins_of(65_536) == (1, 65_536)
    assert room_of(1000) == oblivious_store.rows(1000) < 1.3 * 1000 + 400


# -- which form, and that both agree on it -----------------------------------------------------------------------------


def steps(sizes, method="auto", most=2**31, parties="ab"):
    """The kinds of messages that leave parties with so many common ids."""
    kinds = set()

    async def party(net, count):
        await align(net, tuple(numbers(range(count))), max_partner_ids=most, method=method)
        return tuple(net.traffic.by_step)

    outcomes = cn.Simulation().run({name: (party, (size,)) for name, size in zip(parties, sizes, strict=True)})
    for outcome in outcomes.values():
        kinds |= set(outcome.value)
    return kinds


def test_auto_takes_transfers_for_two_parties_with_some_thousand_ids():
    assert "align blinded" in steps((50, 60))
    assert "align columns" in steps((3000, 2000))
    assert "align columns" in steps((50, 60), OT)
    assert "align blinded" in steps((3000, 2000), DH)
    assert "align blinded" in steps((40, 30, 20), parties="abc")


def test_the_room_that_a_cheat_would_have_counts_against_the_most_that_a_partner_may_bring():
    assert "align blinded" in steps((3000, 3000), most=4000)  # there is room for 4286
    assert "align columns" in steps((3000, 3000), most=5000)
    with pytest.raises(PolicyRefused, match=r"'a', which brings 3,000 ids .* room for 4,286 .* party 'b' takes 4,000"):
        steps((3000, 3000), OT, most=4000)


def test_both_have_to_take_the_same_method():
    programs = {"a": (told_to_align, (tuple("xy"), OT)), "b": (told_to_align, (tuple("xy"), DH))}
    with pytest.raises(ProtocolError, match=r"aligns with the method '.*', party '.*' with '.*'; give the same"):
        cn.Simulation().run(programs)


def test_methods_are_checked():
    ids = np.arange(3)
    one, two, three = (cn.Party(name, np.zeros((3, 1)), ids=ids) for name in "abc")
    with pytest.raises(OptionError, match="method must be one of 'auto', 'oblivious-transfer', 'diffie-hellman', 'ser"):
        cn.align_parties(one, two, method="rsa", verbose=0)
    with pytest.raises(OptionError, match="aligns two parties, and there are 3; leave method out, or give 'diffie-h"):
        cn.align_parties(one, two, three, method=OT, verbose=0)
    found = [cn.align_parties(one, two, method=method, verbose=0)[1].ids.tolist() for method in (OT, DH)]
    assert found[0] == found[1]


# -- what is sent ------------------------------------------------------------------------------------------------------


class Spy:
    """A `Net` that notes what its party sends."""

    def __init__(self, net, sent):
        self._net, self._sent = net, sent

    def __getattr__(self, name):
        return getattr(self._net, name)

    async def send(self, to, tag, value):
        self._sent.append((self._net.me, tag, value))
        await self._net.send(to, tag, value)


def overhear(lists, on=None):
    sent = []

    async def spied(net, ids):
        return await align(Spy(net, sent), ids, method=OT)

    (on or cn.Simulation()).run({name: (spied, (ids,)) for name, ids in zip("ab", lists, strict=True)})
    return sent


def raw(value):
    if isinstance(value, tuple):
        return b"".join(map(raw, value))
    return value.tobytes() if isinstance(value, np.ndarray) else value if isinstance(value, bytes) else b""


def test_no_id_and_no_digest_leaves_a_party():
    lists = numbers(range(300)), numbers(range(150, 450))
    everything = b"".join(raw(value) for *_, value in overhear(lists))
    assert len(everything) > 100_000
    for ids in lists:
        hashes = digests(pack(canonical(ids, "a")), slice(0, len(ids)))
        for text, digest in zip(ids, hashes, strict=True):
            for telling in (text.encode(), digest[:8].tobytes(), digest[:16][::-1][:8].tobytes()):
                assert telling not in everything


def test_two_runs_have_nothing_in_common_but_their_result_unless_secrets_are_given():
    lists = numbers(range(200)), numbers(range(100, 300))
    one, other = (overhear(lists, cn.Simulation(secret=f"run {k}")) for k in range(2))
    for step in ("align offer", "align reply", "align columns", "align check", "align values"):
        pieces = [
            {
                text[at : at + 12]
                for _, tag, value in sent
                if tag == step
                for text in [raw(value)]
                for at in range(0, len(text), 12)
            }
            for sent in (one, other)
        ]
        assert pieces[0]
        assert not pieces[0] & pieces[1], step
    again = [b"".join(raw(value) for *_, value in overhear(lists, cn.Simulation(secret="run"))) for _ in range(2)]
    assert again[0] == again[1]  # what is drawn hangs on nothing but the secret


def test_values_leave_in_an_order_of_their_own_and_after_all_checks(monkeypatch):
    monkeypatch.setattr(transfer, "BIN", 64)
    sent = overhear((numbers(range(300)), numbers(range(100, 500))))
    tags = [tag for _, tag, value in sent if value is not None]
    assert tags.count("align check") == 5
    assert tags.index("align values") > len(tags) - 1 - tags[::-1].index("align check")
    (values,) = [value for _, tag, value in sent if tag == "align values" and value is not None]
    first = values[:, 0] | values[:, 1].astype(np.uint64) << np.uint64(32)
    assert (np.diff(first.astype(object)) > 0).all()  # sorted, so that it says nothing about the follower's rows


def test_no_wait_is_as_long_as_the_work(monkeypatch):
    for name in ("BIN", "CHUNK"):
        monkeypatch.setattr(transfer, name, 512)
    for few, many, leader in ((40, 6000, "a"), (40, 6000, "b"), (6000, 6000, "a")):
        on = cn.Simulation(speeds={"b": 0.5}, deadline=0.02, latency=1e-4)
        packed = {name: pack(canonical(numbers(range(size)), name)) for name, size in (("a", few), ("b", many))}
        programs = {name: (align_packed, (*ids, 1, leader, 2**31, OT)) for name, ids in packed.items()}
        outcomes = on.run(programs)
        assert max(outcome.seconds for outcome in outcomes.values()) > 2 * 0.02
        assert len(outcomes["a"].value) == few


def test_progress_is_reported():
    seen = {}
    programs = {name: (told_to_align, (numbers(range(size)),)) for name, size in (("a", 100), ("b", 70))}
    cn.Simulation().run(programs, lambda party, _, value: seen.update({party: value}))
    assert seen == {"a": ("align", 200, 200), "b": ("align", 140, 140)}


# -- attacks -----------------------------------------------------------------------------------------------------------


def test_guesses_cannot_be_tried_against_what_the_leader_has_seen(monkeypatch):
    """The leader knows t, the table and all values of the follower, and still cannot make the value of another id.

    With s, the follower's secret, the same computation finds every id: it is s alone that is missing.
    """
    kept, secrets = {}, {}
    choose, look = Chooser.choose, transfer.RowKeeper.take

    def noted(self, words):
        own, told = choose(self, words)
        kept.update(own=own, words=words)
        return own, told

    def taken(self, told):
        secrets.update(s=self.secret)
        return look(self, told)

    monkeypatch.setattr(Chooser, "choose", noted)
    monkeypatch.setattr(transfer.RowKeeper, "take", taken)
    leaders, run_of = numbers(range(200)), TransferLeader.into_bins

    async def keep(self, *args):
        await run_of(self, *args)
        kept.update(keys=(self.key_of_keys, self.key_of_words))

    monkeypatch.setattr(TransferLeader, "into_bins", keep)
    followers = numbers(range(150, 350))
    (told,) = [value for _, tag, value in overhear((leaders, followers)) if tag == "align values" and value is not None]
    told = {row.tobytes() for row in told}

    def hits(guesses, secret):
        """How many values of guessed ids are among those that were told."""
        names = (
            digests(pack(canonical(guesses, "a")), slice(0, len(guesses)))[:, :16].copy().view(">u8").astype(np.uint64)
        )
        keys, choices = (transfer._mixed(names, key) for key in kept["keys"])
        size = oblivious_store.rows(len(leaders))
        places = oblivious_store.slots(keys, len(leaders))
        rows = oblivious_store.find(rows_of(kept["own"])[:size], places, keys)
        stored = oblivious_store.find(kept["words"][:size], places, keys)
        rows ^= coded(stored ^ choices) & secret
        prints = hashed(np.concatenate([names, rows], axis=1), transfer._TAG)
        values = np.ascontiguousarray(prints.view(np.uint32)[:, :3])
        return sum(row.tobytes() in told for row in values)

    none = np.zeros(10, np.uint64)
    assert hits(leaders, none) == 50  # its own ids: the table holds their choices, and s plays no part
    assert hits(followers[50:], none) == 0
    assert hits(followers[50:], secrets["s"]) == 150
    nearly = secrets["s"].copy()
    nearly[:2] ^= np.frombuffer(b"\xff" * 16, np.uint64)  # 128 of 624 bits are not known
    assert hits(followers[50:], nearly) == 0


def test_a_leader_can_not_name_an_id_that_only_the_follower_has():
    """It saw 96 bits of each value, and has to show others, which it can make of its own ids alone."""
    values = {}

    class Naming(Spy):
        async def recv(self, frm, tag, **options):
            value = await self._net.recv(frm, tag, **options)
            if tag == "align values" and value is not None:
                values["told"] = value
            return value

        async def send(self, to, tag, value):
            if tag == "align common" and isinstance(value, np.ndarray):
                named = values["told"][: len(value)]
                value = np.zeros((len(named), 2), np.uint64)
                value[:, 0] = named[:, 0] | named[:, 1].astype(np.uint64) << np.uint64(32)
                value[:, 1] = named[:, 2]
            await self._net.send(to, tag, value)

    async def naming(net, ids):
        return await align(Naming(net, []), ids, method=OT)

    with pytest.raises(ProtocolError, match=r"'a' named a common id.*does not have"):
        cn.Simulation().run({"a": (naming, (numbers(range(50)),)), "b": (told_to_align, (numbers(range(40, 90)),))})


class Liar(Spy):
    """A `Net` whose party sends something else at one step."""

    def __init__(self, net, step, change):
        super().__init__(net, [])
        self._step, self._change = step, change

    async def send(self, to, tag, value):
        lie = tag == self._step and value is not None
        await self._net.send(to, tag, self._change(value) if lie else value)


def with_a_liar(who, step, change):
    async def lying(net, ids):
        return await align(Liar(net, step, change), ids, method=OT)

    lists = {"a": numbers(range(40)), "b": numbers(range(20, 70))}
    programs = {name: (lying if name == who else told_to_align, (ids,)) for name, ids in lists.items()}
    return cn.Simulation().run(programs)


def no_tuple(change):
    return lambda value: value if type(value) is tuple else change(value)


NONSENSE = {
    "no method": ("b", "align size", lambda v: v[:4], ProtocolError, "'b' sent no number of ids"),
    "offer too short": ("b", "align offer", lambda v: v[:-1], WrongShape, "b sent .*'align offer'"),
    "offer of words": ("b", "align offer", lambda v: v.astype(np.uint64), WrongShape, "b sent .*'align offer'"),
    "reply too short": ("a", "align reply", lambda v: v[1:], WrongShape, "a sent .*'align reply'"),
    "reply no point": ("a", "align reply", np.zeros_like, ProtocolError, "'a' sent at step 'align reply'.*no point"),
    "columns too few": ("a", "align columns", lambda v: v[1:], WrongShape, "a sent .*'align columns'"),
    "columns too long": ("a", "align columns", lambda v: np.hstack([v, v]), WrongShape, "a sent .*'align columns'"),
    "columns of text": ("a", "align columns", lambda v: "all", WrongShape, "a sent .*'align columns'"),
    "other columns": ("a", "align columns", lambda v: v ^ np.uint64(1), ProtocolError, "'a' failed the check of its"),
    "challenge of 9 bytes": ("b", "align challenge", lambda v: v + b"x", ProtocolError, "'b' sent no 8 bytes at step"),
    "challenge a number": ("b", "align challenge", lambda v: 5, ProtocolError, "'b' sent no 8 bytes at step"),
    "another challenge": ("b", "align challenge", lambda v: v[::-1], ProtocolError, "'a' failed the check of its col"),
    "check of one": ("a", "align check", lambda v: v[:1], ProtocolError, "'a' sent no two arrays at step"),
    "check too short": ("a", "align check", lambda v: (v[0][1:], v[1]), WrongShape, "a sent .*'align check'"),
    "check of other words": ("a", "align check", lambda v: (v[0], v[1][::-1]), ProtocolError, "'a' failed the check"),
    "values too few": ("b", "align values", lambda v: v[1:], WrongShape, "b sent .*'align values'"),
    "values of bytes": ("b", "align values", lambda v: v.tobytes(), WrongShape, "b sent .*'align values'"),
    "values in disorder": ("b", "align values", lambda v: v[::-1], ProtocolError, "'b' sent values in disorder at"),
    "verdict too many": ("a", "align common", lambda v: (99, 1) if type(v) is tuple else v, ProtocolError, "that 99"),
    "a common id too few": ("a", "align common", no_tuple(lambda v: v[1:]), ProtocolError, "told 1 common ids too few"),
    "an id twice": ("a", "align common", no_tuple(lambda v: np.repeat(v[:1], len(v), 0)), ProtocolError, "one twice"),
    "common as text": ("a", "align common", no_tuple(lambda v: "all"), ProtocolError, "'a' sent no 20 ids or fewer"),
    "too many common": ("a", "align common", no_tuple(lambda v: np.vstack([v, v])), ProtocolError, "no 20 ids or f"),
    "common of three": ("a", "align common", no_tuple(lambda v: v[:, :1]), WrongShape, "a sent .*'align common'"),
}  # fmt: skip


@pytest.mark.parametrize(("who", "step", "change", "kind", "text"), NONSENSE.values(), ids=NONSENSE.keys())
def test_what_no_honest_party_sends_is_refused_by_name(who, step, change, kind, text):
    with pytest.raises(kind, match=text):
        with_a_liar(who, step, change)


def test_who_speaks_before_its_turn_is_refused_by_name(monkeypatch):
    """Each waits for the other one every few messages; there comes nothing that says anything."""
    for name, small in (("BIN", 2), ("_VALUES", 2)):
        monkeypatch.setattr(transfer, name, small)

    class Early(Spy):
        async def send(self, to, tag, value):
            early = (
                value is None and tag == self.step and self._net.traffic.by_step.get("align columns", (99,))[0] >= 20
            )
            await self._net.send(to, tag, 5 if early else value)

    for who, step in (("a", "align common"), ("b", "align values")):

        async def early(net, ids, step=step):
            spy = Early(net, [])
            spy.step = step
            return await align(spy, ids, method=OT)

        lists = {"a": numbers(range(60)), "b": numbers(range(20, 70))}
        programs = {name: (early if name == who else told_to_align, (ids,)) for name, ids in lists.items()}
        with pytest.raises((ProtocolError, WrongShape), match=f"'?{who}'? sent "):
            cn.Simulation().run(programs)


def test_wrong_values_only_lose_rows():
    rng = np.random.default_rng(0)

    def random(value):
        lie = rng.integers(0, 2**32, value.shape, np.uint32)
        lie[:, 1].sort()
        return lie

    with pytest.raises(TooFewInCommon):
        with_a_liar("b", "align values", random)
    twice = with_a_liar("b", "align values", lambda value: np.repeat(value[: len(value) // 2], 2, axis=0))
    assert len(twice["a"].value) == len(twice["b"].value) < 20


def test_places_of_rows_that_begin_alike():
    keys = np.array([[5, 3], [1, 9], [5, 1], [5, 2], [9, 0]], np.uint64)
    wanted = np.array([[5, 2], [5, 4], [9, 0], [0, 0], [5, 1]], np.uint64)
    found, there = positions(keys, np.lexsort((keys[:, 1], keys[:, 0])), wanted)
    assert there.tolist() == [True, False, True, False, True]
    assert found[there].tolist() == [3, 4, 2]
    assert not positions(keys[:0], np.zeros(0, np.int64), wanted)[1].any()


@pytest.mark.parametrize("size", [0, 1, 5, 3000])
@pytest.mark.parametrize("at_once", [64, 1 << 18])
def test_orders_are_those_of_a_sort_of_all_at_once(monkeypatch, size, at_once):
    monkeypatch.setattr("colonnade.alignment.ordering._AT_ONCE", at_once)
    rng = np.random.default_rng(size)
    words = rng.integers(0, 2**64, (size, 2), np.uint64)
    words[: size // 3, 0] = words[0, 0] if size else 0  # alike in their first half
    assert in_order(words).tolist() == np.lexsort((words[:, 1], words[:, 0])).tolist()
    known, low = Ordered(words[:, 0].copy(), words[:, 1].astype(np.uint32)), words.copy()
    low[:, 1] &= np.uint64(0xFFFFFFFF)
    wanted = np.vstack([low[::2], rng.integers(0, 2**64, (50, 2), np.uint64)])
    for step in (len(wanted), 5):  # a few among many are looked for in another way
        for at in range(0, len(wanted), step):
            places, there = known.find(wanted[at : at + step])
            assert there.tolist() == [at + k < len(low[::2]) for k in range(len(there))]
            assert (low[places[there]] == wanted[at : at + step][there]).all()
    numbers = rng.integers(0, 7, size).astype(np.uint16)
    order, starts = by_number(numbers, 7)
    assert order.tolist() == np.argsort(numbers, kind="stable").tolist()
    assert starts.tolist() == [0, *np.cumsum(np.bincount(numbers, minlength=7)).tolist()]
