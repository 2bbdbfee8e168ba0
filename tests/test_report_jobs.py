"""Reports of jobs: who was held out is named to the label holder alone, and each party's page shows its own view."""

from __future__ import annotations

import csv
import json
import re
import stat
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, d2_tweedie_score, r2_score, roc_auc_score

import colonnade as cn
from colonnade.cli.main import main
from colonnade.data.raw_columns import Numbers, Texts
from colonnade.errors import DataError, OptionError
from colonnade.jobs import model_file
from colonnade.jobs.party_file import read_party
from colonnade.objective import losses
from colonnade.report import held_out_file
from colonnade.report.contents import ColumnLine
from colonnade.report.gather import _columns, gather
from colonnade.report.page import page_of
from colonnade.tables import data
from colonnade.versions.profile import profile_of, write_profiles
from colonnade.versions.shelf import Shelf
from report_contents import Strict, contents_of
from report_jobs import LABELS, ODD, TABLE, trained

KINDS = [
    ("logistic", "sealed"), ("logistic", "masked"), ("softmax", "masked"), ("ridge", "masked"), ("poisson", "masked"),
    ("svm", "masked"), ("kernel", None), ("trees", None),
]  # fmt: skip


def short(text):
    text = re.sub("#? ?features = 4096", "features = 32", text.replace("# trees = 100 ", "trees = 8 "))
    return text.replace("epochs = 100 ", "epochs = 4 ")


def people_in(folder):
    with (folder / "held-out.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
@pytest.mark.parametrize(("kind", "protection"), KINDS)
def test_held_out_people_are_named_where_their_labels_are_and_nowhere_else(tmp_path, kind, protection):
    _, job, parties = trained(tmp_path, kind, protection, more=short)
    bank, shop = (Shelf(parties[name].folder, name).promoted().folder for name in ("bank", "shop"))
    assert not (shop / "held-out.csv").exists()
    assert stat.S_IMODE((bank / "held-out.csv").stat().st_mode) == 0o600
    rows = people_in(bank)
    assert len(rows) == 55  # a quarter of the 220 people in common
    assert {row["fold"] for row in rows} == {"held out"}
    assert all(row["label"] == str(LABELS[kind][int(row["id"])]) for row in rows)
    # Their scores are those of the whole model, put together from both parties' files.
    found = held_out_file.read(bank / "held-out.csv")
    parts = {name: model_file.load(parties[name].folder, name) for name in parties}
    tables = {name: data.load(parties[name].data, texts=parts[name].prepared.texts) for name in parties}
    asked = []
    for name, table in tables.items():
        where = {str(one): row for row, one in enumerate(table.ids.tolist())}
        taken = table.take(np.array([where[one] for one in found.ids]))
        coded = parts[name].prepared.categories
        asked.append(cn.Party(name, parts[name].prepared.apply(taken), columns=parts[name].columns, categories=coded))
    both = tmp_path / "both"
    both.mkdir()
    for name in parties:
        path = parts[name].folder / f"{name}.colonnade.npz"
        (both / path.name).write_bytes(path.read_bytes())
        (both / path.name).chmod(0o600)
    model = cn.load(both)
    z = np.asarray(model.decision_function(*asked))
    np.testing.assert_allclose(found.scores, held_out_file.shown_scores(losses.loss(job.loss), z), atol=2e-5)
    if kind == "logistic":
        told = model.predict_proba(*asked)[:, 1]
        np.testing.assert_allclose(found.scores, told, atol=2e-5)
    # And the page is there for both, with figures of these people at the bank alone.
    (people,) = (of := gather(job, parties["bank"])).people
    figure = {
        "ridge": lambda: f"{r2_score(people.y, people.score):.3f}",
        "softmax": lambda: f"{100 * accuracy_score(people.y, people.score.argmax(axis=1)):.1f}\N{NO-BREAK SPACE}%",
        "poisson": lambda: f"{d2_tweedie_score(people.y, people.score, power=1):.3f}",
    }.get(kind, lambda: f"AUC {roc_auc_score(people.y, people.score):.4f}")
    assert figure() in Strict(page_of(of)).text
    assert people.alone.shape == people.score.shape
    if kind == "ridge":
        assert r2_score(people.y, people.score) > r2_score(people.y, people.alone) + 0.1
    assert "How good is it" not in Strict(page_of(gather(job, parties["shop"]))).text


@pytest.fixture(scope="module")
def loans(tmp_path_factory):
    def more(text):
        return text.replace("statistics = false", "statistics = true")

    return trained(tmp_path_factory.mktemp("loans"), protection="masked", more=more)


def test_the_page_has_the_figures_of_these_people(loans):
    _, job, parties = loans
    of = gather(job, parties["bank"])
    (people,) = of.people
    page = Strict(page_of(of))
    assert f"AUC {roc_auc_score(people.y, people.score):.4f}" in page.text
    assert of.classes == ("lost", "repaid")
    record = min((r for r in of.history if "loss" in r), key=lambda r: r["validation_loss"])
    assert roc_auc_score(people.y, people.score) == pytest.approx(record["validation_metric"], abs=1e-9)
    assert ODD in page.text
    assert "script" not in page.tags
    assert "55 held out" in page.text


def test_coefficients_have_names_units_and_p_values(loans):
    _, job, parties = loans
    of = gather(job, parties["bank"])
    assert [one.name for one in of.coefficients] == ["age", ODD, "(intercept)"]
    age = of.coefficients[0]
    assert age.standard_error > 0
    assert age.low < age.coefficient < age.high
    assert 0 < age.p < 1e-3
    assert of.coefficients[-1].low < of.coefficients[-1].coefficient < of.coefficients[-1].high  # of the intercept
    part = model_file.load(parties["bank"].folder, "bank")
    deviation = next(step.deviation for step in part.prepared.columns[0].steps if hasattr(step, "deviation"))
    assert age.unit == f"{deviation:.4g}"
    assert 9 < deviation < 15
    assert [one.name for one in gather(job, parties["shop"]).coefficients] == ["spend", "visits"]


def test_alone_is_a_model_of_the_label_holders_columns_on_the_same_people(loans):
    _, job, parties = loans
    (people,) = gather(job, parties["bank"]).people
    version = Shelf(parties["bank"].folder, "bank").promoted().folder
    away = [int(row["id"]) for row in people_in(version)]
    common = [one for one in range(20, 240) if one not in set(away)]
    X = np.column_stack([TABLE["age"].round(5), TABLE[ODD].round(5)])
    mean, deviation = X[common].mean(axis=0), X[common].std(axis=0)
    y = (LABELS["logistic"] == "repaid").astype(int)
    slow = LogisticRegression(C=1 / (len(common) * 1e-4), tol=1e-10).fit((X[common] - mean) / deviation, y[common])
    told = slow.predict_proba((X[away] - mean) / deviation)[:, 1]
    np.testing.assert_allclose(people.alone, told, atol=1e-3)
    gained = roc_auc_score(y[away], people.score) - roc_auc_score(y[away], told)
    assert gained > 0.03  # the shop's columns matter here
    assert f"better by {gained:.4f}" in Strict(page_of(gather(job, parties["bank"]))).text


def test_alone_is_kept_and_needs_the_data_once(loans, monkeypatch):
    _, job, parties = loans
    first = page_of(gather(job, parties["bank"]))
    monkeypatch.setattr("colonnade.report.gather.load", None)
    assert page_of(gather(job, parties["bank"])) == first


def test_alone_is_the_same_of_a_table_in_several_files(tmp_path):
    folder, job, parties = trained(tmp_path)
    bank = parties["bank"]
    known = gather(job, bank).people[0].alone
    (Shelf(bank.folder, "bank").promoted().folder / "alone.csv").unlink()
    head, *rows = (folder / "bank.csv").read_text().splitlines(keepends=True)
    for number, part in enumerate((rows[:100], rows[100:])):
        (folder / f"bank-{number}.csv").write_text(head + "".join(part))
    path = folder / "bank.toml"
    path.write_text(path.read_text().replace('source = "bank.csv"', 'source = ["bank-0.csv", "bank-1.csv"]'))
    found = gather(job, replace(bank, data=read_party(path, job).data)).people[0].alone
    assert known is not None
    np.testing.assert_array_equal(found, known)


def test_data_that_have_changed_are_said_and_no_error(tmp_path):
    folder, job, parties = trained(tmp_path, protection="masked")
    table = (folder / "bank.csv").read_text().splitlines()
    (folder / "bank.csv").write_text("\n".join(table[:150]) + "\n")
    of = gather(job, parties["bank"])
    assert of.people[0].alone is None
    assert re.search(r"\d+ of the 220 people of the training are not in .*bank.csv", of.alone_words)
    assert "We alone, together" in page_of(of)


def test_columns_are_described_as_they_were_in_training(loans, tmp_path):
    _, job, parties = loans
    age, odd = gather(job, parties["bank"]).columns
    away = {int(row["id"]) for row in people_in(Shelf(parties["bank"].folder, "bank").promoted().folder)}
    people = TABLE["age"].round(5)[[one for one in range(20, 240) if one not in away]]
    assert (age.name, odd.name, age.missing) == ("age", ODD, 0.0)
    low, tenth, median, last, high = age.quantiles
    assert (low, median, high) == pytest.approx(tuple(np.quantile(people, [0.01, 0.5, 0.99])))
    assert (tenth, last) == pytest.approx(tuple(np.quantile(people, [0.1, 0.9], method="inverted_cdf")))
    assert [one.name for one in gather(job, parties["shop"]).columns] == ["spend", "visits"]
    columns = {
        "text": Texts(np.array([0, 1, 1, -1], dtype=np.int32), np.array(["a", "b", "c"], dtype=object)),
        "empty": Numbers(np.full(4, np.nan)), "one": Numbers(np.array([2.0, 2.0, 2.0, np.nan])),
    }  # fmt: skip
    write_profiles(tmp_path, {name: profile_of(column) for name, column in columns.items()})
    text, empty, one = _columns(tmp_path)
    assert text == ColumnLine("text", 0.25, (), (("b", 0.5), ("a", 0.25)))
    assert empty.missing == 1.0
    assert one == ColumnLine("one", 0.25, (2.0,) * 5)
    day = ColumnLine("joined", 0.0, (0.0, 31.0, 59.0, 90.0, 365.0), days=True)
    page = page_of(contents_of(columns=[text, empty, one, day]))
    Strict(page)
    assert all(f"<td>{one}</td>" in page for one in ("1970-01-01", "1970-02-01", "1971-01-01"))


def test_the_page_of_a_job_with_folds_shows_them(tmp_path):
    def more(text):
        text = text.replace("[validation]\n", '[validation]\nfolds = 3\nscoring = "roc_auc"\n')
        return re.sub(r"\npart = [\d.]+", "", text) + "\n[search]\nl2 = [10.0, 0.01]\n"

    _, job, parties = trained(tmp_path, protection="masked", more=more)
    folder = Shelf(parties["bank"].folder, "bank").promoted().folder
    told = json.loads((folder / "validation.json").read_text())
    of = gather(job, parties["bank"])
    assert (of.folds.count, of.folds.scoring, of.folds.best) == (3, "roc_auc", told["best"])
    page = Strict(page_of(of))
    # Everybody is named with the fold that held them out, and has figures.
    rows = people_in(folder)
    assert (len(rows), {row["fold"] for row in rows}) == (220, {"fold 1", "fold 2", "fold 3"})
    assert all(row["label"] == str(LABELS["logistic"][int(row["id"])]) for row in rows)
    (people,) = of.people
    each = np.array([row["fold"] for row in rows])
    for number, score in enumerate(told["candidates"][told["best"]]["scores"], 1):
        here = each == f"fold {number}"
        assert roc_auc_score(people.y[here], people.score[here]) == pytest.approx(score)
    assert f"AUC {roc_auc_score(people.y, people.score):.4f}" in page.text
    assert "the model of the fold that held them out" in page.text
    # "Alone" is trained on the same folds, on what the bank has.
    own = np.array([[float(f"{TABLE[name][int(row['id'])]:.5f}") for name in ("age", ODD)] for row in rows])
    own, here = (own - own.mean(axis=0)) / own.std(axis=0), each == "fold 2"
    l2 = (10.0, 0.01)[told["best"]] * (~here).sum()
    twin = LogisticRegression(C=1 / l2, tol=1e-10).fit(own[~here], people.y[~here])
    np.testing.assert_allclose(people.alone[here], twin.predict_proba(own[here])[:, 1], atol=1e-3)
    assert not (Shelf(parties["shop"].folder, "shop").promoted().folder / "held-out.csv").exists()
    for one, l2 in zip(told["candidates"], ("10.0", "0.01"), strict=True):
        assert f"l2 = {l2}" in page.text
        assert all(f"{score:.4f}" in page.text for score in (one["mean"], one["std"], *one["scores"]))
    shop = Strict(page_of(gather(job, parties["shop"])))
    assert re.search(r"l2 = [\d.]+ is the best of 2 candidates on 3 folds, as bank has found", shop.text)
    assert "of each fold" not in shop.text
    for broken in ("{", '{"folds": 3, "best": 9, "scoring": "x", "candidates": []}', '{"candidates": 3}'):
        (folder / "validation.json").write_text(broken)
        with pytest.raises(DataError, match=r"'validation.json' can't be read \(.*\); restore it from a backup"):
            gather(job, parties["bank"])


def test_a_party_without_labels_has_a_page_without_scores(loans):
    _, job, parties = loans
    of = gather(job, parties["shop"])
    assert not of.holds_labels
    assert of.people == []
    assert of.classes == ()
    page = page_of(of)
    for word in ("repaid", "lost", "ROC", "age"):
        assert not re.search(rf"\b{word}\b", page.partition("</style>")[2]), word
    for name, sentences in of.shown.items():
        assert all(sentence in Strict(page).text for sentence in sentences), name


def test_a_ledger_that_was_changed_is_said_on_the_page(loans):
    _, job, parties = loans
    assert gather(job, parties["shop"]).ledger is None  # under the virtual clock nothing has left a house
    path = parties["shop"].ledger
    path.write_text("{}\n")
    path.chmod(0o600)
    try:
        page = Strict(page_of(gather(job, parties["shop"])))
    finally:
        path.unlink()
    assert "It can't be relied on: the seal of 'ledger.jsonl' can't be read" in page.text


def test_the_command_writes_a_page_for_its_owner_alone(loans, tmp_path, capsys):
    folder, *_ = loans
    out = tmp_path / "mine.html"
    assert main(["report", str(folder / "job.toml"), "--as", "bank", "--out", str(out), "--threshold", "0.3"]) == 0
    assert f"bank: the report is {out}, " in capsys.readouterr().out
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert "From the score 0.3 on, people are taken for repaid; as --threshold says." in Strict(out.read_text()).text
    assert main(["report", str(folder / "job.toml"), "--as", "shop"]) == 0
    (page,) = (folder / "shop-files").glob("versions/*/report.html")
    assert "How good is it" not in page.read_text()


def test_people_of_a_later_period(loans, tmp_path, capsys):
    folder, *_ = loans
    later, out = tmp_path / "later.csv", tmp_path / "out.html"
    rows = [f"n{k},{0.1 + 0.8 * (k % 10) / 10},{'repaid' if k % 3 else 'lost'}" for k in range(60)]
    later.write_text("\n".join(["id,score,label", *rows]) + "\n")
    command = ["report", str(folder / "job.toml"), "--as", "bank", "--out", str(out), "--later", str(later)]
    assert main(command) == 0
    assert "out of time · 60 people" in Strict(out.read_text()).text
    later.write_text("id,score,label\nn1,0.4,maybe\n")
    assert main(command) == 1
    assert "has the labels 'maybe', and the model knows 'lost', 'repaid'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,label\n1,lost\n", "it needs id, score and label"),
        ("", "of an empty file"),
        ("id,score,label\n1,high,lost\n", "a score or weight that is no number"),
        ("id,score,label\n1,inf,lost\n", "missing or infinite"),
        ("id,score,label\n1,0.5\n", "line 2 of 'later.csv' has 2 cells, its header has 3"),
        ("id,id,score,label\n1,1,0.5,lost\n", "each once"),
    ],
)
def test_a_file_of_people_that_is_none_is_refused_in_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "later.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=re.escape(sentence)):
        held_out_file.read(path, private=False)


def test_what_is_not_for_a_party_is_refused(loans, tmp_path):
    _, job, parties = loans
    with pytest.raises(OptionError, match="--threshold is for a party that holds labels, and 'shop' holds none"):
        gather(job, parties["shop"], threshold=0.3)
    with pytest.raises(OptionError, match="--threshold must be a number"):
        gather(job, parties["bank"], threshold=float("nan"))
    with pytest.raises(OptionError, match="'bank' has no version"):
        gather(job, parties["bank"], version="ffff")


def test_what_is_written_is_what_is_read(tmp_path):
    people = held_out_file.HeldOutPeople(
        ("a,b", 'c"d', "ü"), ("held out",) * 3, np.array([[0.1, 0.9], [1 / 3, 2 / 3], [1e-17, 1.0]]), ("x", "y\nz", ""),
        np.array([1.0, 0.5, 2.0]),
    )  # fmt: skip
    held_out_file.write(tmp_path / "p.csv", people, ["x", "y\nz"])
    again = held_out_file.read(tmp_path / "p.csv")
    assert (again.ids, again.folds, again.labels) == (people.ids, people.folds, people.labels)
    np.testing.assert_array_equal(again.scores, people.scores)
    np.testing.assert_array_equal(again.weights, people.weights)
