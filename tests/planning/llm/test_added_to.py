"""A conversation is only added to: each request is all of the one before and what is new, but at the named places."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from os.path import commonprefix
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from acting import Executor
from memory import Memory
from planning.assistant import Assistant
from planning.llm.planner import ModelPlanner
from planning.ports import Request
from reflection import Reflect
from spar import Agent, RequestDraft, tool
from spar.errors import PermanentError, TransientError
from spar.hooks import Decision, HookContext
from spar.records.transcript import Entry
from spar.testing import VirtualClock
from spar.types import Action, ActionResult, Call, CallResult, Experience, Fault, Perception
from tests.doubles import KeptRows
from tests.planning.desk import Desk, Tool, context, decided, message, planned
from tests.servers.llm import LlmServer
from tests.servers.llm_replies import Reply, ToolCall, says, solves
from tests.servers.llm_requests import Asked, content_of

#: What happens in a cycle of a run: the outcome of its call, an answer of no use, a provider that is away (then the run
#: waits, or the rules decide), a process that is killed while it waits for the answer, or the failure of the run.
OUTCOMES = ("ok", "failed", "parked", "steered", "bad answer", "empty", "away", "by rules", "killed", "gone")
#: In each cycle somebody may say something, and the process may be killed when it has ended.
EVENTS = st.lists(
    st.tuples(st.sampled_from(OUTCOMES), st.sampled_from(("", "steer", "collect")), st.booleans()), max_size=5
)
#: What happens between two runs.
BETWEEN = st.sampled_from(("", "", "", "reset", "compaction", "restart"))
USELESS = {"bad answer": "no solution", "empty": {"calls": []}}
FAULTS = {
    "away": TransientError("it is away", retry_after=1.0), "by rules": TransientError("it is away", retry_after=1.0),
    "killed": KeyboardInterrupt(), "gone": PermanentError("it is gone"),
}  # fmt: skip


def result_of(call: Call, outcome: str) -> CallResult:
    match outcome:
        case "failed":
            return CallResult(call, "failed", fault=Fault("error", "no ink"))
        case "parked" | "steered":
            return CallResult(call, "skipped", outcome)
    return CallResult(call, "ok", output={"page": call.id})


class Rows(KeptRows):
    """Small rows as a journal keeps them: those of a cycle change when it ends, and not if its process is killed."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[str] = []

    def keep(self, key: str, value: Any, *, cycle_id: str = "") -> None:
        assert not cycle_id
        self.rows[key] = json.loads(json.dumps(value))

    def drop(self, key: str, *, cycle_id: str = "") -> None:
        self.waiting.append(key)

    def end_cycle(self, *, is_killed: bool) -> None:
        for key in () if is_killed else self.waiting:
            self.rows.pop(key, None)
        self.waiting.clear()


class Conversation:
    """A session whose runs are played as the agent plays them: entries are added as cycles end."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.fresh: set[int] = set()  # numbers of requests before which the conversation was begun anew
        self.rows = Rows()
        self.desk = Desk(VirtualClock(), rows={"additions": self.rows}.get)
        self.answers: list[Any] = []
        self._seq = 0
        self.restart()

    def restart(self) -> None:
        """Go on with a planner that remembers nothing."""
        self.planner = ModelPlanner(self._answer)
        self.planner.attach(self.desk.host)

    async def _answer(self, request: Request) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def add(self, kind: Any, body: dict[str, Any], run: str) -> None:
        self._seq += 1
        self.desk.transcripts.entries.append(Entry(kind, body, run, self._seq))

    async def run(self, name: str, events: list[tuple[str, str, bool]]) -> None:
        asked = message(f"do {name}")
        unwritten, said, results = [asked], list[Perception](), list[ActionResult]()
        for number, (outcome, who, is_cut) in enumerate([*events, ("answer", "", False)], 1):
            call = Call("note", {"text": f"{name} {number}"}, id=f"{name}.{number}")
            answer = {"output": f"{name} is done"} if outcome == "answer" else {"calls": [call.to_wire()]}
            self.answers = [FAULTS.get(outcome, USELESS.get(outcome, answer))]
            given_context = context(asked, number=number, results=tuple(results), said=tuple(said))
            assert given_context.run is not None
            moment = {"type": "data", "kind": "time", "data": len(self.requests)}  # no later request has the same one
            run = replace(given_context.run, id=name, messages=(moment,))
            given_context = replace(given_context, run=run, cycle_id=f"{name} {number}")
            try:
                items = await planned(self.planner, [], given_context)
                action: Action = decided(items)
            except (KeyboardInterrupt, PermanentError) as error:
                action = Action(deferred=repr(error))
            self.rows.end_cycle(is_killed=outcome == "killed")
            if outcome == "by rules":
                items, action = [call], Action([call])
            if who:  # it comes while the model answers, so this request does not have it
                later = message(f"{who} {name} {number}")
                said, unwritten = [*said, later], [*unwritten, later]
            if is_cut or outcome == "killed":
                self.restart()
            if outcome == "gone":
                break
            if action.deferred:
                continue
            self.hear(unwritten, name)
            unwritten = []
            outcomes = [result_of(each, outcome) for each in items if isinstance(each, Call)]
            records = [
                {"call": each.call.to_wire(), "status": each.status, "reason": each.reason, "output": each.output,
                 "error": each.fault.message if each.fault else None}
                for each in outcomes
            ]  # fmt: skip
            body = {"calls": records, "reason": "", "output": action.output, "trust": "trusted"}
            self.add("turn", body if action.additions is None else {**body, "additions": list(action.additions)}, name)
            results.append(ActionResult(action, "ok", tuple(outcomes)))
        self.hear(unwritten, name)
        error, reply = ("", f"{name} is done") if outcome == "answer" else ("it is gone", None)
        self.add("end", {"status": "error" if error else "ok", "error": error, "reply": reply, "silent": False}, name)

    def hear(self, messages: list[Perception], run: str) -> None:
        for said in messages:
            self.add("user", {"text": said.text, "id": said.id, "trust": said.trust}, run)

    def between(self, what: str) -> None:
        entries = self.desk.transcripts.entries
        if what == "restart":
            self.restart()
        elif what == "reset":
            entries.clear()
        elif what == "compaction" and entries:
            self._seq += 1
            entries[:] = [Entry("compaction", {"summary": "s", "first_kept": self._seq}, "", self._seq)]
        if what in ("reset", "compaction"):
            self.fresh.add(len(self.requests))


def _bearable(events: list[tuple[str, str, bool]]) -> Iterator[tuple[str, str, bool]]:
    """The events with one answer of no use at most: two in a row would end the run."""
    is_first = True
    for event in events:
        is_of_no_use = event[0] in ("empty", "bad answer")
        if is_first or not is_of_no_use:
            yield event
        is_first = is_first and not is_of_no_use


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(EVENTS, BETWEEN), min_size=1, max_size=5))
def test_each_request_is_the_one_before_and_what_is_new(runs: list[tuple[list[tuple[str, str, bool]], str]]) -> None:
    async def play() -> Conversation:
        conversation = Conversation()
        for number, (events, what) in enumerate(runs):
            await conversation.run(f"r{number}", list(_bearable(events)))
            conversation.between(what)
        return conversation

    conversation = asyncio.run(play())

    for at in range(1, len(conversation.requests)):
        former, later = conversation.requests[at - 1 : at + 1]
        if at not in conversation.fresh:
            assert later.turns[: len(former.turns)] == former.turns, at
        assert (later.instructions, later.schema) == (former.instructions, former.schema)


async def test_what_begins_a_conversation_anew_is_said_with_its_cost() -> None:
    conversation = Conversation()
    desk = conversation.desk
    await conversation.run("a", [("ok", "", False)])
    assert desk.anew == []

    conversation.planner.prompts.instructions = "Be brief."
    conversation.planner.prompts._prompts.clear()
    await conversation.run("b", [])
    desk.tools = {**desk.tools, "look": Tool("look")}
    await conversation.run("c", [])
    conversation.between("compaction")
    await conversation.run("d", [])
    conversation.between("reset")
    await conversation.run("e", [])

    assert [why.partition(":")[0] for why in desk.anew] == [
        "begins anew, because instructions, files or skills have changed",
        "begins anew, because tools have changed",
        "begins anew, because the earlier part was summed up",
        "begins anew, because it was reset or shortened, or an earlier part is shown as the transcript keeps it",
    ]
    assert all(" tokens are read in full" in why for why in desk.anew)


async def test_what_a_hook_changes_of_the_beginning_is_said_with_its_cost() -> None:
    conversation = Conversation()

    def hook(ctx: HookContext) -> Decision:
        return Decision.rewrite(ctx.value.prepend(f"request {len(conversation.requests)}"))

    conversation.desk.hooks.add("before_request", hook)
    await conversation.run("a", [("ok", "", False)])

    [why] = conversation.desk.anew
    assert why.startswith("begins anew, because instructions, files or skills have changed: about ")
    assert why.endswith(" tokens are read in full")


# -- the beginning of each request that a provider can serve from its cache: all that the request before said


#: Requests of the long run: twelve with a call each, and the last one.
REQUESTS = 13
EARLIER = datetime.now(UTC) - timedelta(hours=1)


def answered_by(mode: str, calls: int = REQUESTS - 1) -> Callable[[Asked], Reply]:
    """A model that notes lines: many in a long story, one in any other."""

    def answer(asked: Asked) -> Reply:
        first = max(at for at, message in enumerate(asked.messages) if content_of(message).startswith("a "))
        of_run = asked.messages[first:]
        kind, most = ("long", calls) if "long story" in content_of(of_run[0]) else ("short", 1)
        done = sum(message["role"] == "assistant" for message in of_run)
        line = {"text": f"{kind} {done} {'x' * 200}"}
        if mode == "structured":
            return solves({"_tool": "note", **line}) if done < most else solves(output="done")
        return says("", ToolCall("note", line)) if done < most else says("done")

    return answer


def read_of(asked: Asked) -> str:
    """The messages of a request as they were sent, without the end of the last one: texts may be added to it."""
    return json.dumps(asked.messages).removesuffix('"}]')


def check_beginnings(requests: list[Asked]) -> None:
    for former, later in pairwise(requests):
        assert {**former.body, "messages": ()} == {**later.body, "messages": ()}
        one, other = read_of(former), read_of(later)
        same = len(commonprefix([one, other]))  # noqa: RUF071 - of characters, which is meant here
        assert other.startswith(one), (one[same - 200 : same + 200], other[same : same + 200])


@pytest.mark.parametrize("mode", ["native", "structured"])
async def test_nothing_that_moves_within_a_run_changes_what_its_requests_said_before(mode: str, tmp_path: Path) -> None:
    url, numbers, failures, held = f"sqlite:///{tmp_path}/m.db", count(), count(), asyncio.Event()
    agents: list[Agent] = []

    @tool(effect="read")
    async def note(text: str) -> str:
        number = int(text.split()[1]) if "long" in text else -1
        if number in (2, 3):  # more is learnt, and of what is shown something else
            await agents[-1].memory.store(Experience("out of paper", lesson="look there", at=EARLIER))
        if number == 4:
            await agents[-1].submit("and hurry with the printer, it has been out of paper", mode="steer")
        if number == 6 and not held.is_set():
            held.set()
            await asyncio.Event().wait()
        if number == 8 and next(failures) == 0:
            raise ValueError("no ink")
        return "y" * (9_000 if number in (5, 9) else 100)

    async def add_news(hook: HookContext) -> Decision:
        return Decision.rewrite([*hook.value, Perception(f"news {next(numbers)}", source="press", trust="trusted")])

    async def add_time(hook: HookContext) -> Decision:
        draft: RequestDraft = hook.value
        return Decision.rewrite(draft.add(f"it is {next(numbers)} o'clock"))

    def agent_at(server: LlmServer) -> Agent:
        planner = Assistant("local", base_url=server.url, mode=mode)  # type: ignore[arg-type]
        agent = Agent(plan=planner, act=Executor([note]), reflect=Reflect(), memory=Memory(url), loop_interval="off",
                      settings={"agent": {"min_interval": 0.0}})  # fmt: skip
        agent.hook("before_plan")(add_news)
        agent.hook("before_request")(add_time)
        agents.append(agent)
        return agent

    async with LlmServer(answered_by(mode)) as server:
        async with agent_at(server) as agent:
            for text in ("a story of the printer", "a second story of the printer"):
                await agent.wait((await agent.submit(text)).run_id, 60)
            before = len(server.requests)
            run_id = (await agent.submit("a long story of the printer")).run_id
            await asyncio.wait_for(held.wait(), 20)
            await agent.stop(0)
        async with agent_at(server) as agent:
            status = await agent.wait(run_id, 60)

    assert (status.status, status.output) == ("ok", "done"), f"{status.error} {status.errors}"
    assert len(server.requests) >= before + REQUESTS
    for text in ("o'clock", "news", "hurry", "no ink"):
        assert text in read_of(server.requests[-1]), text
    check_beginnings(server.requests)
