"""Senders on a channel: allow lists, pairing codes, and what unknown senders cannot bring about."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Agent
from spar.channels.senders import ALPHABET, MOST_TRIES, Senders, digest_of, is_same, judge, new_code
from spar.config.load import from_mapping
from spar.errors import ConfigError, ConflictError, TransientError
from spar.events import SenderDecided, SenderMet
from spar.loop.core import Core
from spar.records.senders import Admission, SenderRow, SenderRules, rules_of, sender_of
from spar.testing import VirtualClock
from tests.effort import Effort

ALICE, BOB = "mail:alice@example.org", "mail:bob@example.net"


def core(clock: VirtualClock, **senders: Any) -> Core:
    return Core("main", clock, from_mapping({"senders": senders}))


def code_in(answer: str) -> str:
    match = re.search(r"[A-Z2-9]{4}-[A-Z2-9]{4}", answer)
    assert match is not None, answer
    return match[0]


def judged(sender: str, rules: SenderRules, *rows: SenderRow) -> Admission:
    channel, _, address = sender.partition(":")
    return judge(channel, address, rules, {row.id: row for row in rows})


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        yield memory


# -- names


@pytest.mark.parametrize(
    "address", ["", " ", "a b@example.org", "a\r\nb@example.org", "a\u202eb@x.org", "*@x.org", "a" * 400]
)
def test_an_address_that_no_list_could_name_is_no_sender(address: str) -> None:
    with pytest.raises(ValueError, match="sender"):
        sender_of("mail", address)


def test_letters_are_folded_but_what_only_looks_the_same_is_another_sender() -> None:
    assert sender_of("mail", "Alice@Example.ORG") == ALICE
    assert sender_of("mail", "\uff41lice@example.org") != ALICE  # a wide a
    assert sender_of("mail", "alice@e\u212aample.org") == "mail:alice@e\u212aample.org"  # the sign for kelvin


@pytest.mark.parametrize("name", ["alice@example.org", "mail:", ":x", "mail:*@", "mail:*x", "mail:a*@example.org"])
def test_a_name_in_the_configuration_that_could_match_nobody_is_refused_with_its_place(name: str) -> None:
    with pytest.raises(ConfigError, match=r"senders\.allow\[0\]\.senders\[0\]"):
        from_mapping({"senders": {"allow": [{"senders": [name]}]}})
    with pytest.raises(ConfigError, match=r"senders\.deny\[0\]"):
        from_mapping({"senders": {"deny": [name]}})


def test_everybody_on_a_channel_cannot_be_trusted() -> None:
    with pytest.raises(ConfigError, match="everybody on that channel"):
        from_mapping({"senders": {"allow": [{"senders": ["mail:*"]}]}})
    assert from_mapping({"senders": {"allow": [{"senders": ["mail:*"], "trust": "untrusted"}]}})


# -- the policy


def test_the_most_exact_name_counts() -> None:
    settings = from_mapping({"senders": {
        "allow": [{"senders": [ALICE], "person": "alice"}, {"senders": ["mail:*@example.net"], "trust": "untrusted"}],
        "deny": ["mail:*@example.org", "mail:eve@example.net"],
    }}).senders  # fmt: skip
    rules = rules_of(settings)
    assert judged(ALICE, rules).person == "alice"
    assert judged(ALICE, rules).trust == "trusted"
    assert judged("mail:mallory@example.org", rules).verdict == "denied"
    assert judged(BOB, rules).trust == "untrusted"
    assert judged("mail:eve@example.net", rules).verdict == "denied"
    assert judged("mail:x@evil.example.net", rules).verdict == "unknown"
    assert judged("mail:x@example.org@evil.net", rules).verdict == "unknown"
    assert judged("chat:alice@example.org", rules).verdict == "unknown"


def test_what_a_person_decided_stands_before_a_list_and_behind_an_exact_denial() -> None:
    rules = rules_of(from_mapping({"senders": {"allow": [{"senders": [ALICE]}], "deny": [BOB]}}).senders)
    denied, allowed = SenderRow(ALICE, "main", "denied"), SenderRow(BOB, "main", "allowed")
    assert judged(ALICE, rules, denied).verdict == "denied"
    assert judged(BOB, rules, allowed).verdict == "denied"


def test_codes_are_random_and_kept_as_digests() -> None:
    codes = {new_code() for _ in range(1000)}
    assert len(codes) == 1000
    assert all(set(code) <= {*ALPHABET, "-"} and len(code) == 9 for code in codes)
    digest = digest_of("K7QF-2M9X", "salt")
    assert "K7QF" not in digest
    assert is_same(digest, " k7qf2m9x ", "salt")
    assert not is_same(digest, "K7QF-2M9Y", "salt")
    assert not is_same(digest, "K7QF-2M9X", "other salt")


# -- the table


async def test_an_unknown_sender_is_told_a_code_once_a_day_and_paired_by_it(
    memory: Memory, clock: VirtualClock
) -> None:
    shared = core(clock)
    met, decided = [], []
    shared.events.subscribe(SenderMet, met.append)
    shared.events.subscribe(SenderDecided, decided.append)
    senders = Senders(shared, memory)
    first = await senders.meet("mail", "Bob@example.net")
    assert (first.sender, first.verdict, first.is_allowed) == (BOB, "unknown", False)
    assert (await senders.meet("mail", "bob@example.net")).answer == ""  # not twice a day
    [row] = await senders.rows()
    assert (row.id, row.messages, row.status) == (BOB, 2, "waiting")
    row = await senders.pair(code_in(first.answer).lower(), person="bob", by="local")
    assert (row.id, row.status, row.person, row.trust) == (BOB, "allowed", "bob", "trusted")
    again = await senders.meet("mail", "bob@example.net")
    assert (again.verdict, again.person, again.trust, again.answer) == ("allowed", "bob", "trusted", "")
    with pytest.raises(LookupError, match="no sender was told that code"):  # a code is good once
        await senders.pair(code_in(first.answer))
    assert [event.messages for event in met] == [1, 2]
    assert [(event.sender, event.status, event.by) for event in decided] == [(BOB, "allowed", "local")]


async def test_what_was_decided_and_told_survives_the_process_and_the_code_is_not_on_disk(
    tmp_path: Path, clock: VirtualClock
) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with Memory.open(url) as memory:
        senders = Senders(core(clock), memory)
        code = code_in((await senders.meet("mail", "bob@example.net")).answer)
        await senders.deny("mail:eve@example.net")
        assert code not in json.dumps([record.value for record in await memory.records("sender")])
    async with Memory.open(url) as memory:
        senders = Senders(core(clock), memory)
        await senders.open()
        assert (await senders.meet("mail", "bob@example.net")).answer == ""
        assert (await senders.meet("mail", "eve@example.net")).verdict == "denied"
        assert (await senders.pair(code, trust="untrusted")).trust == "untrusted"


async def test_a_code_expires_and_the_next_day_another_is_told(memory: Memory, clock: VirtualClock) -> None:
    senders = Senders(core(clock, expires="2h"), memory)
    first = await senders.meet("mail", "bob@example.net")
    await clock.advance(2 * 3600)
    with pytest.raises(LookupError, match="has expired"):
        await senders.pair(code_in(first.answer))
    await clock.advance(22 * 3600)
    second = await senders.meet("mail", "bob@example.net")
    assert code_in(second.answer) != code_in(first.answer)
    assert (await senders.pair(code_in(second.answer))).status == "allowed"


async def test_codes_cannot_be_tried_without_end(memory: Memory, clock: VirtualClock) -> None:
    senders = Senders(core(clock), memory)
    code = code_in((await senders.meet("mail", "bob@example.net")).answer)
    for _ in range(MOST_TRIES):
        with pytest.raises(LookupError):
            await senders.pair("AAAA-AAAA")
    with pytest.raises(TransientError, match="wrong codes were tried") as refusal:
        await senders.pair(code)
    await clock.advance(refusal.value.retry_after or 0)
    assert (await senders.pair(code)).status == "allowed"


async def test_codes_that_are_tried_at_once_count_one_by_one(memory: Memory, clock: VirtualClock) -> None:
    senders = Senders(core(clock), memory)
    tried = [senders.pair("AAAA-AAAA") for _ in range(MOST_TRIES * 3)]
    found = await asyncio.gather(senders.meet("mail", "bob@example.net"), *tried, return_exceptions=True)
    assert sum(isinstance(each, LookupError) for each in found) == MOST_TRIES
    assert sum(isinstance(each, TransientError) for each in found) == MOST_TRIES * 2


async def test_invented_senders_fill_neither_the_disk_nor_anybodys_mailbox(memory: Memory, clock: VirtualClock) -> None:
    senders = Senders(core(clock, limit=3), memory)
    answers = [(await senders.meet("mail", f"x{number}@evil.net")).answer for number in range(50)]
    assert sum(map(bool, answers)) == 3
    assert len(await memory.records("sender")) == senders.waiting == 3
    assert senders.refused["mail", "unknown"] == 50
    await clock.advance(86_401)  # their codes have expired: there is room again
    assert (await senders.meet("mail", "bob@example.net")).answer
    assert len(await memory.records("sender")) == 3


async def test_a_new_sender_costs_the_same_however_many_were_decided_about(clock: VirtualClock) -> None:
    async def steps(decided: int) -> int:
        senders = Senders(core(clock), None)
        for number in range(decided):
            await senders.allow(f"mail:known{number}@example.org")
        await senders.meet("mail", "first@example.net")
        with Effort() as counted:
            await senders.meet("mail", "second@example.net")
        return counted.steps

    assert await steps(1_000) < 1.5 * await steps(10)


async def test_a_sender_whose_address_is_not_proven_is_told_nothing_and_not_kept(
    memory: Memory, clock: VirtualClock
) -> None:
    senders = Senders(core(clock, allow=[{"senders": [ALICE]}]), memory)
    for address in ("alice@example.org", "bob@example.net", "no address"):
        admission = await senders.meet("mail", address, is_verified=False)
        assert (admission.verdict, admission.answer, admission.is_allowed) == ("unverified", "", False)
    assert await memory.records("sender") == []
    assert senders.refused["mail", "unverified"] == 3


async def test_nobody_is_told_a_code_where_unknown_senders_are_ignored(memory: Memory, clock: VirtualClock) -> None:
    senders = Senders(core(clock, unknown="ignore"), memory)
    assert (await senders.meet("mail", "bob@example.net")).answer == ""
    assert [row.expires_at for row in await senders.rows()] == [None]


async def test_people_allow_deny_and_forget_by_name(memory: Memory, clock: VirtualClock) -> None:
    senders = Senders(core(clock, deny=["mail:eve@example.net"]), memory)
    assert (await senders.allow("mail:Bob@example.net", person="bob")).id == BOB
    assert (await senders.meet("mail", "bob@example.net")).is_allowed
    assert (await senders.deny(BOB)).person == "bob"
    assert (await senders.meet("mail", "bob@example.net")).answer == ""
    assert (await senders.forget(BOB)).status == "denied"
    assert (await senders.meet("mail", "bob@example.net")).verdict == "unknown"
    with pytest.raises(LookupError, match="was met or decided about"):
        await senders.forget("mail:carol@x.org")
    with pytest.raises(ConflictError, match="denied by the configuration"):
        await senders.allow("mail:eve@example.net")
    with pytest.raises(ValueError, match="must be channel:address"):
        await senders.allow("bob")


async def test_an_agent_without_a_memory_knows_senders_for_as_long_as_it_lives(clock: VirtualClock) -> None:
    senders = Senders(core(clock), None)
    await senders.open()
    code = code_in((await senders.meet("mail", "bob@example.net")).answer)
    assert (await senders.pair(code)).status == "allowed"


# -- the doors


async def test_a_reload_lets_in_and_shuts_out_at_once() -> None:
    async with Agent(loop_interval="off", attach=["senders"]) as agent:
        assert not agent.attachments.get("senders").knows("mail", "alice@example.org")
        agent.apply(from_mapping({"senders": {"allow": [{"senders": [ALICE]}]}}))
        assert agent.attachments.get("senders").knows("mail", "alice@example.org")
        agent.apply(from_mapping({"senders": {"deny": [ALICE]}}))
        assert (await agent.attachments.get("senders").meet("mail", "alice@example.org")).verdict == "denied"
