"""`spar chat` on its screen, in a real pseudo-terminal that draws, with a real service and a scripted model."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.process.chatting import PATIENCE, WITHOUT_UNICODE, ScreenChat
from tests.process.conftest import until
from tests.process.conversation import STORY, House, note, payment, story, talk
from tests.servers.llm_replies import Reply, ToolCall, says

__all__ = ["talk"]
pytestmark = pytest.mark.process
pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")

MARKDOWN = """# Disks

It is **full**: see [the page](https://example.org/disk).

| host | free |
|------|-----:|
| web | 40 GB |

```
rotate --now
```
"""
#: What the last line of the screen says while nothing goes on, and while something does.
RESTS, WORKS = "Ctrl-D leaves", "Esc interrupts"


@contextmanager
def chatting(talk: House, *arguments: str, size: tuple[int, int] = (200, 40), **more: Any) -> Iterator[ScreenChat]:
    chat = ScreenChat(talk.spar, talk.session, *arguments, size=size, **more)
    try:
        chat.shows("/help says")
        chat.shows(RESTS)
        yield chat
    finally:
        chat.close()


def errands(text: str) -> Reply:
    if "[correction]" in text:
        return says("two is left out")
    return says("first *one*", note("one", "go-one", _id="a"), note("two", _after=["a"]))


def test_a_conversation_on_a_screen(talk: House) -> None:
    """One after another; each step tells its own stories."""
    talk.told()
    with chatting(talk) as chat:
        the_input_stays_below_while_the_answer_is_written(talk, chat)
        a_message_during_a_run_waits_in_sight_and_steers_it(talk, chat)
        a_call_is_decided_about_in_its_place_but_not_by_what_was_begun_before_the_question(talk, chat)
        a_failed_call_tells_its_reason_and_is_unfolded(talk, chat)
        esc_interrupts_and_ctrl_c_twice_leaves(talk, chat)


def the_input_stays_below_while_the_answer_is_written(talk: House, chat: ScreenChat) -> None:
    gate = threading.Event()
    talk.stories.update(story=lambda text: story(text, gate))
    chat.say("[story] tell me a story")
    chat.shows(STORY[:24])
    chat.type("what I think of it")
    chat.sees(lambda text: "> what I think of it" in text)
    gate.set()
    chat.shows(STORY)
    chat.shows(RESTS)
    lines = [line for line in chat.text.split("\n") if line]
    assert lines[-4:-1] == ["> [story] tell me a story", STORY, "> what I think of it"]
    chat.press("c")


def a_message_during_a_run_waits_in_sight_and_steers_it(talk: House, chat: ScreenChat) -> None:
    talk.stories.update(errands=errands, correction=errands)
    chat.say("[errands] note one and two")
    chat.shows("▸ note text=one")
    chat.say("[correction] leave two out")
    chat.shows("  waits: [correction] leave two out")
    until(lambda: talk.service.agent["open_runs"] == 2, "the steer", PATIENCE)
    talk.open("go-one")
    chat.shows("two is left out")
    chat.shows(RESTS)
    shown = [line for line in chat.text.split("\n") if line]
    assert "  waits:" not in chat.text
    assert shown[shown.index("> [errands] note one and two") + 1] == "first one"
    assert sum(line.startswith("✓ note text=one") for line in shown) == 1
    assert sum(line.startswith("– note text=two") for line in shown) == 1
    assert shown.index("> [correction] leave two out") < shown.index("two is left out")
    assert chat.text.count("\ntwo is left out\n") == 1
    assert talk.lines("book.txt") == ["one"]


def a_call_is_decided_about_in_its_place_but_not_by_what_was_begun_before_the_question(
    talk: House, chat: ScreenChat
) -> None:
    def pay(text: str) -> Reply:
        if "today" in text:
            return says("then not" if "not today" in text else "understood")
        if "after the note" in text:
            return says("", note("one", "go", _id="a"), ToolCall("pay", {"to": "baker", "amount": 30, "_after": ["a"]}))
        return payment(text)

    talk.stories.update(pay=pay)
    for number, (answer, shown) in enumerate((("y", "the baker is paid"), ("n not today", "then not"),
                                              ("e amount=5 to=miller", "the baker is paid"))):  # fmt: skip
        chat.say(f"[pay] pay the baker 30, {number}")
        chat.shows("\nrun it? y, n")
        chat.sees(lambda text: "what would run" in text and '"amount": 30' in text)
        chat.say("perhaps")
        assert len(talk.lines("paid.txt")) == min(number, 1)
        chat.say(answer)
        chat.sees(lambda text, shown=shown, number=number: shown in text.partition(f"30, {number}\n")[2])
        chat.shows(RESTS)
        assert "run it?" not in "\n".join(chat.shown)
    assert chat.text.count("– pay to=baker, amount=30: denied: not today") == 1
    chat.say("[pay] pay the baker after the note")
    chat.shows("▸ note")
    chat.type("yes, but only ")
    talk.open("go")
    chat.shows("waits for your decision")
    chat.say("today")
    chat.shows("understood")
    chat.shows(RESTS)
    assert talk.lines("paid.txt") == ["30 to baker", "5 to miller"]


def a_failed_call_tells_its_reason_and_is_unfolded(talk: House, chat: ScreenChat) -> None:
    def fails(text: str) -> Reply:
        return (
            says("it failed") if "expected" in text else says("", ToolCall("measure", {"what": "x", "unit": "furlong"}))
        )

    talk.stories.update(fails=fails)
    chat.say("[fails] measure it")
    chat.shows("it failed")
    chat.sees(lambda text: any(line.startswith("✗ measure what=x, unit=furlong") and line.endswith(
        "unit is 'furlong', expected 'kelvin'") for line in text.split("\n")))  # fmt: skip
    assert '"unit": "furlong"' not in chat.text
    chat.press("o")
    chat.shows('"unit": "furlong"')


def esc_interrupts_and_ctrl_c_twice_leaves(talk: House, chat: ScreenChat) -> None:
    never = threading.Event()
    talk.stories.update(story=lambda text: story(text, never))
    for number, key in enumerate(("\x1b", "\x03"), 1):
        chat.say(f"[story] tell me a story, {number}")
        chat.shows(STORY[:24], number + 1)
        chat.type(key)
        chat.shows("\nstopped", number)
        chat.sees(lambda text, key=key: text.endswith("Ctrl-C again leaves" if key == "\x03" else "in full"))
        assert talk.service.agent["open_runs"] == 0
    chat.type("a draft")
    chat.shows("> a draft")
    chat.press("c")
    chat.sees(lambda text: text.endswith("Ctrl-C again leaves") and "> a draft" not in text)
    chat.press("c")
    assert chat.ended() == 130


def test_an_answer_is_drawn_as_markdown_and_cannot_act_on_the_terminal(talk: House) -> None:
    hostile = "\x1b]0;owned\x07bob\x1b[31m\x9b2J &#x202e;<b>bold</b> 日本語\t🎉"
    talk.told(page=lambda text: says(MARKDOWN), hostile=lambda text: says(hostile))
    with chatting(talk, size=(60, 24)) as chat:
        chat.say("[page] what is wrong?")
        chat.shows("rotate --now")
        chat.shows(RESTS)
        for shown in ("\nDisks\n", "It is full: see the page (https://example.org/disk).", " web   40 GB"):
            assert shown in chat.text
        chat.say("[hostile] and now?")
        chat.shows("<b>bold</b> 日本語")
        assert b"\x1b]0;" not in chat.raw
        assert not {"\x9b", "\u202e"} & set(chat.raw.decode("utf-8", "replace"))
        chat.shows(RESTS)
        chat.press("d")
        assert chat.ended() == 0


def test_a_pasted_text_is_one_message_and_is_forgotten_before_many_fill_the_memory(talk: House) -> None:
    lines = "\n".join(f"line {number} \x1b[2J" for number in range(500))
    talk.told(look=lambda text: says("seen"))
    with chatting(talk) as chat:
        chat.paste("two lines\nof a text")
        chat.shows("> two lines\n  of a text")
        chat.say(" [look]")
        chat.shows("\nseen\n")
        chat.paste(lines)
        chat.shows("[paste 1: 500 lines, ")
        chat.say(" [look]")
        chat.shows("\nseen\n", 2)
        chat.paste("x" * 200_000)
        chat.shows("[paste 2: 1 lines, 200000 characters]")
        chat.say(" [look]")
        chat.shows("not sent: a message may have 100000 characters, this one has 200007")
        chat.type("\x7f" * len(" [look]"))  # it can be changed and sent again
        chat.say("")
        chat.shows("this one has 200000")
        assert chat.text.count("> [paste 2: 1 lines, 200000 characters]") == 1
        chat.press("c")
        assert talk.said == ["two lines\nof a text [look]", f"{lines} [look]"]

        for number in range(3, 15):
            chat.paste(f"[look] {number} ".ljust(90_000, "x"))
            chat.shows(f"> [paste {number}: 1 lines, 90000 characters]")
            chat.press("c")
            chat.shows("Ctrl-C again leaves")
        chat.say("[paste 3: 1 lines, 90000 characters]")
        chat.shows("the text of [paste 3: 1 lines, 90000 characters] is not known any more: paste it again")
        chat.press("c")
        chat.say("[paste 14: 1 lines, 90000 characters][paste 15: nothing]")
        chat.shows("\nseen\n", 3)
        assert talk.said[2:] == ["[look] 14 ".ljust(90_000, "x") + "[paste 15: nothing]"]


def test_it_fits_a_small_terminal_that_is_resized_while_it_draws(talk: House) -> None:
    gate = threading.Event()
    talk.told(story=lambda text: story(text, gate))
    with chatting(talk, size=(40, 10)) as chat:
        chat.say("[story] tell")
        chat.shows(STORY[:24])
        for columns, rows in ((100, 30), (20, 5), (40, 10), (12, 3), (60, 20)):
            chat.resize(columns, rows)
            chat.type("x")
        chat.sees(lambda text: "> xxxxx" in text)
        gate.set()
        chat.sees(lambda text: STORY in " ".join(text.split()))
        chat.shows(RESTS)


def test_over_a_slow_line_keys_are_what_they_were(talk: House) -> None:
    def pay(text: str) -> Reply:
        return payment(text)

    never = threading.Event()
    talk.told(story=lambda text: story(text, never), pay=pay, hi=lambda text: says("hello"))
    with chatting(talk, size=(60, 20), late=0.3) as chat:
        chat.say("[hi] one")
        chat.shows("\nhello\n")
        chat.type("\x1b[A")  # the last message again: no Esc
        chat.say(", two")
        chat.shows("> [hi] one, two")
        chat.shows("\nhello\n", 2)
        chat.say("[pay] pay the baker 30")
        chat.shows("run it? y, n")
        chat.say("y")
        chat.shows("the baker is paid")
        chat.say("[story] tell me a story")
        chat.shows(STORY[:24])
        chat.type("\x1b")
        chat.shows("\nstopped")
        chat.say("/quit")
        assert chat.ended() == 0
    assert talk.said[:2] == ["[hi] one", "[hi] one, two"]
    assert talk.lines("paid.txt") == ["30 to baker"]


def test_without_unicode_and_colours_it_is_readable_on_a_small_terminal(talk: House) -> None:
    talk.told(errands=errands, odd=lambda text: says("caf\u00e9 \u65e5\u672c **bold**"))
    with chatting(talk, size=(40, 10), environ={**WITHOUT_UNICODE, "NO_COLOR": "1"}) as chat:
        chat.say("[errands] note one and two")
        chat.shows("* note text=one")
        talk.open("go-one")
        chat.shows("+ note text=one")
        chat.shows(RESTS)
        chat.say("[odd] and now?")
        chat.sees(lambda text: "bold" in text.partition("and now?")[2])
        chat.shows(RESTS)
        chat.say("/quit")
        assert chat.ended() == 0
        assert not [byte for byte in chat.raw if byte > 126]
        assert not re.search(rb"\x1b\[[0-9;]*3[0-7]m", chat.raw)


def test_nothing_is_lost_when_the_service_dies_and_comes_back(talk: House) -> None:
    gate = threading.Event()
    talk.told(story=lambda text: story(text, gate), hello=lambda text: says("hi"))
    with chatting(talk) as chat:
        chat.say("[story] tell me a story")
        chat.shows(STORY[:24])
        talk.service.kill()
        chat.shows("service away")
        chat.say("[hello] are you there?")
        chat.shows("  waits: [hello] are you there?")
        gate.set()
        talk.live_again()
        chat.shows("\nhi\n")
        chat.shows(RESTS)
        assert chat.text.count(STORY) == 1
        assert talk.service.stop() == 0
        chat.say("[hello] and now?")
        chat.shows("service away")
        talk.live_again()
        chat.shows("\nhi\n", 2)
        chat.say("/quit")
        assert chat.ended() == 0
    assert talk.said == ["[story] tell me a story", "[hello] are you there?", "[hello] and now?"]
    with chatting(talk, "--history", "2") as chat:
        assert "> [hello] are you there?\nhi\n\n> [hello] and now?\nhi\n" in chat.text
        chat.type("\x1b[A")
        chat.shows("> [hello] and now?", 2)


def test_it_is_left_at_any_moment_and_the_terminal_is_as_before(talk: House) -> None:
    gate = threading.Event()
    talk.told(story=lambda text: story(text, gate))
    with chatting(talk) as chat:
        chat.say("[story] tell me a story")
        chat.shows(STORY[:24])
        chat.say("/quit")
        assert chat.ended() == 0
        chat.shows("the run goes on")
    chat = ScreenChat(talk.spar, talk.session)
    chat.shows(STORY[:24])
    chat.shows(WORKS)
    os.kill(chat.process.pid, signal.SIGTERM)
    assert chat.ended() == 130
    assert chat.raw.rindex(b"\x1b[?2004l") > chat.raw.rindex(b"\x1b[?2004h")
    chat.close()
    gate.set()
    assert talk.service.agent["state"] == "running"
