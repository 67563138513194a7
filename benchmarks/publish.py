"""Rows 14 and 15: telling an event to 0, 1 and 10 subscribers, plain and async ones, as the loop does it.

spar asks whether anybody listens, makes the event, stamps it and hands it over, guarded against a subscriber that
raises. The limit is a plain call of each function. Async subscribers of spar are not waited for; the batch yields
every 16 events, so that what they do is on the bill. blinker and pyee do what they do by themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import blinker

from benchmarks.harness import Batch, Effort, Measured, compare
from benchmarks.table import Line, amount, compared, times_of
from spar.bus.bus import Events
from spar.events import PhaseStarted

BURST = 16


def plain_functions(number: int) -> list[Callable[..., Any]]:
    def make() -> Callable[..., Any]:
        count = 0

        def receive(sender: object = None, **given: object) -> None:
            nonlocal count
            count += 1

        return receive

    return [make() for _ in range(number)]


def async_functions(number: int) -> list[Callable[..., Any]]:
    def make() -> Callable[..., Any]:
        count = 0

        async def receive(sender: object = None, **given: object) -> None:
            nonlocal count
            count += 1

        return receive

    return [make() for _ in range(number)]


@asynccontextmanager
async def spar_bus(handlers: list[Callable[..., Any]], *, yields: bool) -> AsyncIterator[Batch]:
    events = Events("bench")
    for handler in handlers:
        events.subscribe(PhaseStarted, handler)

    async def batch(number: int) -> None:
        for index in range(number):
            if events.wanted[PhaseStarted]:
                events.publish(PhaseStarted(cycle_id="c", phase="plan", input=index))
            if yields and not index % BURST:
                await asyncio.sleep(0)
        if yields:
            await asyncio.sleep(0)

    yield batch
    events.close()


async def measure(effort: Effort) -> list[Line]:
    lines: list[Line] = []
    for number in (0, 1, 10):
        lines += await plain(number, effort)
    for number in (1, 10):
        lines += await awaited(number, effort)
    lines.append(await stuck(effort))
    return lines


async def plain(number: int, effort: Effort) -> list[Line]:
    handlers = plain_functions(number)
    signal = blinker.Signal()
    for handler in handlers:
        signal.connect(handler, weak=False)

    async def calls(times: int) -> None:
        for index in range(times):
            for handler in handlers:
                handler(None, cycle=index, phase="plan")

    async def blinker_send(times: int) -> None:
        for index in range(times):
            signal.send(None, cycle=index, phase="plan")

    contenders: dict[str, Batch] = {"blinker send": blinker_send}
    reason = ""
    try:
        from pyee import EventEmitter
    except ImportError:
        reason = "not installed (pyee)"
    else:
        emitter = EventEmitter()
        for handler in handlers:
            emitter.on("started", handler)

        async def pyee_emit(times: int) -> None:
            for index in range(times):
                emitter.emit("started", None, cycle=index, phase="plan")

        contenders["pyee emit"] = pyee_emit

    async with spar_bus(handlers, yields=False) as publish:
        measured, limit = await compare({"spar": publish, **contenders}, calls, effort)
    measured.setdefault("pyee emit", Measured(error=reason))
    spar, measure = measured["spar"], f"publish, {number} plain subscriber{'' if number == 1 else 's'}"
    if number == 0:
        micros, loop = spar.cpu * 1e6, "an empty loop"
        return [
            amount(14, measure, micros, "µs", owed=0.1, against=loop, other=times_of(limit), is_limit=True, by="cpu")
        ]
    lines = [
        compared(14, measure, spar, "plain calls", limit, is_limit=True, moonshot=2 if number == 10 else None),
        compared(14, measure, spar, "blinker send", measured["blinker send"], owed=1),
        compared(14, measure, spar, "pyee emit", measured["pyee emit"]),
    ]
    return lines if number == 10 else [*lines, amount(14, measure, spar.cpu * 1e6, "µs", moonshot=0.5, by="cpu")]


async def awaited(number: int, effort: Effort) -> list[Line]:
    handlers = async_functions(number)
    signal = blinker.Signal()
    for handler in handlers:
        signal.connect(handler, weak=False)

    async def calls(times: int) -> None:
        for index in range(times):
            for handler in handlers:
                await handler(None, cycle=index, phase="plan")

    async def blinker_send(times: int) -> None:
        for index in range(times):
            await signal.send_async(None, cycle=index, phase="plan")

    async with spar_bus(handlers, yields=True) as publish:
        measured, limit = await compare({"spar": publish, "blinker": blinker_send}, calls, effort)
    spar, measure = measured["spar"], f"publish, {number} async subscriber{'' if number == 1 else 's'}"
    each = spar.cpu * 1e6 / number
    return [
        compared(15, measure, spar, "awaiting each", limit, is_limit=True),
        compared(15, measure, spar, "blinker send_async", measured["blinker"], owed=0.8, moonshot=0.4),
        amount(15, f"{measure}, each", each, "µs", moonshot=0.3, by="cpu"),
    ]


async def stuck(effort: Effort) -> Line:
    """Ten subscribers of which one never returns, against ten that do."""

    async def never(event: object) -> None:
        await asyncio.Event().wait()

    handlers = async_functions(10)
    async with spar_bus([*handlers[1:], never], yields=True) as with_stuck, spar_bus(handlers, yields=True) as well:
        measured, limit = await compare({"spar": with_stuck}, well, effort)
    title = "publish, 10 async, 1 of them stuck"
    return compared(15, title, measured["spar"], "none stuck", limit, is_limit=True, owed=1.05)
