"""What a party can do to what leaves it, so that less follows: each defence one option, with what it costs measured."""

from colonnade.defences.base import Defence as Defence
from colonnade.defences.compression import CompressedSignals as CompressedSignals
