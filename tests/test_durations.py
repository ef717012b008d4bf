"""The limit of a test's time: what counts, what a reason excuses, what the end of a run shows."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.durations import Cost, Moment, Stopwatch, counted_seconds, cpu_seconds_of, per_folder, slowness

ROOT = Path(__file__).parents[1]
# Without the kernel's figures only CPU time counts, which nobody else's work adds to.
CONFTEST = """
from pathlib import Path
from tests import durations

durations.LIMIT_SECONDS = 0.2
durations._PRESSURE = Path("/nowhere")
durations._SHOWN = 1
durations._WORK_SECONDS = 1e6

def pytest_configure(config):
    config.addinivalue_line("markers", "slow(reason): may")
    config.pluginmanager.register(durations.Durations())
"""
TESTS = """
import time
import pytest

def work(seconds):
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass

def test_quick():
    pass

def test_long():
    work(0.4)

@pytest.mark.slow("counts sheep")
def test_long_with_a_reason():
    work(0.4)

def test_that_fails():
    work(0.4)
    assert False

@pytest.fixture
def fixture():
    yield
    work(0.4)

def test_whose_fixture_is_long(fixture):
    pass
"""


def moment(wall: float, cpu: float = 0.0, waited: float = 0.0, preparing: float = 0.0) -> Moment:
    return Moment(wall, cpu, waited, preparing)


@pytest.mark.parametrize(
    ("end", "counted"),
    [
        (moment(30.0), 30.0),
        (moment(30.0, cpu=4.0, waited=25.0), 5.0),
        (moment(30.0, cpu=28.0, waited=25.0), 28.0),
        (moment(1.0, cpu=300.0), 1.0),  # of a daemon that many tests used
        (moment(300.0, cpu=250.0, preparing=298.0), 2.0),
        (moment(30.0, cpu=4.0, waited=30.0), 4.0),  # no figures of the kernel
    ],
)
def test_waiting_for_a_cpu_and_preparing_do_not_count(end: Moment, counted: float) -> None:
    assert counted_seconds(moment(0.0), end) == counted


def test_a_stopwatch_never_shows_more_than_the_wall() -> None:
    began, watch = Moment.now(), Stopwatch()
    assert watch.seconds() <= Moment.now().wall - began.wall


def test_the_limit_is_higher_on_a_slower_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slowness() >= 1.0
    monkeypatch.setattr("tests.durations._WORK_SECONDS", 1e-6)
    assert slowness() > 10.0
    monkeypatch.setattr("tests.durations._WORK_SECONDS", 1e6)
    assert slowness() == 1.0


def test_folders_are_added_up() -> None:
    shown = {"tests/a/test_x.py::test_1": Cost(1.0, 0.0, 0.5), "tests/a/test_y.py::test_2[a/b]": Cost(2.0, 1.0, 0.5)}
    assert per_folder(shown) == {"tests/a": (Cost(3.0, 1.0, 1.0), 2)}


def test_cpu_time_of_children_counts_while_they_live_and_once() -> None:
    """A child that burns half a second and stays, and one of its own."""
    work = "import time\nwhile time.process_time() < 0.5: pass\n"
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}])\nprint(flush=True)\ninput()"
    before = cpu_seconds_of(os.getpid())
    with subprocess.Popen([sys.executable, "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        alive = cpu_seconds_of(os.getpid()) - before
        assert cpu_seconds_of(child.pid) >= 0.5
        child.communicate(b"\n")
    assert alive >= 0.5
    assert alive <= cpu_seconds_of(os.getpid()) - before < 2 * alive
    assert cpu_seconds_of(child.pid) == 0.0


def test_a_thread_that_ends_while_children_are_read_hides_none() -> None:
    """A thread is listed, and gone when its children are asked for: the process has its others' all the same."""
    spent = cpu_seconds_of(os.getpid())
    ending = threading.Event()

    def begin_and_end_threads() -> None:
        while not ending.is_set():
            threading.Thread(target=int).start()

    churn = threading.Thread(target=begin_and_end_threads)
    churn.start()
    try:
        for _ in range(500):
            now = cpu_seconds_of(os.getpid())
            assert now >= spent
            spent = now
    finally:
        ending.set()
        churn.join()


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_long_test_fails_unless_it_says_why(processes: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", processes, "test_some.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in [name for name in environment if name.startswith("PYTEST_")]:
        del environment[name]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    failed = {line.split(" ")[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))}
    assert failed == {
        "test_some.py::test_long",
        "test_some.py::test_that_fails",
        "test_some.py::test_whose_fixture_is_long",
    }, done.stdout
    for name in ("test_long", "test_whose_fixture_is_long"):
        assert f"test_some.py::{name} took 0." in done.stdout
    assert "counts sheep" not in done.stdout
    assert "the 1 slowest tests" in done.stdout
    assert "seconds per folder" in done.stdout
