"""A real PostgreSQL for the tests: one server for the whole run, a database for each who asks.

It lives in a temporary folder and listens on a Unix socket there, and on loopback for those who
need a port. Its server refuses to run as root, so then it runs as `nobody`.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.parts import postgres

START_S: Final = 60

FAST: Final = {
    # The contract is not about power cuts: those have tests of their own.
    "fsync": "off",
    "synchronous_commit": "on",
    "full_page_writes": "off",
    "max_connections": "300",
    "shared_buffers": "32MB",
    "log_min_messages": "fatal",
    "autovacuum": "off",
}


EMPTY: Final = """
SET session_replication_role = replica;
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT format('%I.%I', schemaname, tablename) FROM pg_tables
    WHERE schemaname = 'antiphon' AND tablename <> 'migration'
  LOOP EXECUTE 'DELETE FROM ' || name; END LOOP;
  FOR name IN SELECT format('%I.%I', schemaname, sequencename) FROM pg_sequences
    WHERE schemaname = 'antiphon'
  LOOP EXECUTE 'ALTER SEQUENCE ' || name || ' RESTART'; END LOOP;
END $$
"""
"""Rows go one by one, and nobody asks which other row wants them: of few, that is sooner done than
to make every table and index anew.
"""


@dataclass(slots=True)
class Server:
    """A server of our own, with its folder and the port that it listens on."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    tablespace: str = "pg_default"
    """Where new databases lie."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _databases: int = 0
    _free: list[str] = field(default_factory=list)

    def address(self, database: str = "postgres", *, host: str | None = None) -> str:
        """Return the address of a database."""
        where = "127.0.0.1" if host is None else host
        return f"postgresql://antiphon@{where}:{self.port}/{database}"

    def database(self) -> str:
        """Return the address of an empty database; `give_back` makes it free for the next test."""
        with self._lock:
            if self._free:
                return self.address(self._free.pop())
            self._databases += 1
            name = f"talks_{os.getpid()}_{self._databases}"
        self.sql(f"CREATE DATABASE {name} TABLESPACE {self.tablespace}")
        return self.address(name)

    def give_back(self, address: str) -> None:
        """Empty a database that nobody is connected to any more."""
        name = address.rpartition("/")[2]
        self.sql(EMPTY, name)
        self._free.append(name)

    def sql(self, statement: str, database: str = "postgres") -> str:
        """Carry out a statement and return what psql prints."""
        done = subprocess.run(
            [
                binary("psql"),
                "-XqAt",
                "-v",
                "ON_ERROR_STOP=1",
                "-c",
                statement,
                self.address(database),
            ],
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            **self.settings,
        }
        options = [f"-c{name}={value}" for name, value in settings.items()]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [binary("postgres"), "-D", str(self.folder / "data"), *options],
                stdout=subprocess.DEVNULL,
                stderr=log,
                user=_user(),
            )
        _wait_for(self)

    def stop(self, *, at_once: bool = False) -> None:
        """Stop the server; `at_once` as if it had crashed."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT if at_once else signal.SIGINT)
            self.process.wait(START_S)
        self.process = None


def _wait_for(server: Server) -> None:
    for _ in range(START_S * 20):
        ready = subprocess.run(
            [binary("pg_isready"), "-q", "-t", "1", "-d", server.address()], check=False
        )
        if ready.returncode == 0:
            return
        assert server.process is not None
        if server.process.poll() is not None:
            break
        try:
            server.process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError((server.folder / "log").read_text())


def binary(name: str) -> str:
    """Return the path of one of PostgreSQL's programs."""
    found = postgres(name)
    assert found is not None, f'{name} is missing; mark the test: needs("postgres")'
    return found


def _user() -> str | None:
    return "nobody" if os.geteuid() == 0 else None


def owned(folder: Path) -> None:
    """Give a folder to the user that the server runs as."""
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)


def new_server(settings: Sequence[tuple[str, str]] = tuple(FAST.items())) -> Server:
    """Make a server in a folder of its own and start it."""
    folder = Path(tempfile.mkdtemp(prefix="antiphon-pg-"))
    owned(folder)
    made = subprocess.run(
        [
            binary("initdb"),
            "-D",
            "data",
            "-U",
            "antiphon",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
        ],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
        cwd=folder,
        user=_user(),
    )
    assert made.returncode == 0, made.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(folder, port, settings=dict(settings))
    server.start()
    atexit.register(remove, server)
    return server


def remove(server: Server) -> None:
    """End a server and take its folder away."""
    server.stop(at_once=True)
    shutil.rmtree(server.folder, ignore_errors=True)


@cache
def shared_server() -> Server:
    """Return the one server of this run."""
    return new_server()
