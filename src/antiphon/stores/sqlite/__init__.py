"""One file, one process, no configuration: the store on SQLite."""

from antiphon.stores.sqlite.store import SqliteStore, open_sqlite

__all__ = ["SqliteStore", "open_sqlite"]
