"""How a party's network moves along its gradient. Each party may have an optimiser of its own.

They are written out rather than taken from torch.optim: a state that can be kept and sent is then two lists of arrays,
and torch's compiler is not loaded for a subtraction. The tests hold them against torch.optim, step by step.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from colonnade.networks.torch_modules import need_torch

AUTO_ADAM = 1e-3  # what step="auto" means for Adam, whose steps do not depend on the size of gradients


class Optimiser(ABC):
    """What moves parameters by eta times something that follows the gradient."""

    name: ClassVar[str]

    def __init__(self, parameters: list[Any]) -> None:
        self.parameters, self.steps = parameters, 0
        self.memory: list[Any] = []  # what it remembers of earlier gradients

    @abstractmethod
    def step(self, gradients: list[Any], eta: float) -> None:
        """Take one step of length eta along these gradients, one for each parameter."""

    def freeze(self) -> Any:
        """Return all that the next step depends on beside the parameters: how many steps there were, and arrays."""
        return (self.steps, tuple(tensor.numpy().copy() for tensor in self.memory))

    def thaw(self, state: Any) -> None:
        """Put back what `freeze` returned."""
        torch = need_torch()
        self.steps, arrays = state
        for tensor, array in zip(self.memory, arrays, strict=True):
            tensor.copy_(torch.from_numpy(np.array(array)))


class SGD(Optimiser):
    """Stochastic gradient descent: theta becomes theta - eta g."""

    name = "sgd"

    def step(self, gradients: list[Any], eta: float) -> None:
        """Take one step straight along the gradients."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.sub_(gradient, alpha=eta)


class Momentum(Optimiser):
    """Gradient descent with momentum: v becomes 0.9 v + g, and theta becomes theta - eta v."""

    name = "momentum"
    decay = 0.9

    def __init__(self, parameters: list[Any]) -> None:
        super().__init__(parameters)
        torch = need_torch()
        self.memory = [torch.zeros_like(parameter) for parameter in parameters]

    def step(self, gradients: list[Any], eta: float) -> None:
        """Take one step along the decaying sum of all gradients so far."""
        for parameter, speed, gradient in zip(self.parameters, self.memory, gradients, strict=True):
            speed.mul_(self.decay).add_(gradient)
            parameter.sub_(speed, alpha=eta)


class Adam(Optimiser):
    """Adam: Kingma and Ba, 2015, Algorithm 1, with their constants."""

    name = "adam"
    first, second, small = 0.9, 0.999, 1e-8

    def __init__(self, parameters: list[Any]) -> None:
        super().__init__(parameters)
        torch = need_torch()
        self.memory = [torch.zeros_like(parameter) for parameter in (*parameters, *parameters)]

    def step(self, gradients: list[Any], eta: float) -> None:
        """Take one step along the mean gradient, divided by the root of its mean square, as Algorithm 1 has it."""
        self.steps += 1
        width = eta / (1.0 - self.first**self.steps)
        spread = (1.0 - self.second**self.steps) ** 0.5
        moments = self.memory[: len(gradients)], self.memory[len(gradients) :]
        for parameter, m, v, gradient in zip(self.parameters, *moments, gradients, strict=True):
            m.mul_(self.first).add_(gradient, alpha=1.0 - self.first)
            v.mul_(self.second).addcmul_(gradient, gradient, value=1.0 - self.second)
            parameter.addcdiv_(m, (v.sqrt() / spread).add_(self.small), value=-width)


OPTIMISERS: dict[str, type[Optimiser]] = {kind.name: kind for kind in (SGD, Momentum, Adam)}
