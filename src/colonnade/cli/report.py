"""What `colonnade report` does: write a party's validation report as one HTML file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.errors import OptionError

if TYPE_CHECKING:
    from colonnade.jobs.job import Job
    from colonnade.jobs.party_file import PartyFile


def add_report_options(report: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    report.add_argument("--out", type=Path, metavar="FILE", help="where the page goes (report.html beside the version)")
    report.add_argument(
        "--later", type=Path, metavar="FILE",
        help="at a label holder: a CSV file with id, score and label of people of a later period, out of time",
    )  # fmt: skip
    report.add_argument(
        "--threshold", type=float, help="from which score on people are taken for the second class (the model's own)"
    )


def write_page(options: argparse.Namespace, job: Job, party: PartyFile) -> tuple[Path, int]:
    """Write the page, readable by its owner only, and return where it is and how many bytes it has."""
    from colonnade import private_files
    from colonnade.jobs import model_file
    from colonnade.report.gather import gather
    from colonnade.report.page import page_of

    if options.out is not None and not options.out.parent.is_dir():
        raise OptionError(f"--out {str(options.out)!r} is in a folder that is not there; make it first")
    if options.out is not None and options.out.is_dir():
        raise OptionError(f"--out {str(options.out)!r} is a folder; give the name of a file in it")
    if options.later is not None and not options.later.is_file():
        raise OptionError(f"--later {str(options.later)!r} is no file; give one with id, score and label")
    page = page_of(gather(job, party, options.version, options.later, options.threshold)).encode()
    path = options.out or model_file.load(party.folder, party.name, options.version).folder / "report.html"
    private_files.write(path, page)
    return path, len(page)
