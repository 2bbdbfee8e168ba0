"""What a run keeps, so that it can go on after it was broken off: each party its own state, at the same versions.

A version is an epoch: all parties have met in an evaluation there, so nobody can be ahead by more than one. All that
the next epoch depends on is kept: a synchronous run that goes on from it ends with the same bits as one that was never
broken off. Keys and masks are not kept: every run makes its own.
"""

from __future__ import annotations

from typing import Any, Protocol

from colonnade.errors import ProtocolError
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import Value

# Versions that a party tells of: more than it ever keeps.
_MOST = 64


class Frozen(Protocol):
    """A part of a party's state."""

    def freeze(self) -> Value:
        """All of it, exactly."""
        ...

    def thaw(self, state: Any) -> None:
        """Be as it was."""
        ...


class Keeper(Protocol):
    """Where one party keeps its states."""

    every: int  # epochs from one version to the next

    def versions(self) -> tuple[int, ...]:
        """What is there."""
        ...

    def load(self, version: int) -> Any:
        """One of them."""
        ...

    def save(self, version: int, state: Value) -> None:
        """Add one, whole or not at all."""
        ...

    def forget(self, after: int) -> None:
        """Let go of those after this one."""
        ...


async def common_version(net: Net, keeper: Keeper) -> int:
    """The last version that every party has; 0 if there is none."""
    common = set(keeper.versions())
    for name in net.names:
        if name != net.me:
            await net.send(name, "kept versions", tuple(sorted(common))[-_MOST:])
    for name in net.names:
        if name != net.me:
            told = await net.recv(name, "kept versions")
            if type(told) is not tuple or len(told) > _MOST or any(type(version) is not int for version in told):
                raise ProtocolError(f"party {name!r} must tell its kept versions as whole numbers at 'kept versions'")
            common &= set(told)
    return max(common, default=0)
