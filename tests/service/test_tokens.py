"""The table of tokens: what is good for something, until when, and what is kept of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar.bus.bus import Events
from spar.errors import ConflictError, TransientError
from spar.protocols import Host, Record
from spar.service.token_rows import TokenRow
from spar.service.tokens import KIND, PREFIX, Tokens
from spar.testing import VirtualClock


@pytest.fixture
async def memory(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Memory]:
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    memory.attach(Host("main", clock, Events("main", clock=clock), None, lambda: None))
    async with memory:
        yield memory


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def tokens(memory: Memory, clock: VirtualClock) -> Tokens:
    return Tokens(lambda: memory, clock.now)


def found(tokens: Tokens, token: str) -> TokenRow:
    row = tokens.find(token)
    assert row is not None
    return row


async def test_a_token_is_found_by_itself_alone_also_by_the_next_process(
    tokens: Tokens, memory: Memory, clock: VirtualClock
) -> None:
    made = await tokens.create("ci", ["approve", "read", "read"], by="anna")
    next_one = Tokens(lambda: memory, clock.now)
    await next_one.open()

    for table in (tokens, next_one):
        row = found(table, made.token)
        assert (row.name, row.scopes, row.by) == ("ci", ("read", "approve"), "anna")
        for other in (made.token[:-1], f"{made.token}x", made.token.swapcase(), row.digest, "", PREFIX, "é" * 48):
            assert table.find(other) is None


async def test_two_tokens_have_nothing_in_common_and_enough_of_their_own(tokens: Tokens) -> None:
    made = [(await tokens.create(f"t{number}", ["read"])).token for number in range(50)]

    assert len({token.removeprefix(PREFIX)[:22] for token in made}) == 50  # 22 characters are 132 bits
    assert {len(token) for token in made} == {48}


async def test_nothing_of_a_token_is_kept_but_its_digest(tokens: Tokens, memory: Memory) -> None:
    made = await tokens.create("ci", ["read"])

    (row,) = await memory.records(KIND)
    assert made.token[5:] not in json.dumps(row.value)
    assert "digest" not in str(await tokens.list())


async def test_a_token_is_good_until_its_time_and_not_after(tokens: Tokens, clock: VirtualClock) -> None:
    made = await tokens.create("ci", ["read"], days=2)
    await clock.advance(2 * 86_400 - 1)
    row = found(tokens, made.token)

    await clock.advance(1)

    assert tokens.find(made.token) is None
    assert not tokens.is_valid(row)
    assert [each.is_expired for each in await tokens.list()] == [True]


async def test_a_revoked_token_is_good_for_nothing_also_when_its_name_is_given_again(tokens: Tokens) -> None:
    old = await tokens.create("ci", ["read"])
    row = found(tokens, old.token)
    await tokens.revoke("ci")
    new = await tokens.create("ci", ["read"])

    assert (tokens.find(old.token), tokens.is_valid(row)) == (None, False)
    assert found(tokens, new.token).name == "ci"


async def test_the_use_of_a_token_that_was_revoked_does_not_bring_it_back(tokens: Tokens, memory: Memory) -> None:
    made = await tokens.create("ci", ["read"])
    row = found(tokens, made.token)
    await tokens.revoke("ci")

    await tokens.note_use(row)

    assert tokens.find(made.token) is None
    assert await memory.records(KIND) == []


async def test_the_last_use_is_kept_once_an_hour(tokens: Tokens, memory: Memory, clock: VirtualClock) -> None:
    made = await tokens.create("ci", ["read"])
    for _ in range(3):
        await tokens.note_use(found(tokens, made.token))
    assert [row.version for row in await memory.records(KIND)] == [2]

    await clock.advance(3_600)
    await tokens.note_use(found(tokens, made.token))

    (view,) = await tokens.list()
    assert [row.version for row in await memory.records(KIND)] == [3]
    assert view.used_at is not None
    assert clock.now() - view.used_at < timedelta(hours=1)


async def test_a_name_that_is_taken_and_what_is_out_of_bounds_is_refused(tokens: Tokens) -> None:
    await tokens.create("ci", ["read"])

    with pytest.raises(ConflictError, match="'ci' already"):
        await tokens.create("ci", ["admin"])
    for name in ("", "CI", "a b", "-a", "a\n", "x" * 64, "tokén"):
        with pytest.raises(ValueError, match="name = "):
            await tokens.create(name, ["read"])
    for days in (0, -1, 10_000):
        with pytest.raises(ValueError, match="days = "):
            await tokens.create("other", ["read"], days=days)
    with pytest.raises(ValueError, match="scopes are missing; known: read, operate, step, approve, admin"):
        await tokens.create("other", [])
    with pytest.raises(LookupError, match="no token 'nobody'; known: ci"):
        await tokens.revoke("nobody")


class Failing:
    """Store that cannot be written while it is `broken`."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self.broken = memory, False

    async def records(self, kind: str) -> list[Record]:
        return await self._memory.records(kind)

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        if self.broken:
            raise TransientError("the disk is full")
        return await self._memory.keep(kind, id, value, expect=expect)

    async def drop(self, kind: str, id: str) -> bool:
        if self.broken:
            raise TransientError("the disk is full")
        return await self._memory.drop(kind, id)


async def test_a_change_that_fails_lets_nobody_in_before_the_store_was_asked(
    memory: Memory, clock: VirtualClock
) -> None:
    store = Failing(memory)
    tokens = Tokens(lambda: store, clock.now)
    made = await tokens.create("ci", ["read"])
    store.broken = True

    with pytest.raises(TransientError):
        await tokens.revoke("ci")
    assert (tokens.find(made.token), tokens.is_open) == (None, False)
    with pytest.raises(TransientError):
        await tokens.create("other", ["read"])

    store.broken = False
    assert [each.name for each in await tokens.list()] == ["ci"]
    await tokens.revoke("ci")
    assert await tokens.list() == []


async def test_a_store_without_rows_keeps_no_tokens(clock: VirtualClock) -> None:
    tokens = Tokens(object, clock.now)

    assert await tokens.list() == []
    with pytest.raises(LookupError, match="keeps no tokens"):
        await tokens.create("ci", ["read"])


async def test_what_another_node_creates_and_revokes_holds_here_two_seconds_later(
    memory: Memory, clock: VirtualClock
) -> None:
    class Shared:
        nodes = object()

        def __getattr__(self, name: str) -> Any:
            return getattr(memory, name)

    here, there = (Tokens(Shared, clock.now) for _ in range(2))
    await here.open()
    made = await there.create("ci", ["read"])
    assert here.is_open
    await clock.sleep(2.0)
    assert not here.is_open
    await here.open()
    row = found(here, made.token)
    await there.revoke("ci")
    await here.note_use(row)  # here it is still known
    await clock.sleep(2.0)
    assert await here.list() == await there.list() == []
    assert (here.find(made.token), here.is_valid(row)) == (None, False)
