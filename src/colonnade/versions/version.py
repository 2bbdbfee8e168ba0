"""One version: a training that has ended, and what this party keeps of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.errors import DataError
from colonnade.versions.identity import short

FILE, FORMAT = "version.json", 1
HELD = "held"  # in `about`: why the version must not come into use


@dataclass(frozen=True)
class Version:
    """A version as `version.json` tells of it.

    Attributes
    ----------
    training
        The id of the training; empty for a model of the time before trainings had one.
    folder
        Where this party's part of the model lies, with all that belongs to it.
    about
        When it was trained, of which job, with which options, on how many rows, how well it does as far as this party
        knows, and which version it started from.
    """

    training: str
    folder: Path
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What people call it: the beginning of its id."""
        return short(self.training)

    @property
    def date(self) -> str:
        """When the training ended, in UTC; empty where nobody wrote it down."""
        return str(self.about.get("date", ""))

    @property
    def parent(self) -> str:
        """The id of the version that training started from; empty if it started at zero."""
        return str(self.about.get("parent") or "")

    @property
    def metrics(self) -> dict[str, float]:
        """How well the model does, by the names of the figures; only a label holder knows any."""
        return {key: float(value) for key, value in dict(self.about.get("metrics") or {}).items()}

    @property
    def held(self) -> str:
        """Why this version must not come into use, as the party's audit of it says; empty if it may."""
        return str(self.about.get(HELD) or "")

    def holding(self, why: str) -> Version:
        """Return the same version, written down as held back for this reason, or as free to be used with none."""
        about = {key: value for key, value in self.about.items() if key not in (HELD, "format", "training")}
        found = Version(self.training, self.folder, {**about, HELD: why} if why else about)
        if self.training:  # a model of the time before versions has no such file
            found.write()
        return found

    def write(self) -> None:
        """Write `version.json`: with it, and not before, the version is there."""
        content = {"format": FORMAT, "training": self.training, **self.about}
        private_files.write(self.folder / FILE, json.dumps(content, indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Version:
        """Return the version of a folder; one that can't be believed is refused."""
        try:
            content = json.loads(private_files.read(folder / FILE, "the version's file", DataError))
            training, known = content.pop("training"), content.pop("format")
            fits = known == FORMAT and isinstance(training, str) and isinstance(content.get("metrics", {}), dict)
        except DataError:  # others could read or change it
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            fits = False
        if not fits:
            raise DataError(
                f"{FILE!r} in 'versions/{folder.name}' can't be read, it was changed or cut off; restore it from a "
                f"backup, or move the folder away"
            )
        if training != folder.name:
            raise DataError(
                f"the folder 'versions/{folder.name}' says that it holds the training {short(training)}; give it its "
                f"own name back, {training}"
            )
        return cls(training, folder, content)
