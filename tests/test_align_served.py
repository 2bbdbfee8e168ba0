"""The alignment of few ids with many that are served again: its result, what is done once, attacks, broken runs."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import colonnade as cn
from colonnade.alignment import kept_tags, protocol, served
from colonnade.alignment.common_rows import folder_of
from colonnade.alignment.kept_tags import ServedIds
from colonnade.alignment.protocol import TIMES, align
from colonnade.alignment.served import prints_of, tags_of
from colonnade.alignment.tags import HEAPS, Tags, tags_of_server
from colonnade.crypto.group import Secret
from colonnade.data.ids import canonical, digests, pack
from colonnade.errors import (
    CheckpointError,
    ColonnadeError,
    OptionError,
    PolicyRefused,
    ProtocolError,
    TooFewInCommon,
    WrongShape,
)

SERVED, MANY = "served", 600


def numbers(*pieces, prefix="person "):
    return tuple(f"{prefix}{k}" for piece in pieces for k in piece)


FEW, ALL = numbers(range(590, 620)), numbers(range(MANY))


async def told_to_align(net, ids, keep, method=SERVED, most=2**31, minimum=1):
    return await align(net, ids, keep=keep, method=method, max_partner_ids=most, minimum=minimum)


def run(folder, lists=(FEW, ALL), on=None, program=told_to_align, **options):
    """{party: its rows, and what it sent} of parties a and b with these ids, and a folder each."""
    programs = {
        name: (program, (ids, str(folder / name), *options.values())) for name, ids in zip("ab", lists, strict=True)
    }
    return (on or cn.Simulation()).run(programs)


def common(folder, lists=(FEW, ALL), **options):
    """The ids that both found, which must be the same in the same order."""
    rows = run(folder, lists, **options)
    found = [[ids[row] for row in rows[name].value.tolist()] for name, ids in zip("ab", lists, strict=True)]
    assert found[0] == found[1]
    return found[0]


def steps(folder, **options):
    """{step: bytes} of a run."""
    outcomes = run(folder, **options)
    return {tag: size for one in outcomes.values() for tag, (_, size) in one.traffic.by_step.items()}


@pytest.fixture
def multiplied(monkeypatch):
    """How many ids each run has made points of, in the order of calls."""
    counts, mask = [], Secret.mask_digests

    def counted(self, hashes):
        counts.append(len(hashes))
        return mask(self, hashes)

    monkeypatch.setattr(Secret, "mask_digests", counted)
    return counts


def test_the_module_lists_every_message_of_this_form(tmp_path):
    sent = set(steps(tmp_path)) - {"goodbye"}
    listed = protocol.__doc__.partition("\n**served**")[2]
    assert sent == set(re.findall(r"^ {4}(align \w+)", listed, re.MULTILINE))


# -- exactness ---------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(lists=st.tuples(*[st.lists(st.integers(0, 30), min_size=1, max_size=25, unique=True)] * 2))
def test_like_pythons_own_sets(tmp_path_factory, lists):
    folder, texts = tmp_path_factory.mktemp("kept"), [numbers(ids) for ids in lists]
    truth = set(texts[0]) & set(texts[1])
    for _ in range(2):  # with tags that are made, and with those that were kept
        if truth:
            found = common(folder, texts)
            assert set(found) == truth
            assert len(found) == len(truth)
        else:
            with pytest.raises(TooFewInCommon, match="no id in common"):
                run(folder, texts)


@pytest.mark.parametrize("lists", [(FEW, ALL), (ALL, FEW), (FEW, FEW[::-1])], ids=["a asks", "b asks", "as many"])
def test_the_same_rows_in_the_same_order_as_by_other_forms(tmp_path, lists):
    for on in (cn.Simulation(), cn.Processes()):
        rows = run(tmp_path, lists, on)
        for method in ("diffie-hellman", "oblivious-transfer"):
            others = run(tmp_path, lists, method=method)
            for name in "ab":
                assert rows[name].value.tolist() == others[name].value.tolist()


def test_tables_are_aligned_by_it_and_auto_takes_it_from_then_on(tmp_path):
    parties = [cn.Party(n, np.zeros((len(ids), 1)), ids=ids) for n, ids in (("a", FEW[:6]), ("b", ALL))]
    truth = set(FEW[:6]) & set(ALL)
    assert len(ALL) == TIMES * 6
    seen = []
    for method in ("auto", SERVED, "auto"):
        asker, server = cn.align_parties(*parties, method=method, keep=tmp_path, verbose=0)
        assert set(asker.ids.tolist()) == truth
        assert asker.ids.tolist() == server.ids.tolist()
        seen.append(sorted(path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*") if path.is_file()))
    assert seen == [[], ["a", "b", "b", "b", "b"], ["a", "b", "b", "b", "b"]]
    ids = {"lists": (FEW[:6], ALL), "method": "auto"}
    assert "align set" in steps(tmp_path, **ids)
    assert "align set" not in steps(tmp_path, **{**ids, "lists": (FEW[:7], ALL)})  # not 100 times as many
    assert "align set" not in steps(tmp_path, **{**ids, "lists": (FEW[:6], ALL[1:])})  # other ids
    assert "align set" not in steps(tmp_path / "new", **ids)


def test_two_parties_never_have_one_folder():
    names = ["a", "a/b", "a%2Fb", "..", ".", "A B", "\u00e9"]
    folders = {Path(folder_of("kept", name)) for name in names}
    assert len(folders) == len(names)
    assert {folder.parent for folder in folders} == {Path("kept").absolute()}
    assert folder_of(None, "a") == ""


# -- what is done once -------------------------------------------------------------------------------------------------


def test_a_later_run_costs_as_much_as_the_few_ids(tmp_path, multiplied):
    first = steps(tmp_path)
    made, multiplied[:] = sum(multiplied), []
    again = steps(tmp_path)
    assert made == len(FEW) + MANY + 10  # and those that are common, whose proofs are looked at
    assert sum(multiplied) == len(FEW) + 10
    assert first["align tags"] > 4 * HEAPS + 8 * MANY
    assert "align tags" not in again
    assert sum(again.values()) < 200 * len(FEW) + 1000
    (tmp_path / "a" / tags_of_server(Path(), "b")).unlink()  # an asker that has lost them
    assert steps(tmp_path)["align tags"] == first["align tags"]


def test_other_ids_or_another_order_of_rows_mean_another_key(tmp_path):
    secrets, tags = set(), set()
    for ids in (ALL, ALL[1:], ALL[::-1], (*ALL, "person 610"), ALL):
        assert set(common(tmp_path, (FEW, ids))) == set(FEW) & set(ids)
        kept = opened(tmp_path, ids)
        secrets.add(kept.secret.number)
        tags.add((tmp_path / "a" / tags_of_server(Path(), "b")).read_bytes())
        assert kept.asked == {"a": len(FEW)}
    assert len(secrets) == len(tags) == 5  # even the first ids again: their key is gone


def opened(folder, ids=ALL):
    kept = ServedIds(folder / "b", pack(canonical(list(ids), "b")))
    kept.release()
    return kept


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_server_that_is_broken_off_goes_on_where_it_was(tmp_path, monkeypatch, multiplied, after):
    monkeypatch.setattr(kept_tags, "PORTION", 100)
    monkeypatch.setattr(served, "PORTION", 100)
    add = ServedIds.add

    def breaks(self, *tags):
        if self.left == 0:
            raise OSError("no space left")
        self.left -= 1
        add(self, *tags)

    monkeypatch.setattr(ServedIds, "left", after, raising=False)
    monkeypatch.setattr(ServedIds, "add", breaks)
    with pytest.raises(CheckpointError, match="can't be used: no space left; mend that and start again, what is there"):
        run(tmp_path)
    secret = opened(tmp_path).secret.number
    if after:  # what was written of a portion is no portion
        with (tmp_path / "b" / "portions").open("ab") as file:
            file.write(b"x" * 500)
    monkeypatch.setattr(ServedIds, "add", add)
    multiplied.clear()
    assert set(common(tmp_path)) == set(FEW) & set(ALL)
    assert sum(multiplied) == len(FEW) + MANY - 100 * after + 10
    assert opened(tmp_path).secret.number == secret
    assert not (tmp_path / "b" / "portions").exists()


def test_portions_of_other_ids_or_another_key_are_not_taken(tmp_path, monkeypatch):
    for module in (kept_tags, served):
        monkeypatch.setattr(module, "PORTION", 100)
    kept = opened(tmp_path)
    kept.done()
    kept.add(np.zeros(100, np.uint64), np.zeros(100, np.uint16))
    assert kept.done() == 100
    portions = (tmp_path / "b" / "portions").read_bytes()
    other = opened(tmp_path, ALL[1:])
    (tmp_path / "b" / "portions").write_bytes(portions)
    (tmp_path / "b" / "portions").chmod(0o600)
    assert other.done() == 0


def test_rows_of_another_run_in_the_same_folder_are_not_taken(tmp_path):
    run(tmp_path)
    kept = ServedIds(tmp_path / "b", pack(canonical(ALL, "b")))
    path = tmp_path / "b" / "rows"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(CheckpointError, match="was changed; start again"):
        kept.rows_of(np.array([len(ALL) - 1], np.uint64))
    kept.release()


def test_what_is_kept_is_its_owners_alone_and_what_was_changed_is_made_anew(tmp_path, multiplied):
    run(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 5
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in files} == {0o700}
    everything = b"".join(path.read_bytes() for path in files)
    for text, digest in zip(ALL, digests(pack(canonical(ALL, "b")), slice(0, MANY)), strict=True):
        assert text.encode() not in everything
        assert digest[:8].tobytes() not in everything
    for path in files:
        if path.name == "lock":
            continue
        multiplied.clear()
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        assert set(common(tmp_path)) == set(FEW) & set(ALL), path
        again = sum(multiplied) > MANY
        assert again == (path.parent.name == "b"), path
        path.write_bytes(content[: len(content) // 2])
        assert set(common(tmp_path)) == set(FEW) & set(ALL), path
    (tmp_path / "b" / "key").chmod(0o644)
    with pytest.raises(CheckpointError, match=r"the key of served ids .* has mode 644"):
        run(tmp_path)


def test_two_runs_do_not_make_tags_in_one_folder(tmp_path):
    kept = ServedIds(tmp_path / "b", pack(canonical(list(ALL), "b")))
    with pytest.raises(CheckpointError, match="another run makes the tags of served ids"):
        run(tmp_path)
    kept.release()
    assert common(tmp_path)


def test_no_wait_is_as_long_as_the_work(tmp_path, monkeypatch):
    for module in (kept_tags, served):
        monkeypatch.setattr(module, "PORTION", 50)
    outcomes = run(tmp_path, on=cn.Simulation(speeds={"b": 0.5}, deadline=0.02, latency=1e-4))
    assert max(outcome.seconds for outcome in outcomes.values()) > 2 * 0.02


def test_progress_is_reported(tmp_path):
    seen = {}
    programs = {name: (told_to_align, (ids, str(tmp_path / name))) for name, ids in (("a", FEW), ("b", ALL))}
    cn.Simulation().run(programs, lambda party, _, value: seen.update({party: value}))
    assert seen == {"a": ("align", 60, 60), "b": ("align", MANY + 30, MANY + 30)}


# -- attacks -----------------------------------------------------------------------------------------------------------


class Spy:
    """A `Net` that notes what its party gets and sends."""

    def __init__(self, net, seen):
        self._net, self._seen = net, seen

    def __getattr__(self, name):
        return getattr(self._net, name)

    async def send(self, to, tag, value):
        self._seen.append((self._net.me, tag, value))
        await self._net.send(to, tag, value)


def overhear(folder, lists=(FEW, ALL)):
    seen = []

    async def spied(net, ids, keep):
        return await align(Spy(net, seen), ids, keep=keep, method=SERVED)

    run(folder, lists, program=spied)
    return seen


def raw(value):
    if isinstance(value, tuple):
        return b"".join(map(raw, value))
    return value.tobytes() if isinstance(value, np.ndarray) else value if isinstance(value, bytes) else b""


def test_no_id_and_no_digest_leaves_a_party_and_nothing_of_the_asker_is_twice_the_same(tmp_path):
    runs = [overhear(tmp_path) for _ in range(2)]
    everything = b"".join(raw(value) for seen in runs for *_, value in seen)
    for ids in (FEW, ALL):
        hashed = digests(pack(canonical(ids, "a")), slice(0, len(ids)))
        for text, digest, point in zip(ids, hashed, Secret(1).mask_digests(hashed), strict=True):
            for telling in (text.encode(), digest[:8].tobytes(), digest[:16][::-1][:8].tobytes(), point[:16].tobytes()):
                assert telling not in everything
    one, other = (
        {raw(v)[at : at + 32] for me, tag, v in seen if tag == "align blinded" for at in range(0, 32 * 30, 32)}
        for seen in runs
    )
    assert len(one) == len(FEW)
    assert not one & other


def test_guesses_cannot_be_tried_against_kept_tags_without_the_key_or_an_answer(tmp_path):
    """Who has stolen the asker's folder, or is the asker, has all tags, and what it was answered in every run.

    With the key the same computation finds everybody: it is the key alone that is missing.
    """
    seen = [*overhear(tmp_path), *overhear(tmp_path, (numbers(range(5)), ALL))]
    tags = Tags.kept_in(
        tmp_path / "a" / tags_of_server(Path(), "b"), next(v for _, t, v in seen if t == "align set" and v)
    )
    assert tags is not None
    packed = pack(canonical(ALL, "b"))
    answers = np.concatenate([value for _, tag, value in seen if tag == "align answer"])
    blinded = np.concatenate([value for _, tag, value in seen if tag == "align blinded"])

    def hits(number):
        names, points = served.ServingParty.powers(Secret(number), packed, slice(0, MANY))
        return int(tags.find(*tags_of(prints_of(names, points)))[1].sum())

    assert hits(opened(tmp_path).secret.number) == MANY
    assert [hits(number) for number in (1, 2, 12345)] == [0, 0, 0]
    names = digests(packed, slice(0, MANY))[:, :16].copy().view(">u8").astype(np.uint64)
    for points in (answers, blinded):  # points of this key, of other ids
        for point in points[:5]:
            assert not tags.find(*tags_of(prints_of(names, np.tile(point, (MANY, 1)))))[1].any()


class Liar(Spy):
    """A `Net` whose party sends something else at one step."""

    def __init__(self, net, step, change):
        super().__init__(net, [])
        self._step, self._change = step, change

    async def send(self, to, tag, value):
        lie = tag == self._step and value is not None
        await self._net.send(to, tag, self._change(value) if lie else value)


def with_a_liar(folder, who, step, change, lists=(FEW, ALL)):
    async def lying(net, ids, keep):
        return await align(Liar(net, step, change), ids, keep=keep, method=SERVED)

    programs = {
        name: (lying if name == who else told_to_align, (ids, str(folder / name)))
        for name, ids in zip("ab", lists, strict=True)
    }
    return cn.Simulation().run(programs)


def proofs(change):
    return lambda value: value if type(value) is tuple else change(value)


def with_place(value, place):
    told = value.copy()
    told[0, 0] = place
    return told


NAMED = "'a' named a common id .* does not show to have"
NONSENSE = {
    "no number of tags made": ("a", "align size", lambda v: (*v[:5], 1), ProtocolError, "'a' sent no number of ids"),
    "blinded no point": ("a", "align blinded", np.zeros_like, ProtocolError, "'a' sent at step 'align blinded'.*no po"),
    "blinded too few": ("a", "align blinded", lambda v: v[1:], WrongShape, "a sent .*'align blinded'"),
    "answer no point": ("b", "align answer", lambda v: v ^ v, ProtocolError, "'b' sent at step 'align answer'.*no po"),
    "answer of words": ("b", "align answer", lambda v: v.astype(np.uint64), WrongShape, "b sent .*'align answer'"),
    "digest too short": ("b", "align set", lambda v: v[1:], ProtocolError, "'b' sent no digest of its tags"),
    "digest a text": ("b", "align set", lambda v: "x" * 32, ProtocolError, "'b' sent no digest of its tags"),
    "another digest": ("b", "align set", lambda v: v[::-1], ProtocolError, "'b' sent at step 'align tags' others than"),
    "has perhaps": ("a", "align have", lambda v: 2, ProtocolError, "'a' did not say at step 'align have'"),
    "tags too few": ("b", "align tags", lambda v: v[1:], WrongShape, "b sent .*'align tags'"),
    "other counts": ("b", "align tags", lambda v: v + np.uint32(1), ProtocolError, "counted others than its 600 tags"),
    "other tags": ("b", "align tags", lambda v: v[::-1], ProtocolError, "'b' sent at step 'align tags' others than it"),
    "verdict too many": ("a", "align common", lambda v: (31, 1) if type(v) is tuple else v, ProtocolError, "31 of its"),
    "an id twice": ("a", "align common", proofs(lambda v: np.repeat(v[:1], len(v), 0)), ProtocolError, NAMED),
    "no such place": ("a", "align common", proofs(lambda v: with_place(v, MANY)), ProtocolError, NAMED),
    "a place below 0": ("a", "align common", proofs(lambda v: with_place(v, 2**64 - 1)), ProtocolError, NAMED),
    "another's place": ("a", "align common", proofs(lambda v: with_place(v, v[0, 0] ^ 1)), ProtocolError, NAMED),
    "another's proof": ("a", "align common", proofs(lambda v: np.c_[v[:, 0], v[::-1, 1:]]), ProtocolError, NAMED),
    "no proof": ("a", "align common", proofs(lambda v: v[:, :1]), WrongShape, "a sent .*'align common'"),
}  # fmt: skip


@pytest.mark.parametrize(("who", "step", "change", "kind", "text"), NONSENSE.values(), ids=NONSENSE.keys())
def test_what_no_honest_party_sends_is_refused_by_name(tmp_path, who, step, change, kind, text):
    with pytest.raises(kind, match=text):
        with_a_liar(tmp_path, who, step, change)
    assert set(common(tmp_path)) == set(FEW) & set(ALL)  # and nothing of it is kept


def test_an_asker_can_not_name_an_id_that_it_never_asked_about(tmp_path):
    """It has all tags, and so a place for each, and lacks the proof, which no tag shows."""
    seen = overhear(tmp_path)
    (counts, rest) = [value for _, tag, value in seen if tag == "align tags"]
    assert counts.sum() == len(rest) == MANY
    strangers = numbers(range(MANY, MANY + 30))

    def guess(value):
        if type(value) is tuple:
            return (1, 1)
        return value

    async def naming(net, ids, keep):
        class Naming(Liar):
            async def send(self, to, tag, value):
                await super().send(to, tag, value)
                if tag == "align common" and type(value) is tuple:
                    await self._net.send(to, tag, np.array([[5, rest[5], rest[5]]], np.uint64))

        return await align(Naming(net, "align common", guess), ids, keep=keep, method=SERVED)

    programs = {"a": (naming, (strangers, str(tmp_path / "a"))), "b": (told_to_align, (ALL, str(tmp_path / "b")))}
    with pytest.raises(ProtocolError, match=NAMED):
        cn.Simulation().run(programs)


def test_a_server_that_lies_about_its_set_finds_no_more_than_its_tags(tmp_path):
    """With another key for each answer it loses rows; with tags from before it has the ids from before."""
    assert common(tmp_path)
    with pytest.raises(TooFewInCommon):
        with_a_liar(tmp_path, "b", "align answer", lambda v: Secret(7).mask_points(v, "b", "align answer"))
    digest = next(value for _, tag, value in overhear(tmp_path) if tag == "align set")
    with pytest.raises(ProtocolError, match="says that it has 599 ids, and at step 'align set' that it has 600 tags"):
        with_a_liar(tmp_path, "b", "align set", lambda v: digest, (FEW, ALL[1:]))


# -- policy ------------------------------------------------------------------------------------------------------------


def test_ids_of_all_runs_count_against_what_a_partner_may_ask(tmp_path):
    most = {"b": 80, "a": 2**31}

    async def limited(net, ids, keep):
        return await align(net, ids, keep=keep, method=SERVED, max_partner_ids=most[net.me])

    for _ in range(2):
        run(tmp_path, program=limited)
    with pytest.raises(PolicyRefused, match=r"'a' has asked party 'b' about 60 ids and asks about 30 more, and 80"):
        run(tmp_path, program=limited)
    assert opened(tmp_path).asked == {"a": 60}
    run(tmp_path, (FEW[:20], ALL), program=limited)
    with pytest.raises(PolicyRefused, match="'a' brings 81 ids to the alignment, party 'b' takes 80"):
        run(tmp_path, (numbers(range(81)), ALL), program=limited)


def test_a_run_that_is_broken_off_counts_as_well(tmp_path):
    with pytest.raises(ColonnadeError):
        with_a_liar(tmp_path, "a", "align blinded", np.zeros_like)
    assert opened(tmp_path).asked == {"a": 30}


def test_a_key_is_not_used_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(kept_tags, "_MOST_ASKED", 70)
    found = []
    for _ in range(3):
        assert common(tmp_path)
        found.append((opened(tmp_path).secret.number, opened(tmp_path).asked["a"]))
    assert found[0][0] == found[1][0] != found[2][0]
    assert [asked for _, asked in found] == [30, 60, 30]


def test_too_few_in_common_ends_it_at_both_and_only_the_number_is_told(tmp_path):
    seen = []

    async def spied(net, ids, keep):
        return await align(Spy(net, seen), ids, keep=keep, method=SERVED, minimum=11)

    with pytest.raises(TooFewInCommon, match="only 10 ids in common, and 11 are asked for"):
        run(tmp_path, program=spied)
    assert [value for _, tag, value in seen if tag == "align common" and value is not None] == [(10, 11)]


def test_a_folder_that_can_not_be_used_is_named(tmp_path):
    (tmp_path / "b").write_text("not a folder")
    with pytest.raises(CheckpointError, match=r"the folder '.*/b', in which .* can't be used: Not a directory; mend"):
        run(tmp_path)
    (tmp_path / "b").unlink()
    (tmp_path / "a").write_text("not a folder")
    with pytest.raises(CheckpointError, match=r"the folder '.*/a', in which"):
        run(tmp_path)


def test_options_are_checked(tmp_path):
    parties = [cn.Party(name, np.zeros((3, 1)), ids=np.arange(3)) for name in "abc"]
    for count, options, text in (
        (2, {"method": SERVED}, "method 'served' keeps a key and tags for later runs; name a folder for them in keep"),
        (3, {"method": SERVED, "keep": tmp_path}, "method 'served' aligns two parties, and there are 3; leave method"),
        (2, {"keep": 5}, "keep must be a folder, got 5"),
        (2, {"keep": ""}, "keep must be a folder, got ''"),
    ):
        with pytest.raises(OptionError, match=re.escape(text)):
            cn.align_parties(*parties[:count], verbose=0, **options)
