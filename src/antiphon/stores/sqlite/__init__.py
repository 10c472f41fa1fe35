"""One file, one process, no configuration: the store on SQLite."""

from antiphon.stores.sqlite.store import open_sqlite

__all__ = ["open_sqlite"]
