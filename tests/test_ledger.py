"""The ledger: what is written, and that nothing in it can be changed, removed or moved unnoticed."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import LedgerError
from colonnade.federation import ledger
from colonnade.federation.ledger import Ledger, entries, seal_file, shape, verify
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
    assert lines[3]["digest"] == hashlib.sha256(encode(np.arange(2.0))).hexdigest()
    assert path.stat().st_mode & 0o777 == 0o600


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
    book._file.close()
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
    monkeypatch.setattr(ledger, "_START", "0" * 64)
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
