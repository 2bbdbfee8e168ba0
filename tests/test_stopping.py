"""Who decides that training stops: the leader's verdicts, and what every party makes of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import colonnade as cn
from colonnade.engine.stopping import Stopping


class Block:
    """Parameters that are one number."""

    def __init__(self):
        self.value = 0.0

    def state(self, into=None):
        return self.value

    def restore(self, state):
        self.value = state


def stopping(elapsed=0.0, affords=True, validated=False, **options):
    traffic = SimpleNamespace(rounds=0, messages=0, bytes=0)
    reports = []
    net = SimpleNamespace(
        traffic=traffic, report=reports.append, elapsed=lambda: elapsed, names=("a", "b"), watcher=None
    )
    allowance = SimpleNamespace(affords=lambda numbers: affords, used=3.0, most=4.0)
    made = Stopping(net, cn.FedSGD(**options), Block(), allowance, validated=validated)
    made.eta0, made.reports = 1.0, reports
    return made


def judged(made, objective, metric=0.5, held_out=None):
    extra = [] if held_out is None else [held_out, metric, 1.0]
    return made.judge(1, np.array([0.0, objective, metric, 1.0, *extra]), ahead=1.0)


def followed(made, *objectives):
    """Verdicts on one evaluation after another, each heeded; the first is that of the start."""
    found = []
    for objective in objectives:
        made.net.traffic.rounds += 1
        made.block.value = objective
        found.append(judged(made, objective))
        made.heed(*found[-1][:2])
    return found


def test_it_stops_after_as_many_evaluations_without_progress_as_patience_has():
    verdicts = followed(stopping(tol=0.01, patience=2), 1.0, 0.5, 0.499, 0.2, 0.199, 0.1999)
    assert [stop for *_, stop in verdicts] == [False] * 5 + [True]
    assert [best for best, *_ in verdicts] == [True, True, True, True, True, False]
    assert not any(stop for *_, stop in followed(stopping(tol=None, patience=2), *[1.0] * 30))


@pytest.mark.parametrize(
    ("made", "objective", "stop"),
    [
        (stopping(goal=0.3), 0.3, True),
        (stopping(goal=0.3), 0.31, False),
        (stopping(metric_goal=0.5), 1.0, True),
        (stopping(metric_goal=0.51), 1.0, False),
        (stopping(seconds=2.0, elapsed=2.0), 1.0, True),
        (stopping(seconds=2.0, elapsed=1.9), 1.0, False),
        (stopping(affords=False), 1.0, True),
    ],
)
def test_other_reasons_to_stop(made, objective, stop):
    assert judged(made, objective)[2] is stop


def test_a_run_that_ends_for_want_of_numbers_says_so():
    short, enough = stopping(affords=False), stopping()
    assert short.ends(True, 1.0)
    assert enough.ends(True, 1.0)
    assert not short.ends(False, 1.0)
    assert short.reports == [("budget spent", 3.0, 4.0)]
    assert not enough.reports


def test_a_step_that_brought_nothing_is_taken_back_and_the_next_is_shorter():
    made = stopping()
    followed(made, 1.0, 0.5, 0.7)
    assert made.block.value == 0.5
    assert made.eta0 == pytest.approx(0.7)
    searching = stopping()
    followed(searching, 1.0, 5.0)  # no step has helped yet: a first one that does is found quickly
    assert searching.eta0 == pytest.approx(0.25)
    constant = stopping(schedule="constant")
    followed(constant, 1.0, 0.5, 0.7)
    assert (constant.block.value, constant.eta0) == (0.7, 1.0)


def test_with_validation_data_the_loss_there_counts():
    made = stopping(validated=True, tol=0.01, patience=1, schedule="constant")
    verdicts = []
    for objective, held_out in ((1.0, 1.0), (0.5, 0.8), (0.2, 0.9)):
        verdicts.append(judged(made, objective, held_out=held_out))
        made.block.value = objective
        made.heed(*verdicts[-1][:2])
    assert [stop for *_, stop in verdicts] == [False, False, True]
    assert made.parameters() == 0.5


def test_what_is_kept_is_all_that_the_next_verdict_depends_on():
    one, two = stopping(tol=0.01, patience=2), stopping(tol=0.01, patience=2)
    followed(one, 1.0, 0.5, 0.499)
    two.thaw(one.freeze())
    assert [judged(one, 0.4985), one.eta()] == [judged(two, 0.4985), two.eta()]
