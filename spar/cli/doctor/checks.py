"""The table of checks, and the examination of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from spar.cli.doctor import installation, machine
from spar.cli.doctor.diagnosis import Diagnosis, Subject
from spar.errors import ConfigError, SparError

Check = Callable[[Subject], Iterator[Diagnosis]]

#: Each check by its name. None blocks for long, asks a network, or writes more than a file that it takes away.
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


def examined(subject: Subject) -> Iterator[Diagnosis]:
    """Yield what each check finds; one that fails is a finding itself."""
    for name, check in CHECKS.items():
        try:
            yield from check(subject)
        except Exception as error:
            yield Diagnosis(name, "warn", f"could not be looked at: {error!r:.200}", "report this with the version")


def sandbox(status: Mapping[str, Any] | None, subject: Subject) -> Iterator[Diagnosis]:
    """Yield at which level programs run: as the running service says, else as it is tried out here."""
    if not any(each.use == "shell" for each in subject.loaded.settings.tools):
        return
    try:
        found = _told(status) if status is not None else asyncio.run(_tried(subject))
    except (SparError, OSError, ConfigError) as error:
        yield Diagnosis("sandbox", "warn", f"could not be tried: {error!s:.200}", "spar config check")
        return
    level = found.get("level") if found else None
    if level is None:
        yield Diagnosis("sandbox", "ok", "not tried yet")
    elif level < 2:
        words = "none" if level == 0 else f"level {level} of 2"
        yield Diagnosis(
            "sandbox",
            "warn",
            f"programs of tools run in {words} ({found['why']!s:.300})",
            "install bubblewrap 0.8 or newer and allow it user namespaces (apt install bubblewrap)",
        )
    else:
        yield Diagnosis("sandbox", "ok", f"level {level} of 2")


def _told(status: Mapping[str, Any]) -> dict[str, Any]:
    tools = status["agents"][0]["modules"].get("act", {}).get("parts", {})
    return next((each["sandbox"] for each in tools.values() if "sandbox" in each), {})


async def _tried(subject: Subject) -> dict[str, Any]:
    made = zip(subject.parts.settings.tools, subject.parts.tools(), strict=True)
    tool = next(tool for part, tool in made if part.use == "shell")
    async with tool:
        found: dict[str, Any] = tool.snapshot()["sandbox"]
    return found
