"""Veils of networks: what a network's outputs become before they leave their party.

A veiled module is torch's `Sequential` of the party's own network and of what the veil needs. The latter is in the
module's state like other parameters. So it is kept with the model, and predictions are veiled as training was:

    bottleneck   network, then mean_and_log_variance, an nn.Linear(w, 2 w) with outputs (m, v)    z = m + exp(v / 2) e
    noise        network, and the buffer clip_and_noise = (C, sigma)                z = h min(1, C / |h|) + sigma C e

e are normal numbers, which the party draws from a secret of its own. A module without a veil is as it was.
"""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

_NETWORK, _HEADS, _NOISE = "network", "mean_and_log_variance", "clip_and_noise"
_MOST = 10.0  # of a log variance, whichever sign: beyond it is no number to learn with


def _torch() -> Any:
    return importlib.import_module("torch")


def bottled(module: Any, width: int, spread: float) -> Any:
    """Return a module of `width` outputs behind a bottleneck, which starts with its outputs as means.

    spread: the standard deviation to start with.
    """
    torch = _torch()
    kind = next((p.dtype for p in module.parameters() if p.dtype == torch.float64), torch.float32)
    heads = torch.nn.utils.skip_init(torch.nn.Linear, width, 2 * width).to(kind)  # draws nothing
    with torch.no_grad():
        heads.weight.zero_()
        heads.weight[:width].copy_(torch.eye(width))
        heads.bias.zero_()
        heads.bias[width:].fill_(2.0 * float(torch.log(torch.tensor(spread, dtype=torch.float64))))
    return torch.nn.Sequential(OrderedDict([(_NETWORK, module), (_HEADS, heads)]))


def noised(module: Any, clip: float, noise: float) -> Any:
    """Return a module whose rows of outputs are cut to the length `clip`, with noise of `noise` times that."""
    torch = _torch()
    veiled = torch.nn.Sequential(OrderedDict([(_NETWORK, module)]))
    veiled.register_buffer(_NOISE, torch.tensor([clip, noise], dtype=torch.float64))
    return veiled


def outputs_of(module: Any, x: Any) -> Any:
    """Return what a module gives for each row, as a matrix; of a veiled one it is what the veil is made of."""
    if not is_veiled(module):
        return module(x).reshape(len(x), -1)
    found = getattr(module, _NETWORK)(x).reshape(len(x), -1)
    return getattr(module, _HEADS)(found) if hasattr(module, _HEADS) else found


def width_behind(module: Any, width: int) -> int:
    """Return how many numbers leave for a row, where `outputs_of` gives so many."""
    return width // 2 if hasattr(module, _HEADS) else width


def leaving(module: Any, outputs: Any, normals: Any = None) -> Any:
    """Return what leaves of what `outputs_of` gave.

    normals: as many normal numbers as leave; without them, the mean of what leaves.
    """
    torch = _torch()
    if not is_veiled(module):
        return outputs
    if hasattr(module, _HEADS):
        mean, spread = means_and_spreads(outputs)
        return mean if normals is None else mean + spread * normals
    clip, noise = (float(one) for one in getattr(module, _NOISE))
    length = outputs.square().sum(dim=1, keepdim=True).clamp_min(torch.finfo(outputs.dtype).tiny).sqrt()
    cut = outputs * (clip / length).clamp_max(1.0)
    return cut if normals is None else cut + noise * clip * normals


def means_and_spreads(outputs: Any) -> tuple[Any, Any]:
    """Return the means and standard deviations of what leaves a bottleneck."""
    width = outputs.shape[1] // 2
    return outputs[:, :width], (outputs[:, width:].clamp(-_MOST, _MOST) / 2).exp()


def spread_of(module: Any) -> float:
    """Return about how large the noise on what leaves a module is; behind a bottleneck, 1 is what says nothing."""
    return float(getattr(module, _NOISE).prod()) if hasattr(module, _NOISE) else 1.0


def is_veiled(module: Any) -> bool:
    """Return whether a module has a veil already."""
    return hasattr(module, _NETWORK) and (hasattr(module, _HEADS) or hasattr(module, _NOISE))


def veiled_like(module: Any, state: Any) -> Any:
    """Return a module with the veil that a stored state has, if it has one; its values are to be filled in."""
    if is_veiled(module):
        return module
    known = dict(zip(state[0], state[1], strict=True))
    if f"{_HEADS}.weight" in known:
        return bottled(module, int(known[f"{_HEADS}.weight"].shape[1]), 1.0)
    return noised(module, 1.0, 0.0) if _NOISE in known else module


def bare(names: Sequence[str], arrays: Sequence[Any]) -> dict[str, Any]:
    """Return {name: values} of a state without its veil."""
    own = f"{_NETWORK}."
    found = dict(zip(names, arrays, strict=True))
    if f"{_HEADS}.weight" not in found and _NOISE not in found:
        return found
    return {name.removeprefix(own): value for name, value in found.items() if name.startswith(own)}
