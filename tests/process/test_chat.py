"""`spar chat` in lines, on a real terminal and in a pipe, with a real service and a scripted model."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.process.chatting import PATIENCE, Chat
from tests.process.conftest import Spar, in_one_process, until
from tests.process.conversation import STORY, House, Story, note, payment, story, talk
from tests.process.template import Forked
from tests.servers.llm_replies import Reply, pieces, says

__all__ = ["talk"]
pytestmark = pytest.mark.process
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")


@contextmanager
def chatting(talk: House, *arguments: str, term: str = "xterm") -> Iterator[Chat]:
    chat = Chat(talk.spar, talk.session, *arguments, *([] if term == "dumb" else ["--plain"]), term=term)
    try:
        yield chat
    finally:
        chat.close()


def hello(text: str) -> Reply:
    return says("hello, \x1b]0;owned\x07bob\x1b[31m\x9b2J")


def errands(text: str) -> Reply:
    if "[correction]" in text:
        return says("two is left out")
    return says("", note("one", "go-one", _id="a"), note("two", _after=["a"]))


def test_a_conversation_on_a_terminal_that_draws_nothing(talk: House) -> None:
    gate = threading.Event()
    stories: dict[str, Story] = {
        "hello": hello, "errands": errands, "correction": errands, "pay": payment,
        "story": lambda text: story(text, gate),
    }  # fmt: skip
    talk.told(**stories)
    with chatting(talk, term="dumb") as chat:
        chat.shows("/help says what can be said besides")

        # An escape of the model never reaches the terminal.
        chat.say("[hello] are you there?")
        chat.shows("bob")
        chat.sees(lambda text: "2J" in text)
        assert b"\x1b]0;" not in chat.raw
        assert b"\x1b[31m" not in chat.raw
        assert "\x9b" not in chat.text

        # The answer is shown as it is written: its beginning stands there while the model has not said the rest.
        chat.say("[story] tell me a story")
        chat.shows(STORY[:24])
        assert STORY not in chat.text
        gate.set()
        chat.shows(STORY)
        assert chat.text.count(STORY[:24]) == 1

        # A line that is typed while it works steers it.
        chat.say("[errands] note one and two")
        until(lambda: talk.lines("book.txt") == ["one"], "the first line", PATIENCE)
        chat.say("[correction] leave two out")
        until(lambda: len(talk.service.agent["lanes"]) and talk.service.agent["open_runs"] == 2, "the steer", PATIENCE)
        talk.open("go-one")
        chat.shows("two is left out")
        assert talk.lines("book.txt") == ["one"]

        # A call that waits is shown whole and asked about.
        chat.say("[pay] pay the baker 30")
        chat.shows("run it? y, n")
        assert "baker" in chat.text
        assert not talk.lines("paid.txt")
        chat.say("perhaps")
        chat.shows("run it? y, n", 2)
        assert not talk.lines("paid.txt")
        chat.say("y")
        chat.shows("the baker is paid")
        assert talk.lines("paid.txt") == ["30 to baker"]

        chat.say("/status")
        chat.shows(": running, interval ")
        chat.say("/nonsense")
        chat.shows("no command /nonsense")
        chat.say("/quit")
        assert chat.ended() == 0
        assert chat.text.count("two is left out") == 1, "the answer is told once, though two messages asked for it"


def test_nothing_is_lost_or_doubled_when_the_service_is_killed(talk: House) -> None:
    """In the middle of an answer, and while a call waits; between two messages: test_chat_screen."""
    gate = threading.Event()
    talk.told(story=lambda text: story(text, gate), pay=payment)
    with chatting(talk) as chat:
        chat.shows("/help")
        chat.say("[story] tell me a story")
        chat.shows(STORY[:24])
        talk.service.kill()
        chat.shows("the service does not answer")
        gate.set()
        talk.live_again()
        chat.shows(STORY)
        until(lambda: not talk.service.agent["open_runs"], "the end of the run", PATIENCE)

        chat.say("[pay] pay the baker 30")
        chat.shows("run it? y, n")
        talk.live_again()
        assert not talk.lines("paid.txt")
        chat.say("y")
        chat.shows("the baker is paid")
        chat.say("/quit")
        assert chat.ended() == 0
    assert chat.text.count(STORY) == 1
    assert talk.said == ["[story] tell me a story", "[pay] pay the baker 30"]
    assert talk.lines("paid.txt") == ["30 to baker"]


def test_in_a_pipe_nothing_is_said_of_a_death_but_that_it_was_waited_for(talk: House) -> None:
    gate = threading.Event()
    talk.told(story=lambda text: story(text, gate), pay=payment)
    command = [sys.executable, "-m", "spar", "chat", talk.session]
    with Forked(
        command, cwd=talk.spar.folder, env=talk.spar.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as chat:  # fmt: skip
        assert chat.stdin is not None
        assert chat.stdout is not None
        chat.stdin.write(b"[story] tell me a story\n")
        chat.stdin.flush()
        until(lambda: talk.server.requests and len(talk.server.requests[-1].times) >= 5, "the beginning", PATIENCE)
        os.read(chat.stdout.fileno(), 1)  # it has come
        talk.service.kill()
        gate.set()
        talk.live_again()
        out, err = chat.communicate(timeout=PATIENCE)
    assert chat.returncode == 0
    assert out.endswith(f"{STORY}\n".encode())
    assert set(err.decode().splitlines()) <= {"the service does not answer; waiting for it", "it is written anew"}

    with Forked(
        command, cwd=talk.spar.folder, env=talk.spar.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as chat:  # fmt: skip
        assert chat.stdin is not None
        assert chat.stderr is not None
        chat.stdin.write(b"[pay] pay the baker 30\n")
        chat.stdin.flush()
        assert chat.stderr.readline() == b"pay waits for approval: spar approvals list\n"
        [waiting] = until(lambda: talk.service.api("/v1/approvals").json(), "the question", PATIENCE)
        answer = {"digest": waiting["digest"], "decision": "approve"}
        assert talk.service.api(f"/v1/approvals/{waiting['id']}", "POST", json=answer).status_code == 200
        out, err = chat.communicate(timeout=PATIENCE)
    assert (chat.returncode, out, err) == (0, b"the baker is paid\n", b"")


def test_ctrl_c_calls_the_run_off_and_twice_leaves(talk: House) -> None:
    never = threading.Event()
    talk.told(story=lambda text: story(text, never))
    with chatting(talk) as chat:
        chat.say("[story] tell me a story")
        chat.shows(STORY[:24])
        chat.press("c")
        chat.shows("stopped")
        assert "it is written anew" not in chat.text
        assert talk.service.agent["open_runs"] == 0
        chat.press("c")
        chat.shows("Ctrl-C again leaves", 2)
        chat.press("c")
        assert chat.ended() == 130
        assert chat.has_whole_lines, "the terminal is as it was before"


def test_lines_of_a_pipe_are_messages_one_after_another(talk: House) -> None:
    def fails(text: str) -> Reply:
        return Reply(status=400, body=b'{"error": {"message": "no"}}')

    stories: dict[str, Story] = {
        "story": lambda text: says(pieces(STORY, 8)), "hello": hello, "fails": fails,
    }  # fmt: skip
    talk.told(**stories)
    lines = (b"[story] go on\n\n[hello] and now", b"[fails] well?\n")
    told, failed = in_one_process([(talk.spar, ["chat", talk.session], each) for each in lines])
    assert (told.code, told.err) == (0, "")
    first, second = told.out.splitlines()
    assert first == STORY
    assert "\x1b" not in second
    assert "hello" in second
    assert failed.code == 1
    assert "the run failed" in failed.err
    assert talk.spar.here("chat", talk.session, "--mode", "shout").code == 64


def test_commands_of_a_pipe_say_what_they_did_not_read(talk: House) -> None:
    talk.told(hello=hello)
    lines = ("/new what is the load?", "/model second", "[hello] are you there?", "/model default", "/think default",
             "/reset", "/think much")  # fmt: skip
    told = talk.spar("chat", talk.session, stdin="\n".join(lines).encode())
    assert "hello" in told.out
    assert talk.server.requests[-1].body["model"] == "second"
    assert told.err.splitlines() == [
        "the words behind /new were not read", "the conversation begins anew", "model: second", "model: as configured",
        "thinking: as configured", "the conversation begins anew",
        "/think much: must be off, low, medium, high, or default",
    ]  # fmt: skip
    assert f"{talk.session}#2 begins: reset by " in talk.spar("sessions", "transcript", talk.session).out


def test_a_service_that_does_not_run_is_told_at_once(spar: Spar) -> None:
    told = spar.here("chat")
    assert (told.code, told.err) == (69, f"Error: no service runs on {spar.state}; start it with: spar run\n")
