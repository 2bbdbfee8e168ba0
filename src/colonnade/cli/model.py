"""What `colonnade model` does: list a party's versions, show one or its points, compare two, say which is in use."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from colonnade.errors import OptionError, PolicyRefused

if TYPE_CHECKING:
    from colonnade.jobs.job import Job
    from colonnade.jobs.party_file import PartyFile
    from colonnade.versions.shelf import Shelf
    from colonnade.versions.version import Version

_MOST = {
    "list": 0,
    "show": 1,
    "scorecard": 1,
    "diff": 2,
    "promote": 1,
    "rollback": 0,
}  # versions that each action may name
_RESTART = "a `serve` that is running takes it once its line to the partners is made anew; promote the same at all"


def add_model_actions(model: argparse.ArgumentParser) -> None:
    """Declare the actions on versions."""
    model.add_argument(
        "action",
        choices=tuple(_MOST),
        help="list all versions; show this party's part of one; scorecard: the points of its bins; diff: what changed "
        "from one to another; promote: take one into use; rollback: go back to the one that was in use before",
    )


def add_versions(model: argparse.ArgumentParser) -> None:
    """Declare the versions that an action is about, which stand behind the job."""
    model.add_argument(
        "versions", nargs="*", metavar="VERSION",
        help="the beginning of a version's id, or 'newest' (show and diff: the promoted one)",
    )  # fmt: skip


def act_on_model(options: argparse.Namespace, job: Job, party: PartyFile) -> int:
    """Do one of these actions, and return the exit code."""
    given = options.versions
    if len(given) > _MOST[options.action] or (options.action == "promote" and not given):
        takes = {
            0: "takes no version",
            1: "takes one version",
            2: "takes two versions, or one to compare with the promoted",
        }
        raise OptionError(f"`colonnade model {options.action}` {takes[_MOST[options.action]]}, got {len(given)}")
    if options.action == "scorecard":
        return _scorecard(given, job, party)
    found = {"list": _list, "show": _show, "diff": _diff, "promote": _promote, "rollback": _rollback}
    return found[options.action](given, party)


def _name(version: Version) -> str:
    from colonnade.versions.shelf import UNNAMED

    return version.name if version.training else UNNAMED


def _list(given: list[str], party: PartyFile) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from colonnade.versions.shelf import Shelf

    shelf = Shelf(party.folder, party.name)
    known = shelf.versions()
    if not known:
        print(f"{party.name} has no versions yet; train one with `colonnade run`")
        return 0
    table, in_use = Table(title=Text(f"{party.name}'s versions"), title_justify="left"), _in_use(shelf)
    headings = ["version", "", "trained (UTC)", "rows", "how well"]
    for name in [*headings, "started from"] if any(version.parent for version in known) else headings:
        table.add_column(name, justify="right" if name == "rows" else "left", no_wrap=name != "how well")
    for version in known:
        rows = version.about.get("rows")
        mark = "" if version.training != in_use else "in use, by hand" if shelf.by_hand else "in use"
        mark = "held back" if version.held else mark
        when, count = version.date[:16].replace("T", " "), "" if rows is None else f"{rows:,}"
        cells = (_name(version), mark, when, count, "\n".join(_figures(version)), version.parent[:12])
        table.add_row(*map(Text, cells[: len(table.columns)]))
    Console().print(table)
    return 0


def _figures(version: Version) -> list[str]:
    return [f"{name} {value:.4f}" for name, value in version.metrics.items()]


def _in_use(shelf: Shelf) -> str | None:
    """Return the id of the version in use; None where an audit holds it back."""
    try:
        return shelf.promoted().training
    except PolicyRefused:
        return None


def _show(given: list[str], party: PartyFile) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from colonnade.families import family
    from colonnade.jobs import model_file
    from colonnade.versions.shelf import Shelf

    part = model_file.load(party.folder, party.name, given[0] if given else None)
    print(f"{part.public['model']} of {', '.join(part.public['parties'])}, trained on {part.public['rows']:,} rows")
    print(f"training {part.training}" if part.training else "it has no id: it was trained before trainings had one")
    kind, shelf = family(part.public["family"]), Shelf(party.folder, party.name)
    if decision := (shelf.find(given[0]) if given else shelf.promoted()).about.get("decision"):
        print(decision)
    told = kind.describe(party.name, part.public, part.state, part.columns, part.classes)
    if not told.rows:
        print(told.title)
        return 0
    table = Table(title=Text(told.title), title_justify="left")
    for number, name in enumerate(told.header):
        table.add_column(Text(name), justify="right" if number and told.numbers else "left")
    for row in told.rows:
        table.add_row(*map(Text, row))
    Console().print(table)
    return 0


def _scorecard(given: list[str], job: Job, party: PartyFile) -> int:
    from colonnade.jobs import model_file
    from colonnade.service.binned import card_of

    part = model_file.load(party.folder, party.name, given[0] if given else None)
    card = card_of(job, party.name, part.prepared, part.state)
    scaling = card.scaling
    of = "" if len(part.classes) != 2 else " {!r} for one {!r}".format(*part.classes.tolist())
    print(f"{scaling.base:g} points are odds of {scaling.odds:g}{of}, and {scaling.pdo:g} more double them")
    print(card)
    if scaling.rounded:
        print(f"rounding moves the sum of these points by {card.rounding_error:.2f} at most")
    return 0


def _diff(given: list[str], party: PartyFile) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from colonnade.inspection.differences import facts_that_differ, parts_that_differ
    from colonnade.versions.shelf import Shelf

    shelf = Shelf(party.folder, party.name)
    if not given:
        raise OptionError("which versions? give one, to be compared with the promoted one, or two")
    first = shelf.promoted() if len(given) == 1 else shelf.find(given[0])
    second = shelf.find(given[-1])
    rows = [*facts_that_differ(first, second), *parts_that_differ(party, first, second)]
    if not rows:
        print(f"{party.name}'s part is the same in {_name(first)} and {_name(second)}")
        return 0
    table = Table(title=Text(f"{party.name}'s part"), title_justify="left")
    for name in ("what", _name(first), _name(second)):
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
    return 0


def _promote(given: list[str], party: PartyFile) -> int:
    from colonnade.versions.shelf import NEWEST, Shelf

    version = Shelf(party.folder, party.name).promote(given[0])
    after = "; later ones come into use by themselves" if given[0] == NEWEST else ""
    print(f"{party.name}: version {_name(version)} is in use{after}; {_RESTART} parties")
    return 0


def _rollback(given: list[str], party: PartyFile) -> int:
    from colonnade.versions.shelf import Shelf

    version = Shelf(party.folder, party.name).rollback()
    print(f"{party.name}: back to version {_name(version)}; {_RESTART} parties")
    return 0
