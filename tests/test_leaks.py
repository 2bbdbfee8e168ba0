"""What is declared to be shown accounts for every message.

Every algorithm runs with every sum, two and three parties, one and two label holders; what leaves a party is compared
with what `colonnade.leaks` has of it, message by message. tests/test_leaks_found.py carries out attacks, and compares
what they find.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import colonnade as cn
from colonnade.algorithms.boosted import KINDS as TREE_KINDS
from colonnade.algorithms.encrypted_transfer import encrypted_transfer_leaks
from colonnade.algorithms.split import split_leaks
from colonnade.algorithms.transfer import transfer_leaks
from colonnade.alignment.protocol import align
from colonnade.binning import binning_leaks
from colonnade.boosting.options import TreeOptions
from colonnade.families.kernel import KernelOptions
from colonnade.families.linear import LinearOptions, LinearScorer
from colonnade.families.torch_networks import TorchOptions
from colonnade.families.trees import TreeScorer
from colonnade.horizontal.shown import rows_leaks
from colonnade.jobs.policy import KINDS, kind_of
from colonnade.jobs.words import leaks_of
from colonnade.leaks import (
    BIN_CORRELATIONS,
    BIN_COUNTS,
    CELL_COUNTS,
    CHANGES,
    CHOSEN,
    CLASSES,
    COMMON,
    CORRELATIONS,
    COVARIANCES,
    CURVATURES,
    EMBEDDINGS,
    GRADIENTS,
    HELD_OUT,
    LISTED,
    MAGNITUDE,
    MEAN,
    MEAN_WEIGHT,
    NOTHING,
    OBJECTIVE,
    PREDICTED,
    REPEATS,
    REPRESENTATIONS,
    SHARED,
    SIGNALS,
    SINGLE,
    SITE_ALONE,
    SITE_COSTS,
    SITE_COUNTS,
    SITE_GRADIENTS,
    SITE_MEANS,
    SITE_NAMES,
    UNCHANGED,
    UNEVEN,
    WEIGHTS,
    Setting,
    listed,
)
from colonnade.planning.candidates import candidates
from colonnade.runtimes.endpoint import Endpoint
from colonnade.service.scoring import Asker, Directory, ScoringTerms, serve
from colonnade.service.training import Keepers, take_part
from colonnade.sums.base import SecureSum
from colonnade.validation.shown import validation_leaks
from tables import pairwise
from test_job import GOOD, job
from test_job_training import Plain, Source
from test_kept import Shelf

ROWS, COLUMNS_OF_ALL = 64, 12
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, COLUMNS_OF_ALL))
Z = X @ RNG.standard_normal(COLUMNS_OF_ALL)
Y = np.where(Z + RNG.logistic(size=ROWS) > 0, 1, 0)
NAMES = {2: ("bank", "shop"), 3: ("bank", "clinic", "shop")}


class Whole(Source):
    """All rows are common, and all of them are trained on."""

    def prepare(self, rows):
        return Plain(self.X)


class Record:
    """All that left a party: messages, and what they add up to at the root of a sum."""

    def __init__(self, monkeypatch):
        self.letters, self.roots, self.parts, self.totals = [], {}, [], []
        start, in_turn = Endpoint.__init__, SecureSum._in_turn
        record = self

        def with_a_door(endpoint, me, *rest):
            start(endpoint, me, *rest)
            endpoint.door = SimpleNamespace(open_for=lambda *args, control: None if control else record.note(me, *args))

        async def summed(secure, tag, value, root):
            record.roots.setdefault(kind_of(tag), set()).add(root)
            record.parts.append((secure.net.me, kind_of(tag), root, value.copy()))
            return await in_turn(secure, tag, value, root)

        monkeypatch.setattr(Endpoint, "__init__", with_a_door)
        monkeypatch.setattr(SecureSum, "_in_turn", summed)
        for name in ("total", "total_narrow", "total_wide"):
            monkeypatch.setattr(SecureSum, name, self.watched(getattr(SecureSum, name)))

    def watched(self, method):
        async def total(secure, tag, value, root, *more, **options):
            found = await method(secure, tag, value, root, *more, **options)
            if found is not None:
                self.totals.append((root, kind_of(tag), found, value))
            return found

        return total

    def note(self, me, to, step, value, *_):
        self.letters.append((me, to, kind_of(step), value))

    def unaccounted(self, setting, leaks):
        """Messages that no declaration accounts for, as (sender, receiver, kind)."""
        found = set()
        for me, to, kind, value in self.letters:
            if kind in NOTHING or value is None:
                continue
            roots = self.roots.get(kind)
            if roots is None:
                fits = any(kind in leak.kinds and told(leak, me, to) for leak in leaks)
            else:  # on the way it is noise, unless the sum is plain
                fits = all(any(kind in leak.kinds and told(leak, me, root) for leak in leaks) for root in roots)
                if setting.sum == "plain" and len(setting.parties) > 2:
                    fits &= any(leak.name == SINGLE and me in leak.of and to in leak.to for leak in leaks)
            found |= set() if fits else {(me, to, kind)}
        return found


def told(leak, me, to):
    if not leak.name:
        return me in leak.of
    # The root of a sum sends nothing to itself; what it learns is of the others.
    return to in leak.to and (me in leak.of or me == to)


# Batches of encrypted signals have many rows, for few columns.
MANY = np.random.default_rng(1).standard_normal((400, 6))
LABELS_OF_MANY = np.where(MANY.sum(axis=1) + np.random.default_rng(2).logistic(size=400) > 0, 1, 0)


def sources(names, holders, y=Y, columns=X):
    cuts = np.array_split(np.arange(columns.shape[1]), len(names))
    labels = np.array(y, dtype=object)
    ids = [f"p{row}" for row in range(len(columns))]
    return {
        name: Whole(columns[:, cut], ids, labels if name in holders else None)
        for name, cut in zip(names, cuts, strict=True)
    }


def made_by(algorithm):
    """The family of an algorithm's models, and their options."""
    if isinstance(algorithm, cn.OpenBoosting):
        return {"family": algorithm.family, "model": TREES, "sum": "plain"}
    return {"family": algorithm.family, "model": KERNEL if algorithm.family == "kernel" else LinearOptions(l2=0.01)}


def job_with(algorithm, parties=2, holders=1, sum_="pairwise", **changes):
    names = NAMES[parties]
    addresses = dict.fromkeys(names, "-")
    options = {"loss": "logistic", "aligned": True, **made_by(algorithm), **changes}
    options = {"algorithm": algorithm, "addresses": addresses, "holders": names[:holders], "sum": sum_, **options}
    return replace(job(GOOD), **options)


def run(job_, y=Y, columns=X):
    """Train, each party with a place to keep its state; returns what each has found."""
    data = (LABELS_OF_MANY, MANY[:, : 2 * len(job_.parties)]) if job_.sum == "encrypted" else (y, columns)
    found, given = {}, sources(job_.parties, job_.holders, *data)

    def program_of(name):
        async def program(net):
            keepers = Keepers(Shelf(), lambda _: Shelf())
            found[name] = await take_part(net, job_, given[name], align, lambda *_: None, keepers)

        return program

    cn.Simulation().run({name: (program_of(name), ()) for name in job_.parties})
    return found


SHORT = {"epochs": 2, "tol": None}
PRINTED = {"flow": "paper", "schedule": "constant", "step": 0.1}
ALGORITHMS = {
    "FedSGD": cn.FedSGD(**SHORT),
    "FedSGD drawn": cn.FedSGD(**SHORT, batch=16, sampling="uniform"),
    "FedBCD": cn.FedBCD(**SHORT, batch=16),
    "FedBCD in turn": cn.FedBCD(**SHORT, order="sequential"),
    "FedBCD once": cn.FedBCD(**SHORT, order="sequential-once", local_steps="auto", step="theorem", schedule="constant"),
    "FedBCD bent": cn.FedBCD(**SHORT, signal="curvature", step=0.1),
    "VFB2 sgd": cn.VFB2("sgd", **SHORT, batch=16, evaluate_every=2),
    "VFB2 svrg": cn.VFB2("svrg", **SHORT),
    "VFB2 saga in step": cn.VFB2("saga", asynchronous=False, **SHORT),
    "AFSGD": cn.AFSGD("svrg", **SHORT),
    "VFB2 printed": cn.VFB2("saga", **SHORT, batch=16, table="start", **PRINTED),
    "VFB2 printed, drawn": cn.VFB2("sgd", **SHORT, batch=16, sampling="uniform", threads=2, **PRINTED),
    "AFSGD printed": cn.AFSGD("svrg", **SHORT, batch=16, snapshot_every=1, evaluate_every=3, **PRINTED),
    "FDML": cn.FDML(**SHORT),
    "BlockNewton": cn.BlockNewton(**SHORT),
    "BlockNewton in turn": cn.BlockNewton(**SHORT, order="sequential", grow_from=20),
    "FDSKL": cn.FDSKL(**SHORT, block=8, batch=16),
    "FDSKL shared": cn.FDSKL(**SHORT, block=8, batch=16, directions="shared", step=0.1),
    "FDSKL as printed": cn.FDSKL(**SHORT, block=8, batch=16, refit=False, step=0.1),
    "FDSKL together": cn.FDSKL(**SHORT, block=8, batch=16, workers="together"),
    "FDSKL asynchronous": cn.FDSKL(**SHORT, block=8, batch=16, workers="asynchronous"),
}
KERNEL = KernelOptions("rbf", "scale", 24, 1e-4)
# Labels follow from a column of the last party, so that cuts of it are opened whatever the noise.
OF_TREES = np.random.default_rng(3).standard_normal((900, 6))
TREES = TreeOptions(trees=3, bins=8)
BOOSTING = {"sealed": cn.SealedBoosting(noise=1.0), "plain": cn.OpenBoosting()}
ignored = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")


# All that is not refused before a run.
CASES = [
    (name, sum_, parties, holders)
    for name in ALGORITHMS
    for sum_ in (
        "pairwise",
        "two-trees",
        "plain",
        *(["encrypted"] if name in ("FedSGD", "FedBCD", "FedBCD once") else []),
    )
    for parties in (2, 3)
    for holders in ((1,) if name == "FDML" else (1, 2))
]


@ignored
@pytest.mark.parametrize(("name", "sum_", "parties", "holders"), pairwise(CASES))
def test_every_message_is_declared(name, sum_, parties, holders, monkeypatch):
    algorithm, rows = ALGORITHMS[name], ROWS
    if sum_ == "encrypted":
        algorithm, rows = replace(algorithm, batch=None), len(MANY)
    job_ = job_with(algorithm, parties, holders, sum_)
    record = Record(monkeypatch)
    run(job_)
    setting, leaks = job_.setting(rows), leaks_of(job_)
    assert not record.unaccounted(setting, leaks)
    # And each declaration is needed: without those of one kind, its messages are found.
    for kind in {kind for _, _, kind, value in record.letters if kind not in NOTHING and value is not None}:
        lying = [leak for leak in leaks if kind not in leak.kinds]
        assert {found for *_, found in record.unaccounted(setting, lying)} >= {kind}
    check_numbers(job_, record, rows)


def check_numbers(job_, record, rows=ROWS):
    """No more numbers about a row leave a party than the algorithm says."""
    most = job_.algorithm.numbers_per_row(job_.setting(rows))
    about = ("scores", "snapshot", "evaluation", "directions")
    for name in job_.parties:
        sent = sum(value.size for me, kind, _, value in record.parts if me == name and kind in about)
        if job_.family != "kernel":
            assert sent <= most * rows, (name, sent / rows, most)
        if isinstance(job_.algorithm, (cn.FedSGD, cn.FedBCD)) and job_.algorithm.sampling == "passes":
            assert sent == most * rows


@ignored
@pytest.mark.parametrize("loss", ["poisson", "square", "softmax"])
@pytest.mark.parametrize("name", ["FedSGD", "FedBCD bent", "BlockNewton"])
def test_every_message_of_other_losses(name, loss, monkeypatch):
    job_ = job_with(ALGORITHMS[name], 3, 2, loss=loss, aligned=False)
    record = Record(monkeypatch)
    y = np.round(np.exp(0.3 * Z)) if loss == "poisson" else Z if loss == "square" else np.digitize(Z, [-1.0, 1.0])
    run(job_, y.tolist())
    assert not record.unaccounted(job_.setting(ROWS), leaks_of(job_))


@ignored
@pytest.mark.parametrize(
    ("name", "loss", "parties", "holders"),
    [
        pytest.param(name, loss, parties, holders, marks=[] if (parties, holders) in short else pytest.mark.long)
        for name, loss, short in (
            ("FedSGD", "logistic", [(2, 1), (3, 2)]),
            ("AFSGD", "logistic", [(2, 2)]),
            ("BlockNewton", "square", [(3, 1)]),
        )
        for parties in (2, 3)
        for holders in (1, 2)
    ],
)  # fmt: skip
def test_every_message_of_statistics(name, loss, parties, holders, monkeypatch):
    job_ = job_with(ALGORITHMS[name], parties, holders, loss=loss, statistics=True)
    record = Record(monkeypatch)
    found = run(job_, Y if loss == "logistic" else Z.tolist())
    assert found["bank"].statistics is not None
    leaks = leaks_of(job_)
    assert not record.unaccounted(job_.setting(ROWS), leaks)
    kinds = {kind for _, _, kind, _ in record.letters}
    assert {"block size", "sealed columns", "sealed products", "product shares", "inverse block"} <= kinds
    lying = leaks_of(replace(job_, statistics=False))
    assert {kind for *_, kind in record.unaccounted(job_.setting(ROWS), lying)} >= {"block size", "inverse block"}


@pytest.mark.parametrize("parties", [2, 3])
def test_every_message_of_predictions(parties, monkeypatch):
    job_ = job_with(cn.FedSGD(**SHORT), parties)
    found = run(job_)
    record = Record(monkeypatch)
    predict_with(job_, sources(job_.parties, ()), lambda name: LinearScorer(found[name].state))
    assert {kind for _, _, kind, _ in record.letters} == {"public key", "scoring", "prediction"}
    assert not record.unaccounted(job_.setting(), leaks_of(job_))


def predict_with(job_, people, scorer_of):
    """Have the bank ask about everybody."""
    terms = ScoringTerms("bank", job_.sum, job_.topology)

    def program_of(name):
        source = people[name]
        everybody = np.ones(source.rows, dtype=bool)

        async def program(net):
            scorer = scorer_of(name)
            if name == "bank":
                asker = await Asker.open(net, terms, scorer)
                await asker.scores(source.ids, source.X, everybody)
                await asker.close()
            else:
                directory = Directory(np.array(source.ids))
                await serve(net, terms, scorer, lambda ids: (source.X[directory.find(ids)[0]], directory.find(ids)[1]))

        return program

    cn.Simulation().run({name: (program_of(name), ()) for name in job_.parties})


# -- trees ------------------------------------------------------------------------------------------------------------


@ignored
@pytest.mark.parametrize("validation", [0.0, 0.25])
@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("protection", BOOSTING)
def test_every_message_of_trees(protection, parties, validation, monkeypatch):
    job_ = job_with(BOOSTING[protection], parties, validation=validation, aligned=False)
    record = Record(monkeypatch)
    found = run(job_, OF_TREES[:, -1] > 0, columns=OF_TREES)
    trained = {kind for _, _, kind, _ in record.letters}
    of_plain = {"tree sizes", "tree bins", "tree order", "tree model"}
    of_sealed = set(TREE_KINDS) - {"tree bins", "tree ranges"}
    assert trained & set(TREE_KINDS) == (of_sealed if protection == "sealed" else of_plain)
    predict_with(job_, sources(job_.parties, (), columns=OF_TREES), lambda name: TreeScorer(name, found[name].state))
    assert {kind for _, _, kind, _ in record.letters} - trained == {"scoring", "tree ranges"}
    setting, leaks = job_.setting(len(OF_TREES)), leaks_of(job_)
    assert not record.unaccounted(setting, leaks)
    for kind in {kind for _, _, kind, value in record.letters if kind not in NOTHING and value is not None}:
        lying = [leak for leak in leaks if kind not in leak.kinds]
        assert {found for *_, found in record.unaccounted(setting, lying)} >= {kind}
    # Nothing is added up, so that no key is agreed on, and nothing about a sum is declared.
    assert not record.parts
    assert not {"public key", "prediction", "budget"} & {kind for _, _, kind, _ in record.letters}
    assert not {SINGLE, PREDICTED, OBJECTIVE, HELD_OUT} & {leak.name for leak in leaks}


# -- networks, and all kinds ----------------------------------------------------------------------------------------


def networks(width, inputs):
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'colonnade[torch]'")
    torch.manual_seed(0)
    return {name: torch.nn.Linear(size, width).double() for name, size in inputs.items()}


@ignored
@pytest.mark.parametrize("top", [False, True])
@pytest.mark.parametrize("order", ["parallel", "sequential"])
@pytest.mark.parametrize("parties", [2, 3])
def test_every_message_of_networks(parties, order, top, monkeypatch):
    width, names = 12 // parties, NAMES[parties]
    modules = networks(3 if top else 1, dict.fromkeys(names, width))
    more = {"top": next(iter(networks(1, {"top": 3 * parties}).values()))} if top else {}
    algorithm = cn.FedBCD(**SHORT, order=order, batch=16, step=0.1 if top else "auto")
    record = Record(monkeypatch)
    model = cn.NetworkClassifier(modules, algorithm=algorithm, sum="pairwise", verbose=0, **more)
    split = cn.split(X, Y, into={name: range(k * width, (k + 1) * width) for k, name in enumerate(names)})
    model.fit(*split)
    model.predict(*split)
    setting = Setting(names, ("bank",), model="split" if top else "network")
    leaks = split_leaks(setting, algorithm) if top else algorithm.leaks(setting)
    assert not record.unaccounted(setting, leaks)
    assert ("embeddings" in {kind for _, _, kind, _ in record.letters}) == top
    lying = [leak for leak in leaks if not {"embeddings", "scores"} & {*leak.kinds}]
    assert record.unaccounted(setting, lying)


def test_every_message_of_transfer_learning(monkeypatch):
    modules = networks(4, {"bank": 6, "shop": 6})
    algorithm = cn.FedSGD(**SHORT, step=0.1)
    record = Record(monkeypatch)
    bank, shop = cn.split(X, Y, into={"bank": range(6), "shop": range(6, 12)})
    bank, shop = (cn.Party(one.name, one.X, one.y, ids=np.arange(ROWS)) for one in (bank, shop))
    model = cn.TransferClassifier(modules, algorithm=algorithm, verbose=0).fit(bank, shop)
    model.predict(shop)
    setting = Setting(("bank", "shop"), ("bank",), sum="plain", model="transfer")
    leaks = transfer_leaks(setting, algorithm)
    assert not record.unaccounted(setting, leaks)
    kinds = {kind for _, _, kind, _ in record.letters}
    assert {"representations", "representations to evaluate", "mean representation", "labels"} <= kinds
    assert record.unaccounted(setting, [leak for leak in leaks if "representations" not in leak.kinds])


def test_every_message_of_a_plan(monkeypatch):
    from test_plan import plan_of

    job_ = job_with(cn.BlockNewton(), 3)
    record = Record(monkeypatch)
    plan_of(job_, sources(job_.parties, job_.holders), seconds=1.0)
    assert {"plan", "ping", "load", "curvature"} <= {kind for _, _, kind, _ in record.letters}
    tried = [replace(job_, algorithm=one.algorithm) for one in candidates(job_)]
    leaks = [leak for one in tried for leak in leaks_of(one)]
    assert len(tried) > 1
    assert not record.unaccounted(job_.setting(ROWS), leaks)
    assert listed(leaks) == job_.disclosed()  # all trials together show nothing that the job does not list


def test_every_kind_and_every_name_is_declared_by_somebody():
    """What a policy can name, and what a job can list, is declared in some setting; nothing else is."""
    kinds, names = set(NOTHING), set()
    for parties in NAMES.values():
        for holders in (parties[:1], parties[:2]):
            for loss in ("logistic", "poisson", "softmax"):
                for sum_ in ("pairwise", "plain", "encrypted"):
                    job_ = job_with(cn.FedSGD(), len(parties), len(holders), sum_, loss=loss, statistics=True)
                    for algorithm in ALGORITHMS.values() if sum_ != "encrypted" else [cn.FedSGD()]:
                        for aligned in (False, True):
                            changes = {"algorithm": algorithm, "aligned": aligned, **made_by(algorithm)}
                            leaks = leaks_of(replace(job_, **changes))
                            kinds.update(kind for leak in leaks for kind in leak.kinds)
                            names.update(leak.name for leak in leaks if leak.name)
    sealed = [
        leak
        for loss in ("logistic", "square")
        for leak in leaks_of(job_with(cn.SealedNewton(), loss=loss, validation=0.2, model=LinearOptions(weighted=True)))
    ]
    sealed += leaks_of(job_with(cn.FedSGD(), holders=2, model=LinearOptions(weighted=True)))
    two = Setting(("bank", "shop"), ("bank",))
    transferred = (*transfer_leaks(two, cn.FedSGD()), *encrypted_transfer_leaks(two, cn.FedSGD()))
    trees = [leak for algorithm in BOOSTING.values() for leak in leaks_of(job_with(algorithm))]
    bins = binning_leaks(two, 10, correlates=True)
    repeated = leaks_of(job_with(cn.FedSGD(), aligned=False, duplicates="expand"))
    repeated += leaks_of(job_with(cn.FedSGD(), aligned=False, keep=True))
    searched = validation_leaks(replace(two, held_out=True, folds=5, candidates=2), ())
    of_rows = Setting(parties=NAMES[3], holders=NAMES[3], model="rows", server="bank", fewest=2)
    rows = (*rows_leaks(of_rows), *rows_leaks(replace(of_rows, sum="plain")))
    for leak in (*sealed, *repeated, *trees, *searched, *split_leaks(two, cn.FedSGD()), *transferred, *bins, *rows):
        kinds.update(leak.kinds)
        names.update([leak.name] if leak.name else [])
    assert kinds == set(KINDS)
    assert names == set(LISTED)


# -- the table in docs/security.md ------------------------------------------------------------------------------------


def parties_with(name, **changes):
    """With how many parties a job lists something."""
    found = [str(parties) for parties in NAMES if name in job_with(parties=parties, **changes).disclosed()]
    return ", ".join(found)


def table():
    """What a job lists with which algorithm, as the page has it."""
    signals = [ALGORITHMS[name] for name in ("FedSGD", "FedBCD", "VFB2 svrg", "BlockNewton")]
    columns = {
        "FedSGD, FedBCD, VFB2, BlockNewton": {"algorithm": signals[0]},
        "with `encrypted`": {"algorithm": signals[0], "sum_": "encrypted"},
        "FDML": {"algorithm": ALGORITHMS["FDML"]},
        "AFSGD, two label holders": {"algorithm": ALGORITHMS["AFSGD"], "holders": 2},
        "FDSKL": {"algorithm": ALGORITHMS["FDSKL"]},
        "networks": {"algorithm": signals[0], "family": "torch", "model": TorchOptions()},
        "SealedNewton": {"algorithm": cn.SealedNewton()},
        "SealedBoosting": {"algorithm": cn.SealedBoosting()},
        "OpenBoosting": {"algorithm": cn.OpenBoosting()},
    }
    lists = {job_with(algorithm).disclosed() for algorithm in signals}
    assert len(lists) == 1  # so one column will do for them
    also = {
        SINGLE: '`sum = "plain"`: 3',
        CHANGES: '`order = "sequential"`: 3',
        SHARED: '`directions = "shared"`: 2, 3',
        EMBEDDINGS: "a top network",
        REPRESENTATIONS: "plain transfer learning",
        CURVATURES: "statistics after `encrypted` or AFSGD",
        MEAN: "Poisson, or statistics of several label holders, after `encrypted` or AFSGD",
        CORRELATIONS: "statistics",
        CELL_COUNTS: "`[binning]`: 2, 3",
        BIN_COUNTS: "`[binning]`: 2, 3",
        BIN_CORRELATIONS: "`[binning]` with `max_correlation` or `max_vif`: 2, 3",
        COVARIANCES: "statistics, or masked transfer learning",
        COMMON: "alignment",
        UNCHANGED: '`method = "served"` or `keep = true`: 2',
        REPEATS: '`duplicates = "expand"`: 2, 3',
        CLASSES: "several label holders, softmax, or transfer learning",
        MAGNITUDE: "ridge or Poisson, sealed or with `encrypted`",
        UNEVEN: "sealed, `encrypted` or AFSGD, with `weighted = true`",
        WEIGHTS: "signals, with `weighted = true`",
        MEAN_WEIGHT: "several label holders, with `weighted = true`",
        HELD_OUT: "SealedNewton or masked transfer learning, with `[validation]`; any linear model with folds",
        CHOSEN: "`[search]`",
        SIGNALS: "plain transfer learning",
        PREDICTED: "transfer learning",
        GRADIENTS: "`encrypted` with several label holders, or masked transfer learning",
        **dict.fromkeys((SITE_NAMES, SITE_COUNTS, SITE_MEANS, SITE_GRADIENTS, SITE_COSTS), "`[sites]`"),
        SITE_ALONE: "`[sites]`, where two sites may be a sum (`minimum_sites = 2`), or sums are plain",
    }
    rows = [
        "| a job lists | who learns it | " + " | ".join(columns) + " | and with |",
        "| --- " * (3 + len(columns)) + "|",
    ]
    for name, who in LISTED.items():
        cells = [parties_with(name, **changes) for changes in columns.values()]
        rows.append(f"| {name} | {who} | " + " | ".join(cells) + f" | {also.get(name, '')} |")
    return "\n".join(rows)


def test_the_table_in_the_docs_is_this_one():
    page = (Path(__file__).parent.parent / "docs" / "security.md").read_text()
    assert table() in page, f"docs/security.md needs this table:\n{table()}"
