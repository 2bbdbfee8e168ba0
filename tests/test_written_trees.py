"""Trees that users write: read, refused where they are none or not safe, and travelled along by every sum."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import OptionError
from colonnade.jobs.job_file import JOB, described
from colonnade.settings import toml
from colonnade.sums.trees import check_topology, different_pair, topology
from colonnade.sums.written_trees import Tree, is_written, written_trees

RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 8))
Y = (X[:, 0] + X[:, 5] > 0).astype(int)
PAIR = "c>b b>bank a>bank | b>a a>bank c>bank"
NAMES = ("bank", "a", "b", "c")
PARTIES = [
    cn.Party("bank", X[:, :2], Y),
    *(cn.Party(name, X[:, 2 * k : 2 * k + 2]) for k, name in enumerate(NAMES[1:], 1)),
]


def fit(parties=PARTIES, **options):
    algorithm = cn.FedSGD(epochs=2, batch=20, tol=None)
    return cn.LogisticRegression(l2=0.01, algorithm=algorithm, verbose=0, **options).fit(*parties)


def test_trees_are_read_as_they_are_written():
    first, second = written_trees(PAIR)["bank"]
    assert first == Tree("bank", (("c", "b"), ("b", "bank"), ("a", "bank")))
    assert second == Tree("bank", (("b", "a"), ("a", "bank"), ("c", "bank")))
    assert different_pair(NAMES, "bank", PAIR) == (first, second)
    assert topology(PAIR, NAMES, "bank") == first
    assert is_written(PAIR)
    assert not is_written("star")
    # A root for which nothing is written, such as one who only asks for predictions, has the usual trees.
    assert different_pair(NAMES, "a", PAIR) == different_pair(NAMES, "a")
    assert topology(PAIR, NAMES, "a") == topology("tree", NAMES, "a")


@pytest.mark.parametrize(
    ("text", "added"),
    [(PAIR, "two-trees"), ("c>b b>a a>bank", "pairwise"), ("a>c b>c c>bank", "plain"), ("a>c b>c c>bank", "encrypted")],
)
@pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
def test_every_sum_travels_along_them_and_has_the_same_bits(text, added):
    usual, own = (fit(sum=added, topology=kind) for kind in ("star", text))
    for name, coef in usual.coef_.items():
        assert own.coef_[name].tobytes() == coef.tobytes()


def test_sums_go_to_the_parents_that_are_written():
    """With the chain c > b > a > bank nobody but a sends the bank a score; signals come back to all from the bank."""
    heard: set[tuple[str, str]] = set()

    class Watched(cn.Simulation):
        def run(self, programs, observer=None, *more):
            found = {}
            for name, (program, arguments) in programs.items():

                async def watched(net, *given, program=program, name=name):
                    send = net.send

                    async def noted(to, tag, value, *rest, **options):
                        if tag.startswith("scores"):
                            heard.add((name, to))
                        return await send(to, tag, value, *rest, **options)

                    net.send = noted
                    return await program(net, *given)

                found[name] = (watched, arguments)
            return super().run(found, observer, *more)

    cn.LogisticRegression(
        algorithm=cn.FedSGD(epochs=1, batch=20), sum="pairwise", topology="c>b b>a a>bank", verbose=0
    ).fit(*PARTIES, on=Watched())
    assert heard == {("c", "b"), ("b", "a"), ("a", "bank")}


def test_several_label_holders_have_trees_of_their_own(tmp_path):
    parties = [PARTIES[0], cn.Party("a", X[:, 2:4], Y), *PARTIES[2:]]
    text = f"{PAIR} ; c>b b>a bank>a | b>bank bank>a c>a"
    own, usual = fit(parties, sum="two-trees", topology=text), fit(parties, sum="two-trees")
    for name, coef in usual.coef_.items():
        assert own.coef_[name].tobytes() == coef.tobytes()
    own.save(tmp_path)
    again = cn.load(tmp_path)
    assert again.topology == text
    np.testing.assert_array_equal(again.predict(*parties), own.predict(*parties))
    with pytest.raises(OptionError, match="topology has no tree with the root 'a', which holds labels; add one"):
        fit(parties, sum="two-trees", topology=PAIR)


@pytest.mark.parametrize(
    ("text", "added", "sentence"),
    [
        ("a>bank b>bank c", "pairwise", "pairs child>parent with spaces between them, got 'c'"),
        ("a>b>bank c>bank", "pairwise", "pairs child>parent with spaces between them, got 'a>b>bank'"),
        ("a>b c>bank", "pairwise", "one party of a tree sends to nobody, its root, got b, bank in"),
        ("a>b b>a", "pairwise", "one party of a tree sends to nobody, its root, got none in"),
        ("a>bank a>b b>bank c>bank", "pairwise", "'a' has two parents"),
        ("a>b b>a c>bank", "pairwise", "every party of a tree must reach the root 'bank'"),
        ("a>bank b>bank", "pairwise", "topology has a tree of bank, a, b, and the parties are bank, a, b, c"),
        ("bank>a b>a c>a", "pairwise", "topology has a tree with the root 'a', and sums arrive at bank"),
        ("a>bank b>bank c>bank ; c>b b>a a>bank", "pairwise", "trees with the root 'bank' are given twice"),
        ("a>bank b>bank c>bank | b>a c>a bank>a", "two-trees", "must have the same root, got a, bank"),
        (PAIR, "pairwise", "topology must have one tree for this sum, got 2 with the root 'bank'"),
        ("a>bank b>bank c>bank", "two-trees", r"must have two trees with '\|' between them for this sum"),
        ("c>b b>bank a>bank | c>b b>bank a>bank", "two-trees", "no partial sum in common, and b, c are added up by"),
        ("b>c c>bank a>bank | c>b b>bank a>bank", "two-trees", "no partial sum in common, and b, c are added up by"),
        # Definition 1 holds, and the bank would still read c's value: see `sums.trees`.
        (
            "c>bank b>bank a>bank | a>bank b>bank c>bank",
            "two-trees",
            "'bank' gets both the masked sum and",
        ),
    ],
)
def test_what_is_no_tree_or_not_safe_is_refused(text, added, sentence):
    with pytest.raises(OptionError, match=sentence):
        fit(sum=added, topology=text)


def test_unsafe_pairs_are_refused_again_where_they_would_carry_a_sum():
    with pytest.raises(OptionError, match="no partial sum in common"):
        different_pair(NAMES, "bank", "c>b b>bank a>bank | c>b b>bank a>bank")
    check_topology("a>bank | a>bank", ("bank", "a"), ("bank",), 2)  # between two nothing can be hidden


JOB_TEXT = """\
version = 1
name = "first"
disclosed = []
model = {kind = "logistic"}
sum = {kind = "two-trees", topology = "%s"}
algorithm = {kind = "FedSGD"}
[parties]
bank = {address = "127.0.0.1:7443", labels = true}
shop = {address = "127.0.0.1:7444"}
news = {}
"""


def test_a_job_has_them_too():
    def job(text):
        return described(toml.parse((JOB_TEXT % text).encode(), JOB, "job.toml"))

    pair = "news>bank shop>bank | shop>news news>bank"
    assert job(pair).topology == pair
    for wrong, sentence in (
        ("mesh", "line 5, key sum.topology: must be one of 'tree', 'star', 'ring', got 'mesh'"),
        ("shop>", "line 5, key sum.topology: a tree is made of pairs child>parent"),
        ("shop>bank news>bank", "line 5, key sum.topology: must have two trees"),
        ("news>bank shop>bank | shop>bank news>bank", "line 5, key sum.topology: with these two trees 'bank' gets"),
    ):
        with pytest.raises(OptionError, match=sentence):
            job(wrong)
