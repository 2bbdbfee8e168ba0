"""Organisations with one command each: from `colonnade init` to a trained model, over mutual TLS.

What they train is to the bit what the estimator trains on their common rows, also after one of them was killed.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import colonnade as cn
import commands
from colonnade.cli.main import main
from colonnade.errors import DataError, OptionError, TomlError
from colonnade.jobs import model_file, people
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.jobs.policy import Policy
from colonnade.ledger.verify import verify
from colonnade.remote import mpi
from colonnade.remote.place import NetworkPlace
from colonnade.remote.signatures import checker
from colonnade.service.agreeing import share_out
from colonnade.tables import data, preparation
from colonnade.versions.shelf import Shelf
from ports import free_ports
from test_job import complete

PEOPLE = 400
BLOCKS = {
    "bank": ["age", "income", "city"], "clinic": ["weight", "pulse"], "shop": ["spend", "visits"],
    "school": ["grade", "years"], "insurer": ["claims", "premium"],
}  # fmt: skip
ALLOWED = mpi._OPEN_MPI | mpi._AS_ROOT
LIMIT = 600.0  # seconds: never decides unless something hangs


def write_tables(folder, names):
    """Overlapping people in different orders; ids with leading zeros, gaps, and a text column."""
    rng = np.random.default_rng(7)
    numbers = {name: rng.standard_normal(PEOPLE) for names in BLOCKS.values() for name in names}
    cities = rng.choice(["Oslo", "Paris", "Rome"], PEOPLE)
    z = numbers["age"] + numbers["spend"] - numbers["weight"] + (cities == "Rome")
    label = np.where(z + rng.logistic(size=PEOPLE) > 0, "good", "bad")
    for k, name in enumerate(names):
        rows = np.random.default_rng(k).permutation(PEOPLE)[: PEOPLE - 30 * (k + 1)]
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *BLOCKS[name], *(["label"] if name == names[0] else [])])
            for row in rows:
                cells = [cities[row] if c == "city" else f"{numbers[c][row]:.6f}" for c in BLOCKS[name]]
                if name == "bank" and row % 19 == 0:
                    cells[0] = ""  # an age that is missing
                writer.writerow([f"{row:05}", *cells, *([label[row]] if name == names[0] else [])])


def federation(tmp_path, names, algorithm):
    folder = tmp_path / "first"
    assert main(["init", str(folder), "--parties", ",".join(names), "--protection", "masked"]) == 0
    text = (folder / "job.toml").read_text()
    for number, port in enumerate(free_ports(len(names))):
        text = text.replace(f"127.0.0.1:{7443 + number}", f"127.0.0.1:{port}")
    a, b = text.index("[algorithm]"), text.index("[sum]")
    text = text[:a] + f"[algorithm]\n{algorithm}\n\n" + text[b:]
    text = text.replace("grace = 10 ", "grace = 2 ")
    # A kernel's job is completed by the test that gives it its model.
    (folder / "job.toml").write_text(text if "FDSKL" in algorithm else complete(text))
    for name in names:
        let_out(folder, name, 1000)
    write_tables(folder, names)
    return folder


def let_out(folder, name, share):
    """Numbers about each person, as a share of the columns; a party of two columns lets one out, if it says nothing."""
    path = folder / f"{name}.toml"
    path.write_text(path.read_text().replace("max_directions = 0.5", f"max_directions = {share}"))


def start(folder, name, *command, fresh=False):
    verb, *rest = command or ("run", "--quiet")
    return commands.start(verb, str(folder / "job.toml"), "--as", name, *rest, fresh=fresh)


def run_all(folder, names, fresh=False):
    started = {name: start(folder, name, fresh=fresh) for name in names}
    said = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    assert {name: process.returncode for name, process in started.items()} == dict.fromkeys(names, 0), said
    return said


def shelved(folder, name):
    """Return the folder of the version that a party uses."""
    return Shelf(folder / f"{name}-files", name).promoted().folder


def states(folder, names):
    parts = [model_file.load(folder / f"{name}-files", name) for name in names]
    return {part.party: part.state[0].tobytes() for part in parts}


def estimator_states(folder, names):
    """The same job through the estimator, in this process under the virtual clock."""
    job = read_job(folder / "job.toml")
    tables = {name: data.load(read_party(folder / f"{name}.toml", job).data) for name in names}
    bare = [cn.Party(name, np.zeros((table.rows, 2)), ids=table.ids) for name, table in tables.items()]
    aligned = cn.align_parties(*bare, verbose=0)
    where = {name: {str(one): row for row, one in enumerate(table.ids.tolist())} for name, table in tables.items()}
    rows = {party.name: np.array([where[party.name][str(one)] for one in party.ids.tolist()]) for party in aligned}
    parts = [{}, {}]
    for name, table in tables.items():
        cut = share_out(rows[name], job.validation, job.algorithm.seed)
        learned = preparation.fit(table, None, cut[0])
        for part, of in zip(parts, cut, strict=True):
            part[name] = learned.party(name, table.take(of))
    train, held_out = ([cn.Party(p.name, p.X, p.y, columns=p.columns) for p in part.values()] for part in parts)
    model = cn.LogisticRegression(l2=job.model.l2, algorithm=job.algorithm, sum=job.sum, verbose=0)
    model.fit(*train, validation=held_out)
    return {name: state[0].tobytes() for name, state in model._states.items()}


@pytest.mark.parametrize("names", [("bank", "shop"), ("bank", "clinic", "shop"), tuple(BLOCKS)])
def test_one_command_each(tmp_path, names, capsys):
    folder = federation(tmp_path, names, 'kind = "FedBCD"\nlocal_steps = 2\nepochs = 4\ntol = 0.0\npatience = 99')
    said = run_all(folder, names, fresh=len(names) == 3)
    assert re.search(r"bank: kept epoch \d of 4, loss 0\.\d+, auc 0\.\d+, auc 0\.\d+ held out", said["bank"])
    assert states(folder, names) == estimator_states(folder, names)
    for name in names:
        capsys.readouterr()
        assert main(["ledger", "verify", str(folder / "job.toml"), "--as", name]) == 0
        assert re.search(r"lines of 1 run, all as they were written", capsys.readouterr().out)
    assert main(["model", "show", str(folder / "job.toml"), "--as", "bank"]) == 0
    assert "city=Rome" in capsys.readouterr().out
    together = tmp_path / "together"
    together.mkdir()
    for name in names:  # the parts are those of an ordinary model
        (shelved(folder, name) / f"{name}.colonnade.npz").rename(together / f"{name}.colonnade.npz")
    assert set(cn.load(together).parties_) == set(names)


def test_encrypted_signals_between_organisations(tmp_path, capsys):
    names = ("bank", "clinic", "shop")
    folder = federation(tmp_path, names, 'kind = "FedBCD"\nlocal_steps = 3\nepochs = 2\ntol = 0.0\npatience = 99')
    text = (folder / "job.toml").read_text().replace('kind = "auto" ', 'kind = "encrypted" ')
    (folder / "job.toml").write_text(complete(text))
    run_all(folder, names)
    found, wanted = states(folder, names), estimator_states(folder, names)
    for name in names:  # the last bits of coefficients in shares hang on secret numbers
        np.testing.assert_allclose(np.frombuffer(found[name]), np.frombuffer(wanted[name]), atol=1e-9, rtol=0)
    for name in names:
        assert main(["ledger", "verify", str(folder / "job.toml"), "--as", name]) == 0
    capsys.readouterr()
    assert main(["ledger", "show", str(folder / "job.toml"), "--as", "bank"]) == 0
    said = capsys.readouterr().out
    assert "encrypted signal" in said
    assert "encrypted share" in said
    assert "opened gradient" not in said


def test_small_batches_of_encrypted_signals_are_found_by_check(tmp_path, capsys):
    folder = federation(tmp_path, ("bank", "clinic", "shop"), 'kind = "FedSGD"\nbatch = 64\nepochs = 2')
    text = (folder / "job.toml").read_text().replace('kind = "auto" ', 'kind = "encrypted" ')
    several = re.sub(r"(\[parties.clinic\][^\[]*)labels = false", r"\1labels = true", text)
    assert several != text
    for given, name, sentence in (
        (text, "shop", "of any size, as no gradient is opened"),
        (
            several,
            "shop",
            r"batches of \d+ rows of party '(bank|clinic)' would let party 'shop' .* 2 columns.* least 110 rows",
        ),
        (several.replace("batch = 64", "batch = 170"), "shop", "large enough for 2 columns"),
        (several.replace("batch = 64\n", ""), "shop", "large enough for 2 columns"),
    ):
        (folder / "job.toml").write_text(complete(given))
        capsys.readouterr()
        main(["check", str(folder / "job.toml"), "--as", name])
        assert re.search(sentence, re.sub(r"[\s│]+", " ", capsys.readouterr().out)), sentence


def test_second_order_steps_between_organisations(tmp_path, capsys):
    """Block Newton as a job: the estimator's bits, and every message of it in a ledger that verifies."""
    names = ("bank", "clinic", "shop")
    folder = federation(tmp_path, names, 'kind = "BlockNewton"\nepochs = 15\ntol = 0.0\npatience = 99')
    run_all(folder, names)
    assert states(folder, names) == estimator_states(folder, names)
    for name in names:
        capsys.readouterr()
        assert main(["ledger", "verify", str(folder / "job.toml"), "--as", name]) == 0
    assert main(["check", str(folder / "job.toml"), "--as", "bank"]) in (0, 3)  # the peers are gone by now
    assert "BlockNewton" in capsys.readouterr().out


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("bank", "shop"), marks=pytest.mark.long),
        ("bank", "clinic", "shop"),
        pytest.param(tuple(BLOCKS), marks=pytest.mark.long),
    ],
)
def test_one_command_for_all_ranks_of_an_mpi_job(tmp_path, names):
    pytest.importorskip("mpi4py", reason="MPI is not installed: pip install 'colonnade[mpi]'")
    folder = federation(tmp_path, names, 'kind = "VFB2"\nestimator = "saga"\nasynchronous = false\nepochs = 3')
    code, said = run_ranks(folder, len(names))
    assert (code, said.count("its part of the model is")) == (0, len(names)), said
    assert states(folder, names) == estimator_states(folder, names)
    for name in names:
        assert main(["ledger", "verify", str(folder / "job.toml"), "--as", name]) == 0


def test_what_is_wrong_at_one_rank_ends_all(tmp_path):
    pytest.importorskip("mpi4py", reason="MPI is not installed: pip install 'colonnade[mpi]'")
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    (folder / "shop.csv").write_text("id,spend,visits\n1,2,3\n1,2,3\n")
    code, said = run_ranks(folder, 2)
    assert code != 0
    assert "colonnade: shop.toml, line 8, key data.id: 1 row" in said
    assert "colonnade: party 'shop' failed with DataError" in said
    (folder / "shop.toml").unlink()
    code, said = run_ranks(folder, 2)
    assert code != 0
    assert "shop.toml" in said


def test_a_kernel_model_from_training_to_scores(tmp_path, capsys):
    names = ("bank", "clinic", "shop")
    folder = federation(tmp_path, names, 'kind = "FDSKL"\nblock = 32\nepochs = 4\ntol = 0.0\npatience = 99')
    text = (folder / "job.toml").read_text()
    a, b = text.index("[model]"), text.index("[algorithm]")
    model = '[model]\nkind = "kernel"\nfeatures = 100\nalpha = 1e-3\n\n'
    text = text[:a] + model + text[b:]
    (folder / "job.toml").write_text(complete(text))
    run_all(folder, names)
    parts = {name: model_file.load(folder / f"{name}-files", name) for name in names}
    assert {name: part.state[0] is None for name, part in parts.items()} == {
        "bank": False,
        "clinic": True,
        "shop": True,
    }
    assert len({part.state[1] for part in parts.values()}) == 3  # directions are every party's own
    # what the ledger says left a party is what docs/security.md says does
    job = read_job(folder / "job.toml")
    tables = {name: data.load(read_party(folder / f"{name}.toml", job).data) for name in names}
    where = {name: {str(one): row for row, one in enumerate(table.ids.tolist())} for name, table in tables.items()}
    shop = read_party(folder / "shop.toml", job)
    report = verify(shop.ledger, checker(shop.certificates.certificate))
    people = set.intersection(*map(set, where.values()))  # for training and validation
    sample = 4 * parts["shop"].public["rows"] * 32 + 8
    messages = report.by_kind["bank", "phases"]
    assert report.bytes_by_kind["bank", "phases"] == 4 * len(people) * 100 + sample + 35 * messages
    capsys.readouterr()
    assert main(["model", "show", str(folder / "job.toml"), "--as", "bank"]) == 0
    assert "bank owns 100 of 100 features" in capsys.readouterr().out
    partners = [start(folder, name, "serve", "--once") for name in names[1:]]
    bank = start(folder, "bank", "predict", "--out", str(tmp_path / "scores.csv"))
    said = [process.communicate(timeout=LIMIT)[0] for process in (bank, *partners)]
    assert [process.returncode for process in (bank, *partners)] == [0, 0, 0], said
    with (tmp_path / "scores.csv").open() as file:
        scores = [row for row in csv.DictReader(file) if row["known"] == "true"]
    # the same people through the parts of the model in one place
    together = tmp_path / "together"
    together.mkdir()
    parties = []
    for name in names:
        shutil.copy(shelved(folder, name) / f"{name}.colonnade.npz", together)
        rows = np.array([where[name][row["id"]] for row in scores])
        parties.append(cn.Party(name, parts[name].prepared.apply(tables[name].take(rows))))
    chances = cn.load(together).predict_proba(*parties)[:, 1]
    np.testing.assert_allclose([float(row["p(good)"]) for row in scores], chances, atol=1e-6)


def test_which_party_is_it(tmp_path, capsys):
    for given, sentence in (
        ([], "which party is this? give --as PARTY"),
        (["--mpi", "--as", "bank"], "leave out --as"),
    ):
        assert main(["run", str(tmp_path / "job.toml"), *given]) == 1
        assert sentence in capsys.readouterr().err


def run_ranks(folder, number):
    """(code, all that is said) of `mpirun -n number colonnade run job.toml --mpi`."""
    line = [sys.executable, "-m", "colonnade.cli.main", "run", str(folder / "job.toml"), "--mpi"]
    environment = {**os.environ, **ALLOWED, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    start = [mpi._find_mpiexec(), "-n", str(number)]
    done = subprocess.run(
        start + line, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_check_sees_its_peers(tmp_path, capsys):
    names = ("bank", "shop")
    folder = federation(tmp_path, names, 'kind = "FedSGD"\nepochs = 2')
    capsys.readouterr()
    # in a job the party that is named first listens and the others dial, so it is the shop that looks at the bank

    def checked():
        code = main(["check", str(folder / "job.toml"), "--as", dialler])
        return code, re.sub(r"[\s│]+", " ", capsys.readouterr().out)

    job = read_job(folder / "job.toml")
    dialler, listener = names if NetworkPlace("bank", job.addresses, None).dials("shop") else names[::-1]
    code, said = checked()
    assert (code, "does not answer" in said, "it may not be running yet" in said) == (3, True, True)
    waiting = start(folder, listener)
    try:
        until = time.monotonic() + LIMIT
        while (answer := checked())[0] and time.monotonic() < until:
            time.sleep(0.1)
        assert answer[0] == 0
        assert f"colonnade {cn.__version__}, the same job" in answer[1]
        text = (folder / "job.toml").read_text()
        (folder / "job.toml").write_text(text.replace("epochs = 2", "epochs = 3"))
        code, said = checked()
        assert code == 1
        assert "differs in 'algorithm.epochs': 3 here, 2 there" in said
        (folder / "job.toml").write_text(text)
        assert waiting.poll() is None  # it was only looked at
        other = start(folder, dialler)
        said = [process.communicate(timeout=LIMIT)[0] for process in (waiting, other)]
        assert (waiting.returncode, other.returncode) == (0, 0), said
        assert f"party '{dialler}' looked whether this party is there" in said[0]
    finally:
        waiting.kill()
        waiting.communicate()


def test_predict_while_the_partners_serve(tmp_path):
    names = ("bank", "clinic", "shop")
    folder = federation(tmp_path, names, 'kind = "VFB2"\nestimator = "saga"\nasynchronous = false\nepochs = 3')
    run_all(folder, names)
    header, *lines = (folder / "bank.csv").read_text().splitlines()
    asked = [line.rsplit(",", 1)[0] for line in lines[:50]] + ["99999,0.5,0.5,Rome"]  # one whom nobody else knows
    new = tmp_path / "new.csv"
    new.write_text("\n".join([header.rsplit(",", 1)[0], *asked]) + "\n")
    partners = [start(folder, name, "serve", "--once") for name in names[1:]]
    bank = start(folder, "bank", "predict", "--data", str(new), "--out", str(tmp_path / "scores.csv"))
    said = [process.communicate(timeout=LIMIT)[0] for process in (bank, *partners)]
    assert [process.returncode for process in (bank, *partners)] == [0, 0, 0], said
    with (tmp_path / "scores.csv").open() as file:
        scores = list(csv.DictReader(file))
    assert [row["id"] for row in scores] == [line.split(",")[0] for line in asked]
    assert (scores[-1]["known"], scores[-1]["prediction"]) == ("false", "")
    # the same people through the parts of the model in one place
    job = read_job(folder / "job.toml")
    files = {name: read_party(folder / f"{name}.toml", job) for name in names}
    tables = {name: data.load(file.data) for name, file in files.items()}
    where = {name: {str(one): row for row, one in enumerate(table.ids.tolist())} for name, table in tables.items()}
    common = [row for row in scores if all(row["id"] in where[name] for name in names)]
    assert [row for row in scores if row["known"] == "true"] == common
    z = np.zeros(len(common))
    for name in names:
        part = model_file.load(files[name].folder, name)
        rows = np.array([where[name][row["id"]] for row in common])
        z += np.asarray(part.prepared.apply(tables[name].take(rows)) @ part.state[0])[:, 0]
        z += 0.0 if part.state[1] is None else part.state[1][0]
    np.testing.assert_allclose([float(row["p(good)"]) for row in common], 1 / (1 + np.exp(-z)), atol=1e-8)


def write_guesses(path, count):
    """Every id that there could be, with columns such as the bank has."""
    path.write_text("".join(["id,age,income,city\n", *(f"{number:05},0.5,0.5,Rome\n" for number in range(count))]))


def set_policy(folder, name, *lines):
    """This party's rules for scoring, and no others."""
    path = folder / f"{name}.toml"
    others = ("serve_", "max_people", "min_pred", "max_drift", "max_missing")
    kept = [line for line in path.read_text().splitlines() if not line.startswith(others)]
    path.write_text("\n".join([*kept, *lines]) + "\n")


def test_20_000_guesses_find_nobody_but_those_in_common(tmp_path):
    names = ("bank", "shop")
    folder = federation(tmp_path, names, 'kind = "FedSGD"\nepochs = 2')
    run_all(folder, names)
    customers = {}
    for name in names:
        with (folder / f"{name}.csv").open() as file:
            customers[name] = {row["id"] for row in csv.DictReader(file)}
    common = customers["bank"] & customers["shop"]
    for name in names:  # everybody keeps them, held-out ones too, for itself
        path = shelved(folder, name) / "people.json"
        assert set(json.loads(path.read_text())["people"]) == common
        assert path.stat().st_mode & 0o777 == 0o600
    write_guesses(tmp_path / "guesses.csv", 20_000)

    def guess():
        (tmp_path / "scores.csv").unlink(missing_ok=True)
        shop = start(folder, "shop", "serve", "--once")
        options = ("--data", str(tmp_path / "guesses.csv"), "--out", str(tmp_path / "scores.csv"))
        bank = start(folder, "bank", "predict", *options)
        said = [process.communicate(timeout=LIMIT)[0] for process in (bank, shop)]
        return (bank.returncode, shop.returncode), said

    def found():
        with (tmp_path / "scores.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == 20_000
        assert all(row["prediction"] == "" for row in rows if row["known"] == "false")
        return {row["id"] for row in rows if row["known"] == "true"}

    # an honest bank asks about nobody else: it knows whom they have in common; the shop may take them for too few
    set_policy(folder, "shop", "min_prediction = 400")
    codes, said = guess()
    assert codes[0] == 1
    assert f"party 'shop' answers about 400 people at a time at least, {len(common)} were asked about" in said[0]
    assert f"shop: refused bank a question about {len(common)} people, by min_prediction = 400" in said[1]
    # a curious one asks about everybody, where the shop has a budget for it
    set_policy(folder, "bank", 'serve_people = "all"')
    set_policy(folder, "shop", "max_people_per_day = 1000000")
    codes, said = guess()
    assert (codes, found()) == ((0, 0), common), said
    assert f"{20_000 - len(common):,} of them have no score, as not every party knows and serves them" in said[0]
    # where the shop answers about everybody, there is still its budget
    set_policy(folder, "shop", "max_people_per_day = 100", 'serve_people = "all"')
    codes, said = guess()
    assert codes[0] == 1
    assert not (tmp_path / "scores.csv").exists()
    assert re.search(r"party 'shop' answers 'bank' about 100 people a day at most, \d+ are left today \(UTC\)", said[0])
    assert "shop: refused bank a question about 10,000 people, by max_people_per_day = 100" in said[1]


def test_people_who_are_served(tmp_path):
    """What stands in the files, and what is said if it can't be believed."""
    names = ("bank", "shop")
    folder = federation(tmp_path, names, 'kind = "FedSGD"\nepochs = 2')
    party = read_party(folder / "shop.toml", read_job(folder / "job.toml"))
    party.folder.mkdir()
    model = party.folder / "shop.colonnade.npz"
    model.write_bytes(b"the first")
    with pytest.raises(
        DataError, match=r"'people.json', which names them, is not in 'shop-files'.* train again, or say"
    ):
        people.served(party, party.folder)
    ids = np.array(["b", "a\nb", "c", " Zo\u0065\u0308 "], dtype=object)
    people.remember(party, party.folder, ids, np.array([3, 1]))
    assert people.served(party, party.folder) == {"Zo\u00eb", "a\nb"}
    (party.folder / "people.json").chmod(0o644)
    with pytest.raises(OptionError, match=r"people.json '.*people.json' has mode 644, with which others"):
        people.served(party, party.folder)
    (party.folder / "people.json").chmod(0o600)
    model.write_bytes(b"the second")
    with pytest.raises(DataError, match=r"names the people of another model than 'shop' has there; restore both"):
        people.served(party, party.folder)
    (party.folder / "people.json").write_text("{")
    with pytest.raises(DataError, match=r"'people.json' in 'shop-files' can't be read, it was changed or cut off"):
        people.served(party, party.folder)
    people.remember(party, party.folder, None, np.arange(3))  # a job without ids: there is nobody to ask about
    assert not (party.folder / "people.json").exists()
    (folder / "list.txt").write_text("\ufeff007\n\n Zoe\u0308\n", encoding="utf-8")
    listed = replace(party, policy=Policy(serve_people="listed", serve_list=folder / "list.txt"))
    assert people.served(listed, folder) == {"007", "Zo\u00eb"}
    with pytest.raises(DataError, match=r"serve_list '.*nowhere' can't be read .* give a file with one id per line"):
        people.served(replace(party, policy=Policy(serve_people="listed", serve_list=folder / "nowhere")), folder)
    assert people.served(replace(party, policy=Policy(serve_people="all")), folder) is None


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            ['serve_people = "listed"'],
            'key policy.serve_list: serve_people = "listed" needs a file with one id per line',
        ),
        (['serve_list = "a"'], 'key policy.serve_list: has a meaning only with serve_people = "listed"; remove it'),
        (['serve_people = "everybody"'], "key policy.serve_people: must be one of 'trained', 'listed', 'all', got"),
        (["max_people_per_day = 0"], "key policy.max_people_per_day: must be >= 1, got 0"),
    ],
)
def test_rules_for_scoring_that_are_none(tmp_path, lines, sentence):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    set_policy(folder, "shop", *lines)
    with pytest.raises(TomlError) as caught:
        read_party(folder / "shop.toml", read_job(folder / "job.toml"))
    assert sentence in str(caught.value)


def test_a_partner_with_more_ids_than_the_policy_takes(tmp_path):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    set_policy(folder, "shop", "max_partner_ids = 369")
    started = {name: start(folder, name) for name in ("bank", "shop")}
    said = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    assert [process.returncode for process in started.values()] == [1, 1]
    refused = "party 'bank' brings 370 ids to the alignment, party 'shop' takes 369 of a partner at most; "
    assert refused + "ask why there are so many, and if that is right raise max_partner_ids" in said["shop"]
    assert refused + "bring fewer, or ask it to raise max_partner_ids in its [policy]" in said["bank"]
    for name in started:
        lines = (folder / f"{name}-files" / "ledger.jsonl").read_text().splitlines()
        kinds = {json.loads(line).get("kind") for line in lines}
        assert "align size" in kinds
        assert not kinds & {"align blinded", "align answer", "align table", "align common"}


KILLS = int(os.environ.get("COLONNADE_KILLS", "1"))  # random points per party; `make kills` has ten
LONG = 'kind = "VFB2"\nestimator = "saga"\nasynchronous = false\nepochs = 40\ntol = 0.0\npatience = 99\nbatch = 16'


@pytest.mark.parametrize("point", range(KILLS))
@pytest.mark.parametrize("victim", ["bank", "clinic", "shop"])
def test_a_party_is_killed_and_the_job_goes_on_to_the_same_bits(tmp_path, victim, point):
    names = ("bank", "clinic", "shop")
    folder = federation(tmp_path, names, LONG)
    job = read_job(folder / "job.toml")
    file = read_party(folder / f"{victim}.toml", job)
    kept = file.checkpoints / "state"
    # The moment is a length of its ledger: from the alignment, over training, to the last epochs.
    whole = 300_000 if victim == "bank" else 170_000  # bytes of the ledger of an undisturbed run
    at = whole * np.random.default_rng([point, names.index(victim)]).uniform(0.01, 0.9)
    started = {name: start(folder, name) for name in names}
    until = time.monotonic() + LIMIT
    while size_of(file.ledger) < at and time.monotonic() < until and started[victim].poll() is None:
        time.sleep(0.002)
    started[victim].send_signal(signal.SIGKILL)
    said = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    assert started[victim].returncode == -signal.SIGKILL, said  # not at its end yet
    for name in names:
        if name != victim:
            assert started[name].returncode == 1
            # found by the line that ended, and not by a silence as long as the deadline
            assert f"party '{victim}' was out of reach" in said[name].strip().splitlines()[-1], said[name]
    assert max((int(path.stem) for path in kept.glob("*.kept")), default=0) < 40
    assert main(["ledger", "verify", str(folder / "job.toml"), "--as", victim]) == 0  # every line that it wrote
    last = max((int(path.stem) for path in kept.glob("*.kept")), default=0)
    said = run_all(folder, names)
    if last > 1:
        assert re.search(r"going on from epoch \d+, which all parties have kept", said[victim])
    assert states(folder, names) == estimator_states(folder, names)
    history = json.loads((shelved(folder, "bank") / "history.json").read_text())
    assert [record["epoch"] for record in history] == list(range(41))  # of both runs
    assert not list(kept.glob("*"))  # the model is saved: nothing to go on from


def size_of(path):
    return path.stat().st_size if path.exists() else 0


def test_a_policy_that_lets_nothing_out(tmp_path):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    path = folder / "shop.toml"
    path.write_text(path.read_text().replace("sequential = false", "kinds = []\nsequential = false"))
    assert read_party(path, read_job(folder / "job.toml")).policy.kinds == ()
    started = {name: start(folder, name) for name in ("bank", "shop")}
    said = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    assert "the policy of 'shop' does not let messages of the kind 'ledger head' out" in said["shop"]
    assert "party 'shop' failed with PolicyRefused" in said["bank"]


@pytest.mark.parametrize("kind", ["FedBCD", "BlockNewton"])
def test_sequential_order_of_three_is_refused_before_anybody_is_waited_for(tmp_path, capsys, kind):
    folder = federation(tmp_path, ("bank", "clinic", "shop"), f'kind = "{kind}"\norder = "sequential"\nepochs = 2')
    sentence = "in sequential order, which shows label holders what each party changed, whatever the masks"
    for command in ("run", "plan", "check"):
        capsys.readouterr()
        assert main([command, str(folder / "job.toml"), "--as", "shop"]) == 1
        assert sentence in re.sub(r"[\s│]+", " ", "".join(capsys.readouterr()))
    assert not (folder / "shop-files").exists()  # nothing has begun
    path = folder / "shop.toml"
    path.write_text(path.read_text().replace("sequential = false", "sequential = true"))
    capsys.readouterr()
    main(["check", str(folder / "job.toml"), "--as", "shop"])  # the others are not there
    said = re.sub(r"[\s│]+", " ", "".join(capsys.readouterr()))
    assert "policy ok allows this job" in said
    assert "bank could see what you alone changed, whatever the masks" in said


def test_a_ledger_that_is_rolled_back_between_two_runs(tmp_path, capsys):
    """The files of an earlier day, put back together with their seal: by themselves they are as they were written."""
    names = ("bank", "shop")
    folder = federation(tmp_path, names, 'kind = "FedSGD"\nepochs = 1')
    job, files = str(folder / "job.toml"), folder / "bank-files"

    def ledger(name, *rest):
        capsys.readouterr()
        code = main(["ledger", rest[0], job, "--as", name, *map(str, rest[1:])])
        out, err = capsys.readouterr()
        return code, out + err

    run_all(folder, names)
    shutil.copytree(files, tmp_path / "earlier")
    run_all(folder, names)
    receipts = tmp_path / "shop-receipts.json"
    code, said = ledger("shop", "receipts", "--out", receipts)
    assert (code, "shop: 4 receipts of what it has seen" in said) == (0, True)
    code, said = ledger("bank", "verify", "--receipts", receipts)
    assert code == 0, said
    assert "lines of 2 runs, all as they were written" in said
    assert re.search(r"countersigned by shop up to line \d+", said)
    assert "holds all that shop has seen of it, 4 receipts" in said
    assert "not countersigned" not in said
    for name in ("ledger.jsonl", "ledger.jsonl.seal", "ledger.jsonl.key"):
        shutil.copy2(tmp_path / "earlier" / name, files / name)
    assert ledger("bank", "verify")[0] == 0
    code, said = ledger("bank", "verify", "--receipts", receipts)
    assert (code, "the ledger 'ledger.jsonl' was rolled back or rewritten: 'shop' saw" in said) == (1, True)
    model = (shelved(folder, "bank") / "bank.colonnade.npz").read_bytes()
    started = {name: start(folder, name) for name in names}
    said = {name: process.communicate(timeout=LIMIT)[0] for name, process in started.items()}
    assert [process.returncode for process in started.values()] == [1, 1]
    assert "colonnade: the ledger 'ledger.jsonl' was rolled back or rewritten: 'shop' saw" in said["bank"], said
    assert (shelved(folder, "bank") / "bank.colonnade.npz").read_bytes() == model
    code, said = ledger("bank", "verify")
    assert re.search(r"run 2 \(first, .*\) is not countersigned by shop", said)
    for wrong, sentence in (
        (("accept",), "whose ledger? give --peer, one of bank"),
        (("accept", "--peer", "shop"), "whose ledger?"),
        (("receipts",), "give --out FILE"),
        (("show", "--peer", "bank"), "--peer goes with `colonnade ledger accept`"),
    ):
        code, said = ledger("shop", *wrong)
        assert (code, sentence in said) == (1, True), said
    code, said = ledger("shop", "accept", "--peer", "bank")  # its owner has told why
    assert (code, "what was seen of it before does not count any more" in said) == (0, True)
    run_all(folder, names)
    assert ledger("bank", "verify")[0] == 0


def test_a_party_that_is_started_twice(tmp_path):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    first = start(folder, "shop")
    try:
        assert "waiting for bank" in first.stdout.readline()
        until = time.monotonic() + LIMIT
        while not size_of(folder / "shop-files" / "ledger.jsonl") and time.monotonic() < until:
            time.sleep(0.01)
        second = start(folder, "shop")
        said = second.communicate(timeout=LIMIT)[0]
        assert second.returncode == 1
        assert "another process of this party is running: it has the ledger 'ledger.jsonl' open" in said
        bank = start(folder, "bank")
        said = [process.communicate(timeout=LIMIT)[0] for process in (bank, first)]
        assert (bank.returncode, first.returncode) == (0, 0), said
    finally:
        first.kill()
        first.communicate()


def test_jobs_that_differ_are_named_on_both_sides(tmp_path):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    other = Path(shutil.copytree(folder, tmp_path / "other"))
    job = other / "job.toml"
    job.write_text(job.read_text().replace("epochs = 2", "epochs = 3"))
    (other / "shop.csv").write_text("no table")  # nothing private is read before the handshake
    started = {"bank": start(folder, "bank"), "shop": start(other, "shop")}
    for name, process in started.items():
        said = process.communicate(timeout=LIMIT)[0]
        here, there = ("2", "3") if name == "bank" else ("3", "2")
        assert process.returncode == 1
        assert f"differs in 'algorithm.epochs': {here} here, {there} there" in said, said


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        (
            "shop.toml",
            'id = "id"',
            'id = "ident"',
            r"shop.toml, line \d+, key data.id: shop.csv has no column 'ident', its columns are 'id', 'spend'",
        ),
        (
            "shop.toml",
            "min_features = 2",
            "min_features = 9",
            r"shop.*takes part with 2 columns, its policy asks for 9",
        ),
        ("bank.toml", "bank.pem", "shop.pem", r"the key .*does not belong to the certificate"),
        ("job.toml", 'protection = "masked"', 'protection = "plain"', r"discloses .*|asks for protection 'plain'"),
        (
            "job.toml",
            'kind = "auto"',
            'kind = "plain"',
            r"key sum.kind: protection 'masked' adds up under masks, got 'plain'; remove it, or set",
        ),
        (
            "shop.toml",
            'protection = ["sealed", "masked"]',
            'protection = ["sealed"]',
            r"policy WRONG the job asks for protection 'masked', which shows its partners \"directions of columns",
        ),
        ("bank.csv", ",bad\n", ",good\n", r"labels .* the labels hold only one class \('good'\)"),
        (
            "job.toml",
            'kind = "logistic"',
            'kind = "ridge"',
            r"labels WRONG the labels are text .'bad', 'good'., square takes",
        ),
        ("shop.toml", 'folder = "shop-files"', 'folder = "shop.csv/x"', r"folder .*shop.csv' is no folder of ours"),
        (
            "shop.toml",
            "max_rounds = 1000000",
            "max_rounds = 3",
            r"an epoch of this job has \d+ rounds, the policy of 'shop'",
        ),
        (
            "shop.toml",
            'name = "shop"',
            'name = "bank"',
            r"key name: this file is of 'bank' and not of 'shop'; give the",
        ),
    ],
)
def test_one_wrong_thing_is_one_sentence_in_check(tmp_path, capsys, file, old, new, sentence):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    path = folder / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    name = "shop" if file == "shop.toml" else "bank"
    capsys.readouterr()
    assert main(["check", str(folder / "job.toml"), "--as", name]) == 1
    out, err = capsys.readouterr()
    assert re.search(sentence, re.sub(r"[\s│]+", " ", out + err)), out + err
