"""Partners as witnesses: a ledger that was rolled back, rewritten or replaced is found, by runs and by receipts.

The parties are tasks of one loop, over real lines; their ledgers, certificates and doors are those of organisations.
"""

from __future__ import annotations

import asyncio
import base64
import shutil
from dataclasses import replace

import numpy as np
import pytest

from colonnade.errors import LedgerError, PartyFailed, ProtocolError
from colonnade.jobs.policy import Policy, PolicyDoor
from colonnade.ledger.ledger import Ledger, entries
from colonnade.ledger.lines import key_file, seal_file
from colonnade.ledger.receipts import Head, Receipt, Statement, read_receipts, write_receipts
from colonnade.ledger.verify import verify
from colonnade.ledger.witness import Witness
from colonnade.remote.authority import Authority
from colonnade.remote.signatures import signer, vouched
from federations import AUTHORITY, Federation, run, when

CREDENTIALS = {name: AUTHORITY.issue(name) for name in ("bank", "shop", "clinic")}
VOUCH = vouched(AUTHORITY.pem)
DONE = "a model"


def check_of(name):
    return VOUCH(name, CREDENTIALS[name].certificate)


class Books:
    """A folder for each party, and runs of all of them."""

    def __init__(self, folder, *names, job="loans"):
        self.names, self.folder, self.job = names, folder, job
        self.told = {name: [] for name in names}
        for name in names:
            (folder / name).mkdir(parents=True)

    def path(self, name):
        return self.folder / name / "ledger.jsonl"

    def open(self, name):
        about = {"name": self.job, "me": name, "parties": list(self.names)}
        return Ledger(self.path(name), signer(CREDENTIALS[name].key), check_of(name), run=about)

    def run(self, *, before=None, messages=3):
        """Each party's value or error. before: what a party does to its own witness before it takes part."""

        ledgers = {name: self.open(name) for name in self.names}

        async def program(net, name):
            net.door = PolicyDoor(name, Policy(), ledgers[name])
            keys = (signer(CREDENTIALS[name].key), check_of(name), CREDENTIALS[name])
            witness = Witness(ledgers[name], name, self.job, keys, self.told[name].append)
            if before is not None:
                before(name, witness, net)
            await witness.begin(net)
            for other in (one for one in net.names if one != name):
                for k in range(messages):
                    await net.send(other, "scores", np.full(64, float(k)))
            await witness.end(net)
            return DONE

        async def scenario():
            with Federation(*self.names) as federation:
                federation.credentials = CREDENTIALS
                return await federation.all({name: (program, name) for name in self.names})

        try:
            return run(scenario)
        finally:
            for ledger in ledgers.values():
                ledger.close()

    def verify(self, name, *receipts):
        found = {"vouch": VOUCH, "receipts": receipts, "me": name, "job": self.job}
        return verify(self.path(name), check_of(name), **found)

    def receipts(self, name):
        """What `colonnade ledger receipts` gives out."""
        path = self.folder / f"{name}-receipts.json"
        seen = verify(self.path(name), check_of(name)).seen
        write_receipts(path, name, CREDENTIALS[name].certificate, seen)
        return read_receipts(path)

    def keep(self, name, where):
        shutil.copytree(self.folder / name, self.folder / where)

    def put_back(self, name, where):
        shutil.rmtree(self.folder / name)
        shutil.copytree(self.folder / where, self.folder / name)


@pytest.fixture
def books(tmp_path):
    return Books(tmp_path, "bank", "shop")


def test_every_run_is_countersigned_by_every_partner(tmp_path):
    books = Books(tmp_path, "bank", "clinic", "shop")
    for _ in range(2):
        assert books.run() == dict.fromkeys(books.names, DONE)
    for name in books.names:
        others = [one for one in books.names if one != name]
        report = books.verify(name, *(receipt for other in others for receipt in books.receipts(other)))
        assert (report.runs, report.uncountersigned, report.doubts) == (2, [], [])
        assert sorted(report.countersigned) == others
        done = [line["n"] for line in entries(books.path(name)) if line.get("event") == "done"]
        assert set(report.countersigned.values()) == {done[-1]}
        assert {kind for _, kind in report.by_kind} >= {"ledger head", "ledger receipt", "scores"}
        assert books.told[name] == []
        of = {Statement.parse(text).head.owner for text, _ in report.seen}
        assert of == set(others)  # both sides keep it


@pytest.mark.parametrize("longer", [False, True])
def test_a_ledger_that_was_rolled_back_is_found(books, longer):
    """The files of an earlier run fit together, and are still refused: by the next run, and against receipts."""
    books.run()
    books.keep("bank", "old")
    books.run()
    receipts = books.receipts("shop")
    assert books.verify("bank", *receipts).runs == 2
    books.put_back("bank", "old")
    assert books.verify("bank").runs == 1  # by itself it is as it was written
    with pytest.raises(LedgerError, match=r"was rolled back or rewritten: 'shop' saw \d+ lines of it on"):
        books.verify("bank", *receipts)
    if longer:  # rolled back, and then filled up again, so that its length tells nobody anything
        again = books.open("bank")
        for k in range(100):
            again.note("shop", "scores", np.full(64, float(k)), 99)
        again.close()
        assert books.verify("bank").lines > receipts[-1].statement.head.lines
        with pytest.raises(LedgerError, match="was rolled back or rewritten"):
            books.verify("bank", *receipts)
    for _ in range(3):  # trying again does not help
        found = books.run()
        assert isinstance(found["bank"], LedgerError), found
        assert "was rolled back or rewritten: 'shop' saw" in str(found["bank"])
        if not longer:
            assert isinstance(found["shop"], (LedgerError, PartyFailed))
    assert books.verify("bank").by_kind["shop", "scores"] == 3 + 100 * longer  # and nothing has left meanwhile


@pytest.mark.parametrize("how", ["replaced", "rolled back"])
def test_the_partner_looks_too(books, how, monkeypatch):
    """A party whose own software finds nothing does not get past its partners."""
    books.run()
    books.keep("bank", "old")
    books.run()
    if how == "replaced":
        shutil.rmtree(books.folder / "bank")
        (books.folder / "bank").mkdir()
    else:
        books.put_back("bank", "old")

    def blind(name, witness, net):
        if name == "bank":
            monkeypatch.setattr(witness, "_compare", lambda *_: None)

    found = books.run(before=blind)
    assert isinstance(found["shop"], LedgerError)
    assert f"it was {how}; ask 'bank' why, and if its answer is good" in str(found["shop"])


def test_a_new_ledger_is_accepted_by_the_partner_that_saw_the_old_one(books):
    books.run()
    shutil.rmtree(books.folder / "bank")
    (books.folder / "bank").mkdir()
    with pytest.raises(LedgerError, match="can't be read"):
        books.verify("bank")
    found = books.run()
    assert "was replaced by another: 'shop' saw" in str(found["bank"])
    assert "colonnade ledger accept job.toml --as shop --peer bank" in str(found["bank"])
    accepting = books.open("shop")
    accepting.event("accepted", {"of": "bank"})
    accepting.close()
    assert books.run() == {"bank": DONE, "shop": DONE}
    books.verify("bank", *books.receipts("shop"))  # what was accepted is not held against it


def test_a_ledger_of_another_federation_is_another_ledger(books, tmp_path):
    """A shop with one ledger for all, a bank with one for each: nothing was replaced."""
    books.run()
    other = Books(tmp_path / "more", "bank", "shop", job="cards")
    shutil.rmtree(other.folder / "shop")
    shutil.copytree(books.folder / "shop", other.folder / "shop")
    assert other.run() == {"bank": DONE, "shop": DONE}
    shutil.rmtree(books.folder / "shop")
    shutil.copytree(other.folder / "shop", books.folder / "shop")
    assert books.run() == {"bank": DONE, "shop": DONE}
    for each in (books, other):
        each.verify("bank", *books.receipts("shop"))


# -- what a partner does wrong -----------------------------------------------------------------------------------------

OTHER = Authority().issue("shop")  # another authority's


def wrong_head(name, witness, net, monkeypatch):
    right = witness._statement

    def wrong(peer, shown):
        head = replace(shown.head, lines=shown.head.lines + 1)
        return right(peer, replace(shown, head=head))

    monkeypatch.setattr(witness, "_statement", wrong)


def wrong_key(name, witness, net, monkeypatch):
    right = witness._statement

    def wrong(peer, shown):
        statement, _ = right(peer, shown)
        return statement, signer(OTHER.key)(statement.to_sign)

    monkeypatch.setattr(witness, "_statement", wrong)


def wrong_certificate(name, witness, net, monkeypatch):
    witness._credentials = replace(CREDENTIALS["shop"], certificate=OTHER.certificate)


def another_party(name, witness, net, monkeypatch):
    witness._credentials = CREDENTIALS["clinic"]


def unsigned_head(name, witness, net, monkeypatch):
    monkeypatch.setattr(witness, "_sign", lambda data: b"signature")


WRONG = [
    (wrong_head, r"countersigned another head than line \d+ of 'bank'"),
    (wrong_key, r"countersigned line \d+ of 'bank' with another's key"),
    (wrong_certificate, "is not signed by this party's authority"),
    (another_party, "is made out to"),
    (unsigned_head, "showed a head of a ledger that its key did not sign"),
]


@pytest.mark.parametrize(("wrong", "sentence"), WRONG)
def test_at_the_start_a_wrong_word_ends_the_run(books, wrong, sentence, monkeypatch):
    def at_the_shop(name, witness, net):
        if name == "shop":
            wrong(name, witness, net, monkeypatch)

    found = books.run(before=at_the_shop)
    assert isinstance(found["bank"], ProtocolError)
    with pytest.raises(ProtocolError, match=f"party 'shop' .*{sentence}"):
        raise found["bank"]
    assert "scores" not in {kind for _, kind in books.verify("bank").by_kind}  # nothing has left yet


@pytest.mark.parametrize(("wrong", "sentence"), WRONG)
def test_at_the_end_it_is_noted_and_the_model_stays(books, wrong, sentence, monkeypatch):
    def at_the_end(name, witness, net):
        right = witness.end

        async def end(net):
            wrong(name, witness, net, monkeypatch)
            await right(net)

        if name == "shop":
            monkeypatch.setattr(witness, "end", end)

    found = books.run(before=at_the_end)
    assert found["bank"] == DONE
    report = books.verify("bank")
    assert [(lacking.number, partners) for lacking, partners in report.uncountersigned] == [(1, ("shop",))]
    (noted,) = [line for line in entries(books.path("bank")) if line.get("event") == "missing"]
    assert noted["by"] == "shop"
    with pytest.raises(ProtocolError, match=sentence):
        raise ProtocolError(noted["why"])
    assert books.told["bank"] == [f"shop has not countersigned the ledger of this run: {noted['why']}"]
    if wrong is wrong_head:  # which it has kept itself, and holds against the bank
        assert "under another key than the one here" in str(books.run()["bank"])
        return
    assert books.run() == {"bank": DONE, "shop": DONE}
    assert books.verify("bank").uncountersigned == []  # the next run makes up for it


@pytest.mark.parametrize("how", ["gone", "silent", "failed", "half"])
def test_a_partner_that_does_not_answer_at_the_end(books, how, monkeypatch):
    """Gone, or alive and silent, or failed: the model is there, and it is known which run lacks a countersignature."""
    answered = asyncio.Event()

    def at_the_end(name, witness, net):
        right = witness.end

        async def end(net):
            if name == "bank":
                if how == "failed":
                    await when(lambda: net.broken is not None)
                elif how == "half":
                    await when(lambda: net._inbox.boxes.get(("shop", "ledger head")))
                net.deadline = 0.5  # no honest answer is waited for
                await right(net)
                answered.set()
            elif how == "failed":
                raise OSError("the disk is full")
            elif how == "silent":
                await answered.wait()
            elif how == "half":
                await net.send("bank", "ledger head", witness._show(witness._ledger.head("shop"), []))
                await answered.wait()

        monkeypatch.setattr(witness, "end", end)

    found = books.run(before=at_the_end)
    assert found["bank"] == DONE
    report = books.verify("bank")
    assert [(lacking.number, partners) for lacking, partners in report.uncountersigned] == [(1, ("shop",))]
    (noted,) = [line for line in entries(books.path("bank")) if line.get("event") == "missing"]
    reason = {"failed": "party 'shop' failed with OSError", "half": "it did not answer"}.get(how, "it did not show its")
    assert noted["why"].startswith(reason)
    assert report.each[0].done


def test_a_run_that_was_broken_off_is_countersigned_by_the_next(books):
    books.run()
    broken = books.open("bank")
    broken.note("shop", "scores", np.zeros(64), 99)
    broken._leave()  # killed
    (lacking,) = books.verify("bank").uncountersigned
    assert (lacking[0].number, lacking[0].done, lacking[1]) == (2, False, ("shop",))
    books.run()
    assert books.verify("bank").uncountersigned == []
    assert len(books.verify("bank").each) == 3


def test_a_partner_that_makes_up_what_it_has_seen(books):
    """Only this party's own key makes a head of its ledger: what another says without it is not a roll-back."""
    books.run()
    made_up = books.open("shop")
    (last, *_) = made_up.seen_of("bank")
    head = replace(last.head, lines=last.head.lines + 1, chain="0" * 64)
    statement = Statement("shop", head, "loans", last.time, base64.b64encode(b"no").decode())
    made_up.event("seen", {"of": "bank", "statement": statement.text, "signature": ""})
    made_up.close()
    found = books.run()
    assert isinstance(found["bank"], LedgerError)
    assert "under another key than the one here; if the key was renewed" in str(found["bank"])


# -- files and messages ------------------------------------------------------------------------------------------------


def test_receipts_that_were_made_up_or_changed(books, tmp_path):
    books.run()
    (receipt, *_) = books.receipts("shop")
    head = replace(receipt.statement.head, lines=9999)
    for wrong, sentence in (
        (replace(receipt, statement=replace(receipt.statement, head=head)), "is not one that its key made"),
        (replace(receipt, signature=b""), "is not one that its key made"),
        (replace(receipt, certificate=OTHER.certificate), "is not signed by this party's authority"),
        (replace(receipt, certificate=b"no certificate"), "can't be read"),
        (replace(receipt, certificate=CREDENTIALS["bank"].certificate), "is made out to"),
    ):
        with pytest.raises((LedgerError, ValueError), match=sentence):
            books.verify("bank", wrong)
    of_another = replace(receipt.statement, head=replace(receipt.statement.head, owner="clinic"))
    books.verify("bank", replace(receipt, statement=of_another))  # not about this ledger
    path = tmp_path / "receipts.json"
    for content, sentence in (("{}", "is no file of receipts"), ('{"format": 7}', "has format 7"), ("[", "is no file")):
        path.write_text(content)
        with pytest.raises(LedgerError, match=sentence):
            read_receipts(path)
    with pytest.raises(LedgerError, match="can't be read: No such file"):
        read_receipts(tmp_path / "nothing")


def test_a_countersignature_in_the_ledger_is_checked_again(books):
    """Also one that the party itself has chained and sealed."""
    books.run()
    (genuine, *_) = [line for line in entries(books.path("bank")) if line.get("event") == "countersigned"]
    content = {key: genuine[key] for key in ("by", "statement", "signature", "certificate")}
    statement = Statement.parse(content["statement"])
    elsewhere = replace(statement, head=replace(statement.head, lines=1))
    signed = base64.b64encode(signer(CREDENTIALS["shop"].key)(elsewhere.to_sign)).decode()
    wrong = [
        ({**content, "signature": base64.b64encode(b"other").decode()}, "that the key of 'shop' did not make"),
        ({**content, "statement": elsewhere.text, "signature": signed}, "about another ledger or another line"),
        ({**content, "statement": "{}"}, "holds no countersignature that this version knows"),
    ]
    books.keep("bank", "good")
    for entry, sentence in wrong:
        book = books.open("bank")
        book.event("countersigned", entry)
        book.close()
        with pytest.raises(LedgerError, match=sentence):
            books.verify("bank")
        books.put_back("bank", "good")
    report = verify(books.path("bank"), check_of("bank"), vouch=vouched(Authority().pem))  # renewed since then
    assert [lacking for _, lacking in report.uncountersigned] == [("shop",)]
    assert "can't be checked any more" in report.doubts[0]


def test_nothing_from_the_line_is_believed(books):
    ledger = books.open("bank")
    keys = (signer(CREDENTIALS["bank"].key), check_of("bank"), CREDENTIALS["bank"])
    witness = Witness(ledger, "bank", "loans", keys, books.told["bank"].append)
    good = ("a" * 64, 5, "b" * 64, "c" * 16, b"", CREDENTIALS["shop"].certificate, ())
    signature = signer(CREDENTIALS["shop"].key)(Head("shop", *good[:4]).to_sign)
    good = (*good[:4], signature, *good[5:])
    shown = witness._take_head("shop", good)
    for at, value in (
        (0, "A" * 64), (0, b"a" * 64), (1, 0), (1, True), (1, 1 << 60), (2, "b"), (3, "c" * 17), (4, b"x" * 5000),
        (4, b""), (5, b"x" * 70_000), (5, b""), (6, ("{}",)), (6, (1,)), (6, ("",) * 17), (6, None),
    ):  # fmt: skip
        with pytest.raises(ProtocolError, match="party 'shop'"):
            witness._take_head("shop", (*good[:at], value, *good[at + 1 :]))
    for value in (None, (), good[:6], (*good, 1), "head"):
        with pytest.raises(ProtocolError, match="party 'shop' must show the head of its ledger at step 'ledger head'"):
            witness._take_head("shop", value)
    about_others = Statement("clinic", ledger.head("bank"), "loans", "2026-01-01T00:00:00+00:00", "").text
    with pytest.raises(ProtocolError, match="told what it has not seen itself"):
        witness._take_head("shop", (*good[:6], (about_others,)))
    head = ledger.head("bank")
    right = Statement("shop", head, "loans", "2026-01-01T00:00:00+00:00", "")
    for value in (None, (right.text,), (right.text, "text"), ("{}", b""), ("x" * 9000, b""), (right.text + " ", b"")):
        with pytest.raises(ProtocolError, match="party 'shop' must countersign a ledger at step 'ledger receipt'"):
            witness._take_receipt("shop", value, head, shown)
    for wrong in (replace(right, by="clinic"), replace(right, job="cards")):
        with pytest.raises(ProtocolError, match="countersigned another head"):
            witness._take_receipt("shop", (wrong.text, b""), head, shown)
    for time in ("yesterday", "2026-01-01", "2026-01-01T00:00:00+02:00"):
        with pytest.raises(ProtocolError, match="it is no statement about a ledger"):
            witness._take_receipt("shop", (replace(right, time=time).text, b""), head, shown)
    assert [line["event"] for line in entries(books.path("bank"))] == ["run", "begin"]  # none of it was kept
    ledger.close()


def test_a_receipt_tells_nothing_of_the_content(books):
    """Who has receipts has lengths, times and hashes over keyed digests."""
    books.run()
    receipt = books.receipts("shop")[0]
    assert isinstance(receipt, Receipt)
    assert set(vars(receipt.statement)) == {"by", "head", "job", "time", "proof"}
    assert set(vars(receipt.statement.head)) == {"owner", "book", "lines", "chain", "run"}
    assert {path.name for path in (books.folder / "bank").iterdir()} == {
        "ledger.jsonl.lock",
        *(path.name for path in (books.path("bank"), seal_file(books.path("bank")), key_file(books.path("bank")))),
    }
