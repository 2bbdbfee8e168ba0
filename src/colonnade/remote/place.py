"""Where a party stands among the others: who can be dialled, and who dials whom."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from colonnade.errors import OptionError

_HOST = re.compile(r"[^\s\0]+")
_PORT = re.compile(r"[0-9]{1,5}")  # `isdigit` takes digits of every alphabet


@dataclass(frozen=True)
class NetworkPlace:
    """Where a party stands among the others.

    addresses: "host:port" of every party that others can dial, None for one that only dials out.
    listen: where this party waits for those who dial it, if that is not its address (behind a gateway: "0.0.0.0:7000").
    hub: the one party that has a line to every other, where the others have none to each other; "" for a line between
        every two. The hub lets a party that it may do without come again in the middle of a run.
    """

    me: str
    addresses: Mapping[str, str | None]
    listen: str | None = None
    hub: str = ""

    def __post_init__(self) -> None:
        if self.me not in self.addresses:
            raise OptionError(f"{self.me!r} is no party of this run; parties: {tuple(self.addresses)}")
        for name, address in self.addresses.items():
            if address is not None:
                host_and_port(f"the address of party {name!r}", address)
        if self.listen is not None:
            host_and_port("listen", self.listen)
        for name in self.peers:
            if self.addresses[name] is None and self.addresses[self.me] is None:
                raise OptionError(
                    f"parties {self.me!r} and {name!r} both have no address, so neither can dial the other; give one "
                    f"of them an address that the other can reach"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """All parties, in their order."""
        return tuple(self.addresses)

    @property
    def peers(self) -> tuple[str, ...]:
        """The parties to whom this one has a line."""
        return tuple(name for name in self.names if name != self.me and self.hub in ("", self.me, name))

    def dials(self, peer: str) -> bool:
        """Whether this party dials that one: who has an address is dialled, and if both have, the later of the two."""
        if self.addresses[peer] is None:
            return False
        return self.addresses[self.me] is None or self.names.index(self.me) < self.names.index(peer)


def host_and_port(what: str, address: str, example: str = "bank.example.org:7000") -> tuple[str, int]:
    """The two parts of an address; `what` and an example are for the error if it is none."""
    host, _, port = address.rpartition(":")
    if not _HOST.fullmatch(host) or not _PORT.fullmatch(port) or not 0 < int(port) < 1 << 16:
        raise OptionError(f"{what} must be host:port, such as {example}, got {address!r}")
    return host, int(port)
