"""What belongs to no conversation: a function for each change and each question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from antiphon.core.answers.usage import Used
from antiphon.core.commands import NotePrefix
from antiphon.core.ids import ConversationId, Digest, MessageId, TenantId
from antiphon.core.traffic import standing as s
from antiphon.core.traffic.rollout import Difference, Kind, Rollout, Stage, Tally
from antiphon.stores.sql.packing import pack, unpack
from antiphon.stores.sql.statements import Statements
from antiphon.stores.sql.transaction import Transaction


def _spending(db: Statements, question: s.SpendingSince) -> s.Spending:
    row = db.one(
        """SELECT coalesce(sum(answers), 0), coalesce(sum(input_tokens), 0),
          coalesce(sum(output_tokens), 0), coalesce(sum(micros), 0)
        FROM spending WHERE key = ? AND day >= ?""",
        (question.key, question.day),
    )
    assert row is not None
    return s.Spending(
        answers=int(row[0]),
        input_tokens=int(row[1]),
        output_tokens=int(row[2]),
        micros=int(row[3]),
    )


def spend(tx: Transaction, spent: s.Spent, now_ms: int, took: Used) -> None:
    """Add what one answer cost to what its key has used that day."""
    tx.execute(
        """INSERT INTO spending (key, day, answers, input_tokens, output_tokens, micros)
        VALUES (?, ?, 1, ?, ?, ?) ON CONFLICT (key, day) DO UPDATE SET
          answers = spending.answers + 1,
          input_tokens = spending.input_tokens + excluded.input_tokens,
          output_tokens = spending.output_tokens + excluded.output_tokens,
          micros = spending.micros + excluded.micros""",
        (
            spent.key,
            s.day_of(now_ms),
            took.input_tokens,
            took.output_tokens,
            spent.micros,
        ),
    )


def _prefixes(
    db: Statements, question: s.Prefixes
) -> dict[Digest, tuple[ConversationId, MessageId]]:
    marks = ", ".join("?" * len(question.digests))
    rows = db.all(
        f"""SELECT digest, conversation, message FROM known_prefix
        WHERE tenant = ? AND digest IN ({marks})""",
        (question.tenant, *map(pack, question.digests)),
    )
    return {unpack(row[0]): (ConversationId(row[1]), MessageId(row[2])) for row in rows}


def _kept_unchanged(db: Statements, question: s.KeptUnchanged) -> list[ConversationId]:
    rows = db.all(
        """SELECT c.id FROM conversation AS c
        WHERE c.updated_ms < ? AND c.erased_ms IS NULL AND c.deleted = 0
          AND c.slot IS NULL AND c.active_operation IS NULL
          AND EXISTS (SELECT 1 FROM known_prefix AS k WHERE k.conversation = c.id)
          AND NOT EXISTS (
            SELECT 1 FROM run AS r
            WHERE r.place BETWEEN c.number << 32 AND (c.number << 32) + 4294967295
              AND r.ended_ms IS NULL)
        ORDER BY c.updated_ms, c.number LIMIT ?""",
        (question.before_ms, question.limit),
    )
    return [ConversationId(row[0]) for row in rows]


def note_prefix(tx: Transaction, command: NotePrefix) -> None:
    """Remember where a history stands."""
    c = tx.conversation(command.conversation)
    tx.execute(
        """INSERT INTO known_prefix (tenant, digest, conversation, message) VALUES (?, ?, ?, ?)
        ON CONFLICT (tenant, digest) DO UPDATE SET
          conversation = excluded.conversation, message = excluded.message""",
        (c.tenant, pack(command.digest), c.id, command.message),
    )


_ROLLOUT: Final = """
SELECT tenant, model, stage, share, adapter_version, updated_ms, changed_by FROM rollout
"""


def _rollouts(db: Statements, question: s.Rollouts) -> list[Rollout]:
    return [
        Rollout(
            tenant=TenantId(row[0]),
            model=row[1],
            stage=Stage(row[2]),
            share=row[3],
            adapter_version=row[4],
            updated_ms=row[5],
            by=row[6],
        )
        for row in db.all(_ROLLOUT + "ORDER BY tenant, model")
    ]


def _set_rollout(tx: Transaction, change: s.SetRollout) -> Rollout:
    one = change.rollout
    tx.execute(
        """INSERT INTO rollout
          (tenant, model, stage, share, adapter_version, updated_ms, changed_by)
        VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, model) DO UPDATE SET
          stage = excluded.stage, share = excluded.share,
          adapter_version = excluded.adapter_version, updated_ms = excluded.updated_ms,
          changed_by = excluded.changed_by""",
        (
            one.tenant,
            one.model,
            one.stage.value,
            one.share,
            one.adapter_version,
            one.updated_ms,
            one.by,
        ),
    )
    return one


def _differences(db: Statements, question: s.Differences) -> list[Difference]:
    return [
        Difference(
            kind=Kind(row[0]),
            cause=row[1],
            example=row[2],
            count=row[3],
            first_ms=row[4],
            last_ms=row[5],
        )
        for row in db.all(
            """SELECT kind, cause, example, count, first_ms, last_ms FROM shadow_difference
            WHERE tenant = ? AND model = ? ORDER BY count DESC, kind, cause""",
            (question.tenant, question.model),
        )
    ]


def _tallies(db: Statements, question: s.Tallies) -> list[Tally]:
    return [
        Tally(outcome=row[0], count=row[1])
        for row in db.all(
            """SELECT outcome, count FROM shadow_tally
            WHERE tenant = ? AND model = ? ORDER BY outcome""",
            (question.tenant, question.model),
        )
    ]


def _note(tx: Transaction, change: s.NoteShadow) -> None:
    tx.execute(
        """INSERT INTO shadow_tally (tenant, model, outcome, count) VALUES (?, ?, ?, 1)
        ON CONFLICT (tenant, model, outcome) DO UPDATE SET count = shadow_tally.count + 1""",
        (change.tenant, change.model, change.outcome),
    )
    for one in change.differences:
        tx.execute(
            """INSERT INTO shadow_difference
              (tenant, model, kind, cause, example, count, first_ms, last_ms)
            VALUES (?, ?, ?, ?, ?, 1, ?, ?)
            ON CONFLICT (tenant, model, kind, cause) DO UPDATE SET
              count = shadow_difference.count + 1, example = excluded.example,
              last_ms = excluded.last_ms""",
            (
                change.tenant,
                change.model,
                one.kind.value,
                one.cause,
                one.example,
                change.now_ms,
                change.now_ms,
            ),
        )


def _forget(tx: Transaction, change: s.ForgetShadow) -> None:
    where = (change.tenant, change.model)
    tx.execute("DELETE FROM shadow_difference WHERE tenant = ? AND model = ?", where)
    tx.execute("DELETE FROM shadow_tally WHERE tenant = ? AND model = ?", where)


CHANGES: Final[Mapping[type[s.Change[Any]], Callable[[Transaction, Any], Any]]] = MappingProxyType(
    {s.SetRollout: _set_rollout, s.NoteShadow: _note, s.ForgetShadow: _forget}
)
QUESTIONS: Final[Mapping[type[s.Question[Any]], Callable[[Statements, Any], Any]]] = (
    MappingProxyType(
        {
            s.SpendingSince: _spending,
            s.Prefixes: _prefixes,
            s.KeptUnchanged: _kept_unchanged,
            s.Rollouts: _rollouts,
            s.Differences: _differences,
            s.Tallies: _tallies,
        }
    )
)


def change(tx: Transaction, what: s.Change[Any]) -> object:
    """Carry out one change, by whatever its type promises."""
    return CHANGES[type(what)](tx, what)


def answer(db: Statements, question: s.Question[Any]) -> object:
    """Answer one question."""
    return QUESTIONS[type(question)](db, question)
