"""The service as a process of its own: started, watched, signalled, and never left behind."""

from __future__ import annotations

import http.client
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import SocketConnection
from tests.process.template import Forked, clean_environ, run_here, runs_here

CONFIG = Path(__file__).parents[2] / "config.toml"
#: Seconds that anything may take on a loaded machine before a test says that it never came.
PATIENCE = 300.0
#: Commands that have a process of their own: what they have open, connections to models too, ends with it.
APART = {"run", "top", "chat", "shell", "eval", "replay"}


def until(condition: Callable[[], Any], what: str | Callable[[], str], within: float = PATIENCE) -> Any:
    """Poll until the condition holds and return its value; an exception counts as false. `what` may be said at the end.

    A dear condition, such as a command, is asked less often, and any that has not held for long: each question takes
    the processor from what it waits for.
    """
    start, last = time.monotonic(), None
    while (began := time.monotonic()) < start + within:
        try:
            if value := condition():
                return value
        except (OSError, ValueError, LookupError, AssertionError, httpx.HTTPError) as error:
            last = error
        now = time.monotonic()
        time.sleep(max(0.02, 2 * (now - began), min(0.25, (now - start) / 10)))
    raise AssertionError(f"within {within:g} s not seen: {what if isinstance(what, str) else what()} ({last!r})")


class Answer:
    """What one command said and how it ended."""

    def __init__(self, code: int, out: bytes, err: bytes) -> None:
        self.code = code
        self.out = out.decode("utf-8", "replace")
        self.err = err.decode("utf-8", "replace")

    @property
    def json(self) -> Any:
        """Standard output as exactly one JSON value."""
        try:
            return json.loads(self.out)
        except ValueError:
            raise AssertionError(f"no JSON value: {self!r}") from None

    def __repr__(self) -> str:
        return f"exit {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


class Spar:
    """`spar` in a folder of its own, with a copy of config.toml."""

    #: How its processes start; `from_scratch` changes it.
    popen: type[subprocess.Popen[bytes]] = Forked

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "config.toml"
        # The machine that tests run on may be busy; that is not what is noticed here.
        calm = re.sub(r"(memory|disk)_high = [0-9.]+", r"\1_high = 1.0", CONFIG.read_text())
        self.config.write_text(re.sub(r"load_high = [0-9.]+", "load_high = 1000.0", calm))
        self._path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.environ = {**clean_environ(), "SPAR_SERVICE__PORT": "0", "PYTHONPATH": self._path, "NO_COLOR": "1"}
        self.state, self.inbox, self.workspace = folder / "state", folder / "inbox", folder / "workspace"

    def __call__(self, *arguments: str | bytes, stdin: bytes = b"", timeout: float = PATIENCE, **given: Any) -> Answer:
        """Run one command to its end: here, where that is the same."""
        environ = {**self.environ, **given.pop("environ", {})}
        words = [os.fsdecode(word) for word in arguments]
        is_usual = not given and APART.isdisjoint(words) and environ["PYTHONPATH"] == self._path
        if self.popen is Forked and is_usual and runs_here(environ):
            return Answer(*run_here(words, str(self.folder), environ, stdin))
        command = [sys.executable, "-m", "spar", *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **given}
        with self.popen(command, cwd=self.folder, env=environ, **pipes) as process:
            try:
                out, err = process.communicate(stdin, timeout)
            except BaseException:
                process.kill()
                raise
        return Answer(process.returncode, out, err)

    def here(self, *words: str, typed: bytes | None = None) -> Answer:
        """Run a command in this process of which nothing stays open, though others of its name leave something.

        Args:
            typed: What somebody types at the terminal that standard input is then.
        """
        folder, is_typed = str(self.folder), typed is not None
        return Answer(*run_here([*words], folder, self.environ, typed or b"", is_typed=is_typed))

    until = staticmethod(until)

    def edit(self, old: str, new: str) -> None:
        text = self.config.read_text()
        assert text.count(old) == 1, old
        self.config.write_text(text.replace(old, new))

    def write(self, text: str) -> None:
        self.config.write_text(text)

    def drop(self, name: str, text: str) -> None:
        """Put a file into the inbox at once, as a careful program does."""
        self.inbox.mkdir(exist_ok=True)
        whole = self.folder / f"{name}.new"
        whole.write_text(text)
        whole.rename(self.inbox / name)


def in_one_process(commands: Sequence[tuple[Spar, Sequence[str], bytes]]) -> list[Answer]:
    """Run commands that fail, each in its folder with its input, one after another in one process of their own."""
    orders = [(list(words), str(spar.folder), spar.environ, stdin) for spar, words, stdin in commands]
    code = "from tests.process.template import run_all; run_all()"
    pipes: dict[str, int] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with Forked([sys.executable, "-c", code], cwd=CONFIG.parent, env=commands[0][0].environ, **pipes) as process:
        out, _ = process.communicate(pickle.dumps(orders), PATIENCE)
    assert process.returncode == 0
    return [Answer(*answer) for answer in pickle.loads(out)]


class Service:
    """`spar run` as a real process; standard error is collected all the time."""

    def __init__(self, spar: Spar, options: Sequence[str] = (), **given: Any) -> None:
        self.spar = spar
        command = [sys.executable, "-m", "spar", *options, "run", *given.pop("of_run", ())]
        environ = {**spar.environ, **given.pop("environ", {})}
        given.setdefault("stderr", subprocess.PIPE)
        self.process = spar.popen(
            command, cwd=spar.folder, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, **given
        )
        self.lines: list[str] = []
        self._reader: threading.Thread | None = None
        if self.process.stderr is not None:
            self._reader = threading.Thread(target=self._collect, args=(self.process.stderr,), daemon=True)
            self._reader.start()

    def _collect(self, stream: Any) -> None:
        for line in stream:
            self.lines.append(line.decode("utf-8", "replace").rstrip("\n"))

    # -- what it says

    @property
    def err(self) -> str:
        return "\n".join(self.lines)

    @property
    def log(self) -> list[dict[str, Any]]:
        """The JSON lines so far."""
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def said(self, message: str, **fields: Any) -> dict[str, Any]:
        """Wait for a log line with this message and these fields."""

        def find() -> dict[str, Any] | None:
            fitting = (line for line in self.log if line["msg"] == message)
            return next(
                (line for line in fitting if all(line.get(key) == value for key, value in fields.items())), None
            )

        found: dict[str, Any] = until(find, f"log line {message!r} {fields} in:\n{self.err}")
        return found

    def api(self, path: str, method: str = "GET", **given: Any) -> httpx.Response:
        """Ask the control socket."""
        # httpx leaks a socket that nobody answers.
        with SocketConnection(self.spar.state / "control.sock", PATIENCE) as channel:
            body = json.dumps(given["json"]) if "json" in given else None
            channel.request(method, path, body)
            response = channel.getresponse()
            try:
                content = response.read()
            except http.client.IncompleteRead as error:  # the service ended between the head and the body
                raise ConnectionError(f"the answer to {method} {path} is not whole") from error
            return httpx.Response(response.status, headers=response.getheaders(), content=content)

    @property
    def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.api("/v1/status").json()
        return answer

    @property
    def agent(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status["agent"]
        return found

    @property
    def address(self) -> str:
        address: str = self.status["addresses"]["http"]
        return address

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(self.address + path, headers=headers, timeout=PATIENCE, trust_env=False, verify=False)

    # -- its life

    def ready(self) -> Service:
        def is_running() -> bool:
            if self.process.poll() is not None:
                raise RuntimeError(f"it ended with {self.wait()}:\n{self.err}")
            return bool(self.status["pid"] == self.process.pid and self.agent["state"] == "running")

        try:
            until(is_running, "the service running")
        except BaseException:
            self.kill()
            raise
        return self

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, within: float = PATIENCE) -> int:
        """The exit code; standard error is complete then."""
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {within:g} s:\n{self.err}") from None
        if self._reader is not None:
            self._reader.join(PATIENCE)
        return code

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        if self._reader is not None:
            self._reader.join(PATIENCE)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def spar(tmp_path: Path) -> Spar:
    return Spar(tmp_path)


@pytest.fixture
def from_scratch(spar: Spar) -> None:
    """Have each process of this test begin with an interpreter and its imports, as those of people do."""
    spar.popen = subprocess.Popen


@pytest.fixture
def start(spar: Spar) -> Iterator[Callable[..., Service]]:
    """Start services; whatever a test does, none outlives it."""
    started: list[Service] = []

    def begin(*options: str, **given: Any) -> Service:
        started.append(service := Service(spar, options, **given))
        return service

    yield begin
    for service in started:
        service.kill()


@pytest.fixture
def service(start: Callable[..., Service]) -> Service:
    """A service that runs."""
    return start().ready()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that runs, with its `spar`, for all tests of a module that change nothing for others."""
    service = Service(Spar(tmp_path_factory.mktemp("running")))
    yield service.ready()
    service.kill()
