"""What a run keeps, so that it can go on after it was broken off: each party its own state, at the same versions.

A version is an epoch: all parties have met in an evaluation there, so nobody can be ahead by more than one. All that
the next epoch depends on is kept: a synchronous run that goes on from it ends with the same bits as one that was never
broken off. Keys and masks are not kept: every run makes its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from colonnade.blocks import Stateful
from colonnade.errors import CheckpointError, ProtocolError
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import Value
from colonnade.streams.stored_numbers import StoredNumbers

if TYPE_CHECKING:
    from colonnade.engine.stopping import Stopping

# Versions that a party tells of: more than it ever keeps.
_MOST = 64


class Frozen(Protocol):
    """A part of a party's state."""

    def freeze(self) -> Value:
        """All of it, to the bit."""
        ...

    def thaw(self, state: Any) -> None:
        """Take back what `freeze` gave."""
        ...


class Keeper(Protocol):
    """Where one party keeps its states."""

    every: int  # epochs from one version to the next

    def versions(self) -> tuple[int, ...]:
        """The versions that are there."""
        ...

    def load(self, version: int) -> Any:
        """The state of one version."""
        ...

    def save(self, version: int, state: Value) -> None:
        """Add a version, whole or not at all."""
        ...

    def forget(self, after: int) -> None:
        """Drop all versions after this one."""
        ...

    def numbers(self, count: int, dtype: Any) -> StoredNumbers | None:
        """A place on the disk for a number about each of so many rows; None where they are to stay in memory."""
        ...

    def known_numbers(self, told: Any, count: int, dtype: Any) -> StoredNumbers:
        """Numbers that a state tells of, by what `StoredNumbers.sealed` said."""
        ...


class SecretKeeper:
    """Another keeper whose states have a secret of this run beside them, which later runs go on with."""

    def __init__(self, keeper: Keeper, secret: bytes) -> None:
        self._of, self.every, self.secret = keeper, keeper.every, secret

    def versions(self) -> tuple[int, ...]:
        """See `Keeper`."""
        return self._of.versions()

    def load(self, version: int) -> Any:
        """See `Keeper`."""
        return self._of.load(version)[1]

    def save(self, version: int, state: Value) -> None:
        """See `Keeper`."""
        self._of.save(version, (self.secret, state))

    def forget(self, after: int) -> None:
        """See `Keeper`."""
        self._of.forget(after)

    def numbers(self, count: int, dtype: Any) -> StoredNumbers | None:
        """See `Keeper`."""
        return self._of.numbers(count, dtype)

    def known_numbers(self, told: Any, count: int, dtype: Any) -> StoredNumbers:
        """See `Keeper`."""
        return self._of.known_numbers(told, count, dtype)


def with_secret(keeper: Keeper, fresh: bytes) -> SecretKeeper:
    """Return a keeper with the secret that was kept last, or with a fresh one where nothing was kept."""
    last = max(keeper.versions(), default=0)
    return SecretKeeper(keeper, keeper.load(last)[0] if last else fresh)


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


class KeptVersions:
    """One party's versions of a run: how it goes, its block, and what else the algorithm names."""

    def __init__(self, net: Net, keeper: Keeper | None, stopping: Stopping, block: Stateful) -> None:
        self.net, self.keeper, self.stopping, self.block = net, keeper, stopping, block

    async def resume(self, *more: Frozen) -> tuple[int, bool] | None:
        """Go on from the last version that all parties have: (its epoch, whether to go on); None if there is none."""
        if self.keeper is None:
            return None
        version = await common_version(self.net, self.keeper)
        last = max(self.keeper.versions(), default=0)
        if version < last - 1 and self.keeper.load(last)[0] is None:
            raise CheckpointError(
                f"party {self.net.me!r} has kept that coefficients in shares were told already, and not all parties "
                f"have kept what was told; going on from an earlier version would tell them more, so start the job "
                f"anew"
            )
        self.keeper.forget(version)
        if not version:
            return None
        go_on, mine, block, others, said = self.keeper.load(version)
        self.stopping.thaw(mine)
        self.net.report(("resumed", version))
        for report in said:  # the history is that of the whole run
            self.stopping.report(report)
        self.block.thaw(block)
        for one, state in zip(more, others, strict=True):
            one.thaw(state)
        return version, bool(go_on)

    async def seal(self, epoch: int, *more: Frozen) -> None:
        """Keep the end of a run, once at all parties, before anybody is told what was in shares until then.

        Then keep, as one more version, that it is told: nobody goes back behind that.
        """
        if self.keeper is None:
            return
        self.keep(epoch, False, *more)
        if await common_version(self.net, self.keeper) < epoch:
            raise CheckpointError("not all parties have kept the end of training; start the job again")
        self.keep(epoch + 1, None, *more)

    def keep(self, epoch: int, go_on: bool | None, *more: Frozen) -> None:
        """Keep all that the next epoch depends on, if it is time for that or the run is over."""
        if self.keeper is None or (go_on and epoch % self.keeper.every):
            return
        others = tuple([one.freeze() for one in more])
        said = tuple(self.stopping.said)
        self.keeper.save(epoch, (go_on, self.stopping.freeze(), self.block.freeze(), others, said))
