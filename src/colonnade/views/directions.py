"""Block Newton: what the deciding label holder makes of directions, their products, and signs that it can guess.

It sees D = X W (the others' columns times their directions) and G = W^T W. D and G give X up to a rotation. Where the
signs of a direction's pieces follow from the public seed, they tell the rotation too: of each column j it is known that
piece k is + or - the first piece, W_jk = S_jk W_j1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from colonnade.runtimes.net import OWN, TOTAL
from colonnade.views.numbers import FloatArray, Rows, in_whole
from colonnade.views.view import View

# Tries, and steps of each, where signs leave a column more than one dimension.
_STARTS, _STEPS = 6, 300


@dataclass(frozen=True)
class TurnedDirections:
    """What directions and their products give.

    Attributes
    ----------
    coordinates
        Their inner products are those of the others' rows.
    columns
        The others' columns by guessed signs; None where signs say too little.
    misfit
        How far the columns are from agreeing with all of these signs: 0 if they do, and about 1 by chance.
    """

    coordinates: FloatArray
    columns: FloatArray | None = None
    misfit: float = 1.0


def with_products(view: View, rows: Rows) -> TurnedDirections | None:
    """Return what totals of these rows give; None where no directions were summed at this party, or no products."""
    D = in_whole(view.of(TOTAL, "directions"), rows)
    products = [one.value for one in view.of(TOTAL, "products")]
    if not D or len(D) != len(products):
        return None
    sizes = [one.shape[1] for one in D]
    G = _gram(products, sizes)
    if G is None:  # several scores: products are not those of one score's directions
        return None
    scale = np.sqrt(np.maximum(np.diag(G), 1e-300))
    w, V = np.linalg.eigh(G / scale[:, None] / scale)
    good = w > 1e-9 * w[-1]
    L = V[:, good] * np.sqrt(w[good]) * scale[:, None]  # W^T = L O for some rotation O
    whole = np.column_stack(D) / scale
    coordinates: FloatArray = whole @ np.linalg.pinv((L / scale[:, None]).T)
    signed = _rotation(view, L, sizes)
    if signed is None:
        return TurnedDirections(coordinates)
    found, misfit = signed
    return TurnedDirections(coordinates, whole @ np.linalg.pinv(found @ (L / scale[:, None]).T), misfit)


def _gram(products: list[FloatArray], sizes: list[int]) -> FloatArray | None:
    """Return W^T W of all directions, from what was told of each round's new ones; None if that does not fit."""
    count = sum(sizes)
    G, at = np.zeros((count, count)), 0
    for told, new in zip(products, sizes, strict=True):
        at += new
        if told[2 + at :].size != new * at:
            return None
        block = told[2 + at :].reshape(new, at)
        G[at - new : at, :at], G[:at, at - new : at] = block, block.T
    return G


def public_signs(seed: int, epoch: int, party: int, columns: int, pieces: int) -> FloatArray:
    """Return the signs of a party's pieces, were they drawn from what everybody knows: a row per column, + first."""
    drawn = np.random.default_rng([seed, epoch, party]).integers(0, 2, size=(columns, pieces - 1), dtype=np.int8)
    return np.column_stack([np.ones(columns), drawn * 2.0 - 1.0])


def _rotation(view: View, L: FloatArray, sizes: list[int]) -> tuple[FloatArray, float] | None:
    """Return O such that O L^T are directions with the public signs, and how far they are from having all of these.

    None where signs say too little.
    """
    own = view.of(OWN, "directions")[:1]  # of a mirrored view nobody knows them, and whoever looks takes its turns
    senders = [name for name in view.names if name != view.me or not own or np.any(own[0].value)]
    others = [name for name in senders if name != view.me]
    sequential, d = view.options.order == "sequential", sum(view.widths[name] for name in others)
    if L.shape[1] != d or sum(sizes) - len(sizes) < d // 2:
        return None
    signs = [_signs_of(view, others, senders, epoch, p, sequential) for epoch, p in enumerate(sizes, 1)]
    starts, bases, equations = np.cumsum([0, *sizes]), [], []
    for column in range(d):
        conditions = []
        for first, p, S in zip(starts, sizes, signs, strict=False):
            length = max(float(np.linalg.norm(L[first])), 1e-300)
            if not S[column].any():  # not this party's turn
                conditions += list(L[first : first + p] / length)
            conditions += [(L[first + k] - S[column, k] * L[first]) / length for k in range(1, p) if S[column, k]]
        if not conditions:  # one piece of one column, in each round
            return None
        equations.append(np.array(conditions))
        _, s, V = np.linalg.svd(equations[-1])
        left = d - int((s > 1e-6 * s[0]).sum())
        bases.append(V[d - max(1, left) :].T)
    if max(base.shape[1] for base in bases) == 1:
        found: FloatArray | None = np.array([base[:, 0] for base in bases])
    else:
        found = _by_turns(bases, d)
    if found is None:
        return None
    missed = [np.linalg.norm(C @ row) / np.linalg.norm(row) for C, row in zip(equations, found, strict=True)]
    usual = [np.linalg.norm(C) / np.sqrt(d) for C in equations]
    # With wrong signs each column still has a direction that agrees with most of its few conditions, but then these
    # directions are not at right angles.
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    askew = np.linalg.norm(unit @ unit.T - np.eye(d)) / np.sqrt(d)
    return found, float(max(np.mean(missed) / max(float(np.mean(usual)), 1e-300), askew))


def _signs_of(
    view: View, others: list[str], senders: list[str], epoch: int, pieces: int, sequential: bool
) -> FloatArray:
    found = []
    for name in others:
        drawn = public_signs(view.options.seed, epoch, view.names.index(name), view.widths[name], pieces)
        silent = sequential and senders[(epoch - 1) % len(senders)] != name
        found.append(np.zeros_like(drawn) if silent else drawn)
    return np.vstack(found)


def _by_turns(bases: list[FloatArray], d: int) -> FloatArray | None:
    """Return a rotation whose rows lie in the given spaces: to these and to rotations in turn."""
    best: tuple[float, FloatArray | None] = (np.inf, None)
    rng = np.random.default_rng(0)
    for _ in range(_STARTS):
        turned, far = np.linalg.qr(rng.standard_normal((d, d)))[0], np.inf
        for _ in range(_STEPS):
            within = np.array([base @ (base.T @ row) for base, row in zip(bases, turned, strict=True)])
            within /= np.maximum(np.linalg.norm(within, axis=1, keepdims=True), 1e-12)
            U, _, V = np.linalg.svd(within)
            turned = U @ V
            far = float(np.linalg.norm(turned - within))
            if far < 1e-9:
                break
        if far < best[0]:
            best = (far, within)
        if far < 1e-6:
            break
    return best[1]
