"""The chain of facts: what was altered, put in or taken out is found, and where; trimming is not mistaken for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import events
from memory.engine import hash_chain
from memory.retention import RetentionLimits, trim_facts

if TYPE_CHECKING:
    from apsw import Connection

DAY = 86_400.0
NOW = 1_000 * DAY


def tell(connection: Connection, count: int, *, at: float = NOW, work: str = "w") -> None:
    events.append(connection, [(at, work, f"c{number}", "ended", f'{{"number":{number}}}') for number in range(count)])


def numbers(connection: Connection) -> list[int]:
    return [int(str(seq)) for (seq,) in connection.execute("SELECT seq FROM fact ORDER BY seq")]


def test_a_chain_that_nobody_touched_holds(connection: Connection) -> None:
    assert hash_chain.check(connection) is None
    tell(connection, 2_500)

    assert hash_chain.check(connection) is None
    assert hash_chain.check(connection, last=1_000) is None
    assert hash_chain.newest(connection) == 2_500


@pytest.mark.parametrize(
    ("harm", "seq"),
    [
        ("UPDATE fact SET body = replace(body, '7', '8') WHERE seq = 8", 8),
        ("UPDATE fact SET at = at + 1 WHERE seq = 5", 5),
        ("UPDATE fact SET work = 'wc', call = '4' WHERE seq = 5", 5),
        ("UPDATE fact SET kind = 'started' WHERE seq = 20", 20),
        ("UPDATE fact SET link = zeroblob(32) WHERE seq = 3", 3),
        ("UPDATE fact SET body = x'ff' WHERE seq = 4", 4),
        ("DELETE FROM fact WHERE seq = 9", 9),
        ("DELETE FROM fact WHERE seq < 4", 1),
        ("UPDATE fact SET seq = 40 WHERE seq = 20", 20),
        ("INSERT INTO fact VALUES (21, 1.0, 'w', 'c', 'ended', '{}', zeroblob(32))", 21),
        ("INSERT INTO fact VALUES (-1, 1.0, 'w', 'c', 'ended', '{}', zeroblob(32))", -1),
        ("INSERT INTO state VALUES ('chain', '{\"seq\":1}')", 0),
    ],
)
def test_the_first_fact_that_does_not_fit_is_named(connection: Connection, harm: str, seq: int) -> None:
    tell(connection, 20)

    connection.execute(harm)

    broken = hash_chain.check(connection)
    assert broken.seq == seq


def test_of_the_newest_only_as_many_are_looked_at_as_are_asked_for(connection: Connection) -> None:
    tell(connection, 50)
    connection.execute("UPDATE fact SET body = '{}' WHERE seq = 30")

    assert hash_chain.check(connection, last=10) is None
    assert hash_chain.check(connection, last=25) == hash_chain.check(connection)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.text(), st.none() | st.text(), st.text(), st.text()), min_size=2, max_size=2, unique=True),
)
def test_no_two_facts_have_the_same_link(columns: list[tuple[str, str | None, str, str]]) -> None:
    one, other = (hash_chain.link(hash_chain.GENESIS, 1, 2.0, *column) for column in columns)

    assert one != other
    assert len(one) == 32


def test_old_facts_go_and_the_chain_still_holds(connection: Connection) -> None:
    tell(connection, 10, at=NOW - 9 * DAY)
    tell(connection, 10, at=NOW - 8 * DAY)
    tell(connection, 10, at=NOW - 1 * DAY)

    gone = trim_facts(connection, RetentionLimits(None, None, None, None), NOW)

    assert gone == 20
    assert numbers(connection) == list(range(21, 31))
    assert hash_chain.check(connection) is None
    assert hash_chain.check(connection, last=1_000) is None
    assert trim_facts(connection, RetentionLimits(None, None, None, None), NOW) == 0
    tell(connection, 3)
    assert hash_chain.check(connection) is None


def test_the_facts_of_an_open_cycle_stay_and_with_them_what_follows(connection: Connection) -> None:
    tell(connection, 5, at=1.0)
    tell(connection, 5, at=1.0, work="open")
    tell(connection, 5, at=1.0)
    connection.execute("INSERT INTO open_cycle (id, agent, attempts, body) VALUES ('open', 'main', 1, '{}')")

    assert trim_facts(connection, RetentionLimits(None, None, None, None), NOW) == 5
    assert numbers(connection)[0] == 6
    connection.execute("DELETE FROM open_cycle")
    assert trim_facts(connection, RetentionLimits(None, None, None, None), NOW) == 9
    assert hash_chain.check(connection) is None
