"""The life of an attempt: each function is a row or two of the dispatch table."""

from __future__ import annotations

from msgspec.structs import replace

from antiphon.core.answers.said import Said
from antiphon.core.answers.usage import Used
from antiphon.core.commands import (
    Accept,
    AnswerOpened,
    BindHandle,
    Close,
    Command,
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
from antiphon.core.dispatch import IN_FLIGHT, PREDICATES, Condition, Denied, Event, State
from antiphon.core.events import (
    DispatchChanged,
    DurableEvent,
    QuestionChanged,
    RunChanged,
    Withdrawn,
)
from antiphon.core.manifest import Manifest, Purpose
from antiphon.core.records import Attempt, RunStatus
from antiphon.errors import InternalError, NotFound
from antiphon.stores.sql.packing import encode_json, pack
from antiphon.stores.sql.places import conversation_of
from antiphon.stores.sql.rows import AttemptRow, ConversationRow
from antiphon.stores.sql.transaction import Transaction
from antiphon.stores.sql.transitions import Claim, Moved, again, begin, facts, move


def prepare(tx: Transaction, command: Prepare) -> Attempt | Denied:
    """Row 1."""
    c = tx.conversation(command.conversation)
    manifest = command.manifest
    if manifest.conversation != command.conversation:
        raise InternalError("The manifest is of another conversation.", at=manifest.operation)
    run = tx.run(c, manifest.run)
    if manifest.purpose is Purpose.TURN and c.slot != run.id:
        return Denied("slot")
    unborn = _insert_manifest(tx, c, run.place, command)
    attempt = begin(tx, unborn, Claim(now_ms=command.now_ms, line_legal=True))
    if isinstance(attempt, Denied) or attempt.beside:
        return attempt if isinstance(attempt, Denied) else attempt.record()
    tx.change_run(
        run,
        answer=command.answer,
        operation=attempt.manifest,
        operation_id=attempt.operation,
        first_operation=run.first_operation or attempt.manifest,
    )
    return attempt.record()


def _insert_manifest(tx: Transaction, c: ConversationRow, run: int, command: Prepare) -> AttemptRow:
    manifest: Manifest = command.manifest
    base_leaf = tx.node(c.number, manifest.base_leaf)
    if base_leaf is None:
        raise NotFound("The base leaf is not in this conversation.", at=manifest.base_leaf)
    session = tx.session(c, manifest.session)
    if session is None:
        raise NotFound("There is no such session here.", at=manifest.session)
    digest = pack(command.manifest_digest)
    at = tx.next_place("manifest", c.number)
    tx.add_manifest(
        at,
        {
            "place": at,
            "operation": manifest.operation,
            "run": run,
            "base_leaf": base_leaf.place,
            "session": session,
            "purpose": manifest.purpose,
            "base_revision": manifest.conversation_revision,
            "base_cancel_generation": manifest.cancel_generation,
            "sequence_digest": pack(manifest.sequence_digest),
            "adapter": manifest.adapter,
            "adapter_version": manifest.adapter_version,
            "adapter_digest": pack(manifest.adapter_digest),
            "provider": manifest.provider,
            "model_revision": manifest.model_revision,
            "toolset_digest": pack(manifest.toolset_digest),
            "policy_digest": pack(manifest.policy_digest),
            "request_digest": pack(manifest.request_digest),
            "mappings": pack(manifest.mappings_digest) if manifest.mappings_digest else None,
            "max_output_tokens": manifest.max_output_tokens,
            "idempotency_key": manifest.idempotency_key,
            "linked_to": manifest.linked_to,
            "schema": manifest.schema,
            "digest": digest,
            "question": pack(manifest.question_digest) if manifest.question_digest else None,
            "plan": pack(manifest.plan_digest) if manifest.plan_digest else None,
        },
    )
    return AttemptRow.unborn(manifest, digest, at, run, base_leaf.place)


def accept(tx: Transaction, command: Accept) -> Attempt | Denied:
    """Row 2."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, fence=command.fence)
    moved = move(tx, attempt, Event.ACCEPT, claim, deadline_ms=command.deadline_ms)
    return moved if isinstance(moved, Denied) else _told(tx, command, moved)


def supersede(tx: Transaction, command: Supersede) -> Attempt | Denied:
    """Row 3."""
    attempt = tx.attempt(command.conversation, command.operation)
    moved = move(tx, attempt, Event.SUPERSEDE, Claim(now_ms=command.now_ms))
    return moved if isinstance(moved, Denied) else moved.attempt.record()


def written(tx: Transaction, command: Written) -> Attempt | Denied:
    """Row 4."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, fence=command.fence, generation=command.generation)
    moved = move(tx, attempt, Event.WRITTEN, claim)
    return moved if isinstance(moved, Denied) else moved.attempt.record()


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
    moved = move(tx, attempt, Event.OPENED, claim)
    return moved if isinstance(moved, Denied) else moved.attempt.record()


def bind_handle(tx: Transaction, command: BindHandle) -> Attempt | Denied:
    """Bind the handle once; it is good for this generation of this manifest only."""
    attempt = tx.attempt(command.conversation, command.operation)
    if attempt.state not in (State.SENT, State.STREAMING, State.UNKNOWN):
        return Denied("state")
    if attempt.generation != command.generation:
        return Denied(Condition.GENERATION)
    another = _another_handle(attempt, command.handle)
    if another or attempt.manifest_digest != pack(command.manifest_digest):
        return Denied("handle")
    tx.execute(
        "UPDATE attempt SET handle = ? WHERE manifest = ? AND number = ? AND handle IS NULL",
        (command.handle, attempt.manifest, attempt.number),
    )
    return tx.keep_attempt(replace(attempt, handle=command.handle)).record()


def _another_handle(attempt: AttemptRow, handle: str | None) -> bool:
    return handle is not None and attempt.handle is not None and attempt.handle != handle


def extend_deadline(tx: Transaction, command: ExtendDeadline) -> Attempt | Denied:
    """Move the deadline of an attempt in flight; never of one whose time is over."""
    attempt = tx.attempt(command.conversation, command.operation)
    if attempt.state not in IN_FLIGHT:
        return Denied("state")
    claim = Claim(now_ms=command.now_ms, fence=command.fence, generation=command.generation)
    tx.write_conversation(conversation_of(attempt.manifest))
    known = facts(tx, attempt, claim)
    for condition in (Condition.GENERATION, Condition.OWNER, Condition.BEFORE_DEADLINE):
        if not PREDICATES[condition](known):
            return Denied(condition)
    deadline_ms = max(attempt.deadline_ms, command.deadline_ms)
    tx.execute(
        "UPDATE attempt SET deadline_ms = ? WHERE manifest = ? AND number = ?",
        (deadline_ms, attempt.manifest, attempt.number),
    )
    return tx.keep_attempt(replace(attempt, deadline_ms=deadline_ms)).record()


def refuse(tx: Transaction, command: Refuse) -> Attempt | Denied:
    """Rows 8 and 12."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(
        now_ms=command.now_ms,
        fence=command.fence,
        generation=command.generation,
        definite=True,
    )
    event = Event.NOT_SENT if command.not_sent else Event.REFUSED
    moved = move(tx, attempt, event, claim, error_code=command.code, said=_encoded(command.said))
    if isinstance(moved, Denied):
        return moved
    status = RunStatus.UNKNOWN if moved.row.target is State.UNKNOWN else None
    return _told(tx, command, moved, status, command.code if command.shown else None)


def _encoded(said: Said | None) -> bytes | None:
    return None if said is None else encode_json(said)


def lose(tx: Transaction, command: Lose) -> Attempt | Denied:
    """Row 9."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, fence=command.fence, generation=command.generation)
    moved = move(
        tx, attempt, Event.LOST, claim, error_code=command.code, said=_encoded(command.said)
    )
    if isinstance(moved, Denied):
        return moved
    return _told(tx, command, moved, RunStatus.UNKNOWN, command.code if command.shown else None)


def resume(tx: Transaction, command: Resume) -> Attempt | Denied:
    """Row 10."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, fence=command.fence, generation=command.generation)
    moved = move(tx, attempt, Event.RESUME, claim, error_code=None, said=None)
    return moved if isinstance(moved, Denied) else _told(tx, command, moved, RunStatus.PENDING)


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
    moved = move(tx, attempt, Event.REPLAY, claim, error_code=None, said=None)
    return moved if isinstance(moved, Denied) else _told(tx, command, moved, RunStatus.PENDING)


def end(tx: Transaction, command: End) -> Attempt | Denied:
    """Row 14."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, generation=command.generation, proof=command.proof)
    moved = move(tx, attempt, Event.ENDED, claim)
    return moved if isinstance(moved, Denied) else _told(tx, command, moved)


def retry(tx: Transaction, command: Retry) -> Attempt | Denied:
    """Row 15: the failed attempt stays as it is, and the next one stands beside it."""
    attempt = tx.attempt(command.conversation, command.operation)
    claim = Claim(now_ms=command.now_ms, attempts_allowed=command.attempts_allowed)
    second = again(tx, attempt, claim)
    if isinstance(second, Denied):
        return second
    events = give_status(tx, attempt, RunStatus.PENDING)
    tx.tell(command, conversation_of(attempt.manifest), *events)
    return second.record()


def close(tx: Transaction, command: Close) -> Attempt | Denied:
    """Row 16."""
    attempt = tx.attempt(command.conversation, command.operation)
    moved = move(tx, attempt, Event.CLOSE, Claim(now_ms=command.now_ms))
    return moved if isinstance(moved, Denied) else moved.attempt.record()


def _told(
    tx: Transaction,
    command: Command[Attempt],
    moved: Moved,
    status: RunStatus | None = None,
    withdrawn: str | None = None,
) -> Attempt:
    """Write the events of a transition that people care about, and return the new row."""
    attempt = moved.attempt
    if attempt.beside:
        return question_told(tx, command, attempt)
    events: list[DurableEvent] = [changed(attempt)]
    if withdrawn is not None:
        events.append(Withdrawn(run=attempt.run, generation=attempt.generation, reason=withdrawn))
    if status is not None:
        events += give_status(tx, attempt, status)
    tx.tell(command, conversation_of(attempt.manifest), *events)
    return attempt.record()


def changed(attempt: AttemptRow) -> DispatchChanged:
    """Return the event that tells where an attempt stands now."""
    return DispatchChanged(
        run=attempt.run,
        operation=attempt.operation,
        generation=attempt.generation,
        state=State(attempt.state),
        code=attempt.error_code,
    )


def question_told(
    tx: Transaction, command: Command[Attempt], attempt: AttemptRow, took: Used | None = None
) -> Attempt:
    """Write the event of a question's transition, and return the new row."""
    event = QuestionChanged(
        run=attempt.run,
        operation=attempt.operation,
        purpose=Purpose(attempt.purpose),
        generation=attempt.generation,
        state=State(attempt.state),
        code=attempt.error_code,
        input_tokens=took.input_tokens if took else 0,
        output_tokens=took.output_tokens if took else 0,
    )
    tx.tell(command, conversation_of(attempt.manifest), event)
    return attempt.record()


def give_status(tx: Transaction, attempt: AttemptRow, status: RunStatus) -> list[DurableEvent]:
    """Give the attempt's run another status while it is open; the event, if it is new."""
    run = tx.run_at(attempt.run_place)
    if not run.open or run.status == status:
        return []
    tx.change_run(run, status=status)
    code = attempt.error_code if status is RunStatus.UNKNOWN else None
    return [RunChanged(run=run.id, status=status, code=code)]
