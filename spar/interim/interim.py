"""Messages of runs before their ends: blocks of their answers, lines about their calls, thoughts of the model.

Blocks are sent while the answer is written (`runs.blocks = "text_end"`) or once it is complete ("message_end"). A sent
block stays sent: if the answer is written again, or continued after a crash, equal blocks are not sent again. For this
a row is written for each block; the rows are deleted when the run has ended. Lines about calls are sent for runs whose
options ask for them (`verbose`), thoughts before the reply if `runs.reasoning` is "reply". The hooks judge all these
messages, in order.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, Literal

from msgspec import Struct, field

from spar.attaching import Attaching, Services
from spar.data.scrub import scrub
from spar.data.text import comparable, cut, one_line, visible
from spar.data.text_blocks import SIGNS, Block, BlockCutter
from spar.events import AssistantDelta, CallCompleted, CallFailed, CallSkipped, Event, MessageSent, ReasoningDelta
from spar.events.table import payload
from spar.protocols import ModuleRows
from spar.runs.outbox import RunMessages, is_answered
from spar.runs.runs import Run
from spar.types import CallResult

Kind = Literal["answer", "note", "verbose", "reasoning"]
#: The owner of the rows.
OWNER: Final = "blocks"
#: The most characters of thoughts that are sent with a reply, and the most messages that wait for hooks.
MOST_THOUGHTS: Final = 32_000
MOST_WAITING: Final = 1_000
#: The characters that are kept beyond them: a secret that ends there is known only as a whole.
_LONGEST_SECRET: Final = 4_096
_CALL_ENDS: Final = (CallCompleted, CallFailed, CallSkipped)


class AnswerBlock(Struct):
    """Block of the current answer, and the text that is sent for it (None if a hook denies it).

    `is_known`: it was sent before. Hooks are asked again all the same, since the stored answer is the text after the
    hooks.
    """

    block: Block
    text: str | None = None
    is_known: bool = False


class _Flow(Struct):
    """Messages of one run: those that wait for hooks, and the blocks of the current answer."""

    cutter: BlockCutter | None = None
    waiting: deque[tuple[Kind, str, AnswerBlock | None]] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answer_blocks: list[AnswerBlock] = field(default_factory=list)
    #: Digests of blocks that were sent of earlier versions of the answer, or by an earlier process.
    former: Counter[str] = field(default_factory=Counter)
    rows: list[str] = field(default_factory=list)
    thoughts: dict[int, str] = field(default_factory=dict)
    part: int = 0


class Interim:
    """Messages of an agent's runs before their ends."""

    def __init__(self, services: Services) -> None:
        self._core, self._runs, self._services = services.core, services.runs, services
        self._runs.watch = self.watch
        self._flows: dict[str, _Flow] = {}
        self._earlier_rows: dict[str, dict[str, str]] = {}  # rows of an earlier process by run
        self._subscribed: frozenset[type[Event]] = frozenset()

    @property
    def _outbox(self) -> RunMessages:
        messages: RunMessages = self._services.conversations().outbox
        return messages

    @property
    def _rows(self) -> ModuleRows | None:
        return self._services.rows(OWNER)

    # -- subscriptions

    def watch(self, run: Run) -> None:
        """Subscribe to the events that an accepted run needs."""
        settings = self._core.settings.runs
        if settings.blocks == "text_end":
            self._listen(AssistantDelta)
        if settings.reasoning == "reply":
            self._listen(ReasoningDelta)
        if run.state.chosen.verbose:
            self._listen(*_CALL_ENDS)

    def _listen(self, *kinds: type[Event]) -> None:
        for kind in kinds:
            if kind not in self._subscribed:
                self._subscribed |= {kind}
                self._core.events.connect(kind, self._handle, only_keeps=True)

    def _handle(self, event: Any) -> None:
        run: Run | None = self._runs.open_run(event.run_id or "")
        if run is None:
            return
        match event:
            case AssistantDelta():
                if self._core.settings.runs.blocks == "text_end" and not self._outbox.grows(run.id):
                    self._add_text(run, event)
            case ReasoningDelta():
                self._add_thought(run, event)
            case _ if run.state.chosen.verbose:
                self._call_ended(run, event)

    def _flow_of(self, run: Run) -> _Flow:
        flow = self._flows.get(run.id)
        if flow is None:
            flow = self._flows[run.id] = _Flow()
            rows = self._earlier_rows.pop(run.id, {})
            flow.rows, flow.former, flow.part = list(rows), Counter(rows.values()), len(rows)
        return flow

    # -- blocks of an answer while it is written

    def _add_text(self, run: Run, delta: AssistantDelta) -> None:
        flow = self._flow_of(run)
        if delta.reset:
            self._restart_answer(flow)
        cutter = flow.cutter = flow.cutter or self._cutter()
        blocks = cutter.feed(delta.text)
        if delta.ends:
            blocks += cutter.flush()
        self._send_blocks(run, flow, blocks)

    def _cutter(self) -> BlockCutter:
        settings = self._core.settings.runs
        return BlockCutter(settings.block_min, settings.block_max)

    def _restart_answer(self, flow: _Flow) -> None:
        """Drop the unfinished answer. Its sent blocks count as sent before."""
        flow.former.update(_digest(answer_block.block.shown) for answer_block in flow.answer_blocks)
        flow.answer_blocks, flow.cutter = [], None

    def _send_blocks(self, run: Run, flow: _Flow, blocks: list[Block]) -> None:
        """Send blocks of the current answer, except those that an earlier version of it has sent."""
        for block in blocks:
            answer_block = AnswerBlock(block, block.shown)
            flow.answer_blocks.append(answer_block)
            if not block.shown.strip():
                continue
            digest = _digest(block.shown)
            if flow.former[digest] > 0:
                flow.former[digest] -= 1
                answer_block.is_known = True
            if not answer_block.is_known or self._outbox.is_guarded:
                self._send_in_order(run, flow, "answer", block.shown, answer_block)

    # -- thoughts and calls

    def _add_thought(self, run: Run, delta: ReasoningDelta) -> None:
        if run.reasoning != "reply":
            return
        thoughts = self._flow_of(run).thoughts
        if delta.reset:
            thoughts.pop(delta.request, None)
        if sum(map(len, thoughts.values())) <= MOST_THOUGHTS + _LONGEST_SECRET:
            thoughts[delta.request] = thoughts.get(delta.request, "") + delta.text

    def _call_ended(self, run: Run, event: CallCompleted | CallFailed | CallSkipped) -> None:
        line = line_of(event.result)
        if run.log is not None:
            data = {"line": line, "call": event.call.id, "tool": event.call.tool}
            run.log.add("verbose", event.at or self._core.clock.now(), data, len(line))
        self._send_in_order(run, self._flow_of(run), "verbose", line, None)

    # -- sending in order

    def _send_in_order(self, run: Run, flow: _Flow, kind: Kind, text: str, sent: AnswerBlock | None) -> None:
        """Send a text now, or after the hooks have judged all texts before it."""
        if not self._outbox.is_guarded and not flow.waiting:
            self._send(run, flow, kind, text, sent)
        elif sent is not None or len(flow.waiting) < MOST_WAITING:
            flow.waiting.append((kind, text, sent))
            if len(flow.waiting) == 1 and not flow.lock.locked():
                self._services.in_background(self._send_waiting(run, flow), "messages of a run of")

    async def _send_waiting(self, run: Run, flow: _Flow) -> None:
        async with flow.lock:
            while flow.waiting and run.ended is None:
                await self._ask_and_send(run, flow, *flow.waiting.popleft())

    async def _ask_and_send(self, run: Run, flow: _Flow, kind: Kind, text: str, sent: AnswerBlock | None) -> None:
        new_text = await self._outbox.text_after_hooks(run.id, run.session, text, kind)
        if sent is not None:
            sent.text = new_text
            if sent.is_known:
                return
        if new_text is not None and new_text.strip():
            self._send(run, flow, kind, new_text, sent)
            await self._outbox.was_sent(run.id, run.session, new_text)

    def _send(self, run: Run, flow: _Flow, kind: Kind, text: str, sent: AnswerBlock | None) -> None:
        """Send a text, and write a row for a block of the answer."""
        flow.part += sent is not None
        part = 0 if sent is None else flow.part
        self._outbox.send(run, MessageSent(run_id=run.id, session=run.session, route=run.session, text=text,
                                           is_answer=kind == "answer", kind=kind, part=part))  # fmt: skip
        if sent is not None and (rows := self._rows) is not None:
            key = f"{run.id}/{part}"
            flow.rows.append(key)
            rows.keep(key, _digest(sent.block.shown))

    # -- the answer

    def _uses_blocks(self, run: Run) -> bool:
        """Return whether the answer of a run is sent in blocks."""
        return self._core.settings.runs.blocks != "off" and not self._outbox.grows(run.id)

    async def answer(self, run: Run, text: str) -> str | None:
        """Send the model's thoughts, then the answer of a run: its blocks that were not sent before, or the whole.

        Returns: the answer as the hooks leave it; None if they deny all of it.
        """
        if thoughts := self._thoughts_of(run):
            await self._ask_and_send(run, self._flow_of(run), "reasoning", thoughts, None)
        if not self._uses_blocks(run):
            return await self._outbox.send_whole(run, text)
        if is_answered(run, text):
            return text
        flow = self._flow_of(run)
        self._send_blocks(run, flow, self._remaining_blocks(flow, text))
        await self._send_waiting(run, flow)
        if all(sent.text == sent.block.shown for sent in flow.answer_blocks):
            return text
        left = "".join(
            sent.block.text if sent.text == sent.block.shown else sent.text or "" for sent in flow.answer_blocks
        )
        return left if left.strip() else None

    def answer_at_once(self, run: Run, text: str) -> None:
        """Send the model's thoughts and the answer of a run, without asking hooks."""
        if thoughts := self._thoughts_of(run):
            self._send(run, self._flow_of(run), "reasoning", thoughts, None)
        if not self._uses_blocks(run):
            self._outbox.send_answer(run, text)
        elif not is_answered(run, text):
            flow = self._flow_of(run)
            self._send_blocks(run, flow, self._remaining_blocks(flow, text))

    def _thoughts_of(self, run: Run) -> str:
        """Return the thoughts to send, and clear them."""
        flow = self._flows.get(run.id)
        if flow is None or run.reasoning != "reply":
            return ""
        text = "\n\n".join(text.strip() for _, text in sorted(flow.thoughts.items()) if text.strip())
        flow.thoughts.clear()
        text = scrub(text)  # before the cut: a part of a secret looks like none
        return text if len(text) <= MOST_THOUGHTS else f"{text[:MOST_THOUGHTS]}\n… (there was more)"

    def _remaining_blocks(self, flow: _Flow, text: str) -> list[Block]:
        """Return the blocks of an answer that were not made while it was written."""
        cutter = flow.cutter
        if cutter is not None:
            written = "".join(sent.block.text for sent in flow.answer_blocks) + cutter.rest
            if written.strip() == text.strip():
                return cutter.flush()
            if text.startswith(written):
                return cutter.feed(text[len(written) :]) + cutter.flush()
        self._restart_answer(flow)
        cutter = self._cutter()
        return cutter.feed(text) + cutter.flush()

    # -- blocks of earlier processes

    async def restore(self) -> None:
        """Load the rows of blocks that an earlier process has sent of open runs. Raises: errors of the store."""
        values: Mapping[str, Any] = {} if self._rows is None else await self._rows.list()
        for key, value in values.items():
            self._earlier_rows.setdefault(key.partition("/")[0], {})[key] = str(value)

    def begin(self) -> None:
        """Delete the rows of runs that have ended, in the background."""
        if self._earlier_rows:
            self._services.in_background(self._forget_ended(), "blocks of earlier answers of")

    async def _forget_ended(self) -> None:
        for run_id in list(self._earlier_rows):
            try:
                status = await self._runs.wait(run_id, 0)
            except LookupError:
                status = None
            if status is None or status.status != "timeout":
                self._drop(self._earlier_rows.pop(run_id, {}))

    def forget(self, run: Run) -> None:
        """Send nothing more of a run that has ended, and delete its rows."""
        if (flow := self._flows.pop(run.id, None)) is not None:
            flow.waiting.clear()
            self._drop(flow.rows)
        self._drop(self._earlier_rows.pop(run.id, {}))

    def _drop(self, keys: Any) -> None:
        if keys and (rows := self._rows) is not None:
            for key in keys:
                rows.drop(key)


def _digest(text: str) -> str:
    return blake2b(comparable(text).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


# -- lines about calls

#: The most parameters; the most characters of a name, of a value, and of the reason of a failure.
_NAMED: Final = 6
_NAME: Final = 30
_VALUE: Final = 60
_WHY: Final = 160


def line_of(result: CallResult) -> str:
    """Return one line about a call that has ended, with secrets masked."""
    call = result.call
    params = payload(dict(islice(call.params.items(), _NAMED)))
    named = params.items() if isinstance(params, dict) else ()
    shown = [f"{cut(visible(str(name)), _NAME)}={_value(value)}" for name, value in named]
    if len(call.params) > _NAMED:
        shown.append(f"(and {len(call.params) - _NAMED} more)")
    sign = SIGNS.get(result.status, result.status)
    if result.status in ("timeout", "denied"):
        sign = f"{sign} {result.status}"
    why = result.fault.message if result.fault is not None else result.reason
    reason = [f": {cut(visible(one_line(str(payload(why)))), _WHY)}"] if why and result.status != "ok" else []
    took = [] if result.status == "skipped" else [_duration(result.duration)]
    return " ".join([visible(call.tool), *shown, sign, *took]) + "".join(reason)


def _value(value: Any) -> str:
    return cut(visible(json.dumps(value, ensure_ascii=False, default=str)), _VALUE)


def _duration(seconds: float) -> str:
    """Return a duration in the units that people use."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def attach(agent: Attaching) -> Interim:
    """Attach the messages of runs before their ends, and return them."""
    interim = Interim(agent.services)
    agent.load(interim.restore)
    agent.open(interim.begin)
    return interim
