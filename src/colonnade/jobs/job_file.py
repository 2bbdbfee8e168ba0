"""`job.toml`: what all parties agree on. Every organisation has the same file, and the handshake compares its content.

version = 1
name = "first-job"
[parties.bank]
address = "bank.example.org:7443"
labels = true
[parties.shop]            # no address: it only dials out
[model]
kind = "logistic"
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from colonnade.alignment.joining import INNER, JOINS
from colonnade.alignment.role import AUTO, METHODS, SERVED, TRANSFER
from colonnade.data.ids import EXPAND, REFUSE
from colonnade.defences.base import Defence
from colonnade.defences.registry import defence
from colonnade.engine.exposure import ENCRYPTED, check_penalty
from colonnade.engine.options import Training
from colonnade.errors import LabelError, OptionError
from colonnade.families import families, family, family_of_kind
from colonnade.families.base import Family
from colonnade.families.linear import LinearFamily
from colonnade.families.protection import MASKED, PLAIN, PROTECTIONS, SEALED, protection_of, sealing, seals
from colonnade.jobs.bin_keys import BINNING, SCORECARD, bins_and_points
from colonnade.jobs.candidates import MOST_FOLDS, candidates_of, fold_count
from colonnade.jobs.job import Job
from colonnade.leaks import FIRST_NAMES, HELD_OUT
from colonnade.objective.metrics import LIKELIHOODS
from colonnade.objective.scorers import SCORERS
from colonnade.remote.certificates import NAME
from colonnade.remote.place import host_and_port
from colonnade.settings import toml
from colonnade.settings.settings import Anything, Key, ListOf, Section, Settings, shown
from colonnade.sums import GONE, SUMS
from colonnade.sums.trees import check_kind, check_topology

VERSION = 1
_LARGEST = 1 << 63  # TOML's whole numbers end below this; larger ones can't be compared with a float everywhere


def party_name(name: str) -> str | None:
    """Return what is wrong with the name of a party or a job, or None."""
    return None if NAME.fullmatch(name) else "must be lower-case letters, digits and inner hyphens, at most 40"


def _topology(kind: str) -> str | None:
    """Return what is wrong with a topology, or None."""
    try:
        check_kind(kind)
    except OptionError as error:
        return str(error).removeprefix("topology").lstrip(": ")
    return None


def address(text: str) -> str | None:
    """Return what is wrong with an address, or None."""
    try:
        host_and_port("it", text)
    except OptionError:
        return "must be host:port, such as bank.example.org:7443"
    return None


_FAMILIES = families()
_KINDS: dict[str, type[Training]] = {kind.name: kind for one in _FAMILIES for kind in one.algorithms}


def _model_keys() -> dict[str, Key]:
    """Return the keys of all families; what several of them mean by one name is checked once the family is known."""
    found: dict[str, Key] = {}
    for key in (key for one in _FAMILIES for key in one.keys):
        found[key.name] = key if found.get(key.name, key) == key else Key(key.name, Anything)
    return found


_MODEL_KEYS = _model_keys()
_KIND = Key("kind", str, required=True, allowed=tuple(kind for one in _FAMILIES for kind in one.kinds))
_PARTY = Section(
    Key("address", str, check=address), Key("serving", str, check=address), Key("labels", bool, default=False)
)
JOB = Section(
    Key("version", int, required=True, allowed=(VERSION,)),
    Key("name", str, required=True, check=party_name),
    Key("protection", str, allowed=PROTECTIONS),
    Key("parties", Section(others=Key("party", _PARTY)), required=True),
    Key(
        "model",
        Section(_KIND, *_MODEL_KEYS.values()),
        required=True,
    ),
    Key(
        "algorithm",
        Section(Key("kind", str, default="auto", allowed=("auto", *_KINDS)), others=Key("option", Anything)),
        default={},
    ),
    Key(
        "sum",
        Section(
            Key("kind", str, default="auto", allowed=("auto", *SUMS), gone=GONE),
            Key("topology", str, default="tree", check=_topology),
            gone={"key_bits": "keys have one length since 'encrypted' signals are no longer Paillier's; remove it"},
        ),
        default={},
    ),
    Key(
        "alignment",
        Section(
            Key("kind", str, default="private", allowed=("private", "none")),
            Key("minimum", int, default=1, least=1),
            Key("method", str, default=AUTO, allowed=METHODS),
            Key("duplicates", str, default=REFUSE, allowed=(REFUSE, EXPAND)),
            Key("join", str, default=INNER, allowed=JOINS),
            Key("keep", bool, default=False),
        ),
        default={},
    ),
    Key(
        "validation",
        Section(
            Key("part", float, default=0.0, least=0, most=0.9),
            Key("folds", int, least=2, most=MOST_FOLDS),
            Key("scoring", str, allowed=tuple(SCORERS)),
        ),
        default={},
    ),
    Key("search", Section(others=Key("option", ListOf((int, float, str, bool), 1))), default={}),
    Key(
        "run",
        Section(
            Key("deadline", float, default=60.0, above=0),
            Key("grace", float, default=10.0, above=0),
            Key("patience", float, default=600.0, above=0),
            Key("checkpoint_every", int, default=1, least=1),
            Key("statistics", bool, default=False),
        ),
        default={},
    ),
    Key("binning", BINNING),
    Key("scorecard", SCORECARD),
    Key("defence", Section(others=Key("defence", Section(others=Key("option", Anything))))),
    Key("disclosed", ListOf(str), required=True),
)


def read_job(path: Path) -> Job:
    """Read and check a job file; whatever is wrong is said in one sentence with file, line and key."""
    return job_of(toml.read(path, JOB))


def job_of(settings: Settings) -> Job:
    """Return the job of checked settings, whose list of what is disclosed has to be complete."""
    job = described(settings)
    _check_disclosed(settings, job)
    return job


def described(settings: Settings) -> Job:
    """Return the job that these settings describe, whatever they list as disclosed."""
    parties = settings["parties"]
    names = sorted(parties)
    for name in names:
        if trouble := party_name(name):
            raise parties.error(name, f"the name of a party {trouble}, got {name!r}")
    if len(names) < 2:
        raise settings.error("parties", f"a job has two parties or more, got {len(names)}; add a [parties.NAME]")
    holders = tuple(name for name in names if parties[name]["labels"])
    if not holders:
        raise settings.error("parties", "no party holds labels; set labels = true for those that do")
    unreachable = [name for name in names if parties[name]["address"] is None]
    if len(unreachable) > 1:
        raise parties.error(
            unreachable[1],
            f"{unreachable[0]!r} has no address either, so neither can dial the other; give one of them one",
        )
    _check_addresses(parties, names)
    added, run, alignment = settings["sum"], settings["run"], settings["alignment"]
    kind = family_of_kind(settings["model"]["kind"])
    _check_keys(settings["model"], kind)
    model = settings["model"].checked(Section(_KIND, *kind.keys), JOB)
    loss, options = kind.loss_of(model), kind.read_options(model)
    keys, kind = kind.keys, family(kind.with_options(options))
    if settings["protection"] in kind.lacks:
        word = settings["protection"]
        raise settings.error("protection", f"{word!r} {kind.lacks[word]}")
    algorithm = _algorithm(settings, kind)
    made = family(kind.trained_by(algorithm))
    if not kind.adds_up:
        _check_no_sum(added, kind)
    elif seals(algorithm):
        _check_sealed(settings)
    else:
        _check_sum(added, algorithm, settings, kind, holders)
    if run["statistics"]:
        _check_statistics(settings, loss, made, algorithm)
    # Masks also between two parties, from whom they hide nothing: no sum between organisations is a plain one, unless
    # the job asks for it by name.
    usual = PLAIN if settings["protection"] == PLAIN or not kind.adds_up else kind.masks
    sum_name = usual if added["kind"] == "auto" else added["kind"]
    folds = fold_count(settings, made, loss, sum_name)
    if folds and settings["binning"] is not None:
        raise settings.error("binning", "learns bins from labels, which folds would have to do anew; leave folds out")
    reading = family_of_kind(settings["model"]["kind"]).read_options
    grid, candidates = candidates_of(settings, Section(_KIND, *keys), reading, algorithm)
    job = Job(
        settings["name"],
        {name: parties[name]["address"] for name in names},
        holders,
        made.name,
        options,
        loss,
        algorithm,
        sum_name,
        added["topology"],
        alignment["kind"] == "none",
        alignment["minimum"],
        settings["validation"]["part"],
        run["deadline"],
        run["grace"],
        run["patience"],
        run["checkpoint_every"],
        {**settings.plain(), "model": model.plain(), "protection": protection_of(made.name, sum_name)},
        run["statistics"],
        {name: parties[name]["serving"] for name in names if parties[name]["serving"] is not None},
        *bins_and_points(settings, loss, made, holders),
        folds,
        settings["validation"]["scoring"],
        grid,
        candidates,
        _defences(settings),
        alignment["method"],
        alignment["duplicates"],
        alignment["keep"],
    )
    _check_alignment(alignment, job)
    _check_trees(added, job)
    _check_trainable(settings, job, made)
    return job


def _check_alignment(alignment: Settings, job: Job) -> None:
    """Refuse forms and joins that a job does not know, and what repeated rows of a person do not go with."""
    count, method = len(job.parties), job.method
    if method in (TRANSFER, SERVED) and count > 2:
        raise alignment.error("method", f"{method!r} aligns two parties, and there are {count}; leave it out")
    if job.keep and count > 2:
        raise alignment.error("keep", f"is for two parties, and there are {count}; leave it out")
    if job.keep and (job.aligned or method not in (AUTO, SERVED)):
        what = "rows that are aligned already" if job.aligned else f"method {method!r}, which keeps nothing"
        raise alignment.error("keep", f"has no meaning for {what}; remove it")
    if alignment["join"] != INNER:
        raise alignment.error(
            "join",
            "'left' is for align_parties in Python, where a model is used on rows that are joined before: a job asks "
            "about people by their ids, and has no score for whom a partner does not know; leave it out, and the rows "
            "that all parties have are used",
        )
    if job.duplicates == EXPAND and job.aligned:
        raise alignment.error("duplicates", "has no meaning for rows that are aligned already; remove it")
    if job.duplicates == EXPAND and job.folds:
        raise alignment.error(
            "duplicates",
            "'expand' does not go with folds, which would train on one row of a person and be judged by another; leave "
            "folds out, or use part under [validation], which holds people out as a whole",
        )
    if job.duplicates == EXPAND and job.family == "transfer":
        raise alignment.error(
            "duplicates",
            "'expand' does not go with transfer learning, whose sums over rows hide a person who has one of many rows, "
            "and not one who has many of them; leave it out, and have each person in one row",
        )


def _check_addresses(parties: Settings, names: list[str]) -> None:
    """Refuse an address that somebody has already, and one to serve at where there is none to train at."""
    known: dict[str, str] = {}
    for name in names:
        party = parties[name]
        if party["serving"] is not None and party["address"] is None:
            raise party.error("serving", "is where a model is used, and there is no address to train at; give it one")
        for key in ("address", "serving"):
            if party[key] in known:
                raise party.error(key, f"{known[party[key]]!r} has the same one; give each its own")
            if party[key] is not None:
                known[party[key]] = name


def _check_trees(added: Settings, job: Job) -> None:
    """Refuse trees of the job's own that do not fit its parties and its sum, or are not safe."""
    try:
        check_topology(job.topology, job.parties, job.holders, SUMS[job.sum].trees)
    except OptionError as error:
        raise added.error("topology", str(error).removeprefix("topology ")) from None


def _check_keys(model: Settings, kind: Family) -> None:
    """Refuse keys that have a meaning only for other families."""
    known = {key.name for key in kind.keys}
    for key in _MODEL_KEYS:
        if key in model.given and key not in known:
            raise model.error(key, f"has no meaning for kind {model['kind']!r}; remove it")


def _check_trainable(settings: Settings, job: Job, made: Family) -> None:
    """Refuse what the model's family or its algorithm can't train, at the key that has to change."""
    model = settings["model"]
    if getattr(job.model, "patience", None) is not None and not job.validation:
        words = "stops training by held-out rows, and the job holds none out; add part = 0.2 under [validation]"
        raise model.error("patience", f"{words}, or remove it")
    try:
        for number in range(job.tries):
            job.candidate(number).training(1).check(model["kind"], job.parties)
    except LabelError:
        if made.one_holder:
            names = " and ".join(map(repr, job.holders))
            words = f"a {made.called} model has one label holder, and {names} hold labels"
            raise settings.error("parties", f"{words}; set labels = true for one of them only") from None
        if seals(job.algorithm):
            words = f"sealed training has one label holder, the job has {len(job.holders)}; set another protection"
            raise settings.error("protection", words) from None
        words = f"{job.algorithm.name} has one label holder, the job has {len(job.holders)}; use another algorithm"
        raise settings.error("algorithm", words) from None
    except OptionError as error:
        keys = family_of_kind(model["kind"]).keys
        key = next((key.name for key in keys if str(error).startswith(key.name)), None)
        where, key = (settings, "algorithm") if key is None else (model, key)
        raise where.error(key, str(error).removeprefix(f"{key} ")) from None


def _check_sealed(settings: Settings) -> None:
    """Refuse what has no effect beside sealed training: how sums are made."""
    added = settings["sum"]
    for key, usual in (("kind", "auto"), ("topology", "tree")):
        if added[key] != usual:
            raise added.error(
                key,
                "has no effect with protection 'sealed', which adds up shares; remove it, or set another protection",
            )


def _check_no_sum(added: Settings, kind: Family) -> None:
    """Refuse a sum where no scores are added up."""
    for key in ("kind", "topology"):
        if key in added.given and added[key] not in ("auto", "tree"):
            raise added.error(key, f"has no effect on a {kind.called} model, whose scores are not sums; remove it")


def _check_sum(
    added: Settings, algorithm: Training, settings: Settings, kind: Family, holders: tuple[str, ...]
) -> None:
    """Refuse a sum that the protection excludes, and encrypted signals that do not go with the rest of the job."""
    word, given = settings["protection"], added["kind"]
    if word == PLAIN and given not in ("auto", PLAIN):
        words = f"protection 'plain' adds up in the clear, got {given!r}; remove it, or set protection = \"masked\""
        raise added.error("kind", words)
    if word == MASKED and given == PLAIN:
        words = "protection 'masked' adds up under masks, got 'plain'; remove it, or set protection = \"plain\""
        raise added.error("kind", words)
    if added["kind"] != ENCRYPTED:
        return
    if not kind.encryptable:
        words = f"{ENCRYPTED!r} encrypts the signals of linear models; a {kind.called} model takes another sum"
        raise added.error("kind", words)
    try:
        algorithm.check_sum(added["kind"])
    except OptionError as error:
        raise settings.error("algorithm", str(error)) from None
    try:
        check_penalty(added["kind"], holders, "elasticnet" if settings["model"]["l1"] else settings["model"]["penalty"])
    except OptionError as error:
        raise settings["model"].error("penalty", str(error)) from None


def _check_statistics(settings: Settings, loss: str, made: Family, algorithm: Training) -> None:
    """Refuse statistics of models without a likelihood, one linear score, and a convex penalty."""
    model, run = settings["model"], settings["run"]
    if seals(algorithm):
        words = 'they would show what sealed training hides; remove it, or set protection = "masked"'
        raise run.error("statistics", words)
    linear = made.name == LinearFamily.name
    if loss.split(" ", maxsplit=1)[0] not in LIKELIHOODS or not linear:
        kind = model["kind"] if linear or made.kinds else algorithm.name
        have = "logistic, ridge, poisson, gamma, tweedie and negative-binomial"
        raise run.error("statistics", f"models of the kinds {have} have them, {kind} has none")
    if model["penalty"] != "l2" or model["l1"]:
        had = f"{model['penalty']!r}" + (" and l1" if model["l1"] else "")
        raise run.error("statistics", f"they need penalty 'l2' without l1, the model has {had}")
    if model["penalise_intercept"]:
        raise run.error("statistics", "they need an intercept without a penalty; remove penalise_intercept")


def _algorithm(settings: Settings, of: Family) -> Training:
    table = settings["algorithm"]
    kind, word, by = _KINDS.get(table["kind"]), settings["protection"], sealing(of)
    if word == SEALED and kind not in (None, by):
        words = f"protection 'sealed' trains with {by and by.name}, got {table['kind']!r}; remove it, or set another"
        raise table.error("kind", f"{words} protection")
    if word in (MASKED, PLAIN) and kind is not None and seals(kind):
        words = f"{kind.name} is sealed training, and the job has protection {word!r}; remove one of them"
        raise table.error("kind", words)
    if word == SEALED:
        kind = by
    if kind is None:  # "auto"
        kind = of.default_algorithm(encrypted=settings["sum"]["kind"] == ENCRYPTED)
        if word == PLAIN and seals(kind):
            kind = next(one for one in of.algorithms if not seals(one))
    if kind not in of.algorithms:
        names = [one.name for one in of.algorithms]
        fits = " or ".join(names) if len(names) < 3 else ", ".join(names)
        raise table.error("kind", f"a model of kind {settings['model']['kind']!r} is trained by {fits}")
    known = {field.name for field in fields(kind)}
    options = {name: value for name, value in table.items() if name != "kind"}
    for name, value in options.items():
        if name not in known:
            raise table.error(name, f"{kind.name} has no such option; it has {', '.join(sorted(known))}")
        if isinstance(value, int) and abs(value) >= _LARGEST:
            raise table.error(name, f"must be a number of 64 bits at most, got {shown(value)}")
    try:
        return kind(**options)
    except OptionError as error:
        given = [name for name in options if str(error).startswith((name, f"{kind.name} takes no {name}"))]
        named = given[0] if given else "kind"
        raise table.error(named, str(error)) from None
    except TypeError:
        raise settings.error("algorithm", f"an option of {kind.name} has a value of the wrong kind") from None


def _defences(settings: Settings) -> tuple[Defence, ...]:
    """Return what each [defence.NAME] says, or refuse it at its key."""
    table, found = settings["defence"], []
    for name, options in ({} if table is None else table).items():
        try:
            found.append(defence(name, options.plain()))
        except OptionError as error:
            key = next((key for key in options if str(error).startswith(f"{key} ")), None)
            where, key = (table, name) if key is None else (options, key)
            raise where.error(key, str(error).removeprefix(f"{key} ")) from None
    told = {
        "binning": "bins are counted by true labels",
        "search": "a search chooses by true labels",
        "folds": "every fold would tell of them anew",
        "statistics": "statistics are of true labels",
    }
    given = {
        "binning": settings["binning"],
        "search": list(settings["search"]),
        "folds": settings["validation"]["folds"],
        "statistics": settings["run"]["statistics"],
    }
    for one in found:
        for key, why in told.items():
            if given[key] and one.hides_labels:
                raise settings["defence"].error(one.name, f"hides labels, and {why}; remove one of the two")
    return tuple(found)


def _check_disclosed(settings: Settings, job: Job) -> None:
    """Refuse a list of what is disclosed that lacks something or has too much: nobody should need the papers."""
    told, real = settings["disclosed"], job.disclosed()
    if HELD_OUT in real and HELD_OUT not in told:
        key = "folds" if job.folds else "part"
        raise settings["validation"].error(
            key,
            f"a metric on held-out rows shows {job.holders[0]!r} their scores, which protection {job.protection!r} "
            f'opens to nobody unless the job says so; add "{HELD_OUT}" to disclosed, or remove {key}',
        )
    if lacking := [what for what in real if what not in told]:
        old = set(told) <= set(FIRST_NAMES) and not set(lacking) & set(FIRST_NAMES)
        since = " (lists of version 0.1 were not complete)" if old else ""
        names, it = ", ".join(f'"{what}"' for what in lacking), "it" if len(lacking) == 1 else "them"
        raise settings.error(
            "disclosed",
            f"{job.algorithm.name} on this job discloses {names}, which the list lacks{since}; add {it}, or change the "
            f"job",
        )
    for at, what in enumerate(told):
        if what not in real:
            raise settings.error(
                ("disclosed", at), f"this job does not disclose {what!r}; it discloses {', '.join(map(repr, real))}"
            )
