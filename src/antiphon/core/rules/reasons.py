"""What each reason code means and what helps: for people, in the terminal and in the docs.

A finding carries its own sentence about the block in question. This is the rule behind it, as
`docs/reason-codes.md` prints it and `antiphon lint` quotes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Reason(NamedTuple):
    """The rule behind a code, and what to do when it is broken."""

    rule: str
    remedy: str


REASONS: Final[Mapping[str, Reason]] = {
    # Graph rules.
    "empty_sequence": Reason(
        "A request holds at least one message.",
        "Send the user's message.",
    ),
    "content_erased": Reason(
        "A message whose content was erased says nothing that could be sent.",
        "Begin anew, or go on from a message above it.",
    ),
    "unknown_block_kind": Reason(
        "A block of a kind that this release does not know is kept and shown, never sent.",
        "Use a release that knows the kind, or leave the message out of the line.",
    ),
    "message_id_conflict": Reason(
        "An id names one message with one content, once on a line.",
        "Give the other message an id of its own.",
    ),
    "duplicate_call_id": Reason(
        "A call id names one call of the whole line.",
        "Make ids that do not start again with each turn, and use the same one on the result.",
    ),
    "missing_tool_result": Reason(
        "Every tool call has exactly one terminal result before the model is asked again.",
        "Add a result for each call named: its outcome, an error, or that it did not run.",
    ),
    "orphan_tool_result": Reason(
        "A tool result answers a call that stands before it on the same line.",
        "Keep or drop a call and its result together, most of all when history is shortened.",
    ),
    "duplicate_tool_result": Reason(
        "A call has one result, and the first one stands.",
        "Remove the second one.",
    ),
    "result_before_call": Reason(
        "A result stands behind its call.",
        "Put the messages into the order in which they happened.",
    ),
    "tool_mismatch": Reason(
        "A result that names its tool names the tool of its call.",
        "Look for two calls whose results were swapped.",
    ),
    "arguments_mismatch": Reason(
        "A result belongs to the arguments that its call was made with.",
        "Look for a call that was edited after it had run.",
    ),
    "generation_mismatch": Reason(
        "A result belongs to the attempt whose answer asked for it.",
        "Drop the result of the attempt that was given up.",
    ),
    "unclosed_arguments": Reason(
        "The arguments of a call are whole JSON.",
        "The answer was cut inside the call. Drop that message and ask again.",
    ),
    "uncommitted_block": Reason(
        "A model sees committed messages, and the one input that it is asked to answer.",
        "Leave failed, canceled and unfinished messages out.",
    ),
    "foreign_branch": Reason(
        "A line holds the ancestors of one leaf, whatever the time of other messages.",
        "Walk from the leaf to the root by parents, and send that.",
    ),
    "dangling_leaf": Reason(
        "A line ends in a message that exists.",
        "Name another leaf.",
    ),
    "trust_violation": Reason(
        "What a model, a tool or a retrieval said cannot speak as system or developer.",
        "Put it into a user message, as the material that it is.",
    ),
    "cycle": Reason(
        "Walking from a message to its parent, and on, ends at a root.",
        "A parent was written wrongly; restore the history from before.",
    ),
    "missing_parent": Reason(
        "The parent of every message exists.",
        "Part of the history is missing; restore it.",
    ),
    "foreign_parent": Reason(
        "The parent of a message belongs to the same conversation.",
        "Copy the message into the conversation, or fork it.",
    ),
    "malformed_item": Reason(
        "A request, and each message of it, has the shape that its provider asks for.",
        "Correct the field that is named.",
    ),
    "unknown_profile": Reason(
        "A request is meant for a dialect that is spoken here.",
        "Name one of those that are listed, or leave the target out.",
    ),
    "unknown_tool": Reason(
        "A tool that has to be called is declared.",
        "Declare it, or choose among those that are.",
    ),
    "bad_option": Reason(
        "An option asks for what can be: at least one token, and a call only where there are tools.",
        "Change the option, or leave it out.",
    ),
    # Profile rules.
    "role_unsupported": Reason(
        "The dialect, or the model's template, knows the role.",
        "Use a role that it knows. Rendering from a graph maps developer and system by itself.",
    ),
    "system_not_first": Reason(
        "System text is one message at the very front.",
        "Merge it there; rendering from a graph does.",
    ),
    "role_order": Reason(
        "Roles follow each other as the model's template wants them.",
        "Merge neighbours of one role; rendering from a graph does.",
    ),
    "must_start_with_user": Reason(
        "The first message beside system text is the user's.",
        "Begin the line with a user message.",
    ),
    "must_end_with_user": Reason(
        "The model does not continue an assistant message.",
        "End with a user message or a tool result.",
    ),
    "empty_content": Reason(
        "A message says something.",
        "Give it content, or leave it out.",
    ),
    "block_not_allowed": Reason(
        "The dialect can carry this kind of block in a message of this role.",
        "Move it to a role that can carry it, or choose another model.",
    ),
    "image_in_tool_result": Reason(
        "A tool result is text.",
        "Put the image into a user message behind the last result; rendering from a graph does.",
    ),
    "result_not_adjacent": Reason(
        "The results of a message stand directly behind it, before anything else is said.",
        "Move what stands between behind the last result; rendering from a graph does.",
    ),
    "result_order": Reason(
        "Results come in the order of their calls.",
        "Sort them.",
    ),
    "response_count_mismatch": Reason(
        "One message holds as many results as there were calls.",
        "Put all results of a turn into one message.",
    ),
    "item_order": Reason(
        "Items stand in the order in which the provider made them.",
        "Keep the stored order.",
    ),
    "bad_call_id": Reason(
        "Call ids have the form that the provider takes.",
        "Use other ids, on the call and on the result; rendering from a graph respells them.",
    ),
    "call_id_too_long": Reason(
        "Call ids are no longer than the provider takes.",
        "Use shorter ones, on the call and on the result; rendering from a graph respells them.",
    ),
    "bad_tool_name": Reason(
        "Names of tools have the form that the provider takes, and each is one tool's.",
        "Rename the tool, in its declaration and in the history; rendering from a graph respells it.",
    ),
    "schema_unsupported": Reason(
        "The schema of a tool keeps to what the provider understands.",
        "Close every object of a strict tool, or do not declare it strict.",
    ),
    "tool_config_missing": Reason(
        "History with tool calls comes with declarations of tools.",
        "Declare the tools, and forbid their use if no more calls are wanted.",
    ),
    "lost_signature": Reason(
        "A signature goes back on the part that it came with.",
        "Send the stored part as it is.",
    ),
    "lost_reasoning": Reason(
        "Reasoning that led to tool calls goes back to the model that wrote it.",
        "Keep it with the message and send it.",
    ),
    "thinking_missing": Reason(
        "Signed thinking goes back in a tool loop.",
        "Send the stored blocks.",
    ),
    "thinking_modified": Reason(
        "Signed thinking goes back byte for byte, at its place.",
        "Send the stored blocks as they are.",
    ),
    "reasoning_unpaired": Reason(
        "A reasoning item goes back with the item that follows it.",
        "Send both, or neither.",
    ),
    "foreign_reasoning": Reason(
        "Opaque reasoning goes back only to the provider that made it.",
        "Leave it out.",
    ),
    "too_many_blocks": Reason(
        "There are no more tools or blocks than the provider takes.",
        "Send fewer.",
    ),
    "over_window": Reason(
        "What has to be sent fits the model's window.",
        "Shorten the input, or choose a model with a larger window.",
    ),
}
