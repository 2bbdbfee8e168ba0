"""`job.toml`: what is read from it, and every wrong thing in one sentence with file, line and key."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

import colonnade as cn
from colonnade.errors import OptionError
from colonnade.families.kernel import KernelOptions
from colonnade.families.linear import LinearOptions
from colonnade.jobs.job_file import JOB, described, job_of
from colonnade.leaks import (
    ALL_DIRECTIONS,
    ASKED,
    CHANGES,
    CLASSES,
    COLUMNS,
    COMMON,
    CONTRIBUTION,
    CONTRIBUTIONS,
    DIRECTIONS,
    DISTANCES,
    FIRST_NAMES,
    LABELLED,
    MEAN,
    OBJECTIVE,
    PRODUCTS,
    SCORES,
    SHARED,
    SIGNALS,
    SINGLE,
    SIZES,
    TOTALS,
)
from colonnade.settings import toml

GOOD = """\
version = 1
name = "first"
disclosed = ["who is in common", "how many people each party has", "which rows are labelled", \
"signals, which show the labels", "scores, which follow from the signals", "contributions of the partner, row by row", \
"directions of columns, more with every round", "inner products of rows", "how many columns, and their scale", \
"who is asked about in predictions", "objective and metric"]

[parties.shop]
[parties.bank]
address = "127.0.0.1:7443"
labels = true

[model]
kind = "logistic"
l2 = 0.01

[algorithm]
kind = "FedBCD"
local_steps = 3
epochs = 7
"""


LIST = re.compile(r"^disclosed = \[.*?\]$", re.MULTILINE | re.DOTALL)


def job(text):
    return job_of(toml.parse(text.encode(), JOB, "job.toml"))


def complete(text):
    """The same job with a list of all that it discloses; for tests that are about something else."""
    told = described(toml.parse(LIST.sub("disclosed = []", text).encode(), JOB, "job.toml")).disclosed()
    return LIST.sub(lambda _: f"disclosed = {json.dumps(told)}", text)


def test_what_a_job_says():
    read = job(GOOD)
    assert read.parties == ("bank", "shop")
    assert read.addresses == {"bank": "127.0.0.1:7443", "shop": None}
    assert read.holders == ("bank",)
    assert read.algorithm == cn.FedBCD(local_steps=3, epochs=7)
    assert (read.family, read.loss, read.model) == ("linear", "logistic", LinearOptions("l2", 0.01, True))
    assert read.sum == "pairwise"  # also between two: organisations never add up in the clear by default
    assert (read.aligned, read.minimum, read.validation, read.deadline) == (False, 1, 0.0, 60.0)
    assert read.agreed["model"]["kind"] == "logistic"


@pytest.mark.parametrize("option", ["goal", "epochs", "tol", "seconds", "step"])
def test_a_number_that_no_machine_holds_is_refused(option):
    text = GOOD.replace("epochs = 7", f"{option} = -1{'0' * 400}")
    with pytest.raises(OptionError, match=rf"job.toml, line 17, key algorithm.{option}: must be a number of 64 bits"):
        job(text)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("gamma = 0.0", r"key model.gamma: must be > 0, or .scale., got 0.0"),
        ('gamma = "auto"', r"key model.gamma: must be > 0, or .scale."),
        ("features = 0", r"key model.features: must be >= 1 and <= 1e.06, got 0"),
        ("l2 = 0.1", r"key model.l2: has no meaning for kind 'kernel'; remove it"),
        ('kernel = "poly"', r"key model.kernel: must be one of"),
    ],
)
def test_kernels_that_make_no_sense(keys, sentence):
    with pytest.raises(OptionError, match=sentence):
        job(kernel_job(keys))


def kernel_job(keys=""):
    text = GOOD[: GOOD.index("[model]")] + f'[model]\nkind = "kernel"\n{keys}\n'
    told = [COMMON, SIZES, LABELLED, DISTANCES, COLUMNS, ASKED, OBJECTIVE]
    return LIST.sub(lambda _: f"disclosed = {json.dumps(told)}", text)


def test_a_job_of_kernels():
    read = job(kernel_job("features = 64\ngamma = 0.5"))
    made = KernelOptions("rbf", 0.5, 64, 1e-5)
    assert (read.family, read.model, read.algorithm, read.loss) == ("kernel", made, cn.FDSKL(), "logistic")
    rest = (COMMON, SIZES, LABELLED)
    assert read.disclosed() == (*rest, DISTANCES, COLUMNS, ASKED, OBJECTIVE)
    # a number for gamma and one for the step: nobody tells the scale of its columns, but a limit how many there are
    fixed = replace(read, algorithm=cn.FDSKL(step=0.1))
    assert fixed.disclosed() == (*rest, DISTANCES, COLUMNS, ASKED, OBJECTIVE)
    shared = replace(fixed, algorithm=cn.FDSKL(step=0.1, directions="shared"))
    assert shared.disclosed() == (*rest, DISTANCES, SHARED, COLUMNS, ASKED, OBJECTIVE)
    both = replace(fixed, holders=("bank", "shop"))
    assert both.disclosed() == (*rest, CLASSES, SIGNALS, SCORES, CONTRIBUTION, DISTANCES, COLUMNS, ASKED, OBJECTIVE)


def test_the_algorithm_may_be_left_out():
    text = GOOD[: GOOD.index("[algorithm]")]
    assert job(text).algorithm == cn.BlockNewton()
    assert job(f'{text}[algorithm]\nkind = "auto"\nepochs = 7\n').algorithm == cn.BlockNewton(epochs=7)
    with pytest.raises(OptionError, match=r"key algorithm\.local_steps: BlockNewton has no such option"):
        job(f"{text}[algorithm]\nlocal_steps = 7\n")


def test_options_of_a_researcher_reach_a_job():
    more = (
        'order = "sequential-once"\nstep = 0.1\nschedule = "sqrt"\ndecay = "step"\nsampling = "uniform"\nrounds = 90\n'
    )
    read = job(GOOD.replace("local_steps = 3", 'local_steps = "auto"') + more)
    given = {"order": "sequential-once", "step": 0.1, "schedule": "sqrt", "decay": "step", "sampling": "uniform"}
    assert read.algorithm == cn.FedBCD("auto", epochs=7, rounds=90, **given)
    theorem = GOOD + 'step = "theorem"\nschedule = "constant"\n'
    assert job(theorem).algorithm.step == "theorem"
    for text, sentence in (
        (
            GOOD + 'sampling = "iid"\n',
            r"key algorithm\.sampling: sampling must be one of 'passes', 'uniform', got 'iid'",
        ),
        (GOOD + "rounds = 0\n", r"key algorithm\.rounds: rounds must be >= 1, got 0"),
        (GOOD + 'decay = "step"\n', r"key algorithm\.decay: decay='step' needs a schedule that falls"),
        (GOOD + 'step = "theorem"\n', r"key algorithm\.step: step='theorem' is a constant step"),
        (theorem.replace('"logistic"', '"poisson"'), "key algorithm: step='theorem' needs a loss whose curvature"),
    ):
        with pytest.raises(OptionError, match=sentence):
            job(text)


def test_what_is_disclosed():
    """Of two parties and of three, with one label holder and with two, whatever the algorithm."""
    two = replace(job(GOOD), aligned=True)
    three = replace(two, addresses={"bank": "-", "clinic": "-", "shop": "-"})
    start, end = (SIZES, LABELLED), (COLUMNS, ASKED, OBJECTIVE)
    for algorithm in (cn.FedSGD(), cn.FedBCD(), cn.FedBCD(signal="curvature"), cn.VFB2("svrg"), cn.BlockNewton()):
        told = replace(two, algorithm=algorithm).disclosed()
        assert told == (*start, SIGNALS, SCORES, CONTRIBUTION, DIRECTIONS, PRODUCTS, *end), algorithm
        told = replace(three, algorithm=algorithm).disclosed()
        assert told == (*start, SIGNALS, SCORES, CONTRIBUTIONS, ALL_DIRECTIONS, PRODUCTS, *end), algorithm
    assert replace(two, aligned=False).disclosed()[:3] == (COMMON, *start)
    both = replace(two, holders=("bank", "shop"))
    assert both.disclosed()[:4] == (*start, CLASSES, SIGNALS)
    assert replace(both, algorithm=cn.AFSGD()).disclosed() == (
        *start, CLASSES, TOTALS, CONTRIBUTION, DIRECTIONS, PRODUCTS, *end,
    )  # fmt: skip
    # columns without labels stay at zero, and only what their scale is told for a step is seen of them
    assert replace(two, algorithm=cn.AFSGD()).disclosed() == (*start, *end)
    assert replace(two, algorithm=cn.AFSGD(step=0.1)).disclosed() == (*start, *end)
    # the sum of several predictions is not linear in anybody's columns
    assert replace(three, algorithm=cn.FDML()).disclosed() == (*start, SIGNALS, SCORES, CONTRIBUTIONS, *end)
    assert SINGLE in replace(three, sum="plain").disclosed()
    assert SINGLE not in replace(two, sum="plain").disclosed()
    poisson = replace(two, loss="poisson", algorithm=cn.FedSGD(), sum="encrypted")
    assert MEAN in poisson.disclosed()
    assert MEAN not in replace(poisson, sum="pairwise").disclosed()  # signals show every single label


@pytest.mark.parametrize("algorithm", [cn.FedBCD(order="sequential"), cn.BlockNewton(order="sequential")])
def test_sequential_order_is_listed_where_it_shows_more(algorithm):
    """Between two the sum is the partner's part anyway; from three on it is what masks were to hide."""
    two = replace(job(GOOD), algorithm=algorithm)
    assert two.disclosed() == job(GOOD).disclosed()
    three = replace(two, addresses={"bank": "-", "clinic": "-", "shop": "-"})
    assert CHANGES in three.disclosed()


def test_a_list_of_version_0_1_is_told_all_that_it_lacks():
    old = [name for name in job(GOOD).disclosed() if name in FIRST_NAMES]
    assert old == [COMMON, LABELLED, SIGNALS, OBJECTIVE]
    lacking = [SIZES, SCORES, CONTRIBUTION, DIRECTIONS, PRODUCTS, COLUMNS, ASKED]
    with pytest.raises(OptionError) as caught:
        job(LIST.sub(lambda _: f"disclosed = {json.dumps(old)}", GOOD))
    named = ", ".join(f'"{name}"' for name in lacking)
    assert str(caught.value).endswith(
        f"FedBCD on this job discloses {named}, which the list lacks (lists of version 0.1 were not complete); add "
        f"them, or change the job"
    )
    assert job(LIST.sub(lambda _: f"disclosed = {json.dumps([*old, *lacking])}", GOOD)) == replace(
        job(GOOD), agreed={**job(GOOD).agreed, "disclosed": [*old, *lacking]}
    )


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("version = 1", "version = 2", r"job.toml, line 1, key version: must be one of 1, got 2"),
        ('name = "first"', 'name = "First job"', r"line 2, key name: must be lower-case letters"),
        ("[parties.shop]", "[parties.Shop]", r"line 5, key parties.Shop: the name of a party must be lower-case"),
        ("[parties.shop]\n", "", r"key parties: a job has two parties or more, got 1"),
        ("labels = true", "labels = false", r"key parties: no party holds labels; set labels = true"),
        (
            "[parties.shop]",
            '[parties.shop]\naddress = "127.0.0.1:7443"',
            r"parties.shop.address: 'bank' has the same one",
        ),
        (
            '"127.0.0.1:7443"',
            '"127.0.0.1"',
            r"key parties.bank.address: must be host:port, such as bank.example.org:7443",
        ),
        ('"127.0.0.1:7443"', '"127.0.0.1:99999"', r"key parties.bank.address: must be host:port"),
        ('kind = "logistic"', 'kind = "logistic"\ngamma = 1.0', r"key model.gamma: has no meaning for kind 'logistic'"),
        (
            'kind = "logistic"\nl2 = 0.01',
            'kind = "kernel"',
            r"algorithm.kind: a model of kind 'kernel' is trained by FDSKL",
        ),
        ('address = "127.0.0.1:7443"\n', "", r"key parties.shop: 'bank' has no address either, so neither can dial"),
        (
            '"logistic"',
            '"logistik"',
            r"line 11, key model.kind: must be one of 'logistic', .*did you mean 'logistic'\?",
        ),
        ("l2 = 0.01", "l2 = -1", r"line 12, key model.l2: must be >= 0, got -1"),
        (
            "local_steps = 3",
            "local_step = 3",
            r"line 16, key algorithm.local_step: FedBCD has no such option; it has batch",
        ),
        ("local_steps = 3", "local_steps = 0", r"line 16, key algorithm.local_steps: local_steps must be >= 1, got 0"),
        (
            "local_steps = 3",
            'local_steps = "3"',
            r"line 16, key algorithm.local_steps: local_steps must be a whole number",
        ),
        (
            'kind = "FedBCD"',
            'kind = "FedAvg"',
            r"line 15, key algorithm.kind: must be one of 'auto', 'FedSGD', .* got 'FedAvg'",
        ),
        (
            ', "objective and metric"]',
            "]",
            r'line 3, key disclosed: FedBCD on this job discloses "objective and metric", which the list lacks; add it',
        ),
        (
            '"objective and metric"]',
            '"objective and metric", "weather"]',
            r"key disclosed\[11\]: this job does not disclose",
        ),
        ("[model]", "[modell]", r"line 10, key modell: unknown key.*did you mean 'model'\?"),
    ],
)
def test_wrong_jobs(old, new, sentence):
    assert old in GOOD
    with pytest.raises(OptionError, match=sentence):
        job(GOOD.replace(old, new))


ENCRYPTED = GOOD.replace('"signals, which show the labels", ', "")
ENCRYPTED = ENCRYPTED.replace('"scores, which follow from the signals", ', "")


def test_encrypted_signals():
    assert job(ENCRYPTED + '\n[sum]\nkind = "encrypted"\n').sum == "encrypted"
    bare = ENCRYPTED[: ENCRYPTED.index("[algorithm]")]
    assert job(bare + '\n[sum]\nkind = "encrypted"\n').algorithm == cn.FedSGD()
    # what is disclosed is another thing than without it
    with pytest.raises(OptionError, match="this job does not disclose 'signals, which show the labels'"):
        job(GOOD + '\n[sum]\nkind = "encrypted"\n')


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            '"encrypted"',
            '"encrypted"\nkey_bits = 2048',
            r"line .*, key sum.key_bits: keys have one length .*; remove it",
        ),
        (
            '"encrypted"',
            '"paillier"',
            r"line .*, key sum.kind: 'paillier' is called 'encrypted' now.*; write 'encrypted'",
        ),
        ('"FedBCD"\nlocal_steps = 3', '"VFB2"', r"key algorithm: sum='encrypted' encrypts the signals, and VFB2 needs"),
        ("l2 = 0.01", 'penalty = "nonconvex"', r"key model.penalty: .* one label holder .* needs penalty 'l2'"),
    ],
)
def test_wrong_encrypted_jobs(old, new, sentence):
    text = ENCRYPTED + '\n[sum]\nkind = "encrypted"\n'
    assert old in text
    with pytest.raises(OptionError, match=sentence):
        job(text.replace(old, new))


def test_fdml_has_one_label_holder():
    text = GOOD.replace("[parties.shop]", "[parties.shop]\nlabels = true").replace(
        '"FedBCD"\nlocal_steps = 3', '"FDML"'
    )
    with pytest.raises(OptionError, match="FDML has one label holder, the job has 2"):
        job(text)
