"""Record of a planner's requests: each is stored and published before it is sent, and counted after its answer.

Stored means two things: the last requests stay in memory for the status, and each one is noted in the agent's record of
its cycle (`host.note`).
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict, replace

from planning.llm.response import ModelResponse, was_refused
from planning.ports import Asked, Model, Piece, Request, TextDelta, Turn, Usage, pieces_of
from planning.prompt.token_budget import TokenEstimator
from spar.decoding import encode
from spar.errors import PermanentError
from spar.events import ModelAnswered, ModelRequested
from spar.ports.any_part import TellsListeners, offers
from spar.ports.planners import AnswerTo
from spar.protocols import Host
from spar.types import Fault

#: Number of the last requests that stay in memory, for the status.
_KEPT: Final = 5
#: Counts in the status: requests, their tokens and those of them that a cache served, requests that were too long, runs
#: deferred, answers that could not be used, empty answers, requests made without experiences because the memory failed.
_COUNTED: Final = ("requests", "tokens", "cached_tokens", "overflows", "deferred", "misfits", "empty", "unrecalled")


class Sent(NamedTuple):
    """A request that was recorded.

    `digest` is a hash of all that the model reads, `tokens` the estimated size. `attempt` is its number among the
    requests of its cycle, from 1, `number` that among all of its planner. `at` is the wall time of its sending, `began`
    the same in monotonic seconds.
    """

    request: Request
    digest: str
    tokens: int
    attempt: int = 1
    at: datetime | None = None
    began: float = 0.0
    number: int = 0


class RequestRecord:
    """Record of the requests of one planner: the last ones, the tokens they used, the estimated bytes of a token.

    Once it is attached to an agent, it also notes each request in the agent's record of the cycle, and publishes the
    beginning and end of the request as events.
    """

    def __init__(self) -> None:
        self.estimator = TokenEstimator()
        #: The last requests as they were sent, the newest last.
        self.requests: deque[Request] = deque(maxlen=_KEPT)
        #: Numbers of requests and tokens, and of faults of requests and answers, by the names in `_COUNTED`.
        self.counts: Counter[str] = Counter()
        self._host: Host | None = None
        self._number = 0  # of the requests so far
        self._is_heard: Callable[[type[Any]], bool] = _is_perhaps_heard

    def attach(self, host: Host) -> None:
        """Note requests in the records of this agent and publish them as its events, from now on."""
        self._host = host
        self._is_heard = host.events.listeners if offers(host.events, TellsListeners) else _is_perhaps_heard

    def begin(self, request: Request, attempt: int = 1) -> Sent:
        """Store and publish a request that is about to be sent."""
        self.requests.append(request)
        host, mark, tokens = self._host, digest(request), self.estimator.of(request)
        if host is None:
            return Sent(request, mark, tokens, attempt)
        self._number += 1
        header = host.traceparent("models", request.cycle_id, "model", str(self._number))
        named = replace(request, traceparent=header) if header else request
        sent = Sent(named, mark, tokens, attempt, host.clock.now(), host.clock.monotonic(), self._number)
        if self._is_heard(ModelRequested):
            host.events.publish(ModelRequested(cycle_id=request.cycle_id, run_id=request.run_id, digest=mark,
                                               attempt=attempt, tokens=tokens, request=request))  # fmt: skip
        host.note(request.cycle_id, partial(_request_note, request, mark))
        return sent

    def end(self, sent: Sent, response: ModelResponse, error: BaseException | None = None) -> None:
        """Count a request and publish its end: with an answer, or with an `error`.

        Nothing is counted where the provider did not accept the request (`is_free`).
        """
        if error is None or not was_refused(response, error):
            self._count(sent, response.usage, response.chars)
        self._publish_end(sent, response.usage, error)

    def _publish_end(self, sent: Sent, usage: Usage | None, error: BaseException | None) -> None:
        if self._host is None or sent.at is None or not self._is_heard(ModelAnswered):
            return
        request, usage = sent.request, usage or Usage()
        self._host.events.publish(
            ModelAnswered(
                cycle_id=request.cycle_id, run_id=request.run_id, digest=sent.digest, attempt=sent.attempt,
                purpose=request.purpose, model=request.models[0] if request.models else usage.model,
                answered_by=usage.model, answered_as=usage.answered_as, finish=usage.finish,
                input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cached_tokens=usage.cached_tokens,
                cost=usage.cost, started_at=sent.at, duration=self._host.clock.monotonic() - sent.began,
                error="" if error is None else Fault.of(error).kind, number=sent.number,
            )
        )  # fmt: skip

    def _count(self, sent: Sent, usage: Usage | None, chars: int) -> None:
        """Count the tokens and money of a request, and learn how many bytes a token has.

        Args: usage: None if the model did not report it, then it is estimated; chars: characters read of the answer.
        """
        request = sent.request
        if usage is None:  # it cost something even if nobody reports how much
            usage = Usage(input_tokens=sent.tokens, output_tokens=self.estimator.tokens_in(chars))
        else:
            self.estimator = self.estimator.learn(request, usage.input_tokens)
        tokens, cached = usage.amounts["tokens"], usage.amounts["cached_tokens"]
        used = {"requests": 1, "tokens": tokens}
        if usage.cost is not None:
            used["money"] = usage.cost
        self.counts["requests"] += 1
        self.counts["tokens"] += tokens + cached
        self.counts["cached_tokens"] += cached
        if request.run_id is not None and self._host is not None:
            self._host.used(request.run_id, used)
            parts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "cached_tokens": cached}
            self._host.counted(request.run_id, parts)

    def keep_settings(self, cycle_id: str, sent: Sent, asked: Asked | None) -> None:
        """Note in the record of the cycle which model answered, and with which settings it was asked."""
        if self._host is not None and asked is not None:
            self._host.note(cycle_id, partial(_answered, asked, sent.digest))

    def keep(self, cycle_id: str, kind: str, value: Any) -> None:
        """Note a value in the record of the cycle, under this kind: `advice`, `meta`, or what `hooks` changed."""
        if self._host is not None and value:
            self._host.note(cycle_id, lambda: {"kind": kind, kind: value})

    def snapshot(self) -> dict[str, Any]:
        """Return the counts (`_COUNTED`), and an outline of the last requests."""
        return {
            **{name: self.counts[name] for name in _COUNTED},
            "bytes_per_token": round(self.estimator.bytes_per_token, 2),
            "last": [_outline(request, self.estimator.of(request)) for request in tuple(self.requests)],
        }


def recorded_model(answer_to: AnswerTo, model: Model | None) -> Callable[[Request], Any]:
    """Return a model that answers from a record, and raises PermanentError where that has no answer.

    Args: answer_to: returns the answer to a request, as the record has it, None without one; model: is asked then;
        None: nobody is.
    """

    async def pieces(request: Request) -> AsyncIterator[Piece]:
        mark = digest(request)
        if (answer := answer_to(_request_note(request, mark))) is not None:
            if answer.text:
                yield TextDelta(answer.text)
            for call in answer.calls:
                yield call
            yield {"output": answer.output}
        elif model is None:
            raise PermanentError(f"no answer to the request {mark} is recorded, and the model is not asked")
        else:
            async with pieces_of(model, request) as of_model:
                async for piece in of_model:
                    yield piece

    return pieces


def _is_perhaps_heard(kind: type[Any]) -> bool:
    """Return True: this bus does not tell whether anybody hears a class of events."""
    return True


def digest(request: Request) -> str:
    """Return a hash of all that a model reads. Two cycles that send the same text get the same one."""
    read = replace(request, cycle_id="", run_id=None, purpose="", context=(), models=(), room=None, traceparent="",
                   session="", turns=())  # fmt: skip
    text = b"".join([encode(read), *[turn.digest for turn in request.turns]])
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _request_note(request: Request, request_digest: str) -> dict[str, Any]:
    """Return a request for the record of its cycle: all that the model read, and the schema for its answer."""
    return {
        "kind": "model.request",
        "digest": request_digest,
        "purpose": request.purpose,
        "instructions": request.instructions,
        **({"preface": list(request.preface)} if request.preface else {}),
        "turns": [_turn_note(turn) for turn in request.turns],
        "texts": list(request.texts),
        **({"models": list(request.models)} if len(request.models) > 1 else {}),
        **({"thinking": request.thinking} if request.thinking is not None else {}),
        "schema": request.schema,
    }


def _turn_note(turn: Turn) -> dict[str, Any]:
    calls = [{"tool": call.tool, "arguments": call.arguments, "result": call.result} for call in turn.calls]
    return {"role": turn.role, "text": turn.text, **({"calls": calls} if calls else {})}


def _outline(request: Request, tokens: int) -> dict[str, Any]:
    """Return a request for the status: its purpose and size, without its text, which only few people may read."""
    return {
        "digest": digest(request),
        "purpose": request.purpose,
        "run_id": request.run_id,
        "cycle_id": request.cycle_id,
        "tokens": tokens,
        "turns": len(request.turns),
        "texts": len(request.texts),
    }


def _answered(asked: Asked, request_digest: str) -> dict[str, Any]:
    """Return the settings with which a model was asked, for the record of the cycle beside the request."""
    settings = {name: value for name, value in asdict(asked).items() if value}
    return {"kind": "model.asked", "digest": request_digest, **settings}
