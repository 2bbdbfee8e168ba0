"""What algorithms say of themselves: what they train, refuse and warn of, and that they say it in words."""

from __future__ import annotations

from dataclasses import fields

import pytest

import colonnade as cn
from colonnade.algorithms import ALGORITHMS, FDSKL
from colonnade.engine.options import Training
from colonnade.errors import OptionError
from colonnade.leaks import Setting

EVERY = [*ALGORITHMS.values(), FDSKL]
TWO = Setting(("bank", "shop"), ("bank",))
THREE = Setting(("bank", "shop", "post"), ("bank", "post"))


@pytest.mark.parametrize("kind", EVERY)
def test_a_value_describes_it(kind):
    name, options = kind(seed=7).as_value()
    assert (name, kind(**dict(options))) == (kind.name, kind(seed=7))


@pytest.mark.parametrize("kind", EVERY)
def test_its_parameters_are_documented_one_by_one(kind):
    words = (kind.__doc__ or "") + (Training.__doc__ or "")
    assert not [one.name for one in fields(kind) if f"{one.name} :" not in words and f"{one.name}," not in words]


def test_only_gradients_of_whole_batches_can_be_encrypted():
    assert [kind.name for kind in EVERY if kind().encryptable] == ["FedSGD", "FedBCD"]
    assert cn.FedBCD(signal="frozen").encryptable
    assert not any(cn.FedBCD(signal=form).encryptable for form in ("exact", "curvature"))
    encrypted = Setting(TWO.parties, TWO.holders, sum="encrypted")
    cn.FedBCD().check(encrypted)
    with pytest.raises(OptionError, match="VFB2 needs them row by row"):
        cn.VFB2().check(encrypted)
    for form in ("exact", "curvature"):
        with pytest.raises(OptionError, match=f"signal='{form}' reads them"):
            cn.FedBCD(signal=form).check(encrypted)


def test_options_that_a_model_cannot_be_trained_with_are_refused():
    network = Setting(TWO.parties, TWO.holders, model="network")
    cn.FedBCD().check(network)
    split = Setting(TWO.parties, TWO.holders, model="split")
    for form in ("exact", "curvature"):
        cn.FedBCD(signal=form).check(TWO)
        cn.FedBCD(signal=form).check(network)
        with pytest.raises(
            OptionError, match=f"signal='{form}' needs scores that are the sum .* a split model's are not"
        ):
            cn.FedBCD(signal=form).check(split)
    for form in ("auto", "frozen"):
        cn.FedBCD(signal=form).check(split)


def test_warnings_come_from_the_algorithm_itself():
    assert not cn.VFB2().warnings(THREE)
    (frozen,) = cn.AFSGD().warnings(THREE)
    assert frozen.startswith("parties 'shop' hold no labels: AFSGD never updates their blocks")
    assert not cn.AFSGD().warnings(Setting(("bank", "shop"), ("bank", "shop")))


def test_labels_tell_variants_apart():
    assert cn.VFB2("svrg", asynchronous=False).label == "VFB2 svrg in step"
    assert cn.FedBCD(order="sequential").label == "FedBCD, 5 local steps in turn"
    assert [cn.AFSGD().label, cn.FDML().label, cn.BlockNewton().label] == ["AFSGD saga", "FDML", "BlockNewton"]
    assert cn.VFB2("saga").alike(cn.VFB2("saga", epochs=3))
    assert not cn.VFB2("saga").alike(cn.VFB2("sgd"))
    assert not cn.VFB2("sgd").alike(cn.AFSGD("sgd"))
    assert cn.FedBCD().alike(cn.FedBCD(local_steps=2))


def test_asynchrony_is_a_yes_or_a_no_and_threads_have_a_limit():
    with pytest.raises(OptionError, match="asynchronous must be True or False, got 'no'"):
        cn.VFB2(asynchronous="no")
    with pytest.raises(OptionError, match="threads must be at most 256, got 1000000"):
        cn.VFB2(threads=10**6)
