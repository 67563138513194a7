"""The oracle is not blind: of a world that is in order it says so, and of each thing that is wrong with it what."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.faults.ledger import Ledger
from tests.faults.lives import Order, Zygote
from tests.faults.oracle import judge, link
from tests.faults.workloads import WORKLOADS
from tests.faults.world import World

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    """The folder of one undisturbed life of a workload, of which nothing may be changed."""
    found: dict[str, Path] = {}
    with Zygote() as zygote:

        def live(workload: str) -> Path:
            if workload not in found:
                found[workload] = folder = tmp_path_factory.mktemp(workload)
                life = zygote.live(Order(workload, folder))
                assert life.code == 0, (folder / "out").read_text()
            return found[workload]

        yield live


@pytest.fixture
def world(lived: Callable[[str], Path], tmp_path: Path) -> Callable[[str], World]:
    """A copy of it, which may."""

    def copy(workload: str) -> World:
        return World(Path(shutil.copytree(lived(workload), tmp_path / workload)))

    return copy


def kinds(workload: str, world: World, **more: Any) -> set[str]:
    return {finding.kind for finding in judge(world, WORKLOADS[workload].wants, **more).findings}


# -- what is done to a world


def statement(sql: str, *bindings: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        connection = apsw.Connection(str(world.database))
        assert connection.execute(sql, bindings) is not None
        assert connection.changes(), "it would be the same as before"
        chained(connection)
        connection.close()

    return change


def chained(connection: apsw.Connection) -> None:
    """Link the facts anew, as who writes them does: what was done to them is seen by what they say."""
    before = bytes(32)
    rows = list(connection.execute("SELECT seq, at, work, call, kind, body FROM fact ORDER BY seq"))
    connection.execute("DELETE FROM fact")
    for number, (_, *row) in enumerate(rows, 1):
        before = link(before, number, *row)
        connection.execute("INSERT INTO fact VALUES (?, ?, ?, ?, ?, ?, ?)", (number, *row, before))


def without(name: str, **fields: Any) -> Callable[[World], None]:
    """The lines of a ledger that have these fields are not there."""

    def change(world: World) -> None:
        ledger: Ledger = getattr(world, name)
        lines = ledger.read()
        kept = [line for line in lines if any(line[key] != value for key, value in fields.items())]
        assert len(kept) < len(lines)
        ledger.path.write_text("".join(json.dumps(line) + "\n" for line in kept))

    return change


def again(name: str, changes: dict[str, Any], **fields: Any) -> Callable[[World], None]:
    """A line that has these fields is there once more, changed."""

    def change(world: World) -> None:
        ledger: Ledger = getattr(world, name)
        line = next(line for line in ledger.read() if all(line.get(key) == value for key, value in fields.items()))
        ledger.write(**{**line, **changes})

    return change


def bent(world: World) -> None:
    """One fact says something else, and its link is left as it is."""
    connection = apsw.Connection(str(world.database))
    connection.execute("UPDATE fact SET body = replace(body, 'ok', 'no') WHERE kind = 'ended' AND seq > 5")
    connection.close()


def torn(world: World) -> None:
    """A page in the middle of the file is another one."""
    with world.database.open("r+b") as file:
        file.seek(4096 * (world.database.stat().st_size // 8192))
        file.write(b"\xff" * 4096)


def of_step(event: str, step: str, kind: str) -> str:
    """Facts of a kind about one step's call."""
    return (
        f"kind = '{kind}' AND (work, call) IN (SELECT fact.work, json_extract(each.value, '$._id') FROM fact, "
        f"json_each(fact.body) each WHERE fact.kind = 'planned' AND json_extract(each.value, '$.event') = '{event}' "
        f"AND json_extract(each.value, '$.step') = '{step}')"
    )


#: The value of a row, without the checksum behind it.
_ROW = "substr(value, 1, instr(value || char(10), char(10)) - 1)"
_RUN = "(SELECT id FROM item WHERE key = 'key-m1')"
DOCTORED: dict[str, tuple[str, Callable[[World], object], str]] = {
    "a promised run is forgotten": ("rules", statement(f"DELETE FROM item WHERE id = {_RUN}"), "lost"),
    "a promised run waits for ever": (
        "rules", statement(f"UPDATE item SET state = 'waiting' WHERE id = {_RUN}"), "stuck"),
    "a cycle stays open": (
        "rules", statement("INSERT INTO open_cycle VALUES ('c', 'main', 1, '{}')"), "stuck"),
    "something is put aside without a reason": (
        "rules", statement(f"UPDATE item SET state = 'dead', body = ? WHERE id = {_RUN}",
                           json.dumps({"item": {"perception": {"content": "m1"}}})), "stuck"),
    "one key is taken as two runs": ("rules", again("events", {"run": "another"}, told="acked", event="m1"), "doubled"),
    "a file was never seen": ("rules", statement("DELETE FROM own_row WHERE owner GLOB 'sensor:*'"), "stuck"),
    "a read never happened": ("rules", without("effects", event="m1", step="look"), "lost"),
    "what may not be repeated never happened": ("graph", without("effects", event="g1", step="o3"), "lost"),
    "nothing came of a file": ("rules", without("effects", event="f1"), "lost"),
    "what may not be repeated happened twice": ("graph", again("effects", {}, event="g1", step="o3"), "doubled"),
    "what may be repeated happened under two keys": (
        "graph", again("effects", {"key": "another"}, event="g1", step="i1"), "doubled"),
    "an effect has no end and is not in doubt": (
        "graph", statement(f"DELETE FROM fact WHERE {of_step('g1', 'o3', 'ended')}"), "silent"),
    "an effect that the journal never began": (
        "graph", statement(f"DELETE FROM fact WHERE {of_step('g1', 'o3', 'ended')} "
                           f"OR {of_step('g1', 'o3', 'started')}"), "silent"),
    "a call is begun again after it ended well": (
        "graph", statement("INSERT INTO fact SELECT (SELECT max(seq) FROM fact) + 1, at, work, call, kind, body, link "
                           f"FROM fact WHERE {of_step('g1', 'i1', 'started')}"), "doubled"),
    "a cycle has no experience": (
        "graph", statement("DELETE FROM experience WHERE seq = (SELECT min(seq) FROM experience)"), "unlearnt"),
    "a cycle has two experiences": (
        "graph", statement("INSERT INTO experience (id, at, bytes, session, task, success, lesson, body, cycle) SELECT "
                           "'another', at, bytes, session, task, success, lesson, body, cycle FROM experience LIMIT 1"),
        "relearnt"),
    "an experience cannot be found": (
        "graph", statement("DELETE FROM experience_text WHERE rowid = (SELECT min(seq) FROM experience)"), "unlearnt"),
    "a cycle that acted is not on the tape": ("graph", statement("DELETE FROM cycle"), "unlearnt"),
    "nobody approved it": ("approval", without("approvals", event="a1"), "unapproved"),
    "another call was approved": (
        "approval", statement(f"UPDATE record SET value = json_set({_ROW}, '$.digest', 'f00') WHERE kind = 'approval' "
                              f"AND json_extract({_ROW}, '$.status') = 'used'"), "unapproved"),
    "its approval was never used": (
        "approval", statement(f"UPDATE record SET value = json_set({_ROW}, '$.status', 'expired') "
                              f"WHERE kind = 'approval' AND json_extract({_ROW}, '$.status') = 'used'"), "unapproved"),
    "it happened although it was refused": (
        "approval", again("effects", {"event": "a3"}, event="a1", step="sign"), "unapproved"),
    "one approval let it happen twice": ("approval", again("effects", {}, event="a1", step="sign"), "unapproved"),
    "a person's answer is forgotten": (
        "approval", statement("DELETE FROM record WHERE kind = 'approval' "
                              f"AND json_extract({_ROW}, '$.status') = 'denied'"), "lost"),
    "two answers to one question counted": (
        "approval", again("approvals", {"counted": 2}, told="decided", event="a1"), "doubled"),
    "what waits for people is forgotten": (
        "approval", statement("INSERT INTO record VALUES ('parked', 'p', 1, '{}')"), "stuck"),
    "less is counted than was used": ("graph", statement("UPDATE spent SET used = used - 60"), "overspent"),
    "more is counted than was asked for": ("graph", statement("UPDATE spent SET used = used + 600"), "overspent"),
    "an effect is not counted": (
        "rules", statement("UPDATE spent SET used = used - 1 WHERE quantity = 'effects'"), "overspent"),
    "a fact says something else": ("graph", bent, "broken"),
    "the file is damaged": ("graph", torn, "broken"),
    "a copy is no copy": ("graph", lambda world: world.copy.write_bytes(b"half" * 4096), "broken"),
    "files are left open": (
        "rules", lambda world: world.marks.write(told="ended", after=0.0, files=2), "left"),
}  # fmt: skip


@pytest.mark.parametrize("workload", ["rules", "approval", "graph"])
def test_an_undisturbed_life_is_in_order(world: Callable[[str], World], workload: str) -> None:
    judgement = judge(world(workload), WORKLOADS[workload].wants)

    assert judgement.findings == []
    assert (judgement.in_doubt, judgement.dead) == (0, 0)


@pytest.mark.parametrize("doctored", DOCTORED)
def test_what_is_wrong_is_found(world: Callable[[str], World], doctored: str) -> None:
    workload, change, kind = DOCTORED[doctored]
    there = world(workload)
    change(there)

    assert kind in kinds(workload, there)


def test_processes_that_are_left_are_found(world: Callable[[str], World]) -> None:
    assert kinds("graph", world("graph"), left=1) == {"left"}


def test_a_call_that_somebody_is_told_to_be_in_doubt_is_counted_and_nothing_is_wrong(
    world: Callable[[str], World],
) -> None:
    there = world("graph")
    call = {"call": {"params": {"event": "g1", "step": "s4"}}}
    statement(f"DELETE FROM fact WHERE {of_step('g1', 's4', 'ended')}")(there)
    statement("INSERT INTO doubt VALUES ('d', 'main', 0, NULL, ?)", json.dumps(call))(there)
    judgement = judge(there, WORKLOADS["graph"].wants)

    assert (judgement.findings, judgement.in_doubt) == ([], 1)


def test_what_was_to_be_made_again_and_was_not_is_lost(world: Callable[[str], World]) -> None:
    there = world("graph")
    call = {"call": {"params": {"event": "g1", "step": "o3"}}}
    without("effects", event="g1", step="o3")(there)
    statement(f"DELETE FROM fact WHERE {of_step('g1', 'o3', 'ended')}")(there)
    statement("INSERT INTO doubt VALUES ('d', 'main', 0, 'again', ?)", json.dumps(call))(there)

    assert "lost" in kinds("graph", there)


def test_who_was_to_be_put_aside_and_was_not_is_found(world: Callable[[str], World]) -> None:
    assert "stuck" in kinds("rules", world("rules"), excused=frozenset({"x"}))
