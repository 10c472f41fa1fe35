"""Cases of kind `context`: what is kept, what fits, and what the model is told beside the talk.

The sizes of a case are given and put to the planner as they are; where text is given, requests are
rendered and looked at as bytes.
"""

from __future__ import annotations

import html.parser
import json
from typing import Any, Final

from antiphon.adapters import registry
from antiphon.adapters.base import Rendering
from antiphon.core.blocks import (
    Message,
    Origin,
    Role,
    Text,
    ToolCall,
    ToolResult,
    default_trust,
)
from antiphon.core.ids import LOCAL_TENANT, CallId, ConversationId, MessageId
from antiphon.core.inputs import Retrieved
from antiphon.core.knowledge.envelope import enveloped, unescaped
from antiphon.core.knowledge.retrieval import (
    BROKEN,
    NO_MATCH,
    RETRIEVAL_FAILED,
    Passage,
    Question,
    read_beside,
)
from antiphon.core.manifest import Policy
from antiphon.core.planning.budget import Budget
from antiphon.core.planning.compaction import due
from antiphon.core.planning.plan import PromptPlan, Slot, plan
from antiphon.core.planning.prefix import common_prefix
from antiphon.core.planning.tokens import ESTIMATOR
from antiphon.core.planning.trace import BlockKind
from antiphon.core.planning.trimming import Candidate, candidate
from antiphon.core.rules.graph import check
from antiphon.errors import AntiphonError
from tests.cases.files import Case
from tests.cases.report import Result, keys_of
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider, says

HERE: Final = ConversationId("conv_case")
KEY: Final = b"k" * 32
COMPACT_AT: Final = 75

PROSE: Final = "The harbour master wrote that the tide would turn before noon. "


async def run_context(case: Case) -> Result:
    """Plan, render or look up what one case gives, and compare every key."""
    result = Result(id=case.id, kind=case.kind, keys=keys_of(case.kind, case.expect))
    given = case.given
    if "retrieval" in given:
        await _looked_up(case, result)
    elif "template" in given:
        _told_beside(case, result)
    elif "turns" in given:
        _rounds(case, result)
    elif "prompt_tokens" in given:
        _granted(case, result)
    else:
        _selected(case, result)
    return result


# Selection within a budget.


def _selected(case: Case, result: Result) -> None:
    given, expect = case.given, case.expect
    messages = _messages(given["messages"])
    line = [
        Candidate(
            id=message.id,
            role=message.role,
            tokens=raw["tokens"] if "tokens" in raw else candidate(message, ESTIMATOR).tokens,
            calls=tuple(call.call_id for call in message.calls),
            results=tuple(answer.call_id for answer in message.results),
            required=bool(raw.get("required")),
        )
        for message, raw in zip(messages, given["messages"], strict=True)
    ]
    slots = [
        Slot(kind=kind, id=name, tokens=tokens, required=True)
        for kind, name, tokens in (
            (BlockKind.SYSTEM_POLICY, "system", given.get("system", {}).get("tokens")),
            (BlockKind.TOOL_GUIDANCE, "tools", given.get("tools_tokens")),
        )
        if tokens is not None
    ]
    budget = _budget(given)
    keep_last = given.get("policy", {}).get("keep_last_messages")
    made = plan(line, slots, budget, keep_last=keep_last)
    again = plan(line, slots, budget, keep_last=keep_last)
    if made != again:
        result.wrong.append("planned twice, it is planned otherwise")
    whole = plan(line, slots, budget, trim=False)
    kept = [message for message in messages if message.id in made.kept]
    found = {
        "kept": list(made.kept),
        "kept_last": made.kept[-1],
        "first_kept_role": next(m.role for m in kept if m.role is not Role.SYSTEM).value,
        "system_kept": any(slot.id == "system" for slot in made.slots),
        "counted": _counted(made),
        "fits": whole.fits,
        "needs_compaction": due(whole.trace.total_tokens, budget.window, COMPACT_AT),
        "valid": not check(kept, registry.get(case.dialect).profile, key=KEY),
        "orphans": _orphans(kept),
    }
    costs = {one.id: one.tokens for one in line}
    for key, wanted in expect.items():
        match key:
            case "total_at_most" | "sent_total_at_most":
                result.check(key, _above(made.trace.total_tokens, wanted))
            case "kept_message_tokens_at_most":
                result.check(key, _above(sum(costs[name] for name in made.kept), wanted))
            case "estimate_of":
                result.check(key, _bounds(costs, wanted))
            case "kept_includes":
                result.check(key, _missing(wanted, made.kept))
            case "kept_excludes" | "dropped_includes":
                there = [name for name in wanted if name in made.kept]
                result.check(key, f"kept {there}" if there else None)
            case _ if key in found:
                result.check(key, _other(found[key], wanted))
            case _:
                pass  # not compared, and then the case is wrong


def _budget(given: dict[str, Any]) -> Budget:
    minimum = given.get("output_minimum", 0)
    return Budget(
        window=given.get("window", given.get("cap_tokens")),
        output=given.get("reserve_output"),
        output_minimum=minimum,
    )


def _counted(made: PromptPlan) -> list[str]:
    names = {
        BlockKind.SYSTEM_POLICY: "system",
        BlockKind.TOOL_GUIDANCE: "tools",
        BlockKind.TRANSCRIPT: "messages",
    }
    return [names[block.kind] for block in made.trace.blocks if block.tokens]


def _messages(raws: list[dict[str, Any]]) -> list[Message]:
    """Return the messages of a case; where only their size is given they hold prose of it."""
    made: list[Message] = []
    for raw in raws:
        role = Role(raw["role"])
        made.append(
            Message(
                id=MessageId(raw["id"]),
                conversation=HERE,
                parent=made[-1].id if made else None,
                role=role,
                blocks=_blocks(role, raw),
                origin=Origin.CLIENT,
                trust=default_trust(role, Origin.CLIENT),
            )
        )
    return made


def _blocks(role: Role, raw: dict[str, Any]) -> tuple[Text | ToolCall | ToolResult, ...]:
    text = Text(text=raw.get("text") or _prose(raw.get("content_chars", 8)))
    if role is Role.TOOL:
        return (ToolResult(call_id=CallId(raw["result_of"]), content=(text,)),)
    calls = tuple(
        ToolCall(
            call_id=CallId(call["id"]),
            name=call.get("name", "look"),
            arguments=json.dumps({"text": _prose(call.get("arguments_chars", 16) - 12)}),
        )
        for call in raw.get("tool_calls") or [{"id": name} for name in raw.get("calls", ())]
    )
    return calls or (text,)


def _prose(length: int) -> str:
    return (PROSE * (length // len(PROSE) + 1))[: max(1, length)]


def _orphans(kept: list[Message]) -> list[str]:
    asked = {call.call_id for message in kept for call in message.calls}
    return [r.call_id for m in kept for r in m.results if r.call_id not in asked]


def _granted(case: Case, result: Result) -> None:
    grant = _budget(case.given).grant(case.given["prompt_tokens"])
    for key, wanted in case.expect.items():
        match key:
            case "fits":
                result.check(key, _other(grant.fits, wanted))
            case "max_output_tokens_at_most":
                result.check(key, _above(grant.output_tokens or 0, wanted))
            case "max_output_tokens_at_least":
                result.check(key, _above(wanted, grant.output_tokens or 0))
            case _:
                pass


# Rounds that follow each other.


def _rounds(case: Case, result: Result) -> None:
    bodies = [_round(case, turn) for turn in case.given["turns"]]
    stable = [b["text"] for b in case.given["blocks"] if b["cacheable"]]
    moving = [b["text"] for b in case.given["blocks"] if not b["cacheable"]]
    shown = [[text.format(**turn) for text in moving] for turn in case.given["turns"]]
    whole = [made.request.body.decode() for made in bodies]
    first = min(whole[0].index(text) for text in shown[0])
    ends = max(whole[0].index(text) + len(text) for text in stable)
    shared = common_prefix(bodies[0].request.chunks, bodies[1].request.chunks)
    before = shown[0][0].partition(case.given["turns"][0]["now"])[0]
    found = {
        "stable_prefix_bytes_equal": shared >= first + len(before.encode()) and shared >= ends,
        "cacheable_blocks_before_dynamic": ends <= first,
        "timestamp_in_cacheable_block": any(
            turn["now"] in body[:ends]
            for turn, body in zip(case.given["turns"], whole, strict=True)
        ),
    }
    for key, wanted in case.expect.items():
        if key in found:
            result.check(key, _other(found[key], wanted))


def _round(case: Case, turn: dict[str, Any]) -> Rendering:
    blocks = case.given["blocks"]
    stable = "\n\n".join(block["text"] for block in blocks if block["cacheable"])
    beside = [
        Retrieved(id=str(n), text=block["text"].format(**turn), scope=HERE, source="clock")
        for n, block in enumerate(blocks)
        if not block["cacheable"]
    ]
    policy = Policy(
        model="m", profile=case.dialect, endpoint="http://127.0.0.1:1", instructions=stable
    )
    line = registry.get(case.dialect).line(policy, (), key=KEY)
    line.feed(
        _messages([{"id": "m1", "role": "user", "text": "Is the lamp lit?"}])[0], inputs=beside
    )
    return line.finish()


# Reference material beside the user's words.


class _Tags(html.parser.HTMLParser):
    """Reads tags as a forgiving reader would, and which text stands in which."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=False)
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.inside: dict[str, str] = {}
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.closed.append(tag)
        if tag in self._open:
            del self._open[self._open.index(tag) :]

    def handle_data(self, data: str) -> None:
        if self._open:
            self.inside[self._open[-1]] = self.inside.get(self._open[-1], "") + data

    def handle_entityref(self, name: str) -> None:
        self.handle_data(f"&{name};")

    def handle_charref(self, name: str) -> None:
        self.handle_data(f"&#{name};")


def _told_beside(case: Case, result: Result) -> None:
    beside = [
        Retrieved(id=str(n), text=block["text"], scope=HERE, source=f"note-{n}")
        for n, block in enumerate(case.given["blocks"])
    ]
    (said,) = _messages([{"id": "m1", "role": "user", "text": case.given["user"]}])
    shown = enveloped(said, beside).text
    tags = _Tags()
    tags.feed(shown)
    tags.close()
    untrusted = [unescaped(tags.inside.get("rag", ""))]
    for key, wanted in case.expect.items():
        match key:
            case "open_tags" | "close_tags":
                seen = tags.opened if key == "open_tags" else tags.closed
                counted = {tag: seen.count(tag) for tag in wanted}
                result.check(key, _other(counted, wanted))
            case "untrusted_text_inside":
                texts = [block.text for block in beside]
                there = all(text in unescaped(tags.inside.get(wanted, "")) for text in texts)
                result.check(key, None if there else f"{untrusted} holds not all of {texts}")
            case "user_input_equals":
                result.check(key, _other(unescaped(tags.inside["user_input"]).strip(), wanted))
            case "neutralised":
                result.check(key, _other(shown != said.text, wanted))
            case _:
                pass


# Searches for a message.


class _Scripted:
    """A retriever that finds, or fails, as the case says."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.name = script["source"]
        self._script = script

    async def retrieve(self, _: Question) -> list[Passage]:
        if self._script.get("error"):
            raise AntiphonError("The search failed.", code=self._script["error"])
        return [
            Passage(source=self.name, text=chunk["text"], score=chunk.get("score", 1.0))
            for chunk in self._script["chunks"]
        ]


async def _looked_up(case: Case, result: Result) -> None:
    """Ask the question in a conversation, and look at what the model was sent."""
    provider = ScriptedProvider(says("I see."))
    retrievers = [_Scripted(script) for script in case.given["retrieval"]]
    async with app_on(":memory:", provider, retrievers=retrievers) as app:
        chat = await app.create()
        run = await chat.send(case.given["question"])
        await run.result()
        message = (await chat.line())[0]
        assert message.beside is not None
        store = app.engine.world.store
        searched = read_beside(await store.content(LOCAL_TENANT, message.beside)).searched
    shown = str(provider.messages()[0]["content"])
    told = [f"{s.source} {s.status} {s.reason}" for s in searched]
    statuses = {search.source: search.status.value for search in searched}
    failed = f'notice="{RETRIEVAL_FAILED}"' in shown
    found = {
        "status": statuses,
        "statuses": statuses,
        "treated_as_empty": f'notice="{NO_MATCH}"' in shown,
        "treated_as_failure": failed,
        "tool_result_nonempty": bool(shown.partition("<rag")[2].partition("</rag>")[0].strip()),
        "fallback_to_full_text": any(s.used for s in searched if s.status in BROKEN),
    }
    for key, wanted in case.expect.items():
        match key:
            case "context_has_notice" | "tool_result_says":
                there = f'notice="{wanted}"' in shown
                result.check(key, None if there else f"{wanted} is not said in {shown!r}")
            case "trace_has":
                gone = [word for word in wanted if not any(word in line for line in told)]
                result.check(key, f"{gone} not in {told}" if gone else None)
            case _ if key in found:
                result.check(key, _other(found[key], wanted))
            case _:
                pass


# Comparing.


def _other(found: object, wanted: object) -> str | None:
    return None if found == wanted else f"{found!r}, not {wanted!r}"


def _above(found: int, most: int) -> str | None:
    return None if found <= most else f"{found} is more than {most}"


def _missing(wanted: list[str], kept: tuple[str, ...]) -> str | None:
    gone = [name for name in wanted if name not in kept]
    return f"{gone} are not kept" if gone else None


def _bounds(costs: dict[MessageId, int], wanted: dict[str, dict[str, int]]) -> str | None:
    for name, bounds in wanted.items():
        cost = costs[MessageId(name)]
        if not bounds.get("at_least", 0) <= cost <= bounds.get("at_most", cost):
            return f"{name} is estimated at {cost}, not {bounds}"
    return None
