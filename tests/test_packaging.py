"""What surrounds the package says of it what is so: versions, commands, Pythons."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

import colonnade
from colonnade.cli.main import _parser
from colonnade.compiling import shipped

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def read(path):
    """A YAML file."""
    return pytest.importorskip("yaml").safe_load(path.read_text())


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


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda one: one.stem)
def test_workflows_run_what_there_is(path):
    found, makefile = read(path), (ROOT / "Makefile").read_text()
    assert found["permissions"] == {"contents": "read"}
    assert True in found  # `on` is a truth to YAML
    commands = []
    for job in found["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 120
        for step in job["steps"]:
            assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]) if "uses" in step else step["run"]
            commands.append(step.get("run", ""))
    targets = [
        one for job in found["jobs"].values() for one in job.get("strategy", {}).get("matrix", {}).get("target", [])
    ]
    for target in [*targets, *re.findall(r"make (\w+)", " ".join(commands))]:
        assert re.search(rf"^{target}:", makefile, re.M), target
    for file in re.findall(r"packaging/\S+", " ".join(commands)):
        assert (ROOT / file).is_file()


@pytest.mark.parametrize("path", FORMS, ids=lambda one: one.stem)
def test_issue_forms_ask_something(path):
    found = read(path)
    assert found["name"]
    assert found["description"]
    assert {one["type"] for one in found["body"]} <= {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    for one in found["body"]:
        assert one["attributes"]["value" if one["type"] == "markdown" else "label"]


def test_each_organisation_of_the_rehearsal_sees_its_own_folder_alone():
    found = read(ROOT / "packaging" / "compose.yaml")
    assert found["networks"] == {"between": {"internal": True}}
    for name, one in found["services"].items():
        assert one["volumes"] == [f"../{name}:/party"]
        assert one["command"][-2:] == ["--as", name]
        assert one["read_only"]
        assert one["cap_drop"] == ["ALL"]
        assert (ROOT / one["build"]["dockerfile"]).is_file()


def test_the_image_is_built_from_what_is_sent_to_the_engine():
    """The file beside the Dockerfile lets through what is copied, and nothing else."""
    text = (ROOT / "packaging" / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M) for word in line.split()]
    assert copied
    assert all((ROOT / one).exists() for one in copied)
    everything, *rest = [
        line for line in (ROOT / "packaging" / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] != "#"
    ]
    assert everything == "*"
    assert sorted(line[1:] for line in rest if line.startswith("!")) == sorted(copied)
    needed = {PYPROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]["path"], PROJECT["readme"]}
    assert needed | set(PROJECT["license-files"]) <= set(copied)


def test_numba_is_one_requirement_wherever_it_is_named():
    backend = (ROOT / "packaging" / "build_backend.py").read_text()
    (named,) = re.findall(r'^NUMBA = "(.+)"$', backend, re.M)
    assert PROJECT["optional-dependencies"]["compile"] == [named]
    (elsewhere,) = [one for one in PROJECT["dependencies"] if one.startswith("numba")]
    assert elsewhere == f"{named}; sys_platform != 'linux' or platform_machine != 'x86_64'"
    (folder,) = re.findall(r'^FOLDER = "(.+)"', backend, re.M)
    assert Path(folder) == Path("colonnade") / shipped.FOLDER.relative_to(Path(colonnade.__file__).parent)
