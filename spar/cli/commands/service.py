"""The service as a process: run it, look at it, pause, resume, stop, reload."""

from __future__ import annotations

from typing import Any

import click

from spar.cli.client import service
from spar.cli.context import Options, fail, refusals, show
from spar.cli.tables import ID, local, model_lines, took
from spar.data.text import one_line, printable
from spar.service import exit_codes as exits


@click.command()
@click.option("--resume", is_flag=True, help="Go on also if the agent was paused when its last process ended.")
@click.pass_obj
def run(options: Options, resume: bool) -> int:
    """Run the service in the foreground until it is stopped (Ctrl+C drains, twice cancels).

    An agent that was paused when its last process ended comes back paused, and the log says so.

    \b
    Examples:
      spar run
      spar -c /etc/spar/config.toml run
      spar --set agent.loop_interval=adaptive --set service.port=0 run
    """
    loaded = options.load()
    from spar.server.front import front_of
    from spar.service.process import CannotStartError
    from spar.service.process import run as run_service

    try:
        with refusals():
            return run_service(loaded, front_of, reload=options.load_again, resume=resume)
    except CannotStartError as error:
        fail(str(error), error.code)


@click.command()
@click.pass_obj
def status(options: Options) -> None:
    """Show what the running service is doing: state, pace, cycles, what waits for you, sensors, alerts.

    \b
    Examples:
      spar status
      spar --json status | jq '.agents[0].stats'
    """
    with service(options) as client:
        answer = client.get("/v1/status")
    show(options, answer, "\n".join(_lines(answer)))


def _verb(verb: str, text: str, example: str, timeout: float = 900.0) -> click.Command:
    @click.pass_obj
    def command(options: Options) -> None:
        with service(options, timeout=timeout) as client:
            answer = client.act(verb)
        show(options, answer, f"{answer['agent']}: {_effect(answer)}")

    return click.Command(verb, callback=command, help=f"{text}\n\n\b\nExample:\n  {example}")


def _effect(answer: dict[str, Any]) -> str:
    """Return the effect of a verb in a few words."""
    if "changed" not in answer:
        return f"{answer['before']} → {answer['after']}"
    text = f"reloaded, changed: {', '.join(answer['changed']) or 'nothing'}"
    return text + (f"; only after a restart: {', '.join(answer['needs_restart'])}" if answer["needs_restart"] else "")


pause = _verb("pause", "Let the cycle in hand finish and begin no other; returns when that has come.", "spar pause")
resume = _verb("resume", "Go on after a pause.", "spar resume")
reload = _verb(
    "reload",
    "Read the configuration again and apply what can be applied between two cycles.",
    "spar config check && spar reload",
)


@click.command()
@click.option(
    "--wait", "seconds", type=click.FloatRange(0), default=60.0, show_default=True, help="Seconds to wait for its end."
)
@click.pass_obj
def stop(options: Options, seconds: float) -> None:
    """Let the running service finish the cycle in hand and end; returns when it has gone.

    \b
    Examples:
      spar stop
      spar stop --wait 5
    """
    import time

    from spar.file_lock import STATE_LOCK, holder

    with service(options) as client:
        answer = client.act("stop")
    until, lock = time.monotonic() + seconds, options.state_dir() / STATE_LOCK
    while holder(lock) is not None:  # the kernel lets go of it, however the process ends
        if time.monotonic() >= until:
            fail(f"the service still drains after {seconds:g} s; it goes on draining", exits.TIMED_OUT)
        time.sleep(0.05)
    show(
        options,
        {"agent": answer["agent"], "before": answer["before"], "after": "stopped"},
        f"{answer['agent']}: stopped",
    )


def _lines(status: dict[str, Any]) -> list[str]:
    lines = [f"spar {status['version']}, process {status['pid']}, since {status['started_at'][:19]}Z, "
             f"configuration {status['config'] or 'the defaults'}"]  # fmt: skip
    for agent in status["agents"]:
        stats = agent["stats"]
        kept = agent["kept"]
        outcomes = ", ".join(f"{number} {name}" for name, number in stats["outcomes"].items() if number) or "none yet"
        lines += [
            f"agent {agent['name']}: {agent['state']}, interval {agent['loop_interval']}",
            f"  cycles   {stats['total_cycles']} ({outcomes}), {stats['error_rate']:.1%} failed, "
            f"mean {took(stats['cycle_mean_seconds'])}, p99 {took(stats['cycle_p99_seconds'])}",
            f"  phases   {_phases(stats)}",
        ]
        if calls := ", ".join(f"{number} {name}" for name, number in agent["calls"].items() if number):
            lines.append(f"  calls    {calls} since the start")
        lines.append(f"  memory   {_kept(kept)}")
        lines += [f"  budget   {_budget(each)}" for each in agent["budgets"] if each["used"] or each["refused"]]
        lines += [f"  {line.replace('model ', 'model    ', 1)}" for line in model_lines(agent)]
        lines += [f"  warning  {_line(each)}" for each in agent["warnings"]]
        if (asked := agent["approvals"])["pending"]:
            lines.append(f"  waiting  {_waiting(asked)}")
        if left := _left(agent["recovery"]):
            lines.append(f"  recovery {left}")
        for session in agent["lanes"]:
            lines.append(f"  session  {_line(session['session'])}: {_doing(session)}, {session['waiting']} waiting")
        for name, sensor in agent["modules"]["sense"].get("sensors", {}).items():
            error = sensor.get("last_error") if sensor.get("state") != "ok" else None  # what is over is in the log
            extra = f": {_line(error)}" if error else ""
            lines.append(f"  sensor   {name}: {sensor.get('state', '?')}{_losses(sensor)}{extra}")
        lines += [f"  channel  {name}: {_of_channel(channel)}" for name, channel in agent["channels"].items()]
        for name, part in agent["modules"]["act"].get("parts", {}).items():
            if said := _of_tool(part):
                lines.append(f"  tool     {name}: {said}")
        for phase, module in agent["modules"].items():
            if error := module.get("error"):
                lines.append(f"  {phase:8} {module['use']}: {_line(error)}")
        lines += [f"  alert    {_alert(alert)}" for alert in agent["alerts"]]
        if agent["health"]["degraded"]:
            lines.append("  degraded the planner makes do with less")
        lines += [
            f"  step     {step['at'][:19]}Z {step['step']} {_line(step['part'])}: {_line(step['reason'])}"
            for step in agent["health"]["steps"][-5:]
        ]
        if agent["blocked_by"]:
            lines += [
                "  blocked  the event loop, by:",
                *(f"    {printable(line)}" for line in agent["blocked_by"].splitlines()),
            ]
    lines += [f"  {name:8} {address}" for name, address in status["addresses"].items()]
    return lines


def _doing(session: dict[str, Any]) -> str:
    """Return what a session does, and for how long."""
    if session["cycle"]:
        return f"{session['phase']} for {session['phase_seconds'] or 0.0:.0f} s, cycle {session['cycle'][:ID]}"
    return "waits for a model" if session["waits_for_model"] else "resting"


def _alert(alert: dict[str, Any]) -> str:
    """An alert in one line: what, whose, since when, why."""
    whose = f" in session {_line(alert['session'])}" if alert["session"] not in ("", "main") else ""
    since = local(alert["since"])
    return f"{alert['kind']} ({alert['severity']}){whose} since {since}: {_line(alert['message'].splitlines()[0])}"


def _kept(counts: dict[str, int]) -> str:
    """Return how many experiences and cycles were written, and how many were not."""
    text = f"{counts['stored']} cycles and experiences written"
    if counts["waiting"]:
        text += f", {counts['waiting']} still to be written"
    return text + (f", {counts['lost']} lost because the memory could not take them" if counts["lost"] else "")


def _budget(budget: dict[str, Any]) -> str:
    """Return how much of a budget is used; money is in millionths."""
    scale = 1_000_000 if budget["budget"].endswith("money") else 1
    used, limit = (f"{budget[name] / scale:g}" for name in ("used", "limit"))
    refused = f", {budget['refused']} refused" if budget["refused"] else ""
    return f"{budget['budget']}: {used} of {limit} used ({budget['ratio']:.0%}){refused}"


def _of_channel(channel: dict[str, Any]) -> str:
    """Return how a channel is doing: what of it fails and why, and what it has not delivered."""
    parts = [f"{part} {channel[part]['state']}: {_line(channel[part]['last_error'])}"
             for part in ("receiving", "sending") if channel[part]["state"] != "ok"]  # fmt: skip
    parts += [f"{channel[key]} {key}" for key in ("waiting", "undelivered") if channel[key]]
    return "; ".join(parts or ["ok"])


def _of_tool(part: Any) -> str:
    """Return what a person should know of a tool: its sandbox, or how its server is. "" for any other."""
    match part:
        case {"sandbox": {"asked": 0}}:
            return "sandbox level 0, as configured"
        case {"sandbox": {"asked": int(asked), "level": int(level), "why": why}} if level < asked:
            return f"off: sandbox level {asked} is asked for, this machine offers level {level}; {_line(why)}"
        case {"sandbox": {"level": int(level), "refused": refused, "probes": probes, "why": why}}:
            sandbox_text = f"sandbox level {level}, {refused} of {probes} probes refused"
            return sandbox_text if level == 2 else f"{sandbox_text}; {_line(why)}"
        case {"server": _, "state": "down", "error": error}:
            return f"down: {_line(error)}"
        case {"server": _, "state": state, "tools": list(tools), "off": dict(off)}:
            return ", ".join([state, f"{len(tools)} tools", *(f"{name} is off: {_line(off[name])}" for name in off)])
    return ""


def _losses(sensor: Any) -> str:
    """Return what a sensor has lost, in a few words; "" if all did."""
    missed = sum(sensor.get("missed", {}).get("counts", {}).values())
    latest = sensor.get("missed", {}).get("latest") or [{}]
    losses = [f"{number} {reason}" for reason, number in sensor.get("shed", {}).items() if number]
    if missed:
        losses.append(f"{missed} ticks missed, the latest due {latest[-1].get('due_at', '?')[:19]}Z")
    return f" ({', '.join(losses)})" if losses else ""


def _line(text: Any) -> str:
    return one_line(printable(str(text)))


def _waiting(asked: dict[str, Any]) -> str:
    from spar.review.render import span

    number, word = asked["pending"], "call waits" if asked["pending"] == 1 else "calls wait"
    return f"{number} {word} for approval, the oldest for {span(asked['oldest_age_seconds'])}; spar approvals list"


def _left(recovery: dict[str, Any]) -> str:
    """Return what recovery has left to people, and what it has yet to do; "" for nothing."""
    counts = {
        "in doubt": (recovery["in_doubt"], " (spar calls list)"),
        "dead letters": (recovery["dead_letters"], " (spar dead list)"),
        "waiting": (recovery["in_hand"] - recovery["to_be_retried"], ""),
        "to be retried": (recovery["to_be_retried"], ""),
    }
    return ", ".join(f"{name} {number}{hint}" for name, (number, hint) in counts.items() if number > 0)


def _phases(stats: dict[str, Any]) -> str:
    """Return the mean duration of each phase and how often it failed, in one line."""
    failed = {phase: f" ({number} failed)" for phase, number in stats["errors_by_phase"].items() if number}
    means = stats["phase_mean_seconds"].items()
    return ", ".join(f"{phase} mean {took(seconds)}{failed.get(phase, '')}" for phase, seconds in means)
