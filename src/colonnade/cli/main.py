"""`colonnade`: the command line. Heavy imports wait until a command needs them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from colonnade import __version__
from colonnade.cli import organisation
from colonnade.cli.completion import SHELLS, script
from colonnade.cli.terminal import complain
from colonnade.errors import ColonnadeError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="colonnade",
        description="Vertical federated learning: organisations with different columns about the same people train and "
        "use one model together. Columns and parameters stay at home.",
    )
    parser.add_argument("--version", action="version", version=f"colonnade {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)

    demo = commands.add_parser(
        "demo", help="three organisations on this machine: init, alignment, training, scores, ledgers"
    )
    demo.add_argument(
        "--out", type=Path, default=Path("colonnade-demo"), help="the folder it all goes to (%(default)s)"
    )

    organisation.add_commands(commands)

    completion = commands.add_parser("completion", help="a script by which a shell completes commands")
    completion.add_argument("shell", choices=SHELLS, help="for which shell: source <(colonnade completion bash)")

    for one in commands._choices_actions:  # so that `colonnade run --help` says what `colonnade --help` says of it
        commands.choices[one.dest].description = one.help
    return parser


def _refuse(more: Sequence[str], parser: argparse.ArgumentParser, name: str) -> NoReturn:
    """End with what is unknown, the option that is near it, and the usage of that command, which has all options."""
    from colonnade.settings.settings import nearest

    commands = next(one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    command: argparse.ArgumentParser = commands.choices[name]
    allowed = [option for action in command._actions for option in action.option_strings]
    wrong = next((one.partition("=")[0] for one in more if one.startswith("-")), "")
    command.error(f"unrecognized arguments: {' '.join(more)}{nearest(wrong, allowed)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; an error is one sentence on stderr and exit code 1."""
    parser = _parser()
    options, more = parser.parse_known_args(arguments)
    # Until 3.12 argparse takes names behind an option, as in `model promote job.toml --as bank ID`, for unknown ones.
    if more and (options.command != "model" or any(one.startswith("-") for one in more)):
        _refuse(more, parser, options.command)
    if more:
        options.versions += more
    try:
        if options.command == "demo":
            from colonnade.cli.demo import run_demo

            run_demo(options.out)
        elif options.command == "completion":
            sys.stdout.write(script(parser, options.shell))
        else:
            return organisation.run_command(options)
    except ColonnadeError as error:
        complain(options, str(error))
        return 1
    except OSError as error:
        complain(options, f"{error.strerror or error}: {error.filename!r}")
        return 1
    except KeyboardInterrupt:
        complain(options, f"interrupted; {_stopped(options)}")
        return 130
    return 0


_ENDED = "its partners hear of it and end too, and the same commands go on from where all of them were"


def _is_site(options: argparse.Namespace) -> bool:
    """Return whether a run goes on without whoever was stopped: a site's, of a job between sites, but not who asks."""
    from colonnade.cli.sites import is_site_job

    if not is_site_job(options.job):
        return False
    from colonnade.site_jobs.site_job_file import read_site_job

    try:
        return bool(read_site_job(options.job).server != options.party)
    except (ColonnadeError, OSError):
        return False


def _stopped(options: argparse.Namespace) -> str:
    """Return who was stopped by whoever interrupted a command."""
    party = getattr(options, "party", None)
    if options.command == "demo":
        return "all three organisations of the demo were stopped"
    if options.command == "run" and party:
        others = "the same command takes part in the run again" if _is_site(options) else _ENDED
        return f"{party} was stopped here, and nobody else; {others}"
    if options.command in ("plan", "predict") and party:
        return f"{party} was stopped here, and nobody else; its partners hear of it"
    if options.command == "serve" and party:
        return f"{party} was stopped here and serves no longer; nobody else was stopped"
    if options.command == "dashboard":
        return "the dashboard was closed; what it showed goes on"
    return f"{party} was stopped here, and nobody else" if party else "nothing else was stopped"


if __name__ == "__main__":
    sys.exit(main())
