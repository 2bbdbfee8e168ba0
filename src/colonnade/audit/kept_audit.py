"""An audit that a party keeps: its findings with when it was made and of what, as `audit.json`.

What an audit found about a party says what others may know of it, so the file is for its owner only.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from colonnade import private_files
from colonnade.audit.auditing import Audit
from colonnade.audit.findings import MAX_ADVANTAGE, AuditFinding
from colonnade.errors import DataError

FILE, _FORMAT = "audit.json", 1
RECORDED, REHEARSED = "recording", "rehearsal"


@dataclass(frozen=True)
class KeptAudit:
    """What others could find out about one party.

    Attributes
    ----------
    party, job
        About whom it is, in which job.
    of
        "recording", of a run that was made, or "rehearsal" with partners that were made up.
    training
        The id of the audited training; empty for a rehearsal.
    date
        When it was made, in UTC.
    terms
        What the job and the party's own rules came to, as a digest: a run of the same terms is what it speaks for.
    findings
        One for each attack that had something to go by, worst first.
    threshold
        The advantage from which on a finding counts as open.
    untried
        (attacker, attack) where there was nothing to go by.
    told, allowed, charged
        Numbers about each person that left the party, as counted in what was seen; how many its policy lets out; and
        how many its budget has counted. None where nothing is counted.
    notes
        What the audit does not know, in sentences.
    broken
        (attack, what went wrong) of those that could not be carried out: nobody knows what they would have found.
    """

    party: str
    job: str
    of: str
    training: str
    date: str
    terms: str
    findings: tuple[AuditFinding, ...]
    threshold: float = MAX_ADVANTAGE
    untried: tuple[tuple[str, str], ...] = ()
    told: float = 0.0
    allowed: float | None = None
    charged: float | None = None
    notes: tuple[str, ...] = ()
    broken: tuple[tuple[str, str], ...] = ()

    @property
    def worst(self) -> float:
        """The largest advantage of all."""
        return max((one.advantage for one in self.findings), default=0.0)

    @property
    def overdrawn(self) -> bool:
        """Whether more numbers about each person left than the policy lets out, or than the budget has counted."""
        return any(most is not None and self.told > most + 1e-6 for most in (self.allowed, self.charged))

    @property
    def passed(self) -> bool:
        """Whether all attacks were carried out and found no more than allowed, and no more left than may leave."""
        return self.worst <= self.threshold and not self.overdrawn and not self.broken

    @property
    def trouble(self) -> str:
        """Say in a clause why it did not pass; empty if it did."""
        if self.overdrawn:
            return f"its budget was not kept: {self.left}"
        if self.passed:
            return ""
        if self.worst <= self.threshold:
            return f"its audit could not carry out {self.failed}"
        one = max(self.findings, key=lambda one: one.advantage)
        return (
            f"its audit found an advantage of {one.advantage:.3f} ({one.attack!r} by {one.attacker}), and at most "
            f"{self.threshold:g} is allowed (closed by {one.closed_by})"
        )

    @property
    def left(self) -> str:
        """Say how many numbers about each person left, and how many may; empty where they are not counted."""
        if self.allowed is None:
            return ""
        counted = "" if self.charged is None else f", and the budget has counted {self.charged:.2f}"
        return (
            f"{self.told:.2f} numbers about each person left in this run, the policy lets out {self.allowed:g} in all"
            f"{counted}"
        )

    @property
    def failed(self) -> str:
        """Name the attacks that could not be carried out, and why."""
        return "; ".join(f"{name!r} ({why})" for name, why in self.broken)

    def as_audit(self) -> Audit:
        """Return the findings as tables take them."""
        return Audit(self.findings, self.threshold, tuple((by, self.party, name) for by, name in self.untried))

    # -- as a file ----------------------------------------------------------------------------------------------

    def as_json(self) -> str:
        """Return the audit as text; what is told of each finding beside its figures is for readers alone."""
        content: dict[str, Any] = {"format": _FORMAT, **asdict(self), "passed": self.passed, "worst": self.worst}
        for entry, one in zip(content["findings"], self.findings, strict=True):
            entry |= {"advantage": one.advantage, "verdict": one.verdict(self.threshold)}
        return json.dumps(content, indent=1) + "\n"

    def write(self, folder: Path) -> Path:
        """Write it into a folder, readable by its owner only."""
        path = folder / FILE
        private_files.write(path, self.as_json())
        return path


def read_audit(folder: Path) -> KeptAudit | None:
    """Return the audit that a folder holds, or None; one that others could change, or that is damaged, is refused."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        return _of_json(json.loads(private_files.read(path, "the audit", DataError)))
    except DataError:  # others could read or change it
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{FILE!r} in {folder.name!r} can't be read, it was changed or cut off ({error}); remove it, and make "
            f"another with `colonnade audit`"
        ) from None


def _of_json(content: Mapping[str, Any]) -> KeptAudit:
    if content["format"] != _FORMAT:
        raise ValueError(f"its format is {content['format']!r}, and {_FORMAT} is known")
    names = {one.name for one in fields(KeptAudit)}
    known = {name: content[name] for name in names if name in content}
    known["findings"] = tuple(_finding(one) for one in content["findings"])
    known["untried"] = tuple((str(by), str(name)) for by, name in content["untried"])
    known["notes"] = tuple(map(str, content["notes"]))
    known["broken"] = tuple((str(name), str(why)) for name, why in content["broken"])
    found = KeptAudit(**known)
    _checked(found)
    return found


def _finding(entry: Mapping[str, Any]) -> AuditFinding:
    known = {one.name: entry[one.name] for one in fields(AuditFinding) if one.name in entry}
    some, of = entry["found"]
    return AuditFinding(**{**known, "found": (int(some), int(of))})


def _checked(found: KeptAudit) -> None:
    texts = (found.party, found.job, found.of, found.training, found.date, found.terms)
    numbers = (found.threshold, found.told, *(value for one in found.findings for value in (one.score, one.floor)))
    if not all(isinstance(one, str) for one in texts) or not all(_is_number(one) for one in numbers):
        raise ValueError("a text or a number in it is none")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
