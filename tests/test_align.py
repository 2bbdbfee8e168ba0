"""Alignment against Python's own sets, what it shows on the way, and what it does about parties that misbehave."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colonnade as cn
from colonnade.alignment import powers, protocol, role
from colonnade.alignment.protocol import align
from colonnade.crypto.group import Secret
from colonnade.data.ids import canonical, digests, pack
from colonnade.data.together import check_together
from colonnade.errors import (
    DataError,
    OptionError,
    PartyFailed,
    PartySilent,
    PolicyRefused,
    ProtocolError,
    TooFewInCommon,
    WrongShape,
)


async def aligned(net, ids, minimum=1, leader=None):
    return await align(net, ids, minimum=minimum, leader=leader)


def run(parties, on=None, **options):
    """{party: ids} -> {party: its rows}."""
    program = aligned if on is None else align
    programs = {name: (program, (ids, *options.values())) for name, ids in parties.items()}
    return {name: outcome.value for name, outcome in (on or cn.Simulation()).run(programs).items()}


def people(parties, rows):
    """{party: its rows} -> what each party takes for the common people, in their order."""
    return {name: [parties[name][row] for row in rows[name].tolist()] for name in parties}


def crowd(count, size, kind=str):
    """Parties of which each two, and each three, have people in common that not all have."""
    rng = np.random.default_rng(count)
    return {f"p{k}": tuple(map(kind, rng.permutation(size * 5 // 4)[: size - k].tolist())) for k in range(count)}


def test_the_module_lists_every_message_that_leaves_a_party():
    parties = crowd(3, 40)
    outcomes = cn.Simulation().run({name: (aligned, (ids,)) for name, ids in parties.items()})
    sent = {tag for outcome in outcomes.values() for tag in outcome.traffic.by_step}
    sent.discard("goodbye")  # the end of any program, which the runtime tells
    assert sent == set(re.findall(r"^ {4}(align \w+)", protocol.__doc__.partition("\n**obl")[0], re.MULTILINE))


# -- exactness ---------------------------------------------------------------------------------------------------------

word = st.text(st.sampled_from("ab01 \t\u00e9e\u0301\u2003"), max_size=3) | st.text(max_size=3)


def normal(text):
    return unicodedata.normalize("NFC", text).strip()


some_ids = st.lists(word.filter(normal), min_size=1, max_size=12, unique_by=normal)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(lists=st.lists(some_ids, min_size=2, max_size=4), leader=st.integers(0, 3))
def test_like_pythons_own_sets(lists, leader):
    parties = {f"p{k}": tuple(ids) for k, ids in enumerate(lists)}
    truth = set.intersection(*({normal(text) for text in ids} for ids in lists))
    options = {"minimum": 1, "leader": f"p{leader % len(lists)}"}
    if not truth:
        with pytest.raises(TooFewInCommon, match="no id in common"):
            run(parties, **options)
        return
    found = [[normal(text) for text in ids] for ids in people(parties, run(parties, **options)).values()]
    assert set(found[0]) == truth
    assert len(found[0]) == len(truth)
    assert all(ids == found[0] for ids in found)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("where", [None, cn.Processes()], ids=["simulation", "processes"])
def test_any_number_of_parties_anywhere(count, where):
    parties = crowd(count, 150)
    truth = set.intersection(*map(set, parties.values()))
    found = people(parties, run(parties, where))
    assert set(found["p0"]) == truth
    assert all(ids == found["p0"] for ids in found.values())


def test_numbers_and_text_meet():
    parties = {"a": np.arange(50), "b": tuple(f" {k}" for k in range(25, 75)), "c": np.arange(60, dtype=np.float64)}
    rows = run(parties)
    assert sorted(rows["a"].tolist()) == list(range(25, 50))
    assert (parties["c"][rows["c"]] == parties["a"][rows["a"]]).all()


def test_the_order_is_the_same_in_every_run_and_whatever_the_rows_and_the_leader():
    parties = crowd(3, 40)
    order = people(parties, run(parties))["p0"]
    turned = {name: ids[::-1] for name, ids in parties.items()}
    assert people(turned, run(turned))["p1"] == order
    assert people(parties, run(parties, None, minimum=1, leader="p2"))["p0"] == order
    by_digest = sorted(order, key=lambda text: digests(pack(canonical([text], "a")), slice(0, 1)).tobytes())
    assert order == by_digest


# -- what is sent ------------------------------------------------------------------------------------------------------


class Spy:
    """A `Net` that notes what its party sends."""

    def __init__(self, net, sent):
        self._net, self._sent = net, sent

    def __getattr__(self, name):
        return getattr(self._net, name)

    async def send(self, to, tag, value):
        self._sent.append((self._net.me, to, tag, value))
        await self._net.send(to, tag, value)


def overhear(parties, **options):
    """All messages of an alignment: (from, to, tag, value)."""
    sent = []

    async def spied(net, ids):
        return await align(Spy(net, sent), ids, **options)

    rows = cn.Simulation().run({name: (spied, (ids,)) for name, ids in parties.items()})
    return sent, {name: outcome.value for name, outcome in rows.items()}


def raw(value):
    if isinstance(value, tuple):
        return b"".join(map(raw, value))
    return value.tobytes() if isinstance(value, np.ndarray) else str(value).encode() if value is not None else b""


@pytest.mark.parametrize("count", [2, 4])
def test_no_id_no_digest_and_no_point_of_an_id_leaves_a_party(count):
    parties = {name: tuple(f"person {k}" for k in ids) for name, ids in crowd(count, 60).items()}
    sent, _ = overhear(parties)
    everything = b"".join(raw(value) for *_, value in sent)
    for ids in parties.values():
        hashed = digests(pack(canonical(ids, "a")), slice(0, len(ids)))
        for text, digest, point in zip(ids, hashed, Secret(1).mask_digests(hashed), strict=True):
            for telling in (text.encode(), digest[:16].tobytes(), digest[::-1][:16].tobytes(), point[:16].tobytes()):
                assert telling not in everything


def test_two_runs_have_nothing_in_common_but_their_result():
    parties = crowd(3, 30)
    (one, rows), (other, again) = overhear(parties), overhear(parties)
    assert all((rows[name] == again[name]).all() for name in parties)
    for step in ("align blinded", "align answer", "align table", "align key", "align common"):
        first, second = (
            [raw(value) for _, _, tag, value in sent if tag == step and not isinstance(value, (tuple, type(None)))]
            for sent in (one, other)
        )
        assert first
        chunks = [{text[at : at + 16] for text in texts for at in range(0, len(text), 16)} for texts in (first, second)]
        assert not chunks[0] & chunks[1], step


def test_followers_tell_each_other_nothing_but_keys_and_what_is_common():
    sent, _ = overhear(crowd(4, 30))
    assert {tag for frm, to, tag, _ in sent if "p0" not in (frm, to)} == {"align key", "align agreed"}
    assert {tag for frm, _, tag, _ in sent if frm == "p0"} == {
        "align size",
        "align blinded",
        "align common",
        "align agreed",
    }


def test_to_the_leader_ids_that_some_have_look_like_ids_that_nobody_has(monkeypatch):
    seen, hear = [], powers.PowersLeader.hear

    async def overheard(self, *args):
        keys, shares = await hear(self, *args)
        seen.append(shares[np.argsort(self.order)])
        return keys, shares

    monkeypatch.setattr(powers.PowersLeader, "hear", overheard)
    parties = {"a": tuple("uvwxyz"), "b": tuple("uvw"), "c": tuple("uvy")}
    rows = run(parties)
    assert {parties["a"][row] for row in rows["a"]} == {"u", "v"}
    (b, c), some = seen, slice(2, 6)  # w only b, y only c, x and z nobody
    assert not (b ^ c)[:2].any()
    assert (b ^ c)[some].all()
    words = np.concatenate([b.ravel(), c[some].ravel(), (b ^ c)[some].ravel()])
    assert words.all()
    assert len(np.unique(words)) == len(words)


def test_each_followers_share_of_an_id_is_random_and_all_together_are_none():
    async def shares(net, ids):
        role = powers.PowersFollower(net, pack(canonical(ids, "a")), 1, "leader")
        role.names[:] = digests(role.packed, slice(0, role.rows))[:, :16].copy().view(">u8")
        return role.shares(await role.agree_on_keys())

    async def idle(net):
        return None

    def draw():
        programs = {name: (shares, (tuple("uvwxyz"),)) for name in "bcd"}
        outcomes = cn.Simulation().run({"leader": (idle, ()), **programs})
        return [outcomes[name].value for name in "bcd"]

    b, c, d = draw()
    assert not (b ^ c ^ d).any()
    for one in (b, c, d, b ^ c, c ^ d):
        assert one.all()
        assert len(np.unique(one)) == 12
    assert not (draw()[0] == b).any()  # other keys in the next run


def test_messages_are_small_and_the_work_flows_in_chunks(monkeypatch):
    monkeypatch.setattr(powers, "CHUNK", 64)
    monkeypatch.setattr(role, "WORDS_CHUNK", 128)
    parties = crowd(3, 400)
    truth = set.intersection(*map(set, parties.values()))
    sent, rows = overhear(parties)
    assert {parties["p0"][row] for row in rows["p0"]} == truth
    assert max(len(raw(value)) for *_, value in sent) <= 64 * 32
    steps = [tag for frm, _, tag, _ in sent if frm == "p0" or tag == "align answer"]
    # The first answer comes before the last blinded chunk has left.
    assert steps.index("align answer") < len(steps) - 1 - steps[::-1].index("align blinded")


def test_no_wait_is_as_long_as_the_work(monkeypatch):
    """A party with fifty times the rows, four parties, one of them slow: each wait stays within a short deadline."""
    monkeypatch.setattr(powers, "CHUNK", 32)
    parties = {"a": tuple(map(str, range(40))), "b": tuple(map(str, range(2000))), "c": ("7", "8"), "d": ("8", "9")}
    on = cn.Simulation(speeds={"b": 0.5}, deadline=0.05, latency=1e-3)
    outcomes = on.run({name: (aligned, (ids,)) for name, ids in parties.items()})
    assert max(outcome.seconds for outcome in outcomes.values()) > 3 * 0.05
    assert [parties[name][outcomes[name].value[0]] for name in parties] == ["8"] * 4


def test_progress_is_reported():
    seen = []
    programs = {name: (aligned, (ids,)) for name, ids in crowd(3, 30).items()}
    cn.Simulation().run(programs, lambda party, _, value: seen.append((party, value)))
    last = dict(seen)
    assert last == {"p0": ("align", 90, 90), "p1": ("align", 59, 59), "p2": ("align", 58, 58)}


# -- what ends it ------------------------------------------------------------------------------------------------------


def test_an_empty_intersection_ends_it_clearly_at_every_party():
    parties = {"a": ("x", "y"), "b": ("y", "z"), "c": ("z", "x")}  # every two have somebody in common
    with pytest.raises(TooFewInCommon, match="the parties have no id in common; check that all") as caught:
        run(parties)
    assert [str(outcome.error) for outcome in caught.value.outcomes.values()] == [str(caught.value)] * 3


def test_too_few_end_it_with_the_largest_minimum_and_only_their_number_is_told():
    sent, told = [], "only 2 ids in common, and 3 are asked for"

    async def spied(net, ids, minimum):
        return await align(Spy(net, sent), ids, minimum=minimum)

    programs = {"a": (spied, (("x", "y", "z"), 1)), "b": (spied, (("w", "y", "z"), 3)), "c": (spied, (("y", "z"), 2))}
    with pytest.raises(TooFewInCommon, match=told) as caught:
        cn.Simulation().run(programs)
    assert all(told in str(outcome.error) for outcome in caught.value.outcomes.values())
    common = [value for frm, _, tag, value in sent if tag == "align common" and value is not None]
    assert common == [(2, 3)] * 2


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (("secret", "x", " secret", "x"), "party 'b': 2 ids occur more than once, in 4 rows"),
        (("x", None), "party 'b': 1 ids are missing"),
        ((), "party 'b': no ids were given"),
    ],
)
def test_unfit_ids_end_it_before_they_are_sent(ids, text):
    with pytest.raises(DataError, match=text) as caught:
        run({"a": ("x", "y"), "b": ids})
    assert "secret" not in str(caught.value)
    assert "secret" not in str(caught.value.outcomes["a"].error)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"minimum": 0}, "minimum must be a whole number >= 1, got 0"),
        ({"minimum": 1.5}, "minimum must be a whole number >= 1, got 1.5"),
        ({"minimum": 1, "leader": "zoe"}, "leader must be one of the parties 'p0', 'p1', got 'zoe'"),
    ],
)
def test_options_are_checked(options, text):
    with pytest.raises(OptionError, match=text):
        run(crowd(2, 5), **options)


def test_one_party_has_nobody_to_align_with():
    with pytest.raises(OptionError, match="two or more parties, got 1"):
        run({"a": ("x",)})


def test_two_leaders_are_found_out():
    programs = {"a": (aligned, (("x",), 1, "a")), "b": (aligned, (("x",), 1, "b"))}
    with pytest.raises(ProtocolError, match="takes 'b' for the leader of the alignment, party 'a' takes 'a'"):
        cn.Simulation().run(programs)


@pytest.mark.parametrize("victim", ["p0", "p1"])
def test_a_party_that_crashes_is_named(victim):
    on = cn.Simulation(faults=cn.Faults(crashes={victim: 0.003}), deadline=5)
    with pytest.raises((PartySilent, PartyFailed)) as caught:
        on.run({name: (aligned, (ids,)) for name, ids in crowd(3, 60).items()})
    assert caught.value.party == victim


# -- parties that misbehave --------------------------------------------------------------------------------------------


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
        return await align(Liar(net, step, change), ids)

    programs = {name: (lying if name == who else aligned, (ids,)) for name, ids in crowd(3, 20).items()}
    return cn.Simulation().run(programs)


def no_point(points):
    return np.zeros_like(points)


NONSENSE = {
    "size is text": ("p1", "align size", lambda value: "many", ProtocolError, "'p1' sent no number of ids"),
    "size is 0": ("p1", "align size", lambda value: (0, 1, "p0", 9), ProtocolError, "'p1' sent no number of ids"),
    "size is huge": (
        "p0",
        "align size",
        lambda value: (2**40, 1, "p0", 9),
        ProtocolError,
        "'p0' sent no number of ids",
    ),
    "size is true": ("p1", "align size", lambda value: (True, 1, "p0", 9), ProtocolError, "'p1' sent no number of ids"),
    "blinded too short": ("p0", "align blinded", lambda value: value[:-1], WrongShape, "p0 sent .*'align blinded'"),
    "blinded no point": ("p0", "align blinded", no_point, ProtocolError, "'p0' sent at step 'align blinded'.*no point"),
    "answer of bytes": ("p2", "align answer", lambda value: value.tobytes(), WrongShape, "p2 sent .*'align answer'"),
    "answer no point": ("p2", "align answer", no_point, ProtocolError, "'p2' sent at step 'align answer'.*no point"),
    "answer of words": ("p2", "align answer", lambda v: v.astype(np.uint64), WrongShape, "p2 sent .*'align answer'"),
    "key too short": ("p1", "align key", lambda value: value[:31], ProtocolError, "public key of party 'p1'"),
    "key of low order": ("p1", "align key", lambda value: bytes(32), ProtocolError, "public key of party 'p1'"),
    "table too short": ("p1", "align table", lambda value: value[:-1], WrongShape, "p1 sent .*'align table'"),
    "verdict is text": ("p0", "align common", lambda value: "all", ProtocolError, "'p0' did not say"),
    "verdict too many": (
        "p0",
        "align common",
        lambda v: (99, 1) if type(v) is tuple else v,
        ProtocolError,
        "that 99 ids",
    ),
    "minimum ignored": (
        "p0",
        "align common",
        lambda v: (1, 0) if type(v) is tuple else v,
        ProtocolError,
        "0 are asked",
    ),
    "an id that is not there": (
        "p0",
        "align common",
        lambda v: v if type(v) is tuple else v ^ np.uint64(1),
        ProtocolError,
        "'p0' named a common id.*does not have",
    ),
    "an id twice": (
        "p0",
        "align common",
        lambda v: v if type(v) is tuple else np.repeat(v[:1], len(v), axis=0),
        ProtocolError,
        "named one twice",
    ),
    "another order": (
        "p0",
        "align common",
        lambda v: v if type(v) is tuple else v[::-1],
        ProtocolError,
        "believes that other ids are common",
    ),
    "agreed is an array": ("p1", "align agreed", lambda value: np.zeros(3), ProtocolError, "'p1' believes that other"),
}


@pytest.mark.parametrize(("who", "step", "change", "kind", "text"), NONSENSE.values(), ids=NONSENSE.keys())
def test_what_no_honest_party_sends_is_refused_by_name(who, step, change, kind, text):
    with pytest.raises(kind, match=text):
        with_a_liar(who, step, change)


def test_a_table_before_its_time_is_refused():
    class Hasty(Spy):
        async def send(self, to, tag, value):
            table = tag == "align table" and value is None
            await self._net.send(to, tag, np.zeros((1, 2), np.uint64) if table else value)

    async def hasty(net, ids):
        return await align(Hasty(net, []), ids)

    programs = {name: (hasty if name == "p1" else aligned, (ids,)) for name, ids in crowd(2, 20).items()}
    with pytest.raises(ProtocolError, match="'p1' sent its table before it had masked its ids"):
        cn.Simulation().run(programs)


def test_a_wrong_table_only_loses_rows_and_never_lets_a_stranger_in():
    noise = np.random.default_rng(0)
    with pytest.raises(TooFewInCommon):
        with_a_liar("p1", "align table", lambda value: noise.integers(0, 2**64, value.shape, np.uint64))


# -- keys that agree in their first half -------------------------------------------------------------------------------


def test_keys_that_begin_alike_are_told_apart():
    class Nobody:
        me, names = "b", ("a", "b")

    keys = np.array([[5, 3], [1, 9], [5, 1], [5, 2], [9, 0]], np.uint64)
    follower = powers.PowersFollower(Nobody(), (np.zeros(0, np.uint8), np.zeros(5, np.int64)), 1, "a")
    for wanted in ([0, 1, 2, 3, 4], [4, 2, 0], [3], []):
        assert follower.find(keys, keys[wanted]).tolist() == wanted
    for missing in ([[5, 4]], [[5, 0]], [[0, 0]], [[9, 1]], [[10, 10]]):
        with pytest.raises(ProtocolError, match="does not have"):
            follower.find(keys, np.array(missing, np.uint64))


# -- parties and their rows --------------------------------------------------------------------------------------------


def parties_with_rows():
    bank = cn.Party("bank", np.arange(5.0)[:, None] * [1, -1], [0, 1, 0, 1, 1], ids=["e", "a", " b", "d", "c"])
    shop = cn.Party("shop", np.arange(4.0)[:, None] * [10, 7], ids=["b", "x", "e", "a"])
    return bank, shop


@pytest.mark.parametrize("where", [None, cn.Processes()], ids=["simulation", "processes"])
def test_parties_keep_their_common_rows_in_one_order(where):
    bank, shop = cn.align_parties(*parties_with_rows(), on=where, verbose=0)
    assert bank.ids.tolist() == shop.ids.tolist()
    assert set(bank.ids) == {"a", "b", "e"}
    values = {text: (bank.X[k, 0], bank.y[k], shop.X[k, 0]) for k, text in enumerate(bank.ids)}
    assert values == {"e": (0, 0, 20), "a": (1, 1, 30), "b": (2, 0, 0)}
    check_together([bank, shop])  # and `fit` takes them


def test_whoever_is_to_be_aligned_needs_ids():
    bank, shop = parties_with_rows()
    with pytest.raises(DataError, match="party 'shop' has no ids to align by; give them as Party"):
        cn.align_parties(bank, cn.Party("shop", np.zeros((3, 1))))
    with pytest.raises(OptionError, match="two or more parties"):
        cn.align_parties(bank)
    with pytest.raises(DataError, match="the name 'bank' is used by 2 parties"):
        cn.align_parties(bank, bank)
    with pytest.raises(OptionError, match="on must be a runtime"):
        cn.align_parties(bank, shop, on=cn.Processes)
    with pytest.raises(TooFewInCommon, match="only 3 ids in common, and 4 are asked for"):
        cn.align_parties(bank, shop, minimum=4, verbose=0)


def test_parties_that_are_not_aligned_are_told_how():
    bank, shop = parties_with_rows()
    with pytest.raises(DataError, match="align_parties finds them"):
        cn.LogisticRegression(verbose=0).fit(bank, shop)
    with pytest.raises(DataError, match="as align_parties does"):
        cn.LogisticRegression(verbose=0).fit(bank.take([0, 1]), cn.Party("shop", np.zeros((2, 1)), ids=["a", "e"]))


@pytest.mark.parametrize("guesser", ["shop", "bank"])
def test_a_party_that_brings_every_id_there_could_be_is_refused_before_anything_is_computed(guesser):
    """20,000 guesses against 469 customers: without a limit, they are all found."""
    customers = tuple(f"{number:05}" for number in np.random.default_rng(0).permutation(20_000)[:469])
    ids = {name: tuple(f"{n:05}" for n in range(20_000)) if name == guesser else customers for name in ("bank", "shop")}
    sent, most = [], {"bank": 10_000, "shop": 10_000, guesser: 2**31}

    async def spied(net, mine):
        return await align(Spy(net, sent), mine, max_partner_ids=most[net.me])

    with pytest.raises(PolicyRefused) as caught:
        cn.Simulation().run({name: (spied, (mine,)) for name, mine in ids.items()})
    other = "bank" if guesser == "shop" else "shop"
    told = {name: str(outcome.error) for name, outcome in caught.value.outcomes.items()}
    assert told == {
        other: f"party {guesser!r} brings 20,000 ids to the alignment, party {other!r} takes 10,000 of a partner at "
        "most; ask why there are so many, and if that is right raise max_partner_ids in [policy]",
        guesser: f"party {guesser!r} brings 20,000 ids to the alignment, party {other!r} takes 10,000 of a partner at "
        "most; bring fewer, or ask it to raise max_partner_ids in its [policy]",
    }
    assert {tag for _, _, tag, _ in sent} == {"align size"}


def test_every_follower_limits_the_leader_and_the_leader_every_follower():
    """What one follower brings counts only where the leader has it too, so these limits are enough."""
    for few, many in (("b", "a"), ("c", "a"), ("a", "b"), ("a", "c")):

        async def limited(net, mine, few=few):
            return await align(net, mine, max_partner_ids=3 if net.me == few else 2**31)

        ids = {name: tuple("uvwxyz") if name == many else tuple("uvw") for name in "abc"}
        with pytest.raises(PolicyRefused, match=f"party '{many}' brings 6 ids to the alignment, party '{few}' takes 3"):
            cn.Simulation().run({name: (limited, (mine,)) for name, mine in ids.items()})
