"""`colonnade init --sites`: a folder with a job between sites, a file for each, and test certificates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from colonnade.errors import OptionError, one_of
from colonnade.families import family
from colonnade.families.protection import MASKED, PLAIN, PROTECTIONS, check_word
from colonnade.families.rows import RowsFamily
from colonnade.jobs.bundle import bundle
from colonnade.jobs.consent import disclosed_of
from colonnade.jobs.init import written_into
from colonnade.jobs.job_file import party_name
from colonnade.leaks import LISTED
from colonnade.settings import toml
from colonnade.site_jobs.site_job_file import LAYERS, NETWORK, SITE_JOB, described_sites, usual_minimum

_PORT = 7443
_JOB = """\
# What all sites agree on: organisations with the same columns about different people. Every one has this same file;
# before anything private is read, their contents are compared, and a difference is named.
version = 1
name = "{name}"

# "masked": who asks sees the answers of all sites as one sum. "plain": it sees each site's own. Each site's [policy]
# must agree to it.
protection = "{protection}"

# What the others learn of a site's rows beside the model. It must be complete: see docs/security.md.
disclosed = [
{disclosed}]

# columns = ["age", "bmi"]   # that every site brings; by default all that they have, which must be the same

# Who takes part. asks: who asks all others, exactly one. rows = false: it brings no rows itself. address: where it can
# be dialled; sites have lines to who asks and to nobody else, so they need none.
{sites}[model]
kind = "{kind}"{pad}# "layers": a hidden layer, or none; "network": a torch module that every site makes itself
{layers}# l2 = 1e-5               # weight of |w|^2
# classes = ["ill", "well"]  # all of them, where not every site has rows of each
# cost_limit = 0.5         # the shortest model whose cost is at most this; or {{ ill = 0.4, well = 0.6 }}
# objective = "cost() + 0.1 * cost('ill')"
# constraints = ["squared_norm() <= 50"]

# How all sites prepare their columns, learned from sums over all of them. By default numbers are imputed with their
# mean and standardised, and texts become one column per category.
# [prepare]
# default = [{{ impute = "mean" }}, "standardise"]
# bmi = [{{ clip = [10, 60] }}, {{ impute = 27 }}, "standardise"]
# ward = [{{ one-hot = {{ least = 10 }} }}]

[algorithm]
kind = "auto"              # SSCA; or FedAvg, MiniBatchSGD, ParallelRestartedSGD: docs/horizontal.md
rounds = 100
batch = 100                # rows of a site's mini-batch
seed = 0
# wait = 8                 # seconds that a site may be silent before it is left out of a round

[validation]
part = 0.2                 # of every site's own rows, held out for the history

[run]
minimum_sites = {minimum}          # that have to answer, so that a round counts; with fewer the run waits for them
                           # (with two, each works out the other's part of a sum, and disclosed has to say so)
deadline = 60              # seconds of silence after which a site gives up who asks
grace = 10                 # seconds that a line may be down
patience = 600             # seconds to wait for the others at the start, and for those who are away
checkpoint_every = 1       # rounds, at who asks
"""
_LAYERS = """\
hidden = 32                # cells of the hidden layer; 0: none, which is softmax regression
# intercept = true
"""
_CONSENT = {
    MASKED: """\
protection = ["masked"]   # how training may be protected; "masked": who asks sees sums over all sites that answer
""",
    PLAIN: """\
protection = ["masked", "plain"]   # how training may be protected; "plain": who asks sees this site's own sums
""",
}
_HEAD = """\
# Private: what is {name}'s own business. Paths are relative to this file. The others never see it.
name = "{name}"
folder = "{name}-files"   # ledger, this party's key, and the model
# listen = "0.0.0.0:{port}"   # if that differs from the address in job.toml, behind a gateway

"""
_DATA = """\
[data]
source = "{name}.csv"     # .csv or .parquet; or sql = "SELECT ..." over files or a database
label = "label"           # rows without one are left out
# id = "id"               # a column that is no feature: what scores are named by
# exclude = ["name"]      # or columns = ["age", "bmi"]

"""
_NETWORK = """\
[network]                 # a function make(features, classes) -> torch.nn.Module, the same at all sites, in a file here
build = "{name}_network.py:make"

"""
_CERTIFICATES = """\
[certificates]            # these are for tests only; ask your own authority for real ones
authority = "certificates/authority.pem"
certificate = "certificates/{name}.pem"
key = "certificates/{name}.key"
# revoked = "certificates/revoked.pem"   # the authority's list of revoked certificates; an old one lets nobody in

# [watch]                 # what follows this party's runs, with its own view alone; see docs/integrations.md
# mlflow = "http://127.0.0.1:5000"
# prometheus = "{name}.prom"

[policy]                  # what may leave this party, whatever job.toml says
"""
_RULES = """\
{consent}min_rows = 5              # rows that this site answers about, at least: in all, of a column, of a category
min_batch = 8             # rows of a batch, at least
min_features = 2          # columns that it takes part with, at least
max_rounds = 1000000      # of a run
# accept = [{accept}]
#                         # with such a list, every disclosure about this site has to be in it: these are the job's
# max_drift = 0.25        # refuse to score rows that are further from the training; see `colonnade drift`
"""


def init_sites(
    folder: Path,
    sites: Sequence[str],
    server: str = "",
    model: str = LAYERS,
    protection: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Path]:
    """Write the files of a new job between sites, and return their paths; for all but who asks, also bundles of them.

    Parameters
    ----------
    folder
        Where they go; its name is the name of the job.
    sites
        Who brings rows.
    server
        Who asks: one of them, or somebody without rows; "" is the first site.
    model
        "layers" or "network".
    protection
        "masked" or "plain"; None is "masked".
    tell
        Hears how training is protected.
    """
    if trouble := party_name(folder.name):
        raise OptionError(f"the name of a job {trouble}, got {folder.name!r}")
    if len(sites) < 2 or len(set(sites)) != len(sites):
        raise OptionError(f"a job has two or more sites, each once, got {', '.join(sites) or 'none'}")
    one_of("model", model, (LAYERS, NETWORK))
    word = protection or MASKED
    one_of("protection", word, PROTECTIONS)
    check_word(word, family(RowsFamily.name))
    server = server or sites[0]
    names = [server, *(name for name in sites if name != server)]
    for name in names:
        if trouble := party_name(name):
            raise OptionError(f"the name of a site {trouble}, got {name!r}")
    text = site_job_text(folder.name, sites, server, model, word)
    job = described_sites(toml.parse(text.encode(), SITE_JOB, "job.toml"))
    files = {}
    for name in names:
        accept = ", ".join(f'"{one}"' for one in disclosed_of(job, name))
        files[name] = site_text(name, rows=name in sites, model=model, protection=word, accept=accept)
    written = written_into(folder, text, files)
    for name in names[1:]:
        bundle(folder, name)
    tell(f'protection = "{word}"; {server} asks, and has a line to every site')
    return written


def site_job_text(name: str, sites: Sequence[str], server: str, model: str, protection: str) -> str:
    """Return the file of a job, with a complete list of what it discloses."""
    tables = ""
    for one in sorted({*sites, server}):
        asks = f'address = "127.0.0.1:{_PORT}"\nasks = true\n' if one == server else ""
        tables += f"[sites.{one}]\n{asks}" + ("" if one in sites else "rows = false\n") + "\n"
    layers = _LAYERS if model == LAYERS else ""
    known = {
        "name": name, "protection": protection, "sites": tables, "kind": model, "layers": layers,
        "minimum": usual_minimum(len(sites)), "pad": " " * (18 - len(model)),
    }  # fmt: skip
    job = described_sites(toml.parse(_JOB.format(disclosed="", **known).encode(), SITE_JOB, "job.toml"))
    told = "".join(f'  "{what}",  # {LISTED[what]}\n' for what in job.disclosed())
    return _JOB.format(disclosed=told, **known)


def site_text(name: str, *, rows: bool, model: str, protection: str, accept: str = "") -> str:
    """Return the file of a party; `rows` is whether it brings any."""
    own = _DATA.format(name=name) if rows else ""
    network = _NETWORK.format(name=name) if model == NETWORK else ""
    rules = _RULES.format(consent=_CONSENT[protection], accept=accept) if rows else "max_rounds = 1000000\n"
    return _HEAD.format(name=name, port=_PORT) + own + network + _CERTIFICATES.format(name=name) + rules
