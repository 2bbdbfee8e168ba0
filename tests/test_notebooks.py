"""The notebooks: every cell runs, one after another, and each shows what it is there to show.

They are run without Jupyter here; `make docs` runs them in its kernel and puts what they print and draw on the site.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from website.notebooks import as_markdown, cells, executed_plainly

FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.fixture(autouse=True)
def pictures(monkeypatch, tmp_path):
    """Draw into memory, and put everything away afterwards."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    monkeypatch.chdir(tmp_path)
    with matplotlib.rc_context():
        yield plt
    plt.close("all")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs(path, pictures, capsys):
    names = executed_plainly(path)
    said = capsys.readouterr().out
    assert len(pictures.get_fignums()) >= 2
    if path.stem == "two-parties":
        assert "'" not in said
        alone, both, sealed = (float(number) for number in re.findall(r"AUC ([0-9.]+)", said))
        assert both > alone + 0.005
        assert abs(both - sealed) < 1e-3
        assert " signal " in said.split("sealed: AUC")[0]
        assert " signal " not in said.split("sealed: AUC")[1]
    elif path.stem == "comparing-algorithms":
        rounds = {name.strip(): int(count) for name, count in re.findall(r"^(.+?) +(\d+) rounds", said, re.MULTILINE)}
        assert min(rounds, key=rounds.get) == "block Newton"
        assert len(rounds) == 5
    elif path.stem == "audit-of-a-run":
        assert names["found"].worst == 1.0
        assert "True" in said
    else:
        raise AssertionError(f"what does {path.name} show?")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path):
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")
    kind, text = cells(path)[0]
    assert kind == "markdown"
    assert text.startswith("# ")


def test_a_cell_that_fails_fails_the_notebook(tmp_path):
    path = tmp_path / "wrong.ipynb"
    code = [{"cell_type": "code", "source": [text]} for text in ("x = 1", "assert x == 2")]
    path.write_text(json.dumps({"cells": code}))
    with pytest.raises(AssertionError):
        executed_plainly(path)
    path.write_text(json.dumps({"cells": code[:1]}))
    assert executed_plainly(path)["x"] == 1


def test_outputs_become_a_page():
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": "3 rounds\n"},
        {"output_type": "stream", "name": "stderr", "text": "noise"},
        {"output_type": "display_data", "data": {"image/png": "iVBO\n", "text/plain": "<Figure>"}},
        {"output_type": "execute_result", "data": {"text/html": "<style>p {}</style>\n<table>\n\n</table>"}},
        {"output_type": "execute_result", "data": {"text/plain": "0.5"}},
    ]
    notebook = {
        "cells": [
            {"cell_type": "markdown", "source": "# Title"},
            {"cell_type": "code", "source": "print(1)", "outputs": outputs},
        ]
    }
    page = as_markdown(notebook, "some.ipynb")
    assert page.startswith("# Title\n\n<p")
    assert "```python\nprint(1)\n```\n\n```text\n3 rounds\n```" in page
    assert "noise" not in page
    assert "<style" not in page
    assert 'src="data:image/png;base64,iVBO"' in page
    assert "<table>\n</table>" in page
    assert page.rstrip().endswith("```text\n0.5\n```")
