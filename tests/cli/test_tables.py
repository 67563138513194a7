"""Answers of the command line for people: aligned tables, times with their zone, a cycle as a tree."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from spar.cli.tables import TEXT, cycle_tree, local, table, took, zoned


def call(tool: str, id: str, **params: Any) -> dict[str, Any]:
    return {"tool": tool, "params": params, "id": id}


def result(given: dict[str, Any], status: str, **more: Any) -> dict[str, Any]:
    return {"call": given, "status": status, "output": None, "fault": None, "reason": "", "duration": 0.0035, **more}


def cycle(**more: Any) -> dict[str, Any]:
    return {"cycle_id": "18ea", "session": "main", "started_at": "2026-11-22T07:28:44.79Z", "duration": 1.5,
            "outcome": "acted", **more}  # fmt: skip


def test_columns_stand_under_their_heads_and_numbers_to_the_right() -> None:
    shown = table((">seq", "kind", "text"), [("1", "user", "hello"), ("12", "end", "two\nlines")])

    assert shown.split("\n") == ["seq  kind  text", "  1  user  hello", " 12  end   two lines"]


def test_times_are_local_and_their_zone_is_named() -> None:
    at = "2026-11-22T07:28:44.791333Z"

    assert local(at) == datetime.fromisoformat(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert zoned("started") == f"started ({datetime.now().astimezone().tzname()})"
    assert local(None) == ""
    assert [took(0.00034), took(0.0035), took(12.01)] == ["340 µs", "3.5 ms", "12.01 s"]


def test_a_cycle_shows_what_was_noticed_decided_done_and_learnt() -> None:
    good, bad, open_ = call("note", "a", text="x"), call("files", "b", op="copy"), call("late", "c")
    shown = cycle_tree(
        cycle(
            perceptions=[{"source": "inbox", "kind": "file.added", "intent": None, "content": "printer\non fire"}],
            action={"calls": [good, bad, open_], "goal": "file it", "reason": "rule 'x' matched", "output": "Noted"},
            result={
                "results": [
                    result(good, "ok", output={"path": "notes.md"}),
                    result(bad, "failed", fault={"message": "OSError: disk full"}),
                ]
            },
            reflection={"failures": [{"call": bad, "cause": "no space"}], "experiences": [{"lesson": "note worked"}]},
            phases={"sense": 0.001, "plan": 0.002, "act": 0.5, "reflect": 0.0001},
        )
    )

    lines = [line.removeprefix("│").strip() for line in shown.split("\n")]
    assert lines[0].endswith("acted in 1.50 s")
    assert lines[1:] == [
        "├─ noticed  1.0 ms",
        "inbox/file.added: printer on fire",
        "├─ decided  2.0 ms",
        "file it",
        "rule 'x' matched",
        "answer: Noted",
        "├─ done  500.0 ms",
        '✓ note(text=x) in 3.5 ms → {"path": "notes.md"}',
        "✗ files(op=copy) failed in 3.5 ms → OSError: disk full",
        "· late(): not known what came of it",
        "├─ learnt  100 µs",
        "✗ files: no space",
        "note worked",
    ]


def test_a_cycle_that_was_cut_off_and_one_with_huge_values_are_shown_too() -> None:
    bare = cycle_tree(cycle(action=None, result=None, reflection=None, phases={}, faults=[], perceptions=[]))
    long = cycle_tree(cycle(faults=[{"phase": "plan", "message": "x" * 10_000}]))

    assert "\n" not in bare
    assert len(long) < TEXT + 200
    assert "├─ failed" in long


def test_a_cycle_shows_what_hooks_did_to_its_request() -> None:
    did = {"point": "before_request", "hook": "night", "instructions": "9 characters appended", "left_out": ["shell"]}
    shown = cycle_tree(cycle(notes=[{"kind": "advice", "advice": []}, {"kind": "hooks", "hooks": [did]}]))

    assert 'hook night at before_request: instructions: 9 characters appended; left out: ["shell"]' in shown
