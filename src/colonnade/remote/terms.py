"""What all parties of a run agree on before it: their names in one order, and one job. Where jobs differ, in what."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from colonnade.errors import HandshakeFailed, OptionError

MAX_JOB = 1 << 18  # bytes
_ABSENT = "nothing"
_BARE_KEY = re.compile("[A-Za-z0-9_-]+")  # any other key is quoted, as in TOML: a dot in it is no table


def flatten(job: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(key, value as JSON) of everything in a job; an empty table or list is a value too."""
    if isinstance(job, Mapping) and (job or not path):
        for key, value in job.items():
            name = key if isinstance(key, str) and _BARE_KEY.fullmatch(key) else json.dumps(key)
            yield from flatten(value, f"{path}.{name}" if path else name)
    elif isinstance(job, (list, tuple)) and job:
        for at, value in enumerate(job):
            yield from flatten(value, f"{path}[{at}]")
    else:
        # TOML's dates and times are the only values that JSON does not know.
        yield path, json.dumps(job, default=lambda value: value.isoformat())


@dataclass(frozen=True)
class RunTerms:
    """What every party of a run has to hold: the names of all, in one order, and the same job."""

    names: tuple[str, ...]
    entries: tuple[tuple[str, str], ...]
    digest: bytes

    @classmethod
    def of(cls, names: tuple[str, ...], job: Mapping[str, Any]) -> RunTerms:
        """The terms of a job as its TOML file holds it; the order of its keys does not matter."""
        try:
            entries = (("(parties)", json.dumps(names)), *sorted(flatten(job)))
        except (TypeError, ValueError, AttributeError) as error:
            raise OptionError(f"a job holds tables, lists, texts, numbers, dates and times only: {error}") from None
        canonical = json.dumps(entries).encode()
        if len(canonical) > MAX_JOB:
            raise OptionError(f"a job of {len(canonical)} bytes, at most {MAX_JOB} are allowed; move data out of it")
        return cls(names, entries, hashlib.sha256(canonical).digest())


def difference(mine: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[str, str, str]:
    """(key, here, there) of the first entry that two jobs do not share; elements of lists come last.

    The list of what a job discloses follows from the rest of it, so that a difference there is no reason but a result.
    """
    for key in sorted({*mine, *theirs}, key=lambda key: ("[" in key, key)):
        here, there = mine.get(key, _ABSENT), theirs.get(key, _ABSENT)
        if here != there:
            return key, here, there
    raise HandshakeFailed("its job has another digest, and yet the same entries")
