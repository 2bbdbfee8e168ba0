"""TOML files: what is allowed comes back checked, all else is one sentence with file, line and key."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colonnade.errors import DataError, OptionError, TomlError
from colonnade.settings.settings import Anything, Key, ListOf, Section, Settings, check
from colonnade.settings.toml import key_lines, parse, read

PARTY = Section(
    Key("name", str, required=True),
    Key(
        "data",
        Section(
            Key("source", str, required=True),
            Key("label", str),
            Key("columns", ListOf(str, least=1)),
            Key("weight", float, default=1.0, above=0, most=10),
            Key("first", int, default=1, allowed=(0, 1)),
            Key("strict", bool, default=True),
            Key("fold", (str, int), least=2),
        ),
        required=True,
    ),
    Key("policy", Section(Key("rounds", int, default=100, least=1)), default={}),
    Key("prepare", Section(Key("default", ListOf(str)), others=Key("column", Anything))),
    Key("peers", ListOf(Section(Key("name", str, required=True), Key("port", int, least=1, most=65535)))),
    Key(
        "tags",
        ListOf(int),
        least=0,
        check=lambda tags: "must not repeat a number" if len(set(tags)) < len(tags) else None,
    ),
)
GOOD = """\
name = "bank"

[data]
source = "customers.csv"
columns = [
  "age",  # years
  "income",
]

[prepare]
age = ["impute"]
"my city" = [{ one-hot = { most = 5 } }]

[[peers]]
name = "shop"
port = 7001
[[peers]]
name = "telco"
"""


def settings(text: str) -> Settings:
    return parse(text.encode(), PARTY, "bank.toml")


def test_values_and_defaults():
    found = settings(GOOD)
    assert found["data"]["columns"] == ["age", "income"]
    assert found["data"]["weight"] == 1.0
    assert found["data"]["label"] is None
    assert found["data"].given == {"source", "columns"}
    assert found["policy"]["rounds"] == 100
    assert found["tags"] is None
    assert found["prepare"]["my city"] == [{"one-hot": {"most": 5}}]
    assert [peer["port"] for peer in found["peers"]] == [7001, None]
    assert found.plain()["peers"] == [{"name": "shop", "port": 7001}, {"name": "telco", "port": None}]
    assert tomllib.loads(GOOD)["data"].items() <= found.plain()["data"].items()


def change(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        # syntax
        (change("[data]", "[data"), "bank.toml, line 3: this is not TOML: expected"),
        (change('source = "customers.csv"', "source = customers.csv"), "line 4, key source: this is not TOML: invalid"),
        (change('source = "customers.csv"', "source ="), "line 4, key source: this is not TOML: invalid value"),
        (change("port = 7001", 'name = "x"'), "line 16, key name: this is not TOML: cannot overwrite"),
        (change('"income",\n]', '"income"'), "bank.toml, line 9, key columns: this is not TOML: unclosed array"),
        (GOOD + 'x = """never closed', "bank.toml, line 19, key x: this is not TOML: unterminated string"),
        (GOOD + "x = " + "9" * 5000, "bank.toml, line 19, key x: this is not TOML: exceeds the limit"),
        # unknown keys
        (change("columns", "colums"), "line 5, key data.colums: unknown key, allowed are source, label, columns"),
        (change("columns", "colums"), "weight, first, strict, fold; did you mean 'columns'?"),
        (change("[data]", "[data]\nrounds = 5"), "key data.rounds: unknown key here; it belongs under [policy]"),
        (change("[prepare]", "[prepare]\n[data.deep]"), "line 11, key data.deep: unknown key, allowed are source,"),
        (change("[data]", "[data]\nname = 5"), "line 4, key data.name: unknown key here; it belongs under no table"),
        (change("port = 7001", "prt = 7001"), "[0].prt: unknown key, allowed are name, port; did you mean 'port'?"),
        (GOOD + '"odd key" = 1', "line 19, key peers[1].'odd key': unknown key, allowed are name, port"),
        # wrong kinds
        (change('"customers.csv"', "5"), "bank.toml, line 4, key data.source: must be text in quotes, got 5"),
        (change('"income"', "true"), "line 7, key data.columns[1]: must be text in quotes, got true"),
        (change('[\n  "age",  # years\n  "income",\n]', '"age"'), "line 5, key data.columns: must be a list of at"),
        (change('[\n  "age",  # years\n  "income",\n]', "[]"), "a list of at least 1 of (text in quotes), got []"),
        (change("[data]", "[data]\nstrict = 1"), "line 4, key data.strict: must be true or false, got 1"),
        (change("[data]", "[data]\nfirst = true"), "line 4, key data.first: must be a whole number, got true"),
        (change("[data]", "[data]\nweight = nan"), "line 4, key data.weight: must be a finite number, got nan"),
        (change("[data]", "[data]\nfold = 0.5"), "key data.fold: must be text in quotes or a whole number, got 0.5"),
        (change("[data]", "policy = 5\n[data]"), "line 3, key policy: must be a table of keys, got 5"),
        (change("[[peers]]", "[peers]").replace("[[peers]]", "#"), "not TOML: cannot overwrite"),
        (change("7001", "2024-01-01"), "line 16, key peers[0].port: must be a whole number, got datetime.date(2024, 1"),
        (change("7001", "0x" + "f" * 9000), "must be >= 1 and <= 65535, got a whole number of 36000 bits"),
        (change('"bank"', "[[[[[[[[1]]]]]]]]"), "line 1, key name: must be text in quotes, got [[[[[[[...]]]]]]]"),
        # values that are not allowed
        (change("[data]", "[data]\nweight = 0"), "line 4, key data.weight: must be > 0 and <= 10, got 0"),
        (change("[data]", "[data]\nfirst = 2"), "line 4, key data.first: must be one of 0, 1, got 2"),
        (change("[data]", "[data]\nfold = 1"), "line 4, key data.fold: must be >= 2, got 1"),
        (change("7001", "70000"), "line 16, key peers[0].port: must be >= 1 and <= 65535, got 70000"),
        (change("[data]", "tags = [1, -1]\n[data]"), "line 3, key tags[1]: must be >= 0, got -1"),
        (change("[data]", "tags = [1, 1]\n[data]"), "line 3, key tags: must not repeat a number"),
        # missing keys
        (change('source = "customers.csv"\n', ""), "line 3, key data.source: this key is required and missing; add"),
        (change('name = "bank"\n', ""), "line 1, key name: this key is required and missing; add name = ..."),
        (GOOD + "[[peers]]\n", "line 19, key peers[2].name: this key is required and missing"),
        ('name = "bank"\n\n', "bank.toml, line 3, key data: this key is required and missing; add [data]"),
        ("name = 'b'\ndata.label = 'y'", "bank.toml, line 2, key data.source: this key is required"),
    ],
)  # fmt: skip
def test_errors_are_one_sentence_with_file_line_and_key(text, sentence):
    with pytest.raises(TomlError) as caught:
        settings(text)
    message = str(caught.value)
    assert "\n" not in message
    assert sentence in message


def test_a_number_with_a_fraction_may_be_written_without_one():
    found = settings(change("[data]", "[data]\nweight = 3\nfold = 'a'"))["data"]
    assert isinstance(found["weight"], float)
    assert found["fold"] == "a"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(TomlError, match=r"there is no file '.*nowhere.toml'; give the path of a TOML file"):
        read(tmp_path / "nowhere.toml", PARTY)
    with pytest.raises(TomlError, match=r" is a folder; give the path of a TOML file in it$"):
        read(tmp_path, PARTY)
    (tmp_path / "job.toml").write_text("")
    with pytest.raises(TomlError, match=r" is a folder; give the path of a TOML file in it, such as '.*job.toml'$"):
        read(tmp_path, PARTY)
    with pytest.raises(TomlError, match="can't be read"):
        read("a\0b", PARTY)
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * (1 << 21))
    with pytest.raises(TomlError, match=r"big.toml has more than 1048576 bytes"):
        read(big, PARTY)
    latin = tmp_path / "latin.toml"
    latin.write_bytes("name = 'x'\nz = 'Zürich'".encode("latin-1"))
    with pytest.raises(TomlError, match=r"latin.toml, line 2: this is not UTF-8 text"):
        read(latin, PARTY)
    with pytest.raises(TomlError, match="nested too deeply"):
        parse(b"a = " + b"[" * 100_000, PARTY)


def test_windows_files(tmp_path):
    file = tmp_path / "bank.toml"
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").replace("7001", "0").encode())
    with pytest.raises(TomlError, match=r"bank.toml, line 16, key peers\[0\].port"):
        read(file, PARTY)


def test_errors_found_later_have_a_place_too(tmp_path):
    file = tmp_path / "bank.toml"
    file.write_text(GOOD)
    found = read(file, PARTY)
    assert found["data"].origin.folder == tmp_path
    error = found["data"].error(("columns", 1), "no such column", DataError)
    assert isinstance(error, DataError)
    assert str(error) == "bank.toml, line 7, key data.columns[1]: no such column"
    # what stands inside of something that was checked later has at least the line of what it stands in
    assert str(found["data"].error(("source", "x"), "no")) == "bank.toml, line 4, key data.source.x: no"
    assert str(found["prepare"].error(("my city", 0), "no")) == "bank.toml, line 12, key prepare.'my city'[0]: no"


def test_settings_of_a_program_are_checked_alike():
    found = check({"name": "bank", "data": {"source": "x.csv"}}, PARTY)
    assert found["data"]["first"] == 1
    assert str(found["data"].error("source", "no such file")) == "key data.source: no such file"
    with pytest.raises(OptionError, match=r"^key data.sorce: unknown key, .*; did you mean 'source'\?"):
        check({"name": "bank", "data": {"sorce": "x.csv"}}, PARTY)
    with pytest.raises(OptionError, match=r"^key data.source: this key is required and missing; add source"):
        check({"name": "bank", "data": {}}, PARTY)


# -- the lines of keys ------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b-1", "_", "12", '"q"', "'s.t'", '"]"', '"\\u00e9\\""', "'#'", '"= 1"'])
GAPS = st.sampled_from(["", " ", "\t"])
BREAKS = st.sampled_from(["", " ", "\n", ' # a ] comment } with " signs = \n', "\n\n  ", "\r\n"])


class Writer:
    """Writes TOML in which every number is the line that it stands on, and every text begins with it."""

    def __init__(self, draw) -> None:
        self.draw, self.text = draw, ""

    def put(self, *parts: object) -> None:
        for part in parts:
            self.text += str(self.draw(part) if isinstance(part, st.SearchStrategy) else part)

    @property
    def line(self) -> int:
        return self.text.count("\n") + 1

    def key(self) -> None:
        for n in range(self.draw(st.integers(1, 2))):
            self.put("." if n else "", GAPS, NAMES, GAPS)

    def value(self, depth: int = 2) -> None:
        kind = self.draw(st.integers(0, 7 if depth else 5))
        line = self.line
        if kind == 0:
            self.put(line)
        elif kind == 1:
            self.put(f'"{line}|', st.sampled_from(["", '\\"', "#", "\\\\", "[x]", "'''"]), '"')
        elif kind == 2:
            self.put(f"'{line}|", st.sampled_from(["", "\\", '"""', "a = 1"]), "'")
        elif kind == 3:
            self.put(f'"""{line}|', st.sampled_from(["", "\n[x]\ny = 2\n", '\\"""', '""x', '"', '""']), '"""')
        elif kind == 4:
            self.put(f"'''{line}|", st.sampled_from(["", "\n[[x]]\n", "''x", "''", '"""']), "'''")
        elif kind == 5:
            self.put(float(line), st.sampled_from(["", " "]))
        elif kind == 6:
            self.put("[")
            for _ in range(self.draw(st.integers(0, 3))):
                self.put(BREAKS)
                self.value(depth - 1)
                self.put(BREAKS, ",")
            self.put(BREAKS, "]")
        else:
            self.put("{", GAPS)
            for n in range(self.draw(st.integers(0, 2))):
                self.put("," if n else "", GAPS)
                self.statement(depth - 1)
            self.put(GAPS, "}")

    def statement(self, depth: int = 2) -> None:
        self.key()
        self.put("=", GAPS)
        self.value(depth)


@st.composite
def documents(draw) -> str:
    writer = Writer(draw)
    for _ in range(draw(st.integers(1, 8))):
        kept, kind = writer.text, draw(st.integers(0, 4))
        if kind < 2:
            writer.put("[" * (1 + kind))
            writer.key()
            writer.put("]" * (1 + kind))
        elif kind == 2:
            writer.put(GAPS, "# comment [x] = 'y'")
        else:
            writer.put(GAPS)
            writer.statement()
        writer.put(GAPS, "\n")
        try:
            tomllib.loads(writer.text)
        except tomllib.TOMLDecodeError:
            writer.text = kept  # a table that was there before
    return writer.text


def leaves(value, path=()):
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for n, inner in enumerate(value):
            yield from leaves(inner, (*path, n))


@given(documents())
@example(
    'a = [\n"""2|\n""",\n4, # x\n{ b.c = 5 }]\n[[t]]\n[t.u]\nx = 8\n[[t]]\nu.y = 10\n[[t.z]]\nv = 12\n[[t.z]]\nv = 14\n'
)
def test_every_key_is_found_on_its_line(text):
    lines = key_lines(text.replace("\r\n", "\n"))
    for path, value in leaves(tomllib.loads(text)):
        if isinstance(value, str):
            assert lines[path] == int(value.split("|")[0]), path
        elif isinstance(value, (int, float)):
            assert lines[path] == int(value), path
        elif path:
            assert 1 <= lines[path] <= text.count("\n") + 1


@given(documents(), st.data())
def test_any_unknown_key_is_named_with_its_line(text, data):
    """The reader as a whole: with a schema that allows all top-level keys but one."""
    values = tomllib.loads(text)
    if not values:
        return
    odd = data.draw(st.sampled_from(sorted(values)))
    schema = Section(*(Key(name, Anything) for name in values if name != odd))
    with pytest.raises(TomlError, match=rf"x.toml, line {key_lines(text.replace(chr(13), ''))[(odd,)]}, key "):
        parse(text.encode(), schema, "x.toml")


PIECES = st.sampled_from(
    [b"[", b"]", b"{", b"}", b"=", b"\n", b"a", b".", b'"', b'"""', b"'", b"'''", b"\\", b"#", b",", b"1", b" ", b"\r",
     b"data", b"source", b"[data]\n", b"peers", b"\xff", b"\xef\xbb\xbf", b"1979-05-27", b"0x", b"9" * 5000, b"\0"]
)  # fmt: skip


@given(st.one_of(st.binary(max_size=60), st.lists(PIECES, max_size=30).map(b"".join), documents().map(str.encode)))
def test_any_bytes_are_settings_or_one_sentence(content):
    try:
        found = parse(content, PARTY, "x.toml", Path())
    except TomlError as error:
        sentence = str(error)
    else:
        sentence = f"x.toml is fine: {found['name']!r}"
    assert sentence.startswith("x.toml")
    assert "\n" not in sentence


def test_very_deep_keys_do_not_break_the_reader():
    deep = b"name = 'x'\nprepare.x" + b".a" * 500 + b" = 1"
    with pytest.raises(TomlError, match="key data: this key is required"):
        parse(deep, PARTY, "x.toml")
    with pytest.raises(TomlError, match=r"must be text in quotes, got \{'a': \{'a'"):
        parse(b"name" + b".a" * 500 + b" = 1", PARTY, "x.toml")
