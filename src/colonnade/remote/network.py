"""The network runtime: parties in different organisations, one connection under mutual TLS for every two of them.

`run_party` is what an organisation calls, once per run, for its own party. `Network` runs all parties of a federation
on this machine, each in a process of its own and over the very same lines, for tests and experiments.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from colonnade.errors import at_least
from colonnade.remote.certificates import Authority, Credentials
from colonnade.remote.place import Place
from colonnade.remote.staged_net import PATIENCE, Arguments
from colonnade.runtimes.launch import START_LIMIT
from colonnade.runtimes.net import Door, Observer, Outcome, Program
from colonnade.runtimes.processes import Lines, Processes
from colonnade.runtimes.wire import Value

if TYPE_CHECKING:
    from colonnade.remote.network_net import NetworkNet

GRACE = 10.0  # seconds that a line may be down


async def run_party(
    place: Place,
    program: Program,
    arguments: Arguments,
    *,
    job: Mapping[str, Any],
    credentials: Credentials | None,
    deadline: float = 30.0,
    grace: float = GRACE,
    patience: float = PATIENCE,
    observer: Observer | None = None,
    door: Door | None = None,
    shared_port: bool = False,
) -> Outcome:
    """Take part in a run as one party, from the handshakes to the last acknowledgement; raises what ends it early.

    arguments: of the program, or a function that returns them and is called, in a thread, once every handshake has
    succeeded: that is where private data is read. job: what all parties agreed on; where another one's differs, both
    raise `JobMismatch`. deadline: seconds after which a silent party ends the run. grace: seconds that a line may be
    down. patience: seconds to wait for the others to join, and then for their data. door: asked before anything leaves.
    shared_port: whether somebody else may have bound the port that this party listens on, to reserve it. Cancelling
    this tells the others.
    """
    from colonnade.remote.network_net import NetworkNet

    times = {"grace": grace, "patience": patience}
    net = NetworkNet(
        place, deadline, observer, job=job, credentials=credentials, shared_port=shared_port, **times
    )  # fmt: skip
    return await net.take_part(program, arguments, door)


@dataclass(frozen=True)
class Network(Processes):
    """Run every party in a process of its own on this machine, over mutual TLS on the loopback.

    deadline, slowed: as in `Processes`. grace: seconds that a line may be down. relay: for experiments, where to dial a
    party instead of at its own address, as a function of that address.
    """

    grace: float = GRACE
    relay: Callable[[str], str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("grace", self.grace, 0, strict=True, finite=True)

    @contextmanager
    def _lines(self, names: tuple[str, ...]) -> Iterator[Lines]:
        """An address and a certificate for every party; each is told its own key, over its own line to the starter."""
        authority, run = Authority(), secrets.token_hex(16)
        with ExitStack() as reserved:
            listen = {name: _reserve(reserved) for name in names}
            dial = {name: self.relay(at) if self.relay else at for name, at in listen.items()}
            told: dict[str, Value] = {}
            for name in names:
                own = authority.issue(name)
                files = (own.authority, own.certificate, own.key)
                told[name] = (__name__, tuple(dial.items()), listen[name], files, self.grace, run)
            yield Lines(dict.fromkeys(names, ()), told)


def _reserve(reserved: ExitStack) -> str:
    """An address on the loopback that stays ours: a socket that is bound to it and does not listen.

    A listener that shares the port is then the only one that is connected to.
    """
    holder = reserved.enter_context(socket.socket())
    shared = hasattr(socket, "SO_REUSEPORT")
    if shared:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    holder.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{holder.getsockname()[1]}"
    if not shared:  # where ports can't be shared, nobody else may be so quick as to take it
        holder.close()
    return address


def opened(
    me: str, _: tuple[str, ...], told: Any, deadline: float, observer: Observer, slowed: Mapping[str, float]
) -> NetworkNet:
    """The `Net` of a party that `Network` started, in its own process."""
    from colonnade.remote.network_net import NetworkNet

    addresses, listen, files, grace, run = told
    return NetworkNet(
        Place(me, dict(addresses), listen), deadline, observer, job={"run": run}, credentials=Credentials(*files),
        grace=grace, patience=START_LIMIT, slowed=slowed, shared_port=True,
    )  # fmt: skip
