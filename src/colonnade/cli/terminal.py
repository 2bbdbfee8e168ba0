"""What commands of an organisation do with a terminal: which files are meant, lines, warnings as sentences, logs."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from colonnade.errors import ColonnadeWarning

if TYPE_CHECKING:
    from colonnade.jobs.job import Job
    from colonnade.jobs.party_file import PartyFile


TEXT, JSON = "text", "json"  # forms of logs


def say(text: str) -> None:
    """Print a line in one piece and at once, as several parties may share a terminal."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def read_files(options: argparse.Namespace) -> tuple[Job, PartyFile]:
    """Return the job, and the party's own file, that a command names."""
    from colonnade.errors import OptionError
    from colonnade.jobs.job_file import read_job
    from colonnade.jobs.party_file import read_party

    mpi = getattr(options, "mpi", False)
    if mpi == bool(options.party):
        raise OptionError(
            "the rank decides which party this is: leave out --as or --mpi" if mpi else
            "which party is this? give --as PARTY, or start it as the ranks of an MPI job with --mpi"
        )  # fmt: skip
    if mpi:
        from colonnade.remote.mpi import party_of_rank, world

        world()  # from here on, a failure at one rank ends the others too
        job = read_job(options.job)
        options.party = party_of_rank(job.parties)
    else:
        job = read_job(options.job)
    if options.party not in job.parties:
        raise OptionError(f"{options.party!r} is no party of {options.job.name}; parties are {', '.join(job.parties)}")
    path = options.file or options.job.parent / f"{options.party}.toml"
    return job, read_party(path, job, options.party)


def in_json(options: argparse.Namespace) -> bool:
    """Return whether a command is to write JSON to standard error."""
    return getattr(options, "log", TEXT) == JSON


def about(options: argparse.Namespace) -> dict[str, str]:
    """Return what every line of such a log says: the file of the job and the party."""
    found = {"job": getattr(options, "job", None), "party": getattr(options, "party", None)}
    return {key: str(value) for key, value in found.items() if value is not None}


def complain(options: argparse.Namespace, text: str) -> None:
    """Write the error that ends a command, in one piece: the ranks of an MPI job share a terminal."""
    if in_json(options):
        from colonnade.integrations.json_lines import failed_with

        failed_with(sys.stderr, text, about(options))
    else:
        sys.stderr.write(f"colonnade: {text}\n")


@contextmanager
def notes(name: str) -> Iterator[None]:
    """Print warnings as sentences of the party, and not as Python would."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", ColonnadeWarning)
        warnings.showwarning = lambda message, *_, **__: say(f"{name}: note: {message}")
        yield


def log(options: argparse.Namespace | None = None) -> None:
    """Write what the network notes to standard error, and end by SIGTERM as by Ctrl-C.

    options: of a command that may be asked for logs as JSON.
    """
    if options is not None and in_json(options):
        from colonnade.integrations.json_lines import begin

        begin(sys.stderr, about(options))
    else:
        logging.basicConfig(level=logging.INFO, format="colonnade: %(message)s", stream=sys.stderr)
    signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> None:
    """End as by Ctrl-C, of which the partners hear: service managers stop a process with SIGTERM.

    A shell's script starts what it puts behind it with Ctrl-C ignored, and means that; but not that it never ends.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.raise_signal(signal.SIGINT)
