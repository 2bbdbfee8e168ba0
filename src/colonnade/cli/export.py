"""What `colonnade export` does: a party's own part of a linear model as SQL, as points of bins, or as a graph of ONNX.

Nobody else hears of it. The file holds the party's own coefficients and what its preparation learned, and is for its
owner only, as its part of the model is.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade import private_files
from colonnade.cli.terminal import say
from colonnade.errors import OptionError

if TYPE_CHECKING:
    from colonnade.jobs.job import Job
    from colonnade.jobs.model_file import ModelPart
    from colonnade.jobs.party_file import PartyFile

_ENDINGS = {"sql": ".sql", "points": ".csv", "onnx": ".onnx"}


def add_export_options(command: argparse.ArgumentParser) -> None:
    """Declare what it is exported to."""
    command.add_argument(
        "--to",
        choices=tuple(_ENDINGS),
        required=True,
        help="sql: one SELECT over this party's table, with its preparation; points: the scorecard of its bins; onnx: "
        "a graph with an input for each column",
    )
    command.add_argument("--out", type=Path, help="the file to write (PARTY.sql, PARTY.csv or PARTY.onnx)")
    command.add_argument("--table", help="with --to sql: what the party's table is called there (the party's name)")


def export_part(options: argparse.Namespace, job: Job, party: PartyFile) -> int:
    """Write the file, and return the exit code."""
    from colonnade.jobs import model_file
    from colonnade.versions.identity import short
    from colonnade.versions.shelf import Shelf

    ending = _ENDINGS[options.to]
    out = options.out or Path(f"{party.name}{ending}")
    if out.suffix != ending:
        raise OptionError(f"--to {options.to} writes a file that ends in {ending}, got {out.name!r}")
    if options.table is not None and options.to != "sql":
        raise OptionError(f"--table names a table of SQL, and --to {options.to} has none; leave it out")
    if not out.absolute().parent.is_dir():
        raise OptionError(f"--out {str(out)!r} is in a folder that is not there; make it first")
    if out.is_dir():
        raise OptionError(f"--out {str(out)!r} is a folder; give the name of a file in it")
    part = model_file.load(party.folder, party.name, options.version)
    if options.version is not None:
        Shelf(party.folder, party.name).free(options.version)
    content, what = _content(options, job, party, part)
    private_files.write(out, content)
    say(f"{party.name}: {what} of version {short(part.training)} is {out}, for its owner only")
    return 0


def _content(options: argparse.Namespace, job: Job, party: PartyFile, part: ModelPart) -> tuple[bytes, str]:
    if options.to == "points":
        return points_of(job, party, part), "the points of its bins"
    from colonnade.integrations.linear_part import linear_part, names_of_scores
    from colonnade.service.serving import beside_of

    found = linear_part(part)
    names = names_of_scores(part, found.outputs)
    beside = beside_of(party)
    if options.to == "onnx":
        from colonnade.integrations.part_onnx import part_onnx

        return part_onnx(found, names, beside), f"the graph of what {party.name} adds to a score"
    from colonnade.integrations.part_sql import part_sql

    table, data = options.table or party.name, party.data
    text = part_sql(found, table, names, id_column=data["id"], missing=data["missing"] or (), beside=beside)
    return text.encode(), f"the SELECT of what {party.name} adds to a score"


def points_of(job: Job, party: PartyFile, part: ModelPart) -> bytes:
    """Return the points of a party's own bins, as a CSV file."""
    from colonnade.binning.points import PointsOfBin
    from colonnade.service.binned import card_of, csv_text

    card = card_of(job, party.name, part.prepared, part.state)
    return csv_text(PointsOfBin._fields, card.rows()).encode()
