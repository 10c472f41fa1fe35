"""Erasure: what was said goes for good, and everything else stays as it is.

The writer's connection overwrites what it frees (`secure_delete`), and the writer empties the
write-ahead log afterwards: see `Erased`. What stays is structure, statuses, times, manifests and
digests under the tenant's key, none of which says what was said.
"""

from __future__ import annotations

import msgspec

from antiphon.core.answers.said import Said
from antiphon.core.commands import EraseConversation
from antiphon.core.events import ConversationErased
from antiphon.core.records import Conversation, RunOptions
from antiphon.stores.sql.commands.endings import cancel_run
from antiphon.stores.sql.knowledge import let_go
from antiphon.stores.sql.message_rows import Extra
from antiphon.stores.sql.packing import encode_json
from antiphon.stores.sql.places import span
from antiphon.stores.sql.rows import ConversationRow
from antiphon.stores.sql.transaction import Erased, Transaction

_extra = msgspec.json.Decoder(Extra).decode
_said = msgspec.json.Decoder(Said).decode
_options = msgspec.json.Decoder(RunOptions).decode


def erase(tx: Transaction, command: EraseConversation) -> Conversation:
    """Take everything that was said here away."""
    c = tx.conversation(command.conversation)
    if c.erased_ms is not None:
        return tx.conversation_record(c.id)
    for run in tx.open_runs(c):
        cancel_run(tx, command, tx.row(c.number), run, command.reason)
    here = span(c.number)
    for change in (
        "UPDATE message SET blocks = NULL",
        "UPDATE run SET input_waiting = NULL, wish = NULL",
        "UPDATE call SET arguments = '', changed_arguments = NULL, content = NULL, erased = 1",
        "UPDATE quarantine SET data = ''",
        "UPDATE session SET goal = NULL, precis = NULL, handover = NULL",
        "UPDATE response SET request = NULL",
    ):
        tx.execute(f"{change} WHERE place BETWEEN ? AND ?", here)
    _strip_what_was_said(tx, here)
    _strip_names(tx, here)
    _strip_options(tx, here)
    _let_go_of_content(tx, c)
    let_go(tx, c)
    tx.execute("DELETE FROM known_prefix WHERE conversation = ?", (c.id,))
    tx.change_conversation(c.number, title=None, metadata=None, erased_ms=command.now_ms)
    tx.tell(command, c.number, ConversationErased())
    tx.messages.append(Erased(c.id, at_once=command.at_once))
    return tx.conversation_record(c.id)


def _strip_names(tx: Transaction, here: tuple[int, int]) -> None:
    """Take names and metadata from messages; whose copy one is stays."""
    for at, extra in tx.all(
        "SELECT place, extra FROM message WHERE place BETWEEN ? AND ? AND extra IS NOT NULL", here
    ):
        copied = _extra(extra).copied_from
        kept = None if copied is None else encode_json(Extra(copied_from=copied))
        tx.execute("UPDATE message SET extra = ? WHERE place = ?", (kept, at))


def _strip_what_was_said(tx: Transaction, here: tuple[int, int]) -> None:
    """Take the providers' words from attempts that came to no answer; that they said no stays."""
    for manifest, number, said in tx.all(
        "SELECT manifest, number, said FROM attempt "
        "WHERE manifest BETWEEN ? AND ? AND said IS NOT NULL",
        here,
    ):
        kept = encode_json(msgspec.structs.replace(_said(said), message=""))
        tx.execute(
            "UPDATE attempt SET said = ? WHERE manifest = ? AND number = ?",
            (kept, manifest, number),
        )


def _strip_options(tx: Transaction, here: tuple[int, int]) -> None:
    """Take the metadata from what runs were asked."""
    for at, options in tx.all("SELECT place, options FROM run WHERE place BETWEEN ? AND ?", here):
        kept = msgspec.structs.replace(_options(options), metadata={})
        tx.execute("UPDATE run SET options = ? WHERE place = ?", (encode_json(kept), at))


def _let_go_of_content(tx: Transaction, c: ConversationRow) -> None:
    """Take what is stored beside the tree, as far as no other conversation needs it."""
    needed = tx.all("SELECT digest FROM content_use WHERE conversation = ?", (c.number,))
    tx.contents(c.number).clear()
    tx.execute("DELETE FROM content_use WHERE conversation = ?", (c.number,))
    for (digest,) in needed:
        tx.execute(
            """DELETE FROM content WHERE tenant = :tenant AND digest = :digest AND NOT EXISTS (
              SELECT 1 FROM content_use AS u WHERE u.digest = :digest AND u.tenant = :tenant)""",
            {"tenant": c.tenant, "digest": digest},
        )
