"""What a run does, read as a stream: in order, numbered, bounded, resumable, with one end."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, tool
from spar.bus.bus import Events
from spar.bus.run_log import BYTES, ENDED, EVENTS, RunEvent, RunLog, RunLogs, RunStream
from spar.events import AssistantDelta, CallCompleted, CallEvent, CallProposed, CompactionCompleted, CompactionStarted
from spar.events.table import PAYLOAD
from spar.operations.history import CycleId, show_cycle
from spar.operations.memory import TranscriptsChoice, transcripts
from spar.operations.operation import Caller
from spar.operations.sessions import TranscriptChoice, transcript
from spar.records.runs import RunStatus
from spar.testing import Hang, ScriptedActor, ScriptedPlanner, VirtualClock
from spar.types import CallResult, Perception

DONE = Action(output="done")


class Desk:
    """Logs of runs over a bus of their own, and what is said of runs that they do not know."""

    def __init__(self, clock: VirtualClock, epoch: int = 0) -> None:
        self.events = Events("main", clock=clock)
        self.statuses: dict[str, RunStatus] = {}
        self.events.runs = self.logs = RunLogs(self.events, self.wait)
        self.events.process = epoch
        self.open: dict[str, RunLog] = {}

    async def wait(self, run_id: str, timeout: float | None) -> RunStatus:
        try:
            return self.statuses[run_id]
        except KeyError:
            raise LookupError(f"no run {run_id!r}") from None

    def begin(self, run_id: str = "r") -> None:
        self.open[run_id] = self.logs.begin(run_id, "main")

    def add(self, **data: Any) -> None:
        self.open["r"].add("lifecycle", self.events.clock.now(), data)

    def write(self, *pieces: str, reset: bool = False) -> None:
        for piece in pieces:
            self.events.publish(AssistantDelta(run_id="r", text=piece, reset=reset))

    def end(self, run_id: str = "r", **more: Any) -> None:
        self.logs.end(RunStatus(run_id, **{"status": "ok", **more}), self.events.clock.now())

    async def read(self, run_id: str = "r", after: int = 0) -> list[RunEvent]:
        async with asyncio.timeout(10):
            return [event async for event in self.events.run(run_id, after=after)]


@pytest.fixture
def desk(clock: VirtualClock) -> Desk:
    return Desk(clock)


def phases(events: list[RunEvent]) -> list[str]:
    return [event.data.get("phase", event.stream) for event in events]


def texts(events: list[RunEvent]) -> list[str]:
    return [event.data["text"] for event in events if "text" in event.data]


# -- of a real run


async def test_a_run_tells_what_it_does_from_its_acceptance_to_its_end(clock: VirtualClock) -> None:
    @tool(effect="read")
    async def look(password: str) -> dict[str, Any]:
        return {"load": 2, "token": "abc"}

    plan = ScriptedPlanner([Action(calls=(Call("look", {"password": "secret!"}, id="a"),)), DONE])
    agent = Agent(plan=plan, tools=[look], clock=clock)
    async with agent:
        run_id = (await agent.submit("hello")).run_id
        events = [event async for event in agent.events.run(run_id)]

    story = ["accepted", "outcome", "start", "proposed", "start", "result", "assistant", "end"]
    assert phases(events) == story
    assert [event.data["params"] for event in events if "params" in event.data] == [{"password": "***"}]
    assert events[5].data["output"] == {"load": 2, "token": "***"}
    assert (events[-1].data["status"], events[-1].data["output"]) == ("ok", "done")
    assert [event.is_terminal for event in events] == [False] * (len(events) - 1) + [True]
    numbers = [event.seq for event in events]
    assert numbers == sorted(set(numbers))
    assert {event.run_id for event in events} == {run_id}
    assert agent.events.run(run_id).seq == 0


async def test_an_agent_that_pursues_no_run_asks_nobody_to_say_anything(clock: VirtualClock) -> None:
    agent = Agent(plan=ScriptedPlanner([DONE]), act=ScriptedActor(), clock=clock)
    kinds = (AssistantDelta, CallCompleted, CompactionStarted, CompactionCompleted)
    before = [agent.events.listeners(kind) for kind in kinds]
    async with agent:
        run_id = (await agent.submit("hello")).run_id
        during = [agent.events.listeners(kind) for kind in kinds]
        await agent.wait(run_id)
        agent.events.publish(CallEvent(call=Call("look")))  # of a cycle without a run
        after = [agent.events.listeners(kind) for kind in kinds]
        again = await collected(agent.events.run((await agent.submit("once more")).run_id))

    assert phases(again)[-2:] == ["assistant", "end"]
    assert (before, during, after) == ([False] * 4, [True] * 4, before)


async def collected(stream: RunStream) -> list[RunEvent]:
    return [event async for event in stream]


async def test_reading_ends_when_the_agent_stops_and_goes_on_where_it_was(clock: VirtualClock) -> None:
    hang = Hang()
    agent = Agent(plan=ScriptedPlanner([hang, DONE, DONE]), act=ScriptedActor(), clock=clock)
    async with agent:
        run_id = (await agent.submit("hello")).run_id
        reading = asyncio.create_task(collected(agent.events.run(run_id)))
        await clock.sleep(1)
        await agent.stop(deadline=0.1)
        before = await reading
    assert not any(event.is_terminal for event in before)

    async with agent:
        after = await collected(agent.events.run(run_id, after=before[-1].seq))

    assert after[-1].is_terminal
    assert after[0].seq > before[-1].seq


async def test_a_run_of_an_earlier_process_answers_with_its_end_and_goes_on_with_higher_numbers(
    clock: VirtualClock, tmp_path: Path
) -> None:
    def agent_of(*script: Any) -> Agent:
        memory = Memory(f"sqlite:///{tmp_path}/memory.db", durability="off")
        return Agent(plan=ScriptedPlanner(list(script)), act=ScriptedActor(), memory=memory, clock=clock)

    async with agent_of(DONE, Hang()) as first:
        ended, waiting = [(await first.submit(text)).run_id for text in ("a", "b")]
        before = await collected(first.events.run(ended))
        await clock.sleep(1)
        seen = (await first.events.run(waiting).some())[-1].seq
        await first.stop(deadline=0.1)

    async with agent_of(DONE, DONE) as second:
        [end] = await collected(second.events.run(ended))
        assert await collected(second.events.run(ended, after=end.seq)) == []
        gap, *rest = await collected(second.events.run(waiting, after=seen))

    assert end.is_terminal
    assert end.data["output"] == before[-1].data["output"] == "done"
    assert end.seq > before[-1].seq
    assert gap.stream == "gap"
    assert gap.data == {"missed": None}
    assert seen < gap.seq < rest[0].seq
    assert rest[-1].is_terminal


async def test_who_reads_a_run_before_it_is_handed_out_again_misses_nothing_of_this_process(desk: Desk) -> None:
    desk.events.process = 3
    desk.statuses["r"] = RunStatus("r", "timeout")
    reading = asyncio.create_task(desk.read(after=(2 << 32) + 7))
    await asyncio.sleep(0)

    desk.open["r"] = desk.logs.begin("r", "main", is_new=False)
    desk.write("a")
    desk.end()

    gap, piece, end = await reading
    assert (gap.seq, gap.data) == (3 << 32, {"missed": None})
    assert (piece.seq, end.is_terminal) == ((3 << 32) + 1, True)


async def test_what_an_earlier_process_had_written_of_an_answer_is_void_once_it_is_written_anew(desk: Desk) -> None:
    desk.events.process = 3
    desk.open["r"] = desk.logs.begin("r", "main", is_new=False)
    desk.write("once", " upon")
    desk.end()

    _, pieces, _ = await desk.read()
    rest, _ = await desk.read(after=pieces.seq - 1)
    assert pieces.data == {"text": "once upon", "reset": True}
    assert rest.data == {"text": " upon", "reset": False}


# -- reading


async def test_a_reader_gets_what_was_kept_then_what_comes(desk: Desk) -> None:
    desk.begin()
    desk.write("a")
    stream = desk.events.run("r")

    first = await stream.some()
    waiting = asyncio.create_task(stream.some())
    await asyncio.sleep(0)
    desk.write("b")
    second = await waiting
    desk.end(output="ab")

    assert (phases(first), texts(first)) == (["accepted", "assistant"], ["a"])
    assert texts(second) == ["b"]
    assert [phases(await stream.some()), await stream.some(), await stream.some()] == [["end"], [], []]


async def test_what_is_told_after_the_end_is_no_part_of_the_run(desk: Desk) -> None:
    desk.begin()
    desk.begin("other")
    desk.end()
    desk.write("too late")

    assert phases(await desk.read()) == ["accepted", "end"]


async def test_many_read_the_same_run_and_one_that_is_cancelled_disturbs_nobody(desk: Desk) -> None:
    desk.begin()
    readers = [asyncio.create_task(desk.read()) for _ in range(3)]
    await asyncio.sleep(0)
    readers[0].cancel()
    await asyncio.sleep(0)
    desk.write("a")
    desk.end()

    found = await asyncio.gather(*readers[1:])

    assert found[0] == found[1]
    assert phases(found[0]) == ["accepted", "assistant", "end"]


@pytest.mark.parametrize("after", range(13))
async def test_whoever_reads_from_anywhere_gets_each_piece_once(desk: Desk, after: int) -> None:
    desk.begin()
    desk.write(*"hello")
    desk.add(phase="start", session="main")
    desk.write("w", reset=True)
    desk.write(*"orld")
    desk.end()
    pieces = dict(zip((2, 3, 4, 5, 6, 8, 9, 10, 11, 12), "helloworld", strict=True))

    events = await desk.read(after=after)

    assert "".join(texts(events)) == "".join(text for seq, text in pieces.items() if seq > after)
    assert [event.seq for event in events if event.data.get("reset")] == ([12] if after < 8 else [])
    assert events[-1].is_terminal
    assert events[-1].seq == 13


async def test_an_unknown_run_and_a_number_that_is_none_are_refused(desk: Desk) -> None:
    with pytest.raises(LookupError, match="no run 'x'"):
        await desk.read("x")
    with pytest.raises(ValueError, match="after must be the seq of an event"):
        desk.events.run("r", after=-1)
    with pytest.raises(LookupError, match="there are no runs without an agent"):
        Events().run("r")


# -- bounds


async def test_a_reader_that_is_too_slow_is_told_how_much_it_lost(desk: Desk) -> None:
    desk.begin()
    for _ in range(EVENTS + 500):
        desk.add(phase="start", session="main")
    desk.end()

    events = await desk.read(after=10)

    assert events[0].stream == "gap"
    assert events[0].data == {"missed": events[1].seq - 11}
    assert events[0].seq == events[1].seq - 1
    assert len(events) <= EVENTS + 1
    assert phases(await desk.read(after=EVENTS + 400))[0] == "start", "who is not behind has lost nothing"
    assert events[-1].is_terminal


async def test_a_long_answer_in_small_pieces_is_kept_whole(desk: Desk) -> None:
    desk.begin()
    desk.write(*("word " for _ in range(10_000)))
    desk.end()

    events = await desk.read()

    assert "".join(texts(events)) == "word " * 10_000
    assert len(events) < 100


async def test_what_is_kept_of_a_run_and_of_all_that_ended_is_bounded(desk: Desk) -> None:
    desk.begin()
    for _ in range(100):
        desk.write("x" * 50_000, reset=True)
    record = desk.logs._known("r")
    assert BYTES // 2 < record.size <= BYTES
    desk.end()
    last = (await desk.read())[-1].seq

    for number in range(ENDED + 5):
        desk.begin(f"run-{number}")
        desk.end(f"run-{number}")
    with pytest.raises(LookupError):
        await desk.read("r")
    assert phases(await desk.read("run-5")) == ["accepted", "end"]
    desk.statuses["r"] = RunStatus("r", "ok", output="all")
    [end] = await desk.read("r", after=last - 1)
    assert (end.is_terminal, end.data["output"], end.seq > last) == (True, "all", True)


async def test_what_tools_were_given_and_returned_is_bounded_and_holds_no_secrets(desk: Desk) -> None:
    call = Call("fetch", {"url": "https://me:hunter22@host/", "api_key": "abcdef", "n": 1}, id="c")
    desk.begin()
    desk.events.publish(CallProposed(call=call, run_id="r"))
    result = CallResult(call, "ok", output={"text": "y" * 100_000, "odd": {1, 2}, "at": float("nan")})
    desk.events.publish(CallCompleted(call=call, run_id="r", result=result))
    desk.end()

    _, proposed, returned, _ = await desk.read()

    assert proposed.data == {
        "phase": "proposed", "call": "c", "tool": "fetch",
        "params": {"url": "https://me:***@host/", "api_key": "***", "n": 1},
    }  # fmt: skip
    assert (returned.data["phase"], returned.data["status"]) == ("result", "ok")
    assert len(json.dumps(returned.data["output"], allow_nan=False)) <= PAYLOAD + 500
    assert (returned.data["truncated"], returned.data["whole"]) == (True, "/c")


@pytest.mark.parametrize(
    "medium",
    [
        {"type": "image", "mimeType": "image/png", "data": "QUJD" * 40},
        {"type": "resource", "resource": {"mimeType": "image/png", "blob": "QUJD" * 40}},
        "data:image/png;base64," + "QUJD" * 40,
    ],
)
async def test_an_image_that_a_tool_returned_is_named_and_not_told(desk: Desk, medium: Any) -> None:
    call = Call("shot", id="c", output_path="†state.shot")
    desk.begin()
    desk.events.publish(CallCompleted(call=call, run_id="r", result=CallResult(call, "ok", output=["a", medium])))
    desk.end()

    _, returned, _ = await desk.read()

    told = json.dumps(returned.data["output"])
    assert "image/png, 120 bytes]" in told
    assert "QUJD" not in told
    assert (returned.data["truncated"], returned.data["whole"]) == (True, "†state.shot")


async def test_compactions_are_part_of_it(desk: Desk) -> None:
    desk.begin()
    desk.events.publish(CompactionStarted(run_id="r", session="main", reason="overflow"))
    desk.events.publish(CompactionCompleted(run_id="r", session="main", will_retry=True))
    desk.end()

    _, started, completed, _ = await desk.read()

    assert (started.stream, started.data) == ("compaction", {"phase": "start", "reason": "overflow"})
    assert completed.data == {"phase": "end", "completed": True, "will_retry": True, "error": ""}


async def test_what_was_said_on_the_way_is_part_of_it(clock: VirtualClock) -> None:
    async with Agent(plan=ScriptedPlanner([Hang()]), act=ScriptedActor(), clock=clock) as agent:
        run_id = (await agent.submit("hello")).run_id
        await clock.sleep(1)
        assert await agent.conversations.outbox.tell(run_id, "main", "cli", "on my way")
        await agent.abort(run_id)
        events = await collected(agent.events.run(run_id))

    [sent] = [event for event in events if "sent" in event.data]
    assert (sent.stream, sent.data) == ("assistant", {"sent": "on my way", "route": "cli", "is_answer": False,
                                                       "kind": "note", "part": 0})  # fmt: skip


async def test_numbers_begin_with_the_number_of_the_process(clock: VirtualClock) -> None:
    early, late = Desk(clock, epoch=1), Desk(clock, epoch=2)
    for desk in (early, late):
        desk.begin()
        desk.end()

    assert (await early.read())[-1].seq < 2 << 32 < (await late.read())[0].seq
    assert (await late.read())[-1].seq < 1 << 53, "what a browser takes for a whole number"


# -- parts of an answer that a model's provider signed: they go back to it, and people read none of them


CALLER = Caller("ann")
THOUGHT = {"provider_name": "anthropic", "content": "they are the third to ask", "signature": "c2ln"}
SECRET = {**THOUGHT, "content": "the key is sk-ant-api03-" + "a1B2" * 20}


async def talked(tmp_path: Path, clock: VirtualClock, *signed: dict[str, Any]) -> Memory:
    """The memory of an agent that answered with these parts."""

    async def plan(perceptions: list[Perception]) -> Action:
        return Action(output="a green answer", signed=signed)

    memory = Memory(f"sqlite:///{tmp_path / 'm.db'}", ballast=0)
    async with Agent(plan=plan, memory=memory, clock=clock, loop_interval="off") as agent:
        await agent.wait((await agent.submit("hello")).run_id)
    return memory


async def signed_in(memory: Memory) -> list[Any]:
    return [entry.body["signed"] for entry in await memory.transcripts.read("main", "main") if "signed" in entry.body]


async def test_they_are_kept_for_the_provider_and_shown_to_nobody(tmp_path: Path, clock: VirtualClock) -> None:
    async with await talked(tmp_path, clock, THOUGHT) as memory:
        store: Any = SimpleNamespace(memory=memory, agent_name="main")
        entries = await transcript.run(store, TranscriptChoice(key="main"), CALLER)
        cycle = await show_cycle.run(store, CycleId(cycle_id="last"), CALLER)
        matches = await transcripts.run(store, TranscriptsChoice(q="green"), CALLER)
        assert await signed_in(memory) == [[THOUGHT]]

    assert [entry.kind for entry in entries] == ["user", "turn", "end"]
    assert cycle.action.output == "a green answer"
    assert matches
    assert "the third" not in repr((entries, cycle, matches))


async def test_one_with_a_secret_is_left_out_since_no_provider_takes_it_changed(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async with await talked(tmp_path, clock, SECRET) as memory:
        assert await signed_in(memory) == []
