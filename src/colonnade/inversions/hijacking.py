"""Columns from a network that was made to show them: a label holder that sends other gradients than those of the loss.

Pasquini, Ateniese, Bernaschi: "Unleashing the tiger: inference attacks on split learning", CCS 2021, the feature-space
hijacking attack. The attacker has an encoder x -> z with its inverse, and rows of other people. What it sends back is
the derivative of how far a party's embeddings are, as a cloud of points, from the encoder's z of other people, so that
the party's own network learns to make z like the encoder's; then the inverse turns embeddings into columns.

Two things are not as printed. How far clouds are apart is told by the energy distance (Székely, Rizzo 2013) and not by
a critic that learns beside it, as a job has hundreds of steps and theirs had ten thousand; and the encoder is linear,
principal components. And in vertical learning the attacker has columns of its own of the same people: a point is z
beside these. The party hears nothing of a form that it could not have expected, and has no way to tell.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from colonnade.algorithms.split import SplitSession
from colonnade.attacks.case import COLUMNS, Attack, Case, FloatArray, Guess, Rows
from colonnade.families.torch_networks import SplitFamily
from colonnade.families.training import TrainingJob, TrainingPart
from colonnade.inversions.embeddings import sampled
from colonnade.runtimes.net import CLEAR, Net, Program
from colonnade.views.rows_seen import passes_of, regressed, standardised

_AT_ONCE = 512  # of the other people, drawn for each batch


class Hijacking(Attack):
    """Feature-space hijacking by the label holder of a top network, which replaces the objective of the training."""

    name: ClassVar[str] = "hijacked embeddings"
    paper: ClassVar[str] = "Pasquini et al. 2021"
    about: ClassVar[str] = COLUMNS
    needs: ClassVar[str] = "rows of other people, does not follow the protocol"
    closed_by: ClassVar[str] = "top=None"
    slow: ClassVar[bool] = True

    def guess(self, case: Case) -> Guess | None:
        """Run the training again with gradients of one's own, and decode what the target's network makes then."""
        if case.public.get("family") != "split" or case.others is None or case.play is None or case.own is None:
            return None
        if case.attacker not in case.public.get("holders", ()):
            return None
        mind = Hijacker(*case.others, case.own, int(case.rng("hijacking").integers(1 << 31)))
        view = case.play(hijacked(mind, case.target))
        last = [one for one in view.of(CLEAR, "embeddings to evaluate") if one.party == case.target]
        passes = passes_of(last, case.rows)
        if not passes:
            return None
        rows = sampled(case)
        return Guess(rows, columns=mind.decoded(passes[-1])[rows], matched=True)

    def alone(self, case: Case) -> Guess | None:
        """Regress columns on own columns, on the rows of other people."""
        if case.others is None or case.own is None:
            return None
        own, theirs = case.others
        found = regressed(np.vstack([own, case.own]), np.arange(len(own)), theirs)[len(own) :]
        rows = sampled(case)
        return Guess(rows, columns=found[rows], matched=True)


class Hijacker:
    """The attacker's encoder and its inverse, and what it sends to a party in place of the loss's derivative.

    Parameters
    ----------
    own, theirs
        Columns of other people, as the attacker has them and as the target has them.
    mine
        The attacker's columns of the people of the training.
    seed
        Of its draws.
    """

    def __init__(self, own: FloatArray, theirs: FloatArray, mine: FloatArray, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        both = standardised(np.vstack([own, mine]))
        self._own, self._mine, self._theirs = both[: len(own)], both[len(own) :], theirs
        self._components = np.linalg.svd(standardised(theirs), full_matrices=False)[2]

    def encoded(self, width: int) -> FloatArray:
        """Return z of the other people: their first principal components, and zeros where z is wider."""
        z = standardised(self._theirs) @ self._components[:width].T
        return np.pad(z, ((0, 0), (0, width - z.shape[1])))

    def gradient(self, embeddings: FloatArray, rows: Rows) -> FloatArray:
        """Return the derivative by each embedding of the distance between the batch and the other people."""
        here = np.hstack([embeddings, self._mine[rows]])
        some = self._rng.permutation(len(self._own))[:_AT_ONCE]
        there = np.hstack([self.encoded(embeddings.shape[1])[some], self._own[some]])
        found = 2.0 * (_directions(here, there) - _directions(here, here))[:, : embeddings.shape[1]]
        told: FloatArray = np.nan_to_num(found)
        return told

    def decoded(self, embeddings: FloatArray) -> FloatArray:
        """Return columns of all rows from embeddings and own columns, by what holds for the other people."""
        there = np.hstack([self.encoded(embeddings.shape[1]), self._own])
        here = np.hstack([embeddings, self._mine])
        return regressed(np.vstack([there, here]), np.arange(len(there)), self._theirs)[len(there) :]


def _directions(points: FloatArray, others: FloatArray) -> FloatArray:
    """Return the mean of the unit vectors that lead from all others to each point."""
    found = np.empty_like(points)
    for row, point in enumerate(points):
        apart = point - others
        length = np.linalg.norm(apart, axis=1)
        found[row] = (apart / np.where(length > 0, length, 1.0)[:, None]).mean(axis=0)
    return found


class HijackingSession(SplitSession):
    """A session of a label holder that sends one party the derivative of something else than the loss."""

    mind: ClassVar[Hijacker]
    target: ClassVar[str]

    def signal(self, scores: FloatArray, rows: Rows) -> FloatArray:
        """Return dL/d(embedding) for all parties but the target, which gets the critic's."""
        found, place = super().signal(scores, rows).copy(), self.top.spans[self.target]
        found[:, place] = self.mind.gradient(scores[:, place], rows)
        return found


def hijacked(mind: Hijacker, target: str) -> Program:
    """Return the program of a label holder that plays so; it takes what `families.training.train` takes."""

    class _Session(HijackingSession):
        pass

    _Session.mind, _Session.target = mind, target

    class _Family(SplitFamily):
        session: ClassVar[type[SplitSession]] = _Session

    async def program(net: Net, job: Any, part: Any) -> Any:
        return await _Family().train(net, TrainingJob.from_value(job), TrainingPart(*part), None, None)

    return program
