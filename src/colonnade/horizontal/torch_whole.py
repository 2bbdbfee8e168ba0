"""A torch module as a model that a site has whole. torch is imported when the first one is made.

The function that makes it is named by whoever runs the site, in its own program; nothing that comes from a server, or
out of a file, is ever such a name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import OptionError
from colonnade.objective.expressions import RowFunction

Array = npt.NDArray[Any]


def function_name(given: Any) -> str | None:
    """Return 'package.module:function' of a function that every process can import, and None for anything else."""
    module, name = getattr(given, "__module__", ""), getattr(given, "__qualname__", "")
    if not callable(given) or module == "__main__" or getattr(sys.modules.get(module), name, None) is not given:
        return None
    return f"{module}:{name}"


def function_of(name: str) -> Callable[..., Any]:
    """Return the function that `function_name` named, in a process whose program has the name as an argument."""
    module, function = name.split(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def maker_name(make: Any) -> str:
    """Return the name of a function that makes networks; refuse one that other processes could not import."""
    name = function_name(make)
    if name is None:
        raise OptionError(
            f"network must be a function at the top level of a module you can import, make(features, classes) -> "
            f"torch.nn.Module, got {make!r}; move it there"
        )
    return name


def maker_of(name: str | None) -> Callable[[int, int], Any] | None:
    """Return the function that `maker_name` named; None where there is none."""
    return None if name is None else function_of(name)


class TorchModule:
    """A module from rows of numbers to scores of classes, with one flat array of all its parameters."""

    def __init__(self, make: Callable[[int, int], Any], features: int, classes: int) -> None:
        try:
            import torch
        except ImportError:
            raise OptionError(
                "network= needs torch, which is not installed; pip install torch, or use hidden="
            ) from None
        if not callable(make):
            raise OptionError(
                f"network must be a function make(features, classes) -> torch.nn.Module, got {type(make).__name__}"
            )
        self._torch, self._make, self._shape = torch, make, (features, classes)
        self._module = self._made(0)
        self._check()
        self.shapes = tuple(tuple(part.shape) for part in self._module.parameters())
        self.size = sum(part.numel() for part in self._module.parameters())

    def _made(self, seed: int) -> Any:
        with self._torch.random.fork_rng(devices=[]):  # the caller's own stream stays where it is
            self._torch.manual_seed(seed)
            try:
                made = self._make(*self._shape)
            except Exception as error:  # whatever a function of the user's raises
                raise OptionError(
                    f"network can't be made: make{self._shape} raised {type(error).__name__}: {error}; it must be a "
                    f"function make(features, classes) -> torch.nn.Module"
                ) from None
        if not isinstance(made, self._torch.nn.Module):
            raise OptionError(
                f"network must be a function make(features, classes) -> torch.nn.Module, it returned a "
                f"{type(made).__name__}"
            )
        return made.double()

    def _check(self) -> None:
        """Refuse a module that gives no scores, or has learnt more than the parameters that all sites share."""
        features, classes = self._shape
        for name, layer in self._module.named_modules():
            if getattr(layer, "running_mean", None) is not None:
                raise OptionError(
                    f"the layer {name!r} of network, a {type(layer).__name__}, keeps means of the rows that it has "
                    f"seen, which are no parameters and stay different at each site; take LayerNorm or GroupNorm, or "
                    f"track_running_stats=False"
                )
        still = [name for name, part in self._module.named_parameters() if not part.requires_grad]
        if still:
            raise OptionError(f"all parameters of network must learn, and {still[0]!r} does not (requires_grad)")
        if not any(True for _ in self._module.parameters()):
            raise OptionError("network has no parameters, so there is nothing to learn")
        self._module.eval()
        try:
            with self._torch.no_grad(), self._torch.random.fork_rng(devices=[]):
                found = self._forward(np.zeros((2, features)))
        except Exception as error:
            raise OptionError(f"network takes no rows of {features} columns: {type(error).__name__}: {error}") from None
        if not isinstance(found, self._torch.Tensor) or tuple(found.shape) != (2, classes):
            shape = tuple(found.shape) if isinstance(found, self._torch.Tensor) else type(found).__name__
            raise OptionError(
                f"network must return a score of each of the {classes} classes for every row, and of 2 rows it "
                f"returns {shape} in place of (2, {classes})"
            )

    def start(self, seed: int) -> Array:
        """Return the parameters that the module itself begins with, drawn from this seed."""
        flat = self._torch.nn.utils.parameters_to_vector(self._made(seed).parameters())
        return np.asarray(flat.detach().numpy(), dtype=np.float64)

    def _load(self, parameters: Array) -> None:
        flat = self._torch.from_numpy(np.array(parameters, dtype=np.float64))
        self._torch.nn.utils.vector_to_parameters(flat, self._module.parameters())

    def _forward(self, X: Any) -> Any:
        dense = X.toarray() if hasattr(X, "toarray") else X
        return self._module(self._torch.from_numpy(np.array(dense, dtype=np.float64)))

    def scores(self, parameters: Array, X: Any) -> Array:
        """Return the module's outputs, with dropout and the like off."""
        self._load(parameters)
        self._module.eval()
        with self._torch.no_grad():
            return np.asarray(self._forward(X).numpy())

    def value_and_gradient(
        self, parameters: Array, X: Any, y: Array, of: RowFunction | None = None
    ) -> tuple[float, Array]:
        """Return torch's cross-entropy over these rows, or the mean of another function, and its gradient.

        Dropout and the like are on.
        """
        self._load(parameters)
        self._module.train()
        self._module.zero_grad()
        scores = self._forward(X)
        if of is None:
            target = self._torch.from_numpy(np.array(y, dtype=np.int64))
            cost: Any = self._torch.nn.functional.cross_entropy(scores, target)
            cost.backward()
            value = float(cost.detach())
        else:
            values, slopes = of(scores.detach().numpy(), y)
            scores.backward(self._torch.from_numpy(slopes / len(y)))
            value = float(values.mean())
        # A parameter that no score depends on has no gradient.
        parts = [
            (self._torch.zeros_like(part) if part.grad is None else part.grad).reshape(-1)
            for part in self._module.parameters()
        ]
        return value, np.asarray(self._torch.cat(parts).numpy(), dtype=np.float64)
