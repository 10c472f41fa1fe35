"""Every setting, once: its name, its default and one sentence.

Flags come before `ANTIPHON_*` of the environment, that before `antiphon.toml`, that before the
default. `docs/settings.md` is made from this class.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from antiphon.core.recovery import Resend, RetryPolicy
from antiphon.core.wire.limits import Limits
from antiphon.engine.catalogue.models import Models, read_models, suggestion
from antiphon.engine.knowledge.named import NamedRetriever, read_retrievers
from antiphon.engine.tools.mcp.servers import McpServer, read_servers
from antiphon.errors import InvalidInput

CONFIG_FILE: Final = "antiphon.toml"
PREFIX: Final = "ANTIPHON_"

Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=366 * 86_400)]
"""A time. Zero would be over before anything could happen."""
Pause: TypeAlias = Annotated[float, Meta(ge=0, le=366 * 86_400)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Bytes: TypeAlias = Annotated[int, Meta(ge=256)]


class Stateless(StrEnum):
    """What is kept of requests that bring their whole history."""

    DROP = "drop"
    KEEP = "keep"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one engine, checked. Made by `load`, or by hand in a test.

    Attributes:
        db: The database.
        trust_env: Whether HTTP_PROXY, HTTPS_PROXY and NO_PROXY count for calls to providers.
        default_model: Who answers when no model is named; empty for the file's first model, else
            the environment's, else `rehearsal`.
        side_model: Who answers questions beside the turn (decisions, summaries, titles); empty for
            the model of the conversation.
        scheduling: Whether sessions come and go by themselves, where a conversation does not say.
        titles: Whether a conversation without a title is given one after its first answer.
        session_idle_s: After this time of silence a new message begins a new session.
        session_switches_per_hour: Switches that models may bring about in one conversation.
        session_carry_messages: Most messages that are copied into a new session.
        decision_messages: Newest messages that a decision about a new message is shown.
        closing_messages: Newest messages that the decision after a run is shown.
        decision_timeout_s: Longest wait for a decision; without one the session goes on.
        decision_output_tokens: Largest decision.
        handover_timeout_s: Longest wait for a summary of a session that ends; without one its
            hand-over is read from its messages.
        handover_output_tokens: Largest such summary.
        title_timeout_s: Longest wait for a title.
        title_output_tokens: Largest title.
        rehearsal_delay_s: Pause of the rehearsal model between two words, so that one sees it
            stream.
        connect_timeout_s: Longest wait for a connection, name and TLS included.
        idle_timeout_s: Longest silence of a provider before the outcome is unknown; pings count
            as life.
        deadline_s: After this time from sending, nothing more is sent and the connection is
            closed.
        deadline_cap_s: While bytes arrive, the deadline moves on, but never further than this.
        cancel_grace_s: How long a canceled call is still read for what was on its way.
        retries: Further attempts after one that was not sent, or was refused for now.
        retry_base_s: Longest pause before the first retry; it doubles with each.
        retry_cap_s: Longest pause before any retry.
        retry_after_cap_s: A provider that asks for a longer pause than this gets no retry.
        resend_after_unknown: Whether a call of unknown outcome, once confirmed ended, is made
            again: `never`, by the process that saw it break (`same_process`), or `always`.
        unknown_limit_s: When the outcome of a call has been unknown for so long, the log says so.
        commit_truncated: Whether text that the token limit cut is kept as the answer, marked as
            cut; calls never are.
        max_event_bytes: Largest single event of a stream.
        max_arguments_bytes: Largest arguments of one tool call.
        max_answer_bytes: Largest answer.
        max_queued: Runs that may wait in one conversation.
        max_model_calls: Calls to a model in one run.
        max_tool_calls: Tool calls in one run.
        max_parallel_tools: Tools of one conversation that run at the same time.
        max_result_chars: Most characters of a tool's result that the model is shown; the ledger
            keeps all of it. 0 is no limit.
        repeat_limit: How often a run may ask for the same call before it is told to stop.
        min_output_tokens: Least that is kept free of a model's window for its answer.
        compact_at_percent: Share of a model's window from which on older talk becomes a checkpoint
            before the next turn; 0 never.
        compact_keep: Most messages that a compaction leaves as they were said, moved to the
            beginning of a turn.
        compact_timeout_s: Longest wait for the summary.
        compact_output_tokens: Longest summary.
        count_at_percent: Share of a model's window from which on its provider is asked what a
            request costs, where that is estimated here and it has an endpoint that counts; 0 never.
        count_timeout_s: Longest wait for that; without it the estimate stands.
        context_margin_tokens: What is kept free of a model's window against counts that are too
            low; at most a sixteenth of it.
        approval_timeout_s: How long a call waits for somebody to agree to it.
        retrieval_timeout_s: Longest time for which something is searched for a message.
        max_reference_chars: Most characters of what was found that are put beside one message.
        max_file_bytes: Largest file that may be looked things up in.
        host: Where the server listens; wider than this machine only with a key.
        port: The server's port; 0 for any that is free.
        max_body_bytes: Largest body of a request to the server.
        max_json_depth: Deepest nesting of such a body.
        body_timeout_s: Longest time in which a client sends a request, head and body each.
        write_timeout_s: Longest time for which a client reads nothing of its answer.
        heartbeat_s: Pause after which an open stream that has nothing to tell says that it lives.
        stream_s: After this time a stream of events is closed in good order, and the client comes
            back with its cursor.
        stateless: What is kept of requests at the doors where a client brings its whole history:
            nothing once it was had (`drop`), or all of it as conversations (`keep`); a request's
            own `store` comes before.
        stateless_days: After how many days without a change what was kept of them is erased; 0 is
            never.
        url_hosts: The only hosts whose addresses clients may write into messages for a model's
            server to fetch; empty for any host but those of private networks.
        drain_s: How long a server that stops waits for what is in flight.
        lease_s: Where nodes share a database: how long one may be silent before the others hold it
            for dead and take over its runs.
        address: Where other nodes reach this server; empty for where it listens.
        models: The models of the file and of the environment.
        mcp: The servers of tools of the file, by name.
        retrievers: What the file says is searched for each new message.
    """

    db: str = "sqlite:///antiphon.db"
    trust_env: bool = False

    default_model: str = ""
    side_model: str = ""
    rehearsal_delay_s: Pause = 0.03

    scheduling: bool = False
    titles: bool = False
    session_idle_s: Seconds = 43_200.0
    session_switches_per_hour: Count = 5
    session_carry_messages: Count = 20
    decision_messages: Annotated[int, Meta(ge=1)] = 10
    closing_messages: Annotated[int, Meta(ge=1)] = 30
    decision_timeout_s: Seconds = 4.0
    decision_output_tokens: Annotated[int, Meta(ge=1)] = 200
    handover_timeout_s: Seconds = 8.0
    handover_output_tokens: Annotated[int, Meta(ge=1)] = 600
    title_timeout_s: Seconds = 8.0
    title_output_tokens: Annotated[int, Meta(ge=1)] = 40

    connect_timeout_s: Seconds = 10.0
    idle_timeout_s: Seconds = 300.0
    deadline_s: Seconds = 600.0
    deadline_cap_s: Seconds = 3600.0
    cancel_grace_s: Pause = 2.0
    retries: Count = 2
    retry_base_s: Pause = 0.5
    retry_cap_s: Pause = 8.0
    retry_after_cap_s: Pause = 60.0
    resend_after_unknown: Resend = Resend.SAME_PROCESS
    unknown_limit_s: Seconds = 900.0
    commit_truncated: bool = True

    max_event_bytes: Bytes = 4 * 1024 * 1024
    max_arguments_bytes: Bytes = 1024 * 1024
    max_answer_bytes: Bytes = 32 * 1024 * 1024

    max_queued: Count = 16
    max_model_calls: Annotated[int, Meta(ge=1)] = 16
    max_tool_calls: Count = 64
    max_parallel_tools: Annotated[int, Meta(ge=1)] = 16
    max_result_chars: Count = 20_000
    repeat_limit: Annotated[int, Meta(ge=1)] = 3
    approval_timeout_s: Seconds = 86_400.0

    retrieval_timeout_s: Seconds = 5.0
    max_reference_chars: Count = 20_000
    max_file_bytes: Bytes = 8 * 1024 * 1024
    min_output_tokens: Annotated[int, Meta(ge=1)] = 64
    context_margin_tokens: Count = 64
    compact_at_percent: Annotated[int, Meta(ge=0, le=95)] = 75
    compact_keep: Annotated[int, Meta(ge=1)] = 15
    compact_timeout_s: Seconds = 60.0
    compact_output_tokens: Annotated[int, Meta(ge=1)] = 2_048
    count_at_percent: Annotated[int, Meta(ge=0, le=100)] = 0
    count_timeout_s: Annotated[float, Meta(gt=0)] = 2.0

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8000
    max_body_bytes: Bytes = 32 * 1024 * 1024
    max_json_depth: Annotated[int, Meta(ge=8, le=512)] = 128
    body_timeout_s: Seconds = 30.0
    write_timeout_s: Seconds = 30.0
    heartbeat_s: Seconds = 15.0
    stream_s: Seconds = 60.0
    drain_s: Pause = 10.0
    stateless: Stateless = Stateless.DROP
    stateless_days: Annotated[float, msgspec.Meta(ge=0, le=36_600)] = 0.0
    url_hosts: frozenset[str] = frozenset()
    lease_s: Annotated[float, Meta(ge=1, le=600)] = 3.0
    address: str = ""

    models: Models = msgspec.field(default_factory=Models)
    mcp: Mapping[str, McpServer] = msgspec.field(default_factory=dict)
    retrievers: tuple[NamedRetriever, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that contradict each other.

        Raises:
            InvalidInput: `at` names the setting.
        """
        if self.deadline_cap_s < self.deadline_s:
            raise _bad("deadline_cap_s", "It must not be shorter than deadline_s.")

    @property
    def retry_policy(self) -> RetryPolicy:
        """How often and how soon an attempt follows one that was not sent or was refused for now."""
        return RetryPolicy(
            retries=self.retries,
            base_ms=_ms(self.retry_base_s),
            cap_ms=_ms(self.retry_cap_s),
            retry_after_cap_ms=_ms(self.retry_after_cap_s),
        )

    @property
    def limits(self) -> Limits:
        """How much a provider may send before its answer is refused."""
        return Limits(
            max_event_bytes=self.max_event_bytes,
            max_arguments_bytes=self.max_arguments_bytes,
            max_answer_bytes=self.max_answer_bytes,
        )

    @classmethod
    def load(
        cls,
        flags: Mapping[str, object] | None = None,
        *,
        config: str | Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Settings:
        """Return the settings of this process.

        Args:
            flags: What the command line said, by the names of the fields; None is not said.
            config: The file; without it `ANTIPHON_CONFIG`, else `antiphon.toml` where there is one.
            env: The environment; the process's own by default.

        Raises:
            InvalidInput: A file that cannot be read (`config_not_found`, `bad_toml`), a key that does
                not exist (`unknown_setting`) or a value that does not fit (`invalid_setting`); `at`
                is the place.
        """
        env = os.environ if env is None else env
        file, table = _read(config or env.get(f"{PREFIX}CONFIG") or None)
        tables, aliases = table.pop("models", {}), table.pop("aliases", {})
        servers = read_servers(table.pop("mcp", {}), str(file))
        retrievers = read_retrievers(table.pop("retrievers", {}), str(file))
        values: dict[str, Any] = {}
        for name, value in table.items():
            if name not in KINDS:
                raise _bad(
                    f"{file}: {name}",
                    f"Unknown key.{suggestion(name, (*KINDS, *TABLES))}",
                    code="unknown_setting",
                )
            values[name] = _checked(name, value, f"{file}: {name}")
        for name in KINDS:
            variable = f"{PREFIX}{name.upper()}"
            text = env.get(variable)
            if text is not None:
                values[name] = _checked(name, text, variable, text=True)
        for name, value in (flags or {}).items():
            if value is not None:
                values[name] = _checked(
                    name, value, f"--{name.replace('_', '-')}", text=isinstance(value, str)
                )
        default = values.get("default_model", "")
        models = read_models(tables, env=env, place=str(file), default=default, aliases=aliases)
        return cls(**values, models=models, mcp=servers, retrievers=retrievers)


TABLES: Final = ("models", "aliases", "mcp", "retrievers")
"""Names of the file that are tables, and are read elsewhere."""

KINDS: Final[Mapping[str, Any]] = {
    name: kind
    for name, kind in get_type_hints(Settings, include_extras=True).items()
    if name not in TABLES
}
"""Every setting that a flag, a variable or a key of the file may set, with its kind."""


def sentence(name: str) -> str:
    """Return what the setting `name` is, in the words of the class."""
    entries = re.split(r"\n {4}(?=\w+: )", cleandoc(Settings.__doc__ or ""))
    found = next((entry for entry in entries if entry.startswith(f"{name}: ")), f"{name}: ")
    return " ".join(found.removeprefix(f"{name}: ").split())


def _read(config: str | Path | None) -> tuple[Path, dict[str, Any]]:
    file = Path(config or CONFIG_FILE)
    code, message = "config_not_found", "There is no such file."
    try:
        return file, tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        if config is None:
            return file, {}
    except OSError as error:
        message = f"The file cannot be read: {error.strerror}."
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        code, message = "bad_toml", f"Not TOML: {error}."
    raise _bad(str(file), message, code=code)


def _checked(name: str, value: object, place: str, *, text: bool = False) -> object:
    """Return `value` as the setting's kind; `text` says that it came as a string of characters."""
    if text and isinstance(value, str) and get_origin(KINDS[name]) is frozenset:
        value = [word.strip() for word in value.split(",") if word.strip()]
    try:
        return msgspec.convert(value, KINDS[name], strict=not text)
    except msgspec.ValidationError as error:
        message = f"{error}. {sentence(name)}"
    except UnicodeEncodeError:  # bytes of the environment that are no text
        message = f"It holds bytes that are not UTF-8. {sentence(name)}"
    raise _bad(place, message)


def _bad(place: str, message: str, *, code: str = "invalid_setting") -> InvalidInput:
    return InvalidInput(message, code=code, at=place)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
