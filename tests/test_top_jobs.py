"""A top network in a job: the label holder names it in its own file, and the job is what the estimator trains."""

# ruff: noqa: E402
from __future__ import annotations

import csv
import re
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")

import colonnade as cn
from colonnade.errors import DataError, LabelError, OptionError, PolicyRefused, RunFailed
from colonnade.families.torch_networks import SplitOptions
from colonnade.jobs import model_file
from colonnade.jobs.budget import Budget
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.leaks import EMBEDDINGS
from colonnade.service.agreeing import share_out
from colonnade.service.check import check
from colonnade.service.training import Keepers, take_part
from test_federation import LIMIT, federation, run_all, start
from test_job import complete
from test_job_training import ORDER, align, job_for, sources
from test_kept import Shelf
from test_network_jobs import OF_NETWORKS

pytestmark = [
    pytest.mark.filterwarnings("ignore:with a top network the label holder gets"),
    pytest.mark.filterwarnings("ignore:training stopped after"),
]
WIDTHS = dict(zip(sorted(ORDER), (3, 2, 2), strict=True))
TOP = "top = { " + ", ".join(f"{name} = {width}" for name, width in WIDTHS.items()) + " }\n"
OF_TOP = OF_NETWORKS.replace("l2 = 0.01\n", f"l2 = 0.01\n{TOP}").replace(
    "version = 1\n", 'version = 1\nprotection = "plain"\n'
)
# with step="auto" the top network learns by Adam alone
OF_TOP = OF_TOP.replace("local_steps = 3", "local_steps = 3\nstep = 0.2")


def maker(folder, name, inputs, outputs, called="build"):
    path = folder / f"{name}_{called}.py"
    body = f"nn.Sequential(nn.Linear({inputs}, 4), nn.Tanh(), nn.Linear(4, {outputs})).double()"
    path.write_text(f"from torch import nn\n\n\ndef {called}():\n    return {body}\n")
    return f"{path}:{called}"


def own_of(folder, holder):
    made = {}
    for name, width in WIDTHS.items():
        network = (("named", maker(folder, name, 2, width)), None, None, "sgd")
        above = ("named", maker(folder, name, sum(WIDTHS.values()), 1, "above"))
        made[name] = network, (above, None, "sgd") if name == holder else None
    return made


def run(job, given, made, on=None, keepers=None, budgets=None):
    results = {}

    def program_of(name):
        async def program(net):
            keeper, budget = (keepers or {}).get(name), (budgets or {}).get(name)
            own = made[name]
            results[name] = await take_part(
                net, job, given[name], align, lambda *_: None, keeper, lambda _: own, budget
            )

        return program

    outcomes = (on or cn.Simulation()).run({name: (program_of(name), ()) for name in job.parties})
    return results, outcomes["shop"].seconds


def test_a_job_with_a_top_network_is_the_estimator_on_the_common_rows(tmp_path):
    job = job_for(OF_TOP, validation=0.2)
    made = own_of(tmp_path, job.holders[0])
    results, _ = run(job, sources(ORDER), made, budgets={name: Budget(name, 1000.0) for name in ORDER})
    parties = [cn.Party(n, s.X, s.labels, ids=s.ids) for n, s in sources(ORDER).items()]
    aligned = cn.align_parties(*parties, verbose=0)
    train, held_out = share_out(np.arange(aligned[0].rows), 0.2, job.algorithm.seed)
    model = cn.NetworkClassifier(
        {name: own[0][1] for name, (own, _) in made.items()}, top=made[job.holders[0]][1][0][1], l2=0.01,
        algorithm=job.algorithm, verbose=0,
    )  # fmt: skip
    order = sorted(aligned, key=lambda party: party.name)
    model.fit(*[p.take(train) for p in order], validation=[p.take(held_out) for p in order])
    for name, result in results.items():
        assert result.state[0] == model._states[name][0]
        assert all(np.array_equal(a, b) for a, b in zip(result.state[1], model._states[name][1], strict=True))


def test_embeddings_are_counted_and_a_small_budget_ends_the_run_before_it_begins(tmp_path):
    job = job_for(OF_TOP)
    made = own_of(tmp_path, job.holders[0])
    budgets = {name: Budget(name, 1.0) for name in ORDER}  # two numbers about each person, embeddings have up to three
    with pytest.raises(PolicyRefused, match="numbers about each person at least"):
        run(job, sources(ORDER), made, budgets=budgets)
    budgets = {name: Budget(name, 20.0) for name in ORDER}
    run(job, sources(ORDER), made, budgets=budgets)
    spent = {name: budget.charged for name, budget in budgets.items()}
    assert all(0 < some <= 40 for name, some in spent.items() if name != job.holders[0])


def test_a_job_that_broke_off_goes_on_to_the_same_bits(tmp_path):
    job = job_for(OF_TOP)
    made = own_of(tmp_path, job.holders[0])
    whole, seconds = run(job, sources(ORDER), made)
    keepers = {name: Keepers(Shelf(), partial(lambda shelf, _: shelf, Shelf())) for name in ORDER}
    crash = cn.Simulation(faults=cn.Faults(crashes={"shop": 0.8 * seconds}), deadline=5)
    with pytest.raises(RunFailed):
        run(job, sources(ORDER), made, crash, keepers)
    again, _ = run(job, sources(ORDER), made, keepers=keepers)
    for name in ORDER:
        assert all(np.array_equal(a, b) for a, b in zip(whole[name].state[1], again[name].state[1], strict=True))


def test_what_a_job_with_a_top_network_says():
    read = job_for(OF_TOP)
    assert (read.family, read.loss, read.protection) == ("split", "logistic", "plain")
    assert read.model == SplitOptions(l2=0.01, widths=tuple(sorted(WIDTHS.items())))
    assert EMBEDDINGS in read.disclosed()
    assert job_for(OF_TOP + "\n[defence.label-correlation]\nweight = 0.5\n").defences[0].weight == 0.5
    with pytest.raises(OptionError, match=r"key model.top: must say how many numbers the top network takes of each"):
        job_for(OF_TOP.replace(TOP, "top = { bank = 2 }\n"))
    with pytest.raises(OptionError, match=r"key model.top.\w+: must be >= 1"):
        job_for(OF_TOP.replace("= 3,", "= 0,"))
    with pytest.raises(OptionError, match="key protection: 'masked' needs sums, and with a top network"):
        job_for(OF_TOP.replace('"plain"', '"masked"'))
    with pytest.raises((OptionError, LabelError), match="has one label holder"):
        job_for(OF_TOP.replace("[parties.shop]", "[parties.shop]\nlabels = true"))


@pytest.fixture
def folder(tmp_path):
    made = federation(tmp_path, ("bank", "shop"), 'kind = "FedBCD"\nlocal_steps = 2\nepochs = 3\nstep = 0.3')
    text = (made / "job.toml").read_text().replace('protection = "masked"', 'protection = "plain"')
    a, b = text.index("[model]"), text.index("[algorithm]")
    model = '[model]\nkind = "network"\nl2 = 0.01\ntop = { bank = 3, shop = 2 }\n\n'
    (made / "job.toml").write_text(complete(text[:a] + model + text[b:]))
    for name, inputs, width in (("bank", 5, 3), ("shop", 2, 2)):
        maker(made, name, inputs, width)
        given = (made / f"{name}.toml").read_text().replace('["sealed", "masked"]', '["sealed", "plain"]')
        (made / f"{name}.toml").write_text(given + f'\n[network]\nbuild = "{name}_build.py:build"\n')
    maker(made, "bank", 5, 1, "above")
    bank = made / "bank.toml"
    bank.write_text(bank.read_text() + 'top = "bank_above.py:above"\n')
    return made


def test_from_training_to_scores_between_organisations(folder, tmp_path):
    job = read_job(folder / "job.toml")
    found = {one.what: one for one in check(job, read_party(folder / "bank.toml", job))}
    assert "parameters of the top network" in found["network with a top network"].text
    run_all(folder, ("bank", "shop"))
    part = model_file.load(folder / "bank-files", "bank")
    assert any(name.startswith("top/") for name in part.state[0])
    partner = start(folder, "shop", "serve", "--once")
    bank = start(folder, "bank", "predict", "--out", str(tmp_path / "scores.csv"))
    said = [process.communicate(timeout=LIMIT)[0] for process in (bank, partner)]
    assert [process.returncode for process in (bank, partner)] == [0, 0], said
    with (tmp_path / "scores.csv").open() as file:
        chances = np.array([float(row["p(good)"]) for row in csv.DictReader(file) if row["known"] == "true"])
    assert len(chances) > 200
    assert chances.std() > 0.005


@pytest.mark.parametrize(
    ("name", "sizes", "sentence"),
    [
        ("bank", {"above": (9, 1)}, r"network of party 'bank \(top\)' can't take its 5 columns"),
        ("bank", {"above": (5, 2)}, r"network of party 'bank \(top\)' gives 2 numbers per row, logistic needs 1 score"),
        (
            "shop",
            {"build": (2, 7)},
            "gives 7 numbers per row, and the top network takes 2 of it; change its last layer",
        ),
    ],
)
def test_networks_that_do_not_fit_are_said_before_anything_is_sent(folder, name, sizes, sentence):
    for called, (inputs, outputs) in sizes.items():
        maker(folder, name, inputs, outputs, called)
    job = read_job(folder / "job.toml")
    found = {one.what: one for one in check(job, read_party(folder / f"{name}.toml", job))}
    assert found["network with a top network"].ok is False
    assert re.search(sentence, found["network with a top network"].text)


@pytest.mark.parametrize(
    ("inputs", "outputs", "sentence"),
    [(9, 1, r"'bank \(top\)' can't take its 7 columns"), (7, 2, "gives 2 numbers per row, logistic needs 1 score")],
)
def test_nor_is_anything_trained_with_them(tmp_path, inputs, outputs, sentence):
    job = job_for(OF_TOP)
    made = own_of(tmp_path, job.holders[0])
    own, _ = made[job.holders[0]]
    made[job.holders[0]] = own, (("named", maker(tmp_path, "other", inputs, outputs, "above")), None, "sgd")
    with pytest.raises((OptionError, DataError), match=sentence):
        run(job, sources(ORDER), made)


def test_whose_the_top_network_is(folder):
    job, bank, shop = read_job(folder / "job.toml"), folder / "bank.toml", folder / "shop.toml"
    whole = bank.read_text()
    bank.write_text(whole.replace('top = "bank_above.py:above"\n', ""))
    with pytest.raises(OptionError, match=r"key network.top: 'bank' holds the labels, so name the function"):
        read_party(bank, job)
    bank.write_text(whole.replace("bank_above.py:above", "bank_above.py"))
    with pytest.raises(OptionError, match=r"key network.top: must be 'file.py:name' or 'module:name'"):
        read_party(bank, job)
    shop.write_text(shop.read_text() + 'top = "bank_above.py:above"\n')
    with pytest.raises(OptionError, match=r"key network.top: the top network is the label holder's; remove it"):
        read_party(shop, job)
