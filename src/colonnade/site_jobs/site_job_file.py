"""`job.toml` of a job between sites: organisations with the same columns about different people.

    version = 1
    name = "trial"
    disclosed = [...]
    [sites.clinic-a]          # no address: it only dials out
    [sites.clinic-b]
    [sites.clinic-c]
    [sites.hub]
    address = "hub.example.org:7443"
    asks = true               # whoever asks the others: exactly one does
    rows = false              # it brings no rows itself
    [model]
    hidden = 32

Every organisation has the same file. Steps that prepare columns stand here, as they must be the same at all sites.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from colonnade.errors import ColonnadeError, InputError, OptionError
from colonnade.families import family
from colonnade.families.protection import MASKED, PLAIN, PROTECTIONS
from colonnade.families.rows import RowsFamily, RowsOptions
from colonnade.horizontal.messages import METHODS
from colonnade.jobs.job_file import JOB, address, party_name
from colonnade.settings import toml
from colonnade.settings.settings import Anything, Key, ListOf, Section, Settings
from colonnade.site_jobs.common_steps import check_steps
from colonnade.site_jobs.problem_text import constraint_of, objective_of
from colonnade.site_jobs.site_job import SiteJob
from colonnade.tables import preparation

NETWORK, LAYERS = "network", "layers"
_FEWEST_SITES = 2

SITE_JOB = Section(
    *(JOB.keys[name] for name in ("version", "name", "disclosed")),
    Key("protection", str, default=MASKED, allowed=PROTECTIONS),
    Key(
        "sites",
        Section(
            others=Key(
                "site",
                Section(
                    Key("address", str, check=address),
                    Key("asks", bool, default=False),
                    Key("rows", bool, default=True),
                ),
            )
        ),
        required=True,
    ),
    Key("columns", ListOf(str, 1)),
    Key(
        "model",
        Section(
            Key("kind", str, default=LAYERS, allowed=(LAYERS, NETWORK)),
            Key("hidden", int, default=RowsOptions.hidden, least=0),
            Key("l2", float, least=0),
            Key("intercept", bool, default=True),
            Key("cost_limit", (float, Section(others=Key("class", float, above=0)))),
            Key("objective", str),
            Key("constraints", ListOf(str, 1)),
            Key("classes", ListOf((str, int), 2)),
        ),
        default={},
    ),
    Key("prepare", preparation.SECTION),
    Key(
        "algorithm",
        Section(Key("kind", str, default="auto", allowed=("auto", *METHODS)), others=Key("option", Anything)),
        default={},
    ),
    Key("validation", Section(Key("part", float, default=0.0, least=0, most=0.9)), default={}),
    Key(
        "run",
        Section(
            Key("minimum_sites", int, least=1),
            Key("deadline", float, default=60.0, above=0),
            Key("grace", float, default=10.0, above=0),
            Key("patience", float, default=600.0, above=0),
            Key("checkpoint_every", int, default=1, least=1),
        ),
        default={},
    ),
)


def read_site_job(path: Path) -> SiteJob:
    """Read and check a job file; whatever is wrong is said in one sentence with file, line and key."""
    settings = toml.read(path, SITE_JOB)
    job = described_sites(settings)
    told, real = settings["disclosed"], job.disclosed()
    if lacking := [what for what in real if what not in told]:
        names = ", ".join(f'"{what}"' for what in lacking)
        it = "it" if len(lacking) == 1 else "them"
        raise settings.error("disclosed", f"this job discloses {names}, which the list lacks; add {it}")
    for at, what in enumerate(told):
        if what not in real:
            words = f"this job does not disclose {what!r}; it discloses {', '.join(map(repr, real))}"
            raise settings.error(("disclosed", at), words)
    return job


def described_sites(settings: Settings) -> SiteJob:
    """Return the job that these settings describe, whatever they list as disclosed."""
    parties, word = settings["sites"], settings["protection"]
    names = sorted(parties)
    server, sites = _who_is_who(settings, parties, names)
    if word in family(RowsFamily.name).lacks:
        raise settings.error("protection", f"{word!r} {family(RowsFamily.name).lacks[word]}")
    check_steps(settings["prepare"])
    options = _model(settings["model"])
    added, run = PLAIN if word == PLAIN else "pairwise", settings["run"]
    job = SiteJob(
        settings["name"],
        {name: parties[name]["address"] for name in names},
        sites,
        RowsFamily.name,
        options,
        "softmax",
        _method(settings["algorithm"]),
        added,
        "star",
        aligned=True,
        minimum=1,
        validation=settings["validation"]["part"],
        deadline=run["deadline"],
        grace=run["grace"],
        patience=run["patience"],
        checkpoint_every=run["checkpoint_every"],
        agreed={**settings.plain(), "protection": word},
        server=server,
        minimum_sites=_minimum(run, sites),
        prepare=settings["prepare"],
        columns=tuple(settings["columns"] or ()),
        classes=tuple(settings["model"]["classes"] or ()),
    )
    if len(set(job.columns)) < len(job.columns):
        raise settings.error("columns", "names a column twice; name each once")
    _check_solvable(settings, job)
    return job


def _who_is_who(settings: Settings, parties: Settings, names: list[str]) -> tuple[str, tuple[str, ...]]:
    """Return (who asks, who has rows)."""
    for name in names:
        if trouble := party_name(name):
            raise parties.error(name, f"the name of a site {trouble}, got {name!r}")
    asking = [name for name in names if parties[name]["asks"]]
    if len(asking) != 1:
        told = f"{' and '.join(map(repr, asking))} ask" if asking else "nobody asks"
        raise settings.error("sites", f"exactly one party asks the others, and {told}; set asks = true for one")
    server = asking[0]
    for name in names:
        if not parties[name]["rows"] and name != server:
            raise parties[name].error("rows", f"only who asks may be without rows, and that is {server!r}; remove it")
    sites = tuple(name for name in names if parties[name]["rows"])
    if len(sites) < _FEWEST_SITES:
        raise settings.error("sites", f"a job has two sites with rows or more, got {len(sites)}; add a [sites.NAME]")
    known: dict[str, str] = {}
    for name in names:
        given = parties[name]["address"]
        if given is None and name != server and parties[server]["address"] is None:
            words = f"{server!r}, which asks, has no address either, so neither can dial the other; give it one"
            raise parties.error(name, words)
        if given in known:
            raise parties[name].error("address", f"{known[given]!r} has the same one; give each its own")
        if given is not None:
            known[given] = name
    return server, sites


def usual_minimum(sites: int) -> int:
    """Return how many of so many sites have to answer where nobody says: all but one, and never fewer than three.

    Of three parts nobody who has one of them can tell the other two apart.
    """
    return min(sites, max(3, sites - 1))


def _minimum(run: Settings, sites: tuple[str, ...]) -> int:
    given = run["minimum_sites"]
    if given is None:
        return usual_minimum(len(sites))
    least = max(_FEWEST_SITES, len(sites) // 2 + 1)
    if not least <= given <= len(sites):
        words = (
            f"must be between {least} and the {len(sites)} sites, got {given}: sites answer to no server that could "
            f"tell two halves of them different things"
        )
        raise run.error("minimum_sites", words)
    return int(given)


def _model(given: Settings) -> RowsOptions:
    network = given["kind"] == NETWORK
    for key in ("hidden", "intercept") if network else ():
        if key in given.given:
            raise given.error(key, "says what layers there are, and a network is each site's own; remove it")
    if len({type(one) for one in given["classes"] or ()}) > 1:
        raise given.error("classes", "must be all texts or all whole numbers, as the labels are")
    limit = given["cost_limit"]
    for key, read in (("objective", objective_of), ("constraints", constraint_of)):
        texts = [given[key]] if isinstance(given[key], str) else given[key] or []
        for at, text in enumerate(texts):
            try:
                read(text)
            except InputError as error:
                raise given.error(key if key == "objective" else (key, at), str(error)) from None
    return RowsOptions(
        given["hidden"],
        given["l2"],
        given["intercept"],
        tuple(limit.plain().items()) if isinstance(limit, Settings) else limit,
        given["objective"] or "",
        tuple(given["constraints"] or ()),
        network,
    )


def _method(table: Settings) -> Any:
    """Return the algorithm; "auto" is SSCA."""
    kind: Any = METHODS.get(table["kind"], METHODS["SSCA"])
    known = {field.name for field in fields(kind)} - {"threshold"}
    options = {name: value for name, value in table.items() if name != "kind"}
    for name in options:
        if name == "threshold":
            raise table.error(name, "is minimum_sites under [run] in a job; set that")
        if name not in known:
            raise table.error(name, f"{kind.name} has no such option; it has {', '.join(sorted(known))}")
    try:
        return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in options.items()})
    except OptionError as error:
        named = next((name for name in options if str(error).startswith(name)), "kind")
        raise table.error(named, str(error).removeprefix(f"{named} ")) from None
    except TypeError:
        raise table.error("kind", f"an option of {kind.name} has a value of the wrong kind") from None


def _check_solvable(settings: Settings, job: SiteJob) -> None:
    """Refuse a model that no algorithm of sites trains, with this algorithm and so many sites."""
    made = job.estimator()
    try:
        made.check_options(len(job.sites))
        stated = job.stated()
    except ColonnadeError as error:
        table = settings["model"]
        key = next((key for key in table if str(error).startswith(key)), None)
        if key is None:
            raise settings.error("algorithm", str(error)) from None
        raise table.error(key, str(error).removeprefix(f"{key} ")) from None
    strange = [key for key in stated.rows.keys if job.classes and key not in job.classes]
    if strange:
        raise settings["model"].error(
            "classes", f"a cost or its limit names the class {strange[0]!r}, which is none of them; add it"
        )
