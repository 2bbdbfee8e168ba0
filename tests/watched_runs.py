"""Events of a run that never was, for tests of what follows runs."""

from __future__ import annotations

from colonnade.events.event import Event

BEGAN = 1_700_000_000.0


def a_run(how="done", *, epochs=3, hears=True, rounds=25, **ended):
    """Return the events of a run of `epochs` evaluations, each after as many rounds, a second apart."""
    found = [
        Event("started", BEGAN, {
            "run": "00c0ffee00c0ffee", "job": "loans", "digest": "d1g357", "party": "bank", "partners": ["shop"],
            "holders": ["bank"], "protection": "masked", "model": "LogisticRegression", "version": "0.2.0",
        }),
        Event("waiting", BEGAN + 1, {"partners": ["shop"], "step": "joining"}),
        Event("waiting", BEGAN + 3, {"partners": [], "step": "joining"}),
        Event("progress", BEGAN + 4, {"what": "aligning", "done": 5, "total": 10, "words": "5 of 10 ids"}),
        Event("aligned", BEGAN + 5, {"rows": 300}),
    ]  # fmt: skip
    for number in range(epochs):
        at, sent = BEGAN + 6 + number, {"bytes": 1000 * (number + 1), "messages": 10 * (number + 1)}
        seconds = {"seconds": at - BEGAN}
        found.append(Event("round", at, {"epoch": number + 1, "round": rounds * (number + 1), **sent, **seconds}))
        told = {"loss": 1 / (number + 2), "metric": 0.6 + number / 100, "metric_name": "auc"} if hears else {}
        held_out = {"validation_loss": 0.5, "validation_metric": 0.55} if hears else {}
        record = {"number": number, "epoch": number + 1, "round": rounds * (number + 1), **told, **held_out}
        found.append(Event("record", at + 0.5, {**record, **sent, **seconds}))
    training = {"training": "7ra1n1n6", "rows": 240, "held_out": 60} if how == "done" else {}
    totals = {"rounds": rounds * epochs + 2, "bytes": 1000 * epochs + 7, "messages": 10 * epochs + 1}
    ended = {"seconds": 20.0, "sent": {"shop": totals["bytes"]}, **ended}
    return [*found, Event("ended", BEGAN + 20, {"how": how, **training, **totals, **ended})]


def told(writer, events):
    """Give a writer the events as its mailbox would."""
    for event in events:
        writer.take(event)
    writer.flush()
    return writer
