"""What a command's function works with: the writer's connection, inside a transaction.

Nothing here commits or rolls back; that is the writer's part. A function that answers
`Denied` has everything undone that it did, except what it passed to `note_late`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from antiphon.core.blocks import Message, Status
from antiphon.core.commands import Command, Fence, Quarantine
from antiphon.core.dispatch import FINAL
from antiphon.core.events import DurableEvent, encode_event
from antiphon.core.ids import (
    CallId,
    ConversationId,
    Digest,
    MessageId,
    NodeId,
    OperationId,
    RunId,
    SessionId,
    TenantId,
)
from antiphon.core.records import Call, Conversation, StoredEvent
from antiphon.errors import NotFound
from antiphon.stores.sql.call_rows import (
    CALL,
    CallRow,
    call_columns,
    changed_columns,
    read_call,
)
from antiphon.stores.sql.held import Holding
from antiphon.stores.sql.known import CONTENTS, NODES, Knowledge, Known, Node
from antiphon.stores.sql.message_rows import MESSAGE, message_record
from antiphon.stores.sql.packing import unpack
from antiphon.stores.sql.places import conversation_of, place, span
from antiphon.stores.sql.rows import (
    ATTEMPT,
    CONVERSATION,
    RUN,
    AttemptRow,
    ConversationRow,
    RunRow,
)
from antiphon.stores.sql.statements import Statements, update


class Settled(NamedTuple):
    """A pending message that has got its one status."""

    conversation: ConversationId
    message: MessageId
    status: Status
    error_code: str | None


class Erased(NamedTuple):
    """Messages of a conversation have lost what they said; None: files or texts are gone."""

    conversation: ConversationId | None
    at_once: bool
    """Whether the caller is promised that no trace is left in the file."""


class Outrun(Exception):
    """Another node was first with what this request was about to write: carry it out anew."""


class Transaction(Holding):
    """One unit of work on the writer's connection.

    Rows that are at work are read once and then known. What is changed in them is held: in rows
    of runs, calls and messages until any other statement is carried out, in that of a
    conversation, and its events, until something may compare them or the requests that made them
    end.
    """

    def __init__(
        self,
        connection: Statements,
        new_key: Callable[[], bytes],
        knowledge: Knowledge | None = None,
    ) -> None:
        super().__init__(connection)
        self._new_key = new_key
        self._knowledge = knowledge or Knowledge()
        self._used: dict[int, Known] = {}
        self.rewritten: set[int] = set()
        self._dirty: dict[int, dict[str, object]] = {}
        self._untold: list[tuple[int, int, bytes]] = []
        self.events: list[StoredEvent] = []
        self.late: list[Quarantine] = []
        self.touched: set[ConversationId] = set()
        self.messages: list[Message | Settled | Erased] = []

    # Requests.

    def flush(self) -> None:
        """Write all that is held."""
        for number in list(self._dirty):
            self.write_conversation(number)
        db = self._settled()
        if self._untold:
            db.insert("event", ("place", "at_ms", "data"), self._untold)
            self._untold.clear()

    def write_conversation(self, number: int) -> None:
        """Write what was changed in a conversation's row: something is about to compare it."""
        values = self._dirty.pop(number, None)
        if values:
            sql = update("conversation", "number", tuple(values))
            self._connection.many(sql, [(*values.values(), number)])
            self.rewritten.add(number)

    def undo(self) -> None:
        """Forget what was done since the last flush; the writer undoes it in the database.

        All that was learned is forgotten with it: what is as true as it was is read again.
        """
        for number in self._used:
            self._knowledge.forget(number)
        self.rewritten -= self._used.keys()
        self._used.clear()
        self._knowledge.keys.clear()
        self._knowledge.fence = None
        self._held.clear()
        self._dirty.clear()
        self._untold.clear()

    # Conversations.

    def conversation(self, conversation: ConversationId) -> ConversationRow:
        """Return the row that everything is compared with. Raises `NotFound`."""
        found = self.find_conversation(conversation)
        if found is None:
            raise NotFound("There is no such conversation.", at=conversation)
        return found

    def find_conversation(self, conversation: ConversationId) -> ConversationRow | None:
        """Return the conversation's row, or None where there is none."""
        known = self._knowledge.of(conversation)
        if known is not None:
            self._used[known.row.number] = known
            return known.row
        row = self.one(CONVERSATION + "WHERE c.id = ?", (conversation,))
        return None if row is None else self._learn(row).row

    def _known(self, number: int) -> Known:
        known = self._used.get(number) or self._knowledge.at(number)
        if known is None:
            row = self.one(CONVERSATION + "WHERE c.number = ?", (number,))
            assert row is not None
            return self._learn(row)
        self._used[number] = known
        return known

    def _learn(self, row: tuple[Any, ...]) -> Known:
        known = self._knowledge.learn(ConversationRow(*row))
        self._used[known.row.number] = known
        return known

    def add_conversation(self, row: ConversationRow) -> None:
        """Know a conversation that has just been inserted: nothing is in it but its session."""
        known = self._knowledge.born(row)
        self._used[row.number] = known
        self._dirty[row.number] = {"session": row.session}

    def row(self, number: int) -> ConversationRow:
        """Return a conversation's row as it stands now."""
        return self._known(number).row

    def session(self, c: ConversationRow, session: SessionId | None) -> int | None:
        """Return a session's place, or None where there is none; no name means the active one."""
        if session is None or session == c.session_id:
            return c.session
        row = self.one(
            "SELECT place FROM session WHERE place BETWEEN ? AND ? AND id = ?",
            (*span(c.number), session),
        )
        return None if row is None else int(row[0])

    def session_id(self, c: ConversationRow, session: int) -> SessionId:
        """Return the id of the session at this place."""
        if session == c.session:
            return c.session_id
        row = self.one("SELECT id FROM session WHERE place = ?", (session,))
        assert row is not None
        return SessionId(row[0])

    def activate(self, number: int, session: int, name: SessionId, head: MessageId | None) -> None:
        """Let another session be the conversation's active one, with its head."""
        self.change_conversation(number, session=session, head=head)
        known = self._known(number)
        known.row = replace(known.row, session_id=name)

    def change_conversation(self, number: int, **values: object) -> None:
        """Set columns of a conversation; written with its other changes."""
        known = self._known(number)
        known.row = replace(known.row, **values)
        self._dirty.setdefault(number, {}).update(values)

    def forget_conversation(self, number: int) -> None:
        """Forget a conversation that was taken away."""
        self._knowledge.forget(number)
        self._used.pop(number, None)
        self._dirty.pop(number, None)

    def deletions(self, number: int) -> frozenset[MessageId]:
        """Return what is deleted now."""
        known = self._known(number)
        if known.deletions is None:
            rows = self.all(
                """SELECT m.id FROM deletion AS d JOIN message AS m ON m.place = d.message
                WHERE d.message BETWEEN ? AND ?""",
                span(number),
            )
            known.deletions = frozenset(row[0] for row in rows)
        return known.deletions

    def delete(self, c: ConversationRow, message: MessageId, revision: int) -> bool:
        """Mark a message as deleted from `revision` on; False where it was already.

        Raises:
            NotFound: There is no such message here.
        """
        node = self.node(c.number, message)
        if node is None:
            raise NotFound("There is no such message in this conversation.", at=message)
        known, deleted = self._known(c.number), self.deletions(c.number)
        if message in deleted:
            return False
        self.execute(
            "INSERT INTO deletion (message, revision) VALUES (?, ?)", (node.place, revision)
        )
        known.deletions = deleted | {message}
        return True

    # Runs.

    def open_runs(self, c: ConversationRow) -> list[RunRow]:
        """Return the conversation's runs that have not ended, oldest first."""
        return list(self._open_runs(c.number).values())

    def _open_runs(self, number: int) -> dict[RunId, RunRow]:
        known = self._known(number)
        if known.runs is None:
            rows = self.all(
                f"SELECT {RUN} FROM run WHERE place BETWEEN ? AND ? AND ended_ms IS NULL "
                "ORDER BY place",
                span(number),
            )
            known.runs = {run.id: run for run in (RunRow(*row) for row in rows)}
        return known.runs

    def run(self, c: ConversationRow, run: RunId) -> RunRow:
        """Return a run of this conversation. Raises `NotFound`."""
        found = self._open_runs(c.number).get(run)
        if found is not None:
            return found
        row = self.one(f"SELECT {RUN} FROM run WHERE id = ?", (run,))
        if row is None or conversation_of(row[0]) != c.number:
            raise NotFound("There is no such run in this conversation.", at=run)
        return RunRow(*row)

    def withdrawn_run(self, c: ConversationRow, message: MessageId) -> RunRow | None:
        """Return the run that ended before its input, this message, had a place in the tree."""
        row = self.one(
            f"""SELECT {RUN} FROM run WHERE input = ? AND input_waiting IS NOT NULL
            AND ended_ms IS NOT NULL AND place BETWEEN ? AND ?""",
            (message, *span(c.number)),
        )
        return None if row is None else RunRow(*row)

    def run_at(self, place: int) -> RunRow:
        """Return the run that stands at this place."""
        for run in self._open_runs(conversation_of(place)).values():
            if run.place == place:
                return run
        row = self.one(f"SELECT {RUN} FROM run WHERE place = ?", (place,))
        assert row is not None
        return RunRow(*row)

    def add_run(self, run: RunRow, input_waiting: bytes | None) -> None:
        """Insert a run that has just been started."""
        values = {**asdict(run), "input_waiting": input_waiting}
        del values["operation_id"]
        self._held.insert("run", run.place, values)
        known = self._known(conversation_of(run.place))
        known.inputs[run.place] = input_waiting
        known.calls[run.id] = {}
        self._open_runs(known.row.number)[run.id] = run

    def input_waiting(self, run: RunRow) -> bytes | None:
        """Return the input that waits in a run for its place in the tree, or None."""
        inputs = self._known(conversation_of(run.place)).inputs
        if run.place in inputs:
            return inputs[run.place]
        row = self.one("SELECT input_waiting FROM run WHERE place = ?", (run.place,))
        waiting = None if row is None else row[0]
        if run.open:
            inputs[run.place] = waiting
        return waiting

    def change_run(self, run: RunRow, *, placed: bool = False, **values: object) -> RunRow:
        """Set columns of a run and return it as it stands then.

        Where it is `placed`, its input waits in it no longer.
        """
        run = replace(run, **values)
        values.pop("operation_id", None)
        if placed:
            values["input_waiting"] = None
        self._held.change("run", run.place, values)
        open_runs = self._open_runs(conversation_of(run.place))
        known = self._known(conversation_of(run.place))
        if placed:
            known.inputs[run.place] = None
        if run.open:
            open_runs[run.id] = run
        else:
            open_runs.pop(run.id, None)
            known.calls.pop(run.id, None)
            known.inputs.pop(run.place, None)
        return run

    # Attempts.

    def add_manifest(self, place: int, values: dict[str, object]) -> None:
        """Insert a manifest, of which these are the columns."""
        self._held.insert("manifest", place, values)

    def attempt(self, conversation: ConversationId, operation: OperationId) -> AttemptRow:
        """Return the newest attempt of an operation. Raises `NotFound`."""
        known = self._knowledge.of(conversation)
        if known is not None and operation in known.attempts:
            self._used[known.row.number] = known
            return known.attempts[operation]
        row = self.one(
            ATTEMPT + "WHERE m.operation = ? AND c.id = ? ORDER BY a.number DESC LIMIT 1",
            (operation, conversation),
        )
        if row is None:
            raise NotFound("There is no such operation in this conversation.", at=operation)
        return self.keep_attempt(AttemptRow(*row))

    def newest_attempt(self, manifest: int | None) -> AttemptRow | None:
        """Return the newest attempt under the manifest at this place, or None."""
        if manifest is None:
            return None
        for attempt in self._known(conversation_of(manifest)).attempts.values():
            if attempt.manifest == manifest:
                return attempt
        row = self.one(ATTEMPT + "WHERE a.manifest = ? ORDER BY a.number DESC LIMIT 1", (manifest,))
        return None if row is None else self.keep_attempt(AttemptRow(*row))

    def questions(self, run: RunRow) -> list[AttemptRow]:
        """Return the attempts of questions beside the turn that are still asked for this run."""
        rows = self.all(
            f"""{ATTEMPT} WHERE a.manifest BETWEEN ? AND ? AND a.purpose <> 'turn'
            AND a.state NOT IN ('COMMITTED', 'CANCELED', 'CLOSED') AND m.run = ?""",
            (*span(conversation_of(run.place)), run.place),
        )
        return [self.keep_attempt(AttemptRow(*row)) for row in rows]

    def keep_attempt(self, attempt: AttemptRow) -> AttemptRow:
        """Know an attempt as it has just been read or written, while it is not finished."""
        attempts = self._known(conversation_of(attempt.manifest)).attempts
        if attempt.state in FINAL:
            attempts.pop(attempt.operation, None)
        else:
            attempts[attempt.operation] = attempt
        return attempt

    # The ledger.

    def calls_of_run(self, c: ConversationRow, run: RunRow) -> list[CallRow]:
        """Return the run's ledger rows, oldest first."""
        return list(self._calls(c, run).values())

    def _calls(self, c: ConversationRow, run: RunRow) -> dict[CallId, CallRow]:
        known = self._known(c.number)
        calls = known.calls.get(run.id)
        if calls is None:
            rows = self.all(f"{CALL} WHERE l.run = ? ORDER BY l.place", (run.place,))
            calls = {row.call.call_id: row for row in (read_call(c.id, run.id, r) for r in rows)}
            if run.open:
                known.calls[run.id] = calls
        return calls

    def call(self, c: ConversationRow, run: RunRow, call_id: CallId) -> CallRow:
        """Return a row of the ledger. Raises `NotFound`."""
        found = self._calls(c, run).get(call_id)
        if found is None:
            raise NotFound("There is no such call in this run.", at=call_id)
        return found

    def add_call(self, run: int, message: int, row: CallRow) -> None:
        """Insert a ledger row for a call of the message at this place."""
        self._held.insert("call", row.place, call_columns(row, run, message))
        known = self._known(conversation_of(row.place)).calls
        if row.call.run in known:
            known[row.call.run][row.call.call_id] = row

    def change_call(self, row: CallRow, **values: object) -> Call:
        """Change what a ledger row says, and return that."""
        self._held.change("call", row.place, changed_columns(values))
        new = CallRow(row.place, replace(row.call, **values))
        known = self._known(conversation_of(row.place)).calls
        if new.call.run in known:
            known[new.call.run][new.call.call_id] = new
        return new.call

    # Messages.

    def node(self, number: int, message: MessageId | None) -> Node | None:
        """Return where a message stands, or None where there is none."""
        if message is None:
            return None
        known = self._known(number)
        node = known.nodes.get(message)
        if node is None:
            row = self.one(
                "SELECT place, depth, path_digest, session FROM message "
                "WHERE place >> 32 = ? AND id = ?",
                (number, message),
            )
            if row is not None:
                node = Node(row[0], row[1], unpack(row[2]), row[3])
                self.keep_node(number, message, node)
        return node

    def keep_node(self, number: int, message: MessageId, node: Node) -> Node:
        """Know where a message stands."""
        nodes = self._known(number).nodes
        nodes[message] = node
        if len(nodes) > NODES:
            nodes.popitem(last=False)
        return node

    def add_message(
        self, number: int, message: MessageId, node: Node, values: dict[str, object]
    ) -> None:
        """Insert a message, of which these are the columns."""
        self._held.insert("message", node.place, values)
        self.keep_node(number, message, node)

    def message_at(self, place: int) -> MessageId:
        """Return the id of the message at this place."""
        for message, node in self._known(conversation_of(place)).nodes.items():
            if node.place == place:
                return message
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

    def is_new(self, c: ConversationRow, message: MessageId) -> bool:
        """Whether there is no message of this id here yet, as most often when one is brought."""
        seen = "SELECT 1 FROM message WHERE place >> 32 = ? AND id = ?"
        return self.absent(seen, (c.number, message))

    def message_digest(self, c: ConversationRow, message: MessageId) -> Digest:
        """Return the digest that a stored message was inserted with."""
        row = self.one(
            "SELECT digest FROM message WHERE place >> 32 = ? AND id = ?", (c.number, message)
        )
        assert row is not None
        return unpack(row[0])

    def next_place(self, table: str, number: int) -> int:
        """Return the key of the next row of this conversation in `table`, which is taken then."""
        last = self._known(number).last
        if table not in last:
            first, end = span(number)
            row = self.one(
                f"SELECT place FROM {table} WHERE place BETWEEN ? AND ? "
                "ORDER BY place DESC LIMIT 1",
                (first, end),
            )
            last[table] = first if row is None else int(row[0])
        last[table] += 1
        return last[table]

    # Tenants and nodes.

    def tenant_key(self, tenant: TenantId) -> bytes:
        """Return the tenant's digest key, made at first use."""
        key = self._knowledge.keys.get(tenant)
        if key is None:
            row = self.one("SELECT digest_key FROM tenant WHERE id = ?", (tenant,))
            if row is None:
                # Another node may be first: then its key is the tenant's.
                self.execute(
                    "INSERT INTO tenant (id, digest_key) VALUES (?, ?) ON CONFLICT DO NOTHING",
                    (tenant, self._new_key()),
                )
                row = self.one("SELECT digest_key FROM tenant WHERE id = ?", (tenant,))
                assert row is not None
            key = bytes(row[0])
            self._knowledge.keys[tenant] = key
        return key

    def join(self, node: NodeId, address: str | None, now_ms: int) -> Fence:
        """Register a process as `node` under a new epoch; older epochs of it are stale."""
        row = self.one(
            """INSERT INTO node (id, epoch, address, joined_ms) VALUES (?, 1, ?, ?)
            ON CONFLICT (id) DO UPDATE SET epoch = node.epoch + 1, address = excluded.address,
              joined_ms = excluded.joined_ms RETURNING epoch""",
            (node, address, now_ms),
        )
        assert row is not None
        fence = self._knowledge.fence = Fence(node=node, epoch=row[0])
        return fence

    def contents(self, number: int) -> set[Digest]:
        """Return what content a conversation is known to need and to have stored; add to it."""
        contents = self._known(number).contents
        if len(contents) >= CONTENTS:
            contents.clear()
        return contents

    def current(self, fence: Fence) -> bool:
        """Whether this node still works under this epoch."""
        if fence == self._knowledge.fence:
            return True
        row = self.one("SELECT epoch FROM node WHERE id = ?", (fence.node,))
        return row is not None and row[0] == fence.epoch > 0

    def conversation_record(self, conversation: ConversationId) -> Conversation:
        """Return the conversation as it stands now."""
        c = self.conversation(conversation)
        return c.record(self.deletions(c.number))

    # Events and quarantine.

    def tell(self, command: Command[Any], number: int, *events: DurableEvent) -> int:
        """Number the events of a command and return the last number.

        Readers hear of them once they are durable.
        """
        seq = self.row(number).last_event
        for event in events:
            seq += 1
            data = encode_event(event)
            self._untold.append((place(number, seq), command.now_ms, data))
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
            self.change_conversation(number, last_event=seq)
        return seq

    def put_aside(self, command: Quarantine) -> None:
        """Write what came too late to the quarantine; nothing of it where all is erased.

        A command that is tried with others, and then apart, comes here twice and is kept once.
        """
        c = self.conversation(command.conversation)
        if c.erased_ms is not None:
            return
        number = c.number
        known = self.one(
            """SELECT 1 FROM quarantine WHERE place BETWEEN ? AND ? AND at_ms = ? AND reason = ?
            AND operation IS NOT DISTINCT FROM ? AND data = ?""",
            (*span(number), command.now_ms, command.reason, command.operation, command.data),
        )
        if known is not None:
            return
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
