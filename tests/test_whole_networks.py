"""Torch modules as models over rows: what every site can share is trained, anything else is refused in a sentence."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import OptionError
from horizontal_programs import two_layers

RNG = np.random.default_rng(7)
X = RNG.standard_normal((150, 6))
Y = (X @ RNG.standard_normal((6, 3))).argmax(axis=1)
SITES = cn.split_rows(X, Y, into=3, seed=0)


def model(**options):
    return cn.SSCAClassifier(**{"algorithm": cn.SSCA(rounds=5, batch=20), "verbose": 0, **options})


def normed(features, classes):
    from torch import nn

    return nn.Sequential(nn.Linear(features, 8), nn.BatchNorm1d(8), nn.Linear(8, classes))


def frozen(features, classes):
    made = two_layers(features, classes)
    next(made.parameters()).requires_grad_(False)
    return made


def narrow(features, classes):
    return two_layers(features + 1, classes)


def one_score(features, classes):
    return two_layers(features, 1)


def unmade(features, classes):
    raise RuntimeError("no layers today")


def empty(features, classes):
    from torch import nn

    return nn.Flatten()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (normed, r"the layer '1' of network, a BatchNorm1d, keeps means of the rows that it has seen"),
        (frozen, r"all parameters of network must learn, and '0.weight' does not"),
        (narrow, r"network takes no rows of 6 columns: RuntimeError"),
        (one_score, r"a score of each of the 3 classes for every row, and of 2 rows it returns \(2, 1\) in place of"),
        (unmade, r"network can't be made: make\(6, 3\) raised RuntimeError: no layers today"),
        (empty, r"network has no parameters"),
    ],
)
def test_a_network_that_sites_can_not_share_is_refused_before_anything_runs(make, sentence):
    pytest.importorskip("torch")
    with pytest.raises(OptionError, match=sentence):
        model(network=make).fit(*SITES)


def spare_layer(features, classes):
    from torch import nn

    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = nn.Linear(features, classes), nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    return Spare()


def test_a_parameter_that_no_score_depends_on_has_no_gradient():
    pytest.importorskip("torch")
    one = model(network=spare_layer, algorithm=cn.FedAvg(rounds=3, batch=20)).fit(*SITES)
    assert one.history_[-1]["loss"] < one.history_[0]["loss"]
