"""The service in the foreground, from the first log line to the exit code: its life, and its reactions to signals.

SIGTERM and SIGINT drain the agent; a second one cancels its work. SIGHUP reads the configuration again. SIGUSR1 writes
the state and the stacks to the log, also while the event loop is blocked. Standard output stays empty; logs go to
standard error. systemd gets datagrams at `$NOTIFY_SOCKET`, and nothing without that variable; see sd_notify(3).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from spar.agent.agent import build_agent
from spar.agent.parts import AgentParts
from spar.config.lines import explain
from spar.config.tables.section import settings_of
from spar.config.tables.settings import Loaded, Settings
from spar.errors import ConfigError, KeyPath, SparError
from spar.failpoints import arm
from spar.fs.lock import STATE_LOCK, FileLock, LockHeldError
from spar.health import relief
from spar.health.judge import ResourceBounds
from spar.health.reported import ApprovalAlerts, alert_quarantines
from spar.health.watchdog import LOOK_EVERY, WATCHDOG, stack_of
from spar.observe.logs import get_logger
from spar.observe.sink import Logs, configure
from spar.observe.stacks import stack_of_task
from spar.parts.factory import home_of
from spar.records.audit import AuditDraft, auditing
from spar.service import exit_codes as exits
from spar.service import garbage
from spar.service.agent_metrics import warnings_of
from spar.service.app import Service, describe_session
from spar.service.event_log import log_events
from spar.threads import Tasks, take_short_turns

log = get_logger("spar.runner")
#: File in the state folder with the reason why the service last gave up; its modification time is the time of that.
GAVE_UP = "gave_up"
#: Alerts during which the loop makes progress, so that a restart by systemd's watchdog would not help.
HARMLESS = {
    "failing", "slow", "runs", "memory", "disk", "budget", "provider", "prompt", "cache", "sensor", "channel",
    "approval",
}  # fmt: skip


class CannotStartError(Exception):
    """Error of a service that cannot start; `code` is the exit code of the process."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def cannot(sentence: str, path: KeyPath, loaded: Loaded, code: int) -> CannotStartError:
    """Return the error for the setting at `path`, with file and line."""
    return CannotStartError(str(explain(ConfigError(sentence, path=path), loaded.sources)), code)


class SystemdNotifier:
    """Sender of states to the service manager, if there is one. It never raises: the service works without it."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        usec = environ.get("WATCHDOG_USEC", "")
        is_ours = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        #: Seconds between two beats (half of systemd's limit), None if systemd expects none.
        self.beat_every = int(usec) / 2e6 if usec.isdigit() and int(usec) and is_ours else None

    def send(self, *lines: str) -> None:
        """Send one datagram with these lines, such as `READY=1`."""
        if not self._address:
            return
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, kind) as channel:
            channel.sendto("\n".join(lines).encode(), self._address)


#: Context in which a service is served, from its begin; it yields the URL of the probes, "" without them.
Serve = Callable[[Service], contextlib.AbstractContextManager[str]]


class Process:
    """The running service, and its reactions to signals."""

    def __init__(self, loaded: Loaded, agent: AgentParts, logs: Logs, reload: Callable[[], Loaded] | None,
                 serve: Serve, *, is_to_resume: bool = False) -> None:  # fmt: skip
        self.agent, self.logs, self._is_to_resume = agent, logs, is_to_resume
        self.service = Service(loaded, agent, log_dropped=lambda: logs.dropped, reload=reload)
        agent.ends_pause = False
        self._gave_up = Path(home_of(loaded).state, GAVE_UP)
        with contextlib.suppress(OSError):  # no file: it never gave up
            agent.gave_up_at = self._gave_up.stat().st_mtime
        self.on_started: Callable[[Mapping[str, str]], None] = lambda addresses: None
        self.approval_alerts = ApprovalAlerts(agent.core, agent.health, self.service.waiting.pending)
        alert_quarantines(agent.core, agent.health)
        self.service.request_stop = self._on_stop_command
        self.service.on_reloaded = lambda settings: logs.set_level(settings.log.level)
        self._served = serve(self.service)
        self.systemd = SystemdNotifier()
        bounds = loaded.settings.service
        limits = ResourceBounds(bounds.memory_soft, bounds.memory_hard, bounds.min_free_disk)
        resources = relief.Resources(limits, home_of(loaded).state, agent.memory)
        self.relief = relief.Relief(agent.core, agent.health, agent.requests, resources,
                                    parts=lambda: (*agent.caches(), logs), give_up=self._renew)  # fmt: skip
        self._is_to_return = self._is_to_stay_away = self._is_dump_asked = self._is_dump_urgent = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._terms = 0
        self._start: asyncio.Task[None] | None = None
        self._tasks = Tasks()

    async def main(self) -> int:
        """Start the agent and run it until it ends; return the exit code.

        Raises: CannotStartError, ConfigError.
        """
        agent, loaded, loop = self.agent, self.service.loaded, asyncio.get_running_loop()
        collections = garbage.Collections(lambda: garbage.work_of(agent))
        self._loop = loop
        for number, answer in self.signals().items():
            loop.add_signal_handler(number, answer)
        # Handled outside the event loop, which may be the blocked one.
        signal.signal(signal.SIGUSR1, self._ask_for_dump)
        attend = WATCHDOG.attend
        chores = attend(self.relief.look, relief.LOOK_EVERY), attend(self._dump_while_blocked, LOOK_EVERY)
        servers = contextlib.ExitStack()
        try:
            self.relief.look()
            if address := servers.enter_context(self._served):
                self.service.addresses["http"] = address
            if not await self._start_agent():
                return exits.OK
            collections.begin()
            await self.service.begin()
            if agent.core.state == "failed":  # while the records began
                raise SparError(f"agent {agent.name!r} gave up: {agent.failure}")
            if self._terms:  # asked to stop while the records began
                await agent.stop(None)
                return self._code()
            log.info("service started", agent=agent.name, pid=os.getpid(), config=str(loaded.path or "the defaults"),
                     http=self.service.addresses.get("http"), next="spar status")  # fmt: skip
            self.on_started(self.service.addresses)
            self.systemd.send("READY=1", f"STATUS={agent.core.name} runs")
            self._tasks.start(self._beat())
            self._tasks.start(_collect(collections))
            await agent.until_stopped()
        except ConfigError as error:
            code = exits.UNAVAILABLE if error.path == ("service", "port") else exits.CONFIG
            raise cannot(str(error), error.path, self.service.loaded, code) from error
        except SparError as error:
            log.error("service failed", agent=agent.core.name, reason=str(error))
            with contextlib.suppress(OSError):  # the reason is in the log as well
                self._gave_up.write_text(f"{error}\n")
            await agent.stop(deadline=self.service.loaded.settings.service.drain)
            return exits.GAVE_UP
        finally:
            collections.end()
            servers.close()  # the signal handlers stay until the loop is closed
            for end in chores:
                end()
        return self._code()

    def _code(self) -> int:
        """Return the exit code of a service that was stopped.

        After the command `stop` it is 0 also if work waits for the next start: with another code the supervisor of the
        process would start it again at once.
        """
        is_unfinished = not self._is_to_stay_away and (self.agent.runs.open or self.agent.left_behind)
        return exits.UNFINISHED if self._is_to_return or is_unfinished else exits.OK

    def signals(self) -> dict[signal.Signals, Callable[[], object]]:
        """Return the signals that the event loop handles, with their handlers."""
        return {
            signal.SIGTERM: self._on_end_signal,
            signal.SIGINT: self._on_end_signal,
            signal.SIGHUP: lambda: self._tasks.start(self._reload()),
        }

    def drain(self) -> None:
        """Stop when the running work is done, within `service.drain` seconds; the second call cancels it at once."""
        self._terms += 1
        deadline = self.service.loaded.settings.service.drain if self._terms == 1 else 0.0
        log.info("service stops", agent=self.agent.core.name, within_seconds=deadline)
        self.systemd.send("STOPPING=1")
        if self._start is None or not self._start.cancel():
            self._tasks.start(self.agent.stop(deadline=deadline))

    def _on_stop_command(self) -> None:
        self._is_to_stay_away = True
        self.drain()

    def _on_end_signal(self) -> None:
        """Handle a signal that asks for the end: write it to the audit log if it is the first one, and drain."""
        if not self._terms and self.agent.core.state in ("running", "pausing", "paused"):
            self._tasks.start(self._audit_end())
        self.drain()

    async def _start_agent(self) -> bool:
        """Start the agent; return False if the stop was requested meanwhile. Raises: CannotStartError, ConfigError."""
        self._start = asyncio.create_task(self.agent.start(resume=self._is_to_resume), name="start")
        try:
            await self._start
        except asyncio.CancelledError:
            if not self._terms:
                raise
        except ConfigError as error:
            if error.path and error.path[0] not in settings_of(Settings):
                # The path is that of an option of the store, whose table is [memory].
                raise ConfigError(str(error), path=("memory", *error.path)) from error
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, SparError) else repr(error)
            sentence = f"agent {self.agent.core.name!r} cannot start: {reason}"
            raise CannotStartError(sentence, exits.UNAVAILABLE) from error
        finally:
            self._start = None
        if self._terms and self.agent.core.state != "created":
            await self.agent.stop(deadline=0.0)
        return not self._terms

    def _signal_draft(self, action: str) -> AuditDraft:
        """Return the audit log's entry for a signal; its sender is unknown."""
        return AuditDraft("signal", "signal", action, self.agent.name, agent=self.agent.name, rows=())

    async def _audit_end(self) -> None:
        """Write to the audit log that a signal asked for the end, before the memory closes."""
        with contextlib.suppress(SparError):
            await self.service.audit(self._signal_draft("agent.stop"))

    def _renew(self) -> None:
        """Drain, and exit with the code that lets the supervisor of the process start it again."""
        self._is_to_return = True
        self.drain()

    def _ask_for_dump(self, *_: object) -> None:
        """Note SIGUSR1. The handler may interrupt the main thread while it holds locks, so it does no more."""
        self._is_dump_asked = self._is_dump_urgent = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._dump_if_asked)

    def _dump_if_asked(self) -> None:
        if self._is_dump_asked:
            self._is_dump_asked = self._is_dump_urgent = False
            self.dump(asyncio.all_tasks())

    def _dump_while_blocked(self) -> None:
        """Write the dump in the watchdog's thread while the event loop is blocked; the loop adds its tasks later."""
        if self._is_dump_urgent and self.agent.watched.blocked_since is not None:
            self._is_dump_urgent = False
            self.dump()

    def dump(self, tasks: Iterable[asyncio.Task[Any]] = ()) -> None:
        """Write the state and the stacks of these tasks and of every thread to the log, a line for each stack.

        Safe from any thread.
        """
        agent = self.agent
        lanes = {key: describe_session(session) for key, session in list(agent.sessions.by_key.items())}
        log.warning("state dump", agent=agent.name, state=agent.core.state, lanes=lanes,
                    alerts=list(agent.health.alerts), blocked_seconds=round(agent.watched.blocked_for(), 1),
                    health=agent.health.snapshot())  # fmt: skip
        for task in tasks:
            log.warning("task stack", agent=agent.core.name, part=task.get_name(), stack=stack_of_task(task))
        for thread in threading.enumerate():
            log.warning("thread stack", agent=agent.core.name, part=thread.name, stack=stack_of(thread.ident or 0))

    async def _reload(self) -> None:
        draft = self._signal_draft("agent.reload")
        with contextlib.suppress(SparError):  # logged already; the old configuration stays in force
            with auditing(draft):
                await self.service.reload()
            await self.service.audit(draft)

    async def _beat(self) -> None:
        """Send the beats for systemd's watchdog, only while the agent makes progress or waits as intended."""
        every = self.systemd.beat_every
        while every is not None:
            is_ready, report = self.service.ready()
            if is_ready or set(report["alerts"]) <= HARMLESS:
                cycles = self.agent.account.snapshot().total_cycles
                self.systemd.send("WATCHDOG=1", f"STATUS={self.agent.core.state}, {cycles} cycles")
            await asyncio.sleep(every)


async def _collect(collections: garbage.Collections) -> None:
    while True:
        await asyncio.sleep(garbage.EVERY)
        collections.look()


# -- the life of the process: lock the folders, build the agent, run it, return the exit code


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
        serve: Serves the service over HTTP.
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
        file = None if settings.file is None else loaded.folder / settings.file
        logs = configure(settings.level, settings.format, file=file)
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
