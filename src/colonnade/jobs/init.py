"""`colonnade init`: a folder with a job, a file for each party, and test certificates; every line explained."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from colonnade.errors import OptionError
from colonnade.jobs.job_file import JOB, described, party_name
from colonnade.leaks import LISTED
from colonnade.remote.authority import issue, make_authority
from colonnade.settings import toml

_PORT = 7443

_JOB = """\
# What all parties agree on. Every organisation has this same file; before anything private is read, the parties
# compare its content, and a difference is named.
version = 1
name = "{name}"

# Who takes part. address: where the others can dial this party; leave it out for one that can only dial out
# (at most one). labels: whether it holds labels; at least one does.
{parties}
[model]
kind = "logistic"        # logistic, softmax, svm, ridge or poisson; kernel, ..., network, ...: docs/guide.md
l2 = 1e-4                # weight of the penalty
# penalty = "l2"         # or "nonconvex"
# intercept = true

[algorithm]
kind = "auto"            # BlockNewton for linear models: tens of rounds; or VFB2, AFSGD, FedBCD, FedSGD, FDML
epochs = 100             # at most; it stops by itself when a pass brings less than tol
seed = 0

[sum]
kind = "auto"            # how scores are added up: "pairwise" masks, "two-trees", or "plain" if every policy allows it;
                         # "encrypted": as "pairwise", and so are the signals (with FedSGD or FedBCD, in batches of 55
                         # rows or more for each column)
topology = "tree"        # or "star", "ring"

[alignment]
kind = "private"         # the rows that all parties have, found without showing the others; "none": they are aligned
minimum = 100            # fewer people in common end the job

[validation]
part = 0.2               # of the common rows, held out for the history and for stopping

[run]
deadline = 60            # seconds of silence after which a party is given up
grace = 10               # seconds that a line may be down
patience = 600           # seconds to wait for the others at the start
checkpoint_every = 1     # epochs
statistics = false       # true: standard errors and p values after training; best without validation

# What the parties learn of each other's rows beside the model. It must be complete: see docs/security.md.
"""
_DISCLOSED = "disclosed = [\n{items}]\n\n"
_PARTY = """\
# Private: what is {name}'s own business. Paths are relative to this file. The other parties never see it.
name = "{name}"
folder = "{name}-files"   # ledger, checkpoints, and this party's part of the model
# listen = "0.0.0.0:{port}"   # if that differs from the address in job.toml, behind a gateway

[data]
source = "{name}.csv"     # .csv, .parquet, .svm, .npy or .npz; or sql = "SELECT ..." over files or a database
id = "id"                 # the column by which people are found again at the other parties
{label}
# columns = ["age", "income"]   # by default all others; or exclude = ["name"]

# Local preparation, learned on the training rows and saved with the model. By default numbers are imputed and
# standardised, and texts become one column per category.
# [prepare]
# default = ["impute", "standardise"]
# income = [{{ clip = [0, 250000] }}, "impute", "standardise"]
# city = ["one-hot"]

[certificates]            # these are for tests only; ask your own authority for real ones
authority = "certificates/authority.pem"
certificate = "certificates/{name}.pem"
key = "certificates/{name}.key"
# revoked = "certificates/revoked.pem"   # the authority's list of revoked certificates; an old one lets nobody in
# pins = {{ partner = "sha256:..." }}      # a partner's only certificate; its `colonnade check` tells the fingerprint

[policy]                  # what may leave this party, whatever job.toml says
plain = false             # sums without masks
sequential = false        # three or more parties that move one after another, which undoes the masks
min_features = 2          # columns that this party takes part with, at least
min_batch = 8             # rows of a batch, at least
max_rounds = 1000000      # of a run
max_directions = 0.5      # numbers about each person that may leave in all runs together, as a share of own columns:
                          # with as many as columns a partner who knows a few people works out everybody's columns
# max_partner_ids = 10000   # ids that a partner may bring to an alignment; by default ten times one's own, or 10,000
serve_people = "trained"  # about whom scores are asked and answered; "listed": in serve_list, a file; or "all"
# serve_list = "people.txt"   # one id per line
min_prediction = 1        # people of a question, at least
# max_people_per_day = 10000  # that one asker is answered about; by default twice those served, or 10,000
# peers = ["shop"]        # by default the parties of the job
"""


def init(folder: Path, parties: Sequence[str], holders: Sequence[str] = ()) -> list[Path]:
    """Write the files of a new federation; returns their paths."""
    if trouble := party_name(folder.name):
        raise OptionError(f"the name of a federation {trouble}, got {folder.name!r}")
    if len(parties) < 2 or len(set(parties)) != len(parties):
        raise OptionError(f"a federation has two or more parties, each once, got {', '.join(parties) or 'none'}")
    for name in parties:
        if trouble := party_name(name):
            raise OptionError(f"the name of a party {trouble}, got {name!r}")
    holders = tuple(holders) or (parties[0],)
    if strangers := [name for name in holders if name not in parties]:
        raise OptionError(f"labels are held by parties, {strangers[0]!r} is none; parties are {', '.join(parties)}")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise OptionError(f"the folder {str(folder)!r} is there already and not empty; choose another name")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(
            f"{str(folder)!r} can't be the folder of a federation ({error.strerror}); choose another place or name"
        ) from None
    make_authority(folder / "certificates")
    written = [folder / "job.toml"]
    written[0].write_text(_job(folder.name, parties, holders), encoding="utf-8")
    for name in parties:
        issue(folder / "certificates", name)
        written.append(folder / f"{name}.toml")
        label = (
            'label = "label"           # empty cells are rows without a label'
            if name in holders
            else "# no label column here"
        )
        written[-1].write_text(_PARTY.format(name=name, label=label, port=_PORT), encoding="utf-8")
    return written


def _job(name: str, parties: Sequence[str], holders: Sequence[str]) -> str:
    tables = ""
    for number, party in enumerate(parties):
        tables += f'[parties.{party}]\naddress = "127.0.0.1:{_PORT + number}"\n'
        tables += f"labels = {'true' if party in holders else 'false'}\n\n"
    # Before the first table: keys after one belong to it.
    head, rest = _JOB.format(name=name, parties=tables).split("\n# Who takes part", 1)
    body, note = rest.rsplit("\n# What the parties learn", 1)

    def written(items: str) -> str:
        disclosed = f"\n# What the parties learn{note}" + _DISCLOSED.format(items=items)
        return f"{head}\n{disclosed.lstrip()}# Who takes part{body}"

    told = described(toml.parse(written("").encode(), JOB, "job.toml")).disclosed()
    return written("".join(f'  "{what}",  # {LISTED[what]}\n' for what in told))
