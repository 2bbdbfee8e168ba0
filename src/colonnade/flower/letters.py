"""What travels in a Flower message: one value in Colonnade's own codec: nothing is pickled, and bits stay bits."""

from __future__ import annotations

from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict

from colonnade.errors import ProtocolError
from colonnade.runtimes.wire import decode, encode

_RECORD, _KEY = "colonnade", "value"


def packed(value: Any) -> RecordDict:
    """A value as the content of a message."""
    return RecordDict({_RECORD: ConfigRecord({_KEY: encode(value)})})


def unpacked(message: Message) -> Any:
    """The inverse."""
    try:
        data = message.content.config_records[_RECORD][_KEY]
    except (KeyError, ValueError):
        raise ProtocolError("a Flower message without Colonnade's record; both sides need colonnade.flower") from None
    return decode(bytes(data))
