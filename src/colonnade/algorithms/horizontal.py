"""Learning over rows as programs: a server that asks and sites that answer, over a `Net`.

All messages go between the server and one site. A site that is silent for `wait` seconds is left out of the sum that is
under way, and asked again for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from colonnade.algorithms.conduct import Heard, Plan, Task, conduct
from colonnade.algorithms.site_work import PLAIN, STAGES, Part, SiteWork, method_from_value, model_from_value
from colonnade.errors import ProtocolError
from colonnade.runtimes.net import Net
from colonnade.runtimes.wire import expect_array
from colonnade.sums.dropout import Collector
from colonnade.sums.ring import Ring

INSTRUCTION = "instruction"
# A site may be silent for this part of the deadline: a round has four stages, and others wait meanwhile.
_WAIT = 1 / 6


async def serve(net: Net, plan: Any) -> Any:
    """The server's program: returns how the run ended (`Result.as_value`)."""
    told = Plan.from_value(plan)
    net.spare(told.sites)
    desk = _Desk(net, told)
    run = conduct(told, net.report)
    task = next(run)
    while True:
        heard = await desk.sum(task)
        if task.kind == "step":
            net.traffic.round()
        elif task.kind == "evaluate":
            net.report(("traffic", task.content[0], net.traffic.messages, net.traffic.bytes))
        try:
            task = run.send(heard)
        except StopIteration as end:
            for site in told.sites:
                await net.send(site, INSTRUCTION, ("end", 0, end.value.parameters))
            return end.value.as_value()


class _Desk:
    """Where the server's sums are collected."""

    def __init__(self, net: Net, plan: Plan) -> None:
        self._net, self._plan, self._serial = net, plan, 0
        self._wait = method_from_value(plan.method).wait or _WAIT * net.deadline

    async def sum(self, task: Task) -> Heard:
        """One sum over all sites that stay to its end."""
        self._serial += 1
        total, answered = await (self._masked(task) if self._plan.threshold else self._plain(task))
        ring = Ring(len(self._plan.sites), task.fraction_bits)
        return Heard(None if total is None else ring.decode(total), answered)

    def _asked(self, task: Task) -> dict[int, Any]:
        return dict.fromkeys(range(len(self._plan.sites)), (task.kind, *task.content))

    async def _plain(self, task: Task) -> tuple[Any, int]:
        """Without masks: the server sees every part."""
        found = await self._stage("task", self._asked(task), PLAIN)
        values = [self._value(found[number], task, number) for number in sorted(found)]
        return (np.sum(values, axis=0, dtype=np.uint64) if values else None), len(values)

    async def _masked(self, task: Task) -> tuple[Any, int]:
        """The stages of `sums.dropout`; None where one of them has too few answers."""
        collector = Collector(self._plan.threshold)
        keys = await self._stage("task", self._asked(task))
        if not collector.enough(keys):
            return None, len(keys)
        known = tuple((number, *pair) for number, pair in collector.keys(keys).items())
        shares = await self._stage("keys", dict.fromkeys(keys, known))
        if not collector.enough(shares):
            return None, len(shares)
        letters = collector.letters({number: dict(each) for number, each in shares.items()})
        found = await self._stage("letters", {number: tuple(each.items()) for number, each in letters.items()})
        if not collector.enough(found):
            return None, len(found)
        values = {number: self._value(each, task, number) for number, each in found.items()}
        survivors = tuple(collector.values(values))
        opened = await self._stage("survivors", dict.fromkeys(survivors, survivors))
        if not collector.enough(opened):
            return None, len(opened)
        return collector.total({number: dict(each) for number, each in opened.items()}), len(survivors)

    def _value(self, given: Any, task: Task, number: int) -> Any:
        return expect_array(given, (task.length,), np.uint64, self._plan.sites[number], "masked sum")

    async def _stage(self, stage: str, contents: Mapping[int, Any], step: str = "") -> dict[int, Any]:
        """Ask some sites, each with its own content, and hear those who answer in time."""
        net, step = self._net, step or STAGES[stage]
        for number, content in contents.items():
            await net.send(self._plan.sites[number], INSTRUCTION, (stage, self._serial, content))
        until = net.elapsed() + self._wait
        waits = {number: net.spawn(self._hear(self._plan.sites[number], step, until)) for number in contents}
        heard = {number: await wait for number, wait in waits.items()}
        return {number: answer[0] for number, answer in heard.items() if answer}

    async def _hear(self, site: str, step: str, until: float) -> tuple[Any, ...]:
        """(its answer,) or (). What it answered to an earlier sum came too late and is not looked at."""
        while True:
            found = await self._net.recv_within(site, step, max(0.0, until - self._net.elapsed()))
            if not found:
                return ()
            if not isinstance(found[0], tuple) or len(found[0]) != 2:
                raise ProtocolError(f"party {site!r} must answer with a number and a value at step {step!r}")
            serial, answer = found[0]
            if serial == self._serial:
                return (answer,)


async def attend(net: Net, server: str, job: Any, mine: Any) -> Any:
    """A site's program: answers until the server says it is over; returns the parameters."""
    plan = Plan.from_value(job)
    net.spare(plan.sites)
    number = plan.sites.index(net.me)
    train, validation = mine
    work = SiteWork(
        number,
        len(plan.sites),
        model_from_value(plan.model),
        method_from_value(plan.method),
        len(plan.groups),
        plan.l2,
        Part.from_value(train),
        None if validation is None else Part.from_value(validation),
        plan.threshold,
    )
    while True:
        message = await net.recv(server, INSTRUCTION)
        # A site that was late for one sum goes on with the newest: nobody waits for the answers in between.
        while newer := await net.recv_within(server, INSTRUCTION, 0):
            message = newer[0]
        stage, serial, content = message
        if stage == "end":
            return content
        answer = work.answer(stage, serial, content)
        await net.work(work.effort(stage, content))
        await net.send(server, STAGES[stage] if plan.threshold else PLAIN, (serial, answer))
        if stage == "task" and content[0] == "step":
            net.traffic.round()
        elif stage == "task" and content[0] == "evaluate":
            net.report(("traffic", content[1], net.traffic.messages, net.traffic.bytes))
