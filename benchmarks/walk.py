"""How many files a reader walks through to follow a fit, or one party of `colonnade run`.

    python benchmarks/walk.py            # a table
    python benchmarks/walk.py --files    # and every file, in the order in which it is first entered

Functions of the package are taken in the order of their first calls, once each. A change of file is one between two
that follow each other in this order. What an import runs is no part of the walk, nor are comprehensions and lambdas,
which stand where they are read. The bars are for the thread in which the coroutines run; what other threads do for them
(reading a table, a batch of curve points) comes on top in the last column.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
BARS = {"fit": (25, 90), "run": (50, None)}  # files, changes


class Walk:
    """The files of functions, in the order of their first calls."""

    def __init__(self, source: Path) -> None:
        self._source, self._seen = f"{source}/", set[CodeType]()
        self._importing, self._main = threading.local(), threading.get_ident()
        self.files: list[str] = []  # of each function
        self.elsewhere: set[str] = set()  # files of what other threads called first

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if code.co_name == "<module>" and event in ("call", "return"):
            self._importing.depth = getattr(self._importing, "depth", 0) + (1 if event == "call" else -1)
        if event != "call" or code in self._seen or not code.co_filename.startswith(self._source):
            return
        if getattr(self._importing, "depth", 0) == 0 and not code.co_name.startswith("<"):
            file = code.co_filename.removeprefix(self._source)
            if threading.get_ident() == self._main:
                self._seen.add(code)
                self.files.append(file)
            else:
                self.elsewhere.add(file)

    @property
    def changes(self) -> int:
        """How often a function's file is another than that of the function before it."""
        return sum(one != other for one, other in itertools.pairwise(self.files))


@contextmanager
def walking() -> Iterator[Walk]:
    """Follow all that is called in this block, in every thread that starts in it."""
    import colonnade

    walk = Walk(Path(colonnade.__file__).parent)
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def of_fit() -> Walk:
    """`LogisticRegression().fit` of two parties, in this process."""
    from sklearn.datasets import load_breast_cancer

    import colonnade as cn

    data = load_breast_cancer()
    parties = cn.split((data.data - data.data.mean(axis=0)) / data.data.std(axis=0), data.target, into=2)
    model = cn.LogisticRegression(verbose=0)
    with walking() as walk:
        model.fit(*parties)
    return walk


def of_run() -> Walk:
    """One party of `colonnade run`, the one that holds the labels; its partner is as it always is."""
    import two_parties

    with tempfile.TemporaryDirectory() as folder:
        kept, walk = Path(folder) / "walk.json", Walk(Path())
        traced = [sys.executable, __file__, "--keep", str(kept)]
        two_parties.run(two_parties.make(Path(folder) / "walk"), {two_parties.NAMES[0]: traced})
        walk.files, elsewhere = json.loads(kept.read_text())
    walk.elsewhere = set(elsewhere)
    return walk


def keep(path: Path, arguments: list[str]) -> int:
    """Run a command of `colonnade` in this process, and write down which files it walked through."""
    from colonnade.cli.main import main

    with walking() as walk:
        code = main(arguments)
    path.write_text(json.dumps([walk.files, sorted(walk.elsewhere)]))
    return code


def table() -> dict[str, Walk]:
    """Print it; returns the walks."""
    found = {"fit": of_fit(), "run": of_run()}
    print(f"{'':6}{'functions':>12}{'files':>8}{'bar':>6}{'changes':>10}{'bar':>6}{'in threads':>14}")
    for name, walk in found.items():
        most, jumps = BARS[name]
        files, others = set(walk.files), walk.elsewhere - set(walk.files)
        print(f"{name:6}{len(walk.files):>12}{len(files):>8}{most:>6}", end="")
        print(f"{walk.changes:>10}{jumps or '-':>6}{len(others):>+14}")
    return found


def main() -> int:
    if sys.argv[1:2] == ["--keep"]:
        return keep(Path(sys.argv[2]), sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--files", action="store_true", help="name them, each with how many of its functions are called"
    )
    options = parser.parse_args()
    for name, walk in table().items():
        if options.files:
            print(f"\n{name}: files, and how many of their functions are called")
            for file in dict.fromkeys([*walk.files, *sorted(walk.elsewhere)]):
                print(f"{walk.files.count(file) or 'thread':>8}  {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
