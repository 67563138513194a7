"""What a log line looks like, how often it may repeat, and how it is written."""

import io
import json
import os
import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from logging import makeLogRecord
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from spar.observe.formatting import FIELD_LIMIT, LINE_LIMIT, json_line, make_line, pretty_line
from spar.observe.sink import LIMIT, Repeats
from spar.observe.writer import MAX_BYTES, MAX_LINES, Descriptor, FileOutput, StreamOutput, Writer

AT = datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


def line(message: Any = "m", exception: BaseException | None = None, /, **fields: Any) -> dict[str, Any]:
    return make_line("info", "spar.test", message, fields, exception, AT)


def told(message: Any = "m", exception: BaseException | None = None, /, **fields: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json_line(line(message, exception, **fields)))
    return found


def until(condition: Callable[[], bool]) -> bool:
    """Whether it becomes true within twenty seconds."""
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


# -- one line


def test_a_line_is_one_json_object_with_time_level_message_and_fields() -> None:
    assert told("cycle finished", agent="main", seconds=0.5) == {
        "ts": "2030-01-02T03:04:05.000678Z",
        "level": "info",
        "msg": "cycle finished",
        "logger": "spar.test",
        "agent": "main",
        "seconds": 0.5,
    }


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class UnshowableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


class Row(Struct):
    name: str
    password: str = "hunter2"


def test_any_value_is_shown_harmlessly() -> None:
    circular: list[Any] = [1]
    circular.append(circular)

    found = told(
        surrogate="\ud800x",
        nan=float("nan"),
        big=2**70,
        raw=b"\xff\x00ok",
        circular=circular,
        broken=Unshowable(),
        at=AT,
        path=Path("/x"),
        row=Row("n"),
        error=ValueError("bad"),
        keys={1: "a", "token": "t", None: 2},
        level="collides",
        digits=10**5000,
    )

    assert found["surrogate"] == "\ufffdx"
    assert (found["nan"], found["big"], found["raw"]) == (None, 2**70, "/wBvaw==")
    assert found["circular"][:1] == [1]
    assert found["broken"] == "… a Unshowable that cannot be read: RuntimeError …"
    assert (found["at"], found["path"]) == ("2030-01-02T03:04:05.000678Z", "/x")
    assert found["row"] == {"name": "n", "password": "***"}
    assert found["error"] == "ValueError: bad"
    assert found["keys"] == {"1": "a", "token": "***", "None": 2}
    assert (found["level"], found["level_"]) == ("info", "collides")
    assert found["digits"] == "… an integer of 16610 bits …"


def test_an_exception_that_cannot_be_shown_is_still_told() -> None:
    assert told("m", UnshowableError())["error.message"] == "<UnshowableError that cannot be shown>"


def test_a_field_and_a_line_are_bounded() -> None:
    one = told(text="x" * 10_000_000)["text"]
    many = json_line(line(**{f"f{number}": "\x01" * 9000 for number in range(50)}))

    assert len(one.encode()) < FIELD_LIMIT + 100
    assert re.search(r"x\n… 99918\d\d characters left out …\nx", one)
    assert len(many.encode()) <= LINE_LIMIT
    assert json.loads(many)["msg"] == "m"


def test_wide_and_deep_values_are_cut() -> None:
    deep: Any = "bottom"
    for _ in range(500):
        deep = [deep]

    found = told(wide=list(range(10_000)), deep=deep, bushy=[[[[list(range(90))] * 90] * 90] * 90] * 90)

    assert "… 9000 items left out …" in found["wide"]
    assert "nested too deeply" in json.dumps(found["deep"])
    assert "bottom" not in json.dumps(found["deep"])
    assert len(json.dumps(found["bushy"])) < 3 * FIELD_LIMIT


def test_secrets_do_not_reach_a_line_by_any_way() -> None:
    text = json_line(line("Bearer abcdef", ValueError("password=hunter2"), api_key="k-1", url="http://u:pw@h/?key=zz"))

    assert "***" in text
    for secret in ("abcdef", "hunter2", "k-1", "pw", "zz"):
        assert secret not in text


def test_a_secret_at_the_cut_is_not_half_shown() -> None:
    assert "Bearer abcd" not in told(text="x" * (FIELD_LIMIT - 12) + " Bearer abcdefghijkl")["text"]


def test_a_line_for_people_is_one_line_whatever_it_holds() -> None:
    shown = pretty_line(line("two\nlines", a="b c", d="\x1b[31m\u202ered", n=3, t={"x": [1]}))

    assert "\n" not in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert shown.endswith('info    two\\nlines  a="b c" d="\\x1b[31m\\u202ered" n=3 t={"x":[1]}')


def test_colour_is_used_only_when_asked_for() -> None:
    assert "\x1b[32m" in pretty_line(line(), colour=True)
    assert "\x1b" not in pretty_line(line())


CYCLE = {"noticed": "inbox: a.txt", "decided": "rule 'x' matched", "calls": "note ✓ files ✗", "milliseconds": 229.7}


def cycle_line(*, colour: bool = False, **fields: Any) -> str:
    return pretty_line(line("cycle acted", **{**CYCLE, **fields}), colour=colour).partition(" ")[2]


def test_a_cycle_that_acted_is_a_sentence_for_people() -> None:
    told = "info    inbox: a.txt → rule 'x' matched → note ✓ files ✗  230 ms"

    assert cycle_line(agent="main", session="main", cycle="c") == told
    assert cycle_line(session="bob") == told.replace("inbox", "bob: inbox")
    assert "→ answered  12.0 s" in cycle_line(calls="", milliseconds=12_000)
    assert "\x1b[32m✓\x1b[0m files \x1b[31m✗\x1b[0m" in cycle_line(colour=True)
    assert "\x1b" not in cycle_line(noticed="\x1b[2J", session="\x1b]0;x\x07")
    assert "cycle acted  noticed=7" in cycle_line(noticed=7)


def test_a_line_that_was_written_reads_as_it_did() -> None:
    made = line("m", OSError("gone"), a="b c", n=3)

    again = json.loads(json_line(made))

    assert pretty_line(again) == pretty_line(made)
    assert pretty_line(made, is_dated=True).startswith(AT.astimezone().strftime("%Y-%m-%d %H:%M:%S."))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters()) | st.integers(), inner) | st.sets(st.text())
    ),
    max_leaves=10,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.text(st.characters(), max_size=5), _VALUES, max_size=5), st.text(st.characters()))
def test_whatever_is_logged_is_one_line_of_json(fields: dict[str, Any], message: str) -> None:
    made = make_line("info", "x", message, fields)

    text = json_line(made)
    shown = pretty_line(made)

    assert "\n" not in text
    assert set(json.loads(text)) >= {"ts", "level", "msg"}
    assert "\n" not in shown


# -- repetition


def is_left_out(repeats: Repeats, message: str, **fields: Any) -> bool:
    return repeats.leaves_out("warning", "spar.test", message, fields)


def test_what_was_left_out_is_told_when_its_time_is_over_and_then_the_line_is_written_again() -> None:
    now = 10.0
    told: list[Any] = []
    repeats = Repeats(lambda: now, told.append)

    assert repeats.wait() is None
    assert [is_left_out(repeats, "m") for _ in range(LIMIT + 2)] == [False] * LIMIT + [True] * 2
    assert (repeats.wait(), told) == (60.0, [])
    now += 60.0
    assert repeats.wait() is None
    assert [(line["msg"], line["of"], line["count"]) for line in told] == [("repeated lines left out", "m", 2)]
    assert not is_left_out(repeats, "m")


def test_a_thousand_different_complaints_do_not_grow_the_memory() -> None:
    repeats = Repeats(lambda: 0.0, lambda line: None)

    assert not any(is_left_out(repeats, f"message {number}") for number in range(3000))
    assert len(repeats._counts) <= 1000


# -- writing


class Stalling(io.StringIO):
    """A stream that writes nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.begun = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.begun.set()
        assert self.gate.wait(60)
        return super().write(text)


def writer_to(stream: io.StringIO) -> Writer:
    return Writer(StreamOutput(stream), lambda line: f"<{line['count']} dropped>" if "count" in line else line["msg"])


def put(writer: Writer, *messages: str) -> None:
    for message in messages:
        writer.put({"msg": message})


def test_a_stalled_output_never_stops_who_logs_and_what_was_dropped_is_told() -> None:
    stream = Stalling()
    writer = writer_to(stream)
    put(writer, "first")
    assert stream.begun.wait(20)

    numbers = [str(number) for number in range(MAX_LINES + 3)]
    put(writer, *numbers)
    in_time = writer.close(0.01)
    stream.gate.set()

    assert (in_time, writer.dropped) == (False, 3)
    assert writer.close(20)
    assert stream.getvalue().splitlines() == ["first", "<3 dropped>", *numbers[:-3]]


def test_the_queue_is_bounded_in_bytes_too() -> None:
    stream = Stalling()
    writer = writer_to(stream)
    put(writer, "x")
    assert stream.begun.wait(20)

    put(writer, *["y" * (2 * MAX_BYTES // 5)] * 5)
    stream.gate.set()

    assert writer.close(20)
    assert writer.dropped == 2


class Failing(io.StringIO):
    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def write(self, text: str) -> int:
        if self.failures:
            self.failures -= 1
            raise BrokenPipeError
        return super().write(text)


def test_an_output_that_fails_loses_lines_and_is_tried_again() -> None:
    stream = Failing(1)
    writer = writer_to(stream)
    put(writer, "lost")
    assert until(lambda: writer.dropped == 1)

    put(writer, "kept")

    assert writer.close(20)
    assert stream.getvalue() == "<1 dropped>\nkept\n"


def test_what_is_put_after_the_end_is_counted() -> None:
    writer = writer_to(io.StringIO())
    writer.close(2)

    put(writer, "late")

    assert writer.dropped == 1


def test_a_pipe_that_another_program_made_non_blocking_loses_nothing() -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    writer = Writer(StreamOutput(Descriptor(theirs)), lambda line: str(line["msg"]))
    put(writer, *["z" * 60_000] * 5)

    with os.fdopen(ours) as reader:
        rows = [reader.readline() for _ in range(5)]

    assert rows == ["z" * 60_000 + "\n"] * 5
    assert writer.close(20)


def write(file: FileOutput, *lines: str) -> None:
    for text in lines:
        file.emit(makeLogRecord({"msg": text}))


def test_a_file_is_set_aside_when_it_grows_too_large_and_no_other_is_renamed_or_goes(tmp_path: Path) -> None:
    others = dict.fromkeys(("spar.log.old", "spar.access.log", "spar.log.3"), b"not ours")
    for name, content in {**others, "spar.log": b"old\n"}.items():
        (tmp_path / name).write_bytes(content)
    for last in (3, 8):
        file = FileOutput(tmp_path / "spar.log", max_bytes=10, older=2)
        write(file, *[f"line {number}" for number in range(last + 1)])
        file.close()
        found = {item.name: item.read_bytes() for item in tmp_path.iterdir()}
        names = ("spar.log", "spar.log.1", "spar.log.2")
        assert found == others | {name: b"line %d\n" % (last - age) for age, name in enumerate(names)}


@pytest.mark.parametrize("way", ["renamed", "deleted", "another file in its place"])
def test_a_file_that_somebody_else_has_taken_away_is_begun_again(tmp_path: Path, way: str) -> None:
    path, aside = tmp_path / "spar.log", tmp_path / "spar.log.1"
    file = FileOutput(path, max_bytes=100, older=2)
    write(file, "before")

    path.rename(aside)
    if way == "deleted":
        aside.unlink()
    elif way == "another file in its place":  # as logrotate's `create` does
        path.touch(0o600)
    write(file, "after", "more")
    file.close()

    contents = {item.name: item.read_bytes() for item in tmp_path.iterdir()}
    assert contents == {"spar.log": b"after\nmore\n"} | ({} if way == "deleted" else {"spar.log.1": b"before\n"})
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_name_of_a_log_file_is_taken_as_it_is_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    FileOutput(tmp_path / "{time} {x}.log").close()
    assert [(item.name, item.stat().st_mode & 0o777) for item in tmp_path.iterdir()] == [("{time} {x}.log", 0o600)]


@pytest.mark.parametrize("value", [float("inf"), -(2**63), 2**63 - 1, "", [], {}, ()])
def test_edges_of_values_are_encodable(value: Any) -> None:
    assert "v" in told(v=value)
