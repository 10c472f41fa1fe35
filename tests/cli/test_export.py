"""`antiphon export`: what a file holds, and what it is worth on the way."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import Place, text


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    assert place.say("hello 中文", "/regenerate", "/fail 400", "/title Ein Name").code == 4
    place.stop_in_mid_answer()
    return place


def lines(data: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.strip().split("\n")]


@pytest.mark.req("M124", "M25")
def test_every_message_is_a_line_of_its_own_under_its_parent(place: Place) -> None:
    told = place.do("export")
    assert told.code == 0
    header, conversation, *messages = lines(told.out)
    assert header == {"kind": "export", "version": 1}
    stored = place.tree()
    assert conversation["kind"] == "conversation"
    assert (conversation["id"], conversation["title"]) == (
        stored["conversation"]["id"],
        "Ein Name",
    )
    assert conversation["head"] == stored["conversation"]["head"]
    assert conversation["messages"] == len(messages) == 6
    seen: set[str | None] = {None}
    for line, message in zip(messages, stored["messages"], strict=True):
        assert line["kind"] == "message"
        assert (line["id"], line["parent_id"]) == (message["id"], message["parent"])
        assert line["parent_id"] in seen
        assert line["blocks"] == message["blocks"]
        seen.add(line["id"])
    assert [line.get("status", "success") for line in messages] == [
        "success",
        "success",
        "success",
        "error",
        "success",
        "canceled",
    ]
    assert [line["origin"] for line in messages] == [
        "client",
        "model",
        "model",
        "client",
        "client",
        "model",
    ]


def test_a_deletion_is_marked_and_the_message_kept(place: Place) -> None:
    gone = place.messages(role="assistant", status="success")[0]["id"]
    place.say(f"/delete {gone}")
    exported = {line.get("id"): line for line in lines(place.do("export").out)}
    assert exported[gone]["deleted"] is True
    assert text(exported[gone])
    assert [line["id"] for line in exported.values() if line.get("deleted")] == [gone]


def test_named_conversations_only_are_written(place: Place) -> None:
    place.do("chat", "another one")
    both = {line["id"] for line in lines(place.do("export").out) if line["kind"] == "conversation"}
    assert len(both) == 2
    one = sorted(both)[0]
    told = place.do("export", one, one[-10:])
    assert [line["id"] for line in lines(told.out) if line["kind"] == "conversation"] == [one]
    assert place.do("export", "nothing").code == 2


def test_a_file_appears_whole_or_not_at_all(place: Place) -> None:
    file = place.folder / "out.jsonl"
    told = place.do("export", "-o", str(file), "--json")
    assert told.code == 0
    assert told.json == {"file": str(file), "conversations": 1, "messages": 6, "erased": 0}
    assert file.read_text(encoding="utf-8") == place.do("export").out
    before = file.read_bytes()
    assert place.do("export", "nothing", "-o", str(file)).code == 2
    assert file.read_bytes() == before
    assert not [path for path in place.folder.iterdir() if path.name.startswith(".out")]


def test_a_pipe_is_written_to_and_a_link_followed_and_both_stay_what_they_are(
    place: Place,
) -> None:
    pipe, link, file = (place.folder / name for name in ("pipe", "link", "file"))
    os.mkfifo(pipe)
    link.symlink_to(file)
    # Open in both directions: whoever writes waits for nobody, and what it wrote can be read.
    ours = os.open(pipe, os.O_RDWR)
    try:
        assert place.do("export", "-o", str(pipe)).code == 0
        assert pipe.is_fifo()
        assert os.read(ours, 1 << 16).decode() == place.do("export").out
    finally:
        os.close(ours)
    assert place.do("export", "-o", str(link)).code == 0
    assert link.is_symlink()
    assert file.read_text(encoding="utf-8") == place.do("export").out


def test_a_folder_that_is_not_there_is_one_clear_error(place: Place) -> None:
    told = place.do("export", "-o", str(place.folder / "nowhere" / "out"))
    assert told.code == 2
    assert "error[unwritable]" in told.err


def test_a_disk_that_fills_up_is_one_clear_error_and_leaves_no_part_behind(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = set(place.folder.iterdir())
    monkeypatch.setattr("antiphon.cli.export.os.fsync", full)
    told = place.do("export", "-o", str(place.folder / "out.jsonl"))
    assert told.code == 2
    assert told.err.splitlines()[-1].startswith("error[unwritable]")
    assert {path.name for path in set(place.folder.iterdir()) - before} <= {
        "talk.db-shm", "talk.db-wal",
    }  # fmt: skip


def test_an_empty_database_makes_an_empty_export(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.do("chat", "/list")
    assert lines(place.do("export").out) == [{"kind": "export", "version": 1}]
