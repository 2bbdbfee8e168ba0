"""What a server tells a site is never a name to import, a file to open or code to run, wherever in a message it stands.

Every message that a site takes is sent again with each of its values replaced, one at a time, by names of modules and
functions, dunder names, paths and code. A module that leaves a mark when it is imported lies where Python looks.
"""

from __future__ import annotations

import asyncio
import builtins
import importlib
import importlib.util
import io
import os
import sys

import numpy as np
import pytest

import colonnade as cn
from colonnade.crypto.masks import KeyPair
from colonnade.errors import ColonnadeError, DataError, OptionError, ProtocolError
from colonnade.horizontal.answering import Own
from colonnade.horizontal.bringing import part_of
from colonnade.horizontal.messages import method_from_value, model_from_value
from colonnade.horizontal.program import attend
from colonnade.horizontal.site_work import SiteRows, SiteWork
from colonnade.horizontal.stated_problem import StatedProblem
from colonnade.runtimes.net import Traffic
from colonnade.runtimes.wire import decode, encode
from colonnade.sums.dropout import Member
from masked_sums import mutations

RNG = np.random.default_rng(0)
SITES = [cn.Site(f"s{k}", RNG.normal(size=(9, 3)), np.arange(9) % 2) for k in range(3)]
NONE = StatedProblem.of()
MODULE = "colonnade_marks_its_import"


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """(hostile values, a function that says what of them was imported, opened or run)."""
    mark = tmp_path / "mark"
    code = f"open({str(mark)!r}, 'w').write('code ran')"
    path = tmp_path / f"{MODULE}.py"
    path.write_text(f"def make(*args):\n    {code}\n{code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    names = [f"{MODULE}:make", MODULE, f"{MODULE}.make", f"{path}:make", str(path), f"file://{path}"]
    names += ["builtins:exec", "builtins:eval", "os:system", "__import__", "__class__", "__init__", "__reduce__"]
    names += ["../../../etc/passwd", "/etc/passwd", "numpy:load", "colonnade.horizontal.torch_whole:maker_of", code]
    touched = []

    def watch(owner, name):
        real = getattr(owner, name)

        def watched(*args, **options):
            if any(isinstance(one, (str, os.PathLike)) and _hostile(str(one), names) for one in args):
                touched.append((name, args[0]))
            return real(*args, **options)

        monkeypatch.setattr(owner, name, watched)

    for owner, name in (
        (builtins, "__import__"), (builtins, "exec"), (builtins, "eval"), (builtins, "compile"), (builtins, "open"),
        (io, "open"), (os, "open"), (os, "system"), (importlib, "import_module"),
        (importlib.util, "spec_from_file_location"),
    ):  # fmt: skip
        watch(owner, name)

    def found():
        loaded = [name for name in sys.modules if name.startswith(MODULE)]
        return touched, loaded, mark.exists()

    yield (*names, (code, "builtins:exec"), b"builtins:exec"), found
    sys.modules.pop(MODULE, None)


def _hostile(text, names):
    return text in names or MODULE in text


class Scripted:
    """A net on which one message comes, and then the end."""

    def __init__(self, me, messages):
        self.me, self.names, self.traffic, self.deadline = me, ("server",), Traffic(), 6.0
        self.messages, self.sent = list(messages), []

    async def recv(self, frm, tag):
        return self.messages.pop(0) if self.messages else ("end", 0, np.zeros(1))

    async def recv_within(self, frm, tag, seconds):
        return ()

    async def send(self, to, tag, value):
        self.sent.append(value)

    async def work(self, nonzeros, lane="forward", servers=1):
        pass

    def spare(self, names):
        pass

    def report(self, value):
        pass


def a_sum():
    """(job, all instructions of one sum, as site 0 gets them); the two others are members by hand."""
    plan = cn.SSCAClassifier(hidden=2).plan(cn.SSCA(), ("s0", "s1", "s2"), 3, 2, NONE)
    job = plan.as_site_job(0)
    work = SiteWork.of(job, "s0", SiteRows.from_value(part_of(SITES[0], np.arange(2), NONE.rows)), None, Own())
    size = work.model.size
    tasks = [("count",), ("step", 1, np.zeros(size), np.ones(3)), ("evaluate", 0, np.zeros(size), np.ones(3))]
    turn, public = work.begin(1, tasks[0])
    others = {k: Member(k, turn.member.terms, KeyPair()) for k in (1, 2)}
    keys = {0: public, **{k: m.public for k, m in others.items()}}
    letters = {k: m.share(keys) for k, m in others.items()}
    mine = turn.member.share(keys)
    for k, m in others.items():
        m.mask({0: mine[k], 3 - k: letters[3 - k][k]}, np.zeros(3, dtype=np.uint64))
    signed = tuple((k, m.sign([0, 1, 2])) for k, m in others.items())
    messages = [("task", 1, task) for task in tasks]
    messages.append(("keys", 1, tuple((k, *each) for k, each in keys.items())))
    messages.append(("letters", 1, tuple((k, each[0]) for k, each in letters.items())))
    return job, [*messages, ("survivors", 1, (0, 1, 2)), ("signatures", 1, signed), ("end", 1, np.zeros(size))]


def test_no_instruction_is_a_name(trap):
    hostile, found = trap
    job, messages = a_sum()
    plan = (job[1], job[2], job[3], job[5], job[4], ("",), (((1.0,), 0.0),), (), job[6])
    mine = (part_of(SITES[0], np.arange(2), NONE.rows), None, None, None, None, (), 5)
    asyncio.run(attend(Scripted("s0", [messages[0], messages[-1]]), "server", plan, mine))  # these it takes
    tried = 0
    for message in messages:
        for changed in mutations(message, hostile):
            tried += 1
            net = Scripted("s0", [messages[0], decode(encode(changed))])
            with pytest.raises(ColonnadeError):
                asyncio.run(attend(net, "server", plan, mine))
    assert tried > 500
    assert found() == ([], [], False)


def test_no_part_of_a_job_is_a_name(trap):
    """What a server of Flower's tells with a task; also with a function of the site's own, which alone is called."""
    pytest.importorskip("torch")
    hostile, found = trap
    job, _ = a_sum()
    part = SiteRows.from_value(part_of(SITES[0], np.arange(2), NONE.rows))
    own = ("own", 3, ((2, 3), (2,)), 2, False)
    fedavg = cn.FedAvg(fraction=0.9).as_value()
    tried = 0
    mine = Own(lambda features, classes: importlib.import_module("torch").nn.Linear(features, classes))
    for valid, network in ((job, Own()), ((*job[:2], own, *job[3:]), mine), ((*job[:3], fedavg, *job[4:]), Own())):
        SiteWork.of(valid, "s0", part, None, network)
        for changed in mutations(valid, hostile):
            if changed[1:2] == valid[1:2] or not isinstance(changed, tuple):  # other sites may have any name
                tried += 1
                with pytest.raises(ColonnadeError):
                    SiteWork.of(decode(encode(changed)), "s0", part, None, network)
    assert tried > 500
    assert found() == ([], [], False)


def test_the_attack_that_ran_code_at_a_site(trap):
    """("torch", code, "builtins:exec", ...): the site called exec(code, None)."""
    hostile, found = trap
    code = hostile[-2][0]
    job, _ = a_sum()
    part = SiteRows.from_value(part_of(SITES[0], np.arange(2), NONE.rows))
    for kind in ("torch", "own", "layers", "named"):
        for what in ("builtins:exec", f"{MODULE}:make"):
            for network in (None, lambda features, classes: None):
                told = decode(encode((*job[:2], (kind, code, what, None, 1.0), *job[3:])))
                with pytest.raises(ColonnadeError):
                    SiteWork.of(told, "s0", part, None, Own(network))
    assert found() == ([], [], False)


def test_a_models_file_is_no_name_either(trap, tmp_path):
    """A folder that somebody else made: its description of the model is checked before anything is made of it."""
    hostile, found = trap
    one = cn.SSCAClassifier(hidden=2, verbose=0, algorithm=cn.SSCA(rounds=1)).fit(*SITES)
    shape, tried = one._model, 0
    for changed in mutations(shape, hostile):
        one._model = changed if isinstance(changed, tuple) else (changed,)
        folder = tmp_path / f"model{tried}"
        if isinstance(changed, bytes) or any(isinstance(part, bytes) for part in one._model):
            continue  # JSON has none
        one.save(folder)
        tried += 1
        with pytest.raises(DataError, match="the model's file is damaged: a model is told as"):
            cn.load(folder)
    assert tried > 80
    one._model = ("torch", hostile[-2][0], "builtins:exec", None, 1.0)
    one.save(tmp_path / "code")
    with pytest.raises(DataError, match="the model's file is damaged"):
        cn.load(tmp_path / "code").predict(SITES[0].X)
    one._model = ("own", 3, ((2, 3), (2,)), 2, False)
    one.save(tmp_path / "own")
    with pytest.raises((DataError, OptionError)):
        cn.load(tmp_path / "own").predict(SITES[0].X)
    assert found()[1:] == ([], False)


def test_names_are_compared_with_tables():
    for value in (("os", ()), ("METHODS", ()), ("__init__", ()), ("SSCA", (("algorithm", "os"),)), (("SSCA",), ())):
        with pytest.raises(ProtocolError):
            method_from_value(value)
    with pytest.raises(OptionError, match="it returned a NoneType"):
        model_from_value(("own", 3, (), 2, False), lambda features, classes: None, "site 'a'")
