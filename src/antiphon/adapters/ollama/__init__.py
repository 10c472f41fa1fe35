"""Ollama's own chat API. Version 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from antiphon.adapters.base import HttpVerdict, Parsed
from antiphon.adapters.ollama import parse, read
from antiphon.adapters.ollama.profile import OLLAMA, WIRE_FACTS, with_wire_facts
from antiphon.adapters.ollama.render import OllamaLine
from antiphon.adapters.openai_chat import errors
from antiphon.core.digests import NO_KEY, digest
from antiphon.core.findings import Finding
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.profile import with_facts
from antiphon.core.recovery import Rung
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits

VERSION: Final = 1


class Ollama:
    """The dialect at version 1, with the facts of one model.

    Args:
        facts: What is known of the model beyond the dialect: `antiphon.core.profile.FACTS`, and
            of the server: `profile.Wire`.

    Raises:
        InvalidInput: `unknown_fact` or `bad_fact`.
    """

    version: Final = VERSION
    recovery: Final = (Rung.CONNECTION, Rung.DEADLINE)
    closing_ends: Final = True
    name: Final = OLLAMA.name

    def __init__(self, facts: Mapping[str, object] | None = None) -> None:
        stated = {name: value for name, value in (facts or {}).items() if value is not None}
        self._wire = with_wire_facts({n: v for n, v in stated.items() if n in WIRE_FACTS})
        self.profile: Final = with_facts(
            OLLAMA, {n: v for n, v in stated.items() if n not in WIRE_FACTS}
        )
        stored = msgspec.json.encode((VERSION, self.profile, self._wire), order="deterministic")
        self.digest: Final = digest(NO_KEY, "adapter", stored)

    def line(
        self,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        *,
        key: bytes,
        conversation: ConversationId | None = None,
    ) -> OllamaLine:
        """Return an empty line for requests of this policy and these tools."""
        return OllamaLine(
            self.profile, self._wire, policy, tools, key=key, conversation=conversation
        )

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
        """Return nothing: this wire asks for no state back."""
        return ()


__all__ = ["Ollama"]
