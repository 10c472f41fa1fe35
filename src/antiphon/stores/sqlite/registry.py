"""Each command's function, by the command's type.

A function gets the transaction and the command, and returns what the command promises or
`Denied`. What it promises stands in the docstrings of `antiphon.core.commands`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from antiphon.core import commands as c
from antiphon.stores.sqlite.commands import (
    answers,
    calls,
    conversations,
    dispatch,
    endings,
    responses,
    runs,
)
from antiphon.stores.sqlite.transaction import Transaction

FUNCTIONS: Final[Mapping[type[c.Command[Any]], Callable[[Transaction, Any], Any]]] = (
    MappingProxyType(
        {
            c.CreateConversation: conversations.create,
            c.AddMessages: conversations.add_messages,
            c.PutContent: conversations.put_content,
            c.MoveHead: conversations.move_head,
            c.SetTitle: conversations.set_title,
            c.SetMetadata: conversations.set_metadata,
            c.DeleteConversation: conversations.delete,
            c.DeleteMessages: conversations.delete_messages,
            c.KeepCanceled: conversations.keep_canceled,
            c.Quarantine: conversations.quarantine,
            c.StartRun: runs.start,
            c.OpenResponse: responses.begin,
            c.DeleteResponse: responses.delete,
            c.PlaceRun: runs.place_run,
            c.ClaimRun: runs.claim,
            c.WaitRun: runs.wait,
            c.ResumeRun: runs.resume,
            c.EndRun: endings.end,
            c.CancelRun: endings.cancel,
            c.KeepPartial: endings.keep_partial,
            c.Prepare: dispatch.prepare,
            c.Accept: dispatch.accept,
            c.Supersede: dispatch.supersede,
            c.Written: dispatch.written,
            c.BindHandle: dispatch.bind_handle,
            c.AnswerOpened: dispatch.answer_opened,
            c.ExtendDeadline: dispatch.extend_deadline,
            c.Refuse: dispatch.refuse,
            c.Lose: dispatch.lose,
            c.Resume: dispatch.resume,
            c.Replay: dispatch.replay,
            c.End: dispatch.end,
            c.Retry: dispatch.retry,
            c.Close: dispatch.close,
            c.CommitAnswer: answers.commit,
            c.ConflictAnswer: answers.conflict,
            c.StartCall: calls.start,
            c.ApproveCall: calls.approve,
            c.FinishCall: calls.finish,
            c.LoseCall: calls.lose,
            c.PlaceResults: calls.place_results,
        }
    )
)


def carry_out(tx: Transaction, command: c.Command[Any]) -> object:
    """Carry out one command, by whatever its type promises."""
    tx.touched.add(command.conversation)
    return FUNCTIONS[type(command)](tx, command)
