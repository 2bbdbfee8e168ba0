"""Workers as actors of Ray, on this machine or on a cluster: `pip install 'colonnade[ray]'`.

A shard is put into Ray's object store once, and stays there: an actor reads it without a copy, and the one that takes
its place when it dies reads it again. Only arrays and numbers are handed over, and they come back. Between a driver
and its actors Ray serialises with pickle: docs/adr/0056-engines.md says why that is no line between parties.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from colonnade.errors import OptionError, RunFailed
from colonnade.workers.executor import MOST_DEATHS
from colonnade.workers.own_cluster import ALONE, OwnCluster, environment
from colonnade.workers.shards import Answer, ShardHolder

_REACH, _START = 10.0, 120.0  # seconds: to reach the cluster, and until actors have a place there
NO_RAY = (
    "kind 'ray' needs Ray, which is not installed; install it with pip install 'colonnade[ray]', or use kind "
    "'processes'"
)
_TOKENS = (2, 52)  # the first version that lets nobody in without the cluster's token
# Nobody is told that this runs; and where something else listens than Ray, two tries of half a minute are enough.
_SILENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_NUM_REDIS_GET_RETRIES": "2"}


class ShardActor(ShardHolder):
    """A worker where Ray runs it: on one core, and of the driver's own version."""

    def __init__(self) -> None:
        super().__init__()
        os.environ["COLONNADE_THREADS"] = "1"

    def about(self) -> tuple[str, int]:
        """Return its version, and its process."""
        from colonnade import __version__

        return __version__, os.getpid()


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
        self.workers, self._deadline, self.deaths = workers, deadline, 0
        self._kept: dict[str, list[Any]] = {}  # references, in the order in which they were handed over
        self._actors: list[Any] = []
        self._joined, self._own = False, None if address is not None else _own_cluster(workers)
        try:
            if address is None and self._own is not None:
                self._join(self._own.address, {**_SILENT, **self._own.environment})
            elif address is not None:
                reach(address)
                self._join(address, _SILENT)
            # Kept by Ray: a cluster with a host less, or with too little memory, does not start it elsewhere by itself.
            options = {"num_cpus": 1, "max_restarts": 0, **({} if memory is None else {"memory": memory})}
            self._make = self._ray.remote(**options)(ShardActor).remote
            self._actors = [self._make() for _ in range(workers)]
            self._check_versions()
        except BaseException:
            self.close()
            raise

    def _join(self, address: str, variables: Mapping[str, str]) -> None:
        with environment(variables):
            ray = self._ray = _ray()
            logging.getLogger("ray").setLevel(logging.ERROR)  # nobody asked for its advice on tokens and signals
            try:
                ray.init(address=address, log_to_driver=False, configure_logging=False)
            except (OSError, ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
                raise _no_cluster(address, error) from None
        self._joined = True

    def _check_versions(self) -> None:
        """Wait until all actors have a place; refuse a cluster with another version than this one."""
        from colonnade import __version__

        errors = self._ray.exceptions
        try:
            found = self._ray.get([actor.about.remote() for actor in self._actors], timeout=_START)
        except errors.GetTimeoutError:
            have = int(self._ray.cluster_resources().get("CPU", 0))
            raise OptionError(
                f"{self.workers} workers found no place within {_START:.0f} s on a cluster of {have} cores; lower "
                f"workers or memory in [engine]"
            ) from None
        except errors.RayError as error:
            raise OptionError(
                f"workers do not start on the Ray cluster ({_words(error)}); install colonnade {__version__} on all of "
                f"its machines"
            ) from None
        for version, _ in found:
            if version != __version__:
                raise OptionError(
                    f"the Ray cluster has colonnade {version}, and here is {__version__}; install the same on all of "
                    f"its machines"
                )

    def about(self, worker: int) -> tuple[str, int]:
        """A worker's version, and the number of its process, as it is now."""
        found: tuple[str, int] = self._ray.get(self._actors[worker].about.remote(), timeout=self._deadline)
        return found

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
            raise RunFailed(f"worker {worker + 1} of {self.workers} failed at {what!r}: {_words(error)}") from None

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
        if self._joined:
            for actor in self._actors:
                self._ray.kill(actor)
            self._ray.shutdown()
        self._actors, self._kept, self._joined = [], {}, False
        if self._own is not None:
            self._own.close()
            self._own = None


class _Gone(Exception):
    """An actor has died, or says nothing."""


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise OptionError(NO_RAY) from None
    if ray.is_initialized():
        raise OptionError("this process has joined a Ray cluster already; call ray.shutdown() before an engine starts")
    return ray


def _own_cluster(workers: int) -> OwnCluster:
    with environment({**_SILENT, **ALONE}):
        found = str(_ray().__version__)
    if tuple(int(part) for part in found.split(".")[:2]) < _TOKENS:
        raise OptionError(
            f"Ray {found} knows no tokens, so everybody on this machine could join the cluster of a run and see its "
            f"rows; pip install 'colonnade[ray]' brings a newer one, or use kind 'processes'"
        )
    return OwnCluster(workers, _START)


def reach(address: str) -> None:
    """Refuse an address at which nothing listens: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_REACH).close()
    except OSError as error:
        raise _no_cluster(address, error) from None


def _no_cluster(address: str, error: Exception) -> OptionError:
    return OptionError(
        f"no Ray cluster answers at {address!r} ({_words(error)}); start one with ray start --head, on a network of "
        f"your own, or leave address out for one of this run's own"
    )


def _words(error: Exception) -> str:
    """The last line that an error says, which in Ray's is the cause."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
