"""A memory on a server passes the contracts of stores and journals."""

from __future__ import annotations

from functools import partial

from memory.postgres.store import PostgresMemory
from spar.testing import check_journal, check_store


async def test_it_is_a_durable_store(url: str) -> None:
    await check_store(partial(PostgresMemory, url), durable=True)


async def test_it_is_a_journal(url: str) -> None:
    await check_journal(partial(PostgresMemory, url))
