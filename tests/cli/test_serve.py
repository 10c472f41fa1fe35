"""`antiphon serve`: one screen whose every line works, a start that is quick, an end in good order."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.server.process import PATIENCE_S, server_process

SERVE = [sys.executable, "-m", "antiphon", "serve"]


@contextmanager
def screen(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Start a server as a person does and give its screen."""
    process = subprocess.Popen(
        [*SERVE, "--port", "0", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "ANTIPHON_REHEARSAL_DELAY_S": "0", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    lines: list[str] = []
    try:
        while not (lines and lines[-1].startswith("print(")):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            lines.append(line.rstrip("\n"))
        yield process, lines
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def test_the_screen_says_where_with_what_and_how_to_stop_and_what_it_says_to_try_works(
    tmp_path: Path,
) -> None:
    with screen(tmp_path) as (process, lines):
        text = "\n".join(lines)
        assert len(lines) <= 24, "one screen"
        assert str(tmp_path / "antiphon.db") in text
        assert "rehearsal" in text
        assert "No key: you are on the rehearsal model" in text
        assert "Ctrl-C" in text
        (curl,) = [line for line in lines if line.startswith("curl ")]
        told = subprocess.run(
            shlex.split(curl), capture_output=True, text=True, timeout=PATIENCE_S, check=True
        )
        assert "Rehearsal model: you said “Hello”." in told.stdout
        program = "\n".join(lines[lines.index("from openai import OpenAI") :])
        assert len(program.splitlines()) == 3
        told = subprocess.run(
            [sys.executable, "-c", program],
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        assert told.stdout.startswith("Rehearsal model: you said “Hello”.")
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0


def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        port = server.url.rpartition(":")[2]
        other = tmp_path / "other"
        other.mkdir()
        told = subprocess.run(
            [*SERVE, "--port", port],
            cwd=other,
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert told.returncode == 2
    assert "error[address_unusable]" in told.stderr
    assert "--port 0" in told.stderr


def test_a_second_server_on_the_same_file_is_refused_by_name(tmp_path: Path) -> None:
    with server_process(tmp_path) as server:
        told = subprocess.run(
            [*SERVE, "--port", "0"],
            cwd=tmp_path,
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert told.returncode == 1
        assert "error[store_locked]" in told.stderr
        assert str(server.process.pid) in told.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_lets_what_is_in_flight_come_to_its_end(
    tmp_path: Path, number: signal.Signals
) -> None:
    slow = {"ANTIPHON_REHEARSAL_DELAY_S": "0.05"}
    with server_process(tmp_path, env=slow) as server:
        name = server.post("/antiphon/v1/conversations", {})["id"]
        run = server.post(f"/antiphon/v1/conversations/{name}/messages", {"content": "long 20"})
        server.process.send_signal(number)
        assert server.process.wait(PATIENCE_S) == 0
    with server_process(tmp_path) as server:
        row = server.get(f"/antiphon/v1/runs/{run['id']}")
        assert b'"status":"success"' in row


def test_what_outlasts_the_patience_of_a_stop_is_told_honestly_by_the_next_start(
    tmp_path: Path,
) -> None:
    slow = {"ANTIPHON_REHEARSAL_DELAY_S": "5", "ANTIPHON_DRAIN_S": "0.1"}
    with server_process(tmp_path, env=slow) as server:
        name = server.post("/antiphon/v1/conversations", {})["id"]
        run = server.post(f"/antiphon/v1/conversations/{name}/messages", {"content": "long 20"})
        assert server.stop() == 0
    with server_process(tmp_path) as server:
        told = server.get(f"/antiphon/v1/runs/{run['id']}")
        assert b'"status":"error"' in told
        assert b'"error_code":"outcome_unknown"' in told


def test_what_serves_is_loaded_by_no_other_command() -> None:
    program = (
        "import sys; import antiphon.cli.lint, antiphon.cli.chat, antiphon.cli.keys\n"
        "print([m for m in ('uvicorn', 'starlette') if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert told.stdout.strip() == "[]"
