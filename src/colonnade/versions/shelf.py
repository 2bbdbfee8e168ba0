"""All versions of one party, and which of them is in use.

Nothing on the shelf is ever overwritten. Which version is in use stands in `promoted.json`, with those that were in use
before it. A new version comes into use by itself when its run ends, unless somebody has chosen one by hand: whoever
chose (or rolled back) wants that one, and a run that only happened to end later does not change it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.errors import DataError, OptionError, PolicyRefused
from colonnade.families.store import SUFFIX
from colonnade.versions.identity import DIGITS
from colonnade.versions.version import FILE, Version

NEWEST = "newest"  # instead of an id: whichever ended last
UNNAMED = "unnamed"  # instead of an id: the model of the time before trainings had one
_PROMOTED, _FORMAT = "promoted.json", 1
_KEPT = 100  # versions that were in use before, which a file names


@dataclass(frozen=True)
class Promoted:
    """Which version is in use: the ids of those that were and, at the end, that it is; whether somebody chose it."""

    ids: tuple[str, ...] = ()
    by_hand: bool = False


class Shelf:
    """The versions in a party's folder."""

    def __init__(self, folder: Path, party: str) -> None:
        self._folder, self._party = folder, party
        self._home = folder / "versions"

    def place(self, training: str) -> Path:
        """Return the folder of a version that is to be written, and make it."""
        folder = self._home / training
        private_files.make_folder(folder)
        return folder

    def versions(self) -> list[Version]:
        """Return all versions, the oldest first; before them the model of the time before there were any."""
        folders = sorted(self._home.iterdir()) if self._home.is_dir() else []
        found = [Version.read(folder) for folder in folders if (folder / FILE).is_file()]
        found.sort(key=lambda version: (version.date, version.training))
        return [Version("", self._folder), *found] if self._part_in(self._folder).exists() else found

    def find(self, given: str) -> Version:
        """Return the version whose id begins so; `newest` and `unnamed` stand for those."""
        known = self.versions()
        if given == NEWEST and known:
            return known[-1]
        fits = [
            version for version in known
            if (version.training.startswith(given) if version.training else given == UNNAMED)
        ]  # fmt: skip
        if len(fits) == 1 and given:
            return fits[0]
        names = ", ".join(version.name if version.training else UNNAMED for version in known) or "none yet"
        what = f"{len(fits)} versions of {self._party!r} begin with" if fits else f"{self._party!r} has no version"
        raise OptionError(f"{what} {given!r}; there are: {names}")

    def promoted(self) -> Version:
        """Return the version that is in use; where nobody and nothing has chosen, the newest."""
        known = self.versions()
        if not known:
            raise DataError(
                f"{self._party!r} has no part of a model in {self._folder.name!r} yet; train one with `colonnade run`"
            )
        chosen = self._chosen().ids
        if not chosen:
            free = [version for version in known if not version.held]
            return free[-1] if free else self._free(known[-1])
        for version in known:
            if version.training == chosen[-1]:
                return self._free(version)
        raise DataError(
            f"{_PROMOTED!r} in {self._home.name!r} names the version {chosen[-1] or UNNAMED}, which is not there any "
            f"more; restore it from a backup, or choose another: colonnade model promote"
        )

    @property
    def by_hand(self) -> bool:
        """Whether somebody has chosen the version that is in use."""
        return self._chosen().by_hand

    def free(self, given: str) -> Version:
        """Return the version whose id begins so, if it may be used; one that an audit holds back is refused."""
        return self._free(self.find(given))

    def ended(self, version: Version) -> bool:
        """Take a new version into use, unless somebody has chosen another by hand; return whether it is."""
        chosen = self._chosen()
        if chosen.by_hand:
            return False
        before = chosen.ids or (("",) if self._part_in(self._folder).exists() else ())
        self._write(replace(chosen, ids=(*before, version.training)))
        return True

    def promote(self, given: str) -> Version:
        """Take a version into use; `newest` also says that later ones shall come into use by themselves again."""
        version, chosen = self._free(self.find(given)), self._chosen()
        ids = chosen.ids if chosen.ids[-1:] == (version.training,) else (*chosen.ids, version.training)
        self._write(Promoted(ids, given != NEWEST))
        return version

    def rollback(self) -> Version:
        """Take that version into use again which was in use before the present one; it counts as chosen by hand."""
        ids = self._chosen().ids
        if len(ids) < 2:
            raise OptionError(
                f"no version of {self._party!r} was in use before this one; choose one with `colonnade model promote`"
            )
        version = self._free(self.find(ids[-2] or UNNAMED))
        self._write(Promoted(ids[:-1], by_hand=True))
        return version

    def _free(self, version: Version) -> Version:
        """Return a version that may be used, or refuse it."""
        if version.held:
            raise PolicyRefused(
                f"version {version.name} of {self._party!r} is held back, as {version.held}; train another, or choose "
                f"an earlier one with `colonnade model promote`"
            )
        return version

    # -- files --------------------------------------------------------------------------------------------------

    def _part_in(self, folder: Path) -> Path:
        return folder / f"{self._party}{SUFFIX}"

    def _chosen(self) -> Promoted:
        path = self._home / _PROMOTED
        if not path.exists():
            return Promoted()
        try:
            content: Any = json.loads(private_files.read(path, path.name, DataError))
            ids, by_hand = content["ids"], content["by_hand"]
            whole = content["format"] == _FORMAT and type(by_hand) is bool and type(ids) is list
            whole = whole and all(type(one) is str and len(one) in (0, DIGITS) for one in ids)
        except DataError:  # others could change it
            raise
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            whole = False
        if not whole:
            raise DataError(
                f"{_PROMOTED!r} in {self._home.name!r} can't be read, it was changed or cut off; remove it, and choose "
                f"a version with `colonnade model promote`"
            )
        return Promoted(tuple(ids), by_hand)

    def _write(self, chosen: Promoted) -> None:
        private_files.make_folder(self._home)
        content = {"format": _FORMAT, "ids": list(chosen.ids[-_KEPT:]), "by_hand": chosen.by_hand}
        private_files.write(self._home / _PROMOTED, json.dumps(content) + "\n")
