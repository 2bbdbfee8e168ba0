"""The networks of a model: what programs get of those given, what broken runs leave, and how they are made again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt

from colonnade.algorithms.split import parted
from colonnade.blocks.column_values import columns_to_value
from colonnade.data.party import Party
from colonnade.engine.torch_session import KEPT
from colonnade.errors import ColonnadeError, NotFittedError, OptionError
from colonnade.estimators.base import Estimator, Programs
from colonnade.estimators.torch_initial import TOP
from colonnade.families.training import TrainingJob
from colonnade.networks.torch_checks import optimiser_of, shape_of
from colonnade.networks.torch_modules import forget, module_of, reference
from colonnade.networks.torch_network import NetworkBlock
from colonnade.objective import metrics
from colonnade.progress import History
from colonnade.runtimes.net import Outcome, Runtime
from colonnade.runtimes.simulation import Simulation

Array = npt.NDArray[Any]


class KeptNetworks(Estimator):
    """The networks of a model, as they were given and as they were trained; the base of `NetworkModel`.

    Programs and files get how a network is made, and its parameters beside that: see `networks.torch_modules`.
    """

    networks: Mapping[str, Any]
    top: Any
    shape: Mapping[str, Sequence[int]] | None
    optimizer: str | Mapping[str, str]
    loss_: str
    _widths: dict[str, int]
    _how: dict[str, Any]  # of each party, how its network is made; None where only the user can give it again
    _top_how: Any

    # -- for a run ----------------------------------------------------------------------------------------------

    @contextmanager
    def _references(
        self, names: tuple[str, ...], holder: str, seed: int, on: Runtime | None
    ) -> Iterator[tuple[dict[str, Any], Any]]:
        """Give, while a run lasts, {party: what its program gets of its network} and the same of the top network."""
        made: dict[str, Any] = {}
        top = None
        try:
            for name in names:
                how, state = reference(self.networks[name], name, seed)
                made[name] = (how, state, shape_of(self.shape, name), optimiser_of(self.optimizer, name))
            if self.top is not None:
                how, state = reference(self.top, holder, seed)
                top = (how, state, optimiser_of(self.optimizer, holder))
            for name, (how, *_) in (*made.items(), *(() if top is None else ((holder, top),))):
                if how[0] == "here" and not (on is None or isinstance(on, Simulation)):
                    raise OptionError(
                        f"the network of party {name!r} has layers of its own, which can't travel to another process; "
                        f"give a function of an importable module that makes it, or its name as 'module:name', or use "
                        f"Simulation"
                    )
            yield made, top
        finally:
            for how, *_ in (*made.values(), *(() if top is None else (top,))):
                forget(how)

    def _width(self, party: Party, network: Any, seed: int) -> int:
        """Return how many numbers a party's network gives, tried on two of its rows."""
        how, state, shape, _ = network
        module = module_of(how, state, party.name, seed)
        rows = columns_to_value(party.X[:2])
        return NetworkBlock(module, rows, party=party.name, shape=shape).outputs

    def _begin(
        self,
        job: TrainingJob,
        parties: tuple[Party, ...],
        classes: Array,
        widths: dict[str, int],
        networks: dict[str, Any],
        top: Any,
    ) -> None:
        """Become the model of this run before it starts: if it breaks off, what was kept is of these networks."""
        self._describe(job, parties, classes)
        self.loss_, self._widths = job.loss, widths
        self._how = {name: _made_again(network) for name, network in networks.items()}
        self._top_how = None if top is None else _made_again(top)
        if hasattr(self, "_states"):
            del self._states

    def _run(self, programs: Programs, on: Runtime | None, epochs: int) -> dict[str, Outcome]:
        """Run the programs; if the run breaks off, what the parties kept becomes the model, and the error is raised."""
        history = History(metrics.metric_name(self._minimised()), epochs, self.verbose)
        kept: dict[str, dict[int, Any]] = {}

        def observe(party: str, seconds: float, value: Any) -> None:
            if value[0] == KEPT:
                kept[party] = dict(value[1])
            else:
                history.observe(party, seconds, value)

        try:
            outcomes = dict((on or Simulation()).run(programs, observe))
        except ColonnadeError:
            common = set.intersection(*(set(kept.get(name, {})) for name in programs))
            if common:
                self._states = {name: kept[name][max(common)] for name in programs}
                self.history_ = [record for record in history.records if record.get("rounds", 0) <= max(common)]
                self.traffic_, self.times_, self.rounds_ = {}, {}, max(common)
            raise
        finally:
            history.close()
        return self._keep_record(history, outcomes)

    # -- what was learnt ----------------------------------------------------------------------------------------

    @property
    def modules_(self) -> dict[str, Any]:
        """Return {party: its trained network}, and the top network under "top"; they are new modules each time."""
        self._check_fitted()
        found = {name: self._module(name, self._split(name)[0]) for name in self.parties_}
        if self._top_how is not None or self.top is not None:
            found[TOP] = self._module(None, self._split(self.holders_[0])[1])
        return found

    def _split(self, name: str) -> tuple[Any, Any]:
        state = self._states[name]
        return parted(state) if self._has_top and name == self.holders_[0] else (state, None)

    @property
    def _has_top(self) -> bool:
        return self.top is not None or self._top_how is not None

    def _module(self, name: str | None, state: Any) -> Any:
        how, given = (self._top_how, self.top) if name is None else (self._how[name], self.networks.get(name))
        party = self.holders_[0] if name is None else name
        if how is None:
            if given is None:
                raise NotFittedError(
                    f"how the network of party {party!r} is made is not in its file, as it has layers of its own; load "
                    f"the model with networks={{{party!r}: ...}}"
                )
            how, _ = reference(given, party, 0)
        try:
            return module_of(how, state, party, 0)
        finally:
            forget(how)

    def _again(self, name: str | None, state: Any) -> tuple[Any, Any]:
        how = self._top_how if name is None else self._how[name]
        if how is None:
            how, _ = reference(self._module(name, state), name or self.holders_[0], 0)
        return how, state

    def _for_use(self, name: str) -> Any:
        return (*self._again(name, self._split(name)[0]), shape_of(self.shape, name), "sgd")


def _made_again(network: Any) -> Any:
    """Return how a network is made again, without its parameters, which are kept elsewhere."""
    how = network[0]
    return None if how[0] == "here" else how
