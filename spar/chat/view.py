"""View of runs on the screen of a conversation: the lines that stand for good, and those that still change."""

from __future__ import annotations

import os
import sys
from collections import deque
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import click
from msgspec import Struct

from spar.chat.markdown import drawn, settled
from spar.cli.blocks import took
from spar.cli.printer import RunPrinter, arguments, harmless, harmless_lines, lasted
from spar.data.text import cut, printable, value_lines

#: Characters of a thought, and of the end of an answer, that are drawn while they are written.
WRITTEN: Final = 2_000
WAITS: Final = "waits for your decision"
#: Calls that can be unfolded, lines of each, and characters of a line of a message.
PAST, UNFOLDED, LONGEST_LINE = 50, 40, 1_000
#: The sign and the colour of a call by what became of it; `""` while it runs.
_SIGNS: Final = {
    "": ("▸", "*", "cyan"), "ok": ("✓", "+", "green"), "failed": ("✗", "x", "red"), "skipped": ("–", "-", "yellow"),
    "waits": ("?", "?", "yellow"),
}  # fmt: skip


class CallView(Struct):
    """Call of a run: `doing` is its progress, `became` a key of `_SIGNS`, `detail` its error or reason."""

    tool: str
    params: Any = None
    since: datetime | None = None
    doing: str = ""
    became: str = ""
    detail: str = ""
    output: Any = None
    took: float | None = None

    def line(self, now: datetime | None = None) -> str:
        """Return the call in one line."""
        sign, plain, colour = _SIGNS[self.became]
        runs_for = "" if now is None or self.since is None else lasted((now - self.since).total_seconds())
        words = [self.tool, harmless(arguments(self.params), 160), runs_for if self.took is None else took(self.took)]
        line = " ".join(filter(None, words))
        detail = self.detail or self.doing
        return f"{tinted(sign if has_signs() else plain, fg=colour)} {line}{f': {detail}' if detail else ''}"

    def lines(self) -> list[str]:
        """Return the call with all its parameters and its output."""
        values = [(name, value) for name, value in (("params", self.params), ("output", self.output)) if value]
        lines = [f"  {line}" for name, value in values for line in [f"{name}:", *value_lines(value, 1)]]
        more = [f"  … {len(lines) - UNFOLDED} lines more"] if len(lines) > UNFOLDED else []
        return [self.line(), *(dim(line) for line in (*lines[:UNFOLDED], *more))]


class RunView(RunPrinter):
    """View of the events of runs.

    Attributes:
        above: The lines that stand for good, for the terminal; whoever prints them removes them.
        width: The columns of the terminal.
    """

    def __init__(self) -> None:
        super().__init__(is_verbose=False)
        self.above: list[str] = []
        self.width = 80
        self._written, self._thought = "", ""
        self._calls: dict[str, CallView] = {}
        self._ended: list[CallView] = []  # they are shown behind the block of the answer that is being written
        self._past: deque[CallView] = deque(maxlen=PAST)
        self._has_settled = False

    # -- events

    def show(self, event: dict[str, Any]) -> None:
        if event["stream"] == "tool":
            self._show_call(event["data"], datetime.fromisoformat(event["at"]))
        elif event["stream"] != "verbose":  # lines about calls, which stand here already
            super().show(event)
        if event["data"].get("ends"):
            self.end_line()
        self._release()

    def begin_anew(self) -> None:
        super().begin_anew()
        self.end_line()
        self._calls.clear()

    def _show_call(self, data: dict[str, Any], at: datetime) -> None:
        call = self._calls.setdefault(data["call"], CallView(harmless(data["tool"], 40)))
        match data["phase"]:
            case "proposed":
                call.params, self._has_called = data["params"], True
            case "start":
                call.since, call.became, call.doing = at, "", ""
            case "progress":
                call.doing = harmless(data["progress"], 80)
            case "approval":
                call.became, call.doing = ("waits", WAITS) if data["state"] == "requested" else ("", "")
            case "skipped" if data.get("reason") == "parked":
                call.became, call.doing = "waits", WAITS
            case phase:  # its end
                call.became = {"result": "ok", "error": "failed", "in_doubt": "waits"}.get(phase, "skipped")
                why = [data["status"]] if data.get("status") in ("denied", "timeout") else []
                why += filter(None, (data.get(name) for name in ("error", "reason", "why")))
                call.detail = harmless(": ".join(why[:2]), 300) if call.became != "ok" else ""
                call.took = None if call.since is None else (at - call.since).total_seconds()
                call.doing, call.output = "", data.get("output")
                self._ended.append(self._calls.pop(data["call"]))

    def _write(self, text: str, *, is_new: bool) -> None:
        if is_new and self._text and not self._has_called:
            self._text, self._is_void, is_new = "", True, False  # what is void does not settle
        super()._write(text, is_new=is_new)

    def _tell_void(self) -> None:
        if self._is_void:
            self._written = ""
            self._is_void = self._has_settled  # nobody needs to know it of what has not settled
        super()._tell_void()

    # -- what stands for good

    def put(self, text: str, end: str = "\n") -> None:
        self._written += text + end
        if end or "\n" in text or len(self._written) > WRITTEN:
            self._settle(is_whole=bool(end))

    def put_aside(self, text: str, end: str = "\n") -> None:
        self._thought += text
        if end and (aside := self._thought.strip()):
            self.above += [dim(line) for line in harmless_lines(aside)]
        self._thought = "" if end else self._thought

    def end_line(self) -> None:
        super().end_line()
        self._settle(is_whole=True)
        self._has_settled = False
        self._release()

    def put_message(self, text: str) -> None:
        """Show a message of the person."""
        first, *others = (cut(line, LONGEST_LINE) for line in harmless_lines(text.strip()))
        shown = [f"> {first}", *(f"  {line}" for line in others[:10])]
        more = [f"  … {len(others) - 10} lines more"] if len(others) > 10 else []
        self.above += [tinted(line, bold=True) for line in (*shown, *more)]

    def unfold(self) -> None:
        """Show calls with their parameters and outputs, the past ones of this conversation too, or in one line each."""
        self.is_verbose = not self.is_verbose
        if self.is_verbose:
            self.above += [line for call in self._past for line in call.lines()]

    def _settle(self, *, is_whole: bool) -> None:
        head, self._written = (self._written, "") if is_whole else settled(self._written)
        if block := drawn(head, self.width):
            self.above += [*block.split("\n"), ""]
            self._has_settled = True

    def _release(self) -> None:
        """Show the calls that have ended, unless a block of the answer is being written."""
        if not self._written:
            for call in self._ended:
                self.above += call.lines() if self.is_verbose else [call.line()]
            self._past.extend(self._ended)
            self._ended.clear()

    # -- what still changes

    def below(self, now: datetime, room: int) -> list[str]:
        """Return at most `room` lines: the end of the thoughts and of the answer, and the calls in hand."""
        calls = [*(call.line() for call in self._ended), *(call.line(now) for call in self._calls.values())]
        most = max(room // 3, min(room, 2), 1)
        if len(calls) > most:
            calls = [*calls[: most - 1], dim(f"  and {len(calls) - most + 1} calls more")]
        thought = [dim(line) for line in harmless_lines(self._thought[-WRITTEN:])] if self._thought else []
        written = _ending(self._written, self.width).split("\n") if self._written else []
        lines = [*thought, *written]
        return [*lines[max(len(lines) - room + len(calls), 0) :], *calls]


@lru_cache(maxsize=2)
def _ending(text: str, width: int) -> str:
    """Return the end of an incomplete block as lines; a fence before it is opened again."""
    end = text[-WRITTEN:]
    if len(end) < len(text) and (first := text.lstrip()).startswith(("```", "~~~")):
        end = first.partition("\n")[0] + "\n" + end.partition("\n")[2]
    return drawn(end, width)


def has_signs() -> bool:
    """Return whether the terminal shows signs beyond ASCII."""
    place = os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    return place not in ("C", "POSIX") and (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def dim(text: str) -> str:
    """Return a text of less weight, escaped."""
    return tinted(printable(text), dim=True)


def tinted(text: str, **looks: Any) -> str:
    """Return a text with these looks (of `click.style`), unless NO_COLOR is set."""
    return text if os.environ.get("NO_COLOR") else click.style(text, **looks)
