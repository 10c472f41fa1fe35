"""What one dialect asks of a step: the message with calls, and what answers it.

These rules judge a request as it stands. An adapter puts results together, merges neighbours and
signs by itself, so a line that it will map has nothing to fear from them.
"""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.core.blocks import Message, Role, ToolCall, ToolResult, block_id
from antiphon.core.ids import CallId
from antiphon.core.rules.findings import Finding
from antiphon.core.rules.profile import Profile


class StepRules:
    """Holds the steps of one line against one profile. `ProfileRules` feeds it and asks it."""

    __slots__ = ("_findings", "_profile", "_unsigned")

    def __init__(self, profile: Profile, findings: list[Finding]) -> None:
        self._profile = profile
        self._findings = findings
        self._unsigned: list[Finding] = []

    @staticmethod
    def concern(profile: Profile, *, mapped: bool) -> bool:
        """Whether there is anything to be asked."""
        of_results = profile.results_together or profile.results_in_call_order
        return not mapped and (of_results or profile.calls_answer or profile.signed_calls)

    def copy(self, findings: list[Finding]) -> StepRules:
        """Return rules that stand where these stand, and put their findings into `findings`."""
        other = StepRules(self._profile, findings)
        other._unsigned = self._unsigned.copy()
        return other

    @property
    def unsigned(self) -> tuple[Finding, ...]:
        """The calls that lack a signature if the line ends here: older turns may do without."""
        return tuple(self._unsigned)

    def feed(
        self, message: Message, before: Message | None, start: int, owed: Mapping[CallId, object]
    ) -> None:
        """Take the next message; `owed` are the calls that were open before it."""
        match message.role:
            case Role.USER:
                self._unsigned.clear()
            case Role.TOOL if owed:
                if self._profile.results_together:
                    self._together(message, start, owed)
                if self._profile.results_in_call_order:
                    self._in_order(message, start, owed)
            case Role.ASSISTANT:
                self._asks(message, before, start)
            case _:
                pass

    def _together(self, message: Message, start: int, owed: Mapping[CallId, object]) -> None:
        there = {block.call_id for block in message.blocks if type(block) is ToolResult}
        if not owed.keys() <= there:
            self._findings.append(
                Finding(
                    code="response_count_mismatch",
                    at=message.id,
                    position=start,
                    message=f"{len(there & owed.keys())} of the {len(owed)} results that are due stand here. "
                    "All results of a message stand together in the one behind it.",
                    call_ids=tuple(owed),
                )
            )

    def _in_order(self, message: Message, start: int, owed: Mapping[CallId, object]) -> None:
        due = iter(owed)
        for order, block in enumerate(message.blocks):
            if type(block) is not ToolResult or block.call_id not in owed:
                continue
            expected = next(due, block.call_id)
            if block.call_id != expected:
                self._findings.append(
                    Finding(
                        code="result_order",
                        at=block_id(message.id, order),
                        position=start + order,
                        message=f"Results come in the order of their calls here; {expected} is due before "
                        f"{block.call_id}.",
                        call_ids=(block.call_id,),
                    )
                )
                return

    def _asks(self, message: Message, before: Message | None, start: int) -> None:
        first = next((n for n, b in enumerate(message.blocks) if type(b) is ToolCall), None)
        if first is None:
            return
        if self._profile.calls_answer and before is not None and before.role is Role.ASSISTANT:
            self._findings.append(
                Finding(
                    code="role_order",
                    at=message.id,
                    position=start,
                    message="A message with calls comes directly behind the user's, or behind results. "
                    "Join it to the message before it.",
                )
            )
        call = message.blocks[first]
        state = call.opaque if type(call) is ToolCall else None
        if self._profile.signed_calls and (state is None or state.profile != self._profile.name):
            self._unsigned.append(
                Finding(
                    code="lost_signature",
                    at=block_id(message.id, first),
                    position=start + first,
                    message="The signature that came with this call is missing. Send the part as it came.",
                )
            )
