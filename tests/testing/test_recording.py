"""Recording parts keep what they were given, with the times, and fail on demand."""

from __future__ import annotations

import asyncio

import pytest

from spar.protocols.tools import terms_of
from spar.testing import RecordingNotifier, RecordingStore, RecordingTool, VirtualClock
from spar.types import Experience


def test_a_tool_states_its_terms_and_schema() -> None:
    tool = RecordingTool("charge", effect="once", timeout=5, retries=2, approval="ask", params={"sum": {}})

    assert (terms_of(tool).name, terms_of(tool).effect, terms_of(tool).retries) == ("charge", "once", 2)
    assert terms_of(tool).approval == "ask"
    assert tool.schema["properties"] == {"_tool": {"const": "charge"}, "sum": {}}
    assert tool.schema["required"] == ["_tool", "sum"]
    assert tool.schema["additionalProperties"] is False


async def test_a_tool_fails_always_or_call_by_call(clock: VirtualClock) -> None:
    always, at_first = RecordingTool(fails=OSError), RecordingTool(result=1, fails=[OSError("busy"), None])

    for _ in range(2):
        with pytest.raises(OSError):  # noqa: PT011 - raised from the bare class
            await always()
    with pytest.raises(OSError, match="busy"):
        await at_first()

    assert [await at_first(), await at_first()] == [1, 1]
    assert [type(call.error) for call in at_first.calls] == [OSError, type(None), type(None)]


async def test_a_cancelled_call_is_recorded_as_such(clock: VirtualClock) -> None:
    tool = RecordingTool(delay=100)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await tool()

    assert isinstance(tool.calls[0].error, asyncio.CancelledError)
    assert tool.running == 0


async def test_a_store_recalls_by_words_filters_and_age() -> None:
    store = RecordingStore()
    for situation, session in (("disk full", "main"), ("disk slow", "ops"), ("rain", "main")):
        await store.store(Experience(situation, session=session))

    recalled = [item.situation for item in await store.recall("full disk")]
    in_main = [item.situation for item in await store.recall("disk", session="main")]
    newest = [item.situation for item in await store.recall("", k=2)]

    assert recalled == ["disk full", "disk slow"]
    assert in_main == ["disk full"]
    assert newest == ["rain", "disk slow"]


async def test_a_notifier_keeps_what_it_told_and_fails_on_demand() -> None:
    notifier = RecordingNotifier(fails=[None, ConnectionError("offline")])

    await notifier.notify("disk", "is full", urgency="critical")
    with pytest.raises(ConnectionError):
        await notifier.notify("disk", "is fuller")

    assert [(item.title, item.text, item.urgency) for item in notifier.sent] == [("disk", "is full", "critical")]
