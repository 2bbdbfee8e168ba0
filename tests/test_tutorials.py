"""Tutorials with commands are run as they stand, block after block; terminals run side by side."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

from commands import in_shells, start
from ports import free_ports
from report_contents import Strict
from test_federation import LIMIT

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^```(python|sh)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def walk(pages, folder, job="loans/job.toml", *, together=2, fresh=False):
    """Run the blocks of these pages in one folder, so many terminals at once, and return all that was said.

    fresh: each command in an interpreter of its own, as its users have it, and not forked.
    """
    commands = folder / ".commands"
    commands.mkdir()
    if not fresh:
        in_shells(commands)
    places = (commands, Path(sys.executable).parent, os.environ["PATH"])
    environment = {**os.environ, "PATH": os.pathsep.join(map(str, places))}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    options = {
        "cwd": folder,
        "env": environment,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }
    waiting, dashboards, heard = [], [], ""

    def all_done():
        nonlocal heard
        for process, text in waiting:
            said = process.communicate(timeout=LIMIT)[0]
            assert process.returncode == 0, (text, said)
            heard += said
        waiting.clear()

    for page in pages:
        for kind, how, text in BLOCK.findall((DOCS / page).read_text()):
            if how != "terminal" or len(waiting) == together:
                all_done()
            if how == "dashboard":
                dashboards.append(subprocess.Popen(["sh", "-c", f"exec {text}"], **options))
                continue
            if how == "terminal":
                waiting.append((subprocess.Popen(["sh", "-c", text], **options), text))
                continue
            command = [sys.executable, "-c", text] if kind == "python" else ["sh", "-ec", text]
            done = subprocess.run(command, timeout=LIMIT, check=False, **options)
            assert done.returncode == (3 if how == "fails" else 0), (page, text, done.stdout)
            heard += done.stdout
            if "init" in text and kind == "sh":  # ports that are free here
                path = folder / job
                written = path.read_text()
                for number, port in enumerate(free_ports(2)):
                    written = written.replace(f"127.0.0.1:{7443 + number}", f"127.0.0.1:{port}")
                path.write_text(written)
    all_done()
    for process in dashboards:
        look(process)
    return heard


def look(process):
    """Follow the link that a dashboard has printed, as a browser would, then close it."""
    try:
        link = next(found[0] for line in process.stdout if (found := re.search(r"http://127\.0\.0\.1:\S+", line)))
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(link, timeout=LIMIT) as page:
            passed_on = re.search(r'content="0;url=([^"]+)"', page.read().decode())[1]
        with browser.open(urllib.parse.urljoin(link, passed_on), timeout=LIMIT) as page:
            text = page.read().decode()
        assert "bank" in text
        assert "loans" in text
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT)


def test_three_clinics_in_fifteen_minutes(tmp_path):
    page = (DOCS / "horizontal.md").read_text()
    heard = walk(["horizontal.md"], tmp_path, "trial/job.toml", together=4)
    shown = re.findall(r"^    (clinic-b: .*)$", page, re.MULTILINE)
    assert len(shown) == 2
    assert "\n".join(shown) in heard
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert lines[0] == "id,known,prediction,p(ill),p(well)"
    assert len(lines) == 251


def test_two_companies_in_fifteen_minutes(tmp_path):
    page = (DOCS / "two-companies.md").read_text()
    assert [kind for kind, *_ in BLOCK.findall(page)].count("sh") >= 6
    heard = walk(["two-companies.md"], tmp_path, fresh=True)
    shown = re.findall(r"^    (shop: .*)$", page, re.MULTILINE)
    assert len(shown) == 10
    assert "\n".join(shown) in heard  # as the page has it, in one piece
    for name in ("bank", "shop"):
        (report,) = (tmp_path / "loans" / f"{name}-files").glob("versions/*/report.html")
        page = Strict(report.read_text(encoding="utf-8"))
        assert f"loans: the report of {name}" in page.text
        assert "1 runs. All of them are as they were written." in page.text  # the ledger, which both have
        assert ("No people were held out" in page.text) == (name == "bank")
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert lines[0] == "id,known,prediction,p(lost),p(repaid)"
    assert len(lines) == 2501


def test_five_minutes_and_then_what_the_how_to_pages_say(tmp_path, monkeypatch):
    page = (DOCS / "start.md").read_text()
    heard = walk(["start.md"], tmp_path)
    (accuracy,) = re.findall(r"^    (.*% right after .*)$", page, re.MULTILINE)
    (trained,) = re.findall(r"^    (bank: trained on .*)$", page, re.MULTILINE)
    assert accuracy in heard
    assert trained in heard
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert lines[0] == "id,known,prediction,p(late),p(paid)"
    assert sum(",true," in line for line in lines) == int(trained.split()[3].replace(",", ""))

    monkeypatch.chdir(tmp_path)
    recipes = "".join(path.read_text() for path in sorted((DOCS / "how-to").glob("*.md")))
    commands = [line for kind, _, text in BLOCK.findall(recipes) if kind == "sh" for line in text.splitlines()]
    assert len(commands) >= 10
    for line in commands:
        words, _, allowed = line.partition(" || test $? = ")
        name, *words = words.split()
        assert name == "colonnade"
        process = start(*words)
        said = process.communicate(timeout=LIMIT)[0]
        assert process.returncode in {0, int(allowed or 0)}, (line, said)
        heard += said
    assert "<h1" in (tmp_path / "report.html").read_text()
    assert "all as they were written" in heard
    assert "nothing; nobody learns anything from it but its own coefficients" in heard


def test_the_readme_has_the_same_five_minutes():
    readme, start = ((DOCS / name).read_text() for name in ("../README.md", "start.md"))
    shown = [text for kind, _, text in BLOCK.findall(readme) if kind == "sh" and "pip install" not in text]
    assert len(shown) == 5
    assert [text for text in shown if text not in [block for _, _, block in BLOCK.findall(start)]] == []
    assert re.findall(r"^    (bank: .*)$", readme, re.MULTILINE) == re.findall(r"^    (bank: .*)$", start, re.MULTILINE)
