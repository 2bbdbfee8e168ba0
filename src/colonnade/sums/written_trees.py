"""Trees of parties, along which partial sums travel to a root, and how users write them.

The options `topology` of estimators and jobs take, beside "tree", "star" and "ring", trees of the user's own: a pair
`child>parent` for every party but the root, in the order in which a parent adds what its children send. The
two-trees sum takes two, with "|" between them; where several parties hold labels, each is the root of trees of its
own, with ";" between them. Four parties, of which the bank holds labels:

    "c>b b>bank a>bank | b>a a>bank c>bank"
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from colonnade.errors import OptionError

_SENDS, _BESIDE, _NEXT = ">", "|", ";"


@dataclass(frozen=True)
class Tree:
    """A rooted tree of parties, along which partial sums travel to the root.

    What is no tree (a cycle, a party twice, a parent that isn't a party) raises an `OptionError`.

    Parameters
    ----------
    root
        The party at which the sum arrives.
    parents
        One (child, parent) pair for every party but the root, in the order in which a parent adds its children.
    """

    root: str
    parents: tuple[tuple[str, str], ...] = ()
    _parent: dict[str, str | None] = field(init=False, repr=False, compare=False)
    _children: dict[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    _subtree: dict[str, frozenset[str]] = field(init=False, repr=False, compare=False)
    _depth: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parent: dict[str, str | None] = {self.root: None}
        for child, above in self.parents:
            if child in parent:
                what = "is the root and has a parent" if child == self.root else "has two parents"
                raise OptionError(f"a tree needs one parent for every party but the root, {child!r} {what}")
            parent[child] = above
        children: dict[str, list[str]] = {name: [] for name in parent}
        for child, above in self.parents:
            if above not in children:
                raise OptionError(f"a parent in a tree must be one of its parties, {child!r} has the parent {above!r}")
            children[above].append(child)
        # A loop, not a recursion: a ring of many parties is as deep as it is long.
        depths = {self.root: 0}
        downwards = [self.root]
        for name in downwards:
            for child in children[name]:
                depths[child] = depths[name] + 1
                downwards.append(child)
        if len(downwards) < len(parent):
            lost = ", ".join(repr(name) for name in parent if name not in depths)
            raise OptionError(f"every party of a tree must reach the root {self.root!r}, {lost} run in a cycle")
        subtree: dict[str, frozenset[str]] = {}
        for name in reversed(downwards):
            subtree[name] = frozenset((name,)).union(*(subtree[child] for child in children[name]))
        for attribute, value in (
            ("_parent", parent),
            ("_children", {name: tuple(below) for name, below in children.items()}),
            ("_subtree", subtree),
            ("_depth", max(depths.values())),
        ):
            object.__setattr__(self, attribute, value)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every party: the root, then the others in the order of `parents`."""
        return tuple(self._parent)

    @property
    def depth(self) -> int:
        """How many messages the longest way to the root takes."""
        return self._depth

    def parent(self, name: str) -> str | None:
        """Return the party to which this one sends its sum, or None for the root."""
        return self._parent[name]

    def children(self, name: str) -> tuple[str, ...]:
        """Return the parties from which this one receives sums, in the order in which it adds them."""
        return self._children[name]

    def subtree(self, name: str) -> frozenset[str]:
        """Return this party and all below it, that is, the parties in the sum that it sends."""
        return self._subtree[name]


def is_written(topology: object) -> bool:
    """Whether a topology is trees that are written out, and not the name of a shape."""
    return isinstance(topology, str) and _SENDS in topology


@lru_cache(maxsize=256)
def written_trees(text: str) -> dict[str, tuple[Tree, ...]]:
    """Return {root: its one tree or two}; what can't be read is refused in one sentence."""
    found: dict[str, tuple[Tree, ...]] = {}
    for part in text.split(_NEXT):
        trees = tuple(_written(one) for one in part.split(_BESIDE))
        roots = {tree.root for tree in trees}
        if len(roots) > 1:
            raise OptionError(f"topology: both trees of a sum must have the same root, got {', '.join(sorted(roots))}")
        root = trees[0].root
        if root in found:
            raise OptionError(f"topology: trees with the root {root!r} are given twice; give them once")
        found[root] = trees
    return found


def _written(text: str) -> Tree:
    """Return the tree of pairs child>parent; its root is the one parent that sends to nobody."""
    pairs = []
    for pair in text.split():
        child, sends, parent = pair.partition(_SENDS)
        if not child or not sends or not parent or _SENDS in parent:
            raise OptionError(f"topology: a tree is made of pairs child>parent with spaces between them, got {pair!r}")
        pairs.append((child, parent))
    senders = {child for child, _ in pairs}
    roots = sorted({parent for _, parent in pairs} - senders)
    if len(roots) != 1:
        words = ", ".join(roots) or "none"
        raise OptionError(f"topology: one party of a tree sends to nobody, its root, got {words} in {text.strip()!r}")
    return Tree(roots[0], tuple(pairs))
