"""OpenTelemetry: a trace of a run, with spans of waiting, of the alignment and of its rounds.

    run                     job, party, protection; how it ended
    ├─ waiting              for whom, at which step
    ├─ alignment            how many rows all have in common
    └─ training             evaluations are its events
       ├─ rounds 1-25       bytes and messages that left in them
       └─ rounds 26-50

Of a long run neighbouring rounds share a span, so that a trace has a few thousand at most. Every party has a trace of
its own; the id of the training, which all of them carry, says which belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from colonnade import __version__
from colonnade.events.event import ALIGNED, DONE, ENDED, PROGRESS, RECORD, ROUND, STARTED, WAITING, Event
from colonnade.integrations.mailbox import WriterFailed

_WHOLE = 500  # spans of rounds before neighbours are put together
_AT_ONCE = 200  # spans in one request
_TIMEOUT = 5.0  # seconds for one request
_PATH = "/v1/traces"


class OtelTrace:
    """A writer that exports spans.

    Parameters
    ----------
    exporter
        One of OpenTelemetry's span exporters.
    facts
        The parameters of the job, which the span of the run carries.
    """

    def __init__(self, exporter: Any, facts: Mapping[str, str]) -> None:
        self._exporter, self._facts = exporter, facts
        self._done: list[Any] = []
        self._tracer: Any = None
        self._open: dict[str, Any] = {}
        self._count, self._began = 0, 0.0
        self._piece: dict[str, Any] = {}  # where the rounds began that have no span yet

    def take(self, event: Event) -> None:
        """Take an event."""
        data = event.data
        if event.kind == STARTED:
            self._start(event)
        elif event.kind == WAITING:
            self._close("waiting", event.at)
            if data.get("partners"):
                told = {"colonnade.partners": ", ".join(data["partners"]), "colonnade.step": str(data.get("step", ""))}
                self._begin("waiting", event.at, told)
        elif event.kind == PROGRESS and data.get("what") in _PHASES:
            _PHASES[data["what"]](self, event.at)
        elif event.kind == ALIGNED:
            self._align(event.at)
            self._close("alignment", event.at, {"colonnade.common_rows": data.get("rows")})
            self._train(event.at)
        elif event.kind == ROUND:
            self._train(event.at)
            self._round(event)
        elif event.kind == RECORD:
            self._train(event.at)
            told = {f"colonnade.{key}": value for key, value in data.items() if value is not None}
            self._open["training"].add_event("evaluation", told, _ns(event.at))
        elif event.kind == ENDED:
            self._end(event)

    def flush(self) -> None:
        """Send the spans that have ended."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        while self._done:
            some = self._done[:_AT_ONCE]
            del self._done[:_AT_ONCE]
            if self._exporter.export(some) is not SpanExportResult.SUCCESS:
                raise WriterFailed("the collector does not take the spans")

    # -- spans --------------------------------------------------------------------------------------------------

    def _start(self, event: Event) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

        done = self._done.append

        class Collecting(SpanProcessor):  # type: ignore[misc]
            """Keeps spans that have ended until they are sent."""

            def on_end(self, span: Any) -> None:
                done(span)

        about = {"service.name": "colonnade", "service.version": __version__}
        if party := event.data.get("party"):
            about["service.instance.id"] = str(party)
        provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)  # of nobody else's traces
        provider.add_span_processor(Collecting())
        self._tracer, self._began = provider.get_tracer("colonnade", __version__), event.at
        told = {f"colonnade.{key}": value for key, value in self._facts.items()}
        for key in ("job", "party", "run", "digest"):
            if key in event.data:
                told[f"colonnade.{key}"] = str(event.data[key])
        self._begin("run", event.at, told)

    def _begin(self, name: str, at: float, told: Mapping[str, Any] | None = None, parent: str = "run") -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        above = Context() if name == "run" else set_span_in_context(self._open[parent], Context())
        self._open[name] = self._tracer.start_span(name, above, attributes=dict(told or {}), start_time=_ns(at))

    def _close(self, name: str, at: float, told: Mapping[str, Any] | None = None) -> None:
        span = self._open.pop(name, None)
        if span is not None:
            span.set_attributes({key: value for key, value in (told or {}).items() if value is not None})
            span.end(_ns(at))

    def _align(self, at: float) -> None:
        if "alignment" not in self._open and "training" not in self._open:
            self._begin("alignment", at)

    def _train(self, at: float) -> None:
        if "training" not in self._open:
            self._close("alignment", at)
            self._begin("training", at)
            self._piece = {"at": at, "round": 0, "bytes": None, "messages": None}

    def _round(self, event: Event) -> None:
        data, piece = event.data, self._piece
        # Beyond the first, a span lasts at least as long a part of the run as they did on average.
        if self._count >= _WHOLE and event.at - piece["at"] < (event.at - self._began) / _WHOLE:
            return
        self._close_rounds(event.at, data["round"], data)

    def _close_rounds(self, at: float, last: int, data: Mapping[str, Any]) -> None:
        piece = self._piece
        told = {"colonnade.first_round": piece["round"] + 1, "colonnade.last_round": last}
        for key in ("bytes", "messages"):
            if isinstance(data.get(key), int) and isinstance(piece[key], int):
                told[f"colonnade.{key}"] = data[key] - piece[key]
        self._begin("rounds", piece["at"], told, parent="training")
        self._open["rounds"].update_name(f"rounds {piece['round'] + 1}-{last}")
        self._close("rounds", at)
        self._count += 1
        self._piece = {"at": at, "round": last, "bytes": data.get("bytes"), "messages": data.get("messages")}

    def _end(self, event: Event) -> None:
        from opentelemetry.trace import Status, StatusCode

        data, how = event.data, str(event.data.get("how", ""))
        last = data.get("rounds")
        if "training" in self._open and isinstance(last, int) and last > self._piece["round"]:
            self._close_rounds(event.at, last, data)
        for name in [name for name in self._open if name != "run"]:
            self._close(name, event.at)
        if how == DONE:
            self._open["run"].set_status(Status(StatusCode.OK))
        else:
            self._open["run"].set_status(Status(StatusCode.ERROR, str(data.get("error") or how)))
        keys = ("how", "training", "rows", "held_out", "rounds", "bytes", "messages")
        self._close("run", event.at, {f"colonnade.{key}": data.get(key) for key in keys})


_PHASES: dict[str, Callable[[OtelTrace, float], None]] = {  # of which progress is told
    "aligning": OtelTrace._align,
    "sealed training": OtelTrace._train,
}


def exporter_to(address: str) -> Any:
    """Return an exporter to a collector that takes OTLP over HTTP; its headers come from OpenTelemetry's variables."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=address.rstrip("/").removesuffix(_PATH) + _PATH, timeout=_TIMEOUT)


def _ns(at: float) -> int:
    return round(at * 1e9)
