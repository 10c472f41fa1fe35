"""What a client of the AI SDK sends: the messages on its screen, and what it wants."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from antiphon.core.blocks import Block, File, Image, Text
from antiphon.core.manifest import ToolDeclaration
from antiphon.errors import InvalidInput
from antiphon.server.http.body import Body
from antiphon.server.resources.messages import Asking

_DATA_URL: Final = re.compile(r"data:(?P<type>[^;,]*)(;[^,]*)?;base64,(?P<data>.*)", re.DOTALL)

OTHERS: Final = ("step-start", "source-url", "source-document", "reasoning")
"""Parts of a message that say nothing to a model, beside the application's own `data-…`."""


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """What a person decided about a call."""

    id: str
    approved: bool | None = None
    reason: str | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a message; which of its fields count, its type says."""

    type: str
    text: str | None = None
    url: str | None = None
    media_type: str | None = msgspec.field(default=None, name="mediaType")
    filename: str | None = None
    call: str | None = msgspec.field(default=None, name="toolCallId")
    state: str | None = None
    approval: Approval | None = None
    output: Any = None
    error: str | None = msgspec.field(default=None, name="errorText")


class UIMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as a screen has it. An answer's id is the id of its run."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    role: Literal["system", "user", "assistant"]
    parts: list[Part]
    metadata: Any = None


class PageTool(Body, frozen=True, kw_only=True):
    """A tool that the page carries out, under its name, as assistant-ui declares it."""

    description: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b'{"type":"object","properties":{}}')


class CallSettings(Body, frozen=True, kw_only=True):
    """What assistant-ui's model context says of a call."""

    temperature: Annotated[float, Meta(ge=0)] | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = msgspec.field(default=None, name="maxTokens")


class Config(Body, frozen=True, kw_only=True):
    """What assistant-ui's model context says of the model."""

    model: str | None = msgspec.field(default=None, name="modelName")


class Chat(Body, frozen=True, kw_only=True):
    """A request of `useChat`, and what is asked of the run, from its transport's `body`.

    `system`, `callSettings`, `config` and tools by name are what assistant-ui's transport adds.
    """

    id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    messages: Annotated[list[UIMessage], Meta(min_length=1)]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message: str | None = msgspec.field(default=None, name="messageId")
    metadata: Any = None
    model: str | None = None
    instructions: str | None = None
    system: str | None = None
    tools: tuple[ToolDeclaration, ...] | dict[str, PageTool] = ()
    tool_choice: str | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    call_settings: CallSettings = msgspec.field(default=CallSettings(), name="callSettings")
    config: Config = Config()

    def asking(self) -> Asking:
        """Return what is asked of the run; what the page's author wrote stands before the rest."""
        settings = self.call_settings
        return Asking(
            model=self.model or self.config.model,
            instructions=self.instructions if self.instructions is not None else self.system,
            tools=self._declared(),
            tool_choice=self.tool_choice,
            temperature=self.temperature if self.temperature is not None else settings.temperature,
            max_output_tokens=self.max_output_tokens or settings.max_tokens,
        )

    def _declared(self) -> tuple[ToolDeclaration, ...]:
        if isinstance(self.tools, tuple):
            return self.tools
        return tuple(
            ToolDeclaration(name=name, description=tool.description, parameters=tool.parameters)
            for name, tool in self.tools.items()
        )


def blocks_of(message: UIMessage) -> tuple[Block, ...]:
    """Return what a user's message says.

    Raises:
        InvalidInput: `unsupported_parameter`: a part that cannot be carried, at its place.
    """
    blocks: list[Block] = []
    for number, part in enumerate(message.parts):
        if part.type == "text":
            blocks.append(Text(text=part.text or ""))
        elif part.type == "file":
            blocks.append(_file(part, f"parts[{number}]"))
        elif not (part.type in OTHERS or part.type.startswith("data-")):
            raise InvalidInput(
                "A part of this type is not carried here.",
                code="unsupported_parameter",
                at=f"parts[{number}].type",
            )
    return tuple(blocks)


def _file(part: Part, at: str) -> Block:
    inline = _DATA_URL.fullmatch(part.url or "")
    kind = part.media_type or (inline["type"] if inline else "")
    if kind.startswith("image/"):
        if inline is not None:
            return Image(media_type=kind, data=inline["data"])
        return Image(url=part.url)
    if inline is None:
        raise InvalidInput(
            "A file is brought as a data: URL with base64.", code="unsupported_parameter", at=at
        )
    return File(filename=part.filename, media_type=kind or None, data=inline["data"])


def output_of(part: Part) -> str:
    """Return the output of a call that the client carried out, as the text a model reads."""
    if isinstance(part.output, str):
        return part.output
    return msgspec.json.encode(part.output).decode()
