"""Conversations with questions, read from public data sets that lie beside this machine and are never committed.

LoCoMo (snap-research/LoCoMo, CC BY-NC): data/locomo10.json; REALTALK (danny911kr/REALTALK, to be measured only):
data/Chat_*.json; the memory notes of BFCL (package `bfcl-eval`, Apache-2.0): data/memory_prereq_conversation and
data/possible_answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

_EVIDENCE = re.compile(r"D\d+:\d+")
_SESSION = re.compile(r"session_(\d+)$")


class Turn(Struct, frozen=True):
    """A turn of a conversation: its id, who says it, when, and what."""

    id: str
    speaker: str
    at: datetime
    text: str


class Question(Struct, frozen=True):
    """A question, and the ids of the turns that hold the answer."""

    text: str
    evidence: frozenset[str]


class Conversation(Struct, frozen=True):
    """A conversation of two people over months, with questions about it."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


def locomo(folder: Path) -> list[Conversation]:
    """Read LoCoMo's ten conversations."""
    file = next(folder.rglob("locomo10.json"))
    return [_locomo(each) for each in json.loads(file.read_text("utf-8"))]


def _locomo(found: dict[str, Any]) -> Conversation:
    said, turns = found["conversation"], list[Turn]()
    for number in _sessions(said):
        began = datetime.strptime(said[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        for place, each in enumerate(said[f"session_{number}"]):
            shown = f" [image: {each['blip_caption']}]" if each.get("blip_caption") else ""
            at = began + timedelta(seconds=30 * place)
            turns.append(Turn(each["dia_id"], each["speaker"], at, f"{each.get('text', '')}{shown}"))
    return Conversation(found["sample_id"], tuple(turns), tuple(_questions(found["qa"], turns)))


def realtalk(folder: Path) -> list[Conversation]:
    """Read REALTALK's ten chats."""
    files = {file.name: file for file in sorted(folder.rglob("Chat_*.json"))}
    return [_realtalk(name, json.loads(file.read_text("utf-8"))) for name, file in files.items()]


def _realtalk(name: str, found: dict[str, Any]) -> Conversation:
    turns = [
        Turn(each["dia_id"], each["speaker"],
             datetime.strptime(each["date_time"], "%d.%m.%Y, %H:%M:%S").replace(tzinfo=UTC), each["clean_text"])
        for number in _sessions(found) for each in found[f"session_{number}"]
    ]  # fmt: skip
    return Conversation(name, tuple(turns), tuple(_questions(found.get("qa", ()), turns)))


def _sessions(found: dict[str, Any]) -> list[int]:
    return sorted(int(match[1]) for name in found if (match := _SESSION.match(name)) and found[name])


def _questions(found: Any, turns: list[Turn]) -> Iterator[Question]:
    known = {turn.id for turn in turns}
    for each in found:
        evidence = frozenset(_EVIDENCE.findall(str(each.get("evidence", "")))) & known
        if evidence:
            yield Question(each["question"], evidence)


def notes(folder: Path) -> list[Conversation]:
    """Read the notes of BFCL's memory questions, one conversation for each scenario; an answer's own words name the
    notes that hold it."""
    files = sorted(folder.rglob("BFCL_v4_memory.json"), key=lambda file: file.parent.name == "possible_answer")
    asked, answers = (list(_lines(file)) for file in files[:2])
    answer_of = {each["id"]: each for each in answers}
    found = []
    for scenario in dict.fromkeys(each["scenario"] for each in asked):
        file = next(folder.rglob(f"memory_{scenario}.json"))
        texts = [turn["content"] for each in _lines(file) for said in each["question"] for turn in said]
        turns = [Turn(f"{n}", "user", _BEGAN + timedelta(minutes=n), text) for n, text in enumerate(texts)]
        questions = [
            Question(each["question"][0][0]["content"], evidence)
            for each in asked
            if each["scenario"] == scenario and (evidence := _holding(turns, answer_of[each["id"]]))
        ]
        found.append(Conversation(scenario, tuple(turns), tuple(questions)))
    return found


_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, file.read_text("utf-8").splitlines())


def _holding(turns: list[Turn], answer: dict[str, Any]) -> frozenset[str]:
    source = str(answer.get("source", "")).strip(". …").casefold()
    held = frozenset(turn.id for turn in turns if source and source in turn.text.casefold())
    words = [str(each).casefold() for each in answer["ground_truth"]]
    return held or frozenset(turn.id for turn in turns if any(word in turn.text.casefold() for word in words))
