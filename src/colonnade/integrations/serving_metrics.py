"""What `colonnade serve --http` counts of itself, for `GET /metrics`.

No label tells anything of a person or of a caller, and each has a handful of values, whatever is asked: an unknown path
is `other`, and reasons of refusals are those of the table below.
"""

from __future__ import annotations

import threading
from collections import Counter

from colonnade.integrations.prometheus_text import Histogram, Metric, Sample, metrics_text

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
PATHS = ("/score", "/health", "/metrics", "/openapi.json")
_OTHER = "other"
BUSY, PARTNERS = "busy", "partners"
# Why a request for scores gets none, by the status of the answer; 503 has two reasons, of which the caller tells one.
_REASONS = {400: "request", 401: "token", 408: "late", 411: "length", 413: "length", 429: "policy"}


class ServingMeter:
    """Counts requests and people, from many threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._refused: Counter[str] = Counter(dict.fromkeys((*sorted({*_REASONS.values()}), BUSY, PARTNERS), 0))
        self._seconds = Histogram(_BOUNDS)
        self._scored = self._unknown = self._partners = 0
        self._version, self._trained = "", 0.0

    def answered(self, path: str, status: int, seconds: float, reason: str | None = None) -> None:
        """Count an answer; `reason` is why there are no scores, where the status does not tell."""
        place = path if path in PATHS else _OTHER
        with self._guard:
            self._requests[place, str(status)] += 1
            if place == "/score":
                self._seconds.add(seconds)
                reason = reason or _REASONS.get(status)
                if reason is not None:
                    self._refused[reason] += 1

    def scored(self, people: int, unknown: int) -> None:
        """Count people of whom there is a score, and those whom not every party knows."""
        with self._guard:
            self._scored += people
            self._unknown += unknown

    def joined(self, partners: int, version: str, trained: float) -> None:
        """Note how many partners are there, with which version, and when that was trained, in seconds of UNIX time."""
        with self._guard:
            self._partners, self._version, self._trained = partners, version, trained

    def left(self) -> None:
        """Note that the partners are gone."""
        with self._guard:
            self._partners = 0

    def text(self) -> str:
        """Return all of it as Prometheus reads it."""
        with self._guard:
            requests = tuple(
                Sample(count, {"path": path, "status": status})
                for (path, status), count in sorted(self._requests.items())
            )
            refused = tuple(Sample(count, {"reason": reason}) for reason, count in sorted(self._refused.items()))
            version = (Sample(1, {"version": self._version}),) if self._version else ()
            trained = (Sample(self._trained),) if self._trained else ()
            return metrics_text(
                (
                    Metric("colonnade_http_requests_total", "counter", "Answers, by path and status.", requests),
                    Metric("colonnade_refused_total", "counter", "Requests without scores, by reason.", refused),
                    Metric(
                        "colonnade_score_seconds", "histogram", "From a request's head to its answer, for /score.",
                        self._seconds.samples(),
                    ),
                    Metric("colonnade_scored_people_total", "counter", "People with a score.", (Sample(self._scored),)),
                    Metric(
                        "colonnade_unknown_people_total", "counter", "People whom not every party knows and serves.",
                        (Sample(self._unknown),),
                    ),
                    Metric(
                        "colonnade_partners_connected", "gauge", "Partners who are there; 0 while any is away.",
                        (Sample(self._partners),),
                    ),
                    Metric("colonnade_model_info", "gauge", "The version in use, as a label.", version),
                    Metric(
                        "colonnade_model_trained_timestamp_seconds", "gauge", "When that version was trained.", trained
                    ),
                )
            )  # fmt: skip
