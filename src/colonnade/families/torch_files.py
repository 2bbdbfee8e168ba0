"""A network model to files and back: what stands in each party's own, see `network_store`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from colonnade import private_files
from colonnade.blocks.torch_modules import forget, reference
from colonnade.errors import OptionError
from colonnade.estimators.torch_checks import shape_of
from colonnade.families import torch_store as network_store

# Options that stand in every party's file; the networks themselves stay with their owners.
_OPTIONS = ("l2", "sum", "topology")


def save_networks(model: Any, folder: str | Path) -> None:
    """One file per party."""
    path = Path(folder)
    private_files.make_folder(path)
    public = {
        "model": type(model).__name__, "options": {key: getattr(model, key) for key in _OPTIONS},
        "parties": model.parties_, "holders": model.holders_, "sum": model.sum_, "loss": model.loss_,
        "top": model._has_top,
    }  # fmt: skip
    for name in model.parties_:
        names, arrays, still = model._states[name]
        own: dict[str, Any] = {
            "network": model._how[name], "columns": model.columns_[name], "still": still, "order": names,
            "shape": shape_of(model.shape, name), "width": model._widths[name],
        }  # fmt: skip
        if name in model.holders_:
            own |= {"classes": model.classes_.tolist(), "kind": model.classes_.dtype.str}
        if name == model.holders_[0] and model._has_top:
            own["top"] = model._top_how
        network_store.write_party(path, name, public, own, dict(zip(names, arrays, strict=True)))


def restore_networks(
    model: Any, public: dict[str, Any], files: dict[str, tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    """Make a new model what the files say."""
    for key in _OPTIONS:
        setattr(model, key, public["options"][key])
    model.shape = {name: own["shape"] for name, (own, _) in files.items() if own["shape"]} or None
    model.parties_, model.holders_ = tuple(public["parties"]), tuple(public["holders"])
    model.sum_, model.loss_ = public["sum"], public["loss"]
    model.history_, model.traffic_, model.rounds_ = [], {}, 0
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
    model.classes_ = np.array(first["classes"], dtype=np.dtype(first["kind"]))
    if public["top"] and model._top_how is None and model.top is None:
        raise OptionError("the top network has layers of its own, which no file can hold; load with top=...")


def _how(stored: Any, given: Any, party: str, option: str) -> Any:
    """How a network is made again: layers as the file tells them, and functions as the caller of `load` names them.

    A file may come from somebody else. What it names is never imported: it is said, and the caller decides.
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
    """JSON's lists as the tuples that they were."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
