"""How long after the model has said its first word it stands on the screen of `spar chat`, and a typed key after it.

A real service, a real pseudo-terminal, and a model on the other side of a socket. Of a word, measured is the time from
the moment at which the model's server begins to write it until it was read from the terminal; beside it the same word
read from that server by a client of our own. Of a key, it is the time until the terminal shows it, while the model
writes 200 characters a second and the agent does 500 cycles a second.
"""

from __future__ import annotations

import asyncio
import fcntl
import http.client
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.harness import Effort
from benchmarks.journalled import folder
from benchmarks.table import Line, number
from spar.client.client import Client
from spar.operations import agent
from tests.servers.llm import served
from tests.servers.llm_replies import Reply, Step, pieces, says
from tests.servers.llm_requests import Asked

OWED, WITHIN = 20.0, 60.0  # milliseconds; seconds
MESSAGES, PAUSE = 30, 0.1
#: Keys that are typed, and seconds between two; no text and no line of the screen has these letters.
KEYS, TYPED_EVERY, LETTERS = 400, 0.05, "QXZJVY"
#: Characters of a piece of what is written meanwhile, and pieces a second.
PIECE, RATE = 8, 25.0
PROSE = """it is **full**: the log grew by 40 gb, see `the page` and [the book](http://a/b).

- rotate the log, and do it soon
- restart the server

| host | free |
|------|------|
| one | 40 gb |

```
def rotate(path): print(path)
```

"""
CONFIG = """
[agent]
loop_interval = {interval}
min_interval = 0

[plan]
use = "llm"

[plan.options]
model = [{{ name = "scripted", base_url = "{url}" }}]
context_tokens = 20000

[budgets]
hour = {{ requests = "off" }}

[service]
port = 0

[log]
level = "error"
"""


class Model:
    """A model that says a word and rests, or its `prose`. `began` is when it began to write the last word."""

    def __init__(self) -> None:
        self.began, self.word, self.count, self.prose = 0.0, "", 0, ""

    def __call__(self, asked: Asked) -> Reply:
        if self.prose:
            return Reply(says(pieces(self.prose, PIECE)).steps, rate=RATE)
        self.count += 1
        self.word = f"word{self.count:04}"
        return Reply(steps=self._steps(self.word))

    def _steps(self, word: str) -> Iterator[Step]:
        for step in says([f"{word} ", "and more"])._steps:
            if word in json.dumps(step, default=str):
                yield PAUSE  # whoever has asked waits by now
                self.began = time.perf_counter()
                yield step
                yield PAUSE
            else:
                yield step


async def measure(effort: Effort) -> list[Line]:
    return await asyncio.to_thread(_measured, 1 if effort.is_quick else MESSAGES)


def _measured(messages: int) -> list[Line]:
    model = Model()
    keys = KEYS * messages // MESSAGES
    with served(model) as server, folder() as place:
        config = Path(place, "config.toml")
        config.write_text(CONFIG.format(url=server.url, interval='"off"'))
        with running(place):
            with Terminal(place, "chat") as terminal:
                terminal.shown("Ctrl-D leaves")
                own = [terminal.first_word(model, number) for number in range(messages + 1)][1:]
            limit = [by_hand(server.url, model) for _ in range(messages)]
            config.write_text(CONFIG.format(url=server.url, interval=1 / 500))
            Client(Path(place, "state")).call(agent.reload)
            model.prose = "".join(islice(cycle(PROSE), int((keys * TYPED_EVERY + 5) * PIECE * RATE)))
            echoes = _echoes(place, keys)
    middle, late = parts(own, 0.95)
    beside = " / ".join(number(each) for each in parts(limit, 0.95))
    word = Line(None, "first word of an answer in spar chat", f"{number(middle)} / {number(late)} ms", "read by hand",
                f"{beside} ms", late, "ms", owed=OWED, is_limit=True)  # fmt: skip
    middle, late = parts(echoes, 0.99)
    beside = " / ".join(number(each) for each in parts([by_kernel() for _ in range(KEYS)], 0.99))
    key = Line(None, "typed key in spar chat during an answer", f"{number(middle)} / {number(late)} ms",
               "the kernel's echo", f"{beside} ms", late, "ms", owed=OWED, is_limit=True)  # fmt: skip
    return [word, key]


def _echoes(place: str, keys: int) -> list[float]:
    """Return the seconds after which each typed key is shown, while an answer is written."""
    with Terminal(place, "chat", "talk") as terminal:
        terminal.shown("Ctrl-D leaves")
        terminal.type("write\r")
        terminal.shown("full")
        return [terminal.echo(letter) for letter in islice(cycle(LETTERS), keys)]


def parts(seconds: list[float], late: float) -> tuple[float, float]:
    """Return the middle, and the one below which this share of them is, in milliseconds."""
    ordered = sorted(seconds)
    return ordered[len(ordered) // 2] * 1e3, ordered[int(len(ordered) * late)] * 1e3


@contextmanager
def running(place: str) -> Iterator[None]:
    """A service that runs."""
    process = subprocess.Popen([sys.executable, "-m", "spar", "run"], cwd=place)
    try:
        Client(Path(place, "state")).call(agent.status, patience=WITHIN)
        yield
    finally:
        process.terminate()
        process.wait(WITHIN)


class Terminal:
    """A command of `spar` on a pseudo-terminal."""

    def __init__(self, place: str, *command: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spar", *command], cwd=place, stdin=slave, stdout=slave, stderr=slave,
            env={**os.environ, "TERM": "xterm"}, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        self._text = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.process.terminate()
        self.process.wait(WITHIN)
        os.close(self._master)

    def shown(self, text: str, after: int = 0) -> float:
        """Wait until a text is there; return when that was."""
        until = time.monotonic() + WITHIN
        while text not in self._text[after:]:
            if not select.select([self._master], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"{text!r} was not shown: {self._text!r}")
            self._text += os.read(self._master, 65536).decode("utf-8", "replace")
        return time.perf_counter()

    def read(self) -> bytes:
        """Return what it shows next, nothing after a tenth of a second without anything."""
        return os.read(self._master, 65536) if select.select([self._master], [], [], 0.1)[0] else b""

    def first_word(self, model: Model, number: int) -> float:
        """Ask; return the seconds from the model's first word until it is shown."""
        after, word = len(self._text), f"word{model.count + 1:04}"
        self.type(f"question {number}\r")
        at = self.shown(word, after)
        self.shown("and more", after)
        self.shown("leaves", after + self._text[after:].index("and more"))
        return at - model.began

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def echo(self, letter: str) -> float:
        """Press a key and take it back; return the seconds until it was shown."""
        after, began = len(self._text), time.perf_counter()
        self.type(letter)
        seconds = self.shown(letter, after) - began
        self.type("\x7f")
        self._rest(began + TYPED_EVERY)
        return seconds

    def _rest(self, until: float) -> None:
        """Read what the terminal shows until a time."""
        while (left := until - time.perf_counter()) > 0:
            if select.select([self._master], [], [], left)[0]:
                self._text += os.read(self._master, 65536).decode("utf-8", "replace")


def by_kernel() -> float:
    """Return the seconds until a terminal shows a key that the kernel echoes."""
    master, slave = pty.openpty()
    began = time.perf_counter()
    os.write(master, b"Q")
    os.read(master, 1)
    seconds = time.perf_counter() - began
    os.close(slave)
    os.close(master)
    return seconds


def by_hand(url: str, model: Model) -> float:
    """Return the seconds until a client of our own has the model's first word."""
    host, _, path = url.removeprefix("http://").partition("/")
    body: dict[str, Any] = {"model": "scripted", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    with closing(http.client.HTTPConnection(host, timeout=WITHIN)) as connection:
        connection.request("POST", f"/{path}/chat/completions", json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        for line in response:
            if model.word.encode() in line:
                at = time.perf_counter()
                response.read()
                return at - model.began
    raise RuntimeError("the model has said nothing")
