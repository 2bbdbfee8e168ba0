"""Federations for the tests of the network runtime: parties as tasks of one event loop, over real lines."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

from colonnade.remote.authority import Authority
from colonnade.remote.network import GRACE, _reserve
from colonnade.remote.network_net import NetworkNet
from colonnade.remote.place import NetworkPlace

AUTHORITY = Authority()
PATIENCE = 60.0  # seconds: never decides unless something hangs


class Federation:
    """Addresses and certificates for some parties, and a way to run them all in this loop."""

    def __init__(self, *names, dial_out_only=()):
        self.names, self._stack = names, ExitStack()
        self.listen = {name: _reserve(self._stack) for name in names}
        self.addresses = {name: None if name in dial_out_only else at for name, at in self.listen.items()}
        self.credentials = {name: AUTHORITY.issue(name) for name in names}
        self.job = {"algorithm": {"step": 0.1}}
        self.longest_for = {}  # messages of some parties, by their arguments
        self.nets = {}  # of every party's last start, for the test to look at
        self.hub = ""  # who alone has lines to all others, which may leave

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def through(self, line, name):
        """Let the others dial a party through a line of the test."""
        self.addresses[name] = self._stack.enter_context(line(self.listen[name])).address

    def relay(self, name, **options):
        """The same with a `LossyLine`, which is returned."""
        from lossy_line import LossyLine

        line = self._stack.enter_context(LossyLine(self.listen[name], **options))
        self.addresses[name] = line.address
        return line

    def place(self, name):
        listen = self.listen[name] if self.addresses[name] else None
        return NetworkPlace(name, self.addresses, listen, self.hub)

    async def party(self, name, program, *args, **options):
        """What `run_party` does."""
        usual = {"job": self.job, "credentials": self.credentials[name], "grace": GRACE, "patience": PATIENCE}
        options = {**usual, "deadline": PATIENCE, "observer": None, "shared_port": True, **options}
        arguments = options.pop("arguments", args)
        net = self.nets[name] = NetworkNet(self.place(name), **options)
        net.longest_for = self.longest_for.get(name)
        return await net.take_part(program, arguments, None)

    async def all(self, programs, **options):
        """Each party's value or error, however it ended."""
        runs = [self.party(name, program, *args, **options) for name, (program, *args) in programs.items()]
        outcomes = await asyncio.gather(*runs, return_exceptions=True)
        return {
            name: outcome if isinstance(outcome, BaseException) else outcome.value
            for name, outcome in zip(programs, outcomes, strict=True)
        }

    # -- what a test waits for; `run` ends it if it never comes -------------------------------------------------

    def joined(self, one, other):
        """Whether these two have a line that both know of."""
        pairs = [(one, other), (other, one)]
        return all(me in self.nets and self.nets[me].lines[peer].up for me, peer in pairs)

    def started(self):
        """Whether all parties are in their programs."""
        return len(self.nets) == len(self.names) and all(net.started for net in self.nets.values())


async def when(condition):
    """Wait for something that has no event of its own."""
    while not condition():
        await asyncio.sleep(0.005)


async def listening(address):
    """Wait until somebody listens there."""
    host, _, port = address.partition(":")

    def found():
        with socket.socket() as caller:
            return caller.connect_ex((host, int(port))) == 0

    await when(found)


def run(scenario):
    """Run it in a loop that takes no exception lightly."""
    complaints = []

    def complain(_, context):
        complaints.append(str(context))

    async def main():
        asyncio.get_running_loop().set_exception_handler(complain)
        return await asyncio.wait_for(scenario(), 2 * PATIENCE)

    value = asyncio.run(main())
    assert complaints == []
    return value


# -- programs ----------------------------------------------------------------------------------------------------------


async def ping(net, peer, rounds, payload=0):
    for i in range(rounds):
        await net.send(peer, "ping", (i, payload))
        assert await net.recv(peer, "pong") == i
    return rounds


async def pong(net, peer, rounds):
    for i in range(rounds):
        number, _ = await net.recv(peer, "ping")
        assert number == i
        await net.send(peer, "pong", i)
    return rounds


def until(stop, started=None):
    """A pair of programs that exchange numbers until `stop` is set; both return how many, `lead.count` so far."""

    async def lead(net, peer):
        if started is not None:
            started.set()
        while not stop.is_set():
            await net.send(peer, "number", lead.count)
            assert await net.recv(peer, "number") == lead.count
            lead.count += 1
            await asyncio.sleep(0.001)
        await net.send(peer, "number", None)
        return lead.count

    lead.count = 0

    async def follow(net, peer):
        count = 0
        while (number := await net.recv(peer, "number")) is not None:
            assert number == count
            count += 1
            await net.send(peer, "number", number)
        return count

    return lead, follow


async def more(lead, numbers=20):
    """Wait until so many more numbers were exchanged: the line is up, and the programs go on."""
    goal = lead.count + numbers
    await when(lambda: lead.count >= goal)
