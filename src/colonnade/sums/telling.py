"""What one party tells all others: to each by itself or, among many, down the tree along which sums come up to it.

Among at most eight parties, and where the tree is a star, whoever has something to tell sends it to each of the others.
Among more, a party sends it to its children in the tree, these to theirs, and so on: nobody sends it more than twice in
a binary tree, however many parties there are. It is only for what everybody is told, so that those on the way are shown
nothing that they would not be told anyway.

Whoever passes something on could change it. So its first sender signs it (Ed25519), with a key that it makes for this
run and tells everybody over their own line. What is signed is the name of the sender, the step, how often it has told
something at this step, and the value itself: nothing can be changed, left out, repeated or told in another's name
without the next party noticing, before it uses it and before it passes it on. So the one that is named is the one who
did it. What is held back ends the run, as any silence does.

A signature doesn't show that the sender told all parties the same: it could sign two values, as it could send two.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from typing import Any

from colonnade.data.identity import Identity, verified
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import Value, encode
from colonnade.sums.trees import topology
from colonnade.sums.written_trees import Tree

DIRECTLY = 8  # parties, at most, of whom each is told by itself
KEY = "signing key"
_PURPOSE = b"colonnade told v1\0"
_KEY_BYTES = 32


def passed_on(tag: str, teller: int) -> str:
    """Return the name of a step for those who pass on what party number `teller` tells."""
    return f"{tag} from {teller} passed on"


def signed(tag: str, teller: int) -> str:
    """Return the name of the step that brings the signature."""
    return f"{tag} from {teller} signed"


class Telling:
    """One party's end of all that is told to everybody in a run.

    Parameters
    ----------
    net
        The party's view of the federation.
    kind
        The topology of the run's sums.
    """

    def __init__(self, net: Net, kind: str) -> None:
        self._net, self._kind = net, kind
        self._identity: Identity | None = None
        self._keys: dict[str, bytes] = {}
        self._told: dict[tuple[str, str], int] = defaultdict(int)

    async def tell(self, tag: str, value: Value) -> None:
        """Tell everybody; every other party has to `hear` it."""
        net, tree = self._net, self._tree(self._net.me)
        others = [name for name in net.names if name != net.me]
        if tree is None:
            for name in others:
                await net.send(name, tag, value)
            return
        if self._identity is None:
            self._identity = Identity(net.secret(KEY))
            for name in others:
                await net.send(name, KEY, self._identity.key)
        signature = self._identity.sign(self._statement(net.me, tag, value))
        by = signed(tag, net.names.index(net.me))
        for child in tree.children(net.me):
            await net.send(child, tag, value)
            await net.send(child, by, signature)

    async def hear(self, teller: str, tag: str) -> Any:
        """Return what a party tells everybody, once it is passed on to those who hear it from here."""
        net, tree = self._net, self._tree(teller)
        if tree is None:
            return await net.recv(teller, tag)
        key, above, number = await self._key_of(teller), tree.parent(net.me), net.names.index(teller)
        if above is None:
            raise ProtocolError(f"party {net.me!r} can't hear at step {tag!r} what it has to tell itself")
        on, by = passed_on(tag, number), signed(tag, number)
        value = await (net.fetch(above, tag) if above == teller else net.fetch(above, on))
        signature = await net.fetch(above, by)
        statement = self._statement(teller, tag, value)
        if type(signature) is not bytes or not verified(key, statement, signature):
            raise ProtocolError(
                f"what party {above!r} passed on at step {tag!r} is not what party {teller!r} signed; party {above!r} "
                f"changed it, left something out or repeated something: start again without it, or with "
                f'topology = "star", in which nobody passes anything on'
            )
        for child in tree.children(net.me):
            await net.send(child, on, value)
            await net.send(child, by, signature)
        return net.heard(teller, tag, value)

    def _tree(self, teller: str) -> Tree | None:
        """Return the tree down which it goes; None where everybody is told directly."""
        if len(self._net.names) <= DIRECTLY:
            return None
        tree = topology(self._kind, self._net.names, teller)
        return tree if tree.depth > 1 else None

    async def _key_of(self, teller: str) -> bytes:
        if teller not in self._keys:
            key = await self._net.recv(teller, KEY)
            if type(key) is not bytes or len(key) != _KEY_BYTES:
                raise ProtocolError(f"party {teller!r} must tell a public key of {_KEY_BYTES} bytes at step {KEY!r}")
            self._keys[teller] = key
        return self._keys[teller]

    def _statement(self, teller: str, tag: str, value: Value) -> bytes:
        """Return what is signed: a digest of who tells what at which step, and after how many others there."""
        count = self._told[teller, tag]
        self._told[teller, tag] = count + 1
        return _PURPOSE + hashlib.sha256(encode((teller, tag, count, value))).digest()
