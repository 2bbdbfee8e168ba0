"""FedBCD: federated stochastic block coordinate descent.

Liu, Zhang, Kang, Li, Chen, Hong, Yang: "FedBCD: A Communication-Efficient Collaborative Learning Framework for
Distributed Features", IEEE Transactions on Signal Processing 70, 2022. Algorithm 1 (FedBCD-p), Section IV (FedSGD,
FedBCD-s), equation (13) (FedPBCD-p).

Beyond the paper: any number of label holders. Each row belongs to one of them, and the holder of a batch's rows is
the paper's party K for that round. Contributions I^{k,K} go through a secure sum; with three or more parties and masks
the holder sees only the total. FedBCD-s undoes that, see docs/security.md.

Here are the options, and what a run of them shows. Algorithm 1's loop is `flows.local_steps`, equation (9) is
`engine.following`, Theorem 1 `theorem_step`, and how signals go back, encrypted or not, `engine.exchange`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import ClassVar

from colonnade.algorithms.theorem_step import BlockDescent
from colonnade.engine.exchange import signal_leaks
from colonnade.engine.following import FORMS, check_form, check_readable, reads_signals, sends_curvatures
from colonnade.engine.session import Session, session_leaks
from colonnade.errors import OptionError, at_least, one_of, whole_number
from colonnade.flows.local_steps import descend
from colonnade.leaks import Leak, Setting, contributions, sequential

# Messages about the rows of a batch and of an evaluation.
_SUMMED = ("scores", "evaluation")
ORDERS = ("parallel", "sequential", "sequential-once")
DECAYS = ("exchange", "step")


@dataclass(frozen=True)
class FedSGD(BlockDescent):
    """Vanilla SGD, equation (8): one step per exchange. FedBCD-p with Q = 1.

    The parameters are those of `engine.options.Training`; as in `FedBCD`, step="theorem" is Theorem 1's.
    """

    name: ClassVar[str] = "FedSGD"

    @property
    def encryptable(self) -> bool:
        """A step needs the gradient of a whole batch only."""
        return True

    def numbers_per_row(self, setting: Setting) -> int | None:
        """A contribution to each batch, and to each evaluation."""
        return self._passes(setting)

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Contributions there, signals back."""
        shown = _shown(setting, self.numbers_per_row(setting), self._signalled(setting))
        return (*session_leaks(setting, self), *shown)

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        await descend(session, self, 1)


@dataclass(frozen=True)
class FedBCD(BlockDescent):
    """Block coordinate descent with several local steps per exchange.

    Parameters
    ----------
    local_steps : int or "auto"
        Q, the steps that a party takes between two exchanges. "auto" is the least that Theorem 1 allows, sqrt(S / K)
        for batches of S rows and K parties.
    order : {"parallel", "sequential", "sequential-once"}
        "parallel" is FedBCD-p, all parties at once. "sequential" is FedBCD-s, one party after another, each from fresh
        information: K - 1 exchanges about a batch. "sequential-once" is FedBCD-s in one exchange, as the authors'
        public demo has it: the label holder takes its steps first, and all others step with a signal in which its part
        of the scores is fresh and everybody else's is that of the exchange. With two parties the two are the same.
    proximal : float
        mu of equation (13), which keeps a large Q from running away (FedPBCD-p).
    signal : {"auto", "exact", "curvature", "frozen"}
        What a party without the batch's labels steps with from its second local step on. "frozen" is the signal as it
        came with the exchange (Algorithm 1 for losses of form (2)). "exact" is the signal of the scores with the
        party's own contribution as it is now (equation (9), which Theorem 1 is about); logistic, softmax and square
        losses allow it, without another message. "curvature" is that to first order, s + c (z_k,new - z_k,old) with
        c = d²L/dz². "auto" is "exact" for networks, and "frozen" for linear models and where signals are encrypted,
        scores are no sum of contributions, or rows have weights, which the signal would have to tell.
    decay : {"exchange", "step"}
        What r counts in the schedules "sqrt" and "sqrt-parties". The paper's r is ambiguous: the r of Algorithm 1
        counts local iterations, of which an exchange has Q, while Section VII, which has the schedules, draws
        everything over communication rounds. "exchange" shortens the step from one exchange to the next, "step" from
        one local iteration to the next.
    **training
        The keyword parameters of `engine.options.Training`. Also step="theorem": the largest constant step that
        Theorem 1 allows, 1 / (L + 2 Q^2 sum_k L_k^2 / L); see `algorithms.theorem_step`.
    """

    local_steps: int | str = 5
    order: str = "parallel"
    proximal: float = 0.0
    signal: str = "auto"
    decay: str = "exchange"

    name: ClassVar[str] = "FedBCD"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_steps != "auto":
            if isinstance(self.local_steps, str):
                raise OptionError(f"local_steps must be a whole number >= 1 or 'auto', got {self.local_steps!r}")
            whole_number("local_steps", self.local_steps, 1)
        one_of("order", self.order, ORDERS)
        one_of("decay", self.decay, DECAYS)
        if self.decay == "step" and not self.schedule.startswith("sqrt"):
            raise OptionError(
                f"decay='step' needs a schedule that falls, 'sqrt' or 'sqrt-parties', got {self.schedule!r}; set one, "
                f"or leave decay out"
            )
        at_least("proximal", self.proximal, 0, finite=True)
        one_of("signal", self.signal, FORMS)

    @property
    def label(self) -> str:
        """With the number of local steps and their order."""
        steps = "sqrt(S / K)" if self.local_steps == "auto" else self.local_steps
        turns = {"sequential": " in turn", "sequential-once": " in turn, in one exchange"}
        return f"FedBCD, {steps} local steps{turns.get(self.order, '')}"

    def steps_between(self, batch: int, parties: int) -> int:
        """Q as given, or the least that Theorem 1 allows: Q >= sqrt(S / K)."""
        return ceil(sqrt(batch / parties)) if isinstance(self.local_steps, str) else self.local_steps

    @property
    def encryptable(self) -> bool:
        """Local steps need the gradient of a whole batch only, unless the signal is to follow them."""
        return not reads_signals(self.signal)

    def check_sum(self, name: str) -> None:
        """Refuse to read signals that are encrypted."""
        check_readable(self.signal, name)

    def check(self, setting: Setting) -> None:
        """Refuse what these options can't train: a signal that can't follow a party's steps there."""
        super().check(setting)
        check_form(self.signal, setting)

    def exchanges(self, parties: int) -> int:
        """One, in which all parties step at once; in turn, one before every party's steps but the label holder's."""
        return max(1, parties - 1) if self.order == "sequential" else 1

    def numbers_between(self, outputs: int, parties: int, holders: int, batches: int) -> float:
        """See `Training.numbers_between`; in turn, the same rows are summed again after each party's steps."""
        again = self.exchanges(parties) - 1
        return super().numbers_between(outputs, parties, holders, batches) + outputs * again

    def numbers_per_row(self, setting: Setting) -> int | None:
        """As FedSGD's; one after another, all parties contribute to a batch before every turn."""
        return self._passes(setting)

    def leaks(self, setting: Setting) -> tuple[Leak, ...]:
        """Contributions there, signals back; of Poisson's curvature, which is sent with them, the score itself."""
        numbers = self.numbers_per_row(setting)
        kinds = ("signal", "curvatures") if sends_curvatures(self.signal, setting) else ("signal",)
        found = (*session_leaks(setting, self), *_shown(setting, numbers, self._signalled(setting), kinds))
        return (*found, *(sequential(setting, numbers, _SUMMED) if self.order == "sequential" else ()))

    async def train(self, session: Session) -> None:
        """Run this party's side."""
        steps = self.steps_between(session.batch, len(session.net.names))
        await descend(session, self, steps, self.order, self.proximal, self.decay, self.signal)


def _shown(
    setting: Setting, numbers: int | None, back: int | None, kinds: tuple[str, ...] = ("signal",)
) -> tuple[Leak, ...]:
    """What both show: a contribution to every batch and evaluation, and a signal of every batch back."""
    return (*contributions(setting, numbers, _SUMMED), *signal_leaks(setting, back, kinds))
