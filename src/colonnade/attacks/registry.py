"""All attacks, in the order of a table: on labels, on columns, on people."""

from __future__ import annotations

from colonnade.attacks.case import Attack
from colonnade.attacks.embeddings import EmbeddingRegression, InitialInversion
from colonnade.attacks.gradients import GradientInversion
from colonnade.attacks.hijacking import Hijacking
from colonnade.attacks.membership import LikelihoodRatio, LossThreshold, NetworkLikelihoodRatio
from colonnade.attacks.oracles import AlignmentOracle, ScoringOracle
from colonnade.attacks.properties import PropertyInference
from colonnade.attacks.signal_signs import SignalSigns

ATTACKS: tuple[Attack, ...] = (
    # on labels
    SignalSigns(),
    # on columns
    EmbeddingRegression(),
    InitialInversion(),
    GradientInversion(),
    Hijacking(),
    # on people
    LossThreshold(),
    LikelihoodRatio(),
    NetworkLikelihoodRatio(),
    PropertyInference(),
    ScoringOracle(),
    AlignmentOracle(),
)
