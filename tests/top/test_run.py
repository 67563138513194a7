"""The text of a run in `spar top`: what was written stands there once, in order, bounded."""

from __future__ import annotations

from typing import Any

from spar.top.screens import CUT, SHOWN, RunText


def text_of(*events: tuple[str, dict[str, Any]]) -> RunText:
    text = RunText()
    for stream, data in events:
        text.show({"stream": stream, "data": data})
    return text


def test_a_text_that_begins_anew_is_told_of_and_the_answer_is_not_repeated() -> None:
    pieces = (
        {"text": "on", "reset": False},
        {"text": "once\n\nupon", "reset": True},
        {"text": " a time", "reset": False},
    )
    text = text_of(
        *(("assistant", piece) for piece in pieces),
        ("lifecycle", {"phase": "end", "reply": "once\n\nupon a time", "output": None}),
    )

    assert text.text == "on\nit is written anew\nonce\n\nupon a time\n"


def test_calls_stand_between_the_texts_and_an_unwritten_answer_comes_last() -> None:
    call = {"tool": "look", "call": "c"}
    text = text_of(
        ("assistant", {"text": "I look", "reset": False}),
        ("tool", {**call, "phase": "proposed", "params": {}}),
        ("tool", {**call, "phase": "result", "status": "ok", "output": "\x1b[2J"}),
        ("assistant", {"text": "I s", "reset": True}),
        ("lifecycle", {"phase": "end", "reply": "I saw."}),
    )

    assert text.text.splitlines() == ["I look", "✓ look: ok \\u{1b}[2J", "I s", "I saw."]
    assert text_of(("lifecycle", {"phase": "error", "error": "no\nmodel"})).text == "the run failed: no model\n"


def test_the_end_of_a_long_text_is_shown() -> None:
    text = text_of(*(("assistant", {"text": "x" * SHOWN, "reset": True}), ("gap", {"missed": 3})))

    assert text.text.startswith(f"{CUT}\n")
    assert len(text.text) <= SHOWN + len(CUT) + 1
    assert text.text.endswith("x\n3 earlier events are not kept any more\n")
