"""Selects tests: those of a day, a quick part of them, or all (`scripts/test`, `--quick`, `--all`).

`night.yaml` names what runs only with `--night`, and why. `--quick` leaves out the tests that start servers, browsers
or programs in environments of their own, and those of planted faults, which are found by waiting: a file that does so
says it by what it imports, a test by its fixtures. Of a test with many cases it runs some.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

HERE = Path(__file__).parent
NIGHT = HERE / "night.yaml"
_SERVERS = re.compile(
    r"running_lens|RunningLens|FreshEnvironment|environments import|\bsubprocess\b|multiprocessing|playwright|psycopg"
    r"|running_store|lens_daemon|forked|run_lens|Popen|EmbeddedPostgres|dlrover_world|serving\("
    r"|tests import planted|tests\.planted"
)
_SERVER_FIXTURES = re.compile(r"postgres|lens|newest|wandb|environment|browser|daemon|server|cluster|store|prometheus")

# Of a test with more cases than so many, --quick runs the first and every eighth.
_MANY, _EACH = 8, 8


# Of a configuration: the node ids that were collected, before anything was left out.
COLLECTED = pytest.StashKey[list[str]]()


class Night(NamedTuple):
    """Tests whose node ids match, and why they are left to the night."""

    match: re.Pattern[str]
    reason: str


def night_of(path: Path = NIGHT) -> list[Night]:
    """The entries of the list; raises UsageError for one without a pattern or a reason."""
    found = []
    for entry in yaml.safe_load(path.read_text()):
        if set(entry) != {"match", "reason"} or len(entry["reason"]) < 20:
            raise pytest.UsageError(f"{path.name}: an entry is a `match` and a `reason` of some words: {entry}")
        found.append(Night(re.compile(entry["match"]), entry["reason"]))
    return found


def unused(night: Iterable[Night], nodeids: Iterable[str]) -> list[str]:
    """Patterns that match no test."""
    known = list(nodeids)
    return [entry.match.pattern for entry in night if not any(entry.match.search(nodeid) for nodeid in known)]


@cache
def _file_starts_servers(path: Path) -> bool:
    return _SERVERS.search(path.read_text()) is not None


def is_quick(item: pytest.Item) -> bool:
    """Whether a test of a file that starts no servers asks for none by a fixture, either."""
    if item.get_closest_marker("slow"):
        return False
    return not any(_SERVER_FIXTURES.search(name) for name in getattr(item, "fixturenames", ()))


def some_cases(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """All tests, but of one with many cases every eighth."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [item for each in cases.values() for item in (each[::_EACH] if len(each) > _MANY else each)]


class Selection:
    """The hooks that leave out, and say how many."""

    def __init__(self) -> None:
        self._left_to_the_night = 0

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Do not even import a file that starts servers, where quick tests were asked for."""
        is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
        return True if config.getoption("quick") and is_test and _file_starts_servers(collection_path) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep what was asked for."""
        config.stash[COLLECTED] = [item.nodeid for item in items]
        night = night_of()
        left_out: list[pytest.Item] = []
        if not config.getoption("night"):
            left_out = [item for item in items if any(entry.match.search(item.nodeid) for entry in night)]
            self._left_to_the_night = len(left_out)
        if config.getoption("quick"):
            kept = set(some_cases(item for item in items if is_quick(item)))
            left_out += [item for item in items if item not in kept]
        if left_out:
            gone = set(left_out)
            items[:] = [item for item in items if item not in gone]
            config.hook.pytest_deselected(items=list(gone))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Fail a test that claims to be slow and does not say why."""
        mark = item.get_closest_marker("slow")
        if mark is not None and not (mark.args and isinstance(mark.args[0], str)):
            pytest.fail('slow needs a reason, as in @pytest.mark.slow("waits for a lease")', pytrace=False)

    def pytest_report_collectionfinish(self) -> str | None:
        """Say it, where tests run in one process."""
        if not self._left_to_the_night:
            return None
        return f"{self._left_to_the_night} tests are left to the night (scripts/test --all; tests/{NIGHT.name})"
