"""Messages of a run before its end: blocks of its answer, lines about its calls; and the answer itself in blocks.

Blocks are told while the answer is written (`runs.blocks = "text_end"`) or once it is complete ("message_end"). A block
that people were told stays told: if the answer is begun anew, or gone on with after a crash, what is the same is not
told again. So that this outlasts the process, a row is written for each block, and they go when the run has ended.
Lines about calls go to those runs whose options ask for them (`verbose`), thoughts before the reply where
`runs.reasoning` is "reply". All of it is judged by the hooks at `message_sending`, in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from hashlib import blake2b
from typing import Any, Final, Literal, Protocol

from msgspec import Struct, field

from spar.data.reply import comparable
from spar.data.scrub import scrub
from spar.events import (
    AssistantDelta,
    CallCompleted,
    CallFailed,
    CallSkipped,
    Event,
    MessageSent,
    ReasoningDelta,
)
from spar.loop.core import Core
from spar.protocols import ModuleRows
from spar.runs.messages.call_lines import line_of
from spar.runs.messages.text_blocks import Block, BlockCutter
from spar.runs.run import Run
from spar.runs.runs import Runs

Kind = Literal["answer", "note", "verbose", "reasoning"]

#: The owner of the rows.
OWNER: Final = "blocks"
#: Characters of the thoughts of a run that are told with its reply, and lines that wait for hooks.
MOST_THOUGHTS: Final = 32_000
MOST_WAITING: Final = 1_000
_CALL_ENDS: Final = (CallCompleted, CallFailed, CallSkipped)


class Told(Struct):
    """Block of the answer in hand, and the text that people are told in its place (None: hooks are against it).

    `is_known`: they were told it before; hooks are asked again, since the answer is kept as they leave it.
    """

    block: Block
    text: str | None = None
    is_known: bool = False


class _Flow(Struct):
    """Messages of one run: those that wait, and what was told of the answer in hand."""

    cutter: BlockCutter | None = None
    waiting: deque[tuple[Kind, str, Told | None]] = field(default_factory=deque)
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)
    told: list[Told] = field(default_factory=list)
    #: Blocks that were told of answers that were begun anew, or in an earlier process.
    former: Counter[str] = field(default_factory=Counter)
    rows: list[str] = field(default_factory=list)
    thoughts: dict[int, str] = field(default_factory=dict)
    part: int = 0


class Sends(Protocol):
    """The messages of an agent to people."""

    @property
    def is_guarded(self) -> bool: ...
    async def asked(self, run_id: str, session: str, text: str, kind: str) -> str | None: ...
    async def was_sent(self, run_id: str, session: str, text: str) -> None: ...
    def send(self, run: Run | None, message: MessageSent) -> None: ...


class HasModuleRows(Protocol):
    """The state of an agent, as far as rows are kept there."""

    def rows_of(self, name: str) -> ModuleRows | None: ...


class InBackground(Protocol):
    """The tasks of an agent."""

    def in_background(self, work: Coroutine[Any, Any, Any], what: str) -> Any: ...


class Interim:
    """The messages of an agent's runs before their ends."""

    __slots__ = ("_core", "_flows", "_heard", "_kept", "_outbox", "_requests", "_runs", "_state",
                 "wants_blocks")  # fmt: skip

    def __init__(self, core: Core, requests: InBackground, runs: Runs, state: HasModuleRows, outbox: Sends) -> None:
        self._core, self._requests, self._runs, self._state, self._outbox = core, requests, runs, state, outbox
        self._flows: dict[str, _Flow] = {}
        self._kept: dict[str, dict[str, str]] = {}  # rows of an earlier process, by run
        self._heard: frozenset[type[Event]] = frozenset()
        #: Whether who is to read the answer of a run is told it in blocks.
        self.wants_blocks: Callable[[Run], bool] = lambda run: True
        runs.watch = self.watch

    # -- listening

    def watch(self, run: Run) -> None:
        """Listen to what a run that was accepted needs."""
        settings = self._core.settings.runs
        if settings.blocks == "text_end":
            self._listen(AssistantDelta)
        if settings.reasoning == "reply":
            self._listen(ReasoningDelta)
        if run.chosen.verbose:
            self._listen(*_CALL_ENDS)

    def _listen(self, *kinds: type[Event]) -> None:
        for kind in kinds:
            if kind not in self._heard:
                self._heard |= {kind}
                self._core.events.connect(kind, self._hear, only_keeps=True)

    def _hear(self, event: Any) -> None:
        run = self._runs.open_run(event.run_id or "")
        if run is None:
            return
        match event:
            case AssistantDelta():
                if self._core.settings.runs.blocks == "text_end" and self.wants_blocks(run):
                    self._written(run, event)
            case ReasoningDelta():
                self._thought(run, event)
            case _ if run.chosen.verbose:
                self._call_ended(run, event)

    def _flow_of(self, run: Run) -> _Flow:
        flow = self._flows.get(run.id)
        if flow is None:
            flow = self._flows[run.id] = _Flow()
            kept = self._kept.pop(run.id, {})
            flow.rows, flow.former, flow.part = list(kept), Counter(kept.values()), len(kept)
        return flow

    # -- blocks of an answer that is being written

    def _written(self, run: Run, delta: AssistantDelta) -> None:
        flow = self._flow_of(run)
        if delta.reset:
            self._begin_anew(flow)
        cutter = flow.cutter = flow.cutter or self._cutter()
        blocks = cutter.feed(delta.text)
        if delta.ends:
            blocks += cutter.flush()
        self._tell_blocks(run, flow, blocks)

    def _cutter(self) -> BlockCutter:
        settings = self._core.settings.runs
        return BlockCutter(settings.block_min, settings.block_max)

    def _begin_anew(self, flow: _Flow) -> None:
        """Take what was told of the answer in hand as told before; what was not is void."""
        flow.former.update(_digest(each.block.shown) for each in flow.told)
        flow.told, flow.cutter = [], None

    def _tell_blocks(self, run: Run, flow: _Flow, blocks: list[Block]) -> None:
        for block in blocks:
            told = Told(block, block.shown)
            flow.told.append(told)
            if not block.shown.strip():
                continue
            digest = _digest(block.shown)
            if flow.former[digest] > 0:
                flow.former[digest] -= 1
                told.is_known = True
            if not told.is_known or self._outbox.is_guarded:
                self._tell(run, flow, "answer", block.shown, told)

    # -- thoughts and calls

    def _thought(self, run: Run, delta: ReasoningDelta) -> None:
        if run.reasoning != "reply":
            return
        thoughts = self._flow_of(run).thoughts
        if delta.reset:
            thoughts.pop(delta.request, None)
        if sum(map(len, thoughts.values())) <= MOST_THOUGHTS:
            thoughts[delta.request] = thoughts.get(delta.request, "") + delta.text

    def _call_ended(self, run: Run, event: CallCompleted | CallFailed | CallSkipped) -> None:
        line = line_of(event.result)
        if run.log is not None:
            data = {"line": line, "call": event.call.id, "tool": event.call.tool}
            run.log.add("verbose", event.at or self._core.clock.now(), data, len(line))
        self._tell(run, self._flow_of(run), "verbose", line, None)

    # -- telling, in order

    def _tell(self, run: Run, flow: _Flow, kind: Kind, text: str, told: Told | None) -> None:
        """Tell people a text now, or when the hooks were asked about all that comes before it."""
        if not self._outbox.is_guarded and not flow.waiting:
            self._send(run, flow, kind, text, told)
        elif told is not None or len(flow.waiting) < MOST_WAITING:
            flow.waiting.append((kind, text, told))
            if len(flow.waiting) == 1 and not flow.telling.locked():
                self._requests.in_background(self._tell_waiting(run, flow), "messages of a run of")

    async def _tell_waiting(self, run: Run, flow: _Flow) -> None:
        async with flow.telling:
            while flow.waiting and run.status is None:
                await self._ask_and_send(run, flow, *flow.waiting.popleft())

    async def _ask_and_send(self, run: Run, flow: _Flow, kind: Kind, text: str, told: Told | None) -> None:
        asked = await self._outbox.asked(run.id, run.session, text, kind)
        if told is not None:
            told.text = asked
            if told.is_known:
                return
        if asked is not None and asked.strip():
            self._send(run, flow, kind, asked, told)
            await self._outbox.was_sent(run.id, run.session, asked)

    def _send(self, run: Run, flow: _Flow, kind: Kind, text: str, told: Told | None) -> None:
        part = 0
        if told is not None:
            flow.part += 1
            part = flow.part
        self._outbox.send(run, MessageSent(run_id=run.id, session=run.session, route=run.session, text=text,
                                           is_answer=kind == "answer", kind=kind, part=part))  # fmt: skip
        if told is not None and (rows := self._state.rows_of(OWNER)) is not None:
            key = f"{run.id}/{part}"
            flow.rows.append(key)
            rows.keep(key, _digest(told.block.shown))

    # -- the answer

    def cuts(self, run: Run) -> bool:
        """Return whether the answer of a run is told in blocks."""
        return self._core.settings.runs.blocks != "off" and self.wants_blocks(run)

    async def answer(self, run: Run, text: str) -> str | None:
        """Tell people the answer of a run in blocks, as far as they were not told before.

        Returns: the answer as the hooks leave it; None when they are against all of it.
        """
        flow = self._flow_of(run)
        self._tell_blocks(run, flow, self._rest(flow, text))
        await self._tell_waiting(run, flow)
        if all(each.text == each.block.shown for each in flow.told):
            return text
        left = "".join(each.block.text if each.text == each.block.shown else each.text or "" for each in flow.told)
        return left if left.strip() else None

    def answer_at_once(self, run: Run, text: str) -> None:
        """Tell people the answer of a run in blocks where no hook has to be asked."""
        flow = self._flow_of(run)
        self._tell_blocks(run, flow, self._rest(flow, text))

    async def tell_thoughts(self, run: Run) -> None:
        """Tell people what the model thought, before its reply."""
        if text := self._thoughts_of(run):
            await self._ask_and_send(run, self._flow_of(run), "reasoning", text, None)

    def tell_thoughts_at_once(self, run: Run) -> None:
        """Tell people what the model thought where no hook has to be asked."""
        if text := self._thoughts_of(run):
            self._send(run, self._flow_of(run), "reasoning", text, None)

    def _thoughts_of(self, run: Run) -> str:
        """Return what is to be told of a run's thoughts, once."""
        flow = self._flows.get(run.id)
        if flow is None or run.reasoning != "reply":
            return ""
        whole = "\n\n".join(text.strip() for _, text in sorted(flow.thoughts.items()) if text.strip())
        flow.thoughts.clear()
        return scrub(whole if len(whole) <= MOST_THOUGHTS else f"{whole[:MOST_THOUGHTS]}\n… (there was more)")

    def _rest(self, flow: _Flow, text: str) -> list[Block]:
        """Return the blocks of an answer that were not taken from what was written of it."""
        cutter = flow.cutter
        if cutter is not None:
            written = "".join(each.block.text for each in flow.told) + cutter.rest
            if written.strip() == text.strip():
                return cutter.flush()
            if text.startswith(written):
                return cutter.feed(text[len(written) :]) + cutter.flush()
        self._begin_anew(flow)
        cutter = self._cutter()
        return cutter.feed(text) + cutter.flush()

    # -- over processes

    async def restore(self) -> None:
        """Take up what an earlier process told of runs that go on. Raises: what the store raises."""
        rows = self._state.rows_of(OWNER)
        kept: Mapping[str, Any] = {} if rows is None else await rows.list()
        for key, value in kept.items():
            self._kept.setdefault(key.partition("/")[0], {})[key] = str(value)

    @property
    def has_earlier(self) -> bool:
        """Return whether an earlier process told blocks of answers that nobody went on with."""
        return bool(self._kept)

    async def forget_ended(self) -> None:
        """Forget what was told of runs that have ended since. Raises: what the journal raises."""
        for run_id in list(self._kept):
            try:
                status = await self._runs.wait(run_id, 0)
            except LookupError:
                status = None
            if status is None or status.status != "timeout":
                self._drop(self._kept.pop(run_id, {}))

    def forget(self, run: Run) -> None:
        """A run has ended: nothing more of it is told."""
        if (flow := self._flows.pop(run.id, None)) is not None:
            flow.waiting.clear()
            self._drop(flow.rows)
        self._drop(self._kept.pop(run.id, {}))

    def _drop(self, keys: Any) -> None:
        if keys and (rows := self._state.rows_of(OWNER)) is not None:
            for key in keys:
                rows.drop(key)


def _digest(text: str) -> str:
    return blake2b(comparable(text).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
