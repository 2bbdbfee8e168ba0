"""The strategy, which drives the server logic of `horizontal.conduct` with Flower's grid as the carrier.

Flower's own loop exchanges one message per node and round. A masked sum takes five, so `start` has a loop of its own,
in which `configure_train` and `aggregate_train` (and their twins for evaluations) each do one exchange.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from colonnade import errors
from colonnade.errors import ColonnadeError, DataError, PartySilent, whole_number
from colonnade.estimators.horizontal import SSCAClassifier
from colonnade.flower.client import packed, unpacked
from colonnade.horizontal.conduct import Result as Ended
from colonnade.horizontal.conduct import ServerJob, conduct
from colonnade.horizontal.gathering import Heard, Task, gather
from colonnade.horizontal.messages import model_from_value

_LOOK_EVERY = 0.2  # seconds between two looks at which nodes are there
PARAMETERS = "parameters"
# The kinds of errors that a site may report, which are looked up here and nowhere else.
_ERRORS = {
    kind.__name__: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ColonnadeError)
}


class SSCAStrategy(Strategy):
    """Mini-batch SSCA, with or without limits on the cost, or another of Colonnade's algorithms over rows.

    It is public as `colonnade.flower.SSCA`. After `start`, `classifier()` returns the trained model.

    Parameters
    ----------
    sites
        How many nodes take part.
    classes
        All values that labels take, at all sites.
    groups
        Whether the keys of a `cost_limit` that is a dict, and of costs in `objective` and `constraints`, are groups
        rather than classes.
    **options
        The other options are those of `colonnade.SSCAClassifier`.
    """

    def __init__(self, *, sites: int, classes: Iterable[Any], groups: bool = False, **options: Any) -> None:
        whole_number("sites", sites, 1)
        self.sites, self._classes = sites, np.unique(np.asarray(list(classes)))
        self._model = SSCAClassifier(**{"verbose": 0, **options, "classes": self._classes.tolist()})
        self.method = self._model.check_options(sites)
        self._stated = self._model.statement(groups)
        if not groups:
            self._stated.rows.check_known(self._classes)
        self.ended: Ended | None = None
        self._nodes: dict[int, int] = {}  # number of a site: its node
        self._server_job: ServerJob | None = None
        self._asked: tuple[str, dict[int, Any]] = ("", {})
        self._answers: dict[int, Any] = {}
        self._job: tuple[Any, ...] = ()
        self._serial, self._columns, self._last = 0, 0, 0

    def summary(self) -> None:
        """Log what is about to run."""
        log(INFO, "\t├── %r", self._model)
        log(INFO, "\t└── %d sites, classes %s", self.sites, self._model.classes)

    # -- the run ------------------------------------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Train over the nodes of a grid.

        Parameters
        ----------
        grid
            Flower's connection to the nodes.
        initial_arrays
            The first parameters; by default those of the model's own start.
        num_rounds
            How many rounds; by default as many as the algorithm says.
        timeout
            Seconds that nodes may take to join, and to answer where the algorithm has no `wait`.
        train_config, evaluate_config
            These would reach no function of a user's, and are refused.
        evaluate_fn
            Called with the round and its parameters at every evaluation, as in Flower's own strategies.

        Returns
        -------
        Result
            Flower's result, with the last parameters and the metrics by round.
        """
        if train_config or evaluate_config:
            raise errors.OptionError("train_config and evaluate_config have no reader here; give options to SSCA(...)")
        log(INFO, "Starting %s over Colonnade:", self.method.name)
        self.summary()
        if num_rounds is not None:
            self.method = self._model.algorithm = replace(self.method, rounds=num_rounds)
        job, self._last = self._meet(grid, timeout), 0
        self._server_job = job
        model = model_from_value(job.model, self._model.network, "the server")
        first = None if initial_arrays is None else _flat(initial_arrays, model.size)
        result, wait = Result(), self.method.wait or timeout
        own = self._stated.parameter_functions
        run = conduct(job, model, lambda said: self._note(result, said), first, own)
        task = next(run)
        while True:
            heard = self._sum(grid, task, wait)
            if task.kind == "evaluate" and evaluate_fn is not None:
                found = evaluate_fn(self._last, _record(task.content[1]))
                if found is not None:
                    result.evaluate_metrics_serverapp[self._last] = found
            try:
                task = run.send(heard)
            except StopIteration as end:
                self.ended = end.value
                break
        result.arrays = _record(self.ended.parameters)
        if job.limits and not self.ended.met:
            log(WARNING, "%s", self._stated.sentence(self.ended.costs, self.ended.slack, self._last, self.method.wait))
        if self.ended.skipped:
            log(WARNING, "Rounds %s were skipped: too few sites answered", list(self.ended.skipped))
        return result

    @property
    def _known(self) -> ServerJob:
        if self._server_job is None:
            raise errors.NotFittedError("this strategy has not met its nodes; call start(grid) first")
        return self._server_job

    def _sum(self, grid: Grid, task: Task, wait: float) -> Heard:
        """Collect one sum, each stage of which is one exchange with some nodes."""
        self._serial += 1
        stages = gather(self._known.sites, self._known.threshold, task)
        self._asked = next(stages)
        nothing, evaluation = ArrayRecord(), task.kind == "evaluate"
        while True:
            configure = self.configure_evaluate if evaluation else self.configure_train
            messages = configure(self._serial, nothing, ConfigRecord(), grid)
            replies = grid.send_and_receive(messages, timeout=wait)
            if evaluation:
                self.aggregate_evaluate(self._serial, replies)
            else:
                self.aggregate_train(self._serial, replies)
            try:
                self._asked = stages.send(self._answers)
            except StopIteration as end:
                heard: Heard = end.value
                return heard

    def _note(self, result: Result, said: tuple[Any, ...]) -> None:
        """Keep what the server logic reports in the form of Flower's results."""
        if said[0] == "progress":
            self._last = int(said[1])
        elif said[0] == "record":
            _, _, at, _, cost, accuracy, *_ = said
            result.evaluate_metrics_clientapp[at] = MetricRecord({"cost": float(cost), "accuracy": float(accuracy)})
            log(INFO, "[ROUND %s/%s] cost %.4f, accuracy %.4f", at, self.method.rounds, cost, accuracy)

    # -- who is there -------------------------------------------------------------------------------------------

    def _meet(self, grid: Grid, timeout: float) -> ServerJob:
        """Wait for the nodes, hear who they are, and number them by `partition-id`, or else by name."""
        until, nodes = time.monotonic() + timeout, list(grid.get_node_ids())
        if len(nodes) < self.sites:
            log(INFO, "%d nodes are here, waiting for %d at most %g s", len(nodes), self.sites, timeout)
        while len(nodes) < self.sites:
            if time.monotonic() > until:
                raise PartySilent(f"{len(nodes)} nodes joined in {timeout:g} s, {self.sites} are needed", "", "hello")
            time.sleep(_LOOK_EVERY)
            nodes = list(grid.get_node_ids())
        chosen = sorted(nodes)[: self.sites]
        hello = [Message(packed(("hello", 0, None, None)), node, "query") for node in chosen]
        heard = {reply.metadata.src_node_id: _heard(reply) for reply in grid.send_and_receive(hello, timeout=timeout)}
        missing = [node for node in chosen if heard.get(node) is None]
        if missing:
            raise PartySilent(f"{len(missing)} of {self.sites} nodes did not say who they are", "", "hello")
        order = sorted(chosen, key=lambda node: heard[node][:2])
        names = tuple(str(heard[node][1]) for node in order)
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise DataError(f"the name {twice[0]!r} is used by several sites; every site needs its own")
        first = next((node for node in order if heard[node][3]), order[0])  # one that names its columns, if any does
        for node in order:
            (_, name, count, digest), (_, other, wanted, known) = heard[node], heard[first]
            if count != wanted or (digest and digest != known):
                what = f"other columns than {other!r}" if count == wanted else f"{count} columns, {other!r} {wanted}"
                raise DataError(f"site {name!r} has {what}; all sites need the same columns in the same order")
        self._nodes, self._columns = dict(enumerate(order)), int(heard[order[0]][2])
        self._job = (tuple(self._classes.tolist()), self._stated.rows.keys, self._stated.rows.grouped)
        return self._model.plan(self.method, names, self._columns, len(self._classes), self._stated)

    # -- one exchange -------------------------------------------------------------------------------------------

    def _messages(self, kind: str) -> list[Message]:
        stage, contents = self._asked
        messages = []
        for number, content in contents.items():
            job = (self._known.as_site_job(number), *self._job) if stage == "task" else None
            messages.append(Message(packed((stage, self._serial, content, job)), self._nodes[number], kind))
        return messages

    def _take(self, replies: Iterable[Message]) -> None:
        """Keep what nodes answered; those that dropped out, or whose ClientApp broke, are missing in this sum."""
        numbers = {node: number for number, node in self._nodes.items()}
        self._answers = {}
        for reply in replies:
            answer = _heard(reply)
            if answer is not None:
                self._answers[numbers[reply.metadata.src_node_id]] = answer

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the next exchange of a training sum."""
        return self._messages("train")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the answers of one exchange; parameters come when the sum is complete."""
        self._take(replies)
        return None, None

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of the next exchange of an evaluation's sum."""
        return self._messages("evaluate")

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Take the answers of one exchange; metrics come when the sum is complete."""
        self._take(replies)
        return None

    # -- afterwards ---------------------------------------------------------------------------------------------

    def classifier(self) -> SSCAClassifier:
        """Return the trained model as `SSCAClassifier.fit` leaves it, ready to predict, score and save."""
        if self.ended is None:
            raise errors.NotFittedError("this strategy has not run; call start(grid) first")
        columns = tuple(f"x{j}" for j in range(self._columns))
        self._model.take_result(self._known, self._classes, self._stated, columns, self.ended)
        return self._model


def _heard(reply: Message) -> Any:
    """Return what a node answered, or None if its ClientApp broke; where it refuses, raise with its own sentence."""
    if reply.has_error():
        log(WARNING, "A node did not answer: %s", reply.error.reason)
        return None
    kind, *rest = unpacked(reply)
    if kind == "error":
        raise _ERRORS.get(str(rest[0]), ColonnadeError)(f"a site refuses: {rest[1]}")
    return rest[0]


def _record(parameters: Any) -> ArrayRecord:
    return ArrayRecord({PARAMETERS: Array(np.asarray(parameters))})


def _flat(arrays: ArrayRecord, size: int) -> Any:
    """Return the parameters of a record that `start` returned, or of arrays with as many numbers."""
    found = np.concatenate([np.zeros(0), *(np.ravel(array.numpy()) for array in arrays.values())]).astype(np.float64)
    if len(found) != size or not np.isfinite(found).all():
        raise DataError(
            f"initial_arrays hold {len(found)} numbers, {np.isfinite(found).sum()} of them finite; this model has "
            f"{size} parameters"
        )
    return found
