"""One rank of an MPI job, as `colonnade run --mpi` is one: three parties, and something that one of them does."""

from __future__ import annotations

import asyncio
import sys
import time

from colonnade.errors import ColonnadeError, DataError
from colonnade.remote.mpi import party_of_rank, run_party_mpi
from contracts.programs import SECRET, all_to_all

NAMES = ("a", "b", "c")


async def as_told(net, what):
    if net.me == "b" and what == "fails":
        raise DataError(SECRET)
    if net.me == "b" and what == "sleeps":
        time.sleep(3600)
    heard = await all_to_all(net, 2)
    if net.me == "b" and what == "lingers":
        await asyncio.sleep(7.0)  # longer than the deadline, and the others wait for it
    return heard


def main(what):
    def arguments():
        if me == "b" and what == "has no data":
            raise DataError(SECRET)
        return (what,)

    try:
        me = party_of_rank(NAMES)
        if me == "b" and what == "has no file":
            raise DataError(SECRET)
        job = {"step": 2 if me == "b" and what == "has another job" else 1}
        for _ in range(2 if what == "runs twice" else 1):
            deadline = 6.0 if what in ("sleeps", "lingers") else 60.0
            outcome = asyncio.run(run_party_mpi(as_told, arguments, NAMES, deadline=deadline, job=job))
            sys.stdout.write(f"{me}: {outcome.value}, {outcome.traffic.messages} messages\n")
    except ColonnadeError as error:
        sys.exit(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
