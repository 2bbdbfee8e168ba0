"""Boosted trees between organisations: files, policy, check, run, plan, predict, serve, and runs that break off."""

from __future__ import annotations

import csv
import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import colonnade as cn
from colonnade.blocks.bins import Bins
from colonnade.boosting.options import TreeOptions, TreePart
from colonnade.boosting.questions import questions_of
from colonnade.cli.main import main
from colonnade.errors import DataError, PolicyRefused, RunFailed, TomlError
from colonnade.families.trees import TreeScorer
from colonnade.jobs import model_file
from colonnade.jobs.consent import check_consent, shown, words_of
from colonnade.jobs.init import init
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.jobs.people import FEW
from colonnade.jobs.policy import Policy
from colonnade.jobs.tree_part import check_limits, own_part
from colonnade.leaks import CELLS, HELD_OUT, OBJECTIVE, PREDICTED, RANGES
from colonnade.planning.trials import LineSpeed
from colonnade.planning.untried_trees import both_ways, forecast_trees
from colonnade.service import run
from colonnade.service.agreeing import share_out
from colonnade.service.scoring import Asker, Directory, ScoringTerms, serve
from colonnade.settings import toml
from colonnade.settings.settings import Key, Section
from colonnade.tables import data, preparation
from colonnade.tables.learned import LearnedPreparation
from ports import free_ports
from test_federation import LIMIT, run_all, shelved, start
from test_job import complete, job

JOB = """\
version = 1
name = "first"
disclosed = []
[parties.bank]
address = "127.0.0.1:7443"
labels = true
[parties.shop]
[model]
kind = "trees"
"""
NAMES = ("bank", "shop")
PEOPLE = 1200
pytestmark = pytest.mark.filterwarnings("ignore:protection='plain'")


def trees(more="", kind="trees", head=""):
    """A job with another model; what is added stands at the end, or at the beginning."""
    return complete(head + JOB.replace('"trees"', f'"{kind}"') + more)


# -- the job ----------------------------------------------------------------------------------------------------------


def test_a_job_of_trees_is_sealed_and_has_the_estimators_defaults():
    read = job(trees())
    assert (read.family, read.protection, read.loss, read.summed) == ("sealed-trees", "sealed", "logistic", None)
    assert read.algorithm == cn.SealedBoosting()
    assert read.model == TreeOptions()
    assert RANGES in read.disclosed()
    assert not {PREDICTED, OBJECTIVE, HELD_OUT} & set(read.disclosed())
    # Held-out rows show nothing more: their ranges are told like those of all others.
    assert job(trees("[validation]\npart = 0.2\n")).disclosed() == read.disclosed()


@pytest.mark.parametrize(
    ("kind", "more", "loss"),
    [
        ("trees", "", "logistic"),
        ("trees-softmax", "", "softmax"),
        ("trees-regression", "", "square"),
        ("trees-poisson", "", "poisson"),
        ("trees-gamma", "", "gamma"),
        ("trees-tweedie", "", "tweedie 1.5"),
        ("trees-tweedie", "power = 1.7", "tweedie 1.7"),
        ("trees-quantile", "", "quantile 0.5"),
        ("trees-quantile", "level = 0.9", "quantile 0.9"),
    ],
)
def test_a_kind_stands_for_a_loss(kind, more, loss):
    assert job(trees(more, kind)).loss == loss


def test_options_are_called_as_in_the_estimator():
    more = """trees = 30
learning_rate = 0.3
depth = 3
leaves = 6
l2 = 2
min_gain = 0.5
min_child_weight = 3
rows = 0.5
columns = 0.7
bins = 16
balanced = true
patience = 4
[algorithm]
ranges = 4
noise = 5
label_epsilon = 2.0
seed = 3
[validation]
part = 0.25
"""
    read = job(trees(more))
    assert read.model == TreeOptions(30, 0.3, 3, 6, 2.0, 0.5, 3.0, 0.5, 0.7, 16, True, 4)
    assert read.algorithm == cn.SealedBoosting(label_epsilon=2.0, ranges=4, noise=5, seed=3)
    # A linear model has an l2 too, and another default.
    assert job(complete(JOB.replace("trees", "logistic"))).model.l2 == 1e-4


def test_plain_is_asked_for_by_its_word():
    read = job(trees(head='protection = "plain"\n'))
    assert (read.family, read.protection, read.algorithm) == ("trees", "plain", cn.OpenBoosting())
    assert CELLS in read.disclosed()
    assert words_of(read).startswith("plain: bank gets every column of its partners, cut into as many cells")
    with pytest.raises(
        PolicyRefused, match=f"""'plain', which shows its partners "{CELLS}", and the policy of 'shop'"""
    ):
        check_consent(Policy(), "shop", read)
    check_consent(Policy(protection=("plain",)), "shop", read)


def test_sealed_words_are_those_of_trees():
    read = job(trees("[algorithm]\nranges = 4\n[validation]\npart = 0.2\n"))
    assert words_of(read) == (
        "sealed: partners see neither labels nor which people are in which node of a tree; bank learns, of their "
        "columns that help, in which of at most 4 ranges each person is"
    )
    assert shown(read, "shop") == f'its partners "{RANGES}"'
    check_consent(Policy(), "shop", read)


TWO = JOB.replace("[parties.shop]", "[parties.shop]\nlabels = true")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (JOB.replace("labels = true", ""), "key parties: no party holds labels; set labels = true for those that do"),
        (TWO, "key parties: a tree model has one label holder, and 'bank' and 'shop' hold labels; set labels = true"),
        ('protection = "masked"\n' + JOB, "key protection: 'masked' is for sums of scores; trees have 'sealed'"),
        (JOB + "patience = 5", "key model.patience: stops training by held-out rows, and the job holds none out"),
        (JOB + "power = 1.7", "key model.power: has no meaning for kind 'trees', only for 'trees-tweedie'; remove it"),
        (JOB.replace('"trees"', '"trees-tweedie"') + "power = 2", "model.power: must be above 1 and below 2, got 2"),
        (JOB.replace('"trees"', '"trees-quantile"') + "level = 1", "model.level: must be above 0 and below 1, got 1"),
        (JOB.replace('"trees"', '"trees-poisson"') + "balanced = true", "model.balanced: is for classes, which the"),
        (JOB + "penalty = 'l2'", "key model.penalty: has no meaning for kind 'trees'; remove it"),
        (JOB.replace('"trees"', '"logistic"') + "bins = 9", "key model.bins: has no meaning for kind 'logistic'"),
        (JOB + "bins = 1000", "key model.bins: must be >= 2 and <= 256, got 1000"),
        (JOB + "rows = 1.5", "key model.rows: must be > 0 and <= 1, got 1.5"),
        (JOB + "[sum]\nkind = 'pairwise'", "key sum.kind: has no effect on a tree model, whose scores are not sums"),
        (JOB + "[algorithm]\nranges = 1", "key algorithm.ranges: ranges must be >= 2, got 1"),
        (JOB + "[algorithm]\nnoise = 0.5", "key algorithm.noise: noise must be >= 1, got 0.5"),
        (JOB + "[algorithm]\nkind = 'FedSGD'", "a model of kind 'trees' is trained by SealedBoosting or OpenBoosting"),
        (JOB + "[algorithm]\nbatch = 9", "key algorithm.batch: SealedBoosting takes no batch, got 9; leave it out"),
        (JOB + "[run]\nstatistics = true", "key run.statistics: they would show what sealed training hides"),
    ],
)
def test_what_no_job_of_trees_can_be_is_one_sentence(text, sentence):
    with pytest.raises(TomlError) as error:
        job(complete(text))
    assert sentence in str(error.value)


# -- files of two organisations ---------------------------------------------------------------------------------------


def write_tables(folder, people=PEOPLE):
    """Numbers with gaps, texts, a constant; labels follow from columns of both."""
    rng = np.random.default_rng(7)
    columns = {
        "bank": {"age": rng.normal(50, 10, people), "city": rng.choice(["Oslo", "Paris", "Rome"], people)},
        "shop": {
            "spend": rng.lognormal(3, 1, people), "visits": rng.poisson(4, people),
            "kind": rng.choice(list("abcdef"), people), "same": np.full(people, 7),
        },
    }  # fmt: skip
    own, other = columns.values()
    z = (own["age"] - 50) / 10 + 2 * (np.log(other["spend"]) - 3) + 2 * (other["kind"] == "c")
    label = np.where(z + rng.logistic(size=people) > 0, "good", "bad")
    for name, mine in columns.items():
        with (Path(folder) / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *mine, *(["label"] if name == "bank" else [])])
            for row in rng.permutation(people)[: people - 50]:
                cells = [value[row] if rng.random() > 0.05 or key == "same" else "" for key, value in mine.items()]
                writer.writerow([f"p{row}", *cells, *([label[row]] if name == "bank" else [])])


def made(tmp_path, more="", **options):
    """What `colonnade init` writes, with free ports and tables; `more` are lines of [model]."""
    folder = tmp_path / "first"
    init(folder, NAMES, model=options.pop("model", "trees"), **options)
    path = folder / "job.toml"
    text = path.read_text()
    for number, port in enumerate(free_ports(len(NAMES))):
        text = text.replace(f"127.0.0.1:{7443 + number}", f"127.0.0.1:{port}")
    text = text.replace("grace = 10 ", "grace = 2 ").replace("\n[algorithm]", f"{more}\n[algorithm]")
    path.write_text(text)
    write_tables(folder)
    return folder


def change(folder, file, *pairs):
    path = folder / file
    text = path.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def said_by(capsys, *command):
    """(exit code, all that a command says, on one line)."""
    capsys.readouterr()
    code = main(list(command))
    return code, re.sub(r"[\s│]+", " ", "".join(capsys.readouterr()))


@pytest.mark.parametrize("protection", [None, "plain"])
@pytest.mark.parametrize("kind", ["trees", "trees-softmax", "trees-tweedie", "trees-quantile", "trees-gamma"])
def test_init_writes_files_that_are_read(tmp_path, kind, protection):
    folder = tmp_path / "first"
    init(folder, NAMES, model=kind, protection=protection)
    read = read_job(folder / "job.toml")
    assert (read.protection, read.validation, read.model) == (protection or "sealed", 0.2, TreeOptions())
    for name in NAMES:
        party = read_party(folder / f"{name}.toml", read)
        check_consent(party.policy, name, read)
        check_limits(read, party)
    # Every line that is written as a comment may be taken in.
    path = folder / "job.toml"
    model = re.search(r"\[model\].*?(?=\n\[alignment\])", path.read_text(), re.DOTALL)[0]
    open_ones = re.sub(r"^# (\w+ = )", r"\1", model, flags=re.MULTILINE)
    keys = {"label_epsilon"} if "softmax" not in kind and kind != "trees" else set()
    lines = [line for line in open_ones.splitlines() if not line.startswith(tuple(keys))]
    path.write_text(complete(path.read_text().replace(model, "\n".join(lines))))
    assert read_job(path).model == TreeOptions(leaves=16, patience=10)
    path = folder / "shop.toml"
    before, certificates, after = path.read_text().partition("[certificates]")
    opened = re.sub(r"^# (\[\w+\]|income|region|monotone)", r"\1", before, flags=re.MULTILINE)
    path.write_text(opened + certificates + after)
    party = read_party(path, read)
    assert set(preparation.declared_steps(party.prepare)) == {"income", "region"}
    assert dict(party.trees["monotone"]) == {"income": -1, "debts": 1}


def test_a_party_s_limits_become_its_part(tmp_path):
    folder = made(tmp_path)
    change(folder, "shop.toml", ("max_ranges = 8 ", "max_ranges = 9 "), ("min_cell = 10 ", "min_cell = 20 "))
    change(folder, "shop.toml", ("[certificates] ", "[trees]\nmonotone = { spend = 1, visits = -1 }\n[certificates] "))
    read = read_job(folder / "job.toml")
    parties = {name: read_party(folder / f"{name}.toml", read) for name in NAMES}
    columns = ("spend", "visits", "kind", "same")
    own = TreePart(*own_part(read, parties["shop"], columns, (2,)))
    assert own == TreePart((2,), ((0, 1), (1, -1)), 9, 20, 256, 5.0)
    # Of the label holder's columns nobody is told anything, so nothing limits its cells.
    assert TreePart(*own_part(read, parties["bank"], ("age", "city"), (1,))) == TreePart((1,))


def test_limits_of_plain_and_of_old_files():
    assert Policy().ranges_at_most("sealed") == 8
    assert Policy().ranges_at_most("plain") is None  # who agreed to it by name
    assert Policy(max_ranges=4).ranges_at_most("plain") == 4
    assert (Policy().max_questions, Policy().min_cell) == (256, 10)
    assert questions_of(100, 1) <= Policy().max_questions


MONOTONE = "[trees]\nmonotone = { %s }\n[certificates] "


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ([("max_ranges = 8 ", "max_ranges = 4 ")], "to 8 ranges of each column, and the policy of 'shop' allows 4"),
        ([("min_noise = 5.0 ", "min_noise = 20.0 ")], "noise of 10 on sums over cells, and the policy of 'shop'"),
        ([("max_questions = 256", "max_questions = 10")], "70 sums over the cells of each partner, and the policy of"),
        ([("[certificates] ", MONOTONE % "spent = 1")], "monotone.spent: after preparation there is no column 'spent'"),
        ([("[certificates] ", MONOTONE % "kind = 1")], "monotone.kind: column 'kind' holds categories, and these"),
        ([("[certificates] ", MONOTONE % "spend = 2")], "monotone.spend: must be one of 1, -1, got 2"),
        ([("min_cell = 10 ", "min_cell = 700 ")], "none of the 4 columns of party 'shop' can be cut into two cells of"),
        (
            [('# columns = ["age", "income"]', 'columns = ["same"]'), ("min_features = 2", "min_features = 1")],
            "none of the 1 columns of party 'shop' can be cut into two cells of at least 50 of its",
        ),
    ],
)  # fmt: skip
def test_what_a_party_can_t_take_part_with_is_found_before_anything_is_sent(tmp_path, capsys, changes, sentence):
    folder = made(tmp_path)
    change(folder, "shop.toml", *changes)
    code, said = said_by(capsys, "check", str(folder / "job.toml"), "--as", "shop")
    assert code == 1
    assert sentence in said
    if "none of the" in sentence or "preparation" in sentence or "holds categories" in sentence:
        return  # that is seen in the table, which is read after the handshake: below
    code, said = said_by(capsys, "run", str(folder / "job.toml"), "--as", "shop")
    assert (code, sentence in said, "waiting" in said) == (1, True, False)
    assert not (folder / "shop-files").exists()


@pytest.mark.parametrize("changed", ["spent = 1", "kind = 1"])
def test_a_run_refuses_signs_before_its_first_message(tmp_path, monkeypatch, changed):
    folder, told = made(tmp_path), []
    change(folder, "shop.toml", ("[certificates] ", MONOTONE % changed))

    def attend(job_, party, program, read, **_):
        read()
        raise RunFailed("nobody came", "bank", "joining")

    monkeypatch.setattr(run, "attend", attend)
    read = read_job(folder / "job.toml")
    with pytest.raises(TomlError, match="monotone"):
        run.run_job(read, read_party(folder / "shop.toml", read), verbose=0, tell=told.append)


def test_more_bins_than_rows(tmp_path, capsys):
    folder = made(tmp_path, "bins = 200")
    write_tables(folder, 150)
    code, said = said_by(capsys, "check", str(folder / "job.toml"), "--as", "bank")
    assert code == 1
    assert "bins must be at most the 100 rows of party 'bank', got 200; lower bins" in said


def test_rows_without_a_label(tmp_path, capsys):
    folder = made(tmp_path)
    path = folder / "bank.csv"
    path.write_text(path.read_text().replace(",good", ",", 3))
    code, said = said_by(capsys, "check", str(folder / "job.toml"), "--as", "bank")
    assert code == 1
    assert "unlabelled WRONG 3 rows have no label, and trees need one for every row; leave these rows out" in said


def test_a_table_of_trees_in_another_job(tmp_path):
    folder = tmp_path / "first"
    init(folder, NAMES)
    path = folder / "shop.toml"
    path.write_text(path.read_text().replace("[certificates] ", MONOTONE % "spend = 1"))
    with pytest.raises(TomlError, match="key trees: the job trains no boosted trees; remove this table"):
        read_party(path, read_job(folder / "job.toml"))


def test_check_says_what_the_guarantee_is(tmp_path, capsys):
    folder = made(tmp_path)
    code, said = said_by(capsys, "check", str(folder / "job.toml"), "--as", "shop")
    assert code == 0
    assert "job ok 2 parties, SealedBoosting protection sealed: partners see neither labels nor which people" in said
    assert re.search(r"cells ok up to 1\d cells in each of 4 columns", said)
    assert "of 50 rows at least" in said  # five times the noise, which is more than min_cell
    assert "unused 'same' has no two cells of so many rows, or is constant, and is never asked about" in said
    assert "ranges of each of your 4 columns bank will learn at most 8 ranges policy ok allows this job" in said
    assert "coefficients" not in said
    assert "budget" not in said
    assert said.count("how many columns you have") == 1
    _, said = said_by(capsys, "check", str(folder / "job.toml"), "--as", "bank")
    assert "ranges nobody learns a value of your 2 columns, or a range of one" in said
    assert "shop will learn which of their columns help to tell your labels, and where the model cuts them" in said


# -- runs -------------------------------------------------------------------------------------------------------------


def by_the_estimator(folder, **options):
    """The same job through the estimator, in this process: what bank and shop have then."""
    read = read_job(folder / "job.toml")
    tables = {name: data.load(read_party(folder / f"{name}.toml", read).data) for name in NAMES}
    bare = [cn.Party(name, np.zeros((table.rows, 2)), ids=table.ids) for name, table in tables.items()]
    parts = [{}, {}]
    for party in cn.align_parties(*bare, verbose=0):
        table = tables[party.name]
        where = {str(one): row for row, one in enumerate(table.ids.tolist())}
        cut = share_out(np.array([where[str(one)] for one in party.ids.tolist()]), read.validation, read.algorithm.seed)
        learned = preparation.fit(table, None, cut[0], trees=True)
        for part, of in zip(parts, cut, strict=True):
            part[party.name] = learned.party(party.name, table.take(of))
    training, held_out = ([part[name] for name in NAMES] for part in parts)
    model = cn.BoostedTreesClassifier(protection="plain", verbose=0, **options)
    return model.fit(*training, validation=held_out)


def states(folder):
    return {name: repr(model_file.load(folder / f"{name}-files", name).state) for name in NAMES}


def test_a_plain_job_is_the_estimator_to_the_bit_and_is_loaded_as_one(tmp_path):
    folder = made(tmp_path, "trees = 12\npatience = 3\ndepth = 3", protection="plain")
    change(folder, "shop.toml", ("min_cell = 10 ", "min_cell = 1 "))  # as the estimator's parties, who ask for nothing
    said = run_all(folder, NAMES)
    model = by_the_estimator(folder, trees=12, patience=3, depth=3)
    assert states(folder) == {name: repr(model._states[name]) for name in NAMES}
    assert re.search(r"bank: kept epoch \d+ of \d+, loss \d.\d+, auc \d.\d+, auc \d.\d+ held out", said["bank"])
    for name in NAMES:
        path = shelved(folder, name) / f"{name}.colonnade.npz"
        path.rename(folder / path.name)
    again = cn.load(folder)
    assert again.get_params() == model.set_params(algorithm="auto").get_params() | {"verbose": 1}
    assert again.forest_.to_arrays()["value"].tobytes() == model.forest_.to_arrays()["value"].tobytes()
    assert again.ranges_ == model.ranges_


def test_from_init_to_scores_with_nothing_but_defaults(tmp_path, capsys):
    """As a user would: no file is edited but for the ports, and for fewer trees."""
    folder = made(tmp_path, "trees = 20")
    said = run_all(folder, NAMES)
    assert "protection sealed: partners see neither labels nor which people are in which node" in said["shop"]
    assert "in which of at most 8 ranges each of the people in common is" in said["shop"]
    assert "shop: sent" in said["shop"]
    assert "auc" not in said["shop"]
    auc = float(re.search(r"auc (\d.\d+) held out", said["bank"])[1])
    assert auc > 0.7  # about 0.6 with the bank's columns alone
    parts = {name: model_file.load(folder / f"{name}-files", name) for name in NAMES}
    assert {part.public["family"] for part in parts.values()} == {"sealed-trees"}
    assert all(len(np.unique(one)) <= 8 for one in parts["shop"].state[3] if one is not None)
    # Every row is in the ledger by its kind, and nothing was summed.
    for name in NAMES:
        assert main(["ledger", "verify", str(folder / "job.toml"), "--as", name]) == 0
    _, kinds = said_by(capsys, "ledger", "show", str(folder / "job.toml"), "--as", "shop")
    for kind in ("tree sizes", "tree hint", "tree answer", "tree sides"):
        assert kind in kinds
    assert "public key" not in kinds
    shop = start(folder, "shop", "serve", "--once")
    asker = start(folder, "bank", "predict", "--out", str(folder / "scores.csv"))
    ended = [process.communicate(timeout=LIMIT)[0] for process in (asker, shop)]
    assert (asker.returncode, shop.returncode) == (0, 0), ended
    with (folder / "scores.csv").open() as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    with (folder / "bank.csv").open() as file:
        truth = {row["id"]: row["label"] for row in csv.DictReader(file)}
    known = [one for one, row in rows.items() if row["known"] == "true"]
    assert parts["bank"].public["rows"] == len(known) - round(0.2 * len(known))  # a fifth was held out
    right = np.mean([rows[one]["prediction"] == truth[one] for one in known])
    assert right > 0.65
    _, described = said_by(capsys, "model", "show", str(folder / "job.toml"), "--as", "bank")
    assert "20 trees" in described
    assert "shop column 1" in described
    _, described = said_by(capsys, "model", "show", str(folder / "job.toml"), "--as", "shop")
    assert "of 4 columns are asked about" in described
    assert "spend" in described


def test_a_policy_of_kinds_holds_for_trees_too(tmp_path):
    folder = made(tmp_path, "trees = 2")
    kinds = [kind for kind in Policy().kinds if kind != "tree hint"]
    change(folder, "shop.toml", ("max_ranges = 8 ", f"kinds = {json.dumps(kinds)}\nmax_ranges = 8 "))
    started = {name: start(folder, name) for name in NAMES}
    said = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    assert "the policy of 'shop' does not let messages of the kind 'tree hint' out" in said["shop"]
    assert "party 'shop' failed with PolicyRefused" in said["bank"]


# -- broken off -------------------------------------------------------------------------------------------------------

TREES = 80


def killed(folder, victim):
    """Start a job, and kill one party as soon as it has kept some trees."""
    file = read_party(folder / f"{victim}.toml", read_job(folder / "job.toml"))
    kept = file.checkpoints / "state"
    started = {name: start(folder, name) for name in NAMES}
    until = time.monotonic() + LIMIT
    while not any(int(path.stem) >= 5 for path in kept.glob("*.kept")) and time.monotonic() < until:
        time.sleep(0.002)
    started[victim].send_signal(signal.SIGKILL)
    said = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    assert started[victim].returncode == -signal.SIGKILL, said
    (other,) = (name for name in NAMES if name != victim)
    assert started[other].returncode == 1
    assert f"party '{victim}' was out of reach" in said[other]
    assert max(int(path.stem) for path in kept.glob("*.kept")) < TREES
    return kept


@pytest.mark.parametrize(
    ("protection", "victim"),
    [
        ("plain", "bank"),
        ("sealed", "shop"),
        pytest.param("plain", "shop", marks=pytest.mark.long),
        pytest.param("sealed", "bank", marks=pytest.mark.long),
    ],
)
def test_a_party_is_killed_and_the_job_goes_on(tmp_path, protection, victim):
    folder = made(tmp_path, f"trees = {TREES}\ndepth = 3\nrows = 0.8", protection=protection)
    change(folder, "shop.toml", ("min_cell = 10 ", "min_cell = 1 "))
    kept = killed(folder, victim)
    said = run_all(folder, NAMES)
    assert re.search(r"going on from epoch \d+, which all parties have kept", said[victim])
    history = json.loads((shelved(folder, "bank") / "history.json").read_text())
    assert [record["epoch"] for record in history] == list(range(1, TREES + 1))  # of both runs
    assert history[-1]["validation_metric"] > 0.7
    assert not list(kept.glob("*"))  # the model is saved: nothing to go on from
    if protection == "plain":
        model = by_the_estimator(folder, trees=TREES, depth=3, rows=0.8)
        assert states(folder) == {name: repr(model._states[name]) for name in NAMES}
    else:
        parts = {name: model_file.load(folder / f"{name}-files", name) for name in NAMES}
        assert len(parts["bank"].public["parties"]) == 2
        assert any(one is not None for one in parts["shop"].state[3])


# -- use --------------------------------------------------------------------------------------------------------------


def test_a_question_that_is_refused_tells_nothing_and_the_next_one_is_answered():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 6))
    bank, shop = cn.split(X, (X[:, 4] > 0).astype(int), into={"bank": range(3), "shop": range(3, 6)})
    model = cn.BoostedTreesClassifier(trees=3, verbose=0).fit(bank, shop)
    ids, terms, told = [f"p{row}" for row in range(600)], ScoringTerms("bank", "plain", "star"), []
    scorers = {name: TreeScorer(name, model._states[name]) for name in NAMES}
    directory = Directory(np.array(ids), set(ids[:400]))

    async def ask(net):
        asker, found = await Asker.open(net, terms, scorers["bank"]), []
        for some in (ids[:5], ids):
            try:
                found.append(await asker.scores(some, bank.X[: len(some)], np.ones(len(some), dtype=bool)))
            except PolicyRefused as error:
                found.append(str(error))
        await asker.close()
        told.append(found)

    async def answer(net):
        def lookup(asked):
            rows, known = directory.find(asked)
            return shop.X[rows], known

        await serve(net, terms, scorers["shop"], lookup, lambda people: (FEW, 10, 0) if people < 10 else None)

    cn.Simulation().run({"bank": (ask, ()), "shop": (answer, ())})
    ((refused, (scores, known)),) = told
    assert refused.startswith("party 'shop' answers about 10 people at a time at least, 5 were asked about")
    assert known.tolist() == [True] * 400 + [False] * 200
    assert scores[known].tobytes() == model.decision_function(bank, shop)[known].tobytes()
    assert not scores[~known].any()


# -- columns as trees take them ---------------------------------------------------------------------------------------


def table_of(tmp_path, text, prepare=""):
    (tmp_path / "t.csv").write_text(text)
    settings = toml.parse(f'[data]\nsource = "t.csv"\n{prepare}'.encode(), TABLE, "party.toml", folder=tmp_path)
    return data.load(settings["data"]), settings["prepare"]


TABLE = Section(Key("data", data.SECTION, required=True), Key("prepare", preparation.SECTION))
SMALL = "age,city,region\n1,Oslo,5\n,Rome,3\n3,,5\n4,Rome,\n"


def test_gaps_stay_and_texts_become_codes(tmp_path):
    table, _ = table_of(tmp_path, SMALL)
    learned = preparation.fit(table, trees=True)
    assert (learned.names, learned.categories) == (("age", "city", "region"), (1,))
    nan = np.nan
    expected = [[1, 0, 5], [nan, 1, 3], [3, nan, 5], [4, 1, nan]]
    np.testing.assert_array_equal(learned.apply(table), expected)
    party = learned.party("shop", table)
    assert (party.categories, party.missing) == ((1,), True)
    # A category of which training had none has a code of its own, which no cell was made for.
    new, _ = table_of(tmp_path, "age,city,region\n,Paris,7\n2,Oslo,\n")
    again = LearnedPreparation.from_arrays(learned.to_arrays())
    assert again == learned
    np.testing.assert_array_equal(again.apply(new), [[nan, 2, 7], [2, 0, nan]])
    bins = Bins.of(learned.apply(table), 4, categorical=learned.categories)
    assert bins.cells(again.apply(new))[1, 0] == bins.unseen[1]


def test_a_party_s_file_may_ask_for_something_else(tmp_path):
    steps = '[prepare]\nage = ["impute"]\ncity = ["one-hot"]\nregion = ["categories"]\n'
    table, prepare = table_of(tmp_path, SMALL, steps)
    learned = preparation.fit(table, prepare, trees=True)
    assert learned.names == ("age", "city=Oslo", "city=Rome", "city=(missing)", "region")
    assert learned.categories == (4,)
    expected = [[1, 1, 0, 0, 1], [3, 0, 1, 0, 0], [3, 0, 0, 1, 1], [4, 0, 1, 0, np.nan]]
    np.testing.assert_array_equal(learned.apply(table), expected)
    with pytest.raises(DataError, match=r"'region' .* has the step categories, whose codes only boosted trees take"):
        preparation.fit(table, prepare)


def test_many_categories_share_a_code(tmp_path):
    rows = "".join(f"{k},c{k % 300:03d}\n" for k in range(900)) + "9,c000\n"
    table, _ = table_of(tmp_path, "age,city\n" + rows)
    learned = preparation.fit(table, trees=True)
    codes = learned.apply(table)[:, 1]
    assert set(codes.tolist()) == set(range(256))
    assert (codes == 255).sum() == 3 * 45  # all others
    assert learned.columns[1].last.categories[0] == "c000"


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ('city = ["impute"]', "holds text, for which categories and one-hot are the only steps; give it categories"),
        ('city = ["categories", "scale"]', "nothing can follow one-hot, categories or woe, and as-is stands alone"),
        ("city = [{ categories = { most = 3 } }]", 'categories takes no options; write "categories"'),
    ],
)
def test_steps_that_do_not_fit(tmp_path, steps, sentence):
    table, prepare = table_of(tmp_path, SMALL, f"[prepare]\n{steps}\n")
    with pytest.raises((DataError, TomlError), match=re.escape(sentence)):
        preparation.fit(table, prepare, trees=True)


# -- plans ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("number", [1, 40])
def test_a_plan_foretells_the_bytes_of_a_run(number, outputs):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 9))
    z = X[:, 0] + X[:, 6] + 2 * X[:, 7] * X[:, 8]
    y = (z > 0).astype(int) if outputs == 1 else np.digitize(z, [-1.0, 1.0])
    kind = "trees" if outputs == 1 else "trees-softmax"
    read = job(trees(f"trees = {number}", kind))
    parties = cn.split(X, y, into={"bank": range(3), "shop": range(3, 9)})
    for algorithm, own in both_ways(read):
        model = cn.BoostedTreesClassifier(trees=number, algorithm=algorithm, verbose=0).fit(*parties)
        line = LineSpeed(0.0, np.inf)
        found = forecast_trees(read, algorithm, 4000, {"bank": 3, "shop": 6}, outputs, line)
        sent = {name: traffic.bytes for name, traffic in model.traffic_.items()}
        assert found.rounds == model.rounds_
        assert found.sent["shop"] == pytest.approx(sent["shop"], rel=0.02 if own else 0.05)
        if own:
            assert found.sent["bank"] == pytest.approx(sent["bank"], rel=0.02)
        slow = forecast_trees(read, algorithm, 4000, {"bank": 3, "shop": 6}, outputs, LineSpeed(0.1, 1e6))
        assert slow.seconds > found.seconds + 0.1 * found.rounds + max(found.sent.values()) / 1e6
        assert 0 < found.seconds < 60


@pytest.mark.parametrize("protection", ["sealed", "plain"])
def test_plan_of_two_organisations(tmp_path, protection):
    folder = made(tmp_path, "trees = 10", protection=protection)
    started = {name: start(folder, name, "plan", "--quiet") for name in NAMES}
    said = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    for name, process in started.items():
        assert process.returncode == 0, said
        assert "SealedBoosting" in said[name]
        assert "OpenBoosting" in said[name]
        assert "were not tried: trees have no short trial" in re.sub(r"\s+", " ", said[name])
    assert not (folder / "shop-files" / "versions").exists()
