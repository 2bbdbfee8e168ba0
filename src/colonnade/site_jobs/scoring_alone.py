"""A site's model in use: it is whole there, so that nobody else is asked and nothing leaves."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import private_files
from colonnade.data.ids import canonical
from colonnade.errors import DataError, OptionError
from colonnade.events.daily import DailyCounts
from colonnade.horizontal.messages import model_from_value
from colonnade.jobs import model_file
from colonnade.jobs.model_file import ModelPart
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.score_file import Scores
from colonnade.ledger.ledger import take_lane
from colonnade.service.in_use import judge
from colonnade.service.serving import answers, counted, metrics_token, outputs, trained_at
from colonnade.site_jobs.site_job import SiteJob
from colonnade.site_jobs.site_rows import network_of
from colonnade.streams.loading import load
from colonnade.tables.table import Table
from colonnade.versions.identity import short

Array = npt.NDArray[Any]


def predict_alone(
    job: SiteJob,
    party: PartyFile,
    source: Path | None,
    version: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Scores:
    """Score the rows of a file, or of the site's own data, by the whole model that lies here."""
    if source is not None and not source.is_file():
        raise DataError(f"there is no file {str(source)!r}; give the people to score with --data")
    if party.name not in job.sites:
        raise OptionError(f"{party.name!r} brings no rows, so it has none to score; predict at a site")
    part = model_file.load(party.folder, party.name, version)
    table = load(party.data, source=source, labels=False, texts=part.prepared.texts, home=party.folder)
    judge(party, part, table, tell)
    ids = [str(row) for row in range(table.rows)]
    if table.ids is not None:
        ids = [str(one) for one in canonical(table.ids, f"party {party.name!r}", repeated=True).tolist()]
    columns = outputs(job, part, scores_of(part, party, table), party.answers)
    return Scores(ids, np.ones(len(ids), dtype=bool), columns)


def scores_of(part: ModelPart, party: PartyFile, table: Table) -> Array:
    """Return a score of each class for the rows of a table."""
    kind, features, what, *rest = part.public["shape"]
    shapes = tuple(tuple(shape) for shape in what) if isinstance(what, list) else what
    model = model_from_value((kind, features, shapes, *rest), network_of(party), f"site {party.name!r}")
    return np.asarray(model.scores(part.state[0], part.prepared.apply(table)), dtype=np.float64)


def serve_alone(
    job: SiteJob,
    party: PartyFile,
    address: str,
    tell: Callable[[str], None],
    *,
    public: bool = False,
    version: str | None = None,
    until: threading.Event | None = None,
) -> None:
    """Answer requests over HTTP until somebody stops it, from the model that lies here.

    until: what ends it, where it is not the end of the process.
    """
    if party.name not in job.sites:
        raise OptionError(f"{party.name!r} brings no rows, so it has none to score; serve HTTP at a site")
    part = model_file.load(party.folder, party.name, version)
    private_files.make_folder(party.folder)
    lane = take_lane(party.ledger, "scoring")  # a party serves once, and by this the dashboard sees that it does
    try:
        _serve(job, party, part, address, tell, public=public, until=until or threading.Event())
    finally:
        os.close(lane)


def _serve(
    job: SiteJob,
    party: PartyFile,
    part: ModelPart,
    address: str,
    tell: Callable[[str], None],
    *,
    public: bool,
    until: threading.Event,
) -> None:
    from colonnade.service.http import Server, token_in

    token = token_in(party.folder / "http.token")
    server = Server(address, token, part.prepared, metrics_token=metrics_token(party), public=public)
    counts = DailyCounts(party.folder)

    def score(ids: list[str], rows: Table | None) -> list[dict[str, Any]]:
        if rows is None:
            raise DataError("a site's model knows no ids; send the features of the people to score")
        judge(party, part, rows, tell, keep=False)
        columns = outputs(job, part, scores_of(part, party, rows), party.answers)
        return answers(Scores(ids, np.ones(len(ids), dtype=bool), columns))

    server.joined(counted(score, counts), 0, short(part.training), trained_at(part))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tell(f"scores at http://{address}/score, the token is in {party.folder.name}/http.token")
    try:
        until.wait()
    finally:
        server.shutdown()
        server.server_close()
        counts.write()
