"""Rows of the ledger, made by hand."""

from __future__ import annotations

from antiphon.core.blocks import Text
from antiphon.core.ids import CallId, ConversationId, Digest, MessageId, RunId
from antiphon.core.records import Approval, Call, CallState, Runner


def ledger_call(
    call_id: str = "c1",
    *,
    digest: str = "a",
    state: CallState = CallState.PENDING,
    name: str = "look",
    order: int = 0,
    read_only: bool = False,
    repeatable: bool = False,
    code: str | None = None,
    text: str = "seen",
    approval: Approval | None = None,
    runner: Runner = Runner.FUNCTION,
    max_result_chars: int = 0,
) -> Call:
    """Return a call in `state`; a closed one says `text`."""
    closed = state not in (CallState.PENDING, CallState.EXECUTING, CallState.UNKNOWN)
    return Call(
        conversation=ConversationId("conv_1"),
        run=RunId("run_1"),
        message=MessageId("msg_1"),
        call_id=CallId(call_id),
        order=order,
        name=name,
        arguments="{}",
        arguments_digest=Digest(digest),
        generation=1,
        runner=runner,
        read_only=read_only,
        idempotent=False,
        state=state,
        attempt=0,
        node=None,
        epoch=0,
        deadline_ms=0,
        idempotency_key="idem_1",
        code=code,
        content=(Text(text=text),) if closed else (),
        ended_ms=1 if closed else None,
        repeatable=repeatable,
        approval=approval,
        max_result_chars=max_result_chars,
    )
