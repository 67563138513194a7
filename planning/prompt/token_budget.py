"""Size of a request in tokens, and how a request is made to fit a limit; pure.

Only the provider's tokenizer can count tokens. So they are estimated: four bytes of UTF-8 each, until the provider has
said the true number (`TokenEstimator.learn`). Parts are shortened in a fixed order (`STEPS`): first results of calls,
then older turns are left out, then experiences, then other data are shortened. Shortened values keep their head, their
tail and the reference to the whole. Instructions, schema and tools never change, so that the provider's cache stays
valid. The question, notices and errors are shortened last, and never left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from planning.ports import History, Request, Turn
from planning.prompt.prompts import summary_in
from planning.prompt.render import LIMIT
from planning.prompt.request import kind_of, texts_and_history
from planning.prompt.shorten import to_json
from spar.types import ActionResult

#: Bytes of a token before anything is known: English prose has 4 to 4.5, code and JSON less, most other scripts 3 to 6.
BYTES_PER_TOKEN: Final = 4.0
#: Measured bytes of a token that are plausible; outside of these the provider counted something else.
_PLAUSIBLE: Final = (1.0, 12.0)
#: Tokens from which on a request can be learnt from; in smaller ones roles and separators weigh too much.
_ENOUGH: Final = 200
#: Tokens for an answer where no limit is set: this number, or this share of the tokens that the model reads.
_ANSWER: Final = (4_096, 0.25)
#: Bytes that are added to each message and turn on the wire.
_FRAME: Final = 16


def answer_room(context_tokens: int | None) -> int:
    """Return the tokens for an answer where no limit is set.

    Args: context_tokens: tokens that the model reads, its answer included; None: not known.
    """
    most, share = _ANSWER
    return most if context_tokens is None else min(most, int(context_tokens * share))


class TokenEstimator(Struct, frozen=True):
    """Estimator of tokens by the bytes of a request that make one."""

    bytes_per_token: float = BYTES_PER_TOKEN

    def tokens(self, text: str) -> int:
        """Return the tokens of a text, rounded up."""
        return self._rounded(_length(text))

    def tokens_in(self, chars: int) -> int:
        """Return the tokens of a text of which only the number of characters is known."""
        return self._rounded(chars)

    def of(self, request: Request) -> int:
        """Return the tokens of all that a model reads of a request."""
        return self._rounded(size(request))

    def learn(self, request: Request, tokens: int) -> TokenEstimator:
        """Return an estimator that is moved halfway to the figure of a request with this true number of tokens."""
        if tokens < _ENOUGH:
            return self
        measured = size(request) / tokens
        low, high = _PLAUSIBLE
        return TokenEstimator((self.bytes_per_token + measured) / 2) if low <= measured <= high else self

    def _rounded(self, count: int) -> int:
        return -int(-count // self.bytes_per_token)


def size(request: Request) -> int:
    """Return the bytes that a model reads: instructions, schema, preface, turns, and texts or history (the longer)."""
    read = _bytes([request.instructions, *request.preface, *[turn.text for turn in request.turns]])
    read += max(_bytes(request.texts), _bytes(_pieces(request.history)))
    return read + len(msgspec.json.encode(request.schema)) + len(msgspec.json.encode(request.answer))


def _bytes(pieces: Iterable[str]) -> int:
    pieces = list(pieces)
    return _FRAME * len(pieces) + _length("".join(pieces))


def _length(text: str) -> int:
    """Return the bytes of a text in UTF-8; a text of ASCII is not encoded, because that would copy it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _pieces(history: History | None) -> Iterator[str]:
    if history is None:
        return
    yield from history.before
    for step in history.steps:
        for call in step:
            yield from (call.tool, to_json(call.arguments), call.result)
    yield from history.spoken
    yield from history.behind


class Step(Struct, frozen=True):
    """Step of shortening: the most characters of one block of `results` (also state and plan), of `data`, and of the
    `question` (also notices and errors); the number of newest `turns`; whether experiences are shown."""

    results: int = LIMIT
    turns: int = 1_000_000
    experiences: bool = True
    data: int = LIMIT
    question: int = LIMIT

    def limit_of(self, kind: str) -> int:
        """Return the most characters of one block of a kind."""
        return self.results if kind in _RESULTS else self.question if kind in _ASKED else self.data


#: Kinds with results of calls, with questions and errors, and with experiences.
_RESULTS: Final = frozenset({"state", "plan", "called", "result", "spoken"})
_ASKED: Final = frozenset({"tool", "advisor", "input", "text", "guard", "correction", "error"})
_LEARNT: Final = frozenset({"experience", "experience_now"})

#: The steps in their order; each one leaves less of a request than the one before.
STEPS: Final = (
    Step(),
    Step(results=6_000),
    Step(results=2_000),
    Step(results=2_000, turns=8),
    Step(results=2_000, turns=4),
    Step(results=2_000, turns=4, experiences=False),
    Step(results=1_000, turns=4, experiences=False, data=2_000),
    Step(results=500, turns=2, experiences=False, data=500),
    Step(results=200, turns=0, experiences=False, data=200),
    Step(results=200, turns=0, experiences=False, data=200, question=4_000),
    Step(results=200, turns=0, experiences=False, data=200, question=1_000),
)


def fit(
    request: Request, tokens: int | None, estimator: TokenEstimator | None = None, steps: Sequence[ActionResult] = ()
) -> Request:
    """Return a request that is shortened until it fits `tokens` (None: any size); if none fits, the smallest one.

    The caller has to check whether it fits (`TokenEstimator.of`). The texts are rendered anew from the context and from
    the `steps` of the run with which the request was composed, so that parts that fit stay the same.
    """
    estimator = estimator or TokenEstimator()
    if tokens is None or estimator.of(request) <= tokens:
        return request
    shorter = request
    for step in STEPS:
        shorter = _shortened(request, step, steps)
        if estimator.of(shorter) <= tokens:
            return shorter
    # Calls beside their results cannot be shortened below a size; the texts without them are shorter.
    return replace(shorter, history=None)


def _shortened(request: Request, step: Step, steps: Sequence[ActionResult]) -> Request:
    turns = request.turns
    if len(turns) > step.turns:
        left = len(turns) - step.turns
        notice = Turn("user", f"({left} earlier turns of the conversation are left out here)")
        if step.question == LIMIT and (summary := summary_in(turns[0].text)):  # the summary of earlier turns stays
            notice = Turn("user", f"{summary}\n\n{notice.text}")
        turns = (notice, *turns[left:]) if step.turns else (notice,)
    texts, history = texts_and_history(shown_at(request.context, step), steps, step.limit_of)
    return replace(request, turns=turns, texts=texts, history=history)


def shown_at(context: Iterable[Mapping[str, Any]], step: Step) -> list[dict[str, Any]]:
    """Return the messages of a context that a model reads at this step."""
    return [dict(message) for message in context if step.experiences or kind_of(message) not in _LEARNT]


def head_of(text: str, tokens: int, estimator: TokenEstimator) -> str:
    """Return a text with at most so many tokens; a longer one without its middle."""
    longest = max(200, int(tokens * estimator.bytes_per_token))
    if estimator.tokens(text) <= tokens:
        return text
    half = longest // 2
    data = text.encode("utf-8", "replace")
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return f"{head}\n… left out …\n{tail}"
