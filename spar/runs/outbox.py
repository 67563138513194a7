"""Messages of an agent to people: the answers of its runs, and messages of tools. Each is sent once.

Hooks at `message_sending` may change or stop a message; hooks at `message_sent` are told of it. Subscribers of
`MessageSent`, such as channels, deliver it. A text is not sent twice on the same route within one run.

Of a run before its end these are blocks of its answer, and lines about its calls (`Interim`). Blocks are sent while the
answer is written (`runs.blocks = "text_end"`) or once it is complete ("message_end"). A sent block stays sent: if the
answer is written again, or continued after a crash, equal blocks are not sent again. For this a row is written for each
block; the rows are deleted when the run has ended. Lines about calls are sent for runs whose options ask for them
(`verbose`), thoughts before the reply if `runs.reasoning` is "reply". The hooks judge all these messages, in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, Literal

from msgspec import Struct, field

from spar.data.json_safe import plain
from spar.data.reply import End, Reply
from spar.data.scrub import scrub
from spar.data.text import comparable, repeats
from spar.events import AssistantDelta, CallCompleted, CallFailed, CallSkipped, Event, MessageSent, ReasoningDelta
from spar.events.table import ANSWER
from spar.health.error_reporting import ErrorReporter
from spar.hooks import HookContext
from spar.loop.core import Core, Requests
from spar.protocols import ModuleRows
from spar.runs.runs import Run, Runs
from spar.runs.text_blocks import Block, BlockCutter, line_of

#: The most texts of one run that are remembered. Further texts may be repeated.
_REMEMBERED = 200


class RunMessages:
    """Messages of one agent to people."""

    __slots__ = ("_core", "_reports", "_requests", "_runs", "interim")

    def __init__(self, core: Core, requests: Requests, reports: ErrorReporter, runs: Runs, rows_of: RowsOf) -> None:
        self._core, self._reports, self._requests, self._runs = core, reports, requests, runs
        self.interim = Interim(core, requests, runs, rows_of, self)

    @property
    def is_guarded(self) -> bool:
        """Return whether hooks must be asked about messages."""
        return not self._core.hooks.used.isdisjoint(("message_sending", "message_sent"))

    async def tell(self, run_id: str, session: str, route: str, text: str) -> bool:
        """Send a text during a run; return False if it is empty, was sent before, or is denied by a hook."""
        if not text.strip():
            return False
        text_after_hooks = await self.text_after_hooks(run_id, session, text, "note")
        run = self._runs.open_run(run_id)  # texts outside of runs may be repeated
        if text_after_hooks is None or (run is not None and _is_known(run, route, text_after_hooks)):
            return False
        if run is not None and len(run.sent) < _REMEMBERED:
            run.sent = (*run.sent, (route, comparable(text_after_hooks)))
        self.send(run, MessageSent(run_id=run_id, session=session, route=route, text=text_after_hooks))
        await self.was_sent(run_id, session, text_after_hooks)
        return True

    async def answer(self, run: Run, end: End) -> End:
        """Send the answer of a run that was finished; return its end, with the answer as the hooks leave it, as is then
        `run.reply`."""
        run.is_told = True
        reply = run.reply
        if reply.text is not None:
            await self.interim.send_thoughts(run)
            tell = self._send_blocks if self.interim.uses_blocks(run) else self._send_whole
            text = await tell(run, reply.text)
            if text != reply.text:
                run.change_reply(Reply(text, text is None))
                end = End(end.status, end.error, text if end.output is not None else None)
        return end

    async def _send_whole(self, run: Run, answer: str) -> str | None:
        """Send an answer as one message; return it as the hooks leave it, None if one denies it."""
        is_guarded = self.is_guarded
        text = await self.text_after_hooks(run.id, run.session, answer, "answer") if is_guarded else answer
        if text is not None and self._send_answer(run, text) and is_guarded:
            await self.was_sent(run.id, run.session, text)
        return text

    async def _send_blocks(self, run: Run, answer: str) -> str | None:
        """Send an answer block by block, unless a tool has sent it already."""
        if run.sent and _is_known(run, run.session, answer):
            return answer
        return await self.interim.answer(run, answer)

    def answer_at_once(self, run: Run, end: End) -> None:
        """Send the answer of a run if there is no time to ask hooks. With hooks it is not sent; a failure is sent later
        by `ended`."""
        is_guarded = self.is_guarded
        if is_guarded and run.is_to_tell and run.has_failed(end):
            return
        run.is_told = True
        text = run.reply.text
        if text is not None and is_guarded:
            run.change_reply(Reply())
        elif text is not None:
            self.interim.send_thoughts_at_once(run)
            if not self.interim.uses_blocks(run):
                self._send_answer(run, text)
            elif not (run.sent and _is_known(run, run.session, text)):
                self.interim.answer_at_once(run, text)

    def ended(self, run: Run, end: End) -> None:
        """Send the failure of a run if no answer was sent.

        With hooks this happens in the background, and the run's status has no reply.
        """
        run.is_told = True
        text = run.reply.text
        if text is None or end.status != "error" or run.state.into:
            return
        if not self.is_guarded:
            self._send_answer(run, text)
            return
        run.change_reply(Reply())
        if self._requests.loop is not None:
            self._requests.in_background(self._send_failure(run, text), "telling of the failure of")

    async def _send_failure(self, run: Run, text: str) -> None:
        text_after_hooks = await self.text_after_hooks(run.id, run.session, text, "answer")
        if text_after_hooks is not None:
            self.send(None, _answer(run, text_after_hooks))  # None: the log of the run has ended
            await self.was_sent(run.id, run.session, text_after_hooks)

    async def text_after_hooks(self, run_id: str, session: str, text: str, kind: str) -> str | None:
        """Return a text as the hooks at `message_sending` leave it; None if one denies it."""
        if "message_sending" not in self._core.hooks.used:
            return text
        ctx = HookContext("message_sending", self._core.name, text, session, run_id, reason=kind)
        outcome = await self._reports.run_hooks(ctx)
        return None if outcome.denied else str(outcome.value)

    async def was_sent(self, run_id: str, session: str, text: str) -> None:
        """Call the hooks at `message_sent`."""
        if "message_sent" in self._core.hooks.used:
            await self._reports.run_hooks(HookContext("message_sent", self._core.name, text, session, run_id))

    def _send_answer(self, run: Run, text: str) -> bool:
        """Send the answer of a run; return False if the run has sent that text already."""
        if run.sent and _is_known(run, run.session, text):
            return False
        self.send(run, _answer(run, text))
        return True

    def send(self, run: Run | None, message: MessageSent) -> None:
        """Publish a message. Args: run: the run whose log records it; None for no log."""
        message.at = self._core.clock.now()
        if run is not None and run.log is not None and message.kind != "verbose":  # such a line is in its log already
            text = plain(message.text, ANSWER)
            data = {"sent": text, "route": message.route, "is_answer": message.is_answer, "kind": message.kind,
                    "part": message.part}  # fmt: skip
            run.log.add("assistant", message.at, data, len(text))
        if self._core.events.wanted[MessageSent]:
            self._core.events.publish(message)


def _answer(run: Run, text: str) -> MessageSent:
    return MessageSent(run_id=run.id, session=run.session, route=run.session, text=text, is_answer=True,
                       kind="answer")  # fmt: skip


def _is_known(run: Run, route: str, text: str) -> bool:
    new = comparable(text)
    return any(sent_route == route and repeats(before, new) for sent_route, before in run.sent)


Kind = Literal["answer", "note", "verbose", "reasoning"]
#: Function that returns the small rows of an owner; None where no store keeps them.
RowsOf = Callable[[str], ModuleRows | None]

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

    __slots__ = ("_core", "_earlier_rows", "_flows", "_outbox", "_requests", "_rows_of", "_runs", "_subscribed",
                 "wants_blocks")  # fmt: skip

    def __init__(self, core: Core, requests: Requests, runs: Runs, rows_of: RowsOf, outbox: RunMessages) -> None:
        self._core, self._requests, self._runs, self._rows_of, self._outbox = core, requests, runs, rows_of, outbox
        self._flows: dict[str, _Flow] = {}
        self._earlier_rows: dict[str, dict[str, str]] = {}  # rows of an earlier process by run
        self._subscribed: frozenset[type[Event]] = frozenset()
        #: Decides whether the reader of a run's answer gets it in blocks.
        self.wants_blocks: Callable[[Run], bool] = lambda run: True
        runs.watch = self.watch

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
        run = self._runs.open_run(event.run_id or "")
        if run is None:
            return
        match event:
            case AssistantDelta():
                if self._core.settings.runs.blocks == "text_end" and self.wants_blocks(run):
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
                self._requests.in_background(self._send_waiting(run, flow), "messages of a run of")

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
        if sent is not None and (rows := self._rows_of(OWNER)) is not None:
            key = f"{run.id}/{part}"
            flow.rows.append(key)
            rows.keep(key, _digest(sent.block.shown))

    # -- the answer

    def uses_blocks(self, run: Run) -> bool:
        """Return whether the answer of a run is sent in blocks."""
        return self._core.settings.runs.blocks != "off" and self.wants_blocks(run)

    async def answer(self, run: Run, text: str) -> str | None:
        """Send the blocks of a run's answer that were not sent before.

        Returns: the answer as the hooks leave it; None if they deny all of it.
        """
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
        """Send the answer of a run in blocks, without asking hooks."""
        flow = self._flow_of(run)
        self._send_blocks(run, flow, self._remaining_blocks(flow, text))

    async def send_thoughts(self, run: Run) -> None:
        """Send the model's thoughts, before its reply."""
        if text := self._thoughts_of(run):
            await self._ask_and_send(run, self._flow_of(run), "reasoning", text, None)

    def send_thoughts_at_once(self, run: Run) -> None:
        """Send the model's thoughts, without asking hooks."""
        if text := self._thoughts_of(run):
            self._send(run, self._flow_of(run), "reasoning", text, None)

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
        rows = self._rows_of(OWNER)
        values: Mapping[str, Any] = {} if rows is None else await rows.list()
        for key, value in values.items():
            self._earlier_rows.setdefault(key.partition("/")[0], {})[key] = str(value)

    @property
    def has_earlier(self) -> bool:
        """Return whether an earlier process has sent blocks of answers that no run has continued yet."""
        return bool(self._earlier_rows)

    async def forget_ended(self) -> None:
        """Delete the rows of runs that have ended. Raises: errors of the journal."""
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
        if keys and (rows := self._rows_of(OWNER)) is not None:
            for key in keys:
                rows.drop(key)


def _digest(text: str) -> str:
    return blake2b(comparable(text).encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
