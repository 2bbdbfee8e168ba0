"""Run a table or figure of the papers again, or all: `python -m reproductions NAME|all --data FOLDER`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from colonnade.errors import ColonnadeError
from reproductions import MINUTES, REPRODUCTIONS, WITHOUT_DATA

ALL = "all"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one reproduction or all of them; an error is one sentence on stderr and exit code 1."""
    parser = argparse.ArgumentParser(
        prog="python -m reproductions",
        description="Run a table or figure of the papers again, and show it beside the paper's own.",
        epilog="docs/reproductions says what each one shows, how long it takes and which files it reads.",
    )
    listed = ", ".join(f"{name} ({_about(minutes)})" for name, minutes in MINUTES.items())
    parser.add_argument("name", metavar="NAME", choices=[*REPRODUCTIONS, ALL], help=f"{listed}; or {ALL}")
    named = os.environ.get("COLONNADE_DATA")
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        type=_folder,
        default=Path(named) if named else None,
        help="folder of the data sets (default: what the variable COLONNADE_DATA names)",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=Path("reproduced"), help="for tables and plots (%(default)s)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed of the run (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a short form, which only shows that it works")
    options = parser.parse_args(arguments)
    if options.seed < 0:
        parser.error(f"--seed must be a whole number >= 0, got {options.seed}")
    if options.data is None and options.name not in WITHOUT_DATA:
        parser.error(f"{options.name} reads data sets; give their folder with --data, or in COLONNADE_DATA")
    if options.data is not None and not options.data.is_dir():
        parser.error(f"the folder of data sets {str(options.data)!r} does not exist; give one that does with --data")
    names = list(REPRODUCTIONS) if options.name == ALL else [options.name]
    for place, name in enumerate(names, 1):
        if len(names) > 1:
            ahead = sum(MINUTES[later] for later in names[place - 1 :])
            takes = f"{_about(MINUTES[name])}, {_about(ahead)} to the end"
            print(f"\n== {name}, {place} of {len(names)}" + ("" if options.quick else f": {takes}"), flush=True)
        if not _run(name, options):
            return 1
    return 0


def _folder(text: str) -> Path:
    """Return the path; an empty text would be the folder that one is in."""
    if not text.strip():
        raise argparse.ArgumentTypeError("names no folder; give the folder of the data sets")
    return Path(text)


def _run(name: str, options: argparse.Namespace) -> bool:
    """Run one, and tell whether it came to its end."""
    try:
        module = import_module(REPRODUCTIONS[name])
        module.run(options.data or Path("data"), out=options.out, seed=options.seed, quick=options.quick)
    except ColonnadeError as error:
        print(f"reproductions: {error}", file=sys.stderr)
    except OSError as error:
        print(f"reproductions: {error.strerror or error}: {error.filename!r}", file=sys.stderr)
    else:
        return True
    return False


def _about(minutes: int) -> str:
    """Say so many minutes as a person would."""
    if minutes < 90:
        return f"about {minutes} min"
    return f"about {minutes / 60:.1f} h"


if __name__ == "__main__":
    sys.exit(main())
