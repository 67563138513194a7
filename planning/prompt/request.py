"""From the messages of a context to one request: a row of pure handlers, then the schema and the texts.

A request is made anew each time and never appended to. The same input gives the same bytes, and what stays the same
from step to step stands first (instructions, tools, input, what was said), what changes last (state, plan, results,
errors), so that a provider's cache serves the beginning. How much of it fits is no matter of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Final

from planning.ports import History, Kind, Request, Turn
from planning.prompt.call_results import PAIRED, call_shown, made, spoken, unpaired, words, written
from planning.prompt.prompts import EXPERIENCE, SKIPPED, instructions_for
from planning.prompt.render import LIMIT, blocks, divided, split
from planning.prompt.schema import compose_schema
from planning.prompt.tool_specs import mapping
from spar.data.blackboard import read_message
from spar.data.json_safe import UNBOUNDED, plain
from spar.records.run_options import Thinking
from spar.types import ActionResult, CallResult

Wire = dict[str, Any]
#: Takes the messages of a request, gives those that take their place. Pure; it may return what it was given.
Handler = Callable[[list[Wire]], list[Wire]]


def compose(
    context: Iterable[Any],
    *,
    tools: Any = (),
    activities: Collection[str] = (),
    output: Mapping[str, Any] | None = None,
    advisors: Iterable[Mapping[str, Any]] = (),
    kind: Kind = "main",
    turns: Iterable[Turn] = (),
    instructions: str | None = None,
    preface: Iterable[str] = (),
    results: Iterable[CallResult] = (),
    steps: Sequence[ActionResult] = (),
    handlers: Sequence[Handler] | None = None,
    schema: Mapping[str, Any] | None = None,
    limit: int = LIMIT,
    max_tokens: int | None = None,
    purpose: str = "",
    cycle_id: str = "",
    run_id: str | None = None,
    models: tuple[str, ...] = (),
    thinking: Thinking | None = None,
    room: int | None = None,
) -> Request:
    """Compose a request.

    Args:
        context: wire messages; not changed. Besides those that calls read: `text`, `tool`, `advisor`, `plan`, `meta`,
            and data of the kinds `goal`, `experience`, `error`, `result`, `skipped`.
        tools, activities, output, advisors: as for `compose_schema`.
        instructions: what the model reads first; None for `planning.prompt.prompts`'s of this kind.
        preface: texts that it reads before the turns.
        results: the call results of the step before: of them, those that were never started are offered again.
        steps: what the run's steps have brought so far, oldest first; their messages are in `context`.
        handlers: instead of `HANDLERS`.
        schema: that of an earlier request with the same tools, activities and output; see `is_plain`.
        limit: characters of one value as it is shown; what is longer keeps its head, its tail and its reference.

    Raises: as `compose_schema` and `render`.
    """
    messages: list[Wire] = read_messages(context)
    messages += [each for each in (offered_again(results), written(steps), spoken(steps)) if each is not None]
    for handler in HANDLERS if handlers is None else handlers:
        messages = handler(messages)
    if handlers is not None:
        messages = read_messages(messages)
    advisors = list(advisors)
    if schema is None:
        schema = compose_schema(tools, activities=activities, output=output, context=messages, advisors=advisors)
        schema = _with_calls(schema, _unthought if plan_mode(messages) == "lazy" else _decided)
    read: list[Wire] = [*(plain({"type": "advisor", **each}, UNBOUNDED) for each in advisors), *messages]
    texts, history = told(read, steps, lambda kind: limit)
    return Request(
        context=tuple(messages),
        schema=schema,
        kind=kind,
        instructions=instructions_for(kind) if instructions is None else instructions,
        preface=tuple(preface),
        turns=tuple(turns),
        texts=texts,
        history=history,
        answer=None if output is None else plain(output, UNBOUNDED),
        max_tokens=max_tokens,
        purpose=purpose,
        cycle_id=cycle_id,
        run_id=run_id,
        models=models,
        thinking=thinking,
        room=room,
    )


class Composer:
    """Composes the requests of runs that share tools; what those alone decide, the schema, is made once."""

    def __init__(self) -> None:
        self._made_of: list[Any] = []
        self._schema: Mapping[str, Any] = {}

    def compose(
        self,
        context: Sequence[Wire],
        *,
        tools: Mapping[str, Any],
        activities: Collection[str],
        output: Mapping[str, Any] | None,
        advisors: Sequence[Mapping[str, Any]] = (),
        **more: Any,
    ) -> Request:
        """Compose a request as the function `compose` does."""
        made_of = [*tools.values(), *activities, output]
        is_shared = not advisors and is_plain(context)
        is_known = is_shared and len(made_of) == len(self._made_of) and all(map(is_, made_of, self._made_of))
        request = compose(context, tools=tools, activities=activities, output=output, advisors=advisors,
                          schema=self._schema if is_known else None, **more)  # fmt: skip
        if is_shared:
            self._made_of, self._schema = made_of, request.schema
        return request


def told(
    messages: Sequence[Wire], steps: Sequence[ActionResult], limit_of: Callable[[str], int]
) -> tuple[tuple[str, ...], History | None]:
    """Return the messages as texts, and with the calls of these steps as pairs of a call and its result.

    The latter is None where no call was made. What both say is rendered once: they differ in what came of calls alone.
    """
    found = blocks(messages, limit_of)
    before, behind = split(found)
    texts = (*before, *behind)
    if not any(step.results for step in steps):
        return texts, None
    left, limit = unpaired(messages, steps), limit_of("result")
    if any(kind_of(message) == "result" for message in left):
        before, behind = divided(left, limit_of)
    else:
        before, behind = split(block for block in found if block.kind not in PAIRED)
    return texts, History(tuple(before), made(steps, limit), tuple(behind), words(steps, limit))


def is_plain(messages: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the schema is independent of these messages.

    None of them then offers a tool, speaks as an advisor, asks for the next version, holds a plan, or is one instance's
    own.
    """
    return not any("_instance" in each or {each.get("type"), each.get("kind")} & _FORMING for each in messages)


_FORMING: Final = frozenset({"tool", "advisor", "meta", "plan"})


class PlainMessages(list[Wire]):
    """Messages that have been read: plain, and shared with nobody who changes them."""


def read_messages(context: Iterable[Any]) -> PlainMessages:
    """Return the messages, copied once; what is no object is a text. Raises: TypeError for no list of messages."""
    if isinstance(context, PlainMessages):
        return PlainMessages(context)
    if isinstance(context, (str, bytes, Mapping)):
        raise TypeError(f"a context is a list of messages, found {type(context).__name__}")
    plainly = (plain(each, UNBOUNDED) for each in context)
    return PlainMessages(found if isinstance(found, dict) else {"text": found} for found in plainly)


# -- handlers


def kind_of(message: Mapping[str, Any]) -> str:
    """Return the kind of a message in any of its shapes; "" for plain text."""
    shape, named = message.get("type"), message.get("kind")
    return "" if not isinstance(shape, str) else named if isinstance(named, str) else shape


def typed_objects(messages: list[Wire]) -> list[Wire]:
    """A typed object in the place of a message's text (`{"role": …, "content": {"type": …}}`) is that message."""
    return [_typed(each) if "type" not in each else each for each in messages]


def _typed(message: Wire) -> Wire:
    content = message.get("content")
    return content if isinstance(content, dict) and isinstance(content.get("type"), str) else message


def arranged(messages: list[Wire]) -> list[Wire]:
    """Put the goal first, before everything that the work brought; keep the last plan and the last list of calls that
    were not started; make one list of all experiences, where the first of them stood: as data of one kind the last
    would overwrite the others."""
    kinds = [kind_of(each) for each in messages]
    if _ARRANGED.isdisjoint(kinds):
        return messages
    goals, others, lessons, first = [], [], [], None
    last = {kind: at for at, kind in enumerate(kinds)}
    for at, (kind, message) in enumerate(zip(kinds, messages, strict=True)):
        if kind == "goal":
            goals.append(message)
        elif kind == "experience":
            payload = read_message(message)[1]
            lessons += payload if isinstance(payload, list) else [payload]
            if first is None:
                first = {"type": "data", "kind": "experience", "data": lessons, "description": EXPERIENCE}
                others.append(first)
        elif kind not in ("skipped", "plan") or at == last[kind]:
            others.append(message)
    return goals + others


_ARRANGED: Final = frozenset({"goal", "experience", "skipped", "plan"})
#: What a context goes through, in this order.
HANDLERS: Final[tuple[Handler, ...]] = (typed_objects, arranged)


# -- what was not started


_OFFERED: Final = ("steered", "dep_failed")


def offered_again(results: Iterable[CallResult]) -> Wire | None:
    """The message about calls that were skipped before they started; None if there are none."""
    skipped = [
        {"call": call_shown(each.call.to_wire()), "reason": each.reason}
        for each in results
        if each.status == "skipped" and each.reason in _OFFERED
    ]
    if not skipped:
        return None
    return {"type": "data", "kind": "skipped", "data": skipped, "description": SKIPPED}


# -- plans


def plan_of(messages: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The plan message that counts, the last; None without one: then calls and their order are not kept."""
    found = None
    for message in messages:
        if kind_of(message) == "plan":
            found = message
    return found


def plan_mode(messages: Iterable[Mapping[str, Any]]) -> str:
    """`eager`: to plan is to execute; `lazy`: to plan only; "" without a plan message."""
    message = plan_of(messages)
    if message is None:
        return ""
    said = message.get("mode") or mapping(read_message(message)[1]).get("mode")
    return "lazy" if said == "lazy" else "eager"


def _with_calls(schema: Wire, change: Callable[[Wire], Wire]) -> Wire:
    """The schema of a solution with each of its calls' schemas changed."""
    calls = mapping(mapping(schema.get("properties")).get("calls"))
    if not calls:
        return schema
    changed = {**calls, "items": {"anyOf": [change(call) for call in calls["items"]["anyOf"]]}}
    return {**schema, "properties": {**schema["properties"], "calls": changed}}


def _unthought(call: Wire) -> Wire:
    """Return the schema of a call in a lazy plan: it has no result, not even a thought's."""
    properties = {key: value for key, value in call["properties"].items() if key != "_output"}
    return {**call, "properties": properties, "required": [key for key in call["required"] if key != "_output"]}


def _decided(call: Wire) -> Wire:
    """Return the schema of a call that brings its own result: it names one branch, no alternatives."""
    path = mapping(call["properties"].get("_outputPath"))
    if "_output" not in call["properties"] or path.get("pattern") != "^†":
        return call
    return {**call, "properties": {**call["properties"], "_outputPath": {**path, "pattern": _ONE_BRANCH}}}


_ONE_BRANCH: Final = "^†[^|]*$"
