"""What a server may tell a site: instructions, a job, a model, an algorithm; a site checks the form of all of them.

Of a model and of an algorithm the server tells sizes, numbers, and names out of tables of ours. Such a name is compared
with the table and never imported. A module of torch is made at each site by a function that the site itself names
(`SSCAClassifier(network=...)`, `client_app(load, network=...)`); the server tells no more of it than the shapes of its
parameters, and a site whose own module has other shapes says so.

    ("layers", columns, hidden cells, classes, whether cells are always 1)
    ("own", columns, shapes of the parameters, classes, False)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from colonnade.algorithms.fedavg import FedAvg, LocalSteps, MiniBatchSGD, ParallelRestartedSGD
from colonnade.algorithms.ssca import SSCA
from colonnade.blocks.whole import Linear, ThreeLayers, WholeModel
from colonnade.errors import OptionError, ProtocolError

Make = Callable[[int, int], Any]  # make(columns, classes) -> torch.nn.Module

METHODS: dict[str, type[SSCA | LocalSteps]] = {
    kind.name: kind for kind in (SSCA, FedAvg, MiniBatchSGD, ParallelRestartedSGD)
}
LAYERS, OWN = "layers", "own"
SURVEY = "survey"  # a task before there is a model: sums that the columns of all sites are prepared by
_MOST = 1 << 40  # parameters; no array of them is made before the server has sent as many
MOST_RECORDS = 1 << 20  # evaluations of a run
_MOST_MEASURES = 1 << 16  # every one costs a pass over the rows


def method_from_value(value: Any) -> SSCA | LocalSteps:
    """Read an algorithm as its `as_value` wrote it."""
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
    """Refuse what is not the description of a model."""
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
    """Make the model of a description; `make` is the function that its receiver has of its own for a torch module."""
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
    from colonnade.horizontal.torch_whole import TorchModule

    module = TorchModule(make, features, classes)
    if module.shapes != what:
        raise OptionError(
            f"the network of {whose} has parameters of the shapes {_short(module.shapes)}, the model those of "
            f"{_short(what)}; give the same network= to all"
        )
    return module


def describe_model(features: int, classes: int, hidden: int, constant: bool, make: Make | None) -> Any:
    """Describe a model that is about to be trained; a network that can't be made fails here."""
    if make is None:
        return (LAYERS, features, hidden, classes, constant)
    from colonnade.horizontal.torch_whole import TorchModule

    return (OWN, features, TorchModule(make, features, classes).shapes, classes, False)


def _short(value: Any) -> str:
    text = str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= 200 else text[:200] + "..."


# -- the forms of messages --------------------------------------------------------------------------------------------


def instruction(message: Any) -> tuple[str, int, Any]:
    """Return (stage, number of the sum, content), if that is what a server's message is, and refuse anything else."""
    if isinstance(message, tuple) and len(message) == 3:
        stage, serial, content = message
        form = _FORMS.get(stage) if isinstance(stage, str) else None
        if form is not None and type(serial) is int and form(content):
            return stage, serial, content
    raise ProtocolError(
        "the server's instruction is not one that this site knows; use one version of colonnade everywhere"
    )


def _each(*kinds: type) -> Callable[[Any], bool]:
    return lambda content: (
        isinstance(content, tuple) and all(isinstance(one, tuple) and tuple(map(type, one)) == kinds for one in content)
    )


def _is_task(content: Any) -> bool:
    if not isinstance(content, tuple) or not content:
        return False
    kind, *rest = content
    if type(kind) is not str:  # an array would be compared number by number
        return False
    if kind == SURVEY:
        return [type(one) for one in rest] == [int, str]
    arrays = len(rest) == 3 and type(rest[0]) is int and all(isinstance(one, np.ndarray) for one in rest[1:])
    if kind == "evaluate" and arrays and rest[0] >= MOST_RECORDS:  # whoever follows the run has a place for each
        return False
    return not rest if kind == "count" else kind in ("step", "evaluate") and arrays and rest[0] >= (kind == "step")


# What the content of each stage must be; arrays are checked more closely where their length is known.
_FORMS: dict[str, Callable[[Any], bool]] = {
    "task": _is_task,
    "keys": _each(int, bytes, bytes, bytes, bytes),
    "letters": _each(int, bytes),
    "survivors": lambda content: isinstance(content, tuple) and all(type(one) is int for one in content),
    "signatures": _each(int, bytes),
    "end": lambda content: isinstance(content, np.ndarray),
}


def is_job(job: Any) -> bool:
    """Whether this is (number, names, model, algorithm, measures, l2, threshold).

    A measure is a pair: the number of a class or group, and that of a function; -1 is all rows, and the cost. The model
    and the algorithm are checked by functions of their own.
    """
    if not isinstance(job, tuple) or len(job) != 7:
        return False
    number, names, _, _, measures, l2, threshold = job
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        return False
    if not isinstance(measures, tuple) or not 1 <= len(measures) <= _MOST_MEASURES or not _each(int, int)(measures):
        return False
    numbers = all(-1 <= key < _MOST_MEASURES and function >= -1 for key, function in measures)
    sizes = type(number) is int and 0 <= number < len(names) and type(threshold) is int
    return sizes and numbers and threshold >= 0 and type(l2) is float and 0 <= l2 < math.inf
