"""The papers' tables and figures, run again. Each module has `run(data, *, out, seed, quick)`."""

from __future__ import annotations

REPRODUCTIONS = {"fedbcd-rounds": "colonnade.reproduce.fedbcd_rounds"}
