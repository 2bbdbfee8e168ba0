"""The ledger: what is written, and that nothing in it can be changed, removed or moved unnoticed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade import private_files
from colonnade.data.ids import pack
from colonnade.errors import LedgerError
from colonnade.ledger import ledger, lines
from colonnade.ledger.ledger import Ledger, entries, shape
from colonnade.ledger.lines import digest, key_file, line_key, read_key, seal_file
from colonnade.ledger.verify import verify
from colonnade.runtimes.wire import encode

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


def check(signed, signature):
    try:
        KEY.public_key().verify(signature, signed)
    except InvalidSignature:
        return False
    return True


def written(path, messages=6, key=KEY, close=True):
    book = Ledger(path, key.sign, check if key is KEY else lambda *_: True, run={"job": "abc"})
    for k in range(messages):
        book.note("shop", "scores" if k % 2 else "signal", np.arange(float(k + 1)), 100 + k)
    if close:
        book.close()
    return book


def test_what_a_line_says(tmp_path):
    path = tmp_path / "ledger"
    written(path, 2)
    lines = list(entries(path))
    assert [line.get("event") for line in lines] == ["run", "begin", None, None, "end"]
    assert lines[3]["to"] == "shop"
    assert (lines[3]["kind"], lines[3]["shape"], lines[3]["bytes"]) == ("scores", "float64[2]", 101)
    assert lines[3]["digest"] == digest(line_key(read_key(path), 4), np.arange(2.0))
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == dict.fromkeys(
        ("ledger", "ledger.seal", "ledger.key", "ledger.lock"), 0o600
    )


def test_shapes_tell_no_content():
    assert (
        shape((1, "secret", np.zeros((3, 2), np.uint8), None, b"four")) == "(int, str, uint8[3, 2], NoneType, bytes[4])"
    )


def test_a_ledger_of_several_runs_is_one_chain(tmp_path):
    path = tmp_path / "ledger"
    for _ in range(3):
        written(path)
    report = verify(path, check)
    assert (report.runs, report.lines, report.sealed) == (3, 27, 27)
    assert report.by_kind == {("shop", "signal"): 9, ("shop", "scores"): 9}
    assert report.bytes_by_kind["shop", "signal"] == 3 * (100 + 102 + 104)


def test_a_run_that_crashed_leaves_unsealed_lines_and_the_next_goes_on(tmp_path):
    path = tmp_path / "ledger"
    book = written(path, close=False)
    book._leave()
    assert verify(path, check).sealed == 2
    with path.open("a") as file:
        file.write('{"n":9,"time":"2026-')  # the crash cut a line off
    with pytest.raises(LedgerError, match="line 9 of 'ledger' is no line of a ledger: it was changed or cut off"):
        verify(path, check)
    written(path)
    assert verify(path, check).lines == 8 + 9


def spoilt(path, change):
    lines = path.read_text().splitlines(keepends=True)
    change(lines)
    path.write_text("".join(lines))


@pytest.mark.parametrize("at", range(9))
def test_any_removed_line_is_found(tmp_path, at):
    path = tmp_path / "ledger"
    written(path)
    spoilt(path, lambda lines: lines.pop(at))
    with pytest.raises(LedgerError, match=r"line|seal"):
        verify(path, check)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_changed_or_moved_line_is_found(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("book") / "ledger"
    written(path)
    text = path.read_bytes()
    at = int(data.draw(st.floats(0, 1, exclude_max=True)) * len(text))
    changed = (text[at] + data.draw(st.integers(1, 255))) % 256
    path.write_bytes(text[:at] + bytes([changed]) + text[at + 1 :])
    with pytest.raises(LedgerError):
        verify(path, check)
    path.write_bytes(text)
    one, two = data.draw(st.lists(st.integers(0, 8), min_size=2, max_size=2, unique=True))
    spoilt(path, lambda lines: lines.__setitem__(slice(None), [*swapped(lines, one, two)]))
    with pytest.raises(LedgerError):
        verify(path, check)


def swapped(lines, one, two):
    lines = list(lines)
    lines[one], lines[two] = lines[two], lines[one]
    return lines


def test_a_chain_that_was_made_anew_lacks_the_seals(tmp_path):
    """Whoever changes a line and chains all of it again does not have the key."""
    path = tmp_path / "ledger"
    written(path)
    genuine = seal_file(path).read_text()
    path.unlink()
    seal_file(path).unlink()
    written(path, key=OTHER)
    with pytest.raises(LedgerError, match="the seal of 'ledger' is not one that this party's key made"):
        verify(path, check)
    seal_file(path).write_text(genuine)
    with pytest.raises(LedgerError, match="line 2 of 'ledger' has a seal that this party's key did not make"):
        verify(path, check)


def test_a_forged_or_missing_seal_beside_it(tmp_path):
    path = tmp_path / "ledger"
    written(path)
    beside = seal_file(path)
    end = json.loads(beside.read_text())
    beside.write_text(json.dumps({**end, "lines": 5}))
    with pytest.raises(LedgerError, match="the seal of 'ledger' is not one that this party's key made"):
        verify(path, check)
    beside.unlink()
    with pytest.raises(LedgerError, match="the seal of 'ledger' can't be read"):
        verify(path, check)
    with pytest.raises(LedgerError, match="'nothing' can't be read: No such file"):
        verify(tmp_path / "nothing", check)


def test_an_end_that_was_cut_and_sealed_before(tmp_path):
    """Without its last lines the file ends at an earlier, genuine seal: the one beside it knows of more."""
    path = tmp_path / "ledger"
    written(path)
    spoilt(path, lambda lines: lines.__delitem__(slice(2, None)))
    with pytest.raises(LedgerError, match="has 2 lines, its seal says 9: lines at the end were removed"):
        verify(path, check)


def test_the_first_line_follows_from_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    monkeypatch.setattr(ledger, "START", b"0" * 64)
    written(path)
    monkeypatch.undo()
    with pytest.raises(LedgerError, match="line 1"):
        verify(path, check)


def test_nothing_is_added_to_a_ledger_of_which_something_is_missing(tmp_path):
    """After that nobody could find it out."""
    path = tmp_path / "ledger"
    written(path)
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    for content, sentence in (
        ("".join(lines[:3]), "has 3 lines, its seal says 9; set both files aside"),
        ("", "has 0 lines, its seal says 9; set both files aside"),
        ("".join([*lines[:4], '{"damaged"}\n', *lines[5:]]), "line 5 of 'ledger' does not follow from the lines"),
        ("".join(lines[:4] + lines[5:]), "line 5 of 'ledger' does not follow"),
    ):
        path.write_text(content)
        with pytest.raises(LedgerError, match=sentence):
            written(path)
        assert path.read_text() == content
    path.unlink()
    with pytest.raises(LedgerError, match="has 0 lines, its seal says 9"):
        written(path)
    path.write_text(whole)
    end = json.loads(seal_file(path).read_text())
    seal_file(path).write_text(json.dumps({**end, "lines": 3}))
    with pytest.raises(LedgerError, match="not one that this party's key made; if the key was renewed, set the ledger"):
        written(path)
    seal_file(path).unlink()
    with pytest.raises(LedgerError, match="the seal of 'ledger' is missing, it belongs beside it"):
        written(path)


def test_a_last_line_that_was_rewritten_after_the_seal_before_it(tmp_path):
    """A ledger that goes on behind its seal must still be the sealed one up to there."""
    path, other = tmp_path / "ledger", tmp_path / "other"
    written(path)
    written(other, messages=9)
    path.write_text(other.read_text())
    with pytest.raises(LedgerError, match="line 9 of 'ledger' is another one than its seal says"):
        verify(path, check)


def test_one_process_of_a_party_at_a_time(tmp_path):
    path = tmp_path / "ledger"
    book = written(path, close=False)
    with pytest.raises(LedgerError, match="another process of this party is running: it has the ledger 'ledger' open"):
        written(path)
    book.close()
    written(path)
    assert verify(path, check).runs == 2


def test_a_first_run_that_crashes_before_its_seal(tmp_path):
    path = tmp_path / "ledger"
    written(path)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:1]))
    seal_file(path).unlink()
    written(path)
    assert verify(path, check).runs == 2


# -- digests -----------------------------------------------------------------------------------------------------------


def question(person):
    """What a label holder sends that asks about one person."""
    texts = np.empty(1, dtype=object)
    texts[:] = [person]
    return ("ask", *pack(texts))


def test_who_was_asked_about_can_not_be_guessed_from_the_ledger(tmp_path):
    """Whoever has the ledger and its seal tries all ids there are; with the key, its owner finds the one."""
    path = tmp_path / "ledger"
    book = Ledger(path, KEY.sign, check, run={"job": "abc"})
    for _ in range(2):
        book.note("shop", "scoring", question("p01234"), 60)
    book.close()
    first, second = (line for line in entries(path) if line.get("kind") == "scoring")
    named = next(entries(path))["key"].encode()
    public = [b"", b"\0" * 32, first["chain"].encode(), named]  # what anybody knows
    for number in range(20_000):
        guess = encode(question(f"p{number:05}"))
        found = {hashlib.sha256(guess).hexdigest(), *(hmac.digest(key, guess, "sha256").hex() for key in public[:2])}
        assert first["digest"] not in found
    for key in public:
        for n in (0, first["n"]):
            assert digest(line_key(key, n), question("p01234")) != first["digest"]
    assert first["digest"] != second["digest"]  # nor that it was the same person
    # The owner shows one line's key, and with it what left then, and nothing else.
    shown = line_key(read_key(path), first["n"])
    matching = [number for number in range(20_000) if digest(shown, question(f"p{number:05}")) == first["digest"]]
    assert matching == [1234]
    assert digest(shown, question("p01234")) != second["digest"]


def test_the_key_of_a_ledger(tmp_path):
    path = tmp_path / "ledger"
    written(path)
    key = read_key(path)
    written(path)
    assert read_key(path) == key
    assert len(verify(path, check).keys) == 1
    key_file(path).write_text("no key")
    with pytest.raises(LedgerError, match="must hold 32 bytes in hexadecimal; put it back from a backup"):
        written(path)
    key_file(path).unlink()  # lost: earlier digests can't be proved, and the ledger says which
    written(path)
    assert list(verify(path, check).keys.values()) == [2, 1]


@pytest.mark.skipif(os.name != "posix", reason="this system knows no such modes")
@pytest.mark.parametrize("name", ["ledger", "ledger.key"])
def test_a_ledger_that_others_may_use_is_not_gone_on_with(tmp_path, name):
    written(tmp_path / "ledger")
    (tmp_path / name).chmod(0o640)
    with pytest.raises(LedgerError, match=f"has mode 640, with which others .* chmod 600 {tmp_path / name}"):
        written(tmp_path / "ledger")
    (tmp_path / name).chmod(0o600)
    written(tmp_path / "ledger")


# -- from run to run ---------------------------------------------------------------------------------------------------


def test_what_is_remembered_over_runs(tmp_path):
    path = tmp_path / "ledger"
    records = [{"numbers": 3, "step": "scores", "share": 0.1}, {"numbers": 1 << 60, "note": 'a "quoted" word, é'}]
    for record in records:
        book = Ledger(path, KEY.sign, check, run={"job": "abc"})
        book.remember("budget", record)
        book.remember("another kind", {})
        book.note("shop", "scores", np.arange(5.0), 99)
        book.close()
    book = Ledger(path, KEY.sign, check, run={"job": "abc"})
    assert book.remembered("budget") == records
    assert book.remembered("another kind") == [{}, {}]
    assert book.remembered("no such") == []
    book.remember("budget", {"numbers": 2})
    book.remembered("budget")[0]["numbers"] = 0  # a copy
    assert [record["numbers"] for record in book.remembered("budget")] == [3, 1 << 60, 2]
    book._leave()  # killed: what was remembered is there nevertheless
    book = Ledger(path, KEY.sign, check, run={"job": "abc"})
    assert len(book.remembered("budget")) == 3
    book.close()
    report = verify(path, check)
    assert report.memory.records["budget"] == [*records, {"numbers": 2}]
    assert report.by_kind == {("shop", "scores"): 2}  # a record is no message
    for old, new in (('"numbers":3', '"numbers":0'), ('"of":"budget"', '"of":"nothing"')):
        text = path.read_text()
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(LedgerError, match="line 3 of 'ledger' does not follow from the lines before it"):
            verify(path, check)
        with pytest.raises(LedgerError, match="line 3 of 'ledger' does not follow from the lines before it"):
            written(path)
        path.write_text(text)


@pytest.mark.parametrize(
    ("kind", "record", "sentence"),
    [
        ("Budget!", {}, "a kind of record has up to 40 lower-case letters"),
        ("", {}, "a kind of record has up to 40 lower-case letters"),
        ("budget", {"x": True}, "holds texts and finite numbers under names, got True as 'x'"),
        ("budget", {"x": None}, "got None as 'x'"),
        ("budget", {"x": [1]}, r"got \[1\] as 'x'"),
        ("budget", {"x": float("nan")}, "got nan as 'x'"),
        ("budget", {"x": float("inf")}, "got inf as 'x'"),
        ("budget", {"x": np.float64(1.0)}, "as 'x'"),
        ("budget", {1: 1}, "got 1 as 1"),
        ("budget", {"x": "y" * 20_000}, "has at most 16384 characters"),
    ],
)
def test_what_would_not_be_read_as_it_was_written(tmp_path, kind, record, sentence):
    book = Ledger(tmp_path / "ledger", KEY.sign, check, run={"job": "abc"})
    with pytest.raises(LedgerError, match=sentence):
        book.remember(kind, record)
    book.close()
    assert verify(tmp_path / "ledger", check).lines == 3


def test_a_ledger_of_the_first_format_goes_on(tmp_path):
    """As version 0.1 wrote it: plain digests, no key, nobody who should have countersigned."""
    path = tmp_path / "ledger"
    chain, lines = hashlib.sha256(b"colonnade ledger 1").hexdigest(), []

    def add(entry):
        nonlocal chain
        text = json.dumps({"n": len(lines) + 1, "time": "2026-01-01T00:00:00.000000+00:00", **entry})[:-1]
        chain = hashlib.sha256((chain + text).encode()).hexdigest()
        lines.append(f'{text},"chain":"{chain}"}}\n')

    def signed(text):
        return base64.b64encode(KEY.sign(text.encode())).decode()

    add({"event": "run", "format": 1, "job": "abc", "name": "loans", "me": "bank"})
    add({"event": "begin", "seal": signed(chain)})
    plain = hashlib.sha256(encode(np.arange(3.0))).hexdigest()
    add({"to": "shop", "kind": "scores", "shape": "float64[3]", "bytes": 99, "digest": plain})
    add({"event": "end", "seal": signed(chain)})
    private_files.write(path, "".join(lines))
    end = {"lines": 4, "chain": chain, "seal": signed(f"4 {chain}")}
    private_files.write(seal_file(path), json.dumps(end))
    report = verify(path, check)
    assert (report.runs, report.lines, report.uncountersigned, dict(report.keys)) == (1, 4, [], {})
    written(path)
    report = verify(path, check)
    assert (report.runs, report.lines, sum(report.keys.values())) == (2, 13, 1)
    assert report.by_kind["shop", "scores"] == 1 + 3


def test_a_ledger_of_a_later_version_is_left_alone(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    monkeypatch.setattr(lines, "FORMAT", 3)
    monkeypatch.setattr(ledger, "FORMAT", 3)
    written(path)
    monkeypatch.undo()
    before = path.read_bytes()
    for look in (lambda: verify(path, check), lambda: written(path)):
        with pytest.raises(LedgerError, match=r"line 1 of 'ledger' .*has format 3, this version reads up to 2"):
            look()
    assert path.read_bytes() == before


def test_two_runs_of_one_party_write_in_turns(tmp_path):
    """One that serves and one that trains: a chain, in which every line is known to be of which run."""
    path = tmp_path / "ledger"
    one = Ledger(path, KEY.sign, check, run={"job": "abc", "me": "bank", "parties": ["bank", "shop"]}, lane="scoring")
    one.note("shop", "scoring", 1, 10)
    two = Ledger(path, KEY.sign, check, run={"job": "abc"})
    for lane in ("", "scoring"):
        with pytest.raises(LedgerError, match="another process of this party is running"):
            Ledger(path, KEY.sign, check, run={"job": "abc"}, lane=lane)
    two.note("shop", "scores", np.arange(2.0), 20)
    one.note("shop", "scoring", 2, 10)
    one.note("shop", "scoring", 3, 10)
    two.remember("numbers", {"count": 3})
    assert one.remembered("numbers") == [{"count": 3}]
    assert one.holds(two.head("bank"))
    two.close()
    one.seal("done")
    with path.open("ab") as file:
        file.write(b'{"n":')  # another process was killed while it wrote
    one.close()
    lines = list(entries(path))
    assert [line["n"] for line in lines] == list(range(1, len(lines) + 1))
    assert [(line["kind"], line.get("of run")) for line in lines if "kind" in line] == [
        ("scoring", None), ("scores", None), ("scoring", one.run), ("scoring", None),
    ]  # fmt: skip
    report = verify(path, check)
    assert (report.runs, report.sealed) == (2, len(lines))
    done = next(line["n"] for line in lines if line.get("event") == "done")
    assert (report.each[0].mark, report.each[0].done) == (done, True)
