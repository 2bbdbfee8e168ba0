"""What a party can make of what it sees, measured: for every algorithm with 2, 3 and 4 parties.

    python tests/root_view.py            measure everything, and say what has risen
    python tests/root_view.py --write    the same, and write it into tests/views/figures.json and docs/security.md
    python tests/root_view.py --table    the table of docs/security.md again, from the figures that are kept

Names after that (`newton fdskl`) restrict it to these runs; the other figures stay as they are.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # matrices are small: threads would only wait for each other

from views.cells import BY_KEY, PARTIES
from views.figures import figures_of
from views.table import KEPT, kept, name_of, risen, table, write


def main() -> int:
    """Measure, compare, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", help=f"some of {', '.join(BY_KEY)}; all unless told")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--table", action="store_true")
    asked = parser.parse_args()
    if unknown := set(asked.runs) - set(BY_KEY):
        parser.error(f"there is no run {', '.join(sorted(unknown))}; there are {', '.join(BY_KEY)}")
    before = kept() if KEPT.exists() else {}
    if asked.table:
        write(before)
        return 0
    figures, worse = dict(before), 0
    for key in asked.runs or BY_KEY:
        for into in PARTIES:
            start = time.process_time()
            for party, found in figures_of(BY_KEY[key], into).items():
                name = name_of(key, into, party)
                for line in risen(found, before.get(name, found)):
                    print(f"{name}: {line}")
                    worse += 1
                figures[name] = found
            print(f"{key}, {into} parties: {time.process_time() - start:.1f} s of one core", file=sys.stderr)
    if asked.write:
        write(figures)
        return 0
    print(table(figures))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
