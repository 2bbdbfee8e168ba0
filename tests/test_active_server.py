"""Servers of masked sums that do not follow the program: what each of them gets from members, which is nothing.

Every server here would read one member's value from what it is after. Where a check stands in its way, the test also
takes the check away and looks that the server succeeds then: else it would prove nothing.
"""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.crypto.masks import KeyPair, MaskStream, join_shares
from colonnade.data.identity import Identity
from colonnade.errors import DataError, OptionError, ProtocolError
from colonnade.sums import agreement, dropout
from colonnade.sums.dropout import Member, SumTerms, add_pair
from masked_sums import Sum, names_of

IDENTITIES = [Identity() for _ in range(7)]


def opened(run, victim, own, keys):
    """The victim's value, from shares of its b and of the keys of all that it is paired with."""
    value = run.seen[2][victim].copy()
    add_pair(value, MaskStream(join_shares(own, run.threshold)), plus=False)
    for other, shares in keys.items():
        stream = KeyPair(join_shares(shares, run.threshold)).agree(run.seen[0][victim][0], "victim")
        add_pair(value, stream, plus=not victim < other)
    return value


# -- who is left ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("members", "threshold"), [(6, 2), (6, 3), (2, 1), (10, 5), (7, 3)])
def test_members_take_part_in_no_sum_that_half_of_them_can_open(members, threshold):
    """Six members and threshold 2: told that 0, 1, 2 or that 3, 4, 5 are left, they hand in both shares of each."""
    with pytest.raises(ProtocolError, match=r"more than half of them|at least 2 members"):
        Sum(members, threshold)
    Sum(members, members // 2 + 1).run()


def test_half_of_a_roster_is_too_few_though_the_server_names_fewer_sites():
    roster = {f"site{k}": one.key for k, one in enumerate(IDENTITIES)}
    with pytest.raises(ProtocolError, match="a threshold of 3 among 7 sites; it must be more than half"):
        Member(0, SumTerms(names_of(4), 1, 3), KeyPair(), IDENTITIES[0], roster)
    Member(0, SumTerms(names_of(4), 1, 4), KeyPair(), IDENTITIES[0], roster)


def split_survivors(run):
    """Members are told that those around them are left: the shares of member 0 that the server collects."""
    run.masked()
    one, other = [0, 1, 2, 3], [3, 4, 5, 6]
    told = {k: one if k < 3 else other for k in range(7)}
    signed = {k: m.sign(told[k]) for k, m in run.members.items()}
    answers = {}
    for k, m in run.members.items():
        answers[k] = m.unmask({j: signed[j] for j in told[k] if j in signed})
    return answers


def test_two_halves_are_not_told_different_survivors(monkeypatch):
    run = Sum(7, 4)
    with pytest.raises(ProtocolError, match="member 3 did not sign the survivors that this site was told"):
        split_survivors(run)
    monkeypatch.setattr(dropout, "check_left", lambda *args: None)
    run = Sum(7, 4)
    of_own = [answer[0] == run.members[k]._held[0][1] for k, answer in split_survivors(run).items()]
    assert of_own == [True] * 3 + [False] * 4  # both kinds of shares go out, of one member: four of them are its key


def hidden_letters(run):
    """2t > n alone is not enough. Member 0 is shown the letters of 1, 2 and 3 only, and others hear that these died.

    Every member gives one share of each: those of 0's own mask, and those of the keys of 1, 2 and 3, which are all that
    hide its value. Each is told of as many survivors as it wants, itself among them.
    """
    told = run.server.keys(run.answers(0, lambda m: m.public))
    letters = run.server.letters(run.answers(1, lambda m: m.share(told)))
    letters[0] = {k: letters[0][k] for k in (1, 2, 3)}
    run.answers(2, lambda m: m.mask(letters[m.number], run.values[m.number]))
    lists = {k: [0, k, *[j for j in (4, 5, 6) if j != k][:2]] for k in range(1, 7)}
    signed = {k: run.members[k].sign(left) for k, left in lists.items()}
    answers = {k: run.members[k].unmask({j: signed[j] for j in lists[k] if j in signed}) for k in lists}
    own = {k + 1: answers[k][0] for k in (1, 2, 4, 5)}
    keys = {j: {k + 1: answers[k][j] for k in lists if j not in lists[k]} for j in (1, 2, 3)}
    return opened(run, 0, own, keys)


def test_a_value_is_not_opened_through_letters_that_only_one_member_did_not_get(monkeypatch):
    with pytest.raises(ProtocolError, match="3 members signed who is left; 4 of the 4 who are left must"):
        hidden_letters(Sum(7, 4))
    monkeypatch.setattr(dropout, "check_left", lambda *args: None)
    run = Sum(7, 4)
    assert np.array_equal(hidden_letters(run), run.values[0])


def test_a_member_signs_one_list_of_survivors_in_a_sum():
    run = Sum(7, 4)
    run.masked()
    member = run.members[0]
    member.sign([0, 1, 2, 3])
    for again in ([0, 1, 2, 3], [0, 4, 5, 6], list(range(7))):
        with pytest.raises(ProtocolError, match="once only: with a second list it could unmask a single value"):
            member.sign(again)
    thawed = Member.thaw(member.freeze())  # nor after it was put down and taken up
    with pytest.raises(ProtocolError, match="once only"):
        thawed.sign([0, 4, 5, 6])


def test_no_share_is_handed_in_twice_or_before_the_member_has_signed():
    run = Sum(7, 4)
    run.masked()
    signed = {k: m.sign(list(range(7))) for k, m in run.members.items() if k}
    with pytest.raises(ProtocolError, match="whose survivors this member has not signed"):
        run.members[0].unmask(signed)
    run.members[1].unmask(signed)
    with pytest.raises(ProtocolError, match="handed in once only"):
        run.members[1].unmask(signed)


@pytest.mark.parametrize("roster", [True, False])
def test_survivors_of_another_sum_are_not_those_of_this_one(roster):
    """The same members, the same survivors, the same identities, even the same number: and other keys."""
    who = IDENTITIES if roster else None
    for serial in (1, 2):
        before, now = Sum(7, 5, identities=who), Sum(7, 5, serial=serial, identities=who)
        before.run()
        now.masked()
        now.members[0].sign(list(range(7)))
        with pytest.raises(
            ProtocolError, match="member 0 did not sign the survivors that this site was told, or not of"
        ):
            now.members[0].unmask(before.seen[3])


def test_a_member_that_never_sent_anything_is_no_survivor():
    run = Sum(7, 5, silent=({6}, {5}, (), (), ()))  # 6 sends no keys, 5 keys and no letters
    run.masked()
    for strange in (6, 5, 7, -1, 10**9):
        with pytest.raises(ProtocolError, match=f"the server names member {strange} a survivor, and no letter of it"):
            run.members[0].sign([0, 1, 2, 3, 4, strange])
    signed = {k: run.members[k].sign([0, 1, 2, 3, 4]) for k in range(5)}
    for strange in (5, 6):
        with pytest.raises(ProtocolError, match=f"member {strange} among them, who is not"):
            run.members[0].unmask({**signed, strange: run.members[5]._identity.sign(run.members[0]._statement())})
    with pytest.raises(ProtocolError, match="4 members signed who is left; 5 of the 5"):
        run.members[0].unmask({k: signed[k] for k in range(4)})
    assert set(run.members[0].unmask(signed)) == {0, 1, 2, 3, 4}


# -- whose keys -------------------------------------------------------------------------------------------------------


def played(victim, terms, value):
    """A server that makes up all other members. It opens the letters to them, and with both shares the value."""
    others = {k: Member(k, terms, KeyPair()) for k in range(1, len(terms.names))}
    keys = {0: victim.public, **{k: m.public for k, m in others.items()}}
    letters = {k: m.share(keys) for k, m in others.items()}
    to_others = victim.share(keys)
    masked = victim.mask({k: each[0] for k, each in letters.items()}, value)
    for k, m in others.items():
        m.mask({0: to_others[k], **{j: letters[j][k] for j in others if j != k}}, value)
    own = join_shares({k + 1: m._held[0][1] for k, m in others.items()}, terms.threshold)
    add_pair(masked, MaskStream(own), plus=False)
    for m in others.values():
        add_pair(masked, m._keys.agree(keys[0][0], "victim"), plus=False)
    return masked


def test_a_server_that_plays_all_other_sites_is_found_by_a_roster_and_by_nothing_else():
    """What docs/security.md says of a site without a roster: it believes the keys that the server hands on."""
    terms, value = SumTerms(names_of(7), 1, 5), np.arange(4, dtype=np.uint64)
    assert np.array_equal(played(Member(0, terms, KeyPair()), terms, value), value)
    roster = {f"site{k}": one.key for k, one in enumerate(IDENTITIES)}
    with pytest.raises(
        ProtocolError, match="the keys of site 'site1' come under another identity than this site's roster"
    ):
        played(Member(0, terms, KeyPair(), IDENTITIES[0], roster), terms, value)


@pytest.mark.parametrize("place", [0, 1, 2, 3], ids=["mask key", "channel key", "identity", "signature"])
@pytest.mark.parametrize("roster", [True, False])
def test_a_key_that_the_server_replaced_is_found_before_anything_is_sent_under_it(place, roster):
    run = Sum(7, 5, identities=IDENTITIES if roster else None)
    keys = run.answers(0, lambda m: m.public)
    strange = (KeyPair().public, KeyPair().public, Identity().key, bytes(64))[place]
    changed = {**keys, 3: tuple(strange if k == place else part for k, part in enumerate(keys[3]))}
    for member in (0, 3):
        with pytest.raises(ProtocolError, match="the keys of site 'site3'"):
            run.members[member].share(changed)
    assert len(run.members[0].share(keys)) == 6  # and its own are good


@pytest.mark.parametrize("change", ["serial", "threshold", "names", "number"])
def test_keys_that_were_signed_for_another_sum_are_refused(change):
    """Signed by the right identity, for other terms: also as another member of the same sum."""
    terms = {"serial": (names_of(7), 2, 5), "threshold": (names_of(7), 1, 6), "names": (names_of(7)[::-1], 1, 5)}
    run, number = Sum(7, 5, identities=IDENTITIES), 2 if change == "number" else 3
    old = Member(number, SumTerms(*terms.get(change, (names_of(7), 1, 5))), KeyPair(), IDENTITIES[3])
    keys = run.answers(0, lambda m: m.public)
    with pytest.raises(ProtocolError, match="the keys of site 'site3' are not signed by it for sum 1, as this site"):
        run.members[0].share({**keys, 3: old.public})


def test_members_that_were_told_different_keys_do_not_open_each_others_letters():
    """Keys of member 6 from two tries at the same sum, each to some: they are signed, and letters name all keys."""
    run = Sum(7, 4, identities=IDENTITIES)
    keys = run.answers(0, lambda m: m.public)
    second = Member(6, run.members[6].terms, KeyPair(), IDENTITIES[6])
    some = {**keys, 6: second.public}
    letters = {k: run.members[k].share(keys if k < 3 else some) for k in range(6)}
    with pytest.raises(ProtocolError, match="letter of member 3 was changed on its way, or that member was told other"):
        run.members[0].mask({k: letters[k][0] for k in range(1, 6)}, run.values[0])


def test_one_member_does_not_stand_for_two():
    terms = SumTerms(names_of(3), 1, 2)
    one = Member(0, terms, KeyPair(), IDENTITIES[0])
    twice = [Member(k, terms, KeyPair(), IDENTITIES[1]) for k in (1, 2)]
    with pytest.raises(ProtocolError, match="the same identity for two members"):
        one.share({0: one.public, 1: twice[0].public, 2: twice[1].public})
    channel = KeyPair()
    twice = [Member(k, terms, channel) for k in (1, 2)]
    with pytest.raises(ProtocolError, match="the same channel for two members"):
        one.share({0: one.public, 1: twice[0].public, 2: twice[1].public})
    with pytest.raises(ProtocolError, match="gives two members of a sum one name"):
        Member(0, SumTerms(("a", "a", "b"), 1, 2), KeyPair())
    with pytest.raises(ProtocolError, match="hands on keys of member 9, and there are 3"):
        one.share({0: one.public, 9: twice[0].public})


def test_a_site_that_is_not_in_the_roster_is_refused_by_name():
    roster = {f"site{k}": one.key for k, one in enumerate(IDENTITIES[:3])}
    with pytest.raises(ProtocolError, match="the server names the site 'site3', which is not in this site's roster"):
        Member(0, SumTerms(names_of(4), 1, 3), KeyPair(), IDENTITIES[0], roster)


def test_with_a_roster_the_sum_is_what_it_was():
    for silent in (((),) * 5, ((), {1}, {4}, (), ())):
        run = Sum(7, 5, silent=silent, identities=IDENTITIES)
        total, survivors = run.run()
        assert np.array_equal(total, run.values[survivors].sum(axis=0, dtype=np.uint64))


def test_a_lasting_identity_is_not_put_down_between_stages():
    """On Flower the state of a sum lies in the node's store; the site's own key stays in the site's own file."""
    run = Sum(7, 5, identities=IDENTITIES)
    run.masked()
    state = run.members[2].freeze()
    assert IDENTITIES[2].secret not in agreement.encode(tuple(v for v in state.values() if isinstance(v, tuple)))
    again = Member.thaw(state, IDENTITIES[2])
    assert again.sign(list(range(7))) == run.members[2].sign(list(range(7)))


# -- identities and rosters as owners give them -----------------------------------------------------------------------


def test_an_identity_is_kept_in_a_file_that_openssl_knows(tmp_path):
    path = tmp_path / "north.pem"
    one = Identity()
    one.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text().startswith("-----BEGIN PRIVATE KEY-----")
    again = Identity.load(path)
    assert (again.public, again.secret) == (one.public, one.secret)
    assert one.secret.hex() not in repr(one)
    with pytest.raises(DataError, match="exists already, and a key is never overwritten"):
        one.save(path)
    (tmp_path / "text").write_text("no key")
    for name in ("text", "nowhere"):
        with pytest.raises(DataError, match="holds no key that can be read"):
            Identity.load(tmp_path / name)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"identity": "north.pem"}, "identity must be a colonnade.Identity, got str"),
        ({"roster": {}}, "has a roster and no identity"),
        ({"identity": IDENTITIES[0], "roster": ["b"]}, "roster must be .name of a site: its public key., got"),
        ({"identity": IDENTITIES[0], "roster": {"b": "12"}}, "has '12' for 'b', a public key has 64 hexadecimal"),
        ({"identity": IDENTITIES[0], "roster": {"b": 7}}, "has 7 for 'b', a public key has 64 hexadecimal"),
        ({"identity": IDENTITIES[0], "roster": {"a": IDENTITIES[1].public}}, "in its own roster with another key"),
        ({"identity": IDENTITIES[0], "roster": {"b": IDENTITIES[0].public}}, "the same key for two sites"),
    ],
)
def test_a_roster_that_can_not_be_is_one_sentence(options, sentence):
    with pytest.raises(OptionError, match=sentence):
        cn.Site("a", np.eye(3), [0, 1, 1], **options)


def test_a_site_stands_in_its_own_roster_and_so_do_its_parts():
    site = cn.Site("a", np.eye(3), [0, 1, 1], identity=IDENTITIES[0], roster={"b": IDENTITIES[1].public})
    assert site.roster == {"a": IDENTITIES[0].key, "b": IDENTITIES[1].key}
    assert site.take([0, 1]).roster == site.roster
    assert site.take([0, 1]).identity is IDENTITIES[0]
