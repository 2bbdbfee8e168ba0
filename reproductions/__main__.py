"""`python -m reproductions NAME`: run a table or figure of the papers again, beside the paper's own."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from colonnade.errors import ColonnadeError
from reproductions import REPRODUCTIONS


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one reproduction; an error is one sentence on stderr and exit code 1."""
    parser = argparse.ArgumentParser(prog="python -m reproductions", description=__doc__)
    parser.add_argument("name", choices=sorted(REPRODUCTIONS), help="which one")
    known = os.environ.get("COLONNADE_DATA")
    parser.add_argument(
        "--data",
        type=Path,
        default=None if known is None else Path(known),
        help="folder of the data sets; the variable COLONNADE_DATA names one as well",
    )
    parser.add_argument("--out", type=Path, default=Path("reproduced"), help="folder for tables and plots")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a short form, to see that it works")
    options = parser.parse_args(arguments)
    if options.data is None:
        parser.error("no folder of data sets was named; give --data FOLDER, or set COLONNADE_DATA")
    try:
        module = import_module(REPRODUCTIONS[options.name])
        module.run(options.data, out=options.out, seed=options.seed, quick=options.quick)
    except ColonnadeError as error:
        print(f"reproductions: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"reproductions: {error.strerror or error}: {error.filename!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
