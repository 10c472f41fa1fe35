"""What the databases share: each command and each question as SQL that all of them take.

SQLite (3.39 on) and PostgreSQL (15 on) give the same small interface, `statements.Statements`,
and everything here is written over it. What differs is theirs: how a connection is made, how
work is gathered into transactions, how errors are named, and what is kept in memory.

**A table for both.** A migration is one file in `migrations/`, numbered, written once in SQLite's
words: `INTEGER`, `TEXT`, `BLOB` (or `ANY` for what `rows.pack` returns), `STRICT`, and
`WITHOUT ROWID` for short rows. `postgres/schema.py` puts PostgreSQL's words for these. Name every
constraint. A key begins with the conversation: it is a place (`places.py`), or has its number or
its tenant as the first column. Conditions of partial indexes compare (`deleted = 0`), because an
integer is no truth value there.

**A statement for both.**

- `ON CONFLICT … DO NOTHING` or `DO UPDATE`, never `INSERT OR …`; with `INSERT … SELECT … WHERE true`.
- `IS NOT DISTINCT FROM` where NULL may equal NULL; a parameter that may be NULL and is compared
  with nothing else has its type said: `CAST(:proof AS TEXT) IS NULL`.
- Truth is an integer: `x.erased = 1`, not `x.erased`. Only parameters may be bare conditions.
- `?` or `:name`, never both in one statement; `RETURNING` is fine, `rowid` and `last_insert_rowid`
  are not; no `iif`, no `GLOB`, no `json_…` outside `statements.Dialect`.
- Text holds no NUL character.

**Two nodes at once.** With PostgreSQL several processes write. All that a command compares stands
in its conversation's own rows, and no two commands of one conversation run at the same time: each
transaction holds the conversation's row locked. What lies outside of it (keys of repeated
requests, tenants, content) needs a unique constraint, and a statement that sees when somebody
else was first; it then raises `transaction.Outrun`, and the command is carried out anew.
"""
