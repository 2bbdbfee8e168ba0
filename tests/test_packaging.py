"""What surrounds the package says of it what is so: versions, commands, Pythons."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import colonnade
from colonnade.cli.main import _parser

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_citation_is_of_this_version():
    text = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", text, re.M).group(1) == colonnade.__version__ == PROJECT["version"]
    assert f"license: {PROJECT['license']}" in text


def test_the_workflow_tests_every_python_that_is_promised():
    promised = [one.rsplit(" ", 1)[1] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)]
    text = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    assert [one.strip(' "') for one in re.search(r"python: \[(.+)\]", text).group(1).split(",")] == promised


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("colonnade-serve@.service", r"ExecStart=/opt/colonnade/bin/colonnade (.+)"),
        ("compose.yaml", r"command: \[(.+)\]"),
    ],
)
def test_commands_of_services_are_commands(file, pattern):
    found = re.findall(pattern, (ROOT / "packaging" / file).read_text())
    assert found
    for line in found:
        words = [word.strip(",") for word in line.split()]
        options = _parser().parse_args(words)
        assert options.command == words[0]
        assert options.party in ("bank", "shop", "%i")


def test_make_dist_checks_what_it_built():
    assert "packaging/check_dist.py dist --sbom" in (ROOT / "Makefile").read_text()
