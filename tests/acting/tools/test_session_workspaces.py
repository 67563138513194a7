"""A workspace for each session: tools see that one alone, whatever the key of the session is."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acting import Executor
from acting.tooling.bound_tool import entry_of
from acting.tools.files import FilesTool
from acting.tools.shell import ShellTool
from memory import Memory
from spar import Action, Agent, Call, Context, Perception
from spar.errors import ConflictError
from spar.protocols.host import Home, own_parts
from spar.testing import VirtualClock
from tests.acting.approval_tools import on_hand
from tests.session.shown import shown

#: Keys that strangers may choose.
KEYS = (
    "alice",
    "Alice",
    "../bob",
    "mail:a/b@x.org",
    "..",
    ".",
    "",
    "\0",
    "a" * 256,
    "ä",
    "\udcff",
    "sessions",
    "a b",
    "-",
)


def home_at(folder: Path, *, is_split: bool = True) -> Home:
    for name in ("config", "workspace", "state"):
        (folder / name).mkdir(exist_ok=True)
    return Home(str(folder / "config"), str(folder / "workspace"), str(folder / "state"), is_split)


@given(st.one_of(st.sampled_from(KEYS), st.text(max_size=300)))
def test_the_folder_of_a_session_is_one_safe_name(key: str) -> None:
    first, name = own_parts(key)
    assert first == "sessions"
    assert 32 <= len(name) <= 73
    assert set(name) <= set(string.ascii_lowercase + string.digits + "-")


def test_no_two_sessions_have_the_same_folder() -> None:
    assert len({own_parts(key) for key in KEYS}) == len(KEYS)


async def acted(executor: Executor, key: str, *calls: Call) -> list[Any]:
    result = await executor.act(Action(calls, trust="trusted"), Context("main", f"c-{key}"[:60], session=key))
    return [each.output if each.status == "ok" else each.fault for each in result.results]


async def test_each_session_reads_and_writes_files_of_its_own(tmp_path: Path) -> None:
    executor = Executor([FilesTool(home=home_at(tmp_path))])
    async with executor:
        for key in KEYS:
            [found] = await acted(
                executor, key, Call("files", {"op": "write", "path": "me.txt", "content": f"of {own_parts(key)[1]}"})
            )
            assert found is not None, key
        for key in KEYS[:3]:
            [entries, text] = await acted(
                executor,
                key,
                Call("files", {"op": "list", "path": "."}),
                Call("files", {"op": "read", "path": "me.txt"}),
            )
            assert len(entries["entries"]) == 1
            assert text["content"] == f"of {own_parts(key)[1]}"
        names = [own_parts(key)[1] for key in KEYS]
        there = tmp_path / "workspace" / "sessions" / names[1] / "me.txt"
        for path, why in ((f"../{names[1]}/me.txt", "leads upwards"), (str(there), "lies outside")):
            [refused] = await acted(executor, "alice", Call("files", {"op": "read", "path": path}))
            assert why in f"{refused.message} {refused.detail}"
    made = sorted(each.name for each in (tmp_path / "workspace" / "sessions").iterdir())
    assert made == sorted(names)


def linked(home: Home, elsewhere: Path) -> Path:
    """Put a link in the place of the folders of sessions; return the folder where it leads for alice."""
    first, own = own_parts("alice")
    (elsewhere / own).mkdir(parents=True)
    Path(home.workspace).mkdir(exist_ok=True)
    Path(home.workspace, first).symlink_to(elsewhere)
    return elsewhere / own


async def test_a_link_in_the_place_of_a_session_s_folder_is_not_followed(tmp_path: Path) -> None:
    executor = Executor([FilesTool(home=home_at(tmp_path))])
    (tmp_path / "workspace" / "sessions").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "me.txt").write_text("secret")
    (tmp_path / "workspace" / "sessions" / own_parts("alice")[1]).symlink_to(tmp_path / "secret")
    async with executor:
        [refused] = await acted(executor, "alice", Call("files", {"op": "read", "path": "me.txt"}))
    assert "symbolic link" in refused.message


async def test_programs_of_a_session_work_in_its_folder(tmp_path: Path) -> None:
    executor = Executor([ShellTool(home=home_at(tmp_path), programs=["pwd"], sandbox=0)])
    async with executor:
        for key in ("alice", "../bob"):
            [found] = await acted(executor, key, Call("shell", {"argv": ["pwd"]}))
            assert found["stdout"].strip() == str(tmp_path / "workspace" / Path(*own_parts(key)))


async def test_sessions_that_act_side_by_side_do_not_meet(tmp_path: Path) -> None:
    executor = Executor([FilesTool(home=home_at(tmp_path))])
    async with executor:

        async def work(key: str) -> list[Any]:
            calls = [Call("files", {"op": "append", "path": "log.txt", "content": f"{key}\n"}) for _ in range(5)]
            return await acted(executor, key, *calls)

        await asyncio.gather(*[work(f"s{number}") for number in range(8)])
    for number in range(8):
        text = (tmp_path / "workspace" / Path(*own_parts(f"s{number}")) / "log.txt").read_text()
        assert text == f"s{number}\n" * 5


async def test_without_the_setting_all_sessions_share_the_workspace(tmp_path: Path) -> None:
    executor = Executor([FilesTool(home=home_at(tmp_path, is_split=False))])
    async with executor:
        await acted(executor, "alice", Call("files", {"op": "write", "path": "me.txt", "content": "hello"}))
        [found] = await acted(executor, "bob", Call("files", {"op": "read", "path": "me.txt"}))
    assert found["content"] == "hello"
    assert (tmp_path / "workspace" / "me.txt").exists()


@pytest.mark.parametrize("is_split", [False, True])
async def test_the_folder_is_shown_made_when_it_is_used_kept_over_a_reset_and_removed_when_forgotten(
    clock: VirtualClock, tmp_path: Path, is_split: bool
) -> None:
    home = home_at(tmp_path, is_split=is_split)

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is None:
            return None
        if context.run.goal == "write" and not context.run.messages:
            return Action((Call("files", {"op": "write", "path": "a/me.txt", "content": "hello"}),))
        return Action(output="done")

    agent = Agent(plan=plan, act=Executor([FilesTool(home=home)]), clock=clock, home=home,
                  loop_interval=0.1, memory=Memory(f"sqlite:///{tmp_path / 'm.db'}", ballast=0))  # fmt: skip
    folder = tmp_path / "workspace" / Path(*own_parts("alice"))
    async with agent:

        async def say(text: str) -> None:
            assert (await agent.wait((await agent.submit(text, session="alice")).run_id, 60)).status == "ok"

        await say("hello")
        assert (await shown(agent, "alice")).workspace == (str(folder) if is_split else "")
        assert not folder.exists()
        await say("write")
        assert folder.exists() == is_split
        await agent.reset("alice")
        assert folder.exists() == is_split
        await agent.conversations.resets.forget("alice")
        assert not folder.exists()
        assert (tmp_path / "workspace" / "a" / "me.txt").exists() != is_split


async def test_a_link_in_the_place_of_sessions_leads_to_no_folder_of_others(
    clock: VirtualClock, tmp_path: Path
) -> None:
    home = home_at(tmp_path, is_split=False)

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        return Action(output="done") if context.run is not None else None

    agent = Agent(plan=plan, clock=clock, home=home, loop_interval=0.1)
    theirs = linked(home, tmp_path / "other")
    async with agent:
        await agent.wait((await agent.submit("hello", session="alice")).run_id, 60)
        with pytest.raises(ConflictError, match="symbolic link"):
            await agent.conversations.resets.forget("alice")
    assert theirs.exists()


@pytest.mark.parametrize("decision", ["approve", "edit", "replace"])
async def test_a_decision_that_another_session_gives_holds_in_the_folder_of_the_call(
    tmp_path: Path, decision: Any
) -> None:
    rules = [{"tool": "shell", "decision": "ask"}]
    shell = ShellTool(home=home_at(tmp_path), programs=["pwd", "date"], sandbox=0)
    executor = Executor([shell], settings={"approval": {"rules": rules, "grantable": ["pwd"]}})
    async with executor:
        call = Call("shell", {"argv": ["pwd" if decision == "approve" else "date"]})
        context = Context("main", "c1", session="alice")
        first = await executor.act(Action((call,), trust="trusted"), context)
        assert first.results[0].reason == "parked"
        queue = executor.approvals
        (row,) = await queue.list()
        more: dict[str, Any] = {
            "approve": {"grant_for": 60.0},
            "edit": {"params": {"argv": ["pwd"]}},
            "replace": {"call": {"_tool": "shell", "argv": ["pwd"]}},
        }[decision]
        await queue.decide(row.id, row.digest, decision, by="ada", **more)
        second = await executor.act(on_hand(executor, "alice"), Context("main", "c2", session="alice"))
        assert second.results[0].status == "ok", second.results[0].fault
        found = second.results[0].output["stdout"].strip()
    assert found == str(tmp_path / "workspace" / Path(*own_parts("alice")))


def test_a_file_is_a_resource_of_its_session_wherever_that_is_asked(tmp_path: Path) -> None:
    entry = entry_of(FilesTool(home=home_at(tmp_path)))
    of_ann, of_bob = (entry.resources_of({"op": "write", "path": "x"}, session) for session in ("ann", "bob"))

    assert of_ann != of_bob
    assert of_ann == entry.resources_before({"op": "write", "path": "x"}, ("content",), "ann")
