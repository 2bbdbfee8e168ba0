"""The tutorial is run as it stands, block after block; terminals run side by side."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from ports import free_ports
from report_contents import Strict
from test_federation import LIMIT

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^```(python|sh)(?: (\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def walk(page, folder, job, together):
    """Run a page's blocks as they stand, so many terminals at once, and return what the terminals said."""
    blocks = BLOCK.findall(page)
    assert [kind for kind, *_ in blocks].count("sh") >= 6
    path = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    options = {
        "cwd": folder,
        "env": environment,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }
    waiting, heard = [], ""

    def all_done():
        nonlocal heard
        for process, text in waiting:
            said = process.communicate(timeout=LIMIT)[0]
            assert process.returncode == 0, (text, said)
            heard += said
        waiting.clear()

    for kind, how, text in blocks:
        if how != "terminal" or len(waiting) == together:
            all_done()
        if how == "terminal":
            waiting.append((subprocess.Popen(["sh", "-c", text], **options), text))
            continue
        command = [sys.executable, "-c", text] if kind == "python" else ["sh", "-ec", text]
        done = subprocess.run(command, timeout=LIMIT, check=False, **options)
        assert done.returncode == (3 if how == "fails" else 0), (text, done.stdout)
        if "init" in text:  # ports that are free here
            written = (folder / job).read_text()
            for number, port in enumerate(free_ports(2)):
                written = written.replace(f"127.0.0.1:{7443 + number}", f"127.0.0.1:{port}")
            (folder / job).write_text(written)
    all_done()
    return heard


def test_three_clinics_in_fifteen_minutes(tmp_path):
    page = (DOCS / "horizontal.md").read_text()
    heard = walk(page, tmp_path, "trial/job.toml", 4)
    shown = re.findall(r"^    (clinic-b: .*)$", page, re.MULTILINE)
    assert len(shown) == 2
    assert "\n".join(shown) in heard
    lines = (tmp_path / "scores.csv").read_text().splitlines()
    assert lines[0] == "id,known,prediction,p(ill),p(well)"
    assert len(lines) == 251


def test_two_companies_in_fifteen_minutes(tmp_path):
    page = (DOCS / "two-companies.md").read_text()
    heard = walk(page, tmp_path, "loans/job.toml", 2)
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
