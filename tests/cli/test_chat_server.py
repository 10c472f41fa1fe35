"""`antiphon chat` through a server: everything it can do, and the database stays the server's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Place
from tests.server.process import ServerProcess, server_process


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with server_process(tmp_path, "--db", str(tmp_path / "talk.db")) as process:
        yield process


def test_a_talk_goes_through_the_server_that_is_named(
    tmp_path: Path, server: ServerProcess
) -> None:
    elsewhere = Place(tmp_path / "elsewhere")
    elsewhere.folder.mkdir()
    said = elsewhere.do("chat", "--server", server.url, "Hello there")
    assert (said.code, "you said “Hello there”" in said.out) == (0, True), said.err
    assert server.url in said.err
    assert not elsewhere.db.exists()
    assert "Hello there" in Place(tmp_path).do("show").out


def test_a_talk_goes_through_the_server_that_has_the_database(
    tmp_path: Path, server: ServerProcess
) -> None:
    told = Place(tmp_path).do("chat", "Hello there")
    assert (told.code, server.url in told.err) == (0, True), told.err


def test_every_command_does_what_it_does_without_a_server(
    tmp_path: Path, server: ServerProcess
) -> None:
    here = Place(tmp_path)
    lines = (
        "Name a ship.",
        "/regenerate",
        "/edit Name a boat.",
        "/branches",
        "/switch 1",
        "/tree",
        "/why",
        "/request",
        "/models",
        "/model rehearsal",
        "/title Ships",
        "/list",
        "/new",
        "Another.",
        "/list",
    )
    told = here.do("chat", given="".join(f"{line}\n" for line in lines))
    assert told.code == 0, told.err
    for expected in ("● rehearsal", '"model":"rehearsal"', "COMMITTED", "Ships", "Another."):
        assert expected in told.out, (expected, told.out, told.err)
    refused = here.do("chat", "-c", given="/model nobody\n/open nothing\n")
    assert "model_not_found" in refused.err
    assert "not_found" in refused.err


def test_tools_of_this_process_are_refused_to_a_server(
    tmp_path: Path, server: ServerProcess
) -> None:
    refused = Place(tmp_path).do("chat", "--tools", "demo", "Hello")
    assert (refused.code, "usage" in refused.err) == (2, True)


def test_a_server_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    told = Place(tmp_path).do("chat", "--server", "http://127.0.0.1:9", "Hello")
    assert (told.code, told.out) == (1, "")
    assert "server_unavailable" in told.err
    assert "Traceback" not in told.err
    wrong = Place(tmp_path).do("chat", "--server", "nonsense", "Hello")
    assert (wrong.code, "bad_url" in wrong.err) == (2, True)


def test_what_the_server_cannot_do_for_a_command_is_said(
    tmp_path: Path, server: ServerProcess
) -> None:
    here = Place(tmp_path)
    told = here.do("copy", str(here.db), str(tmp_path / "other.db"))
    assert (told.code, "store_locked" in told.err) == (1, True), told.err
    assert str(server.process.pid) in told.err
