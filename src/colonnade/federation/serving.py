"""`colonnade predict` and `colonnade serve`: a trained model in use between organisations; see `scoring`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade import __version__, labels, losses
from colonnade.blocks.prediction import MIXTURES
from colonnade.errors import DataError, OptionError
from colonnade.federation import certificates, data, model_file
from colonnade.federation.handshake import Terms as JobTerms
from colonnade.federation.job import Job
from colonnade.federation.ledger import Ledger
from colonnade.federation.model_file import ModelPart
from colonnade.federation.party_file import PartyFile
from colonnade.federation.policy import Door
from colonnade.federation.scoring import Asker, Contributions, Directory, Terms, serve
from colonnade.federation.signatures import signer
from colonnade.federation.table import Table
from colonnade.ids import canonical
from colonnade.runtimes.net import Net, Outcome, Program
from colonnade.runtimes.place import Place

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Scores:
    """What was found out about new people, in the order of their table."""

    ids: list[str]
    known: npt.NDArray[np.bool_]  # at every party
    columns: dict[str, Array]  # prediction, and the probability of each class where there are any


def predict(job: Job, party: PartyFile, source: Path | None) -> Scores:
    """Ask the partners, who serve, about the people in a file (or in the party's own data)."""
    if party.name not in job.holders:
        raise OptionError(
            f"predictions are summed at a label holder, {party.name!r} is none; ask as {job.holders[0]!r}"
        )
    part = model_file.load(party.folder, party.name)
    found: list[Scores] = []

    async def program(net: Net, table: Any, ids: Any) -> None:
        asker = await Asker.open(net, _terms(job, party.name, part))
        mine = await net.in_thread(Contributions(part.state, part.public["combines"]).of, part.prepared.apply(table))
        totals, known = await asker.scores(ids, mine)
        await asker.close()
        found.append(Scores(ids, known, outputs(job, part, totals)))

    def read() -> tuple[Any, ...]:
        table = _table(party, part, source)
        return table, [str(one) for one in _ids(table, party.name).tolist()]

    _take_part(job, party, party.name, program, read)
    return found[0]


def serve_once(job: Job, party: PartyFile, asker: str) -> int:
    """Answer one asker until it is done; returns how many people it asked about."""
    part = model_file.load(party.folder, party.name)

    def read() -> tuple[Any, ...]:
        table = _table(party, part, None)
        directory = Directory(_ids(table, party.name))
        contributions = Contributions(part.state, part.public["combines"])

        def lookup(asked: list[str]) -> tuple[Array, npt.NDArray[np.bool_]]:
            rows, known = directory.find(asked)
            empty = np.zeros((0, contributions.outputs))
            return contributions.of(part.prepared.apply(table.take(rows))) if len(rows) else empty, known

        return (lookup,)

    async def program(net: Net, lookup: Any) -> int:
        return await serve(net, _terms(job, asker, part), lookup)

    return int(_take_part(job, party, asker, program, read).value)


def serve_http(job: Job, party: PartyFile, address: str, tell: Callable[[str], None]) -> None:
    """Keep the line to the partners up, and answer requests over HTTP until somebody stops it."""
    import threading

    from colonnade.federation.http import Server, token_in

    if party.name not in job.holders:
        raise OptionError(
            f"scores are summed at a label holder, {party.name!r} is none; serve HTTP at {job.holders[0]!r}"
        )
    part, token = model_file.load(party.folder, party.name), token_in(party.folder / "http.token")
    contributions = Contributions(part.state, part.public["combines"])

    def read() -> tuple[Any, ...]:
        table = _table(party, part, None)
        return table, Directory(_ids(table, party.name))

    async def program(net: Net, table: Any, directory: Any) -> None:
        asker = await Asker.open(net, _terms(job, party.name, part))
        loop, turn, ended = asyncio.get_running_loop(), asyncio.Lock(), net.promise()

        def own(ids: list[str], rows: Table | None) -> tuple[Array, npt.NDArray[np.bool_]]:
            if rows is not None:
                return contributions.of(part.prepared.apply(rows)), np.ones(len(ids), dtype=bool)
            places, known = directory.find(ids)
            mine = np.zeros((len(ids), contributions.outputs))
            if len(places):
                mine[known] = contributions.of(part.prepared.apply(table.take(places)))
            return mine, known

        async def answer(ids: list[str], mine: Array) -> tuple[Array, npt.NDArray[np.bool_]]:
            try:
                async with turn:  # partners answer one question after another
                    return await asker.scores(ids, mine)
            except BaseException as error:
                if not ended.done():
                    ended.set_exception(error)
                raise

        def score(ids: list[str], rows: Table | None) -> list[dict[str, Any]]:
            mine, here = own(ids, rows)
            totals, there = asyncio.run_coroutine_threadsafe(answer(ids, mine), loop).result()
            return answers(Scores(ids, here & there, outputs(job, part, totals)))

        server = Server(address, token, part.prepared, score)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tell(f"scores at http://{address}/score, the token is in {party.folder.name}/http.token")
        try:
            await ended
        finally:
            server.shutdown()
            server.server_close()

    _take_part(job, party, party.name, program, read)


def answers(scores: Scores) -> list[dict[str, Any]]:
    """One dictionary per person, as JSON has it."""
    found: list[dict[str, Any]] = []
    for row, (one, known) in enumerate(zip(scores.ids, scores.known.tolist(), strict=True)):
        answer: dict[str, Any] = {"id": one, "known": known}
        if known:
            values = {name: column[row].item() for name, column in scores.columns.items()}
            answer["prediction"] = values.pop("prediction")
            if values:
                answer["probabilities"] = {name[2:-1]: chance for name, chance in values.items()}
        found.append(answer)
    return found


def outputs(job: Job, part: ModelPart, totals: Array) -> dict[str, Array]:
    """Scores as people read them."""
    loss = losses.loss(job.loss)
    scores = MIXTURES[job.loss].log_odds(totals) if part.public["combines"] == "predictions" else totals
    found = {"prediction": labels.decode(loss.predict(scores), part.classes, loss)}
    if loss.kind in ("binary", "classes") and job.loss != "smooth_hinge":
        chances = loss.probability(scores)
        found |= {f"p({name})": chances[:, column] for column, name in enumerate(part.classes.tolist())}
    return found


def _terms(job: Job, asker: str, part: ModelPart) -> Terms:
    return Terms(asker, int(part.state[0].shape[1]), job.sum, job.topology)


def _table(party: PartyFile, part: ModelPart, source: Path | None) -> Table:
    return data.load(party.data, source=source, labels=False, texts=part.prepared.texts)


def _ids(table: Table, party: str) -> Array:
    if table.ids is None:
        raise DataError(
            f"party {party!r} names no id column, and people are asked about by their ids; set id under [data]"
        )
    return canonical(table.ids, f"party {party!r}")


def _take_part(
    job: Job, party: PartyFile, asker: str, program: Program, read: Callable[[], tuple[Any, ...]]
) -> Outcome:
    from colonnade.runtimes.network import run_party

    credentials = certificates.load(party.certificates, party.name)
    agreed = {**job.agreed, "purpose": "scoring", "asker": asker}
    about = {"job": JobTerms.of(job.parties, agreed).digest.hex(), "name": job.name, "me": party.name}
    ledger = Ledger(party.ledger, signer(credentials.key), run={**about, "version": __version__, "asker": asker})
    try:
        return asyncio.run(
            run_party(
                Place(party.name, job.addresses, party.listen),
                program,
                read,
                job=agreed,
                credentials=credentials,
                deadline=job.deadline,
                grace=job.grace,
                patience=job.patience,
                door=Door(party.name, party.policy, ledger),
            )
        )
    finally:
        ledger.close()


def write(scores: Scores, path: Path) -> None:
    """As CSV or Parquet, by the ending of the file: id, known, prediction, probabilities; empty where not known."""
    import duckdb

    if path.suffix not in (".csv", ".parquet"):
        raise OptionError(f"the file for the scores must end in .csv or .parquet, got {path.name!r}")
    names = list(scores.columns)
    rows = [
        (one, bool(known), *(scores.columns[name][row].item() if known else None for name in names))
        for row, (one, known) in enumerate(zip(scores.ids, scores.known, strict=True))
    ]
    kinds = {"U": "VARCHAR", "O": "VARCHAR", "f": "DOUBLE", "i": "BIGINT", "b": "BOOLEAN", "u": "UBIGINT"}
    typed = [f'"{name}" {kinds[scores.columns[name].dtype.kind]}'.replace("'", "''") for name in names]
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE scores (id VARCHAR, known BOOLEAN, {', '.join(typed)})")
        if rows:
            database.executemany(f"INSERT INTO scores VALUES ({', '.join('?' * (2 + len(names)))})", rows)
        target = str(path).replace("'", "''")
        database.execute(f"COPY scores TO '{target}' ({'FORMAT parquet' if path.suffix == '.parquet' else 'HEADER'})")
