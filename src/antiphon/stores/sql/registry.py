"""Each command's function, by the command's type.

A function gets the transaction and the command, and returns what the command promises or
`Denied`. What it promises stands in the docstrings of `antiphon.core.commands`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from antiphon.core import commands as c
from antiphon.core.dispatch import Denied
from antiphon.stores.sql import knowledge, standing
from antiphon.stores.sql.commands import (
    answers,
    between,
    calls,
    conversations,
    dispatch,
    endings,
    erasure,
    questions,
    repairs,
    responses,
    runs,
    sessions,
)
from antiphon.stores.sql.transaction import Transaction

FUNCTIONS: Final[Mapping[type[c.Command[Any]], Callable[[Transaction, Any], Any]]] = (
    MappingProxyType(
        {
            c.CreateConversation: conversations.create,
            c.AddMessages: conversations.add_messages,
            c.PutContent: conversations.put_content,
            c.GiveFile: knowledge.give_file,
            c.MoveHead: conversations.move_head,
            c.SetTitle: conversations.set_title,
            c.SetMetadata: conversations.set_metadata,
            c.DeleteConversation: conversations.delete,
            c.DeleteMessages: conversations.delete_messages,
            c.EraseConversation: erasure.erase,
            c.KeepCanceled: conversations.keep_canceled,
            c.Quarantine: conversations.quarantine,
            c.Repair: repairs.repair,
            c.StartRun: runs.start,
            c.OpenResponse: responses.begin,
            c.DeleteResponse: responses.delete,
            c.NotePrefix: standing.note_prefix,
            c.PlaceRun: runs.place_run,
            c.JoinRun: between.join,
            c.AskAgain: between.ask_again,
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
            c.NoteDecision: sessions.note_decision,
            c.SetGoal: sessions.set_goal,
            c.NoteWish: sessions.note_wish,
            c.DropWish: sessions.drop_wish,
            c.SwitchSession: sessions.switch,
            c.UndoSwitch: sessions.undo,
            c.SetScheduling: sessions.set_scheduling,
            c.AnswerQuestion: questions.answer,
            c.DropQuestion: questions.drop,
            c.StartCall: calls.start,
            c.ApproveCall: calls.approve,
            c.FinishCall: calls.finish,
            c.LoseCall: calls.lose,
            c.PlaceResults: calls.place_results,
        }
    )
)


BRINGS_CONTENT: Final = frozenset(
    {
        c.AddMessages,
        c.PutContent,
        c.SetTitle,
        c.SetMetadata,
        c.KeepCanceled,
        c.Quarantine,
        c.StartRun,
        c.OpenResponse,
        c.KeepPartial,
        c.CommitAnswer,
        c.ConflictAnswer,
        c.FinishCall,
        c.ApproveCall,
        c.PlaceResults,
        c.JoinRun,
        c.AskAgain,
        c.NoteDecision,
        c.NoteWish,
        c.SetGoal,
        c.SwitchSession,
        c.UndoSwitch,
    }
)
"""What may not be done in a conversation that was erased: it would not be empty any more."""


def carry_out(tx: Transaction, command: c.Command[Any]) -> object:
    """Carry out one command, by whatever its type promises."""
    tx.touched.add(command.conversation)
    if type(command) in BRINGS_CONTENT:
        row = tx.find_conversation(command.conversation)
        if row is not None and row.erased_ms is not None:
            return Denied("conversation_erased")
    return FUNCTIONS[type(command)](tx, command)
