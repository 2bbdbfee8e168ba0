"""What differs between two versions of one party: facts about their trainings, and the party's own part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from colonnade.families import family
from colonnade.jobs import model_file
from colonnade.jobs.party_file import PartyFile
from colonnade.versions.shelf import UNNAMED
from colonnade.versions.version import Version

Row = tuple[str, str, str]  # what, in the first version, in the second


def facts_that_differ(first: Version, second: Version) -> list[Row]:
    """Return the facts about two trainings that are not the same: how they were made, and how well they do."""
    return _unlike(facts_of(first), facts_of(second))


def parts_that_differ(party: PartyFile, first: Version, second: Version) -> list[Row]:
    """Return what is not the same in the party's own parts of two versions."""
    return _unlike(part_of_version(party, first), part_of_version(party, second))


def _unlike(one: Mapping[str, str], other: Mapping[str, str]) -> list[Row]:
    rows = ((key, one.get(key, ""), other.get(key, "")) for key in dict.fromkeys((*one, *other)))
    return [row for row in rows if row[1] != row[2]]


def facts_of(version: Version) -> dict[str, str]:
    """Return what a version's file says of it, as people read it."""
    found: dict[str, str] = {}
    for key, value in version.about.items():
        if isinstance(value, dict):
            found |= {f"{key}: {name}": _plain(one) for name, one in value.items()}
        elif key != "columns":  # they are the rows of the part
            found[key] = _plain(value)
    return found


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else json.dumps(value)


def part_of_version(party: PartyFile, version: Version) -> dict[str, str]:
    """Return the party's own part of a version by its rows, such as a coefficient for each column."""
    part = model_file.load(party.folder, party.name, version.training or UNNAMED)
    told = family(part.public["family"]).describe(party.name, part.public, part.state, part.columns, part.classes)
    return {str(row[0]): ", ".join(map(str, row[1:])) for row in told.rows} or {"part": told.title}
