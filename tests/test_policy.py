"""The policy: refused before a run, and at the door, in one sentence; and what passes is written down."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import colonnade as cn
from colonnade.algorithms.sealed_newton import KINDS as SEALED_KINDS
from colonnade.errors import PolicyRefused
from colonnade.horizontal.gathering import PLAIN, STAGES
from colonnade.jobs.policy import KINDS, Policy, PolicyDoor, kind_of
from colonnade.runtimes.endpoint import Endpoint
from colonnade.sums.telling import passed_on, signed
from test_job import GOOD, job

CHECK = ("bank", ("bank", "shop"), "pairwise", 5, 64)


def check(policy, me, parties, sum_name, features, batch):
    policy.check_company(me, parties, sum_name)
    policy.check_part(me, features, batch)


@pytest.mark.parametrize(
    ("policy", "changed", "sentence"),
    [
        (Policy(peers=("clinic",)), {}, "allows the peers 'clinic', the job has 'shop' too; add it to peers"),
        (Policy(), {2: "plain"}, "sum 'plain', which shows each party's own to the next one, and the policy of 'bank'"),
        (Policy(), {3: 1}, "takes part with 1 column, its policy asks for 2 at least"),
        (Policy(min_batch=100), {}, "batches have 64 rows, the policy of 'bank' asks for 100 at least"),
    ],
)
def test_before_a_run(policy, changed, sentence):
    with pytest.raises(PolicyRefused, match=sentence):
        check(policy, *(changed.get(at, value) for at, value in enumerate(CHECK)))
    check(Policy(plain=True, peers=("shop",)), *CHECK)


@pytest.mark.parametrize("algorithm", [cn.FedBCD(order="sequential"), cn.BlockNewton(order="sequential")])
def test_sequential_order_needs_a_policys_word(algorithm):
    """With three parties it shows label holders what masks were to hide; with two there is nothing more to see."""
    two = replace(job(GOOD), algorithm=algorithm)
    three = replace(two, addresses={"bank": "-", "clinic": "-", "shop": "-"})
    with pytest.raises(PolicyRefused) as caught:
        Policy().check_shown("shop", algorithm.name, three.disclosed())
    assert str(caught.value) == (
        f"the job trains with {algorithm.name} in sequential order, which shows label holders what each party changed, "
        f"whatever the masks, and the policy of 'shop' does not allow it; use order = 'parallel', or set sequential = "
        f"true in [policy]"
    )
    Policy(sequential=True).check_shown("shop", algorithm.name, three.disclosed())
    Policy().check_shown("shop", algorithm.name, two.disclosed())
    Policy().check_shown("shop", algorithm.name, replace(three, algorithm=cn.BlockNewton()).disclosed())


@pytest.mark.parametrize(
    ("policy", "message", "sentence"),
    [
        (
            Policy(kinds=("scores",)),
            ("shop", "signal", np.zeros(64), 1),
            "does not let messages of the kind 'signal' out",
        ),
        (Policy(), ("shop", "columns of mine", np.zeros(64), 1), "of the kind 'columns of mine' out"),
        (Policy(peers=("clinic",)), ("shop", "scores", np.zeros(64), 1), "does not let anything out to 'shop'"),
        (Policy(max_rounds=10), ("shop", "scores", np.zeros(64), 11), "ends a run after 10 rounds; raise max_rounds"),
        (Policy(), ("shop", "scores for 2", np.zeros((3, 2)), 1), "is about 3 rows, the policy of 'bank' asks for 8"),
        (Policy(), ("shop", "snapshot for 1", np.zeros(3), 1), "is about 3 rows, the policy of 'bank' asks for 8"),
    ],
)
def test_at_the_door(policy, message, sentence):
    with pytest.raises(PolicyRefused, match=sentence):
        policy.allow("bank", *message)
    Policy().allow("bank", "shop", "scores", np.zeros(64), 1)
    Policy().allow("bank", "shop", "labelled rows", np.zeros(3, np.uint8), 1)
    Policy().allow("bank", "shop", "prediction", np.zeros(1), 1)  # one person: what a model is for


def test_limits_that_depend_on_how_many_people_there_are():
    assert [Policy().partner_ids(own) for own in (469, 2_000)] == [10_000, 20_000]
    assert Policy(max_partner_ids=7).partner_ids(2_000) == 7
    assert [Policy().people_per_day(people) for people in (None, 469, 6_000)] == [10_000, 10_000, 12_000]
    assert Policy(max_people_per_day=7).people_per_day(6_000) == 7


def test_kinds_of_steps():
    assert [kind_of(step) for step in ("scores", "scores for 12", "snapshot for 1 masks", "evaluation masks")] == [
        "scores", "scores", "masks", "masks",
    ]  # fmt: skip


# Where the name of a step stands among the arguments of what sends or hears one.
SENDS = {
    "send": 1,
    "send_portions": 2,
    "tell": 0,
    "tell_each": 0,
    "total": 0,
    "total_phases": 0,
    "total_narrow": 0,
    "total_wide": 0,
    "in_step": 1,
    "tell_words": 1,
    "tree_sum": 1,
    "collect": 0,
    "side_by_side": 1,
    "add_up": 0,
}
# What else is called so is no business of the policy.
OF = {"send": "net.send", "recv": "net.recv", "tell": ".tell", "hear": "session.hear"}
HANDED_ON = ("tag", "self.named(tag)", "step", "self.tags[holder]", "on", "by", "step_of(stage, 1 if masked else 0)")
HEARS = {"recv": 1, "hear_words": 1, "hear_signal": 2, "remasked": 2, "hear": 1, "hear_told_signal": 2, "fetch": 1}


def names_in(tree):
    """{name: text} of the constants of a source, one by one or several in a line."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, values = node.targets[0], node.value
            several = isinstance(targets, ast.Tuple) and isinstance(values, ast.Tuple)
            pairs = zip(targets.elts, values.elts, strict=True) if several else [(targets, values)]
            found.update({ast.unparse(a): b.value for a, b in pairs if isinstance(b, ast.Constant)})
    return {name: text for name, text in found.items() if isinstance(text, str)}


def steps_in(tree, imported):
    """(sent, heard): the names of steps in a source; one that is not written out was handed on as a tag."""
    sent, heard, named = set(), set(), {**imported, **names_in(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "tag" and node.value is not None:
            sent.add(node.value.value)  # of a class, which numbers it
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in OF and not ast.unparse(node.func).endswith(OF[name]):
            continue
        at = SENDS.get(name, HEARS.get(name))
        if at is None or at >= len(node.args):
            continue
        step = node.args[at]
        if isinstance(step, ast.JoinedStr) and isinstance(step.values[0], ast.FormattedValue):
            step = step.values[0].value if ast.unparse(step.values[0].value) in named else step
        if ast.unparse(step).startswith("lane.tag("):  # a step of one of several lanes, under its own name
            step = step.args[0]
        if ast.unparse(step) in named:
            step = ast.Constant(named[ast.unparse(step)])
        if isinstance(step, ast.Constant):
            (sent if name in SENDS else heard).add(step.value)
        elif isinstance(step, ast.BinOp):
            sent.add(f"scores{step.right.value}")  # a name that is handed on with a word behind it
        else:
            assert ast.unparse(step) in (*HANDED_ON, "f'sealed {kind}: {what}'"), ast.unparse(node)
    return sent, heard


def test_every_step_of_ours_has_a_kind():
    """The step names in the sources are all known to the policy, and the policy knows no other."""
    source = Path(cn.__file__).parent
    # What sites send in a job, `site_jobs` has by these names; runtimes carry whatever they are told.
    without = ("horizontal", "runtimes", "remote", "flower")
    files = [path for path in source.rglob("*.py") if path.relative_to(source).parts[0] not in without]
    trees = [ast.parse(path.read_text()) for path in files]
    everything = [*trees, ast.parse((source / "horizontal" / "shown.py").read_text())]
    shared = {
        name: text for tree in everything for name, text in names_in(tree).items() if name.isupper() and name[0] != "_"
    }
    found = [steps_in(tree, shared) for tree in trees]
    sent, heard = (set().union(*parts) for parts in zip(*found, strict=True))
    # Sealed training puts the names of its steps together from a kind and what it is about.
    sealed = {*SEALED_KINDS, "size of the target", "size of the weights"}
    on_its_way = {passed_on("signal", 0), signed("signal", 0)}  # whatever it is
    of_sums = {*STAGES.values(), PLAIN}
    assert {kind_of(step) for step in sent | on_its_way | of_sums} | sealed == set(KINDS)
    assert {kind_of(step) for step in heard} <= {*KINDS, "end of serving"}  # which nobody sends


class Book:
    def __init__(self):
        self.lines = []

    def note(self, *line):
        self.lines.append(line)


def test_what_the_door_lets_out_is_what_the_ledger_says_and_traffic_counts(monkeypatch):
    books = {}
    original = Endpoint.__init__

    def with_a_door(self, me, *rest):
        original(self, me, *rest)
        books[me] = Book()
        self.door = PolicyDoor(me, Policy(), books[me])

    monkeypatch.setattr(Endpoint, "__init__", with_a_door)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 6))
    parties = cn.split(X, X[:, 0] > 0, into=3, active=2)
    model = cn.LogisticRegression(algorithm=cn.VFB2("svrg", epochs=2, tol=None), sum="two-trees", verbose=0)
    model.fit(*parties)
    for name, book in books.items():
        traffic = model.traffic_[name]
        assert len(book.lines) == traffic.messages
        assert sum(size for *_, size in book.lines) == traffic.bytes
        assert {kind_of(step) for _, step, *_ in book.lines} <= {*KINDS, "goodbye"}


def test_a_run_ends_where_the_policy_does(monkeypatch):
    original = Endpoint.__init__

    def with_a_door(self, me, *rest):
        original(self, me, *rest)
        self.door = PolicyDoor(me, Policy(kinds=tuple(kind for kind in KINDS if kind != "signal")), None)

    monkeypatch.setattr(Endpoint, "__init__", with_a_door)
    X = np.random.default_rng(0).standard_normal((100, 6))
    with pytest.raises(PolicyRefused, match="the policy of 'party1' does not let messages of the kind 'signal' out"):
        cn.LogisticRegression(verbose=0).fit(*cn.split(X, X[:, 0] > 0, into=2))


def test_the_smallest_batch_is_what_the_policy_looks_at():
    """Pieces of nearly one size: 100 rows in batches of 32 at most are four of 25."""
    algorithm = cn.FedSGD(batch=32)
    assert algorithm.smallest_batch(100, 1) == 25
    assert algorithm.smallest_batch(64, 1) == 32
    assert algorithm.smallest_batch(100, 2) == 25
    assert algorithm.smallest_batch(101, 3) == 16
    assert cn.FedSGD().smallest_batch(3, 5) == 1
    with pytest.raises(PolicyRefused, match="batches have 25 rows, the policy of 'bank' asks for 32 at least"):
        Policy(min_batch=32).check_part("bank", 5, algorithm.smallest_batch(100, 1))
