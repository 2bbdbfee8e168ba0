"""Bins of a job: what its file says, what it discloses, what the door lets out, and what each organisation finds."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import colonnade as cn
from colonnade.alignment.protocol import align
from colonnade.binning.program import TOLD
from colonnade.cli.export import points_of
from colonnade.cli.main import main
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError, OptionError, PolicyRefused
from colonnade.jobs import model_file
from colonnade.jobs.label_counts import LabelCounts
from colonnade.jobs.model_file import ModelPart
from colonnade.jobs.policy import Policy, PolicyDoor
from colonnade.jobs.words import leaks_of, what_others_learn
from colonnade.leaks import BIN_CORRELATIONS, BIN_COUNTS, CELL_COUNTS
from colonnade.service.binned import save_bins
from colonnade.service.new_values import new_values
from colonnade.service.table_source import TableSource
from colonnade.service.training import take_part
from colonnade.settings.settings import check
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.preparation import SECTION
from colonnade.tables.table import Table
from ports import free_ports
from test_federation import run_all, start
from test_job import GOOD, complete, job
from test_leaks import Record

BINNED = "\n[binning]\n"
ROWS = 900


def tables(seed=0, rows=ROWS):
    """The bank's numbers and labels, and the shop's numbers with gaps and texts, of which some are rare."""
    rng = np.random.default_rng(seed)
    age, income = np.round(rng.normal(45, 12, rows)), np.round(rng.lognormal(3, 0.5, rows), 1)
    income[rng.random(rows) < 0.1] = np.nan
    debts = rng.standard_normal(rows)
    city = rng.choice(["Bonn", "Kiel", "Trier", "Ulm"], rows, p=[0.5, 0.3, 0.193, 0.007])
    z = 0.05 * (age - 45) - 0.03 * (np.nan_to_num(income, nan=10.0) - 20) + 0.6 * (city == "Kiel") + 0.6 * debts
    y = np.where(z + rng.logistic(size=rows) > 0.5, "bad", "a good one")  # the second in order is predicted
    names, codes = np.unique(city, return_inverse=True)
    bank = Table("bank.csv", {"age": Numbers(age), "debts": Numbers(debts)}, label=y.astype(object))
    shop = Table("shop.csv", {"income": Numbers(income), "city": Texts(codes.astype(np.int32), names.astype(object))})
    return {"bank": bank, "shop": shop}


def job_with(bins="", **changes):
    text = complete(GOOD + BINNED + bins)
    return replace(job(text), aligned=True, **changes)


def run(job_, given, prepare=None):
    found, held = {}, {}

    def program_of(name):
        async def program(net):
            source = TableSource(given[name], (prepare or {}).get(name), binned=True)
            found[name], held[name] = await take_part(net, job_, source, align, lambda *_: None), source

        return program

    cn.Simulation().run({name: (program_of(name), ()) for name in job_.parties})
    return found, held


def test_a_job_finds_the_bins_of_the_estimator():
    given = tables()
    job_ = job_with("min_iv = 0.02\n")
    found, held = run(job_, given)
    city = given["shop"].columns["city"]
    bank = cn.Party("bank", np.column_stack([c.values for c in given["bank"].columns.values()]), given["bank"].label)
    shop = cn.Party("shop", np.column_stack([given["shop"].columns["income"].values, city.codes]), categories=[1])
    bins = cn.Binning(min_iv=0.02).fit(bank, shop)
    weighed = bins.transform(bank, shop)
    for party in weighed:
        mine = found[party.name].prepared.matrix(np.arange(ROWS))
        assert mine == pytest.approx(party.X, rel=1e-12)
        # And what is saved gives the same.
        again = LearnedPreparation.from_arrays(held[party.name].learned.to_arrays())
        assert np.array_equal(again.apply(given[party.name]), mine)
    step = held["shop"].learned.columns[1].last
    assert set(step.categories) <= {"Bonn", "Kiel", "Trier", "Ulm"}
    assert step.iv == pytest.approx(bins.iv_["shop"]["x1"], rel=1e-12)


def test_held_out_rows_have_no_part_in_bins():
    job_ = job_with("min_iv = 0.0\n", validation=0.3)
    found, held = run(job_, tables())
    step = held["bank"].learned.columns[0].last
    assert sum(step.goods) + sum(step.bads) == found["bank"].rows == round(0.7 * ROWS)


def test_columns_with_steps_of_their_own_have_no_bins():
    prepare = {"shop": check({"income": [{"clip": [0, 30]}, "woe"], "city": ["one-hot"]}, SECTION)}
    found, held = run(job_with(), tables(), prepare)
    assert found["shop"].prepared.columns == ("income", "city=Bonn", "city=Kiel", "city=Trier", "city=Ulm")
    assert max(held["shop"].learned.columns[0].last.edges) < 30
    with pytest.raises(DataError, match="woe needs bins; add"):
        TableSource(tables()["shop"], prepare["shop"]).prepare(np.arange(ROWS))


def test_new_people_with_new_levels():
    _, held = run(job_with(), tables())
    new = Table("new.csv", {
        "income": Numbers(np.array([np.nan, 5.0])),
        "city": Texts(np.array([0, -1], np.int32), np.array(["Mainz"], dtype=object)),
    })  # fmt: skip
    found = held["shop"].learned.apply(new)
    income, city = (column.last for column in held["shop"].learned.columns)
    assert found[0, 0] == income.weights[income.missing_bin]
    rare = city.weights[city.other_bin] if city.other_bin >= 0 else 0.0
    assert found[0, 1] == rare
    assert found[1, 1] == 0.0  # training had no missing city
    said = new_values(held["shop"].learned, new)
    assert "city: 1 of 2 people have 1 value that training never saw ('Mainz')" in said[0]
    assert said[1] == "city: 1 of 2 people have no value, as nobody in training, and are taken for no evidence"
    assert len(said) == 2


def test_files_that_are_written(tmp_path):
    text = complete(GOOD + BINNED + "\n[scorecard]\nrounded = true\n")
    job_ = replace(job(text), aligned=True)
    found, held = run(job_, tables())
    for name in ("bank", "shop"):
        folder = tmp_path / name
        folder.mkdir()
        said = save_bins(folder, job_, name, held[name], found[name].state)
        assert any("rounding moves their sum by" in line for line in said)
        with (folder / "bins.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert {row["column"] for row in rows} == set(found[name].prepared.columns)
        assert min(int(row[kind]) for row in rows for kind in ("goods", "bads")) >= 10
        with (folder / "scorecard.csv").open() as file:
            points = list(csv.DictReader(file))
        assert all(float(row["points"]).is_integer() for row in points)
        part = ModelPart(name, {}, found[name].state, np.empty(0), found[name].prepared.columns, held[name].learned)
        exported = points_of(job_, SimpleNamespace(name=name), part).decode()
        assert exported == (folder / "scorecard.csv").read_bytes().decode()
        assert (points[0]["column"] == "(everybody)") == (name == "bank")
        assert (folder / "iv.csv").exists() == (name == "bank")
    values = (tmp_path / "bank" / "iv.csv").read_text()
    assert "shop,column 1" in values
    assert "income" not in values
    assert save_bins(tmp_path / "bank", replace(job_, binning=None), "bank", held["bank"], None) == []


# -- what a job says ---------------------------------------------------------------------------------------------------


def test_what_is_disclosed():
    plain, more = job(GOOD), job_with()
    assert {*more.disclosed()} - {*plain.disclosed()} == {CELL_COUNTS, BIN_COUNTS}
    assert BIN_CORRELATIONS in job_with("max_vif = 5.0\n").disclosed()
    with pytest.raises(OptionError, match='discloses "counts of good and bad people in fine cells'):
        job(GOOD + BINNED)
    told = what_others_learn(more, "bank")
    assert any("each bin of their own columns, of either kind at least 10" in one for one in told["your labels"])
    assert any(
        "fine cell of them, without names or edges" in one for one in what_others_learn(more, "shop")["your columns"]
    )


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"logistic"', '"ridge"', "key binning: bins are for models of two classes"),
        ("[parties.shop]", "[parties.shop]\nlabels = true", "key binning: bins need one party with labels"),
        ("[binning]", "[binning]\nbins = 1", "key binning.bins: must be >= 2"),
        ("[binning]", "[binning]\nmethod = 'magic'", "key binning.method: must be one of"),
        ("[binning]", "[binning]\nmax_vif = 0.5", "key binning.max_vif: must be above 1"),
        ("[binning]", "[scorecard]", "key scorecard: points need a logistic model of bins"),
        ("[binning]", "[binning]\n[scorecard]\npdo = 0", "key scorecard.pdo: must be > 0"),
    ],
)
def test_wrong_jobs(old, new, sentence):
    text = GOOD + BINNED
    assert old in text
    with pytest.raises(OptionError, match=sentence):
        job(text.replace(old, new))


def test_every_message_is_declared(monkeypatch):
    record = Record(monkeypatch)
    job_ = job_with("max_correlation = 0.9\n")
    run(job_, tables())
    assert not record.unaccounted(job_.setting(ROWS), leaks_of(job_))


# -- the door ----------------------------------------------------------------------------------------------------------


def bins_of(*counts):
    """A message about one column with these good and bad people."""
    goods, bads = (np.array(each, np.int64) for each in zip(*counts, strict=True))
    return ((np.arange(len(goods)), goods, bads),)


class Book:
    """A ledger that only remembers."""

    def __init__(self):
        self.records = []

    def remember(self, kind, record):
        self.records.append((kind, dict(record)))

    def remembered(self, kind):
        return [record for of, record in self.records if of == kind]


def door(policy=None, book=None):
    policy = policy or Policy()
    counts = LabelCounts("bank", policy.max_label_counts, policy.max_binnings)
    counts.keep_in(book or Book())
    opened = PolicyDoor("bank", policy, None, None, counts)
    return partial(opened.open_for, size=0, rounds=0, control=False)


def test_no_small_count_passes_the_door():
    let_out = door()
    let_out("shop", TOLD, bins_of((10, 400), (30, 20)))
    for one in ((9, 400), (400, 9)):
        with pytest.raises(PolicyRefused, match="a bin with 9 people of a class would be told to 'shop'"):
            let_out("shop", TOLD, bins_of(one, (30, 20)))
    let_out("shop", TOLD, (None,))
    with pytest.raises(PolicyRefused, match="bins of 10 people of a class, the policy of 'bank' asks for 20"):
        Policy(min_count=20).check_bins("bank", 10)


def test_bins_are_counted_over_all_runs():
    book = Book()
    let_out = door(book=book)
    first = bins_of((50, 30), (60, 40), (30, 10))  # 220 people, so at most 22 bins
    for _ in range(40):
        let_out("shop", TOLD, first)  # the same once more tells nothing new
    for more in range(6):
        let_out("shop", TOLD, bins_of((50 + more, 30), (60 - more, 41), (30, 9 + 1)))
    with pytest.raises(PolicyRefused, match=r"3 bins .* and 21 were told .* allows 22 \(max_label_counts = 0.1 of 22"):
        door(book=book)("shop", TOLD, bins_of((70, 30), (40, 40), (30, 10)))
    door(book=book)("mill", TOLD, bins_of((70, 30), (40, 40), (30, 10)))  # another partner has its own
    door(book=book)("shop", TOLD, first)


def test_columns_are_counted_so_many_times_and_no_more():
    book = Book()
    for _ in range(2):
        let_out = door(Policy(max_binnings=2), book)
        for _ in range(3):  # pieces of one run
            let_out("bank", "mask of counts", np.zeros((2, 2), np.uint32))
    with pytest.raises(PolicyRefused, match="raise max_binnings"):
        door(Policy(max_binnings=2), book)("bank", "mask of counts", np.zeros((2, 2), np.uint32))


# -- between organisations ---------------------------------------------------------------------------------------------


def write_csv(path, table, ids):
    columns = {"id": ids}
    for name, column in table.columns.items():
        values = column.categories[column.codes] if isinstance(column, Texts) else column.values
        columns[name] = ["" if isinstance(one, float) and np.isnan(one) else one for one in values.tolist()]
    if table.label is not None:
        columns["label"] = table.label
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def test_a_label_holder_with_weights_is_told_that_bins_count_people(tmp_path, capsys):
    folder, given = tmp_path / "first", tables(rows=300)
    assert main(["init", str(folder), "--parties", "bank,shop"]) == 0
    text = (folder / "job.toml").read_text().replace('kind = "logistic"', 'kind = "logistic"\nweighted = true', 1)
    for name in given:
        write_csv(folder / f"{name}.csv", given[name], [f"p{row}" for row in range(300)])
    own = folder / "bank.toml"
    own.write_text(own.read_text().replace("[data]", '[data]\nclass_weight = "balanced"', 1))
    words = "bins count people, and the weights of 'bank' have no part in them"
    for bins, told in ((BINNED, {"bank": True, "shop": False}), ("", {"bank": False, "shop": False})):
        (folder / "job.toml").write_text(complete(text + bins))
        for name in told:
            capsys.readouterr()
            main(["check", str(folder / "job.toml"), "--as", name])
            assert (words in " ".join(capsys.readouterr().out.replace("│", " ").split())) == told[name], name


def test_between_organisations(tmp_path, capsys):
    """Sealed training on bins, from files to points and predictions; and a label holder that wants smaller bins."""
    folder, given = tmp_path / "first", tables(rows=600)
    assert main(["init", str(folder), "--parties", "bank,shop"]) == 0
    text = (folder / "job.toml").read_text()
    for number, port in enumerate(free_ports(2)):
        text = text.replace(f"127.0.0.1:{7443 + number}", f"127.0.0.1:{port}")
    text += BINNED + "min_iv = 0.01\n[scorecard]\nbase = 500\n"
    (folder / "job.toml").write_text(complete(text))
    for name in given:
        write_csv(folder / f"{name}.csv", given[name], [f"p{row}" for row in range(600)])
    said = run_all(folder, ("bank", "shop"))
    assert "columns have bins that stay" in said["shop"]
    assert "information values of all parties' columns are in iv.csv" in said["bank"]
    assert "of the bins' people 'a good one' are good and 'bad' are bad, whom the model predicts" in said["bank"]
    assert "are bad, whom" not in said["shop"]
    part = model_file.load(folder / "shop-files", "shop")
    assert part.columns == ("income", "city")
    capsys.readouterr()
    assert main(["model", "scorecard", str(folder / "job.toml"), "--as", "shop"]) == 0
    card = capsys.readouterr().out
    assert "500 points are odds of 50, and 20 more double them" in card
    assert "income" in card
    assert "(everybody)" not in card  # which is the bank's
    shop = start(folder, "shop", "serve", "--once")
    bank = start(folder, "bank", "predict", "--out", str(folder / "scores.csv"))
    answers = [process.communicate(timeout=600)[0] for process in (bank, shop)]
    assert [process.returncode for process in (bank, shop)] == [0, 0], answers
    assert len((folder / "scores.csv").read_text().splitlines()) == 601
    # The label holder's rule, before anybody is dialled.
    own = folder / "bank.toml"
    own.write_text(re.sub(r"\[policy\].*", "[policy]\nmin_count = 50", own.read_text(), count=1))
    capsys.readouterr()
    assert main(["run", str(folder / "job.toml"), "--as", "bank", "--quiet"]) != 0
    assert "the policy of 'bank' asks for 50 at least" in capsys.readouterr().err
