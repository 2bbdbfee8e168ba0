"""Whoever is not what it should be is refused with one line in the log, and the run of the others goes on."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import replace

import numpy as np
import pytest
from cryptography import x509

from colonnade.errors import HandshakeFailed, OptionError, PartyFailed, PartySilent
from colonnade.remote import peer_line, streams, tls, trust
from colonnade.remote.authority import Authority
from colonnade.remote.certificates import Credentials, dns_name
from colonnade.remote.handshake import Handshake, NotNow, Standing
from colonnade.remote.listener import Listener
from colonnade.remote.signatures import OwnIdentity
from colonnade.remote.streams import MAX_LINE_MESSAGE, Stream
from colonnade.remote.terms import RunTerms
from colonnade.runtimes.frames import DATA, HEADER, MAX_MESSAGE, pack_frame, pack_message
from colonnade.runtimes.wire import decode
from contracts import programs
from federations import AUTHORITY, PATIENCE, Federation, more, ping, pong, run, until, when
from odd_certificates import NOT_NAMES, issue, revoked

FOREIGN = Authority()
REPLAY = "its proof belongs to another stream, or another key: a replay, or an impostor"


@pytest.fixture(autouse=True)
def log(caplog, monkeypatch):
    caplog.set_level(logging.WARNING, "colonnade.network")
    monkeypatch.setattr(streams, "FIRST_WORD_WITHIN", PATIENCE)  # slow words are no attack, on any machine
    return caplog


def lines(log):
    return [record.getMessage() for record in log.records if record.name == "colonnade.network"]


def under_attack(attack, log, first_word=PATIENCE, change=None):
    """A run of a and b, in which b is attacked; returns what the log says, after both have ended well.

    first_word: seconds that b gives to callers from now on, for attacks that are found by waiting. change: of b's
    credentials, as a function of the federation.
    """

    async def scenario():
        with Federation("a", "b") as federation:
            if change is not None:
                federation.credentials["b"] = change(federation)
            stop, started = asyncio.Event(), asyncio.Event()
            lead, follow = until(stop, started)
            run_ = asyncio.ensure_future(federation.all({"a": (lead, "b"), "b": (follow, "a")}))
            await started.wait()
            streams.FIRST_WORD_WITHIN = first_word
            await attack(federation)
            await when(lambda: lines(log))
            await more(lead)  # the run goes on
            await asyncio.sleep(0.1)  # for a second line, which must not come
            stop.set()
            values = await run_
            assert values["a"] == values["b"]

    run(scenario)
    return lines(log)


class Caller:
    """A stream to party b with any credentials at all, and none of a party's own limits."""

    def __init__(self, federation, context, name="b"):
        host, _, port = federation.listen["b"].partition(":")
        self._where = {"host": host, "port": int(port), "ssl": context, "server_hostname": dns_name(name)}

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        _, self._stream = await loop.create_connection(lambda: Stream(""), **self._where)
        return self._stream

    async def __aexit__(self, *_):
        await self._stream.end()


def showing(credentials=None):
    """What a caller shows to b, whose authority it believes."""
    if credentials is not None:
        return tls.context(replace(credentials, authority=AUTHORITY.pem), listening=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=AUTHORITY.pem.decode())
    return context


# -- not through TLS ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (None, "it has no certificate"),
        (FOREIGN.issue("a"), "its certificate is not accepted (unable to get local issuer certificate)"),
        (AUTHORITY.issue("a", days=-1), "its certificate is not accepted (certificate has expired)"),
    ],
    ids=["no certificate", "another authority's", "expired"],
)
def test_a_certificate_that_is_not_good_is_refused(shown, words, log):
    async def attack(federation):
        async with Caller(federation, showing(shown)) as stream:
            with suppress(ConnectionError):
                assert await stream.read() is None

    (line,) = under_attack(attack, log)
    assert line.startswith("refused 127.0.0.1:")
    assert line.endswith(f": it did not get through TLS: {words}")


@pytest.mark.parametrize("words", [b"", b"GET / HTTP/1.1\r\nHost: b\r\n\r\n", bytes(range(256)) * 40])
def test_a_caller_without_tls_is_refused(words, log):
    async def attack(federation):
        host, _, port = federation.listen["b"].partition(":")
        with socket.create_connection((host, int(port))) as line:
            line.sendall(words)
            await asyncio.sleep(0.1)

    assert len(under_attack(attack, log, 1.0)) == 1


def test_a_flood_of_callers_is_not_a_flood_of_lines(log):
    async def attack(federation):
        host, _, port = federation.listen["b"].partition(":")
        for _ in range(30):
            socket.create_connection((host, int(port))).close()

    assert len(under_attack(attack, log, 1.0)) == 1


def test_a_caller_with_an_older_tls_is_refused(log):
    async def attack(federation):
        context = showing(federation.credentials["a"])
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError, match=r"(?i)protocol|version|reset|^$"):
            async with Caller(federation, context):
                pass

    (line,) = under_attack(attack, log)
    assert line.endswith("it did not get through TLS: it speaks no TLS 1.3")


def test_callers_who_say_nothing_are_not_waited_for(log):
    """They connect and keep quiet: in TCP, and after TLS."""

    async def attack(federation):
        host, _, port = federation.listen["b"].partition(":")
        with socket.create_connection((host, int(port))) as line:
            line.setblocking(False)
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(line, 1), PATIENCE) == b""
        async with Caller(federation, showing(federation.credentials["a"])) as stream:
            assert await stream.read() is None

    assert [line.partition(": ")[2] for line in under_attack(attack, log, 0.5)] == [
        "it did not get through TLS: it took too long",
        "it did not say who it is",
    ]


def test_so_many_callers_are_heard_at_once_and_the_oldest_makes_room():
    """Whoever fills all places with connections that say nothing keeps nobody out."""
    refused, heard = [], []

    async def take(stream):
        heard.append(await stream.read())

    async def scenario():
        with Federation("a", "b") as federation, ExitStack() as silent:
            loop, own = asyncio.get_running_loop(), federation.credentials["b"]
            listener = Listener(
                federation.listen["b"], own, take, lambda *words: refused.append(words[1]), shared=True, most=3
            )
            await listener.start()
            host, _, port = federation.listen["b"].partition(":")
            lines = [silent.enter_context(socket.create_connection((host, int(port)))) for _ in range(3)]
            await when(lambda: len(listener._unknown) == 3)
            async with Caller(federation, showing(federation.credentials["a"])) as stream:
                await stream.write(b"here")
                await when(lambda: heard == [b"here"])
            lines[0].setblocking(False)
            assert await asyncio.wait_for(loop.sock_recv(lines[0], 1), PATIENCE) == b""
            await listener.stop()

    run(scenario)
    assert refused == ["it did not say who it is, and too many others wait"]


# -- not who it says ---------------------------------------------------------------------------------------------------


def opening(me, credentials, job=None, session=b"s" * 32):
    names = ("a", "b")
    terms = RunTerms.of(names, job or {"algorithm": {"step": 0.1}})
    return Handshake(me, "b", terms, Standing(session), OwnIdentity(credentials))


@pytest.mark.parametrize(
    ("certificate", "says", "words"),
    [
        ("c", "a", "its certificate is made out to 'c.colonnade', party 'a' needs 'a.colonnade'"),
        ("b", "a", "its certificate is made out to 'b.colonnade', party 'a' needs 'a.colonnade'"),
        ("c", "c", "'c' is no party of this run"),
        ("b", "b", "'b' is no party of this run"),
    ],
)
def test_a_name_that_is_not_the_callers_is_refused(certificate, says, words, log):
    async def attack(federation):
        own = AUTHORITY.issue(certificate)
        async with Caller(federation, showing(own)) as stream:
            handshake = opening(says, own)
            await stream.write(handshake.open())
            with pytest.raises(HandshakeFailed) as caught:
                handshake.answered(await stream.read(), stream.shown)
            assert str(caught.value) == f"it refused: {words}"

    (line,) = under_attack(attack, log)
    assert line.startswith("refused 127.0.0.1:")
    assert line.endswith(f": {words}")


@pytest.mark.parametrize("names", NOT_NAMES.values(), ids=NOT_NAMES)
def test_a_caller_is_known_by_its_dns_names_alone(names, log):
    """Its authority is the right one, and something in its certificate reads as the party's name."""
    own = issue(AUTHORITY, names("a.colonnade"), common="a.colonnade")

    async def attack(federation):
        async with Caller(federation, showing(own)) as stream:
            await stream.write(opening("a", own).open())
            kind, why = decode(await stream.read())
            assert kind == "refused"
            assert why.startswith("its certificate is made out to ")
            assert why.endswith(", party 'a' needs 'a.colonnade'")

    assert len(under_attack(attack, log)) == 1


def test_a_certificate_that_only_its_hello_holds_is_refused(log):
    """Certificates are public: a caller shows a's in its hello, and its own to TLS."""

    async def attack(federation):
        async with Caller(federation, showing(AUTHORITY.issue("c"))) as stream:
            await stream.write(opening("a", federation.credentials["a"]).open())
            words = "its hello holds another certificate than the one that it has shown to TLS"
            assert decode(await stream.read()) == ("refused", words)

    assert len(under_attack(attack, log)) == 1


@pytest.mark.parametrize("how", ["revoked", "not pinned"])
def test_a_caller_whose_certificate_is_not_wanted_any_more_is_refused(how, log):
    old = AUTHORITY.issue("a")

    def more(federation):
        b = federation.credentials["b"]
        if how == "revoked":
            return replace(b, revoked=revoked(AUTHORITY, old))
        return replace(b, pins=(("a", fingerprint(federation.credentials["a"])),))

    async def attack(federation):
        async with Caller(federation, showing(old)) as stream:
            await stream.write(opening("a", old).open())
            kind, why = decode(await stream.read())
            assert (kind, "was revoked by" in why, "pinned for 'a'" in why) == (
                *("refused", how == "revoked"),
                how == "not pinned",
            )

    assert len(under_attack(attack, log, change=more)) == 1


def fingerprint(credentials):
    return trust.fingerprint(x509.load_pem_x509_certificate(credentials.certificate))


def test_a_recorded_stream_is_refused(log, monkeypatch):
    """Everything that a said in a good stream, said again by somebody who even has a's certificate."""
    recorded = []

    async def recording(*args):
        stream = await streams.dial(*args)
        write = stream.write

        async def record(message):
            recorded.append(message)
            await write(message)

        stream.write = record
        return stream

    monkeypatch.setattr(peer_line, "dial", recording)

    async def attack(federation):
        opening, proof = recorded[:2]
        async with Caller(federation, showing(federation.credentials["a"])) as stream:
            await stream.write(opening)
            assert decode(await stream.read())[0] == "welcome"  # it may be a's next attempt to connect, so far
            await stream.write(proof)
            assert decode(await stream.read()) == ("refused", REPLAY)
            assert await stream.read() is None

    (line,) = under_attack(attack, log)
    assert line.endswith(REPLAY)


def test_another_job_is_refused(log):
    async def attack(federation):
        async with Caller(federation, showing(federation.credentials["a"])) as stream:
            handshake = opening("a", federation.credentials["a"], {"algorithm": {"step": 9.5}})
            await stream.write(handshake.open())
            await stream.write(handshake.answered(await stream.read(), stream.shown))
            with pytest.raises(HandshakeFailed, match=r"differs in 'algorithm.step': 9.5 here, 0.1 there"):
                handshake.conclude()
            assert await stream.read() is None

    (line,) = under_attack(attack, log)
    assert line.endswith(
        "the job of party 'a' differs in 'algorithm.step': 0.1 here, 9.5 there; agree on one job and start again"
    )


def test_a_second_session_of_a_party_that_is_there_is_refused(log):
    async def attack(federation):
        async with Caller(federation, showing(federation.credentials["a"])) as stream:
            handshake = opening("a", federation.credentials["a"])
            await stream.write(handshake.open())
            await stream.write(handshake.answered(await stream.read(), stream.shown))
            with pytest.raises(NotNow, match="it said: it is in this run already"):
                handshake.accepted(await stream.read())
            assert handshake.conclude() == "behind"

    (line,) = under_attack(attack, log)
    assert line.endswith("it is in this run already; was it started twice?")


# -- not what a party says ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"GET / HTTP/1.1", "its message is malformed"),
        (b"", "its message is malformed"),
        (os.urandom(1000), "its "),
        (bytes(MAX_LINE_MESSAGE + 1), "it hung up, or sent too long a message"),
        (None, "it did not say who it is"),
    ],
    ids=["http", "empty", "random", "oversized", "nothing"],
)
def test_a_first_message_that_is_no_hello_is_refused(message, words, log):
    async def attack(federation):
        async with Caller(federation, showing(federation.credentials["a"])) as stream:
            with suppress(OSError):
                if message is not None:
                    await stream.write(message)
                await asyncio.wait_for(stream.read(), PATIENCE)

    (line,) = under_attack(attack, log, 1.0 if message is None else PATIENCE)
    assert words in line


@pytest.mark.parametrize(
    ("junk", "words"),
    [
        (b"junk", "a message of 4 bytes on the line, its head alone has 17"),
        (b"\xff" * 100, "bytes from number 18446744073709551615 on, though those from"),
        (b"\x00" + b"\xff" * 8 + b"\x00" * 8, "18446744073709551615 bytes acknowledged of"),
    ],
    ids=["short", "gap", "acknowledged too much"],
)
def test_a_message_that_does_not_fit_the_line_ends_the_connection_and_not_the_run(junk, words, log):
    async def scenario():
        with Federation("a", "b") as federation:
            stop, started = asyncio.Event(), asyncio.Event()
            lead, follow = until(stop, started)

            async def lead_with_junk(net, peer):
                async def junk_in_between():
                    while not any(words in line for line in lines(log)):
                        await more(lead, 5)
                        stream = net.lines[peer]._stream
                        try:
                            await stream.write(junk)
                        except Exception:
                            continue
                        await when(lambda stream=stream: net.lines[peer]._stream is not stream)  # the peer has hung up
                    await more(lead)
                    stop.set()

                net.spawn(junk_in_between())
                return await lead(net, peer)

            values = await federation.all({"a": (lead_with_junk, "b"), "b": (follow, "a")})
            assert values["a"] == values["b"] > 20

    run(scenario)
    refused = [line for line in lines(log) if line.startswith("refused") and words in line]
    assert refused  # once for each time that junk got through
    assert "party 'a'" in refused[0]


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (pack_frame(b"\x00" * 9), "a frame of 9 bytes is shorter than its own head"),
        (HEADER.pack(MAX_MESSAGE + 1), f"a message of {MAX_MESSAGE + 1} bytes was announced"),
        (b"\xff" * 100, "a message of 18446744073709551615 bytes was announced"),
    ],
    ids=["malformed", "oversized", "endless"],
)
def test_a_frame_that_no_honest_party_sends_names_its_sender(frame, words, log):
    """It comes from a party of the run, in its turn: there is no going on without it."""

    async def push(net, peer):
        await net.recv(peer, "begin")
        net.lines[peer].push(frame)
        await net.recv(peer, "never")

    async def scenario():
        with Federation("a", "b", "c") as federation:
            work = {"a": (push, "b"), "b": (programs.begin_then_wait, "a"), "c": (programs.wait_for, "b", "result")}
            values = await federation.all(work, grace=1.0)
            assert isinstance(values["b"], PartyFailed)
            assert str(values["b"]).startswith(f"party 'a' sent a malformed message at step 'result': {words}")
            assert values["c"].party == "a"
            assert "sent a malformed message" in str(values["c"])

    run(scenario)
    assert [line for line in lines(log) if line.startswith("refused")] == [f"refused party 'a': {line_words(log)}"]


def line_words(log):
    return next(line for line in lines(log) if line.startswith("refused")).partition(": ")[2]


# -- whom a dialler believes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "impostor",
    [
        AUTHORITY.issue("c"),
        FOREIGN.issue("b"),
        AUTHORITY.issue("b", days=-1),
        *(issue(AUTHORITY, names("b.colonnade"), common="b.colonnade") for names in NOT_NAMES.values()),
    ],
    ids=["another name", "another authority", "expired", *NOT_NAMES],
)
def test_a_dialler_does_not_speak_to_an_impostor(impostor):
    async def scenario():
        with Federation("a", "b") as federation:
            heard = []

            async def listen(stream):
                heard.append(await stream.read())

            trusting = Credentials(AUTHORITY.pem, impostor.certificate, impostor.key)
            listener = Listener(federation.listen["b"], trusting, listen, lambda *_: None, shared=True)
            await listener.start()
            with pytest.raises(PartySilent, match=r"party 'b' did not join within 1 s: .*its certificate is not"):
                await federation.party("a", ping, "b", 1, patience=1.0)
            await listener.stop()
            assert heard == []

    run(scenario)


@asynccontextmanager
async def listening_as_b(federation, credentials, take):
    """Somebody else where party b should be, with credentials that TLS takes for b's."""
    listener = Listener(federation.listen["b"], credentials, take, lambda *_: None, shared=True)
    await listener.start()
    try:
        yield
    finally:
        await listener.stop()


@pytest.fixture
def careless(monkeypatch):
    """TLS refuses a wrong name, as the test above shows; here it does not look, and the handshake is alone with it."""
    strict = tls.context

    def blind(credentials, *, listening):
        context = strict(credentials, listening=listening)
        context.check_hostname = False
        return context

    monkeypatch.setattr(tls, "context", blind)


@pytest.mark.parametrize("names", NOT_NAMES)
@pytest.mark.parametrize("differs", [False, True], ids=["the same job", "another job"])
def test_a_dialler_believes_no_listener_that_tls_took_for_the_party(names, differs, careless):
    """It hears a hello, and neither a job nor a proof: the impostor's certificate is not b's."""
    own = issue(AUTHORITY, NOT_NAMES[names]("b.colonnade"), common="b.colonnade")

    async def scenario():
        with Federation("a", "b") as federation:
            heard = []

            async def listen(stream):
                hello = await stream.read()
                heard.append(hello)
                terms = RunTerms.of(("a", "b"), {"other": 1} if differs else federation.job)
                impostor = Handshake("b", "a", terms, Standing(b"i" * 32), OwnIdentity(own))
                await stream.write(impostor.answer(hello, stream.shown))
                heard.append(await stream.read())

            async with listening_as_b(federation, own, listen):
                with pytest.raises(HandshakeFailed, match=r"its certificate is made out to .*, party 'b' needs"):
                    await federation.party("a", ping, "b", 1)
            assert [message for message in heard[1:] if message is not None] == []

    run(scenario)


@pytest.mark.parametrize("differs", [False, True], ids=["the same job", "another job"])
def test_a_dialler_believes_no_listener_that_shows_the_partys_certificate_and_lacks_its_key(differs, careless):
    """It passes b's own certificate on, which everybody may know, and signs with what it has."""
    own = issue(AUTHORITY, NOT_NAMES["a star"]("b.colonnade"))

    async def scenario():
        with Federation("a", "b") as federation:
            heard = []

            async def listen(stream):
                hello = await stream.read()
                terms = RunTerms.of(("a", "b"), {"other": 1} if differs else federation.job)
                impostor = Handshake("b", "a", terms, Standing(b"i" * 32), OwnIdentity(own))
                impostor.own = replace(impostor.own, chain=federation.credentials["b"].chain())
                await stream.write(impostor.answer(hello, stream.shown))
                heard.append(await stream.read())

            async with listening_as_b(federation, own, listen):
                with pytest.raises(HandshakeFailed, match="a replay, or an impostor"):
                    await federation.party("a", ping, "b", 1)
            assert [message for message in heard if message is not None] == []

    run(scenario)


def test_nobody_in_between_gets_a_listener_to_sign_for_a_dialler(log, careless):
    """TLS takes it for b, and it passes everything on to the real b, over a connection of its own."""
    own = issue(AUTHORITY, [*NOT_NAMES["a star"]("b.colonnade")])
    said = []

    async def attack(federation):
        async def listen(stream):
            hello = await stream.read()
            async with Caller(federation, showing(own)) as real:
                await real.write(hello)
                said.append(await real.read())
                await stream.write(said[0])
                await stream.read()

        with Federation("a", "b") as another:
            another.credentials = federation.credentials
            async with listening_as_b(another, own, listen):
                with pytest.raises(HandshakeFailed, match="another certificate than the one that it has shown to TLS"):
                    await another.party("a", ping, "b", 1)

    under_attack(attack, log)
    assert decode(said[0])[0] == "refused"


@pytest.mark.parametrize("how", ["revoked", "not pinned", "out of date"])
def test_a_dialler_looks_at_lists_and_pins_too(how):
    async def scenario():
        with Federation("a", "b") as federation:
            a, b = federation.credentials.values()
            federation.credentials["a"], words = {
                "revoked": (replace(a, revoked=revoked(AUTHORITY, b)), "its certificate was revoked by"),
                "not pinned": (
                    replace(a, pins=(("b", fingerprint(a)),)),
                    "its certificate is not the one that is pinned",
                ),
                "out of date": (replace(a, revoked=revoked(AUTHORITY, until=-1)), "revoked certificates expired on"),
            }[how]
            values = await federation.all({"a": (ping, "b", 1), "b": (pong, "a", 1)}, patience=5.0)
            assert isinstance(values["a"], HandshakeFailed)
            assert words in str(values["a"])
            assert isinstance(values["b"], PartySilent)

    run(scenario)


def test_lists_and_pins_let_those_in_who_are_wanted(log):
    async def scenario():
        with Federation("a", "b") as federation:
            pins = tuple((name, fingerprint(each)) for name, each in federation.credentials.items())
            for name, each in federation.credentials.items():
                federation.credentials[name] = replace(each, pins=pins, revoked=revoked(AUTHORITY))
            assert await federation.all({"a": (ping, "b", 3), "b": (pong, "a", 3)}) == {"a": 3, "b": 3}

    run(scenario)
    assert lines(log) == []


# -- without TLS -------------------------------------------------------------------------------------------------------


def carried(log, payload, **options):
    """What somebody on the line between a and b sees."""

    async def scenario():
        with Federation("a", "b") as federation:
            line = federation.relay("b", keep=True)
            work = {"a": (ping, "b", 3, payload), "b": (pong, "a", 3)}
            assert await federation.all(work, **options) == {"a": 3, "b": 3}
            return bytes(line.seen)

    return run(scenario)


def test_nothing_on_the_line_can_be_read(log, monkeypatch):
    payload = np.random.default_rng(0).bytes(100)
    # The name of the step with all that stands before it in the frame: four letters alone come by chance now and then.
    frame = pack_message(DATA, 0, "ping", (0, payload))
    step = frame[: frame.index(b"ping") + 4]
    seen = carried(log, payload)
    assert len(seen) > 1000
    assert payload not in seen
    assert step not in seen
    monkeypatch.setenv(tls.INSECURE, "1")
    seen = carried(log, payload, credentials=None)  # the same eyes see it where TLS is off
    assert payload in seen
    assert step in seen


def test_lines_without_tls_are_for_tests_alone(monkeypatch):
    monkeypatch.delenv(tls.INSECURE, raising=False)

    async def scenario():
        with Federation("a", "b") as federation, pytest.raises(OptionError, match="a party needs credentials"):
            await federation.party("a", ping, "b", 1, credentials=None)

    run(scenario)


def test_the_switch_is_looked_at_in_one_place():
    from pathlib import Path

    source = Path(tls.__file__).parents[1]
    found = [path.name for path in source.rglob("*.py") if tls.INSECURE in path.read_text()]
    assert found == ["tls.py"]
    assert Path(tls.__file__).read_text().count("environ.get(INSECURE)") == 1
