"""The conditions of the dispatch table, in SQL.

Each fragment is the twin of a predicate in `antiphon.core.dispatch`; a test compares the two
on crafted rows. Aliases: `a` attempt, `m` its manifest, `c` conversation, `r` run. What only
the caller can claim is a parameter (`:whole_answer`), so that no condition of a row is left
out of its statement. An unknown must never count as equal to anything
but where the table says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

from antiphon.core.dispatch import Condition, Effect, Row
from antiphon.core.ids import OperationId
from antiphon.stores.sql.rows import AttemptRow, ConversationRow

_CURRENT_EPOCH: Final = "coalesce((SELECT n.epoch FROM node AS n WHERE n.id = {node}), 0)"

CONDITIONS: dict[Condition, str] = {
    Condition.RUN_OPEN: "r.ended_ms IS NULL",
    # The newest operation is the only one that can be unfinished, its newest attempt likewise.
    Condition.RUN_IDLE: """
        NOT EXISTS (
          SELECT 1 FROM attempt AS x WHERE x.manifest = r.operation
          AND x.number = (SELECT max(y.number) FROM attempt AS y WHERE y.manifest = r.operation)
          AND x.state NOT IN ('COMMITTED', 'CANCELED', 'CLOSED'))
        AND NOT EXISTS (
          SELECT 1 FROM call AS x WHERE x.run = r.place AND x.ended_ms IS NULL)""",
    Condition.LINE_LEGAL: ":line_legal",
    Condition.REVISION: "c.revision = m.base_revision",
    Condition.CANCEL_GENERATION: "c.cancel_generation = m.base_cancel_generation",
    Condition.FENCE_MOVED: """
        (c.revision <> m.base_revision OR c.cancel_generation <> m.base_cancel_generation)""",
    Condition.NO_ACTIVE_OPERATION: "c.active_operation IS NULL",
    Condition.ACTIVE_OPERATION: "c.active_operation IS NOT DISTINCT FROM m.operation",
    Condition.CALLER_CURRENT: f"""
        (:my_epoch > 0 AND :my_epoch = {_CURRENT_EPOCH.format(node=":my_node")})""",
    Condition.GENERATION: "(a.generation > 0 AND a.generation = :my_generation)",
    Condition.OWNER: "(a.node = :my_node AND a.epoch = :my_epoch)",
    Condition.OWNER_OR_GONE: f"""
        ((a.node = :my_node AND a.epoch = :my_epoch AND a.generation = :my_generation)
         OR a.epoch <> {_CURRENT_EPOCH.format(node="a.node")}
         OR :now_ms >= a.deadline_ms)""",
    Condition.FIRST_SENDING: "a.sent_again = 0",
    Condition.SENT_AGAIN: "a.sent_again = 1",
    Condition.WHOLE_ANSWER: ":whole_answer",
    Condition.DEFINITE: ":definite",
    Condition.HANDLE: "a.handle IS NOT NULL",
    Condition.HONOURS_KEY: ":honours_key",
    Condition.BEFORE_DEADLINE: ":now_ms < a.deadline_ms",
    Condition.SAME_BYTES: "m.request_digest = :my_request_digest",
    Condition.PROOF: "CAST(:proof AS TEXT) IS NOT NULL",
    Condition.ATTEMPTS_LEFT: "a.number < :attempts_allowed",
    Condition.NAMES_RUN: "r.id = :names_run",
}

ATTEMPT_EFFECTS: Final[
    dict[Effect, Callable[[AttemptRow, ConversationRow, Mapping[str, Any]], dict[str, object]]]
] = {
    Effect.OPEN_GENERATION: lambda a, c, claim: {"generation": c.attempt_generation + 1},
    Effect.TAKE_OWNERSHIP: lambda a, c, claim: {
        "node": claim["my_node"],
        "epoch": claim["my_epoch"],
    },
    Effect.MARK_AGAIN: lambda a, c, claim: {"sent_again": 1},
    Effect.BIND_HANDLE: lambda a, c, claim: {"handle": claim["handle"]} if a.handle is None else {},
    Effect.RECORD_PROOF: lambda a, c, claim: {"proof": claim["proof"]},
}
"""What an effect sets in the attempt's own row, by what the caller claims."""

CONVERSATION_EFFECTS: Final[
    dict[Effect, Callable[[ConversationRow, OperationId], dict[str, object]]]
] = {
    Effect.TAKE_CONVERSATION: lambda c, mine: {"active_operation": mine},
    Effect.OPEN_GENERATION: lambda c, mine: {"attempt_generation": c.attempt_generation + 1},
    Effect.ADVANCE_REVISION: lambda c, mine: {"revision": c.revision + 1},
    Effect.RELEASE: lambda c, mine: (
        {"active_operation": None} if c.active_operation == mine else {}
    ),
}
"""What an effect sets in the conversation's row. The head needs more: see `answers.commit`."""


def where(conditions: Iterable[Condition]) -> str:
    """Return the SQL for all of `conditions` together."""
    return " AND ".join(CONDITIONS[condition] for condition in conditions) or "1 = 1"


_NEEDED: Final = {
    "m": ("manifest", "m.place = a.manifest"),
    "r": ("run", "r.place = m.run"),
    "c": ("conversation", "c.number = a.manifest >> 32"),
}


def _beside(conditions: Iterable[Condition]) -> str:
    """Return, as a condition of an attempt, what its neighbours' rows must say, if anything."""
    said = where(conditions)
    named = {alias for alias in _NEEDED if re.search(rf"\b{alias}\.", said)}
    if "r" in named:
        named.add("m")
    if not named:
        return said
    rows = [f"{table} AS {alias}" for alias, (table, _) in _NEEDED.items() if alias in named]
    joined = [condition for alias, (_, condition) in _NEEDED.items() if alias in named]
    return f"EXISTS (SELECT 1 FROM {', '.join(rows)} WHERE {' AND '.join([*joined, said])})"


_JOINED: Final = "m.place = a.manifest AND r.place = m.run AND c.number = m.place >> 32"


@cache
def update(row: Row, *columns: str) -> str:
    """Return the statement that moves an attempt by `row`, and by nothing else.

    It sets each of `columns` to its `:new_...`, and changes no row where a condition fails.
    """
    sets = [f"state = '{row.target}'", *(f"{column} = :new_{column}" for column in columns)]
    return f"""
        UPDATE attempt AS a SET {", ".join(sets)}
        WHERE a.manifest = :manifest AND a.number = :number AND a.state IN ({_sources(row)})
        AND {_beside(row.conditions)}"""


def insert_first(row: Row) -> str:
    """Return the statement that makes the first attempt of an operation, by `row`."""
    return f"""
        INSERT INTO attempt (manifest, number, purpose, state, prepared_ms)
        SELECT m.place, 1, m.purpose, '{row.target}', :now_ms
        FROM manifest AS m, run AS r, conversation AS c
        WHERE m.place = :manifest AND r.place = m.run AND c.number = m.place >> 32
        AND {where(row.conditions)}"""


def insert_next(row: Row) -> str:
    """Return the statement that adds the next attempt under the same manifest, by `row`."""
    return f"""
        INSERT INTO attempt (manifest, number, purpose, state, prepared_ms)
        SELECT a.manifest, a.number + 1, a.purpose, '{row.target}', :now_ms
        FROM attempt AS a, manifest AS m, run AS r, conversation AS c
        WHERE a.manifest = :manifest AND a.number = :number AND {_JOINED}
        AND a.state IN ({_sources(row)}) AND {where(row.conditions)}"""


def _sources(row: Row) -> str:
    return ", ".join(f"'{state}'" for state in sorted(filter(None, row.sources)))
