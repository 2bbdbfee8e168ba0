"""`colonnade init`: a folder with a job, a file for each party, and test certificates; every line explained."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from colonnade.errors import OptionError, one_of
from colonnade.families import family_of_kind
from colonnade.families.linear import LinearFamily
from colonnade.families.protection import MASKED, PLAIN, PROTECTIONS, SEALED, check_word
from colonnade.families.trees import TreesFamily
from colonnade.jobs import tree_texts
from colonnade.jobs.bundle import bundle
from colonnade.jobs.consent import disclosed_of
from colonnade.jobs.job_file import JOB, described, party_name
from colonnade.leaks import HELD_OUT, LISTED
from colonnade.remote.authority import issue, make_authority
from colonnade.settings import toml

_PORT = 7443

_PROTECTION = """\
# "sealed": nobody learns anything from training but its own coefficients. "masked": training in the open, under masks,
# which hide nothing between two parties. "plain": in the open, without masks. Each party's [policy] must agree to it.
"""
_HEAD = """\
# What all parties agree on. Every organisation has this same file; before anything private is read, the parties
# compare its content, and a difference is named.
version = 1
name = "{name}"

{words}protection = "{protection}"

# What the parties learn of each other's rows beside the model. It must be complete: see docs/security.md.
disclosed = [
{disclosed}]

# Who takes part. address: where the others can dial this party; leave it out for one that can only dial out
# serving: another address for the use of a model, with which a party can train while it serves
# (at most one). labels: whether it holds labels; at least one does.
{parties}"""
_LINEAR = """\
[model]
kind = {kind}# logistic, softmax, svm, ridge, poisson, gamma, tweedie, ...; kernel, ..., network, ...: docs/guide.md
l2 = 1e-4                # weight of the penalty
# l1 = 0.0               # weight of the sum of absolute coefficients, which makes some of them 0
# penalty = "l2"         # or "elasticnet", or "nonconvex"
# intercept = true
# penalise_intercept = false  # true: the penalty is on the intercept too
# weighted = false       # true: rows count unequally, as weight or class_weight in the label holder's own file say

"""
_OTHER = """\
[model]
kind = {kind}# the others are in docs/guide.md
{keys}
"""
_SEALED_TRAINING = f"""\
[algorithm]
kind = "auto"            # SealedNewton: Newton steps on shares, as many as the number of rows asks for
seed = 0

# [validation]           # a metric on rows that are held out, which the label holder alone is told; it sees the scores
# part = 0.2             # of these people then, so add "{HELD_OUT}" to disclosed

"""
_OPEN_TRAINING = """\
[algorithm]
kind = "auto"            # {algorithms}
epochs = 100             # at most; it stops by itself when a pass brings less than tol
seed = 0

[sum]
{sum}
[validation]
part = 0.2               # of the common rows, held out for the history and for stopping

# [defence.randomised-labels]   # or another one: docs/defences.md
# epsilon = 1.0

"""
_MASKS = """\
kind = "auto"            # how scores are added up under masks: "pairwise", "neighbours" or "two-trees"{more}
"""
_ENCRYPTED = """;
                         # "encrypted": as "pairwise", and signals are encrypted (with FedSGD or FedBCD; with several
                         # label holders in batches of 55 rows or more for each column)"""
_TOPOLOGY = """\
topology = "tree"        # or "star", "ring", or trees of your own: docs/guide.md
"""
_OF_ALL_ROWS = """\
kind = "auto"            # masked: sums over all rows in common, made of encrypted numbers; plain: there are none
"""
_REST = """\
[alignment]
kind = "private"         # the rows that all parties have, found without showing the others; "none": they are aligned
minimum = 100            # fewer people in common end the job
method = "auto"          # or "diffie-hellman", or for two parties "oblivious-transfer": the same rows, by other means
# keep = true            # for few ids that are looked for among many again and again: docs/guide.md#alignment
# duplicates = "expand"  # a person may have several rows at the first label holder, which the others then count

[run]
deadline = 60            # seconds of silence after which a party is given up
grace = 10               # seconds that a line may be down
patience = 600           # seconds to wait for the others at the start
checkpoint_every = 1     # epochs
"""
_STATISTICS = """\
statistics = false       # true: standard errors and p values after training; best without validation
"""
_CONSENT = {
    SEALED: """\
protection = ["sealed"]   # how training may be protected: sealed, so that nobody learns anything but its own
                          # coefficients; "masked" and "plain", in the open, are further words to agree to
""",
    MASKED: """\
protection = ["sealed", "masked"]   # how training may be protected; "masked" is consent to training in the open, under
                          # masks: partners could work out what job.toml lists as disclosed
""",
    PLAIN: """\
protection = ["sealed", "plain"]   # how training may be protected; "plain" is consent to training in the open, without
                          # masks: whoever is on the way of a sum sees this party's own part of it
""",
}
_LABEL = """\
label = "label"           # empty cells are rows without a label
{weight}"""
_WEIGHT = """\
# weight = "weight"       # how much each row counts, where the job says weighted = true
# class_weight = "balanced"   # the same by class; or { good = 1, bad = 5 }"""
_PREPARE = """\
# Local preparation, learned on the training rows and saved with the model. By default numbers are imputed and
# standardised, and texts become one column per category.
# [prepare]
# default = ["impute", "standardise"]
# income = [{ clip = [0, 250000] }, "impute", "standardise"]
# city = [{ one-hot = { least = 10, reference = "Berlin" } }]   # rare ones together, and differences to one of them
# joined = [{ date = "%d.%m.%Y" }, "impute", "standardise"]     # texts that are dates become days
"""
_RULES = """\
{consent}sequential = false        # three or more parties that move one after another, which undoes the masks
min_features = 2          # columns that this party takes part with, at least
min_batch = 8             # rows of a batch, at least
max_rounds = 1000000      # of a run
max_directions = 0.5      # numbers about each person that may leave in all runs together, as a share of own columns:
                          # with as many as columns a partner who knows a few people works out everybody's columns
"""
_NETWORK = """\
[network]                 # how this party's own network is made: a function without arguments in a file of its own
build = "{name}_network.py:make"
{optimizer}
"""
_PARTY = """\
# Private: what is {name}'s own business. Paths are relative to this file. The other parties never see it.
name = "{name}"
folder = "{name}-files"   # ledger, checkpoints, and this party's part of the model
# listen = "0.0.0.0:{port}"   # if that differs from the address in job.toml, behind a gateway; also listen_serving

[data]
source = "{name}.csv"     # .csv, .parquet, .arrow, .svm, .npy or .npz; or sql = "SELECT ..." over files or a database
id = "id"                 # the column by which people are found again at the other parties
{label}
# columns = ["age", "income"]   # by default all others; or exclude = ["name"]
# encoding = "windows-1252"     # of a CSV file that is not UTF-8

{prepare}
{network}[certificates]            # these are for tests only; ask your own authority for real ones
authority = "certificates/authority.pem"
certificate = "certificates/{name}.pem"
key = "certificates/{name}.key"
# revoked = "certificates/revoked.pem"   # the authority's list of revoked certificates; an old one lets nobody in
# pins = {{ partner = "sha256:..." }}      # a partner's only certificate; its `colonnade check` tells the fingerprint

# [audit]
# record = true           # keep what this party sees of a run, encrypted, for `colonnade audit`; never sent
# record_mb = 512         # at most

# [watch]                 # what follows this party's runs, with its own view alone; see docs/integrations.md
# mlflow = "http://127.0.0.1:5000"
# prometheus = "{name}.prom"

[policy]                  # what may leave this party, whatever job.toml says
{rules}\
# record = "allowed"        # whether this party may keep what it sees of a run at all; "never" without this line
# require = ["{protection}"]      # what the job must have: a protection or a better one, or a defence by its name
# accept = [{accept}]
#                         # with such a list, every disclosure about this party has to be in it: these are the job's
# max_advantage = 0.05    # that an audit may find about this party, before a run and in it; see docs/audit.md
# tell_repeats = true      # whether partners may learn how many rows each person in common has, where some have several
# max_partner_ids = 10000   # ids that a partner may bring to an alignment; by default ten times one's own, or 10,000
serve_people = "trained"  # about whom scores are asked and answered; "listed": in serve_list, a file; or "all"
# serve_list = "people.txt"   # one id per line
min_prediction = 1        # people of a question, at least
# max_people_per_day = 10000  # that one asker is answered about; by default twice those served, or 10,000
# max_drift = 0.25         # refuse to score rows that are further from the training; see `colonnade drift`
# max_missing = 0.2        # the same for missing values in a column, where training had fewer
# peers = ["shop"]        # by default the parties of the job
"""


def init(
    folder: Path,
    parties: Sequence[str],
    holders: Sequence[str] = (),
    model: str = "logistic",
    protection: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write the files of a new federation, and return their paths; for all parties but the first, also bundles of them.

    Parameters
    ----------
    folder
        Where they go; its name is the name of the job.
    parties, holders
        Who takes part, and who of them holds labels: by default the first one.
    model
        The `kind` of the model.
    protection
        How training is protected. None is "sealed" where models of this kind can be trained so, and else "masked".
    tell
        Hears how training is protected, and if not sealed, why not.
    """
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
    word, job, why = _protected(folder.name, parties, holders, model, protection)
    told = described(toml.parse(job.encode(), JOB, "job.toml"))
    files = {
        name: party_text(name, labels=name in holders, model=model, protection=word, accept=disclosed_of(told, name))
        for name in parties
    }
    written = written_into(folder, job, files)
    for name in parties[1:]:
        bundle(folder, name)
    tell(f'protection = "{word}"{why}')
    return written


def written_into(folder: Path, job: str, files: Mapping[str, str]) -> list[Path]:
    """Write a job, each party's file and test certificates into a new folder; return the paths of the files."""
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
    written[0].write_text(job, encoding="utf-8")
    for name, text in files.items():
        issue(folder / "certificates", name)
        written.append(folder / f"{name}.toml")
        written[-1].write_text(text, encoding="utf-8")
    return written


def _protected(
    name: str, parties: Sequence[str], holders: Sequence[str], model: str, protection: str | None
) -> tuple[str, str, str]:
    """Return (the protection, the text of the job, why it is no better one, if none was asked for)."""
    kind = family_of_kind(model)
    if protection is not None:
        one_of("protection", protection, PROTECTIONS)
        check_word(protection, kind)
        return protection, job_text(name, parties, holders, model, protection), ""
    why = f"{SEALED!r} {kind.lacks.get(SEALED, '')}"
    if SEALED not in kind.lacks:
        try:
            return SEALED, job_text(name, parties, holders, model, SEALED), ""
        except OptionError as error:  # a linear model that can't be trained on shares, or not by these parties
            if MASKED in kind.lacks:
                raise
            why = str(error).partition(": ")[2]
    return MASKED, job_text(name, parties, holders, model, MASKED), f", training in the open: {why}"


def party_text(name: str, *, labels: bool, model: str, protection: str, accept: Sequence[str] = ()) -> str:
    """Return the file of a party that agrees to this protection.

    labels: whether it holds any. accept: what the job discloses about it, for a line that it may take up.
    """
    kind = family_of_kind(model)
    weight, prepare, rules = _WEIGHT, _PREPARE, _RULES.format(consent=_CONSENT[protection])
    if kind.name == TreesFamily.name:
        weight, prepare = tree_texts.WEIGHT, tree_texts.PREPARE
        agreed = {"consent": tree_texts.CONSENT[protection], "ranges": tree_texts.RANGES[protection]}
        rules = tree_texts.RULES.format(**agreed)
    column = _LABEL.format(weight=weight) if labels else "# no label column here"
    # Transfer learning knows no step size by itself; adam needs none.
    optimizer = 'optimizer = "adam"\n' if kind.name == "transfer" else ""
    network = _NETWORK.format(name=name, optimizer=optimizer) if kind.takes_own else ""
    listed = ", ".join(f'"{one}"' for one in accept)
    more = {"network": network, "protection": protection, "accept": listed}
    return _PARTY.format(name=name, label=column, port=_PORT, rules=rules, prepare=prepare, **more)


def job_text(name: str, parties: Sequence[str], holders: Sequence[str], model: str, protection: str) -> str:
    """Return the file of a job, with a complete list of what it discloses."""
    tables = ""
    for number, party in enumerate(parties):
        tables += f'[parties.{party}]\naddress = "127.0.0.1:{_PORT + number}"\n'
        tables += f"labels = {'true' if party in holders else 'false'}\n\n"
    body = _model(model) + _training(model, protection) + _REST
    body += _STATISTICS if protection != SEALED and model in LinearFamily.kinds else ""

    words = tree_texts.PROTECTION if model in TreesFamily.kinds else _PROTECTION

    def written(items: str) -> str:
        return _HEAD.format(name=name, words=words, protection=protection, parties=tables, disclosed=items) + body

    told = described(toml.parse(written("").encode(), JOB, "job.toml")).disclosed()
    return written("".join(f'  "{what}",  # {LISTED[what]}\n' for what in told))


def _model(model: str) -> str:
    kind, quoted = family_of_kind(model), f'"{model}"'.ljust(18)
    if model in LinearFamily.kinds:
        return _LINEAR.format(kind=quoted)
    if model in TreesFamily.kinds:
        return tree_texts.model_text(model, quoted, kind.kinds[model])
    keys = "".join(f"# {key.name} = {json.dumps(key.default)}\n" for key in kind.keys)
    return _OTHER.format(kind=quoted, keys=keys)


def _training(model: str, protection: str) -> str:
    if model in TreesFamily.kinds:
        return tree_texts.TRAINING[protection] + tree_texts.VALIDATION
    if protection == SEALED:
        return _SEALED_TRAINING
    kind = family_of_kind(model)
    algorithms = " or ".join(one.name for one in kind.algorithms)
    if kind.encryptable:
        algorithms = "BlockNewton for linear models: tens of rounds; or VFB2, AFSGD, FedBCD, FedSGD, FDML"
    masks = _MASKS.format(more=_ENCRYPTED if kind.encryptable else "")
    added = _OF_ALL_ROWS if kind.counted(kind.masks) else (masks if protection == MASKED else "") + _TOPOLOGY
    return _OPEN_TRAINING.format(algorithms=algorithms, sum=added)
