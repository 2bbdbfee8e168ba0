"""The examples: each is run whole, as a script, and says what it is there to show."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from test_federation import LIMIT

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py"))


def shares(said):
    return [float(number) for number in re.findall(r"([0-9.]+)%", said)]


def check(name, said):
    """What this example is there to show."""
    if name == "two_companies.py":
        assert "$ colonnade run" in said
        assert "bank: trained on 1,920 common rows; protection sealed" in said
        assert "the bank asked about 2400 customers and has scores for the 1920 whom both serve" in said
    elif name == "several_label_holders.py":
        alone, both = shares(said)
        assert "labels of north and south" in said
        assert both > alone + 1
    elif name == "boosted_trees.py":
        line, alone, both, *_ = shares(said)
        assert both > max(line, alone) + 15
        ranges = [int(count) for count in re.findall(r"\w+ in (\d+)", said)]
        assert ranges
        assert max(ranges) <= 8
    elif name in ("kernels.py", "networks.py"):
        simple, better = shares(said)
        assert simple < 60
        assert better > 90
        assert ("embeddings in the clear" in said) == (name == "networks.py")
    elif name == "encrypted_signals.py":
        shown, plain, encrypted = shares(said)
        assert shown == 100
        assert plain == encrypted
        assert "'signal'" in said.splitlines()[1]
        assert "'signal'" not in said.splitlines()[2]
        assert float(re.search(r"differ by (\S+) at most", said)[1]) < 1e-6
    else:
        raise AssertionError(f"what does {name} show?")


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "two_companies.py"])
def test_an_example_shows_what_it_is_there_for(name, capsys):
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    check(name, capsys.readouterr().out)


def as_a_script(name, folder):
    """Start it in a process of its own, from another folder, as a user would."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(FOLDER / name)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def test_two_companies_run_from_files_to_scores(tmp_path):
    check("two_companies.py", as_a_script("two_companies.py", tmp_path))


@pytest.mark.skipif(os.environ.get("COLONNADE_ALL") != "1", reason="`make test-all` runs it")
def test_all_examples_run_as_a_user_would_start_them(tmp_path):
    for name in SCRIPTS:
        check(name, as_a_script(name, tmp_path))


def test_the_index_names_every_example():
    text = (FOLDER / "README.md").read_text()
    assert set(re.findall(r"^\| \[(\w+\.py)\]", text, re.MULTILINE)) == set(SCRIPTS)
    for name in SCRIPTS:
        assert f"python examples/{name}" in (FOLDER / name).read_text()
