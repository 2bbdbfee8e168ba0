"""Versions between organisations: two trainings of one job, which one is used, and parts that do not fit together."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from colonnade.cli.main import main
from colonnade.jobs import model_file
from colonnade.ledger.ledger import entries
from colonnade.versions.shelf import Shelf
from test_federation import LIMIT, federation, run_all, set_policy, shelved, start

NAMES = ("bank", "shop")


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
