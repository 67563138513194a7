"""Command `doctor`, the table of its checks, and those of the running service and its sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import click
from msgspec import to_builtins

from spar.cli.blocks import UNCUT, styled, table
from spar.cli.commands.memory import care_of, ending_on_errors, note_offline
from spar.cli.commands.status import read_status
from spar.cli.context import Options, show
from spar.cli.doctor import installation, machine
from spar.cli.doctor.machine import Subject, examined
from spar.client.client import Client, ServiceError
from spar.errors import ConfigError, SparError
from spar.fs.lock import STATE_LOCK, holder
from spar.operations import agent as operations
from spar.operations.agent import AgentStatus
from spar.parts.factory import Parts
from spar.ports.store import CareLine
from spar.service import exit_codes as exits

Check = Callable[[Subject], Iterator[CareLine]]

#: Each check by its name. No check blocks for long, uses a network, or writes more than a temporary file.
CHECKS: Final[Mapping[str, Check]] = {
    "configuration": installation.configuration,
    "folders": installation.folders,
    "secrets": installation.secrets,
    "port": installation.port,
    "unit": installation.unit,
    "file system": machine.file_system,
    "clock": machine.clock,
    "watches": machine.watches,
    "open files": machine.open_files,
    "memory": machine.memory,
}


#: The word and the style of each state of a finding.
_MARKS = {"ok": ("ok", "good"), "warn": ("warn", "warn"), "bad": ("BAD", "bad")}


@click.command("doctor")
@click.option(
    "--acknowledge", is_flag=True, help="Confirm that you have seen the reported losses; they are reported no more."
)
@click.pass_obj
def doctor(options: Options, acknowledge: bool) -> None:
    """Check the whole installation, and say what to do about problems; ends with code 1 if something is bad.

    A loss or damage of the memory stays bad until it is acknowledged.

    \b
    Example:
      spar doctor
      sudo -u spar spar -c /etc/spar/config.toml doctor
      spar doctor --acknowledge
    """
    findings: list[CareLine] = []
    try:
        parts = Parts(options.read())
    except ConfigError as error:
        findings.append(CareLine("configuration", "bad", str(error), "spar config check"))
    else:
        findings += around(options, parts)
        try:
            care = care_of(parts)
            if acknowledge:
                with ending_on_errors("acknowledge"):
                    number = care.acknowledge()
                findings.append(CareLine("acknowledged", "ok", f"{number} losses"))
                if number:
                    note_offline(options, "memory.acknowledge", care.path, {"losses": number})
            findings += care.examine()
        except (click.ClickException, ConfigError) as error:
            findings.append(CareLine("memory", "bad", str(error), "spar config check"))
    rows = [(styled(*_MARKS[finding.state]), finding.name, finding.found, finding.advice) for finding in findings]
    show(options, to_builtins(findings), table(("", "about", "found", "what to do"), rows, UNCUT))
    if any(finding.state == "bad" for finding in findings):
        raise SystemExit(exits.FAILED)


def around(options: Options, parts: Parts) -> Iterator[CareLine]:
    """Yield the diagnoses of everything but the memory: the running service, the installation, the machine."""
    process = None
    try:
        process = holder(options.state_dir() / STATE_LOCK)
        yield CareLine("service", "ok", "does not run" if process is None else "runs")
    except OSError as error:
        yield CareLine("service", "warn", f"nobody can tell whether it runs: {error.strerror}", "ask as its user")
    status = None
    if process is not None:
        try:
            status, _ = read_status(Client(options.state_dir(), timeout=10.0).answer(operations.status))
        except ServiceError as error:
            yield CareLine("control socket", "warn", f"the service does not answer: {error}",
                            "look at its log; spar doctor as its user")  # fmt: skip
    subject = Subject(parts, process=process)
    yield from diagnoses(subject)
    yield from installation.versions(subject, status.version if status else None)
    yield from places(status.agent if status else None)
    yield from sandbox(status.agent if status else None, subject)


def diagnoses(subject: Subject) -> Iterator[CareLine]:
    """Yield the diagnoses of all checks; a check that raises gives a diagnosis about that."""
    for name, check in CHECKS.items():
        try:
            yield from check(subject)
        except Exception as error:
            yield CareLine(name, "warn", f"could not be looked at: {error!r:.200}", "report this with the version")


def sandbox(agent: AgentStatus | None, subject: Subject) -> Iterator[CareLine]:
    """Yield the level of the sandbox for programs: from the status of the running service, else from a trial here."""
    if not any(part.use == "shell" for part in subject.loaded.settings.tools):
        return
    try:
        report = _reported_sandbox(agent) if agent is not None else asyncio.run(_try_sandbox(subject))
    except (SparError, OSError, ConfigError) as error:
        yield CareLine("sandbox", "warn", f"could not be tried: {error!s:.200}", "spar config check")
        return
    level = report.get("level") if report else None
    words = "none" if level == 0 else f"level {level} of 2"
    yield examined(
        "sandbox", "not tried yet" if level is None else words,
        (level in (0, 1), "warn", f"programs of tools run in {words} ({report.get('why')!s:.300})",
         "install bubblewrap 0.8 or newer and allow it user namespaces (apt install bubblewrap)"),
    )  # fmt: skip


def places(agent: AgentStatus | None) -> Iterator[CareLine]:
    """Yield the sensors whose place has no node that is alive, as the running service sees it."""
    sensors = agent.modules.get("sense", {}).get("sensors", {}) if agent is not None else {}
    for name, sensor in sensors.items():
        if sensor.get("state") == "nowhere":
            yield CareLine(f"sensor {name}", "warn", str(sensor["last_error"]), "set that on a node, and start it")


def _reported_sandbox(agent: AgentStatus) -> dict[str, Any]:
    """Return the sandbox of the first tool in a status that has one."""
    tools = agent.modules.get("act", {}).get("parts", {})
    return next((tool["sandbox"] for tool in tools.values() if "sandbox" in tool), {})


async def _try_sandbox(subject: Subject) -> dict[str, Any]:
    """Open the shell tool of the configuration and return its sandbox."""
    tools = zip(subject.parts.settings.tools, subject.parts.tools(), strict=True)
    tool = next(tool for part, tool in tools if part.use == "shell")
    async with tool:
        sandbox: dict[str, Any] = tool.snapshot()["sandbox"]
    return sandbox
