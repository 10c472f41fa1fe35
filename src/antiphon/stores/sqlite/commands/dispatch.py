"""The life of an attempt: each function is a row or two of the dispatch table."""

from __future__ import annotations

from antiphon.core.commands import (
    Accept,
    AnswerOpened,
    BindHandle,
    Close,
    End,
    ExtendDeadline,
    Lose,
    Prepare,
    Refuse,
    Replay,
    Resume,
    Retry,
    Supersede,
    Written,
)
from antiphon.core.dispatch import IN_FLIGHT, Condition, Denied, Event, State
from antiphon.core.events import DispatchChanged, DurableEvent, RunChanged, Withdrawn
from antiphon.core.ids import ConversationId, OperationId
from antiphon.core.manifest import Manifest
from antiphon.core.records import Attempt, RunStatus
from antiphon.errors import InternalError, NotFound
from antiphon.stores.sqlite.conditions import insert_first, insert_next, where
from antiphon.stores.sqlite.rows import AttemptRow, ConversationRow, encode_json, pack
from antiphon.stores.sqlite.transaction import Transaction
from antiphon.stores.sqlite.transitions import ROWS, Claim, move, why_not, why_not_prepared


def prepare(tx: Transaction, command: Prepare) -> Attempt | Denied:
    """Row 1."""
    c = tx.conversation(command.conversation)
    manifest = command.manifest
    if manifest.conversation != command.conversation:
        raise InternalError("The manifest is of another conversation.", at=manifest.operation)
    run = tx.run(command.conversation, manifest.run)
    if c.slot != run.id:
        return Denied("slot")
    at = _insert_manifest(tx, c, run.place, command)
    claim = Claim(now_ms=command.now_ms, line_legal=True)
    (row,) = ROWS[Event.PREPARE]
    if not tx.execute(
        insert_first(row), {"manifest": at, "now_ms": claim.now_ms, "line_legal": claim.line_legal}
    ):
        return why_not_prepared(tx, run.place, claim)
    tx.execute(
        """UPDATE run SET answer = ?, operation = ?,
          first_operation = coalesce(first_operation, ?) WHERE place = ?""",
        (command.answer, at, at, run.place),
    )
    return tx.attempt(command.conversation, manifest.operation).record()


def _insert_manifest(tx: Transaction, c: ConversationRow, run: int, command: Prepare) -> int:
    manifest: Manifest = command.manifest
    base_leaf = tx.message_place(c.number, manifest.base_leaf)
    if base_leaf is None:
        raise NotFound("The base leaf is not in this conversation.", at=manifest.base_leaf)
    session = tx.one(
        "SELECT place FROM session WHERE place >> 32 = ? AND id = ?", (c.number, manifest.session)
    )
    if session is None:
        raise NotFound("There is no such session here.", at=manifest.session)
    at = tx.next_place("manifest", c.number)
    tx.execute(
        """INSERT INTO manifest (place, operation, run, base_leaf, session, purpose,
          base_revision, base_cancel_generation, sequence_digest, adapter, adapter_version,
          adapter_digest, provider, model_revision, toolset_digest, policy_digest,
          request_digest, mappings, max_output_tokens, idempotency_key, linked_to, schema, digest)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            at,
            manifest.operation,
            run,
            base_leaf,
            session[0],
            manifest.purpose,
            manifest.conversation_revision,
            manifest.cancel_generation,
            pack(manifest.sequence_digest),
            manifest.adapter,
            manifest.adapter_version,
            pack(manifest.adapter_digest),
            manifest.provider,
            manifest.model_revision,
            pack(manifest.toolset_digest),
            pack(manifest.policy_digest),
            pack(manifest.request_digest),
            encode_json(manifest.mappings) if manifest.mappings else None,
            manifest.max_output_tokens,
            manifest.idempotency_key,
            manifest.linked_to,
            manifest.schema,
            pack(command.manifest_digest),
        ),
    )
    return at


def accept(tx: Transaction, command: Accept) -> Attempt | Denied:
    """Row 2."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, fence=command.fence, deadline_ms=command.deadline_ms)
    row = move(tx, attempt, Event.ACCEPT, claim, "deadline_ms = :deadline_ms")
    if isinstance(row, Denied):
        return row
    return _told(tx, command.conversation, command.operation, command.now_ms)


def supersede(tx: Transaction, command: Supersede) -> Attempt | Denied:
    """Row 3."""
    attempt = tx.attempt(command.conversation, command.operation)
    row = move(tx, attempt, Event.SUPERSEDE, Claim(now_ms=command.now_ms))
    return _after(tx, attempt, row)


def written(tx: Transaction, command: Written) -> Attempt | Denied:
    """Row 4."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, fence=command.fence, generation=command.generation)
    return _after(tx, attempt, move(tx, attempt, Event.WRITTEN, claim))


def answer_opened(tx: Transaction, command: AnswerOpened) -> Attempt | Denied:
    """Row 5."""
    attempt = tx.attempt(command.conversation, command.operation)
    if _another_handle(attempt, command.handle):
        return Denied("handle")
    claim = Claim(
        now_ms=command.now_ms,
        fence=command.fence,
        generation=command.generation,
        handle=command.handle,
    )
    return _after(tx, attempt, move(tx, attempt, Event.OPENED, claim))


def bind_handle(tx: Transaction, command: BindHandle) -> Attempt | Denied:
    """Bind the handle once; it is good for this generation of this manifest only."""
    attempt = tx.attempt(command.conversation, command.operation)
    if attempt.state not in (State.SENT, State.STREAMING, State.UNKNOWN):
        return Denied("state")
    if attempt.generation != command.generation:
        return Denied(Condition.GENERATION)
    if attempt.manifest_digest != pack(command.manifest_digest) or _another_handle(
        attempt, command.handle
    ):
        return Denied("handle")
    tx.execute(
        "UPDATE attempt SET handle = ? WHERE manifest = ? AND number = ? AND handle IS NULL",
        (command.handle, attempt.manifest, attempt.number),
    )
    return attempt._replace(handle=command.handle).record()


def _another_handle(attempt: AttemptRow, handle: str | None) -> bool:
    return handle is not None and attempt.handle is not None and attempt.handle != handle


def extend_deadline(tx: Transaction, command: ExtendDeadline) -> Attempt | Denied:
    """Move the deadline of an attempt in flight; never of one whose time is over."""
    attempt = tx.attempt(command.conversation, command.operation)
    if attempt.state not in IN_FLIGHT:
        return Denied("state")
    claim = Claim(
        now_ms=command.now_ms,
        fence=command.fence,
        generation=command.generation,
        deadline_ms=command.deadline_ms,
    )
    needs = (Condition.GENERATION, Condition.OWNER, Condition.BEFORE_DEADLINE)
    for condition in needs:
        if not tx.one(
            f"SELECT 1 FROM attempt AS a WHERE a.manifest = :manifest AND a.number = :number "
            f"AND {where((condition,))}",
            claim.parameters(attempt),
        ):
            return Denied(condition)
    tx.execute(
        "UPDATE attempt SET deadline_ms = max(deadline_ms, ?) WHERE manifest = ? AND number = ?",
        (command.deadline_ms, attempt.manifest, attempt.number),
    )
    return tx.attempt(command.conversation, command.operation).record()


def refuse(tx: Transaction, command: Refuse) -> Attempt | Denied:
    """Rows 8 and 12."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(
        now_ms=command.now_ms,
        fence=command.fence,
        generation=command.generation,
        definite=True,
        error_code=command.code,
    )
    event = Event.NOT_SENT if command.not_sent else Event.REFUSED
    row = move(tx, attempt, event, claim, "error_code = :error_code")
    if isinstance(row, Denied):
        return row
    return _told(
        tx,
        command.conversation,
        command.operation,
        command.now_ms,
        withdrawn=command.code if command.shown else None,
        status=RunStatus.UNKNOWN if row.target is State.UNKNOWN else None,
    )


def lose(tx: Transaction, command: Lose) -> Attempt | Denied:
    """Row 9."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(
        now_ms=command.now_ms,
        fence=command.fence,
        generation=command.generation,
        error_code=command.code,
    )
    row = move(tx, attempt, Event.LOST, claim, "error_code = :error_code")
    if isinstance(row, Denied):
        return row
    return _told(
        tx,
        command.conversation,
        command.operation,
        command.now_ms,
        withdrawn=command.code if command.shown else None,
        status=RunStatus.UNKNOWN,
    )


def resume(tx: Transaction, command: Resume) -> Attempt | Denied:
    """Row 10."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, fence=command.fence, generation=command.generation)
    row = move(tx, attempt, Event.RESUME, claim, "error_code = NULL")
    if isinstance(row, Denied):
        return row
    return _told(
        tx,
        command.conversation,
        command.operation,
        command.now_ms,
        status=RunStatus.PENDING,
    )


def replay(tx: Transaction, command: Replay) -> Attempt | Denied:
    """Row 11."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(
        now_ms=command.now_ms,
        fence=command.fence,
        generation=command.generation,
        request_digest=command.request_digest,
        honours_key=command.honours_key,
    )
    row = move(tx, attempt, Event.REPLAY, claim, "error_code = NULL")
    if isinstance(row, Denied):
        return row
    return _told(
        tx,
        command.conversation,
        command.operation,
        command.now_ms,
        status=RunStatus.PENDING,
    )


def end(tx: Transaction, command: End) -> Attempt | Denied:
    """Row 14."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, generation=command.generation, proof=command.proof)
    row = move(tx, attempt, Event.ENDED, claim)
    if isinstance(row, Denied):
        return row
    return _told(tx, command.conversation, command.operation, command.now_ms)


def retry(tx: Transaction, command: Retry) -> Attempt | Denied:
    """Row 15: the failed attempt stays as it is, and the next one stands beside it."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, attempts_allowed=command.attempts_allowed)
    (row,) = ROWS[Event.RETRY]
    if not tx.execute(insert_next(row), claim.parameters(attempt)):
        return why_not(tx, attempt, Event.RETRY, claim)
    c = tx.conversation(command.conversation)
    events = _status(tx, c, attempt, RunStatus.PENDING)
    if events:
        tx.tell(c, command.now_ms, *events)
    return tx.attempt(command.conversation, command.operation).record()


def close(tx: Transaction, command: Close) -> Attempt | Denied:
    """Row 16."""
    attempt = tx.attempt(command.conversation, command.operation)
    row = move(tx, attempt, Event.CLOSE, Claim(now_ms=command.now_ms))
    return _after(tx, attempt, row)


def _after(tx: Transaction, attempt: AttemptRow, row: object) -> Attempt | Denied:
    if isinstance(row, Denied):
        return row
    moved = tx.newest_attempt(attempt.manifest)
    assert moved is not None
    return moved.record()


def _told(
    tx: Transaction,
    conversation: ConversationId,
    operation: OperationId,
    now_ms: int,
    *,
    withdrawn: str | None = None,
    status: RunStatus | None = None,
) -> Attempt:
    """Write the events of a transition that people care about, and return the new row."""
    c = tx.conversation(conversation)
    attempt = tx.attempt(conversation, operation)
    events: list[DurableEvent] = [
        DispatchChanged(
            run=attempt.run,
            operation=attempt.operation,
            generation=attempt.generation,
            state=State(attempt.state),
            code=attempt.error_code,
        )
    ]
    if withdrawn is not None:
        events.append(Withdrawn(run=attempt.run, generation=attempt.generation, reason=withdrawn))
    if status is not None:
        events += _status(tx, c, attempt, status)
    tx.tell(c, now_ms, *events)
    return attempt.record()


def _status(
    tx: Transaction, c: ConversationRow, attempt: AttemptRow, status: RunStatus
) -> list[DurableEvent]:
    """Give the attempt's run another status while it is open; the event, if it is new."""
    changed = tx.execute(
        "UPDATE run SET status = ? WHERE place = ? AND ended_ms IS NULL AND status <> ?",
        (status, attempt.run_place, status),
    )
    return [RunChanged(run=attempt.run, status=status)] if changed else []
