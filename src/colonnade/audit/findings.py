"""What an attack found beyond its floor, and what is to be said of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from colonnade.attacks.case import COLUMNS, LABELS, MEMBERS, Attack, Case, FloatArray, Guess, Rows
from colonnade.audit.measures import Truth, found_without_error, measure_of, measured
from colonnade.errors import DataError

# Who says nothing else: an attack that is better than its floor by this is one that found something.
MAX_ADVANTAGE = 0.05
_PERMUTATIONS, _BOOTSTRAPS, _QUANTILE = 40, 60, 0.95
_MOST_ROWS = 5_000  # that are drawn for each of these
_NOTHING_LEFT = 1e-3  # where the attacker would know so nearly all without the run, there is nothing to find
CHANCE, ALONE = "chance", "own columns and model"


@dataclass(frozen=True)
class AuditFinding:
    """One attack by one attacker on one target.

    Attributes
    ----------
    attack, paper
        What was tried, and where it is from.
    attacker, target
        Who looked, and whose columns, labels or people it is about.
    about
        "your labels", "your columns" or "your people", as in `leaks`.
    had
        What the attacker had beside what it saw, in a few words.
    measure
        What the numbers are: AUC, or R² of a column.
    score
        How good the attack was.
    floor
        How good it would have been without the run: the larger of what shuffled rows give 19 times in 20, and of what
        the attacker's own columns and its own part of the finished model give. Where the attack is better than these by
        no more than chance would have it, that is its floor.
    floor_from
        Which of the two it was.
    what
        The column, or the class, that was found best beyond its floor; of membership, how many the attacker is sure of;
        "" where there is one thing alone.
    found
        How many columns or classes were found beyond their floors by more than the threshold, and how many there are.
    closed_by
        The switch that closes it.
    """

    attack: str
    paper: str
    attacker: str
    target: str
    about: str
    had: str
    measure: str
    score: float
    floor: float
    floor_from: str
    what: str
    found: tuple[int, int]
    closed_by: str

    @property
    def advantage(self) -> float:
        """Return which part of what was left to find was found: 0 is nothing, and 1 is all of it.

        Where own columns tell nearly all, to have the rest is a gain that a difference would not show.
        """
        return float(gained(np.array([self.score]), np.array([self.floor]))[0])

    def is_open(self, threshold: float = MAX_ADVANTAGE) -> bool:
        """Return whether it found more than a threshold allows."""
        return self.advantage > threshold

    def verdict(self, threshold: float = MAX_ADVANTAGE) -> str:
        """Say in a word or two what came of it."""
        return f"open: {self.closed_by}" if self.is_open(threshold) else "closed"


def gained(score: FloatArray, floor: FloatArray) -> FloatArray:
    """Return which part of what a floor leaves to be found was found."""
    left = 1.0 - floor
    found: FloatArray = np.where(
        left < _NOTHING_LEFT, 0.0, np.maximum(0.0, score - floor) / np.maximum(left, _NOTHING_LEFT)
    )
    return found


def judged(attack: Attack, case: Case, truth: Truth, had: str, threshold: float = MAX_ADVANTAGE) -> AuditFinding | None:
    """Carry out an attack and hold it against the truth and its floor; None where it has nothing to go by."""
    guess = attack.guess(case)
    if guess is None or not len(guess.rows):
        return None
    guess, alone = _unknown(attack, guess, case, truth), attack.alone(case)
    if not len(guess.rows):
        return None
    score = measured(attack.about, guess, truth)
    if not len(score):
        return None
    chance = _by_chance(attack, guess, truth, case)
    own, better = np.zeros_like(score), np.ones_like(score, dtype=bool)
    if alone is not None:
        alone = _about_same(alone, guess)
        own, better = measured(attack.about, alone, truth), _better(attack, guess, alone, truth, case)
    floor = np.maximum(chance, own)
    # Of two guesses that are equally good one is always a little better on the rows at hand: that is no gain.
    floor = np.where((score > floor) & ~better, score, floor)
    gain = gained(score, floor)
    best = int(np.argmax(gain))
    names = truth.names if attack.about == COLUMNS else tuple(f"class {k}" for k in range(len(score)))
    return AuditFinding(
        attack.name, attack.paper, case.attacker, case.target, attack.about, had,
        measure_of(attack.about, truth), float(score[best]), float(floor[best]),
        ALONE if own[best] > chance else CHANCE,
        names[best] if len(score) > 1 else _rarely_wrong(attack, guess, truth),
        (int((gain > threshold).sum()), len(score)),
        attack.closed_by,
    )  # fmt: skip


def _rarely_wrong(attack: Attack, guess: Guess, truth: Truth) -> str:
    """Say of an attack on membership how many it is sure of, which an AUC does not tell (Carlini et al. 2022, III)."""
    if attack.question != MEMBERS or guess.people is None or truth.people is None:
        return ""
    return f"{found_without_error(guess.people, truth.people[guess.rows]):.3f} found at 0.1 % false alarms"


def _by_chance(attack: Attack, guess: Guess, truth: Truth, case: Case) -> float:
    """Return what the best of all columns or classes reaches 19 times in 20 if rows are shuffled."""
    rng, found = case.rng(f"permutations of {attack.name}"), []
    guess = _sampled(guess, rng)
    for _ in range(_PERMUTATIONS):
        order = rng.permutation(len(guess.rows))
        found.append(measured(attack.about, guess, truth, order).max(initial=0.0))
    return float(np.quantile(found, _QUANTILE))


def _better(attack: Attack, guess: Guess, alone: Guess, truth: Truth, case: Case) -> npt.NDArray[np.bool_]:
    """Return where a guess stays better than another one 19 times in 20, when rows are drawn again."""
    rng, differences = case.rng(f"bootstrap of {attack.name}"), []
    count, width = min(len(guess.rows), _MOST_ROWS), len(measured(attack.about, alone, truth))
    for _ in range(_BOOTSTRAPS):
        places = rng.integers(0, len(guess.rows), size=count)
        first, second = (measured(attack.about, _taken(one, places), truth) for one in (guess, alone))
        if len(first) == len(second) == width:  # a rare class may be missing
            differences.append(first - second)
    if not differences:
        return np.ones(width, dtype=bool)
    lowest = np.quantile(differences, 1.0 - _QUANTILE, axis=0)
    # Fewer rows were drawn than there are: what is drawn from all of them spreads less.
    middle = np.median(differences, axis=0)
    found: npt.NDArray[np.bool_] = middle + (lowest - middle) * np.sqrt(count / len(guess.rows)) > 0.0
    return found


def _about_same(alone: Guess, guess: Guess) -> Guess:
    """Return what is guessed without the run about the rows that the attack is about, in their order."""
    place = {int(row): at for at, row in enumerate(alone.rows)}
    missing = [row for row in guess.rows.tolist() if row not in place]
    if missing:
        raise DataError("a guess without the run must be about all rows that the attack is about")
    return _taken(alone, np.array([place[int(row)] for row in guess.rows], dtype=np.int64))


def _sampled(guess: Guess, rng: np.random.Generator) -> Guess:
    if len(guess.rows) <= _MOST_ROWS:
        return guess
    return _taken(guess, np.sort(rng.permutation(len(guess.rows))[:_MOST_ROWS]))


def _unknown(attack: Attack, guess: Guess, case: Case, truth: Truth) -> Guess:
    """Leave out rows whose truth the attacker was given, which prove nothing, and rows without a label to be found."""
    if guess.people is not None and case.known.people is None:
        return guess
    left = ~np.isin(guess.rows, case.known.rows)
    if attack.about == LABELS and truth.labelled is not None:
        left &= truth.labelled[guess.rows]
    return guess if left.all() else _taken(guess, np.nonzero(left)[0])


def _taken(guess: Guess, places: Rows) -> Guess:
    labels, columns, people = guess.labels, guess.columns, guess.people
    return Guess(
        guess.rows[places],
        None if labels is None else labels[places],
        None if columns is None else columns[places],
        guess.matched,
        None if people is None else people[places],
    )
