"""What cannot be used is refused in one clear sentence: where, which key, what was found, what is known."""

from __future__ import annotations

import ctypes
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.process.conftest import Answer, Spar, in_one_process

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


SKILLS = """
[plan]
use = "llm"
options = { model = [{ name = "scripted", base_url = "http://127.0.0.1:1" }], skills = "skills/" }
[[tools]]
use = "shell"
[[approval.rules]]
tool = "skil"
decision = "deny"
"""


def test_a_rule_of_approval_may_name_the_tool_that_reads_skills(spar: Spar) -> None:
    pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")
    (spar.folder / "skills").mkdir()
    spar.write(SKILLS)
    assert "no tool named 'skil'; known: shell, skill" in spar("config", "check").err
    spar.edit('"skil"', '"skill"')
    assert spar("config", "check").code == 0


def test_a_reflector_that_asks_the_planners_model_is_refused_where_there_is_none(spar: Spar) -> None:
    spar.edit('[reflect]\nuse = "standard"', '[reflect]\nuse = "model"')

    answer = spar("config", "check")

    assert (answer.code, "asks the planner's model, and there is none" in answer.err) == (78, True), answer


# -- what a service is refused that starts


def give_up_roots_privilege() -> None:
    """In the child, before it runs: root obeys the modes of files like anybody else (nothing to do for others)."""
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def test_a_state_directory_that_may_not_be_written_is_told(spar: Spar) -> None:
    spar.state.mkdir(mode=0o500)

    answer = spar("run", preexec_fn=give_up_roots_privilege)

    assert answer.code == 73
    assert "Permission denied" in answer.err


NO_DATABASE = b"this is no database at all" * 1000
#: What cannot be run: what is set, the exit code, and what the refusal says.
REFUSED: dict[str, tuple[str, int, str]] = {
    "an address that is not ours": ("service.host=192.0.2.1", 69, "192.0.2.1"),
    "an address that is none": ("service.host=no such host", 69, "no such host"),
    "a state folder in a file": ("service.state_dir=taken/inside", 73, "service.state_dir"),
    "a state folder in /proc": ("service.state_dir=/proc/nothing", 73, "service.state_dir"),
    "a workspace in a file": ("service.workspace=taken/inside", 73, "service.workspace"),
    "a workspace in /proc": ("service.workspace=/proc/nothing", 73, "service.workspace"),
}
#: The same of a file that is edited: what is changed there (old, new).
EDITED: dict[str, tuple[str, str, int, str]] = {
    "a state folder that is a file": ('state_dir = "state"', 'state_dir = "taken"', 73, "service.state_dir = "),
    "a workspace that is a file": ('workspace = "workspace"', 'workspace = "taken"', 73, "service.workspace = "),
}
#: Parts of one's own that cannot be used: their code, the exit code, and what the refusal says.
PARTS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "raises": ("class Mine:\n def __init__(self): raise ValueError('no key given')",
        78, ("'mine:Mine' cannot be made", "ValueError: no key given")),
    "required": ("class Mine:\n def __init__(self, key: str): ...", 78, ("key",)),
    "missing": ("class Other: ...", 78, ("has no 'Mine'",)),
    "import": ("import nonsense_that_is_not_there", 78, ("nonsense_that_is_not_there",)),
    "syntax": ("def broken(:", 78, ("SyntaxError",)),
    "exits": ("raise SystemExit(3)", 78, ("SystemExit",)),
    "opening": ("class Mine:\n"
                "  async def __aenter__(self): raise ValueError('no such device')\n"
                "  async def __aexit__(self, *e): ...\n"
                "  async def reflect(self, result): ...\n", 69, ("no such device",)),
}  # fmt: skip


@pytest.fixture(scope="module")
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory, taken: int) -> dict[str, Answer]:
    """How each service ended that could not start, by its case."""
    commands: dict[str, tuple[Spar, tuple[str, ...], bytes]] = {}

    def begin(name: str, *options: str) -> Spar:
        spar = Spar(tmp_path_factory.mktemp("refused"))
        (spar.folder / "taken").write_text("a file")
        commands[name] = spar, (*options, "run"), b""
        return spar

    spar = begin("port")
    spar.edit("port = 8420", f"port = {taken}")
    del spar.environ["SPAR_SERVICE__PORT"]
    spar = begin("store")
    spar.state.mkdir()
    (spar.state / "memory.db").write_bytes(NO_DATABASE)
    for name, (option, *_) in REFUSED.items():
        begin(name, "--set", option)
    for name, (old, new, *_) in EDITED.items():
        begin(name).edit(old, new)
    for name, (code, *_) in PARTS.items():
        spar = begin(name)
        (spar.folder / "mine.py").write_text("from spar.types import *\n" + code)
        spar.edit('[reflect]\nuse = "standard"', '[reflect]\nuse = "mine:Mine"')
    answers = dict(zip(commands, in_one_process(list(commands.values())), strict=True))
    assert (commands["store"][0].state / "memory.db").read_bytes() == NO_DATABASE
    return answers


def test_a_port_in_use_is_told_with_its_place(refused: dict[str, Answer], taken: int) -> None:
    answer = refused["port"]

    assert answer.code == 69
    assert "config.toml:" in answer.err.splitlines()[-1]
    assert f"service.port = {taken}: cannot listen on 127.0.0.1:{taken}: Address already in use" in answer.err
    assert "Traceback" not in answer.err
    assert '"level":"error"' not in answer.err


@pytest.mark.parametrize("name", [*REFUSED, *EDITED])
def test_an_address_that_is_not_ours_and_a_folder_that_cannot_be_made_are_told(
    refused: dict[str, Answer], name: str
) -> None:
    *_, code, words = REFUSED.get(name) or EDITED[name]

    answer = refused[name]

    assert (answer.code, words in answer.err) == (code, True), answer
    if name in EDITED:
        assert "config.toml:" in answer.err
        assert len(answer.err.strip().splitlines()) == 1


def test_a_store_that_cannot_be_read_is_told_and_left_as_it_is(refused: dict[str, Answer]) -> None:
    answer = refused["store"]

    assert answer.code == 78, answer
    assert re.search(r"config\.toml:\d+: memory\.url: .*memory\.db' is not a database", answer.err)
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_cannot_be_made_or_opened_is_told_by_name_with_its_line(
    refused: dict[str, Answer], name: str
) -> None:
    _, code, words = PARTS[name]

    answer = refused[name]

    assert answer.code == code, answer
    assert all(word in answer.err.splitlines()[-1] for word in words), answer
    if code == 78:
        assert "config.toml:" in answer.err
        assert "reflect" in answer.err
    assert "Traceback" not in answer.err
