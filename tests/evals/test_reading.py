"""Files of cases: what is wrong in one is named with its file and line, and with what is expected."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spar.evals import reading
from spar.evals.reading import CasesError, read_cases

CASE = "- name: one\n  messages: [hello]\n  expect: {}\n"

#: Files, and what the refusal says, after the file's name.
WRONG = {
    "empty": ("", [": has no cases; expected a list of cases, each with name, messages, tools and expect"]),
    "only a comment": ("# nothing yet\n", [": has no cases"]),
    "an empty list": ("[]\n", [": has no cases"]),
    "no list": ("name: one\nmessages: [hello]\n", [":1: must be a list of cases", "begin each with a dash: - name: …"]),
    "no YAML": ("- name: one\n  messages: [hello\n", [":3:1: is no YAML", "expected ',' or ']'", "expected a list of"]),
    "a tab": ("- name: one\n\tmessages: [hello]\n", [":2:1: is no YAML", "cannot start any token"]),
    "two documents": (f"{CASE}---\n{CASE}", [":4:1: is no YAML", "another document"]),
    "control characters": ("- name: \x00\n", [": is no YAML", "#x0000"]),
    "an unknown alias": ("- name: *nothing\n", [":1:9: is no YAML", "undefined alias"]),
    "an unknown type": ("- name: !!python/object:os.system x\n", [":1:9: is no YAML", "could not determine"]),
    "a case that is a text": ("- one\n", [":1: case 1 = 'one': must be a table"]),
    "an unknown key": (f"{CASE}- name: two\n  mesages: [hi]\n  expect: {{}}\n",
        [":4: case 2, messages: missing", ":5: case 2, mesages: unknown key", "did you mean 'messages'"]),
    "an unknown key deep inside": (
        "- name: one\n  messages: [hi]\n  tools:\n    look:\n      description: Look.\n      answers:\n"
        "        - result: 3\n        - {wen: {at: door}, result: 4}\n  expect: {}\n",
        [":8: case 1, tools.look.answers[1].wen: unknown key", "did you mean 'when'"]),
    "no messages": ("- name: one\n  messages: []\n  expect: {}\n",
        [":2: case 1, messages = a list of 0: must have at least 1"]),
    "nothing expected": ("- name: one\n  messages: [hi]\n", [":1: case 1, expect: missing"]),
    "a wrong word": ("- {name: one, messages: [hi], expect: {status: good}}\n",
        [":1: case 1, expect.status = 'good'", "'ok' or 'error'"]),
    "a wrong number": ("- name: one\n  messages: [hi]\n  expect:\n    steps: 0\n",
        [":4: case 1, expect.steps = 0: must be >= 1"]),
    "a wrong pattern": ("- name: one\n  messages: [hi]\n  expect:\n    answer: {matches: '(a'}\n",
        [":4: case 1, expect.answer.matches", "missing )", "RE2"]),
    "a wrong pattern in a parameter": (
        "- name: one\n  messages: [hi]\n  expect:\n    calls:\n    - {tool: x, params: {at: {matches: '(a'}}}\n",
        [":5: case 1, expect.calls[0].params", "missing )"]),
    "a time that is none": ("- {name: one, messages: [hi], expect: {}, timeout: never}\n",
        [":1: case 1, timeout = 'never'", "duration"]),
    "a key twice": ("- name: one\n  messages: [hi]\n  messages: [ho]\n  expect: {}\n",
        [":3: [0].messages: stands here twice; first in line 2"]),
    "a name twice": (CASE + CASE, [":4: name = 'one': is the name of another case already (", ":1)"]),
}  # fmt: skip


@pytest.mark.parametrize("which", WRONG)
def test_what_is_wrong_is_said_with_file_and_line(which: str, tmp_path: Path) -> None:
    text, parts = WRONG[which]
    file = tmp_path / "cases.yaml"
    file.write_text(text)

    with pytest.raises(CasesError) as wrong:
        read_cases([file])

    assert str(wrong.value).startswith(f"{file}:")
    for part in parts:
        assert part in str(wrong.value).replace(str(file), "")


def test_bytes_that_are_no_text_and_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    (file := tmp_path / "cases.yaml").write_bytes(b"- name: one\n  messages: [\xff]\n")

    with pytest.raises(CasesError, match=r"cases.yaml:2: byte 0xff is not UTF-8"):
        read_cases([file])
    with pytest.raises(CasesError, match=r"none.yaml: cannot be read: No such file"):
        read_cases([tmp_path / "none.yaml"])
    with pytest.raises(CasesError, match=r"cannot be read: Is a directory"):
        read_cases([tmp_path])


def test_aliases_that_multiply_and_nests_without_end_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_VALUES", 10_000)
    (file := tmp_path / "cases.yaml").write_text(
        "- &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"- &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True))
    )
    with pytest.raises(CasesError, match=f"more than {reading.MOST_VALUES} values"):
        read_cases([file])

    file.write_text("- &a [*a]\n")
    with pytest.raises(CasesError, match="nested too deeply"):
        read_cases([file])
    file.write_text("[" * sys.getrecursionlimit())
    with pytest.raises(CasesError, match="nested too deeply"):
        read_cases([file])


def test_names_are_told_apart_over_all_files_and_the_group_is_that_of_the_file(tmp_path: Path) -> None:
    one, other = tmp_path / "night-watch.yaml", tmp_path / "other.yaml"
    one.write_text(CASE)
    other.write_text(CASE.replace("one", "two") + "  group: day\n")

    assert [(case.name, case.group) for case in read_cases([one, other])] == [("one", "night watch"), ("two", "day")]
    other.write_text(CASE)
    with pytest.raises(CasesError, match=r"other.yaml:1: name = 'one': is the name .*night-watch.yaml:1"):
        read_cases([one, other])


def test_a_date_stays_the_text_that_it_is_written_as(tmp_path: Path) -> None:
    (file := tmp_path / "cases.yaml").write_text(
        "- name: one\n  messages: [hi]\n  expect: {calls: [{tool: book, params: {day: 2026-03-01}}]}\n"
    )

    assert read_cases([file])[0].expect.calls[0].params == {"day": "2026-03-01"}


def test_the_case_that_the_page_shows_is_one(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "evaluate.md"
    (file := tmp_path / "cases.yaml").write_text(page.read_text().partition("```yaml\n")[2].partition("```")[0])

    (case,) = read_cases([file])
    assert (case.name, case.expect.steps) == ("an error that names what is right", 4)
