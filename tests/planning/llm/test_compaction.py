from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from planning.llm.compaction import Compaction, identifiers
from planning.llm.planner import ModelPlanner
from planning.ports import Request
from planning.prompt.history import conversation
from planning.prompt.token_budget import TokenEstimator
from planning.resilience.provider_errors import provider_error
from spar.errors import FencedError, TransientError
from spar.events import CompactionCompleted, CompactionStarted, ErrorOccurred, ModelRequested
from spar.hooks import Decision, HookContext
from spar.records.transcript import CompactionPlan, Entry
from spar.testing import Fail, Hang, ScriptedModel, VirtualClock
from tests.planning.desk import Desk, context, decided, end, message, planned, read_of, turn, user

LONG = "we talked at length about many things of little weight " * 20
CALL = {"call": {"_tool": "note", "text": "a"}, "status": "ok", "reason": "", "output": LONG}


def talked(runs: int = 6, said: str = LONG) -> list[Entry]:
    """A session of so many runs, of four entries each."""
    entries: list[Entry] = []
    for number in range(runs):
        at = 4 * number
        entries += [user(f"{said} {number}", f"o{number}", at + 1), turn(f"o{number}", at + 2, CALL),
                    turn(f"o{number}", at + 3), end(LONG, f"o{number}", at + 4)]  # fmt: skip
    return entries


async def compacted(desk: Desk, model: Any, **options: Any) -> bool:
    planner = ModelPlanner(model)
    planner.attach(desk.host)
    made = Compaction(planner.ask, **options)
    return await made.run(
        desk.host, context(), await desk.transcripts.read("main"), "overflow", estimator=TokenEstimator()
    )


def completed(desk: Desk) -> list[tuple[bool, str]]:
    return [(event.completed, event.error) for event in desk.events.of(CompactionCompleted)]


def by_hooks(desk: Desk) -> list[tuple[str, dict[str, Any]]]:
    """What the tape says that hooks did."""
    return [each for each in desk.notes if each[1]["kind"] == "compaction.hooks"]


# -- what is cut


def test_identifiers_are_what_people_named_and_must_be_kept_to_the_letter() -> None:
    entries = [
        user("see /srv/data/a.csv and https://x.example/q?a=1, ticket SPAR-1042", "1", 1),
        turn("1", 2, {**CALL, "output": "9f8e7d6c"}),
        user("mail jo@example.org about `rm -rf` in max_tokens", "2", 3),
    ]

    found = identifiers(entries)

    assert {"/srv/data/a.csv", "https://x.example/q?a=1", "SPAR-1042", "jo@example.org", "rm -rf", "max_tokens"} <= set(
        found
    )
    assert "9f8e7d6c" not in found
    assert identifiers([Entry("compaction", {"summary": "To the letter: SPAR-7"}, "1", 1)]) == ["SPAR-7"]
    assert identifiers([user("a-" * 20_000 + "/" * 20_000, "1", 1)]) is not None


# -- what is written


async def test_a_summary_takes_the_place_of_what_was_said_and_the_rest_stays(clock: VirtualClock) -> None:
    desk = Desk(clock, entries=talked())
    model = ScriptedModel([{"output": "They talked."}])

    assert await compacted(desk, model)

    (entry,) = desk.transcripts.compacted
    assert entry.kind == "compaction"
    assert (entry.run_id, entry.body["summary"], entry.body["first_kept"]) == ("r", "They talked.", 13)
    assert entry.body["tokens_after"] < entry.body["tokens_before"] / 2
    assert LONG in read_of(model.requests[0])
    assert model.requests[0].purpose == "compaction"
    assert [event.reason for event in desk.events.of(CompactionStarted)] == ["overflow"]
    assert completed(desk) == [(True, "")]


async def test_names_that_are_forgotten_are_asked_for_once_and_then_added(clock: VirtualClock) -> None:
    desk = Desk(clock, entries=talked(said=f"look at /srv/a.csv and SPAR-1042 {LONG}"))
    model = ScriptedModel([{"output": "They talked."}, {"output": "They talked of /srv/a.csv."}])

    assert await compacted(desk, model)

    assert "SPAR-1042" in read_of(model.requests[1]).rpartition("left these out")[2]
    assert len(model.requests) == 2
    summary = desk.transcripts.compacted[0].body["summary"]
    assert summary.startswith("They talked of /srv/a.csv.")
    assert "SPAR-1042" in summary


async def test_a_message_that_nobody_answered_survives_word_for_word_and_untrusted_if_it_was(
    clock: VirtualClock,
) -> None:
    desk = Desk(clock, entries=[user("and who feeds the cat?", "lost", 1, trust="untrusted"), *talked()])
    assert await compacted(desk, ScriptedModel([{"output": "They talked."}]))
    body = desk.transcripts.compacted[0].body
    assert ("and who feeds the cat?" in body["summary"], body["trust"]) == (True, "untrusted")


# -- when it comes to nothing


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ([{"output": LONG * 40}], "nothing is gained"),
        ([{"output": " "}], "the summary is empty"),
        ([{"output": {"a": 1}}], "the summary is empty"),
        ([Fail(TransientError("down"))], "down"),
        ([Fail(ValueError("odd"))], "odd"),
    ],
)
async def test_nothing_is_written_and_the_same_is_not_tried_again(
    clock: VirtualClock, script: Sequence[Any], why: str
) -> None:
    desk, model = Desk(clock, entries=talked()), ScriptedModel(script)
    planner = ModelPlanner(model)
    planner.attach(desk.host)
    entries = await desk.transcripts.read("main")

    for _ in range(2):
        assert not await planner.compaction.run(desk.host, context(), entries, "threshold", estimator=TokenEstimator())

    assert desk.transcripts.compacted == []
    assert len(model.requests) == 1
    ((is_done, error),) = completed(desk)
    assert not is_done
    assert why in error


async def test_a_model_that_takes_too_long_is_asked_twice(clock: VirtualClock) -> None:
    desk, model = Desk(clock, entries=talked()), ScriptedModel([Hang()])

    assert not await compacted(desk, model, deadline=180.0)

    assert clock.elapsed == 360.0
    assert "within 180 s" in completed(desk)[0][1]


async def test_a_run_that_lost_its_session_must_not_go_on(clock: VirtualClock) -> None:
    desk = Desk(clock, entries=talked())

    async def fenced(session: str, run_id: str, entry: Entry) -> None:
        raise FencedError("memory.db", 1, 2)

    desk.transcripts.compact = fenced  # type: ignore[method-assign]

    with pytest.raises(FencedError):
        await compacted(desk, ScriptedModel([{"output": "They talked."}]))
    assert completed(desk)[0][0] is False


async def test_what_was_called_off_may_be_tried_again(clock: VirtualClock) -> None:
    desk, model = Desk(clock, entries=talked()), ScriptedModel([60.0, {"output": "They talked."}])
    planner = ModelPlanner(model)
    planner.attach(desk.host)
    entries = await desk.transcripts.read("main")
    again = [desk.host, context(), entries, "overflow"]

    task = asyncio.ensure_future(planner.compaction.run(*again, estimator=TokenEstimator()))  # type: ignore[arg-type]
    await clock.sleep(1.0)
    task.cancel()
    await asyncio.wait([task])

    assert completed(desk) == [(False, "it was called off")]
    assert await planner.compaction.run(*again, estimator=TokenEstimator())  # type: ignore[arg-type]


# -- hooks


async def test_a_hook_may_refuse_it_and_another_is_told_of_it(clock: VirtualClock) -> None:
    desk, seen = Desk(clock, entries=talked()), []

    async def note(ctx: HookContext) -> None:
        seen.append((ctx.point, ctx.session, ctx.run_id, type(ctx.value).__name__))

    async def refuse(ctx: HookContext) -> Decision:
        return Decision.deny("not now")

    desk.hooks.add("before_compaction", note, priority=1)
    desk.hooks.add("after_compaction", note)
    assert await compacted(desk, ScriptedModel([{"output": "They talked."}]))
    assert seen == [("before_compaction", "main", "r", "CompactionPlan"), ("after_compaction", "main", "r", "Entry")]

    desk.transcripts.compacted.clear()
    desk.hooks.add("before_compaction", refuse)
    assert not await compacted(desk, ScriptedModel([{"output": "They talked."}]))
    assert completed(desk)[-1] == (False, "a hook refused it: not now")
    assert by_hooks(desk) == [("c1", {"kind": "compaction.hooks", "reason": "overflow", "denied": "not now"})]


async def test_a_hook_is_told_what_is_summed_up_why_and_which_names_stand_there(clock: VirtualClock) -> None:
    entries = [user("see /srv/data/a.csv", "o", 1), *talked(6)[1:]]
    desk, seen = Desk(clock, entries=entries), []
    desk.hooks.add("before_compaction", lambda ctx: seen.append((ctx.reason, ctx.value)))

    assert await compacted(desk, ScriptedModel([{"output": "They talked of /srv/data/a.csv."}]))

    reason, plan = seen[0]
    assert (reason, plan.reason, plan.session, plan.keep, plan.summary) == ("overflow", "overflow", "main", (), "")
    assert plan.identifiers == ("/srv/data/a.csv",)
    assert [each.seq for each in plan.entries] == list(range(1, 13))


async def test_a_hook_has_texts_kept_to_the_letter_and_they_stay_in_later_compactions(clock: VirtualClock) -> None:
    desk = Desk(clock, entries=talked())
    said = 'He said "never on\nFridays": 4711'

    remove = desk.hooks.add("before_compaction", lambda ctx: Decision.rewrite(ctx.value.keeping(said)))
    desk.hooks.add("before_compaction", lambda ctx: Decision.rewrite(ctx.value.keeping("and this")), priority=-1)
    assert await compacted(desk, ScriptedModel([{"output": "They talked."}]))

    body = desk.transcripts.compacted[-1].body
    assert (body["summary"], body["kept"], body["by"]) == ("They talked.", [said, "and this"], "model")
    assert body["tokens_after"] < body["tokens_before"]
    assert by_hooks(desk) == [("c1", {"kind": "compaction.hooks", "reason": "overflow", "kept": [said, "and this"],
                                  "summary_by": "model"})]  # fmt: skip
    read = "\n".join(each.text for each in conversation(await desk.transcripts.read("main")).turns)
    assert json.dumps(said, ensure_ascii=False) in read

    remove()  # who said it once need not say it again
    desk.transcripts.entries += [each for number in range(6, 12) for each in talked(12)[4 * number : 4 * number + 4]]
    assert await compacted(desk, ScriptedModel([{"output": "They talked on."}]))
    assert desk.transcripts.compacted[-1].body["kept"] == [said, "and this"]


async def test_a_hook_brings_its_own_summary_and_no_model_is_asked(clock: VirtualClock) -> None:
    desk, model = Desk(clock, entries=[user("ticket SPAR-1042", "o0", 1), *talked()[1:]]), ScriptedModel([])
    desk.hooks.add("before_compaction", lambda ctx: Decision.rewrite(ctx.value.summed_up("They talked.")))

    assert await compacted(desk, model)

    body = desk.transcripts.compacted[-1].body
    assert (body["summary"], body["by"]) == ('They talked.\nTo the letter: ["SPAR-1042"]', "hook")
    assert model.requests == []
    assert by_hooks(desk)[-1][1]["summary_by"] == "hook"


async def test_a_hooks_summary_that_is_not_shorter_is_not_taken_and_the_model_is_asked(clock: VirtualClock) -> None:
    desk = Desk(clock, entries=talked())
    desk.hooks.add("before_compaction", lambda ctx: Decision.rewrite(ctx.value.summed_up("it is long " * 1_800)))

    assert await compacted(desk, ScriptedModel([{"output": "They talked."}]))
    assert desk.transcripts.compacted[-1].body["by"] == "model"


async def test_what_hooks_keep_counts_when_it_is_judged_whether_anything_is_gained(clock: VirtualClock) -> None:
    desk = Desk(clock, entries=talked(4, said="short"))
    desk.hooks.add("before_compaction", lambda ctx: Decision.rewrite(ctx.value.keeping("much " * 1_500)))

    assert not await compacted(desk, ScriptedModel([{"output": "They talked."}]))
    assert desk.transcripts.compacted == []
    assert "nothing is gained" in completed(desk)[-1][1]


@pytest.mark.parametrize("change", [
    lambda plan: plan.keeping("x" * 8_001),
    lambda plan: plan.keeping(7),
    lambda plan: plan.summed_up("x" * 20_001),
    lambda plan: plan.summed_up(None),
    lambda plan: "a text",
    lambda plan: 1 / 0,
])  # fmt: skip
async def test_a_hook_that_asks_for_what_cannot_be_is_told_so_and_changes_nothing(
    clock: VirtualClock, change: Any
) -> None:
    desk = Desk(clock, entries=talked())
    desk.hooks.add("before_compaction", lambda ctx: Decision.rewrite(change(ctx.value)))

    assert await compacted(desk, ScriptedModel([{"output": "They talked."}]))
    assert [event.policy for event in desk.events.of(ErrorOccurred)] == ["before_compaction"]
    assert desk.transcripts.compacted[-1].body["kept"] == []
    assert by_hooks(desk) == []


async def test_a_hook_takes_nothing_out_of_what_is_summed_up(clock: VirtualClock) -> None:
    desk = Desk(clock, entries=[user("ticket SPAR-1042", "x", 1), *talked()[1:]])

    def less(ctx: HookContext) -> Decision:
        return Decision.rewrite(CompactionPlan("another", "threshold", (), ()))

    desk.hooks.add("before_compaction", less)
    assert await compacted(desk, ScriptedModel([{"output": "They talked."}]))
    assert "SPAR-1042" in desk.transcripts.compacted[-1].body["summary"]


async def test_a_hook_adds_a_note_that_the_model_reads_behind_the_summary(clock: VirtualClock) -> None:
    desk = Desk(clock, entries=talked())
    desk.hooks.add("after_compaction", lambda ctx: Decision.rewrite(ctx.value.noted("Read AGENTS.md again.")))

    assert await compacted(desk, ScriptedModel([{"output": "They talked."}]))

    first, second = desk.transcripts.compacted
    assert {**first.body, "note": "Read AGENTS.md again."} == second.body
    assert '(a note) "Read AGENTS.md again."' in conversation(await desk.transcripts.read("main")).turns[0].text
    assert by_hooks(desk) == [
        ("c1", {"kind": "compaction.hooks", "reason": "overflow", "note": "Read AGENTS.md again."})
    ]
    assert len(desk.events.of(CompactionCompleted)) == 1


async def test_a_note_that_is_too_long_is_the_hooks_fault_and_the_summary_stands(clock: VirtualClock) -> None:
    desk = Desk(clock, entries=talked())
    desk.hooks.add("after_compaction", lambda ctx: Decision.rewrite(ctx.value.noted("x" * 2_001)), priority=1)
    long = {"note": "x" * 2_001}
    desk.hooks.add("after_compaction", lambda ctx: Decision.rewrite(replace(ctx.value, body=long)))

    assert await compacted(desk, ScriptedModel([{"output": "They talked."}]))
    assert len(desk.transcripts.compacted) == 1
    assert [event.policy for event in desk.events.of(ErrorOccurred)] == ["after_compaction"] * 2


# -- in a planner's cycle


@pytest.mark.parametrize(("summary", "times"), [("They talked.", 1), ("", 2)], ids=["summed up", "in vain"])
async def test_a_conversation_that_does_not_fit_is_summed_up_or_shortened_and_the_request_made_again(
    clock: VirtualClock, summary: str, times: int
) -> None:
    desk = Desk(clock, entries=talked(12))

    def answer(request: Request) -> Any:
        if request.purpose == "compaction":
            return {"output": summary}
        if len(read_of(request)) > 12_000:
            raise provider_error("overflow", "m")
        return {"output": "it is 3"}

    model = ScriptedModel([answer])
    planner = ModelPlanner(model)
    planner.attach(desk.host)

    action = decided(await planned(planner, [], context(message("what is it?"))))

    assert action.output == "it is 3"
    assert [request.purpose for request in model.requests] == ["plan", "compaction", *["plan"] * times]
    last = read_of(model.requests[-1])
    assert summary in last
    assert "what is it?" in last
    assert [each.body["summary"] for each in desk.transcripts.compacted] == ([summary] if summary else [])
    assert [is_done for is_done, _ in completed(desk)] == [bool(summary)]


async def test_a_conversation_that_takes_most_of_the_room_is_summed_up_before(clock: VirtualClock) -> None:
    desk = Desk(clock, entries=talked(12))
    model = ScriptedModel([{"output": "They talked."}, {"output": "it is 3"}])
    planner = ModelPlanner(model, context_tokens=12_000)
    planner.attach(desk.host)

    assert decided(await planned(planner, [], context())).output == "it is 3"

    assert [request.purpose for request in model.requests] == ["compaction", "plan"]
    assert [event.request for event in desk.events.of(ModelRequested)] == model.requests
    assert [event.reason for event in desk.events.of(CompactionStarted)] == ["threshold"]
