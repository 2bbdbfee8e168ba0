"""What `colonnade replay` does: show who would work, wait and send what in a run of a job."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.errors import OptionError

if TYPE_CHECKING:
    from colonnade.jobs.job import Job
    from colonnade.jobs.party_file import PartyFile
    from colonnade.runtimes.simulation import Simulation


def add_replay_options(replay: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    replay.add_argument("--out", type=Path, metavar="FILE", help="write a page to look around in, such as replay.html")
    replay.add_argument("--latency", type=float, default=0.02, help="seconds that a message travels (%(default)g)")
    replay.add_argument("--megabytes", type=float, default=12.5, help="that a line carries per second (%(default)g)")
    replay.add_argument("--lost", type=float, default=0.0, help="the probability that a message is lost (%(default)g)")
    for name, metavar, words in (
        ("--slow", "PARTY=TIMES", "a party that takes so many times as long"),
        ("--crash", "PARTY=SECOND", "a party that falls silent at that second"),
        ("--columns", "PARTY=COUNT", "how many columns a partner has (as many as this party)"),
    ):
        replay.add_argument(name, action="append", default=[], metavar=metavar, help=words)


def show_replay(options: argparse.Namespace, job: Job, party: PartyFile) -> None:
    """Rehearse the job, print its lanes, and write the page."""
    from colonnade.planning.replay import replay_job

    if options.out is not None and not options.out.absolute().parent.is_dir():
        raise OptionError(f"--out {str(options.out)!r} is in a folder that is not there; make it first")
    if options.out is not None and options.out.is_dir():
        raise OptionError(f"--out {str(options.out)!r} is a folder; give the name of a file in it")
    columns = {name: _whole(name, count) for name, count in _pairs("--columns", options.columns).items()}
    seen = replay_job(job, party, columns, _simulation(options, job))
    print(seen)
    if seen.work:
        told = "work counts by what is touched: shares are good to compare, seconds a rough guess"
    else:  # products on shares touch no columns, so nobody would seem to compute, however slow
        told = (
            "no work was counted, as sealed training of linear models counts none: lines and messages are shown alone, "
            "and --slow changes nothing"
        )
    print(f"partners are made up, and {told}")
    if options.out is not None:
        print(f"the page is {seen.save(options.out)}")


def _simulation(options: argparse.Namespace, job: Job) -> Simulation:
    from colonnade.runtimes.simulation import Faults, Simulation
    from colonnade.settings.settings import nearest

    slow, crashes = _pairs("--slow", options.slow), _pairs("--crash", options.crash)
    for option, given in (("--slow", slow), ("--crash", crashes)):
        for name in given:
            if name not in job.parties:
                names = tuple(job.parties)
                raise OptionError(
                    f"{option} names {name!r}, and the parties of this job are {', '.join(map(repr, names))}"
                    f"{nearest(name, names) or '; correct it'}"
                )
    for name, times in slow.items():
        if times <= 0:
            raise OptionError(f"--slow says {times:g} for {name!r}, more than 0 is needed; 4 is four times slower")
    return Simulation(
        latency=options.latency,
        bandwidth=options.megabytes * 1e6,
        speeds={name: 1 / times for name, times in slow.items()},
        faults=Faults(lost=options.lost, crashes=crashes) if options.lost or crashes else None,
        deadline=job.deadline,
    )


def _pairs(option: str, given: list[str]) -> dict[str, float]:
    found = {}
    for text in given:
        name, _, number = text.partition("=")
        try:
            found[name] = float(number)
        except ValueError:
            raise OptionError(f"{option} takes PARTY=NUMBER, such as shop=4, got {text!r}") from None
    return found


def _whole(name: str, count: float) -> int:
    if count != int(count):
        raise OptionError(f"--columns says {count:g} columns for {name!r}; give a whole number")
    return int(count)
