"""Transfer learning between organisations: a job trains what the estimator does, and the target predicts by itself."""

# ruff: noqa: E402
from __future__ import annotations

import csv
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")

import colonnade as cn
from colonnade.cli.main import main
from colonnade.errors import LabelError, OptionError, PolicyRefused, ProtocolError, RunFailed
from colonnade.families.training import train
from colonnade.families.transfer import TransferOptions
from colonnade.jobs import model_file
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.leaks import CLASSES, COVARIANCES, GRADIENTS, HELD_OUT, REPRESENTATIONS, SIGNALS
from colonnade.service.agreeing import share_out
from colonnade.service.check import check
from colonnade.service.training import Keepers
from test_federation import federation, run_all
from test_job import GOOD, complete
from test_job_training import ORDER, THIRD, Source, job_for, sources
from test_kept import Shelf
from test_network_jobs import run

MODEL = '[model]\nkind = "transfer"\nl2 = 0.01\ngamma = 0.1\n'
TRAINING = '[algorithm]\nkind = "FedBCD"\nlocal_steps = 3\nstep = 0.3\nschedule = "constant"\nepochs = 4\n'


def transferred(text, protection="plain"):
    a, b = text.index("[model]"), text.index("[algorithm]")
    text = text[:a] + MODEL + "\n" + TRAINING + text[b:].partition("\n\n")[2]
    return text.replace("version = 1\n", f'version = 1\nprotection = "{protection}"\n', 1)


def maker(folder, name, inputs, width=3, hidden=4):
    path = folder / f"{name}_network.py"
    body = f"nn.Sequential(nn.Linear({inputs}, {hidden}), nn.Tanh(), nn.Linear({hidden}, {width})).double()"
    path.write_text(f"from torch import nn\n\n\ndef make():\n    return {body}\n")
    return f"{path}:make"


TWO = {name: ORDER[name] for name in ("bank", "shop")}


def networks(folder, width=3):
    return {name: (("named", maker(folder, name, 2, width)), None, None, "sgd") for name in TWO}


def pair():
    return {name: source for name, source in sources(ORDER).items() if name in TWO}


def test_a_job_of_transfer_learning_is_the_estimator(tmp_path):
    made, job = networks(tmp_path), job_for(transferred(GOOD), validation=0.2)
    job = replace(job, algorithm=replace(job.algorithm, batch=169))  # all of them, as the order of rows is another one
    results, _ = run(job, pair(), made)
    given = {n: cn.Party(n, s.X, s.labels, ids=s.ids) for n, s in pair().items()}
    aligned = cn.align_parties(*given.values(), verbose=0)
    _, held_out = share_out(np.arange(aligned[0].rows), 0.2, job.algorithm.seed)
    apart = [party.take(held_out) for party in aligned]
    left = {n: party.take(np.flatnonzero(~np.isin(party.ids, apart[0].ids))) for n, party in given.items()}
    model = cn.TransferClassifier(
        {name: how[1] for name, (how, *_) in made.items()}, gamma=0.1, l2=0.01, algorithm=job.algorithm, verbose=0
    ).fit(*left.values(), validation=apart)
    for name, result in results.items():
        assert result.state[0] == model._states[name][0]
        for one, other in zip(result.state[1], model._states[name][1], strict=True):
            assert np.abs(one - other).max() < 1e-10
        assert result.classes.tolist() == ["no", "yes"]  # the target predicts, so it is told


def test_a_person_is_one_row_of_transfer_learning():
    with pytest.raises(
        OptionError, match="'expand' does not go with transfer learning, whose sums over rows hide a pers"
    ):
        job_for(transferred(GOOD) + '\n[alignment]\nduplicates = "expand"\n')


def test_what_a_job_of_transfer_learning_says():
    read = job_for(transferred(GOOD))
    assert (read.family, read.loss, read.protection) == ("transfer", "logistic", "plain")
    assert read.model == TransferOptions(l2=0.01, gamma=0.1)
    assert {REPRESENTATIONS, SIGNALS, CLASSES} <= set(read.disclosed())
    for key, said in (
        ("gamma = -1", "key model.gamma: must be >= 0"),
        ("anchors = 1", "anchors must be 0, for all labelled rows, or at least 64, got 1"),
        ('alignment = "cosine"', "key model.alignment: must be one of"),
        ('exchange = "all"', "key model.exchange: must be one of"),
        ("features = 3", "key model.features: has no meaning for kind 'transfer'"),
    ):
        with pytest.raises(OptionError, match=said):
            job_for(transferred(GOOD).replace("gamma = 0.1", key))
    with pytest.raises(OptionError, match="transfer is between two parties, a source with labels and a target without"):
        job_for(transferred(THIRD))


def test_a_step_that_nobody_can_choose_and_widths_that_differ(tmp_path):
    made = networks(tmp_path)
    with pytest.raises(OptionError, match="step must be a number for transfer learning, party 'bank' has optimizer"):
        run(job_for(transferred(GOOD).replace("step = 0.3\n", "")), pair(), made)
    wrong = made | {"shop": (("named", maker(tmp_path, "wrong", 2, 2)), None, None, "sgd")}
    with pytest.raises(ProtocolError, match=r"shop sent .*, expected is an array of float64 with shape \(211, 3\)"):
        run(job_for(transferred(GOOD)), pair(), wrong)


def people(count=520, seed=3):
    """Two tables of the same people, as many as encrypted sums need, of whom the bank has labelled all."""
    rng = np.random.default_rng(seed)
    hidden = rng.standard_normal((count, 2))
    labels = np.where(hidden[:, 0] > 0, "yes", "no").astype(object)
    ids = [f"p{k}" for k in range(count)]
    return {
        "bank": Source(hidden[:500] @ [[1, 1], [0, 2]], ids[:500], labels[:500]),
        "shop": Source(hidden[10:], ids[10:]),
    }


def test_a_masked_job_trains_last_layers_on_encrypted_sums(tmp_path):
    made, given = networks(tmp_path), people()
    job = job_for(transferred(GOOD, "masked"), validation=0.2)
    assert (job.protection, job.sum) == ("masked", "encrypted")
    shown = set(job.disclosed())
    assert {GRADIENTS, COVARIANCES, HELD_OUT} <= shown
    assert shown.isdisjoint({REPRESENTATIONS, SIGNALS})
    results, _ = run(job, given, made)
    parties = {n: cn.Party(n, s.X, s.labels, ids=s.ids) for n, s in given.items()}
    aligned = cn.align_parties(*parties.values(), verbose=0)
    _, held_out = share_out(np.arange(490), 0.2, job.algorithm.seed)
    apart = [party.take(held_out) for party in aligned]
    left = {n: party.take(np.flatnonzero(~np.isin(party.ids, apart[0].ids))) for n, party in parties.items()}
    model = cn.TransferClassifier(
        {name: how[1] for name, (how, *_) in made.items()}, gamma=0.1, l2=0.01, algorithm=job.algorithm, verbose=0,
        protection="masked",
    ).fit(*left.values(), validation=apart)  # fmt: skip
    for name, result in results.items():
        for one, other in zip(result.state[1], model._states[name][1], strict=True):
            assert np.abs(one - other).max() < 1e-8
    with pytest.raises(OptionError, match="key protection: 'sealed' is for linear models; transfer learning has"):
        job_for(transferred(GOOD, "sealed"))


class Counted:
    """A party's limit, of which `left` numbers about each row are left."""

    def __init__(self, left):
        self.left = left

    def check(self, least, what):
        if least > self.left:
            raise PolicyRefused(f"{what} needs {least:.3f}")

    def charge(self, numbers):
        self.check(numbers, "a charge")
        self.left -= numbers


@pytest.mark.parametrize("poor", [None, "bank", "shop"])
def test_masked_runs_are_counted_in_each_partys_budget(poor):
    """A run shows sums of w_A' w_B pairs of numbers over n rows; both parties count them, before any is made."""
    torch = pytest.importorskip("torch")
    given = people()
    parties = {n: cn.Party(n, s.X, s.labels, ids=s.ids) for n, s in given.items()}
    budgets = {name: Counted(0.0 if name == poor else 3.0) for name in TWO}
    model = cn.TransferClassifier(
        {name: torch.nn.Linear(2, 3) for name in TWO}, protection="masked", verbose=0,
        algorithm=cn.FedSGD(step=0.1, epochs=2, tol=None),
    )  # fmt: skip

    class Organisations(cn.Simulation):
        def run(self, programs, observer=None, *more):
            return super().run({n: (counted, given) for n, (_, given) in programs.items()}, observer, *more)

    async def counted(net, job, part):
        return await train(net, job, part, None, budgets[net.me])

    if poor is not None:
        with pytest.raises(PolicyRefused, match="masked transfer learning needs 0"):
            model.fit(*parties.values(), on=Organisations())
        return
    model.fit(*parties.values(), on=Organisations())
    # Of 490 common rows: the bank has two features, a bias and its labels, the shop two and a bias.
    assert 3.0 - budgets["bank"].left == pytest.approx(4 * 3 / 490)
    assert 3.0 - budgets["shop"].left == pytest.approx((4 * 3 + 6) / 490)


def test_three_classes_are_refused_in_words_of_transfer_learning():
    torch = pytest.importorskip("torch")
    y = np.arange(500) % 3
    parties = [cn.Party(n, s.X, y if n == "bank" else None, ids=s.ids) for n, s in people().items()]
    networks = {name: torch.nn.Linear(2, 3) for name in TWO}
    model = cn.TransferClassifier(networks, algorithm=cn.FedSGD(step=0.1), verbose=0)
    with pytest.raises(LabelError, match=r"two classes apart, and the labels hold 3 \(0, 1, 2\); label one of them"):
        model.fit(*parties)


@pytest.mark.parametrize("protection", ["plain", "masked"])
def test_a_job_that_broke_off_goes_on_to_the_same_bits(protection, tmp_path):
    made, job = networks(tmp_path), job_for(transferred(GOOD, protection))
    whole, seconds = run(job, people(), made)
    keepers = {name: Keepers(Shelf(), partial(lambda shelf, _: shelf, Shelf())) for name in TWO}
    crash = cn.Simulation(faults=cn.Faults(crashes={"shop": 0.8 * seconds}), deadline=5)
    with pytest.raises(RunFailed):
        run(job, people(), made, crash, keepers)
    assert any(keeper.state(b"").versions() for keeper in keepers.values())
    again, _ = run(job, people(), made, keepers=keepers)
    for name in TWO:
        assert all(np.array_equal(a, b) for a, b in zip(whole[name].state[1], again[name].state[1], strict=True))


def test_init_writes_a_job_of_transfer_learning(tmp_path, capsys):
    assert main(["init", str(tmp_path / "new"), "--parties", "bank,shop", "--model", "transfer"]) == 0
    assert 'protection = "masked"' in capsys.readouterr().out
    job = read_job(tmp_path / "new" / "job.toml")
    assert (job.family, job.protection, job.algorithm.name) == ("transfer", "masked", "FedSGD")
    assert read_party(tmp_path / "new" / "shop.toml", job).network[0][1].endswith("shop_network.py:make")
    written = (tmp_path / "new" / "job.toml").read_text()
    assert "sums over all rows in common, made of encrypted numbers" in written
    assert "two-trees" not in written
    assert "topology" not in written
    assert 'optimizer = "adam"' in (tmp_path / "new" / "shop.toml").read_text()  # its steps need no size from the job


@pytest.fixture(params=["plain", "masked"])
def folder(tmp_path, request):
    protection, hidden = request.param, 4 if request.param == "plain" else 2  # as few as 300 people in common can hide
    made = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"')
    text = (made / "job.toml").read_text().replace('protection = "masked"\n', "")
    (made / "job.toml").write_text(complete(transferred(text, protection)))
    for name, inputs in (("bank", 5), ("shop", 2)):
        maker(made, name, inputs, hidden=hidden)
        given = (made / f"{name}.toml").read_text().replace('"masked"', f'"{protection}"')
        (made / f"{name}.toml").write_text(given + f'\n[network]\nbuild = "{name}_network.py:make"\n')
    return made


def test_from_training_to_the_target_s_own_scores(folder, tmp_path, capsys):
    job = read_job(folder / "job.toml")
    found = {one.what: one for one in check(job, read_party(folder / "shop.toml", job))}
    size = 27 if job.protection == "plain" else 15
    assert (found["transfer"].ok, found["transfer"].text) == (True, f"{size} parameters, 3 numbers per row, sgd")
    assert "people whom the source has labelled" in found["protection"].text
    assert "between two parties masks hide nothing" not in found["protection"].text
    if job.protection == "masked":
        for name in ("bank", "shop"):
            found = {one.what: one.text for one in check(job, read_party(folder / f"{name}.toml", job))}
            assert "every run counts as one number about each person" in found["budget"]
            assert found["batches"].startswith("one, of all rows in common")
    run_all(folder, ("bank", "shop"))
    part = model_file.load(folder / "shop-files", "shop")
    assert part.public["model"] == "TransferClassifier"
    assert part.classes.tolist() == ["bad", "good"]
    capsys.readouterr()
    assert main(["model", "show", str(folder / "job.toml"), "--as", "shop"]) == 0
    assert ("4 x 2" if job.protection == "plain" else "2 x 2") in capsys.readouterr().out
    assert main(["predict", str(folder / "job.toml"), "--as", "shop", "--out", str(tmp_path / "scores.csv")]) == 0
    with (tmp_path / "scores.csv").open() as file:
        scores = list(csv.DictReader(file))
    assert len(scores) == 340  # all of the shop's people, whom the bank need not know
    assert len({row["p(good)"] for row in scores}) > 300
