"""TOML files, read whole and checked before anything else: every error names the file, the line and the key.

    settings = read("bank.toml", PARTY)      # PARTY: what is allowed, see settings.py

For any bytes at all, the outcome is settings or a `TomlError`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from colonnade.errors import TomlError
from colonnade.settings.settings import Place, Section, Settings, check
from colonnade.settings.toml_lines import key_lines

_LARGEST = 1 << 20  # bytes: settings are written by people
_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_KEY = re.compile(r"\s*([^=#\[\]\s][^=#]*?)\s*=")  # at the beginning of a line that is no TOML, so a guess
_DIGITS = re.compile(r"[0-9](_?[0-9]){4000}")


def read(path: str | Path, section: Section) -> Settings:
    """Read and check a TOML file."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        raise TomlError(f"there is no file {str(path)!r}; give the path of a TOML file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise TomlError(f"{str(path)!r} can't be read ({reason}); give the path of a TOML file") from None
    return parse(content, section, path.name, path.absolute().parent)


def parse(content: bytes, section: Section, file: str = "", folder: Path | None = None) -> Settings:
    """Check the content of a TOML file; `file` is its name for errors."""
    name = file or "the settings"
    if len(content) > _LARGEST:
        raise TomlError(f"{name} has more than {_LARGEST} bytes, the most that are allowed; is it the right file?")
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n")  # some editors mark UTF-8 with three bytes
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TomlError(f"{name}, line {line}: this is not UTF-8 text; save the file as UTF-8") from None
    try:
        values = tomllib.loads(text)
        lines = key_lines(text)
    except RecursionError:
        raise TomlError(f"{name}: its arrays or tables are nested too deeply; is it the right file?") from None
    except ValueError as error:
        raise _syntax_error(name, text, str(error)) from None
    return check(values, section, Place(file, folder or Path(), lines), text.count("\n") + 1)


def _syntax_error(name: str, text: str, message: str) -> TomlError:
    found = _POSITION.search(message)
    lines = text.split("\n")
    if found and found[1]:
        number = min(int(found[1]), len(lines))
    elif found:  # at the end: of the last line that says something
        number = len(text.rstrip().split("\n"))
    else:  # the only error without a place is of a number with more digits than Python reads
        number = next((n for n, line in enumerate(lines, 1) if _DIGITS.search(line)), 0)
    reason = message[: found.start()] if found else message
    at = f", line {number}" if number else ""
    # What is never closed began before: its key is the last one above.
    above = (
        range(number, 0, -1) if reason.lower().startswith(("unclosed", "unterminated")) else [number] if number else []
    )
    key = next((found[1][:60] for n in above if (found := _KEY.match(lines[n - 1]))), "")
    words = f", key {key}" if key else ""
    return TomlError(
        f"{name}{at}{words}: this is not TOML: {reason[:1].lower()}{reason[1:]}; correct it here or just before"
    )
