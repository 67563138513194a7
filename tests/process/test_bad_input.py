"""What cannot be used is refused in one clear sentence: where, which key, what was found, what is known."""

from __future__ import annotations

import ctypes
import re
import socket
from typing import Any

import pytest

pytestmark = pytest.mark.process

#: What is changed in config.toml (old, new), and what the refusal must say besides file and line.
BAD_FILES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "an unknown key": ('[log]\nlevel = "info"', '[log]\nlevle = "info"',
        ("log.levle", "unknown key", "did you mean 'level'")),
    "an unknown part": ('use = "directory"', 'use = "directry"',
        ("sensors[0].use", "'directry'", "did you mean 'directory'")),
    "an unknown option": ('{ path = "inbox" }', '{ path = "inbox", setle = 1 }',
        ("sensors[0].options.setle", "unknown key", "'settle'")),
    "an option of the wrong type": ('options = { path = "inbox" }', "options = { path = 5 }",
        ("sensors[0].options.path", "5")),
    "an invalid cron": ('cron = "0 8 * * *"', 'cron = "0 25 * * *"', ("cron", "'0 25 * * *'")),
    "an unknown time zone": ('timezone = "local"', 'timezone = "Mars/Olympus"', ("timezone", "Mars/Olympus")),
    "a rule without effect": ('goal = "file {attributes.name}"', 'gaol = "x"', ("rules[0]", "gaol", "'goal'")),
    "a rule that names what is not there": ('"{attributes.name}"', '"{nothing.at.all}"', ("rules[0]", "nothing")),
    "a rule whose pattern is none": ('pattern = "(?i)\\\\b(load', 'pattern = "(?i)\\\\b((load', ("pattern",)),
    "a rule that calls an unknown tool": ('name = "file"\ntool = "files"', 'name = "file"\ntool = "fils"',
        ("'fils'", "files")),
    "a rule after a call that is not there": ('after = ["note"]', 'after = ["nothing"]', ("nothing",)),
    "two tools of one name": ('use = "shell"', 'use = "shell"\nname = "files"',
        ("tools[2].name", "'files'", "another tool")),
    "an approval rule about an unknown tool": (
        "[memory]", '[[approval.rules]]\ntool = "shel"\ndecision = "deny"\n\n[memory]',
        ("approval.rules[0].tool", "'shel'", "known: files")),
    "a text where a list belongs": ('{ readable = ["inbox"] }', '{ readable = "inbox" }',
        ("tools[1].options.readable", "'inbox'", "must be a list")),
    "a sandbox that there is none of": ('use = "shell"', 'use = "shell"\noptions = { sandbox = 9 }',
        ("tools[2].options.sandbox", "9", "'auto', 0, 1 or 2")),
    "a store that is no file": ('url = "sqlite:///memory.db"', 'url = "redis://x"', ("memory.url", "redis://x")),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "words"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_with_file_line_key_and_what_is_known(
    spar: Any, old: str, new: str, words: tuple[str, ...]
) -> None:
    text = spar.config.read_text()
    assert old in text
    changed = text.replace(old, new, 1)
    spar.write(changed)
    first = text[: text.index(old)].count("\n") + 1
    lines = {first + offset for offset in range(new.count("\n") + 1)}

    answer = spar("config", "check")

    assert answer.code == 78, answer
    assert answer.out == ""
    assert len(answer.err.strip().splitlines()) == 1, answer
    for word in words:
        assert word in answer.err
    assert any(f"config.toml:{line}: " in answer.err for line in lines), (lines, answer)


@pytest.mark.parametrize(("old", "new", "words"), [
    ('= { title = "{attributes.name}"', '= { titel = "{attributes.name}"', ("no parameter 'titel'", "title")),
    ('op = "copy"', 'op = "clone"', ("parameter 'op' is 'clone'",)),
    ('params = { text = "{slots.what}", tags', "params = { tags", ("parameter 'text' is missing",)),
])  # fmt: skip
def test_what_a_rule_gives_a_tool_is_judged_before_anything_runs(
    spar: Any, old: str, new: str, words: tuple[str, ...]
) -> None:
    spar.edit(old, new)
    line = next(number for number, text in enumerate(spar.config.read_text().split("\n"), 1) if new in text)

    answer = spar("config", "check")

    assert answer.code == 78
    assert all(word in answer.err for word in (f"config.toml:{line}: rules[", *words)), answer


def test_a_port_in_use_is_told_with_its_place(spar: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        spar.edit("port = 8420", f"port = {port}")
        del spar.environ["SPAR_SERVICE__PORT"]

        answer = spar("run")

    assert answer.code == 69
    assert "config.toml:" in answer.err.splitlines()[-1]
    assert f"service.port = {port}: cannot listen on 127.0.0.1:{port}: Address already in use" in answer.err
    assert "Traceback" not in answer.err
    assert '"level":"error"' not in answer.err


def test_an_address_that_is_not_ours_is_told(spar: Any) -> None:
    answer = spar("--set", "service.host=192.0.2.1", "run")

    assert answer.code == 69
    assert "192.0.2.1" in answer.err
    assert spar("--set", "service.host=no such host", "run").code == 69


@pytest.mark.parametrize("key", ["state_dir", "workspace"])
def test_a_folder_that_cannot_be_made_is_told_with_its_place(spar: Any, key: str) -> None:
    (spar.folder / "taken").write_text("a file")
    folder = {"state_dir": "state", "workspace": "workspace"}[key]
    spar.edit(f'{key} = "{folder}"', f'{key} = "taken"')

    answer = spar("run")

    assert answer.code == 73
    assert "config.toml:" in answer.err
    assert f"service.{key} = " in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert spar("--set", f"service.{key}=taken/inside", "run").code == 73
    assert spar("--set", f"service.{key}=/proc/nothing", "run").code == 73


def give_up_roots_privilege() -> None:
    """In the child, before it runs: root obeys the modes of files like anybody else (nothing to do for others)."""
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def test_a_state_directory_that_may_not_be_written_is_told(spar: Any) -> None:
    spar.state.mkdir(mode=0o500)

    answer = spar("run", preexec_fn=give_up_roots_privilege)

    assert answer.code == 73
    assert "Permission denied" in answer.err


def test_a_store_that_cannot_be_read_is_told(spar: Any) -> None:
    spar.state.mkdir()
    (spar.state / "memory.db").write_bytes(b"this is no database at all" * 1000)

    answer = spar("run")

    assert answer.code == 78, answer
    assert re.search(r"config\.toml:\d+: memory\.url: .*memory\.db' is not a database", answer.err)
    assert "Traceback" not in answer.err
    assert (spar.state / "memory.db").read_bytes().startswith(b"this is no database")


# -- parts of one's own


def own_part(spar: Any, code: str) -> None:
    (spar.folder / "mine.py").write_text("from spar.types import *\n" + code)
    spar.edit('[reflect]\nuse = "standard"', '[reflect]\nuse = "mine:Mine"')


@pytest.mark.parametrize(("code", "words"), [
    ("class Mine:\n def __init__(self): raise ValueError('no key given')",
     ("'mine:Mine' cannot be made", "ValueError: no key given")),
    ("class Mine:\n def __init__(self, key: str): ...", ("key",)),
    ("class Other: ...", ("has no 'Mine'",)),
    ("import nonsense_that_is_not_there", ("nonsense_that_is_not_there",)),
    ("def broken(:", ("SyntaxError",)),
    ("raise SystemExit(3)", ("SystemExit",)),
], ids=["raises", "required", "missing", "import", "syntax", "exits"])  # fmt: skip
def test_a_part_that_cannot_be_made_is_told_by_name_with_its_line(spar: Any, code: str, words: tuple[str, ...]) -> None:
    own_part(spar, code)

    answer = spar("run")

    assert answer.code == 78, answer
    assert "config.toml:" in answer.err
    assert "reflect" in answer.err
    assert all(word in answer.err for word in words), answer
    assert "Traceback" not in answer.err


def test_a_part_that_cannot_be_opened_is_told(spar: Any) -> None:
    own_part(spar, (
        "class Mine:\n"
        "  async def __aenter__(self): raise ValueError('no such device')\n"
        "  async def __aexit__(self, *e): ...\n"
        "  async def reflect(self, result): ...\n"
    ))  # fmt: skip

    answer = spar("run")

    assert answer.code == 69, answer
    assert "no such device" in answer.err.splitlines()[-1]
    assert "Traceback" not in answer.err
