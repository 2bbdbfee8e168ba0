"""Time everything, print tables, keep them in RESULTS.md. `--quick` only sees that it works and keeps nothing."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import shortest  # noqa: E402
from measures import MEASURES, ON_REQUEST  # noqa: E402
from reproductions.datasets import MissingData  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, results are not kept")
    parser.add_argument("--only", help="run the one measure of this name, and keep its results among the others")
    options = parser.parse_args()
    shortest.quick = options.quick
    console, text = (
        Console(),
        [
            "# Benchmarks\n",
            "Made by `make bench`. Timings are noisy: trust the ratios, which are within one run.",
            f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.machine()}.\n",
        ],
    )
    for measure in (*MEASURES, *(ON_REQUEST if options.only else ())):
        if options.only and measure.__name__ != options.only:
            continue
        title = (measure.__doc__ or "").strip()
        with console.status(title):
            try:
                rows = measure(options.quick)
            except MissingData as error:  # the others can be measured all the same
                rows = [("not measured", "-", str(error))]
        table = Table(title=title, title_justify="left")
        for heading in ("what", "measured", "beside"):
            table.add_column(heading)
        for row in rows:
            table.add_row(*row)
        console.print(table)
        text += [f"## {measure.__name__}", f"{title}\n", "| what | measured | beside |", "| --- | --- | --- |"]
        text += [f"| {' | '.join(row)} |" for row in rows] + [""]
    if not options.quick:
        kept = HERE / "RESULTS.md"
        kept.write_text(with_section(kept.read_text(), "\n".join(text[3:])) if options.only else "\n".join(text))


def with_section(kept: str, section: str) -> str:
    """The results so far with one section in place of its earlier self, or at the end."""
    name = section.split("\n", 1)[0]
    head, *sections = kept.split("\n## ")
    texts = {text.split("\n", 1)[0]: text.rstrip("\n") for text in sections}
    texts[name.removeprefix("## ")] = section.removeprefix("## ").rstrip("\n")
    return "\n\n## ".join([head.rstrip("\n"), *texts.values()]) + "\n"


if __name__ == "__main__":
    main()
