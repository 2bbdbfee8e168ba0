"""The ClientApp, in which a site answers what the strategy asks.

A ClientApp's process may end after every message. What a site must remember from one stage of a sum to the next, its
keys and its own part, is kept in Flower's `context.state`, which never leaves the node.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from colonnade.data.site import Site, common_classes
from colonnade.errors import ColonnadeError, DataError, OptionError, ProtocolError
from colonnade.horizontal.answering import Own, Turn, going_on
from colonnade.horizontal.bringing import part_of
from colonnade.horizontal.messages import Make, instruction
from colonnade.horizontal.row_keys import RowKeys
from colonnade.horizontal.site_work import SiteRows, SiteWork
from colonnade.objective.expressions import RowFunction
from colonnade.runtimes.wire import decode, encode
from colonnade.sums.dropout import Member

_STATE = "colonnade"
_RECORD, _KEY = "colonnade", "value"
Load = Callable[[Context], Site]


# A Flower message carries one value in Colonnade's own codec: nothing is pickled, and bits stay bits.


def packed(value: Any) -> RecordDict:
    """Return a value as the content of a Flower message."""
    return RecordDict({_RECORD: ConfigRecord({_KEY: encode(value)})})


def unpacked(message: Message) -> Any:
    """Return the value that a Flower message carries."""
    try:
        data = message.content.config_records[_RECORD][_KEY]
    except (KeyError, ValueError):
        raise ProtocolError("a Flower message without Colonnade's record; both sides need colonnade.flower") from None
    return decode(bytes(data))


def client_app(
    load: Load, *, plain: bool = False, network: Make | None = None, functions: Sequence[RowFunction] = ()
) -> ClientApp:
    """Return a ClientApp for one site.

    Parameters
    ----------
    load
        A function of Flower's context that returns the `Site`; it is called once in a process.
    plain
        Whether this site also answers a server that asks for its part in the clear (`sum="plain"`, or a single site).
    network
        The function make(features, classes) -> torch.nn.Module, where the strategy has one. It is this site's own: the
        server tells the shapes of its parameters, and never what to call.
    functions
        The functions of rows that the strategy's objective and constraints have, in the order in which they name them.
        They are this site's own as well: the server tells their numbers.
    """
    app, held = ClientApp(), _Held(load, plain, network, tuple(functions))

    def answer(message: Message, context: Context) -> Message:
        try:
            found: tuple[Any, ...] = ("answer", _answer(held, unpacked(message), context))
        except ColonnadeError as error:  # told in words, as the server can't see this process
            found = ("error", type(error).__name__, str(error))
        return Message(packed(found), reply_to=message)

    for kind in (app.train, app.evaluate, app.query):
        kind()(answer)
    return app


class _Held:
    """The sites of this process by node, since a simulation runs many nodes in one process."""

    def __init__(self, load: Load, plain: bool, network: Make | None, functions: tuple[RowFunction, ...]) -> None:
        self._load, self.plain, self.network, self._sites = load, plain, network, dict[tuple[int, int], Site]()
        self.functions = functions

    def site(self, context: Context) -> Site:
        key = (context.run_id, context.node_id)
        if key not in self._sites:
            found = self._load(context)
            if not isinstance(found, Site):
                raise DataError(f"load_site must return a colonnade.Site, got {type(found).__name__}")
            self._sites[key] = found
        return self._sites[key]


def _answer(held: _Held, message: Any, context: Context) -> Any:
    if not isinstance(message, tuple) or len(message) != 4:
        raise ProtocolError(
            "the server's message is not one of colonnade.flower; use one version of colonnade everywhere"
        )
    *asked, job = message
    if asked[0] == "hello":
        return _introduction(held.site(context), context)
    stage, serial, content = instruction(tuple(asked))
    if stage != "task":
        turn = _thawed(context, held.site(context))
        answer = going_on(turn, stage, serial, content)
        if turn is not None:
            _keep(turn, context)
        return answer
    if not isinstance(job, tuple) or len(job) != 4:
        raise ProtocolError("the server tells no job with its task; use one version of colonnade everywhere")
    told, *about = job
    site = held.site(context)
    classes, rows = _labels(about)
    common_classes([site], classes)  # refuses labels that are not among them
    part = SiteRows.from_value(part_of(site, np.asarray(classes), rows))
    own = Own(held.network, site.identity, site.roster, held.functions, site.min_rows)
    work = SiteWork.of(told, site.name, part, None, own, tuple(about))
    if not work.threshold and not held.plain:
        raise OptionError(
            f"site {site.name!r} answers under masks only, and the server asks for its part in the clear; leave "
            f"sum='plain' out, or start the site with client_app(load, plain=True)"
        )
    turn, answer = work.begin(serial, content)
    if turn is not None:
        _keep(turn, context)
    return answer


def _labels(about: list[Any]) -> tuple[tuple[Any, ...], RowKeys]:
    """Return classes and what costs are about, if that is what the server tells, and refuse anything else."""
    classes, keys, grouped = about
    plain = (int, float, bool, str)
    tuples = [isinstance(one, tuple) for one in (classes, keys)]
    if not all(tuples) or not all(isinstance(one, plain) for one in (*classes, *keys)) or type(grouped) is not bool:
        raise ProtocolError("the server's classes and groups can't be read; use one version of colonnade everywhere")
    return classes, RowKeys(keys, grouped)


def _introduction(site: Site, context: Context) -> Any:
    """Return what a site says of itself: its place, its name, how many columns it has, and a digest of their names."""
    names = "\n".join(site.columns) if site.named else ""
    place = context.node_config.get("partition-id", -1)
    digest = hashlib.sha256(names.encode()).hexdigest() if site.named else ""
    return (int(place), site.name, site.features, digest)


def _keep(turn: Turn, context: Context) -> None:
    state = {key: tuple(v.items()) if isinstance(v, dict) else v for key, v in turn.member.freeze().items()}
    context.state[_STATE] = ConfigRecord({"turn": encode((tuple(state.items()), turn.value, turn.parts))})


def _thawed(context: Context, site: Site) -> Turn | None:
    if _STATE not in context.state.config_records:
        return None
    kept: Any = decode(bytes(context.state.config_records[_STATE]["turn"]))  # type: ignore[arg-type]
    return Turn(Member.thaw(dict(kept[0]), site.identity, site.roster), *kept[1:])
