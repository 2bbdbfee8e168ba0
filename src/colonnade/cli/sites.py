"""What the commands of an organisation do in a job between sites, which has `[sites]` in place of `[parties]`."""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.cli.terminal import in_json, log, notes, say
from colonnade.cli.training import followers

if TYPE_CHECKING:
    from colonnade.jobs.party_file import PartyFile
    from colonnade.site_jobs.site_job import SiteJob

_NOT_OVER_ROWS = {
    "plan": "compares algorithms over columns; between sites, train a few rounds with each kind of [algorithm]",
    "audit": "carries out attacks on runs over columns; docs/horizontal.md says what sites learn of each other",
    "replay": "rehearses runs over columns; in Python, `SSCAClassifier().timeline(*sites)` shows one over rows",
    "export": "writes a party's own part of a model over columns; the whole model over rows is in every site's folder",
    "report": "draws a model over columns; `colonnade dashboard` shows how well a model over rows does",
}


def is_site_job(path: Path) -> bool:
    """Whether a file is a job between sites; one that can't be read is not, and is refused where it is read."""
    path = path / "job.toml" if path.is_dir() else path  # as the dashboard takes it
    try:
        return "sites" in tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return False


def read_site_files(options: argparse.Namespace) -> tuple[SiteJob, PartyFile]:
    """Return the job, and the party's own file, that a command names."""
    from colonnade.errors import OptionError
    from colonnade.site_jobs.site_file import read_site
    from colonnade.site_jobs.site_job_file import read_site_job

    if getattr(options, "mpi", False):
        raise OptionError("sites run on their own machines and may leave a run, which ranks of MPI can't; use --as")
    job = read_site_job(options.job)
    if not options.party:
        raise OptionError("which site is this? give --as NAME")
    if options.party not in job.parties:
        raise OptionError(f"{options.party!r} is no party of {options.job.name}; parties are {', '.join(job.parties)}")
    return job, read_site(options.file or options.job.parent / f"{options.party}.toml", job, options.party)


def run_site_command(options: argparse.Namespace) -> int:
    """Run one of the commands in a job between sites, and return its exit code."""
    from colonnade.errors import OptionError

    if options.command in _NOT_OVER_ROWS:
        raise OptionError(f"`colonnade {options.command}` {_NOT_OVER_ROWS[options.command]}")
    found = {
        "check": _check,
        "run": _run,
        "predict": _predict,
        "serve": _serve,
        "ledger": _ledger,
        "model": _model,
        "drift": _drift,
        "dashboard": _dashboard,
    }
    return found[options.command](options)


def _check(options: argparse.Namespace) -> int:
    from colonnade.cli.organisation import show_findings
    from colonnade.site_jobs.checking import check_site

    job, party = read_site_files(options)
    with notes(party.name):
        findings = check_site(job, party)
    return show_findings(findings, f"{party.name} in {job.name}")


def _run(options: argparse.Namespace) -> int:
    from colonnade.errors import OptionError
    from colonnade.site_jobs.running import run_sites

    if options.start:
        raise OptionError("--from is for models over columns; a model over rows is trained from its beginning")
    job, party = read_site_files(options)
    watchers = followers(options, job, party)
    verbose = 0 if options.quiet or in_json(options) else 1
    with notes(party.name):
        done = run_sites(job, party, verbose=verbose, tell=lambda text: say(f"{party.name}: {text}"), watchers=watchers)
    ended, traffic = done.ended, done.outcome.traffic
    if party.name in job.sites:
        say(f"{party.name}: trained on {ended.rows:,} own rows, {ended.held_out:,} held out; {job.protection}")
    known = [record for record in done.history if "loss" in record]
    if known:
        last = known[-1]
        held = f", accuracy {last['validation_metric']:.4f} held out" if "validation_metric" in last else ""
        say(
            f"{party.name}: cost {last['loss']:.5f}, accuracy {last['metric']:.4f} over all sites' rows after "
            f"{last['rounds']} rounds{held}"
        )
    if job.stated(ended.agreed.classes).limits:
        stated = job.stated(ended.agreed.classes)
        kept = "all limits are kept" if ended.result.met else stated.sentence(
            ended.result.costs, ended.result.slack, traffic.rounds, getattr(job.algorithm, "wait", None)
        )  # fmt: skip
        say(f"{party.name}: {kept}")
    if ended.result.skipped:
        say(f"{party.name}: {len(ended.result.skipped)} rounds were skipped, as too few sites stayed to their end")
    say(
        f"{party.name}: sent {traffic.messages:,} messages, {traffic.bytes:,} bytes in {traffic.rounds:,} rounds, "
        f"{done.outcome.seconds:.1f} s"
    )
    say(f"{party.name}: the whole model is {done.path}")
    how = "is in use now" if done.in_use else "is not in use, as another was promoted by hand"
    say(f"{party.name}: version {done.version.name} {how}")
    return 0


def _predict(options: argparse.Namespace) -> int:
    from colonnade.jobs.score_file import check_place, write
    from colonnade.site_jobs.scoring_alone import predict_alone

    check_place(options.out)
    job, party = read_site_files(options)
    scores = predict_alone(job, party, options.data, options.version, lambda text: say(f"{party.name}: {text}"))
    write(scores, options.out)
    say(f"{party.name}: scored {len(scores.ids):,} people by its own model, in {options.out}")
    return 0


def _serve(options: argparse.Namespace) -> int:
    from colonnade.errors import OptionError
    from colonnade.integrations.json_lines import said
    from colonnade.site_jobs.scoring_alone import serve_alone

    if not options.http:
        raise OptionError(
            "every site has the whole model and asks nobody, so there is nobody to serve; use `colonnade predict`, or "
            "give --http HOST:PORT to answer your own programs"
        )
    job, party = read_site_files(options)
    log(options)

    def tell(text: str) -> None:
        say(f"{party.name}: {text}")
        if in_json(options):
            said(text)

    serve_alone(job, party, options.http, tell, public=options.public, version=options.version)
    return 0


def _ledger(options: argparse.Namespace) -> int:
    from colonnade.cli.ledger import act

    return act(options, *read_site_files(options))


def _model(options: argparse.Namespace) -> int:
    from colonnade.cli.model import act_on_model

    return act_on_model(options, *read_site_files(options))


def _drift(options: argparse.Namespace) -> int:
    from colonnade.cli.drift import show_drift

    return show_drift(options, read_site_files(options)[1])


def _dashboard(options: argparse.Namespace) -> int:
    from colonnade.cli.dashboard import show_dashboard
    from colonnade.site_jobs.site_job_file import read_site_job

    return show_dashboard(options, read_site_files, read_site_job)
