"""Amazon Bedrock: Converse and ConverseStream. Version 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from antiphon.adapters.base import HttpVerdict, Parsed
from antiphon.adapters.bedrock import errors, kept, parse, read
from antiphon.adapters.bedrock.profile import BEDROCK, facts_of, told
from antiphon.adapters.bedrock.render import BedrockLine
from antiphon.core.digests import NO_KEY, digest
from antiphon.core.findings import Finding
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.recovery import Rung
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits

VERSION: Final = 1


class Bedrock:
    """The dialect at version 1, with the facts of one model.

    What a model's id says of it is taken into account for each request; a fact that is stated
    goes before it.

    Args:
        facts: What is known of the model beyond the dialect: `antiphon.core.profile.FACTS`, and
            what models of different makers take: `profile.Wire`.

    Raises:
        InvalidInput: `unknown_fact` or `bad_fact`.
    """

    version: Final = VERSION
    recovery: Final = (Rung.CONNECTION, Rung.DEADLINE)
    closing_ends: Final = True
    name: Final = BEDROCK.name

    def __init__(self, facts: Mapping[str, object] | None = None) -> None:
        self._stated = {name: value for name, value in (facts or {}).items() if value is not None}
        profile, wire = told(self._stated)
        self.profile: Final = profile
        stored = msgspec.json.encode((VERSION, profile, wire), order="deterministic")
        self.digest: Final = digest(NO_KEY, "adapter", stored)

    def line(
        self,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        *,
        key: bytes,
        conversation: ConversationId | None = None,
    ) -> BedrockLine:
        """Return an empty line for requests of this policy and these tools."""
        known = {**facts_of(policy.model), **parse.facts_of_options(policy.extra)}
        profile, wire = told({**known, **self._stated})
        return BedrockLine(profile, wire, policy, tools, key=key, conversation=conversation)

    def reader(self, content_type: str, limits: Limits = DEFAULT_LIMITS) -> read.Reader:
        """Return a reader for an answer of this content type, no larger than `limits`."""
        return read.Reader(content_type, limits)

    def classify(
        self, status: int, headers: Mapping[str, str], body: bytes, now_ms: int
    ) -> HttpVerdict:
        """Return what an answer with a status other than 200 means."""
        return errors.classify(status, headers, body, now_ms)

    def parse(self, request: Mapping[str, object]) -> Parsed:
        """Return a client's request as our graph."""
        return parse.parse(request)

    def compare(self, parsed: Parsed, stored: Mapping[str, object]) -> tuple[Finding, ...]:
        """Return what of the reasoning that was kept is missing, or not what came."""
        return tuple(kept.findings(parsed, stored))


__all__ = ["Bedrock"]
