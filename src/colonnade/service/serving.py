"""`colonnade predict` and `colonnade serve`: a trained model in use between organisations; see `scoring`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Set
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from colonnade.data import labels
from colonnade.data.ids import canonical
from colonnade.defences.scores import Answers
from colonnade.errors import ColonnadeError, DataError, OptionError, PartySilent, RunFailed, VersionMismatch
from colonnade.events.daily import HTTP, DailyCounts
from colonnade.families import family
from colonnade.families.scoring import SummedScorer
from colonnade.jobs import model_file, people
from colonnade.jobs.job import Job
from colonnade.jobs.model_file import ModelPart
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.score_file import Scores
from colonnade.objective import losses
from colonnade.objective.calibration import decided_by
from colonnade.runtimes.net import Net
from colonnade.service.in_use import judge, loaded, scorer_of, use
from colonnade.service.scoring import Asker, Directory, ScoringTerms, columns_of, held_by, serve
from colonnade.streams.loading import load
from colonnade.streams.preparing import Storage, prepared
from colonnade.tables.table import Table
from colonnade.versions.identity import short
from colonnade.versions.version import Version

Array = npt.NDArray[Any]
_PAUSE = 1.0  # seconds before serving again


def predict(
    job: Job,
    party: PartyFile,
    source: Path | None,
    version: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Scores:
    """Ask the partners, who serve, about the people in a file (or in the party's own data).

    version: the beginning of the id of the version to ask with, if it is not the promoted one. tell: where words go
    about what does not fit the training. Who is none of the people that this party's own policy serves is not known,
    and the partners hear nothing of them.
    """
    if source is not None and not source.is_file():
        raise DataError(f"there is no file {str(source)!r}; give the people to score with --data")
    if party.name not in job.holders and family(job.family).predicts_alone:
        return _alone(job, party, source, version, tell)
    if party.name not in job.holders:
        raise OptionError(
            f"predictions are summed at a label holder, {party.name!r} is none; ask as {job.holders[0]!r}"
        )
    part, served = loaded(party, version)
    # Before anybody is dialled: a mistake in this party's own file is no reason to end the service of another.
    table = _table(party, part, source)
    ids = [str(one) for one in _ids(table, party.name).tolist()]
    here = _among(ids, served)
    asked = table.take(here) if here.any() else None
    X = None if asked is None else prepared(part.prepared, asked, _room(party))
    judge(party, part, table.take(here), tell)

    async def program(net: Net) -> Scores:
        scorer = scorer_of(part, party, job)
        hold = await net.in_thread(held_by, party.engine, scorer)
        asker = await Asker.open(net, _terms(job, party.name), scorer, hold)
        totals, known = await asker.scores(ids, X, here)
        await asker.close()
        return Scores(ids, known, outputs(job, part, with_offsets(totals, table.added), party.answers))

    with party.engine or nullcontext():
        scores: Scores = use(job, party, part, party.name, program, lambda: ())
    return scores


def _alone(job: Job, party: PartyFile, source: Path | None, version: str | None, tell: Callable[[str], None]) -> Scores:
    """Return the scores of people by this party's own part of the model, which needs nobody else's."""
    part = model_file.load(party.folder, party.name, version)
    table = _table(party, part, source)
    judge(party, part, table, tell)
    X = prepared(part.prepared, table, _room(party))
    scorer, columns = scorer_of(part, party, job), columns_of(X)
    totals = cast("SummedScorer", scorer).of(columns, np.arange(table.rows))
    ids = [str(one) for one in _ids(table, party.name).tolist()]
    return Scores(ids, np.ones(len(ids), dtype=bool), outputs(job, part, totals[:, 0], party.answers))


def serve_once(
    job: Job,
    party: PartyFile,
    asker: str,
    tell: Callable[[str], None] = lambda _: None,
    version: str | None = None,
) -> int:
    """Answer one asker until it is done; returns how many people it was answered about.

    version: the beginning of the id of the version to answer with, if it is not the promoted one.
    """
    part, served = loaded(party, version)
    gate, counts = people.Gate.of(party, asker, served, tell), DailyCounts(party.folder)

    def ask(count: int) -> people.Refusal | None:
        refusal = gate(count)
        counts.add(asker, count, refused=refusal is not None)
        return refusal

    def read() -> tuple[Any, ...]:
        table, directory = _directory(party, part, served, tell)
        rows_of = _rows_of(party, part, table)

        def lookup(asked: list[str]) -> tuple[Any, npt.NDArray[np.bool_]]:
            rows, known = directory.find(asked)
            if not len(rows):
                return None, known
            return rows_of(rows), known

        return (lookup,)

    async def program(net: Net, lookup: Any) -> int:
        terms, rounds = _terms(job, asker), party.policy.max_rounds
        scorer = scorer_of(part, party, job)
        hold = await net.in_thread(held_by, party.engine, scorer)
        return await serve(net, terms, scorer, lookup, ask, rounds, hold)

    try:
        with party.engine or nullcontext():
            return int(use(job, party, part, asker, program, read))
    finally:
        counts.write()


def serve_http(
    job: Job,
    party: PartyFile,
    address: str,
    tell: Callable[[str], None],
    *,
    public: bool = False,
    version: str | None = None,
) -> None:
    """Answer requests over HTTP until somebody stops it; while a partner is not there, with a sentence about that.

    version: the beginning of the id of the version to serve; None is the promoted one, whichever it is when the line to
    the partners is made.
    """
    if party.name not in job.holders:
        raise OptionError(
            f"scores are summed at a label holder, {party.name!r} is none; serve HTTP at {job.holders[0]!r}"
        )
    from colonnade.service.http import Server, token_in

    part, _ = loaded(party, version)  # mistakes in it are told before anybody is dialled
    token, metrics = token_in(party.folder / "http.token"), metrics_token(party)
    server = Server(address, token, part.prepared, beside=beside_of(party), metrics_token=metrics, public=public)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    tell(f"scores at http://{address}/score, the token is in {party.folder.name}/http.token")
    try:
        again_and_again(lambda: _answer_http(job, party, version, server, tell), tell)
    finally:
        server.shutdown()
        server.server_close()


def beside_of(party: PartyFile) -> dict[str, str]:
    """Return the columns of what a label holder adds to each score by itself, as {"exposure": name}."""
    return {role: str(party.data[role]) for role in ("exposure", "offset") if party.data[role] is not None}


def metrics_token(party: PartyFile) -> str | None:
    """Return the token that opens /metrics alone, which is made by whoever wants one."""
    from colonnade.service.http import token_in

    path = party.folder / "metrics.token"
    return token_in(path) if path.exists() else None


def again_and_again(serve: Callable[[], object], tell: Callable[[str], None]) -> None:
    """Serve, and after every end serve again: a partner that was stopped or lost comes back."""
    before = ""
    while True:
        try:
            serve()
            before = ""
        except (RunFailed, VersionMismatch) as error:
            quiet = isinstance(error, PartySilent) and error.step == "joining"  # a quiet time is no failure
            if not quiet and str(error) != before:
                tell(f"{error}; waiting for the partners again")
                before = str(error)
            time.sleep(_PAUSE)


def _answer_http(job: Job, party: PartyFile, version: str | None, server: Any, tell: Callable[[str], None]) -> None:
    """Join the partners, and let the server answer for as long as the line to them is up."""
    part, served = loaded(party, version)
    server.prepared = part.prepared
    counts = DailyCounts(party.folder)

    def read() -> tuple[Any, ...]:
        return _directory(party, part, served, tell)

    async def program(net: Net, table: Any, directory: Any) -> None:
        rows_of = await net.in_thread(_rows_of, party, part, table)
        scorer = scorer_of(part, party, job)
        hold = await net.in_thread(held_by, party.engine, scorer)
        asker = await Asker.open(net, _terms(job, party.name), scorer, hold)
        loop, turn, ended = asyncio.get_running_loop(), asyncio.Lock(), net.promise()

        def own(ids: list[str], rows: Table | None) -> tuple[Any, npt.NDArray[np.bool_], Array | None]:
            if rows is not None:  # features of people, who bring their exposures
                here = _among(ids, served)
                judge(party, part, rows.take(here), tell, keep=False)
                return part.prepared.apply(rows.take(here)) if here.any() else None, here, rows.added
            places, known = directory.find(ids)
            added = None if table.added is None else np.zeros(len(ids))
            if added is not None:
                added[known] = table.added[places]
            return rows_of(places) if len(places) else None, known, added

        async def answer(ids: list[str], X: Any, here: npt.NDArray[np.bool_]) -> tuple[Array, npt.NDArray[np.bool_]]:
            try:
                async with turn:  # partners answer one question after another
                    return await asker.scores(ids, X, here)
            except RunFailed as error:
                end_with(error)
                raise

        def end_with(error: Exception) -> None:
            if not ended.done():
                ended.set_exception(error)

        async def watch() -> None:
            """Notice a partner that goes while nobody asks: the message that is waited for here never comes."""
            partner = next(name for name in net.names if name != net.me)
            try:
                await net.recv(partner, "end of serving", patient=True)
            except RunFailed as error:
                end_with(error)

        def score(ids: list[str], rows: Table | None) -> list[dict[str, Any]]:
            X, here, added = own(ids, rows)
            totals, known = asyncio.run_coroutine_threadsafe(answer(ids, X, here), loop).result()
            return answers(Scores(ids, known, outputs(job, part, with_offsets(totals, added), party.answers)))

        net.spawn(watch())
        about = (len(net.names) - 1, short(part.training), trained_at(part))
        server.joined(counted(score, counts), *about)
        tell(f"the partners are there, version {short(part.training)}")
        try:
            await ended
        finally:
            server.left()
            counts.write()

    with party.engine or nullcontext():
        use(job, party, part, party.name, program, read)


def counted(score: Callable[..., list[dict[str, Any]]], counts: DailyCounts) -> Callable[..., list[dict[str, Any]]]:
    """Return what answers requests, and counts them."""

    def counting(ids: list[str], rows: Table | None) -> list[dict[str, Any]]:
        try:
            found = score(ids, rows)
        except ColonnadeError:
            counts.add(HTTP, len(ids), refused=True)
            raise
        counts.add(HTTP, len(ids))
        return found

    return counting


def trained_at(part: ModelPart) -> float:
    """Return when a version was trained, in seconds of UNIX time; 0 where nobody wrote it down."""
    date = Version.read(part.folder).date if part.training else ""
    return datetime.fromisoformat(date).timestamp() if date else 0.0


def answers(scores: Scores) -> list[dict[str, Any]]:
    """Return one dictionary per person, for JSON."""
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


def outputs(job: Job, part: ModelPart, totals: Array, told: Answers) -> dict[str, Array]:
    """Scores as people read them, and as much of them as the party's own file lets them read."""
    loss = losses.loss(job.loss)
    scores = family(part.public["family"]).decode(job.loss, totals)
    how = loss if part.calibration is None else part.calibration
    decided = decided_by(scores, loss, part.threshold, part.calibration)
    found = {"prediction": labels.decode(decided, part.classes, loss)}
    if loss.kind in ("binary", "classes") and (part.calibration is not None or job.loss != "smooth_hinge"):
        chances = how.probability(scores)
        found |= {f"p({name})": chances[:, column] for column, name in enumerate(part.classes.tolist())}
    return told.of(found, classes=loss.kind in ("binary", "classes"))


def with_offsets(totals: Array, added: Array | None) -> Array:
    """Return scores with what the label holder adds to them by itself."""
    return totals if added is None else totals + added


def _among(ids: list[str], served: Set[str] | None) -> npt.NDArray[np.bool_]:
    return np.array([served is None or one in served for one in ids], dtype=bool)


def _terms(job: Job, asker: str) -> ScoringTerms:
    return ScoringTerms(asker, job.sum, job.topology)


def _directory(
    party: PartyFile, part: ModelPart, served: Set[str] | None, tell: Callable[[str], None]
) -> tuple[Table, Directory]:
    """Return the party's own table and where people are in it, once it is seen to fit the training."""
    table = _table(party, part, None)
    ids = _ids(table, party.name)
    judge(party, part, table.take(_among([str(one) for one in ids.tolist()], served)), tell)
    return table, Directory(ids, served)


def _table(party: PartyFile, part: ModelPart, source: Path | None) -> Table:
    return load(party.data, source=source, labels=False, texts=part.prepared.texts, home=party.folder)


def _room(party: PartyFile) -> Storage:
    return Storage.of(party.data, party.folder)


def _rows_of(party: PartyFile, part: ModelPart, table: Table) -> Callable[[npt.NDArray[np.int64]], Any]:
    """Return what gives some rows of a table, prepared; one that is read in chunks is prepared once, as a whole."""
    if not table.lazy:
        return lambda rows: part.prepared.apply(table.take(rows), _room(party).dtype)
    X = prepared(part.prepared, table, _room(party))
    return lambda rows: X[rows]


def _ids(table: Table, party: str) -> Array:
    if table.ids is None:
        raise DataError(
            f"party {party!r} names no id column, and people are asked about by their ids; set id under [data]"
        )
    return canonical(table.ids, f"party {party!r}", repeated=True)  # the table itself refuses ids that may not repeat
