"""`spar top` over a real service: what is seen of it, and that what is answered is done."""

from __future__ import annotations

import os
import pty
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any

import anyio
import pytest
from textual.content import Content
from textual.pilot import Pilot
from textual.widget import Widget
from textual.widgets import Footer, Static

from spar.client import AsyncClient
from spar.net.control_socket import SOCKET_NAME, short_path
from spar.service import exit_codes as exits
from spar.top.app import Top
from spar.top.panels import LISTS, Panel
from spar.top.rows import RowList
from spar.top.screens import Page, RecordScreen, RunScreen
from tests.process.chatting import WITHOUT_UNICODE, ScreenTop
from tests.process.conftest import PATIENCE, Service, Spar, until
from tests.process.test_bad_input import give_up_roots_privilege

pytestmark = pytest.mark.process

#: A planner that does what a message names; it writes until it is told to go on.
PARTS = '''
import asyncio, pathlib
from spar import Action, Call, tool
from spar.events import AssistantDelta

@tool(effect="once")
async def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    with pathlib.Path("paid.txt").open("a") as file:
        file.write(f"{amount} to {to}\\n")
    return "paid"

class Teller:
    def attach(self, host):
        self.events = host.events

    async def plan(self, perceptions, context):
        run = context.run
        if run is None:
            return None
        if "pay" in run.goal:
            call = Call("pay", {"to": "baker", "amount": 30})
            return Action(calls=(call,)) if run.number == 1 else Action(output="ok")
        if "hostile" in run.goal:
            evil = "x" * 1_000_000 + " [red]markup[/red] \\x1b[2J\\x1b]0;title\\x07 \\u202eturned"
            self.events.publish(AssistantDelta(run_id=run.id, text=evil))
            return Action(output="[b]done[/b] \\x1b[31m")
        for piece in ("once", " upon"):
            self.events.publish(AssistantDelta(run_id=run.id, text=piece))
        while not pathlib.Path("go").exists():
            await asyncio.sleep(0.01)
        self.events.publish(AssistantDelta(run_id=run.id, text=" a time"))
        return Action(output="once upon a time")
'''
CONFIG = """
[agent]
name = "house"
loop_interval = 5

[[sensors]]
use = "messages"

[plan]
use = "mine:Teller"

[[tools]]
use = "mine:pay"

[[approval.rules]]
tool = "pay"
decision = "ask"

[budgets.hour]
calls = 40

[service]
port = 0
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(furnished(Spar(tmp_path_factory.mktemp("house")))).ready()
    yield service
    service.kill()


@pytest.fixture
def house(shared: Service) -> Iterator[Service]:
    """A service of all tests; what waits goes on behind each."""
    yield shared
    (go := shared.spar.folder / "go").touch()
    until(lambda: not shared.agent["open_runs"], "the end of what waited")
    go.unlink()


def furnished(spar: Spar) -> Spar:
    (spar.folder / "mine.py").write_text(PARTS)
    spar.write(CONFIG)
    return spar


class Screen:
    """A terminal with `spar top` in it: what stands there, and the keys."""

    def __init__(self, app: Top, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def text(self) -> str:
        """Everything that stands on the screen, by lines."""
        size = self.app.size
        lines = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in lines[: size.height])

    def rows(self, name: str) -> str:
        """The text of one list, as far as it is drawn."""
        found = self.app.screen_stack[0].query_one(f"#{name}", Panel)
        return "\n".join(found.render_line(y).text for y in range(found.size.height))

    async def until(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            await self.pilot.pause(0.05)
            if found := condition():
                return found
        raise AssertionError(f"not seen: {what} on\n{self.text}")

    async def shows(self, *words: str) -> None:
        await self.until(lambda: all(word in self.text for word in words), f"{words}")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)


@asynccontextmanager
async def seen(
    spar: Spar, width: int = 120, height: int = 40, *, page: str = "2", **more: Any
) -> AsyncIterator[Screen]:
    """`spar top` on a terminal of this size, with the page of this key."""
    app = Top(AsyncClient(spar.state), **more)
    async with app.run_test(size=(width, height)) as pilot:
        if page:
            await pilot.press(page)
        yield Screen(app, pilot)


async def submitted(service: Any, message: str, session: str) -> str:
    body = {"message": message, "session": session}
    answer = await anyio.to_thread.run_sync(lambda: service.api("/v1/runs", "POST", json=body))
    run_id: str = answer.json()["run_id"]
    return run_id


async def test_a_run_is_seen_while_it_is_written_and_when_it_has_ended(
    house: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    spar = house.spar
    monkeypatch.setattr("spar.top.app.PASSING", 1e6)  # what happens is drawn when it comes, not as time passes
    early = await submitted(house, "tell", "early")
    async with seen(spar) as screen:
        await screen.shows("house", "running", "hour.calls", "early")
        await submitted(house, "tell", "talk")
        await screen.until(lambda: "once upon" in screen.rows("runs"), "the run as it is written")
        await screen.until(lambda: re.search(r"talk .*● plan", screen.rows("sessions")), "its phase")
        runs = screen.app.screen_stack[0].query_one("#runs", Panel)
        await screen.until(lambda: {row.id for row in runs.items} >= {early}, "the run that was there before")
        await screen.press("2", "end", "enter")
        await screen.until(lambda: isinstance(screen.app.screen, RunScreen), "the run's own screen")
        await screen.shows(f"Run {early}", "once upon")
        (spar.folder / "go").touch()
        await screen.shows("once upon a time", "has ended")
        await screen.press("escape")
        await screen.until(lambda: screen.rows("runs").count("✓") == 2, "both have ended")
        await screen.until(lambda: "ok: once upon a time" in screen.rows("log"), "the log")


async def test_the_pictures_that_are_due_while_it_closes_disturb_nobody(
    house: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await submitted(house, "tell", "closing")
    async with seen(house.spar) as screen:
        await screen.until(lambda: "closing" in screen.rows("runs"), "the run")
        await screen.press("2", "home", "enter")
        await screen.until(lambda: isinstance(screen.app.screen, RunScreen), "the run's own screen")
        await screen.shows(f"Run {run}")
        looks = []

        def look(closed: Widget) -> None:
            """Draw both as each part of them goes, as a timer may do it."""
            looks.append(closed)
            screen.app._shown_head = Content("another")
            screen.app.look()
            for shown in screen.app.screen_stack:
                if isinstance(shown, RunScreen):
                    shown.look()

        for part in (Footer, Page, Panel, Static):
            monkeypatch.setattr(part, "on_unmount", look, raising=False)
        await screen.press("escape")
        await screen.until(lambda: looks, "the end of the run's screen")
        await screen.press("enter")
        await screen.until(lambda: isinstance(screen.app.screen, RunScreen), "it is opened again")
    assert len(looks) > 10


async def test_the_loop_comes_first_and_it_outlives_the_service(spar: Spar, start: Callable[..., Any]) -> None:
    furnished(spar)
    house = await anyio.to_thread.run_sync(lambda: start().ready())
    async with seen(spar, page="") as screen:
        await screen.until(lambda: "it rests" in screen.rows("now"), "nothing goes on")
        for key, *words in (("c", "Cost of seven days", "no model was asked", "costs are recorded since"),
                            ("d", "Changes of a day", "settings and tools are recorded since"),
                            ("u", "those that fire most first", "no rules are configured")):  # fmt: skip
            await screen.press(key)
            await screen.shows(*words)
            await screen.press("escape")
            await screen.until(lambda: len(screen.app.screen_stack) == 1, "it is closed")
        await screen.press("question_mark")
        await screen.shows("cost of seven days", "changes of a day")
        await screen.press("escape")

        await submitted(house, "tell me a story", "talk")
        await screen.until(lambda: re.search(r"talk .*✓ sense .*plan .* tell me a story", screen.rows("now")), "now")
        (spar.folder / "go").touch()
        await screen.until(lambda: "tell me a story → answer: once upon" in screen.rows("cycles"), "the cycle")
        await submitted(house, "pay the baker", "bank")
        await screen.until(lambda: "pay the baker → pay –" in screen.rows("cycles"), "the one that waits")
        assert re.search("bank(.|\n)*talk", screen.rows("cycles")), "the newest first"
        await screen.press("end", "enter")
        await screen.shows("tell me a story", "decided", "answer: once upon a time")
        await screen.press("escape")

        (spar.folder / "go").unlink()
        run_id = await submitted(house, "tell", "night")
        await screen.until(lambda: re.search(r"night .*✓ sense .*plan", screen.rows("now")), "the run")
        house.kill()
        await screen.shows("service away", "trying again")
        await screen.press("3", "2", "0")
        again = await anyio.to_thread.run_sync(lambda: start().ready())
        await screen.shows("running")
        (spar.folder / "go").touch()
        await screen.until(lambda: again.api(f"/v1/runs/{run_id}").json()["status"] == "ok", "the run goes on")
        await screen.until(lambda: screen.rows("cycles").count("tell me a story") == 1, "the cycle, once")
        await screen.press("2")
        await screen.until(lambda: "tell me a story" in screen.rows("runs"), "the run with the text that began it")
        await screen.until(lambda: re.search(r"✓ night +.* once upon a time", screen.rows("runs")), "its end")
        await screen.until(lambda: "events were missed" in screen.rows("log"), "what was missed")
        async with seen(spar, page="") as other:
            await other.until(lambda: "tell me a story" in other.rows("cycles"), "the cycles of before")
        assert again.stop() == 0
        await screen.shows("service away")


async def test_approvals_are_answered_and_exactly_those_calls_run(house: Service) -> None:
    spar = house.spar
    async with seen(spar) as screen:
        await screen.shows("running")

        async def opened(number: int) -> None:
            await submitted(house, "pay", f"bank{number}")
            await screen.until(lambda: "pay(to=baker, amount=30)" in screen.rows("waiting"), "the question")
            await screen.shows("1 waits for you")
            await screen.press("3", "enter")
            await screen.until(lambda: isinstance(screen.app.screen, RecordScreen), "its screen")
            await screen.shows("what would run", "digest", '"amount": 30', "Approve", "Deny", "Edit")

        async def answered() -> None:
            await screen.until(lambda: not isinstance(screen.app.screen, RecordScreen), "the answer is given")
            await screen.until(lambda: "nothing waits for you" in screen.rows("waiting"), "the list is empty")

        for number, keys in enumerate((["a", "n", "a", "y"], ["d", *"not today", "enter"])):
            await opened(number)
            await screen.press(*[{" ": "space"}.get(key, key) for key in keys])
            await answered()

        await opened(2)
        await screen.press("e")
        area: Any = screen.app.screen.query_one("#params")
        area.load_text('{"to": "butcher", "amount": "much"}')
        await screen.press("ctrl+s")
        await screen.shows("not answered:")
        area.load_text("{")
        await screen.press("ctrl+s")
        await screen.shows("the parameters are no JSON")
        area.load_text('{"to": "butcher", "amount": 3}')
        await screen.press("ctrl+s")
        await answered()

        paid = spar.folder / "paid.txt"
        await screen.until(lambda: "butcher" in paid.read_text(), "the calls have run")
        assert paid.read_text() == "30 to baker\n3 to butcher\n"
        answers = sorted(house.api("/v1/approvals?status=all").json(), key=lambda each: each["asked_at"])
        assert [(each["status"], each["reason"]) for each in answers[:2]] == [("used", ""), ("denied", "not today")]
        assert len({each["decided_by"] for each in answers} - {""}) == 1

        await opened(3)
        [asked] = house.api("/v1/approvals").json()
        body = {"digest": asked["digest"], "decision": "deny"}
        assert house.api(f"/v1/approvals/{asked['id']}", "POST", json=body).status_code == 200
        await screen.press("a", "y")
        await screen.shows("not answered:")
    await submitted(house, "pay", "bank")
    async with seen(spar, is_read_only=True) as screen:
        await screen.until(lambda: "pay(to=" in screen.rows("waiting"), "the question")
        await screen.shows("read-only")
        await screen.press("3", "enter")
        await screen.shows("what would run")
        await screen.press("a", "y", "d", "e")
        assert "Approve" not in screen.text
        await screen.press("escape")
    (asked,) = house.api("/v1/approvals").json()
    assert asked["status"] == "pending"
    assert paid.read_text().count("\n") == 2
    house.api(f"/v1/approvals/{asked['id']}", "POST", json={"digest": asked["digest"], "decision": "deny"})


async def test_hostile_text_is_harmless_and_only_what_is_visible_is_drawn(house: Service) -> None:
    async with seen(house.spar) as screen:
        await screen.shows("running")
        await submitted(house, "hostile", "[bold]s\u202e\x1b[31m")
        await screen.until(lambda: "[b]done[/b] \\u{1b}[31m" in screen.rows("runs"), "its answer")
        await screen.press("2", "home", "enter")
        await screen.shows("[red]markup[/red]", "\\u{202e}turned")
        for text in (screen.text, screen.rows("runs"), screen.rows("log"), screen.rows("sessions")):
            assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
        await screen.press("escape")

        drawn: list[Any] = []
        sessions: Any = screen.app.query_one("#sessions", Panel)
        pieces = sessions.pieces
        sessions.pieces = lambda row, width: (drawn.append(row), pieces(row, width))[1]
        for number in range(2_000):
            screen.app.picture.apply(
                {"type": "PhaseStarted", "at": "", "session": f"s{number}", "run_id": "", "cycle_id": "c",
                 "data": {"phase": "plan"}}
            )  # fmt: skip
        sessions.take()
        drawn.clear()
        await screen.pilot.pause()
        screen.rows("sessions")
        assert 0 < len({row.key for row in drawn}) <= 2 * sessions.size.height  # however often it is drawn
        await screen.press("1", "end")
        await screen.until(lambda: "s1999" in screen.rows("sessions"), "the last one")
        assert isinstance(sessions, RowList)


async def test_it_fits_any_terminal(house: Service) -> None:
    async with seen(house.spar, 80, 24) as screen:
        await screen.until(lambda: screen.app.picture.service, "the first status")
        await submitted(house, "tell", "talk")
        for width, height in ((80, 24), (12, 6)):
            await screen.pilot.resize_terminal(width, height)
            screen.app.action_go("runs")
            await screen.until(lambda: "▶ " in screen.rows("runs"), "the run")
            for name in [*LISTS][1:]:
                screen.app.action_go(name)  # as its key does, which costs more
                panel = screen.app.query_one(f"#{name}", Panel)
                await screen.until(lambda panel=panel: panel.has_focus and panel.size.height > 0, f"{name}, {width}")
                assert panel.region.right <= width
            screen.app.action_go("health")
            told = [word[: max(width - 5, 2)] for word in ("no alerts", "▲ alert slow")]  # the second on a busy machine
            await screen.until(lambda told=told: any(word in screen.text for word in told), f"{told}")
            await screen.press("question_mark")
            await screen.shows("Keys")
            await screen.press("escape", "z", "z", "tab")


def test_without_a_terminal_or_its_library_it_says_so(spar: Spar, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = spar.here("top")
    assert (refused.code, "needs a terminal" in refused.err) == (exits.USAGE, True), refused
    refused = spar.here("top", "--json")
    assert (refused.code, "spar status --json" in refused.err) == (exits.USAGE, True), refused
    monkeypatch.setattr("spar.top.command.find_spec", lambda name: None)
    refused = spar.here("top")
    assert (refused.code, "pip install 'spar-agent[top]'" in refused.err) == (exits.UNAVAILABLE, True), refused


def test_the_service_of_another_user_ends_it_with_a_sentence(spar: Spar) -> None:
    spar.state.mkdir()
    ours, theirs = pty.openpty()
    with closing(socket.socket(socket.AF_UNIX)) as listener, short_path(spar.state / SOCKET_NAME) as path:
        listener.bind(path)
        listener.listen()
        (spar.state / SOCKET_NAME).chmod(0)
        process = spar.popen([sys.executable, "-m", "spar", "top"], cwd=spar.folder, stdin=theirs, stdout=theirs,
                             stderr=subprocess.PIPE, text=True, env=spar.environ,
                             preexec_fn=give_up_roots_privilege)  # fmt: skip
        _, told = process.communicate(timeout=PATIENCE)
    os.close(theirs)
    os.close(ours)

    assert process.returncode == exits.NO_PERMISSION, told
    assert told == f"Error: {spar.state / SOCKET_NAME}: permission denied; the service runs as another user\n"


def test_it_is_readable_in_a_small_terminal_without_unicode_and_colours_and_leaves_it_as_it_was(
    house: Service,
) -> None:
    top = ScreenTop(house.spar, size=(40, 10), term="xterm-256color", environ={**WITHOUT_UNICODE, "NO_COLOR": "1"})
    try:
        top.shows("house running")
        top.type("?")
        top.shows("Keys of spar top")
        top.type("\x1b")
        top.sees(lambda text: "Keys of" not in text)
        top.resize(100, 30)
        top.sees(lambda text: "noticed" in text and "decided" in text)
        top.type("q")
        assert top.ended() == 0
        assert b"\x1b[?1049h" in top.raw
        assert top.raw.rindex(b"\x1b[?1049l") > top.raw.index(b"\x1b[?1049h"), "the screen of before is back"
    finally:
        top.close()


def test_over_a_slow_line_nothing_piles_up_and_the_service_is_not_held_up(house: Service) -> None:
    (house.spar.folder / "go").touch()  # answers are given at once
    top = ScreenTop(house.spar, size=(100, 30), term="xterm-256color", late=0.3)
    try:
        top.shows("house running")
        top.type("?")
        top.shows("Keys of spar top")
        top.type("\x1b")
        top.sees(lambda text: "Keys of" not in text)

        top.flows.clear()  # the line takes nothing for as long as these runs last
        shown = len(top.raw)
        runs = [house.api("/v1/runs", "POST", json={"message": f"tell {number}", "session": f"s{number % 7}"}).json()
                for number in range(60)]  # fmt: skip
        for run in runs:
            assert house.api(f"/v1/runs/{run['run_id']}/wait?timeout={PATIENCE:g}").json()["status"] == "ok"
        assert house.agent["open_runs"] == 0, "the service does not wait for who looks on"
        top.flows.set()
        top.type("2")
        last = f"s{59 % 7}"
        top.sees(lambda text: last in text)
        top.type("q")
        assert top.ended() == 0
        assert len(top.raw) - shown < 160_000, "pictures of the past are left out"
    finally:
        top.flows.set()
        top.close()


def test_a_terminal_whose_cursor_does_not_move_is_refused(spar: Spar) -> None:
    top = ScreenTop(spar, term="dumb")
    try:
        assert top.ended() == exits.USAGE
        assert "spar top needs a terminal whose cursor moves; elsewhere: spar status" in top.text
    finally:
        top.close()
