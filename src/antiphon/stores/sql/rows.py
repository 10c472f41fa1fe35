"""Between the tuples of a database and the records of core: what stands in which column.

Inside the store a row knows its place and the places of its neighbours; outside, only ids
exist. The column lists stand beside the classes they fill, in the same order.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from antiphon.core.answers.said import Said
from antiphon.core.answers.usage import Cost, Used, together
from antiphon.core.commands import CreateConversation, OpenResponse, StartRun
from antiphon.core.dispatch import State
from antiphon.core.ids import (
    ConversationId,
    Digest,
    MessageId,
    NodeId,
    OperationId,
    ResponseId,
    RunId,
    SessionId,
    TenantId,
)
from antiphon.core.manifest import Manifest, Purpose
from antiphon.core.records import (
    Attempt,
    Conversation,
    HandOver,
    Response,
    Run,
    RunKind,
    RunOptions,
    RunStatus,
)
from antiphon.stores.sql.packing import Stored, encode_json, pack, unpack

_metadata: Final = msgspec.json.Decoder(dict[str, str]).decode
_options: Final = msgspec.json.Decoder(RunOptions).decode
_used: Final = msgspec.json.Decoder(Used).decode
_said: Final = msgspec.json.Decoder(Said).decode
_message_ids: Final = msgspec.json.Decoder(tuple[MessageId, ...]).decode


read_handover: Final = msgspec.json.Decoder(HandOver).decode


class ConversationRow(msgspec.Struct, frozen=True):
    """A conversation's row, with its number and the place of its active session."""

    number: int
    id: ConversationId
    tenant: TenantId
    session: int
    session_id: SessionId
    head: MessageId | None
    revision: int
    cancel_generation: int
    attempt_generation: int
    active_operation: OperationId | None
    slot: RunId | None
    title: str | None
    metadata: bytes | None
    created_ms: int
    updated_ms: int
    last_event: int
    deleted: int
    erased_ms: int | None
    scheduling: int | None

    @classmethod
    def created(
        cls,
        command: CreateConversation,
        number: int,
        *,
        session: int,
        metadata: bytes | None,
        scheduling: int | None,
    ) -> ConversationRow:
        """Return the row of a conversation that has just been created, with its first session."""
        return cls(
            number=number,
            id=command.conversation,
            tenant=command.tenant,
            session=session,
            session_id=command.session,
            head=None,
            revision=0,
            cancel_generation=0,
            attempt_generation=0,
            active_operation=None,
            slot=None,
            title=command.title,
            metadata=metadata,
            created_ms=command.now_ms,
            updated_ms=command.now_ms,
            last_event=0,
            deleted=0,
            erased_ms=None,
            scheduling=scheduling,
        )

    @property
    def untouched(self) -> bool:
        """Whether nothing has happened in it: neither a message nor a run can be there."""
        return not (self.revision or self.last_event)

    def record(self, deletions: frozenset[MessageId]) -> Conversation:
        """Return the row as the store hands it out."""
        return Conversation(
            id=self.id,
            tenant=self.tenant,
            session=self.session_id,
            head=self.head,
            revision=self.revision,
            cancel_generation=self.cancel_generation,
            attempt_generation=self.attempt_generation,
            active_operation=self.active_operation,
            slot=self.slot,
            title=self.title,
            created_ms=self.created_ms,
            updated_ms=self.updated_ms,
            last_event=self.last_event,
            metadata=_metadata(self.metadata) if self.metadata else {},
            scheduling=None if self.scheduling is None else bool(self.scheduling),
            deleted=bool(self.deleted),
            erased_ms=self.erased_ms,
            deletions=deletions,
        )


CONVERSATION: Final = """
SELECT c.number, c.id, c.tenant, c.session, s.id, c.head, c.revision, c.cancel_generation,
       c.attempt_generation, c.active_operation, c.slot, c.title, c.metadata, c.created_ms,
       c.updated_ms, c.last_event, c.deleted, c.erased_ms, c.scheduling
FROM conversation AS c JOIN session AS s ON s.place = c.session
"""


class RunRow(msgspec.Struct, frozen=True):
    """A run's row, with its place and those of its operations.

    `operation_id` is no column of its own: it is what stands at `operation`.
    """

    place: int
    id: RunId
    kind: str
    status: str
    options: bytes
    input: MessageId | None
    asked_parent: MessageId | None
    at_root: int
    seq: int
    session: SessionId | None
    leaf: MessageId | None
    head_left: MessageId | None
    answer: MessageId | None
    partial: MessageId | None
    committed: int
    first_operation: int | None
    operation: int | None
    node: NodeId | None
    epoch: int
    error_code: str | None
    end_code: str | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_micros: int | None
    prices_of: str | None
    created_ms: int
    started_ms: int | None
    ended_ms: int | None
    decision: str | None
    wish: str | None
    switched: int
    operation_id: OperationId | None

    @classmethod
    def started(cls, command: StartRun, place: int, seq: int) -> RunRow:
        """Return the row of a run that has just been started, at this place."""
        return cls(
            place=place,
            id=command.run,
            kind=command.kind,
            status=RunStatus.QUEUED,
            options=encode_json(command.options),
            input=command.input.id if command.input else None,
            asked_parent=command.asked_parent,
            at_root=command.at_root,
            seq=seq,
            session=None,
            leaf=None,
            head_left=None,
            answer=None,
            partial=None,
            committed=0,
            first_operation=None,
            operation=None,
            node=None,
            epoch=0,
            error_code=None,
            end_code=None,
            input_tokens=0,
            output_tokens=0,
            cached_tokens=0,
            cache_write_tokens=0,
            reasoning_tokens=0,
            cost_micros=0,
            prices_of=None,
            created_ms=command.now_ms,
            started_ms=None,
            ended_ms=None,
            decision=None,
            wish=None,
            switched=False,
            operation_id=None,
        )

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.ended_ms is None

    @property
    def used(self) -> Used:
        """What its answers have taken."""
        cost = None
        if self.cost_micros is not None:
            cost = Cost(micros=self.cost_micros, prices_of=self.prices_of)
        return Used(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            cache_write_tokens=self.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens,
            cost=cost,
        )

    def counted(self, more: Used) -> dict[str, Any]:
        """Return the columns that a further answer changes."""
        used = together(self.used, more)
        return {
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "cached_tokens": used.cached_tokens,
            "cache_write_tokens": used.cache_write_tokens,
            "reasoning_tokens": used.reasoning_tokens,
            "cost_micros": None if used.cost is None else used.cost.micros,
            "prices_of": None if used.cost is None else used.cost.prices_of,
        }

    def record(self, conversation: ConversationId) -> Run:
        """Return the row as the store hands it out."""
        return Run(
            id=self.id,
            conversation=conversation,
            kind=RunKind(self.kind),
            status=RunStatus(self.status),
            options=_options(self.options),
            input=self.input,
            asked_parent=self.asked_parent,
            at_root=bool(self.at_root),
            session=self.session,
            leaf=self.leaf,
            head_left=self.head_left,
            answer=self.answer,
            operation=self.operation_id,
            committed=self.committed,
            node=self.node,
            epoch=self.epoch,
            error_code=self.error_code,
            end_code=self.end_code,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cached_tokens=self.cached_tokens,
            cache_write_tokens=self.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens,
            cost=self.used.cost,
            created_ms=self.created_ms,
            started_ms=self.started_ms,
            ended_ms=self.ended_ms,
            seq=self.seq,
            decision=self.decision,
            wish=self.wish,
            switched=bool(self.switched),
        )


RUN: Final = f"""{", ".join(RunRow.__struct_fields__[:-1])},
  (SELECT manifest.operation FROM manifest WHERE manifest.place = run.operation)"""


class ResponseRow(NamedTuple):
    """A response's row, with its place."""

    place: int
    id: ResponseId
    run: RunId
    previous: ResponseId | None
    since: int
    request: Stored | None
    input: bytes
    stored: int
    created_ms: int
    deleted: int

    @classmethod
    def opened(cls, command: OpenResponse, place: int, since: int) -> ResponseRow:
        """Return the row of a response that begins now, at this place."""
        return cls(
            place=place,
            id=command.response,
            run=command.run,
            previous=command.previous,
            since=since,
            request=None if command.request is None else pack(command.request),
            input=encode_json(command.input),
            stored=command.stored,
            created_ms=command.now_ms,
            deleted=False,
        )

    def record(self, conversation: ConversationId) -> Response:
        """Return the row as the store hands it out."""
        return Response(
            id=self.id,
            conversation=conversation,
            run=self.run,
            previous=self.previous,
            since=self.since,
            request=None if self.request is None else unpack(self.request),
            input=_message_ids(self.input),
            stored=bool(self.stored),
            created_ms=self.created_ms,
            deleted=bool(self.deleted),
        )


RESPONSE: Final = f"""
SELECT c.id, {", ".join(f"r.{column}" for column in ResponseRow._fields)}
FROM response AS r JOIN conversation AS c ON c.number = r.place >> 32
"""


class AttemptRow(msgspec.Struct, frozen=True):
    """An attempt, after what its manifest says of it and whose it is."""

    operation: OperationId
    conversation: ConversationId
    run_place: int
    run: RunId
    base_leaf: int
    base_revision: int
    base_cancel_generation: int
    request_digest: Stored
    manifest_digest: Stored
    manifest: int
    number: int
    purpose: str
    generation: int
    state: str
    handle: str | None
    node: NodeId | None
    epoch: int
    deadline_ms: int
    sent_again: int
    proof: str | None
    error_code: str | None
    prepared_ms: int
    accepted_ms: int | None
    written_ms: int | None
    opened_ms: int | None
    ended_ms: int | None
    answer: Stored | None
    used: bytes | None
    said: bytes | None

    @classmethod
    def unborn(
        cls, manifest: Manifest, digest: Stored, place: int, run: int, base_leaf: int
    ) -> AttemptRow:
        """Return what a manifest at this place says of the attempts that it will have."""
        return cls(
            operation=manifest.operation,
            conversation=manifest.conversation,
            run_place=run,
            run=manifest.run,
            base_leaf=base_leaf,
            base_revision=manifest.conversation_revision,
            base_cancel_generation=manifest.cancel_generation,
            request_digest=pack(manifest.request_digest),
            manifest_digest=digest,
            manifest=place,
            number=0,
            purpose=manifest.purpose,
            **_UNTOUCHED,
        )

    @property
    def beside(self) -> bool:
        """Whether it is a question beside the turn."""
        return self.purpose != Purpose.TURN

    def born(self, number: int, state: State, now_ms: int) -> AttemptRow:
        """Return the attempt of this number under the same manifest, as it begins."""
        begun = {**_UNTOUCHED, "state": state, "prepared_ms": now_ms}
        return replace(self, number=number, **begun)

    def record(self) -> Attempt:
        """Return the row as the store hands it out."""
        return Attempt(
            operation=self.operation,
            conversation=self.conversation,
            run=self.run,
            purpose=Purpose(self.purpose),
            number=self.number,
            generation=self.generation,
            state=State(self.state),
            handle=self.handle,
            node=self.node,
            epoch=self.epoch,
            deadline_ms=self.deadline_ms,
            sent_again=bool(self.sent_again),
            proof=self.proof,
            error_code=self.error_code,
            prepared_ms=self.prepared_ms,
            accepted_ms=self.accepted_ms,
            written_ms=self.written_ms,
            opened_ms=self.opened_ms,
            ended_ms=self.ended_ms,
            answer=None if self.answer is None else unpack(self.answer),
            used=None if self.used is None else _used(self.used),
            said=None if self.said is None else _said(self.said),
        )


_OWN: Final = AttemptRow.__struct_fields__[AttemptRow.__struct_fields__.index("manifest") :]

_UNTOUCHED: Final[dict[str, Any]] = {
    "generation": 0,
    "state": "",
    "handle": None,
    "node": None,
    "epoch": 0,
    "deadline_ms": 0,
    "sent_again": 0,
    "proof": None,
    "error_code": None,
    "prepared_ms": 0,
    "accepted_ms": None,
    "written_ms": None,
    "opened_ms": None,
    "ended_ms": None,
    "answer": None,
    "used": None,
    "said": None,
}
"""What stands in an attempt that nothing has happened to."""

ATTEMPT: Final = f"""
SELECT m.operation, c.id, m.run, r.id, m.base_leaf, m.base_revision, m.base_cancel_generation,
       m.request_digest, m.digest, {", ".join(f"a.{column}" for column in _OWN)}
FROM attempt AS a JOIN manifest AS m ON m.place = a.manifest
JOIN run AS r ON r.place = m.run JOIN conversation AS c ON c.number = m.place >> 32
"""


MANIFEST: Final = """
SELECT m.operation, c.id, s.id, r.id, m.purpose, b.id, m.base_revision,
       m.base_cancel_generation, m.sequence_digest, m.adapter, m.adapter_version,
       m.adapter_digest, m.provider, m.model_revision, m.toolset_digest, m.policy_digest,
       m.request_digest, m.mappings, m.max_output_tokens, m.idempotency_key, m.linked_to,
       m.schema, m.digest, m.question, m.plan
FROM manifest AS m JOIN conversation AS c ON c.number = m.place >> 32
JOIN run AS r ON r.place = m.run JOIN session AS s ON s.place = m.session
JOIN message AS b ON b.place = m.base_leaf
"""


def manifest_record(row: tuple[Any, ...]) -> tuple[Manifest, Digest]:
    """Return a manifest, rebuilt field by field from a row of `MANIFEST`, and its digest."""
    manifest = Manifest(
        operation=row[0],
        conversation=row[1],
        session=row[2],
        run=row[3],
        purpose=Purpose(row[4]),
        base_leaf=row[5],
        conversation_revision=row[6],
        cancel_generation=row[7],
        sequence_digest=unpack(row[8]),
        adapter=row[9],
        adapter_version=row[10],
        adapter_digest=unpack(row[11]),
        provider=row[12],
        model_revision=row[13],
        toolset_digest=unpack(row[14]),
        policy_digest=unpack(row[15]),
        request_digest=unpack(row[16]),
        mappings_digest=None if row[17] is None else unpack(row[17]),
        max_output_tokens=row[18],
        idempotency_key=row[19],
        linked_to=row[20],
        schema=row[21],
        question_digest=msgspec.UNSET if row[23] is None else unpack(row[23]),
        plan_digest=msgspec.UNSET if row[24] is None else unpack(row[24]),
    )
    return manifest, unpack(row[22])
