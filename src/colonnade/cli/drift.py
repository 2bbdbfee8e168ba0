"""What `colonnade drift` does: print how far each of a party's own columns, and the scores, have moved."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.errors import DataError, OptionError, PolicyRefused

if TYPE_CHECKING:
    from colonnade.data.raw_columns import Numbers
    from colonnade.jobs.party_file import PartyFile
    from colonnade.versions.drift import ColumnDrift


def add_data(drift: argparse.ArgumentParser) -> None:
    """Declare what is compared with what."""
    drift.add_argument("--data", type=Path, help="the new rows, a file like this party's own (its own data)")
    drift.add_argument("--before", type=Path, help="earlier rows to compare with (the training of the version)")
    drift.add_argument("--scores", type=Path, help="scores of the new rows, as `colonnade predict` wrote them")
    drift.add_argument("--scores-before", type=Path, help="scores to compare these with")


def show_drift(options: argparse.Namespace, party: PartyFile) -> int:
    """Print a table of all columns; the exit code is 1 where the party's policy would refuse to score these rows."""
    from colonnade.versions.drift import check_drift, notes

    if (options.scores is None) != (options.scores_before is None):
        raise OptionError("scores are compared with earlier ones; give both --scores and --scores-before")
    found = _columns(options, party)
    _print(party, found, "the training" if options.before is None else options.before.name)
    for line in notes(found):
        print(f"{party.name}: note: {line}")
    if options.scores is not None:
        index, before, now = score_drift(options.scores_before, options.scores)
        print(f"{party.name}: the score: {index:.4f}, {_word(index)}; {before:,} people before, {now:,} now")
    try:
        check_drift(party.name, found, party.policy.max_drift, party.policy.max_missing)
    except PolicyRefused as error:
        print(f"{party.name}: these rows would not be scored: {error}")
        return 1
    return 0


def _columns(options: argparse.Namespace, party: PartyFile) -> list[ColumnDrift]:
    from colonnade.jobs import model_file
    from colonnade.streams.loading import load
    from colonnade.versions.drift import FEWEST, drift_of
    from colonnade.versions.drift_file import write_drift
    from colonnade.versions.profile import profiles_of, read_profiles

    part = model_file.load(party.folder, party.name, options.version)
    texts = part.prepared.texts
    if options.before is None:
        profiles = read_profiles(part.folder)
    else:
        profiles = profiles_of(
            load(party.data, source=options.before, labels=False, texts=texts, home=party.folder), part.prepared
        )
    if profiles is None:
        raise DataError(
            "there is no profile of the training, as its table was sparse or it was trained before there were any; for "
            "named columns give earlier rows to compare with: --before FILE"
        )
    table = load(party.data, source=options.data, labels=False, texts=texts, home=party.folder)
    if table.rows < FEWEST:
        raise DataError(f"{table.where} has {table.rows} rows, and {FEWEST} at least say anything; give more")
    found = drift_of(profiles, table, part.prepared)
    if options.before is None:
        write_drift(part.folder, found, table.rows)
    return found


def _print(party: PartyFile, found: list[ColumnDrift], with_what: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(f"{party.name}'s columns, compared with {with_what}"), title_justify="left")
    for name in ("column", "index", "", "missing", "before"):
        table.add_column(name, justify="left" if name in ("column", "") else "right")
    for one in sorted(found, key=lambda each: -each.index):
        shares = (f"{one.missing_now:.1%}", f"{one.missing_before:.1%}")
        table.add_row(*map(Text, (one.name, f"{one.index:.4f}", _word(one.index), *shares)))
    Console().print(table)


def _word(index: float) -> str:
    from colonnade.versions.drift import LITTLE, MUCH

    return "as before" if index < LITTLE else "moved" if index < MUCH else "drifted"


def score_drift(before: Path, now: Path) -> tuple[float, int, int]:
    """Return (the stability index of the scores in two files that `predict` wrote, how many there were, are)."""
    from colonnade.versions.drift import stability_index
    from colonnade.versions.profile import profile_of

    old, new = scores_in(before), scores_in(now)
    profile = profile_of(old)
    return stability_index(profile.all_counts, profile.like(new)), len(old.values), len(new.values)


def scores_in(path: Path) -> Numbers:
    """Return the scores of all people that were known: the probability of the last class, or the predicted value."""
    import duckdb
    import numpy as np

    from colonnade.data.raw_columns import Numbers
    from colonnade.tables.query import quoted, sql_name

    if not path.is_file():
        raise DataError(f"there is no file {str(path)!r}; give one that `colonnade predict` wrote")
    reader = "read_parquet" if path.suffix == ".parquet" else "read_csv"
    try:
        with duckdb.connect() as database:
            rows = f"FROM {reader}({quoted(str(path))})"
            names = [str(row[0]) for row in database.execute(f"DESCRIBE SELECT * {rows}").fetchall()]
            column = next((name for name in reversed(names) if name.startswith("p(")), "prediction")
            if not {"known", column} <= set(names):
                raise DataError(f"{path.name!r} has no columns 'known' and {column!r}; give one that `predict` wrote")
            told = database.execute(f"SELECT CAST({sql_name(column)} AS DOUBLE) {rows} WHERE known").fetchnumpy()
    except duckdb.Error as error:
        first = str(error).splitlines()[0]
        raise DataError(f"the scores in {path.name!r} can't be read as numbers: {first}") from None
    values = np.ma.filled(next(iter(told.values())), np.nan)
    if not len(values):
        raise DataError(f"{path.name!r} has no score of anybody; give one with people who were known")
    return Numbers(np.asarray(values, dtype=np.float64))
