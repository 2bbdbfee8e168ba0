"""The log of the network runtime, and how often it says the same."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field

LOG = logging.getLogger("colonnade.network")
LOG.addHandler(logging.NullHandler())  # whoever runs a party decides where its log goes

_QUIET_FOR = 10.0  # seconds in which the same refusal is not written down again
_REMEMBERED = 100  # refusals


@dataclass
class Refusals:
    """A line in the log for whoever was turned away, and not one for each of a hundred attempts."""

    any: bool = False  # whether anybody was
    _seen: dict[str, tuple[float, int]] = field(default_factory=dict)

    def __call__(self, who: str, reason: str) -> None:
        """Write it down, unless the same was written down a moment ago."""
        now, self.any = time.monotonic(), True
        last, count = self._seen.get(reason, (-_QUIET_FOR, 0))
        if now - last < _QUIET_FOR:
            self._seen[reason] = (last, count + 1)
            return
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
        self._seen[reason] = (now, 0)
        LOG.warning("refused %s: %s%s", who, reason, f" ({count} more like it)" if count else "")
