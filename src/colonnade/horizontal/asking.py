"""How a server of sites asks for its sums until its run is over, and takes the answers that come in time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any

from colonnade.errors import ProtocolError
from colonnade.horizontal.conduct import Result
from colonnade.horizontal.gathering import Heard, Task
from colonnade.runtimes.net import Net


async def to_the_end(
    net: Net, run: Generator[Task, Heard, Result], sum_up: Callable[[Task], Awaitable[Heard]]
) -> Result:
    """Bring every sum that a run asks for, count its rounds and its traffic, and return how it ended."""
    task = next(run)
    while True:
        heard = await sum_up(task)
        if task.kind == "step":
            net.traffic.round()
        elif task.kind == "evaluate":
            net.report(("traffic", task.content[0], net.traffic.messages, net.traffic.bytes))
        try:
            task = run.send(heard)
        except StopIteration as end:
            result: Result = end.value
            return result


async def answer_to(
    net: Net, site: str, step: str, serial: int, until: float, late: Callable[[str], None] = lambda _: None
) -> tuple[Any, ...]:
    """Return (the site's answer to question `serial`,), or () where none comes before `until`.

    An answer to an earlier question came too late: it is not looked at, and `late` hears whose it was.
    """
    while True:
        found = await net.recv_within(site, step, max(0.0, until - net.elapsed()))
        if not found:
            return ()
        if not isinstance(found[0], tuple) or len(found[0]) != 2 or type(found[0][0]) is not int:
            raise ProtocolError(f"party {site!r} must answer with a number and a value at step {step!r}")
        number, answer = found[0]
        if number == serial:
            return (answer,)
        late(site)
