"""Logging as a whole: what a program sees, in processes and with pipes as there are in service."""

import io
import json
import logging
import os
import pty
import select
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import loguru
import pytest

from spar import Agent, Call, tool
from spar.errors import ConfigError
from spar.observe.logs import get_logger
from spar.observe.sink import Logs, configure
from tests.effort import effort, hang_guard

log = get_logger("spar.test")


class Said:
    """Logging to a stream of the test."""

    def __init__(self, stream: io.StringIO, logs: Logs) -> None:
        self.stream, self.logs = stream, logs

    def lines(self) -> list[dict[str, Any]]:
        assert self.logs.close()
        return [json.loads(row) for row in self.stream.getvalue().splitlines()]


@pytest.fixture
def said() -> Iterator[Said]:
    stream = io.StringIO()
    logs = configure("info", "json", stream=stream)
    yield Said(stream, logs)
    logs.close()


def run(code: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=30, check=False, **kwargs
    )


# -- what is said


def test_message_and_values_may_hold_braces_and_tags(said: Said) -> None:
    log.info("odd {message} <red>{0}</red>", value="{x}", message="a field", self="me")

    (line,) = said.lines()

    assert (line["msg"], line["value"], line["message"]) == ("odd {message} <red>{0}</red>", "{x}", "a field")
    assert line["self"] == "me"
    assert line["logger"] == "spar.test"


@tool
def talkative() -> str:
    """Log by a logger of spar and by one of a library."""
    log.info("at work", run="own")
    logging.getLogger("lib").warning("works")
    return "done"


async def test_lines_of_a_tool_and_its_libraries_name_the_cycle_and_the_run(said: Said) -> None:
    log.info("before")
    async with Agent(plan=lambda noticed: [Call("talkative")], tools=[talkative]) as agent:
        run_id = (await agent.submit("go")).run_id
        await agent.wait(run_id)

    lines = {line["msg"]: line for line in said.lines()}

    assert lines["works"]["run"] == run_id
    assert lines["at work"]["run"] == "own"
    assert lines["at work"]["cycle"] == lines["works"]["cycle"] != ""
    assert "cycle" not in lines["before"]


def test_what_is_less_important_than_the_level_is_not_said_until_it_is_changed(said: Said) -> None:
    log.debug("not yet")
    said.logs.set_level("debug")
    log.debug("now")
    said.logs.set_level("error")
    log.warning("no more")

    assert [line["msg"] for line in said.lines()] == ["now"]


def test_an_exception_is_said_without_the_values_of_variables(said: Said) -> None:
    secret_value = "hunter" + "2"  # in a variable only
    try:
        len(secret_value) / 0
    except ZeroDivisionError:
        log.exception("it broke", part="x")

    (line,) = said.lines()

    assert (line["level"], line["error.type"], line["error.message"]) == (
        "error",
        "ZeroDivisionError",
        "division by zero",
    )
    assert "hunter2" not in json.dumps(line)
    assert "Traceback" in line["error.stack"]


def test_a_log_call_never_raises(said: Said) -> None:
    class Hostile:
        def __repr__(self) -> str:
            log.info("from inside a repr")
            raise RuntimeError

        def __str__(self) -> str:
            raise RuntimeError

    message: Any = Hostile()
    log.info(message, value=Hostile(), **{"": 1, "a b": 2})
    log.exception("nothing is being handled")

    assert [line["msg"] for line in said.lines()][-1] == "nothing is being handled"


def test_repetitions_are_left_out_and_counted(said: Said) -> None:
    for _ in range(25):
        log.warning("sensor failed", agent="main", sensor="host")
    log.info("sensor failed")

    lines = said.lines()

    assert [line["msg"] for line in lines].count("sensor failed") == 11
    assert (lines[-1]["msg"], lines[-1]["of"], lines[-1]["count"], lines[-1]["sensor"]) == (
        "repeated lines left out",
        "sensor failed",
        15,
        "host",
    )


def test_a_line_that_is_left_out_is_not_even_made(said: Said) -> None:
    class Shown:
        count = 0

        def __repr__(self) -> str:
            Shown.count += 1
            return "shown"

    for _ in range(1000):
        log.warning("sensor failed", agent="main", sensor="host", value=Shown())

    lines = said.lines()
    assert [line["msg"] for line in lines].count("sensor failed") == Shown.count == 10
    assert lines[-1]["count"] == 990


@pytest.mark.parametrize("odd", [7, "api_key=sk-live-0123456789abcdef0123456789", "\ud800"])
def test_lines_whose_names_are_odd_repeat_like_any_other(said: Said, odd: Any) -> None:
    for _ in range(25):
        log.warning("sensor failed", agent="main", sensor=odd)

    lines = said.lines()
    assert [line["msg"] for line in lines].count("sensor failed") == 10
    assert lines[-1]["count"] == 15


# -- what others say


def test_the_standard_librarys_logging_arrives(said: Said) -> None:
    logging.getLogger("lib").warning("odd %s %d", "{value}", 3)
    try:
        raise ValueError("inner")
    except ValueError:
        logging.getLogger("lib").critical("failed", exc_info=True)
    for chatty in ("httpx", "httpx2", "mcp.client.streamable_http"):
        logging.getLogger(chatty).info("GET https://host/?key=secret")
    logging.getLogger("lib").debug("too little")

    first, second = said.lines()

    assert (first["msg"], first["logger"], first["level"]) == ("odd {value} 3", "lib", "warning")
    assert (second["level"], second["error.message"]) == ("error", "inner")


def test_warnings_arrive(said: Said) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old way {x}", DeprecationWarning, stacklevel=1)

    (line,) = said.lines()

    assert line["logger"] == "py.warnings"
    assert "DeprecationWarning: old way {x}" in line["msg"]


def test_others_may_use_loguru_itself(said: Said) -> None:
    loguru.logger.bind(user="u").success("formatted {}", 3)
    loguru.logger.opt(exception=ValueError("inner")).error("failed")

    first, second = said.lines()

    assert (first["msg"], first["level"], first["user"]) == ("formatted 3", "info", "u")
    assert second["error.type"] == "ValueError"


def test_a_program_that_removes_the_handlers_of_loguru_does_not_end_the_log(said: Said) -> None:
    loguru.logger.remove()
    log.info("still here")

    assert [line["msg"] for line in said.lines()] == ["still here"]


def test_a_handler_of_a_program_gets_what_is_said_through_loguru(said: Said) -> None:
    heard: list[str] = []
    handler = loguru.logger.add(heard.append, format="{message}")
    log.info("ours")
    loguru.logger.info("theirs")
    loguru.logger.remove(handler)

    assert [line["msg"] for line in said.lines()] == ["ours", "theirs"]
    assert heard == ["theirs\n"]


def test_everything_is_put_back_on_close() -> None:
    handlers, level = logging.root.handlers[:], logging.root.level

    configure(stream=io.StringIO()).close()
    configure(stream=io.StringIO()).close()

    assert (logging.root.handlers, logging.root.level) == (handlers, level)
    assert logging.getLogger("httpx").level == logging.NOTSET


def test_configuring_again_closes_what_was_before() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure(stream=first, format="json")
    log.info("one")

    logs = configure(stream=second, format="json")
    log.info("two")
    logs.close()

    assert [json.loads(stream.getvalue())["msg"] for stream in (first, second)] == ["one", "two"]


# -- where it goes


def test_a_file_gets_the_same_lines_as_json(tmp_path: Path) -> None:
    path = tmp_path / "spar.log"
    stream = io.StringIO()
    logs = configure("info", "pretty", stream=stream, file=path)
    log.info("both", n=1)
    assert logs.close()

    assert json.loads(path.read_text())["n"] == 1
    assert stream.getvalue().endswith("info    both  n=1\n")


def test_a_file_that_cannot_be_opened_is_refused_by_its_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"log\.file = '.*': cannot be opened: No such file or directory") as caught:
        configure(file=tmp_path / "no" / "folder.log")

    assert caught.value.path == ("log", "file")


def test_without_a_terminal_lines_are_json_written_at_exit_also_those_whose_arguments_do_not_fit() -> None:
    done = run("""
        import logging
        from spar.observe.logs import get_logger
        from spar.observe.sink import configure
        configure("info", "auto")
        get_logger("x").info("hello", n=1)
        logging.getLogger("lib").info("mismatch %s %s", 1)
    """)

    assert done.stdout == ""
    assert [json.loads(line)["msg"] for line in done.stderr.splitlines()] == ["hello", "mismatch %s %s (1,)"]


@pytest.mark.parametrize(("environ", "has_colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_on_a_terminal_lines_are_for_people_with_colour_unless_unwanted(
    environ: dict[str, str], has_colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in {"TERM": "xterm", **environ}.items():
        monkeypatch.setenv(name, value)
    with os.fdopen(os.dup(theirs), "w") as stream:
        logs = configure("info", "auto", stream=stream)
        log.info("hello", n=1)
        assert logs.close()
    assert select.select([ours], [], [], 30)[0]
    shown = os.read(ours, 4096).decode()
    os.close(theirs)
    os.close(ours)

    assert "hello" in shown
    assert "n=1" in shown
    assert ("\x1b[32m" in shown) == has_colour


def test_nothing_is_imported_or_touched_before_it_is_needed() -> None:
    done = run("""
        import sys, logging
        from spar.observe.logs import get_logger
        log = get_logger("x")
        log.info("ignored {x}", x=1)
        log.debug("ignored")
        print([name for name in ("loguru", "pydantic", "msgspec") if name in sys.modules], logging.root.handlers)
    """)

    assert (done.stdout, done.stderr) == ("[] []\n", "")


def test_in_somebody_elses_program_only_warnings_are_said_with_their_fields_and_no_variables() -> None:
    done = run("""
        from spar.observe.logs import get_logger
        log = get_logger("x")
        log.info("quiet")
        password = "hunter2"
        try:
            [password][1]
        except IndexError:
            log.exception("failed {here}", part="p", token="abc")
    """)

    (line,) = done.stderr.splitlines()
    assert "failed {here}  part=p token=*** error.type=IndexError" in line
    assert "hunter2" not in done.stderr
    assert "abc" not in done.stderr


STALLED = """
    import asyncio, json, sys
    from spar.observe.logs import get_logger
    from spar.observe.sink import configure
    logs = configure("info", "json")
    log = get_logger("x")
    async def main():
        for number in range(2800):
            log.info("line", number=number, padding="x" * 7000)
            await asyncio.sleep(0)
    asyncio.run(main())
    print(json.dumps({"dropped": logs.dropped}), flush=True)
    if "wait" in sys.argv:
        sys.stdin.readline()
        log.info("after")
    in_time = logs.close(0.2 if "wait" not in sys.argv else 20)
    print(json.dumps({"in_time": in_time}), flush=True)
"""


def start(code: str, *args: str, **kwargs: Any) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", textwrap.dedent(code), *args]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, **kwargs)


def test_full_pipes_neither_stop_the_loop_nor_the_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with start(STALLED.replace('"json")', '"json", file="pipe")'), cwd=tmp_path) as process:
        assert process.stdout is not None
        try:
            with hang_guard():  # nobody reads a line: whoever waits for the pipe waits for ever
                ready = json.loads(process.stdout.readline())
                ended = json.loads(process.stdout.readline())
                code = process.wait()
        finally:
            process.kill()
        process.stderr.read()
    os.close(reader)

    assert ready["dropped"] > 0
    assert (ended["in_time"], code) == (False, 0)


def test_when_the_pipe_is_read_again_everything_kept_arrives_and_the_loss_is_told() -> None:
    with start(STALLED, "wait") as process:
        assert process.stderr is not None
        dropped = json.loads(process.stdout.readline())["dropped"]
        process.stdin.write(b"\n")
        process.stdin.flush()
        lines = [json.loads(row) for row in process.stderr]
        ended = json.loads(process.stdout.readline())

    numbers = [line["number"] for line in lines if line["msg"] == "line"]
    notes = [line["count"] for line in lines if line["msg"] == "log lines dropped"]
    kept_after = any(line["msg"] == "after" for line in lines)
    assert ended["in_time"]
    assert len(numbers) + dropped == 2800
    assert numbers == sorted(numbers)
    assert sum(notes) == dropped + (not kept_after)


def test_a_reader_that_goes_away_does_not_end_the_service() -> None:
    code = """
        import sys, time
        from spar.observe.logs import get_logger
        from spar.observe.sink import configure
        logs = configure("info", "json")
        log = get_logger("x")
        sys.stdin.readline()
        for number in range(10):
            log.info("line", number=number)
            end = time.monotonic() + 20
            while logs.dropped <= number and time.monotonic() < end:
                time.sleep(0.001)
        print(logs.dropped, flush=True)
    """
    with start(code) as process:
        process.stderr.close()
        process.stdin.write(b"\n")
        process.stdin.flush()
        dropped = int(process.stdout.readline())
        code_of_exit = process.wait(30)

    assert (dropped, code_of_exit) == (10, 0)


@pytest.mark.parametrize("file", ["/dev/full", "spar.log"])
def test_a_full_disk_loses_lines_of_the_file_alone_and_counts_them(file: str, tmp_path: Path) -> None:
    done = run(f"""
        import resource, time
        from spar.observe.logs import get_logger
        from spar.observe.sink import configure
        logs = configure("info", "json", file={str(tmp_path / file)!r})
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        for number in range(3):
            get_logger("x").info("line", number=number)
            end = time.monotonic() + 20
            while logs.dropped <= number and time.monotonic() < end:
                time.sleep(0.001)
        print(logs.dropped, logs.close())
    """)

    assert (done.stdout, done.returncode) == ("3 True\n", 0)
    assert [json.loads(row)["number"] for row in done.stderr.splitlines()] == [0, 1, 2]


def test_a_file_may_be_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    logs = configure("info", "json", stream=io.StringIO(), file=pipe)
    log.info("hello")

    assert logs.close()
    assert json.loads(os.read(reader, 4096))["msg"] == "hello"
    os.close(reader)
    assert [item.name for item in tmp_path.iterdir()] == ["pipe"]


def test_a_closed_stream_does_not_end_the_service() -> None:
    stream = io.StringIO()
    logs = configure("info", "json", stream=stream)
    stream.close()

    log.info("lost")

    assert logs.close()
    assert logs.dropped == 1


def test_a_log_call_is_cheap_and_a_muted_one_cheaper(said: Said) -> None:
    def cost(level: str) -> int:
        return effort(lambda: getattr(log, level)("cycle finished", agent="main", cycle="c", seconds=0.1))

    assert cost("info") < 1_500
    assert cost("debug") < 30
