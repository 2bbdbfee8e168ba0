"""A network model on disk: one safetensors file per party, with nothing of another party in it.

Parameters are tensors. The file's header has, as text, what all parties know (who takes part, and the options) and what
only this one does: its columns, how its network is made, and at label holders the classes. Nothing in a file can run.
Where a network is made by a function, the file has the function's name, for people to read: `load` calls only what its
caller gives.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import private_files
from colonnade.conventions.preparing import from_plain, to_plain
from colonnade.errors import DataError, OptionError
from colonnade.families.store import as_text, check_same_training
from colonnade.networks.torch_checks import shape_of
from colonnade.networks.torch_modules import forget, reference
from colonnade.objective.decisions import Threshold

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
    """Return (party, what all parties know, what this one knows, arrays) of one file."""
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
    """Return whether a folder has files of a network model."""
    return any(Path(folder).glob(f"*{SUFFIX}"))


def read_parties(folder: str | Path) -> tuple[dict[str, Any], dict[str, tuple[dict[str, Any], dict[str, Any]]]]:
    """Return (what all parties know, {party: (what it knows, its arrays)}) of a whole model."""
    paths = sorted(Path(folder).glob(f"*{SUFFIX}"))
    if not paths:
        raise DataError(f"{str(folder)!r} holds no file that ends in {SUFFIX}; give the folder that `save` wrote")
    found, first = {}, None
    for path in paths:
        party, public, own, arrays = read_party(path)
        if first is None:
            first = (party, public)
        check_same_training(first, (party, public))
        if public != first[1]:
            raise DataError(f"the files of {first[0]!r} and {party!r} belong to different models")
        found[party] = (own, arrays)
    public = first[1] if first is not None else {}
    missing = [name for name in public["parties"] if name not in found]
    if missing:
        raise DataError(f"the files of {missing} are missing; a model needs the file of every party")
    return public, found


# Options that are in every party's file; the networks themselves stay with their owners.
_OPTIONS = ("l2", "protection", "sum", "topology")


def save_networks(model: Any, folder: str | Path) -> None:
    """Write one file per party of a network model."""
    path = Path(folder)
    private_files.make_folder(path)
    public = {
        "model": type(model).__name__, "options": {key: getattr(model, key) for key in _OPTIONS},
        "parties": model.parties_, "holders": model.holders_, "sum": model.sum_, "loss": model.loss_,
        "top": model._has_top, **model._identity(),
    }  # fmt: skip
    for name in model.parties_:
        names, arrays, still = model._states[name]
        own: dict[str, Any] = {
            "network": model._how[name], "columns": model.columns_[name], "still": still, "order": names,
            "shape": shape_of(model.shape, name), "width": model._widths[name],
        }  # fmt: skip
        if model._date:
            own["about"] = model._about(name)
        if name in model.preparations_:
            own["preparation"] = to_plain(model.preparations_[name])
        if name in model.holders_:
            own |= {"classes": model.classes_.tolist(), "kind": model.classes_.dtype.str}
        if name == model.holders_[0] and model._threshold is not None:
            own |= {"threshold": model._threshold.at, "threshold_by": model._threshold.by}
        if name == model.holders_[0] and model._has_top:
            own["top"] = model._top_how
        write_party(path, name, public, own, dict(zip(names, arrays, strict=True)))


def restore_networks(
    model: Any, public: dict[str, Any], files: dict[str, tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    """Turn a new model into the one that the files describe."""
    for key in _OPTIONS:
        setattr(model, key, public["options"].get(key, getattr(model, key)))  # version 0.2 knew no protection
    model.shape = {name: own["shape"] for name, (own, _) in files.items() if own["shape"]} or None
    model.parties_, model.holders_ = tuple(public["parties"]), tuple(public["holders"])
    model.sum_, model.loss_ = public["sum"], public["loss"]
    model.training_ = public.get("training", "")
    model._family = model._family_of(with_top=public["top"])
    model.history_, model.traffic_, model.times_, model.rounds_ = [], {}, {}, 0
    model._how = {
        name: _how(files[name][0]["network"], model.networks.get(name), name, f"networks={{{name!r}: ...}}")
        for name in model.parties_
    }
    model._widths = {name: files[name][0]["width"] for name in model.parties_}
    first = files[model.holders_[0]][0]
    model._top_how = _how(first.get("top"), model.top, model.holders_[0], "top=...")
    model._states = {
        name: (tuple(own["order"]), tuple(arrays[key] for key in own["order"]), tuple(own["still"]))
        for name, (own, arrays) in files.items()
    }
    model.columns_ = {name: tuple(files[name][0]["columns"]) for name in model.parties_}
    prepared = {name: own["preparation"] for name, (own, _) in files.items() if "preparation" in own}
    model.preparations_ = {name: from_plain(value) for name, value in prepared.items()}
    model.classes_ = np.array(first["classes"], dtype=np.dtype(first["kind"]))
    model._threshold = Threshold.from_arrays(first)
    if public["top"] and model._top_how is None and model.top is None:
        raise OptionError("the top network has layers of its own, which no file can hold; load with top=...")


def _how(stored: Any, given: Any, party: str, option: str) -> Any:
    """Return how a network is made again: layers as the file tells them, functions as the caller of `load` gives them.

    A file may come from somebody else. What it names is never imported; the error says the name, and the caller
    decides.
    """
    how = _tuples(stored)
    if how is None or how[0] == "layers":
        return how
    if given is None:
        raise OptionError(
            f"the file of party {party!r} says that its network is made by {str(how[1])[:200]!r}, and a file does not "
            f"decide what is called here; if that function is yours, load the model with {option}"
        )
    how, _ = reference(given, party, 0)
    forget(how)
    return None if how[0] == "here" else how


def _tuples(value: Any) -> Any:
    """Return a value read from JSON with its lists as the tuples that they once were."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
