"""The word `protection` between organisations: in job files, in a party's policy, in init, run, check and plan."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import colonnade as cn
from colonnade.cli.main import main
from colonnade.errors import OptionError, PolicyRefused, RunFailed
from colonnade.families.protection import PROTECTIONS
from colonnade.jobs import model_file, people
from colonnade.jobs.consent import check_consent, words_of
from colonnade.jobs.init import init
from colonnade.jobs.job_file import read_job
from colonnade.jobs.model_file import Trained
from colonnade.jobs.party_file import read_party
from colonnade.jobs.policy import Policy
from colonnade.jobs.words import lines, what_others_learn
from colonnade.leaks import ASKED, COLUMNS, COMMON, PREDICTED, SIZES
from colonnade.planning.candidates import candidates
from colonnade.planning.command import reason, show
from colonnade.planning.trials import LineSpeed
from colonnade.planning.untried import forecast_open, forecast_sealed, untried
from colonnade.remote.terms import RunTerms, difference
from colonnade.service import run
from colonnade.service.table_source import TableSource
from colonnade.tables import data
from ports import free_ports
from test_federation import LIMIT, run_all, start, write_tables
from test_job import GOOD, complete, job
from test_plan import breast_cancer, plan_of

BARE = GOOD[: GOOD.index("[algorithm]")]  # no algorithm, no sum


def with_word(word, text=BARE):
    return text.replace('name = "first"', f'name = "first"\nprotection = "{word}"')


SEALED = complete(with_word("sealed"))
KERNEL = BARE.replace('kind = "logistic"\nl2 = 0.01', 'kind = "kernel"\nfeatures = 64')


# -- in the job ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "family", "algorithm", "added", "word"),
    [
        (BARE, "linear", "BlockNewton", "pairwise", "masked"),
        (BARE + '[sum]\nkind = "plain"\n', "linear", "BlockNewton", "plain", "plain"),
        (BARE + '[sum]\nkind = "encrypted"\n', "linear", "FedSGD", "encrypted", "masked"),
        (BARE + '[algorithm]\nkind = "SealedNewton"\n', "sealed", "SealedNewton", "pairwise", "sealed"),
        (with_word("sealed"), "sealed", "SealedNewton", "pairwise", "sealed"),
        (
            with_word("sealed") + '[algorithm]\nkind = "SealedNewton"\nrounds = 3\n',
            "sealed", "SealedNewton", "pairwise", "sealed",
        ),
        (with_word("masked"), "linear", "BlockNewton", "pairwise", "masked"),
        (with_word("masked") + '[sum]\nkind = "two-trees"\n', "linear", "BlockNewton", "two-trees", "masked"),
        (with_word("masked") + '[sum]\nkind = "encrypted"\n', "linear", "FedSGD", "encrypted", "masked"),
        (with_word("plain"), "linear", "BlockNewton", "plain", "plain"),
        (with_word("masked", KERNEL), "kernel", "FDSKL", "pairwise", "masked"),
        (with_word("plain", KERNEL), "kernel", "FDSKL", "plain", "plain"),
    ],
)  # fmt: skip
def test_what_a_word_stands_for(text, family, algorithm, added, word):
    read = job(complete(text))
    assert (read.family, read.algorithm.name, read.sum, read.protection) == (family, algorithm, added, word)
    assert read.agreed["protection"] == word


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (with_word("secret"), "key protection: must be one of 'sealed', 'masked', 'plain', got 'secret'"),
        (BARE.replace("version = 1", "version = 1\nprotection = true"), "key protection: must be text in quotes, got"),
        (BARE + '[sum]\nprotection = "sealed"\n', "key sum.protection: unknown key here; it belongs under no table"),
        (
            with_word("sealed") + '[algorithm]\nkind = "FedSGD"\n',
            "key algorithm.kind: protection 'sealed' trains with SealedNewton, got 'FedSGD'; remove it, or set another",
        ),
        (
            with_word("masked") + '[algorithm]\nkind = "SealedNewton"\n',
            "key algorithm.kind: SealedNewton is sealed training, and the job has protection 'masked'; remove one",
        ),
        (
            with_word("sealed") + "[algorithm]\nepochs = 100\n",
            "key algorithm.epochs: SealedNewton takes no epochs, got 100, as its rounds are fixed",
        ),
        (
            with_word("sealed") + '[sum]\nkind = "pairwise"\n',
            "key sum.kind: has no effect with protection 'sealed', which adds up shares; remove it, or set another",
        ),
        (with_word("sealed") + '[sum]\ntopology = "ring"\n', "key sum.topology: has no effect with protection"),
        (
            with_word("sealed") + "[run]\nstatistics = true\n",
            'key run.statistics: they would show what sealed training hides; remove it, or set protection = "masked"',
        ),
        (
            with_word("sealed").replace("[parties.shop]", "[parties.shop]\nlabels = true"),
            "line 3, key protection: sealed training has one label holder, the job has 2; set another protection",
        ),
        (
            with_word("plain") + '[sum]\nkind = "pairwise"\n',
            "key sum.kind: protection 'plain' adds up in the clear, got 'pairwise'; remove it, or set protection = ",
        ),
        (
            with_word("masked") + '[sum]\nkind = "plain"\n',
            "key sum.kind: protection 'masked' adds up under masks, got 'plain'; remove it, or set protection = ",
        ),
        (
            with_word("sealed", KERNEL),
            "line 3, key protection: 'sealed' is for linear models; a kernel model has 'masked', in which label",
        ),
        (
            with_word("sealed", BARE.replace('"logistic"', '"network"')),
            "key protection: 'sealed' is for linear models; networks have 'masked', in which label holders see",
        ),
    ],
)
def test_wrong_words_are_one_sentence(text, sentence):
    with pytest.raises(OptionError, match=sentence) as caught:
        job(text)
    assert "\n" not in str(caught.value)


def test_default_values_beside_sealed_are_no_mistake():
    text = with_word("sealed") + '[sum]\nkind = "auto"\ntopology = "tree"\n'
    assert job(complete(text)).protection == "sealed"


def test_all_parties_must_have_the_same_word():
    terms = {word: RunTerms.of(("bank", "shop"), job(complete(with_word(word))).agreed) for word in ("masked", "plain")}
    one, other = (dict(found.entries) for found in terms.values())
    keys = [key for key in one if one[key] != other.get(key)]
    assert "protection" in keys
    same = job(complete(with_word("masked"))), job(complete(BARE))
    assert len({RunTerms.of(("bank", "shop"), each.agreed).digest for each in same}) == 1  # said, or left out
    sealed = dict(RunTerms.of(("bank", "shop"), job(SEALED).agreed).entries)
    assert difference(one, sealed) == ("protection", '"masked"', '"sealed"')  # and not the lists that follow from it


def test_a_sealed_job_lists_what_alignment_and_predictions_show():
    read = job(SEALED)
    assert {COMMON, SIZES, COLUMNS, ASKED, PREDICTED} == set(read.disclosed())
    assert replace(read, aligned=True).disclosed() == tuple(one for one in read.disclosed() if one != COMMON)


# -- in plain words -----------------------------------------------------------------------------------------------


def test_before_a_sealed_run_the_truth_is_told():
    read = job(SEALED)
    told = lines(what_others_learn(read, "shop", 6, rows=100, directions_at_most=3), sealed=True)
    assert told == [
        "what the others could work out about you, beside the model:",
        "  training: nothing; nobody learns anything from it but its own coefficients",
        "  your columns: bank will learn how many columns you have",
        "  your columns: bank, asking for predictions, will see your part of the score of everybody whom they name",
        "  your labels: nothing",
        "  your people: bank will learn which of their own people you have too",
        "  your people: bank will learn how many people you have, exactly or roughly",
        "  your people: bank, asking for predictions, will learn of everybody whom they name whether you serve them, "
        "by default the people in common alone",
    ]
    assert "  your labels: nothing" in lines(what_others_learn(read, "bank", 6))
    three = replace(read, addresses={"bank": "-", "clinic": "-", "shop": "-"})
    told = what_others_learn(three, "shop")["your columns"]
    assert any(one.endswith("of everybody whom they name, added to clinic's") for one in told)


def test_every_word_is_explained():
    found = {word: words_of(job(complete(with_word(word)))) for word in PROTECTIONS}
    assert found["sealed"] == "sealed: nobody learns anything from training but its own coefficients"
    assert found["masked"].startswith("masked: training is in the open, and sums are masked; between two parties masks")
    assert found["plain"] == "plain: training is in the open, and sums are in the clear"
    three = replace(job(complete(BARE)), addresses={"bank": "-", "clinic": "-", "shop": "-"})
    assert words_of(three) == "masked: training is in the open, and sums are masked"


# -- in a party's policy ------------------------------------------------------------------------------------------


def test_by_default_a_party_agrees_to_sealed_training_alone():
    assert Policy().protection == ("sealed",)
    check_consent(Policy(), "shop", job(SEALED))
    with pytest.raises(PolicyRefused) as caught:
        check_consent(Policy(), "bank", job(complete(BARE)))
    assert str(caught.value) == (
        "the job asks for protection 'masked', which shows its partners \"signals, which show the labels\" and "
        "\"directions of columns, more with every round\", and the policy of 'bank' agrees to 'sealed' alone; set "
        'protection = "sealed" in the job, or, if they may see that, add protection = ["sealed", "masked"] under '
        "[policy] in its file"
    )


@pytest.mark.parametrize(
    ("text", "agreed", "me", "sentence"),
    [
        (BARE, ("sealed",), "shop", "asks for protection 'masked', which shows its partners \"directions of columns, "),
        (with_word("plain"), ("sealed", "masked"), "shop", 'add protection = ["sealed", "masked", "plain"] under'),
        (with_word("sealed"), ("masked",), "shop", "asks for protection 'sealed', which shows nobody anything but its"),
        (
            KERNEL,
            ("sealed",),
            "shop",
            "which shows its partners \"distances between rows, to label holders\", and the policy of 'shop' agrees to "
            "'sealed' alone; if they may see that, add protection",
        ),
        (KERNEL, ("sealed",), "bank", "which shows its partners none of its labels or columns, but more than sealed"),
    ],
)
def test_another_protection_is_refused_in_one_sentence(text, agreed, me, sentence):
    with pytest.raises(PolicyRefused, match=re.escape(sentence)):
        check_consent(Policy(protection=agreed), me, job(complete(text)))
    check_consent(Policy(protection=PROTECTIONS), me, job(complete(text)))


def test_consent_to_plain_training_is_consent_to_plain_sums():
    Policy(protection=("plain",)).check_company("shop", ("bank", "shop"), "plain")
    Policy(plain=True).check_company("shop", ("bank", "shop"), "plain")
    with pytest.raises(PolicyRefused, match=r'use .pairwise., or add "plain" to protection in \[policy\]'):
        Policy(protection=("sealed", "masked")).check_company("shop", ("bank", "shop"), "plain")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ('["open"]', r"key policy.protection\[0\]: must be one of 'sealed', 'masked', 'plain', got 'open'"),
        ('"masked"', r"key policy.protection: must be a list of at least 1 of \(text in quotes\), got 'masked'"),
        ("[]", r"key policy.protection: must be a list of at least 1 of \(text in quotes\), got \[\]"),
    ],
)
def test_wrong_words_of_a_policy(tmp_path, given, sentence):
    folder = made(tmp_path)
    path = folder / "shop.toml"
    path.write_text(path.read_text().replace('protection = ["sealed"]', f"protection = {given}"))
    with pytest.raises(OptionError, match=sentence):
        read_party(path, read_job(folder / "job.toml"))


def made(tmp_path, names=("bank", "shop"), **options):
    """What `colonnade init` writes, with ports that are free, and tables."""
    folder = tmp_path / "first"
    init(folder, names, **options)
    path = folder / "job.toml"
    text = path.read_text()
    for number, port in enumerate(free_ports(len(names))):
        text = text.replace(f"127.0.0.1:{7443 + number}", f"127.0.0.1:{port}")
    path.write_text(text.replace("grace = 10 ", "grace = 2 "))
    write_tables(folder, names)
    return folder


@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_party_refuses_before_anything_is_sent(tmp_path, command, capsys):
    folder = made(tmp_path, protection="masked")
    path = folder / "shop.toml"
    path.write_text(path.read_text().replace('protection = ["sealed", "masked"]', 'protection = ["sealed"]'))
    (folder / "shop.csv").unlink()  # it is not even read
    capsys.readouterr()
    assert main([command, str(folder / "job.toml"), "--as", "shop"]) == 1
    said = capsys.readouterr()
    assert "colonnade: the job asks for protection 'masked', which shows its partners" in said.err
    assert "waiting" not in said.out
    assert not (folder / "shop-files").exists()


def test_check_shows_the_word(tmp_path, capsys):
    folder = made(tmp_path)
    capsys.readouterr()
    assert main(["check", str(folder / "job.toml"), "--as", "shop"]) == 0
    said = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "job ok 2 parties, SealedNewton protection sealed: nobody learns anything from training but" in said
    assert "policy ok allows this job" in said
    assert "training is sealed, and no number about a person leaves in it" in said
    assert "your labels nothing" in said


def test_run_says_the_word_before_anything_is_sent(tmp_path, monkeypatch):
    folder, said = made(tmp_path), []

    def attend(job_, party, program, read, **_):
        read()
        raise RunFailed("nobody came", "bank", "joining")

    monkeypatch.setattr(run, "attend", attend)
    read = read_job(folder / "job.toml")
    with pytest.raises(RunFailed):
        run.run_job(read, read_party(folder / "shop.toml", read), verbose=0, tell=said.append)
    assert said[0] == "protection sealed: nobody learns anything from training but its own coefficients"
    assert said[3] == "  training: nothing; nobody learns anything from it but its own coefficients"


# -- init ---------------------------------------------------------------------------------------------------------

LINEAR, OTHERS = ("logistic", "ridge", "poisson", "svm", "softmax"), ("kernel", "kernel-ridge", "network")


@pytest.mark.parametrize("kind", [*LINEAR, *OTHERS])
def test_init_writes_the_best_protection_that_a_model_has(tmp_path, kind):
    folder = tmp_path / "first"
    init(folder, ("bank", "shop"), model=kind)
    read = read_job(folder / "job.toml")  # with a list that is complete
    try:
        job(complete(with_word("sealed", BARE.replace('"logistic"', f'"{kind}"'))))
        expected = "sealed"
    except OptionError:
        expected = "masked"
    assert read.protection == expected
    assert f'protection = "{expected}"' in (folder / "job.toml").read_text()
    for name in read.parties:
        party = read_party(folder / f"{name}.toml", read)
        assert party.policy.protection == (("sealed",) if expected == "sealed" else ("sealed", "masked"))
        check_consent(party.policy, name, read)
        comment = "so that nobody learns anything" if expected == "sealed" else '"masked" is consent to training in the'
        assert comment in (folder / f"{name}.toml").read_text()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], 'protection = "sealed"\n'),
        (["--protection", "masked"], 'protection = "masked"\n'),
        (
            ["--model", "kernel"],
            "protection = \"masked\", training in the open: 'sealed' is for linear models; a kernel",
        ),
        (["--model", "svm"], 'protection = "sealed"\n'),
        (["--labels", "bank,shop"], 'protection = "masked", training in the open: '),
    ],
)
def test_init_says_which_protection_it_wrote_and_why_no_better_one(tmp_path, capsys, options, sentence):
    assert main(["init", str(tmp_path / "first"), "--parties", "bank,shop", *options]) == 0
    assert sentence in capsys.readouterr().out


@pytest.mark.parametrize(("kind", "word"), [("logistic", "masked"), ("logistic", "plain"), ("kernel", "plain")])
def test_init_writes_what_it_is_asked_for(tmp_path, kind, word):
    folder = tmp_path / "first"
    init(folder, ("bank", "clinic", "shop"), ("bank",), kind, word)
    read = read_job(folder / "job.toml")
    assert read.protection == word
    for name in read.parties:
        policy = read_party(folder / f"{name}.toml", read).policy
        check_consent(policy, name, read)
        policy.check_company(name, read.parties, read.sum)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--protection", "secret"], "protection must be one of 'sealed', 'masked', 'plain', got 'secret'"),
        (["--model", "kernel", "--protection", "sealed"], "protection='sealed' is for linear models; a kernel model"),
        (["--model", "forest"], "kind must be one of 'logistic', 'softmax', .*, got 'forest'"),
    ],
)
def test_init_refuses_in_one_sentence(tmp_path, capsys, options, sentence):
    assert main(["init", str(tmp_path / "first"), "--parties", "bank,shop", *options]) == 1
    assert re.search(sentence, capsys.readouterr().err)
    assert not (tmp_path / "first").exists()


# -- a sealed model in use, made by hand --------------------------------------------------------------------------


def given_a_model(folder, names):
    """Write each party's part of a sealed model, as a run would leave it, and return its coefficients."""
    read, states = read_job(folder / "job.toml"), {}
    assert read.family == "sealed"
    for turn, name in enumerate(names):
        party = read_party(folder / f"{name}.toml", read)
        source = TableSource(data.load(party.data), party.prepare)
        everybody = np.arange(source.rows)
        prepared = source.prepare(everybody)
        theta = np.random.default_rng(turn).standard_normal((len(prepared.columns), 1))
        states[name] = (theta, np.array([0.25]) if name == read.holders[0] else None)
        classes = np.array(["bad", "good"]) if name in read.holders else np.empty(0)
        trained = Trained(states[name], classes, prepared, 300, 0, best=False, people=everybody)
        party.folder.mkdir(mode=0o700)
        model_file.save(party.folder, read, name, trained, source.learned)
        people.remember(party, party.folder, source.ids, trained.people)
    return read, states


@pytest.mark.parametrize("names", [("bank", "shop"), ("bank", "clinic", "shop")])
def test_a_sealed_model_is_served_as_a_linear_one(tmp_path, names, capsys):
    folder = made(tmp_path, names)
    read, states = given_a_model(folder, names)
    processes = [start(folder, name, "serve", "--once") for name in names[1:]]
    scores = folder / "scores.csv"
    asker = start(folder, "bank", "predict", "--out", str(scores))
    said = [process.communicate(timeout=LIMIT)[0] for process in (asker, *processes)]
    assert [process.returncode for process in (asker, *processes)] == [0] * len(names), said
    found = dict(line.split(",")[0::4] for line in scores.read_text().splitlines()[1:] if ",true," in line)
    totals = {}
    for name in names:
        party = read_party(folder / f"{name}.toml", read)
        table = data.load(party.data, labels=False)
        part = model_file.load(party.folder, name)
        theta, intercept = states[name]
        own = part.prepared.apply(table.take(np.arange(table.rows))) @ theta[:, 0]
        for one, score in zip(table.ids.tolist(), own + (0.0 if intercept is None else intercept[0]), strict=True):
            totals.setdefault(str(one), []).append(score)
    known = {one: sum(parts) for one, parts in totals.items() if len(parts) == len(names)}
    assert set(found) == set(known)
    for one, chance in found.items():
        assert float(chance) == pytest.approx(1 / (1 + np.exp(-known[one])), abs=1e-6)
    capsys.readouterr()
    assert main(["model", "show", str(folder / "job.toml"), "--as", "bank"]) == 0
    shown = capsys.readouterr().out
    assert "LogisticRegression of" in shown
    assert "(intercept)" in shown


@pytest.mark.parametrize("names", [("bank", "shop"), ("bank", "clinic", "shop")])
def test_from_init_to_scores_with_nothing_but_defaults(tmp_path, names):
    """As a user would: no file is edited but for the ports."""
    folder = made(tmp_path, names)
    said = run_all(folder, names)
    assert "training: nothing; nobody learns anything from it but its own coefficients" in said["shop"]
    assert re.search(r"bank: trained on \d+ common rows; protection sealed\n", said["bank"])
    assert "loss" not in said["bank"]
    parts = {name: model_file.load(folder / f"{name}-files", name) for name in names}
    assert {part.public["family"] for part in parts.values()} == {"sealed"}
    assert [name for name, part in parts.items() if part.state[1] is not None] == ["bank"]
    processes = [start(folder, name, "serve", "--once") for name in names[1:]]
    asker = start(folder, "bank", "predict", "--out", str(folder / "scores.csv"))
    ended = [process.communicate(timeout=LIMIT)[0] for process in (asker, *processes)]
    assert [process.returncode for process in (asker, *processes)] == [0] * len(names), ended
    for name in names:
        assert main(["ledger", "verify", str(folder / "job.toml"), "--as", name]) == 0


def test_a_job_s_sealed_model_is_loaded_as_an_estimator(tmp_path):
    folder = made(tmp_path)
    _, states = given_a_model(folder, ("bank", "shop"))
    for name in ("bank", "shop"):
        path = folder / f"{name}-files" / f"{name}.colonnade.npz"
        path.rename(folder / path.name)
    model = cn.load(folder)
    assert (model.protection, model.protection_, model.sum, model.sum_) == ("sealed", "sealed", "auto", "pairwise")
    assert model.coef_["shop"].tobytes() == states["shop"][0][:, 0].tobytes()
    assert model.intercept_ == 0.25


def test_the_first_use_of_a_sealed_model_is_charged(tmp_path):
    """Its training let nothing out, so that what its scores show is counted when it is used."""
    folder = made(tmp_path)
    given_a_model(folder, ("bank", "shop"))
    path = folder / "shop.toml"
    path.write_text(path.read_text().replace("max_directions = 0.5", "max_directions = 1.0"))
    processes = [
        start(folder, "bank", "predict", "--out", str(folder / "s.csv")),
        start(folder, "shop", "serve", "--once"),
    ]
    said = [process.communicate(timeout=LIMIT)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert '"numbers":1' in (folder / "shop-files" / "ledger.jsonl").read_text().replace(" ", "")


# -- plans --------------------------------------------------------------------------------------------------------

ALIGNED = '\n[alignment]\nkind = "none"\n'


def test_a_plan_of_a_sealed_job_shows_both_and_tries_nothing(capsys):
    read = job(complete(with_word("sealed") + ALIGNED))
    assert candidates(read) == []
    plans, outcomes = plan_of(read, breast_cancer(read.parties), cn.Simulation(latency=0.02))
    plan = plans["bank"]
    assert [(one.name, one.protection, one.own, one.tried) for one in plan.forecasts] == [
        ("SealedNewton", "sealed", True, 0),
        ("BlockNewton", "masked", False, 0),
    ]
    assert plan.best.own
    assert reason(plan) == "SealedNewton: no other algorithm trains this model and discloses no more than the job does"
    assert all(replace(one, lines={}, before=0.0) == replace(plan, lines={}, before=0.0) for one in plans.values())
    kinds = {kind for outcome in outcomes.values() for kind in outcome.traffic.by_step}
    assert kinds <= {"rows", "classes", "ping", "load", "plan", "goodbye"}  # nothing about anybody's columns
    show(plan, "bank", "first")
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "not tried" in text
    assert "a plan of a sealed job tries nothing, as that would show more than the job does" in text


def test_a_plan_of_an_open_job_shows_sealed_training_too(capsys):
    read = job(complete(BARE + ALIGNED))
    plan = plan_of(read, breast_cancer(read.parties), seconds=2.0)[0]["bank"]
    *tried, sealed = plan.forecasts
    assert {one.protection for one in tried} == {"masked"}
    assert (sealed.name, sealed.protection, sealed.own, sealed.tried) == ("SealedNewton", "sealed", False, 0)
    assert sealed.seconds.likely > plan.before
    assert set(sealed.sent) == {"bank", "shop"}
    assert plan.best in tried
    show(plan, "bank", "first")
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "SealedNewton, sealed, was not tried: sealed training has no short trial" in text


def test_no_sealed_training_is_shown_of_a_model_that_it_does_not_train():
    read = job(complete(BARE + '[algorithm]\nkind = "FDML"\nepochs = 2\n' + ALIGNED))
    plan = plan_of(read, breast_cancer(read.parties), seconds=1.0)[0]["bank"]
    assert [one.name for one in plan.forecasts] == ["FDML"]


def test_what_is_not_tried_takes_longer_with_more_rows_more_columns_and_slower_lines():
    few, many = {"bank": 5, "shop": 5}, {"bank": 50, "shop": 50}
    slow = LineSpeed(0.1, 1e5)
    for foretell in (forecast_sealed, lambda *args, **more: forecast_open(*args, "bank", **more)):
        seconds, sent = foretell(1000, few)
        assert seconds > 0
        assert min(sent.values()) > 0
        for other in (foretell(10_000, few), foretell(1000, many), foretell(1000, few, line=slow)):
            assert other[0] > seconds
        assert sum(foretell(10_000, few)[1].values()) > sum(sent.values())


@pytest.mark.parametrize("kind", [cn.LogisticRegression, cn.RidgeRegression])
def test_what_is_foretold_of_sealed_training_is_of_its_size(kind):
    """Within a factor of three: what it is set beside takes a hundredth."""
    text = complete(
        with_word("sealed", BARE.replace('"logistic"', '"ridge"' if kind is cn.RidgeRegression else '"logistic"'))
    )
    read, columns = job(text), {"bank": 6, "shop": 4}
    X = np.random.default_rng(1).standard_normal((600, 10))
    y = X[:, 0] if kind is cn.RidgeRegression else (X[:, 0] > 0).astype(int)
    model = kind(protection="sealed", verbose=0).fit(cn.Party("bank", X[:, :6], y), cn.Party("shop", X[:, 6:]))
    sealed, _ = untried(read, 600, columns, 1, LineSpeed(0.0, 1e9))
    assert sealed.rounds.likely == model.rounds_
    for name, told in sealed.sent.items():
        assert told / 3 < model.traffic_[name].bytes < 3 * told


def test_one_command_each_plans_a_sealed_job(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # of the terminal: no cell is broken into lines
    folder = made(tmp_path)
    processes = {name: start(folder, name, "plan", "--quiet") for name in ("bank", "shop")}
    said = {name: process.communicate(timeout=LIMIT)[0] for name, process in processes.items()}
    assert {process.returncode for process in processes.values()} == {0}, said
    for text in said.values():
        assert "SealedNewton (the job's)" in text
        assert "BlockNewton, masked" in text
