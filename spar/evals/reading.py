"""Reading of files of cases. Whatever is wrong is named with its file and line, all of a file at once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError

from spar.config.lines import Problem, dotted
from spar.config.refusals import problems
from spar.errors import ConfigError, KeyPath
from spar.evals.cases import EvalCase

#: The folder of the cases that are played when no file is named.
SHIPPED: Final = Path(__file__).parent / "shipped"
#: Most bytes of a file, and most values in it: an alias in YAML repeats all that it stands for.
LARGEST, MOST_VALUES = 16 << 20, 1_000_000
_LIST: Final = "a list of cases, each with name, messages, tools and expect"


class CasesError(ConfigError):
    """Error of a file of cases, with file and line of each problem."""


def read_cases(paths: Sequence[Path]) -> list[EvalCase]:
    """Return the cases of files, the shipped ones if no file is named. Raises: CasesError."""
    places: dict[str, str] = {}
    cases: list[EvalCase] = []
    for path in paths or sorted(SHIPPED.glob("*.yaml")):
        for line, case in _read(path):
            where = f"{path}:{line}"
            if (before := places.setdefault(case.name, where)) != where:
                raise CasesError(f"{where}: name = {case.name!r}: is the name of another case already ({before})")
            cases.append(case)
    return cases


def written(case: dict[str, Any], about: Iterable[str]) -> str:
    """Return a case as a part of a file, under comments about it. Raises: CasesError if it is none."""
    import yaml

    try:
        _adapter().validate_python([case])
    except ValidationError as error:
        sentences = (f"{dotted(problem.path[1:])}{problem.tail}" for problem in problems(error, list[EvalCase], [case]))
        raise CasesError(f"this is no case: {'; '.join(sentences)}") from None
    comments = "".join(f"# {' '.join(line.split())}\n" for line in about)
    return comments + yaml.safe_dump([case], sort_keys=False, allow_unicode=True, width=100)


def _read(path: Path) -> list[tuple[int, EvalCase]]:
    """Return the cases of a file, each with its line."""
    lines: dict[KeyPath, int] = {}
    content = _content(path, lines)
    if not content:
        raise CasesError(f"{path}: has no cases; expected {_LIST}")
    if not isinstance(content, list):
        raise CasesError(f"{path}:{lines[()]}: must be {_LIST}; begin each with a dash: - name: …")
    try:
        cases = _adapter().validate_python(content)
    except ValidationError as error:
        sentences = (_sentence(path, problem, lines) for problem in problems(error, list[EvalCase], content))
        raise CasesError("\n".join(sentences)) from None
    subject = path.stem.replace("-", " ").replace("_", " ")
    return [(lines[index,], case if case.group else replace(case, group=subject)) for index, case in enumerate(cases)]


def _sentence(path: Path, problem: Problem, lines: dict[KeyPath, int]) -> str:
    """Return a problem with the line of the nearest value around it that has one."""
    line = next(lines[place] for end in range(len(problem.path), -1, -1) if (place := problem.path[:end]) in lines)
    number, *inside = problem.path
    return f"{path}:{line}: case {int(number) + 1}{f', {dotted(tuple(inside))}' if inside else ''}{problem.tail}"


@functools.cache
def _adapter() -> TypeAdapter[list[EvalCase]]:
    return TypeAdapter(list[EvalCase])


def _content(path: Path, lines: dict[KeyPath, int]) -> Any:
    """Return the values of a YAML file, and put the line of each into `lines`."""
    import yaml

    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
        if len(raw) > LARGEST:
            raise CasesError(f"{path}: has more than {LARGEST} bytes; write the cases into several files")
        loader = yaml.SafeLoader(raw.decode("utf-8-sig"))
        node = loader.get_single_node()
        return None if node is None else _Values(path, loader, lines).of(node)
    except OSError as error:
        raise CasesError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise CasesError(f"{path}:{line}: byte {raw[error.start]:#04x} is not UTF-8") from None
    except RecursionError:
        raise CasesError(f"{path}: is nested too deeply to be read") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise CasesError(f"{path}{place}: is no YAML: {reason}; expected {_LIST}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise CasesError(f"{path}: is no YAML: {' '.join(str(error).split())}; expected {_LIST}") from None


class _Values:
    """Values of YAML's nodes, as JSON has them: a date stays the text that it is written as."""

    def __init__(self, path: Path, loader: Any, lines: dict[KeyPath, int]) -> None:
        self._path, self._loader, self._lines, self._count = path, loader, lines, 0

    def of(self, node: Any, place: KeyPath = ()) -> Any:
        """Return the value of a node at this place. Raises: CasesError."""
        self._count += 1
        if self._count > MOST_VALUES:
            raise CasesError(f"{self._path}: has more than {MOST_VALUES} values; write the cases into several files")
        self._lines.setdefault(place, node.start_mark.line + 1)
        if node.id == "mapping":
            return self._table(node.value, place)
        if node.id == "sequence":
            return [self.of(inner, (*place, index)) for index, inner in enumerate(node.value)]
        return str(node.value) if node.tag.endswith(":timestamp") else self._loader.construct_object(node)

    def _table(self, pairs: Iterable[tuple[Any, Any]], place: KeyPath) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key_node, node in pairs:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in table:
                first = self._lines[*place, key]
                raise CasesError(
                    f"{self._path}:{line}: {dotted((*place, key))}: stands here twice; first in line {first}"
                )
            self._lines[*place, key] = line
            table[key] = self.of(node, (*place, key))
        return table
