"""`colonnade replay`: a job as it would be run, with made-up partners, and a sentence for each thing that is wrong."""

from __future__ import annotations

import pytest

from colonnade.cli.main import main
from test_federation import federation, write_tables

NAMES = ("bank", "shop")


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = federation(tmp_path_factory.mktemp("replay"), NAMES, 'kind = "BlockNewton"')
    return str(folder / "job.toml")


def lanes(text):
    return {line.split()[0]: line for line in text.splitlines() if line.split()[0] in NAMES}


def test_lanes_are_printed_and_the_page_is_written(job, tmp_path, capsys):
    page = tmp_path / "replay.html"
    assert main(["replay", job, "--as", "bank", "--out", str(page)]) == 0
    said = capsys.readouterr().out
    assert set(lanes(said)) == {*NAMES}
    assert f"the page is {page}" in said
    assert '"parties":["bank","shop"]' in page.read_text()


def test_a_slow_line_takes_longer_and_a_slow_partner_computes_more(job, capsys):
    def shown(*options):
        assert main(["replay", job, "--as", "bank", *options]) == 0
        return capsys.readouterr().out

    usual, far, slow = shown(), shown("--latency", "0.2"), shown("--slow", "shop=1e6")
    assert usual == shown()  # it repeats to the bit
    assert " ms " in usual.splitlines()[0]
    assert " s " in far.splitlines()[0]
    assert lanes(slow)["shop"].count("█") > 20 > lanes(usual)["shop"].count("█")


def test_sealed_training_counts_no_work_and_says_so(tmp_path, capsys):
    folder = tmp_path / "loans"
    assert main(["init", str(folder), "--parties", "bank,shop"]) == 0
    write_tables(folder, NAMES)
    capsys.readouterr()
    sealed = str(folder / "job.toml")

    def shown(*options):
        assert main(["replay", sealed, "--as", "bank", *options]) == 0
        return capsys.readouterr().out

    usual = shown()
    assert "no work was counted" in usual
    assert "--slow changes nothing" in usual
    assert "shares are good to compare" not in usual
    assert shown("--slow", "shop=1e6") == usual


def test_a_partner_that_falls_silent_is_named(job, capsys):
    assert main(["replay", job, "--as", "bank", "--crash", "shop=0.05"]) == 0
    assert "the run failed: party 'shop' was silent" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--slow", "shop"], "--slow takes PARTY=NUMBER, such as shop=4, got 'shop'"),
        (["--slow", "shop=0"], "--slow says 0 for 'shop', more than 0 is needed"),
        (["--slow", "clinic=2"], "--slow names 'clinic', and the parties of this job are 'bank', 'shop'; correct"),
        (
            ["--slow", "shp=2"],
            "--slow names 'shp', and the parties of this job are 'bank', 'shop'; did you mean 'shop'?",
        ),
        (["--crash", "clinic=2"], "--crash names 'clinic', and the parties of this job are 'bank', 'shop'"),
        (["--columns", "shop=2.5"], "--columns says 2.5 columns for 'shop'; give a whole number"),
        (["--columns", "clinic=2"], "--columns names 'clinic'"),
        (["--crash", "shop=-1"], "must be >= 0, got -1"),
        (["--lost", "2"], "lost must be a probability between 0 and 1"),
        (["--latency", "-1"], "latency must be >= 0"),
        (["--megabytes", "0"], "bandwidth must be > 0"),
        (["--out", "nowhere/replay.html"], "is in a folder that is not there"),
        (["--out", "."], "is a folder"),
    ],
)
def test_wrong_options_are_one_sentence(job, capsys, options, words):
    assert main(["replay", job, "--as", "bank", *options]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
