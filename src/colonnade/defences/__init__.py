"""What a party can do to what leaves it, so that less follows: each defence one option, with what it costs measured."""

from colonnade.defences.base import Defence as Defence
from colonnade.defences.bottleneck import Bottleneck as Bottleneck
from colonnade.defences.compression import CompressedSignals as CompressedSignals
from colonnade.defences.distance_correlation import DistanceCorrelation as DistanceCorrelation
from colonnade.defences.gaussian_signals import GaussianSignals as GaussianSignals
from colonnade.defences.label_correlation import LabelCorrelation as LabelCorrelation
from colonnade.defences.marvell import Marvell as Marvell
from colonnade.defences.noisy_embeddings import NoisyEmbeddings as NoisyEmbeddings
from colonnade.defences.output_noise import OutputNoise as OutputNoise
from colonnade.defences.randomised_labels import RandomisedLabels as RandomisedLabels
from colonnade.defences.rounded_scores import RoundedScores as RoundedScores
