"""Notifiers: a line in the log, a window on the desktop, a request to a web hook.

Each has `notify(title, text, urgency=…)` and raises when the message cannot have arrived. The tool `notify` decides
which notifiers get a message, and how often.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import json
import logging
import re
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from annotated_types import Gt
from msgspec.structs import replace

from acting.process.launcher import run
from acting.process.program import Program, environment, find_program
from spar.clock import Clock, SystemClock
from spar.data.text import disarmed
from spar.errors import ConfigError, PermanentError
from spar.net.addresses import Guard
from spar.net.http_client import Exchange, HttpRequest, failure, read_headers
from spar.ports.channel import Notice
from spar.protocols import Host

Urgency = Literal["low", "normal", "critical"]

_LEVELS: dict[str, int] = {"low": logging.INFO, "normal": logging.WARNING, "critical": logging.ERROR}
_SESSION = ("DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "HOME", "LANG", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR")
_LONGEST_ON_SCREEN = 2000


class LogNotifier:
    """Write to the log `spar.notify`: critical as an error, normal as a warning, low as information."""

    async def notify(self, title: str, text: str, *, urgency: Urgency = "normal") -> None:
        logging.getLogger("spar.notify").log(_LEVELS[urgency], "%s: %s", disarmed(title), disarmed(text))


class DesktopNotifier:
    """Shows a window through `notify-send`. `timeout` in seconds."""

    def __init__(self, *, timeout: Annotated[float, Gt(0)] = 10.0) -> None:
        self._timeout = timeout
        self._clock: Clock = SystemClock()

    def attach(self, host: Host) -> None:
        """Count the program that shows the window as work on the agent's clock."""
        self._clock = host.clock

    def warnings(self) -> list[str]:
        """Return the reasons why no window can be shown here."""
        if find_program("notify-send", environment(_SESSION)) is None:
            return ["there is no program 'notify-send' (package libnotify-bin); use log, webhook or mail"]
        return []

    async def notify(self, title: str, text: str, *, urgency: Urgency = "normal") -> None:
        """Raises: PermanentError where there is no `notify-send`, or no desktop that it could reach; TimeoutError."""
        env = environment(_SESSION)
        path = find_program("notify-send", env)
        if path is None:
            raise PermanentError("desktop notifications need the program 'notify-send' (package libnotify-bin)")
        # The desktop reads the text as markup, and `--` keeps a title from being read as an option.
        words = (disarmed(title)[:200], html.escape(disarmed(text)[:_LONGEST_ON_SCREEN], quote=False))
        argv = ("notify-send", "--app-name=spar", f"--urgency={urgency}", "--", *words)
        with self._clock.working():
            finished = await run(Program(path, argv, "/", env), timeout=self._timeout, max_output=4096)
        if finished.timed_out:
            raise TimeoutError(f"'notify-send' was not over after {self._timeout:g} s")
        if finished.exit != 0:
            last_error = finished.stderr.decode("utf-8", "replace").strip()[-500:]
            raise PermanentError(f"'notify-send' failed: {last_error or 'without a word'}; is there a desktop session?")


class WebhookNotifier:
    """POSTs `{"title", "text", "urgency", "at"}` as JSON. `timeout` in seconds.

    With a `secret` the header `X-Spar-Signature-256` carries `sha256=` and the hexadecimal HMAC-SHA256 of the body. The
    address is configured, not planned, so one in the own network is permitted unless `private` is false.
    """

    def __init__(
        self,
        *,
        url: str,
        timeout: Annotated[float, Gt(0)] = 10.0,
        secret: str | None = None,
        headers: Mapping[str, str] | None = None,
        private: bool = True,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"url {url!r} must begin with http:// or https://", path=("url",))
        try:
            self._headers = read_headers(headers or {})
        except ValueError as error:
            raise ConfigError(str(error), path=("headers",)) from None
        self._url, self._timeout, self._private = url, timeout, private
        scheme, _, rest = url.partition("://")
        #: The URL in errors, without its path: the path of a hook is often a secret.
        self._shown = f"{scheme}://{re.split('[/?#]', rest, maxsplit=1)[0]}/…"
        self._secret = secret.encode() if secret else None
        self._use(SystemClock())

    def attach(self, host: Host) -> None:
        """Date messages by the agent's clock."""
        self._use(host.clock)

    def _use(self, clock: Clock) -> None:
        self._clock = clock
        self._exchange = Exchange(Guard(private=self._private), clock, max_bytes=4096)

    async def notify(self, title: str, text: str, *, urgency: Urgency = "normal") -> None:
        """Raises: PermanentError, TransientError or TimeoutError when it was not answered with 2xx."""
        message = {"title": title, "text": text, "urgency": urgency, "at": self._clock.now().isoformat()}
        await self._post(json.dumps(message).encode())

    async def deliver(self, notice: Notice) -> None:
        """POST a notice of an alert; its id is the `Idempotency-Key`. Raises: as `notify`."""
        await self._post(json.dumps(msgspec.to_builtins(notice)).encode(), notice.id)

    async def _post(self, body: bytes, id: str = "") -> None:
        headers = {"user-agent": "spar", **self._headers, "content-type": "application/json"}
        if id:
            headers["idempotency-key"] = id
        if self._secret is not None:
            headers["x-spar-signature-256"] = f"sha256={hmac.new(self._secret, body, hashlib.sha256).hexdigest()}"
        try:
            with self._clock.working():
                answer = await self._exchange.send(HttpRequest("POST", self._url, headers, body), self._timeout)
        except TimeoutError:
            raise TimeoutError(f"POST {self._shown} was not over after {self._timeout:g} s") from None
        if not 200 <= answer.status < 300:
            raise failure("POST", replace(answer, url=self._shown), self._clock.now())
