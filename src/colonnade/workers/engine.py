"""Where a party's passes over its rows are made: `[engine]` of its own file.

    [engine]
    kind = "ray"                  # or "processes", on this machine
    workers = 8
    address = "10.1.2.3:6379"     # of a Ray cluster that runs; without it, one is started on this machine
    memory = "16GB"               # that each worker may take

Nobody else learns of it: messages and bits are those of a run without an engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from colonnade.blocks.column_values import columns_to_value
from colonnade.errors import OptionError
from colonnade.settings.settings import Key, Section
from colonnade.workers.executor import Executor
from colonnade.workers.process_executor import ProcessExecutor
from colonnade.workers.ray_executor import NO_RAY, RayExecutor, reach
from colonnade.workers.sharded_columns import ShardedColumns, measured

PROCESSES, RAY = "processes", "ray"
_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([1-9][0-9]*)\s*(MB|GB|TB)")
# Bytes that a worker takes beside its rows, and for every row: its part of scores, signals and weights, both ways.
_BESIDE, _PER_ROW = 300 * 10**6, 64


def _size(text: str) -> str | None:
    return None if _SIZE.fullmatch(text) else f'must be a size such as "500MB" or "16GB", got {text!r}'


def _address(text: str) -> str | None:
    host, _, port = text.rpartition(":")
    if host and port.isdecimal() and 0 < int(port) < 65536:
        return None
    return "must be host:port of a Ray cluster that runs, such as 10.1.2.3:6379"


SECTION = Section(
    Key("kind", str, required=True, allowed=(PROCESSES, RAY)),
    Key("workers", int, required=True, least=1, most=4096),
    Key("address", str, check=_address),
    Key("memory", str, check=_size),
    Key("deadline", float, default=600.0, above=0.0),
)


@dataclass
class Engine:
    """The workers of a run; they are started when the first columns are handed to them.

    Attributes
    ----------
    kind : "processes" or "ray".
    workers : how many.
    address : of a Ray cluster, None for one on this machine.
    memory : bytes that each worker may take, None for whatever it needs.
    deadline : seconds within which a worker must answer.
    """

    kind: str
    workers: int
    address: str | None = None
    memory: int | None = None
    deadline: float = 600.0
    _executor: Executor | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, given: Any) -> Engine:
        """The engine of a party's file."""
        if given["address"] is not None and given["kind"] != RAY:
            raise given.error("address", 'is for kind = "ray" alone; remove it')
        memory = None
        if given["memory"] is not None:
            number, unit = _SIZE.fullmatch(given["memory"]).groups()  # type: ignore[union-attr]
            memory = int(number) * _UNITS[unit]
        return cls(given["kind"], given["workers"], given["address"], memory, given["deadline"])

    def place(self, value: Any) -> ShardedColumns:
        """Hand columns, in the form that the wire carries, to the workers."""
        self._check_room(value)
        return ShardedColumns.place(self.executor, value)

    @contextmanager
    def lent(self, X: Any) -> Iterator[ShardedColumns]:
        """Hand some rows to the workers for as long as they are scored, each of whom gets equally many."""
        value = columns_to_value(X)
        rows, _, _ = measured(value)
        found = ShardedColumns.place(self.executor, value, max(1, -(-rows // self.workers)))
        try:
            yield found
        finally:
            found.forget()

    def start(self) -> None:
        """Start the workers, where they are not yet."""
        _ = self.executor

    @property
    def executor(self) -> Executor:
        """The workers, started where they are not yet."""
        if self._executor is None:
            if self.kind == RAY:
                self._executor = RayExecutor(self.workers, self.address, self.memory, self.deadline)
            else:
                self._executor = ProcessExecutor(self.workers, self.deadline)
        return self._executor

    def _check_room(self, value: Any) -> None:
        """Refuse a table of which a worker's part does not fit into the memory that it may take."""
        if self.memory is None:
            return
        rows, _, _ = measured(value)
        size = sum(part.nbytes for part in value[:3]) if isinstance(value, tuple) else value.nbytes
        free = self.memory - _BESIDE
        needed = size + _PER_ROW * rows
        if needed > free * self.workers:
            least = f"workers = {-(-needed // free)}" if free > 0 else 'memory = "1GB"'
            raise OptionError(
                f"{rows:,} rows take {needed / 1e6:,.0f} MB at the workers, and {self.workers} with memory "
                f"{self.memory / 1e6:,.0f} MB have {max(0, free * self.workers) / 1e6:,.0f} MB for them; say {least} "
                f"in [engine] at least"
            )

    def ready(self) -> str:
        """Say where workers will be; refuse what is not there, before anything is started."""
        if self.kind == PROCESSES:
            return f"{self.workers} processes of this machine hold the rows in training"
        if find_spec("ray") is None:
            raise OptionError(NO_RAY)
        if self.address is None:
            return f"Ray is started on this machine, with {self.workers} workers that hold the rows in training"
        reach(self.address)
        return f"{self.workers} workers of Ray at {self.address} hold the rows in training"

    def __enter__(self) -> Engine:
        self.ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers."""
        if self._executor is not None:
            self._executor.close()
            self._executor = None
