from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import OptionError
from colonnade.sums import trees
from colonnade.sums.trees import (
    TOPOLOGIES,
    binary_tree,
    different_pair,
    leak_free,
    leaks,
    partial_sums,
    ring,
    significantly_different,
    star,
    topology,
)
from colonnade.sums.written_trees import Tree


def parties(n: int) -> list[str]:
    return [f"p{i}" for i in range(n)]


def roots(n: int) -> list[str]:
    return sorted({"p0", f"p{n // 2}", f"p{n - 1}"})


@st.composite
def tree_pairs(draw, low=1, high=8):
    """Two random trees over the same parties with the same root."""
    names = parties(draw(st.integers(low, high)))
    pair = []
    for _ in range(2):
        order = ["p0", *draw(st.permutations(names[1:]))]
        pair.append(Tree("p0", tuple((order[i], order[draw(st.integers(0, i - 1))]) for i in range(1, len(order)))))
    return tuple(pair)


def all_trees(n: int) -> list[Tree]:
    """Every tree of n parties with every order of children, a few of them more than once."""
    names = parties(n)
    found = set()
    for order in itertools.permutations(names[1:]):
        for above in itertools.product(*(range(i) for i in range(1, n))):
            line = ["p0", *order]
            found.add(Tree("p0", tuple((line[i + 1], line[above[i]]) for i in range(n - 1))))
    return sorted(found, key=repr)


# -- slow, readable references -----------------------------------------------------------------------------------------


def running_sums(tree: Tree) -> list[int]:
    """Every partial sum, found by adding up the tree with party i's value 2^i, so that a sum names its parties."""
    sums = []

    def add_up(name: str) -> int:
        total = 1 << int(name[1:])
        for child in (child for child, above in tree.parents if above == name):
            total += add_up(child)
            sums.append(total)
        return total

    add_up(tree.root)
    return sums


def reference_significantly_different(t1: Tree, t2: Tree) -> bool:
    n = len(t1.nodes)
    return not any(a == b and 1 < a.bit_count() < n for a, b in itertools.product(running_sums(t1), running_sums(t2)))


def view(t1: Tree, t2: Tree, name: str) -> np.ndarray:
    """What a party receives, as rows over (z_0 .. z_n-1, δ_0 .. δ_n-1)."""
    n = len(t1.nodes)
    rows = []
    for tree, with_values in ((t1, True), (t2, False)):
        for child in tree.children(name):
            members = np.array([f"p{i}" in tree.subtree(child) for i in range(n)], float)
            rows.append(np.concatenate((members * with_values, members)))
    return np.array(rows).reshape(-1, 2 * n)


def check_leaks(t1: Tree, t2: Tree) -> None:
    n = len(t1.nodes)
    rng = np.random.default_rng(0)
    z, masks = rng.normal(size=(2, n))
    found = leaks(t1, t2)
    assert leak_free(t1, t2) == (not found)
    for name in t1.nodes:
        received = view(t1, t2, name)
        # The combinations of messages from which all masks vanish, up to those that vanish altogether.
        learned = 0 if not len(received) else np.linalg.matrix_rank(received) - np.linalg.matrix_rank(received[:, n:])
        allowed = 1 if name == t1.root and n > 1 else 0
        assert (name in found) == (learned > allowed)
        if name not in found:
            continue
        assert len(found[name]) == learned
        assert sum(map(len, found[name])) == len(frozenset().union(*found[name]))
        for members in found[name]:
            assert name not in members
            wanted = np.array([f"p{i}" in members for i in range(n)], float)
            recipe = np.linalg.lstsq(received.T, np.concatenate((wanted, np.zeros(n))), rcond=None)[0]
            messages = received @ np.concatenate((z, masks))
            assert recipe @ messages == pytest.approx(wanted @ z, abs=1e-9)


# -- trees -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TOPOLOGIES)
@pytest.mark.parametrize("n", range(1, 18))
def test_topologies_are_trees(kind, n):
    names = parties(n)
    for root in names:
        tree = topology(kind, names, root)
        assert tree.root == root
        assert tree.nodes[0] == root
        assert sorted(tree.nodes) == sorted(names)
        assert tree.parent(root) is None
        assert tree.subtree(root) == frozenset(names)
        for name in names:
            way = [name]
            while way[-1] != root:
                way.append(tree.parent(way[-1]))
            assert len(way) <= tree.depth + 1
            assert all(name in tree.subtree(above) for above in way)
            assert all(tree.parent(child) == name for child in tree.children(name))
            below = [tree.subtree(child) for child in tree.children(name)]
            assert tree.subtree(name) == frozenset((name,)).union(*below)
            assert len(tree.subtree(name)) == 1 + sum(map(len, below))


def test_star():
    tree = star(["a", "b", "r", "c"], "r")
    assert tree.children("r") == ("a", "b", "c")
    assert tree.depth == 1
    assert tree.parents == (("a", "r"), ("b", "r"), ("c", "r"))


def test_ring():
    tree = ring(["a", "b", "r", "c"], "r")
    assert [tree.parent(name) for name in "crab"] == ["r", None, "c", "a"]
    assert tree.nodes == ("r", "c", "a", "b")
    assert tree.depth == 3
    assert ring(parties(1200), "p7").depth == 1199


@pytest.mark.parametrize(("n", "depth"), [(1, 0), (2, 1), (3, 1), (4, 2), (7, 2), (8, 3), (15, 3), (16, 4), (17, 4)])
def test_binary_tree(n, depth):
    tree = binary_tree(parties(n), f"p{n - 1}")
    assert tree.depth == depth
    assert all(len(tree.children(name)) <= 2 for name in tree.nodes)


def test_topology_is_built_once():
    assert topology("tree", parties(5), "p1") is topology("tree", tuple(parties(5)), "p1")


def test_tree_is_a_value():
    tree = binary_tree(parties(5), "p2")
    again = Tree("p2", tree.parents)
    assert tree == again
    assert hash(tree) == hash(again)
    assert tree != star(parties(5), "p2")
    assert repr(again).startswith("Tree(root='p2', parents=(('p0', 'p2'), ")
    copied = pickle.loads(pickle.dumps(tree))
    assert copied == tree
    assert copied.children("p2") == tree.children("p2")


@pytest.mark.parametrize(
    ("root", "pairs", "sentence"),
    [
        ("r", (("a", "r"), ("a", "r")), "one parent for every party but the root, 'a' has two parents"),
        ("r", (("a", "r"), ("r", "a")), "one parent for every party but the root, 'r' is the root and has a parent"),
        ("r", (("a", "x"),), "must be one of its parties, 'a' has the parent 'x'"),
        ("r", (("a", "b"), ("b", "a")), "every party of a tree must reach the root 'r', 'a', 'b' run in a cycle"),
        ("r", (("c", "r"), ("a", "a")), "every party of a tree must reach the root 'r', 'a' run in a cycle"),
    ],
)
def test_what_is_no_tree(root, pairs, sentence):
    with pytest.raises(OptionError, match=sentence):
        Tree(root, pairs)


@pytest.mark.parametrize("function", [*TOPOLOGIES.values(), different_pair])
def test_names_and_roots_that_are_refused(function):
    with pytest.raises(OptionError, match="at least 1 party, got none"):
        function([], "a")
    with pytest.raises(OptionError, match="names of the parties must be unique, got 'b' twice"):
        function(["a", "b", "c", "b"], "a")
    with pytest.raises(OptionError, match="the root of a sum must be one of its parties 'a', 'b', got 'x'"):
        function(["a", "b"], "x")


def test_unknown_topology():
    for refused in (lambda: topology("mesh", ["a"], "a"), lambda: different_pair(["a"], "a", "mesh")):
        with pytest.raises(OptionError, match="topology must be one of 'tree', 'star', 'ring', got 'mesh'"):
            refused()


# -- Definition 1 ------------------------------------------------------------------------------------------------------


def test_partial_sums_follow_the_order_of_addition():
    tree = Tree("r", (("a", "r"), ("b", "r"), ("c", "a"), ("d", "a")))
    assert partial_sums(tree) == {frozenset(members) for members in ("ac", "acd", "racd")}
    assert partial_sums(ring(["r", "a", "b", "c"], "r")) == {frozenset("bc"), frozenset("abc")}


def test_significantly_different_for_all_small_trees():
    for n in (1, 2, 3, 4):
        for t1, t2 in itertools.product(all_trees(n), repeat=2):
            assert significantly_different(t1, t2) == reference_significantly_different(t1, t2)


@given(tree_pairs())
@settings(deadline=None)
def test_significantly_different(pair):
    assert significantly_different(*pair) == reference_significantly_different(*pair)


@given(tree_pairs(low=3))
@settings(deadline=None, max_examples=30)
def test_a_tree_is_not_different_from_itself(pair):
    assert not significantly_different(pair[0], pair[0])
    assert not leak_free(pair[0], pair[0])


# -- leaks -------------------------------------------------------------------------------------------------------------


def test_definition_1_is_not_enough():
    t1, t2 = star(["r", "a", "b"], "r"), star(["r", "b", "a"], "r")
    assert significantly_different(t1, t2)
    assert leaks(t1, t2) == {"r": (frozenset("a"), frozenset("b"))}
    assert not leak_free(t1, t2)


def test_leaks_of_a_party_that_is_not_the_root():
    t1 = Tree("r", (("a", "r"), ("b", "a"), ("c", "a"), ("d", "b")))
    t2 = Tree("r", (("c", "r"), ("a", "c"), ("d", "a"), ("b", "d")))
    assert leaks(t1, t2) == {"a": (frozenset("bd"),)}


def test_leaks_through_overlapping_groups():
    # {a, b} + {c, d} in one tree are {a} + {b, c} + {d} in the other: neither set alone is seen twice.
    t1 = Tree("r", (("p", "r"), ("a", "p"), ("b", "a"), ("c", "p"), ("d", "c"), ("e", "r")))
    t2 = Tree("r", (("e", "r"), ("p", "e"), ("a", "p"), ("b", "p"), ("c", "b"), ("d", "p")))
    assert leaks(t1, t2) == {"p": (frozenset("abcd"),)}


def test_leaks_for_all_small_trees():
    for n in (1, 2, 3):
        for t1, t2 in itertools.product(all_trees(n), repeat=2):
            check_leaks(t1, t2)


@given(tree_pairs())
@settings(deadline=None, max_examples=200)
def test_leaks(pair):
    check_leaks(*pair)


def test_trees_that_do_not_belong_together():
    for check in (significantly_different, leaks, leak_free):
        with pytest.raises(OptionError, match="both trees of a sum must have the same parties, got r, a and r, b"):
            check(star(["r", "a"], "r"), star(["r", "b"], "r"))
    with pytest.raises(OptionError, match="both trees of a sum must have the same root, got 'r' and 'a'"):
        leaks(star(["r", "a"], "r"), star(["r", "a"], "a"))


# -- pairs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TOPOLOGIES)
@pytest.mark.parametrize("n", [*range(1, 18), 31, 32, 33, 64])
def test_different_pair(kind, n):
    for root in roots(n):
        t1, t2 = different_pair(parties(n), root, kind)
        assert t1 == topology(kind, parties(n), root)
        assert t2.root == root
        assert set(t2.nodes) == set(parties(n))
        if n < 3:
            continue
        assert significantly_different(t1, t2)
        assert reference_significantly_different(t1, t2)
        assert leak_free(t1, t2)
        if n < 18:
            check_leaks(t1, t2)
        # Nobody hands its masked value and its mask to the same party.
        assert not any(
            t1.parent(name) == t2.parent(name) for name in t1.nodes if not t1.children(name) and not t2.children(name)
        )


@pytest.mark.parametrize("n", range(4, 18))
def test_different_pair_is_as_shallow_as_a_binary_tree(n):
    t1, t2 = different_pair(parties(n), "p0")
    assert t1.depth == t2.depth == n.bit_length() - 1
    assert different_pair(parties(n), "p0", "star")[1].depth <= n.bit_length()
    assert different_pair(parties(n), "p0", "ring")[1].depth == n.bit_length() - 1


@pytest.mark.parametrize("n", range(3, 12))
def test_the_last_resort_always_passes(monkeypatch, n):
    monkeypatch.setattr(trees, "_reorderings", lambda names: [])
    t1, t2 = trees._different_pair.__wrapped__(tuple(parties(n)), "p1", "tree")
    assert t2.depth == n - 1
    assert significantly_different(t1, t2)
    assert leak_free(t1, t2)


def test_different_pair_is_found_at_once_and_the_same_each_time(monkeypatch):
    names, tried = parties(17), []
    monkeypatch.setattr(
        trees, "significantly_different", lambda *pair: tried.append(pair) or significantly_different(*pair)
    )
    trees._different_pair.cache_clear()
    pair = different_pair(names, "p3")
    assert len(tried) <= 2  # of 240 orders
    assert different_pair(tuple(names), "p3") is pair
    assert len(tried) <= 2
    trees._different_pair.cache_clear()
    assert different_pair(names, "p3") == pair
