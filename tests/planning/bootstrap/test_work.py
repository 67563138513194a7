"""Work of composing a request of a long conversation, counted: what has not changed is not done again."""

from __future__ import annotations

from pathlib import Path

from planning.bootstrap.files import PromptFiles
from planning.bootstrap.session_prompts import SessionPrompts
from planning.bootstrap.skills import Skills
from planning.bootstrap.snapshots import Snapshots
from planning.llm.planner import ModelPlanner
from spar.protocols import Home
from spar.records.transcript import Entry
from spar.testing import ScriptedModel, VirtualClock
from tests.planning.bootstrap.test_skills import skill
from tests.planning.bootstrap.written import write
from tests.planning.desk import Desk, context, end, message, planned, user


def said(runs: int) -> list[Entry]:
    entries: list[Entry] = []
    for number in range(runs):
        entries += [user(f"q{number}", f"r{number}", 2 * number + 1), end(f"a{number}", f"r{number}", 2 * number + 2)]
    return entries


async def test_files_and_skills_are_read_once_and_each_entry_is_told_once(clock: VirtualClock, home: Home) -> None:
    for number in range(5):
        write("text", home.config, f"F{number}.md")
    for number in range(10):
        skill(Path(home.config, "skills"), f"s{number}")
    files, skills = PromptFiles([f"F{number}.md" for number in range(5)], home), Skills("skills", home)
    prompts = SessionPrompts("be kind", files, Snapshots(skills))
    desk, model = Desk(clock, entries=said(100)), ScriptedModel([{"output": "yes"}] * 20)
    planner = ModelPlanner(model, instructions=prompts, context_tokens=100_000)
    planner.attach(desk.host)

    for number in range(10):
        await planned(planner, [], context(message(f"now {number}")))

    past = planner.past_of("main")
    assert (files.reads, skills.reads, prompts.composed) == (5, 10, 1)
    assert (files.looks, past.count) == (10, 200)
    told = past.talk.turns
    desk.transcripts.entries += [user("more", "r100", 201), end("again", "r100", 202)]
    await planned(planner, [], context(message("now")))

    assert planner.past_of("main") is past
    assert past.talk.turns is told  # what was told is added to, not made anew
    assert past.count == 202
    assert (files.reads, skills.reads, prompts.composed) == (5, 10, 1)
    first, last = model.requests[0], model.requests[-1]
    assert (first.instructions, first.schema) == (last.instructions, last.schema)
    assert last.turns[:199] == first.turns[:199]
