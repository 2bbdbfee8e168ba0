"""The programs of a job between sites: who asks, and who answers, each one coroutine over a `Net`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from colonnade.engine.kept import Keeper
from colonnade.errors import DataError, InputError, ProtocolError
from colonnade.horizontal.asking import to_the_end
from colonnade.horizontal.conduct import Result, ServerJob, conduct
from colonnade.horizontal.gathering import step_of
from colonnade.horizontal.messages import model_from_value
from colonnade.horizontal.shown import INSTRUCTION, INTRODUCTION
from colonnade.runtimes.net import Net
from colonnade.site_jobs.agreed import AGREED, DONE, REFUSED, WAIT, WHO, Agreed, records_of, told
from colonnade.site_jobs.class_rows import agreed_classes
from colonnade.site_jobs.common_steps import chains_of, same_columns
from colonnade.site_jobs.seat import Seat
from colonnade.site_jobs.site_desk import SiteDesk
from colonnade.site_jobs.site_job import SiteJob
from colonnade.site_jobs.survey import learn
from colonnade.tables.learned import LearnedPreparation

_TRAINING_BYTES = 16
_LATER = (WHO, AGREED, REFUSED, DONE)  # what is never skipped for something newer


@dataclass(frozen=True)
class Ended:
    """What everybody has of a run over rows when it is over."""

    agreed: Agreed
    plan: ServerJob
    result: Result
    learned: LearnedPreparation
    rows: int  # that this party trained on
    held_out: int


# -- who asks ----------------------------------------------------------------------------------------------------------


async def ask(
    net: Net,
    job: SiteJob,
    seat: Seat | None,
    digest: bytes,
    *,
    network: Any = None,
    keeper: Keeper | None = None,
    tell: Callable[[str], None] = lambda _: None,
    witness: Any = None,
) -> Ended:
    """Lead a run from the introductions of all sites to its end.

    Parameters
    ----------
    net
        The server's view of the federation.
    job
        The job.
    seat
        The server's own, where it has rows itself.
    digest
        Of what all have agreed on before the run.
    network
        The function that makes the network, where the job trains one.
    keeper
        Where the server keeps how far it is, so that a run that broke off goes on.
    tell
        Hears who is away and who is back.
    witness
        Who compares ledgers with a site that comes again; None in a simulation.
    """
    net.spare([name for name in job.sites if name != net.me])
    desk = SiteDesk(net, job, seat, digest, tell, witness)
    await desk.everybody()
    kept = _kept(keeper, desk)
    run: Any = None
    said: tuple[Any, ...] = ()
    if kept is None:
        try:
            agreed = await _agreement(desk, job)
        except InputError as error:  # about names of columns and classes: every site is told what can't be agreed on
            await desk.refuse_all(str(error))
            raise
    else:
        agreed, run, said, desk.serial = kept
        net.report(("resumed", run[6]))
    await desk.agree(agreed)
    learned = LearnedPreparation.from_arrays({"preparation": np.array(agreed.preparation)})
    width = len(learned.names or ())
    plan = job.plan(width, agreed.classes, network)
    records: list[Any] = []

    def say(value: tuple[Any, ...]) -> None:
        net.report(value)
        if value[0] in ("record", "also"):
            records.append(value)

    for value in said:
        say(value)
    saved = [0] if keeper is None else [max(keeper.versions(), default=0)]

    def keep(value: Any) -> None:
        if keeper is not None and value[6] % keeper.every == 0:
            saved[0] += 1
            keeper.save(saved[0], (_introductions(desk), agreed.as_value(), value, tuple(records), desk.serial))

    model = model_from_value(plan.model, network, "the server")
    conducting = conduct(plan, model, say, kept=run, keep=keep)  # functions of one's own are no part of a job
    result = await to_the_end(net, conducting, desk.sum)
    await desk.last_word((result.as_value(), tuple(records)))
    counts = (0, 0) if seat is None else seat.counts
    return Ended(agreed, plan, result, learned, *counts)


def _introductions(desk: SiteDesk) -> Any:
    """Return what the sites told of themselves, by which a run that goes on knows that they are the same."""
    return tuple((name, one.columns, one.classes) for name, one in sorted(desk.introduced.items()))


def _kept(keeper: Keeper | None, desk: SiteDesk) -> Any:
    """Return (what was agreed on, the run, its records, the number of its last sum) of a run to go on with, or None."""
    if keeper is None or not keeper.versions():
        return None
    who, agreed, run, said, serial = keeper.load(max(keeper.versions()))
    return (Agreed.from_value(agreed), run, said, serial) if who == _introductions(desk) else None


async def _agreement(desk: SiteDesk, job: SiteJob) -> Agreed:
    """Agree on columns, classes and the preparation, by sums over all sites."""
    told_by = desk.introduced
    kinds = same_columns({name: told_by[name].kinds for name in job.sites}, job.columns)
    classes = agreed_classes(job, {name: told_by[name].classes for name in job.sites})
    levels: dict[str, set[Any]] = {}
    for name in job.sites:
        for column, _, some in told_by[name].columns:
            levels.setdefault(column, set()).update(some)
    for column, both in levels.items():
        if len({type(one) for one in both}) > 1:
            raise DataError(f"the categories of column {column!r} are texts at one site and numbers at another")
    asking = learn(chains_of(kinds, job.prepare), {column: sorted(both) for column, both in levels.items()})
    try:
        task = next(asking)
        while True:
            task = asking.send(await desk.sum(task, of_all=True))
    except StopIteration as end:
        learned: LearnedPreparation = end.value
    text = str(learned.to_arrays()["preparation"])
    return Agreed(tuple(kinds.items()), text, classes, secrets.token_hex(_TRAINING_BYTES))


# -- who answers -------------------------------------------------------------------------------------------------------


async def answer(
    net: Net, job: SiteJob, seat: Seat, digest: bytes, network: Any = None, tell: Callable[[str], None] = lambda _: None
) -> Ended:
    """Answer as a site until the server says how the run ended.

    Parameters
    ----------
    net
        The site's view of the federation.
    job
        The job.
    seat
        This site's.
    digest
        Of what all have agreed on before the run.
    network
        The function that makes the network, where the job trains one.
    tell
        Hears how it goes.
    """
    server, masked = job.server, job.sum != "plain"
    net.spare([server])
    await net.send(server, INTRODUCTION, seat.introduction(digest))
    while True:
        stage, serial, content = await _newest(net, server)
        if not seat.ready_for(stage, content):  # something that came before was lost
            await net.send(server, INTRODUCTION, seat.introduction(digest))
            continue
        if stage == WAIT:
            continue
        if stage == REFUSED:
            raise DataError(content)
        if stage == WHO:
            seat.hear_who(content, digest)
            continue
        if stage == AGREED:
            await net.in_thread(seat.hear_agreed, content)
            tell(f"all sites have agreed on columns and classes: {len(seat.learned.names or ())} columns once prepared")
            continue
        if stage == DONE:
            await net.send(server, INTRODUCTION, (DONE,))
            return _ended(net, job, seat, content, network)
        found = await net.in_thread(seat.answer, stage, serial, content)
        await net.work(seat.effort(stage, content))
        await net.send(server, step_of(stage, 1 if masked else 0), (serial, found))
        if stage == "task" and content[0] == "step":
            net.traffic.round()
            net.report(("progress", content[1], net.traffic.rounds))
        elif stage == "task" and content[0] == "evaluate":
            net.report(("traffic", content[1], net.traffic.messages, net.traffic.bytes))


async def _newest(net: Net, server: str) -> tuple[str, int, Any]:
    """Return the newest of what the server asks: a site that was late goes on with it, as nobody waits for the rest."""
    found = told(await net.recv(server, INSTRUCTION))
    while found[0] not in _LATER and (newer := await net.recv_within(server, INSTRUCTION, 0)):
        found = told(newer[0])
    return found


def _ended(net: Net, job: SiteJob, seat: Seat, content: Any, network: Any) -> Ended:
    result, records = _result(content[0]), records_of(content[1])
    if seat.agreed is None:
        raise ProtocolError("the server ends a run of which this site was never told what it agreed on")
    for value in records:
        net.report(value)
    plan = job.plan(len(seat.learned.names or ()), seat.agreed.classes, network)
    size = model_from_value(plan.model, network, f"site {seat.name!r}").size
    if result.parameters.shape != (size,) or not np.isfinite(result.parameters).all():
        raise ProtocolError(f"the server ends the run with a model that has not {size} finite parameters")
    return Ended(seat.agreed, plan, result, seat.learned, *seat.counts)


def _result(value: Any) -> Result:
    fits = type(value) is tuple and len(value) == len(Result.__dataclass_fields__)
    if not fits or not isinstance(value[0], np.ndarray) or value[0].dtype != np.float64 or not _are_figures(value[1:]):
        raise ProtocolError("the server must say how the run ended; use one version of colonnade everywhere")
    return Result(*value)


def _are_figures(value: Any) -> bool:
    *floats, penalty, met, skipped = value
    told = type(skipped) is tuple and {type(one) for one in skipped} <= {int} and type(met) is bool
    costs = all(type(each) is tuple and {type(one) for one in each} <= {float} for each in floats)
    return told and costs and type(penalty) is float
