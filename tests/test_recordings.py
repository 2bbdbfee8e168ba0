"""What a party writes down of a run: whole, bounded, encrypted, believed only if authentic, never in the run's way."""

from __future__ import annotations

import stat
from dataclasses import replace

import numpy as np
import pytest

import colonnade as cn
from colonnade.alignment.protocol import align
from colonnade.errors import DataError
from colonnade.jobs.budget import OF_COLUMNS, Budget
from colonnade.jobs.policy import kind_of
from colonnade.runtimes.net import CLEAR, OWN, TOLD
from colonnade.runtimes.wire import decode, encode
from colonnade.service.training import take_part
from colonnade.views import recording_file
from colonnade.views.kept import MEGABYTE, KeptView, told_of_each, view_from_value, view_to_value
from colonnade.views.mirror import mirrored
from colonnade.views.recording import RecordedNet
from colonnade.views.recording_file import KEY, read_recording, secret_of, write_recording
from colonnade.views.view import Observation, View
from test_leaks import ALGORITHMS, job_with, sources

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
WHOSE = "bank, training 0123"


def recorded(job_, most=64 * MEGABYTE, watched=True):
    """Run a job while every party looks on: (views, budgets, what was trained)."""
    views = {name: KeptView(name, job_.parties, most=most) for name in job_.parties}
    budgets, found, given = {}, {}, sources(job_.parties, job_.holders)

    def program_of(name):
        async def program(net):
            budgets[name] = Budget(name, 1e6)
            seen = RecordedNet(net, views[name]) if watched else net
            none = lambda *_: None  # noqa: E731
            found[name] = await take_part(seen, job_, given[name], align, none, budget=budgets[name])

        return program

    cn.Simulation().run({name: (program_of(name), ()) for name in job_.parties})
    return views, budgets, found


def about_rows(step):
    return kind_of(step) in OF_COLUMNS


@pytest.mark.parametrize("name", [*ALGORITHMS, "sealed"])
def test_a_view_of_any_run_comes_back_as_it_was_and_no_more_left_than_was_charged(name):
    sealed = {"family": "sealed"} if name == "sealed" else {}
    job_ = job_with(ALGORITHMS.get(name, cn.SealedNewton()), 2, **sealed)
    views, budgets, trained = recorded(job_)
    for me, view in views.items():
        assert (view.ended, view.lost) == ("", "")
        again = view_from_value(decode(encode(view_to_value(view)), room=float("inf")))
        assert (again.me, again.names, again.rows, again.options) == (me, view.names, view.rows, view.options)
        assert len(again.seen) == len(view.seen) > 5
        for one, other in zip(view.seen, again.seen, strict=True):
            assert (one.kind, one.tag, one.party, one.grain) == (other.kind, other.tag, other.party, other.grain)
            assert encode(one.value) == encode(other.value)
            same = one.rows is None if other.rows is None else str(one.rows) == str(other.rows)
            assert same or isinstance(one.rows, list), one
        assert mirrored(again).rows == view.rows
        people = trained[me].rows + trained[me].held_out
        assert told_of_each(view, people, about_rows) <= budgets[me].charged + 1e-9
    if name == "FedSGD":  # where all is counted, the count is that of the budget
        assert told_of_each(views["shop"], 64, about_rows) == pytest.approx(budgets["shop"].charged)
        assert budgets["shop"].charged == 5.0


@pytest.mark.parametrize(
    "name", ["VFB2 printed", "VFB2 printed, drawn", "VFB2 svrg", "BlockNewton in turn", "FedBCD in turn"]
)
@pytest.mark.parametrize("parties", [2, 3])
def test_whose_rows_signals_are_is_known_where_batches_are_not_those_of_an_epoch(name, parties):
    """Launches of a label holder's own choice, and samples that grow: a signal's sign is that of its row's label."""
    job_ = job_with(ALGORITHMS[name], parties)
    views, _, _ = recorded(job_)
    labels = {}
    for me, view in views.items():
        told = view.of(TOLD if me in job_.holders else CLEAR, "signal")
        assert len(told) > 1
        assert not [one for one in view.of(OWN, "snapshot") if one.rows is None]
        for one in told:
            for row, number in zip(one.rows.tolist(), np.sign(one.value).tolist(), strict=True):
                assert labels.setdefault(row, number) == number
    assert len(labels) >= 20
    assert set(labels.values()) == {-1.0, 1.0}


def test_nobody_who_looks_on_changes_the_run(monkeypatch):
    job_ = job_with(ALGORITHMS["FedSGD"])
    _, _, without = recorded(job_, watched=False)
    _, _, found = recorded(job_)

    def broken(*_, **__):
        raise ValueError("of no use")

    with monkeypatch.context() as patch:
        patch.setattr(View, "saw", broken)
        views, _, in_spite = recorded(job_)
    assert views["shop"].ended == "it could not follow the run any more: of no use"
    for name in job_.parties:
        states = [encode(each[name].state) for each in (without, found, in_spite)]
        assert states[0] == states[1] == states[2]


def test_a_recording_ends_where_its_room_does_and_says_so():
    views, _, trained = recorded(job_with(ALGORITHMS["FedSGD"]), most=4000)
    view = views["bank"]
    assert view.size <= 4000
    assert view.seen
    assert view.ended.startswith("it reached 0.004 MB at step ")
    assert "record_mb under [audit]" in view.ended
    assert trained["bank"].rows == 64
    before = len(view.seen)
    view.saw(OWN, "scores", "bank", np.zeros(3))
    assert len(view.seen) == before


def test_of_a_cross_validation_only_the_last_training_is_followed():
    plain = replace(job_with(ALGORITHMS["FedSGD"]), scoring=None)
    (alone, _, _), (folded, _, _) = recorded(plain), recorded(replace(plain, folds=3))
    for name in plain.parties:
        assert not [one for one in folded[name].seen if " in fit" in one.tag]
        for kind, tag in ((OWN, "scores"), (TOLD, "signal"), (CLEAR, "signal"), (OWN, "evaluation")):
            assert len(folded[name].of(kind, tag)) == len(alone[name].of(kind, tag))


def test_ciphertexts_are_not_kept_and_their_steps_are():
    view = KeptView("bank", ("bank", "shop"))
    view.received("shop", "encrypted signal", (b"\x00" * 100_000, 3))
    assert view.seen == [Observation(CLEAR, "encrypted signal", "shop", (None, 3))]
    assert view.size < 1000


# -- the file ------------------------------------------------------------------------------------------------------


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A recording in several pieces, and its secret."""
    monkeypatch.setattr(recording_file, "_PIECE", 1000)
    value = ("told", np.arange(500.0), (None, True, "step"))
    secret = secret_of(tmp_path, make=True)
    path = tmp_path / recording_file.RECORDING
    assert write_recording(path, secret, WHOSE, value) == path.stat().st_size
    return path, secret, value


def refused(path, secret, whose=WHOSE):
    with pytest.raises(DataError) as caught:
        read_recording(path, secret, whose)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_a_recording_is_read_by_whoever_has_the_secret_and_says_nothing_to_others(written):
    path, secret, value = written
    assert encode(read_recording(path, secret, WHOSE)) == encode(value)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((path.parent / KEY).stat().st_mode) == 0o600
    content = path.read_bytes()
    assert b"told" not in content
    assert np.arange(500.0).tobytes()[8:64] not in content
    assert secret_of(path.parent, make=True) == secret  # one secret for all of a party's recordings


def test_whatever_was_changed_is_not_believed(written):
    path, secret, _ = written
    content = path.read_bytes()
    head = recording_file._HEAD
    for at in (head - 20, head, head + 500, head + 1016 + 3, len(content) - 1):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert "was changed or cut off" in refused(path, secret)
    for cut in (content[: head + 1016], content[: head + 2032], content[:-1], content + b"\0"):
        path.write_bytes(cut)
        assert "was changed or cut off" in refused(path, secret)
    first, second = content[head : head + 1016], content[head + 1016 : head + 2032]
    path.write_bytes(content[:head] + second + first + content[head + 2032 :])
    assert "was changed or cut off" in refused(path, secret)
    path.write_bytes(content)
    read_recording(path, secret, WHOSE)


def test_a_recording_of_somebody_else_is_not_believed(written):
    path, secret, _ = written
    assert "of another party or training" in refused(path, secret, "shop, training 0123")
    assert "of another party or training" in refused(path, secret, "bank, training 4567")
    assert "is not the key that it was written with" in refused(path, bytes(32))
    path.write_bytes(b"PK\3\4" + bytes(200))
    assert "is no recording of this version of colonnade" in refused(path, secret)
    path.write_bytes(b"")
    assert "is no recording" in refused(path, secret)


def test_what_others_could_read_is_refused(written):
    path, secret, _ = written
    path.chmod(0o644)
    assert "has mode 644" in refused(path, secret)
    (path.parent / KEY).chmod(0o640)
    with pytest.raises(DataError, match=r"the key of recordings .* has mode 640"):
        secret_of(path.parent)


@pytest.mark.parametrize("content", ["", "abc", "00" * 31, "zz" * 32])
def test_a_key_that_is_none_is_refused(tmp_path, content):
    with pytest.raises(DataError, match=r"'recordings.key' is missing in .*; restore it from a backup"):
        secret_of(tmp_path)
    (tmp_path / KEY).write_text(content)
    (tmp_path / KEY).chmod(0o600)
    with pytest.raises(DataError, match=r"'recordings.key' in .* holds no key of 32 bytes"):
        secret_of(tmp_path, make=True)


@pytest.mark.parametrize(
    "value",
    [
        None, (), ("bank",), ("bank", ("bank", "shop"), 3, None, (), (), (), (("kind",),)),
        ("bank", ("bank", "shop"), 3, ("Magic", ()), (), (), (), ()),
        ("bank", ("bank", "shop"), 3, None, (("bank", 7),), (), (), ()),
    ],
)  # fmt: skip
def test_a_value_that_is_no_view_is_one_sentence(value):
    with pytest.raises(DataError, match="what was recorded is no view of a run") as caught:
        view_from_value(value)
    assert "\n" not in str(caught.value)
