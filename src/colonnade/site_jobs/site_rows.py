"""A site's own rows: read, with the job's columns, without rows that have no label, and divided by chance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from colonnade.data.identity import Identity
from colonnade.errors import DataError, OptionError
from colonnade.jobs.party_file import PartyFile
from colonnade.networks.torch_modules import imported
from colonnade.remote.certificates import Credentials
from colonnade.remote.signatures import signer, vouched
from colonnade.service.agreeing import share_out
from colonnade.site_jobs.common_steps import with_columns
from colonnade.site_jobs.seat import Seat, Voucher
from colonnade.site_jobs.site_job import SiteJob
from colonnade.streams.loading import load
from colonnade.tables.table import Table

IDENTITY = "site.key"


def labelled(job: SiteJob, party: PartyFile, tell: Callable[[str], None]) -> Table:
    """Read a site's rows with a label, and the columns that the job names."""
    table = with_columns(load(party.data, home=party.folder), job.columns)
    if table.label is None:
        raise DataError(f"site {party.name!r} names no label column; set label under [data]")
    known = np.array([not _missing(one) for one in table.label.tolist()], dtype=bool)
    if not known.all():
        tell(f"note: {int((~known).sum()):,} of {table.rows:,} rows have no label and are left out")
        table = table.take(np.flatnonzero(known))
    return table


def _missing(label: Any) -> bool:
    return label is None or (isinstance(label, float) and np.isnan(label))


def seat_of(
    job: SiteJob, party: PartyFile, credentials: Credentials | None, tell: Callable[[str], None] = lambda _: None
) -> Seat:
    """Return a site's seat, with its rows and its key."""
    table = labelled(job, party, tell)
    parts = share_out(np.arange(table.rows), job.validation, job.algorithm.seed)
    tell(f"{table.rows:,} rows read" + (f", {len(parts[1]):,} of them held out" if len(parts[1]) else ""))
    check = partial(party.policy.check_part, party.name)
    rules = (voucher_of(credentials), identity_of(party), party.policy.min_rows, network_of(party), check)
    return Seat(job, party.name, table, parts, *rules)


def voucher_of(credentials: Credentials | None) -> Voucher:
    """Return how this party's certificate vouches for its key, and how it believes others'."""
    if credentials is None:
        return Voucher()
    return Voucher(credentials.certificate, signer(credentials.key), vouched(credentials.authority))


def identity_of(party: PartyFile) -> Identity:
    """Return a site's key, which is made once and kept in its folder, so that it is the same when it comes again."""
    path = party.folder / IDENTITY
    if not path.exists():
        Identity().save(path)
    return Identity.load(path)


def network_of(party: PartyFile) -> Any:
    """Return the function that a party's own file names for its network, or None."""
    if party.network is None:
        return None
    found = imported(party.network, party.name)
    if not callable(found):
        raise OptionError(f"{party.network!r} is no function make(features, classes) -> torch.nn.Module")
    return found
