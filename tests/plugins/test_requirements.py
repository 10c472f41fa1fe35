"""The plugin that ties tests to requirements, run on small suites of its own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.plugins import requirements

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """Give a suite that uses the plugin and knows its mark."""
    pytester.makeini(
        "[pytest]\nmarkers = req(*ids): numbers\naddopts = -p tests.plugins.requirements -p no:asyncio\n"
    )
    return pytester


def proved(folder: Path) -> dict[str, list[str]]:
    """Return what a run wrote, without the numbers that nothing proves."""
    record = json.loads((folder / "out.json").read_text())
    return {number: tests for number, tests in record.items() if tests}


def test_the_numbers_run_from_1_to_174_without_a_gap() -> None:
    known = requirements.known_numbers(requirements.KNOWN.read_text(encoding="utf-8"))
    assert known == [f"M{number}" for number in range(1, 175)]


def test_every_owned_number_exists() -> None:
    owned = requirements.owned_numbers(requirements.OWNED.read_text(encoding="utf-8"))
    known = requirements.known_numbers(requirements.KNOWN.read_text(encoding="utf-8"))
    assert set(owned) <= set(known)
    assert len(owned) == len(set(owned))


def test_ranges_are_read_inclusively_and_comments_are_not() -> None:
    assert requirements.owned_numbers("M1-M3 M7 # M9\nM8") == ["M1", "M2", "M3", "M7", "M8"]
    with pytest.raises(pytest.UsageError, match="M1-3"):
        requirements.owned_numbers("M1-3")


def test_every_number_is_listed_with_the_tests_that_passed(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_a="""
        import pytest

        @pytest.mark.req("M2", "M1")
        def test_two(): pass

        @pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.req("M3"))])
        @pytest.mark.req("M2")
        def test_each(n): pass

        @pytest.mark.req("M4")
        class TestGroup:
            def test_inside(self): pass

        def test_unmarked(): pass
        """
    )
    result = suite.runpytest_inprocess("--requirements=out.json")
    assert result.ret == 0
    assert len(json.loads((suite.path / "out.json").read_text())) == 174
    assert proved(suite.path) == {
        "M1": ["test_a.py::test_two"],
        "M2": ["test_a.py::test_each[1]", "test_a.py::test_each[2]", "test_a.py::test_two"],
        "M3": ["test_a.py::test_each[2]"],
        "M4": ["test_a.py::TestGroup::test_inside"],
    }


def test_what_did_not_pass_in_every_phase_proves_nothing(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_a="""
        import pytest

        @pytest.fixture
        def falls(): yield; raise RuntimeError

        @pytest.mark.req("M1")
        def test_fails(): assert False

        @pytest.mark.req("M1")
        def test_skips(): pytest.skip("x")

        @pytest.mark.req("M1")
        @pytest.mark.xfail
        def test_is_expected_to_fail(): assert False

        @pytest.mark.req("M1")
        def test_falls_at_the_end(falls): pass
        """
    )
    result = suite.runpytest_inprocess("--requirements=out.json")
    assert result.ret == 1
    assert proved(suite.path) == {}


@pytest.mark.parametrize("number", ["M0", "M175", "34"])
def test_a_number_that_does_not_exist_stops_every_run(suite: pytest.Pytester, number: str) -> None:
    suite.makepyfile(
        test_a=f'import pytest\n@pytest.mark.req("M1", "{number}")\ndef test_a(): pass'
    )
    result = suite.runpytest_inprocess("-k", "nothing")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*test_a.py::test_a: no requirement {number}"])


@pytest.mark.parametrize("arguments", ["", "34", 'number="M1"'])
def test_a_mark_without_a_number_stops_every_run(suite: pytest.Pytester, arguments: str) -> None:
    suite.makepyfile(test_a=f"import pytest\n@pytest.mark.req({arguments})\ndef test_a(): pass")
    assert suite.runpytest_inprocess().ret == pytest.ExitCode.USAGE_ERROR


def test_an_owned_number_without_a_test_fails_only_when_asked(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.makepyfile(test_a='import pytest\n@pytest.mark.req("M1")\ndef test_a(): pass')
    (suite.path / "owned.txt").write_text("M1-M3")
    monkeypatch.setattr(requirements, "OWNED", suite.path / "owned.txt")
    assert suite.runpytest_inprocess().ret == 0
    result = suite.runpytest_inprocess("--require-owned")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*requirements without a passing test*", "M2 M3"])
