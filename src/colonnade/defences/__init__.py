"""What a party can do to what leaves it, so that less follows: each defence one option, with what it costs measured."""

from colonnade.defences.base import Defence as Defence
from colonnade.defences.compression import CompressedSignals as CompressedSignals
from colonnade.defences.gaussian_signals import GaussianSignals as GaussianSignals
from colonnade.defences.marvell import Marvell as Marvell
from colonnade.defences.output_noise import OutputNoise as OutputNoise
from colonnade.defences.randomised_labels import RandomisedLabels as RandomisedLabels
