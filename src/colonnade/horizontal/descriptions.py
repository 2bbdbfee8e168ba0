"""What a server may tell of a model and of an algorithm: sizes, numbers, and names out of tables of ours.

Such a name is compared with the table and never imported. A module of torch is made at each site by a function that the
site itself names (`SSCAClassifier(network=...)`, `client_app(load, network=...)`); the server tells no more of it than
the shapes of its parameters, and a site whose own module has others says so.

    ("layers", columns, hidden cells, classes, whether cells are always 1)
    ("own", columns, shapes of the parameters, classes, False)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from colonnade.algorithms.fedavg import FedAvg, LocalSteps, MiniBatchSGD, ParallelRestartedSGD
from colonnade.algorithms.ssca import SSCA
from colonnade.blocks.whole import Linear, ThreeLayers, WholeModel
from colonnade.errors import OptionError, ProtocolError

Make = Callable[[int, int], Any]  # make(columns, classes) -> torch.nn.Module

METHODS: dict[str, type[SSCA | LocalSteps]] = {
    kind.name: kind for kind in (SSCA, FedAvg, MiniBatchSGD, ParallelRestartedSGD)
}
LAYERS, OWN = "layers", "own"
_MOST = 1 << 40  # parameters; no array of them is made before the server has sent as many


def method_from_value(value: Any) -> SSCA | LocalSteps:
    """The inverse of `Rounds.as_value`."""
    if not isinstance(value, tuple) or len(value) != 2 or not _is_options(value[1]):
        raise ProtocolError("an algorithm must be told as (its name, ((option, value), ...))")
    name, options = value
    if not isinstance(name, str) or name not in METHODS:
        raise ProtocolError(f"the algorithm {_short(name)} is none of {', '.join(METHODS)}")
    kind: Any = METHODS[name]
    try:
        method: SSCA | LocalSteps = kind(**dict(options))
    except (TypeError, OptionError) as error:
        raise ProtocolError(f"the algorithm {name} can't have these options ({_short(error)})") from None
    return method


def _is_options(given: Any) -> bool:
    return isinstance(given, tuple) and all(
        isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str) for one in given
    )


def check_description(value: Any) -> None:
    """Refuse what is no description of a model."""
    if isinstance(value, tuple) and len(value) == 5:
        kind, features, what, classes, constant = value
        sizes = _is_size(features, 1) and _is_size(classes, 2) and type(constant) is bool
        if kind == LAYERS and sizes and _is_size(what, 0) and (features + 1) * (what or classes) < _MOST:
            return
        if kind == OWN and sizes and _is_shapes(what):
            return
    raise ProtocolError(f"a model is told as sizes of layers or shapes of parameters, got {_short(value)}")


def _is_size(given: Any, low: int) -> bool:
    return type(given) is int and low <= given < _MOST


def _is_shapes(given: Any) -> bool:
    return isinstance(given, tuple) and all(
        isinstance(shape, tuple) and all(_is_size(size, 0) for size in shape) for shape in given
    )


def model_from_value(value: Any, make: Make | None, whose: str) -> WholeModel:
    """The model of that description; `make` is the own function of whoever it is made for, where it has one."""
    check_description(value)
    kind, features, what, classes, constant = value
    if (kind == OWN) != (make is not None):
        raise OptionError(
            f"the model is a torch module, and {whose} was given none; give it network=, the function of the others"
            if kind == OWN
            else f"the model is told by its layers, and {whose} was given a network=; give it to all, or to none"
        )
    if make is None:
        return ThreeLayers(features, what, classes, constant) if what else Linear(features, classes, constant)
    from colonnade.blocks.torch_whole import TorchModule

    module = TorchModule(make, features, classes)
    if module.shapes != what:
        raise OptionError(
            f"the network of {whose} has parameters of the shapes {_short(module.shapes)}, the model those of "
            f"{_short(what)}; give the same network= to all"
        )
    return module


def describe_model(features: int, classes: int, hidden: int, constant: bool, make: Make | None) -> Any:
    """The description of a model that is about to be trained; a network that can't be made fails here."""
    if make is None:
        return (LAYERS, features, hidden, classes, constant)
    from colonnade.blocks.torch_whole import TorchModule

    return (OWN, features, TorchModule(make, features, classes).shapes, classes, False)


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= 200 else text[:200] + "..."
