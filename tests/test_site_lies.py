"""A site that answers with numbers which no rows have: the run ends with a sentence, and never with a traceback."""

from __future__ import annotations

import numpy as np
import pytest

import colonnade as cn
from colonnade.errors import ProtocolError
from colonnade.horizontal.messages import SURVEY
from colonnade.site_jobs.agreed import Introduction
from colonnade.site_jobs.programs import answer, ask
from site_federation import HEAD, digest_of, job_of, seat_of, write_clinics

BRIEF = "[algorithm]\nrounds = 2\nbatch = 20\nevaluate_every = 1\nseed = 5\n"
SHARE = np.uint64(2**36)  # the whole of all rows in the fixed point of a sum of shares


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("clinics")
    write_clinics(found, (40, 30, 35))
    return found


def lying(seat, kind, lie):
    """A seat whose parts of one kind of sum are what `lie` makes of them, before any mask is added."""

    def after(hear):
        def heard(*told):
            hear(*told)
            honest = seat._work._encoded
            seat._work._encoded = lambda asked, *content: (
                lie(honest(asked, *content)) if asked == kind else honest(asked, *content)
            )

        return heard

    seat.hear_who, seat.hear_agreed = after(seat.hear_who), after(seat.hear_agreed)
    return seat


def run(job, folder, kind, lie):
    seats = {name: seat_of(job, name, folder) for name in job.sites}
    lying(seats["clinic-b"], kind, lie)

    def program_of(name):
        async def program(net):
            if name == job.server:
                await ask(net, job, None, digest_of(job))
            else:
                await answer(net, job, seats[name], digest_of(job))

        return program

    cn.Simulation().run({name: (program_of(name), ()) for name in job.parties}, spare=job.sites)


def fewer(part):
    return np.zeros_like(part) - np.uint64(10**6)


def a_share_less(part):
    return np.zeros_like(part) - np.uint64(10) * SHARE


def more_right_than_rows(part):
    return part + np.uint64(3) * SHARE * (np.arange(len(part)) % 3 == 1).astype(np.uint64)  # cost, right


@pytest.mark.parametrize("protection", ["masked", "plain"])
@pytest.mark.parametrize(
    ("kind", "lie", "sentence"),
    [
        (SURVEY, fewer, r"counts of column 'age' add up to -\d+, which no rows do: one of them does not follow"),
        ("count", fewer, r"the answers of the sites add up to -\d+ rows in all, .* which no rows do"),
        ("count", lambda part: part + np.uint64(2**60), r"add up to no share of all rows, which no rows do"),
        ("evaluate", a_share_less, r"add up to a share of -9.* of all rows, .* which no rows do"),
        (
            "evaluate",
            more_right_than_rows,
            r"add up to a share of 1 of all rows, of which 3.* are right, which no rows",
        ),
    ],
    ids=["a survey", "counts", "too many rows", "shares", "right ones"],
)
def test_numbers_that_no_rows_have_end_the_run_in_a_sentence(folder, protection, kind, lie, sentence):
    head = HEAD.replace("disclosed", f'protection = "{protection}"\ndisclosed', 1)
    with pytest.raises(ProtocolError, match=sentence):
        run(job_of(head=head, algorithm=BRIEF), folder, kind, lie)


@pytest.mark.parametrize("level", [np.nan, np.inf])
def test_categories_are_finite(level):
    """A NaN is another one than itself, so that no site could be asked about it again."""
    with pytest.raises(ProtocolError, match="site 'x' must introduce itself"):
        Introduction.from_value(((("n", "numbers", (1.0, float(level))),), ("a", "b"), (b"", b"", b"")), "x")


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (2, np.nan, "about parameters that are not finite: training has diverged, or the server does not follow"),
        (3, np.nan, "counts of rows that no rows have"),
        (3, 0.0, "counts of rows that no rows have"),
        (3, -1.0, "counts of rows that no rows have"),
    ],
)
@pytest.mark.parametrize("kind", ["step", "evaluate"])
def test_a_server_that_asks_with_such_numbers_is_named(folder, kind, place, value, sentence):
    job = job_of(head=HEAD.replace("disclosed", 'protection = "plain"\ndisclosed', 1), algorithm=BRIEF)
    found = {}
    seats = {name: seat_of(job, name, folder) for name in job.sites}

    class Wrong:
        """The server's net, which changes the numbers that it asks clinic-a with."""

        def __init__(self, net):
            self._net = net

        def __getattr__(self, name):
            return getattr(self._net, name)

        async def send(self, to, tag, message):
            if to == "clinic-a" and message[0] == "task" and message[2][0] == kind:
                content = [*message[2]]
                content[place] = np.full_like(content[place], value)
                message = (*message[:2], tuple(content))
            await self._net.send(to, tag, message)

    def program_of(name):
        async def program(net):
            if name == job.server:
                found[name] = await ask(Wrong(net), job, None, digest_of(job))
            else:
                found[name] = await answer(net, job, seats[name], digest_of(job))

        return program

    with pytest.raises(ProtocolError, match=sentence):
        cn.Simulation().run({name: (program_of(name), ()) for name in job.parties}, spare=job.sites)
