"""Workers as actors of Ray, on this machine or on a cluster: `pip install 'colonnade[ray]'`.

A shard is put into Ray's object store once, and stays there: an actor reads it without a copy, and the one that takes
its place when it dies is handed the same. Only arrays and numbers are handed over, and they come back. Between a driver
and its actors Ray serialises with pickle: docs/adr/0057-engines.md says why that is no line between parties.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

from colonnade.errors import OptionError, RunFailed
from colonnade.workers.executor import MOST_DEATHS
from colonnade.workers.shards import Answer, ShardHolder

_REACH, _START = 10.0, 120.0  # seconds: to reach the cluster, and until actors have a place there


class RayExecutor:
    """See `Executor`.

    Parameters
    ----------
    workers : how many actors.
    address : of a cluster that runs, "host:port"; None starts one on this machine, for this run alone.
    memory : bytes that each actor reserves.
    deadline : seconds within which an actor must answer; one that does not is replaced, as if it had died.
    """

    def __init__(
        self, workers: int, address: str | None = None, memory: int | None = None, deadline: float = 600.0
    ) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told that this runs
        try:
            import ray
        except ImportError:
            raise OptionError(
                "kind 'ray' needs Ray, which is not installed; install it with pip install 'colonnade[ray]', or use "
                "kind 'processes'"
            ) from None
        self._ray, self.workers, self._deadline, self.deaths = ray, workers, deadline, 0
        self._kept: dict[str, list[Any]] = {}  # references, in the order in which they were handed over
        self._actors: list[Any] = []
        self._ours = not ray.is_initialized()
        if self._ours:
            self._join(address)
        options = {"num_cpus": 1, "max_restarts": 0, **({} if memory is None else {"memory": memory})}
        self._make = ray.remote(**options)(ShardHolder).remote
        try:
            self._actors = [self._make() for _ in range(workers)]
            ray.get([actor.drop.remote("") for actor in self._actors], timeout=_START)
        except ray.exceptions.GetTimeoutError:
            have = int(ray.cluster_resources().get("CPU", 0))
            self.close()
            raise OptionError(
                f"{workers} workers found no place within {_START:.0f} s on a cluster of {have} cores; lower workers "
                f"or memory in [engine]"
            ) from None
        except BaseException:
            self.close()
            raise

    def _join(self, address: str | None) -> None:
        common = {"log_to_driver": False, "configure_logging": False}
        if address is None:
            # On this machine's own address, which nobody outside can reach.
            local = {"num_cpus": self.workers, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}
            self._ray.init(address="local", **local, **common)
            return
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_REACH).close()
            self._ray.init(address=address, **common)
        except (OSError, ConnectionError, RuntimeError, ValueError) as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise OptionError(
                f"no Ray cluster answers at {address!r} ({first}); start one with ray start --head on this machine's "
                f"own network, or leave address out for one of this run's own"
            ) from None

    def actor(self, worker: int) -> Any:
        """A worker's actor as it is now."""
        return self._actors[worker]

    def keep(self, name: str, things: Sequence[Any]) -> None:
        """See `Executor`."""
        self._kept[name] = []
        for worker in range(self.workers):
            thing = self._ray.put(things[worker])
            self._kept[name].append(thing)
            try:
                self._get(self._actors[worker].keep.remote(name, thing), worker, f"keep {name}")
            except _Gone:
                self._replace(worker)

    def drop(self, name: str) -> None:
        """See `Executor`."""
        self._kept.pop(name, None)
        for actor in self._actors:
            actor.drop.remote(name)

    def ask(self, question: str, given: Sequence[tuple[Any, ...] | None]) -> list[Answer | None]:
        """See `Executor`."""
        asked = [
            None if one is None else actor.answer.remote(question, *one)
            for actor, one in zip(self._actors, given, strict=True)
        ]
        return [
            None if what is None else self._answer(worker, what, (question, *(given[worker] or ())))
            for worker, what in enumerate(asked)
        ]

    def _answer(self, worker: int, asked: Any, again: tuple[Any, ...]) -> Answer:
        for _ in range(MOST_DEATHS):
            try:
                found: Answer = self._get(asked, worker, again[0])
                return found
            except _Gone:
                self._replace(worker)
                asked = self._actors[worker].answer.remote(*again)
        raise RunFailed(
            f"worker {worker + 1} of {self.workers} died {MOST_DEATHS} times at {again[0]!r}; give it more memory, or "
            f"raise workers in [engine] so that each has fewer rows"
        )

    def _get(self, reference: Any, worker: int, what: str) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=self._deadline)
        except (errors.RayActorError, errors.GetTimeoutError):
            raise _Gone from None
        except errors.RayError as error:
            words = str(error).strip().splitlines()[-1]
            raise RunFailed(f"worker {worker + 1} of {self.workers} failed at {what!r}: {words}") from None

    def _replace(self, worker: int) -> None:
        """Start another actor in place of one that is gone, and hand it all that it kept."""
        self.deaths += 1
        for _ in range(MOST_DEATHS):
            self._ray.kill(self._actors[worker])
            self._actors[worker] = actor = self._make()
            try:
                for name, things in self._kept.items():
                    self._get(actor.keep.remote(name, things[worker]), worker, f"keep {name}")
            except _Gone:
                continue
            return
        raise RunFailed(
            f"worker {worker + 1} of {self.workers} can't be started again: it died {MOST_DEATHS} times as it was "
            f"handed its rows; give it more memory, or raise workers in [engine] so that each has fewer rows"
        )

    def close(self) -> None:
        """See `Executor`."""
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors, self._kept = [], {}
        if self._ours:
            self._ray.shutdown()


class _Gone(Exception):
    """An actor has died, or says nothing."""
