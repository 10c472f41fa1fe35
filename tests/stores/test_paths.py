"""Contract: a line is the ancestors of one leaf. A broken link is an error, never a silent stop."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from antiphon.core.blocks import Message, Role, message_digest
from antiphon.core.commands import AddMessages
from antiphon.core.digests import fold
from antiphon.core.ids import LOCAL_TENANT, Digest, MessageId
from antiphon.errors import NotFound, Refused
from antiphon.stores.sqlite import open_sqlite
from tests.stores.talk import Talk


async def plant(talk: Talk, parents: dict[str, str | None]) -> dict[str, Message]:
    """Import messages under these parents, in this order."""
    messages = {
        name: talk.message(name, parent=parent, role=Role.ASSISTANT if n % 2 else Role.USER)
        for n, (name, parent) in enumerate(parents.items())
    }
    await talk.do(AddMessages(**talk.head(), messages=tuple(messages.values()), head=None))
    return messages


def ancestors(parents: dict[str, str | None], leaf: str) -> list[str]:
    line, at = [], leaf
    while at:
        line.append(at)
        at = parents[at] or ""
    return line[::-1]


async def names(
    talk: Talk, leaf: str, until: str | None = None, limit: int | None = None
) -> list[str]:
    path = await talk.store.path(
        talk.conversation,
        MessageId(leaf),
        until=None if until is None else MessageId(until),
        limit=limit,
    )
    # Each message knows its parent, whatever piece of the line was asked for.
    assert [m.id for m in path[:-1]] == [m.parent for m in path[1:]]
    return [m.id for m in path]


@pytest.mark.req("M126", "M127", "M128")
async def test_a_line_is_the_ancestors_of_its_leaf_and_nothing_of_other_branches(
    talk: Talk,
) -> None:
    parents = {
        "a": None,
        "b": "a",
        "x": "a",
        "c": "b",
        "y": "x",
        "z": "y",
        "d": "c",
    }
    messages = await plant(talk, parents)
    for leaf in parents:
        assert await names(talk, leaf) == ancestors(parents, leaf)
    path = await talk.store.path(talk.conversation, MessageId("z"))
    assert [m.blocks for m in path] == [messages[n].blocks for n in ("a", "x", "y", "z")]


@pytest.mark.req("M126", "M127", "M128")
@pytest.mark.parametrize("branchiness", [0.02, 0.5, 0.95])
async def test_any_piece_of_any_line_of_any_tree_is_what_it_should_be(
    talk: Talk, branchiness: float
) -> None:
    # Lines that are most of their conversation are read by one way, others by another.
    chance = random.Random(int(branchiness * 100))
    parents: dict[str, str | None] = {}
    for n in range(120):
        known = list(parents)
        parent = None
        if known:
            parent = chance.choice(known) if chance.random() < branchiness else known[-1]
        parents[f"m{n}"] = parent
    await plant(talk, parents)
    for leaf in [*chance.sample(list(parents), 12), "m119"]:
        line = ancestors(parents, leaf)
        assert await names(talk, leaf) == line
        for limit in (1, 2, len(line), len(line) + 5):
            assert await names(talk, leaf, limit=limit) == line[-limit:]
        for until in {line[0], line[len(line) // 2], leaf}:
            rest = line[line.index(until) + 1 :]
            assert await names(talk, leaf, until=until) == rest
            if rest:
                assert await names(talk, leaf, until=until, limit=1) == rest[-1:]


async def test_up_to_a_message_of_another_line_a_line_goes_to_its_root(talk: Talk) -> None:
    await plant(talk, {"a": None, "b": "a", "x": "a"})
    assert await names(talk, "b", until="x") == ["a", "b"]
    assert await names(talk, "b", until="nowhere") == ["a", "b"]
    with pytest.raises(NotFound):
        await names(talk, "nowhere")


@pytest.mark.req("M8")
async def test_the_path_digest_stored_with_a_message_folds_the_digests_of_its_line(
    tmp_path: Path,
) -> None:
    # Kept for whoever needs the fingerprint of a line without reading it.
    store = await open_sqlite(tmp_path / "a.db")
    talk = await Talk.begin(store)
    await plant(talk, {"a": None, "b": "a", "x": "a", "c": "b"})
    key = await store.tenant_key(LOCAL_TENANT)
    path = await store.path(talk.conversation, MessageId("c"))
    expected: Digest | None = None
    for message in path:
        expected = fold(key, expected, message_digest(key, message))
    await store.close()
    with sqlite3.connect(tmp_path / "a.db") as db:
        rows = dict(db.execute("SELECT id, path_digest FROM message"))
    db.close()
    assert rows["c"].hex() == expected
    assert len({*rows.values()}) == 4


BREAKS = {
    "missing_parent": "DELETE FROM message WHERE id = 'b'",
    "cycle": "UPDATE message SET parent = (SELECT place FROM message WHERE id = 'd') WHERE id = 'b'",
    "itself": "UPDATE message SET parent = place WHERE id = 'b'",
    "foreign_parent": "UPDATE message SET parent = (SELECT place FROM message WHERE id = 'f') WHERE id = 'c'",
}


@pytest.mark.req("M127")
@pytest.mark.parametrize("many_branches", [False, True], ids=["scanned", "walked"])
@pytest.mark.parametrize("damage", ["missing_parent", "cycle", "itself", "foreign_parent"])
async def test_a_damaged_tree_is_named_and_never_walked_in_circles(
    tmp_path: Path, damage: str, many_branches: bool
) -> None:
    store = await open_sqlite(tmp_path / "a.db")
    other = await Talk.begin(store, "conv_0")
    await plant(other, {"f": None})
    talk = await Talk.begin(store)
    branches: dict[str, str | None] = {f"x{n}": "a" for n in range(60 if many_branches else 0)}
    await plant(talk, {"a": None, **branches, "b": "a", "c": "b", "d": "c"})
    await store.close()
    db = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    db.execute("PRAGMA ignore_check_constraints = ON")
    db.execute(BREAKS[damage])
    db.close()
    store = await open_sqlite(tmp_path / "a.db")
    for until, limit in ((None, None), (MessageId("a"), None), (None, 50)):
        with pytest.raises(Refused) as caught:
            await store.path(talk.conversation, MessageId("d"), until=until, limit=limit)
        assert caught.value.code == ("cycle" if damage == "itself" else damage)
    # What lies this side of the damage is still there.
    (leaf,) = await store.path(talk.conversation, MessageId("d"), limit=1)
    assert leaf.id == "d"
    await store.close()


@pytest.mark.req("M127")
async def test_the_database_itself_refuses_a_circle_and_a_foreign_parent(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "a.db")
    other = await Talk.begin(store, "conv_0")
    await plant(other, {"f": None})
    talk = await Talk.begin(store)
    await plant(talk, {"a": None, "b": "a", "c": "b", "d": "c"})
    await store.close()
    db = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    for damage, constraint in (
        ("cycle", "message_parent_before"),
        ("itself", "message_parent_before"),
        ("foreign_parent", "message_parent_here"),
    ):
        with pytest.raises(sqlite3.IntegrityError) as caught:
            db.execute(BREAKS[damage])
        assert constraint in str(caught.value)
    db.close()


async def test_a_line_of_thousands_is_read_whole_and_in_pieces(talk: Talk) -> None:
    length = 3000
    await plant(talk, {f"m{n}": f"m{n - 1}" if n else None for n in range(length)})
    assert await names(talk, f"m{length - 1}", limit=3) == [f"m{length - n}" for n in (3, 2, 1)]
    whole = await names(talk, f"m{length - 1}")
    assert whole == [f"m{n}" for n in range(length)]
