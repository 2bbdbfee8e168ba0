"""What an organisation runs: init, check, audit, plan, run, replay, report, predict, serve and so on."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.cli.audit import add_audit_options
from colonnade.cli.dashboard import add_dashboard, show_dashboard
from colonnade.cli.drift import add_data
from colonnade.cli.export import add_export_options
from colonnade.cli.ledger import add_actions
from colonnade.cli.model import add_model_actions, add_versions
from colonnade.cli.replay import add_replay_options
from colonnade.cli.report import add_report_options
from colonnade.cli.sites import is_site_job, run_site_command
from colonnade.cli.terminal import JSON, TEXT, log, notes, read_files, say
from colonnade.cli.training import run
from colonnade.cli.use import predict_people, serve_people

if TYPE_CHECKING:
    from colonnade.service.findings import Finding


def add_commands(commands: Any) -> None:
    """Declare these commands and their options."""
    init = commands.add_parser("init", help="a new federation: job.toml, a file for each party, test certificates")
    init.add_argument("name", type=Path, help="the folder to write, whose name is the job's")
    init.add_argument("--parties", default="", help="their names, separated by commas")
    init.add_argument("--labels", default="", help="those who hold labels, separated by commas (the first party)")
    init.add_argument(
        "--sites",
        default="",
        help="in place of --parties: organisations with the same columns about different people, who have labels each",
    )
    init.add_argument("--server", default="", help="who asks the sites: one of them, or one without rows (first site)")
    init.add_argument("--model", metavar="KIND", help="the kind of the model (logistic; for sites layers, or network)")
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
        "--from",
        dest="start",
        metavar="VERSION",
        help="start from an earlier version instead of zero; the same at all parties",
    )
    commands.choices["run"].add_argument(
        "--mpi", action="store_true", help="as a rank of an MPI job: mpirun -n 3 colonnade run job.toml --mpi"
    )

    _log_option(commands.choices["run"])

    plan = commands.add_parser(
        "plan", help="rounds, bytes and time of a run with each algorithm, from short trials with the partners"
    )
    _job_and_party(plan)
    plan.add_argument(
        "--seconds", type=float, default=25.0, help="for all trials, the same at all parties (%(default)g)"
    )
    plan.add_argument("--quiet", action="store_true", help="no progress line")

    audit = commands.add_parser("audit", help="what the others could find out about this party in a run, measured")
    _job_and_party(audit)
    add_audit_options(audit)
    _version(audit)

    replay = commands.add_parser(
        "replay", help="who would work, wait and send what in a run, under a virtual clock with made-up partners"
    )
    _job_and_party(replay)
    add_replay_options(replay)

    report = commands.add_parser("report", help="how good a version is, as one HTML page with this party's view alone")
    _job_and_party(report)
    add_report_options(report)
    _version(report)

    _export_command(commands)

    predict = commands.add_parser("predict", help="score new people with a trained model, while the partners serve")
    _job_and_party(predict)
    predict.add_argument("--data", type=Path, help="a file like this party's own, without labels (its own data)")
    predict.add_argument("--out", type=Path, required=True, help="where the scores go: .csv or .parquet")
    _version(predict)

    _serve_command(commands)

    drift = commands.add_parser("drift", help="how far new data have moved away from those of the training")
    _job_and_party(drift)
    add_data(drift)
    _version(drift)

    ledger = commands.add_parser("ledger", help="what left a party: show it, or verify that nothing was changed")
    add_actions(ledger)
    _job_and_party(ledger)

    add_dashboard(commands)

    model = commands.add_parser("model", help="a party's versions of the model: list, show, diff, promote, rollback")
    add_model_actions(model)
    _job_and_party(model)
    add_versions(model)


def _export_command(commands: Any) -> None:
    export = commands.add_parser("export", help="this party's own part of a linear model, for other systems")
    _job_and_party(export)
    add_export_options(export)
    _version(export)


def _serve_command(commands: Any) -> None:
    serve = commands.add_parser(
        "serve", help="answer a label holder that asks for scores; at one, serve them over HTTP"
    )
    _job_and_party(serve)
    serve.add_argument("--http", metavar="HOST:PORT", help="at a label holder, or a site: where to answer POST /score")
    serve.add_argument(
        "--public", action="store_true", help="with --http: also at an address that other machines can reach"
    )
    serve.add_argument("--asker", help="who may ask (the first label holder)")
    serve.add_argument("--once", action="store_true", help="end after the first asker is done")
    _log_option(serve)
    _version(serve)


def _job_and_party(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    command.add_argument("job", type=Path, help="job.toml")
    command.add_argument("--as", dest="party", required=required, metavar="PARTY", help="which party this is")
    command.add_argument("--file", type=Path, help="this party's own file (PARTY.toml beside job.toml)")


def _log_option(command: argparse.ArgumentParser) -> None:
    """Declare the option of how a command logs."""
    command.add_argument(
        "--log",
        choices=(TEXT, JSON),
        default=TEXT,
        help="what standard error gets: text, or a line of JSON for each event (%(default)s)",
    )


def _version(command: argparse.ArgumentParser) -> None:
    command.add_argument("--version", help="the beginning of a version's id, or 'newest' (the promoted version)")


def run_command(options: argparse.Namespace) -> int:
    """Run one of these commands, and return its exit code."""
    if options.command != "init" and is_site_job(options.job):
        return run_site_command(options)
    found = {
        "init": _init,
        "check": _check,
        "audit": _audit,
        "plan": _plan,
        "run": run,
        "replay": _replay,
        "report": _report,
        "export": _export,
        "predict": predict_people,
        "serve": serve_people,
        "ledger": _ledger,
        "model": _model,
        "drift": _drift,
        "dashboard": show_dashboard,
    }
    return found[options.command](options)


def _init(options: argparse.Namespace) -> int:
    from colonnade.errors import OptionError
    from colonnade.jobs.bundle import FOLDER

    given = (options.parties, options.labels, options.sites)
    parties, labels, sites = ([name.strip() for name in text.split(",") if name.strip()] for text in given)
    if bool(parties) == bool(sites):
        raise OptionError("who takes part? give --parties for columns about the same people, or --sites for rows")
    if (sites and labels) or (parties and options.server):
        raise OptionError("--labels goes with --parties, as every site has labels, and --server with --sites")
    told: list[str] = []
    if sites:
        from colonnade.site_jobs.init_sites import init_sites

        model = options.model or "layers"
        written = init_sites(options.name, sites, options.server, model, options.protection, told.append)
        parties = [path.stem for path in written[1:]]
    else:
        from colonnade.jobs.init import init

        model = options.model or "logistic"
        written = init(options.name, parties, labels, model, options.protection, told.append)
    for path in written:
        print(f"wrote {path}")
    print(f"wrote test certificates to {options.name / 'certificates'}: not for real data; see docs/certificates.md")
    for name in parties[1:]:
        print(f"wrote {options.name / FOLDER / name}.tar.gz: all that {name} needs and nothing of the others; send it")
    print(*told, sep="\n")
    print("next: put each party's data where its file says, then `colonnade check` and `colonnade run` at each party")
    print(f"to look on: colonnade dashboard {options.name} --as {parties[0]}")
    return 0


def _check(options: argparse.Namespace) -> int:
    from colonnade.planning.untried import sealed_costs
    from colonnade.service.check import check

    job, party = read_files(options)
    with notes(party.name):
        findings = check(job, party, sealed_costs)
    return show_findings(findings, f"{party.name} in {job.name}")


def show_findings(findings: list[Finding], title: str) -> int:
    """Print what a check found as a table, and return the exit code."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from colonnade.service.findings import exit_code

    table = Table(title=Text(title), title_justify="left")
    for name in ("what", "", "finding"):
        table.add_column(name, overflow="fold")  # so that no sentence is cut off
    for finding in findings:
        # As text, since [policy] in a sentence is not the name of a colour.
        table.add_row(Text(finding.what), finding.mark, Text(finding.text))
    Console().print(table)
    return exit_code(findings)


def _plan(options: argparse.Namespace) -> int:
    from colonnade.planning.command import plan_job, show, show_learnt

    job, party = read_files(options)
    log()
    with notes(party.name):
        plan = plan_job(
            job,
            party,
            seconds=options.seconds,
            verbose=0 if options.quiet else 1,
            tell=lambda text: say(f"{party.name}: {text}"),
        )
    show(plan, party.name, job.name)
    show_learnt(job)
    return 0


def _audit(options: argparse.Namespace) -> int:
    from colonnade.cli.audit import act_on_audit

    job, party = read_files(options)
    with notes(party.name):
        return act_on_audit(options, job, party, lambda text: say(f"{party.name}: {text}"))


def _report(options: argparse.Namespace) -> int:
    from colonnade.cli.report import write_page

    job, party = read_files(options)
    with notes(party.name):
        path, size = write_page(options, job, party)
    say(f"{party.name}: the report is {path}, {size / 1000:,.0f} kB")
    return 0


def _export(options: argparse.Namespace) -> int:
    from colonnade.cli.export import export_part

    return export_part(options, *read_files(options))


def _replay(options: argparse.Namespace) -> int:
    from colonnade.cli.replay import show_replay

    job, party = read_files(options)
    with notes(party.name):
        show_replay(options, job, party)
    return 0


def _ledger(options: argparse.Namespace) -> int:
    from colonnade.cli.ledger import act

    return act(options, *read_files(options))


def _drift(options: argparse.Namespace) -> int:
    from colonnade.cli.drift import show_drift

    return show_drift(options, read_files(options)[1])


def _model(options: argparse.Namespace) -> int:
    from colonnade.cli.model import act_on_model

    return act_on_model(options, *read_files(options))
