"""Tables and panels of `fedbcd_nus`: rounds against Q, very large Q, more parties, transfer learning."""

from __future__ import annotations

from collections.abc import Sequence

from reproductions.fedbcd_setting import Setting
from reproductions.network_rounds import Curves, ended, highest, loss_panel, panel
from reproductions.report import Panel, Table, rounds_text, rounds_to


def by_q_table(curves: Curves, settings: Sequence[Setting], targets: Sequence[float]) -> Table:
    """Rounds to each target, and where a run ended, for every Q and signal."""
    rows = []
    for s in settings:
        curve = curves[s]
        reached = (rounds_text(rounds_to(curve, target), curve.rounds[-1]) for target in targets)
        rows.append((str(s.Q), s.signal, *reached, f"{highest(curve):.4f}", ended(curve), f"{curve.loss[-1]:.3f}"))
    header = (
        "Q",
        "signal",
        *(f"rounds to {target:g}" for target in targets),
        "highest AUC",
        "last AUC",
        "training loss",
    )
    best = {target: min((rounds_to(curves[s], target), s.Q) for s in settings)[1] for target in targets}
    words = ["Fewest rounds: " + ", ".join(f"Q = {Q} to {target:g}" for target, Q in best.items()) + "."]
    return Table("rounds", f"1. FedBCD-p, two parties, eta0 = {settings[0].eta0:g}", header, rows, words)


def large_table(curves: Curves, settings: Sequence[Setting]) -> Table:
    """Figure 3(b): where runs with very large Q ended."""
    rows = [
        (
            str(s.Q),
            f"{s.eta0:g}",
            f"{s.proximal:g}" if s.proximal else "-",
            s.signal,
            str(curves[s].rounds[-1]),
            f"{highest(curves[s]):.4f}",
            ended(curves[s]),
            f"{curves[s].loss[-1]:.3f}",
        )
        for s in settings
    ]
    words = [
        'mu "-" is FedBCD-p, with mu FedPBCD-p. NaN: the run broke off in that round or the next, as a network gave '
        "no number any more."
    ]
    header = ("Q", "eta0", "mu", "signal", "rounds", "highest AUC", "last AUC", "training loss")
    return Table("large-q", "3. Figure 3(b): very large Q", header, rows, words)


def parties_table(curves: Curves, settings: Sequence[Setting], target: float) -> Table:
    """Rounds to the target with more parties."""
    rows = []
    for s in settings:
        curve = curves[s]
        reached = rounds_text(rounds_to(curve, target), curve.rounds[-1])
        rows.append((s.algorithm, str(s.parties), str(s.Q), reached, f"{highest(curve):.4f}", ended(curve)))
    header = ("algorithm", "parties", "Q", f"rounds to {target:g}", "highest AUC", "last AUC")
    words = ["With more than two parties steps are eta0 / sqrt((r + 1) K). A sequential batch is K - 1 rounds."]
    return Table("parties", "4. More parties", header, rows, words)


def transfer_table(curves: Curves, settings: Sequence[Setting], target: float) -> Table:
    """Rounds to the target in transfer learning."""
    rows = []
    for s in settings:
        curve = curves[s]
        reached = rounds_text(rounds_to(curve, target), curve.rounds[-1])
        rows.append((str(s.Q), f"{s.eta0:g}", reached, f"{highest(curve):.4f}", ended(curve)))
    header = ("Q", "eta0", f"rounds to {target:g}", "highest AUC", "last AUC")
    words = ["The tags party is scored without its picture: labels come from pictures of which it has tags of a half."]
    return Table("transfer", "5. Transfer learning: predictions from tags alone", header, rows, words)


def panels(
    curves: Curves, by_q: Sequence[Setting], far: Sequence[Setting], more: Sequence[Setting], targets: Sequence[float]
) -> list[Panel]:
    """AUC and training loss for every Q, the largest Q with a long step in all forms, and more parties."""

    def named(settings: Sequence[Setting], forms: bool = False) -> dict[str, Setting]:
        return {
            f"Q = {s.Q}"
            + (f", {s.signal}, mu = {s.proximal:g}" if forms else "")
            + (f", {s.parties} parties" if s.parties > 2 else ""): s
            for s in settings
        }

    exact, limits = named([s for s in by_q if s.signal == "exact"]), (0.5, 0.92)
    return [
        panel("rounds against Q", curves, exact, targets[-1], limits),
        loss_panel("rounds against Q", curves, exact),
        panel(f"very large Q, eta0 = {far[0].eta0:g}", curves, named(far, forms=True), targets[-1], limits),
        panel("more parties", curves, named(more), targets[0], limits),
    ]
