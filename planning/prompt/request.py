"""Composition of a request: handlers change the messages of a context, which then become a schema and texts.

The same input gives the same bytes. The turns of a conversation are only added to (`planning.prompt.history`). Where a
context becomes texts, parts that stay the same from step to step come first (instructions, tools, input), parts that
change come last (state, plan, results, errors), so that the provider can serve the beginning from its cache.
`token_budget` makes a request fit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import is_
from typing import Any, Final

from planning.ports import Kind, Request, Turn
from planning.prompt.call_results import PAIRED, call_shown, paired_turns, spoken, unpaired, written
from planning.prompt.prompts import BY_KIND, EXPERIENCE, SKIPPED
from planning.prompt.render import LIMIT, blocks
from planning.prompt.schema import compose_schema
from planning.prompt.tool_specs import mapping
from spar.data.blackboard import read_message
from spar.data.json_safe import UNBOUNDED, plain
from spar.types import ActionResult, CallResult

Wire = dict[str, Any]
#: Returns the messages that replace the given ones; it may return the same list, and changes nothing.
Handler = Callable[[list[Wire]], list[Wire]]


def compose(
    context: Iterable[Any],
    *,
    tools: Any = (),
    activities: Collection[str] = (),
    output: Mapping[str, Any] | None = None,
    advisors: Iterable[Mapping[str, Any]] = (),
    references: bool = True,
    kind: Kind = "main",
    turns: Iterable[Turn] = (),
    own: int | None = None,
    instructions: str | None = None,
    preface: Iterable[str] = (),
    results: Iterable[CallResult] = (),
    steps: Sequence[ActionResult] = (),
    handlers: Sequence[Handler] | None = None,
    schema: Mapping[str, Any] | None = None,
    limit: int = LIMIT,
    **values: Any,
) -> Request:
    """Compose a request.

    Args:
        context: messages, which are not changed. The types `text`, `tool`, `advisor`, `plan` and `meta`, and data of
            the kinds `goal`, `experience`, `error`, `result` and `skipped` have a meaning of their own.
        tools, activities, output, advisors, references: as for `compose_schema`.
        kind: "main", "delegate" or "latent"; it chooses the usual instructions.
        turns: the conversation before this request.
        own: the number of these turns that belong to the run. They then hold all that the context says, and the request
            has no texts; None: the context becomes its texts.
        instructions: the text that the model reads first; None for the usual ones (`planning.prompt.prompts`).
        preface: texts that the model reads before the turns.
        results: the results of the step before; calls that were skipped before they started are offered again.
        steps: the results of all steps of the run so far, oldest first; their messages are in `context`.
        handlers: used in the place of `HANDLERS`.
        schema: the schema of an earlier request with the same tools, activities and output; see `is_plain`.
        limit: characters of one value; a longer one is shown with its head, its tail and its reference.
        values: other fields of the request by their names, see `planning.ports.Request`.

    Raises: as `compose_schema` and `render`.
    """
    messages: list[Wire] = read_messages(context)
    messages += [message for message in (offered_again(results), written(steps), spoken(steps)) if message is not None]
    for handler in HANDLERS if handlers is None else handlers:
        messages = handler(messages)
    if handlers is not None:
        messages = read_messages(messages)
    advisors = list(advisors)
    if schema is None:
        schema = compose_schema(tools, activities=activities, output=output, context=messages, advisors=advisors,
                                references=references)  # fmt: skip
        schema = _with_calls(schema, _unthought if plan_mode(messages) == "lazy" else _decided)
    texts: tuple[str, ...] = ()
    history: tuple[Turn, ...] | None = None
    if own is None:
        read: list[Wire] = [*(plain({"type": "advisor", **advisor}, UNBOUNDED) for advisor in advisors), *messages]
        texts, history = texts_and_history(read, steps, limit)
    return Request(
        context=tuple(messages),
        schema=schema,
        kind=kind,
        instructions=BY_KIND[kind] if instructions is None else instructions,
        preface=tuple(preface),
        turns=tuple(turns),
        own=own or 0,
        texts=texts,
        history=history,
        answer=None if output is None else plain(output, UNBOUNDED),
        **values,
    )


class Composer:
    """Composer of the requests of runs that share tools; it composes their schema once."""

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


def texts_and_history(
    messages: Sequence[Wire], steps: Sequence[ActionResult], limit: int
) -> tuple[tuple[str, ...], tuple[Turn, ...] | None]:
    """Return the messages as texts, and the same as turns with the calls of these steps beside their results.

    The turns are None where no call was made. The texts that both share are rendered once.
    """
    all_blocks = blocks(messages, limit)
    texts = tuple([block.text for block in all_blocks])
    if not any(step.results for step in steps):
        return texts, None
    left = unpaired(messages, steps)
    if any(kind_of(message) in ("result", "error") for message in left) or "error" in map(kind_of, messages):
        rest = blocks(left, limit)
    else:
        rest = [block for block in all_blocks if block.kind not in PAIRED]
    first, last = ([Turn("user", block.text) for block in rest if block.is_behind is part] for part in (False, True))
    return texts, (*first, *paired_turns(steps, limit), *last)


def is_plain(messages: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether the schema does not depend on these messages: none is a tool, an advisor, a plan, a version of the
    work (`meta`) or of an instance."""
    return not any(
        "_instance" in message or {message.get("type"), message.get("kind")} & _FORMING for message in messages
    )


_FORMING: Final = frozenset({"tool", "advisor", "meta", "plan"})


class PlainMessages(list[Wire]):
    """Messages that were copied by `read_messages`: plain JSON values that nobody else changes."""


def read_messages(context: Iterable[Any]) -> PlainMessages:
    """Return copies of the messages; an item that is no object becomes a text. Raises: TypeError for no list."""
    if isinstance(context, PlainMessages):
        return PlainMessages(context)
    if isinstance(context, (str, bytes, Mapping)):
        raise TypeError(f"a context is a list of messages, found {type(context).__name__}")
    plainly = (plain(message, UNBOUNDED) for message in context)
    return PlainMessages(message if isinstance(message, dict) else {"text": message} for message in plainly)


# -- handlers


def kind_of(message: Mapping[str, Any]) -> str:
    """Return the kind of a message, else its type; "" for plain text."""
    shape, named = message.get("type"), message.get("kind")
    return "" if not isinstance(shape, str) else named if isinstance(named, str) else shape


def typed_objects(messages: list[Wire]) -> list[Wire]:
    """Replace a message whose content is a typed object (`{"role": …, "content": {"type": …}}`) by this object."""
    return [_typed(message) if "type" not in message else message for message in messages]


def _typed(message: Wire) -> Wire:
    content = message.get("content")
    return content if isinstance(content, dict) and isinstance(content.get("type"), str) else message


def arranged(messages: list[Wire]) -> list[Wire]:
    """Put goals first, keep only the last plan and the last `skipped` message, and join all experiences in one message.

    The experiences are joined because of several data messages of one kind only the last one counts.
    """
    kinds = [kind_of(message) for message in messages]
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
#: The handlers that a context goes through, in this order.
HANDLERS: Final[tuple[Handler, ...]] = (typed_objects, arranged)


# -- what was not started


_OFFERED: Final = ("steered", "dep_failed")


def offered_again(results: Iterable[CallResult]) -> Wire | None:
    """Return the message about calls that were skipped before they started; None if there are none."""
    skipped = [
        {"call": call_shown(result.call.to_wire()), "reason": result.reason}
        for result in results
        if result.status == "skipped" and result.reason in _OFFERED
    ]
    if not skipped:
        return None
    return {"type": "data", "kind": "skipped", "data": skipped, "description": SKIPPED}


# -- plans


def plan_of(messages: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the last plan message; None without one: then no plan is kept from request to request."""
    plan = None
    for message in messages:
        if kind_of(message) == "plan":
            plan = message
    return plan


def plan_mode(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return the mode of the plan: "eager" (calls run at once), "lazy" (when the plan is complete), "" without one."""
    message = plan_of(messages)
    if message is None:
        return ""
    mode = message.get("mode") or mapping(read_message(message)[1]).get("mode")
    return "lazy" if mode == "lazy" else "eager"


def _with_calls(schema: Wire, change: Callable[[Wire], Wire]) -> Wire:
    """Return the schema of a solution with the schema of each call changed by a function."""
    calls = mapping(mapping(schema.get("properties")).get("calls"))
    if not calls:
        return schema
    changed = {**calls, "items": {"anyOf": [change(call) for call in calls["items"]["anyOf"]]}}
    return {**schema, "properties": {**schema["properties"], "calls": changed}}


def _unthought(call: Wire) -> Wire:
    """Return the schema of a call in a lazy plan: without a result that the model writes itself."""
    properties = {key: value for key, value in call["properties"].items() if key != "_output"}
    return {**call, "properties": properties, "required": [key for key in call["required"] if key != "_output"]}


def _decided(call: Wire) -> Wire:
    """Return the schema of a call; one whose result the model writes itself has an output path without alternatives."""
    path = mapping(call["properties"].get("_outputPath"))
    if "_output" not in call["properties"] or path.get("pattern") != "^†":
        return call
    return {**call, "properties": {**call["properties"], "_outputPath": {**path, "pattern": _ONE_BRANCH}}}


_ONE_BRANCH: Final = "^†[^|]*$"
