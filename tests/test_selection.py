"""Tests that a run leaves out: the list of the night, and the marks of files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.generated import PROFILE, examples, part
from tests.plugins.sources.wandb_hook.environments import DAY, EVERY, NIGHT, environment
from tests.selection import COLLECTED, night_of, unused

ROOT = Path(__file__).parents[1]


def collected(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-n", "0", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 5), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if "::" in line]


def test_every_entry_of_the_night_has_a_reason_and_matches_a_test(request: pytest.FixtureRequest) -> None:
    night = night_of()
    assert night
    assert len({entry.reason for entry in night}) == len(night)
    config = request.config
    whole = {ROOT / place for place in config.args} == {ROOT / "tests"} and not config.getoption("quick")
    every = config.stash[COLLECTED] if whole else collected("--night")
    assert unused(night, every) == []


def test_the_night_is_left_out_by_day_and_nothing_else() -> None:
    place = "tests/plugins/sources/wandb_hook"
    night = night_of()
    every, day = collected("--night", place), collected(place)
    assert [test for test in every if test not in day]
    assert day == [test for test in every if not any(entry.match.search(test) for entry in night)]


def test_by_day_no_test_makes_an_environment_that_was_not_made_before(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(EVERY) > NIGHT
    assert set(DAY) == set(EVERY) - NIGHT
    monkeypatch.setenv("LENS_WHOLE_RUN", "day")
    for name in NIGHT:
        with pytest.raises(AssertionError, match=name):
            environment(name, EVERY[name])


def test_quick_runs_some_cases_of_tests_with_many(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n\n\n@pytest.mark.parametrize('case', range(20))\ndef test_many(case): ...\n"
        "\n\n@pytest.mark.parametrize('case', range(8))\ndef test_few(case): ...\n"
    )
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), str(tmp_path)]
    assert len(collected(*options)) == 28
    few = [f"test_it.py::test_few[{number}]" for number in range(8)]
    assert collected("--quick", *options) == [*(f"test_it.py::test_many[{number}]" for number in (0, 8, 16)), *few]


def test_quick_tests_start_no_servers() -> None:
    quick = collected("--quick", "tests/end_to_end", "tests/browser")
    assert quick == []
    assert collected("--quick", "tests/lens_core/base/test_json_items.py")


@pytest.mark.parametrize("content", ["- {match: x}", "- {match: x, reason: because}", "- {match: x, why: y}"])
def test_an_entry_without_a_reason_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "night.yaml"
    path.write_text(content)
    with pytest.raises(pytest.UsageError, match=r"night\.yaml"):
        night_of(path)


def test_a_slow_test_without_a_reason_is_refused(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_it.py").write_text("import pytest\n\n\n@pytest.mark.slow\ndef test_it():\n    pass\n")
    options = ["-q", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    command = [sys.executable, "-m", "pytest", *options, "."]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout
    assert "slow needs a reason" in done.stdout


def test_profiles_scale_the_generated_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for name in ("quick", "ci", "night"):
        monkeypatch.setenv(PROFILE, name)
        found[name] = examples(40), part("abcdefgh")
    assert found == {"quick": (5, "adg"), "ci": (10, "adg"), "night": (400, "abcdefgh")}
