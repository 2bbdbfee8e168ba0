"""How the signal of a batch follows a party's own local steps between two exchanges.

FedBCD's Theorem 1 is about steps along g_k([Theta_-k of the last exchange, theta_k now]), equation (9): what the others
contribute is as old as the exchange, the party's own block is fresh. The holder of a batch's labels always steps so.
Any other party got one signal s = dL/dz with the exchange, and its own contribution z_k moves with every step. With
the change d = z_k,new - z_k,old its next step takes

    "exact"      the signal at the score z + d. Logistic, softmax and square: s tells the score (of softmax up to a
                 constant, which changes no signal), so this is equation (9) to the last few bits, without a message.
    "curvature"  s + c d, c = d²L/dz²: equation (9) to first order. c follows from s; Poisson's, Tweedie's
                 and the negative binomial's are sent.
    "frozen"     s as it came, as in Algorithm 1's branch for losses of form (2).

Exact is impossible where rows of one signal have different scores: the smooth hinge's are flat beyond its kinks, and
Poisson's signal is a mean minus a count that the party does not know. It is also impossible where scores are no sum of
contributions, as with a top network, which only the label holder has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from colonnade.blocks import FloatArray, Rows
from colonnade.engine.exposure import ENCRYPTED
from colonnade.errors import OptionError
from colonnade.leaks import Setting
from colonnade.objective.losses import loss as loss_of
from colonnade.objective.losses import sends_curvature

if TYPE_CHECKING:
    from colonnade.engine.session import Session

FORMS = ("auto", "exact", "curvature", "frozen")

Follow: TypeAlias = Callable[[FloatArray], FloatArray]  # from the change of a contribution to the signal after it


def reads_signals(form: str) -> bool:
    """Whether local steps of this form need a signal that can be read; "auto" does without where it is encrypted."""
    return form in ("exact", "curvature")


def check_readable(form: str, sum_name: str) -> None:
    """Refuse a form that reads signals, where they are encrypted."""
    if sum_name == ENCRYPTED and reads_signals(form):
        raise OptionError(
            f"sum='encrypted' encrypts the signals, and signal={form!r} reads them; leave out one of the two"
        )


def check_form(form: str, setting: Setting) -> None:
    """Refuse a form in which signals can't follow a party's steps in such a run."""
    check_readable(form, setting.sum)
    if not reads_signals(form):
        return
    if setting.model not in ("linear", "network"):
        raise OptionError(
            f"signal={form!r} needs scores that are the sum of all contributions, and a {setting.model} model's are "
            f"not; leave signal out"
        )
    if setting.weighted and not sends_curvatures(form, setting):
        raise OptionError(
            f"signal={form!r} works out scores from signals, which needs rows that count alike, and here they have "
            f"weights that only the label holder knows; leave signal out"
        )
    if form == "exact" and not loss_of(setting.loss).tells_score:
        raise OptionError(
            f"signal='exact' needs a loss whose signal tells the score, and {setting.loss}'s does not; give "
            f"signal='curvature'"
        )


def sends_curvatures(form: str, setting: Setting) -> bool:
    """Whether the label holder sends the curvature of every row beside its signal."""
    return form == "curvature" and sends_curvature(setting.loss)


async def following(
    session: Session, form: str, holder: str, rows: Rows, signal: FloatArray, *, told: bool
) -> Follow | None:
    """Return how this signal of a batch follows the party's own contribution; None where it is frozen.

    The holder, which computes its signal afresh, is not concerned. `told`: whether all parties step at once, so that
    the holder can tell all of them what each needs.
    """
    loss = session.job.loss
    if form == "exact":
        return lambda change: loss.signal_after(signal, change)
    if form == "frozen":
        return None
    bend = loss.curvature_from(signal)
    if bend is None:
        bend = await (session.hear_told_signal if told else session.hear_signal)(holder, rows, "curvatures")
    known = bend
    return lambda change: signal + known * change


async def tell_curvatures(session: Session, rows: Rows, signal: FloatArray, scores: FloatArray, *, told: bool) -> None:
    """At the holder: send d²L/dz² of the batch to all others, where its signal does not tell it."""
    y, loss = session.train.y, session.job.loss
    if y is not None and loss.curvature_from(signal) is None:
        await (session.tell if told else session.tell_each)("curvatures", loss.curvature(scores, y[rows]))
