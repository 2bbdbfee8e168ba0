"""Workers in this very process, for tests of what they are asked and not of how they run."""

from __future__ import annotations

from typing import Any

from colonnade.workers.shards import ShardHolder


class Here:
    """Workers in this process."""

    def __init__(self, workers: int) -> None:
        self.workers, self.holders, self.kept = workers, [ShardHolder() for _ in range(workers)], []

    def keep(self, name: str, things: Any) -> None:
        self.kept.append(name)
        for holder, thing in zip(self.holders, [things[at] for at in range(self.workers)], strict=True):
            holder.keep(name, thing)

    def drop(self, name: str) -> None:
        self.kept.remove(name)
        for holder in self.holders:
            holder.drop(name)

    def ask(self, question: str, given: Any) -> Any:
        pairs = zip(self.holders, given, strict=True)
        return [None if one is None else holder.answer(question, *one) for holder, one in pairs]

    def close(self) -> None:
        self.holders = []
