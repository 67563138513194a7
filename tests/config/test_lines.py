"""Finding and reading the configuration file, and telling lines."""

import string
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spar.config.lines import PACKAGED, Problem, Refusal, Sources, dotted, explain, find, read
from spar.config.toml_lines import line_numbers, locate, rename_key
from spar.errors import ConfigError

SAMPLE = '''\
# a comment with [brackets] and "quotes
top = 1
"quoted key" = """
[not.a.table]
fake = 1
"""   # after a multi-line string

[agent]
name = 'a # no comment'
errors.sense = "skip"
matrix = [
    [1, 2],   # the first
    [3,
     4],
]

[agent.phases.plan]
timeout = 3

[[rules]]
name = "one"
[[rules]]
when = { pattern = "x", kind = "y" }
[rules.then]
"a.b" = \'\'\'
\'\'\'\'\'
[[rules.calls]]
tool = "t"
[[rules.calls]]
tool = "u"

[[rules]]
list = [
  { a = 1 },
  { a = 2, b = [
     { c = 3 } ] },
]
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("quoted key",), 3),
        (("agent",), 8),
        (("agent", "name"), 9),
        (("agent", "errors", "sense"), 10),
        (("agent", "errors"), 10),
        (("agent", "matrix", 0), 12),
        (("agent", "matrix", 1, 0), 13),
        (("agent", "matrix", 1, 1), 14),
        (("agent", "phases", "plan", "timeout"), 18),
        (("rules", 0, "name"), 21),
        (("rules", 1), 22),
        (("rules", 1, "when", "pattern"), 23),
        (("rules", 1, "then", "a.b"), 25),
        (("rules", 1, "calls", 1, "tool"), 30),
        (("rules", 2, "list", 1, "a"), 35),
        (("rules", 2, "list", 1, "b", 0, "c"), 36),
        (("rules", 1, "when", "missing"), 23),
        (("agent", "nothing", "here"), 8),
        (("absent",), None),
        ((), None),
    ],
)
def test_a_value_is_found_on_the_line_it_stands_on_and_what_is_not_there_by_what_is_around_it(
    path: Any, line: Any
) -> None:
    assert locate(SAMPLE, path) == line


def test_the_sample_is_toml_and_every_path_in_it_is_known() -> None:
    def paths(value: Any, path: tuple[Any, ...] = ()) -> Any:
        if path:
            yield path
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            yield from paths(inner, (*path, key))

    assert set(paths(tomllib.loads(SAMPLE))) == set(line_numbers(SAMPLE))


def test_lines_are_right_with_windows_line_ends() -> None:
    assert locate(SAMPLE.replace("\n", "\r\n"), ("rules", 1, "calls", 1, "tool")) == 30


_KEYS = st.text(string.ascii_lowercase + ' .#"[]\\\n', min_size=1, max_size=6)
_STRINGS = st.text(string.ascii_letters + " #=[]{}'\"\n\\\t", max_size=12)


@st.composite
def _documents(draw: Any) -> Any:
    """A TOML text of pairs and tables, and the line that each of its paths must be found on."""
    lines: list[str] = []
    expected: dict[tuple[Any, ...], int] = {}

    def quoted(text: str) -> str:
        return '"' + "".join(f"\\u{ord(c):04x}" if c in '"\\\n\t' else c for c in text) + '"'

    def multi(text: str) -> str:
        return '"""\n' + text.replace("\\", "\\\\").replace('"', '\\"') + '"""'

    def pairs(path: tuple[Any, ...]) -> None:
        for key in draw(st.lists(_KEYS, max_size=3, unique=True)):
            value = draw(_STRINGS)
            expected[(*path, key)] = len(lines) + 1
            form = draw(st.sampled_from(["plain", "multi", "array"]))
            if form == "array":
                rows = [f"{quoted(key)} = [ # [", f"  {quoted(value)},", "  # ]", f"  {multi(value)}", "]"]
                expected[(*path, key, 0)] = len(lines) + 2
                expected[(*path, key, 1)] = len(lines) + 4
                lines.extend("\n".join(rows).split("\n"))
            else:
                text = multi(value) if form == "multi" else quoted(value)
                lines.extend(f"{quoted(key)} = {text} # = [".split("\n"))

    pairs(())
    for name in draw(st.lists(st.sampled_from("PQRS"), max_size=3, unique=True)):
        lines.append(f"[ {name} . 'x y' ] # ]")
        pairs((name, "x y"))
    for index in range(draw(st.integers(0, 3))):
        lines.append("[[T]]")
        expected[("T", index)] = len(lines)
        pairs(("T", index))
    return "\n".join(lines), expected


@settings(deadline=None)
@given(_documents())
def test_any_document_keeps_its_lines(document: Any) -> None:
    text, expected = document
    tomllib.loads(text)

    assert {path: locate(text, path) for path in expected} == expected


# -- reading


def test_a_file_is_read_with_its_text(tmp_path: Any) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes("\ufeff[log]\nlevel = 'info'\n".encode())

    file = read(path)

    assert file.table == {"log": {"level": "info"}}
    assert file.folder == tmp_path


def test_a_missing_file_says_where_it_was_looked_for_and_what_to_do_and_a_folder_is_none(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match=r"nope\.toml: there is no such file \(/.*; name another one, or write"):
        read(tmp_path / "nope.toml")
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"a = 1\nb = \n", "config.toml:2:5: invalid value; nothing stands behind the equals sign"),
        (b"a = 1\nb = word # x\n", 'config.toml:2:5: invalid value; text stands in quotes: b = "word"'),
        (b"a = [1, word]\n", 'config.toml:1:9: invalid value; text stands in quotes: "word"'),
        (b"a = {b = word, c = 1}\n", 'config.toml:1:10: invalid value; text stands in quotes: "word"'),
        (b"a = True\n", "config.toml:1:5: invalid value; write it small: a = true"),
        (b"a = null\n", "config.toml:1:5: invalid value; TOML knows no such value: leave it out"),
        (b"a = 1\na = 2\n", "config.toml:2:6: a stands in line 1 already; write it once"),
        (b"[t]\nx = 1\n# [t]\n[t]\ny = 2\n", "config.toml:4:3: t stands in line 1 already; write it once"),
        (b"[t]\no = {x = 1}\n[t.o]\n", "config.toml:3:5: t.o stands in line 2 already; write it once"),
        (b"[t]\no = {x = 1}\no.y = 1\n", "config.toml:3:8: t.o stands in line 2 already; write it once"),
        (b"[[t]]\nx = 1\n[[t]]\nx = 1\nx = 2\n", "config.toml:5:6: t[1].x stands in line 4 already"),
        (b'[t]\no = {}\no.y = """\n"""\n', "config.toml:4:4: t.o stands in line 2 already; write it once"),
        (b"a = 1\n[a.b]\n", "config.toml:2:5: a stands in line 1 already; write it once"),
        (b'x = 1\nx = """\n\n"""', "config.toml:4: x stands in line 1 already; write it once"),
        (b"t = []\n\n[[t]]\n", "config.toml:3:4: t stands in line 1 already; write it once"),
        (b'a = "x', "config.toml:1: unterminated string"),
        (b"ok = 1\n\nb = '\xff'\n", "config.toml:3: byte 0xff is not UTF-8"),
        (b"a = " + b"[" * 5000 + b"]" * 5000, "config.toml: is nested too deeply to be read"),
    ],
)
def test_a_mistake_in_the_toml_is_told_with_its_line(tmp_path: Any, monkeypatch: Any, raw: Any, sentence: Any) -> None:
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_bytes(raw)

    with pytest.raises(ConfigError) as caught:
        read(Path("config.toml"))

    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize("text", ["{} = 1", "[{}]", "x = 1\n[[ {} ]]", "x = {{ y = 1, {} = 2 }}"])
def test_a_key_of_thousands_of_parts_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(tomllib, "loads", lambda text: parsed.append(text) or {})
    path = tmp_path / "config.toml"
    path.write_text(text.format(".".join(["a", '"b c"'] * 10_000)))

    with pytest.raises(ConfigError, match=rf"config\.toml:{text.count(chr(10)) + 1}: a key has more than 100 parts"):
        read(path)
    assert parsed == []
    path.write_text('a.b.c = "' + "a.b." * 500 + "Word. " * 500 + '"\n' + "# " + "." * 500)
    read(path)
    assert len(parsed) == 1


# -- finding


def test_the_file_in_the_current_folder_is_found_before_the_one_at_home(tmp_path: Any) -> None:
    home = tmp_path / "home" / "spar"
    home.mkdir(parents=True)
    (home / "config.toml").write_text("")
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "home")}

    at_home = find(environ, tmp_path)
    (tmp_path / "config.toml").write_text("")
    here = find(environ, tmp_path)

    assert (at_home, here) == (home / "config.toml", tmp_path / "config.toml")


def test_without_any_file_the_packaged_one_is_used_and_one_that_the_environment_names_even_when_it_is_missing(
    tmp_path: Any,
) -> None:
    assert PACKAGED.is_file()
    assert find({}, tmp_path) == PACKAGED
    (tmp_path / "config.toml").write_text("")
    assert find({"SPAR_CONFIG": "/nope.toml"}, tmp_path) == Path("/nope.toml")


# -- explaining


@pytest.fixture
def sources(tmp_path: Any, monkeypatch: Any) -> Any:
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_text(SAMPLE)
    return Sources(read(Path("config.toml")), {("log", "level"): "SPAR_LOG__LEVEL", ("rules", 0): "--set x"})


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConfigError("unbalanced bracket", path=("rules", 1, "when", "pattern")),
         "config.toml:23: rules[1].when.pattern: unbalanced bracket"),
        (ConfigError("agent.name = 'x': is taken", path=("agent", "name")),
         "config.toml:9: agent.name = 'x': is taken"),
        (Refusal([Problem(("top",), ": a"), Problem(("log", "level"), " = 3: b")]),
         "config.toml:2: top: a\nSPAR_LOG__LEVEL: log.level = 3: b"),
    ],
    ids=["gets its line", "its key is not named twice", "each of several its own"],
)  # fmt: skip
def test_an_error_is_explained_by_its_place_once(sources: Any, error: ConfigError, told: str) -> None:
    once = explain(error, sources)
    assert (str(once), once.path) == (told, error.path)
    assert str(explain(once, sources)) == told


def test_what_was_given_elsewhere_is_not_looked_for_in_the_file(sources: Any) -> None:
    assert sources.where(("rules", 0, "name")) == "--set x"
    assert sources.where(("log",)) == "SPAR_LOG__LEVEL"
    assert sources.where(("absent",)) == "config.toml"


def test_an_error_without_a_place_stays_as_it_is(sources: Any) -> None:
    error = ConfigError("something else")

    assert explain(error, sources) is error


def test_paths_are_written_as_people_write_them() -> None:
    assert dotted(("rules", 2, "when", "a b", "x")) == 'rules[2].when."a b".x'
    key = 'say "x"'
    assert tomllib.loads(f"{dotted(('a', key))} = 1") == {"a": {key: 1}}


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("[acting]\nold = 1  # old = 2\n", "[acting]\nnew = 1  # old = 2\n"),
        ("# old = 0\r\nacting.old = 1\r\n", "# old = 0\r\nacting.new = 1\r\n"),
        ('x = "a\u2028b"\n[acting]\n"old"=1', 'x = "a\u2028b"\n[acting]\nnew=1'),
        ("acting = { bold = 1, old = 2 }", "acting = { bold = 1, new = 2 }"),
        ("[acting.old]\nold = 1\n[b]\nold = 1", None),
        ("acting = { x = 'old = 1', old = 2 }", None),
        ("[acting]\nold = 1\nnew = 2\n", None),
    ],
)
def test_a_key_is_renamed_in_the_text_that_stays_as_it_is_written(text: str, renamed: str | None) -> None:
    if renamed is None:
        with pytest.raises(ValueError, match=r"set beside it|by hand"):
            rename_key(text, ("acting", "old"), "new")
    else:
        assert rename_key(text, ("acting", "old"), "new") == renamed
