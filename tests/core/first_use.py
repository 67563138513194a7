"""Let many threads of a fresh process decode into each struct class of the tree for the first time together.

Run as a program: it imports the modules that decode, and forks `argv[1]` processes, in which no class has been used
yet. It writes the number of classes, and how the processes ended, as JSON to standard output.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, inspect

from spar.decoding import convert

ROOT = Path(__file__).parents[2]
PACKAGES = ("spar", "perception", "planning", "acting", "reflection", "memory")
THREADS = 8


def decoding_modules() -> list[str]:
    """Return the modules that import the functions of `spar.decoding`."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    names = [
        path.relative_to(ROOT).with_suffix("") for path in paths if "from spar.decoding import" in path.read_text()
    ]
    return [".".join(name.parts) for name in names]


def struct_classes(base: type = Struct) -> Iterator[type]:
    """Yield the struct classes of the tree that are imported."""
    for kind in base.__subclasses__():
        if kind.__module__.partition(".")[0] in PACKAGES:
            yield kind
        yield from struct_classes(kind)


def sample(kind: inspect.Type, depth: int = 0) -> Any:
    """Return plain data that lets msgspec read every field of a type."""
    match kind:
        case inspect.StructType() if depth < 6:
            return {field.encode_name: sample(field.type, depth + 1) for field in kind.fields}
        case inspect.UnionType():
            return sample(next(each for each in kind.types if not isinstance(each, inspect.NoneType)), depth)
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.EnumType():
            return next(iter(kind.cls)).value
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
            return [sample(kind.item_type, depth + 1)]
        case inspect.DictType():
            return {sample(kind.key_type, depth): sample(kind.value_type, depth + 1)}
        case inspect.StrType():
            return "a"
        case inspect.IntType() | inspect.FloatType():
            return kind.ge or 1
        case inspect.BoolType():
            return True
        case inspect.DateTimeType():
            return "2026-11-22T18:00:00Z"
        case _:
            return None


def classes() -> list[type]:
    """Return the struct classes of the tree in a fixed order."""
    return sorted(set(struct_classes()), key=lambda kind: f"{kind.__module__}.{kind.__qualname__}")


def samples() -> list[tuple[int, Any]]:
    """Return a sample for each class that msgspec can decode into, by the place of its class, the largest first.

    The threads meet while one class is resolved inside another, so a class comes before those inside it.
    """
    pairs = []
    for place, kind in enumerate(classes()):
        try:
            pairs.append((place, sample(inspect.type_info(kind))))
        except (TypeError, NameError):  # a type that msgspec refuses, or a name that only type checkers import
            continue
    return sorted(pairs, key=lambda pair: len(json.dumps(pair[1])), reverse=True)


def samples_of_another_process() -> list[tuple[int, Any]]:
    """Return the samples; `inspect` resolves the classes, so that another process has to use it."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        with os.fdopen(writer, "w") as pipe:
            json.dump(samples(), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        pairs: list[tuple[int, Any]] = json.load(pipe)
    os.waitpid(child, 0)
    return pairs


def decode_all(pairs: list[tuple[type, Any]]) -> None:
    """Convert each sample in all threads at once."""
    barrier = threading.Barrier(THREADS)

    def decode() -> None:
        for kind, plain in pairs:
            barrier.wait()
            try:
                convert(plain, kind, strict=False)
            except (ValidationError, ValueError, TypeError):
                continue

    threads = [threading.Thread(target=decode) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def run(processes: int) -> None:
    """Fork the processes and write how they ended."""
    for name in decoding_modules():
        importlib.import_module(name)
    kinds = classes()
    pairs = [(kinds[place], plain) for place, plain in samples_of_another_process()]
    sys.setswitchinterval(1e-6)
    children = []
    for _ in range(processes):
        if (child := os.fork()) == 0:
            decode_all(pairs)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    json.dump({"classes": len(pairs), "codes": codes}, sys.stdout)


if __name__ == "__main__":
    run(int(sys.argv[1]))
