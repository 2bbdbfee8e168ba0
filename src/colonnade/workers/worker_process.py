"""What runs in a worker's own process on this machine: it keeps what it is handed, and answers, until its line ends.

Started as `python -c "...; main()" <fd>`, with no other file open, no variable of the environment that it does not
need, and no line to anybody but the one who started it.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from colonnade.workers.shards import ShardHolder
from colonnade.workers.shared_memory import SharedLine, put_back


def main() -> None:
    """Answer until the line ends."""
    line, holder = SharedLine(socket.socket(fileno=int(sys.argv[1]))), ShardHolder()
    while True:
        try:
            (what, *given), room = line.receive()
        except (EOFError, OSError):
            os._exit(0)
        told: tuple[str, Any]
        try:
            if what == "keep":
                name, rest, places = given
                holder.keep(name, put_back(rest, places, room))
                told = ("done", None)
            elif what == "drop":
                holder.drop(*given)
                told = ("done", None)
            else:
                told = ("done", holder.answer(*given))
        except Exception as error:  # told to the driver, which ends the run with it
            told = ("failed", f"{type(error).__name__}: {error}")
        if room is not None:
            room.forget()
        try:
            line.send(told)
        except OSError:
            os._exit(0)
