"""Which model a name means: the tables of the configuration file, and what the environment offers.

`rehearsal` is always there. A file's tables name the others; where there are none, the usual
key of OpenAI or an OpenAI-compatible address lets any name through to it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec

from antiphon.core.answers.deltas import Usage
from antiphon.core.answers.usage import Cost
from antiphon.engine.catalogue.prices import AS_OF, PRICES, Price
from antiphon.engine.edge import local_model, signing
from antiphon.errors import InvalidInput, NotFound

REHEARSAL: Final = "rehearsal"
LOCAL: Final = "local"

REHEARSAL_HOST: Final = "rehearsal.invalid"
"""Stands in requests instead of the port that the server happens to have: the same request has the
same digest tomorrow. The top-level domain is reserved, so no name server will ever answer for it."""

MOST_NAMED: Final = 30
"""More names than this are no help in an error."""

LOCAL_HOST: Final = "local.invalid"

OPENAI_DEFAULT_MODEL: Final = "gpt-5.4-mini"
"""Used when OpenAI is all that the environment names: small, cheap, and speaks every dialect of theirs."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where a dialect's own provider lives, and the usual name of its key."""

    base_url: str | None
    api_key_env: str | None = None


HOMES: Final[Mapping[str, Home]] = MappingProxyType(
    {
        "openai-chat": Home("https://api.openai.com/v1", "OPENAI_API_KEY"),
        "openai-responses": Home("https://api.openai.com/v1", "OPENAI_API_KEY"),
        "anthropic": Home("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        "gemini": Home("https://generativelanguage.googleapis.com/v1beta", "GEMINI_API_KEY"),
        "gemini-interactions": Home(
            "https://generativelanguage.googleapis.com/v1beta", "GEMINI_API_KEY"
        ),
        "bedrock": Home(None, "AWS_BEARER_TOKEN_BEDROCK"),
        "deepseek": Home("https://api.deepseek.com", "DEEPSEEK_API_KEY"),
        "mistral": Home("https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        "qwen-vllm": Home("http://127.0.0.1:8000/v1"),
        "ollama": Home("http://127.0.0.1:11434"),
        "ollama-openai": Home("http://127.0.0.1:11434/v1"),
        "llamacpp": Home("http://127.0.0.1:8080/v1"),
        "groq": Home("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        "openrouter": Home("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        "azure": Home(None, "AZURE_OPENAI_API_KEY"),
    }
)
"""Every profile that a table may name."""


OLLAMA: Final = "ollama"
LOADED_WITH: Final = "num_ctx"
AWS: Final = "bedrock"
REGION: Final = re.compile(r"[a-z][a-z0-9-]{1,62}")
REGIONAL: Final = re.compile(r"(?:[a-z0-9-]+\.)?bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")


class Secret:
    """A key that nothing prints: not `repr`, not `str`, not a data class that holds it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the key; only what opens the socket has a reason to ask."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class Routing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How calls to one model are routed; None is no limit, or the setting of all models.

    Attributes:
        fallbacks: Who is asked, in this order, where this model gave a definite no.
        max_concurrent: Calls at the same time.
        requests_per_minute: Calls that may begin in a minute, evenly spaced.
        max_waiting: Calls of one tenant that may wait for these two; a run more is refused.
        connect_timeout_s: Longest wait for a connection.
        first_byte_timeout_s: Longest wait for the beginning of an answer, from sending.
        idle_timeout_s: Longest silence after it.
        total_timeout_s: Longest time of one call, from sending, whatever arrives.
        price: What tokens cost, where it is not what `antiphon.engine.catalogue.prices` says.
    """

    fallbacks: tuple[str, ...] = ()
    max_concurrent: Annotated[int, msgspec.Meta(ge=1)] | None = None
    requests_per_minute: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_waiting: Annotated[int, msgspec.Meta(ge=0)] = 64
    connect_timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    first_byte_timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    idle_timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    total_timeout_s: Annotated[float, msgspec.Meta(gt=0)] | None = None
    price: Price | None = None

    @property
    def limited(self) -> bool:
        """Whether calls may have to wait."""
        return self.max_concurrent is not None or self.requests_per_minute is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model that a client may name.

    Attributes:
        name: What clients put in `model`.
        profile: The dialect.
        model: The provider's own name for it.
        base_url: What the dialect's paths are appended to.
        api_key: Added at the socket; None where the provider asks for none.
        region: Where requests without a key are signed for, at AWS; None where they are not.
        missing_key: The variable that the file names and the environment lacks: such a model can
            be listed, not used.
        context_window: Tokens that fit, or None where nobody said.
        max_output_tokens: Most that an answer may have, or None for the provider's own limit.
        facts: What is known of this model beyond its dialect, as `antiphon.core.rules.profile.FACTS`.
        routing: Fallbacks, limits, times and price.
    """

    name: str
    profile: str
    model: str
    base_url: str
    api_key: Secret | None = None
    region: str | None = None
    missing_key: str | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None
    facts: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    routing: Routing = field(default_factory=Routing)

    @property
    def price(self) -> Price | None:
        """What its tokens cost, if anybody has said so."""
        return self.routing.price or PRICES.get(self.model)

    def cost(self, usage: Usage) -> Cost | None:
        """Return what an answer cost, or None where nobody can know.

        That is so where its provider counted nothing, and where neither the configuration nor
        the bundled table has a price for this model.
        """
        if self.price is None or usage.input is None or usage.output is None:
            return None
        bundled = self.routing.price is None
        return Cost(micros=self.price.micros(usage), prices_of=AS_OF if bundled else None)

    @property
    def window(self) -> int | None:
        """Tokens that fit: as said, or as large as the model is loaded with."""
        loaded = self.facts.get(LOADED_WITH)
        return self.context_window or (loaded if isinstance(loaded, int) else None)


FREE: Final = Routing(price=Price(input=0.0, output=0.0))
"""What runs on this machine, inside this process, costs nobody anything."""

REHEARSAL_MODEL: Final = Model(
    name=REHEARSAL,
    profile="openai-chat",
    model=REHEARSAL,
    base_url=f"http://{REHEARSAL_HOST}/v1",
    context_window=32_768,
    routing=FREE,
)

LOCAL_MODEL: Final = Model(
    name=LOCAL,
    profile="llamacpp",
    model=local_model.NAME,
    base_url=f"http://{LOCAL_HOST}/v1",
    context_window=local_model.CONTEXT_TOKENS,
    routing=FREE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models there are, and which of them answers when none is named."""

    named: Mapping[str, Model] = field(
        default_factory=lambda: MappingProxyType({REHEARSAL: REHEARSAL_MODEL})
    )
    passthrough: Model | None = None
    default: str = ""
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Other names that clients may use, and whose they are."""

    def get(self, name: str | None = None) -> Model:
        """Return the model that `name` means, or the default one.

        Raises:
            NotFound: `model_not_found`, with the names there are.
            InvalidInput: `key_missing`: the environment lacks the key that the file names for it;
                `extra_missing`: what the model needs is not installed, and how to.
        """
        name = name or self.default_name
        name = self.aliases.get(name, name)
        if name == LOCAL and LOCAL not in self.named:
            local_model.require()
            return LOCAL_MODEL
        known = self.named.get(name)
        if known is not None:
            if known.missing_key is not None:
                raise InvalidInput(
                    f"The key of this model is missing: the environment has no {known.missing_key}.",
                    code="key_missing",
                    at=name,
                )
            if known.region is not None:
                signing.require(name)
            return known
        if self.passthrough is not None:
            return Model(
                name=name,
                profile=self.passthrough.profile,
                model=name,
                base_url=self.passthrough.base_url,
                api_key=self.passthrough.api_key,
            )
        raise NotFound(
            f"There is no model of this name. There are: {', '.join(self.names())}.",
            code="model_not_found",
            at=name,
        )

    @property
    def default_name(self) -> str:
        """Return the setting, else the file's first model, else the environment's, else `rehearsal`."""
        if self.default:
            return self.default
        first = next((name for name in self.named if name != REHEARSAL), None)
        if first is not None:
            return first
        return OPENAI_DEFAULT_MODEL if self.passthrough is not None else REHEARSAL

    def names(self) -> tuple[str, ...]:
        """Return every name there is, the default one first."""
        names = dict.fromkeys([self.default_name, *self.named, *self.aliases])
        if local_model.installed():
            names[LOCAL] = None
        return tuple(names)


def read_models(
    tables: object, *, env: Mapping[str, str], place: str, default: str, aliases: object = None
) -> Models:
    """Return the models of the file's `[models.*]` tables and of the environment.

    Args:
        tables: What stands under `models`; an empty mapping where nothing does.
        aliases: What stands under `aliases`.
        env: The environment.
        place: The file, for messages.
        default: The setting `default_model`.

    Raises:
        InvalidInput: An entry that is unknown, missing or of the wrong kind; `at` is its place.
    """
    if not isinstance(tables, Mapping):
        raise _bad(f"{place}: models", "A table is expected: [models.NAME].")
    named = {
        name: _model(name, table, env, f"{place}: models.{name}") for name, table in tables.items()
    }
    passthrough = _passthrough(env) if not named else None
    named[REHEARSAL] = REHEARSAL_MODEL
    models = Models(
        named=MappingProxyType(named),
        passthrough=passthrough,
        default=default,
        aliases=_aliases(aliases or {}, named, f"{place}: aliases"),
    )
    for name, model in named.items():
        for other in model.routing.fallbacks:
            if other not in named or other == name:
                raise _bad(
                    f"{place}: models.{name}.fallbacks",
                    f"There is no other model {other}.{suggestion(other, named.keys() - {name})}",
                )
    known = default in named or default in models.aliases
    if default and not known and default != LOCAL and passthrough is None:
        raise _bad("default_model", f"There is no model {default}.{suggestion(default, named)}")
    return models


def _aliases(content: object, named: Mapping[str, Model], place: str) -> Mapping[str, str]:
    """Return the other names of models: each stands for one that has a table."""
    if not isinstance(content, Mapping):
        raise _bad(place, 'A table is expected: [aliases], with "other name" = "NAME".')
    for name, meant in content.items():
        if name in named:
            raise _bad(f"{place}.{name}", "A model has this name already.")
        if meant not in named:
            raise _bad(
                f"{place}.{name}", f"There is no model {meant}.{suggestion(str(meant), named)}"
            )
    return MappingProxyType(dict(content))


def _passthrough(env: Mapping[str, str]) -> Model | None:
    """Return where any name goes when the environment names OpenAI, or a server like it, and nothing else."""
    home = HOMES["openai-chat"]
    key = _secret(env, "OPENAI_API_KEY")
    base_url = env.get("OPENAI_BASE_URL", "")
    if key is None and not base_url:
        return None
    return Model(
        name=OPENAI_DEFAULT_MODEL,
        profile="openai-chat",
        model=OPENAI_DEFAULT_MODEL,
        base_url=_url(base_url or str(home.base_url), "OPENAI_BASE_URL"),
        api_key=key,
    )


class _Table(Routing, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[models.NAME]` table, as it stands in the file."""

    profile: str = "openai-chat"
    model: str | None = None
    base_url: str | None = None
    region: str | None = None
    api_key_env: str | None = None
    context_window: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_output_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    facts: dict[str, Any] = {}


def _model(name: str, content: object, env: Mapping[str, str], place: str) -> Model:
    if name == REHEARSAL:
        raise _bad(place, "This name belongs to the built-in model; choose another.")
    table = _table(content, place)
    home = HOMES.get(table.profile)
    if home is None:
        raise _bad(f"{place}.profile", f"Unknown profile.{suggestion(table.profile, HOMES)}")
    region = _region(table, env, place) if table.profile == AWS else None
    if table.region is not None and region is None:
        raise _bad(f"{place}.region", f"The profile {table.profile} has no regions.")
    base_url = table.base_url or home.base_url
    if base_url is None and region is not None:
        base_url = f"https://bedrock-runtime.{region}.{_domain(region)}"
    if base_url is None:
        raise _bad(
            f"{place}.base_url", f"The profile {table.profile} has no usual address; give it."
        )
    key = _key(table, home, env)
    return Model(
        name=name,
        profile=table.profile,
        model=table.model or name,
        base_url=_url(base_url, f"{place}.base_url"),
        api_key=key,
        region=region if key is None else None,
        missing_key=table.api_key_env if key is None else None,
        context_window=table.context_window,
        max_output_tokens=table.max_output_tokens,
        facts=MappingProxyType(_facts(table, f"{place}.facts")),
        routing=Routing(**{name: getattr(table, name) for name in Routing.__struct_fields__}),
    )


def _facts(table: _Table, place: str) -> dict[str, Any]:
    """Return the facts of a model. A window that is known is what Ollama is to load it with."""
    if table.facts:
        from antiphon.adapters import registry  # most models state none, and need not wait for it

        try:
            registry.get(table.profile, table.facts)
        except InvalidInput as error:
            fact = (error.at or "").rpartition(".")[2]
            raise _bad(f"{place}.{fact}", error.message) from None
    if table.profile == OLLAMA and table.context_window is not None:
        return {LOADED_WITH: table.context_window, **table.facts}
    return table.facts


def _region(table: _Table, env: Mapping[str, str], place: str) -> str:
    """Return the region of AWS: as named, as the address says, or as the environment does."""
    host = urlsplit(table.base_url or "").hostname or ""
    of_host = REGIONAL.match(host)
    region = table.region or (of_host[1] if of_host else "")
    region = region or env.get("AWS_REGION", "") or env.get("AWS_DEFAULT_REGION", "")
    if REGION.fullmatch(region) is None:
        raise _bad(f"{place}.region", "Give the region of AWS here, or in AWS_REGION: us-east-1.")
    return region


def _domain(region: str) -> str:
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def _table(content: object, place: str) -> _Table:
    if not isinstance(content, Mapping):
        raise _bad(place, "A table is expected: [models.NAME].")
    for key in content:
        if key not in _Table.__struct_fields__:
            raise _bad(
                f"{place}.{key}",
                f"Unknown key.{suggestion(key, _Table.__struct_fields__)}",
                code="unknown_setting",
            )
    try:
        return msgspec.convert(content, _Table)
    except msgspec.ValidationError as error:
        message, _, inside = str(error).partition(" - at `$")
    raise _bad(place + inside.rstrip("`"), f"{message}.")


def _key(table: _Table, home: Home, env: Mapping[str, str]) -> Secret | None:
    """Return the key: the one named, or the usual one of a dialect that is at home.

    A key goes nowhere but to its own provider, unless the file says so.
    """
    usual = home.api_key_env if table.base_url is None else None
    return _secret(env, table.api_key_env or usual or "")


def _secret(env: Mapping[str, str], variable: str) -> Secret | None:
    """Return the key in `variable`, without the line end that a file often leaves behind it."""
    value = env.get(variable, "").strip()
    if not (value.isascii() and value.isprintable()):
        raise _bad(variable, "This key holds a character that no request can carry.")
    return Secret(value) if value else None


def _url(value: str, place: str) -> str:
    try:
        parts = urlsplit(value)
        usable = (
            parts.scheme in ("http", "https") and parts.hostname is not None and not parts.query
        )
        _ = parts.port
    except ValueError:
        usable, parts = False, urlsplit("")
    if not usable:
        raise _bad(place, "An address begins with http:// or https:// and has no query.")
    if parts.username is not None or parts.password is not None:
        raise _bad(
            place,
            "An address is recorded with every request and must hold no password; name the key by api_key_env.",
        )
    return value.rstrip("/")


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a sentence that names what was probably meant, or lists what there is."""
    known = tuple(known)
    near = difflib.get_close_matches(word, known, n=1)
    near += [name for name in known if word in name and name not in near][:2]
    if near:
        listed = ", ".join(near[:-1])
        return f" Did you mean {listed}{' or ' if listed else ''}{near[-1]}?"
    if len(known) > MOST_NAMED:
        return " All of them: docs/settings.md."
    return f" Known: {', '.join(known)}."


def _bad(place: str, message: str, *, code: str = "invalid_setting") -> InvalidInput:
    return InvalidInput(message, code=code, at=place)
