"""Size of a request in tokens, and how a request is made to fit a limit; pure.

Only the provider's tokenizer can count tokens. So they are estimated: four bytes of UTF-8 each, until the provider has
said the true number (`TokenEstimator.learn`). Parts are shortened in a fixed order (`STEPS`): first results of calls,
then older turns are left out, then what was told of earlier moments. Shortened values keep their head, their tail and
the reference to the whole. Instructions, schema and tools never change, so that the provider's cache stays valid. The
messages of people are shortened last, and those of the run are never left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from planning.ports import FRAME, Request, Turn
from planning.prompt.call_results import place_of
from planning.prompt.prompts import summary_in
from planning.prompt.render import LIMIT
from planning.prompt.shorten import head_and_tail, shown

#: Bytes of a token before anything is known: English prose has 4 to 4.5, code and JSON less, most other scripts 3 to 6.
BYTES_PER_TOKEN: Final = 4.0
#: Measured bytes of a token that are plausible; outside of these the provider counted something else.
_PLAUSIBLE: Final = (1.0, 12.0)
#: Tokens from which on a request can be learnt from; in smaller ones roles and separators weigh too much.
_ENOUGH: Final = 200
#: Tokens for an answer where no limit is set: this number, or this share of the tokens that the model reads.
_ANSWER: Final = (4_096, 0.25)


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
    read = _bytes([request.instructions, *request.preface]) + sum([turn.size for turn in request.turns])
    read += max(_bytes(request.texts), sum([turn.size for turn in request.history or ()]))
    return read + len(msgspec.json.encode(request.schema)) + len(msgspec.json.encode(request.answer))


def _bytes(pieces: Sequence[str]) -> int:
    return FRAME * len(pieces) + _length("".join(pieces))


def _length(text: str) -> int:
    """Return the bytes of a text in UTF-8; a text of ASCII is not encoded, because that would copy it."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class Step(Struct, frozen=True):
    """Step of shortening: the most characters of one of the `results` of calls, of one `context`, and of the messages
    of people and answers in it (`question`); the number of newest `turns` from before the run."""

    results: int = LIMIT
    turns: int = 1_000_000
    context: int = LIMIT
    question: int = LIMIT


#: The steps in their order; each one leaves less of a request than the one before.
STEPS: Final = (
    Step(results=6_000),
    Step(results=2_000),
    Step(results=2_000, turns=24),
    Step(results=2_000, turns=8),
    Step(results=1_000, turns=8, context=2_000),
    Step(results=500, turns=4, context=500),
    Step(results=200, turns=0, context=200),
    Step(results=200, turns=0, context=200, question=4_000),
    Step(results=200, turns=0, context=200, question=1_000),
)


def fit(request: Request, tokens: int | None, estimator: TokenEstimator | None = None) -> Request:
    """Return a request that is shortened until it fits `tokens` (None: any size); if none fits, the smallest one.

    The caller has to check whether it fits (`TokenEstimator.of`). Parts that fit stay the same, and the same step
    shortens the requests that follow in the same way, so that they still begin with one another.
    """
    estimator = estimator or TokenEstimator()
    if tokens is None or estimator.of(request) <= tokens:
        return request
    shorter = request
    for step in STEPS:
        shorter = _shortened(request, step)
        if estimator.of(shorter) <= tokens:
            return shorter
    while estimator.of(shorter) > tokens and (fewer := _without_half(shorter)) is not None:
        shorter = fewer
    return shorter


def _without_half(request: Request) -> Request | None:
    """Return a request without the older half of the answers of its run; None if one or none is left."""
    border = len(request.turns) - request.own
    answers = [at for at in range(border, len(request.turns)) if request.turns[at].role != "user"]
    if len(answers) < 2:
        return None
    gone = set(answers[: len(answers) // 2])
    turns = tuple([turn for at, turn in enumerate(request.turns) if at not in gone])
    return replace(request, turns=turns, own=request.own - len(gone))


def _shortened(request: Request, step: Step) -> Request:
    border = len(request.turns) - request.own
    earlier, own = request.turns[:border], request.turns[border:]
    if len(earlier) > step.turns:
        left = len(earlier) - step.turns
        notice = Turn("context", f"({left} earlier turns of the conversation are left out here)")
        if step.question == LIMIT and (summary := summary_in(earlier[0].text)):  # the summary of earlier turns stays
            notice = Turn("context", f"{summary}\n\n{notice.text}", trust=earlier[0].trust)
        earlier = (notice, *earlier[left:])
    return replace(request, turns=tuple(_short_turn(turn, step) for turn in (*earlier, *own)))


def _short_turn(turn: Turn, step: Step) -> Turn:
    limit = step.context if turn.role == "context" else step.question
    calls = [
        replace(
            call,
            result=head_and_tail(call.result, step.results, place_of(call.arguments)),
            arguments=shown(call.arguments, (), step.results),
        )
        for call in turn.calls
    ]
    return replace(turn, text=head_and_tail(turn.text, limit), calls=tuple(calls))


def head_of(text: str, tokens: int, estimator: TokenEstimator) -> str:
    """Return a text with at most so many tokens; a longer one without its middle."""
    longest = max(200, int(tokens * estimator.bytes_per_token))
    if estimator.tokens(text) <= tokens:
        return text
    half = longest // 2
    data = text.encode("utf-8", "replace")
    head, tail = data[:half].decode("utf-8", "ignore"), data[-half:].decode("utf-8", "ignore")
    return f"{head}\n… left out …\n{tail}"
