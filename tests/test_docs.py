"""Every Python snippet of README and docs runs, top to bottom, and every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")]
    + [page for folder in ("docs", "examples") for page in (ROOT / folder).rglob("*.md")]
)
# run with their commands in between: test_tutorials.py
TUTORIALS = {ROOT / "docs" / name for name in ("two-companies.md", "horizontal.md")}
FULL = re.DOTALL | re.MULTILINE
SNIPPET = re.compile(r"^```python\n(.*?)^```", FULL)


@pytest.mark.parametrize("page", sorted({*PAGES} - TUTORIALS), ids=lambda p: str(p.relative_to(ROOT)))
def test_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "snippet"}
    for snippet in SNIPPET.findall(page.read_text()):
        exec(compile(snippet, str(page), "exec"), names)
    # pages that show code were really run, pages without code are really without
    assert ("```python" in page.read_text()) == (len(names) > 1)


def test_the_readme_shows_what_its_ten_lines_print(capsys):
    snippet, shown = re.findall(r"^```python\n(.*?)^```\n+```text\n(.*?)^```", (ROOT / "README.md").read_text(), FULL)[
        0
    ]
    exec(compile(snippet, "README.md", "exec"), {})
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    missing = [t for t in targets if not t.startswith("http") and not (page.parent / t).exists()]
    assert missing == []


def test_the_readme_names_commands_that_exist():
    import argparse

    from colonnade.cli.main import _parser

    commands = next(a for a in _parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"make ([a-z]+) ", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    assert set(re.findall(r"(?:`|^)colonnade ([a-z]+)", text, re.MULTILINE)) <= set(commands)


def test_where_is_what_names_files_and_rooms_that_exist():
    source, page = ROOT / "src" / "colonnade", (ROOT / "docs" / "architecture.md").read_text()
    files = re.findall(r"^\|[^|]*\| `([\w/]+\.py)` \|", page, re.MULTILINE)
    assert len(files) >= 7
    assert [file for file in files if not (source / file).is_file()] == []
    rooms = set(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE))
    assert rooms == {path.parent.name for path in source.glob("*/__init__.py")}


def test_guarantees_name_tests_that_exist():
    named = re.findall(r"`((?:contracts/)?test_\w+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 100
    assert not [name for name in named if not (ROOT / "tests" / f"{name}.py").is_file()]


def test_every_reproduction_has_a_page_and_every_page_a_reproduction():
    from reproductions import REPRODUCTIONS

    folder = ROOT / "docs" / "reproductions"
    pages = {page.stem: page.read_text() for page in folder.glob("*.md") if page.name != "README.md"}
    assert set(pages) == set(REPRODUCTIONS)
    assert all(f"    python -m reproductions {name}" in text for name, text in pages.items())
    assert set(re.findall(r"^\| \[([a-z0-9-]+)\]", (folder / "README.md").read_text(), re.MULTILINE)) == set(pages)
    assert "python -m reproductions all" in (ROOT / "Makefile").read_text().split("reproduce:")[1]
