"""Runs of which each party's view is written down: a net around a party's own, and a runtime around another one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from colonnade.runtimes.net import Net, Observer, Outcome, Program, Runtime
from colonnade.runtimes.simulation import Simulation
from colonnade.runtimes.wire import Value
from colonnade.views.view import View


class RecordedNet:
    """A party's net that writes down what arrives, and signals that leave; the view learns the rest as a watcher."""

    def __init__(self, net: Net, view: View) -> None:
        self._net, self.watcher = net, view

    def __getattr__(self, name: str) -> Any:
        """Hand on all that the net around this one does not write down."""
        return getattr(self._net, name)

    async def recv(self, frm: str, tag: str, *, patient: bool = False) -> Any:
        """See `Net.recv`."""
        value = await self._net.recv(frm, tag, patient=patient)
        self.watcher.received(frm, tag, value)
        return value

    def heard(self, frm: str, tag: str, value: Any) -> Any:
        """See `Net.heard`."""
        value = self._net.heard(frm, tag, value)
        self.watcher.received(frm, tag, value)
        return value

    async def recv_within(self, frm: str, tag: str, seconds: float) -> tuple[Any, ...]:
        """See `Net.recv_within`."""
        found = await self._net.recv_within(frm, tag, seconds)
        for value in found:
            self.watcher.received(frm, tag, value)
        return found

    async def send(self, to: str, tag: str, value: Value) -> None:
        """See `Net.send`."""
        self.watcher.sent(to, tag, value)
        await self._net.send(to, tag, value)


class Recording:
    """A runtime around a simulation; `views` says what each party saw in all runs so far.

    Parameters
    ----------
    inner : Runtime, optional
        Where parties run; one process must hold them all. None is a simulation, in which every run repeats.
    """

    def __init__(self, inner: Runtime | None = None) -> None:
        self.inner = inner or Simulation()
        self.views: dict[str, View] = {}

    def run(
        self,
        programs: Mapping[str, tuple[Program, tuple[Value, ...]]],
        observer: Observer | None = None,
        spare: Collection[str] = (),
    ) -> dict[str, Outcome]:
        """Run, and listen; see `Runtime.run`."""
        names = tuple(programs)
        for name in names:
            self.views.setdefault(name, View(name, names))
        tapped = {name: (_recorded(program, self.views[name]), args) for name, (program, args) in programs.items()}
        return self.inner.run(tapped, observer, spare)


def _recorded(program: Program, view: View) -> Program:
    async def run(net: Net, *args: Any) -> Any:
        return await program(RecordedNet(net, view), *args)

    return run
