"""What `colonnade predict` and `colonnade serve` do: a trained model in use."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass
from colonnade.cli.terminal import in_json, log, read_files, say


def predict_people(options: argparse.Namespace) -> int:
    """Score people, and return the exit code."""
    from colonnade.jobs.score_file import check_place, write
    from colonnade.service.serving import predict

    check_place(options.out)
    job, party = read_files(options)
    log()
    scores = predict(job, party, options.data, options.version, lambda text: say(f"{party.name}: {text}"))
    write(scores, options.out)
    unknown = int((~scores.known).sum())
    note = f"; {unknown:,} of them have no score, as not every party knows and serves them" if unknown else ""
    say(f"{party.name}: scored {len(scores.ids):,} people, in {options.out}{note}")
    return 0


def serve_people(options: argparse.Namespace) -> int:
    """Answer until somebody stops it, and return the exit code."""
    from colonnade.errors import OptionError
    from colonnade.integrations.json_lines import said
    from colonnade.service.serving import again_and_again, serve_http, serve_once

    job, party = read_files(options)
    log(options)

    def tell(text: str) -> None:
        say(f"{party.name}: {text}")
        if in_json(options):
            said(text)

    if options.http:
        serve_http(job, party, options.http, tell, public=options.public, version=options.version)
        return 0
    if options.public:
        raise OptionError("--public says where HTTP may be served; give --http HOST:PORT too, or leave it out")
    if job.holders == (party.name,):
        raise OptionError(
            f"{party.name!r} is the only label holder, so nobody else asks for scores; use `colonnade predict`, or "
            "give --http HOST:PORT to answer your own programs"
        )
    asker = options.asker or job.holders[0]
    if asker not in job.holders or asker == party.name:
        raise OptionError(
            f"the asker must be another label holder, got {asker!r}; label holders: {', '.join(job.holders)}"
        )
    tell(f"serving {asker}")

    def serve() -> None:
        tell(f"answered about {serve_once(job, party, asker, tell, options.version):,} people")

    if options.once:
        serve()
    else:
        again_and_again(serve, tell)
    return 0
