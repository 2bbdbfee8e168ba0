"""A site answers about no fewer rows than its owner says; and functions of a user's own are blamed for what they do."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import DataError, OptionError
from colonnade.horizontal.conduct import ServerJob
from colonnade.horizontal.program import attend

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 3))
Y = np.arange(60) % 2
QUICK = cn.SSCA(rounds=2, batch=10)


class NeverStarted:
    """A runtime that fails the test if a run is started on it."""

    def run(self, programs, observer=None, *more):
        raise AssertionError("work started")


def fit(*sites, on=None, **options):
    return cn.SSCAClassifier(hidden=2, algorithm=QUICK, verbose=0, **options).fit(*sites, on=on)


def sites(rare, **options):
    """Three sites of 20 rows, of which the first has so many of the group "rare"."""
    groups = np.where(np.arange(60) < rare, "rare", "usual")
    return cn.split_rows(X, Y, into=3, groups=groups, **options)


@pytest.mark.parametrize("rare", [1, 4])
def test_a_site_takes_no_part_in_the_cost_of_a_small_group(rare):
    problem = {"objective": cn.cost() + 0.1 * cn.cost("rare")}
    with pytest.raises(DataError, match=rf"site 'site1' has {rare} rows of the group 'rare', and answers about 5 or"):
        fit(*sites(rare), on=NeverStarted(), **problem)
    fit(*sites(rare, min_rows=rare), **problem)
    fit(*sites(5), **problem)
    fit(*sites(rare))  # nobody asks about the group


def test_a_rare_class_and_a_small_site_too():
    y = np.where(np.arange(60) < 3, 7, Y)
    parts = cn.split_rows(X, y, into=3)
    with pytest.raises(DataError, match="site 'site1' has 3 rows of the class 7, and answers about 5 or more"):
        fit(*parts, on=NeverStarted(), cost_limit={7: 2.0}, classes=[0, 1, 7])
    small = [cn.Site("a", X[:30], Y[:30]), cn.Site("b", X[30:34], Y[30:34])]
    with pytest.raises(DataError, match="site 'b' has 4 rows, and answers about 5 or more"):
        fit(*small, on=NeverStarted())
    fit(small[0], cn.Site("b", X[30:34], Y[30:34], min_rows=4))
    with pytest.raises(OptionError, match="min_rows must be a whole number >= 1, got 'few'"):
        cn.Site("a", X, Y, min_rows="few")


def test_the_site_itself_refuses_whatever_the_server_was_told():
    """The site's own program looks at its rows before it hears the server for the first time."""
    seen = {}

    class Changed(cn.Simulation):
        def run(self, programs, observer=None, *more):
            program, (server, plan, mine) = programs["site1"]
            assert program is attend
            assert ServerJob.from_value(plan).sites == ("site1", "site2", "site3")
            seen["asked"] = True
            strict = (attend, (server, plan, (*mine[:-1], 6)))
            return super().run({**programs, "site1": strict}, observer, *more)

    with pytest.raises(DataError, match="site 'site1' has 5 rows of the class or group of number 0, and answers"):
        fit(*sites(5), on=Changed(), objective=cn.cost() + 0.1 * cn.cost("rare"))
    assert seen


def gives_nan(scores, y):
    values = (scores**2).sum(axis=1)
    values[2] = np.nan
    return values, 2 * scores


def gives_infinite_slopes(scores, y):
    return (scores**2).sum(axis=1), 2 * scores / np.zeros_like(scores)


def divides_by_zero(scores, y):
    return 1 // 0


def gives_words(scores, y):
    return ["much"] * len(y), scores


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (gives_nan, r"gives_nan\(scores, y\) must return finite numbers, its value of the scores \[.*\] is nan"),
        (
            gives_infinite_slopes,
            r"infinite_slopes\(scores, y\) must return finite .* its slope .* is \[.*(inf|nan)",
        ),
        (divides_by_zero, r"divides_by_zero\(scores, y\) raised ZeroDivisionError: integer division"),
        (gives_words, r"gives_words\(scores, y\) must return numbers, it returned \(\['much'"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_function_is_blamed_by_its_name(function, sentence):
    with pytest.raises(OptionError, match=sentence):
        fit(*sites(0), objective=cn.cost() + 0.1 * cn.mean_of(function))


def breaks(w):
    raise ValueError("no such number")


def test_a_function_of_parameters_is_blamed_too():
    with pytest.raises(OptionError, match=r"breaks\(w\) raised ValueError: no such number"):
        fit(*sites(0), objective=cn.cost() + 0.1 * cn.of_parameters(breaks))
