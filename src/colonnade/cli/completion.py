"""`colonnade completion`: what makes a shell complete commands, options and their choices when Tab is pressed.

The script is made from the parser itself, so it never knows other options than the command does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Completed:
    """What can follow one command: its options with their words of help, and the choices of its first argument."""

    name: str
    help: str
    options: tuple[tuple[str, str], ...]
    choices: tuple[str, ...]


def commands_of(parser: argparse.ArgumentParser) -> list[Completed]:
    """All commands of a parser in the order of its help."""
    (commands,) = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
    helps = {one.dest: one.help or "" for one in commands._choices_actions}
    return [_completed(name, helps.get(name, ""), one) for name, one in commands.choices.items()]


def _completed(name: str, text: str, command: argparse.ArgumentParser) -> Completed:
    words = command._get_formatter()
    options = tuple(
        (option, words._expand_help(one) if one.help else "")
        for one in command._actions
        for option in one.option_strings
        if option.startswith("--")
    )
    positional = [one for one in command._actions if not one.option_strings and one.choices is not None]
    return Completed(name, text, options, tuple(map(str, positional[0].choices or ())) if positional else ())


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script that a shell reads: `source <(colonnade completion bash)`, say."""
    make = {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell]
    return "\n".join(make(commands_of(parser))) + "\n"


def _bash(commands: list[Completed]) -> Iterator[str]:
    yield "_colonnade() {"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" given="" known=""'
    yield '  if [ "$COMP_CWORD" -gt 1 ]; then given="${COMP_WORDS[1]}"; fi'
    yield '  case "$given" in'
    yield f'    "") known="{" ".join(one.name for one in commands)} --help --version";;'
    for one in commands:
        yield f'    {one.name}) known="{" ".join((*one.choices, *(option for option, _ in one.options)))}";;'
    yield "  esac"
    yield '  COMPREPLY=($(compgen -W "$known" -- "$word"))'
    yield "}"
    # Files and folders where nothing of this fits, as of every other command.
    yield "complete -o default -F _colonnade colonnade"


def _zsh(commands: list[Completed]) -> Iterator[str]:
    yield "#compdef colonnade"
    yield "_colonnade() {"
    yield "  local -a known"
    yield "  if (( CURRENT == 2 )); then"
    yield f"    known=({' '.join(_quoted(f'{one.name}:{one.help}') for one in commands)})"
    yield "    _describe 'command' known; return"
    yield "  fi"
    yield "  case $words[2] in"
    for one in commands:
        options = (f"{option}:{text}" for option, text in one.options)
        yield f"    {one.name}) known=({' '.join(map(_quoted, (*one.choices, *options)))});;"
    yield "  esac"
    yield "  if [[ $PREFIX == -* || ${#known} -gt 0 && $known[1] != -* && CURRENT -eq 3 ]]; then"
    yield "    _describe 'option' known"
    yield "  fi"
    yield "  _files"
    yield "}"
    yield "compdef _colonnade colonnade"


def _fish(commands: list[Completed]) -> Iterator[str]:
    for one in commands:
        yield f"complete -c colonnade -n __fish_use_subcommand -f -a {one.name} -d {_quoted(one.help)}"
    for one in commands:
        seen = f"-n '__fish_seen_subcommand_from {one.name}'"
        if one.choices:
            yield f"complete -c colonnade {seen} -a {_quoted(' '.join(one.choices))}"
        for option, text in one.options:
            yield f"complete -c colonnade {seen} -l {option.removeprefix('--')} -d {_quoted(text)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
