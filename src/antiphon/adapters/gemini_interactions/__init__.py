"""Gemini's Interactions API. Version 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from antiphon.adapters.base import HttpVerdict, Parsed, ResumableReader
from antiphon.adapters.gemini import errors
from antiphon.adapters.gemini_interactions import handles, parse, read
from antiphon.adapters.gemini_interactions.profile import (
    INTERACTIONS,
    WIRE_FACTS,
    Wire,
    facts_of,
    with_wire_facts,
)
from antiphon.adapters.gemini_interactions.render import StepsLine
from antiphon.core.digests import NO_KEY, digest
from antiphon.core.findings import Finding
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import Policy, ToolDeclaration, WireRequest
from antiphon.core.profile import Profile, with_facts
from antiphon.core.recovery import Rung
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits

VERSION: Final = 1


class GeminiInteractions:
    """The dialect at version 1, with the facts of one model.

    What a model's name says of it is taken into account for each request; a fact that is stated
    goes before it.

    Args:
        facts: What is known of the model beyond the dialect: `antiphon.core.profile.FACTS`, and
            how a request is spelled: `profile.Wire`.

    Raises:
        InvalidInput: `unknown_fact` or `bad_fact`.
    """

    version: Final = VERSION
    name: Final = INTERACTIONS.name

    def __init__(self, facts: Mapping[str, object] | None = None) -> None:
        facts = facts or {}
        spelling = {name: value for name, value in facts.items() if name in WIRE_FACTS}
        self._stated = {name: value for name, value in facts.items() if name not in WIRE_FACTS}
        self.profile: Final = with_facts(INTERACTIONS, self._stated)
        self._wire = with_wire_facts(Wire(), spelling)
        background = self._wire.background
        first = Rung.HANDLE if background else Rung.CONNECTION
        self.recovery: Final = (first, Rung.DEADLINE)
        self.closing_ends: Final = not background
        stored = msgspec.json.encode((VERSION, self.profile, self._wire), order="deterministic")
        self.digest: Final = digest(NO_KEY, "adapter", stored)

    def line(
        self,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        *,
        key: bytes,
        conversation: ConversationId | None = None,
    ) -> StepsLine:
        """Return an empty line for requests of this policy and these tools."""
        profile = self._profile_for(policy)
        return StepsLine(profile, self._wire, policy, tools, key=key, conversation=conversation)

    def _profile_for(self, policy: Policy) -> Profile:
        known = facts_of(policy.model)
        return with_facts(
            self.profile, {name: v for name, v in known.items() if name not in self._stated}
        )

    def reader(self, content_type: str, limits: Limits = DEFAULT_LIMITS) -> ResumableReader:
        """Return a reader for an answer of this content type, no larger than `limits`."""
        return read.Reader(content_type, limits)

    def resume(self, policy: Policy, handle: str, *, after: str | None) -> WireRequest:
        """Return the request for what came behind event `after`, or for all of the answer."""
        return handles.resume(self._wire, policy, handle, after)

    def query(self, policy: Policy, handle: str) -> WireRequest:
        """Return the request for the answer as it stands."""
        return handles.query(self._wire, policy, handle)

    def cancel(self, policy: Policy, handle: str) -> WireRequest:
        """Return the request to stop."""
        return handles.cancel(self._wire, policy, handle)

    def classify(
        self, status: int, headers: Mapping[str, str], body: bytes, now_ms: int
    ) -> HttpVerdict:
        """Return what an answer with a status other than 200 means."""
        return errors.classify(status, headers, body, now_ms)

    def parse(self, request: Mapping[str, object]) -> Parsed:
        """Return a client's request as our graph."""
        return parse.parse(request)

    def compare(self, parsed: Parsed, stored: Mapping[str, object]) -> tuple[Finding, ...]:
        """Return nothing: no refusal of a request for a thought that it lacks is known."""
        return ()


__all__ = ["GeminiInteractions"]
