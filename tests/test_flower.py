"""Colonnade on Flower: the same parameters as natively, whoever falls away; here, and deployed on loopback."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import colonnade as cn
from colonnade.errors import DataError, LabelError, NotFittedError, OptionError, PartySilent, ProtocolError
from horizontal_programs import brier, first_half, one_layer, two_layers
from masked_sums import mutations
from ports import free_ports

flwr = pytest.importorskip("flwr")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from colonnade.flower import SSCA, client_app  # noqa: E402
from colonnade.flower.client import packed, unpacked  # noqa: E402

EXAMPLE = Path(__file__).parent.parent / "examples" / "flower-ssca"
X, Y = load_digits(return_X_y=True)
X = X / 16
GROUPS = np.where(X.sum(axis=1) > np.median(X.sum(axis=1)), "dark", "light")
SITES = cn.split_rows(X, Y, into=4, seed=0, groups=GROUPS)
SHORT = cn.SSCA(rounds=4, batch=20)


class Grid:
    """Flower's grid in one process: every message goes through the ClientApp, with a context for each node."""

    def __init__(self, load, nodes=4, silent=(), **options):
        self.app, self.silent, self.sent = client_app(load, **options), silent, []
        self.contexts = {
            100 - k: Context(1, 100 - k, {"partition-id": k}, RecordDict(), {}, 0) for k in range(nodes)
        }  # node ids are in no order

    def get_node_ids(self):
        return list(self.contexts)

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            self.sent.append((message.metadata.message_type, node))
            if self.silent and self.contexts[node].node_config["partition-id"] in self.silent and len(self.sent) > 8:
                continue
            reply = self.app(message, self.contexts[node])
            replies.append(reply)
        return replies


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    """Flower's processes know which run they belong to; here this one does."""
    for name, number in (("_run_id", 1), ("_node_id", 1), ("_task_id", 1)):
        monkeypatch.setattr(TaskIdentity, name, number)


def load(context):
    return SITES[context.node_config["partition-id"]]


def strategy(**options):
    return SSCA(**{"sites": 4, "classes": range(10), "hidden": 8, "algorithm": SHORT, **options})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sum": "plain"},
        {"cost_limit": 0.9},
        {"cost_limit": {"dark": 1.2, "light": 1.0}, "groups": True},
        {"algorithm": cn.FedAvg(rounds=2, batch=50)},
        {"hidden": 0, "fit_intercept": False},
        {"constraints": [cn.cost("dark") - cn.cost("light") <= 0.5, cn.squared_norm() <= 90.0], "groups": True},
        {
            "objective": cn.mean_of(brier) + 1e-4 * cn.of_parameters(first_half),
            "constraints": [cn.cost() <= 9.0],
            "algorithm": cn.SSCA(rounds=3, batch=20, rho=lambda t: 0.5 / t**0.2, gamma=[0.5, 0.4, 0.3]),
        },
    ],
)
def test_the_same_seeds_give_the_same_parameters_natively_and_on_flower(options):
    ours = strategy(**options)
    functions = [brier] if "objective" in options else []
    result = ours.start(Grid(load, plain=options.get("sum") == "plain", functions=functions))
    told = {key: value for key, value in options.items() if key != "groups"}
    native = cn.SSCAClassifier(**{"hidden": 8, "algorithm": SHORT, "verbose": 0, **told})
    sites = SITES if options.get("groups") else [cn.Site(site.name, site.X, site.y) for site in SITES]
    try:
        native.fit(*sites)
    except cn.errors.LimitNotMet:
        assert not ours.ended.met
    assert np.abs(ours.ended.parameters - native.parameters_).max() <= 1e-6
    assert np.array_equal(next(iter(result.arrays.values())).numpy(), ours.ended.parameters)
    last = max(result.evaluate_metrics_clientapp)
    assert result.evaluate_metrics_clientapp[last]["cost"] == pytest.approx(native.history_[-1]["loss"])


def test_the_model_can_be_used_and_kept(tmp_path):
    ours = strategy()
    with pytest.raises(NotFittedError):
        ours.classifier()
    ours.start(Grid(load))
    model = ours.classifier()
    model.save(tmp_path)
    assert (cn.load(tmp_path).predict(X) == model.predict(X)).all()
    assert model.sites_ == ("site1", "site2", "site3", "site4")


def test_a_site_without_the_problems_functions_says_so():
    with pytest.raises(OptionError, match="a site refuses: the problem has 1 functions of rows, and site 'site1' was"):
        strategy(objective=cn.mean_of(brier)).start(Grid(load))


def test_columns_are_compared_where_they_have_names():
    named = [cn.Site(f"s{k}", X, Y, columns=[f"p{j}" for j in range(64)] if k == 2 else None) for k in range(4)]
    one = strategy(algorithm=cn.SSCA(rounds=1))
    one.start(Grid(lambda context: named[context.node_config["partition-id"]]))
    assert one.ended is not None


def test_a_site_refuses_a_server_that_wants_its_part_in_the_clear():
    with pytest.raises(OptionError, match=r"a site refuses: site 'site1' answers under masks only"):
        strategy(sum="plain").start(Grid(load))


def test_only_flowers_own_kinds_of_messages_are_sent():
    grid = Grid(load)
    strategy().start(grid)
    assert {kind for kind, _ in grid.sent} == {"query", "train", "evaluate"}
    # hello; then counts, 4 steps and 5 evaluations of five stages each, to four nodes
    assert len(grid.sent) == 4 + 4 * 5 * (1 + 4 + 5)


def test_it_goes_on_from_given_arrays_and_tells_a_function():
    first = strategy()
    once = first.start(Grid(load))
    seen = []

    def look(at, arrays):
        seen.append((at, next(iter(arrays.values())).numpy().copy()))
        return MetricRecord({"seen": 1.0})

    again = strategy()
    result = again.start(Grid(load), once.arrays, num_rounds=2, evaluate_fn=look)
    assert np.array_equal(seen[0][1], first.ended.parameters)
    assert again.classifier().algorithm.rounds == 2
    assert [at for at, _ in seen] == [0, 1, 2]
    assert sorted(result.evaluate_metrics_serverapp) == sorted(result.evaluate_metrics_clientapp) == [0, 1, 2]
    assert np.array_equal(seen[-1][1], again.ended.parameters)
    for arrays, sentence in (
        (ArrayRecord([np.zeros(5)]), "initial_arrays hold 5 numbers, 5 of them finite; this model has 610"),
        (ArrayRecord([np.full(610, np.nan)]), "initial_arrays hold 610 numbers, 0 of them finite"),
        (ArrayRecord(), "initial_arrays hold 0 numbers"),
    ):
        with pytest.raises(DataError, match=sentence):
            strategy().start(Grid(load), arrays)
    with pytest.raises(OptionError, match="train_config and evaluate_config"):
        strategy().start(Grid(load), train_config=ConfigRecord({"a": 1}))


def test_a_silent_node_is_left_out_and_too_many_end_the_run():
    one = strategy(algorithm=cn.SSCA(rounds=4, batch=20, threshold=3))
    one.start(Grid(load, silent={2}))
    assert one.ended.skipped == ()
    assert np.isfinite(one.ended.parameters).all()
    with pytest.raises(PartySilent, match="only 2 of 4 sites answered at the start, 3 are needed"):
        strategy().start(Grid(load, silent={1, 2}))


def test_a_client_that_breaks_is_missing_like_a_silent_one():
    def broken(context):
        if context.node_config["partition-id"] == 3:
            raise RuntimeError("the disk is gone")
        return load(context)

    grid = Grid(broken)
    app = grid.app

    def reply(message, context):
        try:
            return app(message, context)
        except RuntimeError as error:
            return Message(flwr.app.Error(0, str(error)), reply_to=message)

    grid.app = reply
    with pytest.raises(PartySilent, match="1 of 4 nodes did not say who they are"):
        strategy().start(grid)


@pytest.mark.parametrize(
    ("change", "error", "sentence"),
    [
        (lambda k: cn.Site(f"s{k}", X[:, : 60 + k // 3], Y), DataError, "site 's3' has 61 columns, 's0' 60; all sites"),
        (
            lambda k: cn.Site(f"s{k}", X, Y, columns=[f"{k // 3}{j}" for j in range(64)] if k else None),
            DataError,
            "site 's3' has other columns than 's1'; all sites need",
        ),
        (lambda k: cn.Site("same", X, Y), DataError, "the name 'same' is used by several sites"),
        (lambda k: cn.Site(f"s{k}", X, Y + k), LabelError, "a site refuses: site 's1' has labels 10"),
        (lambda k: X, DataError, "a site refuses: load_site must return a colonnade.Site, got ndarray"),
    ],
)
def test_bad_sites_are_one_sentence_at_the_server(change, error, sentence):
    with pytest.raises(error, match=sentence):
        strategy().start(Grid(lambda context: change(context.node_config["partition-id"])))


def test_bad_options_are_one_sentence():
    for options, sentence in (
        ({"sites": 0}, "sites must be >= 1, got 0"),
        ({"cost_limit": {11: 0.5}}, "names the class 11"),
        ({"algorithm": cn.FedSGD()}, "algorithm must be one of"),
        ({"l2": -1.0}, "l2 must be >= 0"),
    ):
        with pytest.raises(OptionError, match=sentence):
            strategy(**options)
    with pytest.raises(PartySilent, match=r"2 nodes joined in 0.1 s, 4 are needed"):
        strategy().start(Grid(load, nodes=2), timeout=0.1)


def test_a_foreign_message_is_refused_in_words():
    grid = Grid(load)
    message = Message(RecordDict({"arrays": ArrayRecord()}), 100, "train")
    reply = grid.app(message, grid.contexts[100])
    assert b"without Colonnade's record" in reply.content.config_records["colonnade"]["value"]


# -- servers that do not follow the program ---------------------------------------------------------------------------


def with_rosters(sites, **changes):
    who = {one.name: cn.Identity() for one in sites}
    roster = {**{name: one.public for name, one in who.items()}, **changes}
    return [
        cn.Site(s.name, s.X, s.y, groups=s.groups, identity=who[s.name], roster={**roster, s.name: who[s.name].public})
        for s in sites
    ]


class Lying(Grid):
    """A grid whose messages are changed on their way: change(message, number of the node) -> message."""

    def __init__(self, load, change, **options):
        super().__init__(load, **options)
        app = self.app

        def through(message, context):
            value = change(unpacked(message), context.node_config["partition-id"])
            told = Message(packed(value), message.metadata.dst_node_id, message.metadata.message_type)
            return app(told, context)

        self.app = through


def test_rosters_change_no_bit_and_a_site_refuses_who_is_not_in_its_own():
    ours, plain = strategy(), strategy()
    signed = with_rosters(SITES)
    ours.start(Grid(lambda context: signed[context.node_config["partition-id"]]))
    plain.start(Grid(load))
    native = cn.SSCAClassifier(hidden=8, algorithm=SHORT, verbose=0).fit(*signed)
    assert np.array_equal(ours.ended.parameters, plain.ended.parameters)
    assert np.array_equal(ours.ended.parameters, native.parameters_)
    other = with_rosters(SITES, site3=cn.Identity().public)
    with pytest.raises(ProtocolError, match="a site refuses: the keys of site 'site3' come under another identity"):
        strategy().start(Grid(lambda context: other[context.node_config["partition-id"]]))


def test_a_sites_own_key_never_lies_in_the_nodes_store():
    signed = with_rosters(SITES)
    grid = Grid(lambda context: signed[context.node_config["partition-id"]])
    strategy().start(grid)
    for context in grid.contexts.values():
        kept = bytes(context.state.config_records["colonnade"]["turn"])
        assert not any(site.identity.secret in kept for site in signed)


def test_a_torch_module_is_each_sites_own():
    pytest.importorskip("torch")
    ours = strategy(network=two_layers)
    ours.start(Grid(load, network=two_layers))
    native = cn.SSCAClassifier(network=two_layers, algorithm=SHORT, verbose=0).fit(*SITES)
    assert np.array_equal(ours.ended.parameters, native.parameters_)
    with pytest.raises(OptionError, match="a site refuses: the network of site 'site1' has parameters of the shapes"):
        strategy(network=two_layers).start(Grid(load, network=one_layer))
    with pytest.raises(OptionError, match="a site refuses: the model is a torch module, and site 'site1' was given no"):
        strategy(network=two_layers).start(Grid(load))
    with pytest.raises(OptionError, match="a site refuses: the model is told by its layers, and site 'site1' was"):
        strategy().start(Grid(load, network=two_layers))


@pytest.mark.parametrize("old", [True, False], ids=["as it was", "as it is"])
def test_no_server_runs_code_at_a_site(old, tmp_path):
    """The description of a model named builtins:exec, and the code stood where the number of columns does."""
    mark = tmp_path / "mark"
    model = ("torch", f"open({str(mark)!r}, 'w').write('code ran')", "builtins:exec", None, 1.0)
    start = (0, "site1", 4) if old else (0, tuple(site.name for site in SITES))
    job = ((*start, model, ("SSCA", ()), 1, 0.0, 3), tuple(range(10)), (), (), False)
    grid = Grid(load)
    reply = grid.app(Message(packed(("task", 1, ("count",), job)), 100, "train"), grid.contexts[100])
    assert unpacked(reply)[0] == "error"
    assert not mark.exists()


def test_no_value_in_a_message_is_a_name_to_import(tmp_path, monkeypatch):
    """Each value of each message, one at a time, is a module that leaves a mark, a path to it, or code that does."""
    mark, name = tmp_path / "mark", "colonnade_marks_its_import_on_flower"
    code = f"open({str(mark)!r}, 'w').write('code ran')"
    (tmp_path / f"{name}.py").write_text(f"def make(*args):\n    {code}\n{code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    strange = (f"{name}:make", name, f"{tmp_path / name}.py:make", "builtins:exec", "__import__", "__class__", code)
    sent = []
    grid = Lying(load, lambda value, number: sent.append((value, number)) or value)
    strategy(cost_limit={0: 1.2, 1: 1.0}, algorithm=cn.SSCA(rounds=1)).start(grid)
    first = [value for value, number in sent if number == 0]
    assert [value[0] for value in first[:6]] == ["hello", "task", "keys", "letters", "survivors", "signatures"]
    tried = 0
    for value in first[:7]:
        for changed in mutations(value, strange):
            fresh = Grid(load)
            reply = unpacked(fresh.app(Message(packed(changed), 100, "train"), fresh.contexts[100]))
            tried += 1
            assert reply[0] in ("error", "answer")
            assert reply[0] == "error" or value[0] == "hello" or changed[3][0][1][0] == "site1"
    assert tried > 500
    assert name not in sys.modules
    assert not mark.exists()


@pytest.mark.parametrize(
    ("stage", "change", "sentence"),
    [
        ("task", lambda v, k: (*v[:3], ((*v[3][0][:6], 2), *v[3][1:])), "a threshold of 2 among 4 sites; it must be"),
        ("keys", lambda v, k: (*v[:2], tuple((n, *v[2][0][1:]) for n, *_ in v[2]), None), "are not signed by it"),
        (
            "survivors",
            lambda v, k: (*v[:2], (0, 1, 2) if k < 2 else (1, 2, 3), None),
            "did not sign the survivors|among",
        ),
        ("survivors", lambda v, k: (*v[:2], (0, 1, 2, 3, 9), None), "names member 9 a survivor, and no letter of it"),
        ("signatures", lambda v, k: (*v[:2], v[2][:2], None), "2 members signed who is left; 3 of the 4"),
    ],
)
def test_a_server_that_lies_in_a_sum_is_refused(stage, change, sentence):
    grid = Lying(load, lambda value, number: change(value, number) if value[0] == stage else value)
    with pytest.raises(ProtocolError, match=f"a site refuses: .*({sentence})"):
        strategy().start(grid)


def test_a_site_that_is_asked_twice_with_other_survivors_refuses():
    """Between two messages all that it knows lies in the node's store: that it has signed, too."""
    grid = Grid(load)
    seen = []
    app = grid.app

    def through(message, context):
        reply = app(message, context)
        value = unpacked(message)
        if value[0] in ("survivors", "signatures"):
            again = value if value[0] == "signatures" else (*value[:2], (0, 1, 2), None)
            second = Message(packed(again), message.metadata.dst_node_id, "train")
            seen.append((value[0], unpacked(app(second, context))))
        return reply

    grid.app = through
    strategy(algorithm=cn.SSCA(rounds=1)).start(grid)
    assert {kind for kind, _ in seen} == {"survivors", "signatures"}
    assert all(answer[0] == "error" and "once only" in answer[2] for _, answer in seen)


# -- deployed ---------------------------------------------------------------------------------------------------------


def wait_for(port, seconds=120):
    """Until somebody listens there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    raise AssertionError(f"nobody listens at port {port}")


@pytest.mark.skipif(not os.environ.get("COLONNADE_FLOWER"), reason="minutes; set COLONNADE_FLOWER=1")
@pytest.mark.parametrize("kind", ["plain", "pairwise"])
def test_a_superlink_and_two_supernodes_on_loopback(kind, tmp_path):
    """The example project as organisations would run it: the same parameters as natively."""
    port, *ports = free_ports(3)
    scripts, home = Path(sys.executable).parent, tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "loopback"\n[superlink.loopback]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    path = os.pathsep.join([str(scripts), os.environ["PATH"]])
    environment = {**os.environ, "FLWR_HOME": str(home), "HOME": str(home), "PATH": path, "FLWR_TELEMETRY_ENABLED": "0"}
    logs = (tmp_path / "log").open("w")

    def start(*command):
        return subprocess.Popen([scripts / command[0], *command[1:]], env=environment, stdout=logs, stderr=logs)

    # what the app depends on is here: nothing is to be installed
    here = ("--insecure", "--host", "127.0.0.1")
    link = start("flower-superlink", *here, "--port", str(port), "--disable-runtime-dependency-installation")
    nodes = []
    try:
        wait_for(port)
        for k, own in enumerate(ports):
            where = ("--superlink", f"127.0.0.1:{port}", "--port", str(own))
            nodes.append(start("flower-supernode", *here, *where, "--node-config", f"partition-id={k}"))
        options = f'sites=2 rounds=1 sum="{kind}" out="{tmp_path / "model"}"'
        command = [scripts / "flwr", "run", str(EXAMPLE), "loopback", "--stream", "--run-config", options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)
        assert (tmp_path / "model").exists(), done.stdout + done.stderr + (tmp_path / "log").read_text()
    finally:
        for process in (*nodes, link):
            process.terminate()
        for process in (*nodes, link):
            process.wait(30)
        logs.close()
    native = cn.SSCAClassifier(hidden=32, algorithm=cn.SSCA(rounds=1, batch=50), verbose=0)
    native.fit(*cn.split_rows(X, Y, into=2, seed=0))
    assert np.abs(cn.load(tmp_path / "model").parameters_ - native.parameters_).max() <= 1e-6
