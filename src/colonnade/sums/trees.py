"""Who passes partial sums to whom, and which two trees may carry a masked sum.

The two-trees sum (VFB², Algorithm 1; AFSGD-VP, Algorithm 2) sends z_k + δ_k up a tree T1 and the mask δ_k up another
tree T2; the root subtracts the two totals. AFSGD-VP asks that the trees be significantly different (Definition 1): no
subtree of T1 and no subtree of T2, with more than one leaf and fewer than all, have the same leaves. Its Lemma 1 says
that no sum of masks on a subtree of T1 is then disclosed. In the papers every party is a leaf and every partial sum an
inner node. Here a party adds its own value and then its children's sums in a fixed order; the sets of parties that are
in its running sum after each addition are those subtrees (`partial_sums`).

Definition 1 alone is not enough, because it speaks of which sums exist and not of who sees them. Three parties, root
r, T1 a star that adds a and then b, T2 a star that adds b and then a: the partial sums are {r, a} and {r, b}, so the
trees are significantly different. Yet r receives z_a + δ_a in T1 and δ_a in T2 and reads z_a. `leaks` finds this. A
party sees the sums over its children's subtrees: of z + δ in T1, of δ in T2. It learns about z what a combination of
the former shares, as a vector over the parties, with a combination of the latter. The root is allowed one such
vector, the total of all others; every other party none. `different_pair` returns trees that pass both checks.

What remains: all of this is about one curious party. Two that collude can do more. A party's parent in T1 and its
parent in T2 hold, between them, its masked value and its mask; where it is a leaf of both trees they read its value.
Who has to fear that takes the pairwise sum, which shows colluding parties no more than the sum over all the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

from colonnade.errors import OptionError, one_of
from colonnade.sums.written_trees import Tree, is_written, written_trees

# -- topologies --------------------------------------------------------------------------------------------------------


def _others(names: Sequence[str], root: str) -> list[str]:
    if len(names) < 1:
        raise OptionError("a sum needs at least 1 party, got none")
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise OptionError(f"the names of the parties must be unique, got {twice!r} twice")
    if root not in names:
        raise OptionError(f"the root of a sum must be one of its parties {', '.join(map(repr, names))}, got {root!r}")
    return [name for name in names if name != root]


def _heap(order: Sequence[str]) -> Iterator[tuple[str, str]]:
    return ((order[i], order[(i - 1) // 2]) for i in range(1, len(order)))


def binary_tree(names: Sequence[str], root: str) -> Tree:
    """Let every party add at most two others: the depth is log2 of the number of parties."""
    return Tree(root, tuple(_heap([root, *_others(names, root)])))


def star(names: Sequence[str], root: str) -> Tree:
    """Let everyone send to the root: the depth is 1, and all the work is at the root."""
    return Tree(root, tuple((name, root) for name in _others(names, root)))


def ring(names: Sequence[str], root: str) -> Tree:
    """Let each party send to its neighbour in the circle of names, up to the root: as deep as it is long."""
    _others(names, root)
    start = list(names).index(root)
    circle = [*names[start:], *names[:start]]
    return Tree(root, tuple((circle[i], circle[i - 1]) for i in range(1, len(circle))))


TOPOLOGIES: dict[str, Callable[[Sequence[str], str], Tree]] = {"tree": binary_tree, "star": star, "ring": ring}


def topology(kind: str, names: Sequence[str], root: str) -> Tree:
    """Return the tree of one of the `TOPOLOGIES`, or the one that is written; it is built once for all sums.

    Where trees are written, and none with this root, the sum travels along the usual one.
    """
    check_kind(kind)
    return _topology(kind, tuple(names), root)


@lru_cache(maxsize=1024)
def _topology(kind: str, names: tuple[str, ...], root: str) -> Tree:
    if not is_written(kind):
        return TOPOLOGIES[kind](names, root)
    if root not in written_trees(kind):
        return binary_tree(names, root)
    first = written_trees(kind)[root][0]
    _check_parties(first, names)
    return first


def check_kind(kind: str) -> None:
    """Refuse what is neither one of the `TOPOLOGIES` nor trees that can be read."""
    if is_written(kind):
        written_trees(kind)
    else:
        one_of("topology", kind, tuple(TOPOLOGIES))


def check_topology(kind: str, names: Sequence[str], holders: Sequence[str], needed: int) -> None:
    """Refuse a topology that does not fit a sum between these parties, which arrives at those with labels.

    `needed` is how many trees the sum takes. Two that carry a masked sum must be safe: see the module's beginning.
    """
    check_kind(kind)
    if not is_written(kind):
        return
    trees = written_trees(kind)
    for root in (*trees, *holders):
        if root not in holders:
            raise OptionError(f"topology has a tree with the root {root!r}, and sums arrive at {', '.join(holders)}")
        if root not in trees:
            raise OptionError(f"topology has no tree with the root {root!r}, which holds labels; add one after ';'")
        if len(trees[root]) != needed:
            words = "two trees with '|' between them" if needed == 2 else "one tree"
            raise OptionError(f"topology must have {words} for this sum, got {len(trees[root])} with the root {root!r}")
        for tree in trees[root]:
            _check_parties(tree, names)
        if needed == 2:
            check_pair(*trees[root])


def _check_parties(tree: Tree, names: Sequence[str]) -> None:
    if set(tree.nodes) != set(names):
        raise OptionError(f"topology has a tree of {', '.join(tree.nodes)}, and the parties are {', '.join(names)}")


# -- checks ------------------------------------------------------------------------------------------------------------


def partial_sums(tree: Tree) -> frozenset[frozenset[str]]:
    """Return the parties in every running sum of the tree that holds more than one of them and fewer than all."""
    found = set()
    for name in tree.nodes:
        running = frozenset((name,))
        for child in tree.children(name):
            running |= tree.subtree(child)
            found.add(running)
    found.discard(tree.subtree(tree.root))
    return frozenset(found)


def significantly_different(t1: Tree, t2: Tree) -> bool:
    """Whether the trees have no partial sum in common (AFSGD-VP, Definition 1).

    This says which sums exist and not who sees them; `leaks` says what single parties learn.
    """
    _same_parties(t1, t2)
    return partial_sums(t1).isdisjoint(partial_sums(t2))


def leaks(t1: Tree, t2: Tree) -> dict[str, tuple[frozenset[str], ...]]:
    """Find what single parties learn from a sum with masked values in `t1` and masks in `t2`, beyond what they may.

    The result has, for each party that learns something, the sets of parties whose sum of values it can compute. These
    sums and their combinations are all that it learns, over the reals and over the integers modulo 2^64 alike.
    """
    _same_parties(t1, t2)
    if t1.root != t2.root:
        raise OptionError(f"both trees of a sum must have the same root, got {t1.root!r} and {t2.root!r}")
    found = {}
    for name in t1.nodes:
        exposed = _shared_sums(
            [t1.subtree(child) for child in t1.children(name)], [t2.subtree(child) for child in t2.children(name)]
        )
        # The root always finds one set, all the others: their total is the result.
        if len(exposed) > (name == t1.root):
            found[name] = exposed
    return found


def leak_free(t1: Tree, t2: Tree) -> bool:
    """Whether no single party learns more than the result, and no party but the root learns that."""
    return not leaks(t1, t2)


def _shared_sums(first: list[frozenset[str]], second: list[frozenset[str]]) -> tuple[frozenset[str], ...]:
    """Return a basis of what the spans of two families of disjoint sets (as 0/1 vectors) have in common.

    A vector in both spans has one value on each set of either family, so one value on each group of sets that overlap
    one another; and it is 0 on a group of which some member is in only one family. What is left is one vector for each
    group that both families cover.
    """
    if not first or not second:
        return ()
    in_both = frozenset().union(*first) & frozenset().union(*second)
    blocks = first + second
    done: frozenset[str] = frozenset()
    shared = []
    for start in first:
        if start <= done:
            continue
        group, grown = frozenset[str](), start
        while grown != group:
            group = grown
            grown = group.union(*(block for block in blocks if not block.isdisjoint(group)))
        done |= group
        if group <= in_both:
            shared.append(group)
    return tuple(shared)


def check_pair(t1: Tree, t2: Tree) -> None:
    """Refuse two trees of more than two parties that would show somebody a sum of a few of the others' values."""
    if len(t1.nodes) <= 2:
        return  # the result itself tells the root the other party's value
    _same_parties(t1, t2)
    common = sorted(partial_sums(t1) & partial_sums(t2), key=lambda found: (len(found), sorted(found)))
    if common:
        raise OptionError(
            f"the two trees of a sum must have no partial sum in common, and {', '.join(sorted(common[0]))} are added "
            f"up by themselves in both; let other parties send to each other in the second"
        )
    for name, learnt in leaks(t1, t2).items():
        raise OptionError(
            f"with these two trees {name!r} gets both the masked sum and the sum of masks of "
            f"{', '.join(sorted(learnt[0]))}; let other parties send to it in the second"
        )


def _same_parties(t1: Tree, t2: Tree) -> None:
    if t1.subtree(t1.root) != t2.subtree(t2.root):
        raise OptionError(
            f"both trees of a sum must have the same parties, got {', '.join(t1.nodes)} and {', '.join(t2.nodes)}"
        )


# -- pairs -------------------------------------------------------------------------------------------------------------


def different_pair(names: Sequence[str], root: str, kind: str = "tree") -> tuple[Tree, Tree]:
    """Return two trees for a masked sum that are `significantly_different` and `leak_free`.

    The first is `topology(kind, ...)`. With one or two parties both trees are the same, since the result itself tells
    the root the other party's value. The same arguments give the same pair at every party. Where two are written, it
    is these, once they are found to be safe.
    """
    check_kind(kind)
    found = _written_pair if is_written(kind) else _different_pair
    return found(tuple(names), root, kind)


@lru_cache(maxsize=1024)
def _written_pair(names: tuple[str, ...], root: str, kind: str) -> tuple[Tree, Tree]:
    trees = written_trees(kind)
    if root not in trees:
        return different_pair(names, root)
    check_topology(kind, names, tuple(trees), 2)
    first, second = trees[root]
    return first, second


@lru_cache(maxsize=1024)
def _different_pair(names: tuple[str, ...], root: str, kind: str) -> tuple[Tree, Tree]:
    first = topology(kind, names, root)
    others = list(first.nodes[1:])
    if len(names) <= 2:
        return first, first
    backwards = others[::-1]
    if kind == "star":
        # In T1 only the root receives, and in T2 it receives one sum: it can only take the two totals apart. Every
        # partial sum of T1 has the root in it, and none of T2.
        return first, Tree(root, ((backwards[0], root), *_heap(backwards)))
    if kind == "ring":
        # What a party receives in T1 comes from names after its own, in T2 from names before it. Every partial sum of
        # T1 has the last two names in it; in T2 these are the root's two children, which only the root adds up.
        return first, binary_tree([root, *backwards], root)
    # Two binary trees are the shallowest pair; from four parties on one of the first two orders passes.
    for order in _reorderings(others):
        second = binary_tree([root, *order], root)
        if significantly_different(first, second) and leak_free(first, second):
            return first, second
    # The ring through the others backwards always passes, for the reason given above with T1 and T2 exchanged.
    return first, ring([root, *backwards], root)


def _reorderings(names: Sequence[str]) -> Iterable[list[str]]:
    """Yield the names in steps of s from each start, for every s that reaches them all; backwards first."""
    n = len(names)
    for step in range(n - 1, 0, -1):
        if math.gcd(step, n) == 1:
            for start in range(n - 1, -1, -1):
                yield [names[(start + step * i) % n] for i in range(n)]
