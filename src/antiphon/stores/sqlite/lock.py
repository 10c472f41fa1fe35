"""One process has the file: an advisory lock beside the database, with the holder's pid.

The lock goes with the process, however it dies; the file itself stays, because removing it
would let two processes hold locks on two files of the same name.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from antiphon.errors import StoreLocked


class FileLock:
    """An exclusive lock that is held until `release` or the end of the process."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or say who has it.

        Raises:
            StoreLocked: Another process has it, or another store of this one.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreLocked(
                f"Process {holder} has this database open. Use it through that process, "
                "or stop it first.",
                at=holder,
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        self._descriptor = descriptor

    def release(self) -> None:
        """Let go of the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holder(database: Path) -> str | None:
    """Return the process that has the database, or None. Makes no file and keeps no lock.

    The process id is looked at first, so that whoever starts at this very moment is in nobody's
    way.
    """
    path = database.with_name(database.name + ".lock")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    name = ""
    try:
        name = os.read(descriptor, 32).decode("ascii", "replace").strip()
        if name.isdigit() and not _lives(int(name)):
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return name or "unknown"
    finally:
        os.close(descriptor)
    return None


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it is somebody else's
    return True
