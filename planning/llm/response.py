"""One request to a model, and its solution as it comes: first calls and text for people, at the end the rest.

    async with ModelResponse(model, request) as response:
        async for item in response:      # a call on the wire (mapping), a `TextDelta` or a `ThoughtDelta`
            …
    response.output, response.meta, response.usage, response.problem

A call is yielded once it is complete. A model may give the whole solution at once as an object, the JSON text of the
solution in pieces, or calls and members of the solution one by one. An answer that cannot be read sets `problem`, a
sentence for the next request; errors of the model are raised. The model's stream is closed as soon as nothing more of
it can be used. This module does not check calls and outputs: the executor checks the calls, the caller the output.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Literal

from msgspec import Struct

from planning.llm.streaming_json import LONGEST, PartialSolution
from planning.ports import (
    Asked,
    Model,
    ProvidedCall,
    Request,
    Signed,
    TextDelta,
    ThoughtDelta,
    Usage,
    pieces_of,
)
from planning.prompt.call_results import PROVIDER_ID
from planning.prompt.prompts import EMPTY, IDLE
from planning.resilience.provider_errors import is_free
from spar.checks import shorten
from spar.data.json_safe import UNBOUNDED, plain
from spar.types import Call, without_service_keys

#: Most calls of one solution; further ones are left out, and `problem` says so.
MOST_CALLS: Final = 500
#: A call on the wire, or a piece of text or of thought.
Item = dict[str, Any] | TextDelta | ThoughtDelta
_PARTS: Final = frozenset({"meta", "advisors", "calls", "output"})


class ModelResponse:
    """One request to a model, to be iterated over once; leaving the `async with` closes the model's stream.

    Raises, while iterated over: what the model raises; the attributes then hold the part that had come before.
    """

    def __init__(self, model: Model, request: Request) -> None:
        self.request = request
        #: The output; None while there is none.
        self.output: Any = None
        self.meta: dict[str, Any] | None = None
        #: The answers of advisors in the solution, in order.
        self.advisors: list[dict[str, Any]] = []
        #: The calls on the wire that were yielded so far.
        self.calls: list[dict[str, Any]] = []
        #: Tokens and costs so far, of all models that were asked; None if none of them reports any.
        self.usage: Usage | None = None
        #: The settings with which the answering model was asked; None if it does not report them.
        self.asked: Asked | None = None
        #: The parts that the provider signed and wants back.
        self.signed: tuple[Mapping[str, Any], ...] = ()
        #: A sentence for the model about an error for which the whole answer cannot be used; "" if there is none.
        self.problem = ""
        #: A sentence for the model about a part of the answer that was changed or left out; the rest of it is used.
        self.remark = ""
        self._model = model
        self._shown: list[str] = []
        self._text: PartialSolution | None = None
        self._is_said = False  # whether the answer has any member of a solution, even if only `"output": null`
        self._is_over = False  # whether nothing more of the answer can be used
        #: Characters that were read: text for people, thoughts or JSON.
        self.chars = 0
        self._items = self._run()

    @property
    def text(self) -> str:
        """Return the text for people so far."""
        return "".join(self._shown)

    @property
    def is_empty(self) -> bool:
        """Return whether the model answered with nothing at all, or with blanks. An explicit `null` is not empty."""
        if self.calls or self.problem:
            return False
        return not self._is_said or (isinstance(self.output, str) and not self.output.strip())

    async def __aenter__(self) -> ModelResponse:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the model's stream. Idempotent."""
        await self._items.aclose()

    def __aiter__(self) -> AsyncIterator[Item]:
        return self._items

    async def _run(self) -> AsyncGenerator[Item, None]:
        async with pieces_of(self._model, self.request) as pieces:
            async for piece in pieces:
                for item in self._take(piece):
                    yield item
                if self._is_over:  # more of the answer would cost money and be thrown away
                    break
        for item in self._finish():
            yield item

    # -- pieces

    def _take(self, piece: Any) -> Iterator[Item]:
        if isinstance(piece, str):
            self._text = self._text or PartialSolution()
            self.chars += len(piece)
            for item in self._text.feed(piece):
                yield from self._show(item.text) if isinstance(item, TextDelta) else self._call(item)
            self._is_over = self._is_over or self._text.is_over
        elif isinstance(piece, TextDelta):
            yield from self._tell(piece.text)
        elif isinstance(piece, ThoughtDelta):
            self.chars += len(piece.text)
            yield piece
        elif isinstance(piece, Usage):
            self.usage = piece if self.usage is None else added(self.usage, piece)
        elif isinstance(piece, Signed):
            self.signed = piece.parts
        elif isinstance(piece, Asked):
            self.asked = piece
        elif isinstance(piece, Call):
            yield from self._call(piece.to_wire())
        elif isinstance(piece, Mapping):
            members = plain(piece, UNBOUNDED)
            if "_tool" in members:
                yield from self._call(members, piece.provided if isinstance(piece, ProvidedCall) else "")
            else:
                yield from self._part(members, calls_too=True)
        elif piece is not None:
            self._object(f"an answer is a solution or pieces of one, found {shorten(piece)}")
            self._is_over = True

    def _part(self, part: Mapping[str, Any], *, calls_too: bool) -> Iterator[Item]:
        """Take members of the solution; with `calls_too` also its calls, which are yielded."""
        known = _PARTS & part.keys()
        if part and not known:
            self._object(
                f"it has none of the members that a solution has, found {shorten(list(part))}; "
                "known: meta, advisors, calls, output"
            )
            return
        self._is_said = self._is_said or bool(known)
        if isinstance(meta := part.get("meta"), Mapping):
            self.meta = dict(meta)
        elif meta is not None:
            self._object(f"meta is an object, found {shorten(meta)}")
        advisors = part.get("advisors")
        if isinstance(advisors, list):
            self.advisors += [dict(advice) for advice in advisors if isinstance(advice, Mapping)]
        elif advisors is not None:
            self._object(f"advisors is a list, found {shorten(advisors)}")
        if "output" in part:
            self.output = part["output"]
        calls = part.get("calls") if calls_too else None
        if isinstance(calls, list):
            for call in calls:
                yield from self._call(call)
        elif calls is not None:
            self._object(f"calls is a list, found {shorten(calls)}")

    def _call(self, call: Any, provided: str = "") -> Iterator[dict[str, Any]]:
        self._is_said = True
        if len(self.calls) >= MOST_CALLS:
            self._object(f"a solution has at most {MOST_CALLS} calls, the rest was left out")
            self._is_over = True
            return
        # A call that is no object is yielded as one that names no tool: the executor refuses it with an error.
        wire = without_service_keys(call) if isinstance(call, dict) else {"_found": shorten(call, 200)}
        if provided:
            wire[PROVIDER_ID] = provided
        self.calls.append(wire)
        yield wire

    def _tell(self, text: str) -> Iterator[TextDelta]:
        self.chars += len(text)
        if self.chars > LONGEST:
            self._object(f"it says more than {LONGEST} characters, the rest was left out")
            self._is_over = True
            return
        yield from self._show(text)

    def _show(self, text: str) -> Iterator[TextDelta]:
        if text:
            self._shown.append(text)
            yield TextDelta(text)

    def _finish(self) -> Iterator[Item]:
        """Yield the items that are known only at the end."""
        if self._text is not None:
            self._text.close()
            solution = self._text.solution
            self.remark = self._text.remark
            if self._text.problem:
                self._object(self._text.problem)
            if "calls" in solution and not isinstance(solution["calls"], list):
                self._object(f"calls is a list, found {shorten(solution['calls'])}")
            if solution:
                yield from self._call(solution) if "_tool" in solution else self._part(solution, calls_too=False)
        if isinstance(self.output, str) and not self._shown:
            yield from self._tell(self.output)

    def _object(self, problem: str) -> None:
        self.problem = self.problem or problem


def was_refused(response: ModelResponse, error: BaseException) -> bool:
    """Return whether the provider did not accept the request: it brought nothing, and the error spends nothing."""
    return response.usage is None and not response.calls and not response.chars and is_free(error)


def added(one: Usage, other: Usage) -> Usage:
    """Return the sum of two usages; its cost is known when both are."""
    costs = (one.cost, other.cost)
    return Usage(
        model=other.model or one.model,
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        cost=None if None in costs else sum(cost for cost in costs if cost is not None),
        answered_as=other.answered_as or one.answered_as,
        finish=other.finish or one.finish,
    )


#: Most answers in a row that cannot be used and after which the model is asked again. Number of empty answers in a row
#: that ends a run.
MOST_MISFITS: Final = 3
MOST_EMPTY: Final = 2


class Judgement(Struct, frozen=True):
    """Decision about one answer: it is `used`, with its `output` (None: only its calls); or it cannot be used, and the
    model is told `why`, unless that was tried often enough (`is_last`)."""

    kind: Literal["used", "misfit", "empty", "idle"]
    output: Any = None
    why: str = ""
    is_last: bool = False


class AnswerFaults(Struct):
    """Faults of the last answers of one run, and what it remembers of them for its next request.

    It judges for both loops of requests: an answer is used, or the model is asked again and told why. An answer with a
    problem, or with an output that does not fit, cannot be used. An output beside which something was changed or left
    out (a *remark*) is asked for again once; it is used if the model gives it again. An explicit null without calls is
    an answer, but one that does nothing (*idle*): it counts as an empty one.

    `misfits` counts the answers in a row that could not be used, `empty` the empty ones. `notice` is a sentence for the
    next request. `output` is an output that refers to calls which have not ended. `meta` names the newest version of
    the work. `heard` is the number of messages that people had added to the run when the model was last asked.
    `query` is the text by which experiences were last recalled.
    """

    misfits: int = 0
    empty: int = 0
    notice: str = ""
    output: Any = None
    heard: int = 0
    meta: Mapping[str, Any] | None = None
    query: str = ""

    def judge(
        self, response: ModelResponse, output: Any, check: Callable[[Any], tuple[Any, str]], problem: str = "",
        *, is_asked_again: bool = True,
    ) -> Judgement:  # fmt: skip
        """Judge a complete answer, and count it.

        Args: output: that of the answer, None where it is for later; check: returns an output as it is used, and what
            is wrong with it; problem: why the answer cannot be used, besides its own problem; is_asked_again: whether
            the run can ask again.
        """
        problem = response.problem or problem
        if isinstance(output, str) and not output.strip():
            output = None
        if output is not None and not problem:
            output, problem = check(output)
            if output is not None and is_asked_again and not self.misfits:
                problem = response.remark
        if problem:
            self.misfits += 1
            return Judgement("misfit", None, problem, self.misfits > MOST_MISFITS)
        if output is None and not response.calls:
            self.empty += 1
            is_last = self.empty >= MOST_EMPTY
            return (
                Judgement("empty", None, EMPTY, is_last)
                if response.is_empty
                else Judgement("idle", None, IDLE, is_last)
            )
        self.misfits = self.empty = 0
        return Judgement("used", output)
