"""Versions between organisations: two trainings of one job, which one is used, and parts that do not fit together."""

from __future__ import annotations

import csv
import json
import re
import shutil
import signal
from types import SimpleNamespace

import pytest

from colonnade.cli.main import main
from colonnade.errors import DataError, OptionError
from colonnade.families import family
from colonnade.jobs import model_file
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.ledger.ledger import entries
from colonnade.service.start import Start
from colonnade.versions.shelf import Shelf
from ports import free_ports
from test_federation import LIMIT, federation, run_all, set_policy, shelved, start
from test_http import ask as ask_http
from test_http import wait_for

NAMES = ("bank", "shop")
# A job that a version can be gone on from, as far as that is asked.
LIKE = {
    "family": "linear", "loss": "logistic", "parties": NAMES, "holders": ("bank",), "protection": "masked",
    "sum": "pairwise",
}  # fmt: skip


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """A federation that has trained the same job twice, and what it said."""
    folder = federation(tmp_path_factory.mktemp("versions"), NAMES, 'kind = "FedSGD"\nepochs = 2')
    said = [run_all(folder, NAMES) for _ in range(2)]
    return folder, said


@pytest.fixture
def trained(twice, tmp_path):
    """A copy of it, so that every test begins with two versions of which the newer one is in use."""
    shutil.copytree(twice[0], tmp_path / "first")
    return tmp_path / "first"


def ids(folder, name="bank"):
    return [version.training for version in Shelf(folder / f"{name}-files", name).versions()]


def model(folder, name, action, *versions):
    return main(["model", action, str(folder / "job.toml"), "--as", name, *versions])


def ask(folder, *options, asker=()):
    """The bank asks about its own people while the shop serves; returns exit codes and what both said."""
    shop = start(folder, "shop", "serve", "--once", *options)
    bank = start(folder, "bank", "predict", "--out", str(folder / "scores.csv"), *asker)
    said = [process.communicate(timeout=LIMIT)[0] for process in (bank, shop)]
    return (bank.returncode, shop.returncode), said


def test_two_runs_are_two_versions_and_nothing_is_overwritten(twice):
    folder, said = twice
    assert ids(folder) == ids(folder, "shop")
    assert len({*ids(folder)}) == 2
    for name in NAMES:
        for number, training in enumerate(ids(folder)):
            place = folder / f"{name}-files" / "versions" / training
            assert f"{name}: version {training[:12]} is in use now" in said[number][name]
            about = json.loads((place / "version.json").read_text())
            assert about["training"] == training
            assert about["algorithm"]["kind"] == "FedSGD"
            assert about["rows"] + about["held_out"] > 300
            assert ("loss" in about["metrics"]) == (name == "bank")
            assert {"people.json", "history.json"} <= {path.name for path in place.iterdir()}
            assert all(path.stat().st_mode & 0o777 == 0o600 for path in place.iterdir())
        first, second = (model_file.load(folder / f"{name}-files", name, one) for one in ids(folder))
        assert first.state[0].tobytes() == second.state[0].tobytes()  # the same job on the same rows


def test_list_show_diff_promote_and_rollback(trained, capsys):
    one, two = ids(trained)
    assert model(trained, "bank", "list") == 0
    shown = capsys.readouterr().out
    assert re.search(rf"{one[:12]} +.  +(.*\n)+.*{two[:12]} +. in use ", shown)
    assert model(trained, "bank", "show", one[:5]) == 0
    assert f"training {one}" in capsys.readouterr().out
    assert model(trained, "bank", "diff", one[:5]) == 0
    shown = capsys.readouterr().out
    assert one[:12] in shown
    assert two[:12] in shown
    assert "age" not in shown  # the coefficients are the same ones
    assert model(trained, "bank", "promote", one[:5]) == 0
    assert f"bank: version {one[:12]} is in use; a `serve` that is running takes it" in capsys.readouterr().out
    assert model(trained, "bank", "list") == 0
    assert re.search(rf"{one[:12]} +. in use, by hand ", capsys.readouterr().out)
    assert model(trained, "bank", "rollback") == 0
    assert f"bank: back to version {two[:12]}" in capsys.readouterr().out
    assert Shelf(trained / "bank-files", "bank").promoted().training == two
    for wrong, sentence in (
        (("promote",), "`colonnade model promote` takes one version, got 0"),
        (("promote", "0" * 33), "'bank' has no version '0000"),
        (("list", "x"), "`colonnade model list` takes no version, got 1"),
        (("diff",), "which versions? give one"),
    ):
        assert model(trained, "bank", *wrong) == 1
        assert sentence in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["model", "list", str(trained / "job.toml"), "--as", "bank", "--what"])
    assert "unrecognized arguments: --what" in capsys.readouterr().err


def test_diff_names_the_coefficients_that_differ(trained, capsys):
    one, two = ids(trained)
    path = trained / "shop-files" / "versions" / one / "shop.colonnade.npz"
    public, arrays = model_file.store.read_party(path)
    arrays["theta"] = arrays["theta"] + [[0.5], [0.0]]
    model_file.store.write_party(path.parent, "shop", {k: v for k, v in public.items() if k != "party"}, arrays)
    assert model(trained, "shop", "diff", one, two) == 0
    shown = capsys.readouterr().out
    assert "spend" in shown
    assert "visits" not in shown


@pytest.mark.parametrize("odd", NAMES)
def test_parties_that_use_different_versions_are_refused_and_told_what_to_do(trained, odd, capsys):
    one, two = ids(trained)
    assert model(trained, odd, "promote", one) == 0
    codes, said = ask(trained)
    assert codes == (1, 1), said
    uses = {name: (one if name == odd else two)[:12] for name in NAMES}
    for me, peer, text in zip(NAMES, reversed(NAMES), said, strict=True):
        assert (
            f"colonnade: the parts of the model are of different trainings: '{me}' uses version {uses[me]}, '{peer}' "
            f"uses version {uses[peer]}; use one at all parties: colonnade model promote job.toml --as {peer} "
            f"{uses[me]} there, or colonnade model promote job.toml --as {me} {uses[peer]} here"
        ) in text
    assert not (trained / "scores.csv").exists()
    # what the sentence says works, and what is served is in the ledger
    other = NAMES[1 - NAMES.index(odd)]
    assert model(trained, other, "promote", one[:12]) == 0
    codes, said = ask(trained)
    assert codes == (0, 0), said
    for name in NAMES:
        runs = [line for line in entries(trained / f"{name}-files" / "ledger.jsonl") if line.get("event") == "run"]
        assert (runs[-1]["purpose"], runs[-1]["training"]) == ("scoring", one)
    # a version that is not promoted can be tried out, by both
    codes, said = ask(trained, "--version", two[:6], asker=("--version", two[:6]))
    assert codes == (0, 0), said


def test_a_part_of_another_training_in_the_right_folder_is_refused(trained):
    """As when a file is restored from the wrong backup."""
    one, two = ids(trained)
    home = trained / "shop-files" / "versions"
    shutil.copy(home / one / "shop.colonnade.npz", home / two / "shop.colonnade.npz")
    shop = start(trained, "shop", "serve", "--once")
    said = shop.communicate(timeout=LIMIT)[0]
    assert shop.returncode == 1
    assert f"the part of the model in 'versions/{two}' of 'shop' is of the training {one[:12]}, the folder of" in said
    # nor as the part of a whole version, when it lies under the other's name with all that belongs to it
    shutil.rmtree(home / two)
    shutil.copytree(home / one, home / two)
    (home / two / "version.json").write_text((home / one / "version.json").read_text().replace(one, two))
    shop = start(trained, "shop", "serve", "--once")
    assert "is of the training" in shop.communicate(timeout=LIMIT)[0]


def test_a_model_from_before_trainings_had_ids_is_still_served(trained, capsys):
    for name in NAMES:
        place, home = shelved(trained, name), trained / f"{name}-files"
        public, arrays = model_file.store.read_party(place / f"{name}.colonnade.npz")
        old = {key: value for key, value in public.items() if key not in ("training", "party", "format")}
        model_file.store.write_party(home, name, old, arrays)
        set_policy(trained, name, 'serve_people = "all"')
    assert model(trained, "bank", "show", "unnamed") == 0
    assert "it has no id: it was trained before trainings had one" in capsys.readouterr().out
    assert model(trained, "shop", "promote", "unnamed") == 0
    codes, said = ask(trained)
    assert codes == (1, 1)
    assert "'shop' has no id, as it is from before trainings had one" in said[0]
    assert "colonnade model promote job.toml --as bank unnamed" in said[1]
    assert model(trained, "bank", "promote", "unnamed") == 0
    assert ask(trained)[0] == (0, 0)


def test_a_run_does_not_take_the_place_of_a_version_that_was_chosen(trained):
    one, _ = ids(trained)
    for name in NAMES:
        assert model(trained, name, "promote", one[:12]) == 0
    said = run_all(trained, NAMES)
    third = ids(trained)[-1]
    assert (
        f"bank: version {third[:12]} is not in use, as another was promoted by hand; to use it: colonnade"
        in said["bank"]
    )
    assert Shelf(trained / "bank-files", "bank").promoted().training == one


def test_a_party_trains_while_it_serves(trained):
    """Neither waits for the other, what is served stays what it was, and the ledger holds both, line by line."""
    _, two = ids(trained)
    *ports, http = free_ports(3)
    job = (trained / "job.toml").read_text()
    for name, port in zip(NAMES, ports, strict=True):
        job = job.replace(f"[parties.{name}]\n", f'[parties.{name}]\nserving = "127.0.0.1:{port}"\n')
    (trained / "job.toml").write_text(job)
    shop = start(trained, "shop", "serve")
    bank = start(trained, "bank", "serve", "--http", f"127.0.0.1:{http}")
    try:
        wait_for(bank, f"the partners are there, version {two[:12]}")
        token = (trained / "bank-files" / "http.token").read_text().strip()
        people = json.loads((shelved(trained, "bank") / "people.json").read_text())["people"][:3]
        body = json.dumps({"ids": people}).encode()
        before = ask_http(http, body=body, token=token)
        assert before[0] == 200
        run_all(trained, NAMES)
        assert len(ids(trained)) == 3
        assert ask_http(http, body=body, token=token) == before
        again = start(trained, "shop", "serve", "--once")
        assert "another process of this party is running" in again.communicate(timeout=LIMIT)[0]
        # the new version is served once the line is made anew
        bank.send_signal(signal.SIGINT)
        bank.communicate(timeout=LIMIT)
        bank = start(trained, "bank", "serve", "--http", f"127.0.0.1:{http}")
        wait_for(bank, f"the partners are there, version {ids(trained)[-1][:12]}")
    finally:
        for process in (bank, shop):
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=LIMIT)
    for name in NAMES:
        path = trained / f"{name}-files" / "ledger.jsonl"
        lines, of_run, purposes = list(entries(path)), "", {}
        for line in lines:
            of_run = line["id"] if line.get("event") == "run" else line.get("of run", of_run)
            if line.get("event") == "run":
                purposes[of_run] = line.get("purpose", "training")
            if line.get("kind") == "prediction":
                assert purposes[of_run] == "scoring", name
            if line.get("kind") == "training id":
                assert purposes[of_run] == "training", name
        assert any("of run" in line for line in lines)
        assert main(["ledger", "verify", str(trained / "job.toml"), "--as", name]) == 0


def test_where_a_party_serves_is_checked(trained, capsys):
    job = (trained / "job.toml").read_text()
    at = re.search(r'address = "(.*)"', job)[1]
    for change, sentence in (
        (("[parties.shop]\n", f'[parties.shop]\nserving = "{at}"\n'), "parties.shop.serving: 'bank' has the same one"),
        ((f'address = "{at}"', 'serving = "127.0.0.1:1"'), "there is no address to train at; give it one"),
    ):
        (trained / "job.toml").write_text(job.replace(*change))
        assert model(trained, "bank", "list") == 1
        assert sentence in capsys.readouterr().err


def shifted(folder, name, change):
    """Write a party's own rows with one cell of each changed, and return the file."""
    with (folder / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    path = folder / "new.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({**row, **change(row)} for row in rows)
    return path


def drift(folder, name, *options):
    return main(["drift", str(folder / "job.toml"), "--as", name, *map(str, options)])


def test_drift_of_own_columns_in_two_periods(trained, capsys):
    assert drift(trained, "shop") == 0
    shown = capsys.readouterr().out
    assert re.search(r"shop's columns, compared with the training *\n(.*\n)+.*spend .* as before", shown)
    new = shifted(trained, "shop", lambda row: {"spend": float(row["spend"]) + 50, "visits": ""})
    assert drift(trained, "shop", "--data", new) == 0
    shown = capsys.readouterr().out
    assert re.search(r"spend .* drifted", shown)
    assert "shop: note: visits: 100 % missing, training 0 %" in shown
    assert drift(trained, "shop", "--data", new, "--before", new) == 0
    assert re.search(r"compared with new.csv *\n(.*\n)+.*visits . 0.0000 . as before .*100.0%", capsys.readouterr().out)
    set_policy(trained, "shop", "max_drift = 0.25")
    assert drift(trained, "shop", "--data", new) == 1
    assert "these rows would not be scored: column 'spend' has drifted" in capsys.readouterr().out
    for options, sentence in (
        (("--scores", "x.csv"), "give both --scores and --scores-before"),
        (("--data", "nowhere.csv"), "nowhere.csv"),
    ):
        assert drift(trained, "shop", *options) == 1
        assert sentence in capsys.readouterr().err
    (shelved(trained, "shop") / "profile.json").unlink()
    assert drift(trained, "shop") == 1
    assert "give earlier rows to compare with: --before FILE" in capsys.readouterr().err


def test_what_does_not_fit_is_noted_where_people_are_scored_and_a_limit_refuses(trained, capsys):
    new = shifted(trained, "bank", lambda row: {"age": "", "city": "Bern"})
    (trained / "shop.csv").write_text(shifted(trained, "shop", lambda _: {"spend": 3}).read_text())
    new = shifted(trained, "bank", lambda row: {"age": "", "city": "Bern"})
    codes, said = ask(trained, asker=("--data", str(new)))
    assert codes == (0, 0), said
    assert "bank: note: age: 100 % missing, training" in said[0]
    assert re.search(r"bank: note: city: \d+ of \d+ people have 1 value that training never saw \('Bern'\)", said[0])
    assert "shop: note: spend: always 3" in said[1]
    (trained / "scores.csv").rename(trained / "old.csv")
    set_policy(trained, "bank", "max_missing = 0.5")
    before = (trained / "bank-files" / "ledger.jsonl").read_bytes()
    bank = start(trained, "bank", "predict", "--data", str(new), "--out", str(trained / "scores.csv"))
    told = bank.communicate(timeout=LIMIT)[0]
    assert bank.returncode == 1
    assert "column 'age' is missing in 100.0% of the rows" in told
    assert not (trained / "scores.csv").exists()
    assert (trained / "bank-files" / "ledger.jsonl").read_bytes() == before  # nobody was dialled
    set_policy(trained, "bank")
    assert ask(trained)[0] == (0, 0)
    capsys.readouterr()
    scores = ("--scores", trained / "scores.csv", "--scores-before", trained / "old.csv")
    assert drift(trained, "bank", *scores) == 0
    assert re.search(r"bank: the score: \d\.\d{4}, \w.*; \d+ people before, \d+ now", capsys.readouterr().out)


# -- starting from a version -------------------------------------------------------------------------------------------


def run_from(folder, **versions):
    """Train at all parties, each from the version that it is told to start from; return codes and what they said."""
    started = [
        start(folder, name, "run", "--quiet", *(("--from", one) if one else ())) for name, one in versions.items()
    ]
    said = [process.communicate(timeout=LIMIT)[0] for process in started]
    return [process.returncode for process in started], said


def test_training_starts_from_a_version_and_needs_fewer_rounds(tmp_path, capsys):
    folder = federation(tmp_path, NAMES, 'kind = "BlockNewton"\nepochs = 60')
    run_all(folder, NAMES)
    (cold,) = ids(folder)
    codes, said = run_from(folder, bank=cold[:8], shop=cold[:8])
    assert codes == [0, 0], said
    _, warm = ids(folder)
    histories = [
        json.loads((folder / "bank-files/versions" / one / "history.json").read_text()) for one in (cold, warm)
    ]
    epochs = [max(record["epoch"] for record in history) for history in histories]
    rounds = [max(record["rounds"] for record in history) for history in histories]
    losses = [min(record["loss"] for record in history) for history in histories]
    # how many rounds there are is a matter of one evaluation more or less; where they begin is not
    assert epochs[1] <= epochs[0], histories
    assert rounds[1] <= rounds[0]
    assert abs(histories[1][0]["loss"] - losses[0]) < 1e-3 < histories[0][0]["loss"] - losses[0]
    assert losses[1] <= losses[0] + 1e-6
    shelf = Shelf(folder / "shop-files", "shop")
    assert [version.parent for version in shelf.versions()] == ["", cold]
    assert model(folder, "bank", "list") == 0
    assert "started from" in capsys.readouterr().out
    lines = [line for line in entries(folder / "bank-files" / "ledger.jsonl") if line.get("event") == "run"]
    assert [line.get("start") for line in lines] == [None, cold]
    # everybody has to start from the same one
    codes, said = run_from(folder, bank=warm, shop=cold)
    assert codes == [1, 1]
    assert (
        f"'bank' starts from version {warm[:12]}, 'shop' starts from version {cold[:12]}; give the same version with "
        f"--from at all parties, or leave it out at all"
    ) in said[0]
    codes, said = run_from(folder, bank=None, shop=cold)
    assert codes == [1, 1]
    assert f"'bank' starts from zero, 'shop' starts from version {cold[:12]}" in said[0]
    assert len(ids(folder)) == 2
    # before anybody is dialled
    party = read_party(folder / "bank.toml", read_job(folder / "job.toml"))
    for changed, sentence in (
        ({"protection": "sealed"}, "sealed training ends at the optimum wherever it starts"),
        ({"sum": "encrypted"}, "shares of coefficients start at zero"),
        ({"loss": "square"}, "has another kind than the job: LogisticRegression, not RidgeRegression"),
        ({"family": "trees", "loss": "logistic"}, "has another family than the job: linear, not trees"),
    ):
        described = SimpleNamespace(**{**LIKE, **changed})
        with pytest.raises(OptionError, match=sentence):
            Start.of(described, party, cold)
    part = Start.of(SimpleNamespace(**LIKE), party, cold)
    with pytest.raises(DataError, match=r"with the same columns in the same order alone, and 'height' differs"):
        part.own((*part.part.columns, "height"))


def test_families_that_cant_start_from_a_version_say_so():
    for name in ("kernel", "torch", "trees"):
        with pytest.raises(OptionError, match="is trained from its beginning; linear models"):
            family(name).start_of(None)
