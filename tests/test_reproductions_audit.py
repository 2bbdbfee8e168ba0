"""The audit of every algorithm, in short; and that its page is what the command writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from data_sets import DATA, needs
from reproductions import audit, audit_attacks
from reproductions.__main__ import main as reproduce

PAGE = Path(__file__).parents[1] / "docs" / "reproductions" / "audit.md"


def test_a_short_form_says_what_is_open(tmp_path, capsys):
    assert reproduce(["audit", "--quick", "--out", str(tmp_path)]) == 0
    assert "Above 0.05 it counts as open" in capsys.readouterr().out
    written = (tmp_path / audit.PAGE).read_text()
    assert written.startswith(audit.BEGIN)
    assert written.rstrip().endswith(audit.END)
    rows = [line.split(" | ") for line in written.splitlines() if line.startswith("| sealed") or "FedSGD" in line]
    assert [row[1] for row in rows] == ["2", "2"]
    assert all(row[2] in ("–", "0") and row[3] in ("–", "0") for row in rows if "sealed" in row[0])
    assert all(row[2].startswith("1.00 (") and row[3].startswith("1.00 (") for row in rows if "FedSGD" in row[0])


def test_the_page_has_a_row_for_every_way_to_train_and_no_other():
    table = PAGE.read_text().split(audit.BEGIN)[1].split(audit.END)[0]
    rows = [re.findall(r"^\| (.*?) \| (\d) \|", line) for line in table.splitlines()]
    found = [row[0] for row in rows if row]
    assert found == [(cell.words, str(parties)) for cell in audit.CELLS for parties in audit.PARTIES]


def test_every_claim_of_a_paper_is_about_an_attack_that_is_there():
    assert set(audit_attacks.PAPERS) <= {one.name for one in audit_attacks.ATTACKS}


@needs("ucicreditcard.npz")
def test_attacks_on_data_of_papers_in_short(tmp_path, capsys):
    pytest.importorskip("sklearn")
    assert reproduce(["audit-attacks", "--quick", "--data", str(DATA), "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "signs of signals" in said
    assert "skipped" not in said
