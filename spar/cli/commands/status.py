"""Command `status`, and the status of an agent in rows, which `spar top` shows, too."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeAlias

import click

from spar.cli.blocks import ID, Block, Fields, counted, local, money, span, styled, took, zoned
from spar.cli.client import ending, service, versions
from spar.cli.context import Options, fail, rendered, show, write
from spar.client.client import Client, NotRunningError, ServiceError
from spar.data.text import one_line
from spar.decoding import convert_leniently
from spar.observe.stats import Snapshot
from spar.operations import agent as operations
from spar.operations.agent import AgentStatus, AlertRow, OpenWork, Status, StoredCounts
from spar.records.senders import ChannelState
from spar.service import exit_codes as exits

Row: TypeAlias = tuple[str, str]

#: A sensor is stale if its last poll is older than so many of its intervals, and than so many seconds.
STALE_INTERVALS, STALE_SECONDS = 3.0, 60.0
#: The style of each state of an agent.
STATES = {"running": "good", "paused": "warn", "pausing": "warn", "stopping": "warn", "failed": "bad", "stopped": "bad"}
#: The quantities of budgets that only models use.
OF_MODELS = ("requests", "tokens", "cached_tokens", "money")


def status_blocks(answer: Any) -> list[Block]:
    """Return the status of a service, which may be of another version, as blocks for people."""
    status, unsaid = read_status(answer)
    began = zoned(local(status.started_at))
    head = f"spar {status.version or '?'}, process {status.pid}, since {began}, for {_since(status.started_at)}, " \
           f"configuration {status.config or 'the defaults'}"  # fmt: skip
    blocks: list[Block] = [head]
    agent = status.agent
    rows = [row for part in PARTS for row in part(agent)]
    title = f"agent {agent.name}: {agent.state or 'unknown'}, interval {agent.loop_interval}"
    blocks.append(Fields(styled(title, STATES.get(agent.state, "")), tuple(rows)))
    if agent.blocked_by:
        blocks.append(Fields("", (("blocked", styled("the event loop, by:", "bad")),)))
        blocks.append("\n".join(f"    {line}" for line in agent.blocked_by.splitlines()))
    if (shadow := status.shadow) is not None:
        line = styled(shadow.line, "warn" if shadow.trouble else "")
        blocks.append(Fields("", (("shadow", line),)))
    addresses = tuple((name, str(address)) for name, address in status.addresses.items())
    if addresses:
        blocks.append(Fields("", addresses))
    return [*blocks, styled(unsaid_line(unsaid, status.version), "warn")] if unsaid else blocks


def read_status(answer: Any) -> tuple[Status, list[str]]:
    """Return a status, which may be of another version, and the fields that it does not say."""
    match answer:
        case {"agents": [agent, *_], **others} if "agent" not in answer:  # older services have a list of one
            answer = {**others, "agent": agent}
    return convert_leniently(answer, Status)


def unsaid_line(unsaid: list[str], version: str) -> str:
    """Return the sentence about the fields that a status does not say."""
    return f"this service does not say {', '.join(unsaid)}: {versions(version or 'unknown')}"


def _alerts(agent: AgentStatus) -> Iterator[Row]:
    """Yield the failure and the open alerts."""
    if agent.failure:
        yield "failure", styled(agent.failure, "bad")
    for alert in agent.alerts:
        yield "alert", styled(_alert(alert), "bad" if alert.severity == "critical" else "warn")


def _doing(agent: AgentStatus) -> Iterator[Row]:
    """Yield the activity of each session and its duration, the working sessions first."""
    for lane in sorted(agent.lanes, key=lambda session: not session.cycle):
        if lane.cycle:
            stands = "stands still, " if lane.stands else ""
            doing = f"{stands}{lane.phase} for {span(lane.phase_seconds or 0.0)}, cycle {lane.cycle[:ID]}"
        else:
            doing = "waits for a model" if lane.waits_for_model else "resting"
        yield "session", f"{lane.session}: {doing}, {lane.waiting} waiting"


def _incidents(agent: AgentStatus) -> Iterator[Row]:
    """Yield the number of open incidents by severity, the worst first, if the sense module has incidents."""
    figures = agent.modules.get("sense", {}).get("incidents")
    counts = figures.get("open") if isinstance(figures, dict) else None
    if open_counts := [count for count in counts.items() if count[1]] if isinstance(counts, dict) else []:
        listed = ", ".join(f"{number} {severity}" for severity, number in reversed(open_counts))
        is_bad = any(severity in ("error", "critical") for severity, _ in open_counts)
        yield "incidents", styled(f"open: {listed}; spar incidents list", "bad" if is_bad else "warn")


def _left_to_people(agent: AgentStatus) -> Iterator[Row]:
    """Yield what waits for a decision of people."""
    if pending := agent.approvals.pending:
        what = "call waits" if pending == 1 else "calls wait"
        age = span(agent.approvals.oldest_age_seconds or 0.0)
        yield "waiting", styled(f"{pending} {what} for approval, the oldest for {age}; spar approvals list", "warn")
    if strangers := agent.senders_waiting:
        what = "sender waits" if strangers == 1 else "senders wait"
        yield "waiting", styled(f"{strangers} {what} to be let in; spar senders list --status waiting", "warn")
    if left := _left(agent.recovery):
        yield "recovery", styled(left, "warn")


def _blocked(agent: AgentStatus) -> Iterator[Row]:
    """Yield the call that blocks the event loop."""
    if agent.blocked_by:
        yield "blocked", styled(f"the event loop, by: {agent.blocked_by.strip().splitlines()[-1].strip()}", "bad")


def models(agent: AgentStatus) -> Iterator[Row]:
    """Yield each model: whether it is available and when it last answered; how many runs wait for one; then a fallback
    that is in use."""
    plan = agent.modules.get("plan", {})
    rows = [row for rows in _reported("models", plan) if isinstance(rows, list) for row in rows]
    known = {row["model"]: row for row in rows if isinstance(row, dict) and "model" in row}
    for model in sorted(agent.models, key=lambda model: model.state == "closed"):
        figures = _of_model(known.get(model.model, {}))
        if model.state == "closed":
            yield "model", f"{model.model}: answers{figures}"
        else:
            again = f"next try in {model.wait:.0f} s" if model.state == "open" else "the next request tries it"
            yield "model", styled(f"{model.model}: {one_line(model.reason)}, {again}{figures}", "bad")
    if waiting := agent.waiting_for_models:
        yield "waiting", styled(f"{waiting} {'run waits' if waiting == 1 else 'runs wait'} for a model", "warn")
    if reason := plan.get("degraded"):
        yield "fallback", styled(f"the next planner plans: {reason}", "warn")
    elif number := sum(number for number in _reported("fallbacks", plan) if isinstance(number, int)):
        requests = f"{counted(number, 'request')} {'was' if number == 1 else 'were'}"
        yield "fallback", f"{requests} answered by another model than the first"


def _of_model(model: dict[str, Any]) -> str:
    """Return the figures of a model's requests, each after a comma; "" for none."""
    figures = []
    if model.get("last_success_age") is not None:
        figures.append(f"last success {span(model['last_success_age'])} ago")
    elif model.get("requests"):
        figures.append("no success yet")
    if model.get("requests"):
        figures.append(f"{counted(model['requests'], 'request')}, {model.get('faults', 0)} failed")
    if isinstance(model.get("cost"), int | float) and model["cost"]:
        figures.append(f"{money(model['cost'])} spent")
    return "".join(f", {figure}" for figure in figures)


def _reported(name: str, part: Any, depth: int = 6) -> Iterator[Any]:
    """Yield the values under a name in the snapshot of the plan module, at any depth up to `depth`."""
    if isinstance(part, dict) and depth:
        for key, value in part.items():
            if key == name:
                yield value
            else:
                yield from _reported(name, value, depth - 1)


def _budgets(agent: AgentStatus) -> Iterator[Row]:
    """Yield the rest of each used budget; where there are models, also of the unused budgets of models."""
    for budget in agent.budgets:
        window, _, quantity = budget.budget.partition(".")
        is_shown = budget.used or (quantity in OF_MODELS and agent.models)
        if not (budget.refused or (is_shown and window != "cycle")):
            continue
        amount_left, limit = max(budget.limit - budget.used, 0), budget.limit
        shown = (money(amount_left), money(limit)) if quantity == "money" else (f"{amount_left:,}", f"{limit:,}")
        until = f", until {zoned(local(budget.ends_at))}" if budget.ends_at else ""
        refused = f", {budget.refused} refused" if budget.refused else ""
        style = "bad" if budget.ratio >= 1 else "warn" if budget.ratio >= 0.8 or budget.refused else ""
        text = f"{budget.budget}: {shown[0]} of {shown[1]} left ({budget.ratio:.0%} used){until}{refused}"
        yield "budget", styled(text, style)


def _sensing(agent: AgentStatus) -> Iterator[Row]:
    """Yield the state of each sensor and each channel, with losses and errors."""
    for name, sensor in agent.modules.get("sense", {}).get("sensors", {}).items():
        state = str(sensor.get("state", "?"))
        error = sensor.get("last_error") if state != "ok" else None  # an error that is over is only in the log
        extra = f": {error}" if error else ""
        every, age = sensor.get("every"), sensor.get("last_poll_age")
        if state == "ok" and every and age is not None and age > max(STALE_INTERVALS * every, STALE_SECONDS):
            state, extra = "stale", f": not asked for {span(age)}, it should be each {every:g} s"
        style = {"ok": "", "quarantined": "bad"}.get(state, "warn")
        yield "sensor", styled(f"{name}: {state}{_losses(sensor)}{extra}", style)
    for name, channel in agent.channels.items():
        state = _channel_state(channel)
        yield "channel", styled(f"{name}: {state}", "" if state == "ok" else "warn")


def _acting(agent: AgentStatus) -> Iterator[Row]:
    """Yield the state of each tool that has a sandbox or a server."""
    for name, part in agent.modules.get("act", {}).get("parts", {}).items():
        if state := tool_state(part):
            yield "tool", f"{name}: {state}"


def _wrong(agent: AgentStatus) -> Iterator[Row]:
    """Yield stops at breakpoints, warnings, errors of modules, a degraded planner, and the latest steps of recovery."""
    yield from (("stands", styled(where, "warn")) for where in agent.stands)
    yield from (("warning", styled(str(warning), "warn")) for warning in agent.warnings)
    for phase, module in agent.modules.items():
        if error := module.get("error"):
            yield phase, styled(f"{module.get('use', '')}: {error}", "bad")
    if agent.health.degraded:
        yield "degraded", styled("the planner makes do with less", "warn")
    for step in agent.health.steps[-5:]:
        yield "step", f"{zoned(local(step.at))} {step.step} {step.part}: {step.reason}"


def _counts(agent: AgentStatus) -> Iterator[Row]:
    """Yield the figures of cycles, phases, calls and the memory."""
    stats = agent.stats
    outcomes = ", ".join(f"{number} {name}" for name, number in stats.outcomes.items() if number) or "none yet"
    times = f"mean {took(stats.cycle_mean_seconds)}, p99 {took(stats.cycle_p99_seconds)}"
    yield "cycles", f"{stats.total_cycles} ({outcomes}), {stats.error_rate:.1%} failed, {times}"
    yield "phases", _phases(stats)
    if calls := ", ".join(f"{number} {name}" for name, number in agent.calls.items() if number):
        yield "calls", f"{calls} since the start"
    yield "memory", _writes(agent.stored_counts)


def _alert(alert: AlertRow) -> str:
    """Return an alert as one line: kind, severity, session, duration and message."""
    whose = f" in session {alert.session}" if alert.session not in ("", "main") else ""
    what = f"{alert.kind} ({alert.severity}){whose}"
    first = (alert.message.splitlines() or [""])[0]
    return f"{what} for {_since(alert.since)}, since {zoned(local(alert.since))}: {first}"


def _since(at: Any) -> str:
    """Return the duration since a time (ISO text)."""
    try:
        return span((datetime.now(UTC) - datetime.fromisoformat(str(at))).total_seconds())
    except (ValueError, TypeError):
        return "?"


def _writes(counts: StoredCounts) -> str:
    """Return the sentence about written, waiting and lost experiences and cycles."""
    text = f"{counts.stored} cycles and experiences written"
    if counts.waiting:
        text += f", {counts.waiting} still to be written"
    return text + (f", {counts.lost} lost because the memory could not take them" if counts.lost else "")


def _channel_state(channel: ChannelState) -> str:
    """Return the state of a channel: failing directions with their errors, and undelivered messages; else "ok"."""
    if channel.receiving.state == "elsewhere":
        return "elsewhere"
    directions = {"receiving": channel.receiving, "sending": channel.sending}
    parts = [f"{name} {direction.state}: {direction.last_error!s}" for name, direction in directions.items()
             if direction.state != "ok"]  # fmt: skip
    numbers = {"waiting": channel.waiting, "undelivered": channel.undelivered}
    parts += [f"{number} {name}" for name, number in numbers.items() if number]
    return "; ".join(parts or ["ok"])


def tool_state(part: Any) -> str:
    """Return the state of a tool's sandbox or server, "" for a tool without one."""
    match part:
        case {"sandbox": {"asked": 0}}:
            return "sandbox level 0, as configured"
        case {"sandbox": {"asked": int(asked), "level": int(level), "why": why}} if level < asked:
            return f"off: sandbox level {asked} is asked for, this machine offers level {level}; {why}"
        case {"sandbox": {"level": int(level), "refused": refused, "probes": probes, "why": why}}:
            sandbox_text = f"sandbox level {level}, {refused} of {probes} probes refused"
            return sandbox_text if level == 2 else f"{sandbox_text}; {why}"
        case {"server": _, "state": "down", "error": error}:
            return f"down: {error}"
        case {"server": _, "state": state, "tools": list(tools), "off": dict(off)}:
            return ", ".join([state, f"{len(tools)} tools", *(f"{name} is off: {off[name]}" for name in off)])
    return ""


def _losses(sensor: Any) -> str:
    """Return the losses of a sensor in parentheses, "" for none."""
    missed = sum(sensor.get("missed", {}).get("counts", {}).values())
    latest = sensor.get("missed", {}).get("latest") or [{}]
    losses = [f"{number} {reason}" for reason, number in sensor.get("shed", {}).items() if number]
    if missed:
        losses.append(f"{missed} ticks missed, the latest due {latest[-1].get('due_at', '?')[:19]}Z")
    return f" ({', '.join(losses)})" if losses else ""


def _left(recovery: OpenWork) -> str:
    """Return what recovery has left to people, and what it still has to do; "" for nothing."""
    counts = {
        "in doubt": (recovery.in_doubt, " (spar calls list)"),
        "dead letters": (recovery.dead_letters, " (spar dead list)"),
        "waiting": (recovery.in_hand - recovery.to_be_retried, ""),
        "to be retried": (recovery.to_be_retried, ""),
    }
    return ", ".join(f"{name} {number}{hint}" for name, (number, hint) in counts.items() if number > 0)


def _phases(stats: Snapshot) -> str:
    """Return the mean duration and the failures of each phase, as one line."""
    failed = {phase: f" ({number} failed)" for phase, number in stats.errors_by_phase.items() if number}
    means = stats.phase_mean_seconds.items()
    return ", ".join(f"{phase} mean {took(seconds)}{failed.get(phase, '')}" for phase, seconds in means)


#: The functions that yield the rows of an agent, the most urgent first.
PARTS = (_alerts, _doing, _incidents, _left_to_people, models, _budgets, _sensing, _acting, _wrong, _counts)
#: Those that tell whether the agent is well.
HEALTH = (_alerts, _blocked, models, _sensing, _wrong, _counts)


#: Control sequence that clears a terminal and moves the cursor to its beginning.
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


@click.command()
@click.option(
    "--watch", "-w", "is_watched", is_flag=True, help="Repeat until Ctrl-C; on a terminal the screen is redrawn."
)
@click.option("--every", type=click.FloatRange(0.1, 3600), default=2.0, show_default=True,
              help="Seconds between two requests of --watch.")  # fmt: skip
@click.option("--next", "is_next", is_flag=True, help="Show instead what will happen by itself, and when.")
@click.pass_obj
def status(options: Options, is_watched: bool, every: float, is_next: bool) -> None:
    """Show what the running service is doing: state, pace, cycles, what waits for you, models, budgets, alerts.

    With --watch, it waits for a service that ended. In a pipe each status is a block of lines, with --json one line.
    With --next, it shows what will happen: looks, schedules, further tries, approvals that expire.

    \b
    Examples:
      spar status
      spar status --watch
      spar status --next
      spar --json status | jq '.agent.stats'
    """
    if is_watched and is_next:
        fail("--watch and --next: only one of them", exits.USAGE)
    if is_next:
        from spar.cli.nouns import command_of  # a status without --next does not need them
        from spar.operations.history import list_next

        command = command_of(list_next, "next", list_next.commands["next"])
        click.get_current_context().invoke(command, limit=None)
        return
    if is_watched:
        _watch(options, every)
        return
    with service(options) as client:
        answer = client.answer(operations.status)
    show(options, answer, *status_blocks(answer))


def _watch(options: Options, every: float) -> None:
    """Show the status until Ctrl-C, which gives the exit code 0."""
    client, is_drawn, reason = Client(options.state_dir()), sys.stdout.isatty() and not options.as_json, ""
    try:
        while True:
            try:
                answer = client.answer(operations.status)
                blocks, reason = status_blocks(answer), ""
                if is_drawn:
                    write(_CLEAR + rendered(*blocks))
                else:
                    show(options, answer, *blocks, "")
            except ServiceError as error:
                why, code = ending(client, error)
                if code == exits.NO_PERMISSION:  # waiting would not help
                    fail(why, code)
                why = "no service runs" if isinstance(error, NotRunningError) else why
                if is_drawn or not reason:
                    click.echo(f"{_CLEAR if is_drawn else ''}{why}; waiting for it", err=not is_drawn)
                reason = why
            time.sleep(every)
    except KeyboardInterrupt:
        raise SystemExit(exits.OK) from None
