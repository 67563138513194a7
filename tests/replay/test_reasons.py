"""The reasons of a cycle: what is explained is what was decided."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from planning import RulesPlanner
from spar.records.approvals import Approval
from spar.replay.difference import matched_rules
from spar.replay.reasons import Reason, reasons_of, rule_reasons
from spar.types import Action, ActionResult, Call, CallResult, Experience, Fault, Perception
from tests.replay.tapes import BEGAN, configured, cycle, decided

_KINDS = st.sampled_from(["a", "b", "c"])
_WRITTEN = st.lists(
    st.fixed_dictionaries(
        {"when": st.fixed_dictionaries({"kind": _KINDS}), "stop": st.booleans()},
        optional={"unless": st.fixed_dictionaries({"source": _KINDS}), "cooldown": st.sampled_from([2, 60])},
    ),
    min_size=1, max_size=5,
)  # fmt: skip
_SEEN = st.lists(
    st.lists(st.builds(lambda kind, source: Perception("x", kind=kind, source=source), _KINDS, _KINDS), max_size=3),
    min_size=1, max_size=4,
)  # fmt: skip


@settings(max_examples=40)
@given(_WRITTEN, _SEEN)
async def test_the_rules_that_are_explained_as_fired_are_those_that_fired(
    written: list[dict[str, Any]], batches: list[list[Perception]]
) -> None:
    calls = [{"tool": "note", "params": {"text": "x"}}]
    rules = [{**rule, "name": f"rule {number}", "calls": calls} for number, rule in enumerate(written)]
    planner = RulesPlanner(rules)
    for record in await decided(configured(*rules), batches):
        reasons = rule_reasons(record, planner.explain(record.perceptions))
        assert len(reasons) == len(record.perceptions)
        lines = [line.text for reason in reasons for line in reason.because]
        explained = {line[2 : line.index(":")] for line in lines if line[0] == "+" and "did not fire" not in line}
        assert explained == set(matched_rules(record.action.reason if record.action is not None else ""))


def texts(reasons: list[Reason]) -> list[str]:
    return [text for reason in reasons for text in (reason.text, *texts(list(reason.because)))]


def test_each_step_says_what_was_known_then() -> None:
    perception = Perception("load", source="host", kind="host.load", priority=0.8, trust="untrusted", evidence=[
        Perception("a"), Perception("b")], attributes={"why": ["host.load starts at 0.8"], "incident": "I-1",
                                                      "count": 3})  # fmt: skip
    calls = [Call("shell", {"argv": ["df"]}, reason="rule 'disk'"), Call("say", {"text": "x"})]
    action = Action(calls=calls, reason="rule 'disk' matched", output="done")
    results = [CallResult(calls[0], "denied", "a person denied it"), CallResult(calls[1], "ok", output={"n": 1})]
    record = cycle(1, [perception], action, result=ActionResult(action, results=results),
                   faults=(Fault("x", "no room", phase="reflect"),))  # fmt: skip
    asked = Approval("p1", calls[0], "d", BEGAN, BEGAN, "rule 1 asks", status="denied", decided_by="anna")
    old = Experience("disk full", success=True, count=3, helped=2)
    used = SimpleNamespace(why="it worked 3 times", instead_of="say", is_used=True, cases=[
        SimpleNamespace(id="e1", experience=old), SimpleNamespace(id="e2", experience=None)])  # fmt: skip

    reasons = reasons_of(record, (), [used], [asked], lambda call, plan, session: ("ask", f"{call.tool} is asked"))

    assert texts(reasons.noticed) == [
        "host/host.load: load", "incidents: it belongs to I-1", "dedup and fuse: noticed 3 times",
        "made of: manual: a; manual: b", "priority: 0.80: host.load starts at 0.8",
        "trust: it is untrusted, so its text steers nothing",
    ]  # fmt: skip
    assert texts(reasons.memory) == [
        "instead of say: it worked 3 times", "experience e1: worked; made 3 times, helped 2, harmed 0: disk full",
        "experience e2: it is not kept any more",
    ]  # fmt: skip
    assert texts(reasons.calls) == [
        'shell(argv=["df"])', "planned by rule 'disk'", "policy (as it is now): asks people, because shell is asked",
        "approval: denied by anna; asked because rule 1 asks", "it ended: denied, a person denied it",
        "say(text=x)", "planned: rule 'disk' matched", "policy (as it is now): asks people, because say is asked",
        "it ended: ok, n 1",
    ]  # fmt: skip
    assert texts(reasons.outcome) == [
        "answer: done", "decided: rule 'disk' matched", "failed: reflect: no room", "outcome: acted",
    ]  # fmt: skip


def test_a_cycle_that_was_cut_off_has_calls_of_unknown_end() -> None:
    record = cycle(1, [], Action(calls=[Call("say")]), result=None, outcome="interrupted")

    reasons = reasons_of(record, (), (), (), lambda call, plan, session: ("", "there is no tool 'say'"))

    assert texts(reasons.calls)[2:] == [
        "policy (as it is now): is not known, because there is no tool 'say'",
        "it ended: not known, the cycle was cut off",
    ]


def test_a_rule_that_a_model_came_before_is_not_said_to_have_been_another_one() -> None:
    perception = Perception("hello", kind="message")
    planner = RulesPlanner([{"name": "greet", "when": {"kind": "message"}, "answer": "hi"}])
    record = cycle(1, [perception], Action(output="hello", reason="m was asked (request 1)"))

    lines = texts(rule_reasons(record, planner.explain(record.perceptions)))
    outcome = reasons_of(record, [], [], [], lambda *_: ("auto", "")).outcome

    assert lines[1] == "+ greet: it matches; it did not fire, since this decided: m was asked (request 1)"
    assert outcome[0] == Reason("answer: hello", (Reason("decided: m was asked (request 1)"),))
