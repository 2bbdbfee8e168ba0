"""Defences of what networks give: the maths beside slow twins, attacks with and without, and what it costs."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

import colonnade as cn
from colonnade.blocks.dense_columns import DenseColumns
from colonnade.defences import Bottleneck, DistanceCorrelation, LabelCorrelation, NoisyEmbeddings
from colonnade.errors import OptionError
from colonnade.families import family
from colonnade.jobs.job_file import JOB, described
from colonnade.jobs.words import what_others_learn
from colonnade.networks.torch_modules import reference
from colonnade.runtimes.net import CLEAR, TOTAL
from colonnade.settings.settings import check
from colonnade.views.recording import Recording

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
nn = torch.nn

from colonnade.defences.bottleneck import divergence  # noqa: E402
from colonnade.defences.distance_correlation import distance_correlation, in_pieces  # noqa: E402
from colonnade.networks import torch_veils  # noqa: E402

RNG = np.random.default_rng(0)
N, WIDTH, KNOWN = 400, 8, 80
X = RNG.standard_normal((N, 8))
Z = X @ np.array([1.0, -0.7, 0.5, 0.3, 0.8, -0.9, 0.6, 0.2]) + np.maximum(X[:, 1], 0) * X[:, 6]
Y = np.where(Z + RNG.logistic(size=N) > 0, 1, -1)
PARTIES = cn.split(X, Y, into={"bank": range(4), "shop": range(4, 8)})
THEIRS = X[:, 4:]


def settings(kind, **tables):
    """A checked job of two parties with these [defence.NAME]."""
    parties = {"bank": {"address": "a:1", "labels": True}, "shop": {}}
    given = {name.replace("_", "-"): options for name, options in tables.items()}
    more = {"model": {"kind": kind}, "algorithm": {"kind": "FedSGD"}, "disclosed": []}
    return check({"version": 1, "name": "defended", "parties": parties, "defence": given, **more}, JOB)


def networks(width):
    def bottom():
        return nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, width))

    torch.manual_seed(0)
    return {"bank": bottom(), "shop": bottom()}


def made(*defences, top=True, epochs=20, **more):
    torch.manual_seed(1)
    head = {"top": nn.Sequential(nn.Linear(2 * WIDTH, 8), nn.ReLU(), nn.Linear(8, 1))} if top else {}
    method = cn.FedSGD(epochs=epochs, tol=None, batch=50, step="auto" if top else 0.01)
    options = {"optimizer": "adam", "algorithm": method, "defences": defences, "verbose": 0}
    return cn.NetworkClassifier(networks(WIDTH if top else 1), **head, **options, **more)


@cache
def fitted(*defences, top=True, epochs=20):
    """A model, what the bank and the shop saw, and the AUC of its scores of the training rows."""
    on = Recording()
    model = made(*defences, top=top, epochs=epochs).fit(*PARTIES, on=on)
    return model, on.views, auc(model.decision_function(*PARTIES))


def auc(scores):
    above = scores[Y > 0][:, None] > scores[Y < 0]
    return max(above.mean(), 1 - above.mean())


# -- attacks -----------------------------------------------------------------------------------------------------------


def inverted(tables):
    """Ridge regression of columns on embeddings, learnt from a few known rows: the R² of each column in the others."""
    A = np.column_stack([*tables, np.ones(N)])
    weights = np.linalg.solve(A[:KNOWN].T @ A[:KNOWN] + 1e-2 * np.eye(A.shape[1]), A[:KNOWN].T @ THEIRS[:KNOWN])
    wrong = ((A[KNOWN:] @ weights - THEIRS[KNOWN:]) ** 2).sum(axis=0)
    return 1 - wrong / ((THEIRS[KNOWN:] - THEIRS[:KNOWN].mean(axis=0)) ** 2).sum(axis=0)


def embedded(view):
    """The shop's embeddings of all rows, of each evaluation."""
    return [one.value for one in view.of(CLEAR, "embeddings to evaluate") if len(one.value) == N]


def by_last(views):
    return inverted(embedded(views["bank"])[-1:])


def spectral(model):
    """Sun et al. 2022, section 3: the first singular vector of one's own embeddings tells the labels."""
    with torch.no_grad():
        own = model.modules_["shop"](torch.from_numpy(THEIRS).float()).numpy()
    return auc(np.linalg.svd(own - own.mean(axis=0), full_matrices=False)[0][:, 0])


def test_columns_follow_from_embeddings_and_far_less_from_defended_ones():
    _, views, undefended = fitted()
    before = by_last(views)
    assert before.min() > 0.75
    for one, most, mean, cost in (
        (DistanceCorrelation(weight=2.0), 0.9, 0.75, 0.15),
        (Bottleneck(weight=0.05), 0.6, 0.5, 0.04),
        (Bottleneck(weight=0.2), 0.45, 0.3, 0.1),
        (NoisyEmbeddings(noise=0.5), 0.4, 0.3, 0.1),
    ):
        _, views, utility = fitted(one)
        told = by_last(views)
        assert told.max() < most, one
        assert told.mean() < mean, one
        assert utility > undefended - cost, one


def test_who_adds_up_many_messages_gets_rid_of_some_of_the_noise():
    """What docs/guide.md warns of: each message has new noise, and embeddings of late epochs are nearly the same."""
    _, views, _ = fitted(NoisyEmbeddings(noise=0.5))
    every = embedded(views["bank"])
    assert len(every) >= 20
    assert inverted([np.mean(every[-10:], axis=0)]).mean() > by_last(views).mean() + 0.1


def test_labels_gather_in_embeddings_and_less_where_the_label_holder_minds():
    (model, _, undefended), (minded, _, utility) = fitted(), fitted(LabelCorrelation(weight=0.2))
    assert spectral(model) > 0.75
    assert spectral(minded) < spectral(model) - 0.1
    assert utility > undefended - 0.15


def advantages(*defences, attack):
    """What the audit says of an attack, with all messages of a run: the largest advantage of anybody's."""
    found = fitted(*defences)[0].audit(*PARTIES, attacks=[attack]).findings
    mine = [one.advantage for one in found if one.attacker == ("bank" if attack.startswith("inversion") else "shop")]
    assert mine
    return max(mine)


def test_an_audit_finds_embeddings_open_and_closed_by_strong_noise_alone():
    """With half of the rows known and every message of the run, early ones too, weak defences do not close it."""
    assert advantages(attack="inversion of embeddings") > 0.95
    assert advantages(DistanceCorrelation(weight=2.0), attack="inversion of embeddings") > 0.5
    assert advantages(NoisyEmbeddings(noise=2.0), attack="inversion of embeddings") < 0.05


def test_an_audit_finds_labels_in_embeddings_unless_the_label_holder_minds():
    assert advantages(attack="spectral, embeddings") > 0.2
    assert advantages(LabelCorrelation(weight=0.2), attack="spectral, embeddings") < 0.05


def test_parts_of_a_sum_are_veiled_like_embeddings():
    on = Recording()
    veiled = made(NoisyEmbeddings(clip=2.0, noise=0.3), top=False, epochs=3).fit(*PARTIES, on=on)
    heard = [one for one in on.views["bank"].of(TOTAL, "evaluation") if len(one.rows) == N]
    with torch.no_grad():
        own = veiled.modules_["shop"].network(torch.from_numpy(THEIRS).float()).double().numpy()[:, 0]
    noise = heard[-1].value - np.clip(own, -2.0, 2.0)
    assert noise.std() == pytest.approx(0.6, rel=0.1)
    assert abs(np.corrcoef(noise, own)[0, 1]) < 0.15
    own_part = veiled.modules_["bank"]
    assert not torch_veils.is_veiled(own_part)  # nobody sees what the only label holder gives


# -- the maths ---------------------------------------------------------------------------------------------------------


def slow(x, z):
    """Szekely et al. 2007, by its definition."""
    n = len(x)
    centred = []
    for rows in (x, z):
        d = np.array([[np.sqrt(sum((a - b) ** 2)) for b in rows] for a in rows])
        e = [[d[j, k] - d[j].sum() / n - d[:, k].sum() / n + d.sum() / n**2 for k in range(n)] for j in range(n)]
        centred.append(np.array(e))
    a, b = centred
    return np.sqrt((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def test_distance_correlation_equals_a_slow_twin():
    x, z = RNG.standard_normal((17, 3)), RNG.standard_normal((17, 2))
    z[:, 0] += x[:, 1] ** 2
    z[3], x[3] = z[2], x[2]  # rows alike have the distance 0, where a square root has no slope
    tensor = torch.from_numpy(z).requires_grad_()
    found = distance_correlation(torch.from_numpy(x), tensor)
    assert found.item() == pytest.approx(slow(x, z), abs=1e-9)
    (slope,) = torch.autograd.grad(found, tensor)
    for row, column in ((0, 0), (9, 1), (16, 0)):
        step = np.zeros_like(z)
        step[row, column] = 1e-6
        numeric = (slow(x, z + step) - slow(x, z - step)) / 2e-6
        assert slope[row, column].item() == pytest.approx(numeric, abs=1e-7)
    assert distance_correlation(torch.from_numpy(x), torch.from_numpy(3 - 2 * x)).item() == pytest.approx(1.0)


def test_a_large_batch_is_cut_into_pieces_and_a_tiny_one_is_none():
    x, z = torch.randn(1300, 2), torch.randn(1300, 2)
    sizes = [434, 434, 432]
    ends = np.cumsum([0, *sizes])
    parts = [distance_correlation(x[a:b], z[a:b]) * (b - a) / 1300 for a, b in pairwise(ends)]
    assert in_pieces(x, z).item() == pytest.approx(sum(parts).item(), rel=1e-6)
    one = torch.ones(1, 2, requires_grad=True)
    (slope,) = torch.autograd.grad(in_pieces(torch.ones(1, 3), one), one)
    assert torch.isfinite(slope).all()


def test_the_divergence_is_torchs():
    outputs = torch.randn(30, 8, dtype=torch.float64)
    normal = torch.distributions.Normal(outputs[:, :4], (outputs[:, 4:] / 2).exp())
    expected = torch.distributions.kl_divergence(normal, torch.distributions.Normal(0.0, 1.0)).sum(dim=1).mean()
    assert divergence(outputs).item() == pytest.approx(expected.item())


@pytest.mark.parametrize("shape", ["row", "number"])
def test_a_bottleneck_starts_as_the_network_was(shape):
    network = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)) if shape == "number" else nn.Linear(4, 3)
    width = 1 if shape == "number" else 3
    x, wrapped = torch.randn(5, 4), torch_veils.bottled(network, width, 0.2)
    outputs = torch_veils.outputs_of(wrapped, x)
    expected = network(x).reshape(5, -1)
    torch.testing.assert_close(torch_veils.leaving(wrapped, outputs), expected)
    once = torch_veils.leaving(wrapped, outputs, torch.ones(5, width))
    torch.testing.assert_close(once, expected + 0.2)
    assert torch_veils.width_behind(wrapped, outputs.shape[1]) == width


def test_rows_of_outputs_are_cut():
    veiled = torch_veils.noised(nn.Identity(), 2.0, 0.5)
    x = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]], requires_grad=True)
    cut = torch_veils.leaving(veiled, torch_veils.outputs_of(veiled, x))
    torch.testing.assert_close(cut, torch.tensor([[1.2, 1.6], [0.3, 0.4], [0.0, 0.0]]))
    cut.sum().backward()
    assert torch.isfinite(x.grad).all()
    noisy = torch_veils.leaving(veiled, x, torch.ones(3, 2))
    torch.testing.assert_close(noisy - cut, torch.ones(3, 2))


# -- in use ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("defence", [Bottleneck(weight=0.05), NoisyEmbeddings(noise=0.5)])
@pytest.mark.parametrize("top", [True, False])
def test_a_veil_is_kept_with_the_model_and_predictions_go_through_it(defence, top, tmp_path):
    model, _, _ = fitted(defence, top=top, epochs=20 if top else 3)
    assert torch_veils.is_veiled(model.modules_["shop"])
    scores = model.decision_function(*PARTIES)
    model.save(tmp_path)
    again = cn.NetworkClassifier.load(tmp_path)
    np.testing.assert_array_equal(again.decision_function(*PARTIES), scores)
    two = again.decision_function(*[one.take([7, 3]) for one in PARTIES])
    np.testing.assert_allclose(two, scores[[7, 3]], atol=1e-5)
    others = model.decision_function(*PARTIES, on=cn.Simulation(secret=None))
    assert np.abs(others - scores).max() > 0
    assert auc(others) > 0.6
    start = made(top=top, epochs=1).fit(*PARTIES, initial=model)  # without its veil
    assert not torch_veils.is_veiled(start.modules_["shop"])
    twice = made(defence, top=top, epochs=1).fit(*PARTIES, initial=model)
    assert len(twice.modules_["shop"].network) == 3  # one veil, and not one around another


def test_runs_repeat_and_their_noise_is_secret():
    first = fitted(NoisyEmbeddings(noise=0.5))[0]
    again = made(NoisyEmbeddings(noise=0.5)).fit(*PARTIES)
    np.testing.assert_array_equal(again.decision_function(*PARTIES), first.decision_function(*PARTIES))
    other = made(NoisyEmbeddings(noise=0.5)).fit(*PARTIES, on=cn.Simulation(secret=None))
    mine, theirs = (one.modules_["shop"].network[0].weight for one in (first, other))
    assert not torch.equal(mine, theirs)


def test_all_local_steps_and_layers_of_ones_own_are_defended():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x):
            return self.layer(x)[:, 0]

    for one in (Bottleneck(), NoisyEmbeddings(), DistanceCorrelation()):
        model = cn.NetworkClassifier(
            {"bank": Own(), "shop": Own()},
            algorithm=cn.FedBCD(local_steps=3, epochs=2, batch=50, tol=None),
            defences=[one],
            verbose=0,
        ).fit(*PARTIES)
        assert model.decision_function(*PARTIES).shape == (N,)


def test_a_job_names_defences_of_networks_and_its_files_keep_the_veil():
    job = described(settings(noisy_embeddings={"noise": 0.3}, distance_correlation={"weight": 2.0}, kind="network"))
    assert job.defences == (NoisyEmbeddings(noise=0.3), DistanceCorrelation(weight=2.0))
    told = what_others_learn(job, "shop")["your columns"]
    assert any("noisy-embeddings, clip 1.0, noise 0.3" in one for one in told)
    model = fitted(NoisyEmbeddings(noise=0.5), top=False, epochs=3)[0]
    kind = family("torch")
    state = kind.from_arrays(kind.to_arrays(model._states["shop"]))
    how = (reference(networks(1)["shop"], "shop", 0)[0], None, None, "sgd")  # as a party's own file says it
    scorer = kind.scorer("shop", model._scoring_job(outputs=1), state, how)
    scorer.secret = b"s" * 32
    noisy, same = (scorer.of(DenseColumns(THEIRS), np.arange(N))[:, 0] for _ in range(2))
    with torch.no_grad():
        own = model.modules_["shop"].network(torch.from_numpy(THEIRS).float()).double().numpy()[:, 0]
    assert (noisy - np.clip(own, -1, 1)).std() == pytest.approx(0.5, rel=0.15)
    np.testing.assert_array_equal(noisy, same)


def test_what_does_not_go_together_is_refused():
    with pytest.raises(OptionError, match="'bottleneck' and 'noisy-embeddings' both put noise on what a network gives"):
        made(Bottleneck(), NoisyEmbeddings()).fit(*PARTIES)
    with pytest.raises(OptionError, match="the defence 'label-correlation' is for models of the family 'split'"):
        made(LabelCorrelation(), top=False).fit(*PARTIES)
    with pytest.raises(OptionError, match="the defence 'bottleneck' is for models of the family 'torch' or 'split'"):
        cn.LogisticRegression(algorithm=cn.FedSGD(), defences=[Bottleneck()], verbose=0).fit(*PARTIES)
    for kind, option in ((Bottleneck, "weight"), (NoisyEmbeddings, "clip"), (NoisyEmbeddings, "noise")):
        with pytest.raises(OptionError, match=f"{option} must be > 0, got 0.0"):
            kind(**{option: 0.0})


def test_the_label_holder_alone_adds_to_signals_and_by_the_others_embeddings():
    rng = np.random.default_rng(1)
    z, y = rng.standard_normal((20, 5)), np.where(rng.standard_normal(20) > 0, 1.0, -1.0)
    spans = {"bank": slice(0, 2), "shop": slice(2, 5)}
    added = LabelCorrelation(weight=3.0).added(z, y, spans, "bank")
    assert not added[:, :2].any()
    step = np.zeros_like(z)
    step[4, 3] = 1e-6
    slope = (slow(y[:, None], (z + step)[:, 2:]) - slow(y[:, None], (z - step)[:, 2:])) / 2e-6
    assert added[4, 3] / 20 == pytest.approx(3.0 * slope, abs=1e-6)  # a signal is of the sum over rows
    classes = rng.integers(0, 3, 20)
    three = LabelCorrelation().added(z, classes, spans, "bank")
    slope = (slow(np.eye(3)[classes], (z + step)[:, 2:]) - slow(np.eye(3)[classes], (z - step)[:, 2:])) / 2e-6
    assert three[4, 3] / 20 == pytest.approx(slope, abs=1e-6)
