"""What one dialect refuses: the facts of a profile, held against a line.

Two questions are asked of the same facts. *As it stands*: would the provider take this very
request? *Mapped*: is there anything that the adapter could not map safely? In the second
reading a rule is silent about what the adapter will put right, and lists in the manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from antiphon.core.blocks import (
    File,
    Image,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    block_id,
    part_id,
)
from antiphon.core.ids import CallId
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.rules.blocks import (
    of_message,
    problems,
    says_nothing,
)
from antiphon.core.rules.findings import Finding, Severity
from antiphon.core.rules.profile import Echo, Profile
from antiphon.core.rules.profile_reading import KIND_NAMES, reading_of
from antiphon.core.rules.steps import StepRules
from antiphon.core.rules.tools import check_tools

INSTRUCTING: Final = frozenset({Role.SYSTEM, Role.DEVELOPER})


class ProfileRules:
    """Holds one line against one profile. `LineChecker` feeds it and asks it.

    Args:
        profile: The facts.
        mapped: Whether the adapter will map what can be mapped safely.
        tools: What is declared with the line.
        findings: Where findings are put.
    """

    __slots__ = (
        "_between",
        "_count",
        "_findings",
        "_last",
        "_leader",
        "_mapped",
        "_profile",
        "_reading",
        "_steps",
        "_tools",
        "_turn",
        "_turn_left",
    )

    def __init__(
        self,
        profile: Profile,
        *,
        mapped: bool,
        tools: Collection[ToolDeclaration],
        findings: list[Finding],
    ) -> None:
        self._profile = profile
        self._mapped = mapped
        self._reading = reading_of(profile, mapped)
        self._tools = len(tools)
        self._findings = findings
        findings.extend(check_tools(profile, tools, mapped=mapped))
        self._count = 0
        self._last: Message | None = None
        self._leader: tuple[Message, int] | None = None  # the first answer since a person spoke
        self._turn: Role | None = None
        self._turn_left = False
        self._between: dict[CallId, str] = {}
        self._steps = StepRules(profile, findings) if self._reading.steps else None

    def copy(self, findings: list[Finding]) -> ProfileRules:
        """Return rules that stand where these stand, and put their findings into `findings`."""
        other = ProfileRules.__new__(ProfileRules)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._findings = findings
        other._between = self._between.copy()
        other._steps = self._steps and self._steps.copy(findings)
        return other

    @property
    def rests(self) -> bool:
        """Whether the assistant has spoken, and nothing stands between a call and its result.

        What these rules remember beside that, they forget when a user speaks.
        """
        return self._last is not None and self._last.role is Role.ASSISTANT and not self._between

    def resume(self, count: int, last: Message) -> None:
        """Stand behind `count` legal messages, the `last` of which is the assistant's."""
        self._count, self._last, self._turn = count, last, Role.ASSISTANT

    def feed(self, message: Message, start: int, owed: Mapping[CallId, object]) -> None:
        """Take the next message; `owed` are the calls that were open before it."""
        role = message.role
        silent = self._blocks(message, start)
        if role is not Role.TOOL and silent == len(message.blocks):
            self._empty(message, start)
        if owed and role is not Role.TOOL:
            self._stands_between(message, owed)
        if self._steps is not None:
            self._steps.feed(message, self._last, start, owed)
        if role not in self._reading.free_roles:
            self._roles(message, start)
        most = self._profile.max_blocks
        if most is not None and len(message.blocks) > most:
            self._find(
                "too_many_blocks",
                message.id,
                start,
                f"At most {most} blocks may stand in one message.",
            )
        if self._reading.particular_messages:
            for problem in of_message(self._profile, message, self._last, mapped=self._mapped):
                self._find(problem.code, message.id, start, problem.message)
        if role is Role.USER:
            self._leader = None
        elif role is Role.ASSISTANT:
            self._leader = self._leader or (message, start)
            if self._reading.echoes:
                self._reasoning(message, start)
            if not self._profile.text_with_calls:
                self._text_and_calls(message, start)
        self._count += 1
        self._last = message

    def _blocks(self, message: Message, start: int) -> int:
        """Judge each block, and return how many are blank texts that the adapter leaves out."""
        role, left_out = message.role, 0
        allowed, silent = self._reading.kinds[role], self._reading.silent[role]
        for order, block in enumerate(message.blocks):
            kind = type(block)
            if kind in silent:
                continue
            if kind in self._reading.particular:
                for code, sentence, part in problems(self._profile, block, mapped=self._mapped):
                    at = block_id(message.id, order)
                    at = at if part is None else part_id(at, part)
                    self._find(code, at, start + order, sentence)
            if kind is ToolCall and role is Role.ASSISTANT:
                self._call(message, order, start + order, block)  # type: ignore[arg-type]
            elif kind is ToolResult and role is Role.TOOL:
                self._result(message, order, start + order, block)  # type: ignore[arg-type]
            elif kind not in allowed:
                self._not_allowed(role, block_id(message.id, order), start + order, kind)
            elif kind is Text and self._reading.blanks and says_nothing(self._profile, block.text):  # type: ignore[union-attr]
                if self._mapped:
                    left_out += 1
                else:
                    self._blank(message, order, start + order)
            elif kind is Image:
                self._image(block_id(message.id, order), start + order, block)  # type: ignore[arg-type]
        return left_out

    def finish(self, position: int) -> Iterator[Finding]:
        """Yield what is wrong with the line if it ends here, at `position`."""
        last = self._last
        if last is None:
            return
        if self._turn is None and self._profile.system_apart:
            yield Finding(
                code="empty_sequence",
                at="messages",
                position=position,
                message="There is nothing to send but system text. Add at least one message.",
            )
        sentence = self._must_not_end(last)
        if sentence:
            yield Finding(
                code="must_end_with_user", at=last.id, position=position - 1, message=sentence
            )
        if self._steps is not None:
            yield from self._steps.unsigned
        if self._profile.reasoning_leads and last.role is Role.TOOL and self._leader is not None:
            yield from self._leads(*self._leader)

    def _must_not_end(self, last: Message) -> str:
        """Return why the line may not end in `last`, or nothing."""
        profile = self._profile
        answers = last.role is Role.ASSISTANT or (
            # At the top of the request it is behind nothing.
            last.role in INSTRUCTING and profile.system_apart and self._turn is Role.ASSISTANT
        )
        if answers and profile.ends_with_user and not _is_paused(last):
            return "This model does not continue a text of its own. End with a user message or a tool result."
        if answers and profile.signed_reasoning and _ends_in_thought(last):
            return "Nothing can be continued from a thought. End with a user message, or leave the thought out."
        if answers and profile.prefill_trimmed and _ends_in_space(last):
            return "The text that the model is to continue may not end in a space. Trim it."
        if last.role in INSTRUCTING and self._count > 1 and not profile.system_last:
            return "System text may not be the last of several messages here. Put it before the user's."
        return ""

    def _leads(self, message: Message, start: int) -> Iterator[Finding]:
        """Yield what is wrong with the first answer of a loop of calls that is under way."""
        first = next(iter(message.blocks), None)
        signed = type(first) is Reasoning and first.opaque is not None and not first.opaque.work
        if not signed:
            yield Finding(
                code="thinking_missing",
                at=message.id,
                position=start,
                message="Thinking is enabled, and the calls that are under way began with it. Send the thinking "
                "that stood before them, as it came.",
            )

    def _roles(self, message: Message, start: int) -> None:
        """Roles and their order. Kept in one place, since each rule takes the others as given."""
        profile, role = self._profile, message.role
        if profile.system_apart and role in INSTRUCTING:
            self._apart(message, start)
            return
        spoken = self._reading.spoken[role]
        if spoken not in profile.roles:
            known = ", ".join(sorted(profile.roles))
            grammar = profile.alternation and role in INSTRUCTING
            self._find(
                "role_order" if grammar else "role_unsupported",
                message.id,
                start,
                f"The model behind this profile knows no {role} messages ({known} only), and could drop the text in silence.",
            )
            return
        if role in INSTRUCTING and spoken in INSTRUCTING and profile.system_first:
            if self._count and not self._mapped:
                self._find(
                    "system_not_first",
                    message.id,
                    start,
                    "System text has to be one message, the very first. Merge it there.",
                )
            return
        if self._reading.follows:
            self._follows(message, start, spoken)
        if spoken is Role.TOOL or (
            spoken is Role.ASSISTANT and any(type(b) is ToolCall for b in message.blocks)
        ):
            if self._turn is None and profile.starts_with_user:
                self._starts_wrong(message, start)
            self._turn, self._turn_left = self._turn or spoken, True
        elif spoken is Role.USER or spoken is Role.ASSISTANT:
            if self._turn is None and spoken is not Role.USER and profile.starts_with_user:
                self._starts_wrong(message, start)
            if (
                profile.alternation
                and spoken is self._turn
                and not (self._mapped and not self._turn_left)
            ):
                self._find(
                    "role_order",
                    message.id,
                    start,
                    f"Two {role} messages follow each other, and this model's template wants user and assistant in turn. Merge them.",
                )
            self._turn, self._turn_left = spoken, False

    def _apart(self, message: Message, start: int) -> None:
        """System text between messages. Before them all it stands at the top of the request."""
        if self._mapped or self._turn is None or self._last is None:
            return
        if Role.SYSTEM not in self._profile.roles:
            self._find(
                "role_unsupported",
                message.id,
                start,
                "This model takes system text at the top of the request only. Move it there.",
            )
        elif self._last.role is Role.ASSISTANT:
            self._find(
                "role_order",
                message.id,
                start,
                "System text follows a user message here, never the assistant's. Move it behind the next one.",
            )

    def _follows(self, message: Message, start: int, spoken: Role) -> None:
        before = self._last.role if self._last is not None else None
        if before is Role.TOOL:
            allowed, after = self._profile.after_tool, "a tool message"
        elif before is Role.ASSISTANT:
            allowed, after = self._profile.after_assistant, "the assistant's message"
        else:
            return
        if allowed is not None and spoken is not Role.TOOL and spoken not in allowed:
            self._find(
                "role_order",
                message.id,
                start,
                f"After {after} this model takes {', '.join(sorted(allowed))} only.",
            )

    def _starts_wrong(self, message: Message, start: int) -> None:
        self._find(
            "must_start_with_user",
            message.id,
            start,
            "The first message beside system text has to be the user's.",
        )

    def _stands_between(self, message: Message, owed: Mapping[CallId, object]) -> None:
        profile = self._profile
        joined = profile.merged_neighbours and self._last is not None
        if not profile.results_adjacent or (
            joined and self._last.role is message.role is Role.ASSISTANT  # type: ignore[union-attr]
        ):
            return
        if self._reading.may_follow_results and not any(
            type(b) is ToolCall for b in message.blocks
        ):
            after = profile.after_tool
            may_follow = after is None or profile.spoken_as(message.role) in after
            # Behind the results it could be the last message of all.
            if may_follow and not (profile.ends_with_user and message.role is Role.ASSISTANT):
                return  # the adapter lets the results go first
        for call_id in owed:
            self._between.setdefault(call_id, message.id)

    def _call(self, message: Message, order: int, position: int, call: ToolCall) -> None:
        profile = self._profile
        if (
            self._reading.names is not None
            and self._reading.names.fullmatch(call.name) is None
            and call.name
        ):
            at = block_id(message.id, order)
            self._find(
                "bad_tool_name",
                at,
                position,
                f"{call.name!r} is no name for a tool here: {profile.tool_name_pattern}.",
                call.call_id,
            )
        derived = self._mapped and profile.tools_derived
        if profile.tools_declared and not (self._tools or derived):
            self._find(
                "tool_config_missing",
                block_id(message.id, order),
                position,
                "History with tool calls needs the tools declared, even where no more are wanted.",
                call.call_id,
            )
        if not self._mapped and call.call_id:
            self._call_id(block_id(message.id, order), position, call.call_id)

    def _call_id(self, at: str, position: int, call_id: CallId) -> None:
        profile, length = self._profile, len(call_id)
        both = "Use another, on the call and on its result."
        if self._reading.call_ids is not None and self._reading.call_ids.fullmatch(call_id) is None:
            sentence = f"The provider takes call ids of the form {profile.call_id_pattern}. {both}"
            self._find("bad_call_id", at, position, sentence, call_id)
        elif profile.call_id_max is not None and length > profile.call_id_max:
            sentence = f"This call id has {length} characters of {profile.call_id_max}. {both}"
            self._find("call_id_too_long", at, position, sentence, call_id)
        elif profile.call_id_safe is not None and length > profile.call_id_safe:
            sentence = (
                f"This call id has {length} characters; some deployments take no more than "
                f"{profile.call_id_safe}."
            )
            self._note("call_id_too_long", at, position, sentence, call_id)

    def _result(
        self,
        message: Message,
        order: int,
        position: int,
        result: ToolResult,
    ) -> None:
        call_id, at = result.call_id, block_id(message.id, order)
        if self._between and call_id in self._between:
            self._find(
                "result_not_adjacent",
                at,
                position,
                f"{self._between[call_id]} stands between the call {call_id} and its result. Results come directly after "
                "the message that asks for them.",
                call_id,
            )
        for number, part in enumerate(result.content):
            if not isinstance(part, Text):
                self._medium_in_result(message.role, part_id(at, number), position, part, call_id)

    def _medium_in_result(
        self, role: Role, at: str, position: int, part: Image | File, call_id: CallId
    ) -> None:
        if not (self._profile.result_media or self._reading.may_follow_results):
            what = KIND_NAMES[type(part)]
            self._find(
                "image_in_tool_result",
                at,
                position,
                f"A tool result is text on this wire. Put the {what} into a user message after the last result.",
                call_id,
            )
        if type(part) is Image:
            self._image(at, position, part)
        elif (
            self._mapped
            and not self._profile.result_media
            and "file" not in self._profile.kinds.get(Role.USER, ())
        ):
            # It leaves its result, and has to find its place in a message of the user.
            self._not_allowed(role, at, position, File)

    def _not_allowed(self, role: Role, at: str, position: int, kind: type) -> None:
        if kind is ToolResult or kind is ToolCall:
            return  # in a foreign role: the graph rules say so
        name = KIND_NAMES.get(kind, kind.__name__.lower())
        may = ", ".join(sorted(self._profile.kinds.get(role, ()))) or "nothing"
        self._find(
            "block_not_allowed",
            at,
            position,
            f"No {role} message carries {name} on this wire (only {may}), and nothing is dropped in silence.",
        )

    def _image(self, at: str, position: int, image: Image) -> None:
        if not self._profile.image_urls and image.data is None:
            self._find(
                "block_not_allowed",
                at,
                position,
                "This server fetches nothing by its address. Send the image itself, as base64 data.",
            )

    def _text_and_calls(self, message: Message, start: int) -> None:
        if self._mapped or not any(type(b) is ToolCall for b in message.blocks):
            return
        if any(type(b) is Text and b.text for b in message.blocks):
            self._find(
                "block_not_allowed",
                message.id,
                start,
                "This model's template takes text or calls in one message, not both. "
                "Put the text into a message before the calls.",
            )

    def _blank(self, message: Message, order: int, position: int) -> None:
        self._find(
            "empty_content",
            block_id(message.id, order),
            position,
            "This text says nothing, and may not do so here. Leave it out.",
        )

    def _empty(self, message: Message, start: int) -> None:
        if self._mapped and message.role is Role.ASSISTANT:
            return  # an answer of nothing was committed; it goes out as an empty text
        self._find(
            "empty_content",
            message.id,
            start,
            "This message says nothing. Give it content or leave it out.",
        )

    def _reasoning(self, message: Message, start: int) -> None:
        calls = any(type(b) is ToolCall for b in message.blocks)
        if self._profile.reasoning is Echo.WITH_CALLS and not calls:
            return
        if not any(type(b) is Reasoning for b in message.blocks):
            self._find(
                "lost_reasoning",
                message.id,
                start,
                "This model wants the reasoning of its tool calls back in every later request. Send it with the message.",
            )

    def _find(self, code: str, at: str, position: int, message: str, *call_ids: str) -> None:
        self._findings.append(
            Finding(code=code, at=at, position=position, message=message, call_ids=call_ids)
        )

    def _note(self, code: str, at: str, position: int, message: str, *call_ids: str) -> None:
        self._find(code, at, position, message, *call_ids)
        noted = msgspec.structs.replace(self._findings.pop(), severity=Severity.NOTE)
        self._findings.append(noted)


def _is_paused(message: Message) -> bool:
    """Whether the provider stopped in the midst of work of its own: it will go on from there."""
    said = [b for b in message.blocks if type(b) is not Text or b.text.strip()]
    last = said[-1] if said else None
    return type(last) is Reasoning and last.opaque is not None and last.opaque.work


def _ends_in_thought(message: Message) -> bool:
    last = message.blocks[-1] if message.blocks else None
    return type(last) is Reasoning and not (last.opaque is not None and last.opaque.work)


def _ends_in_space(message: Message) -> bool:
    last = message.blocks[-1] if message.blocks else None
    return type(last) is Text and last.text != last.text.rstrip()
