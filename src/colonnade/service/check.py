"""`colonnade check`: everything that can be known before training, as a list of findings."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import numpy as np

from colonnade import __version__, private_files
from colonnade.binning.options import unweighed
from colonnade.data.party import Party
from colonnade.engine.exposure import ENCRYPTED, check_batches, in_shares, usual_batch
from colonnade.errors import ColonnadeError, DataError, OptionError, PartySilent, PolicyRefused
from colonnade.families import family
from colonnade.families.base import Family
from colonnade.families.checks import stored_words
from colonnade.families.protection import SEALED
from colonnade.integrations.watching import check_watch
from colonnade.jobs.allowed import check_allowed
from colonnade.jobs.budget import allowance
from colonnade.jobs.consent import words_of
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.tree_part import grows_trees
from colonnade.jobs.words import what_each_learns, what_others_learn
from colonnade.objective import losses
from colonnade.remote import certificates
from colonnade.remote.network import look
from colonnade.remote.place import NetworkPlace
from colonnade.remote.terms import RunTerms
from colonnade.service.binned import check_card
from colonnade.service.findings import Finding, tried
from colonnade.service.table_source import column_names, how_prepared, sources
from colonnade.service.tree_check import cells_and_ranges
from colonnade.streams.loading import load
from colonnade.streams.preparing import Storage, check_enough
from colonnade.tables import preparation
from colonnade.tables.near_levels import near_levels

# What sealed training would take, given the rows and the columns of this party; "" where there is nothing to say.
Sealed = Callable[[Job, int, int], str]


def check(job: Job, party: PartyFile, sealed_costs: Sealed = lambda *_: "") -> list[Finding]:
    """Return all findings; nothing is sent but a greeting to the peers' doors."""
    sealed = job.protection == SEALED
    how = f"{job.algorithm.name}" + ("" if sealed or job.summed is None else f", sum {job.summed}")
    how += f"; {job.fits} trainings, {job.tries} in each of {job.folds} folds and the last one" if job.folds else ""
    found = [Finding("job", True, f"{len(job.parties)} parties, {how}"), Finding("protection", None, words_of(job))]
    found += [Finding("defence", None, f"{one.words}, by {one.by}") for one in job.defences]
    found.append(tried("certificates", lambda: own_certificates(party)))
    found.append(tried("folder", lambda: own_folder(party)))
    found += [tried("watch", lambda: check_watch(party.watch))] if party.watch.names else []
    if party.engine is not None:
        found.append(tried("engine", party.engine.ready))
    found += _data(job, party, sealed_costs)
    return [*found, *(seen_peer(job, party, name) for name in job.parties if name != party.name)]


def own_certificates(party: PartyFile) -> str:
    """Say which certificate a party shows, once it is found to be good."""
    certificates.load(party.certificates, party.name)
    own = certificates.own_fingerprint(party.certificates)
    return f"{party.certificates.certificate.name}, made out to {certificates.dns_name(party.name)}, {own}"


def _table(kind: Family, party: PartyFile, rows: int, width: int, *, sparse: bool) -> list[Finding]:
    """Say how large the table is, and if it would be on the disk where the model is trained in memory alone."""
    found = [Finding("data", True, f"{rows:,} rows, {width} columns after preparation")]
    room = Storage.of(party.data, party.folder)
    each = np.dtype(np.float64 if room.dtype is None else room.dtype).itemsize
    if sparse or room.holds(rows * width * each):
        return found
    words = ""
    if not kind.reads_stored:
        words = stored_words(kind, party.name)
    elif party.engine is None:  # whose workers hold the rows otherwise
        try:
            check_enough(room, (rows, width), each)
        except DataError as error:
            words = str(error)
    if words:
        found.append(Finding("memory", None, f"if all rows are common: {words}"))
    return found


def _data(job: Job, party: PartyFile, sealed_costs: Sealed) -> list[Finding]:
    kind = family(job.family)
    try:
        table = load(party.data, home=party.folder)
        prepared = preparation.fit(table, party.prepare, **how_prepared(job))
        check_card(job, party.name, prepared)
        columns = column_names(prepared)
        batch = job.algorithm.smallest_batch(table.rows, len(job.holders))
        found = _table(kind, party, table.rows, len(columns), sparse=prepared.sparse is not None)
    except ColonnadeError as error:
        return [Finding("data", False, str(error))]
    if job.binning is not None and getattr(job.model, "weighted", False) and party.name in job.holders:
        found.append(Finding("bins", None, unweighed(party.name)))
    found += [Finding("spelling", None, sentence) for sentence in near_levels(table)]

    def policy() -> str:
        check_allowed(job, party)
        party.policy.check_company(party.name, job.parties, job.summed)
        party.policy.check_part(party.name, len(columns), batch)
        party.policy.check_rounds(party.name, -(-table.rows // job.algorithm.batch_for(table.rows)))
        return "allows this job"

    def budget() -> str:
        """What may leave: the number of columns is known, that of common people is not yet."""
        if job.protection == SEALED and job.folds and party.name not in job.holders:
            return _held_out_numbers(party, job.tries, most, width)
        if job.protection == SEALED and job.validation and party.name not in job.holders:
            return (
                f"training is sealed; for the metric one number about each held-out person leaves, as in a prediction. "
                f"In all runs together {most} about each may {of_columns}"
            )
        if job.protection == SEALED:
            return "training is sealed, and no number about a person leaves in it"
        if counted := kind.counted(job.sum):
            return f"{counted}; {most} may leave in all runs together {of_columns}"
        silent = not job.algorithm.tells_signals or job.sum == ENCRYPTED
        if silent and job.holders == (party.name,):
            return "scores come to this party, which holds all labels, and nothing that comes of its columns leaves it"
        batches = -(-table.rows // job.algorithm.batch_for(table.rows))
        sizes = (1, len(job.parties), len(job.holders), batches)
        least = job.fits * kind.least_numbers(job.algorithm, job.model, sizes) + (job.tries if job.folds else 0)
        if least > most:
            raise PolicyRefused(
                f"{job.algorithm.name} lets out {least:.0f} numbers about each person at least, the policy of "
                f"{party.name!r} allows {most} {of_columns}; raise max_directions if your partners may work out more "
                f"combinations of your columns"
            )
        return (
            f"{most} numbers about each person may leave in all runs together {of_columns}; training ends there at "
            f"the latest"
        )

    def own_labels() -> str:
        of = Party(party.name, np.zeros((table.rows, 1)), table.label)
        known = np.asarray(of.y)[np.asarray(of.labelled)]
        classes = kind.class_labels(known, losses.loss(job.loss))
        more = f", {len(classes)} classes" if len(classes) else ""
        if len(classes) == 2:
            more += ": {!r}, and {!r}, which is predicted".format(*classes.tolist())
        return f"{len(known):,} rows with a label" + more + ("" if table.weight is None else ", and weights")

    found += [tried("labels", own_labels)] if table.label is not None else []
    if kind.takes_own:
        own, seed = party.network, job.algorithm.seed
        found.append(tried(kind.called, lambda: kind.try_own(party.name, own, len(columns), seed, job)))
    found += cells_and_ranges(job, party, table, prepared) if grows_trees(job) else []
    found += [tried("batches", lambda: _batches(job, party, table.rows, len(columns)))] if job.sum == ENCRYPTED else []
    width = sources(prepared)
    most = allowance(party.policy.max_directions, width)
    of_columns = f"(max_directions = {party.policy.max_directions:g} of {width} columns)"
    shown = what_others_learn(job, party.name, width, rows=table.rows, directions_at_most=most)
    others = [Finding(about, None, "\n".join(told) or "nothing") for about, told in shown.items()]
    others += [Finding(f"{name} will learn", None, told) for name, told in what_each_learns(job).items()]
    others += [Finding("sealed", None, told)] if (told := sealed_costs(job, table.rows, len(columns))) else []
    return [*found, tried("policy", policy), *([tried("budget", budget)] if kind.adds_up else []), *others]


def _held_out_numbers(party: PartyFile, tries: int, most: int, width: int) -> str:
    """Say how many scores of each person a sealed search shows; refuse more than the policy lets out."""
    rule = f"{most} (max_directions = {party.policy.max_directions:g} of {width} columns)"
    if tries > most:
        raise PolicyRefused(
            f"a search of {tries} candidates shows {tries} numbers about each person, held out once for each; the "
            f"policy of {party.name!r} allows {rule}; try fewer, or raise max_directions"
        )
    return (
        f"training is sealed; for the scores of held-out people {tries} numbers about each leave, as in predictions. "
        f"In all runs together {rule} may"
    )


def _batches(job: Job, party: PartyFile, rows: int, columns: int) -> str:
    """Return what is known of batches of encrypted signals, and of sums of encrypted numbers; refuse small ones."""
    # The scores of a row, and how many rows all parties have in common, are not known yet: they may ask for more.
    if family(job.family).counted(job.sum):
        return "one, of all rows in common; whether they are enough for the last layers is known in training"
    if in_shares(job.sum, job.holders):
        return "of any size, as no gradient is opened"
    others = [name for name in job.holders if name != party.name]
    share = rows // len(job.holders)
    sizes = {party.name: job.width(party.name, columns)}
    usual = usual_batch(sizes, job.holders, 1, rows)
    given = usual if job.algorithm.batch is None else job.algorithm.batch_for(rows)
    check_batches(sizes, dict.fromkeys(others, share), given, 1)
    return f"large enough for {sizes[party.name]} columns"


def own_folder(party: PartyFile) -> str:
    """Return where the party's files go; the folder is there, or can be made."""
    there = next(path for path in (party.folder, *party.folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise OptionError(f"{str(party.folder)!r} can't be written to: {str(there)!r} is no folder of ours to write")
    if party.folder.exists():
        private_files.check(party.folder, "the folder", OptionError)
    return str(party.folder)


def seen_peer(job: Job, party: PartyFile, name: str) -> Finding:
    """Look whether another party is there and has the same job; nothing is sent but a greeting."""
    place, what = NetworkPlace(party.name, job.addresses, party.listen, job.hub), f"peer {name}"
    if not place.dials(name):
        return Finding(what, True, "dials this party; it is seen when it runs")
    try:
        credentials = certificates.load(party.certificates, party.name)
        address, terms = str(place.addresses[name]), RunTerms.of(job.parties, job.agreed)
        seen = asyncio.run(look(address, party.name, name, terms, credentials))
    except PartySilent as error:
        return Finding(what, None, f"{error}; it may not be running yet", later=True)
    except ColonnadeError as error:
        return Finding(what, False, str(error))
    version = f"{address}, colonnade {seen.package}" + ("" if seen.package == __version__ else f", here {__version__}")
    if seen.differs is not None:
        return Finding(what, False, f"{version}; {seen.differs}")
    return Finding(what, True, f"{version}, the same job")
