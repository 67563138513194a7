"""One acceptance run: the sweep, its table, its JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec
from msgspec.structs import replace

from tests.faults import report
from tests.faults.sweep import HUNT, LONG, ON_SERVER, SHORT, Outcome, Sweep, on_server, standing_by, upgraded, zygotes
from tests.servers.postgresql import postgres_server

_SHOW = 0.5  # seconds between two states of the progress line


def accept(
    *, is_short: bool, seed: int, path: str | None, at_once: int, former: str = "", is_on_server: bool = False
) -> int:
    """Run it and say what came of it.

    Args: former: the commit whose program lives the first life of each case, which this one has to continue;
        is_on_server: whether agents have their memory in PostgreSQL, and another process that stands by takes over.
    Returns: 0 when nothing was lost, doubled or silent, and no fault was vacuous.
    """
    began, done, shown = time.monotonic(), list[Outcome](), 0.0

    def told(outcome: Outcome) -> None:
        nonlocal shown
        done.append(outcome)
        if not outcome.has_survived:
            say(report.failures([outcome]))
        if sys.stderr.isatty() and (now := time.monotonic()) - shown > _SHOW:
            shown = now
            sys.stderr.write(f"\r{len(done)} cases, {now - began:.0f} s ")
            sys.stderr.flush()

    with ExitStack() as stack:
        plan = SHORT if is_short else LONG
        if is_on_server:
            housing = on_server(stack.enter_context(postgres_server()))
            outcomes = Sweep(standing_by(stack, at_once), plan, seed, told, ON_SERVER, housing)()
        elif former:  # a service is no part of it: an earlier one may have had other doors
            outcomes = Sweep(upgraded(stack, at_once, former), replace(plan, services=0), seed, told)()
        else:
            outcomes = Sweep(zygotes(stack, at_once), plan, seed, told)()
    seconds = time.monotonic() - began
    say(report.table(outcomes))
    say(report.closing(outcomes))
    if unreached := report.unreached(outcomes):
        say(f"crash points that nothing reached: {', '.join(unreached)}")
    say(f"{len(outcomes)} cases in {seconds:.0f} s, seed {seed}")
    if path is not None:
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(report.everything(outcomes, seed, seconds))))
    return 0 if report.is_accepted(outcomes) else 1


def hunt(workloads: Sequence[str], finds: frozenset[str], seed: int) -> int:
    """Sweep these workloads until something of these kinds is found. Returns: 1 when it is, 0 when it is not."""

    def told(outcome: Outcome) -> None:
        if found := {finding.kind for finding in outcome.judgement.findings} & finds:
            say(f"found {', '.join(sorted(found))}: {report.failures([outcome])}")
            raise Found

    with ExitStack() as stack:
        try:
            Sweep(zygotes(stack, 1), HUNT, seed, told, workloads)()
        except Found:
            return 1
    return 0


class Found(Exception):
    """The hunt is over."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
