"""Which algorithm `algorithm="auto"` stands for, and that it says so."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import OptionError
from colonnade.families.linear import choose

X = np.random.default_rng(0).standard_normal((60, 6))
Y = X[:, 0] - X[:, 4] > 0


@pytest.mark.parametrize(
    ("rows", "columns", "outputs", "name", "reason"),
    [
        (1000, [3, 40], 1, "BlockNewton", "no party has more than 2,048 columns"),
        (1000, [3, 5000], 1, "VFB2", "a party has 5,000 columns, more than 2,048"),
        (10_000_000, [3, 1000], 1, "VFB2", "matrices of 1,000 columns over 10,000,000 rows would take too long"),
        (60_000, [392, 392], 10, "BlockNewton", "tens of rounds"),
    ],
)
def test_the_choice_and_its_reason(rows, columns, outputs, name, reason):
    algorithm, said = choose(rows, columns, outputs)
    assert algorithm.name == name
    assert reason in said


def test_under_encryption_it_is_one_that_can_be_encrypted():
    algorithm, said = choose(1000, [3, 5000], 1, encrypted=True)
    assert (algorithm, said) == (cn.FedSGD(), "its signals can be encrypted")


def test_one_line_says_what_was_chosen(capsys):
    parties = cn.split(X, Y, into=2)
    model = cn.LogisticRegression(algorithm="auto").fit(*parties)
    said = capsys.readouterr().err
    assert said == "algorithm: BlockNewton, as no party has more than 2,048 columns, so tens of rounds will do\n"
    quiet = cn.LogisticRegression(algorithm=cn.BlockNewton(), verbose=0).fit(*parties)
    assert capsys.readouterr().err == ""
    assert all((model.coef_[name] == quiet.coef_[name]).all() for name in model.coef_)


def test_no_other_word():
    with pytest.raises(OptionError, match=r"algorithm must be one of FedSGD, .*, or 'auto', got 'best'"):
        cn.LogisticRegression(algorithm="best", verbose=0).fit(*cn.split(X, Y, into=2))
