"""What `colonnade audit` does: say what the others could find out about this party, and keep it for its report."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.errors import OptionError
from colonnade.progress import Line

if TYPE_CHECKING:
    from colonnade.audit.kept_audit import KeptAudit
    from colonnade.jobs.job import Job
    from colonnade.jobs.party_file import PartyFile

PASSED, OPEN = 0, 4  # what the command ends with; 1 to 3 are those of `check`


def add_audit_options(audit: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    audit.add_argument(
        "--rehearse", action="store_true", help="rehearse the job with made-up partners, though a run was recorded"
    )
    audit.add_argument(
        "--columns", action="append", default=[], metavar="PARTY=COUNT",
        help="in a rehearsal: how many columns a partner has (as many as this party)",
    )  # fmt: skip
    audit.add_argument("--json", type=Path, metavar="FILE", help="write the findings to a file too")
    audit.add_argument(
        "--services", action="store_true", help="also what partners find out by guessing ids, as the policy lets them"
    )
    audit.add_argument("--slow", action="store_true", help="also attacks that take minutes")
    audit.add_argument("--quiet", action="store_true", help="no progress line")


def act_on_audit(options: argparse.Namespace, job: Job, party: PartyFile, say: Callable[[str], None]) -> int:
    """Make the audit, keep it, show it, and return the exit code."""
    from colonnade import private_files
    from colonnade.inspection.auditing import audit_version, settled, version_to_audit
    from colonnade.planning.rehearsal import audit_rehearsal
    from colonnade.views.recording_file import RECORDING

    if options.json is not None and not options.json.absolute().parent.is_dir():
        raise OptionError(f"--json {str(options.json)!r} is in a folder that is not there; make it first")
    if options.json is not None and options.json.is_dir():
        raise OptionError(f"--json {str(options.json)!r} is a folder; give the name of a file in it")
    if options.rehearse and options.version:
        raise OptionError("--rehearse is about no version; leave out one of --rehearse and --version")
    columns = _columns(options.columns)
    line, version, found = Line("audit", None, 0 if options.quiet else 1), None, None

    def show(what: str, done: int, of: int) -> None:
        line.show(done, what, ("audit", of))

    how: dict[str, Any] = {"slow": options.slow, "services": options.services, "say": show}
    try:
        if not options.rehearse:
            version = version_to_audit(party, options.version)
            if version is not None:
                if columns and (version.folder / RECORDING).exists():
                    raise OptionError(
                        f"--columns is about a rehearsal, and version {version.name} was recorded; add --rehearse, or "
                        f"leave out --columns"
                    )
                found = audit_version(job, party, version, named=options.version is not None, **how)
            if found is None and options.version:
                raise OptionError(
                    f"nothing was recorded of version {options.version!r}; record a run, with record = true under "
                    f"[audit], or leave out --version for a rehearsal"
                )
        if version is None or found is None:
            found = audit_rehearsal(job, party, columns, **how)
            private_files.make_folder(party.folder)
            path = found.write(party.folder)
        else:
            path = found.write(version.folder)
            settled(party, version, found)
    finally:
        line.close()
    _print(found)
    say(f"the audit is kept in {path}")
    if options.json is not None:
        private_files.write(options.json, found.as_json())
    return PASSED if found.passed else OPEN


def _columns(given: list[str]) -> dict[str, int]:
    found = {}
    for text in given:
        name, _, count = text.partition("=")
        if not name or not count.isdigit():
            raise OptionError(f"--columns takes PARTY=COUNT, such as shop=12, got {text!r}")
        found[name] = int(count)
    return found


def _print(found: KeptAudit) -> None:
    """Print the table, what it comes to, and what the audit does not know."""
    from rich.console import Console
    from rich.text import Text

    from colonnade.audit.kept_audit import REHEARSED
    from colonnade.audit.table import WIDE, as_line, as_table, indented, summary

    console = Console()
    of = "a rehearsal" if found.of == REHEARSED else f"the recorded training {found.training[:12]}"
    console.print(Text(f"what others could find out about {found.party}, from {of} of {found.job}"))
    audit = found.as_audit()
    if audit.findings and console.width >= WIDE:
        console.print(as_table(audit))
    else:
        for one in audit.findings:
            console.print(Text(indented(as_line(one, found.threshold), console.width)))
    console.print(Text(summary(audit)))
    if found.untried:
        names = sorted({name for _, name in found.untried})
        console.print(Text(f"nothing to go by: {', '.join(names)}"))
    if found.left:
        console.print(Text(f"{'TOO MANY: ' if found.overdrawn else ''}{found.left}"))
    if found.broken:
        console.print(Text(f"could not be carried out, so that nobody knows what they would find: {found.failed}"))
    for note in found.notes:
        console.print(Text(f"note: {note}"))
