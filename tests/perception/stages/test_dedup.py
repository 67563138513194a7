from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perception.stages.dedup import COMPARISONS, POSTINGS, DedupSettings, DedupWindow, count_of, dedup
from perception.stages.wording import PREFIX
from spar.types import Perception, replace

NOON = datetime(2026, 1, 3, 12, 0, tzinfo=UTC)
LINE = (
    "upstream timed out while reading the response header from upstream for client ten on server example "
    "during a request for the page that lists every order of the customer sorted by day and by amount"
)


def seen(content: Any = "", seconds: float = 0, **fields: Any) -> Perception:
    return Perception(content, at=NOON + timedelta(seconds=seconds), **fields)


def contents(settings: DedupSettings, *perceptions: Perception) -> list[Any]:
    return [perception.content for perception in dedup(DedupWindow(), settings, perceptions).perceptions]


def test_equal_content_is_let_through_once_and_counted_on_the_one_that_was() -> None:
    sifted = dedup(DedupWindow(), DedupSettings(), [seen("disk is full", i / 10) for i in range(400)])

    assert [(p.content, p.attributes["count"]) for p in sifted.perceptions] == [("disk is full", 400)]
    assert len(sifted.decisions) == 399
    decision = sifted.decisions[0]
    assert decision.stage == "dedup"
    assert decision.into == sifted.perceptions[0].id
    assert decision.reason == f"the same content as {sifted.perceptions[0].id}"


SAID = {"kind": "message"}
ALERT = "Too many failed connections to {{ $labels.proxy }} (> 100 a second). The load may be too high for it."
NINE, TEN = (f"the backup of host alpha took {number} minutes" for number in ("nine", "ten"))
LONG = "word " * 5_000
TELLING = ["firing", "resolved", "failed", "succeeded", "is", "is not"]
SHORT = ["load is 5", "load is -5", "", " ", "yes", "yes!", "ab c", "a bc"]
READING = {f"label{i}": "x" for i in range(60)}
MAILS = [seen("a", 1, key="m1", subject="thread"), seen("b", 2, key="m2", subject="thread")]


def by(trust: Any) -> list[Perception]:
    return [replace(seen(name, key="1", trust=trust), source=name) for name in ("a", "b")]


#: What is seen, what of it is let through, and the settings that are not the usual ones.
SIFTED: dict[str, tuple[list[Perception], list[Any], dict[str, Any]]] = {
    "one key says that it is the same": ([seen("a", key="1"), seen("b", key="1")], ["a"], {}),
    "two keys say that it is not": ([seen(LINE, key="1"), seen(LINE, key="2")], [LINE, LINE], {}),
    "with a key and without one": ([seen(LINE), seen(LINE, key="1")], [LINE, LINE], {}),
    "one key of untrusted sources": (by("untrusted"), ["a", "b"], {}),
    "one key of trusted sources": (by("trusted"), ["a"], {}),
    "a message that is said twice": ([seen("yes", **SAID), seen("yes", **SAID)], ["yes", "yes"], {}),
    "a long one": ([seen(LINE, **SAID), seen(LINE + " x", **SAID)], [LINE, LINE + " x"], {}),
    "a message under the same key": ([seen("yes", key="m", **SAID), seen("yes", key="m", **SAID)], ["yes"], {}),
    "rules of alerts that differ in a word": ([seen(ALERT), seen(ALERT.replace("}}", "}} backend"))],
                                              [ALERT, ALERT.replace("}}", "}} backend")], {}),
    "texts that are not like enough": ([seen(NINE), seen(TEN)], [NINE, TEN], {}),
    "texts that are like enough": ([seen(NINE), seen(TEN)], [NINE], {"similarity": 0.6}),
    "likeness is turned off": ([seen(LINE), seen(LINE + ".")], [LINE, LINE + "."], {"similarity": 0}),
    "data with another value": ([seen({**READING, "v": 1}), seen({**READING, "v": 2})],
                                [{**READING, "v": 1}, {**READING, "v": 2}], {"similarity": 0.5}),
    "data in another order": ([seen({"a": 1, "b": 2}), seen({"b": 2, "a": 1})], [{"a": 1, "b": 2}], {}),
    "long texts that differ beyond what is compared": ([seen(LONG + "one"), seen(LONG + "two")],
                                                       [LONG + "one", LONG + "two"], {}),
    "a state that comes back under the key of its like": (
        [seen(f"web is {state}", 10 * i, key=f"fp1 {state}", subject="fp1")
         for i, state in enumerate(("firing", "resolved", "firing", "firing"))],
        ["web is firing", "web is resolved", "web is firing"], {}),
    "copies from before the change": (MAILS * 3, ["a", "b"], {}),
    "keys that differ while the content is one": (
        [seen("it is time", i, key=key) for i, key in enumerate(("9:00", "9:01", "9:00"))], ["it is time"] * 2, {}),
    "states of one subject by who says them": (
        [seen(text, i, subject="nginx", source=source)
         for i, (text, source) in enumerate([("down", "a"), ("up", "b")] * 2)],
        ["down", "up"], {}),
    "an older one that arrives late": ([seen("x", 1000), seen("x", 0), seen("x", 1100)], ["x"] * 3, {}),
    "lines that differ only in their moment": (
        [seen(f"2026-01-03T10:00:{i:02d}.123Z nginx: upstream timed out", i) for i in range(60)],
        ["2026-01-03T10:00:00.123Z nginx: upstream timed out"], {}),
    "a telling word is never a small difference": (
        [seen(f"the alert {word} now {LINE}") for word in TELLING],
        [f"the alert {word} now {LINE}" for word in TELLING], {"similarity": 0.5}),
    "short texts that differ": ([seen(text) for text in SHORT], SHORT, {}),
    "one that is a little older": ([seen("x", 100), seen("x", 0)], ["x"], {}),
}  # fmt: skip


@pytest.mark.parametrize("case", SIFTED)
def test_what_is_the_same_is_let_through_once(case: str) -> None:
    given, through, more = SIFTED[case]

    assert contents(DedupSettings(**{"seconds": 300, **more}), *given) == through


@pytest.mark.parametrize(
    "other",
    [{"source": "b"}, {"kind": "b"}, {"subject": "b"}, {"session": "b"}, {"trust": "trusted"}],
    ids=lambda fields: next(iter(fields)),
)
def test_equal_content_or_one_key_from_elsewhere_or_about_something_else_is_not_the_same(other: dict[str, Any]) -> None:
    assert len(contents(DedupSettings(), seen(LINE), seen(LINE, **other))) == 2
    if other.keys() & {"session", "trust"}:
        assert len(contents(DedupSettings(), seen("a", key="1"), seen("a", key="1", **other))) == 2


def test_repetition_across_batches_is_dropped_and_told_when_the_thing_goes_on_after_the_time() -> None:
    window, settings = DedupWindow(), DedupSettings(seconds=300)
    first = dedup(window, settings, [seen("alarm")])
    later = [dedup(window, settings, [seen("alarm", second)]) for second in range(10, 300, 10)]
    again = dedup(window, settings, [seen("alarm", 301)])

    assert "count" not in first.perceptions[0].attributes
    assert all(not sifted.perceptions for sifted in later)
    assert again.perceptions[0].attributes["count"] == 30


def test_what_comes_back_after_a_long_silence_is_not_counted_with_the_past() -> None:
    window, settings = DedupWindow(), DedupSettings(seconds=300)
    dedup(window, settings, [seen("alarm"), seen("alarm", 10)])
    dedup(window, settings, [seen("alarm", 20)])

    assert "count" not in dedup(window, settings, [seen("alarm", 5000)]).perceptions[0].attributes


@pytest.mark.parametrize("count", [0, -1, True, "7", 1.5, None, float("nan")])
def test_counts_that_sensors_give_add_up_and_what_is_no_number_of_times_is_one(count: object) -> None:
    sifted = dedup(DedupWindow(), DedupSettings(), [seen("x", attributes={"count": n}) for n in (3, count)])

    assert count_of(sifted.perceptions[0]) == 4


def test_prose_that_shares_nearly_all_its_wording_is_dropped_with_the_likeness_as_reason() -> None:
    settings = DedupSettings(similarity=0.9)
    sifted = dedup(DedupWindow(), settings, [seen(LINE), seen(LINE.replace("amount", "sum"))])

    assert len(sifted.perceptions) == 1
    assert "nearly the same words (9" in sifted.decisions[0].reason


REPORT = (
    "the nightly backup of the production cluster in the main data centre has ended and this is the usual report that "
    "is sent to all members of the list every morning so that everybody knows how it went without looking at the log; "
)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (REPORT + "size of the archive: 5000000000 bytes", REPORT + "size of the archive: 0 bytes"),
        (REPORT + "it was stored on db-master", REPORT + "it was stored on db-replica"),
        (REPORT + "it was begun by Anna", REPORT + "it was begun by Berta"),
        (REPORT + "see /var/log/first", REPORT + "see /var/log/second"),
        (REPORT + "job_one", REPORT + "job_two"),
        (REPORT + "state=open", REPORT + "state=waiting"),
        (
            f'{{"event": "release", "action": "published", "text": "{REPORT}"}}',
            f'{{"event": "release", "action": "edited", "text": "{REPORT}"}}',
        ),
        (f'["published", "{REPORT}"]', f'["edited", "{REPORT}"]'),
        (
            f'webhook: {{"action": "published", "text": "{REPORT}"}} end',
            f'webhook: {{"action": "edited", "text": "{REPORT}"}} end',
        ),
        (
            f"Traceback (most recent call last)\n{REPORT}\nexit: no disk",
            f"Traceback (most recent call last)\n{REPORT}\nexit: no core",
        ),
        (
            f"Traceback (most recent call last)\n{REPORT}\nMemoryError",
            f"Traceback (most recent call last)\n{REPORT}\nKeyError",
        ),
    ],
)
def test_numbers_names_data_and_the_last_line_of_a_traceback_tell_things_apart(a: str, b: str) -> None:
    assert contents(DedupSettings(similarity=0.5), seen(a), seen(b)) == [a, b]


@pytest.mark.parametrize(("kind", "kept"), [("", 1), ("log.error", 1), ("alert", 2), ("mail", 2), ("file.added", 2)])
def test_only_lines_of_logs_and_what_has_no_kind_yet_are_compared_by_their_wording(kind: str, kept: int) -> None:
    copies = (seen(LINE, kind=kind), seen(LINE.replace("amount", "sum"), kind=kind))

    assert len(contents(DedupSettings(similarity=0.9), *copies)) == kept


@pytest.mark.parametrize(
    ("first", "second", "fields"),
    [
        ("nginx is down", "nginx is up", {"subject": "nginx"}),
        ("nginx is down", "nginx is up", {}),
        ("the service has stopped", "all is well", {"subject": "nginx"}),
        ({"unit": "nginx", "status": "firing"}, {"unit": "nginx", "status": "resolved"}, {}),
        ({"phase": "waiting"}, {"phase": "working"}, {"subject": "job"}),
        ("disk at 95%", "disk at 40%", {}),
    ],
)
@pytest.mark.parametrize("step", [0, 10])
@pytest.mark.parametrize("is_one_batch", [True, False])
def test_a_state_that_comes_back_is_news(
    first: Any, second: Any, fields: dict[str, Any], step: float, is_one_batch: bool
) -> None:
    window, settings = DedupWindow(), DedupSettings()
    states = [
        seen(content, step * i, **fields) for i, content in enumerate((first, second, second, first, first, second))
    ]
    batches = [states] if is_one_batch else [[state] for state in states]

    kept = [each.content for batch in batches for each in dedup(window, settings, batch).perceptions]

    assert kept == [first, second, first, second]


def test_the_window_forgets_the_oldest_and_stays_bounded_in_a_flood() -> None:
    window, settings = DedupWindow(), DedupSettings(window=50)
    words = random.Random(1)
    flood = [seen(" ".join(str(words.random()) for _ in range(30)), i / 100) for i in range(500)]
    dedup(window, settings, flood)

    assert len(window.entries) == 50
    assert sum(map(len, window.alike.values())) <= 50 * PREFIX
    assert dedup(window, settings, [flood[-1]]).perceptions == []
    assert dedup(window, settings, [flood[0]]).perceptions != []


def test_texts_that_share_their_marks_do_not_make_each_other_expensive() -> None:
    window, settings = DedupWindow(), DedupSettings()
    pool = random.Random(2)
    body = LINE.split()
    flood = []
    for i in range(300):
        words = [*body]
        for _ in range(6):
            words[pool.randrange(len(words))] = str(pool.random())
        flood.append(seen(" ".join(words), i / 10))
    dedup(window, settings, flood)

    assert all(len(others) <= POSTINGS for others in window.alike.values())
    assert COMPARISONS <= POSTINGS * PREFIX


def test_a_forgotten_window_leaves_nothing_behind() -> None:
    window, settings = DedupWindow(), DedupSettings()
    dedup(window, settings, [seen(LINE), seen("other"), seen("third", key="k")])
    for digest in list(window.entries):
        window.forget(digest, settings)

    assert not window.entries
    assert not window.alike
    assert not window.things


perceptions = st.builds(
    seen,
    content=st.one_of(
        st.sampled_from(["a", "b", LINE, LINE + " x", LINE.replace("client", "user")]),
        st.text(st.characters(), max_size=30),
        st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    ),
    seconds=st.integers(0, 1000),
    key=st.sampled_from([None, None, "k"]),
    session=st.sampled_from(["main", "other"]),
    kind=st.sampled_from(["", "message"]),
)


@given(st.lists(perceptions, max_size=25), st.sampled_from([0, 0.5, 0.9, 1]), st.sampled_from([3, 100]))
def test_what_was_let_through_would_all_be_let_through_again(
    batch: list[Perception], similarity: float, size: int
) -> None:
    settings = DedupSettings(similarity=similarity, window=size)
    once = dedup(DedupWindow(), settings, batch)
    twice = dedup(DedupWindow(), settings, once.perceptions)

    assert len(once.perceptions) + len(once.decisions) == len(batch)
    assert sum(map(count_of, once.perceptions)) == len(batch)
    assert twice.perceptions == once.perceptions
    assert not twice.decisions
