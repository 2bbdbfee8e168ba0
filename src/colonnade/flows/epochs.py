"""A whole run in epochs: one sequence of batches for all parties, which wait for each other or go on side by side.

SVRG's snapshots, and SAGA's table where it is filled at the start, come before the batches of an epoch. `free_run` is
the other way to run, as the papers print it.
"""

from __future__ import annotations

from colonnade.flows.asynchrony import BatchSteps, in_step
from colonnade.flows.options import Asynchronous
from colonnade.flows.pace import Pace
from colonnade.flows.updates import Snapshot, SnapshotSideBySide, Updates, larger, snapshot_in_step


async def run_in_epochs(options: Asynchronous, steps: BatchSteps) -> None:
    """Run epoch after epoch, with one sequence of batches for all."""
    session, window = steps.session, options.max_staleness
    side_by_side = options.asynchronous and session.others  # alone, there is nobody to wait for
    snapshot = Snapshot(session, steps.rule)
    pace = Pace(session.net, options.threads, full_steps=options.estimator == "saga", behind=options.behind)
    done, go_on = await session.begin(steps.rule)
    for epoch in range(done + 1, options.epochs + 1):
        if not go_on:
            return
        whole = session.whole_pass(epoch)
        due = options.estimator == "svrg" and epoch % options.snapshot_every == 0
        due |= options.table == "start" and epoch == 1
        if due and session.rounds_left > len(larger(whole)):
            if side_by_side:
                await SnapshotSideBySide(steps, snapshot, pace, epoch, whole, window).run()
            else:
                await snapshot_in_step(steps, snapshot, epoch, whole)
        # Algorithm 2, step 2: rows at random. The order comes from the public seed, so no index is ever sent.
        batches = list(session.batches(epoch))
        if not batches:  # as many exchanges as `rounds` allows are done
            return
        stride = options.evaluate_every or len(batches)
        for at in range(0, len(batches), stride):
            part = batches[at : at + stride]
            if side_by_side:
                await Updates(steps, snapshot, pace, epoch, part, window, options.threads).run()
            else:  # the synchronous twin: a party's next contribution follows its update, so all wait for all
                for batch in part:
                    given, eta = await in_step(steps, "scores", batch, epoch), session.eta()
                    if given is not None:
                        await session.net.work(session.block.touched(given.rows), "backward")
                        steps.update(given, eta)
            go_on = await session.evaluate(epoch)
            if not go_on:
                break
        session.keep(epoch, go_on, steps.rule)
