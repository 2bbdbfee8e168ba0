"""Numbers that a label holder tells everybody, such as the step size, are not believed without a look."""

from __future__ import annotations

import math

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import ProtocolError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 4))
PARTIES = cn.split(X, (X[:, 0] > 0).astype(int), into=2)


class Telling(cn.Simulation):
    """The first party tells something else at one step."""

    def __init__(self, step, told):
        super().__init__()
        self.step, self.told = step, told

    def run(self, programs, observer=None, *more):
        program, arguments = programs["party1"]

        async def told(net, *given):
            send = net.send

            async def another(to, tag, value, *rest, **options):
                return await send(to, tag, self.told if tag == self.step else value, *rest, **options)

            net.send = another
            return await program(net, *given)

        return super().run({**programs, "party1": (told, arguments)}, observer, *more)


@pytest.mark.parametrize("step", ["auto", "theorem"])
@pytest.mark.parametrize(
    "told",
    [(math.nan, 1.0), (0.0, 1.0), (-1.0, 1.0), (math.inf, 1.0), (0.1, 2.0), (0.1, math.nan), (0.1,), 0.1],
)
def test_a_step_size_that_cannot_be_is_refused(step, told):
    algorithm = cn.FedSGD(step=step, schedule="constant", epochs=1, batch=20)
    model = cn.LogisticRegression(algorithm=algorithm, verbose=0)
    with pytest.raises(ProtocolError, match="'party1' must tell a finite number above 0 and one from 0 to 1 at step"):
        model.fit(*PARTIES, on=Telling("step size", told))


@pytest.mark.parametrize("told", [math.nan, math.inf, 1.0, -3.0, 4, "all"])
def test_a_number_of_columns_that_cannot_be_is_refused(told):
    model = cn.LogisticRegression(algorithm=cn.FDML(asynchronous=False, epochs=1, batch=20), verbose=0)
    with pytest.raises(ProtocolError, match="'party1' must tell how many columns all have at 'all columns'"):
        model.fit(*PARTIES, on=Telling("all columns", told))


@pytest.mark.parametrize("told", [None, True, (True, True), (True, True, 0), (1, 1, 0), ("no", True, False)])
def test_a_verdict_that_is_not_three_bools_is_refused(told):
    model = cn.LogisticRegression(algorithm=cn.VFB2(asynchronous=False, epochs=1, batch=20), verbose=0)
    with pytest.raises(ProtocolError, match="'party1' must tell three bools at step 'verdict'"):
        model.fit(*PARTIES, on=Telling("verdict", told))


def test_a_first_verdict_does_not_send_anybody_back():
    model = cn.LogisticRegression(algorithm=cn.FedSGD(epochs=1, batch=20), verbose=0)
    with pytest.raises(ProtocolError, match="'party1' goes back at step 'verdict', where nothing was evaluated before"):
        model.fit(*PARTIES, on=Telling("verdict", (False, False, False)))
