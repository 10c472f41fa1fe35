"""What may be done with an attempt of unknown outcome."""

from __future__ import annotations

import pytest

from antiphon.core.dispatch import State
from antiphon.core.ids import ConversationId, NodeId, OperationId, RunId
from antiphon.core.records import Attempt
from antiphon.core.recovery import (
    AskOperator,
    ConfirmEnded,
    NextAction,
    QueryHandle,
    ReplayRequest,
    Resend,
    RetryPolicy,
    Rung,
    WaitUntil,
    Witness,
    backoff_ms,
    may_resend,
    next_action,
)

HTTP = (Rung.CONNECTION, Rung.DEADLINE)
NOTHING_KNOWN = Witness()
ALL = (Rung.HANDLE, Rung.IDEMPOTENT, Rung.CONNECTION, Rung.DEADLINE)


def attempt(handle: str | None = None, state: State = State.UNKNOWN) -> Attempt:
    return Attempt(
        operation=OperationId("op_1"),
        conversation=ConversationId("conv_1"),
        run=RunId("run_1"),
        number=1,
        generation=1,
        state=state,
        handle=handle,
        node=NodeId("n"),
        epoch=1,
        deadline_ms=1_000,
        sent_again=False,
        proof=None,
        error_code=None,
        prepared_ms=0,
        accepted_ms=0,
        written_ms=None,
        opened_ms=None,
        ended_ms=None,
    )


def decide(
    ladder: tuple[Rung, ...],
    witness: Witness = NOTHING_KNOWN,
    *,
    handle: str | None = None,
    now_ms: int = 500,
    closing_ends: bool = True,
) -> NextAction:
    return next_action(attempt(handle), ladder, witness, now_ms=now_ms, closing_ends=closing_ends)


@pytest.mark.req("M64")
def test_a_bound_handle_is_asked_first() -> None:
    assert decide(ALL, handle="resp_1") == QueryHandle()


@pytest.mark.req("M64")
def test_a_handle_that_nobody_answers_for_is_passed_over() -> None:
    unanswered = Witness(closed=True, unanswered=True)
    kept = (Rung.HANDLE, Rung.DEADLINE)
    assert decide(kept, unanswered, handle="resp_1", closing_ends=False) == WaitUntil(1_000)
    late = decide(kept, unanswered, handle="resp_1", now_ms=1_000, closing_ends=False)
    assert isinstance(late, ConfirmEnded)


@pytest.mark.req("M64")
def test_without_a_handle_the_ladder_falls_to_the_same_bytes_under_the_same_key() -> None:
    assert decide(ALL) == ReplayRequest()


@pytest.mark.req("M64", "M65")
def test_nothing_is_replayed_after_the_deadline() -> None:
    assert isinstance(decide(ALL, now_ms=1_000), ConfirmEnded)


@pytest.mark.req("M65")
def test_the_holder_of_the_socket_may_say_that_it_has_ended() -> None:
    assert isinstance(decide(HTTP, Witness(closed=True)), ConfirmEnded)


@pytest.mark.req("M65")
def test_anybody_else_waits_for_the_deadline() -> None:
    assert decide(HTTP) == WaitUntil(1_000)
    assert isinstance(decide(HTTP, now_ms=1_000), ConfirmEnded)


@pytest.mark.req("M65")
def test_a_closed_connection_proves_nothing_where_closing_does_not_end_the_call() -> None:
    assert decide(HTTP, Witness(closed=True), closing_ends=False) == WaitUntil(1_000)


def test_what_the_provider_said_to_a_query_comes_before_every_rung() -> None:
    assert isinstance(decide((Rung.OPERATOR,), Witness(queried_ended=True)), ConfirmEnded)


def test_where_only_a_person_can_say_a_person_is_asked() -> None:
    assert decide((Rung.OPERATOR,)) == AskOperator()
    assert decide((Rung.HANDLE,)) == AskOperator()


def test_only_an_unknown_attempt_is_asked_about() -> None:
    with pytest.raises(ValueError, match="STREAMING"):
        next_action(attempt(state=State.STREAMING), HTTP, Witness(), now_ms=0, closing_ends=True)


@pytest.mark.req("M63", "M65")
@pytest.mark.parametrize(
    ("policy", "saw_cut", "resent", "may"),
    [
        (Resend.NEVER, True, 0, False),
        (Resend.SAME_PROCESS, True, 0, True),
        (Resend.SAME_PROCESS, False, 0, False),
        (Resend.SAME_PROCESS, True, 1, False),
        (Resend.ALWAYS, False, 0, True),
        (Resend.ALWAYS, True, 1, False),
    ],
)
def test_a_crash_re_sends_nothing_unless_told_to(
    policy: Resend, saw_cut: bool, resent: int, may: bool
) -> None:
    witness = Witness(closed=True, saw_cut=saw_cut)
    assert may_resend(policy, witness, resent=resent) is may


@pytest.mark.parametrize(
    ("made", "fraction", "asked", "wait"),
    [
        (1, 1.0, None, 500),
        (1, 0.0, None, 0),
        (2, 1.0, None, 1_000),
        (3, 1.0, None, None),
        (1, 0.0, 7_000, 7_000),
        (1, 0.0, 60_000, 60_000),
        (1, 0.0, 60_001, None),
    ],
)
def test_retries_are_few_jittered_and_obey_the_provider(
    made: int, fraction: float, asked: int | None, wait: int | None
) -> None:
    policy = RetryPolicy()
    assert backoff_ms(policy, made=made, fraction=fraction, retry_after_ms=asked) == wait


def test_a_pause_never_passes_its_cap() -> None:
    policy = RetryPolicy(retries=20)
    assert backoff_ms(policy, made=12, fraction=1.0, retry_after_ms=None) == 8_000
