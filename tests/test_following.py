"""Signals that follow a party's own steps: each form against networks in numpy, with derivatives written by hand."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import ColonnadeWarning, OptionError
from colonnade.objective import losses

RNG = np.random.default_rng(33)
FORMS = ("exact", "curvature", "frozen")


# -- what a signal tells of the score ----------------------------------------------------------------------------------


def of_losses():
    """(loss, scores, labels, changes of the scores) of every loss whose signal tells the score."""
    z, d = 8.0 * RNG.standard_normal(500), 5.0 * RNG.standard_normal(500)
    Z, D = 4.0 * RNG.standard_normal((500, 4)), 3.0 * RNG.standard_normal((500, 4))
    yield losses.loss("logistic"), z, RNG.choice([-1.0, 1.0], 500), d
    yield losses.loss("square"), z, RNG.standard_normal(500), d
    yield losses.loss("binary_square"), z, RNG.choice([-1.0, 1.0], 500), d
    yield losses.loss("softmax"), Z, RNG.integers(4, size=500), D
    yield losses.loss("softmax"), Z[:, :2], RNG.integers(2, size=500), D[:, :2]


@pytest.mark.parametrize("case", list(of_losses()), ids=lambda case: case[0].name)
def test_the_signal_after_a_change_needs_no_label(case):
    loss, z, y, change = case
    assert loss.tells_score
    np.testing.assert_allclose(loss.signal_after(loss.signal(z, y), change), loss.signal(z + change, y), atol=1e-7)
    near = loss.signal_after(loss.signal(z / 8, y), change / 8)  # where no signal is near ±1, nothing is rounded away
    np.testing.assert_allclose(near, loss.signal((z + change) / 8, y), atol=1e-13)


def test_rows_that_are_far_off_stay_finite_and_point_the_right_way():
    logistic, far = losses.loss("logistic"), np.array([-500.0, -37.0, 37.0, 500.0, 5000.0])
    for y in (-1.0, 1.0):
        signs = np.full(5, y)
        found = logistic.signal_after(logistic.signal(far * y, signs), np.zeros(5))
        np.testing.assert_allclose(found, logistic.signal(far * y, signs), rtol=1e-12, atol=1e-15)
    # A score of -500 has the signal of one of -37, and comes back from there.
    assert logistic.signal_after(np.array([-1.0]), np.array([30.0]))[0] == pytest.approx(-1.0, abs=2e-3)
    assert abs(logistic.signal_after(np.array([-1.0]), np.array([60.0]))[0]) < 1e-9
    softmax, z = losses.loss("softmax"), np.array([[900.0, 0.0, -900.0], [0.0, 50.0, 20.0]])
    for label in range(3):
        y = np.full(2, label)
        kept = softmax.signal_after(softmax.signal(z, y), np.zeros((2, 3)))
        np.testing.assert_allclose(kept, softmax.signal(z, y), atol=1e-15)


@pytest.mark.parametrize("name", ["logistic", "softmax", "square"])
def test_what_no_honest_holder_sends_gives_numbers_all_the_same(name):
    """Signals come from the wire: beyond ±1, all zero, of no class."""
    loss = losses.loss(name)
    sent = np.array([[0.0, 0.0], [3.0, 2.0], [-7.0, -1.0], [1e300, -1e300], [-0.0, 1.0]])
    sent = sent if name == "softmax" else sent[:, 0]
    for change in (0.0, 1e4, -1e4):
        with np.errstate(all="raise", under="ignore"):
            assert np.isfinite(loss.signal_after(sent, np.full(sent.shape, change))).all()


@pytest.mark.parametrize("name", ["smooth_hinge", "poisson", "quantile 0.5"])
def test_losses_whose_signal_does_not_tell_the_score_say_so(name):
    loss = losses.loss(name)
    assert not loss.tells_score
    with pytest.raises(TypeError, match="does not tell the score"):
        loss.signal_after(np.zeros(1), np.zeros(1))


# -- networks in numpy -------------------------------------------------------------------------------------------------

N, WIDTHS = 60, {"bank": 3, "insurer": 2, "shop": 3}
X = RNG.standard_normal((N, 8))
SCORE = 1.5 * X[:, 0] * X[:, 4] + X[:, 2] - X[:, 6]
KINDS = {
    "logistic": (np.where(SCORE > 0, 1, -1), 1),
    "softmax": (np.digitize(SCORE, [-0.7, 0.7]), 3),
    "square": (SCORE / 2, 1),
}


def first_parameters(names, outputs):
    """W1, b1, W2, b2 of tanh networks with four hidden units."""
    rng = np.random.default_rng(1)
    return {
        name: [rng.standard_normal(shape) / 2 for shape in ((4, WIDTHS[name]), (4,), (outputs, 4), (outputs,))]
        for name in names
    }


def signal_and_bend(kind, z, y):
    """dL/dz and the diagonal of d²L/dz² per row, from scores and labels."""
    if kind == "square":
        return z - y[:, None], np.ones(z.shape)
    if kind == "logistic":
        p = 1 / (1 + np.exp(-z))
        return p - (y[:, None] + 1) / 2, p * (1 - p)
    e = np.exp(z)
    p = e / e.sum(axis=1, keepdims=True)
    return p - np.eye(z.shape[1])[y], p * (1 - p)


def slow(names, kind, algorithm, l2):
    """FedBCD of networks by equations (3) to (9), with labels and all columns in one place."""
    y, outputs = KINDS[kind]
    theta, at, columns = first_parameters(names, outputs), 0, {}
    for name, width in WIDTHS.items():
        columns[name], at = X[:, at : at + width], at + width

    def output(name, rows):
        W1, b1, W2, b2 = theta[name]
        return np.tanh(columns[name][rows] @ W1.T + b1) @ W2.T + b2

    def gradient(name, rows, s):
        W1, b1, W2, _ = theta[name]
        hidden = np.tanh(columns[name][rows] @ W1.T + b1)
        back = (s @ W2) * (1 - hidden**2)
        return [one / len(rows) for one in (back.T @ columns[name][rows], back.sum(0), s.T @ hidden, s.sum(0))]

    def local_steps(name, rows, others, eta):
        before = [one.copy() for one in theta[name]]
        z = others + output(name, rows)
        stale, bend = signal_and_bend(kind, z, y[rows])
        for _ in range(algorithm.local_steps):
            now = others + output(name, rows)
            if name == names[0] or algorithm.signal == "exact":
                s = signal_and_bend(kind, now, y[rows])[0]
            else:
                s = stale + bend * (now - z) if algorithm.signal == "curvature" else stale
            moves = gradient(name, rows, s)
            for one, move, start in zip(theta[name], moves, before, strict=True):
                one -= eta * (move + l2 * one + algorithm.proximal * (one - start))

    turn = 0
    for epoch in range(1, algorithm.epochs + 1):
        shuffled = np.random.default_rng([algorithm.seed, epoch]).permutation(N)
        for rows in np.array_split(shuffled, -(-N // algorithm.batch)):
            eta, turn = algorithm.step / np.sqrt(turn + 1), turn + 1
            old = {k: sum(output(j, rows) for j in names if j != k) for k in names}
            for k in names:
                if algorithm.order == "sequential":
                    old[k] = sum(output(j, rows) for j in names if j != k)
                local_steps(k, rows, old[k], eta)
    return theta


def modules(names, outputs):
    """The same first networks as torch modules in double precision."""
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")
    nn, made = torch.nn, {}
    for name, parameters in first_parameters(names, outputs).items():
        made[name] = nn.Sequential(nn.Linear(WIDTHS[name], 4), nn.Tanh(), nn.Linear(4, outputs)).double()
        with torch.no_grad():
            for one, value in zip(made[name].parameters(), parameters, strict=True):
                one.copy_(torch.from_numpy(value))
    return made


def fitted(kind, algorithm, names=tuple(WIDTHS), **options):
    y, outputs = KINDS[kind]
    at = np.cumsum([0, *WIDTHS.values()]).tolist()
    into = {name: range(at[k], at[k + 1]) for k, name in enumerate(WIDTHS) if name in names}
    model = cn.NetworkRegressor if kind == "square" else cn.NetworkClassifier
    given = {"algorithm": algorithm, "sum": "plain", "verbose": 0, **options}
    return model(modules(names, outputs), **given).fit(*cn.split(X, y, into=into))


SHORT = {"step": 0.1, "schedule": "sqrt", "batch": 20, "epochs": 3, "tol": None, "seed": 2}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore:order='sequential'", "ignore:sum='plain'")
def test_networks_step_as_in_numpy(form, order, kind):
    far = {}
    for names in (("bank", "insurer"), tuple(WIDTHS)):
        algorithm = cn.FedBCD(5, order, proximal=0.05, signal=form, **SHORT)
        model, twin = fitted(kind, algorithm, names, l2=1e-3), slow(names, kind, algorithm, 1e-3)
        for name, module in model.modules_.items():
            for one, other in zip(module.parameters(), twin[name], strict=True):
                far[names, name] = max(far.get((names, name), 0.0), np.abs(one.detach().numpy() - other).max())
    assert max(far.values()) < 1e-9, far


@pytest.mark.filterwarnings("ignore:sum='plain'")
def test_networks_follow_exactly_by_default_and_linear_models_do_not():
    def parameters(form):
        algorithm = cn.FedBCD(5, **SHORT, **({} if form is None else {"signal": form}))
        network = fitted("logistic", algorithm)
        linear = cn.LogisticRegression(algorithm=algorithm, verbose=0)
        linear.fit(*cn.split(X, KINDS["logistic"][0], into=3))
        return b"".join(a.tobytes() for a in network._states["shop"][1]), linear.coef_["party2"].tobytes()

    of = {form: parameters(form) for form in (None, *FORMS)}
    assert of[None] == (of["exact"][0], of["frozen"][1])
    assert len({found[0] for found in of.values()}) == len({found[1] for found in of.values()}) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_no_form_sends_anything_more(kind):
    sent = [fitted(kind, cn.FedBCD(4, signal=form, **SHORT)).traffic_ for form in FORMS]
    for name in WIDTHS:
        assert sent[0][name].by_step == sent[1][name].by_step == sent[2][name].by_step


@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.filterwarnings("ignore:training diverged", "ignore:order='sequential'")
def test_a_very_large_q_needs_no_proximal_term_if_signals_follow(order):
    """FedBCD, Figure 3(b): between two parties it is the frozen signal that runs away."""
    long = SHORT | {"step": 1.0, "schedule": "constant", "epochs": 4, "batch": N}
    last = {}
    for form in FORMS:
        last[form] = fitted("logistic", cn.FedBCD(60, order, signal=form, **long), ("bank", "insurer"))
    ends = {form: model.history_[-1]["loss"] for form, model in last.items()}
    assert ends["exact"] <= ends["curvature"] < 0.2
    assert ends["frozen"] > np.log(2)


@pytest.mark.filterwarnings("ignore:training diverged", "ignore:order='sequential'")
def test_three_parties_at_once_overshoot_together_whatever_the_signal():
    """Each block takes away the whole residual, so three take it away thrice; one after another they do not."""
    long = SHORT | {"step": 0.06, "schedule": "constant", "epochs": 4, "batch": N}
    ends = {}
    for how in ({"order": "parallel"}, {"order": "sequential"}, {"order": "parallel", "proximal": 2.0}):
        history = fitted("square", cn.FedBCD(60, signal="exact", **how, **long)).history_
        ends[tuple(how.values())] = history[-1]["loss"] / history[0]["loss"]
    assert ends["parallel",] > 2 > 0.5 > max(ends["sequential",], ends["parallel", 2.0])


# -- where it can't be had ---------------------------------------------------------------------------------------------


def test_forms_that_cannot_be_are_refused_in_one_sentence():
    with pytest.raises(OptionError, match="signal must be one of 'auto', 'exact', 'curvature', 'frozen', got 'fresh'"):
        cn.FedBCD(signal="fresh")
    counts = cn.split(X, np.arange(N) % 4, into=2)
    exact = cn.FedBCD(signal="exact", **SHORT)
    with pytest.raises(OptionError, match="whose signal tells the score, and poisson's does not; give signal='curva"):
        cn.PoissonRegression(algorithm=exact, verbose=0).fit(*counts)
    with pytest.raises(OptionError, match="sum='encrypted' encrypts the signals, and signal='exact' reads them"):
        cn.LogisticRegression(algorithm=exact, sum="encrypted", verbose=0).fit(*cn.split(X, SCORE > 0, into=2))


@pytest.mark.filterwarnings("ignore:with a top network")
def test_with_a_top_network_signals_stay_frozen():
    import torch

    for form in ("exact", "curvature"):
        with pytest.raises(OptionError, match=f"signal='{form}' needs scores that are the sum .* a split model's"):
            fitted("logistic", cn.FedBCD(3, signal=form, **SHORT), sum="pairwise", top=torch.nn.Linear(3, 1).double())
    torch.manual_seed(0)
    top = torch.nn.Linear(3, 1).double()
    made = [
        fitted("logistic", cn.FedBCD(3, signal=form, **SHORT), sum="pairwise", top=top) for form in ("auto", "frozen")
    ]
    assert made[0].history_[-1]["loss"] == made[1].history_[-1]["loss"]


def test_nobody_is_warned_of_anything_new():
    """A signal that follows shows nobody more than one that does not, so it warns of nothing more."""
    import warnings

    said = []
    for form in FORMS:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always", ColonnadeWarning)
            fitted("logistic", cn.FedBCD(2, signal=form, **SHORT))
        said.append([str(one.message) for one in heard])
    assert said[0] == said[1] == said[2]
