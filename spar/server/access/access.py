"""Access by tokens: which token a request has, and whether it has the right that is needed.

A refusal costs a digest and a look into a table. It is counted by its reason alone, so that nothing grows with the
number of those who try, and the log has one line a minute.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.responses import Response

from spar.errors import NotReadyError, SparError
from spar.observe.logs import get_logger
from spar.server.answers import PATIENCE, on_loop
from spar.server.problems import problem
from spar.service.token_rows import Scope, TokenRow

if TYPE_CHECKING:
    from spar.service.app import Service

log = get_logger("spar.access")

#: Seconds between two lines of the log about refusals.
TELL_EVERY: Final = 60.0
_REALM: Final = 'Bearer realm="spar"'
_HINT: Final = "spar tokens create NAME --scopes read makes one"


class AccessRefusedError(Exception):
    """A request that is not let in; `reason` is how it is counted."""

    def __init__(self, status: int, reason: str, detail: str, *, challenge: str = "", scope: str = "") -> None:
        super().__init__(detail)
        self.status, self.reason, self.detail, self.challenge, self.scope = status, reason, detail, challenge, scope

    def answer(self) -> Response:
        """Return the refusal as it is sent."""
        answer = problem(self.status, self.detail, scope=self.scope)
        if self.challenge:
            answer.headers["www-authenticate"] = self.challenge
        return answer


class Access:
    """Access to the port of one service. `monotonic` is the clock of the log's pace, in seconds."""

    def __init__(self, service: Service, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._service, self._monotonic = service, monotonic
        self._told_at: float | None = None
        self._untold: Counter[str] = Counter()
        #: Digests of tokens whose use is being noted: one note at a time, however busy the agent's loop is.
        self._noting: set[str] = set()

    async def token(self, headers: Headers) -> TokenRow:
        """Return the token of a request, which may not have the right for it.

        Raises: AccessRefusedError; NotReadyError while the tokens cannot be read.
        """
        given = headers.getlist("authorization")
        scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        if scheme.casefold() != "bearer":
            raise AccessRefusedError(401, "missing", f"a token is needed; {_HINT}", challenge=_REALM)
        await self._ready()
        row = self._service.tokens.find(text.strip())
        if row is None:
            raise AccessRefusedError(401, "unknown", "this token is not known, was revoked or has expired",
                                     challenge=f'{_REALM}, error="invalid_token"')  # fmt: skip
        if self._service.tokens.is_use_due(row):
            self._note_use(row)
        return row

    def demand(self, token: TokenRow, scope: Scope) -> None:
        """Raises: AccessRefusedError for a token that has not this right; it names the right."""
        if not token.allows(scope):
            sentence = f"the token {token.name!r} has the scopes {', '.join(token.scopes)}; this needs {scope!r}"
            raise AccessRefusedError(403, "scope", sentence,
                                     challenge=f'{_REALM}, error="insufficient_scope", scope="{scope}"',
                                     scope=scope)  # fmt: skip

    def refuse(self, refusal: AccessRefusedError) -> Response:
        """Count a refusal and return its answer."""
        self._service.refused[refusal.reason] += 1
        self._untold[refusal.reason] += 1
        now = self._monotonic()
        if self._told_at is None or now - self._told_at >= TELL_EVERY:
            self._told_at = now
            self.tell(dict(self._untold))
            self._untold.clear()
        return refusal.answer()

    def tell(self, reasons: dict[str, int]) -> None:
        """Write a line of the log. Args: reasons: how many were refused since the last one, by reason."""
        log.warning("requests refused at the port", reasons=reasons)

    async def _ready(self) -> None:
        tokens, agent = self._service.tokens, self._service.agent("")
        if tokens.is_open:
            return
        self._service.demand_open()
        try:
            await on_loop(agent, tokens.open(), PATIENCE)
        except (SparError, TimeoutError) as error:
            raise NotReadyError(f"the tokens cannot be read now: {error}") from error

    def _note_use(self, row: TokenRow) -> None:
        """Have the use noted; nobody waits for the disk."""
        loop = self._service.agent("").event_loop
        if loop is None or loop.is_closed() or row.digest in self._noting:
            return
        work = self._service.tokens.note_use(row)
        try:
            noting = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # it was closed just now
            work.close()
            return
        self._noting.add(row.digest)
        noting.add_done_callback(lambda _: self._noting.discard(row.digest))
