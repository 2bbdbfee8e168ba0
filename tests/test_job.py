"""`job.toml`: what is read from it, and every wrong thing in one sentence with file, line and key."""

from __future__ import annotations

import pytest

import colonnade as cn
from colonnade.errors import OptionError
from colonnade.federation import toml
from colonnade.federation.job import COMMON, DISTANCES, LABELLED, OBJECTIVE, SIGNALS, TOTALS, disclosures
from colonnade.federation.job_file import JOB, job_of

GOOD = """\
version = 1
name = "first"
disclosed = ["who is in common", "which rows are labelled", "signals, which show the labels", "objective and metric"]

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


def job(text):
    return job_of(toml.parse(text.encode(), JOB, "job.toml"))


def test_what_a_job_says():
    read = job(GOOD)
    assert read.parties == ("bank", "shop")
    assert read.addresses == {"bank": "127.0.0.1:7443", "shop": None}
    assert read.holders == ("bank",)
    assert read.algorithm == cn.FedBCD(local_steps=3, epochs=7)
    assert (read.loss, read.penalty, read.intercept) == ("logistic", ("l2", 0.01), True)
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
    return text.replace(repr(SIGNALS).replace("'", '"'), repr(DISTANCES).replace("'", '"'))


def test_a_job_of_kernels():
    read = job(kernel_job("features = 64\ngamma = 0.5"))
    assert (read.kernel, read.algorithm, read.loss) == (("rbf", 0.5, 64, 1e-5), cn.FDSKL(), "logistic")
    assert disclosures(cn.FDSKL(), 2, aligned=True) == (LABELLED, SIGNALS, DISTANCES, OBJECTIVE)


def test_the_algorithm_may_be_left_out():
    text = GOOD[: GOOD.index("[algorithm]")]
    assert job(text).algorithm == cn.BlockNewton()
    assert job(f'{text}[algorithm]\nkind = "auto"\nepochs = 7\n').algorithm == cn.BlockNewton(epochs=7)
    with pytest.raises(OptionError, match=r"key algorithm\.local_steps: BlockNewton has no such option"):
        job(f"{text}[algorithm]\nlocal_steps = 7\n")


def test_what_is_disclosed():
    assert disclosures(cn.VFB2(), 2, aligned=False) == (COMMON, LABELLED, SIGNALS, OBJECTIVE)
    assert disclosures(cn.AFSGD(), 2, aligned=True) == (LABELLED, TOTALS, OBJECTIVE)
    assert disclosures(cn.AFSGD(), 1, aligned=True) == (LABELLED, OBJECTIVE)


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
            r"line 3, key disclosed: FedBCD on this job discloses 'objective and metric'",
        ),
        (
            '"objective and metric"]',
            '"objective and metric", "weather"]',
            r"key disclosed\[4\]: this job does not disclose",
        ),
        ("[model]", "[modell]", r"line 10, key modell: unknown key.*did you mean 'model'\?"),
    ],
)
def test_wrong_jobs(old, new, sentence):
    assert old in GOOD
    with pytest.raises(OptionError, match=sentence):
        job(GOOD.replace(old, new))


ENCRYPTED = GOOD.replace("signals, which show the labels", "own gradients, which show the labels of small batches")


def test_encrypted_signals():
    read = job(ENCRYPTED + '\n[sum]\nkind = "paillier"\nkey_bits = 3072\n')
    assert (read.sum, read.key_bits) == ("paillier", 3072)
    assert job(ENCRYPTED + '\n[sum]\nkind = "paillier"\n').key_bits == 2048
    bare = ENCRYPTED[: ENCRYPTED.index("[algorithm]")]
    assert job(bare + '\n[sum]\nkind = "paillier"\n').algorithm == cn.FedSGD()
    # what is disclosed is another thing than without it
    with pytest.raises(OptionError, match="discloses 'own gradients, which show the labels of small batches'"):
        job(GOOD + '\n[sum]\nkind = "paillier"\n')


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("2048", "1024", r"key sum.key_bits: key_bits must be between 2048 and 4096 .*, got 1024"),
        ("2048", '"2048"', r"key sum.key_bits: must be a whole number"),
        ('"paillier"', '"pairwise"', r"key sum.key_bits: has no meaning for kind 'pairwise'; remove it"),
        ('"FedBCD"\nlocal_steps = 3', '"VFB2"', r"key algorithm: sum='paillier' encrypts the signals, and VFB2 needs"),
    ],
)
def test_wrong_encrypted_jobs(old, new, sentence):
    text = ENCRYPTED + '\n[sum]\nkind = "paillier"\nkey_bits = 2048\n'
    assert old in text
    with pytest.raises(OptionError, match=sentence):
        job(text.replace(old, new))


def test_fdml_has_one_label_holder():
    text = GOOD.replace("[parties.shop]", "[parties.shop]\nlabels = true").replace(
        '"FedBCD"\nlocal_steps = 3', '"FDML"'
    )
    with pytest.raises(OptionError, match="FDML has one label holder, the job has 2"):
        job(text)
