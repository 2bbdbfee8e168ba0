"""Who a party is on a line: what it shows, what it signs, and whom it believes.

TLS looks less closely at names than a party does. So each side shows its certificates once more in the handshake, and
signs what was said in it with its own key: nobody else can.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from colonnade.errors import CertificateError, HandshakeFailed
from colonnade.remote.certificates import Credentials, dns_name
from colonnade.remote.signatures import signer, verifier
from colonnade.remote.trust import parse

# Before all that is signed here: a signature made for a handshake fits no ledger, and the other way round.
_PURPOSE = b"colonnade handshake\0"


class Identity:
    """A party's own, and what it makes of others'."""

    def __init__(self, credentials: Credentials) -> None:
        self.chain = credentials.chain()
        self._sign = signer(credentials.key)
        self._trust = credentials.trust()

    def sign(self, role: str, transcript: bytes) -> bytes:
        """A signature that only this party can make, of what was said, in its role."""
        return self._sign(_signed(role, transcript))

    def believe(self, chain: tuple[bytes, ...], party: str) -> Callable[[str, bytes, bytes], bool]:
        """Whether these certificates are a party's: raises, or returns what checks (role, transcript, signature)."""
        try:
            certificates = parse(chain)
        except CertificateError as error:
            raise HandshakeFailed(f"its certificate {error}") from None
        for problem in self._trust.problems(certificates, party, dns_name(party), datetime.now(UTC)):
            raise HandshakeFailed(f"its certificate {problem}")
        check = verifier(certificates[0].public_key())
        return lambda role, transcript, signature: check(_signed(role, transcript), signature)


def _signed(role: str, transcript: bytes) -> bytes:
    return _PURPOSE + role.encode() + b"\0" + transcript
