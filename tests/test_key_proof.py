"""Keys that are made to read columns: what they could do without a proof, and that no proof can be made for them."""

from __future__ import annotations

import math
import secrets

import numpy as np
import pytest

import colonnade as cn
from colonnade.blocks.ciphertexts import WholeColumns
from colonnade.blocks.columns import DenseColumns
from colonnade.crypto import key_proof, paillier
from colonnade.crypto.modular import whole_numbers
from colonnade.crypto.paillier import PrivateKey, PublicKey
from colonnade.errors import ColonnadeError, ProtocolError
from colonnade.families.training import train
from test_security import Recorder
from training_programs import linear_job, part_of

SHORT = 1024
KEY, SIGNAL, BLINDED, OPENED = "paillier key", "encrypted signal", "blinded gradient", "opened gradient"
# Primes of 256 bits, for tests: known to everybody.
P = 2**256 - 2**32 - 977
Q = 2**256 - 2**224 + 2**192 + 2**96 - 1
HERE = key_proof.context_of("signals", "bank", "shop")


@pytest.fixture(autouse=True)
def short_keys(monkeypatch):
    """The door for tests: keys of 1024 bits, in this process only."""
    monkeypatch.setattr(paillier, "SHORTEST_KEY", SHORT)


def is_prime(number):
    """Miller and Rabin's test, so often that it is wrong once in 2^80."""
    if number < 2 or any(number % p == 0 for p in (2, 3, 5, 7, 11, 13)):
        return number in (2, 3, 5, 7, 11, 13)
    twos = (number - 1 & 1 - number).bit_length() - 1
    for _ in range(40):
        x = pow(2 + secrets.randbelow(number - 3), (number - 1) >> twos, number)
        if x != 1 and all(pow(x, 1 << k, number) != number - 1 for k in range(twos)):
            return False
    return True


class Spyhole:
    """n = P m, where m is a product of small primes and divides P - 1.

    A factor of order m in a ciphertext is raised to the power of what the ciphertext is multiplied with. No r^n hides
    it, since r^n has none of that order, and logarithms in a group of so smooth an order are easy.
    """

    def __init__(self, bits):
        self.primes, at = [], 1 << 20
        while math.prod(self.primes).bit_length() < bits // 2 - 20:
            at = next(number for number in range(at + 1, 2 * at) if is_prime(number))
            self.primes.append(at)
        m = self.m = math.prod(self.primes)
        while True:
            low, high = (1 << bits - 1) // (2 * m * m) + 1, (1 << bits) // (2 * m * m)
            k = low + secrets.randbelow(high - low)
            self.P = 2 * k * m + 1
            if math.gcd(2 * k, m) == 1 and (self.P * m).bit_length() == bits and is_prime(self.P):
                break
        n = self.n = self.P * m
        while True:
            g = pow(2 + secrets.randbelow(self.P - 3), 2 * k * self.P, self.P**2)
            if all(pow(g, m // p, self.P) != 1 for p in self.primes):
                break
        # of order m modulo P^2, and 1 modulo m^2
        self.h = (g * m * m * pow(m * m, -1, self.P**2) + self.P**2 * pow(self.P**2, -1, m * m)) % n**2

    def ciphertext(self, plaintext, power):
        """An encryption, and beside it h to some power. (With r = 1: who holds the key hides nothing from itself.)"""
        return (1 + plaintext * self.n) * pow(self.h, power, self.n**2) % self.n**2

    def plaintext(self, c):
        """What a ciphertext holds, prime by prime."""
        found = 0
        for p in (self.P, *self.primes):
            rest = self.n // p
            part = (pow(c % p**2, p - 1, p * p) - 1) // p * pow(rest * (p - 1), -1, p) % p
            found += part * rest * pow(rest, -1, p)
        return found % self.n

    def power(self, c):
        """Of h in a ciphertext, from -m/2 to m/2."""
        clean = (self.P - 1) // self.m
        base, value, found = pow(self.h, clean, self.P), pow(c, clean, self.P), 0
        for p in self.primes:
            b, v, steps = pow(base, self.m // p, self.P), pow(value, self.m // p, self.P), math.isqrt(p) + 1
            small, one = {}, 1
            for k in range(steps):
                small[one], one = k, one * b % self.P
            giant, k = pow(one, -1, self.P), 0
            while v not in small:
                v, k = v * giant % self.P, k + 1
            rest = self.m // p
            found += (k * steps + small[v]) * rest * pow(rest, -1, p)
        return (found + self.m // 2) % self.m - self.m // 2

    def forged(self, numbers):
        """The best that there is of a proof: roots where there are any, and else something."""
        roots = []
        for number in numbers:
            root = 0
            for p in (self.P, *self.primes):
                rest, common = self.n // p, math.gcd(self.n, p - 1)
                part = pow(number, pow(self.n // common, -1, (p - 1) // common), p) if common < self.n else 1
                root += part * rest * pow(rest, -1, p)
            roots.append((root % self.n).to_bytes(-(-self.n.bit_length() // 8), "little"))
        return b"".join(roots)


@pytest.fixture(scope="module")
def spyhole():
    return Spyhole(SHORT)


# -- the attack --------------------------------------------------------------------------------------------------------

ROWS, READ = 180, 12
RNG = np.random.default_rng(0)
COLUMNS, LABELS = RNG.standard_normal((ROWS, 5)), RNG.integers(0, 2, ROWS)
ALGORITHM = cn.FedSGD(batch=ROWS, epochs=1, tol=None, step=0.1, schedule="constant")
ORDER = np.random.default_rng([ALGORITHM.seed, 1]).permutation(np.arange(ROWS))  # of the rows of the batch
RUN = key_proof.context_of("signals", "bank", "logistic", str(ROWS), "bank", "shop", "", "bank")


class Spying(Recorder):
    """A label holder with such a key. Its signals are what they should be, and twelve of them a little more."""

    hole: Spyhole

    async def send(self, to, tag, value):
        hole, width = self.hole, 2 * SHORT // 8
        if tag == KEY:
            value = hole.n.to_bytes(SHORT // 8, "little"), hole.forged(key_proof._numbers(hole.n, RUN))
        if tag == SIGNAL:
            signals = [2**31 if LABELS[row] == 0 else -(2**31) for row in ORDER]
            powers = [1 << 25 * k if k < READ else 0 for k in range(ROWS)]
            sealed = [hole.ciphertext(s, e).to_bytes(width, "little") for s, e in zip(signals, powers, strict=True)]
            value = np.frombuffer(b"".join(sealed), np.uint8).reshape(ROWS, 1, width)
        if tag == OPENED:  # the right answer, so that nobody notices
            raw = b"".join(hole.plaintext(c).to_bytes(SHORT // 8, "little") for c in self._seen)
            value = np.frombuffer(raw, np.uint8).reshape(-1, SHORT // 8)
        await self._net.send(to, tag, value)

    async def recv(self, frm, tag, *, patient=False):
        value = await self._net.recv(frm, tag, patient=patient)
        if tag == BLINDED:
            self._seen += whole_numbers(value)
            value = np.zeros_like(value)  # its own program shall open something
            value[:, 0] = 1
        return value


def spied(hole):
    """A run with such a label holder: (what the other party answered, how the run ends)."""
    job, seen = linear_job(ALGORITHM, ("bank",), sum_="paillier", intercept=False, key_bits=SHORT), []
    spy = type("Spy", (Spying,), {"hole": hole})

    async def spying(net, job, mine):
        return await train(spy(net, seen), job, mine)

    programs = {}
    for party in (cn.Party("bank", COLUMNS[:, :2], LABELS), cn.Party("shop", COLUMNS[:, 2:])):
        programs[party.name] = (spying if party.name == "bank" else train, (job, part_of(party)))
    return seen, lambda: cn.Simulation().run(programs)


def test_without_a_proof_columns_could_be_read(spyhole, monkeypatch):
    """Twelve rows of all columns, to the last bit, from one batch; and the run ends as it should."""
    monkeypatch.setattr(key_proof, "trouble", lambda *_: None)
    seen, run = spied(spyhole)
    outcomes = run()
    assert np.abs(outcomes["shop"].value[0]).min() > 0.0  # it was trained
    columns = WholeColumns(DenseColumns(COLUMNS[:, 2:]), ones=False)
    whole = np.zeros((READ, 3), dtype=np.int64)
    place, column, value = columns.entries(ORDER[:READ])
    whole[place, column] = value
    for j, power in enumerate(map(spyhole.power, seen[:3])):  # a ciphertext for each column
        for k in range(READ):
            read = (power + (1 << 24)) % (1 << 25) - (1 << 24)
            power = (power - read) >> 25
            assert read == whole[k, j]


def test_with_one_nothing_is_sent_under_such_a_key(spyhole):
    seen, run = spied(spyhole)
    with pytest.raises(
        ColonnadeError, match="Paillier key of party 'bank' at step 'paillier key' is refused, as its proof"
    ):
        run()
    assert seen == []


# -- proofs ------------------------------------------------------------------------------------------------------------


def test_an_honest_key_has_a_proof():
    assert (key_proof.ROOTS, 1 << key_proof.FACTOR_BITS * key_proof.ROOTS) == (8, 1 << key_proof.SECURITY_BITS)
    proof = key_proof.prove(P, Q, HERE)
    assert len(proof) == 8 * 64
    assert key_proof.trouble(P * Q, proof, HERE) is None
    n = P * Q
    roots = [int.from_bytes(proof[at : at + 64], "little") for at in range(0, 512, 64)]
    assert [pow(root, n, n) for root in roots] == key_proof._numbers(n, HERE)
    made = PrivateKey.generate(2048)
    told = made.to_wire_value(HERE)
    assert PublicKey.from_wire_value(told, 2048, "bank", HERE).n == made.public.n


def test_a_proof_is_for_one_key_and_one_context():
    proof = key_proof.prove(P, Q, HERE)
    for words in (
        ("signals", "shop", "bank"),
        ("statistics", "bank", "shop"),
        ("signals", "bank"),
        ("signals", "bankshop"),
    ):
        assert "does not show" in key_proof.trouble(P * Q, proof, key_proof.context_of(*words))
    assert key_proof.trouble(P * (2**255 - 19), proof, HERE) is not None
    assert key_proof.context_of("a", "bc") != key_proof.context_of("ab", "c")


@pytest.mark.parametrize(
    "change",
    [
        lambda proof: proof[:-1],
        lambda proof: proof + b"\0",
        lambda proof: b"",
        lambda proof: None,
        lambda proof: 5,
        lambda proof: np.frombuffer(proof, np.uint8),
        lambda proof: bytes(len(proof)),
        lambda proof: b"\xff" * len(proof),
        lambda proof: proof[64:] + proof[:64],
        lambda proof: bytes([proof[0] ^ 1]) + proof[1:],
        lambda proof: proof[:-1] + bytes([proof[-1] ^ 1]),
    ],
)
def test_what_is_no_proof(change):
    told = (P * Q).to_bytes(64, "little"), change(key_proof.prove(P, Q, HERE))
    with pytest.raises(
        ProtocolError, match="the Paillier key of party 'bank' at step 'paillier key' is refused, as its pr"
    ):
        PublicKey.from_wire_value(told, 512, "bank", HERE)


@pytest.mark.parametrize("told", [b"", (), (1, 2, 3), ((P * Q).to_bytes(64, "little"),), 7, None])
def test_what_is_no_key(told):
    with pytest.raises(ProtocolError, match="the Paillier key of party 'bank' must be an odd number of 512 bits"):
        PublicKey.from_wire_value(told, 512, "bank", HERE)


def test_small_factors_are_refused():
    """Below them 1 / p would not be small enough for so few roots."""
    large = next(number for number in range((1 << 512) // 65521 | 1, 0, -2) if is_prime(number))
    proof = key_proof.prove(65521, large, HERE)  # the largest prime below 2^16
    assert key_proof.trouble(65521 * large, proof, HERE) == "it has a prime factor below 2^16"
    # the next one is none of them, and such a key is what it says
    large = next(number for number in range((1 << 512) // 65537 | 1, 0, -2) if is_prime(number))
    assert key_proof.trouble(65537 * large, key_proof.prove(65537, large, HERE), HERE) is None


def test_squares_and_common_factors_have_no_proof(spyhole):
    """p^2 q, and q with p | q - 1: most numbers have no root."""
    for n in (P * P * Q, spyhole.n):
        numbers = key_proof._numbers(n, HERE)
        width = -(-n.bit_length() // 8)
        assert key_proof.trouble(n, b"".join(pow(x, 3, n).to_bytes(width, "little") for x in numbers), HERE)
    assert key_proof.trouble(spyhole.n, spyhole.forged(key_proof._numbers(spyhole.n, HERE)), HERE)


def test_every_ciphertext_is_a_plaintext_and_a_residue():
    """What the proof is for, counted: in a small group all of it, and how it fails where p divides q - 1."""
    for n, whole in ((11 * 17, True), (3 * 7, False), (9, False)):
        units = [r for r in range(1, n) if math.gcd(r, n) == 1]
        made = {pow(1 + n, m, n * n) * pow(r, n, n * n) % (n * n) for m in range(n) for r in units}
        every = {x for x in range(1, n * n) if math.gcd(x, n) == 1}
        assert (made == every) == whole == (math.gcd(n, len(units)) == 1)


def test_what_hides_a_plaintext_is_prime_to_n():
    """Also where somebody else made n, of many factors."""
    n = math.prod(p for p in range(3, 60) if is_prime(p))
    key = PublicKey(n)
    found = [number % n for number in key.square.decode(key.residues(200))]
    assert all(math.gcd(number, n) == 1 for number in found)
