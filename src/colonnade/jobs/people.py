"""About whom a party asks and answers with a trained model, and about how many of them in a day.

Whoever may ask about anybody finds out who is a customer, by asking about every id that there could be. By default,
therefore, scores are about the people of the training alone: whom the parties have in common, each of them knows by
then. Every party keeps which of its own ids these are, beside its part of the model (`people.json`). Others are
answered as people whom it does not know. `[policy] serve_people` says it if that shall be different.

How many people each asker was answered about today stands in `asked.json`. It is written before an answer leaves, so
that no restart gives a budget back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.data.ids import canonical, normal
from colonnade.errors import DataError, OptionError
from colonnade.families.store import SUFFIX
from colonnade.jobs.party_file import PartyFile

FORMAT = 1
FEW, DAY = "few", "day"  # why a question is not answered

Refusal = tuple[str, int, int]  # why, what the policy says, how many people are left today


def remember(party: PartyFile, folder: Path, ids: Any, rows: npt.NDArray[np.int64] | None) -> None:
    """Keep who was in the training, beside the part of the model that was saved in this folder just now."""
    path = folder / "people.json"
    if ids is None or rows is None:  # rows that are aligned already need no ids
        path.unlink(missing_ok=True)
        return
    common = canonical(ids, f"party {party.name!r}", repeated=True)[rows]
    names = list(dict.fromkeys(str(one) for one in common.tolist()))  # a person may have several rows
    kept = {"format": FORMAT, "model": _digest(party, folder), "people": names}
    _write(path, kept)


def served(party: PartyFile, folder: Path) -> frozenset[str] | None:
    """Return about whom this party asks and answers, as ids in their normal form; None stands for everybody.

    folder: where its part of the model lies.
    """
    if party.policy.serve_people == "all":
        return None
    return _trained(party, folder) if party.policy.serve_list is None else _listed(party.policy.serve_list)


def _trained(party: PartyFile, folder: Path) -> frozenset[str]:
    path, instead = folder / "people.json", 'or say whom to serve: serve_people = "listed" or "all" in [policy]'
    if not path.exists():
        raise DataError(
            f"{party.name!r} serves the people of the training, and {path.name!r}, which names them, is not in "
            f"{folder.name!r}: the model was trained without ids, or by an older version; train again, {instead}"
        )
    kept = _read(path, _of_people, f"restore it from a backup together with the model, {instead}")
    if kept.get("model") != _digest(party, folder):
        raise DataError(
            f"{path.name!r} in {folder.name!r} names the people of another model than {party.name!r} has there; "
            f"restore both from one backup, or train again, {instead}"
        )
    return frozenset(str(one) for one in kept["people"])


def _listed(path: Path) -> frozenset[str]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"serve_list {str(path)!r} can't be read ({error}); give a file with one id per line") from None
    return frozenset(text for line in lines if (text := normal(line)))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


@dataclass(frozen=True)
class Gate:
    """How much one asker may ask: people at a time, and people in a day (UTC), whenever this party is started."""

    path: Path
    asker: str
    least: int
    most: int
    say: Callable[[str], None] = lambda _: None
    today: Callable[[], str] = _today

    @classmethod
    def of(cls, party: PartyFile, asker: str, people: frozenset[str] | None, say: Callable[[str], None]) -> Gate:
        """Make the gate that the party's policy asks for; `people` are those about whom it answers."""
        most = party.policy.people_per_day(None if people is None else len(people))
        return cls(party.folder / "asked.json", asker, party.policy.min_prediction, most, say)

    def __call__(self, people: int) -> Refusal | None:
        """Return why a question about so many people is not answered; None if it is, and then they are counted."""
        day, asked = self.today(), self._asked()
        if asked.get("day") != day:
            asked = {"format": FORMAT, "day": day, "asked": {}}
        before: int = asked["asked"].get(self.asker, 0)
        left = max(self.most - before, 0)
        if people < self.least or people > left:
            why = FEW if people < self.least else DAY
            key = f"min_prediction = {self.least}" if why == FEW else f"max_people_per_day = {self.most}"
            self.say(f"refused {self.asker} a question about {people:,} people, by {key}, {left:,} are left today")
            return why, self.least if why == FEW else self.most, left
        asked["asked"][self.asker] = before + people
        _write(self.path, asked)
        return None

    def _asked(self) -> dict[str, Any]:
        if not self.path.exists():
            return {}
        return _read(self.path, _of_a_day, "remove it, and the count of today begins anew")


def _digest(party: PartyFile, folder: Path) -> str:
    """Return the digest of the party's part of the model."""
    with (folder / f"{party.name}{SUFFIX}").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(path: Path, fits: Callable[[Any], bool], advice: str) -> dict[str, Any]:
    try:
        with private_files.reading(path, path.name, OptionError) as file:
            kept = json.load(file)
        whole = kept["format"] == FORMAT and fits(kept)
    except OptionError:  # others could read or change it
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole = False
    if not whole:
        raise DataError(f"{path.name!r} in {path.parent.name!r} can't be read, it was changed or cut off; {advice}")
    return dict(kept)


def _of_people(kept: Any) -> bool:
    return isinstance(kept["model"], str) and isinstance(kept["people"], list)


def _of_a_day(kept: Any) -> bool:
    return isinstance(kept["day"], str) and {*map(type, kept["asked"].values())} <= {int}


def _write(path: Path, value: dict[str, Any]) -> None:
    """Write a file for its owner only, as it names customers, or tells who asks about how many."""
    try:
        private_files.write(path, json.dumps(value))
    except OSError as error:
        raise DataError(f"{path.name!r} can't be written to {path.parent.name!r}: {error.strerror}") from None
