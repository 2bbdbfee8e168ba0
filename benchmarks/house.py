"""How large the house is: files and lines of the wheel, its rooms, and what stands against the rules for them.

python benchmarks/house.py
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "colonnade"
BARS = {"files": 170, "lines": 27_000, "largest room": 20, "top-level modules": 5, "names of several classes": 0}


def class_names(text: str) -> list[str]:
    """Of the classes at the top of a module; a private one disturbs nobody."""
    found = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return [name for name in found if not name.startswith("_")]


def measure() -> tuple[dict[str, int], dict[str, list[str]], Counter[str]]:
    """(figures with a bar, the homes of every class name, files by room)."""
    texts = {path.relative_to(SOURCE): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    rooms = Counter(path.parts[0] for path in texts if len(path.parts) > 1)
    homes = defaultdict(list)
    for path, text in texts.items():
        for name in class_names(text):
            homes[name].append(str(path))
    lengths = [len(text.splitlines()) for text in texts.values()]
    figures = {
        "files": len(texts),
        "lines": sum(lengths),
        "median file": round(statistics.median(lengths)),
        "largest room": max(rooms.values()),
        "top-level modules": sum(len(path.parts) == 1 and path.stem != "__init__" for path in texts),
        "names of several classes": sum(len(found) > 1 for found in homes.values()),
    }
    return figures, homes, rooms


def main() -> None:
    figures, homes, rooms = measure()
    for name, figure in figures.items():
        bar = "100 to 250" if name == "median file" else f"{BARS[name]:,}"
        print(f"{name:26}{figure:>8,}   bar: {bar}")
    print("\nrooms: " + ", ".join(f"{room} {count}" for room, count in rooms.most_common()))
    for name, found in sorted(homes.items()):
        if len(found) > 1:
            print(f"{name:26}{', '.join(found)}")


if __name__ == "__main__":
    sys.exit(main())
