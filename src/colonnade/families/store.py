"""A model on disk: one file per party, with nothing of another party in it.

A file is a numpy archive without pickle. What all parties know anyway (the model's options and who takes part) is in
every file; parameters and column names are only in their owner's, and classes and the intercept only at label holders.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np

from colonnade import private_files
from colonnade.errors import DataError
from colonnade.families import NAMES

FORMAT, _READ = 2, (1, 2)  # the format that is written, and those that are read: format 1 names no family
# The names of the families in files of version 0.2, which had them under the key "combines".
_COMBINED = {
    "scores": "linear",
    "predictions": "averaged",
    "features": "kernel",
    "networks": "torch",
    "rows": "rows",
}
SUFFIX = ".colonnade.npz"
# What numpy raises for a file that is no archive, or that is cut short or damaged somewhere.
DAMAGED = (
    OSError, ValueError, KeyError, EOFError, TypeError, NotImplementedError, MemoryError, BadZipFile, SyntaxError,
    TokenError, zlib.error,
)  # fmt: skip


def as_text(public: dict[str, Any]) -> str:
    """Return what all parties know as it stands in a file; an option may be one of numpy's numbers."""
    return json.dumps(public, sort_keys=True, default=lambda number: number.item())


def write_party(folder: Path, party: str, public: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write one party's file, whole or not at all, and for its owner only."""
    text = as_text({"format": FORMAT, "party": party, **public})
    with private_files.writing(folder / f"{party}{SUFFIX}") as file:
        np.savez(file, public=np.array(text), **arrays)


def read_party(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (what the file says, its arrays) of one party's file; refuse one that is damaged or of another format."""
    try:
        with (
            private_files.reading(path, "the model file", DataError) as file,  # numpy leaves a damaged one open
            np.load(file, allow_pickle=False) as archive,
        ):
            public = json.loads(str(archive["public"]))
            arrays = {key: archive[key] for key in archive.files if key != "public"}
            if not isinstance(public, dict):
                raise ValueError("it does not say what it holds")
    except DataError:
        raise
    except (*DAMAGED, RecursionError) as error:
        raise DataError(
            f"{path.name} is not a model file of Colonnade ({error}); give a file that `save` wrote"
        ) from None
    if public.get("format") not in _READ:
        raise DataError(f"{path.name} has format {public.get('format')!r}, this version reads format {FORMAT}")
    made = public.get("family", _COMBINED.get(str(public.pop("combines", ""))))
    if not isinstance(made, str) or made not in NAMES:
        raise DataError(f"{path.name} holds a model of a family that this version does not know: {made!r}")
    return {**_renewed(public), "family": made}, arrays


def _renewed(public: dict[str, Any]) -> dict[str, Any]:
    """Return what a file says in today's words: earlier versions had Paillier's keys, of several lengths."""
    options = {key: value for key, value in public.get("options", {}).items() if key != "key_bits"}
    for words in (options, public):
        if words.get("sum") == "paillier":
            words["sum"] = "encrypted"
    return {**public, "options": options} if options else public


def party_files(folder: str | Path) -> list[Path]:
    """Return the model files of a folder; it is an error if there are none."""
    found = sorted(Path(folder).glob(f"*{SUFFIX}"))
    if not found:
        raise DataError(f"{str(folder)!r} holds no file that ends in {SUFFIX}; give the folder that `save` wrote")
    return found


def check_same_training(one: tuple[str, Mapping[str, Any]], other: tuple[str, Mapping[str, Any]]) -> None:
    """Refuse parts of a model that were not trained together; each is (its party, what its file says)."""
    ids = [public.get("training") for _, public in (one, other)]
    if ids[0] != ids[1]:
        first, second = (f"that of {party!r} of {_training(public)}" for party, public in (one, other))
        raise DataError(f"the parts are of different trainings, {first} and {second}; use parts of one training")


def _training(public: Mapping[str, Any]) -> str:
    return f"training {public['training']}" if public.get("training") else "one from before trainings had ids"


def read_parties(folder: str | Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return (what all parties know, {party: its arrays}) of a whole model."""
    files = [read_party(path) for path in party_files(folder)]
    public = files[0][0]
    arrays = {entry["party"]: part for entry, part in files}
    for entry, _ in files:
        check_same_training((public["party"], public), (entry["party"], entry))
        if {**entry, "party": ""} != {**public, "party": ""}:
            raise DataError(f"the files of {public['party']!r} and {entry['party']!r} belong to different models")
    missing = [name for name in public["parties"] if name not in arrays]
    if missing:
        raise DataError(f"the files of {missing} are missing; a model needs the file of every party")
    return public, arrays
