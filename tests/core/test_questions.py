"""The table of questions beside the turn, and a manifest that says what was asked."""

from __future__ import annotations

import msgspec
import pytest

from antiphon.core.dispatch import QUESTION_TABLE, State
from antiphon.core.ids import ConversationId, Digest, MessageId, OperationId, RunId, SessionId
from antiphon.core.manifest import Manifest, Purpose, manifest_digest
from tests.core.dispatch_contract import ACTIVE, FENCE, IN_FLIGHT, Line

CONTRACT = (
    Line(1, "none", "prepare", "PREPARED", "line_legal", "write_manifest"),
    Line(
        2,
        "PREPARED",
        "accept",
        "DISPATCHING",
        "revision cancel_generation caller_current",
        "open_generation take_ownership",
    ),
    Line(4, "DISPATCHING", "written", "SENT", FENCE),
    Line(5, "SENT", "opened", "STREAMING", FENCE, "bind_handle"),
    Line(
        6,
        "STREAMING",
        "commit",
        "COMMITTED",
        "whole_answer generation revision cancel_generation",
    ),
    Line(8, IN_FLIGHT, "refused", "FAILED", f"{FENCE} definite"),
    Line(8, "DISPATCHING", "not_sent", "FAILED", FENCE),
    Line(9, IN_FLIGHT, "lost", "UNKNOWN", "owner_or_gone"),
    Line(16, "FAILED", "close", "CLOSED"),
    Line(17, f"{ACTIVE} PREPARED FAILED", "cancel", "CANCELED", "names_run"),
)
"""Written by hand from the contract: manifests and attempts, but no slot, revision or message."""


@pytest.mark.req("M149")
def test_the_table_of_questions_is_the_contract_and_no_row_more() -> None:
    written = {
        Line(
            row.number,
            " ".join(sorted("none" if s is None else s for s in row.sources)),
            str(row.event),
            str(row.target),
            " ".join(sorted(row.conditions)),
            " ".join(sorted(row.effects)),
        )
        for row in QUESTION_TABLE
    }
    by_hand = {
        Line(
            line.number,
            " ".join(sorted(line.sources.split())),
            line.event,
            line.target,
            " ".join(sorted(line.conditions.split())),
            " ".join(sorted(line.effects.split())),
        )
        for line in CONTRACT
    }
    assert written == by_hand


def test_a_question_never_takes_the_conversation_and_is_never_sent_a_second_time() -> None:
    effects = {effect for row in QUESTION_TABLE for effect in row.effects}
    assert not effects & {"take_conversation", "write_message", "advance_revision", "follow_head"}
    into = [row.event for row in QUESTION_TABLE if row.target is State.DISPATCHING]
    assert into == ["accept"]
    assert [row.event for row in QUESTION_TABLE if row.target is State.PREPARED] == ["prepare"]


def a_manifest(**more: object) -> Manifest:
    word = Digest("d")
    given: dict[str, object] = {
        "operation": OperationId("op_1"),
        "conversation": ConversationId("conv_1"),
        "session": SessionId("sess_1"),
        "run": RunId("run_1"),
        "purpose": Purpose.TURN,
        "base_leaf": MessageId("m1"),
        "conversation_revision": 1,
        "cancel_generation": 0,
        "sequence_digest": word,
        "adapter": "openai-chat",
        "adapter_version": 1,
        "adapter_digest": word,
        "provider": "p",
        "model_revision": "m",
        "toolset_digest": word,
        "policy_digest": word,
        "request_digest": word,
        **more,
    }
    return Manifest(**given)  # type: ignore[arg-type]  # written out above


@pytest.mark.req("M51")
def test_the_digest_covers_what_was_asked_and_a_turns_manifest_is_as_it_always_was() -> None:
    turn = a_manifest()
    assert b"question" not in msgspec.json.encode(turn)
    asked = a_manifest(question_digest=Digest("q"))
    other = a_manifest(question_digest=Digest("r"))
    digests = {manifest_digest(b"key", one) for one in (turn, asked, other)}
    assert len(digests) == 3
