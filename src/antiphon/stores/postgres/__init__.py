"""A database that several processes share: the store on PostgreSQL."""

from antiphon.stores.postgres.store import open_postgres

__all__ = ["open_postgres"]
