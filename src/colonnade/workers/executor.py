"""What is asked of workers, wherever they run: to keep things, and to answer about them, all at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from colonnade.workers.shards import Answer

# How often workers may die within one question, each, until the run ends: then it is the question that kills them.
MOST_DEATHS = 3


class Executor(Protocol):
    """Some workers. One that dies is replaced: its successor is handed all that it kept, and asked again."""

    workers: int

    def keep(self, name: str, things: Sequence[Any]) -> None:
        """Let each worker keep something of its own under one name; see `shards.ShardHolder.keep`."""
        ...

    def drop(self, name: str) -> None:
        """Let all workers forget it."""
        ...

    def ask(self, question: str, given: Sequence[tuple[Any, ...] | None]) -> list[Answer | None]:
        """Ask every worker a question with its own arguments, or none where it is None, and wait for the answers.

        The arrays of an answer are read before the next question: they may lie in memory that is used again.
        """
        ...

    def close(self) -> None:
        """End the workers."""
        ...
