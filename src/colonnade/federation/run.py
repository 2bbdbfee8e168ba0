"""`colonnade run`: one organisation's part in a job, from its two files to its part of the model on disk."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import __version__, metrics
from colonnade.errors import ColonnadeError
from colonnade.federation import certificates, data, model_file, preparation
from colonnade.federation.checkpoints import Checkpoints
from colonnade.federation.handshake import Terms
from colonnade.federation.job import Job
from colonnade.federation.ledger import Ledger
from colonnade.federation.party_file import PartyFile
from colonnade.federation.policy import Door
from colonnade.federation.prepared import Prepared
from colonnade.federation.settings import Settings
from colonnade.federation.signatures import signer
from colonnade.federation.table import Table
from colonnade.federation.training import Keepers, Rows, Trained, take_part
from colonnade.losses import loss
from colonnade.progress import History
from colonnade.runtimes.net import Net, Outcome
from colonnade.runtimes.place import Place


def column_names(learned: Prepared) -> tuple[str, ...]:
    """Names of the prepared columns; of sparse ones without names, their numbers."""
    width = learned.sparse.width if learned.sparse is not None else 0
    return learned.names or tuple(f"x{column}" for column in range(width))


@dataclass(frozen=True)
class PreparedTable:
    """A table with what was learned on its training rows."""

    table: Table
    learned: Prepared
    columns: tuple[str, ...]

    def matrix(self, rows: Rows) -> Any:
        """These rows, prepared."""
        return self.learned.apply(self.table.take(rows))


class TableSource:
    """A party's table, as `training` takes it."""

    def __init__(self, table: Table, prepare: Settings | None) -> None:
        self.table, self._prepare = table, prepare
        self.rows, self.ids, self.labels = table.rows, table.ids, table.label

    def prepare(self, rows: Rows) -> PreparedTable:
        """Learn the preparation on these rows."""
        learned = preparation.fit(self.table, self._prepare, rows)
        return PreparedTable(self.table, learned, column_names(learned))

    def digest(self) -> bytes:
        """Of the ids: rows that were kept belong to these, in this order."""
        ids: npt.NDArray[Any] = np.arange(self.rows) if self.ids is None else np.asarray(self.ids)
        found = hashlib.sha256(str(ids.dtype.kind).encode())
        for one in ids.tolist():
            found.update(f"{one!r}\n".encode())
        return found.digest()


@dataclass(frozen=True)
class Done:
    """What a run left behind."""

    path: Path  # of this party's part of the model
    trained: Trained
    outcome: Outcome
    history: list[dict[str, Any]]


def run_job(job: Job, party: PartyFile, *, verbose: int = 1, tell: Callable[[str], None] = lambda _: None) -> Done:
    """Take part in a job, and save this party's part of the model."""
    from colonnade.align import align
    from colonnade.runtimes.network import run_party

    credentials = certificates.load(party.certificates, party.name)
    party.policy.check_job(party.name, job.parties, job.sum, party.policy.min_features, party.policy.min_batch)
    digest = Terms.of(job.parties, job.agreed).digest
    party.folder.mkdir(parents=True, exist_ok=True)
    history = History(metrics.METRICS[loss(job.loss).kind], job.algorithm.epochs, verbose)
    about = {"job": digest.hex(), "name": job.name, "me": party.name, "version": __version__}
    ledger = Ledger(party.ledger, signer(credentials.key), run=about)
    keepers: list[Keepers] = []
    results: list[Trained] = []

    def check(features: int, batch: int) -> None:
        party.policy.check_job(party.name, job.parties, job.sum, features, batch)

    def read() -> tuple[Any, ...]:
        """Only now, when every handshake has succeeded, is anything private read."""
        source = TableSource(data.load(party.data), party.prepare)
        tell(f"{source.rows:,} rows read")
        rows = Checkpoints(party.checkpoints / "rows", digest + source.digest())
        keepers.append(Keepers(rows, Checkpoints(party.checkpoints / "state", digest, job.checkpoint_every)))
        return (source,)

    async def program(net: Net, source: Any) -> None:
        results.append(await take_part(net, job, source, align, check, keepers[0]))

    place = Place(party.name, job.addresses, party.listen)
    try:
        outcome = asyncio.run(
            run_party(
                place,
                program,
                read,
                job=job.agreed,
                credentials=credentials,
                deadline=job.deadline,
                grace=job.grace,
                patience=job.patience,
                observer=history.observe,
                door=Door(party.name, party.policy, ledger),
            )
        )
    except BaseException as error:
        ledger.close("failed" if isinstance(error, ColonnadeError) else "stopped")
        raise
    finally:
        history.close()
    trained = results[0]
    prepared = trained.prepared
    if not isinstance(prepared, PreparedTable):
        raise TypeError("a party's table prepares itself")
    path = model_file.save(party.folder, job, party.name, trained, prepared.learned)
    ledger.close("end")
    for keeper in (keepers[0].rows, keepers[0].state):
        keeper.clear()  # type: ignore[attr-defined]
    return Done(path, trained, outcome, history.records)
