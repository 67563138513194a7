"""What opens an incident, belongs to it, and ends it; and what does not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import convert, to_builtins

from perception.incidents.deadlines import Deadlines
from perception.incidents.register import IncidentRegister
from perception.incidents.settings import IncidentSettings
from perception.pipeline import Pipeline
from spar.records.perceived import Incident
from spar.types import Perception
from tests.effort import Effort

START = datetime(2026, 11, 22, 12, tzinfo=UTC)


def alert(name: str, status: str = "firing", *, at: float = 0.0, trust: Any = "untrusted", source: str = "am",
          **labels: str) -> Perception:  # fmt: skip
    labels = {"alertname": name, **labels}
    return Perception(
        f"{name} is {status}", source=source, kind="alert", at=START + timedelta(seconds=at), trust=trust,
        attributes={"status": status, "labels": labels, "severity": labels.get("severity", "error")},
    )  # fmt: skip


def line(text: str, *, at: float = 0.0, source: str = "log", kind: str = "log.error") -> Perception:
    return Perception(text, source=source, kind=kind, at=START + timedelta(seconds=at))


def register(**settings: Any) -> IncidentRegister:
    return IncidentRegister(IncidentSettings(**{"machine": "web1", **settings}))


def folded(incidents: IncidentRegister, *perceptions: Perception) -> list[Perception]:
    return [each for one in perceptions for each in incidents.fold([one]).perceptions]


@pytest.fixture
def incidents() -> IncidentRegister:
    return register()


def test_an_alert_its_lines_and_a_reading_of_its_host_become_one_incident(incidents: IncidentRegister) -> None:
    high = Perception("load is 9.1", source="host", kind="host.load", subject="host.load", trust="trusted",
                      at=START + timedelta(seconds=9), attributes={"level": "high"})  # fmt: skip

    opened, second, third = folded(
        incidents,
        alert("ShopDown", service="shop", host="web1"),
        line("shop: no connection to the database", at=5),
        high,
    )

    assert (opened.kind, opened.attributes["incident"]) == ("incident.opened", "I-1")
    assert second.kind == "log.error"
    assert third.kind == "incident.grown"
    assert {each.attributes["incident"] for each in (opened, second, third)} == {"I-1"}
    incident = incidents.open["I-1"]
    assert incident.sources == ["am", "log", "host"]
    assert incident.entities == {"service": ["shop"], "program": ["shop"], "host": ["web1"]}


def test_lines_and_a_reading_that_come_before_the_alert_are_in_its_incident(incidents: IncidentRegister) -> None:
    high = Perception("load", source="host", kind="host.load", at=START,
                      attributes={"level": "high", "unit": "per cpu"})  # fmt: skip
    found = folded(
        incidents, line("ERROR shop: no connection"), line("ERROR shop: order is not written to /srv/shop/db"), high,
        alert("ShopDown", service="shop", host="web1", severity="critical"),
    )  # fmt: skip

    assert [each.kind for each in found] == ["incident.opened", "log.error", "incident.grown", "incident.grown"]
    assert list(incidents.open) == ["I-1"]


def test_a_notice_stands_for_the_perception_that_caused_it() -> None:
    cause = alert("ShopDown", service="shop")
    (opened,) = folded(register(), cause)

    assert (opened.id, opened.content, opened.source) == (cause.id, cause.content, "am")
    assert [part.kind for part in opened.evidence] == ["alert"]
    assert opened.attributes["entities"] == {"service": ["shop"]}
    assert opened.attributes["labels"] == cause.attributes["labels"]
    assert opened.trust == "untrusted"


@pytest.mark.parametrize(
    "other",
    [
        alert("OtherDown", service="pay", host="web1"),
        alert("Other", instance="localhost:9100"),
        line("pay[81]: cannot write /var/lib/pay/queue"),
        line("something broke at 127.0.0.1"),
    ],
)
def test_what_shares_nothing_that_tells_is_a_trouble_of_its_own(other: Perception, incidents: IncidentRegister) -> None:
    folded(incidents, alert("ShopDown", service="shop", host="web1", instance="localhost:9100"))
    (found,) = folded(incidents, other)

    assert found.kind == "incident.opened"
    assert len(incidents.open) == 2


def test_a_name_that_many_things_bear_joins_nothing(incidents: IncidentRegister) -> None:
    many = [
        line(f"worker-{chr(97 + n)}{chr(97 + n)}[{n}]: cannot read /etc/app/shared.conf for bob@example.org")
        for n in range(25)
    ]
    folded(incidents, *many)

    assert len(incidents.open) == 25


def test_what_repeats_is_counted_and_told_at_thresholds(incidents: IncidentRegister) -> None:
    found = [incidents.fold([alert("ShopDown", service="shop", at=n)]) for n in range(12)]

    kinds = [[each.kind for each in one.perceptions] for one in found]
    assert [n for n, one in enumerate(kinds) if one] == [0, 2, 9]
    assert kinds[2] == kinds[9] == ["incident.grown"]
    decisions = [each for one in found for each in one.decisions]
    assert len(decisions) == 9
    assert decisions[0].reason == "grew incident I-1: it is the same thing again, 2 in all"
    assert incidents.open["I-1"].count == 12


def test_growth_is_told_ever_more_rarely() -> None:
    settings, told, counts = IncidentSettings(), 0, []
    for _ in range(9):
        told = settings.next_growth(told)
        counts.append(told)

    assert counts == [3, 10, 30, 100, 300, 1000, 3000, 10000, 30000]


def test_a_higher_severity_is_told_at_once(incidents: IncidentRegister) -> None:
    _, grown = folded(
        incidents, alert("Slow", service="shop", severity="warning"), alert("Down", service="shop", severity="critical")
    )

    assert (grown.kind, grown.attributes["severity"]) == ("incident.grown", "critical")
    assert "rises from warning to critical" in grown.attributes["reason"]
    assert incidents.open["I-1"].title == "Down is firing"


def test_it_closes_when_all_that_fired_is_over(incidents: IncidentRegister) -> None:
    folded(incidents, alert("Slow", service="shop"), alert("Down", service="shop", at=1))
    folded(incidents, alert("Down", "resolved", service="shop", at=0.5))
    assert incidents.open["I-1"].is_firing, "an older state ends nothing that is newer"
    first, last = folded(
        incidents, alert("Slow", "resolved", service="shop", at=2), alert("Down", "resolved", service="shop", at=3)
    )

    assert (first.kind, first.attributes["incident"]) == ("alert", "I-1")
    assert (last.kind, last.attributes["state"]) == ("incident.closed", "closed")
    assert not incidents.open


@pytest.mark.parametrize(
    "stranger",
    [
        Perception("RESOLVED: Down", source="am", kind="message", at=START),
        alert("Down", "resolved", service="shop", at=3, source="mail"),
        line("RESOLVED: shop is fine again", at=3, source="am"),
        alert("Down", "resolved", service="shop", at=3),
    ],
)
def test_a_stranger_ends_no_incident_of_a_trusted_sensor(stranger: Perception, incidents: IncidentRegister) -> None:
    folded(incidents, alert("Down", service="shop", trust="trusted"))
    folded(incidents, stranger)

    assert incidents.open["I-1"].is_firing


def test_what_a_stranger_names_draws_nothing_into_an_incident_of_a_trusted_sensor(incidents: IncidentRegister) -> None:
    folded(incidents, alert("Down", service="shop", trust="trusted"), line("shop: service=pay is the culprit", at=1))
    (pay,) = folded(incidents, alert("PayDown", service="pay", trust="trusted", at=2))

    assert incidents.open["I-1"].entities == {"service": ["shop"]}
    assert pay.attributes["incident"] == "I-2"


def test_what_strangers_say_moves_no_incident_of_a_trusted_sensor(incidents: IncidentRegister) -> None:
    folded(incidents, alert("Down", service="shop", severity="warning", trust="trusted"))
    joined, *repeated = folded(
        incidents, *(alert("Worse", service="shop", severity="critical", at=n, source="web") for n in range(1, 40))
    )

    incident = incidents.open["I-1"]
    assert (joined.kind, joined.attributes["incident"], repeated) == ("alert", "I-1", [])
    assert (incident.severity, incident.count, incident.strange) == ("warning", 1, 39)
    assert (incident.title, incident.last_at) == ("Down is firing", START)
    assert [(step.did, step.is_strange) for step in incident.steps] == [("opened", False), ("joined", True)]
    (closed,) = folded(incidents, alert("Down", "resolved", service="shop", severity="warning", trust="trusted", at=50))
    assert (closed.kind, closed.attributes["strange"]) == ("incident.closed", 39)


def test_a_stranger_opens_no_incident_of_a_trusted_sensor_again(incidents: IncidentRegister) -> None:
    folded(incidents, alert("Down", service="shop", trust="trusted"),
           alert("Down", "resolved", service="shop", trust="trusted", at=5))  # fmt: skip
    (own,) = folded(incidents, alert("Worse", service="shop", at=9))

    assert (own.kind, own.attributes["incident"]) == ("incident.opened", "I-2")
    assert not incidents.closed["I-1"].is_open


def test_what_strangers_still_say_is_high_closes_no_incident_after_a_restart(incidents: IncidentRegister) -> None:
    high = Perception("load is 9.1", source="other", kind="metric.value", subject="load", attributes={"state": "high"},
                      at=START + timedelta(seconds=1))  # fmt: skip
    folded(incidents, alert("Down", service="load", trust="trusted"), high)
    incident = convert(to_builtins(incidents.open["I-1"]), Incident)
    again = register()
    again.restore([incident], 1)

    assert again.due_at() == START + timedelta(seconds=again.settings.quiet_firing)


def test_a_flood_of_strangers_leaves_room_for_what_trusted_sensors_say(incidents: IncidentRegister) -> None:
    folded(incidents, alert("Down", service="shop", trust="trusted"))
    folded(incidents, *(alert(f"Strange{n}", service="shop", severity="critical", at=1 + n) for n in range(300)))
    folded(incidents, *(alert(f"Real{n}", service="shop", trust="trusted", at=400 + n) for n in range(40)))

    incident = incidents.open["I-1"]
    assert sum(thing.trust == "trusted" for thing in incident.things.values()) == 41
    assert sum(step.is_strange for step in incident.steps) <= 20
    assert sum(example.trust == "trusted" for example in incident.examples) >= 8


def test_it_is_opened_again_when_it_comes_back_soon(incidents: IncidentRegister) -> None:
    *_, again = folded(
        incidents,
        alert("Down", service="shop"),
        alert("Down", "resolved", service="shop", at=5),
        alert("Down", service="shop", at=60),
    )
    *_, later = folded(
        incidents, alert("Down", "resolved", service="shop", at=61), alert("Down", service="shop", at=5_000)
    )

    assert (again.kind, again.attributes["incident"], again.attributes["ordinal"]) == ("incident.opened", "I-1", 2)
    assert later.attributes["incident"] == "I-2"


def test_it_closes_after_a_quiet_time(incidents: IncidentRegister) -> None:
    folded(incidents, line("shop[1]: broken"), alert("Down", service="pay"))
    (closed,) = incidents.expire(START + timedelta(seconds=1_800))

    assert (closed.kind, closed.attributes["incident"]) == ("incident.closed", "I-1")
    assert list(incidents.open) == ["I-2"]  # something fires in it
    assert len(incidents.expire(START + timedelta(days=1))) == 1


def test_it_closes_when_a_person_wants_it(incidents: IncidentRegister) -> None:
    folded(incidents, alert("Down", service="shop"))
    incidents.ask_closing("I-1", "ann", START)
    (closed,) = incidents.expire(START)

    assert closed.attributes["reason"] == "ann closed it"
    with pytest.raises(ValueError, match="I-1 is closed already: ann closed it"):
        incidents.ask_closing("I-1", "ann", START)
    with pytest.raises(LookupError, match="no incident 'I-9'; open are: none"):
        incidents.ask_closing("I-9", "ann", START)


def test_the_one_that_is_quiet_for_longest_makes_room() -> None:
    incidents = register(open=2)
    folded(incidents, alert("A", service="aa"), alert("B", service="bb", at=1), alert("A", service="aa", at=2))
    notices = folded(incidents, alert("C", service="cc", at=3))

    assert [(each.kind, each.attributes["incident"]) for each in notices] == [
        ("incident.opened", "I-3"),
        ("incident.closed", "I-2"),
    ]
    assert list(incidents.open) == ["I-1", "I-3"]


def test_a_flood_of_strangers_closes_no_incident_of_a_trusted_sensor() -> None:
    incidents = register(open=2)
    folded(incidents, alert("A", service="aa", trust="trusted"))
    notices = folded(incidents, *(alert(f"B{n}", service=f"bb{n}", at=1 + n) for n in range(4)))

    closed = [each.attributes["incident"] for each in notices if each.kind == "incident.closed"]
    assert closed == ["I-2", "I-3", "I-4"]
    assert list(incidents.open) == ["I-1", "I-5"]


def test_work_for_one_perception_does_not_grow_with_the_incidents_that_are_open() -> None:
    def comparisons(number: int) -> int:
        incidents = register(open=10_000)
        for n in range(number):
            incidents.fold([alert(f"A{n}", service=f"service{n}", host=f"h{n % 3}", path="/data/shared")])
        before = incidents.index.comparisons
        incidents.fold([alert("new", service="new", host="h1", path="/data/shared")])
        return incidents.index.comparisons - before

    assert comparisons(500) <= comparisons(20) <= 12


def test_what_is_kept_of_one_incident_is_bounded_and_counted(incidents: IncidentRegister) -> None:
    for n in range(400):
        word = "".join(chr(97 + (n // 26**k) % 26) for k in range(3))
        incidents.fold([line(f"shop[7]: {word} broke", at=n)])
    (incident,) = incidents.open.values()

    assert incident.count == 400
    assert (len(incident.things), incident.left_out["things"]) == (100, 300)
    assert len(incident.examples) + incident.left_out["examples"] == 400
    assert incident.examples[0].text == "shop[7]: aaa broke"
    assert len(incident.steps) <= 80


def test_rows_bring_everything_back() -> None:
    from spar.records.perceived import LAST, incidents_in

    first = register()
    folded(first, alert("Down", service="shop"), alert("Slow", service="shop", at=1))
    rows = dict(first.take().rows)
    second = register()
    last = rows[LAST]
    second.restore(incidents_in(rows)[0], last)
    (again,) = second.fold([alert("Down", service="shop", at=2)]).perceptions

    assert again.kind == "incident.grown"
    assert second.open["I-1"].count == 3
    assert folded(second, alert("X", service="pay", at=3))[0].attributes["incident"] == "I-2"


def test_what_takes_no_part_and_lines_that_tell_of_no_trouble_pass_untouched_and_unread(
    incidents: IncidentRegister,
) -> None:
    folded(incidents, line("shop[1]: broken"))
    before = incidents.index.comparisons
    others = [Perception("shop is down", kind=kind) for kind in ("message", "file.created", "")]
    perceptions = [*others, line("shop[1]: ready", kind="log.line")]
    assert incidents.fold(perceptions).perceptions == perceptions
    assert incidents.index.comparisons == before


def test_a_unit_of_measurement_is_no_service(incidents: IncidentRegister) -> None:
    reading = Perception("high", source="host", kind="host.memory", attributes={"level": "high", "unit": "share"})
    folded(incidents, reading)

    assert incidents.open["I-1"].entities == {"host": ["web1"]}


def test_after_a_restart_a_reading_holds_an_incident_open_only_when_it_is_told_again() -> None:
    first, second = register(), register()
    reading = Perception("high", source="host", kind="host.load", at=START, attributes={"level": "high"})
    folded(first, alert("Down", service="shop", host="web1"), reading)
    second.restore(list(first.open.values()), first.last)
    *_, closed = folded(second, alert("Down", "resolved", service="shop", host="web1", at=5))

    assert closed.kind == "incident.closed"


def test_what_was_over_while_no_process_ran_keeps_no_incident_open() -> None:
    first, now = register(), START + timedelta(seconds=5)
    reading = Perception("high", source="host", kind="host.load", at=START, attributes={"level": "high"})
    folded(first, alert("Down", service="shop", host="web1"), reading)
    folded(first, alert("Down", "resolved", service="shop", host="web1", at=5))  # the load holds it open
    rows = [to_builtins(incident) for incident in first.open.values()]

    def restored() -> IncidentRegister:
        second = IncidentRegister(IncidentSettings(machine="web1", settle=60.0), lambda: now)
        second.restore([convert(row, Incident) for row in rows], first.last)
        return second

    alone, again = restored(), restored()
    assert alone.due_at() == now + timedelta(seconds=60)
    assert alone.expire(now + timedelta(seconds=59)) == []
    (closed,) = alone.expire(now + timedelta(seconds=60))
    assert (closed.kind, alone.open) == ("incident.closed", {})
    assert "all that fired in it is over" in closed.attributes["reason"]

    now += timedelta(seconds=7)
    folded(again, Perception("high", source="host", kind="host.load", at=now, attributes={"level": "high"}))
    assert again.expire(now + timedelta(seconds=600)) == [], "it is high yet"


def test_the_pipeline_accounts_for_what_grew_an_incident() -> None:
    pipeline = Pipeline({"dedup": {"enabled": False}, "fuse": {"enabled": False}})
    for n in range(2):
        pipeline.process([alert("Down", service="shop", at=n)])

    assert pipeline.counts["incidents"] == {"in": 2, "touched": 1, "merged": 1}
    assert pipeline.dropped[-1].reason.startswith("grew incident I-1")


class Interruption(str):
    """Name of a person: whoever looks at it is interrupted by the thread that works on a batch."""

    def __new__(cls, work: Callable[[], object]) -> Interruption:
        found = super().__new__(cls)
        found.work = work
        return found

    work: Callable[[], object]

    def __bool__(self) -> bool:
        self.work()
        return False


def test_when_the_next_ends_can_be_asked_while_a_thread_works_on_a_batch(incidents: IncidentRegister) -> None:
    folded(incidents, alert("ShopDown", service="shop"))
    incidents.open["I-1"].asked_by = Interruption(
        lambda: folded(incidents, *(alert(f"Down{n}", service=f"service{n}") for n in range(9)))
    )

    assert incidents.due_at() is not None
    assert len(incidents.open) > 1


def test_lines_that_a_sensor_hands_over_as_they_are_open_an_incident() -> None:
    lines = [Perception(f"ERROR shop: no connection, try {n}", source="app", kind="log", at=START) for n in range(9)]
    (opened,) = Pipeline().process(lines)

    assert (opened.kind, opened.attributes["count"]) == ("incident.opened", 9)


def test_a_perception_costs_the_same_however_many_incidents_are_open_or_were_closed() -> None:
    def steps(number: int) -> int:
        incidents = register(open=number, keep=number)
        for n in range(2 * number):  # the first half is closed, because there is no room for it
            folded(incidents, alert(f"A{n}", host=f"host{n}", trust="trusted", at=n))
            incidents.due_at()
        assert (len(incidents.open), len(incidents.closed)) == (number, number)
        known, at = 2 * number - 5, 2.0 * number
        with Effort() as counted:
            folded(incidents, alert(f"A{known}", host=f"host{known}", trust="trusted", at=at))  # again
            folded(incidents, alert(f"A{known}", "resolved", host=f"host{known}", trust="trusted", at=at + 1))
            folded(incidents, alert("B", host="b", trust="trusted", at=at + 2))
            folded(incidents, alert("C", host="c", trust="trusted", at=at + 3))  # one too many
            assert incidents.due_at() is not None
            assert not incidents.expire(START + timedelta(seconds=at + 4))
        return counted.steps

    steps(10)
    assert steps(400) <= 1.1 * steps(50)


def test_deadlines_of_incidents_that_open_and_close_all_the_time_do_not_pile_up() -> None:
    deadlines = Deadlines(IncidentSettings())
    deadlines.note(Incident("I-0", "main", "", "error", START, START))
    for second in range(1_000):
        at = START + timedelta(seconds=second)
        deadlines.note(Incident("I-1", "main", "", "error", at, at))
        deadlines.forget("I-1")
    assert len(deadlines._entries) < 100
    assert (first := deadlines.first()) is not None
    assert (first[1].id, first[0] - START) == ("I-0", timedelta(seconds=IncidentSettings().quiet))
