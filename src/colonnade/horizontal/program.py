"""The programs of a run over rows: a server that asks and sites that answer, over a `Net`.

All messages go between the server and one site. A site that is silent for `wait` seconds is left out of the sum that is
under way, and asked again for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colonnade.data.identity import Identity
from colonnade.errors import OptionError
from colonnade.horizontal.answering import Own, Turn, going_on
from colonnade.horizontal.asking import answer_to, to_the_end
from colonnade.horizontal.conduct import ServerJob, conduct
from colonnade.horizontal.gathering import Heard, Task, gather, step_of
from colonnade.horizontal.messages import instruction, method_from_value, model_from_value
from colonnade.horizontal.site_work import SiteRows, SiteWork
from colonnade.horizontal.torch_whole import function_of, maker_of
from colonnade.runtimes.net import Net

INSTRUCTION = "instruction"
# Parts of the deadline for which a site may be silent, by default and at most. A round has five stages, and the others
# wait meanwhile; beyond the second number a site that was left out of a sum could take the server for dead before the
# next one begins.
_WAIT, _LONGEST = 1 / 7, 0.16


async def serve(
    net: Net, job: Any, network: str | None = None, functions: tuple[str, ...] = (), first: Any = None
) -> Any:
    """Run as the server, and return how the run ended (`Result.as_value`).

    Parameters
    ----------
    net
        The server's view of the federation.
    job
        A `ServerJob` as a value.
    network
        The name of the function that makes the network, where the model is one of torch.
    functions
        The names of the problem's functions of parameters.
    first
        Parameters to begin with; None leaves them to the model.
    """
    told = ServerJob.from_value(job)
    model = model_from_value(told.model, maker_of(network), "the server")
    net.spare(told.sites)
    desk = Desk(net, told)
    run = conduct(told, model, net.report, first, functions=tuple(map(function_of, functions)))
    result = await to_the_end(net, run, desk.sum)
    for site in told.sites:
        await net.send(site, INSTRUCTION, ("end", 0, result.parameters))
    return result.as_value()


def wait_of(method: Any, deadline: float) -> float:
    """Return for how many seconds a site may be silent in a stage of a sum; refuse more than a deadline allows."""
    wait = method_from_value(method).wait or _WAIT * deadline
    if wait > _LONGEST * deadline:
        raise OptionError(
            f"wait must be at most {_LONGEST:g} of the runtime's deadline, {_LONGEST * deadline:g} s, got {wait:g}: "
            f"the other sites would take the server for dead; raise the deadline"
        )
    return wait


class Desk:
    """Where the server collects its sums."""

    def __init__(self, net: Net, job: ServerJob) -> None:
        self._net, self._job, self._serial = net, job, 0
        self._wait = wait_of(job.method, net.deadline)

    async def sum(self, task: Task) -> Heard:
        """Collect one sum over all sites that stay to its end."""
        self._serial += 1
        stages = gather(self._job.sites, self._job.threshold, task, self._job.fewest)
        stage, contents = next(stages)
        while True:
            answers = await self._ask(stage, contents)
            try:
                stage, contents = stages.send(answers)
            except StopIteration as end:
                heard: Heard = end.value
                return heard

    async def _ask(self, stage: str, contents: Mapping[int, Any]) -> dict[int, Any]:
        """Ask some sites, each with its own content, and return the answers of those who answer in time."""
        net, step = self._net, step_of(stage, self._job.threshold)
        for number, content in contents.items():
            await net.send(self._job.sites[number], INSTRUCTION, (stage, self._serial, content))
        until = net.elapsed() + self._wait
        waits = {
            number: net.spawn(answer_to(net, self._job.sites[number], step, self._serial, until)) for number in contents
        }
        heard = {number: await wait for number, wait in waits.items()}
        return {number: answer[0] for number, answer in heard.items() if answer}


async def attend(net: Net, server: str, job: Any, mine: Any) -> Any:
    """Run as a site: answer until the server says that the run is over, and return the parameters.

    The job and what is the site's own are given by whoever started the program, and not by the server.

    Parameters
    ----------
    net
        The site's view of the federation.
    server
        The name of the server.
    job
        A `ServerJob` as a value.
    mine
        Rows, rows to validate with, the name of the function that makes its network, the secret of its identity, its
        roster, the names of the problem's functions of rows, and the fewest rows that it answers about.
    """
    told = ServerJob.from_value(job)
    net.spare(told.sites)
    number = told.sites.index(net.me)
    train, validation, network, secret, roster, functions, fewest = mine
    held_out = None if validation is None else SiteRows.from_value(validation)
    identity = None if secret is None else Identity(secret)
    known = None if roster is None else dict(roster)
    own = Own(maker_of(network), identity, known, tuple(map(function_of, functions)), fewest)
    work = SiteWork.of(told.as_site_job(number), net.me, SiteRows.from_value(train), held_out, own)
    turn: Turn | None = None
    while True:
        message = await net.recv(server, INSTRUCTION)
        # A site that was late for one sum goes on with the newest: nobody waits for the answers in between.
        while newer := await net.recv_within(server, INSTRUCTION, 0):
            message = newer[0]
        stage, serial, content = instruction(message)
        if stage == "end":
            return content
        if stage == "task":
            turn, answer = work.begin(serial, content)
            await net.work(work.effort(content))
        else:
            answer = going_on(turn, stage, serial, content)
        await net.send(server, step_of(stage, told.threshold), (serial, answer))
        if stage == "task" and content[0] == "step":
            net.traffic.round()
        elif stage == "task" and content[0] == "evaluate":
            net.report(("traffic", content[1], net.traffic.messages, net.traffic.bytes))
