"""Keys: who may talk to a server, for which tenant, with which rights, until when.

A key is kept as the digest of its secret, and told once, when it is made. The secret is 256
random bits, so its digest needs no salt and no slow function.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from antiphon.core.digests import NO_KEY, digest
from antiphon.core.ids import Digest, TenantId

PREFIX: Final = "antiphon_"
SECRET_BITS: Final = 256


class Right(StrEnum):
    """What a key may do."""

    READ = "read"
    WRITE = "write"
    INSTRUCT = "instruct"
    """Write what the model takes for the operator's word: system and developer messages."""
    REPAIR = "repair"
    """Have a broken history repaired instead of refused, where a request asks for that."""
    OPERATE = "operate"
    """Settle dispatches and calls of unknown outcome, and read the metrics."""
    ADMIN = "admin"
    """Make and revoke keys; set rollouts."""


EVERY_RIGHT: Final = frozenset(Right)
USUAL_RIGHTS: Final = frozenset({Right.READ, Right.WRITE, Right.INSTRUCT})


class KeyTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a key may use, beside what it may do. None is: no limit.

    Attributes:
        models: The names of models that it may ask for.
        repairs: Whether a broken history is repaired where the request does not say.
        requests_per_minute: Requests that start something, counted by each process.
        concurrent: Requests under way at the same time, counted by each process.
        tokens_per_day: Tokens of both directions, by the day (UTC).
        micros_per_month: Money in millionths of a dollar, by the month (UTC).
    """

    models: frozenset[str] | None = None
    repairs: bool = False
    requests_per_minute: int | None = None
    concurrent: int | None = None
    tokens_per_day: int | None = None
    micros_per_month: int | None = None


NO_TERMS: Final = KeyTerms()


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is kept: everything but its secret."""

    id: str
    tenant: TenantId
    name: str
    rights: frozenset[Right]
    secret_digest: Digest
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    terms: KeyTerms = NO_TERMS

    def valid(self, now_ms: int) -> bool:
        """Return whether it opens anything at this time."""
        return self.revoked_ms is None and (self.expires_ms is None or now_ms < self.expires_ms)


def secret(bits: int) -> str:
    """Return the secret that stands for `SECRET_BITS` random bits.

    Example:
        >>> secret(1) != secret(2)
        True
    """
    return f"{PREFIX}{bits:0{SECRET_BITS // 4}x}"


def secret_digest(text: str) -> Digest:
    """Return what is kept of a secret, and looked up when somebody brings it."""
    return digest(NO_KEY, "key", text.encode())
