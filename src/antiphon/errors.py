"""Every error that Antiphon raises, in one hierarchy.

AntiphonError
├── Refused                a request that must not be made; nothing was sent, nothing changed
│   ├── SequenceRejected   the history is illegal for its target; holds the findings
│   ├── Erased             what was asked for was said once, and was erased
│   ├── InvalidInput       an argument, file or body that cannot be read
│   ├── NotFound           an id that names nothing here
│   ├── Unauthorized       nobody whom the server knows is asking
│   ├── Forbidden          the key that asks has not the right to
│   └── Conflict           the world moved: busy, answered already, same id with other content
├── ProviderFailed         the provider said no, or gave an answer that may not be committed
├── OutcomeUnknown         the request may have been carried out; nobody can tell yet
├── RunCanceled            a person or client canceled the run
├── ServerUnavailable      no server answers there, or none that this release understands
├── StoreError             the database could not be used
│   ├── StoreLocked        another process holds the file
│   ├── StoreTooNew        a newer release wrote the file
│   └── NotDurable         a write failed as a whole; it is known that nothing of it was kept
└── InternalError          our own fault: a broken promise between two parts of Antiphon
    ├── IllegalTransition  the table has no row for this state and event
    └── DigestMismatch     stored content does not hash to what was recorded

Each carries a stable `code`, whether trying again may help, and the id it is about. Codes
are part of the public contract: they may be added, never renamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.core.rules.findings import Finding, Repair


class AntiphonError(Exception):
    """Base of all our errors.

    Attributes:
        code: Stable word for programs.
        at: The id or place that the error is about, or None.
        retryable: Whether the same call may succeed later without a change.
        exit_code: What the command line exits with.
    """

    default_code: ClassVar[str] = "internal_error"
    exit_code: ClassVar[int] = 1
    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        at: str | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.at = at
        if retryable is not None:
            self.retryable = retryable

    def __str__(self) -> str:
        place = f" ({self.at})" if self.at else ""
        return f"{self.code}: {self.message}{place}"


class Refused(AntiphonError):
    """The request must not be made. Nothing was sent and nothing changed."""

    default_code = "refused"
    exit_code = 3


class SequenceRejected(Refused):
    """The history is illegal for its target; `findings` says why, first reason first.

    `repairs` are what would make it legal, where that is known.
    """

    default_code = "sequence_rejected"

    def __init__(self, findings: Sequence[Finding], repairs: Sequence[Repair] = ()) -> None:
        first = findings[0]
        super().__init__(first.message, code=first.code, at=first.at)
        self.findings = tuple(findings)
        self.repairs = tuple(repairs)


class InvalidInput(Refused):
    """An argument, file or body that cannot be read; `at` is the place in it."""

    default_code = "invalid_input"
    exit_code = 2


class NotFound(Refused):
    """An id that names nothing in this store."""

    default_code = "not_found"
    exit_code = 2


class Erased(Refused):
    """What was asked for was said once. It was erased, and nobody can have it any more."""

    default_code = "content_erased"
    exit_code = 2


class Unauthorized(Refused):
    """The server needs a key, and this is none that it knows."""

    default_code = "unauthorized"
    exit_code = 2


class Forbidden(Refused):
    """The key is known and has not the right that this needs; `at` names the right."""

    default_code = "forbidden"


class Conflict(Refused):
    """The world is not as the caller believed: look again before you decide.

    `retry_after_s` says when, where that is known.
    """

    default_code = "conflict"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        at: str | None = None,
        retryable: bool | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message, code=code, at=at, retryable=retryable)
        self.retry_after_s = retry_after_s


class ProviderFailed(AntiphonError):
    """The provider refused, or its answer may not be committed. History is untouched.

    `status` is the HTTP status that it refused with, where it was one; where the error is
    `retryable`, `retry_after_s` is how long it asks to wait, if it does.
    """

    default_code = "provider_error"
    exit_code = 4

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        at: str | None = None,
        retryable: bool | None = None,
        status: int | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message, code=code, at=at, retryable=retryable)
        self.status = status
        self.retry_after_s = retry_after_s


class OutcomeUnknown(AntiphonError):
    """The request may have been carried out. It was not sent again."""

    default_code = "outcome_unknown"
    exit_code = 5


class RunCanceled(AntiphonError):
    """The run was canceled before it ended; nothing of it was committed afterwards."""

    default_code = "canceled"
    exit_code = 130


class ServerUnavailable(AntiphonError):
    """No server answers there. What was sent may have arrived: with its own id it can be repeated."""

    default_code = "server_unavailable"
    retryable = True


class StoreError(AntiphonError):
    """The database could not be used."""

    default_code = "store_error"


class StoreLocked(StoreError):
    """Another process holds the database; use that process, or stop it first."""

    default_code = "store_locked"
    retryable = True


class StoreTooNew(StoreError):
    """The database was written by a newer release; it is left alone."""

    default_code = "store_too_new"


class NotDurable(StoreError):
    """A write failed as a whole, and it is known that nothing of it was kept."""

    default_code = "not_durable"
    retryable = True


class InternalError(AntiphonError):
    """Our own fault. Never catch it to carry on."""


class IllegalTransition(InternalError):
    """The table has no row for this pair: the caller's picture of the state is wrong."""

    default_code = "illegal_transition"

    def __init__(self, machine: str, state: object, event: object) -> None:
        super().__init__(f"{machine}: no row for {event} from {state}")
        self.state = state
        self.event = event


class DigestMismatch(InternalError):
    """Stored content does not hash to the digest recorded with it."""

    default_code = "digest_mismatch"


def is_all(error: BaseException, kind: type[AntiphonError]) -> bool:
    """Return whether `error` is of this kind; a group is, where each of its errors is."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_all(one, kind) for one in error.exceptions)
    return isinstance(error, kind)
