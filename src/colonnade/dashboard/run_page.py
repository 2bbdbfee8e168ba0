"""The page of one run: how it stands while it goes on, and how it went."""

from __future__ import annotations

import math
from collections.abc import Mapping

from colonnade.dashboard.charts import CurveLine, bytes_text, chart
from colonnade.dashboard.frame import OFTEN, SELDOM, PageBody
from colonnade.dashboard.pieces import (
    Html,
    Links,
    bar,
    block,
    clock_time,
    duration,
    element,
    empty,
    facts,
    joined,
    mark,
    moment,
    number,
    panel,
    size,
    table,
    tile,
    tiles,
    trouble,
)
from colonnade.dashboard.run_course import KILLED, LIVE, Phase, RunCourse
from colonnade.events.event import DONE, FAILED, STOPPED
from colonnade.versions.identity import short

_SAID = 60  # sentences that are shown
_PHASES, _DIGITS = 40, 16
_AGAIN = "Start the same command again; between sites the others go on, or wait for who asks."
_STATES = {
    LIVE: "live", DONE: "done", FAILED: "failed", STOPPED: "stopped", KILLED: "killed",
}  # fmt: skip


def run_page(name: str, course: RunCourse, links: Links, *, alive: bool, now: float) -> PageBody:
    """Return the page of a run."""
    state = course.state(alive=alive)
    job = str(course.facts.get("job", ""))
    live = state == LIVE
    until = now if live else course.ended_at or course.last
    content = joined(
        block("head", _head(course, state, until - course.began)),
        block("state", _state(course, state, links, now), kind="strip"),
        block("figures", _figures(course, live=live)),
        element(
            "div",
            *_charts(course, until),
            block("lines", _lines(course, now, live=live)),
            block("said", _said(course), kind="rest"),
            kind="cards",
        ),
    )
    return PageBody(f"{job}: {_STATES[state]}", content, "Overview", OFTEN if live else SELDOM)


def _head(course: RunCourse, state: str, seconds: float) -> Html:
    of = course.facts
    partners = ", ".join(course.lines) or "nobody"
    words = [f"with {partners}", str(of.get("model", "")), str(of.get("algorithm", "")), str(of.get("protection", ""))]
    return joined(
        element("h1", str(of.get("job", "")), " ", mark(_STATES[state])),
        element("p", " · ".join(filter(None, words)), " · began ", moment(course.began), f" · {duration(seconds)}",
                kind="lead"),
    )  # fmt: skip


def _state(course: RunCourse, state: str, links: Links, now: float) -> Html:
    """Return what goes on in one line, with how much of it is done."""
    if state == LIVE:
        return joined(_doing(course, now), "" if course.part is None else bar(course.part, "how much is done"))
    end = course.end or {}
    if state == DONE:
        training = str(end.get("training", ""))
        used = "in use now" if end.get("in_use") is True else "not in use"
        made = links.to(f"version {short(training)}", "versions", training) if training else "a version"
        count = _count(end.get("rows"))
        people = f" with {count} rows of its own" if course.asks else f" of {count} people"
        rows = people if end.get("rows") else ""
        return element("p", "It made ", made, f"{rows}, which is {used}.")
    if state == KILLED:
        words = "Its process is not there any more, and it has said nothing of an end: it was killed, or its machine "
        again = "Start the same commands again at all parties; it goes on from the last epoch."
        return trouble(f"{words}stopped. {_AGAIN if course.asks else again}")
    if state == STOPPED:
        again = "The same commands go on from where all parties were."
        return element("p", f"It was stopped here. {_AGAIN if course.asks else again}")
    return trouble(str(end.get("error") or "it failed; the terminal says more"))


def _doing(course: RunCourse, now: float) -> Html:
    if course.waited_for:
        names = ", ".join(course.waited_for)
        since = duration(now - course.waiting_since)
        at = f" at step “{course.waited_at}”" if course.waited_at else ""
        return element("p", mark("waiting", "warn"), f" for {names}{at}, {since} by now")
    down = [name for name, line in course.lines.items() if not line.up]
    if down and course.round is None and not course.phases:
        return element("p", mark("waiting", "warn"), f" for {', '.join(down)} to join")
    if course.round is None and course.epoch is None and course.phases:
        phase = course.phases[-1]
        return element("p", f"{phase.what}: {phase.words}")
    if course.epoch is not None or course.round is not None:
        left = course.seconds_left
        words = "training" if left is None else f"training, {duration(left)} left at most"
        return element("p", words)
    return element("p", "getting ready")


def _figures(course: RunCourse, *, live: bool) -> Html:
    of, found = course.facts, []
    most, rounds = of.get("epochs"), course.round
    at_most = f"of {_count(most)} at most" if most else ""
    rate = "" if not live or course.rate is None else f"{course.rate:,.0f} a second"
    if course.epoch is not None and course.asks:  # between sites, where what is counted are rounds
        found.append(tile(f"{course.epoch:,}", "rounds", ", ".join(filter(None, (at_most, rate)))))
    elif course.epoch is not None:
        found.append(tile(f"{course.epoch:,}", "epoch", at_most))
    elif course.phases and live:
        last = course.phases[-1]
        found.append(tile(f"{last.done:,}", last.what, f"of {last.total:,}" if last.total else ""))
    if rounds is not None and not course.asks:
        found.append(tile(f"{rounds:,}", "rounds", rate))
    latest = course.latest
    if "loss" in latest:
        held = latest.get("validation_loss")
        found.append(tile(number(latest["loss"], 5), "loss", "" if held is None else f"{number(held, 5)} held out"))
    elif "validation_loss" in latest:
        found.append(tile(number(latest["validation_loss"], 5), "loss", "held out"))
    if "metric" in latest:
        held = latest.get("validation_metric")
        more = "" if held is None else f"{number(held)} held out"
        found.append(tile(number(latest["metric"]), course.metric_name, more))
    elif "validation_metric" in latest:
        found.append(tile(number(latest["validation_metric"]), course.metric_name, "held out"))
    if course.rows is not None:
        found.append(tile(f"{course.rows:,}", "common rows"))
    if course.bytes:
        found.append(tile(size(course.bytes), "sent", f"{course.messages:,} messages" if course.messages else ""))
    return tiles(*found) if found else Html("")


def _charts(course: RunCourse, until: float) -> list[Html]:
    points = course.losses.whole
    seconds, rounds, loss, metric, held_loss, held_metric = (
        ([point[place] for point in points] for place in range(6)) if points else ([] for _ in range(6))
    )
    by_rounds = bool(points) and all(map(math.isfinite, rounds))
    x, label = (rounds, "rounds") if by_rounds else (seconds, "seconds")
    sealed = course.facts.get("protection") == "sealed"
    unheard = (
        "Sealed training shows nobody a loss. A label holder that holds rows out sees a metric at the end."
        if sealed
        else f"{course.asks} hears costs as training goes on; a site is told them at the end."
        if course.asks not in ("", course.facts.get("party"))
        else "Only the first label holder hears losses."
        if not course.asks and course.facts.get("party") not in course.holders
        else "It appears with the second evaluation."
    )
    pairs = [CurveLine(x, loss, "s1", "training"), CurveLine(x, held_loss, "s2", "held out")]
    scores = [CurveLine(x, metric, "s1", "training"), CurveLine(x, held_metric, "s2", "held out")]
    sent = course.traffic.whole
    times = CurveLine([at for at, _ in sent], [count for _, count in sent], "s3", "sent")
    found = []
    if points or not sealed:
        found.append(chart("loss", "Loss", pairs, label, empty=unheard))
        found.append(chart("metric", course.metric_name, scores, label, empty=unheard))
    else:
        found.append(_phases(course, unheard, until))
    found.append(
        chart("sent", "Bytes sent", [times], "seconds", y_text=bytes_text, from_zero=True,
              empty="It appears once something was sent in rounds.")
    )  # fmt: skip
    return found


def _phases(course: RunCourse, words: str, until: float) -> Html:
    shown = course.phases[-_PHASES:]
    ends = [*(phase.began for phase in shown[1:]), until]
    took = [max(end - phase.began, 0.0) for phase, end in zip(shown, ends, strict=True)]
    longest = max(took, default=0.0) or 1.0
    rows = [
        (_how_far(phase), bar(seconds / longest, "how long beside the longest"), duration(seconds))
        for phase, seconds in zip(shown, took, strict=True)
    ]
    listed = (
        table(("step", "", "took"), rows, caption="steps", texts=(0, 1))
        if rows
        else element("p", "No step has begun yet.", kind="quiet")
    )
    return block("phases", panel("Steps", element("p", words, kind="quiet"), listed))


def _how_far(phase: Phase) -> str:
    if phase.words[:1].isalpha():
        return phase.words
    return f"{phase.what}: {phase.words or f'{phase.done:,}'}"


def _lines(course: RunCourse, now: float, *, live: bool) -> Html:
    sent = (course.end or {}).get("sent")
    sent = sent if isinstance(sent, Mapping) else {}
    rows: list[tuple[object, ...]] = []
    for name, line in course.lines.items():
        if not live:
            rows.append((name, size(sent[name]) if isinstance(sent.get(name), int) else "–"))
        elif line.up is None:
            rows.append((name, mark("not there yet", "quiet"), ""))
        else:
            word = mark("up", "good") if line.up else mark("down", "bad")
            why = "" if line.up or not line.why else f", {line.why}"
            rows.append((name, word, f"{duration(now - line.since)}{why}"))
    header = ("partner", "line", "since") if live else ("partner", "sent")
    whole = table(header, rows, caption="partners", texts=(0, 1, 2) if live else (0,))
    of = course.facts
    names = (("digest of the job", "digest"), ("run", "run"))
    more = facts((name, str(of[key])[:_DIGITS]) for name, key in names if of.get(key))
    return panel("Partners", whole, more)


def _said(course: RunCourse) -> Html:
    if not course.said:
        return panel("What it said", empty("Nothing so far."))
    lines = list(course.said)[-_SAID:][::-1]
    found = joined(
        *(
            element("li", clock_time(at), mark("note", "warn") if warned else "", element("span", words.strip()))
            for at, words, warned in lines
        )
    )
    return panel("What it said", element("ol", found, kind="said", tabindex="0", aria_label="what the run said"))


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "–"
