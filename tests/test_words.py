"""What a party is told about itself before anything is sent: who could work out what of its columns, labels, people."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import colonnade as cn
from colonnade.cli.main import main
from colonnade.errors import RunFailed
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.jobs.words import lines, what_others_learn
from colonnade.service import run
from test_federation import federation
from test_job import GOOD, job

SGD = cn.FedSGD(epochs=2, tol=None)
THREE = {"bank": "-", "clinic": "-", "shop": "-"}


def about(me, columns=10, most=None, rows=None, **changes):
    job_ = replace(job(GOOD), **{"algorithm": SGD, **changes})
    return what_others_learn(job_, me, columns, rows=rows, directions_at_most=most)


def test_a_party_without_labels_is_told_of_its_columns_and_people():
    told = about("shop")
    assert (
        "bank could work out up to 5 independent combinations of your 10 columns for the people in common (all 10 "
        "would do to rebuild your columns from a few people whom they know)"
    ) in told["your columns"]
    assert (
        "bank can see, in every exchange, your part of the score of the people in common, at most 5 numbers about "
        "each; in predictions, of everybody whom they name"
    ) in told["your columns"]
    assert told["your labels"] == []
    assert told["your people"] == [
        "bank will learn which of their own people you have too",
        "bank will learn how many people you have, exactly or roughly",
        "bank, asking for predictions, will learn of everybody whom they name whether you serve them, by default the "
        "people in common alone",
    ]


def test_a_label_holder_is_told_of_its_labels_and_of_what_signals_show_of_its_columns():
    told = about("bank")
    assert "shop could work out your label of each of the people in common" in told["your labels"]
    assert any("up to 2 independent combinations of your 10 columns" in one for one in told["your columns"])
    assert "shop will learn whom you ask about, when you ask for predictions" in told["your people"]


@pytest.mark.parametrize(
    ("columns", "most", "sentence"),
    [
        (3, None, "all 3 independent combinations of your 3 columns .*, and rebuild the columns themselves from a few"),
        (10, 4, r"up to 4 independent combinations of your 10 columns for .* \(all 10 would do"),
        (10, 1, "up to 1 independent combination of your 10 columns"),
        (10, 400, "up to 5 independent combinations of your 10 columns"),
        (1, None, "your only column for the people in common, up to a factor"),
        (None, None, "up to 5 independent combinations of your columns"),
    ],
)
def test_directions_are_the_fewest_of_columns_rounds_and_what_a_policy_lets_out(columns, most, sentence):
    assert re.search(f"bank could work out {sentence}", "\n".join(about("shop", columns, most)["your columns"]))


def test_where_nobody_can_count_numbers_all_columns_are_told_of():
    assert any("all 10 independent" in one for one in about("shop", loss="softmax")["your columns"])
    often = cn.FedSGD(epochs=1, batch=10, evaluate_every=1)
    assert any("all 10 independent" in one for one in about("shop", algorithm=often)["your columns"])
    # 20 rows are two batches: two contributions to evaluations, one to its batch, and those at the start and the end
    assert any("up to 5 independent" in one for one in about("shop", algorithm=often, rows=20)["your columns"])


def test_of_three_parties_only_sums_are_seen():
    told = "\n".join(about("shop", addresses=THREE)["your columns"])
    assert "bank could work out up to 5 combinations of your columns and clinic's together" in told
    assert "with the help of clinic, up to 5 independent combinations of your 10 columns" in told
    assert "clinic could work out the score of the people in common from the signals, and so your part of it" in told
    turns = "\n".join(about("shop", addresses=THREE, algorithm=cn.FedBCD(order="sequential"))["your columns"])
    assert "bank could see what you alone changed, whatever the masks" in turns
    plain = "\n".join(about("shop", addresses=THREE, sum="plain", topology="ring")["your columns"])
    assert "clinic can see your part of the score of the people in common as it is" in plain
    both = about("shop", addresses=THREE, holders=("bank", "clinic"))["your columns"]
    assert any(one.startswith("bank and clinic can see, in every exchange, your part") for one in both)


def test_rows_that_are_aligned_already_are_counted():
    told = about("shop", aligned=True, rows=487)
    assert any("for the 487 people" in one for one in told["your columns"])
    assert told["your people"][0] == "bank will learn how many people you have"


def test_encrypted_signals_and_frozen_columns():
    told = about("bank", sum="encrypted")
    assert not any("could work out your label of each" in one for one in told["your labels"])
    guess = "could guess your labels from the gradients of their own columns"
    assert not any(guess in one for one in told["your labels"])
    several = about("bank", sum="encrypted", holders=("bank", "shop"))
    assert any(guess in one for one in several["your labels"])
    frozen = "\n".join(about("shop", algorithm=cn.AFSGD(step=0.1))["your columns"])
    assert "part of the score" not in frozen
    assert "combinations" not in frozen


def test_every_sentence_of_every_job_can_be_said():
    """No place of a sentence is left unfilled, whatever the job; where there is nothing to say, that is said."""
    from test_leaks import ALGORITHMS, made_by

    for algorithm in ALGORITHMS.values():
        for sum_ in ("pairwise", "plain"):
            for addresses in ({"bank": "-", "shop": "-"}, THREE):
                for holders in (("bank",), ("bank", "shop")):
                    changes = {"sum": sum_, "addresses": addresses, "holders": holders, **made_by(algorithm)}
                    for me in addresses:
                        told = lines(about(me, algorithm=algorithm, statistics=True, loss="poisson", **changes))
                        assert not [line for line in told if "{" in line or "None" in line]
    assert "  your labels: nothing" in lines(about("shop"))


# -- where it is said -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    return federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')


def test_check_says_it(folder, capsys):
    capsys.readouterr()
    assert main(["check", str(folder / "job.toml"), "--as", "shop"]) in (0, 3)
    said = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "your columns bank can see, in every exchange, your part of the score" in said
    assert "bank could work out all 2 independent combinations of your 2 columns for the people in common" in said
    assert "your labels nothing" in said


def test_run_says_it_before_anything_about_the_data_is_sent(folder, monkeypatch):
    """It is said while the table is read: the program, and with it every message about data, comes after."""
    said = []

    def attend(job_, party, program, read, **_):
        read()
        raise RunFailed("nobody came", "bank", "joining")

    monkeypatch.setattr(run, "attend", attend)
    job_ = read_job(folder / "job.toml")
    with pytest.raises(RunFailed):
        run.run_job(job_, read_party(folder / "bank.toml", job_), verbose=0, tell=said.append)
    assert said[0].startswith("protection masked: training is in the open, and sums are masked; between two parties")
    assert said[2] == "what the others could work out about you, beside the model:"
    assert "  your labels: shop could work out your label of each of the people in common" in said
    # "city" has three categories, which are one column
    assert any("up to 2 independent combinations of your 3 columns" in line for line in said), said


def test_run_says_it_of_columns_that_can_not_be_counted(folder, monkeypatch):
    """What can't be prepared may be nobody's in common: the run decides that, as ever."""
    path = folder / "shop.csv"
    head, first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([head, ",".join([first.split(",")[0], "inf", "1"]), *rest]))
    job_ = read_job(folder / "job.toml")
    said = []
    monkeypatch.setattr(run, "attend", lambda job_, party, program, read, **_: read() and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.run_job(job_, read_party(folder / "shop.toml", job_), verbose=0, tell=said.append)
    assert any("up to 5 independent combinations of your columns" in line for line in said)
