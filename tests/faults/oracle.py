"""Judges one killed and restarted agent from outside: its ledgers against its database.

It shares no code with what it judges, and believes the ledgers. What it looks for, by kind of finding:

    lost        something promised that has not come to its end, or a step that never happened with nothing in its way
    doubled     one event taken twice, or an effect that happened twice; a call begun again after it had ended well
    silent      a call that may have happened and of which nobody is told that it is in doubt
    unlearnt    a cycle without its experience, on the tape or in the index; `relearnt`: with more than one
    unapproved  an effect without the approval of exactly this, or against a refusal
    overspent   something was used that its budget does not know of, or more was counted than could be used
    broken      the chain of facts or the file does not hold
    left        processes or files that outlived their agent
    stuck       work that did not come to its end in time, or died for another reason than it was given
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, TypeAlias

import apsw
from msgspec import Struct, field

from tests.faults.rows import UNREADABLE, Connection, connect, connect_to, first, left_open, tables
from tests.faults.world import Want, World

Step: TypeAlias = tuple[str, str]  # event, step

#: How the experience of a whole run says what it came to.
_SEQUENCE = re.compile(r": \d+ calls in \d+ steps$")
#: Lives that one event may cost until it is put aside.
DEATHS = 3
KINDS = ("lost", "doubled", "silent", "unlearnt", "relearnt", "unapproved", "overspent", "broken", "left", "stuck")


class Finding(Struct, frozen=True, order=True):
    kind: str
    what: str


class Judgement(Struct):
    """`in_doubt` and `dead` are allowed, and counted: somebody was told."""

    findings: list[Finding] = field(default_factory=list)
    in_doubt: int = 0
    dead: int = 0

    @property
    def is_clean(self) -> bool:
        return not self.findings


class Case:
    """What there is to know about one world at its end."""

    def __init__(self, world: World, wants: Sequence[Want]) -> None:
        self.world, self.wants = world, wants
        self.effects = world.effects.read()
        self.events = world.events.read()
        connection = connect(world)
        try:
            self._read(connection)
        finally:
            connection.close()

    def _read(self, connection: Connection) -> None:
        there = tables(self.world, connection)

        def rows(table: str, columns: str, more: str = "") -> list[tuple[Any, ...]]:
            return (
                list(connection.execute(f"SELECT {columns} FROM {table} {more}"))
                if table.partition(" ")[0] in there
                else []
            )

        #: A server checks its pages itself.
        self.integrity = "ok" if self.world.is_on_server else first(connection, "PRAGMA integrity_check")
        self.facts = rows("fact", "seq, at, work, call, kind, body, link", "ORDER BY seq")
        self.items = {id: (state, key, _value(body)) for id, state, key, body in rows("item", "id, state, key, body")}
        self.doubts = [(answer, _value(body)) for answer, body in rows("doubt", "answer, body", "ORDER BY at")]
        self.tape = {id: _value(body).get("record", {}) for id, body in rows("cycle", "id, body")}
        self.experiences = {seq: _value(body) for seq, body in rows("experience", "seq, body")}
        #: The cycles that came to an experience of their own, each as often as it did: like ones are one row. A run of
        #: several steps that is over has one besides, of all its calls.
        merged = "JOIN experience AS e ON e.seq = s.experience"
        learnt = rows("experience", "cycle, body") + rows("experience_source AS s", "s.cycle, e.body", merged)
        self.learnt = [cycle for cycle, body in learnt if not _SEQUENCE.search(_value(body)["outcome"])]
        self.indexed = {seq for (seq,) in rows("experience_text", "seq" if self.world.is_on_server else "rowid")}
        self.approvals = [_value(value) for (value,) in rows("record", "value", "WHERE kind = 'approval'")]
        self.spent = Counter[str]()
        for quantity, used in rows("spent", "quantity, used", "WHERE \"window\" LIKE 'hour:%'"):
            self.spent[quantity] += used
        anchor = rows("state", "value", "WHERE key = 'chain'")
        self.anchor = _value(anchor[0][0]) if anchor else None

    @cached_property
    def steps(self) -> dict[tuple[str, str], Step]:
        """Which step a call is, by cycle and call."""
        found: dict[tuple[str, str], Step] = {}
        for _, _, work, _, kind, body, _ in self.facts:
            if kind == "planned":
                for wire in json.loads(body):
                    found.setdefault((work, wire["_id"]), (wire["event"], wire["step"]))
        return found

    @cached_property
    def in_doubt(self) -> dict[Step, str | None]:
        """The steps of which somebody is told that they are in doubt, and what was answered at last."""
        return {(call["params"]["event"], call["params"]["step"]): answer
                for answer, call in ((answer, body["call"]) for answer, body in self.doubts)}  # fmt: skip

    @cached_property
    def dead(self) -> set[str]:
        """The events that were put aside, of which somebody is told."""
        return {body["item"]["perception"]["content"] for state, _, body in self.items.values() if state == "dead"}

    def of(self, want: Want) -> list[dict[str, Any]]:
        return [line for line in self.effects if (line["event"], line["step"]) == (want.event, want.step)]


def _value(body: str) -> Any:
    """The value of a body that may have a checksum behind it, in a line of its own."""
    return json.loads(body.partition("\n")[0])


def judge(world: World, wants: Sequence[Want], *, left: int = 0, excused: frozenset[str] = frozenset()) -> Judgement:
    """What is wrong with this world. `left` processes outlived it; `excused` events are meant to be put aside."""
    try:
        case = Case(world, wants)
    except UNREADABLE as error:
        return Judgement([Finding("broken", f"the file cannot be read: {error}")])
    found = Judgement(in_doubt=len(case.doubts), dead=len(case.dead))
    checks = (_promised, _happened, _told, _learnt, _approved, _spent, _chained)
    found.findings = sorted({Finding(*each) for check in checks for each in check(case)})
    found.findings += [Finding("stuck", f"{event} was put aside") for event in sorted(case.dead - excused)]
    found.findings += [Finding("stuck", f"{count} of {name}") for name, count in left_open(world).items()]
    for event in sorted(excused):
        deaths = sum(line["told"] == "dying" and line["event"] == event for line in world.marks.read())
        if event not in case.dead or deaths != DEATHS:
            is_aside = "put aside" if event in case.dead else "not put aside"
            found.findings.append(Finding("stuck", f"{event} was {is_aside} after {deaths} deaths"))
    if left:
        found.findings.append(Finding("left", f"{left} processes"))
    if more := sum(line["files"] for line in world.marks.read() if line["told"] == "ended"):
        found.findings.append(Finding("left", f"{more} open files"))
    return found


Found: TypeAlias = Iterator[tuple[str, str]]


def _promised(case: Case) -> Found:
    """I1: what was promised was taken once and has come to its end."""
    runs = defaultdict[str, set[str]](set)
    for line in case.events:
        if line["told"] == "acked" and "run" in line:
            runs[line["event"]].add(line["run"])
    for event, ids in runs.items():
        if len(ids) > 1:
            yield "doubled", f"{event} was taken as {len(ids)} runs"
        for id in ids:
            state = case.items.get(id, ("forgotten",))[0]
            if state not in ("done", "dead"):
                yield "lost", f"{event} was promised as a run, which is {state}"
    for name, count in Counter(key for _, key, _ in case.items.values() if key).items():
        if count > 1:
            yield "doubled", f"{count} items have the key {name}"


def _happened(case: Case) -> Found:
    """I2: each step happened as often as its effect allows and as nothing stood in its way."""
    promised = {line["event"] for line in case.events if line["told"] == "acked"}
    hindered = {(want.event, want.step) for want in case.wants if want.is_refused}
    for want in case.wants:
        step, lines = (want.event, want.step), case.of(want)
        times = len({line["key"] for line in lines}) if want.effect == "idempotent" else len(lines)
        if want.effect != "read" and times > 1:
            keys = "different keys" if want.effect == "idempotent" else "attempts"
            yield "doubled", f"{want.event}/{want.step} ({want.effect}) happened under {times} {keys}"
        if step in case.in_doubt or any((want.event, other) in hindered for other in want.after):
            hindered.add(step)
        is_due = want.event in promised and step not in hindered and want.event not in case.dead
        if not lines and is_due:
            yield "lost", f"{want.event}/{want.step} ({want.effect}) never happened"
        if not lines and case.in_doubt.get(step) == "again" and want.event not in case.dead:
            yield "lost", f"{want.event}/{want.step} was to be made again and never happened"


def _told(case: Case) -> Found:
    """I2, I3: the journal knows of each effect; nothing is begun again after it ended well."""
    started, well = dict[Step, str](), dict[Step, str]()
    closed = set[Step]()
    for _, _, work, call, kind, body, _ in case.facts:
        step = case.steps.get((work, call))
        if step is None:
            continue
        told = json.loads(body)
        if kind == "started":
            if step in well:
                yield "doubled", f"{'/'.join(step)} was begun again after it had ended well"
            started[step] = told["effect"]
            closed.discard(step)
        elif kind == "ended":
            closed.add(step)
            if told["status"] == "ok":
                well[step] = work
    for step, effect in started.items():
        if effect == "once" and step not in closed and step not in case.in_doubt and step[0] not in case.dead:
            yield "silent", f"{'/'.join(step)} was begun, has no end, and nobody is told"
    happened = {(line["event"], line["step"]): line for line in case.effects}
    for step in well.keys() - happened.keys():
        yield "lost", f"{'/'.join(step)} is told to have ended well and never happened"
    if case.facts:
        for step, line in happened.items():
            is_told = step in closed or step in case.in_doubt or step[0] in case.dead
            if line["effect"] == "once" and not is_told:
                yield "silent", f"{'/'.join(step)} happened and the journal does not know"


def _learnt(case: Case) -> Found:
    """I4: one experience for each cycle that did something; all of them in the index."""
    origins = Counter(filter(None, case.learnt))
    for cycle, count in origins.items():
        if count > 1:
            yield "relearnt", f"cycle {cycle} has {count} experiences"
    acted = {id for id, body in case.tape.items() if (body.get("result") or {}).get("results")}
    for cycle in acted - origins.keys():
        yield "unlearnt", f"cycle {cycle} has no experience"
    for work in {work for _, _, work, _, kind, _, _ in case.facts if kind == "started"} - case.tape.keys():
        yield "unlearnt", f"cycle {work} began calls and is not on the tape"
    if case.indexed != case.experiences.keys():
        yield "unlearnt", f"{len(case.experiences)} experiences, {len(case.indexed)} in the index"


def _approved(case: Case) -> Found:
    """I5: an effect that people are asked about has an approval of exactly this, used once."""
    said = case.world.approvals.read()
    for want in case.wants:
        lines = case.of(want)
        if want.is_refused and lines:
            yield "unapproved", f"{want.event}/{want.step} happened although it was refused"
        if not want.asks:
            continue
        of_this = [row for row in case.approvals if _is_about(row["call"]["params"], want)]
        used = [row["digest"] for row in of_this if row["status"] == "used"]
        approved = {line["digest"] for line in said if _is_about(line, want) and line["decision"] == "approve"}
        if len(lines) > len(used):
            yield "unapproved", f"{want.event}/{want.step} happened {len(lines)} times by {len(used)} approvals"
        for _ in set(used) - approved:
            yield "unapproved", f"an approval of {want.event}/{want.step} was used that nobody gave"
    rows = {row["id"]: row["status"] for row in case.approvals}
    for line in said:
        if line["told"] == "decided":
            status = rows.get(line["approval"], "forgotten")
            if line["counted"] and status in ("pending", "forgotten"):
                yield "lost", f"the answer to {line['event']}/{line['step']} is {status}"
            if line["counted"] > 1:
                yield "doubled", f"{line['counted']} answers to {line['event']}/{line['step']} counted"


def _is_about(fact: dict[str, Any], want: Want) -> bool:
    return (fact["event"], fact["step"]) == (want.event, want.step)


def _spent(case: Case) -> Found:
    """I7: what was used is counted, before it is used; of what broke off no more than was reserved."""
    tokens = Counter[str]()
    for line in case.world.bills.read():
        tokens[line["told"]] += line["tokens"]
    used = case.spent["tokens"]
    if not tokens["billed"] <= used <= tokens["asked"]:
        yield (
            "overspent",
            f"{used} tokens are counted, of {tokens['asked']} asked for, where {tokens['billed']} were used",
        )
    effects = sum(line["effect"] != "read" for line in case.effects)
    if case.spent["effects"] < effects:
        yield "overspent", f"{effects} effects happened and {case.spent['effects']} are counted"


def _chained(case: Case) -> Found:
    """I6: the file is whole, and so is a copy of it where there is one; each fact is linked to the one before it."""
    if case.integrity != "ok":
        yield "broken", case.integrity
    if case.world.copy.exists() and (found := _copied(case.world)) != "ok":
        yield "broken", f"the copy: {found}"
    number, before = (case.anchor["seq"], bytes.fromhex(case.anchor["link"])) if case.anchor else (0, bytes(32))
    for seq, at, work, call, kind, body, found in case.facts:
        number, before = number + 1, link(before, seq, at, work, call, kind, body)
        if seq != number or found != before:
            yield "broken", f"fact {seq} does not follow on fact {number - 1}"
            return


def _copied(world: World) -> str:
    copy = connect_to(world.copy)
    try:
        return str(first(copy, "PRAGMA integrity_check"))
    except apsw.Error as error:
        return str(error)
    finally:
        copy.close()


def link(before: bytes, seq: int, at: float, work: str, call: str, kind: str, body: str) -> bytes:
    """What the chain of facts must say of this one, as it is written down."""
    head = struct.pack("<qdiiii", seq, at, len(work), len(call), len(kind), len(body))
    return sha256(before + head + f"{work}{call}{kind}{body}".encode("utf-8", "surrogatepass")).digest()
