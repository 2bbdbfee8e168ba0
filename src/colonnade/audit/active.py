"""Runs in which one party takes larger steps than agreed, so that the model relies on its columns.

Fu et al., "Label inference attacks against vertical federated learning", USENIX Security 2022, the malicious local
optimiser: each parameter's step is multiplied by 1 + gamma g / (the gradient before), kept between 1 and 5. A party's
steps are its own affair, and no other party sees what it made of a signal. A network's owner has such an optimiser. A
linear block's gradient is linear in the signal, so its owner multiplies the signals that it hears.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from colonnade.networks.torch_optimisers import AUTO_ADAM, OPTIMISERS, Optimiser
from colonnade.runtimes.net import Net, Observer, Outcome, Program
from colonnade.runtimes.wire import Value
from colonnade.views.recording import Recording

_GAMMA, _LEAST, _MOST, _SMALL = 1.0, 1.0, 5.0, 1e-7
_GREEDY = "larger steps than agreed"  # the optimiser's name, while it is there


@contextmanager
def greedy(model: Any, attacker: str) -> Iterator[tuple[dict[str, Any], Recording]]:
    """Yield (options of the model, where to train it) with which this party takes larger steps than agreed."""
    options = model.get_params(deep=False)
    if "optimizer" not in options:
        yield {}, GreedyRun(attacker)
        return
    agreed, changed = options["optimizer"], {}
    kinds = dict(agreed) if isinstance(agreed, Mapping) else dict.fromkeys(options["networks"], agreed)
    base = kinds.get(attacker, "sgd")
    algorithm = options["algorithm"]
    if base == "adam" and algorithm is not None and algorithm.step == "auto":
        changed["algorithm"] = replace(algorithm, step=AUTO_ADAM)  # what "auto" is for Adam, of any name
    OPTIMISERS[_GREEDY] = _greedy_kind(OPTIMISERS[base])
    try:
        yield changed | {"optimizer": kinds | {attacker: _GREEDY}}, Recording()
    finally:
        del OPTIMISERS[_GREEDY]


def _greedy_kind(base: type[Optimiser]) -> type[Optimiser]:
    """Return an optimiser that goes further than another one, parameter by parameter."""

    class Greedy(base):  # type: ignore[valid-type, misc]
        def __init__(self, parameters: list[Any]) -> None:
            super().__init__(parameters)
            self._last: list[Any] | None = None

        def step(self, gradients: list[Any], eta: float) -> None:
            """Take the step of the other optimiser, so many times as far as gradients have grown."""
            before = [parameter.detach().clone() for parameter in self.parameters]
            super().step(gradients, eta)
            if self._last is not None:
                for parameter, start, now, last in zip(self.parameters, before, gradients, self._last, strict=True):
                    ratio = (1.0 + _GAMMA * now / (last + _SMALL)).clamp(_LEAST, _MOST)
                    parameter.copy_(start + ratio * (parameter - start))
            self._last = [gradient.detach().clone() for gradient in gradients]

    return Greedy


class GreedyRun(Recording):
    """A recorded run in which one party multiplies the signals that it hears; `enlarged` says whether it heard any."""

    def __init__(self, attacker: str) -> None:
        super().__init__()
        self._attacker, self._nets = attacker, list[GreedyNet]()

    @property
    def enlarged(self) -> bool:
        """Whether there was a signal that it could multiply."""
        return any(net.enlarged for net in self._nets)

    def run(
        self,
        programs: Mapping[str, tuple[Program, tuple[Value, ...]]],
        observer: Observer | None = None,
        spare: Collection[str] = (),
    ) -> dict[str, Outcome]:
        """Run, with one party's program on a net of its own; see `Runtime.run`."""
        program, args = programs[self._attacker]

        async def greedy_program(net: Net, *args: Any) -> Any:
            self._nets.append(GreedyNet(net))
            return await program(self._nets[-1], *args)

        return super().run({**programs, self._attacker: (greedy_program, args)}, observer, spare)


class GreedyNet:
    """A net whose party hears signals larger than they are, by as much as they have grown."""

    def __init__(self, net: Any) -> None:
        self._net, self._last, self.enlarged = net, 0.0, False

    def __getattr__(self, name: str) -> Any:
        """Hand on all that has nothing to do with signals."""
        return getattr(self._net, name)

    async def recv(self, frm: str, tag: str, *, patient: bool = False) -> Any:
        """See `Net.recv`; block Newton's signals, whose size does not matter, stay as they are."""
        value = await self._net.recv(frm, tag, patient=patient)
        return self._of_signal(tag, value)

    def heard(self, frm: str, tag: str, value: Any) -> Any:
        """See `Net.heard`; what goes on to others has gone on as it was."""
        return self._of_signal(tag, self._net.heard(frm, tag, value))

    async def recv_within(self, frm: str, tag: str, seconds: float) -> tuple[Any, ...]:
        """See `Net.recv_within`."""
        found = await self._net.recv_within(frm, tag, seconds)
        return tuple(self._larger(one) if tag.startswith("signal") else one for one in found)

    def _of_signal(self, tag: str, value: Any) -> Any:
        return self._larger(value) if tag.startswith("signal") and isinstance(value, np.ndarray) else value

    def _larger(self, signal: Any) -> Any:
        size = float(np.sqrt(np.mean(np.square(signal)))) if len(signal) else 0.0
        ratio = min(_MOST, max(_LEAST, 1.0 + _GAMMA * size / (self._last + _SMALL))) if self._last else _LEAST
        self._last, self.enlarged = size, self.enlarged or ratio > 1.0
        return signal * ratio
