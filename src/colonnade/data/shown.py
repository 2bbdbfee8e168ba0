"""Parties and sites as a notebook shows them: how many rows, which columns, and who has a label; never a value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from colonnade.notebooks.cells import table

if TYPE_CHECKING:
    from colonnade.data.party import Party
    from colonnade.data.site import Site

_NAMES = 12  # columns that are named


def party_html(party: Party) -> str:
    """Return a party as a table of facts."""
    labels = "none"
    if party.labelled is not None:
        labels = f"{np.count_nonzero(party.labelled):,} of {party.rows:,} rows"
    facts = [("rows", f"{party.rows:,}"), ("columns", _names(party.columns)), ("labels", labels)]
    facts += [("ids", "yes" if party.ids is not None else "none: rows are taken as they are")]
    beside = [name for name in ("sample_weight", "offset", "exposure") if getattr(party, name) is not None]
    facts += [("beside", ", ".join(beside))] if beside else []
    facts += [("preparation", "to be learnt")] if party.raw is not None else []
    return table(("", ""), facts, words=2, title=f"party {party.name}")


def site_html(site: Site) -> str:
    """Return a site as a table of facts."""
    facts = [("rows", f"{site.rows:,}"), ("columns", _names(site.columns))]
    return table(("", ""), facts, words=2, title=f"site {site.name}")


def _names(columns: tuple[str, ...]) -> str:
    shown = ", ".join(columns[:_NAMES])
    return f"{len(columns):,}: {shown}{', …' if len(columns) > _NAMES else ''}"
