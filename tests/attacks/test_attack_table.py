"""Which test holds back which of the named attacks on the port, processes, approvals, files, secrets and addresses.

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
FACE, RAW, PORT, DOORS = (
    "attacks/test_face_attacks",
    "attacks/test_port_attacks",
    "server/test_port",
    "server/test_doors",
)
API, DECIDED, CONSOLE = "server/test_api", "server/test_approvals", "server/test_console"
CALLED, MEMORIES, PINS = "attacks/test_api_attacks", "attacks/test_poisoned_memories", "acting/mcp/test_pins"
LIVING, SEEN = "console/test_living", "console/test_lived_views"

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
    # a port that is open to all
    "S1": ((f"{FACE}::only_probes_and_files_without_data_are_answered_without_a_token",
            f"{PORT}::without_a_good_token_nothing_is_told",
            "server/test_hooks::an_open_hook_on_an_open_port_is_refused_at_the_start"),
           (f"{PORT}::each_right_opens_its_routes_and_no_other_one",)),
    # a name that leads here
    "S2": ((f"{RAW}::a_page_whose_name_leads_here_is_told_nothing",
            f"{PORT}::other_hosts_and_pages_of_other_origins_are_refused_also_with_a_token"),
           (f"{PORT}::a_port_is_asked_by_address_or_by_a_name_that_was_given_to_it",)),
    # a page of another origin that changes something
    "S3": ((f"{FACE}::a_cookie_gives_no_more_than_its_token_and_only_to_its_own_page",
            f"{RAW}::a_page_of_another_origin_changes_nothing_even_where_it_knows_a_token",
            f"{CONSOLE}::a_change_by_cookie_must_come_from_the_page"),
           (f"{CONSOLE}::a_token_is_exchanged_for_a_cookie_that_scripts_cannot_read",)),
    # a token in an address, a log, a stream
    "S4": ((f"{FACE}::no_word_in_an_address_is_a_token_and_none_is_written_down",
            f"{LIVING}::no_token_and_no_session_stands_in_a_log_an_address_or_the_page",
            f"{FACE}::an_answer_with_data_is_stored_by_no_browser"),
           (f"{LIVING}::a_stream_goes_on_after_a_broken_connection_and_after_a_restart",)),
    # a console that is led elsewhere, or stands in a frame
    "S5": ((f"{LIVING}::no_address_leads_elsewhere_and_no_page_frames_it",
            f"{FACE}::no_address_leads_to_another_host",
            f"{CONSOLE}::a_page_runs_its_own_files_only_and_stands_in_no_frame"),
           (f"{SEEN}::the_other_services_of_the_machine_are_linked_and_no_token_goes_with_the_link",)),
    # markup in what is shown
    "S6": (("console/test_views::text_from_outside_is_shown_and_never_run",
            f"{SEEN}::text_of_strangers_is_text_in_its_own_direction",
            f"{CONSOLE}::the_files_ask_no_other_host_and_make_no_markup_of_text"),
           (f"{SEEN}::each_view_shows_its_data_and_axe_finds_nothing_serious",)),
    # a route without its token
    "S7": ((f"{FACE}::only_probes_and_files_without_data_are_answered_without_a_token",
            f"{RAW}::no_way_of_writing_the_path_leads_past_the_token",
            f"{API}::all_that_is_served_under_v1_is_an_operation_with_a_scope"),
           (f"{PORT}::each_right_opens_its_routes_and_no_other_one",)),
    # text that is evaluated
    "S8": ((f"{CALLED}::no_expression_is_code", "planning/rules/test_templates::python_attributes_cannot_be_reached"),
           (f"{CALLED}::no_expression_is_code", "planning/rules/test_templates::a_template_reads_as_written")),
    # a body of another kind
    "S9": ((f"{FACE}::a_cookie_gives_no_more_than_its_token_and_only_to_its_own_page",
            f"{API}::a_field_that_is_not_documented_is_refused"),
           (f"{API}::every_documented_parameter_is_read_by_its_operation",)),
    # a right that a request gives itself
    "S10": ((f"{RAW}::a_right_is_not_widened_by_the_request", f"{RAW}::no_header_makes_a_stranger_somebody",
             f"{CONSOLE}::a_session_may_do_what_its_token_may"),
            (f"{PORT}::rights_add_up",)),
    # approval of something else than was shown
    "S11": ((f"{DECIDED}::a_body_that_says_more_less_or_other_is_refused_and_decides_nothing",
             "console/test_approvals::a_call_that_was_decided_or_changed_meanwhile_is_refused_and_said"),
            (f"{DECIDED}::each_decision_brings_what_goes_with_it",
             "console/test_approvals::a_call_is_approved_by_keyboard_alone")),
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
    "S19": ((f"{PROCESS}::in_a_sandbox_no_secret_of_the_service_is_seen_and_without_one_by_root_alone",
             f"{PROCESS}::in_a_sandbox_no_network_is_reached_but_ones_own_loopback"),
            (f"{LAUNCHER}::the_environment_is_what_was_named_and_a_mark", f"{SHELL}::an_interpreter_works_as_usual")),
    # data that becomes an object
    "S20": ((f"{CALLED}::tables_with_the_tags_of_other_decoders_are_only_data",),
            (f"{API}::every_documented_parameter_is_read_by_its_operation",)),
    # text that is a command of the store
    "S21": ((f"{FACE}::text_in_a_query_or_a_path_is_only_text",),
            ("memory/experiences/test_search::filters_hold_exactly",)),
    # the own network by way of a tool
    "S22": ((f"{ADDRESS}::no_form_of_an_address_leads_to_the_own_network",
             f"{ADDRESS}::no_redirect_leads_to_the_own_network_either",
             f"{ADDRESS}::no_trick_of_spelling_a_url_gets_through",
             f"{ADDRESS}::a_name_that_turns_around_after_the_check_is_still_the_address_that_was_checked",
             f"{ADDRESS}::one_bad_address_of_a_name_refuses_it_whole",
             f"{HTTP}::a_gzip_bomb_unpacks_only_as_far_as_is_kept", f"{HTTP}::no_proxy_of_the_environment_is_used"),
            (f"{ADDRESS}::a_host_that_is_listed_is_reached",
             f"{ADDRESS}::five_redirects_are_followed_and_no_more")),
    # out by an image, a link, an address
    "S24": (("console/test_views::text_from_outside_is_shown_and_never_run",
             f"{FACE}::only_probes_and_files_without_data_are_answered_without_a_token",
             "attacks/test_untrusted_data::no_way_in_and_back_out_by_installed_tools_has_an_unasked_effect"),
            ("console/test_page::the_first_view_is_small",)),
    # tools of a server that change after they were accepted
    "S25": ((f"{PINS}::a_tool_that_changed_is_off_and_the_change_is_named", f"{PINS}::a_damaged_file_allows_nothing"),
            (f"{PINS}::a_tool_that_is_again_what_it_was_is_on_again",)),
    # secrets in answers, logs, measures
    "S26": ((f"{CALLED}::a_secret_in_a_message_stands_in_no_answer_no_log_and_no_measure",
             f"{LIVING}::no_token_and_no_session_stands_in_a_log_an_address_or_the_page"),
            (f"{CALLED}::a_secret_in_a_message_stands_in_no_answer_no_log_and_no_measure",)),
    # measures without end
    "S27": (("service/test_health_metrics::tools_without_end_overflow_into_one_series_and_that_is_counted",
             "service/test_metrics::labels_may_hold_any_text",
             "service/test_metrics::ids_and_messages_are_in_no_label"),
            ("service/test_metrics::every_agent_starts_with_all_its_series_at_zero",)),
    # experiences that strangers bring in
    "S28": ((f"{MEMORIES}::a_forged_import_decides_nothing",
             f"{MEMORIES}::a_flood_of_one_experience_from_a_stranger_decides_nothing"),
            (f"{MEMORIES}::an_import_that_an_operator_vouches_for_does",)),
    # guesses, bodies without end, idle readers, hidden requests
    "S29": ((f"{RAW}::guessing_is_counted_and_leads_nowhere",
             f"{FACE}::a_token_is_found_by_its_digest_in_constant_time",
             f"{FACE}::a_thousand_idle_readers_of_events_take_no_place_of_the_others",
             f"{FACE}::no_second_request_is_hidden_in_a_first_one",
             f"{RAW}::strangers_who_send_slowly_and_much_keep_nobody_waiting_and_cost_no_memory",
             f"{DOORS}::hundreds_of_half_sent_requests_close_the_doors_for_nobody",
             f"{DOORS}::a_body_above_its_limit_is_refused_by_its_head_and_while_it_is_read"),
            (f"{PORT}::guesses_of_a_peer_are_limited_and_lock_out_neither_a_valid_token_nor_another_peer",
             f"{DOORS}::an_answer_on_a_kept_connection_is_not_held_back_for_an_acknowledgement")),
    # parts of strangers
    "S30": ((f"{CONSOLE}::the_library_of_the_page_is_the_one_that_its_notice_names",
             "parts/test_registry::nothing_is_imported_before_it_is_named"),
            ("parts/test_registry::a_part_is_found_by_its_name_and_by_its_import_string",)),
    # a change that nobody is known for
    "S31": (("server/test_audit::each_request_that_changes_something_leaves_one_entry_also_if_it_comes_twice",
             f"{PORT}::what_a_token_does_is_told_as_its_own"),
            ("server/test_audit::what_is_refused_or_only_looked_at_leaves_none",)),
    # a cage that is off, or opened by who is in it
    "S32": ((f"{CALLED}::no_call_by_hand_reaches_beyond_the_workspace_or_lowers_its_cage",
             f"{SHELL}::below_the_level_that_is_asked_for_the_tool_is_off_and_says_why",
             f"{SHELL}::a_call_cannot_name_its_level"),
            (f"{SHELL}::the_level_is_known_once_the_tool_is_open",)),
    # a tool that rewrites what holds it
    "S33": ((f"{CALLED}::no_call_by_hand_reaches_beyond_the_workspace_or_lowers_its_cage",
             f"{FILE}::what_others_execute_is_not_changed_however_it_is_spelt"),
            (f"{CALLED}::no_call_by_hand_reaches_beyond_the_workspace_or_lowers_its_cage",)),
    # a door of the engine
    "S34": ((f"{CALLED}::nothing_listens_but_the_port_and_the_socket_of_the_owner",
             f"{CALLED}::tables_with_the_tags_of_other_decoders_are_only_data"),
            (f"{CALLED}::nothing_listens_but_the_port_and_the_socket_of_the_owner",)),
}  # fmt: skip


def test_every_attack_has_its_test_and_its_benign_twin() -> None:
    numbers = (*range(1, 23), *range(24, 35))
    assert list(HELD_BY) == ["P17", "P18", "P19", "P32", *(f"S{number}" for number in numbers)]
    assert all(attacks and twins for attacks, twins in HELD_BY.values())


@pytest.mark.parametrize("number", HELD_BY)
def test_every_test_that_an_attack_names_is_there(number: str) -> None:
    for name in (*HELD_BY[number][0], *HELD_BY[number][1]):
        file, _, test = name.partition("::")
        assert re.search(rf"^(?:async )?def test_{test}\(", (TESTS / f"{file}.py").read_text(), re.MULTILINE), name
