"""Workers as processes of this machine; shards lie in memory that they share with nobody but their starter."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from colonnade.errors import RunFailed
from colonnade.workers.executor import MOST_DEATHS
from colonnade.workers.shards import Answer
from colonnade.workers.shared_memory import Laid, SharedLine
from colonnade.workers.told import told

_MAIN = "import sys; sys.path = [p for p in sys.path if p]; from colonnade.workers.worker_process import main; main()"


class ProcessExecutor:
    """See `Executor`.

    Parameters
    ----------
    workers : how many processes.
    deadline : seconds within which a worker must answer; one that does not is replaced, as if it had died.
    """

    def __init__(self, workers: int, deadline: float = 600.0) -> None:
        self.workers, self._deadline = workers, deadline
        self._kept: dict[str, list[Laid]] = {}  # in the order in which it was handed over
        self._lines: list[SharedLine] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self.deaths = 0
        try:
            for _ in range(workers):
                process, line = self._started()
                self._processes.append(process)
                self._lines.append(line)
        except BaseException:
            self.close()
            raise

    def process(self, worker: int) -> subprocess.Popen[bytes]:
        """A worker's process as it is now."""
        return self._processes[worker]

    def keep(self, name: str, things: Sequence[Any]) -> None:
        """See `Executor`."""
        self._forget(name)
        self._kept[name] = []
        for worker in range(self.workers):
            laid = Laid(things[worker])
            self._kept[name].append(laid)
            try:
                self._hand(worker, name, laid)
            except (EOFError, OSError):
                self._replace(worker)

    def drop(self, name: str) -> None:
        """See `Executor`."""
        self._forget(name)
        for worker in range(self.workers):
            try:
                self._lines[worker].send(("drop", name))
                self._heard(worker)
            except (EOFError, OSError):
                self._replace(worker)

    def ask(self, question: str, given: Sequence[tuple[Any, ...] | None]) -> list[Answer | None]:
        """See `Executor`."""
        asked = [None if one is None else ("ask", question, *one) for one in given]
        for worker, message in enumerate(asked):
            if message is not None:
                with suppress(OSError):  # it is gone, as will be seen where its answer is waited for
                    self._lines[worker].send(message)
        found: list[Answer | None] = []
        failed: RunFailed | None = None
        for worker, message in enumerate(asked):
            try:
                found.append(None if message is None else self._answer(worker, message))
            except RunFailed as error:  # the others' answers are taken off their lines: none is one to a later question
                failed = failed or error
        if failed is not None:
            raise failed
        return found

    def _answer(self, worker: int, asked: tuple[Any, ...]) -> Answer:
        """What a worker answers to what it was asked; its successor is asked again."""
        for _ in range(MOST_DEATHS):
            try:
                found: Answer = self._heard(worker)
                return found
            except (EOFError, OSError):
                self._replace(worker)
                with suppress(OSError):
                    self._lines[worker].send(asked)
        raise RunFailed(
            f"worker {worker + 1} of {self.workers} died {MOST_DEATHS} times at {asked[1]!r}; give it more memory, or "
            f"raise workers in [engine] so that each has fewer rows"
        )

    def close(self) -> None:
        """See `Executor`."""
        for line in self._lines:
            line.close()
        for process in self._processes:
            process.kill()
            process.wait()
        for laid in (one for things in self._kept.values() for one in things):
            laid.room.forget()
        self._lines, self._processes, self._kept = [], [], {}

    def _forget(self, name: str) -> None:
        for laid in self._kept.pop(name, ()):
            laid.room.forget()

    def _started(self) -> tuple[subprocess.Popen[bytes], SharedLine]:
        mine, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=told(),
                start_new_session=True,
            )
        mine.settimeout(self._deadline)
        return process, SharedLine(mine)

    def _hand(self, worker: int, name: str, laid: Laid) -> None:
        self._lines[worker].send(("keep", name, laid.rest, laid.places), laid.room)
        self._heard(worker)

    def _heard(self, worker: int) -> Any:
        (word, what), _ = self._lines[worker].receive()
        if word == "failed":
            raise RunFailed(f"worker {worker + 1} of {self.workers} failed: {what}")
        return what

    def _replace(self, worker: int) -> None:
        """Start another process in place of one that is gone, and hand it all that it kept."""
        self.deaths += 1
        for _ in range(MOST_DEATHS):
            self._lines[worker].close()
            self._processes[worker].kill()
            self._processes[worker].wait()
            self._processes[worker], self._lines[worker] = self._started()
            try:
                for name, things in self._kept.items():
                    self._hand(worker, name, things[worker])
            except (EOFError, OSError):
                continue
            return
        raise RunFailed(
            f"worker {worker + 1} of {self.workers} can't be started again: it died {MOST_DEATHS} times as it was "
            f"handed its rows; give it more memory, or raise workers in [engine] so that each has fewer rows"
        )
