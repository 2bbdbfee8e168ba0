"""All errors that Colonnade raises, in one tree, and the checks of options that many places share.

    ColonnadeError
    ├── InputError (ValueError)     what the user gave: data, labels, options; raised before any work starts
    │   ├── DataError               columns: shapes, NaN, infinity, ids
    │   │   └── TooFewInCommon      the parties' ids have too few, or none, in common
    │   ├── LabelError              labels: missing, of one class, not of the loss's kind
    │   ├── OptionError             an option that is not one of the allowed ones
    │   │   └── TomlError           a TOML file: names the file, the line and the key
    │   └── CertificateError        a certificate or key: missing, expired, of another party or authority
    ├── PolicyRefused               a party's own policy does not allow it
    │   └── PrivacySpent            what noisy answers may tell of anybody is told
    ├── LedgerError                 a ledger that can't be read or believed
    ├── CheckpointError             a state that can't be kept, or is no longer there
    ├── NotFittedError              a model is used before `fit`
    │   └── MissingUntilFitted      an attribute of it (AttributeError)
    ├── LimitNotMet                 a model was trained, and its cost is above the limit it was given
    ├── RingOverflow                a value is too large for the fixed-point ring
    ├── TrainingDiverged            a network gave NaN or infinity: names the party and the round
    ├── ProtocolError               a message that no honest party sends
    │   ├── TruncatedMessage        shorter than it says
    │   ├── OversizedMessage        longer than allowed
    │   ├── InboxFull               more than may wait at a receiver that has not asked for it
    │   └── WrongShape              an array that does not fit the step
    ├── HandshakeFailed             two parties that can't run together
    │   └── JobMismatch             they hold different jobs
    │       └── VersionMismatch     they hold parts of different trainings, or start from different ones
    └── RunFailed                   a run that ended early: names the party and the step
        ├── PartyFailed             that party raised an error or its process died
        │   └── PartyLost           there is no line to that party any more
        └── PartySilent             that party said nothing before the deadline

The sentences all have one shape: what was given, what is allowed, and what to do.
"""

from __future__ import annotations

from importlib import import_module
from math import inf
from numbers import Integral, Real
from typing import Any


class ColonnadeError(Exception):
    """The root of the tree: `except ColonnadeError` catches every error of ours."""


class InputError(ColonnadeError, ValueError):
    """Something the user gave can't be used."""


class DataError(InputError):
    """A party's columns or ids can't be used."""


class TooFewInCommon(DataError):
    """The parties' ids have too few, or none, in common to go on with."""


class LabelError(InputError):
    """A party's labels can't be used."""


class OptionError(InputError):
    """An option has a value outside the allowed ones."""


class TomlError(OptionError):
    """A TOML file can't be used; the sentence names the file, the line and the key."""


class CertificateError(InputError):
    """A certificate or a private key can't be used."""


class PolicyRefused(ColonnadeError):
    """A party's own policy does not allow what a job asks for, or a message that was about to leave."""


class PrivacySpent(PolicyRefused):
    """What noisy answers may tell of anybody, as an epsilon, is told: the next one is refused."""


class LedgerError(ColonnadeError):
    """A ledger can't be read, or some of it is not as it was written."""


class CheckpointError(ColonnadeError):
    """A party's state can't be kept, or one that was kept is no longer there."""


class NotFittedError(ColonnadeError):
    """A model is asked for something that only exists after `fit`."""


class MissingUntilFitted(NotFittedError, AttributeError):
    """The same of an attribute, so that `hasattr` finds it missing."""


class LimitNotMet(ColonnadeError):
    """Training ended and a cost is still above its limit; the model is fitted and says by how much (`costs_`)."""


class RingOverflow(ColonnadeError, OverflowError):
    """A value does not fit into the fixed-point ring of the secure sum."""


class TrainingDiverged(ColonnadeError):
    """A network gave NaN or infinity; the sentence names the party and the round."""


class ProtocolError(ColonnadeError):
    """A message arrived that no honest party sends."""


class TruncatedMessage(ProtocolError):
    """A message ended before its own lengths say it should."""


class OversizedMessage(ProtocolError):
    """A message is longer than the receiver allows."""


class InboxFull(ProtocolError):
    """A party sent more than may wait at its receiver, which had not asked for any of it."""


class WrongShape(ProtocolError):
    """An array arrived whose shape or type does not fit the step."""


class HandshakeFailed(ColonnadeError):
    """Two parties can't run together: another version, another name, a stream that is not what it says."""


class JobMismatch(HandshakeFailed):
    """Two parties hold different jobs.

    Parameters
    ----------
    message
        The sentence that says in what they differ.
    peer, key, here, there
        The other party, the first entry that differs, and what it is at both, as far as that is known.
    """

    def __init__(self, message: str, peer: str = "", key: str = "", here: str = "", there: str = "") -> None:
        super().__init__(message)
        self.peer, self.key, self.here, self.there = peer, key, here, there


class VersionMismatch(JobMismatch):
    """Two parties hold parts of different trainings, or would start a training from different ones."""


class RunFailed(ColonnadeError):
    """A run ended early.

    Parameters
    ----------
    message
        The sentence that says why.
    party, step
        Where it ended, if that is known.
    """

    def __init__(self, message: str, party: str = "", step: str = "") -> None:
        super().__init__(message)
        self.party = party
        self.step = step


class PartyFailed(RunFailed):
    """A party raised an error, or its process died."""


class PartyLost(PartyFailed):
    """There is no line to a party any more: it was out of reach for too long, or lost its state."""


class PartySilent(RunFailed):
    """A party said nothing before the deadline."""


class ColonnadeWarning(UserWarning):
    """Something that is allowed, and that the user should know about."""


class SingleFeatureWarning(ColonnadeWarning):
    """A party has a single feature, which FedBCD's Theorem 2 (d_k >= 2) does not protect."""


def needed(module: str, what: str) -> Any:
    """Return a module that nothing else here needs, or say who needs it and how to get it."""
    try:
        return import_module(module)
    except ImportError:
        raise InputError(f"{what} needs {module}, which is not installed; pip install {module}") from None


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Refuse an option that is not one of `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise OptionError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")


def at_least(name: str, value: float, low: float, *, strict: bool = False, finite: bool = False) -> None:
    """Refuse a number below `low` (or equal to it, with `strict`) and NaN, and what is no number, as True is none.

    With `finite`, refuse infinity as well.
    """
    allowed = f"{'>' if strict else '>='} {low:g}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OptionError(f"{name} must be a number {allowed}, got {value!r} ({type(value).__name__})")
    if not (value > low if strict else value >= low):
        raise OptionError(f"{name} must be {allowed}, got {value!r}")
    if finite and value == inf:
        raise OptionError(f"{name} must be a finite number, got {value!r}")


def whole_number(name: str, value: object, low: int) -> None:
    """Refuse anything but a whole number that is not below `low`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise OptionError(f"{name} must be a whole number >= {low}, got {value!r} ({type(value).__name__})")
    at_least(name, int(value), low)
