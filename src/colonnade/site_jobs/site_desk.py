"""Where the server of a job collects its sums, and takes in sites that were away.

A site that does not answer within `wait` is left out of the sum that is under way. The next one asks it again, but the
others do not wait for it any more: it is back once it answers as fast as they do, or introduces itself anew. Where
fewer than the job's minimum are there, the same sum is asked for again until `patience` is over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from colonnade.errors import ColonnadeError, LedgerError, PartySilent, ProtocolError
from colonnade.horizontal.asking import answer_to
from colonnade.horizontal.gathering import Heard, Task, gather, step_of
from colonnade.horizontal.program import wait_of
from colonnade.horizontal.shown import INSTRUCTION, INTRODUCTION
from colonnade.ledger.witness import Witness
from colonnade.runtimes.net import Net
from colonnade.site_jobs.agreed import AGREED, DONE, REFUSED, WAIT, WHO, Agreed, Introduction, is_farewell
from colonnade.site_jobs.seat import Seat
from colonnade.site_jobs.site_job import SiteJob

_HEAD = "ledger head"  # what a site that comes again says first, between organisations
# Parts of `wait`: for how long an answer of a site that was silent is looked for when all others have answered, and
# between two looks whether enough are back. A site that says nothing at all is asked again in one of so many sums.
_MOMENT, _PAUSE, _SELDOM = 1 / 40, 1 / 8, 8


class SiteDesk:
    """The server's side of all sums of a job.

    Parameters
    ----------
    net
        The server's view of the federation.
    job
        The job.
    seat
        The server's own, where it has rows.
    digest
        Of what all have agreed on before the run.
    tell
        Hears who is away and who is back.
    witness
        Who compares ledgers with a site that comes again; None in a simulation.
    """

    def __init__(
        self, net: Net, job: SiteJob, seat: Seat | None, digest: bytes, tell: Callable[[str], None], witness: Any = None
    ) -> None:
        self._net, self._job, self._seat, self._digest, self._tell = net, job, seat, digest, tell
        self._witness: Witness | None = witness
        self._wait = wait_of(job.algorithm.as_value(), net.deadline)
        self._others = tuple(name for name in job.sites if name != net.me)
        self.introduced: dict[str, Introduction] = {}
        self.agreed: Agreed | None = None
        self.serial = 0
        self.away: set[str] = set()  # who did not answer the last question
        self._left: set[str] = set()  # who has said that it has the model
        self._heard_of: set[str] = set()  # those of them who have said something since

    # -- who is there -------------------------------------------------------------------------------------------

    async def everybody(self) -> None:
        """Wait until all sites have introduced themselves, and tell all of them everybody's keys."""
        until = self._net.elapsed() + self._job.patience
        if self._seat is not None:
            mine = self._seat.introduction(self._digest)
            self.introduced[self._net.me] = Introduction.from_value(mine, self._net.me)
        while missing := [name for name in self._others if name not in self.introduced]:
            left = until - self._net.elapsed()
            if left <= 0:
                who = ", ".join(map(repr, missing))
                raise PartySilent(
                    f"{who} did not introduce itself within {self._job.patience:g} s; start it, and the same command "
                    f"here again",
                    missing[0],
                    INTRODUCTION,
                )
            for name in missing:
                await self._meet(name)
            found = await self._net.recv_within(missing[0], INTRODUCTION, min(left, self._wait))
            if found:
                self.introduced[missing[0]] = Introduction.from_value(found[0], missing[0])
            else:
                for name in self._others:  # so that nobody takes this party for silent
                    await self._net.send(name, INSTRUCTION, (WAIT, 0, None))
        for name in self._others:
            await self._net.send(name, INSTRUCTION, (WHO, 0, self._keys()))
        if self._seat is not None:
            self._seat.hear_who(self._keys(), self._digest)

    def _keys(self) -> Any:
        return tuple((name, *self.introduced[name].key) for name in self._job.sites)

    async def agree(self, agreed: Agreed) -> None:
        """Tell all sites what all have agreed on."""
        self.agreed = agreed
        if self._seat is not None:
            await self._net.in_thread(self._seat.hear_agreed, agreed.as_value())
        for name in self._others:
            await self._net.send(name, INSTRUCTION, (AGREED, 0, agreed.as_value()))

    async def take_in(self) -> list[str]:
        """Take in sites that come again; returns who they are."""
        back = []
        for name in self._others:
            found: tuple[Any, ...] = ()
            while newer := await self._net.recv_within(name, INTRODUCTION, 0):
                found = found if is_farewell(newer[0]) else newer
                self._left |= {name} if is_farewell(newer[0]) else set()
            if found and await self._welcome(name, found[0]):
                back.append(name)
            await self._meet(name)
        return back

    async def _meet(self, name: str) -> None:
        """Compare ledgers with a site that comes again, if it is one; what it says at its end is not looked at here."""
        if self._witness is None or name in self._left:
            return
        try:
            if came := await self._net.recv_within(name, _HEAD, 0):
                await self._witness.meet_again(self._net, name, came[0], self._wait)
        except (LedgerError, ProtocolError) as error:
            await self._refuse(name, str(error))

    async def _welcome(self, name: str, told: Any) -> bool:
        try:
            came = Introduction.from_value(told, name)
        except ProtocolError as error:
            await self._refuse(name, str(error))
            return False
        if _who(came) != _who(self.introduced[name]):
            await self._refuse(
                name,
                f"site {name!r} came again with other columns, categories, classes or another key than those that the "
                f"run began with; bring the same data and folder, or start the job anew at all sites",
            )
            return False
        await self._net.send(name, INSTRUCTION, (WHO, 0, self._keys()))
        if self.agreed is not None:
            await self._net.send(name, INSTRUCTION, (AGREED, 0, self.agreed.as_value()))
        if name in self.away:
            self._tell(f"{name} is back and takes part again")
        self.away.discard(name)
        return True

    async def refuse_all(self, why: str) -> None:
        """Tell all sites why there will be no run."""
        for name in self._others:
            await self._net.send(name, INSTRUCTION, (REFUSED, 0, why[:900]))

    async def _refuse(self, name: str, why: str) -> None:
        self._tell(f"{name} is not taken in again: {why}")
        await self._net.send(name, INSTRUCTION, (REFUSED, 0, why[:900]))

    # -- sums ---------------------------------------------------------------------------------------------------

    async def sum(self, task: Task, *, of_all: bool = False) -> Heard:
        """Collect one sum; asked for again while too few are there, until `patience` is over."""
        since: float | None = None
        fewest = len(self._job.sites) if of_all else self._job.minimum_sites
        while True:
            await self.take_in()
            heard = await self._once(task, fewest)
            if heard.total is not None or heard.answered >= fewest:
                return heard  # or too few of the sites that were chosen for a round are left, and it is skipped
            now = self._net.elapsed()
            if since is None:
                self._tell(
                    f"{heard.answered} of {len(self._job.sites)} sites answer and {fewest} are needed: waiting for "
                    f"{', '.join(sorted(self.away)) or 'them'}, at most {self._job.patience:g} s"
                )
            since = now if since is None else since
            if now - since > self._job.patience:
                who = sorted(self.away)
                raise PartySilent(
                    f"only {heard.answered} of {len(self._job.sites)} sites answered for {self._job.patience:g} s, "
                    f"{fewest} are needed; {', '.join(map(repr, who))} fell silent: start the job again at all, which "
                    f"goes on from where it was",
                    who[0] if who else "",
                    heard.step,
                )
            self.away = set()  # there is nobody whom it would hold up to wait for them

    async def _once(self, task: Task, fewest: int) -> Heard:
        self.serial += 1
        threshold = 0 if self._job.sum == "plain" else fewest
        stages = gather(self._job.sites, threshold, task, fewest)
        stage, contents = next(stages)
        while True:
            answers = await self._ask(stage, dict(contents), step_of(stage, threshold))
            try:
                stage, contents = stages.send(answers)
            except StopIteration as end:
                heard: Heard = end.value
                return heard

    async def _ask(self, stage: str, contents: Mapping[int, Any], step: str) -> dict[int, Any]:
        """Ask some sites, each with its own content, and return the answers of those who answer in time."""
        net, sites = self._net, self._job.sites
        asked = [number for number in contents if sites[number] != net.me and self._worth(sites[number], stage)]
        for number in asked:
            await net.send(sites[number], INSTRUCTION, (stage, self.serial, contents[number]))
        for name in sorted(self.away - {sites[number] for number in asked}) if stage == "task" else ():
            await net.send(name, INSTRUCTION, (WAIT, 0, None))
        until = net.elapsed() + self._wait
        waits = {
            number: net.spawn(self._hear(sites[number], step, until))
            for number in asked
            if sites[number] not in self.away
        }
        found: dict[int, Any] = {}
        if self._seat is not None and (mine := self._seat.number) in contents:
            found[mine] = await net.in_thread(self._seat.answer, stage, self.serial, contents[mine])
            await net.work(self._seat.effort(stage, contents[mine]))
        for number, wait in waits.items():
            if answer := await wait:
                found[number] = answer[0]
        for number in asked:
            if number not in waits and (
                answer := await self._hear(sites[number], step, net.elapsed() + self._wait * _MOMENT)
            ):
                found[number] = answer[0]
        self._note({sites[number] for number in asked}, {sites[number] for number in found})
        return dict(sorted(found.items()))

    def _worth(self, name: str, stage: str) -> bool:
        """Whether a site is asked: a silent one seldom, so that questions that it does not take do not pile up."""
        return name not in self.away or stage != "task" or name in self._heard_of or self.serial % _SELDOM == 0

    def _note(self, asked: set[str], answered: set[str]) -> None:
        for name in sorted(asked - answered - self.away):
            self._tell(f"{name} does not answer; the run goes on without it until it does")
        for name in sorted(answered & self.away):
            self._tell(f"{name} answers again")
        self.away = (self.away | asked) - answered
        self._heard_of -= answered

    async def _hear(self, site: str, step: str, until: float) -> tuple[Any, ...]:
        """Return (the site's answer,) or (), and remember who was heard of too late."""
        return await answer_to(self._net, site, step, self.serial, until, self._heard_of.add)

    async def last_word(self, content: Any) -> None:
        """Tell all how it ended until they say that they have heard it, at most for `patience`."""
        waiting = list(self._others)
        if self.away:
            words = f"waiting for {', '.join(sorted(self.away))}, at most {self._job.patience:g} s, to hand it over"
            self._tell(f"the model is there; {words}")
        until = self._net.elapsed() + self._job.patience
        while waiting and self._net.elapsed() < until:
            for name in waiting:
                await self._net.send(name, INSTRUCTION, (DONE, 0, content))
            again = self._net.elapsed() + self._wait
            while waiting and self._net.elapsed() < again:
                back = await self.take_in()
                self._left |= {name for name in waiting if self._net.ended(name)}  # its word was lost
                missing = [name for name in waiting if name not in self._left]
                if not back and missing:
                    await self._hear_of(missing[0], min(again - self._net.elapsed(), self._wait * _PAUSE))
                present = {name for name in waiting if name not in self.away}
                if back or not missing or (present and self._left >= present):
                    break
            gone = [name for name in waiting if name in self._left]
            await self._part(gone)
            waiting = [name for name in waiting if name not in gone]
        if self._witness is not None:
            self._witness.absent = {*waiting}

    async def _hear_of(self, name: str, seconds: float) -> None:
        """Wait for a word of one site, which may be that it has the model or that it is back."""
        found = await self._net.recv_within(name, INTRODUCTION, max(0.0, seconds))
        if found and is_farewell(found[0]):
            self._left.add(name)
        elif found:
            await self._welcome(name, found[0])

    async def _part(self, names: list[str]) -> None:
        """Countersign the ledgers of sites for whom the run is over."""
        if self._witness is not None and names:
            try:
                await self._witness.end(self._net, names)
            except ColonnadeError as error:
                self._tell(f"ledgers were not compared at the end: {error}")


def _who(site: Introduction) -> tuple[Any, ...]:
    """Return by what a site that comes again is known; certificate and signature may be new ones."""
    return site.columns, site.classes, site.key[0]
