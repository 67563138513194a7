"""What opened an incident can close it, and nothing that began after an end is hidden by it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import convert, to_builtins

from perception.incidents.keeping import Incidents
from perception.incidents.register import IncidentRegister
from perception.pipeline import Pipeline
from perception.stages.states import PAIRS
from perception.stages.wording import STATE_NAMES, TELLING
from spar.hooks import Hooks
from spar.protocols import Host
from spar.records.perceived import Incident
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Perception

START = datetime(2026, 11, 22, 12, tzinfo=UTC)
KINDS = ["alert", "anomaly", "alert.*", "host.*", "anomaly.*", "metric.*", "command.*", "feed.*", "heartbeat.*"]
BEGINS_AND_ENDS = [(begin, end) for begins, ends in PAIRS for begin in begins for end in ends]


class Source(NamedTuple):
    """One thing: how its sensor says that it begins and ends, and by what it can be recognised."""

    name: str
    words: tuple[str, str]
    says: str
    stem: str
    known_by: str
    key: str
    has_service: bool

    def perception(self, *, is_end: bool, at: float) -> Perception:
        word, number = self.words[is_end], str(at)
        attributes: dict[str, Any] = {"severity": "error"}
        kind, content, subject = self.stem, f"{self.name} valve", None
        if self.says == "kind":
            kind = f"{self.stem}.{word}"
        elif self.says == "first word":
            kind, content = "alert", f"{word.upper()}: {content}"
        else:
            attributes[self.says] = word
        if self.known_by == "subject":
            subject, content = self.name, content if kind.startswith("alert") else f"reading {number} {word}"
        elif self.known_by == "other words of a subject":
            subject = self.name
            content = f"{content} all is well" if is_end else f"{content} leaks"
            content = f"{word.upper()}: {content}" if self.says == "first word" else content
        elif self.known_by == "series and subject":
            subject, attributes["series"] = self.name, "pressure"
        elif self.known_by == "labels":
            attributes["labels"] = {"alertname": "Valve", "valve": self.name, "state": word}
        elif self.known_by != "words":
            attributes[self.known_by] = self.name
        if self.has_service:
            attributes["service"] = f"service-{self.name}"
        key = {"none": None, "of the thing": self.name, "of the state": f"{self.name} {word}"}[self.key]
        return Perception(content, source="sensor", kind=kind, key=key, subject=subject, attributes=attributes,
                          trust="trusted", at=START + timedelta(seconds=at))  # fmt: skip


sources = st.builds(
    Source,
    st.just(""),
    st.sampled_from(BEGINS_AND_ENDS),
    st.sampled_from(["kind", "first word", *STATE_NAMES]),
    st.sampled_from(["alert", "host.valve", "anomaly", "metric.valve", "command.check", "feed.page", "heartbeat.beat"]),
    st.sampled_from(["subject", "other words of a subject", "series", "series and subject", "fingerprint", "labels",
                     "words"]),
    st.sampled_from(["none", "of the thing", "of the state"]),
    st.booleans(),
)  # fmt: skip
several = st.lists(sources, min_size=1, max_size=3).map(
    lambda found: [source._replace(name=name) for source, name in zip(found, ("alpha", "beta", "gamma"), strict=False)]
)


@settings(deadline=None, max_examples=40)
@given(several, st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 9, 70, 400])), max_size=14))
@example(
    [Source("alpha", ("opened", "closed"), "kind", "anomaly", "subject", "none", has_service=False)], [(0, 400)] * 4
)
@example([Source("alpha", ("high", "normal"), "level", "host.valve", "words", "of the thing", True)], [(0, 9)] * 3)
def test_what_began_is_told_and_what_ended_closes_its_incident(
    things: list[Source], turns: list[tuple[int, int]]
) -> None:
    pipeline, is_on, at = Pipeline({"incidents": {"kinds": KINDS}}), dict.fromkeys(things, False), 0.0
    for place, pause in turns:
        thing = things[place % len(things)]
        at += pause + 1
        turn = thing.perception(is_end=is_on[thing], at=at)
        is_on[thing] = not is_on[thing]

        assert turn.id in told(pipeline.process([turn])), "neither a begin nor an end is hidden"
        assert firing(pipeline.incidents.open.values()) == sum(is_on.values())
    if not any(is_on.values()):
        assert not pipeline.incidents.open


@settings(deadline=None, max_examples=30)
@given(several, st.lists(st.integers(0, 2), max_size=9), st.lists(st.integers(1, 4), min_size=9, max_size=9))
@example(
    [Source("alpha", ("firing", "resolved"), "first word", "alert", "series", "none", has_service=False)],
    [0, 0, 0],
    [1, 2, 1, 1, 1, 1, 1, 1, 1],
)
def test_what_comes_together_is_told_and_ends_as_if_it_came_alone(
    things: list[Source], turns: list[int], sizes: list[int]
) -> None:
    pipeline, is_on = Pipeline({"incidents": {"kinds": KINDS}}), dict.fromkeys(things, False)
    left = list(enumerate(turns))
    for size in sizes:
        batch, left = left[:size], left[size:]
        states: list[tuple[Source, Perception]] = []
        for at, place in batch:
            thing = things[place % len(things)]
            states.append((thing, thing.perception(is_end=is_on[thing], at=at)))
            is_on[thing] = not is_on[thing]

        came_out = told(pipeline.process(state for _, state in states))
        assert came_out >= {state.id for state in dict(states).values()}, "the newest state of each is told"
        assert firing(pipeline.incidents.open.values()) == sum(is_on.values())


def firing(incidents: Iterable[Incident]) -> int:
    return sum(thing.state == "firing" for incident in incidents for thing in incident.things.values())


def told(perceptions: Iterable[Perception]) -> set[str]:
    return {each.id for perception in perceptions for each in (perception, *perception.evidence)}


def test_words_of_begins_and_ends_are_words_of_states() -> None:
    words = {word for pair in BEGINS_AND_ENDS for word in pair}

    assert {word.encode() for word in words} <= TELLING
    assert not {begin for begin, _ in BEGINS_AND_ENDS} & {end for _, end in BEGINS_AND_ENDS}


@pytest.mark.parametrize(
    ("series", "subject", "key"), [(None, None, None), (None, "pump", "reading"), ("pressure", "pump", None)]
)
def test_each_anomaly_of_a_series_opens_an_incident_and_closes_it(
    series: str | None, subject: str | None, key: str | None
) -> None:
    pipeline, noise = Pipeline(), random.Random(1)
    attributes = {"reading": True} | ({} if series is None else {"series": series})
    opened: list[int] = []
    closed = 0
    for point in range(3_100):
        value = 100 + 20 * math.sin(2 * math.pi * point / 288) + noise.gauss(0, 1)
        value += 60 if point in (526, 2_500, 3_000) else 0
        found = pipeline.process([
            Perception(source="sensor", kind="metric.value", subject=subject, key=key, trust="trusted",
                       at=START + timedelta(minutes=5 * point), attributes={**attributes, "value": value})
        ])  # fmt: skip
        opened += [point for each in found if each.kind == "incident.opened"]
        closed += sum(each.kind == "incident.closed" for each in found)

    assert {2_500, 3_000} <= set(opened)
    assert (len(opened), closed) == (pipeline.counts["anomaly"]["opened"], pipeline.counts["anomaly"]["closed"])
    assert not pipeline.incidents.open


def test_a_begin_that_is_told_once_is_news_although_the_end_before_it_was_not_heard() -> None:
    incidents = Pipeline().incidents
    begins = [
        Perception(f"load {n}", source="host", kind="anomaly.opened", subject="load", at=START + timedelta(hours=n),
                   attributes={"level": "high"}) for n in range(3)
    ]  # fmt: skip
    kinds = [[each.kind for each in incidents.fold([begin]).perceptions] for begin in begins]

    assert kinds == [["incident.opened"], ["anomaly.opened"], ["incident.grown"]]


GATE = [{"gate": 4, "state": "shut"}, {"gate": 4, "state": "open"}, {"gate": 4, "state": "shut"}]


@pytest.mark.parametrize(
    "contents",
    [
        GATE,
        [f"gate 4 is {state}" for state in ("shut", "open", "shut")],
        ["FIRING: gate", "RESOLVED: gate", "FIRING: gate"],
        [1, 2, 1],
        [1.5, 2.5, 1.5],
        [[1, 2], [2, 1], [1, 2]],
        [True, False, True],
        [{"gate": {"number": 4, "state": state}} for state in ("shut", "ajar", "shut")],
        [{"gate": {"number": 4, "is": [state]}} for state in ("shut", "ajar", "shut")],
        ["disk at 95%", "disk at 40%", "disk at 95%"],
    ],
)
def test_a_state_that_comes_back_is_news_in_an_open_incident(contents: list[Any]) -> None:
    keys: list[tuple[str | None, ...]] = [(None, None, None), ("g4 firing", "g4 resolved", "g4 firing")]
    for case in product(keys, (7, 400), (False, True)):
        case_keys, seconds, is_restarted = case
        pipeline = Pipeline()
        pipeline.incidents.is_heard = True
        for number, (content, key) in enumerate(zip(contents, case_keys, strict=True)):
            if is_restarted:
                pipeline = restarted(pipeline)
            at = START + timedelta(seconds=seconds * number)
            state, repeated = (Perception(content, source="g", kind="alert", key=key, subject="gate 4", at=moment)
                               for moment in (at, at + timedelta(seconds=1)))  # fmt: skip

            assert [each.id for each in pipeline.process([state])] == [state.id], case
            assert not pipeline.process([repeated]), case


def restarted(former: Pipeline) -> Pipeline:
    pipeline = Pipeline()
    pipeline.incidents.is_heard = True
    incidents = [*former.incidents.closed.values(), *former.incidents.open.values()]
    pipeline.incidents.restore([convert(to_builtins(each), Incident) for each in incidents], former.incidents.last)
    return pipeline


def test_a_state_that_comes_back_is_news_although_it_was_fused_with_the_one_before() -> None:
    pipeline = Pipeline()
    states = [
        Perception(content, source="g", kind="alert", subject="gate 4", at=START + timedelta(seconds=7 * number))
        for number, content in enumerate(GATE)
    ]
    pipeline.process(states[:1])

    assert told(pipeline.process(states[1:])) >= {states[1].id, states[2].id}


def test_each_end_of_several_that_were_fused_counts() -> None:
    incidents = Pipeline().incidents
    for state in ("firing", "resolved"):
        parts = [
            Perception(
                f"{name} valve", source="s", kind="alert", subject="pump", attributes={"status": state}, at=START
            )
            for name in ("alpha", "beta")
        ]
        whole = Perception(parts[0].content, source="s", kind="alert", id=parts[0].id, subject="pump", at=START,
                           evidence=parts, attributes={"status": state})  # fmt: skip
        (notice,) = incidents.fold([whole]).perceptions

    assert notice.kind == "incident.closed"
    assert not incidents.open


def test_an_alert_that_called_itself_nothing_is_closed_by_its_end() -> None:
    incidents = Pipeline().incidents
    found = [
        incidents.fold([Perception({"unit": "shop", "state": state}, source="c", kind="alert", at=START)]).perceptions
        for state in ("failed", "ok", "failed")
    ]

    assert [[each.kind for each in one] for one in found] == [
        ["incident.opened"], ["incident.closed"], ["incident.opened"],
    ]  # fmt: skip


def test_perceptions_of_one_subject_in_several_batches_are_counted_once() -> None:
    pipeline = Pipeline()
    for number in range(4):
        pipeline.process([Perception(f"valve {number} leaks", source="s", kind="alert", subject="pump",
                                     at=START + timedelta(seconds=number))])  # fmt: skip

    assert [incident.count for incident in pipeline.incidents.open.values()] == [4]


def test_a_name_that_one_of_many_things_bears_stays_rare_however_many_come() -> None:
    incidents = IncidentRegister(Pipeline().settings.incidents)
    incidents.index = type(incidents.index)(remembered=50)
    judged = []
    for number in range(2_000):
        name = "bob" if number % 10 == 0 else f"person{number}"
        incidents.fold([Perception(f"thing{number} owner={name}", source="s", kind="log.warning", at=START)])
        judged.append(incidents.index.is_common(("main", "person", "bob")))

    assert not any(judged)
    assert incidents.index.size <= 50 * 24


class Meanwhile(dict[str, Incident]):
    """Incidents of a register: after they were listed, `work` is done once, as by a thread that works on a batch."""

    work: Callable[[], object] | None = None

    def values(self) -> Any:
        found = list(super().values())
        work, self.work = self.work, None
        if work is not None:
            work()
        return found


@pytest.mark.parametrize("turns", [("firing", "resolved"), ("firing", "resolved", "firing")])
@pytest.mark.parametrize("listed_first", ["open", "closed"])
def test_an_incident_that_closes_or_opens_again_meanwhile_is_listed(
    turns: tuple[str, ...], listed_first: str, clock: VirtualClock
) -> None:
    register = IncidentRegister(Pipeline().settings.incidents)
    incidents = Incidents(register, lambda batch: [], Host("a", clock, RecordingEvents(), Hooks(), lambda: None))
    states = [Perception("valve", source="s", kind="alert", subject="v", attributes={"status": turn}, at=clock.now())
              for turn in turns]  # fmt: skip
    for state in states[:-1]:
        register.fold([state])
    register.open, register.closed = Meanwhile(register.open), Meanwhile(register.closed)
    getattr(register, listed_first).work = lambda: register.fold([states[-1]])

    assert [incident.id for incident in incidents.list()] == ["I-1"]
