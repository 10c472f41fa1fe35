"""What is the same history, whatever the form that a client brings it in."""

from __future__ import annotations

import msgspec

from antiphon.core.blocks import Message, Opaque, Reasoning, Text
from antiphon.core.traffic.prefixes import path_digests, said
from tests.support.lines import KEY, answer, asks, call, line, model, user


def same(one: Message, other: Message) -> bool:
    return said(one) == said(other)


def test_spelling_cuts_and_what_only_a_provider_reads_make_no_difference() -> None:
    state = Opaque(profile="anthropic", value=msgspec.Raw(b"{}"))
    assert same(model("Hello"), model("Hel", "lo"))
    assert same(model("Hello"), model(Reasoning(text="Hm.", opaque=state), "Hello"))
    assert same(
        asks(call("c", arguments='{"a": 1, "b":2}')), asks(call("c", arguments='{"b":2,"a":1}'))
    )
    assert same(model(Text(text="x", opaque=state)), model("x"))


def test_what_was_said_by_whom_and_of_which_call_makes_all_the_difference() -> None:
    assert not same(user("Hello"), model("Hello"))
    assert not same(user("Hello"), user("Hello "))
    assert not same(asks(call("c", arguments='{"a":1}')), asks(call("c", arguments='{"a":"1"}')))
    assert not same(asks("c"), asks("d"))
    assert not same(answer("c", "1"), answer("c", "2"))
    assert not same(asks(call("c", arguments='{"a":')), asks(call("c", arguments="{}")))


def test_a_path_is_known_by_all_that_came_before_and_only_within_its_tenant() -> None:
    one = line(user("a"), model("b"), user("c"))
    digests = path_digests(KEY, one)
    assert digests[:2] == path_digests(KEY, one[:2])
    assert digests[2] != path_digests(KEY, line(user("x"), model("b"), user("c")))[2]
    assert not set(digests) & set(path_digests(b"another tenant's key", one))
