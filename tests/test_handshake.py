"""Two parties find out whether they may run together: what they say, what they refuse, and in which words."""

from __future__ import annotations

import datetime
import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade import __version__
from colonnade.errors import HandshakeFailed, JobMismatch, OptionError
from colonnade.remote import handshake as h
from colonnade.remote.authority import Authority
from colonnade.remote.handshake import Handshake, Hello, Standing
from colonnade.remote.signatures import OwnIdentity
from colonnade.remote.terms import RunTerms
from colonnade.runtimes.wire import decode, encode

JOB = {
    "name": "credit",
    "parties": [{"name": "bank", "labels": True}, {"name": "shop"}],
    "algorithm": {"kind": "vfb2", "step": 0.1, "batch": 64},
    "starts": datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC),
}
NAMES = ("bank", "shop")
ONE, TWO, THREE = (bytes([n]) * h.NONCE for n in (1, 2, 3))


def changed(**algorithm):
    return {**JOB, "algorithm": {**JOB["algorithm"], **algorithm}}


FIRST, SECOND = Standing(ONE), Standing(TWO)


AUTHORITY = Authority()
BANK, SHOP = (OwnIdentity(AUTHORITY.issue(name)) for name in NAMES)


def pair(one=FIRST, other=SECOND, jobs=(JOB, JOB), identities=(None, None)):
    """(dialler, listener)"""
    return (
        Handshake("bank", "shop", RunTerms.of(NAMES, jobs[0]), one, identities[0]),
        Handshake("shop", "bank", RunTerms.of(NAMES, jobs[1]), other, identities[1]),
    )


def meet(dialler, listener):
    hello = dialler.open()
    shown, seen = (each.own.chain[0] if each.own.chain else None for each in (dialler, listener))
    listener.settle(dialler.answered(listener.answer(hello, shown), seen))
    dialler.accepted(h.ACCEPTED)
    return dialler.conclude(), listener.conclude()


# -- terms -------------------------------------------------------------------------------------------------------------


def test_the_order_of_keys_does_not_matter_and_everything_else_does():
    turned = {key: JOB[key] for key in reversed(JOB)}
    assert RunTerms.of(NAMES, turned) == RunTerms.of(NAMES, JOB)
    others = [
        RunTerms.of(NAMES[::-1], JOB),
        RunTerms.of(NAMES, changed(step=0.2)),
        RunTerms.of(NAMES, changed(step=True)),
        RunTerms.of(NAMES, changed(step="0.1")),
        RunTerms.of(NAMES, changed(more={})),
        RunTerms.of(NAMES, {**JOB, "algorithm.step": 0.1}),
        RunTerms.of(NAMES, {**JOB, "parties": JOB["parties"][::-1]}),
        RunTerms.of(NAMES, {}),
    ]
    assert len({RunTerms.of(NAMES, JOB).digest, *(terms.digest for terms in others)}) == len(others) + 1


keys = st.text('ab.[]0"', min_size=1, max_size=4)
jobs = st.dictionaries(
    keys,
    st.recursive(
        st.integers() | st.floats() | st.text(max_size=5) | st.booleans(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


@given(jobs, jobs)
def test_two_jobs_have_one_digest_only_if_they_are_the_same(one, other):
    same = repr(sort(one)) == repr(sort(other))
    assert (RunTerms.of(NAMES, one).digest == RunTerms.of(NAMES, other).digest) is same


def sort(job):
    if isinstance(job, dict):
        return {key: sort(job[key]) for key in sorted(job)}
    return [sort(each) for each in job] if isinstance(job, list) else job


@pytest.mark.parametrize("job", [{"a": {1, 2}}, {"a": object()}, {"a": b"bytes"}])
def test_what_no_toml_file_holds_is_refused(job):
    with pytest.raises(OptionError, match="a job holds tables, lists, texts, numbers, dates and times only"):
        RunTerms.of(NAMES, job)


def test_a_job_is_no_place_for_data():
    with pytest.raises(OptionError, match=r"a job of \d+ bytes, at most 262144 are allowed; move data out of it"):
        RunTerms.of(NAMES, {"rows": list(range(100_000))})


# -- a handshake -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "relations"),
    [
        (Standing(ONE), Standing(TWO), ("new", "new")),
        (Standing(ONE, TWO, 7), Standing(TWO, ONE, 9), ("resumed", "resumed")),
        # the last message of the first handshake was lost, and only one of the two knows the other
        (Standing(ONE, TWO), Standing(TWO), ("resumed", "new")),
        (Standing(ONE), Standing(TWO, ONE), ("new", "resumed")),
        # one of them was started anew, before a run has begun: nobody has anything to lose
        (Standing(ONE, TWO, bound=False), Standing(THREE), ("restarted", "new")),
        (Standing(THREE), Standing(TWO, ONE, bound=False), ("new", "restarted")),
        # ... and in the middle of a run
        (Standing(THREE), Standing(TWO, ONE, 9), ("behind", "restarted")),
        (Standing(ONE, TWO, 7), Standing(THREE), ("restarted", "behind")),
    ],
)
def test_how_two_parties_stand_to_each_other(one, other, relations):
    for identities in ((None, None), (BANK, SHOP)):
        dialler, listener = pair(one, other, identities=identities)
        assert meet(dialler, listener) == relations
        assert (dialler.hello.received, listener.hello.received) == (other.received, one.received)


@pytest.mark.parametrize(
    ("theirs", "key", "here", "there"),
    [
        (changed(step=0.25), "algorithm.step", "0.1", "0.25"),
        (changed(zeal=1), "algorithm.zeal", "nothing", "1"),
        ({key: JOB[key] for key in ("parties", "algorithm", "starts")}, "name", '"credit"', "nothing"),
        ({**JOB, "parties": [JOB["parties"][0], {"name": "post"}]}, "parties[1].name", '"shop"', '"post"'),
        (changed(batch=1, step=2.0), "algorithm.batch", "64", "1"),
    ],
)
def test_two_jobs_that_differ_are_told_apart_by_both(theirs, key, here, there):
    dialler, listener = pair(jobs=(JOB, theirs))
    listener.settle(dialler.answered(listener.answer(dialler.open())))
    with pytest.raises(JobMismatch) as first:
        dialler.conclude()
    with pytest.raises(JobMismatch) as second:
        listener.conclude()
    assert str(first.value) == (
        f"the job of party 'shop' differs in '{key}': {here} here, {there} there; agree on one job and start again"
    )
    assert str(second.value) == (
        f"the job of party 'bank' differs in '{key}': {there} here, {here} there; agree on one job and start again"
    )


def test_another_order_of_parties_is_a_difference():
    dialler, listener = pair()
    listener = Handshake("shop", "bank", RunTerms.of(NAMES[::-1], JOB), Standing(TWO))
    dialler.answered(listener.answer(dialler.open()))
    with pytest.raises(JobMismatch, match=r"differs in '\(parties\)': \[\"bank\", \"shop\"\] here"):
        dialler.conclude()


def test_a_long_value_and_an_ugly_one_fit_one_line():
    dialler, listener = pair(jobs=(JOB, {**JOB, "name": "x" * 5000 + "\n\x1b[31m"}))
    dialler.answered(listener.answer(dialler.open()))
    with pytest.raises(JobMismatch) as caught:
        dialler.conclude()
    assert len(str(caught.value)) < 250
    assert str(caught.value).isprintable()


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_recorded_stream_fits_no_other():
    """Every message of a good handshake, said again to a listener and to a dialler that has not changed."""
    dialler, listener = pair()
    opening = dialler.open()
    welcome = listener.answer(opening)
    proof = dialler.answered(welcome)
    listener.settle(proof)
    again, late = pair()
    late.answer(opening)
    with pytest.raises(HandshakeFailed, match="its proof belongs to another stream, or another key: a replay, or an"):
        late.settle(proof)
    with pytest.raises(HandshakeFailed, match="its proof is missing"):
        late.conclude()
    again.open()
    with pytest.raises(HandshakeFailed, match="a replay"):
        again.answered(welcome)


def test_a_listeners_own_proof_thrown_back_is_refused():
    dialler, listener = pair()
    answer = decode(listener.answer(dialler.open()))
    with pytest.raises(HandshakeFailed, match="a replay"):
        listener.settle(encode(("proof", answer[2])))


def test_no_proof_is_taken_where_the_jobs_differ():
    dialler, listener = pair(jobs=(JOB, changed(step=1.0)))
    listener.answer(dialler.open())
    with pytest.raises(HandshakeFailed, match="malformed"):
        listener.settle(encode(("proof", b"x" * 32)))
    with pytest.raises(HandshakeFailed):
        listener.conclude()


def hello(**fields):
    good = Hello(__version__, h.PROTOCOL, "bank", "shop", ONE, TWO, b"", 0, RunTerms.of(NAMES, JOB).digest, ())
    return replace(good, **fields).pack()


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (hello(protocol=99, package="9.9"), "it speaks protocol 99 (colonnade 9.9), this party speaks 5 (colonnade 0."),
        (encode(("colonnade", 1, "0.1.0", "bank", "shop", ONE, TWO, b"", 0, b"")), "it speaks protocol 1 (colonnade "),
        (hello(chain=("text",)), "its hello is malformed"),
        (hello(chain=(b"",) * 5), "its hello is malformed"),
        (hello(me="post"), "it says that it is 'post' and not 'bank'"),
        (hello(to="post"), "it looks for 'post', this party is 'shop'"),
        (hello(session=b"short"), "its hello is malformed"),
        (hello(fresh=b""), "its hello is malformed"),
        (hello(known=b"short"), "its hello is malformed"),
        (hello(received=-1), "its hello is malformed"),
        (hello(digest="text"), "its hello is malformed"),
        (encode(("colonnade", h.PROTOCOL, "0.1.0")), "its hello is malformed"),
        (encode(("colonnade", "1", "0.1.0")), "its first message is no hello; it is not a colonnade party"),
        (encode(("GET", 1, "/")), "its first message is no hello; it is not a colonnade party"),
        (encode((np.zeros(2), 1, "0.1.0")), "its first message is no hello; it is not a colonnade party"),
        (encode(None), "its message is malformed"),
        (b"GET / HTTP/1.1", "its message is malformed: a message holds the unknown type code 71"),
        (b"", "its message is malformed: a value of a message needs 1 bytes"),
    ],
)  # fmt: skip
def test_a_hello_that_does_not_fit_is_refused_in_a_sentence(message, words):
    _, listener = pair()
    with pytest.raises(HandshakeFailed) as caught:
        listener.answer(message)
    assert str(caught.value).startswith(words)


@given(
    st.binary(max_size=80)
    | jobs.map(repr).map(encode)
    | st.lists(st.binary(max_size=40) | st.just("proof")).map(tuple).map(encode)
)
def test_whatever_comes_is_refused_and_never_concluded(message):
    for hear in (lambda d, m: (d.open(), d.answered(m)), lambda d, m: d.answer(m), settle_after_hello):
        one, _ = pair()
        with pytest.raises(HandshakeFailed):
            hear(one, message)
        with pytest.raises(HandshakeFailed):
            one.conclude()


def settle_after_hello(one, message):
    one.answer(hello(me="shop", to="bank"))
    one.settle(message)


@pytest.mark.parametrize("hear", ["answered", "accepted"])
def test_a_refusal_is_passed_on_in_one_clean_line(hear):
    dialler, _ = pair()
    dialler.open()
    why = "no\nway\x1b[31m" + "!" * 1000
    for for_good, kind, words in ((True, HandshakeFailed, "it refused"), (False, h.NotNow, "it said")):
        with pytest.raises(kind) as caught:
            getattr(dialler, hear)(h.refusal(why, for_good=for_good))
        assert str(caught.value).startswith(f"{words}: no?way?[31m!!!")
        assert len(str(caught.value)) < 450


def test_a_last_word_that_is_none_is_malformed():
    dialler, _ = pair()
    for message in (encode(("accepted", 1)), encode(()), b"", b"?"):
        with pytest.raises(HandshakeFailed, match="malformed"):
            dialler.accepted(message)


def test_a_listener_that_takes_different_jobs_for_the_same_is_refused():
    dialler, _ = pair()
    dialler.open()
    with pytest.raises(HandshakeFailed, match="it takes two jobs with different digests for the same"):
        dialler.answered(encode(("welcome", hello(me="shop", to="bank", digest=b"other"), b"proof")))


def differs_after(dialler, theirs, entries):
    """What a listener without TLS says, whose proof is a digest."""
    transcript = hashlib.sha256(dialler.own.pack() + theirs).digest()
    return encode(("differs", theirs, hashlib.sha256(b"listener" + transcript).digest(), entries))


def test_a_job_with_another_digest_and_the_same_entries_is_no_job():
    dialler, _ = pair()
    dialler.open()
    entries = RunTerms.of(NAMES, JOB).entries
    with pytest.raises(HandshakeFailed, match="another digest, and yet the same entries"):
        dialler.answered(differs_after(dialler, hello(me="shop", to="bank", digest=b"other"), entries))
    with pytest.raises(HandshakeFailed, match="its job is malformed"):
        dialler.answered(differs_after(dialler, hello(me="shop", to="bank", digest=b"other"), (("key", 1),)))
