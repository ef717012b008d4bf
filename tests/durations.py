"""The slowest tests, the time per folder, and a limit for tests that do not say why they take long.

Wall time lies on a busy machine. What counts against the limit is the wall time without the time for which runnable
tasks of the machine waited for a CPU (the kernel's pressure figures), but never less than the CPU time that the test
and the children it waited for have used in it. Making what is kept for later (environments, wheels) does not count.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from time import monotonic  # by name: tests put other clocks into the module
from typing import NamedTuple

import pytest

LIMIT_SECONDS = 20.0
_SHOWN = 20
_PRESSURE = Path("/proc/pressure/cpu")
# The attribute of a report with the seconds of its phase; reports carry it from the processes that run tests.
_SECONDS = "counted_seconds"

_preparing = 0.0


@contextlib.contextmanager
def preparing() -> Iterator[None]:
    """Leave out of the count what takes long once and is kept."""
    global _preparing
    begun = monotonic()
    try:
        yield
    finally:
        _preparing += monotonic() - begun


class Moment(NamedTuple):
    """The clocks at one moment."""

    wall: float
    cpu: float
    waited: float
    preparing: float

    @classmethod
    def now(cls) -> Moment:
        """Read them."""
        used = os.times()
        wall = monotonic()
        waited = _waited_for_cpu()
        cpu = used.user + used.system + used.children_user + used.children_system
        return cls(wall, cpu, wall if waited is None else waited, _preparing)


def _waited_for_cpu() -> float | None:
    """Seconds since boot in which some task waited for a CPU; None where the kernel does not count them."""
    try:
        some = _PRESSURE.read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return None


def counted_seconds(begin: Moment, end: Moment) -> float:
    """Seconds of a test between two moments, as if nothing else ran; the CPU time alone where pressure is unknown."""
    wall = end.wall - begin.wall
    own = wall - (end.waited - begin.waited)
    if (prepared := end.preparing - begin.preparing) > 0:
        # Children that made an environment have used CPU, too: what is left of the wall time is the most it can be.
        return max(0.0, min(own, wall - prepared))
    # A daemon that a whole file used is waited for in one test: no more of its CPU time than that test took.
    return max(own, min(end.cpu - begin.cpu, wall))


class Stopwatch:
    """Measures what a test promises of time, as if nothing else ran on the machine."""

    def __init__(self) -> None:
        self._begun = Moment.now()

    def seconds(self) -> float:
        """Wall seconds until now, without those in which tasks waited for a CPU."""
        now = Moment.now()
        return (now.wall - self._begun.wall) - (now.waited - self._begun.waited)


class Durations:
    """The hooks: they count in the process of a test and report in the one that was started."""

    def __init__(self) -> None:
        self._last = Moment.now()
        self._counted: dict[str, float] = defaultdict(float)
        self._shown: dict[str, tuple[float, float]] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        """Begin to count."""
        self._last = Moment.now()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note the seconds of a phase, and after the last one fail what took too long without a reason."""
        report = yield
        last, self._last = self._last, Moment.now()
        seconds = counted_seconds(last, self._last)
        setattr(report, _SECONDS, seconds)
        self._counted[item.nodeid] += seconds
        if call.when == "teardown":
            total = self._counted.pop(item.nodeid)
            if total > LIMIT_SECONDS and reason_of(item) is None and report.passed:
                report.outcome = "failed"
                report.longrepr = (
                    f"{item.nodeid} took {total:.1f} s, and {LIMIT_SECONDS:.0f} s is the limit. "
                    'Make it quicker, or mark it: @pytest.mark.slow("why it takes so long")'
                )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the phases of a test."""
        wall, counted = self._shown.get(report.nodeid, (0.0, 0.0))
        self._shown[report.nodeid] = (wall + report.duration, counted + getattr(report, _SECONDS, 0.0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write both tables; a few tests have none."""
        if len(self._shown) <= _SHOWN:
            return
        write = terminalreporter.write_line
        terminalreporter.section(f"the {_SHOWN} slowest tests: seconds, and those that count against the limit")
        for nodeid, (wall, counted) in sorted(self._shown.items(), key=lambda item: -item[1][0])[:_SHOWN]:
            write(f"{wall:8.1f} {counted:8.1f}  {nodeid}")
        terminalreporter.section("seconds per folder, of all processes together")
        for folder, wall in sorted(per_folder(self._shown).items(), key=lambda item: -item[1]):
            write(f"{wall:8.1f}  {folder}")


def per_folder(shown: dict[str, tuple[float, float]]) -> dict[str, float]:
    """The wall seconds of the tests in each folder."""
    found: dict[str, float] = defaultdict(float)
    for nodeid, (wall, _) in shown.items():
        found[str(Path(nodeid.partition("::")[0]).parent)] += wall
    return dict(found)


def reason_of(item: pytest.Item) -> str | None:
    """The reason why a test may take long, from its mark."""
    mark = item.get_closest_marker("slow")
    return None if mark is None else str(mark.args[0] if mark.args else "")
