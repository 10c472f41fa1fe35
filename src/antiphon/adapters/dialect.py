"""What adapters do alike: facts told apart, the profile of a request's model, a digest over all.

A dialect is its profile, its spelling (`Wire`) and the pieces that render and read it. Where one
differs from the others it overrides a method, and that is all that its folder says of an adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from antiphon.adapters.base import HttpVerdict, Parsed, Reader, RenderedLine, ResumableReader
from antiphon.core.digests import NO_KEY, digest
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import Policy, ToolDeclaration, WireRequest
from antiphon.core.recovery import Rung
from antiphon.core.rules.findings import Finding
from antiphon.core.rules.profile import Profile, with_facts
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits
from antiphon.errors import InvalidInput

W = TypeVar("W", bound=msgspec.Struct)
W_contra = TypeVar("W_contra", bound=msgspec.Struct, contravariant=True)


class LineOf(Protocol[W_contra]):
    """Makes an empty line of one dialect."""

    def __call__(
        self,
        profile: Profile,
        wire: W_contra,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        *,
        key: bytes,
        conversation: ConversationId | None,
    ) -> RenderedLine:
        """Return it."""


class ReaderOf(Protocol):
    """Makes a reader of one dialect's answers."""

    def __call__(self, content_type: str, limits: Limits) -> Reader:
        """Return it."""


class Classify(Protocol):
    """Says what an answer with a status other than 200 means."""

    def __call__(
        self, status: int, headers: Mapping[str, str], body: bytes, now_ms: int
    ) -> HttpVerdict:
        """Return it."""


class Parse(Protocol):
    """Reads a client's request of one dialect as our graph."""

    def __call__(self, request: Mapping[str, object]) -> Parsed:
        """Return it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces(Generic[W]):
    """What a dialect is made of, beside its profile and its spelling."""

    line: LineOf[W]
    reader: ReaderOf
    classify: Classify
    parse: Parse


class Dialect(Generic[W]):
    """One dialect at version 1, with the facts of one model.

    Args:
        profile: What the dialect allows.
        wire: How a request is spelled where no fact says otherwise.
        facts: What is known of the model beyond that: `antiphon.core.rules.profile.FACTS`, and any
            field of `wire`. A value of None is as good as absent.
        pieces: What renders and reads it.

    Raises:
        InvalidInput: `unknown_fact` or `bad_fact`.
    """

    version: int = 1
    recovery: tuple[Rung, ...] = (Rung.CONNECTION, Rung.DEADLINE)
    closing_ends: bool = True

    def __init__(
        self, profile: Profile, wire: W, facts: Mapping[str, object] | None, pieces: Pieces[W]
    ) -> None:
        self.stated = {name: value for name, value in (facts or {}).items() if value is not None}
        self._base, self._pieces = (profile, wire), pieces
        self.profile, self.wire = self.told(self.stated)
        stored = msgspec.json.encode((self.version, self.profile, self.wire), order="deterministic")
        self.digest = digest(NO_KEY, "adapter", stored)

    @property
    def name(self) -> str:
        """The dialect's name."""
        return self.profile.name

    def told(self, facts: Mapping[str, object]) -> tuple[Profile, W]:
        """Return the dialect as `facts` change it: what it allows, and how a request is spelled.

        Raises:
            InvalidInput: `unknown_fact` or `bad_fact`; `at` names it.
        """
        profile, wire = self._base
        others = {n: v for n, v in facts.items() if n not in wire.__struct_fields__}
        return with_facts(profile, others), spelled(wire, facts)

    def known(self, policy: Policy) -> Mapping[str, object]:
        """Return what a request says of its model, by name or by option; a stated fact goes before.

        Nothing, unless a dialect knows more.
        """
        return {}

    def line(
        self,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        *,
        key: bytes,
        conversation: ConversationId | None = None,
    ) -> RenderedLine:
        """Return an empty line for requests of this policy and these tools."""
        known = self.known(policy)
        profile, wire = self.told({**known, **self.stated}) if known else (self.profile, self.wire)
        return self._pieces.line(profile, wire, policy, tools, key=key, conversation=conversation)

    def reader(self, content_type: str, limits: Limits = DEFAULT_LIMITS) -> Reader:
        """Return a reader for an answer of this content type, no larger than `limits`."""
        return self._pieces.reader(content_type, limits)

    def classify(
        self, status: int, headers: Mapping[str, str], body: bytes, now_ms: int
    ) -> HttpVerdict:
        """Return what an answer with a status other than 200 means."""
        return self._pieces.classify(status, headers, body, now_ms)

    def parse(self, request: Mapping[str, object]) -> Parsed:
        """Return a client's request as our graph."""
        return self._pieces.parse(request)

    def compare(self, parsed: Parsed, stored: Mapping[str, object]) -> tuple[Finding, ...]:
        """Return nothing: of what comes on this wire nothing has to go back."""
        return ()


def spelled(wire: W, facts: Mapping[str, object]) -> W:
    """Return `wire` as changed by those of `facts` that are fields of it.

    Raises:
        InvalidInput: `bad_fact`; `at` names the facts.
    """
    own = {name: value for name, value in facts.items() if name in wire.__struct_fields__}
    try:
        return msgspec.convert({**msgspec.to_builtins(wire), **own}, type(wire))
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"This value does not fit: {error}.", code="bad_fact", at=f"facts.{'/'.join(own)}"
        ) from None


class Handles(Protocol[W_contra]):
    """Makes the requests about an answer that its provider keeps under a handle."""

    def resume(self, wire: W_contra, policy: Policy, handle: str, after: str | None) -> WireRequest:
        """Return the one for what came behind event `after`."""

    def query(self, wire: W_contra, policy: Policy, handle: str) -> WireRequest:
        """Return the one for the answer as it stands."""

    def cancel(self, wire: W_contra, policy: Policy, handle: str) -> WireRequest:
        """Return the one to stop."""


class ResumableReaderOf(Protocol):
    """Makes a reader that can go on where a connection broke."""

    def __call__(self, content_type: str, limits: Limits) -> ResumableReader:
        """Return it."""


class KeptAnswers(Dialect[W]):
    """A dialect whose provider may work on without us, and then keeps the answer under a handle.

    Args:
        reader: What reads an answer, and reads on where a connection broke.
        handles: What asks for an answer that is kept.
        background: Whether a request of this spelling is worked on when its connection is gone.
    """

    def __init__(
        self,
        profile: Profile,
        wire: W,
        facts: Mapping[str, object] | None,
        pieces: Pieces[W],
        *,
        reader: ResumableReaderOf,
        handles: Handles[W],
        background: Callable[[W], bool],
    ) -> None:
        super().__init__(profile, wire, facts, pieces)
        self._reader, self._handles = reader, handles
        if background(self.wire):
            self.recovery = (Rung.HANDLE, Rung.DEADLINE)
            self.closing_ends = False

    def reader(self, content_type: str, limits: Limits = DEFAULT_LIMITS) -> ResumableReader:
        """Return a reader for an answer of this content type, no larger than `limits`."""
        return self._reader(content_type, limits)

    def resume(self, policy: Policy, handle: str, *, after: str | None) -> WireRequest:
        """Return the request for what came behind event `after`, or for all of the answer."""
        return self._handles.resume(self.wire, policy, handle, after)

    def query(self, policy: Policy, handle: str) -> WireRequest:
        """Return the request for the answer as it stands."""
        return self._handles.query(self.wire, policy, handle)

    def cancel(self, policy: Policy, handle: str) -> WireRequest:
        """Return the request to stop."""
        return self._handles.cancel(self.wire, policy, handle)
