"""Rows that contradict each other: each rule is one question, asked in SQL.

A rule names what it finds by the id that it is about, and says in a sentence what is wrong. Those
that can be mended have a mending in `commands.repairs`, under the same code; it asks the rule
again before it changes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from antiphon.core.dispatch import ACTIVE
from antiphon.core.ids import ConversationId
from antiphon.stores.sql.statements import Parameters, Row

_ACTIVE: Final = ", ".join(f"'{state}'" for state in sorted(ACTIVE))
_NUMBER: Final = 4294967295
"""What of a place is the row's own number."""


class Answering(Protocol):
    """Whatever answers a question in SQL: a connection, or a transaction under way."""

    def all(self, sql: str, parameters: Parameters = ()) -> list[Row]:
        """Return every row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One contradiction: in which conversation, about what, and what is wrong."""

    conversation: ConversationId
    at: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A question whose answers are contradictions.

    Attributes:
        code: Stable word for programs.
        message: What is wrong; `{0}` is what a row says beside its conversation and its id.
        sql: Selects the conversation's id, the id that it is about, and one thing more. It ends
            in a condition, so that further ones can follow.
    """

    code: str
    message: str
    sql: str

    def find(
        self, db: Answering, conversation: ConversationId | None = None, at: str | None = None
    ) -> Iterator[Found]:
        """Yield every contradiction of this kind, or those about one thing."""
        only, values = "", list[object]()
        if conversation is not None:
            only, values = " AND c.id = ?", [conversation]
        for row in db.all(f"{self.sql}{only} ORDER BY 1, 2", values):
            if at is None or row[1] == at:
                yield Found(
                    conversation=row[0], at=str(row[1]), message=self.message.format(row[2])
                )


RULES: Final = (
    Rule(
        code="dangling_head",
        message="Its head {0} is not there.",
        sql="""SELECT c.id, c.id, c.head FROM conversation AS c WHERE c.head IS NOT NULL
        AND NOT EXISTS (
          SELECT 1 FROM message AS m WHERE m.place >> 32 = c.number AND m.id = c.head)""",
    ),
    Rule(
        code="dangling_slot",
        message="The run {0} holds its slot and is not open.",
        sql="""SELECT c.id, c.id, c.slot FROM conversation AS c WHERE c.slot IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM run AS r WHERE r.id = c.slot
          AND r.place >> 32 = c.number AND r.ended_ms IS NULL)""",
    ),
    Rule(
        code="dangling_operation",
        message="The operation {0} holds it and is not active.",
        sql=f"""SELECT c.id, c.id, c.active_operation FROM conversation AS c
        WHERE c.active_operation IS NOT NULL AND NOT EXISTS (
          SELECT 1 FROM manifest AS m JOIN attempt AS a ON a.manifest = m.place
          WHERE m.operation = c.active_operation AND m.place >> 32 = c.number
          AND a.state IN ({_ACTIVE}))""",
    ),
    Rule(
        code="active_after_end",
        message="It is {0}, and its run has ended.",
        sql=f"""SELECT c.id, m.operation, a.state FROM attempt AS a
        JOIN manifest AS m ON m.place = a.manifest JOIN run AS r ON r.place = m.run
        JOIN conversation AS c ON c.number = m.place >> 32
        WHERE a.purpose = 'turn' AND a.state IN ({_ACTIVE}) AND r.ended_ms IS NOT NULL""",
    ),
    Rule(
        code="unheld_operation",
        message="It is {0}, and its conversation does not know.",
        sql=f"""SELECT c.id, m.operation, a.state FROM attempt AS a
        JOIN manifest AS m ON m.place = a.manifest JOIN run AS r ON r.place = m.run
        JOIN conversation AS c ON c.number = m.place >> 32
        WHERE a.purpose = 'turn' AND a.state IN ({_ACTIVE}) AND r.ended_ms IS NULL
        AND c.active_operation IS DISTINCT FROM m.operation""",
    ),
    Rule(
        code="generation_behind",
        message="Generation {0} was given, and it counts less.",
        sql="""SELECT c.id, c.id, g.highest FROM conversation AS c JOIN (
          SELECT a.manifest >> 32 AS number, max(a.generation) AS highest
          FROM attempt AS a GROUP BY a.manifest >> 32) AS g ON g.number = c.number
        WHERE g.highest > c.attempt_generation""",
    ),
    Rule(
        code="call_after_end",
        message="The call is {0}, and its run has ended: nobody will ever close it.",
        sql="""SELECT c.id, l.call_id, l.state FROM call AS l JOIN run AS r ON r.place = l.run
        JOIN conversation AS c ON c.number = l.place >> 32
        WHERE l.ended_ms IS NULL AND r.ended_ms IS NOT NULL""",
    ),
    Rule(
        code="pending_after_end",
        message="The message is pending, and its run {0} has ended.",
        sql="""SELECT c.id, m.id, r.id FROM message AS m JOIN run AS r ON r.id = m.run
        JOIN conversation AS c ON c.number = m.place >> 32
        WHERE m.status = 'pending' AND r.ended_ms IS NOT NULL""",
    ),
    Rule(
        code="event_behind",
        message="Event {0} is stored, and it counts less.",
        sql=f"""SELECT c.id, c.id, e.highest FROM conversation AS c JOIN (
          SELECT place >> 32 AS number, max(place & {_NUMBER}) AS highest, count(place) AS stored
          FROM event GROUP BY place >> 32) AS e ON e.number = c.number
        WHERE e.highest > c.last_event AND e.stored = e.highest""",
    ),
    # What follows nobody can mend: what is missing was said once, and is known to nobody.
    Rule(
        code="event_gap",
        message="{0} were told, and not all of them are stored.",
        sql="""SELECT c.id, c.id, c.last_event FROM conversation AS c
        WHERE c.last_event > (
          SELECT count(e.place) FROM event AS e
          WHERE e.place BETWEEN c.number << 32 AND (c.number << 32) + 4294967295)""",
    ),
    Rule(
        code="answer_missing",
        message="The run {0} committed an answer for it that is not in the tree.",
        sql="""SELECT c.id, m.operation, r.id FROM attempt AS a
        JOIN manifest AS m ON m.place = a.manifest JOIN run AS r ON r.place = m.run
        JOIN conversation AS c ON c.number = m.place >> 32
        WHERE a.purpose = 'turn' AND a.state = 'COMMITTED' AND NOT EXISTS (
          SELECT 1 FROM message AS n WHERE n.place >> 32 = c.number
          AND n.base_revision = m.base_revision AND n.parent = m.base_leaf AND n.run = r.id)""",
    ),
    Rule(
        code="answer_unproven",
        message="It is canonical, and no dispatch of the run {0} came to it.",
        sql="""SELECT c.id, n.id, n.run FROM message AS n
        JOIN conversation AS c ON c.number = n.place >> 32
        WHERE n.base_revision IS NOT NULL AND NOT EXISTS (
          SELECT 1 FROM manifest AS m JOIN attempt AS a ON a.manifest = m.place
          WHERE m.place >> 32 = c.number AND m.base_revision = n.base_revision
          AND a.purpose = 'turn' AND a.state = 'COMMITTED')""",
    ),
    Rule(
        code="answers_miscounted",
        message="It is said to have committed {0} messages, and has another number.",
        sql="""SELECT c.id, r.id, r.committed FROM run AS r
        JOIN conversation AS c ON c.number = r.place >> 32
        WHERE r.committed <> (
          SELECT count(n.place) FROM message AS n WHERE n.place >> 32 = c.number
          AND n.run = r.id AND n.base_revision IS NOT NULL)""",
    ),
    Rule(
        code="success_without_answer",
        message="It ended in success and committed nothing.",
        sql="""SELECT c.id, r.id, r.status FROM run AS r
        JOIN conversation AS c ON c.number = r.place >> 32
        WHERE r.status = 'success' AND r.committed = 0""",
    ),
    Rule(
        code="session_missing",
        message="Its session {0} is not there.",
        sql="""SELECT c.id, c.id, c.session FROM conversation AS c WHERE NOT EXISTS (
          SELECT 1 FROM session AS s WHERE s.place = c.session AND s.active = 1)""",
    ),
    Rule(
        code="input_missing",
        message="The run was asked {0}, which is neither in the tree nor waits in it.",
        sql="""SELECT c.id, r.id, r.input FROM run AS r
        JOIN conversation AS c ON c.number = r.place >> 32
        WHERE r.input IS NOT NULL AND r.input_waiting IS NULL AND c.erased_ms IS NULL
        AND NOT EXISTS (
          SELECT 1 FROM message AS n WHERE n.place >> 32 = c.number AND n.id = r.input)""",
    ),
    Rule(
        code="orphan_response",
        message="Its run {0} is not there.",
        sql="""SELECT c.id, p.id, p.run FROM response AS p
        JOIN conversation AS c ON c.number = p.place >> 32
        WHERE NOT EXISTS (SELECT 1 FROM run AS r WHERE r.id = p.run)""",
    ),
)
"""Every rule, those that can be mended first and in the order in which mending is safe."""
