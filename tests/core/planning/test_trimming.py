"""A line is cut at the beginning of a turn, in one piece, and nothing that is tied is parted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.core.blocks import Message, Role
from antiphon.core.ids import CallId, MessageId
from antiphon.core.planning.tokens import ESTIMATOR
from antiphon.core.planning.trimming import Candidate, candidate, chosen, cut, turns
from tests.support.lines import answer, asks, call, line, model, system, user


def talk(*said: str) -> list[Candidate]:
    """`u`, `a` and `s` are messages of 10 tokens; `c1` asks and `r1` answers."""
    roles = {
        "u": Role.USER,
        "a": Role.ASSISTANT,
        "s": Role.SYSTEM,
        "c": Role.ASSISTANT,
        "r": Role.TOOL,
    }
    return [
        Candidate(
            id=MessageId(f"m{n}"),
            role=roles[word[0]],
            tokens=10,
            calls=(CallId(word[1:]),) if word[0] == "c" else (),
            results=(CallId(word[1:]),) if word[0] == "r" else (),
        )
        for n, word in enumerate(said)
    ]


@pytest.mark.req("M107")
def test_a_turn_begins_with_a_users_message_and_never_between_a_call_and_its_result() -> None:
    assert list(turns(talk("u", "a", "u", "c1", "u", "r1", "a", "u"))) == [0, 2, 7]
    assert list(turns(talk("s", "u", "u", "a", "s", "u"))) == [1, 5]
    assert list(turns(talk("a", "u"))) == [1]


def test_what_fits_is_not_cut() -> None:
    assert cut(talk("u", "a", "u"), tokens=30) == 0
    assert cut(talk("u", "a", "u")) == 0


@pytest.mark.req("M106")
def test_a_number_of_messages_is_an_upper_bound_moved_to_a_turn() -> None:
    line_of_seven = talk("u", "a", "u", "a", "u", "a", "u")
    assert cut(line_of_seven, messages=4) == 4
    assert cut(line_of_seven, messages=5) == 2
    assert cut(line_of_seven, messages=1) == 6


def test_the_newest_turn_is_kept_whatever_it_costs() -> None:
    assert cut(talk("u", "a", "u", "c1", "r1"), tokens=5) == 2
    assert cut(talk("u", "a"), tokens=5) == 0
    assert cut(talk("a", "a"), tokens=5) == 0


def test_instructions_stay_and_count() -> None:
    told = talk("s", "u", "a", "s", "u", "a", "u")
    assert cut(told, tokens=50) == 4
    assert cut(told, tokens=49) == 6
    kept = chosen(
        line(system(), user(), model(), system("More."), user(), model()), MessageId("m5")
    )
    assert [message.id for message in kept] == ["m1", "m4", "m5", "m6"]


def test_a_beginning_that_is_not_on_the_path_cuts_nothing() -> None:
    path = line(user(), model())
    assert chosen(path, MessageId("elsewhere")) == path
    assert chosen(path, None) == path


def test_what_a_message_costs_covers_calls_and_results() -> None:
    long = call("c", "write", '{"text":"' + "word " * 8_000 + '"}')
    asked, answered = line(asks(long), answer("c", "done " * 100))
    assert candidate(asked, ESTIMATOR).tokens > 5_000
    assert candidate(asked, ESTIMATOR, 2_000).tokens == 2 * candidate(asked, ESTIMATOR).tokens
    assert candidate(answered, ESTIMATOR).results == ("c",)


@st.composite
def talks(draw: st.DrawFn) -> list[Message]:
    """Turns with any number of calls, answered in any order, and instructions anywhere between."""
    said: list[Message] = []
    for number in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            said.append(system(f"rule {number}"))
        said.append(user("question " * draw(st.integers(1, 8))))
        for step in range(draw(st.integers(0, 2))):
            ids = [f"c{number}-{step}-{n}" for n in range(draw(st.integers(1, 2)))]
            said.append(asks(*ids))
            said += [
                answer(name, "r " * draw(st.integers(1, 9))) for name in draw(st.permutations(ids))
            ]
        if draw(st.booleans()) or said[-1].role is Role.TOOL:
            said.append(model("reply " * draw(st.integers(1, 8))))
    return line(*said)


@given(talks(), st.integers(0, 300), st.one_of(st.none(), st.integers(1, 12)))
def test_whatever_is_cut_calls_keep_their_results_and_instructions_stay(
    path: list[Message], tokens: int, most: int | None
) -> None:
    weighed = [candidate(message, ESTIMATOR) for message in path]
    start = cut(weighed, tokens=tokens, messages=most)
    kept = chosen(path, path[start].id)
    asked = [c.call_id for m in kept for c in m.calls]
    assert sorted(asked) == sorted(r.call_id for m in kept for r in m.results)
    assert [m for m in path if m.role is Role.SYSTEM] == [m for m in kept if m.role is Role.SYSTEM]
    assert kept[-1] == path[-1]
    costs = sum(w.tokens for w in weighed if w.id in {m.id for m in kept})
    newest = list(turns(weighed))[-1]
    said = sum(m.role is not Role.SYSTEM for m in kept)
    assert start == newest or (costs <= tokens and (most is None or said <= most))
    # It is the oldest beginning that fits: one turn more would not have.
    before = [n for n in turns(weighed) if n < start]
    if before and before[-1] < start:
        more = chosen(path, path[before[-1]].id if before[-1] else None)
        cost = sum(w.tokens for w in weighed if w.id in {m.id for m in more})
        assert cost > tokens or (
            most is not None and sum(m.role is not Role.SYSTEM for m in more) > most
        )
