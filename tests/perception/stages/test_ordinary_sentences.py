"""Ordinary sentences, as people write them without marks and pleasantries, and what each of them wants."""

from __future__ import annotations

from perception.pipeline import read_settings
from perception.stages.intent import recognise
from spar.types import Perception

SENTENCES = {
    "question": [
        "what is the weather like in Oslo tomorrow",
        "how much disk is left on db1",
        "is the backup done yet",
        "did anyone deploy yesterday",
        "who is on call this weekend",
        "when does the certificate expire",
        "do you know why the build is slow",
        "are there any open tickets for the shop",
        "I wonder whether the new host is faster",
        "Which of the two servers has more memory?",
        "if I order today, will it arrive on Friday",
    ],
    "request": [
        "restart the web server on alpha",
        "could you send me last week's invoices",
        "I need a copy of the contract",
        "please book a table for four on Friday",
        "turn off the lights in the hall",
        "let's move the meeting to three o'clock",
        "don't delete the old logs",
        "I'd like to change my password",
        "hey, transfer 50 euros to Ann",
        "Cancel my order from yesterday",
    ],
    "report_problem": [
        "I can't log in since this morning",
        "the printer on the second floor is not working",
        "checkout keeps failing for some customers",
        "the site is very slow today",
        "my card was declined at the shop",
        "nginx won't start after the update",
        "we get error 502 on every page",
        "the nightly job crashed again",
        "something is wrong with the mail server",
    ],
    "inform": [
        "lunch is at noon",
        "I have moved the files to the archive",
        "the new colleague starts on Monday",
        "we deployed version 2.3 at ten",
        "the meeting took two hours",
    ],
    "report_recovered": ["the shop is back online", "the login problem has been fixed"],
    "confirm": ["yes, go ahead"],
    "deny": ["no, not now"],
    "greeting": ["good morning, team"],
}
#: Of forty. Where a reading is changed, as many must still be right.
OWED = 38


def test_ordinary_sentences_are_read_as_they_are_meant() -> None:
    meant = {text: intent for intent, texts in SENTENCES.items() for text in texts}
    assert len(meant) == 40
    perceptions = [Perception(text, kind="message") for text in meant]

    read = {
        each.content: each.intent
        for case in (perceptions, [Perception(each.content.upper(), kind="message") for each in perceptions])
        for each in recognise(read_settings({}).intent, case).perceptions
    }

    wrong = {text: read[text] for text in meant if read[text] != meant[text]}
    assert len(meant) - len(wrong) >= OWED, wrong
    assert all(read[text.upper()] == read[text] for text in meant)  # whoever shouts wants the same


def test_what_begins_like_a_question_or_an_order_and_is_none_informs() -> None:
    texts = ["what a day", "when the shop closes, we go home", "restart completed", "I am in"]

    read = recognise(read_settings({}).intent, [Perception(text, kind="message") for text in texts]).perceptions

    assert [each.intent for each in read] == ["inform"] * len(texts)
