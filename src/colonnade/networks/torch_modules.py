"""How a torch module gets to the party that it belongs to: never pickled, never through another party.

A program is started with wire values only: in this process, in one that knows nothing of the user's script, or at
another organisation. So a module travels as one of these (docs/adr/0012-networks.md):

    ("layers", description)    torch's own layers, one by one with their options, and Sequential around them
    ("named", "module:name")   a function or class that makes it, imported where the party runs; also "file.py:name"
    ("here", token)            any other module: only within this process, where it waits under the token

Parameters travel beside it, as arrays.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import itertools
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np

from colonnade.errors import OptionError
from colonnade.networks.torch_veils import veiled_like

# A layer's options are the arguments of its constructor; torch keeps each as an attribute of the same name.
_CONV = (
    "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "bias", "padding_mode",
)  # fmt: skip
_MAX_POOL = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
_AVG_POOL = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_BATCH_NORM = ("num_features", "eps", "momentum", "affine", "track_running_stats")
LAYERS: dict[str, tuple[str, ...]] = {
    "Linear": ("in_features", "out_features", "bias"),
    **dict.fromkeys(("Conv1d", "Conv2d"), _CONV),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d"), _MAX_POOL),
    **dict.fromkeys(("AvgPool1d", "AvgPool2d"), _AVG_POOL),
    **dict.fromkeys(
        ("AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d"), ("output_size",)
    ),
    **dict.fromkeys(("BatchNorm1d", "BatchNorm2d"), _BATCH_NORM),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "GroupNorm": ("num_groups", "num_channels", "eps", "affine"),
    **dict.fromkeys(("Dropout", "Dropout1d", "Dropout2d", "AlphaDropout"), ("p", "inplace")),
    "Flatten": ("start_dim", "end_dim"),
    "Unflatten": ("dim", "unflattened_size"),
    **dict.fromkeys(("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardswish"), ("inplace",)),
    **dict.fromkeys(("Sigmoid", "Tanh", "Softsign", "LogSigmoid", "Identity", "Tanhshrink"), ()),
    "GELU": ("approximate",),
    "LeakyReLU": ("negative_slope", "inplace"),
    "ELU": ("alpha", "inplace"),
    "Softplus": ("beta", "threshold"),
}
_SEQUENTIAL = "Sequential"
# What a module may have that no description tells.
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "parametrizations")

_waiting: dict[str, Any] = {}
_tokens = itertools.count()


def need_torch() -> Any:
    """Return the torch package, or say in one sentence which extra brings it."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise OptionError(
            "a network needs torch, which is not installed; install the extra: pip install 'colonnade[torch]'"
        ) from None


def drawn(seed: int, party: str, purpose: str) -> int:
    """Return the seed of one of a party's random streams."""
    words = [seed, zlib.crc32(party.encode()), zlib.crc32(purpose.encode())]
    return int(np.random.SeedSequence(words).generate_state(1)[0])


@contextmanager
def alone(state: Any = None) -> Iterator[None]:
    """Use one thread, for the same bits everywhere, and a random stream of one's own that starts from this state.

    What torch has for the whole process is put back afterwards: its number of threads, and its random stream.
    """
    torch = need_torch()
    threads, stream = torch.get_num_threads(), torch.get_rng_state()
    if threads != 1:
        torch.set_num_threads(1)
    if state is not None:
        torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(stream)
        if threads != 1:
            torch.set_num_threads(threads)


def fresh_stream(seed: int) -> Any:
    """Return the state of a generator with that seed."""
    return need_torch().Generator().manual_seed(seed).get_state()


# -- there -------------------------------------------------------------------------------------------------------------


def reference(given: Any, party: str, seed: int) -> tuple[Any, Any]:
    """Return (how the party's program gets the module, its parameters as a wire value).

    The parameters are None where the program makes its own first ones. `given` is a module, a function without
    arguments that makes one, or the function's name as "module:name" or "file.py:name".
    """
    torch = need_torch()
    if isinstance(given, str):
        return ("named", given), None
    if isinstance(given, torch.nn.Module):
        described = describe(given)
        if described is None:
            token = str(next(_tokens))
            _waiting[token] = copy.deepcopy(given)
            return ("here", token), to_value(given)
        return ("layers", described), to_value(given)
    if not callable(given):
        raise OptionError(
            f"the network of party {party!r} must be a torch.nn.Module, a function without arguments that makes one, "
            f"or its name as 'module:name', got {type(given).__name__}"
        )
    name = f"{getattr(given, '__module__', '')}:{getattr(given, '__qualname__', '')}"
    if getattr(given, "__module__", "__main__") != "__main__" and _found(name) is given:
        return ("named", name), None
    return reference(_made(given, name, party, seed), party, seed)  # a new process could not import it


def forget(how: Any) -> None:
    """Drop a module that waited for a run which is over."""
    if how[0] == "here":
        _waiting.pop(how[1], None)


def module_of(how: Any, state: Any, party: str, seed: int) -> Any:
    """Return a party's module, new, with these parameters, or with first ones drawn from the seed."""
    kind, what = how
    if kind == "layers":
        with alone():  # torch draws first parameters, of which none stays, from the stream of the whole process
            module = build(what)
    elif kind == "named":
        module = _made(imported(what, party), what, party, seed)
    elif what in _waiting:
        module = copy.deepcopy(_waiting[what])
    else:
        raise OptionError(
            f"the network of party {party!r} is made of layers of its own, which can't travel to another process; give "
            f"a function of an importable module that makes it, or its name as 'module:name'"
        )
    if state is not None:
        module = veiled_like(module, state)
        from_value(module, state, party)
    return module


def _found(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def imported(name: str, party: str) -> Any:
    """Import the function or class of that name."""
    where, _, what = name.partition(":")
    hint = "give 'module:name' or 'file.py:name' of a function without arguments that makes a torch.nn.Module"
    if not where or not what:
        raise OptionError(f"the network of party {party!r} is {name!r}, which names no function; {hint}")
    try:
        if where.endswith(".py"):
            found: Any = _from_file(Path(where))
        else:
            found = importlib.import_module(where)
        for part in what.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever a file of the user's raises
        raise OptionError(
            f"the network of party {party!r}, {name!r}, can't be imported ({type(error).__name__}: {error}); {hint}"
        ) from None
    return found


class _AsItStands(SourceFileLoader):
    """Loads a user's file as it is now: what Python keeps of it may be a second old, and lies beside it."""

    def get_code(self, fullname: str) -> Any:
        return self.source_to_code(self.get_data(self.path), self.path)


def _from_file(path: Path) -> Any:
    name = f"colonnade_network_{zlib.crc32(str(path).encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_AsItStands(name, str(path)))
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _made(maker: Any, name: str, party: str, seed: int) -> Any:
    """Return what the function makes, with first parameters drawn from the party's own seed."""
    torch = need_torch()
    if isinstance(maker, torch.nn.Module):
        return copy.deepcopy(maker)
    try:
        with alone(fresh_stream(drawn(seed, party, "first parameters"))):
            module = maker()
    except Exception as error:
        raise OptionError(
            f"the network of party {party!r} can't be made: {name} raised {type(error).__name__}: {error}; it must be "
            f"a function without arguments that returns a torch.nn.Module"
        ) from None
    if not isinstance(module, torch.nn.Module):
        raise OptionError(
            f"the network of party {party!r}: {name} returned a {type(module).__name__}, it must return a "
            f"torch.nn.Module"
        )
    return module


# -- layers ------------------------------------------------------------------------------------------------------------


def describe(module: Any) -> Any:
    """Return (layer, its options, its children) of torch's own layers; None where a module is more than that."""
    torch = need_torch()
    names = [name for name, _ in module.named_parameters(remove_duplicate=False)]
    inner = [name for name, _ in module.named_modules(remove_duplicate=False)]
    shared = len(names) > len(list(module.parameters())) or len(inner) > len(list(module.modules()))
    if shared:  # layers that share parameters would come apart
        return None

    def described(layer: Any) -> Any:
        name = type(layer).__name__
        if getattr(torch.nn, name, None) is not type(layer) or any(getattr(layer, hook, None) for hook in _HOOKS):
            return None
        if "forward" in vars(layer):
            return None
        if name == _SEQUENTIAL:
            children = tuple((key, described(child)) for key, child in layer.named_children())
            return None if any(child is None for _, child in children) else (name, (), children)
        if name not in LAYERS:
            return None
        known = set(inspect.signature(type(layer)).parameters)
        return name, tuple((key, _option(layer, key)) for key in LAYERS[name] if key in known), ()

    found = described(module)
    if found is not None:
        with alone():
            again = build(found).state_dict()
        if {key: one.shape for key, one in again.items()} != {
            key: one.shape for key, one in module.state_dict().items()
        }:
            return None  # somebody added a tensor to a layer
    return found


def _option(layer: Any, key: str) -> Any:
    value = getattr(layer, key)
    if key == "bias":
        return value is not None
    return tuple(None if size is None else int(size) for size in value) if isinstance(value, (tuple, list)) else value


def build(description: Any) -> Any:
    """Return the module that `describe` described, with first parameters as torch draws them."""
    torch = need_torch()
    name, options, children = description
    if name == _SEQUENTIAL:
        sequence = torch.nn.Sequential()
        for key, child in children:
            sequence.add_module(key, build(child))
        return sequence
    if name not in LAYERS:
        raise OptionError(f"a network's description holds the layer {name!r}; known are {', '.join(sorted(LAYERS))}")
    strange = [key for key, _ in options if key not in LAYERS[name]]
    if strange:
        raise OptionError(f"a network's description gives the layer {name} the option {strange[0]!r}, which it has not")
    return getattr(torch.nn, name)(**dict(options))


# -- parameters --------------------------------------------------------------------------------------------------------


def to_value(module: Any) -> Any:
    """Return (names, arrays, names of parameters that do not learn): all that a module has learnt, for the wire."""
    torch = need_torch()
    state = module.state_dict()
    for name, tensor in state.items():
        if tensor.dtype not in (torch.float32, torch.float64, torch.int64, torch.bool):
            raise OptionError(
                f"a network's parameters must be float32 or float64, {name!r} is {str(tensor.dtype).split('.')[-1]}; "
                f"call .float() on the module"
            )
    still = tuple(name for name, parameter in module.named_parameters() if not parameter.requires_grad)
    return tuple(state), tuple(tensor.detach().cpu().numpy().copy() for tensor in state.values()), still


def from_value(module: Any, value: Any, party: str) -> None:
    """Put parameters into a module of the same layers."""
    torch = need_torch()
    names, arrays, still = value
    target = module.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in target.items()}
    given = {name: tuple(array.shape) for name, array in zip(names, arrays, strict=True)}
    if shapes != given:
        odd = next((name for name in (*names, *shapes) if shapes.get(name) != given.get(name)), "")
        raise OptionError(
            f"the network of party {party!r} has other parameters than the stored ones: {odd!r} is "
            f"{shapes.get(odd, 'missing')} in the network and {given.get(odd, 'missing')} there; give the same network"
        )
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in zip(names, arrays, strict=True)}
    frozen = set(still)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.data = tensors[name]  # with the type of the array: a module may be float64
            parameter.requires_grad_(name not in frozen)
        for name, buffer in module.named_buffers():
            if name in tensors:
                buffer.data = tensors[name]
