"""All attacks, in the order of a table: on labels, on columns, on people."""

from __future__ import annotations

from colonnade.attacks.batch_labels import BatchLabels
from colonnade.attacks.case import Attack
from colonnade.attacks.completion import ActiveCompletion, ModelCompletion
from colonnade.attacks.membership import LikelihoodRatio, LossThreshold, NetworkLikelihoodRatio
from colonnade.attacks.oracles import AlignmentOracle, ScoringOracle
from colonnade.attacks.own_gradients import GradientCorrelation
from colonnade.attacks.properties import PropertyInference
from colonnade.attacks.reduction import LatticeReduction
from colonnade.attacks.signal_signs import SignalSigns
from colonnade.attacks.signal_values import SignalCurvatures, SignalValues
from colonnade.attacks.signal_vectors import SignalDirections, SignalNorms, SpectralSignals
from colonnade.attacks.spectral import SpectralEmbeddings
from colonnade.inversions.column_span import ColumnSpan, UnmaskedParts
from colonnade.inversions.embeddings import EmbeddingRegression, InitialInversion
from colonnade.inversions.gradients import GradientInversion
from colonnade.inversions.hijacking import Hijacking
from colonnade.inversions.phases import Phases, SharedDirections
from colonnade.inversions.rotations import InnerProducts, KnownMarginals, PieceSigns
from colonnade.inversions.score_equations import EqualitySolving, GenerativeRegression, ScoreRegression
from colonnade.inversions.tree_bins import TreeRanges, TreeSums

ATTACKS: tuple[Attack, ...] = (
    # on labels
    SignalSigns(),
    SignalNorms(),
    SignalDirections(),
    SpectralSignals(),
    SignalValues(),
    SignalCurvatures(),
    SpectralEmbeddings(),
    ModelCompletion(),
    ActiveCompletion(),
    GradientCorrelation(),
    BatchLabels(),
    LatticeReduction(),
    # on columns
    EmbeddingRegression(),
    InitialInversion(),
    GradientInversion(),
    Hijacking(),
    ColumnSpan(),
    InnerProducts(),
    KnownMarginals(),
    PieceSigns(),
    UnmaskedParts(),
    Phases(),
    SharedDirections(),
    ScoreRegression(),
    EqualitySolving(),
    GenerativeRegression(),
    TreeRanges(),
    TreeSums(),
    # on people
    LossThreshold(),
    LikelihoodRatio(),
    NetworkLikelihoodRatio(),
    PropertyInference(),
    ScoringOracle(),
    AlignmentOracle(),
)
