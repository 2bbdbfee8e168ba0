"""Weights of rows: a column of the label holder's, from the user to training, in the order of its rows all the way."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.algorithms.sealed_newton import SealedNewton
from colonnade.alignment.protocol import align
from colonnade.boosting.options import TreeOptions
from colonnade.errors import DataError, InputError, OptionError, RunFailed
from colonnade.families import families, training
from colonnade.families.base import NO_WEIGHTS
from colonnade.families.linear import LinearOptions
from colonnade.families.training import TrainingJob, TrainingPart
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.objective import losses
from colonnade.runtimes.wire import decode, encode
from colonnade.sealed.party import SealedParty
from colonnade.service.training import get_ready
from colonnade.tables import preparation
from test_data import packed, parquet, read, refused  # noqa: F401
from test_job import GOOD
from test_job_training import ORDER, PEOPLE, THIRD, job_for, run, sources
from test_protection_jobs import BARE, complete, with_word

ROWS = 40
RNG = np.random.default_rng(5)
X = RNG.standard_normal((ROWS, 4))
Y = (X[:, 0] + RNG.logistic(size=ROWS) > 0).astype(int)
W = np.arange(ROWS) / 8  # each row has another one


def pair(weights=W, **more):
    return cn.Party("bank", X[:, :2], Y, sample_weight=weights, **more), cn.Party("shop", X[:, 2:])


@pytest.fixture
def given(monkeypatch):
    """{party: the weights that sealed training gets}, and then the run is over."""
    found, made = {}, SealedParty.__init__

    def noted(party, *args, **options):
        made(party, *args, **options)
        own = party.labels
        found[party.net.me] = (None, None) if own is None else (own.weights, own.y[:, 0])

    async def at_once(self, party):
        return None

    monkeypatch.setattr(SealedParty, "__init__", noted)
    monkeypatch.setattr(SealedNewton, "train", at_once)
    return found


# -- a party ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [np.asarray, list, pd.Series, lambda w: w[:, None], lambda w: w.astype(np.float32)])
def test_a_party_takes_weights_as_they_come(made):
    bank, _ = pair(made(W))
    np.testing.assert_array_equal(bank.sample_weight, W)
    assert bank.sample_weight.dtype == np.float64
    np.testing.assert_array_equal(bank.take([3, 1]).sample_weight, [W[3], W[1]])


def test_a_party_without_weights_has_none():
    bank, shop = pair(None)
    assert bank.sample_weight is None
    assert shop.sample_weight is None
    assert bank.take([1]).sample_weight is None


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        (np.r_[W[:-1], np.nan], "must be finite and >= 0 in every row, and is not in 1; the first is nan in row 39"),
        (np.r_[np.inf, W[1:]], "must be finite and >= 0 in every row, and is not in 1; the first is inf in row 0"),
        (W - 0.2, "must be finite and >= 0 in every row, and is not in 2; the first is -0.2 in row 0"),
        (np.zeros(ROWS), "must be above 0 in some row, and is 0 in all of them; leave it out where rows count alike"),
        (W[:-1], "has 39 numbers for 40 rows; give one per row"),
        (np.ones((ROWS, 2)), "must be one number per row, got float64 of shape (40, 2)"),
        (["much"] * ROWS, "must be one number per row, got <U4 of shape (40,)"),
        ([1.0, None] * 20, "must be one number per row, got object of shape (40,)"),
        (3.0, "must be one number per row, got float64 of shape ()"),
    ],
)
def test_weights_that_are_refused(weights, sentence):
    with pytest.raises(DataError, match=f"^party 'bank': sample_weight {re.escape(sentence)}$"):
        pair(weights)


def test_weights_go_with_labels():
    sentence = "party 'shop' has sample_weight and no labels; the party with the labels says how much each row counts"
    with pytest.raises(DataError, match=sentence):
        cn.Party("shop", X, sample_weight=W)


def test_a_split_gives_weights_to_the_label_holders():
    parties = cn.split(X, Y, into=3, active=2, sample_weight=W)
    assert [party.sample_weight is not None for party in parties] == [True, True, False]
    np.testing.assert_array_equal(parties[1].sample_weight, W)


def test_alignment_brings_weights_into_the_common_order():
    people, others = np.arange(ROWS), RNG.permutation(np.arange(10, ROWS + 10))
    bank, shop = cn.Party("bank", X, Y, ids=people, sample_weight=W), cn.Party("shop", X, ids=others)
    bank, _ = cn.align_parties(bank, shop, verbose=0)
    assert bank.rows == ROWS - 10
    np.testing.assert_array_equal(bank.sample_weight, W[bank.ids])


# -- into training ----------------------------------------------------------------------------------------------------


def test_a_part_with_weights_is_a_wire_value():
    bank, shop = pair()
    loss, classes = losses.loss("logistic"), np.array([0, 1])
    part = TrainingPart.of(bank, classes, loss, bank.take(slice(5, 9)))
    again = TrainingPart(*decode(bytes(encode(part.as_value()))))
    np.testing.assert_array_equal(again.weights, W)
    np.testing.assert_array_equal(again.held_out_weights, W[5:9])
    assert again.weighted
    assert len(again.validation) == 3
    without = TrainingPart.of(shop, classes, loss, shop)
    assert (without.weights, without.held_out_weights, without.weighted) == (None, None, False)


def test_sealed_training_gets_the_weights_of_its_rows_in_their_order(given):
    cn.LogisticRegression(protection="sealed", verbose=0).fit(*pair())
    weights, y = given["bank"]
    assert given["shop"] == (None, None)
    order = np.argsort(weights)  # they rise with the rows, so this undoes whatever order training has
    np.testing.assert_allclose(weights[order], W / W.mean(), rtol=1e-12)
    np.testing.assert_array_equal(y[order], np.where(Y > 0, 1.0, -1.0))
    assert (order != np.arange(ROWS)).any()


def test_sealed_training_without_weights_gets_none(given):
    cn.LogisticRegression(protection="sealed", verbose=0).fit(*pair(None))
    assert given["bank"][0] is None


def test_transfer_learning_takes_no_weights():
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")
    modules = {name: torch.nn.Linear(2, 1) for name in ("bank", "shop")}
    bank, shop = (cn.Party(one.name, one.X, one.y, ids=np.arange(ROWS)) for one in pair(None))
    bank.sample_weight = W
    sentence = f"^party 'bank' gives rows weights: {re.escape(NO_WEIGHTS)}$"
    with pytest.raises(DataError, match=sentence):
        cn.TransferClassifier(modules, algorithm=cn.FedSGD(step=0.1, epochs=1), verbose=0).fit(bank, shop)


def test_the_door_itself_refuses_weights_that_the_job_does_not_tell_of():
    """Whoever calls the program `train` with weights where others do not know of any."""
    job = TrainingJob("linear", LinearOptions(), "logistic", 1, ("bank",), "plain", "tree", cn.FedSGD())
    parts = {p.name: TrainingPart.of(p, np.array([0, 1]), losses.loss("logistic")).as_value() for p in pair()}
    programs = {name: (training.train, (job.as_value(), part)) for name, part in parts.items()}
    sentence = "party 'bank' has weights of rows, and the job says weighted = false; change one of the two"
    with pytest.raises((DataError, RunFailed), match=sentence):
        cn.Simulation().run(programs)
    parts["bank"] = TrainingPart.of(pair(None)[0], np.array([0, 1]), losses.loss("logistic")).as_value()
    told = replace(job, options=LinearOptions(weighted=True)).as_value()
    with pytest.raises((DataError, RunFailed), match="party 'bank' has no weights of rows, and the job says"):
        cn.Simulation().run({name: (training.train, (told, part)) for name, part in parts.items()})


def test_all_families_weigh_but_transfer_learning_and_learning_over_rows():
    assert {kind.name for kind in families() if not kind.weighs} == {"transfer", "rows"}


def test_rows_of_which_none_counts_are_refused_also_if_others_did():
    bank, shop = pair(W.copy())
    bank.sample_weight[:20] = 0.0
    first = [party.take(np.arange(20)) for party in (bank, shop)]
    sentence = "party 'bank': sample_weight must be above 0 in some row, and is 0 in all of them"
    with pytest.raises(DataError, match=sentence):
        cn.LogisticRegression(protection="sealed", verbose=0).fit(*first)


# -- tables -----------------------------------------------------------------------------------------------------------

TABLE = "id,age,w,default\n7,31,0.5,1\n8,,2,0\n9,45.5,0,0\n"
NAMED = 'source = "a.csv"\nid = "id"\nlabel = "default"\nweight = "w"'


def test_a_weight_column_is_no_feature(read):  # noqa: F811
    table = read(NAMED, {"a.csv": TABLE})
    assert table.weight.tolist() == [0.5, 2.0, 0.0]
    assert list(table.columns) == ["age"]
    assert table.take([2, 0]).weight.tolist() == [0.0, 0.5]
    assert "labels, weights" in repr(table)
    party = preparation.fit(table, None).party("bank", table)
    assert party.sample_weight.tolist() == [0.5, 2.0, 0.0]
    assert party.columns == ("age",)


def test_new_rows_need_no_weight_and_one_that_is_there_is_no_feature(read, tmp_path):  # noqa: F811
    assert read(NAMED, {"a.csv": TABLE}, labels=False).weight is None
    assert list(read(NAMED, {"a.csv": TABLE}, labels=False).columns) == ["age"]
    (tmp_path / "new.csv").write_text("id,age\n1,2\n")
    assert list(read(NAMED, {"a.csv": TABLE}, source=tmp_path / "new.csv", labels=False).columns) == ["age"]


def test_whole_numbers_are_weights_too(read):  # noqa: F811
    assert read(NAMED, {"a.csv": TABLE.replace("0.5", "4")}).weight.tolist() == [4.0, 2.0, 0.0]


def test_weights_of_parquet_and_of_arrays(read, tmp_path):  # noqa: F811
    parquet(tmp_path / "a.parquet", "SELECT * FROM (VALUES (1, 1.5, 0, 3), (2, 2.5, 1, 4)) AS t(id, a, y, w)")
    table = read('source = "a.parquet"\nid = "id"\nlabel = "y"\nweight = "w"')
    assert (table.weight.tolist(), list(table.columns)) == ([3.0, 4.0], ["a"])
    arrays = packed(X=np.ones((2, 3)), y=np.array([0, 1]), w=np.array([3, 4]))
    section = 'source = "a.npz"\nlabel = "y"\nweight = "w"'
    assert read(section, {"a.npz": arrays}).weight.tolist() == [3.0, 4.0]
    assert read(section, {"a.npz": arrays}, labels=False).weight is None


@pytest.mark.parametrize(
    ("sentence", "section", "table"),
    [
        ("key data.weight: a.csv has no column 'v', its columns are", NAMED.replace('"w"', '"v"'), TABLE),
        ("1 rows of a.csv have no weight in column 'w', the first is row 2", NAMED, TABLE.replace(",2,", ",,")),
        ("1 rows of a.csv have no weight", f"{NAMED}\nmissing = [2]", TABLE),
        ("'w' of a.csv must be finite and >= 0 in every row, and is not in 1", NAMED, TABLE.replace(",2,", ",-2,")),
        ("must be finite and >= 0", NAMED, TABLE.replace(",2,", ",inf,")),
        ("must be above 0 in some row", NAMED, TABLE.replace("0.5", "0").replace(",2,", ",0,")),
        ("column 'w' of a.csv is of type VARCHAR, weights must be numbers", NAMED, "id,age,w,default\n1,2,a,0\n"),
        ("has 2 numbers and 1 other values", NAMED, TABLE.replace(",2,", ",much,")),
        ("column 'default' is the label already", NAMED.replace('"w"', '"default"'), TABLE),
        ("column 'id' is the id already; give another one", NAMED.replace('"w"', '"id"'), TABLE),
        ("the party with the labels says how much each", NAMED.replace('label = "default"\n', ""), TABLE),
        ("column 'w' is the weight already; leave it out here", f'{NAMED}\ncolumns = ["age", "w"]', TABLE),
        ("has no meaning for a.svm", 'source = "a.svm"\nlabel = "label"\nweight = "w"', TABLE),
    ],
)
def test_weights_of_a_table_that_are_refused(read, sentence, section, table):  # noqa: F811
    refused(read, sentence, section, {"a.csv": table, "a.svm": "1 1:1\n"})


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({}, "key data.weight: a.npz has no array 'w'"),
        ({"w": np.ones(3)}, "'w' of a.npz has 3 numbers for 2 rows"),
        ({"w": -np.ones(2)}, "'w' of a.npz must be finite and >= 0"),
    ],
)
def test_weights_among_arrays_that_are_refused(read, more, sentence):  # noqa: F811
    content = packed(X=np.ones((2, 3)), y=np.array([0, 1]), **more)
    refused(read, sentence, 'source = "a.npz"\nlabel = "y"\nweight = "w"', {"a.npz": content}, error=InputError)


# -- jobs -------------------------------------------------------------------------------------------------------------


def test_a_job_brings_weights_through_alignment_to_training(given):
    people = np.arange(PEOPLE) + 1.0  # the weight of each tells who it is
    brought = sources(ORDER)
    brought["bank"].weights = people[ORDER["bank"]]
    job = job_for(complete(with_word("sealed", THIRD[: THIRD.index("[algorithm]")])))
    job = replace(job, model=replace(job.model, weighted=True))
    results, _ = run(job, brought)
    weights, y = given["bank"]
    common = set(ORDER["bank"]) & set(ORDER["clinic"]) & set(ORDER["shop"])
    weights = np.rint(weights * np.mean([people[one] for one in common]))
    assert {int(w) - 1 for w in weights} == common
    labels = dict(zip(ORDER["bank"], brought["bank"].labels, strict=True))
    assert [labels[int(w) - 1] for w in weights] == ["yes" if one > 0 else "no" for one in y]
    assert given["clinic"] == given["shop"] == (None, None)
    assert results["bank"].rows == len(common)


def test_held_out_rows_keep_their_weights():
    brought, found = sources(ORDER), {}
    brought["bank"].weights = ORDER["bank"] + 1.0
    job = job_for(complete(with_word("sealed", THIRD[: THIRD.index("[algorithm]")])), validation=0.25)

    def program_of(name):
        async def program(net):
            found[name] = await get_ready(net, job, brought[name], align, lambda *_: None)

        return program

    cn.Simulation().run({name: (program_of(name), ()) for name in job.parties})
    ready = found["bank"]
    who = {person: row for row, person in enumerate(ORDER["bank"])}
    for weights, X_of, y in (
        (ready.mine.weights, ready.mine.X, ready.mine.y),
        (ready.mine.held_out_weights, *ready.mine.validation[:2]),
    ):
        rows = [who[int(one) - 1] for one in weights]
        np.testing.assert_array_equal(X_of, brought["bank"].X[rows])
        assert [brought["bank"].labels[row] for row in rows] == ["yes" if one > 0 else "no" for one in y]
    assert len(ready.mine.held_out_weights) == ready.held_out > 0
    assert not set(ready.mine.weights) & set(ready.mine.held_out_weights)
    assert not found["shop"].mine.weighted


PARTY = """\
name = "bank"
[data]
source = "bank.csv"
id = "id"
label = "y"
weight = "w"
[certificates]
authority = "a.pem"
certificate = "b.pem"
key = "b.key"
"""


def test_a_party_file_names_weights_where_the_job_tells_of_them(tmp_path):
    (tmp_path / "bank.toml").write_text(PARTY)
    sealed = with_word("sealed", BARE)
    weighted = sealed.replace('kind = "logistic"', 'kind = "logistic"\nweighted = true')
    silent = "the job says nothing of weights; leave this out, or add weighted = true to [model] at every party"
    for text, refusal in ((complete(weighted), None), (complete(sealed), silent), (GOOD, silent)):
        (tmp_path / "job.toml").write_text(text)
        job = read_job(tmp_path / "job.toml")
        if refusal is None:
            assert read_party(tmp_path / "bank.toml", job).data["weight"] == "w"
            continue
        with pytest.raises(OptionError, match=f"bank.toml, line 6, key data.weight: {re.escape(refusal)}"):
            read_party(tmp_path / "bank.toml", job)


def test_a_job_weighs_rows_by_their_class():
    """As the label holder's own file says, in texts; held-out rows count by the weights of the training's classes."""
    for asked in ("balanced", {"yes": 3.0}):
        brought, found = sources(ORDER), {}
        brought["bank"].weights, brought["bank"].class_weight = ORDER["bank"] + 1.0, asked
        job = job_for(THIRD, validation=0.25)
        job = replace(job, model=replace(job.model, weighted=True))

        def program_of(name, job=job, brought=brought, found=found):
            async def program(net):
                found[name] = await get_ready(net, job, brought[name], align, lambda *_: None)

            return program

        cn.Simulation().run({name: (program_of(name), ()) for name in job.parties})
        mine = found["bank"].mine
        who = {tuple(row): person + 1.0 for row, person in zip(brought["bank"].X.tolist(), ORDER["bank"], strict=True)}
        plain = np.array([who[tuple(row)] for row in mine.X.tolist()])
        counts = [plain[mine.y == sign].sum() for sign in (-1.0, 1.0)]
        no, yes = (1.0, 3.0) if asked != "balanced" else (plain.sum() / (2 * count) for count in counts)
        np.testing.assert_allclose(mine.weights, plain * np.where(mine.y > 0, yes, no))
        others = np.array([who[tuple(row)] for row in mine.validation[0].tolist()])
        np.testing.assert_allclose(mine.held_out_weights, others * np.where(mine.validation[1] > 0, yes, no))


@pytest.mark.parametrize(
    ("asked", "changes", "sentence"),
    [
        ('"balanced"', {}, None),
        ("{ good = 1, bad = 5 }", {"holders": ("bank", "shop")}, None),
        ('"fair"', {}, 'must be "balanced", or a weight for each class, { good = 1, bad = 5 }'),
        ("{ good = -1 }", {}, "must be >= 0, got -1"),
        ('"balanced"', {"holders": ("bank", "shop")}, "no label holder tells another how many of each class it has"),
        ('"balanced"', {"loss": "square"}, "is for classes, and the job's loss is 'square'; leave this out"),
        ('"balanced"', {"model": LinearOptions()}, "the job says nothing of weights; leave this out"),
        ('"balanced"', {"family": "transfer", "model": None}, NO_WEIGHTS),
        ('"balanced"', {"family": "trees", "model": TreeOptions(balanced=True)}, "says balanced = true already"),
        (
            '"balanced"',
            {"family": "trees", "model": TreeOptions(), "algorithm": cn.OpenBoosting(label_epsilon=1.0)},
            "label_epsilon hides labels, and weights that balance classes tell them",
        ),
    ],
)
def test_a_party_file_names_weights_of_classes(tmp_path, asked, changes, sentence):
    (tmp_path / "bank.toml").write_text(PARTY.replace('weight = "w"', f"class_weight = {asked}"))
    (tmp_path / "job.toml").write_text(GOOD)
    job = replace(read_job(tmp_path / "job.toml"), **{"model": LinearOptions(weighted=True), **changes})
    if sentence is None:
        assert read_party(tmp_path / "bank.toml", job).data["class_weight"] in ("balanced", {"good": 1.0, "bad": 5.0})
        return
    with pytest.raises(OptionError, match=rf"bank.toml, line 6, key data\.class_weight.*{re.escape(sentence)}"):
        read_party(tmp_path / "bank.toml", job)


def test_a_job_that_tells_of_weights_wants_some(tmp_path):
    (tmp_path / "bank.toml").write_text(PARTY.replace('weight = "w"\n', ""))
    (tmp_path / "job.toml").write_text(GOOD)
    job = replace(read_job(tmp_path / "job.toml"), model=LinearOptions(weighted=True))
    with pytest.raises(OptionError, match="so name the column with the weights, or class_weight"):
        read_party(tmp_path / "bank.toml", job)
    read_party(tmp_path / "bank.toml", replace(job, holders=("bank", "shop")))  # another one may bring them
