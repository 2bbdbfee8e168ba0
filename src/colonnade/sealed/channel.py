"""Keys of all parties, and the messages of each product in shares.

To ask is to send and to go on; what `ask_...` returns is called and awaited when the answer is needed. So parties ask
one another at the same time, then answer, then read.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from colonnade.crypto.keystream import SEED_BYTES, Keystream
from colonnade.crypto.lattice import Lattice
from colonnade.crypto.lattice_keys import LatticePublicKey, SecretKey
from colonnade.crypto.lattice_parameters import SMALL, WIDE, Parameters
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import Net
from colonnade.sealed import wide
from colonnade.sealed.products import Matrix, Packed, Rowwise, Silent, Spread
from colonnade.sealed.wide import WideArray, WordArray

Floats = npt.NDArray[np.float64]
T = TypeVar("T")
Reading = Callable[[], Awaitable[T]]  # call it when the answer is needed


class Channel:
    """One party's end of all exchanges, with its keys and everybody else's."""

    def __init__(self, net: Net, first: str, second: str) -> None:
        self.net, self.me, self.first, self.second = net, net.me, first, second
        self.others = tuple(name for name in net.names if name != net.me)
        self._secret = net.secret("sealed")
        self.stream = self._drawn("keys")
        self.narrow = SecretKey(Lattice.of(SMALL), self.stream)
        self.wide = SecretKey(Lattice.of(WIDE), self.stream)
        self._narrow: dict[str, LatticePublicKey] = {}
        self._wide: dict[str, LatticePublicKey] = {}

    @property
    def holds(self) -> bool:
        """Whether this party holds shares."""
        return self.me in (self.first, self.second)

    @property
    def is_first(self) -> bool:
        """Whether this party holds the first shares, and the labels."""
        return self.me == self.first

    @property
    def holders(self) -> tuple[str, str]:
        """The two parties that hold shares."""
        return self.first, self.second

    @property
    def partner(self) -> str:
        """The other party that holds shares."""
        return self.second if self.is_first else self.first

    # -- randomness ----------------------------------------------------------------------------------------------------

    def _drawn(self, phase: str) -> Keystream:
        return Keystream(hmac.digest(self._secret, phase.encode(), "sha256"))

    def begin(self, phase: str) -> None:
        """Draw from a stream of its own in each phase of a run.

        So a run that goes on after a break, from the same secret, draws in a round what it would have drawn there.
        """
        self.stream = self._drawn(phase)
        for key in (self.narrow, self.wide):
            key.draw_from(self.stream)

    # -- bytes that arrive ---------------------------------------------------------------------------------------------

    async def send(self, to: str, kind: str, what: str, value: bytes) -> None:
        """Send a question, an answer, a difference or a share; `what` it is about."""
        await self.net.send(to, f"sealed {kind}: {what}", value)

    async def receive(self, frm: str, kind: str, what: str, size: int) -> bytes:
        """Wait for bytes of this size."""
        value = await self.net.recv(frm, f"sealed {kind}: {what}")
        got = f"{len(value)} bytes" if isinstance(value, bytes) else f"a value of type {type(value).__name__}"
        if not isinstance(value, bytes) or len(value) != size:
            raise ProtocolError(f"party {frm!r} must send {size} bytes at step 'sealed {kind}: {what}', got {got}")
        return value

    async def receive_words(self, frm: str, kind: str, what: str, *shape: int) -> WordArray:
        """Wait for words of 64 bits; any bytes of the right length are some."""
        raw = await self.receive(frm, kind, what, 8 * int(np.prod(shape)))
        return np.frombuffer(raw, "<u8").astype(np.uint64).reshape(shape)

    async def receive_wide(self, frm: str, kind: str, what: str, *shape: int) -> WideArray:
        """Wait for words of 96 bits."""
        raw = await self.receive(frm, kind, what, 12 * int(np.prod(shape)))
        return np.frombuffer(raw, "<u4").astype(np.uint32).reshape(*shape, wide.LIMBS)

    async def receive_own(self, frm: str, *shape: int) -> WideArray:
        """Wait for a holder's share of this party's own coefficients."""
        raw, size = await self.net.recv(frm, "own coefficients"), 12 * int(np.prod(shape))
        if not isinstance(raw, bytes) or len(raw) != size:
            raise ProtocolError(f"party {frm!r} must send {size} bytes at step 'own coefficients'")
        return np.frombuffer(raw, "<u4").astype(np.uint32).reshape(*shape, wide.LIMBS)

    def random_words(self, *shape: int) -> WordArray:
        """Draw uniform words of 64 bits."""
        return self.stream.words(int(np.prod(shape))).reshape(shape)

    def random(self, *shape: int) -> WideArray:
        """Draw uniform words of 96 bits."""
        count = int(np.prod(shape)) * wide.LIMBS
        return self.stream.words((count + 1) // 2).view(np.uint32)[:count].reshape(*shape, wide.LIMBS).copy()

    # -- keys ----------------------------------------------------------------------------------------------------------

    async def exchange_keys(self) -> None:
        """Tell everybody this party's two public keys, and read theirs."""
        for name in self.others:
            await self.net.send(name, "sealed key", self.narrow.public + self.wide.public)
        length, size = SMALL.public_key_bytes, SMALL.public_key_bytes + WIDE.public_key_bytes
        for name in self.others:
            raw = await self.net.recv(name, "sealed key")
            if not isinstance(raw, bytes) or len(raw) != size:
                raise ProtocolError(f"party {name!r} must send {size} bytes at step 'sealed key'")
            self._narrow[name] = LatticePublicKey.from_bytes(Lattice.of(SMALL), raw[:length])
            self._wide[name] = LatticePublicKey.from_bytes(Lattice.of(WIDE), raw[length:])

    def key_of(self, name: str, parameters: Parameters = SMALL) -> LatticePublicKey:
        """Return another party's public key."""
        return (self._narrow if parameters == SMALL else self._wide)[name]

    def _own(self, parameters: Parameters) -> SecretKey:
        return self.narrow if parameters == SMALL else self.wide

    # -- products of words ---------------------------------------------------------------------------------------------

    async def ask_silent(
        self, what: str, vectors: int, length: int, columns: dict[str, int], parameters: Parameters = SMALL
    ) -> tuple[npt.NDArray[Any], dict[str, Reading[npt.NDArray[Any]]]]:
        """Return random vectors (T, n), and this party's share (d, T) of each named party's columns times them."""
        form, key = Silent(vectors, length, parameters), self._own(parameters)
        seed, drawn = await self.net.in_thread(form.ask, key, self.stream)
        for name in columns:
            await self.send(name, "question", what, seed)

        async def read(name: str, width: int) -> npt.NDArray[Any]:
            answer = await self.receive(name, "answer", what, parameters.answer_bytes(width, vectors))
            return await self.net.in_thread(form.read, key, answer, width)

        return drawn, {name: partial(read, name, width) for name, width in columns.items()}

    async def answer_silent(
        self, what: str, asker: str, vectors: int, length: int, X: Floats, bound: float, parameters: Parameters = SMALL
    ) -> npt.NDArray[Any]:
        """Return this party's share (d, T) of its columns times the asker's random vectors."""
        form, seed = Silent(vectors, length, parameters), await self.receive(asker, "question", what, SEED_BYTES)
        answer, share = await self.net.in_thread(
            form.answer, self.key_of(asker, parameters), seed, X, bound, self.stream
        )
        await self.send(asker, "answer", what, answer)
        return share

    async def ask_spread(self, what: str, answerer: str, b: WordArray, rows: int) -> Reading[WordArray]:
        """Return this party's share (T, rows) of sums over the other's columns, times b (d, T)."""
        form = Spread(b.shape[0], b.shape[1], rows)
        await self.send(answerer, "question", what, await self.net.in_thread(form.ask, self.narrow, b))

        async def read() -> WordArray:
            answer = await self.receive(answerer, "answer", what, SMALL.answer_bytes(form.answers))
            return await self.net.in_thread(form.read, self.narrow, answer)

        return read

    async def answer_spread(self, what: str, asker: str, vectors: int, X: Floats, bound: float) -> WordArray:
        """Return this party's share (T, rows) of sums over its columns X (d, rows)."""
        form = Spread(len(X), vectors, X.shape[1])
        raw = await self.receive(asker, "question", what, SMALL.ciphertext_bytes(form.columns))
        answer, share = await self.net.in_thread(form.answer, self._narrow[asker], raw, X, bound, self.stream)
        await self.send(asker, "answer", what, answer)
        return share

    async def ask_packed(self, what: str, answerer: str, v: WordArray, columns: int) -> Reading[WordArray]:
        """Return this party's share (d,) of the other's very many columns times v."""
        form = Packed(columns, len(v))
        await self.send(answerer, "question", what, await self.net.in_thread(form.ask, self.narrow, v))

        async def read() -> WordArray:
            size = SMALL.answer_bytes(form.answers, form.together)
            return form.read(self.narrow, await self.receive(answerer, "answer", what, size))

        return read

    async def answer_packed(self, what: str, asker: str, X: Floats, bound: float) -> WordArray:
        """Return this party's share (d,) of its very many columns times the asker's vector."""
        form = Packed(*X.shape)
        raw = await self.receive(asker, "question", what, SMALL.ciphertext_bytes(form.ciphertexts))
        most = bound * np.sqrt(form.together)
        answer, share = await self.net.in_thread(form.answer, self._narrow[asker], raw, X, most, self.stream)
        await self.send(asker, "answer", what, answer)
        return share

    async def ask_rowwise(self, what: str, answerer: str, polynomials: WordArray, pairs: int) -> Reading[WordArray]:
        """Return this party's share (pairs, blocks, N) of the other's columns times numbers of rows, row by row."""
        form = Rowwise(pairs, len(polynomials))
        await self.send(answerer, "question", what, await self.net.in_thread(form.ask, self.narrow, polynomials))

        async def read() -> WordArray:
            answer = await self.receive(answerer, "answer", what, SMALL.answer_bytes(form.pairs * form.blocks))
            return await self.net.in_thread(form.read, self.narrow, answer)

        return read

    async def answer_rowwise(self, what: str, asker: str, factors: Floats, bound: float) -> WordArray:
        """Return this party's share (pairs, blocks, N) of its columns times the asker's numbers."""
        form = Rowwise(factors.shape[0], factors.shape[1])
        raw = await self.receive(asker, "question", what, SMALL.ciphertext_bytes(form.blocks))
        answer, share = await self.net.in_thread(form.answer, self._narrow[asker], raw, factors, bound, self.stream)
        await self.send(asker, "answer", what, answer)
        return share

    # -- products of matrices ------------------------------------------------------------------------------------------

    async def ask_matrix(self, what: str, answerer: str, rows: int, Q: WideArray) -> Reading[WideArray]:
        """Return this party's share of P Q, where the other has P, of so many rows."""
        key, form = self.wide, Matrix(rows, Q.shape[0], Q.shape[1])
        await self.send(answerer, "question", what, await self.net.in_thread(form.ask, key, Q))

        async def read() -> WideArray:
            answer = await self.receive(answerer, "answer", what, form.sizes[1])
            return await self.net.in_thread(form.read, key, answer)

        return read

    async def answer_matrix(self, what: str, asker: str, P: WideArray, columns: int) -> WideArray:
        """Return this party's share of P Q, where the asker has Q, of so many columns."""
        form = Matrix(P.shape[0], P.shape[1], columns)
        raw = await self.receive(asker, "question", what, form.sizes[0])
        answer, share = await self.net.in_thread(form.answer, self._wide[asker], raw, P, self.stream)
        await self.send(asker, "answer", what, answer)
        return share

    async def opened(self, what: str, share: WideArray, drawn: WideArray) -> WideArray:
        """Return what is shared minus what both holders have drawn for it: uniform to both, if it is used once."""
        mine = wide.subtract(share, drawn)
        await self.send(self.partner, "difference", what, mine.tobytes())
        return wide.add(mine, await self.receive_wide(self.partner, "difference", what, *share.shape[:-1]))
