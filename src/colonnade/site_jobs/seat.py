"""A site's seat in a job: what it tells of itself, and what it answers. There is no I/O here.

    site -> server    introduction: columns and what they hold, categories, classes, and a key vouched for by its owner
    server -> sites   who      everybody's keys, so that no server can put its own in their place
    server -> sites   task ... sums under masks: first those by which columns are prepared, then training
    server -> sites   agreed   the preparation that all have, the classes, and the id of the training
    server -> sites   done     how it ended: the model, and the record of its training

A site that was away begins anew with its introduction, and is told `who` and `agreed` again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto.masks import KeyPair
from colonnade.crypto.ring import Ring
from colonnade.data.identity import Identity
from colonnade.data.labels import show
from colonnade.errors import DataError, ProtocolError
from colonnade.horizontal.answering import Answering, Own, Turn, digest_of_told, going_on
from colonnade.horizontal.messages import SURVEY
from colonnade.horizontal.site_work import SiteRows, SiteWork
from colonnade.site_jobs import survey
from colonnade.site_jobs.agreed import DONE, REFUSED, WAIT, WHO, Agreed
from colonnade.site_jobs.asked_once import Told, keep_to_all
from colonnade.site_jobs.class_rows import check_held_out_rows, numbers_of, own_classes, smallest_batch
from colonnade.site_jobs.common_steps import Chain, chains_of, kinds_of
from colonnade.site_jobs.site_job import SiteJob
from colonnade.tables.learned import LearnedPreparation
from colonnade.tables.table import Table

Array = npt.NDArray[Any]
Check = Callable[[bytes, bytes], bool]
_VOUCHED = "colonnade site key v1"


@dataclass(frozen=True)
class Voucher:
    """How a site's owner vouches for its key, and believes others': by the certificates of the network."""

    certificate: bytes = b""
    sign: Callable[[bytes], bytes] = lambda _: b""
    believe: Callable[[str, bytes], Check] | None = None  # None where there are no certificates, as in a simulation

    def statement(self, job: bytes, name: str, key: bytes) -> bytes:
        """Return what the owner of a site signs: this is its key in this job."""
        return digest_of_told((_VOUCHED, job, name, key))


@dataclass
class Surveyor(Answering):
    """A site before there is a model: it answers what the columns' preparation is learned by."""

    number: int
    names: tuple[str, ...]
    threshold: int
    own: Own
    table: Table
    chains: list[Chain]
    told: bytes
    heard: Told  # what it was told of the preparation, also before it was told anew who takes part
    channel: KeyPair = field(default_factory=KeyPair)
    _latest: int = -1

    def _encoded(self, kind: str, *content: Any) -> Any:
        if kind != SURVEY:
            raise ProtocolError(f"the server asks for a {kind!r} before it has told what all have agreed on")
        found = survey.answer(self.table, content[1], self.own.min_rows, self.chains, self.heard)
        return Ring(len(self.names), 0).encode(found, self.names[self.number])


class Seat:
    """One site in one job.

    Parameters
    ----------
    job
        The job, as this site's own copy of its file has it.
    name
        Of the site.
    table
        Its labelled rows.
    parts
        The numbers of those that it trains on, and of those that it holds out.
    voucher
        How its owner vouches for its key.
    identity
        Its key, which is the same whenever it comes again.
    min_rows
        The fewest rows that it answers about.
    network
        The function that makes its network, where the job trains one.
    check
        Gets the number of prepared columns and of rows in the smallest batch, and may refuse them.
    """

    def __init__(
        self,
        job: SiteJob,
        name: str,
        table: Table,
        parts: tuple[Array, Array],
        voucher: Voucher,
        identity: Identity,
        min_rows: int,
        network: Any = None,
        check: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        self.job, self.name, self._table, self._parts = job, name, table, parts
        self._voucher, self._identity, self._min_rows = voucher, identity, min_rows
        self._network, self._check = network, check
        self._train = table.take(parts[0])
        self._own = Own(network, identity, None, (), min_rows)
        self._chains: list[Chain] = []
        self._heard: Told = {}
        self._work: Answering | None = None
        self._turn: Turn | None = None
        self.agreed: Agreed | None = None
        self.learned = LearnedPreparation()
        self.classes: Array = own_classes(job, name, table)
        if len(parts[0]) < min_rows:
            raise DataError(
                f"site {name!r} has {len(parts[0])} rows to train on, and its policy answers about {min_rows} or more, "
                f"as a gradient of few rows shows them; bring more rows, or lower min_rows under [policy]"
            )
        check_held_out_rows(name, len(parts[1]), min_rows)

    @property
    def number(self) -> int:
        """Its place among the sites."""
        return self.job.sites.index(self.name)

    @property
    def training_rows(self) -> Table:
        """The rows that it trains on."""
        return self._train

    @property
    def counts(self) -> tuple[int, int]:
        """How many rows it trains on, and how many it holds out."""
        return len(self._parts[0]), len(self._parts[1])

    def introduction(self, job: bytes) -> Any:
        """Return what this site tells the server; `job` is a digest of what all have agreed on before."""
        kinds = kinds_of(self._train, self.job.prepare)
        self._chains = chains_of(kinds, self.job.prepare)
        levels = survey.own_levels(self._train, self._chains, self._min_rows)
        columns = tuple((name, kind, levels.get(name, ())) for name, kind in kinds.items())
        key = self._identity.key
        signed = self._voucher.sign(self._voucher.statement(job, self.name, key))
        named = np.unique(np.array(self.job.classes)) if self.job.classes else self.classes  # not which of them it has
        return columns, tuple(named.tolist()), (key, self._voucher.certificate, signed)

    # -- what the server tells ----------------------------------------------------------------------------------

    def hear_who(self, content: Any, job: bytes) -> None:
        """Take everybody's keys, each with what vouches for it."""
        roster: dict[str, bytes] = {}
        for name, key, certificate, signed in content:
            if self._voucher.believe is not None:
                check = self._voucher.believe(name, certificate)
                if not check(self._voucher.statement(job, name, key), signed):
                    raise ProtocolError(f"the key of site {name!r} is not vouched for by its certificate")
            roster[name] = key
        if set(roster) != {*self.job.sites} or roster[self.name] != self._identity.key:
            raise ProtocolError("the server tells other keys, or of other sites, than the job has")
        self._own = Own(self._network, self._identity, roster, (), self._min_rows)
        threshold = 0 if self.job.sum == "plain" else len(self.job.sites)
        known = (self._own, self._train, self._chains, digest_of_told(content), self._heard)
        self._work = Surveyor(self.number, self.job.sites, threshold, *known)

    def hear_agreed(self, content: Any) -> None:
        """Take what all have agreed on, prepare this site's rows by it, and be ready to train."""
        agreed = Agreed.from_value(content)
        learned = LearnedPreparation.from_arrays({"preparation": np.array(agreed.preparation)})
        mine = chains_of(dict(agreed.kinds), self.job.prepare)
        fits = len(mine) == len(learned.columns) and all(
            one.begins_with(column) and len(one.todo) == len(column.steps) and type(one.last) is type(column.last)
            for one, column in zip(mine, learned.columns, strict=True)
        )
        if not fits:
            raise ProtocolError("the server tells a preparation that is not the one of the job; compare versions")
        for column in learned.columns:
            keep_to_all(self._heard, column)
        strange = self.classes[~np.isin(self.classes, np.array(agreed.classes))]
        if len(strange):
            raise ProtocolError(f"the server tells classes without {show(strange)}, which this site has")
        self.agreed, self.learned = agreed, learned
        X = learned.apply(self._train)
        self._check(X.shape[1], smallest_batch(self.job, agreed.classes, self._train.label))
        told_job = self.job.plan(X.shape[1], agreed.classes, self._network).as_site_job(self.number)
        validation = None
        if self.job.validation:
            apart = self._table.take(self._parts[1])
            validation = self._rows(agreed, learned.apply(apart) if len(self._parts[1]) else X[:0], apart.label)
        train = self._rows(agreed, X, self._train.label)
        self._work = SiteWork.of(told_job, self.name, train, validation, self._own, (digest_of_told(content),))

    def _rows(self, agreed: Agreed, X: Any, labels: Any) -> SiteRows:
        return SiteRows(X, *numbers_of(self.job, agreed.classes, labels))

    def ready_for(self, stage: str, content: Any) -> bool:
        """Whether this site has been told all that it needs to know for this."""
        if stage == WAIT:
            return self._work is not None
        if stage == DONE:
            return self.agreed is not None
        if stage == "task":
            return isinstance(self._work, Surveyor if content[0] == SURVEY else SiteWork)
        return stage in (WHO, REFUSED) or self._work is not None

    def answer(self, stage: str, serial: int, content: Any) -> Any:
        """Answer a stage of a sum."""
        if self._work is None:
            raise ProtocolError("the server asks before it has told who takes part")
        if stage == "task":
            self._turn, found = self._work.begin(serial, content)
            return found
        return going_on(self._turn, stage, serial, content)

    def effort(self, stage: str, content: Any) -> float:
        """Return how many numbers a task touches, for the virtual clock."""
        work = self._work
        return work.effort(content) if stage == "task" and isinstance(work, SiteWork) and content[0] != SURVEY else 0.0
