"""What holds for every dialect alike, asked of all that the registry knows.

A new adapter is in here by being registered. What one dialect does beyond this has its own module.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.adapters import registry
from antiphon.adapters.base import RenderedLine, Rested, render
from antiphon.adapters.naming.call_ids import CallIds
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.adapters.requests.conversion import convert
from antiphon.adapters.requests.parsing import number
from antiphon.core.blocks import Block, Image, Message, Role, Text, ToolCall, ToolResult
from antiphon.core.ids import CallId
from antiphon.core.inputs import Memory, Retrieved
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.graph import check
from antiphon.errors import AntiphonError, InvalidInput, SequenceRejected
from tests.support.everywhere import DIALECTS, EXACT, TALK, TOOLS, fingerprints, rendered
from tests.support.lines import KEY, PNG, answer, asks, call, line, model, system, user
from tests.support.published_types import problems

for_every_dialect = pytest.mark.parametrize("dialect", DIALECTS)


def body(dialect: str, messages: Sequence[Message]) -> bytes:
    return rendered(dialect, messages).request.body


# Histories that may be sent anywhere.

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), min_size=1, max_size=9)
spoken = texts.filter(lambda text: bool(text.strip())).map(lambda text: f"{text}.")
ids = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=70)
numbers = st.one_of(
    st.integers(-(10**25), 10**25).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=7).map(str),
    st.sampled_from(["1.10", "-0.0", "1E+2", "0.1000000000000000055", "5e-324"]),
)
arguments = st.lists(
    st.tuples(texts.map(lambda t: json.dumps(t, ensure_ascii=False)), numbers),
    max_size=3,
    unique_by=lambda p: p[0],
)
given_arguments = arguments.map(lambda pairs: "{" + ",".join(f"{k}:{v}" for k, v in pairs) + "}")


@st.composite
def histories(draw: st.DrawFn, *, ending: str = "") -> list[Message]:
    """Turns of a user, some with calls and their results, and a user's message at the end."""
    call_ids = iter(draw(st.lists(ids, min_size=9, max_size=9, unique=True)))
    said: list[Message] = [system(draw(spoken))] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, 3))):
        said.append(user(draw(spoken), *draw(pictures)))
        for _ in range(draw(st.integers(0, 1))):
            calls = [
                call(
                    next(call_ids),
                    draw(st.sampled_from(["look", "find_it"])),
                    draw(given_arguments),
                )
                for _ in range(draw(st.integers(1, 3)))
            ]
            said.append(asks(*calls, text=draw(st.one_of(st.just(""), spoken))))
            said += (answer(c.call_id, draw(spoken)) for c in calls)
        said.append(model(draw(spoken)))
    return line(*said, user(draw(spoken) + ending))


pictures = st.sampled_from([(), (), (Image(media_type="image/png", data=PNG),)])


# Bytes.


PROGRAM = "import json; from tests.support.everywhere import fingerprints; print(json.dumps(fingerprints()))"


@pytest.mark.req("M2", "M20")
def test_two_processes_with_other_hash_seeds_make_the_same_requests() -> None:
    made = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", PROGRAM],
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                check=True,
                timeout=60,
            ).stdout
        )
        for seed in ("1", "4242")
    ]
    assert made[0] == made[1] == fingerprints()


@for_every_dialect
@settings(max_examples=15)
@given(data=st.data())
def test_what_was_sent_is_the_beginning_of_what_is_sent_next(
    dialect: str, data: st.DataObject
) -> None:
    """This is what makes prompt caches hit."""
    first = data.draw(histories(ending=" [first]"))
    more = [asks("later:1", text="I look."), answer("later:1", "1"), user("And? [second]")]
    grown = line(*first, *more)
    for shorter, mark in ((first, b"[first]"), (grown, b"[second]")):
        before = body(dialect, shorter)
        after = body(dialect, line(*grown, model("So it is."), user("Thanks.")))
        assert after.startswith(before[: before.rindex(mark) + len(mark)])


@for_every_dialect
@settings(max_examples=15)
@given(data=st.data())
def test_a_line_that_grew_is_the_line_rendered_whole(dialect: str, data: st.DataObject) -> None:
    messages = data.draw(histories())
    growing = registry.get(dialect).line(Policy(model="m-1", profile=dialect), TOOLS, key=KEY)
    for number_, message in enumerate(messages, 1):
        growing.feed(message)
        if message.role is Role.USER:
            here = growing.finish()
            assert here == rendered(dialect, messages[:number_])
            branch = growing.copy()
            branch.feed(line(*messages[:number_], model("Elsewhere."))[-1])
            assert growing.finish() == here


# There and back.


@dataclass(frozen=True)
class Told:
    """What a history says, whatever the wire calls its parts."""

    said: tuple[tuple[str, str], ...]
    calls: tuple[tuple[str, str], ...]
    results: tuple[tuple[int, str], ...]


def told(messages: Sequence[Message]) -> Told:
    """Return what is said, by whom; each call; each result, by the number of its call."""
    calls = [block for _, block in _blocks(messages) if isinstance(block, ToolCall)]
    numbers_ = {made.call_id: n for n, made in enumerate(calls)}
    return Told(
        tuple(_said(messages)),
        tuple((made.name, made.arguments) for made in calls),
        tuple(
            (numbers_[block.call_id], "".join(p.text for p in block.content if isinstance(p, Text)))
            for _, block in _blocks(messages)
            if isinstance(block, ToolResult)
        ),
    )


def _blocks(messages: Sequence[Message]) -> Iterator[tuple[Role, Block]]:
    for message in messages:
        for block in message.blocks:
            yield message.role, block


def _said(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    for role, block in _blocks(messages):
        who = "system" if role is Role.DEVELOPER else role.value
        if isinstance(block, Text) and block.text:
            yield who, block.text
        elif isinstance(block, Image):
            yield who, str(block.data)


def exact(data: bytes) -> Any:
    return json.loads(data, parse_float=number)


@pytest.mark.req("M2", "M31", "M42")
@for_every_dialect
@settings(max_examples=20)
@given(data=st.data())
def test_what_is_read_back_says_the_same_and_renders_to_the_same_bytes(
    dialect: str, data: st.DataObject
) -> None:
    messages = data.draw(histories())
    made = rendered(dialect, messages)
    assert problems(dialect, made.request.body) == []
    parsed = registry.get(dialect).parse(exact(made.request.body))
    assert (parsed.findings, parsed.uncarried) == ((), ())
    assert told(parsed.messages) == told(messages)
    assert [tool.name for tool in parsed.tools] == [tool.name for tool in TOOLS]
    again = convert(parsed, registry.get(dialect), source=dialect, model="m-1")
    stream = rendered(dialect, messages, stream=parsed.policy.stream)
    assert again.request.body == stream.request.body
    assert {m.rule for m in again.mappings} <= {m.rule for m in made.mappings}


@pytest.mark.req("M2", "M42")
@settings(max_examples=80)
@given(messages=histories(), source=st.sampled_from(DIALECTS), target=st.sampled_from(DIALECTS))
def test_a_request_of_any_dialect_says_the_same_in_any_other(
    messages: list[Message], source: str, target: str
) -> None:
    parsed = registry.get(source).parse(exact(body(source, messages)))
    there = convert(parsed, registry.get(target), source=source, model="m-1")
    assert problems(target, there.request.body) == []
    back = registry.get(target).parse(exact(there.request.body))
    assert told(back.messages) == told(messages)


@pytest.mark.req("M31")
@for_every_dialect
def test_the_numbers_of_arguments_come_through_digit_for_digit(dialect: str) -> None:
    made = body(dialect, line(user(), asks(call("c1", "look", EXACT)), answer("c1"), user()))
    plain = made.replace(b"\\", b"")
    for digits in (
        b"12345678901234567890",
        b":1e400",
        b":1.10",
        b"3.14159265358979323846264",
        b":-0.0",
    ):
        assert digits in plain
    sane = EXACT.replace('"most":1e400,', "")
    made = body(dialect, line(user(), asks(call("c1", "look", sane)), answer("c1"), user()))
    (asked,) = [
        b
        for _, b in _blocks(registry.get(dialect).parse(exact(made)).messages)
        if isinstance(b, ToolCall)
    ]
    assert asked.arguments == sane


# Ids and names.


@pytest.mark.req("M26", "M31")
@for_every_dialect
@settings(max_examples=25)
@given(drawn=st.lists(ids, min_size=2, max_size=40, unique=True))
def test_respelled_ids_are_legal_and_stable_and_no_two_the_same(
    dialect: str, drawn: list[str]
) -> None:
    profile = registry.get(dialect).profile
    names = CallIds(profile)
    wire = [names.sent_as(CallId(given_id)) for given_id in drawn]
    assert len(set(wire)) == len(wire)
    assert [names.sent_as(CallId(given_id)) for given_id in drawn] == wire
    later = CallIds(profile)
    assert [later.sent_as(CallId(given_id)) for given_id in drawn[:2]] == wire[:2]
    for given_id, sent in zip(drawn, wire, strict=True):
        pattern, most = profile.call_id_pattern, profile.call_id_safe or profile.call_id_max
        assert pattern is None or re.fullmatch(pattern, sent)
        assert most is None or len(sent) <= most
        # What may stay is left alone, unless another id was given that very spelling before.
        legal = (pattern is None or re.fullmatch(pattern, given_id)) and (
            most is None or len(given_id) <= most
        )
        assert sent == given_id or not legal or given_id in wire


@pytest.mark.req("M31")
@for_every_dialect
def test_an_id_that_looks_like_a_respelled_one_takes_nothing_from_it(dialect: str) -> None:
    """Somebody may have stored what was on the wire, beside the id that it stood for."""
    odd = CallId("an id: too long, with signs that few dialects take, and ümlauts " * 2)
    spelled = CallIds(registry.get(dialect).profile).sent_as(odd)
    if spelled == odd:
        return
    for order in ((odd, spelled), (spelled, odd)):
        messages = line(user(), asks(*order), *(answer(i, f"of {i}") for i in order), user())
        parsed = registry.get(dialect).parse(exact(body(dialect, messages)))
        assert told(parsed.messages).results == tuple((n, f"of {i}") for n, i in enumerate(order))


ODD = ("files.read", "two words", "ünïcode", "1st", "-x", "semi;colon", "\n", "a" * 80, "a" * 200)

names = st.one_of(
    st.text("abz_-.:19 é", min_size=1, max_size=4),  # few letters, so that they nearly meet
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=140),
)


def offers(*named: str) -> list[ToolDeclaration]:
    return [ToolDeclaration(name=name) for name in named]


def takes(dialect: str, name: str) -> bool:
    pattern = registry.get(dialect).profile.tool_name_pattern
    return pattern is None or re.fullmatch(pattern, name) is not None


def on_the_wire(dialect: str, name: str) -> str:
    """Return what the only tool that is declared is called in a request."""
    made = render(registry.get(dialect), line(user()), Policy(model="m-1"), offers(name), key=KEY)
    (sent,) = registry.get(dialect).parse(exact(made.request.body)).tools
    return sent.name


def can_choose(dialect: str) -> bool:
    try:
        rendered(dialect, TALK, tool_choice="tool:look")
    except InvalidInput:
        return False
    return True


@pytest.mark.req("M31")
@for_every_dialect
@settings(max_examples=25)
@given(data=st.data())
def test_respelled_names_are_legal_and_nobody_elses_in_whatever_order_they_are_declared(
    dialect: str, data: st.DataObject
) -> None:
    profile = registry.get(dialect).profile
    drawn = data.draw(st.lists(names, min_size=1, max_size=6, unique=True))
    # Somebody may bear the very name that another one would be sent by.
    taken = [ToolNames(profile, offers(name)).sent_as(name) for name in drawn]
    everyone = data.draw(st.permutations(list(dict.fromkeys(drawn + taken))))
    declared = everyone[: data.draw(st.integers(0, len(everyone)))]
    spelled = ToolNames(profile, offers(*declared))
    wire = {name: spelled.sent_as(name) for name in everyone}
    assert len(set(wire.values())) == len(wire)
    assert {spelled.ours[theirs]: theirs for theirs in wire.values()} == wire
    assert all(takes(dialect, theirs) for theirs in wire.values())
    for name in declared:
        assert wire[name] == name or not takes(dialect, name)
    again = ToolNames(profile, offers(*data.draw(st.permutations(declared))))
    assert {name: again.sent_as(name) for name in declared} == {n: wire[n] for n in declared}
    assert {name: spelled.sent_as(name) for name in everyone} == wire


@for_every_dialect
@pytest.mark.parametrize("choice", ["tool:{}", None])
@pytest.mark.parametrize("name", ODD)
def test_a_tool_of_any_name_is_declared_chosen_called_and_answered_by_one_that_is_legal(
    dialect: str, name: str, choice: str | None
) -> None:
    adapter = registry.get(dialect)
    asked = asks(call("c1", "look"), call("c2", name))
    messages = line(user(), asked, answer("c1", "of c1"), answer("c2", "of c2"), user())
    policy = Policy(model="m-1", tool_choice=choice and choice.format(name))
    if choice is not None and not can_choose(dialect):
        return
    made = render(adapter, messages, policy, offers("look", name), key=KEY)
    assert problems(dialect, made.request.body) == []
    parsed = adapter.parse(exact(made.request.body))
    looked, sent = (tool.name for tool in parsed.tools)
    assert takes(dialect, sent)
    assert (looked, sent == name) == ("look", takes(dialect, name))
    assert check(parsed.messages, adapter.profile, mapped=False, tools=parsed.tools) == ()
    assert parsed.policy.tool_choice == (choice and choice.format(sent))
    assert [called for called, _ in told(parsed.messages).calls] == ["look", sent]
    assert told(parsed.messages).results == ((0, "of c1"), (1, "of c2"))
    mapped = [(m.block, m.detail) for m in made.mappings if m.rule == "tool_name_respelled"]
    told_of = f"{name} as {sent}"
    respelled = [("tools[1]", told_of), (f"{messages[1].id}.1", told_of)]
    assert mapped == (respelled if sent != name else [])
    if sent != name:  # nowhere else either, such as beside its result
        assert json.dumps(name, ensure_ascii=False).encode() not in made.request.body


@for_every_dialect
@pytest.mark.parametrize("name", ODD)
def test_a_request_with_such_a_name_is_refused_as_it_stands(dialect: str, name: str) -> None:
    """Somebody else's request goes out as it is; it is ours alone that we may spell otherwise."""
    profile = registry.get(dialect).profile
    declared = check(line(user()), profile, mapped=False, tools=offers("look", name))
    asked = line(user(), asks(call("c1", name)), answer("c1"), user())
    called = check(asked, profile, mapped=False, tools=offers("look"))
    for found in (declared, called):
        assert ("bad_tool_name" in {f.code for f in found}) is not takes(dialect, name)
    assert check(asked, profile, tools=offers("look", name)) == ()


@for_every_dialect
def test_a_name_that_comes_later_moves_nothing_that_was_sent(dialect: str) -> None:
    """A history that began elsewhere calls what is not declared here, by names that meet here."""
    sent = on_the_wire(dialect, "files.read")
    first = line(user(), asks(call("c1", "files.read")), answer("c1"), user("And? [first]"))
    grown = line(*first, asks(call("c2", sent)), answer("c2"), asks(call("c3", "files.read")), answer("c3"), user())  # fmt: skip
    before, after = body(dialect, first), body(dialect, grown)
    mark = b"[first]"
    assert after.startswith(before[: before.rindex(mark) + len(mark)])
    calls = [called for called, _ in told(registry.get(dialect).parse(exact(after)).messages).calls]
    assert (calls[0], calls[2]) == (sent, sent)
    assert (calls[1] == sent) is (sent == "files.read")


@for_every_dialect
def test_what_another_branch_calls_takes_no_name_from_this_one(dialect: str) -> None:
    begun = registry.get(dialect).line(Policy(model="m-1", profile=dialect), TOOLS, key=KEY)
    here = line(user(), asks(call("c1", "files.read")), answer("c1"), user())
    there = line(user(), asks(call("c2", on_the_wire(dialect, "files.read"))), answer("c2"), user())
    begun.feed(here[0])
    for branch, messages in ((begun.copy(), there), (begun, here)):
        for message in messages[1:]:
            branch.feed(message)
        assert branch.finish() == rendered(dialect, messages)


@for_every_dialect
def test_a_tool_without_a_name_is_given_none(dialect: str) -> None:
    if registry.get(dialect).profile.tool_name_pattern is None:
        return
    with pytest.raises(SequenceRejected) as refused:
        render(registry.get(dialect), line(user()), Policy(model="m-1"), offers(""), key=KEY)
    assert refused.value.code == "bad_tool_name"


# Bad input: a code, never a crash and never silence.


@for_every_dialect
@pytest.mark.parametrize(
    "messages",
    [
        line(user("half a \ud83d")),
        line(user(), asks(call("c1", "look", '{"a":"\ud83d"}')), answer("c1")),
        line(user(), asks("c1"), answer("c1", "half a \ude00")),
        line(system("\ud83d"), user()),
    ],
    ids=["user", "arguments", "result", "system"],
)
def test_half_a_character_is_refused_by_name(dialect: str, messages: list[Message]) -> None:
    with pytest.raises(InvalidInput) as refused:
        rendered(dialect, messages)
    assert refused.value.code == "invalid_unicode"


@pytest.mark.req("M47")
@for_every_dialect
def test_nothing_at_all_is_refused_by_its_rule(dialect: str) -> None:
    with pytest.raises(SequenceRejected) as refused:
        rendered(dialect, [])
    assert refused.value.code == "empty_sequence"


NOTHINGS: tuple[Any, ...] = (None, "", [], {}, 0, False, "x", [None], [[]], [{}], [0], [""])


def containers(dialect: str) -> tuple[str, ...]:
    return tuple(
        name
        for name, value in exact(body(dialect, TALK)).items()
        if isinstance(value, list | dict | str)
    )


@for_every_dialect
@pytest.mark.parametrize("nothing", NOTHINGS, ids=repr)
def test_an_empty_or_odd_field_is_read_or_refused_with_a_code(dialect: str, nothing: Any) -> None:
    whole = exact(body(dialect, TALK))
    for field in containers(dialect):
        _read_or_refused(dialect, {**whole, field: nothing})
    _read_or_refused(dialect, {})


@for_every_dialect
def test_an_odd_value_anywhere_in_a_request_is_read_or_refused_with_a_code(dialect: str) -> None:
    whole = exact(body(dialect, TALK[:4]))
    for place in _places(whole):
        for nothing in NOTHINGS:
            _read_or_refused(dialect, _with(whole, place, nothing))


def _read_or_refused(dialect: str, request: dict[str, Any]) -> None:
    try:
        parsed = registry.get(dialect).parse(request)
        convert(parsed, registry.get(dialect), source=dialect, model="m-1")
    except AntiphonError as error:
        refused = error
    else:
        return
    assert refused.exit_code in (2, 3)
    assert refused.code
    assert refused.message


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in inner:
        yield (*at, key)
        yield from _places(item, (*at, key))


def _with(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    changed = value.copy()
    changed[place[0]] = _with(value[place[0]], place[1:], new)
    return changed


@for_every_dialect
def test_arguments_and_schemas_of_great_depth_are_carried_or_refused_with_a_code(
    dialect: str,
) -> None:
    deep = '{"a":' * 2000 + "1" + "}" * 2000
    for messages, tools in (
        (line(user(), asks(call("c1", "look", deep)), answer("c1"), user()), TOOLS),
        (line(user()), (ToolDeclaration(name="look", parameters=msgspec.Raw(deep.encode())),)),
    ):
        try:
            render(registry.get(dialect), messages, Policy(model="m-1"), tools, key=KEY)
            code = None
        except AntiphonError as error:
            code = error.code
        assert code in (None, "unclosed_arguments", "schema_unsupported", "too_deep")


@pytest.mark.req("M44", "M112")
@for_every_dialect
def test_what_stands_beside_a_message_is_text_of_that_users_message(dialect: str) -> None:
    adapter = registry.get(dialect)
    remembered = Memory(id="k", key="language", text="中文", scope="local")
    passage = Retrieved(id="r", source="tides.md", text="High water at six.", scope="conv_here")
    policy = Policy(model="m", instructions="Be brief.", max_output_tokens=9, context=(remembered,))
    talk = line(user("Hello."), model("Hi."), user("When is high water?"))
    rendered_line = adapter.line(policy, (), key=KEY)
    for message in talk:
        rendered_line.feed(message, inputs=(passage,) if message is talk[-1] else ())
    request = json.dumps(json.loads(rendered_line.finish().request.body), ensure_ascii=False)
    first, second, last = (request.index(word) for word in ("Hello.", "Hi.", "When is"))
    assert request.index("Be brief.") < request.index("中文") < first < second
    assert second < request.index("High water at six.") < last
    assert (request.count("<ctx>"), request.count("<user_input>")) == (2, 2)

    alone = adapter.line(msgspec.structs.replace(policy, context=()), (), key=KEY)
    for message in talk:
        alone.feed(message)
    assert "<user_input>" not in alone.finish().request.body.decode()


@pytest.mark.req("M32", "M123")
@for_every_dialect
def test_what_was_found_for_a_message_leaves_the_bytes_before_it_as_they_were(dialect: str) -> None:
    adapter = registry.get(dialect)
    talk = line(user("One?"), model("One."), user("Two?"), model("Two."), user("Three?"))
    found = {
        message.id: (Retrieved(id="r", source=message.id, text="So it is.", scope="conv_here"),)
        for message in talk
        if message.role is Role.USER
    }
    growing = adapter.line(Policy(model="m", max_output_tokens=9), (), key=KEY)
    bodies = []
    for message in talk:
        growing.feed(message, inputs=found.get(message.id, ()))
        if message.role is Role.USER:
            bodies.append(growing.finish().request.body)
    for before, after in itertools.pairwise(bodies):
        assert after.startswith(before[: before.rindex(b"/user_input")])


# Calls of one message that come before the results of another's.


def calling(name: str) -> Message:
    return asks(call(name, arguments=json.dumps({"q": f"asked-{name}"})))


def answered(name: str) -> Message:
    return answer(name, f"told-{name}")


@for_every_dialect
@pytest.mark.parametrize("order", ["abab", "abba"])
@pytest.mark.parametrize(
    "between", [None, model("Wait."), user("Hurry!")], ids=["", "text", "user"]
)
def test_no_result_goes_out_before_the_call_that_it_answers_wherever_the_call_stands(
    dialect: str, order: str, between: Message | None
) -> None:
    first, second, *results = list(order)
    said = [calling(first), *([between] if between else []), calling(second)]
    sent, refused = b"", None
    try:
        sent = body(dialect, line(user("Go."), *said, *map(answered, results), user("And?")))
    except SequenceRejected as error:
        refused = error.code
    assert refused in (None, "result_not_adjacent"), "and for nothing else"
    if refused is not None:
        return
    for name in "ab":
        assert 0 < sent.find(b"asked-" + name.encode()) < sent.find(b"told-" + name.encode())
    if between is not None:
        text = between.text.encode()
        assert sent.find(text) < sent.find(b"asked-b"), "what was said first stays first"


# A line that rests is told of, and goes on from what was told.


def empty(dialect: str) -> RenderedLine:
    beside = (Memory(id="1", scope="tenant", key="name", text="Ann"),)
    policy = Policy(model="m-1", profile=dialect, instructions="Say little.", context=beside)
    return registry.get(dialect).line(policy, TOOLS, key=KEY)


def told_of(dialect: str, said: Sequence[Message]) -> tuple[RenderedLine, list[Rested], int]:
    """Feed a line; return it, all that it told where it rested, and where that was last."""
    fed = empty(dialect)
    told: list[Rested] = []
    at = 0
    for n, message in enumerate(said):
        rested = fed.rested(1) if message.role is Role.USER else None
        if rested is not None:
            told.append(rested)
            at = n
        fed.feed(message)
    return fed, told, at


def everything(made: RenderedLine) -> tuple[object, ...]:
    try:
        request = made.finish()
    except SequenceRejected as refused:
        return tuple(refused.findings)
    ours = made.tool_names.ours
    return request.request, request.request_digest, request.sequence_digest, request.mappings, ours


@for_every_dialect
@settings(max_examples=10)
@given(said=histories(), again=st.sampled_from(["", "look", "id", "twice", "system"]))
def test_a_line_goes_on_from_what_was_told_as_if_all_of_it_had_been_read(
    dialect: str, said: list[Message], again: str
) -> None:
    """Also where what follows is illegal, spelled anew, or moves all that was before it."""
    first = said[0].id
    calls = [block for message in said for block in message.calls]
    more: list[Message] = [model("So it is.")]
    if again == "look":
        more = [asks(call("later:1", "look"), text="I look."), answer("later:1", "1"), *more]
    elif again == "id" and calls:
        more = [asks(calls[0], text="Once more."), answer(calls[0].call_id, "1"), *more]
    elif again == "system":
        more = [*more, user("Go on."), system("Be brief."), user("Now."), model("Yes.")]
    whole = line(*said, *more, user("And?"))
    if again == "twice":
        whole[-1] = msgspec.structs.replace(whole[-1], id=first)
    fed, told, at = told_of(dialect, whole)
    assert told or len(said) < 3
    if told:
        stored = msgspec.msgpack.encode(told)
        resumed = empty(dialect)
        resumed.resume(msgspec.msgpack.decode(stored, type=list[Rested]), whole[at - 1])
        for message in whole[at:]:
            resumed.feed(message)
        assert everything(resumed) == everything(fed)


@for_every_dialect
def test_a_line_that_goes_on_knows_which_ids_it_has_given_away(dialect: str) -> None:
    """A later call may come with the very id that an earlier one was given in its stead."""
    foreign = CallId("somebody's:" + "x" * 70)
    taken = CallId(CallIds(registry.get(dialect).profile).sent_as(foreign))
    begun = [user("Go."), asks(call(foreign, "look")), answer(foreign, "1"), model("So it is.")]
    more = [user("And?"), asks(call(f"{taken}", "look")), answer(taken, "2"), model("Too.")]
    whole = line(*begun, *(more if taken != foreign else more[:1]), user("Thanks."))
    fed, told, _ = told_of(dialect, whole)
    resumed = empty(dialect)
    resumed.resume(told[:1], whole[len(begun) - 1])
    for message in whole[len(begun) :]:
        resumed.feed(message)
    assert everything(resumed) == everything(fed)
