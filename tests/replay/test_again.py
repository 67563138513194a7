"""A recorded cycle decided again: the same, what differs, and what cannot be said."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from spar.errors import SparError
from spar.loop.plan_stream import join_actions
from spar.protocols import Context
from spar.records.transcript import Entry
from spar.replay.again import again
from spar.replay.deciding import conversation_before
from spar.replay.tape import Tape
from spar.types import Action, ActionResult, Call, CallResult, Fault, Perception, replace
from tests.replay.tapes import BEGAN, configured, cycle, decided, reading, rule, taped

READ = configured(rule("all"))


async def test_the_same_configuration_decides_the_same(tmp_path: Path) -> None:
    records = await decided(READ, [[reading("1")], [reading("2"), reading("3")]])
    async with taped(tmp_path, records) as tape:
        answer = await again(tape, "last", READ)

    assert (answer.verdict, answer.changes) == ("same", [])
    assert [(call["params"]["text"], call["status"]) for call in answer.calls] == [("2", "ok"), ("3", "ok")]


async def test_what_differs_is_told_by_call_and_the_results_of_the_others_stay(tmp_path: Path) -> None:
    records = await decided(configured(rule("all"), rule("more")), [[reading("1")]])
    loaded = configured(rule("all"), rule("more", "{text}!"), rule("new"))
    async with taped(tmp_path, records) as tape:
        answer = await again(tape, "last", loaded)

    assert answer.verdict == "differs"
    changes = [(change.part, change.kind) for change in answer.changes]
    assert changes == [("plan", "new: rule 'new'"),
                       ("calls", "other: note by rule 'more'"), ("calls", "new: note by rule 'new'"),
                       ("outcome", "other: outcome")]  # fmt: skip
    assert [call["status"] for call in answer.calls] == ["ok", "unknown", "unknown"]


async def test_a_cooldown_that_lasted_then_lasts_again(tmp_path: Path) -> None:
    loaded = configured(rule("all"), rule("seldom", cooldown=60))
    records = await decided(loaded, [[reading(str(number))] for number in range(3)])
    assert [len(record.action.calls) for record in records if record.action] == [2, 1, 1]
    async with taped(tmp_path, records) as tape:
        for record in records:
            tape = Tape(tape.memory, tape.agent)
            assert (await again(tape, record.cycle_id, loaded)).verdict == "same"


async def test_calls_that_people_had_answered_are_no_new_decision(tmp_path: Path) -> None:
    (first,) = await decided(READ, [[reading("1")]])
    parked = ActionResult(first.action, results=[CallResult(first.action.calls[0], "skipped", "parked")])
    held = cycle(1, first.perceptions, first.action, result=parked)
    other = await decided(READ, [[reading("2")]])
    assert other[0].action is not None
    both = join_actions(first.action, other[0].action)
    records = [held, cycle(2, first.perceptions, first.action),
               cycle(3, [*first.perceptions, *other[0].perceptions], both)]  # fmt: skip
    async with taped(tmp_path, records) as tape:
        answers = [await again(Tape(tape.memory, "main"), record.cycle_id, READ) for record in records]

    assert [answer.verdict for answer in answers] == ["same", "unknown", "same"]
    assert answers[1].why == "nothing was planned in it: it made calls that people had answered"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"outcome": "interrupted", "phases": {}}, "it was cut off before it decided"),
        ({"outcome": "skipped", "phases": {"sense": 0.1}}, "nothing was planned in it"),
        ({"faults": (Fault("truncated", "too large", detail={"cut": {"perceptions": [1, 2]}}),)}, "too large"),
        ({"faults": (Fault("unreadable", "action of cycle x cannot be read"),)}, "cannot be read"),
    ],
)  # fmt: skip
async def test_a_record_without_its_parts_says_which(tmp_path: Path, fields: Any, words: str) -> None:
    async with taped(tmp_path, [cycle(1, [reading()], None, **fields)]) as tape:
        answer = await again(tape, "last", READ)

    assert (answer.verdict, answer.changes) == ("unknown", [])
    assert words in answer.why


async def test_a_record_of_an_older_format_is_decided_with_what_it_has(tmp_path: Path) -> None:
    async with taped(tmp_path, await decided(READ, [[reading("1")]])):
        pass
    with apsw.Connection(str(tmp_path / "memory.db")) as connection:
        body = """{"record": {"cycle_id": "%s", "agent": "main", "session": "main", "duration": 0.1, "outcome": "acted",
                "started_at": "2026-01-01T00:00:01Z", "perceptions": [{"content": "1", "kind": "reading", "gone": 1,
                "confidence": 7, "trust": "trusted"}], "action": {"calls": [{"tool": "note", "params": {"text": "1"},
                "reason": "rule 'all'"}], "reason": "rule 'all' matched"}}}"""
        connection.execute("UPDATE cycle SET body = replace(?, '%s', id), summary = ''", (body,))
    async with taped(tmp_path, []) as tape:
        answer = await again(tape, "last", READ)

    assert answer.verdict == "same", answer


class Hanging:
    async def plan(self, perceptions: list[Perception]) -> None:
        await asyncio.Event().wait()


class Raising:
    def plan(self, perceptions: list[Perception], context: Context) -> Action:
        raise LookupError("no such word")


async def test_a_planner_that_raises_or_never_ends_is_told_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with taped(tmp_path, await decided(READ, [[reading("1")]])) as tape:
        for name, words in (("Hanging", "did not decide within 0.01 s"), ("Raising", "no such word")):
            loaded = configured(plan={"use": f"tests.replay.test_again:{name}"})
            with monkeypatch.context() as patch:
                if name == "Hanging":
                    patch.setattr("spar.replay.deciding.WITHIN", 0.01)
                answer = await again(tape, "last", loaded)
            assert answer.verdict == "unknown"
            assert words in answer.why


async def test_a_rule_that_raises_is_a_difference_and_the_others_decide(tmp_path: Path) -> None:
    records = await decided(READ, [[reading("1")]])
    async with taped(tmp_path, records) as tape:
        answer = await again(tape, "last", configured(rule("all", "{attributes.nothing}")))

    assert [change.kind for change in answer.changes] == [
        "no more: rule 'all'", "new: reason", "no more: note by rule 'all'",
    ]  # fmt: skip
    assert "nothing" in answer.changes[1].now


async def test_a_store_without_records_of_cycles_is_refused() -> None:
    with pytest.raises(SparError, match="does not keep its cycles"):
        Tape(None, "main")


def test_a_conversation_is_read_as_it_was_at_a_time() -> None:
    def entry(seq: int, kind: Any = "user", **body: Any) -> Entry:
        return Entry(kind, body, "r", seq, BEGAN + timedelta(seconds=seq))

    entries = [entry(1), entry(2, "reset"), entry(3), entry(4), entry(5, "compaction", first_kept=4), entry(6),
               entry(7, "compaction", first_kept=6), entry(8, "reset"), entry(9)]  # fmt: skip

    def seqs(at: float) -> list[int]:
        return [entry.seq for entry in conversation_before(entries, BEGAN + timedelta(seconds=at))]

    assert [seqs(at) for at in (0, 1.5, 4.5, 6.5, 7.5, 8.5, 9.5)] == [[], [1], [3, 4], [5, 4, 6], [7, 6], [], [9]]


def test_calls_of_a_plan_are_compared_without_their_ids() -> None:
    from spar.replay.difference import changes_of

    def plan(text: str) -> Action:
        first = Call("note", {"text": "a"})
        return Action(calls=[first, Call("note", {"text": text}, after=[first.id])])

    assert changes_of(plan("b"), plan("b")) == []
    assert [change.kind for change in changes_of(plan("b"), plan("c"))] == ["other: note"]
    assert [change.kind for change in changes_of(plan("b"), None)] == 2 * ["no more: note"]


async def test_a_secret_that_was_masked_stays_masked(tmp_path: Path) -> None:
    secret = "Bearer abcdefgh12345678xyz"
    records = await decided(configured(rule("all", secret)), [[reading("1")]])
    async with taped(tmp_path, records) as tape:
        same = await again(tape, "last", configured(rule("all", secret)))
        other = await again(Tape(tape.memory, "main"), "last", configured(rule("all", f"{secret} {{text}}")))

    assert same.verdict == "same"
    assert other.verdict == "differs"
    assert "abcdefgh" not in f"{same}{other}"


@pytest.mark.parametrize("part", ["notes", "result.results", "reflection"])
async def test_a_record_that_lacks_a_part_without_which_it_can_be_decided_says_so(tmp_path: Path, part: str) -> None:
    (record,) = await decided(READ, [[reading("1")]])
    fault = Fault("unreadable", f"{part} cannot be read", "memory", detail={"cut": {part: [0, 1]}})
    async with taped(tmp_path, [replace(record, faults=(fault,))]) as tape:
        answer = await again(tape, "last", READ)

    assert (answer.verdict, answer.remarks) == ("same", [f"{part} cannot be read"])
