"""One cycle as a tree: what was noticed, decided, done and learnt, its times as bars."""

from __future__ import annotations

from typing import Any

import pytest

from spar.cli.blocks import CELL, Branch, plain
from spar.cli.cycles import cycle_blocks
from spar.decoding import convert
from spar.operations.history import ShownCycle


def cycle_tree(given: dict[str, Any]) -> Branch:
    (branch,) = cycle_blocks(None, convert({"agent": "main", **given}, ShownCycle))
    return branch


def shown_of(given: dict[str, Any]) -> str:
    return plain(cycle_tree(given))


def call(tool: str, id: str, **params: Any) -> dict[str, Any]:
    return {"tool": tool, "params": params, "id": id}


def result(given: dict[str, Any], status: str, **more: Any) -> dict[str, Any]:
    return {"call": given, "status": status, "output": None, "fault": None, "reason": "", "duration": 0.0035, **more}


def cycle(**more: Any) -> dict[str, Any]:
    return {"cycle_id": "18ea", "session": "main", "started_at": "2026-11-22T07:28:44.79Z", "duration": 1.5,
            "outcome": "acted", **more}  # fmt: skip


def test_a_decision_that_memory_changed_names_the_experiences_that_it_went_by() -> None:
    learnt = [
        {"why": "b worked", "cases": ["18ea01", "18ea02"], "instead_of": "a", "is_used": True},
        {"why": "b worked", "cases": [], "instead_of": "a", "is_used": False},
    ]
    shown = shown_of(cycle(action={"calls": [], "reason": "by memory instead of a: b worked", "learnt": learnt}))

    assert "by memory instead of a: b worked" in shown
    assert "memory: it went by the experiences 18ea01, 18ea02 instead of a" in shown
    assert "memory: it would have gone by what the tools did at such tasks so far instead of a" in shown


def test_a_cycle_shows_what_was_noticed_decided_done_and_learnt() -> None:
    good, bad, open_ = call("note", "a", text="x"), call("files", "b", op="copy"), call("late", "c")
    shown = shown_of(
        cycle(
            perceptions=[{"source": "inbox", "kind": "file.added", "content": "printer\non fire"}],
            action={"calls": [good, bad, open_], "goal": "file it", "reason": "rule 'x' matched", "output": "Noted"},
            result={
                "results": [
                    result(good, "ok", output={"path": "notes.md"}),
                    result(bad, "failed", fault={"kind": "error", "message": "OSError: disk full"}),
                ]
            },
            reflection={
                "failures": [{"call": bad, "cause": "no space"}],
                "experiences": [{"situation": "", "lesson": "note worked"}],
            },
            phases={"sense": 0.001, "plan": 0.002, "act": 0.5, "reflect": 0.0001},
        )
    )

    lines = shown.split("\n")
    assert lines[0].endswith("acted in 1.50 s")
    assert lines[1:] == [
        "  noticed  1.0 ms",
        "    inbox/file.added: printer on fire",
        "  decided  2.0 ms",
        "    file it",
        "    rule 'x' matched",
        "    answer: Noted",
        "  done  500.0 ms",
        '    ✓ note(text=x) → {"path": "notes.md"}  3.5 ms',
        "    ✗ files(op=copy) failed → OSError: disk full  3.5 ms",
        "    · late(): not known what came of it",
        "  learnt  100 µs",
        "    ✗ files: no space",
        "    note worked",
    ]


def test_a_cycle_that_was_cut_off_and_one_with_huge_values_are_shown_too() -> None:
    bare = shown_of(cycle(action=None, result=None, reflection=None, phases={}, faults=[], perceptions=[]))
    long = shown_of(cycle(faults=[{"kind": "error", "phase": "plan", "message": "x" * 10_000}]))

    assert "\n" not in bare
    assert len(long) < 2 * CELL + 200
    assert "\n  failed\n" in long
    assert long.endswith("x…")


def test_a_cycle_shows_what_hooks_did_to_its_request() -> None:
    did = {"point": "before_request", "hook": "night", "instructions": "9 characters appended", "left_out": ["shell"]}
    shown = shown_of(cycle(notes=[{"kind": "advice", "advice": []}, {"kind": "hooks", "hooks": [did]}]))

    assert 'hook night at before_request: instructions: 9 characters appended; left out: ["shell"]' in shown


def leaves(branch: Branch) -> list[Branch]:
    return [branch, *(each for child in branch.children for each in leaves(child))]


def test_a_call_has_a_bar_of_its_wait_and_its_work_in_the_time_of_the_cycle() -> None:
    """Sense takes 1 s of 10, plan 1 s, act 8 s; the call waits 2 s and works for 4 s."""
    slow = result(call("slow", "a"), "ok", started_at="2026-11-22T07:28:48.79Z")
    given = cycle(action={"calls": [slow["call"]]}, result={"results": [{**slow, "duration": 4.0}]},
                  phases={"sense": 1.0, "plan": 1.0, "act": 8.0})  # fmt: skip
    given["duration"] = 10.0

    bars = {each.text: each.bar for each in leaves(cycle_tree(given))}

    assert bars["noticed"] == pytest.approx((0.0, 0.0, 0.1))
    assert bars["done"] == pytest.approx((0.2, 0.2, 1.0))
    assert bars["✓ slow()"] == pytest.approx((0.2, 0.4, 0.8))
