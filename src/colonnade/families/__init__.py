"""Families of models: how each is trained, scored, kept and described, and the one door into training.

A new family is one class in a file of its own, named once in `_HOME`. Families are imported when they are asked for, so
that a linear model needs nothing of torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from colonnade.errors import one_of

if TYPE_CHECKING:
    from colonnade.families.base import Family

_HOME = {
    "linear": "linear:LinearFamily",
    "averaged": "linear:AveragedFamily",
    "sealed": "sealed:SealedFamily",
    "kernel": "kernel:KernelFamily",
    "torch": "torch_networks:TorchFamily",
    "split": "torch_networks:SplitFamily",
    "transfer": "transfer:TransferFamily",
    "trees": "trees:TreesFamily",
    "sealed-trees": "trees:SealedTreesFamily",
    "rows": "rows:RowsFamily",
}
NAMES = tuple(_HOME)

_made: dict[str, Family] = {}


def family(name: str) -> Family:
    """Return the family of that name."""
    if name not in _made:
        one_of("the family of a model", name, NAMES)
        module, kind = _HOME[name].split(":")
        _made[name] = getattr(import_module(f"colonnade.families.{module}"), kind)()
    return _made[name]


def families() -> tuple[Family, ...]:
    """Return all families, in the order of `NAMES`."""
    return tuple(family(name) for name in NAMES)


def family_of_kind(kind: str) -> Family:
    """Return the family of a job's model, by the `kind` that the job gives it."""
    found = next((one for one in families() if kind in one.kinds), None)
    if found is None:
        one_of("kind", kind, tuple(name for one in families() for name in one.kinds))
        raise TypeError("a kind of no family")  # never reached, as the line before refuses it
    return found
