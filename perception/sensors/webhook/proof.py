"""Proofs of the sender: a bearer token, or a signature (HMAC-SHA256) over the body and, if there is one, its time.

Secrets are compared in constant time and never appear in errors.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, Field, model_validator

from spar.errors import ConfigError
from spar.ports.webhook import WebhookRefusal

#: Least number of characters of a secret.
_SHORTEST: Final = 16
_TIME, _BODY = "{timestamp}", "{body}"


class Signing(BaseModel):
    """Terms of a signature: the signed content, and the headers."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    header: Annotated[str, Field(min_length=1, max_length=100)] = "X-Signature"
    """The header that has the signature."""
    prefix: Annotated[str, Field(max_length=32)] = "sha256="
    """The text before the signature in that header."""
    encoding: Literal["hex", "base64"] = "hex"
    """The encoding of the signature."""
    timestamp_header: Annotated[str, Field(max_length=100)] = ""
    """The header with the time of signing in seconds since 1970; "": there is none, and an equal body is a repeated
    request."""
    tolerance: Annotated[float, Ge(1), Le(86_400)] = 300.0
    """Seconds by which that time may differ from now."""
    content: str = ""
    """The signed content: `{body}`, with a time `{timestamp}.{body}`, or another form of the sender, such as
    `v0:{timestamp}:{body}`."""

    @model_validator(mode="after")
    def _content_fits(self) -> Signing:
        """Refuse a content without the time or the body."""
        signed = self.signed
        if not signed.endswith(_BODY) or signed.count(_BODY) != 1:
            raise ValueError(f"content must end with {_BODY}, once; an example: '{_TIME}.{_BODY}'")
        if (_TIME in signed) != bool(self.timestamp_header):
            raise ValueError(f"content must hold {_TIME} if, and only if, there is a timestamp_header")
        return self

    @property
    def signed(self) -> str:
        return self.content or (f"{_TIME}.{_BODY}" if self.timestamp_header else _BODY)


class Proof:
    """Check of the sender, by a token or a secret; either is enough.

    Args: token, secret: "" for none; signing: the terms of the signature.
    """

    def __init__(self, *, token: str, secret: str, signing: Signing) -> None:
        self._token, self._secret, self._signing = token.encode(), secret.encode(), signing

    @property
    def is_demanded(self) -> bool:
        return bool(self._token or self._secret)

    @property
    def signs_time(self) -> bool:
        return bool(self._signing.timestamp_header)

    def admit(self, headers: Mapping[str, str]) -> None:
        """Check the headers of a request. Raises: WebhookRefusal."""
        if not self.is_demanded or self._has_token(headers):
            return
        if not self._secret:
            raise WebhookRefusal(401, "a bearer token is needed, and this is not it", "unauthorized")
        if not self._signature_in(headers):
            raise WebhookRefusal(401, "a signature is needed, in the header that was agreed", "unauthorized")

    def judge(self, headers: Mapping[str, str], body: bytes, now: datetime) -> str:
        """Check the signature. Return a text that identifies what was signed; "" for a request with the token.

        Raises: WebhookRefusal.
        """
        if not self._secret or self._has_token(headers):
            return ""
        signing = self._signing
        at = headers.get(signing.timestamp_header.lower(), "").strip() if signing.timestamp_header else ""
        if not hmac.compare_digest(self._signature(body, at), self._signature_in(headers)):
            raise WebhookRefusal(401, "the signature does not fit", "unauthorized")
        if signing.timestamp_header:
            if not (at.isascii() and at.isdigit() and len(at) <= 12):
                raise WebhookRefusal(401, "the time of signing must be in seconds since 1970", "unauthorized")
            if abs(now.timestamp() - int(at)) > signing.tolerance:
                raise WebhookRefusal(401, "it was signed too long ago, or one of the clocks is wrong", "expired")
        return f"{at} {hashlib.sha256(body).hexdigest()}"

    def _has_token(self, headers: Mapping[str, str]) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        encoded = token.strip().encode("utf-8", "surrogateescape")
        return bool(self._token) and scheme.lower() == "bearer" and hmac.compare_digest(encoded, self._token)

    def _signature_in(self, headers: Mapping[str, str]) -> bytes:
        """Return the signature of a request; empty when there is none or it cannot be read."""
        text = headers.get(self._signing.header.lower(), "").strip()
        if not text.startswith(self._signing.prefix) or len(text) > 200:
            return b""
        text = text.removeprefix(self._signing.prefix)
        try:
            return bytes.fromhex(text) if self._signing.encoding == "hex" else base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            return b""

    def _signature(self, body: bytes, at: str) -> bytes:
        before = self._signing.signed.removesuffix(_BODY).replace(_TIME, at)
        return hmac.digest(self._secret, before.encode("utf-8", "surrogateescape") + body, hashlib.sha256)


def check_secret(what: str, secret: str) -> str:
    """Return a secret; "" for none. Raises: ConfigError for one that is too short."""
    if secret and len(secret) < _SHORTEST:
        raise ConfigError(
            f"the {what} has {len(secret)} characters, at least {_SHORTEST} are needed; "
            "an example of one: openssl rand -hex 32",
            path=(what,),
        )
    return secret
