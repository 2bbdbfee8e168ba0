"""Jobs whose label holder has several rows of a person: from its file to the model, and what is refused before."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import colonnade as cn
from colonnade import families
from colonnade.alignment.joining import align_rows
from colonnade.binning.options import BinningOptions
from colonnade.boosting.options import TreePart
from colonnade.errors import InputError, PolicyRefused
from colonnade.jobs.allowed import check_allowed
from colonnade.jobs.budget import Budget
from colonnade.jobs.init import init
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.jobs.policy import Policy
from colonnade.jobs.words import what_others_learn
from colonnade.leaks import OF_PEOPLE, REPEATS
from colonnade.service.agreeing import numbers_of_people, share_out
from colonnade.service.scoring import Directory
from colonnade.service.table_source import TableSource
from colonnade.service.training import get_ready, take_part
from test_job import complete

EXPAND = 'duplicates = "expand"'
PEOPLE = 300
RNG = np.random.default_rng(3)
OF = RNG.integers(0, PEOPLE, 500)  # of whom each of the bank's rows is
LOANS, HABITS = RNG.standard_normal((500, 2)), RNG.standard_normal((PEOPLE, 2))
Y = (LOANS[:, 0] + HABITS[OF, 0] + RNG.logistic(size=500) > 0).astype(int)
KNOWN = RNG.permutation(PEOPLE)[:250]


def write(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture
def made(tmp_path):
    """A folder with a job and two tables: the bank has several rows of a person, the shop one of each whom it knows."""

    def make(
        alignment='duplicates = "expand"', bank='duplicates = "expand"', shop="", rules="tell_repeats = true", part=0.25
    ):
        folder = tmp_path / "loans"
        init(folder, ("bank", "shop"), model="logistic", protection="masked")
        text = (folder / "job.toml").read_text().replace("minimum = 100 ", f"{alignment}\nminimum = 100 ")
        (folder / "job.toml").write_text(complete(text))
        for name, more in (("bank", bank), ("shop", shop)):
            path = folder / f"{name}.toml"
            words = (
                path.read_text()
                .replace("[data]\n", f"[data]\n{more}\n")
                .replace("max_directions = 0.5", "max_directions = 99")
            )
            path.write_text(words.replace("[policy] ", f"[policy]\n{rules if name == 'bank' else ''}\n# "))
        write(
            folder / "bank.csv",
            ["id", "a", "b", "label"],
            [[f"c{k}", *x, y] for k, x, y in zip(OF, LOANS, Y, strict=True)],
        )
        write(folder / "shop.csv", ["id", "c", "d"], [[f"c{k}", *HABITS[k]] for k in KNOWN])
        return folder

    return make


def parties_of(folder):
    job = read_job(folder / "job.toml")
    return job, {name: read_party(folder / f"{name}.toml", job) for name in job.parties}


def trained(folder):
    job, parties = parties_of(folder)
    sources = {name: TableSource.of(job, party) for name, party in parties.items()}
    found = {}

    def program_of(name):
        async def program(net):
            find = partial(align_rows, how=job.joining)
            found[name] = await take_part(net, job, sources[name], find, lambda *_: None)

        return program

    cn.Simulation().run({name: (program_of(name), ()) for name in job.parties})
    return job, sources, found


def test_all_rows_of_the_label_holder_are_trained_on_and_nobody_is_held_out_by_half(made):
    job, sources, found = trained(made())
    bank, shop = found["bank"], found["shop"]
    common = np.isin(OF, KNOWN).sum()
    assert bank.rows + bank.held_out == shop.rows + shop.held_out == common
    ids = {name: np.asarray(source.ids)[found[name].people] for name, source in sources.items()}
    assert (ids["bank"] == ids["shop"]).all()
    held_out = {name: set(np.asarray(source.ids)[found[name].apart]) for name, source in sources.items()}
    assert held_out["bank"] == held_out["shop"]
    assert not held_out["bank"] & set(np.asarray(sources["bank"].ids)[sources["bank"].trained_on])
    people = len(set(ids["bank"]))
    assert len(held_out["bank"]) == round(job.validation * people) > 0
    assert bank.training == shop.training  # both derive one id from the same people


def test_the_first_row_of_a_person_is_its_owners_business(made):
    folder = made(alignment="", bank='duplicates = "first"', rules="")
    job, sources, found = trained(folder)
    assert job.duplicates == "refuse"
    assert sources["bank"].rows == len(set(OF.tolist()))
    firsts = sorted({who: row for row, who in reversed(list(enumerate(OF.tolist())))}.values())
    assert np.allclose(sources["bank"].table.columns["a"].values, LOANS[firsts, 0])
    assert found["bank"].rows + found["bank"].held_out == len(set(OF.tolist()) & set(KNOWN.tolist()))
    assert REPEATS not in job.disclosed()


# -- what is shown, and may be -----------------------------------------------------------------------------------------


def test_a_job_lists_that_repeats_are_told_and_the_label_holder_hears_it_first(made):
    job, _ = parties_of(made())
    assert REPEATS in job.disclosed()
    told = "shop will learn how many rows each of the people in common has in your data"
    assert told in what_others_learn(job, "bank")[OF_PEOPLE]
    assert told.replace("shop", "bank") not in what_others_learn(job, "shop")[OF_PEOPLE]


def test_the_label_holders_own_file_has_to_allow_it(made):
    job, parties = parties_of(made(rules=""))
    with pytest.raises(PolicyRefused, match=r"how many each person in common has, .* set tell_repeats = true in \[pol"):
        check_allowed(job, parties["bank"])
    check_allowed(job, parties["shop"])  # nothing is told of its people
    assert not Policy().tell_repeats


def budgets_of(folder, algorithm):
    """{party: its budget, and how many rows one of its people has at most} of a job as far as training begins."""
    job, parties = parties_of(folder)
    job = replace(job, algorithm=algorithm)
    sources, found = {name: TableSource.of(job, party) for name, party in parties.items()}, {}

    def program_of(name):
        async def program(net):
            budget, find = Budget(name, 99.0), partial(align_rows, how=job.joining)
            ready = await get_ready(net, job, sources[name], find, lambda *_: None, budget=budget)
            found[name] = budget, ready.repeats

        return program

    cn.Simulation().run({name: (program_of(name), ()) for name in job.parties})
    return found


def test_a_person_lets_out_as_many_numbers_as_there_are_rows_of_it(made):
    """Rows of one person are in batches of different steps, so that each of them is another number about it."""
    most = int(np.bincount(OF, minlength=PEOPLE)[KNOWN].max())
    assert most > 3
    found = budgets_of(folder := made(), cn.FedSGD(batch=16))
    assert {name: (budget.times, repeats) for name, (budget, repeats) in found.items()} == {
        "bank": (1, 1),  # whose rows are each of their own
        "shop": (most, most),
    }
    budget, _ = found["shop"]
    assert budget.left == 99.0 * 2 / most
    budget.charge(1.0)
    assert budget.charged == most
    with pytest.raises(
        PolicyRefused, match=rf"in this run and those before: .* and a person has up to {most} rows, each"
    ):
        budget.charge(budget.left + 1)
    budget.passes("bank", np.zeros(budget.rows))
    with pytest.raises(PolicyRefused, match="its budget was not charged for"):
        budget.passes("bank", np.zeros(budget.rows))
    whole = budgets_of(folder, cn.BlockNewton())  # which looks at all rows of a person at once, and they are alike
    assert {budget.times for budget, _ in whole.values()} == {1}


def test_limits_of_trees_are_about_people(made):
    family, own = families.family("sealed-trees"), TreePart(least_rows=10, least_noise=5.0).as_value()
    assert family.of_people("shop", own, cn.SealedBoosting(noise=5.0), 1) == own
    allowed = TreePart(*family.of_people("shop", own, cn.SealedBoosting(noise=20.0), 4))
    assert (allowed.least_rows, allowed.least_noise) == (40, 20.0)
    says = (
        r"noise of 19 on sums over cells, a person has up to 4 rows, and the policy of 'shop' asks for 5 times .* 20;"
    )
    with pytest.raises(PolicyRefused, match=says):
        family.of_people("shop", own, cn.SealedBoosting(noise=19.0), 4)


def test_bins_hold_as_many_people_as_they_say(made, monkeypatch):
    seen = []

    async def noted(net, job, options, source, rows):
        seen.append(options.least)
        return source.prepare(rows)

    monkeypatch.setattr("colonnade.service.training.prepare_bins", noted)
    made_of = parties_of

    def binned(folder):
        job, parties = made_of(folder)
        return replace(job, binning=BinningOptions(least=10)), parties

    monkeypatch.setitem(globals(), "parties_of", binned)
    budgets_of(made(), cn.BlockNewton())
    assert seen == [10 * int(np.bincount(OF, minlength=PEOPLE)[KNOWN].max())] * 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"alignment": "", "rules": ""},
            "'expand' shows partners how many rows each person in common has here",
        ),
        (
            {"shop": 'duplicates = "expand"'},
            "'expand' keeps several rows of a person at 'bank', the first label holder",
        ),
        (
            {"alignment": 'join = "left"'},
            "'left' is for align_parties in Python, where a model is used",
        ),
        ({"alignment": 'duplicates = "first"'}, 'one of "refuse", "expand"'),
        ({"alignment": 'join = "outer"'}, 'one of "inner", "left"'),
        ({"bank": 'duplicates = "all"'}, 'one of "refuse", "first", "expand"'),
    ],
)
def test_what_can_not_be_is_one_sentence_about_a_line(made, options, text):
    with pytest.raises(InputError) as caught:
        parties_of(made(**options))
    assert text in str(caught.value).replace("'", '"') or text in str(caught.value)
    assert ".toml, line " in str(caught.value)


def test_repeated_ids_are_refused_where_nobody_asked_for_them(made):
    job, parties = parties_of(made(bank=""))
    with pytest.raises(InputError, match=r"rows of bank\.csv have an id that a row before them has") as caught:
        TableSource.of(job, parties["bank"])
    assert "set duplicates to 'first'" in str(caught.value)


def test_people_are_shared_out_as_a_whole():
    ids = np.array(["a", "a", "b", "c", "c", "c", "d"], dtype=object)
    rows = np.array([3, 4, 5, 0, 1, 6, 2])  # c c c a a d b
    people = numbers_of_people(ids, rows, "bank")
    assert people.tolist() == [0, 0, 0, 1, 1, 2, 3]
    train, held_out = share_out(rows, 0.5, 7, people)
    assert sorted([*train, *held_out]) == list(range(7))
    assert not set(ids[train]) & set(ids[held_out])
    assert len(set(ids[held_out])) == 2
    # a partner, with a row for each, holds out the same people
    mine = np.array([2, 2, 2, 0, 0, 3, 1])
    there = np.array(["a", "b", "c", "d"], dtype=object)
    other = share_out(mine, 0.5, 7, numbers_of_people(there, mine, "shop"))
    assert there[other[1]].tolist() == ids[held_out].tolist()


def test_a_person_is_looked_up_by_the_first_row():
    rows, known = Directory(np.array(["a", "b", "a"], dtype=object)).find(["b", "a", "x", "a"])
    assert rows.tolist() == [1, 0, 0]
    assert known.tolist() == [True, True, False, True]
