"""Says whether the newest version of a party may come into use, by its figures on held-out people; prints its id if so.

    python gate.py loans/bank-files bank --at-least 0.70 --worse-by 0.01

Only a label holder has such figures. A version that the party's audit holds back is refused whatever they are. The exit
code is 0 for a version that may come into use, 3 where the newest is in use already, and 1 with a sentence for others.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from colonnade.errors import ColonnadeError
from colonnade.versions.shelf import NEWEST, Shelf

ALREADY = 3


def refusal(shelf: Shelf, metric: str, at_least: float, worse_by: float) -> str | None:
    """Return why the newest version may not come into use, or None if it may."""
    new, used = shelf.find(NEWEST), shelf.promoted()
    if new.held:
        return f"version {new.name} is held back, as {new.held}"
    if metric not in new.metrics:
        known = ", ".join(sorted(new.metrics)) or "none at this party"
        return f"version {new.name} has no {metric!r}; figures are {known}"
    found, before = new.metrics[metric], used.metrics.get(metric)
    if found < at_least:
        return f"version {new.name} has {metric} {found:.4f}, and {at_least:g} is asked for"
    if before is not None and found < before - worse_by:
        return f"version {new.name} has {metric} {found:.4f}, and {used.name}, which is in use, has {before:.4f}"
    return None


def main() -> int:
    """Judge, and return the exit code."""
    parser = argparse.ArgumentParser(description="whether the newest version of a party may come into use")
    parser.add_argument("folder", type=Path, help="the party's folder, such as bank-files")
    parser.add_argument("party")
    parser.add_argument("--metric", default="held-out auc", help="as `colonnade model list` calls it (%(default)s)")
    parser.add_argument("--at-least", type=float, default=0.0)
    parser.add_argument("--worse-by", type=float, default=0.0, help="than the version in use, at most (%(default)g)")
    given = parser.parse_args()
    try:
        shelf = Shelf(given.folder, given.party)
        why, new = refusal(shelf, given.metric, given.at_least, given.worse_by), shelf.find(NEWEST)
        already = new.training == shelf.promoted().training
    except ColonnadeError as error:
        why, already = str(error), False
    if why is not None:
        sys.stderr.write(f"gate: {why}\n")
        return 1
    print(new.name)
    return ALREADY if already else 0


if __name__ == "__main__":
    sys.exit(main())
