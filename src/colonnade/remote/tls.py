"""TLS between two parties: version 1.3 alone, certificates on both sides, and words for what goes wrong.

TLS keeps strangers out. Who a party is, `trust` and the handshake decide, which look closer.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from colonnade.errors import CertificateError, OptionError
from colonnade.remote.certificates import Credentials

INSECURE = "COLONNADE_INSECURE_FOR_TESTS"
_OPEN_FILES = "/proc/self/fd"


def check_security(credentials: Credentials | None) -> None:
    """Refuse lines without TLS, which exist for tests of what would be seen on them and for nothing else."""
    if credentials is None and os.environ.get(INSECURE) != "1":
        raise OptionError(f"a party needs credentials; lines without TLS are for tests alone, which set {INSECURE}=1")


def context(credentials: Credentials, *, listening: bool) -> ssl.SSLContext:
    """What a party shows and demands: TLS 1.3, a certificate of an authority that it believes, no resumption."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listening else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    # An authority need not be a root: it is believed as it stands in the party's file, here as in `trust`.
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if listening:
        made.num_tickets = 0
    else:
        made.hostname_checks_common_name = False
    try:
        made.load_verify_locations(cadata=credentials.authority.decode())
        with _as_file(credentials.certificate) as certificate, _as_file(credentials.key) as key:
            made.load_cert_chain(certificate, key)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        reason = getattr(error, "reason", None) or "not PEM"
        raise CertificateError(f"TLS can't use this party's certificate, key or authority ({reason})") from None
    return made


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path to read this from, which is all that the library takes; no disk sees it where the system allows that."""
    with ExitStack() as kept:
        path = _without_disk(data, kept)
        if path is None:
            # Nobody else may look into this folder, and it goes as soon as the library has read the file.
            folder = kept.enter_context(tempfile.TemporaryDirectory(prefix="colonnade-"))
            path = os.path.join(folder, "pem")
            with open(path, "wb") as file:
                file.write(data)
        yield path


def _without_disk(data: bytes, kept: ExitStack) -> str | None:
    """A path to a file in memory; None if the system has no such files (macOS), or no path to them (without /proc)."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        number = os.memfd_create("pem")
        kept.callback(os.close, number)
        os.write(number, data)
        path = f"{_OPEN_FILES}/{number}"
        with open(path, "rb"):
            return path
    except OSError:
        return None


def why(error: BaseException | None) -> str:
    """Why a connection ended or never stood, in a few words about the other side."""
    words = str(error) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        words = (
            f"its certificate is not accepted here: another authority's or party's, or expired ({error.verify_message})"
        )
    elif isinstance(error, ssl.SSLError):
        words = f"no TLS 1.3 with it ({(error.reason or 'it failed').lower().replace('_', ' ')})"
    elif error is None or isinstance(error, (asyncio.CancelledError, ConnectionResetError, BrokenPipeError)):
        words = "connection lost"
    elif isinstance(error, TimeoutError):
        words = "no answer"
    elif isinstance(error, socket.gaierror):
        words = error.strerror or words
    elif isinstance(error, OSError) and error.errno:
        words = os.strerror(error.errno)
    return words


def not_through(error: OSError) -> str:
    """Why a caller did not get through TLS, in a few words about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({error.verify_message})"
    if isinstance(error, (ConnectionAbortedError, TimeoutError)):
        return "it took too long"
    if not isinstance(error, ssl.SSLError):
        return "it hung up early"
    if error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it has no certificate"
    return "it does not accept this party" if "ALERT" in (error.reason or "") else "it speaks no TLS 1.3"
