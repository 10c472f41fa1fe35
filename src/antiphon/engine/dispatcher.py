"""From an open run to a committed answer: plan, validate, record, send, read, commit.

The order is the promise. Nothing leaves before its manifest is durable and its acceptance
has won; nothing is committed but a whole answer to the base it was asked on; what is not
known is recorded as UNKNOWN before anything else is tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter
from antiphon.core import recovery
from antiphon.core.assembler import Answer, Assembler
from antiphon.core.blocks import Message, Origin, Role, Status, ToolCall, Trust
from antiphon.core.commands import (
    Accept,
    Close,
    CommitAnswer,
    ConflictAnswer,
    End,
    EndRun,
    Lose,
    NewCall,
    Prepare,
    PutContent,
    Quarantine,
    Refuse,
    Retry,
    Supersede,
    Then,
)
from antiphon.core.dispatch import Denied, State
from antiphon.core.ids import Digest, MessageId, OperationId
from antiphon.core.ledger import arguments_digest, invalid_arguments, text_result, unknown_tool
from antiphon.core.manifest import (
    Manifest,
    Policy,
    Purpose,
    ToolDeclaration,
    WireRequest,
    manifest_digest,
    stored_digest,
)
from antiphon.core.records import Attempt, Conversation, Run, Runner, RunStatus
from antiphon.core.schemas import SchemaCheck, compile_schema
from antiphon.core.tree import line as visible
from antiphon.engine.control import Control
from antiphon.engine.exchange import (
    Answered,
    Broken,
    Exchange,
    Outcome,
    Rejected,
    Unsent,
)
from antiphon.engine.live import LiveRun
from antiphon.engine.world import World
from antiphon.errors import DigestMismatch, InternalError, SequenceRejected

PREPARE_TRIES: Final = 8

_decode_policy = msgspec.json.Decoder(Policy).decode
_decode_tools = msgspec.json.Decoder(tuple[ToolDeclaration, ...]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a run talks to: the adapter, and everything that shapes its requests."""

    adapter: Adapter
    key: bytes
    policy: Policy
    policy_digest: Digest
    tools: tuple[ToolDeclaration, ...]
    toolset_digest: Digest
    checks: Mapping[str, SchemaCheck]
    new_content: tuple[tuple[Digest, bytes], ...] = ()


@dataclass(slots=True, kw_only=True)
class _Accepted:
    """An attempt that has won its acceptance, with the bytes it may send."""

    attempt: Attempt
    manifest: Manifest
    request: WireRequest
    target: Target
    answer: MessageId


class Dispatcher:
    """Makes one model call of a run after the other. One instance serves all conversations."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._checks: dict[Digest, Mapping[str, SchemaCheck]] = {}

    async def turn(self, run: Run, control: Control, *, tools: bool = True) -> Run:
        """Make one model call and return the run as it then stands.

        It has committed, or ended in error, or was canceled. Only store failures and bugs
        come out as exceptions.
        """
        target = await self.target(run, tools=tools)
        accepted = await self._resume_prepared(run, target) or await self._accept(run, target)
        resent = 0
        while accepted is not None and not control.canceled:
            outcome, live = await self._exchange(accepted, run, control)
            following = await self._settle(accepted, run, outcome, live, control, resent)
            if isinstance(following, _Again):
                resent += following.counts
                accepted = await self._accept_again(accepted, run, following, control)
            else:
                break
        return await self._world.store.run(run.conversation, run.id)

    async def target(self, run: Run, *, tools: bool = True) -> Target:
        """Return what the run talks to, read from the content stored with it.

        Without `tools` the model may not call any: for its last answer at a limit.
        """
        conversation = await self._world.store.conversation(run.conversation)
        options = run.options
        target = await self._target(conversation, options.policy_digest, options.toolset_digest)
        if tools or not target.tools:
            return target
        # Declarations stay: some providers refuse tool history without them.
        policy = msgspec.structs.replace(target.policy, tool_choice="none")
        digest, stored = stored_digest(target.key, policy)
        return replace(target, policy=policy, policy_digest=digest, new_content=((digest, stored),))

    async def target_of(self, manifest: Manifest, conversation: Conversation) -> Target:
        """Return what a manifest was made for."""
        return await self._target(conversation, manifest.policy_digest, manifest.toolset_digest)

    async def _target(
        self, conversation: Conversation, policy_digest: Digest, toolset_digest: Digest
    ) -> Target:
        store = self._world.store
        policy = _decode_policy(await store.content(conversation.tenant, policy_digest))
        declared = _decode_tools(await store.content(conversation.tenant, toolset_digest))
        return Target(
            adapter=registry.get(policy.profile, policy.facts),
            key=await store.tenant_key(conversation.tenant),
            policy=policy,
            policy_digest=policy_digest,
            tools=declared,
            toolset_digest=toolset_digest,
            checks=await self._compiled(toolset_digest, declared),
        )

    async def _compiled(
        self, toolset: Digest, declared: tuple[ToolDeclaration, ...]
    ) -> Mapping[str, SchemaCheck]:
        """Return the argument checks of a toolset, compiled once and off the event loop."""
        if toolset not in self._checks:
            checks = {tool.name: compile_schema(tool.parameters) for tool in declared}
            for check in checks.values():
                # The first question loads the schema library and compiles.
                await asyncio.to_thread(check.problem, "{}")
            self._checks[toolset] = checks
        return self._checks[toolset]

    # Before the send.

    async def _accept(self, run: Run, target: Target) -> _Accepted | None:
        """Prepare and accept in one transaction; again if the world moved in between."""
        store, world = self._world.store, self._world
        for _ in range(PREPARE_TRIES):
            run = await store.run(run.conversation, run.id)
            if not run.open or run.leaf is None:
                return None
            conversation = await store.conversation(run.conversation)
            try:
                manifest, request = await self._manifest(run, conversation, target)
            except SequenceRejected as rejected:
                await self._end(run, rejected.code)
                return None
            now_ms = world.clock.now_ms()
            answer = run.answer or MessageId(world.new_id("msg_"))
            done = await store.do_all(
                *(
                    PutContent(
                        conversation=run.conversation, now_ms=now_ms, items=target.new_content
                    ),
                )[: bool(target.new_content)],
                Prepare(
                    conversation=run.conversation,
                    now_ms=now_ms,
                    manifest=manifest,
                    manifest_digest=manifest_digest(target.key, manifest),
                    answer=answer,
                ),
                self._acceptance(run, manifest.operation),
            )
            if not isinstance(done, Denied):
                return _Accepted(
                    attempt=done[-1],
                    manifest=manifest,
                    request=request,
                    target=target,
                    answer=answer,
                )
        await self._end(run, "conversation_busy")
        return None

    def _acceptance(self, run: Run, operation: OperationId) -> Accept:
        now_ms = self._world.clock.now_ms()
        return Accept(
            conversation=run.conversation,
            now_ms=now_ms,
            operation=operation,
            fence=self._world.fence,
            deadline_ms=now_ms + int(self._world.settings.deadline_s * 1000),
        )

    async def _manifest(
        self, run: Run, conversation: Conversation, target: Target
    ) -> tuple[Manifest, WireRequest]:
        if run.leaf is None or run.session is None:
            raise InternalError("A run is placed before it is dispatched.", at=run.id)
        line = await self._world.lines.line(
            conversation,
            run.leaf,
            adapter=target.adapter,
            policy=target.policy,
            tools=target.tools,
            policy_digest=target.policy_digest,
            toolset_digest=target.toolset_digest,
            key=target.key,
        )
        rendering = line.finish()
        previous = await self._world.store.operations(run.conversation, run.id)
        manifest = Manifest(
            operation=OperationId(self._world.new_id("op_")),
            conversation=run.conversation,
            session=run.session,
            run=run.id,
            purpose=Purpose.TURN,
            base_leaf=run.leaf,
            conversation_revision=conversation.revision,
            cancel_generation=conversation.cancel_generation,
            sequence_digest=rendering.sequence_digest,
            adapter=target.adapter.name,
            adapter_version=target.adapter.version,
            adapter_digest=target.adapter.digest,
            provider=target.policy.endpoint,
            model_revision=target.policy.model,
            toolset_digest=target.toolset_digest,
            policy_digest=target.policy_digest,
            request_digest=rendering.request_digest,
            mappings=rendering.mappings,
            max_output_tokens=target.policy.max_output_tokens,
            linked_to=previous[-1] if previous else None,
        )
        return manifest, rendering.request

    async def _resume_prepared(self, run: Run, target: Target) -> _Accepted | None:
        """Accept an attempt that a process left PREPARED before it died, if it still may be."""
        store = self._world.store
        operations = await store.operations(run.conversation, run.id)
        if not operations:
            return None
        attempt = (await store.attempts(operations[-1]))[-1]
        if attempt.state is State.FAILED:
            await store.do(
                Close(
                    conversation=run.conversation,
                    now_ms=self._world.clock.now_ms(),
                    operation=attempt.operation,
                )
            )
            return None
        if attempt.state is not State.PREPARED:
            return None
        return await self._accept_prepared(run, target, attempt.operation)

    async def _accept_prepared(
        self, run: Run, target: Target, operation: OperationId
    ) -> _Accepted | None:
        store = self._world.store
        manifest, _ = await store.manifest(operation)
        request = await render_manifest(self._world, manifest, target)
        attempt = await store.do(self._acceptance(run, operation))
        if isinstance(attempt, Denied):
            await store.do(
                Supersede(
                    conversation=run.conversation,
                    now_ms=self._world.clock.now_ms(),
                    operation=operation,
                )
            )
            return await self._accept(run, target)
        return _Accepted(
            attempt=attempt,
            manifest=manifest,
            request=request,
            target=target,
            answer=run.answer or MessageId(self._world.new_id("msg_")),
        )

    # On the wire.

    async def _exchange(
        self, accepted: _Accepted, run: Run, control: Control
    ) -> tuple[Outcome, LiveRun]:
        world, attempt = self._world, accepted.attempt
        live = world.broker.open(run.conversation, run.id, attempt.generation)
        exchange = Exchange(
            world,
            accepted.target.adapter,
            run.conversation,
            attempt,
            live=live,
            assembler=Assembler(
                tools=accepted.target.checks,
                commit_truncated=world.settings.commit_truncated,
            ),
            idle_s=world.settings.idle_timeout_s,
        )
        secret = world.settings.models.get(run.options.model).api_key
        api_key = secret.reveal() if secret else None
        try:
            with control.over(exchange):
                return await exchange.run(accepted.request, api_key=api_key), live
        except BaseException:
            # This task is being ended, or has a bug. The connection is closed by now; that
            # nobody knows the outcome must be recorded before anything else happens.
            world.store.submit(self._lost(accepted, run, "interrupted", shown=live.shown))
            raise

    def _lost(self, accepted: _Accepted, run: Run, code: str, *, shown: bool) -> Lose:
        return Lose(
            conversation=run.conversation,
            now_ms=self._world.clock.now_ms(),
            operation=accepted.attempt.operation,
            generation=accepted.attempt.generation,
            fence=self._world.fence,
            code=code,
            shown=shown,
        )

    # After the send.

    async def _settle(
        self,
        accepted: _Accepted,
        run: Run,
        outcome: Outcome,
        live: LiveRun,
        control: Control,
        resent: int,
    ) -> _Again | None:
        """Record what the outcome means; return how to go on, or None when all is said."""
        match outcome:
            case Answered(answer) if answer.committable:
                await self._commit(accepted, run, answer)
                return None
            case Answered(answer) if answer.definite:
                return await self._refused(
                    accepted,
                    run,
                    code=answer.error or "provider_error",
                    retryable=answer.retryable,
                    retry_after_ms=None,
                    shown=live.shown,
                )
            case Answered(answer):
                return await self._unknown(
                    accepted, run, answer.error or "stream_incomplete", live, control, resent
                )
            case Rejected(verdict) if verdict.definite:
                return await self._refused(
                    accepted,
                    run,
                    code=verdict.code,
                    retryable=verdict.retryable,
                    retry_after_ms=verdict.retry_after_ms,
                    shown=False,
                )
            case Rejected(verdict):
                return await self._unknown(accepted, run, verdict.code, live, control, resent)
            case Unsent(code):
                return await self._refused(
                    accepted,
                    run,
                    code=code,
                    retryable=True,
                    retry_after_ms=None,
                    shown=False,
                    not_sent=True,
                )
            case Broken(code):
                return await self._unknown(accepted, run, code, live, control, resent)

    async def _commit(self, accepted: _Accepted, run: Run, answer: Answer) -> None:
        world, attempt, manifest = self._world, accepted.attempt, accepted.manifest
        calls = tuple(self._new_call(call, accepted.target, answer) for call in answer.calls)
        message = Message(
            id=accepted.answer,
            conversation=run.conversation,
            parent=manifest.base_leaf,
            role=Role.ASSISTANT,
            blocks=answer.blocks,
            origin=Origin.MODEL,
            trust=Trust.MODEL,
            session=manifest.session,
            run=run.id,
            created_ms=world.clock.now_ms(),
        )
        done = await world.store.do(
            CommitAnswer(
                conversation=run.conversation,
                now_ms=world.clock.now_ms(),
                operation=attempt.operation,
                generation=attempt.generation,
                message=message,
                calls=calls,
                usage=answer.usage,
                finish=answer.finish,
                then=then_after(calls, paused=answer.paused),
                end_code="length" if answer.truncated else None,
            )
        )
        if isinstance(done, Denied):
            await self._too_late(accepted, run, answer.text, done)

    def _new_call(self, call: ToolCall, target: Target, answer: Answer) -> NewCall:
        """Return the ledger row to be born: who runs it, and what may happen twice."""
        function = self._world.functions.get(call.name)
        code, text = None, ""
        if call.name not in target.checks:
            code, text = "unknown_tool", unknown_tool(call.name, target.checks)
        elif call.call_id in answer.problems:
            code, text = "invalid_arguments", invalid_arguments(answer.problems[call.call_id])
        return NewCall(
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments,
            arguments_digest=arguments_digest(target.key, call.name, call.arguments),
            runner=Runner.CLIENT if function is None else Runner.FUNCTION,
            read_only=function is not None and function.read_only,
            idempotent=function is not None and function.idempotent,
            idempotency_key=self._world.new_id("idem_"),
            code=code,
            content=text_result(text) if code else (),
        )

    async def _too_late(self, accepted: _Accepted, run: Run, text: str, denied: Denied) -> None:
        """A whole answer that may not land: canceled meanwhile, or its base has moved."""
        world, attempt = self._world, accepted.attempt
        now_ms = world.clock.now_ms()
        fresh = await world.store.run(run.conversation, run.id)
        if not fresh.open:
            await world.store.do(
                Quarantine(
                    conversation=run.conversation,
                    now_ms=now_ms,
                    operation=attempt.operation,
                    generation=attempt.generation,
                    reason=f"late: {denied.reason}",
                    data=text,
                )
            )
            return
        conflict = await world.store.do(
            ConflictAnswer(
                conversation=run.conversation,
                now_ms=now_ms,
                operation=attempt.operation,
                generation=attempt.generation,
                data=text,
            )
        )
        if isinstance(conflict, Denied):
            # Nobody else has this attempt, and its base has not moved: a promise is broken.
            await world.store.do(self._lost(accepted, run, "commit_refused", shown=True))
            raise InternalError(f"The store refused a commit: {denied.reason}.", at=run.id)
        await self._end(run, "commit_conflict")

    async def _refused(
        self,
        accepted: _Accepted,
        run: Run,
        *,
        code: str,
        retryable: bool,
        retry_after_ms: int | None,
        shown: bool,
        not_sent: bool = False,
    ) -> _Again | None:
        world, attempt = self._world, accepted.attempt
        done = await world.store.do(
            Refuse(
                conversation=run.conversation,
                now_ms=world.clock.now_ms(),
                operation=attempt.operation,
                generation=attempt.generation,
                fence=world.fence,
                code=code,
                not_sent=not_sent,
                shown=shown,
            )
        )
        if isinstance(done, Denied):
            return None
        wait_ms = recovery.backoff_ms(
            world.settings.retry_policy,
            made=attempt.number,
            fraction=world.entropy.fraction(),
            retry_after_ms=retry_after_ms,
        )
        if retryable and wait_ms is not None:
            return _Again(wait_ms=wait_ms, code=code)
        await self._end(run, code)
        return None

    async def _unknown(
        self,
        accepted: _Accepted,
        run: Run,
        code: str,
        live: LiveRun,
        control: Control,
        resent: int,
    ) -> _Again | None:
        """Record that nobody knows, then do what the profile's ladder allows at once."""
        world = self._world
        done = await world.store.do(self._lost(accepted, run, code, shown=live.shown))
        if isinstance(done, Denied):
            if control.canceled and live.shown:
                await self._too_late(accepted, run, live.text(), done)
            return None
        witness = recovery.Witness(closed=True, saw_cut=True)
        action = recovery.next_action(
            done,
            accepted.target.adapter.recovery,
            witness,
            now_ms=world.clock.now_ms(),
            closing_ends=accepted.target.adapter.closing_ends,
        )
        if not isinstance(action, recovery.ConfirmEnded):
            return None
        ended = await world.store.do(
            End(
                conversation=run.conversation,
                now_ms=world.clock.now_ms(),
                operation=done.operation,
                generation=done.generation,
                proof=action.proof,
            )
        )
        if isinstance(ended, Denied):
            return None
        may = recovery.may_resend(world.settings.resend_after_unknown, witness, resent=resent)
        if may and done.number <= world.settings.retries:
            return _Again(wait_ms=0, code="outcome_unknown", counts=1)
        await self._end(run, "outcome_unknown")
        return None

    async def _accept_again(
        self, accepted: _Accepted, run: Run, again: _Again, control: Control
    ) -> _Accepted | None:
        """Open the next attempt of the same manifest, with the same bytes."""
        world, operation = self._world, accepted.attempt.operation
        await control.pause(again.wait_ms / 1000)
        if control.canceled:
            return None
        done = await world.store.do_all(
            Retry(
                conversation=run.conversation,
                now_ms=world.clock.now_ms(),
                operation=operation,
                attempts_allowed=world.settings.retries + 1,
            ),
            self._acceptance(run, operation),
        )
        if not isinstance(done, Denied):
            return replace(accepted, attempt=done[1])
        fresh = await world.store.run(run.conversation, run.id)
        if not fresh.open:
            return None
        await world.store.do(
            Close(conversation=run.conversation, now_ms=world.clock.now_ms(), operation=operation)
        )
        return await self._accept(fresh, accepted.target)

    async def _end(self, run: Run, code: str) -> None:
        await self._world.store.do(
            EndRun(
                conversation=run.conversation,
                now_ms=self._world.clock.now_ms(),
                run=run.id,
                status=RunStatus.ERROR,
                error_code=code,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """The attempt has ended for certain and may be followed by another one."""

    wait_ms: int
    code: str
    counts: int = 0


def then_after(calls: tuple[NewCall, ...], *, paused: bool) -> Then:
    """Return what becomes of a run whose answer asks for `calls`."""
    if not calls:
        return Then.CONTINUE if paused else Then.FINISH
    open_ones = [call for call in calls if call.code is None]
    if open_ones and all(call.runner is Runner.CLIENT for call in open_ones):
        return Then.WAIT
    return Then.CONTINUE


async def render_manifest(world: World, manifest: Manifest, target: Target) -> WireRequest:
    """Render the request of a manifest again, from the tree and the stored content.

    Raises:
        DigestMismatch: What comes out does not hash to the manifest's request digest, or the
            adapter is another one. It must not be sent, and it is not what was sent.
    """
    adapter = target.adapter
    if adapter.digest != manifest.adapter_digest:
        raise DigestMismatch(
            f"Rendered by {manifest.adapter} version {manifest.adapter_version}; "
            f"this is {adapter.name} version {adapter.version}.",
            code="adapter_mismatch",
            at=manifest.operation,
        )
    store = world.store
    path = await store.path(manifest.conversation, manifest.base_leaf)
    deleted = await store.deletions_at(manifest.conversation, manifest.conversation_revision)
    # Its input may have failed since; it was pending when it was sent.
    if path[-1].status is not Status.SUCCESS:
        path[-1] = msgspec.structs.replace(path[-1], status=Status.PENDING)
    line = adapter.line(
        target.policy, target.tools, key=target.key, conversation=manifest.conversation
    )
    for message in visible(path, deleted):
        line.feed(message)
    rendering = line.finish()
    if rendering.request_digest != manifest.request_digest:
        raise DigestMismatch(
            "The request does not render to the bytes that were recorded.",
            at=manifest.operation,
        )
    return rendering.request
