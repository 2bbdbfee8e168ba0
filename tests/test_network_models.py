"""Network models: FedBCD against a slow reference, every way to give a network, bad ones, keeping, runtimes."""

# ruff: noqa: E402
from __future__ import annotations

import copy
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")

from torch import nn

import colonnade as cn
import network_makers
from colonnade.errors import (
    ColonnadeWarning,
    DataError,
    LabelError,
    NotFittedError,
    OptionError,
    TrainingDiverged,
)

RNG = np.random.default_rng(11)
N = 90
X = RNG.standard_normal((N, 12))
SCORE = 1.5 * X[:, 0] * X[:, 2] + X[:, 1] - X[:, 9]
TWO = np.where(SCORE > 0, "yes", "no")
THREE = np.digitize(SCORE, [-0.8, 0.8])
COLUMNS = {"bank": range(4), "insurer": range(4, 8), "shop": range(8, 12)}
NAMES = tuple(COLUMNS)


def parties(y=TWO, active=("bank",), names=NAMES):
    return cn.split(X, y, into={name: COLUMNS[name] for name in names}, active=list(active))


def network(seed, width=1, inputs=4):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 5), nn.Tanh(), nn.Linear(5, width)).double()


def networks(width=1, names=NAMES):
    return {name: network(k, width) for k, name in enumerate(names)}


SHORT = {"step": 0.2, "schedule": "sqrt", "batch": 16, "epochs": 2, "tol": None, "seed": 3}
ORDERS = {
    "FedSGD": cn.FedSGD(**SHORT),
    "FedBCD-p": cn.FedBCD(**SHORT, local_steps=4, signal="exact"),
    "FedPBCD-p": cn.FedBCD(**SHORT, local_steps=4, proximal=0.5, signal="exact"),
    "FedBCD-s": cn.FedBCD(**SHORT, local_steps=3, order="sequential", proximal=0.2, signal="exact"),
    "FedBCD-p, frozen": cn.FedBCD(**SHORT, local_steps=4, signal="frozen"),
    "FedBCD-s, frozen": cn.FedBCD(**SHORT, local_steps=3, order="sequential", proximal=0.2, signal="frozen"),
}


# -- the slow reference ------------------------------------------------------------------------------------------------


def central(given, y, algorithm, l2=0.0):
    """FedBCD by its text, all columns in one place: each party steps on the loss with the others' scores as they were.

    For party k that is f(H_k(theta_k) + stale others), as in equation (9); with a frozen signal it is so at the label
    holder alone (k = 0), and <stale s, H_k(theta_k)> elsewhere. tests/test_following.py has derivatives of its own.
    """
    nets = [copy.deepcopy(module) for module in given.values()]
    blocks = [torch.from_numpy(X[:, list(COLUMNS[name])]) for name in given]
    labels = torch.from_numpy(y)
    width = nets[0](blocks[0][:1]).shape[1]

    def loss(z, rows):
        if width == 1:
            return torch.nn.functional.softplus(-labels[rows] * z[:, 0]).mean()
        return torch.nn.functional.cross_entropy(z, labels[rows])

    def steps(k, rows, eta, value):
        before = [p.detach().clone() for p in nets[k].parameters()]
        for _ in range(getattr(algorithm, "local_steps", 1)):
            total = value(nets[k](blocks[k][rows]))
            for p, start in zip(nets[k].parameters(), before, strict=True):
                total = total + 0.5 * l2 * p.square().sum()
                total = total + 0.5 * getattr(algorithm, "proximal", 0.0) * (p - start).square().sum()
            found = torch.autograd.grad(total, list(nets[k].parameters()))
            with torch.no_grad():
                for p, g in zip(nets[k].parameters(), found, strict=True):
                    p -= eta * g

    def exchange(rows):
        with torch.no_grad():
            parts = [net(block[rows]) for net, block in zip(nets, blocks, strict=True)]
        z = sum(parts).requires_grad_()
        (signal,) = torch.autograd.grad(loss(z, rows), z)

        def value_for(k):
            if k and getattr(algorithm, "signal", "frozen") == "frozen":
                return lambda z: (signal * z).sum()
            others = sum(part for j, part in enumerate(parts) if j != k)
            return lambda z: loss(z + others, rows)

        return value_for

    turn = 0
    for epoch in range(1, algorithm.epochs + 1):
        shuffled = np.random.default_rng([algorithm.seed, epoch]).permutation(np.arange(N))
        for rows in np.array_split(shuffled, -(-N // algorithm.batch)):
            eta = algorithm.step / np.sqrt(turn + 1)
            turn += 1
            value_for = exchange(rows)
            for k in range(len(nets)):
                if getattr(algorithm, "order", "parallel") == "sequential":
                    value_for = exchange(rows)
                steps(k, rows, eta, value_for(k))
    return nets


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.filterwarnings("ignore:order='sequential'")
def test_training_is_the_papers_algorithm(name, width):
    given, l2 = networks(width), 0.01
    y = np.where(TWO == "yes", 1.0, -1.0) if width == 1 else THREE.astype(np.int64)
    model = cn.NetworkClassifier(given, algorithm=ORDERS[name], l2=l2, verbose=0)
    model.fit(*parties(TWO if width == 1 else THREE))
    for trained, slow in zip(model.modules_.values(), central(given, y, ORDERS[name], l2), strict=True):
        for one, other in zip(trained.parameters(), slow.parameters(), strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-8)  # the sum is rounded to 2^-36


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.filterwarnings("ignore:order='sequential'")
def test_linear_modules_are_the_linear_model(name):
    given = {}
    for party in NAMES:
        given[party] = nn.Linear(4, 1, bias=party == "bank").double()
        nn.init.zeros_(given[party].weight)
    nn.init.zeros_(given["bank"].bias)
    network_model = cn.NetworkClassifier(given, algorithm=ORDERS[name], verbose=0).fit(*parties())
    linear = cn.LogisticRegression(l2=0.0, algorithm=ORDERS[name], verbose=0).fit(*parties())
    for party, module in network_model.modules_.items():
        assert np.allclose(module.weight.detach().numpy()[0], linear.coef_[party], rtol=0, atol=1e-9)
    assert float(network_model.modules_["bank"].bias.detach()[0]) == pytest.approx(linear.intercept_, abs=1e-9)
    assert np.allclose(network_model.decision_function(*parties()), linear.decision_function(*parties()), atol=1e-8)
    assert network_model.rounds_ == linear.rounds_
    losses = [[record["loss"] for record in model.history_] for model in (network_model, linear)]
    assert np.allclose(*losses, atol=1e-9)


def test_fedbcd_with_one_local_step_is_fedsgd():
    models = [
        cn.NetworkClassifier(networks(), algorithm=kind, verbose=0).fit(*parties())
        for kind in (cn.FedSGD(**SHORT), cn.FedBCD(**SHORT, local_steps=1))
    ]
    assert same_bits(*models)


def same_bits(one, other):
    return all(
        np.array_equal(a, b)
        for name in one.parties_
        for a, b in zip(one._states[name][1], other._states[name][1], strict=True)
    )


# -- use ---------------------------------------------------------------------------------------------------------------


def test_two_and_more_classes_learn_with_default_options():
    for y, width in ((TWO, 1), (TWO, 2), (THREE, 3)):
        model = cn.NetworkClassifier(networks(width), algorithm=cn.FedSGD(epochs=60, batch=16, tol=None), verbose=0)
        model.fit(*parties(y))
        assert model.loss_ == ("logistic" if width == 1 else "softmax")
        assert model.score(*parties(y)) > 0.8
        probabilities = model.predict_proba(*parties(y))
        assert probabilities.shape == (N, len(np.unique(y)))
        assert np.allclose(probabilities.sum(axis=1), 1.0)
        assert set(model.predict(*parties(y))) <= set(y.tolist())


def test_a_regression():
    model = cn.NetworkRegressor(networks(), algorithm=cn.FedSGD(epochs=80, batch=16, tol=None), verbose=0)
    assert model.fit(*parties(SCORE)).score(*parties(SCORE)) > 0.8


@pytest.mark.parametrize("optimizer", ["adam", {"bank": "adam", "shop": "momentum"}])
def test_each_party_may_have_its_own_optimiser(optimizer):
    model = cn.NetworkClassifier(
        networks(), optimizer=optimizer, algorithm=cn.FedSGD(epochs=60, batch=16, tol=None), verbose=0
    )
    history = model.fit(*parties()).history_
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]


def test_several_label_holders_sparse_columns_masks_and_validation():
    table = np.where(np.abs(X) > 0.7, X, 0.0)
    y = np.where(SCORE > 0, 1.0, 0.0)
    first, second = y.copy(), y.copy()
    first[60:], second[:30] = np.nan, np.nan

    def party(name, labels):
        return cn.Party(name, sp.csr_matrix(table[:, list(COLUMNS[name])]), labels)

    both = [party("bank", first), party("insurer", second), party("shop", None)]
    model = cn.NetworkClassifier(networks(), sum="two-trees", algorithm=ORDERS["FedBCD-p"], verbose=0)
    model.fit(*both, validation=both)
    assert model.holders_ == ("bank", "insurer")
    assert {"validation_loss", "validation_metric"} <= set(model.history_[-1])
    dense = [cn.Party(p.name, p.X.toarray(), p.y) for p in both]
    assert same_bits(model, cn.NetworkClassifier(networks(), algorithm=ORDERS["FedBCD-p"], verbose=0).fit(*dense))


def test_images_have_a_shape():
    def convolution():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(2, 1))

    shape = dict.fromkeys(NAMES, (1, 2, 2))
    model = cn.NetworkClassifier({name: convolution() for name in NAMES}, shape=shape, algorithm=cn.FedSGD(**SHORT))
    model.set_params(verbose=0).fit(*parties())
    assert model.predict(*parties()).shape == (N,)


def test_evaluations_of_a_part_of_the_rows():
    algorithm = cn.FedSGD(**SHORT)
    part = cn.NetworkClassifier(networks(), algorithm=algorithm, evaluate_rows=30, verbose=0).fit(*parties())
    whole = cn.NetworkClassifier(networks(), algorithm=algorithm, verbose=0).fit(*parties())
    assert same_bits(part, whole)
    assert part.history_[0]["loss"] != whole.history_[0]["loss"]
    chosen = np.random.default_rng([3, 0xE7A1]).permutation(N)[:30]
    z = whole.decision_function(*parties())[chosen]
    expected = np.logaddexp(0.0, -np.where(TWO[chosen] == "yes", 1.0, -1.0) * z).mean()
    assert part.history_[-1]["loss"] == pytest.approx(expected)


def test_a_goal_for_the_metric_ends_the_run():
    options = SHORT | {"step": 0.5, "epochs": 30, "metric_goal": 0.8}
    model = cn.NetworkClassifier(networks(), algorithm=cn.FedSGD(**options), verbose=0).fit(*parties())
    found = [record["metric"] for record in model.history_]
    assert found[-1] >= 0.8 > max(found[:-1])
    assert model.history_[-1]["epoch"] < 30
    apart = cn.NetworkClassifier(networks(), algorithm=cn.FedSGD(**options), verbose=0)
    apart.fit(*parties(), validation=parties(TWO[::-1]))  # labels that say nothing: the goal is not reached there
    assert apart.history_[-1]["epoch"] == 30
    with pytest.raises(OptionError, match="metric_goal must be a finite number, got 'high'"):
        cn.FedSGD(metric_goal="high")


def test_the_users_modules_stay_as_they_are_and_params_are_scikit_learns():
    given = networks()
    before = copy.deepcopy(given["bank"].state_dict())
    model = cn.NetworkClassifier(given, algorithm=cn.FedSGD(**SHORT), verbose=0).fit(*parties())
    assert all(torch.equal(before[key], tensor) for key, tensor in given["bank"].state_dict().items())
    assert not torch.equal(model.modules_["bank"][0].weight, given["bank"][0].weight)
    copied = clone(model)
    assert set(copied.get_params()) == set(model.get_params())
    with pytest.raises(NotFittedError):
        copied.predict(*parties())
    assert same_bits(copied.fit(*parties()), model)


# -- repeatable, and everywhere the same -------------------------------------------------------------------------------


def test_seeds_repeat_dropout_and_first_parameters():
    def fit(seed):
        torch.manual_seed(int(RNG.integers(1 << 30)))  # what the process does besides changes nothing
        options = SHORT | {"seed": seed}
        made = dict.fromkeys(NAMES, network_makers.small)
        return cn.NetworkClassifier(made, algorithm=cn.FedBCD(**options, local_steps=2), verbose=0).fit(*parties())

    assert same_bits(fit(1), fit(1))
    assert not same_bits(fit(1), fit(2))


def test_the_same_bits_in_processes():
    given = {
        "bank": network_makers.small,  # by name, with dropout
        "insurer": "network_makers:gated",  # with a layer of its own
        "shop": nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1)),
    }
    model, other = (
        cn.NetworkClassifier(given, algorithm=ORDERS["FedBCD-p"], optimizer={"bank": "adam"}, verbose=0)
        for _ in range(2)
    )
    model.fit(*parties())
    other.fit(*parties(), on=cn.Processes())
    assert same_bits(model, other)
    assert [r["loss"] for r in model.history_] == [r["loss"] for r in other.history_]
    assert np.array_equal(model.predict_proba(*parties()), other.predict_proba(*parties(), on=cn.Processes()))


def test_nothing_but_contributions_and_signals_leaves():
    model = cn.NetworkClassifier(networks(3), algorithm=cn.FedSGD(**SHORT), verbose=0).fit(*parties(THREE))
    assert set(model.traffic_["shop"].by_step) <= {"public key", "scores", "evaluation", "objective", "goodbye"}
    count, size = model.traffic_["shop"].by_step["scores"]
    assert count == model.rounds_
    assert size < count * (16 * 3 * 8 + 200)  # n x c numbers of 8 bytes, and a frame


# -- keeping -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("y", [TWO, THREE], ids=["text", "numbers"])
def test_a_saved_model_is_the_same(tmp_path, y):
    given = networks(len(np.unique(y))) | {"bank": "network_makers:small"} if y is TWO else networks(3)
    given = networks(1) | {"bank": network_makers.small} if y is TWO else given
    model = cn.NetworkClassifier(given, algorithm=cn.FedSGD(**SHORT), verbose=0).fit(*parties(y))
    model.save(tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        f"{name}.colonnade.safetensors" for name in NAMES
    ]
    named = {"bank": network_makers.small} if y is TWO else {}
    again = cn.NetworkClassifier.load(tmp_path / "model", networks=named)
    assert type(again) is cn.NetworkClassifier
    assert same_bits(again, model)
    assert np.array_equal(again.predict(*parties(y)), model.predict(*parties(y)))
    assert np.array_equal(again.classes_, model.classes_)
    assert again.columns_ == model.columns_
    with pytest.raises(DataError, match="holds a NetworkClassifier"):
        cn.NetworkRegressor.load(tmp_path / "model")


def test_what_batch_norm_counts_is_saved_as_it_is(tmp_path):
    """The number of batches is an array without dimensions, which many a function makes one of one number."""

    def batch_norm(seed):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))

    given = {name: batch_norm(seed) for seed, name in enumerate(NAMES)}
    model = cn.NetworkClassifier(given, algorithm=cn.FedSGD(**SHORT), verbose=0).fit(*parties())
    model.save(tmp_path)
    assert same_bits(cn.load(tmp_path), model)


def test_a_file_holds_nothing_of_another_party(tmp_path):
    named = [cn.Party(p.name, p.X, p.y, columns=[f"{p.name}-secret-{j}" for j in range(p.features)]) for p in parties()]
    cn.NetworkClassifier(networks(), algorithm=cn.FedSGD(**SHORT), verbose=0).fit(*named).save(tmp_path)
    for name in NAMES:
        data = (tmp_path / f"{name}.colonnade.safetensors").read_bytes()
        assert f"{name}-secret-0".encode() in data
        for other in set(NAMES) - {name}:
            assert f"{other}-secret".encode() not in data
        assert (b'\\"yes\\"' in data) == (name == "bank")  # the classes are the label holder's


def test_a_network_with_layers_of_its_own_is_given_again(tmp_path):
    torch.manual_seed(0)
    given = networks() | {"shop": network_makers.gated().double()}
    model = cn.NetworkClassifier(given, algorithm=cn.FedSGD(**SHORT), verbose=0).fit(*parties())
    model.save(tmp_path)
    again = cn.NetworkClassifier.load(tmp_path, networks={"shop": network_makers.gated().double()})
    assert np.array_equal(again.predict(*parties()), model.predict(*parties()))
    with pytest.raises(NotFittedError, match="load the model with networks="):
        cn.load(tmp_path).predict(*parties())
    wrong = cn.NetworkClassifier.load(tmp_path, networks={"shop": nn.Linear(4, 1)})
    with pytest.raises(OptionError, match="has other parameters than the stored ones"):
        wrong.predict(*parties())


def test_a_file_does_not_say_which_function_is_called(tmp_path, monkeypatch):
    """A folder that somebody else made: its networks are named after a module that leaves a mark."""
    mark, name = tmp_path / "mark", "colonnade_marks_its_import_in_a_file"
    code = f"open({str(mark)!r}, 'w').write('code ran')"
    (tmp_path / f"{name}.py").write_text(f"{code}\ndef make():\n    {code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    model = cn.NetworkClassifier(networks(), algorithm=cn.FedSGD(**SHORT), verbose=0).fit(*parties())
    for strange in (
        ("named", f"{name}:make"),
        ("named", f"{tmp_path / name}.py:make"),
        ("here", "0"),
        ("__class__", 1),
    ):
        model._how["shop"] = strange
        model.save(tmp_path / "model")
        with pytest.raises(
            OptionError, match=r"the file of party 'shop' says that its network is made by .* if that fun"
        ):
            cn.load(tmp_path / "model").predict(*parties())
    for layer in (("Module", (), ()), ("Linear", (("__class__", 1),), ()), ("load", (("f", str(mark)),), ())):
        model._how["shop"] = ("layers", layer)
        model.save(tmp_path / "model")
        with pytest.raises(OptionError, match="a network's description"):
            cn.load(tmp_path / "model").predict(*parties())
    assert name not in sys.modules
    assert not mark.exists()


def test_a_network_that_a_function_makes_is_named_again(tmp_path):
    named = networks() | {"shop": "network_makers:small"}
    model = cn.NetworkClassifier(named, algorithm=cn.FedSGD(**SHORT), verbose=0).fit(*parties())
    model.save(tmp_path)
    with pytest.raises(OptionError, match="made by 'network_makers:small', and a file does not decide what is cal"):
        cn.load(tmp_path)
    for given in ("network_makers:small", network_makers.small, network_makers.small()):
        again = cn.NetworkClassifier.load(tmp_path, networks={"shop": given})
        assert np.array_equal(again.predict(*parties()), model.predict(*parties()))


def test_damaged_and_missing_files(tmp_path):
    model = cn.NetworkClassifier(networks(), algorithm=cn.FedSGD(**SHORT), verbose=0).fit(*parties())
    model.save(tmp_path)
    path = tmp_path / "shop.colonnade.safetensors"
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"\xff" * 64, whole[8:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="is not a network model's file"):
            cn.load(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"the files of \['shop'\] are missing"):
        cn.load(tmp_path)
    with pytest.raises(DataError, match="holds no file"):
        cn.NetworkClassifier.load(tmp_path / "nowhere")


# -- split learning ----------------------------------------------------------------------------------------------------


def top(seed=7, inputs=6, width=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Tanh(), nn.Linear(inputs, 4), nn.Tanh(), nn.Linear(4, width)).double()


def central_split(given, above, y, algorithm):
    """Split learning with all columns in one place: FedBCD-p on embeddings, the holder's and the top network as one."""
    nets, above = [copy.deepcopy(module) for module in given.values()], copy.deepcopy(above)
    blocks = [torch.from_numpy(X[:, list(COLUMNS[name])]) for name in given]
    labels = torch.from_numpy(y)
    for epoch in range(1, algorithm.epochs + 1):
        shuffled = np.random.default_rng([algorithm.seed, epoch]).permutation(np.arange(N))
        for rows in np.array_split(shuffled, -(-N // algorithm.batch)):
            stale = [net(block[rows]).detach().requires_grad_() for net, block in zip(nets, blocks, strict=True)]

            def value(parts, rows=rows):
                return torch.nn.functional.softplus(-labels[rows] * above(torch.cat(parts, 1))[:, 0]).mean()

            signals = torch.autograd.grad(value(stale), stale)
            before = {p: p.detach().clone() for net in (*nets, above) for p in net.parameters()}
            for _ in range(getattr(algorithm, "local_steps", 1)):
                moves = {}
                mine = nets[0](blocks[0][rows])
                own = [*nets[0].parameters(), *above.parameters()]
                moves |= dict(zip(own, torch.autograd.grad(value([mine, *stale[1:]]), own), strict=True))
                for k in range(1, len(nets)):
                    z, own = nets[k](blocks[k][rows]), list(nets[k].parameters())
                    moves |= dict(zip(own, torch.autograd.grad(z, own, signals[k]), strict=True))
                with torch.no_grad():
                    for p, g in moves.items():
                        p -= algorithm.step * (g + getattr(algorithm, "proximal", 0.0) * (p - before[p]))
    return [*nets, above]


@pytest.mark.parametrize("options", [{}, {"local_steps": 3}, {"local_steps": 3, "proximal": 0.4}])
@pytest.mark.filterwarnings("ignore:with a top network")
def test_a_top_network_learns_as_in_one_place(options):
    given, above = networks(2), top()
    algorithm = cn.FedBCD(**(SHORT | {"schedule": "constant"} | {"local_steps": 1} | options))
    model = cn.NetworkClassifier(given, top=above, algorithm=algorithm, verbose=0).fit(*parties())
    slow = central_split(given, above, np.where(TWO == "yes", 1.0, -1.0), algorithm)
    assert list(model.modules_) == [*NAMES, "top"]
    for trained, expected in zip(model.modules_.values(), slow, strict=True):
        for one, other in zip(trained.parameters(), expected.parameters(), strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-10)


@pytest.mark.filterwarnings("ignore:with a top network")
def test_split_learning_everywhere_and_kept(tmp_path):
    given = {"bank": network(0, 2), "insurer": network(1, 1), "shop": network(2, 3)}
    algorithm = cn.FedBCD(**SHORT, local_steps=2, order="sequential")
    model, other = (cn.NetworkClassifier(given, top=top(), algorithm=algorithm, verbose=0) for _ in range(2))
    model.fit(*parties())
    other.fit(*parties(), on=cn.Processes())
    assert same_bits(model, other)
    model.save(tmp_path)
    assert np.array_equal(cn.load(tmp_path).predict_proba(*parties()), model.predict_proba(*parties()))
    assert b"top/" not in (tmp_path / "shop.colonnade.safetensors").read_bytes()
    sent = model.traffic_["shop"].by_step
    assert sent["embeddings"][1] > sent["embeddings"][0] * 3 * 8
    assert "scores" not in sent
    assert model.traffic_["bank"].by_step["signal"][0] == 2 * len(range(0, N, 16)) * 2  # one to each, each in its turn


def test_split_learning_learns_warns_and_has_its_limits():
    given = networks(2)
    adam = {"optimizer": "adam", "algorithm": cn.FedSGD(epochs=60, batch=16, tol=None), "verbose": 0}
    with pytest.warns(ColonnadeWarning, match="embeddings in the clear"):
        model = cn.NetworkClassifier(given, top=top(), **adam).fit(*parties())
    assert model.history_[-1]["loss"] < 0.8 * model.history_[0]["loss"]
    with pytest.raises(OptionError, match="step must be a number with a top network"):
        cn.NetworkClassifier(given, top=top(), verbose=0).fit(*parties())
    with pytest.raises(LabelError, match="exactly one label holder"):
        cn.NetworkClassifier(given, top=top(), **adam).fit(*parties(active=("bank", "shop")))
    with pytest.raises(DataError, match="can't take its 6 columns"):
        cn.NetworkClassifier(given, top=top(inputs=5), **adam).fit(*parties())
    with pytest.raises(OptionError, match="gives 3 numbers per row, a classifier of 2 classes needs 2 scores"):
        cn.NetworkClassifier(given, top=top(width=3), **adam).fit(*parties())


# -- bad input ---------------------------------------------------------------------------------------------------------


def bad(error, said, *, given=None, y=TWO, **options):
    model = cn.NetworkClassifier(networks() if given is None else given, verbose=0, **options)
    with pytest.raises(error, match=said) as raised:
        model.fit(*parties(y))
    assert "\n" not in str(raised.value)


def test_bad_networks():
    bad(OptionError, "gives 1 numbers per row and that of 'shop' 2", given=networks() | {"shop": network(0, 2)})
    bad(OptionError, "gives 2 numbers per row, a classifier of 3 classes needs 3 scores", given=networks(2), y=THREE)
    bad(OptionError, "gives 1 numbers per row, a classifier of 3 classes needs 3 scores, one per class", y=THREE)
    bad(OptionError, "gives 3 numbers per row, a classifier of 2 classes needs 2 scores", given=networks(3))
    bad(OptionError, "'broker', the parties are 'bank', 'insurer', 'shop'", given=networks() | {"broker": network(0)})
    bad(OptionError, "party 'shop' has no network", given={name: network(0) for name in ("bank", "insurer")})
    bad(OptionError, "networks must be {party: network}, got list", given=[network(0)])
    bad(OptionError, "must be a torch.nn.Module", given=networks() | {"shop": 3})
    bad(DataError, "'shop' can't take its 4 columns", given=networks() | {"shop": network(0, inputs=5)})
    bad(OptionError, "can't be imported", given=networks() | {"shop": "no_such_package:build"})
    with pytest.raises(OptionError, match="gives 2 numbers per row, a regression needs 1 score"):
        cn.NetworkRegressor(networks(2), verbose=0).fit(*parties(SCORE))


def test_bad_options():
    bad(OptionError, "optimizer must be one of 'sgd', 'momentum', 'adam', got 'lion'", optimizer="lion")
    bad(OptionError, "optimizer has an entry for 'broker'", optimizer={"broker": "adam"})
    bad(OptionError, "optimizer must be one of 'sgd', 'momentum', 'adam', or {party: one of them}, got 5", optimizer=5)
    bad(OptionError, "shape has an entry for 'broker'", shape={"broker": (2, 2)})
    bad(OptionError, r"shape must be {party: shape of a row}, got \(2, 2\)", shape=(2, 2))
    for given in (4, "22", (2, "2"), (2.0, 2), (2, -2), ()):
        bad(
            OptionError,
            r"shape of party 'bank' must be whole numbers >= 1 such as \(1, 28, 14\)",
            shape={"bank": given},
        )
    bad(DataError, r"'bank' has 4 columns, which do not make a row of shape \(1, 3\)", shape={"bank": (1, 3)})
    bad(OptionError, "l2 must be >= 0, got -1", l2=-1.0)
    bad(OptionError, "l2 must be a finite number, got inf", l2=float("inf"))
    bad(OptionError, "evaluate_rows must be a whole number >= 1, got 0.5", evaluate_rows=0.5)
    bad(OptionError, "algorithm must be FedSGD", algorithm=cn.VFB2("saga"))
    bad(OptionError, "sum must be one of", sum="magic")
    bad(TrainingDiverged, "the network of party 'bank' gave NaN", algorithm=cn.FedSGD(step=1e300, epochs=2))


class Apart(nn.Module):
    """Has parameters, and gives what autograd can't follow back to them."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 1)

    def forward(self, x):
        return self.inner(x).detach()


def batch_norm(inputs, width=1):
    return nn.Sequential(nn.Linear(inputs, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, width))


@pytest.mark.filterwarnings("ignore:with a top network")
def test_networks_that_cannot_train_on_the_batches_there_will_be():
    """Both give scores for rows that are looked at, as every network has to, but no gradient."""
    shop = networks() | {"shop": batch_norm(4)}
    bad(
        OptionError,
        "the network of party 'shop' can't be trained on a batch of 1 row .*; give larger batches, or a network",
        given=shop,
        algorithm=cn.FedSGD(**SHORT | {"batch": 1}),
    )
    bad(
        OptionError,
        "the network of party 'bank .top.' can't be trained on a batch of 1 row",
        top=batch_norm(3),
        algorithm=cn.FedSGD(**SHORT | {"batch": 1}),
    )
    for step in ("auto", 0.1):
        algorithm = cn.FedSGD(**SHORT | {"step": step})
        bad(
            OptionError,
            "'shop' has parameters .* do not reach",
            given=networks() | {"shop": Apart()},
            algorithm=algorithm,
        )
    # One label holder has a single row: its batch is smaller than the others'.
    one = np.full(N, np.nan)
    one[7] = TWO[7] == "yes"
    rest = np.where(np.arange(N) == 7, np.nan, TWO == "yes")
    given = [cn.Party(p.name, p.X, {"bank": rest, "shop": one}.get(p.name)) for p in parties()]
    with pytest.raises(OptionError, match="'insurer' can't be trained on a batch of 1 row"):
        cn.NetworkClassifier(networks() | {"insurer": batch_norm(4)}, verbose=0).fit(*given)


def test_trying_a_network_leaves_it_as_it_is():
    """What it has counted, and what dropout will draw."""
    given = networks() | {"shop": batch_norm(4)}
    model = cn.NetworkClassifier(given, algorithm=cn.FedSGD(**SHORT), verbose=0).fit(*parties())
    assert int(model.modules_["shop"].state_dict()["1.num_batches_tracked"]) == 2 * -(-N // 16)


def test_a_top_network_that_stays_as_it_is_may_be_in_double_precision():
    top = network(5, inputs=3).requires_grad_(False)
    model = cn.NetworkClassifier(networks(), top=top, algorithm=cn.FedSGD(**SHORT), verbose=0)
    with pytest.warns(ColonnadeWarning, match="embeddings in the clear"):
        model.fit(*parties())
    assert all(torch.equal(a, b) for a, b in zip(model.modules_["top"].parameters(), top.parameters(), strict=True))


def test_a_module_of_its_own_layers_does_not_go_to_another_process():
    given = networks() | {"shop": network_makers.gated().double()}
    with pytest.raises(OptionError, match="'shop' has layers of its own, which can't travel to another process"):
        cn.NetworkClassifier(given, verbose=0).fit(*parties(), on=cn.Processes())


def test_without_torch_one_sentence_names_the_extra(monkeypatch):
    model = cn.NetworkClassifier(networks(), verbose=0)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(OptionError, match=r"pip install 'colonnade\[torch\]'"):
        model.fit(*parties())


@pytest.mark.parametrize("on", [None, cn.Processes()], ids=["simulation", "processes"])
def test_nan_ends_the_run_and_the_last_good_parameters_stay(on):
    """The step is so long that the shop's network overflows; what is kept is what an ordinary shorter run has."""
    algorithm = cn.FedSGD(**(SHORT | {"schedule": "constant", "step": 1e30, "evaluate_every": 1}))
    given = {name: network(k).float() for k, name in enumerate(NAMES)}
    for module in given.values():
        module[1] = nn.ReLU()
    for name in ("bank", "insurer"):
        given[name].requires_grad_(False)
    model = cn.NetworkClassifier(given, algorithm=algorithm, verbose=0)
    with pytest.raises(
        TrainingDiverged, match="the network of party 'shop' gave NaN, infinite or huge numbers in round 1"
    ) as e:
        model.fit(*parties(), on=on)
    assert "the parameters of round 0 are kept" in str(e.value)
    assert model.rounds_ == 0
    assert len(model.history_) == 1
    assert np.array_equal(model.modules_["shop"][0].weight.detach(), given["shop"][0].weight.detach())
    assert np.isfinite(model.decision_function(*parties())).all()
