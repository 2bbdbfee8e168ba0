"""`<party>.toml`: what is this organisation's own business. Nobody else sees it.

    name = "bank"
    [data]                    # see data.py
    source = "customers.csv"
    id = "customer_id"
    label = "default"
    [certificates]
    authority = "certificates/authority.pem"
    certificate = "certificates/bank.pem"
    key = "certificates/bank.key"
    revoked = "certificates/revoked.pem"      # if the authority keeps a list
    [certificates.pins]                       # only this certificate is the shop's
    shop = "sha256:..."

Paths are relative to the folder of the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colonnade.data.class_weights import BALANCED
from colonnade.data.ids import EXPAND
from colonnade.defences.registry import DEFENCES
from colonnade.defences.scores import MOST_DIGITS, Answers
from colonnade.errors import DataError, OptionError
from colonnade.families import family
from colonnade.families.base import NO_WEIGHTS
from colonnade.families.protection import PROTECTIONS
from colonnade.families.trees import TELL_LABELS
from colonnade.jobs.job import Job
from colonnade.jobs.job_file import address, party_name
from colonnade.jobs.policy import ALLOWED, KINDS, RECORDED, SERVED, Policy
from colonnade.leaks import LISTED
from colonnade.networks.torch_optimisers import OPTIMISERS
from colonnade.objective.calibration import METHODS
from colonnade.objective.decisions import check_rule
from colonnade.objective.losses import loss
from colonnade.remote.certificates import CertificatePaths
from colonnade.remote.trust import check_pin
from colonnade.settings import toml
from colonnade.settings.settings import Key, ListOf, Section, Settings
from colonnade.tables import data, preparation
from colonnade.workers import engine
from colonnade.workers.refusals import read_engine

ONLY_CLASS = "class"
_RECORDING = (
    'add record = "allowed" under [policy] if this party may keep what it sees of a run, partners\' signals too, or '
    "remove this"
)

PARTY = Section(
    Key("name", str, required=True, check=party_name),
    Key("listen", str, check=address),
    Key("listen_serving", str, check=address),
    Key("folder", str),
    Key("data", data.SECTION, required=True),
    Key("prepare", preparation.SECTION),
    Key(
        "network",
        Section(
            Key("build", str, required=True),
            Key("optimizer", str, default="sgd", allowed=tuple(OPTIMISERS)),
            Key("shape", ListOf(int, 1), least=1),
            Key("top", str),
        ),
    ),
    Key(
        "trees",
        Section(Key("monotone", Section(others=Key("column", int, allowed=(1, -1))), default={})),
    ),
    Key(
        "decision",
        Section(
            Key("by", (str, float, Section(Key("cost", ListOf(ListOf(float, 2), 2))))),
            Key("calibration", str, allowed=METHODS),
        ),
    ),
    Key(
        "answers",
        Section(
            Key("digits", int, least=0, most=MOST_DIGITS),
            Key("only", str, allowed=(ONLY_CLASS,)),
        ),
    ),
    Key("engine", engine.SECTION),
    Key(
        "certificates",
        Section(
            Key("authority", str, required=True),
            Key("certificate", str, required=True),
            Key("key", str, required=True),
            Key("revoked", str),
            Key("pins", Section(others=Key("party", str, check=check_pin)), default={}),
        ),
        required=True,
    ),
    Key(
        "audit",
        Section(
            Key("record", bool, default=False),
            Key("record_mb", int, default=512, least=1, most=2000),
        ),
        default={},
    ),
    Key(
        "policy",
        Section(
            Key("kinds", ListOf(str), allowed=KINDS),
            Key("protection", ListOf(str, 1), default=list(Policy.protection), allowed=PROTECTIONS),
            Key("require", ListOf(str), allowed=(*PROTECTIONS, *(one.name for one in DEFENCES))),
            Key("accept", ListOf(str), allowed=tuple(LISTED)),
            Key("max_advantage", float, least=0.0, most=1.0),
            Key("record", str, default=Policy.record, allowed=RECORDED),
            Key("plain", bool, default=Policy.plain),
            Key("min_features", int, default=Policy.min_features, least=1),
            Key("min_batch", int, default=Policy.min_batch, least=1),
            Key("min_rows", int, default=Policy.min_rows, least=1),
            Key("max_rounds", int, default=Policy.max_rounds, least=1),
            Key("max_message_mb", int, least=1),
            Key("peers", ListOf(str)),
            Key("max_directions", float, default=Policy.max_directions, above=0.0),
            Key("max_epsilon", float, above=0.0),
            Key("delta", float, default=Policy.delta, above=0.0, most=0.5),
            Key("max_ranges", int, least=2),
            Key("max_questions", int, default=Policy.max_questions, least=0),
            Key("min_noise", float, default=Policy.min_noise, least=0),
            Key("min_cell", int, default=Policy.min_cell, least=1),
            Key("min_count", int, default=Policy.min_count, least=1),
            Key("max_label_counts", float, default=Policy.max_label_counts, above=0.0),
            Key("max_binnings", int, default=Policy.max_binnings, least=0),
            Key("sequential", bool, default=Policy.sequential),
            Key("max_partner_ids", int, least=1),
            Key("tell_repeats", bool, default=Policy.tell_repeats),
            Key("serve_people", str, default=Policy.serve_people, allowed=SERVED),
            Key("serve_list", str),
            Key("min_prediction", int, default=Policy.min_prediction, least=1),
            Key("max_people_per_day", int, least=1),
            Key("max_drift", float, above=0.0),
            Key("max_missing", float, least=0, most=1.0),
            Key("round_scores", int, least=0, most=MOST_DIGITS),
            Key("noise_scores", float, default=Policy.noise_scores, least=0),
        ),
        default={},
    ),
)


@dataclass(frozen=True)
class PartyFile:
    """A party's own settings, checked."""

    name: str
    listen: str | None
    folder: Path  # where its ledger, its checkpoints and its part of the model are
    data: Settings
    prepare: Settings | None
    certificates: CertificatePaths
    policy: Policy
    network: Any = None  # how this party's own is made: see `families.torch_networks`
    trees: Settings | None = None  # what it asks of boosted trees: see `tree_part`
    calibration: str | None = None  # how it turns scores into probabilities: see `objective.calibration`
    decision: Any = None  # by what it chooses the threshold of its decisions: see `objective.decisions`
    answers: Answers = field(default_factory=Answers)  # what it tells of scores that it has asked for
    listen_serving: str | None = None  # where it waits for those who use a model with it
    engine: engine.Engine | None = None  # where its passes over the rows are made; None is in memory
    record_mb: int = 0  # how large what it writes down of a run may become; 0 is that it writes nothing down

    @property
    def ledger(self) -> Path:
        """The file that records what left this party."""
        return self.folder / "ledger.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder from which a run goes on after it broke off."""
        return self.folder / "checkpoints"


def read_party(path: Path, job: Job, expected: str | None = None) -> PartyFile:
    """Read and check a party's file, also against the job, and whose it is expected to be."""
    settings = toml.read(path, PARTY)
    name, base = settings["name"], settings.origin.folder
    if expected is not None and name != expected:
        raise settings.error(
            "name", f"this file is of {name!r} and not of {expected!r}; give the right one with --file"
        )
    if name not in job.parties:
        raise settings.error(
            "name", f"{name!r} is no party of the job; parties are {', '.join(map(repr, job.parties))}"
        )
    if not job.aligned and settings["data"]["id"] is None and settings["data"]["ids"] is None:
        raise settings["data"].error("id", "the job aligns rows by their ids, so name the column with the ids")
    if (settings["data"]["label"] is None) == (name in job.holders):
        holds = "holds labels, so name the column" if name in job.holders else "holds no labels, so leave this out"
        raise settings["data"].error("label", f"the job says that {name!r} {holds}")
    if settings["data"]["duplicates"] == EXPAND and (job.duplicates != EXPAND or name != job.holders[0]):
        raise settings["data"].error("duplicates", _whose_rows(job, name))
    _check_weights(settings["data"], job, name)
    _check_offsets(settings["data"], name, job)
    decision, calibration = _decision(settings["decision"], job, name)
    takes = family(job.family).takes_own
    if (settings["network"] is not None) != takes:
        trains = 'trains networks, so name the function that makes this party\'s: build = "file.py:name"'
        raise settings.error("network", f"the job {trains if takes else 'trains no networks; remove this table'}")
    if settings["trees"] is not None and not family(job.family).takes_categories:
        raise settings.error("trees", "the job trains no boosted trees; remove this table")
    files, rules, wishes = settings["certificates"], settings["policy"], settings["audit"]
    for key in ("round_scores", "noise_scores"):
        if key in rules.given and not family(job.family).blurs:
            kinds = "is for linear models and networks, whose predictions are sums of every party's part"
            raise rules.error(key, f"{kinds}, and the job trains a {family(job.family).called} model; remove it")
    if wishes["record"] and rules["record"] != ALLOWED:
        raise wishes.error("record", f"the policy says that nothing is recorded; {_RECORDING}")
    if (rules["serve_list"] is None) == (rules["serve_people"] == "listed"):
        missing = 'serve_people = "listed" needs a file with one id per line: serve_list = "people.txt"'
        told = missing if rules["serve_list"] is None else 'has a meaning only with serve_people = "listed"; remove it'
        raise rules.error("serve_list", told)
    for stranger in [each for each in files["pins"] if each not in job.parties]:
        raise files["pins"].error(
            stranger, f"{stranger!r} is no party of the job; parties are {', '.join(map(repr, job.parties))}"
        )
    return PartyFile(
        name,
        settings["listen"],
        base / (settings["folder"] or f"{name}-files"),
        settings["data"],
        settings["prepare"],
        certificates_of(files, base),
        policy_of(rules, base),
        _network(settings["network"], job, name),
        settings["trees"],
        calibration,
        decision,
        _answers(settings, job, name),
        settings["listen_serving"],
        read_engine(settings["engine"], job),
        wishes["record_mb"] if wishes["record"] else 0,
    )


def certificates_of(files: Settings, base: Path) -> CertificatePaths:
    """Return where a party's certificates are, by its file in this folder."""
    return CertificatePaths(
        base / files["authority"],
        base / files["certificate"],
        base / files["key"],
        None if files["revoked"] is None else base / files["revoked"],
        tuple(files["pins"].items()),
    )


def policy_of(rules: Settings, base: Path) -> Policy:
    """Return the policy that a party's file in this folder states."""
    return Policy(
        **{
            **rules,
            "kinds": KINDS if rules["kinds"] is None else tuple(rules["kinds"]),
            "protection": tuple(dict.fromkeys(rules["protection"])),
            "peers": tuple(rules["peers"] or ()),
            "require": tuple(dict.fromkeys(rules["require"] or ())),
            "accept": None if rules["accept"] is None else tuple(dict.fromkeys(rules["accept"])),
            "serve_list": None if rules["serve_list"] is None else base / rules["serve_list"],
        }
    )


def _whose_rows(job: Job, name: str) -> str:
    """Say why a party's rows of one person can't all be used."""
    if name != job.holders[0]:
        return (
            f"'expand' keeps several rows of a person at {job.holders[0]!r}, the first label holder, alone: every pair "
            f"of rows would be a row else; bring one row for each id, or set it to 'first'"
        )
    return (
        "'expand' shows partners how many rows each person in common has here, and the job does not say so; add "
        "duplicates = \"expand\" under [alignment] at all parties, or set it to 'first'"
    )


def _check_offsets(given: Settings, name: str, job: Job) -> None:
    """Refuse offsets and exposures of people where the job's model does not take them."""
    for key in ("offset", "exposure"):
        if given[key] is not None:
            try:
                family(job.family).check_offsets(name, job.loss, job.holders, exposure=key == "exposure")
            except DataError as error:
                raise given.error(key, str(error)) from None


def _check_weights(given: Settings, job: Job, name: str) -> None:
    """Refuse weights of rows and of classes that the model does not take, or that the job does not tell of."""
    keys = [key for key in ("weight", "class_weight") if given[key] is not None]
    for key in keys if not family(job.family).weighs else ():
        raise given.error(key, NO_WEIGHTS)
    told = getattr(job.model, "weighted", None)  # None where weights are the label holder's business alone
    if told is False:
        for key in keys:
            says = "says nothing of weights; leave this out, or add weighted = true to [model] at every party"
            raise given.error(key, f"the job {says}")
    elif told and not keys and job.holders == (name,):
        raise given.error(
            "weight", "the job says weighted = true, so name the column with the weights, or class_weight"
        )
    asked = given["class_weight"]
    if asked is None:
        return
    if name not in job.holders:
        words = "the party with the labels says how much each class counts, and the job says that"
        raise given.error("class_weight", f"{words} {name!r} holds none; leave this out")
    if loss(job.loss).kind not in ("binary", "classes"):
        raise given.error("class_weight", f"is for classes, and the job's loss is {job.loss!r}; leave this out")
    if asked == BALANCED and len(job.holders) > 1:
        words = "needs all labels at one party, and no label holder tells another how many of each class it has"
        raise given.error("class_weight", f"'balanced' {words}; give numbers, such as {{ good = 1, bad = 5 }}")
    if job.statistics:
        words = "lets classes count otherwise than they are there, which the statistics that the job asks for can't"
        raise given.error("class_weight", f"{words}; leave one of the two out")
    if getattr(job.model, "balanced", False):
        raise given.error("class_weight", "the job says balanced = true already; leave out one of the two")
    if getattr(job.algorithm, "label_epsilon", None) is not None:
        raise given.error("class_weight", TELL_LABELS)


def _decision(given: Settings | None, job: Job, name: str) -> tuple[Any, str | None]:
    """Return by what this party chooses its threshold and calibrates, each None without; refuse what can't be."""
    if given is None:
        return None, None
    if given["calibration"] is not None:
        _check_calibration(given, job, name)
    elif given["by"] is None:
        raise given.error("by", "say by what decisions are taken, or how probabilities are calibrated; or remove this")
    if given["by"] is None:
        return None, given["calibration"]
    by = given["by"].plain() if isinstance(given["by"], Settings) else given["by"]
    if name != job.holders[0]:
        raise given.error("by", f"only the first label holder, {job.holders[0]!r}, decides; remove this table")
    if family(job.family).predicts_alone:
        raise given.error("by", "the target of transfer learning decides by itself, without labels; remove this table")
    try:
        check_rule(by, loss(job.loss))
    except OptionError as error:
        raise given.error("by", str(error)) from None
    if not isinstance(by, float) and not job.validation:
        words = "a threshold is chosen on held-out rows, and the job holds none out; add part = 0.2 under [validation]"
        raise given.error("by", f"{words} of the job, or give a number")
    return by, given["calibration"]


def _answers(settings: Settings, job: Job, name: str) -> Answers:
    """Return what this party tells of scores; refuse it where this party never gets any, or where it means nothing."""
    given = settings["answers"]
    if given is None:
        return Answers()
    if name not in job.holders and not family(job.family).predicts_alone:
        raise settings.error("answers", f"only label holders get scores to tell of, {name!r} is none; remove it")
    if given["digits"] is None and given["only"] is None:
        raise given.error("digits", 'say what is told: digits = 2, or only = "class"; or remove this')
    if given["only"] is not None and loss(job.loss).kind not in ("binary", "classes"):
        raise given.error("only", f"is for classes, and the job's loss is {job.loss!r}; remove it")
    return Answers(given["digits"], given["only"] == ONLY_CLASS)


def _check_calibration(given: Settings, job: Job, name: str) -> None:
    """Refuse a calibration without two classes, labels, and held-out rows to learn it from."""
    if name not in job.holders:
        raise given.error("calibration", f"only a party with labels calibrates, and {name!r} holds none; remove it")
    if loss(job.loss).kind != "binary" or family(job.family).predicts_alone:
        raise given.error("calibration", f"is for models of two classes, and the job's loss is {job.loss!r}; remove it")
    if not job.validation:
        words = "is learnt from held-out rows, and the job holds none out; add part = 0.2 under [validation]"
        raise given.error("calibration", f"{words} of the job, or remove it")


def _network(given: Settings | None, job: Job, me: str) -> Any:
    """Return how the network is made, no parameters yet, the shape of a row and the optimiser; paths are made whole.

    Where the job has a top network, it is a pair of that and of how the top network is made, which one party has.
    """
    if given is None:
        return None
    shape = tuple(given["shape"]) if given["shape"] else None
    own = (("named", _maker(given, "build")), None, shape, given["optimizer"])
    with_top = getattr(job.model, "widths", None) is not None
    if (given["top"] is not None) != (with_top and me == job.holders[0]):
        has = f"{me!r} holds the labels, so name the function that makes the top network" if given["top"] is None else (
            "the top network is the label holder's; remove it" if with_top else "the job has no top network; remove it"
        )  # fmt: skip
        raise given.error("top", has)
    if not with_top:
        return own
    return own, None if given["top"] is None else (("named", _maker(given, "top")), None, given["optimizer"])


def _maker(given: Settings, key: str) -> str:
    where, _, name = given[key].partition(":")
    if not name:
        raise given.error(key, f"must be 'file.py:name' or 'module:name', got {given[key]!r}")
    return f"{given.origin.folder / where if where.endswith('.py') else where}:{name}"
