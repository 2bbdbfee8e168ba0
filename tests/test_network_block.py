"""The network block: how a module travels, and its steps against torch's own autograd and optimisers."""

# ruff: noqa: E402
from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")

from torch import nn

import colonnade as cn
import network_makers
from colonnade.blocks.column_values import columns_to_value
from colonnade.blocks.linear import LinearBlock
from colonnade.errors import DataError, OptionError
from colonnade.networks import torch_modules as modules
from colonnade.networks.torch_network import NetworkBlock, NetworkInputs, NotFinite
from colonnade.networks.torch_optimisers import OPTIMISERS
from colonnade.objective.penalties import L2

RNG = np.random.default_rng(5)
X = RNG.standard_normal((40, 6))


def mlp(seed=0, width=1, inputs=6):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 7), nn.Tanh(), nn.Linear(7, width)).double()


def block_of(module, **options):
    return NetworkBlock(module, X, party="bank", **options)


# -- how a module travels ----------------------------------------------------------------------------------------------

STACKS = [
    nn.Sequential(
        nn.Unflatten(1, (1, 4, 6)), nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.BatchNorm2d(3), nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, (1, 3), padding="same"), nn.LeakyReLU(0.3), nn.AdaptiveAvgPool2d((1, None)), nn.Flatten(),
        nn.Linear(12, 2),
    ),
    nn.Sequential(nn.LayerNorm(24, bias=False), nn.Linear(24, 8), nn.GELU("tanh"), nn.Dropout(0.3), nn.Linear(8, 2)),
    nn.Sequential(
        nn.Unflatten(1, (2, 12)), nn.Conv1d(2, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.ELU(0.7), nn.AvgPool1d(2),
        nn.Sequential(nn.Flatten(), nn.Identity()), nn.Linear(8, 2), nn.Softplus(2.0),
    ),
    nn.Linear(24, 2),
]  # fmt: skip


@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: type(stack).__name__)
def test_torch_layers_travel_as_a_description_and_arrays(stack):
    how, state = modules.reference(stack, "bank", 0)
    assert how[0] == "layers"
    again = modules.module_of(how, state, "bank", 9)
    x = torch.randn(5, 24)
    assert repr(again) == repr(stack)
    assert torch.equal(again.eval()(x), stack.eval()(x))


def test_a_description_is_a_wire_value():
    from colonnade.runtimes.wire import decode, encode

    for stack in STACKS:
        value = modules.reference(stack, "bank", 0)
        how, (names, arrays, still) = decode(encode(value))
        assert how == value[0]
        assert (names, still) == (value[1][0], value[1][2])
        assert all(np.array_equal(one, other) for one, other in zip(arrays, value[1][1], strict=True))


def _hooked():
    module = nn.Linear(6, 1)
    module.register_forward_hook(lambda *_: None)
    return module


def _tied():
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(6, 1))


def _with_a_tensor_more():
    module = nn.Linear(6, 1)
    module.register_buffer("seen", torch.zeros(3))
    return module


@pytest.mark.parametrize("make", [network_makers.gated, _hooked, _tied, _with_a_tensor_more])
def test_what_a_description_would_lose_stays_in_this_process(make):
    module = make()
    how, state = modules.reference(module, "bank", 0)
    assert how[0] == "here"
    again = modules.module_of(how, state, "bank", 0)
    assert again is not module
    assert len(list(again.parameters())) == len(list(module.parameters()))
    modules.forget(how)
    with pytest.raises(OptionError, match="can't travel to another process"):
        modules.module_of(how, state, "bank", 0)


def test_no_module_takes_the_place_of_another_that_waits():
    """One of two is forgotten, in another thread perhaps: the next must not come under the other's name."""
    module = network_makers.gated()
    first, second = (modules.reference(module, "bank", 0)[0] for _ in range(2))
    modules.forget(first)
    third = modules.reference(module, "bank", 0)[0]
    assert third != second
    for how in (second, third):
        modules.forget(how)


def test_building_layers_leaves_torchs_own_stream_alone():
    how, state = modules.reference(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), "bank", 0)
    before = torch.get_rng_state()
    modules.module_of(how, state, "bank", 0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_maker_is_named_where_it_can_be_imported_and_called_where_not():
    assert modules.reference(network_makers.small, "bank", 0) == (("named", "network_makers:small"), None)
    how, state = modules.reference(lambda: nn.Linear(6, 1), "bank", 0)
    assert how == ("layers", ("Linear", (("in_features", 6), ("out_features", 1), ("bias", True)), ()))
    assert state[0] == ("weight", "bias")


def test_what_a_maker_makes_comes_from_the_seed_and_the_party():
    how = ("named", "network_makers:small")

    def first(party, seed):
        return modules.module_of(how, None, party, seed)[0].weight

    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert torch.equal(first("bank", 3), first("bank", 3))
    assert not torch.equal(first("bank", 3), first("shop", 3))
    assert not torch.equal(first("bank", 3), first("bank", 4))
    assert torch.equal(torch.get_rng_state(), before)  # torch's own stream goes on as if nothing had been


def test_a_maker_in_a_file(tmp_path):
    path = tmp_path / "our_models.py"
    path.write_text("from torch import nn\n\ndef build():\n    return nn.Linear(3, 1)\n")
    assert modules.module_of(("named", f"{path}:build"), None, "bank", 0).in_features == 3
    for name, said in (
        ("build", "names no function"),
        (f"{path}:nothing", "can't be imported"),
        (f"{tmp_path / 'none.py'}:build", "can't be imported"),
        ("no_such_package:build", "can't be imported"),
        ("network_makers:wrong", "returned a int"),
        ("network_makers:raises", "raised RuntimeError: no layers today"),
    ):
        with pytest.raises(OptionError, match=said):
            modules.module_of(("named", name), None, "bank", 0)


def test_what_is_no_network_is_refused():
    with pytest.raises(OptionError, match=r"must be a torch\.nn\.Module"):
        modules.reference(3, "bank", 0)
    with pytest.raises(OptionError, match="float32 or float64"):
        modules.reference(nn.Linear(2, 1).half(), "bank", 0)
    with pytest.raises(OptionError, match="the layer 'Magic'"):
        modules.build(("Magic", (), ()))
    with pytest.raises(OptionError, match="has other parameters than the stored ones: 'weight'"):
        modules.from_value(nn.Linear(3, 1), modules.to_value(nn.Linear(2, 1)), "bank")


def test_without_torch_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(OptionError, match=r"pip install 'colonnade\[torch\]'"):
        modules.need_torch()


# -- rows --------------------------------------------------------------------------------------------------------------


def test_rows_of_a_sparse_matrix_and_shapes():
    table = sp.random(30, 8, density=0.3, format="csr", random_state=0)
    rows = np.array([3, 3, 0, 29, 11])
    dense = NetworkInputs(table.toarray(), None, torch.float64).take(rows)
    sparse = NetworkInputs(columns_to_value(table), None, torch.float64).take(rows)
    assert torch.equal(dense, sparse)
    assert NetworkInputs(table.toarray(), (2, 4), torch.float32).take(rows).shape == (5, 2, 4)


# -- steps -------------------------------------------------------------------------------------------------------------


def reference_steps(module, rows, signals, eta, proximal, l2):
    """The same steps with autograd and torch.optim, on the surrogate sum of s.h / b."""
    optimiser = torch.optim.SGD(module.parameters(), lr=eta)
    before = [p.detach().clone() for p in module.parameters()]
    x = torch.from_numpy(X[rows])
    for signal in signals:
        optimiser.zero_grad()
        z = module(x)
        value = (torch.from_numpy(signal.reshape(z.shape)) * z).sum() / len(rows)
        for parameter, start in zip(module.parameters(), before, strict=True):
            value = value + 0.5 * l2 * parameter.square().sum() + 0.5 * proximal * (parameter - start).square().sum()
        value.backward()
        optimiser.step()


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize(("proximal", "l2"), [(0.0, 0.0), (0.7, 0.0), (0.0, 0.1), (0.4, 0.2)])
def test_local_steps_are_those_of_autograd(width, proximal, l2):
    rows = RNG.permutation(40)[:9]
    signals = [RNG.standard_normal((9, width) if width > 1 else 9) for _ in range(4)]
    fast, slow = block_of(mlp(width=width), l2=l2), mlp(width=width)
    steps = fast.open(rows)
    for signal in signals:
        steps.contribution()
        steps.step(signal, 0.3, proximal)
    steps.close()
    reference_steps(slow, rows, signals, 0.3, proximal, l2)
    for one, other in zip(fast.module.parameters(), slow.parameters(), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


def test_a_stale_signal_meets_a_fresh_derivative():
    """Three steps with one signal are not one step of three times the length, as they would be for a linear block."""
    signal, rows = RNG.standard_normal(40), np.arange(40)
    three, long = block_of(mlp()), block_of(mlp())
    steps = three.open(rows)
    for _ in range(3):
        steps.step(signal, 0.2, 0.0)
    long.open(rows).step(signal, 0.6, 0.0)
    assert not torch.allclose(three.module[0].weight, long.module[0].weight, atol=1e-4)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_are_torchs(name):
    torch.manual_seed(2)
    start = [torch.randn(3, 2), torch.randn(4)]
    ours, theirs = [t.clone() for t in start], [t.clone().requires_grad_() for t in start]
    kinds = {
        "sgd": lambda p: torch.optim.SGD(p, lr=1.0),
        "momentum": lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9),
        "adam": lambda p: torch.optim.Adam(p, lr=1.0),
    }
    mine, reference = OPTIMISERS[name](ours), kinds[name](theirs)
    for turn in range(12):
        eta, gradients = 0.1 / (turn + 1), [torch.randn_like(t) for t in start]
        if turn == 6:  # what was kept goes on as if nothing had been
            kept, again = mine.freeze(), OPTIMISERS[name](ours)
            again.thaw(kept)
            mine = again
        mine.step(gradients, eta)
        reference.param_groups[0]["lr"] = eta
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        reference.step()
        for one, other in zip(ours, theirs, strict=True):
            assert torch.allclose(one, other, rtol=1e-6, atol=1e-7)


def test_what_was_frozen_goes_on_to_the_same_bits():
    def module():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))

    def go_on(block, turns):
        for turn in turns:
            steps = block.open(np.arange(turn, turn + 12))
            steps.step(steps.contribution() - 1.0, 0.05, 0.1)
            steps.close()
        return block

    made = {"optimiser": "adam", "l2": 0.01, "stream": modules.fresh_stream(3)}
    whole = go_on(block_of(module(), **made), range(6))
    half = go_on(block_of(module(), **made), range(3))
    other = block_of(module(), **(made | {"stream": modules.fresh_stream(77)}))
    other.thaw(half.freeze())
    go_on(other, range(3, 6))
    for one, two in zip(whole.state()[1], other.state()[1], strict=True):
        assert np.array_equal(one, two)


def test_layers_that_are_frozen_stay_as_they_are():
    module = mlp()
    module[0].requires_grad_(False)
    how, state = modules.reference(module, "bank", 0)
    block = block_of(modules.module_of(how, state, "bank", 0))
    before = block.state()
    block.open(np.arange(20)).step(RNG.standard_normal(20), 0.5, 0.0)
    after = block.state()
    moved = [not np.array_equal(a, b) for a, b in zip(before[1], after[1], strict=True)]
    assert moved == [False, False, True, True]
    assert after[2] == ("0.weight", "0.bias")


def test_curvature_is_the_largest_eigenvalue_and_what_a_batch_adds():
    linear = LinearBlock(columns(X), 1, L2(0.0), intercept=False)
    exact = float(np.linalg.eigvalsh(X.T @ X / len(X))[-1])
    for outputs in (1, 3):
        block = block_of(nn.Linear(6, outputs, bias=False).double())
        assert block.curvature(10**9) == pytest.approx(exact, rel=0.1)
        for batch in (2, 8, 64):
            assert block.curvature(batch) == pytest.approx(linear.curvature(batch), rel=0.2)
    deep = block_of(mlp(width=2))
    z = deep.module(torch.from_numpy(X))
    J = np.array(
        [
            np.concatenate([g.flatten().numpy() for g in torch.autograd.grad(one, deep.parameters, retain_graph=True)])
            for one in z.flatten()
        ]
    )
    largest, squared = np.linalg.norm(J, 2) ** 2 / len(X), (J**2).sum(axis=1).mean()
    assert deep.curvature(10**9) == pytest.approx(largest, rel=0.1)
    assert deep.curvature(4) == pytest.approx(largest + 3.0 * squared / 4, rel=0.2)


def test_an_automatic_step_bears_small_batches_of_rare_columns():
    """A batch of few rows with rare and large values is far more curved than all rows are."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((600, 4))
    dense = hidden @ rng.standard_normal((4, 100)) + rng.standard_normal((600, 100))
    rare = (rng.random((600, 200)) < 0.02).astype(float)
    rare /= rare.std(axis=0) + 0.02
    widths = {"a": 100, "b": 200}
    networks = {name: nn.Sequential(nn.Linear(d, 16), nn.ReLU(), nn.Linear(16, 1)) for name, d in widths.items()}
    model = cn.NetworkClassifier(networks, algorithm=cn.FedSGD(batch=8, epochs=1, schedule="constant"), verbose=0)
    model.fit(cn.Party("a", dense, (hidden[:, 0] > 0).astype(int)), cn.Party("b", rare))
    assert model.history_[-1]["loss"] < 0.3 * model.history_[0]["loss"]


def columns(table):
    from colonnade.blocks.dense_columns import DenseColumns

    return DenseColumns(table)


def test_nan_never_leaves():
    module = mlp()
    block = block_of(module)
    with torch.no_grad():
        module[0].weight[0, 0] = float("nan")
    with pytest.raises(NotFinite):
        block.scores(np.arange(3))
    with pytest.raises(NotFinite):
        block.open(np.arange(3)).contribution()


def test_a_network_that_does_not_fit_the_columns_is_refused():
    with pytest.raises(DataError, match="can't take its 6 columns"):
        block_of(nn.Linear(5, 1))
    with pytest.raises(OptionError, match="it must give a row of scores for each"):
        block_of(nn.Sequential(nn.Unflatten(1, (2, 3))))
