"""Types are resolved once, by one thread at a time, whoever decodes into them first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
import pytest
from msgspec import Struct

from spar.decoding import convert, decode, json_schema, schema_components

T = TypeVar("T")


class Watched(Generic[T]):
    """Annotation that counts how often it is evaluated, and how many threads do so at once."""

    times, inside, most = 0, 0, 0

    def __class_getitem__(cls, kind: Any) -> Any:
        Watched.times += 1
        Watched.inside += 1
        for _ in range(100):
            Watched.most = max(Watched.most, Watched.inside)
            time.sleep(0)  # the other threads' turn
        Watched.inside -= 1
        return kind


class Shared(Struct):
    number: Watched[int] = 0  # type: ignore[assignment]


class Left(Struct):
    shared: Shared
    name: Watched[str] = ""  # type: ignore[assignment]


class Right(Struct):
    shared: Shared
    besides: Left | None = None


class Unreadable(Struct):
    value: Nobody  # type: ignore[name-defined]  # noqa: F821


def test_two_types_that_hold_the_same_are_resolved_by_one_thread_at_a_time() -> None:
    doors: tuple[Callable[[], Any], ...] = (
        lambda: convert({"shared": {"number": 1}}, Left),
        lambda: convert({"shared": {"number": 1}, "besides": {"shared": {}}}, Right),
        lambda: decode(b'{"shared": {"number": 1}}', Left),
        lambda: decode('{"shared": {"number": 1}}', Right),
        lambda: convert([{"shared": {"number": 1}}], list[Right]),
        lambda: convert({"a": {"number": 1}}, dict[str, Shared]),
    )
    barrier, errors = threading.Barrier(len(doors)), list[BaseException]()

    def use(door: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            door()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(door,)) for door in doors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert Watched.most == 1


def test_a_type_that_cannot_be_resolved_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(NameError, match="Nobody"):
            convert({"value": 1}, Unreadable)


def test_a_value_that_does_not_fit_is_refused_with_its_place() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"\$\.shared\.number"):
        convert({"shared": {"number": "1"}}, Left)

    assert convert({"shared": {"number": "1"}}, Left, strict=False) == Left(Shared(1))


class Described(Struct):
    """Thing with a description.

    Its second paragraph stands below.
    """

    inner: list[Shared] | None = None


def test_descriptions_have_no_indentation_whichever_version_of_msgspec_describes_the_type() -> None:
    (_, described), text = schema_components([Shared, Described], ref_template="#/{name}"), json_schema(Described)

    for definition in (described["Described"], text["$defs"]["Described"]):
        assert definition["description"] == "Thing with a description.\n\nIts second paragraph stands below."
