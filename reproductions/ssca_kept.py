"""Runs of the SSCA reproductions, kept in the folder of results: figures share theirs, and a break costs few of them.

A file holds what each run came to, under a digest of the code: after any change of it, everything is run again.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import astuple
from pathlib import Path
from typing import Any

import colonnade
from reproductions.ssca_stage import Digits, Outcome, Run, measure


class KeptRuns:
    """Runs on these digits with so many hidden cells; each is done once, whichever figure asks for it first."""

    def __init__(self, out: Path, digits: Digits, hidden: int) -> None:
        self._path, self._digits, self._hidden = out / "ssca-runs.json", digits, hidden
        self._lock, self._code = threading.Lock(), _code()
        self._found: dict[str, list[Any]] = {}
        if self._path.exists():
            stored = json.loads(self._path.read_text())
            self._found = stored["runs"] if stored["code"] == self._code else {}

    def measure(self, run: Run) -> Outcome:
        """What the run comes to."""
        key = repr((self._digits.rows, self._hidden, astuple(run)))
        known = self._found.get(key)
        if known is None:
            outcome = measure(self._digits, run, self._hidden)
            with self._lock:
                self._found[key] = [*astuple(outcome)]
                text = json.dumps({"code": self._code, "runs": self._found})
                self._path.with_suffix(".part").write_text(text)
                self._path.with_suffix(".part").replace(self._path)
            return outcome
        rounds, cost, accuracy, norm, slack = known
        return Outcome(tuple(rounds), tuple(cost), tuple(accuracy), tuple(norm), slack)


def _code() -> str:
    """A digest of all code that a run could depend on."""
    found = hashlib.sha256()
    for folder in (Path(colonnade.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()
