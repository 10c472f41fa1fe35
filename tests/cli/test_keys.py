"""`antiphon keys`: in a file that nobody has open, and through the server that has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.server.process import server_process

PATIENCE_S = 60


def keys(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "antiphon", "keys", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def listed(told: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert told.returncode == 0, told.stderr
    found: list[dict[str, Any]] = json.loads(told.stdout)["keys"]
    return found


def test_a_key_is_made_listed_and_revoked_in_a_file_that_nobody_has_open(tmp_path: Path) -> None:
    made = keys(tmp_path, "create", "--name", "app", "--right", "read", "--days", "2")
    secret = made.stdout.strip()
    assert (made.returncode, secret.startswith("antiphon_")) == (0, True)
    (key,) = listed(keys(tmp_path, "list", "--json"))
    assert (key["name"], key["tenant"], key["rights"]) == ("app", "local", ["read"])
    assert key["expires_ms"] > key["created_ms"]
    assert "secret" not in str(key)
    assert keys(tmp_path, "revoke", key["id"]).returncode == 0
    (key,) = listed(keys(tmp_path, "list", "--json"))
    assert key["revoked_ms"] is not None
    assert keys(tmp_path, "revoke", "key_nobody").returncode == 2


def test_while_a_server_has_the_file_it_goes_through_the_server(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        first = json.loads(
            keys(tmp_path, "create", "--name", "me", "--right", "all", "--json").stdout
        )
        refused = keys(tmp_path, "list")
        assert refused.returncode == 2
        assert "error[bad_key]" in refused.stderr
        assert "ANTIPHON_KEY" in refused.stderr
        (key,) = listed(keys(tmp_path, "list", "--json", ANTIPHON_KEY=first["secret"]))
        assert key["id"] == first["id"]
        with pytest.raises(HTTPError, match="401"):
            server.get("/antiphon/v1/conversations")
        asked = Request(
            server.url + "/antiphon/v1/conversations",
            headers={"authorization": f"Bearer {first['secret']}"},
        )
        with urlopen(asked, timeout=PATIENCE_S) as answer:
            assert answer.status == 200


def test_a_server_that_others_could_reach_does_not_start_without_a_key(tmp_path: Path) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "antiphon", "serve", "--host", "0.0.0.0", "--port", "0"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert told.returncode == 2
    assert told.stdout == ""
    assert "error[key_required]" in told.stderr
    assert "antiphon keys create" in told.stderr
