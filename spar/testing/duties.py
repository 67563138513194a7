"""Checks of a part against its contract: call it like the agent does, cancel it, judge its products.

Every check ends with an `AssertionError` of one sentence that names the broken duty, or without a result.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import Struct

from spar import facts
from spar.checks import problem_of
from spar.clock import Clock, SystemClock
from spar.errors import ConflictError
from spar.facts import Fact
from spar.hooks import Hooks
from spar.ids import new_id
from spar.loop.setup import Module
from spar.protocols import Context, Host
from spar.testing.recording import RecordingEvents
from spar.threads import Threads
from spar.types import Action, ActionResult, Call, Perception, Phase, Reflection

#: Texts that have broken parts before: empty, half a character, format strings, control and escape characters,
#: reference signs of plans, markup and queries, and a very long one.
ODD_TEXTS = (
    "",
    "half a character \ud800",
    "{braces} {0} %s %(x)d ${HOME}",
    "nul \x00 bell \x07 escape \x1b[31m\r\n",
    "†state.a.b || †input && ††",
    "'; DROP TABLE experience; -- <script>",
    "NaN",
    "much " * 20_000,
)


def owed(is_kept: object, duty: str) -> None:
    """Raise an AssertionError with the duty, unless it is kept."""
    if not is_kept:
        raise AssertionError(duty)


class Harness:
    """Makes and calls the parts of one check. Every call is bounded: `limit` seconds, and `grace` seconds after a
    cancellation."""

    def __init__(self, port: str, clock: Clock | None, limit: float, grace: float) -> None:
        self.port, self.limit, self.grace = port, limit, grace
        self.clock: Clock = clock or SystemClock()
        self.context = Context(agent="contract", cycle_id="contract", clock=self.clock)
        self._threads = Threads(f"contract of the {port}", self.clock, limit=16)
        self._before = asyncio.all_tasks()

    async def make(self, factory: Callable[[], Any]) -> Any:
        part = factory()
        if inspect.isawaitable(part):
            part = await part
        owed(part is not None, f"the factory of the {self.port} must return it, found None")
        return part

    @asynccontextmanager
    async def opened(self, factory: Callable[[], Any]) -> AsyncIterator[Any]:
        """Yield a new part, attached and entered like by the agent, in this task; it is left at the end."""
        part = await self.make(factory)
        if callable(getattr(part, "attach", None)):
            part.attach(Host("contract", self.clock, RecordingEvents("contract"), Hooks(), _nothing))
        if hasattr(part, "__aenter__"):
            try:
                async with asyncio.timeout(self.limit):
                    await part.__aenter__()
            except Exception as error:
                raise AssertionError(f"{self.port} must open, but opening it raised {error!r}") from error
        try:
            yield part
        except BaseException:
            with suppress(Exception):  # report only the duty that was broken first
                await self._leave(part)
            raise
        await self._leave(part)

    async def _leave(self, part: Any) -> None:
        if hasattr(part, "__aexit__"):
            try:
                async with asyncio.timeout(self.limit):
                    await part.__aexit__(None, None, None)
            except Exception as error:
                raise AssertionError(f"{self.port} must close, but closing it raised {error!r}") from error

    # -- calling

    async def run(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call a function like the agent does: async ones here, plain ones in a thread."""
        called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        if inspect.iscoroutinefunction(called):
            return await function(*args, **named)
        product = await self._threads.run(lambda: function(*args, **named))
        return await product if inspect.isawaitable(product) else product

    def phase(self, phase: Phase, part: Any) -> Callable[[Any], Coroutine[Any, Any, Any]]:
        """Return a phase's module as a function of its value; a module that takes a context gets it."""
        module = Module(phase, part, self.clock)
        if module.wants_context:
            return lambda value: module.call(value, self.context)
        return module.call

    async def outcome(self, what: str, work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
        """Return the result of the work and the error that it raised, within the limit."""
        task = asyncio.ensure_future(_caught(work))
        try:
            done, _ = await asyncio.wait([task], timeout=self.limit)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            raise AssertionError(f"{what} must come to an end, but did not within {self.limit:g} s")
        owed(not task.cancelled(), f"{what} raised CancelledError though nobody cancelled it")
        return task.result()

    async def value(self, what: str, work: Awaitable[Any]) -> Any:
        """Return the result of the work; an error of it is a broken duty."""
        value, error = await self.outcome(what, work)
        if error is not None:
            raise AssertionError(f"{what} must not raise here, but raised {error!r}") from error
        return value

    async def cut(self, what: str, begin: Callable[[], Awaitable[Any]], *, may_return: bool = False) -> None:
        """Cancel the work early and a little later; it must let the cancellation through within the grace time.

        Args: may_return: a phase may return a result instead.
        """
        for pause in (0.0, 0.01):
            task = asyncio.ensure_future(_caught(begin()))
            await asyncio.wait([task], timeout=pause) if pause else await asyncio.sleep(0)
            if task.done():
                continue
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=self.grace)
            owed(done, f"{what} must let its cancellation through, but did not end within {self.grace:g} s of it")
            if task.cancelled():
                continue
            value, error = task.result()
            owed(error is None, f"{what} must let its cancellation through, but turned it into {error!r}")
            owed(may_return, f"{what} must let its cancellation through, but swallowed it and returned {value!r:.80}")

    async def sends(
        self, what: str, send: Callable[[str, str], Awaitable[Any]], texts: Iterable[str]
    ) -> tuple[str, list[Any]]:
        """Send these texts, one text twice under the same id, as after a crash, and one that is cut off.

        Args: send: gets a text and the id of its message.
        Returns: the repeated text, which is its id too, and the results, its own the last.
        """
        mark = f"mark {new_id()}"
        messages = [*((text, new_id()) for text in texts), (mark, mark), (mark, mark)]
        results = [await self.value(f"{what} of {text[:30]!r}", send(text, id)) for text, id in messages]
        await self.cut(what, lambda: send("cut short", new_id()))
        return mark, results

    async def is_clean(self) -> None:
        """Check that no task that began since is still running, after a grace time."""
        left = {task for task in asyncio.all_tasks() - self._before if task is not asyncio.current_task()}
        if left:
            await asyncio.wait(left, timeout=self.grace)
        names = sorted(task.get_name() for task in left if not task.done())
        owed(not names, f"{self.port} must release everything when it is closed, but left tasks running: {names}")


async def _caught(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await work, None
    except (Exception, SystemExit) as error:
        return None, error


def _nothing() -> None:
    return None


# -- legal products (pure) ---------------------------------------------------------------------------------


def described(value: object) -> str:
    return f"{type(value).__name__} ({value!r:.60})"


def are_json(what: str, *values: Any) -> None:
    for value in values:
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise AssertionError(f"{what} must be JSON-able, found {described(value)}: {error}") from error


def is_share(value: Any) -> bool:
    """Return whether a value is a number within 0..1."""
    return _is_number(value) and 0 <= value <= 1


def is_duration(value: Any) -> bool:
    return _is_number(value) and 0 <= value < math.inf


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def are(what: str, values: Any, kind: type) -> None:
    owed(isinstance(values, (list, tuple)), f"{what} must be a list of {kind.__name__}, found {described(values)}")
    for item in values:
        owed(isinstance(item, kind), f"{what} must be a list of {kind.__name__}, found {described(item)} in it")


def are_different(what: str, ids: Iterable[str]) -> None:
    known: set[str] = set()
    for item in ids:
        owed(item not in known, f"{what} must have different ids, found {item!r} twice")
        known.add(item)


def has_legal_fields(what: str, product: Struct) -> None:
    """Check the fields of a value, and those of the values in it, as the agent does."""
    problem = problem_of(product)
    owed(not problem, f"{what} must keep to the fields of {problem}")


def legal_perceptions(what: str, perceptions: Any) -> None:
    are(what, perceptions, Perception)
    are_different(f"the perceptions of {what}", (item.id for item in perceptions))
    for item in perceptions:
        owed(item.at.tzinfo is not None, f"{what} must give aware times, found {item.at!r}")
        are_json(f"content and attributes from {what}", item.content, item.attributes)


def legal_action(what: str, action: Any) -> None:
    if action is None:
        return
    owed(isinstance(action, Action), f"{what} must return Action, a stream of calls or None, found {described(action)}")
    are_different(f"the calls of {what}", (call.id for call in action.calls))
    ids = {call.id for call in action.calls}
    for call in action.calls:
        owed(call.tool, f"{what} must name a tool in each call, found {call.tool!r}")
        are_json(f"the parameters of {call.tool!r} from {what}", call.params)
        unknown = set(call.after) - ids
        owed(not unknown, f"{what} must let calls wait for calls of the same action, found {sorted(unknown)} in after")
    is_near = action.next_look is None or is_duration(action.next_look)
    owed(is_near, f"{what} must propose next_look as seconds from 0 or None, found {action.next_look!r}")
    are_json(f"the output of {what}", action.output)


def legal_result(what: str, action: Action, result: Any) -> None:
    owed(isinstance(result, ActionResult), f"{what} must return an ActionResult, found {described(result)}")
    has_legal_fields(what, result)
    ids = [item.call.id for item in result.results]
    for call in action.calls:
        owed(call.id in ids, f"{what} owes exactly one CallResult for each call, found none for {call.tool!r}")
    are_different(f"the results of {what}", ids)
    strangers = sorted(set(ids) - {call.id for call in action.calls})
    owed(not strangers, f"{what} must answer for the calls of its action only, found {strangers}")
    bad = [item for item in result.results if item.status not in ("ok", "skipped") and item.reason != "handled"]
    for item in result.results:
        are_json(f"the output of {item.call.tool!r} from {what}", item.output)
    for item in bad:
        owed(item.fault or item.reason, f"{what} must say by fault or reason why {item.call.tool!r} is {item.status}")
    owed(not bad or result.status != "ok", f"{what} must not be ok as a whole when a call is not")
    is_good = all(item.status == "ok" for item in result.results) and result.fault is None
    owed(not is_good or result.status in ("ok", "interrupted"), f"{what} must be ok as a whole when all calls are")
    are_same = result.action is None or result.action.id == action.id
    owed(are_same, f"{what} must lead back to the action it was given, found another")
    are_json(f"state, messages and errors of {what}", result.state, result.messages, result.errors)


def legal_reflection(what: str, result: ActionResult, reflection: Any) -> None:
    owed(isinstance(reflection, Reflection), f"{what} must return a Reflection, found {described(reflection)}")
    has_legal_fields(what, reflection)
    known = {item.call.id for item in result.results}
    named = {call.id for call in reflection.successes} | {failure.call.id for failure in reflection.failures}
    owed(named <= known, f"{what} must judge calls of its result only, found {sorted(named - known)}")
    for item in reflection.abilities:
        is_legal = is_share(item.estimate) and is_share(item.uncertainty * 2) and item.trials >= 0
        owed(is_legal, f"{what} must estimate within 0..1 (uncertainty 0..0.5, trials from 0), found {item!r:.99}")
    are_different(f"the experiences of {what}", (item.id for item in reflection.experiences))
    is_near = reflection.next_look is None or is_duration(reflection.next_look)
    owed(is_near, f"{what} must propose next_look as seconds from 0 or None, found {reflection.next_look!r}")


class CheckedPart:
    """Part of a store: a method of it that is awaited must not raise here."""

    def __init__(self, harness: Harness, name: str, part: Any) -> None:
        self._harness, self._name, self._part = harness, name, part

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._part, name)
        return lambda *args, **named: self._harness.value(f"{self._name}.{name}()", method(*args, **named))


class Duty(ABC):
    """One subject of a store's contract: `write` writes it, `look` checks it, any number of times.

    `store`, `views` and `transcripts` are those of the store that `use` was given, which is `opened`.
    """

    def __init__(self, harness: Harness) -> None:
        self.harness, self.mark = harness, f"w{new_id()}"

    def use(self, store: Any) -> None:
        """Write to this store and look at it from now on."""
        self.opened, self.journal = store, store.journal
        self.store = CheckedPart(self.harness, "store", store)
        self.views = CheckedPart(self.harness, "journal.views", store.journal.views)
        self.transcripts = CheckedPart(self.harness, "transcripts", store.transcripts)

    @abstractmethod
    async def write(self) -> None:
        """Write the subject."""

    @abstractmethod
    async def look(self) -> None:
        """Check the store against what was written."""

    def tell(self, kind: type[Fact], **fields: Any) -> None:
        """Give the journal a fact of session "main"."""
        self.journal.append(kind(session="main", **fields), self.mark)

    def plan(self, cycle: str, *calls: Call, goal: str = "", begun: int = 1, **more: Any) -> Action:
        """Write the plan of a cycle and the begin of its first calls. Args: more: fields of each begin."""
        action = Action(calls, goal=goal)
        self.tell(facts.Planned, cycle=cycle, action=action)
        for call in calls[:begun]:
            self.tell(facts.AttemptStarted, cycle=cycle, call=call.id, attempt=1, effect="once", **more)
        return action

    async def commit(self, kind: type[Fact], *, agent: str = "", **fields: Any) -> Any:
        """Write a fact that an earlier one may rule out, and return the answer. Args: agent: the usual one, or this."""
        work = self.journal.commit(kind(session="main", **fields), agent or self.mark)
        return await self.harness.value("journal.commit()", work)

    async def conflicts(self, what: str, kind: type[Fact], **fields: Any) -> None:
        """Check that the journal refuses a fact by a ConflictError."""
        work = self.journal.commit(kind(session="main", **fields), self.mark)
        await self.refuses(f"journal.commit() of {what}", work, ConflictError)

    async def refuses(self, what: str, work: Awaitable[Any], kind: type[Exception]) -> None:
        """Check that the work raises an error of this kind."""
        _, error = await self.harness.outcome(what, work)
        owed(isinstance(error, kind), f"{what} must raise {kind.__name__}, found {error!r:.200}")


def are_same(value: Any, expected: Any) -> bool:
    """Return whether two values are equal including their types: True is not 1, and 1 is not 1.0."""
    return bool(value == expected) and repr(listed(value)) == repr(listed(expected))


def listed(value: Any) -> Any:
    """Return the value with lists instead of tuples, which JSON does not have, and with the keys of objects in
    order."""
    if isinstance(value, dict):
        return {key: listed(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [listed(item) for item in value]
    return value
