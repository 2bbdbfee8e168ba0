"""`colonnade audit`: a recorded run or a rehearsal is attacked, kept, shown; too much ends with 4 and holds back."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace

import numpy as np
import pytest

import colonnade as cn
from colonnade.attacks.oracles import AlignmentOracle, ScoringOracle
from colonnade.attacks.signal_signs import SignalSigns
from colonnade.audit.kept_audit import FILE, REHEARSED, read_audit
from colonnade.audit.registry import ATTACKS
from colonnade.cli.main import main
from colonnade.errors import DataError, OptionError, PolicyRefused
from colonnade.inspection import auditing
from colonnade.inspection.auditing import audit_version, settled, version_to_audit
from colonnade.inspection.recorded import Recorder, recorded_run
from colonnade.jobs.allowed import check_audited
from colonnade.jobs.budget import Budget
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.planning.rehearsal import audit_rehearsal
from colonnade.planning.stand_ins import stand_ins
from colonnade.report.contents import AuditLines, MeasuredAttack
from colonnade.report.gather import gather
from colonnade.report.page import page_of
from colonnade.runtimes.net import CLEAR, OWN, TOLD, TOTAL
from colonnade.service.in_use import loaded
from colonnade.service.start import Start
from colonnade.service.table_source import TableSource
from colonnade.tables import data
from colonnade.versions.shelf import Shelf
from colonnade.versions.version import Version
from colonnade.views.mirror import mirrored
from colonnade.views.recording_file import RECORDING
from report_contents import SCRIPT, Strict, contents_of
from report_jobs import LABELS, run, trained, write_tables
from test_federation import federation, run_all
from test_job import complete

pytestmark = pytest.mark.filterwarnings("ignore::colonnade.errors.ColonnadeWarning")
RECORD = {
    "[certificates] ": "[audit]\nrecord = true\n\n[certificates] ",
    "[policy] ": "[policy]\nrecord = 'allowed' # ",
}


@pytest.fixture(autouse=True)
def _one_attack(monkeypatch):
    """Signs of signals alone: which others there are is the business of their own tests."""
    monkeypatch.setattr(auditing, "ATTACKS", (SignalSigns(),))


def ask(folder, name, rules=None, **changes):
    """Change a party's file: `rules` are lines of its [policy]."""
    path = folder / f"{name}.toml"
    text = path.read_text()
    for old, new in (RECORD if rules is None else {"[policy] ": f"[policy]\n{rules}\n# "}).items():
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text.replace("max_directions = 0.5", "max_directions = 1000"))


def parties_of(folder):
    job = read_job(folder / "job.toml")
    return job, {name: read_party(folder / f"{name}.toml", job) for name in job.parties}


def let_out(parties, share=1000.0):
    return {name: replace(party, policy=replace(party.policy, max_directions=share)) for name, party in parties.items()}


def of_first_order(text):
    start, end = text.index("[algorithm]"), text.index("[sum]")
    return text[:start] + '[algorithm]\nkind = "FedSGD"\nepochs = 30\ntol = 1e-12\n\n' + text[end:]


def short(text):
    return complete(text.replace("epochs = 100 ", "epochs = 6 "))


@pytest.fixture(scope="module")
def loans(tmp_path_factory):
    """A job in the open, run once, recorded by both parties."""
    folder, _, _ = trained(tmp_path_factory.mktemp("loans"), protection="masked", more=of_first_order)
    for name in ("bank", "shop"):
        ask(folder, name)
    job, parties = parties_of(folder)
    said = []
    run(job, let_out(parties), said.append)
    return folder, job, parties, said


def audit(folder, name, *more):
    return main(["audit", str(folder / "job.toml"), "--as", name, *more])


def test_a_run_in_the_open_shows_the_labels_and_the_audit_fails(loans, capsys, tmp_path):
    folder, job, parties, said = loans
    assert any("what it saw of the run is in " in line and "`colonnade audit` reads it" in line for line in said)
    assert audit(folder, "bank", "--json", str(tmp_path / "found.json")) == 4
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "signs of signals by all others together, on labels: AUC 1.000" in out
    assert 'open: protection="sealed"' in out
    assert "from the recorded training" in out
    assert "where the floor is chance alone, the advantage is an upper bound" in out
    assert "numbers about each person left in this run, the policy lets out " in out
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["passed"], found["worst"], found["of"]) == (False, 1.0, "recording")
    version = Shelf(parties["bank"].folder, "bank").promoted().folder
    assert stat.S_IMODE((version / FILE).stat().st_mode) == 0o600
    kept = read_audit(version)
    assert kept.as_json() == (tmp_path / "found.json").read_text()
    assert kept.findings[0].floor_from == "own columns and model"  # which the label holder has seen, in the last sum
    # And the party's own page shows it.
    page = Strict(page_of(gather(job, parties["bank"])))
    assert "What others could find out, measured" in page.text
    assert "signs of signals (Li et al. 2021), on labels" in page.text
    assert 'protection="sealed"' in page.text
    assert "script" not in page.tags
    assert audit(folder, "shop") == 0  # whose labels nobody can find, as it has none


def test_the_floor_is_the_others_part_of_the_model(loans):
    _, job, parties, _ = loans
    version = Shelf(parties["bank"].folder, "bank").promoted()
    view = recorded_run(parties["bank"], version).view
    score = auditing._score_of_others(view)
    last = [one for one in view.of(TOTAL, "evaluation") if one.rows is not None][-1]
    assert (score[last.rows] == last.value).all()
    assert np.unique(score).size > 100
    found = audit_version(job, parties["bank"], version)
    assert found.findings[0].attacker == "all others together"
    assert found.terms == audit_version(job, parties["bank"], version).terms


def test_an_audit_repeats(loans):
    _, job, parties, _ = loans
    version = version_to_audit(parties["bank"], None)
    one, other = (replace(audit_version(job, parties["bank"], version), date="") for _ in range(2))
    assert one == other


def test_guessed_ids_are_looked_at_where_somebody_asks_for_it(loans, monkeypatch):
    _, job, parties, _ = loans
    monkeypatch.setattr(auditing, "ATTACKS", (SignalSigns(), ScoringOracle(), AlignmentOracle()))
    shop, version = let_out(parties)["shop"], version_to_audit(parties["shop"], None)

    def found(party, **more):
        kept = audit_version(job, party, version, services=True, **more)
        return {one.attack: one.advantage for one in kept.findings}

    assert audit_version(job, shop, version).findings == ()
    usual = found(shop)
    assert usual["guessed ids in alignment"] == 1.0  # up to ten times its own ids may be guessed
    assert usual["guessed ids in scoring"] == 0.0  # it answers about people of the training alone
    rules = replace(shop.policy, max_partner_ids=2, serve_people="all")
    others = found(replace(shop, policy=rules))
    assert others["guessed ids in scoring"] == 1.0
    assert others.get("guessed ids in alignment", 0.0) < 0.5
    rehearsed = audit_rehearsal(job, shop, {}, services=True)
    assert {one.attack for one in rehearsed.findings} == {"guessed ids in alignment", "guessed ids in scoring"}


def test_a_folder_is_no_file_for_findings(loans, capsys, tmp_path):
    assert audit(loans[0], "bank", "--json", str(tmp_path)) == 1
    assert "is a folder; give the name of a file in it" in capsys.readouterr().err


def test_a_recording_has_the_columns_that_it_has(loans, capsys):
    assert audit(loans[0], "shop", "--columns", "bank=7") == 1
    said = capsys.readouterr().err
    assert "--columns is about a rehearsal, and version" in said
    assert "was recorded; add --rehearse, or leave out --columns" in said


@pytest.mark.parametrize("place", [40, -5])
def test_a_damaged_recording_is_one_sentence(loans, capsys, place):
    folder, _, parties, _ = loans
    path = Shelf(parties["shop"].folder, "shop").promoted().folder / RECORDING
    content = path.read_bytes()
    changed = bytearray(content)
    changed[place] ^= 1
    path.write_bytes(changed)
    try:
        assert audit(folder, "shop") == 1
    finally:
        path.write_bytes(content)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "nothing in it is believed" in said


def test_other_people_than_those_of_the_run_are_refused(loans):
    folder, job, parties, _ = loans
    path = folder / "shop.csv"
    text = path.read_text()
    head, first, *rest = text.splitlines()
    path.write_text("\n".join([head, *rest, first]) + "\n")
    try:
        with pytest.raises(DataError, match="holds other people, or in another order, than when the run was recorded"):
            audit_version(job, parties["shop"], version_to_audit(parties["shop"], None))
    finally:
        path.write_text(text)


def test_a_sealed_run_leaves_nothing_to_go_by(tmp_path, capsys):
    folder = federated(tmp_path, protection="sealed", more=complete)
    ask(folder, "bank")
    job, parties = parties_of(folder)
    run(job, parties)
    assert audit(folder, "bank") == 0
    out = capsys.readouterr().out
    assert "no attack had anything to go by" in out
    assert "nothing to go by: signs of signals" in out
    assert not (parties["shop"].folder / "recordings.key").exists()  # who did not ask for it has nothing written down
    assert audit(folder, "bank", "--rehearse") == 0


# -- rehearsals ----------------------------------------------------------------------------------------------------


def federated(tmp_path, kind="logistic", protection="masked", parties="bank,shop", more=short):
    folder = tmp_path / "loans"
    word = ["--protection", protection] if protection else []
    assert main(["init", str(folder), "--parties", parties, "--model", kind, *word]) == 0
    (folder / "job.toml").write_text(complete(more((folder / "job.toml").read_text())))
    write_tables(folder, kind if kind in LABELS else "logistic")
    return folder


def test_without_a_recording_the_job_is_rehearsed_and_says_so(tmp_path, capsys):
    folder = federated(tmp_path)
    assert audit(folder, "bank") == 4
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "from a rehearsal of loans" in out
    assert "signs of signals by shop, on labels: AUC 1.000" in out
    assert "this is a rehearsal: the partners' columns are made up, and a recorded run" in out
    assert (folder / "bank-files" / FILE).exists()
    assert not (folder / "bank-files" / "ledger.jsonl").exists()  # nothing was sent
    assert audit(folder, "shop", "--columns", "bank=7") == 0
    assert "the partners' columns and labels are made up" in re.sub(r"\s+", " ", capsys.readouterr().out)
    _, parties = parties_of(folder)
    assert read_audit(parties["bank"].folder).worst == 1.0


def test_where_two_have_labels_stand_ins_name_classes_as_this_party_does(tmp_path):
    folder = federated(tmp_path)
    for name, old, new in (
        ("job", "labels = false", "labels = true"), ("shop", "# no label column here", 'label = "label"'),
    ):  # fmt: skip
        path = folder / f"{name}.toml"
        assert old in path.read_text()
        path.write_text(
            complete(path.read_text().replace(old, new)) if name == "job" else path.read_text().replace(old, new)
        )
    table = folder / "bank.csv"
    header, *lines = table.read_text().splitlines()
    at = header.split(",").index("label")
    cells = [line.split(",") for line in lines]
    first = cells[0][at]
    named = [",".join([*one[:at], "good" if one[at] == first else "bad", *one[at + 1 :]]) for one in cells]
    table.write_text("\n".join([header, *named]) + "\n")
    job, parties = parties_of(folder)
    made = stand_ins(job, "bank", TableSource(data.load(parties["bank"].data), None), {}, np.random.default_rng(0))
    assert set(made["shop"].labels.tolist()) == {"bad", "good"}
    assert audit_rehearsal(job, let_out(parties)["bank"], {}).broken == ()


def test_a_rehearsal_has_scores_as_coarse_as_the_policy_tells_them(tmp_path, monkeypatch):
    monkeypatch.setattr(auditing, "ATTACKS", tuple(one for one in ATTACKS if one.name == "scores"))
    folder = federated(tmp_path, protection="sealed", more=complete)
    found = {}
    for noise in (0.0, 30.0):
        job, parties = parties_of(folder)
        party = replace(parties["shop"], policy=replace(parties["shop"].policy, noise_scores=noise))
        found[noise] = audit_rehearsal(job, party, {})
    assert found[0.0].worst > 0.1
    assert found[30.0].worst < 0.05
    assert found[0.0].terms != found[30.0].terms  # an audit under other rules says nothing of these


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ("shop", "--columns takes PARTY=COUNT, such as shop=12, got 'shop'"),
        ("clinic=3", "--columns names 'clinic', and the others of this job are 'shop'; correct it"),
        ("shop=0", "--columns says that 'shop' has 0 columns; give 1 to 10,000"),
        ("shop=99999999999", "--columns says that 'shop' has 99,999,999,999 columns; give 1 to 10,000"),
    ],
)
def test_columns_of_nobody_are_refused(tmp_path, capsys, columns, sentence):
    folder = federated(tmp_path)
    assert audit(folder, "bank", "--columns", columns) == 1
    assert sentence in capsys.readouterr().err


def small(text):
    text = re.sub("#? ?features = 4096", "features = 32", text.replace("# trees = 100 ", "trees = 4 "))
    return text.replace("epochs = 100 ", "epochs = 2 ")


@pytest.mark.parametrize("me", ["bank", "shop"])
@pytest.mark.parametrize("kind", ["softmax", "ridge", "poisson", "kernel", "trees"])
def test_every_kind_of_model_is_rehearsed(tmp_path, kind, me):
    folder = federated(tmp_path, kind, None if kind in ("trees", "kernel") else "masked", more=small)
    job, parties = parties_of(folder)
    found = audit_rehearsal(job, let_out(parties)[me], {})
    assert found.of == "rehearsal"
    assert not found.overdrawn
    tried = {one.attack for one in found.findings} | {name for _, name in found.untried}
    assert tried == ({"signs of signals"} if me == "bank" else set())
    if kind == "softmax" and me == "bank":
        assert found.worst > 0.9


def test_networks_can_not_be_made_up(tmp_path):
    folder = federated(tmp_path, "network", "masked")
    job, parties = parties_of(folder)
    with pytest.raises(OptionError, match="can't make up their networks; record a run instead: record = true"):
        audit_rehearsal(job, parties["bank"], {})


def test_of_three_parties_all_others_together_are_one_attacker_more(tmp_path):
    folder = federated(tmp_path, parties="bank,clinic,shop")
    job, parties = parties_of(folder)
    found = audit_rehearsal(job, let_out(parties)["bank"], {"clinic": 3})
    assert {one.attacker for one in found.findings} == {"clinic", "shop", "all others together"}


# -- a wrong budget ------------------------------------------------------------------------------------------------


def charges_nothing(patch):
    patch.setattr(Budget, "charge", lambda self, numbers: None)


def forgets_its_share(patch):
    patch.setattr("colonnade.jobs.budget.allowance", lambda share, columns: 1000 * columns)


def has_all_left(patch):
    patch.setattr(Budget, "left", property(lambda self: 1e6))
    patch.setattr(Budget, "charge", lambda self, numbers: None)


@pytest.mark.parametrize("wrong", [None, charges_nothing, forgets_its_share, has_all_left])
def test_a_budget_that_lets_too_much_out_makes_the_audit_fail(tmp_path, monkeypatch, capsys, wrong):
    folder = federated(tmp_path, more=of_first_order)
    path = folder / "shop.toml"
    path.write_text(path.read_text().replace("max_directions = 0.5", "max_directions = 3"))  # 6 numbers of 2 columns
    if wrong is not None:
        wrong(monkeypatch)
    code = audit(folder, "shop")
    kept = read_audit(folder / "shop-files")
    assert (code, kept.passed) == ((0, True) if wrong is None else (4, False))
    assert kept.allowed == 6.0
    if wrong is None:
        assert 1.0 < kept.told <= kept.charged <= 6.0
    else:
        assert kept.told > (kept.charged if wrong is charges_nothing else 15.0)
        assert "TOO MANY: " in capsys.readouterr().out
        assert kept.trouble.startswith("its budget was not kept: ")


# -- what a policy makes of it -------------------------------------------------------------------------------------


def test_a_limit_asks_for_an_audit_first_and_goes_by_it(tmp_path):
    folder = federated(tmp_path)
    ask(folder, "bank", "max_advantage = 0.05")
    job, parties = parties_of(folder)
    bank = parties["bank"]
    with pytest.raises(PolicyRefused) as caught:
        check_audited(job, bank)
    assert "there is no audit of this job under its present rules; make one, which sends nothing: colonnade audit" in (
        str(caught.value)
    )
    check_audited(job, parties["shop"])  # which limits nothing
    assert audit(folder, "bank") == 4
    with pytest.raises(
        PolicyRefused, match=r"found more \('signs of signals' by shop had an advantage of 1.000, close"
    ):
        check_audited(job, bank)
    check_audited(job, replace(bank, policy=replace(bank.policy, max_advantage=1.0)))
    # An audit speaks for the job and the rules that it was made of, and for no others.
    for other in (
        (replace(job, agreed={**job.agreed, "name": "another"}), bank),
        (job, replace(bank, policy=replace(bank.policy, max_directions=1.0))),
    ):
        with pytest.raises(PolicyRefused, match="there is no audit of this job"):
            check_audited(*other)
    started = replace(job, agreed={**job.agreed, "start": "0123"})
    with pytest.raises(PolicyRefused, match="found more"):
        check_audited(started, bank)


def test_a_version_whose_audit_finds_too_much_is_held_back(tmp_path, capsys):
    folder, _, _ = trained(tmp_path, protection="masked", more=short)
    before = Shelf(folder / "bank-files", "bank").promoted()
    ask(folder, "bank")
    ask(folder, "shop")
    job, parties = parties_of(folder)
    limited = {
        name: replace(party, policy=replace(party.policy, max_advantage=0.05))
        for name, party in let_out(parties).items()
    }
    said = []
    run(job, limited, said.append)
    shelf = Shelf(folder / "bank-files", "bank")
    version = shelf.find("newest")
    assert version.training != before.training
    assert shelf.promoted().training == before.training  # the bank goes on with what it had
    assert "found an advantage of 1.000 ('signs of signals' by all others together)" in version.held
    assert any(line.startswith(f"version {version.name} is kept, and held back: its audit found") for line in said)
    assert Shelf(folder / "shop-files", "shop").promoted().training == version.training  # nothing was found about it
    # Nobody uses it by another way.
    ways = (
        lambda: shelf.promote(version.name),
        lambda: loaded(limited["bank"], version.name),
        lambda: Start.of(job, limited["bank"], version.name),
    )
    for refuse in ways:
        with pytest.raises(
            PolicyRefused, match=r"is held back, as its audit found .*; train another, or choose an earl"
        ):
            refuse()
    assert main(["model", "list", str(folder / "job.toml"), "--as", "bank"]) == 0
    assert "held back" in capsys.readouterr().out
    # Whoever allows more afterwards, and audits again, lets go of it.
    assert audit(folder, "bank", "--version", version.name) == 4
    assert shelf.promote(version.name).held == ""


def test_a_first_version_that_is_held_back_is_not_in_use_either(tmp_path, monkeypatch, capsys):
    folder = federated(tmp_path)
    for name in ("bank", "shop"):
        ask(folder, name)
    job, parties = parties_of(folder)
    bank = let_out(parties)["bank"]
    limited = {**let_out(parties), "bank": replace(bank, policy=replace(bank.policy, max_advantage=0.5))}

    def broken(*_, **__):
        raise DataError("the attack fell asleep")

    with monkeypatch.context() as patch:
        patch.setattr(auditing, "audited", broken)
        run(job, limited)
    shelf = Shelf(bank.folder, "bank")
    (version,) = shelf.versions()
    assert version.held == "its audit could not carry out 'signs of signals' (the attack fell asleep)"
    with pytest.raises(PolicyRefused, match=f"version {version.name} of 'bank' is held back, as its audit could not"):
        shelf.promoted()
    assert main(["model", "list", str(folder / "job.toml"), "--as", "bank"]) == 0
    assert "held back" in capsys.readouterr().out
    assert version_to_audit(bank, None).training == version.training
    found = audit_version(job, limited["bank"], version)
    assert found.threshold == 0.5
    assert settled(limited["bank"], version, found).held == found.trouble != ""
    allowing = replace(bank, policy=replace(bank.policy, max_advantage=1.0))
    again = settled(allowing, version, audit_version(job, allowing, version))
    assert (again.held, shelf.promoted().training) == ("", version.training)


def limited_to(party, most):
    return replace(party, policy=replace(party.policy, max_advantage=most))


def test_a_recording_says_nothing_about_another_job(tmp_path, capsys):
    """A sealed run shows nothing, and what it shows must not speak for the same job in the open."""
    folder, _, _ = trained(tmp_path, protection="sealed")
    for name in ("bank", "shop"):
        ask(folder, name)
    job, parties = parties_of(folder)
    run(job, parties)
    assert audit(folder, "bank") == 0
    version = version_to_audit(parties["bank"], None)
    check_audited(job, limited_to(parties["bank"], 0.05))
    path = folder / "job.toml"
    opened = complete(path.read_text().replace('protection = "sealed"', 'protection = "masked"'))
    path.write_text(opened)
    other, parties = parties_of(folder)
    assert other.protection == "masked"
    capsys.readouterr()
    assert audit(folder, "bank") == 4
    assert "from a rehearsal of loans" in re.sub(r"\s+", " ", capsys.readouterr().out)
    with pytest.raises(PolicyRefused, match="found more"):
        check_audited(other, limited_to(parties["bank"], 0.05))
    with pytest.raises(OptionError, match=f"version {version.name} is of another job than 'loans' as it is now, and"):
        audit_version(other, parties["bank"], version, named=True)


def test_a_recording_speaks_for_the_rules_of_its_time(loans):
    _, job, parties = loans[:3]
    bank = parties["bank"]
    later = replace(bank, policy=replace(bank.policy, max_directions=7.0))
    version = version_to_audit(bank, None)
    assert audit_version(job, later, version) is None
    assert audit_version(job, later, version, named=True).terms == audit_version(job, bank, version).terms


def test_a_rehearsal_does_not_undo_what_was_found_in_a_run(loans, tmp_path):
    _, job, parties = loans[:3]
    bank = limited_to(replace(parties["bank"], folder=tmp_path), 0.05)
    recorded = audit_version(job, parties["bank"], version_to_audit(parties["bank"], None))
    rehearsed = replace(recorded, of=REHEARSED, training="", findings=(), date="9999")
    version = Shelf(tmp_path, "bank").place("0" * 32)
    Version("0" * 32, version, {"date": recorded.date}).write()
    recorded.write(version)
    rehearsed.write(tmp_path)
    with pytest.raises(PolicyRefused, match=r"had an advantage of 1\.000"):
        check_audited(job, bank)
    check_audited(job, limited_to(bank, 1.0))
    # A run of which a part is missing says nothing, and then the later rehearsal decides.
    replace(recorded, findings=(), broken=(("all", "cut off"),)).write(version)
    check_audited(job, bank)
    replace(recorded, findings=(), broken=(("all", "cut off"),), date="99999").write(version)
    with pytest.raises(PolicyRefused, match="it could not carry out 'all' "):
        check_audited(job, bank)


@pytest.mark.parametrize("why", ["no room", "went on"])
def test_a_run_of_which_a_part_is_missing_is_held_back(tmp_path, monkeypatch, why):
    """What was told there is not in the recording, so that no attack finds anything."""
    folder = federated(tmp_path)
    for name in ("bank", "shop"):
        ask(folder, name)
    job, parties = parties_of(folder)
    limited = {**parties, "bank": limited_to(parties["bank"], 0.05)}
    with monkeypatch.context() as patch:
        if why == "no room":
            patch.setattr("colonnade.inspection.recorded.MEGABYTE", 2)
        else:
            keep = Recorder.keep

            def went_on(self, *args):
                self.observe(("resumed", 5))
                if self.view is not None:
                    self.view.seen.clear()
                keep(self, *args)

            patch.setattr(Recorder, "keep", went_on)
        run(job, limited)
    (version,) = Shelf(parties["bank"].folder, "bank").versions()
    said = "the recording ended early" if why == "no room" else "it begins at epoch 5, from which the run went on"
    assert f"its audit could not carry out 'attacks on all of the run' ({said}" in version.held
    found = audit_version(job, limited["bank"], version)
    assert (found.passed, found.worst) == (False, 0.0)


@pytest.mark.parametrize(
    "change",
    [lambda text: text[:40], lambda text: text.replace('"format": 1', '"format": 7'), lambda text: "[]",
     lambda text: text.replace('"score": ', '"score": "much", "was": '),
     lambda text: text.replace('"score": ', '"score": NaN, "was": '),
     lambda text: text.replace('"threshold"', '"limit"').replace('"told"', '"tell"').replace('"job"', '"of_job"')],
)  # fmt: skip
def test_an_audit_that_was_changed_is_one_sentence(loans, tmp_path, change):
    _, job, parties, _ = loans
    found = audit_version(job, parties["bank"], version_to_audit(parties["bank"], None))
    path = found.write(tmp_path)
    assert read_audit(tmp_path) == found
    path.write_text(change(path.read_text()))
    with pytest.raises(DataError, match=r"'audit.json' in .* can't be read, it was changed or cut off") as caught:
        read_audit(tmp_path)
    assert "\n" not in str(caught.value)


def test_no_attack_breaks_on_the_recording_of_newton_steps_in_the_open(tmp_path, monkeypatch):
    """Of both sides: who has no labels does not know what the label holder put into sums."""
    monkeypatch.setattr(auditing, "ATTACKS", ATTACKS)
    folder = federated(tmp_path, more=complete)
    for name in ("bank", "shop"):
        ask(folder, name)
    job, parties = parties_of(folder)
    run(job, parties)
    for party in parties.values():
        found = audit_version(job, party, version_to_audit(party, None))
        assert found.broken == ()
    assert "inner products of rows" in {one.attack for one in found.findings}


def test_organisations_record_and_audit_over_real_lines(tmp_path):
    folder = federation(tmp_path, ("bank", "shop"), 'kind = "FedSGD"\nepochs = 3')
    for name in ("bank", "shop"):
        ask(folder, name)
    said = run_all(folder, ("bank", "shop"))
    assert "bank: what it saw of the run is in " in said["bank"]
    for name, code in (("bank", 4), ("shop", 0)):
        assert audit(folder, name) == code
        version = Shelf(folder / f"{name}-files", name).promoted().folder
        assert stat.S_IMODE((version / RECORDING).stat().st_mode) == 0o600
    ledger = (folder / "shop-files" / "ledger.jsonl").read_text()
    assert "recording" not in ledger  # nothing of it was sent
    _, parties = parties_of(folder)
    views = {name: recorded_run(parties[name], version_to_audit(parties[name], None)).view for name in parties}
    told = [one.value for one in views["bank"].of("told", "signal")]
    heard = [one.value for one in views["shop"].of("message", "signal")]
    assert len(told) == len(heard) == 12  # four batches in each of three epochs
    assert all((a == b).all() for a, b in zip(told, heard, strict=True))
    assert isinstance(views["shop"].options, cn.FedSGD)


def test_the_mirrored_view_is_what_the_partner_saw(tmp_path):
    """Of two parties: totals, signals and the partner's own parts of sums, as the partner itself wrote them down."""
    folder = federated(tmp_path, more=of_first_order)
    for name in ("bank", "shop"):
        ask(folder, name)
    job, parties = parties_of(folder)
    run(job, parties)
    views = {name: recorded_run(parties[name], version_to_audit(parties[name], None)).view for name in parties}
    for me, other, kind, tag in (
        ("shop", "bank", TOTAL, "scores"), ("shop", "bank", TOTAL, "evaluation"), ("shop", "bank", TOLD, "signal"),
        ("bank", "shop", OWN, "scores"), ("bank", "shop", OWN, "evaluation"), ("bank", "shop", CLEAR, "signal"),
    ):  # fmt: skip
        seen, true = mirrored(views[me]).of(kind, tag), views[other].of(kind, tag)
        assert len(seen) == len(true) > 10
        for one, same in zip(seen, true, strict=True):
            np.testing.assert_allclose(one.value, same.value, atol=1e-9)
            assert (one.rows is None) == (same.rows is None)
            assert one.rows is None or (one.rows == same.rows).all()


def test_a_page_says_what_was_measured_whatever_names_hold():
    attack = MeasuredAttack(
        SCRIPT, "x", "shop", f"columns, best {SCRIPT}", "", "R²", 0.9, 0.1, "chance", 0.889, True, "a <b>switch</b>"
    )
    closed = replace(attack, attack="another", score=0.12, advantage=0.02, open=False)
    lines = AuditLines(
        "The recorded run", "2026-01-02T03:04", 0.05, [attack, closed], [SCRIPT], "5 left.", ["a <note>"]
    )
    page = Strict(page_of(contents_of(audit=lines)))
    for text in (
        "What others could find out, measured", "1 attack has an advantage above 0.05.", "0.889", "a <b>switch</b>",
        "2026-01-02 03:04 UTC", "5 left.", "a <note>", "Nothing to go by",
    ):  # fmt: skip
        assert text in page.text
    assert {"script", "note"}.isdisjoint(page.tags)
    assert "measured" in page.ids
    assert "measured" not in Strict(page_of(contents_of())).ids
    none = Strict(page_of(contents_of(audit=replace(lines, attacks=[])))).text
    assert "No attack had anything to go by." in none
