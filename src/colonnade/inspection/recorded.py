"""What a party writes down of a run, and the recording that it keeps in the version's folder, for an audit.

Nothing of it is ever sent. It is made only where the party's file asks for it (`[audit] record`) and its policy allows
it (`[policy] record`), and it is believed only under the party's own key: see `views.recording_file`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import DataError
from colonnade.jobs.allowed import audit_terms, job_digest
from colonnade.jobs.budget import Budget
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.progress import human_bytes
from colonnade.runtimes.net import Net
from colonnade.tables.table import Table
from colonnade.versions.version import Version
from colonnade.views.kept import MEGABYTE, KeptView, view_from_value, view_to_value
from colonnade.views.recording import RecordedNet
from colonnade.views.recording_file import RECORDING, read_recording, secret_of, write_recording
from colonnade.views.view import View

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RecordedRun:
    """What a party has kept of a run.

    Attributes
    ----------
    view
        What it saw and what it told.
    trained_on
        The rows of its table that were trained on, in the order of the run.
    people
        How many people there were, held-out ones too.
    ids
        A digest of the ids of the table at that time.
    outputs
        How many scores a row had.
    sources
        How many columns of the table the prepared ones were made of.
    charged
        How many numbers about each person the party's budget counted in this run; None where none did.
    job, terms
        Digests of the job, and of all that decides what a run shows (`jobs.allowed.audit_terms`), as they were then.
    notes
        What the recording lacks, in sentences.
    """

    view: View
    trained_on: Rows
    people: int
    ids: bytes
    outputs: int
    sources: int
    charged: float | None
    job: str
    terms: str
    notes: tuple[str, ...] = ()


_IDS = 1 << 16  # ids that are hashed at a time


class Recorder:
    """Writes down one run of one party, where its file asks for that; else it does nothing."""

    def __init__(self, job: Job, party: PartyFile, budget: Budget | None = None) -> None:
        self.view = KeptView(party.name, job.parties, most=party.record_mb * MEGABYTE) if party.record_mb else None
        self._job, self._party, self._budget, self._resumed = job, party, budget, 0

    def around(self, net: Net) -> Net:
        """Return the net through which the run is to be looked at."""
        if self.view is None:
            return net
        found: Any = RecordedNet(net, self.view)
        return found  # type: ignore[no-any-return]

    def observe(self, value: Any) -> None:
        """Hear of what a run reports: one that goes on from a checkpoint is recorded from there."""
        if value[0] == "resumed":
            self._resumed = int(value[1])

    def keep(self, folder: Path, training: str, source: Any, trained: Any, tell: Callable[[str], None]) -> None:
        """Write the recording into a version's folder, encrypted."""
        if self.view is None:
            return
        trained_on = np.asarray(source.trained_on, dtype=np.int64)
        self.view.rows = len(trained_on)
        notes = [f"the recording ended early: {self.view.ended}"] if self.view.ended else []
        notes += [f"it begins at epoch {self._resumed}, from which the run went on"] if self._resumed else []
        if self.view.lost:
            notes.append(f"from step {self.view.lost!r} on, nothing in the open says which people numbers are about")
        people = trained.rows + trained.held_out
        charged = None if self._budget is None else float(self._budget.charged)
        counts = (int(trained.outputs), int(trained.prepared.sources))
        of = (job_digest(self._job), audit_terms(self._job, self._party))
        facts = (trained_on, int(people), source.digest(), *counts, charged, *of, tuple(notes))
        value = (view_to_value(self.view), *facts)
        secret = secret_of(self._party.folder, make=True)
        size = write_recording(folder / RECORDING, secret, _whose(self._party.name, training), value)
        tell(
            f"what it saw of the run is in {folder / RECORDING}, encrypted, {human_bytes(size)}; `colonnade audit` "
            f"reads it"
        )
        for note in notes:
            tell(note)


def recorded_run(party: PartyFile, version: Version) -> RecordedRun | None:
    """Return what a party has kept of the run that made a version; None where it has recorded nothing."""
    path = version.folder / RECORDING
    if not path.exists():
        return None
    value = read_recording(path, secret_of(party.folder), _whose(party.name, version.training))
    try:
        told, trained_on, people, ids, outputs, columns, charged, job, terms, notes = value
        rows = np.asarray(trained_on, dtype=np.int64)
        counts = (people, ids, outputs, columns, charged)
        found = RecordedRun(view_from_value(told), rows, *counts, str(job), str(terms), tuple(notes))
    except DataError:
        raise
    except (TypeError, ValueError) as error:
        raise DataError(f"{path.name!r} in {path.parent.name!r} is of another version of colonnade ({error})") from None
    return found


def ids_digest(table: Table) -> bytes:
    """Return a digest of the ids of a table in their order, or of how many rows it has."""
    ids: npt.NDArray[Any] = np.arange(table.rows) if table.ids is None else np.asarray(table.ids)
    found = hashlib.sha256(str(ids.dtype.kind).encode())
    for at in range(0, len(ids), _IDS):  # Python's own values take five times the memory
        found.update("".join(f"{one!r}\n" for one in ids[at : at + _IDS].tolist()).encode())
    return found.digest()


def _whose(me: str, training: str) -> str:
    return f"{me}, training {training}"
