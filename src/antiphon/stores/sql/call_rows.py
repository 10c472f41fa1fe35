"""The ledger between its rows and the records of core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from antiphon.core.blocks import decode_blocks, encode_blocks
from antiphon.core.ids import ConversationId, RunId
from antiphon.core.records import Approval, Call, CallState, Runner
from antiphon.stores.sql.packing import pack, unpack


class CallRow(NamedTuple):
    """A row of the ledger: where it stands, and what it says."""

    place: int
    call: Call


CALL: Final = """
SELECT m.id, l.place, l.call_id, l.position, l.name, l.arguments, l.arguments_digest,
       l.generation, l.runner, l.read_only, l.idempotent, l.state, l.attempt, l.node, l.epoch,
       l.deadline_ms, l.idempotency_key, l.code, l.content, l.ended_ms, l.repeatable, l.approval,
       l.changed_arguments, l.max_result_chars, l.reused_from, l.erased
FROM call AS l JOIN message AS m ON m.place = l.message
"""


def read_call(conversation: ConversationId, run: RunId, row: tuple[Any, ...]) -> CallRow:
    """Return a row of the ledger from one of `CALL`."""
    call = Call(
        conversation=conversation,
        run=run,
        message=row[0],
        call_id=row[2],
        order=row[3],
        name=row[4],
        arguments=row[5],
        arguments_digest=unpack(row[6]),
        generation=row[7],
        runner=Runner(row[8]),
        read_only=bool(row[9]),
        idempotent=bool(row[10]),
        state=CallState(row[11]),
        attempt=row[12],
        node=row[13],
        epoch=row[14],
        deadline_ms=row[15],
        idempotency_key=row[16],
        code=row[17],
        content=() if row[18] is None else decode_blocks(row[18]),
        ended_ms=row[19],
        repeatable=bool(row[20]),
        approval=None if row[21] is None else Approval(row[21]),
        changed_arguments=row[22],
        max_result_chars=row[23],
        reused_from=row[24],
        erased=bool(row[25]),
    )
    return CallRow(row[1], call)


def call_columns(row: CallRow, run: int, message: int) -> dict[str, object]:
    """Return the columns of a ledger row of the run and the message at these places."""
    call = row.call
    return {
        "place": row.place,
        "run": run,
        "message": message,
        "call_id": call.call_id,
        "position": call.order,
        "name": call.name,
        "arguments": call.arguments,
        "arguments_digest": pack(call.arguments_digest),
        "generation": call.generation,
        "runner": call.runner,
        "read_only": call.read_only,
        "idempotent": call.idempotent,
        "state": call.state,
        "attempt": call.attempt,
        "node": call.node,
        "epoch": call.epoch,
        "deadline_ms": call.deadline_ms,
        "idempotency_key": call.idempotency_key,
        "code": call.code,
        "content": None if call.ended_ms is None else encode_blocks(call.content),
        "ended_ms": call.ended_ms,
        "repeatable": call.repeatable,
        "approval": call.approval,
        "changed_arguments": call.changed_arguments,
        "max_result_chars": call.max_result_chars,
        "reused_from": call.reused_from,
        "erased": call.erased,
    }


def changed_columns(values: Mapping[str, Any]) -> Mapping[str, object]:
    """Return what is changed in a call as it stands in the columns of the same names."""
    if "content" not in values:
        return values
    return {**values, "content": encode_blocks(values["content"])}
