"""The contracts of tool, store and notifier let good ones pass and name the duty that a bad one breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from spar.ports.channel import Notice
from spar.protocols.tools import tool
from spar.testing import Hang, RecordingNotifier, RecordingStore, RecordingTool, check_notifier, check_store, check_tool
from spar.testing.recording import SentNotice
from spar.types import CycleRecord, Experience

QUICK: dict[str, Any] = {"limit": 0.1, "grace": 0.03}


async def breaks(check: Any, part: Any, duty: str, **given: Any) -> None:
    """The check fails for this part and its sentence says so."""
    with pytest.raises(AssertionError, match=duty):
        await check(part, **QUICK, **given)


async def deaf(seconds: float = 0.15) -> None:
    """Swallows cancellation for a while."""
    with Hang(seconds, ignore_cancel=True) as hang:
        await hang.wait()


# -- tools ------------------------------------------------------------------------------------------------


async def test_a_good_tool_passes() -> None:
    @tool(effect="read")
    def add(left: int, right: int) -> int:
        """The sum."""
        return left + right

    await check_tool(lambda: RecordingTool(result={"a": [1]}, delay=0.001), params={"x": 1})
    await check_tool(lambda: add, params={"left": 1, "right": 2})


async def test_a_tool_with_an_effect_that_happens_once_is_not_called_twice_at_once() -> None:
    made: list[RecordingTool] = []

    def make() -> RecordingTool:
        made.append(RecordingTool(effect="once", delay=0.001))
        return made[-1]

    await check_tool(make)

    assert made[0].most_at_once == 1


def bad_tool(**fields: Any) -> Any:
    def make() -> RecordingTool:
        broken = RecordingTool()
        for name, value in fields.items():
            setattr(broken, name, value)
        return broken

    return make


async def swallow() -> str:
    try:
        await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        return "gone on"
    return "done"


@pytest.mark.parametrize(
    ("make", "duty"),
    [
        (bad_tool(name=""), "must have a name"),
        (bad_tool(schema=None), "must have a schema"),
        (bad_tool(schema={"properties": {"x": object()}}), "schema of the tool 'probe' must be JSON-able"),
        (bad_tool(schema={"properties": {"_tool": {"const": "other"}}}), "must be its name, found 'other'"),
        (bad_tool(schema={}), "must be its name, found None"),
        (bad_tool(effect="write"), "must be read, idempotent or once, found 'write'"),
        (bad_tool(timeout=0), "must be more than 0 seconds, found 0"),
        (lambda: object(), "must be callable"),
        (lambda: RecordingTool(result=lambda: object()), "returns must be JSON-able"),
        (lambda: RecordingTool(fails=OSError("off")), r"must not raise here, but raised OSError\('off'\)"),
        (lambda: RecordingTool(effect="idempotent", fails=[None, OSError()]), "calling an 'idempotent' tool again"),
        (lambda: RecordingTool(delay=60), "must come to an end"),
        (lambda: RecordingTool(result=swallow), "swallowed it and returned 'gone on'"),
    ],
)
async def test_a_bad_tool_is_caught(make: Any, duty: str) -> None:
    await breaks(check_tool, make, duty)


async def test_a_function_without_types_or_words_is_caught() -> None:
    def untyped(text):  # type: ignore[no-untyped-def]
        """Does it."""

    def wordless(text: str) -> None:
        pass

    await breaks(
        check_tool, lambda: untyped, r"types of its parameters, found none for \['text'\]", params={"text": ""}
    )
    await breaks(check_tool, lambda: wordless, "say in a docstring", params={"text": ""})


async def test_a_tool_that_changes_its_parameters_is_caught() -> None:
    @tool
    async def pop(items: list[int]) -> int:
        """Takes the last one."""
        return items.pop()

    await breaks(check_tool, lambda: pop, "leave its parameters as they are", params={"items": [1]})


# -- stores -----------------------------------------------------------------------------------------------


async def test_a_good_store_passes() -> None:
    kept = RecordingStore()

    await check_store(RecordingStore)
    await check_store(lambda: kept, durable=True)


class KeepsTheObject(RecordingStore):
    async def save(self, key: str, value: Any) -> None:
        self.values[key] = value

    async def load(self, key: str) -> Any:
        return self.values.get(key)


class RaisesForUnknownKeys(RecordingStore):
    async def load(self, key: str) -> Any:
        return {}[key]


class LosesFalsyValues(RecordingStore):
    async def load(self, key: str) -> Any:
        return await super().load(key) or None


class CannotEncodeHalfCharacters(RecordingStore):
    async def store(self, experience: Experience) -> None:
        experience.situation.encode()
        await super().store(experience)


class KeepsDoubles(RecordingStore):
    async def store(self, experience: Experience) -> None:
        self.experiences[str(len(self.experiences))] = experience


class Forgets(RecordingStore):
    async def store(self, experience: Experience) -> None:
        pass


class IgnoresK(RecordingStore):
    async def recall(self, query: str, k: int = 5, **filters: Any) -> Sequence[Experience]:
        return await super().recall(query, 1000, **filters)


class ChokesOnQuotes(RecordingStore):
    async def recall(self, query: str, k: int = 5, **filters: Any) -> Sequence[Experience]:
        if '"' in query:
            raise ValueError("syntax error")
        return await super().recall(query, k, **filters)


class MixesSessions(RecordingStore):
    async def recall(self, query: str, k: int = 5, **filters: Any) -> Sequence[Experience]:
        return await super().recall(query, k)


class RecordsOnce(RecordingStore):
    async def record(self, cycle: CycleRecord) -> None:
        if self.cycles:
            raise ValueError("already recorded")
        await super().record(cycle)


class WithoutFlush(RecordingStore):
    flush = None  # type: ignore[assignment]


class DeafFlush(RecordingStore):
    async def flush(self) -> None:
        self.flushes += 1
        if self.flushes > 4:
            await deaf(0.08)


@pytest.mark.parametrize(
    ("store", "duty"),
    [
        (KeepsTheObject, "must keep a copy"),
        (RaisesForUnknownKeys, r"store\.load\(\) must not raise here, but raised KeyError"),
        (LosesFalsyValues, "must load what was saved, saved 0, found None"),
        (CannotEncodeHalfCharacters, r"store\.store\(\) must not raise here, but raised UnicodeEncodeError"),
        (KeepsDoubles, "one experience for each id, found 2"),
        (Forgets, "must recall what was stored and flushed"),
        (IgnoresK, "at most k=5 experiences, found 10"),
        (ChokesOnQuotes, r"store\.recall\(\) must not raise here, but raised ValueError"),
        (MixesSessions, "must not find what was stored in another session"),
        (RecordsOnce, r"store\.record\(\) must not raise here"),
        (WithoutFlush, r"must have flush\(\)"),
        (DeafFlush, r"store\.flush\(\) must let its cancellation through"),
    ],
)
async def test_a_bad_store_is_caught(store: Any, duty: str) -> None:
    await breaks(check_store, store, duty)


async def test_a_store_that_is_not_durable_is_caught() -> None:
    await breaks(check_store, RecordingStore, "durable store must still have what was saved", durable=True)


# -- notifiers --------------------------------------------------------------------------------------------


async def test_a_good_notifier_passes() -> None:
    sent: list[str] = []

    class Plain:
        def notify(self, title: str, text: str, *, urgency: str = "normal") -> None:
            sent.append(urgency)

    await check_notifier(RecordingNotifier, make_unreachable=lambda: RecordingNotifier(fails=OSError("offline")))
    await check_notifier(Plain)

    assert sent[:3] == ["low", "normal", "critical"]


class Delivers(RecordingNotifier):
    """Gets whole notices; an error of them is hidden."""

    async def deliver(self, notice: Notice) -> None:
        self.sent.append(SentNotice(notice.title, notice.text, "low"))


class SaysYes(RecordingNotifier):
    async def notify(self, title: str, text: str, *, urgency: Any = "normal") -> Any:
        return True


class KnowsNoUrgency(RecordingNotifier):
    async def notify(self, title: str, text: str) -> None:  # type: ignore[override]
        pass


class EncodesStrictly(RecordingNotifier):
    async def notify(self, title: str, text: str, *, urgency: Any = "normal") -> None:
        text.encode()


class DeliversOnce(Delivers):
    """Takes a notice that comes again for an error."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()

    async def deliver(self, notice: Notice) -> None:
        if notice.id in self.ids:
            raise ValueError("seen before")
        self.ids.add(notice.id)


@pytest.mark.parametrize(
    ("notifier", "duty"),
    [
        (SaysYes, "must return nothing and raise when it failed, found bool"),
        (KnowsNoUrgency, "raised TypeError"),
        (EncodesStrictly, "raised UnicodeEncodeError"),
        (DeliversOnce, r"deliver\(\) of 'mark .* raised ValueError"),
    ],
)
async def test_a_bad_notifier_is_caught(notifier: Any, duty: str) -> None:
    await breaks(check_notifier, notifier, duty)


async def test_a_notifier_that_hides_its_failure_is_caught() -> None:
    await breaks(check_notifier, RecordingNotifier, "must raise when", make_unreachable=RecordingNotifier)

    def unreachable() -> Delivers:
        return Delivers(fails=OSError("offline"))

    await breaks(check_notifier, Delivers, r"deliver\(\) must raise when", make_unreachable=unreachable)
