"""Checks of the networks, shapes and optimisers of a model, before any work starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from colonnade.data.party import Party
from colonnade.errors import DataError, OptionError, one_of
from colonnade.networks.torch_optimisers import OPTIMISERS

Shapes = Mapping[str, Sequence[int]] | None
Optimisers = str | Mapping[str, str]


def shape_of(shapes: Shapes, name: str) -> tuple[int, ...] | None:
    """Return the shape of a party's rows, or None if they are flat."""
    found = None if shapes is None else shapes.get(name)
    return None if found is None else tuple(int(size) for size in found)


def optimiser_of(optimisers: Optimisers, name: str) -> str:
    """Return the name of a party's optimiser."""
    return optimisers if isinstance(optimisers, str) else optimisers.get(name, "sgd")


def check_networks(networks: Any, shapes: Shapes, optimisers: Optimisers, parties: tuple[Party, ...]) -> None:
    """Refuse anything but one network for every party, shapes that fit the columns, and optimisers that exist."""
    if not isinstance(networks, Mapping):
        raise OptionError(f"networks must be {{party: network}}, got {type(networks).__name__}")
    names = [party.name for party in parties]
    if shapes is not None and not isinstance(shapes, Mapping):
        raise OptionError(f"shape must be {{party: shape of a row}}, got {shapes!r}")
    if not isinstance(optimisers, (str, Mapping)):
        known = ", ".join(map(repr, OPTIMISERS))
        raise OptionError(f"optimizer must be one of {known}, or {{party: one of them}}, got {optimisers!r}")
    chosen = {} if isinstance(optimisers, str) else optimisers
    for what, given in (("networks", networks), ("shape", shapes or {}), ("optimizer", chosen)):
        strangers = [name for name in given if name not in names]
        if strangers:
            raise OptionError(
                f"{what} has an entry for {strangers[0]!r}, the parties are {', '.join(map(repr, names))}; remove it "
                f"or add the party"
            )
    missing = [name for name in names if name not in networks]
    if missing:
        raise OptionError(f"party {missing[0]!r} has no network; give one as networks={{{missing[0]!r}: ...}}")
    for party in parties:
        one_of("optimizer", optimiser_of(optimisers, party.name), tuple(OPTIMISERS))
        _check_shape(None if shapes is None else shapes.get(party.name), party.name)
        shape = shape_of(shapes, party.name)
        if shape is not None and int(np.prod(shape)) != party.features:
            raise DataError(
                f"party {party.name!r} has {party.features} columns, which do not make a row of shape {shape}; give a "
                f"shape of as many numbers"
            )


def _check_shape(given: Any, party: str) -> None:
    sizes = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else []
    whole = (isinstance(size, Integral) and not isinstance(size, bool) and int(size) >= 1 for size in sizes)
    if given is not None and not (sizes and all(whole)):
        raise OptionError(f"the shape of party {party!r} must be whole numbers >= 1 such as (1, 28, 14), got {given!r}")


def check_step(step: float | str, optimisers: Optimisers, parties: Sequence[Party], where: str) -> None:
    """Refuse step="auto" where the curvature of a network says nothing about a safe step."""
    if step == "auto" and any(optimiser_of(optimisers, party.name) != "adam" for party in parties):
        raise OptionError(f"step must be a number {where}, got 'auto'; only optimizer='adam' needs none")


def check_widths(widths: Mapping[str, int]) -> str:
    """Refuse networks of different output widths, as outputs are added up; return the first party's name."""
    first, *others = widths
    for name in others:
        if widths[name] != widths[first]:
            raise OptionError(
                f"the network of party {first!r} gives {widths[first]} numbers per row and that of {name!r} "
                f"{widths[name]}; scores are added up, so give all networks the same last width"
            )
    return first
