"""What papers say that their attacks find, by the name of the attack, as far as they print a number."""

from __future__ import annotations

PAPERS: dict[str, str] = {}
