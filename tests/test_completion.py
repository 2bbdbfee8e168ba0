"""Shells complete what the command knows: no more, and no less."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from colonnade.cli.completion import SHELLS, commands_of, script
from colonnade.cli.main import _parser, main


def completed(line: str) -> list[str]:
    """What bash offers for a line whose last word is not finished."""
    words = line.split(" ")
    lines = [
        script(_parser(), "bash"),
        f"COMP_WORDS=({' '.join(word or chr(34) * 2 for word in words)})",
        f"COMP_CWORD={len(words) - 1}",
        "_colonnade",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    return done.stdout.split()


bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


@bash
def test_bash_completes_commands():
    assert completed("colonnade pre") == ["predict"]
    assert set(completed("colonnade ")) >= {"init", "run", "predict", "completion", "--version"}


@bash
def test_bash_completes_options_of_the_command_alone():
    assert completed("colonnade predict job.toml --o") == ["--out"]
    assert completed("colonnade run job.toml --out") == []


@bash
def test_bash_completes_actions():
    assert set(completed("colonnade model ")) >= {"list", "promote", "rollback"}


def test_every_command_and_option_is_there():
    commands = {one.name: one for one in commands_of(_parser())}
    assert {"demo", "run", "ledger", "completion"} <= set(commands)
    assert {option for option, _ in commands["serve"].options} >= {"--http", "--public", "--once"}
    for shell in SHELLS:
        text = script(_parser(), shell)
        assert all(name in text for name in commands)
        assert "%(" not in text  # words of help say their defaults


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_take_the_script(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = tmp_path / "completion"
    path.write_text(script(_parser(), shell))
    subprocess.run([shell, "-n", str(path)], check=True)


def test_another_shell_is_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    assert "bash" in capsys.readouterr().err
