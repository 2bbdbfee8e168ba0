"""`colonnade plan`: one organisation's part in trying out what a job would take. No model comes of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from colonnade.errors import at_least
from colonnade.jobs.budget import Budget
from colonnade.jobs.checkpoints import Checkpoints
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.planning.candidates import check_plannable
from colonnade.planning.figures import NEAR, Plan
from colonnade.planning.planning import make_plan
from colonnade.progress import Line
from colonnade.runtimes.net import Net
from colonnade.service.attend import attend
from colonnade.service.run import TableSource
from colonnade.tables import data

SECONDS = 25.0  # with alignment, about half a minute for some ten thousand rows


def plan_job(
    job: Job,
    party: PartyFile,
    *,
    seconds: float = SECONDS,
    verbose: int = 1,
    tell: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Try the job's algorithm and others with the partners, and say what a run with each of them will take.

    seconds: for all trials, about; alignment comes before them. All parties give the same number.
    """
    from colonnade.alignment.protocol import align

    at_least("seconds", seconds, 0, strict=True, finite=True)
    check_plannable(job)
    party.policy.check_shown(party.name, job.algorithm.name, job.disclosed())
    line, kept = Line("planning", None, verbose), party.checkpoints / "plan"

    def read() -> tuple[Any, ...]:
        source = TableSource(data.load(party.data), party.prepare)
        tell(f"{source.rows:,} rows read")
        return (source,)

    def say(what: str, done: int, of: int) -> None:
        line.show(done, what, ("planning", of))

    budget = Budget(party.name, party.policy.max_directions)

    async def program(net: Net, source: Any) -> Plan:
        check = partial(party.policy.check_part, party.name)

        def keeper_of(number: int) -> Checkpoints:
            return Checkpoints(kept / str(number), b"plan", job.checkpoint_every)

        find = partial(align, max_partner_ids=party.policy.partner_ids(source.rows))
        return await make_plan(net, job, source, find, check, keeper_of, seconds, say, budget)

    def observe(_: str, __: float, value: Any) -> None:
        if value[0] == "align":
            line.show(value[1], f"{value[1]:,} of {value[2]:,} ids", ("aligning", value[2]))

    _clear(kept)  # of a plan that crashed
    agreed = {**job.agreed, "purpose": "plan", "seconds": float(seconds)}
    try:
        found: Plan = attend(job, party, program, read, agreed=agreed, observer=observe, tell=tell, budget=budget).value
    finally:
        line.close()
        _clear(kept)
    return found


def _clear(kept: Path) -> None:
    """A trial's states hold signals, like any run's; nothing goes on from them."""
    for folder in sorted(kept.glob("*")):
        Checkpoints(folder, b"plan").clear()
        with suppress(OSError):
            folder.rmdir()
    for folder in (kept, kept.parent):
        with suppress(OSError):  # not ours alone, or never made
            folder.rmdir()


def reason(plan: Plan) -> str:
    """Why one of them is recommended, in a line."""
    best, others = plan.best, [one for one in plan.forecasts if one is not plan.best]
    if not others:
        return f"{best.name}: no other algorithm trains this model and discloses no more than the job does"
    near = [one for one in others if one.gap <= NEAR]
    if not best.gap <= NEAR:
        return f"{best.name}: none is known to end within {NEAR:g} of the optimum, and it came nearest"
    if not near:
        return f"{best.name}: the only one that was seen to end within {NEAR:g} of the optimum"
    next_best = min(near, key=lambda one: one.seconds.likely)
    fewer = f"{best.rounds.likely:,.0f} rounds where {next_best.name} takes {next_best.rounds.likely:,.0f}"
    return f"{best.name}: the fastest of those that end within {NEAR:g} of the optimum, {fewer}"
