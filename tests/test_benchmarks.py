"""The benchmarks' short form: that every measure works. What it measures decides nothing here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_measure_works_and_quick_results_are_not_kept():
    kept = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    command = [sys.executable, "benchmarks/run.py", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for part in ("hops/s", "rounds/s", "ns", "ratio"):
        assert part in done.stdout
    assert (ROOT / "benchmarks" / "RESULTS.md").read_text() == kept
