"""Sensor that receives the posts of other programs to `/hooks/NAME`: alerts, deliveries, anything.

It has no state of its own: the journal stores an accepted post before the sender gets the answer, under an id made
from the delivery, so that a repetition is recognised. The id of a signed post is made from what was signed alone, since
anybody who has seen the post can change its other headers; a delivery id or key that it has is remembered as well.
Everything in a post is untrusted. A thread reads the posts, and the number of waiting ones is bounded for each sensor,
so that a flood is refused and affects nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final

from annotated_types import Ge, Le

from perception.sensors.webhook.body import Noticed
from perception.sensors.webhook.formats import Fields, Format, admits, reader_of
from perception.sensors.webhook.proof import Proof, Signing, check_secret
from spar.errors import ConfigError, NotReadyError
from spar.net.addresses import is_loopback
from spar.ports.webhook import Taken, WebhookRefusal, WebhookRequest
from spar.protocols import SensorContext
from spar.types import Perception, replace

_GITHUB: Final = Signing(header="X-Hub-Signature-256")
#: Bound of the characters of a delivery id.
_LONGEST_ID: Final = 200


class SignedPost(list[Perception]):
    """Perceptions of a signed request, with the keys (by the perception's id) under which they are recognised, too."""

    def __init__(self, perceptions: Iterable[Perception], keys: Mapping[str, str]) -> None:
        super().__init__(perceptions)
        self.keys = keys


class WebhookSensor:
    """Posts to `/hooks/NAME` of the service's HTTP port, where NAME is the sensor's.

    Args: format: of the posts; token: the bearer token that senders must have; secret: the key of their signatures;
    signing: the terms of the signature; unauthenticated: any program of this machine may post, and nobody else;
    delivery_header: the header with the id of a delivery (generic format), by which a repetition is recognised;
    fields: the places of the fields in JSON (generic format); kind: of its perceptions; max_bytes: of a body;
    service_host: the address of the service's port.

    Raises: ConfigError.
    """

    def __init__(
        self,
        *,
        format: Format = "generic",
        token: str = "",
        secret: str = "",
        signing: Signing | None = None,
        unauthenticated: bool = False,
        delivery_header: str = "Idempotency-Key",
        fields: Fields | None = None,
        kind: str = "webhook",
        max_bytes: Annotated[int, Ge(1), Le(1 << 20)] = 256 * 1024,
        service_host: str = "127.0.0.1",
    ) -> None:
        token, secret = check_secret("token", token.strip()), check_secret("secret", secret)
        if format == "github" and signing is None:
            signing = _GITHUB
        if signing is not None and not secret and format != "github":
            raise ConfigError("nothing is signed without a secret; give one", path=("signing",))
        if not (token or secret or unauthenticated):
            raise ConfigError(
                'a hook needs to know its senders: give a token or a secret, such as token = { env = "HOOK_TOKEN" }; '
                "unauthenticated = true lets any program of this machine post",
            )
        if (token or secret) and unauthenticated:
            raise ConfigError("cannot be true beside a token or a secret", path=("unauthenticated",))
        if unauthenticated and not is_loopback(service_host):
            sentence = f"anybody could post to it: service.host = {service_host!r} is not only this machine"
            raise ConfigError(f"{sentence}; give it a token or a secret", path=("unauthenticated",))
        self.max_bytes = max_bytes
        self._proof = Proof(token=token, secret=secret, signing=signing or Signing())
        self._format: Format = format
        self._reader = reader_of(format, fields or Fields(), kind)
        self._delivery_header = delivery_header.lower()
        self._lock = threading.Lock()
        self._requests: Counter[str] = Counter()
        self._ctx: SensorContext | None = None

    async def open(self, ctx: SensorContext) -> None:
        """Accept posts from now on."""
        self._ctx = ctx

    async def close(self) -> None:
        """Accept no more posts."""
        self._ctx = None

    @property
    def has_secret(self) -> bool:
        """Return whether senders must prove their identity."""
        return self._proof.is_demanded

    @property
    def requests(self) -> Mapping[str, int]:
        """Return the number of requests by outcome."""
        with self._lock:
            return dict(self._requests)

    def count(self, outcome: str) -> None:
        """Count the outcome of a request. It may be called from any thread."""
        with self._lock:
            self._requests[outcome] += 1

    def admit(self, headers: Mapping[str, str]) -> None:
        """Check the headers of a request. Raises: WebhookRefusal."""
        self._proof.admit(headers)
        if headers.get("content-encoding", "identity").strip().lower() != "identity":
            raise WebhookRefusal(415, "the body must not be packed", "unsupported")
        if not admits(self._format, headers.get("content-type", "")):
            known = "application/json, text/plain" if self._format == "generic" else "application/json"
            raise WebhookRefusal(415, f"the content type must be one of: {known}", "unsupported")
        if len(headers.get(self._delivery_header, "")) > _LONGEST_ID:
            raise WebhookRefusal(400, f"a delivery id may have {_LONGEST_ID} characters", "malformed")

    def read(self, request: WebhookRequest) -> Sequence[Perception]:
        """Return the perceptions of a request. It may be called from any thread. Raises: WebhookRefusal,
        NotReadyError."""
        ctx = self._opened()
        signed = self._proof.judge(request.headers, request.body, ctx.clock.now())
        contents = self._reader(request)
        delivery = request.headers.get(self._delivery_header, "") if self._format == "generic" else ""
        if not signed:
            return [self._perception(ctx, noticed, delivery, delivery or noticed.key) for noticed in contents]
        post, keys = list[Perception](), dict[str, str]()
        own = signed if self._format == "generic" and self._proof.signs_time else ""
        for number, noticed in enumerate(contents):
            mark = signed if number == 0 else f"{signed} {number}"
            post.append(self._perception(ctx, noticed, delivery or own, mark))
            if unsigned := delivery or noticed.key:
                keys[post[-1].id] = f"webhook {_id_of(ctx.name, unsigned)}"
        return SignedPost(post, keys)

    async def take(self, perceptions: Sequence[Perception]) -> Taken:
        """Accept the perceptions durably, all at once.

        Raises: the first error of `SensorContext.accept`, after all calls have ended.
        """
        ctx = self._opened()
        keys = perceptions.keys if isinstance(perceptions, SignedPost) else {}
        works = [ctx.accept(item, key=keys[item.id]) if item.id in keys else ctx.accept(item) for item in perceptions]
        ends = await asyncio.gather(*works, return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return Taken(accepted=sum(end is True for end in ends), known=sum(end is False for end in ends))

    def _opened(self) -> SensorContext:
        if self._ctx is None:
            raise NotReadyError("the hook is not open")
        return self._ctx

    def _perception(self, ctx: SensorContext, noticed: Noticed, delivery: str, mark: str | None) -> Perception:
        """Return a perception of a request. Args: mark: the text that identifies it; None: nothing does."""
        key = noticed.key if noticed.key is not None or not delivery else f"{ctx.name} {delivery}"
        perception = ctx.perception(noticed.content, noticed.kind, key=key, subject=noticed.subject,
                                    attributes=noticed.attributes)  # fmt: skip
        return perception if mark is None else replace(perception, id=_id_of(ctx.name, mark))


def _id_of(name: str, mark: str) -> str:
    """Return the perception's id, which is the same for a repetition; it has the form of any other id."""
    text = f"{name}\0{mark}".encode("utf-8", "replace")
    return hashlib.blake2b(text, digest_size=16, person=b"spar webhook").hexdigest()
