"""Sums that survive silent members: exact for whoever is left, uniform to the server, and no second answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.crypto.masks import PRIME, SHARE_BYTES, KeyPair, MaskStream, join_shares, split_secret
from colonnade.errors import ProtocolError
from colonnade.sums.dropout import Member, SumTerms, add_pair, default_threshold
from masked_sums import Sum, names_of

# -- shares -----------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 12), st.data())
def test_any_threshold_of_shares_gives_the_secret_back(secret, threshold, data):
    points = data.draw(st.lists(st.integers(1, 99), min_size=threshold, max_size=15, unique=True))
    shares = split_secret(secret, points, threshold)
    chosen = data.draw(st.permutations(points))[:threshold]
    assert join_shares({x: shares[x] for x in chosen}, threshold) == secret
    if threshold > 1:
        with pytest.raises(ProtocolError, match=f"the secret needs {threshold}"):
            join_shares({x: shares[x] for x in chosen[1:]}, threshold)


def test_fewer_shares_fit_every_secret():
    """Whatever one share of two is, each secret is possible: there is a polynomial through both."""
    share = split_secret(bytes(32), [1, 2], 2)[1]
    for secret in (bytes(32), b"\xff" * 32):
        slope = (int.from_bytes(share, "big") - int.from_bytes(secret, "big")) % PRIME
        other = ((int.from_bytes(secret, "big") + 2 * slope) % PRIME).to_bytes(SHARE_BYTES, "big")
        assert join_shares({1: share, 2: other}, 2) == secret


def test_shares_are_uniform():
    tops = np.array([split_secret(bytes(32), [1, 2], 2)[1][1] for _ in range(4000)])
    counts = np.bincount(tops >> 4, minlength=16)
    assert ((counts - 250) ** 2 / 250).sum() < 90  # chi-squared with 15 degrees of freedom: p = 1e-12


@pytest.mark.parametrize(
    ("secret", "points", "threshold"), [(bytes(31), [1, 2], 2), (bytes(32), [1], 2), (bytes(32), [0, 1], 2)]
)
def test_what_cannot_be_shared_is_refused(secret, points, threshold):
    with pytest.raises(ProtocolError, match="a secret of 32 bytes is shared among"):
        split_secret(secret, points, threshold)


def test_shares_that_are_none_are_refused():
    shares = split_secret(bytes(32), [1, 2], 2)
    with pytest.raises(ProtocolError, match="a share must be"):
        join_shares({1: shares[1], 2: b"\xff" * SHARE_BYTES}, 2)
    too_large = (2**256).to_bytes(SHARE_BYTES, "big")  # the constant polynomial of a number of 257 bits
    with pytest.raises(ProtocolError, match="do not belong to one secret"):
        join_shares({1: too_large, 2: too_large}, 2)


# -- sums -------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 9), st.data())
def test_the_sum_is_exact_whoever_falls_silent_and_whenever(members, data):
    threshold = data.draw(st.integers(max(2, members // 2 + 1), members))
    stages = data.draw(st.lists(st.integers(0, 7), min_size=members, max_size=members))
    silent = [{k for k, stage in enumerate(stages) if stage == s} for s in range(5)]
    run = Sum(members, threshold, silent=silent)
    result = run.run()
    left = [k for k, stage in enumerate(stages) if stage > 2]  # those whose values came through
    if sum(stage > 4 for stage in stages) < threshold:
        assert result is None
    else:
        assert result[1] == left
        assert np.array_equal(result[0], run.values[left].sum(axis=0, dtype=np.uint64))


def test_three_of_ten_silent_at_each_stage():
    for stage in range(3):
        silent = [{1, 4, 8} if s == stage else set() for s in range(5)]
        run = Sum(silent=silent)
        total, survivors = run.run()
        assert survivors == [0, 2, 3, 5, 6, 7, 9]
        assert np.array_equal(total, run.values[survivors].sum(axis=0, dtype=np.uint64))
    for stage in (3, 4):  # their values came through: they are in the total, and seven are enough to open it
        run = Sum(silent=[{1, 4, 8} if s == stage else set() for s in range(5)])
        assert np.array_equal(run.run()[0], run.values.sum(axis=0, dtype=np.uint64))
    assert Sum(silent=({0, 1, 4, 8}, (), (), (), ())).run() is None


def test_a_members_message_is_uniform_whatever_its_value():
    """4,000 sums of zeros: the top bytes of what one member sends are those of uniform numbers."""
    tops = []
    for serial in range(40):
        run = Sum(3, size=100, serial=serial)
        run.values[:] = 0
        run.run()
        tops.append(run.seen[2][1])
    counts = np.bincount((np.concatenate(tops) >> np.uint64(60)).astype(int), minlength=16)
    assert ((counts - 250) ** 2 / 250).sum() < 90
    assert len(np.unique(np.concatenate(tops))) == 4000


def test_a_late_value_stays_hidden_though_its_key_is_known():
    """The server has reconstructed the key of a silent member; when its message comes, b still covers it."""
    run = Sum(4, 3, silent=((), (), {2}, (), ()))
    total, survivors = run.run()
    assert np.array_equal(total, run.values[survivors].sum(axis=0, dtype=np.uint64))
    letters = run.server.letters(run.seen[1])
    late = run.members[2].mask(letters[2], run.values[2])
    keys = KeyPair(join_shares({k + 1: shares[2] for k, shares in run.seen[4].items()}, 3))
    for other in (0, 1, 3):
        add_pair(late, keys.agree(run.seen[0][other][0], "x"), plus=not other > 2)
    assert not np.array_equal(late, run.values[2])  # all pairwise masks are off
    late -= MaskStream(run.members[2]._own).mask(0, 0, late.shape)
    assert np.array_equal(late, run.values[2])  # and this one, which nobody handed in, was left


def test_nobody_hands_in_both_shares_of_a_member():
    run = Sum(4, 3, silent=((), (), {2}, (), ()))
    run.run()
    for shares in run.seen[4].values():
        assert set(shares) == {0, 1, 2, 3}
    with pytest.raises(ProtocolError, match="once only"):
        run.members[0].sign([0, 1, 2])
    with pytest.raises(ProtocolError, match="once only"):
        run.members[0].unmask(run.seen[3])


@pytest.mark.parametrize("threshold", [1, 0, -3, None, 2.0])
def test_a_sum_of_one_member_is_refused(threshold):
    """A server that says so would read the value: its one survivor hands in the share that is the secret."""
    with pytest.raises(ProtocolError, match="needs a threshold of at least 2 members, got"):
        Member(0, SumTerms(names_of(2), 1, threshold), KeyPair())


def test_members_refuse_too_few_partners():
    run = Sum(4, 3)
    with pytest.raises(ProtocolError, match="the server names 2 members, a sum needs 3"):
        run.members[0].share({k: run.members[k].public for k in (0, 1)})
    with pytest.raises(ProtocolError, match="with this one among them"):
        run.members[0].share({k: run.members[k].public for k in (1, 2, 3)})
    keys = {k: m.public for k, m in run.members.items()}
    letters = {k: m.share(keys) for k, m in run.members.items()}
    with pytest.raises(ProtocolError, match="a sum needs 2"):
        run.members[0].mask({1: letters[1][0]}, run.values[0])
    run.members[0].mask({k: letters[k][0] for k in (1, 2)}, run.values[0])
    with pytest.raises(ProtocolError, match="a value is sent once"):
        run.members[0].mask({k: letters[k][0] for k in (1, 2)}, run.values[0])
    with pytest.raises(ProtocolError, match="the server names 2 survivors"):
        run.members[0].sign([0, 1])
    with pytest.raises(ProtocolError, match="with this one among them, and once only"):
        run.members[0].sign([1, 2, 3])


def test_a_letter_that_was_changed_or_came_from_another_sum_is_refused():
    run, other = Sum(3), Sum(3, serial=2)
    keys = {k: m.public for k, m in run.members.items()}
    letters = {k: m.share(keys) for k, m in run.members.items()}
    changed = letters[1][0][:-1] + bytes([letters[1][0][-1] ^ 1])
    with pytest.raises(ProtocolError, match="letter of member 1 was changed"):
        run.members[0].mask({1: changed, 2: letters[2][0]}, run.values[0])
    other.run()
    with pytest.raises(ProtocolError, match="was changed"):
        run.members[2].mask({0: letters[0][2], 1: other.seen[1][1][2]}, run.values[2])


def test_a_member_can_be_put_down_and_taken_up_between_stages():
    run = Sum(5)
    thaw = Member.thaw
    answers = run.answers

    def again(stage, action):
        run.members = {k: thaw(m.freeze()) for k, m in run.members.items()}
        return answers(stage, action)

    run.answers = again
    total, _ = run.run()
    assert np.array_equal(total, run.values.sum(axis=0, dtype=np.uint64))


def test_shares_of_a_wrong_key_are_found():
    run = Sum(4, 3, silent=((), (), {2}, (), ()))
    run.run()
    run.server._keys[2] = (KeyPair().public, *run.server._keys[2][1:])
    with pytest.raises(ProtocolError, match="do not give the key that it announced"):
        run.server.total(run.seen[4])


def test_the_threshold_is_more_than_two_thirds():
    assert [default_threshold(n) for n in (2, 3, 4, 9, 10)] == [2, 3, 3, 7, 7]
