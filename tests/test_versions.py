"""Trainings have ids that all parties derive together, and versions lie on a shelf where nothing is overwritten."""

from __future__ import annotations

import hashlib
import hmac
import json
from functools import partial

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import ColonnadeError, DataError, OptionError
from colonnade.families import store
from colonnade.service.in_use import mixed
from colonnade.service.training import Keepers
from colonnade.versions.identity import agree_on_id, own_id, people_digest, short, training_id
from colonnade.versions.shelf import Shelf
from colonnade.versions.version import Version
from test_job_training import ORDER, THIRD, job_for, run, sources
from test_kept import Shelf as Memory

FACTS = (b"job", b"seed", b"people")
ONE, TWO, THREE = "a" * 32, "b" * 32, "c" * 32


# -- ids ---------------------------------------------------------------------------------------------------------------


def agreed(names=("bank", "clinic", "shop"), facts=FACTS, keepers=None, programs=None):
    found = {name: (partial(agree_on_id, keeper=(keepers or {}).get(name)), (facts,)) for name in names}
    return {name: one.value for name, one in cn.Simulation().run(found | (programs or {})).items()}


def test_all_parties_derive_one_id_and_every_training_has_its_own():
    first, second = agreed(), agreed()
    assert len({*first.values()}) == len({*second.values()}) == 1
    assert first["bank"] != second["bank"]  # with the same facts
    assert len(first["bank"]) == 32
    assert int(first["bank"], 16)


def test_an_id_is_a_keyed_digest_of_what_is_known_of_the_training():
    """Written out once more, in another order."""
    numbers = {"shop": b"2" * 32, "bank": b"1" * 32}

    def sha(content):
        return hashlib.sha256(content).digest()

    key = sha(b"".join(sha(name.encode()) + sha(numbers[name]) for name in ("bank", "shop")))
    facts = sha(b"".join(map(sha, FACTS)))
    expected = hmac.new(key, facts, "sha256").hexdigest()[:32]
    assert training_id(numbers.items(), FACTS) == expected
    assert training_id(numbers.items(), (b"jobs", b"eed", b"people")) != expected
    assert training_id([("bank", b"1" * 32), ("shop", b"3" * 32)], FACTS) != expected
    assert own_id(("bank", "shop"), FACTS) != own_id(("bank", "shop"), FACTS)


def test_people_are_the_same_in_any_order_and_any_spelling():
    ids = np.array(["7", " Zo\u0065\u0308", "x", "a"], dtype=object)
    one = people_digest(ids, np.array([0, 1, 3]), "bank")
    assert one == people_digest(np.array(["a", "Zo\u00eb", "7"], dtype=object), np.arange(3), "shop")
    assert one != people_digest(ids, np.array([0, 1, 2]), "bank")
    assert people_digest(None, np.arange(3), "bank") != people_digest(None, np.arange(4), "bank")


def test_a_party_that_has_other_people_or_tells_different_numbers_ends_the_run():
    other = {"shop": (agree_on_id, ((b"job", b"seed", b"others"),))}
    with pytest.raises(ColonnadeError, match=r"has another id of this training than .*it has other people in common"):
        agreed(programs=other)

    async def two_faced(net, facts):
        for number, name in enumerate(("bank", "clinic")):
            await net.send(name, "training id", bytes([number]) * 32)
        for name in ("bank", "clinic"):
            await net.recv(name, "training id")
            await net.send(name, "training id", "?")

    with pytest.raises(ColonnadeError, match="has another id of this training"):
        agreed(programs={"shop": (two_faced, (FACTS,))})

    async def brief(net, facts):
        for name in ("bank", "clinic"):
            await net.send(name, "training id", b"1")
        await net.recv("bank", "training id")

    with pytest.raises(ColonnadeError, match="must send 32 random bytes at step 'training id'"):
        agreed(programs={"shop": (brief, (FACTS,))})


def test_a_job_that_goes_on_keeps_its_id_if_all_have_kept_it():
    keepers = {name: Memory() for name in ("bank", "shop")}
    first = agreed(("bank", "shop"), keepers=keepers)
    assert agreed(("bank", "shop"), keepers=keepers) == first
    keepers["shop"] = Memory()
    again = agreed(("bank", "shop"), keepers=keepers)
    assert again["bank"] == again["shop"] != first["bank"]
    assert agreed(("bank", "shop"), keepers=keepers) == again  # the old one is forgotten
    keepers["shop"].save(1, (THREE,))
    with pytest.raises(ColonnadeError, match="or goes on from another run"):
        agreed(("bank", "shop"), keepers=keepers)


def test_a_job_s_training_id_is_kept_with_its_rows():
    """Through the whole of a job, under the virtual clock."""
    job = job_for(THIRD, algorithm=cn.FedSGD(epochs=1), validation=0.2)
    keepers = {name: Keepers(Memory(), lambda _: Memory(), Memory()) for name in job.parties}
    first, again = (run(job, sources(ORDER), keepers=keepers)[0] for _ in range(2))
    assert len({trained.training for trained in first.values()}) == 1
    assert again["shop"].training == first["bank"].training
    fresh, _ = run(job, sources(ORDER))
    assert fresh["bank"].training != first["bank"].training
    assert fresh["bank"].state[0].tobytes() == first["bank"].state[0].tobytes()  # no bit of it is in the model


# -- the shelf ---------------------------------------------------------------------------------------------------------


def put(shelf, training, date, **about):
    version = Version(training, shelf.place(training), {"date": date, **about})
    version.write()
    return version


@pytest.fixture
def shelf(tmp_path):
    found = Shelf(tmp_path, "bank")
    put(found, TWO, "2026-01-02", rows=10, metrics={"auc": 0.7})
    put(found, ONE, "2026-01-01")
    return found


def test_versions_are_listed_by_their_date_and_found_by_the_beginning_of_their_ids(shelf, tmp_path):
    assert [version.training for version in shelf.versions()] == [ONE, TWO]
    assert (shelf.versions()[1].metrics, shelf.versions()[1].name) == ({"auc": 0.7}, "b" * 12)
    assert shelf.find("b").training == shelf.find("newest").training == TWO
    put(shelf, "b" * 31 + "c", "2026-01-03")
    with pytest.raises(OptionError, match=r"2 versions of 'bank' begin with 'bb'; there are: a{12}, b{12}, b{12}"):
        shelf.find("bb")
    for wrong in ("", "x", "unnamed"):
        with pytest.raises(OptionError, match=f"'bank' has no version '{wrong}'|versions of 'bank' begin with ''"):
            shelf.find(wrong)
    (tmp_path / "versions" / THREE).mkdir()  # of a run that was killed before it was done
    assert len(shelf.versions()) == 3
    assert Shelf(tmp_path / "elsewhere", "bank").versions() == []


def test_the_newest_is_in_use_until_somebody_chooses(shelf):
    assert shelf.promoted().training == TWO
    assert shelf.ended(put(shelf, THREE, "2026-01-03"))
    assert (shelf.promoted().training, shelf.by_hand) == (THREE, False)
    shelf.promote("a")
    assert (shelf.promoted().training, shelf.by_hand) == (ONE, True)
    later = put(shelf, "d" * 32, "2026-01-04")
    assert not shelf.ended(later)
    assert shelf.promoted().training == ONE
    assert shelf.promote("newest") == later
    assert shelf.ended(put(shelf, "e" * 32, "2026-01-05"))
    assert shelf.promoted().training == "e" * 32


def test_rollback_goes_back_step_by_step(shelf):
    with pytest.raises(OptionError, match="no version of 'bank' was in use before this one"):
        shelf.rollback()
    for given in ("a", "b", "b", "a"):
        shelf.promote(given)
    assert shelf.rollback().training == TWO
    assert shelf.rollback().training == ONE
    assert (shelf.promoted().training, shelf.by_hand) == (ONE, True)
    with pytest.raises(OptionError, match="in use before"):
        shelf.rollback()


def test_a_model_from_before_there_were_versions_is_one_of_them(tmp_path):
    (tmp_path / f"bank{store.SUFFIX}").write_bytes(b"")
    shelf = Shelf(tmp_path, "bank")
    assert shelf.promoted() == shelf.find("unnamed") == Version("", tmp_path)
    shelf.ended(put(shelf, ONE, "2026-01-01"))
    assert shelf.promoted().training == ONE
    assert shelf.rollback() == Version("", tmp_path)


def test_what_cant_be_believed_is_said(shelf, tmp_path):
    home = tmp_path / "versions"
    shelf.promote("a")
    for content in ("{", '{"format": 1, "ids": [3], "by_hand": true}', '{"format": 2, "ids": [], "by_hand": true}'):
        (home / "promoted.json").write_text(content)
        with pytest.raises(DataError, match=r"'promoted.json' in 'versions' can't be read"):
            shelf.promoted()
    (home / "promoted.json").write_text(json.dumps({"format": 1, "ids": [THREE], "by_hand": True}))
    with pytest.raises(DataError, match=f"names the version {THREE}, which is not there any more"):
        shelf.promoted()
    (home / "promoted.json").chmod(0o644)
    with pytest.raises(DataError, match="has mode 644"):
        shelf.promoted()
    (home / ONE).rename(home / THREE)
    with pytest.raises(DataError, match=f"'versions/{THREE}' says that it holds the training a{{12}}; give it its own"):
        shelf.versions()
    (home / THREE / "version.json").write_text("[]")
    with pytest.raises(DataError, match=f"'version.json' in 'versions/{THREE}' can't be read"):
        shelf.versions()
    with pytest.raises(DataError, match="'bank' has no part of a model in 'nowhere' yet; train one with"):
        Shelf(tmp_path / "nowhere", "bank").promoted()


# -- parts of different trainings --------------------------------------------------------------------------------------


def fitted(seed=0):
    X = np.random.default_rng(3).standard_normal((60, 4))
    parties = cn.split(X, (X[:, 0] + X[:, 3] > 0).astype(int), into=2)
    return cn.LogisticRegression(verbose=0, algorithm=cn.FedSGD(epochs=2, seed=seed)).fit(*parties), parties


def test_parts_of_two_trainings_are_not_loaded_together(tmp_path):
    """Of the very same job on the very same rows."""
    (first, parties), (second, _) = fitted(), fitted()
    assert first.coef_["party1"].tobytes() == second.coef_["party1"].tobytes()
    assert first.training_ != second.training_
    first.save(tmp_path / "one")
    second.save(tmp_path / "two")
    again = cn.load(tmp_path / "one")
    assert again.training_ == first.training_
    about = [json.loads(str(store.read_party(path)[1]["about"])) for path in store.party_files(tmp_path / "one")]
    assert about[0]["metrics"]["loss"] == first.history_[-1]["loss"]
    assert (about[0]["date"][:2], about[1]["metrics"]) == ("20", {})
    again.save(tmp_path / "copy")
    name = f"party2{store.SUFFIX}"
    (tmp_path / "two" / name).replace(tmp_path / "one" / name)
    sentence = f"different trainings, that of 'party1' of training {first.training_} and that of 'party2' of training "
    with pytest.raises(DataError, match=sentence + second.training_):
        cn.load(tmp_path / "one")
    (tmp_path / "copy" / name).replace(tmp_path / "one" / name)
    assert cn.load(tmp_path / "one").predict(*parties).tolist() == first.predict(*parties).tolist()


def test_files_from_before_trainings_had_ids_are_loaded(tmp_path):
    model, parties = fitted()
    model.training_ = ""  # its files are as they were then
    model.save(tmp_path)
    public, _ = store.read_party(tmp_path / f"party1{store.SUFFIX}")
    assert "training" not in public
    again = cn.load(tmp_path)
    assert again.training_ == ""
    assert again.predict(*parties).tolist() == model.predict(*parties).tolist()
    model.training_ = ONE
    model.save(tmp_path / "new")
    name = f"party2{store.SUFFIX}"
    (tmp_path / "new" / name).replace(tmp_path / name)
    sentence = f"that of 'party1' of one from before trainings had ids and that of 'party2' of training {ONE}"
    with pytest.raises(DataError, match=sentence):
        cn.load(tmp_path)


def test_sentences_about_mixed_parts():
    assert mixed(ONE, "bank", "shop", f'"{TWO}"') == (
        "the parts of the model are of different trainings: 'bank' uses version aaaaaaaaaaaa, 'shop' uses version "
        "bbbbbbbbbbbb; use one at all parties: colonnade model promote job.toml --as shop aaaaaaaaaaaa there, or "
        "colonnade model promote job.toml --as bank bbbbbbbbbbbb here"
    )
    for told in ('""', "nothing", '"not an id"'):
        assert "that of 'bank' is of version aaaaaaaaaaaa, that of 'shop' has no id" in mixed(ONE, "bank", "shop", told)
    assert mixed("", "bank", "shop", f'"{TWO}"').endswith("colonnade model promote job.toml --as shop unnamed")
    assert short("") == "no id"
