"""Where networks start: the modules that they are given, or parameters of `fit(initial=)` in their place.

`initial` is a fitted model of the same class, or {party: parameters}, where a party's parameters are a module's
`state_dict()` or a module of the same layers, and those of a top network stand under "top". Each party is given its own
part, and nothing of the others'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.party import Party
from colonnade.errors import DataError, OptionError
from colonnade.estimators.base import Estimator
from colonnade.estimators.initial import check_goes_on, real_numbers
from colonnade.families.training import TrainingJob
from colonnade.networks.torch_modules import module_of, need_torch, to_value
from colonnade.networks.torch_veils import bare

Array = npt.NDArray[Any]
TOP = "top"  # what the top network is called among the parties' networks


def network_start(
    initial: Any,
    model: Any,
    job: TrainingJob,
    parties: Sequence[Party],
    classes: Array,
    networks: dict[str, Any],
    top: Any,
) -> tuple[dict[str, Any], Any]:
    """Return what programs get of all networks and of the top network, with the parameters that `initial` gives."""
    if initial is None:
        return networks, top
    given, seed = _given(initial, model, job, parties, classes), job.algorithm.seed
    known = [*networks, *(() if top is None else (TOP,))]
    for name in given:
        if name not in known:
            raise OptionError(f"initial has parameters for {name!r}, which has no network here; there are {known}")
    started = {
        name: (made[0], _started(made, given[name], name, seed), *made[2:]) if name in given else made
        for name, made in networks.items()
    }
    if top is not None and TOP in given:
        top = (top[0], _started(top, given[TOP], job.holders[0], seed), *top[2:])
    return started, top


def _given(
    initial: Any, model: Any, job: TrainingJob, parties: Sequence[Party], classes: Array
) -> dict[str, Mapping[str, Any]]:
    """Return {party: {name of a parameter: its values}}, and the same of the top network."""
    if isinstance(initial, Estimator):
        check_goes_on(initial, model, job, parties, classes)
        made: Any = initial
        states = {name: made._split(name)[0] for name in made.parties_}
        if made._has_top:
            states[TOP] = made._split(made.holders_[0])[1]
        return {name: bare(state[0], state[1]) for name, state in states.items()}
    if not isinstance(initial, Mapping):
        kind = type(initial).__name__
        raise OptionError(f"initial must be a fitted model or a dict {{party: state_dict or module}}, got {kind}")
    found = {}
    for name, one in initial.items():
        parameters = one.state_dict() if isinstance(one, need_torch().nn.Module) else one
        if not isinstance(parameters, Mapping):
            raise OptionError(
                f"initial gives {name!r} a {type(one).__name__}; give a module, or what its state_dict() returns"
            )
        found[name] = parameters
    return found


def _started(made: Any, given: Mapping[str, Any], party: str, seed: int) -> Any:
    """Return a network's parameters as a wire value: the names and types of its own, with the values that are given."""
    names, arrays, still = to_value(module_of(made[0], made[1], party, seed))
    odd = [name for name in (*given, *names) if name not in names or name not in given]
    if odd:
        where = "lacks" if odd[0] in names else "has"
        raise DataError(
            f"initial {where} {odd[0]!r} of the network of party {party!r}, whose parameters are {list(names)}; give "
            f"those of the same layers"
        )
    torch, values = need_torch(), []
    for name, array in zip(names, arrays, strict=True):
        value = given[name].detach().cpu().numpy() if isinstance(given[name], torch.Tensor) else given[name]
        values.append(
            real_numbers(value, array.shape, f"{name!r} of party {party!r}", "the network").astype(array.dtype)
        )
    return names, tuple(np.ascontiguousarray(value) for value in values), still
