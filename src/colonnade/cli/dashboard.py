"""What `colonnade dashboard` does: serve the pages about one party's own folder, to its own people alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade import private_files
from colonnade.cli.terminal import read_files, say
from colonnade.errors import OptionError

if TYPE_CHECKING:
    from colonnade.jobs.job import Job
    from colonnade.jobs.party_file import PartyFile

_JOB = "job.toml"
_LEADS = "dashboard.html"  # in the party's folder, for as long as a dashboard that was opened is there
_MOST_PORT = (1 << 16) - 1


def _read_job(path: Path) -> Job:
    from colonnade.jobs.job_file import read_job

    return read_job(path)


def add_dashboard(commands: Any) -> None:
    """Declare the command and its options."""
    dashboard = commands.add_parser(
        "dashboard", help="a local page about this party: runs as they go on, versions, ledger, services"
    )
    dashboard.add_argument("job", type=Path, metavar="FOLDER_OR_JOB", help="job.toml, or the folder that it is in")
    dashboard.add_argument(
        "--as", dest="party", metavar="PARTY", help="which party this is (the only one whose file is there)"
    )
    dashboard.add_argument("--file", type=Path, help="this party's own file (PARTY.toml beside job.toml)")
    dashboard.add_argument("--port", type=int, default=0, help="where to listen on this machine (any that is free)")
    dashboard.add_argument("--open", action="store_true", help="open it in this machine's browser")  # fmt: skip


def show_dashboard(
    options: argparse.Namespace,
    read: Callable[[argparse.Namespace], tuple[Job, PartyFile]] = read_files,
    job_of: Callable[[Path], Job] = _read_job,
) -> int:
    """Serve until somebody stops it, and return the exit code; `read` and `job_of` read the files of the job's kind."""
    from colonnade.dashboard.party_records import PartyRecords
    from colonnade.dashboard.server import DashboardServer

    if not 0 <= options.port <= _MOST_PORT:
        raise OptionError(
            f"--port must be a port from 1 to {_MOST_PORT}, or 0 for any that is free, got {options.port}"
        )
    options.job = _job_in(options.job)
    options.party = options.party or _only_party(options.job, job_of(options.job).parties)
    job, party = read(options)
    records = PartyRecords(job, party)
    records.check()
    more = f" --file {options.file}" if options.file else ""
    links: list[str] = []

    def tell(link: str) -> None:
        again = "it was opened; for another browser" if links else f"{party.name}: the dashboard is at"
        links.append(link)
        say(f"{again}: {link}" if len(links) > 1 else f"{again} {link}")

    server = DashboardServer(records, f"{options.job} --as {party.name}{more}", options.port, tell)
    say(f"{party.name}: the link opens it in one browser; Ctrl-C closes it")
    page = records.folder / _LEADS
    try:
        if options.open and not _opened(page, links[0]):
            say(f"{party.name}: no browser was found to open it in; follow the link")
        server.serve_forever()
    finally:
        page.unlink(missing_ok=True)
        server.server_close()
    return 0


def _opened(page: Path, link: str) -> bool:
    """Open the machine's browser by a private page that leads to the link.

    A browser shows what it was started with to all users of a machine, and the link is for one of them.
    """
    import webbrowser

    private_files.make_folder(page.parent)
    on = f'<meta name="referrer" content="no-referrer"><meta http-equiv="refresh" content="0;url={link}">'
    private_files.write(page, f'<!DOCTYPE html><html lang="en"><head><title>colonnade</title>{on}</head></html>')
    return webbrowser.open(page.absolute().as_uri())


def _job_in(given: Path) -> Path:
    """Return the job that is meant by itself or by its folder; the party's own folder beside it means it too."""
    if given.is_file():
        return given
    if not given.is_dir():
        raise OptionError(f"there is no {str(given)!r}; give the folder of a job, or the job's file itself")
    for folder in (given, given.absolute().parent):
        if (folder / _JOB).is_file():
            return folder / _JOB
    raise OptionError(f"there is no {_JOB} in {str(given)!r}; give the folder of a job, or the job's file itself")


def _only_party(job: Path, parties: tuple[str, ...]) -> str:
    """Return the party whose file alone lies beside the job, as at each party but in a trial on one machine."""
    found = [name for name in parties if (job.parent / f"{name}.toml").is_file()]
    if len(found) != 1:
        there = f"there are files of {', '.join(found)}" if found else f"no party's file is beside {job.name}"
        raise OptionError(f"which party is this? {there}; give --as, one of {', '.join(parties)}")
    return found[0]
