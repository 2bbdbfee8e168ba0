"""FDML: every party has a model of its own, and the parties' predictions are averaged.

Hu, Niu, Yang, Zhou: "FDML: A Collaborative Machine Learning Framework for Distributed Features", KDD 2019, in the form
in which AFSGD-VP (Gu et al., TNNLS 2021, Section V-C) compares itself with it: the parties' models are logistic or
softmax, a server predicts p = sum_l a_l alpha(w_l, x_l) with a_l = d_l / d (equation 23), and the cross-entropy of p is
minimised (equation 24). With one party that is the ordinary model. With several it is another and weaker one: p lies
between what the single parties predict, so their evidence is never added up. It is here for comparison.

The server is the one label holder, and predictions go through the secure sum like any other contribution. The stale
synchronous parallel of FDML is the bounded flow of `vfb2`: at most `max_staleness` batches are under way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import ClassVar, cast

import numpy as np

from colonnade.algorithms.vfb2 import SUMMED, VFB2, BackwardUpdating
from colonnade.blocks import FloatArray, Rows
from colonnade.blocks.prediction import PredictionBlock
from colonnade.blocks.rules import Rule
from colonnade.engine.session import Session, session_leaks
from colonnade.errors import OptionError, ProtocolError
from colonnade.flows.asynchrony import Given
from colonnade.leaks import Leak, Setting, columns, contributions, signals
from colonnade.objective.losses import Loss

# How much longer an "auto" step starts under a falling schedule. Measured on two data sets with one to eight parties:
# a fourth of it leaves the objective far from the optimum after 30 epochs, four times as much throws it about.
_FALLING = 4.0


@dataclass(frozen=True)
class FDML(VFB2):
    """SGD on every party's own classifier, through the weighted mean of all predictions; exactly one label holder.

    Parameters
    ----------
    estimator : {"sgd"}
        FDML has no other update rule.
    asynchronous, max_staleness, threads, flow, behind, snapshot_every, table, **training
        As in `VFB2`, but the flow is always "bounded", what is for SVRG and SAGA is refused, and the schedule is FDML's
        own by default, "sqrt": eta0 / sqrt(t).
    """

    estimator: str = "sgd"
    schedule: str = field(default="sqrt", kw_only=True)

    name: ClassVar[str] = "FDML"
    family: ClassVar[str] = "averaged"

    def __post_init__(self) -> None:
        if self.estimator != "sgd":
            raise OptionError(f"FDML's estimator must be 'sgd', got {self.estimator!r}; leave it out, or use VFB2")
        super().__post_init__()
        if self.flow != "bounded":
            raise OptionError(f"FDML's flow must be 'bounded', got {self.flow!r}; leave it out, or use VFB2")

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Predictions there, signals back. Of two, who has the other's prediction has its score, which is linear.

        A sum of several parties' predictions is not linear in their columns: nothing follows from many of them.
        """
        of = setting if setting.pair else replace(setting, model="predictions")
        numbers, everybody = self.numbers_per_row(setting), setting.parties
        return (
            *session_leaks(setting, self),
            *self.pace_leaks(setting),
            *contributions(of, numbers, SUMMED),
            *signals(of, self._signalled(setting)),
            columns(setting, everybody, ("columns", "all columns")),
        )

    @property
    def label(self) -> str:
        """FDML has no variants worth telling apart."""
        return self.name

    def boldness(self, loss: Loss) -> float:
        """A step that falls by itself starts longer: after a hundred rounds only a tenth of it is left."""
        return super().boldness(loss) * (_FALLING if self.schedule in ("sqrt", "sqrt-parties") else 1.0)

    async def prepare(self, session: Session) -> None:
        """Agree on the shares a_l = d_l / d, on which the step size depends."""
        block = cast("PredictionBlock", session.block)
        # Only the sum is told: with masks and three or more parties, nobody's number of columns is.
        mine = float(block.columns.shape[1])
        total = await session.sum.total_wide("columns", np.array([mine]), session.leader)
        if total is None:
            d = await session.hear(session.leader, "all columns")
            if type(d) is not float or not mine <= d < inf:
                raise ProtocolError(f"party {session.leader!r} must tell how many columns all have at 'all columns'")
        else:
            d = float(total[0])
            await session.tell("all columns", d)
        block.share = mine / d

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        await self.run(OwnModel(session, Rule("sgd", session.block)))


class OwnModel(BackwardUpdating):
    """What goes backward is dL/dp; each party makes of it the signal of its own model."""

    async def dominate(self, rows: Rows, scores: FloatArray) -> Given:
        """Send dL/dp to everybody."""
        return self._through(await super().dominate(rows, scores))

    async def collaborate(self, holder: str, rows: Rows) -> Given | None:
        """Receive dL/dp from the server."""
        given = await super().collaborate(holder, rows)
        return None if given is None else self._through(given)

    def _through(self, given: Given) -> Given:
        block = cast("PredictionBlock", self.session.block)
        return given._replace(signal=block.local_signal(given.rows, given.signal))
