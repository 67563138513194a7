"""Every cycle on the tape is readable, however large; what is cut says so and refers to the whole."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from memory import Memory, cycle_log, pieces
from spar import Action, Agent, Call, CallResult, Perception, facts, tool
from spar.records.journal import Closing
from spar.types import ActionResult, CycleRecord, Fault, replace
from tests.effort import Effort
from tests.waiting import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@tool(effect="read")
async def note(n: int) -> int:
    return n


def fields(of: int) -> dict[str, str]:
    return {f"field {k}": f"value {k} of {of}" for k in range(330)}


@pytest.mark.parametrize("count", [80, 1_000])
async def test_a_cycle_of_many_structured_perceptions_keeps_its_calls_results_and_phases(
    tmp_path: Path, count: int
) -> None:
    seen = False

    async def sense() -> list[Perception]:
        nonlocal seen
        was_seen, seen = seen, True
        return [] if was_seen else [Perception(fields(i), id=f"p{i}") for i in range(count)]

    async def plan(perceptions: list[Perception]) -> Action:
        return Action(calls=[Call("note", {"n": i}) for i in range(24)])

    memory = Memory.open(f"sqlite:///{tmp_path}/m.db")
    async with memory, Agent(sense=sense, plan=plan, tools=[note], memory=memory, loop_interval=0.01) as agent:
        await until(lambda: agent.stats.outcomes["acted"])
        await memory.flush()
        [row] = await memory.cycles()
        record = await memory.cycle(row["cycle_id"])

    assert [result.output for result in record.result.results] == list(range(24))
    assert set(record.phases) == {"sense", "plan", "act", "reflect"}
    assert len(record.perceptions) == count
    assert record.perceptions[-1].id == f"p{count - 1}"
    cut = [each for each in record.perceptions if each.attributes.get("truncated")]
    assert bool(cut) == any(fault.kind == "truncated" for fault in record.faults) == (count > 200)
    assert all(each.attributes["reference"] == each.id for each in cut)
    assert record.perceptions[0].content == fields(0) or record.perceptions[0] in cut
    assert row["calls"]["ok"] == 24


async def test_a_result_that_is_cut_on_the_tape_is_read_back_from_the_journal_while_that_is_kept(
    tmp_path: Path,
) -> None:
    @tool(effect="read")
    async def fetch(n: int) -> dict[str, Any]:
        return {"n": n, "text": f"{n} " + "x" * 200_000}

    async def plan(perceptions: list[Perception]) -> Action:
        return Action(calls=[Call("fetch", {"n": i}) for i in range(30)], output="done")

    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        async with Agent(plan=plan, tools=[fetch], memory=memory, loop_interval="off") as agent:
            receipt = await agent.submit("go")
            await agent.wait(receipt.run_id)
        await memory.flush()
        [row] = await memory.cycles()
        whole = await memory.cycle(row["cycle_id"])
        await memory._file.commit(lambda connection: connection.execute("DELETE FROM fact").close())
        cut = await memory.cycle(row["cycle_id"])

    assert [result.output["n"] for result in whole.result.results] == list(range(30))
    assert {len(result.output["text"]) for result in whole.result.results} <= {200_002, 200_003}
    marks = [result.output for result in cut.result.results if "truncated" in result.output]
    assert marks
    assert marks[0]["reference"].startswith(row["cycle_id"] + "/")
    assert marks[0]["beginning"].startswith('{"n":')
    assert all(result.status == "ok" for result in cut.result.results)


async def test_any_parts_may_be_huge_and_the_row_stays_bounded_and_readable(memory: Memory) -> None:
    calls = tuple(Call(f"t{i}", {"a": "y" * 1_000}) for i in range(2_000))
    action = Action(calls, goal="g" * 3_000_000)
    result = ActionResult(action, "ok", tuple(CallResult(call, "ok", output=[1] * 2_000) for call in calls))
    faults = tuple(Fault("io", "f" * 10_000) for _ in range(1_000))
    notes = ({"kind": "n", "all": ["z" * 100 for _ in range(10_000)]},)
    record = CycleRecord("c1", "main", "main", NOW, 0.1, "acted", (Perception("p" * 5_000_000),), action, result)
    record = replace(record, faults=faults, notes=notes, phases={"plan": 1.0})

    await memory.record(record)
    back = await memory.cycle("c1")
    listed = await memory.cycles()

    assert len(cycle_log.row(record).columns[-1]) < 3 << 20
    assert back.action is not None
    assert back.phases == {"plan": 1.0}
    assert back.result.results[0].call.tool == "t0"
    [told] = [fault for fault in back.faults if fault.kind == "truncated"]
    assert told.detail["cut"]["result.results"][1] == 2_000
    assert "result.results" in told.message
    assert back.notes == notes
    assert listed[0]["cycle_id"] == "c1"


async def test_a_cycle_that_cannot_be_encoded_does_not_take_others_with_it(tmp_path: Path, memory: Memory) -> None:
    class Odd(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("not now")

        def __len__(self) -> int:
            raise RuntimeError("not now")

    bad = CycleRecord("bad", "main", "main", NOW, 0.1, "acted", (Perception(Odd()),))
    good = CycleRecord("good", "main", "main", NOW, 0.1, "acted")
    await memory._file.commit(lambda connection: cycle_log.write(connection, [bad, good]))
    found = await memory.cycle("bad")

    assert found.faults[0].kind == "unreadable"
    assert await memory.cycle("good") == good


# -- what cycles hold in common


def conversation(number: int) -> tuple[CycleRecord, ...]:
    """Cycles of a conversation: each asks a model what the one before asked, and a message more."""
    texts = [f"message {i} " + f"{i} words " * 1_000 for i in range(number)]
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(50)}}
    return tuple(
        CycleRecord(f"c{i:04}", "main", "main", NOW, 0.1, "acted",
                    notes=({"kind": "model.request", "texts": texts[: i + 1], "schema": schema},))
        for i in range(number)
    )  # fmt: skip


async def written(path: Path, number: int) -> int:
    async with Memory.open(f"sqlite:///{path}", ballast=0) as memory:
        for record in conversation(number):
            await memory.record(record)
        back = [await memory.cycle(f"c{i:04}") for i in (0, number // 2, number - 1)]
        held = await memory._file.read(
            lambda c: c.execute("SELECT (SELECT total(bytes) FROM cycle) + (SELECT total(bytes) FROM tape_piece)").get
        )
    records = conversation(number)
    assert back == [records[i] for i in (0, number // 2, number - 1)]
    assert isinstance(held, float)
    return int(held)


async def test_the_tape_of_a_conversation_grows_with_what_was_said_in_it(tmp_path: Path) -> None:
    effort = [await written(tmp_path / f"{number}.db", number) for number in (30, 60)]

    assert effort[1] <= 2.2 * effort[0]
    assert effort[1] < 3 * len(json.dumps(conversation(60)[-1].notes))


async def test_pieces_go_when_no_cycle_refers_to_them_any_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "SLACK", 32)
    async with Memory.open(f"sqlite:///{tmp_path}/m.db", keep_cycles=10) as memory:
        long = CycleRecord("a", "main", "main", NOW, 0.1, "acted", notes=({"text": "long " * 100},))
        await memory.record(long)
        for number in range(3 * pieces.SLACK):
            await memory.record(replace(long, cycle_id=f"b{number:04}", notes=({"text": "other " * 100},)))
        await memory.flush()

        def tend(connection: Any) -> int:
            while memory._tend(connection):
                pass
            return int(connection.execute("SELECT count(*) FROM tape_piece").get)

        assert await memory._file.commit(tend) == 1
        last = await memory.cycle(f"b{3 * pieces.SLACK - 1:04}")

    assert last.notes == ({"text": "other " * 100},)


@pytest.mark.parametrize(
    "note",
    [
        {"$piece": "not one of ours"},
        {"a": {"$pieces": "x"}, "b": [{"$piece": "y"}] * 20},
        {"deep": {"list": [["x" * 300] * 3, {"k": "y" * 300}]}, "none": None, "number": 1.5, "flag": True, "": ""},
        {"texts": ["same " * 100] * 50},
        {"odd": "\ud800 ü " * 100},
        *({"at": {key: 0}, "out": {key: "x"}} for key in ("$=", "$piece", "$piece>", "$piece=", "$piece:")),
    ],
)
async def test_any_note_comes_back_as_it_was(note: dict[str, Any], memory: Memory) -> None:
    await memory.record(CycleRecord("c", "main", "main", NOW, 0.1, "acted", notes=(note,)))
    back = await memory.cycle("c")

    assert back.notes == (note,)


async def test_a_piece_that_is_missing_is_told_and_the_rest_is_read(memory: Memory) -> None:
    note = {"text": "long " * 100, "kind": "x"}
    await memory.record(CycleRecord("c", "main", "main", NOW, 0.1, "acted", notes=(note,)))
    await memory._file.commit(lambda connection: connection.execute("DELETE FROM tape_piece").close())
    back = await memory.cycle("c")

    assert back.notes[0]["kind"] == "x"
    assert back.notes[0]["text"]["truncated"] is True
    assert [fault.kind for fault in back.faults] == ["unreadable"]


def test_the_work_for_a_large_cycle_is_bounded_by_what_is_kept_of_it() -> None:
    def effort(characters: int) -> int:
        results = tuple(CallResult(Call("t"), "ok", output="x" * characters) for _ in range(64))
        record = CycleRecord("c", "main", "main", NOW, 0.1, "acted", result=ActionResult(None, "ok", results))
        with Effort() as spent:
            cycle_log.row(record)
        return spent.steps

    assert effort(2_000_000) <= 2.2 * effort(200_000)


async def test_the_event_loop_does_not_encode_a_cycle_that_has_ended(memory: Memory) -> None:
    def record(name: str, characters: int) -> CycleRecord:
        results = tuple(CallResult(Call("t"), "ok", output=["x" * characters] * 100) for _ in range(64))
        return CycleRecord(name, "main", "main", NOW, 0.1, "acted", result=ActionResult(None, "ok", results))

    def effort(name: str, characters: int) -> int:
        closing = Closing("acted", record(name, characters))
        with Effort() as spent:
            memory.journal.append(facts.CycleWritten(session="main", cycle=name, closing=closing), "main")
        return spent.steps

    few, many = effort("few", 10), effort("many", 10_000)
    assert many <= 2 * few < 1_000
    assert [row["cycle_id"] for row in await memory.cycles()] == ["many", "few"]


# -- a list of cycles tells what each was about, without reading it whole


@pytest.mark.parametrize(
    ("goal", "faults", "about"),
    [
        ("file it", (), "file it"),
        ("", (), "the printer is broken"),
        ("file it", (Fault("io", "disk gone"),), "disk gone"),
    ],
    ids=["its goal", "what was perceived", "what failed"],
)
async def test_a_listed_cycle_says_what_it_was_about(
    goal: str, faults: tuple[Fault, ...], about: str, memory: Memory
) -> None:
    perceived, action = (Perception("the printer\nis   broken"),), Action(goal=goal)
    record = CycleRecord("c1", "main", "main", datetime.now(UTC), 0.1, "acted", perceived, action, faults=faults)
    await memory.record(record)
    await memory.flush()
    listed = await memory.cycles()

    assert [cycle["about"] for cycle in listed] == [about]


async def test_whole_cycles_are_read_after_before_and_since_one_the_oldest_first(memory: Memory) -> None:
    at = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    for number in (2, 0, 1):
        await memory.record(CycleRecord(f"c{number}", "main", "main", at[number], 0.1, "acted"))
    await memory.flush()
    reads = [await memory.cycle_records(9), await memory.cycle_records(1, after="c0"),
             await memory.cycle_records(1, before="c2"), await memory.cycle_records(9, since=at[1])]  # fmt: skip
    with pytest.raises(LookupError):
        await memory.cycle_records(9, after="c9")

    ids = [[cycle.cycle_id for cycle in cycles] for cycles in reads]
    assert ids == [["c0", "c1", "c2"], ["c1"], ["c1"], ["c1", "c2"]]


# -- rows of the tape that cannot be read: the list and the cycle are shown all the same, and say what is wrong


BODIES = ["", "{", "[]", "7", '{"record": 7}', '{"record": {"cycle_id": []}}', "[" * 100_000, b"\xff\x00", 7.5,
          '{"record": {}}\n00000000']  # fmt: skip


def record(id: str, status: Any = "ok") -> CycleRecord:
    call = Call("note", {"text": "x"}, id="a")
    action = Action(calls=[call], goal="file it")
    result = ActionResult(results=(CallResult(call, status),), action=action)
    at = datetime(2026, 1, 2, 3, 4, int(id[1:]), tzinfo=UTC)
    return CycleRecord(id, "main", "main", at, 0.5, "acted", action=action, result=result)


async def damaged(folder: Path, **columns: Any) -> str:
    """Return the address of a memory of three cycles; the second one failed, and has other columns."""
    url = f"sqlite:///{folder / 'memory.db'}"
    async with Memory(url) as memory:
        for each in (record("c1"), record("c2", "failed"), record("c3")):
            await memory.record(each)
        await memory.flush()
    with apsw.Connection(str(folder / "memory.db")) as connection:
        connection.pragma("ignore_check_constraints", True)
        for name, value in columns.items():
            connection.execute(f"UPDATE cycle SET {name} = ? WHERE id = 'c2'", (value,))
    return url


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body)[:30])
async def test_a_damaged_row_is_listed_and_shown_with_what_is_known(tmp_path: Path, body: Any) -> None:
    url = await damaged(tmp_path, body=body, summary="")

    async with Memory(url, read_only=True) as memory:
        listed = await memory.cycles()
        shown = [await memory.cycle(id) for id in ("c2", "c1", "c3")]

    assert [each["cycle_id"] for each in listed] == ["c3", "c2", "c1"]
    assert (listed[1]["outcome"], listed[1]["duration"]) == ("acted", 0.5)
    assert [each and each.cycle_id for each in shown] == ["c2", "c1", "c3"]
    assert (shown[0].session, shown[0].outcome, shown[0].faults[0].kind) == ("main", "acted", "unreadable")
    assert "cannot be read: " in shown[0].faults[0].message
    assert "cannot be read: " in listed[1]["about"]
    assert [each and each.action and each.action.goal for each in shown] == [None, "file it", "file it"]


@pytest.mark.parametrize("summary", ["{", "[]", "7", '"text"', "null", b"\xff"], ids=repr)
@pytest.mark.parametrize("is_failed", [False, True])
async def test_a_damaged_summary_hides_no_other_cycle(tmp_path: Path, summary: Any, is_failed: bool) -> None:
    url = await damaged(tmp_path, summary=summary)

    async with Memory(url, read_only=True) as memory:
        listed = await memory.cycles(failed=is_failed)
        whole = await memory.cycle("c2")

    assert [each["cycle_id"] for each in listed] == (["c2"] if is_failed else ["c3", "c2", "c1"])
    assert [each.status for each in whole.result.results] == ["failed"]
