"""Which test holds back which of the named attacks on processes, approvals, files, secrets and addresses.

`HELD_BY` says for each of them where it is attacked and where its benign twin is let through; tests keep it true.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROCESS, APPROVAL = "attacks/test_process_attacks", "acting/approvals/test_approval_attacks"
FILE, ADDRESS = "attacks/test_file_attacks", "attacks/test_address_attacks"
LAUNCHER, SHELL = "acting/process/test_launcher", "acting/tools/test_shell"
DESK, HTTP = "acting/approvals/test_queue", "acting/tools/test_http"

#: By number: the attacks, and their benign twins.
HELD_BY: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # a hung program, its escaped grandchildren, one that stops itself
    "P17": ((f"{PROCESS}::a_hung_program_ends_with_all_it_began_and_delays_nobody",
             f"{LAUNCHER}::a_program_that_stops_its_supervisor_dies_too",
             f"{LAUNCHER}::what_kills_its_supervisor_is_found_by_its_mark"),
            (f"{PROCESS}::a_slow_program_that_is_not_hung_is_left_in_peace",)),
    # a hung function
    "P18": ((f"{PROCESS}::six_hung_calls_of_a_blocking_tool_keep_no_other_tool_waiting",
             "acting/test_executor::a_thread_that_blocks_past_its_deadline_is_left_behind"),
            ("acting/test_executor::blocking_functions_run_in_threads_side_by_side",)),
    # a flood of output
    "P19": ((f"{PROCESS}::a_flood_is_cut_at_both_ends_and_costs_little_memory",),
            (f"{PROCESS}::output_that_is_long_but_fits_is_kept_whole",)),
    # fork bomb, memory, descriptors, files, processor
    "P32": ((f"{PROCESS}::what_a_greedy_program_took_is_back_when_it_has_ended",
             f"{LAUNCHER}::a_fork_storm_is_caught_up_with",
             f"{LAUNCHER}::a_file_that_grows_too_large_stops_its_writer"),
            (f"{PROCESS}::a_program_that_takes_what_it_needs_gets_it",)),
    # changed between approval and execution
    "S12": ((f"{APPROVAL}::what_has_changed_since_it_was_shown_does_not_run",
             f"{APPROVAL}::rules_that_changed_since_it_was_shown_make_it_void",
             f"{APPROVAL}::a_program_that_is_swapped_between_the_last_check_and_its_execution_does_not_run",
             f"{LAUNCHER}::what_is_swapped_after_it_was_read_does_not_run"),
            (f"{DESK}::an_answer_in_time_lets_the_call_run_and_its_life_is_told_in_order",
             f"{LAUNCHER}::the_very_content_that_was_meant_runs_or_nothing")),
    # replayed, decided twice, too late
    "S13": ((f"{APPROVAL}::an_approval_is_used_once_whoever_repeats_it_and_however_often",
             f"{APPROVAL}::an_approval_that_was_given_and_not_used_in_time_is_worth_nothing",
             f"{DESK}::of_a_hundred_decisions_at_once_exactly_one_counts",
             f"{DESK}::a_decision_after_the_expiry_changes_nothing"),
            (f"{DESK}::answers_and_grants_outlive_the_process",)),
    # "always" too widely
    "S14": ((f"{APPROVAL}::a_grant_is_for_the_very_call_and_not_for_one_like_it",
             f"{APPROVAL}::no_grant_is_given_for_an_interpreter",
             f"{SHELL}::what_runs_other_programs_is_never_permitted_once_for_all"),
            (f"{SHELL}::what_runs_only_itself_may_be_permitted_once_for_all",
             f"{DESK}::a_grant_lets_the_very_same_call_run_counted_until_it_ends")),
    # shown otherwise than it runs
    "S15": (("review/test_approvals::nothing_drawn_moves_or_hides",
             "review/test_approvals::two_texts_never_look_the_same",
             "review/test_approvals::a_word_of_mixed_scripts_is_warned_of",
             "review/test_approvals::even_a_very_long_text_is_shown_whole"),
            ("review/test_approvals::honest_text_is_not_warned_of",)),
    # too many questions
    "S16": ((f"{APPROVAL}::of_five_hundred_questions_in_a_minute_ten_are_shown_and_the_rest_is_denied",),
            (f"{DESK}::a_call_that_an_earlier_cycle_asked_about_joins_the_question_that_waits",)),
    # words that become commands
    "S17": ((f"{PROCESS}::what_no_program_can_be_given_is_refused", f"{SHELL}::nothing_is_expanded_or_joined",
             "acting/mcp/test_server::a_program_in_the_workspace_is_not_found_by_name"),
            (f"{PROCESS}::a_word_is_a_word",)),
    # out of the workspace
    "S18": ((f"{FILE}::no_path_leads_out", f"{FILE}::nothing_is_put_outside", f"{FILE}::no_race_of_links_leads_out",
             f"{FILE}::a_hard_link_to_a_secret_is_neither_read_nor_written",
             f"{FILE}::what_others_execute_is_not_changed_however_it_is_spelt"),
            (f"{FILE}::the_ways_that_are_meant_all_work", f"{FILE}::benign_names_that_look_alike_are_served")),
    # secrets of the service
    "S19": ((f"{PROCESS}::in_a_sandbox_no_secret_of_the_service_is_seen",
             f"{PROCESS}::without_a_sandbox_memory_environment_and_descriptors_are_closed_to_all_but_root",
             f"{PROCESS}::in_a_sandbox_no_network_is_reached_but_ones_own_loopback"),
            (f"{LAUNCHER}::the_environment_is_what_was_named_and_a_mark", f"{SHELL}::an_interpreter_works_as_usual")),
    # the own network by way of a tool
    "S22": ((f"{ADDRESS}::no_form_of_an_address_leads_to_the_own_network",
             f"{ADDRESS}::no_redirect_leads_to_the_own_network_either",
             f"{ADDRESS}::no_trick_of_spelling_a_url_gets_through",
             f"{ADDRESS}::a_name_that_turns_around_after_the_check_is_still_the_address_that_was_checked",
             f"{ADDRESS}::one_bad_address_of_a_name_refuses_it_whole",
             f"{HTTP}::a_gzip_bomb_unpacks_only_as_far_as_is_kept", f"{HTTP}::no_proxy_of_the_environment_is_used"),
            (f"{ADDRESS}::a_host_that_is_listed_is_reached",
             f"{ADDRESS}::five_redirects_are_followed_and_no_more")),
}  # fmt: skip


def test_every_attack_has_its_test_and_its_benign_twin() -> None:
    assert list(HELD_BY) == ["P17", "P18", "P19", "P32", *(f"S{number}" for number in range(12, 20)), "S22"]
    assert all(attacks and twins for attacks, twins in HELD_BY.values())


@pytest.mark.parametrize("number", HELD_BY)
def test_every_test_that_an_attack_names_is_there(number: str) -> None:
    for name in (*HELD_BY[number][0], *HELD_BY[number][1]):
        file, _, test = name.partition("::")
        assert re.search(rf"^(?:async )?def test_{test}\(", (TESTS / f"{file}.py").read_text(), re.MULTILINE), name
