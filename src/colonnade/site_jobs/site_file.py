"""A party's own file in a job between sites: the keys of every party's file that have a meaning for it.

A site has [data] with a label; who asks without rows has none. Steps that prepare columns stand in job.toml, and
`[policy] min_rows` says of how few rows a site tells nothing.
"""

from __future__ import annotations

from pathlib import Path

from colonnade.events.watch_keys import watch_keys
from colonnade.jobs.party_file import PARTY, PartyFile, certificates_of, policy_of
from colonnade.settings import toml
from colonnade.settings.settings import Key, Section, check
from colonnade.site_jobs.site_job import SiteJob
from colonnade.tables import data

_ELSEWHERE = {
    "prepare": "must be the same at all sites, so it stands under [prepare] in job.toml; move it there",
    "trees": "is for boosted trees, which sites do not train; remove this table",
    "decision": "is for models over columns; remove this table",
    "answers": "is for scores that are asked for, and a site scores by itself; remove this table",
    "engine": "is for models over columns; remove this table",
    "audit": "records what a party sees of a model over columns; remove this table",
    "listen_serving": "is where a model is used with others, and a site uses its own by itself; remove it",
}
SITE = Section(
    *(PARTY.keys[name] for name in ("name", "listen", "folder", "certificates", "policy", "watch")),
    Key("data", data.SECTION),
    Key("network", Section(Key("build", str, required=True))),
    gone=_ELSEWHERE,
)


def read_site(path: Path, job: SiteJob, expected: str | None = None) -> PartyFile:
    """Read and check a party's file, also against the job, and whose it is expected to be."""
    settings = toml.read(path, SITE)
    name, base = settings["name"], settings.origin.folder
    if expected is not None and name != expected:
        raise settings.error(
            "name", f"this file is of {name!r} and not of {expected!r}; give the right one with --file"
        )
    if name not in job.parties:
        known = ", ".join(map(repr, job.parties))
        raise settings.error("name", f"{name!r} is no party of the job; parties are {known}")
    rows, given = settings["data"], name in job.sites
    if (rows is not None) != given:
        needs = "brings rows, so say where they are" if given else "brings no rows (rows = false); remove this table"
        raise settings.error("data", f"the job says that {name!r} {needs}")
    if rows is not None and rows["label"] is None:
        raise rows.error("label", f"every site has labels, so name the column of {name!r} with them")
    for key in ("weight", "class_weight", "offset", "exposure"):
        if rows is not None and rows[key] is not None:
            raise rows.error(key, "learning over rows takes no weights or offsets of rows; remove it")
    if rows is not None and rows["memory"] is not None:
        raise rows.error("memory", "a site's prepared columns are in memory; remove it")
    own = settings["network"]
    if (own is not None) != job.model.network:
        trains = 'trains networks, so name the function that makes this party\'s: build = "file.py:name"'
        raise settings.error("network", f"the job {trains if own is None else 'trains no networks; remove this table'}")
    rules = settings["policy"]
    if rules["max_advantage"] is not None:
        raise rules.error("max_advantage", "is held against audits of models over columns, and this is none; remove it")
    network = None
    if own is not None:
        where, _, function = own["build"].partition(":")
        if not function:
            raise own.error("build", f"must be 'file.py:name' or 'module:name', got {own['build']!r}")
        network = f"{base / where if where.endswith('.py') else where}:{function}"
    return PartyFile(
        name,
        settings["listen"],
        base / (settings["folder"] or f"{name}-files"),
        check({}, data.SECTION) if rows is None else rows,
        None,
        certificates_of(settings["certificates"], base),
        policy_of(rules, base),
        network,
        watch=watch_keys(settings["watch"]),
    )
