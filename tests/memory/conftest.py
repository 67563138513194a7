"""Server of PostgreSQL for the tests of the memory, and tests of a memory in a file that also run on it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from memory.sqlite.database import prepare
from tests.servers.postgresql import PostgresServer, postgres_server, programs

if TYPE_CHECKING:
    from apsw import Connection

    from memory import Memory
    from memory.postgres.store import PostgresMemory

#: Modules whose tests run on a server too, but for those that look at a file, need its index or take long.
BOTH: dict[str, tuple[str, ...]] = {
    "tests.memory.test_records": (),
    "tests.memory.test_own_rows": (
        "test_a_row_of_a_cycle_changes_when_it_is_told_what_the_cycle_does",
        "test_a_rule_stays_cooled_down_over_the_death_of_the_process",
    ),
    "tests.memory.test_memory_store": (
        "test_the_best_match_comes_first_and_words_are_found_in_any_form",
        "test_three_thousand_are_stored_in_few_groups_and_in_a_few_steps_each",
        "test_everything_is_there_after_closing_and_opening_again",
        "test_a_relative_url_starts_at_the_home_s_state_and_an_absolute_one_does_not",
        "test_a_url_of_another_form_is_refused_with_those_that_are_known",
        "test_a_file_that_is_no_database_is_refused_and_left_unchanged",
        "test_a_folder_that_cannot_be_is_refused_with_its_name",
        "test_it_keeps_the_contract_of_a_store",
    ),
    "tests.memory.test_sessions": (
        "test_forgetting_deletes_what_is_kept_of_a_session_alone_and_the_file_stays_true",
        "test_rows_of_sessions_without_a_transcript_go_with_time_unless_people_have_set_something",
        "test_the_sessions_of_a_file_of_an_earlier_format_are_listed",
    ),
    "tests.memory.test_forgotten_pieces": ("test_texts_of_cycles_that_retention_has_deleted_are_not_left_behind",),
    "tests.memory.test_transcripts": (
        "test_a_transcript_is_only_added_to",
        "test_where_the_last_compaction_cannot_be_read_the_one_before_it_counts",
        "test_the_oldest_entries_go_in_small_batches",
        "test_an_altered_entry_is_found_by_verify_told_once_and_does_not_keep_the_others",
        "test_a_copy_holds_the_transcripts_and_a_reader_cannot_add",
    ),
    "tests.memory.test_transcript_search": (),
    "tests.memory.test_audit": (
        "test_an_entry_that_was_altered_taken_out_moved_or_put_in_is_named",
        "test_the_oldest_go_with_their_age_and_the_rest_can_still_be_verified",
        "test_entries_cut_off_at_the_end_are_found_as_well",
        "test_a_file_of_the_sixth_format_gets_a_log",
    ),
    "tests.memory.experiences.test_search": (
        "test_an_experience_whose_counts_were_altered_on_disk_is_not_recalled_and_not_exported",
        "test_the_rows_that_are_ranked_do_not_grow_with_the_memory",
        "test_what_happened_in_one_situation_is_found_without_looking_through_all_others",
    ),
    "tests.memory.experiences.test_merging": (
        "test_the_work_of_merging_does_not_grow_with_what_is_there",
        "test_helped_and_harmed_are_counted_by_any_id_of_the_row",
        "test_five_hundred_repetitions_take_one_row_and_the_right_one_is_among_the_best_five",
    ),
    "tests.memory.experiences.test_inspect": (),
    "tests.memory.journal.test_orphans": (),
}


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """Return a server; without one the test is skipped, but never where CI is set."""
    if programs() is None and not os.environ.get("CI"):
        pytest.skip("no server of PostgreSQL is installed: apt install postgresql")
    with postgres_server() as server:
        yield server


@pytest.fixture
def url(server: PostgresServer) -> str:
    """Return the URL of a new database."""
    return server.database()


@pytest.fixture(autouse=True)
def database(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test's module make memories on a server, one database for each file that it names."""
    if getattr(request, "param", "") == "postgres":
        server: PostgresServer = request.getfixturevalue("server")
        monkeypatch.setattr(request.module, "Memory", memories_on(server.database))


def memories_on(make_url: Callable[[], str]) -> type[PostgresMemory]:
    """Return a class with the constructor of a memory in a file, whose memories are on a server."""
    from memory.postgres.store import PostgresMemory

    urls: dict[str, str] = {}

    class OnServer(PostgresMemory):
        def __init__(self, url: str = "sqlite://:memory:", **options: Any) -> None:
            for name in ("ballast", "on_damage"):
                options.pop(name, None)
            where = make_url() if url.endswith(":memory:") else urls.get(url) or urls.setdefault(url, make_url())
            super().__init__(where, **options)

    return OnServer


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    apart = BOTH.get(metafunc.module.__name__)
    if apart is not None:
        both = ["sqlite"] if metafunc.function.__name__ in apart else ["sqlite", "postgres"]
        metafunc.parametrize("database", both, indirect=True)


@pytest.fixture
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[Memory]:
    """An open memory of the kind that the test's module makes."""
    async with request.module.Memory("sqlite://:memory:") as opened:
        yield opened


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    """A new file, as the memory prepares it."""
    opened = prepare(str(tmp_path / "memory.db"), "off").connection
    yield opened
    opened.close()
