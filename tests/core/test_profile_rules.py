"""The rules that one dialect has. For each code the least that breaks it, and the least that does not.

Each example names the fact that switches its rule on, and whether rendering maps it safely: then
the mapped reading has to be silent about it, and only then.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from antiphon.adapters.openai_chat.profile import OPENAI_CHAT
from antiphon.core.blocks import (
    Audio,
    File,
    Image,
    Message,
    Reasoning,
    Refusal,
    Role,
    Text,
)
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.rules.findings import Severity
from antiphon.core.rules.graph import check
from antiphon.core.rules.profile import Echo, Profile, with_facts
from antiphon.errors import InvalidInput
from tests.support.lines import PNG, answer, asks, call, line, model, said, system, user

OTHER_DIALECTS = {
    "response_count_mismatch",
    "item_order",
    "lost_signature",
    "thinking_missing",
    "thinking_modified",
    "reasoning_unpaired",
    "foreign_reasoning",
    "over_window",
}
"""Codes of dialects that are not spoken yet, and of the planner."""


def tool(
    name: str = "look", parameters: str = '{"type":"object"}', strict: bool | None = None
) -> ToolDeclaration:
    return ToolDeclaration(name=name, parameters=msgspec.Raw(parameters.encode()), strict=strict)


@dataclass(frozen=True, kw_only=True)
class Example:
    code: str
    at: str
    broken: list[Message]
    whole: list[Message]
    facts: dict[str, object] | None = None
    change: dict[str, object] | None = None
    tools: tuple[ToolDeclaration, ...] = ()
    whole_tools: tuple[ToolDeclaration, ...] | None = None
    mapped: bool = False

    @property
    def profile(self) -> Profile:
        base = with_facts(OPENAI_CHAT, self.facts or {})
        return msgspec.structs.replace(base, **(self.change or {}))


IMAGE = Image(media_type="image/png", data=PNG)
CLOSED = '{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}'
EXAMPLES = [
    Example(
        code="role_unsupported",
        at="m1",
        facts={"roles": ["system", "user", "assistant", "tool"]},
        broken=line(said(Role.DEVELOPER, "Ring a bell."), user()),
        whole=line(system("Ring a bell."), user()),
        mapped=True,
    ),
    Example(
        code="role_unsupported",
        at="m3",
        facts={"roles": ["system", "user", "assistant"]},
        broken=line(user(), asks("a"), answer("a")),
        whole=line(user(), model()),
    ),
    Example(
        code="system_not_first",
        at="m2",
        facts={"system_position": "first"},
        broken=line(user(), system(), user()),
        whole=line(system(), user(), user()),
        mapped=True,
    ),
    Example(
        code="role_order",
        at="m2",
        facts={"alternation": "strict"},
        broken=line(user("one"), user("two")),
        whole=line(user("one"), model(), user("two")),
        mapped=True,
    ),
    Example(
        code="role_order",
        at="m1",
        facts={"alternation": "strict", "roles": ["user", "assistant"]},
        broken=line(system(), user()),
        whole=line(user(), model(), user()),
        mapped=True,
    ),
    Example(
        # Calls stand between them, so they cannot be merged.
        code="role_order",
        at="m4",
        facts={"alternation": "strict"},
        broken=line(user(), asks("a"), answer("a"), user()),
        whole=line(user(), asks("a"), answer("a"), model(), user()),
    ),
    Example(
        code="role_order",
        at="m5",
        facts={"alternation": "strict"},
        broken=line(user(), asks("a"), answer("a"), model("one"), model("two")),
        whole=line(user(), asks("a"), answer("a"), model("one and two")),
        mapped=True,
    ),
    Example(
        code="role_order",
        at="m4",
        facts={"after_tool": ["assistant"]},
        broken=line(user(), asks("a"), answer("a"), user()),
        whole=line(user(), asks("a", "b"), answer("a"), answer("b"), model()),
    ),
    Example(
        code="must_start_with_user",
        at="m2",
        change={"starts_with_user": True},
        broken=line(system(), model(), user()),
        whole=line(system(), user(), model()),
    ),
    Example(
        code="must_start_with_user",
        at="m1",
        change={"starts_with_user": True},
        broken=line(asks("a"), answer("a")),
        whole=line(user(), asks("a"), answer("a")),
    ),
    Example(
        code="must_end_with_user",
        at="m2",
        facts={"prefill": "unsupported"},
        broken=line(user(), model()),
        whole=line(user(), asks("a"), answer("a")),
    ),
    Example(
        code="empty_content",
        at="m1",
        broken=line(said(Role.USER)),
        whole=line(user("")),
    ),
    Example(
        code="empty_content",
        at="m2",
        broken=line(user(), said(Role.ASSISTANT)),
        whole=line(user(), asks("a"), answer("a")),
        mapped=True,
    ),
    Example(
        code="empty_content",
        at="m1.1",
        change={"blank_text": False},
        broken=line(user("x", " \n")),
        whole=line(user("x", "y")),
        mapped=True,
    ),
    Example(
        code="block_not_allowed",
        at="m1.0",
        broken=line(said(Role.SYSTEM, IMAGE)),
        whole=line(user(IMAGE, Audio(data="AA==", format="wav"), File(file_id="file_1"))),
    ),
    Example(
        code="block_not_allowed",
        at="m2.1",
        broken=line(user(), model("x", IMAGE)),
        whole=line(user(), model("x", Refusal(text="No."))),
    ),
    Example(
        code="block_not_allowed",
        at="m2.0",
        broken=line(user(), model(Reasoning(text="hm"), "x")),
        whole=line(user(), model("x")),
        mapped=True,
    ),
    Example(
        code="image_in_tool_result",
        at="m3.0[1]",
        broken=line(user(), asks("a"), answer("a", "here", IMAGE)),
        whole=line(user(), asks("a"), answer("a", "here"), user(IMAGE)),
        mapped=True,
    ),
    Example(
        # Nothing but the assistant may come behind the result, so there is no room for it.
        code="image_in_tool_result",
        at="m3.0[1]",
        facts={"after_tool": "assistant"},
        broken=line(user(), asks("a"), answer("a", "here", IMAGE), model()),
        whole=line(user(), asks("a"), answer("a", "here"), model()),
    ),
    Example(
        code="result_not_adjacent",
        at="m4.0",
        facts={"after_tool": "assistant"},
        broken=line(user(), asks("a"), user("hurry"), answer("a"), model()),
        whole=line(user("hurry"), asks("a"), answer("a"), model()),
    ),
    Example(
        code="result_not_adjacent",
        at="m4.0",
        broken=line(user(), asks("a"), user("hurry"), answer("a")),
        whole=line(user(), asks("a"), answer("a"), user("hurry")),
        mapped=True,
    ),
    Example(
        # The message between asks for calls itself: moving it would move calls.
        code="result_not_adjacent",
        at="m4.0",
        broken=line(user(), asks("a"), asks("b"), answer("a"), answer("b")),
        whole=line(user(), asks("a"), answer("a"), asks("b"), answer("b")),
    ),
    Example(
        code="result_order",
        at="m3.0",
        change={"results_in_call_order": True},
        broken=line(user(), asks("a", "b"), answer("b"), answer("a")),
        whole=line(user(), asks("a", "b"), answer("a"), answer("b")),
        mapped=True,
    ),
    Example(
        code="bad_call_id",
        at="m2.0",
        facts={"call_id_pattern": "^[a-zA-Z0-9]{9}$"},
        broken=line(user(), asks("call_1234"), answer("call_1234")),
        whole=line(user(), asks("call12345"), answer("call12345")),
        mapped=True,
    ),
    Example(
        code="call_id_too_long",
        at="m2.0",
        facts={"call_id_max": 8},
        broken=line(user(), asks("123456789"), answer("123456789")),
        whole=line(user(), asks("12345678"), answer("12345678")),
        mapped=True,
    ),
    Example(
        code="call_id_too_long",
        at="m2.0",
        broken=line(user(), asks("x" * 65), answer("x" * 65)),
        whole=line(user(), asks("x" * 40), answer("x" * 40)),
        mapped=True,
    ),
    Example(
        code="bad_tool_name",
        at="m2.0",
        broken=line(user(), asks(call("a", name="files.read")), answer("a")),
        whole=line(user(), asks(call("a", name="f" * 64)), answer("a")),
        mapped=True,
    ),
    Example(
        code="bad_tool_name",
        at="tools[1]",
        broken=line(user()),
        whole=line(user()),
        tools=(tool(), tool("f" * 65)),
        whole_tools=(tool(), tool("files-read_2")),
        mapped=True,
    ),
    Example(
        code="bad_tool_name",
        at="tools[0]",
        broken=line(user()),
        whole=line(user()),
        tools=(tool(""),),
        whole_tools=(tool("a"),),
    ),
    Example(
        code="bad_tool_name",
        at="tools[1]",
        broken=line(user()),
        whole=line(user()),
        tools=(tool("a"), tool("a")),
        whole_tools=(tool("a"), tool("b")),
    ),
    Example(
        code="schema_unsupported",
        at="tools[0]",
        broken=line(user()),
        whole=line(user()),
        tools=(tool(parameters="[]"),),
        whole_tools=(tool(parameters="{}"),),
    ),
    Example(
        code="schema_unsupported",
        at="tools[0]",
        broken=line(user()),
        whole=line(user()),
        tools=(tool(parameters=CLOSED.replace('["a"]', "[]"), strict=True),),
        whole_tools=(tool(parameters=CLOSED, strict=True), tool("open", strict=False)),
    ),
    Example(
        code="too_many_blocks",
        at="tools",
        broken=line(user()),
        whole=line(user()),
        tools=tuple(tool(f"t{n}") for n in range(129)),
        whole_tools=tuple(tool(f"t{n}") for n in range(128)),
    ),
    Example(
        code="too_many_blocks",
        at="m1",
        change={"max_blocks": 2},
        broken=line(user("a", "b", "c")),
        whole=line(user("a", "b")),
    ),
    Example(
        code="tool_config_missing",
        at="m2.0",
        change={"tools_declared": True},
        broken=line(user(), asks("a"), answer("a")),
        whole=line(user(), model()),
    ),
    Example(
        code="lost_reasoning",
        at="m2",
        change={"reasoning": Echo.WITH_CALLS, "kinds": {**OPENAI_CHAT.kinds, Role.ASSISTANT: frozenset({"text", "tool_call", "reasoning"})}},
        broken=line(user(), asks("a"), answer("a"), model()),
        whole=line(user(), said(Role.ASSISTANT, Reasoning(text="hm"), call("a")), answer("a"), model()),
        mapped=True,
    ),
]  # fmt: skip


@pytest.mark.req("M2", "M20", "M24", "M42", "M48")
@pytest.mark.parametrize("example", EXAMPLES, ids=[f"{n}-{e.code}" for n, e in enumerate(EXAMPLES)])
def test_each_rule_finds_what_breaks_it_and_nothing_else(example: Example) -> None:
    profile = example.profile
    first = check(example.broken, profile, mapped=False, tools=example.tools)[0]
    assert (first.code, first.at) == (example.code, example.at)
    assert first.severity is Severity.ERROR
    assert len(first.message) > 20
    whole_tools = example.tools if example.whole_tools is None else example.whole_tools
    assert check(example.whole, profile, mapped=False, tools=whole_tools) == ()

    mapped = check(example.broken, profile, mapped=True, tools=example.tools)
    assert (mapped == ()) is example.mapped
    assert check(example.whole, profile, mapped=True, tools=whole_tools) == ()


def test_every_code_of_this_release_has_an_example() -> None:
    contract = """role_unsupported system_not_first role_order must_start_with_user must_end_with_user
        empty_content block_not_allowed image_in_tool_result result_not_adjacent result_order
        response_count_mismatch item_order bad_call_id call_id_too_long bad_tool_name
        schema_unsupported tool_config_missing lost_signature lost_reasoning thinking_missing
        thinking_modified reasoning_unpaired foreign_reasoning too_many_blocks over_window"""
    assert {e.code for e in EXAMPLES} == set(contract.split()) - OTHER_DIALECTS


@pytest.mark.req("M2", "M48")
@pytest.mark.parametrize(
    "legal",
    [
        line(user(), system(), user(), said(Role.DEVELOPER, "x"), system()),
        line(user("one"), user("two"), model("three"), model("four")),
        line(user(), model("It begins")),
        line(model("Assistant first"), user()),
        line(system()),
        line(user(""), model("")),
        line(user(), asks("a", "b", text="Both."), answer("b"), answer("a"), system(), user()),
        line(user(), asks("a"), answer("a", ""), asks("b"), answer("b")),
    ],
    ids=[
        "system anywhere and often",
        "the same role twice",
        "assistant last",
        "assistant first",
        "system alone",
        "empty strings",
        "results in any order, system after them",
        "an empty result, calls on calls",
    ],
)
def test_what_this_provider_accepts_is_accepted(legal: list[Message]) -> None:
    assert check(legal, OPENAI_CHAT, mapped=False) == ()


def test_how_a_line_ends_is_found_at_its_very_end() -> None:
    prefill = with_facts(OPENAI_CHAT, {"prefill": "unsupported"})
    found = check(line(user(), model("a", Refusal(text="b"), IMAGE)), prefill, mapped=False)
    assert [(f.code, f.position) for f in found] == [
        ("block_not_allowed", 3),
        ("must_end_with_user", 3),
    ]


def test_a_call_id_that_some_deployments_refuse_is_noted_and_not_refused() -> None:
    asked = line(user(), asks("x" * 41), answer("x" * 41))
    (noted,) = check(asked, OPENAI_CHAT, mapped=False)
    assert (noted.code, noted.severity) == ("call_id_too_long", Severity.NOTE)
    assert check(line(user(), asks("x" * 40), answer("x" * 40)), OPENAI_CHAT, mapped=False) == ()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ('{"type":"object","properties":{"a":{}},"required":["a"]}', "additionalProperties"),
        ('{"type":"string"}', "type object"),
        ('{"type":"object","additionalProperties":false,"anyOf":[]}', "without anyOf"),
        (CLOSED.replace('{"type":"string"}', '{"type":"object"}'), ".a has to say"),
        (CLOSED.replace('{"type":"string"}', '{"type":"array","items":{"type":"object"}}'), ".items"),
        (CLOSED.replace('"type":"string"', '"anyOf":[{"type":"null"},{"type":"object"}]'), "anyOf[1]"),
        (CLOSED.replace("{", '{"$defs":{"d":{"type":"object"}},', 1), "$defs.d"),
    ],
)  # fmt: skip
def test_a_strict_schema_is_closed_all_the_way_down(schema: str, says: str) -> None:
    (found,) = check(line(user()), OPENAI_CHAT, tools=(tool(parameters=schema, strict=True),))
    assert found.code == "schema_unsupported"
    assert says in found.message


@pytest.mark.parametrize(
    ("facts", "code", "at"),
    [
        ({"call_ids": 5}, "unknown_fact", "model_profile.call_ids"),
        ({"call_id_max": 0}, "bad_fact", "model_profile.call_id_max"),
        ({"call_id_max": "9"}, "bad_fact", "model_profile.call_id_max"),
        ({"call_id_pattern": "(["}, "bad_fact", "model_profile.call_id_pattern"),
        ({"roles": ["robot"]}, "bad_fact", "model_profile.roles"),
        ({"roles": []}, "bad_fact", "model_profile.roles"),
        ({"prefill": "perhaps"}, "bad_fact", "model_profile.prefill"),
        ({"alternation": ["strict"]}, "bad_fact", "model_profile.alternation"),
        ({"after_tool": "nobody"}, "bad_fact", "model_profile.after_tool"),
        ({"thought_signatures": 1}, "bad_fact", "model_profile.thought_signatures"),
    ],
)
def test_a_fact_that_cannot_be_is_refused_by_name(
    facts: dict[str, object], code: str, at: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        with_facts(OPENAI_CHAT, facts)
    assert (caught.value.code, caught.value.at) == (code, at)


def test_facts_change_the_profile_and_nothing_but_the_profile() -> None:
    changed = with_facts(
        OPENAI_CHAT,
        {
            "call_id_max": 9,
            "prefill": "supported",
            "system_position": "anywhere",
            "alternation": None,
            "after_tool": "assistant",
            "thought_signatures": "first_call_of_each_step",
            "reasoning_echo": "always",
        },
    )
    assert changed.call_id_max == 9
    assert changed.after_tool == frozenset({Role.ASSISTANT})
    assert changed.reasoning is Echo.ALWAYS
    assert (changed.ends_with_user, changed.system_first, changed.alternation) == (False,) * 3
    assert with_facts(OPENAI_CHAT, {}) == OPENAI_CHAT
    assert OPENAI_CHAT.call_id_max == 64


def test_reasoning_may_stand_in_a_request_where_the_model_wants_it_back_and_nowhere_else() -> None:
    whole = line(user(), model(Reasoning(text="hm"), "ok"), user())
    for word, codes in {"with_calls": [], "kept": [], "never": ["block_not_allowed"]}.items():
        profile = with_facts(OPENAI_CHAT, {"reasoning_echo": word})
        assert [f.code for f in check(whole, profile, mapped=False)] == codes


@pytest.mark.req("M20", "M21")
def test_a_role_is_only_ever_mapped_to_one_of_no_more_authority() -> None:
    rank = {Role.SYSTEM: 2, Role.DEVELOPER: 2, Role.USER: 1, Role.ASSISTANT: 0, Role.TOOL: 0}
    for roles in (["user", "assistant"], ["system", "user"], ["developer", "user"], ["user"]):
        profile = with_facts(OPENAI_CHAT, {"roles": roles})
        for role in Role:
            spoken = profile.spoken_as(role)
            assert spoken is None or rank[spoken] <= rank[role]
            assert spoken is None or spoken is role or role in (Role.SYSTEM, Role.DEVELOPER)


def test_the_wire_tells_nothing_of_text_blocks_that_are_only_spaces() -> None:
    strict = msgspec.structs.replace(OPENAI_CHAT, blank_text=False)
    assert check(line(said(Role.USER, Text(text=" x "))), strict, mapped=False) == ()
