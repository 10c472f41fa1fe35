"""Cases of kind `operations`: what people, providers, tools and crashes do to a conversation.

The real engine over the real store plays them in a process of its own; the provider answers over
real loopback HTTP, and a crash is SIGKILL. After each step the engine is left alone until it waits
for somebody else.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.cases.assertions import compare, parts, parts_of_look
from tests.cases.facts import Facts
from tests.cases.files import Case
from tests.cases.play import Play
from tests.cases.report import Result, keys_of
from tests.cases.stage import PlayerFailed


async def run_operations(case: Case) -> Result:
    """Play one case and compare what it expects."""
    steps = case.given["steps"]
    names = {step["as"] for step in steps if step["op"] == "inspect"}
    result = Result(id=case.id, kind=case.kind, keys=keys_of(case.kind, case.expect, names))
    folder = Path(tempfile.mkdtemp(prefix="case-"))
    try:
        async with Play(case, folder) as play:
            result.notes = play.notes
            await _play(play, case, result, names)
    except PlayerFailed as failure:
        result.wrong.append(f"the engine failed: {str(failure)[-1500:]}")
    except KeyError as unknown:
        result.wrong.append(f"the case cannot be played: {unknown}")
    except TimeoutError:
        result.wrong.append("the engine did nothing for too long")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return result


async def _play(play: Play, case: Case, result: Result, names: set[str]) -> None:
    looks: dict[str, Facts] = {}
    for position, step in enumerate(case.given["steps"]):
        if step["op"] == "inspect":
            name = step["as"]
            looks[name] = await play.look(*parts_of_look(case.expect, name))
        else:
            await play.step(position)
    await play.release()
    final = await play.look(*parts(case.expect, names))
    for key, problem in compare(case.expect, final, looks).items():
        result.check(key, problem)
