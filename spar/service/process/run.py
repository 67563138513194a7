"""The life of the service's process: lock the folders, build the agent, run it, return the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from spar.agent.agent import build_agent
from spar.config.tables.settings import Loaded
from spar.failpoints import arm
from spar.fs.lock import STATE_LOCK, FileLock, LockHeldError
from spar.observe.logs import get_logger
from spar.observe.sink import configure
from spar.parts.factory import home_of
from spar.service import exit_codes as exits
from spar.service.event_log import log_events
from spar.service.health_metrics import warnings_of
from spar.service.process.process import Process, Serve
from spar.service.process.refusal import CannotStartError, cannot
from spar.threads import take_short_turns

log = get_logger("spar.runner")


def run(
    loaded: Loaded,
    serve: Serve,
    *,
    reload: Callable[[], Loaded] | None = None,
    resume: bool = False,
    shadow: Loaded | None = None,
    on_started: Callable[[Mapping[str, str]], None] = lambda addresses: None,
) -> int:
    """Run the service until it is stopped, and return the exit code.

    Args:
        serve: Returns the HTTP servers.
        reload: Returns the configuration as its files have it now; default: loads the same file again.
        resume: Run also if the former process ended while it was paused.
        shadow: A second configuration, which decides beside this one without effects.
        on_started: Called with the addresses of the servers once the service runs.
    Raises: CannotStartError, ConfigError with one sentence, before the agent runs.
    """
    arm(os.environ)
    keep_to_oneself()
    take_short_turns()
    lock = take_state_dir(loaded)
    try:
        agent = build_agent(loaded)
        log_events(agent.core, agent.reports, agent.setup.modules["sense"].name)
        settings = loaded.settings.log
        logs = configure(settings.level, settings.format, file=_log_file(loaded))
        if agent.core.traces is not None:
            logs.names = agent.core.traces.names
        for warning in warnings_of(agent):
            log.warning("something configured cannot be used", agent=agent.core.name, reason=warning)
        process: Process | None = None
        try:
            process = Process(loaded, agent, logs, reload, serve, is_to_resume=resume)
            process.on_started = on_started
            if shadow is not None:
                _attach_shadow(process, shadow, loaded)
            return _run_in_loop(process)
        finally:
            if process is not None and process.service.shadow is not None:
                process.service.shadow.close()
            logs.close()
    finally:
        lock.release()


def _attach_shadow(process: Process, shadow: Loaded, loaded: Loaded) -> None:
    """Let a second configuration decide beside the service. Raises: ConfigError for one that cannot be used."""
    from spar.replay.shadow import Shadow

    agent = process.agent
    process.service.shadow = Shadow(shadow, loaded, agent.core.name)
    process.service.shadow.attach(agent.core.events.subscribe)


def keep_to_oneself() -> None:
    """Keep other processes of this user from reading our memory and environment, which hold secrets, and disable core
    dumps.

    See PR_SET_DUMPABLE in prctl(2). Programs that tools start get the default back on exec.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


def take_state_dir(loaded: Loaded) -> FileLock:
    """Create the folders of the service and lock the state folder. Raises: CannotStartError."""
    home = home_of(loaded)
    for key, folder in (("state_dir", Path(home.state)), ("workspace", Path(home.workspace))):
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700 if key == "state_dir" else 0o777)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "Permission denied")
        except OSError as error:
            refusal = f"service.{key} = {str(folder)!r}: cannot be written: {error.strerror}"
            sentence = f"{refusal}; choose another folder or change its owner"
            raise cannot(sentence, ("service", key), loaded, exits.CANNOT_CREATE) from None
    lock = FileLock(Path(home.state, STATE_LOCK))
    try:
        lock.acquire()
    except LockHeldError as error:
        who = f"process {error.pid}" if error.pid else "another process"
        sentence = f"{home.state}: {who} already runs on this data; use `spar status` and `spar stop`"
        raise CannotStartError(f"{sentence}, or give this one a state_dir of its own", exits.CANNOT_CREATE) from None
    except OSError as error:
        raise CannotStartError(f"{home.state}: cannot be locked: {error.strerror}", exits.CANNOT_CREATE) from None
    return lock


def _run_in_loop(process: Process) -> int:
    """Run the process to its end in a new event loop and return the exit code.

    Tasks and threads that ignore their cancellation do not keep the process alive: it exits with `os._exit` then.
    """
    faulthandler.enable(2)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        code = loop.run_until_complete(process.main())
    finally:
        survivors = _cancel_tasks(loop)
    if survivors or process.agent.left_behind:
        log.error("work ignored its cancellation and ends with the process", tasks=survivors)
        process.logs.close()
        sys.stderr.flush()
        os._exit(code)
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
    return code


def _cancel_tasks(loop: asyncio.AbstractEventLoop, within: float = 1.0) -> int:
    """Cancel all tasks and wait for them, `within` seconds; return how many still run."""
    tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
    for task in tasks:
        task.cancel()
    until = time.monotonic() + within
    while any(not task.done() for task in tasks) and time.monotonic() < until:
        loop.run_until_complete(asyncio.sleep(0.01))
    return sum(not task.done() for task in tasks)


def _log_file(loaded: Loaded) -> Path | None:
    name = loaded.settings.log.file
    return None if name is None else loaded.folder / name
