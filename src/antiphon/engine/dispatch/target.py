"""What a run talks to: the adapter, and all that shapes its requests beside the history."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from antiphon.adapters.base import Adapter, Rendering
from antiphon.core.answers.schemas import SchemaCheck, compile_schema
from antiphon.core.ids import Digest, MessageId, OperationId, RunId, SessionId
from antiphon.core.manifest import Manifest, Policy, Purpose, ToolDeclaration, stored_digest
from antiphon.core.records import Conversation
from antiphon.core.sessions.scheduling import SWITCH_TOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The adapter, and everything that shapes a run's requests beside its history.

    `new_content` is what is not stored yet and has to be before a manifest names it.
    """

    adapter: Adapter
    key: bytes
    policy: Policy
    policy_digest: Digest
    tools: tuple[ToolDeclaration, ...]
    toolset_digest: Digest
    checks: Mapping[str, SchemaCheck]
    new_content: tuple[tuple[Digest, bytes], ...] = ()

    @property
    def switches(self) -> bool:
        """Whether the model is offered to begin a new session."""
        return SWITCH_TOOL in self.tools

    def manifest(
        self,
        rendering: Rendering,
        conversation: Conversation,
        *,
        operation: OperationId,
        run: RunId,
        session: SessionId,
        base_leaf: MessageId,
        purpose: Purpose,
        mappings_digest: Digest | None,
    ) -> Manifest:
        """Return the record of one call with this request: what every purpose has to say of it."""
        return Manifest(
            operation=operation,
            conversation=conversation.id,
            session=session,
            run=run,
            purpose=purpose,
            base_leaf=base_leaf,
            conversation_revision=conversation.revision,
            cancel_generation=conversation.cancel_generation,
            sequence_digest=rendering.sequence_digest,
            adapter=self.adapter.name,
            adapter_version=self.adapter.version,
            adapter_digest=self.adapter.digest,
            provider=self.policy.endpoint,
            model_revision=self.policy.model,
            toolset_digest=self.toolset_digest,
            policy_digest=self.policy_digest,
            request_digest=rendering.request_digest,
            mappings_digest=mappings_digest,
            max_output_tokens=self.policy.max_output_tokens,
        )

    def without_tools(self) -> Target:
        """Return the target for a last answer, in which the model may call nothing.

        Declarations stay: some providers refuse tool history without them.
        """
        if not self.tools:
            return self
        return self._asked(msgspec.structs.replace(self.policy, tool_choice="none"))

    def with_output(self, tokens: int | None) -> Target:
        """Return the target for an answer of at most so many tokens."""
        if tokens == self.policy.max_output_tokens:
            return self
        return self._asked(msgspec.structs.replace(self.policy, max_output_tokens=tokens))

    def _asked(self, policy: Policy) -> Target:
        digest, stored = stored_digest(self.key, policy)
        return replace(
            self,
            policy=policy,
            policy_digest=digest,
            new_content=(*self.new_content, (digest, stored)),
        )


async def compiled(tools: tuple[ToolDeclaration, ...]) -> Mapping[str, SchemaCheck]:
    """Return the argument checks of a toolset, compiled off the event loop."""
    checks = {tool.name: compile_schema(tool.parameters) for tool in tools}
    for check in checks.values():
        # The first question loads the schema library and compiles.
        await asyncio.to_thread(check.problem, "{}")
    return checks
