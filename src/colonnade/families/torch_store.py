"""A network model on disk: one safetensors file per party, with nothing of another party in it.

Parameters are tensors; what all parties know (who takes part, options) and what only this one does (its columns, how
its network is made, at label holders the classes) stand in the file's header as text. Nothing in it can run. Where a
network is made by a function the file has its name, for the eyes of who loads it: `load` calls what its caller gives.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import private_files
from colonnade.errors import DataError, OptionError
from colonnade.families.store import as_text

FORMAT = "1"
SUFFIX = ".colonnade.safetensors"


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise OptionError(
            "network models are kept as safetensors, which is not installed; install the extra: pip install "
            "'colonnade[torch]'"
        ) from None
    return safetensors.numpy


def write_party(folder: Path, party: str, public: dict[str, Any], own: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write one party's file, whole or not at all, and for its owner only."""
    header = {"format": FORMAT, "party": party, "public": as_text(public), "own": json.dumps(own)}
    # Not `ascontiguousarray`, which gives a lone number (the batches that batch norm has counted) a dimension.
    tensors = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    data = _safetensors().save(tensors, metadata=header)
    private_files.write(folder / f"{party}{SUFFIX}", data)


def read_party(path: Path) -> tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]:
    """(party, what all know, what this one knows, arrays) of one file."""
    try:
        data = private_files.read(path, "the model file", DataError)
        arrays = _safetensors().load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])["__metadata__"]
        if header["format"] != FORMAT:
            raise DataError(f"{path.name} has format {header['format']!r}, this version reads format {FORMAT!r}")
        return header["party"], json.loads(header["public"]), json.loads(header["own"]), arrays
    except (OptionError, DataError):
        raise
    except Exception as error:  # safetensors has an error class of its own for each way to be damaged
        raise DataError(f"{path.name} is not a network model's file ({error}); give a file that `save` wrote") from None


def holds_networks(folder: str | Path) -> bool:
    """Whether a folder has files of a network model."""
    return any(Path(folder).glob(f"*{SUFFIX}"))


def read_parties(folder: str | Path) -> tuple[dict[str, Any], dict[str, tuple[dict[str, Any], dict[str, Any]]]]:
    """(what all parties know, {party: (what it knows, its arrays)}) of a whole model."""
    paths = sorted(Path(folder).glob(f"*{SUFFIX}"))
    if not paths:
        raise DataError(f"{str(folder)!r} holds no file that ends in {SUFFIX}; give the folder that `save` wrote")
    found, first = {}, None
    for path in paths:
        party, public, own, arrays = read_party(path)
        if first is None:
            first = (party, public)
        elif public != first[1]:
            raise DataError(f"the files of {first[0]!r} and {party!r} belong to different models")
        found[party] = (own, arrays)
    public = first[1] if first is not None else {}
    missing = [name for name in public["parties"] if name not in found]
    if missing:
        raise DataError(f"the files of {missing} are missing; a model needs the file of every party")
    return public, found
