"""Every case of the folders beside this file is right on every key that it asserts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases.assertions import KEYS
from tests.cases.files import KINDS, Case, cases_in
from tests.cases.history import unavailable
from tests.cases.loop import unplayable
from tests.cases.report import Result
from tests.run_cases import run_case, run_cases

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"
CASES = [case for folder in ("cases", "cases_extra") for case in cases_in(DATA / folder)]

PROVES: dict[str, tuple[str, ...]] = {
    "A-002": ("M34",),
    "A-003": ("M39", "M79"),
    "A-011": ("M13",),
    "A-012": ("M87",),
    "B-001": ("M42",),
    "B-005": ("M73", "M84"),
    "C-001": ("M34", "M69"),
    "C-002": ("M67", "M77"),
    "C-003": ("M78",),
    "C-004": ("M125",),
    "C-005": ("M125", "M126"),
    "C-006": ("M25",),
    "C-007": ("M35", "M90"),
    "C-103": ("M67", "M86", "M77"),
    "C-104": ("M76",),
    "C-106": ("M125", "M126", "M128"),
    "C-110": ("M136",),
    "C-111": ("M63",),
    "C-112": ("M63", "M65"),
    "C-113": ("M63", "M77"),
    "C-114": ("M72", "M73", "M89"),
    "C-115": ("M68", "M89", "M98"),
    "C-120": ("M35",),
    "C-122": ("M40", "M80"),
    "C-125": ("M71", "M78"),
    "C-126": ("M60", "M65"),
    "C-128": ("M65",),
    "C-132": ("M127",),
    "C-133": ("M127",),
    "C-134": ("M127",),
    "C-135": ("M27",),
    "C-136": ("M27",),
    "C-142": ("M81",),
    "C-145": ("M22", "M132"),
    "C-151": ("M76", "M77"),
    "D-001": ("M106", "M107"),
    "D-002": ("M46", "M107"),
    "D-003": ("M46",),
    "D-006": ("M119", "M121"),
    "D-007": ("M116", "M122"),
    "D-008": ("M112", "M44"),
    "E-002": ("M143",),
    "E-003": ("M140", "M141", "M142"),
    "E-004": ("M69",),
    "E-005": ("M34",),
    "E-007": ("M144",),
    "E-009": ("M145",),
}


def _reason(case: Case) -> str | None:
    """Return why a case is not run here, or None."""
    if case.kind in ("history", "stream"):
        return unavailable(case.dialect)
    if case.kind == "loop":
        return unplayable(case)
    return None if case.kind in KINDS else f"there is no kind {case.kind}"


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> dict[str, Result]:
    """The results of all cases that were chosen, run together because most of it is waiting."""
    items = [item for item in request.session.items if isinstance(item, pytest.Function)]
    params = [item.callspec.params for item in items if hasattr(item, "callspec")]
    cases = [case for found in params if isinstance(case := found.get("case"), Case)]
    return {result.id: result for result in run_cases(cases)}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case,
            id=case.id,
            marks=[pytest.mark.req(*PROVES[case.id])] if case.id in PROVES else [],
        )
        for case in CASES
        if _reason(case) is None
    ],
)
def test_a_case_is_right_on_every_key_that_it_asserts(
    case: Case, results: dict[str, Result]
) -> None:
    result = results[case.id]
    assert result.wrong == [], result.notes
    assert result.not_compared == []
    assert result.right is True


def test_cases_that_are_not_run_say_why_and_count_as_neither_right_nor_wrong() -> None:
    for case in CASES:
        reason = _reason(case)
        if reason is not None:
            result = run_case(case)
            assert (result.right, result.skipped, result.compared) == (None, reason, set())


def cases_command(folder: Path) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        [sys.executable, "tests/run_cases.py", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def write(folder: Path, **changes: Any) -> None:
    case = json.loads((DATA / "cases" / "C-005.json").read_text(encoding="utf-8"))
    (folder / "one.json").write_text(json.dumps(case | changes), encoding="utf-8")


def test_the_command_prints_a_line_a_case_then_totals(tmp_path: Path) -> None:
    write(tmp_path)
    code, (line, total) = cases_command(tmp_path)
    assert code == 0
    assert (line["right"], line["keys compared"], line["keys there"]) == (True, 5, 5)
    assert (total["right"], total["wrong"], total["skipped"]) == (1, 0, 0)


def test_a_wrong_case_is_told_key_by_key_and_ends_the_command_with_1(tmp_path: Path) -> None:
    write(tmp_path, expect={"request": {"request_of": "r2", "order": ["m1", "m7", "m2"]}})
    code, (line, total) = cases_command(tmp_path)
    assert code == 1
    assert line["right"] is False
    assert line["wrong"][0].startswith("request.order: ")
    assert total["wrong ids"] == ["C-005"]


def test_an_assertion_that_nobody_knows_makes_its_case_wrong(tmp_path: Path) -> None:
    write(tmp_path, expect={"colour_of": {"m1": "blue"}, "still_stored": ["m3"]})
    code, (line, _) = cases_command(tmp_path)
    assert (code, line["right"]) == (1, False)
    assert line["wrong"] == ["colour_of: no such assertion"]


def test_a_step_that_nobody_knows_makes_its_case_wrong(tmp_path: Path) -> None:
    write(tmp_path, given={"steps": [{"op": "levitate"}]})
    code, (line, _) = cases_command(tmp_path)
    assert (code, line["right"]) == (1, False)
    assert "no such step: levitate" in line["wrong"][0]


def test_a_folder_without_cases_ends_the_command_with_2(tmp_path: Path) -> None:
    assert cases_command(tmp_path) == (2, [])


def test_every_assertion_of_the_format_has_a_judge() -> None:
    told = (DATA / "cases" / "README.md").read_text(encoding="utf-8")
    section = told.split("Assertions:")[1].split("## kind `context`")[0]
    table, prose = section.split("Under an `inspect` name:")
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {word.strip("` ") for row in rows for word in row.split(",")}
    named |= set(prose.replace("`", " ` ").split("` ")[1::2])
    named = {word.strip() for word in named} - {"next", "one_of", "or"}
    assert named <= KEYS.keys(), named - KEYS.keys()
