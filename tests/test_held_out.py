"""A metric on held-out rows after sealed training: opened on request, to the label holder, and to nobody else."""

from __future__ import annotations

import re

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import d2_tweedie_score, log_loss, r2_score, roc_auc_score

import colonnade as cn
from colonnade.alignment.protocol import align
from colonnade.cli.main import main
from colonnade.errors import LabelError, OptionError, PartyFailed, PolicyRefused, RunFailed
from colonnade.families.linear import LinearOptions
from colonnade.families.training import TrainingJob, TrainingPart, train
from colonnade.jobs.budget import Budget
from colonnade.jobs.consent import words_of
from colonnade.jobs.init import init
from colonnade.jobs.job_file import read_job
from colonnade.jobs.policy import Policy, PolicyDoor
from colonnade.jobs.words import leaks_of, lines, what_others_learn
from colonnade.leaks import HELD_OUT, NOTHING
from colonnade.objective import losses
from colonnade.service.agreeing import share_out
from colonnade.service.training import take_part
from test_budget import Notes
from test_federation import LIMIT, run_all, start
from test_job import complete, job
from test_job_training import Source
from test_kept import Shelf
from test_leaks import NAMES, Record, Whole, job_with
from test_protection_jobs import BARE, made, with_word
from views import measures

STEP = "held-out scores"
ROWS, WIDTH, PART = 400, 6, 0.25
RNG = np.random.default_rng(11)
X = RNG.standard_normal((ROWS, WIDTH))
Z = X @ np.linspace(-1.0, 1.0, WIDTH)
Y = (Z + RNG.logistic(size=ROWS) > 0).astype(int)
SHORT = cn.SealedNewton(rounds=1, polish=0)
FIRST, LAST = slice(0, 300), slice(300, ROWS)


def cut(names, **more):
    parts = np.array_split(np.arange(WIDTH), len(names))
    return [
        cn.Party(name, X[:, part], **(more if name == names[0] else {}))
        for name, part in zip(names, parts, strict=True)
    ]


def fitted(parties, kind=cn.LogisticRegression, **options):
    train, apart = ([party.take(rows) for party in parties] for rows in (FIRST, LAST))
    model = kind(l2=1e-2, algorithm=SHORT, verbose=0, **options).fit(*train, validation=apart)
    return model, model.decision_function(*apart)


# -- the metric -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("parties", [2, 3])
def test_history_has_one_record_of_the_held_out_rows(parties):
    model, z = fitted(cut(NAMES[parties], y=Y))
    (record,) = model.history_
    assert set(record) == {"time", "validation_loss", "validation_metric", "metric_name"}
    assert record["metric_name"] == "auc"
    assert record["validation_metric"] == pytest.approx(roc_auc_score(Y[LAST], z))
    assert record["validation_loss"] == pytest.approx(log_loss(Y[LAST], 1 / (1 + np.exp(-z))))
    assert len(model.history_frame()) == 1


def test_held_out_rows_change_nothing_about_the_model():
    train = [party.take(FIRST) for party in cut(NAMES[2], y=Y)]
    alone = cn.LogisticRegression(l2=1e-2, algorithm=SHORT, verbose=0).fit(*train, on=cn.Simulation(secret="rehearsal"))
    judged = cn.LogisticRegression(l2=1e-2, algorithm=SHORT, verbose=0)
    judged.fit(*train, on=cn.Simulation(secret="rehearsal"), validation=[p.take(LAST) for p in cut(NAMES[2], y=Y)])
    for name, coefficients in alone.coef_.items():
        np.testing.assert_array_equal(judged.coef_[name], coefficients)
    assert alone.history_ == []


def test_a_ridge_regression_is_judged_by_r2():
    model, z = fitted(cut(NAMES[2], y=Z), cn.RidgeRegression)
    assert model.history_[0]["metric_name"] == "r2"
    assert model.history_[0]["validation_metric"] == pytest.approx(r2_score(Z[LAST], z))
    assert model.history_[0]["validation_loss"] == pytest.approx(0.5 * np.mean((Z[LAST] - z) ** 2))


@pytest.mark.parametrize("parties", [2, 3])
def test_several_classes_are_judged_by_accuracy(parties):
    classes = np.digitize(Z, [-1.0, 1.0])
    model, z = fitted(cut(NAMES[parties], y=classes), cn.SoftmaxRegression)
    (record,) = model.history_
    chances = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    assert record["metric_name"] == "accuracy"
    assert record["validation_metric"] == pytest.approx(np.mean(z.argmax(axis=1) == classes[LAST]))
    assert record["validation_loss"] == pytest.approx(log_loss(classes[LAST], chances))


def test_counts_are_judged_by_d2_and_two_sides_of_a_margin_by_auc():
    counts = np.random.default_rng(3).poisson(np.exp(0.5 * Z)).astype(float)
    model, z = fitted(cut(NAMES[2], y=counts), cn.PoissonRegression)
    assert model.history_[0]["metric_name"] == "d2"
    assert model.history_[0]["validation_metric"] == pytest.approx(d2_tweedie_score(counts[LAST], np.exp(z), power=1))
    model, z = fitted(cut(NAMES[2], y=Y), cn.LinearSVC)
    assert model.history_[0]["validation_metric"] == pytest.approx(roc_auc_score(Y[LAST], z))


def test_held_out_rows_count_by_their_weights():
    w = RNG.integers(0, 3, ROWS).astype(float)
    model, z = fitted(cut(NAMES[2], y=Y, sample_weight=w))
    record = model.history_[0]
    assert record["validation_metric"] == pytest.approx(roc_auc_score(Y[LAST], z, sample_weight=w[LAST]))
    assert record["validation_loss"] == pytest.approx(log_loss(Y[LAST], 1 / (1 + np.exp(-z)), sample_weight=w[LAST]))


def test_many_rows_are_judged_in_several_messages(monkeypatch):
    from colonnade.families.linear import LinearScorer

    monkeypatch.setattr(LinearScorer, "most", 32)
    model, z = fitted(cut(NAMES[2], y=Y))
    assert model.traffic_["shop"].by_step[STEP][0] == 4
    assert model.history_[0]["validation_metric"] == pytest.approx(roc_auc_score(Y[LAST], z))


def test_every_held_out_row_needs_a_label():
    missing = Y.astype(float)
    missing[350:353] = np.nan
    parts = {}
    for party in cut(NAMES[2], y=missing):
        some, other = party.take(FIRST), party.take(LAST)
        parts[party.name] = TrainingPart.of(some, np.array([0.0, 1.0]), losses.loss("logistic"), other).as_value()
    told = TrainingJob("sealed", LinearOptions(), "logistic", 1, ("bank",), "plain", "tree", SHORT).as_value()
    with pytest.raises((LabelError, RunFailed), match="needs a label for every one of them, and party 'bank' lacks 3"):
        cn.Simulation().run({name: (train, (told, part)) for name, part in parts.items()})


def test_a_run_that_breaks_off_at_the_metric_goes_on_to_the_same_one(monkeypatch):
    parties = cut(NAMES[3], y=Y)
    told = TrainingJob("sealed", LinearOptions(), "logistic", 1, ("bank",), "pairwise", "tree", SHORT).as_value()
    parts = {
        party.name: TrainingPart.of(
            party.take(FIRST), np.array([0, 1]), losses.loss("logistic"), party.take(LAST)
        ).as_value()
        for party in parties
    }

    def run(shelves, breaks=False):
        reports = []

        async def program(net, job_, part):
            if breaks and net.me == "shop":
                monkeypatch.setattr("colonnade.families.sealed.judge", fail)
            return await train(net, job_, part, shelves[net.me])

        cn.Simulation(secret="rehearsal").run(
            {name: (program, (told, part)) for name, part in parts.items()},
            lambda name, _, value: reports.append((name, value)) if value[0] == "held out" else None,
        )
        return reports

    async def fail(*_):
        raise RuntimeError("the power fails")

    whole = run({name: Shelf() for name in parts})
    assert [name for name, _ in whole] == ["bank"]
    shelves = {name: Shelf() for name in parts}
    with pytest.raises(PartyFailed, match="the power fails"):
        run(shelves, breaks=True)
    monkeypatch.undo()
    assert run(shelves) == whole


# -- what is shown, and to whom ---------------------------------------------------------------------------------------


def sealed_job(parties, **changes):
    return job_with(SHORT, parties, validation=PART, **changes)


def brought(names, y=Y):
    parts, labels = np.array_split(np.arange(WIDTH), len(names)), np.array(y, dtype=object)
    return {
        name: Whole(X[:, part], None, labels if name == names[0] else None)
        for name, part in zip(names, parts, strict=True)
    }


def run_job(job_, reports=None, budgets=None):
    given, found = brought(job_.parties), {}

    def program_of(name):
        async def program(net):
            budget = (budgets or {}).get(name)
            if budget is not None:
                net.door = PolicyDoor(name, Policy(), None, budget)
            found[name] = await take_part(net, job_, given[name], align, lambda *_: None, budget=budget)

        return program

    def observe(name, _, value):
        if reports is not None:
            reports.append((name, value))

    cn.Simulation().run({name: (program_of(name), ()) for name in job_.parties}, observe)
    return found


@pytest.mark.parametrize("loss", ["logistic", "square"])
@pytest.mark.parametrize("parties", [2, 3])
def test_every_message_is_declared(parties, loss, monkeypatch):
    job_ = sealed_job(parties, loss=loss)
    record = Record(monkeypatch)
    run_job(job_)
    leaks = leaks_of(job_)
    assert STEP in {kind for _, _, kind, _ in record.letters}
    assert not record.unaccounted(job_.setting(ROWS), leaks)
    for kind in {kind for _, _, kind, value in record.letters if kind not in NOTHING and value is not None}:
        lying = [leak for leak in leaks if kind not in leak.kinds]
        assert {found for *_, found in record.unaccounted(job_.setting(ROWS), lying)} >= {kind}


@pytest.mark.parametrize("parties", [2, 3])
def test_only_the_label_holder_is_told_the_metric(parties):
    reports = []
    run_job(sealed_job(parties), reports)
    assert [name for name, value in reports if value[0] == "held out"] == ["bank"]
    assert not [value for name, value in reports if value[0] in ("record", "also")]


@pytest.mark.parametrize("parties", [2, 3])
def test_the_label_holder_sees_one_number_about_held_out_people_and_nothing_about_others(parties, monkeypatch):
    """One combination of the others' columns is determined, and only of rows that are held out."""
    job_ = sealed_job(parties)
    record = Record(monkeypatch)
    found = run_job(job_)
    _, held_out = share_out(np.arange(ROWS), PART, job_.algorithm.seed)
    ((root, total, own),) = [(at, total, own) for at, kind, total, own in record.totals if kind == STEP]
    assert root == "bank"
    assert total.shape == (len(held_out),)
    own_width = len(np.array_split(np.arange(WIDTH), parties)[0])
    mine, theirs = X[held_out, :own_width], X[held_out, own_width:]
    assert measures.dimensions((total - own)[:, None], mine, theirs) == 1
    others = np.concatenate([found[name].state[0][:, 0] for name in job_.parties[1:]])
    np.testing.assert_allclose(total - own, theirs @ others, atol=1e-9)
    # Without that sum, nothing: there is no other message about these rows.
    assert {kind for _, _, kind, value in record.letters if getattr(value, "shape", ()) == total.shape} == {STEP}


def test_between_three_a_party_on_the_way_sees_noise(monkeypatch):
    """Parts travel under masks: no message of the sum is a part, nor a sum of some of them."""
    job_ = sealed_job(3)
    record = Record(monkeypatch)
    run_job(job_)
    letters = [(me, to, value) for me, to, kind, value in record.letters if kind == STEP]
    assert len(letters) == 2  # each of the two others adds its part
    assert "bank" not in {me for me, _, _ in letters}  # the label holder's own part never leaves it
    for _, _, value in letters:
        centred = value.view(np.int64) / 2.0**64 + 0.5
        assert scipy.stats.kstest(centred, "uniform").pvalue > 1e-6
    parts = [value for me, kind, _, value in record.parts if kind == STEP and me != "bank"]
    assert all(np.abs(part.view(np.int64)).max() < 2**45 for part in parts)  # what the masks hide is far from uniform


@pytest.mark.parametrize("parties", [2, 3])
def test_before_a_run_it_is_told(parties):
    job_ = sealed_job(parties)
    assert HELD_OUT in job_.disclosed()
    assert words_of(job_).endswith("coefficients; after it bank sees scores of held-out people, for a metric")
    told = "\n".join(lines(what_others_learn(job_, "shop", 3), sealed=True))
    sentence = "your columns: bank will see your part of the score of every held-out person, for a metric"
    assert sentence in told
    assert ("it is added to clinic's" in told) == (parties == 3)
    assert sentence not in "\n".join(lines(what_others_learn(job_, "bank", 3), sealed=True))
    without = job_with(SHORT, parties)
    assert HELD_OUT not in without.disclosed()
    assert "held-out" not in words_of(without)


# -- the budget -------------------------------------------------------------------------------------------------------


def budget_of(name, spent=0):
    notes, budget = Notes(), Budget(name, 0.5)
    notes.records += [("numbers about each person", {"numbers": 1})] * spent
    budget.keep_in(notes)
    return budget, notes


def test_the_metric_is_charged_as_a_prediction_is():
    (bank, bank_notes), (shop, shop_notes) = budget_of("bank"), budget_of("shop")
    run_job(sealed_job(2), budgets={"bank": bank, "shop": shop})
    assert (bank.charged, shop.charged) == (0.0, 1.0)
    assert [record["numbers"] for _, record in shop_notes.records] == [1]
    assert bank_notes.records == []


def test_a_budget_that_is_spent_refuses_before_training():
    (bank, _), (shop, _) = budget_of("bank"), budget_of("shop", spent=1)
    reports = []
    sentence = (
        "a metric on held-out rows after sealed training lets out 1 numbers about each person at least: the policy"
    )
    with pytest.raises((PolicyRefused, RunFailed), match=sentence):
        run_job(sealed_job(2), reports, {"bank": bank, "shop": shop})
    assert not [value for _, value in reports if value[0] == "sealed"]


def test_the_door_lets_no_held_out_score_out_that_was_not_charged():
    budget = Budget("shop", 1.0)
    budget.open(4, 10)
    door = PolicyDoor("shop", Policy(), None, budget)
    with pytest.raises(PolicyRefused, match="holds numbers about rows that its budget was not charged for"):
        door.open_for("bank", STEP, np.zeros(10, np.uint64), 80, 0, control=False)


def test_a_policy_may_leave_the_kind_out():
    policy = Policy(kinds=tuple(kind for kind in Policy().kinds if kind != STEP))
    with pytest.raises(PolicyRefused, match="does not let messages of the kind 'held-out scores' out"):
        policy.allow("shop", "bank", STEP, np.zeros(10), 0)


# -- jobs -------------------------------------------------------------------------------------------------------------

ASKED = with_word("sealed") + "[validation]\npart = 0.2\n"


def test_a_job_opens_scores_only_if_it_says_so():
    listed = complete(ASKED)
    assert f'"{HELD_OUT}"' in listed
    assert job(listed).validation == 0.2
    sentence = (
        f"key validation.part: a metric on held-out rows shows 'bank' their scores, which protection 'sealed' opens to "
        f'nobody unless the job says so; add "{HELD_OUT}" to disclosed, or remove part'
    )
    with pytest.raises(OptionError, match=re.escape(sentence)):
        job(listed.replace(f'"{HELD_OUT}"', "").replace(", ]", "]").replace(", ,", ","))
    with pytest.raises(OptionError, match=f"this job does not disclose '{HELD_OUT}'"):
        job(listed.replace("part = 0.2", "part = 0.0"))


def test_open_training_with_held_out_rows_lists_what_it_did_before():
    assert HELD_OUT not in job(complete(BARE + "[validation]\npart = 0.2\n")).disclosed()


def test_the_lines_that_init_writes_as_comments_do_what_they_say(tmp_path):
    init(tmp_path / "first", ("bank", "shop"))
    path = tmp_path / "first" / "job.toml"
    text = path.read_text()
    assert read_job(path).validation == 0.0
    path.write_text(text.replace("# [validation]", "[validation]").replace("# part = 0.2", "part = 0.2"))
    with pytest.raises(OptionError, match=f'add "{HELD_OUT}" to disclosed'):
        read_job(path)
    path.write_text(path.read_text().replace("disclosed = [\n", f'disclosed = [\n  "{HELD_OUT}",\n'))
    assert read_job(path).validation == 0.2


def test_one_command_each_with_a_metric(tmp_path, capsys):
    folder = made(tmp_path)
    path = folder / "job.toml"
    path.write_text(complete(path.read_text() + "\n[validation]\npart = 0.25\n"))
    assert main(["check", str(path), "--as", "shop"]) == 0
    shown = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "for the metric one number about each held-out person leaves, as in a prediction" in shown
    said = run_all(folder, ("bank", "shop"))
    assert re.search(r"bank: trained on \d+ common rows, \d+ held out; protection sealed\n", said["bank"])
    assert re.search(r"bank: auc 0\.\d{4}, loss 0\.\d{5} on held-out rows; nobody else is told\n", said["bank"])
    assert "auc" not in said["shop"]
    assert "bank will see your part of the score of every held-out person" in said["shop"]
    ledger = (folder / "shop-files" / "ledger.jsonl").read_text().replace(" ", "")
    assert ledger.count('"numbers":1') == 1
    # A prediction with the same model shows no other combination of the columns, and is not charged again.
    processes = [
        start(folder, "bank", "predict", "--out", str(folder / "s.csv")),
        start(folder, "shop", "serve", "--once"),
    ]
    ended = [process.communicate(timeout=LIMIT)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended
    ledger = (folder / "shop-files" / "ledger.jsonl").read_text().replace(" ", "")
    assert ledger.count('"numbers":1') == 1


def test_a_part_that_holds_nobody_out_shows_nothing():
    few = {name: Source(source.X[:60], None, None) for name, source in brought(NAMES[2]).items()}
    few["bank"].labels = np.array(Y[:60], dtype=object)
    job_, found = job_with(SHORT, 2, validation=0.001), {}

    def program_of(name):
        async def program(net):
            found[name] = await take_part(net, job_, few[name], align, lambda *_: None)

        return program

    outcomes = cn.Simulation().run({name: (program_of(name), ()) for name in job_.parties})
    assert found["bank"].held_out == 0
    assert all(STEP not in outcome.traffic.by_step for outcome in outcomes.values())
