"""Whoever calls a party without being one of the run costs it little, and keeps nobody else out."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import secrets
import socket
import ssl
import tempfile
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from colonnade.remote import listener as listening
from colonnade.remote import streams, tls
from colonnade.remote.handshake import ACCEPTED, Handshake, Standing
from colonnade.remote.listener import Listener, Refusals
from colonnade.remote.reliable import Reliable
from colonnade.remote.signatures import OwnIdentity
from colonnade.remote.streams import Stream, dial
from colonnade.remote.terms import RunTerms
from colonnade.runtimes.frames import pack_frame
from contracts import programs
from federations import AUTHORITY, PATIENCE, Federation, run, when

A, B = (AUTHORITY.issue(name) for name in "ab")
TOO_MANY = "it did not say who it is, and too many others wait"
TOO_LONG = "it did not get through TLS: it took too long"


@pytest.fixture(autouse=True)
def log(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "colonnade.network")
    monkeypatch.setattr(streams, "FIRST_WORD_WITHIN", PATIENCE)  # slow words are no attack, on any machine
    return caplog


def lines(log):
    return [record.getMessage() for record in log.records if record.name == "colonnade.network"]


class Place:
    """A listener of party b's, and a way to call it."""

    def __init__(self, address, most):
        self.refused, self.heard, self._calls = [], [], ExitStack()
        self.listener = Listener(
            address, B, self._take, lambda _, why: self.refused.append(why), shared=True, most=most
        )
        self.address = address

    async def _take(self, stream):
        self.heard.append(await stream.read())

    def call(self, number=1, host="127.0.0.1", words=b""):
        """Connections that say so much and no more."""
        at, _, port = self.address.partition(":")
        made = []
        for _ in range(number):
            made.append(socket.create_connection((at, int(port)), source_address=(host, 0)))
            self._calls.enter_context(made[-1])
            made[-1].sendall(words)
            made[-1].setblocking(False)
        return made

    async def greet(self, words=b"here"):
        """What a party does that calls."""
        stream = await dial(self.address, "b", A, PATIENCE)
        await stream.write(words)
        await when(lambda: words in self.heard)
        await stream.end()

    @property
    def strangers(self):
        return len(self.listener._unknown)


@asynccontextmanager
async def place(most):
    with Federation("a", "b") as federation:
        made = Place(federation.listen["b"], most)
        with made._calls:
            await made.listener.start()
            yield made
            await made.listener.stop()


async def hung_up(line):
    return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(line, 1), PATIENCE) == b""


# -- how many there may be ---------------------------------------------------------------------------------------------


def test_a_burst_of_callers_takes_no_more_places_than_there_are():
    """All of them wait to be taken when the party looks, and the party's program gets its turns in between."""

    async def scenario():
        async with place(most=20) as b:
            peak = 0
            calls = b.call(40)
            while (before := len(b.refused)) < 20:
                await asyncio.sleep(0)
                assert len(b.refused) <= before + 1
                peak = max(peak, b.strangers)
            assert peak == b.strangers == 20
            for line in calls[:20]:
                assert await hung_up(line)
            await when(lambda: len(b.listener._callers) == 20)
            assert b.refused == [TOO_MANY] * 20
            await b.greet()

    run(scenario)


def test_a_host_that_takes_all_places_pushes_out_nobody_but_itself():
    async def scenario():
        async with place(most=4) as b:
            first = await dial(b.address, "b", A, PATIENCE)
            await when(lambda: b.strangers == 1)
            crowd = b.call(9, host="127.0.0.2")
            assert await hung_up(crowd[5])
            await first.write(b"the first to come")
            await when(lambda: b.heard == [b"the first to come"])
            await first.end()
            assert b.refused == [TOO_MANY] * 6

    run(scenario)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8::1", "2001:db8::ff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2", True),
    ],
)
def test_what_counts_as_one_host(one, other, same):
    assert (listening._source(one) == listening._source(other)) is same


def test_a_caller_that_must_go_before_it_was_looked_at_is_hung_up_on():
    async def scenario():
        async with place(most=1) as b:
            there, here = zip(socket.socketpair(), socket.socketpair(), strict=True)
            for each in here:
                b.listener._let_in(each, "127.0.0.1", 1)
            await when(lambda: not b.listener._callers)
            assert [each.fileno() for each in here] == [-1, -1]
            for each in there:
                each.close()
            assert b.refused[0] == TOO_MANY

    run(scenario)


def test_a_caller_that_must_go_after_tls_is_hung_up_on_at_once():
    """Not in order, which it could draw out."""

    async def scenario():
        async with place(most=1) as b:
            first = await dial(b.address, "b", A, PATIENCE)
            await when(lambda: b.strangers == 1)
            [stranger] = b.listener._unknown.values()
            await when(lambda: stranger.stream.made)
            first.transport.pause_reading()
            b.call()
            await when(lambda: b.refused == [TOO_MANY])
            for _ in range(5):
                await asyncio.sleep(0)
            assert len(b.listener._callers) == 1
            assert stranger.stream.closed.done()
            await first.end()

    run(scenario)


# -- what they cost ----------------------------------------------------------------------------------------------------


def test_callers_who_say_nothing_cost_no_tls(monkeypatch):
    made, wrap = [], ssl.SSLContext.wrap_bio

    def counting(*args, **options):
        made.append(wrap(*args, **options))
        return made[-1]

    monkeypatch.setattr(ssl.SSLContext, "wrap_bio", counting)

    async def scenario():
        async with place(most=10) as b:
            b.call(5)
            await when(lambda: b.strangers == 5)
            await asyncio.sleep(0.05)
            assert made == []
            b.call(words=b"\x16")
            await when(lambda: len(made) == 1)

    run(scenario)


def test_so_many_handshakes_are_begun_in_a_turn_and_waiting_for_one_counts(monkeypatch):
    monkeypatch.setattr(listening, "_TURN", PATIENCE)
    monkeypatch.setattr(streams, "FIRST_WORD_WITHIN", 1.0)

    async def scenario():
        async with place(most=10) as b:
            b.call(6, words=b"GET / HTTP/1.1\r\n\r\n")
            await when(lambda: len(b.refused) == 6)
            assert b.refused == ["it did not get through TLS: it speaks no TLS 1.3"] * 4 + [TOO_LONG] * 2

    run(scenario)


def test_handshakes_that_are_begun_and_left_there_are_in_nobodys_way():
    """More than may be begun in a turn, and their callers keep their places for as long as they are given."""

    async def scenario():
        async with place(most=60) as b:
            b.call(50, words=b"\x16")
            await when(lambda: b.strangers == 50)
            await asyncio.wait_for(b.greet(), 30)
            assert b.strangers >= 50
            assert b.refused == []

    run(scenario)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionAbortedError(errno.ECONNABORTED, "aborted"), []),
        (OSError(errno.EPROTO, "Protocol error"), ["this machine can't take it (Protocol error)"]),
    ],
    ids=["hung up", "another"],
)
def test_a_caller_that_is_lost_while_it_is_taken_holds_nobody_up(error, said, monkeypatch):
    monkeypatch.setattr(listening, "_PAUSE", 10 * PATIENCE)
    assert taken_after(error) == said


def test_a_machine_without_files_is_given_a_pause(monkeypatch):
    monkeypatch.setattr(listening, "_PAUSE", 0.5)
    assert taken_after(OSError(errno.EMFILE, "Too many open files"), pause=0.5) == [
        "this machine can't take it (Too many open files)"
    ]


def taken_after(error, pause=0.0):
    """What is said of this error, after the next caller was heard, which must take so many seconds at least."""

    async def scenario():
        loop, errors = asyncio.get_running_loop(), [error]
        accept = loop.sock_accept

        async def failing(line):
            if errors:
                raise errors.pop()
            return await accept(line)

        loop.sock_accept = failing
        async with place(most=3) as b:
            began = loop.time()
            await b.greet()
            assert loop.time() - began >= 0.9 * pause
            return b.refused

    return run(scenario)


# -- what the log says -------------------------------------------------------------------------------------------------


def test_so_many_lines_are_written_whatever_they_say(log, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(listening.time, "monotonic", lambda: clock[0])
    refuse = Refusals()
    for number in range(50):
        refuse("somebody", f"its name is {number}")
    assert lines(log) == [f"refused somebody: its name is {number}" for number in range(20)]
    clock[0] += 10.0
    refuse("somebody", "it came later")
    refuse.write("the line is up again")
    assert lines(log)[20:] == [
        "and 30 more lines about callers, within 10 s",
        "refused somebody: it came later",
        "the line is up again",
    ]
    for number in range(19):
        refuse("somebody", f"its name is now {number}")
    refuse.sum_up()
    refuse.sum_up()
    assert lines(log)[-1] == "and 1 more lines about callers, within 10 s"
    assert len(lines(log)) == 23 + 18 + 1


def test_lines_that_nobody_wants_leave_room_for_others(log):
    log.set_level(logging.WARNING, "colonnade.network")
    refuse = Refusals()
    for _ in range(50):
        refuse.write("it looked", logging.INFO)
    refuse("somebody", "it is none")
    assert lines(log) == ["refused somebody: it is none"]


def test_a_party_that_comes_and_goes_does_not_fill_the_log(log):
    async def flap(federation, times):
        own, known = OwnIdentity(federation.credentials["a"]), b""
        session = secrets.token_bytes(32)
        line = federation.nets["b"].lines["a"]
        for _ in range(times):
            terms = RunTerms.of(("a", "b"), federation.job)
            handshake = Handshake("a", "b", terms, Standing(session, known), own)
            stream = await dial(federation.listen["b"], "b", federation.credentials["a"], PATIENCE)
            await stream.write(handshake.open())
            await stream.write(handshake.answered(await stream.read(), stream.shown))
            handshake.accepted(await stream.read())
            known = handshake.hello.session
            await when(lambda: line.up)
            stream.transport.abort()
            await when(lambda: not line.up)

    async def scenario():
        with Federation("a", "b") as federation:
            b = asyncio.ensure_future(federation.party("b", programs.wait_for, "a", "never"))
            await when(lambda: "b" in federation.nets and federation.nets["b"]._listener)
            await flap(federation, 30)
            b.cancel()
            with pytest.raises(asyncio.CancelledError):
                await b

    run(scenario)
    said = lines(log)
    assert 20 <= len(said) < 29
    assert said[0].startswith("the line to 'a' was down for ")
    assert "more lines about callers" in said[-1]


# -- one connection ----------------------------------------------------------------------------------------------------


class Pipe(asyncio.Transport):
    """As much of a transport as a stream needs, to be handed bytes in pieces of the test's choice."""

    aborted = False

    def pause_reading(self):
        pass

    def resume_reading(self):
        pass

    def is_closing(self):
        return self.aborted

    def abort(self):
        self.aborted = True

    def write(self, data):
        pass


def test_a_sign_of_life_that_comes_with_the_last_word_of_the_handshake_is_no_message():
    """All in one piece, because the dialler was busy for longer than the listener keeps quiet."""

    async def scenario():
        stream, flow, taken = Stream("b"), Reliable(), []
        pipe = Pipe()
        stream.connection_made(pipe)
        head = flow.message(1, even_empty=True)
        stream.data_received(pack_frame(ACCEPTED) + pack_frame(head) + pack_frame(b""))
        assert await stream.read() == ACCEPTED
        stream.carry(lambda message: taken.append((message, flow.take(message))), lambda: None, lambda: None)
        assert [message for message, _ in taken] == [head]
        assert not pipe.aborted
        stream.connection_lost(None)

    run(scenario)


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no files in memory")
@pytest.mark.parametrize("how", ["no /proc", "not allowed"])
def test_a_key_is_read_from_a_file_that_goes_at_once_where_there_is_no_other_way(how, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    if how == "no /proc":
        monkeypatch.setattr(tls, "_OPEN_FILES", str(tmp_path / "nowhere"))
    else:

        def refuse(_):
            raise PermissionError(errno.EPERM, "not permitted")

        monkeypatch.setattr(os, "memfd_create", refuse)
    seen, load = [], ssl.SSLContext.load_cert_chain

    def loading(self, certificate, key):
        seen.extend((path.parent.stat().st_mode & 0o777, path.read_bytes()) for path in map(Path, (certificate, key)))
        load(self, certificate, key)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", loading)
    tls.context(A, listening=True)
    assert seen == [(0o700, A.certificate), (0o700, A.key)]
    assert list(tmp_path.iterdir()) == []


def test_whoever_calls_in_the_moment_in_which_a_listener_stops_leaves_no_socket_open(recwarn):
    async def scenario():
        for _ in range(20):
            async with place(most=20) as there:
                await asyncio.sleep(0)
                there.call(3)
                await asyncio.sleep(0)  # the loop may have seen the callers, and what takes them in may not have begun

    run(scenario)
    gc.collect()
    assert [each for each in recwarn if issubclass(each.category, ResourceWarning)] == []
