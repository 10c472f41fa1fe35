"""What a command's function works with: the writer's connection, inside one savepoint.

Nothing here commits or rolls back; that is the writer's part. A function that answers
`Denied` has everything undone that it did, except what it passed to `note_late`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from antiphon.core.blocks import Message, Status
from antiphon.core.commands import Command, Fence, Quarantine
from antiphon.core.events import DurableEvent, encode_event
from antiphon.core.ids import (
    CallId,
    ConversationId,
    MessageId,
    OperationId,
    RunId,
    SessionId,
    TenantId,
)
from antiphon.core.records import Conversation, StoredEvent
from antiphon.errors import NotFound
from antiphon.stores.sqlite.places import conversation_of, place, span
from antiphon.stores.sqlite.rows import (
    ATTEMPT,
    CALL,
    CONVERSATION,
    MESSAGE,
    RUN,
    AttemptRow,
    CallRow,
    ConversationRow,
    RunRow,
    message_record,
)

Parameters: TypeAlias = Sequence[object] | Mapping[str, object]


class Settled(NamedTuple):
    """A pending message that has got its one status."""

    conversation: ConversationId
    message: MessageId
    status: Status
    error_code: str | None


class Transaction:
    """One unit of work on the writer's connection."""

    def __init__(self, connection: sqlite3.Connection, new_key: Callable[[], bytes]) -> None:
        self._connection = connection
        self._new_key = new_key
        self._keys: dict[TenantId, bytes] = {}
        self.events: list[StoredEvent] = []
        self.late: list[Quarantine] = []
        self.touched: set[ConversationId] = set()
        self.messages: list[Message | Settled] = []

    # Statements.

    def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Carry out a statement and return how many rows it changed."""
        return self._connection.execute(sql, parameters).rowcount

    def one(self, sql: str, parameters: Parameters = ()) -> tuple[Any, ...] | None:
        """Return the first row, or None."""
        row: tuple[Any, ...] | None = self._connection.execute(sql, parameters).fetchone()
        return row

    def all(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Return every row."""
        return self._connection.execute(sql, parameters).fetchall()

    # Rows.

    def conversation(self, conversation: ConversationId) -> ConversationRow:
        """Return the row that everything is compared with. Raises `NotFound`."""
        found = self.find_conversation(conversation)
        if found is None:
            raise NotFound("There is no such conversation.", at=conversation)
        return found

    def find_conversation(self, conversation: ConversationId) -> ConversationRow | None:
        """Return the conversation's row, or None where there is none."""
        row = self.one(CONVERSATION + "WHERE c.id = ?", (conversation,))
        return None if row is None else ConversationRow._make(row)

    def run(self, c: ConversationRow, run: RunId) -> RunRow:
        """Return a run of this conversation. Raises `NotFound`."""
        row = self.one(f"SELECT {RUN} FROM run WHERE id = ?", (run,))
        if row is None or conversation_of(row[0]) != c.number:
            raise NotFound("There is no such run in this conversation.", at=run)
        return RunRow._make(row)

    def run_at(self, place: int) -> RunRow:
        """Return the run that stands at this place."""
        row = self.one(f"SELECT {RUN} FROM run WHERE place = ?", (place,))
        assert row is not None
        return RunRow._make(row)

    def change_run(self, run: RunRow, sets: str, parameters: Sequence[object]) -> RunRow:
        """Set columns of a run and return it as it stands then."""
        row = self.one(
            f"UPDATE run SET {sets} WHERE place = ? RETURNING {RUN}", (*parameters, run.place)
        )
        assert row is not None
        return RunRow._make(row)

    def attempt(self, conversation: ConversationId, operation: OperationId) -> AttemptRow:
        """Return the newest attempt of an operation. Raises `NotFound`."""
        row = self.one(
            ATTEMPT + "WHERE m.operation = ? AND c.id = ? ORDER BY a.number DESC LIMIT 1",
            (operation, conversation),
        )
        if row is None:
            raise NotFound("There is no such operation in this conversation.", at=operation)
        return AttemptRow._make(row)

    def newest_attempt(self, manifest: int | None) -> AttemptRow | None:
        """Return the newest attempt under the manifest at this place, or None."""
        row = self.one(ATTEMPT + "WHERE a.manifest = ? ORDER BY a.number DESC LIMIT 1", (manifest,))
        return None if row is None else AttemptRow._make(row)

    def call(self, c: ConversationRow, run: RunRow, call_id: CallId) -> CallRow:
        """Return a row of the ledger. Raises `NotFound`."""
        row = self.one(f"{CALL} WHERE l.run = ? AND l.call_id = ?", (run.place, call_id))
        if row is None:
            raise NotFound("There is no such call in this run.", at=call_id)
        return CallRow(c.id, run.id, *row)

    def calls_of_run(self, c: ConversationRow, run: RunRow) -> list[CallRow]:
        """Return the run's ledger rows, oldest first."""
        rows = self.all(f"{CALL} WHERE l.run = ? ORDER BY l.place", (run.place,))
        return [CallRow(c.id, run.id, *row) for row in rows]

    def open_runs(self, c: ConversationRow) -> list[RunRow]:
        """Return the conversation's runs that have not ended, oldest first."""
        rows = self.all(
            f"SELECT {RUN} FROM run WHERE place BETWEEN ? AND ? AND ended_ms IS NULL "
            "ORDER BY place",
            span(c.number),
        )
        return [RunRow._make(row) for row in rows]

    def message_place(self, number: int, message: MessageId | None) -> int | None:
        """Return where a message stands, or None where there is none."""
        row = self.one(
            "SELECT place FROM message WHERE place >> 32 = ? AND id = ?", (number, message)
        )
        return None if row is None else int(row[0])

    def message_at(self, place: int) -> MessageId:
        """Return the id of the message at this place."""
        row = self.one("SELECT id FROM message WHERE place = ?", (place,))
        assert row is not None
        return MessageId(row[0])

    def message(self, c: ConversationRow, message: MessageId) -> Message | None:
        """Return a message with its parent's id, or None."""
        row = self.one(
            f"""{MESSAGE}, p.id, s.id FROM message AS m
            JOIN session AS s ON s.place = m.session
            LEFT JOIN message AS p ON p.place = m.parent
            WHERE m.place >> 32 = ? AND m.id = ?""",
            (c.number, message),
        )
        if row is None:
            return None
        *columns, parent, session = row
        return message_record(tuple(columns), c.id, parent, {columns[5]: SessionId(session)})

    def next_place(self, table: str, number: int) -> int:
        """Return the key of the next row of this conversation in `table`."""
        first, last = span(number)
        row = self.one(
            f"SELECT place FROM {table} WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1",
            (first, last),
        )
        return (first if row is None else int(row[0])) + 1

    def tenant_key(self, tenant: TenantId) -> bytes:
        """Return the tenant's digest key, made at first use."""
        key = self._keys.get(tenant)
        if key is None:
            row = self.one("SELECT digest_key FROM tenant WHERE id = ?", (tenant,))
            key = self._new_key() if row is None else bytes(row[0])
            if row is None:
                self.execute("INSERT INTO tenant (id, digest_key) VALUES (?, ?)", (tenant, key))
            self._keys[tenant] = key
        return key

    def forget(self) -> None:
        """Drop what was learned in a savepoint that is being undone."""
        self._keys.clear()

    def current(self, fence: Fence) -> bool:
        """Whether this node still works under this epoch."""
        row = self.one("SELECT epoch FROM node WHERE id = ?", (fence.node,))
        return row is not None and row[0] == fence.epoch > 0

    # Answers.

    def conversation_record(self, conversation: ConversationId) -> Conversation:
        """Return the conversation as it stands now."""
        c = self.conversation(conversation)
        return c.record(self.deletions(c.number))

    def deletions(self, number: int) -> frozenset[MessageId]:
        """Return what is deleted now."""
        rows = self.all(
            """SELECT m.id FROM deletion AS d JOIN message AS m ON m.place = d.message
            WHERE d.message BETWEEN ? AND ?""",
            span(number),
        )
        return frozenset(row[0] for row in rows)

    # Events and quarantine.

    def tell(self, command: Command[Any], number: int, *events: DurableEvent) -> int:
        """Number the events of a command, write them and return the last number.

        Readers hear of them once they are durable.
        """
        row = self.one(
            "UPDATE conversation SET last_event = last_event + ? WHERE number = ? "
            "RETURNING last_event",
            (len(events), number),
        )
        assert row is not None
        seq = int(row[0]) - len(events)
        values: list[object] = []
        for event in events:
            seq += 1
            data = encode_event(event)
            values += (place(number, seq), command.now_ms, data)
            self.events.append(
                StoredEvent(
                    conversation=command.conversation,
                    seq=seq,
                    at_ms=command.now_ms,
                    run=getattr(event, "run", None),
                    data=msgspec.Raw(data),
                )
            )
        if events:
            rows = ", ".join(["(?, ?, ?)"] * len(events))
            self.execute(f"INSERT INTO event (place, at_ms, data) VALUES {rows}", values)
        return seq

    def put_aside(self, command: Quarantine) -> None:
        """Write what came too late to the quarantine."""
        number = self.conversation(command.conversation).number
        self.execute(
            "INSERT INTO quarantine (place, operation, generation, reason, data, at_ms) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (
                self.next_place("quarantine", number),
                command.operation,
                command.generation,
                command.reason,
                command.data,
                command.now_ms,
            ),
        )

    def note_late(self, command: Quarantine) -> None:
        """Put this aside even though the command that brought it is denied."""
        self.late.append(command)
