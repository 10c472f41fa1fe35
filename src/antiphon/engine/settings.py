"""Every setting, once: its name, its default and one sentence.

Flags come before `ANTIPHON_*` of the environment, that before `antiphon.toml`, that before the
default. `docs/settings.md` is made from this class.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import msgspec
from msgspec import Meta

from antiphon.core.recovery import Resend, RetryPolicy
from antiphon.engine.models import Models, read_models, suggestion
from antiphon.errors import InvalidInput

CONFIG_FILE: Final = "antiphon.toml"
PREFIX: Final = "ANTIPHON_"

# What a number of each kind may be. A time of zero would fire before anything could happen.
_TIME: Final = Meta(gt=0, le=366 * 86_400)
_PAUSE: Final = Meta(ge=0, le=366 * 86_400)
_COUNT: Final = Meta(ge=0)
_AT_LEAST_ONE: Final = Meta(ge=1)
_BYTES: Final = Meta(ge=256)


def _is(sentence: str) -> Meta:
    return Meta(description=sentence)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of one engine, checked. Made by `load`, or by hand in a test."""

    # Where things are.
    db: Annotated[str, _is("The database.")] = "sqlite:///antiphon.db"
    host: Annotated[str, _is("Where the server listens; wider than loopback needs a key.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Meta(ge=0, le=65535), _is("The server's port; 0 for any free one.")] = 8000
    trust_env: Annotated[
        bool, _is("Whether HTTP_PROXY, HTTPS_PROXY and NO_PROXY count for calls to providers.")
    ] = False

    # Models.
    default_model: Annotated[
        str,
        _is(
            "Who answers when no model is named; empty for the file's first, the environment's, or `rehearsal`."
        ),
    ] = ""
    rehearsal_delay_s: Annotated[
        float,
        _PAUSE,
        _is("Pause of the rehearsal model between two words, so that one sees it stream."),
    ] = 0.03

    # One call to a provider.
    connect_timeout_s: Annotated[
        float, _TIME, _is("Longest wait for a connection, name and TLS included.")
    ] = 10.0
    idle_timeout_s: Annotated[
        float,
        _TIME,
        _is("Longest silence of a provider before the outcome is unknown; pings count as life."),
    ] = 300.0
    deadline_s: Annotated[
        float,
        _TIME,
        _is("After this time from sending, nothing more is sent and the connection is closed."),
    ] = 600.0
    deadline_cap_s: Annotated[
        float, _TIME, _is("While bytes arrive, the deadline moves on, but never further than this.")
    ] = 3600.0
    cancel_grace_s: Annotated[
        float,
        _PAUSE,
        _is("How long a canceled call is still read for what was on its way, before hanging up."),
    ] = 2.0
    retries: Annotated[
        int, _COUNT, _is("Further attempts after one that was not sent, or was refused for now.")
    ] = 2
    retry_base_s: Annotated[
        float, _PAUSE, _is("Longest pause before the first retry; doubles with each.")
    ] = 0.5
    retry_cap_s: Annotated[float, _PAUSE, _is("Longest pause before any retry.")] = 8.0
    retry_after_cap_s: Annotated[
        float, _PAUSE, _is("A provider that asks for a longer pause than this gets no retry.")
    ] = 60.0
    resend_after_unknown: Annotated[
        Resend,
        _is(
            "Whether a call of unknown outcome, once confirmed ended, is made again: `never`, by the process that "
            "saw it break (`same_process`), or `always`."
        ),
    ] = Resend.SAME_PROCESS
    commit_truncated: Annotated[
        bool,
        _is(
            "Whether text that the token limit cut is kept as the answer, marked as cut; calls never are."
        ),
    ] = True

    # Limits on what a provider may send.
    max_event_bytes: Annotated[int, _BYTES, _is("Largest single event of a stream.")] = (
        4 * 1024 * 1024
    )
    max_arguments_bytes: Annotated[int, _BYTES, _is("Largest arguments of one tool call.")] = (
        1024 * 1024
    )
    max_answer_bytes: Annotated[int, _BYTES, _is("Largest answer.")] = 32 * 1024 * 1024

    # Runs and tools.
    max_queued: Annotated[int, _COUNT, _is("Runs that may wait in one conversation.")] = 16
    max_model_calls: Annotated[
        int, _AT_LEAST_ONE, _is("Calls to a model in one run; the last is made without tools.")
    ] = 16
    max_tool_calls: Annotated[int, _COUNT, _is("Tool calls in one run.")] = 64
    max_parallel_tools: Annotated[
        int, _AT_LEAST_ONE, _is("Tool calls of one run that are carried out at the same time.")
    ] = 8
    repeat_limit: Annotated[
        int,
        _AT_LEAST_ONE,
        _is("Identical calls of one tool in one run; further ones are answered with an error."),
    ] = 3
    tool_timeout_s: Annotated[
        float, _TIME, _is("Longest time for a tool call whose tool states none.")
    ] = 60.0
    max_result_bytes: Annotated[
        int, _BYTES, _is("How much of a tool's result the model is shown; all of it is kept.")
    ] = 64 * 1024

    # This process among others.
    heartbeat_s: Annotated[float, _TIME, _is("How often a node renews its lease.")] = 1.0
    lease_s: Annotated[float, _TIME, _is("How long a silent node keeps what it owns.")] = 4.0

    models: Models = msgspec.field(
        default_factory=lambda: read_models({}, env={}, place="", default="")
    )
    """The models of the file and the environment; the documentation's second part."""

    def __post_init__(self) -> None:
        """Refuse values that contradict each other.

        Raises:
            InvalidInput: `at` names the setting.
        """
        if self.deadline_cap_s < self.deadline_s:
            raise _bad("deadline_cap_s", "It must not be shorter than deadline_s.")
        if self.lease_s <= self.heartbeat_s:
            raise _bad(
                "lease_s", "It must be longer than heartbeat_s, or every node loses what it owns."
            )

    @property
    def retry_policy(self) -> RetryPolicy:
        """How often and how soon an attempt follows one that was not sent or was refused for now."""
        return RetryPolicy(
            retries=self.retries,
            base_ms=_ms(self.retry_base_s),
            cap_ms=_ms(self.retry_cap_s),
            retry_after_cap_ms=_ms(self.retry_after_cap_s),
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
        tables = table.pop("models", {})
        values: dict[str, Any] = {}
        for name, value in table.items():
            if name not in KINDS:
                raise _bad(
                    f"{file}: {name}",
                    f"Unknown key.{suggestion(name, KINDS)}",
                    code="unknown_setting",
                )
            values[name] = _checked(name, value, f"{file}: {name}")
        for name in KINDS:
            variable = f"{PREFIX}{name.upper()}"
            text = env.get(variable)
            # In a cluster, a service named antiphon gives every container ANTIPHON_PORT=tcp://…
            if text is not None and not (name == "port" and text.startswith("tcp://")):
                values[name] = _checked(name, text, variable, text=True)
        for name, value in (flags or {}).items():
            if value is not None:
                values[name] = _checked(
                    name, value, f"--{name.replace('_', '-')}", text=isinstance(value, str)
                )
        default = values.get("default_model", "")
        return cls(**values, models=read_models(tables, env=env, place=str(file), default=default))


KINDS: Final[Mapping[str, Any]] = {
    name: kind
    for name, kind in get_type_hints(Settings, include_extras=True).items()
    if name != "models"
}
"""Every setting that a flag, a variable or a key of the file may set, with its kind."""


def sentence(name: str) -> str:
    """Return what the setting `name` is, in one sentence."""
    return str(next(meta.description for meta in KINDS[name].__metadata__ if meta.description))


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
    try:
        return msgspec.convert(value, KINDS[name], strict=not text)
    except msgspec.ValidationError as error:
        message = f"{error}. {sentence(name)}"
    raise _bad(place, message)


def _bad(place: str, message: str, *, code: str = "invalid_setting") -> InvalidInput:
    return InvalidInput(message, code=code, at=place)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
