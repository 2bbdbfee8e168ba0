"""All that the dashboard reads: runs, versions, ledger and services in one party's folder. It never writes there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.audit.kept_audit import FILE as AUDIT_FILE
from colonnade.audit.kept_audit import KeptAudit, read_audit
from colonnade.dashboard.run_course import LIVE, RunCourse
from colonnade.errors import ColonnadeError, DataError, PolicyRefused
from colonnade.events.daily import Days, read_counts
from colonnade.events.event import ENDED, STARTED, Event
from colonnade.events.event_file import events_in, kept
from colonnade.events.reading import EventTail, ends, held
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.ledger.verify import Report, verify
from colonnade.remote.signatures import checker, vouched_by
from colonnade.versions.drift_file import FILE as DRIFT_FILE
from colonnade.versions.drift_file import KeptDrift, read_drift
from colonnade.versions.shelf import Shelf
from colonnade.versions.version import FILE as VERSION_FILE
from colonnade.versions.version import Version

REPORT = "report.html"
_SHOWN = (VERSION_FILE, AUDIT_FILE, DRIFT_FILE, REPORT)  # what a version is shown by
# Seconds between two verifications of a ledger that grows, and how much longer than one of them takes it is left alone.
_LOOK_EVERY, _REST = 2.0, 9.0
_OPEN_TAILS = 4  # runs whose events are kept in memory


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what changes whenever a file does; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns)


@dataclass(frozen=True)
class RunSummary:
    """A run in the list of runs: its first event, and its last one where that is its end."""

    name: str
    first: Event
    last: Event | None
    alive: bool

    @property
    def state(self) -> str:
        """How it stands, as `RunCourse.state` says."""
        course = RunCourse()
        for event in (self.first, self.last):
            if event is not None:
                course.take(event)
        return course.state(alive=self.alive)


@dataclass(frozen=True)
class VersionRecord:
    """A version with what lies beside it; trouble: why something of it can't be read."""

    version: Version
    in_use: bool
    audit: KeptAudit | None = None
    drift: KeptDrift | None = None
    report: bool = False
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True)
class LedgerState:
    """What the ledger says once it is verified; why it can't be believed; whether it has changed since.

    at: when it was verified, in seconds of UNIX time.
    """

    report: Report | None = None
    trouble: str = ""
    busy: bool = False
    at: float = 0.0


class PartyRecords:
    """One party's records, read anew whenever somebody looks, and no oftener than they change.

    Parameters
    ----------
    job
        The job, for what messages show and whose certificates count.
    party
        The party's own file.
    """

    def __init__(self, job: Job, party: PartyFile, clock: Callable[[], float] = time.time) -> None:
        self.job, self.party, self.clock = job, party, clock
        self._guard = threading.RLock()
        self._tails: dict[str, tuple[EventTail, RunCourse]] = {}
        self._over: dict[str, RunSummary] = {}
        self._shelf: tuple[Any, list[VersionRecord]] = (None, [])
        self._ledger: tuple[Any, LedgerState] = (None, LedgerState())
        self._next_look = 0.0  # before which a ledger that was verified, and has grown, is not verified again
        self._verifying: threading.Thread | None = None

    @property
    def folder(self) -> Path:
        """The party's folder."""
        return self.party.folder

    def check(self) -> None:
        """Refuse a folder that others could write to, as then anybody could have written what it says."""
        if self.folder.exists():
            private_files.check(self.folder, f"{self.party.name!r}'s folder", DataError)

    # -- runs ---------------------------------------------------------------------------------------------------

    def runs(self) -> list[RunSummary]:
        """Return all runs that are kept, the newest first."""
        found = []
        with self._guard:
            for path in reversed(kept(events_in(self.folder))):
                if (summary := self._over.get(path.stem)) is None:
                    alive = held(path)  # asked first: an end is written before the file is let go
                    first, last = ends(path)
                    if first is None or first.kind != STARTED:
                        continue
                    over = last if last is not None and last.kind == ENDED else None
                    summary = RunSummary(path.stem, first, over, alive)
                    if not alive:
                        self._over[path.stem] = summary
                found.append(summary)
        return sorted(found, key=lambda run: run.first.at, reverse=True)  # names of files tell whole seconds only

    def course(self, name: str) -> tuple[RunCourse, bool] | None:
        """Return how a run went so far, and whether it goes on; None where there is no run of that name."""
        with self._guard:
            path = next((path for path in kept(events_in(self.folder)) if path.stem == name), None)
            if path is None:
                return None
            tail, course = self._tails.pop(name, (EventTail(path), RunCourse()))
            self._tails[name] = (tail, course)  # the one that was looked at last stands last
            while len(self._tails) > _OPEN_TAILS:
                del self._tails[next(iter(self._tails))]
            alive = tail.alive
            for event in tail.new():
                course.take(event)
            return course, alive and not tail.ended

    def live(self) -> tuple[str, RunCourse] | None:
        """Return the newest run that goes on, and how it stands."""
        for run in self.runs():
            if run.alive and (found := self.course(run.name)) is not None and found[0].state(alive=found[1]) == LIVE:
                return run.name, found[0]
        return None

    # -- versions -----------------------------------------------------------------------------------------------

    def versions(self) -> list[VersionRecord]:
        """Return all versions, the newest first; what can't be read of one is said beside it."""
        mark = self._shelf_mark()
        with self._guard:
            if self._shelf[0] != mark:
                self._shelf = (mark, self._read_versions())
            return self._shelf[1]

    def _shelf_mark(self) -> Any:
        """Return what changes with any file that a version is shown by."""
        home = self.folder / "versions"
        folders = sorted(home.iterdir()) if home.is_dir() else []
        paths = [folder / name for folder in folders for name in _SHOWN] + [home / "promoted.json"]
        return tuple((str(path), _stamp(path)) for path in paths)

    def _read_versions(self) -> list[VersionRecord]:
        shelf = Shelf(self.folder, self.party.name)
        known = shelf.versions()
        try:
            used = shelf.promoted().training if known else None
        except PolicyRefused:  # held back
            used = None
        return [self._record(version, used) for version in reversed(known)]

    def version(self, name: str) -> VersionRecord | None:
        """Return the version of this id, or of what people call it; None where there is none."""
        return next((one for one in self.versions() if name in (one.version.training, one.version.name)), None)

    def _record(self, version: Version, used: str | None) -> VersionRecord:
        trouble: list[str] = []

        def seen(read: Callable[[Path], Any]) -> Any:
            try:
                return read(version.folder)
            except ColonnadeError as error:
                trouble.append(str(error))
                return None

        audit, drift = seen(read_audit), seen(read_drift)
        report = (version.folder / REPORT).is_file()
        return VersionRecord(version, version.training == used, audit, drift, report, tuple(trouble))

    def rehearsal(self) -> KeptAudit | None:
        """Return the last audit of a rehearsal, which is of no version."""
        return read_audit(self.folder)

    def report_of(self, record: VersionRecord) -> bytes | None:
        """Return the validation report that is kept beside a version."""
        path = record.version.folder / REPORT
        return private_files.read(path, "the report", DataError) if record.report else None

    # -- what left ----------------------------------------------------------------------------------------------

    def ledger(self, *, wait: float = 0.0) -> LedgerState:
        """Return what has left; verified in a thread of its own, as a long ledger takes its time.

        wait: seconds to wait for that. While a ledger that has grown is verified, what was known before is returned.
        """
        if not self.party.ledger.exists():
            return LedgerState()
        mark = _stamp(self.party.ledger)
        with self._guard:
            known, state = self._ledger
            if known == mark:
                return state
            idle = self._verifying is None or not self._verifying.is_alive()
            if idle and time.monotonic() < self._next_look:
                return replace(state, busy=True)
            if idle or self._verifying is None:
                self._verifying = threading.Thread(target=self._verify, args=(mark,), daemon=True)
                self._verifying.start()
            thread = self._verifying
        thread.join(wait)
        with self._guard:
            known, state = self._ledger
            return state if known == mark else replace(state, busy=True)

    def _verify(self, mark: Any) -> None:
        files, began = self.party.certificates, time.monotonic()
        try:
            report = verify(
                self.party.ledger, checker(files.certificate), vouch=vouched_by(files.authority),
                me=self.party.name, job=self.job.name,
            )  # fmt: skip
            found = LedgerState(report, at=self.clock())
        except Exception as error:  # else it would be verified for ever, as nobody sees what a thread raises
            words = f"the ledger can't be read ({type(error).__name__}): it holds what no version of colonnade wrote"
            expected = isinstance(error, (ColonnadeError, OSError))
            found = LedgerState(trouble=str(error) if expected else words, at=self.clock())
        with self._guard:
            ended = time.monotonic()
            self._next_look = ended + max(_LOOK_EVERY, _REST * (ended - began))
            # While a run writes, the file and its seal may be of two moments: then it is looked at again.
            if not found.trouble or _stamp(self.party.ledger) == mark:
                self._ledger = (mark, found)

    # -- services -----------------------------------------------------------------------------------------------

    def days(self) -> Days:
        """Return how many requests its services answered on each day."""
        return read_counts(self.folder)

    def serving(self) -> bool:
        """Return whether a service of this party goes on: its process has the ledger's lane of scoring."""
        return held(self.party.ledger.with_name(f"{self.party.ledger.name}.scoring.lock"))
