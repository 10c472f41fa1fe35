"""Files, what is remembered, and instructions: rows of tenants, so no commands of conversations.

But for a file that comes with a message: it is given in the transaction that takes the message in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from antiphon.core.blocks import Trust
from antiphon.core.commands import GiveFile
from antiphon.core.ids import ConversationId, TenantId
from antiphon.core.knowledge.kept import File, Instructions, NewFile, Remembered, RememberedKind
from antiphon.core.knowledge.passages import Piece
from antiphon.core.knowledge.ranking import Index, Postings, decode_postings, encode_postings
from antiphon.errors import Conflict, NotFound
from antiphon.stores.sql.packing import pack, unpack
from antiphon.stores.sql.rows import ConversationRow
from antiphon.stores.sql.statements import Statements
from antiphon.stores.sql.transaction import Erased, Transaction

T = TypeVar("T")

EVERYWHERE: Final = 0
"""Stands for all conversations of a tenant."""

LENT: Final = 0
"""Stands in place of the time at which a file was given, where it was only lent."""

GONE: Final = Erased(None, at_once=False)
"""What was taken away leaves the file as well, soon."""

ASKED_AT_ONCE: Final = 500
REMEMBERED: Final = 4096

_FILE: Final = """
SELECT f.id, f.tenant, f.name, f.media_type, f.purpose, f.bytes, f.encoding, f.evidence, f.digest,
  f.created_ms, f.passages
FROM file AS f
"""
_REMEMBERED: Final = """
SELECT r.key, r.text, r.kind, c.id, r.trust, r.priority, r.required, r.updated_ms
FROM remembered AS r LEFT JOIN conversation AS c ON c.number = r.conversation
"""
_INSTRUCTIONS: Final = "SELECT name, version, text, owner, created_ms FROM instructions "


class SqlKnowledge:
    """`antiphon.stores.base.Knowledge` on any database.

    What every message asks is answered from memory as long as nothing was changed here.

    Args:
        read: Answers a question on one snapshot.
        write: Carries out a piece of work in one transaction, durable when it returns; behind it
            stand the conversations that the work is about.
        alone: Whether nobody else changes this database, so that memory may be believed.
    """

    def __init__(
        self,
        read: Callable[[Callable[[Statements], Any]], Awaitable[Any]],
        write: Callable[..., Awaitable[Any]],
        *,
        alone: bool,
    ) -> None:
        self._read = read
        self._write = write
        self._alone = alone
        self._changes = 0
        self._known: dict[object, Any] = {}

    async def _asked(self, question: Callable[[Statements], T]) -> T:
        answer: T = await self._read(question)
        return answer

    async def _done(
        self, work: Callable[[Transaction], T], about: ConversationId | None = None
    ) -> T:
        try:
            done: T = await (self._write(work) if about is None else self._write(work, about))
        finally:
            self.changed()
        return done

    def changed(self) -> None:
        """Ask the database again: something was changed, or may have been."""
        self._changes += 1
        self._known.clear()

    async def _remembering(self, at: object, question: Callable[[Statements], list[T]]) -> list[T]:
        """Return the answer to a question that is asked for every message."""
        known: list[T] | None = self._known.get(at)
        if known is not None:
            return known
        changes = self._changes
        answer = await self._asked(question)
        if self._alone and changes == self._changes:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[at] = answer
        return answer

    async def _none_in(self, table: str) -> bool:
        """Return whether there is nothing at all in `table`, where that is known without asking.

        Most databases hold no knowledge, and each message of each conversation asks for it.
        """
        if not self._alone:
            return False
        sql = f"SELECT 1 FROM {table} LIMIT 1"
        return not await self._remembering(("any", table), lambda db: db.all(sql, ()))

    # Files.

    async def add_file(self, new: NewFile, given_to: ConversationId | None) -> File:
        """Keep a file with its passages and their index, and give it to a conversation."""

        def work(tx: Transaction) -> File:
            _add_file(tx, new)
            if given_to is not None:
                _give(tx, new.file, given_to, new.file.created_ms)
            return new.file

        return await self._done(work, given_to)

    async def give_file(
        self, tenant: TenantId, file: str, conversation: ConversationId, now_ms: int
    ) -> File:
        """Let a conversation's questions be looked up in a file; again changes nothing."""

        def work(tx: Transaction) -> File:
            found = _file(tx, tenant, file)
            _give(tx, found, conversation, now_ms)
            return found

        return await self._done(work, conversation)

    async def take_file(self, tenant: TenantId, file: str, conversation: ConversationId) -> File:
        """Look nothing more up in a file for a conversation; the file stays."""

        def work(tx: Transaction) -> File:
            found = _file(tx, tenant, file)
            c = _conversation(tx, tenant, conversation)
            tx.execute("DELETE FROM file_use WHERE conversation = ? AND file = ?", (c.number, file))
            return found

        return await self._done(work, conversation)

    async def delete_file(self, tenant: TenantId, file: str) -> File:
        """Take a file away for good, and every use of it. Raises `NotFound`."""

        def work(tx: Transaction) -> File:
            found = _file(tx, tenant, file)
            drop_files(tx, [file])
            return found

        return await self._done(work)

    async def delete_all(self, tenant: TenantId) -> int:
        """Take away all that a tenant keeps here, and return how many files that was."""

        def work(tx: Transaction) -> int:
            files = [row[0] for row in tx.all("SELECT id FROM file WHERE tenant = ?", (tenant,))]
            drop_files(tx, files)
            for table in ("remembered", "instructions"):
                tx.execute(f"DELETE FROM {table} WHERE tenant = ?", (tenant,))
            tx.messages.append(GONE)
            return len(files)

        return await self._done(work)

    async def file(self, tenant: TenantId, file: str) -> File:
        """Return what is known of a file. Raises `NotFound`."""
        return await self._asked(lambda db: _file(db, tenant, file))

    async def file_data(self, tenant: TenantId, file: str) -> bytes:
        """Return a file's bytes as they came. Raises `NotFound`."""

        def question(db: Statements) -> bytes:
            _file(db, tenant, file)
            row = db.one("SELECT data FROM file_data WHERE file = ?", (file,))
            assert row is not None
            return bytes(row[0])

        return await self._asked(question)

    async def files(
        self, tenant: TenantId, *, after: str | None, limit: int, newest_first: bool
    ) -> list[File]:
        """Return a tenant's files in the order they came, or the other way round."""
        order, than = ("DESC", "<") if newest_first else ("ASC", ">")
        where = "WHERE f.tenant = ?" + (f" AND f.id {than} ?" if after is not None else "")
        given = (tenant,) if after is None else (tenant, after)
        sql = f"{_FILE}{where} ORDER BY f.id {order} LIMIT ?"
        return await self._asked(lambda db: [_file_of(row) for row in db.all(sql, (*given, limit))])

    async def files_of(self, conversation: ConversationId) -> list[File]:
        """Return the files that a conversation's questions are looked up in, as they were given."""
        if await self._none_in("file_use"):
            return []
        sql = f"""{_FILE} JOIN file_use AS u ON u.file = f.id
          JOIN conversation AS c ON c.number = u.conversation
          WHERE c.id = ? ORDER BY u.given_ms, f.id"""
        return await self._remembering(
            ("files", conversation),
            lambda db: [_file_of(row) for row in db.all(sql, (conversation,))],
        )

    async def index(self, files: Sequence[str], terms: Sequence[str]) -> dict[str, Index]:
        """Return the part of each file's index that these terms need."""

        def question(db: Statements) -> dict[str, Index]:
            found: dict[str, Index] = {}
            for file in files:
                row = db.one("SELECT lengths FROM file WHERE id = ?", (file,))
                if row is not None:
                    found[file] = Index(decode_postings(row[0]), _postings(db, file, terms))
            return found

        return await self._asked(question)

    async def passages(self, wanted: Iterable[tuple[str, int]]) -> list[Piece | None]:
        """Return passages by file and number, in this order; None for those that are gone."""
        asked = list(wanted)

        def question(db: Statements) -> list[Piece | None]:
            sql = "SELECT heading, text FROM passage WHERE file = ? AND number = ?"
            rows = (db.one(sql, at) for at in asked)
            return [None if row is None else Piece(*row) for row in rows]

        return await self._asked(question)

    # What is remembered.

    async def remember(self, tenant: TenantId, one: Remembered) -> Remembered:
        """Keep a text under its key, in place of what was there."""

        def work(tx: Transaction) -> Remembered:
            number = _scope(tx, tenant, one.conversation)
            tx.execute(
                """INSERT INTO remembered
                  (tenant, conversation, kind, key, text, trust, priority, required, updated_ms)
                VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
                ON CONFLICT (tenant, conversation, kind, key) DO UPDATE SET
                  text = excluded.text, trust = excluded.trust, priority = excluded.priority,
                  required = excluded.required, updated_ms = excluded.updated_ms""",
                (
                    tenant,
                    number,
                    one.kind,
                    one.key,
                    one.text,
                    one.trust,
                    one.priority,
                    int(one.required),
                    one.updated_ms,
                ),
            )
            return one

        return await self._done(work, one.conversation)

    async def forget(
        self,
        tenant: TenantId,
        kind: RememberedKind,
        key: str,
        conversation: ConversationId | None,
    ) -> None:
        """Take a text away. Raises `NotFound`."""

        def work(tx: Transaction) -> None:
            number = _scope(tx, tenant, conversation)
            where = "tenant = ? AND conversation = ? AND kind = ? AND key = ?"
            if not tx.changed(f"DELETE FROM remembered WHERE {where}", (tenant, number, kind, key)):
                raise NotFound("Nothing is kept under this key.", at=key)
            tx.messages.append(GONE)

        await self._done(work, conversation)

    async def remembered(
        self, tenant: TenantId, conversation: ConversationId | None, *, only: bool = False
    ) -> list[Remembered]:
        """Return what is kept for a tenant and one of its conversations, or for the one `only`."""

        def question(db: Statements) -> list[Remembered]:
            own = EVERYWHERE
            if conversation is not None:
                row = db.one("SELECT number FROM conversation WHERE id = ?", (conversation,))
                own = -1 if row is None else row[0]
            other = own if only else EVERYWHERE
            where = "WHERE r.tenant = ? AND r.conversation IN (?, ?) "
            order = "ORDER BY r.conversation, r.kind, r.key"
            return [_kept(row) for row in db.all(_REMEMBERED + where + order, (tenant, own, other))]

        if await self._none_in("remembered"):
            return []
        return await self._remembering(("remembered", tenant, conversation, only), question)

    # Instructions.

    async def write_instructions(
        self, tenant: TenantId, name: str, text: str, owner: str, now_ms: int
    ) -> Instructions:
        """Write the next version; the same text as the newest one's is that version again.

        Raises:
            Conflict: `not_the_owner`: somebody else's are called that.
        """

        def work(tx: Transaction) -> Instructions:
            newest = _instructions(tx, tenant, name)
            if newest is not None and newest.owner != owner:
                raise Conflict(
                    "Instructions of this name belong to somebody else.",
                    code="not_the_owner",
                    at=name,
                )
            if newest is not None and newest.text == text:
                return newest
            version = 1 if newest is None else newest.version + 1
            tx.execute(
                """INSERT INTO instructions (tenant, name, version, text, owner, created_ms)
                VALUES (?, ?, ?, ?, ?, ?)""",
                (tenant, name, version, text, owner, now_ms),
            )
            return Instructions(
                name=name, version=version, text=text, owner=owner, created_ms=now_ms
            )

        return await self._done(work)

    async def instructions(
        self, tenant: TenantId, name: str, version: int | None = None
    ) -> Instructions:
        """Return a version of instructions, by default the newest. Raises `NotFound`."""
        found = await self._asked(lambda db: _instructions(db, tenant, name, version))
        if found is None:
            raise NotFound("There are no such instructions.", code="no_such_instructions", at=name)
        return found

    async def all_instructions(
        self, tenant: TenantId, name: str | None = None
    ) -> list[Instructions]:
        """Return the newest version of each, or every version of those of one name."""
        if name is not None:
            sql = _INSTRUCTIONS + "WHERE tenant = ? AND name = ? ORDER BY version"
            given: tuple[object, ...] = (tenant, name)
        else:
            sql = (
                "SELECT i.name, i.version, i.text, i.owner, i.created_ms FROM instructions AS i "
                "WHERE i.tenant = ? AND i.version = (SELECT max(o.version) FROM instructions AS o "
                "WHERE o.tenant = i.tenant AND o.name = i.name) ORDER BY i.name"
            )
            given = (tenant,)
        return await self._asked(lambda db: [_told(row) for row in db.all(sql, given)])


def let_go(tx: Transaction, c: ConversationRow) -> None:
    """Take away what was kept for a conversation alone: its memories, files given to no other.

    What was only lent to it stays.
    """
    files = tx.all(
        f"""SELECT u.file FROM file_use AS u WHERE u.conversation = ? AND u.given_ms <> {LENT}
          AND NOT EXISTS (
          SELECT 1 FROM file_use AS o WHERE o.file = u.file AND o.conversation <> u.conversation)""",
        (c.number,),
    )
    tx.execute("DELETE FROM file_use WHERE conversation = ?", (c.number,))
    drop_files(tx, [row[0] for row in files])
    tx.execute("DELETE FROM remembered WHERE tenant = ? AND conversation = ?", (c.tenant, c.number))


def drop_files(tx: Transaction, files: Iterable[str]) -> None:
    """Take files away, with everything that was made of them."""
    for file in files:
        for table in ("file_use", "file_term", "passage", "file_data"):
            tx.execute(f"DELETE FROM {table} WHERE file = ?", (file,))
        tx.execute("DELETE FROM file WHERE id = ?", (file,))
    tx.messages.append(GONE)


def _add_file(tx: Transaction, new: NewFile) -> None:
    file = new.file
    tx.execute(
        """INSERT INTO file (id, tenant, name, media_type, purpose, bytes, encoding, evidence,
          digest, created_ms, lengths, passages) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            file.id,
            file.tenant,
            file.name,
            file.media_type,
            file.purpose,
            file.bytes,
            file.encoding,
            file.evidence,
            pack(file.digest),
            file.created_ms,
            encode_postings(list(new.index.lengths)),
            file.passages,
        ),
    )
    tx.execute("INSERT INTO file_data (file, data) VALUES (?, ?)", (file.id, new.data))
    _insert(
        tx,
        "passage (file, number, heading, text)",
        [(file.id, number, *piece) for number, piece in enumerate(new.pieces)],
    )
    _insert(
        tx,
        "file_term (file, term, postings)",
        [(file.id, term, encode_postings(held)) for term, held in new.index.postings.items()],
    )


def _insert(tx: Transaction, into: str, rows: Sequence[tuple[object, ...]]) -> None:
    for start in range(0, len(rows), ASKED_AT_ONCE // 4):
        some = rows[start : start + ASKED_AT_ONCE // 4]
        marks = f"({', '.join('?' * len(some[0]))})"
        values = [value for row in some for value in row]
        tx.execute(f"INSERT INTO {into} VALUES {', '.join([marks] * len(some))}", values)


def give_file(tx: Transaction, command: GiveFile) -> None:
    """Let a conversation's questions be looked up in a file."""
    c = tx.conversation(command.conversation)
    found = _file(tx, c.tenant, command.file)
    _give(tx, found, c.id, LENT if command.lent else command.now_ms)


def _give(tx: Transaction, file: File, conversation: ConversationId, now_ms: int) -> None:
    c = _conversation(tx, file.tenant, conversation)
    tx.execute(
        "INSERT INTO file_use (conversation, file, given_ms) VALUES (?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        (c.number, file.id, now_ms),
    )


def _scope(tx: Transaction, tenant: TenantId, conversation: ConversationId | None) -> int:
    return EVERYWHERE if conversation is None else _conversation(tx, tenant, conversation).number


def _conversation(
    tx: Transaction, tenant: TenantId, conversation: ConversationId
) -> ConversationRow:
    """Return the row of a conversation that something may be given to."""
    c = tx.conversation(conversation)
    if c.tenant != tenant or c.deleted:
        raise NotFound("There is no such conversation.", at=conversation)
    if c.erased_ms is not None:
        raise Conflict(
            "The conversation was erased: nothing may be given to it any more.",
            code="conversation_erased",
            at=conversation,
        )
    return c


def _postings(db: Statements, file: str, terms: Sequence[str]) -> dict[str, Postings]:
    found: dict[str, Postings] = {}
    asked = list(dict.fromkeys(terms))
    for start in range(0, len(asked), ASKED_AT_ONCE):
        some = asked[start : start + ASKED_AT_ONCE]
        marks = ", ".join("?" * len(some))
        sql = f"SELECT term, postings FROM file_term WHERE file = ? AND term IN ({marks})"
        found |= {term: decode_postings(held) for term, held in db.all(sql, (file, *some))}
    return found


def _file(db: Statements | Transaction, tenant: TenantId, file: str) -> File:
    row = db.one(_FILE + "WHERE f.id = ? AND f.tenant = ?", (file, tenant))
    if row is None:
        raise NotFound("There is no such file.", code="no_such_file", at=file)
    return _file_of(row)


def _file_of(row: tuple[Any, ...]) -> File:
    return File(
        id=row[0],
        tenant=TenantId(row[1]),
        name=row[2],
        media_type=row[3],
        purpose=row[4],
        bytes=row[5],
        encoding=row[6],
        evidence=row[7],
        digest=unpack(row[8]),
        created_ms=row[9],
        passages=row[10],
    )


def _kept(row: tuple[Any, ...]) -> Remembered:
    return Remembered(
        key=row[0],
        text=row[1],
        kind=RememberedKind(row[2]),
        conversation=None if row[3] is None else ConversationId(row[3]),
        trust=Trust(row[4]),
        priority=row[5],
        required=bool(row[6]),
        updated_ms=row[7],
    )


def _instructions(
    db: Statements | Transaction, tenant: TenantId, name: str, version: int | None = None
) -> Instructions | None:
    which = "" if version is None else "AND version = ? "
    given = (tenant, name) if version is None else (tenant, name, version)
    sql = f"{_INSTRUCTIONS}WHERE tenant = ? AND name = ? {which}ORDER BY version DESC LIMIT 1"
    row = db.one(sql, given)
    return None if row is None else _told(row)


def _told(row: tuple[Any, ...]) -> Instructions:
    return Instructions(name=row[0], version=row[1], text=row[2], owner=row[3], created_ms=row[4])
