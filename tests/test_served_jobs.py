"""Jobs whose alignment keeps tags: what they list, what is refused, and what a second run does not do again."""

from __future__ import annotations

import json

import pytest

from colonnade.errors import InputError
from colonnade.jobs.job_file import read_job
from colonnade.jobs.party_file import read_party
from colonnade.jobs.words import what_others_learn
from colonnade.leaks import OF_PEOPLE, UNCHANGED
from colonnade.service.keeping import tags_folder
from test_federation import federation, run_all
from test_job import complete

ALGORITHM = 'kind = "FedBCD"\nepochs = 2\npatience = 100'
NAMES = ("bank", "shop")


def served(tmp_path, words='method = "served"', names=NAMES, listed=True):
    folder = federation(tmp_path, names, ALGORITHM)
    text = (folder / "job.toml").read_text()
    line = next(line for line in text.splitlines() if line.startswith("method = "))
    text = text.replace(line, words)
    (folder / "job.toml").write_text(complete(text) if listed else text)
    return folder


@pytest.mark.parametrize("words", ['method = "served"', "keep = true", 'method = "served"\nkeep = true'])
def test_a_job_lists_it_and_parties_hear_it(tmp_path, words):
    folder = served(tmp_path, words)
    job = read_job(folder / "job.toml")
    assert UNCHANGED in job.disclosed()
    told = "shop will learn in every run whether your people are the same as before, if they have fewer"
    assert told in what_others_learn(job, "bank")[OF_PEOPLE]
    party = read_party(folder / "bank.toml", job)
    assert tags_folder(job, party) == party.folder / "alignment"


def test_a_job_without_it_keeps_nothing(tmp_path):
    folder = served(tmp_path, "")
    job = read_job(folder / "job.toml")
    assert UNCHANGED not in job.disclosed()
    assert tags_folder(job, read_party(folder / "bank.toml", job)) is None


THREE = ("bank", "clinic", "shop")


@pytest.mark.parametrize(
    ("words", "names", "text"),
    [
        ("keep = true", NAMES, "whether ids are the same as before"),  # not listed
        ('method = "served"', THREE, "'served' aligns two parties, and there are 3; leave it out"),
        ("keep = true", THREE, "is for two parties, and there are 3; leave it out"),
        ('method = "diffie-hellman"\nkeep = true', NAMES, "'diffie-hellman', which keeps nothing; remove it"),
    ],
)
def test_what_can_not_be_is_one_sentence_about_a_line(tmp_path, words, names, text):
    folder = served(tmp_path, words, names, listed=False)
    with pytest.raises(InputError) as caught:
        read_job(folder / "job.toml")
    assert text in str(caught.value)
    assert "job.toml" in str(caught.value)


def test_a_second_run_goes_on_with_the_tags_of_the_first(tmp_path):
    folder, found = served(tmp_path), []
    for _ in range(2):
        run_all(folder, NAMES)
        ledgers = {name: (folder / f"{name}-files" / "ledger.jsonl").read_text().splitlines() for name in NAMES}
        steps = [json.loads(line).get("kind") for lines in ledgers.values() for line in lines]
        found.append((steps.count("align tags"), steps.count("align have")))
        kept = {path.relative_to(folder).as_posix() for path in folder.glob("*-files/alignment/*")}
        assert sum(path.endswith("/key") for path in kept) == 1
        assert sum("/tags-of-" in path for path in kept) == 1
    assert found[0][0] == found[1][0] == 2  # how many begin with which bits, and the rest: in the first run alone
    assert [have for _, have in found] == [1, 2]
