"""What `colonnade plan` does at one organisation: try out what a job would take, and show it. It leaves no model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from colonnade.algorithms.boosted import OpenBoosting
from colonnade.errors import at_least
from colonnade.jobs.allowed import check_allowed
from colonnade.jobs.budget import Budget
from colonnade.jobs.checkpoints import Checkpoints
from colonnade.jobs.job import Job
from colonnade.jobs.party_file import PartyFile
from colonnade.jobs.words import what_each_learns
from colonnade.planning.candidates import check_plannable
from colonnade.planning.figures import NEAR, Plan
from colonnade.planning.plan_table import as_table, human_seconds
from colonnade.planning.program import make_plan
from colonnade.progress import Line, human_bytes, of_transfer
from colonnade.runtimes.net import Net
from colonnade.service.attend import attend
from colonnade.service.keeping import tags_folder
from colonnade.service.table_source import TableSource

SECONDS = 25.0  # with alignment, a plan on some ten thousand rows then takes about half a minute


def plan_job(
    job: Job,
    party: PartyFile,
    *,
    seconds: float = SECONDS,
    verbose: int = 1,
    tell: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Try the job's algorithm and others with the partners, and say what a run with each of them will take.

    Parameters
    ----------
    job
        The job that is planned.
    party
        This organisation's own file.
    seconds
        How long all trials together take, about, after alignment; all parties give the same number.
    verbose
        0 for no progress line.
    tell
        Hears what happens, in sentences.
    """
    from colonnade.alignment.joining import align_rows

    at_least("seconds", seconds, 0, strict=True, finite=True)
    check_plannable(job)
    check_allowed(job, party)
    if job.fits > 1:
        tell(f"the plan is of one training; with its folds the job has {job.fits:,}")
    line, kept = Line("planning", None, verbose), party.checkpoints / "plan"

    def read() -> tuple[Any, ...]:
        source = TableSource.of(job, party)
        tell(f"{source.rows:,} rows read")
        return (source,)

    def say(what: str, done: int, of: int) -> None:
        line.show(done, what, ("planning", of))

    budget = Budget(party.name, party.policy.max_directions)

    async def program(net: Net, source: Any) -> Plan:
        check = partial(party.policy.check_part, party.name)

        def keeper_of(number: int) -> Checkpoints:
            return Checkpoints(kept / str(number), b"plan", job.checkpoint_every)

        most = party.policy.partner_ids(source.rows)
        keep = tags_folder(job, party)
        find = partial(align_rows, max_partner_ids=most, how=job.joining, method=job.method, keep=keep)
        return await make_plan(net, job, source, find, check, keeper_of, seconds, say, budget)

    def observe(_: str, __: float, value: Any) -> None:
        if value[0] == "align":
            line.show(value[1], f"{value[1]:,} of {value[2]:,} ids", ("aligning", value[2]))
        elif value[0] == "transfer":
            line.show(*of_transfer(*value[1:]))

    _clear(kept)  # a plan that crashed may have left some
    agreed = {**job.agreed, "purpose": "plan", "seconds": float(seconds)}
    try:
        found: Plan = attend(
            job, party, program, read, agreed=agreed, observer=observe, tell=tell, budget=budget,
            rows=lambda source: source.rows,
        ).value  # fmt: skip
    finally:
        line.close()
        _clear(kept)
    return found


def _clear(kept: Path) -> None:
    """Remove the states of trials: they hold signals, like those of any run, and nothing goes on from them."""
    for folder in sorted(kept.glob("*")):
        Checkpoints(folder, b"plan").clear()
        with suppress(OSError):
            folder.rmdir()
    for folder in (kept, kept.parent):
        with suppress(OSError):  # the folder holds other things, or was never made
            folder.rmdir()


def reason(plan: Plan) -> str:
    """Say in a line why one algorithm is recommended."""
    best = plan.best
    others = [one for one in plan.forecasts if one is not best and one.tried]
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


# -- the table --------------------------------------------------------------------------------------------------------


def show(plan: Plan, me: str, job: str) -> None:
    """Print the table of a plan as this party sees it."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    console.print(as_table(plan, me, job))
    lines = ", ".join(
        f"{name} {1000 * line.latency:.1f} ms there and back, {human_bytes(line.bandwidth)}/s"
        for name, line in plan.lines.items()
    )
    for text in (
        f"* {reason(plan)}",
        f"lines from {me}: {lines}",
        f"time is that of a whole run, {human_seconds(plan.before)} of it for alignment and preparation; rounds go on "
        "until an algorithm's own rule ends it",
        *_note(plan),
    ):
        console.print(Text(text))


def show_learnt(job: Job) -> None:
    """Print what each party will learn of the others in a run of this job."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for name, told in what_each_learns(job).items():
        console.print(Text(f"{name} will learn " + told.replace("\n", f"\n{name} will learn ")))


def _note(plan: Plan) -> list[str]:
    """Say why something was not tried, and what its figures come from."""
    names = [f"{one.name}, {one.protection}," for one in plan.forecasts if not one.tried]
    if not names:
        return []
    sealed = any(one.own and not one.tried for one in plan.forecasts)
    why = "a plan of a sealed job tries nothing, as that would show more than the job does" if sealed else ""
    if any(one.name == OpenBoosting.name for one in plan.forecasts):
        why = "trees have no short trial"
    why = why or "sealed training has no short trial"
    was = "was" if len(names) == 1 else "were"
    return [f"{' and '.join(names)} {was} not tried: {why}, and the figures follow from rows, columns and lines alone"]
