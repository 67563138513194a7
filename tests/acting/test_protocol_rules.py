"""The call protocol, rule by rule: which test holds each of them, and the tests of those that are held nowhere else.

The rules are those of the "acts" chapters as spar reads them (2.1 to 2.20) with its decisions where they are silent or
contradict themselves (G1 to G34). `HELD_BY` is kept true by tests: each rule has some, and all that it names are there.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from acting import Executor
from planning.prompt.request import compose
from spar.protocols.tools import tool
from spar.types import Call, Message
from tests.acting.run.test_activities import CITY, Handler, kinds, schema

TESTS = Path(__file__).parents[1]
OWN = "acting/test_protocol_rules"
RIVALS = ("acting/test_executor::"
          "two_that_write_one_place_without_knowing_of_each_other_are_told_and_the_last_to_end_wins")  # fmt: skip

#: By rule, `file::test`; the name without its `test_`.
HELD_BY: dict[str, tuple[str, ...]] = {
    # request, context, schema, solution
    "2.1": ("planning/prompt/test_request::the_same_input_gives_the_same_bytes_and_is_not_changed",
            "planning/prompt/test_request::what_stays_the_same_stands_first_and_what_changes_last",
            "planning/llm/test_loop::results_are_in_the_next_request_until_there_is_an_output",
            "planning/llm/test_loop::an_output_that_does_not_fit_is_revised"),
    # tools
    "2.2": ("planning/prompt/test_schema::of_two_tools_with_one_name_only_the_last_is_there",
            "planning/prompt/test_schema::an_activity_is_resolved",
            "planning/prompt/test_schema::why_comes_before_the_parameters_and_where_behind_them",
            "acting/tooling/test_tool_schema::everything_that_a_schema_prescribes_is_read",
            "acting/run/test_activities::the_later_definition_of_a_tool_counts"),
    # activities
    "2.3": ("acting/run/test_activities::the_activity_that_the_schema_names_is_called_else_the_one_of_its_own_name",
            "acting/run/test_activities::a_handler_sees_the_messages_of_the_scopes_and_nothing_else",
            "acting/run/test_activities::a_message_that_a_handler_returns_is_appended_as_it_is",
            "planning/prompt/test_schema::an_activity_is_resolved"),
    # calls
    "2.4": (f"{OWN}::what_a_call_says_of_itself_goes_together",),
    # data
    "2.5": ("planning/prompt/test_render::data_is_shown_once_for_each_kind_with_its_description_and_schema",
            "data/test_blackboard::an_instance_sees_its_own_over_what_is_for_all_and_nobody_else_sees_it",
            f"{OWN}::what_the_caller_says_of_one_kind_is_merged_in_the_order_in_which_it_stands"),
    # input
    "2.6": ("planning/prompt/test_render::the_input_is_a_structured_prompt_with_its_schema_before_the_data",),
    # variables
    "2.7": ("acting/run/test_branches::references_are_resolved_anywhere_inside_a_value_and_nowhere_inside_a_text",
            "data/test_paths::a_reference_is_its_kind_and_what_leads_into_it",
            "acting/graph/test_graph::a_later_writer_feeds_an_earlier_reader_that_has_no_value"),
    # output paths
    "2.8": ("acting/test_executor::output_methods_change_what_stands_there",
            "acting/test_executor::messages_of_one_tick_are_the_context_of_the_next",
            "data/test_blackboard::an_array_takes_one_element_or_each_of_several",
            "planning/prompt/test_render::what_the_executor_keeps_for_itself_is_never_shown",
            f"{OWN}::what_was_written_says_by_which_call_and_when_and_keeps_its_references",
            f"{OWN}::a_thought_without_a_path_is_kept_nowhere"),
    # state
    "2.9": (f"{OWN}::a_state_may_be_a_schema_only",
            "acting/run/test_branches::each_instance_reads_and_writes_its_own_over_what_is_global",
            "acting/test_executor::the_state_stays_an_object"),
    # the loop
    "2.10": ("acting/run/test_streaming::a_call_starts_while_the_stream_is_still_open",
             "acting/run/test_streaming::a_call_that_is_freed_starts_while_the_stream_is_silent",
             RIVALS,
             "acting/test_executor::an_error_is_told_with_its_call_and_comes_last_among_the_messages",
             "acting/test_executor::only_calls_that_need_it_are_asked_about_once_they_are_ready_with_their_values",
             "planning/llm/test_loop::what_fails_in_a_step_is_in_the_next_request"),
    # expressions
    "2.11": ("acting/run/test_branches::"
             "the_leftmost_alternative_that_is_there_is_taken_and_all_of_a_conjunction_must_be",
             "acting/graph/test_graph::all_paths_of_an_alternative_must_be_present_and_the_last_ones_value_counts",
             "acting/run/test_branches::a_plain_value_goes_to_the_first_alternative",
             "acting/run/test_branches::fan_out_writes_one_value_to_each_place"),
    # plans
    "2.12": ("planning/llm/test_loop::an_eager_plan_is_what_was_called_with_what_became_of_it",
             "planning/llm/test_loop::without_a_plan_message_calls_are_not_kept",
             "planning/llm/test_loop::a_lazy_plan_is_written_to_its_end_approved_and_then_carried_out",
             "planning/llm/test_loop::a_plan_that_goes_round_in_a_circle_is_never_begun_nor_shown_to_anybody",
             "planning/prompt/test_request::only_when_planning_is_acting_does_the_model_write_the_result_of_a_thought",
             "acting/run/test_branches::the_branch_that_was_not_taken_is_skipped_without_a_fault_and_the_join_runs"),
    # instances
    "2.13": ("acting/run/test_branches::each_instance_reads_and_writes_its_own_over_what_is_global",
             "planning/prompt/test_request::instances_stay_apart_and_are_offered",
             f"{OWN}::one_plan_serves_all_instances"),
    # delegates
    "2.14": ("planning/llm/test_delegates::a_delegate_sees_its_definition_its_parameters_and_its_scopes_only",
             "planning/llm/test_delegates::an_anonymous_delegate_begins_with_nothing_and_fits_the_tools_result"),
    # scopes
    "2.15": ("acting/run/test_activities::a_handler_sees_the_messages_of_the_scopes_and_nothing_else",
             "acting/run/test_activities::what_a_schema_prescribes_is_filled_in_and_cannot_be_said_otherwise",
             "data/test_blackboard::scopes_hand_over_one_message_a_kind_without_a_word_of_the_instance"),
    # meta
    "2.16": ("planning/prompt/test_schema::meta_is_asked_for_where_there_is_one_and_stays_what_it_is",
             "planning/llm/test_loop::the_version_grows_whatever_the_model_says"),
    # advisors
    "2.17": ("planning/prompt/test_schema::an_advisor_thinks_as_its_schema_says_and_votes_for_tools",
             "planning/prompt/test_schema::advisors_speak_when_it_is_their_turn",
             "planning/prompt/test_schema::who_speaks_only_when_asked_is_consulted_by_a_call",
             "planning/llm/test_delegates::what_advisors_say_is_collected_and_strangers_are_not",
             "planning/llm/test_delegates::an_advisor_without_an_occasion_is_consulted"),
    # the executor as a whole, against one that goes by the text
    "2.19": ("properties/test_graph_oracle::the_graph_starts_reads_and_gives_up_exactly_what_the_rules_say",),
    "2.20": ("properties/test_graph_oracle::a_board_says_at_every_moment_what_folding_all_messages_anew_says",
             "data/test_blackboard::an_instances_write_that_no_longer_fits_is_passed_over"),
    # the decisions
    "G1": ("acting/graph/test_graph::every_graph_comes_to_an_end_and_nothing_starts_before_what_it_waits_for",
           "acting/run/test_branches::the_branch_that_was_not_taken_is_skipped_without_a_fault_and_the_join_runs"),
    "G2": ("acting/run/test_branches::a_throw_goes_to_the_branch_that_is_there_for_it",
           "acting/run/test_branches::a_throw_without_such_a_branch_is_an_error_and_skips_what_depended_on_it",
           "acting/run/test_branches::a_plain_value_goes_to_the_first_alternative"),
    "G3": ("acting/run/test_branches::what_is_present_is_taken_even_if_it_is_nothing_much",
           "acting/run/test_branches::"
           "a_read_waits_for_an_earlier_writer_of_its_left_alternative_and_falls_back_when_it_fails",
           "acting/run/test_branches::a_racing_read_takes_what_is_there"),
    "G4": ("acting/test_executor::references_are_resolved_inside_nested_values_and_doubled_signs_are_text",),
    "G5": ("acting/run/test_branches::the_root_of_a_kind_can_be_read_and_written",
           "data/test_paths::get_tells_absent_from_null_and_indexes_arrays_by_digits_only"),
    "G6": ("acting/test_executor::context_messages_of_every_shape_can_be_read_and_are_not_changed",
           "planning/prompt/test_render::the_shapes_of_a_message_are_one"),
    "G7": (f"{OWN}::scopes_are_kinds_or_paths",),
    "G8": ("data/test_blackboard::a_set_shadows_everything_below_it_and_leaves_siblings",
           f"{OWN}::what_the_caller_says_of_one_kind_is_merged_in_the_order_in_which_it_stands"),
    "G9": ("acting/test_executor::a_detached_call_is_not_waited_for_and_closing_drains_it",
           "acting/test_executor::a_detached_calls_failure_is_an_error_of_the_next_run",
           f"{OWN}::of_a_detached_call_a_message_is_appended_and_a_value_dropped"),
    "G10": ("planning/llm/test_loop::references_in_the_output_are_what_they_name_and_are_judged_as_that",
            "planning/llm/test_planner::an_output_may_refer_to_what_the_run_knows"),
    "G11": ("acting/test_executor::a_value_that_does_not_fit_its_method_fails_the_call_and_writes_nothing",
            "data/test_blackboard::a_method_that_does_not_fit_changes_nothing"),
    "G12": ("planning/llm/test_loop::two_steps_in_vain_end_the_run", "planning/llm/test_loop::the_limits_hold",
            "runs/test_run_limits::a_run_that_would_go_on_ends_at_its_limit"),
    "G13": ("planning/llm/test_loop::an_output_with_failed_calls_is_asked_for_again_and_then_stands_with_its_errors",
            "runs/test_output_with_failures::an_answer_beside_a_failed_call_stands_unless_a_better_one_follows"),
    "G14": ("acting/test_executor::an_edit_replaces_all_parameters_and_is_checked_again",
            "acting/approvals/test_queue::an_edit_runs_what_it_says_as_data_and_keeps_what_was_asked",
            "acting/test_executor::only_a_clear_yes_lets_a_call_run"),
    "G15": ("acting/graph/test_graph::what_is_missing_at_the_end_is_told_by_what_became_of_its_writer",
            "acting/graph/test_graph::what_names_an_unknown_call_is_stuck_as_a_bad_reference"),
    "G16": ("acting/graph/test_graph::the_call_that_closes_a_cycle_is_the_one_refused",
            "acting/graph/test_graph::a_call_that_waits_for_itself_is_a_cycle_unless_the_value_is_there"),
    "G17": ("acting/graph/test_graph::"
            "a_reader_waits_for_every_earlier_writer_of_an_overlapping_path_even_if_there_is_an_old_value",
            "acting/graph/test_graph::a_later_writer_does_not_hold_back_a_reader_that_has_its_value"),
    "G18": ("acting/graph/test_graph::a_reader_waits_for_every_writer_of_a_join_while_one_lives",
            "acting/graph/test_graph::"
            "whoever_can_never_start_counts_as_a_writer_no_longer_so_that_old_values_and_alternatives_are_taken"),
    "G19": ("data/test_paths::alternatives_are_parted_by_the_looser_sign_and_what_belongs_together_by_the_tighter",),
    "G20": (RIVALS,),
    "G21": ("acting/run/test_activities::a_delegate_goes_to_whatever_carries_out_delegates_before_any_activity",
            "planning/llm/test_delegates::delegates_nest_five_deep_and_no_deeper",
            "planning/llm/test_delegates::what_is_nested_lives_off_what_the_outermost_is_allowed",
            "attacks/test_model_attacks::what_a_model_is_asked_for_a_call_is_paid_by_the_run_that_called"),
    "G22": ("planning/llm/test_loop::the_version_grows_whatever_the_model_says",),
    "G23": ("planning/prompt/test_schema::the_order_is_meta_advisors_calls_output_and_all_of_them_are_owed",),
    "G24": ("acting/test_executor::structural_errors_are_told_apart_and_never_attempted",),
    "G25": ("acting/run/test_activities::a_latent_call_written_before_what_it_refers_to_is_not_believed",
            "planning/llm/test_delegates::a_thought_about_what_was_not_there_yet_is_thought_again",
            "planning/llm/test_delegates::thoughts_of_a_lazy_plan_are_thought_when_it_is_carried_out"),
    "G26": ("acting/run/test_activities::a_result_that_does_not_match_its_schema_is_a_failure_of_the_call",),
    "G27": ("planning/llm/test_loop::an_eager_plan_is_what_was_called_with_what_became_of_it",
            "acting/run/test_resume::what_had_ended_is_not_done_again_and_the_rest_goes_on_with_its_data"),
    "G28": ("acting/run/test_activities::scopes_that_make_no_sense_are_structural",
            f"{OWN}::an_instance_that_nobody_knows_is_made_by_nothing_but_a_write"),
    "G29": ("acting/run/test_branches::a_message_beside_what_was_declared_is_noticed_and_refused_if_strict",
            f"{OWN}::a_returned_message_is_merged_into_what_stands_and_says_by_which_call"),
    "G30": ("planning/prompt/test_schema::every_parameter_may_be_a_reference_and_keeps_its_bounds_for_values",
            "acting/run/test_activities::parameters_are_held_against_the_schema_before_and_after_they_are_resolved"),
    "G31": ("planning/prompt/test_schema::without_tools_advisors_and_meta_there_is_only_the_answer",
            "planning/prompt/test_schema::meta_is_asked_for_where_there_is_one_and_stays_what_it_is"),
    "G32": ("acting/run/test_resume::what_is_in_doubt_stays_so_and_what_needs_it_is_skipped",
            "acting/run/test_effects::a_call_cut_off_in_flight_is_in_doubt_if_it_must_not_be_repeated"),
    "G33": ("acting/tooling/test_tool_schema::a_tool_may_come_in_any_of_three_shapes",
            "planning/prompt/test_schema::tools_come_as_schemas_mappings_objects_and_names"),
    "G34": ("acting/test_executor::others_go_on_while_one_waits_for_its_approval_and_hold_no_slot_meanwhile",
            "acting/test_executor::an_approver_that_is_late_denies_even_if_it_ignores_cancellation"),
}  # fmt: skip


def test_every_rule_has_its_tests() -> None:
    chapters = [f"2.{number}" for number in range(1, 21) if number != 18]  # 2.18 is the decisions
    assert list(HELD_BY) == [*chapters, *(f"G{number}" for number in range(1, 35))]


@pytest.mark.parametrize("file", sorted({name.split("::")[0] for names in HELD_BY.values() for name in names}))
def test_every_test_that_a_rule_names_is_there(file: str) -> None:
    named = {name.split("::")[1] for names in HELD_BY.values() for name in names if name.split("::")[0] == file}

    found = set(re.findall(r"^(?:async )?def test_(\w+)\(", (TESTS / f"{file}.py").read_text(), re.MULTILINE))

    assert named - found == set()


# -- those that are held nowhere else


async def test_what_a_call_says_of_itself_goes_together() -> None:
    delegate = Handler({"name": "Ann"})
    executor = Executor([schema("ask", city=CITY)], activities={"ask": Handler("never"), "_delegate": delegate})
    call = Call("ask", {"city": "†state.town"}, instance="i", output_path="†state.guide", output_method="merge",
                meta={"_delegate": "anonymous", "_scopes": ["data"]})  # fmt: skip
    context: list[dict[str, Any]] = [
        {"type": "state", "state": {"town": "Oslo", "guide": {"age": 40}}, "_instance": "i"},
        {"type": "data", "data": {"for": "i"}, "_instance": "i"},
        {"type": "data", "data": {"for": "j"}, "_instance": "j"},
        {"type": "data", "kind": "secret", "data": {"no": "scope"}},
    ]
    result = await executor.run(
        [call, Call("ask", {"city": "†state.guide.name"}, id="next", instance="i")], context=context
    )

    told, _, seen = delegate.told[0]
    assert told.params == {"city": "Oslo"}
    assert [(each["kind"], each["data"]) for each in seen] == [("data", {"for": "i"})]
    assert kinds(result) == ["ok", "ok"]
    assert result.messages[0]["state"] == {"guide": {"name": "Ann"}}
    assert result.messages[0]["_instance"] == "i"


def test_what_the_caller_says_of_one_kind_is_merged_in_the_order_in_which_it_stands() -> None:
    (text,) = compose([
        {"type": "data", "kind": "user", "data": {"name": {"first": "A", "last": "B"}, "tags": [1]}, "_date": "2030"},
        {"type": "data", "kind": "user", "data": {"name": {"first": "C"}, "tags": [3]}, "_date": "2020"},
    ]).texts  # fmt: skip

    assert '{"name": {"first": "C", "last": "B"}, "tags": [3]}' in text


async def test_what_was_written_says_by_which_call_and_when_and_keeps_its_references() -> None:
    executor = Executor([schema("ask", city=CITY)], activities={"ask": Handler("fine")})
    result = await executor.run(
        [Call("ask", {"city": "†state.town"}, id="a", output_path="†state.weather")], state={"town": "Oslo"}
    )

    (message,) = result.messages
    assert message["_call"]["_id"] == "a"
    assert message["_call"]["city"] == "†state.town"
    assert re.match(r"\d{4}-\d\d-\d\dT", message["_date"])
    assert "_call" not in str(compose(result.messages).texts)


async def test_a_thought_without_a_path_is_kept_nowhere() -> None:
    think = schema("think", about=CITY, _output={"type": "string"}, _activity={"const": ""})
    result = await Executor([think]).run(
        [Call("think", {"about": "x"}, meta={"_output": "hm"}),
         Call("think", {"about": "x"}, meta={"_output": "aha"}, output_path="†state.thought")]
    )  # fmt: skip

    assert [each.output for each in result.results] == ["hm", "aha"]
    assert [message["state"] for message in result.messages] == [{"thought": "aha"}]


async def test_a_state_may_be_a_schema_only() -> None:
    wanted = {"type": "state", "schema": {"type": "object", "properties": {"town": CITY}}}
    executor = Executor([schema("ask", city=CITY)], activities={"ask": Handler("Oslo")})
    result = await executor.run([Call("ask", {"city": "x"}, output_path="†state.town")], context=[wanted])

    (before,) = compose([wanted]).texts
    (after,) = compose([wanted, *result.messages]).texts
    assert "Schema for ¶state:" in before
    assert '"town": "Oslo"' in after
    assert "Schema for ¶state:" in after


def test_one_plan_serves_all_instances() -> None:
    plan = {"type": "plan", "plan": {"calls": [{"_tool": "ask", "city": "†input.city"}]}}
    inputs = [{"type": "input", "input": {"city": each}, "_instance": each} for each in ("a", "b")]

    texts = compose([plan, *inputs]).texts

    assert sum("¶plan" in text for text in texts) == 1
    assert sum("¶input of instance" in text for text in texts) == 2


@pytest.mark.parametrize(
    ("scopes", "seen"),
    [
        (["user"], [("user", {"name": "Ann", "age": 40})]),
        (["†user.name"], [("user", {"name": "Ann"})]),
        (["†user.none"], []),
        ([], []),
    ],
)
async def test_scopes_are_kinds_or_paths(scopes: list[str], seen: list[Any]) -> None:
    handler = Handler()
    context = [{"type": "data", "kind": "user", "data": {"name": "Ann", "age": 40}}]
    await Executor([schema("ask")], activities={"ask": handler}).run(
        [Call("ask", meta={"_scopes": scopes})], context=context
    )

    assert [(each["kind"], each["data"]) for each in handler.told[0][2]] == seen


async def test_of_a_detached_call_a_message_is_appended_and_a_value_dropped() -> None:
    @tool(detach=True)
    async def tell() -> Message:
        return Message(kind="news", data={"is": "good"})

    @tool(detach=True)
    async def value() -> str:
        return "nobody hears it"

    @tool
    async def look() -> None: ...

    executor = Executor([tell, value, look])
    async with executor:
        await executor.run([Call("tell"), Call("value")])
        while executor.snapshot()["detached"]:
            await asyncio.sleep(0)
        result = await executor.run([Call("look")])

    assert [(each["kind"], each["data"]) for each in result.messages if each["type"] == "data"
            and each["kind"] != "result"] == [("news", {"is": "good"})]  # fmt: skip
    assert "nobody hears it" not in str(result.messages)


async def test_an_instance_that_nobody_knows_is_made_by_nothing_but_a_write() -> None:
    executor = Executor([schema("ask", city=CITY)], activities={"ask": Handler("fine")})
    calls = [Call("ask", {"city": "†state.town"}, id="read", instance="ghost"),
             Call("ask", {"city": "†state.own"}, id="lost", instance="ghost")]  # fmt: skip
    result = await executor.run(calls, state={"town": "Oslo"})

    assert kinds(result) == ["ok", "bad_reference"]
    assert not any(each.get("_instance") == "ghost" and each.get("type") == "state" for each in result.messages)
    assert result.state == {"town": "Oslo"}


async def test_a_returned_message_is_merged_into_what_stands_and_says_by_which_call() -> None:
    handler = Handler(Message(kind="state", data={"user": {"age": 41}}))
    result = await Executor([schema("ask", city=CITY)], activities={"ask": handler}).run(
        [Call("ask", {"city": "x"}, id="a", output_path="†state.user.age")], state={"user": {"name": "Ann", "age": 40}}
    )

    assert result.state == {"user": {"name": "Ann", "age": 41}}
    assert result.messages[0]["_call"]["_id"] == "a"
