"""What an organisation runs: init, check, audit, plan, run, report, predict, serve, drift, ledger, model."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.cli.audit import add_audit_options
from colonnade.cli.drift import add_data
from colonnade.cli.ledger import add_actions
from colonnade.cli.model import add_model_actions, add_versions
from colonnade.cli.report import add_report_options
from colonnade.errors import ColonnadeWarning

if TYPE_CHECKING:
    from colonnade.jobs.job import Job
    from colonnade.jobs.party_file import PartyFile


def add_commands(commands: Any) -> None:
    """Declare these commands and their options."""
    init = commands.add_parser("init", help="a new federation: job.toml, a file for each party, test certificates")
    init.add_argument("name", type=Path, help="the folder to write, whose name is the job's")
    init.add_argument("--parties", required=True, help="their names, separated by commas")
    init.add_argument("--labels", default="", help="those who hold labels, separated by commas (the first party)")
    init.add_argument("--model", default="logistic", metavar="KIND", help="the kind of the model (%(default)s)")
    init.add_argument(
        "--protection",
        metavar="WORD",
        help="sealed, masked or plain (sealed for linear models and trees, masked for others)",
    )

    for name, text in (
        ("check", "look at everything that can be known before training, and say what is wrong"),
        ("run", "take part in a job as one party, and save its part of the model"),
    ):
        command = commands.add_parser(name, help=text)
        _job_and_party(command, required=name != "run")
    commands.choices["run"].add_argument("--quiet", action="store_true", help="no progress line")
    commands.choices["run"].add_argument(
        "--from", dest="start", metavar="VERSION", help="start from an earlier version instead of zero; the same at all"
    )
    commands.choices["run"].add_argument(
        "--mpi", action="store_true", help="as a rank of an MPI job: mpirun -n 3 colonnade run job.toml --mpi"
    )

    plan = commands.add_parser(
        "plan", help="rounds, bytes and time of a run with each algorithm, from short trials with the partners"
    )
    _job_and_party(plan)
    plan.add_argument("--seconds", type=float, default=25.0, help="for all trials, the same at all (%(default)g)")
    plan.add_argument("--quiet", action="store_true", help="no progress line")

    audit = commands.add_parser("audit", help="what the others could find out about this party in a run, measured")
    _job_and_party(audit)
    add_audit_options(audit)
    _version(audit)

    report = commands.add_parser("report", help="how good a version is, as one HTML page with this party's view alone")
    _job_and_party(report)
    add_report_options(report)
    _version(report)

    predict = commands.add_parser("predict", help="score new people with a trained model, while the partners serve")
    _job_and_party(predict)
    predict.add_argument("--data", type=Path, help="a file like this party's own, without labels (its own data)")
    predict.add_argument("--out", type=Path, required=True, help="where the scores go: .csv or .parquet")
    _version(predict)

    serve = commands.add_parser(
        "serve", help="answer a label holder that asks for scores; at one, serve them over HTTP"
    )
    _job_and_party(serve)
    serve.add_argument("--http", metavar="HOST:PORT", help="at a label holder: where to answer POST /score")
    serve.add_argument(
        "--public", action="store_true", help="with --http: also at an address that other machines can reach"
    )
    serve.add_argument("--asker", help="who may ask (the first label holder)")
    serve.add_argument("--once", action="store_true", help="end after the first asker is done")
    _version(serve)

    drift = commands.add_parser("drift", help="how far new data have moved away from those of the training")
    _job_and_party(drift)
    add_data(drift)
    _version(drift)

    ledger = commands.add_parser("ledger", help="what left a party: show it, or verify that nothing was changed")
    add_actions(ledger)
    _job_and_party(ledger)

    model = commands.add_parser("model", help="a party's versions of the model: list, show, diff, promote, rollback")
    add_model_actions(model)
    _job_and_party(model)
    add_versions(model)


def _say(text: str) -> None:
    """Print a line in one piece and at once, as several parties may share a terminal."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _job_and_party(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    command.add_argument("job", type=Path, help="job.toml")
    command.add_argument("--as", dest="party", required=required, metavar="PARTY", help="which party this is")
    command.add_argument("--file", type=Path, help="this party's own file (PARTY.toml beside job.toml)")


def _version(command: argparse.ArgumentParser) -> None:
    command.add_argument("--version", help="the beginning of a version's id, or 'newest' (the promoted version)")


def _read(options: argparse.Namespace) -> tuple[Job, PartyFile]:
    from colonnade.errors import OptionError
    from colonnade.jobs.job_file import read_job
    from colonnade.jobs.party_file import read_party

    mpi = getattr(options, "mpi", False)
    if mpi == bool(options.party):
        raise OptionError(
            "the rank decides which party this is: leave out --as or --mpi" if mpi else
            "which party is this? give --as PARTY, or start it as the ranks of an MPI job with --mpi"
        )  # fmt: skip
    if mpi:
        from colonnade.remote.mpi import party_of_rank, world

        world()  # from here on, a failure at one rank ends the others too
        job = read_job(options.job)
        options.party = party_of_rank(job.parties)
    else:
        job = read_job(options.job)
    if options.party not in job.parties:
        raise OptionError(f"{options.party!r} is no party of {options.job.name}; parties are {', '.join(job.parties)}")
    path = options.file or options.job.parent / f"{options.party}.toml"
    return job, read_party(path, job, options.party)


def run_command(options: argparse.Namespace) -> int:
    """Run one of these commands, and return its exit code."""
    found = {
        "init": _init,
        "check": _check,
        "audit": _audit,
        "plan": _plan,
        "run": _run,
        "report": _report,
        "predict": _predict,
        "serve": _serve,
        "ledger": _ledger,
        "model": _model,
        "drift": _drift,
    }
    return found[options.command](options)


def _init(options: argparse.Namespace) -> int:
    from colonnade.jobs.bundle import FOLDER
    from colonnade.jobs.init import init

    given = (options.parties, options.labels)
    parties, labels = ([name.strip() for name in text.split(",") if name.strip()] for text in given)
    told: list[str] = []
    for path in init(options.name, parties, labels, options.model, options.protection, told.append):
        print(f"wrote {path}")
    print(f"wrote test certificates to {options.name / 'certificates'}: not for real data; see docs/certificates.md")
    for name in parties[1:]:
        print(f"wrote {options.name / FOLDER / name}.tar.gz: all that {name} needs and nothing of the others; send it")
    print(*told, sep="\n")
    print("next: put each party's data where its file says, then `colonnade check` and `colonnade run` at each party")
    return 0


def _check(options: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from colonnade.planning.untried import sealed_costs
    from colonnade.service.check import check
    from colonnade.service.findings import exit_code

    job, party = _read(options)
    with _notes(party.name):
        findings = check(job, party, sealed_costs)
    table = Table(title=Text(f"{party.name} in {job.name}"), title_justify="left")
    for name in ("what", "", "finding"):
        table.add_column(name, overflow="fold")  # so that no sentence is cut off
    for finding in findings:
        # As text, since [policy] in a sentence is not the name of a colour.
        table.add_row(Text(finding.what), finding.mark, Text(finding.text))
    Console().print(table)
    return exit_code(findings)


def _run(options: argparse.Namespace) -> int:
    from colonnade.service.run import run_job

    job, party = _read(options)
    _log()
    # Ranks share one terminal, in which several bars would overwrite each other.
    verbose = 0 if options.quiet or options.mpi else 1
    with _notes(party.name):
        done = run_job(
            job,
            party,
            verbose=verbose,
            tell=lambda text: _say(f"{party.name}: {text}"),
            mpi=options.mpi,
            start=options.start,
        )
    trained, traffic = done.trained, done.outcome.traffic
    apart = f", {trained.held_out:,} held out" if trained.held_out or job.protection != "sealed" else ""
    _say(f"{party.name}: trained on {trained.rows:,} common rows{apart}; protection {job.protection}")
    if trained.validated is not None:
        for line in validation_lines(trained.validated.record(job), job.holders[0]):
            _say(f"{party.name}: {line}")
    if done.kept:
        kept, metric = done.kept, done.kept["metric_name"]
        held_out = f", {metric} {kept['validation_metric']:.4f} held out" if "validation_metric" in kept else ""
        _say(
            f"{party.name}: kept epoch {kept['epoch']} of {done.epochs}, loss {kept['loss']:.5f}, "
            f"{metric} {kept['metric']:.4f}{held_out}"
        )
    elif done.judged:
        found = done.judged
        _say(
            f"{party.name}: {found['metric_name']} {found['validation_metric']:.4f}, loss "
            f"{found['validation_loss']:.5f} on held-out rows; nobody else is told"
        )
    if trained.threshold is not None:
        _say(f"{party.name}: {done.version.about['decision']}")
    _say(
        f"{party.name}: sent {traffic.messages:,} messages, {traffic.bytes:,} bytes in {traffic.rounds:,} rounds, "
        f"{done.outcome.seconds:.1f} s"
    )
    _say(f"{party.name}: its part of the model is {done.path}")
    name, promote = done.version.name, f"colonnade model promote {options.job} --as {party.name}"
    if done.in_use:
        _say(f"{party.name}: version {name} is in use now")
    else:
        other = "is not in use, as another was promoted by hand"
        _say(f"{party.name}: version {name} {other}; to use it: {promote} {name}")
    if done.trained.statistics is not None:
        _say(f"{party.name}: the statistics of its coefficients are {done.path.parent / 'statistics.csv'}")
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


def _plan(options: argparse.Namespace) -> int:
    from colonnade.planning.command import plan_job, show, show_learnt

    job, party = _read(options)
    _log()
    with _notes(party.name):
        plan = plan_job(
            job,
            party,
            seconds=options.seconds,
            verbose=0 if options.quiet else 1,
            tell=lambda text: _say(f"{party.name}: {text}"),
        )
    show(plan, party.name, job.name)
    show_learnt(job)
    return 0


def _audit(options: argparse.Namespace) -> int:
    from colonnade.cli.audit import act_on_audit

    job, party = _read(options)
    with _notes(party.name):
        return act_on_audit(options, job, party, lambda text: _say(f"{party.name}: {text}"))


def _report(options: argparse.Namespace) -> int:
    from colonnade.cli.report import write_page

    job, party = _read(options)
    with _notes(party.name):
        path, size = write_page(options, job, party)
    _say(f"{party.name}: the report is {path}, {size / 1000:,.0f} kB")
    return 0


def _predict(options: argparse.Namespace) -> int:
    from colonnade.service.serving import check_place, predict, write

    check_place(options.out)
    job, party = _read(options)
    _log()
    scores = predict(job, party, options.data, options.version, lambda text: _say(f"{party.name}: {text}"))
    write(scores, options.out)
    unknown = int((~scores.known).sum())
    note = f"; {unknown:,} of them have no score, as not every party knows and serves them" if unknown else ""
    _say(f"{party.name}: scored {len(scores.ids):,} people, in {options.out}{note}")
    return 0


def _serve(options: argparse.Namespace) -> int:
    from colonnade.errors import OptionError
    from colonnade.service.serving import again_and_again, serve_http, serve_once

    job, party = _read(options)
    _log()

    def tell(text: str) -> None:
        _say(f"{party.name}: {text}")

    if options.http:
        serve_http(job, party, options.http, tell, public=options.public, version=options.version)
        return 0
    if options.public:
        raise OptionError("--public says where HTTP may be served; give --http HOST:PORT too, or leave it out")
    asker = options.asker or job.holders[0]
    if asker not in job.holders or asker == party.name:
        raise OptionError(
            f"the asker must be another label holder, got {asker!r}; label holders: {', '.join(job.holders)}"
        )
    tell(f"serving {asker}")

    def serve() -> None:
        tell(f"answered about {serve_once(job, party, asker, tell, options.version):,} people")

    if options.once:
        serve()
    else:
        again_and_again(serve, tell)
    return 0


def _ledger(options: argparse.Namespace) -> int:
    from colonnade.cli.ledger import act

    return act(options, *_read(options))


@contextmanager
def _notes(name: str) -> Iterator[None]:
    """Print warnings as sentences of the party, and not as Python would."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", ColonnadeWarning)
        warnings.showwarning = lambda message, *_, **__: _say(f"{name}: note: {message}")
        yield


def _log() -> None:
    logging.basicConfig(level=logging.INFO, format="colonnade: %(message)s", stream=sys.stderr)
    # Service managers stop a process with SIGTERM, of which the partners are to hear as of Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def _drift(options: argparse.Namespace) -> int:
    from colonnade.cli.drift import show_drift

    return show_drift(options, _read(options)[1])


def _model(options: argparse.Namespace) -> int:
    from colonnade.cli.model import act_on_model

    return act_on_model(options, *_read(options))
