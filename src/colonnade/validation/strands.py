"""Several programs of one party side by side over the same lines, so that their round trips overlap.

Each is given a `Strand`: a `Net` whose messages have a name of their own behind the names of their steps, and whose
traffic is counted by itself. To the policy a message is what it would be without that name (`jobs.policy.kind_of`).
"""

from __future__ import annotations

from typing import Any

from colonnade.runtimes.frames import FRAME_OVERHEAD
from colonnade.runtimes.net import Net, Traffic, Watcher
from colonnade.runtimes.wire import Value, encoded_size

# Of a `Net`: all that sends nothing and belongs to no strand.
_HANDED_ON = frozenset({"me", "names", "deadline", "spare", "spawn", "work", "in_thread", "promise"})


class StrandTraffic(Traffic):
    """The traffic of one strand; its rounds count for the whole run as well, and so for the policy."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self._net = net

    def round(self) -> None:
        """Count a round here and in the traffic of the whole run."""
        super().round()
        self._net.traffic.round()


class Strand:
    """A `Net` for one program among others over the same lines: what it does not name, count or time is the net's own.

    Parameters
    ----------
    net
        The party's view of the federation.
    name
        What tells this strand's messages from those of others, such as "fit 3"; the same at all parties.
    agreed
        What all parties agreed on for all strands, such as the keys of a secure sum; `sums.open_sum` looks for it.
    """

    quiet = True  # nobody hears how it goes, so what is only told need not be worked out
    watcher: Watcher | None = None  # of several programs at once none can say which rows come next

    def __init__(self, net: Net, name: str, agreed: Any = None) -> None:
        self.traffic: Traffic = StrandTraffic(net)
        self.agreed = agreed
        self._net, self._name, self._begun, self._uses = net, name, net.elapsed(), 0

    def __getattr__(self, name: str) -> Any:
        """Hand on what sends nothing; whatever sends needs a method here, which counts it and names the strand."""
        if name not in _HANDED_ON:
            raise AttributeError(f"a strand of a run has no {name!r}")
        return getattr(self._net, name)

    def named(self, tag: str) -> str:
        """Return the name of a step in this strand."""
        return f"{tag} in {self._name}"

    def next_use(self) -> str:
        """Return a name that no other use of what was agreed on has, in this strand or in another."""
        self._uses += 1
        return f"{self._name}, use {self._uses}"

    async def send(self, to: str, tag: str, value: Value) -> None:
        """Send under this strand's name, but count the message as a run by itself would, without the name."""
        self.traffic.out(tag, FRAME_OVERHEAD + len(tag.encode()) + encoded_size(value))
        tag = self.named(tag)
        await self._net.send(to, tag, value)

    async def recv(self, frm: str, tag: str, *, patient: bool = False) -> Any:
        """Receive what the same strand of another party sent."""
        tag = self.named(tag)
        return await self._net.recv(frm, tag, patient=patient)

    async def fetch(self, frm: str, tag: str) -> Any:
        """Receive what the same strand of another party passed on."""
        tag = self.named(tag)
        return await self._net.fetch(frm, tag)

    def heard(self, frm: str, tag: str, value: Any) -> Any:
        """Say what was told in this strand by way of others."""
        return self._net.heard(frm, self.named(tag), value)

    async def recv_within(self, frm: str, tag: str, seconds: float) -> tuple[Any, ...]:
        """Receive what the same strand of another party sends in so many seconds."""
        return await self._net.recv_within(frm, self.named(tag), seconds)

    def elapsed(self) -> float:
        """Return the seconds since this strand began."""
        return self._net.elapsed() - self._begun

    def secret(self, purpose: str) -> bytes:
        """Return another secret in every strand."""
        return self._net.secret(self.named(purpose))

    def report(self, value: Any) -> None:
        """Tell nobody how one of many programs goes, but hand on what a party found out about its own part."""
        if value[0] == "warning":
            self._net.report(value)


class MainStrand(Strand):
    """A strand with the names, the secrets and the reports of the run itself, but with traffic of its own.

    What is done in it ends with the same bits as if nothing else had been done in the run.
    """

    quiet = False

    def __init__(self, net: Net, name: str, agreed: Any = None) -> None:
        super().__init__(net, name, agreed)
        self.watcher = net.watcher

    def named(self, tag: str) -> str:
        """Return the name of the step as it is."""
        return tag

    def report(self, value: Any) -> None:
        """Tell the one who started the run."""
        self._net.report(value)
