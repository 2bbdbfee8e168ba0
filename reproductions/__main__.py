"""Run a table or figure of the papers again: `python -m reproductions NAME --data FOLDER`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from colonnade.errors import ColonnadeError
from reproductions import REPRODUCTIONS, WITHOUT_DATA


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one reproduction; an error is one sentence on stderr and exit code 1."""
    parser = argparse.ArgumentParser(
        prog="python -m reproductions",
        description="Run a table or figure of the papers again, and show it beside the paper's own.",
        epilog="docs/reproductions says what each one shows, how long it takes and which files it reads.",
    )
    parser.add_argument("name", metavar="NAME", choices=sorted(REPRODUCTIONS), help=", ".join(sorted(REPRODUCTIONS)))
    named = os.environ.get("COLONNADE_DATA")
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        type=Path,
        default=Path(named) if named else None,
        help="folder of the data sets (default: what the variable COLONNADE_DATA names)",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, default=Path("reproduced"), help="for tables and plots (%(default)s)"
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="seed of the run (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a short form, which only shows that it works")
    options = parser.parse_args(arguments)
    if options.data is None and options.name not in WITHOUT_DATA:
        parser.error(f"{options.name} reads data sets; give their folder with --data, or in COLONNADE_DATA")
    if options.data is not None and not options.data.is_dir():
        parser.error(f"the folder of data sets {str(options.data)!r} does not exist; give one that does with --data")
    try:
        module = import_module(REPRODUCTIONS[options.name])
        module.run(options.data or Path("data"), out=options.out, seed=options.seed, quick=options.quick)
    except ColonnadeError as error:
        print(f"reproductions: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"reproductions: {error.strerror or error}: {error.filename!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
