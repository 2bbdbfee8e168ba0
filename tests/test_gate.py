"""What a party's own file accepts, requires and lets be recorded: refused in one sentence, before anything is sent."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import colonnade as cn
from colonnade.cli.main import main
from colonnade.defences.gaussian_signals import GaussianSignals
from colonnade.errors import PolicyRefused, TomlError
from colonnade.jobs.allowed import check_allowed, check_breaks
from colonnade.jobs.consent import check_accepted, check_required, disclosed_of
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.jobs.policy import Policy
from colonnade.jobs.words import leaks_of, what_each_learns
from colonnade.leaks import ASKED, COMMON, CONTRIBUTION, LABELLED, OBJECTIVE, SIGNALS, SIZES
from colonnade.planning import command
from colonnade.planning.untried import sealed_costs
from colonnade.service import run
from test_federation import federation
from test_job import GOOD, complete, job
from test_protection_jobs import KERNEL, SEALED

THREE = {"bank": "-", "clinic": "-", "shop": "-"}


def refusal(check, policy, me, job_):
    with pytest.raises(PolicyRefused) as caught:
        check(policy, me, job_)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# -- noisy signals -------------------------------------------------------------------------------------------------


def test_noisy_signals_need_a_limit_that_a_break_does_not_undo():
    noisy = replace(job(GOOD), defences=(GaussianSignals(noise=2.0, epsilon=3.0),))
    said = refusal(check_breaks, Policy(), "bank", noisy)
    assert said.endswith("set max_epsilon = 3, or more, under [policy], which counts what has left")
    check_breaks(Policy(max_epsilon=3.0), "bank", noisy)
    check_breaks(Policy(), "shop", noisy)  # whose labels these are not
    check_breaks(Policy(), "bank", job(GOOD))


# -- accept --------------------------------------------------------------------------------------------------------


def test_without_a_list_consent_is_by_protection_as_ever():
    for job_ in (job(GOOD), job(SEALED)):
        check_accepted(Policy(), "bank", job_)


def test_with_a_list_every_disclosure_about_a_party_has_to_be_in_it():
    job_ = job(GOOD)
    mine = disclosed_of(job_, "bank")
    assert {SIGNALS, LABELLED, OBJECTIVE, COMMON} <= set(mine)
    assert CONTRIBUTION not in mine  # which is about the shop
    assert CONTRIBUTION in disclosed_of(job_, "shop")
    check_accepted(Policy(accept=mine), "bank", job_)
    check_accepted(Policy(accept=(*mine, CONTRIBUTION)), "bank", job_)
    for left_out in mine:
        kept = tuple(name for name in mine if name != left_out)
        said = refusal(check_accepted, Policy(accept=kept), "bank", job_)
        line = ", ".join(f'"{name}"' for name in (*kept, left_out))
        assert said == (
            f"the job discloses \"{left_out}\" of 'bank', which its file does not accept; if shop may know that, write "
            f"accept = [{line}] under [policy]"
        )
        check_accepted(Policy(accept=(*kept, left_out)), "bank", job_)  # the line that it names does


def test_several_are_named_with_all_who_could_know_them():
    said = refusal(check_accepted, Policy(accept=(COMMON, SIZES, ASKED)), "bank", replace(job(GOOD), addresses=THREE))
    assert f'the job discloses "{LABELLED}", "{SIGNALS}"' in said
    assert "; if clinic and shop may know that, write accept = [" in said
    assert refusal(check_accepted, Policy(accept=()), "shop", job(SEALED)).count('"') > 4


def test_a_list_narrows_what_a_protection_allows_and_never_widens_it(tmp_path):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    job_ = read_job(folder / "job.toml")
    mine = disclosed_of(job_, "bank")
    path = folder / "bank.toml"
    text = path.read_text()
    listed = ", ".join(f'"{name}"' for name in mine)
    assert f"# accept = [{listed}]" in text  # `init` has written the line
    path.write_text(text.replace("# accept = [", "accept = ["))
    check_allowed(job_, read_party(path, job_))
    path.write_text(re.sub(r'protection = \["sealed", "masked"\]', 'protection = ["sealed"]', path.read_text()))
    with pytest.raises(PolicyRefused, match="the job asks for protection 'masked'"):
        check_allowed(job_, read_party(path, job_))


def test_names_of_nothing_are_refused_with_a_guess(tmp_path):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    path, job_ = folder / "bank.toml", read_job(folder / "job.toml")
    path.write_text(re.sub("# accept = .*", 'accept = ["signals"]', path.read_text()))
    with pytest.raises(TomlError, match=r"key policy.accept\[0\]: must be one of .*, got 'signals'"):
        read_party(path, job_)


@pytest.mark.parametrize("verb", ["run", "plan", "check"])
def test_run_plan_and_check_refuse_before_anything_is_sent(tmp_path, verb, monkeypatch, capsys):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    path = folder / "bank.toml"
    path.write_text(re.sub("# accept = .*", "accept = []", path.read_text()))

    def attend(*_, **__):
        raise AssertionError("somebody was dialled")

    monkeypatch.setattr(run, "attend", attend)
    monkeypatch.setattr(command, "attend", attend)
    capsys.readouterr()
    assert main([verb, str(folder / "job.toml"), "--as", "bank"]) == 1
    said = capsys.readouterr()
    told = re.sub(r"[\s│]+", " ", said.out + said.err)
    assert "which its file does not accept; if shop may know that, write accept = [" in told
    assert not (folder / "bank-files" / "ledger.jsonl").exists()


# -- require -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("require", "text", "fits"),
    [
        ((), GOOD, True), (("sealed",), SEALED, True), (("sealed",), GOOD, False), (("masked",), GOOD, True),
        (("masked",), SEALED, True), (("plain",), GOOD, True), (("masked",), complete(KERNEL), True),
        (("masked",), complete(GOOD + '[sum]\nkind = "plain"\n'), False), (("sealed", "noise"), SEALED, False),
    ],
)  # fmt: skip
def test_a_job_has_what_is_required_or_something_better(require, text, fits):
    if fits:
        check_required(Policy(require=require), "bank", job(text))
        return
    said = refusal(check_required, Policy(require=require), "bank", job(text))
    assert f"the policy of 'bank' requires {require[-1]!r}, and the job has protection" in said
    fix = "add [defence.noise] to the job" if "noise" in require else f'set protection = "{require[0]}" in the job'
    assert f"{fix}, or take {require[-1]!r} out of require under [policy]" in said


def test_what_is_required_is_asked_before_what_is_agreed_to(tmp_path):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    path, job_ = folder / "bank.toml", read_job(folder / "job.toml")
    check_allowed(job_, read_party(path, job_))
    path.write_text(path.read_text().replace('# require = ["masked"]', 'require = ["sealed"]'))
    with pytest.raises(PolicyRefused, match="requires 'sealed', and the job has protection 'masked' and no defences"):
        check_allowed(job_, read_party(path, job_))
    path.write_text(path.read_text().replace('require = ["sealed"]', 'require = ["seeled"]'))
    with pytest.raises(TomlError, match=r"key policy.require\[0\]: must be one of .*; did you mean 'sealed'"):
        read_party(path, job_)


# -- record --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("audit", "policy", "megabytes"),
    [("", "", 0), ("record = true", 'record = "allowed"', 512), ("", 'record = "allowed"', 0),
     ("record = true\nrecord_mb = 7", 'record = "allowed"', 7), ("record = true", "", None),
     ("record = true", 'record = "never"', None)],
)  # fmt: skip
def test_a_recording_is_wished_for_and_allowed(tmp_path, audit, policy, megabytes):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    path, job_ = folder / "bank.toml", read_job(folder / "job.toml")
    text = path.read_text().replace("[policy] ", f"[audit]\n{audit}\n\n[policy] ")
    path.write_text(text.replace('# record = "allowed"', f"{policy} #"))
    if megabytes is None:
        with pytest.raises(
            TomlError, match=r"key audit.record: the policy says that nothing is recorded; add record ="
        ):
            read_party(path, job_)
    else:
        assert read_party(path, job_).record_mb == megabytes


# -- what is said --------------------------------------------------------------------------------------------------


def test_what_each_party_will_learn_is_what_the_job_declares():
    for job_ in (job(GOOD), job(SEALED), replace(job(GOOD), addresses=THREE), job(complete(KERNEL))):
        told = what_each_learns(job_)
        assert set(told) == set(job_.parties)
        for me in job_.parties:
            names = {leak.name for leak in leaks_of(job_) if me in leak.to and set(leak.of) - {me}} - {""}
            said = {name for line in told[me].splitlines() for name in line.partition(": ")[2].split("; ")}
            assert said <= names
            assert {SIGNALS, CONTRIBUTION} & names <= said
    told = what_each_learns(job(GOOD))
    assert SIGNALS in told["shop"]
    assert SIGNALS not in told["bank"]
    assert f"of shop: {COMMON}" in told["bank"]


def test_check_says_what_each_will_learn_and_what_sealed_training_would_cost(tmp_path, capsys):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 2')
    capsys.readouterr()
    assert main(["check", str(folder / "job.toml"), "--as", "bank"]) == 3
    said = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "shop will learn of bank: who is in common; " in said
    assert "bank will learn of shop: who is in common; " in said
    assert re.search(
        r'sealed the same job with protection = "sealed" would take about \d+ rounds and [\d.]+ MB from each party',
        said,
    )


def test_what_sealed_training_costs_is_told_where_there_is_any():
    assert sealed_costs(job(SEALED), 1000, 5) == ""
    found = sealed_costs(job(GOOD), 1000, 5)
    more = sealed_costs(job(GOOD), 100_000, 20)
    sizes = [float(re.search(r"([\d.]+) (MB|GB)", one)[1]) for one in (found, more)]
    assert "MB" in found
    assert sizes[0] > 1
    assert found != more
    assert sealed_costs(job(complete(KERNEL)), 1000, 5).startswith("this model has none: 'sealed' is for linear models")
    several = replace(job(GOOD), holders=("bank", "shop"))
    assert sealed_costs(several, 1000, 5).startswith("this job has none")


def test_a_plan_says_it_too(capsys):
    command.show_learnt(job(GOOD))
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"shop will learn of bank: {COMMON}" in out
    assert f"bank will learn of shop: {COMMON}" in out
    assert SIGNALS in out
    assert cn.FedBCD.name not in out
