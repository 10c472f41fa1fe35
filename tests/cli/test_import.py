"""`antiphon import`: all of a file or nothing, and the same again changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.cli.commands import Place, text
from tests.server.process import server_process

HEADER: dict[str, Any] = {"kind": "export", "version": 1}
CONV: dict[str, Any] = {"kind": "conversation", "id": "conv_1", "head": "b"}


def line(name: str, parent: str | None, said: str = "hi", **more: Any) -> dict[str, Any]:
    return {
        "kind": "message",
        "id": name,
        "parent_id": parent,
        "role": "user",
        "blocks": [{"kind": "text", "text": said}],
        **more,
    }


FILE: list[dict[str, Any]] = [HEADER, CONV, line("a", None), line("b", "a", role="assistant")]


def written(*values: dict[str, Any]) -> str:
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def other(tmp_path: Path) -> Place:
    folder = tmp_path / "other"
    folder.mkdir()
    return Place(folder)


def shape(place: Place) -> list[tuple[Any, ...]]:
    return [
        (m["id"], m["parent"], m["role"], text(m), m.get("status", "success"), m["created_ms"])
        for m in place.tree()["messages"]
    ]


@pytest.mark.req("M124", "M27")
def test_what_was_exported_comes_back_and_the_same_again_changes_nothing(
    place: Place, other: Place
) -> None:
    place.say("hello")
    place.say('tool dice {"sides": 6}', "/regenerate", "/fail 400", more=("--tools", "demo"))
    place.stop_in_mid_answer()
    place.say(f"/delete {place.messages(role='user')[0]['id']}")
    file = place.do("export").out
    told = other.do("import", "-", given=file)
    assert (told.code, told.err) == (0, "")
    assert "imported 10 messages" in told.out
    assert shape(other) == shape(place)
    mine, theirs = place.tree()["conversation"], other.tree()["conversation"]
    assert [theirs[key] for key in ("id", "head", "title", "deletions", "created_ms")] == [
        mine[key] for key in ("id", "head", "title", "deletions", "created_ms")
    ]
    before = other.tree()["conversation"]["revision"]
    again = other.do("import", "-", "--json", given=file)
    assert again.json == {
        "conversations": [
            {"id": mine["id"], "imported": 0, "replayed": 10, "deleted": 0, "missing": 0}
        ],
        "torn_line": None,
    }
    assert other.tree()["conversation"]["revision"] == before


def test_an_imported_talk_with_tools_goes_on(place: Place, other: Place) -> None:
    place.say('tool dice {"sides": 6}', more=("--tools", "demo"))
    other.do("import", "-", given=place.do("export").out)
    told = other.say("go on")
    assert (told.code, told.out.count("I was sent 5 messages")) == (0, 1)


def test_a_file_vouches_for_nothing(place: Place) -> None:
    claims = line("a", None, role="system", origin="system", trust="operator")
    place.do("import", "-", given=written(HEADER, CONV, claims))
    (message,) = place.tree()["messages"]
    assert (message["origin"], message["trust"]) == ("imported", "user")
    assert message["metadata"] == {"exported_origin": "system"}


@pytest.mark.req("M27")
def test_other_content_under_a_known_id_imports_nothing(place: Place) -> None:
    place.do("import", "-", given=written(*FILE))
    before = shape(place)
    told = place.do("import", "-", given=written(*FILE[:3], line("b", "a", "else"), line("c", "a")))
    assert told.code == 3
    assert "error[message_id_conflict] at b" in told.err
    assert shape(place) == before


@pytest.mark.parametrize(
    ("code", "exit_code", "file"),
    [
        ("cycle", 3, [HEADER, CONV, line("a", "b"), line("b", "a")]),
        ("missing_parent", 3, [*FILE, line("c", "nowhere")]),
        ("foreign_parent", 3, [*FILE, {"kind": "conversation", "id": "conv_2"}, line("c", "a")]),
        ("unknown_format", 2, FILE[1:]),
        ("bad_line", 2, [*FILE, line("c", "a", role="wizard"), line("d", "a")]),
        ("bad_message_id", 2, [*FILE, line("c d", "a")]),
    ],
)
def test_a_file_that_is_wrong_anywhere_imports_nothing(
    place: Place, code: str, exit_code: int, file: list[dict[str, Any]]
) -> None:
    told = place.do("import", "-", given=written(*file))
    assert (told.code, told.out) == (exit_code, "")
    assert f"error[{code}]" in told.err
    assert place.do("show", "--json").code in (0, 1)
    assert "conv_" not in place.do("show").out


def test_a_bad_line_in_the_middle_is_named_by_its_number(place: Place) -> None:
    file = written(*FILE[:2]) + '{"half\n' + written(*FILE[2:])
    told = place.do("import", "-", given=file)
    assert told.code == 2
    assert "error[bad_line] at line 3" in told.err


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_torn_last_line_is_reported_and_the_rest_kept(place: Place, cut: int) -> None:
    announced = {**CONV, "messages": 3}
    file = written(HEADER, announced, *FILE[2:], line("c", "b", "中文" * 20)).encode()
    told = place.do("import", "-", given=file[:-cut])
    assert told.code == 0
    if cut == 1:  # only the end of the line is missing: the message is whole
        assert [row[0] for row in shape(place)] == ["a", "b", "c"]
        return
    assert "line 5 was cut and is left out" in told.err
    assert "the file lacks 1 message of the export" in told.err
    assert [row[0] for row in shape(place)] == ["a", "b"]


def test_messages_can_be_added_to_a_conversation_of_ones_own(place: Place) -> None:
    place.do("chat", "mine")
    mine = place.tree()["conversation"]
    told = place.do("import", "-", "--into", mine["id"], given=written(*FILE))
    assert told.code == 0
    after = place.tree()["conversation"]
    assert (after["id"], after["head"]) == (mine["id"], mine["head"])
    assert {row[0] for row in shape(place)} >= {"a", "b"}
    assert place.do("import", "-", "--into", "nothing", given=written(*FILE)).code == 2
    two = [*FILE, {"kind": "conversation", "id": "conv_2"}]
    assert place.do("import", "-", "--into", mine["id"], given=written(*two)).code == 2


def test_what_is_not_utf8_is_one_clear_error(place: Place) -> None:
    file = written(*FILE).encode().replace(b'"hi"', b'"\xff\xfe"')
    told = place.do("import", "-", given=file)
    assert told.code == 2
    assert "error[bad_line] at line 3" in told.err


def test_a_file_that_is_not_there_is_one_clear_error(place: Place) -> None:
    told = place.do("import", str(place.folder / "none.jsonl"))
    assert told.code == 2
    assert "error[unreadable]" in told.err
    assert not place.db.exists()


@given(data=st.data())
@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@pytest.mark.req("M124")
def test_any_tree_survives_the_way_through_two_databases(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    ids: list[str] = []
    file: list[dict[str, Any]] = []
    for number in range(data.draw(st.integers(0, 12))):
        file.append(
            line(
                f"m{number}",
                data.draw(st.none() | st.sampled_from(ids)) if ids else None,
                data.draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=30)),
                role=data.draw(st.sampled_from(["user", "assistant"])),
                status=data.draw(st.sampled_from(["success", "error", "canceled"])),
                deleted=data.draw(st.booleans()),
                created_ms=data.draw(st.integers(0, 2**50)),
            )
        )
        ids.append(f"m{number}")
    order = data.draw(st.permutations(file))
    one, two = (Place(tmp_path_factory.mktemp("place")) for _ in range(2))
    assert one.do("import", "-", given=written(HEADER, CONV, *order)).code == 0
    exported = one.do("export").out
    assert two.do("import", "-", given=exported).code == 0
    assert two.do("export").out == exported
    found = {value["id"]: value for value in map(json.loads, exported.split("\n")[2:-1])}
    assert {name: (v["parent_id"], v["blocks"]) for name, v in found.items()} == {
        v["id"]: (v["parent_id"], v["blocks"]) for v in file
    }
    assert {name for name, v in found.items() if v.get("deleted")} == {
        v["id"] for v in file if v["deleted"]
    }


def test_while_a_server_has_the_file_the_import_goes_through_the_server(place: Place) -> None:
    with server_process(place.folder, "--db", str(place.db)):
        told = place.do("import", "-", "--json", given=written(*FILE)).json
        assert told == {
            "conversations": [
                {"id": "conv_1", "imported": 2, "replayed": 0, "deleted": 0, "missing": 0}
            ],
            "torn_line": None,
        }
        again = place.do("import", "-", "--json", given=written(*FILE)).json
        assert again["conversations"][0]["replayed"] == 2
        more = [HEADER, {**CONV, "id": "conv_2"}, line("c", None)]
        assert place.do("import", "-", "--into", "conv_1", given=written(*more)).code == 0
        other = [HEADER, CONV, line("a", None, "other words")]
        refused = place.do("import", "-", given=written(*other))
        assert refused.code == 2
        assert "error[message_id_conflict]" in refused.err
        assert [m["id"] for m in place.tree()["messages"]] == ["a", "b", "c"]
