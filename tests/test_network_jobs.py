"""Networks between organisations: each names its own in its own file, and the job is what the estimator trains."""

# ruff: noqa: E402
from __future__ import annotations

import csv
import shutil
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")

import colonnade as cn
from colonnade.cli.main import main
from colonnade.errors import DataError, OptionError, RunFailed
from colonnade.families.torch_networks import TorchOptions
from colonnade.jobs import model_file
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.service.agreeing import share_out
from colonnade.service.check import check
from colonnade.service.training import Keepers, take_part
from test_federation import LIMIT, federation, run_all, shelved, start
from test_job import GOOD, complete
from test_job_training import ORDER, THIRD, align, job_for, sources
from test_kept import Shelf

MODEL = '[model]\nkind = "network"\nl2 = 0.01\n'
OF_NETWORKS = THIRD[: THIRD.index("[model]")] + MODEL + THIRD[THIRD.index("[algorithm]") :]


def maker(tmp_path, name, inputs):
    path = tmp_path / f"{name}_network.py"
    path.write_text(
        "from torch import nn\n\n\ndef build():\n"
        f"    return nn.Sequential(nn.Linear({inputs}, 4), nn.Tanh(), nn.Dropout(0.1), nn.Linear(4, 1)).double()\n"
    )
    return f"{path}:build"


def networks(tmp_path):
    return {name: (("named", maker(tmp_path, name, 2)), None, None, "sgd") for name in ORDER}


def run(job, given, made, on=None, keepers=None):
    results = {}

    def program_of(name):
        async def program(net):
            keeper = (keepers or {}).get(name)
            own = made[name]
            results[name] = await take_part(net, job, given[name], align, lambda *_: None, keeper, lambda _: own)

        return program

    outcomes = (on or cn.Simulation()).run({name: (program_of(name), ()) for name in job.parties})
    return results, outcomes["shop"].seconds


@pytest.mark.filterwarnings("ignore:training stopped after")
def test_a_job_of_networks_is_the_estimator_on_the_common_rows(tmp_path):
    made, job = networks(tmp_path), job_for(OF_NETWORKS, validation=0.2)
    results, _ = run(job, sources(ORDER), made)
    parties = [cn.Party(n, s.X, s.labels, ids=s.ids) for n, s in sources(ORDER).items()]
    aligned = cn.align_parties(*parties, verbose=0)
    train, held_out = share_out(np.arange(aligned[0].rows), 0.2, job.algorithm.seed)
    model = cn.NetworkClassifier(
        {name: how[1] for name, (how, *_) in made.items()}, l2=0.01, algorithm=job.algorithm, sum="pairwise", verbose=0
    )
    model.fit(*[p.take(train) for p in aligned], validation=[p.take(held_out) for p in aligned])
    for name, result in results.items():
        assert all(np.array_equal(a, b) for a, b in zip(result.state[1], model._states[name][1], strict=True))


def test_a_job_of_networks_goes_on_to_the_same_bits(tmp_path):
    made, job = networks(tmp_path), job_for(OF_NETWORKS)
    whole, seconds = run(job, sources(ORDER), made)
    keepers = {name: Keepers(Shelf(), partial(lambda shelf, _: shelf, Shelf())) for name in ORDER}
    crash = cn.Simulation(faults=cn.Faults(crashes={"shop": 0.8 * seconds}), deadline=5)
    with pytest.raises(RunFailed):
        run(job, sources(ORDER), made, crash, keepers)
    assert any(keeper.state(b"").versions() for keeper in keepers.values())
    again, _ = run(job, sources(ORDER), made, keepers=keepers)
    for name in ORDER:
        assert all(np.array_equal(a, b) for a, b in zip(whole[name].state[1], again[name].state[1], strict=True))


def test_a_network_that_does_not_fit_the_prepared_columns_or_the_loss(tmp_path):
    made, job = networks(tmp_path), job_for(OF_NETWORKS)
    wrong = made | {"shop": (("named", maker(tmp_path, "wrong", 3)), None, None, "sgd")}
    with pytest.raises(DataError, match="the network of party 'shop' can't take its 2 columns"):
        run(job, sources(ORDER), wrong)
    with pytest.raises(OptionError, match="gives 1 numbers per row, softmax needs 2 scores, one per class"):
        run(job_for(OF_NETWORKS.replace('"network"', '"network-softmax"')), sources(ORDER), made)


def test_what_a_job_of_networks_says():
    read = job_for(OF_NETWORKS)
    assert (read.family, read.loss, read.model) == ("torch", "logistic", TorchOptions(l2=0.01))
    assert job_for(GOOD).family == "linear"
    without = OF_NETWORKS[: OF_NETWORKS.index("[algorithm]")]
    assert job_for(without).algorithm == cn.FedSGD()
    for keys, said in (
        ("intercept = true", "key model.intercept: has no meaning for kind 'network'"),
        ("features = 3", "key model.features: has no meaning for kind 'network'"),
    ):
        with pytest.raises(OptionError, match=said):
            job_for(OF_NETWORKS.replace("l2 = 0.01", keys))
    with pytest.raises(OptionError, match="a model of kind 'network' is trained by FedSGD or FedBCD"):
        job_for(OF_NETWORKS.replace('kind = "FedBCD"\nlocal_steps = 3', 'kind = "VFB2"'))


@pytest.fixture
def folder(tmp_path):
    names = ("bank", "shop")
    made = federation(tmp_path, names, 'kind = "FedBCD"\nlocal_steps = 2\nepochs = 3\nstep = 0.3')
    text = (made / "job.toml").read_text()
    a, b = text.index("[model]"), text.index("[algorithm]")
    (made / "job.toml").write_text(complete(text[:a] + MODEL + "\n" + text[b:]))
    for name, inputs in (("bank", 5), ("shop", 2)):
        maker(made, name, inputs)
        given = (made / f"{name}.toml").read_text()
        (made / f"{name}.toml").write_text(given + f'\n[network]\nbuild = "{name}_network.py:build"\n')
    return made


def test_check_tries_the_network(folder):
    job = read_job(folder / "job.toml")

    def found():
        return {one.what: one for one in check(job, read_party(folder / "shop.toml", job))}["network"]

    assert (found().ok, found().text) == (True, "17 parameters, 1 numbers per row, sgd")
    maker(folder, "shop", 3)
    assert not found().ok
    assert "can't take its 2 columns" in found().text


def test_from_training_to_scores_between_organisations(folder, tmp_path, capsys):
    run_all(folder, ("bank", "shop"))
    part = model_file.load(folder / "shop-files", "shop")
    assert part.public["model"] == "NetworkClassifier"
    assert [array.shape for array in part.state[1]] == [(4, 2), (4,), (1, 4), (1,)]
    capsys.readouterr()
    assert main(["model", "show", str(folder / "job.toml"), "--as", "shop"]) == 0
    assert "4 x 2" in capsys.readouterr().out
    together = tmp_path / "together"
    together.mkdir()
    for name in ("bank", "shop"):
        shutil.copy(shelved(folder, name) / f"{name}.colonnade.npz", together)
    with pytest.raises(DataError, match="the networks of a job, and only the parties' own files say how they are made"):
        cn.load(together)
    partner = start(folder, "shop", "serve", "--once")
    bank = start(folder, "bank", "predict", "--out", str(tmp_path / "scores.csv"))
    said = [process.communicate(timeout=LIMIT)[0] for process in (bank, partner)]
    assert [process.returncode for process in (bank, partner)] == [0, 0], said
    with (tmp_path / "scores.csv").open() as file:
        scores = [row for row in csv.DictReader(file) if row["known"] == "true"]
    chances = np.array([float(row["p(good)"]) for row in scores])
    assert len(chances) > 200
    assert chances.std() > 0.01


def test_a_party_without_a_network_and_one_too_many(folder):
    job, path = read_job(folder / "job.toml"), folder / "shop.toml"
    whole = path.read_text()
    made = read_party(path, job).network
    assert made == (("named", f"{folder / 'shop_network.py'}:build"), None, None, "sgd")
    path.write_text(whole[: whole.index("[network]")])
    with pytest.raises(OptionError, match="key network: the job trains networks, so name the function"):
        read_party(path, job)
    path.write_text(whole.replace(":build", ""))
    with pytest.raises(OptionError, match=r"key network.build: must be 'file.py:name' or 'module:name'"):
        read_party(path, job)
    path.write_text(whole)
    text = (folder / "job.toml").read_text().replace('"network"', '"logistic"')
    (folder / "job.toml").write_text(complete(text))
    with pytest.raises(OptionError, match="key network: the job trains no networks; remove this table"):
        read_party(path, read_job(folder / "job.toml"))
