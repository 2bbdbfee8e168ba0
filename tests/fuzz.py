"""Bytes led by coverage against the readers of bytes: `python tests/fuzz.py codec 60`, as `make fuzz` does.

Ends with code 0 after so many seconds, and at once, with the bytes written to a file, where a reader does anything else
than reading or refusing.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["colonnade", "tomllib"]):
    from fuzz_targets import SEEDS, TARGETS

# A long dotted key costs tomllib more than the square of its length; a file that people write has short ones.
LONGEST = {"codec": 1 << 14, "toml": 1 << 11, "ids": 1 << 10, "certificates": 1 << 12}


def main() -> None:
    name, seconds = sys.argv[1:]
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(SEEDS[name]):
            Path(corpus, f"seed{number}").write_bytes(seed)
        limits = [f"-max_total_time={seconds}", f"-max_len={LONGEST[name]}", "-timeout=10", "-rss_limit_mb=2048"]
        atheris.Setup(
            [sys.argv[0], *limits, "-print_final_stats=1", "-verbosity=0", "-seed=1", corpus],
            atheris.instrument_func(TARGETS[name]),
        )
        atheris.Fuzz()


if __name__ == "__main__":
    main()
