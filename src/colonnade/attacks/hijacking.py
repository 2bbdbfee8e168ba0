"""Columns from a network that was made to show them: a label holder that sends other gradients than those of the loss.

Pasquini, Ateniese, Bernaschi: "Unleashing the tiger: inference attacks on split learning", CCS 2021, the feature-space
hijacking attack. With rows of other people the attacker trains an encoder and a decoder, x -> z -> x, and a critic that
tells the encoder's z from a party's embeddings. What it sends back is the derivative of the critic's opinion, so that
the party's own network learns to make z like the encoder's; then the decoder turns embeddings into columns. As in the
authors' code the critic is a Wasserstein one with a penalty on gradients (Gulrajani et al. 2017).

In vertical learning the attacker has columns of its own of the same people: critic and decoder look at these as well.
The party plays its part: nothing that it hears is of a form that it could not have expected, and it has no way to tell.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from colonnade.algorithms.split import SplitSession
from colonnade.attacks.case import COLUMNS, Attack, Case, FloatArray, Guess, Rows
from colonnade.attacks.embeddings import sampled
from colonnade.blocks.torch_modules import alone, need_torch
from colonnade.families.torch_networks import SplitFamily
from colonnade.families.training import TrainingJob, TrainingPart
from colonnade.runtimes.net import CLEAR, Net, Program
from colonnade.views.rows_seen import passes_of, regressed

_HIDDEN, _RATE, _BATCH = 64, 1e-3, 64  # of the attacker's networks, which learn by Adam
_PENALTY, _CRITIC_STEPS = 10.0, 3  # of the critic's gradients, and of its own for each message


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
    """The attacker's networks: encoder, decoder and critic, which learn with every message that comes.

    Parameters
    ----------
    own, theirs
        Columns of other people, as the attacker has them and as the target has them.
    mine
        The attacker's columns of the people of the training.
    seed
        Of its networks and its draws.
    """

    def __init__(self, own: FloatArray, theirs: FloatArray, mine: FloatArray, seed: int) -> None:
        torch = need_torch()
        self._rng = np.random.default_rng(seed)
        self._stream = torch.Generator().manual_seed(seed)
        self._centre, spread = theirs.mean(axis=0), theirs.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        middle, size = own.mean(axis=0), own.std(axis=0)
        size = np.where(size > 0, size, 1.0)
        self._theirs = _tensor((theirs - self._centre) / self._spread)
        self._own, self._mine = _tensor((own - middle) / size), _tensor((mine - middle) / size)
        self._encoder: Any = None  # made when the first embeddings come, and it is seen how wide they are

    def _open(self, width: int) -> None:
        """Make the networks."""
        torch = need_torch()
        columns, own = self._theirs.shape[1], self._own.shape[1]
        self._encoder = self._network(columns, width)
        self._decoder = self._network(width + own, columns)
        self._critic = self._network(width + own, 1)
        coders = [*self._encoder.parameters(), *self._decoder.parameters()]
        self._coding = torch.optim.Adam(coders, lr=_RATE)
        self._judging = torch.optim.Adam(self._critic.parameters(), lr=_RATE, betas=(0.5, 0.9))

    def _network(self, inputs: int, outputs: int) -> Any:
        """Return two hidden layers, with first parameters from the attacker's own stream."""
        torch = need_torch()
        nn, layers = torch.nn, []
        for a, b in ((inputs, _HIDDEN), (_HIDDEN, _HIDDEN), (_HIDDEN, outputs)):
            layer = nn.Linear(a, b)
            with torch.no_grad():
                for one in layer.parameters():
                    one.copy_((torch.rand(one.shape, generator=self._stream) * 2 - 1) / a**0.5)
            layers += [layer, nn.LeakyReLU(0.2)]
        return nn.Sequential(*layers[:-1])

    def gradient(self, embeddings: FloatArray, rows: Rows) -> FloatArray:
        """Learn from a batch of the target's embeddings, and return what makes them more like the encoder's."""
        torch = need_torch()
        with alone():
            if self._encoder is None:
                self._open(embeddings.shape[1])
            z, beside = _tensor(embeddings), self._mine[torch.from_numpy(np.asarray(rows))]
            for _ in range(_CRITIC_STEPS):
                some = torch.from_numpy(self._rng.choice(len(self._theirs), size=min(_BATCH, len(self._theirs))))
                made = self._code(some)
                self._judge(made, self._own[some], z, beside)
            z.requires_grad_()
            opinion = self._critic(torch.cat([z, beside], dim=1)).sum()
            (found,) = torch.autograd.grad(opinion, z)
        told: FloatArray = np.nan_to_num(found.double().numpy())
        return told

    def _code(self, some: Any) -> Any:
        """Take a step of encoder and decoder on some of the other people, and return what the encoder makes of them."""
        torch = need_torch()
        made = self._encoder(self._theirs[some])
        back = self._decoder(torch.cat([made, self._own[some]], dim=1))
        self._coding.zero_grad()
        (back - self._theirs[some]).square().mean().backward()
        self._coding.step()
        return made.detach()

    def _judge(self, made: Any, own: Any, z: Any, beside: Any) -> None:
        """Take a step of the critic, which is to be low for the encoder's and high for the target's."""
        torch = need_torch()
        count = min(len(made), len(z))
        true, false = (torch.cat(pair, dim=1)[:count] for pair in ((made, own), (z.detach(), beside)))
        part = torch.rand(count, 1, generator=self._stream)
        between = (part * true + (1 - part) * false).requires_grad_()
        (slope,) = torch.autograd.grad(self._critic(between).sum(), between, create_graph=True)
        loss = self._critic(true).mean() - self._critic(false).mean()
        self._judging.zero_grad()
        (loss + _PENALTY * (slope.norm(dim=1) - 1).square().mean()).backward()
        self._judging.step()

    def decoded(self, embeddings: FloatArray) -> FloatArray:
        """Return what the decoder makes of the target's embeddings of all rows, as columns of the target's size."""
        torch = need_torch()
        if self._encoder is None:
            self._open(embeddings.shape[1])
        with alone(), torch.no_grad():
            back = self._decoder(torch.cat([_tensor(embeddings), self._mine], dim=1)).double().numpy()
        found: FloatArray = back * self._spread + self._centre
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


def _tensor(numbers: FloatArray) -> Any:
    torch = need_torch()
    return torch.from_numpy(np.ascontiguousarray(numbers)).float()
