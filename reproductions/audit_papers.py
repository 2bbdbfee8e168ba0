"""What papers say that their attacks find, in a few words each, by the name of the attack.

Their tables are of other models and data; what can be held against ours is what works, and what works better than what.
"""

from __future__ import annotations

_LI = "recovers labels accurately"
_FU = "labels from few known ones; hard to prevent (Kang et al. 2022)"

PAPERS: dict[str, str] = {
    "signs of signals": _LI,
    "norms of signals": _LI,
    "directions of signals": _LI,
    "spectral, embeddings": "labels, also where gradients are perturbed",
    "model completion, passive": _FU,
    "model completion, active": f"{_FU}; better than the passive one",
    "batch label inference": "labels with high accuracy, though only batches' gradients are seen",
    "equations of scores": "exact, where fewer columns are unknown than there are classes",
    "generator behind scores": "beyond that, better than guessing",
    "membership by likelihood ratio": "better than the loss alone, most of all at few false alarms",
}
