"""The network runtime: parties in different organisations, one connection under mutual TLS for every two of them.

`run_party` is what an organisation calls, once per run, for its own party. `Network` runs all parties of a federation
on this machine, each in a process of its own and over the very same lines, for tests and experiments.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from colonnade.errors import HandshakeFailed, JobMismatch, PartySilent, at_least
from colonnade.remote.authority import Authority
from colonnade.remote.certificates import Credentials
from colonnade.remote.place import NetworkPlace
from colonnade.remote.staged_net import PATIENCE, Arguments, Onlooker
from colonnade.runtimes.frames import ANY_SIZE
from colonnade.runtimes.launch import START_LIMIT
from colonnade.runtimes.net import Doorkeeper, Observer, Outcome, Program
from colonnade.runtimes.processes import Lines, Processes
from colonnade.runtimes.wire import Value

if TYPE_CHECKING:
    from colonnade.remote.network_net import NetworkNet
    from colonnade.remote.terms import RunTerms

GRACE = 10.0  # seconds that a line may be down


async def run_party(
    place: NetworkPlace,
    program: Program,
    arguments: Arguments,
    *,
    job: Mapping[str, Any],
    credentials: Credentials | None,
    deadline: float = 30.0,
    grace: float = GRACE,
    patience: float = PATIENCE,
    observer: Observer | None = None,
    door: Doorkeeper | None = None,
    longest: Callable[..., int] | None = None,
    shared_port: bool = False,
    onlooker: Onlooker | None = None,
) -> Outcome:
    """Take part in a run as one party, from the handshakes to the last acknowledgement; raises what ends it early.

    arguments: of the program, or a function that returns them and is called, in a thread, once every handshake has
    succeeded: that is where private data is read. job: what all parties agreed on; where another one's differs, both
    raise `JobMismatch`. deadline: seconds after which a silent party ends the run. grace: seconds that a line may be
    down. patience: seconds to wait for the others to join, and then for their data. door: asked before anything leaves.
    longest: the most bytes of a message that this party sends and takes, from the arguments; None is 256 MB.
    shared_port: whether somebody else may have bound the port that this party listens on, to reserve it. onlooker:
    hears which lines are up and who is waited for. Cancelling this tells the others.
    """
    from colonnade.remote.network_net import NetworkNet

    times = {"grace": grace, "patience": patience}
    net = NetworkNet(
        place, deadline, observer, job=job, credentials=credentials, shared_port=shared_port, **times
    )  # fmt: skip
    net.longest_for, net.onlooker = longest, onlooker
    return await net.take_part(program, arguments, door)


# -- a look at a peer before a run -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What a peer says of itself."""

    package: str  # its version
    differs: JobMismatch | None


async def look(address: str, me: str, peer: str, terms: RunTerms, credentials: Credentials | None) -> Seen:
    """Dial a peer as for a run, and hang up when it has said who it is: its version, and whether it holds the same job.

    The peer writes a line in its log; nothing else changes there.
    """
    from colonnade.remote.handshake import LOOKED, NONCE, Handshake, Standing, printable
    from colonnade.remote.peer_line import NOT_ACCEPTED, heard
    from colonnade.remote.signatures import OwnIdentity
    from colonnade.remote.streams import FIRST_WORD_WITHIN, QUIET, dial
    from colonnade.remote.tls import why

    identity = OwnIdentity(credentials) if credentials else None
    handshake = Handshake(me, peer, terms, Standing(secrets.token_bytes(NONCE)), identity)

    async def exchange() -> None:
        stream = await dial(address, peer, credentials, QUIET)
        try:
            await stream.write(handshake.open())
            handshake.answered(await heard(stream, NOT_ACCEPTED), stream.shown)
            await stream.write(LOOKED)
            await stream.read()  # it hangs up when it has heard
        finally:
            await stream.end()

    try:
        await asyncio.wait_for(exchange(), FIRST_WORD_WITHIN)
    except HandshakeFailed as error:
        raise HandshakeFailed(f"{address}: {error}") from None
    except Exception as error:  # whatever the library raises: there is no connection
        raise PartySilent(f"{address} does not answer ({why(error)})", peer, "look") from None
    return Seen(printable(handshake.hello.package, 20), handshake.differs)


# -- all parties on this machine ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network(Processes):
    """Run every party in a process of its own on this machine, over mutual TLS on the loopback.

    Parameters
    ----------
    deadline : float
        Seconds after which a silent party ends the run at all others.
    slowed : mapping of str to float or to mapping
        Stragglers, for experiments; see `Processes`.
    grace : float
        Seconds that a line may be down before its party is given up.
    relay : callable, optional
        For experiments, where to dial a party instead of at its own address, as a function of that address.
    secret : str, optional
        What the parties' own random choices are drawn from; see `Processes`.
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
            yield Lines(dict.fromkeys(names, ()), told, modules=("colonnade.remote.network_net",))


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
    place = NetworkPlace(me, dict(addresses), listen)
    net = NetworkNet(
        place, deadline, observer, job={"run": run}, credentials=Credentials(*files), grace=grace, patience=START_LIMIT,
        slowed=slowed, shared_port=True,
    )  # fmt: skip
    net.make_room(ANY_SIZE)  # all parties are one user's
    return net
