"""The real server as a process that is killed: forked, once loaded, for each life.

Reads lines of JSON: `{"start": CONFIG}` forks a server and prints its pid, `{"wait": PID}` prints
how it ended.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from pathlib import Path

import msgspec

from antiphon import cli
from antiphon.engine import assembly
from tests.crash.hooks import Killer, install


class Life(msgspec.Struct, kw_only=True):
    """One life of the server: where, under which number, and the point at which it dies."""

    folder: str
    number: int
    db: str
    kill: str | None = None

    def path(self, name: str) -> Path:
        return Path(self.folder) / name


def live(life: Life) -> int:
    """Serve until told to stop, or until the point of death."""
    install(Killer(life.kill, life.path(f"trace-{life.number}.txt")), assembly)
    return cli.run(
        [
            "serve",
            "--json",
            "--port=0",
            f"--db={life.db}",
            f"--config={life.path('antiphon.toml')}",
        ]
    )


def main() -> None:
    """Fork lives as told."""
    for name in ("aiohttp", "antiphon.cli.serve", "antiphon.server.http.serving", "jsonschema"):
        import_module(name)
    for name in (
        "antiphon.stores.sqlite",
        "antiphon.stores.postgres",
        "antiphon.adapters.registry",
        "antiphon.engine.edge.http",
    ):
        import_module(name)
    for line in sys.stdin:
        told = json.loads(line)
        if "wait" in told:
            _, status = os.waitpid(told["wait"], 0)
            print(os.waitstatus_to_exitcode(status), flush=True)
            continue
        life = msgspec.convert(told["start"], Life)
        pid = os.fork()
        if pid == 0:
            for number, name in ((1, "out"), (2, "err")):
                path = life.path(f"{name}-{life.number}.txt")
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), number)
            code = live(life)
            sys.stdout.flush()
            os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
