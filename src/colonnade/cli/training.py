"""What `colonnade run` does: take part in a job, and say what came of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from colonnade.cli.terminal import in_json, log, notes, read_files, say

if TYPE_CHECKING:
    from colonnade.events.watchers import Watcher
    from colonnade.jobs.job import Job
    from colonnade.jobs.party_file import PartyFile


def followers(options: argparse.Namespace, job: Job, party: PartyFile) -> list[Watcher]:
    """Return what follows a run of this party: its file of events, what `[watch]` names, and a log of JSON.

    Logs begin here, once nothing is wrong with what the party's file asks for.
    """
    from colonnade.events.event_file import EventFile
    from colonnade.integrations.watching import watchers_of

    found: list[Watcher] = [EventFile(party.folder), *watchers_of(job, party)]
    log(options)
    if in_json(options):
        from colonnade.integrations.json_lines import follow_in_log

        found.append(follow_in_log)
    return found


def run(options: argparse.Namespace) -> int:
    """Run the command, and return its exit code."""
    from colonnade.service.run import run_job

    job, party = read_files(options)
    watchers = followers(options, job, party)
    # Ranks share one terminal, in which several bars would overwrite each other.
    verbose = 0 if options.quiet or options.mpi or in_json(options) else 1
    with notes(party.name):
        done = run_job(
            job,
            party,
            verbose=verbose,
            tell=lambda text: say(f"{party.name}: {text}"),
            mpi=options.mpi,
            start=options.start,
            watchers=watchers,
        )
    trained, traffic = done.trained, done.outcome.traffic
    apart = f", {trained.held_out:,} held out" if trained.held_out or job.protection != "sealed" else ""
    say(f"{party.name}: trained on {trained.rows:,} common rows{apart}; protection {job.protection}")
    if trained.validated is not None:
        for line in validation_lines(trained.validated.record(job), job.holders[0]):
            say(f"{party.name}: {line}")
    if done.kept:
        kept, metric = done.kept, done.kept["metric_name"]
        held_out = f", {metric} {kept['validation_metric']:.4f} held out" if "validation_metric" in kept else ""
        say(
            f"{party.name}: kept epoch {kept['epoch']} of {done.epochs}, loss {kept['loss']:.5f}, "
            f"{metric} {kept['metric']:.4f}{held_out}"
        )
    elif done.judged:
        found = done.judged
        say(
            f"{party.name}: {found['metric_name']} {found['validation_metric']:.4f}, loss "
            f"{found['validation_loss']:.5f} on held-out rows; nobody else is told"
        )
    if trained.threshold is not None:
        say(f"{party.name}: {done.version.about['decision']}")
    say(
        f"{party.name}: sent {traffic.messages:,} messages, {traffic.bytes:,} bytes in {traffic.rounds:,} rounds, "
        f"{done.outcome.seconds:.1f} s"
    )
    say(f"{party.name}: its part of the model is {done.path}")
    name, promote = done.version.name, f"colonnade model promote {options.job} --as {party.name}"
    if done.version.held:
        say(f"{party.name}: version {name} is held back and not in use, as {done.version.held}")
    elif done.in_use:
        say(f"{party.name}: version {name} is in use now")
    else:
        other = "is not in use, as another was promoted by hand"
        say(f"{party.name}: version {name} {other}; to use it: {promote} {name}")
    if done.trained.statistics is not None:
        say(f"{party.name}: the statistics of its coefficients are {done.path.parent / 'statistics.csv'}")
    return 0


def validation_lines(found: dict[str, Any], leader: str) -> list[str]:
    """Return what a cross-validation found, a line for each candidate; without scores, only which of them is best."""
    lines, metric, folds = [], found["scoring"], found["folds"]
    for number, one in enumerate(found["candidates"]):
        options = ", ".join(f"{name} = {value}" for name, value in one["options"].items()) or "the model"
        best = ", the best" if number == found["best"] and len(found["candidates"]) > 1 else ""
        if "mean" in one:
            lines.append(f"{options}: {metric} {one['mean']:.4f} ± {one['std']:.4f} over {folds} folds{best}")
        elif best:
            lines.append(f"{options} does best on held-out people, as {leader} finds")
    return lines
