"""Commands of a conversation, built by hand, so that a test says only what it is about."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, TypeVar

from antiphon.core.answers.deltas import Usage
from antiphon.core.blocks import (
    Block,
    Message,
    Origin,
    Role,
    Status,
    Text,
    ToolCall,
    default_trust,
)
from antiphon.core.commands import (
    Accept,
    AnswerOpened,
    Command,
    CommitAnswer,
    CreateConversation,
    Fence,
    FinishCall,
    JoinRun,
    NewCall,
    PlaceResults,
    PlaceRun,
    Prepare,
    StartCall,
    StartKey,
    StartRun,
    Then,
    WaitRun,
    Written,
)
from antiphon.core.digests import NO_KEY, digest
from antiphon.core.dispatch import Denied
from antiphon.core.ids import (
    LOCAL_TENANT,
    CallId,
    ConversationId,
    Digest,
    MessageId,
    NodeId,
    OperationId,
    RunId,
    SessionId,
    TenantId,
)
from antiphon.core.manifest import Manifest, Purpose, manifest_digest
from antiphon.core.records import Attempt, CallState, Conversation, Run, RunKind, Runner, RunOptions
from antiphon.stores.base import Store

T = TypeVar("T")
START_MS = 1_700_000_000_000
DEADLINE_MS = 600_000


def done(answer: T | Denied) -> T:
    """The answer of a command that must not be denied."""
    assert not isinstance(answer, Denied), answer
    return answer


def a_digest(word: str) -> Digest:
    return digest(NO_KEY, "test", word.encode())


@dataclass(slots=True)
class Talk:
    """One conversation in one store, seen from one node."""

    store: Store
    fence: Fence
    conversation: ConversationId
    session: SessionId
    now_ms: int = START_MS
    key: bytes = b""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    async def begin(cls, store: Store, name: str = "conv_1") -> Talk:
        """A new conversation, and a node of its own that has joined."""
        fence = await store.join(NodeId(f"node_of_{name}"), None, START_MS)
        talk = cls(store, fence, ConversationId(name), SessionId(f"sess_of_{name}"))
        await talk.do(CreateConversation(**talk.head(), tenant=LOCAL_TENANT, session=talk.session))
        talk.key = await store.tenant_key(LOCAL_TENANT)
        return talk

    @staticmethod
    def tenant() -> TenantId:
        """Whose conversations these are."""
        return LOCAL_TENANT

    @staticmethod
    def conversation_id() -> ConversationId:
        """The first conversation that a test begins."""
        return ConversationId("conv_1")

    def head(self) -> dict[str, Any]:
        """What every command of this conversation carries."""
        self.now_ms += 1
        return {"conversation": self.conversation, "now_ms": self.now_ms}

    async def do(self, command: Command[T]) -> T:
        return done(await self.store.do(command))

    async def denied(self, command: Command[Any]) -> str:
        """The reason for which `command` is denied."""
        answer = await self.store.do(command)
        assert isinstance(answer, Denied), answer
        return answer.reason

    async def row(self) -> Conversation:
        return await self.store.conversation(self.conversation)

    async def run(self, run: str) -> Run:
        return await self.store.run(self.conversation, RunId(run))

    async def attempt(self, operation: str) -> Attempt:
        return (await self.store.attempts(OperationId(operation)))[-1]

    # Values.

    def message(
        self,
        name: str,
        text: str | None = None,
        *,
        parent: str | None = None,
        role: Role = Role.USER,
        origin: Origin = Origin.CLIENT,
        blocks: tuple[Block, ...] | None = None,
        status: Status = Status.SUCCESS,
    ) -> Message:
        return Message(
            id=MessageId(name),
            conversation=self.conversation,
            parent=None if parent is None else MessageId(parent),
            role=role,
            blocks=(Text(text=text or f"words of {name}"),) if blocks is None else blocks,
            origin=origin,
            trust=default_trust(role, origin),
            created_ms=self.now_ms,
            status=status,
        )

    def answer(self, name: str, *calls: str, text: str | None = None) -> Message:
        blocks: tuple[Block, ...] = (Text(text=text or f"words of {name}"),)
        blocks += tuple(
            ToolCall(call_id=CallId(call), name="weather", arguments='{"at":"Oslo"}')
            for call in calls
        )
        return self.message(name, role=Role.ASSISTANT, origin=Origin.MODEL, blocks=blocks)

    def manifest(
        self, run: str, operation: str, *, base: str, revision: int, canceled: int = 0
    ) -> Manifest:
        return Manifest(
            operation=OperationId(operation),
            conversation=self.conversation,
            session=self.session,
            run=RunId(run),
            purpose=Purpose.TURN,
            base_leaf=MessageId(base),
            conversation_revision=revision,
            cancel_generation=canceled,
            sequence_digest=a_digest("sequence"),
            adapter="openai-chat",
            adapter_version=1,
            adapter_digest=a_digest("adapter"),
            provider="rehearsal",
            model_revision="rehearsal/one@2026-11-30",
            toolset_digest=a_digest("toolset"),
            policy_digest=a_digest("policy"),
            request_digest=a_digest("request"),
            max_output_tokens=1024,
            idempotency_key=f"key-{operation}",
        )

    # Commands.

    def start(
        self,
        run: str,
        name: str | None = None,
        *,
        parent: str | None = None,
        key: StartKey | None = None,
        kind: RunKind = RunKind.SEND,
        text: str | None = None,
        at_root: bool = False,
        max_queued: int = 16,
        steer: bool = False,
    ) -> StartRun:
        return StartRun(
            **self.head(),
            run=RunId(run),
            kind=kind,
            options=RunOptions(
                model="rehearsal",
                policy_digest=a_digest("policy"),
                toolset_digest=a_digest("toolset"),
                steer=steer,
            ),
            input=None if name is None else self.message(name, text),
            asked_parent=None if parent is None else MessageId(parent),
            at_root=at_root,
            key=key,
            max_queued=max_queued,
        )

    def place(self, run: str, *, parent: str | None, revision: int) -> PlaceRun:
        return PlaceRun(
            **self.head(),
            run=RunId(run),
            parent=None if parent is None else MessageId(parent),
            revision=revision,
            fence=self.fence,
        )

    def join(self, run: str, into: str, parent: str) -> JoinRun:
        return JoinRun(
            **self.head(),
            run=RunId(run),
            into=RunId(into),
            parent=MessageId(parent),
            fence=self.fence,
        )

    def prepare(
        self,
        run: str,
        operation: str,
        *,
        base: str,
        revision: int,
        answer: str,
        canceled: int = 0,
    ) -> Prepare:
        manifest = self.manifest(run, operation, base=base, revision=revision, canceled=canceled)
        return Prepare(
            **self.head(),
            manifest=manifest,
            manifest_digest=manifest_digest(self.key, manifest),
            answer=MessageId(answer),
        )

    def accept(self, operation: str) -> Accept:
        return Accept(
            **self.head(),
            operation=OperationId(operation),
            fence=self.fence,
            deadline_ms=self.now_ms + DEADLINE_MS,
        )

    def written(self, operation: str, generation: int) -> Written:
        return Written(
            **self.head(),
            operation=OperationId(operation),
            generation=generation,
            fence=self.fence,
        )

    def opened(self, operation: str, generation: int, handle: str | None = None) -> AnswerOpened:
        return AnswerOpened(
            **self.head(),
            operation=OperationId(operation),
            generation=generation,
            fence=self.fence,
            handle=handle,
        )

    def commit(
        self,
        operation: str,
        generation: int,
        message: Message,
        *,
        then: Then = Then.FINISH,
        found: bool = False,
        runner: Runner = Runner.FUNCTION,
        read_only: bool = False,
    ) -> CommitAnswer:
        return CommitAnswer(
            **self.head(),
            operation=OperationId(operation),
            generation=generation,
            message=message,
            calls=tuple(
                NewCall(
                    call_id=call.call_id,
                    name=call.name,
                    arguments=call.arguments,
                    arguments_digest=a_digest(call.arguments),
                    runner=runner,
                    read_only=read_only,
                    idempotency_key=f"key-{call.call_id}",
                )
                for call in message.calls
            ),
            usage=Usage(input=11, output=7),
            finish="stop",
            then=then,
            found=found,
        )

    def start_call(self, run: str, call: str) -> StartCall:
        return StartCall(
            **self.head(),
            run=RunId(run),
            call_id=CallId(call),
            fence=self.fence,
            deadline_ms=self.now_ms + DEADLINE_MS,
        )

    def finish_call(
        self,
        run: str,
        call: str,
        text: str = "rain",
        *,
        state: CallState = CallState.SUCCESS,
        attempt: int = 1,
        outside: bool = False,
        code: str | None = None,
    ) -> FinishCall:
        return FinishCall(
            **self.head(),
            run=RunId(run),
            call_id=CallId(call),
            state=state,
            content=(Text(text=text),),
            code=code,
            fence=None if outside else self.fence,
            attempt=0 if outside else attempt,
        )

    def wait(self, run: str, end_code: str | None = None) -> WaitRun:
        return WaitRun(**self.head(), run=RunId(run), fence=self.fence, end_code=end_code)

    def place_results(self, run: str, name: str) -> PlaceResults:
        return PlaceResults(
            **self.head(), run=RunId(run), message=MessageId(name), fence=self.fence
        )

    # Stretches of a turn.

    async def placed(self, run: str = "run_1", name: str = "m1", parent: str | None = None) -> Run:
        """Start a run and place its input."""
        await self.do(self.start(run, name, parent=parent))
        revision = (await self.row()).revision
        return await self.do(self.place(run, parent=parent, revision=revision))

    async def accepted(
        self,
        run: str = "run_1",
        operation: str = "op_1",
        *,
        name: str = "m1",
        parent: str | None = None,
        answer: str = "a1",
    ) -> Attempt:
        """A run whose first operation is DISPATCHING."""
        placed = await self.placed(run, name, parent)
        row = await self.row()
        assert placed.leaf is not None
        await self.do(
            self.prepare(
                run,
                operation,
                base=placed.leaf,
                revision=row.revision,
                answer=answer,
                canceled=row.cancel_generation,
            )
        )
        return await self.do(self.accept(operation))

    async def streaming(
        self,
        run: str = "run_1",
        operation: str = "op_1",
        *,
        name: str = "m1",
        parent: str | None = None,
        answer: str = "a1",
    ) -> Attempt:
        """A run whose first operation is STREAMING."""
        attempt = await self.accepted(run, operation, name=name, parent=parent, answer=answer)
        await self.do(self.written(operation, attempt.generation))
        return await self.do(self.opened(operation, attempt.generation))

    async def answered(
        self,
        run: str = "run_1",
        operation: str = "op_1",
        *,
        name: str = "m1",
        parent: str | None = None,
        answer: str = "a1",
        calls: tuple[str, ...] = (),
        then: Then = Then.FINISH,
    ) -> Run:
        """A run whose first answer is committed."""
        attempt = await self.streaming(run, operation, name=name, parent=parent, answer=answer)
        return await self.do(
            self.commit(operation, attempt.generation, self.answer(answer, *calls), then=then)
        )
