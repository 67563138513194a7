from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perception.pipeline import read_settings
from perception.stages.intent import IntentSettings, recognise
from perception.stages.phrases import _RECOVERY, _TROUBLE
from spar.types import Perception


def settings(*rules: dict[str, Any]) -> IntentSettings:
    return read_settings({"intent": {"rules": list(rules)}}).intent


def read(content: Any, *rules: dict[str, Any], kind: str = "message", **fields: Any) -> Perception:
    return recognise(settings(*rules), [Perception(content, kind=kind, **fields)]).perceptions[0]


@pytest.mark.parametrize(
    ("text", "intent"),
    [
        ("hi", "greeting"),
        ("Good morning, team!", "greeting"),
        ("Hello there!", "greeting"),
        ("yes", "confirm"),
        ("OK, do it.", "confirm"),
        ("yes, but only the first one", "inform"),
        ("no thanks", "deny"),
        ("Don’t.", "deny"),
        ("what is the load of alpha?", "question"),
        ("why is it broken?\nI tried everything", "question"),
        ("is it up?", "question"),
        ("can you restart nginx?", "request"),
        ("I'd like you to send the report to Bob", "request"),
        ("please clean up the inbox", "request"),
        ("fix the broken build", "request"),
        ("stop!", "request"),
        ("the server is down", "report_problem"),
        *[
            (f"it {words}", "report_problem")
            for words in ("access refused", "isn't working", "does not work", "nearly full", "went offline", "panicked")
        ],
        ("restart failed", "report_problem"),
        ("nginx is back up", "report_recovered"),
        ("it is not resolved", "inform"),
        ("the name could not be resolved", "inform"),
        ("no errors so far", "inform"),
        ("backup finished with 0 errors", "inform"),
        ("10 errors in the log", "report_problem"),
        ("lunch is at noon", "inform"),
        ("", "inform"),
    ],
)
def test_what_somebody_says_is_read_where_the_wording_is_plain(text: str, intent: str) -> None:
    assert read(text).intent == intent


@pytest.mark.parametrize(
    ("text", "fields", "slots"),
    [
        ("Can you restart nginx please?", {}, {"verb": "restart", "what": "nginx"}),
        ("please archive the mails of May.", {}, {"verb": "archive", "what": "the mails of May"}),
        ("I want you to call Ann tomorrow\nthanks", {}, {"verb": "call", "what": "Ann tomorrow"}),
        ("show the load of host 10.0.0.1", {}, {"verb": "show", "what": "the load of host 10.0.0.1"}),
        ("fix " + "the thing and " * 500, {}, {"verb": "fix"}),
        ("please restart nginx", {"slots": {"what": "ngx"}}, {"verb": "restart", "what": "ngx"}),  # the sensor's stay
    ],
)
def test_a_request_says_what_is_to_be_done_and_to_what(
    text: str, fields: dict[str, Any], slots: dict[str, str]
) -> None:
    perception = read(text, attributes=fields, confidence=0.4)

    assert (perception.intent, perception.attributes["slots"], perception.confidence) == ("request", slots, 0.4)


def test_the_level_that_a_sensor_states_needs_no_reading() -> None:
    def level(word: Any) -> Perception:
        return read("load", kind="host.load", attributes={"level": word, "value": 12})

    assert (level("high").intent, level("high").attributes["intent_confidence"]) == ("report_problem", 0.95)
    assert level("normal").intent == "report_recovered"
    assert level("sideways").intent == "inform"
    assert level(["high"]).intent == "inform"
    assert level("high").attributes["value"] == 12


@pytest.mark.parametrize(
    ("text", "kind", "intent"),
    [
        ("/in/error.log", "file.added", "inform"),
        ("restart the thing", "log.line", "inform"),
        ("what happened?", "mail", "inform"),
        ("ERROR 42", "log.error", "report_problem"),
        ("HighLoad", "alert", "report_problem"),
        ("[RESOLVED] HighLoad", "alert", "report_recovered"),
    ],
)
def test_machines_ask_nothing_names_are_no_problems_and_alerts_report_one_in_any_words(
    text: str, kind: str, intent: str
) -> None:
    assert read(text, kind=kind).intent == intent


def test_rules_of_the_configuration_go_first_with_slots_and_confidence() -> None:
    rule = {"intent": "deploy", "pattern": r"deploy (?P<what>\w+)(?: to (?P<where>\w+))?", "confidence": 0.6}

    perception = read("please deploy shop", rule, attributes={"level": "high"})

    assert perception.intent == "deploy"
    assert perception.attributes["intent_confidence"] == 0.6
    assert perception.attributes["slots"] == {"what": "shop"}


def test_a_rule_may_be_narrowed_to_kinds_and_sources() -> None:
    rule = {"intent": "x", "kind": ["mail", "chat.*"], "source": "imap*"}

    assert read("a", rule, kind="mail", source="imap1").intent == "x"
    assert read("a", rule, kind="chat.room", source="imap1").intent == "x"
    assert read("a", rule, kind="mail", source="web").intent == "inform"
    assert read("a", rule, kind="feed", source="imap1").intent == "inform"


# The letters that stand before these tables in their rules must not shut any of their words out.
@given(st.from_regex(_TROUBLE, fullmatch=True, alphabet=st.characters(codec="utf-8")))
def test_every_wording_of_trouble_is_a_problem(words: str) -> None:
    assert read(f"It {words.upper()} there").intent == "report_problem"


@given(st.from_regex(_RECOVERY, fullmatch=True))
def test_every_wording_of_recovery_is_the_end_of_a_problem(words: str) -> None:
    assert read(f"it {words}").intent == "report_recovered"
