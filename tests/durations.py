"""The slowest tests, the time per folder, and a limit for tests that do not say why they take long.

Wall time lies on a busy machine. What counts against the limit is the wall time without the time for which tasks of the
machine waited for a CPU or a disk (the kernel's pressure figures), and without what a virtual machine's host took; but
never less than the CPU time that the test and its descendants have used in it. Making what is kept for later
(environments, wheels) does not count. On a slower processor the limit is higher: a piece of work is timed when a test
is about to fail.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from time import monotonic, thread_time  # by name: tests put other clocks into the module
from typing import NamedTuple

import pytest

LIMIT_SECONDS = 20.0
_SHOWN = 20
_PRESSURE = Path("/proc/pressure")
# CPU seconds of `_work` where the limit was chosen.
_WORK_SECONDS = 0.016
_TICKS = os.sysconf("SC_CLK_TCK")
# The attribute of a report with the seconds of its phase, those that count and of CPU; reports carry it from the
# processes that run tests.
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
        wall = monotonic()
        waited = _waited()
        return cls(wall, cpu_seconds_of(os.getpid()), wall if waited is None else waited, _preparing)


def cpu_seconds_of(pid: int) -> float:
    """CPU seconds of a process, of its descendants that live and of those that were waited for; 0 for none such."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended, and whoever waited for it has its time
        return 0.0
    own = sum(map(int, fields[11:15])) / _TICKS
    return own + sum(cpu_seconds_of(child) for task in tasks for child in _children_of(pid, task))


def _children_of(pid: int, task: str) -> list[int]:
    """The processes that a thread has started; none once it has ended, for then another thread has them."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    except OSError:
        return []


def _waited() -> float | None:
    """Seconds since boot in which some task waited for a CPU or a disk; None where the kernel does not count them."""
    try:
        lines = [(_PRESSURE / what).read_text().splitlines()[0] for what in ("cpu", "io")]
        stolen = int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / _TICKS
        return stolen + sum(int(some.rpartition("total=")[2]) for some in lines) / 1e6
    except (OSError, ValueError, IndexError):
        return None


def slowness() -> float:
    """Return the slowdown of this machine against the one for which limits were chosen; at least 1."""
    return max(1.0, min(_work() for _ in range(5)) / _WORK_SECONDS)


def is_within(seconds: float, limit: float) -> bool:
    """Whether a test's CPU seconds are below a limit, which is higher on a slower processor."""
    return seconds < limit or seconds < limit * slowness()


def _work() -> float:
    begun = thread_time()
    sum(number * number for number in range(400_000))
    return thread_time() - begun


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
        """Wall seconds until now, without those in which tasks waited for a CPU or a disk."""
        now = Moment.now()
        return (now.wall - self._begun.wall) - (now.waited - self._begun.waited)


class Cost(NamedTuple):
    """The cost of a test: wall seconds, those that count against the limit, and CPU seconds."""

    wall: float = 0.0
    counted: float = 0.0
    cpu: float = 0.0

    def plus(self, other: Cost) -> Cost:
        """Both together."""
        return Cost(*(mine + its for mine, its in zip(self, other, strict=True)))


class Durations:
    """The hooks: they count in the process of a test and report in the one that was started."""

    def __init__(self) -> None:
        self._last = Moment.now()
        self._counted: dict[str, float] = defaultdict(float)
        self._shown: dict[str, Cost] = {}

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
        # A process that nobody waited for takes its time with it.
        setattr(report, _SECONDS, (seconds, max(0.0, self._last.cpu - last.cpu)))
        self._counted[item.nodeid] += seconds
        if call.when == "teardown":
            total = self._counted.pop(item.nodeid)
            if total > LIMIT_SECONDS and reason_of(item) is None and report.passed:
                limit = LIMIT_SECONDS * slowness()
                if total > limit:
                    report.outcome = "failed"
                    report.longrepr = (
                        f"{item.nodeid} took {total:.1f} s, and {limit:.1f} s is the limit on this machine. "
                        'Make it quicker, or mark it: @pytest.mark.slow("why it takes so long")'
                    )
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the phases of a test."""
        phase = Cost(report.duration, *getattr(report, _SECONDS, (0.0, 0.0)))
        self._shown[report.nodeid] = self._shown.get(report.nodeid, Cost()).plus(phase)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the tables; a few tests have none."""
        if len(self._shown) <= _SHOWN:
            return
        write = terminalreporter.write_line
        terminalreporter.section(f"the {_SHOWN} slowest tests: seconds, those that count against the limit, of CPU")
        for nodeid, cost in sorted(self._shown.items(), key=lambda item: -item[1].wall)[:_SHOWN]:
            write(f"{cost.wall:8.1f} {cost.counted:8.1f} {cost.cpu:8.1f}  {nodeid}")
        terminalreporter.section(f"the {_SHOWN} that used most CPU: seconds, of CPU")
        for nodeid, cost in sorted(self._shown.items(), key=lambda item: -item[1].cpu)[:_SHOWN]:
            write(f"{cost.wall:8.1f} {cost.cpu:8.1f}  {nodeid}")
        terminalreporter.section("seconds per folder, of all processes together, of CPU, and its tests")
        for folder, (cost, tests) in sorted(per_folder(self._shown).items(), key=lambda item: -item[1][0].wall):
            write(f"{cost.wall:8.1f} {cost.cpu:8.1f} {tests:6}  {folder}")


def per_folder(shown: dict[str, Cost]) -> dict[str, tuple[Cost, int]]:
    """Return the cost of the tests in each folder, and their number."""
    found: dict[str, tuple[Cost, int]] = {}
    for nodeid, cost in shown.items():
        folder = str(Path(nodeid.partition("::")[0]).parent)
        before, number = found.get(folder, (Cost(), 0))
        found[folder] = (before.plus(cost), number + 1)
    return found


def reason_of(item: pytest.Item) -> str | None:
    """The reason why a test may take long, from its mark."""
    mark = item.get_closest_marker("slow")
    return None if mark is None else str(mark.args[0] if mark.args else "")
